//! Stacks at several LANs, and those between them that pass packets on.

use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::tcpip::packet::{Fragment, Packet};
use crate::tcpip::{Device, Interface, Neighbour, Prefix, Route, fragments};

/// A frame under way: to which stack, and over which LAN.
pub(super) type Flight = (usize, usize, Offload, Vec<u8>);

/// LANs whose members are stacks. What is sent arrives at once, in order.
pub(super) struct Town {
    pub(super) now: u64,
    pub(super) stacks: Vec<Stack>,
    pub(super) streets: Streets,
}

/// Who lives where, and the frames under way.
#[derive(Default)]
pub(super) struct Streets {
    /// At each LAN the members, their addresses of both kinds and which stack they are.
    members: Vec<(usize, Mac, IpAddr, usize)>,
    /// The VLANs of each stack.
    vlans: Vec<Vec<u16>>,
    under_way: VecDeque<Flight>,
    /// Bytes of the longest frame, after segmentation.
    pub(super) longest: Option<usize>,
    /// Stacks that take nothing, and those that take only what is of a service of its own.
    pub(super) full: BTreeSet<usize>,
    pub(super) full_for_usual: BTreeSet<usize>,
    /// Of which service each frame said that it is that was sent to somebody.
    pub(super) services: Vec<u8>,
    /// Sources that may not be passed on to a LAN.
    kept_out: BTreeSet<(usize, IpAddr)>,
    /// Stacks that do not hear what is sent to all.
    pub(super) deaf: BTreeSet<usize>,
    /// LANs whose frames have to be complete.
    pub(super) complete: BTreeSet<usize>,
}

impl Streets {
    /// Notes where a stack is, and gives its interfaces their addresses.
    fn house(&mut self, number: usize, plan: &mut Plan) {
        for interface in &mut plan.interfaces {
            interface.mac = mac_of(number, interface.lan);
            let of = |address: &IpAddr| (interface.lan, interface.mac, *address, number);
            self.members.extend(interface.addresses.iter().map(of));
        }
        self.vlans.resize(self.vlans.len().max(number + 1), Vec::new());
        self.vlans[number] = plan.interfaces.iter().filter_map(|one| one.vlan).collect();
    }
}

struct Door<'a> {
    from: usize,
    streets: &'a mut Streets,
}

impl Link for Door<'_> {
    fn transmit(
        &mut self,
        lan: usize,
        to: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) -> Result<(), Unsent> {
        let at = |one: &&(usize, Mac, IpAddr, usize)| (one.0, one.2) == (lan, to);
        let (_, mac, _, target) =
            *self.streets.members.iter().find(at).ok_or(Unsent::Unreachable)?;
        let service = crate::tcpip::packet::service(frame);
        let is_full = self.streets.full_for_usual.contains(&target) && service == 0;
        if is_full || self.streets.full.contains(&target) {
            return Err(Unsent::Full);
        }
        self.streets.services.push(service);
        address(frame, mac, mac_of(self.from, lan));
        let cut = offload.segmentation;
        let bytes =
            cut.map_or(frame.len(), |cut| usize::from(cut.header_bytes + cut.segment_bytes));
        self.streets.longest = self.streets.longest.max(Some(bytes));
        assert_eq!(Offload::parse(&offload.head(), frame), Ok(offload));
        assert!(!self.streets.complete.contains(&lan) || offload == Offload::NONE);
        self.streets.under_way.push_back((target, lan, offload, frame.to_vec()));
        Ok(())
    }

    fn send(&mut self, lan: usize, offload: Offload, frame: &[u8]) -> Result<(), Unsent> {
        let mac = crate::lan::frame::destination(frame).unwrap();
        let is_for = |one: &&(usize, Mac, IpAddr, usize)| {
            let is_heard = mac.is_group() && !self.streets.deaf.contains(&one.3);
            one.0 == lan && one.3 != self.from && (one.1 == mac || is_heard)
        };
        let targets = self.streets.members.iter().filter(is_for).map(|one| one.3);
        for target in targets.collect::<BTreeSet<_>>() {
            self.streets.under_way.push_back((target, lan, offload, frame.to_vec()));
        }
        Ok(())
    }

    fn may_send_from(&mut self, lan: usize, frame: &[u8], address: IpAddr) -> bool {
        let source = crate::lan::frame::source(frame).unwrap();
        let is_it =
            |one: &(usize, Mac, IpAddr, usize)| (one.0, one.1, one.2) == (lan, source, address);
        self.streets.members.iter().any(is_it)
    }

    fn may_pass_from(&mut self, lan: usize, source: IpAddr) -> bool {
        !self.streets.kept_out.contains(&(lan, source))
    }
}

