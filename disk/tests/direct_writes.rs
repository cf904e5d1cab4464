//! Programs whose data go to the disk by direct writes, which end when the test lets them.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use channel::client::Event;
use channel::request;
use disk::ckd::backing::{Backing, Simulated};
use disk::ckd::model::{BLOCKS_PER_TRACK, TRACK_BYTES};
use disk::format::eckd::{Cchh, Extent, Locate, command, operation};
use disk::format::scsw::{DeviceStatus, Scsw};
use disk::format::sense::Sense;
use disk::program::blocks::{Mode, Verb};
use disk::program::tracks;
use disk::unit::{Syncing, Writing};

use world::programs::{Dice, assert_good, at, data, ended, seed_of, start};
use world::reads::{Gate as Reads, read_directly};
use world::writes::{Fate, Gate, seed_in, synced, write_directly, written};
use world::{CC, Disk, Guest, MODES, World, ccws, round, wish};

/// Places of writes: few, so that writes wait for them too.
const PLACES: usize = 8;

/// Blocks of a track.
const TRACK: u64 = BLOCKS_PER_TRACK as u64;

fn world(cylinders: u32, slots: usize) -> (World, Gate) {
    let mut world = World::new(cylinders, slots);
    let gate = write_directly(&mut world, PLACES);
    (world, gate)
}

/// A world whose volume is not synced.
fn unsynced_world(cylinders: u32, slots: usize) -> (World, Gate) {
    let (mut world, gate) = world(cylinders, slots);
    world.unit.set_syncing(0, Syncing::File);
    (world, gate)
}

fn assert_unsynced(world: &World) {
    assert_eq!((world.disk.syncs(), world.unit.counters().syncs), (0, 0));
}

/// Lets writes end until there are none, the oldest first.
fn run(world: &mut World, gate: &Gate) {
    world.run_while(|| gate.end_oldest());
}

fn begin_write(guest: &mut Guest, subchannel: u16, mode: Mode, what: (u64, u32), seed: u8) {
    start(guest, subchannel, mode, Verb::Write, what, seed);
}

/// Reads a block on subchannel 7, and returns its seed.
fn read_seed(world: &mut World, guest: &mut Guest, mode: Mode, number: u64) -> u8 {
    start(guest, 7, mode, Verb::Read, (number, 1), 0);
    world.run();
    let (subchannel, scsw) = ended(guest).expect("the read has ended");
    assert_eq!(subchannel, 7);
    assert_good(&scsw);
    seed_of(guest, 7, 0, number)
}

/// All programs that have ended, and whether they were good. The others have equipment check, or may not write any more.
fn all_ended(guest: &mut Guest) -> Vec<(u16, bool)> {
    let mut all = Vec::new();
    while let Some((subchannel, scsw)) = ended(guest) {
        let sense = guest.client.answer().sense;
        let is_inhibited = sense.is_some_and(|sense| sense.0[1] == 0x02);
        if !scsw.is_good() && !is_inhibited {
            assert_equipment_check(&scsw, sense);
        }
        all.push((subchannel, scsw.is_good()));
    }
    all.sort_unstable();
    all
}

fn assert_equipment_check(scsw: &Scsw, sense: Option<Sense>) {
    assert!(scsw.device.has(DeviceStatus::UNIT_CHECK), "{scsw:x?}");
    assert_eq!(sense.unwrap().0[0] & 0x10, 0x10, "equipment check");
}

fn assert_quiet(world: &World, gate: &Gate) {
    assert_eq!((world.unit.writes_under_way(0), gate.under_way()), (0, 0));
}

