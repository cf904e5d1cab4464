//! The gateway of a LAN in the system file: whether there is one, who may use it, and where to.
//!
//! ```toml
//! [[lan]]
//! name = "hs0"
//! outside = true                       # left out: false
//! outside_guests = ["WEB", "CI*"]      # left out: all members
//! outside_to = ["192.0.2.0/24"]        # left out: all but this machine and what is local to a link
//! outside_refused = ["10.0.0.0/8"]     # left out: none
//! ```

use std::net::IpAddr;

use fabric::name::Name;
use ipnet::IpNet;
use toml::Spanned;

use super::Pattern;
use super::lan::{FixedMember, LanRule};
use crate::config::{FileError, Source};

/// The name of the guest that is the gateway of the first LAN that has one. Those of others have a number behind it, from 2 on.
pub const GATEWAY: &str = "GATEWAY";

/// LANs with a gateway, at most: their gateways' names have one digit.
const OUTSIDE_LANS_MAX: usize = 9;

/// The gateway of a LAN.
#[derive(Clone, Debug)]
pub struct OutsideRule {
    /// The guest that is the gateway.
    pub gateway: Name,
    /// Its addresses: the last that a member can have, of each range.
    pub addresses: Vec<IpAddr>,
    guests: Option<Vec<Pattern>>,
    /// The networks that may be reached; all if there are none.
    pub to: Vec<IpNet>,
    /// The networks that may not be reached.
    pub refused: Vec<IpNet>,
}

impl OutsideRule {
    /// The guests that may use it, as the file writes them; none if all may.
    pub fn guests(&self) -> Option<Vec<String>> {
        let guests = self.guests.as_ref()?;
        Some(guests.iter().map(ToString::to_string).collect())
    }
}

/// The fields of `[[lan]]` for that.
pub(super) struct WrittenOutside {
    pub(super) outside: Option<bool>,
    pub(super) guests: Option<Vec<Spanned<String>>>,
    pub(super) to: Option<Vec<Spanned<String>>>,
    pub(super) refused: Option<Vec<Spanned<String>>>,
}

impl WrittenOutside {
    /// Adds the gateway to a LAN, as the one of so many LANs before it.
    pub(super) fn add_to(
        self,
        rule: &mut LanRule,
        before: usize,
        (source, span): (&Source, std::ops::Range<usize>),
    ) -> Result<(), FileError> {
        let WrittenOutside { outside, guests, to, refused } = self;
        if outside != Some(true) {
            let fields = [
                ("outside_guests", guests.as_ref()),
                ("outside_to", to.as_ref()),
                ("outside_refused", refused.as_ref()),
            ];
            return match fields.into_iter().find(|(_, list)| list.is_some()) {
                Some((field, list)) => {
                    let span = list.and_then(|list| list.first()).map_or(span, Spanned::span);
                    let right = "must be there with outside = true, or be left out";
                    Err(source.error(span, format!("{field} without a gateway"), right))
                }
                None => Ok(()),
            };
        }
        if before >= OUTSIDE_LANS_MAX {
            let what = format!("there are more than {OUTSIDE_LANS_MAX} LANs with a gateway");
            return Err(source.error(span, what, format!("must be at most {OUTSIDE_LANS_MAX}")));
        }
        let patterns = |texts: Vec<Spanned<String>>| {
            texts.iter().map(|text| Pattern::read(text, source)).collect::<Result<Vec<_>, _>>()
        };
        let networks = |texts: Option<Vec<Spanned<String>>>| {
            let texts = texts.unwrap_or_default();
            texts.iter().map(|text| network(source, text)).collect::<Result<Vec<_>, _>>()
        };
        for (field, list) in [("outside_guests", &guests), ("outside_to", &to)] {
            if list.as_ref().is_some_and(Vec::is_empty) {
                let right = "must name one, or be left out for all";
                return Err(source.error(span, format!("{field} = []"), right));
            }
        }
        let guests = guests.map(patterns).transpose()?;
        let (to, refused) = (networks(to)?, networks(refused)?);
        let way = way_out(rule, before);
        for address in &way.addresses {
            if !rule.may_have(way.gateway, *address) {
                let what = match rule.kept_for(*address) {
                    Some(other) => format!("{address} is {other}'s, and the gateway needs it"),
                    None => format!("no address is left for the gateway in {}", rule.ranges_text()),
                };
                let right = "must leave the last address of each range to the gateway";
                return Err(source.error(span, what, right));
            }
        }
        rule.set_outside(OutsideRule { guests, to, refused, ..way });
        Ok(())
    }
}

/// A gateway of a LAN that all members may use.
pub(super) fn way_out(rule: &LanRule, before: usize) -> OutsideRule {
    let gateway = match before {
        0 => GATEWAY.to_owned(),
        before => format!("{GATEWAY}{}", before + 1),
    };
    OutsideRule {
        gateway: gateway.parse().expect("a name"),
        addresses: rule.ranges.iter().map(last).collect(),
        guests: None,
        to: Vec::new(),
        refused: Vec::new(),
    }
}

