//! A stack: frames in, frames out, and the verbs of programs in between.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::buffers::{Buffers, PoolUse};
use super::bulk::{Bulk, BulkChange, BulkCounters};
use super::connection::{Awaited, Connection, ConnectionId, Connections, End, Readable, Writable};
use super::control::Limiter;
use super::counters::Counters;
use super::device::{Device, Framing};
use super::directory::Handed;
use super::distributor::Distributor;
use super::fragments::Reassembly;
use super::keep_alive::{KeepAlive, Keeper, Step};
use super::live::Live;
use super::medium::Medium;
use super::neighbours;
use super::output::{Link, Output};
use super::packet::{
    self, ACK, Bare, Datagram, ICMP, ICMPV6, IPV4_BYTES, Packet, RST, SYN, Segment, TCP, UDP,
    UDP_BYTES,
};
use super::passing;
use super::path_mtu::PathMtus;
use super::ports::Ports;
use super::route::{Hop, Interface, Neighbour, Route, Routes};
use super::secret::Secret;
use super::tcp::{Answer, Congestion, Limits, Progress, Start, State, Tcb, TcpConfig, is_before};
use super::time_wait::TimeWait;
use super::udp::{SendToError, Sockets, any};
use super::wheel::Wheel;
use crate::board::Counter;
use crate::board::{self, CONNECTION_ROWS, Overview, Row, RowState, SOCKET_ROWS};
use crate::lan::frame::{ETHERNET_BYTES, Mac, destination, u16_at};
use crate::lan::link::Frame;
use crate::lan::neighbour;
use crate::lan::offload::{Checksum, Kind, Offload, segment};
use crate::tcpip::hashed::{HashMap, HashSet};
use os::words::Words;

mod bulk;
mod control;
mod cookies;
mod distribute;
mod end;
mod forward;
mod hosts;
mod in_place;
mod listen;
mod outside;
mod parts;
mod resolve;
mod segment;
mod serve;
mod shards;
mod show;
mod stream;
mod verbs;
mod ways;

pub use distribute::Distributed;
pub use in_place::InPlace;
use listen::Listener;
use outside::Outside;
pub use outside::{Asked, Refusal, Stray, StrayKind};
use shards::Shard;

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

/// How a stack behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the largest packet of IP: 576 to 65,535, and 1280 at least with addresses of IPv6. With several interfaces theirs count.
    pub mtu: usize,
    /// Bytes that a connection keeps of what has come and was not received, at most: the window, which begins with 256 KiB and grows on longer
    /// ways: see [`Medium::grows_from`]. 4 KiB to 16 MiB.
    pub receive_bytes: usize,
    /// Bytes that a connection keeps of what was sent and is not acknowledged, at most, in the same way. 4 KiB to 16 MiB.
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
    /// Bytes of all connections' buffers at most. What comes and finds no buffer is dropped, and the other side sends it again;
    /// what a program sends waits.
    pub pool_bytes: usize,
    /// Bytes of buffers at most that wait for their next bytes.
    pub pool_kept_bytes: usize,
    /// The device of the interface. With several interfaces theirs count.
    pub device: Device,
    /// For how long a pair of ports is not used again after its connection (TIME-WAIT).
    pub time_wait: Duration,
    /// Whether packets for others are passed on.
    pub forwards: bool,
    /// Whether this stack stands in for hosts elsewhere: what members give it for others, and what nobody here listens for, is handed to
    /// a program ([`Stack::take_asked`], [`Stack::take_stray`]). Not together with `forwards`.
    pub stands_in: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mtu: 1500,
            receive_bytes: 6 << 20,
            send_bytes: 6 << 20,
            congestion: Congestion::Cubic,
            acknowledge_after: Duration::from_millis(1),
            silence_max: Duration::from_secs(120),
            connect_max: Duration::from_secs(60),
            connections_max: 65_536,
            pool_bytes: 16 << 30,
            pool_kept_bytes: 32 << 20,
            device: Device::LAN,
            time_wait: Duration::from_secs(10),
            forwards: false,
            stands_in: false,
        }
    }
}