pub(super) fn mac_of(stack: usize, lan: usize) -> Mac {
    Mac([2, 0, 0, 0, lan as u8, stack as u8 + 1])
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn route(to: &str, via: &str) -> Route {
    Route { to: to.parse().unwrap(), via: ip(via) }
}

/// What a stack is made of: its LANs with their MTU, addresses and VLANs, its routes, and whether it passes packets on.
#[derive(Clone, Default)]
pub(super) struct Plan {
    interfaces: Vec<Interface>,
    routes: Vec<Route>,
    forwards: bool,
}

impl Plan {
    pub(super) fn at(mut self, lan: usize, mtu: usize, addresses: &[&str]) -> Plan {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| ip(text)).collect();
        let network = |address: &IpAddr| {
            Prefix::of(*address, if address.is_ipv4() { 24 } else { 64 }).unwrap()
        };
        let networks = addresses.iter().map(network).collect();
        let mac = Mac([0; 6]);
        self.interfaces.push(Interface {
            lan,
            vlan: None,
            mac,
            mtu,
            addresses,
            networks,
            device: Device::LAN,
        });
        self
    }

    /// The last LAN is another device.
    pub(super) fn over(mut self, device: Device) -> Plan {
        self.interfaces.last_mut().unwrap().device = device;
        self
    }

    fn in_vlan(mut self, lan: usize, number: u16, network: &str, own: &str) -> Plan {
        self = self.at(lan, 1500, &[own]);
        let last = self.interfaces.last_mut().unwrap();
        (last.vlan, last.networks) = (Some(number), vec![network.parse().unwrap()]);
        self
    }

    pub(super) fn to(mut self, network: &str, via: &str) -> Plan {
        self.routes.push(route(network, via));
        self
    }

    pub(super) fn forwarding(mut self) -> Plan {
        self.forwards = true;
        self
    }
}

impl Town {
    pub(super) fn new(plans: Vec<Plan>) -> Town {
        let mut streets = Streets::default();
        let mut stacks = Vec::new();
        for (number, mut plan) in plans.into_iter().enumerate() {
            streets.house(number, &mut plan);
            let options = Options { forwards: plan.forwards, ..Options::default() };
            let secret = Secret([number as u8; 16]);
            stacks.push(Stack::with_interfaces(plan.interfaces, plan.routes, options, secret));
        }
        let mut town = Town { now: 0, stacks, streets };
        town.tell();
        town
    }

    /// Gives a running stack other interfaces and routes.
    pub(super) fn change(&mut self, number: usize, mut plan: Plan) {
        self.streets.members.retain(|one| one.3 != number);
        self.streets.house(number, &mut plan);
        self.stacks[number].change_ways(plan.interfaces, plan.routes);
        self.tell();
    }

    /// Tells all stacks who is there.
    fn tell(&mut self) {
        for (number, stack) in self.stacks.iter_mut().enumerate() {
            for lan in 0..4 {
                let others =
                    self.streets.members.iter().filter(|one| one.0 == lan && one.3 != number);
                let neighbour = |one: &(usize, Mac, IpAddr, usize)| Neighbour {
                    addresses: vec![one.2],
                    vlans: self.streets.vlans.get(one.3).cloned().unwrap_or_default(),
                };
                let others: Vec<Neighbour> = others.map(neighbour).collect();
                let changed = (0..64).map(|number| (number, others.get(number).cloned()));
                stack.change_neighbours(lan, &changed.collect::<Vec<_>>());
            }
        }
    }

    pub(super) fn give(&mut self, (target, lan, offload, bytes): Flight) {
        let door = &mut Door { from: target, streets: &mut self.streets };
        self.stacks[target].receive(self.now, lan, Frame { offload, bytes: &bytes }, door);
    }

