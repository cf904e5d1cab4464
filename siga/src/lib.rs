#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod appc;
mod guest;
pub mod iucv;
mod link;
mod members;
#[cfg(feature = "observe")]
mod observer;
mod options;
mod path;
mod socket;
mod switchboard;
mod waiter;
mod waiting;
mod whole;

pub use guest::{AttachError, ConnectError, Connecting, Guest, ResourceError};
pub use members::Served;
#[cfg(feature = "observe")]
pub use observer::{ObserveError, Observer};
pub use options::PathOptions;
pub use path::{Path, ReceiveError, Receiver, Sender};
pub use socket::default_socket;
pub use waiter::{DOORBELLS_MAX, Key, Member, OneOf, Waiter};
pub use waiting::{SPIN_NS_MAX, Wait};

pub use fabric::control::{Kind, Pending, Problem, Scope, Target, UserData};
pub use fabric::name::{Name, NoName};
pub use fabric::path::{
    Announced, Claim, CommitError, Counter, Counters, END_DATA_BYTES, HEAD_BYTES_MAX, InPage,
    Incoming, JoinError, Lack, List, ListError, Message, MessageRef, NotOurs, PAGE_BYTES, Reason,
    Ringing, SendError, Severed, Shared, View,
};
pub use fabric::queue::{Entry, EntryFlags, Lease, LeaseLost, Server, Violation};
#[cfg(feature = "observe")]
pub use host::report;
#[cfg(feature = "embedded")]
pub use host::{Embedded, system::System};
pub use os::doorbell::Listen;
pub use os::storage::StorageOptions;
