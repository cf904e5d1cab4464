//! How connections end, and how they do not.

use super::*;

#[test]
fn member_that_takes_nothing_keeps_no_connection_for_ever() {
    let mut world = World::plain();
    let all: Vec<_> = (0..300).map(|_| world.connect()).collect();
    world.wires[1].faults.full = 100;
    for ids in &all {
        put(&mut world, 0, ids[0], 10);
    }
    assert!(!world.until(SECOND / 100, |_| false));
    // What has come is not read: so each is to be told by a reset, for which there is no room.
    for ids in &all {
        world.stacks[1].close(ids[1]);
    }
    assert!(!world.until(SECOND / 100, |_| false));
    assert_eq!(world.stacks[1].counts(), (300, 0));
    assert!(world.until(61 * SECOND, |world| world.stacks[1].counts() == (0, 0)));
    // What was waiting for the target goes when there is room.
    world.wires[1].faults.full = 0;
    assert!(world.until(SECOND, |world| !world.stacks[1].waits_for_room()));
}

#[test]
fn side_with_a_closed_window_learns_what_the_other_has() {
    let options = Options { receive_bytes: 256 << 10, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let ids = world.connect();
    for bytes in [100_000, 100_000, (256 << 10) - 200_000] {
        put(&mut world, 0, ids[0], bytes);
        world.until(SECOND / 10, |_| false);
    }
    for wire in &mut world.wires {
        wire.faults.lost = 100;
    }
    let acknowledge = |world: &mut World, ahead: usize| {
        put(world, 1, ids[1], 1000);
        world.until(SECOND / 10, |_| false);
        let (next, expected) = world.stacks[1].numbers(ids[1]);
        let sequence = expected.wrapping_add(ahead as u32);
        let bare =
            Bare { flags: ACK, sequence, acknowledgement: next, window: 1000, ..Bare::default() };
        let frame = segment_to(world, ids, bare, &[]);
        inject(world, Offload::NONE, &frame);
        world.until(20 * SECOND, |_| false);
        world.stacks[1].counter(Counter::Resent)
    };
    // The window is closed: the other side says at its end what it has.
    assert_eq!(acknowledge(&mut world, 0), 0);
    // Behind that nothing was ever asked for, but for what a window loses when it is scaled.
    assert!(acknowledge(&mut world, 16) > 0);
}

#[test]
fn side_that_does_not_read_for_an_hour_keeps_its_connection() {
    let options = Options { receive_bytes: 4096, send_bytes: 16_384, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let ids = world.connect();
    put(&mut world, 0, ids[0], 16_384);
    assert!(!world.until(3600 * SECOND, |_| false));
    assert_eq!(world.stacks[0].writable(ids[0]), Writable::Room);
    let mut received = 0;
    assert!(world.until(100 * SECOND, |world| {
        let count = world.stacks[1].receive_with(ids[1], |bytes| {
            assert!(bytes.iter().enumerate().all(|(at, found)| *found == byte(0, received + at)));
            (bytes.len(), bytes.len())
        });
        received += count.unwrap_or(0);
        received == 16_384
    }));
}

#[test]
fn what_was_written_before_a_close_goes_on_while_the_other_side_reads() {
    let options = Options { receive_bytes: 4096, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let ids = world.connect();
    put(&mut world, 0, ids[0], 60_000);
    world.stacks[0].close(ids[0]);
    let mut received = 0;
    while world.stacks[1].readable(ids[1]) != Readable::Finished {
        assert_ne!(world.stacks[1].readable(ids[1]), Readable::Failed, "after {received} bytes");
        world.until(20 * SECOND, |_| false);
        let count = world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), bytes.len()));
        received += count.unwrap_or(0);
    }
    assert_eq!(received, 60_000);
    assert!(world.now > 200 * SECOND);
}

#[test]
fn what_had_come_before_receiving_was_shut_is_received() {
    let (mut world, ids) = in_mid_conversation();
    assert!(world.until(SECOND, |world| peek(world, 1, ids[1]).len() == 1000));
    world.stacks[1].shut_receiving(ids[1]);
    put(&mut world, 0, ids[0], 100_000);
    world.until(SECOND, |_| false);
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Bytes);
    assert_eq!(peek(&world, 1, ids[1]), &[0; 1000]);
    let taken = world.stacks[1].receive_with(ids[1], |bytes| (600, bytes.len()));
    assert_eq!(taken, Some(1000));
    assert_eq!(peek(&world, 1, ids[1]), &[0; 400]);
    world.stacks[1].receive_with(ids[1], |_| (400, ()));
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Finished);
    // What came later was taken, and is gone.
    assert_eq!(world.stacks[0].writable(ids[0]), Writable::Room);
    let (next, _) = world.stacks[0].numbers(ids[0]);
    assert_eq!(world.stacks[1].numbers(ids[1]).1, next);
}

