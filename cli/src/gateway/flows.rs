//! Datagrams and echo requests of members: a socket for each member's port and address outside, until it was silent for a while.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use os::poller::Poller;
use siga::Name;
use siga::tcpip::{Counter, Outside, Stray, StrayKind};

use super::dns::{Over, PORT as DNS_PORT, Resolvers};
use super::failure::{Failure, answer, failure};
use crate::session::{Shares, Turns, is_query};

/// How long a flow is kept after its last datagram: one of a question and an answer, and any other (RFC 4787 4.3).
const SHORT_NS: u64 = Duration::from_secs(10).as_nanos() as u64;
const LONG_NS: u64 = Duration::from_secs(180).as_nanos() as u64;

/// Bytes that a datagram counts for in the turn of its guest, at least.
const COUNTED_BYTES: usize = 2 << 10;

/// Datagrams that are received from one socket before others have their turn.
const RECEIVED_PER_TURN: usize = 32;

/// How long a question to a resolver is left without an answer when it is asked again: the next is asked, then.
const AGAIN_NS: u64 = Duration::from_secs(2).as_nanos() as u64;

/// Bytes of the longest datagram, and one more.
const DATAGRAM_BYTES: usize = 1 << 16;

/// The kind and the ends of a flow: the same for all its datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: StrayKind,
    /// The member's address.
    source: SocketAddr,
    /// The address that the member sends to.
    destination: SocketAddr,
}

struct Flow {
    key: Key,
    guest: Name,
    socket: UdpSocket,
    /// When its last datagram went or came.
    used_ns: u64,
    /// Where the socket is connected to: elsewhere than the member says if that is a resolver.
    to: SocketAddr,
    /// When a question without an answer was sent to a resolver.
    unanswered_ns: Option<u64>,
    /// When it is checked next: it may be over.
    checked_at_ns: u64,
}

impl Flow {
    fn due_ns(&self) -> u64 {
        let is_short = self.key.kind == StrayKind::Echo || self.key.destination.port() == DNS_PORT;
        self.used_ns + if is_short { SHORT_NS } else { LONG_NS }
    }

    fn is_to_resolver(&self) -> bool {
        self.to != self.key.destination
    }

    fn ends(&self) -> (SocketAddr, SocketAddr) {
        (self.key.destination, self.key.source)
    }
}

pub struct Flows {
    shares: Shares<Name>,
    numbers: HashMap<Key, u64>,
    flows: HashMap<u64, Flow>,
    /// The flows of each guest: those that began later have higher numbers.
    of_guests: HashMap<Name, BTreeSet<u64>>,
    /// When each flow is checked, because it may be over.
    due: BTreeSet<(u64, u64)>,
    /// Those that may have received something.
    ready: Turns<Name>,
    buffer: Vec<u8>,
}

