//! Programs that read and write whole tracks, home addresses and record 0, from a guest's storage to a simulated disk and back.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use disk::ckd::model::{TRACK_BYTES, track_of};
use disk::ckd::track::{self, CONTENT_BYTES_MAX};
use disk::format::eckd::{
    COUNT_BYTES, Cchh, Count, Extent, Locate, Permission, Prefix, TrackSet, extended, operation,
    orientation,
};
use disk::format::orb::Orb;
use disk::format::scsw::{DeviceStatus, Scsw, SubchannelStatus};
use disk::program::blocks::{Mode, Verb, build};
use disk::program::tracks;

use world::{AT, CC, CC_SLI, DATA, Guest, MODES, World, block, blocks, ccws, read};

/// Bytes of the CCW of a whole track, as Linux has it: more than any track.
const CCW_BYTES: u16 = 57326;
/// Where whole tracks lie in the guest's storage, and how far apart.
const TRACKS_AT: u32 = 0x10_0000;
const APART: u32 = 0x1_0000;

const COMMAND_REJECT: u8 = 0x80;
const INVALID_SEQUENCE: (u8, u8, u8) = (COMMAND_REJECT, 0, 2);
const COUNT_TOO_SMALL: (u8, u8, u8) = (COMMAND_REJECT, 0, 3);
const INVALID_PARAMETER: (u8, u8, u8) = (COMMAND_REJECT, 0, 4);
const MASK_VIOLATION: (u8, u8, u8) = (COMMAND_REJECT, 0x04, 5);
const INVALID_TRACK_FORMAT: (u8, u8, u8) = (0, 0x40, 0);
const FILE_PROTECTED: (u8, u8, u8) = (0, 0x04, 0);
const WRITE_INHIBITED: (u8, u8, u8) = (COMMAND_REJECT, 0x02, 0);
const NO_RECORD: (u8, u8, u8) = (0, 0x08, 0);

fn at(cylinder: u32, head: u8) -> Cchh {
    Cchh { cylinder, head }
}

/// What the control unit says of a program, if anything: bytes 0, 1 and 7 of its sense.
fn sense(guest: &Guest, scsw: Scsw) -> Result<(), (u8, u8, u8)> {
    if !scsw.device.has(DeviceStatus::UNIT_CHECK) {
        assert!(scsw.is_good(), "{scsw:x?}");
        return Ok(());
    }
    let bytes = guest.client.answer().sense.unwrap().0;
    Err((bytes[0], bytes[1], bytes[7]))
}

fn run(world: &mut World, guest: &mut Guest, orb: &Orb) -> Result<(), (u8, u8, u8)> {
    let scsw = guest.execute(world, orb);
    sense(guest, scsw)
}

/// The content of a track as write full track takes it and read track brings it.
fn content(track: Cchh, records: &[(u8, &[u8], &[u8])]) -> Vec<u8> {
    let mut bytes = Count { track, record: 0, key_bytes: 0, data_bytes: 8 }.emit().to_vec();
    bytes.extend(b"RECORD 0");
    for (record, key, data) in records {
        let (key_bytes, data_bytes) = (key.len() as u8, data.len() as u16);
        bytes.extend(Count { track, record: *record, key_bytes, data_bytes }.emit());
        bytes.extend(*key);
        bytes.extend(*data);
    }
    bytes.extend([0xff; 8]);
    bytes
}

/// The parameters of a write of whole tracks.
fn write_trackset(seek: Cchh, set: TrackSet) -> Locate {
    Locate {
        operation: operation::EXTENDED,
        extended: extended::WRITE_TRACKSET,
        count: set.0.count_ones() as u8,
        seek,
        search: seek,
        record: 1,
        sector: 0xff,
        tracks: Some(set),
        ..Locate::default()
    }
}

/// The parameters of a read of whole tracks, with record 0.
fn read_tracks(seek: Cchh, count: u8) -> Locate {
    Locate {
        operation: operation::READ_TRACKS,
        orientation: orientation::HOME,
        count,
        seek,
        search: seek,
        record: 1,
        sector: 0xff,
        ..Locate::default()
    }
}

/// A prefix with these limits at 0x1000, and behind it a CCW of this code for each track, as Linux has it for raw access.
fn whole_tracks(
    guest: &mut Guest,
    (first, last): (Cchh, Cchh),
    permission: Permission,
    locate: Locate,
    code: u8,
) -> Orb {
    let extent = Extent { permission, first, last, ..Extent::default() };
    let prefix = Prefix { format: 1, valid: 0, extent: Some(extent), locate: Some(locate) };
    let bytes = [&prefix.emit()[..], &locate.tracks.unwrap_or_default().emit()].concat();
    let bytes = &bytes[..if locate.tracks.is_some() { 66 } else { 64 }];
    guest.client.storage()[0x1000..0x1000 + bytes.len()].copy_from_slice(bytes);
    let mut program = vec![(0xe7, CC, bytes.len() as u16, 0x1000)];
    for track in 0..u32::from(locate.count) {
        program.push((code, CC_SLI, CCW_BYTES, TRACKS_AT + track * APART));
    }
    program.last_mut().unwrap().1 = 0x20;
    ccws(guest, &program)
}

fn put(guest: &mut Guest, track: u32, bytes: &[u8]) {
    let at = (TRACKS_AT + track * APART) as usize;
    guest.client.storage()[at..at + bytes.len()].copy_from_slice(bytes);
}

fn found(guest: &mut Guest, track: u32, bytes: usize) -> Vec<u8> {
    let at = (TRACKS_AT + track * APART) as usize;
    guest.client.storage()[at..at + bytes].to_vec()
}

