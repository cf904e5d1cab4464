//! The way of the data.
#![forbid(unsafe_code)]

pub mod queue;
