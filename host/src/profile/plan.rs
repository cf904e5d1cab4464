//! The second half of an import: names are looked up, and links become LANs, lines and interfaces of the machine.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};

use fabric::name::Name;
use ipnet::{IpNet, Ipv4Net};
use net::lan::table::MEMBER_ADDRESSES_MAX;
use net::links::{CTCM_MTU_MAX, MTU, NETIUCV_MTU_MAX, is_of_end, mtu_min};

use super::finding::{Findings, Mistake};
use super::operand::Named;
use super::read::{
    BUFFER_BYTES, Device, Home, Link, NO_FIXED_PAGES, NO_FORWARDING, Numbers, Parms, Profile, Route,
};
use super::statement::{Medium, OTHER};
use super::tables::{Interface, Lan, Line, On, Plan, Size, Via};
use super::target::class_bits;
use crate::config::{Bytes, Source};
use crate::near::{near, question};
use crate::system::lan::{FRAME_BYTES, HEADROOM_BYTES};
use crate::system::machine::{
    BUFFERS_BYTES_RANGE, CONNECTION_BYTES_RANGE, INTERFACES_MAX, ROUTES_MAX, is_name_of,
};

/// The MTU of a HiperSockets link that has none written, in bytes: that of the smallest frames.
const HIPERSOCKETS_MTU_BYTES: u32 = 8192;

/// The MTU of an adapter's link that has none written, in bytes.
const ADAPTER_MTU_BYTES: u32 = 1500;

/// Makes the tables. What cannot be made is added to the findings.
pub(super) fn plan(
    source: &Source,
    machine: Name,
    profile: &Profile,
    findings: &mut Findings<'_>,
) -> Plan {
    let plan = Plan {
        machine,
        lans: Vec::new(),
        lines: Vec::new(),
        interfaces: Vec::new(),
        routes: Vec::new(),
        connection_buffers: None,
        buffers_max: None,
    };
    let mut planner =
        Planner { source, profile, findings, plan, on: BTreeMap::new(), named: BTreeMap::new() };
    planner.check_starts();
    planner.check_devices();
    let homes = planner.homes();
    for link in &profile.links {
        planner.link(link, &homes);
    }
    for route in &profile.routes {
        planner.route(route);
    }
    planner.sizes();
    planner.plan
}

/// Addresses by the names of their links.
type Homes<'p> = BTreeMap<&'p str, Vec<&'p Home>>;

struct Planner<'p, 'f, 's> {
    source: &'p Source,
    profile: &'p Profile,
    findings: &'f mut Findings<'s>,
    plan: Plan,
    /// What each link is on, by its name. None of a link that is left out.
    on: BTreeMap<&'p str, Option<On>>,
    /// How many names of our own there are, by their beginnings.
    named: BTreeMap<&'static str, usize>,
}

impl<'p> Planner<'p, '_, '_> {
    fn line_of(&self, span: &Range<usize>) -> usize {
        self.source.line_at(span.start)
    }

