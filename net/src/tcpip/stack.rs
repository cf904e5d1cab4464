//! A stack: frames in, frames out, and the verbs of programs in between.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::connection::{Connection, ConnectionId, Connections, End, Readable, Writable};
use super::control::Limiter;
use super::counters::Counters;
use super::fragments::Reassembly;
use super::keep_alive::{KeepAlive, Keeper, Step};
use super::machine::{
    Broken, Engine, Excess, Machine, Manner, Progress, State, Unacknowledged, Way, is_before,
};
use super::output::{Link, Output, Unsent};
use super::packet::{
    self, ACK, Bare, Datagram, FIN, ICMP, ICMPV6, IPV4_BYTES, Packet, RST, SYN, Segment, TCP, UDP,
    UDP_BYTES,
};
use super::path_mtu::PathMtus;
use super::pool::{Pool, PoolUse};
use super::ports::Ports;
use super::secret::Secret;
use super::time_wait::TimeWait;
use super::udp::{SendToError, Sockets, any};
use crate::board::Counter;
use crate::board::{self, CONNECTION_ROWS, Overview, ROWS, Row, RowState, SOCKET_ROWS};
use crate::lan::frame::{ETHERNET_BYTES, Mac, u16_at};
use crate::lan::link::Frame;
use crate::lan::neighbour;
use crate::lan::offload::{Kind, Offload, segment};
use os::words::Words;

mod control;
mod parts;
mod verbs;

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

/// How a connection reacts to congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Congestion {
    /// Not at all: for a LAN that is memory, whose targets say when they are full.
    None,
    /// As RFC 9438.
    #[default]
    Cubic,
    /// As RFC 5681.
    Reno,
}

/// How a stack behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the largest packet of IP: 1280 to 65,535.
    pub mtu: usize,
    /// Bytes that a connection keeps of what has come and was not received: the window. 4 KiB to 16 MiB.
    pub receive_bytes: usize,
    /// Bytes that a connection keeps of what was sent and is not acknowledged. 4 KiB to 16 MiB.
    pub send_bytes: usize,
    /// How connections react to congestion.
    pub congestion: Congestion,
    /// For how long an acknowledgement waits for data to go with: 500 ms at most. A second segment does not wait.
    pub acknowledge_after: Duration,
    /// How long the other side may leave what was sent without an answer.
    pub silence_max: Duration,
    /// How long a program's wish for a connection is tried.
    pub connect_max: Duration,
    /// Connections at most, all states but TIME-WAIT.
    pub connections_max: usize,
    /// Bytes of all connections' buffers at most, touched or not. What would be more finds no connection, and what comes for
    /// one that sleeps is dropped. A program that writes to one that sleeps gets buffers beyond that.
    pub pool_bytes: usize,
    /// Bytes of buffers at most that wait for the next connection.
    pub pool_kept_bytes: usize,
    /// For how long a pair of ports is not used again after its connection (TIME-WAIT).
    pub time_wait: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mtu: 1500,
            receive_bytes: 256 << 10,
            send_bytes: 256 << 10,
            congestion: Congestion::Cubic,
            acknowledge_after: Duration::from_millis(1),
            silence_max: Duration::from_secs(120),
            connect_max: Duration::from_secs(60),
            connections_max: 65_536,
            pool_bytes: 16 << 30,
            pool_kept_bytes: 32 << 20,
            time_wait: Duration::from_secs(10),
        }
    }
}

/// How long the other side has to complete what it began, or to close its half after ours is closed for good, and how
/// long its target may be full while a connection's last segment waits.
const HALF_OPEN_MAX: Duration = Duration::from_secs(60);

/// The longest time that an acknowledgement may wait (RFC 1122 4.2.3.2).
const ACKNOWLEDGE_AFTER_MAX: Duration = Duration::from_millis(500);

/// How long a half-open connection is safe from newer ones of the same host. Over memory the other side has long answered
/// by then, or asked again.
const HALF_OPEN_SAFE_NS: u64 = 1_000_000_000;

/// How long nothing is under way until a connection gives its buffers back. What comes sooner finds them warm.
const IDLE_NS: u64 = 1_000_000_000;

/// Segments that one connection sends before the next has its turn.
const BURST: usize = 64;

/// The shortest time between two reminders of one connection.
const REMINDER_NS: u64 = 1_000_000_000;

/// How often a side is asked whose host may have become another, until it answers or was silent for too long.
const QUESTION_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two challenges of one connection (RFC 5961 7).
const CHALLENGE_NS: u64 = 500_000_000;

/// Why a socket was not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another socket has the address.
    #[error("another socket has this address")]
    InUse,
    /// The stack does not have the address, or no port is left.
    #[error("this stack does not have the address, or no port is left")]
    NotAvailable,
}

/// Why no connection was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody can have that address, or no port is left towards it.
    #[error("this stack has no address or port to connect from")]
    NotAvailable,
    /// That is no address of one host elsewhere.
    #[error("not the address of a host")]
    NoHost,
    /// The stack has as many connections as it may, or their buffers take as many bytes as they may.
    #[error("the stack has as many connections as it may, or as many bytes of buffers")]
    Full,
}

/// Connections that wait to be accepted, and those that are on their way there.
#[derive(Debug)]
struct Listener {
    backlog: usize,
    half_open: HalfOpen,
    ready: VecDeque<u32>,
}

/// The connections of a listener whose other sides have not answered yet.
#[derive(Debug, Default)]
struct HalfOpen {
    /// By the address of the other side and the number of the connection: when it began, and its index.
    by_host: HashMap<IpAddr, BTreeMap<u64, (u64, u32)>>,
    count: usize,
}

impl HalfOpen {
    fn insert(&mut self, now: u64, host: IpAddr, number: u64, index: u32) {
        self.count += 1;
        self.by_host.entry(host).or_default().insert(number, (now, index));
    }

    fn remove(&mut self, host: IpAddr, number: u64) {
        let Some(ones) = self.by_host.get_mut(&host) else { return };
        self.count -= usize::from(ones.remove(&number).is_some());
        if ones.is_empty() {
            self.by_host.remove(&host);
        }
    }

    /// Which one goes for another of `host`: the oldest of the host that has the most. A host that has the most itself
    /// waits, until its oldest is old: so one that asks for many at once loses none of them, and one that asks for
    /// connections and does not answer is in nobody's way but its own.
    fn evictable(&self, now: u64, host: IpAddr) -> Option<u32> {
        let own = self.by_host.get(&host).map_or(0, BTreeMap::len);
        let most = self.by_host.values().max_by_key(|ones| ones.len())?;
        let (_, (begun, index)) = most.first_key_value()?;
        let is_old = now.saturating_sub(*begun) >= HALF_OPEN_SAFE_NS;
        (most.len() > own || is_old).then_some(*index)
    }
}

/// How many first sequence numbers are tried until one is after that of an earlier connection: one in four thousand
/// million connections does not find one, and is asked for again.
const FIRST_NUMBERS_MAX: usize = 32;

