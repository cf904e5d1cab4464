//! Which way packets go: a stack's interfaces, the neighbours at them, and routes to what is further away.
//!
//! Where an address is, networks say: those of the interfaces, and those that routes lead to. Whether somebody is there, the
//! address tables of the LANs say. With one interface, and no route, there is nothing to choose: everybody is a neighbour, and
//! nothing is looked up.

use std::net::IpAddr;
use std::ops::Range;

use super::device::{Device, Sources};
use super::medium::Medium;
use super::output::Link;
use super::tcp::Limits;
use crate::lan::frame::Mac;
use crate::lan::offload::SEGMENTS_MAX;
pub use crate::lan::prefix::{NoPrefix, Prefix};
use crate::tcpip::hashed::{HashMap, HashSet};

/// Routes of a stack, at most.
pub const ROUTES_MAX: usize = 1024;

/// A way to addresses that no neighbour has: over a neighbour that passes packets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The addresses.
    pub to: Prefix,
    /// The neighbour.
    pub via: IpAddr,
}

/// A LAN, or a VLAN of one, that a stack is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Which LAN, as the [`Link`] counts them.
    pub lan: usize,
    /// The VLAN: 1 to 4094. None: frames without a tag.
    pub vlan: Option<u16>,
    /// The stack's address there.
    pub mac: Mac,
    /// Bytes of the largest packet of IP: 576 to 65,535, and 1280 at least with addresses of IPv6.
    pub mtu: usize,
    /// The stack's addresses of IP.
    pub addresses: Vec<IpAddr>,
    /// The networks whose addresses are reached here. Not looked at if the stack has one interface and no route: then all are.
    pub networks: Vec<Prefix>,
    /// What carries its packets.
    pub device: Device,
}

impl Interface {
    /// The address of the stack that a neighbour with this address knows as one of its own network (RFC 4861 7.2.2), or else another
    /// of its family.
    pub(super) fn address_near(&self, neighbour: IpAddr) -> Option<IpAddr> {
        let shared = self.networks.iter().filter(|network| network.contains(neighbour));
        let network = shared.max_by_key(|network| network.bits());
        let mut own = self.addresses.iter();
        let near = own.find(|own| network.is_some_and(|network| network.contains(**own)));
        near.copied().or_else(|| like(&self.addresses, neighbour))
    }
}

/// A member of a LAN that is not the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Its addresses of IP.
    pub addresses: Vec<IpAddr>,
    /// The VLANs that it is in.
    pub vlans: Vec<u16>,
}

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hop {
    /// To the stack itself.
    Own,
    /// To a neighbour: at which interface, and which of its addresses.
    Neighbour { interface: usize, address: IpAddr },
}

impl Hop {
    pub(super) fn is_neighbour(&self, at: IpAddr) -> bool {
        matches!(self, Hop::Neighbour { address, .. } if *address == at)
    }
}

/// What leads to an address, by the most bits in common.
enum Way<'a> {
    /// It is that of a neighbour at this interface.
    Here(usize),
    /// These routes lead there, to the same network.
    Over(&'a [Route]),
}

/// All that a stack knows of ways.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    interfaces: Vec<Interface>,
    /// The addresses of all interfaces, and behind them those that are hidden.
    addresses: Vec<IpAddr>,
    /// Addresses of the stack that no interface has: nobody is told where they are.
    hidden: Vec<IpAddr>,
    /// Those with more bits first, and those to one network together.
    routes: Vec<Route>,
    /// Where the routes to each network are among these.
    of_networks: HashMap<Prefix, Range<usize>>,
    /// How many bits the networks of routes have in common, without repetition and the most first: of IPv4, and of IPv6.
    bits: [Vec<u8>; 2],
    /// Which addresses there are at each interface. Not kept where there is nothing to choose.
    neighbours: HashSet<(usize, IpAddr)>,
    /// The same, by LAN and the number of a neighbour there: what it takes along when it becomes another.
    of_neighbours: HashMap<(usize, usize), Vec<(usize, IpAddr)>>,
    has_choice: bool,
    /// Gateways that have not answered when they were asked for.
    silent: Vec<Hop>,
}

