//! The adapter: the devices of several guests in front of one wire.
//!
//! It has no thread and no clock: whoever has it calls [`Adapter::poll`], which does bounded work, and says when to call again.
//!
//! ```text
//!   wire --> from the wire --> data router --> input queue of a device --.
//!                 |                                ^                     | closed when full, after the idle gap, or after the hold-off
//!            neighbours                            |                     v
//!                 |                         guest to guest             guest
//!                 v                                |                     |
//!   wire <-- pending <------- devices in turn <----+--- output queues <--'
//! ```

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use fabric::name::Name;
use os::storage::LentPart;

use super::buffer::{Broken, Came, Found, NotPut, Over, Room, Walk};
use super::control::{Port, Refused, Request, Router as Role, Stopped, What};
use super::device::{Device, DropReason, Drops, REGISTERED_MAX, State};
use super::packet::{Cast, FRAME_BYTES_MAX, Header, Layer};
use super::router::{Router, group_mac};
use super::wire::{Carrier, NotSent, Wire};
use crate::lan::admission::has_tag;
use crate::lan::frame::{ETHERNET_BYTES, Mac, destination, source, u16_at};
use crate::lan::link::FrameInPlace;
use crate::lan::neighbour::{announcement, answer};
use crate::lan::offload::{Checksum, Offload, START_BYTES, segment};
use crate::tcpip::Secret;
use crate::tcpip::neighbours::{
    Cache, Found as At, Heard, Kind, Sender, Step, Waiting, parse, question, solicited_node,
};
use crate::wire::wire_bytes;

/// Frames that are received before devices have their turn.
const RECEIVED_PER_POLL: usize = 64;

/// Bytes that a device sends in its turn: half a buffer.
const QUANTUM_BYTES: i64 = 32 << 10;

/// Bytes that a buffer costs beside its packets.
const BUFFER_COST_BYTES: i64 = 64;

/// Turns of devices in one poll.
const TURNS_PER_POLL: usize = 16;

/// Buffers of one output queue before those of less urgent ones (the default weight of OSA's priority queues).
const WEIGHT: u32 = 4;

/// Frames of the adapter's own that wait for the wire: answers about neighbours, and segments of one frame.
const PENDING_MAX: usize = 1024;

/// The interval between two looks at the state of the wire.
const LOOK_NS: u64 = 250_000_000;

/// The same after an error of the wire.
const LOOK_AGAIN_NS: u64 = 10_000_000;

/// When a wire is tried again that was full and does not say when it will have room.
const FULL_NS: u64 = 50_000;

/// When a buffer is tried again that its device did not take.
const RETRY_NS: u64 = 1_000_000;

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// The longest packet of a port that is no jumbo.
const ORDINARY_MTU: usize = 1500;

/// When a buffer with packets for a guest is handed over: the block timers of OSA (`BLKT` of the queue information block).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// The longest time from the first packet in a buffer until the guest has the buffer, in nanoseconds.
    pub hold_off_ns: u64,
    /// A buffer is handed over when no other packet has begun for so long after a packet.
    pub gap_ns: u64,
    /// The same on a port of jumbo frames.
    pub gap_jumbo_ns: u64,
    /// Packets after which a buffer is handed over in any case.
    pub packets_max: u16,
}

impl Moderation {
    /// Each poll hands over what it has received.
    pub const NONE: Moderation =
        Moderation { hold_off_ns: 0, gap_ns: 0, gap_jumbo_ns: 0, packets_max: u16::MAX };
}

impl Default for Moderation {
    /// As Linux sets them for OSA-Express2 and later (`drivers/s390/net/qeth_core_main.c`): 250, 5 and 15 us.
    fn default() -> Moderation {
        Moderation { hold_off_ns: 250_000, gap_ns: 5_000, gap_jumbo_ns: 15_000, ..Moderation::NONE }
    }
}

/// The devices, which their maker keeps. Each has a number.
pub trait Ends {
    /// The device of this number, if there is one.
    fn device(&mut self, number: usize) -> Option<&mut Device>;
}

impl Ends for Vec<Option<Device>> {
    fn device(&mut self, number: usize) -> Option<&mut Device> {
        self.get_mut(number)?.as_mut()
    }
}

/// What an adapter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames from one device to another that never reached the wire.
    pub frames_between: u64,
    /// Bytes of these.
    pub bytes_between: u64,
    /// Buffers handed over because the next packet did not fit.
    pub closed_full: u64,
    /// Buffers handed over because nothing had come for the idle gap.
    pub closed_gap: u64,
    /// Buffers handed over because the hold-off was over.
    pub closed_hold_off: u64,
    /// Buffers handed over because they had as many packets as they may have.
    pub closed_packets: u64,
    /// Questions about neighbours answered for devices of layer 3.
    pub answered: u64,
    /// Questions about neighbours asked for them.
    pub asked: u64,
    /// Devices stopped because their guests broke a rule.
    pub stopped: u64,
}

/// What a poll has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// Set if there may be more to do at once.
    pub has_more: bool,
    /// Set if anything was done.
    pub has_worked: bool,
}

/// An adapter.
pub struct Adapter {
    wire: Box<dyn Wire>,
    core: Core,
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Adapter").field("core", &self.core).finish_non_exhaustive()
    }
}

/// All but the wire.
#[derive(Debug)]
struct Core {
    moderation: Moderation,
    secret: Secret,
    router: Router,
    /// Addresses that are kept for one guest each.
    reserved: HashMap<IpAddr, Name>,
    /// Neighbours, by VLAN: 0 without.
    caches: Vec<(u16, Cache)>,
    /// Devices that have something to send, in turn.
    rotation: VecDeque<usize>,
    /// Input queues with a buffer that is being filled: device and queue.
    open: Vec<(usize, usize)>,
    /// When the first of these is handed over.
    open_due: Option<u64>,
    /// Frames that go before all others.
    pending: VecDeque<(Offload, Vec<u8>)>,
    /// A frame in one piece, and a segment of it.
    whole: Vec<u8>,
    segment: Vec<u8>,
    mac: Mac,
    mtu: usize,
    completes_checksums: bool,
    cuts_segments: bool,
    rate: Option<u64>,
    /// How long the longest packet is on the wire.
    packet_ns: u64,
    is_up: bool,
    is_gone: bool,
    /// Set since the wire was full in this poll.
    is_full: bool,
    /// When to try again since it was full.
    full_due: Option<u64>,
    /// How often each MAC address was asked for at the wire.
    at_wire: HashMap<Mac, u32>,
    look_ns: u64,
    counters: Counters,
    drops: Drops,
}

/// A frame of which the start is at hand, and the rest may be elsewhere.
#[derive(Clone, Copy)]
struct Piece<'a> {
    offload: Offload,
    start: &'a [u8],
    rest: Option<LentPart<'a>>,
}