/// The answer to the first segment of a connection.
#[derive(Debug, Default)]
struct Answer {
    frame: Option<(Offload, Vec<u8>)>,
}

impl Link for Answer {
    fn transmit(&mut self, _: IpAddr, offload: Offload, frame: &mut [u8]) -> Result<(), Unsent> {
        self.frame = Some((offload, frame.to_vec()));
        Ok(())
    }

    fn answer(&mut self, _: &[u8]) {}

    fn may_send_from(&mut self, _: &[u8], _: IpAddr) -> bool {
        true
    }
}

/// A TCP/IP stack.
///
/// Times are nanoseconds on any clock that does not go back. A verb that changes a connection leaves it to
/// [`Stack::poll`] to send what follows from that.
pub struct Stack {
    options: Options,
    secret: Secret,
    mac: Mac,
    addresses: Vec<IpAddr>,
    engine: Engine,
    manner: Manner,
    pool: Pool,
    output: Output,
    counters: Counters,
    ports: Ports,
    connections: Connections,
    tuples: HashMap<Tuple, u32>,
    /// The connections in `tuples`, by the address of the other side. None is empty.
    by_host: HashMap<IpAddr, HashSet<u32>>,
    listeners: HashMap<SocketAddr, Listener>,
    sockets: Sockets,
    time_wait: TimeWait,
    /// When connections are to be served without being asked.
    timers: BTreeSet<(u64, u32)>,
    /// Connections that may have something to send.
    busy: VecDeque<u32>,
    /// Connections whose program wants to be told that they have changed, and has not been told.
    changed: BTreeSet<u32>,
    /// Connections that somebody waits for, and that have changed.
    news: Vec<ConnectionId>,
    /// Connections of which the board does not show how they stand: a bit for each row.
    unshown: [u64; CONNECTION_ROWS.div_ceil(64)],
    /// Whether the board does not show how the sockets stand.
    are_sockets_unshown: bool,
    /// Connections whose target is full.
    stalled: HashMap<IpAddr, HashSet<u32>>,
    /// Connections begun so far.
    begun: u64,
    /// The last time that somebody has said.
    clock: u64,
    room: Vec<u8>,
    reassembly: Reassembly,
    /// Packets cut into fragments so far.
    packets_cut: u32,
    /// What errors about segments that were under way have said.
    path_mtus: PathMtus,
    /// What errors about datagrams have said, which anybody may have made up: no connection believes them.
    path_mtus_of_datagrams: PathMtus,
    /// Limits the errors that are sent.
    errors: Limiter,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = formatter.debug_struct("Stack");
        fields.field("addresses", &self.addresses).field("connections", &self.connections.len());
        fields.finish_non_exhaustive()
    }
}

impl Stack {
    /// A stack with these addresses.
    ///
    /// Options outside their limits are taken as the limit.
    pub fn new(mac: Mac, addresses: &[IpAddr], options: Options, secret: Secret) -> Stack {
        let buffer = |bytes: usize| bytes.clamp(4 << 10, 16 << 20);
        let mtu = options.mtu.clamp(1280, 65_535);
        let delay_us = options.acknowledge_after.min(ACKNOWLEDGE_AFTER_MAX).as_micros() as u64;
        let manner = Manner {
            receive_bytes: buffer(options.receive_bytes),
            send_bytes: buffer(options.send_bytes),
            congestion: options.congestion,
            acknowledge_after_us: (delay_us > 0).then_some(delay_us),
        };
        Stack {
            options: Options { mtu, ..options },
            secret,
            mac,
            addresses: addresses.to_vec(),
            engine: Engine::new(mtu),
            pool: Pool::new(&manner, options.pool_bytes, options.pool_kept_bytes),
            manner,
            output: Output::to_self(addresses),
            counters: Counters::new(),
            ports: Ports::new(secret),
            connections: Connections::default(),
            tuples: HashMap::new(),
            by_host: HashMap::new(),
            listeners: HashMap::new(),
            sockets: Sockets::default(),
            time_wait: TimeWait::default(),
            timers: BTreeSet::new(),
            busy: VecDeque::new(),
            changed: BTreeSet::new(),
            news: Vec::new(),
            unshown: [0; CONNECTION_ROWS.div_ceil(64)],
            are_sockets_unshown: true,
            stalled: HashMap::new(),
            begun: 0,
            clock: 0,
            room: Vec::new(),
            reassembly: Reassembly::default(),
            packets_cut: 0,
            path_mtus: PathMtus::default(),
            path_mtus_of_datagrams: PathMtus::default(),
            errors: Limiter::new(secret),
        }
    }

    /// What a counter stands at.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    /// The addresses of this stack.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// How many connections there are, and how many pairs of ports are not used again yet.
    pub fn counts(&self) -> (usize, usize) {
        (self.connections.len(), self.time_wait.len())
    }

    /// How the connections' buffers are used.
    pub fn pool(&self) -> PoolUse {
        self.pool.usage(&self.manner)
    }

    // Frames.

    /// Takes a frame. What it brings is sent by [`Stack::poll`], but for answers of the stack itself.
    ///
    /// The bytes must not change meanwhile: a frame in shared memory is to be copied before.
    pub fn receive(&mut self, now: u64, frame: Frame<'_>, link: &mut impl Link) {
        self.clock = now;
        self.counters.count(Counter::FramesReceived);
        // Segments of TCP may come as one; datagrams that a kernel has put together are cut, because each is a message.
        let datagrams = frame.offload.segmentation.filter(|segments| segments.kind == Kind::Udp);
        if datagrams.is_none() {
            return self.take_or_count(now, frame, link);
        }
        let mut room = Vec::new();
        segment(frame.offload, frame.bytes, &mut room, |bytes| {
            let offload = Offload { vlan: frame.offload.vlan, ..Offload::NONE };
            self.take_or_count(now, Frame { offload, bytes }, link);
        });
    }

    fn take_or_count(&mut self, now: u64, frame: Frame<'_>, link: &mut impl Link) {
        if let Err(reason) = self.take_frame(now, frame, link) {
            self.counters.count(reason);
        }
    }

