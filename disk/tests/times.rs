//! What the measurement block says of a program that waits for the disk.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use std::cell::Cell;
use std::io;

use channel::client::Event;
use channel::request;
use channel::subchannel::Measurement;
use disk::ckd::backing::Backing;
use disk::ckd::volume::{Access, Volume};
use disk::program::blocks::{Mode, Verb};
use disk::unit::{Clock, Syncing, Unit};

use world::programs::start;
use world::reads::read_directly;
use world::writes::write_directly;
use world::{Disk, Guest, MODES, World, image};

/// What a read, a write and a sync of the simulated disk take.
const READ_NS: u64 = 300_000;
const WRITE_NS: u64 = 50_000;
const SYNC_NS: u64 = 700_000;
/// What a turn of channel and control unit takes.
const TURN_NS: u64 = 1000;

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
}

fn now_ns() -> u64 {
    NOW_NS.get()
}

fn pass(ns: u64) {
    NOW_NS.set(now_ns() + ns);
}

/// A disk that takes its time.
#[derive(Debug)]
struct Slow(Disk);

impl Backing for Slow {
    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<()> {
        pass(READ_NS);
        self.0.read_at(target, offset)
    }

    fn write_at(&mut self, source: &[u8], offset: u64) -> io::Result<()> {
        pass(WRITE_NS);
        self.0.write_at(source, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        pass(SYNC_NS);
        self.0.sync()
    }
}

fn world() -> (World, Guest) {
    let disk = Disk::new(image(2));
    let volume = Volume::from_backing(Box::new(Slow(disk.clone())), Access::Write).unwrap();
    let mut world = World::of(Unit::with_clock(Clock::new(now_ns)), disk, volume, 100);
    let guest = world.guest(0, 2, true, false);
    (world, guest)
}

/// Channel and control unit have a turn, and some time passes.
fn turn(world: &mut World) {
    pass(TURN_NS);
    let (sender, receiver) = world.sides.0[0].as_mut().unwrap();
    world.channel.poll_guest(0, sender, receiver, now_ns()).unwrap();
    world.unit.poll();
    world.channel.poll_units(&mut world.sides, now_ns()).unwrap();
}

/// A program on subchannel 0, and what was measured before it.
struct Trial {
    started_ns: u64,
    before: Measurement,
}

impl Trial {
    fn start(
        world: &World,
        guest: &mut Guest,
        mode: Mode,
        verb: Verb,
        blocks: (u64, u32),
    ) -> Trial {
        start(guest, 0, mode, verb, blocks, 0);
        // The channel takes it in the next turn.
        let started_ns = now_ns() + TURN_NS;
        Trial { started_ns, before: world.channel.measurements(0).next().unwrap() }
    }

    /// Turns until the program has ended: its disconnect time. Nothing of the time that has passed is lost, or counted twice.
    fn disconnect_ns(self, world: &mut World, guest: &mut Guest) -> u64 {
        for _ in 0..100 {
            turn(world);
            let Some(event) = guest.poll() else { continue };
            assert!(matches!(event, Event::Ended { subchannel: 0, .. }), "{event:?}");
            let after = world.channel.measurements(0).next().unwrap();
            let Trial { started_ns, before } = self;
            assert_eq!(after.samples, before.samples + 1);
            let all_ns = |one: Measurement| {
                one.pending_ns + one.connect_ns + one.disconnect_ns + one.queue_ns
            };
            assert_eq!(all_ns(after) - all_ns(before), now_ns() - started_ns, "{after:?}");
            return after.disconnect_ns - before.disconnect_ns;
        }
        panic!("no end");
    }
}

/// Turns until something waits for the disk.
fn turn_until(world: &mut World, is_there: impl Fn() -> bool) {
    for _ in 0..100 {
        if is_there() {
            return;
        }
        turn(world);
    }
    panic!("nothing waits");
}

#[test]
fn reads_writes_and_syncs_by_calls_are_disconnect_time_and_nothing_else_is() {
    for mode in MODES {
        let (mut world, mut guest) = world();
        let mut check = |verb, blocks, disconnect_ns| {
            let trial = Trial::start(&world, &mut guest, mode, verb, blocks);
            let found_ns = trial.disconnect_ns(&mut world, &mut guest);
            assert!(guest.client.answer().scsw.is_good());
            assert_eq!(found_ns, disconnect_ns, "{mode:?} {verb:?} {blocks:?}");
        };
        check(Verb::Read, (3, 1), READ_NS);
        // The track is in the cache now.
        check(Verb::Read, (3, 1), 0);
        // A sync waits for a turn, in which others could write.
        check(Verb::Write, (3, 1), WRITE_NS + TURN_NS + SYNC_NS);
        // More than a group of commands: two tracks are read in different turns.
        check(Verb::Read, (12, 24), 2 * READ_NS);
        check(Verb::Read, (12, 24), 0);
        check(Verb::Write, (40, 1), READ_NS + WRITE_NS + TURN_NS + SYNC_NS);
    }
}

#[test]
fn writes_that_need_no_sync_are_disconnect_time_too() {
    for mode in MODES {
        let (mut world, mut guest) = world();
        world.unit.set_syncing(0, Syncing::File);
        for disconnect_ns in [READ_NS + WRITE_NS, WRITE_NS] {
            let trial = Trial::start(&world, &mut guest, mode, Verb::Write, (3, 1));
            assert_eq!(trial.disconnect_ns(&mut world, &mut guest), disconnect_ns, "{mode:?}");
        }
    }
}

#[test]
fn direct_reads_one_after_the_other_are_disconnect_time() {
    for mode in MODES {
        let (mut world, mut guest) = world();
        // No track is known: each is read when the one before is there.
        let gate = read_directly(&mut world, 2, 512, false);
        let trial = Trial::start(&world, &mut guest, mode, Verb::Read, (3, 30));
        for wait_ns in [5_000_000, 7_000_000, 9_000_000] {
            turn_until(&mut world, || gate.under_way() > 0);
            pass(wait_ns);
            gate.end(0);
        }
        // The program goes on in the turn after the end of a read.
        let disconnect_ns = 21_000_000 + 3 * TURN_NS;
        assert_eq!(trial.disconnect_ns(&mut world, &mut guest), disconnect_ns, "{mode:?}");
    }
}

#[test]
fn direct_writes_are_disconnect_time_until_they_are_synced() {
    for mode in MODES {
        let (mut world, mut guest) = world();
        let gate = write_directly(&mut world, 4);
        let trial = Trial::start(&world, &mut guest, mode, Verb::Write, (3, 1));
        turn_until(&mut world, || gate.under_way() > 0);
        pass(5_000_000);
        gate.end(0);
        let disconnect_ns = READ_NS + 5_000_000 + TURN_NS + SYNC_NS;
        assert_eq!(trial.disconnect_ns(&mut world, &mut guest), disconnect_ns, "{mode:?}");
    }
}

#[test]
fn program_that_is_halted_has_waited_until_then() {
    for mode in MODES {
        let (mut world, mut guest) = world();
        let gate = read_directly(&mut world, 2, 512, true);
        let trial = Trial::start(&world, &mut guest, mode, Verb::Read, (3, 1));
        turn_until(&mut world, || gate.under_way() > 0);
        pass(5_000_000);
        guest.client.request(request::Kind::Halt, 0, &mut guest.sender).unwrap();
        let disconnect_ns = 5_000_000 + TURN_NS;
        assert_eq!(trial.disconnect_ns(&mut world, &mut guest), disconnect_ns, "{mode:?}");
    }
}
