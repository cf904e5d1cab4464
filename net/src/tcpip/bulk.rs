//! Bulk data: which connections carry it, by what they do.
//!
//! A connection carries bulk data when the other side sends at least 64 KiB in each of four periods of 10 ms one after the other, and is sent no more than a quarter of that back. It
//! carries it no longer when less than 16 KiB has come in each of eight such periods: a stream that pauses for 80 ms, or slows down to 1.6 MB/s. What lies in between changes nothing.
//! Ports say nothing: a transfer of files is found at any, and sessions that share a port with it are not.
//!
//! One that is seen at two devices is let alone for good: each of them would have its own queue, and the connection no order.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::hashed::HashMap;
use super::stack::Tuple;

const PERIOD_NS: u64 = 10_000_000;
const DENSE_BYTES: u32 = 64 << 10;
const DENSE_PERIODS: u8 = 4;
const SPARSE_BYTES: u32 = 16 << 10;
const SPARSE_PERIODS: u64 = 8;

/// What is sent back of a stream may be this part of it.
const BACK_PART: u32 = 4;

/// Connections that are watched at most: more than may be registered, so that short ones do not hide those that last.
const WATCHED_MAX: usize = 32_768;

/// After a refusal a connection is not told of again for so long.
const REFUSED_NS: u64 = 1_000_000_000;

/// A connection begins to carry bulk data, or ends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkChange {
    /// The device by which it comes: as the interfaces say.
    pub lan: usize,
    /// This side's end.
    pub local: SocketAddr,
    /// The other side's end.
    pub remote: SocketAddr,
    /// Whether it does now.
    pub is_bulk: bool,
}

/// Why connections were told of, or not: what an observer asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkCounters {
    /// Connections that were found to carry bulk data.
    pub found: u64,
    /// Of these, those that ended to.
    pub ended: u64,
    /// Connections that the device did not take.
    pub refused: u64,
    /// Connections that were seen at two devices.
    pub barred: u64,
}

/// What a connection does.
#[derive(Debug)]
struct Watched {
    lan: usize,
    began_ns: u64,
    /// How far both sides were when the period began.
    expected: u32,
    una: u32,
    dense: u8,
    sparse: u64,
    is_bulk: bool,
    /// Seen at two devices: never again.
    is_barred: bool,
    /// Until when it is not told of.
    quiet_until_ns: u64,
}

/// The connections of a stack.
#[derive(Debug, Default)]
pub(super) struct Bulk {
    /// Devices whose connections are watched.
    lans: Vec<usize>,
    watched: HashMap<u32, (Tuple, Watched)>,
    changes: VecDeque<BulkChange>,
    counters: BulkCounters,
    swept_ns: u64,
}

impl Bulk {
    /// Connections by this device are watched, or no longer.
    pub(super) fn watch(&mut self, lan: usize, is_on: bool) {
        self.lans.retain(|one| *one != lan);
        if is_on {
            self.lans.push(lan);
        }
        self.watched.retain(|_, (_, watched)| watched.lan != lan || watched.is_barred);
        self.changes.retain(|change| change.lan != lan);
    }

    #[inline]
    pub(super) fn is_watching(&self) -> bool {
        !self.lans.is_empty()
    }

    pub(super) fn counters(&self) -> &BulkCounters {
        &self.counters
    }

