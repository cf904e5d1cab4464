//! Bulk data: which connections carry it, by what they do.
//!
//! A connection carries bulk data when the other side sends at least 64 KiB in each of four periods of 10 ms one after the other, and is sent no more than a quarter of that back. It
//! carries it no longer when less than 16 KiB has come in each of eight such periods: a stream that pauses for 80 ms, or slows down to 1.6 MB/s. What lies in between changes nothing.
//! Ports say nothing: a transfer of files is found at any, and sessions that share a port with it are not.
//!
//! One that is seen at two devices is let alone for good: each of them would have its own queue, and the connection no order.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::hashed::{HashMap, HashSet};
use super::stack::Tuple;

const PERIOD_NS: u64 = 10_000_000;
const DENSE_BYTES: u32 = 64 << 10;
const DENSE_PERIODS: u8 = 4;
const SPARSE_BYTES: u32 = 16 << 10;
const SPARSE_PERIODS: u64 = 8;

/// What is sent back of a stream may be this part of it.
const BACK_PART: u32 = 4;

/// Connections that are watched at most, and how long one that is quiet is watched where there are so many.
const WATCHED_MAX: usize = 32_768;
const QUIET_NS: u64 = 1_000_000_000;

/// Connections that devices are told of at once, at most.
const TOLD_MAX: usize = 16_384;

/// After a refusal a connection is not told of again for so long.
const REFUSED_NS: u64 = 1_000_000_000;

/// What a device is to be told of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkState {
    /// It carries bulk data.
    Bulk,
    /// It goes on, and does so no longer.
    Plain,
    /// It is over.
    Over,
}

/// A connection begins to carry bulk data, or ends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkChange {
    /// This side's end.
    pub local: SocketAddr,
    /// The other side's end.
    pub remote: SocketAddr,
    /// How it stands now.
    pub state: BulkState,
}

/// Why connections were told of, or not: what an observer asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkCounters {
    /// How often a connection was found to carry bulk data.
    pub found: u64,
    /// How often one ended to, without being over.
    pub ended: u64,
    /// How often the device did not take one, or was told of as many as it may be.
    pub refused: u64,
    /// Connections that were seen at two devices.
    pub barred: u64,
}

/// What a connection does.
#[derive(Debug)]
struct Watched {
    tuple: Tuple,
    lan: usize,
    began_ns: u64,
    /// How far both sides were when the period began.
    expected: u32,
    una: u32,
    dense: u8,
    sparse: u64,
    is_bulk: bool,
    /// What the device was told last.
    is_told: bool,
    /// Set while it waits among those whose device is to be told.
    is_listed: bool,
    /// Seen at two devices: never again.
    is_barred: bool,
    /// Until when it is not told of.
    quiet_until_ns: u64,
}

/// What a device is still to be told.
#[derive(Debug, Default)]
struct Untold {
    /// Connections that have changed, each once: what counts is how they stand when it is told.
    changed: VecDeque<u32>,
    /// Those that are over, and that the device knows.
    over: VecDeque<Tuple>,
}

/// The connections of a stack.
#[derive(Debug, Default)]
pub(super) struct Bulk {
    /// Devices whose connections are watched.
    lans: Vec<(usize, Untold)>,
    watched: HashMap<u32, Watched>,
    /// Those that carry bulk data.
    streams: HashSet<u32>,
    /// Connections that devices know.
    told: usize,
    counters: BulkCounters,
    swept_ns: u64,
    thinned_ns: u64,
}

impl Bulk {
    /// Connections by this device are watched, or no longer. What was found there is forgotten, and the device knows nothing.
    pub(super) fn watch(&mut self, lan: usize, is_on: bool) {
        let of_lan = |watched: &Watched| watched.lan == lan && !watched.is_barred;
        let gone = self.watched.values().filter(|watched| watched.lan == lan && watched.is_told);
        self.told -= gone.count();
        for (one, untold) in &self.lans {
            self.told -= if *one == lan { untold.over.len() } else { 0 };
        }
        self.lans.retain(|(one, _)| *one != lan);
        self.watched.retain(|_, watched| !of_lan(watched));
        for watched in self.watched.values_mut().filter(|watched| watched.lan == lan) {
            (watched.is_told, watched.is_listed) = (false, false);
        }
        let Bulk { watched, streams, .. } = self;
        streams.retain(|index| watched.contains_key(index));
        if is_on {
            self.lans.push((lan, Untold::default()));
        }
    }

