//! Slots: large messages that were announced and wait in the writer's storage.
//!
//! A large message does not keep a buffer while it waits, or it would keep everything behind it waiting
//! too. It has a *slot* instead: a line on the writer's side and a word on the reader's, which work
//! like a buffer's: the writer counts up to announce, the reader to release, in any order.
//!
//! ```text
//! slot line   word 0  state and count, as a buffer's: primed, or halted when it was withdrawn
//!             word 1  how many bytes are in place so far: the reader may follow the writer
//! slot word   how many messages of this slot were released
//! ```
//!
//! The slot that was released last is used next, and what was never used is never touched: a path that
//! never had more than a few large messages at once has no memory for more.

use os::sync::Ordering;
use os::words::{LentWords, Words};

use super::board::SLOTS;
use crate::queue::{Form, LINE_WORDS, State, Violation, WriterWord};

const FILLED_WORD: usize = 1;

/// The writer's side of the slots.
#[derive(Debug)]
pub(super) struct WriterSlots {
    lines: Words,
    releases: LentWords,
    /// As many as were ever out at once.
    slots: Vec<Slot>,
    /// Those that stand for a message.
    out: Vec<u16>,
    /// Those that do not, the one released last at the end.
    free: Vec<u16>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    count: u32,
    is_out: bool,
    segment: u16,
    bytes: u64,
}

impl WriterSlots {
    pub(super) fn new(lines: Words, releases: LentWords) -> WriterSlots {
        let (slots, out, free) = (Vec::new(), Vec::new(), Vec::new());
        WriterSlots { lines, releases, slots, out, free, bytes: 0 }
    }

    /// Bytes of all messages that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many messages wait.
    pub(super) fn out(&self) -> usize {
        self.out.len()
    }

    /// Makes a slot stand for a message of `bytes` in `segment`, of which `filled` are in place. Returns
    /// slot and count for the announcement; `None` if all slots are out.
    pub(super) fn announce(&mut self, segment: u16, bytes: u64, filled: u64) -> Option<(u16, u32)> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() == SLOTS => return None,
            None => {
                self.slots.push(Slot { count: 0, is_out: false, segment, bytes });
                (self.slots.len() - 1) as u16
            }
        };
        let count = self.slots[usize::from(slot)].count.wrapping_add(1);
        self.slots[usize::from(slot)] = Slot { count, is_out: true, segment, bytes };
        self.out.push(slot);
        self.bytes += bytes;
        // Relaxed: published by the count.
        let line = usize::from(slot) * LINE_WORDS;
        self.lines.store(line + FILLED_WORD, filled, Ordering::Relaxed);
        self.set_state(slot, State::Primed);
        Some((slot, count))
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
        self.set_state(slot, State::Halted);
    }

    /// Whether a slot stands for a message, with this count.
    pub(super) fn is_out(&self, slot: u16, count: u32) -> bool {
        let slot = self.slots.get(usize::from(slot));
        slot.is_some_and(|slot| slot.is_out && slot.count == count)
    }

    fn set_state(&mut self, slot: u16, state: State) {
        let slot = usize::from(slot);
        let count = self.slots[slot].count;
        let word = WriterWord { count, state, form: Form::InPlace, label: 0, size: 0, note: 0 };
        // Release: pairs with the Acquire in `ReaderSlots::is_there`.
        self.lines.store(slot * LINE_WORDS, word.bits(), Ordering::Release);
    }

    /// Takes back the slots that the reader has released, and tells whose segments they were.
    pub(super) fn collect(&mut self, mut released: impl FnMut(u16)) -> Result<(), Violation> {
        let WriterSlots { releases, slots, out, free, bytes, .. } = self;
        let mut at = 0;
        while let Some(number) = out.get(at).copied() {
            let slot = &mut slots[usize::from(number)];
            // Acquire: pairs with the Release in `ReaderSlots::release`. The reader's reading is over.
            let count = releases.load(usize::from(number), Ordering::Acquire);
            if count == u64::from(slot.count) {
                slot.is_out = false;
                *bytes -= slot.bytes;
                out.swap_remove(at);
                free.push(number);
                released(slot.segment);
            } else if count != u64::from(slot.count.wrapping_sub(1)) {
                return Err(Violation::Count);
            } else {
                at += 1;
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
    /// Whether we took the announcement of a slot and have not released it; as many as were used.
    held: Vec<bool>,
}

impl ReaderSlots {
    pub(super) fn new(lines: LentWords, releases: Words) -> ReaderSlots {
        ReaderSlots { lines, releases, held: Vec::new() }
    }

    /// Takes in an announcement: it must be of a slot that we do not hold, with the count that is next.
    pub(super) fn take(&mut self, slot: u16, count: u32) -> Result<(), Violation> {
        let index = usize::from(slot);
        if index >= SLOTS {
            return Err(Violation::Record);
        }
        if index >= self.held.len() {
            self.held.resize(index + 1, false);
        }
        if self.held[index] {
            return Err(Violation::Owner);
        }
        let released = self.releases.load(index, Ordering::Relaxed) as u32;
        if count != released.wrapping_add(1) {
            return Err(Violation::Count);
        }
        self.held[index] = true;
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
        self.held[index] = false;
        // Release: pairs with the Acquire in `WriterSlots::collect`.
        self.releases.store(index, count.into(), Ordering::Release);
    }
}
