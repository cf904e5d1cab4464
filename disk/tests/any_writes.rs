//! Any programs of several guests on a volume whose direct writes end in any order, or fail: what was acknowledged is there, and every read
//! brings what some order of the programs allows.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use std::io;

use disk::ckd::model::BLOCK_BYTES;
use disk::format::scsw::DeviceStatus;
use disk::program::blocks::Verb;
use disk::unit::usage::VolumeUse;
use disk::unit::{Syncing, Writing};
use proptest::prelude::*;

use world::programs::{self, assert_good, data, ended, start};
use world::reads::{Gate as Reads, read_directly};
use world::writes::{Fate, Gate, seed_in, write_directly};
use world::{Guest, MODES, World, round, wish};

/// A write of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    seed: u8,
    started: u32,
    /// When its program has ended, or can write no more.
    over: Option<u32>,
    is_acknowledged: bool,
}

/// A program that is under way.
#[derive(Clone, Copy, Debug)]
struct Program {
    verb: Verb,
    first: u64,
    count: u32,
    seed: u8,
    started: u32,
}

/// The blocks that are read and written, on few tracks.
const BLOCKS: u64 = 60;
/// Subchannels of a guest that have programs.
const SUBCHANNELS: usize = 6;

/// Guests: with the cache, without it, and one that reads in place.
const GUESTS: usize = 3;

fn wish_of(world: &World, number: usize) -> VolumeUse {
    let cache = (number == 2).then(|| world.unit.lendable(0).unwrap());
    VolumeUse { cache, ..wish(0, 1, number != 1) }
}

/// What was written to each block so far.
struct History(Vec<Vec<Written>>);

impl History {
    fn new() -> History {
        let image = Written { over: Some(0), is_acknowledged: true, ..Written::default() };
        History(vec![vec![image]; BLOCKS as usize])
    }

    fn start(&mut self, program: &Program) {
        let Program { first, count, seed, started, .. } = *program;
        for number in first..first + u64::from(count) {
            let written = Written { seed, started, ..Written::default() };
            self.0[number as usize].push(written);
        }
    }

    fn end(&mut self, seed: u8, now: u32, is_acknowledged: bool) {
        for written in self.0.iter_mut().flatten().filter(|one| one.seed == seed) {
            (written.over, written.is_acknowledged) = (Some(now), is_acknowledged);
        }
    }

    /// The writes that a block can have the data of: those that were not over before another one was started that was acknowledged
    /// before `then`.
    fn possible(&self, number: u64, then: u32) -> impl Iterator<Item = &Written> {
        let all = &self.0[number as usize];
        let is_before = move |one: &Written, other: &Written| {
            let is_seen = other.is_acknowledged && other.over.is_some_and(|over| over < then);
            is_seen && one.over.is_some_and(|over| over < other.started)
        };
        all.iter().filter(move |one| !all.iter().any(|other| is_before(one, other)))
    }

    /// Panics if a block cannot have such data then. Torn is what a write leaves that has failed, or is not over.
    fn check(&self, number: u64, found: Option<u8>, then: u32) {
        let is_possible = self.possible(number, then).any(|one| match found {
            Some(seed) => one.seed == seed,
            None => !one.is_acknowledged,
        });
        assert!(
            is_possible,
            "block {number} has {found:?} at {then}: {:?}",
            self.0[number as usize]
        );
    }
}

/// Guests that read and write at random, and a disk that does as it likes.
struct Trial {
    world: World,
    writes: Gate,
    reads: Option<Reads>,
    guests: Vec<Guest>,
    programs: Vec<[Option<Program>; SUBCHANNELS]>,
    history: History,
    /// Seeds of guests that are gone: what is under way of them goes to the disk or not.
    orphans: Vec<u8>,
    now: u32,
}

