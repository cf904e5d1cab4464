//! One client: its sockets by number, its requests, and what is to be given to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::ops::Bound;
use std::time::Duration;

use fabric::name::Name;
use fabric::path::{Fetched, InPage, Receiver, SendError, Sender};

use super::socket::{Connection, Datagrams, Listener, Socket, Stage};
use super::{Books, ClientCounters, ClientLimits, Ground, token};
use crate::tcpip::service::format::{
    ACCEPTED, ADDRESS_BYTES, COMPLETE, Failure, HEAD_BYTES, Head, Kind, address_bytes, answer,
    keep_alive, only_address, option, split_address,
};
use crate::tcpip::service::parked::Kept;
use crate::tcpip::service::{
    CLOSE_NS_MAX, CREDIT_BYTES_MAX, CREDIT_BYTES_MIN, DATA_BYTES_MAX, DATAGRAM_BYTES,
    DATAGRAM_CREDIT_BYTES, Fault,
};
use crate::tcpip::{
    Awaited, BindError, ConnectError, ConnectionId, KeepAlive, Readable, SendToError, Stack,
    Writable,
};

/// Replies that wait before the client's next requests are left on its path, at most.
pub(super) const REPLIES_MAX: usize = 64;

/// Sockets that were not opened and that the client has not closed, beyond as many as it may have, at most: our client opens no more by itself. A client
/// that goes on regardless is sent away.
pub(in crate::tcpip::service) const FAILED_MAX: usize = 1024;

/// Sockets that are looked at for credit that they do not use, each time that another needs more.
const RECALL_LOOKS: usize = 16;

/// Bytes of one client that one call gives, about.
const BYTES_PER_GIFT: usize = 256 << 10;

/// Addresses of the machine that a client is told, at most.
const WELCOME_ADDRESSES_MAX: usize = 64;

/// Bytes of a datagram's message at most.
pub(super) const BODY_BYTES_MAX: usize = ADDRESS_BYTES + (1 << 16);

/// Connections of a listener that may wait for the program, whatever it asks for.
const BACKLOG_MAX: usize = 4096;

/// The shortest time after which, and between which, a silent side is asked whether it is there: the questions take the machine's time.
const KEEP_ALIVE_MIN: Duration = Duration::from_secs(1);

/// Something to be said to a client, of a socket that is not there any more or was never opened.
#[derive(Debug)]
struct Reply {
    head: Head,
}

/// What a client has said that is about another one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    /// It has sent some bytes over this connection.
    Talks(u32),
    /// It sends them directly to the other client from now on.
    Moved(u32),
    /// It has said what has become of a path to another.
    Answered(Head),
}

/// One client.
#[derive(Debug)]
pub(super) struct ClientState {
    number: usize,
    pub(super) name: Name,
    pub(super) limits: ClientLimits,
    pub(super) counters: ClientCounters,
    /// By number.
    sockets: BTreeMap<u32, Socket>,
    /// Those of them that are open, which the client's limit counts.
    open: usize,
    /// Set if a listener has left connections in its backlog for a limit of the client's.
    is_limited: bool,
    /// Sockets of which something may be said.
    marked: BTreeSet<u32>,
    /// The one of them that had its turn last.
    last_marked: u32,
    replies: VecDeque<Reply>,
    /// What was said since the last turn that is about others.
    pub(super) notes: Vec<Note>,
    kept: Kept,
    buffers_bytes: usize,
    /// Bytes of that beyond what sockets begin with.
    raised_bytes: usize,
    /// Set if a socket has used up its credit, and there was no more for it.
    is_short: bool,
    /// The socket that was looked at last for credit that it does not use.
    last_look: u32,
    /// The number that the next accepted connection gets, if it is free.
    next_accepted: u32,
    has_welcomed: bool,
}

type Sockets = BTreeMap<u32, Socket>;

impl ClientState {
    pub(super) fn new(number: usize, name: Name, limits: ClientLimits) -> ClientState {
        ClientState {
            number,
            name,
            limits,
            counters: ClientCounters::default(),
            sockets: BTreeMap::new(),
            open: 0,
            is_limited: false,
            marked: BTreeSet::new(),
            last_marked: 0,
            replies: VecDeque::new(),
            notes: Vec::new(),
            kept: Kept::default(),
            buffers_bytes: 0,
            raised_bytes: 0,
            is_short: false,
            last_look: 0,
            next_accepted: 0,
            has_welcomed: false,
        }
    }

    pub(super) fn into_sockets(self) -> impl Iterator<Item = Socket> {
        self.sockets.into_values()
    }

    pub(super) fn counters(&self) -> ClientCounters {
        ClientCounters { sockets: self.open, buffers_bytes: self.buffers_bytes, ..self.counters }
    }

    /// Returns true if so much is to be said that the client's next requests wait.
    pub(super) fn is_behind(&self) -> bool {
        self.replies.len() >= REPLIES_MAX
    }

    /// Something may have changed at a socket.
    pub(super) fn mark(&mut self, socket: u32) {
        if self.sockets.contains_key(&socket) {
            self.marked.insert(socket);
        }
    }

