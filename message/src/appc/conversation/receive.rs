//! Receiving.

use super::Conversation;
use super::look::COPIED_BYTES_MAX;
use crate::appc::outcome::{Data, Ended, Received, VerbError};
use crate::appc::record::{Record, Then, Word};
use crate::appc::state::{State, Verb};
use fabric::path::{Incoming, Message, MessageRef, Severed};

impl Conversation {
    /// (RECEIVE) Copies a record, or what is left of it, into `target`: as much as fits and is in place. A
    /// record of more than a page may still be on its way: then some is left though there was room.
    ///
    /// # Errors
    /// [`VerbError`]; `Pending` if nothing is there.
    #[inline]
    pub fn receive(&mut self, target: &mut [u8]) -> Result<Received, VerbError> {
        if self.state == State::Receive
            && !self.has_found()
            && let Ok(Some(picked)) = self.receiver.poll(COPIED_BYTES_MAX)
        {
            if let Incoming::Message(spot) = picked
                && let Some(received) = self.receive_at(spot, target)
            {
                return Ok(received);
            }
            self.take(picked);
        }
        self.receive_found(target)
    }

    /// The usual case, in short: a record that lies in memory of our own, and fits. None, and nothing is
    /// done, if it is another. Going the long way costs 40 ns.
    #[inline]
    fn receive_at(&mut self, spot: MessageRef, target: &mut [u8]) -> Option<Received> {
        let Message { head, body } = self.receiver.message(spot);
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

    fn receive_found(&mut self, target: &mut [u8]) -> Result<Received, VerbError> {
        self.begin(Verb::Receive)?;
        let Some(arrived) = &mut self.arrived else { return Err(VerbError::Pending) };
        let bytes = match arrived.body.read(&mut self.receiver, target) {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.cut_off(error)),
        };
        let left = arrived.body.left();
        if bytes == 0 && left > 0 && !target.is_empty() {
            return Err(VerbError::Pending);
        }
        if left > 0 {
            let data = Data::Incomplete { left };
            let requested = std::mem::take(&mut self.requested);
            return Ok(Received { bytes, data, status: State::Receive, requested });
        }
        let arrived = self.arrived.take().expect("looked at just now");
        arrived.body.release(&mut self.receiver);
        self.is_told = false;
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
    fn cut_off(&mut self, severed: Severed) -> VerbError {
        self.purge();
        self.ended = Some(Ended::of(severed));
        self.tell().expect_err("it has ended")
    }

    /// How many bytes are left of the record that is next, if one is there.
    ///
    /// # Errors
    /// As [`Conversation::receive`].
    pub fn pending_bytes(&mut self) -> Result<usize, VerbError> {
        self.begin(Verb::Receive)?;
        self.arrived.as_ref().map(|arrived| arrived.body.left()).ok_or(VerbError::Pending)
    }
}
