//! Addresses that are distributed: what the stack does for its part in each.

use super::*;
use crate::tcpip::control;
use crate::tcpip::device::Sources;
use crate::tcpip::distributor::{
    Act, DISTRIBUTED_MAX, DistributedTarget, Distribution, DistributorRole, Flow, Message, OwnPart,
    PORT, Reset, Signs, Verdict,
};
use crate::tcpip::packet::FIN;
use crate::tcpip::passing::Passing;

/// Distributed addresses, as observers see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distributed {
    /// The address.
    pub address: IpAddr,
    /// The part of this stack.
    pub role: DistributorRole,
    /// The address by which the other stacks know this one.
    pub own: IpAddr,
    /// Connections of this stack at the address.
    pub connections: usize,
    /// Flows that it keeps note of, while it distributes.
    pub flows: usize,
    /// The limit of those.
    pub flows_max: usize,
    /// New connections that were not taken because of that limit.
    pub refused: u64,
    /// The targets, as far as it knows them.
    pub targets: Vec<DistributedTarget>,
}

impl Stack {
    /// Gives the stack its part in distributed addresses, in place of those before: which part, its own addresses say. Those in which it has none are left out,
    /// and those beyond [`DISTRIBUTED_MAX`].
    ///
    /// Messages between the stacks go over networks that vouch for sources ([`Sources::Vouched`]), and over no others.
    pub fn set_distributions(&mut self, distributions: Vec<Distribution>) {
        let own = self.addresses().to_vec();
        // One for each stack: what it has goes on when it gets other parts.
        let life = self.secret.number("life");
        let parts = distributions.into_iter().take(DISTRIBUTED_MAX);
        let parts = parts.filter_map(|rule| Distributor::new(rule, &own, life));
        self.distributors = parts.collect();
        for at in 0..self.distributors.len() {
            let count = self.count_connections_at(self.distributors[at].address());
            self.distributors[at].own_connections = count;
        }
        self.hide_addresses();
    }

    /// Whether the stack is to have a distributed address on the network, for each for which that has changed since this was asked last. Whoever drives the
    /// stack sees to that, and says what came of it ([`Stack::set_distributes`]).
    pub fn take_address_wish(&mut self) -> Option<(IpAddr, bool)> {
        self.distributors.iter_mut().find_map(|one| Some((one.address(), one.take_wish()?)))
    }

    /// The network has given the stack an address that is distributed, or has refused it or taken it away.
    ///
    /// Where the stack answers for its addresses itself, everybody is told that this one is here now.
    pub fn set_distributes(
        &mut self,
        now: u64,
        address: IpAddr,
        distributes: bool,
        link: &mut impl Link,
    ) {
        let found = self.distributors.iter_mut().find(|one| one.address() == address);
        let Some(found) = found else { return };
        let before = found.distributes();
        found.set_distributes(now, distributes);
        let is_news = found.distributes() != before;
        self.hide_addresses();
        if !is_news {
            return;
        }
        self.has_moved = true;
        let at = self.interfaces().iter().find(|one| {
            one.device.asks() && one.networks.iter().any(|network| network.contains(address))
        });
        let Some(at) = at else { return };
        let (lan, mac, vlan) = (at.lan, at.mac, at.vlan);
        self.output.routes.change_interfaces(|interfaces| {
            let found = interfaces.iter_mut().find(|one| (one.lan, one.vlan) == (lan, vlan));
            if let Some(interface) = found {
                interface.addresses.retain(|own| *own != address);
                interface.addresses.extend(distributes.then_some(address));
            }
        });
        self.hide_addresses();
        if distributes {
            let announcement = neighbour::announcement(address, mac);
            // Whoever has not heard it asks when the last one does not answer.
            let _ = link.send(lan, Offload { vlan, ..Offload::NONE }, &announcement);
        }
    }

    /// A stack that has a part in distributed addresses has left the network.
    pub fn lose_distributed(&mut self, now: u64, address: IpAddr, link: &mut impl Link) {
        let mut acts = Vec::new();
        for at in 0..self.distributors.len() {
            self.distributors[at].lose(now, address, &mut acts);
            self.act(now, at, &mut acts, link);
        }
    }

    /// The distributed addresses in which the stack has a part.
    pub fn distributed(&self) -> impl Iterator<Item = Distributed> {
        self.distributors.iter().map(|one| {
            let (flows, flows_max) = one.flow_counts();
            Distributed {
                address: one.address(),
                role: one.role(),
                own: one.from(),
                connections: one.own_connections,
                flows,
                flows_max,
                refused: one.refused,
                targets: one.targets(self.clock).collect(),
            }
        })
    }