    /// Takes a message, and returns how many bytes it had.
    pub(super) fn take(
        &mut self,
        fetched: Fetched,
        receiver: &mut Receiver,
        books: &mut Books<'_>,
        ground: &mut impl Ground,
    ) -> Result<usize, Fault> {
        self.counters.requests += 1;
        self.kept.count();
        while let Some((message, socket)) = self.kept.take_overdue() {
            if let Some(Socket::Connection(one)) = self.sockets.get_mut(&socket) {
                one.parked.copy_out(message, &mut self.kept, receiver);
            }
        }
        match fetched {
            Fetched::Copied(message) => {
                let message = receiver.message(message);
                let head = Head::parse(message.head)?;
                self.request(head, message.body, books, ground)?;
                Ok(message.body.len())
            }
            Fetched::InPage(page) => {
                let mut head = [0; HEAD_BYTES];
                let parsed = match page.head_bytes() == head.len() {
                    true => page.view().read(0, &mut head).map_err(|_| Fault::Head),
                    false => Err(Fault::Head),
                };
                let bytes = page.body_bytes();
                match parsed.and_then(|()| Head::parse(&head)) {
                    Ok(head) if head.kind == Kind::Data => {
                        self.data_in_page(head, page, receiver, ground)?;
                    }
                    Ok(head) => {
                        let mut body = vec![0; bytes];
                        let read = page.read(0, &mut body).map_err(|_| Fault::Length);
                        let _ = receiver.give_back(page);
                        read?;
                        self.request(head, &body, books, ground)?;
                    }
                    Err(fault) => {
                        let _ = receiver.give_back(page);
                        return Err(fault);
                    }
                }
                Ok(bytes)
            }
            Fetched::TooLong => Err(Fault::Length),
        }
    }

    /// Takes bytes of a stream that are valid for now only.
    fn data(&mut self, head: Head, bytes: &[u8], ground: &mut impl Ground) -> Result<(), Fault> {
        let connection = writer(&mut self.sockets, head, bytes.len())?;
        let mut put = 0;
        if connection.parked.is_empty() {
            put = put_all(ground.stack(), connection, bytes.len(), |at, room| {
                room.copy_from_slice(&bytes[at..at + room.len()]);
            });
        }
        connection.parked.push_copy(&bytes[put..]);
        connection.to_return += put;
        if connection.count_message() {
            self.notes.push(Note::Talks(head.socket));
        }
        if connection.owes_credit() {
            self.marked.insert(head.socket);
        }
        self.counters.bytes_in += bytes.len() as u64;
        Ok(())
    }

    /// Takes bytes of a stream that lie in a page: they are copied once, into the send buffer.
    fn data_in_page(
        &mut self,
        head: Head,
        page: InPage,
        receiver: &mut Receiver,
        ground: &mut impl Ground,
    ) -> Result<(), Fault> {
        let bytes = page.body_bytes();
        let connection = match writer(&mut self.sockets, head, bytes) {
            Ok(connection) => connection,
            Err(fault) => {
                let _ = receiver.give_back(page);
                return Err(fault);
            }
        };
        connection.parked.push_page(head.socket, page, &mut self.kept, receiver);
        pour(connection, &mut self.kept, receiver, ground.stack());
        if connection.count_message() {
            self.notes.push(Note::Talks(head.socket));
        }
        if connection.owes_credit() {
            self.marked.insert(head.socket);
        }
        self.counters.bytes_in += bytes as u64;
        Ok(())
    }

    /// Takes any request.
    fn request(
        &mut self,
        head: Head,
        body: &[u8],
        books: &mut Books<'_>,
        ground: &mut impl Ground,
    ) -> Result<(), Fault> {
        if head.code != 0 && !matches!(head.kind, Kind::Shut | Kind::Set | Kind::Ready | Kind::Met)
        {
            return Err(Fault::Value);
        }
        let has_body = !matches!(
            head.kind,
            Kind::Credit
                | Kind::Shut
                | Kind::Reset
                | Kind::Close
                | Kind::Ready
                | Kind::Met
                | Kind::Moved
                | Kind::Returned
        );
        if !has_body && !body.is_empty() {
            return Err(Fault::Length);
        }
        match head.kind {
            Kind::Connect => self.connect(head, only_address(body)?, ground),
            Kind::Listen => self.listen(head, only_address(body)?, books, ground),
            Kind::Bind => self.bind(head, only_address(body)?, books, ground),
            Kind::Associate => self.associate(head, only_address(body)?, ground),
            Kind::Data => self.data(head, body, ground),
            Kind::Datagram => self.datagram(head, body, books, ground),
            Kind::Reset | Kind::Shut | Kind::Set | Kind::Credit if self.has_failed(head.socket) => {
                // The client did not know.
                Ok(())
            }
            Kind::Reset => {
                let connection = connection_of(&mut self.sockets, head.socket)?;
                connection.is_reset = true;
                ground.stack().abort(connection.id);
                self.marked.insert(head.socket);
                Ok(())
            }
            Kind::Credit => self.credit(head),
            Kind::Ready | Kind::Met if head.code > answer::NOT_NOW => Err(Fault::Value),
            Kind::Ready | Kind::Met => {
                self.notes.push(Note::Answered(head));
                Ok(())
            }
            Kind::Moved => {
                let connection = connection_of(&mut self.sockets, head.socket)?;
                if !connection.has_told_joined || connection.has_moved {
                    return Err(Fault::Socket);
                }
                connection.has_moved = true;
                self.counters.moved += 1;
                self.notes.push(Note::Moved(head.socket));
                Ok(())
            }
            Kind::Returned => self.returned(head),
            Kind::Shut => self.shut(head, ground),
            Kind::Close => self.close(head, books, ground),
            Kind::Set => self.set(head, body, ground),
            _ => Err(Fault::Kind),
        }
    }

    /// The connection of an open socket that has not been joined to a path between two clients.
    pub(super) fn unjoined(&self, number: u32) -> Option<ConnectionId> {
        match self.sockets.get(&number)? {
            Socket::Connection(one) if one.stage == Stage::Open && one.joined.is_none() => {
                Some(one.id)
            }
            _ => None,
        }
    }

