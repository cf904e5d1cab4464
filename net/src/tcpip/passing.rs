//! Packets that are for others: what one who passes them on reads of them, and changes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::control;
use super::packet::{
    self, Chain, Fragment, ICMP, ICMPV6, IPV4, IPV4_BYTES, IPV6, IPV6_BYTES, LENGTH_MAX, TCP,
    TCP_CHECKSUM_AT, UDP, UDP_CHECKSUM_AT,
};
use crate::board::Counter;
use crate::lan::frame::{ETHERNET_BYTES, u16_at};
use crate::lan::offload::{Checksum, Offload, folded, sum_of};

/// Where IPv4 has the number of hops that are left, and the checksum of its header; where IPv6 has that number.
const TIME_TO_LIVE_AT: usize = 8;
const CHECKSUM_AT: usize = 10;
const HOP_LIMIT_AT: usize = 7;

/// A packet that is what it says, as far as one who passes it on has to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// Hops that it may still take, this one included.
    pub(super) hops: u8,
    /// Its bytes, from the header of IP on.
    pub(super) bytes: usize,
    /// If it may be cut on its way, which part it is of which packet: perhaps all of it.
    pub(super) cut_from: Option<Fragment>,
    /// Where its transport begins in the frame, and which it is, if it is not a part of a packet.
    pub(super) transport: Option<(usize, u8)>,
    /// Whether its sender may be told what is wrong with it: not if it is an error, or a later part of a packet (RFC 1122
    /// 3.2.2, RFC 4443 2.4 e).
    pub(super) may_complain: bool,
}

