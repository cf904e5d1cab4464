//! Programs of seeks and searches, from a guest's storage to a simulated disk and back.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use channel::client::Event;
use disk::ckd::model::TRACK_BYTES;
use disk::format::eckd::{Cchh, Count, Extent, Locate, Permission, command, operation};
use disk::format::orb::Orb;
use disk::format::scsw::DeviceStatus;
use disk::program::blocks::{Mode, Verb, build};

use world::{AT, CC, CC_SLI, DATA, Guest, World, block, blocks, ccws, read, read_after, round};

/// A seek to a track, a search for a record with the transfer back to it, and what comes behind. The search is the second CCW.
fn search_chain(
    guest: &mut Guest,
    seek: Cchh,
    (code, wanted): (u8, &[u8]),
    behind: &[(u8, u8, u16, u32)],
) -> Orb {
    let storage = guest.client.storage();
    storage[0x1000..0x1002].fill(0);
    storage[0x1002..0x1006].copy_from_slice(&seek.emit());
    storage[0x1010..0x1010 + wanted.len()].copy_from_slice(wanted);
    let mut program = vec![
        (command::SEEK, CC, 6, 0x1000),
        (code, CC, wanted.len() as u16, 0x1010),
        (0x08, 0, 0, 0x408),
    ];
    program.extend(behind);
    ccws(guest, &program)
}

fn id(track: Cchh, record: u8) -> Vec<u8> {
    [&track.emit()[..], &[record]].concat()
}

/// The sense of a program that has ended in a unit check: bytes 0, 1 and 7.
fn check_of(world: &mut World, guest: &mut Guest, orb: &Orb) -> (u8, u8, u8) {
    let scsw = guest.execute(world, orb);
    assert!(scsw.device.has(DeviceStatus::UNIT_CHECK), "{scsw:x?}");
    let sense = guest.client.answer().sense.unwrap().0;
    (sense[0], sense[1], sense[7])
}

const NO_RECORD: (u8, u8, u8) = (0, 0x08, 0);
const FILE_PROTECTED: (u8, u8, u8) = (0, 0x04, 0);
const INVALID_SEQUENCE: (u8, u8, u8) = (0x80, 0, 2);
const MASK_VIOLATION: (u8, u8, u8) = (0x80, 0x04, 5);

#[test]
fn seek_search_transfer_and_read_find_a_record_without_an_extent() {
    let mut world = World::new(5, 100);
    for (first_cylinder, dedicated) in [(0, true), (2, false)] {
        let mut guest = world.guest(first_cylinder, 2, true, dedicated);
        let track = Cchh { cylinder: 1, head: 4 };
        for record in [1, 2, 12] {
            let before = world.unit.counters().commands;
            let wanted = id(track, record);
            let behind = [(command::READ_DATA, 0, 4096, 0x2000)];
            let orb = search_chain(&mut guest, track, (0x31, &wanted), &behind);
            let scsw = guest.execute(&mut world, &orb);
            assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
            assert_eq!((scsw.address, scsw.count), (0x420, 0), "record {record}");
            let number = u64::from(first_cylinder) * 180 + (15 + 4) * 12 + u64::from(record) - 1;
            let found = &guest.client.storage()[0x2000..0x3000];
            assert!(found == block(number, 0), "record {record}");
            // A seek, a search for each record from record 0 on, and the read.
            assert_eq!(world.unit.counters().commands - before, 2 + u64::from(record) + 1);
        }
    }
}