    pub(super) fn connection_id(&self, number: u32) -> Option<ConnectionId> {
        match self.sockets.get(&number)? {
            Socket::Connection(one) => Some(one.id),
            _ => None,
        }
    }

    /// A connection has a number on the path to another client.
    pub(super) fn join(&mut self, number: u32, value: u64) {
        if let Some(Socket::Connection(one)) = self.sockets.get_mut(&number) {
            one.joined = Some(value);
            self.marked.insert(number);
        }
    }

    /// The other side of a connection sends directly to this client.
    pub(super) fn set_moved_in(&mut self, number: u32) {
        if let Some(Socket::Connection(one)) = self.sockets.get_mut(&number) {
            one.has_moved_in = true;
        }
    }

    pub(super) fn reply(&mut self, head: Head) {
        self.replies.push_back(Reply { head });
    }

    fn has_failed(&self, number: u32) -> bool {
        matches!(self.sockets.get(&number), Some(Socket::Failed))
    }

    /// Checks that a socket can be opened under a number, and returns its credit.
    fn admit(&mut self, number: u32) -> Result<Result<usize, Failure>, Fault> {
        if number & ACCEPTED != 0 || self.sockets.contains_key(&number) {
            return Err(Fault::InUse);
        }
        // Connections that were refused by the other side count as well.
        if self.sockets.len() - self.open > self.limits.sockets_max + FAILED_MAX {
            return Err(Fault::Value);
        }
        let refused = match self.has_room_for_another() {
            false => Failure::SocketsMax,
            true => match self.grant() {
                Some(grant) => return Ok(Ok(grant)),
                None => Failure::BuffersMax,
            },
        };
        self.counters.refused += 1;
        Ok(Err(refused))
    }

    fn has_room_for_another(&self) -> bool {
        self.open < self.limits.sockets_max
    }

    fn insert(&mut self, number: u32, socket: Socket) {
        self.open += 1;
        self.sockets.insert(number, socket);
    }

    /// Credit for a new socket: half of the client's budget is for what its sockets begin with.
    fn grant(&self) -> Option<usize> {
        let ClientLimits { sockets_max, buffers_max, .. } = self.limits;
        let grant =
            (buffers_max / 2 / sockets_max.max(1)).clamp(CREDIT_BYTES_MIN, CREDIT_BYTES_MAX);
        (grant <= buffers_max.saturating_sub(self.buffers_bytes)).then_some(grant)
    }

    /// Gives a socket of datagrams enough for the longest datagram, if it has less and the budget has that now.
    fn raise_datagrams(&mut self, number: u32) {
        let Some(Socket::Datagrams(datagrams)) = self.sockets.get(&number) else { return };
        let extra = datagrams.missing;
        if extra == 0 {
            return;
        }
        if !self.can_raise(extra) {
            // It is looked at again when something of the budget is free.
            self.is_limited = true;
            return;
        }
        if let Some(Socket::Datagrams(datagrams)) = self.sockets.get_mut(&number) {
            datagrams.missing = 0;
            datagrams.grant += extra;
            datagrams.raised += extra;
            // Of one that the client has not heard of yet, the grant is said in full.
            if datagrams.has_told {
                datagrams.to_return += extra;
            }
            self.raised_bytes += extra;
            self.buffers_bytes += extra;
        }
    }

    /// Returns true if a socket may have so much more than it begins with: half of the budget is for that.
    fn can_raise(&self, extra: usize) -> bool {
        reaches_for(&self.limits, (self.raised_bytes, self.buffers_bytes), extra)
    }

    /// Says that a socket was not opened. Its number is taken until the client closes it, for the client may have said more of it by then.
    fn fail(&mut self, socket: u32, failure: Failure) {
        let head = Head { code: failure as u8, ..Head::new(Kind::Failed, socket) };
        self.replies.push_back(Reply { head });
        self.sockets.insert(socket, Socket::Failed);
    }

    fn connect(
        &mut self,
        head: Head,
        to: SocketAddr,
        ground: &mut impl Ground,
    ) -> Result<(), Fault> {
        let may_give = credit_of(head.value)?;
        let begun = match self.admit(head.socket)? {
            Ok(_) if !ground.can_reach(to.ip()) => Err(Failure::HostUnreachable),
            Ok(grant) => {
                let now = ground.now();
                let begun = ground.stack().connect(now, to).map_err(not_connected);
                begun.map(|id| (id, grant))
            }
            Err(failure) => Err(failure),
        };
        let (id, grant) = match begun {
            Ok(begun) => begun,
            Err(failure) => {
                self.fail(head.socket, failure);
                return Ok(());
            }
        };
        ground.stack().watch(id, token(self.number, head.socket));
        self.buffers_bytes += grant;
        let connection = Connection::new(id, grant, may_give, Stage::Connecting);
        self.insert(head.socket, Socket::Connection(connection));
        Ok(())
    }

    fn listen(
        &mut self,
        head: Head,
        at: SocketAddr,
        books: &mut Books<'_>,
        ground: &mut impl Ground,
    ) -> Result<(), Fault> {
        let (backlog, may_give) = (head.value as u32 as usize, credit_of(head.value >> 32)?);
        let backlog = backlog.clamp(1, BACKLOG_MAX.min(self.limits.sockets_max.max(1)));
        if let Err(failure) = self.admit(head.socket)? {
            self.fail(head.socket, failure);
            return Ok(());
        }
        match ground.stack().listen(at, backlog) {
            Ok(address) => {
                books.listeners.insert(address, (self.number, head.socket));
                let listener = Listener { address, may_give, has_told: false, backlog, waiting: 0 };
                self.insert(head.socket, Socket::Listener(listener));
                self.marked.insert(head.socket);
            }
            Err(error) => self.fail(head.socket, not_bound(error)),
        }
        Ok(())
    }

