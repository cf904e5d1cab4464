//! Receiving.

use super::Conversation;
use crate::appc::outcome::{Data, Ended, Received, Status, VerbError};
use crate::appc::record::Then;
use crate::appc::state::{State, Verb};
use crate::path::PullError;
use crate::queue::Violation;

impl Conversation {
    /// (RECEIVE) Copies a record, or what is left of it, into `target`: as much as fits and is in place. A
    /// record of more than a page may still be on its way: then some is left though there was room.
    ///
    /// # Errors
    /// [`VerbError`]; `Pending` if nothing is there.
    #[inline]
    pub fn receive(&mut self, target: &mut [u8]) -> Result<Received, VerbError> {
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
        let requested = std::mem::take(&mut self.requested);
        if left > 0 {
            let data = Data::Incomplete { left };
            return Ok(Received { bytes, data, status: Status::More, requested });
        }
        let arrived = self.arrived.take().expect("looked at just now");
        arrived.body.release(&mut self.receiver);
        self.is_told = false;
        let (state, status) = match arrived.then {
            Then::More => (State::Receive, Status::More),
            Then::Receive => (State::Send, Status::Send),
            Then::Confirm => (State::Confirm, Status::Confirm),
            Then::ConfirmReceive => (State::ConfirmSend, Status::ConfirmSend),
            Then::ConfirmSever => (State::ConfirmSever, Status::ConfirmSever),
            Then::Sever => (State::Sever, Status::Severed),
        };
        self.state = state;
        let data = if arrived.is_data { Data::Complete } else { Data::None };
        Ok(Received { bytes, data, status, requested })
    }

    /// The rest of a record does not come.
    #[cold]
    fn cut_off(&mut self, error: PullError) -> VerbError {
        let severed = match error {
            PullError::Severed(severed) => severed,
            // It is not among the things that a side of a conversation can want.
            PullError::Withdrawn => self.receiver.accuse(Violation::Record),
        };
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
