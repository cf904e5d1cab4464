//! Other clients of the machine that have a path to this one, and the connections whose bytes go over it.
//!
//! The machine introduces two clients that talk with each other over its TCP. Each half of a connection then moves by itself: its sender
//! counts the bytes that went over the machine, and says with each message that goes directly where in the stream it belongs. So its receiver takes
//! what came over the machine first, and needs no sign in between. A half moves when the other side has said hello, with credit: it knows
//! the connection then.
//!
//! What TCP means stays: the end of a half, a reset, and bytes that nobody read, which are a reset for their sender. A peer whose path ends
//! resets what has moved; what has not goes on over the machine.

use std::collections::{BTreeSet, HashMap, VecDeque};

use fabric::name::Name;
use fabric::path::{Fetched, InPage, Receiver, SendError, Sender};

use super::socket::{Connection, Socket, say};
use super::{Client, Slot};
use crate::tcpip::service::format::{Failure, HEAD_BYTES, Head, Kind};
use crate::tcpip::service::parked::{Kept, Parked};
use crate::tcpip::service::{CREDIT_BYTES_MAX, DATA_BYTES_MAX, Fault, Left};
use crate::tcpip::{ConnectionId, Writable};

/// Peers of a client, at most. The machine is told that more are not wanted.
const PEERS_MAX: usize = 64;

/// Connections that a peer knows and the machine has not told us of, at most.
const HELLOS_MAX: usize = 4096;

/// Messages of a peer that one call takes in, at most.
const MESSAGES_PER_CALL: usize = 64;

/// What is to be said to a peer of a connection: bits, of which the lowest goes first.
mod tell {
    pub(crate) const HELLO: u8 = 1 << 0;
    pub(crate) const CREDIT: u8 = 1 << 1;
    pub(crate) const DATA: u8 = 1 << 2;
    pub(crate) const FINISHED: u8 = 1 << 3;
    pub(crate) const BYE: u8 = 1 << 4;
}

/// How far a client is with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its program is to ask for a path.
    ToMeet,
    /// A path is being made: by whoever asks for it.
    Meeting,
    /// There is a path.
    Met,
    /// The path has ended. What came over it can still be read.
    Over,
}

/// Another client of the machine.
#[derive(Debug)]
pub(super) struct Peer {
    /// What the machine calls the two of us.
    pair: u32,
    name: Name,
    stage: Stage,
    /// Set if it was asked for by the peer.
    is_asked: bool,
    links: HashMap<u32, Link>,
    /// Credit of connections that the peer knows and the machine has not told us of.
    hellos: HashMap<u32, usize>,
    /// Connections of which something is to be said.
    to_tell: VecDeque<u32>,
    kept: Kept,
    /// What was not read of connections that are closed: its pages go back when the path is looked at next.
    dropped: Vec<Parked>,
    /// Sockets whose verbs were refused because the path had no room.
    blocked: BTreeSet<u32>,
}

/// A connection, as far as its bytes go over the path to the peer.
#[derive(Debug)]
struct Link {
    /// The socket. None once it is closed: the peer is to be told so.
    index: Option<u32>,
    tell: u8,
    has_said_hello: bool,
    /// Set once the peer has said hello.
    has_heard_hello: bool,
    /// Bytes that may be sent.
    may_send: usize,
    /// Set once this side sends here alone.
    has_moved: bool,
    /// Where in the stream the next byte that is sent belongs.
    sent: u64,
    /// Bytes that were written and that the path had no room for.
    unsent: Box<[u8]>,
    /// Set once the other side sends here: from this byte on.
    begins_at: Option<u64>,
    /// Where in the stream the next byte that comes belongs, and the next that is read.
    came: u64,
    read: u64,
    parked: Parked,
    /// Bytes that were read, of which the peer was not told.
    to_return: usize,
    has_finished: bool,
    /// Set once the peer has closed its side.
    is_gone: bool,
    /// What it is told when this side is closed.
    bye: (u8, u64),
}

impl Link {
    fn new(index: u32) -> Link {
        Link {
            index: Some(index),
            tell: 0,
            has_said_hello: false,
            has_heard_hello: false,
            may_send: 0,
            has_moved: false,
            sent: 0,
            unsent: Box::default(),
            begins_at: None,
            came: 0,
            read: 0,
            parked: Parked::default(),
            to_return: 0,
            has_finished: false,
            is_gone: false,
            bye: (0, 0),
        }
    }

