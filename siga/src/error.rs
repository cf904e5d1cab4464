//! Why something was not done, and what the caller can do about it.

pub use crate::guest::ResourceError;
pub use fabric::control::Problem;
pub use fabric::name::NoName;
pub use fabric::path::{CommitError, JoinError, Lack, NotOurs, Reason, SendError, Severed};
pub use fabric::queue::Violation;
