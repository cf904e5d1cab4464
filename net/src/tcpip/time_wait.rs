//! Connections that are over, and whose last acknowledgement may still be lost (TIME-WAIT, RFC 9293 3.6).
//!
//! Nothing of a connection is needed then but two sequence numbers: so it is an entry in a table and no socket. All
//! entries stay for the same time, so the oldest is always the first to go.

use std::collections::VecDeque;

use super::stack::Tuple;
use crate::tcpip::hashed::HashMap;

/// Entries at most: some 6 MiB. The oldest goes when one more comes.
pub(super) const ENTRIES_MAX: usize = 65_536;

/// What is left of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The next byte that would be sent.
    pub(super) next: u32,
    /// The next byte that would be received: what is acknowledged.
    pub(super) expected: u32,
    /// The other side's last time, if segments carry times (RFC 7323 3.2).
    pub(super) recent: Option<u32>,
    /// Until when, in nanoseconds.
    pub(super) until: u64,
}

#[derive(Debug, Default)]
pub(super) struct TimeWait {
    entries: HashMap<Tuple, Entry>,
    /// In the order in which they go. An entry that came again stands here more than once.
    order: VecDeque<(u64, Tuple)>,
}

impl TimeWait {
    /// Keeps what is left of a connection.
    pub(super) fn insert(&mut self, now: u64, tuple: Tuple, entry: Entry) {
        self.expire(now);
        if self.order.len() >= ENTRIES_MAX {
            self.forget_oldest();
        }
        self.entries.insert(tuple, entry);
        self.order.push_back((entry.until, tuple));
    }

    /// What is left of a connection, unless its time is over.
    pub(super) fn get(&self, now: u64, tuple: &Tuple) -> Option<Entry> {
        self.entries.get(tuple).copied().filter(|entry| now < entry.until)
    }

    /// Whether a pair of ports is in the table.
    pub(super) fn has(&self, tuple: &Tuple) -> bool {
        self.entries.contains_key(tuple)
    }

    /// Forgets a pair of ports, because it is used again.
    pub(super) fn remove(&mut self, tuple: &Tuple) {
        // Its place in the order goes when its time is over.
        self.entries.remove(tuple);
    }

    /// Drops the entries whose time is over.
    pub(super) fn expire(&mut self, now: u64) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn forget_oldest(&mut self) {
        let Some((until, tuple)) = self.order.pop_front() else { return };
        if self.entries.get(&tuple).is_some_and(|entry| entry.until == until) {
            self.entries.remove(&tuple);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> Tuple {
        let local = "10.1.0.1:80".parse().unwrap();
        Tuple { local, remote: std::net::SocketAddr::new([10, 1, 0, 2].into(), port) }
    }

    fn entry(next: u32, expected: u32, until: u64) -> Entry {
        Entry { next, expected, recent: None, until }
    }

    #[test]
    fn entries_go_when_their_time_is_over() {
        let mut table = TimeWait::default();
        table.insert(0, tuple(1), entry(7, 8, 10));
        table.insert(0, tuple(2), entry(7, 9, 20));
        assert_eq!(table.get(9, &tuple(1)).map(|entry| entry.expected), Some(8));
        assert_eq!(table.get(10, &tuple(1)), None);
        // One that came again stays for its new time.
        table.insert(5, tuple(1), entry(70, 80, 30));
        table.insert(21, tuple(3), entry(0, 0, 40));
        assert_eq!((table.len(), table.order.len()), (2, 2));
        assert_eq!(table.get(21, &tuple(1)).map(|entry| entry.next), Some(70));
    }

    #[test]
    fn table_is_bounded() {
        let mut table = TimeWait::default();
        for number in 0..=ENTRIES_MAX as u32 {
            let remote = std::net::SocketAddr::new(number.to_be_bytes().into(), 1);
            table.insert(0, Tuple { local: tuple(1).local, remote }, entry(0, 0, 10));
        }
        assert_eq!((table.len(), table.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
    }
}