    /// Goes on until nothing is under way.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut is_busy = false;
            for (number, stack) in self.stacks.iter_mut().enumerate() {
                let door = &mut Door { from: number, streets: &mut self.streets };
                is_busy |= stack.poll(self.now, door);
            }
            let flights = std::mem::take(&mut self.streets.under_way);
            if flights.is_empty() && !is_busy {
                return;
            }
            for flight in flights {
                self.give(flight);
            }
        }
        panic!("there is always more to do");
    }

    pub(super) fn pass(&mut self, time: u64) {
        let end = self.now + time;
        loop {
            self.settle();
            let due = self.stacks.iter().filter_map(Stack::due).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = due.max(self.now + 1);
        }
        self.now = end;
        self.settle();
    }

    /// A connection, and its other end.
    pub(super) fn connect(
        &mut self,
        from: usize,
        to: usize,
        address: &str,
    ) -> Option<[ConnectionId; 2]> {
        let at = SocketAddr::new(ip(address), 7);
        let _ = self.stacks[to].listen(at, 16);
        let asking = self.stacks[from].connect(self.now, at).unwrap();
        self.settle();
        Some([asking, self.stacks[to].accept(at)?.0])
    }

    /// Sends so many bytes, and finds them at the other end.
    pub(super) fn carry(
        &mut self,
        from: usize,
        to: usize,
        [asking, accepted]: [ConnectionId; 2],
        bytes: usize,
    ) {
        let (mut sent, mut received) = (0, 0);
        for _ in 0..100_000 {
            self.stacks[from].send_with(asking, |room| {
                let count = room.len().min(bytes - sent);
                room[..count]
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, room)| *room = byte(0, sent + at));
                sent += count;
                (count, ())
            });
            self.pass(2_000_000);
            while let Some(count) = self.stacks[to].receive_with(accepted, |bytes| {
                for (at, found) in bytes.iter().enumerate() {
                    assert_eq!(*found, byte(0, received + at), "byte {}", received + at);
                }
                (bytes.len(), bytes.len())
            }) {
                received += count;
            }
            if received == bytes {
                return;
            }
        }
        panic!("{received} of {bytes} bytes came");
    }

    pub(super) fn datagram(
        &mut self,
        from: usize,
        source: SocketAddr,
        to: SocketAddr,
        data: &[u8],
    ) {
        let door = &mut Door { from, streets: &mut self.streets };
        self.stacks[from].send_to(self.now, source, to, data, door).unwrap();
        self.settle();
    }
}

/// Two LANs, a host at each, and one between them: hosts 0 and 2.
fn two_lans(mtus: [usize; 2]) -> Town {
    Town::new(vec![
        Plan::default()
            .at(0, mtus[0], &["10.1.0.2", "fd00:1::2"])
            .to("0.0.0.0/0", "10.1.0.1")
            .to("::/0", "fd00:1::1"),
        Plan::default()
            .at(0, mtus[0], &["10.1.0.1", "fd00:1::1"])
            .at(1, mtus[1], &["10.2.0.1", "fd00:2::1"])
            .forwarding(),
        Plan::default()
            .at(1, mtus[1], &["10.2.0.2", "fd00:2::2"])
            .to("10.1.0.0/16", "10.2.0.1")
            .to("fd00:1::/64", "fd00:2::1"),
    ])
}

#[test]
fn a_stream_crosses_one_that_forwards() {
    for target in ["10.2.0.2", "fd00:2::2"] {
        let mut town = two_lans([1500, 1500]);
        let ends = town.connect(0, 2, target).unwrap();
        town.carry(0, 2, ends, 300_000);
        town.carry(2, 0, [ends[1], ends[0]], 300_000);
        assert!(town.stacks[1].counter(Counter::Forwarded) > 10);
        for stack in &town.stacks {
            assert_eq!(stack.counter(Counter::BadSource), 0);
            assert_eq!(stack.counter(Counter::Resent), 0, "nothing is lost on the way");
        }
    }
}

#[test]
fn one_that_does_not_forward_drops_what_is_for_others() {
    let mut town = Town::new(vec![
        Plan::default().at(0, 1500, &["10.1.0.2"]).to("10.2.0.0/24", "10.1.0.1"),
        Plan::default().at(0, 1500, &["10.1.0.1"]).at(1, 1500, &["10.2.0.1"]),
        Plan::default().at(1, 1500, &["10.2.0.2"]).to("10.1.0.0/24", "10.2.0.1"),
    ]);
    assert!(town.connect(0, 2, "10.2.0.2").is_none());
    assert_eq!(town.stacks[1].counter(Counter::NotOurs), 1);
}

