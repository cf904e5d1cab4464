use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A frame of several segments of some kind, and what goes with it.
#[derive(Clone, Debug)]
struct Built {
    frame: Vec<u8>,
    offload: Offload,
    data: usize,
}

/// Headers of a kind, with `options` words of options of TCP, before some data.
fn build(kind: Kind, is_v4: bool, options: usize, segment_bytes: u16, data: &[u8]) -> Built {
    let mut frame = vec![0x02; 12];
    let protocol = if kind == Kind::Udp { UDP } else { TCP };
    frame.extend(if is_v4 { IPV4 } else { IPV6 }.to_be_bytes());
    if is_v4 {
        frame.extend([0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend([10, 1, 0, 1, 10, 1, 0, 2]);
    } else {
        frame.extend([0x60, 0, 0, 0, 0, 0, protocol, 64]);
        frame.extend((0..32).map(|byte| byte * 7));
    }
    let start = frame.len() as u16;
    let at = if kind == Kind::Udp {
        frame.extend([0x30, 0x39, 0, 53, 0, 0, 0, 0]);
        6
    } else {
        frame.extend([0x30, 0x39, 0, 80, 0xff, 0xff, 0xff, 0x00, 1, 2, 3, 4]);
        frame.extend([((5 + options) << 4) as u8, 0x80 | 0x10 | TCP_LAST, 1, 0, 0, 0, 0, 0]);
        frame.extend(vec![1; 4 * options]);
        16
    };
    let header_bytes = frame.len() as u16;
    frame.extend_from_slice(data);
    let segmentation = Segmentation { kind, congestion: false, header_bytes, segment_bytes };
    let checksum = Checksum::Partial { start, at };
    let offload = Offload { checksum, segmentation: Some(segmentation), vlan: None };
    Built { frame, offload, data: usize::from(header_bytes) }
}

fn built() -> impl Strategy<Value = Built> {
    let kinds = prop_oneof![
        Just((Kind::Tcp4, true)),
        Just((Kind::Tcp6, false)),
        Just((Kind::Udp, true)),
        Just((Kind::Udp, false)),
    ];
    let data = vec(any::<u8>(), 1..3000);
    (kinds, 0..=10usize, 16..2000u16, data)
        .prop_map(|((kind, is_v4), options, bytes, data)| build(kind, is_v4, options, bytes, &data))
}

/// The checksum of a whole segment by its definition, pseudo-header included: all ones if it is right.
fn checked(segment: &[u8]) -> u16 {
    let is_v4 = u16_at(segment, 12) == Some(IPV4);
    let (transport, protocol, addresses) = if is_v4 {
        (34, segment[23], &segment[26..34])
    } else {
        (54, segment[20], &segment[22..54])
    };
    let mut words = addresses.to_vec();
    words.extend([0, protocol]);
    words.extend(((segment.len() - transport) as u32).to_be_bytes());
    words.extend_from_slice(&segment[transport..]);
    if words.len() % 2 == 1 {
        words.push(0);
    }
    words.chunks(2).fold(0u16, |sum, word| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([word[0], word[1]]));
        sum + u16::from(carry)
    })
}

