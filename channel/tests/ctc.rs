//! Channel programs of two guests that meet in a channel-to-channel adapter.

mod world;

use channel::ctc::adapter::Side::{Left, Right};
use channel::ctc::adapter::State;
use channel::ctc::command::code;
use channel::ctc::line::{End, Line, LineEvent, NOP, StartError, ccw, chained};
use channel::ctc::unit::{LINES_MAX, READ_SUBCHANNEL, Unit, WRITE_SUBCHANNEL};
use channel::exchange::{Broken, Head, Kind, Link, flag, pair};
use channel::format::ccw::{Ccw, CcwFlags, CcwFormat};
use channel::format::orb::{ALL_PATHS, Orb, OrbFlags};
use channel::format::scsw::{CONDITION_CODE, DEFERRED_1, DeviceStatus, SubchannelStatus, control};
use channel::format::tcw::{Stream, TCW_BYTES, Tcw};
use channel::{client, request};
use fabric::path::Terms;

use world::{BLOCK_BYTES, Guest, World, path};

const SLI: CcwFlags = CcwFlags::SUPPRESS_LENGTH;
const ATTENTION: DeviceStatus = DeviceStatus::ATTENTION;

/// A line with both guests, in extended mode, as drivers make it: the guest that comes first finds that its peer is not ready, and is told
/// when it is.
fn line() -> (World, Guest, Guest) {
    let mut world = World::new(1);
    let mut left = world.guest(0, Left);
    let mut right = world.guest(0, Right);
    for (subchannel, peers) in
        [(READ_SUBCHANNEL, WRITE_SUBCHANNEL), (WRITE_SUBCHANNEL, READ_SUBCHANNEL)]
    {
        let mut set = |guest: &mut Guest, subchannel, end| {
            guest.line.set_extended_mode(subchannel, &mut guest.sender).unwrap();
            world.run();
            assert_eq!(ended(guest), (subchannel, end, 0));
        };
        set(&mut left, subchannel, End::Check(0x40));
        set(&mut right, peers, End::Done);
        let status = DeviceStatus::DEVICE_END;
        assert_eq!(left.poll(), Some(LineEvent::Interruption { subchannel, status }));
        set(&mut left, subchannel, End::Done);
    }
    (world, left, right)
}

/// The program that has ended next: where, how, and how many bytes it has read.
fn ended(guest: &mut Guest) -> (u16, End, u32) {
    match guest.poll() {
        Some(LineEvent::Ended { subchannel, end, bytes, .. }) => (subchannel, end, bytes),
        other => panic!("{other:?}"),
    }
}

/// Starts a program, and lets everybody work.
fn start(world: &mut World, guest: &mut Guest, subchannel: u16, program: &[Ccw]) {
    guest.line.start(subchannel, program, &mut guest.sender).unwrap();
    world.run();
}

/// The status of the program that has ended next.
fn status(guest: &mut Guest) -> (DeviceStatus, SubchannelStatus, u16) {
    match guest.poll() {
        Some(LineEvent::Ended { status, .. }) => (status.device, status.subchannel, status.count),
        other => panic!("{other:?}"),
    }
}

const ENDED: (DeviceStatus, SubchannelStatus, u16) = (DeviceStatus::ENDED, SubchannelStatus(0), 0);

#[test]
fn blocks_go_both_ways_as_ctcm_sends_them() {
    let (mut world, mut left, mut right) = line();
    let before = world.unit.counters();
    left.read();
    right.read();
    world.run();
    assert_eq!((left.poll(), right.poll()), (None, None), "nobody has written");
    for number in 0..100_u32 {
        let block: Vec<u8> = (0..1 + number * 7).map(|at| (at * 3 + number) as u8).collect();
        let other: Vec<u8> = block.iter().rev().copied().chain([9]).collect();
        left.write(&block);
        right.write(&other);
        world.run();
        for (guest, expected) in [(&mut right, &block), (&mut left, &other)] {
            let mut found = [ended(guest)];
            if found[0].0 == WRITE_SUBCHANNEL {
                assert_eq!(found[0], (WRITE_SUBCHANNEL, End::Done, 0));
                found = [ended(guest)];
            }
            assert_eq!(found, [(READ_SUBCHANNEL, End::Done, expected.len() as u32)]);
            assert_eq!(guest.block(), *expected);
            while let Some(event) = guest.poll() {
                let is_write = matches!(
                    event,
                    LineEvent::Ended { subchannel: WRITE_SUBCHANNEL, end: End::Done, .. }
                );
                assert!(is_write, "{event:?}");
            }
            guest.read();
        }
    }
    let counters = world.unit.counters();
    assert_eq!((counters.transfers, counters.collisions), (200, 0));
    assert_eq!(counters.interruptions, before.interruptions);
}

