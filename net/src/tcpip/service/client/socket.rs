//! A socket, as its client has it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::NO_ADDRESS;
use crate::tcpip::service::DATAGRAM_BYTES;
use crate::tcpip::service::format::{Failure, Fault};
use crate::tcpip::service::parked::Parked;
use crate::tcpip::{ConnectionId, KeepAlive};

/// What is to be said of a socket: bits, of which the lowest goes first.
pub(super) mod say {
    pub(crate) const OPEN: u16 = 1 << 0;
    pub(crate) const ASSOCIATE: u16 = 1 << 1;
    pub(crate) const NO_DELAY: u16 = 1 << 2;
    pub(crate) const KEEP_ALIVE: u16 = 1 << 3;
    pub(crate) const SERVICE: u16 = 1 << 4;
    pub(crate) const CREDIT: u16 = 1 << 5;
    pub(crate) const RETURNED: u16 = 1 << 6;
    pub(crate) const DATA: u16 = 1 << 7;
    pub(crate) const SHUT_SENDING: u16 = 1 << 8;
    pub(crate) const SHUT_RECEIVING: u16 = 1 << 9;
    pub(crate) const MOVED: u16 = 1 << 10;
    pub(crate) const RESET: u16 = 1 << 11;
    pub(crate) const CLOSE: u16 = 1 << 12;
}

/// A place for a socket.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// How many sockets were here before.
    pub(super) age: u32,
    pub(super) socket: Option<Socket>,
    /// What is to be said of it: while that is something, the slot is in the queue of those of which something is.
    pub(super) say: u16,
    /// Set while another client is to be told that it is closed, before the machine is.
    pub(super) is_leaving: bool,
    /// Set once the machine was told that it is closed.
    pub(super) is_closing: bool,
    /// Set if the machine does not know it any more.
    pub(super) is_lost: bool,
    pub(super) is_awaited: bool,
    pub(super) token: Option<u64>,
}

impl Slot {
    /// Returns true if the program has done with it.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closing || self.say & say::CLOSE != 0
    }
}

#[derive(Debug)]
pub(super) enum Socket {
    Connection(Connection),
    Listener(Listener),
    Datagrams(Datagrams),
}

#[derive(Debug)]
pub(super) struct Connection {
    /// What the machine calls it.
    pub(super) number: u32,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) is_open: bool,
    /// Bytes that may be sent.
    pub(super) may_send: usize,
    /// Bytes of credit that are given back, of which the machine was not told.
    pub(super) returned: usize,
    /// Bytes that were written and that the path had no room for.
    pub(super) unsent: Box<[u8]>,
    /// Bytes that were sent in all over the machine, and came over it.
    pub(super) sent: u64,
    pub(super) came: u64,
    /// The pair that the other side is the other client of, and what the connection is called there.
    pub(super) link: Option<(u32, u32)>,
    /// Set once the machine has said that the other side has ended its half directly.
    pub(super) is_moved_in: bool,
    /// What has come and was not read.
    pub(super) parked: Parked,
    /// Bytes that were read, of which the machine was not told.
    pub(super) to_return: usize,
    /// Bytes that were read in all.
    pub(super) read: u64,
    /// Bytes that came after it was closed.
    pub(super) dropped: usize,
    /// Bytes that come behind the news of how it has ended.
    pub(super) left: u64,
    /// Set if they do not, because the machine is gone.
    pub(super) is_cut_off: bool,
    pub(super) has_finished: bool,
    /// Set if it has finished once what comes behind that news has come.
    pub(super) is_complete: bool,
    /// How it has failed, if the program was not told.
    pub(super) end: Option<Failure>,
    pub(super) has_told_end: bool,
    /// Set once the machine has said how it has ended.
    pub(super) has_broken: bool,
    pub(super) is_send_shut: bool,
    pub(super) is_receive_shut: bool,
    pub(super) has_no_delay: bool,
    pub(super) service: u8,
    pub(super) keep_alive: Option<KeepAlive>,
}