#[test]
fn write_is_acknowledged_when_it_has_landed_and_a_sync_has_followed() {
    for mode in MODES {
        let (mut world, gate) = world(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        begin_write(&mut guest, 0, mode, (5, 1), 3);
        world.run();
        assert_eq!((gate.under_way(), world.unit.writes_under_way(0)), (1, 1));
        assert_eq!((ended(&mut guest), world.unit.counters().syncs), (None, 0), "{mode:?}");
        assert_eq!(synced(&world, 5), 0);
        gate.end(0);
        assert_eq!(synced(&world, 5), 0, "on the disk, and not synced");
        world.run();
        assert_eq!(all_ended(&mut guest), [(0, true)]);
        assert_eq!((world.unit.counters().syncs, synced(&world, 5)), (1, 3), "{mode:?}");
        assert_quiet(&world, &gate);
    }
}

#[test]
fn sync_is_for_as_many_as_are_still_under_way() {
    for mode in MODES {
        let (mut world, gate) = world(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        for subchannel in 0..4 {
            let first = u64::from(subchannel) * TRACK;
            begin_write(&mut guest, subchannel, mode, (first, 1), 3);
        }
        world.run();
        assert_eq!(gate.tracks(), [0, 1, 2, 3], "{mode:?}");
        gate.end_track(2, Fate::Whole);
        world.run();
        assert_eq!((all_ended(&mut guest), world.unit.counters().syncs), (vec![], 0));
        gate.end_track(0, Fate::Whole);
        world.run();
        assert_eq!(all_ended(&mut guest), [(0, true), (2, true)], "{mode:?}");
        let seeds = [0, 1, 2, 3].map(|track| synced(&world, track * TRACK));
        assert_eq!((seeds, world.unit.counters().syncs), ([3, 0, 3, 0], 1));
        gate.end_track(3, Fate::Whole);
        world.run();
        assert_eq!(all_ended(&mut guest), [(3, true)]);
        gate.end_track(1, Fate::Whole);
        world.run();
        assert_eq!(all_ended(&mut guest), [(1, true)]);
        assert_eq!((synced(&world, 12), world.unit.counters().syncs), (3, 3));
    }
}

#[test]
fn write_is_acknowledged_as_soon_as_it_has_landed_on_a_file_that_needs_no_sync() {
    for mode in MODES {
        let (mut world, gate) = unsynced_world(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        for subchannel in 0..4 {
            let first = u64::from(subchannel) * TRACK;
            begin_write(&mut guest, subchannel, mode, (first, 1), 3);
        }
        // It has several writes, and waits for the track of the first too.
        begin_write(&mut guest, 4, mode, (1, 30), 4);
        world.run();
        assert_eq!((gate.tracks(), ended(&mut guest)), (vec![0, 1, 2, 3], None), "{mode:?}");
        gate.end_track(2, Fate::Whole);
        assert_eq!(written(&world, 2 * TRACK), 3);
        world.run();
        // With a sync it would wait until as many have landed as are under way.
        assert_eq!(all_ended(&mut guest), [(2, true)], "{mode:?}");
        gate.end_track(3, Fate::Whole);
        world.run();
        assert_eq!(all_ended(&mut guest), [(3, true)], "{mode:?}");
        while gate.end_oldest() {
            let is_there = (1..31).all(|number| written(&world, number) == 4);
            world.run();
            let is_over = all_ended(&mut guest).contains(&(4, true));
            assert_eq!(is_over, is_there, "{mode:?}");
        }
        assert_eq!([0, 3 * TRACK].map(|number| written(&world, number)), [3, 3]);
        assert!((1..31).all(|number| written(&world, number) == 4), "{mode:?}");
        assert_unsynced(&world);
        assert_quiet(&world, &gate);
    }
}

#[test]
fn failure_of_a_write_is_heard_of_on_a_file_that_needs_no_sync() {
    for (mode, fate) in
        MODES.into_iter().flat_map(|mode| [Fate::Short(0), Fate::Error(0)].map(|fate| (mode, fate)))
    {
        // A call does it once more.
        let (mut world, gate) = unsynced_world(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        begin_write(&mut guest, 0, mode, (12, 1), 5);
        world.run();
        gate.end_as(0, fate);
        world.run();
        assert_eq!((all_ended(&mut guest), written(&world, 12)), (vec![(0, true)], 5), "{mode:?}");
        // The call fails too: so does the program that has another write, which has landed, and that alone.
        begin_write(&mut guest, 0, mode, (12, 20), 6);
        begin_write(&mut guest, 1, mode, (60, 1), 6);
        world.run();
        while let Some(other) = gate.tracks().iter().position(|track| *track != 1) {
            gate.end(other);
            world.run();
        }
        assert_eq!(all_ended(&mut guest), [(1, true)], "{mode:?}");
        world.disk.fail(true);
        gate.end_track(1, fate);
        world.run();
        world.disk.fail(false);
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(0, false)], "{mode:?} {fate:?}");
        assert_eq!((written(&world, 12), written(&world, 60)), (5, 6));
        // The track is read again.
        assert_eq!(read_seed(&mut world, &mut guest, mode, 12), 5);
        begin_write(&mut guest, 0, mode, (12, 1), 7);
        run(&mut world, &gate);
        assert_eq!((all_ended(&mut guest), written(&world, 12)), (vec![(0, true)], 7));
        assert_unsynced(&world);
        assert_quiet(&world, &gate);
    }
}

#[test]
fn file_that_needs_no_sync_gets_none_when_its_direct_writes_are_refused() {
    for (mode, is_one) in MODES.into_iter().flat_map(|mode| [(mode, true), (mode, false)]) {
        let (mut world, gate) = unsynced_world(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        begin_write(&mut guest, 0, mode, (0, 1), 7);
        begin_write(&mut guest, 1, mode, (20, 1), 7);
        world.run();
        if is_one {
            gate.end_as(0, Fate::Refused);
        } else {
            gate.refuse(Some(io::ErrorKind::PermissionDenied));
        }
        begin_write(&mut guest, 2, mode, (50, 1), 7);
        run(&mut world, &gate);
        // If the kernel takes nothing any more, nobody knows what it has of those that it had.
        assert_eq!(all_ended(&mut guest), [0, 1, 2].map(|of| (of, is_one)), "{mode:?}");
        assert_eq!(world.unit.writing(0), Writing::Buffered, "{mode:?}");
        begin_write(&mut guest, 3, mode, (0, 30), 8);
        world.run();
        assert_eq!(all_ended(&mut guest), [(3, true)]);
        assert!((0..30).all(|number| written(&world, number) == 8), "{mode:?}");
        assert_unsynced(&world);
        assert_quiet(&world, &gate);
    }
}

#[test]
fn program_with_several_writes_waits_for_all_of_them() {
    for mode in MODES {
        let (mut world, gate) = world(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        begin_write(&mut guest, 0, mode, (10, 30), 5);
        world.run();
        // A chain writes a record of the track, and the others as one when that has landed.
        assert_eq!(gate.tracks(), [0, 1, 2, 3], "{mode:?}");
        for track in [3, 0, 2] {
            gate.end_track(track, Fate::Whole);
            world.run();
            assert_eq!(ended(&mut guest), None, "{mode:?}");
        }
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(0, true)]);
        assert!((10..40).all(|number| synced(&world, number) == 5));
        assert_quiet(&world, &gate);
    }
}

#[test]
fn other_programs_go_on_while_writes_are_under_way() {
    for mode in MODES {
        let (mut world, gate) = world(3, 100);
        let mut owner = world.guest(0, 3, true, true);
        let mut other = world.guest(0, 3, true, false);
        begin_write(&mut owner, 0, mode, (13, 1), 9);
        world.run();
        // In place and copied, of the same track and of others; what is written is there already.
        for guest in [&mut owner, &mut other] {
            for (number, seed) in [(12, 0), (13, 9), (14, 0), (100, 0)] {
                assert_eq!(read_seed(&mut world, guest, mode, number), seed, "{mode:?} {number}");
            }
        }
        begin_write(&mut other, 0, mode, (40, 2), 4);
        world.run();
        assert_eq!(gate.tracks(), [1, 3]);
        gate.end_track(3, Fate::Whole);
        run(&mut world, &gate);
        assert_eq!(
            (all_ended(&mut owner), all_ended(&mut other)),
            (vec![(0, true)], vec![(0, true)])
        );
        assert_eq!([13, 40, 41].map(|number| synced(&world, number)), [9, 4, 4]);
    }
}

#[test]
fn writes_of_one_track_go_one_at_a_time_whatever_else_ends() {
    for (mode, count) in MODES.into_iter().flat_map(|mode| [2, 3, 7].map(|count| (mode, count))) {
        for seed in 1..20 {
            let mut dice = Dice(seed);
            let (mut world, gate) = world(3, 100);
            let mut guest = world.guest(0, 3, true, false);
            let mut other = world.guest(0, 3, true, false);
            // Neighbours share sectors, because records are not as long as some number of sectors.
            for subchannel in 0..count {
                let number = 12 + u64::from(subchannel);
                begin_write(&mut guest, subchannel, mode, (number, 1), 3);
                begin_write(&mut other, subchannel, mode, (30 + u64::from(subchannel) * 12, 1), 4);
            }
            world.run();
            let of_track = |gate: &Gate| gate.tracks().iter().filter(|track| **track == 1).count();
            assert_eq!(of_track(&gate), 1);
            while gate.under_way() > 0 {
                gate.end(dice.below(gate.under_way() as u64) as usize);
                world.run();
                assert!(of_track(&gate) <= 1, "{mode:?}");
            }
            let all: Vec<_> = (0..count).map(|subchannel| (subchannel, true)).collect();
            assert_eq!((all_ended(&mut guest), all_ended(&mut other)), (all.clone(), all));
            for index in 0..u64::from(count) {
                assert_eq!(synced(&world, 12 + index), 3, "{mode:?}");
                assert_eq!(synced(&world, 30 + index * 12), 4);
            }
            // The first, and all others of the track as one.
            let track = |offset: u64| (offset - 512) / TRACK_BYTES as u64;
            let pieces = gate.pieces().into_iter().filter(|piece| track(piece.offset) == 1);
            assert_eq!(pieces.count(), 2, "{mode:?}");
            assert_quiet(&world, &gate);
        }
    }
}

#[test]
fn last_of_several_writes_of_one_record_is_the_one_that_stays() {
    for mode in MODES {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        for subchannel in 0..4 {
            begin_write(&mut guest, subchannel, mode, (12, 1), subchannel as u8 + 1);
            world.run();
        }
        assert_eq!(gate.tracks(), [1]);
        gate.end(0);
        world.run();
        // What is on the disk is of the first, and only the first has ended.
        assert_eq!((all_ended(&mut guest), synced(&world, 12)), (vec![(0, true)], 1), "{mode:?}");
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(1, true), (2, true), (3, true)]);
        assert_eq!((synced(&world, 12), read_seed(&mut world, &mut guest, mode, 12)), (4, 4));
    }
}

