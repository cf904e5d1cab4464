//! LANs in the system file: which there are, who may join, and what is fixed for whom.
//!
//! ```toml
//! [[lan]]
//! name = "hs0"
//! frame = "16 KiB"              # largest frame, 16, 24, 40 or 64 KiB: the MTU is 8 KiB less; left out: 16 KiB
//! range = "10.1.0.0/16"         # IP addresses of members are in it, and chosen from it; left out: 10.1.0.0/16;
//!                               # both families: ["10.1.0.0/16", "fd00:1::/64"]
//! members = ["*"]               # guests that may join; left out: all
//! capture = ["SNIFFER"]         # guests that may capture, and need not be among the members; left out: none
//! routers = ["ROUTER"]          # guests that may pass packets on, and so send from addresses not their own; left out: none
//!
//! # and the gateway: see [`super::outside`]
//!
//! [[lan.member]]                # what is fixed for a guest
//! guest = "WEB"
//! mac = "02:00:00:00:00:05"     # left out: chosen
//! addresses = ["10.1.0.5"]      # it may have these and no others; left out: any that is free
//! vlans = [7]                   # left out: none
//! routes_from = ["10.2.0.0/16"] # networks from which it may pass packets on into this LAN, if it is a router; left out: all
//! ```

use std::net::IpAddr;

use fabric::name::{LanName, Name};
use ipnet::IpNet;
use net::lan::frame::Mac;
use net::lan::prefix::Prefix;
use net::lan::table::{MEMBER_ADDRESSES_MAX, MEMBER_ROUTES_FROM_MAX, MEMBER_VLANS_MAX, VLAN_MAX};
use serde::Deserialize;
use toml::Spanned;

use super::Pattern;
use super::distributed::DistributedRule;
use super::outside::{OutsideRule, WrittenOutside, network, way_out};
use super::warnings::Guests;
use crate::config::{Bytes, FileError, Source};

/// LANs that a system may have, at most.
pub const LANS_MAX: usize = 256;

/// Largest frames that a LAN may have, in bytes: as the mainframe's.
pub const FRAME_BYTES: [u32; 4] = [16 << 10, 24 << 10, 40 << 10, 64 << 10];

/// What a packet of IP is shorter than a frame, in bytes, at most: as the mainframe's.
pub const HEADROOM_BYTES: u32 = 8 << 10;

/// The LAN of a system without a file.
const OPEN_NAME: &str = "hs0";
const OPEN_RANGE: &str = "10.1.0.0/16";

/// A LAN.
#[derive(Clone, Debug)]
pub struct LanRule {
    /// Its name.
    pub name: LanName,
    /// Bytes of its largest frame.
    pub frame_bytes: u32,
    /// Where its members' IP addresses are: one range, or one of each family. Never empty.
    pub ranges: Vec<IpNet>,
    pub(super) members: Vec<Pattern>,
    pub(super) capture: Vec<Pattern>,
    pub(super) routers: Vec<Pattern>,
    pub(super) fixed: Vec<FixedMember>,
    /// The gateway to other networks, if there is one. `siga up` starts it.
    pub outside: Option<OutsideRule>,
    /// The member that is of the bridge to the port of an adapter, if there is one.
    pub bridge: Option<Name>,
    /// Addresses whose connections TCPIP machines spread over others.
    pub distributed: Vec<DistributedRule>,
}

/// What is fixed for a guest.
#[derive(Clone, Debug)]
pub struct FixedMember {
    /// The guest.
    pub guest: Name,
    /// Its MAC address.
    pub mac: Option<Mac>,
    /// All the IP addresses that it may have; any if there are none.
    pub addresses: Vec<IpAddr>,
    /// The VLANs that it belongs to.
    pub vlans: Vec<u16>,
    /// The networks from which it may pass packets on into this LAN. If there are none, from all.
    pub routes_from: Vec<IpNet>,
}

impl LanRule {
    /// The LAN of a system that lets this user do everything.
    pub fn open() -> LanRule {
        let mut rule = LanRule {
            name: OPEN_NAME.parse().expect("a name"),
            frame_bytes: FRAME_BYTES[0],
            ranges: vec![OPEN_RANGE.parse().expect("a range")],
            members: vec![Pattern::Beginning(String::new())],
            capture: vec![Pattern::Beginning(String::new())],
            routers: vec![Pattern::Beginning(String::new())],
            fixed: Vec::new(),
            outside: None,
            bridge: None,
            distributed: Vec::new(),
        };
        rule.set_outside(way_out(&rule, 0));
        rule
    }