#[test]
fn write_waits_until_the_peer_reads_and_calls_it() {
    let (mut world, mut left, mut right) = line();
    left.write(b"a block");
    world.run();
    assert_eq!((left.poll(), right.poll()), (None, None), "PREPARE waits, and calls nobody");
    right.read();
    world.run();
    assert_eq!(ended(&mut right), (READ_SUBCHANNEL, End::Done, 7));
    assert_eq!(right.block(), b"a block");
    assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Done, 0));

    // Without PREPARE the peer is called. Nothing is kept in the adapter: the write has not ended.
    let address = left.line.write_address();
    left.line.write_buffer()[..4].copy_from_slice(b"next");
    start(&mut world, &mut left, WRITE_SUBCHANNEL, &[ccw(code::WRITE, SLI, 4, address)]);
    let called = LineEvent::Interruption { subchannel: READ_SUBCHANNEL, status: ATTENTION };
    assert_eq!((left.poll(), right.poll()), (None, Some(called)));
    assert_eq!(world.unit.state(0, Left, WRITE_SUBCHANNEL), Some(State::Write));
    // The peer asks why, and reads.
    let sense = ccw(code::SENSE_COMMAND_BYTE, CcwFlags(0), 1, right.line.read_address());
    start(&mut world, &mut right, READ_SUBCHANNEL, &[sense]);
    assert_eq!(status(&mut right), ENDED);
    assert_eq!(right.block(), [code::WRITE]);
    right.read();
    world.run();
    assert_eq!(ended(&mut right), (READ_SUBCHANNEL, End::Done, 4));
    assert_eq!(
        (right.block(), ended(&mut left)),
        (b"next".to_vec(), (WRITE_SUBCHANNEL, End::Done, 0))
    );
}

#[test]
fn lengths_are_the_lesser_of_both_and_the_longer_side_has_the_residual() {
    let (mut world, mut left, mut right) = line();
    let (from, to) = (left.line.write_address(), right.line.read_address());
    left.line.write_buffer()[..100].copy_from_slice(&[7; 100]);
    let none = CcwFlags(0);
    let incorrect = SubchannelStatus::INCORRECT_LENGTH;
    for (flags, written, read, writer, reader) in [
        (none, 100, 100, ENDED, ENDED),
        (none, 100, 40, (DeviceStatus::ENDED, incorrect, 60), ENDED),
        (none, 40, 100, ENDED, (DeviceStatus::ENDED, incorrect, 60)),
        (SLI, 100, 40, (DeviceStatus::ENDED, SubchannelStatus(0), 60), ENDED),
        (SLI, 40, 100, ENDED, (DeviceStatus::ENDED, SubchannelStatus(0), 60)),
    ] {
        start(&mut world, &mut left, WRITE_SUBCHANNEL, &[ccw(code::WRITE, flags, written, from)]);
        right.poll();
        start(&mut world, &mut right, READ_SUBCHANNEL, &[ccw(code::READ, flags, read, to)]);
        assert_eq!(status(&mut right), reader, "{flags:?} {written} {read}");
        assert_eq!(right.block(), vec![7; written.min(read).into()]);
        assert_eq!(status(&mut left), writer, "{flags:?} {written} {read}");
    }
    // A wrong length ends the chain.
    let chain = [ccw(code::WRITE, CcwFlags::CHAIN_COMMAND, 100, from), NOP];
    start(&mut world, &mut left, WRITE_SUBCHANNEL, &chain);
    right.poll();
    start(&mut world, &mut right, READ_SUBCHANNEL, &[ccw(code::READ, none, 40, to)]);
    assert_eq!(status(&mut left), (DeviceStatus::ENDED, incorrect, 60));
}