    /// Finds what `named` names. `kind` is what it should be.
    fn look_up<T>(
        named: &Named,
        kind: &str,
        all: &'p [T],
        name: fn(&T) -> &Named,
    ) -> Result<&'p T, Mistake> {
        let found = all.iter().find(|one| name(one).name == named.name);
        found.ok_or_else(|| {
            let names = near(&named.name, all.iter().map(|one| name(one).name.as_str()));
            let right = question(&names)
                .unwrap_or_else(|| format!("must be described by a {kind} statement"));
            Mistake::at(&named.span, format!("no {kind} has the name {}", named.name), right)
        })
    }

    fn check_starts(&mut self) {
        for start in &self.profile.starts {
            let is_interface = |link: &Link| link.device.is_none() && link.named.name == start.name;
            if self.profile.links.iter().any(is_interface) {
                continue;
            }
            let found = Self::look_up(start, "DEVICE", &self.profile.devices, |one| &one.named);
            if let Err(mistake) = found {
                self.findings.mistake(mistake);
            }
        }
    }

    fn check_devices(&mut self) {
        for device in &self.profile.devices {
            let is_its = |link: &&Link| {
                link.device.as_ref().is_some_and(|named| named.name == device.named.name)
            };
            if self.profile.links.iter().find(is_its).is_none() {
                let subject = format!("DEVICE {}", device.named.name);
                self.findings.left_out(&device.named.span, &subject, "no LINK is of this device");
            }
        }
    }

    /// Sorts the home addresses by their links. Those that no host can have are left out.
    fn homes(&mut self) -> Homes<'p> {
        let mut homes = Homes::new();
        for (at, home) in self.profile.homes.iter().enumerate() {
            let link = Self::look_up(&home.link, "LINK", &self.profile.links, |one| &one.named);
            let name = match link {
                Ok(link) => link.named.name.as_str(),
                Err(mistake) => {
                    self.findings.mistake(mistake);
                    continue;
                }
            };
            let address = home.address;
            if !is_of_end(address) {
                let what = format!("{address} is no address of a host");
                self.findings.mistake(Mistake::at(&home.span, what, "must be one, like 10.1.0.1"));
                continue;
            }
            if self.profile.homes[..at].iter().any(|other| other.address == address) {
                let what = format!("{address} is a home address above");
                self.findings.mistake(Mistake::at(&home.span, what, "must be there once"));
                continue;
            }
            homes.entry(name).or_default().push(home);
        }
        homes
    }

    fn link(&mut self, link: &'p Link, homes: &Homes<'p>) {
        let name = link.named.name.as_str();
        let device = match self.device_of(link) {
            Ok(device) => device,
            Err(mistake) => {
                self.findings.mistake(mistake);
                self.on.insert(name, None);
                return;
            }
        };
        let homes = homes.get(name).map_or(&[][..], Vec::as_slice);
        let medium = match device {
            // One of other devices has no more than they, whatever its own type: IUCV of PVMIUCV.
            Some(device) if !device.kind.has_options => OTHER,
            _ => link.medium,
        };
        let on = match medium {
            Medium::None(reason) => {
                self.findings.left_out(&link.named.span, &shown(link), reason);
                None
            }
            _ if homes.is_empty() => {
                let what = format!("{} has no address", shown(link));
                let right = format!("must have one, like HOME 10.1.0.1/24 {name}");
                self.findings.mistake(Mistake::at(&link.named.span, what, right));
                None
            }
            Medium::HiperSockets | Medium::Adapter => self.lan(link, device, homes),
            Medium::Iucv => self.line(link, device, homes, "iucv"),
            Medium::Ctc => self.line(link, device, homes, "ctc"),
        };
        if on.is_some() {
            self.check_started(link, device);
        }
        self.on.insert(name, on);
    }

    /// The device of a link. None of an INTERFACE.
    fn device_of(&self, link: &Link) -> Result<Option<&'p Device>, Mistake> {
        let Some(named) = &link.device else { return Ok(None) };
        let device = Self::look_up(named, "DEVICE", &self.profile.devices, |one| &one.named)?;
        let Some(kind) = link.kind else { return Ok(Some(device)) };
        if !kind.devices.contains(&device.kind.name) {
            let what = format!("{} is no link of a device {}", kind.name, device.kind.name);
            let right = format!("must be of a device {}", kind.devices.join(" or "));
            return Err(Mistake::at(&named.span, what, right));
        }
        let is_other = |other: &&Link| {
            other.device.as_ref().is_some_and(|other| other.name == named.name)
                && other.named.name != link.named.name
        };
        // A link that is left out takes nothing.
        let has_interface =
            |other: &Link| matches!(self.on.get(other.named.name.as_str()), Some(Some(_)));
        let mut others = self.profile.links.iter().filter(is_other);
        let is_second = others.any(has_interface);
        // A channel station has several adapters.
        if is_second && device.kind.name != "LCS" {
            let what = format!("DEVICE {} has a LINK above", named.name);
            return Err(Mistake::at(&named.span, what, "must have one"));
        }
        Ok(Some(device))
    }

    fn check_started(&mut self, link: &Link, device: Option<&Device>) {
        let named = device.map_or(&link.named, |device| &device.named);
        if self.profile.starts.iter().any(|start| start.name == named.name) {
            return;
        }
        let kind = if device.is_some() { "DEVICE" } else { "INTERFACE" };
        let what = format!("{kind} {} has no START", named.name);
        self.findings.changed(&named.span, what, "the interface is used all the same");
    }

    fn parms(&self, link: &Link) -> Option<&'p Parms> {
        self.profile.parms.iter().find(|parms| parms.link.name == link.named.name)
    }

    fn routes<'a>(&self, link: &'a Link) -> impl Iterator<Item = &'p Route> + use<'a, 'p> {
        self.profile.routes.iter().filter(|route| route.link.name == link.named.name)
    }

    /// The MTU of a link: its own, or that of the routes over it, or `usual`. A greater one than `most` is lowered.
    fn mtu(&mut self, link: &Link, usual: u32, most: u32) -> u32 {
        let of_parms = || self.parms(link).and_then(|parms| parms.mtu);
        let of_routes = || self.routes(link).filter_map(|route| route.mtu).max();
        let mtu = link.mtu.or_else(of_parms).or_else(of_routes).unwrap_or(usual);
        if mtu > most {
            let what = format!("{} has an MTU of {mtu}", shown(link));
            let instead = format!("the system file has {most}, the greatest there is here");
            self.findings.changed(&link.named.span, what, instead);
        }
        mtu.min(most)
    }

    /// A comment that names the statements of a link.
    fn comment(&self, link: &Link, device: Option<&Device>) -> String {
        let line = self.line_of(&link.named.span);
        let device = device.map_or(String::new(), |device| {
            let line = self.line_of(&device.named.span);
            format!("DEVICE {} {}, line {line}; ", device.named.name, device.kind.name)
        });
        format!("{device}{}, line {line}", shown(link))
    }

    fn lan(&mut self, link: &'p Link, device: Option<&Device>, homes: &[&Home]) -> Option<On> {
        let mut ranges: Vec<IpNet> = Vec::new();
        let mut addresses = Vec::new();
        for home in homes {
            // The other addresses of the link may be right.
            let Some(network) = self.network(link, home) else { continue };
            let address = home.address;
            if address == network.network() || address == network.broadcast() {
                let what = format!("{address} is the first or the last address of {network}");
                let right = "must be another one";
                self.findings.mistake(Mistake::at(&home.span, what, right));
                continue;
            }
            let subject = format!("the address {address}");
            match ranges.iter().find(|range| range.addr().is_ipv4() == address.is_ipv4()) {
                Some(range) if *range != network => {
                    let reason = "a LAN has one network of each family";
                    self.findings.left_out(&home.span, &subject, reason);
                    continue;
                }
                Some(_) => {}
                None => ranges.push(network),
            }
            addresses.push((address, home.span.clone()));
        }
        if addresses.is_empty() {
            return None;
        }
        let adapter = link.medium == Medium::Adapter;
        let usual = if adapter { ADAPTER_MTU_BYTES } else { HIPERSOCKETS_MTU_BYTES };
        let most = FRAME_BYTES[FRAME_BYTES.len() - 1] - HEADROOM_BYTES;
        let mtu = self.mtu(link, usual, most);
        let frame = FRAME_BYTES.into_iter().find(|frame| frame - HEADROOM_BYTES >= mtu);
        let frame_bytes = frame.unwrap_or(FRAME_BYTES[FRAME_BYTES.len() - 1]);
        let comment = self.comment(link, device);
        let same = |lan: &Lan| lan.ranges.iter().any(|range| ranges.contains(range));
        let at = match self.plan.lans.iter().position(same) {
            Some(at) => {
                let what = format!("{} is in the network of a link above", shown(link));
                let instead = format!(
                    "both are one interface of the LAN {}, which has all addresses",
                    self.plan.lans[at].name
                );
                self.findings.changed(&link.named.span, what, instead);
                at
            }
            None if self.is_full(link) => return None,
            None => self.new_lan(link, comment.clone(), adapter),
        };
        let lan = &mut self.plan.lans[at];
        lan.frame_bytes = lan.frame_bytes.max(frame_bytes);
        for range in ranges {
            let has =
                lan.ranges.iter().any(|other| other.addr().is_ipv4() == range.addr().is_ipv4());
            if !has {
                lan.ranges.push(range);
            }
        }
        for (address, span) in addresses {
            let subject = format!("the address {address}");
            if lan.addresses.len() == MEMBER_ADDRESSES_MAX {
                let reason = format!("a member of a LAN has at most {MEMBER_ADDRESSES_MAX}");
                self.findings.left_out(&span, &subject, &reason);
            } else if lan.ranges.iter().any(|range| range.contains(&address)) {
                lan.addresses.push(address);
            } else {
                let reason = "a LAN has one network of each family";
                self.findings.left_out(&span, &subject, reason);
            }
        }
        let on = On::Lan(at);
        if !self.plan.interfaces.iter().any(|other| other.on == on) {
            let cpu = cpu_of(link, device);
            self.interface(link, Interface { on, comment, mtu, cpu });
        }
        Some(on)
    }

    /// Returns true if the machine has all the interfaces that it may have, and reports that the link is left out.
    fn is_full(&mut self, link: &Link) -> bool {
        let is_full = self.plan.interfaces.len() == INTERFACES_MAX;
        if is_full {
            let reason = format!("a machine has at most {INTERFACES_MAX} interfaces");
            self.findings.left_out(&link.named.span, &shown(link), &reason);
        }
        is_full
    }

    fn new_lan(&mut self, link: &Link, comment: String, adapter: bool) -> usize {
        let base = if adapter { "osa" } else { "hs" };
        let before = self.plan.lans.iter().filter(|lan| lan.name.starts_with(base)).count();
        let name = format!("{base}{before}");
        if adapter {
            let what = format!("{} is of a real adapter, which is not available yet", shown(link));
            let instead = format!(
                "the LAN {name} stands in for it: guests reach each other there, and no other network"
            );
            self.findings.changed(&link.named.span, what, instead);
        }
        let (ranges, addresses, routers) = (Vec::new(), Vec::new(), Vec::new());
        let frame_bytes = FRAME_BYTES[0];
        self.plan.lans.push(Lan { name, comment, frame_bytes, ranges, addresses, routers });
        self.plan.lans.len() - 1
    }

    /// The network of an address: from its own mask, that of BSDROUTINGPARMS, a direct route, or its class.
    fn network(&mut self, link: &Link, home: &Home) -> Option<IpNet> {
        let address = home.address;
        let of_parms = || self.parms(link).and_then(|parms| parms.bits);
        let of_route = || {
            let direct = |route: &&Route| {
                route.hop.is_none() && route.to.prefix_len() > 0 && route.to.contains(&address)
            };
            let bits = self.routes(link).find(direct).map(|route| route.to.prefix_len());
            // A route to one host says nothing of a network.
            bits.filter(|bits| *bits < if address.is_ipv4() { 32 } else { 128 })
        };
        let bits = match address {
            IpAddr::V4(_) => home.bits.or_else(of_parms).or_else(of_route),
            IpAddr::V6(_) => home.bits.or_else(of_route).or(Some(64)),
        };
        let network = match (bits, address) {
            (Some(bits), _) => IpNet::new(address, bits).ok()?,
            (None, IpAddr::V4(address)) => {
                let Some(bits) = class_bits(address) else {
                    let what = format!("{address} is no address of a host");
                    let right = "must begin with 1 to 223";
                    self.findings.mistake(Mistake::at(&home.span, what, right));
                    return None;
                };
                let network = IpNet::V4(Ipv4Net::new(address, bits).ok()?);
                let what = format!("{address} has no mask, and no route has one");
                let instead = format!("its network is that of its class, {}", network.trunc());
                self.findings.changed(&home.span, what, instead);
                network
            }
            (None, IpAddr::V6(_)) => return None,
        };
        Some(network.trunc())
    }

    fn line(
        &mut self,
        link: &'p Link,
        device: Option<&Device>,
        homes: &[&Home],
        kind: &'static str,
    ) -> Option<On> {
        let (home, others) = homes.split_first()?;
        for other in others {
            let subject = format!("the address {}", other.address);
            self.findings.left_out(&other.span, &subject, "an end of a line has one address");
        }
        if self.is_full(link) {
            return None;
        }
        let Some(peer) = self.peer(link, home) else {
            let what = format!("the address of the other end of {} is nowhere", shown(link));
            let right =
                format!("must be in a route, like 10.1.0.2 HOST = {} 9216", link.named.name);
            self.findings.mistake(Mistake::at(&link.named.span, what, right));
            return None;
        };
        if let Some(address) = [home.address, peer].into_iter().find(|one| self.is_end(*one)) {
            let what = format!("{address} is the address of another end of a line");
            let right = "must be that of one end alone";
            self.findings.mistake(Mistake::at(&link.named.span, what, right));
            return None;
        }
        let user = device.and_then(|device| device.user.as_ref());
        let (guest, said) = match user.map(|user| self.user(user)) {
            Some(Ok(guest)) => (guest, "The guest of DEVICE IUCV"),
            Some(Err(mistake)) => {
                self.findings.mistake(mistake);
                return None;
            }
            None => {
                let name = match self.fresh_name("PEER", &link.named.span) {
                    Ok(name) => name,
                    Err(mistake) => {
                        self.findings.mistake(mistake);
                        return None;
                    }
                };
                let what = format!("the profile does not name the guest at {}", shown(link));
                let instead = format!("the system file calls it {name}");
                self.findings.changed(&link.named.span, what, instead);
                (name, "A name of our own: the profile has none")
            }
        };
        // What the frames of Linux's drivers carry.
        let most = if kind == "iucv" { NETIUCV_MTU_MAX } else { CTCM_MTU_MAX };
        let mtu = self.mtu(link, MTU as u32, most as u32).max(mtu_min(peer) as u32);
        let before = self.plan.lines.iter().filter(|line| line.kind == kind).count();
        let name = format!("{kind}{before}");
        let comment = self.comment(link, device);
        let ends = [(self.plan.machine, home.address), (guest, peer)];
        let line = Line { name, comment: comment.clone(), kind, mtu, ends, peer: said };
        self.plan.lines.push(line);
        let on = On::Line(self.plan.lines.len() - 1);
        let cpu = cpu_of(link, device);
        self.interface(link, Interface { on, comment, mtu, cpu });
        Some(on)
    }

    /// The guest that a device names.
    fn user(&self, user: &Named) -> Result<Name, Mistake> {
        match user.name.parse::<Name>() {
            Ok(name) if !is_name_of(self.plan.machine, name) => Ok(name),
            Ok(name) => {
                let right = "must be another guest; --name gives the machine another name";
                Err(Mistake::at(&user.span, format!("{name} is the machine itself"), right))
            }
            Err(_) => {
                let right = "must be 1 to 8 of A-Z 0-9 $ # @ _ -";
                Err(Mistake::at(&user.span, format!("{} is no name of a guest", user.name), right))
            }
        }
    }

    /// Returns true if the address is one of an end of a line already.
    fn is_end(&self, address: IpAddr) -> bool {
        let mut ends = self.plan.lines.iter().flat_map(|line| &line.ends);
        ends.any(|(_, other)| *other == address)
    }

    fn interface(&mut self, link: &Link, interface: Interface) {
        // Of z/OS this is not so.
        let is_vm = link.kind.is_some_and(|kind| {
            matches!(kind.name, "QDIOETHERNET" | "QDIOIP" | "IUCV") && !self.profile.says_forwarding
        });
        if is_vm && self.plan.interfaces.len() == 1 {
            let what = "TCP/IP for VM passes packets on between two interfaces";
            self.findings.changed(&link.named.span, what, NO_FORWARDING);
        }
        if interface.cpu.is_some() && matches!(interface.on, On::Line(_)) {
            let what = format!("the processor of the driver of {} cannot be said", shown(link));
            self.findings.changed(&link.named.span, what, "the system file has it as a comment");
        }
        self.plan.interfaces.push(interface);
    }

    /// The address of the other end of a line: a host that is right at it, the first hop of a route, the destination of BSDROUTINGPARMS, or the one
    /// other address of a network of two.
    fn peer(&self, link: &Link, home: &Home) -> Option<IpAddr> {
        let own = home.address;
        let may_be =
            |peer: &IpAddr| *peer != own && peer.is_ipv4() == own.is_ipv4() && is_of_end(*peer);
        let mut direct = self.routes(link).filter(|route| route.hop.is_none() && is_host(route));
        let of_host = direct.find_map(|route| Some(route.to.addr()).filter(may_be));
        let of_hop = || self.routes(link).find_map(|route| route.hop.filter(may_be));
        let of_parms = || self.parms(link)?.destination.filter(may_be);
        let of_two = || {
            let bits = home.bits.or_else(|| self.parms(link)?.bits)?;
            let IpNet::V4(network) = IpNet::new(own, bits).ok()? else { return None };
            let mut others = network.hosts().take(3).map(IpAddr::V4).filter(may_be);
            let (first, second) = (others.next(), others.next());
            first.filter(|_| second.is_none())
        };
        of_host.or_else(of_hop).or_else(of_parms).or_else(of_two)
    }

    /// A name that no guest has: `base`, or `base` and a number. `span` is the statement that needs it.
    fn fresh_name(&mut self, base: &'static str, span: &Range<usize>) -> Result<Name, Mistake> {
        // Users of DEVICE IUCV may become guests later than this.
        let users = self.profile.devices.iter().filter_map(|device| device.user.as_ref());
        let users: Vec<&str> = users.map(|user| user.name.as_str()).collect();
        // The machine has such names itself.
        let is_machines = self.plan.machine.as_str().starts_with(base);
        let base = if is_machines { "OTHER" } else { base };
        let before = self.named.entry(base).or_default();
        loop {
            *before += 1;
            let text = if *before == 1 { base.to_owned() } else { format!("{base}{before}") };
            // There is an end: a number that is too long for a name.
            let Ok(name) = text.parse::<Name>() else {
                let what = format!("no name is left for a guest: {text} is too long");
                let right = format!("must have fewer DEVICE IUCV to guests {base}, {base}2, ..");
                return Err(Mistake::at(span, what, right));
            };
            if !users.contains(&name.as_str()) {
                return Ok(name);
            }
        }
    }

    fn route(&mut self, route: &Route) {
        if let Err(mistake) = self.try_route(route) {
            self.findings.mistake(mistake);
        }
    }

    fn try_route(&mut self, route: &Route) -> Result<(), Mistake> {
        let Some((via, lan)) = self.via(route)? else { return Ok(()) };
        if let Some(first) = self.plan.routes.iter().find(|other| other.to == route.to) {
            let (to, via) = (first.to, first.via);
            let subject = format!("a second route to {to}");
            let reason = format!("there is one route to each network: this goes to {via}");
            self.findings.left_out(&route.span, &subject, &reason);
            return Ok(());
        }
        if self.plan.routes.len() == ROUTES_MAX {
            let subject = format!("the route to {}", route.to);
            let reason = format!("a machine has at most {ROUTES_MAX} routes");
            self.findings.left_out(&route.span, &subject, &reason);
            return Ok(());
        }
        let mut comment = format!("line {}", self.line_of(&route.span));
        if let Some(at) = lan {
            let router = self.router(at, via, &route.span)?;
            comment = format!("{comment}; {router} stands for this router");
        }
        self.plan.routes.push(Via { to: route.to, via, comment });
        Ok(())
    }

    /// Where a route goes first, and the LAN with the router, if the address is not that of a line's other end. None if the route needs none, or is
    /// left out.
    fn via(&mut self, route: &Route) -> Result<Option<(IpAddr, Option<usize>)>, Mistake> {
        let link = Self::look_up(&route.link, "LINK", &self.profile.links, |one| &one.named)?;
        match self.on.get(link.named.name.as_str()).copied().flatten() {
            None => {
                let subject = format!("the route to {}", route.to);
                let reason = format!("{} is left out too", shown(link));
                self.findings.left_out(&route.span, &subject, &reason);
                Ok(None)
            }
            Some(On::Line(at)) => {
                let peer = self.plan.lines[at].ends[1].1;
                match route.hop {
                    Some(hop) if hop != peer => {
                        let what = format!("{hop} is not at the other end of {}", shown(link));
                        Err(Mistake::at(&route.span, what, format!("must be {peer}")))
                    }
                    None if is_host(route) && route.to.addr() == peer => Ok(None),
                    _ if route.to.addr().is_ipv4() != peer.is_ipv4() => {
                        let what = format!("{} is of another family than {peer}", route.to);
                        Err(Mistake::at(&route.span, what, "must be of the same"))
                    }
                    _ => Ok(Some((peer, None))),
                }
            }
            Some(On::Lan(at)) => {
                let lan = &self.plan.lans[at];
                let Some(hop) = route.hop else {
                    let is_at_hand = is_link_local(route.to.addr())
                        || lan.ranges.iter().any(|range| range.contains(&route.to));
                    if !is_at_hand {
                        let subject = format!("the route to {} without a router", route.to);
                        let reason = "a LAN has one network of each family";
                        self.findings.left_out(&route.span, &subject, reason);
                    }
                    return Ok(None);
                };
                if is_link_local(hop) {
                    let subject = format!("the route to {}", route.to);
                    let reason =
                        "a router with an address that is local to the link cannot be said";
                    self.findings.left_out(&route.span, &subject, reason);
                    return Ok(None);
                }
                self.check_hop(at, hop, route)?;
                Ok(Some((hop, Some(at))))
            }
        }
    }

    fn check_hop(&self, at: usize, hop: IpAddr, route: &Route) -> Result<(), Mistake> {
        let lan = &self.plan.lans[at];
        let range = lan.ranges.iter().find(|range| range.contains(&hop));
        let is_host = |range: &&IpNet| hop != range.network() && hop != range.broadcast();
        if lan.addresses.contains(&hop) {
            let what = format!("the first hop {hop} is the machine's own address");
            return Err(Mistake::at(&route.span, what, "must be that of a router, or ="));
        }
        if range.filter(is_host).is_none() {
            let ranges: Vec<String> = lan.ranges.iter().map(IpNet::to_string).collect();
            let what = format!("the first hop {hop} is no address at {}", route.link.name);
            let right = format!("must be a host's in {}", ranges.join(" or "));
            return Err(Mistake::at(&route.span, what, right));
        }
        Ok(())
    }

    /// The guest that stands for the router at this address.
    fn router(&mut self, at: usize, hop: IpAddr, span: &Range<usize>) -> Result<Name, Mistake> {
        let known = self.plan.lans[at].routers.iter().find(|(_, address)| *address == hop);
        if let Some((name, _)) = known {
            return Ok(*name);
        }
        let name = self.fresh_name("ROUTER", span)?;
        self.plan.lans[at].routers.push((name, hop));
        Ok(name)
    }

    fn sizes(&mut self) {
        let Profile { data_buffers, data_buffer_limits, fixed_pages, connection_bytes, .. } =
            self.profile;
        let each = data_buffers.as_ref().and_then(|pool| pool.second).unwrap_or(BUFFER_BYTES);
        let each = u64::from(each);
        if let Some(Numbers { first, span, .. }) = data_buffers {
            let what = format!("{first} of {each} bytes, for all clients together");
            let bytes = u64::from(*first) * each;
            let size = self.size("DATABUFFERPOOLSIZE", span, what, bytes, &BUFFERS_BYTES_RANGE);
            self.plan.buffers_max = Some(size);
        }
        let mut of_limits = None;
        if let Some(Numbers { first, second, span }) = data_buffer_limits {
            let most = second.unwrap_or(*first).max(*first);
            if second.is_some_and(|second| second != *first) {
                let what = "DATABUFFERLIMITS differ for receiving and sending";
                let instead = format!("the system file has the greater for both: {most}");
                self.findings.changed(span, what, instead);
            }
            let what = format!("{most} of {each} bytes");
            let bytes = u64::from(most) * each;
            let size = self.size("DATABUFFERLIMITS", span, what, bytes, &CONNECTION_BYTES_RANGE);
            of_limits = Some((size, span));
        }
        let of_config = connection_bytes.as_ref().map(|Numbers { first, span, .. }| {
            let (what, bytes) = (format!("{first} bytes"), u64::from(*first));
            (self.size("TCPCONFIG", span, what, bytes, &CONNECTION_BYTES_RANGE), span)
        });
        self.plan.connection_buffers = match (of_limits, of_config) {
            (Some(limits), Some(config)) => Some(self.greater(limits, config)),
            (limits, config) => limits.or(config).map(|(size, _)| size),
        };
        if let Some(Numbers { first, span, .. }) = fixed_pages {
            let subject = format!("FIXEDPAGESTORAGEPOOL {first}");
            self.findings.left_out(span, &subject, NO_FIXED_PAGES);
        }
    }

    /// The greater size of a connection's buffers, of the two that the profile says.
    fn greater(
        &mut self,
        (limits, limits_span): (Size, &Range<usize>),
        (config, config_span): (Size, &Range<usize>),
    ) -> Size {
        let (size, span, [lesser, greater]) = match limits.bytes.0.cmp(&config.bytes.0) {
            Ordering::Equal => return limits,
            Ordering::Less => (config, limits_span, ["DATABUFFERLIMITS", "TCPCONFIG"]),
            Ordering::Greater => (limits, config_span, ["TCPCONFIG", "DATABUFFERLIMITS"]),
        };
        let what = format!("{lesser} has another size of a connection's buffers than {greater}");
        let instead = format!("the system file has the greater: {} KiB", size.bytes.0 >> 10);
        self.findings.changed(span, what, instead);
        size
    }

    /// A size that a statement says, in whole KiB, and within what a system file may say.
    fn size(
        &self,
        statement: &str,
        span: &Range<usize>,
        what: String,
        bytes: u64,
        within: &RangeInclusive<u64>,
    ) -> Size {
        let whole = bytes.next_multiple_of(1 << 10).clamp(*within.start(), *within.end());
        let how = match whole.cmp(&bytes) {
            Ordering::Less => ", as much as there may be",
            Ordering::Equal => "",
            Ordering::Greater if whole == *within.start() => ", as little as there may be",
            Ordering::Greater => ", rounded up",
        };
        let comment = format!("{statement}, line {}: {what}{how}", self.line_of(span));
        Size { bytes: Bytes(whole), comment }
    }
}

/// Returns true if a route is to one host.
fn is_host(route: &Route) -> bool {
    route.to.prefix_len() == route.to.max_prefix_len()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The processor of a link's driver. 0 is that of the stack itself.
fn cpu_of(link: &Link, device: Option<&Device>) -> Option<u32> {
    link.cpu.or_else(|| device?.cpu).filter(|cpu| *cpu > 0)
}

/// A link as messages name it.
fn shown(link: &Link) -> String {
    let kind = if link.kind.is_some() { "LINK" } else { "INTERFACE" };
    format!("{kind} {}", link.named.name)
}
