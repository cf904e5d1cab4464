//! Reserved devices: programs that find their device reserved wait in order, send nothing meanwhile, and begin when it is free.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use channel::exchange::Kind;
use channel::request;
use disk::format::eckd::command;
use disk::format::orb::Orb;
use disk::program::blocks::{Mode, Verb};
use disk::unit::usage::VolumeUse;

use world::programs::{ended, start};
use world::{Guest, MODES, World, ccws, round, wish};

/// Channel paths of a world: guests use them in turn.
const LINKS: usize = 4;

/// Units of all kinds that have crossed so far.
fn units(world: &World) -> u64 {
    let of = |kind| world.channel.sent_of(kind) + world.unit.sent_of(kind);
    Kind::ALL.into_iter().map(of).sum()
}

fn sent(world: &World, kind: Kind) -> u64 {
    world.channel.sent_of(kind) + world.unit.sent_of(kind)
}

fn order(guest: &mut Guest, code: u8) -> Orb {
    ccws(guest, &[(code, 0, 32, 0x2000)])
}

fn reserve(world: &mut World, guest: &mut Guest) {
    let orb = order(guest, command::RESERVE);
    assert!(guest.execute(world, &orb).is_good());
}

fn release(world: &mut World, guest: &mut Guest) {
    let orb = order(guest, command::RELEASE);
    assert!(guest.execute(world, &orb).is_good());
}

/// The channel takes what a guest has sent.
fn poll_guest(world: &mut World, number: usize) {
    let (sender, receiver) = world.sides.0[number].as_mut().unwrap();
    world.channel.poll_guest(number, sender, receiver, 0).unwrap();
}

/// A guest dies.
fn kill(world: &mut World, guest: &Guest) {
    world.sides.0[guest.number] = None;
    world.channel.detach(guest.number);
}

fn guests(world: &mut World) -> [Guest; 4] {
    std::array::from_fn(|_| world.guest(0, 3, true, false))
}

#[test]
fn nothing_crosses_while_programs_wait_for_their_device() {
    let mut world = World::new(3, 100);
    let [mut owner, mut guest, ..] = guests(&mut world);
    reserve(&mut world, &mut owner);
    // Output that goes with its command, output that is asked for, and output of each command.
    let programs = [(Mode::Transport, 12), (Mode::Transport, 40), (Mode::Command, 30)];
    for (subchannel, (mode, count)) in (0..).zip(programs) {
        start(&mut guest, subchannel, mode, Verb::Write, (5, count), 7);
    }
    world.run();
    let (before, output) = (units(&world), world.channel.counters().output_bytes);
    for _ in 0..100 {
        world.run();
    }
    assert_eq!((units(&world), world.channel.counters().output_bytes), (before, output));
    assert_eq!((ended(&mut guest), world.unit.waiting_for_devices(0)), (None, 3));
    release(&mut world, &mut owner);
    world.run();
    for _ in programs {
        assert!(ended(&mut guest).unwrap().1.is_good());
    }
    assert_eq!((world.unit.waiting_for_devices(0), world.channel.is_busy()), (0, false));
    // Each has begun twice.
    assert_eq!(world.channel.counters().repeats, 3);
    assert_eq!(sent(&world, Kind::TransportCommand), 4);
}

#[test]
fn program_that_is_halted_before_anything_of_it_was_sent_ends() {
    for kind in [request::Kind::Halt, request::Kind::Clear] {
        let mut world = World::new(6, 100);
        let [mut owner, mut guest, ..] = guests(&mut world);
        // Those that use the same channel path, and another device.
        let mut others: Vec<Guest> =
            (0..20).map(|_| world.guest(3, 3, true, false)).skip(1).step_by(LINKS).collect();
        reserve(&mut world, &mut owner);
        start(&mut guest, 0, Mode::Command, Verb::Write, (5, 30), 7);
        world.run();
        assert_eq!(world.unit.waiting_for_devices(0), 1);
        // The control unit says that the device is free, and until the channel hears that, others fill the path.
        let orb = order(&mut owner, command::RELEASE);
        owner.start(0, &orb);
        poll_guest(&mut world, owner.number);
        world.unit.poll();
        let is_behind = |world: &World| world.channel.links().any(|(link, _)| link.is_behind());
        for other in &mut others {
            for subchannel in 0..8 {
                start(other, subchannel, Mode::Command, Verb::Write, (5, 30), 7);
            }
            poll_guest(&mut world, other.number);
        }
        assert!(is_behind(&world), "the path takes all");
        world.channel.poll_units(&mut world.sides, 0).unwrap();
        assert_eq!(world.channel.counters().repeats, 1, "the program has begun");
        while is_behind(&world) {
            world.unit.poll();
            world.channel.poll_units(&mut world.sides, 0).unwrap();
        }
        guest.client.request(kind, 0, &mut guest.sender).unwrap();
        for _ in 0..100 {
            world.run();
        }
        assert!(ended(&mut guest).is_some(), "{kind:?}: it has not ended");
        // Nothing is kept for it.
        assert_eq!(world.unit.waiting_for_devices(0), 0);
        reserve(&mut world, &mut owner);
    }
}

