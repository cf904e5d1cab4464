//! Interfaces of TCPIP machines at OSA adapters in the system file.
//!
//! ```toml
//! [[tcpip]]
//! name = "TCPIP"
//! osa = [
//!     # address: with the bits that it has in common with its network
//!     # gateway: over which all networks are reached that no route is for; left out: none
//!     # router: "primary" or "secondary", gets packets to addresses that nobody at the adapter has; left out: neither
//!     # vlan: 1 to 4094; left out: none
//!     # inbperf: how packets are to come: "balanced", "mincpu", "minlatency", "dynamic", or by times of one's own,
//!     #     as { hold_off_us = 500, gap_us = 30, packets = 64, backlog = 8 }; left out: "balanced"
//!     # workloadq: whether bulk data, Enterprise Extender and IPsec come by input queues of their own; left out: false
//!     # cpu: the processor of the driver; left out: inline, on that of the machine
//!     { adapter = "osa1", address = "192.168.1.5/24", gateway = "192.168.1.1", router = "primary", vlan = 7, cpu = 1 },
//! ]
//! ```

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use fabric::name::{LanName, Name};
use ipnet::IpNet;
use net::lan::table::VLAN_MAX;
use net::links::is_of_end;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use toml::{Spanned, Value};

use super::adapter::{self, AdapterRule, GAP_US_MAX, HOLD_OFF_US_MAX};
use super::lan::parsed;
use super::machine::processor;
use super::{Pattern, within};
use crate::config::{FileError, Source};
use crate::near::{near, question};

/// An adapter that a machine is at.
#[derive(Clone, Debug)]
pub struct InterfaceRule {
    /// The guest that has the device.
    pub member: Name,
    /// The adapter.
    pub adapter: LanName,
    /// The guest that serves the adapter.
    pub server: Name,
    /// Its address, and the bits that this has in common with its network.
    pub address: IpNet,
    /// The address over which all networks are reached that no route is for.
    pub gateway: Option<IpAddr>,
    /// The part of the device in packets to addresses that nobody at the adapter has, if it has one.
    pub router: Option<RouterRule>,
    /// The VLAN that it belongs to.
    pub vlan: Option<u16>,
    /// How packets are to come.
    pub inbperf: InbperfRule,
    /// Whether workloads come by input queues of their own.
    pub workloadq: bool,
    /// The processor of the driver; inline if there is none.
    pub processor: Option<usize>,
}

/// The part of a device in packets to addresses that nobody at the adapter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouterRule {
    /// It gets them.
    Primary,
    /// It gets them while there is no primary router.
    Secondary,
}

impl fmt::Display for RouterRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            RouterRule::Primary => "primary",
            RouterRule::Secondary => "secondary",
        })
    }
}

/// How packets are to come to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InbperfRule {
    /// As the adapter has it by itself.
    #[default]
    Balanced,
    /// With little processor time.
    Mincpu,
    /// With short delays.
    Minlatency,
    /// As the traffic of each queue wants it.
    Dynamic,
    /// By times of the machine's own.
    #[serde(untagged)]
    Own(ProfileRule),
}

/// When buffers are handed over to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProfileRule {
    /// Microseconds from the first packet in a buffer until the machine has the buffer, at most: up to [`HOLD_OFF_US_MAX`].
    pub hold_off_us: u64,
    /// Microseconds without another packet after which a buffer is handed over: up to [`GAP_US_MAX`].
    pub gap_us: u64,
    /// Packets after which it is handed over in any case; none if as many as go in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Buffers that the machine has not given back yet, from which on a gap hands over nothing; none if however many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u64>,
}

impl fmt::Display for ProfileRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "of {} us, gap {} us", self.hold_off_us, self.gap_us)?;
        let more = [("packets", self.packets), ("backlog", self.backlog)];
        more.into_iter()
            .filter_map(|(name, count)| Some((name, count?)))
            .try_for_each(|(name, count)| write!(formatter, ", {name} {count}"))
    }
}

