//! Who has this IP address? The address table knows it, so that nobody needs to be asked: questions of ARP and of
//! IPv6's neighbour discovery are answered where they come up, as an adapter with an address table does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::frame::{ETHERNET_BYTES, Mac, u16_at};

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ETHERNET: u16 = 1;
const ARP_BYTES: usize = 28;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const IPV6_BYTES: usize = 40;
/// Of an advertisement: solicited, and to be believed.
const SOLICITED_OVERRIDE: u8 = 0x60;
/// An advertisement with the option that has the address.
const ADVERTISEMENT_BYTES: usize = 32;

/// The answer to a frame that asks who has an IP address, if `find` knows: it is to be given to the one that asks.
/// None if the frame asks for nothing of the sort, or asks whether anybody else has its own address.
pub fn answer(frame: &[u8], find: impl FnOnce(IpAddr) -> Option<Mac>) -> Option<Vec<u8>> {
    match u16_at(frame, 12)? {
        ARP => answer_arp(frame, find),
        IPV6 => answer_solicitation(frame, find),
        _ => None,
    }
}

/// RFC 826.
fn answer_arp(frame: &[u8], find: impl FnOnce(IpAddr) -> Option<Mac>) -> Option<Vec<u8>> {
    let arp = frame.get(ETHERNET_BYTES..ETHERNET_BYTES + ARP_BYTES)?;
    let is_question = u16_at(arp, 0)? == ETHERNET
        && u16_at(arp, 2)? == IPV4
        && (arp[4], arp[5]) == (6, 4)
        && u16_at(arp, 6)? == REQUEST;
    let asking: Mac = Mac(*arp[8..].first_chunk()?);
    let asking_ip: [u8; 4] = *arp[14..].first_chunk()?;
    let wanted: [u8; 4] = *arp[24..].first_chunk()?;
    if !is_question || wanted == asking_ip {
        return None;
    }
    let found = find(Ipv4Addr::from(wanted).into()).filter(|found| *found != asking)?;
    let mut reply = Vec::with_capacity(ETHERNET_BYTES + ARP_BYTES);
    reply.extend_from_slice(&asking.0);
    reply.extend_from_slice(&found.0);
    reply.extend_from_slice(&ARP.to_be_bytes());
    reply.extend_from_slice(&arp[..6]);
    reply.extend_from_slice(&REPLY.to_be_bytes());
    reply.extend_from_slice(&found.0);
    reply.extend_from_slice(&wanted);
    reply.extend_from_slice(&asking.0);
    reply.extend_from_slice(&asking_ip);
    Some(reply)
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
    if !is_question || source.is_unspecified() {
        // Without a source it asks whether anybody has the address that it is about to take.
        return None;
    }
    let wanted = Ipv6Addr::from(*icmp[8..].first_chunk::<16>()?);
    let found = find(wanted.into()).filter(|found| *found != asking)?;
    let mut advertisement = [0; ADVERTISEMENT_BYTES];
    advertisement[0] = ADVERTISEMENT;
    advertisement[4] = SOLICITED_OVERRIDE;
    advertisement[8..24].copy_from_slice(&wanted.octets());
    // Option 2, one unit of eight bytes: the address of the target's link.
    advertisement[24] = 2;
    advertisement[25] = 1;
    advertisement[26..].copy_from_slice(&found.0);
    let checksum = checksum(wanted, source, &advertisement);
    advertisement[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut reply = Vec::with_capacity(ETHERNET_BYTES + IPV6_BYTES + ADVERTISEMENT_BYTES);
    reply.extend_from_slice(&asking.0);
    reply.extend_from_slice(&found.0);
    reply.extend_from_slice(&IPV6.to_be_bytes());
    reply.extend_from_slice(&[0x60, 0, 0, 0]);
    reply.extend_from_slice(&(ADVERTISEMENT_BYTES as u16).to_be_bytes());
    reply.extend_from_slice(&[ICMPV6, 255]);
    reply.extend_from_slice(&wanted.octets());
    reply.extend_from_slice(&source.octets());
    reply.extend_from_slice(&advertisement);
    Some(reply)
}

/// The checksum of a message of ICMPv6, whose own is zero still.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let addresses = source.octets().into_iter().chain(destination.octets());
    let pseudo = [0, 0, 0, message.len() as u8, 0, 0, 0, ICMPV6];
    let bytes: Vec<u8> = addresses.chain(pseudo).chain(message.iter().copied()).collect();
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(all(test, not(loom)))]
mod tests {
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
        // The sum over what is checked, checksum included, is all ones.
        let mut zeroed = reply[54..].to_vec();
        let found = u16::from_be_bytes([zeroed[2], zeroed[3]]);
        zeroed[2..4].fill(0);
        assert_eq!(checksum(wanted, source, &zeroed), found);
        for cut in 0..frame.len() {
            assert_eq!(answer(&frame[..cut], find), None);
        }
    }
}
