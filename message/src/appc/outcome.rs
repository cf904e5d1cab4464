//! What comes of verbs, and events.

use super::state::{State, StateError};
use fabric::path::{END_DATA_BYTES, Lack, Severed};

/// What came of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// How many bytes were copied.
    pub bytes: usize,
    /// Whether that was a record, or a part of one.
    pub data: Data,
    /// What comes next, by the state of this side now: RECEIVE if there is more.
    pub status: State,
    /// (SENDREQ) Whether the partner has asked for the turn since this was last reported.
    pub requested: bool,
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// No data: the partner has sent only what comes next.
    None,
    /// A part of a record: receive again.
    Incomplete {
        /// How many bytes are left.
        left: usize,
    },
    /// A record, or the last part of one.
    Complete,
}

/// (PROG_ERROR) The partner has found an error. It is its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It was receiving, or was asked to confirm: what it had not received is purged.
    #[error("the partner has found an error, and what it had not received is purged")]
    Purging,
    /// It was sending: nothing is lost.
    #[error("the partner has found an error in what it sends")]
    NoTruncation,
}

/// The conversation has ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The partner has ended it in good order.
    #[error("the partner has ended the conversation")]
    Normal,
    /// The partner has ended it where it stood, and says this about it.
    #[error("the partner has ended the conversation where it stood")]
    Abend([u8; END_DATA_BYTES]),
    /// Nobody has ended it: the path has failed.
    #[error("the conversation has failed: {0}")]
    Failed(Severed),
}

/// Why a verb is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerbError {
    /// The state does not allow it. Nothing was changed.
    #[error(transparent)]
    State(#[from] StateError),
    /// The conversation was allocated without confirmation. Nothing was changed.
    #[error("the conversation was allocated without confirmation")]
    NoConfirmation,
    /// The record is longer than the storage of the path allows. Nothing was changed.
    #[error("a record of this length does not go through this path: at most {most} bytes")]
    TooLong {
        /// The limit.
        most: u64,
    },
    /// Something is missing that no wait brings back. Nothing was changed.
    #[error("nothing was sent: {0}")]
    Lacking(Lack),
    /// It was not done: the partner has found an error. This side is in RECEIVE state now.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// It was not done: the conversation has ended. This side is in SEVER state now.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Why a verb that does not wait is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryError {
    /// It waits for the partner: call it again.
    #[error("the partner has not come so far")]
    Pending,
    /// Waiting would not have helped.
    #[error(transparent)]
    Verb(VerbError),
}

impl<E: Into<VerbError>> From<E> for TryError {
    fn from(error: E) -> TryError {
        TryError::Verb(error.into())
    }
}

/// Something that happens between verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The next verb will find something: data, what comes next, or an error of the partner's.
    MessagePending,
    /// (SENDREQ) The partner asks for the turn.
    Request,
    /// The conversation has ended. The next verb reports it too.
    Severed(Ended),
}
