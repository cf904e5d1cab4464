//! What a bridge looks at in a packet: whether it passes, and where it goes.

use std::net::IpAddr;

use net::lan::frame::{ETHERNET_BYTES, Mac, destination, source};
use net::lan::link::FrameInPlace;
use net::lan::offload::{FRAME_BYTES_MAX, Offload};
use siga::osa::Refused;

use super::dropped::Dropped;
use super::hosts::Hosts;

/// Returns the member that has sent a frame from the LAN, and where the packet goes; or why it does not pass.
/// `refused` are the addresses that the adapter refuses.
pub(super) fn admit_out(
    frame: &FrameInPlace<'_>,
    hosts: &Hosts,
    refused: &[(IpAddr, Refused)],
) -> Result<(Mac, IpAddr), Dropped> {
    let (from, to) = ends_of(frame)?;
    if hosts.find(to).is_some() {
        return Err(Dropped::OnLan);
    }
    if !hosts.is_near(to) {
        return Err(Dropped::Elsewhere);
    }
    let sender = source(frame.start).ok_or(Dropped::NotIp)?;
    let Some(host) = hosts.find(from).filter(|host| host.mac == sender) else {
        return Err(Dropped::Source);
    };
    // The adapter takes nothing from there, and nothing would come back.
    match host.is_registered && !refused.iter().any(|(address, _)| *address == from) {
        true => Ok((sender, to)),
        false => Err(Dropped::Unregistered),
    }
}

/// Returns the source of a packet from the port, and the member that it is for; or why it does not pass.
pub(super) fn admit_in(frame: &FrameInPlace<'_>, hosts: &Hosts) -> Result<(IpAddr, Mac), Dropped> {
    let (from, to) = ends_of(frame)?;
    let member = hosts.find(to).ok_or(Dropped::NoMember)?;
    match hosts.find(from) {
        Some(_) => Err(Dropped::Source),
        None if !hosts.is_near(from) => Err(Dropped::Elsewhere),
        None => Ok((from, member.mac)),
    }
}

/// The addresses of a packet for one host.
pub(super) fn ends_of(frame: &FrameInPlace<'_>) -> Result<(IpAddr, IpAddr), Dropped> {
    if frame.offload.vlan.is_some() {
        return Err(Dropped::Vlan);
    }
    if destination(frame.start).is_none_or(Mac::is_group) {
        return Err(Dropped::Group);
    }
    let (from, to) = ends(frame.start).ok_or(Dropped::NotIp)?;
    if to.is_multicast() { Err(Dropped::Group) } else { Ok((from, to)) }
}

