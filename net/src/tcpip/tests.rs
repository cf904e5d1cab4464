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

mod control;
mod cookies;
mod device;
mod keep_alive;
mod neighbours;
mod outside;
mod own;
mod parts;
mod ports;
mod routes;
mod script;
mod shards;
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

#[test]
fn data_is_taken_from_where_it_lies_and_all_else_is_not() {
    let (mut world, ids) = in_mid_conversation();
    assert!(world.until(SECOND, |world| peek(world, 1, ids[1]).len() == 1000));
    let (sent, expected) = world.stacks[1].numbers(ids[1]);
    let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
    let say = |world: &World, flags, sequence, data: &[u8]| {
        let bare = Bare { flags, sequence, acknowledgement: sent, window: 4096, ..Bare::default() };
        segment_to(world, ids, bare, data)
    };
    let admit = |world: &mut World, offload, frame: &[u8], bytes| {
        let World { stacks, wires, .. } = world;
        stacks[1].admit_in_place(0, offload, (frame, bytes), &mut wires[1])
    };
    let frame = say(&world, ACK, expected, &[7; 500]);
    let admitted = admit(&mut world, offload, &frame, frame.len()).unwrap();
    let in_place = |start| FrameInPlace { offload, start, rest: None };
    world.stacks[1].receive_in_place(world.now, admitted, in_place(&frame));
    assert_eq!(peek(&world, 1, ids[1])[1000..], [7; 500]);
    // What is not there any more is as if it had not come.
    let expected = expected + 500;
    let frame = say(&world, ACK, expected, &[8; 500]);
    let admitted = admit(&mut world, offload, &frame[..200], frame.len()).unwrap();
    world.stacks[1].receive_in_place(world.now, admitted, in_place(&frame[..200]));
    assert_eq!(peek(&world, 1, ids[1]).len(), 1500);
    // Somebody else's acknowledgement is answered later, when there is a link.
    let beyond = Bare {
        flags: ACK,
        sequence: expected,
        acknowledgement: sent + 9,
        window: 1,
        ..Bare::default()
    };
    let frame = segment_to(&world, ids, beyond, &[9; 10]);
    let admitted = admit(&mut world, offload, &frame, frame.len()).unwrap();
    world.stacks[1].receive_in_place(world.now, admitted, in_place(&frame));
    world.until(1000, |_| false);
    assert_eq!(world.stacks[1].counter(Counter::ChallengesSent), 1);
    for (flags, data) in [(ACK, 0), (ACK | FIN, 10), (ACK | RST, 10), (SYN, 10), (FIN, 10)] {
        let frame = say(&world, flags, expected, &vec![1; data]);
        assert!(admit(&mut world, offload, &frame, frame.len()).is_none(), "{flags:x}");
    }
    let frame = say(&world, ACK, expected, &[1; 100]);
    assert!(admit(&mut world, Offload::NONE, &frame, frame.len()).is_none(), "not verified");
    assert!(admit(&mut world, offload, &frame, frame.len() - 1).is_none(), "shorter than it says");
    for bytes in 0..54 {
        assert!(admit(&mut world, offload, &frame[..bytes], frame.len()).is_none(), "{bytes}");
    }
}

proptest! {
    #[test]
    fn no_frame_of_any_kind_brings_a_stack_down(
        frames in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..200), any::<bool>(), 0..6usize),
            1..40,
        ),
    ) {
        let (mut world, ids) = in_mid_conversation();
        let (local, remote) = world.stacks[0].ends(ids[0]).unwrap();
        for (bytes, is_trusted, kind) in frames {
            let checksum = if is_trusted { Checksum::Verified } else { Checksum::Unknown };
            let offload = Offload { checksum, ..Offload::NONE };
            // What is random from the first byte on gets no further than the first check: so most of it begins well.
            let mut frame = match kind {
                0 => bytes,
                1 => packet::begin(local.ip(), remote.ip(), packet::TCP, bytes.len()),
                2 => packet::begin(local.ip(), remote.ip(), packet::UDP, bytes.len()),
                3 => packet::begin(local.ip(), remote.ip(), packet::ICMP, bytes.len()),
                _ => {
                    let mut frame = packet::begin(local.ip(), remote.ip(), packet::TCP, bytes.len() + 4);
                    frame.extend_from_slice(&local.port().to_be_bytes());
                    frame.extend_from_slice(&remote.port().to_be_bytes());
                    frame.extend_from_slice(&bytes);
                    frame
                }
            };
            if (1..4).contains(&kind) {
                frame.resize(frame.len() + 60, 0x5a);
            }
            if kind > 0 {
                address(&mut frame, MACS[1], MACS[0]);
            }
            let World { stacks, wires, .. } = &mut world;
            let start = &frame[..frame.len().min(134)];
            let admitted = stacks[1].admit_in_place(0, offload, (start, frame.len()), &mut wires[1]);
            match admitted {
                Some(admitted) => {
                    let frame = FrameInPlace { offload, start: &frame, rest: None };
                    stacks[1].receive_in_place(0, admitted, frame);
                }
                None => inject(&mut world, offload, &frame),
            }
            world.step();
        }
        // Another connection works as if nothing had been.
        let ids = world.connect();
        let outcomes = transfer(&mut world, ids, 10_000);
        prop_assert_eq!(outcomes, [Outcome::Complete, Outcome::Complete]);
    }

    #[test]
    fn forged_segments_end_no_connection_and_change_no_byte(
        forged in prop::collection::vec(
            (any::<u32>(), any::<u32>(), any::<u8>(), any::<u16>(), 0..50usize),
            1..40,
        ),
    ) {
        let (mut world, ids) = in_mid_conversation();
        for (sequence, acknowledgement, flags, window, bytes) in forged {
            // Whoever guesses the window of 256 KiB among 4 GiB has guessed well: that is not defended against.
            let (_, expected) = world.stacks[1].numbers(ids[1]);
            let distance = sequence.wrapping_sub(expected).wrapping_add(1 << 20);
            if distance < 1 << 21 {
                continue;
            }
            let bare = Bare { flags, sequence, acknowledgement, window, ..Bare::default() };
            let frame = segment_to(&world, ids, bare, &vec![0xee; bytes]);
            inject(&mut world, Offload::NONE, &frame);
            world.step();
        }
        for side in [0, 1] {
            let mut received = 0;
            let has_all = world.until(10 * SECOND, |world| {
                while let Some(count) = world.stacks[side].receive_with(ids[side], |bytes| {
                    assert!(bytes.iter().all(|byte| *byte == 1 - side as u8));
                    (bytes.len(), bytes.len())
                }) {
                    received += count;
                }
                received == 1000
            });
            prop_assert!(has_all, "{received} bytes");
            prop_assert_eq!(world.stacks[side].readable(ids[side]), Readable::Nothing);
        }
    }
}