impl Trial {
    fn new(slots: usize, places: usize, has_reads: bool, syncing: Syncing) -> Trial {
        let mut world = World::new(1, slots);
        world.unit.set_syncing(0, syncing);
        let writes = write_directly(&mut world, places);
        let reads = has_reads.then(|| read_directly(&mut world, 1, 512, slots.is_multiple_of(2)));
        let mut guests = Vec::new();
        for number in 0..GUESTS {
            world.sides.0.push(None);
            let wish = wish_of(&world, number);
            guests.push(world.guest_at(number, wish));
        }
        Trial {
            world,
            writes,
            reads,
            guests,
            programs: vec![[None; SUBCHANNELS]; GUESTS],
            history: History::new(),
            orphans: Vec::new(),
            now: 0,
        }
    }

    fn act(&mut self, deed: u8, a: u8, b: u8, c: u8) {
        self.now += 1;
        let fate = match b % 8 {
            0 => Fate::Short(usize::from(c % 8) * 512),
            1 => Fate::Error(usize::from(c % 8) * 512),
            2 if c < 8 => Fate::Refused,
            _ => Fate::Whole,
        };
        match deed {
            0..=9 => self.start(a, b, c),
            10..=17 => {
                if self.writes.under_way() > 0 {
                    self.writes.end_as(usize::from(a) % self.writes.under_way(), fate);
                }
                // So many calls go well, and then none in this step.
                let left = (fate != Fate::Whole && c & 8 != 0).then_some(u64::from(c >> 4) % 3);
                self.world.disk.0.lock().unwrap().steps_left = left;
            }
            18..=21 => {
                let reads = self.reads.as_ref().filter(|reads| reads.under_way() > 0);
                reads.into_iter().for_each(|reads| reads.end(usize::from(a) % reads.under_way()));
            }
            22 => self.world.disk.0.lock().unwrap().steps_left = Some(u64::from(a % 3)),
            23 => self.writes.refuse_for(Some(io::ErrorKind::WouldBlock), usize::from(a % 4) + 1),
            24 => self.writes.take_only(usize::from(a % 3)),
            25 => self.writes.expect_fate(fate),
            26 if a < 16 => self.writes.refuse(Some(io::ErrorKind::PermissionDenied)),
            27 if a < 64 => self.replace(usize::from(b) % GUESTS),
            28 => {
                let guest = &mut self.guests[usize::from(a) % GUESTS];
                guest.client.consume(&mut guest.sender).unwrap();
            }
            _ => {}
        }
        self.world.channel.repeat(&mut self.world.sides, 0);
        (0..=c % 4).for_each(|_| round(&mut self.world));
        self.world.disk.fail(false);
        self.take_ends();
        self.check();
    }

    fn start(&mut self, a: u8, b: u8, c: u8) {
        let number = usize::from(a) % GUESTS;
        let programs = &mut self.programs[number];
        let Some(subchannel) = programs.iter().position(Option::is_none) else { return };
        let first = u64::from(b) % BLOCKS;
        let count = 1 + u32::from(c) % (BLOCKS - first).min(20) as u32;
        let verb = if a & 64 == 0 { Verb::Write } else { Verb::Read };
        let mode = MODES[usize::from(a & 128 == 0)];
        let program = Program { verb, first, count, seed: self.now as u8, started: self.now };
        if verb == Verb::Write {
            self.history.start(&program);
        }
        programs[subchannel] = Some(program);
        let guest = &mut self.guests[number];
        start(guest, subchannel as u16, mode, verb, (first, count), program.seed);
    }

    /// A guest dies, and another one has its number.
    fn replace(&mut self, number: usize) {
        self.world.sides.0[number] = None;
        self.world.channel.detach(number);
        (0..4).for_each(|_| round(&mut self.world));
        let programs = self.programs[number].iter_mut().filter_map(Option::take);
        let writes = programs.filter(|program| program.verb == Verb::Write);
        self.orphans.extend(writes.map(|program| program.seed));
        let wish = wish_of(&self.world, number);
        self.guests[number] = self.world.guest_at(number, wish);
    }

