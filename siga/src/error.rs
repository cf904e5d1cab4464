//! Why something was not done, and what the caller can do about it.

pub use crate::guest::ResourceError;
pub use fabric::control::{Limit, Owner, Problem, Reached, RuleName};
pub use fabric::name::NoName;
pub use fabric::path::{JoinError, Lack, NotOurs, Reason, Severed};
pub use fabric::queue::Violation;
pub use os::storage::{BorrowError, OutOfRange};

use fabric::path;

/// Why a message was not sent. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message is longer than the path allows.
    #[error("a message of this length does not go through this path: at most {most} bytes")]
    TooLong {
        /// The longest message, in bytes.
        most: u64,
    },
    /// The head is longer than a head can be.
    #[error("a head of this length does not go before a message: at most {most} bytes")]
    HeadTooLong {
        /// The longest head, in bytes.
        most: usize,
    },
    /// Something has run out that waiting does not bring back. Free some of it and send again.
    #[error("nothing was sent: {0}")]
    Lacking(#[from] Lack),
    /// The receiver has asked for quiet. Send again when it has resumed the path.
    #[error("the receiver has quiesced the path")]
    Quiesced,
    /// The path has ended.
    #[error(transparent)]
    Severed(#[from] Severed),
}

/// Why a message was not sent by a verb that does not wait, or not for long. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError {
    /// The receiver is too far behind. Send again when it has caught up: a waiter says when.
    #[error("the receiver is too far behind")]
    Full,
    /// Waiting would not have helped.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Why claimed room was not sent. The room is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Another half has given the room out, and only that half can send it.
    #[error("this room was claimed of another half, and only that half can send it")]
    NotOurs,
    /// The path does not take the message.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl From<path::SendError> for TrySendError {
    fn from(error: path::SendError) -> TrySendError {
        TrySendError::Send(match error {
            path::SendError::Full => return TrySendError::Full,
            path::SendError::TooLong { most } => SendError::TooLong { most },
            path::SendError::Lacking(lack) => SendError::Lacking(lack),
            path::SendError::Quiesced => SendError::Quiesced,
            path::SendError::Severed(severed) => SendError::Severed(severed),
        })
    }
}

/// The error of a verb that has waited until there was room.
pub(crate) fn after_waiting(error: path::SendError) -> SendError {
    match error.into() {
        TrySendError::Send(error) => error,
        TrySendError::Full => unreachable!("it was waited for"),
    }
}
