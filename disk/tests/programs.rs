//! Programs of both modes, from a guest's storage to a simulated disk and back.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use std::io;

use channel::client::Event;
use channel::exchange::Kind;
use disk::ckd::backing::{Backing, Simulated};
use disk::ckd::header::Header;
use disk::ckd::model::{BLOCK_BYTES, TRACK_BYTES};
use disk::ckd::volume::{Access, Volume};
use disk::format::eckd::{
    Cchh, Count, Extent, Locate, Permission, Prefix, command, extended, operation,
};
use disk::format::orb::{Orb, OrbFlags};
use disk::format::scsw::{DeviceStatus, SubchannelStatus, TRANSPORT_FORMAT, TSB_STORED, control};
use disk::format::tsb::{TSB_BYTES, TransportStatus, Tsb};
use disk::program::blocks::{Mode, Verb, build};
use disk::unit::usage::VolumeUse;
use disk::unit::{DamagedTrack, Syncing};
use os::storage::StorageOptions;

use world::{
    AT, CC, CC_SLI, DATA, Disk, Guest, MODES, SLI, World, block, blocks, ccws, read, read_after,
    round, wish,
};

fn write(
    world: &mut World,
    guest: &mut Guest,
    mode: Mode,
    first: u64,
    count: u32,
    seed: u8,
) -> DeviceStatus {
    for index in 0..u64::from(count) {
        let at = DATA as usize + index as usize * BLOCK_BYTES;
        guest.client.storage()[at..at + BLOCK_BYTES].copy_from_slice(&block(first + index, seed));
    }
    let orb = build(guest.client.storage(), AT, DATA, mode, Verb::Write, blocks(first, count));
    guest.execute(world, &orb).device
}

#[test]
fn both_modes_read_the_same_blocks() {
    let mut world = World::new(3, 100);
    for dedicated in [false, true] {
        let mut guest = world.guest(0, 3, true, dedicated);
        for mode in MODES {
            for (first, count) in [(0, 1), (11, 1), (11, 2), (5, 64), (100, 255), (539, 1)] {
                read(&mut world, &mut guest, mode, first, count, |number| block(number, 0));
            }
        }
    }
}

#[test]
fn what_one_mode_writes_the_other_reads_and_the_disk_has() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, true);
    let mut other = world.guest(0, 3, true, false);
    for (seed, mode, reader) in
        [(1, Mode::Command, Mode::Transport), (2, Mode::Transport, Mode::Command)]
    {
        assert_eq!(write(&mut world, &mut guest, mode, 20, 30, seed), DeviceStatus::ENDED);
        read(&mut world, &mut other, reader, 20, 30, |number| block(number, seed));
        let simulated = world.disk.0.lock().unwrap();
        // Block 24 is the first of track 2.
        let at = 512 + 2 * TRACK_BYTES + 5 + 16 + 8;
        assert!(simulated.synced()[at..at + BLOCK_BYTES] == block(24, seed));
    }
    assert!(world.unit.counters().syncs >= 2);
}

#[test]
fn units_of_transport_mode_do_not_grow_with_the_records() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, true);
    let mut units = |mode: Mode, count: u32| {
        let sent = |world: &World| -> u64 {
            Kind::ALL
                .iter()
                .filter(|kind| **kind != Kind::Release)
                .map(|kind| world.channel.sent_of(*kind) + world.unit.sent_of(*kind))
                .sum()
        };
        let before = sent(&world);
        read(&mut world, &mut guest, mode, 0, count, |number| block(number, 0));
        sent(&world) - before
    };
    let of = |units: &mut dyn FnMut(Mode, u32) -> u64, mode| {
        [1, 4, 16, 32, 64].map(|count| units(mode, count))
    };
    assert_eq!(of(&mut units, Mode::Transport), [2; 5]);
    // Commands, their data both ways, responses, and the status.
    assert_eq!(of(&mut units, Mode::Command), [8, 14, 39, 72, 138]);
}

#[test]
fn minidisk_ends_at_its_bounds_and_shows_its_own_cylinders() {
    let mut world = World::new(5, 100);
    let mut guest = world.guest(2, 2, true, false);
    read(&mut world, &mut guest, Mode::Transport, 0, 5, |number| block(number + 2 * 180, 0));
    for mode in MODES {
        let orb = build(guest.client.storage(), AT, DATA, mode, Verb::Read, blocks(2 * 180, 1));
        let scsw = guest.execute(&mut world, &orb);
        assert!(scsw.device.has(DeviceStatus::UNIT_CHECK), "{mode:?}");
        let sense = guest.client.answer().sense.unwrap();
        assert_eq!((sense.0[0], sense.0[7]), (0x80, 4), "{mode:?}: no such track");
    }
    // The count field behind record 2 of cylinder 1, head 4, which is cylinder 3 of the volume.
    let track = Cchh { cylinder: 1, head: 4 };
    let extent =
        Extent { permission: Permission::Nothing, first: track, last: track, ..Extent::default() };
    let locate = Locate {
        operation: operation::READ,
        count: 1,
        seek: track,
        search: track,
        record: 2,
        ..Locate::default()
    };
    guest.client.storage()[0x1000..0x1010].copy_from_slice(&extent.emit());
    guest.client.storage()[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
    let orb =
        ccws(&mut guest, &[(0x63, CC, 16, 0x1000), (0x47, CC, 16, 0x1010), (0x12, 0, 8, 0x2000)]);
    assert!(guest.execute(&mut world, &orb).is_good());
    let count = Count::parse(&guest.client.storage()[0x2000..0x2008]);
    assert_eq!(count, Count { track, record: 3, key_bytes: 0, data_bytes: 4096 });
}

#[test]
fn who_may_only_read_writes_nothing() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, false, false);
    for mode in MODES {
        let status = write(&mut world, &mut guest, mode, 0, 1, 9);
        assert!(status.has(DeviceStatus::UNIT_CHECK), "{mode:?}");
        assert_eq!(guest.client.answer().sense.unwrap().0[1], 0x02, "{mode:?}: write inhibited");
        read(&mut world, &mut guest, mode, 0, 1, |number| block(number, 0));
    }
}

#[test]
fn extent_and_mask_of_the_program_are_enforced() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let (first, last) = (Cchh { cylinder: 0, head: 2 }, Cchh { cylinder: 0, head: 3 });
    let outside = Cchh { cylinder: 0, head: 4 };
    let mut run = |permission, seek: Cchh, operation, code, world: &mut World| {
        let extent = Extent { permission, first, last, ..Extent::default() };
        let locate =
            Locate { operation, count: 20, seek, search: seek, record: 12, ..Locate::default() };
        guest.client.storage()[0x1000..0x1010].copy_from_slice(&extent.emit());
        guest.client.storage()[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
        let programs = [
            (0x63, CC, 16, 0x1000),
            (0x47, CC, 16, 0x1010),
            (code, CC, 4096, 0x2000),
            (code, 0, 4096, 0x2000),
        ];
        let orb = ccws(&mut guest, &programs);
        let scsw = guest.execute(world, &orb);
        let sense = guest.client.answer().sense.map_or((0, 0), |sense| (sense.0[0], sense.0[1]));
        (scsw.device.has(DeviceStatus::UNIT_CHECK), sense, scsw.address)
    };
    let read = operation::READ_DATA;
    assert_eq!(run(Permission::Nothing, outside, read, 0x86, &mut world), (true, (0, 4), 0x410));
    assert!(!run(Permission::Nothing, first, read, 0x86, &mut world).0);
    // From the last record of the last track the next one is outside.
    assert_eq!(run(Permission::Nothing, last, read, 0x86, &mut world), (true, (0, 4), 0x420));
    let write = operation::WRITE_DATA;
    assert_eq!(run(Permission::Nothing, first, write, 0x85, &mut world), (true, (0x80, 4), 0x410));
    assert_eq!(
        run(Permission::Update, first, operation::FORMAT_WRITE, 0x1d, &mut world),
        (true, (0x80, 4), 0x410)
    );
    assert_eq!(run(Permission::Update, first, write, 0x86, &mut world), (true, (0x80, 0), 0x418));
}

