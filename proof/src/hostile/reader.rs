//! A reader driven by a script.

use std::os::fd::AsFd;

use fabric::path::board::{HALT_WORD, LENT_TAKEN_WORD, QUIESCE_WORD, SLEEP_WORD};
use fabric::path::{Counter, SLOTS};
use fabric::queue::{QUEUE_BUFFERS, Sequence, WriterWord};
use os::sync::Ordering;
use os::words::LentWords;
use rustix::net::send;

use super::doorbell::{QUIETLY, TAGS, descriptor};
use super::script::{Script, TAME};
use crate::bare::{Bare, label};

/// Rings of one deed.
const RINGS_MAX: usize = 6000;

/// Slots of large messages that it releases when it does not care whether something was announced.
const SLOTS_USED: usize = 6;
const _: () = assert!(SLOTS_USED <= SLOTS);

/// Hand-overs that it keeps at a time, as long as it behaves.
const KEPT_MAX: usize = 8;

/// A reader without manners.
#[derive(Debug)]
pub(super) struct Vandal {
    bare: Bare,
    /// What the writer shows, and its lines.
    counters: LentWords,
    lines: LentWords,
    /// The hand-over that an honest reader would return next.
    next: Sequence,
    /// What it keeps of those before.
    kept: Vec<Sequence>,
    /// Large messages that were announced and not released: slot and count.
    announced: Vec<(usize, u64)>,
}

impl Vandal {
    pub(super) fn new(bare: Bare, counters: LentWords, lines: LentWords) -> Vandal {
        let (kept, announced) = (Vec::new(), Vec::new());
        Vandal { bare, counters, lines, next: Sequence(0), kept, announced }
    }

    /// Does one deed.
    pub(super) fn act(&mut self, script: &mut Script<'_>) {
        let primed = Sequence(self.shown(Counter::Buffers));
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
                // More storages than were lent end the path: an honest reader says how many there were.
                let number = match word {
                    LENT_TAKEN_WORD if !is_wild => self.shown(Counter::Lent),
                    _ => script.number(),
                };
                self.bare.reader.control.store(word, number, Ordering::SeqCst);
            }
            9 => self.ring(script),
            10 => {
                self.bare.arrivals.hear(os::doorbell::Listen::Now);
            }
            _ => self.end(script),
        }
    }

    fn shown(&self, counter: Counter) -> u64 {
        self.counters.load(counter as usize, Ordering::Relaxed)
    }

    /// Returns what was handed over, as honest readers do: it keeps some, and gives back what it has kept.
    fn give_back_all(&mut self, primed: Sequence, script: &mut Script<'_>) {
        let most = script.pick(&[1, 1, 5, QUEUE_BUFFERS as u64]);
        for _ in 0..most.min(primed.0.saturating_sub(self.next.0)) {
            if self.kept.len() < KEPT_MAX && script.below(4) == 0 {
                self.bare.keep(self.next);
                self.kept.push(self.next);
            }
            self.announced.extend(self.announcement(self.next));
            self.next = self.next.next();
        }
        self.bare.give_back(self.next.0);
        if !self.kept.is_empty() && script.below(2) == 0 {
            let late = self.kept.swap_remove(script.below(self.kept.len()));
            self.bare.give_back_late(late);
        }
    }

    /// Returns more or less than was handed over, or keeps what it does not have, and counts what it likes.
    fn give_back_any(&mut self, primed: Sequence, script: &mut Script<'_>) {
        let behind = script.below(QUEUE_BUFFERS) as u64;
        let any = Sequence(primed.0.saturating_sub(behind) + script.pick(&[0, 0, 0, 1]));
        match script.below(4) {
            0 => self.bare.give_back(any.0),
            1 => self.bare.keep(any),
            2 => self.bare.give_back_late(any),
            _ => self.bare.count_late(script.number()),
        }
    }

    /// The large message that a buffer announces, if it does.
    fn announcement(&self, sequence: Sequence) -> Option<(usize, u64)> {
        let line = sequence.line_word();
        let word = WriterWord::parse(self.lines.load(line, Ordering::Acquire)).ok()?;
        let identity = self.lines.load(line + 1, Ordering::Relaxed);
        let is_it = word.label == label::ANNOUNCEMENT;
        is_it.then_some((usize::from(identity as u16), identity >> 32))
    }

    /// Releases a large message, which was announced or not.
    fn release(&mut self, is_wild: bool, script: &mut Script<'_>) {
        if is_wild {
            let slot = script.below(SLOTS_USED);
            let released = self.bare.reader.slots.load(slot, Ordering::Relaxed);
            self.bare.release(slot, released.wrapping_add(script.pick(&[0, 1, 2])));
        } else if !self.announced.is_empty() {
            let any = script.below(self.announced.len());
            let (slot, count) = self.announced.swap_remove(any);
            self.bare.release(slot, count);
        }
    }

    /// Any word that a reader may write.
    fn scribble(&mut self, script: &mut Script<'_>) {
        let Bare { reader, board, .. } = &self.bare;
        let words = match script.below(5) {
            0 => &reader.returns,
            1 => &reader.kept,
            2 => &reader.slots,
            3 => &reader.control,
            _ => board,
        };
        let at = script.below(words.count());
        let word = script.word(words.load(at, Ordering::Relaxed));
        words.store(at, word, Ordering::Release);
    }

    fn ring(&mut self, script: &mut Script<'_>) {
        match script.below(4) {
            0 => drop(send(&self.bare.returns, &[0; RINGS_MAX], QUIETLY)),
            1 => {
                let tag = script.pick(&TAGS);
                self.bare.returns.pass(descriptor(script).as_fd(), tag);
            }
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
