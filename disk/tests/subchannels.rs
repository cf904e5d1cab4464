//! What a guest does with a subchannel besides starting programs: cancel and interrogate, modify; and what a device reports unasked.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use channel::client::Event;
use channel::request::{Kind, Modification};
use disk::format::irb::{IRB_BYTES, Irb};
use disk::format::orb::{Orb, OrbFlags};
use disk::format::scsw::{DeviceStatus, SubchannelStatus, TSB_STORED, control};
use disk::format::tccb::{self, Dcw, INTERROGATE, Service};
use disk::format::tcw::{TCW_BYTES, Tcw};
use disk::format::tsb::{
    DeviceState, Interrogation, OperationState, TSB_BYTES, TransportStatus, Tsb,
};
use disk::program::blocks::{Mode, Verb, build};

use world::reads::read_directly;
use world::{AT, CC_SLI, DATA, Guest, SLI, World, blocks, ccws, read_after, round};

/// Where the interrogating program is.
const ASKING: u32 = 0x8000;

/// A program of transport mode that reads block 0, and names a program that interrogates it.
fn interrogated(guest: &mut Guest, command: u8) -> Orb {
    let storage = guest.client.storage();
    let orb = build(storage, AT, DATA, Mode::Transport, Verb::Read, blocks(0, 1));
    let at = orb.program as usize;
    let tcw = Tcw::parse(&storage[at..at + TCW_BYTES].try_into().unwrap()).unwrap();
    let tcw = Tcw { interrogate: ASKING, ..tcw };
    storage[at..at + TCW_BYTES].copy_from_slice(&tcw.emit());
    let dcw = Dcw { command, count: 0, control: &[0; 16] };
    let bytes = tccb::emit(Service::Interrogate, &[dcw], 0);
    let asking = Tcw {
        tsb: u64::from(ASKING) + 0x200,
        tccb: u64::from(ASKING) + 0x100,
        tccb_bytes: bytes.len() as u32,
        ..Tcw::default()
    };
    let at = ASKING as usize;
    storage[at..at + TCW_BYTES].copy_from_slice(&asking.emit());
    storage[at + 0x100..][..bytes.len()].copy_from_slice(&bytes);
    Orb { parameter: 5, ..orb }
}

fn cancel(guest: &mut Guest, subchannel: u16) {
    guest.client.request(Kind::Cancel, subchannel, &mut guest.sender).unwrap();
}

/// The status block of an interrogation that has come.
fn answer(guest: &mut Guest) -> Tsb {
    assert_eq!(guest.poll(), Some(Event::Intermediate { subchannel: 0, parameter: 5 }));
    let scsw = guest.client.answer().scsw;
    assert_eq!((scsw.count, scsw.address), (TSB_STORED, ASKING));
    guest.client.place().unwrap();
    let at = ASKING as usize + 0x200;
    Tsb::parse(guest.client.storage()[at..at + TSB_BYTES].try_into().unwrap()).unwrap()
}

#[test]
fn program_that_waits_for_a_track_is_interrogated_and_goes_on() {
    let mut world = World::new(2, 100);
    let gate = read_directly(&mut world, 2, 512, true);
    let mut guest = world.guest(0, 2, true, false);
    let orb = interrogated(&mut guest, INTERROGATE);
    guest.start(0, &orb);
    world.run();
    for _ in 0..2 {
        cancel(&mut guest, 0);
        world.run();
        let states =
            Interrogation { device: DeviceState::Free, operation: OperationState::AwaitsData };
        assert_eq!(answer(&mut guest).status, TransportStatus::Interrogation(states));
    }
    gate.end(0);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 5 }));
    assert!(guest.client.answer().scsw.is_good());
    // Nothing runs there any more.
    cancel(&mut guest, 0);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Refused { subchannel: 0, code: 1 }));
}

#[test]
fn end_that_is_on_its_way_tells_more_than_an_interrogation() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let orb = interrogated(&mut guest, INTERROGATE);
    guest.start(0, &orb);
    cancel(&mut guest, 0);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 5 }));
    assert_eq!(guest.poll(), None);
    read_after(&mut world, &mut guest);
}