impl Piece<'_> {
    fn bytes(&self) -> usize {
        self.start.len() + self.rest.map_or(0, |rest| rest.bytes())
    }

    fn write(&self, target: &mut [u8]) {
        let (start, end) = target.split_at_mut(self.start.len());
        start.copy_from_slice(self.start);
        if let Some(rest) = self.rest {
            // As long as the rest is: the target has the bytes of the frame.
            let _ = rest.read(0, end);
        }
    }

    fn in_place(&self) -> FrameInPlace<'_> {
        FrameInPlace { offload: self.offload, start: self.start, rest: self.rest }
    }
}

/// Where a guest's packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// To a device of this port.
    Device(usize),
    /// To this MAC address on the wire.
    Wire(Mac),
    /// To a group, or to all.
    Group(Mac),
    /// To the adapter itself.
    Port,
    /// To this neighbour, wherever it is.
    Neighbour(IpAddr),
}

/// The wire is full: the frame is tried again.
struct Full;

/// The addresses of a packet, and its family.
fn ip_of(frame: &[u8]) -> Option<(IpAddr, IpAddr, u16)> {
    let ip = frame.get(ETHERNET_BYTES..)?;
    let v4 = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<4>()?));
    let v6 = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<16>()?));
    match ip.first()? >> 4 {
        4 if ip.len() >= IPV4_BYTES => Some((v4(12)?, v4(16)?, IPV4)),
        6 if ip.len() >= IPV6_BYTES => Some((v6(8)?, v6(24)?, IPV6)),
        _ => None,
    }
}

/// Returns true if a packet of IPv6 asks or says where neighbours and routers are (RFC 4861), or if its headers go on beyond what is at hand, so that it
/// might.
fn says_of_neighbours(start: &[u8]) -> bool {
    let Some(ip) =
        start.get(ETHERNET_BYTES..).filter(|ip| ip.first().is_some_and(|first| first >> 4 == 6))
    else {
        return false;
    };
    let (Some(mut next), mut at) = (ip.get(6).copied(), IPV6_BYTES) else { return false };
    loop {
        let Some(header) = ip.get(at..) else { return true };
        match (next, header) {
            // Hop by hop, routing, destination.
            (0 | 43 | 60, [following, units, ..]) => {
                next = *following;
                at += 8 * (usize::from(*units) + 1);
            }
            (0 | 43 | 60, _) => return true,
            (ICMPV6, [kind, ..]) => return (133..=137).contains(kind),
            _ => return false,
        }
    }
}

/// Returns true if a host can have this address.
fn is_host(address: IpAddr) -> bool {
    let is_all = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback() || is_all)
}

impl Adapter {
    /// An adapter in front of a wire. Nobody must be able to guess the secret.
    pub fn new(wire: Box<dyn Wire>, moderation: Moderation, secret: [u8; 16]) -> Adapter {
        let core = Core {
            moderation,
            secret: Secret(secret),
            router: Router::default(),
            reserved: HashMap::new(),
            caches: Vec::new(),
            rotation: VecDeque::new(),
            open: Vec::new(),
            open_due: None,
            pending: VecDeque::new(),
            whole: Vec::new(),
            segment: Vec::new(),
            mac: wire.mac(),
            mtu: 0,
            completes_checksums: false,
            cuts_segments: false,
            rate: None,
            packet_ns: 0,
            is_up: true,
            is_gone: false,
            is_full: false,
            full_due: None,
            at_wire: HashMap::new(),
            look_ns: 0,
            counters: Counters::default(),
            drops: Drops::default(),
        };
        let mut adapter = Adapter { wire, core };
        adapter.take_capabilities();
        adapter
    }

    /// Uses another wire from now on: the one before is gone. Devices are told what the port is like.
    ///
    /// # Errors
    /// The kernel's: the new wire does not take the addresses of devices. It is used all the same, without these.
    pub fn set_wire(&mut self, wire: Box<dyn Wire>, ends: &mut impl Ends) -> std::io::Result<()> {
        self.wire = wire;
        self.core.mac = self.wire.mac();
        let mut taken = Ok(());
        for mac in self.core.at_wire.keys() {
            taken = taken.and(self.wire.add_address(*mac));
        }
        self.core.is_up = self.wire.look().0 == Carrier::Up;
        self.core.is_gone = false;
        self.take_capabilities();
        self.core.tell_port(ends);
        taken
    }

    /// The wire.
    pub fn wire(&self) -> &dyn Wire {
        &*self.wire
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// Frames from the wire that were dropped before they were a device's.
    pub fn drops(&self) -> &Drops {
        &self.core.drops
    }

    /// When buffers are handed over, from now on.
    pub fn set_moderation(&mut self, moderation: Moderation) {
        self.core.moderation = moderation;
    }

    /// Keeps an address for the devices of this guest, from now on: no other device registers it or sends from it. A device that has registered it before
    /// goes on.
    pub fn reserve(&mut self, address: IpAddr, guest: Name) {
        self.core.reserved.insert(address, guest);
    }

    /// Returns true if the wire was gone when it was looked at last, and another is to be set.
    pub fn is_gone(&self) -> bool {
        self.core.is_gone
    }

    /// The wire's descriptor was readable. A medium that may be up again is looked at in the next poll.
    pub fn note_wire_ready(&mut self) {
        if self.wire.on_ready() {
            self.core.look_ns = 0;
        }
    }

    /// A device may have something to send: it has its turn in the next poll.
    pub fn note_ready(&mut self, number: usize, ends: &mut impl Ends) {
        if let Some(device) = ends.device(number) {
            self.core.wait_for_turn(number, device);
        }
    }

    /// A device is gone: what it has registered is forgotten. To be called before its number is used again.
    pub fn leave(&mut self, number: usize, device: &mut Device) {
        device.give_back();
        self.core.forget(number, device, &mut *self.wire);
        self.core.rotation.retain(|one| *one != number);
        self.core.open.retain(|(one, _)| *one != number);
        device.is_waiting = false;
    }

    /// When to poll though nobody has anything new.
    pub fn due(&self) -> Option<u64> {
        let caches = self.core.caches.iter().filter_map(|(_, cache)| cache.due());
        let Core { open_due, full_due, look_ns, .. } = self.core;
        let dues = [open_due, full_due, self.wire.due(), Some(look_ns)];
        caches.chain(dues.into_iter().flatten()).min()
    }

    /// Moves frames both ways, and does what is due.
    ///
    /// A wire that is of no more use is looked at soon: devices go on, and reach each other.
    pub fn poll(&mut self, now: u64, ends: &mut impl Ends) -> Worked {
        self.core.is_full = false;
        if now >= self.core.look_ns {
            self.core.look_ns = now + LOOK_NS;
            self.look(ends);
        }
        let Adapter { wire, core } = self;
        let received = wire.receive(now, RECEIVED_PER_POLL, &mut |offload, frame| {
            core.take_frame(now, ends, offload, frame);
        });
        core.poll_neighbours(now, ends);
        core.send_pending(now, &mut **wire);
        let has_sent = core.serve(now, ends, &mut **wire);
        core.send_pending(now, &mut **wire);
        // Behind what was received and sent: so a wire that has come to rest is seen to rest.
        let has_closed = core.close_due(now, ends);
        wire.flush(now);
        // A wire that says nothing of when it has room is tried again after a while.
        core.full_due = core.is_full.then(|| wire.due().unwrap_or(now + FULL_NS));
        let received = received.unwrap_or_else(|_| {
            core.look_ns = core.look_ns.min(now + LOOK_AGAIN_NS);
            0
        });
        Worked {
            has_more: received == RECEIVED_PER_POLL || !core.rotation.is_empty() && !core.is_full,
            has_worked: received > 0 || has_sent || has_closed,
        }
    }

    fn look(&mut self, ends: &mut impl Ends) {
        let (carrier, has_changed) = self.wire.look();
        self.core.is_gone = carrier == Carrier::Gone;
        let is_up = carrier == Carrier::Up;
        if has_changed || is_up != self.core.is_up {
            self.core.is_up = is_up;
            self.take_capabilities();
            self.core.tell_port(ends);
        }
    }

    fn take_capabilities(&mut self) {
        let capabilities = self.wire.capabilities();
        self.core.mtu = capabilities.mtu;
        self.core.completes_checksums = capabilities.completes_checksums;
        self.core.cuts_segments = capabilities.cuts_segments;
        self.core.rate = capabilities.rate;
        self.core.packet_ns = capabilities.rate.map_or(0, |rate| {
            let bits = 8 * wire_bytes(ETHERNET_BYTES + capabilities.mtu) as u64;
            bits * 1_000_000_000 / rate.max(1)
        });
    }
}

impl Core {
    // Frames that go to devices.