#[test]
fn track_is_formatted_and_read_whole() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, true);
    let track = Cchh { cylinder: 1, head: 1 };
    let extent =
        Extent { permission: Permission::All, first: track, last: track, ..Extent::default() };
    let locate = |operation, count| Locate {
        operation,
        count,
        seek: track,
        search: track,
        ..Locate::default()
    };
    let storage = guest.client.storage();
    storage[0x1000..0x1010].copy_from_slice(&extent.emit());
    storage[0x1010..0x1020].copy_from_slice(&locate(operation::FORMAT_WRITE, 2).emit()[..16]);
    storage[0x1020..0x1030].copy_from_slice(&locate(operation::READ_TRACKS, 1).emit()[..16]);
    let count =
        |record, key_bytes, data_bytes| Count { track, record, key_bytes, data_bytes }.emit();
    storage[0x2000..0x2008].copy_from_slice(&count(1, 4, 10));
    storage[0x2008..0x2016].copy_from_slice(b"KEY1data data ");
    storage[0x3000..0x3008].copy_from_slice(&count(2, 0, 20));
    storage[0x3008..0x3010].copy_from_slice(b"in part ");
    let program = [
        (0x63, CC, 16, 0x1000),
        (0x47, CC, 16, 0x1010),
        (0x1d, CC, 22, 0x2000),
        (0x1d, CC_SLI, 16, 0x3000),
        (0x47, CC, 16, 0x1020),
        (0xde, 0x20, 4096, 0x4000),
    ];
    let orb = ccws(&mut guest, &program);
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    assert_eq!(scsw.count, 4096 - 22 - 28 - 8);
    let found = &guest.client.storage()[0x4000..0x4000 + 22 + 28 + 8];
    assert_eq!(&found[8..22], b"KEY1data data ");
    assert_eq!((&found[30..38], &found[38..50]), (&b"in part "[..], &[0; 12][..]));
    assert_eq!(found[50..], [0xff; 8]);
    assert_eq!(found[..8], count(1, 4, 10));
    // The old records are gone, from the file too.
    let simulated = world.disk.0.lock().unwrap();
    let at = 512 + 16 * TRACK_BYTES + 21 + 50;
    assert_eq!(simulated.synced()[at..at + 8], [0xff; 8]);
}

/// Prefix, of format 1: an extent, and where to go in it.
fn prefix(first: Cchh, last: Cchh, locate: Locate) -> Vec<u8> {
    let extent = Extent { first, last, ..Extent::default() };
    Prefix { format: 1, valid: 0x80, extent: Some(extent), locate: Some(locate) }.emit().to_vec()
}

#[test]
fn data_of_tracks_are_read_and_written_in_a_stream() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let (first, last) = (Cchh { cylinder: 0, head: 1 }, Cchh { cylinder: 0, head: 2 });
    let of = |operation, extended, command| Locate {
        operation,
        extended,
        command,
        count: 2,
        seek: first,
        search: first,
        record: 11,
        ..Locate::default()
    };
    // From record 11 of track 1 to record 3 of track 2, which gets 100 bytes and zeros.
    let write = prefix(first, last, of(operation::EXTENDED, extended::WRITE_TRACK_DATA, 0xa5));
    assert_eq!((write[44], write[46], write[61]), (0x3f, 0xa5, 0x23), "as Linux writes it");
    let data: Vec<u8> = (0..4 * BLOCK_BYTES + 100).map(|at| (at * 3 + at / 4096) as u8).collect();
    let storage = guest.client.storage();
    storage[0x1000..0x1040].copy_from_slice(&write);
    storage[DATA as usize..][..data.len()].copy_from_slice(&data);
    let program =
        [(0xe7, CC, 64, 0x1000), (0xa5, CC, 8192, DATA), (0xa5, 0, 8192 + 100, DATA + 8192)];
    let orb = ccws(&mut guest, &program);
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    let content = |number: u64| match number {
        22..=25 => data[(number as usize - 22) * BLOCK_BYTES..][..BLOCK_BYTES].to_vec(),
        26 => [&data[4 * BLOCK_BYTES..], &[0; BLOCK_BYTES - 100]].concat(),
        _ => block(number, 0),
    };
    read(&mut world, &mut guest, Mode::Transport, 20, 10, content);
    // The same records, of the second track as many as the program has room for.
    let wanted = of(operation::READ_TRACKS, 0, 0xa6);
    guest.client.storage()[0x1000..0x1040].copy_from_slice(&prefix(first, last, wanted));
    let program = [(0xe7, CC, 64, 0x1000), (0xa6, CC, 8192, 0x4000), (0xa6, 0, 5000, 0x6000)];
    let orb = ccws(&mut guest, &program);
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    assert!(guest.client.storage()[0x4000..0x4000 + 8192 + 5000] == data[..8192 + 5000]);
    // In transport mode one DCW takes the data of both tracks.
    for (verb, instead) in [
        (Verb::Write, of(operation::EXTENDED, extended::WRITE_TRACK_DATA, 0xa5)),
        (Verb::Read, wanted),
    ] {
        let data: Vec<u8> = data.iter().take(4 * BLOCK_BYTES).map(|byte| !byte).collect();
        let area = &mut guest.client.storage()[DATA as usize..][..data.len()];
        if verb == Verb::Write {
            area.copy_from_slice(&data)
        } else {
            area.fill(0)
        }
        let orb = build(guest.client.storage(), AT, DATA, Mode::Transport, verb, blocks(22, 4));
        // The program of blocks has the same tracks and as many bytes: only locate record is another.
        let is_locate = |bytes: &[u8]| bytes[2] == if verb == Verb::Write { 0x85 } else { 0x86 };
        let program = &mut guest.client.storage()[..0x1000];
        let at = program.windows(20).position(|bytes| bytes[3] == 4 && is_locate(bytes)).unwrap();
        program[at..at + 20].copy_from_slice(&instead.emit());
        let scsw = guest.execute(&mut world, &orb);
        assert!(scsw.is_good(), "{verb:?} {scsw:x?} {:?}", guest.client.answer().sense);
        assert!(guest.client.storage()[DATA as usize..][..data.len()] == data, "{verb:?}");
        if verb == Verb::Write {
            let content =
                |number: u64| data[(number as usize - 22) * BLOCK_BYTES..][..BLOCK_BYTES].to_vec();
            read(&mut world, &mut guest, Mode::Command, 22, 4, content);
        }
    }
    // Tracks end, and so does the extent.
    guest.client.storage()[0x1000..0x1040].copy_from_slice(&prefix(first, last, wanted));
    let orb = ccws(&mut guest, &[(0xe7, CC, 64, 0x1000), (0xa6, 0, 9000, 0x4000)]);
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!((scsw.subchannel, scsw.count), (SubchannelStatus::INCORRECT_LENGTH, 9000 - 8192));
    let more = Locate { count: 3, ..wanted };
    guest.client.storage()[0x1000..0x1040].copy_from_slice(&prefix(first, last, more));
    let mut program =
        vec![(0xe7, CC, 64, 0x1000), (0xa6, CC_SLI, 1, 0x4000), (0xa6, CC_SLI, 1, 0x4000)];
    // What is refused is the command on the track that is not there, and not the one before it.
    let orb = ccws(&mut guest, &[&program[..2], &[(0xa6, 0x20, 1, 0x4000)]].concat());
    assert!(guest.execute(&mut world, &orb).is_good());
    guest.client.storage()[0x1000..0x1040].copy_from_slice(&prefix(first, last, more));
    program.push((0xa6, 0x20, 1, 0x4000));
    let orb = ccws(&mut guest, &program);
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.device.has(DeviceStatus::UNIT_CHECK) && scsw.count == 1);
}

#[test]
fn streams_of_tracks_need_their_locate_record_and_their_permission() {
    let mut world = World::new(2, 100);
    let (guest, reader) = (world.guest(0, 2, true, false), world.guest(0, 2, false, false));
    let track = Cchh { cylinder: 0, head: 1 };
    let of = |operation, extended, command| Locate {
        operation,
        extended,
        command,
        count: 1,
        seek: track,
        search: track,
        record: 1,
        ..Locate::default()
    };
    let before = world.disk.0.lock().unwrap().synced().to_vec();
    let stream = of(operation::EXTENDED, extended::WRITE_TRACK_DATA, 0xa5);
    let mut guests = [guest, reader];
    for (which, prefixed, locate, then) in [
        // A domain of records, not of tracks, and the other way round.
        (0, 0xe7, of(operation::WRITE_DATA, 0, 0x85), 0xa5),
        (0, 0xe7, stream, 0x85),
        (0, 0xe7, stream, 0x8d),
        (0, 0xe7, of(operation::READ_DATA, 0, 0x86), 0xa6),
        (0, 0xe7, of(operation::READ_TRACKS, 0, 0xa6), 0xa5),
        // Other extended operations, and a record that is not there.
        (0, 0xe7, of(operation::EXTENDED, 0x11, 0x95), 0xa5),
        (0, 0xe7, Locate { record: 13, ..stream }, 0xa5),
        // Somebody who may only read.
        (1, 0xe7, stream, 0xa5),
    ] {
        let guest = &mut guests[which];
        guest.client.storage()[0x1000..0x1040].copy_from_slice(&prefix(track, track, locate));
        let orb = ccws(guest, &[(prefixed, CC, 64, 0x1000), (then, 0x20, 4096, 0x2000)]);
        let scsw = guest.execute(&mut world, &orb);
        assert!(scsw.device.has(DeviceStatus::UNIT_CHECK), "{locate:?} {then:x}: {scsw:x?}");
    }
    let guest = &mut guests[0];
    let orb = ccws(guest, &[(0xa6, 0x20, 4096, 0x2000)]);
    assert!(guest.execute(&mut world, &orb).device.has(DeviceStatus::UNIT_CHECK));
    assert!(world.disk.0.lock().unwrap().synced() == before);
}

