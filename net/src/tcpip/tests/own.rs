//! A stack that speaks with itself.

use super::*;

/// A connection of the first stack with itself: both ends of it.
fn with_itself(world: &mut World) -> [ConnectionId; 2] {
    let at = world.at(0, 7);
    world.stacks[0].listen(at, 16).unwrap();
    let asking = world.stacks[0].connect(world.now, at).unwrap();
    let mut accepted = None;
    assert!(world.until(SECOND, |world| {
        accepted = accepted.or_else(|| world.stacks[0].accept(at));
        accepted.is_some() && !world.stacks[0].is_connecting(asking)
    }));
    [asking, accepted.unwrap().0]
}

#[test]
fn stack_reaches_itself_and_nothing_of_it_goes_to_the_wire() {
    for family in [0, 1] {
        let mut world = World::new(1, Faults::default(), false, Options::default(), family);
        let ids = with_itself(&mut world);
        let [asking, accepted] = ids;
        let (mut sent, mut received) = ([0, 0], [0, 0]);
        let total = 3 << 20;
        let is_over = world.until(60 * SECOND, |world| {
            let stack = &mut world.stacks[0];
            for (side, id) in [asking, accepted].into_iter().enumerate() {
                while stack.writable(id) == Writable::Room && sent[side] < total {
                    let from = sent[side];
                    sent[side] += stack
                        .send_with(id, |room| {
                            let count = room.len().min(total - from);
                            for (at, place) in room[..count].iter_mut().enumerate() {
                                *place = byte(side, from + at);
                            }
                            (count, count)
                        })
                        .unwrap();
                    if sent[side] == total {
                        stack.shut_sending(id);
                    }
                }
                while let Some(count) = stack.receive_with(id, |bytes| {
                    for (at, found) in bytes.iter().enumerate() {
                        assert_eq!(*found, byte(1 - side, received[side] + at));
                    }
                    (bytes.len(), bytes.len())
                }) {
                    received[side] += count;
                }
            }
            ids.iter().all(|id| world.stacks[0].readable(*id) == Readable::Finished)
        });
        assert!(is_over, "{sent:?} sent, {received:?} received");
        assert_eq!(received, [total, total]);
        assert!(world.wires[0].under_way.is_empty() && world.wires[0].count == 0);
        assert!(world.stacks[0].hosts().is_empty(), "nobody else can part from it");
        for id in ids {
            world.stacks[0].close(id);
        }
        assert!(world.until(60 * SECOND, |world| world.stacks[0].is_quiet()));
        assert_eq!(world.stacks[0].counter(Counter::Resent), 0);
    }
}

#[test]
fn connection_to_itself_that_nobody_listens_for_is_refused() {
    let mut world = World::plain();
    let at = world.at(0, 8);
    let id = world.stacks[0].connect(0, at).unwrap();
    assert!(world.until(SECOND, |world| !world.stacks[0].is_connecting(id)));
    assert_eq!(world.stacks[0].take_end(id), Some(End::Refused));
}

#[test]
fn datagrams_to_itself_are_bounded_and_a_closed_port_is_reported() {
    let mut world = World::plain();
    let (one, other) = (world.at(0, 1000), world.at(0, 53));
    world.stacks[0].bind(one).unwrap();
    world.stacks[0].bind(other).unwrap();
    let World { stacks, wires, .. } = &mut world;
    // Nobody polls: what the stack keeps for itself has an end.
    let sent = (0..10_000)
        .take_while(|_| stacks[0].send_to(0, one, other, &[7; 500], &mut wires[0]).is_ok());
    let sent = sent.count();
    assert!((200..1000).contains(&sent), "{sent}");
    assert!(stacks[0].waits_for_room());
    let mut received = 0;
    assert!(
        world.until(SECOND, |world| {
            received += std::iter::from_fn(|| world.stacks[0].receive_from(other)).count();
            received == sent && !world.stacks[0].waits_for_room()
        }),
        "{received} of {sent}"
    );
    let closed = world.at(0, 99);
    world.stacks[0].connect_socket(one, closed).unwrap();
    let World { stacks, wires, .. } = &mut world;
    stacks[0].send_to_connected(0, one, b"anybody?", &mut wires[0]).unwrap();
    assert!(world.until(SECOND, |world| world.stacks[0].take_refused(one)));
    assert!(!world.stacks[0].take_refused(one), "it is said once");
}

#[test]
fn datagram_to_itself_and_its_refusal_are_news() {
    let mut world = World::plain();
    let (one, other) = (world.at(0, 1000), world.at(0, 53));
    world.stacks[0].bind(one).unwrap();
    world.stacks[0].bind(other).unwrap();
    let World { stacks, wires, .. } = &mut world;
    let [stack, _] = stacks;
    stack.take_moved();
    stack.send_to(0, one, other, b"hello", &mut wires[0]).unwrap();
    while stack.poll(0, &mut wires[0]) {}
    assert!(stack.take_moved());
    assert!(stack.receive_from(other).is_some());
    stack.connect_socket(one, SocketAddr::new(other.ip(), 99)).unwrap();
    stack.send_to_connected(0, one, b"anybody?", &mut wires[0]).unwrap();
    while stack.poll(0, &mut wires[0]) {}
    assert!(stack.take_moved());
    assert!(stack.take_refused(one));
}

#[test]
fn frame_from_the_wire_with_our_own_address_is_still_dropped() {
    let mut world = World::plain();
    let ends = [world.at(1, 1000), world.at(1, 53)];
    world.stacks[1].bind(ends[1]).unwrap();
    let mut frame = packet::datagram(ends[0], ends[1], b"from nobody");
    packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[1], MACS[0]);
    inject(&mut world, Offload { checksum: Checksum::Verified, ..Offload::NONE }, &frame);
    assert_eq!(world.stacks[1].counter(Counter::BadSource), 1);
    assert_eq!(world.stacks[1].receive_from(ends[1]), None);
}