    fn bind(
        &mut self,
        head: Head,
        at: SocketAddr,
        books: &mut Books<'_>,
        ground: &mut impl Ground,
    ) -> Result<(), Fault> {
        let may_give = credit_of(head.value)?;
        let grant = match self.admit(head.socket)? {
            Ok(grant) => grant.min(DATAGRAM_CREDIT_BYTES),
            Err(failure) => {
                self.fail(head.socket, failure);
                return Ok(());
            }
        };
        match ground.stack().bind(at) {
            Ok(address) => {
                books.datagrams.insert(address, (self.number, head.socket));
                self.buffers_bytes += grant;
                let missing = (DATAGRAM_CREDIT_BYTES / 2).saturating_sub(grant);
                let datagrams = Datagrams { missing, ..Datagrams::new(address, grant, may_give) };
                self.insert(head.socket, Socket::Datagrams(datagrams));
                self.raise_datagrams(head.socket);
                self.marked.insert(head.socket);
            }
            Err(error) => self.fail(head.socket, not_bound(error)),
        }
        Ok(())
    }

    /// Connects a socket of datagrams.
    fn associate(
        &mut self,
        head: Head,
        to: SocketAddr,
        ground: &mut impl Ground,
    ) -> Result<(), Fault> {
        let Some(Socket::Datagrams(datagrams)) = self.sockets.get_mut(&head.socket) else {
            return Err(Fault::Socket);
        };
        let connected = match ground.can_reach(to.ip()) {
            false => Err(Failure::HostUnreachable),
            true => {
                ground.stack().connect_socket(datagrams.address, to).map_err(|_| Failure::NoHost)
            }
        };
        match connected {
            Ok(local) => datagrams.connected = Some((head.value, [local, to])),
            Err(failure) => datagrams.not_connected = Some((head.value, failure)),
        }
        self.marked.insert(head.socket);
        Ok(())
    }

    fn datagram(
        &mut self,
        head: Head,
        body: &[u8],
        books: &mut Books<'_>,
        ground: &mut impl Ground,
    ) -> Result<(), Fault> {
        let (to, data) = split_address(body)?;
        let Some(Socket::Datagrams(datagrams)) = self.sockets.get_mut(&head.socket) else {
            return Err(Fault::Socket);
        };
        let bytes = data.len() + DATAGRAM_BYTES;
        if bytes > datagrams.client_may {
            return Err(Fault::Credit);
        }
        datagrams.client_may -= bytes;
        self.counters.bytes_in += data.len() as u64;
        datagrams.waiting.push_back((to, data.to_vec()));
        if datagrams.send(ground) {
            books.waits.insert((self.number, head.socket));
        }
        self.marked.insert(head.socket);
        Ok(())
    }

    /// The client takes more: bytes, or of a listener connections.
    fn credit(&mut self, head: Head) -> Result<(), Fault> {
        let may_give = match self.sockets.get_mut(&head.socket) {
            Some(Socket::Listener(listener)) => {
                let taken = usize::try_from(head.value).ok();
                let left = taken.and_then(|taken| listener.waiting.checked_sub(taken));
                listener.waiting = left.ok_or(Fault::Value)?;
                self.marked.insert(head.socket);
                return Ok(());
            }
            Some(Socket::Connection(connection)) => &mut connection.may_give,
            Some(Socket::Datagrams(datagrams)) => &mut datagrams.may_give,
            _ => return Err(Fault::Socket),
        };
        *may_give = may_give.checked_add(credit_of(head.value)?).ok_or(Fault::Value)?;
        credit_of(*may_give as u64)?;
        self.marked.insert(head.socket);
        Ok(())
    }

    /// The client gives back credit that it was asked for.
    fn returned(&mut self, head: Head) -> Result<(), Fault> {
        let connection = connection_of(&mut self.sockets, head.socket)?;
        let most = connection.recalled.take().ok_or(Fault::Value)?.min(connection.client_may);
        let bytes = usize::try_from(head.value).ok().filter(|bytes| *bytes <= most);
        let bytes = bytes.ok_or(Fault::Credit)?;
        connection.client_may -= bytes;
        connection.grant -= bytes;
        connection.raised -= bytes;
        // A quarter is less than before: what was kept back may be more.
        if connection.owes_credit() {
            self.marked.insert(head.socket);
        }
        self.raised_bytes -= bytes;
        self.buffers_bytes -= bytes;
        self.tell_listeners();
        Ok(())
    }

    /// A socket has too little credit, and others may have more than they use: some that have sent nothing since they were looked at last are to
    /// give back what they have beyond their beginning.
    fn recall(&mut self) {
        for _ in 0..RECALL_LOOKS.min(self.sockets.len()) {
            let behind = (Bound::Excluded(self.last_look), Bound::Unbounded);
            let next = self.sockets.range(behind).next().or(self.sockets.first_key_value());
            let Some(number) = next.map(|(number, _)| *number) else { return };
            self.last_look = number;
            if let Some(Socket::Connection(one)) = self.sockets.get_mut(&number)
                && !std::mem::take(&mut one.is_busy)
                && one.stage == Stage::Open
                && one.recalled.is_none()
            {
                one.to_recall = one.raised.min(one.client_may);
                if one.to_recall > 0 {
                    self.marked.insert(number);
                }
            }
        }
    }

