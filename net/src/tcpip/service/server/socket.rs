//! A socket of a client, as the machine has it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::tcpip::ConnectionId;
use crate::tcpip::service::format::Failure;
use crate::tcpip::service::parked::Parked;

/// Messages with bytes after which two clients that talk with each other are introduced: less is soon over.
const MESSAGES_BEFORE_INTRODUCTION: u32 = 4;

#[derive(Debug)]
pub(super) enum Socket {
    Connection(Connection),
    Listener(Listener),
    Datagrams(Datagrams),
    /// It was not opened, or could not be connected. Its number is taken until the client closes it.
    Failed,
}

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    /// Bytes that may be on their way from the client, or parked.
    pub(super) grant: usize,
    /// Bytes that the client may still send.
    pub(super) client_may: usize,
    /// Set if the client has used up all that it might send, since it was given credit last.
    pub(super) is_used_up: bool,
    /// Bytes that went into the send buffer and are to be given back as credit.
    pub(super) to_return: usize,
    /// Bytes that the client takes.
    pub(super) may_give: usize,
    /// Bytes from the client that the send buffer had no room for.
    pub(super) parked: Parked,
    pub(super) stage: Stage,
    /// Set once the client was told that the other side has closed its half.
    pub(super) has_told_finished: bool,
    /// Set once the client was told how the connection has ended.
    pub(super) has_told_end: bool,
    /// Set if the client sends no more: the half is closed when nothing is parked.
    pub(super) is_shut: bool,
    /// Set once the stack was told so: each time it is told, it has the connection looked at again.
    pub(super) has_shut: bool,
    /// Set if the client has reset it: nothing of it is sent any more.
    pub(super) is_reset: bool,
    /// How it has ended, until the client is told.
    pub(super) end: Option<Failure>,
    /// Bytes that the client was given.
    pub(super) given: u64,
    /// Credit beyond what it began with.
    pub(super) raised: usize,
    /// When it is reset though something of it is still to be sent, once it is closed.
    pub(super) close_by: Option<u64>,
    /// Messages with bytes that the client has sent.
    pub(super) messages: u32,
    /// What it is called by the two clients that it is between, if they were introduced.
    pub(super) joined: Option<u64>,
    pub(super) has_told_joined: bool,
    /// Set once the client sends directly to the other side.
    pub(super) has_moved: bool,
    /// Set once the other side sends directly to this client.
    pub(super) has_moved_in: bool,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is being made.
    Connecting,
    /// It was accepted for this listener, and the client has not been told.
    Accepted(u32),
    Open,
    /// The client has closed it. What is parked is sent first.
    Closing,
    /// The stack was told so.
    Closed,
}

impl Connection {
    pub(super) fn new(id: ConnectionId, grant: usize, may_give: usize, stage: Stage) -> Connection {
        Connection {
            id,
            grant,
            client_may: 0,
            is_used_up: false,
            to_return: 0,
            may_give,
            parked: Parked::default(),
            stage,
            has_told_finished: false,
            has_told_end: false,
            is_shut: false,
            has_shut: false,
            is_reset: false,
            end: None,
            given: 0,
            raised: 0,
            close_by: None,
            messages: 0,
            joined: None,
            has_told_joined: false,
            has_moved: false,
            has_moved_in: false,
        }
    }

    /// Returns true if the stack was told that it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Bytes have come from the client. Returns true if it is time to see whether it talks with another client: a few messages may be all, and later
    /// the answer is another at times.
    pub(super) fn count_message(&mut self) -> bool {
        self.messages = self.messages.saturating_add(1);
        self.joined.is_none()
            && self.messages >= MESSAGES_BEFORE_INTRODUCTION
            && self.messages.is_power_of_two()
    }

    /// Returns true if so much credit has gathered that the client is told of it: a quarter.
    pub(super) fn owes_credit(&self) -> bool {
        self.to_return > 0 && self.to_return >= self.grant / 4
    }
}

/// A listener of a client.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    /// Bytes that the client takes of each new connection.
    pub(super) may_give: usize,
    /// Set once the client was told the address.
    pub(super) has_told: bool,
    /// Connections that may be on their way to the program, and those that are.
    pub(super) backlog: usize,
    pub(super) waiting: usize,
}

/// A socket of datagrams of a client.
#[derive(Debug)]
pub(super) struct Datagrams {
    pub(super) address: SocketAddr,
    /// As with connections; each datagram counts 64 bytes more than it has.
    pub(super) grant: usize,
    /// How much of the grant is more than others begin with.
    pub(super) raised: usize,
    /// How much is missing for the longest datagram, which the budget did not have when it was bound.
    pub(super) missing: usize,
    pub(super) client_may: usize,
    pub(super) to_return: usize,
    pub(super) may_give: usize,
    pub(super) has_told: bool,
    /// The last question that has connected it, and both addresses, if the client was not told.
    pub(super) connected: Option<(u64, [SocketAddr; 2])>,
    /// The last question that has not, if the client was not told.
    pub(super) not_connected: Option<(u64, Failure)>,
    /// Why the last datagram that was not sent was not.
    pub(super) refused: Option<Failure>,
    /// Datagrams whose targets had no room.
    pub(super) waiting: VecDeque<(SocketAddr, Vec<u8>)>,
}

impl Datagrams {
    pub(super) fn new(address: SocketAddr, grant: usize, may_give: usize) -> Datagrams {
        Datagrams {
            address,
            grant,
            raised: 0,
            missing: 0,
            client_may: 0,
            to_return: 0,
            may_give,
            has_told: false,
            connected: None,
            not_connected: None,
            refused: None,
            waiting: VecDeque::new(),
        }
    }
}
