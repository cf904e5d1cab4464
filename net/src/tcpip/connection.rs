//! The connections of a stack, and what a program can learn of one.

use std::net::SocketAddr;

use fabric::path::Lack;

use super::buffers::Buffers;
use super::keep_alive::{Keeper, Step};
use super::route::Hop;
use super::stack::Tuple;
use super::tcp::{Answer, State, Tcb, TcpConfig};
use super::timer::Timer;
use crate::board::{Row, RowState};

/// Stands for a connection until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    index: u32,
    /// Which of those that have had this index.
    age: u32,
}

impl ConnectionId {
    /// Stands for the connection that has had this index after so many others.
    pub(super) fn new(index: u32, age: u32) -> ConnectionId {
        ConnectionId { index, age }
    }

    /// How many connections have had its index before.
    pub(super) fn age(self) -> u32 {
        self.age
    }

    /// A number that no other connection has as long as this one is there: small, for a table.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// What a program can wait for: see [`Stack::await_news`](super::Stack::await_news).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Awaited {
    /// A change of a connection.
    Connection(ConnectionId),
    /// A connection that can be accepted, by the address of its listener.
    Listener(SocketAddr),
    /// A datagram, or the error that one was refused, by the address that its socket is bound to.
    Socket(SocketAddr),
}

/// How a connection has ended without both sides having closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The other side does not listen.
    Refused,
    /// The other side has reset it.
    Reset,
    /// The other side has reset it after the end of its own half: it takes nothing of ours.
    Unwanted,
    /// The other side was silent for too long.
    TimedOut,
    /// The other side's member has left the LAN.
    Gone,
    /// The address of this side is not the stack's any more.
    AddressLost,
    /// Something has run out here that it takes to send: at once while it was being made, otherwise when it was not there for too long.
    Lacking(Lack),
    /// The other side's host cannot be reached: while the connection was being made, or when the neighbour on the way has not answered
    /// for as long as the other side may be silent.
    HostUnreachable,
    /// While it was being made: the other side's network cannot be reached.
    NetworkUnreachable,
}

/// What can be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// There are bytes.
    Bytes,
    /// Nothing yet.
    Nothing,
    /// Nothing more: the other side has closed its half, or all has been told of how the connection ended.
    Finished,
    /// The connection has failed before the other side has closed its half. [`Stack::take_end`](super::Stack::take_end) says
    /// how, once.
    Failed,
}

/// Whether there is room for what is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writable {
    /// There is room.
    Room,
    /// No room yet.
    Nothing,
    /// Our half is closed, or all has been told of how the connection ended.
    Closed,
    /// The connection has failed. [`Stack::take_end`](super::Stack::take_end) says how, once.
    Failed,
}

pub(super) struct Connection {
    pub(super) tuple: Tuple,
    /// None when nothing is left to be received after the end.
    pub(super) tcb: Option<Tcb>,
    /// The listener that it is for, until a program has accepted it.
    pub(super) listener: Option<Box<SocketAddr>>,
    /// Whether a program still has it.
    pub(super) is_held: bool,
    /// Whether the network knows it: its packets are for it and its timers run.
    pub(super) is_live: bool,
    pub(super) is_busy: bool,
    /// The target that is full and that it waits for.
    pub(super) waits_for: Option<Box<Hop>>,
    /// What its program calls it when it wants to be told of changes.
    pub(super) token: Option<u64>,
    /// Whether somebody waits for the next change.
    pub(super) is_awaited: bool,
    /// Which of all connections it is: those begun later have higher numbers.
    pub(super) number: u64,
    /// Whether it is complete and waits to be accepted.
    pub(super) is_ready: bool,
    /// Whether the program wants nothing more of what comes.
    pub(super) is_receive_shut: bool,
    /// What had come before that and was not received.
    pub(super) kept: Vec<u8>,
    /// Whether the end of the other side's half has come.
    pub(super) has_finished: bool,
    pub(super) end: Option<Box<End>>,
    /// When it is to be served, in the table of timers.
    pub(super) due: Timer,
    /// When the other side has been silent for too long.
    pub(super) deadline: Timer,
    /// Before that no other challenge is sent.
    pub(super) challenged_until: u64,
    /// Asks the other side whether it is there, if its program wants that.
    pub(super) keeper: Option<Box<Keeper>>,
    /// The same, after its host may have become another, until something comes from there.
    pub(super) questioner: Option<Box<Keeper>>,
    /// What a segment is answered with that came when nothing could be sent.
    pub(super) answer: Answer,
    /// Set if the connection is in the queue of those that are to be asked so.
    pub(super) is_questioned: bool,
}

