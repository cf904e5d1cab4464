//! Packets of a network interface to groups, beside the kernel, which gets them too: `AF_PACKET` (`packet(7)`).
//!
//! The socket also has the network card let further MAC addresses through. All of that goes with the socket's descriptor.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::fork::ForkSafeFd;
use crate::storage::LentPart;
use crate::tap::{HEAD_BYTES, write_parts};

/// Types, options and flags of `include/uapi/linux/if_packet.h`.
const ADD_MEMBERSHIP: libc::c_int = 1;
const DROP_MEMBERSHIP: libc::c_int = 2;
const STATISTICS: libc::c_int = 6;
const AUXILIARY: libc::c_int = 8;
const HEAD: libc::c_int = 15;
const IGNORE_OUTGOING: libc::c_int = 23;
const MEMBER_GROUP: u16 = 0;
const MEMBER_UNICAST: u16 = 3;
const VLAN_VALID: u32 = 1 << 4;

/// Memory for packets that were not yet taken.
const WAITING_BYTES: usize = 1 << 20;

/// A program for packets (`Documentation/networking/filter.rst`): those whose first byte has the lowest bit, which groups have.
const GROUPS: [libc::sock_filter; 4] = [
    // Load the first byte; the next instruction if the bit is set, the last if not; take all; take nothing.
    libc::sock_filter { code: 0x30, jt: 0, jf: 0, k: 0 },
    libc::sock_filter { code: 0x45, jt: 0, jf: 1, k: 1 },
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: u32::MAX },
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 },
];

/// A socket that receives the packets to groups of one interface, but not those that this machine sends. It is readable when there is one.
#[derive(Debug)]
pub struct GroupSocket {
    socket: ForkSafeFd,
    index: u32,
    dropped: Cell<u64>,
}

/// A packet that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPacket {
    /// What the kernel has left to do, as at a TAP device.
    pub head: [u8; HEAD_BYTES],
    /// The tag of its VLAN, which the kernel has taken out of it.
    pub vlan: Option<u16>,
    /// How long it is: more than the buffer if its end was cut off.
    pub bytes: usize,
}

impl GroupSocket {
    /// Opens a socket for the interface with this index in the network of the calling thread.
    ///
    /// # Errors
    /// `PermissionDenied`: the process has not CAP_NET_RAW. `ENODEV`: there is no such interface.
    pub fn open(index: u32) -> io::Result<GroupSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol nothing comes before the filter is there.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let mut instructions = GROUPS;
        let program =
            libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_mut_ptr() };
        set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        for option in [AUXILIARY, HEAD, IGNORE_OUTGOING] {
            set(&socket, libc::SOL_PACKET, option, &1_i32)?;
        }
        // Without the right to more than others have, as much as they may have.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, WAITING_BYTES);
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads the address, which is as long as is said.
        let bound =
            unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(&address).cast(), bytes) };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(GroupSocket { socket: ForkSafeFd::new(socket), index, dropped: Cell::new(0) })
    }

    /// Has the network card let packets to this address through, or no longer. A card that cannot lets all through.
    ///
    /// # Errors
    /// As from the kernel: the address is not there, or no memory is left. `NotConnected` in a forked child.
    pub fn set_address(&self, address: [u8; 6], comes: bool) -> io::Result<()> {
        let kind = if address[0] & 1 == 1 { MEMBER_GROUP } else { MEMBER_UNICAST };
        let mut padded = [0; 8];
        padded[..6].copy_from_slice(&address);
        let index = self.index as i32;
        let member = Member { index, kind, address_bytes: 6, address: padded };
        let option = if comes { ADD_MEMBERSHIP } else { DROP_MEMBERSHIP };
        let socket = self.socket.get().ok_or(io::ErrorKind::NotConnected)?;
        set(socket, libc::SOL_PACKET, option, &member)
    }

    /// Receives the next packet into `buffer`; none if there is none.
    ///
    /// # Errors
    /// `ENETDOWN`: the interface is down, or was removed; it is reported once. `InvalidInput`: a packet was dropped that has no head.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<GroupPacket>> {
        let socket = self.socket.get().ok_or(io::ErrorKind::NotConnected)?;
        let mut head = [0; HEAD_BYTES];
        let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(buffer)];
        let mut control = MaybeUninit::<[u64; CONTROL_WORDS]>::zeroed();
        // SAFETY: zeros are a message without anything.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSliceMut` is an `iovec` in layout.
        message.msg_iov = parts.as_mut_ptr().cast();
        message.msg_iovlen = parts.len() as _;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the kernel writes into two buffers of ours and into the room for control messages.
        let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, flags) };
        if bytes < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the room was zeros, and the kernel wrote bytes there.
        let control = unsafe { control.assume_init() };
        let vlan = vlan(&control, message.msg_controllen as usize);
        let bytes = (bytes as usize).saturating_sub(HEAD_BYTES);
        Ok(Some(GroupPacket { head, vlan, bytes }))
    }

    /// Sends a packet, whose `parts` begin with its head, as at a TAP device, and whose end may be storage of another party's. The kernel has copied it when this
    /// returns, and does what the head says is left to do.
    ///
    /// # Errors
    /// `WouldBlock`: the interface has as much of this socket's as it may have. `NotConnected` in a forked child. Otherwise as from the kernel: the interface is down
    /// or gone, or the head does not agree with the packet (`InvalidInput`).
    ///
    /// # Panics
    /// If there are more than [`crate::tap::PARTS_MAX`] parts.
    #[inline]
    pub fn send(&self, parts: &[&[u8]], end: Option<LentPart<'_>>) -> io::Result<()> {
        let socket = self.socket.get().ok_or(io::ErrorKind::NotConnected)?;
        write_parts(socket.as_fd(), parts, end)
    }

    /// Packets that were dropped because too many waited, since the socket was opened.
    pub fn dropped(&self) -> u64 {
        let mut counted = [0_u32; 2];
        let mut bytes = size_of_val(&counted) as libc::socklen_t;
        if let Some(socket) = self.socket.get() {
            let target = counted.as_mut_ptr().cast();
            let socket = socket.as_raw_fd();
            // SAFETY: the kernel writes at most as many bytes as there is room for. It counts from zero again then.
            let got = unsafe {
                libc::getsockopt(socket, libc::SOL_PACKET, STATISTICS, target, &mut bytes)
            };
            if got == 0 {
                self.dropped.set(self.dropped.get() + u64::from(counted[1]));
            }
        }
        self.dropped.get()
    }
}