#[test]
fn both_sides_that_write_at_once_collide() {
    let (mut world, mut left, mut right) = line();
    let address = left.line.write_address();
    let write = [ccw(code::WRITE, SLI, 4, address)];
    // Left's write subchannel is the same adapter as right's read subchannel.
    start(&mut world, &mut left, WRITE_SUBCHANNEL, &write);
    assert!(matches!(right.poll(), Some(LineEvent::Interruption { .. })));
    start(&mut world, &mut right, READ_SUBCHANNEL, &write);
    let Some(LineEvent::Ended { end, status, .. }) = right.poll() else { panic!("no end") };
    assert_eq!((end, status.device), (End::Collided, DeviceStatus(0x90)));
    assert_eq!(status.conditions & CONDITION_CODE, DEFERRED_1);
    assert_eq!(status.control & control::STATUS, 0x17);
    assert_eq!((left.poll(), world.unit.counters().collisions), (None, 1));
    // In a chain the program was begun.
    let chain = [chained(code::SENSE_ID, 7, right.line.read_address()), write[0]];
    start(&mut world, &mut right, READ_SUBCHANNEL, &chain);
    let Some(LineEvent::Ended { end, status, .. }) = right.poll() else { panic!("no end") };
    assert_eq!((end, status.conditions & CONDITION_CODE), (End::Collided, 0));
}

#[test]
fn control_ends_when_the_peer_has_sensed_its_command_byte() {
    let (mut world, mut left, mut right) = line();
    start(&mut world, &mut left, WRITE_SUBCHANNEL, &[ccw(0x17, SLI, 0, 0)]);
    let called = LineEvent::Interruption { subchannel: READ_SUBCHANNEL, status: ATTENTION };
    assert_eq!((right.poll(), left.poll()), (Some(called), None));
    let sense = [ccw(0x14, CcwFlags(0), 1, right.line.read_address())];
    start(&mut world, &mut right, READ_SUBCHANNEL, &sense);
    assert_eq!(status(&mut right), ENDED);
    assert_eq!((right.block(), status(&mut left)), (vec![0x17], ENDED));
    // There is nothing to be sensed now.
    start(&mut world, &mut right, READ_SUBCHANNEL, &sense);
    assert_eq!((status(&mut right), right.block()), (ENDED, vec![0]));
}

#[test]
fn end_of_a_file_is_a_unit_exception_of_the_read() {
    let (mut world, mut left, mut right) = line();
    let read = [ccw(code::READ, SLI, 100, right.line.read_address())];
    start(&mut world, &mut right, READ_SUBCHANNEL, &read);
    assert!(matches!(left.poll(), Some(LineEvent::Interruption { .. })));
    left.line.write_end_of_file(&mut left.sender).unwrap();
    world.run();
    assert_eq!(ended(&mut right), (READ_SUBCHANNEL, End::EndOfFile, 0));
    assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Done, 0));
    // One that no READ waits for is brought by the next READ, behind its PREPARE, and the block behind it by the one after that.
    left.line.write_end_of_file(&mut left.sender).unwrap();
    world.run();
    assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Done, 0));
    left.write(b"behind");
    right.read();
    world.run();
    assert_eq!(ended(&mut right), (READ_SUBCHANNEL, End::EndOfFile, 0));
    // The program has ended, and the peer still waits.
    let called = LineEvent::Interruption { subchannel: READ_SUBCHANNEL, status: ATTENTION };
    assert_eq!(right.poll(), Some(called));
    right.read();
    world.run();
    assert_eq!(
        (ended(&mut right), right.block()),
        ((READ_SUBCHANNEL, End::Done, 6), b"behind".to_vec())
    );
    assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Done, 0));
}

#[test]
fn end_of_a_file_reaches_a_reader_that_waits_in_prepare_and_one_that_comes_later() {
    let (mut world, mut left, mut right) = line();
    for is_reader_first in [true, false] {
        if is_reader_first {
            right.read();
            world.run();
            assert_eq!(world.unit.state(0, Right, READ_SUBCHANNEL), Some(State::Prepare));
        }
        // The writer writes nothing after that.
        left.line.write_end_of_file(&mut left.sender).unwrap();
        world.run();
        assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Done, 0));
        if !is_reader_first {
            right.read();
            world.run();
        }
        assert_eq!(ended(&mut right), (READ_SUBCHANNEL, End::EndOfFile, 0), "{is_reader_first}");
        // It is there once.
        right.read();
        world.run();
        assert_eq!((right.poll(), left.poll()), (None, None));
        left.write(b"block");
        world.run();
        assert_eq!(
            (ended(&mut right), right.block()),
            ((READ_SUBCHANNEL, End::Done, 5), b"block".to_vec())
        );
        assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Done, 0));
    }
}

