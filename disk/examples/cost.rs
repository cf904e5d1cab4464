//! What a read costs the channel and the control unit, in processor time: `cost [READS]`; or a write: `cost --writes [WRITES]`.
//!
//! Guest, channel and control unit are in one thread, so that nothing is slept or spun. The volume is in the cache, and the
//! guest looks at nothing. Writes are of transport mode, go to a disk in memory, and are not synced. The lab measures rates, with each
//! party on a processor of its own.

#[path = "../tests/world/mod.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod world;

use channel::client::Event;
use channel::exchange::Kind;
use disk::program::blocks::{Blocks, Mode, Verb, build};
use disk::unit::Syncing;
use os::processor::thread_ns;

use world::World;

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let is_write = arguments.next_if(|argument| argument == "--writes").is_some();
    let programs = arguments.next().map_or(10_000, |number| number.parse().expect("a number"));
    if is_write { writes(programs) } else { reads(programs) }
}

fn reads(reads: u64) {
    println!(
        "processor time of channel and control unit, ns for a read of so many blocks, and units"
    );
    println!("{:>10} {:>8} {:>10} {:>10} {:>8}", "mode", "blocks", "in place", "copied", "units");
    for count in [1, 4, 16, 64] {
        for mode in [Mode::Command, Mode::Transport] {
            let [in_place, copied] =
                [true, false].map(|dedicated| measure(mode, Verb::Read, count, dedicated, reads));
            let mode = format!("{mode:?}").to_lowercase();
            println!(
                "{mode:>10} {count:>8} {:>10.0} {:>10.0} {:>8.0}",
                in_place.0, copied.0, in_place.1
            );
        }
    }
}

fn writes(writes: u64) {
    println!(
        "processor time of channel and control unit, ns for a write of so many blocks, and units"
    );
    println!("{:>10} {:>8} {:>10} {:>8}", "mode", "blocks", "written", "units");
    // The first burst is 16 blocks.
    for count in [1, 16, 17, 32, 64] {
        let (written, units) = measure(Mode::Transport, Verb::Write, count, true, writes);
        println!("{:>10} {count:>8} {written:>10.0} {units:>8.0}", "transport");
    }
}

/// Nanoseconds and units for a read or a write: the median of eleven parts.
fn measure(mode: Mode, verb: Verb, count: u32, dedicated: bool, programs: u64) -> (f64, f64) {
    let mut world = World::new(20, 400);
    // A sync of the simulated disk copies all of it.
    world.unit.set_syncing(0, Syncing::File);
    let mut guest = world.guest(0, 20, verb == Verb::Write, dedicated);
    let end = u64::from(20 * 15 * 12 - count);
    let mut random = 88_172_645_463_325_252_u64;
    let mut parts = Vec::new();
    let sent = |world: &World| -> u64 {
        Kind::ALL.iter().map(|kind| world.channel.sent_of(*kind) + world.unit.sent_of(*kind)).sum()
    };
    let mut units = 0;
    for part in 0..12 {
        let (mut spent, before) = (0, sent(&world));
        for _ in 0..(programs / 12).max(1) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let blocks = Blocks { first_track: 0, first: random % end, count };
            let orb = build(guest.client.storage(), 0, 0x10_0000, mode, verb, blocks);
            guest.start(0, &orb);
            let start = thread_ns();
            world.turn();
            spent += thread_ns() - start;
            assert_eq!(guest.poll(), Some(Event::Ended { subchannel: 0, parameter: 0 }));
            assert!(guest.client.answer().scsw.is_good());
        }
        // The first part fills the cache.
        if part > 0 {
            parts.push(spent as f64 / (programs / 12).max(1) as f64);
            units = sent(&world) - before;
        }
    }
    parts.sort_by(f64::total_cmp);
    let clock = clock_ns();
    (parts[parts.len() / 2] - clock, units as f64 / (programs / 12).max(1) as f64)
}

/// What a look at the clock costs, which is in every figure.
fn clock_ns() -> f64 {
    let start = thread_ns();
    for _ in 0..10_000 {
        std::hint::black_box(thread_ns());
    }
    (thread_ns() - start) as f64 / 10_000.0
}