#[test]
fn control_unit_says_what_features_it_has() {
    let mut world = World::new(1, 10);
    let mut guest = world.guest(0, 1, true, false);
    // Prepare for read subsystem data, read feature codes: as Linux asks.
    let order = [0x18, 0, 0, 0, 0, 0, 0x41, 0, 0, 0, 0, 0];
    guest.client.storage()[0x1000..0x100c].copy_from_slice(&order);
    let orb = ccws(&mut guest, &[(0x27, CC, 12, 0x1000), (0x3e, 0, 256, 0x2000)]);
    assert!(guest.execute(&mut world, &orb).is_good());
    let mut features = [0; 256];
    (features[8], features[9], features[12], features[40]) = (0x01, 0x20, 0x40, 0xa4);
    assert_eq!(guest.client.storage()[0x2000..0x2100], features);
    let mut unknown = order;
    unknown[6] = 0x77;
    guest.client.storage()[0x1010..0x101c].copy_from_slice(&unknown);
    let (asks, reads) = ((0x27, CC, 12, 0x1000), (0x3e, 0x20, 256, 0x2000));
    for program in [
        vec![reads],
        vec![asks, (0x3e, CC, 256, 0x2000), reads],
        vec![(0x27, CC, 12, 0x1010), reads],
        vec![(0x27, CC, 11, 0x1000), reads],
    ] {
        let orb = ccws(&mut guest, &program);
        assert!(
            guest.execute(&mut world, &orb).device.has(DeviceStatus::UNIT_CHECK),
            "{program:x?}"
        );
    }
}

#[test]
fn wrong_programs_end_in_program_checks_after_what_came_before() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let orb = ccws(&mut guest, &[(0x08, 0, 0, 0x400)]);
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!((scsw.subchannel, scsw.address), (SubchannelStatus::PROGRAM_CHECK, 0x408));
    assert_eq!(scsw.control & control::STATUS, 0x17);
    // SENSE ID is done before the wrong CCW is found.
    let orb = ccws(&mut guest, &[(0xe4, CC_SLI, 20, 0x5000), (0x00, 0, 1, 0)]);
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!((scsw.subchannel, scsw.address), (SubchannelStatus::PROGRAM_CHECK, 0x410));
    assert_eq!(guest.client.storage()[0x5000..0x5004], [0xff, 0x39, 0x90, 0xe9]);
    let wrong = Orb { program: 0x401, ..orb };
    assert_eq!(guest.execute(&mut world, &wrong).subchannel, SubchannelStatus::PROGRAM_CHECK);
    let nowhere = Orb { program: 0x7fff_fff8, ..orb };
    assert_eq!(guest.execute(&mut world, &nowhere).subchannel, SubchannelStatus::PROGRAM_CHECK);
    let transport = Orb { flags: OrbFlags::TRANSPORT, program: 0x440, ..orb };
    assert_eq!(guest.execute(&mut world, &transport).subchannel, SubchannelStatus::PROGRAM_CHECK);
    let no_path = Orb { paths: 0x0f, ..orb };
    assert_eq!(guest.execute(&mut world, &no_path).conditions & 0x0300, 0x0300);
}

#[test]
fn length_is_checked_unless_suppressed() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let orb = ccws(&mut guest, &[(0xe4, CC, 7, 0x5000), (0x03, SLI, 1, 0)]);
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!((scsw.subchannel, scsw.address), (SubchannelStatus::INCORRECT_LENGTH, 0x408));
    let orb = ccws(&mut guest, &[(0xe4, CC_SLI, 7, 0x5000), (0x03, SLI, 1, 0)]);
    assert!(guest.execute(&mut world, &orb).is_good());
}

#[test]
fn tccb_that_is_wrong_is_a_program_check_of_the_device() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let orb = build(guest.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(0, 1));
    // The TCCB is behind the TCW.
    guest.client.storage()[orb.program as usize + 64] = 0x7e;
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!((scsw.subchannel, scsw.count), (SubchannelStatus::PROGRAM_CHECK, TSB_STORED));
    let at = orb.program as usize + 192;
    let tsb = Tsb::parse(guest.client.storage()[at..at + TSB_BYTES].try_into().unwrap()).unwrap();
    assert!(matches!(tsb.status, TransportStatus::ProgramCheck { reason: 1, .. }), "{tsb:?}");
}

#[test]
fn scsw_says_which_mode_it_is_of() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    for (mode, conditions) in [(Mode::Transport, TRANSPORT_FORMAT), (Mode::Command, 0x00c0)] {
        let mut orb = build(guest.client.storage(), AT, DATA, mode, Verb::Read, blocks(0, 1));
        orb.flags = orb.flags.with(OrbFlags::PREFETCH);
        assert_eq!(guest.execute(&mut world, &orb).conditions, conditions, "{mode:?}");
    }
}

#[test]
fn suspended_program_is_resumed() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let mut orb = ccws(&mut guest, &[(0xe4, CC_SLI, 20, 0x5000), (0xe4, 0x22, 20, 0x6000)]);
    orb.flags = orb.flags.with(OrbFlags::SUSPEND);
    guest.start(0, &orb);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Intermediate { subchannel: 0, parameter: 77 }));
    assert_eq!(guest.client.answer().scsw.control & control::SUSPENDED, control::SUSPENDED);
    // What was read before comes with it.
    guest.client.place().unwrap();
    assert_eq!(guest.client.storage()[0x5000..0x5004], [0xff, 0x39, 0x90, 0xe9]);
    guest.client.request(channel::request::Kind::Resume, 0, &mut guest.sender).unwrap();
    world.run();
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    guest.client.place().unwrap();
    assert!(guest.client.answer().scsw.is_good());
    assert_eq!(guest.client.storage()[0x6000..0x6004], [0xff, 0x39, 0x90, 0xe9]);
}

#[test]
fn endless_loop_disturbs_nobody_and_is_halted() {
    let mut world = World::new(2, 100);
    let (mut guest, mut other) = (world.guest(0, 2, true, false), world.guest(0, 2, true, false));
    let orb = ccws(&mut guest, &[(0x03, CC_SLI, 1, 0), (0x08, 0, 0, 0x400)]);
    guest.start(3, &orb);
    let rounds = |world: &mut World| {
        for number in 0..2 {
            let (sender, receiver) = world.sides.0[number].as_mut().unwrap();
            world.channel.poll_guest(number, sender, receiver, 0).unwrap();
        }
        world.unit.poll();
        world.channel.poll_units(&mut world.sides, 0).unwrap();
    };
    let read = build(other.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(3, 1));
    other.start(0, &read);
    for _ in 0..10 {
        rounds(&mut world);
    }
    assert_eq!(other.poll(), Some(Event::Ended { subchannel: 0, parameter: 0 }));
    assert_eq!(guest.poll(), None);
    guest.client.request(channel::request::Kind::Halt, 3, &mut guest.sender).unwrap();
    for _ in 0..10 {
        rounds(&mut world);
    }
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 3, parameter: 77 }));
    assert_eq!(guest.client.answer().scsw.control & control::HALT, control::HALT);
    read_after(&mut world, &mut guest);
}

#[test]
fn busy_and_missing_subchannels_refuse() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let orb = build(guest.client.storage(), AT, DATA, Mode::Command, Verb::Read, blocks(0, 1));
    guest.start(0, &orb);
    guest.start(0, &orb);
    guest.start(8, &orb);
    world.run();
    let mut found = Vec::new();
    while let Some(event) = guest.poll() {
        found.push(event);
    }
    assert!(found.contains(&Event::Refused { subchannel: 0, code: 2 }), "{found:?}");
    assert!(found.contains(&Event::Refused { subchannel: 8, code: 3 }), "{found:?}");
    assert!(found.contains(&Event::Ended { subchannel: 0, parameter: 0 }), "{found:?}");
}

