//! A path of IUCV, as one of its two sides has it.

mod events;
mod inbound;
mod lifecycle;
mod source;
mod target;

use std::collections::{HashMap, VecDeque};

pub use events::Counts;
pub use source::PurgeError;
pub use target::{InPlace, ReceiveError, Received, ReplyError, TryReplyError};

use super::event::{Completion, PendingMessage};
use super::inbox::Inbox;
use super::outgoing::Table;
use super::record::{ID_BYTES, IDS_MAX, MessageId, QUEUES, Record};
use fabric::path::{Halves, Receiver, Sender, Severed};

/// Messages that a side may have outstanding on a path.
pub const MESSAGES_MAX: u32 = 65_535;

/// Bytes of messages taken into our own memory because something behind them was searched for. When there
/// are more, the plain queue is not polled: searches find what was taken so far. Messages with priority are
/// taken all the same, for control records stand behind them: 256 MiB are kept at most.
pub const BUFFERED_BYTES_MAX: usize = 64 << 20;

/// Bytes of messages with priority that a path keeps in memory of its own, with the others, at most: the urgent
/// queue must go on, for replies come over it. Beyond this the path ends for want of memory.
const PRIORITY_BYTES_MAX: usize = 256 << 20;

/// The queue of messages without priority: that of a message is its priority as a number.
const PLAIN: usize = 0;
/// The queue of messages with priority, and of control records.
const URGENT: usize = 1;

/// Levels that a side shows those who watch, in the gauges of its first queue each way.
pub mod gauge {
    /// Of the sender: messages sent and not complete. Of the receiver: received, and not replied to.
    pub const OUTSTANDING: usize = 0;
    /// Of the sender: messages complete, and nobody took their completion. Of the receiver: arrived, and
    /// nobody received them.
    pub const WAITING: usize = 1;
    /// Of the sender: messages that may be outstanding.
    pub const LIMIT: usize = 2;
}

/// What the two sides of a path have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages that we may have outstanding, 1 to [`MESSAGES_MAX`].
    pub ours: u32,
    /// Messages that the other side may have outstanding.
    pub theirs: u32,
    /// Whether we take data in the parameter list (PRMDATA=YES).
    pub parameters_for_us: bool,
    /// Whether the other side does.
    pub parameters_for_them: bool,
}

/// Which message is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The next: those with priority first, else as they came. One that was received in part is not
    /// meant.
    Any,
    /// The next of a class.
    Class(u32),
    /// The one of this identity, which must be of this class.
    Message {
        /// Its identity.
        id: MessageId,
        /// Its class: TRGCLS of one that is received, SRCCLS of one that is complete.
        class: u32,
    },
}

/// A message that was received and waits for our reply.
#[derive(Clone, Copy, Debug)]
struct Awaiting {
    id: MessageId,
    reply_bytes_max: u32,
}

/// A path of IUCV.
#[derive(Debug)]
pub struct Path {
    senders: [Sender; QUEUES],
    receivers: [Receiver; QUEUES],
    limits: Limits,
    /// What we have sent.
    table: Table,
    /// What has come and was not received, or not all of it.
    pending: Inbox<PendingMessage>,
    /// What became of our messages, and was not taken.
    complete: Inbox<Completion>,
    /// By the index in its identity.
    awaiting: Vec<Option<Awaiting>>,
    awaiting_count: usize,
    /// One-way messages that we have received and not acknowledged.
    completed: Vec<u8>,
    /// Bytes of their identities at which we acknowledge at the latest.
    completed_bytes_max: usize,
    /// Messages that we have rejected or dropped: the control records to be sent.
    ended: VecDeque<Record>,
    /// Messages of ours that we have purged: the control records to be sent.
    purged: VecDeque<MessageId>,
    /// Messages that the other side has purged, by their indexes, and that we have not polled. Messages that we
    /// received before the other side learned of it are among them.
    purged_ahead: HashMap<usize, MessageId>,
    /// Whether we want the path quiesced, and whether the last record sent says so.
    wants_quiet: bool,
    has_sent_quiet: bool,
    /// Whether the other side has quiesced the path, and whether the last event says so.
    is_quiet: bool,
    is_quiet_notified: bool,
    severed: Option<Severed>,
    is_severed_notified: bool,
    /// Whether nothing more comes over each queue, and whether nothing is to be had any more.
    is_over: [bool; QUEUES],
    is_final: bool,
}

impl Path {
    /// A path of IUCV over a path of two queues each way.
    ///
    /// # Panics
    /// If there are not two queues each way, or a limit is out of range.
    pub fn new(halves: Halves, limits: Limits) -> Path {
        let Limits { ours, theirs, .. } = limits;
        let within = 1..=MESSAGES_MAX;
        assert!(within.contains(&ours) && within.contains(&theirs), "limits: {limits:?}");
        let senders: [Sender; QUEUES] = halves.senders.try_into().expect("two queues each way");
        let [mut plain, urgent] = senders;
        plain.show(gauge::LIMIT, ours.into());
        Path {
            senders: [plain, urgent],
            receivers: halves.receivers.try_into().expect("two queues each way"),
            limits,
            table: Table::new(ours),
            pending: Inbox::default(),
            complete: Inbox::default(),
            awaiting: Vec::new(),
            awaiting_count: 0,
            completed: Vec::new(),
            completed_bytes_max: ID_BYTES * IDS_MAX.min(theirs as usize / 4).max(1),
            ended: VecDeque::new(),
            purged: VecDeque::new(),
            purged_ahead: HashMap::new(),
            wants_quiet: false,
            has_sent_quiet: false,
            is_quiet: false,
            is_quiet_notified: false,
            severed: None,
            is_severed_notified: false,
            is_over: [false; _],
            is_final: false,
        }
    }

    /// What the two sides have agreed on.
    pub fn limits(&self) -> Limits {
        self.limits
    }
}