impl LanRule {
    /// Lets the guest that is the gateway do what it has to.
    pub(super) fn set_outside(&mut self, way: OutsideRule) {
        let (guest, addresses) = (way.gateway, way.addresses.clone());
        self.let_route(guest);
        self.fixed.push(FixedMember {
            guest,
            mac: None,
            addresses,
            vlans: Vec::new(),
            routes_from: Vec::new(),
        });
        self.outside = Some(way);
    }
}

/// The last address of a range that a member can have.
fn last(range: &IpNet) -> IpAddr {
    match range.broadcast() {
        IpAddr::V4(last) => IpAddr::V4(last.to_bits().saturating_sub(1).into()),
        IpAddr::V6(last) => IpAddr::V6(last.to_bits().saturating_sub(1).into()),
    }
}

pub(super) fn network(source: &Source, text: &Spanned<String>) -> Result<IpNet, FileError> {
    let parsed = text.get_ref().parse::<IpNet>().ok().filter(|network| *network == network.trunc());
    if let Some(IpNet::V6(network)) = parsed
        && network.addr().to_ipv4_mapped().is_some()
    {
        let what = format!("{network} is a network of IPv4 in addresses of IPv6");
        return Err(source.error(text.span(), what, "must be written as IPv4, like 192.0.2.0/24"));
    }
    parsed.ok_or_else(|| {
        let what = format!("{:?} is no network", text.get_ref());
        let right = "must be an address whose bits behind the common ones are zero, and how many those are, like 192.0.2.0/24";
        source.error(text.span(), what, right)
    })
}

#[cfg(test)]
mod tests {
    use super::super::System;
    use super::*;

    fn parse(text: &str) -> Result<System, String> {
        System::parse(&Source::of("s.toml", text)).map_err(|error| error.to_string())
    }

    #[test]
    fn way_out_is_a_guest_with_the_last_addresses() {
        let text = r#"
            [[guest]]
            name = "*"
            [[lan]]
            name = "hs0"
            members = ["WEB"]
            range = ["10.9.0.0/24", "fd00:9::/64"]
            outside = true
            outside_guests = ["WEB"]
            outside_to = ["192.0.2.0/24", "2001:db8::/32"]
            outside_refused = ["192.0.2.7/32"]
            [[lan]]
            name = "hs1"
            range = "10.8.0.0/24"
            [[lan]]
            name = "hs2"
            range = "10.7.0.0/24"
            outside = true"#;
        let system = parse(text).unwrap();
        let [first, none, second] = &system.lans[..] else { panic!("three LANs") };
        let way = first.outside.as_ref().unwrap();
        assert_eq!(way.gateway.as_str(), "GATEWAY");
        let addresses = ["10.9.0.254", "fd00:9::ffff:ffff:ffff:fffe"];
        assert_eq!(way.addresses, addresses.map(|text| text.parse::<IpAddr>().unwrap()));
        assert_eq!(way.guests(), Some(vec!["WEB".to_owned()]));
        assert_eq!((way.to.len(), way.refused.len()), (2, 1));
        assert!(first.may_join(way.gateway) && first.may_route(way.gateway));
        assert!(!first.may_have("WEB".parse().unwrap(), way.addresses[0]));
        assert!(none.outside.is_none() && !none.may_route(way.gateway));
        assert_eq!(second.outside.as_ref().unwrap().gateway.as_str(), "GATEWAY2");
        let open = System::open();
        assert_eq!(open.lans[0].outside.as_ref().unwrap().addresses[0].to_string(), "10.1.255.254");
    }

    #[test]
    fn faults_are_named_with_their_line_and_the_cure() {
        let lan = "[[guest]]\nname = \"*\"\n[[lan]]\nname = \"hs0\"\nrange = \"10.1.0.0/24\"\n";
        for (text, error) in [
            (
                "outside_to = [\"10.0.0.0/8\"]",
                "s.toml:6: outside_to without a gateway: must be there with outside = true, or be left out",
            ),
            (
                "outside = true\noutside_to = [\"10.0.0.1/8\"]",
                "s.toml:7: \"10.0.0.1/8\" is no network: must be an address whose bits behind the common ones are zero, and how many those are, like 192.0.2.0/24",
            ),
            (
                "outside = true\n[[lan.member]]\nguest = \"WEB\"\naddresses = [\"10.1.0.254\"]",
                "s.toml:4: 10.1.0.254 is WEB's, and the gateway needs it: must leave the last address of each range to the gateway",
            ),
            (
                "outside = true\n[[guest]]\nname = \"GATEWAY\"",
                "s.toml:8: GATEWAY is the gateway of the LAN hs0: must have another name",
            ),
        ] {
            assert_eq!(parse(&format!("{lan}{text}")).unwrap_err(), error);
        }
    }
}