#[test]
fn search_ends_after_a_revolution_without_a_match() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let track = Cchh { cylinder: 1, head: 2 };
    let before = world.unit.counters().commands;
    let orb = search_chain(&mut guest, track, (0x31, &id(track, 13)), &[(0x06, 0, 4096, 0x2000)]);
    assert_eq!(check_of(&mut world, &mut guest, &orb), NO_RECORD);
    assert_eq!(guest.client.answer().scsw.address, 0x410, "the search is what fails");
    let sense = guest.client.answer().sense.unwrap().0;
    assert_eq!(sense[29..], [0, 1, 2], "the track");
    // The seek, 13 records, and the search that comes to the index again.
    assert_eq!(world.unit.counters().commands - before, 15);
    // From the middle of a track it takes the rest of it and a revolution.
    let data = (0x06, CC, 4096, 0x2000);
    let rest = [data, (0x31, CC, 5, 0x1018), (0x08, 0, 0, 0x420), data];
    let orb = search_chain(&mut guest, track, (0x31, &id(track, 6)), &rest);
    guest.client.storage()[0x1018..0x101d].copy_from_slice(&id(track, 77));
    let before = world.unit.counters().commands;
    assert_eq!(check_of(&mut world, &mut guest, &orb), NO_RECORD);
    assert_eq!(world.unit.counters().commands - before, 1 + 7 + 1 + 6 + 13 + 1);
    // Searches for keys and home addresses end too, where there are none.
    for (code, wanted) in [(0x29, &b"KEY"[..]), (0x39, &[0, 9, 0, 2])] {
        let orb = search_chain(&mut guest, track, (code, wanted), &[data]);
        assert_eq!(check_of(&mut world, &mut guest, &orb), NO_RECORD, "{code:x}");
    }
    let orb =
        ccws(&mut guest, &[(0x07, CC, 6, 0x1000), (0x12, CC, 8, 0x2000), (0x08, 0, 0, 0x408)]);
    assert_eq!(check_of(&mut world, &mut guest, &orb), NO_RECORD);
}

#[test]
fn multi_track_search_goes_on_to_the_end_of_its_cylinder_or_extent() {
    let mut world = World::new(4, 100);
    let mut guest = world.guest(1, 2, true, false);
    let (track, other) = (Cchh { cylinder: 0, head: 3 }, Cchh { cylinder: 0, head: 5 });
    let read = (0x86, 0, 4096, 0x2000);
    let orb = search_chain(&mut guest, track, (0xb1, &id(other, 7)), &[read]);
    assert!(guest.execute(&mut world, &orb).is_good());
    assert!(guest.client.storage()[0x2000..0x3000] == block(180 + 5 * 12 + 6, 0));
    let before = world.unit.counters().commands;
    let next = Cchh { cylinder: 1, head: 0 };
    let orb = search_chain(&mut guest, track, (0xb1, &id(next, 1)), &[read]);
    assert_eq!(check_of(&mut world, &mut guest, &orb), (0, 0x20, 0), "end of cylinder");
    assert_eq!(world.unit.counters().commands - before, 1 + 12 * 13 + 1);
    // The same within an extent that ends with head 4.
    let last = Cchh { cylinder: 0, head: 4 };
    let extent = Extent { first: track, last, ..Extent::default() };
    guest.client.storage()[0x1100..0x1110].copy_from_slice(&extent.emit());
    let program = [
        (0x63, CC, 16, 0x1100),
        (0x07, CC, 6, 0x1000),
        (0xb1, CC, 5, 0x1010),
        (0x08, 0, 0, 0x410),
        read,
    ];
    let orb = ccws(&mut guest, &program);
    assert_eq!(check_of(&mut world, &mut guest, &orb), FILE_PROTECTED);
    guest.client.storage()[0x1010..0x1015].copy_from_slice(&id(last, 2));
    assert!(guest.execute(&mut world, &orb).is_good());
    // The mask can forbid it.
    guest.client.storage()[0x1100] = 0x18;
    assert_eq!(check_of(&mut world, &mut guest, &orb), FILE_PROTECTED);
    // An extent comes before the chain goes anywhere.
    let orb = ccws(&mut guest, &[(0x07, CC, 6, 0x1000), (0x63, 0, 16, 0x1100)]);
    assert_eq!(check_of(&mut world, &mut guest, &orb), INVALID_SEQUENCE);
}

