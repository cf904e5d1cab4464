//! The machine's side: the sockets of all clients, and what each client may have.

mod client;
mod pairs;
mod socket;

pub(super) use client::FAILED_MAX;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;

use fabric::name::Name;
use fabric::path::{Receiver, SendError, Sender, Severed};

use self::client::{ClientState, Note};
use self::pairs::{Pairs, Stage};
use self::socket::Socket;
use super::Fault;
use super::format::{Head, Kind, answer, name_value};
use crate::tcpip::{Awaited, ConnectionId, SendToError, Stack};

/// Requests of one client that [`Service::take`] takes in one call at most, and their bytes, about.
pub const REQUESTS_PER_CALL_MAX: usize = 16;
const BYTES_PER_CALL: usize = 512 << 10;

/// Sockets whose datagrams wait for room that are looked at in one call.
const WAITS_PER_CALL: usize = 64;

/// What the sockets of clients are opened on.
pub trait Ground {
    /// The stack.
    fn stack(&mut self) -> &mut Stack;
    /// The time on the stack's clock.
    fn now(&self) -> u64;
    /// Returns true if there is somebody at this address, or on the way to it.
    fn can_reach(&mut self, address: IpAddr) -> bool;
    /// Sends a datagram, as [`Stack::send_to`] does.
    ///
    /// # Errors
    /// [`SendToError`].
    fn send_to(&mut self, from: SocketAddr, to: SocketAddr, data: &[u8])
    -> Result<(), SendToError>;
}

/// The largest share of a client: its turn takes so many times as long as another's.
pub const SHARE_MAX: u32 = 20;

/// What one client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Sockets at once, of all kinds.
    pub sockets_max: usize,
    /// Bytes that its sockets may have on their way to the machine, or waiting there, all together.
    pub buffers_max: usize,
    /// Its share of the machine's time, beside the shares of other clients that have work: 1 to [`SHARE_MAX`].
    pub share: u32,
    /// Whether it may have paths to other clients that it talks with. Both must.
    pub introduce: bool,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits { sockets_max: 1024, buffers_max: 64 << 20, share: 1, introduce: true }
    }
}

/// What a client has, and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Sockets that are open.
    pub sockets: usize,
    /// Bytes of credit that its sockets have been given.
    pub buffers_bytes: usize,
    /// Requests taken, data included.
    pub requests: u64,
    /// Bytes of streams and datagrams from the client.
    pub bytes_in: u64,
    /// Bytes of streams and datagrams to it.
    pub bytes_out: u64,
    /// Sockets that were refused for a limit of the client's.
    pub refused: u64,
    /// Times that the client had used up its turn, and waited for its next one.
    pub turns_cut: u64,
    /// Times that there was no room on its path.
    pub waits_for_room: u64,
    /// Connections whose bytes from this client go to another client directly since then. They are not counted here.
    pub moved: u64,
}

/// What the service has done for all clients together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounters {
    /// Clients that have attached so far.
    pub attached: u64,
    /// Clients that were sent away for what they wrote.
    pub faults: u64,
    /// Pairs of clients that were introduced to each other, and have a path.
    pub introduced: u64,
}

/// What came of taking what a client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// There was nothing.
    Nothing,
    /// There is nothing more.
    All,
    /// There may be more.
    Some,
    /// More is to be said to the client before more is taken from it: it does not read.
    Behind,
}

/// What came of giving a client what is there for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// All of it.
    All,
    /// There is more, and room for it: others have their turn first.
    Some,
    /// Its path is full: this is to be called again when there is room.
    Full,
    /// Memory or descriptors are lacking here, and nobody says when they are there again.
    Lacking,
}

/// A client did what ends its path, or its path has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The path has ended.
    Severed(Severed),
    /// The client wrote what it may not.
    Fault(Fault),
}

impl From<Severed> for Left {
    fn from(severed: Severed) -> Left {
        Left::Severed(severed)
    }
}

impl From<Fault> for Left {
    fn from(fault: Fault) -> Left {
        Left::Fault(fault)
    }
}