#[test]
fn data_in_place_stay_while_the_track_is_rewritten_and_evicted() {
    let mut world = World::new(3, 8);
    let mut guest = world.guest(0, 3, true, true);
    let mut other = world.guest(0, 3, true, false);
    let orb = build(guest.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(5, 1));
    guest.start(0, &orb);
    world.run();
    assert!(matches!(guest.poll(), Some(Event::Ended { .. })));
    // Another guest rewrites the block, and reads all other tracks, of which the cache holds eight.
    write(&mut world, &mut other, Mode::Transport, 5, 1, 3);
    for track in 0..45 {
        let seed = |number| if number == 5 { 3 } else { 0 };
        read(&mut world, &mut other, Mode::Command, track * 12, 12, |number| {
            block(number, seed(number))
        });
    }
    let mut found = vec![0; BLOCK_BYTES];
    guest.client.copy(&mut found).unwrap();
    assert!(found == block(5, 0), "what was read stays what it was");
    assert_eq!(world.unit.pinned(0), 1);
    guest.client.consume(&mut guest.sender).unwrap();
    world.run();
    assert_eq!(world.unit.pinned(0), 0);
    read(&mut world, &mut guest, Mode::Transport, 5, 1, |number| block(number, 3));
}

#[test]
fn guest_that_goes_leaves_nothing_pinned() {
    let mut world = World::new(3, 8);
    let mut guest = world.guest(0, 3, true, true);
    let orb = build(guest.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(5, 30));
    guest.start(0, &orb);
    world.run();
    assert_eq!(world.unit.pinned(0), 3);
    // As the owner of the paths does when a doorbell says that the guest is gone.
    world.sides.0[guest.number] = None;
    world.channel.detach(guest.number);
    drop(guest);
    world.run();
    assert_eq!(world.unit.pinned(0), 0);
    let mut other = world.guest(0, 3, true, false);
    read(&mut world, &mut other, Mode::Command, 0, 5, |number| block(number, 0));
}

#[test]
fn failing_disk_is_a_unit_check_and_loses_nothing_that_was_acknowledged() {
    for mode in MODES {
        for steps in 0..5 {
            for torn_bytes in [0, 1000] {
                let mut world = World::new(2, 100);
                let mut guest = world.guest(0, 2, true, true);
                {
                    let mut simulated = world.disk.0.lock().unwrap();
                    (simulated.steps_left, simulated.torn_bytes) = (Some(steps), torn_bytes);
                }
                let mut acknowledged = Vec::new();
                for number in 0..4 {
                    let status = write(&mut world, &mut guest, mode, number, 1, 5);
                    match status == DeviceStatus::ENDED {
                        true => acknowledged.push(number),
                        false => {
                            assert!(status.has(DeviceStatus::UNIT_CHECK));
                            let sense = guest.client.answer().sense.unwrap();
                            // Behind a sync that has failed nobody writes.
                            let is_protected = steps % 2 == 1 && number > steps / 2;
                            let said = (sense.0[0] == 0x10, sense.0[1] == 0x02);
                            assert_eq!(said, (!is_protected, is_protected), "equipment check");
                        }
                    }
                }
                assert_eq!(acknowledged.len() as u64, steps / 2, "a write and a sync each");
                let simulated = world.disk.0.lock().unwrap();
                for number in acknowledged {
                    assert!(data_in(simulated.synced(), number) == block(number, 5), "{number}");
                }
            }
        }
    }
}

/// Where the data of a block of track 0 are in the file.
fn data_in(bytes: &[u8], number: u64) -> &[u8] {
    &bytes[512 + 21 + 8 + number as usize * (BLOCK_BYTES + 8)..][..BLOCK_BYTES]
}

#[test]
fn volume_with_its_files_own_guarantee_is_not_synced() {
    for (mode, syncing) in
        MODES.into_iter().flat_map(|mode| [Syncing::Fdatasync, Syncing::File].map(|by| (mode, by)))
    {
        let mut world = World::new(2, 100);
        world.unit.set_syncing(0, syncing);
        assert_eq!(world.unit.syncing(0), syncing);
        let mut guest = world.guest(0, 2, true, false);
        for number in 0..4 {
            let before = world.disk.0.lock().unwrap().steps;
            let status = write(&mut world, &mut guest, mode, number, 1, 5);
            assert_eq!(status, DeviceStatus::ENDED, "{mode:?} {syncing:?}");
            let simulated = world.disk.0.lock().unwrap();
            let is_synced = syncing == Syncing::Fdatasync;
            assert_eq!(simulated.steps - before, 1 + u64::from(is_synced), "a write, and a sync");
            assert!(data_in(simulated.written(), number) == block(number, 5));
            let seed = if is_synced { 5 } else { 0 };
            assert!(data_in(simulated.synced(), number) == block(number, seed));
        }
        let syncs = if syncing == Syncing::Fdatasync { 4 } else { 0 };
        assert_eq!((world.disk.syncs(), world.unit.counters().syncs), (syncs, syncs), "{mode:?}");
        read(&mut world, &mut guest, mode, 0, 4, |number| block(number, 5));
    }
}

#[test]
fn failing_write_is_a_unit_check_though_nothing_is_synced() {
    for mode in MODES {
        for (steps, torn_bytes) in (0..4).flat_map(|steps| [(steps, 0), (steps, 1000)]) {
            let mut world = World::new(2, 100);
            world.unit.set_syncing(0, Syncing::File);
            let mut guest = world.guest(0, 2, true, true);
            {
                let mut simulated = world.disk.0.lock().unwrap();
                (simulated.steps_left, simulated.torn_bytes) = (Some(steps), torn_bytes);
            }
            for number in 0..4 {
                let status = write(&mut world, &mut guest, mode, number, 1, 5);
                if number < steps {
                    assert_eq!(status, DeviceStatus::ENDED, "{mode:?} {steps}");
                } else {
                    assert!(status.has(DeviceStatus::UNIT_CHECK), "{mode:?} {steps}");
                    let sense = guest.client.answer().sense.unwrap();
                    assert_eq!(sense.0[0], 0x10, "equipment check");
                }
            }
            {
                let mut simulated = world.disk.0.lock().unwrap();
                simulated.steps_left = None;
                let bytes = simulated.written();
                assert!((0..steps).all(|number| data_in(bytes, number) == block(number, 5)));
            }
            assert_eq!((world.disk.syncs(), world.unit.pinned(0)), (0, 0));
            assert_eq!(write(&mut world, &mut guest, mode, 3, 1, 6), DeviceStatus::ENDED);
            read(&mut world, &mut guest, mode, 3, 1, |number| block(number, 6));
        }
    }
}

#[test]
fn all_files_of_a_volume_are_synced_or_none() {
    for (mode, syncing) in
        MODES.into_iter().flat_map(|mode| [Syncing::Fdatasync, Syncing::File].map(|by| (mode, by)))
    {
        let image = world::image(2);
        let (header_bytes, cylinder_bytes) = (512, 15 * TRACK_BYTES);
        let part = |file: u8| {
            let first = header_bytes + usize::from(file - 1) * cylinder_bytes;
            let header = Header { file, ..Header::default() };
            Disk::new([&header.emit()[..], &image[first..][..cylinder_bytes]].concat())
        };
        let parts = [part(1), part(2)];
        let backings = parts.clone().map(|part| Box::new(part) as Box<dyn Backing>);
        let volume = Volume::from_backings(backings, Access::Write).unwrap();
        let mut world = World::serving(parts[0].clone(), volume, 100);
        world.unit.set_syncing(0, syncing);
        let mut guest = world.guest(0, 2, true, false);
        // The last two blocks of the first file, and the first two of the second.
        let status = write(&mut world, &mut guest, mode, 178, 4, 5);
        assert_eq!(status, DeviceStatus::ENDED, "{mode:?} {syncing:?}");
        let syncs = u64::from(syncing == Syncing::Fdatasync);
        assert_eq!(parts.each_ref().map(Disk::syncs), [syncs; 2], "{mode:?} {syncing:?}");
        for part in &parts {
            let simulated = part.0.lock().unwrap();
            assert_eq!(simulated.written() == simulated.synced(), syncs > 0);
        }
        let second = parts[1].0.lock().unwrap().written().to_vec();
        assert!(data_in(&second, 0) == block(180, 5) && data_in(&second, 1) == block(181, 5));
        // A file that fails is heard of, whichever it is.
        parts[1].0.lock().unwrap().steps_left = Some(0);
        assert!(write(&mut world, &mut guest, mode, 178, 4, 6).has(DeviceStatus::UNIT_CHECK));
    }
}