/// Eleven lines of a processor's cache: what most need of a connection lies in it, what few need in boxes.
const _: () = assert!(size_of::<Connection>() <= 11 * 64);

impl Connection {
    pub(super) fn new(
        number: u64,
        tuple: Tuple,
        tcb: Tcb,
        listener: Option<SocketAddr>,
    ) -> Connection {
        Connection {
            tuple,
            tcb: Some(tcb),
            is_held: listener.is_none(),
            listener: listener.map(Box::new),
            is_live: true,
            is_busy: false,
            waits_for: None,
            token: None,
            is_awaited: false,
            number,
            is_ready: false,
            is_receive_shut: false,
            kept: Vec::new(),
            has_finished: false,
            end: None,
            due: Timer::NEVER,
            deadline: Timer::NEVER,
            challenged_until: 0,
            keeper: None,
            questioner: None,
            answer: Answer::Nothing,
            is_questioned: false,
        }
    }

    /// Something has come from the other side.
    pub(super) fn hear(&mut self, now: u64) {
        self.questioner = None;
        if let Some(keeper) = &mut self.keeper {
            keeper.hear(now);
        }
    }

    /// Returns true if the other side has acknowledged all that was sent.
    fn is_idle(&self) -> bool {
        self.tcb.as_ref().is_some_and(Tcb::is_idle)
    }

    /// What is to be done to find out whether the other side is there. What it says is taken as done.
    pub(super) fn keep(&mut self, now: u64) -> Step {
        if !self.is_idle() {
            return Step::Nothing;
        }
        let keepers = [&mut self.questioner, &mut self.keeper].into_iter().flatten();
        let mut steps =
            keepers.map(|keeper| keeper.step(now)).filter(|step| *step != Step::Nothing);
        steps.next().unwrap_or(Step::Nothing)
    }

    /// When [`Connection::keep`] has something to do.
    pub(super) fn keep_due(&self) -> Option<u64> {
        let is_idle = self.is_idle();
        let keepers = [&self.questioner, &self.keeper].into_iter().flatten();
        keepers.filter(|_| is_idle).map(|keeper| keeper.due()).min()
    }

    pub(super) fn state(&self) -> State {
        self.tcb.as_ref().map_or(State::Closed, Tcb::state)
    }

    /// What observers see of it.
    pub(super) fn row(&self) -> Row {
        let state = match self.state() {
            State::Closed => RowState::Closed,
            State::SynSent => RowState::SynSent,
            State::SynReceived => RowState::SynReceived,
            State::Established => RowState::Established,
            State::FinWait1 => RowState::FinWait1,
            State::FinWait2 => RowState::FinWait2,
            State::CloseWait => RowState::CloseWait,
            State::Closing => RowState::Closing,
            State::LastAck => RowState::LastAck,
            State::TimeWait => RowState::TimeWait,
        };
        let tcb = self.tcb.as_ref();
        Row {
            state,
            local: self.tuple.local,
            remote: Some(self.tuple.remote),
            send_queue: tcb.map_or(0, |tcb| tcb.send_queue() as u64),
            receive_queue: (self.kept.len() + tcb.map_or(0, Tcb::receive_queue)) as u64,
            resent: tcb.map_or(0, |tcb| tcb.resent.into()),
            round_trip_ns: tcb.map_or(0, Tcb::round_trip_ns),
        }
    }

