//! What can go wrong in a trial.

use std::fmt::Display;

/// Why a worker could not do its part.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// This machine does not allow it: nothing is wrong, but nothing can be measured.
    #[error("{0}")]
    Unable(String),
    /// A message was not what was sent, or not the one whose turn it was.
    #[error("message {0} is not what was sent")]
    Corrupt(u64),
    /// The other side ended before it was its turn to.
    #[error("the other side ended early")]
    Ended,
    /// The process that started this one is gone.
    #[error("the lab is gone")]
    Orphaned,
    /// The window was over before there was something to count.
    #[error("nothing came within the window: give it more --seconds")]
    Nothing,
    /// Something was refused.
    #[error("{what}: {why}")]
    Refused {
        /// What was being done.
        what: &'static str,
        /// What came of it.
        why: String,
    },
}

/// Says what was being done when an error came.
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