    /// Takes a frame from the wire.
    fn take_frame(&mut self, now: u64, ends: &mut impl Ends, offload: Offload, frame: &[u8]) {
        let (Some(to), Some(from)) = (destination(frame), source(frame)) else {
            return self.drops.add(DropReason::Runt, 1);
        };
        if frame.len() > ETHERNET_BYTES + self.mtu && offload.segmentation.is_none() {
            return self.drops.add(DropReason::Long, 1);
        }
        if has_tag(frame) {
            return self.drops.add(DropReason::Vlan, 1);
        }
        // What one of ours has sent comes from elsewhere: a loop, or somebody who pretends to be one of them.
        if from == self.mac || from.is_group() || self.router.of_mac(from).is_some() {
            return self.drops.add(DropReason::Source, 1);
        }
        let piece = Piece { offload, start: frame, rest: None };
        let is_of_neighbours = self.hear(now, ends, &piece);
        let delivered = match to.is_group() {
            true => self.deliver_to_group(now, ends, to, None, &piece) > 0,
            false => match self.find(to, frame) {
                Some(device) => {
                    self.deliver(now, ends, device, &piece);
                    true
                }
                None => false,
            },
        };
        if !delivered && !is_of_neighbours {
            self.drops.add(DropReason::NoDevice, 1);
        }
    }

    /// The device that a frame to this MAC address is for.
    fn find(&self, to: Mac, frame: &[u8]) -> Option<usize> {
        if to != self.mac {
            return self.router.of_mac(to);
        }
        let (_, address, _) = ip_of(frame)?;
        self.router.of_packet(address)
    }

    /// Gives a frame to all devices that want it, but for the one that has sent it. Returns how many there were.
    fn deliver_to_group(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        to: Mac,
        from: Option<usize>,
        piece: &Piece<'_>,
    ) -> usize {
        let kind = u16_at(piece.start, 12);
        let mut targets: Vec<usize> = match to == Mac::BROADCAST {
            // The adapter answers for devices of layer 3: they get packets of IP alone.
            true if kind == Some(IPV4) => {
                let [two, three] =
                    [Layer::Two, Layer::Three].map(|layer| self.router.of_layer(layer));
                [two, three].concat()
            }
            true => self.router.of_layer(Layer::Two).to_vec(),
            false => self.router.of_group(to).to_vec(),
        };
        targets.retain(|one| Some(*one) != from);
        for device in &targets {
            self.deliver(now, ends, *device, piece);
        }
        targets.len()
    }

    /// Puts a frame into an input queue of a device.
    fn deliver(&mut self, now: u64, ends: &mut impl Ends, number: usize, piece: &Piece<'_>) {
        let Some(device) = ends.device(number) else { return };
        if !device.is_active() {
            return device.drops.add(DropReason::Inactive, 1);
        }
        if !device.takes_vlan(piece.offload.vlan) {
            return device.drops.add(DropReason::Vlan, 1);
        }
        if piece.bytes() > FRAME_BYTES_MAX {
            return self.deliver_cut(now, ends, number, piece);
        }
        self.put(now, device, number, piece);
    }

    fn put(&mut self, now: u64, device: &mut Device, number: usize, piece: &Piece<'_>) {
        let queue = 0;
        let header = Header::new(device.layer, piece.bytes(), piece.offload, None);
        let input = &mut device.inputs[queue];
        let (was_open, buffers) = (input.open_since().is_some(), input.counters().buffers);
        let put = input.put(now, &header, Room::Whole, |target| piece.write(target));
        self.counters.closed_full += input.counters().buffers - buffers;
        let is_open = input.open_since().is_some();
        match put {
            Ok(()) => {}
            Err(NotPut::Exhausted) => device.drops.add(DropReason::Exhausted, 1),
            Err(NotPut::Lacking(_)) => device.drops.add(DropReason::Lacking, 1),
            Err(NotPut::Severed) => device.is_over = true,
        }
        if is_open && !was_open {
            self.open.push((number, queue));
        }
    }

    /// A frame that is longer than a buffer stands for several segments: each goes by itself.
    #[cold]
    fn deliver_cut(&mut self, now: u64, ends: &mut impl Ends, number: usize, piece: &Piece<'_>) {
        let (mut whole, mut room) =
            (std::mem::take(&mut self.whole), std::mem::take(&mut self.segment));
        whole.resize(piece.bytes(), 0);
        piece.write(&mut whole);
        let offload = Offload { vlan: piece.offload.vlan, ..Offload::NONE };
        segment(piece.offload, &whole, &mut room, |bytes| {
            if let Some(device) = ends.device(number)
                && bytes.len() <= FRAME_BYTES_MAX
            {
                self.put(now, device, number, &Piece { offload, start: bytes, rest: None });
            }
        });
        (self.whole, self.segment) = (whole, room);
    }

