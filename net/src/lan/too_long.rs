//! The answer to a packet that is longer than the packets of the LAN: the message of ICMP that a router would send, so that the sender's
//! kernel makes the next ones shorter (RFC 1191, RFC 8201).

use super::frame::{ETHERNET_BYTES, Mac, destination, u16_at};
use super::offload::{folded, sum_of};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const ICMP_BYTES: usize = 8;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Destination unreachable, because the packet would have to be cut.
const FRAGMENTATION_NEEDED: [u8; 2] = [3, 4];
const PACKET_TOO_BIG: [u8; 2] = [2, 0];
const HOPS: u8 = 64;

/// Bytes of the packet that are in the message: as many as every link takes with the message's own headers (RFC 1812, 4.3.2.3;
/// RFC 4443, 2.4).
const QUOTED_IPV4_BYTES: usize = 576 - IPV4_BYTES - ICMP_BYTES;
const QUOTED_IPV6_BYTES: usize = 1280 - IPV6_BYTES - ICMP_BYTES;

/// The frame that tells the sender of a frame that packets have at most `mtu` bytes. It comes from the IP address that the packet was
/// for. None for a frame to a group, for a later fragment, and for one without a packet of IP that is long.
pub fn answer(frame: &[u8], mtu: u32) -> Option<Vec<u8>> {
    let (to, from) = (Mac(*frame.get(6..)?.first_chunk()?), destination(frame)?);
    let ip = frame.get(ETHERNET_BYTES..)?;
    if from.is_group() {
        return None;
    }
    let mut answer = [&to.0[..], &from.0, &frame[12..ETHERNET_BYTES]].concat();
    match u16_at(frame, 12)? {
        IPV4 => {
            let quoted = ip.get(..QUOTED_IPV4_BYTES)?;
            let is_later_fragment = u16_at(ip, 6)? & 0x1fff != 0;
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            let mut message = [&FRAGMENTATION_NEEDED[..], &[0; 4], &mtu.to_be_bytes()].concat();
            message.extend_from_slice(quoted);
            put_checksum(&mut message, 2, 0);
            let bytes = (IPV4_BYTES + message.len()) as u16;
            let mut header = vec![0x45, 0];
            header.extend_from_slice(&bytes.to_be_bytes());
            header.extend_from_slice(&[0, 0, 0, 0, HOPS, ICMP, 0, 0]);
            header.extend_from_slice(&ip[16..20]);
            header.extend_from_slice(&ip[12..16]);
            put_checksum(&mut header, 10, 0);
            answer.extend([header, message].concat());
            (!is_later_fragment).then_some(answer)
        }
        IPV6 => {
            let quoted = ip.get(..QUOTED_IPV6_BYTES)?;
            let mut message = [&PACKET_TOO_BIG[..], &[0; 2], &mtu.to_be_bytes()].concat();
            message.extend_from_slice(quoted);
            let bytes = message.len();
            let pseudo = sum_of(&ip[8..40]) + bytes as u64 + u64::from(ICMPV6);
            put_checksum(&mut message, 2, pseudo);
            answer.extend_from_slice(&[0x60, 0, 0, 0]);
            answer.extend_from_slice(&(bytes as u16).to_be_bytes());
            answer.extend_from_slice(&[ICMPV6, HOPS]);
            answer.extend_from_slice(&ip[24..40]);
            answer.extend_from_slice(&ip[8..24]);
            answer.extend(message);
            Some(answer)
        }
        _ => None,
    }
}

/// Puts the checksum of all bytes, and of what was summed besides, where it belongs. What is there is zero.
fn put_checksum(bytes: &mut [u8], at: usize, besides: u64) {
    let sum = !folded(sum_of(bytes) + besides);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TO: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const FROM: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn frame(to: Mac, kind: u16, ip: &[u8]) -> Vec<u8> {
        let mut frame = [&to.0[..], &FROM.0, &kind.to_be_bytes(), ip].concat();
        frame.resize(20_000, 7);
        frame
    }

    #[test]
    fn sender_of_ipv4_is_told_that_fragmentation_is_needed() {
        let ip =
            [&[0x45, 0, 0x4e, 0x12, 0, 1, 0x40, 0, 64, 17, 0, 0][..], &[10, 1, 0, 1, 10, 1, 0, 2]];
        let long = frame(TO, IPV4, &ip.concat());
        let told = answer(&long, 8192).unwrap();
        assert_eq!(told[..14], [&FROM.0[..], &TO.0, &[8, 0]].concat());
        let ip = &told[14..];
        assert_eq!((ip.len(), u16_at(ip, 2)), (576, Some(576)));
        assert_eq!(ip[12..20], [10, 1, 0, 2, 10, 1, 0, 1]);
        assert_eq!((&ip[20..22], u16_at(ip, 26)), (&[3, 4][..], Some(8192)));
        assert_eq!(ip[28..], long[14..14 + 548]);
        assert_eq!([folded(sum_of(&ip[..20])), folded(sum_of(&ip[20..]))], [0xffff; 2]);
        let mut later = long.clone();
        later[14 + 7] = 9;
        assert_eq!(answer(&later, 8192), None);
        assert_eq!(answer(&frame(Mac::BROADCAST, IPV4, &ip[..20]), 8192), None, "a group");
        assert_eq!(answer(&frame(TO, 0x88b5, &ip[..20]), 8192), None, "no packet of IP");
        for bytes in 0..100 {
            assert_eq!(answer(&long[..bytes], 8192), None);
        }
    }

    #[test]
    fn sender_of_ipv6_is_told_that_a_packet_is_too_big() {
        let mut ip = vec![0x60, 0, 0, 0, 0x4d, 0xfa, 17, 64];
        ip.extend((0..32).map(|at| if at < 16 { 1 } else { 2 }));
        let long = frame(TO, IPV6, &ip);
        let told = answer(&long, 8192).unwrap();
        let ip = &told[14..];
        assert_eq!((ip.len(), u16_at(ip, 4), ip[6]), (1280, Some(1240), 58));
        assert_eq!((&ip[8..24], &ip[24..40]), (&[2; 16][..], &[1; 16][..]));
        assert_eq!(ip[40..42], [2, 0]);
        assert_eq!(ip[44..48], 8192u32.to_be_bytes());
        assert_eq!(ip[48..], long[14..14 + 1232]);
        let pseudo = sum_of(&ip[8..40]) + 1240 + 58;
        assert_eq!(folded(sum_of(&ip[40..]) + pseudo), 0xffff);
    }
}