impl Flows {
    pub fn new(flows_max: usize) -> Flows {
        Flows {
            shares: Shares::new(flows_max),
            numbers: HashMap::new(),
            flows: HashMap::new(),
            of_guests: HashMap::new(),
            due: BTreeSet::new(),
            ready: Turns::default(),
            buffer: vec![0; DATAGRAM_BYTES],
        }
    }

    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When a flow may be over.
    pub fn due_ns(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Returns true if there is a flow for it: its guest and its address were looked at before.
    pub fn has(&self, stray: &Stray, guest: Name) -> bool {
        let number = self.numbers.get(&key(stray));
        number.and_then(|number| self.flows.get(number)).is_some_and(|flow| flow.guest == guest)
    }

    /// Begins a flow, to the address that the member sends to, or `to` in its place. A guest that has as many as it may loses its
    /// oldest.
    ///
    /// # Errors
    /// The failure that the member is to be told.
    pub fn begin(
        &mut self,
        now: u64,
        (stray, guest): (&Stray, Name),
        to: SocketAddr,
        poller: &Poller,
        number: u64,
    ) -> Result<(), Failure> {
        let key = key(stray);
        // The member that had this address is not there any more.
        if let Some(before) = self.numbers.get(&key).copied() {
            self.end(before);
        }
        while self.shares.is_full() || self.shares.is_beyond(guest) {
            let oldest = self.of_guests.get(&guest).and_then(BTreeSet::first);
            let Some(oldest) = oldest else { return Err(Failure::Full) };
            self.end(*oldest);
        }
        let socket = open(key.kind, to).map_err(|error| match (key.kind, error.kind()) {
            (StrayKind::Echo, ErrorKind::PermissionDenied) => Failure::NoEcho,
            _ => failure(&error),
        })?;
        // Not for room: each datagram that is sent makes some.
        poller.add_arrivals(&socket, number).map_err(|error| failure(&error))?;
        self.shares.enter(guest);
        let mut flow =
            Flow { key, guest, socket, used_ns: now, to, unanswered_ns: None, checked_at_ns: 0 };
        flow.checked_at_ns = flow.due_ns();
        self.due.insert((flow.checked_at_ns, number));
        self.numbers.insert(key, number);
        self.of_guests.entry(guest).or_default().insert(number);
        self.flows.insert(number, flow);
        Ok(())
    }

    /// Ends a flow to a resolver that has not answered, and is asked again, or that is none of this machine's any more: the next flow is to
    /// another.
    pub fn end_unanswered(&mut self, now: u64, stray: &Stray, resolvers: &mut Resolvers) {
        let Some(number) = self.numbers.get(&key(stray)).copied() else { return };
        let Some(flow) = self.flows.get(&number).filter(|flow| flow.is_to_resolver()) else {
            return;
        };
        let asked_ns =
            flow.unanswered_ns.filter(|asked_ns| now.saturating_sub(*asked_ns) >= AGAIN_NS);
        if let Some(asked_ns) = asked_ns {
            resolvers.fail(flow.to, Over::Udp, asked_ns);
        }
        if asked_ns.is_some() || !resolvers.all(now).contains(&flow.to) {
            self.end(number);
        }
    }

    /// Sends what a member has sent.
    ///
    /// # Errors
    /// As [`Outside::poll`].
    pub fn send(&mut self, now: u64, stray: &Stray, outside: &Outside) -> io::Result<()> {
        let Some(number) = self.numbers.get(&key(stray)).copied() else { return Ok(()) };
        let Some(flow) = self.flows.get_mut(&number) else { return Ok(()) };
        flow.used_ns = now;
        if flow.is_to_resolver() && flow.unanswered_ns.is_none() && is_query(&stray.data) {
            flow.unanswered_ns = Some(now);
        }
        let mut sent = flow.socket.send(&stray.data);
        if let Err(error) = &sent
            && error.kind() != ErrorKind::WouldBlock
        {
            // It may be about one that was sent before.
            if let Some(failure) = answer(error) {
                self.fail(number, failure, outside)?;
            }
            let Some(flow) = self.flows.get(&number) else { return Ok(()) };
            sent = flow.socket.send(&stray.data);
        }
        match sent {
            Ok(bytes) => outside.count(Counter::OutsideBytesOut, bytes as u64),
            Err(_) => outside.count(Counter::OutsideDropped, 1),
        }
    }

    /// The poller has named a number.
    pub fn wake(&mut self, number: u64) {
        if let Some(flow) = self.flows.get(&number) {
            self.ready.add(flow.guest, number);
        }
    }

    /// Gives members what has come for them, as far as it is their turn.
    ///
    /// # Errors
    /// As [`Outside::poll`].
    pub fn receive(
        &mut self,
        now: u64,
        outside: &Outside,
        resolvers: &mut Resolvers,
    ) -> io::Result<()> {
        self.ready.begin_round();
        while let Some((guest, number)) = self.ready.take() {
            let (bytes, has_more) = self.receive_from(now, number, outside, resolvers)?;
            self.ready.done((guest, number), bytes, has_more);
        }
        Ok(())
    }

    /// Returns how many bytes were received, and true if there may be more.
    fn receive_from(
        &mut self,
        now: u64,
        number: u64,
        outside: &Outside,
        resolvers: &mut Resolvers,
    ) -> io::Result<(usize, bool)> {
        let Some(flow) = self.flows.get(&number) else { return Ok((0, false)) };
        // What comes for a guest that has left is nobody's: whoever has its address now has not asked.
        if outside.guest_at(flow.key.source.ip())? != Some(flow.guest) {
            self.end(number);
            outside.count(Counter::OutsideDropped, 1)?;
            return Ok((0, false));
        }
        let (mut bytes_in, mut used) = (0, 0);
        let mut has_more = true;
        for _ in 0..RECEIVED_PER_TURN {
            used += COUNTED_BYTES;
            let Some(flow) = self.flows.get_mut(&number) else {
                has_more = false;
                break;
            };
            let bytes = match flow.socket.recv_from(&mut self.buffer) {
                Ok((bytes, from)) if from.ip() == flow.to.ip() => bytes,
                // A socket of echo requests takes replies from anywhere.
                Ok(_) => continue,
                Err(error) if let Some(failure) = answer(&error) => {
                    self.fail(number, failure, outside)?;
                    // A resolver that is not there: the member may ask again at once, and another is asked.
                    if let Some(flow) = self.flows.get(&number)
                        && let Some(asked_ns) = flow.unanswered_ns
                    {
                        resolvers.fail(flow.to, Over::Udp, asked_ns);
                        self.end(number);
                    }
                    continue;
                }
                // What lacks is not there at once: the next datagram names the flow again.
                Err(error) if os::socket::is_lack(&error) => {
                    has_more = false;
                    break;
                }
                // One of ours was too long for the way: the next are cut.
                Err(_) => continue,
            };
            // Whether the member takes it or not.
            used += bytes.saturating_sub(COUNTED_BYTES);
            flow.used_ns = now;
            if flow.unanswered_ns.take().is_some() {
                resolvers.answer(flow.to, now);
            }
            match outside.send(flow.key.kind, flow.ends(), &self.buffer[..bytes]) {
                Ok(()) => bytes_in += bytes,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::InvalidInput) =>
                {
                    outside.count(Counter::OutsideDropped, 1)?;
                }
                Err(error) => return Err(error),
            }
        }
        outside.count(Counter::OutsideBytesIn, bytes_in as u64)?;
        Ok((used, has_more))
    }

