//! Short frames from a network interface: into a guest by way of an OSA adapter with AF_XDP, or into a bare AF_XDP socket.
//!
//! ```text
//! source -- veth -- AF_XDP -- adapter -- target     guest
//! source -- veth -- AF_XDP ------------- target     bare
//! ```
//!
//! Frames are datagrams of IP, so that the adapter finds the guest that has the address; or segments of as many connections as the guest has registered, one after the
//! other, which the adapter looks up. Each is numbered. One that finds no room is lost, as over any Ethernet, and counted.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use net::lan::frame::ETHERNET_BYTES;
use os::poller::Poller;
use os::processor::thread_ns;
use os::xdp::{XdpOptions, XdpSocket};
use port::wires::WireKind;
use siga::osa::{BulkState, Connection, Inbperf, Osa, OsaOptions, Request, Workload as Sorted};

use super::pace::{Pace, RATE};
use super::prelude::*;
use super::stream::{ADAPTER_WAIT, GAP_US, HOLD_OFF_US};
use super::{LATENCIES, RATES, check_work};
use crate::factor::is_absent;
use crate::role::{ADAPTER, Address, TARGET};
use crate::transport::adapters::{ADDRESSES, MACS, UP_MAX, device_with, wait_by};
use crate::transport::cable::{Cable, HERE, THERE, THERE_ADDRESS, THERE_MAC, enter, unable};
use crate::transport::osa::serve_one;

pub(super) const WORKLOAD: Workload = Workload {
    name: "wire-frames",
    summary: "frames of 64 B come over a veth into a guest at an adapter with AF_XDP, or into a bare AF_XDP socket",
    factors: &[
        Factor {
            name: "receiver",
            meaning: "who receives: a guest at an OSA adapter, or a bare AF_XDP socket",
            domain: Domain::Words(&["guest", "bare"]),
            usual: &["guest", "bare"],
        },
        Factor {
            meaning: "frames that are sent in a second; 0: as many as go",
            usual: &["100000"],
            ..RATE
        },
        Factor { meaning: "how a guest or a bare receiver waits", ..WAIT },
        Factor { meaning: "how an adapter waits; left out: as its guest", ..ADAPTER_WAIT },
        HOLD_OFF_US,
        GAP_US,
        REGISTERED,
    ],
    roles: &[
        role::host(adapters),
        RoleSpec { name: ADAPTER, count: adapters, attends: true, ..role::ONE },
        A_SOURCE,
        A_TARGET,
    ],
    measures: &[RATES, LATENCIES, &["cpu_ns_per_message"]],
    fit,
    work: |order, control| match &*order.role {
        ADAPTER => adapter(order, control),
        TARGET if is_bare(&order.factors) => bare(order, control),
        TARGET => guest(order, control),
        _ => source(order, control),
    },
    check,
    ..PLAIN
};

/// Something has come; and where connections were registered, all of it by the queue of bulk data.
fn check(reports: &Reports) -> Result<(), Fault> {
    check_work(reports, "messages")?;
    for report in reports.of(TARGET) {
        let count = |name: &str| report.counters.get(name).copied().unwrap_or(0);
        let packets = count("device_input_packets");
        if report.counters.contains_key(REGISTERED.name) && count(BULK_PACKETS) < packets {
            let bulk = count(BULK_PACKETS);
            let why = format!("{bulk} of {packets} came by the queue of bulk data");
            return Err(Fault::Refused { what: "sort packets", why });
        }
    }
    Ok(())
}

/// Connections that a guest registers.
const REGISTERED: Factor = Factor {
    name: "registered",
    meaning: "connections of TCP that the guest has registered as bulk data, of which the frames are segments; left out: frames are datagrams",
    domain: Domain::Number { least: 1, most: 16_384 },
    usual: &[],
};

/// The ports of these connections: the guest's, and the first of the others.
const LOCAL_PORT: u16 = 9;
const PEER_PORT: u16 = 1024;
const PORT_AT: usize = ETHERNET_BYTES + IP_BYTES;

/// Bytes of a frame, without its check sequence, and its parts: the headers of Ethernet, IP and UDP, its number, and when it was sent.
const FRAME_BYTES: usize = 64;
const IP_BYTES: usize = 20;
const NUMBER_AT: usize = ETHERNET_BYTES + IP_BYTES + 8;
const TIME_AT: usize = NUMBER_AT + 8;
const END: usize = TIME_AT + 8;
const _: () = assert!(END <= FRAME_BYTES);

/// Protocols of IP.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The MTU of the veth.
const MTU: u64 = 1500;

