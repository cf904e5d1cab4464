//! An adapter with guests in front of a wire in memory, in virtual time.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use fabric::name::Name;
use fabric::path::{Halves, Shape, Side, Terms};
use os::doorbell::Doorbell;

use super::adapter::{Adapter, Moderation};
use super::control::{Refused, Request, Router, Stopped};
use super::device::{Device, DropReason, State};
use super::interface::{Interface, News, State as End};
use super::memory::MemoryWire;
use super::packet::Layer;
use super::wire::Wire;
use crate::lan::frame::Mac;
use crate::lan::neighbour::{REPLY, REQUEST, arp};
use crate::lan::offload::Offload;
use crate::wire::Conditions;

mod guests;
mod hostile;
mod timing;
mod workloads;

/// The MAC addresses of the port, and of the station at the other end of the wire.
const PORT: Mac = Mac([2, 0, 0, 0, 0xa, 1]);
const STATION: Mac = Mac([2, 0, 0, 0, 0xb, 1]);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The two sides of a path with so many queues that the guest writes and reads.
fn path(outputs: usize, inputs: usize) -> [Halves; 2] {
    let shape = Shape { outputs, inputs };
    let (guest, guest_shown) = Side::create(shape).unwrap();
    let (adapter, adapter_shown) = Side::create(shape.mirrored()).unwrap();
    let bells = (0..2).map(|_| Doorbell::ends().unwrap());
    let (ours, theirs) = bells.unzip();
    let terms = Terms { window_bytes: 8 << 20, ..Terms::DEFAULT };
    let guest = guest.join(adapter_shown, ours, terms).unwrap();
    let adapter = adapter.join(guest_shown, theirs, terms).unwrap();
    [guest, adapter]
}

/// An adapter, its devices, and the guests' ends of them.
struct World {
    now: u64,
    adapter: Adapter,
    devices: Vec<Option<Device>>,
    guests: Vec<Interface>,
    station: MemoryWire,
}

impl World {
    fn new(conditions: Conditions, moderation: Moderation) -> World {
        let [wire, station] = MemoryWire::pair(conditions, 5, [PORT, STATION]).unwrap();
        let adapter = Adapter::new(Box::new(wire), moderation, [7; 16]);
        World { now: 1_000, adapter, devices: Vec::new(), guests: Vec::new(), station }
    }

    fn plain() -> World {
        World::new(Conditions::default(), Moderation::NONE)
    }

    /// A guest whose device is not active yet.
    fn add(&mut self, layer: Layer, outputs: usize) -> usize {
        let number = self.devices.len();
        let [guest, adapter] = path(outputs, 1);
        let name: Name = format!("GUEST{number}").parse().unwrap();
        self.devices.push(Some(Device::new(name, adapter, 16)));
        self.guests.push(Interface::new(guest, layer, 16));
        number
    }

    /// A guest of layer 3 with these addresses.
    fn three(&mut self, addresses: &[&str]) -> usize {
        let guest = self.add(Layer::Three, 1);
        assert_eq!(self.ask(guest, Request::Activate(Layer::Three, None)), Ok(()));
        for address in addresses {
            assert_eq!(self.ask(guest, Request::AddAddress(ip(address))), Ok(()));
        }
        guest
    }

    /// A guest of layer 2 with this MAC address.
    fn two(&mut self, mac: Mac) -> usize {
        let guest = self.add(Layer::Two, 1);
        assert_eq!(self.ask(guest, Request::Activate(Layer::Two, Some(mac))), Ok(()));
        guest
    }

    /// Has the adapter do all that there is to do now.
    fn run(&mut self) {
        for _ in 0..1000 {
            for number in 0..self.devices.len() {
                if self.devices[number].as_mut().is_some_and(Device::is_ready) {
                    self.adapter.note_ready(number, &mut self.devices);
                }
            }
            let worked = self.adapter.poll(self.now, &mut self.devices);
            if !worked.has_more && !worked.has_worked {
                return;
            }
        }
        panic!("the adapter has work without end");
    }

    /// Asks for something, and returns the answer.
    fn ask(&mut self, guest: usize, request: Request) -> Result<(), Refused> {
        assert!(self.guests[guest].ask(request));
        self.run();
        // Other news before are forgotten.
        while let Ok(Some(_)) = self.guests[guest].next_packet() {}
        let mut answer = None;
        while let Some(news) = self.guests[guest].take_news() {
            if let News::Answer(of, done) = news {
                assert_eq!(of, request);
                answer = Some(done);
            }
        }
        answer.expect("an answer")
    }

    /// Sends a packet of a guest of layer 3.
    fn send(&mut self, guest: usize, packet: &[u8], next_hop: &str) {
        let bytes = 14 + packet.len();
        let write = |target: &mut [u8]| target[14..].copy_from_slice(packet);
        let hop = Some(ip(next_hop));
        self.guests[guest].send(self.now, 0, (Offload::NONE, bytes), hop, write).unwrap();
        self.guests[guest].flush(true);
        self.run();
    }

    /// Sends a frame of a guest of layer 2.
    fn send_frame(&mut self, guest: usize, frame: &[u8]) {
        let write = |target: &mut [u8]| target.copy_from_slice(frame);
        let sent = self.guests[guest].send(self.now, 0, (Offload::NONE, frame.len()), None, write);
        sent.unwrap();
        self.guests[guest].flush(true);
        self.run();
    }

    /// All frames that a guest has now.
    fn received(&mut self, guest: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Ok(Some(_)) = self.guests[guest].next_packet() {
            let found = self.guests[guest].found().unwrap();
            let mut frame = found.start.to_vec();
            if let Some(rest) = found.rest {
                let start = frame.len();
                frame.resize(start + rest.bytes(), 0);
                rest.read(0, &mut frame[start..]).unwrap();
            }
            frames.push(frame);
        }
        frames
    }

    /// All frames that have come to the station by now.
    fn at_station(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.station.receive(self.now, 1000, &mut |_, frame| frames.push(frame.to_vec())).unwrap();
        frames
    }

    /// Sends a frame from the station.
    fn send_from_station(&mut self, frame: &[u8]) {
        let frame =
            crate::lan::link::FrameInPlace { offload: Offload::NONE, start: frame, rest: None };
        self.station.send(self.now, &frame).unwrap();
        self.run();
    }

    /// The station asks for an address of a guest, so that the adapter knows where the station is.
    fn meet(&mut self, guest: [u8; 4]) {
        let question = arp(REQUEST, ([10, 1, 0, 2].into(), STATION), (guest.into(), PORT), PORT);
        self.send_from_station(&question);
        self.now += 1_000_000;
        self.run();
        self.at_station();
    }

    fn drops(&self, reason: DropReason) -> u64 {
        let of_devices = self.devices.iter().flatten().map(|device| device.drops().get(reason));
        of_devices.sum::<u64>() + self.adapter.drops().get(reason)
    }
}

/// A packet of UDP between two addresses of IPv4, with so many bytes of data.
fn packet(from: &str, to: &str, data: usize) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    for address in [from, to] {
        let IpAddr::V4(address) = ip(address) else { panic!("of IPv4") };
        packet.extend(address.octets());
    }
    packet.extend([0x30, 0x39, 0x30, 0x39]);
    packet.extend(((8 + data) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend((0..data).map(|at| at as u8));
    let bytes = packet.len() as u16;
    packet[2..4].copy_from_slice(&bytes.to_be_bytes());
    packet
}

fn frame(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &[8, 0], packet].concat()
}
