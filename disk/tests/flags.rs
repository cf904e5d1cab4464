//! Flags of CCWs, from a guest's storage through channel and control unit and back: what is placed where, and the exact status.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use channel::client::Event;
use channel::request::Kind;
use disk::ckd::model::{BLOCK_BYTES, BLOCKS_PER_TRACK, track_of};
use disk::format::ccw::{Ccw, CcwFlags, CcwFormat};
use disk::format::eckd::{Extent, Locate, Permission, operation};
use disk::format::idaw::Midaw;
use disk::format::orb::{Orb, OrbFlags};
use disk::format::scsw::{Scsw, control};
use disk::program::blocks::Mode;

use world::{CC, CC_SLI, Guest, World, block, ccws, read};

/// Flags of a CCW that [`world`] does not name.
const CD: u8 = 0x80;
const SLI: u8 = 0x20;
const SKIP: u8 = 0x10;
const PCI: u8 = 0x08;
const IDA: u8 = 0x04;
const SUSPEND: u8 = 0x02;
const MIDA: u8 = 0x01;

const READ: u8 = 0x06;
const WRITE: u8 = 0x05;
const NOP: u8 = 0x03;
const SENSE_ID: u8 = 0xe4;
/// The answer to SENSE ID begins so.
const ID: [u8; 4] = [0xff, 0x39, 0x90, 0xe9];

/// The block that programs read: record 3 of track 1.
const BLOCK: u64 = 14;
/// Behind the two CCWs that go there.
const TAIL: u32 = 0x410;
/// Storage that is filled with a pattern before each program.
const AREA: std::ops::Range<usize> = 0x8000..0x2_0000;
const UNTOUCHED: u8 = 0xee;

/// Device status: channel end and device end.
const ENDED: u8 = 0x0c;
/// Subchannel status.
const INCORRECT_LENGTH: u8 = 0x40;
const INTERRUPTED: u8 = 0x80;
const PROGRAM_CHECK: u8 = 0x20;

fn world() -> (World, Guest) {
    let mut world = World::new(2, 100);
    let guest = world.guest(0, 2, true, false);
    (world, guest)
}

