//! Frames on their way out, and those whose target is full.
//!
//! The state machine counts a segment as sent once it has made it. So a frame that the link gives back is kept here and
//! goes first when there is room, and until then nobody makes another for that target. On a LAN that is memory no
//! segment is lost this way.
//! Packets that are passed on for others wait too, behind ours, as far as there is room for them.

use std::hash::Hash;
use std::net::IpAddr;

use fabric::path::Lack;

use super::counters::Counters;
use super::exit::{Blocked, Exit};
use super::neighbours::{Neighbours, Sender, Waiting};
use super::packet;
use super::route::{Hop, Routes};
use super::secret::Secret;
use crate::board::Counter;
use crate::lan::link::FrameInParts;
use crate::lan::offload::Offload;
use crate::lan::waiting::WaitingFrames;
use crate::osa::device::OUTPUTS_MAX;
use crate::osa::packet::{DEFAULT_QUEUE, queue_of_service};
use crate::tcpip::hashed::HashMap;

/// Frames that wait for one target, at most. The first may be full of data: while it waits nobody makes another of that
/// kind for the target. Those behind it are acknowledgements and the like. Each target has its own, so one that takes
/// nothing is in nobody else's way.
///
/// A datagram of the greatest length is 120 fragments on the shortest path: it has room if nothing waits before it.
const HELD_PER_TARGET_MAX: usize = 128;

/// Frames to the stack itself that wait to be received, at most, and their bytes. More are held back, as for any other
/// target that is full.
const OWN_MAX: usize = 256;
pub(super) const OWN_BYTES_MAX: usize = 1 << 20;

/// Bytes of packets of others that wait for all targets together, at most. More are dropped.
const PASSED_BYTES_MAX: usize = 32 << 20;

/// Of what is free of that, one target may have one in so many: so some tens of targets that take nothing leave room for the
/// others.
const PASSED_SHARE: usize = 16;

/// Where a stack's frames go: LANs, wires, lines, or the simulation of some. `lan` is which, as the stack's interfaces say; 0 if it has
/// one. What each does with a frame says the [`Device`](super::Device) of the interface.
pub trait Link {
    /// Sends a frame to the neighbour that has the address `to`. The link finds the MAC address, and puts the Ethernet header in the first
    /// 14 bytes, which are empty; [`address`](super::address) does so. Not asked of a link whose neighbours the stack finds
    /// ([`Resolution::Stack`](super::Resolution::Stack)): that needs [`Link::send`] alone.
    ///
    /// # Errors
    /// [`Unsent`]; nothing of it has gone.
    fn transmit(
        &mut self,
        lan: usize,
        to: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) -> Result<(), Unsent> {
        let _ = (lan, to, offload, frame);
        Err(Unsent::Unreachable)
    }

    /// Sends a frame whose data lies elsewhere, in the same way.
    ///
    /// # Errors
    /// [`Unsent`]; nothing of it has gone.
    fn transmit_in_parts(
        &mut self,
        lan: usize,
        to: IpAddr,
        frame: FrameInParts<'_>,
    ) -> Result<(), Unsent> {
        self.transmit(lan, to, frame.offload, &mut frame.whole())
    }

    /// Sends a whole frame, Ethernet header included.
    ///
    /// # Errors
    /// [`Unsent`]; nothing of it has gone.
    fn send(&mut self, lan: usize, offload: Offload, frame: &[u8]) -> Result<(), Unsent>;

    /// Returns true if the member that has sent this frame may send from that address. What others send is dropped. Asked where
    /// [`Sources::Vouched`](super::Sources::Vouched) are believed.
    fn may_send_from(&mut self, lan: usize, frame: &[u8], address: IpAddr) -> bool {
        let _ = (lan, frame, address);
        false
    }

    /// Returns true if the member that has sent this frame has that address, whatever source the frame's packet has. Asked of stacks that hand on what is
    /// for a distributed address.
    fn is_sender(&mut self, lan: usize, frame: &[u8], address: IpAddr) -> bool {
        self.may_send_from(lan, frame, address)
    }

    /// Returns true if packets of others from this address may be passed on to a LAN. They may unless somebody says otherwise.
    fn may_pass_from(&mut self, _lan: usize, _source: IpAddr) -> bool {
        true
    }
}

