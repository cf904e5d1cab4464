//! Slots: large messages that were announced and wait in the writer's storage.
//!
//! A large message does not keep a buffer while it waits, or it would keep everything behind it waiting
//! too. It has a *slot* instead: a line on the writer's side and a word on the reader's, which work
//! like a buffer's: the writer counts up to announce, the reader to release, in any order.
//!
//! ```text
//! slot line   word 0  state and count, as a buffer's: primed, or halted when it was withdrawn
//!             word 1  how many bytes are in place so far: the reader may follow the writer
//! ```

use os::sync::Ordering;
use os::words::{LentWords, Words};

use super::board::SLOTS;
use crate::queue::{Form, LINE_WORDS, ReaderWord, State, Violation, WriterWord};

const FILLED_WORD: usize = 1;

/// The writer's side of the slots.
#[derive(Debug)]
pub(super) struct WriterSlots {
    lines: Words,
    releases: LentWords,
    counts: [u32; SLOTS],
    /// One bit for each slot that stands for a message.
    out: u128,
    bytes: u64,
    messages: [Waiting; SLOTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    segment: u16,
    bytes: u64,
}

impl WriterSlots {
    pub(super) fn new(lines: Words, releases: LentWords) -> Result<WriterSlots, Violation> {
        let supplied = ReaderWord::SUPPLIED.bits();
        if (0..SLOTS).any(|slot| releases.load(slot, Ordering::Acquire) != supplied) {
            return Err(Violation::State);
        }
        Ok(WriterSlots {
            lines,
            releases,
            counts: [0; SLOTS],
            out: 0,
            bytes: 0,
            messages: [Waiting::default(); SLOTS],
        })
    }

    /// Bytes of all messages that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many messages wait.
    pub(super) fn out(&self) -> usize {
        self.out.count_ones() as usize
    }

    /// Makes a slot stand for a message of `bytes` in `segment`, of which `filled` are in place. Returns
    /// slot and count for the announcement; `None` if all slots are out.
    pub(super) fn announce(&mut self, segment: u16, bytes: u64, filled: u64) -> Option<(u16, u32)> {
        let slot = self.out.trailing_ones() as usize;
        if slot >= SLOTS {
            return None;
        }
        self.counts[slot] = self.counts[slot].wrapping_add(1);
        // Relaxed: published by the count.
        self.lines.store(slot * LINE_WORDS + FILLED_WORD, filled, Ordering::Relaxed);
        self.set_state(slot, State::Primed);
        self.out |= 1 << slot;
        self.bytes += bytes;
        self.messages[slot] = Waiting { segment, bytes };
        Some((slot as u16, self.counts[slot]))
    }

    /// Tells the reader that the first `filled` bytes are in place.
    pub(super) fn fill(&mut self, slot: u16, filled: u64) {
        let word = usize::from(slot) * LINE_WORDS + FILLED_WORD;
        // Release: pairs with the Acquire in `ReaderSlots::filled`. The bytes are seen before the count.
        self.lines.store(word, filled, Ordering::Release);
    }

    /// Tells the reader that the message is not to be had any more. The slot stays out until the reader
    /// has released it: it may be reading.
    pub(super) fn withdraw(&mut self, slot: u16) {
        self.set_state(usize::from(slot), State::Halted);
    }

    /// Whether a slot stands for a message, with this count.
    pub(super) fn is_out(&self, slot: u16, count: u32) -> bool {
        let slot = usize::from(slot);
        slot < SLOTS && self.out & 1 << slot != 0 && self.counts[slot] == count
    }

    fn set_state(&mut self, slot: usize, state: State) {
        let count = self.counts[slot];
        let word = WriterWord { count, state, form: Form::InPlace, label: 0, size: 0, note: 0 };
        // Release: pairs with the Acquire in `ReaderSlots::is_there`.
        self.lines.store(slot * LINE_WORDS, word.bits(), Ordering::Release);
    }

    /// Takes back the slots that the reader has released, and tells whose segments they were.
    pub(super) fn collect(&mut self, mut released: impl FnMut(u16)) -> Result<(), Violation> {
        let mut out = self.out;
        while out != 0 {
            let slot = out.trailing_zeros() as usize;
            out &= out - 1;
            // Acquire: pairs with the Release in `ReaderSlots::release`. The reader's reading is over.
            let bits = self.releases.load(slot, Ordering::Acquire);
            let count = ReaderWord::count_of(bits);
            if count == self.counts[slot] {
                ReaderWord::parse(bits)?;
                self.out &= !(1 << slot);
                self.bytes -= self.messages[slot].bytes;
                released(self.messages[slot].segment);
            } else if count != self.counts[slot].wrapping_sub(1) {
                return Err(Violation::Count);
            }
        }
        Ok(())
    }
}

/// The reader's side of the slots.
#[derive(Debug)]
pub(super) struct ReaderSlots {
    lines: LentWords,
    releases: Words,
    /// One bit for each slot whose announcement we took and which we have not released.
    held: u128,
}

impl ReaderSlots {
    pub(super) fn new(lines: LentWords, releases: Words) -> ReaderSlots {
        ReaderSlots { lines, releases, held: 0 }
    }

    /// Takes in an announcement: it must be of a slot that we do not hold, with the count that is next.
    pub(super) fn take(&mut self, slot: u16, count: u32) -> Result<(), Violation> {
        let index = usize::from(slot);
        if index >= SLOTS {
            return Err(Violation::Record);
        }
        if self.held & 1 << index != 0 {
            return Err(Violation::Owner);
        }
        let released = ReaderWord::count_of(self.releases.load(index, Ordering::Relaxed));
        if count != released.wrapping_add(1) {
            return Err(Violation::Count);
        }
        self.held |= 1 << index;
        Ok(())
    }

    /// Whether the message of a slot that we hold is still to be had.
    pub(super) fn is_there(&self, slot: u16, count: u32) -> Result<bool, Violation> {
        // Acquire: pairs with the Release in `WriterSlots::set_state`.
        let word = self.lines.load(usize::from(slot) * LINE_WORDS, Ordering::Acquire);
        let word = WriterWord::parse(word)?;
        if word.count != count { Err(Violation::Count) } else { Ok(word.state == State::Primed) }
    }

    /// How many of a message's `length` bytes are in place.
    pub(super) fn filled(&self, slot: u16, length: u64) -> Result<u64, Violation> {
        let word = usize::from(slot) * LINE_WORDS + FILLED_WORD;
        // Acquire: pairs with the Release in `WriterSlots::fill`.
        let filled = self.lines.load(word, Ordering::Acquire);
        if filled > length { Err(Violation::Size) } else { Ok(filled) }
    }

    /// Gives a slot back: we do not read its message any more.
    pub(super) fn release(&mut self, slot: u16, count: u32) {
        let index = usize::from(slot);
        self.held &= !(1 << index);
        let word = ReaderWord { count, state: State::Empty, reason: 0 };
        // Release: pairs with the Acquire in `WriterSlots::collect`.
        self.releases.store(index, word.bits(), Ordering::Release);
    }
}

const _: () = assert!(SLOTS <= u128::BITS as usize, "one bit for each slot");
