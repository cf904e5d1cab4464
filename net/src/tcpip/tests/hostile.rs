//! Frames of all kinds, and segments that somebody has made up.

use super::*;

#[test]
fn data_is_taken_from_where_it_lies_and_all_else_is_not() {
    let (mut world, ids) = in_mid_conversation();
    assert!(world.until(SECOND, |world| peek(world, 1, ids[1]).len() == 1000));
    let (sent, expected) = world.stacks[1].numbers(ids[1]);
    let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
    let say = |world: &World, flags, sequence, data: &[u8]| {
        let bare = Bare { flags, sequence, acknowledgement: sent, window: 4096, ..Bare::default() };
        segment_to(world, ids, bare, data)
    };
    let admit = |world: &mut World, offload, frame: &[u8], bytes| {
        let World { stacks, wires, .. } = world;
        stacks[1].admit_in_place(0, offload, (frame, bytes), &mut wires[1])
    };
    let frame = say(&world, ACK, expected, &[7; 500]);
    let admitted = admit(&mut world, offload, &frame, frame.len()).unwrap();
    let in_place = |start| FrameInPlace { offload, start, rest: None };
    world.stacks[1].receive_in_place(world.now, admitted, in_place(&frame));
    assert_eq!(peek(&world, 1, ids[1])[1000..], [7; 500]);
    // What is not there any more is as if it had not come.
    let expected = expected + 500;
    let frame = say(&world, ACK, expected, &[8; 500]);
    let admitted = admit(&mut world, offload, &frame[..200], frame.len()).unwrap();
    world.stacks[1].receive_in_place(world.now, admitted, in_place(&frame[..200]));
    assert_eq!(peek(&world, 1, ids[1]).len(), 1500);
    // Somebody else's acknowledgement is answered later, when there is a link.
    let beyond = Bare {
        flags: ACK,
        sequence: expected,
        acknowledgement: sent + 9,
        window: 1,
        ..Bare::default()
    };
    let frame = segment_to(&world, ids, beyond, &[9; 10]);
    let admitted = admit(&mut world, offload, &frame, frame.len()).unwrap();
    world.stacks[1].receive_in_place(world.now, admitted, in_place(&frame));
    world.until(1000, |_| false);
    assert_eq!(world.stacks[1].counter(Counter::ChallengesSent), 1);
    for (flags, data) in [(ACK, 0), (ACK | FIN, 10), (ACK | RST, 10), (SYN, 10), (FIN, 10)] {
        let frame = say(&world, flags, expected, &vec![1; data]);
        assert!(admit(&mut world, offload, &frame, frame.len()).is_none(), "{flags:x}");
    }
    let frame = say(&world, ACK, expected, &[1; 100]);
    assert!(admit(&mut world, Offload::NONE, &frame, frame.len()).is_none(), "not verified");
    assert!(admit(&mut world, offload, &frame, frame.len() - 1).is_none(), "shorter than it says");
    for bytes in 0..54 {
        assert!(admit(&mut world, offload, &frame[..bytes], frame.len()).is_none(), "{bytes}");
    }
}

#[test]
fn reset_is_believed_at_the_next_byte_alone() {
    let (mut world, ids) = in_mid_conversation();
    assert!(world.until(SECOND, |world| peek(world, 1, ids[1]).len() == 1000));
    let (_, expected) = world.stacks[1].numbers(ids[1]);
    let reset =
        |sequence| Bare { flags: RST, sequence, acknowledgement: 0, window: 0, ..Bare::default() };
    for sequence in [expected.wrapping_sub(1), expected + 1, expected + 5000] {
        let frame = segment_to(&world, ids, reset(sequence), &[]);
        inject(&mut world, Offload::NONE, &frame);
    }
    assert_eq!(world.stacks[1].counter(Counter::OutOfWindow), 3);
    // One in half a second.
    assert_eq!(world.stacks[1].counter(Counter::ChallengesSent), 1);
    world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), ()));
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Nothing);
    let begin =
        Bare { flags: SYN, sequence: expected, acknowledgement: 0, window: 100, ..Bare::default() };
    let frame = segment_to(&world, ids, begin, &[]);
    world.now += SECOND;
    inject(&mut world, Offload::NONE, &frame);
    assert_eq!(world.stacks[1].counter(Counter::ChallengesSent), 2);
    let frame = segment_to(&world, ids, reset(expected), &[]);
    inject(&mut world, Offload::NONE, &frame);
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Failed);
    assert_eq!(world.stacks[1].take_end(ids[1]), Some(End::Reset));
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Finished);
    assert_eq!(world.stacks[1].writable(ids[1]), Writable::Closed);
}

