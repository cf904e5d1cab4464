//! A guest's black box: its progress, for the supervisor to read after its death.
//!
//! ```text
//! word 0 to 7    zero
//! slot 0         key | attempted | completed | received | bytes received | purged | 0 | 0
//! slot 1 ...
//! ```
//!
//! It is storage that the guest lends to the supervisor. A slot stands for one queue each way of one path;
//! its key is zero while it is free. Numbers of messages count from the start of the path.

use std::io;
use std::os::fd::OwnedFd;

use os::foreign::Foreign;
use os::storage::{Borrowed, STORAGE_GRAIN_BYTES, Storage, StorageOptions};
use os::sync::Ordering;
use os::words::{LentWords, Part, WORD_BYTES, Words};

use super::wire::LaneCounts;

const SLOT_WORDS: usize = 8;
const KEY: usize = 0;
const ATTEMPTED: usize = 1;
const COMPLETED: usize = 2;
const RECEIVED: usize = 3;
const RECEIVED_BYTES: usize = 4;
const PURGED: usize = 5;

/// Slots of a box: what fits into a page of memory.
const SLOTS: usize = STORAGE_GRAIN_BYTES / (SLOT_WORDS * WORD_BYTES) - 1;

/// The box, as its guest has it.
#[derive(Debug)]
pub struct BlackBox {
    words: Words,
    used: [bool; SLOTS],
}

/// Where a guest notes how far one queue each way is.
#[derive(Clone, Debug)]
pub struct Slot {
    words: Words,
    index: usize,
}

impl BlackBox {
    /// An empty box, and the descriptor to lend it with.
    ///
    /// # Errors
    /// No memory or no descriptors left.
    pub fn create() -> io::Result<(BlackBox, OwnedFd)> {
        let options = StorageOptions::default();
        let (storage, descriptor) = Storage::create("black box", STORAGE_GRAIN_BYTES, options)?;
        Ok((BlackBox { words: Words::own(storage), used: [false; SLOTS] }, descriptor))
    }

    /// A slot for `key`, with all counts at zero.
    ///
    /// # Panics
    /// If none is free: a guest has far fewer paths.
    pub fn open(&mut self, key: u64) -> Slot {
        let index = self.used.iter().position(|used| !used).expect("slots for all paths");
        self.used[index] = true;
        let words = self.words.part((index + 1) * SLOT_WORDS, SLOT_WORDS);
        for word in ATTEMPTED..SLOT_WORDS {
            words.store(word, 0, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `LentBox::read`.
        words.store(KEY, key, Ordering::Release);
        Slot { words, index }
    }

    /// The path has ended: its slot can be used for another.
    pub fn close(&mut self, slot: &Slot) {
        slot.words.store(KEY, 0, Ordering::Release);
        self.used[slot.index] = false;
    }
}

impl Slot {
    // Release, each of them: what was noted before something was done is seen by whoever sees that it
    // was done. The guest can be killed between any two of its instructions.

    /// Notes, before it is done, that so many messages may have been sent.
    pub fn attempted(&self, messages: u64) {
        self.words.store(ATTEMPTED, messages, Ordering::Release);
    }

    /// Notes that so many messages were handed over.
    pub fn completed(&self, messages: u64) {
        self.words.store(COMPLETED, messages, Ordering::Release);
    }

    /// Notes, before they are acknowledged, that so many messages were received and verified.
    pub fn received(&self, messages: u64, bytes: u64) {
        self.words.store(RECEIVED_BYTES, bytes, Ordering::Release);
        self.words.store(RECEIVED, messages, Ordering::Release);
    }

    /// Notes, before it is done, that so many messages may have been taken back.
    pub fn purged(&self, messages: u64) {
        self.words.store(PURGED, messages, Ordering::Release);
    }

    /// How far it is. What was acknowledged is not noted here.
    pub fn counts(&self) -> LaneCounts {
        counts(|word| self.words.load(word, Ordering::Acquire))
    }
}

/// The box, as the supervisor has it.
#[derive(Debug)]
pub struct LentBox(LentWords);

impl LentBox {
    /// Borrows a guest's box.
    ///
    /// # Errors
    /// If it is none.
    pub fn borrow(descriptor: Foreign) -> io::Result<LentBox> {
        let exact = STORAGE_GRAIN_BYTES..=STORAGE_GRAIN_BYTES;
        let borrowed = Borrowed::borrow(descriptor, exact).map_err(io::Error::other)?;
        Ok(LentBox(LentWords::borrow(borrowed)))
    }

    /// How far the queue with `key` is; none if the guest has never had it, or not any more.
    pub fn read(&self, key: u64) -> Option<LaneCounts> {
        (1..=SLOTS).map(|index| self.0.part(index * SLOT_WORDS, SLOT_WORDS)).find_map(|words| {
            let is_it = words.load(KEY, Ordering::Acquire) == key;
            is_it.then(|| counts(|word| words.load(word, Ordering::Acquire)))
        })
    }
}

fn counts(word: impl Fn(usize) -> u64) -> LaneCounts {
    LaneCounts {
        attempted: word(ATTEMPTED),
        completed: word(COMPLETED),
        acknowledged: 0,
        received: word(RECEIVED),
        received_bytes: word(RECEIVED_BYTES),
        purged: word(PURGED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_notes_is_read_by_key_until_the_slot_is_closed() {
        let (mut own, descriptor) = BlackBox::create().unwrap();
        let lent = LentBox::borrow(descriptor.into()).unwrap();
        let (first, second) = (own.open(7), own.open(8));
        first.attempted(3);
        first.completed(2);
        second.received(5, 500);
        let expected = LaneCounts { attempted: 3, completed: 2, ..LaneCounts::default() };
        assert_eq!(lent.read(7), Some(expected));
        assert_eq!(lent.read(8).unwrap().received_bytes, 500);
        own.close(&first);
        assert_eq!((lent.read(7), lent.read(9)), (None, None));
        own.open(9);
        assert_eq!(lent.read(9), Some(LaneCounts::default()));
    }
}