/// What the file has of a track.
fn on_disk(world: &World, number: u32) -> Vec<u8> {
    let at = 512 + number as usize * TRACK_BYTES;
    world.disk.0.lock().unwrap().synced()[at..at + TRACK_BYTES].to_vec()
}

/// Writes one track, at head 2 of cylinder 1 of a device.
fn write_one(
    world: &mut World,
    guest: &mut Guest,
    permission: Permission,
    bytes: &[u8],
) -> Result<(), (u8, u8, u8)> {
    let track = at(1, 2);
    let locate = write_trackset(track, TrackSet::first(1));
    put(guest, 0, &vec![0; APART as usize]);
    put(guest, 0, bytes);
    let orb = whole_tracks(guest, (track, track), permission, locate, 0x95);
    run(world, guest, &orb)
}

#[test]
fn track_is_written_as_linux_writes_it() {
    let mut world = World::new(1, 100);
    let mut guest = world.guest(0, 1, true, true);
    #[rustfmt::skip]
    let prefix = [
        // Format 1, define extent is valid.
        0x01, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        // All may be written; ECKD; heads 3 to 4.
        0xc0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        // Write trackset, two tracks from head 3 on; two bytes of extended parameters.
        0x3f, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3, 1, 0xff, 0, 0, 0, 0x11, 0, 2,
        0xc0, 0,
    ];
    #[rustfmt::skip]
    let track_3 = [
        0, 0, 0, 3, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8,
        0, 0, 0, 3, 1, 2, 0, 3, b'K', b'1', b'd', b'1', b'!',
        0, 0, 0, 3, 2, 0, 0, 0,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        // What is behind the end is not looked at.
        0xaa, 0xbb,
    ];
    let track_4 = [&[0, 0, 0, 4, 0, 0, 0, 8][..], &[0; 8], &[0xff; 8]].concat();
    guest.client.storage()[0x1000..0x1042].copy_from_slice(&prefix);
    put(&mut guest, 0, &track_3);
    put(&mut guest, 1, &track_4);
    let program = [
        (0xe7, CC, 66, 0x1000),
        (0x95, CC_SLI, CCW_BYTES, TRACKS_AT),
        (0x95, 0x20, CCW_BYTES, TRACKS_AT + APART),
    ];
    let orb = ccws(&mut guest, &program);
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer().sense);
    assert_eq!(scsw.count, CCW_BYTES - 24);
    let file = on_disk(&world, 3);
    assert_eq!(file[..5], [0, 0, 0, 0, 3]);
    assert_eq!(file[5..50], track_3[..45]);
    assert_eq!(track::check(&file, at(0, 3)).unwrap().records, 2);
    assert_eq!(on_disk(&world, 4)[5..29], track_4);
    // Without the flag the length is checked.
    let program = [program[0], (0x95, CC, 45, TRACKS_AT), program[2]];
    let orb = ccws(&mut guest, &program);
    assert!(guest.execute(&mut world, &orb).is_good());
    let program = [program[0], (0x95, CC, 46, TRACKS_AT), program[2]];
    let orb = ccws(&mut guest, &program);
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!((scsw.subchannel, scsw.count), (SubchannelStatus::INCORRECT_LENGTH, 1));
}

#[test]
fn track_that_is_read_can_be_written_to_another_device() {
    let mut world = World::new(8, 100);
    // The same cylinders of two minidisks: the addresses of their guests are the same, those of the volume are not.
    let mut source = world.guest(2, 3, true, false);
    let mut target = world.guest(5, 3, true, true);
    let (first, last) = (at(1, 13), at(2, 0));
    let long = vec![0x5a; 30_000];
    let records: [(u8, &[u8], &[u8]); 4] =
        [(1, b"", &long), (7, b"a key", b"data"), (7, b"", b""), (200, &[9; 255], &[])];
    let wanted = [content(first, &records), content(at(1, 14), &[]), content(last, &records[1..])];
    for (track, bytes) in (0..).zip(&wanted) {
        put(&mut source, track, bytes);
    }
    let write = write_trackset(first, TrackSet::first(3));
    let orb = whole_tracks(&mut source, (first, last), Permission::All, write, 0x95);
    assert_eq!(run(&mut world, &mut source, &orb), Ok(()));
    let read = read_tracks(first, 3);
    let orb = whole_tracks(&mut source, (first, last), Permission::Nothing, read, 0xde);
    (0..3).for_each(|track| put(&mut source, track, &[0; 0x8000]));
    assert_eq!(run(&mut world, &mut source, &orb), Ok(()));
    for (track, wanted) in (0..).zip(&wanted) {
        let bytes = found(&mut source, track, wanted.len());
        assert!(bytes == *wanted, "track {track}");
        put(&mut target, track, &bytes);
    }
    let orb = whole_tracks(&mut target, (first, last), Permission::NoHomeAddress, write, 0x95);
    assert_eq!(run(&mut world, &mut target, &orb), Ok(()));
    let orb = whole_tracks(&mut target, (first, last), Permission::Nothing, read, 0xde);
    (0..3).for_each(|track| put(&mut target, track, &[0; 0x8000]));
    assert_eq!(run(&mut world, &mut target, &orb), Ok(()));
    for (track, wanted) in (0..).zip(&wanted) {
        assert!(found(&mut target, track, wanted.len()) == *wanted, "track {track}");
        // The file has the cylinders of the volume.
        let number = (5 + 1) * 15 + 13 + track;
        let file = on_disk(&world, number);
        let cylinders = track::records(&file).map(|record| record.unwrap().count.track);
        assert!(cylinders.into_iter().all(|found| found == track_of(number)));
    }
}

