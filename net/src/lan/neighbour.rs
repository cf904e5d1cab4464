//! Who has this IP address? The address table knows it, so that nobody needs to be asked: questions of ARP and of
//! IPv6's neighbour discovery are answered where they come up, as an adapter with an address table does.
//!
//! A kernel keeps an answer for a minute and longer. The member that has the address meanwhile may be another one: so a frame goes to the
//! owner of its IP destination ([`next_hop`]), as an adapter in layer 3 mode sends it, and the kernel is told of new owners
//! ([`announcement`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::frame::{ETHERNET_BYTES, Mac, u16_at};
use super::offload::{folded, pseudo_header, sum_of};
use super::table::LentTable;

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
pub(crate) const ETHERNET: u16 = 1;
pub(crate) const ARP_BYTES: usize = 28;
pub(crate) const REQUEST: u16 = 1;
pub(crate) const REPLY: u16 = 2;
const ICMPV6: u8 = 58;
pub(crate) const SOLICITATION: u8 = 135;
pub(crate) const ADVERTISEMENT: u8 = 136;
const IPV6_BYTES: usize = 40;
/// Of an advertisement: solicited, and to be believed.
const SOLICITED_OVERRIDE: u8 = 0x60;
/// Of an advertisement: not asked for, and to be believed.
const OVERRIDE: u8 = 0x20;
/// A solicitation or an advertisement with the option that has the address.
const MESSAGE_BYTES: usize = 32;
/// The option with the address of the target.
const TARGET_MAC: u8 = 2;
/// All stations of a link, and the MAC address of that group.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);