#[test]
fn reset_is_believed_at_the_next_byte_alone() {
    let (mut world, ids) = in_mid_conversation();
    assert!(world.until(SECOND, |world| peek(world, 1, ids[1]).len() == 1000));
    let (_, expected) = world.stacks[1].numbers(ids[1]);
    let reset =
        |sequence| Bare { flags: RST, sequence, acknowledgement: 0, window: 0, ..Bare::default() };
    for sequence in [expected.wrapping_sub(1), expected + 1, expected + 5000] {
        let frame = segment_to(&world, ids, reset(sequence), &[]);
        inject(&mut world, Offload::NONE, &frame);
    }
    assert_eq!(world.stacks[1].counter(Counter::OutOfWindow), 3);
    // One in half a second.
    assert_eq!(world.stacks[1].counter(Counter::ChallengesSent), 1);
    world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), ()));
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Nothing);
    let begin =
        Bare { flags: SYN, sequence: expected, acknowledgement: 0, window: 100, ..Bare::default() };
    let frame = segment_to(&world, ids, begin, &[]);
    world.now += SECOND;
    inject(&mut world, Offload::NONE, &frame);
    assert_eq!(world.stacks[1].counter(Counter::ChallengesSent), 2);
    let frame = segment_to(&world, ids, reset(expected), &[]);
    inject(&mut world, Offload::NONE, &frame);
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Failed);
    assert_eq!(world.stacks[1].take_end(ids[1]), Some(End::Reset));
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Finished);
    assert_eq!(world.stacks[1].writable(ids[1]), Writable::Closed);
}

#[test]
fn end_behind_more_than_was_asked_for_is_not_the_end() {
    let options = Options { receive_bytes: 4096, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let ids = world.connect();
    let (sent, expected) = world.stacks[1].numbers(ids[1]);
    let bare = Bare {
        flags: ACK | FIN,
        sequence: expected,
        acknowledgement: sent,
        window: 4096,
        ..Bare::default()
    };
    let frame = segment_to(&world, ids, bare, &[7; 5000]);
    inject(&mut world, Offload::NONE, &frame);
    let taken = world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), bytes.len()));
    assert_eq!(taken, Some(4096));
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Nothing);
}

#[test]
fn side_that_says_each_byte_by_itself_costs_no_more_than_another() {
    let mut world = World::plain();
    let (from, to) = (SocketAddr::new([10, 1, 7, 7].into(), 1024), world.at(1, 7));
    world.stacks[1].listen(to, 8).unwrap();
    let numbers = forge_connection_with(&mut world, from, to, [1, 1, 4, 2]);
    let (sequence, acknowledgement) = numbers;
    let say = |world: &mut World, sequence: u32, ranges: &[u32], data: &[u8]| {
        let mut frame = packet::begin(from.ip(), to.ip(), packet::TCP, 20 + 4 + 8 + data.len());
        frame.extend([from.port().to_be_bytes(), to.port().to_be_bytes()].concat());
        frame.extend([sequence.to_be_bytes(), acknowledgement.to_be_bytes()].concat());
        frame.extend([8 << 4, ACK, 255, 255, 0, 0, 0, 0, 1, 1, 5, 10]);
        frame.extend(ranges.iter().flat_map(|number| number.to_be_bytes()));
        frame.extend(data);
        address(&mut frame, MACS[1], MACS[0]);
        inject(world, Offload { checksum: Checksum::Verified, ..Offload::NONE }, &frame);
    };
    say(&mut world, sequence, &[0, 0], &[]);
    let (id, _) = world.stacks[1].accept(to).unwrap();
    put(&mut world, 1, id, 60_000);
    world.step_before(world.now);
    let begin = std::time::Instant::now();
    for number in 0..14_000 {
        let byte = acknowledgement.wrapping_add(1 + 2 * number);
        say(&mut world, sequence, &[byte, byte.wrapping_add(1)], &[]);
        say(&mut world, sequence + 1 + 2 * number, &[0, 0], b"x");
    }
    eprintln!("{:?} for 28,000 segments", begin.elapsed());
    let (pieces, ranges) = world.stacks[1].pieces(id);
    assert!(pieces < 300 && ranges <= 256, "{pieces} pieces, {ranges} ranges");
}

#[test]
fn closed_port_refuses_and_full_backlog_does_not() {
    let mut world = World::plain();
    let to = world.at(1, 9);
    let refused = world.stacks[0].connect(0, to).unwrap();
    assert!(world.until(SECOND, |world| !world.stacks[0].is_connecting(refused)));
    assert_eq!(world.stacks[0].take_end(refused), Some(End::Refused));
    assert_eq!(world.stacks[1].counter(Counter::ResetsSent), 1);

    world.stacks[1].listen(to, 2).unwrap();
    let now = world.now;
    let asking = [0, 1, 2].map(|_| world.stacks[0].connect(now, to).unwrap());
    let is_there = |world: &World| asking.map(|id| !world.stacks[0].is_connecting(id));
    assert!(!world.until(SECOND / 2, |world| is_there(world) == [true; 3]));
    assert_eq!(is_there(&world), [true, true, false]);
    assert_eq!(world.stacks[1].counter(Counter::BacklogFull), 1);
    assert!(world.stacks[1].accept(to).is_some());
    assert!(world.until(2 * SECOND, |world| is_there(world) == [true; 3]));
    // Those that nobody has accepted are reset when nobody listens any more.
    world.stacks[1].stop_listening(to);
    assert!(
        world.until(2 * SECOND, |world| world.stacks[0].readable(asking[2]) == Readable::Failed)
    );
    assert_eq!(world.stacks[0].take_end(asking[2]), Some(End::Reset));
    assert_eq!(world.stacks[0].readable(asking[0]), Readable::Nothing);
}

#[test]
fn half_open_connections_fill_the_backlog_and_nothing_else() {
    let mut world = World::plain();
    let to = world.at(1, 7);
    world.stacks[1].listen(to, 8).unwrap();
    for number in 0..100u16 {
        let from = SocketAddr::new([10, 1, 7, 7].into(), 1024 + number);
        let bare =
            Bare { flags: SYN, sequence: 0, acknowledgement: 0, window: 100, ..Bare::default() };
        let mut frame = packet::bare(from, to, bare);
        packet::leave_checksum(&mut frame);
        address(&mut frame, MACS[1], MACS[0]);
        let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
        inject(&mut world, offload, &frame);
    }
    assert_eq!(world.stacks[1].counts(), (8, 0));
    assert_eq!(world.stacks[1].counter(Counter::BacklogFull), 92);
    // Another host has one of their places at once.
    world.connect();
    assert!(world.now < SECOND / 10);
    assert_eq!(world.stacks[1].counter(Counter::HalfOpenEvicted), 1);
    // They go when their time is over.
    assert!(world.until(70 * SECOND, |world| world.stacks[1].counts() == (1, 0)));
}

#[test]
fn buffers_are_limited_and_nothing_is_lost_for_want_of_them() {
    let options = Options { pool_bytes: 16 << 14, pool_kept_bytes: 2 << 14, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let pool = |world: &World| {
        let usage = world.stacks[1].pool();
        (usage.in_use, usage.high_water, usage.in_use_max, usage.free)
    };
    let ids = world.connect();
    assert_eq!(pool(&world), (0, 0, 16, 0), "an idle connection has none");
    put(&mut world, 0, ids[0], 80_000);
    assert_eq!(world.stacks[0].pool().in_use, 5);
    world.until(SECOND, |_| false);
    assert_eq!(pool(&world), (5, 5, 16, 0));
    assert_eq!(world.stacks[0].pool().in_use, 0, "what was acknowledged needs none");
    // What does not find any is sent again, when others are read.
    put(&mut world, 0, ids[0], 80_000);
    assert!(world.until(SECOND, |world| world.stacks[1].counter(Counter::PoolExhausted) > 0));
    let mut received = 0;
    let mut take = |world: &mut World, bytes: usize| {
        while received < bytes
            && let Some(count) =
                world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), bytes.len()))
        {
            received += count;
        }
        received == bytes
    };
    assert!(world.until(5 * SECOND, |world| take(world, 160_000)));
    assert_eq!(pool(&world), (0, 6, 16, 2));
    assert_eq!(transfer(&mut world, ids, 1 << 20), [Outcome::Complete, Outcome::Complete]);
}