/// Frames that are sent or received before the clock is read.
const BATCH: usize = 32;

/// Of so many frames one has its time taken.
const STRIDE: u64 = 64;

/// What a target counts that has registered connections: packets that came by the queue of bulk data.
const BULK_PACKETS: &str = "device_rd2_packets";

/// What a target counts: frames that found no room, and processor time of looking in vain.
const LOST: &str = "frames_lost";
const SPINNING: &str = "spinning_ns";

fn is_bare(factors: &Factors) -> bool {
    word(factors, "receiver") == "bare"
}

/// How many adapters there are, each with a host.
fn adapters(factors: &Factors) -> usize {
    usize::from(word(factors, "receiver") == "guest")
}

/// Whether a trial of this order has an adapter that is to hear when its host listens.
pub(super) fn has_adapter(order: &Order) -> bool {
    order.workload == WORKLOAD.name && adapters(&order.factors) > 0
}

fn fit(factors: &mut Factors) {
    factors.retain(|name, level| !is_absent(name, level));
    if !is_bare(factors) {
        return;
    }
    for factor in [ADAPTER_WAIT, HOLD_OFF_US, GAP_US, REGISTERED] {
        factors.remove(factor.name);
    }
    if word(factors, "wait") == "adaptive" {
        factors.insert("wait".to_owned(), Level::Word("block".to_owned()));
    }
}

/// Serves the adapter until the others are done.
fn adapter(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let mut order = order.clone();
    let wait = order.factors["wait"].clone();
    order.factors.entry(ADAPTER_WAIT.name.to_owned()).or_insert(wait);
    order.factors.insert("mtu".to_owned(), Level::Number(MTU));
    serve_one(WireKind::Xdp, SOURCE, &order, control)
}

/// A frame of this protocol without number and time.
fn empty_frame(protocol: u8) -> [u8; FRAME_BYTES] {
    let [from, to] = [THERE_ADDRESS, ADDRESSES[0]].map(|address| match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    });
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&MACS[0].0);
    frame[6..12].copy_from_slice(&THERE_MAC.0);
    frame[12..ETHERNET_BYTES].copy_from_slice(&[8, 0]);
    let (ip, udp) = frame[ETHERNET_BYTES..].split_at_mut(IP_BYTES);
    let bytes = (FRAME_BYTES - ETHERNET_BYTES) as u16;
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&bytes.to_be_bytes());
    // It lives for 64 hops.
    ip[8..10].copy_from_slice(&[64, protocol]);
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..20].copy_from_slice(&to.octets());
    let sum: u32 = ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!folded as u16).to_be_bytes());
    // The port that discards what comes (RFC 863). A checksum of 0 is none.
    udp[..2].copy_from_slice(&LOCAL_PORT.to_be_bytes());
    udp[2..4].copy_from_slice(&LOCAL_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&(bytes - IP_BYTES as u16).to_be_bytes());
    frame
}

/// Sends frames until the window is over.
fn source(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let giver = if is_bare(&order.factors) { TARGET } else { ADAPTER };
    enter(&Address::of(giver, 0), control)?;
    let mut socket = XdpSocket::open(THERE, &XdpOptions::default())
        .map_err(|error| unable("AF_XDP socket", error))?;
    let registered = order.number_if_any(REGISTERED.name);
    let mut frame = empty_frame(if registered.is_some() { TCP } else { UDP });
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(FRAME_BYTES));
    let mut pace = Pace::of(order, now_ns());
    if pace.is_some() {
        meter = meter.timing("latency", 1);
    }
    let (mut number, mut now) = (0_u64, now_ns());
    while now < window.end_ns {
        if let Some(pace) = &pace {
            let edge_ns = meter.edge_ns().min(window.end_ns);
            now = pace.wait(pace.due_ns().min(edge_ns), &mut meter);
        }
        for _ in 0..BATCH {
            // A frame by a schedule that is late has waited since it was due.
            let due_ns = pace.as_ref().map_or(now, Pace::due_ns);
            if due_ns > now {
                break;
            }
            frame[NUMBER_AT..TIME_AT].copy_from_slice(&number.to_le_bytes());
            frame[TIME_AT..END].copy_from_slice(&due_ns.to_le_bytes());
            if let Some(registered) = registered {
                let port = PEER_PORT + (number % registered) as u16;
                frame[PORT_AT..PORT_AT + 2].copy_from_slice(&port.to_be_bytes());
            }
            // What is full has room again after a flush.
            if socket.send(&[&frame], None).is_err() {
                break;
            }
            number += 1;
            if let Some(pace) = &mut pace {
                pace.answered(now);
            }
        }
        socket.flush().doing("send frames")?;
        now = meter.poll(now_ns(), number, Counts::new);
    }
    if let Some(pace) = &mut pace {
        let settings =
            leave_unsent(pace, number, window.end_ns, |late_ns| meter.time_late(late_ns));
        meter.add_settings(settings);
    }
    meter.close(number, Counts::new)
}

