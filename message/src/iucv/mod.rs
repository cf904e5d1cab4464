//! IUCV: messages with classes, priorities and replies, over a path of two queues each way.
//!
//! The functions and their meaning are those of the mainframe's Inter-User Communications Vehicle: a
//! message is *sent*, *received* in one part or several, and, if it was sent both ways, *replied* to; it
//! can be *purged* by its sender and *rejected* by its target. It is found by its identity, by its class, or
//! as the next. What the mainframe keeps in a message block of its own, the two sides keep here: the
//! source what it has sent and not seen complete, the target what has come and was not received.
//!
//! ```text
//! queue 0   messages without priority                              | head | data |
//! queue 1   messages with priority, and control records
//! ```
//!
//! So a message that nobody receives delays nothing: priority has a queue of its own; the target of a search
//! by identity or class takes what stands in front into memory of its own; a message of more than a page
//! is announced, and stays with its source until it is received. `record` has the formats.
//!
//! A path of IUCV is a part like any other here: it does not wait, and asks no clock. The crate `siga` adds
//! waiting, guests with many paths, and masks.

mod event;
mod inbox;
mod outgoing;
mod path;
mod record;
mod store;

pub use event::{Audit, Completion, Event, Interrupt, PendingMessage};
pub use outgoing::{Outgoing, SendError, TrySendError};
pub use path::{
    BUFFERED_BYTES_MAX, Counts, InPlace, Limits, MESSAGES_MAX, Path, PurgeError, ReceiveError,
    Received, ReplyError, TryReplyError, Which, gauge,
};
pub use record::{MessageId, PARAMETER_BYTES, QUEUES};