#[test]
fn a_narrow_lan_on_the_way_is_told_to_the_sender_and_the_stream_goes_on() {
    let end = |lan, last: &str, gateway: &str| {
        let (v4, v6) = (format!("10.{lan}.0.{last}"), format!("fd00:{lan}::{last}"));
        let (via_v4, via_v6) = (format!("10.{lan}.0.{gateway}"), format!("fd00:{lan}::{gateway}"));
        Plan::default().at(lan, 9000, &[&v4, &v6]).to("0.0.0.0/0", &via_v4).to("::/0", &via_v6)
    };
    let between = |lan: usize, own: &str, next: &str, far: usize| {
        Plan::default()
            .at(lan, 9000, &[&format!("10.{lan}.0.1"), &format!("fd00:{lan}::1")])
            .at(1, 1300, &[&format!("10.1.0.{own}"), &format!("fd00:1::{own}")])
            .to(&format!("10.{far}.0.0/24"), &format!("10.1.0.{next}"))
            .to(&format!("fd00:{far}::/64"), &format!("fd00:1::{next}"))
            .forwarding()
    };
    for target in ["10.2.0.2", "fd00:2::2"] {
        let plans = vec![
            end(0, "2", "1"),
            between(0, "8", "9", 2),
            between(2, "9", "8", 0),
            end(2, "2", "1"),
        ];
        let mut town = Town::new(plans);
        let ends = town.connect(0, 3, target).unwrap();
        town.carry(0, 3, ends, 100_000);
        assert!(town.stacks[1].counter(Counter::TooLong) > 0, "{target}");
        assert!(town.stacks[0].counter(Counter::ErrorsReceived) > 0, "{target}");
    }
}

#[test]
fn datagrams_that_are_too_long_for_a_lan_on_the_way_go_in_fragments_from_then_on() {
    for (own, target) in [("10.1.0.2", "10.2.0.2"), ("fd00:1::2", "fd00:2::2")] {
        let mut town = two_lans([9000, 1300]);
        let (from, to) = (SocketAddr::new(ip(own), 1000), SocketAddr::new(ip(target), 53));
        town.stacks[0].bind(from).unwrap();
        town.stacks[2].bind(to).unwrap();
        let data: Vec<u8> = (0..5000).map(|at| byte(1, at)).collect();
        town.datagram(0, from, to, &data);
        assert_eq!(town.stacks[2].receive_from(to), None, "it was too long, and not to be cut");
        assert_eq!(town.stacks[1].counter(Counter::TooLong), 1);
        town.datagram(0, from, to, &data);
        assert_eq!(town.stacks[2].receive_from(to), Some((from, data)));
    }
}

#[test]
fn fragments_are_cut_again() {
    let mut town = two_lans([9000, 1500]);
    let from = SocketAddr::new(ip("10.1.0.2"), 1000);
    let to = SocketAddr::new(ip("10.2.0.2"), 53);
    town.stacks[0].bind(from).unwrap();
    town.stacks[2].bind(to).unwrap();
    let data: Vec<u8> = (0..20_000).map(|at| byte(1, at)).collect();
    town.datagram(0, from, to, &data);
    assert_eq!(town.stacks[2].receive_from(to), Some((from, data)));
    assert_eq!(town.stacks[1].counter(Counter::TooLong), 0);
}

#[test]
fn whoever_asks_for_what_nobody_knows_is_told() {
    let mut town = two_lans([1500, 1500]);
    for (target, end) in
        [("10.9.0.1", End::NetworkUnreachable), ("fd00:9::1", End::NetworkUnreachable)]
    {
        let at = SocketAddr::new(ip(target), 7);
        let asking = town.stacks[0].connect(town.now, at).unwrap();
        town.settle();
        assert_eq!(town.stacks[0].take_end(asking), Some(end), "{target}");
    }
    assert_eq!(town.stacks[1].counter(Counter::NoRoute), 2);
}

/// Puts the checksum into a header of IPv4.
fn seal(frame: &mut [u8]) {
    frame[24..26].fill(0);
    complete_checksum(Checksum::Partial { start: 14, at: 10 }, &mut frame[..34]);
}

/// A packet of a protocol that nobody knows, from stack 0, with so many hops.
fn packet_with(hops: u8, source: &str, destination: &str) -> Flight {
    let mut frame = packet::begin(ip(source), ip(destination), 253, 32);
    match ip(source).is_ipv4() {
        true => {
            frame[22] = hops;
            seal(&mut frame);
        }
        false => frame[21] = hops,
    }
    frame.extend([7; 32]);
    address(&mut frame, mac_of(1, 0), mac_of(0, 0));
    (1, 0, Offload::NONE, frame)
}

#[test]
fn each_hop_is_counted_and_the_last_is_told() {
    for (source, destination) in [("10.1.0.2", "10.2.0.2"), ("fd00:1::2", "fd00:2::2")] {
        let mut town = two_lans([1500, 1500]);
        town.give(packet_with(2, source, destination));
        let (target, lan, _, frame) = town.streets.under_way.pop_front().unwrap();
        assert_eq!((target, lan), (2, 1));
        assert_eq!(crate::tcpip::passing::Passing::parse(&frame).unwrap().hops, 1);
        for hops in [0, 1] {
            town.give(packet_with(hops, source, destination));
            let (target, _, _, frame) = town.streets.under_way.pop_front().unwrap();
            assert_eq!(target, 0, "an error goes back");
            let packet = Packet::parse(&frame).unwrap();
            let kind = if packet.source.is_ipv4() { 11 } else { 3 };
            assert_eq!(packet.transport()[..2], [kind, 0], "time exceeded on the way");
        }
        assert_eq!(town.stacks[1].counter(Counter::HopLimit), 2);
    }
}