#[test]
fn seeks_stay_on_the_device_and_within_mask_and_extent() {
    let mut world = World::new(5, 100);
    let mut guest = world.guest(1, 2, true, false);
    let mut run = |seek: (u8, [u8; 6]), mask: Option<u8>| {
        let storage = guest.client.storage();
        // Heads 2 to 4 of cylinder 0, for an extent.
        let extent = Extent {
            first: Cchh { cylinder: 0, head: 2 },
            last: Cchh { cylinder: 0, head: 4 },
            ..Extent::default()
        };
        storage[0x1100..0x1110].copy_from_slice(&extent.emit());
        storage[0x1000..0x1006].copy_from_slice(&seek.1);
        storage[0x1008..0x1010].copy_from_slice(&[0, 0, 0, 0, 0, 3, mask.unwrap_or(0), 0]);
        let before = match mask {
            None => (0x63, CC, 16, 0x1100),
            Some(_) => (0x1f, CC, 1, 0x100e),
        };
        // A seek that the mask of an extent allows always comes first, so that a seek to a head can follow.
        let program = match (mask, seek.0) {
            (None, _) => vec![before, (0x07, CC, 6, 0x1008), (seek.0, CC, 6, 0x1000)],
            _ => vec![(0x07, CC, 6, 0x1008), before, (seek.0, CC, 6, 0x1000)],
        };
        let orb = ccws(&mut guest, &[program, vec![(0x1a, 0, 5, 0x2000)]].concat());
        let scsw = guest.execute(&mut world, &orb);
        if scsw.is_good() {
            return Ok(guest.client.storage()[0x2001..0x2005].to_vec());
        }
        let sense = guest.client.answer().sense.unwrap().0;
        Err((sense[0], sense[1], sense[7]))
    };
    let to = |cylinder: u8, head: u8| [0, 0, 0, cylinder, 0, head];
    // The device has two cylinders, and addresses begin with zeros.
    assert_eq!(run((0x07, to(1, 14)), Some(0)), Ok(vec![0, 1, 0, 14]));
    assert_eq!(run((0x07, to(2, 0)), Some(0)), Err((0x80, 0, 4)));
    assert_eq!(run((0x0b, to(1, 15)), Some(0)), Err((0x80, 0, 4)));
    assert_eq!(run((0x07, [1, 0, 0, 0, 0, 0]), Some(0)), Err((0x80, 0, 4)));
    // A seek to a head keeps the cylinder, and recalibrate has no address.
    assert_eq!(run((0x1b, to(1, 7)), Some(0)), Ok(vec![0, 0, 0, 7]));
    assert_eq!(run((0x1b, to(0, 0x10)), Some(0)), Err((0x80, 0, 4)), "head 16");
    assert_eq!(run((0x13, to(1, 7)), Some(0)), Ok(vec![0, 0, 0, 0]));
    for (code, masks) in [(0x07, 1), (0x13, 1), (0x0b, 2), (0x1b, 3)] {
        for mask in 0..4 {
            let found = run((code, to(0, 5)), Some(mask << 3));
            assert_eq!(found.is_ok(), mask < masks, "{code:x} with mask {mask}");
            assert_eq!(found.err(), (mask >= masks).then_some(FILE_PROTECTED));
        }
    }
    assert_eq!(run((0x07, to(0, 1)), Some(0x20)), Err((0x80, 0, 4)), "a bit that must be 0");
    // An extent bounds all of them.
    assert_eq!(run((0x07, to(0, 4)), None), Ok(vec![0, 0, 0, 4]));
    for seek in [(0x07, to(0, 5)), (0x0b, to(1, 3)), (0x1b, to(0, 1)), (0x13, to(0, 3))] {
        assert_eq!(run(seek, None), Err(FILE_PROTECTED), "{seek:x?}");
    }
}

