//! What keeps a receiver going: sleeping, listening, quiet, housekeeping, the end.

use os::doorbell::{HEARD_RINGS_MAX, Listen};
use os::sync::Ordering;

use super::Receiver;
use crate::path::board;
use crate::path::counters::Counter;
use crate::path::lending::LENDS_UNHEARD_MAX;
use crate::path::severed::{END_DATA_BYTES, Halt, HaltCode, Reason, Severed};
use crate::queue::{GiveBack, Violation};

impl Receiver {
    /// Whether there is something to do: a message, control, or the end.
    #[inline]
    pub fn is_ready(&self) -> bool {
        if let Some(pulling) = &self.pulling {
            return self.is_pullable(&pulling.message);
        }
        // A forked child finds out when it asks what is ready.
        self.has_staged() || self.mark.inherited() || self.reader.is_ready() || self.ended.is_some()
    }

    /// As [`Receiver::is_ready`], for those who pick messages and find out by other means that they are a
    /// forked child.
    #[inline(always)]
    pub(crate) fn has_arrived(&self) -> bool {
        self.reader.is_ready() || self.has_staged() || self.ended.is_some()
    }

    /// Says that we are about to sleep until something comes. Look at [`Receiver::is_ready`] once more
    /// before sleeping.
    pub fn announce_sleep(&mut self) {
        if self.mark.inherited() {
            return;
        }
        if let Some(taken) = self.owed.take() {
            self.give_back_as(taken, GiveBack::Empty);
        }
        if !self.sleeper.is_announced() {
            self.expect_rings();
        }
        self.sleeper.announce();
    }

    /// Says that a half sleeps whose rings are heard here: see [`Sender::ring_instead`].
    ///
    /// [`Sender::ring_instead`]: crate::path::Sender::ring_instead
    pub fn expect_rings(&mut self) {
        self.patience.expect_rings();
        self.sleeps_unheard += 1;
        if self.sleeps_unheard > HEARD_RINGS_MAX {
            // A look that finds something leaves the ring for it on the line. Were it to fill up with
            // those, the writer could lend nothing: it would wait for room, and we for it.
            self.hear(Listen::Now);
        }
    }

    /// Says that we are awake again.
    pub fn wake(&mut self) {
        if self.mark.inherited() {
            return;
        }
        self.sleeper.wake();
    }

    /// Listens to the doorbell, and returns how many rings were heard.
    pub fn hear(&mut self, listen: Listen) -> usize {
        if self.mark.inherited() {
            return 0;
        }
        let heard = self.bells.hear(listen);
        self.counters.add(Counter::Heard, heard.rings as u64);
        self.patience.hear(heard.rings);
        self.sleeps_unheard =
            if heard.rings == 0 { 0 } else { self.sleeps_unheard.saturating_sub(heard.rings) };
        if let Some(descriptor) = heard.descriptor {
            if self.arrived.len() < LENDS_UNHEARD_MAX as usize {
                self.arrived.push_back(descriptor);
            } else {
                self.accuse(Violation::Storage);
            }
        }
        if heard.gone && self.ended.is_none() {
            self.ended = Some(self.end_by_peer());
        } else if self.patience.is_over() && !self.is_ready() {
            self.accuse(Violation::Doorbell);
        }
        heard.rings
    }

    /// Why the peer ended, as far as its control line tells.
    pub(super) fn end_by_peer(&self) -> Severed {
        // Acquire: pairs with the Release in `Sender::halt`. The data is seen with the word.
        let halt = self.peer.load(board::HALT_WORD, Ordering::Acquire);
        let data = |word| self.peer.load(board::HALT_DATA_WORD + word, Ordering::Relaxed);
        let halt = Halt::parse([halt, data(0), data(1)]);
        halt.map_or(Severed::because(Reason::Gone), Halt::severed)
    }

    /// Housekeeping, when nothing came for about a second: gives memory back.
    pub fn tidy(&mut self) {
        if self.staged_at >= self.staged_end && !self.mark.inherited() {
            self.staged = None;
            self.large = None;
        }
    }

    /// Asks the sender to keep quiet. Messages keep coming until [`Receiver::known_point`] knows after
    /// which one it did.
    pub fn quiesce(&mut self) {
        if self.mark.inherited() {
            return;
        }
        if self.quiesce & 1 == 0 {
            self.ask_for(self.quiesce + 1);
        }
    }

    /// Lets the sender send again.
    pub fn resume(&mut self) {
        if self.mark.inherited() {
            return;
        }
        if self.quiesce & 1 == 1 {
            self.known_point = None;
            self.ask_for(self.quiesce + 1);
        }
    }

    pub(super) fn ask_for(&mut self, quiesce: u64) {
        self.quiesce = quiesce;
        // Release: only for the writer to go by.
        self.control.store(board::QUIESCE_WORD, quiesce, Ordering::Release);
        // A writer that does nothing should know at once, whether it has announced its sleep or not.
        self.counters.add(Counter::Rings, 1);
        self.bells.ring();
    }

    /// How many messages the sender had sent when it fell quiet, once all of them have been given out
    /// here. None before, and when it was not asked to.
    pub fn known_point(&self) -> Option<u64> {
        self.known_point
    }

    /// Ends this half in good order, with `data` for the peer's user. What has not been received yet is
    /// lost, and the sender knows.
    pub fn sever(&mut self, data: [u8; END_DATA_BYTES]) {
        if !self.mark.inherited() && self.ended.is_none() {
            self.halt(Halt { code: HaltCode::GoodOrder, data });
            self.ended = Some(Severed { reason: Reason::Ours, data });
        }
    }

    pub(super) fn halt(&mut self, halt: Halt) {
        if let Some(taken) = self.owed.take() {
            self.reader.give_back(taken, GiveBack::Halted);
        }
        self.staged_at = self.staged_end;
        self.pulling = None;
        let words = halt.words();
        for (at, word) in words[1..].iter().enumerate() {
            self.control.store(board::HALT_DATA_WORD + at, *word, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `Sender::look_at_peer`.
        self.control.store(board::HALT_WORD, words[0], Ordering::Release);
        self.bells.hang_up();
    }

    /// The peer did what no peer may do: nothing it has written is worth reading any more. The receiver
    /// finds out by itself what breaks its own rules; conversations over it have others.
    pub fn accuse(&mut self, violation: Violation) -> Severed {
        if let Some(ended) = self.ended.filter(Severed::is_final) {
            // It ends once, and for the first reason.
            return ended;
        }
        self.counters.add_violation(violation);
        self.halt(Halt { code: HaltCode::PeerBrokeRules, data: [0; END_DATA_BYTES] });
        *self.ended.insert(Severed::because(Reason::Violation(violation)))
    }

    pub(super) fn no_memory(&mut self) -> Severed {
        self.sever([0; END_DATA_BYTES]);
        *self.ended.insert(Severed::because(Reason::NoMemory))
    }
}
