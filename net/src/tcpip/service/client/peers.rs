//! Other clients of the machine that have a path to this one, and the connections whose bytes go over it.
//!
//! The machine introduces two clients that talk with each other over its TCP. Each half of a connection then moves by itself: its sender
//! counts the bytes that went over the machine, and says with each message that goes directly where in the stream it belongs. So its receiver takes
//! what came over the machine first, and needs no sign in between. A half moves when the other side has said hello, with credit: it knows
//! the connection then.
//!
//! What TCP means stays: the end of a half, a reset, and bytes that nobody read, which are a reset for their sender. A peer whose path ends
//! resets what has moved; what has not goes on over the machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use fabric::name::Name;
use fabric::path::{Fetched, InPage, Receiver, SendError, Sender};

use super::socket::{Connection, Socket, say};
use super::{Client, Slot};
use crate::tcpip::service::format::{Failure, HEAD_BYTES, Head, Kind, answer};
use crate::tcpip::service::parked::{Kept, Parked};
use crate::tcpip::service::{CALLS_AT_END_MAX, CREDIT_BYTES_MAX, DATA_BYTES_MAX, Fault, Left};
use crate::tcpip::{ConnectionId, Writable};

/// Peers of a client, at most. The machine is told that there is no room for more now.
pub(in crate::tcpip::service) const PEERS_MAX: usize = 64;

/// Introductions of a machine that does not take the answers, at most. Of each there are two things to be said at most.
const UNANSWERED_MAX: usize = 4096;

/// Connections that a peer knows and the machine has not told us of, at most.
const HELLOS_MAX: usize = 4096;

/// Messages of a peer that one call takes in, at most.
const MESSAGES_PER_CALL: usize = 64;

/// Peers of one name that have not ended, at most: a guest may be two clients, each of which the machine introduces again while the end of the last is
/// on its way.
pub(in crate::tcpip::service) const PEERS_OF_NAME_MAX: usize = 4;

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
    /// Its program is to ask for a path, or is to be asked for one.
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
    name: Name,
    stage: Stage,
    /// Set if it was asked for by the peer.
    is_asked: bool,
    links: BTreeMap<u32, Link>,
    /// Credit of connections that the peer knows and the machine has not told us of.
    hellos: BTreeMap<u32, usize>,
    /// Connections of which something is to be said.
    to_tell: VecDeque<u32>,
    /// Connections that are closed and that the peer was not told all of, in that order, and since when, once that was asked for.
    leaving: VecDeque<(u32, Option<u64>)>,
    kept: Kept,
    /// What was not read of connections that are closed: its pages go back when the path is looked at next.
    dropped: Vec<Parked>,
    /// Sockets whose verbs were refused because the path had no room.
    blocked: BTreeSet<u32>,
}

/// A peer from whom all is to be taken in that has come.
#[derive(Debug)]
pub(super) struct Look {
    at: u32,
    /// Calls that have taken some in.
    calls: usize,
    /// How many there had been at the first end that all is taken in for.
    first: usize,
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
    /// Set once this side sends here alone, and once it has sent all that it had to send.
    has_moved: bool,
    is_ended: bool,
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
    /// Set once the connection has ended at the machine, and what had come by then was taken in.
    is_cut_off: bool,
    /// How many calls had taken some in of what had come from the peer when the connection ended at the machine.
    ended_at: Option<usize>,
    /// What it is told when this side is closed, and the socket that the machine is told of then.
    bye: (u8, u64),
    leaving: Option<u32>,
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
            is_ended: false,
            sent: 0,
            unsent: Box::default(),
            begins_at: None,
            came: 0,
            read: 0,
            parked: Parked::default(),
            to_return: 0,
            has_finished: false,
            is_gone: false,
            is_cut_off: false,
            ended_at: None,
            bye: (0, 0),
            leaving: None,
        }
    }

    /// The other side sends here, from this byte of the stream on, unless it did before. What has come over the machine has come.
    fn begin(&mut self, at: u64, slots: &[Slot]) -> Result<(), Fault> {
        if self.begins_at.is_none() {
            let one = self.index.and_then(|index| connection_of_slot(slots, index));
            if one.is_some_and(|one| at < one.came) {
                return Err(Fault::Value);
            }
            (self.begins_at, self.came, self.read) = (Some(at), at, at);
        }
        Ok(())
    }
}