#[test]
fn nobody_speaks_for_others_over_one_that_forwards() {
    let mut town = two_lans([1500, 1500]);
    for source in
        ["10.1.0.9", "10.2.0.2", "10.2.0.1", "10.1.0.1", "127.0.0.1", "169.254.0.9", "224.0.0.1"]
    {
        town.give(packet_with(9, source, "10.2.0.2"));
        assert!(town.streets.under_way.is_empty(), "{source}");
    }
    for (source, destination) in
        [("fe80::9", "fd00:2::2"), ("fd00:2::9", "fd00:2::2"), ("fd00:1::2", "fe80::1")]
    {
        town.give(packet_with(9, source, destination));
        assert!(town.streets.under_way.is_empty(), "{source} to {destination}");
    }
    for destination in ["224.0.0.1", "255.255.255.255", "127.0.0.1", "169.254.7.7", "0.0.0.0"] {
        town.give(packet_with(9, "10.1.0.2", destination));
        assert!(town.streets.under_way.is_empty(), "{destination}");
    }
    assert_eq!(town.stacks[1].counter(Counter::Forwarded), 0);
    // What is for all at the link is not for others elsewhere.
    let (target, lan, offload, mut frame) = packet_with(9, "10.1.0.2", "10.2.0.2");
    frame[..6].fill(0xff);
    town.give((target, lan, offload, frame));
    assert!(town.streets.under_way.is_empty());
    town.give(packet_with(9, "10.1.0.2", "10.2.0.2"));
    assert_eq!(town.streets.under_way.len(), 1);
}

#[test]
fn what_may_not_be_passed_on_is_refused_and_said() {
    for (source, target) in [("10.1.0.2", "10.2.0.2"), ("fd00:1::2", "fd00:2::2")] {
        let mut town = two_lans([1500, 1500]);
        town.streets.kept_out.insert((1, ip(source)));
        assert!(town.connect(0, 2, target).is_none());
        assert_eq!(town.stacks[0].counter(Counter::NotReached), 1);
        let [forbidden, forwarded] = [Counter::RouteForbidden, Counter::Forwarded];
        assert_eq!([forbidden, forwarded].map(|counter| town.stacks[1].counter(counter)), [1, 0]);
        // The other way round it may be passed on.
        town.streets.kept_out = BTreeSet::from([(0, ip(source))]);
        assert!(town.connect(0, 2, target).is_some());
    }
}

#[test]
fn a_gateway_that_leaves_is_followed_by_the_next() {
    let between = |last: &str| {
        Plan::default()
            .at(0, 1500, &[&format!("10.1.0.{last}")])
            .at(1, 1500, &[&format!("10.2.0.{last}")])
            .forwarding()
    };
    let mut town = Town::new(vec![
        Plan::default()
            .at(0, 1500, &["10.1.0.2"])
            .to("10.2.0.0/24", "10.1.0.8")
            .to("10.2.0.0/24", "10.1.0.9"),
        between("8"),
        Plan::default()
            .at(1, 1500, &["10.2.0.2"])
            .to("10.1.0.0/24", "10.2.0.8")
            .to("10.1.0.0/24", "10.2.0.9"),
        between("9"),
    ]);
    let ends = town.connect(0, 2, "10.2.0.2").unwrap();
    town.carry(0, 2, ends, 50_000);
    assert_eq!(town.stacks[3].counter(Counter::Forwarded), 0);
    town.streets.members.retain(|one| one.3 != 1);
    town.tell();
    town.carry(0, 2, ends, 50_000);
    assert!(town.stacks[3].counter(Counter::Forwarded) > 1);
}

/// A long packet from stack 0 to an address behind stack 1.
fn long(destination: &str) -> Flight {
    let mut frame = packet::begin(ip("10.1.0.2"), ip(destination), 253, 60_000);
    frame.extend([7; 60_000]);
    address(&mut frame, mac_of(1, 0), mac_of(0, 0));
    (1, 0, Offload::NONE, frame)
}