    /// Returns true if the stack has a part in some distributed address.
    pub fn has_distributions(&self) -> bool {
        !self.distributors.is_empty()
    }

    /// Returns true if the stack itself speaks from this port of UDP, and no program does: others would believe it.
    pub(super) fn keeps_port(&self, port: u16) -> bool {
        port == PORT && self.has_distributions()
    }

    /// Returns true if the stack has a part in this distributed address.
    pub fn has_part_in(&self, address: IpAddr) -> bool {
        self.distributors.iter().any(|one| one.address() == address)
    }

    /// The addresses that this stack distributes now.
    pub fn distributed_here(&self) -> impl Iterator<Item = IpAddr> {
        self.distributors.iter().filter(|one| one.distributes()).map(Distributor::address)
    }

    /// The addresses that the stack has and does not show.
    fn hide_addresses(&mut self) {
        let routes = &self.output.routes;
        let is_shown = |address: &IpAddr| {
            routes.interfaces().iter().any(|interface| interface.addresses.contains(address))
        };
        let hidden = self.distributors.iter().filter(|one| one.has_address());
        let hidden = hidden.map(Distributor::address).filter(|address| !is_shown(address));
        let hidden: Vec<IpAddr> = hidden.collect();
        if hidden == routes.hidden() {
            return;
        }
        let lost = routes.hidden().iter().filter(|address| !hidden.contains(address));
        let lost: Vec<IpAddr> = lost.copied().filter(|address| !is_shown(address)).collect();
        self.output.routes.set_hidden(hidden);
        lost.into_iter().for_each(|address| self.end_from(address));
    }

    fn count_connections_at(&self, address: IpAddr) -> usize {
        let is_at = |index: &u32| {
            self.connections.tuple(*index).is_some_and(|tuple| tuple.local.ip() == address)
        };
        self.live.iter().filter(is_at).count()
    }

    /// The stack has a connection more at an address, or one less.
    pub(super) fn note_at_distributed(&mut self, address: IpAddr, is_more: bool) {
        for one in self.distributors.iter_mut().filter(|one| one.address() == address) {
            let own = &mut one.own_connections;
            *own = if is_more { *own + 1 } else { own.saturating_sub(1) };
        }
    }

    /// Which of the addresses that this stack distributes a frame is for.
    pub(super) fn distributes(&self, frame: &[u8]) -> Option<usize> {
        if self.distributors.is_empty() {
            return None;
        }
        let to = passing::destination(frame)?;
        self.distributors.iter().position(|one| one.distributes() && one.address() == to)
    }

    /// Returns true if a frame is for an address of which the stack is a target, and comes from a stack that may distribute it: it brings what clients
    /// have sent.
    pub(super) fn comes_from_distributor(
        &self,
        link: &mut impl Link,
        interface: usize,
        frame: &[u8],
    ) -> bool {
        if self.distributors.is_empty() {
            return false;
        }
        let Some(to) = passing::destination(frame) else { return false };
        let Some(part) = self.distributors.iter().find(|one| one.address() == to) else {
            return false;
        };
        let Some(at) = self.interfaces().get(interface) else { return false };
        part.is_target()
            && at.device.sources == Sources::Vouched
            && part.other_distributors().any(|from| link.is_sender(at.lan, frame, from))
    }

    /// Returns true if a frame is for an address of which the stack is a target alone, and no distributor has handed it on: whose connection it is of, the
    /// distributor knows.
    pub(super) fn goes_past_distributor(
        &self,
        link: &mut impl Link,
        interface: usize,
        frame: &[u8],
    ) -> bool {
        if self.distributors.is_empty() {
            return false;
        }
        let Some(to) = passing::destination(frame) else { return false };
        let is_it =
            |one: &Distributor| one.address() == to && one.is_target() && !one.distributes();
        self.distributors.iter().any(is_it) && !self.comes_from_distributor(link, interface, frame)
    }

