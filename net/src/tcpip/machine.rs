//! The state machine of one connection: a socket of smoltcp in a set of its own.
//!
//! All of smoltcp that a stack uses is behind this file and its folder. It is given packets that were checked, one at a time, and only
//! those of its own connection; a panic in it becomes [`Broken`], and the stack ends that connection.

use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};

use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketSet};
use smoltcp::phy::{
    Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, PacketMeta, RxToken,
    TxToken,
};
use smoltcp::socket::tcp;
use smoltcp::time;
use smoltcp::wire::{HardwareAddress, IpEndpoint, IpListenEndpoint};

pub(super) use smoltcp::socket::tcp::State;

use super::counters::Counters;
use super::output::{Link, Output, Unsent};
use super::packet::{self, ACK, Agreed, Bare, SYN, Segment};
use super::pool::{Pool, Room};
use super::stack::Congestion;
use crate::board::Counter;
use crate::lan::frame::ETHERNET_BYTES;
use crate::lan::offload::{Kind, Offload, SEGMENTS_MAX, Segmentation};

mod device;
mod round_trip;
mod seed;

use device::{Medial, Tap};
use round_trip::RoundTrip;
use seed::begins_with;
pub(super) use seed::seed_for;

/// Bytes of the longest packet that stands for segments.
const SEGMENTS_BYTES_MAX: usize = 65_535;

/// The part of the buffer for what is to be sent that has to be empty before more is put there. Linux waits for a third.
const ROOM_PART: usize = 4;

/// Bytes of the shortest segments of which such a packet has no more than a frame may have, although options take of what
/// each has for data.
const SEGMENT_BYTES_MIN: usize =
    SEGMENTS_BYTES_MAX.div_ceil(SEGMENTS_MAX) + packet::TCP_OPTIONS_BYTES_MAX;

/// The state machine has panicked. Nothing of its connection can be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Runs what may panic in the state machine.
fn guard<R>(run: impl FnOnce() -> R) -> Result<R, Broken> {
    // What is behind the references is not used again after a panic, but for the interface: that has the time and a
    // generator of numbers, which are always whole.
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| Broken)
}

/// How the state machines of a stack behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) receive_bytes: usize,
    pub(super) send_bytes: usize,
    pub(super) congestion: Congestion,
    /// For how long an acknowledgement waits for data to go with, in microseconds. None: not at all.
    pub(super) acknowledge_after_us: Option<u64>,
}

/// By how many bits smoltcp shifts the windows of a buffer: what does not go into the 16 bits of a window.
fn window_shift(receive_bytes: usize) -> u32 {
    (usize::BITS - receive_bytes.leading_zeros()).saturating_sub(16)
}

impl Manner {
    /// The window of a first segment, which is not shifted.
    pub(super) fn first_window(&self) -> u16 {
        u16::try_from(self.receive_bytes).unwrap_or(u16::MAX)
    }

    /// What our first segment says, as smoltcp would say it, to a side that has said this.
    pub(super) fn agreed(&self, mtu: usize, is_v4: bool, theirs: &Agreed) -> Agreed {
        let ip_bytes = if is_v4 { packet::IPV4_BYTES } else { packet::IPV6_BYTES };
        let shift = window_shift(self.receive_bytes) as u8;
        Agreed {
            segment_bytes_max: (mtu - ip_bytes - packet::TCP_BYTES) as u16,
            window_shift: theirs.window_shift.map(|_| shift),
            takes_selective: theirs.takes_selective,
        }
    }

    pub(super) fn congestion(&self) -> tcp::CongestionControl {
        match self.congestion {
            Congestion::None => tcp::CongestionControl::None,
            Congestion::Cubic => tcp::CongestionControl::Cubic,
            Congestion::Reno => tcp::CongestionControl::Reno,
        }
    }

    pub(super) fn acknowledge_after(&self) -> Option<time::Duration> {
        self.acknowledge_after_us.map(time::Duration::from_micros)
    }
}