#[test]
fn searches_lead_to_what_is_written() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(1, 1, true, true);
    let track = Cchh { cylinder: 0, head: 6 };
    let count =
        |record, key_bytes, data_bytes| Count { track, record, key_bytes, data_bytes }.emit();
    // Three records with keys behind record 0: the search for it is what allows the first.
    let storage = guest.client.storage();
    for (record, key) in [(1, b"AAA"), (2, b"CCC"), (3, b"EEE")] {
        let at = 0x4000 + usize::from(record) * 0x100;
        storage[at..at + 8].copy_from_slice(&count(record, 3, 10));
        storage[at + 8..at + 11].copy_from_slice(key);
        storage[at + 11..at + 21].fill(b'0' + record);
    }
    let format = [(0x1d, CC, 21, 0x4100), (0x1d, CC, 21, 0x4200), (0x1d, 0, 21, 0x4300)];
    let orb = search_chain(&mut guest, track, (0x31, &id(track, 0)), &format);
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    // Which key a search finds, by what it asks for.
    for (code, wanted, found) in [
        (0x29, &b"CCC"[..], Some(2)),
        (0x29, b"C", Some(2)),
        (0x29, b"BBB", None),
        (0x49, b"AAA", Some(2)),
        (0x49, b"EEE", None),
        (0x69, b"AAA", Some(1)),
        (0x69, b"D", Some(3)),
        (0xe9, b"ABC", Some(2)),
    ] {
        let orb = search_chain(&mut guest, track, (code, wanted), &[(0x06, 0, 10, 0x2000)]);
        let scsw = guest.execute(&mut world, &orb);
        assert_eq!(scsw.is_good(), found.is_some(), "{code:x} {wanted:?}: {scsw:x?}");
        if let Some(found) = found {
            assert_eq!(guest.client.storage()[0x2000..0x200a], [b'0' + found; 10], "{code:x}");
        }
    }
    for (code, record, found) in [(0x51, 1, 2), (0x71, 2, 2), (0x51, 0, 1)] {
        let wanted = id(track, record);
        let orb = search_chain(&mut guest, track, (code, &wanted), &[(0x0e, 0, 13, 0x2000)]);
        assert!(guest.execute(&mut world, &orb).is_good(), "{code:x} {record}");
        assert_eq!(guest.client.storage()[0x2003], b'0' + found, "{code:x} {record}");
    }
    // A write needs a search for equal directly before it, of all of what it has compared.
    guest.client.storage()[0x5000..0x500d].copy_from_slice(b"XYZnew record");
    let at = 512 + 21 * TRACK_BYTES + 21 + 21 + 8;
    let written = |world: &World| world.disk.0.lock().unwrap().synced()[at..at + 13].to_vec();
    let refused = |world: &mut World, guest: &mut Guest, search: (u8, &[u8]), code, bytes| {
        let orb = search_chain(guest, track, search, &[(code, 0, bytes, 0x5000)]);
        assert_eq!(check_of(world, guest, &orb), INVALID_SEQUENCE, "{search:x?} {code:x}");
        assert_eq!(written(world), b"CCC2222222222");
    };
    let second = id(track, 2);
    refused(&mut world, &mut guest, (0x71, &second), 0x05, 10);
    refused(&mut world, &mut guest, (0x31, &second[..4]), 0x05, 10);
    refused(&mut world, &mut guest, (0x29, b"CC"), 0x05, 10);
    refused(&mut world, &mut guest, (0x29, b"CCC"), 0x0d, 13);
    refused(&mut world, &mut guest, (0x31, &second), 0x85, 10);
    refused(&mut world, &mut guest, (0x51, &id(track, 1)), 0x1d, 21);
    let between = [(0x03, CC_SLI, 1, 0), (0x05, 0, 10, 0x5000)];
    let orb = search_chain(&mut guest, track, (0x31, &second), &between);
    assert_eq!(check_of(&mut world, &mut guest, &orb), INVALID_SEQUENCE, "something in between");
    for (search, code, bytes, left) in [
        ((0x29, &b"CCC"[..]), 0x05, 10, &b"CCCXYZnew rec"[..]),
        ((0x31, &second), 0x0d, 13, b"XYZnew record"),
    ] {
        let orb = search_chain(&mut guest, track, search, &[(code, 0, bytes, 0x5000)]);
        let scsw = guest.execute(&mut world, &orb);
        assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
        assert_eq!(written(&world), left);
    }
    // A file mask keeps them from it.
    for (mask, code, bytes) in [(0x40, 0x05, 10), (0x40, 0x1d, 21), (0x80, 0x1d, 21)] {
        let orb = search_chain(&mut guest, track, (0x31, &second), &[(code, 0, bytes, 0x4300)]);
        guest.client.storage()[0x1020] = mask;
        let program = guest.client.storage()[0x400..0x420].to_vec();
        let set = [command::SET_FILE_MASK, CC, 0, 1, 0, 0, 0x10, 0x20];
        guest.client.storage()[0x400..0x408].copy_from_slice(&set);
        guest.client.storage()[0x408..0x428].copy_from_slice(&program);
        // The transfer leads back to the search, which is the third CCW now.
        guest.client.storage()[0x41f] = 0x10;
        assert_eq!(check_of(&mut world, &mut guest, &orb), MASK_VIOLATION, "{mask:x} {code:x}");
        assert_eq!(written(&world), b"XYZnew record");
    }
    // Record 0 is nobody's to write.
    let orb = search_chain(&mut guest, track, (0x31, &id(track, 0)), &[(0x05, 0, 8, 0x5000)]);
    assert_eq!(check_of(&mut world, &mut guest, &orb), MASK_VIOLATION);
}

