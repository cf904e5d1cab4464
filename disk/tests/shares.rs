//! What one guest may take of what others need: the cache, and the work of a pass.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use channel::client::Event;
use channel::request::{Head, Kind};
use disk::format::eckd::{Cchh, Extent, Locate, operation};
use disk::format::idaw::Midaw;
use disk::format::orb::{Orb, OrbFlags};
use disk::format::scsw::SubchannelStatus;
use disk::format::tcw::{Stream, TCW_BYTES, Tcw};
use disk::program::blocks::{Mode, Verb, build};

use world::{AT, CC, CC_SLI, DATA, Guest, World, blocks, ccws, read_after, round};

/// A chain without end that has read a record of each of so many tracks before.
fn hoarding_chain(guest: &mut Guest, tracks: u16) -> Orb {
    let address = |track: u16| Cchh { cylinder: u32::from(track / 15), head: (track % 15) as u8 };
    let extent = Extent { last: address(tracks), ..Extent::default() };
    guest.client.storage()[0x8000..0x8010].copy_from_slice(&extent.emit());
    let mut program = vec![(0x63, CC, 16, 0x8000)];
    for track in 0..tracks {
        let locate = Locate {
            operation: operation::READ_DATA,
            count: 1,
            seek: address(track),
            search: address(track),
            record: 1,
            ..Locate::default()
        };
        let at = 0x8010 + usize::from(track) * 16;
        guest.client.storage()[at..at + 16].copy_from_slice(&locate.emit()[..16]);
        program.extend([(0x47, CC, 16, at as u32), (0x06, CC_SLI, 1, 0x5000)]);
    }
    let loop_at = 0x400 + program.len() as u32 * 8;
    program.extend([(0x03, CC_SLI, 1, 0), (0x08, 0, 0, loop_at)]);
    ccws(guest, &program)
}

#[test]
fn chain_without_end_does_not_keep_the_cache_from_others() {
    let mut world = World::new(4, 40);
    let (mut guest, mut other) = (world.guest(0, 4, false, false), world.guest(0, 4, true, false));
    for subchannel in 0..8 {
        let orb = hoarding_chain(&mut guest, 18);
        guest.start(subchannel, &orb);
        for _ in 0..100 {
            round(&mut world);
        }
        // Each of them keeps the track that it has read last.
        assert!(world.unit.pinned(0) <= 1 + usize::from(subchannel), "{}", world.unit.pinned(0));
    }
    // What is read and written elsewhere needs slots too.
    for first in [0, 100, 300, 600] {
        let storage = other.client.storage();
        let orb = build(storage, AT, DATA, Mode::Transport, Verb::Read, blocks(first, 24));
        other.start(0, &orb);
        for _ in 0..20 {
            round(&mut world);
        }
        assert!(matches!(other.poll(), Some(Event::Ended { subchannel: 0, .. })), "{first}");
        assert!(other.client.answer().scsw.is_good());
    }
    for subchannel in 0..8 {
        guest.client.request(Kind::Halt, subchannel, &mut guest.sender).unwrap();
    }
    world.run();
    assert_eq!(world.unit.pinned(0), 0);
    read_after(&mut world, &mut other);
}

#[test]
fn guest_that_says_nothing_of_what_it_has_done_with_is_ended() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, false, true);
    let orb = build(guest.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(0, 1));
    let mut ended = 0;
    while world.sides.0[0].is_some() {
        let head = Head { token: 0, ..Head::new(Kind::Start, 0) };
        let sent = guest.sender.send(&head.emit(), &orb.emit()[..12]);
        world.run();
        if sent.is_err() || world.sides.0[0].is_none() {
            break;
        }
        assert!(matches!(guest.poll(), Some(Event::Ended { .. })));
        ended += 1;
        assert!(ended < 5000, "a guest that keeps more and more");
    }
    assert!(ended > 1000, "a guest may be behind: {ended}");
    assert_eq!(world.unit.pinned(0), 0);
}

#[test]
fn guest_that_has_done_with_what_it_never_got_is_ended() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, false, true);
    read_after(&mut world, &mut guest);
    let head = Head { token: 9, ..Head::new(Kind::Consumed, 0) };
    guest.sender.send(&head.emit(), &[]).unwrap();
    world.run();
    assert!(world.sides.0[0].is_none());
}

#[test]
fn wrong_program_does_not_swallow_what_a_guest_has_done_with() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, false, true);
    read_after(&mut world, &mut guest);
    assert_eq!(world.unit.pinned(0), 1);
    let storage = guest.client.storage();
    let orb = build(storage, AT, DATA, Mode::Transport, Verb::Write, blocks(0, 1));
    let at = orb.program as usize;
    let bytes = storage[at..at + TCW_BYTES].try_into().unwrap();
    let mut tcw = Tcw::parse(&bytes).unwrap();
    // A list that is not in the storage.
    let output = Stream { address: 0x7fff_0000, count: 4096, is_indirect: true };
    tcw.output = Some(output);
    storage[at..at + TCW_BYTES].copy_from_slice(&tcw.emit());
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!(scsw.subchannel, SubchannelStatus::PROGRAM_CHECK);
    world.run();
    assert_eq!(world.unit.pinned(0), 0);
}

#[test]
fn second_storage_ends_a_guest() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, false, false);
    let head = Head { values: [7, 0], ..Head::new(Kind::Storage, 0) };
    guest.sender.send(&head.emit(), &[]).unwrap();
    world.run();
    assert!(world.sides.0[0].is_none());
}

#[test]
fn chains_that_fill_every_pass_do_not_keep_a_channel_path_from_others() {
    let mut world = World::new(2, 100);
    // The first and the last use the same channel path.
    let mut guests: Vec<Guest> = (0..5).map(|_| world.guest(0, 2, false, false)).collect();
    let words = 16384_u16;
    let (list, midaw_bytes) = (0x1_0000_usize, 16);
    let storage = guests[0].client.storage();
    for index in 0..words {
        let is_last = index + 1 == words;
        let midaw = Midaw {
            is_last,
            skip: false,
            interrupt: false,
            count: 1,
            address: 0x9000 + u64::from(index),
        };
        let at = list + usize::from(index) * midaw_bytes;
        storage[at..at + midaw_bytes].copy_from_slice(&midaw.emit());
    }
    let chain = [(0x03, CC_SLI | 0x01, words, list as u32), (0x08, 0, 0, 0x400)];
    let orb = ccws(&mut guests[0], &chain);
    let orb = Orb { flags: orb.flags.with(OrbFlags::MIDAW), ..orb };
    for subchannel in 0..8 {
        guests[0].start(subchannel, &orb);
        round(&mut world);
    }
    let mut other = guests.remove(4);
    for mode in world::MODES {
        let storage = other.client.storage();
        let orb = build(storage, AT, DATA, mode, Verb::Read, blocks(100, 4));
        other.start(0, &orb);
        for _ in 0..20 {
            round(&mut world);
        }
        assert!(matches!(other.poll(), Some(Event::Ended { subchannel: 0, .. })), "{mode:?}");
        assert!(other.client.answer().scsw.is_good());
    }
    for subchannel in 0..8 {
        let Guest { client, sender, .. } = &mut guests[0];
        client.request(Kind::Halt, subchannel, sender).unwrap();
    }
    for _ in 0..20 {
        round(&mut world);
    }
    let ended = std::iter::from_fn(|| guests[0].poll()).count();
    assert_eq!(ended, 8);
}
