//! What keeps a sender going: taking back, sleeping, housekeeping, the end.

use os::doorbell::Listen;
use os::sync::Ordering;

use super::Sender;
use crate::path::board;
use crate::path::counters::Counter;
use crate::path::record::Control;
use crate::path::severed::{END_DATA_BYTES, Halt, HaltCode, Reason, Severed};
use crate::queue::{Returned, Search, State, Violation};

impl Sender {
    /// Looks whether the receiver wants quiet, or no quiet any more, and answers. Whoever does not send
    /// for long, and does not wait on the doorbell either, should look now and then.
    pub fn look(&mut self) {
        if !self.mark.inherited() {
            self.look_at_peer();
        }
    }

    /// Wakes the receiver's thread though there is nothing for it in this queue.
    pub fn rouse(&mut self) {
        if self.mark.inherited() {
            return;
        }
        self.counters.add(Counter::Rings, 1);
        self.bells.ring();
    }

    /// Rings the doorbell of `other`'s receiver from now on, not our own receiver's: for a conversation over
    /// several queues whose user sleeps on one of them. What this one's receiver is lent still comes over
    /// its own.
    pub fn ring_instead(&mut self, other: &Sender) {
        self.bells.ring_instead(&other.bells);
    }

    /// Looks at the reader's control line: whether it has ended, or wants quiet, or no quiet any more.
    pub(super) fn look_at_peer(&mut self) {
        // Acquire: pairs with the Release in `Receiver::sever`. The data is seen with the word.
        let halt = self.peer.load(board::HALT_WORD, Ordering::Acquire);
        if halt != 0 && self.ended.is_none() {
            let data = |word| self.peer.load(board::HALT_DATA_WORD + word, Ordering::Relaxed);
            if let Some(halt) = Halt::parse([halt, data(0), data(1)]) {
                self.end(halt.severed());
            }
        }
        // Relaxed: the answer goes through the queue, which orders it.
        let request = self.peer.load(board::QUIESCE_WORD, Ordering::Relaxed);
        if request != self.quiesced && self.ended.is_none() {
            self.answer_quiesce(request);
        }
    }

    pub(super) fn answer_quiesce(&mut self, request: u64) {
        self.publish();
        self.is_quiet = request & 1 == 1;
        if self.is_quiet
            && !self.hand_over_control(Control::Quiesced { request, messages: self.tally.messages })
        {
            // No room for the answer yet: it is tried again at the next look.
            return;
        }
        self.quiesced = request;
        self.patience.renew();
        self.ring_if_asleep();
    }

    /// Takes back what the reader has given back.
    pub(super) fn collect(&mut self, search: Search) {
        let Sender { writer, tickets, pages, completed, counters, in_flight_bytes, .. } = self;
        let mut returned = 0;
        let mut collected = writer.collect(search, |buffer: Returned| {
            let ticket = std::mem::take(&mut tickets[buffer.sequence.index()]);
            if let Some(page) = ticket.page {
                pages.release(page);
            }
            completed.extend(ticket.cookie);
            *in_flight_bytes -= ticket.bytes as usize;
            if buffer.state == State::Error {
                counters.add(Counter::Refused, 1);
            }
            returned += 1;
        });
        if self.slots.out() > 0 && collected.is_ok() {
            let lending = &mut self.lending;
            collected = self.slots.collect(|segment| {
                lending.release_large(segment);
                returned += 1;
            });
        }
        if returned > 0 {
            self.returned += returned;
            self.patience.renew();
        }
        if let Err(violation) = collected {
            self.accuse(violation);
        }
    }

    /// A number that grows with all that can make a send possible again.
    pub(super) fn progress(&self) -> u64 {
        // Relaxed: only compared with itself.
        self.returned.wrapping_add(self.peer.load(board::LENT_TAKEN_WORD, Ordering::Relaxed))
    }

    /// Whether a send that was refused is worth another try: something came back since, or the path has
    /// changed its state.
    pub fn is_ready(&mut self) -> bool {
        if self.mark.inherited() {
            return true;
        }
        self.look_at_peer();
        self.collect(Search::All);
        // Who waits for room learns of quiet, and who waits for the end of quiet of nothing else.
        self.ended.is_some()
            || self.is_quiet != self.refused_for_quiet
            || (!self.is_quiet && self.progress() != self.returned_at_full)
    }

    /// Hands everything over and says that we are about to sleep until something comes back. Look at
    /// [`Sender::is_ready`] once more before sleeping.
    pub fn announce_sleep(&mut self) {
        if self.mark.inherited() {
            return;
        }
        self.flush();
        if !self.sleeper.is_announced() {
            self.patience.expect_rings();
        }
        self.sleeper.announce();
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
        if heard.gone && self.ended.is_none() {
            self.look_at_peer();
            if self.ended.is_none() {
                self.end(Severed::because(Reason::Gone));
            }
        }
        // A reader lends nothing: a descriptor that came along was refused here.
        self.look_at_peer();
        if self.patience.is_over() {
            self.collect(Search::All);
            if self.patience.is_over() {
                self.accuse(Violation::Doorbell);
            }
        }
        heard.rings
    }

    /// Housekeeping, about once a second while there is something to keep: retires storage that was not
    /// used since the last time. Says whether there is.
    pub fn tidy(&mut self) -> bool {
        if self.mark.inherited() || self.ended.is_some() {
            return false;
        }
        self.flush();
        self.collect(Search::All);
        let mut told = true;
        while told && let Some(segment) = self.lending.take_idle_large() {
            told = self.retire(segment);
            if !told {
                self.lending.release_large(segment);
            }
        }
        while self.has_room_for_control()
            && let Some(segment) = self.pages.take_idle_segment()
        {
            self.retire(segment);
        }
        self.pages.untouch();
        self.lending.untouch();
        self.lending.may_shrink()
    }

    /// Ends this half in good order: what was sent is handed over, and behind it the end, with `data`
    /// for the peer's user.
    pub fn sever(&mut self, data: [u8; END_DATA_BYTES]) {
        if self.mark.inherited() || self.ended.is_some() {
            return;
        }
        self.publish();
        self.halt(Halt { code: HaltCode::GoodOrder, data });
        self.ended = Some(Severed { reason: Reason::Ours, data });
    }

    pub(super) fn halt(&mut self, halt: Halt) {
        let words = halt.words();
        let bytes = words.map(u64::to_le_bytes);
        // If even the last buffer is full, the reader finds the end in our control line.
        let _ = self.writer.halt(bytes.as_flattened());
        for (at, word) in words[1..].iter().enumerate() {
            self.control.store(board::HALT_DATA_WORD + at, *word, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `Receiver::look_at_peer`.
        self.control.store(board::HALT_WORD, words[0], Ordering::Release);
        self.bells.hang_up();
    }

    /// The peer did what no peer may do.
    pub(super) fn accuse(&mut self, violation: Violation) {
        if self.ended.is_none() {
            self.counters.add_violation(violation);
            self.halt(Halt { code: HaltCode::PeerBrokeRules, data: [0; END_DATA_BYTES] });
            self.end(Severed::because(Reason::Violation(violation)));
        }
    }

    pub(super) fn end(&mut self, severed: Severed) -> Severed {
        // Nobody will read it, and without it the next push looks whether there is a path.
        self.pack = None;
        *self.ended.get_or_insert(severed)
    }
}
