//! The life of a receiver: readiness, sleep and wake-up, trim, quiesce, the end.

use os::doorbell::Listen;
use os::sync::Ordering;

use super::Receiver;
use crate::path::board;
use crate::path::severed::{Reason, Severed, UserData};
use crate::queue::Violation;

impl Receiver {
    /// Whether there is something to do: a message, control, or the end.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        // A forked child finds out when it asks what is ready.
        if self.has_staged() || self.half.ended.is_some() || self.half.is_forked() {
            return true;
        }
        match &self.copying {
            Some(copying) => self.is_pullable(&copying.message),
            None => self.reader.is_ready(),
        }
    }

    /// Announces that we are about to sleep until something comes. Ask [`Receiver::is_ready`] once more
    /// before sleeping.
    pub fn announce_sleep(&mut self) {
        if self.half.is_forked() {
            return;
        }
        self.show_returned();
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
        if let Some(reason) = heard.fault {
            self.fail(reason);
        }
        if heard.gone && self.half.ended.is_none() {
            let gone = Severed::because(Reason::Gone);
            self.half.ended = Some(self.half.peer_halt().unwrap_or(gone));
        } else if self.half.doorbells.is_abused() && !self.is_ready() {
            self.fail(Violation::Doorbell.into());
        }
        heard.rings
    }

    /// Gives back memory for messages. To be called when nothing has come for about a second.
    pub fn trim(&mut self) {
        if !self.has_staged() && !self.half.is_forked() {
            self.staged = None;
            self.large = None;
        }
    }

    /// Asks the sender to keep quiet. Messages keep coming until [`Receiver::known_point`] knows after
    /// which one it did.
    pub fn quiesce(&mut self) {
        if self.quiesce & 1 == 0 {
            self.ask_for(self.quiesce + 1);
        }
    }

    /// Lets the sender send again.
    pub fn resume(&mut self) {
        if self.quiesce & 1 == 1 {
            self.known_point = None;
            self.ask_for(self.quiesce + 1);
        }
    }

    fn ask_for(&mut self, quiesce: u64) {
        if self.half.is_forked() {
            return;
        }
        self.quiesce = quiesce;
        // Release: only for the writer to go by.
        self.half.control.store(board::QUIESCE_WORD, quiesce, Ordering::Release);
        // A writer that does nothing should know at once, whether it has announced its sleep or not.
        self.half.ring();
    }

    /// How many messages the sender had sent when it fell quiet, once all of them have been given out
    /// here. None before, and when it was not asked to.
    pub fn known_point(&self) -> Option<u64> {
        self.known_point
    }

    /// Ends this half in good order, with `data` for the peer's user. What has not been received yet is
    /// lost, and the sender knows.
    pub fn sever(&mut self, data: UserData) {
        if !self.half.is_forked() && self.half.ended.is_none() {
            self.halt(Severed { reason: Reason::Ours, data });
        }
    }

    fn halt(&mut self, severed: Severed) {
        // What was read counts as read, whatever the reason.
        self.show_returned();
        self.staged_at = self.staged_end;
        self.copying = None;
        self.half.halt(severed);
    }

    /// Ends this half for a reason of ours. It ends once, and for the first reason. The receiver finds out by
    /// itself what breaks its own rules; conversations over it have others.
    #[cold]
    pub fn fail(&mut self, reason: Reason) -> Severed {
        if let Some(ended) = self.half.ended.filter(Severed::is_final) {
            return ended;
        }
        let severed = Severed::because(reason);
        if !self.half.is_forked() {
            self.halt(severed);
        }
        severed
    }
}
