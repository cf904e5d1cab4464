//! Receiving: what the partner has sent is polled, and every record is checked here; then it is given out.

use super::{Arrived, Conversation, Level, Role};
use crate::appc::outcome::{Data, Ended, Received, Trouble, TryError};
use crate::appc::record::{Record, Then, Word};
use crate::appc::state::{State, Verb};
use crate::body::BodyReader;
use fabric::path::{Incoming, Message, MessageRef, Reason, Severed};
use fabric::queue::{QUEUE_BUFFERS, Violation};

/// Messages in pages up to this length are copied out before they are parsed; longer ones are received
/// straight from the page.
const COPIED_BYTES_MAX: usize = 4096;

/// Messages that one poll takes at most: a partner could send requests as fast as we poll.
pub(super) const POLL_MESSAGES_MAX: usize = QUEUE_BUFFERS;

impl Ended {
    pub(super) fn of(severed: Severed) -> Ended {
        match severed.reason {
            Reason::Peer => Ended::Abend(severed.data),
            _ => Ended::Failed(severed),
        }
    }
}

impl Conversation {
    /// Polls the queue if it is ready, while there is a conversation.
    #[inline]
    pub(super) fn poll_if_ready(&mut self) {
        if self.is_open() && self.receiver.is_ready() {
            self.poll();
        }
    }

    /// Polls the queue until there is something to report or to receive.
    #[inline]
    pub(super) fn poll(&mut self) {
        for _ in 0..POLL_MESSAGES_MAX {
            if self.has_found() {
                return;
            }
            let polled = match self.receiver.poll(COPIED_BYTES_MAX) {
                Ok(Some(polled)) => polled,
                Ok(None) => return,
                Err(severed) => return self.end(severed),
            };
            self.take(polled);
        }
    }

    /// The path has ended. If it did for a reason of ours, a partner that only receives is notified too.
    #[cold]
    fn end(&mut self, severed: Severed) {
        if severed.is_final() {
            self.sender.fail(severed.reason);
        }
        self.ended = Some(Ended::of(severed));
    }

    /// Takes in what was polled.
    fn take(&mut self, polled: Incoming) {
        let (record, body) = BodyReader::open(&mut self.receiver, polled, Record::parse);
        match record.and_then(|record| self.take_in(record, body.left())) {
            Ok(Some((is_data, then))) => {
                self.arrived = Some(Arrived { body, is_data, then });
                return;
            }
            Ok(None) => {}
            Err(violation) => {
                let severed = self.receiver.fail(violation.into());
                self.end(severed);
            }
        }
        body.release(&mut self.receiver);
    }

    /// Whether there is something to notify of, or to receive, before the queue is polled again.
    #[inline]
    pub(super) fn has_found(&self) -> bool {
        self.arrived.is_some()
            || self.trouble.is_some()
            || self.ended.is_some()
            || self.is_confirmed
    }

    /// Applies a record that has so many bytes behind its head. Whether there is something to receive, whether
    /// that is data, and what comes after it.
    #[inline]
    fn take_in(&mut self, record: Record, bytes: usize) -> Result<Option<(bool, Then)>, Violation> {
        let Record { word, seen } = record;
        let is_data = matches!(word, Word::Data(_));
        if bytes > 0 && !is_data {
            return Err(Violation::Size);
        }
        if !(self.own_errors_seen..=self.own_errors).contains(&seen) {
            return Err(Violation::Record);
        }
        self.own_errors_seen = seen;
        // The partner has sent this before it saw an error of ours: it is purged.
        let is_stale = seen < self.own_errors;
        let is_receiving = match self.state {
            State::Send | State::Confirming => true,
            State::Receive => self.may_be_purged,
            _ => false,
        };
        match word {
            Word::Data(then) | Word::NoData(then) if !is_stale => {
                if !self.may_come(then) {
                    return Err(Violation::State);
                }
                self.may_be_purged = false;
                return Ok(Some((is_data, then)));
            }
            // Over is over.
            Word::Data(Then::Sever) | Word::NoData(Then::Sever) => self.ended = Some(Ended::Normal),
            Word::Request if is_stale || is_receiving => {
                self.is_request_notified &= self.requested;
                self.requested = true;
            }
            // Both have found an error at once, and the allocator's counts.
            Word::Error { purges: true } if is_stale && self.role == Role::Acceptor => {
                self.own_errors = seen;
                self.take_error()?;
            }
            _ if is_stale => {}
            Word::Error { purges: true } if is_receiving => self.take_error()?,
            Word::Error { purges: false } if self.state == State::Receive => {
                self.may_be_purged = false;
                self.trouble = Some(Trouble::NoTruncation);
            }
            Word::Confirmed if self.state == State::Confirming => self.is_confirmed = true,
            _ => return Err(Violation::State),
        }
        Ok(None)
    }