    /// Whether nobody will ever receive what comes.
    pub(super) fn is_orphan(&self) -> bool {
        !self.is_held && self.listener.is_none()
    }

    pub(super) fn readable(&self) -> Readable {
        if self.is_receive_shut {
            return if self.kept.is_empty() { Readable::Finished } else { Readable::Bytes };
        }
        if let Some(tcb) = &self.tcb {
            if tcb.receive_queue() > 0 {
                return Readable::Bytes;
            }
            let may_come = matches!(
                tcb.state(),
                State::SynSent
                    | State::SynReceived
                    | State::Established
                    | State::FinWait1
                    | State::FinWait2
            );
            if self.is_live && may_come {
                return Readable::Nothing;
            }
        }
        // As with Linux: whatever becomes of our half, theirs is complete.
        if self.end.is_some() && !self.has_finished { Readable::Failed } else { Readable::Finished }
    }

    pub(super) fn writable(&self, config: &TcpConfig, pool: &Buffers) -> Writable {
        match &self.tcb {
            Some(tcb) if self.is_live => match tcb.state() {
                State::SynSent | State::SynReceived => return Writable::Nothing,
                State::Established | State::CloseWait if tcb.has_space(config, pool) => {
                    return Writable::Room;
                }
                State::Established | State::CloseWait => return Writable::Nothing,
                _ => {}
            },
            _ => {}
        }
        if self.end.is_some() { Writable::Failed } else { Writable::Closed }
    }
}

/// Connections that are kept together in memory. What has a page of its own costs a page, however small it is: their buffers
/// come and go around them.
const CHUNK: usize = 64;

/// Connections by number. A number is used again with another age.
#[derive(Default)]
pub(super) struct Connections {
    chunks: Vec<Box<[Place]>>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Place {
    age: u32,
    connection: Option<Connection>,
}

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.chunks.len() * CHUNK - self.free.len()
    }

    fn place(&self, index: u32) -> Option<&Place> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }

    fn place_mut(&mut self, index: u32) -> Option<&mut Place> {
        self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }

    pub(super) fn insert(&mut self, connection: Connection) -> u32 {
        if self.free.is_empty() {
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push((0..CHUNK).map(|_| Place::default()).collect());
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        let index = self.free.pop().expect("there is room now");
        self.place_mut(index).expect("it is free").connection = Some(connection);
        index
    }

    pub(super) fn remove(&mut self, index: u32) {
        self.take(index);
    }

    /// Takes a connection out.
    pub(super) fn take(&mut self, index: u32) -> Option<Connection> {
        let place = self.place_mut(index)?;
        let connection = place.connection.take()?;
        place.age = place.age.wrapping_add(1);
        self.free.push(index);
        Some(connection)
    }

    /// Both ends of the connection of this number.
    pub(super) fn tuple(&self, index: u32) -> Option<&Tuple> {
        self.place(index)?.connection.as_ref().map(|connection| &connection.tuple)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.place_mut(index)?.connection.as_mut()
    }

    /// What stands for the connection of this number.
    pub(super) fn id(&self, index: u32) -> ConnectionId {
        let age = self.place(index).map_or(0, |place| place.age);
        ConnectionId { index, age }
    }

    /// The number of a connection, if it is still there.
    pub(super) fn index(&self, id: ConnectionId) -> Option<u32> {
        let place = self.place(id.index)?;
        (place.age == id.age && place.connection.is_some()).then_some(id.index)
    }

    pub(super) fn find(&self, id: ConnectionId) -> Option<&Connection> {
        let index = self.index(id)?;
        self.place(index)?.connection.as_ref()
    }

    pub(super) fn find_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let index = self.index(id)?;
        self.get_mut(index)
    }
}
