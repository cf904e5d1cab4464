//! Sockets of UDP.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use net::tcpip::{Awaited, SendToError};

use super::core::{Core, Patience};
use super::shared::Dropped;
use super::stack::{Owner, Stack, not_bound};
use super::tcp::{first_of, lacking, some_time};
use super::waiting::Interest;

/// A socket of datagrams, as [`std::net::UdpSocket`].
///
/// What has come and was not received takes 256 KiB at most; more is dropped and counted.
pub struct UdpSocket {
    pub(super) owner: Arc<Owner>,
    pub(super) address: SocketAddr,
    settings: Mutex<Settings>,
}

/// What is set for a socket.
#[derive(Clone, Copy, Debug)]
struct Settings {
    /// The address that it is bound to, or one of the stack's addresses instead of all of them.
    local: SocketAddr,
    is_nonblocking: bool,
    read_limit: Option<Duration>,
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UdpSocket").field("addr", &self.address).finish_non_exhaustive()
    }
}

impl UdpSocket {
    /// Binds to an address of the stack, or to all of them if it is unspecified. Port 0 stands for a free one.
    ///
    /// # Errors
    /// `AddrInUse`, or `AddrNotAvailable` if it is none of ours; `ResourceBusy` as [`Stack::poll`].
    pub fn bind(stack: &Stack, address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let owner = stack.owner.clone();
        let address = first_of(address, |address| {
            owner.with(|core| core.net.bind(address).map_err(not_bound))
        })?;
        let settings = Settings { local: address, is_nonblocking: false, read_limit: None };
        Ok(UdpSocket { owner, address, settings: Mutex::new(settings) })
    }

    /// Reads or changes what is set for the socket.
    fn set<R>(&self, change: impl FnOnce(&mut Settings) -> R) -> io::Result<R> {
        if self.owner.in_child() {
            // A thread of the parent may have had it.
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(change(&mut self.settings.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// How verbs that receive wait, and those that send.
    fn patience(&self) -> io::Result<(Patience, Patience)> {
        let Settings { is_nonblocking, read_limit, .. } = self.set(|settings| *settings)?;
        Ok((Patience::of(is_nonblocking, read_limit), Patience::of(is_nonblocking, None)))
    }

    /// The address that it is bound to, or that its datagrams are from once it is connected.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.set(|settings| settings.local)
    }

    /// The address that it is connected to.
    ///
    /// # Errors
    /// `NotConnected`; `ResourceBusy` as [`Stack::poll`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.owner.with(|core| {
            core.net.connected_to(self.address).ok_or(io::ErrorKind::NotConnected.into())
        })
    }