/// The IP address that a packet goes to; none of a frame without a packet of IP, or with a tag.
pub fn ip_destination(frame: &[u8]) -> Option<IpAddr> {
    let ip = frame.get(ETHERNET_BYTES..)?;
    match u16_at(frame, 12)? {
        IPV4 => Some(Ipv4Addr::from(*ip.get(16..)?.first_chunk::<4>()?).into()),
        IPV6 => Some(Ipv6Addr::from(*ip.get(24..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// The MAC address that a frame to one station, with a packet for `ip`, is to go to now, if it is not `mac`, which its kernel believes in.
/// The owner of the IP address has precedence, and then a member behind which the address is. A member that passes packets on, or is a gateway, gets what the kernel sends over it; and if a gateway has another
/// MAC address by now, it is found by `gateways`, the IP addresses of those that the kernel uses.
pub fn next_hop(table: &LentTable, gateways: &[IpAddr], mac: Mac, ip: IpAddr) -> Option<Mac> {
    let member = table.find(mac).map(|(_, member)| member);
    let is_gateway = member.is_some_and(|member| {
        member.routes || gateways.iter().any(|gateway| member.addresses.contains(gateway))
    });
    if is_gateway {
        return None;
    }
    if let Some((_, owner)) = table.find_owner(ip) {
        return (owner.mac != mac).then_some(owner.mac);
    }
    if member.is_some() {
        return None;
    }
    if let Some((_, way)) = table.find_way(ip) {
        return Some(way.mac);
    }
    let gateway = gateways.iter().find(|gateway| gateway.is_ipv4() == ip.is_ipv4())?;
    table.find_address(*gateway).map(|(_, gateway)| gateway.mac)
}

/// A frame that tells all who know an IP address that the member with this MAC address has it now: a gratuitous request of ARP
/// (RFC 5227, 3), or an unsolicited advertisement (RFC 4861, 7.2.6).
pub fn announcement(ip: IpAddr, mac: Mac) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => arp(REQUEST, (ip, mac), (ip, Mac([0; 6])), Mac::BROADCAST),
        IpAddr::V6(ip) => advertisement((ip, mac), (ALL_NODES, ALL_NODES_MAC), OVERRIDE),
    }
}

/// A frame of ARP (RFC 826).
pub(crate) fn arp(kind: u16, sender: (Ipv4Addr, Mac), target: (Ipv4Addr, Mac), to: Mac) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET_BYTES + ARP_BYTES);
    frame.extend_from_slice(&to.0);
    frame.extend_from_slice(&sender.1.0);
    for field in [ARP, ETHERNET, IPV4, 0x0604, kind] {
        frame.extend_from_slice(&field.to_be_bytes());
    }
    for (ip, mac) in [sender, target] {
        frame.extend_from_slice(&mac.0);
        frame.extend_from_slice(&ip.octets());
    }
    frame
}

/// The answer to a frame that asks who has an IP address, if `find` knows: it is to be given to the one that asks.
/// None if the frame asks for nothing of the sort. An interface that asks whether anybody else has the address that it is about to take
/// is answered if another member has it.
pub fn answer(frame: &[u8], find: impl FnOnce(IpAddr) -> Option<Mac>) -> Option<Vec<u8>> {
    match u16_at(frame, 12)? {
        ARP => answer_arp(frame, find),
        IPV6 => answer_solicitation(frame, find),
        _ => None,
    }
}

/// Returns true if a frame asks whether anybody has the address that its sender is about to take (RFC 5227, 2.1.1; RFC 4862, 5.4.2): it says no
/// address of its own.
pub fn is_probe(frame: &[u8]) -> bool {
    let is_zero = |at: std::ops::Range<usize>| {
        frame.get(at).is_some_and(|address| address.iter().all(|byte| *byte == 0))
    };
    match u16_at(frame, 12) {
        Some(ARP) => is_zero(ETHERNET_BYTES + 14..ETHERNET_BYTES + 18),
        Some(IPV6) => is_zero(ETHERNET_BYTES + 8..ETHERNET_BYTES + 24),
        _ => false,
    }
}

/// RFC 826.
fn answer_arp(frame: &[u8], find: impl FnOnce(IpAddr) -> Option<Mac>) -> Option<Vec<u8>> {
    let packet = frame.get(ETHERNET_BYTES..ETHERNET_BYTES + ARP_BYTES)?;
    let is_question = u16_at(packet, 0)? == ETHERNET
        && u16_at(packet, 2)? == IPV4
        && (packet[4], packet[5]) == (6, 4)
        && u16_at(packet, 6)? == REQUEST;
    let asking: Mac = Mac(*packet[8..].first_chunk()?);
    let address = |at: usize| Some(Ipv4Addr::from(*packet[at..].first_chunk::<4>()?));
    let (asking_ip, wanted) = (address(14)?, address(24)?);
    if !is_question || wanted == asking_ip {
        return None;
    }
    let found = find(wanted.into()).filter(|found| *found != asking)?;
    Some(arp(REPLY, (wanted, found), (asking_ip, asking), asking))
}

/// RFC 4861, 4.3 and 4.4.
fn answer_solicitation(frame: &[u8], find: impl FnOnce(IpAddr) -> Option<Mac>) -> Option<Vec<u8>> {
    let asking = Mac(*frame.get(6..)?.first_chunk()?);
    let ip = frame.get(ETHERNET_BYTES..)?;
    let icmp = ip.get(IPV6_BYTES..)?;
    // A hop limit of 255: nobody has passed it on.
    let is_question = ip[6] == ICMPV6
        && ip[7] == 255
        && icmp.len() >= 24
        && (icmp[0], icmp[1]) == (SOLICITATION, 0);
    let source = Ipv6Addr::from(*ip[8..].first_chunk::<16>()?);
    if !is_question {
        return None;
    }
    let wanted = Ipv6Addr::from(*icmp[8..].first_chunk::<16>()?);
    let found = find(wanted.into()).filter(|found| *found != asking)?;
    if source.is_unspecified() {
        // It asks whether anybody has the address that it is about to take.
        return Some(advertisement((wanted, found), (ALL_NODES, ALL_NODES_MAC), OVERRIDE));
    }
    Some(advertisement((wanted, found), (source, asking), SOLICITED_OVERRIDE))
}

/// An advertisement of an IP address and the MAC address where it is.
fn advertisement((ip, mac): (Ipv6Addr, Mac), to: (Ipv6Addr, Mac), flags: u8) -> Vec<u8> {
    message([ADVERTISEMENT, flags], ip, (TARGET_MAC, mac), (ip, mac), to)
}

/// A frame with a message of neighbour discovery about a target, with one option.
pub(crate) fn message(
    [kind, flags]: [u8; 2],
    target: Ipv6Addr,
    (option, mac): (u8, Mac),
    from: (Ipv6Addr, Mac),
    to: (Ipv6Addr, Mac),
) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET_BYTES + IPV6_BYTES + MESSAGE_BYTES);
    frame.extend_from_slice(&to.1.0);
    frame.extend_from_slice(&from.1.0);
    frame.extend_from_slice(&IPV6.to_be_bytes());
    frame.extend_from_slice(&[0x60, 0, 0, 0]);
    frame.extend_from_slice(&(MESSAGE_BYTES as u16).to_be_bytes());
    frame.extend_from_slice(&[ICMPV6, 255]);
    frame.extend_from_slice(&from.0.octets());
    frame.extend_from_slice(&to.0.octets());
    frame.extend_from_slice(&[kind, 0, 0, 0, flags, 0, 0, 0]);
    frame.extend_from_slice(&target.octets());
    // One unit of eight bytes.
    frame.extend_from_slice(&[option, 1]);
    frame.extend_from_slice(&mac.0);
    let at = ETHERNET_BYTES + IPV6_BYTES;
    let pseudo = pseudo_header(&frame, ETHERNET_BYTES, false, ICMPV6, MESSAGE_BYTES as u32);
    let checksum = !folded(sum_of(&frame[at..]) + u64::from(pseudo));
    frame[at + 2..at + 4].copy_from_slice(&checksum.to_be_bytes());
    frame
}