#[test]
fn wrong_interrogation_is_refused_and_disturbs_nothing() {
    let mut world = World::new(2, 100);
    let gate = read_directly(&mut world, 2, 512, true);
    let mut guest = world.guest(0, 2, true, false);
    // Not a command that interrogates: the control unit finds that.
    let orb = interrogated(&mut guest, 0x03);
    guest.start(0, &orb);
    world.run();
    cancel(&mut guest, 0);
    world.run();
    assert!(matches!(answer(&mut guest).status, TransportStatus::ProgramCheck { .. }));
    // Not a TCW: the channel finds that.
    guest.client.storage()[ASKING as usize] = 0xff;
    cancel(&mut guest, 0);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Intermediate { subchannel: 0, parameter: 5 }));
    let scsw = guest.client.answer().scsw;
    assert_eq!(scsw.subchannel, SubchannelStatus::PROGRAM_CHECK);
    assert_eq!(scsw.control & control::ALERT, control::ALERT);
    // A program that names none, and one of command mode, cannot be interrogated.
    let none =
        build(guest.client.storage(), 0x1000, DATA, Mode::Transport, Verb::Read, blocks(30, 1));
    guest.start(1, &none);
    let endless = ccws(&mut guest, &[(0x03, CC_SLI, 1, 0), (0x08, 0, 0, 0x400)]);
    guest.start(2, &endless);
    round(&mut world);
    for subchannel in [1, 2] {
        cancel(&mut guest, subchannel);
        round(&mut world);
        assert_eq!(guest.poll(), Some(Event::Refused { subchannel, code: 2 }));
    }
    guest.client.request(Kind::Halt, 2, &mut guest.sender).unwrap();
    for _ in 0..4 {
        round(&mut world);
    }
    world.run_while(|| gate.end_oldest());
    let mut ended: Vec<u16> = std::iter::from_fn(|| match guest.poll()? {
        Event::Ended { subchannel, .. } => Some(subchannel),
        event => panic!("{event:?}"),
    })
    .collect();
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2]);
}

#[test]
fn program_that_has_not_begun_is_withdrawn_without_status() {
    let mut world = World::new(2, 100);
    let (mut guest, mut other) = (world.guest(0, 2, true, false), world.guest(0, 2, true, false));
    // Another guest has reserved the device.
    let reserve = ccws(&mut other, &[(0xb4, SLI, 32, 0x5000)]);
    assert!(other.execute(&mut world, &reserve).is_good());
    let orb = build(guest.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(0, 1));
    guest.start(0, &orb);
    for _ in 0..3 {
        world.run();
        assert_eq!(guest.poll(), None);
    }
    cancel(&mut guest, 0);
    // Before the program is begun again.
    round(&mut world);
    assert!(matches!(guest.poll(), Some(Event::Ended { subchannel: 0, .. })));
    let scsw = guest.client.answer().scsw;
    assert_eq!((scsw.control, scsw.device), (control::PENDING, DeviceStatus(0)));
    let release = ccws(&mut other, &[(0x94, SLI, 32, 0x5000)]);
    assert!(other.execute(&mut world, &release).is_good());
    read_after(&mut world, &mut guest);
    // A suspended program is withdrawn too.
    let orb = ccws(&mut guest, &[(0x03, SLI | 0x02, 1, 0)]);
    guest.start(0, &Orb { flags: orb.flags.with(OrbFlags::SUSPEND), ..orb });
    world.run();
    assert!(matches!(guest.poll(), Some(Event::Intermediate { .. })));
    cancel(&mut guest, 0);
    world.run();
    assert!(matches!(guest.poll(), Some(Event::Ended { subchannel: 0, .. })));
    assert_eq!(guest.client.answer().scsw.control, control::PENDING);
    read_after(&mut world, &mut guest);
}

#[test]
fn subchannel_that_is_not_enabled_starts_nothing() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    let modify = |guest: &mut Guest, modification| {
        guest.client.modify(0, modification, &mut guest.sender).unwrap();
    };
    let set = Modification::default();
    modify(&mut guest, Modification { is_enabled: false, ..set });
    let orb = build(guest.client.storage(), AT, DATA, Mode::Transport, Verb::Read, blocks(0, 1));
    guest.start(0, &orb);
    guest.start(1, &orb);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Refused { subchannel: 0, code: 3 }));
    assert!(matches!(guest.poll(), Some(Event::Ended { subchannel: 1, .. })));
    // Nothing is counted that runs while the subchannel is not measured.
    modify(&mut guest, Modification { is_measured: false, ..set });
    read_after(&mut world, &mut guest);
    let measured = |world: &World| {
        let first = world.channel.measurements(0).next().unwrap();
        (first.starts, first.samples)
    };
    assert_eq!(measured(&world), (0, 0));
    modify(&mut guest, set);
    read_after(&mut world, &mut guest);
    assert_eq!(measured(&world), (1, 1));
    // Not while a program runs.
    let orb = ccws(&mut guest, &[(0x03, CC_SLI, 1, 0), (0x08, 0, 0, 0x400)]);
    guest.start(0, &orb);
    modify(&mut guest, set);
    round(&mut world);
    assert_eq!(guest.poll(), Some(Event::Refused { subchannel: 0, code: 2 }));
}

