//! Sockets of UDP: a queue of datagrams each.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fabric::path::Lack;

use crate::board::Counter;
use crate::tcpip::hashed::HashMap;

/// Bytes that datagrams may take in one socket before more are dropped, some of them for keeping each.
const QUEUE_BYTES_MAX: usize = 256 << 10;

/// What keeping a datagram takes besides its bytes, roughly.
const DATAGRAM_BYTES: usize = 64;

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendToError {
    /// It is longer than a datagram may be: `bytes_max`.
    TooLong {
        /// Bytes of data that go into one.
        bytes_max: usize,
    },
    /// That is no address of one host, or of another family than ours. Or the socket's port is one from which the stack alone speaks.
    NoAddress,
    /// The socket is not connected.
    NotConnected,
    /// Its target is full. Later there may be room.
    Full,
    /// Something has run out here that it takes to send. Later it may be there again.
    Lacking(Lack),
}

#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// By the address that they are bound to, which may be any of ours.
    pub(super) bound: HashMap<SocketAddr, Queue>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
    bytes: usize,
    /// If it is connected.
    pub(super) connected: Option<Connected>,
    /// Whether the other side has refused a datagram, and its program has not been told.
    is_refused: bool,
    /// Whether somebody waits for the next datagram, or the next that is refused.
    pub(super) is_awaited: bool,
}

/// Both addresses of a connected socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connected {
    pub(super) local: IpAddr,
    pub(super) remote: SocketAddr,
}

impl Sockets {
    /// Where the socket for an address of ours is bound.
    pub(super) fn at(&self, local: SocketAddr) -> Option<SocketAddr> {
        [local, any(local)].into_iter().find(|at| self.bound.contains_key(at))
    }

    /// Keeps a datagram for the socket that it is for. Returns where that is bound.
    pub(super) fn put(
        &mut self,
        to: SocketAddr,
        source: SocketAddr,
        data: &[u8],
    ) -> Result<SocketAddr, Counter> {
        let at = self.at(to).ok_or(Counter::NoSocket)?;
        let queue = self.bound.get_mut(&at).ok_or(Counter::NoSocket)?;
        let is_for =
            |connected: Connected| connected == Connected { local: to.ip(), remote: source };
        if !queue.connected.is_none_or(is_for) {
            return Err(Counter::NoSocket);
        }
        queue.put(source, data)?;
        Ok(at)
    }
}

impl Queue {
    pub(super) fn remote(&self) -> Option<SocketAddr> {
        self.connected.map(|connected| connected.remote)
    }

    /// Connects it. What had come from others before is dropped, because it would seem to be from the other side.
    pub(super) fn connect(&mut self, connected: Connected) {
        self.connected = Some(connected);
        self.is_refused = false;
        let bytes = &mut self.bytes;
        self.datagrams.retain(|(source, data)| {
            let is_from = *source == connected.remote;
            *bytes -= if is_from { 0 } else { DATAGRAM_BYTES + data.len() };
            is_from
        });
    }

    /// The other side has refused a datagram. One that is not connected is not told: it could not know which.
    pub(super) fn refuse(&mut self) {
        self.is_refused = self.connected.is_some();
    }

    /// Whether a datagram was refused. It is said once.
    pub(super) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.is_refused)
    }

    pub(super) fn put(&mut self, source: SocketAddr, data: &[u8]) -> Result<(), Counter> {
        let bytes = DATAGRAM_BYTES + data.len();
        if self.bytes + bytes > QUEUE_BYTES_MAX {
            return Err(Counter::SocketFull);
        }
        self.bytes += bytes;
        self.datagrams.push_back((source, data.to_vec()));
        Ok(())
    }

    pub(super) fn take(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let (source, data) = self.datagrams.pop_front()?;
        self.bytes -= DATAGRAM_BYTES + data.len();
        Some((source, data))
    }
}

/// The address that stands for all of ours, with the same port.
pub(super) fn any(address: SocketAddr) -> SocketAddr {
    let ip = match address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_keeps_what_it_has_room_for() {
        let mut queue = Queue::default();
        let source = "10.1.0.2:53".parse().unwrap();
        let kept = (0..).take_while(|_| queue.put(source, &[7; 1000]).is_ok()).count();
        assert_eq!(kept, QUEUE_BYTES_MAX / 1064);
        assert_eq!(queue.put(source, &[7; 1000]), Err(Counter::SocketFull));
        assert_eq!(queue.take(), Some((source, vec![7; 1000])));
        assert_eq!(queue.put(source, &[7; 1000]), Ok(()));
        while queue.take().is_some() {}
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn connected_socket_has_datagrams_of_its_other_side_alone() {
        let [local, remote, other]: [SocketAddr; 3] =
            ["10.1.0.1:9", "10.1.0.2:53", "10.1.0.2:54"].map(|at| at.parse().unwrap());
        let mut sockets = Sockets::default();
        sockets.bound.insert(any(local), Queue::default());
        assert_eq!(sockets.put(local, other, b"before"), Ok(any(local)));
        assert_eq!(sockets.put(local, remote, b"one"), Ok(any(local)));
        let queue = sockets.bound.get_mut(&any(local)).unwrap();
        queue.refuse();
        assert!(!queue.take_refused(), "it is not connected");
        queue.connect(Connected { local: local.ip(), remote });
        assert_eq!(queue.take(), Some((remote, b"one".to_vec())));
        assert_eq!((queue.take(), queue.bytes), (None, 0));
        queue.refuse();
        assert!(queue.take_refused() && !queue.take_refused());
        assert_eq!(sockets.put(local, other, b"after"), Err(Counter::NoSocket));
        assert_eq!(
            sockets.put("10.1.0.3:9".parse().unwrap(), remote, b"x"),
            Err(Counter::NoSocket)
        );
        assert_eq!(sockets.put(local, remote, b"two"), Ok(any(local)));
    }
}