/// Ends a schedule of which `sent` frames have gone: those that were due and were not sent are counted, and of so many one has its time taken, as of
/// those that come.
fn leave_unsent(pace: &mut Pace, sent: u64, end_ns: u64, mut time_late: impl FnMut(u64)) -> Counts {
    let mut number = sent;
    pace.leave_unsent(end_ns, |late_ns| {
        if number.is_multiple_of(STRIDE) {
            time_late(late_ns);
        }
        number += 1;
    })
}

/// What was received.
#[derive(Debug, Default)]
struct Received {
    frames: u64,
    /// The number of the next frame, if none is lost.
    next: u64,
    lost: u64,
}

impl Received {
    /// Takes a frame.
    #[inline(always)]
    fn take(&mut self, frame: &[u8], meter: &mut Meter) -> Result<(), Fault> {
        let word = |at: usize| Some(u64::from_le_bytes(frame.get(at..at + 8)?.try_into().ok()?));
        let (Some(number), Some(sent_ns)) = (word(NUMBER_AT), word(TIME_AT)) else {
            return Err(Fault::Corrupt(self.next));
        };
        if frame.len() != FRAME_BYTES || number < self.next {
            return Err(Fault::Corrupt(self.next));
        }
        self.lost += number - self.next;
        self.next = number + 1;
        self.frames += 1;
        if number.is_multiple_of(STRIDE) {
            meter.time(now_ns().saturating_sub(sent_ns));
        }
        Ok(())
    }
}

/// Whoever receives.
trait Receiver {
    /// Takes some of the frames that are there, without waiting. Returns true if there were any.
    fn receive(&mut self, received: &mut Received, meter: &mut Meter) -> Result<bool, Fault>;

    /// Waits until something has come, or it is that time.
    fn wait_until(&mut self, until_ns: u64) -> Result<(), Fault>;

    /// What was counted so far.
    fn counts(&self) -> Counts {
        Counts::new()
    }
}

/// From here on a round may have lost the processor, so the thread's own clock says how long it took. A round takes some hundred nanoseconds.
const LONG_NS: u64 = 10_000;

/// Processor time of this thread in which it looked for frames and found none, by the clock that each round reads anyway. The thread's own clock is a system
/// call: at the ends of each time without frames it would be paid for by the receiver that finds frames in more pieces.
#[derive(Debug, Default)]
struct Spinning {
    ns: u64,
    /// When the round began, if the last has found nothing.
    since_ns: Option<u64>,
    /// What both clocks said at the end of the last long round.
    clocks: Option<[u64; 2]>,
}

impl Spinning {
    /// A round begins, and the one before has ended.
    #[inline(always)]
    fn begin(&mut self, now: u64, thread_ns: impl FnOnce() -> u64) {
        let Some(since_ns) = self.since_ns.take() else { return };
        let round_ns = now - since_ns;
        self.ns +=
            if round_ns < LONG_NS { round_ns } else { self.used(round_ns, [now, thread_ns()]) };
    }

    /// The round that began then has found nothing.
    #[inline(always)]
    fn found_nothing(&mut self, since_ns: u64) {
        self.since_ns = Some(since_ns);
    }

    /// What a long round used of the processor: what the thread has lost of it since the last one is taken off.
    #[cold]
    fn used(&mut self, round_ns: u64, [now, thread]: [u64; 2]) -> u64 {
        match self.clocks.replace([now, thread]) {
            Some([now_before, thread_before]) => {
                let lost_ns = (now - now_before).saturating_sub(thread - thread_before);
                round_ns.saturating_sub(lost_ns)
            }
            // Nobody knows.
            None => LONG_NS,
        }
    }
}