#[test]
fn damaged_track_is_named_and_never_written() {
    let mut bytes = world::image(2);
    bytes[512 + 2 * TRACK_BYTES + 27] = 0xff;
    let mut world = World::with(bytes.clone(), 100);
    let mut guest = world.guest(0, 2, true, true);
    for mode in MODES {
        for verb in [Verb::Write, Verb::Read] {
            let orb = build(guest.client.storage(), AT, DATA, mode, verb, blocks(24, 1));
            let scsw = guest.execute(&mut world, &orb);
            assert!(scsw.device.has(DeviceStatus::UNIT_CHECK), "{mode:?} {verb:?}");
            // From then on nobody may write.
            let said = guest.client.answer().sense.unwrap().0[1];
            let is_first = mode == Mode::Command && verb == Verb::Write;
            let protected = !is_first && verb == Verb::Write;
            assert_eq!(said, if protected { 0x02 } else { 0x40 }, "{mode:?} {verb:?}");
        }
    }
    read(&mut world, &mut guest, Mode::Command, 23, 1, |number| block(number, 0));
    assert!(world.disk.0.lock().unwrap().synced() == bytes);
    let track = Cchh { cylinder: 0, head: 2 };
    let damage = DamagedTrack { track, file: 0, offset: 512 + 2 * TRACK_BYTES as u64 + 21 };
    assert_eq!((world.unit.damage(0), world.unit.is_writable(0)), (&[damage][..], false));
}

#[test]
fn volume_that_is_found_damaged_is_not_written_by_anybody() {
    let mut bytes = world::image(2);
    bytes[512 + 2 * TRACK_BYTES + 27] = 0xff;
    for known_before in [false, true] {
        let mut world = World::with(bytes.clone(), 100);
        let (mut guest, mut other) =
            (world.guest(0, 1, true, false), world.guest(1, 1, true, false));
        if known_before {
            world.unit.note_damage(0, 2, 21);
        } else {
            assert_eq!(
                write(&mut world, &mut other, Mode::Transport, 3, 1, 9),
                DeviceStatus::ENDED
            );
            let orb =
                build(guest.client.storage(), AT, DATA, Mode::Command, Verb::Read, blocks(20, 8));
            assert!(guest.execute(&mut world, &orb).device.has(DeviceStatus::UNIT_CHECK));
        }
        let before = world.disk.0.lock().unwrap().synced().to_vec();
        let mut third = world.guest(1, 1, true, false);
        for guest in [&mut guest, &mut other, &mut third] {
            for mode in MODES {
                let status = write(&mut world, guest, mode, 3, 1, 7);
                assert!(status.has(DeviceStatus::UNIT_CHECK));
                let seed = if guest.number > 0 && !known_before { 9 } else { 0 };
                let first = guest.number.min(1) as u64 * 180;
                let content = |number| block(number + if seed == 0 { first } else { 0 }, seed);
                read(&mut world, guest, mode, 3, 1, content);
            }
        }
        assert!(world.disk.0.lock().unwrap().synced() == before);
    }
}

#[test]
fn tracks_of_a_device_without_cache_stay_no_longer_than_their_exchange() {
    let mut world = World::new(3, 100);
    let mut cached = world.guest(0, 3, true, false);
    read(&mut world, &mut cached, Mode::Transport, 12, 12, |number| block(number, 0));
    assert_eq!(world.unit.cache(0).used(), 1);
    let number = world.sides.0.len();
    world.sides.0.push(None);
    let wish = wish(0, 3, false);
    let mut guest = world.guest_at(number, wish);
    for mode in MODES {
        let misses = world.unit.misses(0);
        // Tracks 0 to 4, of which the other guest has read track 1.
        read(&mut world, &mut guest, mode, 0, 60, |number| block(number, 0));
        assert_eq!((world.unit.misses(0) - misses, world.unit.cache(0).used()), (4, 1), "{mode:?}");
        read(&mut world, &mut guest, mode, 0, 1, |number| block(number, 0));
        assert_eq!(world.unit.misses(0) - misses, 5, "{mode:?}: read again");
        // Without locate record no track is needed, and a chain that ends early leaves none behind.
        let orb = ccws(&mut guest, &[(0x86, 0, 4096, 0x2000)]);
        assert!(guest.execute(&mut world, &orb).device.has(DeviceStatus::UNIT_CHECK));
        assert_eq!(write(&mut world, &mut guest, mode, 30, 20, 5), DeviceStatus::ENDED);
        assert_eq!(world.unit.cache(0).used(), 1);
        read(&mut world, &mut guest, mode, 30, 20, |number| block(number, 5));
        assert_eq!(write(&mut world, &mut guest, mode, 30, 20, 0), DeviceStatus::ENDED);
    }
    guest.client.consume(&mut guest.sender).unwrap();
    world.run();
    assert_eq!((world.unit.pinned(0), world.unit.cache(0).used()), (0, 1));
}

#[test]
fn unit_check_is_explained_by_sense() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let orb = ccws(&mut guest, &[(0x86, 0, 4096, 0x2000)]);
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!(scsw.device, DeviceStatus::ENDED.with(DeviceStatus::UNIT_CHECK));
    let said = guest.client.answer().sense.unwrap();
    let orb = ccws(&mut guest, &[(command::SENSE, 0, 32, 0x2000)]);
    assert!(guest.execute(&mut world, &orb).is_good());
    assert_eq!(guest.client.storage()[0x2000..0x2020], said.0);
    assert_eq!((said.0[0], said.0[7]), (0x80, 2), "no locate record");
}

#[test]
fn nothing_of_a_chain_is_run_after_its_end() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let track = Cchh { cylinder: 0, head: 0 };
    let extent =
        Extent { permission: Permission::Update, first: track, last: track, ..Extent::default() };
    let locate = Locate {
        operation: operation::WRITE_DATA,
        count: 1,
        seek: track,
        search: track,
        record: 1,
        ..Locate::default()
    };
    guest.client.storage()[0x1000..0x1010].copy_from_slice(&extent.emit());
    guest.client.storage()[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
    guest.client.storage()[0x2000..0x3000].fill(0xee);
    let program = [
        // There is no locate record: unit check. What follows was sent ahead.
        (0x86, CC, 4096, 0x4000),
        (0x63, CC, 16, 0x1000),
        (0x47, CC, 16, 0x1010),
        (0x85, 0, 4096, 0x2000),
    ];
    let orb = ccws(&mut guest, &program);
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!((scsw.device.has(DeviceStatus::UNIT_CHECK), scsw.address), (true, 0x408));
    read(&mut world, &mut guest, Mode::Transport, 0, 1, |number| block(number, 0));
    assert_eq!(world.unit.counters().exchanges, 2);
}

#[test]
fn more_than_there_is_room_for_is_a_chaining_check() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    // The guest's results have room for 1 MiB: five times 60 blocks do not fit.
    let track = Cchh { cylinder: 0, head: 0 };
    let last = Cchh { cylinder: 1, head: 14 };
    let extent =
        Extent { permission: Permission::Nothing, first: track, last, ..Extent::default() };
    let locate = Locate {
        operation: operation::READ_DATA,
        count: 255,
        seek: track,
        search: track,
        record: 1,
        ..Locate::default()
    };
    guest.client.storage()[0x1000..0x1010].copy_from_slice(&extent.emit());
    guest.client.storage()[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
    let mut program = vec![(0x63, CC, 16, 0x1000), (0x47, CC, 16, 0x1010)];
    program.extend([(0x86, CC, 4096, 0x10_0000); 254]);
    program.push((0x86, 0, 4096, 0x10_0000));
    program.insert(2, (0xe4, CC_SLI, 20, 0x3000));
    program.insert(2, (0xfa, CC_SLI, 256, 0x3000));
    program.splice(2..2, [(0x64, CC, 64, 0x3000); 100]);
    let orb = ccws(&mut guest, &program);
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!(
        scsw.subchannel,
        SubchannelStatus::CHAINING_CHECK,
        "{scsw:x?} {:?}",
        guest.client.answer().sense
    );
    read(&mut world, &mut guest, Mode::Command, 0, 1, |number| block(number, 0));
}

#[test]
fn more_than_there_is_a_place_for_is_an_incorrect_length() {
    let mut world = World::new(2, 100);
    for dedicated in [false, true] {
        let mut guest = world.guest(0, 2, true, dedicated);
        let orb =
            build(guest.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(0, 2));
        // The input count of the TCW: one block, of the two that the TCCB asks for.
        guest.client.storage()[orb.program as usize + 44..][..4]
            .copy_from_slice(&4096_u32.to_be_bytes());
        assert_eq!(guest.execute(&mut world, &orb).subchannel, SubchannelStatus::INCORRECT_LENGTH);
        read(&mut world, &mut guest, Mode::Command, 0, 1, |number| block(number, 0));
    }
}