impl fmt::Display for InbperfRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            InbperfRule::Balanced => "balanced",
            InbperfRule::Mincpu => "mincpu",
            InbperfRule::Minlatency => "minlatency",
            InbperfRule::Dynamic => "dynamic",
            InbperfRule::Own(profile) => return profile.fmt(formatter),
        })
    }
}

/// Most packets and buffers that a [`ProfileRule`] may say.
const PACKETS_MAX: u64 = u16::MAX as u64;
const BACKLOG_MAX: u64 = 126;

/// The values that `inbperf` may have.
const INBPERF: &str = "\"balanced\", \"mincpu\", \"minlatency\", \"dynamic\", or times like { hold_off_us = 500, gap_us = 30 }";

/// `inbperf` as the file has it. An untagged enum of `serde` would give one message for all mistakes, and no place of a field.
enum WrittenInbperf {
    Word(String),
    Own(WrittenProfile),
}

impl<'de> Deserialize<'de> for WrittenInbperf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WrittenInbperf, D::Error> {
        struct WordOrTable;

        impl<'de> Visitor<'de> for WordOrTable {
            type Value = WrittenInbperf;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(INBPERF)
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<WrittenInbperf, E> {
                Ok(WrittenInbperf::Word(word.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WrittenInbperf, A::Error> {
                let profile = WrittenProfile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(WrittenInbperf::Own(profile))
            }
        }

        deserializer.deserialize_any(WordOrTable)
    }
}

impl WrittenInbperf {
    fn rule(
        self,
        source: &Source,
        span: Range<usize>,
        warnings: &mut Vec<FileError>,
    ) -> Result<InbperfRule, FileError> {
        let word = match self {
            WrittenInbperf::Own(profile) => {
                return profile.rule(source, span, warnings).map(InbperfRule::Own);
            }
            WrittenInbperf::Word(word) => word,
        };
        let rules = [
            InbperfRule::Balanced,
            InbperfRule::Mincpu,
            InbperfRule::Minlatency,
            InbperfRule::Dynamic,
        ];
        rules.into_iter().find(|rule| rule.to_string() == word).ok_or_else(|| {
            let words = rules.map(|rule| rule.to_string());
            let meant = question(&near(&word, words.iter().map(String::as_str)));
            let right = meant.unwrap_or_else(|| format!("must be {INBPERF}"));
            source.error(span, format!("inbperf = {word:?}"), right)
        })
    }
}

/// Times of a machine's own, as the file has them. Values of any type are read, so that an error names the field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProfile {
    hold_off_us: Option<Spanned<Value>>,
    gap_us: Option<Spanned<Value>>,
    packets: Option<Spanned<Value>>,
    backlog: Option<Spanned<Value>>,
}

impl WrittenProfile {
    fn rule(
        self,
        source: &Source,
        span: Range<usize>,
        warnings: &mut Vec<FileError>,
    ) -> Result<ProfileRule, FileError> {
        let required = |field: &str, written: Option<Spanned<Value>>, most: u64| match written {
            Some(value) => number(source, field, &value, 0, most),
            None => {
                let right = format!("must have {field} = with 0 to {most}");
                Err(source.error(span.clone(), format!("inbperf has no {field}"), right))
            }
        };
        let count = |field: &str, written: Option<Spanned<Value>>, most: u64| {
            let number = written.map(|value| number(source, field, &value, 1, most));
            Ok(number.transpose()?.map(Spanned::into_inner))
        };
        let hold_off = required("hold_off_us", self.hold_off_us, HOLD_OFF_US_MAX)?.into_inner();
        let gap = required("gap_us", self.gap_us, GAP_US_MAX)?;
        warnings.extend(adapter::long_gap(source, "gap_us", &gap, hold_off));
        Ok(ProfileRule {
            hold_off_us: hold_off,
            gap_us: gap.into_inner(),
            packets: count("packets", self.packets, PACKETS_MAX)?,
            backlog: count("backlog", self.backlog, BACKLOG_MAX)?,
        })
    }
}

/// The number of a field that may have a value of any type.
fn number(
    source: &Source,
    field: &str,
    value: &Spanned<Value>,
    least: u64,
    most: u64,
) -> Result<Spanned<u64>, FileError> {
    let span = value.span();
    let right = match value.get_ref() {
        Value::Integer(number) => match u64::try_from(*number) {
            Ok(number) if (least..=most).contains(&number) => {
                return Ok(Spanned::new(span, number));
            }
            _ => format!("must be {least} to {most}"),
        },
        _ => format!("must be a whole number, {least} to {most}"),
    };
    let written = source.text().get(span.clone()).unwrap_or_default();
    let what = format!("{field} = {}", written.lines().next().unwrap_or_default());
    Err(source.error(span, what, right))
}

/// The table `[[tcpip.osa]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenDevice {
    adapter: Spanned<String>,
    address: Spanned<String>,
    gateway: Option<Spanned<String>>,
    router: Option<Spanned<RouterRule>>,
    vlan: Option<Spanned<u64>>,
    inbperf: Option<Spanned<WrittenInbperf>>,
    #[serde(default)]
    workloadq: bool,
    pub(super) cpu: Option<Spanned<u64>>,
}

