//! A TAP device: a network interface whose frames this process reads and writes.
//!
//! Each frame has a head, `virtio_net_hdr` in little-endian (`include/uapi/linux/virtio_net.h`), which says what the
//! kernel left out: checksums, and the segmentation of frames of up to 64 KiB. This module moves heads and frames; what
//! they mean is for its users.
//!
//! The interface lives as long as a descriptor of the device, in the network namespace of the thread that made it.
//! Closing the last descriptor removes the interface, which takes the kernel 16 to 23 ms: [`Tap::leave_interface`]
//! leaves that to the namespace, for those who cannot wait.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode, Setter};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use crate::storage::LentPart;

/// Bytes of the head of each frame: `virtio_net_hdr` without the count of buffers.
pub const HEAD_BYTES: usize = 10;

/// The device that makes TAP devices.
pub const DEVICE: &str = "/dev/net/tun";

/// Bytes of the longest name of an interface.
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;

/// Parts of a frame that are written at once.
pub const PARTS_MAX: usize = 4;

/// Memory of the frames that were written to one of two joined devices and not read. The kernel counts 2.3 KiB for one of 1500 bytes, and
/// doubles what it is asked for.
const JOINED_BYTES: usize = 1 << 20;

/// Frames of an Ethernet, with a head and without the four bytes that the kernel would put before each. An interface
/// that is there already is not taken over.
const FLAGS: libc::c_int = MACVTAP_FLAGS | libc::IFF_TUN_EXCL;

/// The same of a device whose interface is there already.
const MACVTAP_FLAGS: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

/// `TUNSETCARRIER` (`include/uapi/linux/if_tun.h`).
const SET_CARRIER: Opcode = ioctl::opcode::write::<libc::c_int>(b'T', 226);

/// What the reader of the device takes: frames without checksum, and of several segments.
const TCP: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
const UDP: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A TAP device. Reading and writing do not wait; readable when the kernel has a frame for it.
#[derive(Debug)]
pub struct Tap {
    device: OwnedFd,
}

/// Why there is no TAP device.
#[derive(Debug, thiserror::Error)]
pub enum CreateTapError {
    /// [`DEVICE`] cannot be opened.
    #[error("{DEVICE} cannot be opened: {0}")]
    Device(io::Error),
    /// The kernel makes no interface.
    #[error("there can be no interface: {0}")]
    Interface(io::Error),
}

