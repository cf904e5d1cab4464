//! Listeners, and connections that nobody completes.

use super::*;

#[test]
fn closed_port_refuses_and_full_backlog_does_not() {
    let mut world = World::plain();
    let to = world.at(1, 9);
    let refused = world.stacks[0].connect(0, to).unwrap();
    assert!(world.until(SECOND, |world| !world.stacks[0].is_connecting(refused)));
    assert_eq!(world.stacks[0].take_end(refused), Some(End::Refused));
    assert_eq!(world.stacks[1].counter(Counter::ResetsSent), 1);

    world.stacks[1].listen(to, 2).unwrap();
    let now = world.now;
    let asking = [0, 1, 2].map(|_| world.stacks[0].connect(now, to).unwrap());
    let is_there = |world: &World| asking.map(|id| !world.stacks[0].is_connecting(id));
    assert!(!world.until(SECOND / 2, |world| is_there(world) == [true; 3]));
    assert_eq!(is_there(&world), [true, true, false]);
    assert_eq!(world.stacks[1].counter(Counter::BacklogFull), 1);
    assert!(world.stacks[1].accept(to).is_some());
    assert!(world.until(2 * SECOND, |world| is_there(world) == [true; 3]));
    // Those that nobody has accepted are reset when nobody listens any more.
    world.stacks[1].stop_listening(to);
    assert!(
        world.until(2 * SECOND, |world| world.stacks[0].readable(asking[2]) == Readable::Failed)
    );
    assert_eq!(world.stacks[0].take_end(asking[2]), Some(End::Reset));
    assert_eq!(world.stacks[0].readable(asking[0]), Readable::Nothing);
}

#[test]
fn half_open_connections_fill_the_backlog_and_nothing_else() {
    let mut world = World::plain();
    let to = world.at(1, 7);
    world.stacks[1].listen(to, 8).unwrap();
    for number in 0..100u16 {
        let from = SocketAddr::new([10, 1, 7, 7].into(), 1024 + number);
        let bare =
            Bare { flags: SYN, sequence: 0, acknowledgement: 0, window: 100, ..Bare::default() };
        let mut frame = packet::bare(from, to, bare);
        packet::leave_checksum(&mut frame);
        address(&mut frame, MACS[1], MACS[0]);
        let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
        inject(&mut world, offload, &frame);
    }
    assert_eq!(world.stacks[1].counts(), (8, 0));
    assert_eq!(world.stacks[1].counter(Counter::BacklogFull), 92);
    // Another host has one of their places at once.
    world.connect();
    assert!(world.now < SECOND / 10);
    assert_eq!(world.stacks[1].counter(Counter::HalfOpenEvicted), 1);
    // They go when their time is over.
    assert!(world.until(70 * SECOND, |world| world.stacks[1].counts() == (1, 0)));
}

#[test]
fn data_beyond_the_first_window_is_not_taken() {
    for first in [0, 40_000, 70_000] {
        let mtu = 57_344;
        let options = Options { mtu, receive_bytes: 1 << 20, ..Options::default() };
        let mut world = World::new(1, Faults::default(), false, options, 0);
        let (from, to) = (SocketAddr::new([10, 1, 7, 7].into(), 1024), world.at(1, 7));
        world.stacks[1].listen(to, 8).unwrap();
        let (sequence, acknowledgement) = forge_connection(&mut world, from, to);
        // All of it comes before the other side has sent anything but its first segment, whose window is 65,535 bytes.
        for at in (first..1_200_000).step_by(50_000) {
            let sequence = sequence + at as u32;
            let bare =
                Bare { flags: ACK, sequence, acknowledgement, window: 65_535, ..Bare::default() };
            let mut frame = packet::bare(from, to, bare);
            frame.extend((0..50_000).map(|byte_at| byte(0, at + byte_at)));
            let total = (frame.len() - 14) as u16;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            frame[24..26].fill(0);
            let sum = !crate::lan::offload::folded(crate::lan::offload::sum_of(&frame[14..34]));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            address(&mut frame, MACS[1], MACS[0]);
            let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
            inject(&mut world, offload, &frame);
        }
        assert_eq!(world.stacks[1].counter(Counter::Malformed), 0);
        // What begins behind the window does not even make the connection.
        let Some((id, _)) = world.stacks[1].accept(to) else {
            assert_eq!(first, 70_000);
            continue;
        };
        let received = take_all(&mut world, 1, id, 0);
        assert_eq!(received, if first == 0 { 65_535 } else { 0 });
    }
}
