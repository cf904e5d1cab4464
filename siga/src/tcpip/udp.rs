//! Sockets of UDP.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::core::{Core, Patience};
use super::engine::Bound;
use super::shared::Dropped;
use super::stack::{Owner, Stack};
use super::tcp::{first_of, some_time};
use super::waiting::Interest;

/// A socket of datagrams, as [`std::net::UdpSocket`].
///
/// What has come and was not received takes 256 KiB at most; more is dropped and counted.
pub struct UdpSocket {
    pub(super) owner: Arc<Owner>,
    pub(super) bound: Bound,
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
        formatter
            .debug_struct("UdpSocket")
            .field("addr", &self.bound.address)
            .finish_non_exhaustive()
    }
}

impl UdpSocket {
    /// Binds to an address of the stack, or to all of them if it is unspecified. Port 0 stands for a free one.
    ///
    /// # Errors
    /// `AddrInUse`, or `AddrNotAvailable` if it is none of ours; `ResourceBusy` as [`Stack::poll`].
    pub fn bind(stack: &Stack, address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let owner = stack.owner.clone();
        let bound = first_of(address, |address| owner.open(|net| net.bind(address), None))?;
        let settings = Settings { local: bound.address, is_nonblocking: false, read_limit: None };
        Ok(UdpSocket { owner, bound, settings: Mutex::new(settings) })
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
            core.net.connected_to(self.bound).ok_or(io::ErrorKind::NotConnected.into())
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
        let connected = first_of(address, |address| {
            self.owner.open(|net| net.connect_socket(self.bound, address), Some(self.bound))
        })?;
        self.set(|settings| settings.local = connected.address)
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
            core.net.connected_to(self.bound).ok_or(io::ErrorKind::NotConnected.into())
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
        if let Some(error) = core.net.take_refused(self.bound) {
            return Some(Err(error));
        }
        let sent = core.net.send_to(self.bound, to, data)?;
        Some(sent.map(|()| data.len()))
    }

    /// The next datagram, if there is one. None will come to an address that the stack does not have now.
    pub(super) fn when_received(
        &self,
        core: &mut Core,
    ) -> Option<io::Result<(SocketAddr, Vec<u8>)>> {
        match core.net.take_refused(self.bound) {
            Some(error) => Some(Err(error)),
            None => core.net.receive_from(self.bound),
        }
    }

    /// Whether the other side has refused a datagram, if no other verb has said so. It is said once.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.owner.with(|core| {
            core.pump()?;
            Ok(core.net.take_refused(self.bound))
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
        let interest = Interest::One(self.bound.as_socket());
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
        let interest = Interest::One(self.bound.as_socket());
        self.owner.try_until(
            interest,
            |_| patience,
            |core| {
                if let Some(error) = core.net.take_refused(self.bound) {
                    return Some(Err(error));
                }
                let (source, data) = core.net.peek_from(self.bound)?;
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
        self.owner.close(Dropped::Socket(self.bound));
    }
}

/// Copies as much as there is room for.
pub(super) fn copy(data: &[u8], target: &mut [u8]) -> usize {
    let count = data.len().min(target.len());
    target[..count].copy_from_slice(&data[..count]);
    count
}
