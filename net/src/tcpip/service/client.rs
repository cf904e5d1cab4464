//! The client's side: sockets at a machine, with the verbs of a stack of one's own.
//!
//! A verb notes what is to be said of a socket, and [`Client::flush`] says it when the path has room: each socket has at most one of
//! each kind to be said, so what waits is bounded by the sockets. Data goes at once, or not at all.

pub(super) mod peers;
mod socket;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fabric::path::{Fetched, InPage, Receiver, SendError, Sender, Severed};

use self::peers::{Direct, Look, Peer};
use self::socket::{Connection, Datagrams, Listener, Slot, Socket, say};
use super::format::{
    ACCEPTED, ADDRESS_BYTES, COMPLETE, Failure, HEAD_BYTES, Head, Kind, address_bytes,
    keep_alive_bytes, name_of_value, only_address, option, split_address,
};
use super::parked::{Kept, Parked};
use super::server::FAILED_MAX;
use super::{CREDIT_BYTES_MAX, DATA_BYTES_MAX, DATAGRAM_BYTES, DATAGRAM_CREDIT_BYTES, Fault, Left};
use crate::tcpip::{Awaited, ConnectionId, KeepAlive, Readable, Writable};

/// Messages of the machine that one call takes in, at most.
const MESSAGES_PER_CALL: usize = 64;

/// Calls that take in what the machine or a peer had sent before an end, at most: a queue has so many buffers, each with some packed messages. One
/// that goes on sending is not waited for.
pub const CALLS_AT_END_MAX: usize = 256;

/// Sockets that a client has at most, whatever the machine allows.
const SOCKETS_MAX: usize = 1 << 20;

/// Bytes of a message's body at most.
const BODY_BYTES_MAX: usize = ADDRESS_BYTES + (1 << 16);

/// The address of a socket that has none yet.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The sockets of a client.
#[derive(Debug, Default)]
pub struct Client {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections that the machine has numbered, by that number.
    accepted: HashMap<u32, u32>,
    /// Sockets of which something is to be said.
    to_say: VecDeque<u32>,
    kept: Kept,
    addresses: Vec<IpAddr>,
    sockets_max: u64,
    news: Vec<Awaited>,
    changed: BTreeSet<u32>,
    has_moved: bool,
    /// Sockets whose verbs were refused because the path had no room.
    blocked: BTreeSet<u32>,
    /// Sockets whose verbs were refused because memory or descriptors were lacking.
    lacking: BTreeSet<u32>,
    /// Other clients that there is a path to, or will be, and what the machine is to be told of them.
    peers: BTreeMap<u32, Peer>,
    to_answer: VecDeque<Head>,
    /// Introductions since the machine had taken all answers.
    unanswered: usize,
    /// Peers from whom all is to be taken in that has come: the machine has said that a connection with them has ended, or has ended itself.
    to_look_at: VecDeque<Look>,
    /// Why there is no machine any more.
    gone: Option<Left>,
}

impl Client {
    /// The machine's addresses, once it has said them.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Returns true once the machine has sent its first message.
    pub fn is_welcome(&self) -> bool {
        self.sockets_max > 0
    }

    /// How many sockets the machine allows, once it has said so.
    pub fn sockets_max(&self) -> u64 {
        self.sockets_max
    }

    /// Why there is no machine any more, if so.
    pub fn gone(&self) -> Option<Left> {
        self.gone
    }

    /// There is a new path, to this machine or another. Sockets of before stay as they ended.
    pub fn attach_again(&mut self) {
        // Without the machine there are no paths to its clients.
        let pairs: Vec<u32> = self.peers.keys().copied().collect();
        pairs.into_iter().for_each(|pair| self.lose_peer(pair));
        self.gone = None;
        self.kept.begin_path();
        self.addresses.clear();
        self.sockets_max = 0;
    }