#[test]
fn read_track_begins_where_locate_record_leads_to() {
    let mut world = World::new(1, 100);
    let mut guest = world.guest(0, 1, true, false);
    let track = at(0, 2);
    let limits = (at(0, 1), at(0, 3));
    let next = content(at(0, 3), &[(1, b"", b"next")]);
    let all = content(track, &[(1, b"", b"one"), (2, b"k", b"two")]);
    (0..).zip([&all, &next]).for_each(|(track, bytes)| put(&mut guest, track, bytes));
    let locate = write_trackset(track, TrackSet::first(2));
    let orb = whole_tracks(&mut guest, limits, Permission::All, locate, 0x95);
    assert_eq!(run(&mut world, &mut guest, &orb), Ok(()));
    let mut read = |locate: Locate, skipped: usize| {
        let orb = whole_tracks(&mut guest, limits, Permission::Nothing, locate, 0xde);
        (0..2).for_each(|track| put(&mut guest, track, &[0; 0x100]));
        run(&mut world, &mut guest, &orb)?;
        assert_eq!(found(&mut guest, 0, all.len() - skipped), all[skipped..]);
        // Every further track comes with its record 0.
        assert_eq!(found(&mut guest, 1, next.len()), next);
        Ok(())
    };
    let home = read_tracks(track, 2);
    assert_eq!(read(home, 0), Ok(()));
    // Behind the record that was searched for: record 0, 1, and the last one.
    for (record, skipped) in [(0, 16), (1, 27), (2, 39)] {
        let locate = Locate { orientation: orientation::COUNT, record, ..home };
        assert_eq!(read(locate, skipped), Ok(()), "record {record}");
    }
    let locate = Locate { orientation: orientation::COUNT, record: 3, ..home };
    assert_eq!(read(locate, 0), Err(NO_RECORD));
    assert_eq!(read(Locate { search: at(0, 1), ..home }, 0), Err(NO_RECORD));
    for orientation in [orientation::DATA, orientation::INDEX] {
        assert_eq!(read(Locate { orientation, ..home }, 0), Err(INVALID_PARAMETER));
    }
}

#[test]
fn tracks_of_a_set_are_written_and_others_passed_over() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    // Heads 13 and 14, and heads 2 and 13 of the next cylinder.
    let (first, set) = (at(0, 13), TrackSet(0b1100_1000_0000_0001));
    let tracks = [at(0, 13), at(0, 14), at(1, 2), at(1, 13)];
    for (index, track) in (0..).zip(tracks) {
        put(&mut guest, index, &content(track, &[(1, b"", &[index as u8; 9])]));
    }
    let locate = write_trackset(first, set);
    let orb = whole_tracks(&mut guest, (first, at(1, 13)), Permission::All, locate, 0x95);
    let before = world.disk.0.lock().unwrap().synced().to_vec();
    assert_eq!(run(&mut world, &mut guest, &orb), Ok(()));
    for number in 0..30 {
        let index = tracks.iter().position(|track| *track == track_of(number));
        let file = on_disk(&world, number);
        let was = &before[512 + number as usize * TRACK_BYTES..][..TRACK_BYTES];
        match index {
            Some(index) => assert_eq!(file[29..38], [index as u8; 9], "track {number}"),
            None => assert!(file == was, "track {number}"),
        }
    }
    // The last one must be within the extent, the first bit is that of the first track, and there are as many as the count says.
    let mut check = |locate: Locate, last: Cchh| {
        let orb = whole_tracks(&mut guest, (first, last), Permission::All, locate, 0x95);
        run(&mut world, &mut guest, &orb)
    };
    assert_eq!(check(locate, at(1, 12)), Err(FILE_PROTECTED));
    assert_eq!(check(write_trackset(at(0, 12), set), at(1, 13)), Err(FILE_PROTECTED));
    let of = |set: u16| write_trackset(first, TrackSet(set));
    assert_eq!(check(of(0x4000), at(1, 13)), Err(INVALID_PARAMETER));
    for count in [0, 1, 3, 255] {
        assert_eq!(check(Locate { count, ..of(0xc000) }, at(1, 13)), Err(INVALID_PARAMETER));
    }
    for orientation in [orientation::HOME, orientation::DATA, orientation::INDEX] {
        let locate = Locate { orientation, ..locate };
        assert_eq!(check(locate, at(1, 13)), Err(INVALID_PARAMETER));
    }
    assert_eq!(check(Locate { tracks: None, ..locate }, at(1, 13)), Err(INVALID_PARAMETER));
}

