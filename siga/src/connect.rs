//! What two guests negotiate when a path is made, and the data that goes with its end.

pub use fabric::control::{Kind, Pending, Scope, Target, UserData};
pub use fabric::path::{END_DATA_BYTES, Shape};