    /// Sends what is for a distributed address to its target. True if it is for this stack itself.
    pub(super) fn distribute(
        &mut self,
        now: u64,
        (which, interface): (usize, usize),
        frame: Frame<'_>,
        link: &mut impl Link,
    ) -> Result<bool, Counter> {
        let packet = Passing::parse(frame.bytes)?;
        if !packet.fits(&frame.offload, frame.bytes.len()) {
            return Err(Counter::Malformed);
        }
        // Another that took itself for the distributor: nothing goes to and fro between the two.
        if self.comes_from_distributor(link, interface, frame.bytes) {
            return Ok(true);
        }
        if !packet::is_host(packet.source)
            || self.has_address(packet.source)
            || !self.may_come_from(link, interface, frame.bytes, packet.source)
        {
            return Err(Counter::BadSource);
        }
        let end = ETHERNET_BYTES + packet.bytes;
        let (verdict, flow) = match packet.transport {
            Some((begin, TCP)) => {
                let segment = Segment::parse(&frame.bytes[begin..end])?;
                let client = SocketAddr::new(packet.source, segment.source);
                let flow = Flow { client, port: segment.destination };
                (self.decide(now, which, flow, &segment, (&packet, frame)), flow)
            }
            Some((_, ICMP | ICMPV6)) => {
                let Some(flow) = flow_of_error(frame.bytes, packet.destination) else {
                    return Ok(true);
                };
                match self.distributors[which].target_of(&flow) {
                    Some(verdict) => (verdict, flow),
                    None => return Ok(true),
                }
            }
            // A datagram: only connections are distributed.
            Some(_) => return Ok(true),
            // A part of a packet does not say which flow it belongs to.
            None => return Err(Counter::FlowUnknown),
        };
        match verdict {
            Verdict::Own => return Ok(true),
            // The targets are asked with the next poll, for all flows of which something has come.
            Verdict::Waits => {}
            Verdict::To(target) => {
                self.hand_to_target(now, which, target, (&packet, frame), link)?;
            }
            Verdict::Refused(reset) => self.reset_client(which, flow, reset, link),
            Verdict::Full => return Err(Counter::FlowsFull),
            Verdict::Dropped => return Err(Counter::FlowUnknown),
        }
        Ok(false)
    }