impl Routes {
    /// Routes that are more than [`ROUTES_MAX`] are left out.
    pub(super) fn new(interfaces: Vec<Interface>, mut routes: Vec<Route>) -> Routes {
        routes.truncate(ROUTES_MAX);
        // A stable order: of two to one network the first counts, as long as its neighbour is there.
        routes.sort_by_key(|route| (std::cmp::Reverse(route.to.bits()), route.to.address()));
        let addresses = interfaces.iter().flat_map(|one| one.addresses.iter().copied()).collect();
        let has_vlan = interfaces.iter().any(|one| one.vlan.is_some());
        let has_choice = interfaces.len() > 1 || has_vlan || !routes.is_empty();
        let (mut of_networks, mut bits) =
            (HashMap::<_, Range<usize>>::default(), [Vec::new(), Vec::new()]);
        for (at, route) in routes.iter().enumerate() {
            of_networks.entry(route.to).or_insert(at..at).end = at + 1;
            let bits = &mut bits[usize::from(!route.to.address().is_ipv4())];
            if bits.last() != Some(&route.to.bits()) {
                bits.push(route.to.bits());
            }
        }
        Routes { interfaces, addresses, routes, of_networks, bits, has_choice, ..Routes::default() }
    }

    /// The addresses of the stack.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The addresses that no interface has.
    pub(super) fn hidden(&self) -> &[IpAddr] {
        &self.hidden
    }

    /// Gives the stack these addresses, which no interface has, in place of others.
    pub(super) fn set_hidden(&mut self, hidden: Vec<IpAddr>) {
        let of_interfaces = self.interfaces.iter().flat_map(|one| one.addresses.iter().copied());
        self.addresses = of_interfaces.chain(hidden.iter().copied()).collect();
        self.hidden = hidden;
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Lets somebody change what the interfaces take. Where they are, and their addresses, stay as they are.
    pub(super) fn change_interfaces<R>(&mut self, change: impl FnOnce(&mut [Interface]) -> R) -> R {
        change(&mut self.interfaces)
    }

    /// The interface at the same LAN and VLAN as this one, if its device is the same.
    pub(super) fn find(&self, other: &Interface) -> Option<usize> {
        let found = self.interface_with(other.lan, other.vlan)?;
        (self.interfaces[found].device == other.device).then_some(found)
    }

    pub(super) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Whether some neighbour has this address.
    pub(super) fn has_neighbour(&self, address: IpAddr) -> bool {
        self.hop_to_neighbour(address).is_some()
    }

    /// Whether there is more than one way for packets to go.
    pub(super) fn has_choice(&self) -> bool {
        self.has_choice
    }

    /// Takes note of neighbours at a LAN that have come, gone or changed, by their numbers there. Addresses that are of no
    /// network of an interface are nobody's there: a member that registers such an address does not get what is for others
    /// elsewhere. Calls `gone` with each address that no neighbour has any more.
    pub(super) fn change_neighbours(
        &mut self,
        lan: usize,
        changed: &[(usize, Option<Neighbour>)],
        mut gone: impl FnMut(Hop),
    ) {
        if !self.has_choice {
            return;
        }
        let Routes { interfaces, neighbours, of_neighbours, .. } = self;
        let mut removed = Vec::new();
        for (number, _) in changed {
            for at in of_neighbours.remove(&(lan, *number)).unwrap_or_default() {
                neighbours.remove(&at);
                removed.push(at);
            }
        }
        // After all that were removed: an address may have gone from one neighbour to another.
        for (number, found) in changed {
            let Some(Neighbour { addresses, vlans }) = found else { continue };
            let at_lan = interfaces.iter().enumerate().filter(|(_, one)| one.lan == lan);
            let reached =
                at_lan.filter(|(_, one)| one.vlan.is_none_or(|vlan| vlans.contains(&vlan)));
            let all =
                reached.flat_map(|(at, _)| addresses.iter().map(move |address| (at, *address)));
            let all: Vec<(usize, IpAddr)> = all.collect();
            neighbours.extend(all.iter().copied());
            of_neighbours.insert((lan, *number), all);
        }
        for (interface, address) in removed {
            if !neighbours.contains(&(interface, address)) {
                gone(Hop::Neighbour { interface, address });
            }
        }
    }

    /// Takes note that a neighbour has answered, or has not. Of several gateways to one network those count first that have.
    pub(super) fn note_answer(&mut self, hop: Hop, has_answered: bool) {
        self.silent.retain(|silent| *silent != hop);
        if let Hop::Neighbour { address, .. } = hop
            && !has_answered
            && self.is_gateway(address)
        {
            self.silent.push(hop);
        }
    }

    /// Returns true if a neighbour is a gateway that has not answered when it was asked for.
    pub(super) fn is_silent(&self, hop: Hop) -> bool {
        self.silent.contains(&hop)
    }

    /// Returns true if a route leads over the neighbour with this address.
    pub(super) fn is_gateway(&self, address: IpAddr) -> bool {
        self.routes.iter().any(|route| route.via == address)
    }

    /// The interface that takes frames of a LAN with this tag.
    pub(super) fn interface_with(&self, lan: usize, tag: Option<u16>) -> Option<usize> {
        let number = tag.map(|tag| tag & 0x0fff);
        self.interfaces.iter().position(|one| (one.lan, one.vlan) == (lan, number))
    }

    /// Where packets to an address go. None: nobody knows, or nobody is there.
    pub(super) fn hop(&self, to: IpAddr) -> Option<Hop> {
        if self.addresses.contains(&to) {
            return Some(Hop::Own);
        }
        if !self.has_choice {
            return Some(Hop::Neighbour { interface: 0, address: to });
        }
        match self.way(to)? {
            Way::Here(interface) => self.hop_at(interface, to),
            Way::Over(routes) => {
                let mut hops = routes.iter().filter_map(|route| self.hop_to_neighbour(route.via));
                let first = hops.next()?;
                if !self.silent.contains(&first) {
                    return Some(first);
                }
                // If no other answers either, the first is asked again.
                hops.find(|hop| !self.silent.contains(hop)).or(Some(first))
            }
        }
    }

    /// A way to less is not taken in place of one to more on which nobody is: that would lead where nobody wants these packets
    /// to go.
    fn way(&self, to: IpAddr) -> Option<Way<'_>> {
        let here = self.interface_of(to);
        // What is local to a link is nowhere else.
        let over = if is_link_local(to) { &[][..] } else { self.routes_to(to) };
        match (here, over.first()) {
            (Some((interface, bits)), first)
                if first.is_none_or(|first| first.to.bits() <= bits) =>
            {
                Some(Way::Here(interface))
            }
            (_, Some(_)) => Some(Way::Over(over)),
            _ => None,
        }
    }

