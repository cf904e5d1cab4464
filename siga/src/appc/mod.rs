//! APPC/VM: conversations, in which one side sends while the other receives.
//!
//! A guest *identifies* itself as the manager of a resource ([`crate::Guest::identify`]); others *allocate* a
//! conversation with its manager. A [`Conversation`] is for a program that has one at a time: its verbs
//! wait (WAIT=YES). An [`AppcGuest`] is for one that has many: it starts functions and is notified when they are
//! complete (WAIT=NO). Each verb is allowed in some states only; [`message::appc`] has the table.
//!
//! ```
//! use siga::appc::{Conversation, Options, State, Then};
//! use siga::connect::Scope;
//! use siga::host::{Embedded, System};
//! use siga::Guest;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let host = Embedded::start(System::open())?;
//! # let (server, client) = (Guest::attach_embedded(&host, "SERVER")?, Guest::attach_embedded(&host, "CLIENT")?);
//! server.identify("TIME", Scope::Local)?;
//! let serving = std::thread::spawn(move || {
//!     let mut conversation = Conversation::accept(&server, &Options::default()).unwrap();
//!     let mut question = [0; 100];
//!     let received = conversation.receive(&mut question).unwrap();
//!     assert_eq!(received.status, State::Send); // It is our turn.
//!     conversation.send(b"a minute past noon", Then::Sever).unwrap();
//! });
//! let mut conversation = Conversation::allocate(&client, "TIME", &Options::default())?;
//! conversation.send(b"what time is it?", Then::Receive)?;
//! let mut answer = [0; 100];
//! let received = conversation.receive(&mut answer)?;
//! assert_eq!(&answer[..received.bytes], b"a minute past noon");
//! assert_eq!(received.status, State::Sever);
//! # serving.join().unwrap();
//! # Ok(())
//! # }
//! ```

mod conversation;
mod function;
mod guest;
mod options;
mod waits;

pub use conversation::Conversation;
pub use function::{Completed, Function};
pub use guest::{AcceptError, AppcGuest, Busy, ConversationId, GuestEvent, Interrupt};
pub use options::Options;

pub use message::appc::{
    Data, Ended, Level, Received, State, StateError, Then, Trouble, Verb, VerbError,
};
