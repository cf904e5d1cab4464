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

mod accounts;
mod admission;
mod delivery;
mod flow;
mod neighbours;
mod requests;
mod sending;
mod turns;

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use fabric::name::Name;
use fabric::path::Halves;

use self::accounts::Accounts;
use self::flow::{Flow, longest_rest_ns};
use super::capture::Captures;
use super::device::{Device, Drops};
use super::router::Router;
pub use super::tuning::Moderation;
use super::wire::{Carrier, Wire};
use crate::lan::frame::{ETHERNET_BYTES, Mac};
use crate::lan::offload::Offload;
use crate::tcpip::Secret;
use crate::tcpip::neighbours::Cache;
use crate::wire::wire_bytes;

/// Frames that are received before devices have their turn.
const RECEIVED_PER_POLL: usize = 64;

/// Bytes that a device sends in its turn: half a buffer.
const QUANTUM_BYTES: i64 = 32 << 10;

/// Bytes that a buffer costs beside its packets.
const BUFFER_COST_BYTES: i64 = 64;

/// Turns of devices in one poll.
const TURNS_PER_POLL: usize = 16;

/// What goes of one output queue before what is less urgent: the bytes of four full buffers. That is the default weight of OSA's priority queues, which counts buffers;
/// but what is urgent comes one packet in a buffer, and what is not forty.
const CREDIT_BYTES: i64 = 4 * (64 << 10);

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

