//! Programs whose tracks are read by direct reads, which end when the test lets them.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use std::io;

use channel::client::Event;
use channel::request;
use disk::ckd::backing::{Backing, Simulated};
use disk::ckd::direct::Direct;
use disk::ckd::model::{TRACK_BYTES, track_of};
use disk::ckd::track;
use disk::ckd::volume::{Access, Volume};
use disk::format::eckd::{Cchh, Extent, Locate, operation};
use disk::format::orb::{ALL_PATHS, Orb, OrbFlags};
use disk::format::scsw::DeviceStatus;
use disk::program::blocks::{Mode, Verb};
use disk::program::tracks;
use disk::unit::Reading;
use os::uring::Piece;

use world::programs::{Dice, assert_good, at, data, ended, seed_of, start};
use world::reads::{Gate, PLACES, read_directly};
use world::{CC, MODES, World, block, ccws, wish};

/// A world whose volume is read directly. Its tracks are known, or not.
fn world(cylinders: u32, slots: usize, is_known: bool) -> (World, Gate) {
    world_of(World::new(cylinders, slots), cylinders, 512, is_known)
}

fn world_of(mut world: World, cylinders: u32, grain: usize, is_known: bool) -> (World, Gate) {
    let gate = read_directly(&mut world, cylinders, grain, is_known);
    (world, gate)
}

/// Lets reads end until there are none, the oldest first.
fn run(world: &mut World, gate: &Gate) {
    world.run_while(|| gate.end_oldest());
}

#[test]
fn programs_wait_for_their_own_reads_only() {
    for mode in MODES {
        let (mut world, gate) = world(3, 100, true);
        let mut guest = world.guest(0, 3, false, true);
        for subchannel in 0..4 {
            start(&mut guest, subchannel, mode, Verb::Read, (u64::from(subchannel) * 50, 1), 0);
        }
        world.run();
        assert_eq!((gate.under_way(), ended(&mut guest)), (4, None), "{mode:?}");
        // The youngest first.
        for subchannel in (0..4).rev() {
            gate.end(subchannel.into());
            world.run();
            let (of, scsw) = ended(&mut guest).unwrap();
            assert_good(&scsw);
            assert_eq!(of, subchannel, "{mode:?}");
            assert_eq!(seed_of(&mut guest, of, 0, u64::from(of) * 50), 0);
            assert_eq!(ended(&mut guest), None);
        }
        assert_eq!(world.unit.counters().asides, 4);
        assert_eq!((world.unit.misses(0), world.unit.reads_under_way(0)), (4, 0));
    }
}

#[test]
fn no_more_is_read_than_a_program_needs() {
    let track = |number: u64| 512 + number * TRACK_BYTES as u64;
    let piece = |offset, bytes| Piece { file: 0, offset, bytes };
    for mode in MODES {
        let (mut world, gate) = world(3, 100, false);
        let mut guest = world.guest(0, 3, false, true);
        let mut read = |what| {
            start(&mut guest, 0, mode, Verb::Read, what, 0);
            run(&mut world, &gate);
            let (_, scsw) = ended(&mut guest).unwrap();
            assert_good(&scsw);
            (0..u64::from(what.1)).for_each(|index| {
                assert_eq!(seed_of(&mut guest, 0, index, what.0 + index), 0);
            });
            gate.pieces()
        };
        // A track of which nothing is known is read as a whole, and then it is there.
        assert_eq!(read((12, 1)), [piece(track(1), TRACK_BYTES)]);
        assert_eq!(read((13, 1)), []);
        drop(world);
        let (mut world, gate) = self::world(3, 100, true);
        let mut guest = world.guest(0, 3, false, true);
        let mut read = |what| {
            start(&mut guest, 0, mode, Verb::Read, what, 0);
            run(&mut world, &gate);
            let (_, scsw) = ended(&mut guest).unwrap();
            assert_good(&scsw);
            gate.pieces()
        };
        // Record 1 is at bytes 21 to 4125 of its track, record 2 at 4125 to 8229: each with its count field.
        assert_eq!(read((12, 1)), [piece(track(1), 4608)]);
        assert_eq!(read((13, 1)), [piece(track(1) + 4096, 4608)]);
        assert_eq!(read((12, 2)), []);
        // The rest of a domain is read at once: records 11 and 12 of track 2, 12 of track 3, and one of track 4.
        let end = (21_usize + 12 * 4104).next_multiple_of(512);
        let first = (21 + 10 * 4104) / 512 * 512;
        let rest = [
            piece(track(2) + first as u64, end - first),
            piece(track(3), end),
            piece(track(4), 4608),
        ];
        assert_eq!(read((34, 15)), rest, "{mode:?}");
    }
}

