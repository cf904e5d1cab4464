//! Any bytes as a channel program end in a status, or go on until they are halted; and nothing else happens.

#[expect(dead_code, reason = "the other tests use more of it")]
mod world;

use channel::client::Event;
use channel::request::Kind;
use disk::ckd::check::check;
use disk::ckd::track::CONTENT_BYTES_MAX;
use disk::ckd::volume::{Access, Volume};
use disk::format::ccw::{Ccw, CcwFlags, CcwFormat};
use disk::format::orb::{ALL_PATHS, Orb, OrbFlags};
use disk::program::blocks::{Blocks, Mode, Verb, build};
use disk::program::tracks;
use proptest::prelude::*;

use world::{Guest, World, block};

/// Lets everybody work for some rounds. A program may go on for ever.
fn rounds(world: &mut World, count: usize) {
    for _ in 0..count {
        for number in 0..world.sides.0.len() {
            let Some((sender, receiver)) = &mut world.sides.0[number] else { continue };
            world.channel.poll_guest(number, sender, receiver, 1).unwrap();
        }
        world.unit.poll();
        world.channel.poll_units(&mut world.sides, 1).unwrap();
    }
}

/// Whether the program on subchannel 0 has ended, after a halt if need be.
fn ends(world: &mut World, guest: &mut Guest) -> bool {
    for halt in [false, true, true] {
        if halt {
            guest.client.request(Kind::Halt, 0, &mut guest.sender).unwrap();
        }
        // A search is a command for each record, and each waits for the one before.
        rounds(world, if halt { 20 } else { 80 });
        while let Some(event) = guest.poll() {
            match event {
                Event::Ended { .. } => {
                    guest.client.place().unwrap();
                    return true;
                }
                Event::Intermediate { .. } | Event::Refused { .. } => {}
                event => panic!("{event:?}"),
            }
        }
    }
    false
}

fn untouched(world: &mut World) {
    let mut reader = world.guest(0, 1, false, false);
    let orb = build(
        reader.client.storage(),
        0,
        0x1_0000,
        Mode::Transport,
        Verb::Read,
        Blocks { first_track: 0, first: 0, count: 24 },
    );
    assert!(reader.execute(world, &orb).is_good());
    for number in 0..24 {
        let at = 0x1_0000 + number as usize * 4096;
        assert!(reader.client.storage()[at..at + 4096] == block(number, 0));
    }
    // Whatever was written, every track is one.
    let bytes = world.disk.0.lock().unwrap().synced().to_vec();
    let simulated = disk::ckd::backing::Simulated::new(bytes);
    let volume = Volume::from_backing(Box::new(simulated), Access::Read).unwrap();
    let mut damaged = 0;
    check(
        &volume,
        |_| (),
        |fault| {
            damaged += u32::from(matches!(fault, disk::ckd::check::Fault::Track { .. }));
        },
    );
    assert_eq!(damaged, 0);
}

const COMMANDS: [u8; 54] = [
    0x15, 0x19, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0d, 0x0e, 0x12, 0x16, 0x1a, 0x1d, 0x1e, 0x27, 0x47,
    0x4b, 0x63, 0x64, 0x85, 0x86, 0x92, 0x94, 0x95, 0x9d, 0xa6, 0xb4, 0xde, 0xe4, 0xe7, 0xea, 0xfa,
    0x08, 0x07, 0x07, 0x0b, 0x1b, 0x13, 0x1f, 0x22, 0x23, 0x29, 0x31, 0x31, 0x39, 0x49, 0x51, 0x69,
    0x71, 0xa9, 0xb1, 0xb9, 0xd1, 0xf1,
];

/// Seeks: none, most of the time all of an address, and what else there is.
const SEEKS: [u8; 8] = [0, 0, 0x07, 0x07, 0x07, 0x0b, 0x1b, 0x13];
/// Searches, and none.
const SEARCHES: [u8; 14] =
    [0, 0x31, 0x31, 0x31, 0x31, 0x71, 0xb1, 0x51, 0x29, 0xe9, 0x49, 0x39, 0xb9, 0xf1];
