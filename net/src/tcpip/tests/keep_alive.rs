//! Sides that fall silent.

use super::*;
use crate::tcpip::KeepAlive;

const OPTIONS: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(2), probes: 3 };

#[test]
fn side_that_vanishes_is_given_up_after_the_time_set() {
    for family in [0, 1] {
        let mut world = World::new(1, Faults::default(), false, Options::default(), family);
        let ids = world.connect();
        let now = world.now;
        world.stacks[0].set_keep_alive(now, ids[0], Some(OPTIONS));
        // For an hour it answers: nothing ends.
        assert!(!world.until(3600 * SECOND, |world| {
            world.stacks.iter().zip(ids).any(|(stack, id)| stack.writable(id) != Writable::Room)
        }));
        let probes = world.stacks[0].counter(Counter::ProbesSent);
        assert!((350..=360).contains(&probes), "{probes}");
        // It does not have to say anything: only one side asks.
        assert_eq!(world.stacks[1].counter(Counter::ProbesSent), 0);
        for wire in &mut world.wires {
            wire.faults.lost = 100;
        }
        let last = world.now;
        assert!(
            world.until(60 * SECOND, |world| {
                world.stacks[0].readable(ids[0]) == Readable::Failed
            })
        );
        assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::TimedOut));
        let silent = (world.now - last) / SECOND;
        assert!((6..=16).contains(&silent), "{silent} s after the last answer");
        // The last three were not answered.
        let probes = world.stacks[0].counter(Counter::ProbesSent) - probes;
        assert_eq!((probes, world.stacks[0].counts().0), (3, 1));
    }
}

#[test]
fn connection_that_is_used_is_not_asked() {
    let mut world = World::plain();
    let ids = world.connect();
    world.stacks[0].set_keep_alive(world.now, ids[0], Some(OPTIONS));
    for _ in 0..20 {
        put(&mut world, 1, ids[1], 100);
        let end = world.now + 5 * SECOND;
        world.until(5 * SECOND, |_| false);
        world.now = end;
        world.stacks[0].receive_with(ids[0], |bytes| (bytes.len(), ())).unwrap();
    }
    assert_eq!(world.stacks[0].counter(Counter::ProbesSent), 0);
    world.stacks[0].set_keep_alive(world.now, ids[0], None);
    world.until(20 * SECOND, |_| false);
    assert!(world.stacks.iter().all(|stack| stack.due().is_none()), "nothing is due any more");
}

#[test]
fn what_nobody_acknowledges_ends_by_silence_and_not_by_probes() {
    let mut world = World::plain();
    let ids = world.connect();
    world.stacks[0].set_keep_alive(world.now, ids[0], Some(OPTIONS));
    for wire in &mut world.wires {
        wire.faults.lost = 100;
    }
    let now = world.now;
    put(&mut world, 0, ids[0], 100);
    assert!(
        world.until(200 * SECOND, |world| { world.stacks[0].readable(ids[0]) == Readable::Failed })
    );
    assert_eq!((world.now - now) / SECOND, 120);
    assert_eq!(world.stacks[0].counter(Counter::ProbesSent), 0);
}

#[test]
fn segments_out_of_window_do_not_keep_a_side_alive() {
    let mut world = World::plain();
    let ids = world.connect();
    world.stacks[1].set_keep_alive(world.now, ids[1], Some(OPTIONS));
    for wire in &mut world.wires {
        wire.faults.lost = 100;
    }
    let start = world.now;
    let mut forged = 0;
    while world.stacks[1].readable(ids[1]) != Readable::Failed {
        let (_, expected) = world.stacks[1].numbers(ids[1]);
        let sequence = expected.wrapping_add(1 << 30);
        let bare =
            Bare { flags: ACK, sequence, acknowledgement: 0, window: 100, ..Bare::default() };
        let frame = segment_to(&world, ids, bare, &[]);
        inject(&mut world, Offload::NONE, &frame);
        world.step_before(world.now + SECOND);
        forged += 1;
        assert!(forged < 100);
    }
    assert_eq!((world.now - start) / SECOND, 16);
}

#[test]
fn each_probe_is_answered_however_fast_they_come() {
    let mut world = World::plain();
    let ids = world.connect();
    let (next, expected) = world.stacks[1].numbers(ids[1]);
    for bytes in [0, 1] {
        for _ in 0..10 {
            let before = world.stacks[1].counter(Counter::FramesSent);
            let sequence = expected.wrapping_sub(1);
            let bare = Bare {
                flags: ACK,
                sequence,
                acknowledgement: next,
                window: 100,
                ..Bare::default()
            };
            let frame = segment_to(&world, ids, bare, &[9; 1][..bytes]);
            inject(&mut world, Offload::NONE, &frame);
            assert_eq!(world.stacks[1].counter(Counter::FramesSent), before + 1);
        }
    }
    assert_eq!(peek(&world, 1, ids[1]), [0; 0], "a byte of a probe is none of the stream");
    assert_eq!(transfer(&mut world, ids, 1000), [Outcome::Complete, Outcome::Complete]);
}

#[test]
fn connection_that_sleeps_is_asked_when_it_is_to_be() {
    let mut world = World::plain();
    let ids = world.connect();
    assert!(world.until(5 * SECOND, |world| world.stacks[0].pool().in_use == 0));
    world.stacks[0].set_keep_alive(world.now, ids[0], Some(OPTIONS));
    world.until(30 * SECOND, |_| false);
    assert!(world.stacks[0].counter(Counter::ProbesSent) > 0);
    // It goes to sleep again, and is asked all the same.
    assert_eq!(world.stacks[0].pool().in_use, 0);
    world.until(30 * SECOND, |_| false);
    // A side that answers no more is given up in its sleep.
    world.wires[1].faults.lost = 100;
    assert!(
        world.until(60 * SECOND, |world| {
            world.stacks[0].take_end(ids[0]) == Some(End::TimedOut)
        })
    );
}