#[test]
fn what_is_no_track_is_refused_and_changes_nothing() {
    let mut world = World::new(3, 6);
    let mut guest = world.guest(1, 2, true, false);
    let track = at(1, 2);
    let before = world.disk.0.lock().unwrap().synced().to_vec();
    let good = content(track, &[(1, b"key", b"data"), (2, b"", b"more")]);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let full = vec![7; 56_664];
    let many: Vec<(u8, &[u8], &[u8])> = (0..256).map(|_| (1, &b""[..], &b""[..])).collect();
    // Room for two records of these lengths, of which each has a count field, behind home address, record 0 and before the end.
    let room = TRACK_BYTES - 5 - 16 - 8;
    let half = vec![1; 28_000];
    let rest = vec![2; room - 28_000 - 2 * COUNT_BYTES + 1];
    let cases = [
        // Record 0: cylinder, head, number, key, and data of another length.
        (with(1, 2), INVALID_PARAMETER),
        (with(3, 3), INVALID_PARAMETER),
        (with(4, 1), INVALID_PARAMETER),
        (with(5, 1), INVALID_PARAMETER),
        (with(6, 1), INVALID_PARAMETER),
        (with(7, 7), INVALID_PARAMETER),
        (vec![0xff; 8], INVALID_PARAMETER),
        // Lengths beyond the track, and a second record 0.
        (with(16 + 6, 0xff), INVALID_TRACK_FORMAT),
        (with(16 + 4, 0), INVALID_TRACK_FORMAT),
        (content(track, &[(1, b"", &full), (2, b"", &full[..200])]), INVALID_TRACK_FORMAT),
        (content(track, &[(1, b"", &half), (2, b"", &rest)]), INVALID_TRACK_FORMAT),
        (content(track, &many), INVALID_TRACK_FORMAT),
    ];
    for (index, (bytes, expected)) in cases.iter().enumerate() {
        let found = write_one(&mut world, &mut guest, Permission::All, bytes);
        assert_eq!(found, Err(*expected), "case {index}");
    }
    // The program brings less than the track, wherever it ends.
    let locate = write_trackset(track, TrackSet::first(1));
    whole_tracks(&mut guest, (track, track), Permission::All, locate, 0x95);
    put(&mut guest, 0, &good);
    for bytes in 1..good.len() {
        let program = [(0xe7, CC, 66, 0x1000), (0x95, 0x20, bytes as u16, TRACKS_AT)];
        let orb = ccws(&mut guest, &program);
        assert_eq!(run(&mut world, &mut guest, &orb), Err(COUNT_TOO_SMALL), "{bytes} bytes");
    }
    assert!(world.disk.0.lock().unwrap().synced() == before);
    // The cache has what the file has.
    read(&mut world, &mut guest, Mode::Transport, 17 * 12, 12, |number| block(number + 180, 0));
    // One byte less of the record that did not fit, and a record of the longest kind, do fit; so do 255 records.
    let fits = [
        content(track, &[(1, b"", &half), (2, b"", &rest[1..])]),
        content(track, &[(1, b"", &full)]),
        content(track, &many[1..]),
    ];
    for bytes in fits {
        assert_eq!(write_one(&mut world, &mut guest, Permission::All, &bytes), Ok(()));
        let read = read_tracks(track, 1);
        let orb = whole_tracks(&mut guest, (track, track), Permission::Nothing, read, 0xde);
        put(&mut guest, 0, &[0; APART as usize]);
        assert_eq!(run(&mut world, &mut guest, &orb), Ok(()));
        assert!(found(&mut guest, 0, bytes.len()) == bytes);
    }
}

#[test]
fn tracks_are_written_only_with_permission_and_in_their_domain() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let mut reader = world.guest(0, 2, false, false);
    let track = at(1, 2);
    let before = world.disk.0.lock().unwrap().synced().to_vec();
    let bytes = content(track, &[(1, b"", b"data")]);
    for permission in [Permission::Nothing, Permission::Update] {
        let found = write_one(&mut world, &mut guest, permission, &bytes);
        assert_eq!(found, Err(MASK_VIOLATION));
    }
    let found = write_one(&mut world, &mut reader, Permission::All, &bytes);
    assert_eq!(found, Err(WRITE_INHIBITED));
    // Another command in a domain of whole tracks, and a whole track in another domain.
    let set = write_trackset(track, TrackSet::first(1));
    let format = Locate { operation: operation::FORMAT_WRITE, tracks: None, extended: 0, ..set };
    let home = Locate { orientation: orientation::HOME, ..format };
    let mut check = |locate: Locate, code: u8| {
        put(&mut guest, 0, &bytes);
        let orb = whole_tracks(&mut guest, (track, track), Permission::All, locate, code);
        run(&mut world, &mut guest, &orb)
    };
    for code in [0x05, 0x0d, 0x1d, 0x9d, 0x15, 0x19, 0xa5, 0xde, 0x06, 0x12] {
        assert_eq!(check(set, code), Err(INVALID_SEQUENCE), "{code:x}");
    }
    for locate in [format, home, read_tracks(track, 1)] {
        assert_eq!(check(locate, 0x95), Err(INVALID_SEQUENCE), "{locate:?}");
    }
    // What must come behind the home address does not come behind a record, and the other way round.
    for (locate, code) in [(format, 0x15), (format, 0x19), (home, 0x1d), (home, 0x06)] {
        assert_eq!(check(locate, code), Err(INVALID_SEQUENCE), "{code:x}");
    }
    // Codes that are none: the diagnostic write of a home address, and multi-track forms of what has none.
    for code in [0x09, 0x99] {
        assert_eq!(check(home, code), Err((COMMAND_REJECT, 0, 1)), "{code:x}");
    }
    // A domain has as many tracks as it says.
    put(&mut guest, 0, &bytes);
    whole_tracks(&mut guest, (track, track), Permission::All, set, 0x95);
    let write = (0x95, CC_SLI, CCW_BYTES, TRACKS_AT);
    assert!(world.disk.0.lock().unwrap().synced() == before);
    let orb = ccws(&mut guest, &[(0xe7, CC, 66, 0x1000), write, write]);
    assert_eq!(run(&mut world, &mut guest, &orb), Err(INVALID_SEQUENCE));
    assert_eq!(guest.client.answer().scsw.address, 0x418);
    let orb = ccws(&mut guest, &[write]);
    assert_eq!(run(&mut world, &mut guest, &orb), Err(INVALID_SEQUENCE));
    // Parameters that end too early.
    for (code, bytes, at, expected) in
        [(0xe7, 65, 0x1000, INVALID_PARAMETER), (0x4b, 21, 0x102c, COUNT_TOO_SMALL)]
    {
        guest.client.storage()[0x1100..0x1110].copy_from_slice(&Extent::default().emit());
        let program = [(0x63, CC, 16, 0x1100), (code, CC, bytes, at), write];
        let orb = ccws(&mut guest, if code == 0xe7 { &program[1..] } else { &program });
        assert_eq!(run(&mut world, &mut guest, &orb), Err(expected), "{code:x}");
    }
}

