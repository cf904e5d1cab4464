//! APPC/VM: conversations, in which one side sends while the other receives, over a path of one queue each
//! way.
//!
//! The verbs and states are those of the mainframe's Advanced Program-to-Program Communication: who has
//! allocated the conversation *sends* first; it *turns round* with its last record, and the other side
//! sends. A record can ask to be *confirmed*, and a receiver can take the turn by an *error*: it purges what
//! was sent and not received. [`State::allows`] says which verb is allowed when.
//!
//! What has to overtake data, a request to send and an error, needs no queue of its own: both come from the
//! side that receives, and a side that receives has nothing of its own in the way. See `docs/design/appc.md`.
//!
//! A conversation is a part like any other here: it does not wait, and asks no clock. The crate `siga` adds
//! waiting, and guests with many conversations.

mod conversation;
mod outcome;
mod record;
mod state;

pub use conversation::{Conversation, Level, Role};
pub use outcome::{Data, Ended, Event, Received, Trouble, TryError, VerbError};
pub use record::Then;
pub use state::{State, StateError, Verb};