/// The sockets of all clients of a machine.
#[derive(Debug, Default)]
pub struct Service {
    clients: Vec<Option<ClientState>>,
    /// Whose the listeners and the sockets of datagrams are.
    listeners: HashMap<SocketAddr, (usize, u32)>,
    datagrams: HashMap<SocketAddr, (usize, u32)>,
    /// Connections that were closed and are not over.
    closing: HashMap<ConnectionId, (usize, u32)>,
    /// Sockets of datagrams of which some wait for room, and the last one that was looked at.
    waits: BTreeSet<(usize, u32)>,
    last_wait: (usize, u32),
    /// When connections that were closed are reset, though something of them is still to be sent.
    deadlines: BTreeSet<(u64, usize, u32)>,
    /// Clients that have something to be given.
    to_give: BTreeSet<usize>,
    pairs: Pairs,
    counters: ServiceCounters,
}

/// What a connection is called at the stack.
fn token(client: usize, socket: u32) -> u64 {
    (client as u64) << 32 | u64::from(socket)
}

fn of_token(token: u64) -> (usize, u32) {
    ((token >> 32) as usize, token as u32)
}

impl Service {
    /// Takes a client on, and returns its number.
    pub fn attach(&mut self, name: Name, limits: ClientLimits) -> usize {
        self.counters.attached += 1;
        let number = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if number == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[number] = Some(ClientState::new(number, name, limits));
        self.to_give.insert(number);
        number
    }

    /// Lets a client go: its connections are reset, and its other sockets closed.
    pub fn detach(&mut self, number: usize, ground: &mut impl Ground) {
        self.to_give.remove(&number);
        let Some(client) = self.clients.get_mut(number).and_then(Option::take) else { return };
        for socket in client.into_sockets() {
            self.end(socket, ground);
        }
        for pair in self.pairs.remove(number) {
            // Who has a path to it finds that out there.
            let other = if pair.is_asked == number { pair.asks } else { pair.is_asked };
            if !matches!(pair.stage, Stage::Apart | Stage::PutOff(_)) {
                self.call_off(pair.number, other);
            }
        }
        self.closing.retain(|_, (of, _)| *of != number);
        self.deadlines.retain(|(_, of, _)| *of != number);
        self.waits.retain(|(of, _)| *of != number);
    }

    /// Ends a socket whose client is gone.
    fn end(&mut self, socket: Socket, ground: &mut impl Ground) {
        let stack = ground.stack();
        match socket {
            // The stack has all of it, and a limit of its own.
            Socket::Connection(connection) if connection.is_closed() => {}
            Socket::Connection(connection) => {
                stack.abort(connection.id);
                stack.close(connection.id);
            }
            Socket::Listener(listener) => {
                self.listeners.remove(&listener.address);
                stack.stop_listening(listener.address);
            }
            Socket::Datagrams(datagrams) => {
                self.datagrams.remove(&datagrams.address);
                stack.unbind(datagrams.address);
            }
            Socket::Failed => {}
        }
    }

    /// Two clients talk with each other over this connection of one of them: they are introduced, or the connection gets a number on their path.
    fn introduce(&mut self, number: usize, socket: u32, ground: &mut impl Ground) {
        let Some((other, mirror)) = self.mirror(number, socket, ground) else { return };
        let may = |at: usize| {
            let client = self.clients.get(at).and_then(Option::as_ref);
            client.is_some_and(|client| client.limits.introduce)
        };
        let name = |at: usize| self.clients[at].as_ref().map(|client| client.name);
        // One that does not read what it is told is told no more.
        let is_behind = |at: usize| {
            let client = self.clients.get(at).and_then(Option::as_ref);
            client.is_none_or(ClientState::is_behind)
        };
        if !may(number) || !may(other) || is_behind(other) || name(number) == name(other) {
            return;
        }
        let pair = match self.pairs.get_or_begin(number, other, ground.now()) {
            Some(Ok(pair)) if pair.stage == Stage::Met => pair,
            Some(Ok(_)) | None => return,
            Some(Err(pair)) => {
                let head = Head::new(Kind::Expect, pair.number);
                return self.tell_of(head, number, other);
            }
        };
        let Some(value) = pair.next_connection() else { return };
        for (number, socket) in [(number, socket), (other, mirror)] {
            if let Some(client) = self.clients[number].as_mut() {
                client.join(socket, value);
                self.to_give.insert(number);
            }
        }
    }

