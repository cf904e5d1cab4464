//! Sleeping and waking: Dekker's problem, solved once for both directions.
//!
//! A party that wants to sleep announces that in its *sleep word*, and then polls for work once more. A
//! party that has made work reads the peer's sleep word afterwards. Each puts a sequentially consistent
//! fence between its own store and its load of the peer's word, so at least one of them sees the
//! other: either the sleeping party finds the work, or its peer finds the sleep word odd and rings.
//!
//! The word counts: odd asleep, even awake. Each sleep has a number of its own, so it is rung once.

use os::sync::{Ordering, fence};
use os::words::{Block, LentBlock, LentWords, Words};

/// Our own sleep word.
#[derive(Debug)]
pub struct SleepWord {
    word: Block<1>,
    value: u64,
}

impl SleepWord {
    /// Takes charge of `word`: nobody else stores there. We are awake.
    pub fn new(word: Words) -> SleepWord {
        let word = Block::new(word);
        word.store(0, 0, Ordering::Relaxed);
        SleepWord { word, value: 0 }
    }

    /// Announces that we are about to sleep. Poll for work once more after this, and sleep only if there is
    /// none.
    pub fn announce(&mut self) {
        if self.value & 1 == 0 {
            self.value += 1;
            // Relaxed: the fence below orders it.
            self.word.store(0, self.value, Ordering::Relaxed);
        }
        // Pairs with the fence in `PeerSleepWord::must_ring`: we poll the queue after our word is visible, or
        // the peer loads our word after its buffer is visible.
        fence(Ordering::SeqCst);
    }

    /// Announces that we are awake: no ring is needed until the next sleep is announced.
    pub fn wake(&mut self) {
        if self.value & 1 == 1 {
            self.value += 1;
            // Relaxed: seen late, it costs a needless ring and nothing else.
            self.word.store(0, self.value, Ordering::Relaxed);
        }
    }

    /// Whether a sleep is announced.
    pub fn is_announced(&self) -> bool {
        self.value & 1 == 1
    }
}

/// The peer's sleep word, which tells us whether to ring.
#[derive(Debug)]
pub struct PeerSleepWord {
    word: LentBlock<1>,
    /// The sleep that has been rung for already.
    rung: u64,
}

impl PeerSleepWord {
    /// Over the peer's `word`. No sleep has been rung for.
    pub fn new(word: LentWords) -> PeerSleepWord {
        PeerSleepWord { word: LentBlock::new(word), rung: 0 }
    }

    /// Whether the peer sleeps and nobody has rung for this sleep. Call it after the store that the peer is
    /// to wake up for. True is returned once for each sleep: the caller rings then.
    #[inline]
    pub fn must_ring(&mut self) -> bool {
        // Pairs with the fence in `SleepWord::announce`.
        fence(Ordering::SeqCst);
        let value = self.word.load(0, Ordering::Relaxed);
        if value & 1 == 0 || value == self.rung {
            return false;
        }
        self.rung = value;
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_sleep_is_rung_once() {
        let (own, lent) = Words::pair(1).unwrap();
        let (mut own_word, mut peer_word) = (SleepWord::new(own), PeerSleepWord::new(lent));
        assert!(!peer_word.must_ring());
        own_word.announce();
        assert!(peer_word.must_ring());
        assert!(!peer_word.must_ring());
        own_word.announce();
        assert!(!peer_word.must_ring(), "still the same sleep");
        own_word.wake();
        assert!(!peer_word.must_ring());
        own_word.announce();
        assert!(peer_word.must_ring());
    }
}