#[test]
fn targets_that_take_nothing_leave_room_for_others_and_lose_what_is_too_much() {
    let mut town = two_lans([65_535, 65_535]);
    let others = 3..40;
    let address_of = |number: usize| format!("10.2.0.{number}");
    for number in others.clone() {
        town.streets.members.push((1, mac_of(number, 1), ip(&address_of(number)), number));
        town.streets.full.insert(number);
    }
    town.tell();
    for number in others.clone() {
        for _ in 0..100 {
            town.give(long(&address_of(number)));
        }
    }
    let dropped = town.stacks[1].counter(Counter::TargetFull);
    assert_eq!(town.streets.under_way.len(), 0);
    // One that is full for a moment loses nothing.
    town.streets.full.insert(2);
    town.give(long("10.2.0.2"));
    assert_eq!(town.stacks[1].counter(Counter::TargetFull), dropped, "there is room for it");
    town.streets.full.clear();
    let door = &mut Door { from: 1, streets: &mut town.streets };
    town.stacks[1].poll(town.now, door);
    let kept = others.len() as u64 * 100 + 1 - dropped;
    assert_eq!(town.streets.under_way.len() as u64, kept);
    assert_eq!(town.stacks[1].counter(Counter::Forwarded), kept);
    assert!((400..560).contains(&kept), "{kept} packets of 60,034 bytes in 32 MiB");
}

#[test]
fn a_source_that_floods_a_target_loses_its_own_packets_alone() {
    let mut town = two_lans([1500, 1500]);
    town.streets.members.push((0, mac_of(3, 0), ip("10.1.0.3"), 3));
    town.tell();
    town.streets.full.insert(2);
    let send = |town: &mut Town, last: u8, from: usize, number: u8| {
        let source = ip(&format!("10.1.0.{last}"));
        let mut frame = packet::begin(source, ip("10.2.0.2"), 253, 100);
        frame.extend([number; 100]);
        address(&mut frame, mac_of(1, 0), mac_of(from, 0));
        town.give((1, 0, Offload::NONE, frame));
    };
    (0..200).for_each(|_| send(&mut town, 2, 0, 255));
    let flooded = town.stacks[1].counter(Counter::TargetFull);
    assert!((1..200).contains(&flooded), "{flooded} of 200");
    // Another has room until it has as many.
    (0..20).for_each(|number| send(&mut town, 3, 3, number));
    assert_eq!(town.stacks[1].counter(Counter::TargetFull), flooded + 20);
    (0..200).for_each(|_| send(&mut town, 2, 0, 255));
    town.streets.full.clear();
    let door = &mut Door { from: 1, streets: &mut town.streets };
    town.stacks[1].poll(town.now, door);
    let number = |flight: &Flight| *flight.3.last().unwrap();
    let found: Vec<u8> = town.streets.under_way.iter().map(number).collect();
    let of_other: Vec<u8> = found.iter().copied().filter(|number| *number != 255).collect();
    assert_eq!(of_other, (0..20).collect::<Vec<u8>>(), "all, and in order");
    assert_eq!(found.len() as u64, 200 - flooded);
}

#[test]
fn packets_of_others_that_wait_do_not_hold_up_ours() {
    let mut town = two_lans([65_535, 65_535]);
    let ends = town.connect(1, 2, "10.2.0.2").unwrap();
    town.streets.full.insert(2);
    for _ in 0..20 {
        town.give(long("10.2.0.2"));
    }
    let sent = town.stacks[1].send_with(ends[0], |room| {
        room[..1000].fill(7);
        (1000, ())
    });
    assert!(sent.is_some());
    let door = &mut Door { from: 1, streets: &mut town.streets };
    town.stacks[1].poll(town.now, door);
    town.streets.full.clear();
    let door = &mut Door { from: 1, streets: &mut town.streets };
    town.stacks[1].poll(town.now, door);
    let (_, _, _, first) = town.streets.under_way.pop_front().unwrap();
    assert_eq!(Packet::parse(&first).unwrap().protocol, packet::TCP, "ours goes first");
}

#[test]
fn a_connection_that_waits_for_a_full_gateway_goes_on_over_another_one() {
    let mut town = Town::new(vec![
        Plan::default()
            .at(0, 1500, &["10.1.0.2"])
            .to("10.2.0.0/24", "10.1.0.8")
            .to("10.2.0.0/24", "10.1.0.9"),
        Plan::default().at(0, 1500, &["10.1.0.8"]).at(1, 1500, &["10.2.0.8"]).forwarding(),
        Plan::default()
            .at(1, 1500, &["10.2.0.2"])
            .to("10.1.0.0/24", "10.2.0.8")
            .to("10.1.0.0/24", "10.2.0.9"),
        Plan::default().at(0, 1500, &["10.1.0.9"]).at(1, 1500, &["10.2.0.9"]).forwarding(),
    ]);
    let all = town.streets.members.clone();
    town.streets.members.retain(|one| one.3 != 1);
    town.tell();
    let ends = town.connect(0, 2, "10.2.0.2").unwrap();
    town.streets.full.insert(3);
    for _ in 0..4 {
        town.stacks[0].send_with(ends[0], |room| (room.len(), room.fill(7)));
        town.settle();
    }
    assert!(town.stacks[0].waits_for_room());
    // The first is there again. What waits for the second is sent again over the first.
    town.streets.members = all;
    town.tell();
    assert_eq!(town.stacks[1].counter(Counter::Forwarded), 0);
    town.pass(3 * SECOND);
    assert!(town.stacks[1].counter(Counter::Forwarded) > 3, "over the first");
}