    /// The client at the other side of a connection, and what it calls it: both are open, and were not joined before.
    fn mirror(&self, number: usize, socket: u32, ground: &mut impl Ground) -> Option<(usize, u32)> {
        let id = self.clients.get(number)?.as_ref()?.unjoined(socket)?;
        let stack = ground.stack();
        let (local, remote) = stack.ends(id)?;
        let (other, mirror) = of_token(stack.token_between(remote, local)?);
        let of_other = self.clients.get(other)?.as_ref()?.unjoined(mirror)?;
        let are_two = other != number && stack.ends(of_other) == Some((remote, local));
        are_two.then_some((other, mirror))
    }

    /// Tells a client something of another.
    fn tell_of(&mut self, head: Head, of: usize, to: usize) {
        let Some(name) = self.clients.get(of).and_then(Option::as_ref).map(|one| one.name) else {
            return;
        };
        if let Some(client) = self.clients.get_mut(to).and_then(Option::as_mut) {
            client.reply(Head { value: name_value(name), ..head });
            self.to_give.insert(to);
        }
    }

    /// A client that waits for a path to another hears that there will be none.
    fn call_off(&mut self, pair: u32, waits: usize) {
        if let Some(client) = self.clients.get_mut(waits).and_then(Option::as_mut) {
            let value = name_value(client.name);
            client.reply(Head { code: answer::NO, value, ..Head::new(Kind::Expect, pair) });
            self.to_give.insert(waits);
        }
    }

    /// A client has said something of a pair. What comes of one that there is no more means nothing.
    fn answered(&mut self, number: usize, head: Head, now: u64) {
        let Some(pair) = self.pairs.of(head.socket, number) else { return };
        let is_asked = pair.is_asked == number;
        let (stage, tell) = match (head.kind, pair.stage, head.code) {
            // Whoever was refused for that may have said so before.
            (_, Stage::PutOff(_), answer::NOT_NOW) => return,
            // The other may have taken it for a refusal, and have said so first.
            (_, stage, answer::NOT_NOW) => {
                (pair.put_off(now), stage == Stage::Meeting && !is_asked)
            }
            (Kind::Ready, Stage::Expected, 0) if is_asked => (Stage::Meeting, true),
            (Kind::Ready, Stage::Expected, _) if is_asked => (Stage::Apart, false),
            (Kind::Met, Stage::Meeting, 0) if !is_asked => (Stage::Met, false),
            (Kind::Met, Stage::Meeting, _) if !is_asked => (Stage::Apart, true),
            // Whoever was to be asked has waited long enough. One that asks yet is refused.
            (Kind::Met, Stage::Expected | Stage::Meeting, answer::NO) => (Stage::Apart, false),
            // A path that there was is gone.
            (Kind::Met, Stage::Met, answer::NO) => (Stage::Apart, false),
            _ => return,
        };
        pair.stage = stage;
        let pair = *pair;
        match stage {
            Stage::Meeting => {
                self.tell_of(Head::new(Kind::Meet, pair.number), pair.is_asked, pair.asks);
            }
            Stage::Apart | Stage::PutOff(_) if tell => self.call_off(pair.number, pair.is_asked),
            Stage::Met => self.counters.introduced += 1,
            Stage::Expected | Stage::Apart | Stage::PutOff(_) => {}
        }
    }