#[test]
fn disk_of_long_sectors_is_read_in_multiples_of_them() {
    let (mut world, gate) = world_of(World::new(2, 100), 2, 4096, true);
    let mut guest = world.guest(0, 2, false, true);
    let last = 2 * 15 * 12 - 1;
    for number in [0, 1, 2, 12, 13, 200, last] {
        start(&mut guest, 0, Mode::Transport, Verb::Read, (number, 1), 0);
        run(&mut world, &gate);
        let (_, scsw) = ended(&mut guest).unwrap();
        assert_good(&scsw);
        assert_eq!(seed_of(&mut guest, 0, 0, number), 0);
    }
    for piece in gate.pieces() {
        assert!(piece.offset.is_multiple_of(4096) && piece.bytes.is_multiple_of(4096), "{piece:?}");
    }
}

#[test]
fn who_waits_for_a_place_gets_the_next_one_though_others_could_use_it() {
    for mode in MODES {
        let (mut world, gate) = world(3, 100, false);
        // One has all places and wants more with each track, one waits with many programs, and one with a single program.
        let mut greedy = world.guest(0, 3, false, false);
        let mut many = world.guest(0, 3, false, false);
        let mut one = world.guest(0, 3, false, false);
        let begun = |gate: &Gate| -> Vec<u64> {
            let track = |piece: &Piece| (piece.offset - 512) / TRACK_BYTES as u64;
            gate.pieces().iter().map(track).collect()
        };
        for subchannel in 0..PLACES as u16 {
            let first = u64::from(subchannel) * 36;
            start(&mut greedy, subchannel, mode, Verb::Read, (first, 36), 0);
        }
        world.run();
        assert_eq!(begun(&gate), (0..PLACES as u64).map(|index| index * 3).collect::<Vec<_>>());
        for subchannel in 0..4 {
            let first = (30 + u64::from(subchannel)) * 12;
            start(&mut many, subchannel, mode, Verb::Read, (first, 12), 0);
        }
        world.run();
        start(&mut one, 0, mode, Verb::Read, (40 * 12, 12), 0);
        world.run();
        assert_eq!(begun(&gate), [0; 0]);
        for track in [30, 40, 31] {
            gate.end(0);
            world.run();
            assert_eq!(begun(&gate), [track], "{mode:?}");
        }
        // A newcomer waits behind them.
        start(&mut one, 1, mode, Verb::Read, (41 * 12, 12), 0);
        world.run();
        assert_eq!(begun(&gate), [0; 0]);
        world.run_while(|| gate.end_oldest());
        for (guest, programs) in [(&mut greedy, PLACES), (&mut many, 4), (&mut one, 2)] {
            for _ in 0..programs {
                assert_good(&ended(guest).expect("an end").1);
            }
        }
    }
}

#[test]
fn write_to_a_track_that_is_being_read_is_neither_lost_nor_torn() {
    for (mode, order) in MODES.into_iter().flat_map(|mode| [(mode, [0, 0]), (mode, [1, 0])]) {
        let (mut world, gate) = world(3, 100, true);
        let mut guest = world.guest(0, 3, true, true);
        start(&mut guest, 0, mode, Verb::Read, (12, 2), 0);
        start(&mut guest, 1, mode, Verb::Write, (12, 2), 7);
        world.run();
        // Two records for the one, all of the track for the other, both from before the write.
        assert_eq!(gate.under_way(), 2, "{mode:?}");
        gate.end(order[0]);
        world.run();
        gate.end(order[1]);
        run(&mut world, &gate);
        for _ in 0..2 {
            let (subchannel, scsw) = ended(&mut guest).unwrap();
            assert_good(&scsw);
            if subchannel == 0 {
                let seeds = [12, 13].map(|number| seed_of(&mut guest, 0, number - 12, number));
                assert!(mode == Mode::Command || seeds[0] == seeds[1], "{mode:?} {seeds:?}");
            }
        }
        start(&mut guest, 0, mode, Verb::Read, (12, 2), 0);
        run(&mut world, &gate);
        assert_good(&ended(&mut guest).unwrap().1);
        assert_eq!([0, 1].map(|index| seed_of(&mut guest, 0, index, 12 + index)), [7; 2]);
    }
}