#[test]
fn track_from_which_data_were_handed_out_is_copied() {
    let mut world = World::new(2, 100);
    // The guest reads in place, and has not done with what it has read when the track is written.
    let mut reader = world.guest(0, 2, true, true);
    let mut writer = world.guest(0, 2, true, false);
    read(&mut world, &mut reader, Mode::Transport, 17 * 12, 12, |number| block(number, 0));
    let bytes = content(at(1, 2), &[(1, b"", &[3; 5000])]);
    assert_eq!(write_one(&mut world, &mut writer, Permission::All, &bytes), Ok(()));
    let mut number = 17 * 12;
    let seen = |view: &fabric::path::View, at: usize, bytes: usize| {
        let mut place = vec![0; bytes];
        view.read(at, &mut place).unwrap();
        for found in place.chunks(4096) {
            assert!(found == block(number, 0), "block {number}");
            number += 1;
        }
    };
    reader.client.in_place(seen).unwrap();
    assert_eq!(number, 18 * 12);
}

#[test]
fn fault_of_the_disk_leaves_whole_tracks_and_no_cache_of_them() {
    let (first, last) = (at(1, 2), at(1, 4));
    let tracks = [0, 1, 2].map(|head| {
        let data = vec![head + 1; 20_000];
        content(at(1, 2 + head), &[(1, b"k", &data), (2, b"", &data)])
    });
    // Three writes and a sync.
    for steps in 0..=4 {
        let mut world = World::new(2, 100);
        let mut guest = world.guest(0, 2, true, false);
        read(&mut world, &mut guest, Mode::Command, 17 * 12, 36, |number| block(number, 0));
        let before = world.disk.0.lock().unwrap().synced().to_vec();
        (0..).zip(&tracks).for_each(|(track, bytes)| put(&mut guest, track, bytes));
        let locate = write_trackset(first, TrackSet::first(3));
        let orb = whole_tracks(&mut guest, (first, last), Permission::All, locate, 0x95);
        world.disk.0.lock().unwrap().steps_left = Some(steps);
        let found = run(&mut world, &mut guest, &orb);
        assert_eq!(found, if steps == 4 { Ok(()) } else { Err((0x10, 0x80, 0x10)) });
        world.disk.0.lock().unwrap().steps_left = None;
        // The disk has of each track all of the new records or all of the old ones. A sync has failed if anything was written, and nobody
        // knows that of these tracks until the volume is mounted anew.
        let is_lost = (1..4).contains(&steps);
        assert_eq!(world.unit.failure(0).is_some(), is_lost);
        let read = read_tracks(first, 3);
        let orb = whole_tracks(&mut guest, (first, last), Permission::Nothing, read, 0xde);
        let found = run(&mut world, &mut guest, &orb);
        assert_eq!(found, if is_lost { Err((0x10, 0x80, 0x10)) } else { Ok(()) }, "{steps}");
        let bytes = world.disk.0.lock().unwrap().written().to_vec();
        for (track, new) in (0..).zip(&tracks) {
            let old = &before[512 + (17 + track as usize) * TRACK_BYTES..][..TRACK_BYTES];
            let end = track::check(old, track_of(17 + track)).unwrap().end + 8;
            let wanted = if u64::from(track) < steps { new } else { &old[5..end] };
            let found = &bytes[512 + (17 + track as usize) * TRACK_BYTES + 5..][..wanted.len()];
            assert!(found == wanted, "track {track}, {steps}");
        }
    }
}

#[test]
fn programs_of_whole_tracks_run_in_both_modes() {
    let mut world = World::new(5, 100);
    for dedicated in [false, true] {
        let mut guest = world.guest(2, 3, true, dedicated);
        for (writes, reads) in MODES.into_iter().zip(MODES.into_iter().rev()) {
            let track = at(2, 14);
            let bytes = content(track, &[(1, b"key", &[writes as u8; 777]), (2, b"", &[])]);
            let mut build = |mode, verb, bytes: usize, guest: &mut Guest| {
                let storage = guest.client.storage();
                let orb = tracks::build(storage, AT, TRACKS_AT, mode, verb, 2 * 15 + 14, bytes);
                let scsw = guest.execute(&mut world, &orb);
                sense(guest, scsw)
            };
            put(&mut guest, 0, &bytes);
            assert_eq!(build(writes, Verb::Write, bytes.len(), &mut guest), Ok(()));
            put(&mut guest, 0, &[0; 0x1000]);
            assert_eq!(build(reads, Verb::Read, CONTENT_BYTES_MAX, &mut guest), Ok(()));
            assert_eq!(guest.client.read_bytes(), bytes.len() as u64);
            assert!(found_track(&mut guest, 0) == bytes);
            // More data than the track takes, and less.
            assert_eq!(build(writes, Verb::Write, bytes.len() + 9, &mut guest), Ok(()));
            let short = build(writes, Verb::Write, bytes.len() - 1, &mut guest);
            assert_eq!(short, Err(COUNT_TOO_SMALL));
        }
    }
}