/// The interfaces that a machine's tables make, which the adapters know of then. `guests` are the names that the machine has at them.
pub(super) fn rules(
    source: &Source,
    machine: Name,
    written: Vec<(WrittenDevice, Name)>,
    ranges: &[(IpNet, LanName)],
    adapters: &mut [AdapterRule],
    warnings: &mut Vec<FileError>,
) -> Result<Vec<InterfaceRule>, FileError> {
    let mut rules: Vec<InterfaceRule> = Vec::new();
    for (written, member) in written {
        let gateway = written.gateway.as_ref().map(Spanned::span);
        let span = written.address.span();
        let rule = written.rule(source, (machine, member), adapters, warnings)?;
        let network = rule.address.trunc();
        let at = rules.iter().map(|other| (other.address.trunc(), other.adapter));
        if let Some((_, other)) =
            at.chain(ranges.iter().copied()).find(|(other, _)| *other == network)
        {
            let what = format!("{machine} is in {network} at {other} already");
            let right = "must be in another network: a stack has one way to each";
            return Err(source.error(span, what, right));
        }
        let of_family = |other: &IpAddr| {
            rule.gateway.is_some_and(|gateway| gateway.is_ipv4() == other.is_ipv4())
        };
        let others = rules.iter().filter_map(|other| other.gateway);
        if let (Some(other), Some(span)) = (others.clone().find(of_family), gateway) {
            let what = format!("{machine} has the gateway {other} already, and uses that");
            let right = "must be left out, or be the via of a [[tcpip.route]]";
            warnings.push(source.error(span, what, right));
        }
        rules.push(rule);
    }
    Ok(rules)
}

impl WrittenDevice {
    fn rule(
        self,
        source: &Source,
        (machine, member): (Name, Name),
        adapters: &mut [AdapterRule],
        warnings: &mut Vec<FileError>,
    ) -> Result<InterfaceRule, FileError> {
        let adapter = adapter::find(source, &self.adapter, adapters)?;
        if !adapter.serves(machine) && !adapter.serves(member) {
            let what = format!("{machine} may have no device on {}", adapter.name);
            let right = format!("must be an adapter with {machine} among its guests");
            return Err(source.error(self.adapter.span(), what, right));
        }
        let address = self.address(source)?;
        if let Some(other) =
            adapter.devices.iter().find(|other| other.address.addr() == address.addr())
        {
            let what = format!(
                "{} is the address of {} on {}",
                address.addr(),
                other.member,
                adapter.name
            );
            return Err(source.error(self.address.span(), what, "must be one device's alone"));
        }
        let gateway = self.gateway(source, address)?;
        let router = self.router.as_ref().map(|router| *router.get_ref());
        let has_part = |other: &&InterfaceRule| router.is_some() && other.router == router;
        if let (Some(router), Some(other)) = (&self.router, adapter.devices.iter().find(has_part)) {
            let what =
                format!("{} is the {} router of {}", other.member, router.get_ref(), adapter.name);
            return Err(source.error(router.span(), what, "must be one device's alone"));
        }
        let inbperf = self.inbperf.map_or(Ok(InbperfRule::Balanced), |inbperf| {
            let span = inbperf.span();
            inbperf.into_inner().rule(source, span, warnings)
        })?;
        let vlan = self.vlan.map(|vlan| within(source, "vlan", vlan, 1, VLAN_MAX.into()));
        let rule = InterfaceRule {
            member,
            adapter: adapter.name,
            server: adapter.server,
            address,
            gateway,
            router,
            vlan: vlan.transpose()?.map(|vlan| vlan as u16),
            inbperf,
            workloadq: self.workloadq,
            processor: processor(source, self.cpu)?,
        };
        if !adapter.serves(member) {
            adapter.guests.push(Pattern::Name(member));
        }
        adapter.devices.push(rule.clone());
        Ok(rule)
    }

