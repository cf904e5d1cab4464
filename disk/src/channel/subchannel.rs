//! What a subchannel is doing, and what it has measured.

use std::collections::VecDeque;

use super::request::Answer;
use super::walk::{Check, Piece, PieceList, Walk};
use crate::format::orb::Orb;
use crate::format::scsw::SubchannelStatus;

/// The measurement block of a subchannel: times in nanoseconds, added up over all operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measurement {
    /// Starts and resumptions that were accepted.
    pub starts: u64,
    /// Operations that were measured: those that the control unit has ended.
    pub samples: u64,
    /// From the start to the control unit's first answer.
    pub pending_ns: u64,
    /// From there to the end.
    pub connect_ns: u64,
    /// Of the pending time: until the first command response.
    pub initial_response_ns: u64,
    /// Waiting because the control unit was busy.
    pub queue_ns: u64,
}

/// A command that was sent and may not be done.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    pub(super) sequence: u16,
    pub(super) pieces: PieceList,
    pub(super) count: u32,
    /// Behind its last CCW.
    pub(super) end: u32,
}

/// Why an exchange is to end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The program is wrong.
    Check(Check),
    /// It suspends itself.
    Suspend,
    /// It was halted.
    Halt,
    /// It was cleared.
    Clear,
}

/// What runs on a subchannel.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) orb: Orb,
    /// The exchange, while there is one.
    pub(super) exchange: Option<u32>,
    /// In command mode.
    pub(super) walk: Option<Walk>,
    /// All commands were sent.
    pub(super) is_sent: bool,
    pub(super) commands: u16,
    /// Command responses that arrived.
    pub(super) responses: u16,
    pub(super) flights: VecDeque<Flight>,
    /// Behind the CCW of the last command whose data have come.
    pub(super) last_end: u32,
    pub(super) stop: Option<Stop>,
    /// The program waits to be resumed.
    pub(super) is_suspended: bool,
    /// The control unit was busy: to be started again.
    pub(super) is_busy: bool,
    /// In transport mode: where data go, and the address of the status block.
    pub(super) input: Vec<Piece>,
    pub(super) tsb: u64,
    pub(super) answer: Answer,
    /// Bytes of the subchannel's part of the result storage that are in use.
    pub(super) result_bytes: u32,
    /// Why data were lost, if any were.
    pub(super) lost: SubchannelStatus,
    pub(super) started_ns: u64,
    pub(super) responded_ns: Option<u64>,
}

/// A subchannel.
#[derive(Debug, Default)]
pub(super) struct Subchannel {
    /// What runs. Its memory is used again.
    pub(super) run: Run,
    pub(super) is_running: bool,
    pub(super) measurement: Measurement,
}

impl Run {
    /// Forgets everything, and keeps the memory.
    pub(super) fn begin(&mut self, orb: Orb, now: u64) {
        self.orb = orb;
        self.exchange = None;
        self.walk = None;
        self.is_sent = false;
        self.commands = 0;
        self.responses = 0;
        self.flights.clear();
        self.last_end = 0;
        self.stop = None;
        self.is_suspended = false;
        self.is_busy = false;
        self.input.clear();
        self.tsb = 0;
        self.answer.clear();
        self.result_bytes = 0;
        self.lost = SubchannelStatus::default();
        self.started_ns = now;
        self.responded_ns = None;
    }
}
