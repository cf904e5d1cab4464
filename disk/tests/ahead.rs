//! Results that a guest has not looked at yet: they are taken from the path ahead, and nothing of that can be seen.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use channel::client::{ClientError, Event};
use channel::request::Kind;
use disk::ckd::model::BLOCK_BYTES;
use disk::program::blocks::{Mode, Verb, build};
use fabric::path::NO_DATA;

use world::{Guest, World, block, blocks};

/// Programs of a guest that run together: as many as it has subchannels.
const DEPTH: u16 = 8;

/// Where the block is that a subchannel reads: each is on another track.
fn first(subchannel: u16) -> u64 {
    u64::from(subchannel) * 13
}

fn start(guest: &mut Guest, subchannel: u16, mode: Mode) {
    let at = u32::from(subchannel) * 4096;
    let data = 0x10_0000 + at;
    let wanted = blocks(first(subchannel), 1);
    let orb = build(guest.client.storage(), at, data, mode, Verb::Read, wanted);
    guest.start(subchannel, &orb);
}

/// What the program that ended last has read is the block of its subchannel.
fn verify(guest: &Guest, subchannel: u16, is_dedicated: bool) {
    let mut found = vec![0; BLOCK_BYTES];
    assert_eq!(guest.client.copy(&mut found).unwrap(), BLOCK_BYTES);
    assert_eq!(found, block(first(subchannel), 0), "subchannel {subchannel}");
    let mut places = 0;
    let in_place = guest.client.in_place(|view, at, bytes| {
        let mut found = vec![0; bytes];
        view.read(at, &mut found).unwrap();
        assert_eq!(found, block(first(subchannel), 0), "subchannel {subchannel}");
        places += 1;
    });
    in_place.unwrap();
    assert_eq!(places, 1, "dedicated: {is_dedicated}");
}

#[test]
fn results_that_wait_come_in_order_each_with_what_it_has_read() {
    for (is_dedicated, mode) in [(true, Mode::Transport), (false, Mode::Command)] {
        for look_bytes in [0, 1, 64, 4096, 100_000] {
            let mut world = World::new(3, 100);
            let mut guest = world.guest(0, 3, false, is_dedicated);
            guest.client.set_look_bytes(look_bytes);
            (0..DEPTH).for_each(|subchannel| start(&mut guest, subchannel, mode));
            world.run();
            // Each starts another one, so that the ring goes round.
            for round in 0..5 * DEPTH {
                let subchannel = round % DEPTH;
                let event = guest.poll();
                assert_eq!(event, Some(Event::Ended { subchannel, parameter: 0 }));
                verify(&guest, subchannel, is_dedicated);
                start(&mut guest, subchannel, mode);
                world.run();
            }
        }
    }
}

#[test]
fn only_what_the_guest_has_had_is_done_with() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, false, true);
    (0..DEPTH).for_each(|subchannel| start(&mut guest, subchannel, Mode::Transport));
    world.run();
    assert_eq!(world.unit.pinned(0), usize::from(DEPTH));
    for subchannel in 0..DEPTH {
        assert!(matches!(guest.poll(), Some(Event::Ended { .. })));
        verify(&guest, subchannel, true);
        guest.client.consume(&mut guest.sender).unwrap();
        world.run();
        assert_eq!(world.unit.pinned(0), usize::from(DEPTH - 1 - subchannel));
    }
    assert_eq!(guest.poll(), None);
}

#[test]
fn answer_is_that_of_the_last_result_whatever_else_comes() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, false, true);
    // So that the ring has gone round.
    for subchannel in (0..DEPTH).chain(0..DEPTH) {
        start(&mut guest, subchannel, Mode::Transport);
        world.run();
        assert!(matches!(guest.poll(), Some(Event::Ended { .. })));
    }
    start(&mut guest, 3, Mode::Transport);
    world.run();
    for _ in 0..12 {
        guest.client.request(Kind::Halt, 5, &mut guest.sender).unwrap();
    }
    world.run();
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 3, parameter: 0 }));
    for _ in 0..12 {
        verify(&guest, 3, true);
        assert_eq!(guest.poll(), Some(Event::Refused { subchannel: 5, code: 1 }));
    }
    verify(&guest, 3, true);
    assert_eq!(guest.poll(), None);
}

#[test]
fn results_before_the_end_of_a_path_are_handed_out() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, false, true);
    (0..DEPTH).for_each(|subchannel| start(&mut guest, subchannel, Mode::Transport));
    world.run();
    let (mut sender, _) = world.sides.0[0].take().unwrap();
    sender.sever(NO_DATA);
    for subchannel in 0..DEPTH {
        assert_eq!(guest.poll(), Some(Event::Ended { subchannel, parameter: 0 }));
        verify(&guest, subchannel, true);
    }
    for _ in 0..2 {
        let error = guest.client.poll(&mut guest.receiver).unwrap_err();
        assert!(matches!(error, ClientError::Severed(_)), "{error}");
    }
}

#[test]
fn results_before_what_is_none_are_handed_out() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, false, true);
    (0..3).for_each(|subchannel| start(&mut guest, subchannel, Mode::Transport));
    world.run();
    let (sender, _) = world.sides.0[0].as_mut().unwrap();
    sender.send(&[99; 16], &[]).unwrap();
    sender.send(&[99; 16], &[]).unwrap();
    for subchannel in 0..3 {
        assert_eq!(guest.poll(), Some(Event::Ended { subchannel, parameter: 0 }));
    }
    for _ in 0..3 {
        assert_eq!(guest.client.poll(&mut guest.receiver), Err(ClientError::Rules));
    }
}