    /// Whether this guest may join.
    pub fn may_join(&self, guest: Name) -> bool {
        self.members.iter().any(|pattern| pattern.matches(guest))
    }

    /// Whether this guest may capture.
    pub fn may_capture(&self, guest: Name) -> bool {
        self.capture.iter().any(|pattern| pattern.matches(guest))
    }

    /// Returns true if this guest may pass packets on.
    pub fn may_route(&self, guest: Name) -> bool {
        self.routers.iter().any(|pattern| pattern.matches(guest))
    }

    /// Lets a guest join and pass packets on.
    pub(super) fn let_route(&mut self, guest: Name) {
        if !self.may_join(guest) {
            self.members.push(Pattern::Name(guest));
        }
        if !self.may_route(guest) {
            self.routers.push(Pattern::Name(guest));
        }
    }

    /// What is fixed for a guest.
    pub fn fixed(&self, guest: Name) -> Option<&FixedMember> {
        self.fixed.iter().find(|member| member.guest == guest)
    }

    /// Whether a MAC address is another guest's by this file.
    pub fn is_mac_kept_from(&self, guest: Name, mac: Mac) -> bool {
        self.fixed.iter().any(|member| member.guest != guest && member.mac == Some(mac))
    }

    /// Whether an IP address is another guest's by this file.
    pub fn is_kept_from(&self, guest: Name, address: IpAddr) -> bool {
        self.kept_for(address).is_some_and(|other| other != guest)
    }

    /// The guest whose address this is by this file.
    pub fn kept_for(&self, address: IpAddr) -> Option<Name> {
        let fixed = self.fixed.iter().find(|member| member.addresses.contains(&address));
        fixed.map(|member| member.guest)
    }

    /// The range of an address's family, if the LAN has one.
    pub fn range_of(&self, address: IpAddr) -> Option<&IpNet> {
        self.ranges.iter().find(|range| range.addr().is_ipv4() == address.is_ipv4())
    }

    /// How many leading bits the addresses of this one's family have in common. Those of a family without a range are each alone in IPv4,
    /// and in networks of the usual size in IPv6.
    pub fn prefix_bits_of(&self, address: IpAddr) -> u8 {
        let alone = if address.is_ipv4() { 32 } else { 64 };
        self.range_of(address).map_or(alone, IpNet::prefix_len)
    }

    /// The ranges as people read them.
    pub fn ranges_text(&self) -> String {
        let ranges: Vec<String> = self.ranges.iter().map(IpNet::to_string).collect();
        ranges.join(", ")
    }

    /// Returns true if it is the address of a host in a range of the LAN.
    pub(super) fn may_have_host(&self, address: IpAddr) -> bool {
        self.range_of(address).is_some_and(|range| {
            let is_host = address != range.network() && address != range.broadcast();
            range.contains(&address) && is_host
        })
    }

    /// The address, if it is distributed.
    pub fn distributed(&self, address: IpAddr) -> Option<&DistributedRule> {
        self.distributed.iter().find(|rule| rule.address == address)
    }

    /// The distributed addresses from which a guest may send though another has them: it is a target.
    pub fn speaks_for(&self, guest: Name) -> impl Iterator<Item = IpAddr> {
        let is_target =
            move |rule: &&DistributedRule| rule.targets.iter().any(|part| part.member == guest);
        self.distributed.iter().filter(is_target).map(|rule| rule.address)
    }