#[test]
fn guests_that_can_write_no_more_are_told_of_it() {
    let mut world = World::new(2, 100);
    let (mut guest, mut reader) = (world.guest(0, 1, true, false), world.guest(1, 1, false, false));
    let modification = Modification { parameter: 0xabcd, ..Modification::default() };
    guest.client.modify(0, modification, &mut guest.sender).unwrap();
    world.run();
    world.unit.note_damage(0, 20, 0);
    world.run();
    let status =
        DeviceStatus::ATTENTION.with(DeviceStatus::DEVICE_END).with(DeviceStatus::UNIT_EXCEPTION);
    let told = Event::Attention { subchannel: 0, parameter: 0xabcd, status, may_write: false };
    assert_eq!((guest.poll(), guest.poll()), (Some(told), None));
    assert_eq!(reader.poll(), None);
    // Once.
    world.unit.note_damage(0, 21, 0);
    world.run();
    assert_eq!(guest.poll(), None);
    read_after(&mut world, &mut guest);
}

#[test]
fn irb_of_a_program_that_ended_well_names_its_path() {
    let mut world = World::new(2, 100);
    let mut guests = [world.guest(0, 2, true, false), world.guest(0, 2, true, false)];
    for (guest, path) in guests.iter_mut().zip([0x80, 0x40]) {
        let orb = ccws(guest, &[(0x03, SLI, 1, 0)]);
        guest.execute(&mut world, &orb);
        let mut expected = [0; IRB_BYTES];
        #[rustfmt::skip]
        expected[..14].copy_from_slice(&[
            0x00, 0x80, 0x40, 0x07, 0, 0, 0x04, 0x08, 0x0c, 0, 0, 1,
            0, path,
        ]);
        assert_eq!(guest.client.irb().emit(), expected);
        // No path was used.
        guest.execute(&mut world, &Orb { paths: !path, ..orb });
        let mut expected = [0; IRB_BYTES];
        expected[..4].copy_from_slice(&[0x03, 0x80, 0x40, 0x11]);
        assert_eq!(guest.client.irb().emit(), expected);
    }
}

#[test]
fn irb_of_a_unit_check_has_the_sense_in_both_modes() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 1, true, false);
    for (mode, conditions) in [(Mode::Command, [0x00, 0xc2]), (Mode::Transport, [0x00, 0x12])] {
        // The guest has blocks 0 to 179.
        let orb = build(guest.client.storage(), AT, DATA, mode, Verb::Read, blocks(180, 1));
        guest.execute(&mut world, &orb);
        let sense = guest.client.answer().sense.unwrap();
        let bytes = guest.client.irb().emit();
        assert_eq!(bytes[..2], conditions, "{mode:?}");
        assert_eq!((bytes[3], bytes[8]), (0x17, 0x0e), "{mode:?}");
        let report = [0, 0x80, 0, 0, 0x01, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes[12..32], report, "{mode:?}");
        assert_eq!(bytes[32..], sense.0, "{mode:?}");
        assert_eq!(Irb::parse(&bytes), Some(guest.client.irb()));
    }
}

#[test]
fn irb_of_a_program_that_goes_on_has_no_sense() {
    let mut world = World::new(2, 100);
    let mut guest = world.guest(0, 2, true, false);
    // A NOP with an interruption, and one that suspends the program.
    let orb = ccws(&mut guest, &[(0x03, 0x68, 1, 0), (0x03, 0x22, 1, 0)]);
    guest.start(0, &Orb { flags: orb.flags.with(OrbFlags::SUSPEND), ..orb });
    world.run();
    // Subchannel active and intermediate, with PCI; then suspended and intermediate.
    for (control, address, subchannel) in [([0x40, 0x89], 0x08, 0x80), ([0x40, 0x29], 0x08, 0)] {
        assert!(matches!(guest.poll(), Some(Event::Intermediate { .. })));
        let mut expected = [0; IRB_BYTES];
        #[rustfmt::skip]
        expected[..14].copy_from_slice(&[
            0x08, 0x80, control[0], control[1], 0, 0, 0x04, address, 0, subchannel, 0, 0,
            0, 0x80,
        ]);
        assert_eq!(guest.client.irb().emit(), expected);
    }
}