    /// Data has come for a connection: so far both sides are now.
    pub(super) fn note(
        &mut self,
        now: u64,
        lan: usize,
        (index, tuple): (u32, Tuple),
        (expected, una): (u32, u32),
    ) {
        let is_full = self.watched.len() >= WATCHED_MAX;
        if !self.lans.contains(&lan) || is_full && !self.watched.contains_key(&index) {
            return;
        }
        let new = || Watched {
            lan,
            began_ns: now,
            expected,
            una,
            dense: 0,
            sparse: 0,
            is_bulk: false,
            is_barred: false,
            quiet_until_ns: 0,
        };
        let entry = self.watched.entry(index).or_insert_with(|| (tuple, new()));
        if entry.0 != tuple {
            *entry = (tuple, new());
        }
        let watched = &mut entry.1;
        if watched.is_barred {
            return;
        }
        if watched.lan != lan {
            watched.is_barred = true;
            self.counters.barred += 1;
            if std::mem::take(&mut watched.is_bulk) {
                let lan = watched.lan;
                self.tell(lan, tuple, false);
            }
            return;
        }
        let elapsed = now.saturating_sub(watched.began_ns);
        if elapsed < PERIOD_NS {
            return;
        }
        let (come, gone) = (expected.wrapping_sub(watched.expected), una.wrapping_sub(watched.una));
        // Bytes of a period, if it was longer than one.
        let periods = elapsed / PERIOD_NS;
        let each = (u64::from(come) / periods) as u32;
        (watched.began_ns, watched.expected, watched.una) = (now, expected, una);
        let is_dense = each >= DENSE_BYTES && gone <= come / BACK_PART;
        watched.dense = if is_dense { watched.dense.saturating_add(1) } else { 0 };
        watched.sparse = if each < SPARSE_BYTES { watched.sparse + periods } else { 0 };
        if !watched.is_bulk && watched.dense >= DENSE_PERIODS && now >= watched.quiet_until_ns {
            watched.is_bulk = true;
            self.tell(lan, tuple, true);
        } else if watched.is_bulk && watched.sparse >= SPARSE_PERIODS {
            watched.is_bulk = false;
            self.tell(lan, tuple, false);
        }
    }

    fn tell(&mut self, lan: usize, Tuple { local, remote }: Tuple, is_bulk: bool) {
        match is_bulk {
            true => self.counters.found += 1,
            false => self.counters.ended += 1,
        }
        self.changes.push_back(BulkChange { lan, local, remote, is_bulk });
    }

    /// A connection is there no longer.
    pub(super) fn forget(&mut self, index: u32, tuple: Tuple) {
        if self.watched.get(&index).is_none_or(|(of, _)| *of != tuple) {
            return;
        }
        if let Some((_, watched)) = self.watched.remove(&index)
            && watched.is_bulk
        {
            self.tell(watched.lan, tuple, false);
        }
    }

    /// The device did not take a connection: it stays where it is for now.
    pub(super) fn refused(&mut self, now: u64, local: SocketAddr, remote: SocketAddr) {
        let mut all = self.watched.values_mut();
        let of = Tuple { local, remote };
        if let Some((_, watched)) = all.find(|(tuple, watched)| *tuple == of && watched.is_bulk) {
            watched.is_bulk = false;
            watched.quiet_until_ns = now + REFUSED_NS;
            self.counters.refused += 1;
        }
    }

