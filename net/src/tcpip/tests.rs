//! Two stacks and a wire between them that loses, doubles and reorders, in virtual time; and frames of all kinds.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabric::path::Lack;
use proptest::prelude::*;

use super::packet::{self, ACK, Bare, FIN, RST, SYN};
use super::{
    Awaited, Congestion, ConnectionId, Counter, Device, End, Link, Medium, Options, Readable,
    Secret, Stack, Unsent, Writable, address,
};
use crate::lan::frame::Mac;
use crate::lan::link::{Frame, FrameInPlace};
use crate::lan::offload::{Checksum, Kind, Offload, Segmentation, complete_checksum, segment};
use crate::wire::{Chance, Conditions, Model, Share};

mod awaited;
mod control;
mod cookies;
mod datagrams;
mod device;
mod distributor;
mod ends;
mod hostile;
mod keep_alive;
mod listening;
mod long_ways;
mod neighbours;
mod outside;
mod own;
mod parts;
mod pool;
mod ports;
mod rest;
mod routes;
mod script;
mod shards;
mod time_wait;
mod ways;

const SECOND: u64 = 1_000_000_000;

/// An address that neither of the two has.
const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 9, 9));

const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];

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

impl Faults {
    fn conditions(self) -> Conditions {
        let share = |percent: u64| Share::percent(percent as u32);
        Conditions {
            delay: Duration::from_micros(10),
            loss: share(self.lost),
            reordering: share(self.delayed),
            later_max: Duration::from_millis(3),
            duplication: share(self.doubled),
            corruption: share(self.corrupted),
            ..Conditions::default()
        }
    }
}

/// Frames under way to one of two stacks.
struct Wire {
    from: usize,
    now: u64,
    faults: Faults,
    /// What it does in place of the faults.
    conditions: Option<Conditions>,
    model: Model,
    chance: Chance,
    /// By time of arrival and a count.
    under_way: BTreeMap<(u64, u64), (Offload, Vec<u8>)>,
    count: u64,
    /// What it has run out of.
    lack: Option<Lack>,
    /// How often it had to say so.
    lacked: u64,
    /// Whether frames are cut into segments with checksums, as by a port in front of a wire.
    cuts: bool,
    /// Whether the stack has to complete frames.
    is_plain: bool,
}

impl Wire {
    fn new(from: usize, faults: Faults, seed: u64, cuts: bool) -> Wire {
        let (model, chance) = (Model::new(faults.conditions(), seed), Chance::new(!seed));
        let under_way = BTreeMap::new();
        Wire {
            from,
            now: 0,
            faults,
            conditions: None,
            model,
            chance,
            under_way,
            count: 0,
            lack: None,
            lacked: 0,
            cuts,
            is_plain: false,
        }
    }

    fn put(&mut self, offload: Offload, mut bytes: Vec<u8>) {
        self.model.set_conditions(self.conditions.unwrap_or(self.faults.conditions()));
        let fate = self.model.put(self.now, bytes.len());
        fate.corrupt(&mut bytes);
        for arrival in fate.arrivals() {
            self.count += 1;
            self.under_way.insert((arrival, self.count), (offload, bytes.clone()));
        }
    }
}

impl Link for Wire {
    fn transmit(
        &mut self,
        _: usize,
        _: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) -> Result<(), Unsent> {
        address(frame, MACS[1 - self.from], MACS[self.from]);
        Link::send(self, 0, offload, frame)
    }

    fn send(&mut self, _: usize, offload: Offload, frame: &[u8]) -> Result<(), Unsent> {
        if let Some(lack) = self.lack {
            self.lacked += 1;
            return Err(Unsent::Lacking(lack));
        }
        if self.chance.happens(Share::percent(self.faults.full as u32)) {
            return Err(Unsent::Full);
        }
        // What the LAN would refuse is a fault of the stack.
        assert_eq!(Offload::parse(&offload.head(), frame), Ok(offload));
        assert!(!self.is_plain || offload == Offload::NONE, "a frame that is not complete");
        if !self.cuts {
            self.put(offload, frame.to_vec());
            return Ok(());
        }
        let mut room = Vec::new();
        let mut segments = Vec::new();
        segment(offload, frame, &mut room, |bytes| segments.push(bytes.to_vec()));
        for bytes in segments {
            self.put(Offload::NONE, bytes);
        }
        Ok(())
    }