#[cfg(all(test, not(loom)))]
mod tests {
    use os::words::{WORD_BYTES, Words};

    use super::super::table::{Member, TABLE_BYTES, Table};
    use super::*;

    const ONE: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn arp(wanted: [u8; 4], asking: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend_from_slice(&ONE.0);
        frame.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend_from_slice(&ONE.0);
        frame.extend_from_slice(&asking);
        frame.extend_from_slice(&[0; 6]);
        frame.extend_from_slice(&wanted);
        frame
    }

    #[test]
    fn arp_is_answered_from_the_table() {
        let find = |address: IpAddr| (address == IpAddr::from([10, 1, 0, 2])).then_some(OTHER);
        let reply = answer(&arp([10, 1, 0, 2], [10, 1, 0, 1]), find).unwrap();
        let mut expected = ONE.0.to_vec();
        expected.extend_from_slice(&OTHER.0);
        expected.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        expected.extend_from_slice(&OTHER.0);
        expected.extend_from_slice(&[10, 1, 0, 2]);
        expected.extend_from_slice(&ONE.0);
        expected.extend_from_slice(&[10, 1, 0, 1]);
        assert_eq!(reply, expected);
        assert_eq!(answer(&arp([10, 1, 0, 3], [10, 1, 0, 1]), find), None);
        assert_eq!(answer(&arp([10, 1, 0, 2], [10, 1, 0, 2]), find), None, "a probe for itself");
        let question = arp([10, 1, 0, 2], [10, 1, 0, 1]);
        for cut in 0..question.len() {
            assert_eq!(answer(&question[..cut], find), None);
        }
    }

