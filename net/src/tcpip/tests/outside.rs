//! A stack that stands in for hosts elsewhere.

use super::*;
use crate::tcpip::{Asked, Refusal, Stray, StrayKind};

/// Two stacks, and an address that neither has. The second stands in for it.
fn world(family: usize) -> (World, SocketAddr) {
    let options = Options { stands_in: true, ..Options::default() };
    let world = World::new(1, Faults::default(), false, options, family);
    (world, ["192.0.2.7:80", "[2001:db8::7]:80"][family].parse().unwrap())
}

/// Polls the second stack until it names a connection.
fn asked(world: &mut World) -> Asked {
    let mut asked = None;
    assert!(world.until(SECOND, |world| {
        asked = asked.or_else(|| world.stacks[1].take_asked());
        asked.is_some()
    }));
    asked.unwrap()
}

#[test]
fn nothing_is_acknowledged_before_the_program_accepts() {
    for family in [0, 1] {
        let (mut world, elsewhere) = world(family);
        let id = world.stacks[0].connect(0, elsewhere).unwrap();
        let asked = asked(&mut world);
        let Asked { local, remote, .. } = asked;
        assert_eq!((local, remote.ip()), (elsewhere, world.at(0, 0).ip()));
        // It is asked for again, and named once.
        assert!(!world.until(3 * SECOND, |world| {
            assert_eq!(world.stacks[1].take_asked(), None);
            !world.stacks[0].is_connecting(id)
        }));
        assert_eq!(world.stacks[1].counter(Counter::FramesSent), 0);
        let now = world.now;
        let accepted = world.stacks[1].accept_asked(now, asked).unwrap();
        assert_eq!(world.stacks[1].accept_asked(now, asked), None, "it is accepted");
        assert!(world.until(SECOND, |world| !world.stacks[0].is_connecting(id)));
        assert_eq!(world.stacks[1].ends(accepted), Some((elsewhere, remote)));
        let say = |room: &mut [u8]| {
            room[..5].copy_from_slice(b"hello");
            (5, ())
        };
        world.stacks[0].send_with(id, say).unwrap();
        assert!(world.until(SECOND, |world| {
            world.stacks[1].receive_with(accepted, |bytes| (bytes.len(), bytes.to_vec()))
                == Some(b"hello".to_vec())
        }));
        world.stacks[1].abort(accepted);
        assert!(world.until(SECOND, |world| world.stacks[0].take_end(id) == Some(End::Reset)));
    }
}

#[test]
fn member_learns_why_a_connection_is_refused() {
    for family in [0, 1] {
        for (refusal, end) in [
            (Some(Refusal::Port), Some(End::Refused)),
            (Some(Refusal::Host), Some(End::HostUnreachable)),
            (Some(Refusal::Network), Some(End::NetworkUnreachable)),
            (Some(Refusal::Forbidden), Some(End::HostUnreachable)),
            (None, None),
        ] {
            let (mut world, elsewhere) = world(family);
            let id = world.stacks[0].connect(0, elsewhere).unwrap();
            let asked = asked(&mut world);
            let World { stacks, wires, now } = &mut world;
            wires[1].now = *now;
            stacks[1].refuse_asked(*now, asked, refusal, &mut wires[1]);
            world.until(SECOND / 2, |world| !world.stacks[0].is_connecting(id));
            assert_eq!(world.stacks[0].take_end(id), end, "{family} {refusal:?}");
            assert_eq!(world.stacks[0].is_connecting(id), refusal.is_none());
        }
    }
}

#[test]
fn connection_is_not_accepted_of_a_member_that_has_lost_its_address() {
    let (mut world, elsewhere) = world(0);
    world.stacks[0].connect(0, elsewhere).unwrap();
    let before = asked(&mut world);
    world.stacks[1].end_with(before.remote.ip());
    assert_eq!(world.stacks[1].accept_asked(0, before), None);
    // It asks again, between the same ports: the earlier decision is not about that.
    let after = asked(&mut world);
    assert_eq!((after.local, after.remote), (before.local, before.remote));
    assert_eq!(world.stacks[1].accept_asked(0, before), None);
    assert!(world.stacks[1].accept_asked(0, after).is_some());
}

#[test]
fn member_that_is_told_too_often_is_sent_resets() {
    let (mut world, elsewhere) = world(0);
    let mut ends = Vec::new();
    for _ in 0..100 {
        let now = world.now;
        let id = world.stacks[0].connect(now, elsewhere).unwrap();
        let asked = asked(&mut world);
        let World { stacks, wires, now } = &mut world;
        wires[1].now = *now;
        stacks[1].refuse_asked(*now, asked, Some(Refusal::Forbidden), &mut wires[1]);
        assert!(world.until(SECOND / 100, |world| !world.stacks[0].is_connecting(id)));
        ends.extend(world.stacks[0].take_end(id));
    }
    let resets = ends.iter().filter(|end| **end == End::Refused).count();
    assert_eq!((ends[0], ends.len()), (End::HostUnreachable, 100));
    assert!(resets > 0 && world.stacks[1].counter(Counter::ResetsSent) == resets as u64);
}