/// How long the other side has to complete what it began, or to close its half after ours is closed for good, and how
/// long its target may be full while a connection's last segment waits.
const HALF_OPEN_MAX: Duration = Duration::from_secs(60);

/// The longest time that an acknowledgement may wait (RFC 1122 4.2.3.2).
const ACKNOWLEDGE_AFTER_MAX: Duration = Duration::from_millis(500);

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
    /// The stack has as many connections as it may.
    #[error("the stack has as many connections as it may")]
    Full,
}

/// A TCP/IP stack.
///
/// Times are nanoseconds on any clock that does not go back. A verb that changes a connection leaves it to
/// [`Stack::poll`] to send what follows from that.
pub struct Stack {
    options: Options,
    secret: Secret,
    config: TcpConfig,
    pool: Buffers,
    output: Output,
    counters: Counters,
    ports: Ports,
    connections: Connections,
    live: Live,
    /// The connections in `live`, by the address of the other side. None is empty.
    by_host: HashMap<IpAddr, HashSet<u32>>,
    listeners: HashMap<SocketAddr, Listener>,
    sockets: Sockets,
    /// Addresses of the stack that are not its own now.
    unavailable: HashSet<IpAddr>,
    time_wait: TimeWait,
    /// When connections are to be served without being asked.
    timers: Wheel,
    /// Whether no time runs out: see [`Stack::hold_timers`].
    are_timers_held: bool,
    /// Connections that may have something to send.
    busy: VecDeque<u32>,
    /// Connections whose other sides are to be asked whether they are there.
    questioned: VecDeque<u32>,
    /// Connections whose program wants to be told that they have changed, and has not been told.
    changed: BTreeSet<u32>,
    /// What somebody waits for, and has come.
    news: Vec<Awaited>,
    /// Whether anything about any connection or socket, or the room for a target, has changed.
    has_moved: bool,
    /// Connections of which the board does not show how they stand: a bit for each row.
    unshown: [u64; CONNECTION_ROWS.div_ceil(64)],
    /// Whether the board does not show how the sockets stand.
    are_sockets_unshown: bool,
    /// Whether it does not show which way packets go.
    are_ways_unshown: bool,
    /// Connections whose target is full.
    stalled: HashMap<Hop, HashSet<u32>>,
    /// Connections begun so far.
    begun: u64,
    /// The last time that somebody has said.
    clock: u64,
    room: Vec<u8>,
    /// The packet of others that is passed on.
    passed: Vec<u8>,
    reassembly: Reassembly,
    /// Packets cut into fragments so far.
    packets_cut: u32,
    /// What errors about segments that were under way have said.
    path_mtus: PathMtus,
    /// What errors about datagrams have said, which anybody may have made up: no connection believes them.
    path_mtus_of_datagrams: PathMtus,
    /// Addresses that were said to be ours because another has claimed them, and until when that is not said again.
    defended: HashMap<IpAddr, u64>,
    /// Limits the errors that are sent.
    errors: Limiter,
    /// Which connections carry bulk data.
    bulk: Bulk,
    /// The device by which the frame has come that is being taken.
    arriving: usize,
    /// What waits for the program that stands in for hosts elsewhere.
    outside: Outside,
    /// Addresses that are distributed, in which the stack has a part.
    distributors: Vec<Distributor>,
    /// Which shard it is, if there are several.
    shard: Option<Box<Shard>>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = formatter.debug_struct("Stack");
        fields.field("addresses", &self.addresses()).field("connections", &self.connections.len());
        fields.finish_non_exhaustive()
    }
}

impl Stack {
    /// A stack with one interface, and these addresses.
    ///
    /// Options outside their limits are taken as the limit.
    pub fn new(mac: Mac, addresses: &[IpAddr], options: Options, secret: Secret) -> Stack {
        let Options { mtu, device, .. } = options;
        let addresses = addresses.to_vec();
        let networks = Vec::new();
        let interface = Interface { lan: 0, vlan: None, mac, mtu, addresses, networks, device };
        Stack::with_interfaces(vec![interface], Vec::new(), options, secret)
    }