    /// Connects to an address: [`UdpSocket::send`] and [`UdpSocket::recv`] are with it from now on, datagrams of others are
    /// dropped, those that have come already too, and a closed port at the other side is an error of the next verb. A
    /// connected socket can be connected to another address.
    ///
    /// # Errors
    /// `InvalidInput` if that is no address of a host, or of another family; `HostUnreachable` if no member of the LAN has
    /// it and no route leads there; `ResourceBusy` as [`Stack::poll`].
    pub fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        let local = first_of(address, |address| {
            self.owner.with(|core| {
                core.check_reachable(address.ip())?;
                core.net.connect_socket(self.address, address).map_err(|error| not_sent(error, 0))
            })
        })?;
        self.set(|settings| settings.local = local)
    }

    /// Sends a datagram, in fragments if it is longer than the LAN's packets. Waits while its target is full. Returns how
    /// many bytes it has.
    ///
    /// # Errors
    /// `InvalidInput` if it is longer than a datagram may be, or for no host; `HostUnreachable` if no member of the LAN has
    /// that address and no route leads there; `ConnectionRefused` if the socket is connected and the other side has refused one before;
    /// `WouldBlock` if the socket does not wait; otherwise as [`Stack::poll`].
    pub fn send_to(&self, data: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        let to = to.to_socket_addrs()?.next().ok_or(io::ErrorKind::InvalidInput)?;
        self.send_with(data, |_| Ok(to))
    }

    /// Sends a datagram to the address that the socket is connected to.
    ///
    /// # Errors
    /// `NotConnected`; otherwise as [`UdpSocket::send_to`].
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.send_with(data, |core| {
            core.net.connected_to(self.address).ok_or(io::ErrorKind::NotConnected.into())
        })
    }

    fn send_with(
        &self,
        data: &[u8],
        target: impl Fn(&mut Core) -> io::Result<SocketAddr>,
    ) -> io::Result<usize> {
        let (_, patience) = self.patience()?;
        // Room for a target is not told by itself.
        let attempt = |core: &mut Core| match target(core) {
            Ok(to) => self.when_sent(core, data, to),
            Err(error) => Some(Err(error)),
        };
        self.owner.try_until(Interest::All, |_| patience, attempt)
    }

    /// Sends a datagram, unless its target is full.
    pub(super) fn when_sent(
        &self,
        core: &mut Core,
        data: &[u8],
        to: SocketAddr,
    ) -> Option<io::Result<usize>> {
        let check = core.check_own(self.address.ip()).and_then(|()| core.check_reachable(to.ip()));
        if let Err(error) = check {
            return Some(Err(error));
        }
        if let Some(error) = self.refused(core) {
            return Some(Err(error));
        }
        match core.send_to(self.address, to, data) {
            Ok(()) => Some(Ok(data.len())),
            Err(SendToError::Full) => None,
            Err(error) => Some(Err(not_sent(error, data.len()))),
        }
    }

    /// The next datagram, if there is one. None will come to an address that the stack does not have now.
    pub(super) fn when_received(
        &self,
        core: &mut Core,
    ) -> Option<io::Result<(SocketAddr, Vec<u8>)>> {
        match self.refused(core) {
            Some(error) => Some(Err(error)),
            None => {
                let received = core.net.receive_from(self.address).map(Ok);
                received.or_else(|| core.check_own(self.address.ip()).err().map(Err))
            }
        }
    }

    /// The error of a datagram that the other side has refused. It is said once.
    fn refused(&self, core: &mut Core) -> Option<io::Error> {
        core.net.take_refused(self.address).then(|| io::ErrorKind::ConnectionRefused.into())
    }

    /// Whether the other side has refused a datagram, if no other verb has said so. It is said once.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.owner.with(|core| {
            core.pump()?;
            Ok(self.refused(core))
        })
    }

    /// The next datagram, and where it is from. Waits for it. What `target` has no room for is lost, as in the standard
    /// library.
    ///
    /// # Errors
    /// `ConnectionRefused` if the socket is connected and the other side has refused a datagram; `AddrNotAvailable` if the stack does not have
    /// the socket's address now; `WouldBlock` if the socket does not wait, or at its time limit; otherwise as [`Stack::poll`].
    pub fn recv_from(&self, target: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (patience, _) = self.patience()?;
        let interest = Interest::One(Awaited::Socket(self.address));
        let (source, data) =
            self.owner.try_until(interest, |_| patience, |core| self.when_received(core))?;
        Ok((copy(&data, target), source))
    }

    /// The next datagram of the address that the socket is connected to.
    ///
    /// # Errors
    /// `NotConnected`; otherwise as [`UdpSocket::recv_from`].
    pub fn recv(&self, target: &mut [u8]) -> io::Result<usize> {
        self.peer_addr()?;
        self.recv_from(target).map(|(count, _)| count)
    }

    /// The next datagram, and where it is from. It stays. Waits for it.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn peek_from(&self, target: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (patience, _) = self.patience()?;
        let interest = Interest::One(Awaited::Socket(self.address));
        self.owner.try_until(
            interest,
            |_| patience,
            |core| {
                if let Some(error) = self.refused(core) {
                    return Some(Err(error));
                }
                let (source, data) = core.net.peek_from(self.address)?;
                Some(Ok((copy(data, target), *source)))
            },
        )
    }

    /// The next datagram of the address that the socket is connected to. It stays.
    ///
    /// # Errors
    /// As [`UdpSocket::recv`].
    pub fn peek(&self, target: &mut [u8]) -> io::Result<usize> {
        self.peer_addr()?;
        self.peek_from(target).map(|(count, _)| count)
    }

    /// Whether verbs do not wait: they give `WouldBlock` where they would.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.set(|settings| settings.is_nonblocking = is_nonblocking)
    }

    /// How long receiving waits: without end if None. Then it gives `WouldBlock`.
    ///
    /// # Errors
    /// `InvalidInput` if the time is zero; otherwise as [`Stack::poll`].
    pub fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        let time = time.map(some_time).transpose()?;
        self.set(|settings| settings.read_limit = time)
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.owner.close(Dropped::Socket(self.address));
    }
}

/// Copies as much as there is room for.
pub(super) fn copy(data: &[u8], target: &mut [u8]) -> usize {
    let count = data.len().min(target.len());
    target[..count].copy_from_slice(&data[..count]);
    count
}

/// Why a datagram was not sent, as the standard library says it.
fn not_sent(error: SendToError, bytes: usize) -> io::Error {
    let problem = match error {
        SendToError::Lacking(lack) => return lacking(lack),
        SendToError::TooLong { bytes_max } => {
            format!("a datagram of {bytes} bytes: must be at most {bytes_max}")
        }
        _ => "not the address of a host that this socket can send to".to_owned(),
    };
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}