    fn shut(&mut self, head: Head, ground: &mut impl Ground) -> Result<(), Fault> {
        let connection = connection_of(&mut self.sockets, head.socket)?;
        if !(1..=3).contains(&head.code) {
            return Err(Fault::Value);
        }
        connection.is_shut |= head.code & 1 != 0;
        if head.code & 2 != 0 {
            ground.stack().shut_receiving(connection.id);
        }
        self.marked.insert(head.socket);
        Ok(())
    }

    fn close(
        &mut self,
        head: Head,
        books: &mut Books<'_>,
        ground: &mut impl Ground,
    ) -> Result<(), Fault> {
        match self.sockets.get_mut(&head.socket) {
            Some(Socket::Connection(connection)) => {
                if matches!(connection.stage, Stage::Closing | Stage::Closed) {
                    return Err(Fault::Socket);
                }
                connection.stage = Stage::Closing;
                // What it was given and has not read is a reset at the other side (RFC 2525 2.17).
                if head.value < connection.given {
                    connection.is_reset = true;
                    ground.stack().abort(connection.id);
                }
                let close_by = ground.now().saturating_add(CLOSE_NS_MAX);
                connection.close_by = Some(close_by);
                books.deadlines.insert((close_by, self.number, head.socket));
                self.marked.insert(head.socket);
                return Ok(());
            }
            Some(Socket::Listener(listener)) => {
                books.listeners.remove(&listener.address);
                ground.stack().stop_listening(listener.address);
                self.open -= 1;
                self.drop_unaccepted(head.socket, ground.stack());
                self.tell_listeners();
            }
            Some(Socket::Datagrams(datagrams)) => {
                // What waits for room is lost, as what waits in a kernel's queue for a neighbour is.
                books.datagrams.remove(&datagrams.address);
                books.waits.remove(&(self.number, head.socket));
                ground.stack().unbind(datagrams.address);
                self.buffers_bytes -= datagrams.grant;
                self.raised_bytes -= datagrams.raised;
                self.open -= 1;
                self.tell_listeners();
            }
            Some(Socket::Failed) => {}
            None => return Err(Fault::Socket),
        }
        self.sockets.remove(&head.socket);
        self.marked.remove(&head.socket);
        self.replies.push_back(Reply { head: Head::new(Kind::Closed, head.socket) });
        Ok(())
    }

    /// A listener is closed: connections that its client was not told of are reset, as those in the backlog are.
    fn drop_unaccepted(&mut self, listener: u32, stack: &mut Stack) {
        let of_it = |(number, socket): (&u32, &Socket)| match socket {
            Socket::Connection(one) if one.stage == Stage::Accepted(listener) => Some(*number),
            _ => None,
        };
        for number in self.sockets.iter().filter_map(of_it).collect::<Vec<_>>() {
            if let Some(Socket::Connection(connection)) = self.sockets.get(&number) {
                stack.abort(connection.id);
                stack.close(connection.id);
            }
            self.marked.remove(&number);
            self.remove(number);
        }
    }

    fn set(&mut self, head: Head, body: &[u8], ground: &mut impl Ground) -> Result<(), Fault> {
        let id = connection_of(&mut self.sockets, head.socket)?.id;
        match (head.code, head.value) {
            (option::NO_DELAY, is_on @ 0..=1) if body.is_empty() => {
                ground.stack().set_no_delay(id, is_on == 1);
            }
            (option::SERVICE, service @ 0..=255) if body.is_empty() => {
                ground.stack().set_service(id, service as u8);
            }
            (option::KEEP_ALIVE, 0) => {
                let options = keep_alive(body)?.map(|options| KeepAlive {
                    time: options.time.max(KEEP_ALIVE_MIN),
                    interval: options.interval.max(KEEP_ALIVE_MIN),
                    ..options
                });
                let now = ground.now();
                ground.stack().set_keep_alive(now, id, options);
            }
            _ => return Err(Fault::Value),
        }
        Ok(())
    }

    /// The time of a connection that was closed is over: what is left of it is not sent.
    pub(super) fn expire(&mut self, number: u32, now: u64, ground: &mut impl Ground) {
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(&number)
            && connection.stage == Stage::Closing
            && connection.close_by.is_some_and(|close_by| close_by <= now)
        {
            connection.is_reset = true;
            ground.stack().abort(connection.id);
            self.marked.insert(number);
        }
    }

    /// Says what is to be said, as far as the path has room and one call goes. Returns true if more is to be said that there is room for. What was
    /// not said stays to be said.
    pub(super) fn give(
        &mut self,
        sender: &mut Sender,
        receiver: &mut Receiver,
        books: &mut Books<'_>,
        ground: &mut impl Ground,
    ) -> Result<bool, SendError> {
        let before = self.counters.bytes_out;
        if !self.has_welcomed {
            let addresses = ground.stack().addresses().iter().take(WELCOME_ADDRESSES_MAX);
            let body: Vec<u8> =
                addresses.flat_map(|ip| address_bytes(SocketAddr::new(*ip, 0))).collect();
            let value = self.limits.sockets_max as u64;
            sender.send(&Head { value, ..Head::new(Kind::Welcome, 0) }.bytes(), &body)?;
            self.has_welcomed = true;
        }
        while let Some(Reply { head }) = self.replies.front() {
            sender.send(&head.bytes(), &[])?;
            self.replies.pop_front();
        }
        while let Some(number) = self.next_marked() {
            if self.counters.bytes_out - before >= BYTES_PER_GIFT as u64 {
                return Ok(true);
            }
            self.last_marked = number;
            self.raise_datagrams(number);
            match self.sockets.get_mut(&number) {
                Some(Socket::Connection(_)) => {
                    let room = BYTES_PER_GIFT - (self.counters.bytes_out - before) as usize;
                    if self.give_connection(number, room, (sender, receiver), books, ground)? {
                        continue;
                    }
                    if std::mem::take(&mut self.is_short) {
                        self.recall();
                    }
                }
                Some(Socket::Listener(_)) => {
                    self.give_listener(number, sender, ground)?;
                }
                Some(Socket::Datagrams(datagrams)) => {
                    let waits = datagrams.send(ground);
                    datagrams.give(number, sender, ground.stack(), &mut self.counters.bytes_out)?;
                    match waits {
                        true => books.waits.insert((self.number, number)),
                        false => books.waits.remove(&(self.number, number)),
                    };
                }
                Some(Socket::Failed) | None => {}
            }
            self.marked.remove(&number);
        }
        Ok(false)
    }

