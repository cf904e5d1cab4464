//! Domains of locate record: where the program begins on a track, and which record each command reads.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use channel::client::Event;
use channel::exchange::Kind;
use disk::ckd::model::{TRACK_BYTES, track_of};
use disk::ckd::track;
use disk::format::eckd::{Cchh, Count, auxiliary, operation};
use disk::format::scsw::{DeviceStatus, Scsw};
use disk::program::blocks::{Mode, Verb, build};
use disk::unit::usage::VolumeUse;

use world::{CC, CC_SLI, Guest, SLI, World, block, blocks, ccws, image, read, wish};

/// A world of two cylinders whose track of head 1 has these records instead, by their keys and data.
fn world_with(records: &[(&[u8], &[u8])]) -> World {
    let mut bytes = image(2);
    let track = &mut bytes[512 + TRACK_BYTES..][..TRACK_BYTES];
    track::clear(track, track_of(1));
    for (key, data) in records {
        track::append(track, track_of(1), key, data).unwrap();
    }
    World::with(bytes, 100)
}

/// A world of four cylinders whose tracks 1 to 43, which is head 13 of cylinder 2, have no records.
fn world_with_empty_tracks() -> World {
    let mut bytes = image(4);
    for (number, track) in bytes[512..].chunks_mut(TRACK_BYTES).enumerate().skip(1).take(43) {
        track::clear(track, track_of(number as u32));
    }
    World::with(bytes, 100)
}

/// The parameters of define extent, at 0x1000, and those of a locate record, at 0x1010.
const EXTENT_AT: u32 = 0x1000;
const LOCATE_AT: u32 = 0x1010;
/// Where the data of the commands go: 0x1000 bytes for each.
const READ_AT: u32 = 0x8000;

/// Tracks 0 to 2 of cylinder 0, which may be read.
#[rustfmt::skip]
const EXTENT: [u8; 16] = [0x40, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// Locate record: operation and orientation, how many records, and a record of a head of cylinder 0.
fn locate(operation: u8, count: u8, head: u8, record: u8) -> [u8; 16] {
    [operation, 0, 0, count, 0, 0, 0, head, 0, 0, 0, head, record, 0xff, 0, 0]
}

/// Runs define extent, locate record, and commands with their counts. Returns the status.
fn run(
    world: &mut World,
    guest: &mut Guest,
    extent: &[u8; 16],
    locate: &[u8; 16],
    commands: &[(u8, u16)],
) -> Scsw {
    let storage = guest.client.storage();
    storage[EXTENT_AT as usize..][..16].copy_from_slice(extent);
    storage[LOCATE_AT as usize..][..16].copy_from_slice(locate);
    storage[READ_AT as usize..][..commands.len() * 0x1000].fill(0xee);
    let mut program = vec![(0x63, CC, 16, EXTENT_AT), (0x47, CC, 16, LOCATE_AT)];
    for (index, (code, count)) in commands.iter().enumerate() {
        let flags = if index + 1 < commands.len() { CC } else { 0 };
        program.push((*code, flags, *count, READ_AT + index as u32 * 0x1000));
    }
    let orb = ccws(guest, &program);
    guest.execute(world, &orb)
}

/// The heads and records of the count fields that the commands have read.
fn counts(guest: &mut Guest, commands: usize) -> Vec<(u8, u8)> {
    let of = |index: usize| {
        let at = READ_AT as usize + index * 0x1000;
        let count = Count::parse(&guest.client.storage()[at..at + 8]);
        assert_eq!(count.track, Cchh { cylinder: 0, head: count.track.head });
        (count.track.head, count.record)
    };
    (0..commands).map(of).collect()
}

/// The sense of the program that has ended last: bytes 0, 1 and 7.
fn sense(guest: &Guest) -> (u8, u8, u8) {
    let sense = guest.client.answer().sense.expect("sense").0;
    (sense[0], sense[1], sense[7])
}

/// Record 5 of track 1, by where the domain begins.
const ORIENTATIONS: [u8; 4] = [0x00, 0x40, 0x80, 0xc0];
const NO_RECORD: (u8, u8, u8) = (0, 0x08, 0);
const INVALID_PARAMETER: (u8, u8, u8) = (0x80, 0, 4);
const INVALID_SEQUENCE: (u8, u8, u8) = (0x80, 0, 2);

#[test]
fn counts_behind_record_0_are_those_that_linux_looks_for() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    // As the analysis of `dasd_eckd.c` has it: four counts of track 0, and one of track 2.
    let scsw = run(&mut world, &mut guest, &EXTENT, &locate(0x06, 4, 0, 0), &[(0x12, 8); 4]);
    assert!(scsw.is_good(), "{scsw:x?}");
    assert_eq!(counts(&mut guest, 4), [(0, 1), (0, 2), (0, 3), (0, 4)]);
    let scsw = run(&mut world, &mut guest, &EXTENT, &locate(0x06, 1, 2, 0), &[(0x12, 8)]);
    assert!(scsw.is_good(), "{scsw:x?}");
    assert_eq!(counts(&mut guest, 1), [(2, 1)]);
}