    /// A stack with these interfaces and routes. Say who its neighbours are ([`Stack::change_neighbours`]).
    ///
    /// Options outside their limits are taken as the limit, and so is an interface's MTU. Routes beyond
    /// [`ROUTES_MAX`](super::ROUTES_MAX) are left out.
    pub fn with_interfaces(
        mut interfaces: Vec<Interface>,
        routes: Vec<Route>,
        options: Options,
        secret: Secret,
    ) -> Stack {
        let buffer = |bytes: usize| bytes.clamp(4 << 10, 16 << 20);
        let mtu = ways::limit_mtus(&mut interfaces);
        let config = TcpConfig {
            receive_bytes: buffer(options.receive_bytes),
            send_bytes: buffer(options.send_bytes),
            congestion: options.congestion,
            acknowledge_after_ns: nanoseconds(options.acknowledge_after.min(ACKNOWLEDGE_AFTER_MAX)),
        };
        Stack {
            options: Options { mtu, ..options },
            secret,
            config,
            pool: Buffers::new(options.pool_bytes, options.pool_kept_bytes),
            output: Output::new(Routes::new(interfaces, routes), secret),
            counters: Counters::new(),
            ports: Ports::new(secret),
            connections: Connections::default(),
            live: Live::default(),
            by_host: HashMap::default(),
            listeners: HashMap::default(),
            sockets: Sockets::default(),
            unavailable: HashSet::default(),
            time_wait: TimeWait::default(),
            timers: Wheel::default(),
            are_timers_held: false,
            busy: VecDeque::new(),
            questioned: VecDeque::new(),
            changed: BTreeSet::new(),
            news: Vec::new(),
            has_moved: false,
            unshown: [0; CONNECTION_ROWS.div_ceil(64)],
            are_sockets_unshown: true,
            are_ways_unshown: true,
            stalled: HashMap::default(),
            begun: 0,
            clock: 0,
            room: Vec::new(),
            passed: Vec::new(),
            reassembly: Reassembly::default(),
            packets_cut: 0,
            path_mtus: PathMtus::default(),
            path_mtus_of_datagrams: PathMtus::default(),
            defended: HashMap::default(),
            errors: Limiter::new(secret),
            bulk: Bulk::default(),
            arriving: 0,
            outside: Outside::default(),
            distributors: Vec::new(),
            shard: None,
        }
    }

    /// What a counter stands at.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    /// The addresses of this stack.
    pub fn addresses(&self) -> &[IpAddr] {
        self.output.routes.addresses()
    }