    /// The next socket of which something may be said: each in its turn.
    fn next_marked(&self) -> Option<u32> {
        let behind = (Bound::Excluded(self.last_marked), Bound::Unbounded);
        self.marked.range(behind).next().or(self.marked.first()).copied()
    }

    fn give_listener(
        &mut self,
        number: u32,
        sender: &mut Sender,
        ground: &mut impl Ground,
    ) -> Result<(), SendError> {
        let Some(Socket::Listener(listener)) = self.sockets.get_mut(&number) else { return Ok(()) };
        let Listener { address, may_give, backlog, mut waiting, .. } = *listener;
        if !listener.has_told {
            let body = address_bytes(address);
            sender.send(&Head::new(Kind::Opened, number).bytes(), &body)?;
            listener.has_told = true;
        }
        let stack = ground.stack();
        loop {
            let granted = self.grant().filter(|_| self.has_room_for_another());
            // Connections that the client may not have wait in the backlog, until one of its sockets is closed.
            self.is_limited |= granted.is_none();
            let Some(grant) = granted.filter(|_| waiting < backlog) else { break };
            let Some((id, _)) = stack.accept(address) else { break };
            waiting += 1;
            let socket = self.free_accepted();
            stack.watch(id, token(self.number, socket));
            self.buffers_bytes += grant;
            let connection = Connection::new(id, grant, may_give, Stage::Accepted(number));
            self.insert(socket, Socket::Connection(connection));
            self.marked.insert(socket);
        }
        stack.await_news(Awaited::Listener(address));
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(&number) {
            listener.waiting = waiting;
        }
        Ok(())
    }

    /// A number for an accepted connection.
    fn free_accepted(&mut self) -> u32 {
        loop {
            let number = ACCEPTED | self.next_accepted;
            self.next_accepted = (self.next_accepted + 1) & !ACCEPTED;
            // A client has fewer sockets than there are numbers.
            if !self.sockets.contains_key(&number) {
                return number;
            }
        }
    }

