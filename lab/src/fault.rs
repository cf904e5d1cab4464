//! What can go wrong in a trial.

use std::fmt::Display;

/// Why a worker could not finish its part of a trial.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// This machine does not allow the trial. Nothing is wrong, but nothing can be measured.
    #[error("{0}")]
    Unable(String),
    /// A message differs from what was sent, or arrived out of order.
    #[error("message {0} is not what was sent")]
    Corrupt(u64),
    /// The other side ended too early.
    #[error("the other side ended early")]
    Ended,
    /// The lab's process has ended.
    #[error("the lab is gone")]
    Orphaned,
    /// Nothing was counted before the end of the window.
    #[error("nothing came within the window: give it more --seconds")]
    Nothing,
    /// An operation failed.
    #[error("{what}: {why}")]
    Refused {
        /// What was being done.
        what: &'static str,
        /// The error.
        why: String,
    },
}

/// Adds what was being done to an error.
pub trait Doing<T> {
    /// The same result, its error a [`Fault`] that says `what` was being done.
    ///
    /// # Errors
    /// [`Fault::Refused`].
    fn doing(self, what: &'static str) -> Result<T, Fault>;
}

impl<T, E: Display> Doing<T> for Result<T, E> {
    #[inline]
    fn doing(self, what: &'static str) -> Result<T, Fault> {
        match self {
            Ok(done) => Ok(done),
            Err(error) => Err(refused(what, &error)),
        }
    }
}

#[cold]
fn refused(what: &'static str, error: &dyn Display) -> Fault {
    Fault::Refused { what, why: error.to_string() }
}