#[test]
fn read_count_and_read_count_key_and_data_bring_the_record_behind_the_located_one() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    for code in [0x12, 0x92, 0x1e, 0x9e] {
        let bytes = if code & 0x0f == 2 { 8 } else { 4104 };
        let scsw =
            run(&mut world, &mut guest, &EXTENT, &locate(0x16, 2, 1, 5), &[(code, bytes); 2]);
        assert!(scsw.is_good(), "{code:x}: {scsw:x?}");
        assert_eq!(counts(&mut guest, 2), [(1, 6), (1, 7)], "{code:x}");
    }
    // Other commands bring the located record, and behind read count the one whose count it has read.
    let block = |number: u64| world::block(number, 0);
    for (commands, place) in [
        (&[(0x86, 4096), (0x92, 8)][..], 0),
        (&[(0x8e, 4096), (0x92, 8)][..], 0),
        (&[(0x92, 8), (0x86, 4096)][..], 1),
    ] {
        let count = locate(0x16, 2, 1, 5);
        let scsw = run(&mut world, &mut guest, &EXTENT, &count, commands);
        assert!(scsw.is_good(), "{commands:x?}: {scsw:x?}");
        let data_at = READ_AT as usize + place * 0x1000;
        let found = guest.client.storage()[data_at..data_at + 4096].to_vec();
        assert!(found == block(12 + 4 + place as u64), "{commands:x?}");
        let count_at = READ_AT as usize + (1 - place) * 0x1000;
        assert_eq!(guest.client.storage()[count_at + 4], 6, "{commands:x?}");
    }
}

#[test]
fn what_is_read_first_depends_on_where_the_domain_begins() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    for (operation, orientations) in [(0x16, &ORIENTATIONS[..]), (0x06, &ORIENTATIONS[..3])] {
        for orientation in orientations {
            let first = |record: u8| {
                let number = 12 + u64::from(record) - 1;
                world::block(number, 0)
            };
            // At the count field its record is next, behind its data the one behind it, and at the start of the track record 1.
            let (read, counted) = match orientation {
                0x00 => (5, 6),
                0x80 => (6, 6),
                _ => (1, 1),
            };
            let located = locate(operation | orientation, 2, 1, 5);
            let commands = [(0x86, 4096), (0x92, 8)];
            let scsw = run(&mut world, &mut guest, &EXTENT, &located, &commands);
            assert!(scsw.is_good(), "{operation:x} {orientation:x}: {scsw:x?}");
            let storage = guest.client.storage();
            assert!(storage[0x8000..0x9000] == first(read), "{operation:x} {orientation:x}");
            assert_eq!(storage[0x9004], read + 1, "{operation:x} {orientation:x}");
            let commands = [(0x92, 8), (0x92, 8)];
            let scsw = run(&mut world, &mut guest, &EXTENT, &located, &commands);
            assert!(scsw.is_good(), "{operation:x} {orientation:x}: {scsw:x?}");
            assert_eq!(counts(&mut guest, 2), [(1, counted), (1, counted + 1)]);
        }
        // From the home address only its cylinder and head are compared, and from the index point nothing.
        for (orientation, is_found) in [(0x40, false), (0xc0, true)] {
            if operation == 0x06 && orientation == 0xc0 {
                continue;
            }
            let mut other = locate(operation | orientation, 1, 1, 99);
            other[11] = 2;
            let scsw = run(&mut world, &mut guest, &EXTENT, &other, &[(0x92, 8)]);
            assert_eq!(scsw.is_good(), is_found, "{operation:x} {orientation:x}");
            if !is_found {
                assert_eq!(sense(&guest), NO_RECORD);
            }
        }
    }
    // Record 0 is read from the start of the track, and record 1 behind it. So is the home address.
    for (operation, code, is_read) in [
        (0xd6, 0x1a, true),
        (0x56, 0x1a, false),
        (0x16, 0x1a, false),
        (0xd6, 0x16, true),
        (0x56, 0x16, true),
        (0x16, 0x16, false),
        (0x06, 0x1a, true),
        (0x06, 0x16, true),
    ] {
        let commands = [(code, if code == 0x16 { 16 } else { 5 }), (0x92, 8)];
        let scsw = run(&mut world, &mut guest, &EXTENT, &locate(operation, 2, 1, 1), &commands);
        assert_eq!(scsw.is_good(), is_read, "{operation:x} {code:x}: {scsw:x?}");
        if is_read {
            assert_eq!(guest.client.storage()[0x9000..0x9005], [0, 0, 0, 1, 1]);
        } else {
            assert_eq!(sense(&guest), INVALID_SEQUENCE);
        }
    }
}

