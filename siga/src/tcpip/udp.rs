//! Sockets of UDP.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::Duration;

use net::tcpip::SendToError;

use super::stack::{Dropped, Patience, Shared, Stack, not_bound};
use super::tcp::{first_of, some_time};

/// A socket of datagrams, as [`std::net::UdpSocket`].
///
/// What has come and was not received takes 256 KiB at most; more is dropped and counted.
pub struct UdpSocket {
    shared: Rc<Shared>,
    address: SocketAddr,
    is_nonblocking: Cell<bool>,
    read_limit: Cell<Option<Duration>>,
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
        let shared = &stack.shared;
        let address = first_of(address, |address| {
            shared.with(|core| core.net.bind(address).map_err(not_bound))
        })?;
        Ok(UdpSocket {
            shared: shared.clone(),
            address,
            is_nonblocking: Cell::new(false),
            read_limit: Cell::new(None),
        })
    }

    /// The address that it is bound to.
    ///
    /// # Errors
    /// None, as it stands.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    /// Sends a datagram. Waits while its target is full. Returns how many bytes it has.
    ///
    /// # Errors
    /// `InvalidInput` if it is longer than the LAN's packets, or for no host; `HostUnreachable` if no other member
    /// of the LAN has that address; `WouldBlock` if the socket does not wait; otherwise as [`Stack::poll`].
    pub fn send_to(&self, data: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        let patience = Patience::of(self.is_nonblocking.get(), None);
        let to = to.to_socket_addrs()?.next().ok_or(io::ErrorKind::InvalidInput)?;
        self.shared.with(|core| {
            if !core.is_reachable(to.ip()) {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            core.try_until(patience, |core| match core.send_to(self.address, to, data) {
                Ok(()) => Some(Ok(data.len())),
                Err(SendToError::Full) => None,
                Err(SendToError::TooLong { bytes_max }) => {
                    let problem = format!(
                        "a datagram of {} bytes: on this LAN at most {bytes_max}",
                        data.len()
                    );
                    Some(Err(io::Error::new(io::ErrorKind::InvalidInput, problem)))
                }
                Err(_) => {
                    let problem = "not the address of a host that this socket can send to";
                    Some(Err(io::Error::new(io::ErrorKind::InvalidInput, problem)))
                }
            })
        })
    }

    /// The next datagram, and where it is from. Waits for it. What `target` has no room for is lost, as in the standard
    /// library.
    ///
    /// # Errors
    /// `WouldBlock` if the socket does not wait, or at its time limit; otherwise as [`Stack::poll`].
    pub fn recv_from(&self, target: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let patience = Patience::of(self.is_nonblocking.get(), self.read_limit.get());
        let (source, data) = self.shared.with(|core| {
            core.try_until(patience, |core| core.net.receive_from(self.address).map(Ok))
        })?;
        Ok((copy(&data, target), source))
    }

    /// The next datagram, and where it is from. It stays. Waits for it.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn peek_from(&self, target: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let patience = Patience::of(self.is_nonblocking.get(), self.read_limit.get());
        self.shared.with(|core| {
            core.try_until(patience, |core| {
                let (source, data) = core.net.peek_from(self.address)?;
                Some(Ok((copy(data, target), *source)))
            })
        })
    }

    /// Whether verbs do not wait: they give `WouldBlock` where they would.
    ///
    /// # Errors
    /// None, as it stands.
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.is_nonblocking.set(is_nonblocking);
        Ok(())
    }

    /// How long receiving waits: without end if None. Then it gives `WouldBlock`.
    ///
    /// # Errors
    /// `InvalidInput` if the time is zero.
    pub fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.read_limit.set(time.map(some_time).transpose()?);
        Ok(())
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.shared.close(Dropped::Socket(self.address));
    }
}

/// Copies as much as there is room for.
fn copy(data: &[u8], target: &mut [u8]) -> usize {
    let count = data.len().min(target.len());
    target[..count].copy_from_slice(&data[..count]);
    count
}