#[test]
fn reader_learns_that_the_other_side_is_gone_or_another() {
    let (mut world, ids) = in_mid_conversation();
    world.until(SECOND, |_| false);
    let host = world.at(1, 0).ip();
    assert_eq!(world.stacks[0].hosts(), [host].into_iter().collect());
    // One that is still there answers, and nothing changes.
    world.stacks[0].question(host);
    let sent = world.stacks[1].counter(Counter::FramesSent);
    world.until(SECOND, |_| false);
    assert_eq!(world.stacks[1].counter(Counter::FramesSent), sent + 1);
    assert_eq!(world.stacks[0].readable(ids[0]), Readable::Bytes);
    world.stacks[0].receive_with(ids[0], |bytes| (bytes.len(), ()));
    // Another stack at the same address knows nothing of it.
    world.stacks[1] = Stack::new(MACS[1], &[host], Options::default(), Secret([9; 16]));
    // That it is asked may be lost with the path.
    world.wires[0].faults.lost = 100;
    world.stacks[0].question(host);
    world.until(5 * SECOND, |_| false);
    assert_eq!(world.stacks[0].take_end(ids[0]), None);
    world.wires[0].faults.lost = 0;
    world.until(5 * SECOND, |_| false);
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::Reset));

    let ids = world.connect();
    world.wires[0].faults.full = 100;
    put(&mut world, 0, ids[0], 10);
    world.stacks[0].poll(world.now, &mut world.wires[0]);
    assert!(world.stacks[0].waits_for_room());
    world.stacks[0].end_with(host);
    assert!(!world.stacks[0].waits_for_room(), "what waits there is for nobody");
    assert_eq!(world.stacks[0].readable(ids[0]), Readable::Failed);
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::Gone));
    assert!(world.stacks[0].is_quiet());
}

#[test]
fn silent_side_is_given_up() {
    let (mut world, ids) = in_mid_conversation();
    assert!(
        world.until(5 * SECOND, |world| world.stacks.iter().all(|stack| stack.due().is_none()))
    );
    // From here on nothing arrives.
    for wire in &mut world.wires {
        wire.faults.lost = 100;
    }
    let now = world.now;
    world.stacks[0].send_with(ids[0], |room| {
        room[0] = 1;
        (1, ())
    });
    assert!(
        world.until(200 * SECOND, |world| world.stacks[0].writable(ids[0]) == Writable::Failed)
    );
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::TimedOut));
    assert_eq!((world.now - now) / SECOND, 120);
    // The other side has nothing to say, and does not know.
    assert_eq!(world.stacks[1].writable(ids[1]), Writable::Room);
}

#[test]
fn bytes_before_the_end_can_be_read_though_the_end_was_not_acknowledged_for_long() {
    let mut world = World::plain();
    let [near, far] = world.connect();
    world.stacks[1].shut_sending(far);
    assert!(world.until(SECOND, |world| world.stacks[0].readable(near) == Readable::Finished));
    world.until(SECOND, |_| false);
    // The acknowledgement of the bytes waits for room, and that of the end is not made before there is room again.
    world.wires[1].faults.full = 100;
    world.stacks[0].send_with(near, |room| {
        room[..5].copy_from_slice(b"hello");
        (5, ())
    });
    assert!(world.until(SECOND, |world| world.stacks[1].waits_for_room()));
    world.stacks[0].shut_sending(near);
    world.until(100_000, |_| false);
    // What is sent again is lost for longer than a state machine keeps a connection that is over.
    world.wires[0].faults.lost = 100;
    for _ in 0..12 {
        world.now += SECOND;
        world.step();
    }
    world.wires[1].faults.full = 0;
    assert!(world.until(10 * SECOND, |world| world.stacks.iter().all(Stack::is_quiet)));
    let taken = world.stacks[1].receive_with(far, |bytes| (bytes.len(), bytes.to_vec()));
    assert_eq!(taken.as_deref(), Some(&b"hello"[..]));
    assert_eq!(world.stacks[1].readable(far), Readable::Finished);
    assert_eq!(world.stacks.map(|stack| stack.counter(Counter::TimedOut)), [0, 0]);
}