impl Tap {
    /// Makes an interface called `interface` in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`CreateTapError::Device`]: there is no such device, or the user may not open it.
    /// [`CreateTapError::Interface`]: there is an interface of this name, it is no name, or the process has not the right
    /// to make one in this namespace.
    pub fn create(interface: &str) -> Result<Tap, CreateTapError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let device = rustix::fs::open(DEVICE, flags, Mode::empty());
        let device = device.map_err(|error| CreateTapError::Device(error.into()))?;
        set_up(&device, interface).map_err(|error| CreateTapError::Interface(error.into()))?;
        Ok(Tap { device })
    }

    /// Makes two devices that have no interface: a frame that is written to one is read from the other, with its head. So a
    /// stack that is no kernel can be at the other side of what serves devices. Each holds some 1000 frames of 1500 bytes, as the queue of an
    /// interface does; 150 where this process may not have larger buffers than others.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn joined() -> io::Result<(Tap, Tap)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        for device in [&one, &other] {
            // Without the right to more than others have, as much as they may have.
            if sockopt::set_socket_send_buffer_size_force(device, JOINED_BYTES).is_err() {
                sockopt::set_socket_send_buffer_size(device, JOINED_BYTES)?;
            }
        }
        Ok((Tap { device: one }, Tap { device: other }))
    }

    /// Takes over the device of a macvtap interface, which nobody has read yet.
    ///
    /// # Errors
    /// It is no such device.
    pub fn of_macvtap(device: OwnedFd) -> io::Result<Tap> {
        // The kernel does not look at the name.
        configure(&device, [0; INTERFACE_NAME_BYTES_MAX + 1], MACVTAP_FLAGS)?;
        rustix::io::ioctl_fionbio(&device, true)?;
        Ok(Tap { device })
    }

    /// Takes over a device that another process of ours made with [`Tap::create`] or [`Tap::joined`].
    pub fn adopt(device: OwnedFd) -> Tap {
        Tap { device }
    }

    /// Reads the next frame and its head, and returns how long the frame is; none if there is no frame.
    ///
    /// A frame that is longer than `frame` is cut.
    ///
    /// # Errors
    /// The interface, or the device that this one is joined with, is gone.
    #[inline]
    pub fn read(&self, head: &mut [u8; HEAD_BYTES], frame: &mut [u8]) -> io::Result<Option<usize>> {
        let mut parts = [IoSliceMut::new(head), IoSliceMut::new(frame)];
        match rustix::io::readv(&self.device, &mut parts) {
            // The other of two joined devices is gone: each frame has a head.
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            // Without a whole head it is no frame, and the kernel does not do that.
            Ok(bytes) => Ok(Some(bytes.saturating_sub(HEAD_BYTES))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a frame, whose `parts` begin with its head, and whose end may be storage of another party's. The kernel has
    /// copied it when this returns, each byte once: what the other party changes meanwhile is as if it had sent that.
    ///
    /// # Errors
    /// The kernel does not take it: the head does not agree with the frame (`InvalidInput`), the interface is not up, or
    /// there is no memory. `WouldBlock`: the device that this one is joined with has no room.
    ///
    /// # Panics
    /// If there are more than [`PARTS_MAX`] parts.
    #[inline]
    pub fn write(&self, parts: &[&[u8]], end: Option<LentPart<'_>>) -> io::Result<()> {
        write_parts(self.device.as_fd(), parts, end)
    }

    /// Has the interface have a carrier, or none: its kernel sends nothing then. Needs no right. A new interface has one.
    ///
    /// # Errors
    /// The interface is gone, or the kernel is older than Linux 5.0.
    pub fn set_carrier(&self, is_up: bool) -> io::Result<()> {
        // SAFETY: `TUNSETCARRIER` reads an integer.
        let setter = unsafe { Setter::<SET_CARRIER, libc::c_int>::new(is_up.into()) };
        // SAFETY: as above; the integer lives until the call returns.
        Ok(unsafe { ioctl::ioctl(&self.device, setter) }?)
    }

    /// The interface is not to go with the last descriptor, but with its network namespace.
    ///
    /// # Errors
    /// The interface is gone already.
    pub fn leave_interface(&self) -> io::Result<()> {
        Ok(set(&self.device, libc::TUNSETPERSIST as Opcode, 1)?)
    }
}

/// Writes one frame: see [`Tap::write`].
#[inline]
pub(crate) fn write_parts(
    to: BorrowedFd<'_>,
    parts: &[&[u8]],
    end: Option<LentPart<'_>>,
) -> io::Result<()> {
    let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PARTS_MAX + 1];
    for (vector, part) in vectors[..PARTS_MAX].iter_mut().zip(parts) {
        *vector = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
    }
    let mut count = parts.len();
    assert!(count <= PARTS_MAX, "{count} parts");
    if let Some(end) = end {
        vectors[count] = end.as_io();
        count += 1;
    }
    let vectors = vectors.as_ptr();
    // SAFETY: the kernel reads `count` vectors, and what they describe: slices, and mapped storage that `end` borrows.
    let written = unsafe { libc::writev(to.as_raw_fd(), vectors, count as libc::c_int) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl From<Tap> for OwnedFd {
    fn from(tap: Tap) -> OwnedFd {
        tap.device
    }
}

/// `struct ifreq`, as far as `TUNSETIFF` reads and writes it.
#[repr(C)]
struct Request {
    name: [u8; INTERFACE_NAME_BYTES_MAX + 1],
    flags: u16,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<Request>() == 40);

fn set_up(device: &OwnedFd, interface: &str) -> Result<(), Errno> {
    let mut name = [0; INTERFACE_NAME_BYTES_MAX + 1];
    let room = name[..INTERFACE_NAME_BYTES_MAX].get_mut(..interface.len()).ok_or(Errno::INVAL)?;
    room.copy_from_slice(interface.as_bytes());
    // The kernel reads a `%d` as "the next number": the name is to be what was asked for.
    if interface.is_empty() || interface.contains(['%', '\0', '/', ':']) {
        return Err(Errno::INVAL);
    }
    configure(device, name, FLAGS)
}

/// Says what kind of interface the device has, and what its reader takes.
fn configure(
    device: &OwnedFd,
    name: [u8; INTERFACE_NAME_BYTES_MAX + 1],
    flags: libc::c_int,
) -> Result<(), Errno> {
    let mut request = Request { name, flags: flags as u16, rest: [0; 22] };
    // SAFETY: this number of `TUNSETIFF` has an `ifreq` behind it, which `Request` is in size and layout.
    let request =
        unsafe { ioctl::Updater::<{ libc::TUNSETIFF as Opcode }, Request>::new(&mut request) };
    // SAFETY: as above; the kernel reads and writes the request, which lives, and nothing else.
    unsafe { ioctl::ioctl(device, request) }?;
    let little_endian: libc::c_int = 1;
    // SAFETY: the kernel reads one integer behind this number.
    let order = unsafe {
        ioctl::Setter::<{ libc::TUNSETVNETLE as Opcode }, libc::c_int>::new(little_endian)
    };
    // SAFETY: as above.
    unsafe { ioctl::ioctl(device, order) }?;
    // Segments of UDP since Linux 6.2.
    set(device, libc::TUNSETOFFLOAD as Opcode, TCP | UDP)
        .or_else(|_| set(device, libc::TUNSETOFFLOAD as Opcode, TCP))
}

/// A request whose argument is a number, and not where one is.
struct Number {
    opcode: Opcode,
    number: libc::c_uint,
}

// SAFETY: the numbers of requests that this module makes one with have no memory behind their argument.
unsafe impl Ioctl for Number {
    type Output = ();

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        std::ptr::without_provenance_mut(self.number as usize)
    }

    unsafe fn output_from_ptr(
        _: IoctlOutput,
        _: *mut rustix::ffi::c_void,
    ) -> rustix::io::Result<()> {
        Ok(())
    }
}

fn set(device: &OwnedFd, opcode: Opcode, number: libc::c_uint) -> Result<(), Errno> {
    // SAFETY: `TUNSETPERSIST` and `TUNSETOFFLOAD` take the argument as a number.
    unsafe { ioctl::ioctl(device, Number { opcode, number }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_would_change_are_refused() {
        let device = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        for name in ["", "a-name-of-sixteen", "lan%d", "a/b", "a:b"] {
            assert_eq!(set_up(&device, name), Err(Errno::INVAL), "{name:?}");
        }
        // A right name comes as far as the device, which is none.
        assert_eq!(set_up(&device, "hs0"), Err(Errno::NOTTY));
    }
}
