//! Claims of frames: a frame says that an IP address is its sender's. Whoever gives frames to a kernel compares that with the address
//! table.
//!
//! A kernel believes what a packet says of its source, and whom an address belongs to it believes of anybody who says so. The first is
//! compared with the sender's entry in the table. The second is known from the table alone: frames that say it are for nobody.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::frame::{ETHERNET_BYTES, Mac, u16_at};
use super::offload::Offload;
use super::table::Member;

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const IPV6_BYTES: usize = 40;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const ICMPV6: u8 = 58;
const DESTINATION: u8 = 60;
/// Router advertisement, neighbour solicitation and advertisement, redirect.
const DISCOVERY: std::ops::RangeInclusive<u8> = 134..=137;

/// A claim of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Only what the address table says too.
    Fair,
    /// That an IP address is the sender's, which is not in its entry.
    Source(IpAddr),
    /// To know who has an IP address, or who is a router: by ARP, or by IPv6's neighbour discovery.
    Discovery,
}

/// Returns the claim of a frame, of which `start` has the headers.
///
/// A member that passes packets on may send from any address, or from those of the networks that it may pass packets on from. One that does not may send
/// from those that the table names for it. All
/// members may send from no address, as a member without one does, and from the address of IPv6 that is local to the link and follows
/// from their MAC address.
///
/// A frame with a tag claims nothing: members of a VLAN know from each other who they are. Only the networks of a member that
/// passes packets on hold there too.
#[inline]
pub fn claim(start: &[u8], offload: Offload, from: &Member) -> Claim {
    let is_tagged = offload.vlan.is_some();
    if is_tagged && (!from.routes || from.routes_from.is_empty()) {
        return Claim::Fair;
    }
    claim_of(start, from, is_tagged)
}

#[inline]
fn claim_of(start: &[u8], from: &Member, is_tagged: bool) -> Claim {
    let source = match u16_at(start, 12) {
        Some(IPV4) => match start.get(26..30).and_then(|source| source.first_chunk::<4>()) {
            Some(source) => IpAddr::V4(Ipv4Addr::from(*source)),
            None => return Claim::Fair,
        },
        Some(IPV6) => {
            let ip = &start[ETHERNET_BYTES..];
            let Some(source) = ip.get(8..24).and_then(|source| source.first_chunk::<16>()) else {
                return Claim::Fair;
            };
            let source = Ipv6Addr::from(*source);
            if is_tagged && source.is_unicast_link_local() {
                // Nobody passes it on.
                return Claim::Fair;
            }
            if !is_tagged && is_discovery(ip) {
                return Claim::Discovery;
            }
            IpAddr::V6(source)
        }
        Some(ARP) if is_tagged => return Claim::Fair,
        Some(ARP) => return Claim::Discovery,
        _ => return Claim::Fair,
    };
    if from.may_speak_from(source) || from.addresses.contains(&source) || source.is_unspecified() {
        return Claim::Fair;
    }
    match source {
        IpAddr::V6(local) if local == link_local(from.mac) => Claim::Fair,
        _ => Claim::Source(source),
    }
}

/// Returns true if a packet of IPv6 may belong to neighbour discovery. It may where its headers go on beyond the bytes given here.
fn is_discovery(ip: &[u8]) -> bool {
    let (mut next, mut at) = (ip[6], IPV6_BYTES);
    loop {
        match next {
            ICMPV6 => return ip.get(at).is_none_or(|kind| DISCOVERY.contains(kind)),
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let Some(header) = ip.get(at..).and_then(|header| header.first_chunk::<2>()) else {
                    return true;
                };
                next = header[0];
                at += 8 * (1 + usize::from(header[1]));
            }
            // Fragments of neighbour discovery are ignored by all (RFC 6980).
            _ => return false,
        }
    }
}

/// The address that is local to a link and follows from a MAC address (RFC 4291, appendix A).
pub fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let low = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(low))
}