/// Receives until the window is over.
fn receive_all(
    mut receiver: impl Receiver,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(FRAME_BYTES)).timing("latency", 1);
    if let Some(registered) = order.number_if_any(REGISTERED.name) {
        meter.add_settings([(REGISTERED.name.to_owned(), registered)].into());
    }
    let mut received = Received::default();
    let mut spinning = (order.word("wait") == "spin").then(Spinning::default);
    loop {
        let now = now_ns();
        if let Some(spinning) = &mut spinning {
            spinning.begin(now, thread_ns);
        }
        let counts = || {
            let mut counts = receiver.counts();
            counts.insert(LOST.to_owned(), received.lost);
            let spinning_ns = spinning.as_ref().map(|spinning| spinning.ns);
            counts.extend(spinning_ns.map(|ns| (SPINNING.to_owned(), ns)));
            counts
        };
        if meter.poll(now, received.frames, counts) >= window.end_ns {
            return meter.close(received.frames, Counts::new);
        }
        let has_found = receiver.receive(&mut received, &mut meter)?;
        match &mut spinning {
            _ if has_found => {}
            Some(spinning) => spinning.found_nothing(now),
            None => receiver.wait_until(meter.edge_ns().min(window.end_ns))?,
        }
    }
}

/// An AF_XDP socket.
struct Bare {
    socket: XdpSocket,
    poller: Poller,
    _cable: Cable,
}

impl Receiver for Bare {
    #[inline(always)]
    fn receive(&mut self, received: &mut Received, meter: &mut Meter) -> Result<bool, Fault> {
        let mut done = Ok(());
        let found = self.socket.receive(BATCH, |frame| {
            if done.is_ok() {
                done = received.take(frame, meter);
            }
        });
        done.map(|()| found.packets > 0)
    }

    fn wait_until(&mut self, until_ns: u64) -> Result<(), Fault> {
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        self.poller.wait(Some(left)).doing("wait for frames").map(drop)
    }
}

/// Receives at an AF_XDP socket.
fn bare(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let cable = Cable::make(MTU as u32, false)?;
    let socket = XdpSocket::open(HERE, &XdpOptions::default());
    let socket = socket.map_err(|error| unable("AF_XDP socket", error))?;
    socket.add_address(MACS[0].0).doing("add an address")?;
    let poller = Poller::new().doing("make a poller")?;
    for (name, queue) in (0..).zip(socket.sockets()) {
        poller.add(queue, name).doing("wait for a socket")?;
    }
    let source = Address::of(SOURCE, 0);
    control.note_from(&source)?;
    control.pass_to(&source, "network", &[cable.there()])?;
    receive_all(Bare { socket, poller, _cable: cable }, order, control)
}

/// A device at an adapter.
struct AtDevice {
    osa: Osa,
}

impl Receiver for AtDevice {
    #[inline(always)]
    fn receive(&mut self, received: &mut Received, meter: &mut Meter) -> Result<bool, Fault> {
        let osa = &mut self.osa;
        let mut room = [0; FRAME_BYTES];
        for count in 0..BATCH {
            if osa.next_frame().is_none() {
                osa.finish();
                return Ok(count > 0);
            }
            let bytes = found(osa, &mut room).ok_or(Fault::Corrupt(received.next))?;
            received.take(&room[..bytes], meter)?;
        }
        Ok(true)
    }

    fn wait_until(&mut self, until_ns: u64) -> Result<(), Fault> {
        self.osa.wait_until(until_ns).doing("wait for frames")?;
        self.osa.poll(now_ns()).doing("serve a device").map(drop)
    }

    fn counts(&self) -> Counts {
        let [input, _] = self.osa.queues();
        let counts = [
            ("device_input_buffers", input.buffers),
            ("device_input_packets", input.packets),
            ("device_interrupts", self.osa.interrupts()),
            (BULK_PACKETS, self.osa.inputs().get(1).map_or(0, |bulk| bulk.packets)),
        ];
        counts.map(|(name, count)| (name.to_owned(), count)).into()
    }
}

/// Receives at a device.
fn guest(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let mut options = OsaOptions::default();
    options.wait = wait_by("wait", order);
    let osa = match order.number_if_any(REGISTERED.name) {
        None => device_with(0, &options, order)?,
        Some(registered) => {
            options.inputs = 2;
            let mut osa = device_with(0, &options, order)?;
            register(&mut osa, registered as u16)?;
            osa
        }
    };
    receive_all(AtDevice { osa }, order, control)
}

