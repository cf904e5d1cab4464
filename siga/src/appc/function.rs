//! Verbs that do not wait (WAIT=NO): functions that are started, and complete later.

use message::appc::{Conversation, Data, Received, Then, TryError, Verb, VerbError};

use super::waits::Wanted;

/// A verb, with what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Function {
    /// Sends a record, and says what comes next. Complete once the partner has confirmed, if it is to.
    Send {
        /// The record.
        record: Vec<u8>,
        /// What comes next.
        then: Then,
    },
    /// Sends what comes next, without a record.
    SendWithoutData(Then),
    /// Receives a record, or as much of it as fits.
    Receive {
        /// Where to: its length is the most that is received.
        target: Vec<u8>,
    },
    /// Confirms.
    Confirmed,
    /// Tells the partner of an error.
    Error,
    /// Asks the partner for the turn.
    Request,
}

impl Function {
    /// The verb.
    pub fn verb(&self) -> Verb {
        match self {
            Function::SendWithoutData(then) if then.confirms() => Verb::Confirm,
            Function::Send { .. } | Function::SendWithoutData(_) => Verb::Send,
            Function::Receive { .. } => Verb::Receive,
            Function::Confirmed => Verb::Confirmed,
            Function::Error => Verb::Error,
            Function::Request => Verb::Request,
        }
    }
}

/// A function that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The function, with what it was given: the record that was sent, or that was received into.
    pub function: Function,
    /// What came of it; what was received, for a receive.
    pub outcome: Result<Option<Received>, VerbError>,
}

/// A function that was started.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) function: Function,
    /// Of a record that is sent: whether it was, and the partner is to confirm it.
    is_sent: bool,
    /// Of a record that is received: how much of it was.
    at: usize,
    requested: bool,
}

impl Running {
    pub(super) fn new(function: Function) -> Running {
        Running { function, is_sent: false, at: 0, requested: false }
    }

    /// Goes on with it, as far as it goes.
    pub(super) fn go_on(
        &mut self,
        conversation: &mut Conversation,
    ) -> Result<Option<Received>, TryError> {
        if !self.is_sent {
            match &mut self.function {
                Function::Send { record, then } => conversation.send(record, *then)?,
                Function::SendWithoutData(then) => conversation.send_without_data(*then)?,
                Function::Receive { target } => {
                    let Running { at, requested, .. } = self;
                    return receive_on(conversation, target, at, requested).map(Some);
                }
                Function::Confirmed => conversation.confirmed()?,
                Function::Error => conversation.error()?,
                Function::Request => conversation.request()?,
            }
            self.is_sent = true;
        }
        conversation.confirmation().map(|()| None)
    }

    /// What it waits for.
    pub(super) fn wanted(&self) -> Wanted {
        let is_receiving = matches!(self.function, Function::Receive { .. });
        if self.is_sent || is_receiving { Wanted::Arrival } else { Wanted::Room }
    }
}

/// Receives from `at` on, once: `Pending` until the record is whole or `target` is full. `requested` keeps what was
/// reported with a part. The caller reads the clock after each part, however small the partner makes them.
#[inline]
pub(super) fn receive_on(
    conversation: &mut Conversation,
    target: &mut [u8],
    at: &mut usize,
    requested: &mut bool,
) -> Result<Received, TryError> {
    let received = conversation.receive(&mut target[*at..])?;
    *at += received.bytes;
    *requested |= received.requested;
    if matches!(received.data, Data::Incomplete { .. }) && *at < target.len() {
        return Err(TryError::Pending);
    }
    Ok(Received { bytes: *at, requested: *requested, ..received })
}