    /// The other side sends here, from this byte of the stream on, unless it did before.
    fn begin(&mut self, at: u64) {
        if self.begins_at.is_none() {
            (self.begins_at, self.came, self.read) = (Some(at), at, at);
        }
    }
}

impl Peer {
    fn tell(&mut self, number: u32, what: u8) {
        let Peer { links, to_tell, .. } = self;
        if let Some(link) = links.get_mut(&number) {
            if link.tell == 0 {
                to_tell.push_back(number);
            }
            link.tell |= what;
        }
    }

    /// Nothing more is to be said of a connection that is forgotten.
    fn forget(&mut self, number: u32) {
        if let Some(link) = self.links.remove(&number) {
            if link.tell != 0 {
                self.to_tell.retain(|other| *other != number);
            }
            self.drop_later(link.parked);
        }
    }

    fn drop_later(&mut self, parked: Parked) {
        if !parked.is_empty() && self.stage != Stage::Over {
            self.dropped.push(parked);
        }
    }
}

/// What the path to a peer means for reading a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direct {
    /// Nothing: bytes come over the machine.
    No,
    /// All that came over the machine is there, and bytes have come directly.
    Bytes,
    /// The same, and the other side has finished.
    Finished,
    /// The same, and nothing more is there now.
    Nothing,
}

impl Client {
    fn peer(&mut self, at: usize) -> Option<&mut Peer> {
        self.peers.get_mut(at)?.as_mut()
    }

    /// The machine says that another client is to be met.
    pub(super) fn on_introduced(&mut self, head: Head, name: Name) -> Result<(), Fault> {
        if self.to_answer.len() >= 2 * PEERS_MAX {
            return Err(Fault::Value);
        }
        let is_asked = head.kind == Kind::Expect;
        if is_asked && head.code == 1 {
            // The other one has no path to us.
            for peer in &mut self.peers {
                peer.take_if(|peer| peer.pair == head.socket && peer.stage == Stage::Meeting);
            }
            return Ok(());
        }
        let at = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        if at >= PEERS_MAX {
            let kind = if is_asked { Kind::Ready } else { Kind::Met };
            self.to_answer.push_back(Head { code: 1, ..Head::new(kind, head.socket) });
            return Ok(());
        }
        if at == self.peers.len() {
            self.peers.push(None);
        }
        if is_asked {
            self.to_answer.push_back(Head::new(Kind::Ready, head.socket));
        }
        self.peers[at] = Some(Peer {
            pair: head.socket,
            name,
            stage: if is_asked { Stage::Meeting } else { Stage::ToMeet },
            is_asked,
            links: HashMap::new(),
            hellos: HashMap::new(),
            to_tell: VecDeque::new(),
            kept: Kept::default(),
            dropped: Vec::new(),
            blocked: BTreeSet::new(),
        });
        Ok(())
    }