#[test]
fn basic_mode_has_no_end_of_file() {
    let mut world = World::new(1);
    let (mut left, mut right) = (world.guest(0, Left), world.guest(0, Right));
    left.line.write_buffer()[0] = 0x55;
    right.read();
    world.run();
    left.line.write_end_of_file(&mut left.sender).unwrap();
    world.run();
    assert_eq!((ended(&mut right), right.block()), ((READ_SUBCHANNEL, End::Done, 1), vec![0x55]));
    assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Done, 0));
}

#[test]
fn commands_of_the_device_itself_are_answered_without_a_peer() {
    let mut world = World::new(1);
    let mut left = world.guest(0, Left);
    let to = left.line.read_address();
    for subchannel in [READ_SUBCHANNEL, WRITE_SUBCHANNEL] {
        start(&mut world, &mut left, subchannel, &[ccw(code::SENSE_ID, CcwFlags(0), 7, to)]);
        assert_eq!(status(&mut left), ENDED);
        assert_eq!(left.block(), [0xff, 0x30, 0x88, 0x08, 0, 0, 1]);
        start(&mut world, &mut left, subchannel, &[ccw(code::SENSE, CcwFlags(0), 32, to)]);
        let short = (DeviceStatus::ENDED, SubchannelStatus::INCORRECT_LENGTH, 30);
        assert_eq!((status(&mut left), left.block()), (short, vec![0, 0]));
        start(&mut world, &mut left, subchannel, &[ccw(code::READ_CONFIGURATION, SLI, 128, to)]);
        let empty = (DeviceStatus::ENDED, SubchannelStatus(0), 128);
        assert_eq!((status(&mut left), left.block()), (empty, vec![]));
    }
}

#[test]
fn what_no_adapter_has_is_rejected_and_sense_says_so_once() {
    let (mut world, mut left, _right) = line();
    let to = left.line.read_address();
    // Commands that are none, and READ BACKWARD, which the channel does not store.
    for command in [0x0c, 0x24, 0xd3, 0xf3, 0xfc] {
        start(&mut world, &mut left, READ_SUBCHANNEL, &[ccw(command, SLI, 4, to)]);
        let Some(LineEvent::Ended { end, status, .. }) = left.poll() else { panic!("no end") };
        assert_eq!((end, status.device), (End::Check(0x80), DeviceStatus::UNIT_CHECK));
        for sense in [0x80, 0] {
            start(&mut world, &mut left, READ_SUBCHANNEL, &[ccw(code::SENSE, SLI, 2, to)]);
            assert_eq!((status_is_done(left.poll()), left.block()), (true, vec![sense, 0]));
        }
    }
    // A code that no channel has as a command.
    start(&mut world, &mut left, READ_SUBCHANNEL, &[ccw(0x20, SLI, 4, to)]);
    assert_eq!(status(&mut left).1, SubchannelStatus::PROGRAM_CHECK);
}

fn status_is_done(event: Option<LineEvent>) -> bool {
    matches!(event, Some(LineEvent::Ended { end: End::Done, .. }))
}

#[test]
fn transport_mode_is_rejected() {
    let mut world = World::new(1);
    let (theirs, mut ours) = path();
    world.sides.0.push(Some(theirs));
    let (sender, _) = world.sides.0[0].as_mut().unwrap();
    let wish = channel::ctc::unit::use_of(0, Left);
    world.channel.attach(0, sender, wish).unwrap();
    let mut client = client::Client::new(1 << 16, &mut ours.0).unwrap();
    world.run();
    assert!(matches!(client.poll(&mut ours.1), Ok(Some(client::Event::Attached(_)))));
    let input = Some(Stream { address: 0x2000, count: 16, is_indirect: false });
    let tcw = Tcw { input, tsb: 0x200, tccb: 0x100, tccb_bytes: 32, ..Tcw::default() };
    client.storage()[..TCW_BYTES].copy_from_slice(&tcw.emit());
    let orb = Orb { flags: OrbFlags::TRANSPORT, paths: ALL_PATHS, program: 0, ..Orb::default() };
    for _ in 0..3 {
        client.start(0, &orb, &mut ours.0).unwrap();
        world.run();
        let ended = client.poll(&mut ours.1).unwrap();
        assert!(matches!(ended, Some(client::Event::Ended { subchannel: 0, .. })), "{ended:?}");
        let answer = client.answer();
        assert_eq!(answer.scsw.device, DeviceStatus::UNIT_CHECK, "{:x?}", answer.scsw);
        assert_eq!(answer.sense.unwrap().0[0], 0x80);
    }
}

