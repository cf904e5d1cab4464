//! A conversation, as one of its two sides has it.

mod lifecycle;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use super::outcome::{Ended, Trouble, TryError};
use super::record::Then;
use super::state::{State, StateError, Verb};
use crate::body::BodyReader;
use fabric::path::{Halves, Receiver, Sender};

/// Which side of a conversation this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has asked for the conversation: it sends first, and its errors count when both find one at once.
    Allocator,
    /// It was asked.
    Acceptor,
}

/// (SYNCLVL) Whether records can be confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// They cannot.
    #[default]
    None,
    /// They can.
    Confirm,
}

/// A conversation.
#[derive(Debug)]
pub struct Conversation {
    /// The state that the program knows of.
    state: State,
    sender: Sender,
    receiver: Receiver,
    role: Role,
    level: Level,
    /// What was taken from the queue, and the program was not notified of, or has not received all of. While
    /// there is any, the queue is not polled.
    arrived: Option<Arrived>,
    trouble: Option<Trouble>,
    ended: Option<Ended>,
    is_confirmed: bool,
    /// Whether there was an event about what was found.
    is_notified: bool,
    /// The partner has asked for the turn, and whether there was an event about it.
    requested: bool,
    is_request_notified: bool,
    /// What follows once the partner has confirmed.
    asked: Then,
    /// We have turned round, and for all we know the partner has not come so far: it may still be
    /// receiving, and take the turn by an error.
    may_be_purged: bool,
    /// Purging errors of ours that count; how many of them the partner had seen when it sent its last record;
    /// and how many of the partner's we have seen.
    own_errors: u32,
    own_errors_seen: u32,
    errors_seen: u32,
}

/// Something to receive.
#[derive(Debug)]
struct Arrived {
    body: BodyReader,
    /// Whether the body is a record: it may be one of no bytes.
    is_data: bool,
    then: Then,
}

impl Conversation {
    /// A conversation over a path of one queue each way.
    ///
    /// # Panics
    /// If there is not one queue each way.
    pub fn new(halves: Halves, role: Role, level: Level) -> Conversation {
        let Halves { mut senders, mut receivers } = halves;
        assert!(senders.len() == 1 && receivers.len() == 1, "one queue each way");
        Conversation {
            state: if role == Role::Allocator { State::Send } else { State::Receive },
            sender: senders.remove(0),
            receiver: receivers.remove(0),
            role,
            level,
            arrived: None,
            trouble: None,
            ended: None,
            is_confirmed: false,
            is_notified: false,
            requested: false,
            is_request_notified: false,
            asked: Then::More,
            may_be_purged: false,
            own_errors: 0,
            own_errors_seen: 0,
            errors_seen: 0,
        }
    }

    /// The state that the program knows of: the next verb reports what has come since.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether records can be confirmed.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Begins a verb: checks that it is allowed, and reports what has come that is stronger than it.
    #[inline]
    fn begin(&mut self, verb: Verb) -> Result<(), TryError> {
        self.check(verb)?;
        self.poll_if_ready();
        if self.trouble.is_some() || self.ended.is_some() { self.report() } else { Ok(()) }
    }

    /// Whether the state allows a verb.
    #[inline]
    fn check(&self, verb: Verb) -> Result<(), StateError> {
        let state = self.state;
        if state.allows(verb) { Ok(()) } else { Err(StateError { verb, state }) }
    }

    /// Reports an error of the partner's, or the end, if there is one to report.
    #[cold]
    fn report(&mut self) -> Result<(), TryError> {
        if let Some(trouble) = self.trouble.take() {
            self.state = State::Receive;
            self.is_notified = false;
            return Err(trouble.into());
        }
        match self.ended {
            Some(ended) if self.arrived.is_none() => {
                self.state = State::Sever;
                Err(ended.into())
            }
            _ => Ok(()),
        }
    }
}
