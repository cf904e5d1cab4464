//! Who may use a gateway, and where to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use port::link::Links;
use siga::Name;
use siga::tcpip::Prefix;

/// What a gateway lets through.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The guests that may use it: names, or the beginnings of names and `*`. Empty: all.
    pub guests: Vec<String>,
    /// The networks that may be reached. Empty: all.
    pub to: Vec<Prefix>,
    /// The networks that may not be reached, whatever `to` says.
    pub refused: Vec<Prefix>,
    /// The networks of other LANs, of which only those networks may be reached that are named in `to`.
    pub others: Vec<Prefix>,
    /// The LAN's own networks, which are nowhere else.
    pub own: Vec<Prefix>,
}

/// The decision about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Forbidden,
    /// The kernel's route decides: the address may be this machine's own.
    UnlessOwn,
}

impl Rules {
    pub fn may_use(&self, guest: Name) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => guest.as_str().starts_with(beginning),
            None => guest.as_str() == pattern,
        };
        self.guests.is_empty() || self.guests.iter().any(matches)
    }

    /// Decides by the address alone.
    ///
    /// Services of this machine often believe whoever comes from the machine itself, and addresses that are local to a link often lead to the one that
    /// runs it, as with the metadata of a cloud. So the machine's own addresses and those are reached if they are named one by one, and
    /// the loopback interface is never reached.
    fn verdict(&self, address: IpAddr) -> Verdict {
        if self.is_kept_back(address) {
            return Verdict::Forbidden;
        }
        let alone = Prefix::of(address, if address.is_ipv4() { 32 } else { 128 });
        if self.to.iter().any(|network| Some(*network) == alone) {
            return Verdict::Allowed;
        }
        if is_local_to_a_link(address) || !self.to.is_empty() && !is_in(&self.to, address) {
            return Verdict::Forbidden;
        }
        Verdict::UnlessOwn
    }

    /// Returns true if an address is not reached, whatever `to` says.
    fn is_kept_back(&self, address: IpAddr) -> bool {
        let is_kept_back = match embedded(address) {
            None => false,
            Some(Inner::Mapped) => true,
            Some(Inner::Translated(inner)) => {
                let is_kept_back = |inner: &Ipv4Addr| {
                    let inner = IpAddr::V4(*inner);
                    is_local_to_a_link(inner) || self.is_kept_back(inner)
                };
                // What is in 0.0.0.0/8 nobody sends on: the translator has the address elsewhere, unless all are there.
                let mut likely = inner.iter().filter(|inner| inner.octets()[0] != 0).peekable();
                likely.peek().is_none() || likely.any(is_kept_back)
            }
        };
        is_kept_back
            || address.is_loopback()
            || is_no_host(address)
            || is_in(&self.own, address)
            || is_in(&self.refused, address)
            || self.is_in_other(address)
    }

    /// Returns true if an address is another LAN's, and no network there is named that has it.
    fn is_in_other(&self, address: IpAddr) -> bool {
        let mut others = self.others.iter().filter(|other| other.contains(address));
        others.any(|other| {
            let is_within = |network: &&Prefix| {
                network.bits() >= other.bits() && other.contains(network.address())
            };
            !self.to.iter().filter(is_within).any(|network| network.contains(address))
        })
    }

    /// Returns true if an address may be reached now. The kernel is asked for its route each time, because addresses of this machine come and go.
    ///
    /// # Errors
    /// As [`Links::is_here`].
    pub fn may_reach(&self, address: IpAddr, links: &mut Links) -> io::Result<bool> {
        match self.verdict(address) {
            Verdict::Allowed => Ok(true),
            Verdict::Forbidden => Ok(false),
            Verdict::UnlessOwn => Ok(!links.is_here(address)?),
        }
    }
}

fn is_in(networks: &[Prefix], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address))
}

fn is_no_host(address: IpAddr) -> bool {
    let is_odd = match address {
        IpAddr::V4(address) => address.octets()[0] == 0 || address.octets()[0] >= 224,
        IpAddr::V6(_) => false,
    };
    is_odd || address.is_unspecified() || address.is_multicast()
}

/// Where clouds answer with the metadata of a machine, besides the addresses that are local to a link: Amazon, Google, Oracle and Scaleway over
/// IPv6; Alibaba, Azure and Oracle over IPv4.
const METADATA_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

fn is_local_to_a_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || METADATA_V4.contains(&address),
        IpAddr::V6(address) => address.is_unicast_link_local() || METADATA_V6.contains(&address),
    }
}

/// An address of IPv4 in one of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inner {
    /// The kernel would take it for the one of IPv4 (RFC 4291 2.5.5).
    Mapped,
    /// A translator on the way makes it one of these of IPv4: which, only the translator knows (RFC 6052 2.2, RFC 8215).
    Translated([Ipv4Addr; 4]),
}