#[test]
fn stream_goes_on_behind_a_track_without_data() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    // Track 17 keeps record 0 only.
    let empty = content(at(1, 2), &[]);
    assert_eq!(write_one(&mut world, &mut guest, Permission::All, &empty), Ok(()));
    // The program of two tracks of blocks becomes one of the data of tracks 16 to 18.
    let (storage, mode) = (guest.client.storage(), Mode::Transport);
    let orb = build(storage, AT, DATA, mode, Verb::Read, blocks(16 * 12, 24));
    let tcw = orb.program as usize;
    let tccb: [u8; 8] = storage[tcw + 32..tcw + 40].try_into().unwrap();
    let data = Locate { orientation: 0, command: 0xa6, ..read_tracks(at(1, 1), 3) };
    let extent = Extent { first: at(1, 1), last: at(1, 3), ..Extent::default() };
    let prefix = Prefix { format: 1, valid: 0, extent: Some(extent), locate: Some(data) };
    storage[u64::from_be_bytes(tccb) as usize + 24..][..64].copy_from_slice(&prefix.emit());
    assert_eq!(run(&mut world, &mut guest, &orb), Ok(()));
    let numbers = (16 * 12..17 * 12).chain(18 * 12..19 * 12);
    let wanted: Vec<u8> = numbers.flat_map(|number| block(number, 0)).collect();
    assert!(guest.client.storage()[DATA as usize..][..wanted.len()] == wanted);
}

#[test]
fn one_dcw_takes_all_tracks_of_its_set() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let contents = [at(1, 2), at(1, 4)].map(|track| content(track, &[(1, b"", &track.emit())]));
    let all = contents.concat();
    put(&mut guest, 0, &all);
    let (storage, mode) = (guest.client.storage(), Mode::Transport);
    let orb = tracks::build(storage, AT, TRACKS_AT, mode, Verb::Write, 17, all.len());
    // The program is for one track: the extent, the count and the set become those of two with one between.
    let tcw = orb.program as usize;
    let tccb: [u8; 8] = storage[tcw + 32..tcw + 40].try_into().unwrap();
    let parameters = &mut storage[u64::from_be_bytes(tccb) as usize + 24..][..66];
    parameters[12 + 15] = 4;
    parameters[44 + 3] = 2;
    parameters[64] = 0xa0;
    assert_eq!(run(&mut world, &mut guest, &orb), Ok(()));
    for (number, wanted) in [17, 19].into_iter().zip(&contents) {
        assert_eq!(on_disk(&world, number)[5..][..wanted.len()], *wanted);
    }
    assert_eq!(on_disk(&world, 18)[29..][..4096], block(18 * 12, 0));
    // The second is not all there, because its record is longer: the first is written, and the guest is told.
    let (changed, record) = (TRACKS_AT as usize + 8, contents[0].len() + 16);
    guest.client.storage()[changed] = b'x';
    guest.client.storage()[TRACKS_AT as usize + record + 7] = 12;
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!(sense(&guest, scsw), Err(COUNT_TOO_SMALL));
    assert_eq!(on_disk(&world, 17)[13], b'x');
    assert_eq!(on_disk(&world, 19)[5..][..contents[1].len()], contents[1]);
}

/// A track that was read, up to its end.
fn found_track(guest: &mut Guest, track: u32) -> Vec<u8> {
    let bytes = found(guest, track, APART as usize);
    let last = track::records_from(&bytes, 0).last().unwrap().unwrap();
    bytes[..last.end() + 8].to_vec()
}

/// The parameters of a seek at 0x1000, those of a search for its home address at 0x1002, and a file mask at 0x1008.
fn seek(guest: &mut Guest, track: Cchh, mask: u8) {
    let storage = guest.client.storage();
    storage[0x1000..0x1002].fill(0);
    storage[0x1002..0x1006].copy_from_slice(&track.emit());
    storage[0x1008] = mask;
}

const MASK: (u8, u8, u16, u32) = (0x1f, CC, 1, 0x1008);
const SEEK: (u8, u8, u16, u32) = (0x07, CC, 6, 0x1000);
const SEARCH_HOME: (u8, u8, u16, u32) = (0x39, CC, 4, 0x1002);