    #[inline]
    fn may_come(&self, then: Then) -> bool {
        self.state == State::Receive && (self.level == Level::Confirm || !then.confirms())
    }

    fn take_error(&mut self) -> Result<(), Violation> {
        // Four thousand million errors are not found in good faith.
        self.errors_seen = self.errors_seen.checked_add(1).ok_or(Violation::Count)?;
        self.may_be_purged = false;
        self.trouble = Some(Trouble::Purging);
        Ok(())
    }

    /// (RECEIVE) Copies a record, or what is left of it, into `target`: as much as fits and is in place, 1 MiB at
    /// most. A record of more than a page may still be on its way: then some is left though there was room.
    ///
    /// # Errors
    /// [`TryError`]; `Pending` if nothing is there.
    #[inline]
    pub fn receive(&mut self, target: &mut [u8]) -> Result<Received, TryError> {
        if self.state == State::Receive
            && !self.has_found()
            && let Ok(Some(polled)) = self.receiver.poll(COPIED_BYTES_MAX)
        {
            if let Incoming::Message(message) = polled
                && let Some(received) = self.receive_at(message, target)
            {
                return Ok(received);
            }
            self.take(polled);
        }
        self.receive_found(target)
    }

    /// The usual case, in short: a record that lies in memory of our own, and fits. None, and nothing is
    /// done, if it is another. Going the long way costs 40 ns.
    #[inline]
    fn receive_at(&mut self, message: MessageRef, target: &mut [u8]) -> Option<Received> {
        let Message { head, body } = self.receiver.message(message);
        let Ok(Record { word: Word::Data(then), seen }) = Record::parse(head) else { return None };
        if seen != self.own_errors || !self.may_come(then) {
            return None;
        }
        let bytes = body.len();
        target.get_mut(..bytes)?.copy_from_slice(body);
        self.own_errors_seen = seen;
        self.may_be_purged = false;
        Some(self.complete(bytes, Data::Complete, then))
    }

    fn receive_found(&mut self, target: &mut [u8]) -> Result<Received, TryError> {
        self.begin(Verb::Receive)?;
        let Some(arrived) = &mut self.arrived else { return Err(TryError::Pending) };
        let bytes = match arrived.body.read(&mut self.receiver, target) {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.cut_off(error)),
        };
        let left = arrived.body.left();
        if bytes == 0 && left > 0 && !target.is_empty() {
            return Err(TryError::Pending);
        }
        if left > 0 {
            let data = Data::Incomplete { left };
            let requested = std::mem::take(&mut self.requested);
            return Ok(Received { bytes, data, status: State::Receive, requested });
        }
        let arrived = self.arrived.take().expect("read just now");
        arrived.body.release(&mut self.receiver);
        self.is_notified = false;
        let data = if arrived.is_data { Data::Complete } else { Data::None };
        Ok(self.complete(bytes, data, arrived.then))
    }

    #[inline]
    fn complete(&mut self, bytes: usize, data: Data, then: Then) -> Received {
        self.state = match then {
            Then::More => State::Receive,
            Then::Receive => State::Send,
            Then::Confirm => State::Confirm,
            Then::ConfirmReceive => State::ConfirmSend,
            Then::ConfirmSever => State::ConfirmSever,
            Then::Sever => State::Sever,
        };
        let requested = std::mem::take(&mut self.requested);
        Received { bytes, data, status: self.state, requested }
    }

    /// The rest of a record does not come.
    #[cold]
    fn cut_off(&mut self, severed: Severed) -> TryError {
        self.purge();
        self.end(severed);
        self.report().expect_err("it has ended")
    }

    /// How many bytes are left of the record that is next, if one is there.
    ///
    /// # Errors
    /// [`TryError`]; `Pending` if nothing is there.
    pub fn pending_bytes(&mut self) -> Result<usize, TryError> {
        self.begin(Verb::Receive)?;
        self.arrived.as_ref().map(|arrived| arrived.body.left()).ok_or(TryError::Pending)
    }
}
