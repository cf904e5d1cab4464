//! What a guest learns of a path.

use std::fmt;

use super::record::MessageId;
use fabric::path::Severed;

/// The kind of an event: the types of IUCV's external interrupt, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Interrupt {
    /// Somebody wants a path to this guest.
    ConnectionPending = 1,
    /// A path that this guest asked for was accepted.
    ConnectionComplete = 2,
    /// A path has ended, or will not be.
    PathSevered = 3,
    /// The other side wants no messages for now.
    PathQuiesced = 4,
    /// The other side wants messages again.
    PathResumed = 5,
    /// A priority message is complete.
    PriorityMessageComplete = 6,
    /// A message without priority is complete.
    MessageComplete = 7,
    /// A priority message waits to be received.
    PriorityMessagePending = 8,
    /// A message without priority waits to be received.
    MessagePending = 9,
}

/// What has become of a message, as IPAUDIT has it: no bit, and all went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit(pub u32);

impl Audit {
    /// (IPADRJCT) The target has rejected the message.
    pub const REJECTED: Audit = Audit(0x0010_0000);
    /// (IPADSVRD) The path was severed before the message was complete.
    pub const SEVERED: Audit = Audit(0x0000_8000);

    /// Whether all went well.
    pub fn is_good(self) -> bool {
        self == Audit::default()
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match *self {
            Audit(0) => "complete",
            Audit::REJECTED => "rejected by the target",
            Audit::SEVERED => "the path was severed first",
            Audit(other) => return write!(formatter, "audit {other:06x}"),
        })
    }
}

/// A message that waits to be received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingMessage {
    /// Its identity.
    pub id: MessageId,
    /// (TRGCLS) The class that its source has given it for us.
    pub class: u32,
    /// How many bytes it has.
    pub bytes: usize,
    /// Whether it has priority.
    pub priority: bool,
    /// The longest reply that its source takes; none if it wants none.
    pub reply_bytes_max: Option<u32>,
    /// Whether its data came in the parameter list.
    pub parameters: bool,
}

/// A message of ours that is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Its identity.
    pub id: MessageId,
    /// (SRCCLS) The class that we gave it for ourselves.
    pub source_class: u32,
    /// (MSGTAG) The tag that we gave it.
    pub tag: u32,
    /// For a two-way message, whether the reply has priority; else whether the message had.
    pub priority: bool,
    /// What has become of it.
    pub audit: Audit,
    /// How many bytes of reply there are; none if it was not replied to.
    pub reply_bytes: Option<usize>,
    /// Whether the reply came in the parameter list.
    pub parameters: bool,
}

/// Something that has happened on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The path has ended. What the other side has sent can still be received.
    Severed(Severed),
    /// The other side wants no messages for now: a send is refused. Replies go on.
    Quiesced,
    /// The other side wants messages again.
    Resumed,
    /// A message of ours is complete.
    Complete(Completion),
    /// A message waits to be received.
    Pending(PendingMessage),
}

impl Event {
    /// The type of interrupt that this is.
    pub fn interrupt(&self) -> Interrupt {
        match self {
            Event::Severed(_) => Interrupt::PathSevered,
            Event::Quiesced => Interrupt::PathQuiesced,
            Event::Resumed => Interrupt::PathResumed,
            Event::Complete(Completion { priority: true, .. }) => {
                Interrupt::PriorityMessageComplete
            }
            Event::Complete(_) => Interrupt::MessageComplete,
            Event::Pending(PendingMessage { priority: true, .. }) => {
                Interrupt::PriorityMessagePending
            }
            Event::Pending(_) => Interrupt::MessagePending,
        }
    }
}
