//! A network interface, looked at cheaply: its state, its MTU, its addresses, its queues.
//!
//! An interface is known by its index: it may be renamed meanwhile. The questions go to the network namespace in which
//! [`Interface::find`] was called, whichever thread asks later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::ioctl::{self, Opcode, Updater};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::tap::INTERFACE_NAME_BYTES_MAX;

/// Requests of `include/uapi/linux/ethtool.h`: the settings of the medium, whether it has a carrier, and the number of queues.
const ETHTOOL_GSET: u32 = 0x1;
const ETHTOOL_GLINK: u32 = 0xa;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// The speed of a medium that the kernel does not know.
const SPEED_UNKNOWN: u32 = u32::MAX;

/// An interface of a network namespace.
#[derive(Debug)]
pub struct Interface {
    /// Any socket of the namespace.
    socket: OwnedFd,
    index: u32,
}

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Set if the interface is set up and has a carrier.
    pub is_running: bool,
    /// Bytes of the longest packet, without the Ethernet header.
    pub mtu: usize,
}

impl Interface {
    /// The interface called `name` in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `ENODEV`: there is none. Otherwise as from the kernel: no descriptor left.
    pub fn find(name: &str) -> io::Result<Interface> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        if name.is_empty() || name.len() > INTERFACE_NAME_BYTES_MAX {
            return Err(Errno::NODEV.into());
        }
        let index = netdevice::name_to_index(&socket, name)?;
        Ok(Interface { socket, index })
    }

    /// The interface called `name` in the namespace of this one.
    ///
    /// # Errors
    /// As [`Interface::find`].
    pub fn find_beside(&self, name: &str) -> io::Result<Interface> {
        let socket = self.socket.try_clone()?;
        let index = netdevice::name_to_index(&socket, name)?;
        Ok(Interface { socket, index })
    }

    /// The interface called `name` in the namespace of a socket, which another process of ours has passed.
    ///
    /// # Errors
    /// As [`Interface::find`].
    pub fn of_socket(socket: OwnedFd, name: &str) -> io::Result<Interface> {
        let index = netdevice::name_to_index(&socket, name)?;
        Ok(Interface { socket, index })
    }

    /// The number of the interface in its namespace, which stays.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The name of the interface, as it is now.
    ///
    /// # Errors
    /// `ENODEV`: the interface was removed.
    pub fn name(&self) -> io::Result<String> {
        Ok(netdevice::index_to_name(&self.socket, self.index)?)
    }

    /// The state of the interface; none if it was removed. Takes three system calls.
    ///
    /// The kernel takes up to a second until it says of a carrier that it has come, but for whoever asks the driver (`asks`). That may wait for others who set interfaces up
    /// or down.
    ///
    /// # Errors
    /// As from the kernel: none is expected.
    pub fn state(&self, asks: bool) -> io::Result<Option<State>> {
        // The interface may be renamed between two questions: it is asked for by the new name then.
        for _ in 0..RENAMED_MAX {
            let Some(name) = gone(netdevice::index_to_name(&self.socket, self.index))? else {
                return Ok(None);
            };
            let mut flags = gone(self.flags(&name))?;
            if asks && flags.is_some_and(|flags| flags & RUNNING == libc::IFF_UP) {
                let _ = self.ask_driver(&mut [ETHTOOL_GLINK, 0]);
                flags = gone(self.flags(&name))?;
            }
            let mtu = gone(self.ask::<{ libc::SIOCGIFMTU as Opcode }>(&name, [0; 24]))?;
            let (Some(flags), Some(mtu)) = (flags, mtu) else { continue };
            let mtu = i32::from_ne_bytes([mtu[0], mtu[1], mtu[2], mtu[3]]);
            let mtu = usize::try_from(mtu).unwrap_or(0);
            return Ok(Some(State { is_running: flags & RUNNING == RUNNING, mtu }));
        }
        Ok(None)
    }

    /// The MAC address of the interface.
    ///
    /// # Errors
    /// `ENODEV`: it was removed. `InvalidInput`: it is no Ethernet.
    pub fn mac(&self) -> io::Result<[u8; 6]> {
        let name = self.name()?;
        let address = self.ask::<{ libc::SIOCGIFHWADDR as Opcode }>(&name, [0; 24])?;
        if u16::from_ne_bytes([address[0], address[1]]) != libc::ARPHRD_ETHER {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(*address[2..].first_chunk().expect("an address has 14 bytes"))
    }

    /// Sets the length of the longest packet.
    ///
    /// # Errors
    /// As from the kernel: no right, or the interface takes none that long.
    pub fn set_mtu(&self, mtu: usize) -> io::Result<()> {
        let name = self.name()?;
        let mut value = [0; 24];
        let mtu = libc::c_int::try_from(mtu).map_err(|_| Errno::INVAL)?;
        value[..4].copy_from_slice(&mtu.to_ne_bytes());
        self.ask::<{ libc::SIOCSIFMTU as Opcode }>(&name, value)?;
        Ok(())
    }

    /// Has frames to a group come, or no longer. The kernel counts how often each was asked for.
    ///
    /// # Errors
    /// As from the kernel: no right, or the group was not added.
    pub fn set_group(&self, group: [u8; 6], comes: bool) -> io::Result<()> {
        let name = self.name()?;
        let mut address = [0; 24];
        address[2..8].copy_from_slice(&group);
        match comes {
            true => self.ask::<{ libc::SIOCADDMULTI as Opcode }>(&name, address)?,
            false => self.ask::<{ libc::SIOCDELMULTI as Opcode }>(&name, address)?,
        };
        Ok(())
    }

    /// Queues over which frames are received: one if the driver does not say.
    pub fn receive_queues(&self) -> u32 {
        let mut channels = [0; 9];
        channels[0] = ETHTOOL_GCHANNELS;
        match self.ask_driver(&mut channels) {
            // Maxima of receiving, sending, other and combined queues, then the numbers of these.
            Ok(()) => channels[5].saturating_add(channels[8]).max(1),
            Err(_) => 1,
        }
    }

    /// Bits a second of the medium, if the driver says.
    pub fn rate(&self) -> Option<u64> {
        let mut settings = [0; 11];
        settings[0] = ETHTOOL_GSET;
        self.ask_driver(&mut settings).ok()?;
        // Megabits a second: the low half is in the fourth word, the high one in the eighth (`struct ethtool_cmd`).
        let [[low, high], [high_low, high_high]] = [settings[3], settings[7]].map(|word| {
            let [a, b, _, _] = word.to_ne_bytes();
            [a, b]
        });
        let halves = [[low, high], [high_low, high_high]].map(u16::from_ne_bytes);
        let megabits = u32::from(halves[0]) | u32::from(halves[1]) << 16;
        let is_known = megabits != 0 && megabits != SPEED_UNKNOWN;
        is_known.then(|| u64::from(megabits) * 1_000_000)
    }

    fn flags(&self, name: &str) -> Result<libc::c_int, Errno> {
        let flags = self.ask::<{ libc::SIOCGIFFLAGS as Opcode }>(name, [0; 24])?;
        Ok(libc::c_int::from(i16::from_ne_bytes([flags[0], flags[1]])))
    }

    /// Asks with an `ifreq` of this value, and returns the value of the answer.
    fn ask<const OPCODE: Opcode>(&self, name: &str, value: [u8; 24]) -> Result<[u8; 24], Errno> {
        let mut request = Request { name: padded(name)?, value };
        // SAFETY: the numbers that this is called with have an `ifreq` behind them, which `Request` is in size and layout, and
        // whose value has no pointer.
        let updater = unsafe { Updater::<OPCODE, Request>::new(&mut request) };
        // SAFETY: as above; the kernel reads and writes the request, which lives, and nothing else.
        unsafe { ioctl::ioctl(&self.socket, updater) }?;
        Ok(request.value)
    }

    /// Asks the driver a question of `ethtool`, and has the answer put in place of it.
    fn ask_driver<const WORDS: usize>(&self, question: &mut [u32; WORDS]) -> io::Result<()> {
        let name = padded(&self.name()?)?;
        let mut request =
            DriverRequest { name, question: ptr::from_mut(question).cast(), rest: [0; 16] };
        // SAFETY: `SIOCETHTOOL` has an `ifreq` behind it, which `DriverRequest` is in size and layout.
        let updater =
            unsafe { Updater::<{ libc::SIOCETHTOOL as Opcode }, DriverRequest>::new(&mut request) };
        // SAFETY: as above. The kernel reads and writes the request, and the structure of the question: 36 bytes for
        // `ETHTOOL_GCHANNELS`, 44 for `ETHTOOL_GSET`, 8 for `ETHTOOL_GLINK`, which are the words of the callers. Both live until it returns.
        Ok(unsafe { ioctl::ioctl(&self.socket, updater) }?)
    }
}

