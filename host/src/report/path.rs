//! Paths: the counters of their sides, and each buffer of their queues.

use std::fmt;

use fabric::path::board::{SLEEP_WORD, reader_block, writer_block};
use fabric::path::{Counter, Shape, gauge_word};
use fabric::queue::{Owner, QUEUE_BUFFERS, RETURNED_WORD, State, audit};
use message::iucv::gauge;
use os::sync::Ordering;
use os::words::LentWords;
use serde::{Deserialize, Serialize};

use super::Counts;

/// A path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PathReport {
    /// Its number.
    pub path: u64,
    /// What it is for: `messages`, `IUCV`, `APPC`, `LAN`, `disk`.
    pub kind: String,
    /// Its state.
    pub state: PathState,
    /// Both sides: first the guest that asked for the path, then the guest that was asked. If only one has
    /// it, the other has no counters.
    pub sides: Vec<SideReport>,
}

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    /// It waits to be accepted.
    Pending,
    /// Both sides have it.
    Joined,
    /// Only one side has it: the other has not reported it to this host yet, or has ended it.
    #[serde(rename = "one-sided")]
    OneSided,
}

/// As in the JSON of a report.
impl fmt::Display for PathState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            PathState::Pending => "pending",
            PathState::Joined => "joined",
            PathState::OneSided => "one-sided",
        })
    }
}

/// A side of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SideReport {
    /// Whose side.
    pub guest: String,
    /// Counters of the halves that send, one for each output queue.
    pub outputs: Vec<HalfReport>,
    /// Counters of the halves that receive, one for each input queue.
    pub inputs: Vec<HalfReport>,
}

/// A half of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HalfReport {
    /// Whether its sleep word says that it sleeps.
    pub asleep: bool,
    /// How many messages it may have outstanding, if it sends messages of a conversation with a limit.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Its counters.
    pub counts: Counts,
}

/// Every buffer of every queue of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditReport {
    /// The path.
    pub path: u64,
    /// Its queues.
    pub queues: Vec<QueueAudit>,
}

/// Every buffer of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueAudit {
    /// Which of its writer's outputs it is.
    pub queue: usize,
    /// Who writes.
    pub writer: String,
    /// Who reads.
    pub reader: String,
    /// The buffers, in order.
    pub buffers: Vec<Buffer>,
}

/// A buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Buffer {
    /// The side that may use it now.
    pub owner: BufferOwner,
    /// The state that the side which handed it over last has given it.
    pub state: BufferState,
    /// How often the writer has handed it over.
    pub primed: u32,
    /// How often the reader has given it back.
    pub given_back: u32,
}

/// The side of a queue that may use a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BufferOwner {
    /// The writer, to fill it.
    Writer,
    /// The reader, to read it.
    Reader,
}

/// As in the JSON of a report.
impl fmt::Display for BufferOwner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            BufferOwner::Writer => "writer",
            BufferOwner::Reader => "reader",
        })
    }
}

impl BufferOwner {
    pub(super) fn of(owner: Owner) -> BufferOwner {
        match owner {
            Owner::Writer => BufferOwner::Writer,
            Owner::Reader => BufferOwner::Reader,
        }
    }
}

/// The state of a buffer, as QDIO names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BufferState {
    /// It was never used.
    #[serde(rename = "not initialised")]
    NotInitialised,
    /// It is free to be filled; its content has been read.
    Empty,
    /// It is filled.
    Primed,
    /// It is free to be filled; the storage that it pointed to is still being read.
    Pending,
    /// The queue ends with it.
    Halted,
}

/// As in the JSON of a report.
impl fmt::Display for BufferState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            BufferState::NotInitialised => State::NotInitialised.name(),
            BufferState::Empty => State::Empty.name(),
            BufferState::Primed => State::Primed.name(),
            BufferState::Pending => State::Pending.name(),
            BufferState::Halted => State::Halted.name(),
        })
    }
}

impl BufferState {
    pub(super) fn of(state: State) -> BufferState {
        match state {
            State::NotInitialised => BufferState::NotInitialised,
            State::Empty => BufferState::Empty,
            State::Primed => BufferState::Primed,
            State::Pending => BufferState::Pending,
            State::Halted => BufferState::Halted,
        }
    }
}

/// The counters of all halves of a side.
pub(crate) fn side(guest: String, board: &LentWords, shape: Shape) -> SideReport {
    let half = |control: LentWords, counters: LentWords| {
        let load = |word| counters.load(word, Ordering::Relaxed);
        let counted = Counter::ALL.iter().map(|counter| (counter.name(), *counter as usize));
        let gauges = [("outstanding", gauge::OUTSTANDING), ("waiting", gauge::WAITING)];
        let shown = gauges.map(|(name, gauge)| (name, gauge_word(gauge)));
        let limit = load(gauge_word(gauge::LIMIT));
        HalfReport {
            asleep: control.load(SLEEP_WORD, Ordering::Relaxed) & 1 == 1,
            limit: (limit > 0).then_some(limit),
            counts: counted
                .chain(shown)
                .map(|(name, word)| (name.to_owned(), load(word)))
                .collect(),
        }
    };
    let outputs = (0..shape.outputs).map(|queue| {
        let block = writer_block(board, shape, queue);
        half(block.control, block.counters)
    });
    let inputs = (0..shape.inputs).map(|queue| {
        let block = reader_block(board, shape, queue);
        half(block.control, block.counters)
    });
    SideReport { guest, outputs: outputs.collect(), inputs: inputs.collect() }
}

/// The queues that go from the side with board `writer` to that with board `reader`.
pub(crate) fn audit_queues(
    (writer_name, writer): (&str, &LentWords),
    (reader_name, reader): (&str, &LentWords),
    writer_shape: Shape,
) -> Vec<QueueAudit> {
    let queue = |queue| {
        let counters = writer_block(writer, writer_shape, queue).counters;
        let block = reader_block(reader, writer_shape.mirrored(), queue);
        let primed = counters.load(Counter::Buffers as usize, Ordering::Acquire);
        let returned = block.returns.load(RETURNED_WORD, Ordering::Acquire);
        let buffer = |index| {
            let kept = block.kept.load(index, Ordering::Acquire);
            let audit = audit(index, primed, returned.min(primed), kept);
            Buffer {
                owner: BufferOwner::of(audit.owner),
                state: BufferState::of(audit.state),
                primed: audit.primed,
                given_back: audit.returned,
            }
        };
        QueueAudit {
            queue,
            writer: writer_name.into(),
            reader: reader_name.into(),
            buffers: (0..QUEUE_BUFFERS).map(buffer).collect(),
        }
    };
    (0..writer_shape.outputs).map(queue).collect()
}
