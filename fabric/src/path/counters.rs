//! Counters of a half: plain words in our own state storage, which anyone it is lent to may read while
//! the system runs. Watching costs the data path nothing.

use os::sync::Ordering;
use os::words::{Block, Words};

/// What is counted, each in a word of its own at this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Counter {
    /// Messages handed over, or taken.
    Messages,
    /// Bytes of those messages.
    Bytes,
    /// Buffers primed, or taken.
    Buffers,
    /// Of these, with their bytes in place.
    InPlace,
    /// Of these, packed with several messages.
    Packs,
    /// Large messages announced.
    Announced,
    /// Control records.
    Control,
    /// Sends refused because the reader is too far behind.
    Full,
    /// Doorbells rung.
    Rings,
    /// Doorbells heard.
    Heard,
    /// Looks for work.
    Polls,
    /// Looks that found none.
    PollsEmpty,
    /// Times gone to sleep.
    Sleeps,
    /// Times woken without finding work.
    WakesUnproductive,
    /// Nanoseconds spent looking while there was nothing.
    SpinningNs,
    /// Storage lent, in bytes, now.
    LentBytes,
    /// Storages lent so far.
    Lent,
    /// Storages retired so far.
    Retired,
    /// What the peer did that no peer may do, as the number of a [`Violation`](crate::queue::Violation);
    /// zero if nothing.
    Violation,
}

/// How many there are.
pub const COUNTERS: usize = Counter::Violation as usize + 1;

/// Levels that a conversation over the path may show in each half, in words behind the counters.
pub const GAUGES: usize = 4;

/// Words set aside for the counters and gauges of a half.
pub const COUNTER_WORDS: usize = 24;
const _: () = assert!(COUNTERS + GAUGES <= COUNTER_WORDS);

/// The word of a gauge, behind those of the counters.
pub fn gauge_word(gauge: usize) -> usize {
    assert!(gauge < GAUGES, "a half has {GAUGES} gauges");
    COUNTER_WORDS - GAUGES + gauge
}

impl Counter {
    /// Name and meaning of each, in order of their words.
    pub const ALL: [(Counter, &str); COUNTERS] = [
        (Counter::Messages, "messages"),
        (Counter::Bytes, "bytes"),
        (Counter::Buffers, "buffers"),
        (Counter::InPlace, "in_place"),
        (Counter::Packs, "packs"),
        (Counter::Announced, "announced"),
        (Counter::Control, "control"),
        (Counter::Full, "full"),
        (Counter::Rings, "rings"),
        (Counter::Heard, "heard"),
        (Counter::Polls, "polls"),
        (Counter::PollsEmpty, "polls_empty"),
        (Counter::Sleeps, "sleeps"),
        (Counter::WakesUnproductive, "wakes_unproductive"),
        (Counter::SpinningNs, "spinning_ns"),
        (Counter::LentBytes, "lent_bytes"),
        (Counter::Lent, "lent"),
        (Counter::Retired, "retired"),
        (Counter::Violation, "violation"),
    ];
}

/// The counters of one half, and the words they are shown in.
#[derive(Debug)]
pub struct Counters {
    values: [u64; COUNTERS],
    gauges: [u64; GAUGES],
    words: Block<COUNTER_WORDS>,
}

impl Counters {
    pub(super) fn new(words: Words) -> Counters {
        Counters { values: [0; COUNTERS], gauges: [0; GAUGES], words: Block::new(words) }
    }

    /// What a counter stands at.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }

    /// Adds to a counter and shows it.
    #[inline]
    pub fn add(&mut self, counter: Counter, amount: u64) {
        self.set(counter, self.values[counter as usize] + amount);
    }

    /// Shows a level of the conversation over the path.
    #[inline]
    pub(super) fn show(&mut self, gauge: usize, level: u64) {
        // Often it is as before, and those who watch have the line.
        if self.gauges[gauge] != level {
            self.gauges[gauge] = level;
            self.words.store(gauge_word(gauge), level, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn set(&mut self, counter: Counter, value: u64) {
        self.values[counter as usize] = value;
        // Relaxed: a watcher wants each number, not their order.
        self.words.store(counter as usize, value, Ordering::Relaxed);
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
