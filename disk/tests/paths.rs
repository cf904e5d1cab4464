//! Channel paths, and the ORB's path mask, which says over which of them a program may run.

#[expect(dead_code, reason = "the other tests use more of it")]
mod world;

use channel::exchange::{Kind, pair};
use channel::{Channel, PATHS_MAX};
use disk::format::orb::{ALL_PATHS, Orb};
use disk::format::scsw::{DeviceStatus, Scsw, SubchannelStatus, control};
use disk::program::blocks::{Verb, build};
use fabric::path::Terms;

use world::{AT, DATA, Guest, MODES, World, blocks, read_after};

/// Information units that have crossed between channel and control unit, in both directions.
fn units(world: &World) -> u64 {
    let sent = |kind| world.channel.sent_of(kind) + world.unit.sent_of(kind);
    Kind::ALL.into_iter().map(sent).sum()
}

fn paths(guest: &Guest) -> u8 {
    guest.client.attached().unwrap().paths
}

#[test]
fn guest_learns_the_path_that_its_device_has() {
    let mut world = World::new(2, 100);
    let guests: Vec<_> = (0..6).map(|_| world.guest(0, 2, false, false)).collect();
    let found: Vec<_> = guests.iter().map(paths).collect();
    // The world has four channel paths.
    assert_eq!(found, [0x80, 0x40, 0x20, 0x10, 0x80, 0x40]);
}

#[test]
fn program_whose_mask_names_other_paths_is_not_run() {
    let mut world = World::new(2, 100);
    let mut guests: Vec<_> = (0..4).map(|_| world.guest(0, 2, true, false)).collect();
    for guest in &mut guests {
        let own = paths(guest);
        for mode in MODES {
            for verb in [Verb::Read, Verb::Write] {
                let orb = build(guest.client.storage(), AT, DATA, mode, verb, blocks(0, 2));
                let before = units(&world);
                for paths in [0, 0x0f, own.rotate_left(1), !own] {
                    let scsw = guest.execute(&mut world, &Orb { paths, ..orb });
                    assert!(scsw.is_not_operational(), "{mode:?} {paths:02x}");
                    assert_eq!(scsw.control, control::START | 0x0011, "{mode:?} {paths:02x}");
                    let Scsw { device, subchannel, .. } = scsw;
                    assert_eq!((device, subchannel), (DeviceStatus(0), SubchannelStatus(0)));
                    let answer = guest.client.answer();
                    assert!(answer.sources.is_empty() && answer.sense.is_none());
                }
                assert_eq!(units(&world), before, "{mode:?} {verb:?}");
            }
            read_after(&mut world, guest);
        }
    }
}

#[test]
fn program_whose_mask_names_its_path_is_run() {
    let mut world = World::new(2, 100);
    let mut guests: Vec<_> = (0..4).map(|_| world.guest(0, 2, true, false)).collect();
    for guest in &mut guests {
        let own = paths(guest);
        for mode in MODES {
            let orb = build(guest.client.storage(), AT, DATA, mode, Verb::Read, blocks(0, 2));
            assert_eq!(orb.paths, ALL_PATHS);
            for paths in [own, own | 0x01, 0xf0, ALL_PATHS] {
                let scsw = guest.execute(&mut world, &Orb { paths, ..orb });
                assert!(scsw.is_good() && scsw.conditions & 0x0300 == 0, "{mode:?} {paths:02x}");
            }
        }
    }
}

#[test]
fn eighth_path_is_the_rightmost_bit() {
    let mut world = World::new(2, 100);
    for _ in 4..PATHS_MAX {
        let (ours, theirs) = pair(Terms::DEFAULT).unwrap();
        world.channel.add_link(ours);
        world.unit.add_link(theirs);
    }
    let mut guests: Vec<_> = (0..8).map(|_| world.guest(0, 2, false, true)).collect();
    assert_eq!(paths(&guests[7]), 0x01);
    read_after(&mut world, &mut guests[7]);
}

#[test]
#[should_panic(expected = "a channel has at most 8 channel paths")]
fn ninth_path_is_refused() {
    let mut channel = Channel::new();
    for _ in 0..9 {
        let (ours, _) = pair(Terms::DEFAULT).unwrap();
        channel.add_link(ours);
    }
}