#[test]
fn home_address_and_record_0_are_written_behind_a_seek_or_a_search() {
    let mut world = World::new(4, 100);
    let mut guest = world.guest(2, 2, true, false);
    let track = at(1, 4);
    seek(&mut guest, track, 0xc0);
    guest.client.storage()[0x1100..0x1105].copy_from_slice(&[0, 0, 1, 0, 4]);
    guest.client.storage()[0x1110..0x1118].copy_from_slice(&[0, 1, 0, 4, 0, 0, 0, 8]);
    guest.client.storage()[0x1118..0x1120].copy_from_slice(b"zero    ");
    guest.client.storage()[0x1120..0x112c]
        .copy_from_slice(&[0, 1, 0, 4, 1, 0, 0, 4, b'd', b'a', b't', b'a']);
    let (home, zero, ckd) = ((0x19, CC, 5, 0x1100), (0x15, CC, 16, 0x1110), (0x1d, 0, 12, 0x1120));
    let number = 3 * 15 + 4;
    let start = [0, 0, 3, 0, 4, 0, 3, 0, 4, 0, 0, 0, 8];
    let one = [0, 3, 0, 4, 1, 0, 0, 4, b'd', b'a', b't', b'a'];
    let is_last = |ccw: (u8, u8, u16, u32)| (ccw.0, 0, ccw.2, ccw.3);
    // A search that is not equal would come back by the transfer behind it.
    let search = [MASK, SEEK, SEARCH_HOME, (0x08, 0, 0, 0x410)];
    for (program, behind) in [
        (vec![MASK, SEEK, home, zero, ckd], [&b"zero    "[..], &one, &[0xff; 8]].concat()),
        (vec![MASK, SEEK, is_last(home)], [[0; 8], [0xff; 8]].concat()),
        ([&search[..], &[zero, ckd]].concat(), [&b"zero    "[..], &one, &[0xff; 8]].concat()),
        ([&search[..], &[is_last(zero)]].concat(), [&b"zero    "[..], &[0xff; 8]].concat()),
        ([&search[..], &[home, zero, ckd]].concat(), [&b"zero    "[..], &one, &[0xff; 8]].concat()),
        // What the program does not bring of record 0's data is zeros.
        (
            [&search[..], &[(0x15, 0x20, 10, 0x1110)]].concat(),
            [&b"ze\0\0\0\0\0\0"[..], &[0xff; 8]].concat(),
        ),
    ] {
        let orb = ccws(&mut guest, &program);
        assert_eq!(run(&mut world, &mut guest, &orb), Ok(()), "{program:x?}");
        let wanted = [&start[..], &behind].concat();
        assert_eq!(on_disk(&world, number)[..wanted.len()], wanted, "{program:x?}");
    }
}

