//! Counters of a half: plain words in our own state storage, which every borrower may read while the system
//! runs. Watching costs the data path nothing.

use os::sync::Ordering;
use os::words::{Block, Words};

use crate::listed;

listed! {
    /// What is counted, each in a word of its own at this index.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(usize)]
    #[non_exhaustive]
    pub enum Counter {
        /// Messages handed over, or taken.
        Messages => "messages",
        /// Bytes of those messages.
        Bytes => "bytes",
        /// Buffers primed, or taken.
        Buffers => "buffers",
        /// Of these, with their bytes in place.
        InPlace => "in_place",
        /// Of these, packed with several messages.
        Packs => "packs",
        /// Large messages announced.
        Announced => "announced",
        /// Control records.
        Control => "control",
        /// Sends refused because the reader is too far behind.
        Full => "full",
        /// Doorbells rung.
        Rings => "rings",
        /// Doorbells heard.
        Heard => "heard",
        /// Polls for work.
        Polls => "polls",
        /// Polls that found none.
        PollsEmpty => "polls_empty",
        /// Times gone to sleep.
        Sleeps => "sleeps",
        /// Times woken without finding work.
        WakesUnproductive => "wakes_unproductive",
        /// Nanoseconds spent polling an empty queue.
        SpinningNs => "spinning_ns",
        /// Storage lent, in bytes, now.
        LentBytes => "lent_bytes",
        /// Storages lent so far.
        Lent => "lent",
        /// Storages retired so far.
        Retired => "retired",
        /// What the peer did that no peer may do, as the number of a [`Violation`](crate::queue::Violation);
        /// zero if nothing.
        Violation => "violation",
        /// Of the storage lent, pages that are in use, in bytes: when the writer has last taken back what the reader gave back.
        UsedBytes => "used_bytes",
    }
}

/// Levels that a conversation over the path may show in each half, in words behind the counters.
pub const GAUGES: usize = 4;

/// Words set aside for the counters and gauges of a half.
pub const COUNTER_WORDS: usize = 24;
const _: () = assert!(Counter::ALL.len() + GAUGES <= COUNTER_WORDS);

/// The word of a gauge, behind those of the counters.
pub fn gauge_word(gauge: usize) -> usize {
    assert!(gauge < GAUGES, "a half has {GAUGES} gauges");
    COUNTER_WORDS - GAUGES + gauge
}

/// The counters of one half, in the words that show them.
#[derive(Debug)]
pub struct Counters(Block<COUNTER_WORDS>);

impl Counters {
    pub(super) fn new(words: Words) -> Counters {
        Counters(Block::new(words))
    }

    /// What a counter stands at.
    pub fn get(&self, counter: Counter) -> u64 {
        // Relaxed, all through: nobody else stores, and a watcher wants each number, not their order.
        self.0.load(counter as usize, Ordering::Relaxed)
    }

    /// Adds to a counter and shows it.
    #[inline]
    pub fn add(&mut self, counter: Counter, amount: u64) {
        self.set(counter, self.get(counter) + amount);
    }

    /// Shows a level of the conversation over the path.
    #[inline]
    pub(super) fn show(&mut self, gauge: usize, level: u64) {
        // Often it is as before, and those who watch have the line.
        if self.0.load(gauge_word(gauge), Ordering::Relaxed) != level {
            self.0.store(gauge_word(gauge), level, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn set(&mut self, counter: Counter, value: u64) {
        self.0.store(counter as usize, value, Ordering::Relaxed);
    }
}

/// Messages and their bytes, which are counted together, and shown with each buffer: those of a pack when it
/// is handed over, and when it has been read.
// Both are added to at once. Were they in two lines, what one message leaves could not be had by the next
// before it is stored, and a half would bring 65 or 108 M/s depending on where its owner keeps it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(16))]
pub(super) struct Tally {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) in_place: u64,
}

impl Tally {
    /// Counts a message of so many bytes.
    #[inline(always)]
    pub(super) fn count(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }

    /// Counts a message of so many bytes that lies in its line.
    #[inline(always)]
    pub(super) fn count_in_place(&mut self, bytes: usize) {
        self.count(bytes);
        self.in_place += 1;
    }

    /// Shows how many there were.
    #[inline(always)]
    pub(super) fn show(&self, counters: &mut Counters) {
        counters.set(Counter::Messages, self.messages);
        counters.set(Counter::Bytes, self.bytes);
        counters.set(Counter::InPlace, self.in_place);
    }
}