impl Connection {
    /// Returns true if the connection has ended with an error, whether the program has heard of it or not.
    pub(super) fn has_failed(&self) -> bool {
        self.end.is_some() || self.has_told_end
    }

    pub(super) fn to(remote: SocketAddr) -> Connection {
        Connection {
            number: 0,
            local: NO_ADDRESS,
            remote,
            is_open: false,
            may_send: 0,
            returned: 0,
            unsent: Box::default(),
            sent: 0,
            came: 0,
            link: None,
            is_moved_in: false,
            parked: Parked::default(),
            to_return: 0,
            read: 0,
            dropped: 0,
            left: 0,
            is_cut_off: false,
            has_finished: false,
            is_complete: false,
            end: None,
            has_told_end: false,
            has_broken: false,
            is_send_shut: false,
            is_receive_shut: false,
            has_no_delay: false,
            service: 0,
            keep_alive: None,
        }
    }

    pub(super) fn accepted(
        number: u32,
        (local, remote): (SocketAddr, SocketAddr),
        may_send: usize,
    ) -> Connection {
        Connection { number, local, is_open: true, may_send, ..Connection::to(remote) }
    }

    /// Returns true if what comes is kept for the program.
    pub(super) fn is_wanted(&self) -> bool {
        !self.is_receive_shut
    }
}

#[derive(Debug)]
pub(super) struct Listener {
    /// The address that was asked for, and then the one that it has.
    pub(super) address: SocketAddr,
    pub(super) backlog: u32,
    pub(super) has_opened: bool,
    pub(super) failure: Option<Failure>,
    /// Connections that nobody has accepted.
    pub(super) waiting: VecDeque<ConnectionId>,
    /// Connections that the program has accepted, of which the machine was not told.
    pub(super) taken: usize,
}

impl Listener {
    pub(super) fn at(address: SocketAddr, backlog: u32) -> Listener {
        Listener {
            address,
            backlog,
            has_opened: false,
            failure: None,
            waiting: VecDeque::new(),
            taken: 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Datagrams {
    /// The address that was asked for, and then the one that it has.
    pub(super) address: SocketAddr,
    pub(super) has_opened: bool,
    pub(super) failure: Option<Failure>,
    /// Credit that it has been seen to have at once: no datagram that takes more can be sent now.
    pub(super) grant: usize,
    pub(super) may_send: usize,
    pub(super) to_return: usize,
    /// How often the machine was asked to connect it.
    pub(super) asked: u64,
    /// The question that the program waits for, where it is being connected to, and what has become of that.
    pub(super) associating: Option<(u64, SocketAddr)>,
    pub(super) associated: Option<Result<SocketAddr, Failure>>,
    pub(super) connected: Option<SocketAddr>,
    /// Why a datagram was not sent, if the program was not told.
    pub(super) refused: Option<Failure>,
    pub(super) waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    /// What these take of the credit.
    pub(super) waiting_bytes: usize,
}

impl Datagrams {
    pub(super) fn at(address: SocketAddr) -> Datagrams {
        Datagrams {
            address,
            has_opened: false,
            failure: None,
            grant: 0,
            may_send: 0,
            to_return: 0,
            asked: 0,
            associating: None,
            associated: None,
            connected: None,
            refused: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Returns true if the program waits for the answer to the question of this number.
    ///
    /// # Errors
    /// [`Fault::Value`] if the machine was not asked it.
    pub(super) fn is_awaited(&self, number: u64) -> Result<bool, Fault> {
        match (1..=self.asked).contains(&number) {
            true => Ok(self.associating.is_some_and(|(awaited, _)| awaited == number)),
            false => Err(Fault::Value),
        }
    }

    /// Drops what has come from others than `remote`.
    pub(super) fn clear_others(&mut self, remote: SocketAddr) {
        let Datagrams { waiting, to_return, waiting_bytes, .. } = self;
        waiting.retain(|(from, data)| {
            let is_kept = *from == remote;
            if !is_kept {
                *to_return += data.len() + DATAGRAM_BYTES;
                *waiting_bytes -= data.len() + DATAGRAM_BYTES;
            }
            is_kept
        });
    }
}