#[test]
fn new_record_that_does_not_fit_leaves_its_track_as_it_was() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let track = Cchh { cylinder: 0, head: 9 };
    let before = world.disk.0.lock().unwrap().synced().to_vec();
    let count = Count { track, record: 13, key_bytes: 0, data_bytes: 56_000 };
    guest.client.storage()[0x4000..0x4008].copy_from_slice(&count.emit());
    let orb = search_chain(&mut guest, track, (0x31, &id(track, 12)), &[(0x1d, 0, 56_008, 0x4000)]);
    assert_eq!(check_of(&mut world, &mut guest, &orb), (0, 0x40, 0), "invalid track format");
    assert!(world.disk.0.lock().unwrap().synced() == before);
    read(&mut world, &mut guest, Mode::Transport, 9 * 12, 12, |number| block(number, 0));
}

#[test]
fn home_address_record_0_counts_and_sectors_are_read_after_a_seek() {
    let mut world = World::new(4, 100);
    let mut guest = world.guest(2, 2, false, false);
    let track = Cchh { cylinder: 1, head: 3 };
    guest.client.storage()[0x1020..0x1022].copy_from_slice(&[223, 224]);
    let behind = [
        (0x16, CC, 16, 0x2000),
        (0x12, CC, 8, 0x2010),
        (0x12, CC, 8, 0x2018),
        (0x22, CC, 1, 0x2020),
        (0x23, CC, 1, 0x1020),
        (0x06, CC, 4096, 0x3000),
        (0x1e, CC, 4104, 0x4000),
        (0x1a, 0, 5, 0x2028),
    ];
    let orb = search_chain(&mut guest, track, (0x39, &[0, 1, 0, 3]), &behind);
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    let storage = guest.client.storage();
    assert_eq!(storage[0x2000..0x2008], [0, 1, 0, 3, 0, 0, 0, 8], "record 0");
    assert_eq!(storage[0x2010..0x2018], [0, 1, 0, 3, 1, 0, 16, 0], "the first count field");
    assert_eq!(storage[0x2018..0x2020], [0, 1, 0, 3, 2, 0, 16, 0], "the second");
    assert_eq!(storage[0x2020], 24, "the sector of record 2");
    let number = 2 * 180 + (15 + 3) * 12;
    assert!(storage[0x3000..0x4000] == block(number + 1, 0), "data of the same record");
    assert_eq!(storage[0x4000..0x4008], [0, 1, 0, 3, 3, 0, 16, 0], "and then the next one");
    assert!(storage[0x4008..0x5008] == block(number + 2, 0));
    assert_eq!(storage[0x2028..0x202d], [0, 0, 1, 0, 3], "the home address");
    // There is no sector 224, and without a seek there is no place on a track.
    let orb = ccws(&mut guest, &[(0x23, 0, 1, 0x1021)]);
    assert_eq!(check_of(&mut world, &mut guest, &orb), (0x80, 0, 4));
    for code in [0x31, 0x29, 0x39, 0x22, 0x1b, 0x06, 0x12] {
        let orb = ccws(&mut guest, &[(code, 0x20, 6, 0x1000)]);
        assert_eq!(check_of(&mut world, &mut guest, &orb), INVALID_SEQUENCE, "{code:x}");
    }
    for code in [0x07, 0x0b] {
        let orb = ccws(&mut guest, &[(code, 0, 5, 0x1000)]);
        assert_eq!(check_of(&mut world, &mut guest, &orb), (0x80, 0, 3), "{code:x}: too short");
    }
}

#[test]
fn search_alone_ends_with_status_modifier_and_its_length_is_checked() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let track = Cchh { cylinder: 0, head: 1 };
    guest.client.storage()[0x1000..0x1006].copy_from_slice(&[0, 0, 0, 0, 0, 1]);
    guest.client.storage()[0x1010..0x1015].copy_from_slice(&id(track, 0));
    let mut run = |flags: u8, count: u16| {
        let orb = ccws(&mut guest, &[(0x07, CC, 6, 0x1000), (0x31, flags, count, 0x1010)]);
        let scsw = guest.execute(&mut world, &orb);
        (scsw.device.0, scsw.subchannel.0, scsw.count)
    };
    assert_eq!(run(0, 5), (0x4c, 0, 0));
    assert_eq!(run(0x20, 9), (0x4c, 0, 4));
    assert_eq!(run(0, 9), (0x4c, 0x40, 4));
}