/// The reasons for which a link does not take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// Its target is full. Later there may be room.
    Full,
    /// Nobody has that address, or nobody can be reached there.
    Unreachable,
    /// Something has run out here that it takes. Later it may be there again, and nobody says when.
    Lacking(Lack),
}

/// When something that had run out is looked for again.
const LACK_RETRY_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct Output {
    pub(super) routes: Routes,
    pub(super) neighbours: Neighbours,
    /// The frames that are held for each target that is full, those of each service apart. No queue is empty.
    pub(super) held: HashMap<(Hop, Service), WaitingFrames<Offload, HELD_PER_TARGET_MAX>>,
    /// The resource that had run out when a frame of ours was held or tried last, by its target, and when to try again. Each has frames in `held`.
    pub(super) lacks: HashMap<(Hop, Service), (Lack, u64)>,
    /// Packets of others, in the same manner.
    passed: HashMap<Hop, Passed>,
    /// Their bytes.
    passed_bytes: usize,
    /// Frames from the stack to itself.
    own: Own,
    /// The last time that somebody has said.
    pub(super) clock: u64,
}

/// By which queue of a device packets go that say of which service they are, the most urgent first: one may be full while others have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Service(usize);

impl Service {
    /// That of most packets, which say nothing.
    pub(super) const USUAL: Service = Service(DEFAULT_QUEUE);

    pub(super) const ALL: [Service; OUTPUTS_MAX] = [Service(0), Service(1), Service(2), Service(3)];

    /// That of packets that say this number in their header of IP.
    pub(super) fn of(number: u8) -> Service {
        Service(queue_of_service(number))
    }

    fn of_frame(frame: &[u8]) -> Service {
        Service::of(packet::service(frame))
    }
}

pub(super) type Own = WaitingFrames<Offload, OWN_MAX>;

/// Packets of others that wait for one target, each with its source, and how many each source has.
#[derive(Debug, Default)]
struct Passed {
    waiting: WaitingFrames<(IpAddr, Offload), HELD_PER_TARGET_MAX>,
    of_sources: HashMap<IpAddr, usize>,
    /// When to try again, if something has run out that it takes.
    retry_at: Option<u64>,
}

impl Passed {
    /// Adds a packet, for which there is room.
    fn push(&mut self, source: IpAddr, offload: Offload, frame: &[u8]) {
        let is_kept = self.waiting.push_copy((source, offload), frame);
        assert!(is_kept, "packets that are passed on");
        *self.of_sources.entry(source).or_insert(0) += 1;
    }

    /// Takes a packet out, and returns its bytes.
    fn remove(&mut self, at: usize) -> usize {
        let Some(((source, _), frame)) = self.waiting.remove(at) else { return 0 };
        if let Some(number) = self.of_sources.get_mut(&source) {
            *number -= 1;
            if *number == 0 {
                self.of_sources.remove(&source);
            }
        }
        frame.len()
    }

    /// Finds the packet to drop for another of `source`: the last of the source that has the most, if that has more than this one
    /// will have then. So a source that floods a target is in nobody's way but its own.
    fn evictable(&self, source: IpAddr) -> Option<usize> {
        let own = self.of_sources.get(&source).copied().unwrap_or(0);
        let (of, most) = self.of_sources.iter().max_by_key(|(_, number)| **number)?;
        let last = self.waiting.heads().rposition(|(source, _)| source == of);
        last.filter(|_| *most > own + 1)
    }
}

impl Output {
    pub(super) fn new(routes: Routes, secret: Secret) -> Output {
        Output {
            neighbours: Neighbours::new(&routes, secret),
            routes,
            held: HashMap::default(),
            lacks: HashMap::default(),
            passed: HashMap::default(),
            passed_bytes: 0,
            own: Own::default(),
            clock: 0,
        }
    }