impl Peer {
    fn new(name: Name, stage: Stage, is_asked: bool) -> Peer {
        Peer {
            name,
            stage,
            is_asked,
            links: BTreeMap::new(),
            hellos: BTreeMap::new(),
            to_tell: VecDeque::new(),
            leaving: VecDeque::new(),
            kept: Kept::default(),
            dropped: Vec::new(),
            blocked: BTreeSet::new(),
        }
    }

    fn tell(&mut self, number: u32, what: u8) {
        if self.stage == Stage::Over {
            return;
        }
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

    /// The peer was told all of some connections that are closed.
    fn settle_leaving(&mut self) {
        let Peer { links, leaving, .. } = self;
        let is_over = |(number, _): &mut (u32, Option<u64>)| {
            links.get(number).is_none_or(|link| link.leaving.is_none())
        };
        while leaving.pop_front_if(is_over).is_some() {}
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
    /// The machine says that another client is to be met, or that nothing comes of it.
    pub(in crate::tcpip::service) fn on_introduced(
        &mut self,
        head: Head,
        name: Name,
    ) -> Result<(), Fault> {
        let (pair, is_asked) = (head.socket, head.kind == Kind::Expect);
        match head.code {
            0 => {}
            answer::NO => {
                // Who makes a path for it now finds that there is no such peer.
                if self.peers.get(&pair).is_some_and(|peer| peer.stage != Stage::Met) {
                    self.lose_peer(pair);
                }
                return Ok(());
            }
            _ => return Err(Fault::Value),
        }
        if self.to_answer.is_empty() {
            self.unanswered = 0;
        }
        // What has become of paths is no fault of the machine's.
        if self.unanswered >= UNANSWERED_MAX {
            return Err(Fault::Value);
        }
        self.unanswered += 1;
        // A pair of a machine that is gone may have the same number. Those who do not meet talk over the machine.
        // What is left of one that is over are connections, which count as such.
        let there = self.peers.values().filter(|peer| peer.stage != Stage::Over);
        let (mut count, mut of_name) = (0, 0);
        for peer in there {
            count += 1;
            of_name += usize::from(peer.name == name);
        }
        if count >= PEERS_MAX || of_name >= PEERS_OF_NAME_MAX || self.peers.contains_key(&pair) {
            let kind = if is_asked { Kind::Ready } else { Kind::Met };
            self.to_answer.push_back(Head { code: answer::NOT_NOW, ..Head::new(kind, pair) });
            return Ok(());
        }
        if is_asked {
            self.to_answer.push_back(Head::new(Kind::Ready, pair));
        }
        self.peers.insert(pair, Peer::new(name, Stage::ToMeet, is_asked));
        Ok(())
    }

    /// A pair whose other client is to be asked for a path, and that client's guest. [`Client::meet`], [`Client::lose_peer`] or [`Client::put_off_peer`]
    /// says what has become of that.
    pub fn next_to_meet(&mut self) -> Option<(u32, Name)> {
        self.begin_to_meet(false)
    }

    /// A pair whose other client asks for a path. [`Client::meet`], [`Client::lose_peer`] or [`Client::put_off_peer`] says what has become of that.
    pub fn next_to_expect(&mut self) -> Option<u32> {
        self.begin_to_meet(true).map(|(pair, _)| pair)
    }

    fn begin_to_meet(&mut self, is_asked: bool) -> Option<(u32, Name)> {
        let mut peers = self.peers.iter_mut();
        let is_to_meet = |peer: &Peer| peer.stage == Stage::ToMeet && peer.is_asked == is_asked;
        let (pair, peer) = peers.find(|(_, peer)| is_to_meet(peer))?;
        peer.stage = Stage::Meeting;
        Some((*pair, peer.name))
    }

    /// Returns true if a guest may ask for the path of this pair.
    pub fn expects(&self, pair: u32, name: Name) -> bool {
        self.peers
            .get(&pair)
            .is_some_and(|peer| peer.is_asked && peer.stage == Stage::Meeting && peer.name == name)
    }

    /// Returns true if a path to a peer is being made, and is wanted still.
    pub fn is_meeting(&self, at: u32) -> bool {
        self.peers.get(&at).is_some_and(|peer| peer.stage == Stage::Meeting)
    }

    /// There is a path to a peer. Returns false if none is wanted any more.
    pub fn meet(&mut self, at: u32) -> bool {
        let Some(peer) = self.peers.get_mut(&at) else { return false };
        if peer.stage != Stage::Meeting {
            return false;
        }
        peer.stage = Stage::Met;
        if !peer.is_asked {
            self.to_answer.push_back(Head::new(Kind::Met, at));
        }
        true
    }

    /// There is no path to a peer, or no more. What has moved there is reset; the rest goes on over the machine.
    pub fn lose_peer(&mut self, at: u32) {
        self.end_peer(at, answer::NO);
    }

    /// There is no path to a peer for want of something that may be there later: the machine may introduce the two again.
    pub fn put_off_peer(&mut self, at: u32) {
        self.end_peer(at, answer::NOT_NOW);
    }

    fn end_peer(&mut self, at: u32, code: u8) {
        // Nothing more is taken in.
        self.to_look_at.retain(|look| look.at != at);
        let Some(peer) = self.peers.get_mut(&at) else { return };
        if peer.stage == Stage::Over {
            return;
        }
        if self.gone.is_none() {
            self.to_answer.push_back(Head { code, ..Head::new(Kind::Met, at) });
        }
        peer.stage = Stage::Over;
        peer.dropped.clear();
        peer.to_tell.clear();
        peer.leaving.clear();
        peer.hellos.clear();
        let mut news: Vec<u32> = std::mem::take(&mut peer.blocked).into_iter().collect();
        let (mut lost, mut left) = (Vec::new(), Vec::new());
        let slots = &mut self.slots;
        peer.links.retain(|_, link| {
            link.tell = 0;
            let Some(index) = link.index else {
                left.extend(link.leaving);
                return false;
            };
            let Some(one) = connection_at(slots, index) else { return false };
            let is_read = one.is_moved_in || link.begins_at.is_some();
            if link.has_moved && !link.is_gone || is_read && !link.has_finished {
                lost.push(index);
            }
            // What has come is read, and a half that has moved moves no more.
            let is_kept = link.has_moved || link.begins_at.is_some();
            if !is_kept {
                one.link = None;
                news.push(index);
            }
            is_kept
        });
        let is_empty = peer.links.is_empty();
        news.into_iter().for_each(|index| self.note(index));
        left.into_iter().for_each(|index| self.has_left(index));
        lost.into_iter().for_each(|index| self.break_link(index));
        if is_empty {
            self.peers.remove(&at);
        }
    }

    /// A connection was closed, and the peer has been told so: the machine is told now.
    fn has_left(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if std::mem::take(&mut slot.is_leaving) && slot.say & say::CLOSE != 0 {
            // It may be among those that have something else to say.
            self.to_say.retain(|other| *other != index);
            self.to_say.push_back(index);
        }
    }

    /// The machine says that the other side has closed a half that had moved: its end comes directly, if it still can.
    pub(super) fn on_moved_in(&mut self, index: u32) {
        // The program may have closed it meanwhile.
        if self.slots[index as usize].is_closed() {
            return;
        }
        let Some(one) = connection_at(&mut self.slots, index) else { return };
        one.is_moved_in = true;
        let Some(one) = connection_of_slot(&self.slots, index) else { return };
        let is_complete = one.link.is_some_and(|(at, number)| {
            let peer = self.peers.get(&at);
            let link = peer.and_then(|peer| peer.links.get(&number));
            link.is_some_and(|link| link.has_finished)
        });
        if !is_complete && !self.may_still_come(one) {
            self.break_link(index);
        }
    }

    /// Returns true if more of the half that the other side has moved comes directly, whatever the machine says.
    pub(super) fn may_still_come(&self, one: &Connection) -> bool {
        let Some((at, number)) = one.link else { return false };
        let Some(peer) = self.peers.get(&at) else { return false };
        let Some(link) = peer.links.get(&number) else { return false };
        let is_over = link.has_finished || link.is_gone || link.is_cut_off;
        let has_begun = one.is_moved_in || link.begins_at.is_some();
        // The first of it may be among what was not taken in.
        let may_begin = || {
            let has_ended = one.has_broken || self.gone.is_some();
            has_ended && !one.has_finished && self.to_look_at.iter().any(|look| look.at == at)
        };
        peer.stage == Stage::Met && !is_over && (has_begun || may_begin())
    }

    /// A connection has ended at the machine: what its other side had sent directly by then still counts.
    pub(super) fn on_broken(&mut self, index: u32) {
        let link = connection_of_slot(&self.slots, index).and_then(|one| one.link);
        if let Some((at, number)) = link {
            let calls = self.look_later(at);
            let link = self.peers.get_mut(&at).and_then(|peer| peer.links.get_mut(&number));
            if let Some(link) = link {
                link.ended_at.get_or_insert(calls);
            }
        }
    }

    /// All that has come from a peer by now is to be taken in before something ends. Returns how many calls have taken some in already.
    fn look_later(&mut self, at: u32) -> usize {
        match self.to_look_at.iter().find(|look| look.at == at) {
            Some(look) => look.calls,
            None => {
                self.to_look_at.push_back(Look { at, calls: 0, first: 0 });
                0
            }
        }
    }

    /// The machine is gone: paths to peers end, and what had come over them by then still counts.
    pub(super) fn look_at_all_peers(&mut self) {
        let pairs: Vec<u32> = self.peers.keys().copied().collect();
        for pair in pairs {
            match self.peers.get(&pair).map(|peer| peer.stage) {
                Some(Stage::Met) => {
                    let calls = self.look_later(pair);
                    let links = self.peers.get_mut(&pair).map(|peer| peer.links.values_mut());
                    links.into_iter().flatten().for_each(|link| {
                        link.ended_at.get_or_insert(calls);
                    });
                }
                _ => self.lose_peer(pair),
            }
        }
    }

    /// A peer from whom all is to be taken in that has come, because a connection with it has ended at the machine, or the machine is gone:
    /// [`Client::look_at`] takes some of that in, and [`Client::has_looked_at`] ends it. Peers are named in turn.
    pub fn next_to_look_at(&self) -> Option<u32> {
        self.to_look_at.front().map(|look| look.at)
    }

    /// Takes in some of what a peer had sent, as [`Client::take_in_from`]. Returns false once there is no more of it, or no connection is left that it
    /// is taken in for: a peer that goes on sending holds up none for more than [`CALLS_AT_END_MAX`] calls, though others end meanwhile.
    ///
    /// # Errors
    /// As [`Client::take_in_from`].
    pub fn look_at(&mut self, at: u32, receiver: &mut Receiver) -> Result<bool, Left> {
        // Buffers that bring nothing may lie before others.
        let may_be_more = self.take_in_from(at, receiver)? || receiver.is_ready();
        let Some(index) = self.to_look_at.iter().position(|look| look.at == at) else {
            return Ok(false);
        };
        let Some(mut look) = self.to_look_at.remove(index) else { return Ok(false) };
        look.calls += 1;
        let is_left = may_be_more && self.cut_off_late(&mut look);
        self.to_look_at.push_back(look);
        Ok(is_left)
    }

    /// Nothing more comes of connections that have ended so many calls ago. Returns false if no other is left that has ended.
    fn cut_off_late(&mut self, look: &mut Look) -> bool {
        let is_late = |ended_at: usize| look.calls - ended_at >= CALLS_AT_END_MAX;
        if !is_late(look.first) {
            return true;
        }
        let Some(peer) = self.peers.get_mut(&look.at) else { return false };
        let (mut late, mut first) = (Vec::new(), None::<usize>);
        for link in peer.links.values_mut().filter(|link| !link.is_cut_off) {
            match (link.index, link.ended_at) {
                (Some(index), Some(ended_at)) if is_late(ended_at) => {
                    link.is_cut_off = true;
                    late.push(index);
                }
                (Some(_), Some(ended_at)) => {
                    first = Some(first.map_or(ended_at, |first| first.min(ended_at)));
                }
                _ => {}
            }
        }
        late.into_iter().for_each(|index| self.note(index));
        look.first = first.unwrap_or(look.calls);
        first.is_some()
    }

    /// All was taken in that had come from a peer: nothing more comes of connections that have ended at the machine, and no more at all if the
    /// machine is gone.
    pub fn has_looked_at(&mut self, at: u32) {
        self.to_look_at.retain(|look| look.at != at);
        let is_gone = self.gone.is_some();
        let Client { peers, slots, .. } = self;
        let Some(peer) = peers.get_mut(&at) else { return };
        let mut ended = Vec::new();
        for link in peer.links.values_mut() {
            let one = link.index.and_then(|index| connection_of_slot(slots, index));
            if one.is_some_and(|one| one.has_broken || is_gone) {
                link.is_cut_off = true;
                ended.extend(link.index);
            }
        }
        ended.into_iter().for_each(|index| self.note(index));
        if is_gone {
            self.lose_peer(at);
        }
    }

    /// The bytes of a connection can go nowhere: its half has moved to a path that has ended.
    pub fn break_moved(&mut self, id: ConnectionId) {
        if self.route(id).is_some() {
            self.break_link(id.index() as u32);
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
        let peer = self.peers.get_mut(&pair).filter(|peer| peer.stage != Stage::Over);
        let slot = &mut self.slots[index as usize];
        let is_closed = slot.is_closed();
        let Some(Socket::Connection(one)) = &mut slot.socket else { return Err(Fault::Socket) };
        if !one.is_open || one.link.is_some() {
            return Err(Fault::Socket);
        }
        let Some(peer) = peer else { return Ok(()) };
        if is_closed {
            // Nobody says hello here, so the peer's bytes go over the machine.
            peer.hellos.remove(&number);
            return Ok(());
        }
        if peer.links.contains_key(&number) {
            return Err(Fault::InUse);
        }
        let mut link = Link::new(index);
        if let Some(credit) = peer.hellos.remove(&number) {
            (link.has_heard_hello, link.may_send) = (true, credit);
        }
        one.link = Some((pair, number));
        peer.links.insert(number, link);
        peer.tell(number, tell::HELLO);
        Ok(())
    }

    /// Connections that have something to do with a peer.
    #[cfg(test)]
    pub(in crate::tcpip::service) fn links(&self) -> usize {
        self.peers.values().map(|peer| peer.links.len() + peer.hellos.len()).sum()
    }

    /// The peer over whose path the bytes of a connection go that are written now. None: they go over the machine.
    pub fn route(&self, id: ConnectionId) -> Option<u32> {
        let one = self.connection(id)?;
        let (at, number) = one.link?;
        let peer = self.peers.get(&at)?;
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
    pub fn source(&self, id: ConnectionId) -> Option<u32> {
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
        let peer = self.peers.get(&at);
        let Some(link) = peer.and_then(|peer| peer.links.get(&number)) else { return Direct::No };
        match () {
            () if link.begins_at != Some(one.came) => Direct::No,
            () if !link.parked.is_empty() => Direct::Bytes,
            () if link.has_finished => Direct::Finished,
            () => Direct::Nothing,
        }
    }

    /// Says whether bytes of a connection can be sent over the path to a peer.
    pub(super) fn writable_directly(&self, index: u32, at: u32, number: u32) -> Writable {
        let Some(peer) = self.peers.get(&at) else {
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
        if self.peers.get(&at).is_some_and(|peer| !peer.to_tell.is_empty()) {
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
        let link = self.peers.get_mut(&at).and_then(|peer| peer.links.get_mut(&number));
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

    /// Sends bytes of a stream over the path to a peer: see [`Client::write_all`]. The program has given them away: if the path has ended they are lost
    /// with it, and the connection is reset.
    pub fn write_all_directly(&mut self, id: ConnectionId, bytes: &[u8], sender: &mut Sender) {
        if bytes.is_empty() {
            return;
        }
        let fill = |room: &mut [u8]| room.copy_from_slice(&bytes[..room.len()]);
        let sent = self.write_directly(id, bytes.len(), sender, fill).unwrap_or(0);
        let left = &bytes[sent..];
        let Some(one) = self.connection(id).filter(|_| !left.is_empty()) else { return };
        let (before, Some((at, number))) = (one.sent, one.link) else { return };
        let Some(peer) = self.peers.get_mut(&at) else { return };
        let Some(link) = peer.links.get_mut(&number).filter(|link| !link.is_gone) else { return };
        link.may_send = link.may_send.saturating_sub(left.len());
        link.unsent = left.into();
        let has_moved = std::mem::replace(&mut link.has_moved, true);
        if !has_moved {
            link.sent = before;
        }
        peer.tell(number, tell::DATA);
        if !has_moved {
            self.say(id.index() as u32, say::MOVED);
        }
    }

    /// Bytes that can be sent in one message to a peer now.
    pub(super) fn room_directly(&self, at: u32, number: u32) -> usize {
        let peer = self.peers.get(&at);
        let link = peer.and_then(|peer| peer.links.get(&number));
        link.map_or(0, |link| match link.is_gone {
            true => DATA_BYTES_MAX,
            false => link.may_send.min(DATA_BYTES_MAX),
        })
    }

    /// A verb is refused: the socket has news when it may be tried again.
    fn refuse_at(&mut self, at: u32, id: ConnectionId, error: &SendError) {
        let index = id.index() as u32;
        match error {
            SendError::Full | SendError::Quiesced => {
                if let Some(peer) = self.peers.get_mut(&at) {
                    peer.blocked.insert(index);
                }
            }
            error => self.refuse(index, error),
        }
    }

    /// Returns true if a verb had to be refused because the path to a peer had no room.
    pub fn is_blocked_at(&self, at: u32) -> bool {
        let peer = self.peers.get(&at);
        peer.is_some_and(|peer| !peer.blocked.is_empty())
    }

    /// Returns true if something waits for room on the path to a peer.
    pub fn is_waiting_at(&self, at: u32) -> bool {
        let peer = self.peers.get(&at);
        peer.is_some_and(|peer| !peer.blocked.is_empty() || !peer.to_tell.is_empty())
    }

    /// Since when the first of those connections is closed of which a peer has not been told all. The time of those that were closed since this was
    /// called last is `now`.
    pub fn leaving_since(&mut self, at: u32, now: u64) -> Option<u64> {
        let peer = self.peers.get_mut(&at)?;
        peer.settle_leaving();
        // Those of which nobody has asked yet are the last.
        let unasked = peer.leaving.iter_mut().rev().map_while(|(_, since)| match since {
            None => Some(since),
            Some(_) => None,
        });
        unasked.for_each(|since| *since = Some(now));
        peer.leaving.front()?.1
    }

    /// This side lacked something to tell a peer of connections that are closed: the time of their leaving begins anew.
    pub fn begin_leaving_anew(&mut self, at: u32) {
        let leaving = self.peers.get_mut(&at).map(|peer| &mut peer.leaving);
        let asked = leaving.into_iter().flatten().take_while(|(_, since)| since.is_some());
        asked.for_each(|(_, since)| *since = None);
    }

    /// There may be room on the path to a peer again: those who were refused are told.
    pub fn has_room_at(&mut self, at: u32) {
        let Some(peer) = self.peers.get_mut(&at) else { return };
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
        let Some(peer) = self.peers.get_mut(&at) else { return 0 };
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
        Some(&self.peers.get(&at)?.links.get(&number)?.parked)
    }

    /// This side sends nothing more: if it has moved, the peer is told. Returns false if the machine is to be told.
    pub(super) fn shut_directly(&mut self, index: u32) -> bool {
        let Some(one) = connection_at(&mut self.slots, index) else { return false };
        let has_failed = one.has_failed();
        let Some((at, number)) = one.link else { return false };
        let Some(peer) = self.peers.get_mut(&at) else { return false };
        let Some(link) = peer.links.get_mut(&number).filter(|link| link.has_moved) else {
            return false;
        };
        if !has_failed && peer.stage == Stage::Met {
            link.is_ended = true;
            peer.tell(number, tell::FINISHED);
        }
        true
    }

    /// This side receives nothing more: what has come directly is dropped, if bytes before it are still on their way over the machine.
    pub(super) fn drop_behind_gap(&mut self, index: u32) {
        let Some(one) = connection_of_slot(&self.slots, index) else { return };
        let (came, Some((at, number))) = (one.came, one.link) else { return };
        let Some(peer) = self.peers.get_mut(&at) else { return };
        let Some(link) = peer.links.get_mut(&number) else { return };
        if link.begins_at.is_none_or(|begins_at| begins_at == came) {
            return;
        }
        let parked = std::mem::take(&mut link.parked);
        link.read += parked.bytes() as u64;
        link.to_return += parked.bytes();
        peer.drop_later(parked);
        peer.tell(number, tell::CREDIT);
    }

    /// The program has closed a connection, or reset it: the peer is told where it has ceased to read.
    pub(super) fn leave_directly(&mut self, index: u32, is_reset: bool) {
        let Some(one) = connection_at(&mut self.slots, index) else { return };
        let (is_receive_shut, is_send_shut) = (one.is_receive_shut, one.is_send_shut);
        let has_failed = one.has_failed();
        let read = one.read;
        let Some((at, number)) = one.link.take() else { return };
        let Some(peer) = self.peers.get_mut(&at) else { return };
        peer.blocked.remove(&index);
        let is_over = peer.stage == Stage::Over;
        let Some(link) = peer.links.get_mut(&number) else { return };
        if is_over || !link.has_said_hello {
            peer.forget(number);
            if is_over && peer.links.is_empty() {
                self.peers.remove(&at);
            }
            return;
        }
        // A half that has moved of a connection that has failed may lack bytes: it has no end but a reset. What has not moved ended at the machine.
        let is_reset = is_reset || has_failed && link.has_moved && !link.is_ended;
        let read = match link.begins_at {
            _ if is_receive_shut => u64::MAX,
            Some(_) => link.read,
            None => read,
        };
        (link.index, link.leaving) = (None, Some(index));
        link.bye = (u8::from(is_reset), read);
        let (has_moved, parked) = (link.has_moved, std::mem::take(&mut link.parked));
        peer.drop_later(parked);
        if has_moved && !is_reset && !is_send_shut {
            peer.tell(number, tell::FINISHED);
        }
        peer.tell(number, tell::BYE);
        peer.leaving.push_back((number, None));
        // What it has written goes first, and then the machine hears of the end.
        self.slots[index as usize].is_leaving = true;
    }

    /// The next peer behind `last` for whose path there is something to be done: to say, pages to give back, or room to wait for.
    pub fn next_to_flush(&self, last: Option<u32>) -> Option<u32> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut peers = self.peers.range((from, Bound::Unbounded));
        let (at, _) = peers.find(|(_, peer)| {
            let is_idle = peer.to_tell.is_empty() && peer.dropped.is_empty();
            peer.stage == Stage::Met && !(is_idle && peer.blocked.is_empty())
        })?;
        Some(*at)
    }

    /// Gives back the pages of a peer's path that nobody will read.
    pub fn give_back_at(&mut self, at: u32, receiver: &mut Receiver) {
        let Some(Peer { dropped, kept, .. }) = self.peers.get_mut(&at) else { return };
        for mut parked in dropped.drain(..) {
            parked.clear(kept, Some(receiver));
        }
    }

    /// Says what is to be said to a peer. Returns false if the path had no room for all of it.
    ///
    /// # Errors
    /// [`SendError`], never `Full`: the path is of no use.
    pub fn flush_to(&mut self, at: u32, sender: &mut Sender) -> Result<bool, SendError> {
        loop {
            let Some(peer) = self.peers.get_mut(&at) else {
                return Ok(true);
            };
            let Some(number) = peer.to_tell.front().copied() else { return Ok(true) };
            match peer.tell_all_of(number, sender) {
                Ok(told) => {
                    peer.to_tell.pop_front();
                    match told {
                        Told::Nothing => {}
                        // What it had written is on its way.
                        Told::Wrote(index) => self.note(index),
                        Told::Left(index) => self.has_left(index),
                    }
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
    pub fn take_in_from(&mut self, at: u32, receiver: &mut Receiver) -> Result<bool, Left> {
        if !self.peers.contains_key(&at) {
            return Ok(false);
        }
        self.give_back_at(at, receiver);
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
        at: u32,
        fetched: Fetched,
        receiver: &mut Receiver,
    ) -> Result<(), Fault> {
        if let Some(Peer { links, kept, .. }) = self.peers.get_mut(&at) {
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
                        if let (Some(index), Some(peer)) = (is_wanted, self.peers.get_mut(&at))
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
        at: u32,
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
            && let Some(Peer { links, kept, .. }) = self.peers.get_mut(&at)
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
    fn reader_of(&mut self, at: u32, head: Head, bytes: usize) -> Result<Option<u32>, Fault> {
        let Client { peers, slots, .. } = self;
        let Some(peer) = peers.get_mut(&at) else { return Ok(None) };
        // Of one that we have closed, the peer has not heard yet, or nothing of it was ever here.
        let Some(link) = peer.links.get_mut(&head.socket) else { return Ok(None) };
        if !link.has_said_hello || link.has_finished || link.is_gone {
            return Err(Fault::Socket);
        }
        link.begin(head.value, slots)?;
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
    fn heard(&mut self, at: u32, head: Head) -> Result<(), Fault> {
        let Some(peer) = self.peers.get_mut(&at) else { return Ok(()) };
        let number = head.socket;
        if head.code != 0 && head.kind != Kind::Bye {
            return Err(Fault::Value);
        }
        let credit = usize::try_from(head.value).ok().filter(|it| *it <= CREDIT_BYTES_MAX);
        let Some(link) = peer.links.get_mut(&number) else {
            match head.kind {
                Kind::Hello => {
                    let credit = credit.ok_or(Fault::Value)?;
                    // Of one that is not noted, bytes go over the machine.
                    if peer.hellos.len() < HELLOS_MAX {
                        peer.hellos.insert(number, credit);
                    }
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
                link.begin(head.value, &self.slots)?;
                if head.value != link.came {
                    return Err(Fault::Value);
                }
                link.has_finished = true;
            }
            Kind::Bye if !link.is_gone && head.code <= 1 => {
                link.is_gone = true;
                let sent = link.sent + link.unsent.len() as u64;
                let is_reset = head.code == 1 || link.has_moved && head.value < sent;
                let is_of_use = link.has_moved || link.begins_at.is_some();
                let index = link.index;
                let Some(index) = index.filter(|_| is_of_use || is_reset) else {
                    // It is of no use here any more. Whoever has said hello says goodbye, once.
                    if let Some(index) = index {
                        if let Some(one) = connection_at(&mut self.slots, index) {
                            one.link = None;
                        }
                        peer.blocked.remove(&index);
                        match link.has_said_hello {
                            true => {
                                link.index = None;
                                peer.tell(number, tell::BYE);
                            }
                            false => peer.forget(number),
                        }
                        self.note(index);
                    }
                    return Ok(());
                };
                if is_reset {
                    self.break_link(index);
                }
            }
            Kind::Hello | Kind::Credit | Kind::Finished | Kind::Bye => return Err(Fault::Socket),
            _ => return Err(Fault::Kind),
        }
        let index = self.peers.get(&at).and_then(|peer| peer.links.get(&number)?.index);
        if let Some(index) = index {
            self.note(index);
        }
        Ok(())
    }
}

impl Peer {
    /// Says all that is to be said of a connection.
    fn tell_all_of(&mut self, number: u32, sender: &mut Sender) -> Result<Told, SendError> {
        let mut told = Told::Nothing;
        let Some(link) = self.links.get_mut(&number) else { return Ok(told) };
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
                    if let Some(index) = link.index {
                        told = Told::Wrote(index);
                    }
                }
                _ => {}
            }
            link.tell &= !what;
            if what == tell::BYE {
                // Nothing is known of it from now on. What the peer still sends is for nobody.
                let left = link.leaving;
                self.links.remove(&number);
                self.settle_leaving();
                return Ok(left.map_or(Told::Nothing, Told::Left));
            }
        }
        Ok(told)
    }
}

/// What came of saying all that is to be said of a connection.
enum Told {
    Nothing,
    /// Bytes of this socket that had waited have gone.
    Wrote(u32),
    /// All of this socket, which was closed.
    Left(u32),
}

fn connection_of_slot(slots: &[Slot], index: u32) -> Option<&Connection> {
    match &slots.get(index as usize)?.socket {
        Some(Socket::Connection(one)) => Some(one),
        _ => None,
    }
}

fn connection_at(slots: &mut [Slot], index: u32) -> Option<&mut Connection> {
    match &mut slots.get_mut(index as usize)?.socket {
        Some(Socket::Connection(one)) => Some(one),
        _ => None,
    }
}