    /// Hands over the buffers whose time has come. Returns true if there were any.
    fn close_due(&mut self, now: u64, ends: &mut impl Ends) -> bool {
        let Moderation { hold_off_ns, gap_ns, gap_jumbo_ns, packets_max } = self.moderation;
        let gap_ns = if self.mtu > ORDINARY_MTU { gap_jumbo_ns } else { gap_ns };
        // The gap ends when the next packet begins, of which nobody knows until all of it has come.
        let gap_ns = gap_ns.saturating_add(self.packet_ns);
        let (mut has_closed, mut due) = (false, None);
        let Core { open, counters, .. } = self;
        open.retain(|(number, queue)| {
            let Some(device) = ends.device(*number) else { return false };
            let input = &mut device.inputs[*queue];
            let Some((first, last, packets)) = input.open_since() else { return false };
            let (held, idle) = (first.saturating_add(hold_off_ns), last.saturating_add(gap_ns));
            let counter = if packets >= packets_max {
                &mut counters.closed_packets
            } else if now >= held {
                &mut counters.closed_hold_off
            } else if now >= idle {
                &mut counters.closed_gap
            } else {
                due = Some(due.unwrap_or(u64::MAX).min(held).min(idle));
                return true;
            };
            match input.close() {
                Ok(_) => *counter += 1,
                Err(NotPut::Exhausted) => {
                    due = Some(due.unwrap_or(u64::MAX).min(now + RETRY_NS));
                    return true;
                }
                Err(NotPut::Lacking(_)) => device.drops.add(DropReason::Lacking, packets.into()),
                Err(NotPut::Severed) => device.is_over = true,
            }
            has_closed = true;
            false
        });
        self.open_due = due;
        has_closed
    }

    // Frames that come from devices.

    fn wait_for_turn(&mut self, number: usize, device: &mut Device) {
        if !std::mem::replace(&mut device.is_waiting, true) {
            self.rotation.push_back(number);
        }
    }

    /// Serves devices in turn. Returns true if anything has gone.
    fn serve(&mut self, now: u64, ends: &mut impl Ends, wire: &mut dyn Wire) -> bool {
        let (mut has_sent, mut blocked) = (false, Vec::new());
        let mut turns = 0;
        for _ in 0..self.rotation.len() {
            // Those that wait for the wire keep nobody from what does not need it.
            if turns == TURNS_PER_POLL {
                break;
            }
            let Some(number) = self.rotation.pop_front() else { break };
            match self.serve_device(now, ends, wire, number, &mut has_sent) {
                Some(Full) => blocked.push(number),
                None => {
                    turns += 1;
                    let Some(device) = ends.device(number) else { continue };
                    device.is_waiting = false;
                    if device.has_output() && !device.is_over() {
                        self.wait_for_turn(number, device);
                    }
                }
            }
        }
        // Those that the wire has stopped go on where they were, before the others.
        for number in blocked.into_iter().rev() {
            self.rotation.push_front(number);
        }
        has_sent
    }

    /// Serves a device for one turn: it ends with its bytes, its packets, or a full wire.
    fn serve_device(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        wire: &mut dyn Wire,
        number: usize,
        has_sent: &mut bool,
    ) -> Option<Full> {
        let device = ends.device(number)?;
        device.tell_rest();
        if device.deficit <= 0 {
            device.deficit += QUANTUM_BYTES;
        }
        let mut start = [0; START_BYTES];
        loop {
            let device = ends.device(number)?;
            if device.deficit <= 0 {
                return None;
            }
            let (queue, mut walk) = match next_walk(device) {
                Ok(Some(Next::Packets(queue, walk))) => {
                    // A buffer costs something, however little is in it.
                    device.deficit -= BUFFER_COST_BYTES;
                    (queue, walk)
                }
                Ok(Some(Next::Control(record))) => {
                    *has_sent = true;
                    // It costs as much as a packet.
                    device.deficit -= ORDINARY_MTU as i64;
                    let What::Request(request) = record.what else {
                        self.stop(number, device, Stopped::State, wire);
                        return None;
                    };
                    self.request(now, ends, wire, number, record.serial, request);
                    continue;
                }
                Ok(None) => {
                    // What was taken too much is kept in mind.
                    device.deficit = device.deficit.min(0);
                    return None;
                }
                Err(Over::Severed(_)) => {
                    *has_sent = true;
                    device.is_over = true;
                    return None;
                }
                Err(Over::Broken(broken)) => {
                    self.stop(number, device, why(broken), wire);
                    return None;
                }
            };
            let began = walk.position();
            let ended = self.serve_walk(now, ends, wire, (number, queue), &mut walk, &mut start);
            *has_sent |= walk.position() != began || walk.is_over();
            let device = ends.device(number)?;
            match ended {
                Ended::Over => device.outputs[queue].finish(walk),
                Ended::Broken(broken) => {
                    device.outputs[queue].finish(walk);
                    self.stop(number, device, why(broken), wire);
                    return None;
                }
                Ended::Full => {
                    device.walks[queue] = Some(walk);
                    return Some(Full);
                }
                Ended::Turn => {
                    device.walks[queue] = Some(walk);
                    return None;
                }
            }
        }
    }

    /// Sends the packets of a buffer.
    fn serve_walk(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        wire: &mut dyn Wire,
        (number, queue): (usize, usize),
        walk: &mut Walk,
        start: &mut [u8; START_BYTES],
    ) -> Ended {
        loop {
            let before = walk.position();
            let found = match walk.next(start) {
                Ok(Some(found)) => found,
                Ok(None) => return Ended::Over,
                Err(broken) => return Ended::Broken(broken),
            };
            let Some(device) = ends.device(number) else { return Ended::Over };
            let found = match found {
                Ok(found) => found,
                Err(_) => {
                    device.drops.add(DropReason::Offload, 1);
                    device.deficit -= START_BYTES as i64;
                    continue;
                }
            };
            let bytes = found.header.bytes;
            let mut copies = 1;
            match self.admit(device, number, &found, &mut start[..found.start_bytes]) {
                Err(reason) => device.drops.add(reason, 1),
                Ok(target) => {
                    let rest = walk.rest(&found);
                    let piece =
                        Piece { offload: found.offload, start: &start[..found.start_bytes], rest };
                    match self.forward(now, ends, wire, number, target, &piece) {
                        Ok(made) => copies = made,
                        Err(Full) => {
                            walk.rewind(before);
                            return Ended::Full;
                        }
                    }
                }
            }
            let Some(device) = ends.device(number) else { return Ended::Over };
            device.outputs[queue].count(&found.header);
            // Each segment has headers of its own on the wire, and each copy is made here.
            let segments = found.offload.segments(bytes).saturating_sub(1);
            let headers = found.offload.segmentation.map_or(0, |of| usize::from(of.header_bytes));
            let cost = (bytes + segments * (headers + wire_bytes(0))) * copies.max(1);
            device.deficit -= cost as i64;
            if device.deficit <= 0 {
                return if walk.is_over() { Ended::Over } else { Ended::Turn };
            }
        }
    }