    #[inline]
    pub(super) fn is_watching(&self) -> bool {
        !self.lans.is_empty()
    }

    pub(super) fn counters(&self) -> &BulkCounters {
        &self.counters
    }

    /// The other side's data has come in order for a connection: so far both sides are now.
    pub(super) fn note(
        &mut self,
        now: u64,
        lan: usize,
        (index, tuple): (u32, Tuple),
        (expected, una): (u32, u32),
    ) {
        if !self.lans.iter().any(|(one, _)| *one == lan) {
            return;
        }
        if self.watched.get(&index).is_none_or(|watched| watched.tuple != tuple) {
            self.forget_index(index);
            if !self.has_room(now) {
                return;
            }
            let watched = Watched {
                tuple,
                lan,
                began_ns: now,
                expected,
                una,
                dense: 0,
                sparse: 0,
                is_bulk: false,
                is_told: false,
                is_listed: false,
                is_barred: false,
                quiet_until_ns: 0,
            };
            self.watched.insert(index, watched);
            return;
        }
        let Some(watched) = self.watched.get_mut(&index).filter(|watched| !watched.is_barred)
        else {
            return;
        };
        if watched.lan != lan {
            watched.is_barred = true;
            self.counters.barred += 1;
            return self.change(index, false);
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
            self.change(index, true);
        } else if watched.is_bulk && watched.sparse >= SPARSE_PERIODS {
            self.change(index, false);
        }
    }

    /// Whether one more can be watched. Where there are too many, those that are quiet are watched no longer: whoever lasts is found all the same.
    fn has_room(&mut self, now: u64) -> bool {
        if self.watched.len() >= WATCHED_MAX && now.saturating_sub(self.thinned_ns) >= QUIET_NS {
            self.thinned_ns = now;
            self.watched.retain(|_, watched| {
                let is_needed = watched.is_bulk || watched.is_told || watched.is_barred;
                is_needed || now.saturating_sub(watched.began_ns) < QUIET_NS
            });
        }
        self.watched.len() < WATCHED_MAX
    }

    /// A connection carries bulk data from now on, or no longer.
    fn change(&mut self, index: u32, is_bulk: bool) {
        let Some(watched) = self.watched.get_mut(&index) else { return };
        if watched.is_bulk == is_bulk {
            return;
        }
        (watched.is_bulk, watched.dense, watched.sparse) = (is_bulk, 0, 0);
        match is_bulk {
            true => {
                self.streams.insert(index);
                self.counters.found += 1;
            }
            false => {
                self.streams.remove(&index);
                self.counters.ended += 1;
            }
        }
        if !std::mem::replace(&mut watched.is_listed, true)
            && let Some((_, untold)) = self.lans.iter_mut().find(|(lan, _)| *lan == watched.lan)
        {
            untold.changed.push_back(index);
        }
    }

    /// A connection is there no longer.
    pub(super) fn forget(&mut self, index: u32, tuple: Tuple) {
        if self.watched.get(&index).is_some_and(|watched| watched.tuple == tuple) {
            self.forget_index(index);
        }
    }

    fn forget_index(&mut self, index: u32) {
        self.streams.remove(&index);
        if let Some(watched) = self.watched.remove(&index)
            && watched.is_told
        {
            match self.lans.iter_mut().find(|(lan, _)| *lan == watched.lan) {
                Some((_, untold)) => untold.over.push_back(watched.tuple),
                None => self.told -= 1,
            }
        }
    }

    /// The device has not taken a connection: it stays where it is for now.
    pub(super) fn refused(&mut self, now: u64, index: u32) {
        let Some(watched) = self.watched.get_mut(&index) else { return };
        self.told -= usize::from(std::mem::take(&mut watched.is_told));
        (watched.is_bulk, watched.dense) = (false, 0);
        watched.quiet_until_ns = now + REFUSED_NS;
        self.streams.remove(&index);
        self.counters.refused += 1;
    }