/// What all state machines of a stack share.
pub(super) struct Engine {
    interface: Interface,
    /// For connections whose segments are short: each goes in a frame of its own.
    interface_of_short: Interface,
    /// For connections whose path takes shorter packets than the LAN: that of the last, with what it is made of.
    interface_of_path: Option<((usize, bool), Interface)>,
    mtu: usize,
    /// Whether a socket can be made to begin with a given sequence number: see [`seed_for`].
    can_begin_anywhere: bool,
}

/// What a state machine needs to send.
pub(super) struct Way<'a, L> {
    pub(super) link: &'a mut L,
    pub(super) output: &'a mut Output,
    pub(super) counters: &'a mut Counters,
    pub(super) room: &'a mut Vec<u8>,
}

impl Engine {
    pub(super) fn new(mtu: usize) -> Engine {
        Engine {
            interface: interface(mtu, 0, Some(segments_bytes_max(mtu))),
            interface_of_short: interface(mtu, 0, None),
            interface_of_path: None,
            mtu,
            can_begin_anywhere: begins_with(seed_for(0x1234_5678)) == Some(0x1234_5678),
        }
    }

    /// Whether a connection can begin with a sequence number of our choice. If not, those that nothing is under way in keep their sockets.
    pub(super) fn can_begin_anywhere(&self) -> bool {
        self.can_begin_anywhere
    }

    /// The interface of a connection, and of a path if that takes only shorter packets.
    fn interface(&mut self, has_short_segments: bool, path_mtu: Option<usize>) -> &mut Interface {
        let Some(mtu) = path_mtu else {
            return match has_short_segments {
                true => &mut self.interface_of_short,
                false => &mut self.interface,
            };
        };
        let made_of = (mtu, has_short_segments);
        if self.interface_of_path.as_ref().is_none_or(|(before, _)| *before != made_of) {
            let bytes_max = (!has_short_segments).then(|| segments_bytes_max(mtu));
            self.interface_of_path = Some((made_of, interface(mtu, 0, bytes_max)));
        }
        let (_, interface) = self.interface_of_path.as_mut().expect("it was made just now");
        interface
    }
}

/// An interface that takes packets for any address. Its sequence numbers begin with what `seed` makes of them. What it
/// sends stands for segments, if that may be so long.
fn interface(mtu: usize, seed: u64, segments_bytes_max: Option<usize>) -> Interface {
    let mut config = Config::new(HardwareAddress::Ip);
    config.random_seed = seed;
    let mut interface = Interface::new(config, &mut Medial { mtu, segments_bytes_max }, instant(0));
    interface.set_any_ip(true);
    interface
}

/// The time of a stack, in nanoseconds, as smoltcp has it.
fn instant(now: u64) -> time::Instant {
    time::Instant::from_micros((now / 1000) as i64)
}

/// What was sent last, as the other side knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    /// The byte after the last that was sent.
    pub(super) next: u32,
    pub(super) acknowledged: u32,
    pub(super) window: u16,
    pub(super) is_any: bool,
    /// Whether it was not the first segment, whose window is not scaled and which may acknowledge nothing.
    is_beyond_first: bool,
    /// Whether the other side has acknowledged any of it.
    has_acknowledgement: bool,
    /// The window that the other side has offered last.
    window_to_us: u16,
    /// The most bytes that it has ever offered.
    window_to_us_max: u32,
    /// Segments with data that were sent again.
    pub(super) resent: u32,
}

/// What is to be sent and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unacknowledged {
    Nothing,
    /// Bytes, sent or not.
    Bytes,
    /// The end of the stream alone, which was sent.
    End,
}

/// What of a segment is beyond what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    None,
    /// Data that smoltcp cuts off. The end of the stream is to be taken away from it.
    End,
    /// So many bytes of data that smoltcp would take. They are to be cut off before, with the end of the stream.
    Data(usize),
}

/// What a segment says of how far the other side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing new.
    None,
    /// It has more of what was sent.
    Some,
    /// It has no room for more (RFC 1122 4.2.2.17).
    Closed,
}

