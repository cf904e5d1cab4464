//! The way of the data.
#![forbid(unsafe_code)]

#[cfg(not(loom))]
pub mod control;
pub mod name;
#[cfg(not(loom))]
pub mod path;
pub mod queue;