    /// Says what is to be said of a connection, with so many bytes of data at most. Returns true if there is more.
    fn give_connection(
        &mut self,
        number: u32,
        bytes_max: usize,
        (sender, receiver): (&mut Sender, &mut Receiver),
        books: &mut Books<'_>,
        ground: &mut impl Ground,
    ) -> Result<bool, SendError> {
        let ClientState { sockets, kept, counters, limits, buffers_bytes, raised_bytes, .. } = self;
        let ClientState { is_short, .. } = self;
        let Some(Socket::Connection(connection)) = sockets.get_mut(&number) else {
            return Ok(false);
        };
        let stack = ground.stack();
        let id = connection.id;
        // It is said once by the stack, and the path may have no room now.
        connection.end = connection.end.or_else(|| stack.take_end(id).map(Failure::of_end));
        match connection.stage {
            Stage::Connecting => {
                if stack.is_connecting(id) {
                    return Ok(false);
                }
                if let Some(end) = connection.end {
                    let code = end as u8;
                    sender.send(&Head { code, ..Head::new(Kind::Failed, number) }.bytes(), &[])?;
                    stack.close(id);
                    self.remove(number);
                    self.sockets.insert(number, Socket::Failed);
                    return Ok(false);
                }
                let value = connection.grant as u64;
                let head = Head { value, ..Head::new(Kind::Opened, number) };
                sender.send(&head.bytes(), &ends_bytes(stack, connection))?;
                connection.client_may = connection.grant;
                connection.stage = Stage::Open;
            }
            Stage::Accepted(listener) => {
                let value = (connection.grant as u64) << 32 | u64::from(number);
                let head = Head { value, ..Head::new(Kind::Accepted, listener) };
                sender.send(&head.bytes(), &ends_bytes(stack, connection))?;
                connection.client_may = connection.grant;
                connection.stage = Stage::Open;
            }
            Stage::Open | Stage::Closing | Stage::Closed => {}
        }
        if connection.stage == Stage::Closed {
            if stack.is_closing(id) {
                stack.await_news(Awaited::Connection(id));
                return Ok(false);
            }
            sender.send(&Head::new(Kind::Closed, number).bytes(), &[])?;
            books.closing.remove(&id);
            self.remove(number);
            return Ok(false);
        }
        pour(connection, kept, receiver, stack);
        let is_open = connection.stage == Stage::Open;
        if is_open
            && !connection.has_told_joined
            && let Some(value) = connection.joined
        {
            sender.send(&Head { value, ..Head::new(Kind::Joined, number) }.bytes(), &[])?;
            connection.has_told_joined = true;
        }
        if is_open && connection.to_recall > 0 {
            let value = connection.to_recall as u64;
            sender.send(&Head { value, ..Head::new(Kind::Recall, number) }.bytes(), &[])?;
            connection.recalled = Some(std::mem::take(&mut connection.to_recall));
        }
        if is_open && connection.owes_credit() {
            // One that uses up all that it has gets twice as much. If there is no more, others give back what they do not use.
            let extra = connection.grant.min(CREDIT_BYTES_MAX - connection.grant);
            let is_there = reaches_for(limits, (*raised_bytes, *buffers_bytes), extra);
            let is_used_up = std::mem::take(&mut connection.is_used_up);
            *is_short |= is_used_up && !is_there;
            let extra = if is_used_up && is_there { extra } else { 0 };
            let value = connection.to_return + extra;
            let head = Head { value: value as u64, ..Head::new(Kind::Credit, number) };
            sender.send(&head.bytes(), &[])?;
            connection.client_may += value;
            connection.to_return = 0;
            connection.grant += extra;
            connection.raised += extra;
            *raised_bytes += extra;
            *buffers_bytes += extra;
        }
        let mut left = bytes_max;
        while is_open
            && connection.may_give > 0
            && let bytes = piece_bytes(stack, id).min(connection.may_give).min(DATA_BYTES_MAX)
            && bytes > 0
        {
            if left == 0 {
                return Ok(true);
            }
            left = left.saturating_sub(bytes);
            let head = Head::new(Kind::Data, number).bytes();
            sender.send_built(&head, bytes, |room| {
                let piece = stack.peek(id).next().expect("it is there");
                room.copy_from_slice(&piece[..bytes]);
            })?;
            stack.receive_with(id, |_| (bytes, ()));
            connection.may_give -= bytes;
            connection.given += bytes as u64;
            counters.bytes_out += bytes as u64;
        }
        // A stack that has said how a connection ended says that it has finished, too.
        let has_end = connection.end.is_some() || connection.has_told_end;
        if is_open
            && !has_end
            && !connection.has_told_finished
            // Of one that the client has reset, the other side has finished nothing.
            && !connection.is_reset
            && stack.readable(id) == Readable::Finished
        {
            // One that sends directly has said so there, if the path to it has not ended.
            let code = u8::from(connection.has_moved_in);
            sender.send(&Head { code, ..Head::new(Kind::Finished, number) }.bytes(), &[])?;
            connection.has_told_finished = true;
        }
        if is_open
            && !connection.has_told_end
            && let Some(end) = connection.end
        {
            // Whoever writes hears of it at once; whoever reads, behind what has come.
            let left: u64 = stack.peek(id).map(|piece| piece.len() as u64).sum();
            // One that sends directly says that it has finished there.
            let is_complete = stack.has_finished(id) && !connection.has_moved_in;
            let value = left | if is_complete { COMPLETE } else { 0 };
            let head = Head { code: end as u8, value, ..Head::new(Kind::Broken, number) };
            sender.send(&head.bytes(), &[])?;
            connection.has_told_end = true;
        }
        if !connection.parked.is_empty()
            && (connection.is_reset
                || matches!(stack.writable(id), Writable::Closed | Writable::Failed))
        {
            // Nobody takes it.
            connection.parked.clear(kept, Some(&mut *receiver));
        }
        if connection.is_shut && !connection.has_shut && connection.parked.is_empty() {
            stack.shut_sending(id);
            connection.has_shut = true;
        }
        if connection.stage == Stage::Closing && connection.parked.is_empty() {
            stack.close(id);
            connection.stage = Stage::Closed;
            if let Some(close_by) = connection.close_by.take() {
                books.deadlines.remove(&(close_by, self.number, number));
            }
            books.closing.insert(id, (self.number, number));
            return self.give_connection(number, 0, (sender, receiver), books, ground);
        }
        Ok(false)
    }

    /// A connection is over: what it had of the client's limits is free, and a listener may go on with it.
    fn remove(&mut self, number: u32) {
        if let Some(Socket::Connection(connection)) = self.sockets.remove(&number) {
            self.buffers_bytes -= connection.grant;
            self.raised_bytes -= connection.raised;
            self.open -= 1;
        }
        self.tell_listeners();
    }

    /// Something of the client's limits is free: listeners go on that have left connections in their backlogs, and sockets of datagrams that have no
    /// credit for the longest.
    fn tell_listeners(&mut self) {
        if std::mem::take(&mut self.is_limited) {
            let sockets = self.sockets.iter();
            let waiting = sockets.filter(|(_, socket)| match socket {
                Socket::Listener(_) => true,
                Socket::Datagrams(datagrams) => datagrams.missing > 0,
                Socket::Connection(_) | Socket::Failed => false,
            });
            self.marked.extend(waiting.map(|(number, _)| *number));
        }
    }
}

/// Returns true if the limits allow so many bytes more than sockets begin with, beside those of that kind and those of all sockets that were given.
fn reaches_for(limits: &ClientLimits, (raised, all): (usize, usize), extra: usize) -> bool {
    raised + extra <= limits.buffers_max / 2 && all + extra <= limits.buffers_max
}

/// Credit that a client gives.
fn credit_of(value: u64) -> Result<usize, Fault> {
    // More than that nobody has room for, and it keeps sums from running over.
    if value > u64::from(u32::MAX) {
        return Err(Fault::Value);
    }
    Ok(value as usize)
}

fn connection_of(sockets: &mut Sockets, number: u32) -> Result<&mut Connection, Fault> {
    match sockets.get_mut(&number) {
        Some(Socket::Connection(connection))
            if !matches!(connection.stage, Stage::Closing | Stage::Closed) =>
        {
            Ok(connection)
        }
        _ => Err(Fault::Socket),
    }
}

