//! What two guests say to each other when a path is made, and when it ends.

pub use fabric::control::{Kind, Pending, Scope, Target, UserData};
pub use fabric::path::END_DATA_BYTES;