#[test]
fn program_that_waits_is_halted_and_leaves_nothing() {
    for mode in MODES {
        for kind in [request::Kind::Halt, request::Kind::Clear] {
            let (mut world, gate) = world(3, 100, true);
            let mut guest = world.guest(0, 3, true, true);
            start(&mut guest, 0, mode, Verb::Read, (8, 20), 0);
            world.run();
            // The first track is there, the second is not: what is there is pinned for the program.
            gate.end(0);
            world.run();
            assert_eq!(ended(&mut guest), None);
            guest.client.request(kind, 0, &mut guest.sender).unwrap();
            world.run();
            assert_eq!(
                guest.poll(),
                Some(Event::Ended { subchannel: 0, parameter: 0 }),
                "{mode:?}"
            );
            run(&mut world, &gate);
            guest.client.consume(&mut guest.sender).unwrap();
            start(&mut guest, 0, mode, Verb::Read, (8, 1), 0);
            run(&mut world, &gate);
            assert_good(&ended(&mut guest).unwrap().1);
            assert_eq!(seed_of(&mut guest, 0, 0, 8), 0);
            guest.client.consume(&mut guest.sender).unwrap();
            start(&mut guest, 0, mode, Verb::Read, (8, 1), 0);
            run(&mut world, &gate);
            assert_eq!(world.unit.pinned(0), 1, "{mode:?} {kind:?}: what ended last");
        }
    }
}

#[test]
fn guest_that_dies_while_its_reads_are_under_way_leaves_nothing() {
    for mode in MODES {
        let (mut world, gate) = world(3, 100, true);
        let mut guest = world.guest(0, 3, true, true);
        for subchannel in 0..8 {
            let first = u64::from(subchannel) * 40;
            start(&mut guest, subchannel, mode, Verb::Read, (first, 30), 0);
        }
        world.run();
        gate.end(3);
        gate.end(0);
        world.run();
        world.sides.0[0] = None;
        world.channel.detach(0);
        drop(guest);
        world.run();
        assert_eq!(world.unit.pinned(0), 0, "{mode:?}");
        run(&mut world, &gate);
        assert_eq!((world.unit.pinned(0), world.unit.reads_under_way(0)), (0, 0));
        let mut other = world.guest(0, 3, true, true);
        start(&mut other, 0, mode, Verb::Read, (0, 30), 0);
        run(&mut world, &gate);
        assert_good(&ended(&mut other).unwrap().1);
    }
}

#[test]
fn device_without_cache_leaves_nothing_in_a_small_one() {
    for mode in MODES {
        for is_known in [false, true] {
            let (mut world, gate) = world(3, 16, is_known);
            let wish = wish(0, 3, false);
            world.sides.0.push(None);
            let mut guest = world.guest_at(0, wish);
            for subchannel in 0..4 {
                let first = u64::from(subchannel) * 70;
                start(&mut guest, subchannel, mode, Verb::Read, (first, 60), 0);
            }
            for _ in 0..100 {
                run(&mut world, &gate);
            }
            for _ in 0..4 {
                let (of, scsw) = ended(&mut guest).unwrap();
                assert_good(&scsw);
                for index in 0..60 {
                    assert_eq!(seed_of(&mut guest, of, index, u64::from(of) * 70 + index), 0);
                }
            }
            assert_eq!(world.unit.cache(0).used(), 0, "{mode:?} {is_known}");
        }
    }
}

#[test]
fn what_is_read_for_a_device_without_cache_and_nobody_wants_any_more_does_not_stay() {
    for mode in MODES {
        let (mut world, gate) = world(1, 100, true);
        world.sides.0.push(None);
        let mut guest = world.guest_at(0, wish(0, 1, false));
        start(&mut guest, 0, mode, Verb::Read, (0, 60), 0);
        world.run();
        assert!(gate.under_way() > 1, "{mode:?}: tracks are read ahead");
        guest.client.request(request::Kind::Halt, 0, &mut guest.sender).unwrap();
        world.run();
        assert!(ended(&mut guest).is_some());
        run(&mut world, &gate);
        assert_eq!((world.unit.cache(0).used(), world.unit.pinned(0)), (0, 0), "{mode:?}");
        // For one who has the cache they stay, whoever asked first.
        let mut other = world.guest(0, 1, false, false);
        start(&mut guest, 0, mode, Verb::Read, (0, 1), 0);
        world.run();
        start(&mut other, 0, mode, Verb::Read, (0, 1), 0);
        world.run();
        assert_eq!(gate.under_way(), 1);
        guest.client.request(request::Kind::Halt, 0, &mut guest.sender).unwrap();
        run(&mut world, &gate);
        assert_good(&ended(&mut other).unwrap().1);
        assert_eq!(world.unit.cache(0).used(), 1, "{mode:?}");
    }
}