#[test]
fn end_behind_more_than_was_asked_for_is_not_the_end() {
    let options = Options { receive_bytes: 4096, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let ids = world.connect();
    let (sent, expected) = world.stacks[1].numbers(ids[1]);
    let bare = Bare {
        flags: ACK | FIN,
        sequence: expected,
        acknowledgement: sent,
        window: 4096,
        ..Bare::default()
    };
    let frame = segment_to(&world, ids, bare, &[7; 5000]);
    inject(&mut world, Offload::NONE, &frame);
    let taken = world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), bytes.len()));
    assert_eq!(taken, Some(4096));
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Nothing);
}

#[test]
fn side_that_says_each_byte_by_itself_costs_no_more_than_another() {
    let mut world = World::plain();
    let (from, to) = (SocketAddr::new([10, 1, 7, 7].into(), 1024), world.at(1, 7));
    world.stacks[1].listen(to, 8).unwrap();
    let numbers = forge_connection_with(&mut world, from, to, [1, 1, 4, 2]);
    let (sequence, acknowledgement) = numbers;
    let say = |world: &mut World, sequence: u32, ranges: &[u32], data: &[u8]| {
        let mut frame = packet::begin(from.ip(), to.ip(), packet::TCP, 20 + 4 + 8 + data.len());
        frame.extend([from.port().to_be_bytes(), to.port().to_be_bytes()].concat());
        frame.extend([sequence.to_be_bytes(), acknowledgement.to_be_bytes()].concat());
        frame.extend([8 << 4, ACK, 255, 255, 0, 0, 0, 0, 1, 1, 5, 10]);
        frame.extend(ranges.iter().flat_map(|number| number.to_be_bytes()));
        frame.extend(data);
        address(&mut frame, MACS[1], MACS[0]);
        inject(world, Offload { checksum: Checksum::Verified, ..Offload::NONE }, &frame);
    };
    say(&mut world, sequence, &[0, 0], &[]);
    let (id, _) = world.stacks[1].accept(to).unwrap();
    put(&mut world, 1, id, 60_000);
    world.step_before(world.now);
    let begin = std::time::Instant::now();
    for number in 0..14_000 {
        let byte = acknowledgement.wrapping_add(1 + 2 * number);
        say(&mut world, sequence, &[byte, byte.wrapping_add(1)], &[]);
        say(&mut world, sequence + 1 + 2 * number, &[0, 0], b"x");
    }
    eprintln!("{:?} for 28,000 segments", begin.elapsed());
    let (pieces, ranges) = world.stacks[1].pieces(id);
    assert!(pieces < 300 && ranges <= 256, "{pieces} pieces, {ranges} ranges");
}

#[test]
fn address_that_its_sender_has_not_registered_is_dropped() {
    let mut world = World::plain();
    let to = world.at(1, 7);
    world.stacks[1].listen(to, 8).unwrap();
    let bare = Bare { flags: SYN, sequence: 0, acknowledgement: 0, window: 100, ..Bare::default() };
    let mut frame = packet::bare(SocketAddr::new(STRANGER, 1024), to, bare);
    packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[1], MACS[0]);
    let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
    inject(&mut world, offload, &frame);
    assert_eq!(world.stacks[1].counts(), (0, 0));
    assert_eq!(world.stacks[1].counter(Counter::BadSource), 1);
}