#[test]
fn a_neighbour_that_is_gone_is_not_sought_elsewhere() {
    let mut town = two_lans([1500, 1500]);
    town.streets.members.push((0, mac_of(3, 0), ip("10.1.0.3"), 3));
    town.tell();
    assert_eq!(town.stacks[0].neighbour_to(ip("10.1.0.3")), Some((0, ip("10.1.0.3"))));
    town.streets.members.retain(|one| one.3 != 3);
    town.tell();
    assert_eq!(town.stacks[0].neighbour_to(ip("10.1.0.3")), None, "not over the gateway");
}

#[test]
fn errors_of_routers_further_away_are_believed_from_where_the_packet_went() {
    // The narrow LAN is behind the second router, whose addresses no route of the ends has.
    let end = |lan, last: &str, to: &str, via: &str| {
        Plan::default().at(lan, 9000, &[&format!("10.{lan}.0.{last}")]).to(to, via)
    };
    let mut town = Town::new(vec![
        end(0, "2", "10.3.0.0/24", "10.0.0.1"),
        Plan::default()
            .at(0, 9000, &["10.0.0.1"])
            .at(1, 9000, &["10.1.0.1"])
            .to("10.3.0.0/24", "10.1.0.9")
            .forwarding(),
        Plan::default()
            .at(1, 9000, &["10.1.0.9"])
            .at(2, 1300, &["10.2.0.9"])
            .to("10.0.0.0/24", "10.1.0.1")
            .to("10.3.0.0/24", "10.2.0.8")
            .forwarding(),
        Plan::default()
            .at(2, 1300, &["10.2.0.8"])
            .at(3, 9000, &["10.3.0.1"])
            .to("10.0.0.0/24", "10.2.0.9")
            .forwarding(),
        end(3, "2", "10.0.0.0/24", "10.3.0.1"),
    ]);
    let ends = town.connect(0, 4, "10.3.0.2").unwrap();
    town.carry(0, 4, ends, 100_000);
    assert!(town.stacks[2].counter(Counter::TooLong) > 0);
    assert!(town.stacks[0].counter(Counter::ErrorsReceived) > 0);
}

#[test]
fn what_a_frame_says_beside_its_bytes_must_be_about_its_packet() {
    let mut town = two_lans([9000, 1300]);
    let mut frame = packet::begin(ip("10.1.0.2"), ip("10.2.0.2"), packet::UDP, 5000);
    frame.extend([7; 5000]);
    // It may be cut: so a checksum would be completed here.
    frame[20] = 0;
    seal(&mut frame);
    address(&mut frame, mac_of(1, 0), mac_of(0, 0));
    let with = |start, at| Offload { checksum: Checksum::Partial { start, at }, ..Offload::NONE };
    for (start, at) in [(14, 14), (14, 10), (34, 16), (34, 8), (14, 8), (900, 0), (34, 4998)] {
        town.give((1, 0, with(start, at), frame.clone()));
        assert!(town.streets.under_way.is_empty(), "{start} {at}");
    }
    assert_eq!(town.stacks[1].counter(Counter::Malformed), 7);
    town.give((1, 0, with(34, 6), frame.clone()));
    assert_eq!(town.streets.under_way.len(), 4);
    for (_, _, _, piece) in &town.streets.under_way {
        assert_eq!(Packet::parse(piece).unwrap().source, ip("10.1.0.2"));
    }
    // A part of a packet has no checksum, and none that is not the last has an odd end.
    frame[20] = 0x20;
    seal(&mut frame);
    town.give((1, 0, with(34, 6), frame.clone()));
    frame[16..18].copy_from_slice(&5001u16.to_be_bytes());
    seal(&mut frame);
    town.give((1, 0, Offload::NONE, frame.clone()));
    // Nor does one reach beyond the longest packet.
    frame[16..18].copy_from_slice(&5020u16.to_be_bytes());
    frame[20..22].copy_from_slice(&[0x1f, 0xff]);
    seal(&mut frame);
    town.give((1, 0, Offload::NONE, frame));
    assert_eq!(town.stacks[1].counter(Counter::Malformed), 10);
}