/// Has the segments of so many connections come by a queue of their own, and waits until the adapter has taken all.
fn register(osa: &mut Osa, registered: u16) -> Result<(), Fault> {
    osa.register(Request::Sort(Sorted::Bulk, 1));
    let local = SocketAddr::new(ADDRESSES[0], LOCAL_PORT);
    let deadline_ns = now_ns() + UP_MAX.as_nanos() as u64;
    for number in 0..registered {
        let peer = SocketAddr::new(THERE_ADDRESS, PEER_PORT + number);
        while !osa.set_bulk(Connection { local, peer }, BulkState::Bulk) {
            // Answers make room for more.
            if now_ns() > deadline_ns {
                return Err(Fault::Unable("the adapter does not answer".into()));
            }
            osa.wait_until(deadline_ns).doing("wait for an adapter")?;
            osa.poll(now_ns()).doing("serve a device")?;
            while osa.next_frame().is_some() {}
        }
    }
    // Requests are answered in order: this is the last.
    osa.register(Request::Tune(Inbperf::Balanced));
    osa.wait_until_up(UP_MAX).doing("wait for a device")?;
    match osa.take_refused_bulk() {
        None => Ok(()),
        Some(Connection { peer, .. }) => {
            Err(Fault::Unable(format!("the adapter takes no connection with {peer}")))
        }
    }
}

/// Copies the frame that was found, and returns how long it is; none if it is longer than a frame of this workload.
fn found(osa: &Osa, room: &mut [u8; FRAME_BYTES]) -> Option<usize> {
    let frame = osa.found()?;
    let bytes = frame.bytes();
    if !frame.read(0, room.get_mut(..bytes)?) {
        return None;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Window;

    #[test]
    fn frame_is_a_datagram_whose_header_sums_up() {
        let frame = empty_frame(UDP);
        assert_eq!(frame[..14], [2, 0, 0, 0, 10, 1, 2, 0, 0, 0, 11, 2, 8, 0]);
        let ip = &frame[14..34];
        assert_eq!(ip[..10], [0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17]);
        let sum: u32 =
            ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(frame[34..42], [0, 9, 0, 9, 0, 30, 0, 0]);
    }

    #[test]
    fn bare_receiver_has_no_adapter_to_set() {
        let levels = [("receiver", "bare"), ("wait", "adaptive"), ("adapter_wait", "spin")];
        let mut factors: Factors =
            levels.map(|(name, level)| (name.to_owned(), Level::Word(level.to_owned()))).into();
        factors.extend([
            ("rate".to_owned(), Level::Number(0)),
            ("gap_us".to_owned(), Level::Number(0)),
        ]);
        fit(&mut factors);
        let left: Vec<String> =
            factors.iter().map(|(name, level)| format!("{name} {level}")).collect();
        assert_eq!(left, ["receiver bare", "wait block"]);
    }

    #[test]
    fn frames_that_are_missing_are_counted_and_one_that_comes_twice_is_none() {
        let window = Window { start_ns: 0, end_ns: 1 };
        let mut meter = Meter::new(window, &Order::default(), &units(FRAME_BYTES));
        let mut received = Received::default();
        let mut frame = empty_frame(UDP);
        for number in [0_u64, 1, 5] {
            frame[NUMBER_AT..TIME_AT].copy_from_slice(&number.to_le_bytes());
            received.take(&frame, &mut meter).unwrap();
        }
        assert_eq!((received.frames, received.lost), (3, 3));
        assert!(matches!(received.take(&frame, &mut meter), Err(Fault::Corrupt(6))));
        assert!(matches!(received.take(&frame[..60], &mut meter), Err(Fault::Corrupt(6))));
    }

    #[test]
    fn rounds_without_frames_are_added_and_of_long_ones_what_was_not_lost() {
        let never = || -> u64 { panic!("the thread's clock is a system call") };
        let mut spinning = Spinning::default();
        spinning.begin(100, never);
        spinning.found_nothing(100);
        spinning.begin(350, never);
        assert_eq!(spinning.ns, 250);
        // A round with frames is none.
        spinning.begin(900, never);
        assert_eq!(spinning.ns, 250);
        // The first long one is not known; the second has lost all but 20 us to others.
        spinning.found_nothing(1000);
        spinning.begin(101_000, || 50_000);
        assert_eq!(spinning.ns, 250 + LONG_NS);
        spinning.found_nothing(101_000);
        spinning.begin(201_000, || 70_000);
        assert_eq!(spinning.ns, 250 + LONG_NS + 20_000);
    }

    #[test]
    fn frames_that_are_not_sent_are_counted_and_some_of_them_timed() {
        let mut order = Order::default();
        order.factors.insert("rate".to_owned(), Level::Number(1_000_000));
        order.factors.insert("wait".to_owned(), Level::Word("block".to_owned()));
        let mut pace = Pace::of(&order, 0).unwrap();
        let mut late = Vec::new();
        let counts = leave_unsent(&mut pace, 1, 100_000, |late_ns| late.push(late_ns));
        assert_eq!(counts["requests_unsent"], 100);
        assert_eq!(late, [100_000 - 63_000], "the frame with the number 64");
    }
}