    fn address(&self, source: &Source) -> Result<IpNet, FileError> {
        let right = "must be that of a host, and the bits that it has in common with its network, like 192.168.1.5/24";
        let address: IpNet = parsed(source, &self.address, "IP address with a prefix", right)?;
        if !is_host_in(address.addr(), address) {
            let what = format!("{address} is no address of a host");
            return Err(source.error(self.address.span(), what, right));
        }
        Ok(address)
    }

    fn gateway(&self, source: &Source, own: IpNet) -> Result<Option<IpAddr>, FileError> {
        let Some(text) = &self.gateway else { return Ok(None) };
        let network = own.trunc();
        let right = format!("must be that of another host in {network}");
        let gateway: IpAddr = parsed(source, text, "IP address", &right)?;
        // Routers of IPv6 are known by the addresses that are local to the link.
        let is_local = match gateway {
            IpAddr::V4(_) => false,
            IpAddr::V6(address) => own.addr().is_ipv6() && address.is_unicast_link_local(),
        };
        if gateway == own.addr() || !(is_local || is_host_in(gateway, network)) {
            let what = format!("{gateway} is no address of a gateway here");
            return Err(source.error(text.span(), what, right));
        }
        Ok(Some(gateway))
    }
}

/// Returns true if a host can have this address, with so many leading bits in common with its network: it is neither the network's own nor that of all
/// its hosts, and no group's.
pub fn is_host(address: IpAddr, prefix_bits: u8) -> bool {
    IpNet::new(address, prefix_bits).is_ok_and(|network| is_host_in(address, network))
}

/// Returns true if a host in a network can have this address.
fn is_host_in(address: IpAddr, network: IpNet) -> bool {
    let is_mapped = match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
    };
    // Networks of one address or two have hosts alone (RFC 3021, RFC 6164).
    let has_others = network.max_prefix_len() - network.prefix_len() >= 2;
    let is_of_network =
        address == network.network() || address.is_ipv4() && address == network.broadcast();
    let fits = network.prefix_len() > 0 && network.contains(&address);
    fits && is_of_end(address) && !is_mapped && !(has_others && is_of_network)
}

#[cfg(test)]
mod tests {
    use super::super::System;
    use super::*;

    fn parse(text: &str) -> Result<System, String> {
        System::parse(&Source::of("s.toml", text)).map_err(|error| error.to_string())
    }

    const BASE: &str = "[[guest]]\nname = \"WEB\"\n[osa.osa1]\ninterface = \"eth1\"\nguests = [\"WEB\", \"TCPIP\"]\n";

    /// A machine of this name with these devices.
    fn machine(name: &str, devices: &[&str]) -> String {
        let devices = devices.iter().map(|device| format!("    {{ {device} }},\n"));
        format!("[[tcpip]]\nname = \"{name}\"\nosa = [\n{}]\n", devices.collect::<String>())
    }

    const FIRST: &str = "adapter = \"osa1\", address = \"192.168.1.5/24\"";