    /// A peer to which a path is to be asked for, and its guest. [`Client::meet`] or [`Client::lose_peer`] says what has become of that.
    pub fn next_to_meet(&mut self) -> Option<(usize, Name)> {
        let of_it =
            |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| peer.stage == Stage::ToMeet);
        let at = self.peers.iter().position(of_it)?;
        let peer = self.peers[at].as_mut()?;
        peer.stage = Stage::Meeting;
        Some((at, peer.name))
    }

    /// The peer whose guest may ask for a path, if this one may.
    pub fn expected(&self, name: Name) -> Option<usize> {
        let is_it = |peer: &Option<Peer>| {
            let is_it =
                |peer: &Peer| peer.is_asked && peer.stage == Stage::Meeting && peer.name == name;
            peer.as_ref().is_some_and(is_it)
        };
        let all = self.peers.iter().enumerate().filter(|(_, peer)| is_it(peer));
        all.max_by_key(|(_, peer)| peer.as_ref().map(|peer| peer.pair)).map(|(at, _)| at)
    }

    /// There is a path to a peer.
    pub fn meet(&mut self, at: usize) {
        let Some(peer) = self.peer(at) else { return };
        peer.stage = Stage::Met;
        if !peer.is_asked {
            let head = Head::new(Kind::Met, peer.pair);
            self.to_answer.push_back(head);
        }
    }

    /// There is no path to a peer, or no more. What has moved there is reset; the rest goes on over the machine.
    pub fn lose_peer(&mut self, at: usize) {
        let Some(peer) = self.peers.get_mut(at).and_then(Option::as_mut) else { return };
        if peer.stage == Stage::Meeting && !peer.is_asked {
            let head = Head { code: 1, ..Head::new(Kind::Met, peer.pair) };
            self.to_answer.push_back(head);
        }
        peer.stage = Stage::Over;
        peer.dropped.clear();
        peer.to_tell.clear();
        peer.hellos.clear();
        self.has_moved = true;
        let blocked = std::mem::take(&mut peer.blocked);
        blocked.into_iter().for_each(|index| self.note(index));
        let Some(peer) = self.peers[at].as_mut() else { return };
        let mut lost = Vec::new();
        let Client { slots, .. } = self;
        peer.links.retain(|_, link| {
            link.tell = 0;
            let Some(index) = link.index else { return false };
            let is_shut = connection_at(slots, index).is_none_or(|one| one.is_send_shut);
            let is_over = link.begins_at.is_some() && link.has_finished;
            if link.has_moved && !is_shut && !link.is_gone || link.begins_at.is_some() && !is_over {
                lost.push(index);
            }
            let is_kept = !link.parked.is_empty() || link.has_moved || is_over;
            if !is_kept && let Some(one) = connection_at(slots, index) {
                one.link = None;
            }
            is_kept
        });
        let is_empty = peer.links.is_empty();
        for index in lost {
            self.break_link(index);
        }
        if is_empty {
            self.peers[at] = None;
        }
    }

    /// A connection whose bytes can go nowhere is reset.
    fn break_link(&mut self, index: u32) {
        let Some(one) = connection_at(&mut self.slots, index) else { return };
        if one.end.is_none() && !one.has_told_end {
            one.end = Some(Failure::Reset);
        }
        if self.gone.is_none() {
            self.say(index, say::RESET);
        }
        self.note(index);
    }

    /// The machine says what a connection is called on the path to a peer.
    pub(super) fn on_joined(&mut self, index: u32, value: u64) -> Result<(), Fault> {
        let (pair, number) = ((value >> 32) as u32, value as u32);
        let is_it = |peer: &Option<Peer>| {
            let is_it = |peer: &Peer| peer.pair == pair && peer.stage != Stage::Over;
            peer.as_ref().is_some_and(is_it)
        };
        let at = self.peers.iter().position(is_it);
        let slot = &mut self.slots[index as usize];
        let is_closed = slot.is_closed();
        let Some(Socket::Connection(one)) = &mut slot.socket else { return Err(Fault::Socket) };
        if !one.is_open || one.link.is_some() {
            return Err(Fault::Socket);
        }
        // The peer learns that nobody says hello: its bytes go over the machine.
        let (Some(at), false) = (at, is_closed) else {
            if let Some(peer) = at.and_then(|at| self.peers[at].as_mut()) {
                peer.hellos.remove(&number);
            }
            return Ok(());
        };
        let Some(peer) = self.peers[at].as_mut() else { return Ok(()) };
        if peer.links.contains_key(&number) {
            return Err(Fault::InUse);
        }
        let mut link = Link::new(index);
        if let Some(credit) = peer.hellos.remove(&number) {
            (link.has_heard_hello, link.may_send) = (true, credit);
        }
        one.link = Some((at, number));
        peer.links.insert(number, link);
        peer.tell(number, tell::HELLO);
        Ok(())
    }

    /// Connections that have something to do with a peer.
    #[cfg(test)]
    pub(in crate::tcpip::service) fn links(&self) -> usize {
        self.peers.iter().flatten().map(|peer| peer.links.len() + peer.hellos.len()).sum()
    }

    /// The peer over whose path the bytes of a connection go that are written now. None: they go over the machine.
    pub fn route(&self, id: ConnectionId) -> Option<usize> {
        let one = self.connection(id)?;
        let (at, number) = one.link?;
        let peer = self.peers.get(at)?.as_ref()?;
        let link = peer.links.get(&number)?;
        let can_move = peer.stage == Stage::Met
            && link.has_heard_hello
            && !link.is_gone
            && one.is_open
            && !one.is_send_shut
            && one.unsent.is_empty();
        (link.has_moved || can_move).then_some(at)
    }

    /// The peer from whose path the next bytes of a connection are read. None: they come over the machine.
    pub fn source(&self, id: ConnectionId) -> Option<usize> {
        let one = self.connection(id)?;
        let (at, _) = one.link?;
        (self.direct(one) == Direct::Bytes).then_some(at)
    }

    /// Returns true if all that comes of a connection from now on comes over the path to a peer, and nothing is left of what came over the machine.
    pub fn is_direct(&self, id: ConnectionId) -> bool {
        self.connection(id)
            .is_some_and(|one| one.parked.is_empty() && self.direct(one) != Direct::No)
    }

    /// Bytes of a connection that have come over the machine and were not received.
    pub fn waiting_over_machine(&self, id: ConnectionId) -> usize {
        self.connection(id).map_or(0, |one| one.parked.bytes())
    }

    /// What there is to read over the path to a peer, once nothing is left of what came over the machine.
    pub(super) fn direct(&self, one: &Connection) -> Direct {
        let Some((at, number)) = one.link else { return Direct::No };
        let peer = self.peers.get(at).and_then(Option::as_ref);
        let Some(link) = peer.and_then(|peer| peer.links.get(&number)) else { return Direct::No };
        match () {
            () if link.begins_at != Some(one.came) => Direct::No,
            () if !link.parked.is_empty() => Direct::Bytes,
            () if link.has_finished => Direct::Finished,
            () => Direct::Nothing,
        }
    }

    /// Says whether bytes of a connection can be sent over the path to a peer.
    pub(super) fn writable_directly(&self, index: u32, at: usize, number: u32) -> Writable {
        let Some(peer) = self.peers.get(at).and_then(Option::as_ref) else {
            return Writable::Closed;
        };
        let Some(link) = peer.links.get(&number) else { return Writable::Closed };
        match () {
            // Whoever writes is told then.
            () if link.is_gone => Writable::Room,
            () if peer.blocked.contains(&index) || self.lacking.contains(&index) => {
                Writable::Nothing
            }
            () if link.may_send == 0 || !link.unsent.is_empty() => Writable::Nothing,
            () => Writable::Room,
        }
    }

    /// Sends bytes of a stream over the path to a peer: see [`Client::write_with`].
    ///
    /// # Errors
    /// [`SendError`]: then nothing was sent.
    pub fn write_directly(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        sender: &mut Sender,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<usize, SendError> {
        let Some(at) = self.route(id) else { return Ok(0) };
        if self.peers[at].as_ref().is_some_and(|peer| !peer.to_tell.is_empty()) {
            let flushed = match self.flush_to(at, sender) {
                Ok(true) => None,
                Ok(false) => Some(SendError::Full),
                Err(error) => Some(error),
            };
            if let Some(error) = flushed {
                self.refuse_at(at, id, &error);
                return Err(error);
            }
        }
        if self.writable(id) != Writable::Room {
            return Ok(0);
        }
        let Some((_, number)) = self.connection(id).and_then(|one| one.link) else { return Ok(0) };
        let before = self.connection(id).map_or(0, |one| one.sent);
        let link = self.peers[at].as_mut().and_then(|peer| peer.links.get_mut(&number));
        let Some(link) = link else { return Ok(0) };
        if link.is_gone {
            // As TCP does with bytes for a side that is closed.
            self.break_link(id.index() as u32);
            return Ok(0);
        }
        let bytes = bytes.min(link.may_send).min(DATA_BYTES_MAX);
        let value = if link.has_moved { link.sent } else { before };
        let head = Head { value, ..Head::new(Kind::Data, number) };
        if let Err(error) = sender.send_built(&head.bytes(), bytes, fill) {
            self.refuse_at(at, id, &error);
            return Err(error);
        }
        link.may_send -= bytes;
        link.sent = value + bytes as u64;
        if !std::mem::replace(&mut link.has_moved, true) {
            self.say(id.index() as u32, say::MOVED);
        }
        Ok(bytes)
    }

    /// Sends bytes of a stream over the path to a peer: see [`Client::write_all`].
    ///
    /// # Errors
    /// [`SendError::Severed`].
    pub fn write_all_directly(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        sender: &mut Sender,
    ) -> Result<(), SendError> {
        let fill = |room: &mut [u8]| room.copy_from_slice(&bytes[..room.len()]);
        let sent = match self.write_directly(id, bytes.len(), sender, fill) {
            Ok(sent) => sent,
            Err(error @ SendError::Severed(_)) => return Err(error),
            Err(_) => 0,
        };
        let left = &bytes[sent..];
        let Some((at, number)) = self.connection(id).and_then(|one| one.link) else {
            return Ok(());
        };
        let before = self.connection(id).map_or(0, |one| one.sent);
        if left.is_empty() {
            return Ok(());
        }
        let Some(peer) = self.peers[at].as_mut() else { return Ok(()) };
        let Some(link) = peer.links.get_mut(&number).filter(|link| !link.is_gone) else {
            return Ok(());
        };
        if !std::mem::replace(&mut link.has_moved, true) {
            link.sent = before;
            self.say(id.index() as u32, say::MOVED);
        }
        let Some(peer) = self.peers[at].as_mut() else { return Ok(()) };
        if let Some(link) = peer.links.get_mut(&number) {
            link.may_send = link.may_send.saturating_sub(left.len());
            link.unsent = left.into();
        }
        peer.tell(number, tell::DATA);
        Ok(())
    }

    /// Bytes that can be sent in one message to a peer now.
    pub(super) fn room_directly(&self, at: usize, number: u32) -> usize {
        let peer = self.peers.get(at).and_then(Option::as_ref);
        let link = peer.and_then(|peer| peer.links.get(&number));
        link.map_or(0, |link| match link.is_gone {
            true => DATA_BYTES_MAX,
            false => link.may_send.min(DATA_BYTES_MAX),
        })
    }

    /// A verb is refused: the socket has news when it may be tried again.
    fn refuse_at(&mut self, at: usize, id: ConnectionId, error: &SendError) {
        let index = id.index() as u32;
        match error {
            SendError::Full | SendError::Quiesced => {
                if let Some(peer) = self.peer(at) {
                    peer.blocked.insert(index);
                }
            }
            error => self.refuse(index, error),
        }
    }

    /// Returns true if a verb had to be refused because the path to a peer had no room.
    pub fn is_blocked_at(&self, at: usize) -> bool {
        let peer = self.peers.get(at).and_then(Option::as_ref);
        peer.is_some_and(|peer| !peer.blocked.is_empty())
    }

    /// Returns true if something waits for room on the path to a peer.
    pub fn is_waiting_at(&self, at: usize) -> bool {
        let peer = self.peers.get(at).and_then(Option::as_ref);
        peer.is_some_and(|peer| !peer.blocked.is_empty() || !peer.to_tell.is_empty())
    }

    /// There may be room on the path to a peer again: those who were refused are told.
    pub fn has_room_at(&mut self, at: usize) {
        let Some(peer) = self.peer(at) else { return };
        let blocked = std::mem::take(&mut peer.blocked);
        self.has_moved |= !blocked.is_empty();
        blocked.into_iter().for_each(|index| self.note(index));
    }

    /// Copies what has come over the path to a peer into `target`, and returns how many bytes.
    pub fn read_directly(
        &mut self,
        id: ConnectionId,
        target: &mut [u8],
        receiver: Option<&mut Receiver>,
    ) -> usize {
        self.take_directly(id, |parked, kept| parked.read(target, kept, receiver))
    }

    /// Throws away the first bytes of what has come over the path to a peer.
    pub fn skip_directly(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        receiver: Option<&mut Receiver>,
    ) {
        let mut left = bytes;
        self.take_directly(id, |parked, kept| {
            parked.take(kept, receiver, |there, _| {
                let now = there.min(left);
                left -= now;
                now
            })
        });
    }

    fn take_directly(
        &mut self,
        id: ConnectionId,
        take: impl FnOnce(&mut Parked, &mut Kept) -> usize,
    ) -> usize {
        let Some(one) = self.connection(id) else { return 0 };
        if !one.parked.is_empty() || self.direct(one) != Direct::Bytes {
            return 0;
        }
        let Some((at, number)) = one.link else { return 0 };
        let Some(peer) = self.peers[at].as_mut() else { return 0 };
        let Peer { links, kept, .. } = peer;
        let Some(link) = links.get_mut(&number) else { return 0 };
        let count = take(&mut link.parked, kept);
        link.read += count as u64;
        link.to_return += count;
        if link.to_return >= CREDIT_BYTES_MAX / 4 && !link.has_finished && !link.is_gone {
            peer.tell(number, tell::CREDIT);
        }
        count
    }

    /// Bytes that have come over the path to a peer, and their copy.
    pub(super) fn waiting_directly(&self, one: &Connection) -> Option<&Parked> {
        if self.direct(one) != Direct::Bytes {
            return None;
        }
        let (at, number) = one.link?;
        Some(&self.peers.get(at)?.as_ref()?.links.get(&number)?.parked)
    }

    /// This side sends nothing more: if it has moved, the peer is told. Returns false if the machine is to be told.
    pub(super) fn shut_directly(&mut self, index: u32) -> bool {
        let Some(one) = connection_at(&mut self.slots, index) else { return false };
        let Some((at, number)) = one.link else { return false };
        let Some(peer) = self.peers.get_mut(at).and_then(Option::as_mut) else { return false };
        let has_moved = peer.links.get(&number).is_some_and(|link| link.has_moved);
        if has_moved && peer.stage == Stage::Met {
            peer.tell(number, tell::FINISHED);
        }
        has_moved
    }

    /// The program has closed a connection, or reset it: the peer is told where it has ceased to read.
    pub(super) fn leave_directly(&mut self, index: u32, is_reset: bool) {
        let Some(one) = connection_at(&mut self.slots, index) else { return };
        let (is_receive_shut, is_send_shut) = (one.is_receive_shut, one.is_send_shut);
        let Some((at, number)) = one.link.take() else { return };
        let Some(peer) = self.peers.get_mut(at).and_then(Option::as_mut) else { return };
        let is_over = peer.stage == Stage::Over;
        let Some(link) = peer.links.get_mut(&number) else { return };
        if is_over || link.is_gone || !link.has_said_hello {
            peer.forget(number);
            if is_over && peer.links.is_empty() {
                self.peers[at] = None;
            }
            return;
        }
        let read = match link.begins_at {
            Some(_) if !is_receive_shut => link.read,
            _ => u64::MAX,
        };
        link.index = None;
        link.bye = (u8::from(is_reset), read);
        let (has_moved, parked) = (link.has_moved, std::mem::take(&mut link.parked));
        peer.drop_later(parked);
        if has_moved && !is_reset && !is_send_shut {
            peer.tell(number, tell::FINISHED);
        }
        peer.tell(number, tell::BYE);
    }

    /// Says what is to be said to a peer. Returns false if the path had no room for all of it.
    ///
    /// # Errors
    /// [`SendError`], never `Full`: the path is of no use.
    pub fn flush_to(&mut self, at: usize, sender: &mut Sender) -> Result<bool, SendError> {
        loop {
            let Some(peer) = self.peers.get_mut(at).and_then(Option::as_mut) else {
                return Ok(true);
            };
            let Some(number) = peer.to_tell.front().copied() else { return Ok(true) };
            match peer.tell_all_of(number, sender) {
                Ok(index) => {
                    peer.to_tell.pop_front();
                    // What it had written is on its way.
                    index.into_iter().for_each(|index| self.note(index));
                }
                Err(SendError::Full | SendError::Quiesced) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes in what a peer has sent. Returns true if there was something.
    ///
    /// # Errors
    /// [`Left`]: the path is to be ended, and [`Client::lose_peer`] to be called.
    pub fn take_in_from(&mut self, at: usize, receiver: &mut Receiver) -> Result<bool, Left> {
        let Some(peer) = self.peer(at) else { return Ok(false) };
        if !peer.dropped.is_empty() {
            let Peer { dropped, kept, .. } = peer;
            for mut parked in dropped.drain(..) {
                parked.clear(kept, Some(receiver));
            }
        }
        for taken in 0..MESSAGES_PER_CALL {
            match receiver.fetch_up_to(0, DATA_BYTES_MAX)? {
                None => return Ok(taken > 0),
                Some(fetched) => self.take_from(at, fetched, receiver)?,
            }
        }
        Ok(true)
    }

    fn take_from(
        &mut self,
        at: usize,
        fetched: Fetched,
        receiver: &mut Receiver,
    ) -> Result<(), Fault> {
        if let Some(Peer { links, kept, .. }) = self.peer(at) {
            kept.count();
            while let Some((message, number)) = kept.take_overdue() {
                if let Some(link) = links.get_mut(&number) {
                    link.parked.copy_out(message, kept, receiver);
                }
            }
        }
        match fetched {
            Fetched::Copied(message) => {
                let message = receiver.message(message);
                let head = Head::parse(message.head)?;
                match head.kind {
                    Kind::Data => {
                        let is_wanted = self.reader_of(at, head, message.body.len())?;
                        if let (Some(index), Some(peer)) = (is_wanted, self.peers[at].as_mut())
                            && let Some(link) = peer.links.get_mut(&head.socket)
                        {
                            link.parked.push_copy(message.body);
                            self.note(index);
                        }
                        Ok(())
                    }
                    _ if !message.body.is_empty() => Err(Fault::Length),
                    _ => self.heard(at, head),
                }
            }
            Fetched::InPage(page) => self.take_page_from(at, page, receiver),
            Fetched::TooLong => Err(Fault::Length),
        }
    }

    fn take_page_from(
        &mut self,
        at: usize,
        page: InPage,
        receiver: &mut Receiver,
    ) -> Result<(), Fault> {
        let mut head = [0; HEAD_BYTES];
        let parsed = match page.head_bytes() == head.len() {
            true => page.view().read(0, &mut head).map_err(|_| Fault::Head),
            false => Err(Fault::Head),
        };
        let wanted = parsed.and_then(|()| Head::parse(&head)).and_then(|head| match head.kind {
            Kind::Data => Ok((head, self.reader_of(at, head, page.body_bytes())?)),
            // Nothing else is so long.
            _ => Err(Fault::Length),
        });
        if let Ok((head, Some(index))) = wanted
            && let Some(Peer { links, kept, .. }) = self.peer(at)
            && let Some(link) = links.get_mut(&head.socket)
        {
            link.parked.push_page(head.socket, page, kept, receiver);
            self.note(index);
            return Ok(());
        }
        let _ = receiver.give_back(page);
        wanted.map(|_| ())
    }

    /// Notes that so many bytes have come. Returns the socket if its program still takes them.
    fn reader_of(&mut self, at: usize, head: Head, bytes: usize) -> Result<Option<u32>, Fault> {
        let Client { peers, slots, .. } = self;
        let Some(peer) = peers[at].as_mut() else { return Ok(None) };
        // Of one that we have closed, the peer has not heard yet, or nothing of it was ever here.
        let Some(link) = peer.links.get_mut(&head.socket) else { return Ok(None) };
        if !link.has_said_hello || link.has_finished || link.is_gone {
            return Err(Fault::Socket);
        }
        link.begin(head.value);
        if head.code != 0 || head.value != link.came {
            return Err(Fault::Value);
        }
        if link.parked.bytes() + link.to_return + bytes > CREDIT_BYTES_MAX {
            return Err(Fault::Credit);
        }
        link.came = link.came.checked_add(bytes as u64).ok_or(Fault::Value)?;
        let Some(index) = link.index else { return Ok(None) };
        let Some(one) = connection_at(slots, index) else { return Ok(None) };
        if !one.is_receive_shut {
            return Ok(Some(index));
        }
        link.read += bytes as u64;
        link.to_return += bytes;
        peer.tell(head.socket, tell::CREDIT);
        Ok(None)
    }

    /// Takes what a peer says of a connection.
    fn heard(&mut self, at: usize, head: Head) -> Result<(), Fault> {
        let Some(peer) = self.peers[at].as_mut() else { return Ok(()) };
        let number = head.socket;
        if head.code != 0 && head.kind != Kind::Bye {
            return Err(Fault::Value);
        }
        let credit = usize::try_from(head.value).ok().filter(|it| *it <= CREDIT_BYTES_MAX);
        let Some(link) = peer.links.get_mut(&number) else {
            match head.kind {
                Kind::Hello => {
                    let credit = credit.ok_or(Fault::Value)?;
                    if peer.hellos.len() >= HELLOS_MAX {
                        return Err(Fault::Value);
                    }
                    peer.hellos.insert(number, credit);
                }
                Kind::Bye => {
                    peer.hellos.remove(&number);
                }
                Kind::Credit | Kind::Finished => {}
                _ => return Err(Fault::Kind),
            }
            return Ok(());
        };
        match head.kind {
            Kind::Hello if !link.has_heard_hello => {
                (link.has_heard_hello, link.may_send) = (true, credit.ok_or(Fault::Value)?);
            }
            Kind::Credit if link.has_heard_hello => {
                let may_send = link.may_send.saturating_add(credit.ok_or(Fault::Value)?);
                link.may_send =
                    Some(may_send).filter(|it| *it <= 2 * CREDIT_BYTES_MAX).ok_or(Fault::Credit)?;
            }
            Kind::Finished if !link.has_finished && link.has_said_hello => {
                link.begin(head.value);
                if head.value != link.came {
                    return Err(Fault::Value);
                }
                link.has_finished = true;
            }
            Kind::Bye if !link.is_gone && head.code <= 1 => {
                link.is_gone = true;
                let is_reset = head.code == 1 || link.has_moved && head.value < link.sent;
                let is_of_use = link.has_moved || link.begins_at.is_some();
                let index = link.index;
                let Some(index) = index.filter(|_| is_of_use || is_reset) else {
                    if let Some(one) = index.and_then(|index| connection_at(&mut self.slots, index))
                    {
                        one.link = None;
                    }
                    peer.forget(number);
                    return Ok(());
                };
                if is_reset {
                    self.break_link(index);
                }
            }
            Kind::Hello | Kind::Credit | Kind::Finished | Kind::Bye => return Err(Fault::Socket),
            _ => return Err(Fault::Kind),
        }
        let index = self.peers[at].as_ref().and_then(|peer| peer.links.get(&number)?.index);
        if let Some(index) = index {
            self.note(index);
        }
        Ok(())
    }
}

impl Peer {
    /// Says all that is to be said of a connection. Returns its socket if bytes that had waited have gone.
    fn tell_all_of(&mut self, number: u32, sender: &mut Sender) -> Result<Option<u32>, SendError> {
        let mut wrote = None;
        let Some(link) = self.links.get_mut(&number) else { return Ok(None) };
        while link.tell != 0 {
            let what: u8 = 1 << link.tell.trailing_zeros();
            let head = match what {
                tell::HELLO => {
                    Head { value: CREDIT_BYTES_MAX as u64, ..Head::new(Kind::Hello, number) }
                }
                tell::CREDIT => {
                    Head { value: link.to_return as u64, ..Head::new(Kind::Credit, number) }
                }
                tell::DATA => Head { value: link.sent, ..Head::new(Kind::Data, number) },
                tell::FINISHED => Head { value: link.sent, ..Head::new(Kind::Finished, number) },
                _ => {
                    let (code, value) = link.bye;
                    Head { code, value, ..Head::new(Kind::Bye, number) }
                }
            };
            match what {
                tell::DATA => sender.send(&head.bytes(), &link.unsent)?,
                tell::CREDIT if link.to_return == 0 => {}
                _ => sender.send(&head.bytes(), &[])?,
            }
            match what {
                tell::HELLO => link.has_said_hello = true,
                tell::CREDIT => link.to_return = 0,
                tell::DATA => {
                    link.sent += link.unsent.len() as u64;
                    link.unsent = Box::default();
                    wrote = link.index;
                }
                _ => {}
            }
            link.tell &= !what;
            if what == tell::BYE {
                // Nothing is known of it from now on. What the peer still sends is for nobody.
                self.links.remove(&number);
                return Ok(None);
            }
        }
        Ok(wrote)
    }
}

fn connection_at(slots: &mut [Slot], index: u32) -> Option<&mut Connection> {
    match &mut slots.get_mut(index as usize)?.socket {
        Some(Socket::Connection(one)) => Some(one),
        _ => None,
    }
}