#[test]
fn whole_track_is_written_when_the_old_one_is_there() {
    for mode in MODES {
        let (mut world, gate) = world(1, 100, true);
        let mut guest = world.guest(0, 1, true, false);
        let mut content = vec![0, 0, 0, 3, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        content.extend([0, 0, 0, 3, 9, 1, 0, 2, b'k', b'd', b'd']);
        content.extend([0xff; 8]);
        let (storage, bytes) = (guest.client.storage(), content.len());
        storage[data(1) as usize..][..bytes].copy_from_slice(&content);
        let write = tracks::build(storage, at(1), data(1), mode, Verb::Write, 3, bytes);
        // Another program waits for a part of the same track, and has the old one or the new one, where its record is gone.
        start(&mut guest, 0, mode, Verb::Read, (3 * 12 + 4, 1), 0);
        guest.start(1, &write);
        world.run();
        assert_eq!((gate.under_way(), ended(&mut guest)), (2, None), "{mode:?}");
        run(&mut world, &gate);
        for _ in 0..2 {
            match ended(&mut guest).unwrap() {
                (1, scsw) => assert_good(&scsw),
                (_, scsw) if scsw.is_good() => {
                    assert_eq!(seed_of(&mut guest, 0, 0, 3 * 12 + 4), 0);
                }
                (_, scsw) => {
                    assert!(scsw.device.has(DeviceStatus::UNIT_CHECK));
                    // No record found.
                    let sense = guest.client.answer().sense.expect("why");
                    assert_eq!(sense.0[1], 0x08);
                }
            }
        }
        let synced = world.disk.0.lock().unwrap().synced()[512 + 3 * TRACK_BYTES + 5..].to_vec();
        assert_eq!(synced[..bytes], content);
        let read = tracks::build(guest.client.storage(), at(2), data(2), mode, Verb::Read, 3, 4096);
        guest.start(2, &read);
        run(&mut world, &gate);
        assert_good(&ended(&mut guest).unwrap().1);
        assert_eq!(guest.client.storage()[data(2) as usize..][..bytes], content);
    }
}

#[test]
fn search_waits_for_its_track_and_begins_where_it_was() {
    for is_cached in [true, false] {
        let (mut world, gate) = world(3, 16, true);
        let wish = wish(1, 2, is_cached);
        world.sides.0.push(None);
        let mut guest = world.guest_at(0, wish);
        // A seek to cylinder 0, head 4; a search of this track and the next ones for record 2 of head 5, which is then read.
        let storage = guest.client.storage();
        storage[0x1000..0x1006].copy_from_slice(&[0, 0, 0, 0, 0, 4]);
        storage[0x1010..0x1015].copy_from_slice(&[0, 0, 0, 5, 2]);
        #[rustfmt::skip]
        let program = [
            0x07, 0x40, 0, 6, 0, 0, 0x10, 0x00,
            0xb1, 0x40, 0, 5, 0, 0, 0x10, 0x10,
            0x08, 0, 0, 0, 0, 0, 0x04, 0x08,
            0x06, 0, 0x10, 0, 0, 0, 0x20, 0x00,
        ];
        storage[0x400..0x420].copy_from_slice(&program);
        let orb =
            Orb { flags: OrbFlags::FORMAT_1, paths: ALL_PATHS, program: 0x400, ..Orb::default() };
        guest.start(0, &orb);
        for asides in 1..=2 {
            world.run();
            assert_eq!((gate.under_way(), ended(&mut guest)), (1, None), "{is_cached}");
            assert_eq!(world.unit.counters().asides, asides);
            gate.end(0);
        }
        run(&mut world, &gate);
        assert_good(&ended(&mut guest).unwrap().1);
        assert!(guest.client.storage()[0x2000..0x3000] == block(180 + 5 * 12 + 1, 0));
        // A seek, 13 records and 3 more, and the read: nothing was counted twice.
        assert_eq!(world.unit.counters().commands, 1 + 13 + 3 + 1);
        assert_eq!(world.unit.cache(0).used(), if is_cached { 2 } else { 0 });
    }
}

#[test]
fn volume_whose_direct_reads_are_refused_later_is_read_all_the_same() {
    for mode in MODES {
        for is_submission in [false, true] {
            let (mut world, gate) = world(3, 100, true);
            let mut guest = world.guest(0, 3, true, true);
            assert_eq!(world.unit.reading(0), Reading::Direct);
            if is_submission {
                gate.refuse(io::ErrorKind::PermissionDenied);
            }
            for subchannel in 0..3 {
                start(&mut guest, subchannel, mode, Verb::Read, (5 + u64::from(subchannel), 60), 0);
            }
            world.run();
            if !is_submission {
                gate.end_as(1, Err(io::ErrorKind::InvalidInput.into()));
                world.run();
            }
            for _ in 0..3 {
                let (of, scsw) = ended(&mut guest).unwrap();
                assert_good(&scsw);
                assert_eq!(seed_of(&mut guest, of, 59, 64 + u64::from(of)), 0);
            }
            assert_eq!(world.unit.reading(0), Reading::Refused, "{mode:?}");
        }
    }
}

#[test]
fn volume_that_is_no_file_has_no_direct_reads() {
    let disk = Simulated::new(world::image(1));
    let volume = Volume::from_backing(Box::new(disk), Access::Read).unwrap();
    let refused = Direct::open(&volume).unwrap_err().to_string();
    assert_eq!(refused, "its file cannot be read past the page cache: unsupported");
}

#[test]
fn read_that_fails_once_is_done_again_by_a_call() {
    for bytes in [Err(io::Error::other("a disk")), Ok(100)] {
        let (mut world, gate) = world(3, 100, true);
        let mut guest = world.guest(0, 3, true, true);
        start(&mut guest, 0, Mode::Transport, Verb::Read, (5, 1), 0);
        world.run();
        gate.end_as(0, bytes);
        world.run();
        assert_good(&ended(&mut guest).unwrap().1);
        assert_eq!(seed_of(&mut guest, 0, 0, 5), 0);
        assert_eq!(world.unit.reading(0), Reading::Direct);
    }
}

#[test]
fn damage_is_found_by_a_direct_read_too() {
    for mode in MODES {
        let mut bytes = world::image(3);
        // The count field of record 3 of track 2: it says that it is record 4.
        bytes[512 + 2 * TRACK_BYTES + 21 + 2 * 4104 + 4] = 4;
        // The data of record 5 reach beyond the track.
        bytes[512 + 2 * TRACK_BYTES + 21 + 4 * 4104 + 6] = 0xff;
        let (mut world, gate) = world_of(World::with(bytes, 100), 3, 512, true);
        let mut guest = world.guest(0, 3, true, true);
        start(&mut guest, 0, mode, Verb::Read, (26, 1), 0);
        run(&mut world, &gate);
        let (_, scsw) = ended(&mut guest).unwrap();
        assert!(scsw.device.has(DeviceStatus::UNIT_CHECK), "{mode:?}: {scsw:x?}");
        assert_eq!(guest.client.answer().sense.unwrap().0[1] & 0x40, 0x40, "invalid track format");
        assert_eq!((world.unit.damage(0).len(), world.unit.is_writable(0)), (1, false));
    }
}

/// A write of a block: when it was started, and when it was acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    seed: u8,
    started: u32,
    ended: Option<u32>,
}

