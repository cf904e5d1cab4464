//! Pairs of ports after their connection.

use super::*;

#[test]
fn pair_of_ports_in_time_wait_answers_and_is_not_used_again() {
    let mut world = World::plain();
    let ids = world.connect();
    let (local, to) = world.stacks[0].ends(ids[0]).unwrap();
    world.stacks[0].close(ids[0]);
    assert!(world.until(SECOND, |world| world.stacks[1].readable(ids[1]) == Readable::Finished));
    let (_, expected) = world.stacks[1].numbers(ids[1]);
    world.stacks[1].close(ids[1]);
    assert!(world.until(SECOND, |world| world.stacks.iter().all(Stack::is_quiet)));
    assert_eq!((world.stacks[0].counts(), world.stacks[1].counts()), ((0, 1), (0, 0)));
    // The other side's end comes again, because our last acknowledgement might have been lost.
    let end = Bare {
        flags: FIN | ACK,
        sequence: 1,
        acknowledgement: expected,
        window: 100,
        ..Bare::default()
    };
    let mut frame = packet::bare(to, local, end);
    packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[0], MACS[1]);
    let sent = world.stacks[0].counter(Counter::FramesSent);
    let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
    let frame = Frame { offload, bytes: &frame };
    world.stacks[0].receive(world.now, 0, frame, &mut world.wires[0]);
    assert_eq!(world.stacks[0].counter(Counter::FramesSent), sent + 1);
    assert_eq!(world.stacks[0].counter(Counter::ResetsSent), 0);
    world.now += 11 * SECOND;
    world.stacks[0].connect(world.now, to).unwrap();
    assert_eq!(world.stacks[0].counts(), (1, 0));
}

#[test]
fn pair_of_ports_in_time_wait_is_used_again_behind_its_last_bytes() {
    for number in 0..20u8 {
        let mut world = World::plain();
        world.stacks[1] =
            Stack::new(MACS[1], &[[10, 1, 0, 2].into()], Options::default(), Secret([number; 16]));
        let ids = world.connect();
        let (from, to) = world.stacks[0].ends(ids[0]).unwrap();
        world.stacks[1].close(ids[1]);
        assert!(
            world.until(SECOND, |world| world.stacks[0].readable(ids[0]) == Readable::Finished)
        );
        let (last, _) = world.stacks[0].numbers(ids[0]);
        let (_, end) = world.stacks[0].numbers(ids[0]);
        world.stacks[0].close(ids[0]);
        assert!(world.until(SECOND, |world| world.stacks.iter().all(Stack::is_quiet)));
        assert_eq!(world.stacks[1].counts(), (0, 1));
        let say = |world: &mut World, flags, sequence| {
            let bare =
                Bare { flags, sequence, acknowledgement: 0, window: 1000, ..Bare::default() };
            let mut frame = packet::bare(from, to, bare);
            packet::leave_checksum(&mut frame);
            address(&mut frame, MACS[1], MACS[0]);
            let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
            inject(world, offload, &frame);
            let (_, (_, answer)) = world.wires[1].under_way.pop_last().unwrap();
            let answer = packet::Packet::parse(&answer).unwrap();
            packet::Segment::parse(answer.transport()).unwrap()
        };
        // One that was under way for long is told where the last connection ended, and changes nothing.
        let old = say(&mut world, SYN, last.wrapping_sub(1));
        assert_eq!((old.flags, old.sequence, old.acknowledgement), (ACK, end, last + 1));
        assert_eq!(world.stacks[1].counts(), (0, 1));
        if number % 2 == 0 {
            // It is told that this is no part of any connection: then one with lower numbers is as good as another.
            for (sequence, left) in [(last.wrapping_add(2), 1), (last.wrapping_add(1), 0)] {
                let bare =
                    Bare { flags: RST, sequence, acknowledgement: 0, window: 0, ..Bare::default() };
                let mut frame = packet::bare(from, to, bare);
                packet::leave_checksum(&mut frame);
                address(&mut frame, MACS[1], MACS[0]);
                let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
                inject(&mut world, offload, &frame);
                assert_eq!(world.stacks[1].counts(), (0, left));
            }
            let again = say(&mut world, SYN, last.wrapping_sub(1));
            assert_eq!((again.flags, again.acknowledgement), (SYN | ACK, last));
            continue;
        }
        let new = say(&mut world, SYN, last.wrapping_add(10));
        assert_eq!((new.flags, new.acknowledgement), (SYN | ACK, last + 11));
        assert!((new.sequence.wrapping_sub(end) as i32) > 0, "it begins behind the last one");
        assert_eq!(world.stacks[1].counts(), (1, 0));
    }
}