    /// Whether it is an address of this stack.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses().contains(&address)
    }

    /// How many connections there are, and how many pairs of ports are not used again yet.
    pub fn counts(&self) -> (usize, usize) {
        (self.connections.len(), self.time_wait.len())
    }

    /// How the connections' buffers are used: those of all together.
    pub fn pool(&self) -> PoolUse {
        self.pool.usage()
    }

    // Frames.

    /// Takes a frame that has come from a LAN: which, as the interfaces say; 0 if there is one. What it brings is sent by
    /// [`Stack::poll`], but for answers of the stack itself, and what is passed on.
    ///
    /// The bytes must not change meanwhile: a frame in shared memory is to be copied before.
    pub fn receive(&mut self, now: u64, lan: usize, frame: Frame<'_>, link: &mut impl Link) {
        let now = now.max(self.clock);
        (self.clock, self.output.clock) = (now, now);
        self.counters.count(Counter::FramesReceived);
        self.arriving = lan;
        // Segments of TCP may come as one; datagrams that a kernel has put together are cut, because each is a message.
        let datagrams = frame.offload.segmentation.filter(|segments| segments.kind == Kind::Udp);
        if datagrams.is_none() {
            return self.take_or_count(now, lan, frame, link);
        }
        let mut room = Vec::new();
        segment(frame.offload, frame.bytes, &mut room, |bytes| {
            let offload = Offload { vlan: frame.offload.vlan, ..Offload::NONE };
            self.take_or_count(now, lan, Frame { offload, bytes }, link);
        });
    }

    fn take_or_count(&mut self, now: u64, lan: usize, frame: Frame<'_>, link: &mut impl Link) {
        if let Err(reason) = self.take_frame(now, lan, frame, link) {
            self.counters.count(reason);
        }
    }

    fn take_frame(
        &mut self,
        now: u64,
        lan: usize,
        frame: Frame<'_>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let tag = frame.offload.vlan;
        let routes = &self.output.routes;
        let interface = routes.interface_with(lan, tag).ok_or(Counter::Vlan)?;
        let at = &routes.interfaces()[interface];
        if at.device.asks() {
            let is_to_us = destination(frame.bytes) == Some(at.mac);
            if let Some(message) = neighbours::parse(frame.bytes, frame.offload.checksum)? {
                self.tell_others(interface, lan, frame, &message);
                return self.take_message(now, interface, frame, message, link);
            }
            if !is_to_us {
                return Err(Counter::NotOurs);
            }
        }
        let find = |address: IpAddr| at.addresses.contains(&address).then_some(at.mac);
        if let Some(answer) = neighbour::answer(frame.bytes, find) {
            self.counters.count(Counter::NeighboursAnswered);
            // Whoever asked asks again.
            let _ = link.send(lan, Offload { vlan: tag, ..Offload::NONE }, &answer);
            return Ok(());
        }
        if u16_at(frame.bytes, 12) == Some(packet::ARP) {
            return Ok(());
        }
        if let Some(which) = self.distributes(frame.bytes)
            && !self.distribute(now, (which, interface), frame, link)?
        {
            return Ok(());
        }
        if self.goes_past_distributor(link, interface, frame.bytes) {
            return Err(Counter::NotOurs);
        }
        if self.options.forwards && self.is_to_pass(interface, frame.bytes) {
            return self.forward(now, interface, frame, link);
        }
        let packet = Packet::parse(frame.bytes)?;
        if self.has_address(packet.source) {
            return Err(Counter::BadSource);
        }
        let is_outside = !self.has_address(packet.destination);
        if self.has_only_connections() && !self.may_be_of_connection(&packet, is_outside) {
            let Frame { offload, bytes } = frame;
            self.hand_to_first(Handed::Raw { lan, offload }, packet.source, bytes);
            return Ok(());
        }
        if is_outside
            && !self.has_only_connections()
            && !self.stands_in_for(interface, frame.bytes, packet.destination)
        {
            return Err(Counter::NotOurs);
        }
        if !self.may_come_from(link, interface, frame.bytes, packet.source) {
            return Err(Counter::BadSource);
        }
        if is_outside {
            self.check_hops(now, frame, link)?;
        }
        self.take_packet(now, &packet, frame.offload.checksum, link)
    }

    /// Whether a packet from an address may come in a frame at an interface. Errors are found by any host on the way: they
    /// come from where packets go that are like the one that they are about, and are looked at as all errors are.
    fn may_come_from(
        &self,
        link: &mut impl Link,
        interface: usize,
        frame: &[u8],
        source: IpAddr,
    ) -> bool {
        let routes = &self.output.routes;
        routes.may_come_from(link, interface, frame, source)
            || self.comes_from_distributor(link, interface, frame)
            || passing::quoted_destination(frame)
                .is_some_and(|about| routes.leads_to(link, interface, frame, about))
    }

    fn answer(&mut self, to: IpAddr, offload: Offload, frame: &mut [u8], link: &mut impl Link) {
        self.output.answer(link, &mut self.counters, to, offload, frame);
    }

    fn take_datagram(&mut self, packet: &Packet<'_>) -> Result<(), Counter> {
        let datagram = Datagram::parse(packet.transport())?;
        let to = SocketAddr::new(packet.destination, datagram.destination);
        self.are_sockets_unshown = true;
        let source = SocketAddr::new(packet.source, datagram.source);
        let at = self.sockets.put(to, source, datagram.data)?;
        self.note_socket(at);
        Ok(())
    }

    /// Whether frames wait for room at their targets: those that wait for an answer of their neighbour do not.
    pub fn waits_for_room(&self) -> bool {
        self.output.waits_for_room()
    }

    // Addresses.

    /// Where a connection's sequence numbers begin (RFC 6528): nobody can guess it, and those of a later connection between the same
    /// ports begin behind those of an earlier one, so that a side that still waits for old segments takes it. A step for each 64 ns,
    /// as in Linux: they come round after 275 s. An earlier connection that has carried more than 15 MB for each second since it began is
    /// ahead of that: then the first try is answered as an old segment, and the next is taken a second later.
    pub(super) fn first_number(&self, tuple: Tuple) -> u32 {
        let hashed = self.secret.number(("sequence", tuple)) as u32;
        hashed.wrapping_add((self.clock >> 6) as u32)
    }

    /// The same, and behind `after`, if there is such a number.
    fn first_number_after(&mut self, tuple: Tuple, after: Option<u32>) -> u32 {
        self.begun += 1;
        let first = self.first_number(tuple);
        match after {
            Some(after) if !is_before(after, first) => {
                let random = self.secret.number(("sequence", tuple, self.begun));
                after.wrapping_add(1 + u32::from(random as u16))
            }
            _ => first,
        }
    }

    /// Where our clock begins for a connection, if its segments are to carry times.
    fn clock_of(&self, tuple: Tuple, medium: Medium) -> Option<u32> {
        medium.has_timestamps.then(|| self.clock_offset(tuple))
    }

    fn clock_offset(&self, tuple: Tuple) -> u32 {
        self.secret.number(("clock", tuple)) as u32
    }

    /// How a connection begins whose first number is this. It counts as one of its host.
    fn start(&mut self, tuple: Tuple, first: u32) -> Start {
        let medium = self.output.routes.medium_to(tuple.remote.ip());
        Start {
            is_v4: tuple.local.is_ipv4(),
            first,
            resend_after_ns: medium.resend_after_ns(),
            grows_from_ns: medium.grows_from_ns(),
            clock: self.clock_of(tuple, medium),
            is_paced: medium.is_paced,
            owner: self.pool.enter(tuple.remote.ip()),
        }
    }

    /// Sets which of its addresses are not the stack's own now, because the network has refused them: nobody binds to one. Sockets that are bound already stay.
    pub fn set_unavailable(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.unavailable = addresses.into_iter().collect();
    }

    /// The address to bind to, with a port if none was asked for.
    fn choose_address(
        &mut self,
        address: SocketAddr,
        is_taken: impl Fn(&Stack, SocketAddr) -> bool,
    ) -> Result<SocketAddr, BindError> {
        let is_ours = self.has_address(address.ip()) && !self.unavailable.contains(&address.ip());
        if !address.ip().is_unspecified() && !is_ours || self.has_only_connections() {
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

    /// The next byte that would be sent, and the next that is expected.
    #[cfg(test)]
    pub(super) fn numbers(&self, id: ConnectionId) -> (u32, u32) {
        let connection = self.connections.find(id).expect("there is one");
        let tcb = connection.tcb.as_ref().expect("it is not over");
        (tcb.next(), tcb.expected())
    }

    /// How many pieces of what is under way a connection tells apart, and how many ranges behind a gap.
    #[cfg(test)]
    pub(super) fn pieces(&self, id: ConnectionId) -> (usize, usize) {
        let connection = self.connections.find(id).expect("there is one");
        connection.tcb.as_ref().expect("it is not over").pieces()
    }

    /// A pair of ports is not used from here.
    #[cfg(test)]
    pub(super) fn take_for_ever(&mut self, tuple: Tuple) {
        let entry = super::time_wait::Entry { next: 0, expected: 0, recent: None, until: u64::MAX };
        self.time_wait.insert(0, tuple, entry);
    }

    /// Whether there are no connections, but for those in TIME-WAIT.
    pub fn is_quiet(&self) -> bool {
        self.live.is_empty()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
