//! Messages that are built in memory lent to the receiver, and read where they lie.
//!
//! A sender claims room with [`Sender::claim`](crate::Sender::claim), fills it, and commits it. A receiver that
//! calls [`Receiver::poll`](crate::Receiver::poll) has each message as it lies: [`Incoming`] says how.

pub use fabric::path::{
    Announced, Claim, HEAD_BYTES_MAX, InPage, Incoming, MessageRef, PAGE_BYTES, View,
};
pub use os::storage::LentPart;
