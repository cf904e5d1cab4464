//! The program that the kernel runs for each packet of an interface, and what it reads: a table of MAC addresses and a table of sockets.
//!
//! A packet to an address of the table goes to the socket of its queue, and every other packet goes to the kernel as if there were no
//! program. All of it goes with its descriptors: if the process is killed, the kernel detaches the program.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::fork::ForkSafeFd;

/// Addresses in the table.
pub const ADDRESSES_MAX: u32 = 1024;

/// Commands, types and flags of `include/uapi/linux/bpf.h`.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_HASH: u32 = 1;
const MAP_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HAS_FRAGMENTS: u32 = 1 << 5;

/// Flags of `include/uapi/linux/if_link.h`: by the kernel on a packet of its own, or by the driver.
const MODE_GENERIC: u32 = 1 << 1;
const MODE_NATIVE: u32 = 1 << 2;

/// Bytes of the longest packet's start that the program reads: the Ethernet header.
const ETHERNET_BYTES: i32 = 14;

/// The key of an address in the table: the address, and two zeros.
fn key(address: [u8; 6]) -> [u8; 8] {
    let mut key = [0; 8];
    key[..6].copy_from_slice(&address);
    key
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes a packet of its own.
    Native,
    /// Behind that, with every driver.
    Generic,
}

/// A program on an interface, until it is dropped.
#[derive(Debug)]
pub(super) struct Program {
    // The link is first: the program is off the interface before its tables go.
    _link: ForkSafeFd,
    addresses: ForkSafeFd,
    sockets: ForkSafeFd,
    mode: Mode,
    has_fragments: bool,
}

/// Why there is no program on the interface.
#[derive(Debug)]
pub(super) enum AttachError {
    /// The kernel takes no table or no program.
    Load(io::Error),
    /// There is another program on the interface.
    Occupied,
    /// The interface takes no program.
    Attach(io::Error),
}

impl Program {
    /// Puts a program for so many queues on an interface of the calling thread's network: in the driver, unless the driver cannot, or that is
    /// not wanted.
    pub fn attach(index: u32, queues: u32, tries_native: bool) -> Result<Program, AttachError> {
        let addresses = create_map(MAP_HASH, 8, ADDRESSES_MAX, "siga_addresses");
        let sockets = create_map(MAP_SOCKETS, 4, queues, "siga_sockets");
        let (addresses, sockets) =
            (addresses.map_err(AttachError::Load)?, sockets.map_err(AttachError::Load)?);
        let instructions = instructions(addresses.as_raw_fd(), sockets.as_raw_fd());
        // Programs that take packets in pieces: since Linux 5.18.
        let (program, has_fragments) = match load(&instructions, HAS_FRAGMENTS) {
            Ok(program) => (program, true),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                (load(&instructions, 0).map_err(AttachError::Load)?, false)
            }
            Err(error) => return Err(AttachError::Load(error)),
        };
        let native = match tries_native {
            true => attach(&program, index, MODE_NATIVE).ok(),
            false => None,
        };
        let (link, mode) = match native {
            Some(link) => (link, Mode::Native),
            None => match attach(&program, index, MODE_GENERIC) {
                Ok(link) => (link, Mode::Generic),
                Err(error) => {
                    // Both modes refuse where one has a program. A link never replaces a program.
                    return Err(match error.raw_os_error() {
                        Some(libc::EBUSY | libc::EEXIST) => AttachError::Occupied,
                        _ => AttachError::Attach(error),
                    });
                }
            },
        };
        let [_link, addresses, sockets] = [link, addresses, sockets].map(ForkSafeFd::new);
        Ok(Program { _link, addresses, sockets, mode, has_fragments })
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns true if the program gets packets that lie in several pieces.
    pub fn has_fragments(&self) -> bool {
        self.has_fragments
    }

    /// Has packets of a queue go to a socket.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.as_raw_fd() as u32;
        change(&self.sockets, MAP_UPDATE, &queue.to_ne_bytes(), &socket.to_ne_bytes())
    }

    /// Has packets to an address go to the sockets.
    pub fn add_address(&self, address: [u8; 6]) -> io::Result<()> {
        change(&self.addresses, MAP_UPDATE, &key(address), &1_u32.to_ne_bytes())
    }

    /// Ends that.
    pub fn remove_address(&self, address: [u8; 6]) -> io::Result<()> {
        change(&self.addresses, MAP_DELETE, &key(address), &[0; 4])
    }
}

/// A register of the kernel's machine: [`RESULT`] and the first five arguments are lost with each call, the others stay.
#[derive(Clone, Copy)]
struct Register(u8);