#[test]
fn home_address_and_record_0_are_refused_where_they_do_not_belong() {
    let mut world = World::new(4, 100);
    let mut guest = world.guest(2, 2, true, false);
    let before = world.disk.0.lock().unwrap().synced().to_vec();
    let track = at(1, 4);
    let good = [0, 1, 0, 4, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    let home = (0x19, 0x20, 5, 0x1100);
    let zero = (0x15, 0x20, 16, 0x1110);
    let search = [SEARCH_HOME, (0x08, 0, 0, 0x410)];
    guest.client.storage()[0x1100..0x1105].copy_from_slice(&[0, 0, 1, 0, 4]);
    guest.client.storage()[0x1110..0x1120].copy_from_slice(&good);
    let mut check = |mask: u8, behind: &[(u8, u8, u16, u32)]| {
        seek(&mut guest, track, mask);
        let orb = ccws(&mut guest, &[&[MASK, SEEK][..], behind].concat());
        run(&mut world, &mut guest, &orb)
    };
    // The mask, of which only one permits it.
    for mask in [0x00, 0x40, 0x80] {
        assert_eq!(check(mask, &[home]), Err(MASK_VIOLATION));
        assert_eq!(check(mask, &[search[0], search[1], zero]), Err(MASK_VIOLATION));
    }
    // Record 0 behind a seek, behind something else, and behind a search for a part of the home address.
    let part = [(0x39, CC, 3, 0x1002), search[1]];
    let nop = (0x03, CC_SLI, 1, 0);
    let read_home = (0x1a, CC, 5, 0x2000);
    for behind in [
        &[zero][..],
        &[search[0], search[1], nop, zero],
        &[part[0], part[1], zero],
        &[read_home, zero],
        // A home address behind a record.
        &[(0x16, CC, 16, 0x2000), home],
        &[read_home, home],
    ] {
        assert_eq!(check(0xc0, behind), Err(INVALID_SEQUENCE), "{behind:x?}");
    }
    // Too few bytes.
    for bytes in 1..5 {
        assert_eq!(check(0xc0, &[(0x19, 0x20, bytes, 0x1100)]), Err(COUNT_TOO_SMALL));
    }
    for bytes in 1..8 {
        let zero = (0x15, 0x20, bytes, 0x1110);
        assert_eq!(check(0xc0, &[search[0], search[1], zero]), Err(COUNT_TOO_SMALL));
    }
    // Other contents: a flag, another track, another number, a key, data of another length.
    for at in 0..5 {
        let orb = {
            seek(&mut guest, track, 0xc0);
            let mut bytes = [0, 0, 1, 0, 4];
            bytes[at] ^= 2;
            guest.client.storage()[0x1100..0x1105].copy_from_slice(&bytes);
            ccws(&mut guest, &[MASK, SEEK, home])
        };
        assert_eq!(run(&mut world, &mut guest, &orb), Err(INVALID_PARAMETER), "byte {at}");
    }
    for at in 0..8 {
        let mut bytes = good;
        bytes[at] ^= 2;
        guest.client.storage()[0x1110..0x1120].copy_from_slice(&bytes);
        let orb = ccws(&mut guest, &[MASK, SEEK, search[0], search[1], zero]);
        assert_eq!(run(&mut world, &mut guest, &orb), Err(INVALID_PARAMETER), "byte {at}");
    }
    // A chain that has gone nowhere, and a guest that may only read.
    let orb = ccws(&mut guest, &[MASK, home]);
    assert_eq!(run(&mut world, &mut guest, &orb), Err(INVALID_SEQUENCE));
    let mut reader = world.guest(2, 2, false, false);
    seek(&mut reader, track, 0xc0);
    reader.client.storage()[0x1100..0x1105].copy_from_slice(&[0, 0, 1, 0, 4]);
    let orb = ccws(&mut reader, &[MASK, SEEK, home]);
    assert_eq!(run(&mut world, &mut reader, &orb), Err(WRITE_INHIBITED));
    assert!(world.disk.0.lock().unwrap().synced() == before);
}

#[test]
fn tracks_are_formatted_one_after_the_other() {
    let mut world = World::new(1, 100);
    let mut guest = world.guest(0, 1, true, false);
    let (first, last) = (at(0, 4), at(0, 6));
    let extent = Extent { permission: Permission::All, first, last, ..Extent::default() };
    let locate = Locate {
        operation: operation::FORMAT_WRITE,
        count: 6,
        seek: first,
        search: first,
        ..Locate::default()
    };
    let storage = guest.client.storage();
    storage[0x1000..0x1010].copy_from_slice(&extent.emit());
    storage[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
    // Two records for each track, as Linux formats a device: the first of every further track goes to the next one.
    let mut program = vec![(0x63, CC, 16, 0x1000), (0x47, CC, 16, 0x1010)];
    for index in 0..6 {
        let (head, record) = (4 + index / 2, 1 + index % 2);
        let place = 0x1100 + u32::from(index) * 8;
        guest.client.storage()[place as usize..][..8]
            .copy_from_slice(&[0, 0, 0, head, record, 0, 0x08, 0]);
        let code = if head > 4 && record == 1 { 0x9d } else { 0x1d };
        program.push((code, CC_SLI, 8, place));
    }
    let orb = ccws(&mut guest, &[&program[..7], &[(0x1d, 0x20, 8, 0x1128)]].concat());
    assert_eq!(run(&mut world, &mut guest, &orb), Ok(()));
    for head in 4..7 {
        let file = on_disk(&world, head);
        let uniform = track::check(&file, track_of(head)).unwrap().uniform.unwrap();
        assert_eq!((uniform.records, uniform.data_bytes), (2, 2048), "head {head}");
    }
    assert_eq!(on_disk(&world, 7)[29..][..4096], block(7 * 12, 0));
    // The extent ends, and outside of a domain there is no next track.
    let next = (0x9d, 0x20, 8, 0x1100);
    let orb = ccws(&mut guest, &[&program[..7], &[next]].concat());
    assert_eq!(run(&mut world, &mut guest, &orb), Err(FILE_PROTECTED));
    seek(&mut guest, first, 0xc0);
    guest.client.storage()[0x1008..0x100d].copy_from_slice(&[0, 0, 0, 4, 1]);
    let search = [SEEK, (0x31, CC, 5, 0x1008), (0x08, 0, 0, 0x408), next];
    let orb = ccws(&mut guest, &search);
    assert_eq!(run(&mut world, &mut guest, &orb), Err(INVALID_SEQUENCE));
}

#[test]
fn record_0_and_records_are_written_in_a_domain() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let track = at(1, 4);
    let extent = |permission| Extent { permission, first: track, last: track, ..Extent::default() };
    let locate = |orientation, count| Locate {
        operation: operation::FORMAT_WRITE,
        orientation,
        count,
        seek: track,
        search: track,
        ..Locate::default()
    };
    let storage = guest.client.storage();
    storage[0x1100..0x1105].copy_from_slice(&[0, 0, 1, 0, 4]);
    storage[0x1110..0x1118].copy_from_slice(&[0, 1, 0, 4, 0, 0, 0, 8]);
    storage[0x1120..0x1128].copy_from_slice(&[0, 1, 0, 4, 1, 0, 2, 0]);
    // As Linux formats a track with its record 0: of every record only the count field comes. And with the home address before.
    for (orientation, home) in [(orientation::HOME, 0), (orientation::INDEX, 1)] {
        let storage = guest.client.storage();
        storage[0x1000..0x1010].copy_from_slice(&extent(Permission::All).emit());
        storage[0x1010..0x1020].copy_from_slice(&locate(orientation, 2 + home).emit()[..16]);
        let mut program = vec![(0x63, CC, 16, 0x1000), (0x47, CC, 16, 0x1010)];
        program.extend((home > 0).then_some((0x19, CC, 5, 0x1100)));
        program.extend([(0x15, CC_SLI, 8, 0x1110), (0x1d, 0x20, 8, 0x1120)]);
        let orb = ccws(&mut guest, &program);
        assert_eq!(run(&mut world, &mut guest, &orb), Ok(()));
        let file = on_disk(&world, 19);
        assert_eq!(file[..21], [0, 0, 1, 0, 4, 0, 1, 0, 4, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
        let shape = track::check(&file, track).unwrap();
        assert_eq!((shape.records, shape.end), (1, 21 + 8 + 512));
        assert_eq!(file[21..29], [0, 1, 0, 4, 1, 0, 2, 0]);
        // The domain is over.
        program.last_mut().unwrap().1 = CC_SLI;
        let orb = ccws(&mut guest, &[&program[..], &[(0x1d, 0x20, 8, 0x1120)]].concat());
        assert_eq!(run(&mut world, &mut guest, &orb), Err(INVALID_SEQUENCE));
    }
    // A second record 0, and a mask that does not permit it.
    guest.client.storage()[0x1010..0x1020]
        .copy_from_slice(&locate(orientation::HOME, 3).emit()[..16]);
    let (limits, to) = ((0x63, CC, 16, 0x1000), (0x47, CC, 16, 0x1010));
    let zero = (0x15, CC_SLI, 8, 0x1110);
    let orb = ccws(&mut guest, &[limits, to, zero, zero]);
    assert_eq!(run(&mut world, &mut guest, &orb), Err(INVALID_SEQUENCE));
    guest.client.storage()[0x1000..0x1010]
        .copy_from_slice(&extent(Permission::NoHomeAddress).emit());
    let orb = ccws(&mut guest, &[limits, to, zero]);
    assert_eq!(run(&mut world, &mut guest, &orb), Err(MASK_VIOLATION));
}