#[test]
fn halt_and_clear_end_a_program_and_reset_its_side() {
    for kind in [request::Kind::Halt, request::Kind::Clear] {
        let stop = |guest: &mut Guest, subchannel| match kind {
            request::Kind::Halt => guest.line.halt(subchannel, &mut guest.sender).unwrap(),
            _ => guest.line.clear(subchannel, &mut guest.sender).unwrap(),
        };
        let (mut world, mut left, mut right) = line();
        right.read();
        world.run();
        stop(&mut right, READ_SUBCHANNEL);
        world.run();
        assert_eq!(ended(&mut right), (READ_SUBCHANNEL, End::Stopped, 0));
        assert_eq!(world.unit.state(0, Right, READ_SUBCHANNEL), Some(State::NotReady));
        // The other adapter does not know of it; in this one the writer is told, and told again when the peer is ready.
        left.write(b"block");
        world.run();
        assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Check(0x41), 0));
        right.read();
        world.run();
        let ready = LineEvent::Interruption {
            subchannel: WRITE_SUBCHANNEL,
            status: DeviceStatus::DEVICE_END,
        };
        assert_eq!(left.poll(), Some(ready));
        // There is nothing to stop now.
        stop(&mut left, WRITE_SUBCHANNEL);
        world.run();
        assert_eq!(left.poll(), Some(LineEvent::Refused { subchannel: WRITE_SUBCHANNEL, code: 1 }));
    }
}

#[test]
fn halt_and_clear_of_a_side_without_a_program_reset_the_side() {
    for kind in [request::Kind::Halt, request::Kind::Clear] {
        let (mut world, mut left, mut right) = line();
        left.line.write_end_of_file(&mut left.sender).unwrap();
        world.run();
        assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Done, 0));
        left.write(b"block");
        world.run();
        match kind {
            request::Kind::Halt => right.line.halt(READ_SUBCHANNEL, &mut right.sender).unwrap(),
            _ => right.line.clear(READ_SUBCHANNEL, &mut right.sender).unwrap(),
        }
        world.run();
        // There is no program that could end, and the peer's ends.
        let refused = LineEvent::Refused { subchannel: READ_SUBCHANNEL, code: 1 };
        assert_eq!(right.poll(), Some(refused));
        assert_eq!(world.unit.state(0, Right, READ_SUBCHANNEL), Some(State::NotReady));
        assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Check(0x41), 0));
        // The other adapter does not know of it, and the end of the file is gone.
        assert_eq!(world.unit.state(0, Right, WRITE_SUBCHANNEL), Some(State::Available));
        right.read();
        world.run();
        left.write(b"block");
        world.run();
        assert_eq!(ended(&mut right), (READ_SUBCHANNEL, End::Done, 5));
    }
}

#[test]
fn halt_of_a_suspended_program_resets_the_side() {
    let mut world = World::new(1);
    let (theirs, mut ours) = path();
    world.sides.0.push(Some(theirs));
    let (sender, _) = world.sides.0[0].as_mut().unwrap();
    world.channel.attach(0, sender, channel::ctc::unit::use_of(0, Left)).unwrap();
    let mut client = client::Client::new(1 << 16, &mut ours.0).unwrap();
    world.run();
    assert!(matches!(client.poll(&mut ours.1), Ok(Some(client::Event::Attached(_)))));
    let suspended = ccw(code::NOP, SLI.with(CcwFlags::SUSPEND), 0, 0);
    for (program, at) in [chained(code::NOP, 0, 0), suspended].iter().zip([0, 8]) {
        client.storage()[at..at + 8].copy_from_slice(&program.emit(CcwFormat::One));
    }
    let flags = OrbFlags::FORMAT_1.with(OrbFlags::SUSPEND);
    let orb = Orb { flags, paths: ALL_PATHS, program: 0, ..Orb::default() };
    client.start(0, &orb, &mut ours.0).unwrap();
    world.run();
    let found = client.poll(&mut ours.1);
    assert!(matches!(found, Ok(Some(client::Event::Intermediate { .. }))), "{found:?}");
    assert_eq!(world.unit.state(0, Left, 0), Some(State::Available));
    client.request(request::Kind::Halt, 0, &mut ours.0).unwrap();
    world.run();
    let found = client.poll(&mut ours.1);
    assert!(matches!(found, Ok(Some(client::Event::Ended { subchannel: 0, .. }))), "{found:?}");
    assert_eq!(world.unit.state(0, Left, 0), Some(State::NotReady));
}