    fn decide(
        &mut self,
        now: u64,
        which: usize,
        flow: Flow,
        segment: &Segment,
        (packet, frame): (&Passing, Frame<'_>),
    ) -> Verdict {
        let Stack { distributors, live, connections, time_wait, .. } = self;
        let part = &mut distributors[which];
        let tuple =
            Tuple { local: SocketAddr::new(part.address(), flow.port), remote: flow.client };
        let signs = Signs {
            is_first: segment.has(SYN) && !segment.has(ACK),
            is_last: segment.has(FIN) || segment.has(RST),
            acknowledged: segment.has(ACK).then_some(segment.acknowledgement),
            end: segment.sequence.wrapping_add(segment.length()),
        };
        let has =
            || live.find(&tuple, connections).is_some() || time_wait.get(now, &tuple).is_some();
        let keep = || {
            let bytes = || frame.bytes[..ETHERNET_BYTES + packet.bytes].to_vec();
            (packet.hops > 1).then(|| (frame.offload, bytes()))
        };
        match part.take(now, flow, signs, has, keep) {
            // Nobody answers a reset.
            Verdict::Refused(_) if segment.has(RST) => Verdict::Dropped,
            verdict => verdict,
        }
    }

    /// Hands a packet to a target. Its connection answers the client itself.
    fn hand_to_target(
        &mut self,
        now: u64,
        which: usize,
        target: IpAddr,
        (packet, frame): (&Passing, Frame<'_>),
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        if packet.hops <= 1 {
            return Err(Counter::HopLimit);
        }
        let hop = self.output.routes.hop(target).ok_or(Counter::NoRoute)?;
        let Hop::Neighbour { interface: next, .. } = hop else { return Err(Counter::NoRoute) };
        self.distributors[which].count(target, packet.bytes);
        self.counters.count(Counter::Distributed);
        self.hand_on(now, (next, hop), packet, frame, link)
    }

    fn reset_client(&mut self, which: usize, flow: Flow, reset: Reset, link: &mut impl Link) {
        let local = SocketAddr::new(self.distributors[which].address(), flow.port);
        let tuple = Tuple { local, remote: flow.client };
        let bare = match reset {
            Reset::At(sequence) => Bare { flags: RST, sequence, ..Bare::default() },
            Reset::Answering(acknowledgement) => {
                Bare { flags: RST | ACK, acknowledgement, ..Bare::default() }
            }
        };
        self.counters.count(Counter::ResetsSent);
        self.send_bare(tuple, bare, link);
    }

    pub(super) fn poll_distributors(&mut self, now: u64, link: &mut impl Link) {
        let mut acts = Vec::new();
        for which in 0..self.distributors.len() {
            if self.distributors[which].due() <= now {
                self.poll_distributor(now, which, &mut acts, link);
            }
        }
    }

    fn poll_distributor(
        &mut self,
        now: u64,
        which: usize,
        acts: &mut Vec<Act>,
        link: &mut impl Link,
    ) {
        let address = self.distributors[which].address();
        let own = self.distributors[which].tells(now).then(|| self.own_part(which, address));
        self.distributors[which].poll(now, own, acts);
        self.act(now, which, acts, link);
    }

    fn act(&mut self, now: u64, which: usize, acts: &mut Vec<Act>, link: &mut impl Link) {
        for act in acts.drain(..) {
            match act {
                Act::Tell(to, message) => self.tell(which, to, &message, link),
                Act::Ask(to, message) => {
                    self.counters.count(Counter::FlowsAsked);
                    self.tell(which, to, &message, link);
                }
                Act::Reset(flow, reset) => self.reset_client(which, flow, reset, link),
                Act::Pass(target, frames) => {
                    for (offload, bytes) in frames {
                        let frame = Frame { offload, bytes: &bytes };
                        let passed = self.pass_kept(now, which, target, frame, link);
                        if let Err(reason) = passed {
                            self.counters.count(reason);
                        }
                    }
                }
            }
        }
    }

    /// A packet that has waited goes to the target of its flow.
    fn pass_kept(
        &mut self,
        now: u64,
        which: usize,
        target: IpAddr,
        frame: Frame<'_>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        if self.has_address(target) {
            let packet = Packet::parse(frame.bytes)?;
            return self.take_packet(now, &packet, frame.offload.checksum, link);
        }
        let packet = Passing::parse(frame.bytes)?;
        self.hand_to_target(now, which, target, (&packet, frame), link)
    }

    fn tell(&mut self, which: usize, to: IpAddr, message: &[u8], link: &mut impl Link) {
        let from = SocketAddr::new(self.distributors[which].from(), PORT);
        let mut frame = packet::datagram(from, SocketAddr::new(to, PORT), message);
        let offload = packet::leave_checksum(&mut frame);
        // What is not heard is said again.
        self.output.answer(link, &mut self.counters, to, offload, &mut frame);
    }

    /// What the stack has as a target of an address.
    fn own_part(&self, which: usize, address: IpAddr) -> OwnPart {
        let at = |local: &SocketAddr| {
            let is_any = local.ip().is_unspecified() && local.is_ipv4() == address.is_ipv4();
            is_any || local.ip() == address
        };
        let ports = self.listeners.keys().filter(|local| at(local)).map(|local| local.port());
        OwnPart {
            connections: u32::try_from(self.distributors[which].own_connections)
                .unwrap_or(u32::MAX),
            ports: ports.collect(),
        }
    }

    /// Takes a datagram that the stacks of a distributed address send each other. False if it is none.
    pub(super) fn take_exchange(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        link: &mut impl Link,
    ) -> bool {
        if self.distributors.is_empty() {
            return false;
        }
        let Ok(datagram) = Datagram::parse(packet.transport()) else { return false };
        if (datagram.source, datagram.destination) != (PORT, PORT) {
            return false;
        }
        let from = packet.source;
        let is_vouched = self.interfaces().iter().any(|interface| {
            interface.lan == self.arriving && interface.device.sources == Sources::Vouched
        });
        let found =
            Message::parse(datagram.data).filter(|_| is_vouched).and_then(|(about, message)| {
                let is_it = |one: &Distributor| one.address() == about && one.knows(from);
                Some((self.distributors.iter().position(is_it)?, message))
            });
        let Some((which, message)) = found else {
            self.counters.count(Counter::ExchangeRefused);
            return true;
        };
        let Stack { distributors, live, connections, time_wait, .. } = self;
        let part = &mut distributors[which];
        let address = part.address();
        let has = |flow: &Flow| {
            let local = SocketAddr::new(address, flow.port);
            let tuple = Tuple { local, remote: flow.client };
            live.find(&tuple, connections).is_some() || time_wait.get(now, &tuple).is_some()
        };
        let mut acts = Vec::new();
        part.take_message(now, from, message, has, &mut acts);
        self.act(now, which, &mut acts, link);
        if !self.distributors[which].has_address() {
            self.hide_addresses();
        }
        true
    }
}

/// The flow of the packet that an error of ICMP is about.
fn flow_of_error(frame: &[u8], address: IpAddr) -> Option<Flow> {
    let packet = Packet::parse(frame).ok()?;
    let report = control::report(&packet).ok()??;
    let is_ours = report.protocol == TCP && report.local.ip() == address;
    is_ours.then_some(Flow { client: report.remote, port: report.local.port() })
}