#[test]
fn reserved_volume_makes_others_wait() {
    let mut world = World::new(2, 100);
    let (mut guest, mut other) = (world.guest(0, 2, true, false), world.guest(0, 2, true, false));
    let orb = ccws(&mut guest, &[(command::RESERVE, 0, 32, 0x2000)]);
    assert!(guest.execute(&mut world, &orb).is_good());
    for mode in MODES {
        let read = build(other.client.storage(), AT, DATA, mode, Verb::Read, blocks(0, 1));
        other.start(mode as u16, &read);
    }
    world.run();
    world.run();
    assert_eq!((other.poll(), world.channel.is_busy()), (None, true));
    world.now_ns += 5_000_000;
    read(&mut world, &mut guest, Mode::Transport, 0, 1, |number| block(number, 0));
    let orb = ccws(&mut guest, &[(command::RELEASE, 0, 32, 0x2000)]);
    assert!(guest.execute(&mut world, &orb).is_good());
    world.run();
    world.run();
    for _ in MODES {
        assert!(matches!(other.poll(), Some(Event::Ended { .. })));
        assert!(other.client.answer().scsw.is_good());
    }
    assert!(!world.channel.is_busy());
    for measured in world.channel.measurements(other.number).take(2) {
        assert!(measured.samples == 1 && measured.queue_ns >= 5_000_000, "{measured:?}");
        assert!(measured.pending_ns < 1_000_000 && measured.connect_ns < 1_000_000, "{measured:?}");
    }
    let measured = world.channel.measurements(guest.number).next().unwrap();
    assert_eq!((measured.samples, measured.queue_ns), (3, 0));
}

/// Lets the channel take what a guest has sent, and nobody else do anything.
fn take(world: &mut World, guest: &Guest) {
    let (sender, receiver) = world.sides.0[guest.number].as_mut().unwrap();
    world.channel.poll_guest(guest.number, sender, receiver, 0).unwrap();
}

#[test]
fn chain_of_more_commands_than_16_bits_count_is_halted() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let before = world.unit.counters().commands;
    let orb = ccws(&mut guest, &[(0x03, CC_SLI, 1, 0), (0x08, 0, 0, 0x400)]);
    guest.start(0, &orb);
    while world.unit.counters().commands - before < 140_000 {
        round(&mut world);
    }
    guest.client.request(channel::request::Kind::Halt, 0, &mut guest.sender).unwrap();
    for _ in 0..10 {
        round(&mut world);
    }
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    read_after(&mut world, &mut guest);
}

/// A chain that writes block 1 of cylinder 0, and has these commands behind.
fn writing_chain(guest: &mut Guest, seed: u8, behind: &[(u8, u8, u16, u32)]) -> Orb {
    let track = Cchh { cylinder: 0, head: 0 };
    let last = Cchh { cylinder: 1, head: 14 };
    let extent = Extent { permission: Permission::Update, first: track, last, ..Extent::default() };
    let locate = |operation, head| Locate {
        operation,
        count: 1,
        seek: Cchh { cylinder: 0, head },
        search: Cchh { cylinder: 0, head },
        record: 1,
        ..Locate::default()
    };
    let storage = guest.client.storage();
    storage[0x3000..0x3010].copy_from_slice(&extent.emit());
    storage[0x3010..0x3020].copy_from_slice(&locate(operation::WRITE_DATA, 0).emit()[..16]);
    for head in 0..15 {
        let at = 0x3020 + usize::from(head) * 16;
        storage[at..at + 16].copy_from_slice(&locate(operation::READ_DATA, head).emit()[..16]);
    }
    storage[0x4000..0x5000].copy_from_slice(&block(0, seed));
    let mut program =
        vec![(0x63, CC, 16, 0x3000), (0x47, CC, 16, 0x3010), (0x85, CC, 4096, 0x4000)];
    program.extend(behind);
    ccws(guest, &program)
}

#[test]
fn chain_that_goes_on_after_a_failed_sync_is_not_acknowledged() {
    let mut world = World::new(2, 100);
    let (mut guest, mut other) = (world.guest(0, 2, true, false), world.guest(0, 2, true, false));
    // Longer than what is sent ahead: the write is synced before the end of the chain is sent.
    let mut behind = vec![(0x03, CC_SLI, 1, 0); 100];
    behind.push((0x03, SLI, 1, 0));
    let orb = writing_chain(&mut guest, 9, &behind);
    world.disk.0.lock().unwrap().steps_left = Some(1);
    guest.start(0, &orb);
    round(&mut world);
    world.disk.0.lock().unwrap().steps_left = None;
    // Nobody writes any more: a sync that succeeds would say nothing of the first write.
    let refused = write(&mut world, &mut other, Mode::Transport, 100, 1, 3);
    assert!(refused.has(DeviceStatus::UNIT_CHECK));
    assert_eq!(other.client.answer().sense.unwrap().0[1], 0x02, "write inhibited");
    world.run();
    assert!(matches!(guest.poll(), Some(Event::Attention { may_write: false, .. })));
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    assert!(guest.client.answer().scsw.device.has(DeviceStatus::UNIT_CHECK));
    assert_eq!(guest.client.answer().sense.unwrap().0[0], 0x10, "equipment check");
    assert_eq!(world.unit.counters().syncs, 1);
}

#[test]
fn chain_whose_write_was_synced_while_it_went_on_ends_without_another_sync() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let mut behind = vec![(0x03, CC_SLI, 1, 0); 100];
    behind.push((0x03, SLI, 1, 0));
    let orb = writing_chain(&mut guest, 8, &behind);
    assert!(guest.execute(&mut world, &orb).is_good());
    assert_eq!(world.unit.counters().syncs, 1);
}

#[test]
fn track_that_a_failed_sync_has_lost_is_not_read_and_nobody_writes() {
    // The guest that has written is still there, or is gone.
    for is_gone in [false, true] {
        let mut world = World::new(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        let mut other = world.guest(0, 2, true, false);
        read(&mut world, &mut other, Mode::Transport, 0, 1, |number| block(number, 0));
        let orb = writing_chain(&mut guest, 9, &[(0x03, SLI, 1, 0)]);
        world.disk.0.lock().unwrap().steps_left = Some(1);
        guest.start(0, &orb);
        take(&mut world, &guest);
        if is_gone {
            world.sides.0[guest.number] = None;
            world.channel.detach(guest.number);
        }
        // A sync waits for a pass in which no further write ends.
        while world.unit.poll() {}
        world.disk.0.lock().unwrap().steps_left = None;
        assert!(world.unit.failure(0).is_some() && !world.unit.is_writable(0));
        {
            // As a page cache that marks the page clean which it could not write.
            let disk = world.disk.0.lock().unwrap();
            assert!(data_in(disk.written(), 0) == block(0, 9));
            assert!(data_in(disk.synced(), 0) == block(0, 0));
        }
        let misses = world.unit.misses(0);
        for mode in MODES {
            let storage = other.client.storage();
            let orb = build(storage, AT, DATA, mode, Verb::Read, blocks(0, 1));
            assert!(other.execute(&mut world, &orb).device.has(DeviceStatus::UNIT_CHECK));
            assert_eq!(other.client.answer().sense.unwrap().0[0], 0x10, "equipment check");
            // The other tracks are what they were.
            read(&mut world, &mut other, mode, 12, 30, |number| block(number, 0));
            let status = write(&mut world, &mut other, mode, 100, 1, 3);
            assert!(status.has(DeviceStatus::UNIT_CHECK));
            assert_eq!(other.client.answer().sense.unwrap().0[1], 0x02, "write inhibited");
        }
        assert_eq!(world.unit.misses(0), misses + 3, "the lost track was not read");
        // Whoever opens the device now cannot write either.
        let late = world.guest(0, 2, true, false);
        assert!(!late.client.attached().unwrap().may_write);
    }
}

#[test]
fn number_of_a_guest_that_has_gone_is_given_again() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, true);
    let orb = build(guest.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(0, 1));
    guest.start(7, &orb);
    take(&mut world, &guest);
    let gone = guest.number;
    // The control unit has yet to answer when the guest goes, and another one comes with fewer subchannels, and a third one.
    for _ in 0..2 {
        world.sides.0[gone] = None;
        world.channel.detach(gone);
        let cache = Some(world.unit.lendable(0).unwrap());
        let wish = disk::unit::usage::VolumeUse {
            volume: 0,
            first_cylinder: 0,
            cylinders: 2,
            may_write: true,
            subchannels: 1,
            result_bytes: 1 << 20,
            is_cached: true,
            cache,
        };
        let mut next = world.guest_at(gone, wish);
        for _ in 0..3 {
            read(&mut world, &mut next, Mode::Transport, 30, 30, |number| block(number, 0));
        }
        next.client.consume(&mut next.sender).unwrap();
        world.run();
        assert_eq!(world.unit.pinned(0), 0);
        next.start(0, &orb);
        take(&mut world, &next);
    }
}