    /// The routes to the network that has the most bits in common with an address: a look for each number of bits that there
    /// is, however many routes there are.
    fn routes_to(&self, to: IpAddr) -> &[Route] {
        let bits = self.bits[usize::from(!to.is_ipv4())].iter();
        let mut networks = bits.filter_map(|bits| self.of_networks.get(&Prefix::of(to, *bits)?));
        networks.next().map_or(&[][..], |at| &self.routes[at.clone()])
    }

    /// The interface at which the neighbours have addresses like this one, and how many bits these have in common. An address
    /// that is local to a link says nothing of which link: it is only reached where there is one interface.
    fn interface_of(&self, address: IpAddr) -> Option<(usize, u8)> {
        if is_link_local(address) {
            return (self.interfaces.len() == 1).then_some((0, u8::MAX));
        }
        let interfaces = self.interfaces.iter().enumerate();
        let networks = interfaces.flat_map(|(interface, one)| {
            let its = one.networks.iter().filter(|network| network.contains(address));
            its.map(move |network| (interface, network.bits()))
        });
        networks.max_by_key(|(_, bits)| *bits)
    }

    /// Returns true if an address is one of those that neighbours at this interface have.
    pub(super) fn is_of_interface(&self, interface: usize, address: IpAddr) -> bool {
        !self.has_choice || self.interface_of(address).is_some_and(|(at, _)| at == interface)
    }

    /// To a neighbour, if there is one with this address.
    fn hop_to_neighbour(&self, address: IpAddr) -> Option<Hop> {
        let (interface, _) = self.interface_of(address)?;
        self.hop_at(interface, address)
    }

    fn hop_at(&self, interface: usize, address: IpAddr) -> Option<Hop> {
        let has_table = self.interfaces[interface].device.has_table();
        let is_there = !has_table || self.neighbours.contains(&(interface, address));
        is_there.then_some(Hop::Neighbour { interface, address })
    }

