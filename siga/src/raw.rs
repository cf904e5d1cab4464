//! The engine below: halves of a path whose verbs never wait, for what few programs need.
//!
//! [`Sender::raw`](crate::Sender::raw) and [`Receiver::raw`](crate::Receiver::raw) give them out. With them come
//! lists of entries over storage of the program's own ([`Shared`]), rings that are deferred ([`Ringing`]), and
//! counters. A half that several threads serve in turn goes under a [`Lease`].

/// How long [`Wait::Adaptive`](crate::Wait::Adaptive) polls at most before it sleeps: 50 us.
pub use crate::waiting::SPIN_NS_MAX;
pub use fabric::path::{
    CommitError, Counter, Counters, Fetched, List, ListError, Receiver, Ringing, SendError, Sender,
    Shared,
};
pub use fabric::queue::{Entry, EntryFlags, Lease, LeaseLost, Server};
pub use os::doorbell::Listen;
pub use os::storage::StorageOptions;

/// The path below an [`IucvPath`](crate::iucv::IucvPath), and what its verbs return instead of waiting.
pub mod iucv {
    pub use message::iucv::{InPlace, Path, TryReplyError, TrySendError};
}

/// The conversation below a [`Conversation`](crate::appc::Conversation), and what its verbs return instead of
/// waiting.
pub mod appc {
    pub use message::appc::{Conversation, TryError};
}
