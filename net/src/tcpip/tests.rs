//! Two stacks and a wire between them that loses, doubles and reorders, in virtual time; and frames of all kinds.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;


use super::{
    Congestion, ConnectionId, Counter, End, Link, Options, Readable, Secret, Stack, Unsent,
    Writable, address,
};
use crate::lan::frame::Mac;
use crate::lan::link::Frame;
use crate::lan::offload::{Offload, segment};

const SECOND: u64 = 1_000_000_000;

const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];

/// A generator of numbers from a seed (xorshift64*): the same ones each time.
#[derive(Clone)]
struct Chance(u64);

impl Chance {
    fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 33) % bound
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What a wire does to frames, each in percent.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    lost: u64,
    doubled: u64,
    delayed: u64,
    /// The target says that it is full.
    full: u64,
    /// A byte is another. The frame has a checksum then, as on a wire.
    corrupted: u64,
}

/// Frames under way to one of two stacks.
struct Wire {
    from: usize,
    now: u64,
    faults: Faults,
    chance: Chance,
    /// By time of arrival and a count.
    under_way: BTreeMap<(u64, u64), (Offload, Vec<u8>)>,
    count: u64,
    /// Whether frames are cut into segments with checksums, as by a port in front of a wire.
    cuts: bool,
}

impl Wire {
    fn put(&mut self, offload: Offload, bytes: Vec<u8>) {
        let delay = 10_000
            + match self.chance.happens(self.faults.delayed) {
                true => self.chance.below(3_000_000),
                false => 0,
            };
        self.count += 1;
        self.under_way.insert((self.now + delay, self.count), (offload, bytes));
    }

    fn send(&mut self, offload: Offload, mut bytes: Vec<u8>) {
        if self.chance.happens(self.faults.corrupted) {
            let at = 14 + self.chance.below(bytes.len() as u64 - 14) as usize;
            bytes[at] ^= 1 << self.chance.below(8);
        }
        if self.chance.happens(self.faults.lost) {
            return;
        }
        if self.chance.happens(self.faults.doubled) {
            self.put(offload, bytes.clone());
        }
        self.put(offload, bytes);
    }
}

impl Link for Wire {
    fn transmit(&mut self, _: IpAddr, offload: Offload, frame: &mut [u8]) -> Result<(), Unsent> {
        if self.chance.happens(self.faults.full) {
            return Err(Unsent::Full);
        }
        address(frame, MACS[1 - self.from], MACS[self.from]);
        // What the LAN would refuse is a fault of the stack.
        assert_eq!(Offload::parse(&offload.head(), frame), Ok(offload));
        if !self.cuts {
            self.send(offload, frame.to_vec());
            return Ok(());
        }
        let mut room = Vec::new();
        let mut segments = Vec::new();
        segment(offload, frame, &mut room, |bytes| segments.push(bytes.to_vec()));
        for bytes in segments {
            self.send(Offload::NONE, bytes);
        }
        Ok(())
    }

    fn answer(&mut self, frame: &[u8]) {
        self.send(Offload::NONE, frame.to_vec());
    }
}

/// Two stacks, and a wire in each direction.
struct World {
    now: u64,
    stacks: [Stack; 2],
    wires: [Wire; 2],
}

impl World {
    fn new(seed: u64, faults: Faults, cuts: bool, options: Options, family: usize) -> World {
        let mut chance = Chance::new(seed);
        let addresses = [["10.1.0.1", "10.1.0.2"], ["fd00::1", "fd00::2"]][family];
        let stacks = [0, 1].map(|at| {
            let address: IpAddr = addresses[at].parse().unwrap();
            Stack::new(MACS[at], &[address], options, Secret([chance.next() as u8; 16]))
        });
        let wires = [0, 1].map(|from| Wire {
            from,
            now: 0,
            faults,
            chance: Chance::new(chance.next()),
            under_way: BTreeMap::new(),
            count: 0,
            cuts,
        });
        World { now: 0, stacks, wires }
    }

    fn plain() -> World {
        World::new(1, Faults::default(), false, Options::default(), 0)
    }