#[test]
fn connection_whose_data_finds_no_buffer_is_not_given_up() {
    let options = Options { pool_bytes: 16 << 14, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let [one, other] = [0; 2].map(|_| world.connect());
    // One is not read: it has all that its host may have.
    put(&mut world, 0, one[0], 80_000);
    world.until(SECOND, |_| false);
    put(&mut world, 0, one[0], 40_000);
    put(&mut world, 0, other[0], 10);
    world.until(SECOND, |_| false);
    assert_eq!(world.stacks[1].readable(other[1]), Readable::Nothing);
    world.until(300 * SECOND, |_| false);
    assert_eq!([one, other].map(|ids| world.stacks[0].take_end(ids[0])), [None, None]);
    // As soon as there is a buffer it goes on.
    while world.stacks[1].receive_with(one[1], |bytes| (bytes.len(), ())).is_some() {}
    let has_come = |world: &mut World| world.stacks[1].readable(other[1]) == Readable::Bytes;
    assert!(world.until(SECOND, has_come));
}

#[test]
fn writer_that_found_no_buffer_is_named_when_another_gives_some_back() {
    let options = Options { pool_bytes: 8 << 14, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let [one, other] = [0; 2].map(|_| world.connect()[0]);
    world.wires[0].faults.lost = 100;
    world.stacks[0].watch(other, 7);
    put(&mut world, 0, one, 3 << 14);
    while world.stacks[0].take_changed().is_some() {}
    assert_eq!(world.stacks[0].writable(other), Writable::Nothing);
    world.until(SECOND / 1000, |_| false);
    assert_eq!(world.stacks[0].take_changed(), None);
    world.wires[0].faults.lost = 0;
    assert!(world.until(10 * SECOND, |world| world.stacks[0].take_changed() == Some(7)));
    assert_eq!(world.stacks[0].writable(other), Writable::Room);
}

#[test]
fn address_that_its_sender_has_not_registered_is_dropped() {
    let mut world = World::plain();
    let to = world.at(1, 7);
    world.stacks[1].listen(to, 8).unwrap();
    let bare = Bare { flags: SYN, sequence: 0, acknowledgement: 0, window: 100, ..Bare::default() };
    let mut frame = packet::bare(SocketAddr::new(STRANGER, 1024), to, bare);
    packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[1], MACS[0]);
    let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
    inject(&mut world, offload, &frame);
    assert_eq!(world.stacks[1].counts(), (0, 0));
    assert_eq!(world.stacks[1].counter(Counter::BadSource), 1);
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

#[test]
fn member_that_takes_nothing_keeps_no_connection_for_ever() {
    let mut world = World::plain();
    let all: Vec<_> = (0..300).map(|_| world.connect()).collect();
    world.wires[1].faults.full = 100;
    for ids in &all {
        put(&mut world, 0, ids[0], 10);
    }
    assert!(!world.until(SECOND / 100, |_| false));
    // What has come is not read: so each is to be told by a reset, for which there is no room.
    for ids in &all {
        world.stacks[1].close(ids[1]);
    }
    assert!(!world.until(SECOND / 100, |_| false));
    assert_eq!(world.stacks[1].counts(), (300, 0));
    assert!(world.until(61 * SECOND, |world| world.stacks[1].counts() == (0, 0)));
    // What was waiting for the target goes when there is room.
    world.wires[1].faults.full = 0;
    assert!(world.until(SECOND, |world| !world.stacks[1].waits_for_room()));
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

#[test]
fn data_beyond_the_first_window_is_not_taken() {
    for first in [0, 40_000, 70_000] {
        let mtu = 57_344;
        let options = Options { mtu, receive_bytes: 1 << 20, ..Options::default() };
        let mut world = World::new(1, Faults::default(), false, options, 0);
        let (from, to) = (SocketAddr::new([10, 1, 7, 7].into(), 1024), world.at(1, 7));
        world.stacks[1].listen(to, 8).unwrap();
        let (sequence, acknowledgement) = forge_connection(&mut world, from, to);
        // All of it comes before the other side has sent anything but its first segment, whose window is 65,535 bytes.
        for at in (first..1_200_000).step_by(50_000) {
            let sequence = sequence + at as u32;
            let bare =
                Bare { flags: ACK, sequence, acknowledgement, window: 65_535, ..Bare::default() };
            let mut frame = packet::bare(from, to, bare);
            frame.extend((0..50_000).map(|byte_at| byte(0, at + byte_at)));
            let total = (frame.len() - 14) as u16;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            frame[24..26].fill(0);
            let sum = !crate::lan::offload::folded(crate::lan::offload::sum_of(&frame[14..34]));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            address(&mut frame, MACS[1], MACS[0]);
            let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
            inject(&mut world, offload, &frame);
        }
        assert_eq!(world.stacks[1].counter(Counter::Malformed), 0);
        // What begins behind the window does not even make the connection.
        let Some((id, _)) = world.stacks[1].accept(to) else {
            assert_eq!(first, 70_000);
            continue;
        };
        let received = take_all(&mut world, 1, id, 0);
        assert_eq!(received, if first == 0 { 65_535 } else { 0 });
    }
}

#[test]
fn frames_have_no_more_segments_than_the_lan_takes_however_short_they_are() {
    for (mtu, segment_bytes) in [(1500, 1460), (57_344, 536), (57_344, 200), (1500, 100), (1500, 1)]
    {
        let options = Options { mtu, congestion: Congestion::None, ..Options::default() };
        let mut world = World::new(1, Faults::default(), false, options, 0);
        let (from, to) = (SocketAddr::new([10, 1, 7, 7].into(), 1024), world.at(1, 7));
        world.stacks[1].listen(to, 8).unwrap();
        let [high, low] = u16::to_be_bytes(segment_bytes);
        let numbers = forge_connection_with(&mut world, from, to, [2, 4, high, low]);
        let (sequence, acknowledgement) = numbers;
        let bare =
            Bare { flags: ACK, sequence, acknowledgement, window: 65_535, ..Bare::default() };
        let mut frame = packet::bare(from, to, bare);
        address(&mut frame, MACS[1], MACS[0]);
        inject(&mut world, Offload { checksum: Checksum::Verified, ..Offload::NONE }, &frame);
        let (id, _) = world.stacks[1].accept(to).unwrap();
        put(&mut world, 1, id, 200_000);
        // The wire refuses what the LAN would.
        let World { stacks, wires, now } = &mut world;
        while stacks[1].poll(*now, &mut wires[1]) {}
        let sent = world.wires[1].under_way.values().map(|(_, bytes)| bytes.len() - 54);
        assert!(sent.sum::<usize>() > 65_535 - 2 * 1460, "{segment_bytes}");
    }
}

#[test]
fn segments_that_acknowledge_nothing_new_do_not_keep_a_silent_side() {
    let (mut world, ids) = in_mid_conversation();
    assert!(
        world.until(5 * SECOND, |world| world.stacks.iter().all(|stack| stack.due().is_none()))
    );
    let (sequence, _) = world.stacks[0].numbers(ids[0]);
    put(&mut world, 1, ids[1], 1);
    for wire in &mut world.wires {
        wire.faults.lost = 100;
    }
    let now = world.now;
    let (next, _) = world.stacks[1].numbers(ids[1]);
    for _ in 0..118 {
        world.until(SECOND, |_| false);
        let bare =
            Bare { flags: ACK, sequence, acknowledgement: next, window: 1000, ..Bare::default() };
        let frame = segment_to(&world, ids, bare, &[]);
        inject(&mut world, Offload::NONE, &frame);
    }
    assert!(world.until(9 * SECOND, |world| world.stacks[1].writable(ids[1]) == Writable::Failed));
    assert_eq!(world.stacks[1].take_end(ids[1]), Some(End::TimedOut));
    assert_eq!((world.now - now) / SECOND, 120);
}

#[test]
fn side_with_a_closed_window_learns_what_the_other_has() {
    let options = Options { receive_bytes: 256 << 10, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let ids = world.connect();
    for bytes in [100_000, 100_000, (256 << 10) - 200_000] {
        put(&mut world, 0, ids[0], bytes);
        world.until(SECOND / 10, |_| false);
    }
    for wire in &mut world.wires {
        wire.faults.lost = 100;
    }
    let acknowledge = |world: &mut World, ahead: usize| {
        put(world, 1, ids[1], 1000);
        world.until(SECOND / 10, |_| false);
        let (next, expected) = world.stacks[1].numbers(ids[1]);
        let sequence = expected.wrapping_add(ahead as u32);
        let bare =
            Bare { flags: ACK, sequence, acknowledgement: next, window: 1000, ..Bare::default() };
        let frame = segment_to(world, ids, bare, &[]);
        inject(world, Offload::NONE, &frame);
        world.until(20 * SECOND, |_| false);
        world.stacks[1].counter(Counter::Resent)
    };
    // The window is closed: the other side says at its end what it has.
    assert_eq!(acknowledge(&mut world, 0), 0);
    // Behind that nothing was ever asked for, but for what a window loses when it is scaled.
    assert!(acknowledge(&mut world, 16) > 0);
}

#[test]
fn side_that_does_not_read_for_an_hour_keeps_its_connection() {
    let options = Options { receive_bytes: 4096, send_bytes: 16_384, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let ids = world.connect();
    put(&mut world, 0, ids[0], 16_384);
    assert!(!world.until(3600 * SECOND, |_| false));
    assert_eq!(world.stacks[0].writable(ids[0]), Writable::Room);
    let mut received = 0;
    assert!(world.until(100 * SECOND, |world| {
        let count = world.stacks[1].receive_with(ids[1], |bytes| {
            assert!(bytes.iter().enumerate().all(|(at, found)| *found == byte(0, received + at)));
            (bytes.len(), bytes.len())
        });
        received += count.unwrap_or(0);
        received == 16_384
    }));
}

#[test]
fn what_was_written_before_a_close_goes_on_while_the_other_side_reads() {
    let options = Options { receive_bytes: 4096, ..Options::default() };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let ids = world.connect();
    put(&mut world, 0, ids[0], 60_000);
    world.stacks[0].close(ids[0]);
    let mut received = 0;
    while world.stacks[1].readable(ids[1]) != Readable::Finished {
        assert_ne!(world.stacks[1].readable(ids[1]), Readable::Failed, "after {received} bytes");
        world.until(20 * SECOND, |_| false);
        let count = world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), bytes.len()));
        received += count.unwrap_or(0);
    }
    assert_eq!(received, 60_000);
    assert!(world.now > 200 * SECOND);
}

#[test]
fn reset_is_believed_after_a_side_has_begun_to_send_again() {
    let mut world = World::plain();
    let ids = world.connect();
    world.wires[1].faults.lost = 100;
    put(&mut world, 0, ids[0], 100_000);
    world.until(5 * SECOND / 2, |_| false);
    world.wires[1].faults.lost = 0;
    world.stacks[0].abort(ids[0]);
    let has_ended = world.until(SECOND / 10, |world| {
        world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), ()));
        world.stacks[1].readable(ids[1]) == Readable::Failed
    });
    assert!(has_ended);
    assert_eq!(world.stacks[1].counter(Counter::OutOfWindow), 0);
    assert_eq!(world.stacks[1].take_end(ids[1]), Some(End::Reset));
}