#[test]
fn guest_that_dies_in_any_state_is_as_after_a_system_reset() {
    for (command, waits) in [
        (code::PREPARE, Some(State::Prepare)),
        (0x17, Some(State::Control)),
        (code::READ, Some(State::Read)),
        (code::WRITE, Some(State::Write)),
        (code::NOP, None),
    ] {
        for is_waiting_first in [false, true] {
            let (mut world, mut left, mut right) = line();
            let address = left.line.write_address();
            let program = [ccw(command, SLI, u16::from(command != 0x17) * 4, address)];
            if is_waiting_first {
                // The survivor waits when the other dies.
                start(&mut world, &mut left, WRITE_SUBCHANNEL, &program);
                assert_eq!(
                    world.unit.state(0, Left, WRITE_SUBCHANNEL),
                    Some(waits.unwrap_or(State::Available))
                );
                if waits.is_none() {
                    assert!(status_is_done(left.poll()), "NOP waits for nobody");
                }
            } else {
                // The one that dies waits.
                start(&mut world, &mut right, READ_SUBCHANNEL, &program);
            }
            while left.poll().is_some() {}
            world.kill(right);
            if is_waiting_first && waits.is_some() {
                assert_eq!(
                    ended(&mut left),
                    (WRITE_SUBCHANNEL, End::Check(0x40), 0),
                    "{command:#x}"
                );
            }
            assert_eq!(left.poll(), None);
            assert_eq!(world.unit.state(0, Right, READ_SUBCHANNEL), Some(State::NotReady));
            left.write(b"block");
            world.run();
            assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Check(0x40), 0), "{command:#x}");
            // The next guest on that side takes the line over.
            let mut right = world.guest(0, Right);
            right.read();
            world.run();
            assert!(matches!(left.poll(), Some(LineEvent::Interruption { .. })));
            left.write(b"block");
            world.run();
            assert_eq!(
                (ended(&mut right), right.block()),
                ((READ_SUBCHANNEL, End::Done, 5), b"block".to_vec())
            );
        }
    }
}

#[test]
fn sides_and_lines_that_are_not_free_are_refused() {
    let mut world = World::new(2);
    let _left = world.guest(0, Left);
    for (line, side) in [(0, Left), (2, Right), (u32::MAX, Left)] {
        let mut guest = world.asking(line, side);
        assert_eq!(guest.poll(), Some(LineEvent::Refused { subchannel: 0, code: 3 }), "{line}");
    }
    assert_eq!(world.unit.counters().refused, 3);
    assert!(world.unit.is_connected(0, Left) && !world.unit.is_connected(0, Right));
    let _other = world.guest(1, Left);
    let mut unit = Unit::new();
    assert!((0..LINES_MAX).all(|_| unit.add_line().is_some()));
    assert_eq!(unit.add_line(), None);
}

#[test]
fn lines_do_not_know_each_other() {
    let mut world = World::new(3);
    let mut guests = Vec::new();
    for line in 0..3 {
        guests.push((world.guest(line, Left), world.guest(line, Right)));
    }
    for (number, (left, right)) in guests.iter_mut().enumerate() {
        right.read();
        left.write(&[number as u8; 10]);
    }
    world.run();
    for (number, (left, right)) in guests.iter_mut().enumerate() {
        assert_eq!(
            (ended(right), right.block()),
            ((READ_SUBCHANNEL, End::Done, 10), vec![number as u8; 10])
        );
        assert_eq!(ended(left), (WRITE_SUBCHANNEL, End::Done, 0));
    }
}