/// The parameters of DEFINE EXTENT and LOCATE RECORD for these blocks, at 0x1000 and 0x1010.
fn place_parameters(guest: &mut Guest, operation: u8, blocks: u8) {
    let track = track_of((BLOCK / u64::from(BLOCKS_PER_TRACK)) as u32);
    let permission = Permission::Update;
    let extent = Extent { permission, first: track, last: track, ..Extent::default() };
    let locate = Locate {
        operation,
        count: blocks,
        seek: track,
        search: track,
        record: (BLOCK % u64::from(BLOCKS_PER_TRACK)) as u8 + 1,
        ..Locate::default()
    };
    let storage = guest.client.storage();
    storage[0x1000..0x1010].copy_from_slice(&extent.emit());
    storage[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
    storage[AREA].fill(UNTOUCHED);
}

/// DEFINE EXTENT, LOCATE RECORD, and what comes behind them.
fn program(guest: &mut Guest, operation: u8, tail: &[(u8, u8, u16, u32)]) -> Orb {
    place_parameters(guest, operation, 4);
    let head = [(0x63, CC, 16, 0x1000), (0x47, CC, 16, 0x1010)];
    ccws(guest, &[&head, tail].concat())
}

/// The address, device status, subchannel status, and residual count.
type Status = (u32, u8, u8, u16);

fn status(scsw: Scsw) -> Status {
    (scsw.address, scsw.device.0, scsw.subchannel.0, scsw.count)
}

/// Reads blocks with the CCWs behind LOCATE RECORD.
fn run(world: &mut World, guest: &mut Guest, tail: &[(u8, u8, u16, u32)]) -> Status {
    let orb = program(guest, operation::READ_DATA, tail);
    status(guest.execute(world, &orb))
}

fn found(guest: &mut Guest, at: usize, bytes: usize) -> Vec<u8> {
    guest.client.storage()[at..at + bytes].to_vec()
}

/// Only these places of the area have something new.
fn assert_untouched_but(guest: &mut Guest, places: &[(usize, usize)]) {
    let storage = guest.client.storage();
    for at in AREA {
        let is_placed = places.iter().any(|(start, bytes)| (*start..start + bytes).contains(&at));
        assert!(is_placed || storage[at] == UNTOUCHED, "byte {at:#x}");
    }
}

#[test]
fn skipped_parts_of_a_record_are_not_placed() {
    let (mut world, mut guest) = world();
    // What is skipped can have any address.
    let tail = [
        (READ, CD | SKIP, 100, 0x7fff_fff0),
        (0, CD, 96, 0x9000),
        (0, CD | SKIP, 900, 0x9060),
        (0, 0, 3000, 0xa000),
    ];
    assert_eq!(run(&mut world, &mut guest, &tail), (TAIL + 32, ENDED, 0, 0));
    let content = block(BLOCK, 0);
    assert!(found(&mut guest, 0x9000, 96) == content[100..196]);
    assert!(found(&mut guest, 0xa000, 3000) == content[1096..]);
    assert_untouched_but(&mut guest, &[(0x9000, 96), (0xa000, 3000)]);
    // All of a record, with one that is placed behind it.
    let tail = [(READ, CC | SKIP, 4096, 0), (READ, 0, 4096, 0x9000)];
    assert_eq!(run(&mut world, &mut guest, &tail), (TAIL + 16, ENDED, 0, 0));
    assert!(found(&mut guest, 0x9000, BLOCK_BYTES) == block(BLOCK + 1, 0));
    assert_untouched_but(&mut guest, &[(0x9000, BLOCK_BYTES)]);
    // The length counts all the same.
    let tail = [(READ, SKIP, 4000, 0)];
    assert_eq!(run(&mut world, &mut guest, &tail), (TAIL + 8, ENDED, INCORRECT_LENGTH, 0));
    // A write is not skipped: the flag is for what is read.
    let orb = program(&mut guest, operation::WRITE_DATA, &[(WRITE, SKIP, 4096, 0x9000)]);
    guest.client.storage()[0x9000..0xa000].copy_from_slice(&block(BLOCK, 9));
    assert_eq!(status(guest.execute(&mut world, &orb)), (TAIL + 8, ENDED, 0, 0));
    read(&mut world, &mut guest, Mode::Transport, BLOCK, 1, |number| block(number, 9));
}

#[test]
fn data_chain_of_three_ccws_has_the_residual_count_of_its_last() {
    let (mut world, mut guest) = world();
    let content = block(BLOCK, 0);
    // The last CCW's count and SLI; its residual count and whether its length is incorrect.
    for (count, flags, residual, status) in [
        (2096, 0, 0, 0),
        (2096, SLI, 0, 0),
        (5000, 0, 2904, INCORRECT_LENGTH),
        (5000, SLI, 2904, 0),
        (1000, 0, 0, INCORRECT_LENGTH),
        (1000, SLI, 0, 0),
    ] {
        let tail = [(READ, CD, 1000, 0x9000), (0, CD, 1000, 0xa001), (0, flags, count, 0xb003)];
        let expected = (TAIL + 24, ENDED, status, residual);
        assert_eq!(run(&mut world, &mut guest, &tail), expected, "{count} {flags:#x}");
        let third = usize::from(count).min(2096);
        assert!(found(&mut guest, 0x9000, 1000) == content[..1000]);
        assert!(found(&mut guest, 0xa001, 1000) == content[1000..2000]);
        assert!(found(&mut guest, 0xb003, third) == content[2000..][..third]);
        assert_untouched_but(&mut guest, &[(0x9000, 1000), (0xa001, 1000), (0xb003, third)]);
    }
    // The record ends with the count of the second: the third has got nothing.
    for (flags, status) in [(0, INCORRECT_LENGTH), (SLI, 0)] {
        let tail = [(READ, CD, 1000, 0x9000), (0, CD, 3096, 0xa000), (0, flags, 77, 0xb000)];
        assert_eq!(run(&mut world, &mut guest, &tail), (TAIL + 24, ENDED, status, 77));
    }
    // Command chaining of the last CCW is that of the command.
    let tail = [
        (READ, CD | CC, 4000, 0x9000),
        (0, CC, 96, 0xa000),
        (READ, CD, 4000, 0xb000),
        (0, SLI, 200, 0xc000),
    ];
    assert_eq!(run(&mut world, &mut guest, &tail), (TAIL + 32, ENDED, 0, 104));
    assert!(found(&mut guest, 0xb000, 4000) == block(BLOCK + 1, 0)[..4000]);
}

#[test]
fn data_chain_of_a_write_is_gathered() {
    let (mut world, mut guest) = world();
    let content = block(BLOCK, 5);
    // Of a write of more than the record nothing else is different from a read.
    for (count, flags, residual, expected) in
        [(2096, 0, 0, 0), (2196, 0, 100, INCORRECT_LENGTH), (2196, SLI, 100, 0)]
    {
        let tail = [(WRITE, CD, 1000, 0x9000), (0, CD, 1000, 0xa001), (0, flags, count, 0xb003)];
        let orb = program(&mut guest, operation::WRITE_DATA, &tail);
        let storage = guest.client.storage();
        storage[0x9000..][..1000].copy_from_slice(&content[..1000]);
        storage[0xa001..][..1000].copy_from_slice(&content[1000..2000]);
        storage[0xb003..][..2096].copy_from_slice(&content[2000..]);
        let scsw = guest.execute(&mut world, &orb);
        assert_eq!(status(scsw), (TAIL + 24, ENDED, expected, residual), "{count} {flags:#x}");
        read(&mut world, &mut guest, Mode::Command, BLOCK, 1, |number| block(number, 5));
    }
}

#[test]
fn incorrect_length_ends_the_chain_unless_suppressed() {
    let (mut world, mut guest) = world();
    let content = block(BLOCK, 0);
    // A CCW alone, with more and fewer bytes than the record.
    for (count, flags, residual, status) in [
        (4096, 0, 0, 0),
        (100, 0, 0, INCORRECT_LENGTH),
        (100, SLI, 0, 0),
        (5000, 0, 904, INCORRECT_LENGTH),
        (5000, SLI, 904, 0),
    ] {
        let expected = (TAIL + 8, ENDED, status, residual);
        assert_eq!(run(&mut world, &mut guest, &[(READ, flags, count, 0x9000)]), expected);
        let bytes = usize::from(count).min(BLOCK_BYTES);
        assert!(found(&mut guest, 0x9000, bytes) == content[..bytes]);
        assert_untouched_but(&mut guest, &[(0x9000, bytes)]);
        // In the middle of a chain it ends the chain, or nothing is said of it.
        let tail = [(READ, CC | flags, count, 0x9000), (READ, 0, 4096, 0xc000)];
        let is_over = status != 0;
        let expected = match is_over {
            true => (TAIL + 8, ENDED, INCORRECT_LENGTH, residual),
            false => (TAIL + 16, ENDED, 0, 0),
        };
        assert_eq!(run(&mut world, &mut guest, &tail), expected, "{count} {flags:#x}");
        let second = found(&mut guest, 0xc000, BLOCK_BYTES);
        assert_eq!(second == block(BLOCK + 1, 0), !is_over);
        assert_eq!(second.iter().all(|byte| *byte == UNTOUCHED), is_over);
    }
}

#[test]
fn lists_of_addresses_of_both_formats_scatter_a_record() {
    let (mut world, mut guest) = world();
    let content = block(BLOCK, 0);
    let two = OrbFlags::IDAW_2;
    type Pieces = &'static [(usize, usize)];
    // Flags of the ORB, bytes of an address, and where the pieces are: the first begins within its block.
    let lists: [(OrbFlags, usize, Pieces); 3] = [
        (OrbFlags::default(), 4, &[(0x8700, 0x100), (0x9800, 0x800), (0xc000, 0x700)]),
        (two.with(OrbFlags::IDAW_2K), 8, &[(0x8700, 0x100), (0x9800, 0x800), (0xc000, 0x700)]),
        (two, 8, &[(0x8f00, 0x100), (0xc000, 0xf00)]),
    ];
    for (flags, word, pieces) in lists {
        let mut orb = program(&mut guest, operation::READ_DATA, &[(READ, IDA, 4096, 0x3008)]);
        orb.flags = orb.flags.with(flags);
        for (index, (address, _)) in pieces.iter().enumerate() {
            let bytes = &(*address as u64).to_be_bytes()[8 - word..];
            guest.client.storage()[0x3008 + index * word..][..word].copy_from_slice(bytes);
        }
        assert_eq!(status(guest.execute(&mut world, &orb)), (TAIL + 8, ENDED, 0, 0));
        let mut all = Vec::new();
        for (address, bytes) in pieces {
            all.extend(found(&mut guest, *address, *bytes));
        }
        assert!(all == content, "{flags:?}");
        assert_untouched_but(&mut guest, pieces);
        // The second address must be the start of a block: nothing is read then.
        guest.client.storage()[0x3008 + 2 * word - 1] = 8;
        guest.client.storage()[AREA].fill(UNTOUCHED);
        assert_eq!(status(guest.execute(&mut world, &orb)), (TAIL + 8, 0, PROGRAM_CHECK, 0));
        assert_untouched_but(&mut guest, &[]);
    }
    // A list of a CCW in a chain of data, and one without.
    let tail = [(READ, CD | IDA, 0x900, 0x3000), (0, SLI, 0x800, 0xa000)];
    let orb = program(&mut guest, operation::READ_DATA, &tail);
    guest.client.storage()[0x3000..0x3008].copy_from_slice(&[0, 0, 0x8f, 0, 0, 0, 0x98, 0]);
    assert_eq!(status(guest.execute(&mut world, &orb)), (TAIL + 16, ENDED, 0, 0x100));
    assert!(found(&mut guest, 0x8f00, 0x100) == content[..0x100]);
    assert!(found(&mut guest, 0x9800, 0x800) == content[0x100..0x900]);
    assert!(found(&mut guest, 0xa000, 0x700) == content[0x900..]);
}

#[test]
fn modified_lists_of_addresses_skip_and_scatter() {
    let (mut world, mut guest) = world();
    let content = block(BLOCK, 0);
    let entry =
        |count, address| Midaw { is_last: false, skip: false, interrupt: false, count, address };
    let list = [
        entry(100, 0x8001),
        Midaw { skip: true, ..entry(50, u64::MAX) },
        entry(2000, 0x9000),
        Midaw { skip: true, ..entry(46, 0) },
        Midaw { is_last: true, ..entry(1900, 0xa123) },
    ];
    let place = |guest: &mut Guest, list: &[Midaw]| {
        for (index, midaw) in list.iter().enumerate() {
            guest.client.storage()[0x3000 + index * 16..][..16].copy_from_slice(&midaw.emit());
        }
    };
    let mut orb = program(&mut guest, operation::READ_DATA, &[(READ, MIDA, 4096, 0x3000)]);
    orb.flags = orb.flags.with(OrbFlags::MIDAW);
    place(&mut guest, &list);
    assert_eq!(status(guest.execute(&mut world, &orb)), (TAIL + 8, ENDED, 0, 0));
    assert!(found(&mut guest, 0x8001, 100) == content[..100]);
    assert!(found(&mut guest, 0x9000, 2000) == content[150..2150]);
    assert!(found(&mut guest, 0xa123, 1900) == content[2196..]);
    assert_untouched_but(&mut guest, &[(0x8001, 100), (0x9000, 2000), (0xa123, 1900)]);
    // Entries that ask for an interruption.
    place(&mut guest, &list.map(|one| Midaw { interrupt: one.count == 2000, ..one }));
    guest.start(0, &orb);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Intermediate { subchannel: 0, parameter: 77 }));
    assert_eq!(status(guest.client.answer().scsw), (TAIL + 8, 0, INTERRUPTED, 0));
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    assert_eq!(status(guest.client.answer().scsw), (TAIL + 8, ENDED, 0, 0));
    // What crosses a block of 4096 bytes, or is not as many bytes as the CCW, is wrong.
    for wrong in [entry(2000, 0x9900), entry(2001, 0x9000), entry(0, 0x9000)] {
        place(&mut guest, &[list[0], list[1], wrong, list[3], list[4]]);
        assert_eq!(status(guest.execute(&mut world, &orb)), (TAIL + 8, 0, PROGRAM_CHECK, 0));
    }
    // Gathered from storage too: what is skipped of a read is written.
    let tail = [(WRITE, MIDA, 4096, 0x3000)];
    let mut orb = program(&mut guest, operation::WRITE_DATA, &tail);
    orb.flags = orb.flags.with(OrbFlags::MIDAW);
    place(&mut guest, &[entry(96, 0x8fa0), Midaw { is_last: true, ..entry(4000, 0xa000) }]);
    let content = block(BLOCK, 7);
    guest.client.storage()[0x8fa0..0x9000].copy_from_slice(&content[..96]);
    guest.client.storage()[0xa000..][..4000].copy_from_slice(&content[96..]);
    assert_eq!(status(guest.execute(&mut world, &orb)), (TAIL + 8, ENDED, 0, 0));
    read(&mut world, &mut guest, Mode::Command, BLOCK, 1, |number| block(number, 7));
}