fn embedded(address: IpAddr) -> Option<Inner> {
    let IpAddr::V6(address) = address else { return None };
    let segments = address.segments();
    // The bytes of an address with a prefix of 96, 64, 56 and 48 bits. All leave out the byte 8.
    let bytes = address.octets();
    let inner = [[12, 13, 14, 15], [9, 10, 11, 12], [7, 9, 10, 11], [6, 7, 9, 10]]
        .map(|at| Ipv4Addr::from(at.map(|at: usize| bytes[at])));
    match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] if !address.is_loopback() => Some(Inner::Mapped),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(Inner::Translated([inner[0]; 4])),
        [0x64, 0xff9b, 1, ..] => Some(Inner::Translated(inner)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(to: &[&str], refused: &[&str]) -> Rules {
        let networks =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        let own = networks(&["10.1.0.0/16", "fd00:1::/64"]);
        Rules { to: networks(to), refused: networks(refused), own, ..Rules::default() }
    }

    fn verdict(rules: &Rules, address: &str) -> Verdict {
        rules.verdict(address.parse().unwrap())
    }

    #[test]
    fn what_this_machine_trusts_is_not_reached_unless_it_is_named() {
        let open = rules(&[], &[]);
        for forbidden in [
            "127.0.0.1",
            "127.8.9.1",
            "::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
            "169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "168.63.129.16",
            "fd20:ce::254",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00:808:808",
            "64:ff9b:1:a9:fe:a9fe:808:808",
            "64:ff9b:1:808:a9:fea9:fe08:808",
            "64:ff9b:1::",
            "::ffff:127.0.0.1",
            "::ffff:93.184.216.34",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "10.1.0.7",
            "fd00:1::7",
        ] {
            assert_eq!(verdict(&open, forbidden), Verdict::Forbidden, "{forbidden}");
        }
        for allowed in [
            "93.184.216.34",
            "10.2.0.1",
            "2001:db8::1",
            "64:ff9b::5db8:d822",
            "64:ff9b:1::5db8:d822",
            "64:ff9b:1:5db8:d8:2200::",
        ] {
            assert_eq!(verdict(&open, allowed), Verdict::UnlessOwn, "{allowed}");
        }
        assert!(
            !open.may_reach("127.0.0.1".parse().unwrap(), &mut Links::open().unwrap()).unwrap()
        );
        let named = rules(
            &["0.0.0.0/0", "192.0.2.7/32", "169.254.169.254/32", "127.0.0.1/32"],
            &["192.0.2.8/32", "10.0.0.0/8"],
        );
        assert_eq!(verdict(&named, "192.0.2.7"), Verdict::Allowed);
        assert_eq!(verdict(&named, "169.254.169.254"), Verdict::Allowed);
        assert_eq!(verdict(&named, "93.184.216.34"), Verdict::UnlessOwn);
        for forbidden in ["127.0.0.1", "192.0.2.8", "10.9.9.9", "169.254.1.1", "2001:db8::1"] {
            assert_eq!(verdict(&named, forbidden), Verdict::Forbidden, "{forbidden}");
        }
    }

    #[test]
    fn translated_addresses_need_no_network_of_their_inner_ones() {
        let named = rules(&["64:ff9b::/96", "64:ff9b::5db8:d823/128"], &["93.184.216.0/30"]);
        assert_eq!(verdict(&named, "64:ff9b::5db8:d8ff"), Verdict::UnlessOwn);
        assert_eq!(verdict(&named, "64:ff9b::5db8:d801"), Verdict::Forbidden, "93.184.216.1");
    }

    #[test]
    fn of_other_lans_only_the_networks_that_are_named_are_reached() {
        let others = vec!["10.2.0.0/16".parse().unwrap()];
        let open = Rules { others: others.clone(), ..rules(&[], &[]) };
        let named = Rules { others, ..rules(&["0.0.0.0/0", "10.2.7.0/24", "64:ff9b::/96"], &[]) };
        for forbidden in ["10.2.0.1", "10.2.8.1", "64:ff9b::10.2.8.1"] {
            assert_eq!(verdict(&open, forbidden), Verdict::Forbidden, "{forbidden}");
            assert_eq!(verdict(&named, forbidden), Verdict::Forbidden, "{forbidden}");
        }
        assert_eq!(verdict(&open, "10.2.7.1"), Verdict::Forbidden);
        for allowed in ["10.2.7.1", "64:ff9b::10.2.7.1", "10.3.0.1"] {
            assert_eq!(verdict(&named, allowed), Verdict::UnlessOwn, "{allowed}");
        }
        assert_eq!(verdict(&open, "10.3.0.1"), Verdict::UnlessOwn);
    }

    #[test]
    fn guests_are_named_or_their_names_begin_so() {
        let named = Rules { guests: vec!["WEB".into(), "CI*".into()], ..Rules::default() };
        let may = |name: &str| named.may_use(name.parse().unwrap());
        assert!(may("WEB") && may("CI7") && may("CI"));
        assert!(!may("WEB2") && !may("C"));
        assert!(Rules::default().may_use("ANY".parse().unwrap()));
    }
}
