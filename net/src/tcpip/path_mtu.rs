//! How long packets to an address may be, where that is less than the LAN takes (RFC 1191, RFC 8201).

use crate::tcpip::hashed::HashMap;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Addresses at most. The oldest goes when one more comes.
const ENTRIES_MAX: usize = 1024;

/// How long an address keeps its limit, in nanoseconds: then longer packets are tried again (RFC 1191 6.3).
const ENTRY_NS_MAX: u64 = 600_000_000_000;

/// Bytes of a packet that every host takes: nobody may say less.
const IPV4_MIN: usize = 576;
const IPV6_MIN: usize = 1280;

#[derive(Debug, Default)]
pub(super) struct PathMtus {
    entries: HashMap<IpAddr, (usize, u64)>,
    /// The same, in the order in which they go.
    order: BTreeSet<(u64, IpAddr)>,
}

impl PathMtus {
    /// Notes that a packet of `sent` bytes to an address was too long, and that one of `mtu` bytes is not. False if that
    /// says nothing new.
    pub(super) fn note(&mut self, now: u64, to: IpAddr, mtu: usize, sent: usize) -> bool {
        let mtu = mtu.max(if to.is_ipv4() { IPV4_MIN } else { IPV6_MIN });
        let before = self.get(now, to);
        if mtu >= sent || before.is_some_and(|before| before <= mtu) {
            return false;
        }
        self.remove(to);
        if self.entries.len() >= ENTRIES_MAX
            && let Some((_, oldest)) = self.order.first().copied()
        {
            self.remove(oldest);
        }
        let until = now.saturating_add(ENTRY_NS_MAX);
        self.entries.insert(to, (mtu, until));
        self.order.insert((until, to));
        true
    }

    /// Bytes of the longest packet to an address, if that is less than the LAN takes.
    pub(super) fn get(&self, now: u64, to: IpAddr) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let (mtu, until) = self.entries.get(&to)?;
        (now < *until).then_some(*mtu)
    }

    fn remove(&mut self, to: IpAddr) {
        if let Some((_, until)) = self.entries.remove(&to) {
            self.order.remove(&(until, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_only_falls_to_what_every_host_takes_and_has_its_time() {
        for (to, least) in [("10.1.0.2", IPV4_MIN), ("fd00::2", IPV6_MIN)] {
            let to: IpAddr = to.parse().unwrap();
            let mut table = PathMtus::default();
            assert_eq!(table.get(0, to), None);
            assert!(!table.note(0, to, 1500, 1500), "it was not too long");
            assert!(table.note(0, to, 1400, 1500));
            assert!(!table.note(1, to, 1450, 1500), "it does not rise");
            assert_eq!(table.get(1, to), Some(1400));
            assert!(table.note(5, to, 1, 1400));
            assert!(!table.note(5, to, 0, 1400));
            assert_eq!(table.get(4 + ENTRY_NS_MAX, to), Some(least));
            assert_eq!(table.get(5 + ENTRY_NS_MAX, to), None);
            assert!(table.note(6 + ENTRY_NS_MAX, to, 1450, 1500), "it begins again");
            assert_eq!((table.entries.len(), table.order.len()), (1, 1));
        }
    }

    #[test]
    fn table_is_bounded() {
        let mut table = PathMtus::default();
        for number in 0..=ENTRIES_MAX as u32 {
            assert!(table.note(number.into(), number.to_be_bytes().into(), 1000, 1500));
        }
        assert_eq!((table.entries.len(), table.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
        assert_eq!(table.get(5000, 0_u32.to_be_bytes().into()), None);
        assert_eq!(table.get(5000, 1_u32.to_be_bytes().into()), Some(1000));
    }
}
