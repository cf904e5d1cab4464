//! The connections of a stack, and what a program can learn of one.

use std::net::SocketAddr;

use super::keep_alive::{Keeper, Step};
use super::machine::{Machine, State};
use super::stack::Tuple;

/// Stands for a connection until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    index: u32,
    /// Which of those that have had this index.
    age: u32,
}

/// How a connection has ended without both sides having closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The other side does not listen.
    Refused,
    /// The other side has reset it.
    Reset,
    /// The other side was silent for too long.
    TimedOut,
    /// The other side's member has left the LAN.
    Gone,
    /// While it was being made: the other side's host cannot be reached.
    HostUnreachable,
    /// While it was being made: the other side's network cannot be reached.
    NetworkUnreachable,
    /// The state machine has failed: a defect of the stack.
    Broken,
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
    /// The connection has failed. [`Stack::take_end`](super::Stack::take_end) says how, once.
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
    pub(super) machine: Option<Machine>,
    /// The listener that it is for, until a program has accepted it.
    pub(super) listener: Option<SocketAddr>,
    /// Whether a program still has it.
    pub(super) is_held: bool,
    /// Whether the network knows it: its packets are for it and its timers run.
    pub(super) is_live: bool,
    pub(super) is_busy: bool,
    /// What its program calls it when it wants to be told of changes.
    pub(super) token: Option<u64>,
    /// Which of all connections it is: those begun later have higher numbers.
    pub(super) number: u64,
    /// Whether it is complete and waits to be accepted.
    pub(super) is_ready: bool,
    /// Whether the program wants nothing more of what comes.
    pub(super) is_receive_shut: bool,
    /// What had come before that and was not received.
    pub(super) kept: Vec<u8>,
    pub(super) end: Option<End>,
    /// When it is to be served, in the table of timers.
    pub(super) due: Option<u64>,
    /// When the other side has been silent for too long.
    pub(super) deadline: Option<u64>,
    /// When the state machine was reminded last of what it has to send.
    pub(super) reminded: Option<u64>,
    /// When a challenge was sent last.
    pub(super) challenged: Option<u64>,
    /// Asks the other side whether it is there, if its program wants that.
    pub(super) keeper: Option<Box<Keeper>>,
    /// The same, after its host may have become another, until something comes from there.
    pub(super) questioner: Option<Box<Keeper>>,
}

impl Connection {
    pub(super) fn new(
        number: u64,
        tuple: Tuple,
        machine: Machine,
        listener: Option<SocketAddr>,
    ) -> Connection {
        Connection {
            tuple,
            machine: Some(machine),
            is_held: listener.is_none(),
            listener,
            is_live: true,
            is_busy: false,
            token: None,
            number,
            is_ready: false,
            is_receive_shut: false,
            kept: Vec::new(),
            end: None,
            due: None,
            deadline: None,
            reminded: None,
            challenged: None,
            keeper: None,
            questioner: None,
        }
    }

    /// Something has come from the other side.
    pub(super) fn hear(&mut self, now: u64) {
        self.questioner = None;
        if let Some(keeper) = &mut self.keeper {
            keeper.hear(now);
        }
    }

    /// What is to be done to find out whether the other side is there. What it says is taken as done.
    pub(super) fn keep(&mut self, now: u64) -> Step {
        if !self.machine.as_ref().is_some_and(Machine::is_idle) {
            return Step::Nothing;
        }
        let keepers = [&mut self.questioner, &mut self.keeper].into_iter().flatten();
        let mut steps =
            keepers.map(|keeper| keeper.step(now)).filter(|step| *step != Step::Nothing);
        steps.next().unwrap_or(Step::Nothing)
    }

    /// When [`Connection::keep`] has something to do.
    pub(super) fn keep_due(&self) -> Option<u64> {
        let is_idle = self.machine.as_ref().is_some_and(Machine::is_idle);
        let keepers = [&self.questioner, &self.keeper].into_iter().flatten();
        keepers.filter(|_| is_idle).map(|keeper| keeper.due()).min()
    }

    pub(super) fn state(&self) -> State {
        self.machine.as_ref().map_or(State::Closed, Machine::state)
    }

    /// Whether nobody will ever receive what comes.
    pub(super) fn is_orphan(&self) -> bool {
        !self.is_held && self.listener.is_none()
    }

    pub(super) fn readable(&self) -> Readable {
        if self.is_receive_shut {
            return if self.kept.is_empty() { Readable::Finished } else { Readable::Bytes };
        }
        if let Some(machine) = &self.machine {
            if machine.socket().can_recv() {
                return Readable::Bytes;
            }
            let may_come = matches!(
                machine.state(),
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
        if self.end.is_some() { Readable::Failed } else { Readable::Finished }
    }

    pub(super) fn writable(&self) -> Writable {
        match &self.machine {
            Some(machine) if self.is_live => match machine.state() {
                State::SynSent | State::SynReceived => return Writable::Nothing,
                State::Established | State::CloseWait if machine.has_room() => {
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

/// Connections by number. A number is used again with another age.
#[derive(Default)]
pub(super) struct Connections {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Place {
    age: u32,
    connection: Option<Box<Connection>>,
}

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, connection: Connection) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() as u32 - 1
        });
        self.places[index as usize].connection = Some(Box::new(connection));
        index
    }

    pub(super) fn remove(&mut self, index: u32) {
        let Some(place) = self.places.get_mut(index as usize) else { return };
        if place.connection.take().is_some() {
            place.age = place.age.wrapping_add(1);
            self.free.push(index);
        }
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.places.get_mut(index as usize)?.connection.as_deref_mut()
    }

    /// What stands for the connection of this number.
    pub(super) fn id(&self, index: u32) -> ConnectionId {
        let age = self.places.get(index as usize).map_or(0, |place| place.age);
        ConnectionId { index, age }
    }

    /// The number of a connection, if it is still there.
    pub(super) fn index(&self, id: ConnectionId) -> Option<u32> {
        let place = self.places.get(id.index as usize)?;
        (place.age == id.age && place.connection.is_some()).then_some(id.index)
    }

    pub(super) fn find(&self, id: ConnectionId) -> Option<&Connection> {
        let index = self.index(id)?;
        self.places.get(index as usize)?.connection.as_deref()
    }

    pub(super) fn find_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let index = self.index(id)?;
        self.get_mut(index)
    }
}