    #[test]
    fn machine_has_devices_on_adapters() {
        let both = format!(
            "{BASE}{}[[tcpip.interface]]\nlan = \"hs0\"\n[[tcpip.route]]\nto = \"10.7.0.0/16\"\nvia = \"192.168.1.9\"\n[[lan]]\nname = \"hs0\"\nmembers = [\"WEB\"]\n",
            machine(
                "TCPIP",
                &[
                    &format!(
                        "{FIRST}, gateway = \"192.168.1.1\", router = \"primary\", vlan = 7, inbperf = \"dynamic\", workloadq = true, cpu = 1"
                    ),
                    "adapter = \"osa1\", address = \"fd00::5/64\", gateway = \"fe80::1\"",
                ]
            )
        );
        let system = parse(&both).unwrap();
        assert!(system.warnings.is_empty(), "{:?}", system.warnings);
        let [name, member, server, web] =
            ["TCPIP", "TCPIP2", "OSA1", "WEB"].map(|text| text.parse::<Name>().unwrap());
        let machine = &system.machines[0];
        let [first, second] = &machine.osa[..] else { panic!("two") };
        // Behind the member of the LAN.
        assert_eq!((first.member, first.adapter.as_str(), first.server), (member, "osa1", server));
        assert_eq!(first.address.to_string(), "192.168.1.5/24");
        assert_eq!(first.gateway, Some("192.168.1.1".parse().unwrap()));
        assert_eq!(
            (first.router, first.vlan, first.processor),
            (Some(RouterRule::Primary), Some(7), Some(1))
        );
        assert_eq!((first.inbperf, first.workloadq), (InbperfRule::Dynamic, true));
        assert_eq!((second.inbperf, second.workloadq), (InbperfRule::Balanced, false));
        assert_eq!((second.member.as_str(), second.router, second.vlan), ("TCPIP3", None, None));
        assert!(machine.guests().any(|guest| guest == member));
        assert_eq!(machine.processors_named.len(), 1);
        // The adapter lets its guests in, and knows their addresses.
        assert!(system.may_connect(member, server) && system.may_connect(name, server));
        assert!(system.rule(member).is_some() && system.may_connect(web, server));
        assert_eq!(system.adapters[0].devices.len(), 2);
        let outline = serde_json::to_value(system.outline()).unwrap();
        assert_eq!(
            outline["machines"][0]["osa"][0],
            serde_json::json!({
                "adapter": "osa1", "member": "TCPIP2", "address": "192.168.1.5/24",
                "gateway": "192.168.1.1", "router": "primary", "vlan": 7,
                "inbperf": "dynamic", "workloadq": true, "cpu": 1
            })
        );
        // A machine at an adapter alone is somewhere.
        parse(&format!("{BASE}{}", self::machine("TCPIP", &[FIRST]))).unwrap();
    }

