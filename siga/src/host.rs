//! A host in the program itself, and what a host says of its guests and paths.

#[cfg(feature = "observe")]
pub use crate::observer::{ObserveError, Observer};
#[cfg(feature = "observe")]
pub use ::host::report;
#[cfg(feature = "embedded")]
pub use ::host::{Embedded, system::System};