/// Where a packet goes, if there is one in the frame.
pub(super) fn destination(frame: &[u8]) -> Option<IpAddr> {
    let bytes = frame.get(ETHERNET_BYTES..)?;
    match u16_at(frame, 12)? {
        IPV4 => Some(Ipv4Addr::from(*bytes.get(16..)?.first_chunk::<4>()?).into()),
        IPV6 => Some(Ipv6Addr::from(*bytes.get(24..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

impl Passing {
    /// The packet in a frame (RFC 1812 5.2.2, RFC 8200 3).
    pub(super) fn parse(frame: &[u8]) -> Result<Passing, Counter> {
        let bytes = frame.get(ETHERNET_BYTES..).ok_or(Counter::Malformed)?;
        match u16_at(frame, 12) {
            Some(IPV4) => Passing::parse_v4(bytes),
            Some(IPV6) => Passing::parse_v6(bytes),
            _ => Err(Counter::OtherProtocol),
        }
    }

    fn parse_v4(bytes: &[u8]) -> Result<Passing, Counter> {
        let head = bytes.first_chunk::<IPV4_BYTES>().ok_or(Counter::Malformed)?;
        // Options ask for work on each hop that nobody needs, and routes of the sender's choice lead past filters (RFC 7126).
        if head[0] >> 4 == 4 && head[0] & 15 > 5 {
            return Err(Counter::Extension);
        }
        let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if head[0] != 0x45 || total < IPV4_BYTES || total > bytes.len() {
            return Err(Counter::Malformed);
        }
        if folded(sum_of(head)) != 0xffff {
            return Err(Counter::BadChecksum);
        }
        let place = u16::from_be_bytes([head[6], head[7]]);
        let fragment = Fragment {
            identification: u16::from_be_bytes([head[4], head[5]]).into(),
            offset: usize::from(place & 0x1fff) * 8,
            has_more: place & 0x2000 != 0,
        };
        let kind = bytes[..total].get(IPV4_BYTES).copied();
        let is_error = head[9] == ICMP && kind.is_none_or(control::is_error_v4);
        // A part that is not the last has data of a multiple of 8 bytes, and none reaches beyond the longest packet.
        let data_bytes = total - IPV4_BYTES;
        if fragment.has_more && !data_bytes.is_multiple_of(8)
            || fragment.offset + total > LENGTH_MAX
        {
            return Err(Counter::Malformed);
        }
        let is_whole = !fragment.has_more && fragment.offset == 0;
        let [.., a, b, c, d, e, f, g, h] = *head;
        Ok(Passing {
            source: IpAddr::from([a, b, c, d]),
            destination: IpAddr::from([e, f, g, h]),
            hops: head[TIME_TO_LIVE_AT],
            bytes: total,
            cut_from: (place & 0x4000 == 0).then_some(fragment),
            transport: is_whole.then_some((ETHERNET_BYTES + IPV4_BYTES, head[9])),
            may_complain: fragment.offset == 0 && !is_error,
        })
    }

    fn parse_v6(bytes: &[u8]) -> Result<Passing, Counter> {
        let head = bytes.first_chunk::<IPV6_BYTES>().ok_or(Counter::Malformed)?;
        let total = IPV6_BYTES + usize::from(u16::from_be_bytes([head[4], head[5]]));
        let rest = bytes.get(IPV6_BYTES..total).ok_or(Counter::Malformed)?;
        if head[0] >> 4 != 6 {
            return Err(Counter::Malformed);
        }
        let address =
            |at: usize| head[at..].first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets));
        let (source, destination) = address(8).zip(address(24)).ok_or(Counter::Malformed)?;
        // What follows is the business of those at the ends (RFC 8200 4).
        let chain = packet::chain(head[6], rest);
        let may_complain = match chain {
            Ok(Chain { fragment: Some(fragment), .. }) if fragment.offset != 0 => false,
            Ok(Chain { protocol: ICMPV6, bytes, .. }) => {
                rest.get(bytes).is_some_and(|kind| !control::is_error_v6(*kind))
            }
            Ok(_) => true,
            Err(_) => false,
        };
        Ok(Passing {
            source: source.into(),
            destination: destination.into(),
            hops: head[HOP_LIMIT_AT],
            bytes: total,
            cut_from: None,
            transport: chain
                .ok()
                .filter(|chain| chain.fragment.is_none())
                .map(|chain| (ETHERNET_BYTES + IPV6_BYTES + chain.bytes, chain.protocol)),
            may_complain,
        })
    }
}

impl Passing {
    /// Whether what a frame says beside its bytes is about this packet, all of it and nothing else: whoever completes a
    /// checksum or cuts segments believes it.
    pub(super) fn fits(&self, offload: &Offload, frame_bytes: usize) -> bool {
        if offload.segmentation.is_some() && frame_bytes != ETHERNET_BYTES + self.bytes {
            return false;
        }
        let Checksum::Partial { start, at } = offload.checksum else { return true };
        let place = match self.transport {
            Some((begin, TCP)) => Some((begin, TCP_CHECKSUM_AT)),
            Some((begin, UDP)) => Some((begin, UDP_CHECKSUM_AT)),
            _ => None,
        };
        place == Some((start.into(), at.into()))
            && usize::from(start) + usize::from(at) + 2 <= ETHERNET_BYTES + self.bytes
    }
}

/// If the packet in a frame is an error, where the packet goes that it is about.
pub(super) fn quoted_destination(frame: &[u8]) -> Option<IpAddr> {
    let Passing { transport, bytes, .. } = Passing::parse(frame).ok()?;
    let (begin, protocol) = transport?;
    let message = frame.get(begin..ETHERNET_BYTES + bytes)?;
    let quote = message.get(control::HEAD_BYTES..)?;
    match (protocol, quote.first()? >> 4) {
        (ICMP, 4) if control::is_error_v4(message[0]) => {
            Some(Ipv4Addr::from(*quote.get(16..)?.first_chunk::<4>()?).into())
        }
        (ICMPV6, 6) if control::is_error_v6(message[0]) => {
            Some(Ipv6Addr::from(*quote.get(24..)?.first_chunk::<16>()?).into())
        }
        _ => None,
    }
}

/// Takes one hop from a packet that has some, in a frame (RFC 1624 3: the sum of the header grows by what the field loses).
pub(super) fn take_hop(frame: &mut [u8]) {
    let packet = &mut frame[ETHERNET_BYTES..];
    if packet[0] >> 4 == 6 {
        packet[HOP_LIMIT_AT] -= 1;
        return;
    }
    packet[TIME_TO_LIVE_AT] -= 1;
    let sum = u16::from_be_bytes([packet[CHECKSUM_AT], packet[CHECKSUM_AT + 1]]);
    let (sum, carry) = sum.overflowing_add(0x0100);
    let sum = sum + u16::from(carry);
    packet[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tcpip::packet::Packet;

    fn frame(family: usize, data: &[u8]) -> Vec<u8> {
        let (source, destination) = [("10.1.0.2", "10.2.0.2"), ("fd00:1::2", "fd00:2::2")][family];
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        let mut frame = packet::begin(source, destination, 253, data.len());
        frame.extend(data);
        packet::set_kind(&mut frame);
        frame
    }

    #[test]
    fn options_are_not_passed_on() {
        let mut with = frame(0, &[0; 8]);
        with[14] = 0x46;
        assert_eq!(Passing::parse(&with).unwrap_err(), Counter::Extension);
        with[14] = 0x44;
        assert_eq!(Passing::parse(&with).unwrap_err(), Counter::Malformed);
    }

    #[test]
    fn nobody_complains_about_errors_and_later_parts() {
        let complains = |protocol: u8, at: usize, data: &[u8]| {
            let mut frame = frame(usize::from(at == 20), data);
            frame[14 + if at == 20 { 6 } else { 9 }] = protocol;
            if at == 9 {
                frame[24..26].fill(0);
                let sum = !folded(sum_of(&frame[14..34]));
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            Passing::parse(&frame).unwrap().may_complain
        };
        assert!(complains(6, 9, &[0; 8]) && complains(6, 20, &[0; 8]));
        assert!(complains(ICMP, 9, &[8; 8]) && complains(ICMPV6, 20, &[128; 8]), "echo requests");
        assert!(!complains(ICMP, 9, &[3; 8]) && !complains(ICMPV6, 20, &[1; 8]), "errors");
        assert!(!complains(ICMP, 9, &[]) && !complains(ICMPV6, 20, &[]), "cut short");
        assert!(!complains(44, 20, &[17, 0, 0, 8, 0, 0, 0, 1]), "a later part");
        assert!(complains(44, 20, &[17, 0, 0, 1, 0, 0, 0, 1]), "the first part");
    }

    proptest! {
        #[test]
        fn a_hop_less_leaves_a_packet_that_is_right(
            family in 0..2usize,
            hops in 1..=255u8,
            identification in any::<u16>(),
            data in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut frame = frame(family, &data);
            match family {
                0 => {
                    frame[18..20].copy_from_slice(&identification.to_be_bytes());
                    frame[22] = hops;
                    frame[24..26].fill(0);
                    let sum = !folded(sum_of(&frame[14..34]));
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                }
                _ => frame[21] = hops,
            }
            let before = Passing::parse(&frame).unwrap();
            take_hop(&mut frame);
            let after = Passing::parse(&frame).unwrap();
            prop_assert_eq!((before.hops, after.hops), (hops, hops - 1));
            let packet = Packet::parse(&frame).unwrap();
            prop_assert_eq!((packet.source, packet.destination), (before.source, before.destination));
            prop_assert_eq!(packet.transport(), &data[..]);
            prop_assert_eq!(destination(&frame), Some(before.destination));
        }

        #[test]
        fn no_packet_is_too_much(kind in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut frame = vec![0; 12];
            frame.extend(if kind { IPV4 } else { IPV6 }.to_be_bytes());
            frame.extend(bytes);
            let _ = Passing::parse(&frame);
            let _ = destination(&frame);
        }
    }
}