/// What is done where a search has led to, and with how many bytes.
const DEEDS: [(u8, u16); 19] = [
    (0x05, 4096),
    (0x05, 100),
    (0x06, 4096),
    (0x86, 5000),
    (0x0d, 4096),
    (0x0e, 100),
    (0x12, 8),
    (0x92, 8),
    (0x15, 16),
    (0x16, 16),
    (0x19, 5),
    (0x1a, 5),
    (0x1d, 58),
    (0x1d, 100),
    (0x1e, 4104),
    (0x22, 1),
    (0x23, 1),
    (0x1f, 1),
    (0x03, 1),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_ccws_end(
        ccws in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u16..5000, 0_u32..0x300), 1..12),
        parameters in prop::collection::vec(0_u8..20, 0x200..0x201),
        flags: u32,
        format_1: bool,
    ) {
        let mut world = World::new(2, 6);
        // The second cylinder is this guest's, and the first is not.
        let mut guest = world.guest(1, 1, true, flags & 1 == 1);
        let storage = guest.client.storage();
        storage[0x100..0x300].copy_from_slice(&parameters);
        for (index, (command, bits, count, address)) in ccws.iter().enumerate() {
            let command = *command.get(&COMMANDS);
            let address = if command == 0x08 { address & 0x78 } else { *address };
            let bits = if bits & 3 == 0 { *bits } else { 0x60 };
            let at = index * 8;
            storage[at..at + 8].copy_from_slice(&match format_1 {
                true => [command, bits, (count >> 8) as u8, *count as u8, 0, 0, (address >> 8) as u8, address as u8],
                false => [command, 0, (address >> 8) as u8, address as u8, bits, 0, (count >> 8) as u8, *count as u8],
            });
        }
        let flags = OrbFlags(flags & 0x0fff_00c0 & !(OrbFlags::TRANSPORT.0 | OrbFlags::FORMAT_1.0));
        let flags = if format_1 { flags.with(OrbFlags::FORMAT_1) } else { flags };
        let orb = Orb { flags, paths: ALL_PATHS, ..Orb::default() };
        guest.start(0, &orb);
        prop_assert!(ends(&mut world, &mut guest));
        drop(guest);
        world.sides.0[0] = None;
        world.channel.detach(0);
        world.run();
        prop_assert_eq!(world.unit.pinned(0), 0);
        untouched(&mut world);
    }

    #[test]
    fn any_seeks_and_searches_end(
        groups in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0_u8..14, 0_u8..15),
            1..10,
        ),
        mask in prop::sample::select(&[None, Some(0), Some(0xc0), Some(0x40), Some(0xd0), Some(0xd8)]),
    ) {
        let mut world = World::new(2, 6);
        let mut guest = world.guest(1, 1, true, false);
        let storage = guest.client.storage();
        let mut program = Vec::new();
        match mask {
            // Heads 2 to 7; everything may be written.
            None => program.push((0x63, 16, 0x800)),
            Some(mask) => {
                storage[0x810] = mask;
                program.push((0x1f, 1, 0x810));
            }
        }
        storage[0x800..0x810].copy_from_slice(&[0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 7]);
        // A seek, a search, and something that depends on where they have led to.
        for (number, (seek, search, deed, head, record)) in groups.iter().enumerate() {
            // Most of them are on the same few tracks.
            let head = if *head < 10 { 2 + head % 3 } else { *head };
            let address = 0x400 + number as u32 * 16;
            let parameters = [0, 0, 0, 0, 0, head, *record, 0];
            storage[address as usize..][..8].copy_from_slice(&parameters);
            // The track is the one of an earlier seek, if there is none here.
            match seek.get(&SEEKS) {
                0 if number > 0 => {}
                0 => program.push((0x07, 6, address)),
                code => program.push((*code, 6, address)),
            }
            let search = *search.get(&SEARCHES);
            if search != 0 {
                program.push((search, 5, address + 2));
                program.push((0x08, 0, (program.len() as u32 - 1) * 8));
            }
            // What is written begins with a count field, of record 3 with 50 bytes.
            match deed.get(&DEEDS) {
                (code, 1) => program.push((*code, 1, address)),
                // Record 0 and the home address say which track they are on.
                (0x15, bytes) => {
                    let at = 0x1100 + number * 16;
                    storage[at..at + 8].copy_from_slice(&[0, 0, 0, head, 0, 0, 0, 8]);
                    program.push((0x15, *bytes, at as u32));
                }
                (0x19, bytes) => {
                    let at = 0x1300 + number * 16;
                    storage[at..at + 5].copy_from_slice(&[0, 0, 0, 0, head]);
                    program.push((0x19, *bytes, at as u32));
                }
                (code, bytes) => program.push((*code, *bytes, 0x1000)),
            }
        }
        storage[0x1000..0x1008].copy_from_slice(&[0, 0, 0, 3, 3, 0, 0, 50]);
        let last = program.len() - 1;
        for (index, (code, count, address)) in program.into_iter().enumerate() {
            // Of a transfer everything but the address is zero.
            let flags = match (code, index == last) {
                (0x08, _) => 0,
                (_, is_last) => if is_last { 0x20 } else { 0x60 },
            };
            let ccw = Ccw { command: code, flags: CcwFlags(flags), count, address };
            storage[index * 8..index * 8 + 8].copy_from_slice(&ccw.emit(CcwFormat::One));
        }
        let orb = Orb { flags: OrbFlags::FORMAT_1, paths: ALL_PATHS, ..Orb::default() };
        guest.start(0, &orb);
        prop_assert!(ends(&mut world, &mut guest));
        drop(guest);
        world.sides.0[0] = None;
        world.channel.detach(0);
        world.run();
        prop_assert_eq!(world.unit.pinned(0), 0);
        untouched(&mut world);
    }

    #[test]
    fn any_whole_tracks_end(
        lengths in prop::collection::vec((0_u8..20, 0_u16..9000), 0..10),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        parameters in prop::collection::vec((0_usize..66, any::<u8>()), 0..3),
        missing in prop::sample::select(&[0_usize, 0, 1, 8, 200]),
        code in prop::sample::select(&[0x95_u8, 0x95, 0x95, 0x15, 0x19, 0x1d, 0x9d, 0xa5, 0xde]),
        (transport, write) in any::<(bool, bool)>(),
    ) {
        let mut world = World::new(2, 6);
        let mut guest = world.guest(1, 1, true, false);
        // A track that is one, unless it is changed somewhere.
        let mut bytes = vec![0, 0, 0, 7, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        for (record, (key_bytes, data_bytes)) in (1..).zip(&lengths) {
            let [high, low] = data_bytes.to_be_bytes();
            bytes.extend([0, 0, 0, 7, record, *key_bytes, high, low]);
            bytes.resize(bytes.len() + usize::from(*key_bytes) + usize::from(*data_bytes), record);
        }
        bytes.extend([0xff; 8]);
        for (index, value) in changes {
            // Most of what is interesting is in the count fields at the start.
            let at = index.index(bytes.len().min(40));
            bytes[at] = value;
        }
        let all = bytes.len().min(CONTENT_BYTES_MAX).saturating_sub(missing).max(1);
        let storage = guest.client.storage();
        storage[0x1_0000..0x1_0000 + all].copy_from_slice(&bytes[..all]);
        let mode = if transport { Mode::Transport } else { Mode::Command };
        let verb = if write { Verb::Write } else { Verb::Read };
        let orb = tracks::build(storage, 0, 0x1_0000, mode, verb, 7, all);
        // Where the parameters lie, and the code of the command that moves the data.
        let program = orb.program as usize;
        let (prefix, command) = if transport {
            (program + 64 + 24, program + 64 + 24 + 60)
        } else {
            (0, program + 8)
        };
        for (at, value) in parameters {
            storage[prefix + at] = value;
        }
        if write {
            storage[command] = code;
        }
        guest.start(0, &orb);
        prop_assert!(ends(&mut world, &mut guest));
        drop(guest);
        world.sides.0[0] = None;
        world.channel.detach(0);
        world.run();
        prop_assert_eq!(world.unit.pinned(0), 0);
        untouched(&mut world);
    }

    #[test]
    fn any_transport_program_ends(
        changes in prop::collection::vec((0_usize..300, any::<u8>()), 0..6),
        write: bool,
        count in 1_u32..20,
    ) {
        let mut world = World::new(2, 6);
        let mut guest = world.guest(1, 1, true, write);
        let verb = if write { Verb::Write } else { Verb::Read };
        let blocks = Blocks { first_track: 0, first: 3, count };
        let orb = build(guest.client.storage(), 0, 0x1_0000, Mode::Transport, verb, blocks);
        for (at, value) in changes {
            guest.client.storage()[orb.program as usize + at] = value;
        }
        guest.start(0, &orb);
        prop_assert!(ends(&mut world, &mut guest));
        drop(guest);
        world.sides.0[0] = None;
        world.channel.detach(0);
        world.run();
        prop_assert_eq!(world.unit.pinned(0), 0);
        untouched(&mut world);
    }
}