#[test]
fn parameters_that_are_wrong_are_refused() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let update = [&[0x80], &EXTENT[1..]].concat().try_into().unwrap();
    let good = |operation: u8| locate(operation, 1, 1, 5);
    let refused =
        |world: &mut World, guest: &mut Guest, what: &[u8; 16], commands: &[(u8, u16)]| {
            let before = world.unit.counters().writes;
            let scsw = run(world, guest, &update, what, commands);
            let is_refused = !scsw.is_good();
            if is_refused {
                assert_eq!((sense(guest), scsw.address), (INVALID_PARAMETER, 0x410), "{what:x?}");
                assert_eq!(world.unit.counters().writes, before);
            }
            is_refused
        };
    let mut set = |operation: u8, bytes: &[(usize, u8)]| {
        let mut what = good(operation);
        bytes.iter().for_each(|(at, value)| what[*at] = *value);
        // Behind the domain nothing is read, and behind an orientation nothing at all.
        let commands: &[(u8, u16)] = match operation & 0x3f {
            0x00 => &[(0xe4, 20)],
            0x01 => &[(0x85, 4096)],
            _ => &[(0x86, 4096)],
        };
        refused(&mut world, &mut guest, &what, commands)
    };
    for operation in [0x01, 0x06, 0x16] {
        assert!(!set(operation, &[]), "{operation:x}");
        assert!(set(operation, &[(2, 1)]), "byte 2");
        for bit in 1..7 {
            assert!(set(operation, &[(1, 1 << bit)]), "auxiliary bit {bit}");
        }
        for (sector, is_wrong) in [(0, false), (223, false), (224, true), (254, true)] {
            assert_eq!(set(operation, &[(13, sector)]), is_wrong, "sector {sector}");
        }
        assert!(set(operation, &[(15, 1)]), "a factor that there is none of");
        assert!(set(operation, &[(1, 0x80)]), "no factor");
        assert!(!set(operation, &[(1, 0x80), (14, 0x10)]));
        assert!(set(operation, &[(3, 0)]), "no records");
        assert!(set(operation, &[(1, 1)]), "a suffix of one");
    }
    // Which operation may begin where: count field, home address, data, index point.
    for (operation, allowed) in [
        (0x00, [true, true, true, false]),
        (0x01, [true, false, true, false]),
        (0x06, [true, true, true, false]),
        (0x16, [true, true, true, true]),
    ] {
        let none: &[(usize, u8)] = if operation == 0 { &[(3, 0)] } else { &[] };
        let found = [0x00, 0x40, 0x80, 0xc0].map(|orientation| !set(operation | orientation, none));
        assert_eq!(found, allowed, "{operation:x}");
    }
    assert!(set(0x00, &[]), "an orientation has no records");
    assert!(set(0x02, &[]), "no operation");
    // The mask of define extent has a bit that must be 0, as that of set file mask.
    let mut masked = EXTENT;
    masked[0] |= 0x20;
    let scsw = run(&mut world, &mut guest, &masked, &good(0x06), &[(0x86, 4096)]);
    assert_eq!((sense(&guest), scsw.address), (INVALID_PARAMETER, 0x408));
    // A factor is a block at most.
    for (block, factor, is_good) in
        [(0x1000, 0x1000, true), (0x1000, 0x1001, false), (0, 57334, true)]
    {
        let (mut extent, mut what) = (EXTENT, good(0x06));
        extent[2..4].copy_from_slice(&u16::to_be_bytes(block));
        what[1] = 0x80;
        what[14..].copy_from_slice(&u16::to_be_bytes(factor));
        let scsw = run(&mut world, &mut guest, &extent, &what, &[(0x86, 4096)]);
        assert_eq!(scsw.is_good(), is_good, "{block} {factor}");
    }
}