/// The socket with which the interface is asked.
impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The flags of an interface that is set up and has a carrier.
const RUNNING: libc::c_int = libc::IFF_UP | libc::IFF_RUNNING;

/// How often an interface may be renamed while it is looked at.
const RENAMED_MAX: usize = 4;

/// `struct ifreq`.
#[repr(C)]
struct Request {
    name: [u8; INTERFACE_NAME_BYTES_MAX + 1],
    value: [u8; 24],
}

/// `struct ifreq`, as `SIOCETHTOOL` reads it.
#[repr(C)]
struct DriverRequest {
    name: [u8; INTERFACE_NAME_BYTES_MAX + 1],
    question: *mut u32,
    rest: [u8; 16],
}

const _: () = assert!(size_of::<Request>() == 40 && size_of::<DriverRequest>() == 40);

fn padded(name: &str) -> Result<[u8; INTERFACE_NAME_BYTES_MAX + 1], Errno> {
    let mut padded = [0; INTERFACE_NAME_BYTES_MAX + 1];
    let room = padded[..INTERFACE_NAME_BYTES_MAX].get_mut(..name.len()).ok_or(Errno::INVAL)?;
    room.copy_from_slice(name.as_bytes());
    Ok(padded)
}

/// What the kernel answers, and none if there is no such interface.
fn gone<T>(answer: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno::NODEV | Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_looked_at() {
        let interface = Interface::find("lo").unwrap();
        assert_eq!((interface.index(), interface.name().unwrap().as_str()), (1, "lo"));
        assert!(interface.state(true).unwrap().is_some_and(|state| state.mtu > 0));
        assert_eq!(interface.mac().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!((interface.receive_queues(), interface.rate()), (1, None));
    }

    #[test]
    fn interface_that_is_not_there_is_not_found() {
        for name in ["siga-none", "", "a-name-of-sixteen"] {
            let error = Interface::find(name).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name:?}");
        }
        let removed = Interface { index: u32::MAX >> 1, ..Interface::find("lo").unwrap() };
        assert_eq!(removed.state(true).unwrap(), None);
    }
}