#[test]
fn search_loop_without_end_does_one_command_at_a_time_and_is_halted() {
    let mut world = World::new(2, 100);
    let (mut guest, mut other) = (world.guest(0, 2, true, false), world.guest(0, 2, true, false));
    let track = Cchh { cylinder: 0, head: 1 };
    // Every search finds a record that is high enough, and with a command between no index point ends it.
    let behind = [(0x03, CC_SLI, 1, 0), (0x08, 0, 0, 0x408)];
    let orb = search_chain(&mut guest, track, (0x71, &[0; 5]), &behind);
    guest.start(0, &orb);
    for _ in 0..100 {
        let before = world.unit.counters().commands;
        round(&mut world);
        assert!(world.unit.counters().commands - before <= 2);
    }
    let read = build(other.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(3, 1));
    other.start(0, &read);
    for _ in 0..10 {
        round(&mut world);
    }
    assert_eq!(other.poll(), Some(Event::Ended { subchannel: 0, parameter: 0 }));
    assert_eq!(guest.poll(), None);
    guest.client.request(channel::request::Kind::Halt, 0, &mut guest.sender).unwrap();
    for _ in 0..10 {
        round(&mut world);
    }
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    read_after(&mut world, &mut guest);
}

#[test]
fn transport_mode_has_no_seeks_and_searches() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    for code in [0x07, 0x0b, 0x1b, 0x13, 0x1f, 0x22, 0x23, 0x29, 0x31, 0x39, 0xf1] {
        let orb =
            build(guest.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(0, 1));
        let tcw = orb.program as usize;
        let tccb: [u8; 8] = guest.client.storage()[tcw + 32..tcw + 40].try_into().unwrap();
        let tccb = u64::from_be_bytes(tccb) as usize;
        // The first DCW is behind the head of the TCCB.
        guest.client.storage()[tccb + 16] = code;
        assert_eq!(check_of(&mut world, &mut guest, &orb), (0x80, 0, 1), "{code:x}");
    }
}