    #[test]
    fn neighbours_are_advertised_from_the_table() {
        let (source, wanted): (Ipv6Addr, Ipv6Addr) =
            ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        let mut frame = vec![0x33, 0x33, 0xff, 0, 0, 2];
        frame.extend_from_slice(&ONE.0);
        frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]);
        frame.extend_from_slice(&source.octets());
        frame.extend_from_slice(&wanted.octets());
        frame.extend_from_slice(&[135, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend_from_slice(&wanted.octets());
        let find = |address: IpAddr| (address == IpAddr::V6(wanted)).then_some(OTHER);
        let reply = answer(&frame, find).unwrap();
        assert_eq!((&reply[..6], &reply[6..12]), (&ONE.0[..], &OTHER.0[..]));
        assert_eq!(reply.len(), ETHERNET_BYTES + 40 + 32);
        assert_eq!((reply[54], reply[58], &reply[80..]), (136, 0x60, &OTHER.0[..]));
        assert_eq!(reply[56..58], [0x18, 0x1a], "the checksum");
        for cut in 0..frame.len() {
            assert_eq!(answer(&frame[..cut], find), None);
        }
    }

    #[test]
    fn frames_go_to_the_owner_of_their_ip_address_but_for_those_over_a_gateway() {
        let (words, lent) = Words::pair(TABLE_BYTES / WORD_BYTES).unwrap();
        let (mut table, mut lent) = (Table::new(words), LentTable::new(lent).unwrap());
        let ip = |last: u8| IpAddr::from([10, 1, 0, last]);
        let mac = |last: u8| Mac([2, 0, 0, 0, 0, last]);
        let member = |name: &str, last: u8, address: u8| Member {
            name: name.parse().unwrap(),
            mac: mac(last),
            vlans: Vec::new(),
            addresses: vec![ip(address), format!("fd00::{address}").parse().unwrap()],
            captures: false,
            routes: false,
            routes_from: Vec::new(),
            life: last.into(),
        };
        for (number, member) in
            [member("ONE", 1, 1), member("TWO", 2, 2), member("GATE", 9, 9)].iter().enumerate()
        {
            table.set(number, Some(member));
        }
        lent.refresh(|_, _| {});
        let (gates, far) = ([ip(9), "fd00::9".parse().unwrap()], IpAddr::from([192, 168, 0, 1]));
        let hop = |gates: &[IpAddr], mac, ip| next_hop(&lent, gates, mac, ip);
        assert_eq!(hop(&gates, mac(1), ip(1)), None, "as it should be");
        assert_eq!(hop(&gates, mac(7), ip(1)), Some(mac(1)), "nobody has the MAC address any more");
        assert_eq!(hop(&gates, mac(2), ip(1)), Some(mac(1)), "another member has it now");
        assert_eq!(hop(&gates, mac(2), "fd00::1".parse().unwrap()), Some(mac(1)));
        assert_eq!(hop(&gates, mac(9), ip(1)), None, "over the gateway");
        assert_eq!(hop(&[], mac(9), ip(1)), Some(mac(1)));
        assert_eq!(hop(&gates, mac(9), far), None);
        assert_eq!(hop(&gates, mac(7), far), Some(mac(9)), "the gateway has come again");
        assert_eq!(hop(&gates, mac(7), "fd01::1".parse().unwrap()), Some(mac(9)));
        assert_eq!(hop(&[], mac(7), far), None);
        assert_eq!(hop(&gates, mac(2), far), None, "a way that this port does not know of");
        // One that answers for a distributed address: nothing is behind it while nobody has the address, and it is no gateway.
        let target =
            Member { routes_from: vec!["10.1.0.99/32".parse().unwrap()], ..member("WEB1", 3, 3) };
        table.set(3, Some(&target));
        lent.refresh(|_, _| {});
        let hop = |gates: &[IpAddr], mac, ip| next_hop(&lent, gates, mac, ip);
        assert!(lent.find_way(ip(99)).is_none());
        assert_eq!([mac(7), mac(3)].map(|mac| hop(&[], mac, ip(99))), [None, None]);
        assert_eq!(hop(&[], mac(3), ip(1)), Some(mac(1)), "no gateway");
    }

    #[test]
    fn ip_destinations_are_read_and_announcements_are_whole() {
        let announcement_4 = announcement([10, 1, 0, 2].into(), OTHER);
        let mut expected = vec![0xff; 6];
        expected.extend_from_slice(&OTHER.0);
        expected.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        expected.extend_from_slice(&OTHER.0);
        expected.extend_from_slice(&[10, 1, 0, 2, 0, 0, 0, 0, 0, 0, 10, 1, 0, 2]);
        assert_eq!(announcement_4, expected);
        assert_eq!(ip_destination(&announcement_4), None);
        let address: Ipv6Addr = "fd00::2".parse().unwrap();
        let announcement_6 = announcement(address.into(), OTHER);
        assert_eq!(announcement_6[..6], [0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!((announcement_6[54], announcement_6[58]), (136, 0x20));
        assert_eq!(ip_destination(&announcement_6), Some(IpAddr::V6(ALL_NODES)));
        assert_eq!(announcement_6[56..58], [0x5a, 0x98], "the checksum");
        let mut packet = vec![0; 12];
        packet.extend_from_slice(&[8, 0, 0x45]);
        packet.extend_from_slice(&[0; 15]);
        packet.extend_from_slice(&[10, 1, 0, 7]);
        assert_eq!(ip_destination(&packet), Some([10, 1, 0, 7].into()));
        for cut in 0..packet.len() {
            assert_eq!(ip_destination(&packet[..cut]), None);
        }
    }
}