#[test]
fn output_of_a_pass_is_bounded() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    // Define extent with 256 chained CCWs of data, 16 MiB in all, of which the command uses 16 bytes.
    let mut program = Vec::new();
    for _ in 0..20 {
        program.push((0x63, 0x80 | CC_SLI, 65535, 0x1_0000));
        program.extend([(0, 0x80 | CC_SLI, 65535, 0x1_0000); 254]);
        program.push((0, CC_SLI, 65535, 0x1_0000));
    }
    program.push((0x03, SLI, 1, 0));
    let orb = ccws(&mut guest, &program);
    for subchannel in 0..8 {
        guest.start(subchannel, &orb);
    }
    let before = world.channel.counters().output_bytes;
    take(&mut world, &guest);
    let bytes = world.channel.counters().output_bytes - before;
    assert!(
        (1..=channel::exchange::PASS_BYTES_MAX as u64 + (16 << 20)).contains(&bytes),
        "{bytes}"
    );
    world.run();
    for _ in 0..8 {
        // Data are chained where the command ends: its length is wrong, whatever the CCW says.
        assert!(matches!(guest.poll(), Some(Event::Ended { .. })));
        let scsw = guest.client.answer().scsw;
        assert_eq!(scsw.subchannel, SubchannelStatus::INCORRECT_LENGTH);
        assert_eq!((scsw.address, scsw.count), (0x408, 65535 - 16));
    }
    // Transport commands of 8 MiB.
    let count = 8 << 20;
    for subchannel in 0..8_u16 {
        let at = u32::from(subchannel) * 4096;
        let mut orb =
            build(guest.client.storage(), at, DATA, Mode::Transport, Verb::Write, blocks(0, 1));
        orb.parameter = subchannel.into();
        let tcw = orb.program as usize;
        let storage = guest.client.storage();
        storage[tcw + 40..tcw + 44].copy_from_slice(&u32::to_be_bytes(count));
        // The count of the DCW, and that of the trailer.
        let tccb = tcw + 64;
        storage[tccb + 20..tccb + 24].copy_from_slice(&u32::to_be_bytes(count));
        storage[tccb + 92..tccb + 96].copy_from_slice(&u32::to_be_bytes(count + 4));
        guest.start(subchannel, &orb);
    }
    let before = world.channel.counters().output_bytes;
    take(&mut world, &guest);
    assert_eq!(world.channel.counters().output_bytes, before, "none of it goes with the command");
    world.unit.poll();
    world.channel.poll_units(&mut world.sides, 0).unwrap();
    let bytes = world.channel.counters().output_bytes - before;
    assert_eq!(bytes, 16 << 20, "what has room");
    world.run();
    for _ in 0..8 {
        let event = guest.poll();
        assert!(matches!(event, Some(Event::Ended { .. })), "{event:?}");
    }
}

#[test]
fn minidisk_that_is_reserved_is_not_the_volume() {
    let mut world = World::new(4, 100);
    let (mut guest, mut other) = (world.guest(0, 2, true, false), world.guest(2, 2, true, false));
    let mut reader = world.guest(0, 4, false, false);
    let orb = ccws(&mut reader, &[(command::RESERVE, 0, 32, 0x2000)]);
    assert!(reader.execute(&mut world, &orb).device.has(DeviceStatus::UNIT_CHECK));
    assert_eq!(reader.client.answer().sense.unwrap().0[1], 0x02, "write inhibited");
    let orb = ccws(&mut guest, &[(command::RESERVE, 0, 32, 0x2000)]);
    assert!(guest.execute(&mut world, &orb).is_good());
    read(&mut world, &mut other, Mode::Transport, 0, 1, |number| block(number + 360, 0));
    let orb = ccws(&mut other, &[(command::RESERVE, 0, 32, 0x2000)]);
    assert!(other.execute(&mut world, &orb).is_good(), "each its own");
    let read = build(reader.client.storage(), AT, DATA, Mode::Command, Verb::Read, blocks(0, 1));
    reader.start(0, &read);
    world.run();
    assert_eq!((reader.poll(), world.channel.is_busy()), (None, true));
    // A guest that goes has reserved nothing any more.
    for gone in [guest.number, other.number] {
        world.sides.0[gone] = None;
        world.channel.detach(gone);
    }
    world.run();
    world.run();
    assert!(matches!(reader.poll(), Some(Event::Ended { .. })));
}

#[test]
fn reservation_waits_for_a_chain_that_is_under_way() {
    let mut world = World::new(2, 100);
    let (mut guest, mut other) = (world.guest(0, 2, true, false), world.guest(0, 2, true, false));
    let endless = ccws(&mut guest, &[(0x03, CC_SLI, 1, 0), (0x08, 0, 0, 0x400)]);
    guest.start(0, &endless);
    round(&mut world);
    let reserve = ccws(&mut other, &[(command::RESERVE, 0, 32, 0x2000)]);
    other.start(0, &reserve);
    for _ in 0..5 {
        round(&mut world);
    }
    assert_eq!((other.poll(), world.channel.is_busy()), (None, true));
    guest.client.request(channel::request::Kind::Halt, 0, &mut guest.sender).unwrap();
    for _ in 0..5 {
        round(&mut world);
    }
    world.run();
    assert!(matches!(other.poll(), Some(Event::Ended { .. })));
    assert!(other.client.answer().scsw.is_good());
}

#[test]
fn chain_whose_data_are_lost_is_ended_and_pins_a_bounded_number_of_tracks() {
    // In place nothing is copied, and a chain can read what the cache holds.
    let mut world = World::new(4, 20);
    for dedicated in [true, false] {
        let mut guest = world.guest(0, 4, true, dedicated);
        let mut behind = Vec::new();
        for head in 0..15 {
            behind.push((0x47, CC, 16, 0x3020 + head * 16));
            behind.push((0x86, CC, 4096, 0x8000));
        }
        // And again, for ever.
        behind.push((0x08, 0, 0, 0x400 + 3 * 8));
        let orb = writing_chain(&mut guest, 0, &behind);
        guest.start(0, &orb);
        let mut most = 0;
        for _ in 0..2000 {
            round(&mut world);
            most = most.max(world.unit.pinned(0));
        }
        assert!(most <= 10, "{most}");
        let event = guest.poll();
        assert_eq!(event, Some(Event::Ended { subchannel: 0, parameter: 77 }), "{dedicated}");
        let sense = guest.client.answer().sense.unwrap();
        assert_eq!(sense.0[0], 0x04, "overrun");
        world.sides.0[guest.number] = None;
        world.channel.detach(guest.number);
        world.run();
    }
    // With a cache of all tracks the copies have no room, at last.
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let orb = writing_chain(
        &mut guest,
        0,
        &[(0x47, CC, 16, 0x3020), (0x86, CC, 4096, 0x8000), (0x08, 0, 0, 0x400 + 3 * 8)],
    );
    guest.start(0, &orb);
    for _ in 0..2000 {
        round(&mut world);
    }
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    assert_eq!(guest.client.answer().scsw.subchannel, SubchannelStatus::CHAINING_CHECK);
    read_after(&mut world, &mut guest);
}

#[test]
fn chain_that_has_written_is_not_begun_again() {
    let mut world = World::new(4, 4);
    let mut holder = world.guest(0, 4, true, true);
    // Three of the four slots of the cache are pinned: their results are not taken.
    for index in 0..3_u16 {
        let (at, first) = (u32::from(index) * 4096, u64::from(10 + index) * 12);
        let orb =
            build(holder.client.storage(), at, DATA, Mode::Transport, Verb::Read, blocks(first, 1));
        holder.start(index, &orb);
    }
    world.run();
    assert_eq!(world.unit.pinned(0), 3);
    let mut guest = world.guest(0, 4, true, false);
    // It writes, pins the last slot, and finds none for another track.
    let orb = writing_chain(
        &mut guest,
        6,
        &[
            (0x47, CC, 16, 0x3020),
            (0x86, CC, 4096, 0x8000),
            (0x47, CC, 16, 0x3050),
            (0x86, 0, 4096, 0x8000),
        ],
    );
    guest.start(0, &orb);
    world.run();
    assert!(!world.channel.is_busy());
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    assert!(guest.client.answer().scsw.device.has(DeviceStatus::UNIT_CHECK));
    assert_eq!(guest.client.answer().sense.unwrap().0[0], 0x04, "overrun");
}