proptest! {
    #[test]
    fn head_is_read_as_it_was_written(built in built(), vlan in any::<Option<u16>>()) {
        let offload = Offload { vlan, ..built.offload };
        prop_assert_eq!(Offload::parse(&offload.head(), &built.frame), Ok(offload));
        let plain = Offload { segmentation: None, ..offload };
        prop_assert_eq!(Offload::parse(&plain.head(), &built.frame), Ok(plain));
    }

    #[test]
    fn segments_have_all_of_the_data_and_are_right_by_themselves(built in built()) {
        let Built { frame, offload, data } = built;
        let mut whole = Vec::new();
        let mut count = 0;
        let expected = offload.segments(frame.len());
        let step = usize::from(offload.segmentation.unwrap().segment_bytes);
        let is_tcp = offload.segmentation.unwrap().kind != Kind::Udp;
        let transport = if u16_at(&frame, 12) == Some(IPV4) { 34 } else { 54 };
        segment(offload, &frame, &mut Vec::new(), |segment| {
            assert_eq!(checked(segment), 0xffff, "segment {count}");
            assert!(segment.len() - data <= step);
            if transport == 34 {
                assert_eq!(folded(sum_of(&segment[14..34])), 0xffff, "the sum of the header of IP");
                assert_eq!(usize::from(u16_at(segment, 16).unwrap()), segment.len() - 14);
                assert_eq!(u16_at(segment, 18), Some(0xffff_u16.wrapping_add(count)));
            } else {
                assert_eq!(usize::from(u16_at(segment, 18).unwrap()), segment.len() - 54);
            }
            if is_tcp {
                let sequence = 0xffff_ff00_u32.wrapping_add(whole.len() as u32);
                assert_eq!(u32_at(segment, transport + 4), Some(sequence));
                let flags = segment[transport + 13];
                assert_eq!(flags & TCP_FIRST != 0, count == 0, "CWR");
                assert_eq!(flags & TCP_LAST != 0, usize::from(count) + 1 == expected, "FIN, PSH");
            } else {
                assert_eq!(usize::from(u16_at(segment, transport + 4).unwrap()), segment.len() - transport);
            }
            whole.extend_from_slice(&segment[data..]);
            count += 1;
        });
        prop_assert_eq!(usize::from(count), expected);
        prop_assert_eq!(&whole, &frame[data..]);
    }

    #[test]
    fn what_a_hostile_member_sends_is_refused_or_harmless(
        built in built(),
        head in vec(any::<u8>(), 0..20),
        changes in vec((0..16usize, any::<u8>()), 0..4),
        bytes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
    ) {
        let mut frame = built.frame;
        let mut own = built.offload.head();
        changes.iter().for_each(|(at, byte)| own[*at] = *byte);
        bytes.iter().for_each(|(at, byte)| *at.get_mut(&mut frame) = *byte);
        frame.truncate(length.index(frame.len() + 1).max(10));
        for head in [&own[..], &head] {
            if let Ok(offload) = Offload::parse(head, &frame) {
                let mut segments = 0;
                segment(offload, &frame, &mut Vec::new(), |_| segments += 1);
                prop_assert_eq!(segments, offload.segments(frame.len()));
                prop_assert!(segments <= SEGMENTS_MAX);
                prop_assert_eq!(Offload::parse(&offload.head(), &frame), Ok(offload));
            }
        }
    }
}

#[test]
fn frames_that_make_no_sense_are_refused_by_reason() {
    let Built { frame, offload, .. } = build(Kind::Tcp4, true, 3, 100, &[7; 500]);
    let head = offload.head();
    assert_eq!(Offload::parse(&head, &frame[..13]), Err(BadFrame::Length { bytes: 13 }));
    let long = vec![0; FRAME_BYTES_MAX + 1];
    assert_eq!(Offload::parse(&head, &long), Err(BadFrame::Length { bytes: long.len() }));
    assert_eq!(Offload::parse(&head[..15], &frame), Err(BadFrame::Head));
    let changed = |at: usize, byte: u8| {
        let mut head = head;
        head[at] = byte;
        Offload::parse(&head, &frame)
    };
    assert_eq!(changed(0, 2), Err(BadFrame::Head), "no such kind");
    assert_eq!(changed(1, 3), Err(BadFrame::Head), "missing and verified");
    assert_eq!(changed(1, 64), Err(BadFrame::Head), "no such flag");
    assert_eq!(changed(15, 1), Err(BadFrame::Head), "not zero");
    assert_eq!(
        changed(7, 4),
        Err(BadFrame::Checksum { start: 1024 + 34, at: 16, bytes: frame.len() })
    );
    assert_eq!(changed(0, 4), Err(BadFrame::Segmentation), "IPv4 is not IPv6");
    assert_eq!(changed(2, 65), Err(BadFrame::Segmentation), "headers of another length");
    assert_eq!(changed(1, 0), Err(BadFrame::Segmentation), "no checksum");
    assert_eq!(changed(4, 1), Err(BadFrame::Segmentation), "500 segments");
    assert_eq!(changed(4, 0), Err(BadFrame::Segmentation), "segments without data");
}

#[test]
fn checksum_is_completed_from_the_sum_of_the_pseudo_header() {
    // RFC 1071 has this sum.
    assert_eq!(folded(sum_of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
    let Built { mut frame, offload, .. } = build(Kind::Udp, true, 0, 100, b"name?");
    let Checksum::Partial { start, .. } = offload.checksum else { unreachable!() };
    let bytes = (frame.len() - usize::from(start)) as u32;
    frame[38..40].copy_from_slice(&(bytes as u16).to_be_bytes());
    let pseudo = pseudo_header(&frame, 14, true, UDP, bytes);
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    complete_checksum(offload.checksum, &mut frame);
    assert_eq!(checked(&frame), 0xffff);
    complete_checksum(Checksum::Verified, &mut frame);
    assert_eq!(checked(&frame), 0xffff);
}
