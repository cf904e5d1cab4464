//! Questions and answers about who has an address: of ARP (RFC 826), and of neighbour discovery (RFC 4861 7.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::board::Counter;
use crate::lan::frame::{ETHERNET_BYTES, Mac, source, u16_at};
use crate::lan::neighbour::{
    ADVERTISEMENT, ARP_BYTES, ETHERNET, REPLY, REQUEST, SOLICITATION, arp, message,
};
use crate::lan::offload::{Checksum, folded, pseudo_header, sum_of};
use crate::tcpip::packet::{ARP, ICMPV6, IPV4, IPV6, IPV6_BYTES, is_host};

/// Bytes of a question or an answer of IPv6 without options.
const MESSAGE_BYTES: usize = 24;

/// Options that have the MAC address of the source, and of the target.
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;

/// The bit of an answer that says that it was asked for.
const SOLICITED: u8 = 0x40;

/// What a frame says about neighbours. All of it may be made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Whose address of IP is at which MAC address. None: it does not say.
    pub(crate) about: Option<(IpAddr, Mac)>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It asks for this address.
    Question(IpAddr),
    /// It answers a question, or says so: of this address, if it says of whom.
    Answer(Option<IpAddr>),
    /// Nobody has asked.
    Announcement,
}

/// A frame that asks who has an IP address: all, or whoever is at the MAC address. None: the two addresses of IP are not of one family.
pub(crate) fn question((own, mac): (IpAddr, Mac), ip: IpAddr, at: Option<Mac>) -> Option<Vec<u8>> {
    match (own, ip) {
        (IpAddr::V4(own), IpAddr::V4(ip)) => {
            Some(arp(REQUEST, (own, mac), (ip, Mac([0; 6])), at.unwrap_or(Mac::BROADCAST)))
        }
        (IpAddr::V6(own), IpAddr::V6(ip)) => {
            let to = at.map_or(solicited_node(ip), |at| (ip, at));
            Some(message([SOLICITATION, 0], ip, (SOURCE_MAC, mac), (own, mac), to))
        }
        _ => None,
    }
}

/// The group of those whose addresses end like this one, and its MAC address (RFC 4291 2.7.1, RFC 2464 7).
pub(crate) fn solicited_node(ip: Ipv6Addr) -> (Ipv6Addr, Mac) {
    let [.., a, b, c] = ip.octets();
    let [high, low] = [0xff00 | u16::from(a), u16::from_be_bytes([b, c])];
    (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low), Mac([0x33, 0x33, 0xff, a, b, c]))
}

/// Reads what a frame says. None if it is about nothing of the sort.
///
/// # Errors
/// What it is counted under: it must not be looked at.
pub(crate) fn parse(frame: &[u8], checksum: Checksum) -> Result<Option<Message>, Counter> {
    let ip = frame.get(ETHERNET_BYTES..).ok_or(Counter::Malformed)?;
    let message = match u16_at(frame, 12) {
        Some(ARP) => parse_arp(ip),
        Some(IPV6) if is_of_neighbours(ip) => parse_v6(frame, ip, checksum),
        _ => return Ok(None),
    };
    message.map(Some).ok_or(Counter::NeighbourIgnored)
}

/// Whether a packet of IPv6 is a question or an answer. One behind other headers, or in fragments, is none (RFC 6980 5).
fn is_of_neighbours(ip: &[u8]) -> bool {
    let kind = ip.get(IPV6_BYTES).copied();
    ip.get(6) == Some(&ICMPV6) && matches!(kind, Some(SOLICITATION | ADVERTISEMENT))
}

/// Whether a station can have this address.
fn is_station(mac: &Mac) -> bool {
    !mac.is_group() && mac.0 != [0; 6]
}

fn parse_arp(ip: &[u8]) -> Option<Message> {
    let arp = ip.first_chunk::<ARP_BYTES>()?;
    let is_known = u16_at(arp, 0)? == ETHERNET && u16_at(arp, 2)? == IPV4 && arp[4..6] == [6, 4];
    let mac = Some(Mac(*arp[8..].first_chunk()?)).filter(is_station).filter(|_| is_known)?;
    let address = |at: usize| Some(Ipv4Addr::from(*arp[at..].first_chunk::<4>()?));
    let (sender, target) = (address(14)?, address(24)?);
    // One that is about to take an address asks without saying who it is (RFC 5227 2.1.1).
    let about = (!sender.is_unspecified()).then_some((sender.into(), mac));
    if about.is_some_and(|(sender, _)| !is_host(sender)) {
        return None;
    }
    let kind = match u16_at(arp, 6)? {
        // One that names itself only says where it is (RFC 5227 3).
        REQUEST if sender == target => Kind::Announcement,
        REQUEST => Kind::Question(target.into()),
        REPLY if sender == target => Kind::Announcement,
        // It may go to all (RFC 3927 2.5).
        REPLY => Kind::Answer(Some(target.into())),
        _ => return None,
    };
    Some(Message { about, kind })
}

fn parse_v6(frame: &[u8], ip: &[u8], checksum: Checksum) -> Option<Message> {
    let bytes = usize::from(u16_at(ip, 4)?);
    let message = ip.get(IPV6_BYTES..IPV6_BYTES + bytes)?;
    let address = |from: &[u8]| Some(Ipv6Addr::from(*from.first_chunk::<16>()?));
    let (from, to) = (address(&ip[8..])?, address(&ip[24..])?);
    let target = message.get(8..MESSAGE_BYTES).and_then(address)?;
    // Nobody has passed it on: its sender is at this link.
    if ip[0] >> 4 != 6 || ip[7] != 255 || message[1] != 0 || !is_host(target.into()) {
        return None;
    }
    let pseudo = pseudo_header(ip, 0, false, ICMPV6, bytes as u32);
    if checksum == Checksum::Unknown && folded(sum_of(message) + u64::from(pseudo)) != 0xffff {
        return None;
    }
    // The answer goes there.
    source(frame).filter(is_station)?;
    let [source_mac, target_mac] = options(&message[MESSAGE_BYTES..])?;
    if message[0] == SOLICITATION {
        let kind = Kind::Question(target.into());
        if !from.is_unspecified() {
            let about = source_mac.map(|mac| (IpAddr::from(from), mac));
            return is_host(from.into()).then_some(Message { about, kind });
        }
        // One that is about to take an address.
        let is_probe = to == solicited_node(target).0 && source_mac.is_none();
        return is_probe.then_some(Message { about: None, kind });
    }
    let is_solicited = message[4] & SOLICITED != 0;
    if !is_host(from.into()) || is_solicited && to.is_multicast() {
        return None;
    }
    // Whoever was asked alone need not say where it is.
    let mac = target_mac.or_else(|| source(frame).filter(is_station))?;
    let kind = if is_solicited { Kind::Answer(None) } else { Kind::Announcement };
    Some(Message { about: Some((target.into(), mac)), kind })
}

/// The MAC addresses in options: of the source, and of the target. None if one is no option, or no address of a station.
fn options(mut options: &[u8]) -> Option<[Option<Mac>; 2]> {
    let mut found = [None; 2];
    while let [kind, units, ..] = *options {
        let (option, rest) = options.split_at_checked(8 * usize::from(units))?;
        // One without a length has no end.
        let option = option.get(2..)?;
        if let at @ (SOURCE_MAC | TARGET_MAC) = kind {
            let mac = Some(Mac(*option.first_chunk()?)).filter(is_station)?;
            found[usize::from(at - SOURCE_MAC)] = Some(mac);
        }
        options = rest;
    }
    options.is_empty().then_some(found)
}