    /// Takes other ways. What waits for a target goes on waiting for what that is now, or is dropped if it is nowhere.
    pub(super) fn change_ways(&mut self, routes: Routes, stays: &[Option<usize>]) {
        let now = |hop| match hop {
            Hop::Own => Some(Hop::Own),
            Hop::Neighbour { interface, address } => {
                stays[interface].map(|interface| Hop::Neighbour { interface, address })
            }
        };
        self.neighbours.change(&routes, |interface| stays[interface]);
        fn rename<K: Eq + Hash, V>(of: &mut HashMap<K, V>, now: impl Fn(K) -> Option<K>) {
            let renamed = of.drain().filter_map(|(key, value)| Some((now(key)?, value)));
            *of = renamed.collect();
        }
        self.routes = routes;
        let of_service = |(hop, service)| Some((now(hop)?, service));
        rename(&mut self.held, of_service);
        rename(&mut self.lacks, of_service);
        rename(&mut self.passed, now);
        self.passed_bytes = self.passed.values().map(|of_target| of_target.waiting.bytes()).sum();
    }

    /// Frames to the stack itself that wait.
    pub(super) fn own_waiting(&self) -> usize {
        self.own.len()
    }

    /// The next frame to the stack itself.
    pub(super) fn take_own(&mut self) -> Option<(Offload, Vec<u8>)> {
        self.own.pop()
    }

    /// The target on the way to an address, if frames of this service for it would wait.
    pub(super) fn full_on_the_way_to(&self, to: IpAddr, service: Service) -> Option<Hop> {
        if self.held.is_empty() {
            return None;
        }
        self.routes.hop(to).filter(|hop| self.held.contains_key(&(*hop, service)))
    }

    /// Returns true if frames of this service for this address would wait.
    pub(super) fn is_full(&self, to: IpAddr, service: Service) -> bool {
        self.full_on_the_way_to(to, service).is_some()
    }

    /// Returns true if a frame waits for room at its target, and not for an answer of its neighbour.
    pub(super) fn waits_for_room(&self) -> bool {
        !self.passed.is_empty() || self.held.keys().any(|(hop, _)| !self.neighbours.is_asked(*hop))
    }

    /// Returns true if a datagram for this address would wait for room. For the answer of a neighbour datagrams wait in a queue of their own,
    /// which drops the oldest: somebody who is not there holds up no program.
    pub(super) fn is_full_for_datagrams(&self, to: IpAddr) -> bool {
        let full = self.full_on_the_way_to(to, Service::USUAL);
        full.is_some_and(|hop| !self.neighbours.is_asked(hop))
    }

    /// Sends a frame, or keeps it until its target has room. It is dropped if too many wait already.
    pub(super) fn send(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        (to, sender): (IpAddr, Sender),
        mut offload: Offload,
        frame: &mut [u8],
    ) {
        let Some(hop) = self.routes.hop(to) else {
            return counters.count(Counter::Unreachable);
        };
        match self.try_send(link, counters, (hop, sender), &mut offload, frame) {
            Ok(()) | Err(Blocked::Unsent(Unsent::Unreachable)) => return,
            Err(Blocked::Unresolved) if sender == Sender::Stranger => {
                let waiting = Waiting { offload, frame: frame.to_vec(), is_passed: false };
                return self.neighbours.wait(counters, hop, waiting);
            }
            Err(Blocked::Unsent(Unsent::Full) | Blocked::Unresolved) => {}
            Err(Blocked::Unsent(Unsent::Lacking(lack))) => {
                self.note_lack((hop, Service::of_frame(frame)), lack);
            }
        }
        let held = self.held.entry((hop, Service::of_frame(frame))).or_default();
        if !held.push_copy(offload, frame) {
            counters.count(Counter::TargetFull);
        }
    }

    fn note_lack(&mut self, target: (Hop, Service), lack: Lack) {
        self.lacks.insert(target, (lack, self.clock.saturating_add(LACK_RETRY_NS)));
    }

    /// Returns what has run out that frames of ours of this service to this address wait for.
    pub(super) fn lack_to(&self, to: IpAddr, service: Service) -> Option<Lack> {
        if self.lacks.is_empty() {
            return None;
        }
        let target = self.routes.hop(to).map(|hop| (hop, service));
        target.and_then(|target| self.lacks.get(&target)).map(|(lack, _)| *lack)
    }

    /// When to try again what waits for what has run out.
    pub(super) fn due(&self) -> Option<u64> {
        let passed = self.passed.values().filter_map(|of_target| of_target.retry_at);
        self.lacks.values().map(|(_, at)| *at).chain(passed).min()
    }