    /// Whether a packet from an address may come in a frame at an interface, as its device says. Where the link vouches for sources: its sender
    /// has the address, or is a neighbour over which a route leads there (RFC 3704 2.3). So nobody speaks for others.
    pub(super) fn may_come_from(
        &self,
        link: &mut impl Link,
        interface: usize,
        frame: &[u8],
        address: IpAddr,
    ) -> bool {
        let Some(at) = self.interfaces.get(interface) else { return false };
        let mut is_sender = |of: IpAddr| match at.device.sources {
            Sources::Vouched => link.may_send_from(at.lan, frame, of),
            Sources::ReversePath | Sources::All => true,
        };
        if !self.has_choice || at.device.sources == Sources::All {
            return is_sender(address);
        }
        match self.way(address) {
            Some(Way::Here(here)) => here == interface && is_sender(address),
            Some(Way::Over(routes)) => routes.iter().any(|route| {
                self.interface_of(route.via).is_some_and(|(here, _)| here == interface)
                    && is_sender(route.via)
            }),
            None => false,
        }
    }

    /// Whether the sender of a frame at an interface is one to whom packets for an address go: then it may bring errors about
    /// such packets, whoever on the way has found them.
    pub(super) fn leads_to(
        &self,
        link: &mut impl Link,
        interface: usize,
        frame: &[u8],
        address: IpAddr,
    ) -> bool {
        let Some(at) = self.interfaces.get(interface) else { return false };
        let Some(Hop::Neighbour { interface: here, address }) = self.hop(address) else {
            return false;
        };
        self.has_choice
            && here == interface
            && (at.device.sources != Sources::Vouched || link.may_send_from(at.lan, frame, address))
    }

    /// The address that packets for `to` are from: one of the interface that they go out at, if it has one.
    pub(super) fn source_for(&self, to: IpAddr) -> Option<IpAddr> {
        let own = match self.hop(to) {
            Some(Hop::Own) => return Some(to),
            Some(Hop::Neighbour { interface, .. }) => self.interfaces.get(interface),
            None => None,
        };
        let own = own.map_or(&[][..], |interface| &interface.addresses);
        like(own, to).or_else(|| like(&self.addresses, to))
    }

    /// Bytes of the largest packet at the interface where packets to an address go out.
    pub(super) fn mtu_to(&self, to: IpAddr) -> Option<usize> {
        self.interface_to(to).map(|interface| interface.mtu)
    }

    /// The same, and how many segments a frame may stand for there.
    pub(super) fn limits_to(&self, to: IpAddr) -> Limits {
        let limits = self.interface_to(to).map(|interface| Limits {
            mtu: interface.mtu,
            segments_max: interface.device.segments_max(),
        });
        limits.unwrap_or(Limits { mtu: usize::MAX, segments_max: SEGMENTS_MAX })
    }

    /// What the network is made of where packets to an address go out.
    pub(super) fn medium_to(&self, to: IpAddr) -> Medium {
        self.interface_to(to).map_or(Medium::MEMORY, |interface| interface.device.medium)
    }

    fn interface_to(&self, to: IpAddr) -> Option<&Interface> {
        match self.hop(to)? {
            Hop::Own => None,
            Hop::Neighbour { interface, .. } => self.interfaces.get(interface),
        }
    }
}

/// The address of the same family as another, and as local as that, if there is one.
fn like(own: &[IpAddr], other: IpAddr) -> Option<IpAddr> {
    let of_family = || own.iter().filter(|address| address.is_ipv4() == other.is_ipv4());
    let is_like = |address: &&IpAddr| is_link_local(**address) == is_link_local(other);
    of_family().find(is_like).or_else(|| of_family().next()).copied()
}