    #[test]
    fn device_has_times_of_its_own() {
        let of = |times: &str| {
            let device = format!("{FIRST}, inbperf = {times}");
            parse(&format!("{BASE}{}", machine("TCPIP", &[&device])))
        };
        let system = of("{ hold_off_us = 500, gap_us = 30, backlog = 8 }").unwrap();
        let profile = ProfileRule { hold_off_us: 500, gap_us: 30, packets: None, backlog: Some(8) };
        assert_eq!(system.machines[0].osa[0].inbperf, InbperfRule::Own(profile));
        assert_eq!(profile.to_string(), "of 500 us, gap 30 us, backlog 8");
        let outline = serde_json::to_value(system.outline()).unwrap();
        assert_eq!(
            outline["machines"][0]["osa"][0]["inbperf"],
            serde_json::json!({ "hold_off_us": 500, "gap_us": 30, "backlog": 8 })
        );
        for (times, error) in [
            ("{ hold_off_us = 5001, gap_us = 30 }", "hold_off_us = 5001: must be 0 to 5000"),
            ("{ hold_off_us = -1, gap_us = 30 }", "hold_off_us = -1: must be 0 to 5000"),
            ("{ hold_off_us = 500, gap_us = 101 }", "gap_us = 101: must be 0 to 100"),
            (
                "{ hold_off_us = \"500\", gap_us = 30 }",
                "hold_off_us = \"500\": must be a whole number, 0 to 5000",
            ),
            (
                "{ hold_off_us = 500, gap_us = 30.5 }",
                "gap_us = 30.5: must be a whole number, 0 to 100",
            ),
            ("{ hold_off_us = 500, gap_us = 30, packets = 0 }", "packets = 0: must be 1 to 65535"),
            (
                "{ hold_off_us = 500, gap_us = 30, backlog = 127 }",
                "backlog = 127: must be 1 to 126",
            ),
            (
                "{ hold_off_us = 500, gap_us = 30, backlog = [8] }",
                "backlog = [8]: must be a whole number, 1 to 126",
            ),
            ("{ hold_off_us = 500 }", "inbperf has no gap_us: must have gap_us = with 0 to 100"),
            (
                "{ hold_off = 500, gap_us = 30 }",
                "unknown field `hold_off`: did you mean `hold_off_us`?",
            ),
            (
                "{ hold_off_us = 500, gap_us = 30, frames = 8 }",
                "unknown field `frames`: must be one of `hold_off_us`, `gap_us`, `packets`, `backlog`",
            ),
            ("\"mincpus\"", "inbperf = \"mincpus\": did you mean mincpu?"),
            (
                "\"quick\"",
                "inbperf = \"quick\": must be \"balanced\", \"mincpu\", \"minlatency\", \"dynamic\", or times like { hold_off_us = 500, gap_us = 30 }",
            ),
            (
                "7",
                "invalid type: integer `7`: must be \"balanced\", \"mincpu\", \"minlatency\", \"dynamic\", or times like { hold_off_us = 500, gap_us = 30 }",
            ),
        ] {
            assert_eq!(of(times).unwrap_err(), format!("s.toml:9: {error}"), "{times}");
        }
    }

    #[test]
    fn gap_that_ends_nothing_is_warned_of() {
        let warnings = |times: &str| -> Vec<String> {
            let device = format!("{FIRST}, inbperf = {times}");
            let system = parse(&format!("{BASE}{}", machine("TCPIP", &[&device]))).unwrap();
            system.warnings.iter().map(ToString::to_string).collect()
        };
        let warning = "s.toml:9: gap_us = 30: buffers are handed over after 20 us already, by hold_off_us: must be less than hold_off_us";
        assert_eq!(warnings("{ hold_off_us = 20, gap_us = 30 }"), [warning]);
        assert_eq!(warnings("{ hold_off_us = 500, gap_us = 30 }"), [""; 0]);
    }