#[test]
fn output_crosses_twice_however_often_others_reserve_and_release() {
    let mut world = World::new(3, 100);
    let [mut owner, mut guest, ..] = guests(&mut world);
    for cycle in 1..=20 {
        reserve(&mut world, &mut owner);
        start(&mut guest, 0, Mode::Transport, Verb::Write, (5, 40), cycle);
        world.run();
        // The release is followed at once by the next reservation, which waits until the write is over.
        let orb = order(&mut owner, command::RELEASE);
        owner.start(0, &orb);
        round(&mut world);
        let orb = order(&mut owner, command::RESERVE);
        owner.start(1, &orb);
        for _ in 0..20 {
            round(&mut world);
        }
        assert!(ended(&mut guest).unwrap().1.is_good(), "{cycle}");
        assert_eq!(
            (ended(&mut owner).map(|one| one.0), ended(&mut owner).map(|one| one.0)),
            (Some(0), Some(1))
        );
        release(&mut world, &mut owner);
        assert!(sent(&world, Kind::TransportCommand) <= 2 * u64::from(cycle));
    }
}

#[test]
fn reservations_are_given_in_the_order_in_which_they_were_asked_for() {
    let mut world = World::new(3, 100);
    let mut guests = guests(&mut world);
    reserve(&mut world, &mut guests[0]);
    for next in [2, 3, 1] {
        let orb = order(&mut guests[next], command::RESERVE);
        guests[next].start(0, &orb);
        world.run();
    }
    let mut owner = 0;
    for next in [2, 3, 1] {
        release(&mut world, &mut guests[owner]);
        world.run();
        for (number, guest) in guests.iter_mut().enumerate() {
            assert_eq!(ended(guest).is_some(), number == next, "{number}");
        }
        owner = next;
    }
    release(&mut world, &mut guests[1]);
    assert_eq!(world.unit.waiting_for_devices(0), 0);
}

#[test]
fn device_is_kept_for_the_program_that_was_told_and_no_longer() {
    for mode in MODES {
        let mut world = World::new(3, 100);
        let [mut owner, mut next, mut newcomer, mut last] = guests(&mut world);
        reserve(&mut world, &mut owner);
        let orb = order(&mut next, command::RESERVE);
        next.start(0, &orb);
        world.run();
        let orb = order(&mut last, command::RESERVE);
        last.start(0, &orb);
        world.run();
        // The owner dies. What the control unit sends to the channel stays on its way.
        kill(&mut world, &owner);
        world.unit.poll();
        // A newcomer does not come between, and neither does its output a second time.
        start(&mut newcomer, 0, mode, Verb::Write, (5, 10), 7);
        let (sender, receiver) = world.sides.0[newcomer.number].as_mut().unwrap();
        world.channel.poll_guest(newcomer.number, sender, receiver, 0).unwrap();
        world.unit.poll();
        assert_eq!(world.unit.waiting_for_devices(0), 3, "{mode:?}");
        world.run();
        assert_eq!((ended(&mut next).is_some(), ended(&mut newcomer)), (true, None), "{mode:?}");
        // The next owner dies too, and with it the program that was told dies when it has not come.
        kill(&mut world, &next);
        world.unit.poll();
        kill(&mut world, &last);
        world.run();
        assert!(ended(&mut newcomer).unwrap().1.is_good(), "{mode:?}");
        assert_eq!(world.unit.waiting_for_devices(0), 0);
    }
}