/// The addresses of a packet: its source, and where it goes.
pub(super) fn ends(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let ip = frame.get(ETHERNET_BYTES..)?;
    let v4 = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<4>()?));
    let v6 = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<16>()?));
    match (u16::from_be_bytes([frame[12], frame[13]]), ip.first()? >> 4) {
        (IPV4, 4) => Some((v4(12)?, v4(16)?)),
        (IPV6, 6) => Some((v6(8)?, v6(24)?)),
        _ => None,
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Returns true if a packet, or each segment that it stands for, has more than `mtu` bytes.
pub(super) fn is_too_long(offload: Offload, bytes: usize, mtu: usize) -> bool {
    let longest = offload.segmentation.map_or(bytes, |segmentation| {
        usize::from(segmentation.header_bytes) + usize::from(segmentation.segment_bytes)
    });
    longest > ETHERNET_BYTES + mtu
}

/// Copies a frame into one piece.
pub(super) fn copy(frame: &FrameInPlace<'_>, room: &mut Vec<u8>) {
    room.resize(frame.bytes().min(FRAME_BYTES_MAX), 0);
    // As long as the frame is, or less.
    frame.read(0, room);
}

#[cfg(test)]
mod tests {
    use super::super::hosts::HOSTS_MAX;
    use super::super::hosts::tests::hosts;
    use super::*;

    type V4 = [u8; 4];

    /// A packet from one host to another. The member's MAC address ends as its address of IP.
    fn packet(from: V4, to: V4) -> Vec<u8> {
        let ip = [&[0x45; 12][..], &from, &to].concat();
        let mac = [2, 0, 0, 0, 0, from[3]];
        [&[2; 6][..], &mac, &IPV4.to_be_bytes(), &ip].concat()
    }

    fn in_place(offload: Offload, start: &[u8]) -> FrameInPlace<'_> {
        FrameInPlace { offload, start, rest: None }
    }

    const FAR: V4 = [10, 1, 9, 9];
    const MEMBER: V4 = [10, 1, 0, 5];
    const OTHER: V4 = [10, 1, 0, 6];
    /// Of a member for whose address there is no room at the adapter.
    const LEFT_OUT: V4 = [10, 1, 0, HOSTS_MAX as u8 + 1];
    const ELSEWHERE: V4 = [10, 2, 0, 5];

    #[test]
    fn packets_go_to_the_port_from_members_for_whom_the_adapter_answers() {
        let hosts = hosts(HOSTS_MAX as u8 + 1);
        let out = |from, to, refused: &[_]| {
            admit_out(&in_place(Offload::NONE, &packet(from, to)), &hosts, refused)
        };
        let sender = Mac([2, 0, 0, 0, 0, MEMBER[3]]);
        assert_eq!(out(MEMBER, FAR, &[]), Ok((sender, FAR.into())));
        let refused = [(OTHER.into(), Refused::Taken)];
        assert_eq!(out(MEMBER, FAR, &refused), Ok((sender, FAR.into())));
        for (from, to, why) in [
            (OTHER, FAR, Dropped::Unregistered),
            (LEFT_OUT, FAR, Dropped::Unregistered),
            (MEMBER, OTHER, Dropped::OnLan),
            (MEMBER, ELSEWHERE, Dropped::Elsewhere),
            (MEMBER, [224, 0, 0, 9], Dropped::Group),
            // Of nobody, and of a MAC address that is another member's.
            (FAR, [10, 1, 9, 8], Dropped::Source),
            ([10, 1, 1, MEMBER[3]], FAR, Dropped::Source),
        ] {
            assert_eq!(out(from, to, &refused), Err(why), "from {from:?} to {to:?}");
        }
        let mut foreign = packet(MEMBER, FAR);
        foreign[11] = OTHER[3];
        let foreign = admit_out(&in_place(Offload::NONE, &foreign), &hosts, &[]);
        assert_eq!(foreign, Err(Dropped::Source));
    }

    #[test]
    fn packets_come_from_the_port_from_hosts_there_to_members() {
        let hosts = hosts(9);
        let from_port = |from, to| admit_in(&in_place(Offload::NONE, &packet(from, to)), &hosts);
        assert_eq!(from_port(FAR, MEMBER), Ok((FAR.into(), Mac([2, 0, 0, 0, 0, 5]))));
        for (from, to, why) in [
            (FAR, [10, 1, 0, 77], Dropped::NoMember),
            (OTHER, MEMBER, Dropped::Source),
            (ELSEWHERE, MEMBER, Dropped::Elsewhere),
            (FAR, [224, 0, 0, 9], Dropped::Group),
        ] {
            assert_eq!(from_port(from, to), Err(why), "from {from:?} to {to:?}");
        }
    }

    #[test]
    fn packets_of_a_vlan_and_to_groups_are_for_no_host() {
        let hosts = hosts(9);
        let tagged = Offload { vlan: Some(7), ..Offload::NONE };
        let mut packet = packet(MEMBER, FAR);
        assert_eq!(admit_out(&in_place(tagged, &packet), &hosts, &[]), Err(Dropped::Vlan));
        assert_eq!(admit_in(&in_place(tagged, &packet), &hosts), Err(Dropped::Vlan));
        packet[0] |= 1;
        let frame = in_place(Offload::NONE, &packet);
        assert_eq!(admit_out(&frame, &hosts, &[]), Err(Dropped::Group));
    }

    fn frame(kind: u16, packet: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &kind.to_be_bytes(), packet].concat()
    }

    #[test]
    fn addresses_are_those_of_the_packet() {
        let ip = [&[0x45; 12][..], &[10, 1, 0, 5], &[10, 1, 0, 9]].concat();
        let ends_of = ends(&frame(IPV4, &ip)).unwrap();
        assert_eq!(ends_of, ([10, 1, 0, 5].into(), [10, 1, 0, 9].into()));
        assert_eq!(ends(&frame(IPV6, &ip)), None, "a packet of the other version");
        assert_eq!(ends(&frame(IPV4, &ip[..19])), None);
        assert_eq!(ends(&frame(0x0806, &ip)), None);
        let ip = [&[0x60; 8][..], &[1; 16], &[2; 16]].concat();
        let (from, to) = ends(&frame(IPV6, &ip)).unwrap();
        assert_eq!((from, to), ([1; 16].into(), [2; 16].into()));
    }

    #[test]
    fn packet_of_segments_is_as_long_as_each() {
        use net::lan::offload::{Kind, Segmentation};
        let of = |segment_bytes| Offload {
            segmentation: Some(Segmentation {
                kind: Kind::Tcp4,
                congestion: false,
                header_bytes: 66,
                segment_bytes,
            }),
            ..Offload::NONE
        };
        assert!(!is_too_long(of(1448), 60_000, 1500) && is_too_long(of(1449), 60_000, 1500));
        assert!(!is_too_long(Offload::NONE, 1514, 1500) && is_too_long(Offload::NONE, 1515, 1500));
    }
}