#[test]
fn blind_byte_does_not_reset_a_connection_that_is_being_closed() {
    let (mut world, ids) = in_mid_conversation();
    assert!(world.until(SECOND, |world| peek(world, 1, ids[1]).len() == 1000));
    world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), ()));
    let (next, expected) = world.stacks[1].numbers(ids[1]);
    world.stacks[1].close(ids[1]);
    world.until(SECOND, |_| false);
    assert_eq!(world.stacks[1].counts(), (1, 0));
    let say = |world: &mut World, sequence, acknowledgement| {
        let bare = Bare { flags: ACK, sequence, acknowledgement, window: 1000, ..Bare::default() };
        let frame = segment_to(world, ids, bare, &[7]);
        inject(world, Offload::NONE, &frame);
        world.until(SECOND, |_| false);
    };
    for (sequence, acknowledgement) in
        [(expected + 5, next), (expected.wrapping_add(1 << 30), next), (expected, next + 70_000)]
    {
        say(&mut world, sequence, acknowledgement);
    }
    assert_eq!(world.stacks[1].counts(), (1, 0));
    assert_eq!(world.stacks[1].counter(Counter::ChallengesSent), 3);
    // The other side knows where it is.
    say(&mut world, expected, next);
    assert_eq!(world.stacks[1].counts(), (0, 0));
    assert_eq!(world.stacks[0].writable(ids[0]), Writable::Failed);
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::Unwanted));
    assert_eq!(world.stacks[0].writable(ids[0]), Writable::Closed);
}

#[test]
fn times_without_end_are_no_overflow() {
    let options = Options {
        silence_max: Duration::MAX,
        connect_max: Duration::MAX,
        time_wait: Duration::MAX,
        acknowledge_after: Duration::MAX,
        ..Options::default()
    };
    let mut world = World::new(1, Faults::default(), false, options, 0);
    let ids = world.connect();
    assert_eq!(transfer(&mut world, ids, 100_000), [Outcome::Complete, Outcome::Complete]);
    for side in [0, 1] {
        world.stacks[side].close(ids[side]);
    }
    assert!(world.until(60 * SECOND, |world| world.stacks.iter().all(Stack::is_quiet)));
}

#[test]
fn what_had_come_before_receiving_was_shut_is_received() {
    let (mut world, ids) = in_mid_conversation();
    assert!(world.until(SECOND, |world| peek(world, 1, ids[1]).len() == 1000));
    world.stacks[1].shut_receiving(ids[1]);
    put(&mut world, 0, ids[0], 100_000);
    world.until(SECOND, |_| false);
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Bytes);
    assert_eq!(peek(&world, 1, ids[1]), &[0; 1000]);
    let taken = world.stacks[1].receive_with(ids[1], |bytes| (600, bytes.len()));
    assert_eq!(taken, Some(1000));
    assert_eq!(peek(&world, 1, ids[1]), &[0; 400]);
    world.stacks[1].receive_with(ids[1], |_| (400, ()));
    assert_eq!(world.stacks[1].readable(ids[1]), Readable::Finished);
    // What came later was taken, and is gone.
    assert_eq!(world.stacks[0].writable(ids[0]), Writable::Room);
    let (next, _) = world.stacks[0].numbers(ids[0]);
    assert_eq!(world.stacks[1].numbers(ids[1]).1, next);
}