#[test]
fn datagrams_are_handed_over_and_answered_from_elsewhere() {
    for family in [0, 1] {
        let (mut world, elsewhere) = world(family);
        let own = world.at(0, 1000);
        world.stacks[0].bind(own).unwrap();
        world.stacks[0].connect_socket(own, elsewhere).unwrap();
        let World { stacks, wires, now } = &mut world;
        stacks[0].send_to_connected(*now, own, &[7; 5000], &mut wires[0]).unwrap();
        let mut found = None;
        assert!(world.until(SECOND, |world| {
            found = found.take().or_else(|| world.stacks[1].take_stray());
            found.is_some()
        }));
        let (kind, data) = (StrayKind::Datagram, vec![7; 5000]);
        assert_eq!(found, Some(Stray { kind, source: own, destination: elsewhere, data }));
        let World { stacks, wires, now } = &mut world;
        wires[1].now = *now;
        let ends = (elsewhere, own);
        stacks[1].send_from_outside(*now, kind, ends, &[8; 4000], &mut wires[1]).unwrap();
        stacks[1].refuse_stray(*now, kind, ends, Refusal::Port, &mut wires[1]);
        assert!(world.until(SECOND, |world| world.stacks[0].take_refused(own)));
        assert!(world.until(SECOND, |world| {
            world.stacks[0].receive_from(own) == Some((elsewhere, vec![8; 4000]))
        }));
    }
}

#[test]
fn echo_requests_are_handed_over_with_their_identifiers() {
    for (family, kinds) in [(0, [8, 0]), (1, [128, 129])] {
        let (mut world, elsewhere) = world(family);
        let message = vec![kinds[0], 0, 0, 0, 0x12, 0x34, 0, 1, 9, 9];
        let from = world.at(0, 0x1234);
        let mut frame = packet::control(from.ip(), elsewhere.ip(), message);
        packet::set_kind(&mut frame);
        address(&mut frame, MACS[1], MACS[0]);
        inject(&mut world, Offload::NONE, &frame);
        let stray = world.stacks[1].take_stray().unwrap();
        assert_eq!((stray.kind, stray.source), (StrayKind::Echo, from));
        assert_eq!(stray.destination, SocketAddr::new(elsewhere.ip(), 0));
        let mut reply = stray.data;
        reply[0] = kinds[1];
        reply[4..6].fill(0xff);
        let World { stacks, wires, now } = &mut world;
        let ends = (stray.destination, from);
        stacks[1].send_from_outside(*now, StrayKind::Echo, ends, &reply, &mut wires[1]).unwrap();
        let (_, sent) = wires[1].under_way.values().next().unwrap();
        let transport = &sent[if family == 0 { 34 } else { 54 }..];
        assert_eq!((transport[0], &transport[4..]), (kinds[1], &[0x12, 0x34, 0, 1, 9, 9][..]));
        assert!(
            stacks[1].send_from_outside(0, StrayKind::Echo, ends, &[0], &mut wires[1]).is_err()
        );
    }
}

#[test]
fn what_waits_for_the_program_has_a_bound() {
    let options = Options { stands_in: true, connections_max: 64, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let elsewhere = "192.0.2.7:80".parse().unwrap();
    for port in 1..=6000 {
        let bare = Bare { flags: SYN, sequence: 7, window: 1000, ..Bare::default() };
        let mut frame = packet::bare(world.at(0, port), elsewhere, bare);
        packet::leave_checksum(&mut frame);
        address(&mut frame, MACS[1], MACS[0]);
        inject(&mut world, Offload { checksum: Checksum::Verified, ..Offload::NONE }, &frame);
        let mut frame = packet::datagram(world.at(0, port), elsewhere, &[0; 1200]);
        packet::leave_checksum(&mut frame);
        address(&mut frame, MACS[1], MACS[0]);
        inject(&mut world, Offload { checksum: Checksum::Verified, ..Offload::NONE }, &frame);
    }
    let stack = &mut world.stacks[1];
    // All come from one source, which leaves half to others.
    assert_eq!(stack.counter(Counter::BacklogFull), 6000 - 2048);
    assert_eq!(std::iter::from_fn(|| stack.take_asked()).count(), 2048);
    let strays = std::iter::from_fn(|| stack.take_stray()).count();
    assert_eq!(stack.counter(Counter::SocketFull), 6000 - strays as u64);
    assert!((1500..2000).contains(&strays), "{strays}");
}

#[test]
fn last_hop_is_here() {
    let (mut world, elsewhere) = world(0);
    let mut frame = packet::datagram(world.at(0, 1), elsewhere, b"far");
    packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[1], MACS[0]);
    frame[22] = 1;
    // The sum of the header grows by what the field loses.
    let sum = u16::from_be_bytes([frame[24], frame[25]]) as u32 + 63 * 256;
    frame[24..26].copy_from_slice(&((sum + (sum >> 16)) as u16).to_be_bytes());
    inject(&mut world, Offload { checksum: Checksum::Verified, ..Offload::NONE }, &frame);
    assert_eq!(world.stacks[1].counter(Counter::HopLimit), 1);
    assert_eq!(world.stacks[1].take_stray(), None);
    assert_eq!(world.stacks[1].counter(Counter::ErrorsSent), 1);
}