/// What a side knows of its connection, besides what is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    remote: IpAddr,
    pub(super) sent: Sent,
    /// The first byte of ours that the other side has not acknowledged: what RFC 9293 calls SND.UNA.
    acknowledged: u32,
    /// The other side's first sequence number, and how many bytes a program has received since.
    first_received: u32,
    received: u32,
    /// By how many bits the windows that we offer are shifted.
    window_shift: u32,
    /// What the other side's first segment has agreed to.
    agreed: Agreed,
    has_no_delay: bool,
    pub(super) round_trip: RoundTrip,
}

impl Known {
    /// What is known of a connection whose other side answers a cookie with this segment, and has `agreed` to this before.
    pub(super) fn of_cookie(
        manner: &Manner,
        remote: IpAddr,
        segment: &Segment,
        agreed: Agreed,
    ) -> Known {
        let scales = agreed.window_shift.is_some();
        Known {
            remote,
            sent: Sent {
                next: segment.acknowledgement,
                acknowledged: segment.sequence,
                window: manner.first_window(),
                is_any: true,
                is_beyond_first: false,
                has_acknowledgement: true,
                window_to_us: segment.window,
                window_to_us_max: u32::from(segment.window) << agreed.shift(),
                resent: 0,
            },
            acknowledged: segment.acknowledgement,
            first_received: segment.sequence.wrapping_sub(1),
            received: 0,
            window_shift: if scales { window_shift(manner.receive_bytes) } else { 0 },
            agreed,
            has_no_delay: false,
            round_trip: RoundTrip::default(),
        }
    }

    /// The window that was offered last, as a segment says it that is not the first: that of the first is not scaled.
    fn window_to_say(&self) -> u16 {
        let Known { sent, window_shift, .. } = self;
        if sent.is_beyond_first { sent.window } else { sent.window >> window_shift }
    }

    /// The segment that says where a connection that sleeps stands: all that came was acknowledged.
    pub(super) fn acknowledgement(&self) -> Bare {
        let Known { sent, .. } = self;
        let (sequence, acknowledgement) = (sent.next, sent.acknowledged);
        Bare { flags: ACK, sequence, acknowledgement, window: self.window_to_say() }
    }

    /// A segment by which the other side of a connection that sleeps is asked for an acknowledgement: as
    /// [`Machine::question`].
    pub(super) fn question(&self) -> Bare {
        let sequence = self.sent.next.wrapping_sub(1);
        Bare { sequence, ..self.acknowledgement() }
    }

    /// The segment that ends a connection that sleeps.
    pub(super) fn reset(&self) -> Bare {
        Bare { flags: packet::RST | ACK, window: 0, ..self.acknowledgement() }
    }

    /// Takes note of a segment to a connection that sleeps by which the other side only acknowledges what it acknowledged
    /// before, and says how much room it has. False if it is another, and nothing is noted.
    pub(super) fn note_repeated(&mut self, segment: &Segment) -> bool {
        let shift = self.agreed.shift();
        let sent = &mut self.sent;
        let is_repeated = segment.is_bare()
            && !segment.has(SYN)
            && segment.sequence == sent.acknowledged
            && segment.acknowledgement == sent.next;
        if is_repeated {
            sent.window_to_us = segment.window;
            sent.window_to_us_max = sent.window_to_us_max.max(u32::from(segment.window) << shift);
        }
        is_repeated
    }

    /// Whether the other side takes segments so short that a frame might have more of them than the LAN takes.
    fn has_short_segments(&self) -> bool {
        usize::from(self.agreed.segment_bytes_max) < SEGMENT_BYTES_MIN
    }
}

pub(super) struct Machine {
    room: Room,
    pub(super) known: Known,
    /// Whether the other side may have asked for a segment again: then smoltcp may remember it.
    may_send_again: bool,
    /// Bytes of the longest packet on the way to the other side, if that is less than the LAN takes.
    path_mtu: Option<usize>,
}

impl Machine {
    fn new(pool: &mut Pool, manner: &Manner, remote: IpAddr) -> Machine {
        Machine {
            room: pool.take(manner),
            known: Known {
                remote,
                sent: Sent::default(),
                acknowledged: 0,
                first_received: 0,
                received: 0,
                window_shift: 0,
                agreed: Agreed::default(),
                has_no_delay: false,
                round_trip: RoundTrip::default(),
            },
            may_send_again: false,
            path_mtu: None,
        }
    }