/// How long a request waits for room at most, until that is looked for again.
const HELD_NS_MAX: u64 = 64_000_000;

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// The longest packet of a port that is no jumbo.
const ORDINARY_MTU: usize = 1500;

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
    /// When the first of them has to be, whatever comes.
    held_due: Option<u64>,
    /// Frames that go before all others.
    pending: VecDeque<(Offload, Vec<u8>)>,
    /// A segment of a frame.
    segment: Vec<u8>,
    mac: Mac,
    mtu: usize,
    completes_checksums: bool,
    cuts_segments: bool,
    rate: Option<u64>,
    /// How long the longest packet is on the wire.
    packet_ns: u64,
    /// How long the adapter may rest at this wire.
    longest_rest_ns: u64,
    is_up: bool,
    is_gone: bool,
    /// Set since the wire was full in this poll.
    is_full: bool,
    /// When to try again since it was full.
    full_due: Option<u64>,
    /// How often each MAC address was asked for at the wire.
    at_wire: HashMap<Mac, u32>,
    /// What each guest has the wire do.
    accounts: Accounts,
    /// Devices whose next request waits, and until when.
    held: Vec<(usize, u64)>,
    look_ns: u64,
    flow: Flow,
    /// Devices whose guests want their packets otherwise than the adapter has it, and how long it may rest for each.
    rests: Vec<(usize, u64)>,
    /// Frames that devices have sent in this poll, and bytes of these.
    sent: (u64, u64),
    /// Of these frames, those to devices of the port.
    between: u64,
    counters: Counters,
    drops: Drops,
    captures: Captures,
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
            held_due: None,
            pending: VecDeque::new(),
            segment: Vec::new(),
            mac: wire.mac(),
            mtu: 0,
            completes_checksums: false,
            cuts_segments: false,
            rate: None,
            packet_ns: 0,
            longest_rest_ns: longest_rest_ns(None),
            is_up: true,
            is_gone: false,
            is_full: false,
            full_due: None,
            at_wire: HashMap::new(),
            accounts: Accounts::default(),
            held: Vec::new(),
            look_ns: 0,
            flow: Flow::default(),
            rests: Vec::new(),
            sent: (0, 0),
            between: 0,
            counters: Counters::default(),
            drops: Drops::default(),
            captures: Captures::default(),
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

    /// The state of the medium when it was looked at last.
    pub fn carrier(&self) -> Carrier {
        match (self.core.is_gone, self.core.is_up) {
            (true, _) => Carrier::Gone,
            (false, true) => Carrier::Up,
            (false, false) => Carrier::Down,
        }
    }

    /// The MAC address of the port.
    pub fn mac(&self) -> Mac {
        self.core.mac
    }

    /// Bytes of the longest packet.
    pub fn mtu(&self) -> usize {
        self.core.mtu
    }

    /// Bits a second of the medium, as far as is known.
    pub fn rate(&self) -> Option<u64> {
        self.core.rate
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// Frames from the wire that were dropped before they were a device's.
    pub fn drops(&self) -> &Drops {
        &self.core.drops
    }

    /// Gives the guest at the other end of a path a copy of each frame that passes from now on, until the path ends: see [`Captures::add`].
    pub fn add_capture(&mut self, guest: Name, halves: Halves, kept: Box<dyn Any + Send>) -> bool {
        self.core.captures.add(guest, halves, kept)
    }

    /// Returns true if a guest may capture: see [`Captures::has_room_for`].
    pub fn may_capture(&self, guest: Name) -> bool {
        self.core.captures.has_room_for(guest)
    }

    /// Guests that capture.
    pub fn captures(&self) -> usize {
        self.core.captures.count()
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

    /// Whoever has the adapter is about to sleep until something rings, the wire's descriptor is readable or [`Adapter::due`]. Returns false if there is something to be received
    /// already.
    pub fn announce_sleep(&mut self) -> bool {
        self.wire.announce_sleep()
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
        self.core.held.retain(|(one, _)| *one != number);
        self.core.rests.retain(|(one, _)| *one != number);
        device.is_waiting = false;
    }

    /// When to poll though nobody has anything new.
    pub fn due(&self) -> Option<u64> {
        let caches = self.core.caches.iter().filter_map(|(_, cache)| cache.due());
        let held = self.core.held.iter().map(|(_, due)| *due);
        let Core { open_due, full_due, look_ns, .. } = self.core;
        let dues = [open_due, full_due, self.wire.due(), Some(look_ns)];
        caches.chain(held).chain(dues.into_iter().flatten()).min()
    }

    /// Until when the adapter may rest after a poll that has left nothing behind, though frames go on coming: they come so densely that looking at that time
    /// finds many, and nobody need wake it up. None: it is to be woken up by whatever comes.
    pub fn rests_until(&self, now: u64) -> Option<u64> {
        let rest = self.core.flow.rest_ns(self.core.rest_ns(), self.core.longest_rest_ns)?;
        let caches = self.core.caches.iter().filter_map(|(_, cache)| cache.due());
        // An idle gap is not over while nobody looks.
        let Core { held_due, full_due, look_ns, .. } = self.core;
        let dues = [Some(now + rest), held_due, full_due, Some(look_ns)];
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
            self.core.captures.look(now);
            self.core.accounts.tidy(now);
        }
        let Adapter { wire, core } = self;
        (core.sent, core.between) = ((0, 0), 0);
        let mut received_bytes = 0;
        let received = wire.receive(now, RECEIVED_PER_POLL, &mut |offload, frame| {
            received_bytes += frame.len() as u64;
            core.take_frame(now, ends, offload, frame);
        });
        core.poll_neighbours(now, ends);
        core.release_held(now, ends);
        core.send_pending(now, &mut **wire);
        let has_sent = core.serve(now, ends, &mut **wire);
        core.send_pending(now, &mut **wire);
        // Behind what was received and sent: so a wire that has come to rest is seen to rest.
        let has_closed = core.close_due(now, ends);
        wire.flush(now);
        core.captures.flush();
        // A wire that says nothing of when it has room is tried again after a while.
        core.full_due = core.is_full.then(|| wire.due().unwrap_or(now + FULL_NS));
        let received = received.unwrap_or_else(|_| {
            core.look_ns = core.look_ns.min(now + LOOK_AGAIN_NS);
            0
        });
        let (frames, bytes) = core.sent;
        core.flow.note(now, [received as u64 + core.between, frames], received_bytes + bytes);
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
        self.core.longest_rest_ns = longest_rest_ns(capabilities.rate);
        self.core.packet_ns = capabilities.rate.map_or(0, |rate| {
            let bits = 8 * wire_bytes(ETHERNET_BYTES + capabilities.mtu) as u64;
            bits * 1_000_000_000 / rate.max(1)
        });
    }
}