#[test]
fn track_that_is_read_in_place_is_written_from_its_copy() {
    for mode in MODES {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, true);
        start(&mut guest, 0, mode, Verb::Read, (12, 1), 0);
        world.run();
        // The result is not consumed, and what it shows stays as it is.
        assert!(matches!(guest.poll(), Some(Event::Ended { subchannel: 0, .. })));
        assert_eq!(world.unit.pinned(0), 1, "{mode:?}");
        for seed in 1..4 {
            begin_write(&mut guest, 1, mode, (12, 1), seed);
            world.run();
            assert_eq!(ended(&mut guest), None);
            run(&mut world, &gate);
            assert_eq!(all_ended(&mut guest), [(1, true)]);
            assert_eq!((synced(&world, 12), synced(&world, 13)), (seed, 0), "{mode:?}");
        }
    }
}

#[test]
fn write_that_fails_alone_is_done_once_more_by_a_call() {
    for (mode, fate) in MODES.into_iter().flat_map(|mode| {
        [Fate::Short(512), Fate::Error(0), Fate::Error(1024)].map(|fate| (mode, fate))
    }) {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        begin_write(&mut guest, 0, mode, (12, 1), 5);
        begin_write(&mut guest, 1, mode, (13, 1), 6);
        world.run();
        gate.end_as(0, fate);
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(0, true), (1, true)], "{mode:?} {fate:?}");
        assert_eq!((synced(&world, 12), synced(&world, 13)), (5, 6));
        assert_eq!(world.unit.writing(0), Writing::Direct);
    }
}