    /// It is over: its socket goes back to the pool.
    pub(super) fn end(self, pool: &mut Pool) {
        pool.put(self.room, !self.may_send_again);
    }

    /// It has failed: nothing of its socket is used again.
    pub(super) fn break_down(self, pool: &mut Pool) {
        pool.put(self.room, false);
    }

    /// Sets how long packets may be on the way to the other side, if that is less than the LAN takes.
    pub(super) fn set_path_mtu(&mut self, mtu: Option<usize>) {
        self.path_mtu = mtu;
    }

    /// What may be sent in segments as long as the path takes. The first says what we take ourselves.
    fn path_mtu(&self) -> Option<usize> {
        let is_first = matches!(self.state(), State::SynSent | State::SynReceived);
        self.path_mtu.filter(|_| !is_first)
    }

    /// Whether the byte with this number was sent and is not acknowledged.
    pub(super) fn is_under_way(&self, number: u32) -> bool {
        let first = match self.known.sent.has_acknowledgement {
            true => self.known.acknowledged,
            false => self.known.sent.next.wrapping_sub(1),
        };
        self.known.sent.is_any
            && number.wrapping_sub(first) < self.known.sent.next.wrapping_sub(first)
    }

    /// Whether the other side has all that was sent, and may be silent for as long as it likes.
    pub(super) fn is_idle(&self) -> bool {
        let may_be_silent =
            matches!(self.state(), State::Established | State::CloseWait | State::FinWait2);
        may_be_silent && self.socket().send_queue() == 0
    }

    /// One that asks for a connection. Its sequence numbers begin with what `seed` makes of them.
    pub(super) fn connect(
        engine: &Engine,
        pool: &mut Pool,
        manner: &Manner,
        local: SocketAddr,
        remote: SocketAddr,
        seed: u64,
    ) -> Option<Machine> {
        let mut machine = Machine::new(pool, manner, remote.ip());
        let mut first = interface(engine.mtu, seed, None);
        let local = IpListenEndpoint::from(endpoint(local));
        let begun = machine.socket_mut().connect(first.context(), endpoint(remote), local);
        machine.if_begun(begun.is_ok(), pool)
    }

    fn if_begun(self, has_begun: bool, pool: &mut Pool) -> Option<Machine> {
        if !has_begun {
            self.end(pool);
            return None;
        }
        Some(self)
    }