    /// Decides where a guest's packet goes. In layer 3 the adapter's MAC address and the type of the packet are put in front of it.
    fn admit(
        &mut self,
        device: &Device,
        number: usize,
        found: &Found,
        start: &mut [u8],
    ) -> Result<Target, DropReason> {
        let Found { header, offload, .. } = found;
        if !device.is_active() {
            return Err(DropReason::Inactive);
        }
        if header.layer != device.layer {
            return Err(DropReason::Offload);
        }
        if header.bytes > ETHERNET_BYTES + self.mtu && offload.segmentation.is_none() {
            return Err(DropReason::Long);
        }
        let is_long = offload.segmentation.is_some_and(|segmentation| {
            let bytes =
                usize::from(segmentation.header_bytes) + usize::from(segmentation.segment_bytes);
            bytes > ETHERNET_BYTES + self.mtu
        });
        if is_long {
            return Err(DropReason::Long);
        }
        if !device.takes_vlan(offload.vlan) {
            return Err(DropReason::Vlan);
        }
        match device.layer {
            Layer::Two => self.admit_two(device, number, found, start),
            Layer::Three => self.admit_three(device, number, found, start),
        }
    }

    fn admit_two(
        &mut self,
        device: &Device,
        number: usize,
        found: &Found,
        start: &[u8],
    ) -> Result<Target, DropReason> {
        let (Some(to), Some(from)) = (destination(start), source(start)) else {
            return Err(DropReason::Runt);
        };
        if from != device.mac {
            return Err(DropReason::Source);
        }
        if has_tag(start) {
            return Err(DropReason::Vlan);
        }
        let is_others = |address: IpAddr| match self.router.of_address(address) {
            Some(owner) => owner != number,
            None => self.is_kept_from(device.owner(), address),
        };
        let says = match u16_at(start, 12) {
            Some(ARP) if found.header.bytes > start.len() => return Err(DropReason::Runt),
            Some(ARP | IPV6) => match parse(start, found.offload.checksum) {
                // Behind other headers it is no message of neighbours (RFC 6980), but some kernels take it for one.
                Ok(None) if says_of_neighbours(start) => return Err(DropReason::Forged),
                Ok(says) => says.and_then(|message| message.about),
                // What cannot be read may be read otherwise by others.
                Err(_) => return Err(DropReason::Forged),
            },
            _ => None,
        };
        if says.is_some_and(|(address, mac)| mac != device.mac || is_others(address)) {
            return Err(DropReason::Forged);
        }
        if matches!(u16_at(start, 12), Some(IPV4 | IPV6))
            && ip_of(start).is_some_and(|(source, ..)| is_others(source))
        {
            return Err(DropReason::Source);
        }
        Ok(match self.find(to, start) {
            _ if to.is_group() => Target::Group(to),
            Some(device) => Target::Device(device),
            None if to == self.mac && u16_at(start, 12) == Some(ARP) => Target::Port,
            // To nobody's address of a device of layer 3.
            None if to == self.mac => return Err(DropReason::NoDevice),
            None => Target::Wire(to),
        })
    }

    fn admit_three(
        &mut self,
        device: &Device,
        number: usize,
        found: &Found,
        start: &mut [u8],
    ) -> Result<Target, DropReason> {
        let Some((from, to, kind)) = ip_of(start) else { return Err(DropReason::Runt) };
        let owner = self.router.of_address(from);
        let is_routed = owner.is_none()
            && self.router.of_others() == Some(number)
            && !self.is_kept_from(device.owner(), from);
        if !(device.addresses.contains(&from) || is_routed) {
            return Err(DropReason::Source);
        }
        // The adapter finds and answers neighbours: nobody else speaks of them in layer 3.
        if says_of_neighbours(start) {
            return Err(DropReason::Forged);
        }
        let next_hop = found.header.next_hop.unwrap_or(to);
        if next_hop.is_ipv4() != to.is_ipv4() {
            return Err(DropReason::Offload);
        }
        start[6..12].copy_from_slice(&self.mac.0);
        start[12..ETHERNET_BYTES].copy_from_slice(&kind.to_be_bytes());
        let group = match (group_mac(to), found.header.cast, to) {
            (Some(group), ..) => Some(group),
            (None, _, IpAddr::V4(to)) if to.is_broadcast() => Some(Mac::BROADCAST),
            (None, Cast::All, IpAddr::V4(_)) => Some(Mac::BROADCAST),
            _ => None,
        };
        if let Some(group) = group {
            start[..6].copy_from_slice(&group.0);
            return Ok(Target::Group(group));
        }
        Ok(match self.router.of_address(next_hop) {
            Some(owner) => Target::Device(owner),
            None => Target::Neighbour(next_hop),
        })
    }

    /// Has a packet go where it is to go. Returns how many copies were made of it.
    fn forward(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        wire: &mut dyn Wire,
        number: usize,
        target: Target,
        piece: &Piece<'_>,
    ) -> Result<usize, Full> {
        match target {
            Target::Device(to) => {
                self.counters.frames_between += 1;
                self.counters.bytes_between += piece.bytes() as u64;
                let Some(device) = ends.device(to) else { return Ok(1) };
                // In layer 3 nobody has put the address of the other in front yet.
                let mac = device.mac;
                let (mut start, bytes) = ([0; START_BYTES], piece.start.len());
                start[..bytes].copy_from_slice(piece.start);
                start[..6].copy_from_slice(&mac.0);
                let piece = Piece { start: &start[..bytes], ..*piece };
                self.deliver(now, ends, to, &piece);
                self.hear_of_guest(now, ends, &piece);
                Ok(1)
            }
            Target::Port => {
                self.hear_of_guest(now, ends, piece);
                Ok(1)
            }
            Target::Wire(_) => self.send(now, wire, piece).map(|()| 1),
            Target::Group(to) => {
                self.send(now, wire, piece)?;
                let copies = self.deliver_to_group(now, ends, to, Some(number), piece);
                self.hear_of_guest(now, ends, piece);
                Ok(1 + copies)
            }
            Target::Neighbour(to) => self.resolve(now, ends, wire, to, piece).map(|()| 1),
        }
    }

    /// A guest of layer 2 has said something that concerns those of layer 3.
    fn hear_of_guest(&mut self, now: u64, ends: &mut impl Ends, piece: &Piece<'_>) {
        if matches!(u16_at(piece.start, 12), Some(ARP | IPV6))
            && source(piece.start) != Some(self.mac)
        {
            self.hear(now, ends, piece);
        }
    }