/// Whether an address says who somebody is at one link, and nowhere else.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn at(lan: usize, address: &str) -> Interface {
        let mac = Mac([2, 0, 0, 0, 0, lan as u8 + 1]);
        let networks = vec![Prefix::of(ip(address), 24).unwrap()];
        Interface {
            lan,
            vlan: None,
            mac,
            mtu: 1500,
            addresses: vec![ip(address)],
            networks,
            device: Device::LAN,
        }
    }

    fn neighbour(interface: usize, address: &str) -> Option<Hop> {
        Some(Hop::Neighbour { interface, address: ip(address) })
    }

    fn route(to: &str, via: &str) -> Route {
        Route { to: prefix(to), via: ip(via) }
    }

    fn set(routes: &mut Routes, lan: usize, list: &[(&str, &[u16])]) {
        let member = |(address, vlans): &(&str, &[u16])| Neighbour {
            addresses: vec![ip(address)],
            vlans: vlans.to_vec(),
        };
        let changed: Vec<_> = (0..8).map(|number| (number, list.get(number).map(member))).collect();
        routes.change_neighbours(lan, &changed, |_| ());
    }

    #[test]
    fn networks_are_read_as_they_are_shown() {
        for text in
            ["0.0.0.0/0", "10.2.0.0/24", "10.2.0.9/32", "::/0", "fd00:2::/64", "fd00::9/128"]
        {
            assert_eq!(prefix(text).to_string(), text);
        }
        let bad =
            ["", "10.2.0.0", "10.2.0.0/", "10.2.0.0/33", "10.2.0.1/24", "fd00::1/64", "fd00::/129"];
        for text in bad.into_iter().chain(["10.2.0.0/+8", "10.2.0.0/-1", "/8", "10.2.0.0/24 "]) {
            assert_eq!(text.parse::<Prefix>(), Err(NoPrefix(text.into())));
        }
        assert_eq!(Prefix::of(ip("10.2.3.4"), 22), Some(prefix("10.2.0.0/22")));
        assert!(prefix("0.0.0.0/0").contains(ip("203.0.113.1")));
        assert!(!prefix("0.0.0.0/0").contains(ip("::1")));
    }

    #[test]
    fn neighbours_are_asked_from_an_address_of_their_own_network() {
        let addresses = vec![ip("10.1.0.1"), ip("192.168.5.1"), ip("fd00::1")];
        let networks = ["10.1.0.0/24", "192.168.5.0/24"].map(prefix).to_vec();
        let two = Interface { addresses, networks, ..at(0, "10.1.0.1") };
        for (neighbour, own) in [
            ("10.1.0.9", "10.1.0.1"),
            ("192.168.5.9", "192.168.5.1"),
            ("203.0.113.9", "10.1.0.1"),
            ("fd00::9", "fd00::1"),
        ] {
            assert_eq!(two.address_near(ip(neighbour)), Some(ip(own)));
        }
    }

    #[test]
    fn one_interface_without_routes_leads_everywhere() {
        let routes = Routes::new(vec![at(0, "10.1.0.1")], vec![]);
        assert_eq!(routes.hop(ip("10.1.0.1")), Some(Hop::Own));
        assert_eq!(routes.hop(ip("10.9.9.9")), neighbour(0, "10.9.9.9"));
    }

    #[test]
    fn the_network_with_the_most_bits_counts_and_of_its_gateways_the_first_that_is_there() {
        let ways = vec![
            route("0.0.0.0/0", "10.1.0.9"),
            route("10.3.3.0/24", "10.1.0.8"),
            route("10.3.0.0/16", "10.2.0.9"),
            route("10.3.4.0/24", "10.2.0.9"),
            route("10.3.3.0/24", "10.2.0.8"),
            route("10.2.0.64/26", "10.1.0.9"),
        ];
        let mut routes = Routes::new(vec![at(0, "10.1.0.1"), at(1, "10.2.0.1")], ways);
        assert_eq!(routes.hop(ip("10.3.3.3")), None, "nobody is there");
        set(&mut routes, 0, &[("10.1.0.8", &[]), ("10.1.0.9", &[])]);
        set(&mut routes, 1, &[("10.2.0.8", &[]), ("10.2.0.9", &[]), ("10.2.0.70", &[])]);
        assert_eq!(routes.hop(ip("10.3.3.3")), neighbour(0, "10.1.0.8"));
        assert_eq!(routes.hop(ip("10.3.4.3")), neighbour(1, "10.2.0.9"));
        assert_eq!(routes.hop(ip("10.3.5.3")), neighbour(1, "10.2.0.9"));
        assert_eq!(routes.hop(ip("192.0.2.1")), neighbour(0, "10.1.0.9"));
        assert_eq!(
            routes.hop(ip("10.2.0.70")),
            neighbour(0, "10.1.0.9"),
            "a route to less of the LAN"
        );
        assert_eq!(routes.hop(ip("10.2.0.9")), neighbour(1, "10.2.0.9"));
        assert_eq!(routes.hop(ip("169.254.1.1")), None, "local to a link");
        assert_eq!(routes.source_for(ip("10.3.4.3")), Some(ip("10.2.0.1")));
        set(&mut routes, 0, &[("10.1.0.9", &[])]);
        assert_eq!(routes.hop(ip("10.3.3.3")), neighbour(1, "10.2.0.8"), "the second gateway");
        assert_eq!(routes.hop(ip("10.1.0.8")), None, "not over a way to more than that");
        set(&mut routes, 1, &[("10.2.0.9", &[])]);
        assert_eq!(routes.hop(ip("10.3.3.3")), None, "the same");
    }

    #[test]
    fn nobody_takes_an_address_that_is_of_another_network() {
        let ways = vec![route("::/0", "fd00:1::9")];
        let v6 = |lan, address: &str| {
            let mac = Mac([2, 0, 0, 0, 0, 7]);
            let networks = vec![Prefix::of(ip(address), 64).unwrap()];
            Interface {
                lan,
                vlan: None,
                mac,
                mtu: 1500,
                addresses: vec![ip(address)],
                networks,
                device: Device::LAN,
            }
        };
        let mut routes = Routes::new(vec![v6(0, "fd00:1::1"), v6(1, "fd00:2::1")], ways);
        set(&mut routes, 0, &[("fd00:2::2", &[]), ("fd00:9::1", &[]), ("fe80::1", &[])]);
        assert_eq!(routes.hop(ip("fd00:2::2")), None);
        set(&mut routes, 1, &[("fd00:2::2", &[]), ("fe80::1", &[])]);
        assert_eq!(routes.hop(ip("fd00:2::2")), neighbour(1, "fd00:2::2"));
        assert_eq!(routes.hop(ip("fd00:9::1")), None, "what is elsewhere goes over the gateway");
        assert_eq!(routes.hop(ip("fe80::1")), None, "it may be either");
    }

    #[test]
    fn networks_of_a_vlan_are_in_it_and_reached_by_its_members_alone() {
        let tagged = Interface { vlan: Some(7), ..at(0, "10.1.7.1") };
        let wide = Interface { networks: vec![prefix("10.1.0.0/16")], ..at(0, "10.1.0.1") };
        let mut routes = Routes::new(vec![wide, tagged], vec![]);
        set(&mut routes, 0, &[("10.1.0.2", &[]), ("10.1.7.2", &[7]), ("10.1.7.3", &[8])]);
        assert_eq!(routes.hop(ip("10.1.0.2")), neighbour(0, "10.1.0.2"));
        assert_eq!(routes.hop(ip("10.1.7.2")), neighbour(1, "10.1.7.2"));
        assert_eq!(routes.hop(ip("10.1.7.3")), None, "it is in another VLAN");
        assert_eq!(routes.interface_with(0, None), Some(0));
        assert_eq!(routes.interface_with(0, Some(0x6007)), Some(1));
        assert_eq!(routes.interface_with(0, Some(8)), None);
        assert_eq!(routes.interface_with(1, None), None);
    }

    proptest! {
        #[test]
        fn routes_found_are_those_that_a_look_at_all_finds(
            networks in prop::collection::vec((any::<u32>(), 0..=32u8, any::<bool>()), 0..40),
            sought in prop::collection::vec(any::<u32>(), 1..20),
        ) {
            let address = |bits: u32, is_v4: bool| match is_v4 {
                true => IpAddr::V4(bits.into()),
                // Many networks of each family have the same first bits.
                false => IpAddr::V6((u128::from(bits) << 96).into()),
            };
            let networks = networks.into_iter().enumerate().map(|(at, (bits, length, is_v4))| {
                let to = Prefix::of(address(bits & 0xf0f0_0000, is_v4), length).unwrap();
                Route { to, via: IpAddr::from([10, 1, (at >> 8) as u8, at as u8]) }
            });
            let networks: Vec<Route> = networks.collect();
            let routes = Routes::new(vec![at(0, "10.1.0.1")], networks.clone());
            for bits in sought {
                for to in [true, false].map(|is_v4| address(bits & 0xf0f0_ffff, is_v4)) {
                    let leads = |route: &&Route| route.to.contains(to);
                    let most = networks.iter().filter(leads).map(|route| route.to.bits()).max();
                    let expected: Vec<Route> =
                        networks.iter().filter(leads).filter(|route| Some(route.to.bits()) == most).copied().collect();
                    prop_assert_eq!(routes.routes_to(to), &expected[..]);
                }
            }
        }

        #[test]
        fn what_is_shown_is_read_again(bits in any::<u128>(), length in 0..=128u8, is_v4 in any::<bool>()) {
            let (address, length) = match is_v4 {
                true => (IpAddr::V4((bits as u32).into()), length % 33),
                false => (IpAddr::V6(bits.into()), length),
            };
            let network = Prefix::of(address, length).unwrap();
            prop_assert!(network.contains(address));
            prop_assert_eq!(network.to_string().parse(), Ok(network));
        }
    }
}
