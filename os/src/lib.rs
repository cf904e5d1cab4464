#![doc = include_str!("../README.md")]
#![expect(unsafe_code, reason = "this crate holds the unsafe code of all crates")]

pub mod again;
pub mod alarm;
pub mod copy;
pub mod doorbell;
mod early;
pub mod event;
pub mod foreign;
pub mod fork;
pub mod fresh;
pub mod interface;
mod limit;
pub mod macvtap;
mod mapping;
pub mod memory;
pub mod namespace;
pub mod offload;
pub mod packet;
pub mod packets;
pub mod peer;
mod place;
pub mod poller;
pub mod processor;
pub mod program;
pub mod random;
pub mod signals;
pub mod socket;
pub mod storage;
pub mod sync;
pub mod tap;
#[cfg(feature = "uring")]
pub mod uring;
pub mod view;
pub mod words;
pub mod xdp;