    /// Sends a packet to a neighbour, or keeps it until the neighbour has said where it is.
    fn resolve(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        wire: &mut dyn Wire,
        to: IpAddr,
        piece: &Piece<'_>,
    ) -> Result<(), Full> {
        if !is_host(to) {
            self.drops.add(DropReason::NoDevice, 1);
            return Ok(());
        }
        let vlan = piece.offload.vlan;
        let found = self.cache(vlan).find(now, to, Sender::Stranger);
        match found {
            At::At(mac) => {
                let (mut start, bytes) = ([0; START_BYTES], piece.start.len());
                start[..bytes].copy_from_slice(piece.start);
                start[..6].copy_from_slice(&mac.0);
                let piece = Piece { start: &start[..bytes], ..*piece };
                match self.router.of_mac(mac) {
                    Some(device) => {
                        self.counters.frames_between += 1;
                        self.counters.bytes_between += piece.bytes() as u64;
                        self.deliver(now, ends, device, &piece);
                        Ok(())
                    }
                    None => self.send(now, wire, &piece),
                }
            }
            At::Asked | At::Ask => {
                let mut frame = vec![0; piece.bytes()];
                piece.write(&mut frame);
                let waiting = Waiting { offload: piece.offload, frame, is_passed: false };
                let dropped = self.cache(vlan).wait(to, waiting);
                self.drops.add(DropReason::Unresolved, dropped as u64);
                if found == At::Ask {
                    self.ask(now, ends, vlan, to, None);
                }
                Ok(())
            }
            At::Full => {
                self.drops.add(DropReason::Unresolved, 1);
                Ok(())
            }
        }
    }

    /// Sends a frame over the wire, and does for it what the wire leaves undone.
    fn send(&mut self, now: u64, wire: &mut dyn Wire, piece: &Piece<'_>) -> Result<(), Full> {
        if !self.is_up {
            self.drops.add(DropReason::Wire, 1);
            return Ok(());
        }
        if self.is_full || !self.pending.is_empty() {
            return Err(Full);
        }
        let is_partial = matches!(piece.offload.checksum, Checksum::Partial { .. });
        let has_segments = piece.offload.segmentation.is_some();
        let is_done =
            (self.cuts_segments || !has_segments) && (self.completes_checksums || !is_partial);
        if is_done {
            return match wire.send(now, &piece.in_place()) {
                Ok(()) => Ok(()),
                Err(NotSent::Full) => {
                    self.is_full = true;
                    Err(Full)
                }
                Err(NotSent::Dropped) => {
                    self.drops.add(DropReason::Wire, 1);
                    Ok(())
                }
            };
        }
        let Core { whole, segment: room, pending, is_full, drops, .. } = self;
        whole.resize(piece.bytes(), 0);
        piece.write(whole);
        let offload = Offload { vlan: piece.offload.vlan, ..Offload::NONE };
        segment(piece.offload, whole, room, |bytes| {
            let frame = FrameInPlace { offload, start: bytes, rest: None };
            let sent = if *is_full { Err(NotSent::Full) } else { wire.send(now, &frame) };
            match sent {
                Ok(()) => {}
                // No more than the segments of one frame.
                Err(NotSent::Full) => {
                    *is_full = true;
                    pending.push_back((offload, bytes.to_vec()));
                }
                Err(NotSent::Dropped) => drops.add(DropReason::Wire, 1),
            }
        });
        Ok(())
    }

    /// Sends what has waited.
    fn send_pending(&mut self, now: u64, wire: &mut dyn Wire) {
        while let Some((offload, frame)) = self.pending.front() {
            if !self.is_up {
                self.drops.add(DropReason::Wire, self.pending.len() as u64);
                return self.pending.clear();
            }
            let sent =
                wire.send(now, &FrameInPlace { offload: *offload, start: frame, rest: None });
            match sent {
                Ok(()) => {}
                Err(NotSent::Full) => {
                    self.is_full = true;
                    return;
                }
                Err(NotSent::Dropped) => self.drops.add(DropReason::Wire, 1),
            }
            self.pending.pop_front();
        }
    }

    fn put_pending(&mut self, offload: Offload, frame: Vec<u8>) {
        if self.pending.len() >= PENDING_MAX {
            return self.drops.add(DropReason::Wire, 1);
        }
        self.pending.push_back((offload, frame));
    }

    // Neighbours of devices of layer 3.

    fn cache(&mut self, tag: Option<u16>) -> &mut Cache {
        let vlan = tag.unwrap_or(0) & 0x0fff;
        let place = self.caches.iter().position(|(of, _)| *of == vlan).unwrap_or_else(|| {
            self.caches.push((vlan, Cache::new(self.secret)));
            self.caches.len() - 1
        });
        &mut self.caches[place].1
    }

    /// Asks for a neighbour: all, or whoever is at the MAC address.
    fn ask(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        vlan: Option<u16>,
        to: IpAddr,
        at: Option<Mac>,
    ) {
        let is_fit =
            |device| ends.device(device).is_some_and(|device: &mut Device| device.takes_vlan(vlan));
        let Some(own) = self.router.nearest(to, is_fit) else { return };
        let Some(frame) = question((own, self.mac), to, at) else { return };
        self.counters.asked += 1;
        let offload = Offload { vlan, ..Offload::NONE };
        let piece = Piece { offload, start: &frame, rest: None };
        match at.map(|at| self.router.of_mac(at)) {
            Some(Some(device)) => return self.deliver(now, ends, device, &piece),
            Some(None) => {}
            None => {
                let to = destination(&frame).unwrap_or(Mac::BROADCAST);
                self.deliver_to_group(now, ends, to, None, &piece);
            }
        }
        self.put_pending(offload, frame);
    }

