//! Counters of a half: plain words in our own state storage, which anyone it is lent to may read while
//! the system runs. Watching costs the data path nothing.

use os::sync::Ordering;
use os::words::Words;

use crate::queue::Violation;

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
    /// Hand-overs and give-backs that needed no ring, because the peer was awake.
    RingsSuppressed,
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
    /// Buffers the reader gave back as making no sense to it.
    Refused,
    /// Storage lent, in bytes, now.
    LentBytes,
    /// Storages lent so far.
    Lent,
    /// Storages retired so far.
    Retired,
    /// Violations by the peer: one at most, since it ends the path.
    Violations,
    /// Of these, a hand-over count that went anywhere but one up.
    CountViolations,
    /// Of these, a buffer handed over by the side that does not own it.
    OwnerViolations,
    /// Of these, a state that the side may not set.
    StateViolations,
    /// Of these, a content form that does not exist.
    FormViolations,
    /// Of these, a size that the form cannot hold.
    SizeViolations,
    /// Of these, an entry outside the storage lent.
    RangeViolations,
    /// Of these, a record that makes no sense.
    RecordViolations,
    /// Of these, storage that is not what was announced.
    StorageViolations,
    /// Of these, rings without end.
    DoorbellViolations,
    /// Messages of a conversation now: sent and not complete, or received and not replied to.
    Outstanding,
    /// Messages of a conversation now: complete and nobody took their completion, or arrived and nobody
    /// received them.
    Waiting,
}

/// How many there are.
pub const COUNTERS: usize = Counter::Waiting as usize + 1;

/// Words set aside for the counters of a half.
pub const COUNTER_WORDS: usize = 32;
const _: () = assert!(COUNTERS <= COUNTER_WORDS);

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
        (Counter::RingsSuppressed, "rings_suppressed"),
        (Counter::Heard, "heard"),
        (Counter::Polls, "polls"),
        (Counter::PollsEmpty, "polls_empty"),
        (Counter::Sleeps, "sleeps"),
        (Counter::WakesUnproductive, "wakes_unproductive"),
        (Counter::SpinningNs, "spinning_ns"),
        (Counter::Refused, "refused"),
        (Counter::LentBytes, "lent_bytes"),
        (Counter::Lent, "lent"),
        (Counter::Retired, "retired"),
        (Counter::Violations, "violations"),
        (Counter::CountViolations, "count_violations"),
        (Counter::OwnerViolations, "owner_violations"),
        (Counter::StateViolations, "state_violations"),
        (Counter::FormViolations, "form_violations"),
        (Counter::SizeViolations, "size_violations"),
        (Counter::RangeViolations, "range_violations"),
        (Counter::RecordViolations, "record_violations"),
        (Counter::StorageViolations, "storage_violations"),
        (Counter::DoorbellViolations, "doorbell_violations"),
        (Counter::Outstanding, "outstanding"),
        (Counter::Waiting, "waiting"),
    ];

    /// The counter of one kind of violation.
    pub fn of(violation: Violation) -> Counter {
        match violation {
            Violation::Count => Counter::CountViolations,
            Violation::Owner => Counter::OwnerViolations,
            Violation::State => Counter::StateViolations,
            Violation::Form => Counter::FormViolations,
            Violation::Size => Counter::SizeViolations,
            Violation::Range => Counter::RangeViolations,
            Violation::Record => Counter::RecordViolations,
            Violation::Storage => Counter::StorageViolations,
            Violation::Doorbell => Counter::DoorbellViolations,
        }
    }
}

/// The counters of one half, and the words they are shown in.
#[derive(Debug)]
pub struct Counters {
    values: [u64; COUNTERS],
    words: Words,
}

impl Counters {
    pub(super) fn new(words: Words) -> Counters {
        Counters { values: [0; COUNTERS], words }
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

    /// Shows how many there are of what comes and goes.
    #[inline]
    pub(crate) fn show(&mut self, counter: Counter, level: usize) {
        // Often it is as before, and those who watch have the line.
        if self.get(counter) != level as u64 {
            self.set(counter, level as u64);
        }
    }

    /// Counts a violation, in all and by its kind.
    pub(super) fn add_violation(&mut self, violation: Violation) {
        self.add(Counter::Violations, 1);
        self.add(Counter::of(violation), 1);
    }

    #[inline]
    pub(super) fn set(&mut self, counter: Counter, value: u64) {
        self.values[counter as usize] = value;
        // Relaxed: a watcher wants each number, not their order.
        self.words.store(counter as usize, value, Ordering::Relaxed);
    }
}

/// Messages and their bytes, which are counted together.
// Both are added to at once. Were they in two lines, what one message leaves could not be had by the next
// before it is stored, and a half would bring 65 or 108 M/s depending on where its owner keeps it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(16))]
pub(super) struct Tally {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Tally {
    /// Counts a message of so many bytes.
    #[inline(always)]
    pub(super) fn count(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}
