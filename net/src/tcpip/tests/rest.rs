//! Connections that nobody uses for a while.

use super::*;

#[test]
fn idle_connection_stays_and_costs_nothing() {
    let (mut world, ids) = in_mid_conversation();
    assert!(
        world.until(5 * SECOND, |world| world.stacks.iter().all(|stack| stack.due().is_none()))
    );
    assert!(!world.step(), "nothing is ever due");
    world.now += 86_400 * SECOND;
    for side in [0, 1] {
        assert_eq!(peek(&world, side, ids[side]).len(), 1000);
        world.stacks[side].receive_with(ids[side], |bytes| (bytes.len(), ()));
    }
    assert_eq!(transfer(&mut world, ids, 1000), [Outcome::Complete, Outcome::Complete]);
}

/// Nothing is under way, and nothing has to be done.
fn come_to_rest(world: &mut World) {
    assert!(world.until(5 * SECOND, |world| {
        world.stacks.iter().all(|stack| stack.pool().in_use == 0 && stack.due().is_none())
    }));
}

#[test]
fn connection_that_rests_has_no_buffers_and_goes_on() {
    for (family, mtu) in [(0, 1500), (0, 57_344), (1, 1500)] {
        let options = Options { mtu, ..Options::default() };
        let mut world = World::new(1, Faults::default(), false, options, family);
        let ids = world.connect();
        world.stacks[1].set_no_delay(ids[1], true);
        let mut received = [0; 2];
        // So much that all sequence numbers are far from the first.
        for (round, bytes) in [(0, 5), (1, 200_000), (2, 1), (3, 70_000), (4, 3)] {
            let side = round % 2;
            put(&mut world, side, ids[side], bytes);
            assert!(world.until(SECOND / 2, |world| {
                let stack = &mut world.stacks[1 - side];
                while let Some(count) =
                    stack.receive_with(ids[1 - side], |bytes| (bytes.len(), bytes.len()))
                {
                    received[side] += count;
                }
                received[side] >= bytes
            }));
            received = [0; 2];
            come_to_rest(&mut world);
            for side in [0, 1] {
                assert_eq!(world.stacks[side].readable(ids[side]), Readable::Nothing);
                assert_eq!(world.stacks[side].writable(ids[side]), Writable::Room);
                assert_eq!(peek(&world, side, ids[side]), b"");
            }
        }
        assert_eq!(transfer(&mut world, ids, 300_000), [Outcome::Complete, Outcome::Complete]);
        let count = |counter| [0, 1].map(|side: usize| world.stacks[side].counter(counter));
        assert_eq!(count(Counter::ResetsSent), [0, 0]);
        assert_eq!(count(Counter::ChallengesSent), [0, 0]);
    }
}

#[test]
fn connection_that_rests_is_closed_and_reset() {
    type Act = fn(&mut Stack, ConnectionId);
    let ends: [(Act, Readable); 4] = [
        (|stack, id| stack.close(id), Readable::Finished),
        (|stack, id| stack.shut_sending(id), Readable::Finished),
        (|stack, id| stack.abort(id), Readable::Failed),
        (|stack, _| stack.abort_all(), Readable::Failed),
    ];
    for (end, readable) in ends {
        let mut world = World::plain();
        let ids = world.connect();
        come_to_rest(&mut world);
        end(&mut world.stacks[0], ids[0]);
        assert!(world.until(SECOND, |world| world.stacks[1].readable(ids[1]) == readable));
    }
}

#[test]
fn connections_that_rest_are_asked_a_few_at_a_time() {
    let mut world = World::plain();
    let all: Vec<_> = (0..150).map(|_| world.connect()).collect();
    come_to_rest(&mut world);
    let count = |world: &World, counter| [0, 1].map(|at: usize| world.stacks[at].counter(counter));
    let sent = count(&world, Counter::FramesSent);
    let host = world.at(1, 0).ip();
    world.stacks[0].question(host);
    world.stacks[0].question(host);
    // One call asks some of them, and says that there is more to do.
    let World { stacks, wires, now } = &mut world;
    wires[0].now = *now;
    assert!(stacks[0].poll(*now, &mut wires[0]));
    let asked = stacks[0].counter(Counter::FramesSent) - sent[0];
    assert!((1..100).contains(&asked), "{asked} of 150 at once");
    world.until(10 * SECOND, |_| false);
    assert_eq!(count(&world, Counter::FramesSent), sent.map(|sent| sent + 150));
    // One that does not answer is asked each second, and ends.
    world.wires[1].faults.lost = 100;
    world.stacks[0].question(host);
    world.until(20 * SECOND, |_| false);
    assert_eq!(count(&world, Counter::ProbesSent), [150 * 19, 0]);
    world.until(200 * SECOND, |_| false);
    let end = |world: &mut World, ids: &[ConnectionId; 2]| world.stacks[0].take_end(ids[0]);
    assert!(all.iter().all(|ids| end(&mut world, ids) == Some(End::TimedOut)));
    assert!(world.stacks[0].is_quiet());
}

#[test]
fn forged_segments_do_not_end_a_connection_that_rests() {
    let mut world = World::plain();
    let ids = world.connect();
    come_to_rest(&mut world);
    let number = 0x5555_5555;
    for flags in [RST, SYN, ACK, ACK | FIN] {
        let bare =
            Bare { flags, sequence: number, acknowledgement: number, window: 0, ..Bare::default() };
        let frame = segment_to(&world, ids, bare, &[1; 10]);
        inject(&mut world, Offload::NONE, &frame);
    }
    come_to_rest(&mut world);
    assert_eq!(transfer(&mut world, ids, 1000), [Outcome::Complete, Outcome::Complete]);
}
