//! Packets that come and go in parts.

use super::*;
use crate::tcpip::fragments::cut;
use crate::tcpip::packet::Fragment;

/// Two stacks on a LAN of 1500 bytes, with a socket of UDP each.
fn with_sockets(family: usize, faults: Faults) -> (World, SocketAddr, SocketAddr) {
    let mut world = World::new(7, faults, false, Options::default(), family);
    let (from, to) = (world.at(0, 1000), world.at(1, 53));
    world.stacks[0].bind(from).unwrap();
    world.stacks[1].bind(to).unwrap();
    (world, from, to)
}

fn send(world: &mut World, from: SocketAddr, to: SocketAddr, data: &[u8]) {
    let World { stacks, wires, now } = world;
    wires[0].now = *now;
    stacks[0].send_to(*now, from, to, data, &mut wires[0]).unwrap();
}

#[test]
fn datagrams_in_fragments_cross_a_wire_that_reorders_and_doubles() {
    for family in [0, 1] {
        let faults = Faults { doubled: 30, delayed: 50, ..Faults::default() };
        let (mut world, from, to) = with_sockets(family, faults);
        let mut received = 0;
        for round in 0..50 {
            let data: Vec<u8> = (0..3000 + 500 * round).map(|at| byte(round, at)).collect();
            send(&mut world, from, to, &data);
            assert!(world.until(SECOND, |world| world.wires[0].under_way.is_empty()));
            // A fragment that comes again after its packet is whole begins another, which never will be.
            while let Some(found) = world.stacks[1].receive_from(to) {
                assert!(found == (from, data.clone()));
                received += 1;
            }
        }
        assert!(received >= 50);
        // All that was left over goes in its time, and nothing is due then.
        assert!(world.until(60 * SECOND, |world| world.stacks[1].due().is_none()));
        assert!(world.stacks[1].counter(Counter::FragmentsTimedOut) > 0);
    }
}

#[test]
fn lost_fragment_loses_its_datagram_and_no_other() {
    for family in [0, 1] {
        let (mut world, from, to) = with_sockets(family, Faults::default());
        let data: Vec<u8> = (0..5000).map(|at| byte(0, at)).collect();
        send(&mut world, from, to, &data);
        world.wires[0].under_way.pop_first().unwrap();
        send(&mut world, from, to, &data[..4000]);
        assert!(world.until(SECOND, |world| world.wires[0].under_way.is_empty()));
        let found = world.stacks[1].receive_from(to);
        assert!(found == Some((from, data[..4000].to_vec())));
        assert_eq!(world.stacks[1].receive_from(to), None);
        assert_eq!(world.stacks[1].due(), Some(30 * SECOND + 10_000));
    }
}

/// What a stack has sent: the sources and the messages of ICMP.
fn messages(world: &mut World) -> Vec<(IpAddr, Vec<u8>)> {
    let frames = std::mem::take(&mut world.wires[1].under_way).into_values();
    let message = |(_, frame): (_, Vec<u8>)| {
        let packet = packet::Packet::parse(&frame).unwrap();
        assert!(packet.is_intact(Checksum::Unknown));
        (packet.destination, packet.transport().to_vec())
    };
    frames.map(message).collect()
}

#[test]
fn source_is_told_that_a_part_of_its_packet_has_not_come() {
    for family in [0, 1] {
        let (mut world, from, to) = with_sockets(family, Faults::default());
        send(&mut world, from, to, &[5; 5000]);
        // All but the last.
        world.wires[0].under_way.pop_last().unwrap();
        let (_, first) = world.wires[0].under_way.first_key_value().unwrap().1.clone();
        world.until(29 * SECOND, |_| false);
        assert_eq!(world.stacks[1].counter(Counter::ErrorsSent), 0);
        world.now += 2 * SECOND;
        let World { stacks, wires, now } = &mut world;
        stacks[1].poll(*now, &mut wires[1]);
        let told = messages(&mut world);
        assert_eq!(world.stacks[1].counter(Counter::ErrorsSent), 1);
        let (source, message) = &told[0];
        assert_eq!((told.len(), *source), (1, from.ip()));
        assert_eq!(message[..2], [[11, 1], [3, 1]][family]);
        assert_eq!(message[4..8], [0; 4]);
        // The packet is no longer than every host takes, and what it quotes is the first fragment as it came.
        let quote = &message[8..];
        assert_eq!(quote.len(), [576 - 28, 1280 - 48][family]);
        assert_eq!(quote, &first[14..][..quote.len()]);
    }
}