/// The same as CCWs of format 0.
fn of_format_0(guest: &mut Guest, orb: &Orb, ccws: &[(u8, u8, u16, u32)]) -> Orb {
    for (index, (command, flags, count, address)) in ccws.iter().enumerate() {
        let (flags, at) = (CcwFlags(*flags), orb.program as usize + index * 8);
        let ccw = Ccw { command: *command, flags, count: *count, address: *address };
        guest.client.storage()[at..at + 8].copy_from_slice(&ccw.emit(CcwFormat::Zero));
    }
    Orb { flags: OrbFlags(orb.flags.0 & !OrbFlags::FORMAT_1.0), ..*orb }
}

#[test]
fn program_of_format_0_does_the_same() {
    let (mut world, mut guest) = world();
    let content = block(BLOCK, 0);
    // A transfer has any upper half of its code, and its flags and its count mean nothing.
    for transfer in [0x08, 0x28, 0xf8] {
        let chain = [
            (0x63, CC, 16, 0x1000),
            (0x47, CC, 16, 0x1010),
            (transfer, 0xff, 99, 0x428),
            (0, 0, 0, 0),
            (0, 0, 0, 0),
            (READ, CD, 1000, 0x9000),
            (0, CD | SKIP, 96, 0xff_fff0),
            (0, SLI, 4000, 0xa000),
        ];
        let orb = program(&mut guest, operation::READ_DATA, &[]);
        let orb = of_format_0(&mut guest, &orb, &chain);
        assert_eq!(status(guest.execute(&mut world, &orb)), (0x440, ENDED, 0, 1000));
        assert!(found(&mut guest, 0x9000, 1000) == content[..1000]);
        assert!(found(&mut guest, 0xa000, 3000) == content[1096..]);
        assert_untouched_but(&mut guest, &[(0x9000, 1000), (0xa000, 3000)]);
        assert_eq!(guest.client.answer().scsw.conditions & 0x0080, 0, "of format 0");
    }
    // The ORB suppresses incorrect lengths of commands without data alone, and in format 0 these have none in any case.
    let chain = [
        (0x63, CC, 16, 0x1000),
        (0x47, CC, 16, 0x1010),
        (READ, CC, 5000, 0x9000),
        (READ, 0, 100, 0xc000),
    ];
    let orb = program(&mut guest, operation::READ_DATA, &[]);
    let orb = of_format_0(&mut guest, &orb, &chain);
    let suppressed = Orb { flags: orb.flags.with(OrbFlags::SUPPRESS_LENGTH), ..orb };
    for orb in [orb, suppressed] {
        assert_eq!(status(guest.execute(&mut world, &orb)), (0x418, ENDED, INCORRECT_LENGTH, 904));
    }
    let orb = of_format_0(&mut guest, &orb, &[(NOP, 0, 5, 0x9000)]);
    assert_eq!(status(guest.execute(&mut world, &orb)), (0x408, ENDED, 0, 5));
    // Count 0 is for format 1.
    let orb = of_format_0(&mut guest, &orb, &[(NOP, 0, 0, 0)]);
    assert_eq!(status(guest.execute(&mut world, &orb)), (0x408, 0, PROGRAM_CHECK, 0));
}

