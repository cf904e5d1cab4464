//! An embedded host, and a host's reports on its guests and paths.

#[cfg(feature = "observe")]
pub use crate::observer::{ObserveError, Observer};
#[cfg(feature = "embedded")]
pub use ::host::config::{FileError, Source};
#[cfg(feature = "observe")]
pub use ::host::report;
#[cfg(feature = "embedded")]
pub use ::host::{Embedded, system::System};
