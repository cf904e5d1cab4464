//! Programs in transport mode, byte for byte as Linux builds them: `drivers/s390/block/dasd_eckd.c`, `prepare_itcw`, and
//! `drivers/s390/cio/fcx.c`, `tcw_finalize`.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use disk::ckd::model::{BLOCK_BYTES, TRACK_BYTES, track_of};
use disk::ckd::track;
use disk::format::orb::{Orb, OrbFlags};
use disk::format::scsw::Scsw;
use disk::program::blocks::Mode;

use world::{DATA, Guest, World, block, image, read};

const TCW_AT: usize = 0x1000;
const TCCB_AT: usize = 0x1100;
const TIDAWS_AT: usize = 0x1200;

/// A TCW with a list of TIDAWs: its second word says the length of the TCCB, 96 bytes, and whether it reads or writes.
#[rustfmt::skip]
fn tcw(writes: bool, count: u32) -> Vec<u8> {
    let (flags, direction) = if writes { (0x01, 0x4d) } else { (0x04, 0x4e) };
    let mut bytes = vec![
        0, flags, 0, 0, 0, direction, 0, 0,
        0, 0, 0, 0, 0, 0, 0x12, 0, 0, 0, 0, 0, 0, 0, 0x12, 0,
        0, 0, 0, 0, 0, 0, 0x13, 0, 0, 0, 0, 0, 0, 0, 0x11, 0,
    ];
    bytes[if writes { 16 } else { 8 }..][..8].fill(0);
    let (output, input) = if writes { (count, 0) } else { (0, count) };
    bytes.extend(output.to_be_bytes());
    bytes.extend(input.to_be_bytes());
    bytes.resize(64, 0);
    bytes
}

/// A TCCB of one DCW: prefix, with define extent and locate record extended.
#[rustfmt::skip]
fn tccb(code: u8, count: u32, extent: &[u8], locate: &[u8; 20], transport_count: u32) -> Vec<u8> {
    let mut bytes = vec![
        0x7f, 0, 0, 0, 0, 0, 0, 84, 0x1f, 0xfe, 0, 0, 0, 0, 0, 0,
        code, 0, 0, 64,
    ];
    bytes.extend(count.to_be_bytes());
    bytes.extend([1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(extent);
    // Behind the extent: no time stamp, and 12 records on each track.
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 12, 0, 0, 0, 0]);
    bytes.extend(locate);
    bytes.extend([0, 0, 0, 0]);
    bytes.extend(transport_count.to_be_bytes());
    assert_eq!(bytes.len(), 96);
    bytes
}

/// Runs a TCW. The TIDAWs have flags and count, and pages one behind the other.
fn run(
    world: &mut World,
    guest: &mut Guest,
    tcw: &[u8],
    tccb: &[u8],
    tidaws: &[(u8, u32)],
) -> Scsw {
    let storage = guest.client.storage();
    storage[TCW_AT..][..64].copy_from_slice(tcw);
    storage[TCCB_AT..][..tccb.len()].copy_from_slice(tccb);
    for (index, (flags, count)) in tidaws.iter().enumerate() {
        let address = u64::from(DATA) + index as u64 * 4096;
        let mut bytes = vec![*flags, 0, 0, 0];
        bytes.extend(count.to_be_bytes());
        bytes.extend(address.to_be_bytes());
        storage[TIDAWS_AT + index * 16..][..16].copy_from_slice(&bytes);
    }
    let flags = OrbFlags::FORMAT_1.with(OrbFlags::PREFETCH).with(OrbFlags::TRANSPORT);
    let orb = Orb { flags, paths: 0xf0, program: TCW_AT as u32, ..Orb::default() };
    guest.execute(world, &orb)
}

/// Extents of heads 1 to the last one of cylinder 0: blocks of 4096 bytes that may be updated, or read.
#[rustfmt::skip]
const fn extent(mask: u8, last: u8) -> [u8; 16] {
    [mask, 0xc0, 0x10, 0, 0, 0, 0, 0x42, 0, 0, 0, 1, 0, 0, 0, last]
}

/// Write track data, from record 12 of head 1, with the bytes of the last track. Sector 202 is that of record 12.
#[rustfmt::skip]
const fn write(tracks: u8) -> [u8; 20] {
    [0x3f, 0xf0, 0xa5, tracks, 0, 0, 0, 1, 0, 0, 0, 1, 12, 202, 0x10, 0, 0, 0x23, 0, 0]
}