#[test]
fn write_that_fails_twice_fails_those_that_wait_for_its_track_and_nobody_else() {
    for (mode, fate) in
        MODES.into_iter().flat_map(|mode| [Fate::Short(0), Fate::Error(0)].map(|fate| (mode, fate)))
    {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        begin_write(&mut guest, 4, mode, (12, 1), 1);
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(4, true)]);
        for (subchannel, number) in [(0, 13), (1, 14), (2, 40), (3, 12)] {
            begin_write(&mut guest, subchannel, mode, (number, 1), 7);
        }
        world.run();
        assert_eq!(gate.tracks(), [1, 3]);
        gate.end_track(1, fate);
        world.run();
        assert_eq!((all_ended(&mut guest), gate.tracks()), (vec![], vec![3]));
        // The call is made when the other write has ended. These are begun then, so that nothing is synced yet.
        begin_write(&mut guest, 5, mode, (60, 1), 7);
        begin_write(&mut guest, 6, mode, (80, 1), 7);
        world.run();
        assert_eq!(gate.tracks(), [3]);
        let misses = world.unit.misses(0);
        world.disk.fail(true);
        gate.end_track(3, Fate::Whole);
        world.unit.poll();
        world.disk.fail(false);
        world.run();
        assert_eq!(all_ended(&mut guest), [(0, false), (1, false), (3, false)], "{mode:?}");
        assert_eq!(gate.tracks(), [5, 6]);
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(2, true), (5, true), (6, true)]);
        // The track is read again, and has what was acknowledged before.
        let seeds = [12, 13, 14].map(|number| read_seed(&mut world, &mut guest, mode, number));
        assert_eq!((seeds, world.unit.misses(0)), ([1, 0, 0], misses + 1), "{mode:?}");
        assert_eq!([12, 13, 14, 40].map(|number| synced(&world, number)), [1, 0, 0, 7]);
        begin_write(&mut guest, 0, mode, (13, 1), 8);
        run(&mut world, &gate);
        assert_eq!((all_ended(&mut guest), synced(&world, 13)), (vec![(0, true)], 8));
        assert_quiet(&world, &gate);
    }
}

#[test]
fn failed_sync_fails_all_that_have_landed_or_are_under_way() {
    for mode in MODES {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        for subchannel in 0..4 {
            begin_write(&mut guest, subchannel, mode, (u64::from(subchannel) * TRACK, 1), 7);
        }
        world.run();
        gate.end_track(3, Fate::Whole);
        gate.end_track(1, Fate::Whole);
        world.disk.fail(true);
        world.run();
        world.disk.fail(false);
        assert_eq!(all_ended(&mut guest), [(1, false), (3, false)], "{mode:?}");
        // What is under way may have been lost with the others. Nothing is begun any more.
        begin_write(&mut guest, 4, mode, (4 * TRACK, 1), 7);
        begin_write(&mut guest, 5, mode, (2 * TRACK + 1, 1), 9);
        gate.pieces();
        run(&mut world, &gate);
        let ended = [(0, false), (2, false), (4, false), (5, false)];
        assert_eq!(all_ended(&mut guest), ended, "{mode:?}");
        assert_eq!((gate.pieces().len(), world.unit.counters().syncs), (0, 1));
        assert!(!world.unit.is_writable(0));
        // Tracks that nobody has written are read.
        assert_eq!(read_seed(&mut world, &mut guest, mode, 4 * TRACK), 0);
        for track in 0..4 {
            start(&mut guest, 6, mode, Verb::Read, (track * TRACK, 1), 0);
            run(&mut world, &gate);
            assert_eq!(all_ended(&mut guest), [(6, false)], "track {track} is lost");
        }
        assert_quiet(&world, &gate);
    }
}

#[test]
fn write_that_waits_when_a_sync_fails_does_not_reach_the_disk() {
    for mode in MODES {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        begin_write(&mut guest, 0, mode, (0, 1), 7);
        begin_write(&mut guest, 1, mode, (TRACK, 1), 7);
        world.run();
        // It waits for the write of its track.
        begin_write(&mut guest, 2, mode, (TRACK + 1, 1), 7);
        world.run();
        gate.end_track(0, Fate::Whole);
        world.disk.fail(true);
        world.run();
        world.disk.fail(false);
        gate.pieces();
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(0, false), (1, false), (2, false)], "{mode:?}");
        assert_eq!((gate.pieces().len(), written(&world, TRACK + 1)), (0, 0), "{mode:?}");
        assert_quiet(&world, &gate);
    }
}

#[test]
fn chain_whose_write_or_sync_has_failed_fails_at_its_end() {
    for is_sync in [true, false] {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        // More commands than the channel sends without a response, on 15 tracks.
        begin_write(&mut guest, 0, Mode::Command, (0, 170), 7);
        while gate.under_way() == 0 {
            round(&mut world);
        }
        let fate = if is_sync { Fate::Whole } else { Fate::Error(0) };
        world.disk.fail(true);
        loop {
            (0..gate.under_way()).for_each(|_| gate.end_as(0, fate));
            world.unit.poll();
            if !is_sync || world.unit.counters().syncs > 0 {
                break;
            }
        }
        world.disk.fail(false);
        assert!(world.unit.counters().commands < 172, "the chain goes on");
        if !is_sync {
            world.run();
            assert_eq!(all_ended(&mut guest), []);
        }
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(0, false)]);
        if is_sync {
            // It does not come to its end: nobody writes any more.
            assert!(world.unit.counters().commands < 172);
        } else {
            assert_eq!(world.unit.counters().commands, 172);
            assert_eq!(read_seed(&mut world, &mut guest, Mode::Command, 169), 7);
        }
        assert_quiet(&world, &gate);
    }
}