    #[test]
    fn second_gateway_and_one_out_of_reach_are_warned_of() {
        let text = format!(
            "{BASE}{}[[tcpip.route]]\nto = \"10.7.0.0/16\"\nvia = \"192.168.9.9\"\n",
            machine(
                "TCPIP",
                &[
                    &format!("{FIRST}, gateway = \"192.168.1.1\""),
                    "adapter = \"osa1\", address = \"192.168.2.5/24\", gateway = \"192.168.2.1\"",
                ]
            )
        );
        let warnings: Vec<String> =
            parse(&text).unwrap().warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "s.toml:10: TCPIP has the gateway 192.168.1.1 already, and uses that: must be left out, or be the via of a [[tcpip.route]]",
                "s.toml:14: via = \"192.168.9.9\": TCPIP is at no LAN, line or adapter that has it: must be an address in 192.168.1.0/24 or an address in 192.168.2.0/24",
            ]
        );
    }

    #[test]
    fn addresses_of_hosts_fit_their_networks() {
        let network = |text: &str| text.parse::<IpNet>().unwrap();
        let is_host = |text: &str| is_host_in(network(text).addr(), network(text));
        for text in ["10.1.0.5/8", "10.0.0.0/31", "10.0.0.7/32", "fd00::5/64", "fd00::5/128"] {
            assert!(is_host(text), "{text}");
        }
        for text in [
            "10.0.0.0/8",
            "10.255.255.255/8",
            "10.1.0.5/0",
            "0.0.0.0/32",
            "127.0.0.1/8",
            "224.0.0.1/4",
            "fd00::/64",
            "ff02::1/16",
            "::ffff:10.1.0.5/128",
        ] {
            assert!(!is_host(text), "{text}");
        }
    }

    #[test]
    fn faults_are_named_with_their_line_and_the_cure() {
        let with = |fields: &str| machine("TCPIP", &[&format!("{FIRST}, {fields}")]);
        let address = |text: &str| machine("TCPIP", &[&FIRST.replace("192.168.1.5/24", text)]);
        let right = "must be that of a host, and the bits that it has in common with its network, like 192.168.1.5/24";
        let wrong_address = |what: &str| -> String { format!("s.toml:9: {what}: {right}") };
        for (text, error) in [
            (
                machine("TCPIP", &[&FIRST.replace("osa1", "osa9")]),
                "s.toml:9: there is no adapter osa9: must be described as [osa.osa9]".to_owned(),
            ),
            (
                machine("STACK", &[FIRST]),
                "s.toml:9: STACK may have no device on osa1: must be an adapter with STACK among its guests".to_owned(),
            ),
            (
                address("192.168.1.5"),
                wrong_address("\"192.168.1.5\" is no IP address with a prefix"),
            ),
            (
                address("192.168.1.5/33"),
                wrong_address("\"192.168.1.5/33\" is no IP address with a prefix"),
            ),
            (
                address("192.168.1.0/24"),
                wrong_address("192.168.1.0/24 is no address of a host"),
            ),
            (
                with("gateway = \"192.168.2.1\""),
                "s.toml:9: 192.168.2.1 is no address of a gateway here: must be that of another host in 192.168.1.0/24".to_owned(),
            ),
            (
                with("gateway = \"192.168.1.5\""),
                "s.toml:9: 192.168.1.5 is no address of a gateway here: must be that of another host in 192.168.1.0/24".to_owned(),
            ),
            (
                with("gateway = \"fe80::1\""),
                "s.toml:9: fe80::1 is no address of a gateway here: must be that of another host in 192.168.1.0/24".to_owned(),
            ),
            (
                with("router = \"primry\""),
                "s.toml:9: unknown variant `primry`: did you mean `primary`?".to_owned(),
            ),
            (with("vlan = 4095"), "s.toml:9: vlan = 4095: must be 1 to 4094".to_owned()),
            (with("cpu = 4096"), "s.toml:9: cpu = 4096: must be 0 to 4095".to_owned()),
            (
                machine("TCPIP", &[FIRST, &FIRST.replace("/24", "/16")]),
                "s.toml:10: 192.168.1.5 is the address of TCPIP1 on osa1: must be one device's alone".to_owned(),
            ),
            (
                machine("TCPIP", &[FIRST, "adapter = \"osa1\", address = \"192.168.1.6/24\""]),
                "s.toml:10: TCPIP is in 192.168.1.0/24 at osa1 already: must be in another network: a stack has one way to each".to_owned(),
            ),
            (
                machine(
                    "TCPIP",
                    &[
                        &format!("{FIRST}, router = \"secondary\""),
                        "adapter = \"osa1\", address = \"192.168.1.6/24\", router = \"secondary\"",
                    ],
                ),
                "s.toml:10: TCPIP1 is the secondary router of osa1: must be one device's alone"
                    .to_owned(),
            ),
            (
                machine("TCPIP", &[FIRST]) + "[osa.tcpip1]\ninterface = \"eth2\"",
                "s.toml:11: TCPIP1 is a guest of the machine TCPIP, and serves this adapter: must be an adapter of another name".to_owned(),
            ),
            (
                machine("TCPIP", &[FIRST]) + "[osa.tcpip]\ninterface = \"eth2\"",
                "s.toml:11: TCPIP is a [[tcpip]], and serves this adapter: must be an adapter of another name".to_owned(),
            ),
            (
                machine("TCPIP", &[FIRST; 10]),
                "s.toml:7: 10 interfaces: must be at most 9".to_owned(),
            ),
        ] {
            assert_eq!(parse(&format!("{BASE}{text}")).unwrap_err(), error);
        }
    }
}
