#![doc = include_str!("../README.md")]

pub mod copy;
pub mod doorbell;
pub mod fork;
mod mapping;
pub mod storage;
pub mod sync;
pub mod words;
