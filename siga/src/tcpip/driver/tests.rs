//! Numbered frames both ways, while the device changes hands.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fabric::name::Name;
use host::Embedded;
use host::system::System;
use net::lan::frame::Mac;
use net::lan::offload::Offload;
use os::event::Event;
use os::processor::{allowed, now_ns};

use super::backlog::{BACKLOG_FRAMES_MAX, Backlog, Device, Leaving, Sent};
use super::{Placement, Port};
use crate::guest::Guest;
use crate::lan::{Address, Lan, LanOptions, TrySendFrameError};
use crate::tcpip::{Drive, Stack, StackOptions, TcpListener, TcpStream};
use crate::waiting::Wait;

/// How long a test waits for what has to come.
const LONG: Duration = Duration::from_secs(60);

/// Frames of one direction that may be under way, so that a test ends with few.
const ROUND_FRAMES: u64 = 8;

/// Random numbers (xorshift) of a seed that a failed test shows.
struct Random(u64);

impl Random {
    fn new() -> Random {
        let seed = std::env::var("SIGA_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| now_ns() | 1);
        println!("SIGA_SEED={seed}");
        Random(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn times(short: usize, long: usize) -> usize {
    let is_long = std::env::var_os("SIGA_LONG").is_some_and(|value| !value.is_empty());
    if is_long { long } else { short }
}

fn member(host: &Embedded, name: &str) -> Lan {
    let options =
        LanOptions { address: Address::Chosen, wait: Wait::Block, ..LanOptions::default() };
    Lan::join(Guest::attach_embedded(host, name).unwrap(), "hs0", &options).unwrap()
}

/// Bytes of the frame with this number: most are short, some do not fit a line, some lie in pages.
fn bytes_of(number: u64) -> usize {
    match number % 16 {
        15 => 14 + 8 + 12_000,
        7 => 14 + 8 + 1400,
        _ => 14 + 8 + 42,
    }
}

fn numbered(target: Mac, source: Mac, number: u64) -> Vec<u8> {
    // An EtherType for experiments (IEEE 802).
    let head = [&target.0[..], &source.0, &[0x88, 0xb5], &number.to_be_bytes()].concat();
    let mut frame = vec![number as u8; bytes_of(number)];
    frame[..head.len()].copy_from_slice(&head);
    frame
}

#[track_caller]
fn check(frame: &[u8], expected: u64) {
    let number = u64::from_be_bytes(frame[14..22].try_into().unwrap());
    assert_eq!((number, frame.len()), (expected, bytes_of(expected)));
    assert!(frame[22..].iter().all(|byte| *byte == expected as u8), "frame {expected}");
}

/// The other member: sends numbered frames and receives them, on a thread of its own, until it is told how many there are.
struct Peer {
    mac: Mac,
    name: Name,
    /// Tells it how many frames were sent to it, and that it is to send no more.
    end: mpsc::Sender<u64>,
    sent: mpsc::Receiver<u64>,
    thread: thread::JoinHandle<()>,
}

impl Peer {
    fn start(host: &Embedded, name: &str, target: Mac) -> Peer {
        let mut lan = member(host, name);
        let (mac, name) = (lan.mac(), lan.own().name);
        let (end, is_end) = mpsc::channel();
        let (sending, sent) = mpsc::channel();
        let thread = thread::spawn(move || {
            let (mut sent, mut received, mut most) = (0, 0, None);
            let deadline = Instant::now() + LONG;
            while most != Some(received) {
                assert!(Instant::now() < deadline, "{received} of {most:?} frames have come");
                if most.is_none() {
                    most = is_end.try_recv().ok();
                    if most.is_some() {
                        sending.send(sent).unwrap();
                    }
                }
                for _ in 0..ROUND_FRAMES {
                    if most.is_some() {
                        break;
                    }
                    match lan.try_push(Offload::NONE, &numbered(target, mac, sent)) {
                        Ok(()) => sent += 1,
                        Err(TrySendFrameError::Full) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                let before = received;
                while received < before + ROUND_FRAMES
                    && let Some(frame) = lan.try_receive().unwrap()
                {
                    check(frame.bytes, received);
                    received += 1;
                }
                lan.flush();
                if received == before {
                    thread::yield_now();
                }
            }
        });
        Peer { mac, name, end, sent, thread }
    }
}

/// A port, and how far it is.
struct Side {
    port: Port,
    interrupt: Event,
    sent: u64,
    received: u64,
    frame: Vec<u8>,
}

impl Side {
    fn new(lan: Lan) -> Side {
        let port = Port::new(Box::new(lan));
        Side { port, interrupt: Event::new().unwrap(), sent: 0, received: 0, frame: Vec::new() }
    }

    fn place(&mut self, placement: Placement) -> Placement {
        let was_driven = self.port.is_driven();
        let placed = self.port.place(placement, &self.interrupt).unwrap();
        if was_driven && !self.port.is_driven() {
            self.port.sleeper(&self.interrupt).unwrap();
        }
        placed
    }

    /// Does what a stack does in a round.
    fn pump(&mut self, peer: Option<&Peer>) {
        let mac = self.port.mac();
        if let Some(Peer { mac: target, name, .. }) = peer {
            for _ in 0..ROUND_FRAMES {
                let frame = numbered(*target, mac, self.sent);
                match self.port.try_push(Some(*name), Offload::NONE, &frame) {
                    Ok(()) => self.sent += 1,
                    Err(TrySendFrameError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        self.port.flush();
        if self.port.is_queued() {
            let before = self.received;
            while self.received < before + ROUND_FRAMES
                && self.port.take_queued(&mut self.frame).is_some()
            {
                check(&self.frame, self.received);
                self.received += 1;
            }
            self.port.note_taken();
            if self.port.is_driven() || self.received > before {
                return;
            }
        }
        self.port.retry(now_ns());
        let before = self.received;
        while self.received < before + ROUND_FRAMES
            && let Some(found) = self.port.try_find_in_place().unwrap()
        {
            let in_place = self.port.found_in_place(found).unwrap();
            let mut frame = in_place.start.to_vec();
            if let Some(rest) = in_place.rest {
                let start = frame.len();
                frame.resize(start + rest.bytes(), 0);
                rest.read(0, &mut frame[start..]).unwrap();
            }
            check(&frame, self.received);
            self.received += 1;
        }
        self.port.give_back_found();
    }

    /// Waits until all frames of both directions have come.
    fn finish(mut self, peer: Peer) -> (u64, u64) {
        peer.end.send(self.sent).unwrap();
        let deadline = Instant::now() + LONG;
        let mut most = None;
        while most != Some(self.received) || !peer.thread.is_finished() {
            assert!(Instant::now() < deadline, "{} of {most:?} frames have come", self.received);
            most = most.or_else(|| peer.sent.try_recv().ok());
            self.pump(None);
            thread::yield_now();
        }
        peer.thread.join().unwrap();
        (self.sent, self.received)
    }
}

fn processor(random: &mut Random) -> Placement {
    let allowed = allowed();
    Placement::Processor(allowed[random.below(allowed.len() as u64) as usize])
}

#[test]
fn device_that_changes_hands_under_traffic_loses_doubles_and_reorders_no_frame() {
    let mut random = Random::new();
    let host = Embedded::start(System::open()).unwrap();
    let mut side = Side::new(member(&host, "STACK"));
    let peer = Peer::start(&host, "PEER", side.port.mac());
    let moves = times(1000, 10_000);
    for _ in 0..moves {
        let placement = match random.below(3) {
            0 => Placement::Inline,
            _ => processor(&mut random),
        };
        assert_eq!(side.place(placement), placement);
        for _ in 0..random.below(40) {
            side.pump(Some(&peer));
        }
    }
    let counters = side.port.driver(0).counters;
    assert_eq!(counters.takeovers, 0);
    assert!(counters.moves <= moves as u64);
    let (sent, received) = side.finish(peer);
    assert!(sent > 0 && received > 0, "{sent} and {received} frames");
}

#[test]
fn device_of_a_stalled_driver_is_taken_over_and_the_late_driver_touches_nothing() {
    let mut random = Random::new();
    let host = Embedded::start(System::open()).unwrap();
    let mut side = Side::new(member(&host, "STACK"));
    side.port.lease_ns = 1;
    let peer = Peer::start(&host, "PEER", side.port.mac());
    let takeovers = times(100, 1000);
    for _ in 0..takeovers {
        let placement = processor(&mut random);
        assert_eq!(side.place(placement), placement);
        for _ in 0..random.below(20) {
            side.pump(Some(&peer));
        }
        let station = side.port.station().clone();
        station.hook.stall(side.port.epoch());
        station.hook.wait_for_stall();
        for _ in 0..random.below(20) {
            side.pump(Some(&peer));
        }
        let now = now_ns();
        assert!(!side.port.is_expired(now), "suspected first");
        assert!(side.port.is_expired(now + 1));
        // A driver of before may be looking whether the device is still its own.
        let deadline = Instant::now() + LONG;
        while !side.port.take_over(now + 1) {
            assert!(Instant::now() < deadline, "nobody else has the device for long");
            std::thread::yield_now();
        }
        assert_eq!(side.port.placement(), Placement::Inline);
        side.port.sleeper(&side.interrupt).unwrap();
        // The late driver comes back at once, or while the stack works, or while another driver does.
        match random.below(3) {
            0 => station.hook.release(),
            1 => {
                (0..random.below(20)).for_each(|_| side.pump(Some(&peer)));
                station.hook.release();
            }
            _ => {
                let placement = processor(&mut random);
                assert_eq!(side.place(placement), placement);
                (0..random.below(20)).for_each(|_| side.pump(Some(&peer)));
                station.hook.release();
            }
        }
        for _ in 0..random.below(20) {
            side.pump(Some(&peer));
        }
    }
    assert_eq!(side.port.driver(0).counters.takeovers, takeovers as u64);
    side.finish(peer);
}

#[test]
fn device_of_a_driver_that_panics_is_taken_over() {
    let host = Embedded::start(System::open()).unwrap();
    let mut side = Side::new(member(&host, "STACK"));
    let peer = Peer::start(&host, "PEER", side.port.mac());
    let first = Placement::Processor(allowed()[0]);
    for round in 1..=10 {
        assert_eq!(side.place(first), first);
        (0..20).for_each(|_| side.pump(Some(&peer)));
        side.port.station().hook.panic(side.port.epoch());
        let deadline = Instant::now() + LONG;
        while !side.port.is_expired(now_ns()) {
            assert!(Instant::now() < deadline, "the driver goes on");
            side.pump(Some(&peer));
        }
        while !side.port.take_over(now_ns()) {
            assert!(Instant::now() < deadline, "somebody has the device");
        }
        side.port.sleeper(&side.interrupt).unwrap();
        assert_eq!(side.port.driver(0).counters.takeovers, round);
        (0..20).for_each(|_| side.pump(Some(&peer)));
    }
    side.finish(peer);
}

#[test]
fn full_backlogs_of_some_targets_hold_up_no_other() {
    let host = Embedded::start(System::open()).unwrap();
    let lan = Box::new(member(&host, "STACK"));
    let (mut lazy, mut other) = (member(&host, "LAZY"), member(&host, "OTHER"));
    let mac = lan.mac();
    let mut device = Device { lan, backlog: Backlog::default() };
    let leaving = |to: &Lan, number| Leaving {
        bytes: numbered(to.mac(), mac, number),
        target: Some(to.own().name),
        ..Leaving::default()
    };
    let (mut waiting, mut number) = (0, 0);
    let deadline = Instant::now() + LONG;
    while waiting < BACKLOG_FRAMES_MAX / 2 {
        assert!(Instant::now() < deadline, "{waiting} of {number} frames wait");
        match device.send(0, &mut leaving(&lazy, number)) {
            Sent::Gone => {}
            Sent::Waits => waiting += 1,
            Sent::Dropped => panic!("{number}"),
        }
        number += 1;
        device.lan.flush();
        // It accepts the path, and takes no frame.
        lazy.prepare_wait();
    }
    assert_eq!(device.send(0, &mut leaving(&lazy, number)), Sent::Dropped);
    // A path to another member is made first.
    while device.send(0, &mut leaving(&other, 0)) != Sent::Gone {
        assert!(Instant::now() < deadline, "the other gets nothing");
        other.prepare_wait();
    }
}

#[test]
fn order_to_a_driver_that_no_processor_runs_does_not_wait_for_it() {
    let host = Embedded::start(System::open()).unwrap();
    let mut side = Side::new(member(&host, "STACK"));
    let first = Placement::Processor(allowed()[0]);
    for placement in [Placement::Inline, Placement::Processor(1000)] {
        assert_eq!(side.place(first), first);
        let station = side.port.station().clone();
        // As if the driver were in the middle of a turn, and did not come to its end.
        let half = station.half();
        let refused = side.port.place(placement, &side.interrupt).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::TimedOut);
        assert_eq!(side.port.placement(), first);
        drop(half);
        // It ends when it comes to that, and not only when its lease is old.
        let deadline = Instant::now() + LONG;
        while !side.port.is_expired(0) {
            assert!(Instant::now() < deadline, "the driver goes on");
            thread::yield_now();
        }
        assert!(side.port.take_over(now_ns()));
        side.port.sleeper(&side.interrupt).unwrap();
    }
}

#[test]
fn driver_that_is_where_it_is_to_be_goes_on() {
    let host = Embedded::start(System::open()).unwrap();
    let mut side = Side::new(member(&host, "STACK"));
    let first = Placement::Processor(allowed()[0]);
    assert_eq!(side.place(first), first);
    let epoch = side.port.epoch();
    for _ in 0..3 {
        assert_eq!(side.place(first), first);
    }
    assert_eq!((side.port.epoch(), side.port.driver(0).counters.moves), (epoch, 1));
}

#[test]
fn target_that_takes_nothing_holds_up_no_other() {
    let host = Embedded::start(System::open()).unwrap();
    let mut side = Side::new(member(&host, "STACK"));
    let mut lazy = member(&host, "LAZY");
    let (lazy_mac, lazy_name, mac) = (lazy.mac(), lazy.own().name, side.port.mac());
    let peer = Peer::start(&host, "PEER", mac);
    let first = Placement::Processor(allowed()[0]);
    assert_eq!(side.place(first), first);
    let mut for_lazy = 0;
    let deadline = Instant::now() + LONG;
    while !side.port.station().full.has(lazy_mac) {
        assert!(Instant::now() < deadline, "{for_lazy} frames, and the target is not full");
        let frame = numbered(lazy_mac, mac, for_lazy);
        if side.port.try_push(Some(lazy_name), Offload::NONE, &frame).is_ok() {
            for_lazy += 1;
        }
        side.port.flush();
        // It accepts the path, and takes no frame.
        lazy.prepare_wait();
        side.pump(None);
    }
    let frame = numbered(lazy_mac, mac, for_lazy);
    let refused = side.port.try_push(Some(lazy_name), Offload::NONE, &frame);
    assert!(matches!(refused, Err(TrySendFrameError::Full)));
    while side.sent < 2000 {
        assert!(Instant::now() < deadline, "{} frames have gone", side.sent);
        side.pump(Some(&peer));
    }
    // The backlog changes hands, and goes out in order once there is room.
    assert_eq!(side.place(Placement::Inline), Placement::Inline);
    let mut received = 0;
    while received < for_lazy {
        assert!(Instant::now() < deadline, "{received} of {for_lazy} frames have come");
        while let Some(frame) = lazy.try_receive().unwrap() {
            check(frame.bytes, received);
            received += 1;
        }
        side.pump(Some(&peer));
    }
    side.finish(peer);
}

#[test]
fn processor_that_is_not_there_leaves_the_driver_inline() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = stack(&host, "STACK", Drive::Inline);
    let first = Placement::Processor(allowed()[0]);
    assert_eq!(stack.set_driver(0, first).unwrap(), first);
    assert_eq!(stack.drivers().unwrap()[0].placement, first);
    for missing in [1000, 4095, usize::MAX] {
        let placed = stack.set_driver(0, Placement::Processor(missing)).unwrap();
        assert_eq!(placed, Placement::Inline);
        assert_eq!(stack.drivers().unwrap()[0].placement, Placement::Inline);
    }
    let refused = stack.set_driver(1, first).unwrap_err();
    assert_eq!(refused.to_string(), "LAN 1: the stack is not at it");
}

fn stack(host: &Embedded, name: &str, drive: Drive) -> Stack {
    Stack::new(member(host, name), &StackOptions { drive, ..StackOptions::default() }).unwrap()
}

#[test]
fn stream_goes_on_while_the_drivers_of_both_sides_move_stall_and_panic() {
    const BYTES: u64 = 8 << 20;
    let mut random = Random::new();
    let host = Embedded::start(System::open()).unwrap();
    let stacks = ["ONE", "OTHER"].map(|name| stack(&host, name, Drive::Thread));
    let listener = TcpListener::bind(&stacks[0], "0.0.0.0:7").unwrap();
    let address = (stacks[0].addresses()[0], 7);
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let received = AtomicU64::new(0);
    for stack in &stacks {
        stack.owner.enter().unwrap().own().unwrap().lans.get(0).lease_ns = 20_000_000;
    }
    thread::scope(|scope| {
        let other = stacks[1].clone();
        scope.spawn(move || {
            let mut stream = TcpStream::connect(&other, address).unwrap();
            let mut sent = 0;
            while sent < BYTES {
                let bytes: Vec<u8> = (sent..BYTES.min(sent + 5000)).map(byte).collect();
                stream.write_all(&bytes).unwrap();
                sent += bytes.len() as u64;
            }
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        });
        let (received, listener) = (&received, &listener);
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = vec![0; 10_000];
            loop {
                let count = stream.read(&mut bytes).unwrap() as u64;
                if count == 0 {
                    break;
                }
                let start = received.load(Ordering::Relaxed);
                assert!((start..).zip(&bytes[..count as usize]).all(|(at, is)| byte(at) == *is));
                received.store(start + count, Ordering::Relaxed);
            }
        });
        while received.load(Ordering::Relaxed) < BYTES {
            let stack = &stacks[random.below(2) as usize];
            let placement = match random.below(4) {
                0 => Placement::Inline,
                _ => processor(&mut random),
            };
            let placed = stack.set_driver(0, placement).unwrap();
            if placed != Placement::Inline {
                let station = {
                    let mut turn = stack.owner.enter().unwrap();
                    let port = turn.own().unwrap().lans.get(0);
                    port.is_driven().then(|| (port.station().clone(), port.epoch()))
                };
                match (random.below(8), station) {
                    (0, Some((station, epoch))) => station.hook.panic(epoch),
                    (1, Some((station, epoch))) => {
                        station.hook.stall(epoch);
                        let deadline = Instant::now() + LONG;
                        while stack.drivers().unwrap()[0].placement != Placement::Inline {
                            assert!(Instant::now() < deadline, "nobody takes over");
                            thread::yield_now();
                        }
                        station.hook.release();
                    }
                    _ => {}
                }
            }
        }
    });
    assert_eq!(received.load(Ordering::Relaxed), BYTES);
}