    /// One that has been asked for a connection, by this packet.
    pub(super) fn listen(
        pool: &mut Pool,
        manner: &Manner,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<Machine> {
        let mut machine = Machine::new(pool, manner, remote.ip());
        let begun = machine.socket_mut().listen(IpListenEndpoint::from(endpoint(local)));
        machine.if_begun(begun.is_ok(), pool)
    }

    /// Whether nothing is under way in either direction, and all has been said: it can do without its socket.
    pub(super) fn can_sleep(&self) -> bool {
        let Known { sent, window_shift, .. } = &self.known;
        let socket = self.socket();
        // The other side knows that there is room: it is not told again when this goes on.
        let window = match sent.is_beyond_first {
            true => usize::from(sent.window) << window_shift,
            false => usize::from(sent.window),
        };
        socket.state() == State::Established
            && socket.send_queue() == 0
            && !socket.can_recv()
            && self.known.acknowledged == sent.next
            && sent.acknowledged == self.expected()
            && window >= socket.recv_capacity().min(usize::from(u16::MAX)) / 2
    }

    /// Gives the socket of an idle connection back, and keeps what is known.
    pub(super) fn into_known(self, pool: &mut Pool) -> Known {
        let known = self.known;
        self.end(pool);
        known
    }

    /// A socket for a connection that has slept. It learns of the other side by a handshake that nobody else sees, with the
    /// numbers where they are.
    pub(super) fn wake(
        engine: &mut Engine,
        pool: &mut Pool,
        manner: &Manner,
        now: u64,
        (local, remote): (SocketAddr, SocketAddr),
        known: Known,
    ) -> Result<Machine, Broken> {
        let Known { sent, agreed, .. } = known;
        let seed = seed_for(sent.next.wrapping_sub(1));
        let machine = Machine::connect(engine, pool, manner, local, remote, seed);
        let mut machine = machine.ok_or(Broken)?;
        machine.known.agreed = agreed;
        let (mut output, mut counters) = (Output::default(), Counters::new());
        let mut room = Vec::new();
        let mut way = Way {
            link: &mut Nobody,
            output: &mut output,
            counters: &mut counters,
            room: &mut room,
        };
        let say = |flags, sequence| {
            let (acknowledgement, window) = (sent.next, sent.window_to_us);
            Bare { flags, sequence, acknowledgement, window }
        };
        let answer = say(SYN | ACK, sent.acknowledged.wrapping_sub(1));
        let answer = packet::first(remote, local, answer, &agreed).split_off(ETHERNET_BYTES);
        // The window of a first segment is not scaled: so it is said again.
        let window = say(ACK, sent.acknowledged);
        let window = packet::bare(remote, local, window).split_off(ETHERNET_BYTES);
        let mut shake = || -> Result<(), Broken> {
            machine.send_one(engine, now, &mut way)?;
            for packet in [&answer, &window] {
                machine.receive(engine, now, packet, None, &mut way)?;
                while machine.send_one(engine, now, &mut way)? {}
            }
            Ok(())
        };
        let shaken = shake();
        let is_there = machine.state() == State::Established
            && machine.known.sent.next == sent.next
            && machine.known.sent.acknowledged == sent.acknowledged;
        if shaken.is_err() || !is_there {
            machine.break_down(pool);
            return Err(Broken);
        }
        machine.known = known;
        machine.set_no_delay(known.has_no_delay);
        Ok(machine)
    }

    pub(super) fn socket(&self) -> &tcp::Socket<'static> {
        self.room.socket()
    }