    /// Returns true if the file lets a guest have an IP address. Addresses of a family without a range are free, and so are
    /// those of IPv6 that are local to a link.
    pub fn may_have(&self, guest: Name, address: IpAddr) -> bool {
        if let Some(rule) = self.distributed(address) {
            return rule.distributors.iter().any(|part| part.member == guest);
        }
        let is_local = match address {
            IpAddr::V4(_) => false,
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let is_in_range =
            is_local || self.range_of(address).is_none() || self.may_have_host(address);
        let fixed = self.fixed(guest).map_or(&[][..], |member| &member.addresses);
        let is_of_one = !address.is_multicast() && !address.is_loopback();
        is_of_one
            && is_in_range
            && (fixed.is_empty() || is_local || fixed.contains(&address))
            && !self.is_kept_from(guest, address)
    }
}

impl FixedMember {
    /// The networks from which it may pass packets on.
    pub(crate) fn networks(&self) -> Vec<Prefix> {
        let networks = self.routes_from.iter();
        networks.filter_map(|network| Prefix::of(network.addr(), network.prefix_len())).collect()
    }
}

/// The table `[[lan]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenLan {
    name: Spanned<String>,
    frame: Option<Spanned<Bytes>>,
    range: Option<Spanned<WrittenRange>>,
    members: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    capture: Vec<Spanned<String>>,
    #[serde(default)]
    routers: Vec<Spanned<String>>,
    outside: Option<bool>,
    outside_guests: Option<Vec<Spanned<String>>>,
    outside_to: Option<Vec<Spanned<String>>>,
    outside_refused: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    member: Vec<WrittenMember>,
}

/// One range, or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a range, or a list of one of each family")]
enum WrittenRange {
    One(String),
    List(Vec<String>),
}