#[test]
fn program_controlled_interruption_is_an_intermediate_status() {
    let (mut world, mut guest) = world();
    let tail = [(READ, CC | PCI, 4096, 0x9000), (READ, 0, 4096, 0xb000)];
    let orb = program(&mut guest, operation::READ_DATA, &tail);
    guest.start(0, &orb);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Intermediate { subchannel: 0, parameter: 77 }));
    let scsw = guest.client.answer().scsw;
    assert_eq!((scsw.device.0, scsw.subchannel.0, scsw.count), (0, INTERRUPTED, 0));
    // The channel may have sent further commands by then.
    assert!((TAIL + 8..=TAIL + 16).contains(&scsw.address), "{:x}", scsw.address);
    assert_eq!(scsw.control & control::STATUS, control::INTERMEDIATE | control::PENDING);
    assert_eq!(scsw.control & control::SUBCHANNEL_ACTIVE, control::SUBCHANNEL_ACTIVE);
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    guest.client.place().unwrap();
    let scsw = guest.client.answer().scsw;
    assert_eq!(status(scsw), (TAIL + 16, ENDED, 0, 0));
    let ends = control::PRIMARY | control::SECONDARY | control::PENDING;
    assert_eq!(scsw.control & control::STATUS, ends);
    assert!(found(&mut guest, 0xb000, BLOCK_BYTES) == block(BLOCK + 1, 0));
    assert_eq!(guest.poll(), None);
}