    fn at(&self, stack: usize, port: u16) -> SocketAddr {
        SocketAddr::new(self.stacks[stack].addresses()[0], port)
    }

    /// Sends what is to be sent, and goes on to the next thing that happens. False if nothing ever will.
    fn step(&mut self) -> bool {
        for at in [0, 1] {
            self.wires[at].now = self.now;
            self.stacks[at].poll(self.now, &mut self.wires[at]);
        }
        let arrival = |wire: &Wire| wire.under_way.first_key_value().map(|((at, _), _)| *at);
        let arrivals = self.wires.iter().filter_map(arrival);
        let dues = self.stacks.iter().filter_map(Stack::due);
        // A full target has room again a little later.
        let rooms = self.stacks.iter().filter(|stack| stack.waits_for_room());
        let rooms = rooms.map(|_| self.now + 1000);
        let Some(next) = arrivals.chain(dues).chain(rooms).min() else { return false };
        self.now = self.now.max(next);
        for from in [0, 1] {
            self.wires[1 - from].now = self.now;
            while let Some(entry) = self.wires[from].under_way.first_entry()
                && entry.key().0 <= self.now
            {
                let (offload, bytes) = entry.remove();
                let frame = Frame { offload, bytes: &bytes };
                self.stacks[1 - from].receive(self.now, frame, &mut self.wires[1 - from]);
            }
        }
        true
    }

    /// Goes on until something is so, or for so long.
    fn until(&mut self, time: u64, mut is_so: impl FnMut(&mut World) -> bool) -> bool {
        let end = self.now + time;
        while self.now < end {
            if is_so(self) {
                return true;
            }
            if !self.step() {
                break;
            }
        }
        is_so(self)
    }

    /// A connection from the first stack to the second: both ends of it.
    fn connect(&mut self) -> [ConnectionId; 2] {
        let at = self.at(1, 7);
        let _ = self.stacks[1].listen(at, 16);
        let asking = self.stacks[0].connect(self.now, at).unwrap();
        let mut accepted = None;
        assert!(self.until(60 * SECOND, |world| {
            accepted = accepted.or_else(|| world.stacks[1].accept(at));
            accepted.is_some() && !world.stacks[0].is_connecting(asking)
        }));
        [asking, accepted.unwrap().0]
    }
}

/// The byte at this place of what a side sends.
fn byte(side: usize, at: usize) -> u8 {
    ((at as u32 + 17 * side as u32).wrapping_mul(2_654_435_761) >> 23) as u8
}

/// How a transfer ended at one side.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Complete,
    Failed(End),
}

/// Both sides send so many bytes, close their half, and receive all of the other's. What arrives is checked.
fn transfer(world: &mut World, ids: [ConnectionId; 2], bytes: usize) -> [Outcome; 2] {
    let mut sent = [0; 2];
    let mut received = [0; 2];
    let mut outcomes = [None, None];
    let end = world.now + 3600 * SECOND;
    while outcomes.iter().any(Option::is_none) {
        assert!(world.now < end, "it goes on without end: {sent:?} sent, {received:?} received");
        for side in [0, 1] {
            let (stack, id) = (&mut world.stacks[side], ids[side]);
            while stack.writable(id) == Writable::Room && sent[side] < bytes {
                let from = sent[side];
                let put = stack.send_with(id, |room| {
                    let count = room.len().min(bytes - from);
                    for (at, place) in room[..count].iter_mut().enumerate() {
                        *place = byte(side, from + at);
                    }
                    (count, count)
                });
                sent[side] += put.unwrap();
                if sent[side] == bytes {
                    stack.shut_sending(id);
                }
            }
            loop {
                let from = received[side];
                let count = stack.receive_with(id, |bytes| {
                    for (at, found) in bytes.iter().enumerate() {
                        assert_eq!(*found, byte(1 - side, from + at), "byte {}", from + at);
                    }
                    (bytes.len(), bytes.len())
                });
                let Some(count) = count else { break };
                received[side] += count;
            }
            match stack.readable(id) {
                Readable::Finished if outcomes[side].is_none() => {
                    assert_eq!(received[side], bytes, "the end came too early");
                    outcomes[side] = Some(Outcome::Complete);
                }
                Readable::Failed => {
                    outcomes[side] = Some(Outcome::Failed(stack.take_end(id).unwrap()));
                }
                _ => {}
            }
        }
        if !world.step() {
            break;
        }
    }
    outcomes.map(|outcome| outcome.expect("each side has come to an end"))
}