#[test]
fn nobody_is_told_of_parts_without_the_first_or_of_errors_or_too_often() {
    for family in [0, 1] {
        let (mut world, from, to) = with_sockets(family, Faults::default());
        // Without the first.
        send(&mut world, from, to, &[5; 5000]);
        world.wires[0].under_way.pop_first().unwrap();
        // Errors of ICMP, and an echo.
        let (own, other) = (from.ip(), to.ip());
        let kinds = [[3, 11, 8], [1, 127, 128]][family];
        for (number, kind) in kinds.into_iter().enumerate() {
            let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &[1; 3000]].concat();
            let mut frame = packet::control(own, other, message);
            address(&mut frame, MACS[1], MACS[0]);
            let mut pieces = Vec::new();
            cut(&frame, 1500, Fragment::all(900 + number as u32), |piece| {
                pieces.push(piece.clone())
            });
            inject(&mut world, Offload::NONE, &pieces[0]);
        }
        // Parts that contradict each other.
        for (offset, byte) in [(0, 1), (0, 2)] {
            let mut frame = packet::begin(own, other, 253, 64);
            let part = packet::Fragment { identification: 77, offset, has_more: true };
            packet::make_fragment(&mut frame, part, 64);
            frame.extend_from_slice(&[byte; 64]);
            address(&mut frame, MACS[1], MACS[0]);
            inject(&mut world, Offload::NONE, &frame);
        }
        world.until(SECOND, |_| false);
        world.now += 31 * SECOND;
        let World { stacks, wires, now } = &mut world;
        stacks[1].poll(*now, &mut wires[1]);
        let told = messages(&mut world);
        assert_eq!(told.len(), 1, "the echo");
        let at = 8 + [20, 40 + 8][family];
        assert_eq!(told[0].1[at], [8, 128][family]);
        // Many at once are told of eight.
        for identification in 0..30 {
            let mut frame = packet::begin(own, other, 253, 64);
            let part = packet::Fragment { identification, offset: 0, has_more: true };
            packet::make_fragment(&mut frame, part, 64);
            frame.extend_from_slice(&[3; 64]);
            address(&mut frame, MACS[1], MACS[0]);
            inject(&mut world, Offload::NONE, &frame);
        }
        world.now += 31 * SECOND;
        let World { stacks, wires, now } = &mut world;
        stacks[1].poll(*now, &mut wires[1]);
        assert_eq!(messages(&mut world).len(), 8);
        assert_eq!(world.stacks[1].due(), None);
    }
}

#[test]
fn datagram_whose_bytes_have_changed_in_a_fragment_is_dropped() {
    let (mut world, from, to) = with_sockets(0, Faults::default());
    send(&mut world, from, to, &[5; 4000]);
    let mut last = world.wires[0].under_way.last_entry().unwrap();
    *last.get_mut().1.last_mut().unwrap() ^= 1;
    assert!(world.until(SECOND, |world| world.wires[0].under_way.is_empty()));
    assert_eq!(world.stacks[1].counter(Counter::Reassembled), 1);
    assert_eq!(world.stacks[1].counter(Counter::BadChecksum), 1);
    assert_eq!(world.stacks[1].receive_from(to), None);
}

#[test]
fn long_echo_is_answered_in_fragments() {
    for family in [0, 1] {
        let mut world = World::new(1, Faults::default(), false, Options::default(), family);
        let ends = [0, 1].map(|at| world.stacks[at].addresses()[0]);
        let message = [&[[8, 128][family], 0, 0, 0, 1, 2, 3, 4][..], &[7; 4000]].concat();
        let mut frame = packet::control(ends[0], ends[1], message);
        packet::set_kind(&mut frame);
        let mut pieces = Vec::new();
        cut(&frame, 1500, Fragment::all(77), |piece| pieces.push(piece.clone()));
        for piece in &pieces {
            inject(&mut world, Offload::NONE, piece);
        }
        assert_eq!(world.stacks[1].counter(Counter::EchoesAnswered), 1);
        let replies: Vec<Vec<u8>> = std::mem::take(&mut world.wires[1].under_way)
            .into_values()
            .map(|(_, bytes)| bytes)
            .collect();
        assert_eq!(replies.len(), pieces.len());
        assert!(replies.iter().all(|reply| reply.len() <= 1514));
        // Put together by hand, the reply has the same data.
        let mut data = Vec::new();
        for reply in &replies {
            let packet = packet::Packet::parse(reply).unwrap();
            assert_eq!(packet.fragment.unwrap().offset, data.len());
            data.extend_from_slice(packet.transport());
        }
        assert_eq!(data[0], [0, 129][family]);
        assert_eq!((data.len(), &data[8..]), (4008, &[7; 4000][..]));
    }
}

/// A datagram over IPv6 with headers in front of it.
fn extended(world: &World, first: u8, headers: &[u8]) -> Vec<u8> {
    let (from, to) = (world.at(0, 1000), world.at(1, 53));
    let mut frame = packet::datagram(from, to, b"behind headers");
    let offload = packet::leave_checksum(&mut frame);
    complete_checksum(offload.checksum, &mut frame);
    let length = (frame.len() - 54 + headers.len()) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame[20] = first;
    let transport = frame.split_off(54);
    frame.extend_from_slice(headers);
    frame.extend_from_slice(&transport);
    address(&mut frame, MACS[1], MACS[0]);
    frame
}