    /// Sockets that the program has, and those that are being closed.
    pub fn sockets(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns true if there are no connections, open or being closed.
    pub fn is_quiet(&self) -> bool {
        !self.slots.iter().any(|slot| matches!(slot.socket, Some(Socket::Connection(_))))
    }

    /// Returns true if there is room for another socket that the machine was not asked for. Those that it has refused take room until they are closed.
    fn has_room_for_another(&self) -> bool {
        let most = usize::try_from(self.sockets_max).unwrap_or(usize::MAX);
        self.sockets_max == 0 || self.sockets() < most.saturating_add(FAILED_MAX)
    }

    fn insert(&mut self, socket: Socket) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() >= SOCKETS_MAX => return None,
            None => {
                self.slots.push(Slot::default());
                (self.slots.len() - 1) as u32
            }
        };
        self.slots[index as usize].socket = Some(socket);
        Some(index)
    }

    fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(Socket::Connection(Connection { number, parked, .. })) = &slot.socket {
            assert!(parked.is_empty(), "a page that goes with its connection is lost to the path");
            if number & ACCEPTED != 0 && !slot.is_lost {
                self.accepted.remove(number);
            }
        }
        slot.socket = None;
        slot.say = 0;
        slot.age = slot.age.wrapping_add(1);
        slot.token = None;
        (slot.is_awaited, slot.is_closing, slot.is_lost) = (false, false, false);
        slot.is_leaving = false;
        self.changed.remove(&index);
        self.blocked.remove(&index);
        self.lacking.remove(&index);
        self.free.push(index);
    }

    fn id(&self, index: u32) -> ConnectionId {
        ConnectionId::new(index, self.slots[index as usize].age)
    }

    fn slot(&self, id: ConnectionId) -> Option<&Slot> {
        self.slots.get(id.index()).filter(|slot| slot.age == id.age())
    }

    fn slot_mut(&mut self, id: ConnectionId) -> Option<&mut Slot> {
        self.slots.get_mut(id.index()).filter(|slot| slot.age == id.age())
    }

    fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        match &self.slot(id)?.socket {
            Some(Socket::Connection(connection)) => Some(connection),
            _ => None,
        }
    }

    fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        match &mut self.slot_mut(id)?.socket {
            Some(Socket::Connection(connection)) => Some(connection),
            _ => None,
        }
    }

    /// Something is to be said of a socket, unless the machine that knew the socket is gone: the next one has given its number to another. Nothing
    /// is said of one behind its close.
    fn say(&mut self, index: u32, what: u16) {
        let slot = &mut self.slots[index as usize];
        if slot.is_lost || slot.is_closing {
            return;
        }
        if slot.say == 0 {
            self.to_say.push_back(index);
        }
        slot.say |= what;
    }

    /// Something has changed at a socket.
    fn note(&mut self, index: u32) {
        self.has_moved = true;
        let slot = &mut self.slots[index as usize];
        if slot.token.is_some() {
            self.changed.insert(index);
        }
        if std::mem::take(&mut slot.is_awaited) {
            let id = ConnectionId::new(index, slot.age);
            self.news.push(Awaited::Connection(id));
        }
    }

    /// Begins a connection. None if there is no room for another socket.
    pub fn connect(&mut self, remote: SocketAddr) -> Option<ConnectionId> {
        if !self.has_room_for_another() {
            return None;
        }
        let index = self.insert(Socket::Connection(Connection::to(remote)))?;
        if let Some(Socket::Connection(connection)) = &mut self.slots[index as usize].socket {
            connection.number = index;
        }
        self.say(index, say::OPEN);
        Some(self.id(index))
    }

    /// Begins to listen. [`Client::opened`] has the address. None if there is no room for another socket.
    pub fn listen(&mut self, address: SocketAddr, backlog: usize) -> Option<ConnectionId> {
        if !self.has_room_for_another() {
            return None;
        }
        let backlog = u32::try_from(backlog).unwrap_or(u32::MAX).max(1);
        let index = self.insert(Socket::Listener(Listener::at(address, backlog)))?;
        self.say(index, say::OPEN);
        Some(self.id(index))
    }

    /// Begins to bind a socket of datagrams, as [`Client::listen`].
    pub fn bind(&mut self, address: SocketAddr) -> Option<ConnectionId> {
        if !self.has_room_for_another() {
            return None;
        }
        let index = self.insert(Socket::Datagrams(Datagrams::at(address)))?;
        self.say(index, say::OPEN);
        Some(self.id(index))
    }

    /// Begins to connect a socket of datagrams. [`Client::opened`] has the address that its datagrams are from. None if there is no such socket, or the machine does
    /// not know it any more.
    pub fn associate(&mut self, id: ConnectionId, remote: SocketAddr) -> Option<ConnectionId> {
        if self.is_lost(id) {
            return None;
        }
        let datagrams = self.datagrams_mut(id)?;
        datagrams.asked += 1;
        datagrams.associating = Some((datagrams.asked, remote));
        datagrams.associated = None;
        self.say(id.index() as u32, say::ASSOCIATE);
        Some(id)
    }

    /// The program does not wait any more until a socket of datagrams is connected. If the machine does it yet, the socket is connected then.
    pub fn give_up_associating(&mut self, id: ConnectionId) {
        if let Some(datagrams) = self.datagrams_mut(id) {
            datagrams.associating = None;
        }
    }

    /// What has become of opening a listener or a socket of datagrams, or of connecting the latter; it is said once. A socket that was not opened is gone.
    pub fn opened(&mut self, id: ConnectionId) -> Option<Result<SocketAddr, Failure>> {
        let is_gone = self.gone.is_some() || self.is_lost(id);
        let gone = is_gone.then_some(Err(Failure::MachineGone));
        let slot = self.slot_mut(id)?;
        let result = match slot.socket.as_mut()? {
            Socket::Listener(listener) => match listener.failure {
                Some(failure) => Some(Err(failure)),
                None if listener.has_opened => Some(Ok(listener.address)),
                None => gone,
            },
            Socket::Datagrams(datagrams) => match (datagrams.failure, datagrams.has_opened) {
                (Some(failure), _) => Some(Err(failure)),
                (None, true) if datagrams.associating.is_some() => {
                    let associated = datagrams.associated.take().or(gone);
                    if associated.is_some() {
                        datagrams.associating = None;
                    }
                    return associated;
                }
                (None, true) => Some(Ok(datagrams.address)),
                (None, false) => gone,
            },
            Socket::Connection(_) => None,
        }?;
        if result.is_err() {
            self.give_up(id.index() as u32);
        }
        Some(result)
    }

    /// Both addresses of a connection: ours, and the other side's. Ours is unspecified as long as it is being made.
    pub fn ends(&self, id: ConnectionId) -> Option<(SocketAddr, SocketAddr)> {
        self.connection(id).map(|connection| (connection.local, connection.remote))
    }

    /// Returns true if a connection is still being made.
    pub fn is_connecting(&self, id: ConnectionId) -> bool {
        self.connection(id)
            .is_some_and(|one| !one.is_open && one.end.is_none() && !one.has_told_end)
    }

    /// How a connection has failed, if it has. It is said once.
    pub fn take_end(&mut self, id: ConnectionId) -> Option<Failure> {
        let connection = self.connection_mut(id)?;
        let end = connection.end.take();
        connection.has_told_end |= end.is_some();
        end
    }

    /// As [`Stack::watch`](crate::tcpip::Stack::watch).
    pub fn watch(&mut self, id: ConnectionId, token: u64) {
        if let Some(slot) = self.slot_mut(id) {
            slot.token = Some(token);
            self.changed.insert(id.index() as u32);
        }
    }

    /// As [`Stack::take_changed`](crate::tcpip::Stack::take_changed).
    pub fn take_changed(&mut self) -> Option<u64> {
        let index = self.changed.pop_first()?;
        self.slots[index as usize].token
    }

    /// Returns true if [`Client::take_changed`] has one to name.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// As [`Stack::await_news`](crate::tcpip::Stack::await_news). Listeners and sockets of datagrams are awaited by their numbers, as connections.
    pub fn await_news(&mut self, awaited: Awaited) {
        if let Awaited::Connection(id) = awaited
            && let Some(slot) = self.slot_mut(id)
        {
            slot.is_awaited = true;
        }
    }

    /// As [`Stack::take_news`](crate::tcpip::Stack::take_news).
    pub fn take_news(&mut self) -> Option<Awaited> {
        self.news.pop()
    }

    /// As [`Stack::take_moved`](crate::tcpip::Stack::take_moved).
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// What can be received.
    pub fn readable(&self, id: ConnectionId) -> Readable {
        let Some(connection) = self.connection(id) else { return Readable::Finished };
        if !connection.parked.is_empty() {
            return Readable::Bytes;
        }
        match self.direct(connection) {
            Direct::Bytes => return Readable::Bytes,
            Direct::Finished => return Readable::Finished,
            Direct::No | Direct::Nothing => {}
        }
        let is_shut = connection.is_receive_shut;
        if !is_shut && self.may_still_come(connection) {
            return Readable::Nothing;
        }
        match () {
            () if connection.is_receive_shut || connection.has_finished => Readable::Finished,
            // What had come to the machine before the end comes behind it.
            () if connection.left > 0 && !connection.is_cut_off => Readable::Nothing,
            () if connection.end.is_some() => Readable::Failed,
            () if connection.has_told_end => Readable::Finished,
            () => Readable::Nothing,
        }
    }

    /// Says whether bytes can be sent.
    pub fn writable(&self, id: ConnectionId) -> Writable {
        let is_direct = self.route(id).is_some();
        let Some(connection) = self.connection(id) else { return Writable::Closed };
        let index = id.index() as u32;
        let is_blocked = self.blocked.contains(&index) || self.lacking.contains(&index);
        match () {
            () if connection.end.is_some() => Writable::Failed,
            () if connection.has_told_end || connection.is_send_shut => Writable::Closed,
            () if is_direct && let Some((at, number)) = connection.link => {
                self.writable_directly(id.index() as u32, at, number)
            }
            () if is_blocked => Writable::Nothing,
            () if !connection.is_open || connection.may_send == 0 => Writable::Nothing,
            () if !connection.unsent.is_empty() => Writable::Nothing,
            () => Writable::Room,
        }
    }

    /// Copies what has come into `target`, and returns how many bytes. Pages go back to the receiver, unless the path has ended.
    pub fn read(
        &mut self,
        id: ConnectionId,
        target: &mut [u8],
        receiver: Option<&mut Receiver>,
    ) -> usize {
        let Client { slots, kept, .. } = self;
        let Some(connection) = connection_of(slots, id) else { return 0 };
        let count = connection.parked.read(target, kept, receiver);
        self.consumed(id, count);
        count
    }

    /// Throws away the first bytes of what has come.
    pub fn skip(&mut self, id: ConnectionId, bytes: usize, receiver: Option<&mut Receiver>) {
        let Client { slots, kept, .. } = self;
        let Some(connection) = connection_of(slots, id) else { return };
        let mut left = bytes;
        let count = connection.parked.take(kept, receiver, |there, _| {
            let now = there.min(left);
            left -= now;
            now
        });
        self.consumed(id, count);
    }

    /// Copies what has come, which stays.
    pub fn peek(&self, id: ConnectionId, target: &mut [u8]) -> usize {
        let Some(connection) = self.connection(id) else { return 0 };
        let count = connection.parked.peek(target);
        let directly = self.waiting_directly(connection);
        count + directly.map_or(0, |parked| parked.peek(&mut target[count..]))
    }

    /// Bytes that have come and were not received.
    pub fn waiting(&self, id: ConnectionId) -> usize {
        let Some(connection) = self.connection(id) else { return 0 };
        connection.parked.bytes() + self.waiting_directly(connection).map_or(0, Parked::bytes)
    }

    /// Gives credit back, by quarters.
    fn consumed(&mut self, id: ConnectionId, bytes: usize) {
        let Some(connection) = self.connection_mut(id) else { return };
        connection.to_return += bytes;
        connection.read += bytes as u64;
        if connection.to_return >= CREDIT_BYTES_MAX / 4 {
            self.say(id.index() as u32, say::CREDIT);
        }
    }

    /// Sends bytes of a stream that `fill` makes in the page where the machine copies them from: as many as go into one message, `bytes` at
    /// most. Returns how many; none if there is no credit.
    ///
    /// # Errors
    /// [`SendError`]: then nothing was sent.
    pub fn write_with(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        sender: &mut Sender,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<usize, SendError> {
        // What was said of it before goes first.
        self.flush_for(id.index() as u32, sender)?;
        if self.writable(id) != Writable::Room {
            return Ok(0);
        }
        let Some(connection) = self.connection_mut(id) else { return Ok(0) };
        let bytes = bytes.min(connection.may_send).min(DATA_BYTES_MAX);
        let head = Head::new(Kind::Data, connection.number).bytes();
        if let Err(error) = sender.send_built(&head, bytes, fill) {
            self.refuse(id.index() as u32, &error);
            return Err(error);
        }
        connection.may_send -= bytes;
        connection.sent += bytes as u64;
        Ok(bytes)
    }

    /// Says all that is to be said, before a verb of a socket sends more.
    fn flush_for(&mut self, index: u32, sender: &mut Sender) -> Result<(), SendError> {
        let flushed = match self.flush(sender) {
            Ok(true) => return Ok(()),
            Ok(false) => SendError::Full,
            Err(error) => error,
        };
        self.refuse(index, &flushed);
        Err(flushed)
    }

    /// A verb of a socket is refused: the socket has news when the verb may be tried again.
    fn refuse(&mut self, index: u32, error: &SendError) {
        match error {
            SendError::Full | SendError::Quiesced => self.blocked.insert(index),
            SendError::Lacking(_) => self.lacking.insert(index),
            SendError::Severed(_) | SendError::TooLong { .. } => false,
        };
    }

    /// Sends bytes of a stream, as many as [`Client::room`] has said. What the path has no room for is kept, and goes first.
    ///
    /// # Errors
    /// [`SendError::Severed`].
    pub fn write_all(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        sender: &mut Sender,
    ) -> Result<(), SendError> {
        let sent = match self.write_with(id, bytes.len(), sender, |room| {
            room.copy_from_slice(&bytes[..room.len()]);
        }) {
            Ok(sent) => sent,
            Err(error @ SendError::Severed(_)) => return Err(error),
            Err(_) => 0,
        };
        let left = &bytes[sent..];
        if let Some(connection) = self.connection_mut(id).filter(|_| !left.is_empty()) {
            connection.may_send = connection.may_send.saturating_sub(left.len());
            connection.sent += left.len() as u64;
            connection.unsent = left.into();
            self.say(id.index() as u32, say::DATA);
        }
        Ok(())
    }

    /// Bytes that can be sent in one message now.
    pub fn room(&self, id: ConnectionId) -> usize {
        match self.writable(id) {
            Writable::Room => match (self.route(id), self.connection(id)) {
                (Some(_), Some(Connection { link: Some((at, number)), .. })) => {
                    self.room_directly(*at, *number)
                }
                (_, one) => one.map_or(0, |one| one.may_send.min(DATA_BYTES_MAX)),
            },
            _ => 0,
        }
    }

    /// Returns true if a verb had to be refused because the path had no room.
    pub fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// There may be room on the path again: those who were refused for want of room are told.
    pub fn has_room(&mut self) {
        for index in std::mem::take(&mut self.blocked) {
            self.note(index);
        }
    }

    /// Memory and descriptors may be there again: those who were refused for want of these are told.
    pub fn retry(&mut self) {
        for index in std::mem::take(&mut self.lacking) {
            self.note(index);
        }
    }

    /// Bytes that stay in pages of the path that there is.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }

    /// Sends nothing more.
    pub fn shut_sending(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection_mut(id) else { return };
        if !std::mem::replace(&mut connection.is_send_shut, true) {
            if !self.shut_directly(id.index() as u32) {
                self.say(id.index() as u32, say::SHUT_SENDING);
            }
            self.note(id.index() as u32);
        }
    }

    /// Receives nothing more after what has come already.
    pub fn shut_receiving(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection_mut(id) else { return };
        if !std::mem::replace(&mut connection.is_receive_shut, true) {
            self.drop_behind_gap(id.index() as u32);
            self.say(id.index() as u32, say::SHUT_RECEIVING);
            self.note(id.index() as u32);
        }
    }

    /// As [`Stack::set_no_delay`](crate::tcpip::Stack::set_no_delay).
    pub fn set_no_delay(&mut self, id: ConnectionId, is_on: bool) {
        if let Some(connection) = self.connection_mut(id) {
            connection.has_no_delay = is_on;
            self.say(id.index() as u32, say::NO_DELAY);
        }
    }

    /// As [`Stack::set_service`](crate::tcpip::Stack::set_service).
    pub fn set_service(&mut self, id: ConnectionId, service: u8) {
        if let Some(connection) = self.connection_mut(id) {
            connection.service = service;
            self.say(id.index() as u32, say::SERVICE);
        }
    }

    /// As [`Stack::set_keep_alive`](crate::tcpip::Stack::set_keep_alive).
    pub fn set_keep_alive(&mut self, id: ConnectionId, options: Option<KeepAlive>) {
        if let Some(connection) = self.connection_mut(id) {
            connection.keep_alive = options;
            self.say(id.index() as u32, say::KEEP_ALIVE);
        }
    }

    /// Ends a connection with a reset.
    pub fn abort(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection_mut(id) else { return };
        connection.is_send_shut = true;
        connection.is_receive_shut = true;
        self.leave_directly(id.index() as u32, true);
        self.say(id.index() as u32, say::RESET);
        self.note(id.index() as u32);
    }

    /// The program has done with a connection.
    pub fn close(&mut self, id: ConnectionId, receiver: Option<&mut Receiver>) {
        let Client { slots, kept, .. } = self;
        let Some(connection) = connection_of(slots, id) else { return };
        connection.parked.clear(kept, receiver);
        self.give_up(id.index() as u32);
    }

    /// Returns true if a connection that was closed or reset is not over. A reset is over when it was said to the machine.
    pub fn is_closing(&self, id: ConnectionId) -> bool {
        let is_closing = |slot: &Slot| slot.is_closed() || slot.say & say::RESET != 0;
        self.slot(id).is_some_and(is_closing)
    }

    /// A listener is closed, with the connections that wait there.
    pub fn stop_listening(&mut self, id: ConnectionId, mut receiver: Option<&mut Receiver>) {
        let Some(Socket::Listener(listener)) =
            self.slot_mut(id).and_then(|slot| slot.socket.as_mut())
        else {
            return;
        };
        for waiting in std::mem::take(&mut listener.waiting) {
            self.close_unwanted(waiting, receiver.as_deref_mut());
        }
        self.give_up(id.index() as u32);
    }

    /// A connection that no program has, and will have, is reset.
    fn close_unwanted(&mut self, id: ConnectionId, receiver: Option<&mut Receiver>) {
        self.abort(id);
        self.close(id, receiver);
    }

    /// A socket of datagrams is closed.
    pub fn unbind(&mut self, id: ConnectionId) {
        if self.datagrams_mut(id).is_some() {
            self.give_up(id.index() as u32);
        }
    }

    /// Closes a listener or a socket of datagrams that is being opened, or a connection.
    pub fn give_up_opening(&mut self, id: ConnectionId, receiver: Option<&mut Receiver>) {
        match self.slot(id).and_then(|slot| slot.socket.as_ref()) {
            // They may be open by now, and have what came meanwhile.
            Some(Socket::Connection(_)) => self.close(id, receiver),
            Some(Socket::Listener(_)) => self.stop_listening(id, receiver),
            Some(Socket::Datagrams(_)) => self.unbind(id),
            None => {}
        }
    }

    /// Closes a socket, of which nothing is parked any more: its number is free when the machine has said so.
    fn give_up(&mut self, index: u32) {
        self.leave_directly(index, false);
        let slot = &mut self.slots[index as usize];
        slot.token = None;
        self.changed.remove(&index);
        // Of one that the machine has not heard of, nothing is to be said.
        if self.gone.is_some() || slot.say & say::OPEN != 0 || slot.is_lost {
            if slot.say != 0 {
                self.to_say.retain(|other| *other != index);
            }
            return self.remove(index);
        }
        self.say(index, say::CLOSE);
    }

    /// The next connection of a listener.
    pub fn accept(&mut self, id: ConnectionId) -> Option<(ConnectionId, SocketAddr)> {
        let Some(Socket::Listener(listener)) = &mut self.slot_mut(id)?.socket else { return None };
        let accepted = listener.waiting.pop_front()?;
        listener.taken += 1;
        self.say(id.index() as u32, say::CREDIT);
        Some((accepted, self.ends(accepted)?.1))
    }

    /// Returns true if the machine knows the socket no more, because it has ended since.
    pub fn is_lost(&self, id: ConnectionId) -> bool {
        self.slot(id).is_none_or(|slot| slot.is_lost)
    }

    /// The other side of a socket of datagrams, if it is connected.
    pub fn connected_to(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.datagrams(id)?.connected
    }

    fn datagrams(&self, id: ConnectionId) -> Option<&Datagrams> {
        match &self.slot(id)?.socket {
            Some(Socket::Datagrams(datagrams)) => Some(datagrams),
            _ => None,
        }
    }

    fn datagrams_mut(&mut self, id: ConnectionId) -> Option<&mut Datagrams> {
        match &mut self.slot_mut(id)?.socket {
            Some(Socket::Datagrams(datagrams)) => Some(datagrams),
            _ => None,
        }
    }

    /// Why a datagram was not sent, if one was not. It is said once; that the machine is gone, always, once all that had come was received.
    pub fn take_refused(&mut self, id: ConnectionId) -> Option<Failure> {
        let refused = self.datagrams_mut(id).and_then(|datagrams| datagrams.refused.take());
        let is_over = self.is_lost(id) && self.peek_from(id).is_none();
        refused.or(is_over.then_some(Failure::MachineGone))
    }

    /// The next datagram, and from where.
    pub fn receive_from(&mut self, id: ConnectionId) -> Option<(SocketAddr, Vec<u8>)> {
        let datagrams = self.datagrams_mut(id)?;
        let taken = datagrams.waiting.pop_front()?;
        datagrams.to_return += taken.1.len() + DATAGRAM_BYTES;
        datagrams.waiting_bytes -= taken.1.len() + DATAGRAM_BYTES;
        if datagrams.to_return >= DATAGRAM_CREDIT_BYTES / 4 {
            self.say(id.index() as u32, say::CREDIT);
        }
        Some(taken)
    }

    /// The next datagram, which stays.
    pub fn peek_from(&self, id: ConnectionId) -> Option<&(SocketAddr, Vec<u8>)> {
        self.datagrams(id)?.waiting.front()
    }

    /// Sends a datagram. Returns false if the machine has no room for it now.
    ///
    /// # Errors
    /// [`SendError`]: then nothing was sent.
    pub fn send_to(
        &mut self,
        id: ConnectionId,
        to: SocketAddr,
        data: &[u8],
        sender: &mut Sender,
    ) -> Result<bool, SendError> {
        let index = id.index() as u32;
        if self.is_lost(id) {
            return Ok(false);
        }
        self.flush_for(index, sender)?;
        let Some(datagrams) = self.datagrams_mut(id) else { return Ok(false) };
        let bytes = data.len() + DATAGRAM_BYTES;
        if bytes > datagrams.grant {
            // There will never be credit for it.
            let most = datagrams.grant.saturating_sub(DATAGRAM_BYTES) as u64;
            return Err(SendError::TooLong { most });
        }
        if bytes > datagrams.may_send {
            return Ok(false);
        }
        let body = [&address_bytes(to)[..], data].concat();
        match sender.send(&Head::new(Kind::Datagram, index).bytes(), &body) {
            Ok(()) => datagrams.may_send -= bytes,
            Err(error) => {
                self.refuse(index, &error);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Returns true if there is something to be said.
    pub fn has_to_say(&self) -> bool {
        !self.to_answer.is_empty() || !self.to_say.is_empty()
    }

    /// Says what is to be said. Returns false if the path had no room for all of it.
    ///
    /// # Errors
    /// [`SendError`], never `Full`: the path is of no use.
    pub fn flush(&mut self, sender: &mut Sender) -> Result<bool, SendError> {
        while let Some(head) = self.to_answer.front() {
            match sender.send(&head.bytes(), &[]) {
                Ok(()) => {}
                Err(SendError::Full | SendError::Quiesced) => return Ok(false),
                Err(error) => return Err(error),
            }
            self.to_answer.pop_front();
        }
        while let Some(index) = self.to_say.front().copied() {
            match self.say_all_of(index, sender) {
                Ok(()) => {}
                Err(SendError::Full | SendError::Quiesced) => return Ok(false),
                Err(error) => return Err(error),
            }
            self.to_say.pop_front();
        }
        Ok(true)
    }

    fn say_all_of(&mut self, index: u32, sender: &mut Sender) -> Result<(), SendError> {
        let slot = &mut self.slots[index as usize];
        let (number, to_return) = match &slot.socket {
            Some(Socket::Connection(one)) => (one.number, one.to_return),
            Some(Socket::Datagrams(one)) => (index, one.to_return),
            Some(Socket::Listener(one)) => (index, one.taken),
            None => (index, 0),
        };
        while slot.say != 0 {
            let what: u16 = 1 << slot.say.trailing_zeros();
            match (what, &mut slot.socket) {
                (say::OPEN, Some(Socket::Connection(one))) => {
                    let value = CREDIT_BYTES_MAX as u64;
                    let head = Head { value, ..Head::new(Kind::Connect, number) };
                    sender.send(&head.bytes(), &address_bytes(one.remote))?;
                }
                (say::OPEN, Some(Socket::Listener(one))) => {
                    let value = (CREDIT_BYTES_MAX as u64) << 32 | u64::from(one.backlog);
                    let head = Head { value, ..Head::new(Kind::Listen, number) };
                    sender.send(&head.bytes(), &address_bytes(one.address))?;
                }
                (say::OPEN, Some(Socket::Datagrams(one))) => {
                    let value = DATAGRAM_CREDIT_BYTES as u64;
                    let head = Head { value, ..Head::new(Kind::Bind, number) };
                    sender.send(&head.bytes(), &address_bytes(one.address))?;
                }
                (say::ASSOCIATE, Some(Socket::Datagrams(one))) => {
                    if let Some((value, remote)) = one.associating {
                        let head = Head { value, ..Head::new(Kind::Associate, number) };
                        sender.send(&head.bytes(), &address_bytes(remote))?;
                    }
                }
                (say::NO_DELAY, Some(Socket::Connection(one))) => {
                    let (code, value) = (option::NO_DELAY, u64::from(one.has_no_delay));
                    let head = Head { code, value, ..Head::new(Kind::Set, number) };
                    sender.send(&head.bytes(), &[])?;
                }
                (say::SERVICE, Some(Socket::Connection(one))) => {
                    let (code, value) = (option::SERVICE, u64::from(one.service));
                    let head = Head { code, value, ..Head::new(Kind::Set, number) };
                    sender.send(&head.bytes(), &[])?;
                }
                (say::KEEP_ALIVE, Some(Socket::Connection(one))) => {
                    let head = Head { code: option::KEEP_ALIVE, ..Head::new(Kind::Set, number) };
                    sender.send(&head.bytes(), &keep_alive_bytes(one.keep_alive))?;
                }
                (say::CREDIT, Some(socket)) if to_return > 0 => {
                    let head = Head { value: to_return as u64, ..Head::new(Kind::Credit, number) };
                    sender.send(&head.bytes(), &[])?;
                    match socket {
                        Socket::Connection(one) => one.to_return = 0,
                        Socket::Datagrams(one) => one.to_return = 0,
                        Socket::Listener(one) => one.taken = 0,
                    }
                }
                (say::RETURNED, Some(Socket::Connection(one))) => {
                    let value = one.returned as u64;
                    let head = Head { value, ..Head::new(Kind::Returned, number) };
                    sender.send(&head.bytes(), &[])?;
                    one.returned = 0;
                }
                (say::DATA, Some(Socket::Connection(one))) => {
                    sender.send(&Head::new(Kind::Data, number).bytes(), &one.unsent)?;
                    one.unsent = Box::default();
                    self.has_moved = true;
                    if std::mem::take(&mut slot.is_awaited) {
                        let id = ConnectionId::new(index, slot.age);
                        self.news.push(Awaited::Connection(id));
                    }
                    if slot.token.is_some() {
                        self.changed.insert(index);
                    }
                }
                (say::MOVED, Some(_)) => {
                    sender.send(&Head::new(Kind::Moved, number).bytes(), &[])?;
                }
                (say::SHUT_SENDING, Some(_)) => {
                    let head = Head { code: 1, ..Head::new(Kind::Shut, number) };
                    sender.send(&head.bytes(), &[])?;
                }
                (say::SHUT_RECEIVING, Some(_)) => {
                    let head = Head { code: 2, ..Head::new(Kind::Shut, number) };
                    sender.send(&head.bytes(), &[])?;
                }
                (say::RESET, Some(Socket::Connection(_))) => {
                    sender.send(&Head::new(Kind::Reset, number).bytes(), &[])?;
                }
                // Another client is told first.
                (say::CLOSE, Some(_)) if slot.is_leaving => return Ok(()),
                (say::CLOSE, Some(socket)) => {
                    // The machine compares that with what it has given.
                    let value = match socket {
                        Socket::Connection(one) if one.is_receive_shut => u64::MAX,
                        Socket::Connection(one) => one.read,
                        _ => 0,
                    };
                    let head = Head { value, ..Head::new(Kind::Close, number) };
                    sender.send(&head.bytes(), &[])?;
                    slot.is_closing = true;
                }
                _ => {}
            }
            slot.say &= !what;
        }
        Ok(())
    }

    /// Takes in what the machine has sent. Returns true if there was something.
    pub fn take_in(&mut self, receiver: &mut Receiver) -> bool {
        if self.gone.is_some() {
            return false;
        }
        for taken in 0..MESSAGES_PER_CALL {
            let took = match receiver.fetch_up_to(0, BODY_BYTES_MAX) {
                Ok(None) => return taken > 0,
                Ok(Some(fetched)) => self.take(fetched, receiver).map_err(Left::Fault),
                Err(severed) => Err(Left::Severed(severed)),
            };
            if let Err(left) = took {
                self.lose(left);
                return true;
            }
        }
        true
    }

    /// The path has ended, or cannot be used: all sockets have failed. What other clients have sent directly by now can still be read once it is taken
    /// in: see [`Client::next_to_look_at`].
    pub fn lose(&mut self, left: Left) {
        self.gone = Some(left);
        self.to_say.clear();
        self.to_answer.clear();
        self.unanswered = 0;
        // Nobody says any more that there is room.
        self.blocked.clear();
        self.lacking.clear();
        // The next machine has numbers of its own.
        self.accepted.clear();
        self.has_moved = true;
        for index in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[index as usize];
            let is_over = slot.is_closed();
            slot.say = 0;
            slot.is_lost = true;
            match &mut slot.socket {
                None => {
                    slot.is_lost = false;
                    continue;
                }
                Some(_) if is_over => {
                    // Somebody may linger for it.
                    self.note(index);
                    self.remove(index);
                    continue;
                }
                Some(Socket::Connection(one)) => {
                    one.is_cut_off = true;
                    if !one.has_told_end && one.end.is_none() {
                        one.end = Some(Failure::MachineGone);
                    }
                }
                Some(Socket::Listener(one)) => one.failure = Some(Failure::MachineGone),
                // It has that error for good, behind what has come.
                Some(Socket::Datagrams(_)) => {}
            }
            self.note(index);
        }
        self.look_at_all_peers();
    }

    /// The path has ended, as the program learns it when it sends. What the machine had sent before comes first.
    pub fn lose_path(&mut self, severed: Severed, receiver: &mut Receiver) {
        for _ in 0..CALLS_AT_END_MAX {
            if !self.take_in(receiver) {
                break;
            }
        }
        if self.gone.is_none() {
            self.lose(Left::Severed(severed));
        }
    }

    fn take(&mut self, fetched: Fetched, receiver: &mut Receiver) -> Result<(), Fault> {
        let Client { slots, kept, .. } = self;
        kept.count();
        while let Some((message, index)) = kept.take_overdue() {
            let slot = slots.get_mut(index as usize);
            if let Some(Socket::Connection(one)) = slot.and_then(|slot| slot.socket.as_mut()) {
                one.parked.copy_out(message, kept, receiver);
            }
        }
        match fetched {
            Fetched::Copied(message) => {
                let message = receiver.message(message);
                let head = Head::parse(message.head)?;
                match head.kind {
                    Kind::Data => {
                        let index = self.reader(head, message.body.len())?;
                        let Some(connection) = wanted(&mut self.slots, index) else {
                            return Ok(());
                        };
                        connection.parked.push_copy(message.body);
                        self.note(index);
                        Ok(())
                    }
                    _ => self.answer(head, message.body),
                }
            }
            Fetched::InPage(page) => self.take_page(page, receiver),
            Fetched::TooLong => Err(Fault::Length),
        }
    }

    fn take_page(&mut self, page: InPage, receiver: &mut Receiver) -> Result<(), Fault> {
        let mut head = [0; HEAD_BYTES];
        let parsed = match page.head_bytes() == head.len() {
            true => page.view().read(0, &mut head).map_err(|_| Fault::Head),
            false => Err(Fault::Head),
        };
        let is_data = parsed.and_then(|()| Head::parse(&head)).and_then(|head| match head.kind {
            Kind::Data => self.reader(head, page.body_bytes()).map(Ok),
            _ => Ok(Err(head)),
        });
        match is_data {
            Ok(Ok(index)) => {
                let Client { slots, kept, .. } = self;
                match wanted(slots, index) {
                    Some(connection) => {
                        connection.parked.push_page(index, page, kept, receiver);
                        self.note(index);
                    }
                    None => {
                        let _ = receiver.give_back(page);
                    }
                }
                Ok(())
            }
            Ok(Err(head)) => {
                let mut body = vec![0; page.body_bytes()];
                let read = page.read(0, &mut body).map_err(|_| Fault::Length);
                let _ = receiver.give_back(page);
                read?;
                self.answer(head, &body)
            }
            Err(fault) => {
                let _ = receiver.give_back(page);
                Err(fault)
            }
        }
    }

    /// The index of a socket that the machine names.
    fn named(&self, number: u32) -> Result<u32, Fault> {
        let index = match number & ACCEPTED {
            0 => Some(number),
            _ => self.accepted.get(&number).copied(),
        };
        let is_there = |index: &u32| {
            let slot = self.slots.get(*index as usize);
            slot.is_some_and(|slot| match &slot.socket {
                _ if slot.is_lost => false,
                Some(Socket::Connection(one)) => one.number == number,
                Some(_) => number & ACCEPTED == 0,
                None => false,
            })
        };
        index.filter(is_there).ok_or(Fault::Socket)
    }

    /// The connection to which so many bytes have come, which are taken off the credit that the machine has.
    fn reader(&mut self, head: Head, bytes: usize) -> Result<u32, Fault> {
        let index = self.named(head.socket)?;
        let slot = &mut self.slots[index as usize];
        let is_closed = slot.is_closed();
        let Some(Socket::Connection(one)) = &mut slot.socket else { return Err(Fault::Socket) };
        let in_use = one.parked.bytes() + one.to_return + one.dropped;
        if !one.is_open || one.has_finished || in_use + bytes > CREDIT_BYTES_MAX {
            return Err(Fault::Credit);
        }
        one.left = one.left.saturating_sub(bytes as u64);
        one.came += bytes as u64;
        one.has_finished |= one.is_complete && one.left == 0;
        if is_closed {
            one.dropped += bytes;
        } else if one.is_receive_shut {
            one.to_return += bytes;
            self.consumed_by(index);
        }
        Ok(index)
    }

    fn consumed_by(&mut self, index: u32) {
        let id = self.id(index);
        self.consumed(id, 0);
    }

    /// Takes what the machine says of a socket.
    fn answer(&mut self, head: Head, body: &[u8]) -> Result<(), Fault> {
        if head.kind == Kind::Welcome {
            let mut rest = body;
            self.addresses.clear();
            while !rest.is_empty() {
                let (address, behind) = split_address(rest)?;
                self.addresses.push(address.ip());
                rest = behind;
            }
            self.sockets_max = head.value;
            self.has_moved = true;
            return Ok(());
        }
        if matches!(head.kind, Kind::Expect | Kind::Meet) {
            return self.on_introduced(head, name_of_value(head.value)?);
        }
        let index = self.named(head.socket)?;
        match head.kind {
            Kind::Joined => self.on_joined(index, head.value)?,
            Kind::Opened => self.on_opened(index, head, body)?,
            Kind::Failed => self.on_failed(index, head)?,
            Kind::Accepted => return self.on_accepted(index, head, body),
            Kind::Datagram => self.on_datagram(index, body)?,
            Kind::Credit => {
                let credit = usize::try_from(head.value).ok().filter(|it| *it <= CREDIT_BYTES_MAX);
                let credit = credit.ok_or(Fault::Value)?;
                match &mut self.slots[index as usize].socket {
                    Some(Socket::Connection(one)) => one.may_send += credit,
                    Some(Socket::Datagrams(one)) => {
                        one.may_send += credit;
                        // The machine gives more than before when it has more.
                        one.grant = one.grant.max(one.may_send);
                    }
                    _ => return Err(Fault::Socket),
                }
            }
            Kind::Finished if head.code == 1 => self.on_moved_in(index),
            Kind::Recall => {
                let bytes = usize::try_from(head.value).ok().filter(|it| *it <= CREDIT_BYTES_MAX);
                let bytes = bytes.ok_or(Fault::Value)?;
                match &mut self.slots[index as usize].socket {
                    Some(Socket::Connection(one)) if one.is_open => {
                        let returned = bytes.min(one.may_send);
                        one.may_send -= returned;
                        one.returned += returned;
                    }
                    _ => return Err(Fault::Socket),
                }
                // What a closed one has goes back with it.
                if !self.slots[index as usize].is_closed() {
                    self.say(index, say::RETURNED);
                }
            }
            Kind::Finished => match &mut self.slots[index as usize].socket {
                Some(Socket::Connection(one)) => one.has_finished = true,
                _ => return Err(Fault::Socket),
            },
            Kind::Broken => match &mut self.slots[index as usize].socket {
                Some(Socket::Connection(one)) if one.is_open && !one.has_broken => {
                    one.has_broken = true;
                    one.left = head.value & !COMPLETE;
                    one.is_complete = head.value & COMPLETE != 0;
                    one.has_finished |= one.is_complete && one.left == 0;
                    // A peer may have said it already.
                    if !one.has_told_end {
                        one.end.get_or_insert(Failure::of_code(head.code));
                    }
                    self.on_broken(index);
                }
                _ => return Err(Fault::Socket),
            },
            Kind::Refused => match &mut self.slots[index as usize].socket {
                Some(Socket::Datagrams(one)) => one.refused = Some(Failure::of_code(head.code)),
                _ => return Err(Fault::Socket),
            },
            Kind::Closed => {
                if !self.slots[index as usize].is_closing {
                    return Err(Fault::Socket);
                }
                self.note(index);
                self.slots[index as usize].is_closing = false;
                self.remove(index);
                return Ok(());
            }
            _ => return Err(Fault::Kind),
        }
        self.note(index);
        Ok(())
    }

    fn on_opened(&mut self, index: u32, head: Head, body: &[u8]) -> Result<(), Fault> {
        let credit = usize::try_from(head.value).ok().filter(|it| *it <= CREDIT_BYTES_MAX);
        let credit = credit.ok_or(Fault::Value);
        match &mut self.slots[index as usize].socket {
            Some(Socket::Connection(one)) => {
                let (local, rest) = split_address(body)?;
                if one.is_open {
                    return Err(Fault::Socket);
                }
                (one.local, one.remote) = (local, only_address(rest)?);
                (one.is_open, one.may_send) = (true, credit?);
            }
            Some(Socket::Listener(one)) => {
                if one.has_opened {
                    return Err(Fault::Socket);
                }
                (one.address, one.has_opened) = (only_address(body)?, true);
            }
            Some(Socket::Datagrams(one)) if one.has_opened => {
                let (local, rest) = split_address(body)?;
                let remote = only_address(rest)?;
                let is_awaited = one.is_awaited(head.value)?;
                one.connected = Some(remote);
                if is_awaited {
                    one.associated = Some(Ok(local));
                }
                // What others have sent is dropped.
                one.clear_others(remote);
                self.say(index, say::CREDIT);
            }
            Some(Socket::Datagrams(one)) => {
                (one.address, one.has_opened) = (only_address(body)?, true);
                one.may_send = credit?;
                one.grant = one.may_send;
            }
            None => return Err(Fault::Socket),
        }
        Ok(())
    }

    fn on_failed(&mut self, index: u32, head: Head) -> Result<(), Fault> {
        let failure = Failure::of_code(head.code);
        let slot = &mut self.slots[index as usize];
        match &mut slot.socket {
            Some(Socket::Connection(one)) if !one.is_open => one.end = Some(failure),
            Some(Socket::Listener(one)) if !one.has_opened => one.failure = Some(failure),
            Some(Socket::Datagrams(one)) if !one.has_opened => one.failure = Some(failure),
            Some(Socket::Datagrams(one)) => {
                if one.is_awaited(head.value)? {
                    one.associated = Some(Err(failure));
                }
            }
            _ => return Err(Fault::Socket),
        }
        Ok(())
    }

    fn on_accepted(&mut self, listener: u32, head: Head, body: &[u8]) -> Result<(), Fault> {
        let (number, credit) = (head.value as u32, (head.value >> 32) as usize);
        if number & ACCEPTED == 0 || self.accepted.contains_key(&number) {
            return Err(Fault::InUse);
        }
        if credit > CREDIT_BYTES_MAX {
            return Err(Fault::Value);
        }
        let (local, rest) = split_address(body)?;
        let remote = only_address(rest)?;
        let slot = &self.slots[listener as usize];
        let is_closed = slot.is_closed();
        if !matches!(&slot.socket, Some(Socket::Listener(one)) if one.has_opened) {
            return Err(Fault::Socket);
        }
        let connection = Connection::accepted(number, (local, remote), credit);
        // A machine that makes more than anybody asked for breaks the rules.
        let index = self.insert(Socket::Connection(connection)).ok_or(Fault::Value)?;
        self.accepted.insert(number, index);
        let id = self.id(index);
        if is_closed {
            // The listener was closed meanwhile.
            self.say(index, say::RESET);
            self.give_up(index);
            return Ok(());
        }
        if let Some(Socket::Listener(one)) = &mut self.slots[listener as usize].socket {
            one.waiting.push_back(id);
        }
        self.note(listener);
        Ok(())
    }

    fn on_datagram(&mut self, index: u32, body: &[u8]) -> Result<(), Fault> {
        let (from, data) = split_address(body)?;
        let slot = &mut self.slots[index as usize];
        let is_closed = slot.is_closed();
        let Some(Socket::Datagrams(one)) = &mut slot.socket else { return Err(Fault::Socket) };
        let bytes = data.len() + DATAGRAM_BYTES;
        if one.waiting_bytes + one.to_return + bytes > DATAGRAM_CREDIT_BYTES {
            return Err(Fault::Credit);
        }
        if is_closed || one.connected.is_some_and(|connected| connected != from) {
            one.to_return += bytes;
            if !is_closed && one.to_return >= DATAGRAM_CREDIT_BYTES / 4 {
                self.say(index, say::CREDIT);
            }
            return Ok(());
        }
        one.waiting_bytes += bytes;
        one.waiting.push_back((from, data.to_vec()));
        Ok(())
    }
}

/// A connection whose program still takes what comes.
fn wanted(slots: &mut [Slot], index: u32) -> Option<&mut Connection> {
    let slot = &mut slots[index as usize];
    let is_closed = slot.is_closed();
    match &mut slot.socket {
        Some(Socket::Connection(one)) if one.is_wanted() && !is_closed => Some(one),
        _ => None,
    }
}

fn connection_of(slots: &mut [Slot], id: ConnectionId) -> Option<&mut Connection> {
    let slot = slots.get_mut(id.index()).filter(|slot| slot.age == id.age())?;
    match &mut slot.socket {
        Some(Socket::Connection(connection)) => Some(connection),
        _ => None,
    }
}
