//! What the sender and the receiver of a queue have in common: identity, sleep and wake-up, and the end.

use std::sync::atomic::{AtomicU64, Ordering as StdOrdering};

use os::doorbell::Listen;
use os::fork::ForkGuard;
use os::sync::Ordering;
use os::words::{Block, LentBlock, LentWords, Part, Words};

use super::board::{self, CONTROL_WORDS};
use super::counters::{Counter, Counters};
use super::doorbells::{Doorbells, Heard};
use super::severed::{Reason, Severed};
use crate::queue::sleep::{PeerSleepWord, SleepWord};

/// The identity of a half among all of this process: what a half has given out is taken back by it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HalfId(u64);

/// Something was given back to a half that has not given it out. Here it is again; nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("this was given out by another half, which alone takes it back")]
pub struct NotOurs<T>(pub T);

/// The common part of a sender and a receiver.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) id: HalfId,
    guard: ForkGuard,
    pub(super) doorbells: Doorbells,
    peer_sleep_word: PeerSleepWord,
    sleep_word: SleepWord,
    /// (w) our control line.
    pub(super) control: Block<CONTROL_WORDS>,
    /// (r) the other side's control line.
    pub(super) peer: LentBlock<CONTROL_WORDS>,
    pub(super) counters: Counters,
    /// Why the path has ended, as far as this half is concerned.
    pub(super) ended: Option<Severed>,
}

impl Half {
    pub(super) fn new(
        control: Words,
        counters: Words,
        peer: LentWords,
        doorbells: Doorbells,
    ) -> Half {
        static HALVES: AtomicU64 = AtomicU64::new(0);
        Half {
            id: HalfId(HALVES.fetch_add(1, StdOrdering::Relaxed)),
            guard: ForkGuard::here(),
            doorbells,
            peer_sleep_word: PeerSleepWord::new(peer.part(board::SLEEP_WORD, 1)),
            sleep_word: SleepWord::new(control.part(board::SLEEP_WORD, 1)),
            control: Block::new(control),
            peer: LentBlock::new(peer),
            counters: Counters::new(counters),
            ended: None,
        }
    }

    /// Something that was given back, if this half has given it out.
    pub(super) fn own<T>(&self, half: HalfId, given: T) -> Result<T, NotOurs<T>> {
        if half == self.id { Ok(given) } else { Err(NotOurs(given)) }
    }

    /// Whether the caller is a forked child, which has none of this.
    #[inline(always)]
    pub(super) fn is_forked(&self) -> bool {
        self.guard.in_child()
    }

    /// Rings if the peer sleeps: call it after the store that the peer is to wake up for.
    #[inline]
    pub(super) fn ring_if_asleep(&mut self) {
        if self.peer_sleep_word.must_ring() {
            self.ring();
        }
    }

    /// Rings, whether the peer sleeps or not.
    #[cold]
    pub(super) fn ring(&mut self) {
        self.counters.add(Counter::Rings, 1);
        self.doorbells.ring();
    }

    /// Shows those who watch a level of the conversation over the path.
    #[inline]
    pub(super) fn show(&mut self, gauge: usize, level: u64) {
        if !self.is_forked() {
            self.counters.show(gauge, level);
        }
    }

    /// We are about to announce a sleep. Returns true if the doorbell must be heard first: a ring that is heard behind the announcement may be that of this
    /// sleep, which is rung for once.
    pub(super) fn must_hear_first(&self) -> bool {
        !self.sleep_word.is_announced() && self.doorbells.expect_rings()
    }

    /// Announces that we are about to sleep.
    pub(super) fn announce_sleep(&mut self) {
        self.doorbells.set_asleep(true);
        self.sleep_word.announce();
    }

    /// Announces that we are awake again.
    pub(super) fn wake(&mut self) {
        if !self.is_forked() {
            self.sleep_word.wake();
            self.doorbells.set_asleep(false);
        }
    }

    /// Listens to the doorbell.
    pub(super) fn hear(&mut self, listen: Listen) -> Heard {
        let heard = self.doorbells.hear(listen);
        self.counters.add(Counter::Heard, heard.rings as u64);
        heard
    }

    /// The end of the peer's half, if its control line shows one.
    #[inline(always)]
    pub(super) fn peer_halt(&self) -> Option<Severed> {
        // Acquire: pairs with the Release in `halt`. The data is seen with the word.
        match self.peer.load(board::HALT_WORD, Ordering::Acquire) {
            0 => None,
            code => self.read_halt(code),
        }
    }

    #[cold]
    fn read_halt(&self, code: u64) -> Option<Severed> {
        let data = |word| self.peer.load(board::HALT_DATA_WORD + word, Ordering::Relaxed);
        Severed::parse([code, data(0), data(1)])
    }

    /// Ends this half for this reason, and shows that to the peer.
    pub(super) fn halt(&mut self, severed: Severed) {
        if let Reason::Violation(violation) = severed.reason {
            self.counters.set(Counter::Violation, violation as u64);
        }
        let words = severed.words();
        for (at, word) in words[1..].iter().enumerate() {
            self.control.store(board::HALT_DATA_WORD + at, *word, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `peer_halt`.
        self.control.store(board::HALT_WORD, words[0], Ordering::Release);
        self.doorbells.hang_up();
        self.ended = Some(severed);
    }
}
