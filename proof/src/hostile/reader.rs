//! A reader that does what a script says.

use std::os::fd::AsFd;

use fabric::path::board::{HALT_WORD, LENT_TAKEN_WORD, QUIESCE_WORD, SLEEP_WORD};
use fabric::path::{Counter, SLOTS};
use fabric::queue::{LINE_WORDS, QUEUE_BUFFERS, Sequence, State};
use os::sync::Ordering;
use os::words::LentWords;
use rustix::net::send;

use super::doorbell::{QUIETLY, descriptor};
use super::script::{Script, TAME};
use crate::bare::Bare;

/// Rings of one deed.
const RINGS_MAX: usize = 6000;

const STATES: [State; 7] = [
    State::Empty,
    State::Empty,
    State::Empty,
    State::Pending,
    State::Error,
    State::Halted,
    // Not a reader's.
    State::Primed,
];

/// A reader without manners.
#[derive(Debug)]
pub(super) struct Vandal {
    bare: Bare,
    /// What the writer shows.
    counters: LentWords,
    /// Its lines of large messages.
    slot_lines: LentWords,
    /// The buffer that an honest reader would give back next.
    next: Sequence,
}

impl Vandal {
    pub(super) fn new(bare: Bare, counters: LentWords, slot_lines: LentWords) -> Vandal {
        Vandal { bare, counters, slot_lines, next: Sequence(0) }
    }

    /// Does one deed.
    pub(super) fn act(&mut self, script: &mut Script<'_>) {
        let primed = Sequence(self.counters.load(Counter::Buffers as usize, Ordering::Relaxed));
        let is_wild = script.below(TAME) == 0;
        match script.below(12) {
            4 | 7 | 11 if !is_wild => self.give_back_all(primed, script),
            0..4 => self.give_back_all(primed, script),
            4 => self.give_back_any(primed, script),
            5 | 6 => self.release(is_wild, script),
            7 => self.scribble(script),
            8 => {
                let word = script.pick(&[
                    SLEEP_WORD,
                    SLEEP_WORD,
                    QUIESCE_WORD,
                    QUIESCE_WORD,
                    LENT_TAKEN_WORD,
                    LENT_TAKEN_WORD,
                ]);
                let number = script.number();
                self.bare.reader.control.store(word, number, Ordering::SeqCst);
            }
            9 => self.ring(script),
            10 => {
                self.bare.arrivals.hear(os::doorbell::Listen::Now);
            }
            _ => self.end(script),
        }
    }

    /// Gives back what was handed over, in order, as honest readers do.
    fn give_back_all(&mut self, primed: Sequence, script: &mut Script<'_>) {
        let most = script.pick(&[1, 1, 5, QUEUE_BUFFERS as u64]);
        for _ in 0..most.min(primed.0.saturating_sub(self.next.0)) {
            self.bare.give_back(self.next, script.pick(&STATES[..4]));
            self.next = self.next.next();
        }
    }

    /// Gives back a buffer that was handed over, or not, in whatever state.
    fn give_back_any(&mut self, primed: Sequence, script: &mut Script<'_>) {
        let behind = script.below(QUEUE_BUFFERS) as u64;
        let sequence = Sequence(primed.0.saturating_sub(behind) + script.pick(&[0, 0, 0, 1]));
        self.bare.give_back(sequence, script.pick(&STATES));
    }

    /// Releases a large message, which was announced or not.
    fn release(&mut self, is_wild: bool, script: &mut Script<'_>) {
        let slot = script.below(SLOTS.min(6));
        let there = self.bare.reader.slots.load(slot, Ordering::Relaxed);
        let announced = self.slot_lines.load(slot * LINE_WORDS, Ordering::Relaxed) & 0xffff_ffff;
        let count = if is_wild { there.wrapping_add(script.pick(&[1, 2])) } else { announced };
        self.bare.reader.slots.store(slot, count, Ordering::Release);
    }

    /// Any word that a reader may write.
    fn scribble(&mut self, script: &mut Script<'_>) {
        let Bare { reader, board, .. } = &self.bare;
        let words = match script.below(4) {
            0 => &reader.words,
            1 => &reader.slots,
            2 => &reader.control,
            _ => board,
        };
        let at = script.below(words.count());
        let word = script.word(words.load(at, Ordering::Relaxed));
        words.store(at, word, Ordering::Release);
    }

    fn ring(&mut self, script: &mut Script<'_>) {
        match script.below(4) {
            0 => drop(send(&self.bare.returns, &[0; RINGS_MAX], QUIETLY)),
            1 => drop(self.bare.returns.pass(descriptor(script).as_fd())),
            _ => drop(self.bare.returns.ring()),
        }
    }

    /// Ends, in one of the ways there are. All of them leave it free to go on.
    fn end(&mut self, script: &mut Script<'_>) {
        match script.below(16) {
            0 => self.bare.reader.control.store(HALT_WORD, script.number(), Ordering::Release),
            1 => self.bare.returns.hang_up(),
            _ => {}
        }
    }
}