    fn take_frame(
        &mut self,
        now: u64,
        frame: Frame<'_>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        if frame.offload.vlan.is_some() {
            return Err(Counter::Vlan);
        }
        let find = |address: IpAddr| self.addresses.contains(&address).then_some(self.mac);
        if let Some(answer) = neighbour::answer(frame.bytes, find) {
            self.counters.count(Counter::NeighboursAnswered);
            link.answer(&answer);
            return Ok(());
        }
        if u16_at(frame.bytes, 12) == Some(packet::ARP) {
            return Ok(());
        }
        let packet = Packet::parse(frame.bytes)?;
        if self.addresses.contains(&packet.source) {
            return Err(Counter::BadSource);
        }
        if !self.addresses.contains(&packet.destination) {
            return Err(Counter::NotOurs);
        }
        if !link.may_send_from(frame.bytes, packet.source) {
            return Err(Counter::BadSource);
        }
        self.take_packet(now, &packet, frame.offload.checksum, link)
    }

    fn answer(&mut self, to: IpAddr, offload: Offload, frame: &mut [u8], link: &mut impl Link) {
        self.output.answer(link, &mut self.counters, to, offload, frame);
    }

    fn take_segment(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let segment = Segment::parse(packet.transport())?;
        let tuple = Tuple {
            local: SocketAddr::new(packet.destination, segment.destination),
            remote: SocketAddr::new(packet.source, segment.source),
        };
        if let Some(index) = self.tuples.get(&tuple).copied() {
            return self.take_segment_of(now, index, packet, segment, link);
        }
        let asks = segment.has(SYN) && !segment.has(ACK);
        let listening = if asks { self.listening(tuple.local) } else { None };
        if let Some(entry) = self.time_wait.get(now, &tuple) {
            // What begins behind the end of the last connection is no old segment of it (RFC 6191 2).
            if let Some(listening) = listening
                && !is_before(segment.sequence, entry.expected)
            {
                let after = Some(entry.next);
                let taken = self.take_first(now, listening, tuple, packet, segment, after, link);
                return taken.map(|()| self.time_wait.remove(&tuple));
            }
            // A reset does not shorten it (RFC 1337), unless it is where the other side was told to be: so a side that has
            // forgotten the last connection and asks for one with lower numbers gets it with its next try.
            if segment.has(RST) && segment.sequence == entry.expected {
                self.time_wait.remove(&tuple);
                return Ok(());
            }
            // What takes no sequence space needs no answer.
            if !segment.has(RST) && segment.length() > 0 {
                let (sequence, acknowledgement) = (entry.next, entry.expected);
                let bare = Bare { flags: ACK, sequence, acknowledgement, window: u16::MAX };
                self.send_bare(tuple, bare, link);
            }
            return Ok(());
        }
        if let Some(listening) = listening {
            return self.take_first(now, listening, tuple, packet, segment, None, link);
        }
        if segment.has(RST) {
            return Ok(());
        }
        // RFC 9293 3.10.7.1.
        let bare = match segment.has(ACK) {
            true => Bare {
                flags: RST,
                sequence: segment.acknowledgement,
                acknowledgement: 0,
                window: 0,
            },
            false => Bare {
                flags: RST | ACK,
                sequence: 0,
                acknowledgement: segment.sequence.wrapping_add(segment.length()),
                window: 0,
            },
        };
        self.counters.count(Counter::ResetsSent);
        self.send_bare(tuple, bare, link);
        Ok(())
    }

    fn send_bare(&mut self, tuple: Tuple, bare: Bare, link: &mut impl Link) {
        let mut frame = packet::bare(tuple.local, tuple.remote, bare);
        let offload = packet::leave_checksum(&mut frame);
        self.answer(tuple.remote.ip(), offload, &mut frame, link);
    }

    /// The first segment of a connection, for a listener. Our sequence numbers are to begin `after` this one, if there
    /// was a connection with the same ports before (RFC 1122 4.2.2.13).
    #[expect(clippy::too_many_arguments, reason = "what a segment is and where it goes")]
    fn take_first(
        &mut self,
        now: u64,
        listening: SocketAddr,
        tuple: Tuple,
        packet: &Packet<'_>,
        segment: Segment,
        after: Option<u32>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let Some(listener) = self.listeners.get(&listening) else { return Ok(()) };
        let host = tuple.remote.ip();
        let is_full = listener.half_open.count + listener.ready.len() >= listener.backlog;
        let evictable = match is_full {
            // Dropped and not refused: the other side tries again in a second.
            true => Some(listener.half_open.evictable(now, host).ok_or(Counter::BacklogFull)?),
            false => None,
        };
        // One that goes leaves its place and its buffers.
        if self.connections.len() >= self.options.connections_max && !is_full {
            return Err(Counter::ConnectionsFull);
        }
        if self.pool.is_exhausted() && !is_full {
            return Err(Counter::PoolExhausted);
        }
        // Half of all numbers are after another. The answer shows which one it is: so it is made before it is sent.
        for _ in 0..FIRST_NUMBERS_MAX {
            let mut answer = Answer::default();
            let machine = self.begin(now, tuple, packet, &segment, &mut answer)?;
            let first = machine.known.sent.next.wrapping_sub(1);
            if after.is_some_and(|after| !is_before(after, first)) {
                machine.end(&mut self.pool);
                continue;
            }
            // Nobody goes for a segment that begins no connection.
            if let Some(evictable) = evictable {
                self.forget(evictable);
                self.counters.count(Counter::HalfOpenEvicted);
            }
            if let Some((offload, mut frame)) = answer.frame {
                self.output.send(link, &mut self.counters, host, offload, &mut frame);
            }
            let connection = Connection::new(self.begun, tuple, machine, Some(listening));
            let index = self.connections.insert(connection);
            if let Some(listener) = self.listeners.get_mut(&listening) {
                listener.half_open.insert(now, host, self.begun, index);
            }
            self.enter(tuple, index);
            self.make_busy(index);
            return Ok(());
        }
        Err(Counter::NoNumber)
    }

    /// A connection that its first segment asks for, and the answer to that.
    fn begin(
        &mut self,
        now: u64,
        tuple: Tuple,
        packet: &Packet<'_>,
        segment: &Segment,
        answer: &mut Answer,
    ) -> Result<Machine, Counter> {
        let seed = self.seed(tuple);
        let Stack { engine, pool, manner, room, .. } = self;
        let machine = Machine::listen(pool, manner, tuple.local, tuple.remote);
        let mut machine = machine.ok_or(Counter::Malformed)?;
        machine.begin(segment, packet.transport());
        // It is counted when it is sent.
        let (mut output, mut counters) = (Output::default(), Counters::new());
        let mut way = Way { link: answer, output: &mut output, counters: &mut counters, room };
        let taken = machine.receive(engine, now, packet.bytes, Some(seed), &mut way);
        let sent = taken.and_then(|()| machine.send_one(engine, now, &mut way));
        match sent {
            Err(Broken) => {
                machine.break_down(pool);
                Err(Counter::Broken)
            }
            Ok(_) if machine.state() != State::SynReceived => {
                machine.end(pool);
                Err(Counter::Malformed)
            }
            Ok(_) => Ok(machine),
        }
    }

    /// A segment of a connection that there is.
    fn take_segment_of(
        &mut self,
        now: u64,
        index: u32,
        packet: &Packet<'_>,
        segment: Segment,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let sleeps = self.connections.get_mut(index).is_some_and(|one| one.asleep.is_some());
        if sleeps && self.pool.is_exhausted() {
            // The other side sends it again.
            return Err(Counter::PoolExhausted);
        }
        self.wake(index);
        let Stack { connections, engine, output, counters, room, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return Ok(()) };
        connection.idle_since = None;
        let is_orphan = connection.is_orphan();
        let Some(machine) = &mut connection.machine else { return Ok(()) };
        let before = machine.state();
        let expected = machine.expected();
        let is_synchronized = before != State::SynSent && before != State::SynReceived;
        if segment.has(RST) && before != State::SynSent {
            // RFC 5961 3.2: only a reset at the very next byte is believed.
            if segment.sequence != expected {
                let is_near = segment.sequence.wrapping_sub(expected) as usize
                    <= machine.socket().recv_capacity();
                counters.count(Counter::OutOfWindow);
                if is_near {
                    self.challenge(now, index, link);
                }
                return Ok(());
            }
        } else if segment.has(SYN) && is_synchronized {
            // RFC 5961 4.2.
            self.challenge(now, index, link);
            return Ok(());
        }
        if is_synchronized && segment.is_probe(expected) {
            // Somebody asks whether we are there, or have room. smoltcp answers once in a second at most, which is too
            // seldom for one who asks more often and gives up after some times.
            connection.hear(now);
            self.tell_where_we_are(index, link);
            return Ok(());
        }
        if is_orphan && segment.data_bytes > 0 && is_before(expected, segment.data_end()) {
            // Nobody will ever receive this: the other side has to know (RFC 2525 2.16). One who cannot say how far we are
            // has to find out first.
            match machine.brings_data(&segment) && machine.acknowledges_rightly(&segment) {
                true => {
                    machine.abort();
                    self.make_busy(index);
                }
                false => self.challenge(now, index, link),
            }
            return Ok(());
        }
        if before == State::SynSent && segment.has(SYN) {
            machine.begin(&segment, packet.transport());
        }
        let progress = machine.note_acknowledged(now, &segment);
        if machine.is_acceptable(&segment) {
            connection.hear(now);
        }
        let Some(machine) = &mut connection.machine else { return Ok(()) };
        let mut way = Way { link, output, counters, room };
        let cut = match machine.excess(&segment) {
            Excess::None => None,
            Excess::End if !segment.has(FIN) => None,
            Excess::End => Some(packet::without_end(packet, 0)),
            Excess::Data(bytes) => Some(packet::without_end(packet, bytes)),
        };
        let moved = is_synchronized && machine.is_ahead(&segment);
        let cut = if moved { Some(packet::with_sequence(packet, expected)) } else { cut };
        let bytes = cut.as_deref().unwrap_or(packet.bytes);
        let received = machine.receive(engine, now, bytes, None, &mut way);
        if received == Err(Broken) {
            self.break_down(index);
            return Ok(());
        }
        let after = machine.state();
        // A side that has no room says so for as long as a program here waits for it.
        if progress == Progress::Some || progress == Progress::Closed && !is_orphan {
            connection.deadline = None;
        }
        match (before, after) {
            (State::SynSent, State::Closed) => {
                connection.end = Some(End::Refused);
                counters.count(Counter::Refused);
            }
            (State::SynSent, State::Established | State::CloseWait) => {
                counters.count(Counter::Connected);
            }
            // After the other side has closed its half, a reset means that it does not want ours.
            (
                State::CloseWait | State::LastAck | State::Closing | State::TimeWait,
                State::Closed,
            ) => {}
            (_, State::Closed) if segment.has(RST) => {
                connection.end = Some(End::Reset);
                counters.count(Counter::Reset);
            }
            (State::SynReceived, State::Listen) => {
                counters.count(Counter::Reset);
                self.forget(index);
                return Ok(());
            }
            (State::SynReceived, after) if after != State::SynReceived => self.establish(index),
            _ => {}
        }
        self.make_busy(index);
        self.note_change(index);
        Ok(())
    }

    /// Says where a connection stands, so that whoever sent a segment that would change it has to prove that it knows.
    fn challenge(&mut self, now: u64, index: u32, link: &mut impl Link) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(machine) = &connection.machine else { return };
        let is_soon = connection.challenged.is_some_and(|last| now < last + CHALLENGE_NS);
        if is_soon || !machine.known.sent.is_any {
            return;
        }
        connection.challenged = Some(now);
        self.counters.count(Counter::ChallengesSent);
        self.tell_where_we_are(index, link);
    }

    /// Says again what was said last of how far a connection is.
    fn tell_where_we_are(&mut self, index: u32, link: &mut impl Link) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(machine) = &connection.machine else { return };
        let (tuple, sent) = (connection.tuple, machine.known.sent);
        let bare = Bare {
            flags: ACK,
            sequence: sent.next,
            acknowledgement: sent.acknowledged,
            window: machine.window_to_say(),
        };
        self.send_bare(tuple, bare, link);
    }

    /// A connection for a listener is complete: it waits to be accepted.
    fn establish(&mut self, index: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let listener = connection.listener.and_then(|at| self.listeners.get_mut(&at));
        if let Some(listener) = listener {
            connection.is_ready = true;
            listener.half_open.remove(connection.tuple.remote.ip(), connection.number);
            listener.ready.push_back(index);
            self.are_sockets_unshown = true;
        }
    }

    fn take_datagram(&mut self, packet: &Packet<'_>) -> Result<(), Counter> {
        let datagram = Datagram::parse(packet.transport())?;
        let to = SocketAddr::new(packet.destination, datagram.destination);
        self.are_sockets_unshown = true;
        self.sockets.put(to, SocketAddr::new(packet.source, datagram.source), datagram.data)
    }

    /// Sends what there is to send and does what is due. True if there is more to do at once.
    pub fn poll(&mut self, now: u64, link: &mut impl Link) -> bool {
        self.clock = now;
        self.receive_own(now, link);
        self.reassembly.expire(now, &mut self.counters);
        let Stack { output, counters, stalled, busy, connections, timers, .. } = self;
        output.retry(link, counters, |to| {
            for index in stalled.remove(&to).unwrap_or_default() {
                if let Some(connection) = connections.get_mut(index)
                    && !std::mem::replace(&mut connection.is_busy, true)
                {
                    busy.push_back(index);
                }
            }
        });
        while let Some((due, index)) = timers.first().copied().filter(|(due, _)| *due <= now) {
            timers.remove(&(due, index));
            if let Some(connection) = connections.get_mut(index) {
                connection.due = None;
                if !std::mem::replace(&mut connection.is_busy, true) {
                    busy.push_back(index);
                }
            }
        }
        // Each once: those that have more stand in line again.
        for _ in 0..self.busy.len() {
            let Some(index) = self.busy.pop_front() else { break };
            self.serve(now, index, link);
        }
        !self.busy.is_empty() || self.output.own_waiting() > 0
    }

    /// When [`Stack::poll`] is to be called at the latest, if nothing comes before. None: never.
    pub fn due(&self) -> Option<u64> {
        if !self.busy.is_empty() || self.output.own_waiting() > 0 {
            return Some(0);
        }
        let timer = self.timers.first().map(|(due, _)| *due);
        timer.into_iter().chain(self.reassembly.due()).min()
    }

    /// Whether frames wait for room at their targets.
    pub fn waits_for_room(&self) -> bool {
        !self.output.is_empty()
    }

    fn make_busy(&mut self, index: u32) {
        if let Some(connection) = self.connections.get_mut(index)
            && !std::mem::replace(&mut connection.is_busy, true)
        {
            self.busy.push_back(index);
        }
    }

    /// A connection that sleeps gets a socket again, because there is something to do.
    fn wake(&mut self, index: u32) {
        let Stack { connections, engine, pool, manner, counters, clock, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        connection.idle_since = None;
        let Some(known) = connection.asleep.take().filter(|_| connection.is_live) else { return };
        let ends = (connection.tuple.local, connection.tuple.remote);
        match Machine::wake(engine, pool, manner, *clock, ends, known) {
            Ok(machine) => {
                counters.count(Counter::Woken);
                connection.machine = Some(machine);
                self.make_busy(index);
            }
            Err(Broken) => self.break_down(index),
        }
    }

    /// A connection that has been idle for a while gives its buffers back. When it is to be asked again whether it has,
    /// if it is idle.
    fn rest_if_idle(&mut self, now: u64, index: u32) -> Option<u64> {
        let Stack { connections, engine, pool, counters, .. } = self;
        let connection = connections.get_mut(index)?;
        let is_idle = connection.machine.as_ref().is_some_and(Machine::can_sleep);
        let is_asked = connection.keeper.is_some() || connection.questioner.is_some();
        if !is_idle
            || is_asked
            || !connection.is_held
            || connection.is_receive_shut
            || !engine.can_wake()
        {
            connection.idle_since = None;
            return None;
        }
        let since = *connection.idle_since.get_or_insert(now);
        if now.saturating_sub(since) < IDLE_NS {
            return Some(since + IDLE_NS);
        }
        counters.count(Counter::PutToSleep);
        connection.asleep = connection.machine.take().map(|machine| machine.into_known(pool));
        None
    }

    /// Sends what a connection has to send, and looks after its timers and its end.
    fn serve(&mut self, now: u64, index: u32, link: &mut impl Link) {
        let Stack { connections, engine, output, counters, room, path_mtus, options, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        connection.is_busy = false;
        if !connection.is_live {
            return;
        }
        let Some(machine) = &mut connection.machine else { return };
        if connection.is_receive_shut {
            while machine.take(|bytes| (bytes.len(), bytes.len())).is_some_and(|count| count > 0) {}
        }
        let mut has_failed = false;
        if connection.deadline.is_some_and(|deadline| deadline <= now) {
            connection.deadline = None;
            match machine.state() {
                // The reset has found no room. Whoever takes nothing is not told.
                State::Closed => {
                    counters.count(Counter::TargetFull);
                    return self.retire(index);
                }
                // Nor has the last acknowledgement: from here on the table answers.
                State::TimeWait => return self.rest(now, index),
                _ => {
                    connection.end = Some(End::TimedOut);
                    counters.count(Counter::TimedOut);
                    machine.abort();
                    has_failed = true;
                }
            }
        }
        let remote = connection.tuple.remote;
        let step = connection.keep(now);
        let Some(machine) = &mut connection.machine else { return };
        let path_mtu = path_mtus.get(now, remote.ip()).filter(|mtu| *mtu < options.mtu);
        machine.set_path_mtu(path_mtu);
        match step {
            Step::Probe => {
                let mut frame = packet::bare(connection.tuple.local, remote, machine.question());
                let offload = packet::leave_checksum(&mut frame);
                counters.count(Counter::ProbesSent);
                output.answer(link, counters, remote.ip(), offload, &mut frame);
            }
            Step::GiveUp => {
                connection.end = Some(End::TimedOut);
                counters.count(Counter::TimedOut);
                machine.abort();
                has_failed = true;
            }
            Step::Nothing => {}
        }
        let mut way = Way { link, output, counters, room };
        let mut sent = Ok(true);
        let mut reminder = None;
        for _ in 0..BURST {
            sent = machine.send_one(engine, now, &mut way);
            if sent != Ok(true) {
                break;
            }
        }
        let unacknowledged = machine.unacknowledged();
        if sent == Ok(false)
            && unacknowledged != Unacknowledged::Nothing
            && !way.output.is_full(connection.tuple.remote.ip())
            && machine.due(engine, now) == Ok(None)
        {
            // As often as a timer would at the earliest: a reminder that does not help must not be repeated at once.
            let due = connection.reminded.map_or(now, |last| last + REMINDER_NS);
            if due > now {
                reminder = Some(due);
            } else {
                connection.reminded = Some(now);
                let tuple = connection.tuple;
                if unacknowledged == Unacknowledged::End {
                    let last = machine.known.sent;
                    let end = Bare {
                        flags: FIN | ACK,
                        sequence: last.next.wrapping_sub(1),
                        acknowledgement: machine.expected(),
                        window: last.window,
                    };
                    reminder = Some(now + REMINDER_NS);
                    self.send_bare(tuple, end, link);
                } else {
                    for reminder in machine.reminders(tuple.local, tuple.remote) {
                        let received = machine.receive(engine, now, &reminder, None, &mut way);
                        sent = sent.and(received.map(|()| true));
                    }
                }
            }
        }
        // Its reset may have no room: the program is told before it has gone.
        if has_failed {
            self.note_change(index);
        }
        match sent {
            Err(Broken) => self.break_down(index),
            Ok(has_more) => self.settle(now, index, has_more, reminder),
        }
    }

    /// Takes note of where a connection stands after it was served.
    fn settle(&mut self, now: u64, index: u32, has_more: bool, reminder: Option<u64>) {
        self.show_later(index);
        let Stack { connections, engine, output, stalled, options, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        let remote = connection.tuple.remote.ip();
        let is_orphan = connection.is_orphan();
        let Some(machine) = &mut connection.machine else { return };
        let state = machine.state();
        if output.is_full(remote) {
            stalled.entry(remote).or_default().insert(index);
        } else if has_more {
            return self.make_busy(index);
        }
        match state {
            State::Closed if machine.socket().remote_endpoint().is_none() => {
                return self.retire(index);
            }
            State::TimeWait if machine.known.sent.acknowledged == machine.expected() => {
                return self.rest(now, index);
            }
            _ => {}
        }
        let limit = match state {
            State::SynSent => Some(options.connect_max),
            // The reset or the last acknowledgement has not gone yet.
            State::SynReceived | State::Closed | State::TimeWait => Some(HALF_OPEN_MAX),
            State::FinWait2 if is_orphan => Some(HALF_OPEN_MAX),
            State::FinWait1 | State::Closing | State::LastAck if is_orphan => {
                Some(options.silence_max.min(HALF_OPEN_MAX))
            }
            State::FinWait1 | State::Closing | State::LastAck => Some(options.silence_max),
            _ if machine.socket().send_queue() > 0 => Some(options.silence_max),
            _ => None,
        };
        connection.deadline = match (limit, connection.deadline) {
            (Some(_), Some(deadline)) => Some(deadline),
            (Some(limit), None) => Some(now.saturating_add(nanoseconds(limit))),
            (None, _) => None,
        };
        let Ok(due) = machine.due(engine, now) else { return self.break_down(index) };
        // What is due at once and was not sent waits for room.
        let due = due.filter(|due| *due > now || !output.is_full(remote));
        let probe = connection.keep_due();
        let due = due.into_iter().chain(connection.deadline).chain(reminder).chain(probe).min();
        let due = if due.is_none() { self.rest_if_idle(now, index) } else { due };
        self.set_timer(index, due);
    }

    /// Has a connection served at this time, or before: a time that was set for it already and is earlier stays, because
    /// most are put off by each segment that comes.
    fn set_timer(&mut self, index: u32, due: Option<u64>) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(due) = due else { return };
        if connection.due.is_some_and(|before| before <= due) {
            return;
        }
        if let Some(before) = connection.due.replace(due) {
            self.timers.remove(&(before, index));
        }
        self.timers.insert((due, index));
    }

    fn clear_timer(&mut self, index: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if let Some(before) = connection.due.take() {
            self.timers.remove(&(before, index));
        }
    }

    /// The state machine has failed: its connection ends, and nothing else.
    fn break_down(&mut self, index: u32) {
        self.counters.count(Counter::Broken);
        if let Some(connection) = self.connections.get_mut(index) {
            connection.end = Some(End::Broken);
            if let Some(machine) = connection.machine.take() {
                machine.break_down(&mut self.pool);
            }
        }
        self.retire(index);
    }

    /// A connection is over, but for what the other side may not have heard: an entry in a table answers that.
    fn rest(&mut self, now: u64, index: u32) {
        if let Some(connection) = self.connections.get_mut(index)
            && let Some(machine) = &connection.machine
        {
            let until = now.saturating_add(nanoseconds(self.options.time_wait));
            let (next, expected) = (machine.known.sent.next, machine.expected());
            self.time_wait.insert(now, connection.tuple, next, expected, until);
        }
        self.retire(index);
    }

    /// A connection waits for room at its target no more.
    fn unstall(&mut self, index: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let remote = connection.tuple.remote.ip();
        if let Some(stalled) = self.stalled.get_mut(&remote) {
            stalled.remove(&index);
            if stalled.is_empty() {
                self.stalled.remove(&remote);
            }
        }
    }

    /// The network has done with a connection. A program may still receive what has come.
    fn retire(&mut self, index: u32) {
        self.clear_timer(index);
        self.unstall(index);
        let Some(connection) = self.connections.get_mut(index) else { return };
        let is_live = std::mem::take(&mut connection.is_live);
        connection.asleep = None;
        let tuple = connection.tuple;
        let has_bytes =
            connection.machine.as_ref().is_some_and(|machine| machine.socket().can_recv());
        if !has_bytes && let Some(machine) = connection.machine.take() {
            machine.end(&mut self.pool);
        }
        let is_wanted = connection.is_held || connection.is_ready;
        if is_live {
            self.leave(tuple, index);
        }
        self.note_change(index);
        self.show_later(index);
        if !is_wanted {
            self.forget(index);
        }
    }

    /// Forgets a connection that nobody has.
    fn forget(&mut self, index: u32) {
        self.clear_timer(index);
        self.unstall(index);
        let Some(connection) = self.connections.get_mut(index) else { return };
        let (tuple, is_live) = (connection.tuple, connection.is_live);
        if let Some(machine) = connection.machine.take() {
            machine.end(&mut self.pool);
        }
        // One that is complete is not forgotten before it is accepted: so this one was not.
        if let Some(listener) = connection.listener.and_then(|at| self.listeners.get_mut(&at)) {
            listener.half_open.remove(tuple.remote.ip(), connection.number);
        }
        if is_live {
            self.leave(tuple, index);
        }
        self.changed.remove(&index);
        self.connections.remove(index);
        self.show_later(index);
    }

    /// The packets between these two are for this connection from now on.
    fn enter(&mut self, tuple: Tuple, index: u32) {
        self.tuples.insert(tuple, index);
        self.by_host.entry(tuple.remote.ip()).or_default().insert(index);
    }

    /// The packets between these two are for no connection any more.
    fn leave(&mut self, tuple: Tuple, index: u32) {
        self.tuples.remove(&tuple);
        let host = tuple.remote.ip();
        if let Some(of_host) = self.by_host.get_mut(&host) {
            of_host.remove(&index);
            if of_host.is_empty() {
                self.by_host.remove(&host);
            }
        }
    }

    /// A connection may be ready for what it was not ready for before: its program is told, if it wants to be.
    fn note_change(&mut self, index: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.token.is_some() {
            self.changed.insert(index);
        }
        if std::mem::take(&mut connection.is_awaited) {
            let id = self.connections.id(index);
            self.news.push(id);
        }
    }

    // What observers see.

    /// A connection is shown anew with the next [`Stack::show`].
    fn show_later(&mut self, index: u32) {
        if let Some(rows) = self.unshown.get_mut(index as usize / 64) {
            *rows |= 1 << (index % 64);
        }
    }

    /// Shows how the stack stands, and what has changed, on the board of its member.
    pub fn show(&mut self, now: u64, words: &Words) {
        let usage = self.pool();
        let overview = Overview {
            shown_ns: now,
            mtu: self.options.mtu as u64,
            connections: self.connections.len() as u64,
            time_wait: self.time_wait.len() as u64,
            connection_bytes: usage.connection_bytes as u64,
            in_use: usage.in_use as u64,
            in_use_max: usage.in_use_max as u64,
            high_water: usage.high_water as u64,
            free: usage.free as u64,
        };
        board::show(words, &overview, self.counters.all());
        for (at, rows) in self.unshown.iter_mut().enumerate() {
            while *rows != 0 {
                let bit = rows.trailing_zeros();
                *rows &= *rows - 1;
                let index = at as u32 * 64 + bit;
                if (index as usize) < CONNECTION_ROWS {
                    let row = self.connections.get_mut(index).map(|connection| connection.row());
                    board::show_row(words, index as usize, row.as_ref());
                }
            }
        }
        if !std::mem::take(&mut self.are_sockets_unshown) {
            return;
        }
        let listeners = self.listeners.iter().map(|(local, listener)| {
            let counts = (listener.backlog as u64, listener.ready.len() as u64);
            Row::socket(RowState::Listen, *local, counts)
        });
        let sockets = self.sockets.bound.iter().map(|(local, socket)| {
            Row::socket(RowState::Udp, *local, (0, socket.datagrams.len() as u64))
        });
        let mut shown = listeners.chain(sockets).take(SOCKET_ROWS);
        for number in CONNECTION_ROWS..ROWS {
            board::show_row(words, number, shown.next().as_ref());
        }
    }

    // Addresses.

    /// A number that begins a connection's sequence numbers. No two are alike, and nobody can guess one.
    fn seed(&mut self, tuple: Tuple) -> u64 {
        self.begun += 1;
        self.secret.number(("sequence", tuple, self.begun))
    }

    /// The listener for an address.
    fn listening(&self, local: SocketAddr) -> Option<SocketAddr> {
        [local, any(local)].into_iter().find(|at| self.listeners.contains_key(at))
    }

    /// The address to bind to, with a port if none was asked for.
    fn choose_address(
        &mut self,
        address: SocketAddr,
        is_taken: impl Fn(&Stack, SocketAddr) -> bool,
    ) -> Result<SocketAddr, BindError> {
        let is_ours = self.addresses.contains(&address.ip());
        if !address.ip().is_unspecified() && !is_ours {
            return Err(BindError::NotAvailable);
        }
        let with = |port| SocketAddr::new(address.ip(), port);
        if address.port() != 0 {
            let is_taken = is_taken(self, with(address.port()));
            return if is_taken { Err(BindError::InUse) } else { Ok(with(address.port())) };
        }
        let mut ports = std::mem::replace(&mut self.ports, Ports::new(self.secret));
        let port = ports.choose(address.ip(), None, |port| !is_taken(self, with(port)));
        self.ports = ports;
        port.map(with).ok_or(BindError::NotAvailable)
    }

    /// Whether a socket with this address would be in the way of one of `taken`.
    fn is_in_the_way<'a>(
        address: SocketAddr,
        mut taken: impl Iterator<Item = &'a SocketAddr>,
    ) -> bool {
        taken.any(|taken| {
            taken.port() == address.port()
                && taken.is_ipv4() == address.is_ipv4()
                && (taken.ip() == address.ip()
                    || taken.ip().is_unspecified()
                    || address.ip().is_unspecified())
        })
    }

    // Verbs of TCP.

    /// Listens. At most `backlog` connections wait to be accepted; more are dropped, and tried again by those who asked.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn listen(&mut self, address: SocketAddr, backlog: usize) -> Result<SocketAddr, BindError> {
        let address = self.choose_address(address, |stack, address| {
            Stack::is_in_the_way(address, stack.listeners.keys())
        })?;
        let listener = Listener {
            backlog: backlog.max(1),
            half_open: HalfOpen::default(),
            ready: VecDeque::new(),
        };
        self.listeners.insert(address, listener);
        self.are_sockets_unshown = true;
        Ok(address)
    }

    /// The next connection that somebody has made to a listener.
    pub fn accept(&mut self, listening: SocketAddr) -> Option<(ConnectionId, SocketAddr)> {
        let index = self.listeners.get_mut(&listening)?.ready.pop_front()?;
        self.are_sockets_unshown = true;
        let connection = self.connections.get_mut(index)?;
        connection.listener = None;
        connection.is_ready = false;
        connection.is_held = true;
        let remote = connection.tuple.remote;
        self.counters.count(Counter::Accepted);
        Some((self.connections.id(index), remote))
    }

    /// Listens no more. Connections that nobody has accepted are reset.
    pub fn stop_listening(&mut self, listening: SocketAddr) {
        let Some(listener) = self.listeners.remove(&listening) else { return };
        self.are_sockets_unshown = true;
        let half_open = listener.half_open.by_host.into_values().flat_map(BTreeMap::into_values);
        for index in half_open.map(|(_, index)| index).chain(listener.ready) {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            if connection.listener == Some(listening) {
                connection.listener = None;
                connection.is_ready = false;
                match &mut connection.machine {
                    Some(machine) if connection.is_live => {
                        machine.abort();
                        self.make_busy(index);
                    }
                    _ => self.forget(index),
                }
            }
        }
    }

    /// Begins a connection, from an address and port of the stack's choice.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, now: u64, remote: SocketAddr) -> Result<ConnectionId, ConnectError> {
        self.time_wait.expire(now);
        if remote.port() == 0 || !packet::is_host(remote.ip()) {
            return Err(ConnectError::NoHost);
        }
        if self.connections.len() >= self.options.connections_max || self.pool.is_exhausted() {
            return Err(ConnectError::Full);
        }
        let local = self.source_for(remote.ip()).ok_or(ConnectError::NotAvailable)?;
        let Stack { ports, tuples, listeners, time_wait, .. } = self;
        let is_free = |port: u16| {
            let tuple = Tuple { local: SocketAddr::new(local, port), remote };
            // A connection has two ends, also where both are ours.
            tuple.local != remote
                && !tuples.contains_key(&tuple)
                && !time_wait.has(&tuple)
                && !Stack::is_in_the_way(tuple.local, listeners.keys())
        };
        let port = ports.choose(local, Some(remote), is_free).ok_or(ConnectError::NotAvailable)?;
        let tuple = Tuple { local: SocketAddr::new(local, port), remote };
        let seed = self.seed(tuple);
        let Stack { engine, pool, manner, .. } = self;
        let machine = Machine::connect(engine, pool, manner, tuple.local, remote, seed)
            .ok_or(ConnectError::NoHost)?;
        let index = self.connections.insert(Connection::new(self.begun, tuple, machine, None));
        self.enter(tuple, index);
        self.make_busy(index);
        Ok(self.connections.id(index))
    }

    /// The address that packets for `to` are from.
    fn source_for(&self, to: IpAddr) -> Option<IpAddr> {
        if self.addresses.contains(&to) {
            return Some(to);
        }
        let is_like = |address: &&IpAddr| {
            address.is_ipv4() == to.is_ipv4() && is_link_local(**address) == is_link_local(to)
        };
        let is_of_family = |address: &&IpAddr| address.is_ipv4() == to.is_ipv4();
        let found = self.addresses.iter().find(is_like);
        found.or_else(|| self.addresses.iter().find(is_of_family)).copied()
    }

    /// Both addresses of a connection: ours, and the other side's.
    pub fn ends(&self, id: ConnectionId) -> Option<(SocketAddr, SocketAddr)> {
        self.connections
            .find(id)
            .map(|connection| (connection.tuple.local, connection.tuple.remote))
    }

    /// Whether a connection is still being made.
    pub fn is_connecting(&self, id: ConnectionId) -> bool {
        self.connections.find(id).is_some_and(|connection| {
            connection.is_live && matches!(connection.state(), State::SynSent | State::SynReceived)
        })
    }

    /// How a connection has failed, if it has. It is said once.
    pub fn take_end(&mut self, id: ConnectionId) -> Option<End> {
        self.connections.find_mut(id)?.end.take()
    }

    /// Has [`Stack::take_changed`] name a connection when it may be ready for what it was not ready for before. It is named
    /// once at the beginning.
    pub fn watch(&mut self, id: ConnectionId, token: u64) {
        let Some(index) = self.connections.index(id) else { return };
        if let Some(connection) = self.connections.get_mut(index) {
            connection.token = Some(token);
        }
        self.note_change(index);
    }

    /// The token of a connection that is watched, and may be ready for what it was not ready for when it was named last.
    pub fn take_changed(&mut self) -> Option<u64> {
        let index = self.changed.pop_first()?;
        self.connections.get_mut(index)?.token
    }

    /// Whether [`Stack::take_changed`] has one to name.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// What can be received.
    pub fn readable(&self, id: ConnectionId) -> Readable {
        self.connections.find(id).map_or(Readable::Finished, Connection::readable)
    }

    /// Whether there is room for what is to be sent.
    pub fn writable(&self, id: ConnectionId) -> Writable {
        self.connections.find(id).map_or(Writable::Closed, Connection::writable)
    }

    /// Gives what has come to `take`, as far as it lies in one piece. `take` says how much of it it takes, and the rest
    /// stays. None if nothing has come.
    pub fn receive_with<R>(
        &mut self,
        id: ConnectionId,
        take: impl FnOnce(&[u8]) -> (usize, R),
    ) -> Option<R> {
        if self.readable(id) != Readable::Bytes {
            return None;
        }
        let index = self.connections.index(id)?;
        let connection = self.connections.get_mut(index)?;
        if !connection.kept.is_empty() {
            let (taken, result) = take(&connection.kept);
            connection.kept.drain(..taken.min(connection.kept.len()));
            return Some(result);
        }
        let machine = connection.machine.as_mut()?;
        let result = machine.take(take);
        if connection.is_live {
            // There is room again, which the other side may wait for.
            self.make_busy(index);
        } else {
            if !machine.socket().can_recv()
                && let Some(machine) = connection.machine.take()
            {
                machine.end(&mut self.pool);
            }
            self.show_later(index);
        }
        result
    }

    /// What has come, as far as it lies in one piece. It stays.
    pub fn peek(&mut self, id: ConnectionId) -> &[u8] {
        match self.connections.find_mut(id) {
            Some(Connection { is_receive_shut: true, kept, .. }) => kept,
            Some(Connection { machine: Some(machine), .. }) => machine.peek(),
            _ => &[],
        }
    }

    /// Gives room for what is to be sent to `fill`, as far as it lies in one piece. `fill` says how much of it it has
    /// filled. None if there is no room.
    pub fn send_with<R>(
        &mut self,
        id: ConnectionId,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<R> {
        if self.writable(id) != Writable::Room {
            return None;
        }
        let index = self.connections.index(id)?;
        self.wake(index);
        let machine = self.connections.get_mut(index)?.machine.as_mut()?;
        let result = machine.fill(fill);
        self.make_busy(index);
        result
    }

    /// Sends nothing more: the other side learns of the end after all that was sent.
    pub fn shut_sending(&mut self, id: ConnectionId) {
        let Some(index) = self.connections.index(id) else { return };
        self.wake(index);
        if let Some(machine) =
            self.connections.get_mut(index).and_then(|connection| connection.machine.as_mut())
        {
            machine.close();
            self.make_busy(index);
        }
    }

    /// Receives nothing more after what has come already: what comes now is acknowledged and thrown away.
    pub fn shut_receiving(&mut self, id: ConnectionId) {
        let Some(index) = self.connections.index(id) else { return };
        self.wake(index);
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.is_receive_shut {
            return;
        }
        connection.is_receive_shut = true;
        let Connection { machine, kept, .. } = connection;
        if let Some(machine) = machine {
            // It is in two pieces where the buffer begins again.
            let mut keep = |bytes: &[u8]| {
                kept.extend_from_slice(bytes);
                (bytes.len(), bytes.len())
            };
            while machine.take(&mut keep).is_some_and(|count| count > 0) {}
        }
        self.make_busy(index);
    }

    /// Whether small segments go at once, though others are not acknowledged (RFC 9293 3.7.4).
    pub fn set_no_delay(&mut self, id: ConnectionId, is_on: bool) {
        let Some(index) = self.connections.index(id) else { return };
        self.wake(index);
        let connection = self.connections.get_mut(index);
        if let Some(machine) = connection.and_then(|connection| connection.machine.as_mut()) {
            machine.set_no_delay(is_on);
        }
    }

    /// The program has done with a connection. What was sent still goes to the other side. If something came that was
    /// not received, the other side is told by a reset (RFC 2525 2.17).
    pub fn close(&mut self, id: ConnectionId) {
        let Some(index) = self.connections.index(id) else { return };
        self.wake(index);
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.is_held = false;
        connection.kept = Vec::new();
        let Some(machine) = connection.machine.as_mut().filter(|_| connection.is_live) else {
            return self.forget(index);
        };
        if machine.state() == State::SynSent {
            return self.forget(index);
        }
        if machine.socket().can_recv() && !connection.is_receive_shut {
            machine.abort();
        } else {
            machine.close();
        }
        // What may last for long has a limit from now on.
        connection.deadline = None;
        self.make_busy(index);
    }

    /// Ends a connection with a reset.
    pub fn abort(&mut self, id: ConnectionId) {
        let Some(index) = self.connections.index(id) else { return };
        self.wake(index);
        let connection = self.connections.get_mut(index);
        if let Some(machine) = connection.and_then(|connection| connection.machine.as_mut()) {
            machine.abort();
        }
        self.make_busy(index);
    }

    /// The hosts to which there are connections, without ourselves.
    pub fn hosts(&self) -> HashSet<IpAddr> {
        let is_other = |host: &&IpAddr| !self.addresses.contains(host);
        self.by_host.keys().filter(is_other).copied().collect()
    }

    /// Asks a host whether it still has its connections. One that has not ends them with a reset. What is asked may be lost
    /// with the path that it goes over, so connections that have nothing else to send ask again until something comes.
    pub fn question(&mut self, now: u64, host: IpAddr, link: &mut impl Link) {
        let questions = KeepAlive {
            time: QUESTION_EVERY,
            interval: QUESTION_EVERY,
            probes: u32::try_from(self.options.silence_max.as_secs()).unwrap_or(u32::MAX),
        };
        for index in self.indexes_of(host) {
            self.wake(index);
            let Some(connection) = self.connections.get_mut(index) else { continue };
            let Some(machine) = &connection.machine else { continue };
            if !matches!(machine.state(), State::SynSent | State::SynReceived | State::Closed) {
                let (tuple, question) = (connection.tuple, machine.question());
                connection.questioner = Some(Box::new(Keeper::new(now, questions)));
                let mut frame = packet::bare(tuple.local, tuple.remote, question);
                let offload = packet::leave_checksum(&mut frame);
                self.output.send(link, &mut self.counters, host, offload, &mut frame);
                self.make_busy(index);
            }
        }
    }

    /// Ends all connections with a host, because nobody has its address any more.
    pub fn end_with(&mut self, host: IpAddr) {
        for index in self.indexes_of(host) {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.end = Some(End::Gone);
                self.counters.count(Counter::Gone);
            }
            self.retire(index);
        }
    }

    fn indexes_of(&self, host: IpAddr) -> Vec<u32> {
        self.by_host.get(&host).into_iter().flatten().copied().collect()
    }

    /// Ends all connections with a reset.
    pub fn abort_all(&mut self) {
        let all: Vec<u32> = self.tuples.values().copied().collect();
        for index in all {
            self.wake(index);
            let connection = self.connections.get_mut(index);
            if let Some(machine) = connection.and_then(|connection| connection.machine.as_mut()) {
                machine.abort();
            }
            self.make_busy(index);
        }
    }

    /// The next byte that would be sent, and the next that is expected.
    #[cfg(test)]
    pub(super) fn numbers(&self, id: ConnectionId) -> (u32, u32) {
        let connection = self.connections.find(id).expect("there is one");
        let machine = connection.machine.as_ref().expect("it is not over");
        (machine.known.sent.next, machine.expected())
    }

    /// Whether there are no connections, but for those in TIME-WAIT.
    pub fn is_quiet(&self) -> bool {
        self.tuples.is_empty()
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