    fn socket_mut(&mut self) -> &mut tcp::Socket<'static> {
        self.room.socket_mut()
    }

    pub(super) fn state(&self) -> State {
        self.socket().state()
    }

    /// The next byte that is expected: what RFC 9293 calls RCV.NXT.
    pub(super) fn expected(&self) -> u32 {
        let bytes = self.known.received.wrapping_add(self.socket().recv_queue() as u32);
        self.known
            .first_received
            .wrapping_add(1)
            .wrapping_add(bytes)
            .wrapping_add(u32::from(self.has_end()))
    }

    /// Whether the other side's stream has come to its end.
    pub(super) fn has_end(&self) -> bool {
        matches!(self.state(), State::CloseWait | State::LastAck | State::Closing | State::TimeWait)
    }

    /// Takes note of the other side's first segment.
    pub(super) fn begin(&mut self, segment: &Segment, transport: &[u8]) {
        self.known.first_received = segment.sequence;
        let agreed = packet::agreed(transport, self.known.remote.is_ipv4());
        let scales = agreed.window_shift.is_some();
        let capacity = self.socket().recv_capacity();
        self.known.window_shift = if scales { window_shift(capacity) } else { 0 };
        self.known.agreed = agreed;
    }

    /// How much of a segment's data is beyond what was asked for, and whether smoltcp is to be given it nevertheless.
    ///
    /// smoltcp drops what is too much, and would still believe that the segment's end is the end of the stream. It takes data
    /// behind that end. And it
    /// takes the window of our first segment as scaled, which it is not: then it has no room for what it takes.
    pub(super) fn excess(&self, segment: &Segment) -> Excess {
        let Sent { is_beyond_first, window, acknowledged, .. } = self.known.sent;
        let end = match is_beyond_first {
            true => acknowledged.wrapping_add(u32::from(window) << self.known.window_shift),
            false => self.known.first_received.wrapping_add(1).wrapping_add(window.into()),
        };
        // Where the other side's stream has ended there is no more of it (RFC 9293 3.10.7.4, seventh step).
        let end = if self.has_end() { self.expected().wrapping_sub(1) } else { end };
        if segment.data_bytes == 0 || !is_before(end, segment.data_end()) {
            return Excess::None;
        }
        let bytes = segment.data_end().wrapping_sub(end) as usize;
        match is_beyond_first && !self.has_end() {
            true => Excess::End,
            false => Excess::Data(bytes.min(segment.data_bytes)),
        }
    }

    /// Whether a segment is where the next is expected, or behind that and within our window.
    pub(super) fn is_acceptable(&self, segment: &Segment) -> bool {
        let expected = self.expected();
        let ahead = segment.sequence.wrapping_sub(expected) as usize;
        ahead <= self.socket().recv_capacity() || self.reaches_over(expected, segment)
    }

    /// Whether a bare acknowledgement begins behind the next byte that is expected, and not behind what was ever asked for.
    ///
    /// What is before it was sent and lost, or not taken because the window has become smaller: smoltcp rounds windows down
    /// when it scales them. It drops an acknowledgement that begins where its window ends. So a side whose window is
    /// closed would never learn that the other has what it sent, and two such sides would stand still for ever.
    pub(super) fn is_ahead(&self, segment: &Segment) -> bool {
        // No window was ever longer than the room that there is now.
        let room = self.socket().recv_capacity() - self.socket().recv_queue();
        let ahead = segment.sequence.wrapping_sub(self.expected()) as usize;
        segment.is_bare() && ahead > 0 && ahead <= room
    }

    /// Whether a segment begins at the next byte that is expected, or before it, and has data behind it.
    pub(super) fn brings_data(&self, segment: &Segment) -> bool {
        let expected = self.expected();
        let is_next = segment.sequence == expected && segment.data_bytes > 0;
        is_next || self.reaches_over(expected, segment)
    }

    fn reaches_over(&self, expected: u32, segment: &Segment) -> bool {
        is_before(segment.sequence, expected) && is_before(expected, segment.data_end())
    }

    /// Whether a segment acknowledges what we may have sent, as far as anybody would say it now (RFC 5961 5.2).
    pub(super) fn acknowledges_rightly(&self, segment: &Segment) -> bool {
        let Known { sent, acknowledged, .. } = &self.known;
        let number = segment.acknowledgement;
        let is_young = !is_before(number, *acknowledged)
            || acknowledged.wrapping_sub(number) <= sent.window_to_us_max;
        segment.has(packet::ACK)
            && !is_before(sent.next, number)
            && (is_young || !sent.has_acknowledgement)
    }

    /// What the other side has acknowledged and offered since it sent a segment with data or an end, if it has.
    pub(super) fn said_since(&self, segment: &Segment) -> Option<(u32, u16)> {
        let Known { sent, acknowledged, .. } = &self.known;
        let is_old = sent.has_acknowledgement && is_before(segment.acknowledgement, *acknowledged);
        (is_old && segment.length() > 0).then_some((*acknowledged, sent.window_to_us))
    }

    /// By how many bits the other side's windows are shifted.
    pub(super) fn shift_to_us(&self) -> u32 {
        self.known.agreed.shift()
    }

    /// Takes note of what the other side acknowledges, if it can be true.
    pub(super) fn note_acknowledged(&mut self, now: u64, segment: &Segment) -> Progress {
        let number = segment.acknowledgement;
        let is_first = segment.has(packet::SYN);
        if !segment.has(packet::ACK) || !self.known.sent.is_any {
            return Progress::None;
        }
        if !is_first && !self.is_acceptable(segment) {
            return Progress::None;
        }
        let is_news =
            !self.known.sent.has_acknowledgement || is_before(self.known.acknowledged, number);
        let is_possible = !is_before(self.known.sent.next, number);
        if is_news && is_possible {
            self.known.acknowledged = number;
            self.known.sent.has_acknowledgement = true;
            let Known { round_trip, sent, .. } = &mut self.known;
            round_trip.end(now, number, sent.resent);
        }
        let shift = if is_first { 0 } else { self.known.agreed.shift() };
        let sent = &mut self.known.sent;
        sent.window_to_us_max = sent.window_to_us_max.max(u32::from(segment.window) << shift);
        // What is older than the last acknowledgement says nothing of the window (RFC 9293 3.10.7.4, fifth step).
        if !is_first && !is_before(number, self.known.acknowledged) {
            sent.window_to_us = segment.window;
        }
        self.may_send_again |= !is_news && segment.is_bare();
        match is_news && is_possible {
            true => Progress::Some,
            false if number == self.known.acknowledged && segment.window == 0 => Progress::Closed,
            false => Progress::None,
        }
    }

    /// A segment that asks the other side for an acknowledgement, and changes nothing (RFC 9293 3.8.4).
    pub(super) fn question(&self) -> packet::Bare {
        packet::Bare {
            flags: packet::ACK,
            sequence: self.known.sent.next.wrapping_sub(1),
            acknowledgement: self.expected(),
            window: self.window_to_say(),
        }
    }

    /// The window that was offered last, as a segment says it that is not the first.
    pub(super) fn window_to_say(&self) -> u16 {
        self.known.window_to_say()
    }

    /// What the state machine has to send, or to send again, although nothing may be due.
    ///
    /// smoltcp has one timer for three purposes. It gives up sending again where the window closes meanwhile, and does not
    /// begin again when the window opens; it does not ask whether the window is open where it closed while it was about
    /// to send again; and it gives up sending the end of the stream again where acknowledgements come three times.
    pub(super) fn unacknowledged(&self) -> Unacknowledged {
        let has_end = match self.state() {
            State::FinWait1 | State::Closing | State::LastAck => true,
            State::Established | State::CloseWait => false,
            _ => return Unacknowledged::Nothing,
        };
        match (self.socket().send_queue(), has_end) {
            _ if !self.known.sent.has_acknowledgement => Unacknowledged::Nothing,
            (0, true) => Unacknowledged::End,
            (0, false) => Unacknowledged::Nothing,
            _ => Unacknowledged::Bytes,
        }
    }

    /// Packets that make a state machine go on that has bytes to send and no timer. They say what the other side has said
    /// before.
    pub(super) fn reminders(&self, local: SocketAddr, remote: SocketAddr) -> Vec<Vec<u8>> {
        let say = |window: u16| {
            let bare = packet::Bare {
                flags: packet::ACK,
                sequence: self.expected(),
                acknowledgement: self.known.acknowledged,
                window,
            };
            packet::bare(remote, local, bare).split_off(ETHERNET_BYTES)
        };
        match self.known.sent.window_to_us {
            // That the window is closed: then it asks.
            0 => vec![say(0)],
            // News, and then three times nothing new: then it sends again (RFC 5681 3.2).
            window => [window ^ 1, window, window, window, window].map(say).to_vec(),
        }
    }

    /// Receives a packet of this connection. With `seed`, the packet is the first.
    pub(super) fn receive<L: Link>(
        &mut self,
        engine: &mut Engine,
        now: u64,
        packet: &[u8],
        seed: Option<u64>,
        way: &mut Way<'_, L>,
    ) -> Result<(), Broken> {
        let (mtu, path_mtu, mut first) = (engine.mtu, self.path_mtu(), None);
        let interface = match seed {
            Some(seed) => first.insert(interface(mtu, seed, None)),
            None => engine.interface(self.known.has_short_segments(), path_mtu),
        };
        let Machine { room, known: Known { sent, remote, window_shift, .. }, .. } = self;
        let mut tap =
            Tap { mtu, input: Some(packet), to: *remote, window_shift: *window_shift, sent, way };
        guard(|| interface.poll_ingress_single(instant(now), &mut tap, &mut room.set))
            .map(|_: PollIngressSingleResult| ())
    }

    /// Sends one segment, if there is one to send. False if there is none, or it would have to wait.
    pub(super) fn send_one<L: Link>(
        &mut self,
        engine: &mut Engine,
        now: u64,
        way: &mut Way<'_, L>,
    ) -> Result<bool, Broken> {
        let (mtu, path_mtu) = (engine.mtu, self.path_mtu());
        let interface = engine.interface(self.known.has_short_segments(), path_mtu);
        let Machine { room, known: Known { sent, remote, round_trip, window_shift, .. }, .. } =
            self;
        let before = sent.next;
        let mut tap = Tap { mtu, input: None, to: *remote, window_shift: *window_shift, sent, way };
        let has_sent = guard(|| {
            interface.poll_egress(instant(now), &mut tap, &mut room.set) != PollResult::None
        });
        if sent.next != before {
            round_trip.begin(now, sent);
        }
        has_sent
    }

    /// When something is to be done without being asked, in nanoseconds.
    pub(super) fn due(&mut self, engine: &mut Engine, now: u64) -> Result<Option<u64>, Broken> {
        let interface = engine.interface(self.known.has_short_segments(), self.path_mtu());
        let due = guard(|| interface.poll_at(instant(now), &self.room.set))?;
        Ok(due.map(|due| due.total_micros().max(0) as u64 * 1000))
    }

    /// Gives what has come to `take`, which says how much of it it takes.
    pub(super) fn take<R>(&mut self, take: impl FnOnce(&[u8]) -> (usize, R)) -> Option<R> {
        let mut taken = 0;
        // What a program does with its bytes is its own affair, and so are its panics.
        let result = self.socket_mut().recv(|bytes| {
            let (count, result) = take(bytes);
            taken = count.min(bytes.len());
            (taken, result)
        });
        self.known.received = self.known.received.wrapping_add(taken as u32);
        result.ok()
    }

    /// What has come and is not taken, from its beginning, as far as it lies in one piece.
    pub(super) fn peek(&mut self) -> &[u8] {
        let bytes = self.socket().recv_queue();
        self.socket_mut().peek(bytes).unwrap_or_default()
    }

    /// Whether there is room for what is to be sent, and enough of it.
    ///
    /// A program that writes into whatever room there is sends segments as short as the last acknowledgement was, and these
    /// are acknowledged one by one: a full buffer would stay with short segments for good.
    pub(super) fn has_room(&self) -> bool {
        let socket = self.socket();
        let room = socket.send_capacity() - socket.send_queue();
        socket.can_send() && room >= socket.send_capacity() / ROOM_PART
    }

    /// Gives the room for what is to be sent to `fill`, which says how much of it it has filled.
    pub(super) fn fill<R>(&mut self, fill: impl FnOnce(&mut [u8]) -> (usize, R)) -> Option<R> {
        let filled = self.socket_mut().send(|room| {
            let (count, result) = fill(room);
            (count.min(room.len()), result)
        });
        filled.ok()
    }

    /// Sends nothing more.
    pub(super) fn close(&mut self) {
        self.socket_mut().close();
    }

    /// Ends it with a reset.
    pub(super) fn abort(&mut self) {
        self.socket_mut().abort();
    }

    pub(super) fn set_no_delay(&mut self, is_on: bool) {
        self.known.has_no_delay = is_on;
        self.socket_mut().set_nagle_enabled(!is_on);
    }
}