const RESULT: Register = Register(0);
const FIRST: Register = Register(1);
const SECOND: Register = Register(2);
const THIRD: Register = Register(3);
const FOURTH: Register = Register(4);
const CONTEXT: Register = Register(6);
const FRAME: Register = Register(10);

/// How much is moved, as it stands in an operation.
const WORD: u8 = 0x00;
const HALF: u8 = 0x08;

/// An instruction: operation u8, target u4, source u4, offset i16, immediate i32, from the low bits on.
fn instruction(
    operation: u8,
    target: Register,
    source: Register,
    offset: i16,
    immediate: i32,
) -> u64 {
    let [low, high] = offset.to_le_bytes();
    let [a, b, c, d] = immediate.to_le_bytes();
    u64::from_le_bytes([operation, target.0 | source.0 << 4, low, high, a, b, c, d])
}

fn set(target: Register, immediate: i32) -> u64 {
    instruction(0xb7, target, RESULT, 0, immediate)
}

fn copy(target: Register, source: Register) -> u64 {
    instruction(0xbf, target, source, 0, 0)
}

fn add(target: Register, immediate: i32) -> u64 {
    instruction(0x07, target, RESULT, 0, immediate)
}

fn read(size: u8, target: Register, source: Register, offset: i16) -> u64 {
    instruction(0x61 | size, target, source, offset, 0)
}

fn write(size: u8, target: Register, offset: i16, source: Register) -> u64 {
    instruction(0x63 | size, target, source, offset, 0)
}

/// Skips so many instructions if `left > right`.
fn skip_if_greater(left: Register, right: Register, skipped: i16) -> u64 {
    instruction(0x2d, left, right, skipped, 0)
}

/// Skips so many instructions if the register is zero.
fn skip_if_zero(register: Register, skipped: i16) -> u64 {
    instruction(0x15, register, RESULT, skipped, 0)
}

/// Two instructions that put the address of a table into a register.
fn table(target: Register, map: RawFd) -> [u64; 2] {
    [instruction(0x18, target, Register(1), 0, map), 0]
}

fn call(function: i32) -> u64 {
    instruction(0x85, RESULT, RESULT, 0, function)
}

const RETURN: u64 = 0x95;

/// Functions of the kernel's, and what the program returns for a packet that is the kernel's.
const MAP_LOOKUP: i32 = 1;
const REDIRECT: i32 = 51;
const PASS: i32 = 2;

/// Where `struct xdp_md` has the packet's start, its end, and its queue.
const PACKET_START: i16 = 0;
const PACKET_END: i16 = 4;
const PACKET_QUEUE: i16 = 16;

fn instructions(addresses: RawFd, sockets: RawFd) -> Vec<u64> {
    let mut program = vec![
        copy(CONTEXT, FIRST),
        read(WORD, SECOND, CONTEXT, PACKET_START),
        read(WORD, THIRD, CONTEXT, PACKET_END),
        copy(FOURTH, SECOND),
        add(FOURTH, ETHERNET_BYTES),
        // To the last two instructions: a short packet is the kernel's.
        skip_if_greater(FOURTH, THIRD, 16),
        // The key, on the stack: the address, and zeros from the upper half of the register (little-endian).
        read(WORD, FOURTH, SECOND, 0),
        write(WORD, FRAME, -8, FOURTH),
        read(HALF, FOURTH, SECOND, 4),
        write(WORD, FRAME, -4, FOURTH),
        copy(SECOND, FRAME),
        add(SECOND, -8),
    ];
    program.extend(table(FIRST, addresses));
    program.push(call(MAP_LOOKUP));
    // To the last two instructions: it is to another address.
    program.push(skip_if_zero(RESULT, 6));
    program.extend(table(FIRST, sockets));
    program.extend([
        read(WORD, SECOND, CONTEXT, PACKET_QUEUE),
        // Where there is no socket the packet is the kernel's.
        set(THIRD, PASS),
        call(REDIRECT),
        RETURN,
        set(RESULT, PASS),
        RETURN,
    ]);
    program
}