    /// Tells a member that what it has sent did not get there. The flow goes on: the next datagram may.
    fn fail(&mut self, number: u64, failure: Failure, outside: &Outside) -> io::Result<()> {
        let Some(flow) = self.flows.get(&number) else { return Ok(()) };
        failure.tell_sender(outside, flow.key.kind, flow.ends())
    }

    /// Ends flows that were silent for too long.
    pub fn end_silent(&mut self, now: u64, resolvers: &mut Resolvers) {
        while let Some((due, number)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, number));
            let Some(flow) = self.flows.get_mut(&number) else { continue };
            if flow.due_ns() > now {
                flow.checked_at_ns = flow.due_ns();
                self.due.insert((flow.checked_at_ns, number));
                continue;
            }
            if let Some(asked_ns) = flow.unanswered_ns {
                resolvers.fail(flow.to, Over::Udp, asked_ns);
            }
            self.end(number);
        }
    }

    fn end(&mut self, number: u64) {
        let Some(flow) = self.flows.remove(&number) else { return };
        self.numbers.remove(&flow.key);
        self.shares.leave(flow.guest);
        self.due.remove(&(flow.checked_at_ns, number));
        if let Some(of_guest) = self.of_guests.get_mut(&flow.guest) {
            of_guest.remove(&number);
            if of_guest.is_empty() {
                self.of_guests.remove(&flow.guest);
            }
        }
    }
}

fn key(stray: &Stray) -> Key {
    Key { kind: stray.kind, source: stray.source, destination: stray.destination }
}

fn open(kind: StrayKind, to: SocketAddr) -> io::Result<UdpSocket> {
    if kind == StrayKind::Echo {
        return os::socket::echo_socket(to.ip());
    }
    let socket = match to {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    }?;
    socket.set_nonblocking(true)?;
    // The socket has its port: what lacks is an address from which a way leads there.
    socket.connect(to).map_err(|error| match error.kind() {
        ErrorKind::AddrNotAvailable => ErrorKind::NetworkUnreachable.into(),
        _ => error,
    })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_is_named_when_something_comes_and_not_when_it_may_send() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = server.local_addr().unwrap();
        let source = "10.1.0.5:7".parse().unwrap();
        let stray = Stray { kind: StrayKind::Datagram, source, destination: to, data: Vec::new() };
        let mut poller = Poller::new().unwrap();
        let mut flows = Flows::new(4);
        flows.begin(0, (&stray, "WEB".parse().unwrap()), to, &poller, 9).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
        flows.flows[&9].socket.send(b"question").unwrap();
        let (_, from) = server.recv_from(&mut [0; 16]).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
        server.send_to(b"answer", from).unwrap();
        assert_eq!(poller.wait(None).unwrap(), [9]);
    }
}