#[test]
fn both_sides_send_and_receive_all() {
    for (family, cuts) in [(0, false), (0, true), (1, false), (1, true)] {
        for mtu in [1500, 8192, 57_344] {
            let options = Options { mtu, ..Options::default() };
            let mut world = World::new(1, Faults::default(), cuts, options, family);
            let ids = world.connect();
            let outcomes = transfer(&mut world, ids, 1 << 20);
            assert_eq!(outcomes, [Outcome::Complete, Outcome::Complete]);
            // Nothing was lost, so nothing waited for a time to be over.
            assert!(world.now < SECOND, "{} ns with packets of {mtu} bytes", world.now);
            for side in [0, 1] {
                world.stacks[side].close(ids[side]);
            }
            assert!(world.until(60 * SECOND, |world| world.stacks.iter().all(Stack::is_quiet)));
            let counts = [0, 1].map(|side| world.stacks[side].counts());
            assert_eq!(counts.map(|(connections, _)| connections), [0, 0]);
            assert!(counts.iter().any(|(_, time_wait)| *time_wait == 1));
        }
    }
}

/// One world of the simulation: true if both sides have received all.
fn faulty_world(seed: u64) -> bool {
    let mut chance = Chance::new(seed);
    let faults = Faults {
        lost: chance.below(12),
        doubled: chance.below(10),
        delayed: chance.below(40),
        full: chance.below(30),
        corrupted: chance.below(5),
    };
    let congestion = [Congestion::None, Congestion::Cubic, Congestion::Reno];
    let options = Options {
        mtu: [1500, 8192, 57_344][chance.below(3) as usize],
        receive_bytes: 4096 << chance.below(7),
        send_bytes: 4096 << chance.below(7),
        congestion: congestion[chance.below(3) as usize],
        acknowledge_after: Duration::from_micros(chance.below(3) * 500),
        ..Options::default()
    };
    // Only what has checksums can be corrupted without that being received.
    let cuts = faults.corrupted > 0 || chance.happens(50);
    let family = chance.below(2) as usize;
    let mut world = World::new(chance.next(), faults, cuts, options, family);
    let at = world.at(1, 7);
    world.stacks[1].listen(at, 16).unwrap();
    let asking = world.stacks[0].connect(0, at).unwrap();
    let mut accepted = None;
    let is_connected = world.until(120 * SECOND, |world| {
        accepted = accepted.or_else(|| world.stacks[1].accept(at));
        accepted.is_some() && !world.stacks[0].is_connecting(asking)
            || world.stacks[0].readable(asking) == Readable::Failed
    });
    assert!(is_connected, "neither a connection nor an error");
    let Some((accepted, _)) = accepted else { return false };
    let bytes = chance.below(300_000) as usize + 1;
    let outcomes = transfer(&mut world, [asking, accepted], bytes);
    for (side, id) in [(0, asking), (1, accepted)] {
        assert_eq!(world.stacks[side].counter(Counter::Broken), 0, "the state machine panicked");
        world.stacks[side].close(id);
    }
    let quiet = world.until(300 * SECOND, |world| world.stacks.iter().all(Stack::is_quiet));
    assert!(quiet, "a connection is left");
    outcomes == [Outcome::Complete, Outcome::Complete]
}

/// `SIGA_SEED` runs one world, `SIGA_SEEDS` so many.
#[test]
fn all_arrives_intact_or_an_error_is_returned() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("SIGA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIGA_SEEDS").unwrap_or(60),
    };
    let count = seeds.end - seeds.start;
    let mut complete = 0;
    for seed in seeds {
        eprintln!("SIGA_SEED={seed}");
        complete += u64::from(faulty_world(seed));
    }
    // An error is for worlds that are much worse than these.
    assert!(count == 1 || complete * 10 >= count * 9, "{complete} of {count}");
}