    /// Returns the next that a device is to be told, which counts as told then.
    pub(super) fn take_change(&mut self, now: u64, lan: usize) -> Option<BulkChange> {
        // Nothing comes of a connection that has become silent, so nobody has noted that.
        if now.saturating_sub(self.swept_ns) >= SPARSE_PERIODS * PERIOD_NS {
            self.swept_ns = now;
            let is_silent = |index: &u32| {
                self.watched.get(index).is_none_or(|watched| {
                    now.saturating_sub(watched.began_ns) >= 2 * SPARSE_PERIODS * PERIOD_NS
                })
            };
            let silent: Vec<u32> = self.streams.iter().copied().filter(is_silent).collect();
            for index in silent {
                self.change(index, false);
            }
        }
        let Bulk { lans, watched, streams, told, counters, .. } = self;
        let (_, untold) = lans.iter_mut().find(|(one, _)| *one == lan)?;
        if let Some(Tuple { local, remote }) = untold.over.pop_front() {
            *told -= 1;
            return Some(BulkChange { local, remote, state: BulkState::Over });
        }
        while let Some(index) = untold.changed.pop_front() {
            let Some(watched) = watched.get_mut(&index) else { continue };
            watched.is_listed = false;
            if watched.is_bulk == watched.is_told {
                continue;
            }
            if watched.is_bulk && *told >= TOLD_MAX {
                (watched.is_bulk, watched.dense) = (false, 0);
                watched.quiet_until_ns = now + REFUSED_NS;
                streams.remove(&index);
                counters.refused += 1;
                continue;
            }
            watched.is_told = watched.is_bulk;
            let state = match watched.is_told {
                true => {
                    *told += 1;
                    BulkState::Bulk
                }
                false => {
                    *told -= 1;
                    BulkState::Plain
                }
            };
            let Tuple { local, remote } = watched.tuple;
            return Some(BulkChange { local, remote, state });
        }
        None
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
                while let Some(change) = self.bulk.take_change(self.now, 0) {
                    changes.push(change.state == BulkState::Bulk);
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
        let change = stream.bulk.take_change(stream.now, 0);
        assert_eq!(change.map(|change| change.state), Some(BulkState::Plain));
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
        stream.bulk.refused(stream.now, 7);
        assert_eq!(stream.run(900, 8_000, 0), []);
        assert_eq!(stream.run(200, 8_000, 0), [true]);
        stream.bulk.forget(7, tuple(1));
        let change = stream.bulk.take_change(stream.now, 0);
        assert_eq!(change.map(|change| change.state), Some(BulkState::Over));
        assert!(stream.bulk.watched.is_empty() && stream.bulk.told == 0);
        // Nobody is told of the end of one that nobody was told of.
        stream.bulk.note(stream.now, 0, (7, tuple(1)), (1, 1));
        stream.bulk.forget(7, tuple(1));
        assert_eq!(stream.bulk.take_change(stream.now, 0), None);
    }

    #[test]
    fn device_that_takes_no_news_makes_no_list_grow() {
        let mut bulk = Bulk::default();
        bulk.watch(0, true);
        let mut now = 1;
        // A connection begins and ends to carry bulk data again and again, and nobody asks.
        for _ in 0..50 {
            for (each, ms) in [(8_000, 60), (100, 200)] {
                let mut expected = 0_u32;
                for _ in 0..ms {
                    now += MS;
                    expected = expected.wrapping_add(each);
                    bulk.note(now, 0, (7, tuple(1)), (expected, 0));
                }
            }
        }
        assert!(bulk.counters().found > 10);
        assert_eq!(bulk.lans[0].1.changed.len(), 1);
        // What counts is how it stands now.
        assert_eq!(bulk.take_change(now, 0), None);
    }

    #[test]
    fn crowd_of_quiet_connections_hides_no_stream() {
        let mut stream = Stream::new();
        for index in 0..2 * WATCHED_MAX as u32 {
            stream.bulk.note(1, 0, (100 + index, tuple((index % 60_000) as u16)), (1, 1));
        }
        assert_eq!(stream.run(900, 8_000, 0), [], "there is no room yet");
        assert_eq!(stream.run(300, 8_000, 0), [true]);
        assert!(stream.bulk.watched.len() <= WATCHED_MAX);
    }

    #[test]
    fn device_that_has_come_again_knows_nothing() {
        let mut stream = Stream::new();
        assert_eq!(stream.run(60, 8_000, 0), [true]);
        stream.bulk.watch(0, true);
        assert_eq!(stream.bulk.told, 0);
        assert_eq!(stream.run(60, 8_000, 0), [true]);
        assert_eq!(stream.bulk.told, 1);
    }
}