#[test]
fn long_chains_go_on_as_the_adapter_answers() {
    let (mut world, mut left, mut right) = line();
    let (from, to) = (left.line.write_address(), right.line.read_address());
    left.line.write_buffer()[..16].copy_from_slice(b"0123456789abcdef");
    // Sixteen commands are a group: chains of all lengths around that.
    for commands in [1_u16, 2, 15, 16] {
        let writes: Vec<Ccw> = (0..commands)
            .map(|at| {
                let flags = if at + 1 < commands { CcwFlags::CHAIN_COMMAND } else { CcwFlags(0) };
                ccw(code::WRITE, flags, 1, from + u32::from(at))
            })
            .collect();
        let reads: Vec<Ccw> = writes
            .iter()
            .enumerate()
            .map(|(at, write)| ccw(code::READ, write.flags, 1, to + at as u32))
            .collect();
        start(&mut world, &mut left, WRITE_SUBCHANNEL, &writes);
        assert!(matches!(right.poll(), Some(LineEvent::Interruption { .. })));
        right.line.start(READ_SUBCHANNEL, &reads, &mut right.sender).unwrap();
        world.run();
        let bytes = u32::from(commands);
        assert_eq!(ended(&mut right), (READ_SUBCHANNEL, End::Done, bytes));
        assert_eq!(right.block(), b"0123456789abcdef"[..bytes as usize]);
        assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Done, 0));
    }
}

#[test]
fn blocks_and_programs_that_cannot_be_are_refused_before_they_start() {
    let (mut ours, _theirs) = path();
    for bytes in [0, 0x1_0000, u32::MAX] {
        assert!(Line::new(bytes, &mut ours.0).is_err(), "{bytes}");
    }
    let (_world, mut left, _right) = line();
    let most = BLOCK_BYTES;
    for bytes in [0, BLOCK_BYTES + 1] {
        let found = left.line.write(bytes, &mut left.sender);
        assert!(matches!(found, Err(StartError::Block { most: found, .. }) if found == most));
    }
    for (subchannel, ccws) in [(0, 0), (0, 17), (2, 1)] {
        let found = left.line.start(subchannel, &vec![NOP; ccws], &mut left.sender);
        assert!(matches!(found, Err(StartError::Program { .. })), "{subchannel} {ccws}");
    }
    left.read();
    let again = left.line.read(&mut left.sender);
    assert!(matches!(again, Err(StartError::Busy { subchannel: READ_SUBCHANNEL })));
}

/// A unit, and its body.
type Sent = (Head, Vec<u8>);

/// The control unit, whose channel is the test.
struct Hostile {
    unit: Unit,
    link: Link,
}

impl Hostile {
    fn new() -> Hostile {
        let mut unit = Unit::new();
        unit.add_line();
        let (link, theirs) = pair(Terms::DEFAULT).unwrap();
        unit.add_link(theirs);
        let mut hostile = Hostile { unit, link };
        let establish = Head::new(Kind::Establish, 0, 1);
        hostile.send(&establish, &[0; 8]);
        assert_eq!(
            hostile.receive().map(|head| head.map(|head| (head.kind, head.code))),
            Ok(Some((Kind::Established, 0)))
        );
        hostile
    }

    fn send(&mut self, head: &Head, body: &[u8]) {
        let _ = self.link.send(head, body);
        self.link.flush();
        while self.unit.poll() {}
    }

    fn receive(&mut self) -> Result<Option<Head>, Broken> {
        Ok(self.link.receive()?.map(|unit| unit.head))
    }
}