/// What is under way: verb, first block, blocks, seed, and when it was started.
type Way = (Verb, u64, u32, u8, u32);

/// Blocks that are read and written at random.
const NUMBER: u64 = 60;

#[test]
fn any_order_of_reads_and_writes_brings_what_was_acknowledged() {
    let seed = std::env::var("SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
    for round in 0..60 {
        println!("SEED={} round {round}", seed);
        let mut dice = Dice((seed + round) | 1);
        let (mut world, gate) = world(1, 4 + dice.below(10) as usize, round % 2 == 0);
        let mut guest = world.guest(0, 1, true, round % 3 == 0);
        // The volume's first blocks, which are on few tracks.
        let mut blocks: Vec<Vec<Written>> =
            vec![vec![Written { ended: Some(0), ..Written::default() }]; NUMBER as usize];
        let mut ways: Vec<Option<Way>> = vec![None; 8];
        for now in 1..250_u32 {
            let free = ways.iter().position(Option::is_none);
            if let Some(free) = free.filter(|_| dice.below(3) > 0) {
                let mode = MODES[dice.below(2) as usize];
                let first = dice.below(NUMBER);
                let count = 1 + dice.below((NUMBER - first).min(20)) as u32;
                let seed = now as u8;
                let verb = if dice.below(2) == 0 { Verb::Read } else { Verb::Write };
                for number in first..first + u64::from(count) {
                    if verb == Verb::Write {
                        let written = Written { seed, started: now, ended: None };
                        blocks[number as usize].push(written);
                    }
                }
                ways[free] = Some((verb, first, count, seed, now));
                start(&mut guest, free as u16, mode, verb, (first, count), seed);
            } else if gate.under_way() > 0 {
                gate.end(dice.below(gate.under_way() as u64) as usize);
            }
            world.run();
            while let Some((subchannel, scsw)) = ended(&mut guest) {
                let way = ways[usize::from(subchannel)].take().unwrap();
                let (verb, first, count, seed, started) = way;
                if !scsw.is_good() {
                    // Too many tracks of a small cache are pinned. What was to be written may be there from now on, or not.
                    assert!(scsw.device.has(DeviceStatus::UNIT_CHECK), "{scsw:x?}");
                    continue;
                }
                for index in 0..u64::from(count) {
                    let written = &mut blocks[(first + index) as usize];
                    if verb == Verb::Write {
                        let own = written.iter_mut().find(|one| one.seed == seed).unwrap();
                        own.ended = Some(now);
                        continue;
                    }
                    let found = seed_of(&mut guest, subchannel, index, first + index);
                    let own = written.iter().find(|one| one.seed == found).unwrap();
                    let is_over = |later: &Written| {
                        let is_later = own.ended.is_some_and(|ended| ended < later.started);
                        is_later && later.ended.is_some_and(|ended| ended < started)
                    };
                    let later = written.iter().find(|later| is_over(later));
                    assert!(later.is_none(), "block {}: {own:?}, {later:?}", first + index);
                }
                guest.client.consume(&mut guest.sender).unwrap();
            }
        }
        for _ in 0..200 {
            run(&mut world, &gate);
            while ended(&mut guest).is_some() {
                guest.client.consume(&mut guest.sender).unwrap();
            }
        }
        assert_eq!(world.unit.reads_under_way(0), 0);
    }
}

#[test]
fn program_that_needs_more_tracks_at_once_than_the_cache_has_comes_to_its_end() {
    let (mut world, gate) = world(1, 4, false);
    let mut disk = world.disk.clone();
    let mut empty = vec![0; TRACK_BYTES];
    for track in 3..10 {
        track::clear(&mut empty, track_of(track));
        let offset = 512 + u64::from(track) * TRACK_BYTES as u64;
        disk.write_at(&empty, offset).unwrap();
    }
    // The last record of a track, and the one after that: seven tracks without any are walked over at once.
    let mut guest = world.guest(0, 1, true, false);
    let [first, last, start] = [0, 14, 2].map(|head| Cchh { cylinder: 0, head });
    let extent = Extent { first, last, ..Extent::default() };
    let operation = operation::READ_DATA;
    let locate =
        Locate { operation, count: 2, seek: start, search: start, record: 12, ..Locate::default() };
    guest.client.storage()[0x1000..0x1010].copy_from_slice(&extent.emit());
    guest.client.storage()[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
    let program = [
        (0x63, CC, 16, 0x1000),
        (0x47, CC, 16, 0x1010),
        (0x86, CC, 4096, 0x2000),
        (0x86, 0, 4096, 0x3000),
    ];
    let orb = ccws(&mut guest, &program);
    guest.start(0, &orb);
    run(&mut world, &gate);
    let (_, scsw) = ended(&mut guest).expect("it ends");
    assert_good(&scsw);
    assert!(guest.client.storage()[0x2000..0x3000] == block(2 * 12 + 11, 0));
    assert!(guest.client.storage()[0x3000..0x4000] == block(10 * 12, 0));
}