#[test]
fn segments_that_acknowledge_nothing_new_do_not_keep_a_silent_side() {
    let (mut world, ids) = in_mid_conversation();
    assert!(
        world.until(5 * SECOND, |world| world.stacks.iter().all(|stack| stack.due().is_none()))
    );
    let (sequence, _) = world.stacks[0].numbers(ids[0]);
    put(&mut world, 1, ids[1], 1);
    for wire in &mut world.wires {
        wire.faults.lost = 100;
    }
    let now = world.now;
    let (next, _) = world.stacks[1].numbers(ids[1]);
    for _ in 0..118 {
        world.until(SECOND, |_| false);
        let bare =
            Bare { flags: ACK, sequence, acknowledgement: next, window: 1000, ..Bare::default() };
        let frame = segment_to(&world, ids, bare, &[]);
        inject(&mut world, Offload::NONE, &frame);
    }
    assert!(world.until(9 * SECOND, |world| world.stacks[1].writable(ids[1]) == Writable::Failed));
    assert_eq!(world.stacks[1].take_end(ids[1]), Some(End::TimedOut));
    assert_eq!((world.now - now) / SECOND, 120);
}

#[test]
fn reset_is_believed_after_a_side_has_begun_to_send_again() {
    let mut world = World::plain();
    let ids = world.connect();
    world.wires[1].faults.lost = 100;
    put(&mut world, 0, ids[0], 100_000);
    world.until(5 * SECOND / 2, |_| false);
    world.wires[1].faults.lost = 0;
    world.stacks[0].abort(ids[0]);
    let has_ended = world.until(SECOND / 10, |world| {
        world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), ()));
        world.stacks[1].readable(ids[1]) == Readable::Failed
    });
    assert!(has_ended);
    assert_eq!(world.stacks[1].counter(Counter::OutOfWindow), 0);
    assert_eq!(world.stacks[1].take_end(ids[1]), Some(End::Reset));
}

#[test]
fn blind_byte_does_not_reset_a_connection_that_is_being_closed() {
    let (mut world, ids) = in_mid_conversation();
    assert!(world.until(SECOND, |world| peek(world, 1, ids[1]).len() == 1000));
    world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), ()));
    let (next, expected) = world.stacks[1].numbers(ids[1]);
    world.stacks[1].close(ids[1]);
    world.until(SECOND, |_| false);
    assert_eq!(world.stacks[1].counts(), (1, 0));
    let say = |world: &mut World, sequence, acknowledgement| {
        let bare = Bare { flags: ACK, sequence, acknowledgement, window: 1000, ..Bare::default() };
        let frame = segment_to(world, ids, bare, &[7]);
        inject(world, Offload::NONE, &frame);
        world.until(SECOND, |_| false);
    };
    for (sequence, acknowledgement) in
        [(expected + 5, next), (expected.wrapping_add(1 << 30), next), (expected, next + 70_000)]
    {
        say(&mut world, sequence, acknowledgement);
    }
    assert_eq!(world.stacks[1].counts(), (1, 0));
    assert_eq!(world.stacks[1].counter(Counter::ChallengesSent), 3);
    // The other side knows where it is.
    say(&mut world, expected, next);
    assert_eq!(world.stacks[1].counts(), (0, 0));
    assert_eq!(world.stacks[0].writable(ids[0]), Writable::Failed);
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::Unwanted));
    assert_eq!(world.stacks[0].writable(ids[0]), Writable::Closed);
}

#[test]
fn times_without_end_are_no_overflow() {
    let options = Options {
        silence_max: Duration::MAX,
        connect_max: Duration::MAX,
        time_wait: Duration::MAX,
        acknowledge_after: Duration::MAX,
        ..Options::default()
    };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let ids = world.connect();
    assert_eq!(transfer(&mut world, ids, 100_000), [Outcome::Complete, Outcome::Complete]);
    for side in [0, 1] {
        world.stacks[side].close(ids[side]);
    }
    assert!(world.until(60 * SECOND, |world| world.stacks.iter().all(Stack::is_quiet)));
}

