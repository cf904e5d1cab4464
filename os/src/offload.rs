//! Offloads of a network interface: the kernel leaves checksums and the cutting of long packets to the interface, and joins
//! packets that were received.

use std::io;
use std::ptr;

use rustix::io::Errno;
use rustix::ioctl::{self, Opcode, Updater};
use rustix::net::{AddressFamily, SocketType, socket};

use crate::tap::INTERFACE_NAME_BYTES_MAX;

/// Requests of `include/uapi/linux/ethtool.h` that say whether there is an offload, and that switch it: received packets are joined, long packets are cut late,
/// the interface cuts segments of TCP, the interface computes checksums.
const SWITCHES: [(u32, u32); 4] = [
    (ETHTOOL_GGRO, ETHTOOL_SGRO),
    (ETHTOOL_GGSO, ETHTOOL_SGSO),
    (ETHTOOL_GTSO, ETHTOOL_STSO),
    (ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM),
];
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;

/// Requests of the same file for some offloads at once, and which are those of VLAN tags.
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const FLAG_SENT_TAGS: u32 = 1 << 7;
const FLAG_RECEIVED_TAGS: u32 = 1 << 8;

/// Switches the offloads of an interface of the calling thread's network off: each packet is as long as the MTU at most, and
/// has its checksum.
///
/// # Errors
/// `InvalidInput`: it is no name of an interface. As from the kernel: there is no such interface, there is no right to change
/// it, or it cannot be without an offload.
pub fn switch_offloads_off(interface: &str) -> io::Result<()> {
    for (get, switch) in SWITCHES {
        match set(interface, switch, 0) {
            // A veth cannot switch what is off because the other end has a program of XDP.
            Err(Errno::OPNOTSUPP) if exchange(interface, get, 0)? == 0 => {}
            switched => switched?,
        }
    }
    Ok(())
}

/// Switches off that an interface of the calling thread's network takes VLAN tags out of packets, and puts them in: whoever sees
/// packets before the kernel does sees the tags. So does the kernel at the other end of a veth.
///
/// # Errors
/// As of [`switch_offloads_off`].
pub fn switch_tags_off(interface: &str) -> io::Result<()> {
    let flags = exchange(interface, ETHTOOL_GFLAGS, 0)?;
    Ok(set(interface, ETHTOOL_SFLAGS, flags & !(FLAG_SENT_TAGS | FLAG_RECEIVED_TAGS))?)
}

/// Returns true if an interface of the calling thread's network takes VLAN tags out of packets that it receives.
///
/// # Errors
/// `InvalidInput`: it is no name of an interface. As from the kernel: there is no such interface.
pub fn takes_tags_out(interface: &str) -> io::Result<bool> {
    Ok(exchange(interface, ETHTOOL_GFLAGS, 0)? & FLAG_RECEIVED_TAGS != 0)
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq`, as far as `SIOCETHTOOL` reads and writes it.
#[repr(C)]
struct Request {
    name: [u8; INTERFACE_NAME_BYTES_MAX + 1],
    value: *mut Value,
    rest: [u8; 16],
}

const _: () = assert!(size_of::<Request>() == 40);

fn set(interface: &str, command: u32, data: u32) -> Result<(), Errno> {
    exchange(interface, command, data).map(drop)
}

/// Sends a command with a number, and returns the number that is there then.
fn exchange(interface: &str, command: u32, data: u32) -> Result<u32, Errno> {
    let mut name = [0; INTERFACE_NAME_BYTES_MAX + 1];
    let room = name[..INTERFACE_NAME_BYTES_MAX].get_mut(..interface.len()).ok_or(Errno::INVAL)?;
    room.copy_from_slice(interface.as_bytes());
    let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    let mut value = Value { command, data };
    let mut request = Request { name, value: ptr::from_mut(&mut value), rest: [0; 16] };
    // SAFETY: `SIOCETHTOOL` has an `ifreq` behind it, which `Request` is in size and layout.
    let request = unsafe { Updater::<{ libc::SIOCETHTOOL as Opcode }, Request>::new(&mut request) };
    // SAFETY: as above. The kernel reads and writes the request and, for the commands of this module, one `ethtool_value`
    // behind its pointer; both live until the call returns.
    unsafe { ioctl::ioctl(&any, request) }?;
    Ok(value.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_that_is_not_there_is_refused() {
        assert_eq!(set("siga-none", ETHTOOL_SGSO, 0), Err(Errno::NODEV));
        assert_eq!(set("a-name-of-sixteen", ETHTOOL_SGSO, 0), Err(Errno::INVAL));
    }
}
