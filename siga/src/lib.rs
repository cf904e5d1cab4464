#![doc = include_str!("../README.md")]

pub mod appc;
pub mod connect;
#[cfg(feature = "ctc")]
pub mod ctc;
#[cfg(feature = "disk")]
pub mod disk;
pub mod error;
mod guest;
#[cfg(any(feature = "embedded", feature = "observe"))]
pub mod host;
pub mod in_place;
pub mod iucv;
pub mod lan;
#[cfg(any(feature = "disk", feature = "tcpip"))]
mod lending;
#[cfg(feature = "tcpip")]
pub mod line;
mod link;
mod members;
#[cfg(feature = "observe")]
mod observer;
mod options;
#[cfg(feature = "tcpip")]
pub mod osa;
mod path;
pub mod raw;
#[cfg(any(feature = "ctc", feature = "disk"))]
mod serving;
mod socket;
#[cfg(feature = "tcpip")]
mod stopper;
mod switchboard;
#[cfg(feature = "tcpip")]
pub mod tcpip;
#[cfg(feature = "tokio")]
pub mod tokio;
pub mod waiter;
mod waiting;
mod whole;

pub use connect::{Pending, Target, UserData};
pub use error::{Reason, SendError, Severed, TrySendError};
pub use guest::{AttachError, Attachment, AttachmentState, ConnectError, Connecting, Guest};
pub use members::Served;
pub use options::PathOptions;
pub use path::{Path, Receiver, Sender};
pub use socket::{SYSTEM_SOCKET, default_socket, own_socket};
#[cfg(feature = "tcpip")]
pub use stopper::Stopper;
pub use waiter::{Key, Waiter};
pub use waiting::Wait;

pub use fabric::name::Name;
pub use fabric::path::Message;