#[test]
fn headers_of_ipv6_are_skipped_where_they_may_be() {
    // Each begins with the next header and its length in units of 8 bytes beyond the first.
    let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let unknown = |next, kind| [next, 0, kind, 4, 0, 0, 0, 0];
    let atomic = [17, 0, 0, 0, 1, 2, 3, 4];
    let routing = |left| [17, 0, 4, left, 0, 0, 0, 0];
    let cases: [(u8, Vec<u8>, Option<Counter>); 13] = [
        (0, options(17).to_vec(), None),
        (60, options(17).to_vec(), None),
        (0, [options(60), options(17)].concat(), None),
        (44, atomic.to_vec(), None),
        (43, routing(0).to_vec(), None),
        (60, unknown(17, 0x1e).to_vec(), None),
        (60, [&[17, 1][..], &[0; 14]].concat(), None),
        (43, routing(1).to_vec(), Some(Counter::Extension)),
        (60, unknown(17, 0x9e).to_vec(), Some(Counter::Extension)),
        (60, [17, 0, 1, 5, 0, 0, 0, 0].to_vec(), Some(Counter::Extension)),
        // Hop-by-hop is the first or none.
        (60, [options(0), options(17)].concat(), Some(Counter::Extension)),
        (60, [[60, 0, 1, 4, 0, 0, 0, 0]; 9].concat(), Some(Counter::Extension)),
        (60, vec![17, 200, 1, 4, 0, 0, 0, 0], Some(Counter::Malformed)),
    ];
    for (first, headers, reason) in cases {
        let (mut world, from, to) = with_sockets(1, Faults::default());
        let frame = extended(&world, first, &headers);
        inject(&mut world, Offload::NONE, &frame);
        let expected = reason.is_none().then(|| (from, b"behind headers".to_vec()));
        assert_eq!(world.stacks[1].receive_from(to), expected, "{first} {headers:?}");
        if let Some(reason) = reason {
            assert_eq!(world.stacks[1].counter(reason), 1, "{first} {headers:?}");
        }
    }
}

#[test]
fn connection_goes_on_over_segments_with_headers_of_ipv6_and_in_fragments() {
    let mut world = World::new(1, Faults::default(), false, Options::default(), 1);
    let ids = world.connect();
    let (sequence, acknowledgement) = world.stacks[0].numbers(ids[0]);
    let bare = Bare { flags: ACK, sequence, acknowledgement, window: 1000, ..Bare::default() };
    let (local, remote) = world.stacks[0].ends(ids[0]).unwrap();
    let mut frame = packet::bare(local, remote, bare);
    frame.extend_from_slice(&[9; 2000]);
    let length = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    let offload = packet::leave_checksum(&mut frame);
    complete_checksum(offload.checksum, &mut frame);
    address(&mut frame, MACS[1], MACS[0]);
    let mut pieces = Vec::new();
    cut(&frame, 1280, Fragment::all(1), |piece| pieces.push(piece.clone()));
    for piece in pieces.iter().rev() {
        inject(&mut world, Offload::NONE, piece);
    }
    assert_eq!(peek(&world, 1, ids[1]), [9; 2000]);
}

proptest! {
    #[test]
    fn no_fragment_of_any_kind_brings_a_stack_down(
        frames in prop::collection::vec(
            (
                prop::collection::vec(any::<u8>(), 0..80),
                prop::sample::select(vec![0_u8, 6, 17, 43, 44, 58, 60]),
                0..4u16,
                any::<bool>(),
                any::<bool>(),
            ),
            1..60,
        ),
    ) {
        for family in [0, 1] {
            let mut world = World::new(3, Faults::default(), false, Options::default(), family);
            let ids = world.connect();
            let (local, remote) = world.stacks[0].ends(ids[0]).unwrap();
            for (bytes, protocol, place, has_more, is_part) in &frames {
                let mut frame = packet::begin(local.ip(), remote.ip(), *protocol, bytes.len());
                if *is_part {
                    let part = packet::Fragment {
                        identification: 5,
                        offset: usize::from(place * 8),
                        has_more: *has_more,
                    };
                    packet::make_fragment(&mut frame, part, bytes.len());
                }
                frame.extend_from_slice(bytes);
                address(&mut frame, MACS[1], MACS[0]);
                inject(&mut world, Offload::NONE, &frame);
                world.step_before(world.now + 1_000_000);
            }
            prop_assert_eq!(transfer(&mut world, ids, 10_000), [Outcome::Complete, Outcome::Complete]);
        }
    }
}