#[test]
fn channel_that_breaks_the_rules_loses_its_guests() {
    let command = |code, count| Head { code, count, ..Head::new(Kind::Command, 0, 0x100) };
    let chained = |code, count| Head { flags: flag::CHAINED, ..command(code, count) };
    let data = Head::new(Kind::Data, 0, 0x100);
    let wrong: Vec<(&str, Vec<Sent>)> = vec![
        ("a subchannel that is none", vec![(Head { exchange: 0x102, ..command(2, 4) }, vec![])]),
        ("data without a command", vec![(chained(code::READ, 4), vec![]), (data, vec![0; 4])]),
        ("data of another length", vec![(command(1, 4), vec![]), (data, vec![0; 5])]),
        ("a command before the data", vec![(chained(1, 4), vec![]), (command(1, 4), vec![])]),
        ("data twice", vec![(chained(1, 4), vec![]), (data, vec![0; 4]), (data, vec![0; 4])]),
        (
            "another program on the same subchannel",
            vec![(command(2, 4), vec![]), (Head { exchange: 0x200, ..command(2, 4) }, vec![])],
        ),
        ("a count of the last CCW that is none", vec![(command(2, 4), vec![1])]),
        (
            "transport mode beside command mode",
            vec![(command(2, 4), vec![]), (Head::new(Kind::TransportCommand, 0, 0x200), vec![])],
        ),
        ("a unit of a control unit", vec![(Head::new(Kind::Status, 0, 0x100), vec![])]),
        ("a guest twice", vec![(Head::new(Kind::Establish, 0, 2), vec![0; 8])]),
        ("parameters that are none", vec![(Head::new(Kind::Establish, 1, 2), vec![0; 7])]),
        ("a guest beyond all", vec![(Head::new(Kind::Establish, 0xffff, 2), vec![0; 8])]),
        (
            "more commands than a channel sends ahead",
            (0..33).map(|_| (chained(2, 4), vec![])).collect(),
        ),
    ];
    for (what, units) in wrong {
        let mut hostile = Hostile::new();
        units.iter().for_each(|(head, body)| hostile.send(head, body));
        let is_gone = (0..100).any(|_| hostile.receive().is_err());
        assert!(is_gone, "{what}");
        assert!(!hostile.unit.is_connected(0, Left), "{what}");
        assert_eq!(hostile.unit.counters().disconnects, 1, "{what}");
    }
    // What is late is not wrong.
    let mut hostile = Hostile::new();
    hostile.send(&command(code::NOP, 0), &[]);
    for head in
        [command(1, 4), data, Head::new(Kind::Cancel, 0, 0x100), Head::new(Kind::Release, 0, 0)]
    {
        hostile.send(&head, &[0; 4][..if head.kind == Kind::Data { 4 } else { 0 }]);
    }
    hostile.send(&Head::new(Kind::Command, 9, 0x100), &[]);
    hostile.send(&Head::new(Kind::Interrogate, 0, 0x100), &[]);
    assert!(hostile.unit.is_connected(0, Left));
    hostile.send(&Head::new(Kind::Disconnect, 0, 0), &[]);
    assert!(!hostile.unit.is_connected(0, Left));
}

#[test]
fn peer_that_waits_is_announced_when_a_wrong_program_has_ended() {
    let (mut world, mut left, mut right) = line();
    left.read();
    // PREPARE lets the peer's READ begin; then there is no command.
    let wrong = [chained(code::PREPARE, 0, 0), ccw(0x28, SLI, 0, 0)];
    start(&mut world, &mut right, WRITE_SUBCHANNEL, &wrong);
    assert_eq!(status(&mut right).1, SubchannelStatus::PROGRAM_CHECK);
    let called = LineEvent::Interruption { subchannel: WRITE_SUBCHANNEL, status: ATTENTION };
    assert_eq!(right.poll(), Some(called));
    right.write(b"block");
    world.run();
    assert_eq!(
        (ended(&mut left), left.block()),
        ((READ_SUBCHANNEL, End::Done, 5), b"block".to_vec())
    );
}

#[test]
fn guest_that_calls_again_and_again_does_not_end_one_that_sleeps() {
    let (mut world, mut left, mut right) = line();
    let write = [ccw(code::WRITE, SLI, 4, left.line.write_address())];
    for _ in 0..2000 {
        start(&mut world, &mut left, WRITE_SUBCHANNEL, &write);
        left.line.halt(WRITE_SUBCHANNEL, &mut left.sender).unwrap();
        world.run();
        assert_eq!(ended(&mut left), (WRITE_SUBCHANNEL, End::Stopped, 0));
    }
    // More than fits into the path of the one that sleeps, and one report of each subchannel waits.
    assert_eq!(world.channel.held_back(right.number), 1);
    let mut reports = 0;
    while let Some(event) = right.poll() {
        let called = LineEvent::Interruption { subchannel: READ_SUBCHANNEL, status: ATTENTION };
        assert_eq!(event, called);
        reports += 1;
        world.run();
    }
    assert!((2..2000).contains(&reports), "{reports}");
    assert_eq!(world.channel.held_back(right.number), 0);
    right.read();
    left.write(b"block");
    world.run();
    while ended(&mut right).1 == End::Check(0x41) {
        right.read();
        world.run();
    }
    assert_eq!(right.block(), b"block");
}