impl AsFd for GroupSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `struct packet_mreq`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Member {
    index: i32,
    kind: u16,
    address_bytes: u16,
    address: [u8; 8],
}

/// Room for one control message: 16 bytes of head, and `struct tpacket_auxdata` of 20.
const CONTROL_WORDS: usize = 8;

/// The tag that the control message names.
///
/// ```text
/// offset  0  bytes usize: of head and data       16  status u32
///         8  level i32                           20  bytes, bytes at hand, of the headers
///        12  kind i32                            32  tag u16, its type u16
/// ```
fn vlan(control: &[u64; CONTROL_WORDS], bytes: usize) -> Option<u16> {
    let word = |at: usize| {
        let [a, b] = [at / 8 * 8, at % 8];
        let word = control[a / 8].to_ne_bytes();
        u32::from_ne_bytes([word[b], word[b + 1], word[b + 2], word[b + 3]])
    };
    let is_it = bytes >= 36 && (word(8), word(12)) == (libc::SOL_PACKET as u32, AUXILIARY as u32);
    if !is_it || word(16) & VLAN_VALID == 0 {
        return None;
    }
    let [low, high, ..] = word(32).to_ne_bytes();
    Some(u16::from_ne_bytes([low, high]))
}

fn set<T: Copy>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let (value, bytes) = (ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads as many bytes of the value, and the instructions that a `sock_fprog` points to, which live.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, bytes) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_read_where_the_kernel_says_that_there_is_one() {
        let mut bytes = [0_u8; 64];
        bytes[0] = 36;
        bytes[8..12].copy_from_slice(&(libc::SOL_PACKET as u32).to_ne_bytes());
        bytes[12] = 8;
        bytes[16] = 0x11;
        bytes[32..34].copy_from_slice(&0x6007_u16.to_ne_bytes());
        let words = |bytes: [u8; 64]| {
            let (words, _) = bytes.as_chunks::<8>();
            <[u64; 8]>::try_from(
                words.iter().map(|word| u64::from_ne_bytes(*word)).collect::<Vec<_>>(),
            )
            .unwrap()
        };
        assert_eq!(vlan(&words(bytes), 40), Some(0x6007));
        assert_eq!(vlan(&words(bytes), 20), None, "it is not whole");
        bytes[16] = 1;
        assert_eq!(vlan(&words(bytes), 40), None, "there is no tag");
    }
}
