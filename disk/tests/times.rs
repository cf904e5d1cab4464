//! What the measurement block says of a program that waits for the disk.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use std::cell::Cell;
use std::io;

use disk::channel::subchannel::Measurement;
use disk::ckd::backing::Backing;
use disk::program::blocks::{Mode, Verb};
use disk::program::client::Event;
use disk::unit::Clock;

use world::programs::start;
use world::reads::read_directly;
use world::writes::write_directly;
use world::{Disk, Guest, MODES, World, image};

/// What a read of the simulated disk takes, and a sync.
const READ_NS: u64 = 300_000;
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
        self.0.write_at(source, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        pass(SYNC_NS);
        self.0.sync()
    }
}

fn world() -> (World, Guest) {
    let disk = Disk::new(image(2));
    let mut world = World::over(disk.clone(), Box::new(Slow(disk)), 100);
    world.unit.set_clock(Clock::new(now_ns));
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

/// Turns until the program has ended: what was measured of it.
fn end(world: &mut World, guest: &mut Guest) -> Measurement {
    for _ in 0..100 {
        if let Some(Event::Ended { subchannel: 0, .. }) = guest.poll() {
            assert!(guest.client.answer().scsw.is_good(), "{:?}", guest.client.answer());
            return world.channel.measurements(0).next().unwrap();
        }
        turn(world);
    }
    panic!("no end");
}

/// What one more program was measured at.
fn measure(
    world: &mut World,
    guest: &mut Guest,
    mode: Mode,
    verb: Verb,
    first: u64,
) -> Measurement {
    let before = world.channel.measurements(0).next().unwrap();
    start(guest, 0, mode, verb, (first, 1), 0);
    let after = end(world, guest);
    Measurement {
        starts: after.starts - before.starts,
        samples: after.samples - before.samples,
        pending_ns: after.pending_ns - before.pending_ns,
        connect_ns: after.connect_ns - before.connect_ns,
        disconnect_ns: after.disconnect_ns - before.disconnect_ns,
        queue_ns: after.queue_ns - before.queue_ns,
        device_active_ns: after.device_active_ns - before.device_active_ns,
        initial_response_ns: after.initial_response_ns - before.initial_response_ns,
    }
}

#[test]
fn reads_and_syncs_by_calls_are_disconnect_time() {
    for mode in MODES {
        let (mut world, mut guest) = world();
        let cold = measure(&mut world, &mut guest, mode, Verb::Read, 3);
        assert_eq!((cold.samples, cold.disconnect_ns), (1, READ_NS), "{mode:?}");
        assert!(cold.pending_ns < READ_NS && cold.connect_ns < READ_NS, "{cold:?}");
        // The track is in the cache now.
        let warm = measure(&mut world, &mut guest, mode, Verb::Read, 3);
        assert_eq!((warm.samples, warm.disconnect_ns), (1, 0), "{mode:?}");
        assert_eq!(
            (warm.pending_ns, warm.connect_ns),
            (cold.pending_ns, cold.connect_ns),
            "{mode:?}: the rest does not depend on the disk"
        );
        let write = measure(&mut world, &mut guest, mode, Verb::Write, 3);
        assert!(write.disconnect_ns >= SYNC_NS, "{write:?}");
        assert!(write.pending_ns < READ_NS && write.connect_ns < READ_NS, "{write:?}");
    }
}

#[test]
fn direct_reads_are_disconnect_time_until_the_program_goes_on() {
    for mode in MODES {
        let (mut world, mut guest) = world();
        let gate = read_directly(&mut world, 2, 512, true);
        start(&mut guest, 0, mode, Verb::Read, (3, 1), 0);
        while gate.under_way() == 0 {
            turn(&mut world);
        }
        pass(5_000_000);
        gate.end(0);
        let found = end(&mut world, &mut guest);
        assert!((5_000_000..5_100_000).contains(&found.disconnect_ns), "{mode:?}: {found:?}");
        assert!(found.pending_ns + found.connect_ns < 100_000, "{mode:?}: {found:?}");
    }
}

#[test]
fn direct_writes_are_disconnect_time_until_they_are_synced() {
    for mode in MODES {
        let (mut world, mut guest) = world();
        let gate = write_directly(&mut world, 4);
        start(&mut guest, 0, mode, Verb::Write, (3, 1), 7);
        while gate.under_way() == 0 {
            turn(&mut world);
        }
        pass(5_000_000);
        gate.end(0);
        let found = end(&mut world, &mut guest);
        let expected = 5_000_000 + SYNC_NS..5_000_000 + SYNC_NS + READ_NS + 100_000;
        assert!(expected.contains(&found.disconnect_ns), "{mode:?}: {found:?}");
        assert!(found.pending_ns + found.connect_ns < 100_000, "{mode:?}: {found:?}");
    }
}
