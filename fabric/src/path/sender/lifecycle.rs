//! The life of a sender: the peer's control line, sleep and wake-up, trim, the end.

use os::doorbell::Listen;
use os::sync::Ordering;

use super::Sender;
use crate::path::board;
use crate::path::lending::Unused;
use crate::path::record::Control;
use crate::path::severed::{Reason, Severed, UserData};
use crate::queue::Violation;

impl Sender {
    /// Rings the receiver's doorbell, though there is nothing for it in this queue.
    pub fn wake_peer(&mut self) {
        if !self.half.is_forked() {
            self.half.ring();
        }
    }

    /// Polls the reader's control line: whether it has ended, or wants quiet, or no quiet any more.
    #[inline(always)]
    pub(super) fn poll_peer(&mut self) {
        if let Some(severed) = self.half.peer_halt() {
            self.end(severed);
        }
        // Relaxed: the answer goes through the queue, which orders it.
        let request = self.half.peer.load(board::QUIESCE_WORD, Ordering::Relaxed);
        if request != self.quiesced {
            self.answer_quiesce(request);
        }
    }

    #[cold]
    fn answer_quiesce(&mut self, request: u64) {
        if self.half.ended.is_some() {
            return;
        }
        self.publish();
        self.is_quiet = request & 1 == 1;
        let messages = self.tally.messages;
        if self.is_quiet && !self.hand_over_control(Control::Quiesced { request, messages }) {
            // No room for the answer yet: the next poll tries again.
            return;
        }
        self.quiesced = request;
        self.half.doorbells.reason();
        self.half.ring_if_asleep();
    }

    /// Hands over what was pushed, and announces that we are about to sleep until a buffer comes back. Ask
    /// [`Sender::is_ready`] once more before sleeping.
    pub fn announce_sleep(&mut self) {
        if self.half.is_forked() {
            return;
        }
        self.flush();
        if self.half.must_hear_first() {
            self.hear(Listen::Now);
        }
        self.half.announce_sleep();
    }

    /// Announces that we are awake again.
    pub fn wake(&mut self) {
        self.half.wake();
    }

    /// Listens to the doorbell, and returns how many rings were heard.
    pub fn hear(&mut self, listen: Listen) -> usize {
        if self.half.is_forked() {
            return 0;
        }
        let heard = self.half.hear(listen);
        self.poll_peer();
        if heard.gone {
            self.end(Severed::because(Reason::Gone));
        }
        if let Some(reason) = heard.fault {
            self.fail(reason);
        }
        if self.half.doorbells.is_abused() {
            self.collect();
            if self.half.doorbells.is_abused() {
                self.fail(Reason::Violation(Violation::Doorbell));
            }
        }
        heard.rings
    }

    /// Retires storage that was not used since the last call. To be called about once a second while the
    /// result is true: there may be more to retire later.
    pub fn trim(&mut self) -> bool {
        if self.half.is_forked() || self.half.ended.is_some() {
            return false;
        }
        self.flush();
        self.collect();
        while self.has_room_to_retire() && self.retire_unused(Unused::ForLong) {}
        self.pages.untouch();
        self.lending.untouch();
        self.lending.may_shrink()
    }

    /// Ends this half in good order: what was sent is handed over, and behind it the end, with `data`
    /// for the peer's user.
    pub fn sever(&mut self, data: UserData) {
        if !self.half.is_forked() && self.half.ended.is_none() {
            self.publish();
            self.halt(Severed { reason: Reason::Ours, data });
        }
    }

    fn halt(&mut self, severed: Severed) {
        // If even the last buffer is full, the reader finds the end in our control line.
        let _ = self.writer.halt(severed.words().map(u64::to_le_bytes).as_flattened());
        self.half.halt(severed);
        self.end(severed);
    }

    /// Ends this half for a reason of ours, if it had not ended before.
    pub fn fail(&mut self, reason: Reason) {
        if !self.half.is_forked() && self.half.ended.is_none() {
            self.halt(Severed::because(reason));
        }
    }

    /// The path has ended for this reason, if it had not before.
    #[cold]
    pub(super) fn end(&mut self, severed: Severed) -> Severed {
        // Nobody will read the pack, and without one the next push checks whether there is a path.
        self.pack = None;
        *self.half.ended.get_or_insert(severed)
    }
}
