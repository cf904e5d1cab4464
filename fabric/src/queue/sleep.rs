//! Sleeping and waking: Dekker's problem, solved once for both directions.
//!
//! A party that wants to sleep says so in its *sleep word*, and then looks for work once more. A party
//! that has made work looks at the other's sleep word afterwards. Each puts a sequentially consistent
//! fence between its own store and its look at the other's word, so at least one of them sees the
//! other: either the sleeper finds the work, or the other finds the sleeper and rings.
//!
//! The word counts: odd asleep, even awake. Each sleep has a number of its own, so it is rung once.

use os::sync::{Ordering, fence};
use os::words::{Block, LentBlock, LentWords, Words};

/// Our own sleep word.
#[derive(Debug)]
pub struct Sleeper {
    word: Block<1>,
    value: u64,
}

impl Sleeper {
    /// Takes charge of `word`: nobody else stores there. We are awake.
    pub fn new(word: Words) -> Sleeper {
        let word = Block::new(word);
        word.store(0, 0, Ordering::Relaxed);
        Sleeper { word, value: 0 }
    }

    /// Says that we are about to sleep. Look for work once more after this, and sleep only if there is
    /// none.
    pub fn announce(&mut self) {
        if self.value & 1 == 0 {
            self.value += 1;
            // Relaxed: the fence below orders it.
            self.word.store(0, self.value, Ordering::Relaxed);
        }
        // Pairs with the fence in `Rouser::must_ring`: our look at the queue comes after our word is
        // visible, or their look at our word comes after their buffer is.
        fence(Ordering::SeqCst);
    }

    /// Says that we are awake: no ring is needed until the next announcement.
    pub fn wake(&mut self) {
        if self.value & 1 == 1 {
            self.value += 1;
            // Relaxed: seen late, it costs a needless ring and nothing else.
            self.word.store(0, self.value, Ordering::Relaxed);
        }
    }

    /// Whether our word says that we sleep.
    pub fn is_announced(&self) -> bool {
        self.value & 1 == 1
    }
}

/// Our look at the peer's sleep word.
#[derive(Debug)]
pub struct Rouser {
    word: LentBlock<1>,
    /// The sleep that has been rung for already.
    rung: u64,
}

impl Rouser {
    /// Looks at the peer's sleep word.
    pub fn new(word: LentWords) -> Rouser {
        Rouser { word: LentBlock::new(word), rung: 0 }
    }

    /// Whether the peer sleeps and nobody has rung for this sleep. Call it after the store that it is to
    /// wake up for. True is said once for each sleep: the caller rings then.
    #[inline]
    pub fn must_ring(&mut self) -> bool {
        // Pairs with the fence in `Sleeper::announce`.
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
        let (mut sleeper, mut rouser) = (Sleeper::new(own), Rouser::new(lent));
        assert!(!rouser.must_ring());
        sleeper.announce();
        assert!(rouser.must_ring());
        assert!(!rouser.must_ring());
        sleeper.announce();
        assert!(!rouser.must_ring(), "still the same sleep");
        sleeper.wake();
        assert!(!rouser.must_ring());
        sleeper.announce();
        assert!(rouser.must_ring());
    }
}