#[test]
fn halt_of_a_program_whose_device_is_busy_is_not_forgotten() {
    let mut world = World::new(2, 100);
    let (mut guest, mut other) = (world.guest(0, 2, true, false), world.guest(0, 2, true, false));
    let orb = ccws(&mut guest, &[(command::RESERVE, 0, 32, 0x2000)]);
    assert!(guest.execute(&mut world, &orb).is_good());
    for mode in MODES {
        for kind in [channel::request::Kind::Halt, channel::request::Kind::Clear] {
            let read = build(other.client.storage(), AT, DATA, mode, Verb::Read, blocks(0, 1));
            other.start(0, &read);
            take(&mut world, &other);
            // The control unit answers that the device is busy, while the halt is on its way.
            other.client.request(kind, 0, &mut other.sender).unwrap();
            take(&mut world, &other);
            world.run();
            assert!(!world.channel.is_busy(), "{mode:?} {kind:?}");
            assert_eq!(other.poll(), Some(Event::Ended { subchannel: 0, parameter: 0 }));
        }
    }
}

#[test]
fn results_that_a_guest_does_not_take_are_bounded() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    // An endless chain with program-controlled interruptions.
    let orb = ccws(&mut guest, &[(0x03, CC_SLI | 0x08, 1, 0), (0x08, 0, 0, 0x400)]);
    guest.start(0, &orb);
    for _ in 0..2000 {
        round(&mut world);
    }
    assert!(world.channel.held_back(guest.number) <= 1);
    while guest.poll().is_some() {}
    guest.client.request(channel::request::Kind::Halt, 0, &mut guest.sender).unwrap();
    let mut ended = false;
    for _ in 0..10 {
        round(&mut world);
        while let Some(event) = guest.poll() {
            ended |= matches!(event, Event::Ended { .. });
        }
    }
    assert!(ended);
    // A guest that asks again and again, and takes no answer, has its path ended.
    let mut ended = false;
    for _ in 0..2000 {
        let _ = guest.client.request(channel::request::Kind::Halt, 0, &mut guest.sender);
        let (sender, receiver) = world.sides.0[guest.number].as_mut().unwrap();
        ended = world.channel.poll_guest(guest.number, sender, receiver, 0).is_err();
        if ended {
            break;
        }
    }
    assert!(ended);
}

#[test]
fn records_of_a_track_are_written_in_one_piece() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, true);
    let before = world.disk.0.lock().unwrap().steps;
    // Blocks 5 to 68: the rest of track 0, four whole tracks, and a part of track 5.
    assert_eq!(write(&mut world, &mut guest, Mode::Transport, 5, 64, 7), DeviceStatus::ENDED);
    assert_eq!(world.disk.0.lock().unwrap().steps - before, 6 + 1, "six writes and a sync");
    for number in 0..72 {
        let seed = if (5..69).contains(&number) { 7 } else { 0 };
        read(&mut world, &mut guest, Mode::Command, number, 1, |number| block(number, seed));
    }
    let volume = world.disk.0.lock().unwrap().synced().to_vec();
    let backing = disk::ckd::backing::Simulated::new(volume);
    let access = disk::ckd::volume::Access::Read;
    let volume = disk::ckd::volume::Volume::from_backing(Box::new(backing), access).unwrap();
    disk::ckd::check::check(
        &volume,
        |_| (),
        |fault| assert!(!matches!(fault, disk::ckd::check::Fault::Track { .. }), "{fault:?}"),
    );
}

#[test]
fn writes_to_one_volume_do_not_wait_for_those_to_another() {
    let mut world = World::new(2, 100);
    let other = Simulated::new(world::image(2));
    let other = Volume::from_backing(Box::new(other), Access::Write).unwrap();
    let other = world.unit.add_volume(other, 100 * TRACK_BYTES, StorageOptions::default()).unwrap();
    let mut guest = world.guest(0, 2, true, false);
    let wish = VolumeUse {
        volume: other,
        first_cylinder: 0,
        cylinders: 2,
        may_write: true,
        subchannels: 8,
        result_bytes: 1 << 20,
        is_cached: true,
        cache: None,
    };
    world.sides.0.push(None);
    let mut busy = world.guest_at(1, wish);
    let storage = guest.client.storage();
    let orb = build(storage, AT, DATA, Mode::Transport, Verb::Write, blocks(0, 1));
    guest.start(0, &orb);
    for subchannel in 0..8 {
        let at = u32::from(subchannel) * 0x2_0000;
        let first = blocks(u64::from(subchannel), 1);
        let storage = busy.client.storage();
        let orb = build(storage, at, at + 0x1_0000, Mode::Transport, Verb::Write, first);
        busy.start(subchannel, &orb);
        // The other volume has one write more in each pass.
        for (number, (sender, receiver)) in world.sides.0.iter_mut().flatten().enumerate() {
            world.channel.poll_guest(number, sender, receiver, 0).unwrap();
        }
        world.unit.poll();
        world.channel.poll_units(&mut world.sides, 0).unwrap();
        if let Some(event) = guest.poll() {
            assert_eq!(event, Event::Ended { subchannel: 0, parameter: 0 });
            assert_eq!((world.unit.counters().syncs, busy.poll()), (1, None));
            return;
        }
    }
    panic!("the write waits as long as others write to another volume");
}

#[test]
fn track_that_cannot_be_read_fails_alone_and_is_tried_again() {
    for kind in [io::ErrorKind::Other, io::ErrorKind::OutOfMemory] {
        let mut world = World::new(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        let at = 512 + 3 * TRACK_BYTES as u64;
        // The second time with a track that is not in the cache.
        for (mode, number, at) in
            [(Mode::Command, 36, at), (Mode::Transport, 48, at + TRACK_BYTES as u64)]
        {
            world.disk.0.lock().unwrap().unreadable = Some((at + 100..at + 101, kind));
            let orb = build(guest.client.storage(), AT, DATA, mode, Verb::Read, blocks(number, 1));
            assert!(guest.execute(&mut world, &orb).device.has(DeviceStatus::UNIT_CHECK));
            assert_eq!(guest.client.answer().sense.unwrap().0[0], 0x10, "equipment check");
            assert_eq!((world.unit.damage(0), world.unit.is_writable(0)), (&[][..], true));
            // Other tracks are read and written.
            assert_eq!(write(&mut world, &mut guest, mode, 0, 1, 9), DeviceStatus::ENDED);
            // A later read may succeed.
            world.disk.0.lock().unwrap().unreadable = None;
            read(&mut world, &mut guest, mode, number, 1, |number| block(number, 0));
        }
    }
}

#[test]
fn resumption_is_for_the_ccw_that_suspended() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let suspends = (0xe4, CC_SLI | 0x02, 20, 0x5000);
    let mut orb =
        ccws(&mut guest, &[suspends, (0xe4, CC_SLI, 20, 0x5000), (0xe4, 0x22, 20, 0x6000)]);
    orb.flags = orb.flags.with(OrbFlags::SUSPEND);
    guest.start(0, &orb);
    for _ in 0..2 {
        world.run();
        assert_eq!(guest.poll(), Some(Event::Intermediate { subchannel: 0, parameter: 77 }));
        // The usual way to let it go on: the flag is taken away, and it is told.
        let flags = &mut guest.client.storage()[orb.program as usize + 1];
        *flags &= !0x02;
        guest.client.request(channel::request::Kind::Resume, 0, &mut guest.sender).unwrap();
    }
    world.run();
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    assert!(guest.client.answer().scsw.is_good());
}

#[test]
fn resumed_program_that_meets_a_busy_device_does_not_write_again() {
    let mut world = World::new(4, 100);
    let (mut guest, mut other) = (world.guest(0, 4, true, false), world.guest(0, 4, true, false));
    let mut orb = writing_chain(&mut guest, 6, &[(0xe4, 0x22, 20, 0x8000)]);
    orb.flags = orb.flags.with(OrbFlags::SUSPEND);
    guest.start(0, &orb);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Intermediate { subchannel: 0, parameter: 77 }));
    // What it has written is done, and another program writes the same block.
    let orb = ccws(&mut other, &[(command::RESERVE, 0, 32, 0x2000)]);
    assert!(other.execute(&mut world, &orb).is_good());
    assert_eq!(write(&mut world, &mut other, Mode::Transport, 0, 1, 9), DeviceStatus::ENDED);
    guest.client.request(channel::request::Kind::Resume, 0, &mut guest.sender).unwrap();
    world.run();
    assert_eq!((guest.poll(), world.channel.is_busy()), (None, true));
    let orb = ccws(&mut other, &[(command::RELEASE, 0, 32, 0x2000)]);
    assert!(other.execute(&mut world, &orb).is_good());
    world.run();
    world.run();
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    assert!(guest.client.answer().scsw.is_good());
    read(&mut world, &mut other, Mode::Transport, 0, 1, |number| block(number, 9));
}
