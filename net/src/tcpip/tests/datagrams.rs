//! Datagrams, echoes, and questions after addresses.

use super::*;

#[test]
fn echo_and_questions_after_the_address_are_answered() {
    for family in [0, 1] {
        let mut world = World::new(1, Faults::default(), false, Options::default(), family);
        let ends = [0, 1].map(|at| world.stacks[at].addresses()[0]);
        let kind = [8, 128][family];
        let message = [&[kind, 0, 0, 0, 1, 2, 3, 4][..], b"from memory"].concat();
        let mut frame = packet::control(ends[0], ends[1], message);
        address(&mut frame, MACS[1], MACS[0]);
        inject(&mut world, Offload::NONE, &frame);
        let (_, (_, reply)) = world.wires[1].under_way.pop_first().unwrap();
        let reply = packet::Packet::parse(&reply).unwrap();
        assert!(reply.is_intact(Checksum::Unknown));
        assert_eq!(reply.transport()[0], [0, 129][family]);
        assert_eq!(reply.transport()[4..8], [1, 2, 3, 4]);
        assert_eq!((reply.source, reply.destination), (ends[1], ends[0]));
        // A byte of it is another.
        let at = frame.len() - 1;
        frame[at] ^= 1;
        inject(&mut world, Offload::NONE, &frame);
        assert_eq!(world.stacks[1].counter(Counter::BadChecksum), 1);
        assert!(world.wires[1].under_way.is_empty());
    }
    let mut world = World::plain();
    let mut question = [&[0xff; 6], &MACS[0].0[..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    question.extend_from_slice(&[&MACS[0].0[..], &[10, 1, 0, 1], &[0; 6], &[10, 1, 0, 2]].concat());
    inject(&mut world, Offload::NONE, &question);
    assert_eq!(world.stacks[1].counter(Counter::NeighboursAnswered), 1);
    assert_eq!(world.wires[1].under_way.len(), 1);
}

#[test]
fn datagrams_arrive_whole_or_not_at_all() {
    for family in [0, 1] {
        let mut world = World::new(1, Faults::default(), false, Options::default(), family);
        let (from, to) = (world.at(0, 1000), world.at(1, 53));
        let any = SocketAddr::new([IpAddr::from([0; 4]), IpAddr::from([0; 16])][family], 53);
        world.stacks[0].bind(from).unwrap();
        world.stacks[1].bind(any).unwrap();
        assert_eq!(world.stacks[1].bind(to), Err(super::super::BindError::InUse));
        let most = 65_535 - [28, 8][family];
        for bytes in [0, 1, 7, 1500 - [28, 48][family], 1500, 9000, most] {
            let data: Vec<u8> = (0..bytes).map(|at| byte(0, at)).collect();
            let World { stacks, wires, .. } = &mut world;
            stacks[0].send_to(0, from, to, &data, &mut wires[0]).unwrap();
            while !world.wires[0].under_way.is_empty() {
                world.step();
            }
            assert_eq!(world.stacks[1].receive_from(any), Some((from, data)));
        }
        let World { stacks, wires, .. } = &mut world;
        let error = stacks[0].send_to(0, from, to, &vec![0; most + 1], &mut wires[0]).unwrap_err();
        assert_eq!(error, super::super::SendToError::TooLong { bytes_max: most });
        stacks[0].send_to(0, from, SocketAddr::new(to.ip(), 54), b"lost", &mut wires[0]).unwrap();
        world.step();
        assert_eq!(world.stacks[1].counter(Counter::NoSocket), 1);
    }
}

#[test]
fn datagrams_that_come_as_one_frame_are_received_one_by_one() {
    let mut world = World::plain();
    let (from, to) = (world.at(0, 1000), world.at(1, 53));
    world.stacks[1].bind(to).unwrap();
    let data: Vec<u8> = (0..2500).map(|at| byte(0, at)).collect();
    let mut frame = packet::datagram(from, to, &data);
    let partial = packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[1], MACS[0]);
    let segments =
        Segmentation { kind: Kind::Udp, congestion: false, header_bytes: 42, segment_bytes: 1000 };
    let offload = Offload { segmentation: Some(segments), ..partial };
    assert_eq!(Offload::parse(&offload.head(), &frame), Ok(offload));
    inject(&mut world, offload, &frame);
    for piece in data.chunks(1000) {
        assert_eq!(world.stacks[1].receive_from(to), Some((from, piece.to_vec())));
    }
    assert_eq!(world.stacks[1].receive_from(to), None);
}