#[test]
fn no_operation_moves_nothing() {
    let (mut world, mut guest) = world();
    for (count, flags) in [(0, 0), (1, SLI)] {
        // Alone, and at both ends of a chain.
        let orb = ccws(&mut guest, &[(NOP, flags, count, 0x9000)]);
        assert_eq!(status(guest.execute(&mut world, &orb)), (0x408, ENDED, 0, count));
        let chain = [
            (NOP, CC | flags, count, 0x9000),
            (0x63, CC, 16, 0x1000),
            (0x47, CC, 16, 0x1010),
            (READ, CC, 4096, 0xb000),
            (NOP, flags, count, 0x9000),
        ];
        place_parameters(&mut guest, operation::READ_DATA, 4);
        let orb = ccws(&mut guest, &chain);
        assert_eq!(status(guest.execute(&mut world, &orb)), (0x428, ENDED, 0, count));
        assert!(found(&mut guest, 0xb000, BLOCK_BYTES) == block(BLOCK, 0));
        assert_untouched_but(&mut guest, &[(0xb000, BLOCK_BYTES)]);
    }
}

#[test]
fn no_operation_with_a_count_has_a_wrong_length_unless_suppressed() {
    let (mut world, mut guest) = world();
    let orb = ccws(&mut guest, &[(NOP, CC, 7, 0x9000), (NOP, SLI, 1, 0x9000)]);
    let suppressed = Orb { flags: orb.flags.with(OrbFlags::SUPPRESS_LENGTH), ..orb };
    assert_eq!(status(guest.execute(&mut world, &orb)), (0x408, ENDED, INCORRECT_LENGTH, 7));
    assert_eq!(status(guest.execute(&mut world, &suppressed)), (0x410, ENDED, 0, 1));
}