#[test]
fn track_that_has_left_the_cache_is_read_with_what_was_written() {
    for (mode, is_cached) in MODES.into_iter().flat_map(|mode| [(mode, true), (mode, false)]) {
        let (mut world, gate) = world(1, 4);
        world.sides.0.push(None);
        let mut guest = world.guest_at(0, wish(0, 1, is_cached));
        begin_write(&mut guest, 0, mode, (0, 2), 7);
        world.run();
        let waits = gate.waits();
        for track in 1..8 {
            assert_eq!(read_seed(&mut world, &mut guest, mode, track * TRACK), 0);
        }
        assert_eq!((gate.waits(), gate.under_way()), (waits, 1));
        // The control unit waits for the write, and for what else the chain has written.
        start(&mut guest, 7, mode, Verb::Read, (0, 3), 0);
        world.run();
        assert!(gate.waits() > waits && gate.under_way() == 0, "{mode:?} {is_cached}");
        assert_eq!(all_ended(&mut guest), [(0, true), (7, true)]);
        let seeds = [0, 1, 2].map(|number| seed_of(&mut guest, 7, number, number));
        assert_eq!(seeds, [7, 7, 0], "{mode:?} {is_cached}");
        assert_eq!([0, 1].map(|number| synced(&world, number)), [7, 7]);
    }
}

#[test]
fn direct_read_never_brings_what_was_there_before_a_write() {
    for (mode, is_known) in MODES.into_iter().flat_map(|mode| [(mode, true), (mode, false)]) {
        let (mut world, gate) = world(1, 4);
        let reads = read_directly(&mut world, 1, 512, is_known);
        let read_all = |world: &mut World, reads: &Reads| {
            for _ in 0..100 {
                world.run();
                if reads.under_way() == 0 {
                    return;
                }
                reads.end(0);
            }
            panic!("reads without end");
        };
        let mut guest = world.guest(0, 1, true, false);
        begin_write(&mut guest, 0, mode, (0, 1), 7);
        world.run();
        // A read of the track that is to be written, from before the write.
        start(&mut guest, 1, mode, Verb::Read, (3, 1), 0);
        world.run();
        read_all(&mut world, &reads);
        assert_eq!((gate.under_way(), all_ended(&mut guest)), (1, vec![(1, true)]), "{mode:?}");
        for track in 1..8 {
            start(&mut guest, 1, mode, Verb::Read, (track * TRACK, 1), 0);
            read_all(&mut world, &reads);
            assert_eq!(all_ended(&mut guest), [(1, true)]);
        }
        // The track has left the cache while it is written.
        assert_eq!(gate.waits(), 0);
        start(&mut guest, 1, mode, Verb::Read, (0, 2), 0);
        read_all(&mut world, &reads);
        assert_eq!((gate.waits(), all_ended(&mut guest)), (1, vec![(0, true), (1, true)]));
        let seeds = [0, 1].map(|number| seed_of(&mut guest, 1, number, number));
        assert_eq!((seeds, synced(&world, 0)), ([7, 0], 7), "{mode:?} {is_known}");
        assert_eq!(world.unit.reads_under_way(0), 0);
    }
}

#[test]
fn halt_leaves_the_write_to_its_end() {
    for (mode, kind) in MODES
        .into_iter()
        .flat_map(|mode| [(mode, request::Kind::Halt), (mode, request::Kind::Clear)])
    {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, true);
        begin_write(&mut guest, 0, mode, (0, 20), 7);
        world.run();
        guest.client.request(kind, 0, &mut guest.sender).unwrap();
        world.run();
        run(&mut world, &gate);
        assert!(
            matches!(guest.poll(), Some(Event::Ended { subchannel: 0, .. })),
            "{mode:?} {kind:?}"
        );
        guest.client.consume(&mut guest.sender).unwrap();
        assert_quiet(&world, &gate);
        begin_write(&mut guest, 0, mode, (0, 1), 8);
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(0, true)], "{mode:?} {kind:?}");
        assert_eq!((synced(&world, 0), world.unit.pinned(0)), (8, 0));
    }
}

#[test]
fn guest_that_dies_with_writes_under_way_leaves_nothing_to_the_next_of_its_number() {
    for mode in MODES {
        for fate in [Fate::Whole, Fate::Error(0)] {
            let (mut world, gate) = world(2, 100);
            let mut guest = world.guest(0, 2, true, true);
            for subchannel in 0..4 {
                start(&mut guest, subchannel + 4, mode, Verb::Read, (200, 30), 0);
                begin_write(&mut guest, subchannel, mode, (u64::from(subchannel) * 14, 20), 7);
            }
            world.run();
            world.sides.0[0] = None;
            world.channel.detach(0);
            drop(guest);
            world.run();
            assert_eq!(world.unit.pinned(0), 0, "{mode:?}");
            let mut guest = world.guest_at(0, wish(0, 2, true));
            begin_write(&mut guest, 0, mode, (3, 1), 8);
            world.run();
            // It waits for the write of its track, and does not end with it unless that fails.
            assert_eq!(gate.tracks()[0], 0);
            world.disk.fail(fate != Fate::Whole);
            gate.end_track(0, fate);
            if fate != Fate::Whole {
                (0..gate.under_way()).for_each(|_| gate.end(0));
            }
            world.unit.poll();
            world.disk.fail(false);
            world.run();
            if fate == Fate::Whole {
                assert_eq!(all_ended(&mut guest), [], "{mode:?}");
            }
            run(&mut world, &gate);
            assert_eq!(all_ended(&mut guest), [(0, fate == Fate::Whole)], "{mode:?} {fate:?}");
            if fate == Fate::Whole {
                assert_eq!(synced(&world, 3), 8);
            }
            begin_write(&mut guest, 1, mode, (3, 1), 9);
            run(&mut world, &gate);
            // The sync of the other writes has failed too, and nobody writes any more.
            let is_sound = fate == Fate::Whole;
            assert_eq!(world.unit.is_writable(0), is_sound);
            let seed = if is_sound { 9 } else { 0 };
            assert_eq!((all_ended(&mut guest), synced(&world, 3)), (vec![(1, is_sound)], seed));
            assert_eq!(world.unit.pinned(0), 0);
            assert_quiet(&world, &gate);
        }
    }
}

