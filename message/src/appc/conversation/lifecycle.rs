//! The life of a conversation: events, readiness, trim, the end.

use std::os::fd::BorrowedFd;

use os::doorbell::Listen;

use super::Conversation;
use crate::appc::outcome::Event;
use crate::appc::state::{State, StateError, Verb};
use fabric::path::{Counters, END_DATA_BYTES, Receiver, Sender};

impl Conversation {
    /// The next event. Each is given once.
    pub fn next_event(&mut self) -> Option<Event> {
        if self.next_request() {
            return Some(Event::Request);
        }
        if !self.is_open() || self.is_notified {
            return None;
        }
        let event = match self.ended {
            _ if self.arrived.is_some() || self.trouble.is_some() => Event::MessagePending,
            Some(ended) => Event::Severed(ended),
            None => return None,
        };
        self.is_notified = true;
        Some(event)
    }

    /// Whether the next event is a request for the turn; then it counts as given. Other events are left: a verb
    /// is waiting for them.
    pub fn next_request(&mut self) -> bool {
        self.poll_if_ready();
        let is_new = self.has_request();
        self.is_request_notified |= is_new;
        is_new
    }

    /// Whether a request for the turn has come whose event was not given.
    #[inline]
    pub fn has_request(&self) -> bool {
        self.requested && !self.is_request_notified && self.is_open()
    }

    /// (SENDREQ) Whether the partner has asked for the turn since this was last asked.
    pub fn take_requested(&mut self) -> bool {
        self.poll_if_ready();
        std::mem::take(&mut self.requested)
    }

    /// Whether a verb that has to wait for something from the partner may go on, or there may be an event.
    #[inline]
    pub fn is_ready(&self) -> bool {
        match &self.arrived {
            Some(arrived) => arrived.body.is_readable(&self.receiver),
            None => self.has_found() || self.receiver.is_ready(),
        }
    }

    /// Whether something has come that was not polled, or not notified: a verb that waits for room may have to
    /// give up.
    #[inline]
    pub fn has_come(&self) -> bool {
        let is_over = self.ended.is_some() && self.arrived.is_none();
        self.trouble.is_some() || is_over || !self.has_found() && self.receiver.is_ready()
    }

    /// Whether there may be an event.
    #[inline]
    pub fn has_event(&self) -> bool {
        self.is_open()
            && (self.has_request()
                || if self.has_found() {
                    !self.is_notified && !self.is_confirmed
                } else {
                    self.receiver.is_ready()
                })
    }

    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::Reset | State::Sever)
    }

    /// (SEVER) Ends the conversation where it stands. What was sent can still be received, and then the partner
    /// is told that it was ended like this, with `data` for its user.
    ///
    /// # Errors
    /// There is no conversation any more.
    pub fn sever(&mut self, data: [u8; END_DATA_BYTES]) -> Result<(), StateError> {
        self.check(Verb::Sever)?;
        self.close(data);
        Ok(())
    }

    pub(super) fn close(&mut self, data: [u8; END_DATA_BYTES]) {
        self.state = State::Reset;
        self.purge();
        self.trouble = None;
        self.requested = false;
        self.sender.sever(data);
        self.receiver.sever(data);
    }

    /// Hands over what was pushed. To be called before waiting.
    #[inline]
    pub fn flush(&mut self) {
        self.sender.flush();
    }

    /// The halves, to wait on.
    pub fn halves(&mut self) -> (&mut Sender, &mut Receiver) {
        (&mut self.sender, &mut self.receiver)
    }

    /// The descriptors that become readable when the partner rings or is gone: the receiver's, and the
    /// sender's.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.receiver.descriptor(), self.sender.descriptor()]
    }

    /// Listens to both doorbells, for what has come already. Whether one rang.
    pub fn hear(&mut self) -> bool {
        self.receiver.hear(Listen::Now) + self.sender.hear(Listen::Now) > 0
    }

    /// Gives back storage that was not used since the last call. True if there may be more to give back later.
    pub fn trim(&mut self) -> bool {
        // What has arrived may lie in the receiver's memory.
        if self.arrived.is_none() {
            self.receiver.trim();
        }
        self.sender.trim()
    }

    /// The counters of the receiver, which stand for the waiting of both.
    pub fn counters(&mut self) -> &mut Counters {
        self.receiver.counters()
    }
}