#[test]
fn write_of_several_tracks_has_check_words_between_them() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let fill = |guest: &mut Guest, seed| {
        for index in 0..2 {
            let at = DATA as usize + index * BLOCK_BYTES;
            let bytes = block(12 + 11 + index as u64, seed);
            guest.client.storage()[at..at + BLOCK_BYTES].copy_from_slice(&bytes);
        }
    };
    fill(&mut guest, 9);
    // One track: no check word within the stream, and the TCAT has the one behind it.
    let one = tccb(0xe7, 4096, &extent(0x80, 1), &write(1), 4100);
    let scsw = run(&mut world, &mut guest, &tcw(true, 4096), &one, &[(0x80, 4096)]);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer());
    let seed = |number: u64| if number == 23 { 9 } else { 0 };
    read(&mut world, &mut guest, Mode::Command, 20, 8, |number| block(number, seed(number)));
    // Two tracks: TCW and TCAT count 4 bytes more, which the DCW does not.
    fill(&mut guest, 5);
    let two = tccb(0xe7, 8192, &extent(0x80, 2), &write(2), 8200);
    let tidaws = [(0x08, 4096), (0x80, 4096)];
    let scsw = run(&mut world, &mut guest, &tcw(true, 8196), &two, &tidaws);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer());
    let seed = |number: u64| if (23..25).contains(&number) { 5 } else { 0 };
    read(&mut world, &mut guest, Mode::Command, 20, 8, |number| block(number, seed(number)));
    // Counts that do not agree are refused, and nothing is written.
    fill(&mut guest, 3);
    let plain = tccb(0xe7, 8192, &extent(0x80, 2), &write(2), 8196);
    for (count, tccb, tidaws) in [
        (8192, &two, tidaws),
        (8196, &plain, tidaws),
        (8192, &plain, [(0, 4096), (0x80, 4096)]),
        (8196, &two, [(0, 4096), (0x80, 4096)]),
    ] {
        let scsw = run(&mut world, &mut guest, &tcw(true, count), tccb, &tidaws);
        assert!(!scsw.is_good(), "{count} {tidaws:x?}");
    }
    read(&mut world, &mut guest, Mode::Command, 20, 8, |number| block(number, seed(number)));
}

#[test]
fn read_of_several_tracks_has_no_check_words_in_its_counts() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, false, false);
    let locate = [0x0c, 0xe8, 0xa6, 2, 0, 0, 0, 1, 0, 0, 0, 1, 12, 202, 0x20, 0, 0, 0, 0, 0];
    let program = tccb(0xea, 3 * 4096, &extent(0x40, 2), &locate, 3 * 4096 + 4);
    let tidaws = [(0, 4096), (0, 4096), (0x80, 4096)];
    let scsw = run(&mut world, &mut guest, &tcw(false, 3 * 4096), &program, &tidaws);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer());
    for index in 0..3 {
        let found = &guest.client.storage()[DATA as usize + index * 4096..][..4096];
        assert!(found == block(23 + index as u64, 0), "{index}");
    }
}

#[test]
fn check_of_a_format_reads_all_counts_up_to_the_end_of_the_extent() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, false, false);
    // Room for 26 counts of the two tracks, which have 24. Linux expects the end of the extent, and looks at what it got.
    let locate = [0x96, 0x28, 0x92, 26, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0xff, 0, 0, 0, 0, 0, 0];
    let mut extent = extent(0x40, 2);
    (extent[2], extent[3]) = (0, 8);
    let program = tccb(0xea, 26 * 8, &extent, &locate, 26 * 8 + 4);
    let tidaws: Vec<(u8, u32)> =
        (0..26).map(|index| (if index < 25 { 0 } else { 0x80 }, 8)).collect();
    guest.client.storage()[DATA as usize..][..26 * 4096].fill(0xee);
    let scsw = run(&mut world, &mut guest, &tcw(false, 26 * 8), &program, &tidaws);
    assert!(!scsw.is_good(), "{scsw:x?}");
    let sense = guest.client.answer().sense.unwrap().0;
    assert_eq!((sense[0], sense[1]), (0, 0x04), "file protected");
    let found = |index: usize| {
        let count = &guest.client.storage()[DATA as usize + index * 4096..][..8];
        (count[3], count[4], count[6])
    };
    assert_eq!(
        [0, 11, 12, 23, 24].map(found).to_vec(),
        [(1, 1, 0x10), (1, 12, 0x10), (2, 1, 0x10), (2, 12, 0x10), (0xee, 0xee, 0xee),]
    );
}

#[test]
fn check_of_a_format_goes_over_tracks_without_records() {
    let mut bytes = image(4);
    // Tracks 2 to 43 have no records: the last of them is head 13 of cylinder 2.
    for (number, track) in bytes[512..].chunks_mut(TRACK_BYTES).enumerate().skip(2).take(42) {
        track::clear(track, track_of(number as u32));
    }
    let mut world = World::with(bytes, 100);
    let mut guest = world.guest(0, 4, false, false);
    let locate = [0x96, 0x28, 0x92, 14, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0xff, 0, 0, 0, 0, 0, 0];
    let mut extent = extent(0x40, 14);
    (extent[2], extent[3], extent[13]) = (0, 8, 3);
    let program = tccb(0xea, 14 * 8, &extent, &locate, 14 * 8 + 4);
    let tidaws: Vec<(u8, u32)> =
        (0..14).map(|index| (if index < 13 { 0 } else { 0x80 }, 8)).collect();
    let scsw = run(&mut world, &mut guest, &tcw(false, 14 * 8), &program, &tidaws);
    assert!(scsw.is_good(), "{scsw:x?} {:?}", guest.client.answer());
    let found = |index: usize| {
        let count = &guest.client.storage()[DATA as usize + index * 4096..][..8];
        (count[1], count[3], count[4])
    };
    assert_eq!([0, 11, 12, 13].map(found), [(0, 1, 1), (0, 1, 12), (2, 14, 1), (2, 14, 2)]);
    assert_eq!((world.unit.counters().asides, world.unit.pinned(0)), (2, 0));
}