#[test]
fn domain_that_writes_ends_with_its_read_count() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let update = [&[0x80], &EXTENT[1..]].concat().try_into().unwrap();
    let mut suffixed = locate(0x01, 2, 1, 5);
    suffixed[1] = 0x01;
    let scsw = run(&mut world, &mut guest, &update, &suffixed, &[(0x85, 4096), (0x92, 8)]);
    assert!(scsw.is_good(), "{scsw:x?}");
    assert_eq!(guest.client.storage()[0x9000..0x9005], [0, 0, 0, 1, 6]);
    for commands in [[(0x92, 8), (0x85, 4096)], [(0x85, 4096), (0x85, 4096)]] {
        run(&mut world, &mut guest, &update, &suffixed, &commands);
        assert_eq!(sense(&guest), INVALID_SEQUENCE, "{commands:x?}");
    }
}

#[test]
fn transport_write_leaves_the_record_of_its_read_count_alone() {
    for (blocks_written, ends_well) in [(2, true), (3, false)] {
        let mut world = World::new(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        let data = 0x8000_usize;
        guest.client.storage()[data..data + 3 * 4096].fill(0xee);
        let storage = guest.client.storage();
        let count = blocks_written;
        let orb = build(storage, 0, 0x8000, Mode::Transport, Verb::Write, blocks(0, count));
        // The domain has three records, of which the last is that of the read count.
        let tccb = &mut storage[orb.program as usize..][64..][..96];
        let flags = auxiliary::FACTOR | auxiliary::COMMAND;
        let written = [operation::WRITE_DATA, flags, 0x85, count as u8];
        let at = tccb.windows(4).position(|bytes| bytes == written).unwrap();
        (tccb[at + 1], tccb[at + 3]) = (flags | auxiliary::COUNT_SUFFIX, 3);
        assert_eq!(guest.execute(&mut world, &orb).is_good(), ends_well, "{count} blocks");
        if !ends_well {
            assert_eq!(sense(&guest), INVALID_SEQUENCE);
        }
        read(&mut world, &mut guest, Mode::Transport, 0, 12, |number| match number {
            0 | 1 => vec![0xee; 4096],
            number => block(number, 0),
        });
    }
}

#[test]
fn end_of_file_is_a_unit_exception_and_its_count_and_key_are_read() {
    let mut world = world_with(&[(b"LAST", b""), (b"", b"more")]);
    let mut guest = world.guest(0, 2, true, false);
    let ended = DeviceStatus::ENDED.with(DeviceStatus::UNIT_EXCEPTION);
    let count = [0, 0, 0, 1, 1, 4, 0, 0];
    for (code, expected) in
        [(0x06, &[][..]), (0x0e, b"LAST"), (0x1e, &[&count[..], b"LAST"].concat()), (0x12, &count)]
    {
        // Counts are read from the record before it.
        let record = if code & 0x10 == 0 { 1 } else { 0 };
        let bytes = expected.len().max(1) as u16;
        let located = locate(0x16, 1, 1, record);
        let scsw = run(&mut world, &mut guest, &EXTENT, &located, &[(code, bytes)]);
        let status = if code == 0x12 { DeviceStatus::ENDED } else { ended };
        assert_eq!(scsw.device, status, "{code:x}: {scsw:x?}");
        let found = &guest.client.storage()[READ_AT as usize..][..expected.len()];
        assert_eq!(found, expected, "{code:x}");
    }
    // Nothing is written to it.
    let update = [&[0x80], &EXTENT[1..]].concat().try_into().unwrap();
    for code in [0x05, 0x0d] {
        let scsw = run(&mut world, &mut guest, &update, &locate(0x01, 1, 1, 1), &[(code, 4)]);
        assert_eq!((scsw.device, world.unit.counters().writes), (ended, 0), "{code:x}");
    }
}

#[test]
fn commands_that_are_not_multi_track_stay_on_their_track() {
    let mut world = world_with(&[(b"", b"1"), (b"", b"2"), (b"", b"3")]);
    let mut guest = world.guest(0, 2, true, false);
    // Linux tells by this that a track has three records only: the fourth count is that of the first.
    let scsw = run(&mut world, &mut guest, &EXTENT, &locate(0x06, 4, 1, 0), &[(0x12, 8); 4]);
    assert!(scsw.is_good(), "{scsw:x?}");
    assert_eq!(counts(&mut guest, 4), [(1, 1), (1, 2), (1, 3), (1, 1)]);
    let scsw = run(&mut world, &mut guest, &EXTENT, &locate(0x06, 4, 1, 0), &[(0x92, 8); 4]);
    assert!(scsw.is_good(), "{scsw:x?}");
    assert_eq!(counts(&mut guest, 4), [(1, 1), (1, 2), (1, 3), (2, 1)]);
    // A track that was passed without data, from index point to index point, has no further record.
    let scsw = run(&mut world, &mut guest, &EXTENT, &locate(0x06, 9, 1, 2), &[(0x12, 8); 9]);
    assert_eq!((sense(&guest), scsw.address), (NO_RECORD, 0x410 + 5 * 8));
    let scsw = run(&mut world, &mut guest, &EXTENT, &locate(0x06, 8, 1, 2), &[(0x06, 1); 8]);
    assert!(scsw.is_good(), "{scsw:x?}");
    let read = (0..8).map(|index| guest.client.storage()[READ_AT as usize + index * 0x1000]);
    assert_eq!(read.collect::<Vec<_>>(), *b"23123123");
    // So do writes.
    let update = [&[0x80], &EXTENT[1..]].concat().try_into().unwrap();
    let scsw = run(&mut world, &mut guest, &update, &locate(0x01, 2, 1, 3), &[(0x05, 1); 2]);
    assert!(scsw.is_good(), "{scsw:x?}");
    let synced = world.disk.0.lock().unwrap().synced().to_vec();
    let data = |record: usize| synced[512 + TRACK_BYTES + 21 + record * 9 - 1];
    assert_eq!([1, 2, 3].map(data), [0xee, b'2', 0xee]);
}

#[test]
fn tracks_without_records_are_passed_up_to_the_end_of_the_extent() {
    let mut world = world_with_empty_tracks();
    let mut guest = world.guest(0, 4, true, false);
    let up_to = |mask: u8, cylinder: u8, head: u8| {
        let mut extent = EXTENT;
        (extent[0], extent[13], extent[15]) = (mask, cylinder, head);
        extent
    };
    let located = |operation| locate(operation, 2, 0, 12);
    // The next record is on head 14 of cylinder 2. Others have turns meanwhile.
    let before = world.unit.counters();
    let commands = [(0x86, 4096), (0x86, 4096)];
    let scsw = run(&mut world, &mut guest, &up_to(0x40, 3, 14), &located(0x06), &commands);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    assert!(guest.client.storage()[0x9000..0xa000] == world::block(44 * 12, 0));
    let after = world.unit.counters();
    assert_eq!((after.asides - before.asides, after.commands - before.commands), (3, 4));
    let scsw = run(&mut world, &mut guest, &up_to(0x80, 3, 14), &located(0x01), &[(0x85, 4096); 2]);
    assert!(scsw.is_good(), "{scsw:x?}");
    let at = 512 + 44 * TRACK_BYTES + 21 + 8;
    assert_eq!(world.disk.0.lock().unwrap().synced()[at..at + 4096], [0xee; 4096]);
    // An extent that ends before it has no further record.
    let scsw = run(&mut world, &mut guest, &up_to(0x40, 2, 13), &located(0x06), &commands);
    assert_eq!((sense(&guest), scsw.address), ((0, 0x04, 0), 0x420));
    assert_eq!(world.unit.pinned(0), 0);
}

#[test]
fn operation_passes_several_stretches_of_tracks_without_records() {
    let mut bytes = image(4);
    for (number, track) in bytes[512..].chunks_mut(TRACK_BYTES).enumerate() {
        if (1..=43).contains(&number) && number != 21 {
            track::clear(track, track_of(number as u32));
        }
    }
    let mut world = World::with(bytes, 100);
    let mut guest = world.guest(0, 4, true, false);
    // The last record of track 0, all of track 21, and the first of track 44.
    let storage = guest.client.storage();
    let blocks = world::blocks(11, 14);
    let mut orb = build(storage, world::AT, world::DATA, Mode::Transport, Verb::Read, blocks);
    // The extent ends with the device: behind the TCAH, the DCW, and what is before the end in the prefix.
    let end = orb.program as usize + 64 + 16 + 8 + 12 + 12;
    storage[end..end + 4].copy_from_slice(&[0, 3, 0, 14]);
    orb.parameter = 9;
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    let numbers = std::iter::once(11).chain(21 * 12..22 * 12).chain(std::iter::once(44 * 12));
    for (index, number) in numbers.enumerate() {
        let at = world::DATA as usize + index * 4096;
        assert!(guest.client.storage()[at..at + 4096] == world::block(number, 0), "{number}");
    }
}

#[test]
fn operation_passes_as_many_stretches_as_it_has_records() {
    // A record on every 18th track, so that each of 99 stretches is longer than what is gone over in one turn.
    const RECORDS: u32 = 100;
    let cylinders = (RECORDS * 18).div_ceil(15);
    let mut bytes = image(cylinders);
    let empty = |number: &u32| !number.is_multiple_of(18);
    for (number, track) in (0..).zip(bytes[512..].chunks_mut(TRACK_BYTES)) {
        track::clear(track, track_of(number));
        if !empty(&number) {
            let data = world::block(u64::from(number), 0);
            track::append(track, track_of(number), &[], &data).unwrap();
        }
    }
    let mut world = World::with(bytes, 2000);
    let mut guest = world.guest(0, cylinders, true, false);
    let storage = guest.client.storage();
    let blocks = world::blocks(0, RECORDS);
    let orb = build(storage, world::AT, world::DATA, Mode::Transport, Verb::Read, blocks);
    // As above, the extent ends with the device.
    let end = orb.program as usize + 64 + 16 + 8 + 12 + 12;
    storage[end..end + 4].copy_from_slice(&[0, cylinders as u8 - 1, 0, 14]);
    let before = world.unit.counters().asides;
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    // Each stretch has 17 tracks.
    assert!(world.unit.counters().asides - before >= u64::from(RECORDS) - 1);
    for record in 0..RECORDS {
        let at = (world::DATA + record * 4096) as usize;
        let block = world::block(u64::from(record * 18), 0);
        assert!(guest.client.storage()[at..at + 4096] == block, "{record}");
    }
    assert_eq!(world.unit.pinned(0), 0);
}

#[test]
fn chains_beyond_the_limit_of_what_waits_run_once_more_for_a_unit_at_most() {
    const CYLINDERS: u32 = 60;
    const CHAINS: u16 = 40;
    const WRITES: usize = 12;
    let mut bytes = image(CYLINDERS);
    for (number, track) in (0..).zip(bytes[512..].chunks_mut(TRACK_BYTES)).skip(1) {
        track::clear(track, track_of(number));
    }
    let mut world = World::with(bytes, 1000);
    world.sides.0.push(None);
    let subchannels = VolumeUse { subchannels: CHAINS, ..wish(0, CYLINDERS, true) };
    let mut guest = world.guest_at(0, subchannels);
    let mut extent = EXTENT;
    (extent[0], extent[13], extent[15]) = (0xc0, CYLINDERS as u8 - 1, 14);
    let storage = guest.client.storage();
    storage[0x1000..0x1010].copy_from_slice(&extent);
    storage[0x1010..0x1020].copy_from_slice(&locate(0x06, 2, 0, 12));
    // A read that goes over the whole device, and behind it more data than may wait for it, all chains together.
    let read = (0x86, CC, 4096, 0x8_0000);
    let mut program = vec![(0x63, CC, 16, EXTENT_AT), (0x47, CC, 16, LOCATE_AT), read, read];
    program.extend([(0x05, CC_SLI, 65535, 0x10_0000); WRITES]);
    program.push((0x03, SLI, 1, 0));
    let orb = ccws(&mut guest, &program);
    (0..CHAINS).for_each(|subchannel| guest.start(subchannel, &orb));
    let (mut ended, mut passes, mut waited, mut sent) = (0, 0, 0, 0);
    while ended < CHAINS {
        // Chains that found the control unit full begin again.
        world.channel.repeat(&mut world.sides, 0);
        let (sender, receiver) = world.sides.0[0].as_mut().unwrap();
        world.channel.poll_guest(0, sender, receiver, 0).unwrap();
        let before = world.unit.counters().asides;
        world.unit.poll();
        let asides = world.unit.counters().asides - before;
        // Eight have their turn, and a unit that finds no room has its chain run once more. A few units come a pass late.
        let units = world.channel.sent_of(Kind::Data) + world.channel.sent_of(Kind::Command);
        let came = units - std::mem::replace(&mut sent, units);
        assert!(asides <= 8 + 8 + came, "pass {passes}: {asides} runs with {came} units");
        waited += asides;
        world.channel.poll_units(&mut world.sides, 0).unwrap();
        while let Some(event) = guest.poll() {
            assert!(matches!(event, Event::Ended { .. }), "{event:?}");
            ended += 1;
        }
        passes += 1;
        assert!(passes < 100_000, "{ended} of {CHAINS} have ended");
    }
    assert!(waited > u64::from(CHAINS), "{waited}");
    world.run();
    assert_eq!(world.unit.pinned(0), 0);
}

#[test]
fn extended_locate_record_takes_what_it_says() {
    for (bytes, extra) in [(20, 0), (30, 10)] {
        let mut world = World::new(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        let storage = guest.client.storage();
        storage[0x1000..0x1010].copy_from_slice(&EXTENT);
        storage[0x1010..0x1020].copy_from_slice(&locate(0x06, 1, 0, 1));
        let locate = (0x4b, CC, bytes, LOCATE_AT);
        let orb = ccws(&mut guest, &[(0x63, CC, 16, EXTENT_AT), locate, (0x86, 0, 4096, READ_AT)]);
        let scsw = guest.execute(&mut world, &orb);
        let status = if extra > 0 { (0x410, 0x40, extra) } else { (0x418, 0, 0) };
        assert_eq!((scsw.address, scsw.subchannel.0, scsw.count), status);
    }
}

#[test]
fn record_that_a_chain_writes_is_found_behind_tracks_that_had_none() {
    let mut world = world_with_empty_tracks();
    let mut guest = world.guest(0, 4, true, false);
    let mut extent = EXTENT;
    (extent[0], extent[13], extent[15]) = (0xc0, 3, 14);
    // A read passes tracks 1 to 43; a record is written to track 5; the same read finds that record.
    let read = locate(0x06, 2, 0, 12);
    let mut write = locate(0x03, 1, 5, 0);
    write[12] = 0;
    let storage = guest.client.storage();
    storage[0x1000..0x1010].copy_from_slice(&extent);
    storage[0x1010..0x1020].copy_from_slice(&read);
    storage[0x1020..0x1030].copy_from_slice(&write);
    storage[0x2000..0x2008].copy_from_slice(&[0, 0, 0, 5, 1, 0, 0x10, 0]);
    storage[0x2008..0x3008].fill(0x77);
    let program = [
        (0x63, CC, 16, 0x1000),
        (0x47, CC, 16, 0x1010),
        (0x86, CC, 4096, 0x8000),
        (0x86, CC, 4096, 0x9000),
        (0x47, CC, 16, 0x1020),
        (0x1d, CC, 4104, 0x2000),
        (0x47, CC, 16, 0x1010),
        (0x86, CC, 4096, 0xa000),
        (0x86, 0, 4096, 0xb000),
    ];
    let orb = ccws(&mut guest, &program);
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    assert!(guest.client.storage()[0x9000..0xa000] == world::block(44 * 12, 0));
    assert_eq!(guest.client.storage()[0xb000..0xc000], [0x77; 4096]);
}