#[test]
fn record_that_ends_where_data_are_chained_has_a_wrong_length_whatever_the_flag_says() {
    let (mut world, mut guest) = world();
    for flags in [0, SLI] {
        let tail =
            [(READ, CD, 1000, 0x9000), (0, CD | flags, 5000, 0xa000), (0, flags, 100, 0xc000)];
        let expected = (TAIL + 16, ENDED, INCORRECT_LENGTH, 1904);
        assert_eq!(run(&mut world, &mut guest, &tail), expected, "{flags:#x}");
    }
    // The counts of a chain are more than 16 bits have.
    let tail = [(READ, CD, 60_000, 0x9000), (0, SLI, 60_000, 0x2_0000)];
    assert_eq!(run(&mut world, &mut guest, &tail), (TAIL + 8, ENDED, INCORRECT_LENGTH, 55_904));
}

#[test]
fn transfer_to_no_ccw_is_wrong_itself() {
    let (mut world, mut guest) = world();
    for target in [0x7001, 0x7fff_fff8] {
        let orb = ccws(&mut guest, &[(NOP, CC | SLI, 1, 0x9000), (0x08, 0, 0, target)]);
        assert_eq!(status(guest.execute(&mut world, &orb)), (0x410, 0, PROGRAM_CHECK, 0));
    }
}