fn endpoint(address: SocketAddr) -> IpEndpoint {
    IpEndpoint::new(address.ip().into(), address.port())
}

fn capabilities(mtu: usize, segments_bytes_max: Option<usize>) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = mtu;
    let mut checksum = ChecksumCapabilities::ignored();
    checksum.ipv4 = Checksum::Tx;
    capabilities.checksum = checksum;
    // What smoltcp makes of IPv6 forgets into which segments it is to be cut: so those are made one by one.
    capabilities.segmentation.tcpv4 = segments_bytes_max.and_then(std::num::NonZeroUsize::new);
    capabilities
}

/// Bytes of the longest packet that stands for segments: no more of them than a frame may have.
fn segments_bytes_max(mtu: usize) -> usize {
    let data = mtu - packet::IPV4_BYTES - packet::TCP_BYTES;
    (data * SEGMENTS_MAX).min(SEGMENTS_BYTES_MAX).max(mtu)
}

/// Whether a sequence number comes before another.
pub(super) fn is_before(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}

/// A link that takes everything, and nothing comes of it.
struct Nobody;

impl Link for Nobody {
    fn transmit(&mut self, _: usize, _: IpAddr, _: Offload, _: &mut [u8]) -> Result<(), Unsent> {
        Ok(())
    }

    fn answer(&mut self, _: usize, _: Offload, _: &[u8]) {}

    fn may_send_from(&mut self, _: usize, _: &[u8], _: IpAddr) -> bool {
        true
    }
}