#[test]
fn reader_learns_that_the_other_side_is_gone_or_another() {
    let (mut world, ids) = in_mid_conversation();
    world.until(SECOND, |_| false);
    let host = world.at(1, 0).ip();
    assert_eq!(world.stacks[0].hosts(), [host].into());
    // One that is still there answers, and nothing changes.
    world.stacks[0].question(host);
    let sent = world.stacks[1].counter(Counter::FramesSent);
    world.until(SECOND, |_| false);
    assert_eq!(world.stacks[1].counter(Counter::FramesSent), sent + 1);
    assert_eq!(world.stacks[0].readable(ids[0]), Readable::Bytes);
    world.stacks[0].receive_with(ids[0], |bytes| (bytes.len(), ()));
    // Another stack at the same address knows nothing of it.
    world.stacks[1] = Stack::new(MACS[1], &[host], Options::default(), Secret([9; 16]));
    // That it is asked may be lost with the path.
    world.wires[0].faults.lost = 100;
    world.stacks[0].question(host);
    world.until(5 * SECOND, |_| false);
    assert_eq!(world.stacks[0].take_end(ids[0]), None);
    world.wires[0].faults.lost = 0;
    world.until(5 * SECOND, |_| false);
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::Reset));

    let ids = world.connect();
    world.wires[0].faults.full = 100;
    put(&mut world, 0, ids[0], 10);
    world.stacks[0].poll(world.now, &mut world.wires[0]);
    assert!(world.stacks[0].waits_for_room());
    world.stacks[0].end_with(host);
    assert!(!world.stacks[0].waits_for_room(), "what waits there is for nobody");
    assert_eq!(world.stacks[0].readable(ids[0]), Readable::Failed);
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::Gone));
    assert!(world.stacks[0].is_quiet());
}

#[test]
fn what_has_run_out_is_no_loss_and_is_named() {
    let mut world = World::plain();
    let ids = world.connect();
    world.wires[0].lack = Some(Lack::Descriptors);
    put(&mut world, 0, ids[0], 10);
    world.until(50 * SECOND, |_| false);
    assert_eq!(world.stacks[0].take_end(ids[0]), None);
    // A connection that is to be made is told at once, and so is a datagram.
    let at = world.at(1, 7);
    let refused = world.stacks[0].connect(world.now, at).unwrap();
    world.until(SECOND, |world| world.stacks[0].readable(refused) == Readable::Failed);
    assert_eq!(world.stacks[0].take_end(refused), Some(End::Lacking(Lack::Descriptors)));
    let own = world.at(0, 9);
    world.stacks[0].bind(own).unwrap();
    let sent = world.stacks[0].send_to(world.now, own, at, b"x", &mut world.wires[0]);
    assert_eq!(sent, Err(super::SendToError::Lacking(Lack::Descriptors)));
    // It is there again, which nobody says.
    world.wires[0].lack = None;
    let resent = world.stacks[0].counter(Counter::Resent);
    assert!(world.until(SECOND, |world| world.stacks[1].readable(ids[1]) == Readable::Bytes));
    assert_eq!(world.stacks[0].counter(Counter::Resent), resent, "nothing was lost");
    // It does not come back.
    world.wires[0].lack = Some(Lack::Memory);
    put(&mut world, 0, ids[0], 10);
    world.until(200 * SECOND, |_| false);
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::Lacking(Lack::Memory)));
}

#[test]
fn what_has_run_out_is_tried_again_after_a_while_and_not_at_each_poll() {
    let mut world = World::plain();
    let ids = world.connect();
    world.wires[0].lack = Some(Lack::Memory);
    put(&mut world, 0, ids[0], 10);
    for _ in 0..10 {
        world.stacks[0].poll(world.now, &mut world.wires[0]);
    }
    assert_eq!(world.wires[0].lacked, 1);
    world.now += SECOND / 10;
    world.stacks[0].poll(world.now, &mut world.wires[0]);
    assert_eq!(world.wires[0].lacked, 2);
}

#[test]
fn watched_connections_are_named_when_they_change_and_only_then() {
    let mut world = World::plain();
    let all: Vec<_> = (0..3).map(|_| world.connect()).collect();
    let named = |world: &mut World| {
        let mut named = Vec::new();
        while let Some(token) = world.stacks[1].take_changed() {
            named.push(token);
        }
        assert!(!world.stacks[1].has_changed());
        named
    };
    world.stacks[1].watch(all[1][1], 71);
    world.stacks[1].watch(all[2][1], 72);
    assert_eq!(named(&mut world), [71, 72]);
    // Bytes of one, and of one that is not watched.
    put(&mut world, 0, all[0][0], 10);
    put(&mut world, 0, all[1][0], 10);
    world.until(SECOND, |_| false);
    assert_eq!(named(&mut world), [71]);
    // What the program does itself is no news; that there is room is.
    world.stacks[1].receive_with(all[1][1], |bytes| (bytes.len(), ()));
    assert_eq!(named(&mut world), [0; 0]);
    put(&mut world, 1, all[2][1], 10);
    world.until(SECOND, |_| false);
    assert_eq!(named(&mut world), [72]);
    // The end of all connections with a host, without a frame.
    let host = world.at(0, 0).ip();
    assert_eq!(world.stacks[1].hosts(), [host].into());
    world.stacks[1].end_with(host);
    assert_eq!(named(&mut world), [71, 72]);
    assert!(world.stacks[1].hosts().is_empty());
    // One that is closed is not named any more.
    world.stacks[1].watch(all[1][1], 73);
    world.stacks[1].close(all[1][1]);
    assert_eq!(named(&mut world), [0; 0]);
}

#[test]
fn what_is_waited_for_is_named_once_when_it_has_come() {
    let mut world = World::plain();
    let (listener, socket) = (world.at(1, 7), world.at(1, 53));
    let from = world.at(0, 1000);
    world.stacks[0].bind(from).unwrap();
    world.stacks[1].bind(socket).unwrap();
    let ids = world.connect();
    let send = |world: &mut World| {
        let World { stacks, wires, now } = world;
        wires[0].now = *now;
        stacks[0].send_to(*now, from, socket, b"hello", &mut wires[0]).unwrap();
        world.until(SECOND, |_| false);
    };
    send(&mut world);
    assert_eq!(world.stacks[1].take_news(), None, "nobody waits");
    let all = [Awaited::Connection(ids[1]), Awaited::Listener(listener), Awaited::Socket(socket)];
    for awaited in all {
        world.stacks[1].await_news(awaited);
        world.stacks[1].await_news(awaited);
    }
    assert_eq!(world.stacks[1].take_news(), None, "what was there before is no news");
    for (at, awaited) in all.into_iter().enumerate() {
        for expected in [Some(awaited), None] {
            match at {
                0 => put(&mut world, 0, ids[0], 10),
                1 => drop(world.connect()),
                _ => send(&mut world),
            }
            world.until(SECOND, |_| false);
            assert_eq!(world.stacks[1].take_news(), expected);
            assert_eq!(world.stacks[1].take_news(), None);
        }
    }
}

#[test]
fn connection_that_its_program_has_closed_is_not_named_while_it_lives_on() {
    let mut world = World::plain();
    let ids = world.connect();
    world.stacks[1].watch(ids[1], 71);
    // It still has to say that it is closed, and the other side to answer.
    world.stacks[1].close(ids[1]);
    assert!(!world.stacks[1].has_changed());
    world.stacks[0].close(ids[0]);
    assert!(world.until(SECOND, |world| world.stacks[1].is_quiet()));
    assert!(!world.stacks[1].has_changed());
}