proptest! {
    #[test]
    fn no_frame_of_any_kind_brings_a_stack_down(
        frames in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..200), any::<bool>(), 0..6usize),
            1..40,
        ),
    ) {
        let (mut world, ids) = in_mid_conversation();
        let (local, remote) = world.stacks[0].ends(ids[0]).unwrap();
        for (bytes, is_trusted, kind) in frames {
            let checksum = if is_trusted { Checksum::Verified } else { Checksum::Unknown };
            let offload = Offload { checksum, ..Offload::NONE };
            // What is random from the first byte on gets no further than the first check: so most of it begins well.
            let mut frame = match kind {
                0 => bytes,
                1 => packet::begin(local.ip(), remote.ip(), packet::TCP, bytes.len()),
                2 => packet::begin(local.ip(), remote.ip(), packet::UDP, bytes.len()),
                3 => packet::begin(local.ip(), remote.ip(), packet::ICMP, bytes.len()),
                _ => {
                    let mut frame = packet::begin(local.ip(), remote.ip(), packet::TCP, bytes.len() + 4);
                    frame.extend_from_slice(&local.port().to_be_bytes());
                    frame.extend_from_slice(&remote.port().to_be_bytes());
                    frame.extend_from_slice(&bytes);
                    frame
                }
            };
            if (1..4).contains(&kind) {
                frame.resize(frame.len() + 60, 0x5a);
            }
            if kind > 0 {
                address(&mut frame, MACS[1], MACS[0]);
            }
            let World { stacks, wires, .. } = &mut world;
            let start = &frame[..frame.len().min(134)];
            let admitted = stacks[1].admit_in_place(0, offload, (start, frame.len()), &mut wires[1]);
            match admitted {
                Some(admitted) => {
                    let frame = FrameInPlace { offload, start: &frame, rest: None };
                    stacks[1].receive_in_place(0, admitted, frame);
                }
                None => inject(&mut world, offload, &frame),
            }
            world.step();
        }
        // Another connection works as if nothing had been.
        let ids = world.connect();
        let outcomes = transfer(&mut world, ids, 10_000);
        prop_assert_eq!(outcomes, [Outcome::Complete, Outcome::Complete]);
    }

    #[test]
    fn forged_segments_end_no_connection_and_change_no_byte(
        forged in prop::collection::vec(
            (any::<u32>(), any::<u32>(), any::<u8>(), any::<u16>(), 0..50usize),
            1..40,
        ),
    ) {
        let (mut world, ids) = in_mid_conversation();
        for (sequence, acknowledgement, flags, window, bytes) in forged {
            // Whoever guesses the window of 256 KiB among 4 GiB has guessed well: that is not defended against.
            let (_, expected) = world.stacks[1].numbers(ids[1]);
            let distance = sequence.wrapping_sub(expected).wrapping_add(1 << 20);
            if distance < 1 << 21 {
                continue;
            }
            let bare = Bare { flags, sequence, acknowledgement, window, ..Bare::default() };
            let frame = segment_to(&world, ids, bare, &vec![0xee; bytes]);
            inject(&mut world, Offload::NONE, &frame);
            world.step();
        }
        for side in [0, 1] {
            let mut received = 0;
            let has_all = world.until(10 * SECOND, |world| {
                while let Some(count) = world.stacks[side].receive_with(ids[side], |bytes| {
                    assert!(bytes.iter().all(|byte| *byte == 1 - side as u8));
                    (bytes.len(), bytes.len())
                }) {
                    received += count;
                }
                received == 1000
            });
            prop_assert!(has_all, "{received} bytes");
            prop_assert_eq!(world.stacks[side].readable(ids[side]), Readable::Nothing);
        }
    }
}