    /// As [`Output::send`], a frame whose data lies elsewhere.
    pub(super) fn send_in_parts(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        to: IpAddr,
        mut frame: FrameInParts<'_>,
    ) {
        let service = Service::of_frame(frame.start);
        let is_free = |hop: &Hop| !self.held.contains_key(&(*hop, service));
        let hop = self.routes.hop(to).filter(is_free);
        let Some((hop, at, address)) = hop.and_then(|hop| match hop {
            Hop::Neighbour { interface, address } => {
                let at = &self.routes.interfaces()[interface];
                at.device.takes_parts().then_some((hop, at, address))
            }
            Hop::Own => None,
        }) else {
            let offload = frame.offload;
            return self.send(link, counters, (to, Sender::Own), offload, &mut frame.whole());
        };
        frame.offload.vlan = at.vlan;
        let FrameInParts { offload, ref mut start, rest_bytes, write_rest } = frame;
        let parts = FrameInParts { offload, start, rest_bytes, write_rest };
        match link.transmit_in_parts(at.lan, address, parts) {
            Ok(()) => return counters.count(Counter::FramesSent),
            Err(Unsent::Unreachable) => return counters.count(Counter::Unreachable),
            Err(Unsent::Full) => {}
            Err(Unsent::Lacking(lack)) => self.note_lack((hop, service), lack),
        }
        // The first of its target.
        let held = self.held.entry((hop, service)).or_default();
        let is_held = held.push(offload, frame.whole());
        assert!(is_held, "frames that are held");
    }

    /// Sends a frame that answers one of somebody who asks again if no answer comes. It is not kept: whoever takes no
    /// answers gets none.
    pub(super) fn answer(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        to: IpAddr,
        mut offload: Offload,
        frame: &mut [u8],
    ) {
        let Some(hop) = self.routes.hop(to) else {
            return counters.count(Counter::Unreachable);
        };
        match self.try_send(link, counters, (hop, Sender::Stranger), &mut offload, frame) {
            Ok(()) | Err(Blocked::Unsent(Unsent::Unreachable)) => {}
            Err(Blocked::Unsent(Unsent::Full | Unsent::Lacking(_))) => {
                counters.count(Counter::TargetFull);
            }
            Err(Blocked::Unresolved) => {
                let waiting = Waiting { offload, frame: frame.to_vec(), is_passed: false };
                self.neighbours.wait(counters, hop, waiting);
            }
        }
    }

    /// Passes a packet of others on, or keeps it until its target has room. If too many of others wait already, one of the
    /// source that has the most of them is dropped.
    pub(super) fn pass_on(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        (source, hop): (IpAddr, Hop),
        mut offload: Offload,
        frame: &mut [u8],
    ) {
        let mut retry_at = None;
        if !self.passed.contains_key(&hop) {
            match self.try_send(link, counters, (hop, Sender::Stranger), &mut offload, frame) {
                Ok(()) => return counters.count(Counter::Forwarded),
                Err(Blocked::Unsent(Unsent::Unreachable)) => return,
                Err(Blocked::Unsent(Unsent::Full)) => {}
                Err(Blocked::Unsent(Unsent::Lacking(_))) => {
                    retry_at = Some(self.clock.saturating_add(LACK_RETRY_NS))
                }
                Err(Blocked::Unresolved) => {
                    let waiting = Waiting { offload, frame: frame.to_vec(), is_passed: true };
                    return self.neighbours.wait(counters, hop, waiting);
                }
            }
        }
        let Output { passed, passed_bytes, .. } = self;
        let of_target = passed.entry(hop).or_default();
        of_target.retry_at = of_target.retry_at.or(retry_at);
        while of_target.waiting.is_full()
            || of_target.waiting.bytes() + frame.len()
                > PASSED_BYTES_MAX.saturating_sub(*passed_bytes) / PASSED_SHARE
        {
            counters.count(Counter::TargetFull);
            let Some(evicted) = of_target.evictable(source) else {
                if of_target.waiting.is_empty() {
                    passed.remove(&hop);
                }
                return;
            };
            *passed_bytes -= of_target.remove(evicted);
        }
        *passed_bytes += frame.len();
        of_target.push(source, offload, frame);
    }

