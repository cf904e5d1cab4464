//! IUCV: messages with classes, priorities and replies.
//!
//! A [`IucvPath`] is for a program that talks to one other and waits for it: [`IucvPath::call`] sends a question and
//! waits for the answer, [`IucvPath::receive`] waits for what is asked, [`IucvPath::reply`] answers. A [`IucvGuest`] is for
//! one that has many paths and is driven by their events, the nine kinds of IUCV's interrupt in their
//! order, under masks. Both know everything that IUCV knows; what does not wait is
//! [`raw::iucv::Path`](crate::raw::iucv::Path), reached by [`IucvPath::raw`]. [`Stream`] and [`SeqPacket`] are for programs that were
//! written for sockets.
//!
//! ```
//! use siga::iucv::{Options, Outgoing, IucvPath, Which};
//! use siga::host::{Embedded, System};
//! use siga::Guest;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let host = Embedded::start(System::open())?;
//! # let (server, client) = (Guest::attach_embedded(&host, "SERVER")?, Guest::attach_embedded(&host, "CLIENT")?);
//! let serving = std::thread::spawn(move || {
//!     let mut path = IucvPath::accept(&server, &Options::default()).unwrap();
//!     let mut question = [0; 100];
//!     let received = path.receive(Which::Any, &mut question).unwrap();
//!     path.reply(received.message.id, b"a minute past noon").unwrap();
//! });
//! let mut path = IucvPath::connect(&client, "SERVER", &Options::default())?;
//! let mut answer = [0; 100];
//! let answered = path.call(&Outgoing::default(), b"what time is it?", &mut answer)?;
//! assert_eq!(&answer[..answered.bytes], b"a minute past noon");
//! # serving.join().unwrap();
//! # Ok(())
//! # }
//! ```

mod guest;
mod mask;
mod options;
mod path;
mod socket;
mod waits;

pub use guest::{GuestEvent, IucvGuest, PathError, PathId};
pub use mask::{ControlMask, Mask};
pub use options::Options;
pub use path::{Answered, CallError, IucvPath};
pub use socket::{Address, Listener, SeqPacket, Stream};

pub use message::iucv::{
    Audit, Completion, Counts, Event, Interrupt, Limits, MESSAGES_MAX, MessageId, Outgoing,
    PARAMETER_BYTES, PendingMessage, PurgeError, ReceiveError, Received, ReplyError, SendError,
    Which,
};