    /// Takes note of what a frame says about neighbours, and answers what it asks for devices of layer 3. Returns true if it is about that.
    fn hear(&mut self, now: u64, ends: &mut impl Ends, piece: &Piece<'_>) -> bool {
        if self.router.of_layer(Layer::Three).is_empty() || piece.rest.is_some() {
            return false;
        }
        let Ok(Some(message)) = parse(piece.start, piece.offload.checksum) else { return false };
        let vlan = piece.offload.vlan;
        let about = message.about.filter(|(address, _)| self.router.of_address(*address).is_none());
        let asked = match message.kind {
            Kind::Question(address) => Some(address),
            _ => None,
        };
        let is_ours = asked.is_some_and(|address| {
            let owner = self.router.of_address(address);
            let device = owner.and_then(|owner| ends.device(owner));
            device.is_some_and(|device| device.layer == Layer::Three && device.takes_vlan(vlan))
        });
        if is_ours && let Some(frame) = answer(piece.start, |_| Some(self.mac)) {
            self.counters.answered += 1;
            let offload = Offload { vlan, ..Offload::NONE };
            match destination(&frame).and_then(|to| self.router.of_mac(to)) {
                Some(device) => {
                    self.deliver(now, ends, device, &Piece { offload, start: &frame, rest: None });
                }
                None => self.put_pending(offload, frame),
            }
        }
        let Some((address, mac)) = about else { return true };
        let is_answer = matches!(message.kind, Kind::Answer(_));
        // Nobody here has asked in a VLAN without a cache.
        let has_cache = self.caches.iter().any(|(of, _)| *of == vlan.unwrap_or(0) & 0x0fff);
        if !is_ours && !has_cache {
            return true;
        }
        let cache = self.cache(vlan);
        let heard = match is_ours {
            true => cache.learn(now, address, mac),
            false => cache.hear(now, address, mac, is_answer),
        };
        if let Heard::Resolved(waiting) = heard {
            for Waiting { offload, mut frame, .. } in waiting {
                frame[..6].copy_from_slice(&mac.0);
                match self.router.of_mac(mac) {
                    Some(device) => {
                        self.deliver(
                            now,
                            ends,
                            device,
                            &Piece { offload, start: &frame, rest: None },
                        );
                    }
                    None => self.put_resolved(offload, &frame),
                }
            }
        }
        true
    }

    /// A frame that has waited for its neighbour goes with the next ones.
    fn put_resolved(&mut self, offload: Offload, frame: &[u8]) {
        let is_done = self.completes_checksums && self.cuts_segments;
        if is_done || offload.checksum == Checksum::Unknown {
            return self.put_pending(offload, frame.to_vec());
        }
        let mut room = std::mem::take(&mut self.segment);
        let left = Offload { vlan: offload.vlan, ..Offload::NONE };
        segment(offload, frame, &mut room, |bytes| self.put_pending(left, bytes.to_vec()));
        self.segment = room;
    }

    fn poll_neighbours(&mut self, now: u64, ends: &mut impl Ends) {
        for place in 0..self.caches.len() {
            let vlan = Some(self.caches[place].0).filter(|vlan| *vlan != 0);
            while let Some(step) = self.caches[place].1.poll(now) {
                match step {
                    Step::Ask(address, at) => self.ask(now, ends, vlan, address, at),
                    Step::Failed(_, waiting) => {
                        self.drops.add(DropReason::Unresolved, waiting.len() as u64);
                    }
                }
            }
        }
    }

    // Requests of guests.

    fn request(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        wire: &mut dyn Wire,
        number: usize,
        serial: u32,
        request: Request,
    ) {
        let Some(device) = ends.device(number) else { return };
        let done = self.change(device, wire, number, request);
        let device_port = self.port(device);
        device.tell(serial, What::Answer(done));
        if done.is_err() {
            return;
        }
        match request {
            Request::Activate(..) => device.tell(0, What::Port(device_port)),
            // Who has believed somebody else learns of it.
            Request::AddAddress(address) if is_host(address) && device.layer == Layer::Three => {
                let frame = announcement(address, self.mac);
                let vlan = device.vlans.first().copied();
                self.put_pending(Offload { vlan, ..Offload::NONE }, frame);
            }
            _ => {}
        }
        let _ = now;
    }

    fn change(
        &mut self,
        device: &mut Device,
        wire: &mut dyn Wire,
        number: usize,
        request: Request,
    ) -> Result<(), Refused> {
        if matches!(device.state, State::Stopped(_)) {
            return Err(Refused::State);
        }
        match request {
            Request::Activate(layer, mac) => {
                if device.is_active() {
                    return Err(Refused::State);
                }
                let mac = match (layer, mac) {
                    (Layer::Three, None) => self.mac,
                    (Layer::Three, Some(_)) => return Err(Refused::Unfit),
                    (Layer::Two, Some(mac)) => mac,
                    (Layer::Two, None) => self.made_mac(device),
                };
                if layer == Layer::Two {
                    // A station that guests know on the wire keeps its address.
                    let is_station = self.caches.iter().any(|(_, cache)| cache.has_station(mac));
                    // And a card has one that its maker has given: those of guests are administered here.
                    let is_local = mac.0[0] & 2 != 0;
                    if mac.is_group() || !is_local || mac == self.mac || is_station {
                        return Err(Refused::Unfit);
                    }
                    if !self.router.add_mac(mac, number) {
                        return Err(Refused::Taken);
                    }
                    if self.listen(wire, mac).is_err() {
                        self.router.remove(number);
                        return Err(Refused::Wire);
                    }
                }
                (device.layer, device.mac, device.state) = (layer, mac, State::Active);
                self.router.add(number, layer);
                for address in device.addresses.clone() {
                    // Another guest may have taken it while the device was halted, or it is kept for another since.
                    if self.is_kept_from(device.owner(), address)
                        || !self.router.add_address(address, number, layer)
                    {
                        device.addresses.retain(|one| *one != address);
                        self.ignore_neighbours(wire, address);
                    }
                }
                for group in device.groups.clone() {
                    self.router.add_to_group(group, number);
                }
                Ok(())
            }
            Request::Halt | Request::Clear => {
                if matches!(device.state, State::Stopped(_)) {
                    return Err(Refused::State);
                }
                device.give_back();
                if request == Request::Clear {
                    self.forget(number, device, wire);
                } else {
                    if device.layer == Layer::Two && device.is_active() {
                        self.ignore(wire, device.mac);
                    }
                    self.router.remove(number);
                }
                device.state = State::Halted;
                Ok(())
            }
            Request::AddAddress(address) => self.add_address(device, wire, number, address),
            Request::RemoveAddress(address) => {
                if let Some(group) = group_mac(address) {
                    self.leave_group(device, wire, number, group);
                } else if device.addresses.contains(&address) {
                    device.addresses.retain(|one| *one != address);
                    self.router.remove_address(address, number);
                    self.ignore_neighbours(wire, address);
                }
                Ok(())
            }
            Request::AddGroup(group) if !group.is_group() || group == Mac::BROADCAST => {
                Err(Refused::Unfit)
            }
            Request::AddGroup(group) => self.join_group(device, wire, number, group),
            Request::RemoveGroup(group) => {
                self.leave_group(device, wire, number, group);
                Ok(())
            }
            Request::AddVlan(vlan) => {
                if !(1..=4094).contains(&vlan) {
                    return Err(Refused::Unfit);
                }
                if device.vlans.len() >= REGISTERED_MAX {
                    return Err(Refused::Full);
                }
                if !device.vlans.contains(&vlan) {
                    device.vlans.push(vlan);
                }
                Ok(())
            }
            Request::RemoveVlan(vlan) => {
                device.vlans.retain(|one| *one != vlan);
                Ok(())
            }
            Request::Route(role) if role != Role::None && !device.is_active() => {
                Err(Refused::State)
            }
            Request::Route(role) => match self.router.set_role(number, role) {
                true => Ok(()),
                false => Err(Refused::Taken),
            },
        }
    }