    fn may_send_from(&mut self, _: usize, _: &[u8], address: IpAddr) -> bool {
        address != STRANGER
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
            Stack::new(MACS[at], &[address], options, Secret([chance.number() as u8; 16]))
        });
        let wires = [0, 1].map(|from| Wire {
            is_plain: !options.device.completes_checksums,
            ..Wire::new(from, faults, chance.number(), cuts)
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
        self.step_before(u64::MAX)
    }

    /// The same, but goes on to no later time than this.
    fn step_before(&mut self, limit: u64) -> bool {
        for at in [0, 1] {
            self.wires[at].now = self.now;
            self.stacks[at].poll(self.now, &mut self.wires[at]);
        }
        let arrival = |wire: &Wire| wire.under_way.first_key_value().map(|((at, _), _)| *at);
        let arrivals = self.wires.iter().filter_map(arrival);
        let dues = self.stacks.iter().filter_map(Stack::due);
        // A full target has room again a little later.
        let waits = |(stack, wire): &(&Stack, &Wire)| stack.waits_for_room() && wire.lack.is_none();
        let rooms = self.stacks.iter().zip(&self.wires).filter(waits).map(|_| self.now + 1000);
        let Some(next) = arrivals.chain(dues).chain(rooms).min() else { return false };
        self.now = self.now.max(next.min(limit));
        for from in [0, 1] {
            self.wires[1 - from].now = self.now;
            while let Some(entry) = self.wires[from].under_way.first_entry()
                && entry.key().0 <= self.now
            {
                let (offload, bytes) = entry.remove();
                let frame = Frame { offload, bytes: &bytes };
                self.stacks[1 - from].receive(self.now, 0, frame, &mut self.wires[1 - from]);
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
            if !self.step_before(end) {
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
    /// It waits, because it does not know that the other side has failed.
    Waiting,
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
    // A side that has received all may have failed since, with its last bytes or its end under way.
    for side in [0, 1] {
        if let Some(end) = world.stacks[side].take_end(ids[side]) {
            outcomes[side] = Some(Outcome::Failed(end));
        }
    }
    let has_failed = outcomes.iter().any(|outcome| matches!(outcome, Some(Outcome::Failed(_))));
    outcomes.map(|outcome| match outcome {
        None if has_failed => Outcome::Waiting,
        outcome => outcome.expect("each side has come to an end"),
    })
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

/// One world of the simulation, in which one connection follows another: true if both sides have received all of both.
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
        device: Device {
            medium: [Medium::MEMORY, Medium::WIRE][chance.below(2) as usize],
            ..Device::LAN
        },
        ..Options::default()
    };
    // Only what has checksums can be corrupted without that being received.
    let cuts = faults.corrupted > 0 || chance.happens(Share::percent(50));
    let family = chance.below(2) as usize;
    let seed = chance.number();
    let medium = options.device.medium;
    let devices = [options.device, Device { medium, ..Device::LINE }, Device::WIRE];
    let device = devices[chance.below(3) as usize];
    let options = Options { device, ..options };
    let mut world = World::new(seed, faults, cuts, options, family);
    let at = world.at(1, 7);
    world.stacks[1].listen(at, 16).unwrap();
    // The second has the buffers of the first.
    [0, 1].map(|_| faulty_connection(&mut world, at, chance.below(300_000) as usize + 1))
        == [true; 2]
}

/// A connection in such a world, on which each side sends so many bytes: true if both have received all.
fn faulty_connection(world: &mut World, at: SocketAddr, bytes: usize) -> bool {
    let gives_up = |world: &World| {
        let reasons = [Counter::TimedOut, Counter::NeighboursUnreachable];
        reasons.map(|reason| world.stacks[1].counter(reason))
    };
    let before = gives_up(world);
    let asking = world.stacks[0].connect(world.now, at).unwrap();
    let mut accepted = None;
    let is_connected = world.until(120 * SECOND, |world| {
        accepted = accepted.or_else(|| world.stacks[1].accept(at));
        accepted.is_some() && !world.stacks[0].is_connecting(asking)
            || world.stacks[0].readable(asking) == Readable::Failed
    });
    let Some((accepted, _)) = accepted else {
        // The other side may have given up, and its reset may be lost, or nobody be there who would get it.
        let has_given_up = gives_up(world) != before;
        assert!(is_connected || has_given_up, "neither a connection nor an error");
        world.stacks[0].close(asking);
        return false;
    };
    // Long enough for all that is due.
    if bytes.is_multiple_of(3) {
        world.until(3 * SECOND, |_| false);
    }
    let outcomes = transfer(world, [asking, accepted], bytes);
    for (side, id) in [(0, asking), (1, accepted)] {
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
        None => 0..number("SIGA_SEEDS").unwrap_or(1000),
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

/// A connection with some bytes under way in both directions, and what has been received so far at each side.
fn in_mid_conversation() -> (World, [ConnectionId; 2]) {
    let mut world = World::plain();
    let ids = world.connect();
    for side in [0, 1] {
        let put = world.stacks[side].send_with(ids[side], |room| {
            room[..1000].copy_from_slice(&[side as u8; 1000]);
            (1000, ())
        });
        assert_eq!(put, Some(()));
    }
    (world, ids)
}

/// Gives the second stack a frame that somebody has made up.
fn inject(world: &mut World, offload: Offload, bytes: &[u8]) {
    let Ok(offload) = Offload::parse(&offload.head(), bytes) else { return };
    world.stacks[1].receive(world.now, 0, Frame { offload, bytes }, &mut world.wires[1]);
}

/// A segment from the first stack to the second, as anybody can make it.
fn segment_to(world: &World, ids: [ConnectionId; 2], bare: Bare, data: &[u8]) -> Vec<u8> {
    let (local, remote) = world.stacks[0].ends(ids[0]).unwrap();
    let mut frame = packet::bare(local, remote, bare);
    frame.extend_from_slice(data);
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[24..26].fill(0);
    let sum = !crate::lan::offload::folded(crate::lan::offload::sum_of(&frame[14..34]));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let offload = packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[1], MACS[0]);
    complete_checksum(offload.checksum, &mut frame);
    frame
}

/// Puts so many bytes into what a side sends.
fn put(world: &mut World, side: usize, id: ConnectionId, bytes: usize) {
    let mut sent = 0;
    while sent < bytes {
        let count = world.stacks[side].send_with(id, |room| {
            let count = room.len().min(bytes - sent);
            for (at, place) in room[..count].iter_mut().enumerate() {
                *place = byte(side, sent + at);
            }
            (count, count)
        });
        sent += count.expect("there is room");
    }
}

/// What has come for a side.
fn peek(world: &World, side: usize, id: ConnectionId) -> Vec<u8> {
    world.stacks[side].peek(id).flatten().copied().collect()
}

/// Takes all that has come for a side, of which the first byte is this one of what the other has sent.
fn take_all(world: &mut World, side: usize, id: ConnectionId, first: usize) -> usize {
    let mut count = 0;
    while let Some(taken) = world.stacks[side].receive_with(id, |bytes| {
        let is_right = |(at, found): (usize, &u8)| *found == byte(1 - side, first + count + at);
        assert!(bytes.iter().enumerate().all(is_right));
        (bytes.len(), bytes.len())
    }) {
        count += taken;
    }
    count
}

/// Asks for a connection from an address where nobody is, and completes it. Returns the sequence numbers of both sides.
fn forge_connection(world: &mut World, from: SocketAddr, to: SocketAddr) -> (u32, u32) {
    // A scale of windows, so that the other side scales its own.
    forge_connection_with(world, from, to, [1, 3, 3, 7])
}

/// The same, with these options.
fn forge_connection_with(
    world: &mut World,
    from: SocketAddr,
    to: SocketAddr,
    options: [u8; 4],
) -> (u32, u32) {
    let mut frame = packet::begin(from.ip(), to.ip(), packet::TCP, 24);
    frame.extend_from_slice(&[from.port().to_be_bytes(), to.port().to_be_bytes()].concat());
    frame.extend_from_slice(&[0, 0, 0, 9, 0, 0, 0, 0, 6 << 4, SYN, 255, 255, 0, 0, 0, 0]);
    frame.extend_from_slice(&options);
    address(&mut frame, MACS[1], MACS[0]);
    let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
    inject(world, offload, &frame);
    let (_, (_, answer)) = world.wires[1].under_way.pop_last().unwrap();
    let answer = packet::Packet::parse(&answer).unwrap();
    let answer = packet::Segment::parse(answer.transport()).unwrap();
    assert_eq!((answer.flags, answer.acknowledgement), (SYN | ACK, 10));
    (10, answer.sequence.wrapping_add(1))
}
