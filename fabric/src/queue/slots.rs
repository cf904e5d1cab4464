//! Slots: large messages that were announced and wait in the writer's storage.
//!
//! A large message does not keep a buffer while it waits, or it would keep everything behind it waiting
//! too. It has a *slot* instead, which works like a buffer: the writer counts up to announce, the reader
//! counts up to release, in any order.
//!
//! ```text
//! the writer's word of a slot   how many bytes are in place so far: the reader may follow the writer
//! the reader's word of a slot   how many messages of this slot were released
//! ```
//!
//! The writer's count travels in the buffer that announces the message. The slot that was released last is
//! used next, and a slot that was never used is never touched: a path that never had more than a few large
//! messages at once takes no memory for more.

use os::sync::Ordering;
use os::words::{LentWords, Words};

use super::word::Violation;

/// Large messages of one queue that may be announced and not yet released.
pub const SLOTS: usize = if cfg!(loom) { 2 } else { 1024 };

/// The writer's side of the slots.
#[derive(Debug)]
pub struct WriterSlots {
    /// (w) how much is in place.
    filled: Words,
    /// (r) how many were released of each, and of all.
    releases: LentWords,
    all_releases: LentWords,
    /// As many as were ever out at once.
    slots: Vec<Slot>,
    /// Those that stand for a message.
    out: Vec<u16>,
    /// Those that do not, the one released last at the end.
    free: Vec<u16>,
    bytes: u64,
    seen: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    count: u32,
    segment: u16,
    bytes: u64,
}

impl WriterSlots {
    /// Over words of our own, one for each slot, and the reader's: one for each slot, and one that counts
    /// all releases. All are fresh.
    pub fn new(filled: Words, releases: LentWords, all_releases: LentWords) -> WriterSlots {
        let (slots, out, free) = (Vec::new(), Vec::new(), Vec::new());
        WriterSlots { filled, releases, all_releases, slots, out, free, bytes: 0, seen: 0 }
    }

    /// Bytes of all messages that wait.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many messages wait.
    pub fn out(&self) -> usize {
        self.out.len()
    }

    /// Makes a slot stand for a message of `bytes` in `segment`, of which `filled` are in place. Returns
    /// slot and count for the announcement, which publishes them; `None` if all slots are out.
    pub fn announce(&mut self, segment: u16, bytes: u64, filled: u64) -> Option<(u16, u32)> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.slots.len() == SLOTS => return None,
            None => {
                self.slots.push(Slot { count: 0, segment, bytes });
                (self.slots.len() - 1) as u16
            }
        };
        let slot = &mut self.slots[usize::from(number)];
        *slot = Slot { count: slot.count.wrapping_add(1), segment, bytes };
        self.out.push(number);
        self.bytes += bytes;
        // Relaxed: published by the buffer that announces it.
        self.filled.store(usize::from(number), filled, Ordering::Relaxed);
        Some((number, slot.count))
    }

    /// Shows the reader that the first `filled` bytes are in place.
    pub fn fill(&mut self, slot: u16, filled: u64) {
        // Release: pairs with the Acquire in `ReaderSlots::filled`. The bytes are seen before the count.
        self.filled.store(usize::from(slot), filled, Ordering::Release);
    }

    /// A number that grows with each release, as far as we have polled.
    pub fn progress(&self) -> u64 {
        self.seen
    }

    /// Takes back the slots that the reader has released, and calls `released` with their segments.
    ///
    /// # Errors
    /// [`Violation::Count`] if the reader has released what it does not have.
    pub fn collect(&mut self, mut released: impl FnMut(u16)) -> Result<(), Violation> {
        // Acquire: pairs with the Release in `ReaderSlots::release`.
        let all = self.all_releases.load(0, Ordering::Acquire);
        if all == self.seen {
            return Ok(());
        }
        self.seen = all;
        let WriterSlots { releases, slots, out, free, bytes, .. } = self;
        let mut at = 0;
        while let Some(number) = out.get(at).copied() {
            let slot = slots[usize::from(number)];
            // Acquire: pairs with the Release in `ReaderSlots::release`. The reader's reading is over.
            let count = releases.load(usize::from(number), Ordering::Acquire);
            if count == u64::from(slot.count) {
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
pub struct ReaderSlots {
    /// (w) how much is in place.
    filled: LentWords,
    /// (r) how many we have released of each, and of all.
    releases: Words,
    all_releases: Words,
    all: u64,
    /// Whether we took the announcement of a slot and have not released it; as many as were used.
    held: Vec<bool>,
}

impl ReaderSlots {
    /// Over the writer's words, and words of our own as [`WriterSlots::new`] has them.
    pub fn new(filled: LentWords, releases: Words, all_releases: Words) -> ReaderSlots {
        ReaderSlots { filled, releases, all_releases, all: 0, held: Vec::new() }
    }

    /// Takes in an announcement: it must be of a slot that we do not hold, with the count that is next.
    ///
    /// # Errors
    /// [`Violation`] if it is not.
    pub fn take(&mut self, slot: u16, count: u32) -> Result<(), Violation> {
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

    /// How many of a message's `length` bytes are in place.
    ///
    /// # Errors
    /// [`Violation::Size`] if the writer's word has more.
    pub fn filled(&self, slot: u16, length: u64) -> Result<u64, Violation> {
        // Acquire: pairs with the Release in `WriterSlots::fill`.
        let filled = self.filled.load(usize::from(slot), Ordering::Acquire);
        if filled > length { Err(Violation::Size) } else { Ok(filled) }
    }

    /// Gives a slot back: we do not read its message any more.
    pub fn release(&mut self, slot: u16, count: u32) {
        let index = usize::from(slot);
        self.held[index] = false;
        self.all += 1;
        // Release, both: pairs with the Acquire in `WriterSlots::collect`. A writer that sees the number sees
        // the word.
        self.releases.store(index, count.into(), Ordering::Release);
        self.all_releases.store(0, self.all, Ordering::Release);
    }
}