    fn add_address(
        &mut self,
        device: &mut Device,
        wire: &mut dyn Wire,
        number: usize,
        address: IpAddr,
    ) -> Result<(), Refused> {
        if let Some(group) = group_mac(address) {
            return self.join_group(device, wire, number, group);
        }
        if !is_host(address) {
            return Err(Refused::Unfit);
        }
        if device.addresses.contains(&address) {
            return Ok(());
        }
        if self.is_kept_from(device.owner(), address) {
            return Err(Refused::NotAllowed);
        }
        if device.addresses.len() >= REGISTERED_MAX {
            return Err(Refused::Full);
        }
        if !self.router.add_address(address, number, device.layer) {
            return Err(Refused::Taken);
        }
        if self.listen_neighbours(wire, address).is_err() {
            self.router.remove_address(address, number);
            return Err(Refused::Wire);
        }
        device.addresses.push(address);
        Ok(())
    }

    /// Returns true if an address is kept for another guest.
    fn is_kept_from(&self, guest: Name, address: IpAddr) -> bool {
        self.reserved.get(&address).is_some_and(|owner| *owner != guest)
    }

    /// Questions of IPv6 go to a group that follows from the address, and to all nodes.
    fn groups_of(address: IpAddr) -> Option<[Mac; 2]> {
        let IpAddr::V6(address) = address else { return None };
        Some([solicited_node(address).1, Mac([0x33, 0x33, 0, 0, 0, 1])])
    }

    fn listen_neighbours(&mut self, wire: &mut dyn Wire, address: IpAddr) -> std::io::Result<()> {
        let Some([one, all]) = Core::groups_of(address) else { return Ok(()) };
        self.listen(wire, one)?;
        let listened = self.listen(wire, all);
        if listened.is_err() {
            self.ignore(wire, one);
        }
        listened
    }

    fn ignore_neighbours(&mut self, wire: &mut dyn Wire, address: IpAddr) {
        for mac in Core::groups_of(address).into_iter().flatten() {
            self.ignore(wire, mac);
        }
    }

    fn join_group(
        &mut self,
        device: &mut Device,
        wire: &mut dyn Wire,
        number: usize,
        group: Mac,
    ) -> Result<(), Refused> {
        if device.groups.contains(&group) {
            return Ok(());
        }
        if device.groups.len() >= REGISTERED_MAX {
            return Err(Refused::Full);
        }
        self.listen(wire, group).map_err(|_| Refused::Wire)?;
        device.groups.push(group);
        self.router.add_to_group(group, number);
        Ok(())
    }

    fn leave_group(&mut self, device: &mut Device, wire: &mut dyn Wire, number: usize, group: Mac) {
        if device.groups.contains(&group) {
            device.groups.retain(|one| *one != group);
            self.router.remove_from_group(group, number);
            self.ignore(wire, group);
        }
    }

    /// Has frames to a MAC address come.
    fn listen(&mut self, wire: &mut dyn Wire, mac: Mac) -> std::io::Result<()> {
        if !self.at_wire.contains_key(&mac) {
            wire.add_address(mac)?;
        }
        *self.at_wire.entry(mac).or_default() += 1;
        Ok(())
    }

    /// One that has wanted them wants them no longer.
    fn ignore(&mut self, wire: &mut dyn Wire, mac: Mac) {
        let Some(count) = self.at_wire.get_mut(&mac) else { return };
        *count -= 1;
        if *count == 0 {
            self.at_wire.remove(&mac);
            wire.remove_address(mac);
        }
    }

    /// Forgets what a device has registered.
    fn forget(&mut self, number: usize, device: &mut Device, wire: &mut dyn Wire) {
        self.router.remove(number);
        if device.layer == Layer::Two && device.is_active() {
            self.ignore(wire, device.mac);
        }
        for group in std::mem::take(&mut device.groups) {
            self.ignore(wire, group);
        }
        for address in std::mem::take(&mut device.addresses) {
            self.ignore_neighbours(wire, address);
        }
        device.vlans.clear();
    }

    fn stop(&mut self, number: usize, device: &mut Device, why: Stopped, wire: &mut dyn Wire) {
        self.forget(number, device, wire);
        self.counters.stopped += 1;
        device.stop(why);
    }

    /// A MAC address for a guest that has none: the same while the port and the guest are the same.
    fn made_mac(&self, device: &Device) -> Mac {
        let [a, b, c, d, e, ..] = self.secret.number(("mac", device.owner())).to_be_bytes();
        Mac([2, a, b, c, d, e])
    }

    fn port(&self, device: &Device) -> Port {
        Port {
            is_up: self.is_up,
            mtu: self.mtu.min(usize::from(u16::MAX)) as u16,
            mac: device.mac,
            rate: self.rate.unwrap_or(0),
        }
    }

    /// Tells all active devices what the port is like.
    fn tell_port(&mut self, ends: &mut impl Ends) {
        let all = [Layer::Two, Layer::Three].map(|layer| self.router.of_layer(layer)).concat();
        for number in all {
            if let Some(device) = ends.device(number) {
                if device.layer == Layer::Three {
                    device.mac = self.mac;
                }
                let port = self.port(device);
                device.tell(0, What::Port(port));
            }
        }
    }
}

/// How the sending of a buffer has ended.
enum Ended {
    Over,
    Broken(Broken),
    Full,
    Turn,
}

fn why(broken: Broken) -> Stopped {
    match broken {
        Broken::Buffer => Stopped::Buffer,
        Broken::Header => Stopped::Header,
    }
}

/// What a device is to have done next.
enum Next {
    Packets(usize, Walk),
    Control(super::control::Record),
}

/// The next buffer of a device: of the most urgent queue that has not had its share yet.
fn next_walk(device: &mut Device) -> Result<Option<Next>, Over> {
    for _ in 0..2 {
        for queue in 0..device.outputs.len() {
            if let Some(walk) = device.walks[queue].take() {
                return Ok(Some(Next::Packets(queue, walk)));
            }
            if device.credits[queue] == 0 {
                continue;
            }
            match device.outputs[queue].take()? {
                Some(Came::Packets(walk)) => {
                    device.credits[queue] -= 1;
                    return Ok(Some(Next::Packets(queue, walk)));
                }
                Some(Came::Control(record)) => return Ok(Some(Next::Control(record))),
                None => {}
            }
        }
        device.credits = [WEIGHT; super::device::OUTPUTS_MAX];
    }
    Ok(None)
}