#[test]
fn device_is_reserved_when_all_writes_of_others_have_come_to_their_end() {
    for mode in MODES {
        let (mut world, gate) = world(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        let mut other = world.guest(0, 2, true, false);
        begin_write(&mut guest, 0, mode, (5, 1), 7);
        world.run();
        let reserve = ccws(&mut other, &[(command::RESERVE, 0, 32, 0x2000)]);
        other.start(0, &reserve);
        world.run();
        assert_eq!((ended(&mut other), gate.under_way()), (None, 1), "{mode:?}");
        run(&mut world, &gate);
        world.run();
        assert_eq!(
            (all_ended(&mut guest), all_ended(&mut other)),
            (vec![(0, true)], vec![(0, true)])
        );
        // Its own writes are no others.
        begin_write(&mut other, 1, mode, (5, 1), 8);
        world.run();
        other.start(0, &reserve);
        world.run();
        assert_eq!((all_ended(&mut other), gate.under_way()), (vec![(0, true)], 1), "{mode:?}");
    }
}

#[test]
fn device_is_reserved_though_others_write_without_a_pause() {
    let (mut world, gate) = unsynced_world(3, 100);
    let mut others: Vec<Guest> = (0..2).map(|_| world.guest(0, 3, true, false)).collect();
    let mut waiting = world.guest(0, 3, true, false);
    let begin = |guest: &mut Guest, number: usize, seed: u8| {
        begin_write(guest, 0, Mode::Transport, (number as u64 * TRACK * 4, 1), seed);
    };
    for (number, guest) in others.iter_mut().enumerate() {
        begin(guest, number, 1);
    }
    world.run();
    let reserve = ccws(&mut waiting, &[(command::RESERVE, 0, 32, 0x2000)]);
    waiting.start(0, &reserve);
    world.run();
    let mut others_ended = 0;
    for step in 0..10_000 {
        // The other one's write is under way.
        gate.end_oldest();
        world.run();
        for (number, guest) in others.iter_mut().enumerate() {
            for (_, is_good) in all_ended(guest) {
                assert!(is_good);
                others_ended += 1;
                begin(guest, number, step as u8);
            }
        }
        world.run();
        if let Some((_, scsw)) = ended(&mut waiting) {
            assert_good(&scsw);
            assert!(others_ended > 1000, "it keeps nobody waiting before: {others_ended}");
            // Others wait by now, and the owner goes on.
            let release = ccws(&mut waiting, &[(command::RELEASE, 0, 32, 0x2000)]);
            assert_good(&waiting.execute(&mut world, &release));
            run(&mut world, &gate);
            assert!(others.iter_mut().all(|guest| all_ended(guest) == [(0, true)]));
            assert_eq!(world.unit.waiting_for_devices(0), 0);
            return;
        }
    }
    panic!("the device is not reserved, while {others_ended} writes of others end");
}

#[test]
fn submission_that_fails_for_a_while_is_tried_again() {
    for mode in MODES {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        gate.refuse(Some(io::ErrorKind::WouldBlock));
        begin_write(&mut guest, 0, mode, (0, 1), 7);
        for _ in 0..10 {
            round(&mut world);
        }
        assert_eq!((gate.under_way(), world.unit.writes_under_way(0)), (0, 1), "{mode:?}");
        gate.refuse(None);
        run(&mut world, &gate);
        assert_eq!((all_ended(&mut guest), synced(&world, 0)), (vec![(0, true)], 7));
        assert_eq!(world.unit.writing(0), Writing::Direct);
    }
}

#[test]
fn volume_whose_direct_writes_are_refused_later_is_written_by_calls() {
    for mode in MODES {
        let (mut world, gate) = world(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        // One is under way, one waits for its track, one is begun when the kernel refuses, and one has failed by then.
        begin_write(&mut guest, 0, mode, (0, 1), 7);
        begin_write(&mut guest, 1, mode, (200, 1), 7);
        world.run();
        gate.refuse(Some(io::ErrorKind::PermissionDenied));
        begin_write(&mut guest, 2, mode, (50, 1), 7);
        world.run();
        assert_eq!(world.unit.writing(0), Writing::Buffered, "{mode:?}");
        assert_eq!(all_ended(&mut guest), [(0, false), (1, false), (2, false)], "{mode:?}");
        begin_write(&mut guest, 3, mode, (0, 30), 8);
        world.run();
        assert_eq!(all_ended(&mut guest), [(3, true)]);
        assert!((0..30).all(|number| synced(&world, number) == 8), "{mode:?}");
        assert_quiet(&world, &gate);
    }
}

#[test]
fn volume_whose_direct_writes_are_refused_one_by_one_is_written_by_calls() {
    for mode in MODES {
        let (mut world, gate) = world(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        for subchannel in 0..4 {
            begin_write(&mut guest, subchannel, mode, (u64::from(subchannel) * TRACK, 1), 7);
        }
        // It waits for the track of the first.
        begin_write(&mut guest, 4, mode, (1, 1), 7);
        world.run();
        gate.end_as(1, Fate::Refused);
        world.run();
        begin_write(&mut guest, 5, mode, (9 * TRACK, 1), 7);
        run(&mut world, &gate);
        // Those that are under way are not concerned.
        let ended: Vec<_> = (0..6).map(|subchannel| (subchannel, true)).collect();
        assert_eq!(all_ended(&mut guest), ended, "{mode:?}");
        assert_eq!(world.unit.writing(0), Writing::Buffered, "{mode:?}");
        for number in [0, 1, TRACK, 2 * TRACK, 3 * TRACK, 9 * TRACK] {
            assert_eq!(synced(&world, number), 7);
        }
        assert_quiet(&world, &gate);
    }
}

#[test]
fn tracks_of_a_device_without_cache_stay_until_they_are_written() {
    for mode in MODES {
        let (mut world, gate) = world(1, 100);
        world.sides.0.push(None);
        let mut guest = world.guest_at(0, wish(0, 1, false));
        // On three tracks.
        begin_write(&mut guest, 0, mode, (10, 16), 7);
        world.run();
        assert!((world.unit.cache(0).used(), gate.under_way()) >= (3, 3), "{mode:?}");
        // Nobody waits for the disk.
        assert_eq!(read_seed(&mut world, &mut guest, mode, 2), 0);
        assert_eq!(gate.waits(), 0, "{mode:?}");
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(0, true)]);
        assert_eq!(world.unit.cache(0).used(), 0, "{mode:?}");
    }
}

#[test]
fn writes_beyond_what_may_wait_are_waited_for() {
    const GUESTS: usize = 3;
    for mode in MODES {
        let (mut world, gate) = world(35, 100);
        let mut guests: Vec<_> = (0..GUESTS).map(|_| world.guest(0, 35, true, false)).collect();
        let first =
            |guest: usize, subchannel: u16| (guest as u64 * 8 + u64::from(subchannel)) * 256;
        for (number, guest) in guests.iter_mut().enumerate() {
            for subchannel in 0..8 {
                let what = (first(number, subchannel), 255);
                begin_write(guest, subchannel, mode, what, 1 + subchannel as u8);
            }
        }
        world.run();
        // 25 MB were to be written, of which 16 MiB wait.
        assert!(gate.waits() > 100, "{mode:?}: {}", gate.waits());
        assert_eq!(gate.under_way(), PLACES);
        run(&mut world, &gate);
        for (number, guest) in guests.iter_mut().enumerate() {
            let all: Vec<_> = (0..8).map(|subchannel| (subchannel, true)).collect();
            assert_eq!(all_ended(guest), all, "{mode:?}");
            for subchannel in 0..8 {
                let first = first(number, subchannel);
                let is_there = |number: u64| synced(&world, number) == 1 + subchannel as u8;
                assert!((first..first + 255).all(is_there));
            }
        }
        assert_quiet(&world, &gate);
    }
}

/// A track of so many records of so many bytes, as WRITE FULL TRACK takes it.
fn track_of_records(head: u8, records: u8, record_bytes: u16) -> Vec<u8> {
    let mut content = vec![0, 0, 0, head, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    for record in 1..=records {
        let [high, low] = record_bytes.to_be_bytes();
        content.extend([0, 0, 0, head, record, 0, high, low]);
        content.resize(content.len() + usize::from(record_bytes), record);
    }
    content.extend([0xff; 8]);
    content
}

fn begin_full_track(guest: &mut Guest, subchannel: u16, mode: Mode, track: u32, content: &[u8]) {
    let storage = guest.client.storage();
    storage[data(subchannel) as usize..][..content.len()].copy_from_slice(content);
    let (program, data) = (at(subchannel), data(subchannel));
    let orb = tracks::build(storage, program, data, mode, Verb::Write, track, content.len());
    guest.start(subchannel, &orb);
}

/// A program that writes data into a record of a track, on subchannel 0.
fn begin_update(guest: &mut Guest, head: u8, record: u8, bytes: u16) {
    let track = Cchh { cylinder: 0, head };
    let extent = Extent { first: track, last: track, ..Extent::default() };
    let operation = operation::WRITE_DATA;
    let locate =
        Locate { operation, count: 1, seek: track, search: track, record, ..Locate::default() };
    guest.client.storage()[0x1000..0x1010].copy_from_slice(&extent.emit());
    guest.client.storage()[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
    let program = [(0x63, CC, 16, 0x1000), (0x47, CC, 16, 0x1010), (0x05, 0, bytes, 0x2000)];
    let orb = ccws(guest, &program);
    guest.start(0, &orb);
}

#[test]
fn record_of_a_track_that_is_lost_is_not_acknowledged() {
    // The whole track is lost when the kernel refuses direct writes, or by a sync that fails while the record is under way.
    for is_sync in [true, false] {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        gate.refuse((!is_sync).then_some(io::ErrorKind::WouldBlock));
        begin_full_track(&mut guest, 1, Mode::Transport, 3, &track_of_records(3, 13, 4100));
        (0..4).for_each(|_| round(&mut world));
        begin_update(&mut guest, 3, 13, 4100);
        (0..4).for_each(|_| round(&mut world));
        assert_eq!((world.unit.writes_under_way(0), ended(&mut guest)), (1, None));
        if is_sync {
            gate.end(0);
            world.disk.fail(true);
            world.unit.poll();
            world.disk.fail(false);
            assert_eq!((world.unit.counters().syncs, world.unit.writes_under_way(0)), (1, 1));
        } else {
            gate.refuse(Some(io::ErrorKind::PermissionDenied));
        }
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(0, false), (1, false)], "{is_sync}");
        assert_quiet(&world, &gate);
        if !is_sync {
            let bytes = world.disk.0.lock().unwrap().synced().to_vec();
            assert!((36..48).all(|number| seed_in(&bytes, number) == Some(0)));
        }
    }
}

/// Calls go to pages that are written back by a sync, each as a whole.
#[derive(Debug)]
struct Pages {
    disk: Disk,
    dirty: BTreeMap<u64, Vec<u8>>,
}

const PAGE_BYTES: u64 = 4096;

impl Backing for Pages {
    fn bytes(&self) -> io::Result<u64> {
        self.disk.bytes()
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(target, offset)
    }

    fn write_at(&mut self, source: &[u8], offset: u64) -> io::Result<()> {
        let all = self.bytes()?;
        for (at, byte) in (offset..).zip(source) {
            let page = at / PAGE_BYTES;
            let page = self.dirty.entry(page).or_insert_with(|| {
                let start = page * PAGE_BYTES;
                let mut bytes = vec![0; PAGE_BYTES.min(all - start) as usize];
                self.disk.read_at(&mut bytes, start).unwrap();
                bytes
            });
            page[(at % PAGE_BYTES) as usize] = *byte;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        for (page, bytes) in std::mem::take(&mut self.dirty) {
            self.disk.write_at(&bytes, page * PAGE_BYTES)?;
        }
        self.disk.sync()
    }
}

#[test]
fn call_takes_no_old_sectors_of_the_next_track_along() {
    for mode in MODES {
        let disk = Disk(Arc::new(Mutex::new(Simulated::new(world::image(1)))));
        let pages = Pages { disk: disk.clone(), dirty: BTreeMap::new() };
        let mut world = World::over(disk, Box::new(pages), 100);
        let gate = write_directly(&mut world, PLACES);
        let mut guest = world.guest(0, 1, true, false);
        // All of track 3, which ends in the page where track 4 begins.
        let content = track_of_records(3, 10, 5600);
        begin_full_track(&mut guest, 0, mode, 3, &content);
        begin_write(&mut guest, 1, mode, (48, 1), 7);
        // These are under way for longer, so that nothing is synced before track 4 has ended.
        for of in 3..6 {
            begin_write(&mut guest, of, mode, (u64::from(of) * 30, 1), 7);
        }
        world.run();
        assert_eq!(gate.tracks()[..2], [3, 4], "{mode:?}");
        gate.end_track(3, Fate::Error(0));
        world.run();
        gate.end_track(4, Fate::Whole);
        world.run();
        // This one is not begun before the call either.
        begin_write(&mut guest, 2, mode, (24, 1), 7);
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [0, 1, 2, 3, 4, 5].map(|of| (of, true)), "{mode:?}");
        assert_eq!((synced(&world, 48), synced(&world, 24)), (7, 7));
        let on_disk = world.disk.0.lock().unwrap().synced()[512 + 3 * TRACK_BYTES + 5..].to_vec();
        assert!(on_disk[..content.len()] == content);
    }
}

#[test]
fn write_that_the_kernel_has_not_taken_while_another_was_waited_for_goes_later() {
    let mut world = World::new(1, 4);
    let gate = write_directly(&mut world, 16);
    let mut guests = [0, 1].map(|_| world.guest(0, 1, true, false));
    for track in 0..10 {
        let [first, second] = &mut guests;
        let guest = if track < 8 { first } else { second };
        begin_write(guest, track % 8, Mode::Transport, (u64::from(track) * TRACK, 1), 7);
    }
    world.run();
    assert_eq!(gate.under_way(), 10);
    // Track 0, which is in the cache no longer, ends last: a pass takes only some.
    (1..10).chain([0]).for_each(|track| gate.end_track(track, Fate::Whole));
    begin_write(&mut guests[1], 5, Mode::Transport, (150, 1), 8);
    start(&mut guests[1], 6, Mode::Transport, Verb::Read, (0, 1), 0);
    gate.take_only(0);
    run(&mut world, &gate);
    let [first, second] = guests.each_mut().map(all_ended);
    assert_eq!(first.len(), 8);
    assert_eq!(second, [(0, true), (1, true), (5, true), (6, true)]);
    assert_eq!((gate.waits(), synced(&world, 150)), (0, 8));
}

#[test]
fn whole_tracks_go_the_same_way() {
    for mode in MODES {
        let (mut world, gate) = world(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        let contents =
            [(3, 10), (4, 2)].map(|(head, records)| track_of_records(head, records, 5000));
        begin_full_track(&mut guest, 0, mode, 3, &contents[0]);
        begin_full_track(&mut guest, 1, mode, 4, &contents[1]);
        world.run();
        assert_eq!((gate.tracks(), all_ended(&mut guest)), (vec![3, 4], vec![]), "{mode:?}");
        let on_disk = |world: &World, head: usize, bytes: usize| {
            world.disk.0.lock().unwrap().synced()[512 + head * TRACK_BYTES + 5..][..bytes].to_vec()
        };
        assert!(on_disk(&world, 3, 100) != contents[0][..100]);
        run(&mut world, &gate);
        assert_eq!(all_ended(&mut guest), [(0, true), (1, true)]);
        for (head, content) in [3, 4].into_iter().zip(&contents) {
            assert!(on_disk(&world, head, content.len()) == *content, "{mode:?}");
        }
    }
}