#[test]
fn write_after_a_search_meets_only_the_record_that_was_found() {
    let track = Cchh { cylinder: 0, head: 3 };
    let mut ends = Vec::new();
    for moment in 0..24 {
        let mut world = World::new(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        let mut other = world.guest(0, 1, true, false);
        guest.client.storage()[0x5000..0x6000].fill(0x77);
        let behind = [(0x05, 0, 4096, 0x5000)];
        let orb = search_chain(&mut guest, track, (0x31, &id(track, 12)), &behind);
        guest.start(0, &orb);
        for _ in 0..moment {
            round(&mut world);
        }
        // Meanwhile another program gives the track 12 new records, of the same length and with other numbers.
        let extent =
            Extent { permission: Permission::All, first: track, last: track, ..Extent::default() };
        let operation = operation::FORMAT_WRITE;
        let locate =
            Locate { operation, count: 12, seek: track, search: track, ..Locate::default() };
        other.client.storage()[0x1000..0x1010].copy_from_slice(&extent.emit());
        other.client.storage()[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
        let mut program = vec![(0x63, CC, 16, 0x1000), (0x47, CC, 16, 0x1010)];
        for record in 101..=112 {
            let count = Count { track, record, key_bytes: 0, data_bytes: 4096 };
            let at = u32::from(record) * 0x2000;
            other.client.storage()[at as usize..][..8].copy_from_slice(&count.emit());
            program.push((0x1d, if record == 112 { 0 } else { CC }, 4104, at));
        }
        let orb = ccws(&mut other, &program);
        assert!(other.execute(&mut world, &orb).is_good());
        world.run();
        assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
        let sense = guest.client.answer().sense.map(|sense| (sense.0[0], sense.0[1], sense.0[7]));
        ends.push(sense);
        let at = 512 + 3 * TRACK_BYTES + 21 + 11 * 4104;
        let record = world.disk.0.lock().unwrap().synced()[at..at + 4104].to_vec();
        assert_eq!(record[..5], id(track, 112), "moment {moment}");
        assert!(record[8..] == [0; 4096], "moment {moment}: not the record that was found");
    }
    // It comes before, between and after.
    assert!(ends.contains(&None) && ends.contains(&Some(NO_RECORD)), "{ends:?}");
}

#[test]
fn chain_goes_on_behind_read_ipl() {
    let mut world = World::new(4, 100);
    let mut guest = world.guest(2, 2, false, false);
    // What is read first begins a chain that goes anywhere on the device: here the seek that comes next does.
    let ahead = [(0x02, CC_SLI, 24, 0x2000), (0x06, CC, 4096, 0x3000)];
    guest.client.storage()[0x1000..0x1006].copy_from_slice(&[0, 0, 0, 1, 0, 2]);
    let program = [ahead[0], ahead[1], (0x07, CC, 6, 0x1000), (0x06, 0, 4096, 0x4000)];
    let orb = ccws(&mut guest, &program);
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    let storage = guest.client.storage();
    assert!(storage[0x2000..0x2018] == block(360, 0)[..24], "record 1 of the minidisk");
    assert!(storage[0x3000..0x4000] == block(361, 0), "record 2");
    assert!(storage[0x4000..0x5000] == block(360 + 17 * 12, 0), "of another track");
    // Within an extent there is no IPL.
    let extent = Extent { last: Cchh { cylinder: 1, head: 14 }, ..Extent::default() };
    guest.client.storage()[0x1100..0x1110].copy_from_slice(&extent.emit());
    let orb = ccws(&mut guest, &[(0x63, CC, 16, 0x1100), (0x02, 0x20, 24, 0x2000)]);
    assert_eq!(check_of(&mut world, &mut guest, &orb), INVALID_SEQUENCE);
}

#[test]
fn write_after_a_search_for_a_key_meets_only_the_record_that_had_it() {
    let track = Cchh { cylinder: 0, head: 3 };
    let (key_a, key_b) = (*b"KEY-A   ", *b"KEY-B   ");
    let mut ends = Vec::new();
    for moment in 0..24 {
        let mut world = World::new(1, 100);
        let mut guest = world.guest(0, 1, true, false);
        let mut other = world.guest(0, 1, true, false);
        // A record with the first key.
        let extent =
            Extent { permission: Permission::All, first: track, last: track, ..Extent::default() };
        let operation = operation::FORMAT_WRITE;
        let locate =
            Locate { operation, count: 1, seek: track, search: track, ..Locate::default() };
        let count = Count { track, record: 1, key_bytes: 8, data_bytes: 96 };
        let storage = other.client.storage();
        storage[0x1000..0x1010].copy_from_slice(&extent.emit());
        storage[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
        storage[0x2000..0x2008].copy_from_slice(&count.emit());
        storage[0x2008..0x2010].copy_from_slice(&key_a);
        storage[0x2010..0x2070].fill(0xaa);
        let first = [(0x63, CC, 16, 0x1000), (0x47, CC, 16, 0x1010), (0x1d, 0, 112, 0x2000)];
        let orb = ccws(&mut other, &first);
        assert!(other.execute(&mut world, &orb).is_good());
        // What has this key gets other data; meanwhile another program gives it another key.
        guest.client.storage()[0x5000..0x5060].fill(0x77);
        let orb = search_chain(&mut guest, track, (0x29, &key_a), &[(0x05, 0, 96, 0x5000)]);
        guest.start(0, &orb);
        for _ in 0..moment {
            round(&mut world);
        }
        other.client.storage()[0x5000..0x5008].copy_from_slice(&key_b);
        other.client.storage()[0x5008..0x5068].fill(0xbb);
        let locate = Locate { operation: operation::WRITE_DATA, record: 1, ..locate };
        other.client.storage()[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
        let orb = ccws(
            &mut other,
            &[(0x63, CC, 16, 0x1000), (0x47, CC, 16, 0x1010), (0x8d, 0, 104, 0x5000)],
        );
        assert!(other.execute(&mut world, &orb).is_good());
        world.run();
        assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
        let sense = guest.client.answer().sense.map(|sense| (sense.0[0], sense.0[1], sense.0[7]));
        ends.push(sense);
        let at = 512 + 3 * TRACK_BYTES + 21 + 8;
        let record = world.disk.0.lock().unwrap().synced()[at..at + 104].to_vec();
        assert_eq!(record[..8], key_b, "moment {moment}");
        assert!(record[8..] == [0xbb; 96], "moment {moment}: not the record that was found");
    }
    // It comes before, between and after.
    assert!(ends.contains(&None) && ends.contains(&Some(NO_RECORD)), "{ends:?}");
}