/// The start of `union bpf_attr` for [`MAP_CREATE`].
#[repr(C)]
struct MapAttributes {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries_max: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

/// The start of `union bpf_attr` for [`MAP_UPDATE`] and [`MAP_DELETE`].
#[repr(C)]
struct EntryAttributes {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The start of `union bpf_attr` for [`PROGRAM_LOAD`].
#[repr(C)]
struct ProgramAttributes {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach: u32,
}

/// The start of `union bpf_attr` for [`LINK_CREATE`].
#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

/// Calls `bpf(2)`.
///
/// # Safety
/// `T` is the start of the attributes of this command, and its pointers point to what the command reads.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads the attributes, which live, and what they point to, for which the caller vouches; it writes
    // nothing for the commands of this module.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

/// A descriptor that a command has made.
///
/// # Safety
/// As of [`bpf`], and the command returns a new descriptor.
unsafe fn make<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for it.
    let descriptor = unsafe { bpf(command, attributes) }?;
    // SAFETY: it is new, and no other code knows it. The kernel sets close-on-exec for all of them.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn named(name: &str) -> [u8; 16] {
    let mut named = [0; 16];
    named[..name.len()].copy_from_slice(name.as_bytes());
    named
}

fn create_map(kind: u32, key_bytes: u32, entries_max: u32, name: &str) -> io::Result<OwnedFd> {
    let name = named(name);
    let (value_bytes, flags, inner, node) = (4, 0, 0, 0);
    let attributes =
        MapAttributes { kind, key_bytes, value_bytes, entries_max, flags, inner, node, name };
    // SAFETY: these are the attributes of the command, without a pointer; it returns a new descriptor.
    unsafe { make(MAP_CREATE, &attributes) }
}

/// Changes an entry of a table, with the key and the value that the table has.
fn change(map: &ForkSafeFd, command: libc::c_int, key: &[u8], value: &[u8; 4]) -> io::Result<()> {
    let Some(map) = map.get() else { return Err(io::ErrorKind::NotConnected.into()) };
    let attributes = EntryAttributes {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: key.as_ptr().expose_provenance() as u64,
        value: if command == MAP_UPDATE { value.as_ptr().expose_provenance() as u64 } else { 0 },
        flags: 0,
    };
    // SAFETY: these are the attributes of both commands. The keys of the two tables have eight and four bytes, as their two
    // kinds of callers pass, and the values of both have four.
    unsafe { bpf(command, &attributes) }.map(drop)
}

fn load(instructions: &[u64], flags: u32) -> io::Result<OwnedFd> {
    let license = c"Apache-2.0";
    let attributes = ProgramAttributes {
        kind: PROGRAM_XDP,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags,
        name: named("siga_wire"),
        interface: 0,
        expected_attach: ATTACH_XDP,
    };
    // SAFETY: these are the attributes of the command, whose pointers are to as many instructions and to a text that ends with a
    // zero; it returns a new descriptor.
    unsafe { make(PROGRAM_LOAD, &attributes) }
}

fn attach(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let attributes = LinkAttributes { program, interface, attach: ATTACH_XDP, flags };
    // SAFETY: these are the attributes of the command, without a pointer; it returns a new descriptor.
    unsafe { make(LINK_CREATE, &attributes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_encoded_as_the_kernel_reads_them() {
        // As printed by an assembler: `r4 = *(u16 *)(r2 + 4)`, `*(u32 *)(r10 - 8) = r4`, `if r4 > r3 goto +16`, `r2 += -8`.
        let [read, write, skip, sum] = [
            read(HALF, FOURTH, SECOND, 4),
            write(WORD, FRAME, -8, FOURTH),
            skip_if_greater(FOURTH, THIRD, 16),
            add(SECOND, -8),
        ]
        .map(u64::to_le_bytes);
        assert_eq!(read, [0x69, 0x24, 4, 0, 0, 0, 0, 0]);
        assert_eq!(write, [0x63, 0x4a, 0xf8, 0xff, 0, 0, 0, 0]);
        assert_eq!(skip, [0x2d, 0x34, 16, 0, 0, 0, 0, 0]);
        assert_eq!(sum, [0x07, 0x02, 0, 0, 0xf8, 0xff, 0xff, 0xff]);
        assert_eq!(table(FIRST, 7).map(u64::to_le_bytes)[0], [0x18, 0x11, 0, 0, 7, 0, 0, 0]);
        assert_eq!(call(REDIRECT).to_le_bytes(), [0x85, 0, 0, 0, 51, 0, 0, 0]);
    }

    #[test]
    fn both_skips_lead_to_where_the_packet_is_left_to_the_kernel() {
        let program = instructions(3, 4);
        let skips = program.iter().enumerate().filter_map(|(at, instruction)| {
            let [operation, _, low, high, ..] = instruction.to_le_bytes();
            let skipped = usize::from(u16::from_le_bytes([low, high]));
            matches!(operation, 0x15 | 0x2d).then_some(at + 1 + skipped)
        });
        let ends: Vec<_> = skips.map(|to| &program[to..]).collect();
        assert_eq!(ends, [[set(RESULT, PASS), RETURN]; 2]);
    }

    #[test]
    fn key_is_the_address_and_two_zeros() {
        assert_eq!(key([2, 0, 0, 0, 0, 5]), [2, 0, 0, 0, 0, 5, 0, 0]);
    }
}