    /// A client sends what it has to send over a connection directly: the other side hears of its end there.
    fn moved(&mut self, number: usize, socket: u32, ground: &mut impl Ground) {
        let client = self.clients.get(number).and_then(Option::as_ref);
        let Some(id) = client.and_then(|client| client.connection_id(socket)) else { return };
        let stack = ground.stack();
        let ends = stack.ends(id);
        let token = ends.and_then(|(local, remote)| stack.token_between(remote, local));
        let Some((other, mirror)) = token.map(of_token) else { return };
        if let Some(client) = self.clients.get_mut(other).and_then(Option::as_mut) {
            client.set_moved_in(mirror);
        }
    }

    /// The clients that there are: number, name, and what each has.
    pub fn clients(&self) -> impl Iterator<Item = (usize, Name, ClientLimits, ClientCounters)> {
        self.clients.iter().enumerate().filter_map(|(number, client)| {
            let client = client.as_ref()?;
            Some((number, client.name, client.limits, client.counters()))
        })
    }

    /// What was done for all.
    pub fn counters(&self) -> ServiceCounters {
        self.counters
    }

    /// Takes what a client has sent, as much as one call allows, and at most so many requests.
    ///
    /// # Errors
    /// [`Left`]: then the client is to be detached, and its path ended.
    pub fn take(
        &mut self,
        number: usize,
        receiver: &mut Receiver,
        ground: &mut impl Ground,
        requests_max: usize,
    ) -> Result<Taken, Left> {
        let taken = self.take_messages(number, receiver, ground, requests_max)?;
        // What was closed in the same turn is given its end later: it has moved before.
        let noted = self.clients.get_mut(number).and_then(Option::as_mut);
        for note in noted.map(|client| std::mem::take(&mut client.notes)).unwrap_or_default() {
            match note {
                Note::Talks(socket) => self.introduce(number, socket, ground),
                Note::Moved(socket) => self.moved(number, socket, ground),
                Note::Answered(head) => self.answered(number, head, ground.now()),
            }
        }
        Ok(taken)
    }

    fn take_messages(
        &mut self,
        number: usize,
        receiver: &mut Receiver,
        ground: &mut impl Ground,
        requests_max: usize,
    ) -> Result<Taken, Left> {
        let Service { clients, listeners, datagrams, closing, waits, deadlines, .. } = self;
        let Service { to_give, counters, .. } = self;
        let Some(client) = clients.get_mut(number).and_then(Option::as_mut) else {
            return Ok(Taken::Nothing);
        };
        let mut books = Books { listeners, datagrams, closing, waits, deadlines };
        let mut bytes = 0;
        for taken in 0..requests_max.min(REQUESTS_PER_CALL_MAX) {
            if client.is_behind() {
                to_give.insert(number);
                // Of what was taken before, the caller is told first.
                return Ok(if taken == 0 { Taken::Behind } else { Taken::Some });
            }
            if bytes >= BYTES_PER_CALL {
                break;
            }
            let Some(fetched) = receiver.fetch_up_to(0, client::BODY_BYTES_MAX)? else {
                to_give.insert(number);
                // Nothing may have been found though there is something: 128 buffers that bring nothing.
                return Ok(match receiver.is_ready() {
                    true => Taken::Some,
                    false if taken == 0 => Taken::Nothing,
                    false => Taken::All,
                });
            };
            match client.take(fetched, receiver, &mut books, ground) {
                Ok(taken) => bytes += taken,
                Err(fault) => {
                    counters.faults += 1;
                    return Err(fault.into());
                }
            }
        }
        to_give.insert(number);
        Ok(Taken::Some)
    }

    /// Finds out whose sockets have changed at the stack.
    pub fn follow(&mut self, ground: &mut impl Ground) {
        let stack = ground.stack();
        while let Some(changed) = stack.take_changed() {
            let (number, socket) = of_token(changed);
            self.mark(number, socket);
        }
        while let Some(news) = stack.take_news() {
            let of = match news {
                Awaited::Connection(id) => self.closing.get(&id),
                Awaited::Listener(address) => self.listeners.get(&address),
                Awaited::Socket(address) => self.datagrams.get(&address),
            };
            if let Some((number, socket)) = of.copied() {
                self.mark(number, socket);
            }
        }
        // That a target has room again is told to nobody by name.
        if stack.take_moved() {
            let behind = (Bound::Excluded(self.last_wait), Bound::Unbounded);
            let behind = self.waits.range(behind).chain(self.waits.range(..=self.last_wait));
            let some: Vec<_> = behind.take(WAITS_PER_CALL).copied().collect();
            for (number, socket) in some {
                self.last_wait = (number, socket);
                self.mark(number, socket);
            }
        }
    }