#[test]
fn silent_side_is_given_up() {
    let (mut world, ids) = in_mid_conversation();
    assert!(
        world.until(5 * SECOND, |world| world.stacks.iter().all(|stack| stack.due().is_none()))
    );
    // From here on nothing arrives.
    for wire in &mut world.wires {
        wire.faults.lost = 100;
    }
    let now = world.now;
    world.stacks[0].send_with(ids[0], |room| {
        room[0] = 1;
        (1, ())
    });
    assert!(
        world.until(200 * SECOND, |world| world.stacks[0].writable(ids[0]) == Writable::Failed)
    );
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::TimedOut));
    assert_eq!((world.now - now) / SECOND, 120);
    // The other side has nothing to say, and does not know.
    assert_eq!(world.stacks[1].writable(ids[1]), Writable::Room);
}

#[test]
fn idle_connection_stays_and_costs_nothing() {
    let (mut world, ids) = in_mid_conversation();
    assert!(
        world.until(5 * SECOND, |world| world.stacks.iter().all(|stack| stack.due().is_none()))
    );
    assert!(!world.step(), "nothing is ever due");
    world.now += 86_400 * SECOND;
    for side in [0, 1] {
        assert_eq!(peek(&world, side, ids[side]).len(), 1000);
        world.stacks[side].receive_with(ids[side], |bytes| (bytes.len(), ()));
    }
    assert_eq!(transfer(&mut world, ids, 1000), [Outcome::Complete, Outcome::Complete]);
}

/// Nothing is under way, and nothing has to be done.
fn come_to_rest(world: &mut World) {
    assert!(world.until(5 * SECOND, |world| {
        world.stacks.iter().all(|stack| stack.pool().in_use == 0 && stack.due().is_none())
    }));
}

#[test]
fn connection_that_rests_has_no_buffers_and_goes_on() {
    for (family, mtu) in [(0, 1500), (0, 57_344), (1, 1500)] {
        let options = Options { mtu, ..Options::default() };
        let mut world = World::new(1, Faults::default(), false, options, family);
        let ids = world.connect();
        world.stacks[1].set_no_delay(ids[1], true);
        let mut received = [0; 2];
        // So much that all sequence numbers are far from the first.
        for (round, bytes) in [(0, 5), (1, 200_000), (2, 1), (3, 70_000), (4, 3)] {
            let side = round % 2;
            put(&mut world, side, ids[side], bytes);
            assert!(world.until(SECOND / 2, |world| {
                let stack = &mut world.stacks[1 - side];
                while let Some(count) =
                    stack.receive_with(ids[1 - side], |bytes| (bytes.len(), bytes.len()))
                {
                    received[side] += count;
                }
                received[side] >= bytes
            }));
            received = [0; 2];
            come_to_rest(&mut world);
            for side in [0, 1] {
                assert_eq!(world.stacks[side].readable(ids[side]), Readable::Nothing);
                assert_eq!(world.stacks[side].writable(ids[side]), Writable::Room);
                assert_eq!(peek(&world, side, ids[side]), b"");
            }
        }
        assert_eq!(transfer(&mut world, ids, 300_000), [Outcome::Complete, Outcome::Complete]);
        let count = |counter| [0, 1].map(|side: usize| world.stacks[side].counter(counter));
        assert_eq!(count(Counter::ResetsSent), [0, 0]);
        assert_eq!(count(Counter::ChallengesSent), [0, 0]);
    }
}

#[test]
fn connection_that_rests_is_closed_and_reset() {
    type Act = fn(&mut Stack, ConnectionId);
    let ends: [(Act, Readable); 4] = [
        (|stack, id| stack.close(id), Readable::Finished),
        (|stack, id| stack.shut_sending(id), Readable::Finished),
        (|stack, id| stack.abort(id), Readable::Failed),
        (|stack, _| stack.abort_all(), Readable::Failed),
    ];
    for (end, readable) in ends {
        let mut world = World::plain();
        let ids = world.connect();
        come_to_rest(&mut world);
        end(&mut world.stacks[0], ids[0]);
        assert!(world.until(SECOND, |world| world.stacks[1].readable(ids[1]) == readable));
    }
}

#[test]
fn connections_that_rest_are_asked_a_few_at_a_time() {
    let mut world = World::plain();
    let all: Vec<_> = (0..150).map(|_| world.connect()).collect();
    come_to_rest(&mut world);
    let count = |world: &World, counter| [0, 1].map(|at: usize| world.stacks[at].counter(counter));
    let sent = count(&world, Counter::FramesSent);
    let host = world.at(1, 0).ip();
    world.stacks[0].question(host);
    world.stacks[0].question(host);
    // One call asks some of them, and says that there is more to do.
    let World { stacks, wires, now } = &mut world;
    wires[0].now = *now;
    assert!(stacks[0].poll(*now, &mut wires[0]));
    let asked = stacks[0].counter(Counter::FramesSent) - sent[0];
    assert!((1..100).contains(&asked), "{asked} of 150 at once");
    world.until(10 * SECOND, |_| false);
    assert_eq!(count(&world, Counter::FramesSent), sent.map(|sent| sent + 150));
    // One that does not answer is asked each second, and ends.
    world.wires[1].faults.lost = 100;
    world.stacks[0].question(host);
    world.until(20 * SECOND, |_| false);
    assert_eq!(count(&world, Counter::ProbesSent), [150 * 19, 0]);
    world.until(200 * SECOND, |_| false);
    let end = |world: &mut World, ids: &[ConnectionId; 2]| world.stacks[0].take_end(ids[0]);
    assert!(all.iter().all(|ids| end(&mut world, ids) == Some(End::TimedOut)));
    assert!(world.stacks[0].is_quiet());
}

#[test]
fn forged_segments_do_not_end_a_connection_that_rests() {
    let mut world = World::plain();
    let ids = world.connect();
    come_to_rest(&mut world);
    let number = 0x5555_5555;
    for flags in [RST, SYN, ACK, ACK | FIN] {
        let bare =
            Bare { flags, sequence: number, acknowledgement: number, window: 0, ..Bare::default() };
        let frame = segment_to(&world, ids, bare, &[1; 10]);
        inject(&mut world, Offload::NONE, &frame);
    }
    come_to_rest(&mut world);
    assert_eq!(transfer(&mut world, ids, 1000), [Outcome::Complete, Outcome::Complete]);
}

#[test]
fn pair_of_ports_in_time_wait_answers_and_is_not_used_again() {
    let mut world = World::plain();
    let ids = world.connect();
    let (local, to) = world.stacks[0].ends(ids[0]).unwrap();
    world.stacks[0].close(ids[0]);
    assert!(world.until(SECOND, |world| world.stacks[1].readable(ids[1]) == Readable::Finished));
    let (_, expected) = world.stacks[1].numbers(ids[1]);
    world.stacks[1].close(ids[1]);
    assert!(world.until(SECOND, |world| world.stacks.iter().all(Stack::is_quiet)));
    assert_eq!((world.stacks[0].counts(), world.stacks[1].counts()), ((0, 1), (0, 0)));
    // The other side's end comes again, because our last acknowledgement might have been lost.
    let end = Bare {
        flags: FIN | ACK,
        sequence: 1,
        acknowledgement: expected,
        window: 100,
        ..Bare::default()
    };
    let mut frame = packet::bare(to, local, end);
    packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[0], MACS[1]);
    let sent = world.stacks[0].counter(Counter::FramesSent);
    let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
    let frame = Frame { offload, bytes: &frame };
    world.stacks[0].receive(world.now, 0, frame, &mut world.wires[0]);
    assert_eq!(world.stacks[0].counter(Counter::FramesSent), sent + 1);
    assert_eq!(world.stacks[0].counter(Counter::ResetsSent), 0);
    world.now += 11 * SECOND;
    world.stacks[0].connect(world.now, to).unwrap();
    assert_eq!(world.stacks[0].counts(), (1, 0));
}

