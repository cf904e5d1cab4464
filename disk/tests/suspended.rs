//! Programs that suspend themselves, or are wrong, behind commands that wait for a track or have lost data.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use channel::client::Event;
use channel::request::Kind;
use disk::format::eckd::{Cchh, Extent, Locate, Permission, operation};
use disk::format::orb::{Orb, OrbFlags};
use disk::format::scsw::{SubchannelStatus, control};
use disk::program::blocks::Mode;
use disk::unit::usage::VolumeUse;

use world::reads::{Gate, read_directly};
use world::{CC, CC_SLI, Guest, SLI, World, block, ccws, read, wish};

const SUSPEND: u8 = 0x02;

/// A world with direct reads, and a guest with all of its cylinders.
fn world() -> (World, Gate, Guest) {
    let mut world = World::new(2, 100);
    let gate = read_directly(&mut world, 2, 512, true);
    let guest = world.guest(0, 2, true, false);
    (world, gate, guest)
}

/// A chain that writes block 0, with these commands behind.
fn writing_chain(guest: &mut Guest, seed: u8, behind: &[(u8, u8, u16, u32)]) -> Orb {
    let (first, last) = (Cchh { cylinder: 0, head: 0 }, Cchh { cylinder: 1, head: 14 });
    let extent = Extent { permission: Permission::Update, first, last, ..Extent::default() };
    let locate =
        Locate { operation: operation::WRITE_DATA, count: 1, record: 1, ..Locate::default() };
    let storage = guest.client.storage();
    storage[0x3000..0x3010].copy_from_slice(&extent.emit());
    storage[0x3010..0x3020].copy_from_slice(&locate.emit()[..16]);
    storage[0x4000..0x5000].copy_from_slice(&block(0, seed));
    let mut program =
        vec![(0x63, CC, 16, 0x3000), (0x47, CC, 16, 0x3010), (0x85, CC, 4096, 0x4000)];
    program.extend(behind);
    let orb = ccws(guest, &program);
    Orb { flags: orb.flags.with(OrbFlags::SUSPEND), ..orb }
}

fn seeded(seed: u8) -> impl Fn(u64) -> Vec<u8> {
    move |number| block(number, if number == 0 { seed } else { 0 })
}

#[test]
fn what_comes_before_a_suspension_is_done_though_it_waits_for_a_track() {
    let (mut world, gate, mut guest) = world();
    let mut other = world.guest(0, 2, false, false);
    let orb = writing_chain(&mut guest, 9, &[(0x03, SLI | SUSPEND, 1, 0)]);
    guest.start(0, &orb);
    world.run();
    assert_eq!((gate.under_way(), guest.poll()), (1, None));
    gate.end(0);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Intermediate { subchannel: 0, parameter: 77 }));
    read(&mut world, &mut other, Mode::Transport, 0, 2, seeded(9));
    guest.client.request(Kind::Resume, 0, &mut guest.sender).unwrap();
    world.run();
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    assert!(guest.client.answer().scsw.is_good());
}

#[test]
fn what_comes_before_a_wrong_ccw_is_done_though_it_waits_for_a_track() {
    let (mut world, gate, mut guest) = world();
    let orb = writing_chain(&mut guest, 8, &[(0x00, 0, 1, 0)]);
    guest.start(0, &orb);
    world.run();
    assert_eq!((gate.under_way(), guest.poll()), (1, None));
    gate.end(0);
    world.run();
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    assert_eq!(guest.client.answer().scsw.subchannel, SubchannelStatus::PROGRAM_CHECK);
    read(&mut world, &mut guest, Mode::Transport, 0, 2, seeded(8));
}

#[test]
fn program_that_is_halted_while_it_is_to_be_suspended_ends_at_once() {
    let (mut world, gate, mut guest) = world();
    let orb = writing_chain(&mut guest, 7, &[(0x03, SLI | SUSPEND, 1, 0)]);
    guest.start(0, &orb);
    world.run();
    guest.client.request(Kind::Halt, 0, &mut guest.sender).unwrap();
    world.run();
    assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 77 }));
    let functions = guest.client.answer().scsw.control & control::FUNCTIONS;
    assert_eq!(functions, control::START | control::HALT);
    // The read ends when it does, and nothing was written.
    world.run_while(|| gate.end_oldest());
    let none = |number| block(number, 0);
    start_and_end(&mut world, &gate, &mut guest, none);
}

fn start_and_end(
    world: &mut World,
    gate: &Gate,
    guest: &mut Guest,
    content: impl Fn(u64) -> Vec<u8>,
) {
    use disk::program::blocks::{Verb, build};
    let what = world::blocks(0, 1);
    let storage = guest.client.storage();
    let orb = build(storage, world::AT, world::DATA, Mode::Transport, Verb::Read, what);
    guest.start(0, &orb);
    world.run_while(|| gate.end_oldest());
    assert!(matches!(guest.poll(), Some(Event::Ended { subchannel: 0, .. })));
    guest.client.place().unwrap();
    let at = world::DATA as usize;
    assert!(guest.client.storage()[at..at + 4096] == content(0));
}

#[test]
fn program_that_has_lost_data_ends_where_it_would_be_suspended() {
    let mut world = World::new(2, 100);
    world.sides.0.push(None);
    // Room for one block of the two.
    let mut guest = world.guest_at(0, VolumeUse { result_bytes: 4096, ..wish(0, 2, true) });
    let first = Cchh { cylinder: 0, head: 0 };
    let extent = Extent { first, last: Cchh { cylinder: 1, head: 14 }, ..Extent::default() };
    let locate =
        Locate { operation: operation::READ_DATA, count: 2, record: 1, ..Locate::default() };
    let storage = guest.client.storage();
    storage[0x3000..0x3010].copy_from_slice(&extent.emit());
    storage[0x3010..0x3020].copy_from_slice(&locate.emit()[..16]);
    let program = [
        (0x63, CC, 16, 0x3000),
        (0x47, CC, 16, 0x3010),
        (0x86, CC, 4096, 0x5000),
        (0x86, CC_SLI, 4096, 0x6000),
        (0x03, SLI | SUSPEND, 1, 0),
    ];
    let orb = ccws(&mut guest, &program);
    let orb = Orb { flags: orb.flags.with(OrbFlags::SUSPEND), ..orb };
    let scsw = guest.execute(&mut world, &orb);
    assert_eq!(scsw.subchannel, SubchannelStatus::CHAINING_CHECK);
    assert_eq!(scsw.control & control::SUSPENDED, 0);
}