impl WrittenRange {
    fn texts(&self) -> &[String] {
        match self {
            WrittenRange::One(text) => std::slice::from_ref(text),
            WrittenRange::List(texts) => texts,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMember {
    guest: Spanned<String>,
    mac: Option<Spanned<String>>,
    addresses: Option<Spanned<Vec<Spanned<String>>>>,
    vlans: Option<Spanned<Vec<Spanned<u16>>>>,
    routes_from: Option<Spanned<Vec<Spanned<String>>>>,
}

/// The rules that a file's tables make.
pub(super) fn rules(source: &Source, written: Vec<WrittenLan>) -> Result<Vec<LanRule>, FileError> {
    let mut rules: Vec<LanRule> = Vec::new();
    for lan in written {
        let span = lan.name.span();
        if rules.len() == LANS_MAX {
            let what = format!("there are more than {LANS_MAX} LANs");
            return Err(source.error(span, what, format!("must be at most {LANS_MAX}")));
        }
        let before = rules.iter().filter(|rule| rule.outside.is_some()).count();
        let rule = lan.rule(source, before)?;
        if rules.iter().any(|other| other.name == rule.name) {
            let right = "must be described once";
            return Err(source.error(span, "a LAN of this name is described above", right));
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// A field's text as what it stands for.
pub(super) fn parsed<T: std::str::FromStr>(
    source: &Source,
    text: &Spanned<String>,
    kind: &str,
    right: &str,
) -> Result<T, FileError> {
    text.get_ref().parse().map_err(|_| {
        let what = format!("{:?} is no {kind}", text.get_ref());
        source.error(text.span(), what, right)
    })
}

/// What a list has, which is left out or no longer than `most`.
fn at_most<T>(
    source: &Source,
    list: Option<Spanned<Vec<T>>>,
    most: usize,
    kind: &str,
) -> Result<Vec<T>, FileError> {
    let Some(list) = list else { return Ok(Vec::new()) };
    let count = list.get_ref().len();
    if count > most {
        let right = format!("must be at most {most}");
        return Err(source.error(list.span(), format!("{count} {kind}"), right));
    }
    Ok(list.into_inner())
}

/// The ranges of a LAN: one, or one of each family.
fn ranges(source: &Source, written: &Spanned<WrittenRange>) -> Result<Vec<IpNet>, FileError> {
    let mut ranges: Vec<IpNet> = Vec::new();
    for text in written.get_ref().texts() {
        let range: IpNet = text.parse().map_err(|_| {
            let what = format!("{text:?} is no range of IP addresses");
            let right = "must be an address and the bits that all have in common, like 10.1.0.0/16";
            source.error(written.span(), what, right)
        })?;
        if ranges.iter().any(|other| other.addr().is_ipv4() == range.addr().is_ipv4()) {
            let family = if range.addr().is_ipv4() { "IPv4" } else { "IPv6" };
            let right = "must be one of each family at most";
            return Err(source.error(written.span(), format!("two ranges of {family}"), right));
        }
        ranges.push(range.trunc());
    }
    if ranges.is_empty() {
        let right = "must name one, or be left out for 10.1.0.0/16";
        return Err(source.error(written.span(), "no range", right));
    }
    Ok(ranges)
}

impl WrittenLan {
    /// Returns warnings about settings that are probably mistakes.
    pub(super) fn warnings(&self, source: &Source, guests: &Guests<'_>) -> Vec<FileError> {
        let mut warnings = Vec::new();
        if let Some(written) = &self.range {
            let ranges = written.get_ref().texts().iter().filter_map(|text| text.parse().ok());
            warnings.extend(ranges.filter(|range: &IpNet| *range != range.trunc()).map(|range| {
                let what = format!("{range} has bits that are not in common");
                let right = format!("did you mean {}?", range.trunc());
                source.error(written.span(), what, right)
            }));
        }
        let members = self.members.iter().flatten();
        warnings.extend(members.filter_map(|text| guests.warn("members", text)));
        warnings.extend(self.capture.iter().filter_map(|text| guests.warn("capture", text)));
        warnings.extend(self.routers.iter().filter_map(|text| guests.warn("routers", text)));
        let outside = self.outside_guests.iter().flatten();
        warnings.extend(outside.filter_map(|text| guests.warn("outside_guests", text)));
        let members = self.members.as_ref();
        let members: Option<Vec<Pattern>> = members
            .map(|texts| texts.iter().filter_map(|text| Pattern::parse(text.get_ref())).collect());
        for member in &self.member {
            let unknown = guests.warn("guest", &member.guest);
            let stranger = || {
                let guest: Name = member.guest.get_ref().parse().ok()?;
                let is_member = members
                    .as_ref()
                    .is_none_or(|members| members.iter().any(|own| own.matches(guest)));
                let what = format!("{guest} is not among the members of {}", self.name.get_ref());
                let right = "must be in members = [..], or be left out";
                (!is_member).then(|| source.error(member.guest.span(), what, right))
            };
            warnings.extend(unknown.or_else(stranger));
        }
        warnings
    }

    fn rule(self, source: &Source, outside_before: usize) -> Result<LanRule, FileError> {
        let name = parsed(source, &self.name, "name of a LAN", "must be 1 to 8 of a-z 0-9 _ -")?;
        let frame_bytes = match &self.frame {
            None => FRAME_BYTES[0],
            Some(bytes) => {
                let found =
                    FRAME_BYTES.into_iter().find(|known| u64::from(*known) == bytes.get_ref().0);
                found.ok_or_else(|| {
                    let what = format!("frame = {:?}", bytes.get_ref().to_string());
                    source.error(bytes.span(), what, "must be 16, 24, 40 or 64 KiB")
                })?
            }
        };
        let ranges = match &self.range {
            None => vec![OPEN_RANGE.parse().expect("a range")],
            Some(written) => ranges(source, written)?,
        };
        let patterns = |texts: &[Spanned<String>]| {
            texts.iter().map(|text| Pattern::read(text, source)).collect::<Result<Vec<_>, _>>()
        };
        let members = match &self.members {
            None => vec![Pattern::Beginning(String::new())],
            Some(members) => patterns(members)?,
        };
        let capture = patterns(&self.capture)?;
        let routers = patterns(&self.routers)?;
        let (fixed, outside, bridge) = (Vec::new(), None, None);
        let mut rule = LanRule {
            name,
            frame_bytes,
            ranges,
            members,
            capture,
            routers,
            fixed,
            outside,
            bridge,
            distributed: Vec::new(),
        };
        for member in self.member {
            let member = member.fixed(source, &rule)?;
            rule.fixed.push(member);
        }
        let outside = WrittenOutside {
            outside: self.outside,
            guests: self.outside_guests,
            to: self.outside_to,
            refused: self.outside_refused,
        };
        outside.add_to(&mut rule, outside_before, (source, self.name.span()))?;
        Ok(rule)
    }
}

impl WrittenMember {
    fn fixed(self, source: &Source, rule: &LanRule) -> Result<FixedMember, FileError> {
        let guest: Name =
            parsed(source, &self.guest, "name", "must be 1 to 8 of A-Z 0-9 $ # @ _ -")?;
        let twice = |span, what: &str| Err(source.error(span, what, "must be one guest's alone"));
        if rule.fixed(guest).is_some() {
            let what = "this guest is described above";
            return Err(source.error(self.guest.span(), what, "must be described once"));
        }
        let mac = match &self.mac {
            None => None,
            Some(text) => {
                let right = "must be six bytes of one station, like 02:00:00:00:00:05";
                let mac: Mac = parsed(source, text, "MAC address", right)?;
                if mac.is_group() || mac == Mac([0; 6]) {
                    let what = format!("{mac} is no station's MAC address");
                    return Err(source.error(text.span(), what, right));
                }
                if rule.fixed.iter().any(|other| other.mac == Some(mac)) {
                    return twice(text.span(), "this MAC address is another member's");
                }
                Some(mac)
            }
        };
        let written = at_most(source, self.addresses, MEMBER_ADDRESSES_MAX, "addresses")?;
        let mut addresses = Vec::new();
        for text in &written {
            let address: IpAddr = parsed(source, text, "IP address", "must be one, like 10.1.0.5")?;
            if rule.is_kept_from(guest, address) {
                return twice(text.span(), "this address is another member's");
            }
            if !rule.may_have(guest, address) {
                let what = format!("{address} is no member's address in {}", rule.ranges_text());
                let right = "must be in the range, and neither its first nor its last address";
                return Err(source.error(text.span(), what, right));
            }
            addresses.push(address);
        }
        let written = at_most(source, self.vlans, MEMBER_VLANS_MAX, "VLANs")?;
        if let Some(vlan) = written.iter().find(|vlan| !(1..=VLAN_MAX).contains(vlan.get_ref())) {
            let what = format!("{} is no VLAN", vlan.get_ref());
            return Err(source.error(vlan.span(), what, format!("must be 1 to {VLAN_MAX}")));
        }
        let vlans = written.into_iter().map(Spanned::into_inner).collect();
        let routes_from = match self.routes_from {
            None => Vec::new(),
            Some(list) if !rule.may_route(guest) => {
                let what = format!("routes_from of {guest}, which is not among the routers");
                let right = "must be in routers = [..] of the LAN, or routes_from be left out";
                return Err(source.error(list.span(), what, right));
            }
            Some(list) if list.get_ref().is_empty() => {
                let right = "must name a network, or be left out for all";
                return Err(source.error(list.span(), "routes_from = []", right));
            }
            list => at_most(source, list, MEMBER_ROUTES_FROM_MAX, "networks")?,
        };
        let routes_from = routes_from.iter().map(|text| network(source, text));
        let routes_from = routes_from.collect::<Result<_, _>>()?;
        Ok(FixedMember { guest, mac, addresses, vlans, routes_from })
    }
}

#[cfg(test)]
mod tests {
    use super::super::System;
    use super::*;

    fn parse(text: &str) -> Result<System, String> {
        System::parse(&Source::of("s.toml", text)).map_err(|error| error.to_string())
    }

    fn name(name: &str) -> Name {
        name.parse().unwrap()
    }

    #[test]
    fn lan_says_who_may_join_and_with_which_address() {
        let system = parse(
            r#"
            [[lan]]
            name = "hs1"
            frame = "64 KiB"
            range = "10.9.0.7/24"
            members = ["WEB*", "SNIFF"]
            capture = ["SNIFF"]
            routers = ["ROUT*"]
            [[lan.member]]
            guest = "WEB"
            mac = "02:00:00:00:00:05"
            addresses = ["10.9.0.5"]
            vlans = [7, 4094]
            "#,
        )
        .unwrap();
        let [lan] = &system.lans[..] else { panic!("one") };
        assert_eq!((lan.frame_bytes, lan.ranges_text().as_str()), (65_536, "10.9.0.0/24"));
        assert!(lan.may_join(name("WEB2")) && !lan.may_join(name("OTHER")));
        assert!(lan.may_route(name("ROUTER")) && !lan.may_route(name("WEB")));
        assert!(lan.may_capture(name("SNIFF")) && !lan.may_capture(name("WEB")));
        let may = |guest: &str, address: &str| lan.may_have(name(guest), address.parse().unwrap());
        assert!(may("WEB", "10.9.0.5") && may("WEB", "fe80::5") && may("WEB2", "10.9.0.6"));
        assert!(may("WEB2", "fd00::1"), "the other family is free");
        for (guest, address) in [
            ("WEB", "10.9.0.6"),
            ("WEB2", "10.9.0.5"),
            ("WEB2", "10.9.1.6"),
            ("WEB2", "10.9.0.0"),
            ("WEB2", "10.9.0.255"),
            ("WEB2", "224.0.0.1"),
            ("WEB2", "::1"),
        ] {
            assert!(!may(guest, address), "{guest} {address}");
        }
        assert_eq!(lan.fixed(name("WEB")).unwrap().vlans, [7, 4094]);
    }

    #[test]
    fn lan_of_both_families_keeps_each_to_its_range() {
        let text = "[[lan]]\nname = \"hs0\"\nrange = [\"10.9.0.0/24\", \"fd00:9::7/64\"]";
        let system = parse(text).unwrap();
        let lan = &system.lans[0];
        assert_eq!(lan.ranges_text(), "10.9.0.0/24, fd00:9::/64");
        let may = |address: &str| lan.may_have(name("WEB"), address.parse().unwrap());
        assert!(may("10.9.0.5") && may("fd00:9::5") && may("fe80::5"));
        assert!(!may("10.9.1.5") && !may("fd00:8::5") && !may("fd00:9::"));
        let bits = |address: &str| lan.prefix_bits_of(address.parse().unwrap());
        assert_eq!([bits("10.9.0.5"), bits("fd00:9::5")], [24, 64]);
    }

    #[test]
    fn faults_are_named_with_their_line_and_the_cure() {
        for (text, error) in [
            (
                "[[lan]]\nname = \"HS0\"",
                "s.toml:2: \"HS0\" is no name of a LAN: must be 1 to 8 of a-z 0-9 _ -",
            ),
            (
                "[[lan]]\nname = \"hs0\"\nframe = 1500",
                "s.toml:3: frame = \"1500 B\": must be 16, 24, 40 or 64 KiB",
            ),
            (
                "[[lan]]\nname = \"hs0\"\nrange = \"10.1.0.0\"",
                "s.toml:3: \"10.1.0.0\" is no range of IP addresses: must be an address and the bits that all have in common, like 10.1.0.0/16",
            ),
            (
                "[[lan]]\nname = \"hs0\"\nrange = [\"10.1.0.0/16\", \"10.2.0.0/16\"]",
                "s.toml:3: two ranges of IPv4: must be one of each family at most",
            ),
            (
                "[[lan]]\nname = \"hs0\"\nrange = []",
                "s.toml:3: no range: must name one, or be left out for 10.1.0.0/16",
            ),
            (
                "[[lan]]\nname = \"hs0\"\n[[lan]]\nname = \"hs0\"",
                "s.toml:4: a LAN of this name is described above: must be described once",
            ),
            (
                "[[lan]]\nname = \"hs0\"\n[[lan.member]]\nguest = \"A\"\nmac = \"ff:ff:ff:ff:ff:ff\"",
                "s.toml:5: ff:ff:ff:ff:ff:ff is no station's MAC address: must be six bytes of one station, like 02:00:00:00:00:05",
            ),
            (
                "[[lan]]\nname = \"hs0\"\n[[lan.member]]\nguest = \"A\"\naddresses = [\"10.2.0.1\"]",
                "s.toml:5: 10.2.0.1 is no member's address in 10.1.0.0/16: must be in the range, and neither its first nor its last address",
            ),
            (
                "[[lan]]\nname = \"hs0\"\n[[lan.member]]\nguest = \"A\"\nvlans = [4095]",
                "s.toml:5: 4095 is no VLAN: must be 1 to 4094",
            ),
            (
                "[[lan]]\nname = \"hs0\"\n[[lan.member]]\nguest = \"A\"\nroutes_from = [\"10.2.0.0/16\"]",
                "s.toml:5: routes_from of A, which is not among the routers: must be in routers = [..] of the LAN, or routes_from be left out",
            ),
            (
                "[[lan]]\nname = \"hs0\"\nrouters = [\"A\"]\n[[lan.member]]\nguest = \"A\"\nroutes_from = [\"::ffff:0:0/96\"]",
                "s.toml:6: ::ffff:0.0.0.0/96 is a network of IPv4 in addresses of IPv6: must be written as IPv4, like 192.0.2.0/24",
            ),
            (
                "[[lan]]\nname = \"hs0\"\nrouters = [\"A\"]\n[[lan.member]]\nguest = \"A\"\nroutes_from = []",
                "s.toml:6: routes_from = []: must name a network, or be left out for all",
            ),
            (
                "[[lan]]\nname = \"hs0\"\nrouters = [\"A\"]\n[[lan.member]]\nguest = \"A\"\nroutes_from = [\"10.2.0.1/16\"]",
                "s.toml:6: \"10.2.0.1/16\" is no network: must be an address whose bits behind the common ones are zero, and how many those are, like 192.0.2.0/24",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), error);
        }
    }
}