/// The MAC address from which such an address follows.
pub fn mac_in(address: Ipv6Addr) -> Option<Mac> {
    let [high @ .., a, b, c, 0xff, 0xfe, d, e, f] = address.octets() else { return None };
    (high == [0xfe, 0x80, 0, 0, 0, 0, 0, 0]).then_some(Mac([a ^ 2, b, c, d, e, f]))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 5]);

    fn member() -> Member {
        Member {
            name: "ONE".parse().unwrap(),
            mac: MAC,
            vlans: vec![7],
            addresses: vec!["10.1.0.5".parse().unwrap(), "fd00::5".parse().unwrap()],
            captures: false,
            routes: false,
            routes_from: Vec::new(),
            life: 1,
        }
    }

    fn frame(kind: u16, packet: &[u8]) -> Vec<u8> {
        [&[0xff; 6][..], &MAC.0, &kind.to_be_bytes(), packet].concat()
    }

    fn four(source: &str) -> Vec<u8> {
        let source: Ipv4Addr = source.parse().unwrap();
        frame(IPV4, &[&[0x45; 12][..], &source.octets(), &[0; 4]].concat())
    }

    fn six(source: &str, next: u8, rest: &[u8]) -> Vec<u8> {
        let source: Ipv6Addr = source.parse().unwrap();
        let head = [0x60, 0, 0, 0, 0, 0, next, 255];
        frame(IPV6, &[&head[..], &source.octets(), &[0; 16], rest].concat())
    }

    #[test]
    fn sources_are_those_of_the_table() {
        let claims = |frame: &[u8]| claim(frame, Offload::NONE, &member());
        for fair in ["10.1.0.5", "0.0.0.0"] {
            assert_eq!(claims(&four(fair)), Claim::Fair, "{fair}");
        }
        for fair in ["fd00::5", "::", "fe80::ff:fe00:5"] {
            assert_eq!(claims(&six(fair, 17, &[])), Claim::Fair, "{fair}");
        }
        for other in ["10.1.0.6", "127.0.0.1", "255.255.255.255", "224.0.0.1", "169.254.0.5"] {
            assert_eq!(claims(&four(other)), Claim::Source(other.parse().unwrap()));
        }
        for other in ["fd00::6", "::1", "fe80::ff:fe00:6", "::ffff:10.1.0.5", "ff02::1"] {
            assert_eq!(claims(&six(other, 17, &[])), Claim::Source(other.parse().unwrap()));
        }
        let router = Member { routes: true, ..member() };
        assert_eq!(claim(&four("192.168.0.1"), Offload::NONE, &router), Claim::Fair);
        let routes_from = vec!["192.168.0.0/24".parse().unwrap()];
        let router = Member { routes_from, ..router };
        let claim_of = |source: &str| claim(&four(source), Offload::NONE, &router);
        assert_eq!([claim_of("192.168.0.1"), claim_of("10.1.0.5")], [Claim::Fair, Claim::Fair]);
        assert_eq!(claim_of("192.168.1.1"), Claim::Source("192.168.1.1".parse().unwrap()));
        let tagged = Offload { vlan: Some(7), ..Offload::NONE };
        assert_eq!(claim(&four("10.1.0.6"), tagged, &member()), Claim::Fair);
        let claim_of = |frame: &[u8]| claim(frame, tagged, &router);
        for fair in [four("192.168.0.1"), four("10.1.0.5"), frame(ARP, &[0; 28])] {
            assert_eq!(claim_of(&fair), Claim::Fair);
        }
        let other = "192.168.1.1".parse().unwrap();
        assert_eq!(claim_of(&four("192.168.1.1")), Claim::Source(other));
        // Whatever stands behind its header, and however much of that is not at hand.
        for (next, rest) in [(17, &[][..]), (60, &[0, 0, 0, 0, 0, 0, 0, 0]), (58, &[135, 0])] {
            let other = Claim::Source("fd00::6".parse().unwrap());
            assert_eq!(claim_of(&six("fd00::6", next, rest)), other);
            for fair in ["fd00::5", "fe80::6", "::"] {
                assert_eq!(claim_of(&six(fair, next, rest)), Claim::Fair, "{fair}");
            }
        }
        let router = Member { routes_from: Vec::new(), ..router };
        assert_eq!(claim(&four("192.168.1.1"), tagged, &router), Claim::Fair);
        let target = Member { routes_from: vec!["10.1.0.99/32".parse().unwrap()], ..member() };
        let claim_of = |source: &str| claim(&four(source), Offload::NONE, &target);
        assert_eq!([claim_of("10.1.0.99"), claim_of("10.1.0.5")], [Claim::Fair, Claim::Fair]);
        assert_eq!(claim_of("10.1.0.98"), Claim::Source("10.1.0.98".parse().unwrap()));
        assert_eq!(claim(&four("10.1.0.98"), tagged, &target), Claim::Fair);
        assert_eq!(claims(&frame(0x88b5, &[0; 40])), Claim::Fair);
    }

    #[test]
    fn nobody_says_who_has_an_address() {
        let router = Member { routes: true, ..member() };
        let claims = |frame: &[u8]| {
            let found = claim(frame, Offload::NONE, &member());
            assert_eq!(
                found == Claim::Discovery,
                claim(frame, Offload::NONE, &router) == Claim::Discovery
            );
            found
        };
        assert_eq!(claims(&frame(ARP, &[0; 28])), Claim::Discovery);
        for kind in [134, 135, 136, 137] {
            assert_eq!(claims(&six("fd00::5", 58, &[kind, 0])), Claim::Discovery);
            // Behind headers, and behind more of them than are at hand.
            let options = [58, 0, 1, 4, 0, 0, 0, 0, kind];
            assert_eq!(claims(&six("fd00::5", 0, &options)), Claim::Discovery);
            assert_eq!(claims(&six("fd00::5", 60, &[0, 0, 0, 0, 0, 0, 0, 0])), Claim::Discovery);
            assert_eq!(claims(&six("fd00::5", 43, &[58, 200])), Claim::Discovery);
        }
        // Echoes, listeners of groups behind an option, questions after routers, datagrams.
        for (next, rest) in
            [(58, &[128][..]), (0, &[58, 0, 5, 2, 0, 0, 1, 0, 143]), (58, &[133]), (17, &[])]
        {
            assert_eq!(claims(&six("::", next, rest)), Claim::Fair);
        }
    }

    #[test]
    fn addresses_that_are_cut_are_no_claims_and_links_have_theirs() {
        for whole in [four("10.1.0.6"), six("fd00::6", 17, &[])] {
            for cut in 0..30.min(whole.len()) {
                assert_eq!(claim(&whole[..cut], Offload::NONE, &member()), Claim::Fair);
            }
        }
        assert_eq!(link_local(MAC).to_string(), "fe80::ff:fe00:5");
        assert_eq!(mac_in(link_local(MAC)), Some(MAC));
        assert_eq!(mac_in("fe80::5".parse().unwrap()), None);
        assert_eq!(mac_in("fd00::ff:fe00:5".parse().unwrap()), None);
    }
}