#[test]
fn transfer_in_channel_goes_on_elsewhere() {
    let (mut world, mut guest) = world();
    // Backwards too, and from the middle of a chain of data.
    let chain = [
        (0x63, CC, 16, 0x1000),
        (0x47, CC, 16, 0x1010),
        (0x08, 0, 0, 0x430),
        (READ, CD, 1000, 0xb000),
        (0x08, 0, 0, 0x440),
        (0xff, 0xff, 0, 0),
        (READ, CC, 4096, 0x9000),
        (0x08, 0, 0, 0x418),
        (0, SLI, 4000, 0xc000),
    ];
    place_parameters(&mut guest, operation::READ_DATA, 4);
    let orb = ccws(&mut guest, &chain);
    assert_eq!(status(guest.execute(&mut world, &orb)), (0x448, ENDED, 0, 904));
    assert!(found(&mut guest, 0x9000, BLOCK_BYTES) == block(BLOCK, 0));
    let second = block(BLOCK + 1, 0);
    assert!(found(&mut guest, 0xb000, 1000) == second[..1000]);
    assert!(found(&mut guest, 0xc000, 3096) == second[1000..]);
    assert_untouched_but(&mut guest, &[(0x9000, BLOCK_BYTES), (0xb000, 1000), (0xc000, 3096)]);
    // What is wrong is found when the channel comes there: what is before has been read.
    for (index, wrong) in
        [(2, (0x08, CC, 0, 0x430)), (2, (0x08, 0, 1, 0x430)), (6, (0x08, 0, 0, 0x418))]
    {
        let mut chain = chain;
        chain[index] = wrong;
        let orb = ccws(&mut guest, &chain);
        let address = 0x400 + index as u32 * 8 + 8;
        assert_eq!(status(guest.execute(&mut world, &orb)), (address, 0, PROGRAM_CHECK, 0));
    }
}

#[test]
fn suspended_program_goes_on_where_it_stopped() {
    let (mut world, mut guest) = world();
    let tail = [
        (READ, CC, 4096, 0x9000),
        (SENSE_ID, CC_SLI | SUSPEND, 4, 0xb000),
        (SENSE_ID, SLI, 20, 0xc000),
    ];
    let mut orb = program(&mut guest, operation::READ_DATA, &tail);
    // A flag that the ORB does not allow.
    assert_eq!(status(guest.execute(&mut world, &orb)), (TAIL + 16, 0, PROGRAM_CHECK, 0));
    orb.flags = orb.flags.with(OrbFlags::SUSPEND);
    guest.client.storage()[AREA].fill(UNTOUCHED);
    guest.start(0, &orb);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Intermediate { subchannel: 0, parameter: 77 }));
    let scsw = guest.client.answer().scsw;
    // Behind the last command that was done.
    assert_eq!(status(scsw), (TAIL + 8, 0, 0, 0));
    let suspended = control::SUSPENDED | control::INTERMEDIATE | control::PENDING;
    assert_eq!(scsw.control & (control::ACTIVITIES | control::STATUS), suspended);
    guest.client.place().unwrap();
    assert!(found(&mut guest, 0x9000, BLOCK_BYTES) == block(BLOCK, 0));
    assert_untouched_but(&mut guest, &[(0x9000, BLOCK_BYTES)]);
    world.run();
    assert_eq!(guest.poll(), None, "until it is resumed");
    guest.client.request(Kind::Resume, 0, &mut guest.sender).unwrap();
    world.run();
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    guest.client.place().unwrap();
    let scsw = guest.client.answer().scsw;
    assert_eq!((scsw.address, scsw.device.0, scsw.subchannel.0), (TAIL + 24, ENDED, 0));
    assert_eq!(found(&mut guest, 0xb000, 5), [&ID[..], &[UNTOUCHED]].concat());
    assert_eq!(found(&mut guest, 0xc000, 4), ID);
}