    /// Returns true if anything waits for a neighbour.
    pub(super) fn holds_for(&self, neighbour: IpAddr) -> bool {
        let held = self.held.keys().map(|(hop, _)| hop);
        held.chain(self.passed.keys()).any(|hop| hop.is_neighbour(neighbour))
    }

    /// Drops what waits for a neighbour: whoever has its address next is somebody else. Returns the targets for which something of ours was
    /// dropped.
    pub(super) fn forget(&mut self, neighbour: IpAddr) -> Vec<Hop> {
        let Output { held, passed, passed_bytes, lacks, .. } = self;
        let is_it = |hop: &Hop| hop.is_neighbour(neighbour);
        for (_, of_target) in passed.extract_if(|hop, _| is_it(hop)) {
            *passed_bytes -= of_target.waiting.bytes();
        }
        lacks.retain(|(hop, _), _| !is_it(hop));
        held.extract_if(|(hop, _), _| is_it(hop)).map(|((hop, _), _)| hop).collect()
    }

    /// Tries again what was kept, and what waits for something that had run out after a while. Calls `has_room` with each target for which nothing of ours of a service is left.
    pub(super) fn retry(
        &mut self,
        now: u64,
        link: &mut impl Link,
        counters: &mut Counters,
        mut has_room: impl FnMut(Hop),
    ) {
        let Output { routes, neighbours, held, passed, own, passed_bytes, lacks, .. } = self;
        if held.is_empty() && passed.is_empty() {
            return;
        }
        let mut exit = Exit { own, routes, neighbours, now };
        let retry_at = now.saturating_add(LACK_RETRY_NS);
        held.retain(|target, held| {
            if lacks.get(target).is_some_and(|(_, at)| now < *at) {
                return true;
            }
            lacks.remove(target);
            let (hop, _) = target;
            while let Some((offload, frame)) = held.first() {
                match exit.transmit(link, counters, (*hop, Sender::Own), offload, frame) {
                    Ok(()) | Err(Blocked::Unsent(Unsent::Unreachable)) => {}
                    Err(Blocked::Unsent(Unsent::Full) | Blocked::Unresolved) => return true,
                    Err(Blocked::Unsent(Unsent::Lacking(lack))) => {
                        lacks.insert(*target, (lack, retry_at));
                        return true;
                    }
                }
                held.pop();
            }
            has_room(*hop);
            false
        });
        passed.retain(|hop, of_target| {
            if of_target.retry_at.is_some_and(|at| now < at) {
                return true;
            }
            of_target.retry_at = None;
            while let Some(((_, offload), frame)) = of_target.waiting.first() {
                if held.contains_key(&(*hop, Service::of_frame(frame))) {
                    return true;
                }
                match exit.transmit(link, counters, (*hop, Sender::Stranger), offload, frame) {
                    Err(Blocked::Unsent(Unsent::Full)) => return true,
                    Err(Blocked::Unsent(Unsent::Lacking(_))) => {
                        of_target.retry_at = Some(retry_at);
                        return true;
                    }
                    Ok(()) => counters.count(Counter::Forwarded),
                    Err(Blocked::Unsent(Unsent::Unreachable)) => {}
                    Err(Blocked::Unresolved) => {
                        let (offload, frame) = (*offload, frame.to_vec());
                        let waiting = Waiting { offload, frame, is_passed: true };
                        exit.neighbours.wait(counters, *hop, waiting);
                    }
                }
                *passed_bytes -= of_target.remove(0);
            }
            false
        });
    }

    /// Sends a frame, unless others of ours wait before it, or its target is full.
    fn try_send(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        (hop, sender): (Hop, Sender),
        offload: &mut Offload,
        frame: &mut [u8],
    ) -> Result<(), Blocked> {
        if !self.held.is_empty() && self.held.contains_key(&(hop, Service::of_frame(frame))) {
            let is_asked = sender == Sender::Stranger && self.neighbours.is_asked(hop);
            return Err(if is_asked { Blocked::Unresolved } else { Unsent::Full.into() });
        }
        let Output { own, routes, neighbours, clock, .. } = self;
        let mut exit = Exit { own, routes, neighbours, now: *clock };
        exit.transmit(link, counters, (hop, sender), offload, frame)
    }
}