#[test]
fn programs_that_are_ended_or_whose_guest_dies_do_not_wait() {
    for kind in [request::Kind::Halt, request::Kind::Clear, request::Kind::Cancel] {
        let mut world = World::new(3, 100);
        let [mut owner, mut guest, mut other, _] = guests(&mut world);
        reserve(&mut world, &mut owner);
        for subchannel in 0..4 {
            start(
                &mut guest,
                subchannel,
                MODES[usize::from(subchannel % 2)],
                Verb::Read,
                (0, 3),
                0,
            );
            start(&mut other, subchannel, Mode::Transport, Verb::Write, (0, 3), 9);
        }
        world.run();
        assert_eq!(world.unit.waiting_for_devices(0), 8);
        for subchannel in 0..4 {
            guest.client.request(kind, subchannel, &mut guest.sender).unwrap();
        }
        world.run();
        assert_eq!(world.unit.waiting_for_devices(0), 4, "{kind:?}");
        assert_eq!(std::iter::from_fn(|| ended(&mut guest)).count(), 4);
        kill(&mut world, &other);
        world.run();
        assert_eq!(world.unit.waiting_for_devices(0), 0);
        // One that is told in the same moment in which it is ended keeps the device from nobody.
        start(&mut guest, 0, Mode::Transport, Verb::Read, (0, 3), 0);
        world.run();
        let orb = order(&mut owner, command::RELEASE);
        owner.start(0, &orb);
        let (sender, receiver) = world.sides.0[owner.number].as_mut().unwrap();
        world.channel.poll_guest(owner.number, sender, receiver, 0).unwrap();
        world.unit.poll();
        guest.client.request(kind, 0, &mut guest.sender).unwrap();
        let (sender, receiver) = world.sides.0[guest.number].as_mut().unwrap();
        world.channel.poll_guest(guest.number, sender, receiver, 0).unwrap();
        world.run();
        assert!(ended(&mut guest).is_some() && ended(&mut owner).is_some());
        assert_eq!(world.unit.waiting_for_devices(0), 0, "{kind:?}");
        reserve(&mut world, &mut owner);
    }
}

#[test]
fn program_that_has_become_wrong_while_it_waited_keeps_the_device_from_nobody() {
    let mut world = World::new(3, 100);
    let [mut owner, mut guest, mut other, _] = guests(&mut world);
    reserve(&mut world, &mut owner);
    for (subchannel, mode) in (0..).zip(MODES) {
        start(&mut guest, subchannel, mode, Verb::Read, (0, 3), 0);
    }
    world.run();
    // The guest overwrites its programs.
    guest.client.storage()[..2 << 20].fill(0xff);
    release(&mut world, &mut owner);
    world.run();
    for _ in MODES {
        assert!(!ended(&mut guest).unwrap().1.is_good());
    }
    assert_eq!(world.unit.waiting_for_devices(0), 0);
    reserve(&mut world, &mut other);
}

#[test]
fn one_poll_looks_at_a_bounded_number_of_programs_that_wait() {
    const SUBCHANNELS: u16 = 128;
    let mut world = World::new(3, 100);
    let mut owner = world.guest(0, 3, true, false);
    reserve(&mut world, &mut owner);
    let mut guests: Vec<Guest> = Vec::new();
    for number in 1..=8 {
        world.sides.0.push(None);
        let subchannels = SUBCHANNELS as _;
        let wish = VolumeUse { subchannels, result_bytes: 1 << 16, ..wish(0, 3, true) };
        let mut guest = world.guest_at(number, wish);
        for subchannel in 0..SUBCHANNELS {
            let orb = order(&mut guest, command::SENSE_ID);
            guest.start(subchannel, &orb);
            world.run();
        }
        guests.push(guest);
    }
    let waiting = world.unit.waiting_for_devices(0);
    assert_eq!(waiting, 8 * usize::from(SUBCHANNELS));
    let orb = order(&mut owner, command::SENSE_ID);
    owner.start(0, &orb);
    let mut most = 0;
    for _ in 0..64 {
        let before = world.unit.counters().waiters_visited;
        round(&mut world);
        most = most.max(world.unit.counters().waiters_visited - before);
    }
    assert!(most > 0 && most < 1200, "{most} of {waiting} programs");
    assert!(ended(&mut owner).is_some());
    release(&mut world, &mut owner);
    world.run();
    for guest in &mut guests {
        assert_eq!(std::iter::from_fn(|| ended(guest)).count(), usize::from(SUBCHANNELS));
    }
    assert_eq!(world.unit.waiting_for_devices(0), 0);
}