#[test]
fn echo_and_questions_after_the_address_are_answered() {
    for family in [0, 1] {
        let mut world = World::new(1, Faults::default(), false, Options::default(), family);
        let ends = [0, 1].map(|at| world.stacks[at].addresses()[0]);
        let kind = [8, 128][family];
        let message = [&[kind, 0, 0, 0, 1, 2, 3, 4][..], b"from memory"].concat();
        let mut frame = packet::control(ends[0], ends[1], message);
        address(&mut frame, MACS[1], MACS[0]);
        inject(&mut world, Offload::NONE, &frame);
        let (_, (_, reply)) = world.wires[1].under_way.pop_first().unwrap();
        let reply = packet::Packet::parse(&reply).unwrap();
        assert!(reply.is_intact(Checksum::Unknown));
        assert_eq!(reply.transport()[0], [0, 129][family]);
        assert_eq!(reply.transport()[4..8], [1, 2, 3, 4]);
        assert_eq!((reply.source, reply.destination), (ends[1], ends[0]));
        // A byte of it is another.
        let at = frame.len() - 1;
        frame[at] ^= 1;
        inject(&mut world, Offload::NONE, &frame);
        assert_eq!(world.stacks[1].counter(Counter::BadChecksum), 1);
        assert!(world.wires[1].under_way.is_empty());
    }
    let mut world = World::plain();
    let mut question = [&[0xff; 6], &MACS[0].0[..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    question.extend_from_slice(&[&MACS[0].0[..], &[10, 1, 0, 1], &[0; 6], &[10, 1, 0, 2]].concat());
    inject(&mut world, Offload::NONE, &question);
    assert_eq!(world.stacks[1].counter(Counter::NeighboursAnswered), 1);
    assert_eq!(world.wires[1].under_way.len(), 1);
}

#[test]
fn datagrams_arrive_whole_or_not_at_all() {
    for family in [0, 1] {
        let mut world = World::new(1, Faults::default(), false, Options::default(), family);
        let (from, to) = (world.at(0, 1000), world.at(1, 53));
        let any = SocketAddr::new([IpAddr::from([0; 4]), IpAddr::from([0; 16])][family], 53);
        world.stacks[0].bind(from).unwrap();
        world.stacks[1].bind(any).unwrap();
        assert_eq!(world.stacks[1].bind(to), Err(super::BindError::InUse));
        let most = 65_535 - [28, 8][family];
        for bytes in [0, 1, 7, 1500 - [28, 48][family], 1500, 9000, most] {
            let data: Vec<u8> = (0..bytes).map(|at| byte(0, at)).collect();
            let World { stacks, wires, .. } = &mut world;
            stacks[0].send_to(0, from, to, &data, &mut wires[0]).unwrap();
            while !world.wires[0].under_way.is_empty() {
                world.step();
            }
            assert_eq!(world.stacks[1].receive_from(any), Some((from, data)));
        }
        let World { stacks, wires, .. } = &mut world;
        let error = stacks[0].send_to(0, from, to, &vec![0; most + 1], &mut wires[0]).unwrap_err();
        assert_eq!(error, super::SendToError::TooLong { bytes_max: most });
        stacks[0].send_to(0, from, SocketAddr::new(to.ip(), 54), b"lost", &mut wires[0]).unwrap();
        world.step();
        assert_eq!(world.stacks[1].counter(Counter::NoSocket), 1);
    }
}

#[test]
fn bytes_before_the_end_can_be_read_though_the_end_was_not_acknowledged_for_long() {
    let mut world = World::plain();
    let [near, far] = world.connect();
    world.stacks[1].shut_sending(far);
    assert!(world.until(SECOND, |world| world.stacks[0].readable(near) == Readable::Finished));
    world.until(SECOND, |_| false);
    // The acknowledgement of the bytes waits for room, and that of the end is not made before there is room again.
    world.wires[1].faults.full = 100;
    world.stacks[0].send_with(near, |room| {
        room[..5].copy_from_slice(b"hello");
        (5, ())
    });
    assert!(world.until(SECOND, |world| world.stacks[1].waits_for_room()));
    world.stacks[0].shut_sending(near);
    world.until(100_000, |_| false);
    // What is sent again is lost for longer than a state machine keeps a connection that is over.
    world.wires[0].faults.lost = 100;
    for _ in 0..12 {
        world.now += SECOND;
        world.step();
    }
    world.wires[1].faults.full = 0;
    assert!(world.until(10 * SECOND, |world| world.stacks.iter().all(Stack::is_quiet)));
    let taken = world.stacks[1].receive_with(far, |bytes| (bytes.len(), bytes.to_vec()));
    assert_eq!(taken.as_deref(), Some(&b"hello"[..]));
    assert_eq!(world.stacks[1].readable(far), Readable::Finished);
    assert_eq!(world.stacks.map(|stack| stack.counter(Counter::TimedOut)), [0, 0]);
}

#[test]
fn pair_of_ports_in_time_wait_is_used_again_behind_its_last_bytes() {
    for number in 0..20u8 {
        let mut world = World::plain();
        world.stacks[1] =
            Stack::new(MACS[1], &[[10, 1, 0, 2].into()], Options::default(), Secret([number; 16]));
        let ids = world.connect();
        let (from, to) = world.stacks[0].ends(ids[0]).unwrap();
        world.stacks[1].close(ids[1]);
        assert!(
            world.until(SECOND, |world| world.stacks[0].readable(ids[0]) == Readable::Finished)
        );
        let (last, _) = world.stacks[0].numbers(ids[0]);
        let (_, end) = world.stacks[0].numbers(ids[0]);
        world.stacks[0].close(ids[0]);
        assert!(world.until(SECOND, |world| world.stacks.iter().all(Stack::is_quiet)));
        assert_eq!(world.stacks[1].counts(), (0, 1));
        let say = |world: &mut World, flags, sequence| {
            let bare =
                Bare { flags, sequence, acknowledgement: 0, window: 1000, ..Bare::default() };
            let mut frame = packet::bare(from, to, bare);
            packet::leave_checksum(&mut frame);
            address(&mut frame, MACS[1], MACS[0]);
            let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
            inject(world, offload, &frame);
            let (_, (_, answer)) = world.wires[1].under_way.pop_last().unwrap();
            let answer = packet::Packet::parse(&answer).unwrap();
            packet::Segment::parse(answer.transport()).unwrap()
        };
        // One that was under way for long is told where the last connection ended, and changes nothing.
        let old = say(&mut world, SYN, last.wrapping_sub(1));
        assert_eq!((old.flags, old.sequence, old.acknowledgement), (ACK, end, last + 1));
        assert_eq!(world.stacks[1].counts(), (0, 1));
        if number % 2 == 0 {
            // It is told that this is no part of any connection: then one with lower numbers is as good as another.
            for (sequence, left) in [(last.wrapping_add(2), 1), (last.wrapping_add(1), 0)] {
                let bare =
                    Bare { flags: RST, sequence, acknowledgement: 0, window: 0, ..Bare::default() };
                let mut frame = packet::bare(from, to, bare);
                packet::leave_checksum(&mut frame);
                address(&mut frame, MACS[1], MACS[0]);
                let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
                inject(&mut world, offload, &frame);
                assert_eq!(world.stacks[1].counts(), (0, left));
            }
            let again = say(&mut world, SYN, last.wrapping_sub(1));
            assert_eq!((again.flags, again.acknowledgement), (SYN | ACK, last));
            continue;
        }
        let new = say(&mut world, SYN, last.wrapping_add(10));
        assert_eq!((new.flags, new.acknowledgement), (SYN | ACK, last + 11));
        assert!((new.sequence.wrapping_sub(end) as i32) > 0, "it begins behind the last one");
        assert_eq!(world.stacks[1].counts(), (1, 0));
    }
}

#[test]
fn datagrams_that_come_as_one_frame_are_received_one_by_one() {
    let mut world = World::plain();
    let (from, to) = (world.at(0, 1000), world.at(1, 53));
    world.stacks[1].bind(to).unwrap();
    let data: Vec<u8> = (0..2500).map(|at| byte(0, at)).collect();
    let mut frame = packet::datagram(from, to, &data);
    let partial = packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[1], MACS[0]);
    let segments =
        Segmentation { kind: Kind::Udp, congestion: false, header_bytes: 42, segment_bytes: 1000 };
    let offload = Offload { segmentation: Some(segments), ..partial };
    assert_eq!(Offload::parse(&offload.head(), &frame), Ok(offload));
    inject(&mut world, offload, &frame);
    for piece in data.chunks(1000) {
        assert_eq!(world.stacks[1].receive_from(to), Some((from, piece.to_vec())));
    }
    assert_eq!(world.stacks[1].receive_from(to), None);
}

/// A stream over a wire that loses nothing, but is full now and then; reader and writer come by at times of their own.
#[test]
fn stream_over_a_wire_that_loses_nothing_never_waits_for_a_timer() {
    // What a window loses when it is scaled goes wrong once in some of these, soon or never.
    for seed in 0..40 {
        stream_that_goes_on(seed, 8192, 256 << 10, 0, 20_000, 2_000_000);
    }
    for seed in 0..20 {
        let mut chance = Chance::new(seed);
        let mtu = [1500, 8192, 57_344][chance.below(3) as usize];
        let full = [0, 5, 30][chance.below(3) as usize];
        let patience = [1, 5000, 20_000, 200_000][chance.below(4) as usize];
        stream_that_goes_on(seed, mtu, 65_536 << chance.below(4), full, patience, 2_000_000);
    }
}

/// Each side comes by after so many nanoseconds at most, and the wire is full so often.
fn stream_that_goes_on(
    seed: u64,
    mtu: usize,
    buffer_bytes: usize,
    full: u64,
    patience: u64,
    all: usize,
) {
    const MESSAGE: usize = 65_536;
    let mut chance = Chance::new(seed);
    let options = Options {
        mtu,
        receive_bytes: buffer_bytes,
        send_bytes: buffer_bytes,
        congestion: Congestion::None,
        ..Options::default()
    };
    let faults = Faults { full, ..Faults::default() };
    let mut world = World::new(chance.number(), faults, false, options, 0);
    let ids = world.connect();
    let (mut sent, mut received, mut last) = (0, 0, world.now);
    let mut next = [0, 0];
    while received < all {
        if world.now >= next[0] {
            next[0] = world.now + 1 + chance.below(patience);
            while world.stacks[0].writable(ids[0]) == Writable::Room && sent < all {
                let left = MESSAGE - sent % MESSAGE;
                let put = world.stacks[0].send_with(ids[0], |room| {
                    let count = room.len().min(left);
                    (count, count)
                });
                sent += put.unwrap();
            }
        }
        if world.now >= next[1] {
            next[1] = world.now + 1 + chance.below(patience);
            let left = MESSAGE - received % MESSAGE;
            let taken = world.stacks[1].receive_with(ids[1], |bytes| {
                let count = bytes.len().min(left);
                (count, count)
            });
            if let Some(count) = taken {
                received += count;
                last = world.now;
            }
        }
        if !world.step_before(next[0].min(next[1])) {
            // Nothing is under way, and nothing due: the programs are next.
            world.now = next[0].min(next[1]);
        }
        let waited = world.now - last;
        assert!(waited < SECOND / 10, "SIGA_SEED={seed}: {sent} sent, {received} received");
    }
}

/// Bits per second that a stream brings to its reader over a wire of 1 Gbit/s, in virtual time: those of the second half.
fn goodput(conditions: Conditions, options: Options, bytes: usize) -> f64 {
    let mut world = World::new(1, Faults::default(), true, options, 0);
    for wire in &mut world.wires {
        wire.conditions = Some(conditions);
    }
    let ids = world.connect();
    let (mut sent, mut received) = (0, 0);
    let mut half = 0;
    while received < bytes {
        while world.stacks[0].writable(ids[0]) == Writable::Room && sent < bytes {
            let put = world.stacks[0].send_with(ids[0], |room| (room.len(), room.len()));
            sent += put.unwrap();
        }
        while let Some(count) =
            world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), bytes.len()))
        {
            received += count;
        }
        if received <= bytes / 2 {
            half = world.now;
        }
        assert!(world.step() && world.now < 1000 * SECOND, "{sent} sent, {received} received");
    }
    let [resent, _] = [0, 1].map(|at: usize| world.stacks[at].counter(Counter::Resent));
    let rate = (bytes / 2 * 8) as f64 / ((world.now - half) as f64 / 1e9);
    eprintln!("{rate:.3e} bit/s, {resent} of {} segments again", bytes / 1448);
    rate
}