#[test]
fn vlans_are_apart_and_one_that_is_in_both_passes_on() {
    let mut town = Town::new(vec![
        Plan::default().in_vlan(0, 7, "10.7.0.0/24", "10.7.0.2").to("10.8.0.0/24", "10.7.0.1"),
        Plan::default()
            .in_vlan(0, 7, "10.7.0.0/24", "10.7.0.1")
            .in_vlan(0, 8, "10.8.0.0/24", "10.8.0.1")
            .at(0, 1500, &["10.1.0.1"])
            .forwarding(),
        Plan::default().in_vlan(0, 8, "10.8.0.0/24", "10.8.0.2").to("10.7.0.0/24", "10.8.0.1"),
        Plan::default().at(0, 1500, &["10.1.0.4"]),
    ]);
    let ends = town.connect(0, 2, "10.8.0.2").unwrap();
    town.carry(0, 2, ends, 50_000);
    assert!(town.stacks[1].counter(Counter::Forwarded) > 2);
    // Each member of the LAN gets a frame with any tag, if it pretends to.
    let mut frame = packet::begin(ip("10.7.0.2"), ip("10.8.0.2"), 253, 8);
    frame.extend([7; 8]);
    address(&mut frame, mac_of(2, 0), mac_of(0, 0));
    let before = town.stacks[2].counter(Counter::Vlan);
    for vlan in [None, Some(7), Some(9)] {
        town.give((2, 0, Offload { vlan, ..Offload::NONE }, frame.clone()));
    }
    assert_eq!(town.stacks[2].counter(Counter::Vlan), before + 3);
    // In the VLAN, but from an address that is not in it.
    town.give((2, 0, Offload { vlan: Some(8), ..Offload::NONE }, frame));
    assert_eq!(town.stacks[2].counter(Counter::BadSource), 1);
}

proptest! {
    /// Whatever comes, what is passed on is a packet with one hop less, from where it may be, and the stack lives.
    #[test]
    fn what_is_passed_on_is_in_order(
        family in 0..2usize,
        frames in prop::collection::vec((any::<u8>(), 0..80usize, any::<u8>(), 0..3usize), 1..40),
    ) {
        let mut town = two_lans([1500, 1400]);
        let (source, destination) = [("10.1.0.2", "10.2.0.2"), ("fd00:1::2", "fd00:2::2")][family];
        for (hops, at, value, kind) in frames {
            let (target, lan, offload, mut frame) = packet_with(hops, source, destination);
            match kind {
                0 => {}
                1 => {
                    let at = 14 + at % (frame.len() - 14);
                    frame[at] = value;
                    if family == 0 && at < 34 {
                        seal(&mut frame);
                    }
                }
                _ => frame.truncate(14 + at),
            }
            town.give((target, lan, offload, frame.clone()));
            let under_way = std::mem::take(&mut town.streets.under_way);
            prop_assert!(kind != 0 || hops < 2 || under_way.len() == 1, "it was not passed on");
            for (target, lan, _, passed) in under_way {
                if target == 0 {
                    continue;
                }
                prop_assert_eq!((target, lan), (2, 1));
                let was = crate::tcpip::passing::Passing::parse(&frame).unwrap();
                let is = crate::tcpip::passing::Passing::parse(&passed).unwrap();
                prop_assert_eq!(is.hops, was.hops - 1);
                prop_assert_eq!((is.source, is.destination), (ip(source), ip(destination)));
            }
        }
    }

    /// A part that is cut again is what it was when its parts are put together.
    #[test]
    fn parts_of_parts_are_the_part(first in 0..400usize, bytes in 1..4000usize, has_more in any::<bool>()) {
        let mut frame = packet::begin(ip("10.1.0.2"), ip("10.2.0.2"), 253, bytes);
        frame.extend((0..bytes).map(|at| byte(0, at)));
        packet::set_kind(&mut frame);
        let part = Fragment { identification: 9, offset: first * 8, has_more };
        let mut found = Vec::new();
        let mut next = first * 8;
        let mut goes_on = true;
        fragments::cut(&frame, 576, part, |piece| {
            let packet = Packet::parse(piece).unwrap();
            let piece = packet.fragment.unwrap_or(Fragment::all(0));
            assert_eq!(piece.offset, next);
            assert!(goes_on, "something comes behind the last");
            next += packet.transport().len();
            goes_on = piece.has_more;
            found.extend_from_slice(packet.transport());
        });
        prop_assert_eq!(goes_on, has_more);
        prop_assert_eq!(found, frame[34..].to_vec());
    }
}
