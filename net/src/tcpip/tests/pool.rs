//! Buffers, and what else runs out.

use super::*;

#[test]
fn buffers_are_limited_and_nothing_is_lost_for_want_of_them() {
    let options = Options { pool_bytes: 16 << 14, pool_kept_bytes: 2 << 14, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let pool = |world: &World| {
        let usage = world.stacks[1].pool();
        (usage.in_use, usage.high_water, usage.in_use_max, usage.free)
    };
    let ids = world.connect();
    assert_eq!(pool(&world), (0, 0, 16, 0), "an idle connection has none");
    put(&mut world, 0, ids[0], 80_000);
    assert_eq!(world.stacks[0].pool().in_use, 5);
    world.until(SECOND, |_| false);
    assert_eq!(pool(&world), (5, 5, 16, 0));
    assert_eq!(world.stacks[0].pool().in_use, 0, "what was acknowledged needs none");
    // What does not find any is sent again, when others are read.
    put(&mut world, 0, ids[0], 80_000);
    assert!(world.until(SECOND, |world| world.stacks[1].counter(Counter::PoolExhausted) > 0));
    let mut received = 0;
    let mut take = |world: &mut World, bytes: usize| {
        while received < bytes
            && let Some(count) =
                world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), bytes.len()))
        {
            received += count;
        }
        received == bytes
    };
    assert!(world.until(5 * SECOND, |world| take(world, 160_000)));
    assert_eq!(pool(&world), (0, 6, 16, 2));
    assert_eq!(transfer(&mut world, ids, 1 << 20), [Outcome::Complete, Outcome::Complete]);
}

#[test]
fn connection_whose_data_finds_no_buffer_is_not_given_up() {
    let options = Options { pool_bytes: 16 << 14, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let [one, other] = [0; 2].map(|_| world.connect());
    // One is not read: it has all that its host may have.
    put(&mut world, 0, one[0], 80_000);
    world.until(SECOND, |_| false);
    put(&mut world, 0, one[0], 40_000);
    put(&mut world, 0, other[0], 10);
    world.until(SECOND, |_| false);
    assert_eq!(world.stacks[1].readable(other[1]), Readable::Nothing);
    world.until(300 * SECOND, |_| false);
    assert_eq!([one, other].map(|ids| world.stacks[0].take_end(ids[0])), [None, None]);
    // As soon as there is a buffer it goes on.
    while world.stacks[1].receive_with(one[1], |bytes| (bytes.len(), ())).is_some() {}
    let has_come = |world: &mut World| world.stacks[1].readable(other[1]) == Readable::Bytes;
    assert!(world.until(SECOND, has_come));
}

#[test]
fn writer_that_found_no_buffer_is_named_when_another_gives_some_back() {
    let options = Options { pool_bytes: 8 << 14, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let [one, other] = [0; 2].map(|_| world.connect()[0]);
    world.wires[0].faults.lost = 100;
    world.stacks[0].watch(other, 7);
    put(&mut world, 0, one, 3 << 14);
    while world.stacks[0].take_changed().is_some() {}
    assert_eq!(world.stacks[0].writable(other), Writable::Nothing);
    world.until(SECOND / 1000, |_| false);
    assert_eq!(world.stacks[0].take_changed(), None);
    world.wires[0].faults.lost = 0;
    assert!(world.until(10 * SECOND, |world| world.stacks[0].take_changed() == Some(7)));
    assert_eq!(world.stacks[0].writable(other), Writable::Room);
}

#[test]
fn what_has_run_out_is_no_loss_and_is_named() {
    let mut world = World::plain();
    let ids = world.connect();
    world.wires[0].lack = Some(Lack::Descriptors);
    put(&mut world, 0, ids[0], 10);
    world.until(50 * SECOND, |_| false);
    assert_eq!(world.stacks[0].take_end(ids[0]), None);
    // A connection that is to be made is told at once, and so is a datagram.
    let at = world.at(1, 7);
    let refused = world.stacks[0].connect(world.now, at).unwrap();
    world.until(SECOND, |world| world.stacks[0].readable(refused) == Readable::Failed);
    assert_eq!(world.stacks[0].take_end(refused), Some(End::Lacking(Lack::Descriptors)));
    let own = world.at(0, 9);
    world.stacks[0].bind(own).unwrap();
    let sent = world.stacks[0].send_to(world.now, own, at, b"x", &mut world.wires[0]);
    assert_eq!(sent, Err(super::super::SendToError::Lacking(Lack::Descriptors)));
    // It is there again, which nobody says.
    world.wires[0].lack = None;
    let resent = world.stacks[0].counter(Counter::Resent);
    assert!(world.until(SECOND, |world| world.stacks[1].readable(ids[1]) == Readable::Bytes));
    assert_eq!(world.stacks[0].counter(Counter::Resent), resent, "nothing was lost");
    // It does not come back.
    world.wires[0].lack = Some(Lack::Memory);
    put(&mut world, 0, ids[0], 10);
    world.until(200 * SECOND, |_| false);
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::Lacking(Lack::Memory)));
}

#[test]
fn what_has_run_out_is_tried_again_after_a_while_and_not_at_each_poll() {
    let mut world = World::plain();
    let ids = world.connect();
    world.wires[0].lack = Some(Lack::Memory);
    put(&mut world, 0, ids[0], 10);
    for _ in 0..10 {
        world.stacks[0].poll(world.now, &mut world.wires[0]);
    }
    assert_eq!(world.wires[0].lacked, 1);
    world.now += SECOND / 10;
    world.stacks[0].poll(world.now, &mut world.wires[0]);
    assert_eq!(world.wires[0].lacked, 2);
}