    /// Returns the next change.
    pub(super) fn take_change(&mut self, now: u64) -> Option<BulkChange> {
        // Nothing comes of a connection that has become silent, so nobody has noted that.
        if now.saturating_sub(self.swept_ns) >= SPARSE_PERIODS * PERIOD_NS {
            self.swept_ns = now;
            let mut silent = Vec::new();
            for (tuple, watched) in self.watched.values_mut() {
                let since = now.saturating_sub(watched.began_ns);
                if watched.is_bulk && since >= 2 * SPARSE_PERIODS * PERIOD_NS {
                    (watched.is_bulk, watched.dense) = (false, 0);
                    silent.push((watched.lan, *tuple));
                }
            }
            for (lan, tuple) in silent {
                self.tell(lan, tuple, false);
            }
        }
        self.changes.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn tuple(port: u16) -> Tuple {
        Tuple { local: ([10, 1, 0, 1], 80).into(), remote: ([10, 1, 0, 2], port).into() }
    }

    /// A connection, the time, and how far it is.
    struct Stream {
        bulk: Bulk,
        now: u64,
        expected: u32,
        una: u32,
    }

    impl Stream {
        fn new() -> Stream {
            let mut bulk = Bulk::default();
            bulk.watch(0, true);
            // Numbers wrap.
            Stream { bulk, now: 1, expected: u32::MAX - 100_000, una: 5 }
        }

        /// So many bytes come and go in each millisecond, for so many. Returns what has changed.
        fn run(&mut self, ms: u64, come: u32, gone: u32) -> Vec<bool> {
            let mut changes = Vec::new();
            for _ in 0..ms {
                self.now += MS;
                self.expected = self.expected.wrapping_add(come);
                self.una = self.una.wrapping_add(gone);
                if come > 0 {
                    self.bulk.note(self.now, 0, (7, tuple(1)), (self.expected, self.una));
                }
                while let Some(change) = self.bulk.take_change(self.now) {
                    changes.push(change.is_bulk);
                }
            }
            changes
        }
    }

    #[test]
    fn stream_that_lasts_is_bulk_data_and_one_that_pauses_is_not() {
        let mut stream = Stream::new();
        // 8 MB/s, not for long enough, and then for long enough.
        assert_eq!(stream.run(35, 8_000, 0), []);
        assert_eq!(stream.run(20, 8_000, 100), [true]);
        // Slower, but not slow; a short pause.
        assert_eq!(stream.run(1000, 2_000, 0), []);
        assert_eq!(stream.run(50, 0, 0), []);
        assert_eq!(stream.run(100, 8_000, 0), []);
        assert_eq!(stream.run(200, 0, 0), [false]);
        assert_eq!(stream.run(100, 8_000, 0), [true]);
        assert_eq!(stream.run(200, 500, 0), [false]);
    }

    #[test]
    fn load_at_the_limits_does_not_swing() {
        let mut stream = Stream::new();
        let mut changes = 0;
        // Each period now above the upper limit, and now between the two.
        for round in 0..1000 {
            changes += stream.run(10, if round % 2 == 0 { 7_000 } else { 5_000 }, 0).len();
        }
        assert_eq!(changes, 0);
        for round in 0..1000 {
            changes += stream.run(50, if round % 2 == 0 { 7_000 } else { 1_700 }, 0).len();
        }
        assert_eq!(changes, 1);
    }

    #[test]
    fn exchanges_are_no_bulk_data_however_much_goes() {
        let mut stream = Stream::new();
        assert_eq!(stream.run(1000, 10_000, 10_000), []);
        assert_eq!(stream.run(1000, 100, 100_000), []);
    }

    #[test]
    fn connection_at_two_devices_is_let_alone_for_good() {
        let mut stream = Stream::new();
        stream.bulk.watch(1, true);
        assert_eq!(stream.run(60, 8_000, 0), [true]);
        stream.bulk.note(stream.now, 1, (7, tuple(1)), (stream.expected, stream.una));
        assert_eq!(stream.bulk.take_change(stream.now).map(|change| change.is_bulk), Some(false));
        assert_eq!(stream.run(1000, 8_000, 0), []);
        assert_eq!(stream.bulk.counters().barred, 1);
        // Another one that has its number is another one.
        stream.bulk.note(stream.now, 0, (7, tuple(2)), (1, 1));
        stream.bulk.forget(7, tuple(1));
        assert_eq!(stream.bulk.watched.len(), 1);
    }

    #[test]
    fn one_that_is_refused_stays_where_it_is_for_a_while_and_one_that_ends_is_told() {
        let mut stream = Stream::new();
        assert_eq!(stream.run(60, 8_000, 0), [true]);
        let Tuple { local, remote } = tuple(1);
        stream.bulk.refused(stream.now, local, remote);
        assert_eq!(stream.run(900, 8_000, 0), []);
        assert_eq!(stream.run(200, 8_000, 0), [true]);
        stream.bulk.forget(7, tuple(1));
        assert_eq!(stream.bulk.take_change(stream.now).map(|change| change.is_bulk), Some(false));
        assert!(stream.bulk.watched.is_empty());
    }
}