    fn mark(&mut self, number: usize, socket: u32) {
        if let Some(client) = self.clients.get_mut(number).and_then(Option::as_mut) {
            client.mark(socket);
            self.to_give.insert(number);
        }
    }

    /// When something is to be done though nothing comes: see [`Service::expire`].
    pub fn due(&self) -> Option<u64> {
        self.deadlines.first().map(|(due, ..)| *due)
    }

    /// Does what is due.
    pub fn expire(&mut self, ground: &mut impl Ground) {
        let now = ground.now();
        while let Some((due, number, socket)) = self.deadlines.first().copied()
            && due <= now
        {
            self.deadlines.pop_first();
            if let Some(client) = self.clients.get_mut(number).and_then(Option::as_mut) {
                client.expire(socket, now, ground);
                self.to_give.insert(number);
            }
        }
    }

    /// A client had used up its turn.
    pub fn count_cut(&mut self, number: usize) {
        if let Some(client) = self.clients.get_mut(number).and_then(Option::as_mut) {
            client.counters.turns_cut += 1;
        }
    }

    /// How many clients have something to be given.
    pub fn count_to_give(&self) -> usize {
        self.to_give.len()
    }

    /// The next client behind `last` that has something to be given.
    pub fn next_to_give(&self, last: Option<usize>) -> Option<usize> {
        match last {
            Some(last) => self.to_give.range(last + 1..).next().copied(),
            None => self.to_give.first().copied(),
        }
    }

    /// Gives a client what is there for it, as far as its path has room and one call goes.
    ///
    /// # Errors
    /// [`Left`]: then the client is to be detached.
    pub fn give(
        &mut self,
        number: usize,
        sender: &mut Sender,
        receiver: &mut Receiver,
        ground: &mut impl Ground,
    ) -> Result<Given, Left> {
        let Service { clients, listeners, datagrams, closing, waits, deadlines, .. } = self;
        let Some(client) = clients.get_mut(number).and_then(Option::as_mut) else {
            return Ok(Given::All);
        };
        let mut books = Books { listeners, datagrams, closing, waits, deadlines };
        match client.give(sender, receiver, &mut books, ground) {
            Ok(true) => Ok(Given::Some),
            Ok(false) => {
                self.to_give.remove(&number);
                Ok(Given::All)
            }
            Err(SendError::Full | SendError::Quiesced) => {
                client.counters.waits_for_room += 1;
                self.to_give.remove(&number);
                Ok(Given::Full)
            }
            // The client loses nothing.
            Err(SendError::Lacking(_)) => {
                self.to_give.remove(&number);
                Ok(Given::Lacking)
            }
            Err(SendError::Severed(severed)) => Err(severed.into()),
            Err(SendError::TooLong { .. }) => unreachable!("no message is longer than a page"),
        }
    }

    /// Has [`Service::next_to_give`] name a client whose path may have room again.
    pub fn has_room(&mut self, number: usize) {
        if self.clients.get(number).is_some_and(Option::is_some) {
            self.to_give.insert(number);
        }
    }
}

/// Where the sockets of one client are entered for the stack's news.
struct Books<'a> {
    listeners: &'a mut HashMap<SocketAddr, (usize, u32)>,
    datagrams: &'a mut HashMap<SocketAddr, (usize, u32)>,
    closing: &'a mut HashMap<ConnectionId, (usize, u32)>,
    waits: &'a mut BTreeSet<(usize, u32)>,
    deadlines: &'a mut BTreeSet<(u64, usize, u32)>,
}