/// Finds a connection that the client writes so many bytes to, and takes them off its credit.
fn writer(sockets: &mut Sockets, head: Head, bytes: usize) -> Result<&mut Connection, Fault> {
    if head.code != 0 || head.value != 0 {
        return Err(Fault::Value);
    }
    let connection = connection_of(sockets, head.socket)?;
    // Nobody writes to a half that is closed, or has moved.
    if connection.is_shut || connection.has_moved {
        return Err(Fault::Socket);
    }
    connection.client_may = connection.client_may.checked_sub(bytes).ok_or(Fault::Credit)?;
    connection.is_used_up |= connection.client_may == 0;
    connection.is_busy = true;
    Ok(connection)
}

/// Puts parked bytes into the send buffer, as far as that has room.
fn pour(connection: &mut Connection, kept: &mut Kept, receiver: &mut Receiver, stack: &mut Stack) {
    if connection.parked.is_empty() {
        return;
    }
    let Connection { id, parked, to_return, .. } = connection;
    *to_return += parked.take(kept, Some(receiver), |left, copy| {
        let filled = stack.send_with(*id, |room| {
            let bytes = room.len().min(left);
            copy(&mut room[..bytes]);
            (bytes, bytes)
        });
        filled.unwrap_or(0)
    });
}

/// Puts bytes into the send buffer that `copy` copies from the given place on, and returns how many found room.
fn put_all(
    stack: &mut Stack,
    connection: &Connection,
    bytes: usize,
    copy: impl Fn(usize, &mut [u8]),
) -> usize {
    let mut count = 0;
    while count < bytes {
        let put = stack.send_with(connection.id, |room| {
            let put = room.len().min(bytes - count);
            copy(count, &mut room[..put]);
            (put, put)
        });
        match put {
            Some(put) if put > 0 => count += put,
            _ => break,
        }
    }
    count
}

/// Bytes that have come and lie in one piece.
fn piece_bytes(stack: &Stack, id: ConnectionId) -> usize {
    stack.peek(id).next().map_or(0, <[u8]>::len)
}

fn ends_bytes(stack: &Stack, connection: &Connection) -> Vec<u8> {
    let any = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), 0);
    let (local, remote) = stack.ends(connection.id).unwrap_or((any, any));
    [address_bytes(local), address_bytes(remote)].concat()
}

fn not_connected(error: ConnectError) -> Failure {
    match error {
        ConnectError::NotAvailable => Failure::NotAvailable,
        ConnectError::NoHost => Failure::NoHost,
        ConnectError::Full => Failure::Full,
    }
}

fn not_bound(error: BindError) -> Failure {
    match error {
        BindError::InUse => Failure::InUse,
        BindError::NotAvailable => Failure::NotAvailable,
    }
}

impl Datagrams {
    /// Sends what waits. Returns true if some has to wait for room.
    fn send(&mut self, ground: &mut impl Ground) -> bool {
        while let Some((to, data)) = self.waiting.front() {
            let sent = match ground.can_reach(to.ip()) {
                true => ground.send_to(self.address, *to, data),
                false => Err(SendToError::NoAddress),
            };
            match sent {
                Err(SendToError::Full) => return true,
                Ok(()) => {}
                Err(SendToError::TooLong { .. }) => self.refused = Some(Failure::TooLong),
                Err(SendToError::Lacking(_)) => self.refused = Some(Failure::Lacking),
                Err(SendToError::NoAddress | SendToError::NotConnected) => {
                    self.refused = Some(Failure::HostUnreachable);
                }
            }
            self.to_return += data.len() + DATAGRAM_BYTES;
            self.waiting.pop_front();
        }
        false
    }

    /// Says what is to be said.
    fn give(
        &mut self,
        number: u32,
        sender: &mut Sender,
        stack: &mut Stack,
        bytes_out: &mut u64,
    ) -> Result<(), SendError> {
        if !self.has_told {
            let head = Head { value: self.grant as u64, ..Head::new(Kind::Opened, number) };
            sender.send(&head.bytes(), &address_bytes(self.address))?;
            self.client_may = self.grant;
            self.has_told = true;
        }
        if let Some((value, ends)) = self.connected {
            let head = Head { value, ..Head::new(Kind::Opened, number) };
            sender.send(&head.bytes(), &ends.map(address_bytes).concat())?;
            self.connected = None;
        }
        if let Some((value, failure)) = self.not_connected {
            let head = Head { code: failure as u8, value, ..Head::new(Kind::Failed, number) };
            sender.send(&head.bytes(), &[])?;
            self.not_connected = None;
        }
        if self.refused.is_none() && stack.take_refused(self.address) {
            self.refused = Some(Failure::Refused);
        }
        if let Some(failure) = self.refused {
            let head = Head { code: failure as u8, ..Head::new(Kind::Refused, number) };
            sender.send(&head.bytes(), &[])?;
            self.refused = None;
        }
        if self.to_return > 0 {
            let head = Head { value: self.to_return as u64, ..Head::new(Kind::Credit, number) };
            sender.send(&head.bytes(), &[])?;
            self.client_may += self.to_return;
            self.to_return = 0;
        }
        while let Some((from, data)) = stack.peek_from(self.address) {
            let bytes = data.len() + DATAGRAM_BYTES;
            if bytes > self.may_give {
                break;
            }
            let body = [&address_bytes(*from)[..], data].concat();
            sender.send(&Head::new(Kind::Datagram, number).bytes(), &body)?;
            *bytes_out += data.len() as u64;
            self.may_give -= bytes;
            stack.receive_from(self.address);
        }
        stack.await_news(Awaited::Socket(self.address));
        Ok(())
    }
}
