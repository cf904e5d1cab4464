//! Sockets of UDP: a queue of datagrams each.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use super::counters::Counter;

/// Bytes that datagrams may take in one socket before more are dropped, some of them for keeping each.
const QUEUE_BYTES_MAX: usize = 256 << 10;

/// What keeping a datagram takes besides its bytes, roughly.
const DATAGRAM_BYTES: usize = 64;

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendToError {
    /// It is longer than a packet may be: `bytes_max`.
    TooLong {
        /// Bytes of data that go into one.
        bytes_max: usize,
    },
    /// That is no address of one host, or of another family than ours.
    NoAddress,
    /// Its target is full. Later there may be room.
    Full,
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
}

impl Queue {
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
}
