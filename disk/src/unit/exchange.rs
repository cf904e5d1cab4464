//! An exchange: what a control unit keeps of a program from its first command to its end.

use std::ops::Range;

use super::aside::Aside;
use super::cache::{Cache, Slot};
use super::chain::Chain;
use super::device::Device;
use super::fetch::TRACKS_AHEAD_MAX;
use super::few::Few;
use super::flight::Ticket;
use super::transfer::Transfer;
use super::{Clock, Mounted};
use channel::exchange::Head;

/// Ranges of tracks without records that are remembered for a command, or an operation: more than an operation has records to find behind
/// them. What comes beyond is gone over again, until the operation has given way too often.
const EMPTY_RANGES_MAX: usize = 4096;

/// An exchange that is under way.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) number: u32,
    pub(super) connection: u16,
    pub(super) chain: Chain,
    /// Commands so far, or at the end where it stopped. A chain may have no end: 64 bits do not wrap.
    pub(super) commands: u64,
    /// A command that waits for its data.
    pub(super) awaiting: Option<Head>,
    /// An operation of transport mode that waits for its output data.
    pub(super) transfer: Option<Box<Transfer>>,
    /// Bytes of room that the output data of such an operation have: see [`Transfer`].
    pub(super) room_bytes: usize,
    /// Its device was kept for it: nobody reserves the device before it has ended.
    pub(super) is_admitted: bool,
    /// Slots that were handed out.
    pub(super) slots: Few<Slot>,
    /// How many of them there were when the last group of commands began.
    pub(super) slots_before: usize,
    /// It has written.
    pub(super) has_written: bool,
    /// A command of it has brought the sense, which is there once.
    pub(super) has_taken_sense: bool,
    /// Some of what the file has of it is not synced.
    pub(super) is_unsynced: bool,
    /// Stands for it with its direct writes, of which so many are not over.
    pub(super) writer: Option<Ticket>,
    pub(super) unwritten: u32,
    /// A sync of what it has written has failed, or a direct write.
    pub(super) has_failed: bool,
    /// Tracks that were read from the file.
    pub(super) misses: u64,
    /// It has done what must not be done twice since its command, or its operation, began.
    pub(super) has_effects: bool,
    /// It reads by calls that wait: what a direct read has brought was of no use, or it has waited too often.
    pub(super) must_block: bool,
    /// How often its command, or its operation, was put aside.
    pub(super) turns: u32,
    /// The device is not cached: tracks that direct reads bring for this exchange. They leave the cache with it, or when a command
    /// has ended that is past them: until then the command may run again.
    pub(super) asked: Vec<u32>,
    /// Tracks that were found to have no records, in order: a command that runs again does not go over them once more.
    pub(super) empty: Vec<Range<u32>>,
    /// How often it has given way on its way over such tracks.
    pub(super) yields: u32,
    /// The key that the head has passed last.
    pub(super) key: Vec<u8>,
    /// It waits for a direct read.
    pub(super) aside: Option<Box<Aside>>,
    /// The device is not cached: the track that was read last for this exchange, which leaves the cache with the exchange, or
    /// when it has read another.
    pub(super) passing: Option<u32>,
    pub(super) is_uncached: bool,
    /// Read subsystem data is to bring the control unit's features.
    pub(super) are_features_wanted: bool,
    /// For how long it has waited for its files.
    pub(super) disconnect_time: DisconnectTime,
}

/// For how long an exchange has waited for the files of its volume: for reads and writes, and for syncs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DisconnectTime {
    all_ns: u64,
    since_ns: Option<u64>,
}

impl DisconnectTime {
    /// The exchange waits from now on.
    pub(super) fn begin(&mut self, clock: Clock) {
        self.since_ns.get_or_insert_with(|| clock.read());
    }

    /// The exchange goes on, if it has waited. The clock is asked only then: an exchange that reads what is in the cache pays for none of
    /// this.
    pub(super) fn end(&mut self, clock: Clock) {
        if let Some(since_ns) = self.since_ns.take() {
            self.all_ns += clock.read().saturating_sub(since_ns);
        }
    }