fn wire_of(delay: Duration, loss: Share, reordering: Share) -> Conditions {
    Conditions {
        rate: std::num::NonZeroU64::new(1_000_000_000),
        delay,
        loss,
        reordering,
        later_max: Duration::from_millis(1),
        queue_bytes: 1 << 20,
        ..Conditions::default()
    }
}

/// Windows grow where a way is long.
#[test]
fn long_way_is_filled() {
    let options = Options {
        mtu: 1500,
        device: Device { medium: Medium::WIRE, ..Device::LAN },
        ..Options::default()
    };
    let conditions = wire_of(Duration::from_millis(10), Share::NONE, Share::NONE);
    let rate = goodput(conditions, options, 400 << 20);
    assert!(rate > 0.85e9, "{rate:.3e}");
    // With a window that does not grow it is a tenth of that.
    let narrow = Options { receive_bytes: 256 << 10, ..options };
    let rate = goodput(conditions, narrow, 20 << 20);
    assert!(rate < 0.15e9, "{rate:.3e}");
}

/// What is lost goes again once, and nothing else: so the rate is that of the congestion window.
#[test]
fn lossy_way_carries_what_congestion_lets_through() {
    let options = Options {
        mtu: 1500,
        device: Device { medium: Medium::WIRE, ..Device::LAN },
        ..Options::default()
    };
    // CUBIC reaches some sqrt(3 / 2p) segments a round trip where losses are frequent: 39 of 1448 bytes at 0.1 %, 12 at 1 %.
    for (loss, reordering, least) in [(1000, 0, 0.4e9), (10_000, 0, 0.12e9), (0, 10_000, 0.9e9)] {
        let [loss, reordering] = [loss, reordering].map(Share::per_million);
        let conditions = wire_of(Duration::from_micros(500), loss, reordering);
        let rate = goodput(conditions, options, 40 << 20);
        assert!(rate > least, "{rate:.3e} bit/s with {loss:?} lost, {reordering:?} late");
    }
}