    fn take_ends(&mut self) {
        for (guest, programs) in self.guests.iter_mut().zip(&mut self.programs) {
            while let Some((subchannel, scsw)) = ended(guest) {
                let program = programs[usize::from(subchannel)].take().unwrap();
                let Program { verb, first, count, seed, started } = program;
                assert!(scsw.is_good() || scsw.device.has(DeviceStatus::UNIT_CHECK), "{scsw:x?}");
                if verb == Verb::Write {
                    self.history.end(seed, self.now, scsw.is_good());
                } else if scsw.is_good() {
                    for index in 0..u64::from(count) {
                        let at = data(subchannel) as usize + index as usize * BLOCK_BYTES;
                        let found = &guest.client.storage()[at..at + BLOCK_BYTES];
                        let found = programs::seed_in(found, first + index);
                        self.history.check(first + index, found, started);
                    }
                }
            }
        }
        if self.world.unit.writes_under_way(0) == 0 {
            let now = self.now;
            self.orphans.drain(..).for_each(|seed| self.history.end(seed, now, false));
        }
    }

    /// The seeds of all blocks: those that survive a crash now, or those that the file has if it is not synced.
    fn surviving(&self) -> Vec<Option<u8>> {
        let disk = self.world.disk.0.lock().unwrap();
        let bytes = match self.world.unit.syncing(0) {
            Syncing::Fdatasync => disk.synced(),
            Syncing::File => disk.written(),
        };
        (0..BLOCKS).map(|number| seed_in(bytes, number)).collect()
    }

    /// What was acknowledged survives now.
    fn check(&self) {
        for (number, found) in (0..).zip(self.surviving()) {
            self.history.check(number, found, self.now + 1);
        }
    }

    /// Everything comes to its end.
    fn finish(mut self) {
        if self.world.unit.writing(0) == Writing::Direct {
            self.writes.refuse(None);
        }
        for _ in 0..1000 {
            self.now += 1;
            self.world.run();
            self.take_ends();
            self.check();
            for guest in &mut self.guests {
                guest.client.consume(&mut guest.sender).unwrap();
            }
            let reads = self.reads.as_ref().filter(|reads| reads.under_way() > 0);
            reads.into_iter().for_each(|reads| reads.end(0));
            if self.writes.under_way() > 0 {
                self.writes.end(0);
            } else if self.programs.iter().flatten().all(Option::is_none) {
                break;
            }
        }
        let left: Vec<_> = self.programs.iter().flatten().flatten().collect();
        assert!(left.is_empty(), "programs without end: {left:?}");
        // The device still does what it did.
        for (mode, seed) in MODES.into_iter().zip(253..=254) {
            start(&mut self.guests[0], 0, mode, Verb::Write, (0, BLOCKS as u32), seed);
            for _ in 0..100 {
                self.world.run();
                self.reads.iter().filter(|one| one.under_way() > 0).for_each(|one| one.end(0));
                (0..self.writes.under_way()).for_each(|_| self.writes.end(0));
            }
            let (subchannel, scsw) = ended(&mut self.guests[0]).expect("the write has ended");
            assert_eq!(subchannel, 0);
            if self.world.unit.failure(0).is_some() {
                // Until the volume is mounted anew.
                assert!(scsw.device.has(DeviceStatus::UNIT_CHECK), "{scsw:x?}");
                continue;
            }
            assert_good(&scsw);
            assert!(self.surviving().iter().all(|found| *found == Some(seed)));
        }
        for number in 0..GUESTS {
            self.world.sides.0[number] = None;
            self.world.channel.detach(number);
        }
        self.world.run();
        let is_synced = self.world.unit.syncing(0) == Syncing::Fdatasync;
        assert_eq!(self.world.disk.syncs() > 0, is_synced);
        assert_eq!(self.world.unit.pinned(0), 0);
        assert_eq!(
            (self.world.unit.writes_under_way(0), self.world.unit.reads_under_way(0)),
            (0, 0)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_is_there_whatever_the_disk_does(
        deeds in prop::collection::vec((0_u8..29, any::<u8>(), any::<u8>(), any::<u8>()), 1..200),
        slots in 4_usize..14,
        places in 1_usize..9,
        has_reads: bool,
        is_synced: bool,
    ) {
        let syncing = if is_synced { Syncing::Fdatasync } else { Syncing::File };
        let mut trial = Trial::new(slots, places, has_reads, syncing);
        deeds.into_iter().for_each(|(deed, a, b, c)| trial.act(deed, a, b, c));
        trial.finish();
    }
}