    /// Nanoseconds in all.
    pub(super) fn all_ns(&self) -> u64 {
        self.all_ns
    }
}

impl Exchange {
    pub(super) fn new(connection: u16, number: u32, device: &Device) -> Exchange {
        Exchange { number, connection, is_uncached: !device.is_cached, ..Exchange::default() }
    }

    /// A group of commands begins, of an exchange whose data the channel copies. The channel sends the group when it has taken the
    /// response to the last command of the group before, and so the data of all commands before that one. Slots that none of the
    /// commands since has used are free: a chain without end pins no more than two groups of commands read.
    pub(super) fn begin_group(&mut self, cache: &mut Cache) {
        // The last slot of the group before may have been used since.
        let copied = self.slots.take_first(self.slots_before.saturating_sub(1));
        copied.into_iter().for_each(|slot| cache.unpin(slot));
        self.slots_before = self.slots.len();
    }

    /// Evicts the tracks that were read for the exchange, if its device has no cache: the exchange is over. What was handed out of them stays
    /// pinned.
    pub(super) fn evict_tracks_read(&mut self, cache: &mut Cache) {
        for track in self.passing.take().into_iter().chain(self.asked.drain(..)) {
            cache.let_go(track);
        }
    }

    /// A track was found to have no records.
    pub(super) fn note_empty(&mut self, track: u32) {
        let behind = self.empty.partition_point(|range| range.start <= track);
        if let Some(range) = self.empty[..behind].last_mut().filter(|range| range.end >= track) {
            range.end = range.end.max(track + 1);
        } else if self.empty.len() < EMPTY_RANGES_MAX {
            self.empty.insert(behind, track..track + 1);
        }
    }

    /// The first track behind the tracks without records among which this one is.
    pub(super) fn behind_empty(&self, track: u32) -> Option<u32> {
        let behind = self.empty.partition_point(|range| range.start <= track);
        self.empty[..behind].last().map(|range| range.end).filter(|end| *end > track)
    }

    /// Forgets the tracks without records: a command has ended, or one writes.
    pub(super) fn forget_empty(&mut self) {
        self.empty.clear();
        self.yields = 0;
    }

    /// Whether it can be put aside, and its command run again.
    pub(super) fn may_wait(&self) -> bool {
        !self.must_block && !self.has_effects
    }

    /// A direct read was begun for this exchange.
    pub(super) fn note_asked(&mut self, track: u32) {
        if self.is_uncached && !self.asked.contains(&track) {
            self.asked.push(track);
        }
    }

    /// Evicts the tracks that were read for commands which have ended, if the device has no cache. Tracks that are being written stay until
    /// the exchange ends: a program that needed one would have to wait.
    pub(super) fn evict_passed(&mut self, mounted: &mut Mounted) {
        let Some(track) = self.chain.track() else { return };
        let kept = track..=track + TRACKS_AHEAD_MAX as u32;
        let is_old = |track: &mut u32| !kept.contains(track) && !mounted.is_being_written(*track);
        let old: Vec<u32> = self.asked.extract_if(.., is_old).collect();
        old.into_iter().for_each(|track| mounted.cache.let_go(track));
    }

    /// Notes the track that was just read for the exchange, whose device has no cache, and evicts the one before as soon as it is written.
    pub(super) fn replace_passing(&mut self, track: u32, mounted: &mut Mounted) {
        match self.passing.replace(track) {
            Some(before) if before == track => {}
            Some(before) if mounted.is_being_written(before) => self.note_asked(before),
            Some(before) => mounted.cache.let_go(before),
            None => {}
        }
    }

    /// Unpins the slots that its command had pinned when it was put aside: it waits no longer.
    pub(super) fn release_held(&mut self, cache: &mut Cache) {
        if let Some(aside) = self.aside.take() {
            aside.held.into_iter().for_each(|slot| cache.unpin(slot));
        }
    }
}
