//! An adapter whose one guest hands over what a script says, and whose wire brings what it says; two other guests are honest, and one of these has its packets sorted.

use std::net::{IpAddr, SocketAddr};

use fabric::name::Name;
use fabric::path::{Halves, Shape, Side, Terms};
use net::lan::frame::Mac;
use net::lan::link::FrameInPlace;
use net::lan::neighbour::announcement;
use net::lan::offload::{Checksum, Kind, Offload, Segmentation};
use net::osa::adapter::{Adapter, Moderation};
use net::osa::control::{Record, Refused, Request, Router};
use net::osa::device::Device;
use net::osa::interface::{Interface, News};
use net::osa::memory::MemoryWire;
use net::osa::packet::{Header, Layer};
use net::osa::tuning::{Inbperf, Profile};
use net::osa::wire::Wire;
use net::osa::workload::{Connection, Workload};
use net::wire::Conditions;
use os::doorbell::Doorbell;

use super::script::{Script, TAME};
use super::{DEEDS_MAX, Watch};

const PORT: Mac = Mac([2, 0, 0, 0, 0xa, 1]);
/// A card, with the address that its maker has given.
const STATION: Mac = Mac([0, 0x11, 0x22, 0, 0xb, 1]);
const SECOND: Mac = Mac([2, 0, 0, 0, 0xc, 1]);
const ROGUE: Mac = Mac([2, 0, 0, 0, 0xd, 1]);

/// Devices, by number.
const FIRST: usize = 0;
const OTHER: usize = 1;
const ROGUES: usize = 2;

/// Input queues of the honest guest of layer 3: each workload has its own.
const SORTED: usize = Workload::ALL.len();

/// The port of both ends of what is sent, unless it is to be another.
const USUAL_PORT: u16 = 12_345;

/// Protocols of IP.
const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;

/// Polls in which an adapter comes to rest.
const POLLS_MAX: usize = 10_000;

/// An adapter, two honest guests, one that keeps to no rules, and a wire of which the same is true.
///
/// # Panics
/// If an honest guest is disturbed, or gets what is not for it; or if anything is left over.
pub fn osa_adapter(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut world = World::new(&mut script);
        for _ in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            world.deed(&mut script);
            world.run();
        }
        world.check();
    }
    watch.stop();
}

struct World {
    now: u64,
    adapter: Adapter,
    devices: Vec<Option<Device>>,
    honest: [Interface; 2],
    /// The rogue's own halves, while it has a device.
    rogue: Option<Halves>,
    /// A number of each record that it sends.
    serial: u32,
    station: MemoryWire,
}

fn address(last: u8) -> IpAddr {
    [10, 1, 0, last].into()
}

fn path(outputs: usize, inputs: usize) -> [Halves; 2] {
    let shape = Shape { outputs, inputs };
    let (guest, guest_shown) = Side::create(shape).unwrap();
    let (adapter, adapter_shown) = Side::create(shape.mirrored()).unwrap();
    let (ours, theirs) = (0..2).map(|_| Doorbell::ends().unwrap()).unzip();
    let terms = Terms { window_bytes: 4 << 20, storage_bytes_max: 16 << 20, ..Terms::DEFAULT };
    [
        guest.join(adapter_shown, ours, terms).unwrap(),
        adapter.join(guest_shown, theirs, terms).unwrap(),
    ]
}

fn name(number: usize) -> Name {
    format!("GUEST{number}").parse().unwrap()
}

/// A packet of UDP with so many bytes of data, of which each is this number.
fn packet(from: IpAddr, to: IpAddr, bytes: usize, number: u8) -> Vec<u8> {
    packet_of(UDP, USUAL_PORT, [from, to], bytes, number)
}

/// A packet with what looks like the head of UDP, of this protocol, from this port to the usual one.
fn packet_of(
    protocol: u8,
    port: u16,
    [from, to]: [IpAddr; 2],
    bytes: usize,
    number: u8,
) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    for one in [from, to] {
        match one {
            IpAddr::V4(one) => packet.extend(one.octets()),
            IpAddr::V6(one) => packet.extend(&one.octets()[..4]),
        }
    }
    packet.extend(port.to_be_bytes());
    packet.extend(USUAL_PORT.to_be_bytes());
    packet.extend(((8 + bytes) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.resize(28 + bytes, number);
    let all = packet.len() as u16;
    packet[2..4].copy_from_slice(&all.to_be_bytes());
    packet
}

/// A connection of these two addresses.
fn connection(local: u8, peer: u8) -> Connection {
    let [local, peer] = [local, peer].map(|last| SocketAddr::new(address(last), USUAL_PORT));
    Connection { local, peer }
}

fn frame(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &[8, 0], packet].concat()
}

impl World {
    fn new(script: &mut Script<'_>) -> World {
        let conditions = Conditions { mtu: script.pick(&[1500, 8992]), ..Conditions::default() };
        let [wire, station] = MemoryWire::pair(conditions, 5, [PORT, STATION]).unwrap();
        let moderation = script.pick(&[Moderation::NONE, Moderation::default()]);
        let adapter = Adapter::new(Box::new(wire), moderation, [7; 16]);
        let (mut devices, mut honest) = (Vec::new(), Vec::new());
        for (number, layer, inputs) in [(FIRST, Layer::Three, SORTED), (OTHER, Layer::Two, 1)] {
            let [guest, device] = path(1, inputs);
            devices.push(Some(Device::new(name(number), device, 64)));
            honest.push(Interface::new(guest, layer, 64));
        }
        devices.push(None);
        let [first, other]: [Interface; 2] = honest.try_into().expect("two");
        let honest = [first, other];
        let mut world = World { now: 1, adapter, devices, honest, rogue: None, serial: 0, station };
        world.ask(FIRST, Request::Activate(Layer::Three, None));
        world.ask(FIRST, Request::AddAddress(address(1)));
        for workload in Workload::ALL {
            world.ask(FIRST, Request::Sort(workload, workload.usual_queue() as u8));
        }
        world.ask(FIRST, Request::AddConnection(connection(1, 7)));
        let inbperf = [Inbperf::Balanced, Inbperf::Mincpu, Inbperf::Minlatency, Inbperf::Dynamic];
        world.ask(FIRST, Request::Tune(script.pick(&inbperf)));
        world.ask(OTHER, Request::Activate(Layer::Two, Some(SECOND)));
        world.ask(OTHER, Request::AddAddress(address(2)));
        world
    }

    /// An honest guest asks for what it has to get.
    fn ask(&mut self, guest: usize, request: Request) {
        assert!(self.honest[guest].ask(request));
        self.run();
        self.received(guest);
        while let Some(news) = self.honest[guest].take_news() {
            assert!(!matches!(news, News::Answer(_, Err(_)) | News::Stopped(_)), "{news:?}");
        }
    }

    fn run(&mut self) {
        for _ in 0..POLLS_MAX {
            for number in 0..self.devices.len() {
                if self.devices[number].as_mut().is_some_and(Device::is_ready) {
                    self.adapter.note_ready(number, &mut self.devices);
                }
            }
            let worked = self.adapter.poll(self.now, &mut self.devices);
            for number in 0..self.devices.len() {
                if self.devices[number].as_ref().is_some_and(Device::is_over) {
                    assert_eq!(number, ROGUES, "an honest guest's device has ended");
                    let mut device = self.devices[number].take().expect("it is there");
                    self.adapter.leave(number, &mut device);
                    self.rogue = None;
                }
            }
            if !worked.has_more && !worked.has_worked {
                return;
            }
        }
        panic!("the adapter does not come to rest");
    }

    /// What an honest guest has received: all of it for that guest.
    fn received(&mut self, guest: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while self.honest[guest].next_packet().expect("the adapter keeps to the rules").is_some() {
            let found = self.honest[guest].found().expect("found just now");
            let mut bytes = found.start.to_vec();
            if let Some(rest) = found.rest {
                let start = bytes.len();
                bytes.resize(start + rest.bytes(), 0);
                rest.read(0, &mut bytes[start..]).expect("as long as it is");
            }
            let to = Mac(*bytes.first_chunk().expect("a header"));
            let own = if guest == FIRST { PORT } else { SECOND };
            assert!(to == own || to.is_group(), "{to} is not {own}");
            // Another of layer 3 may take this guest for a router.
            let is_from_port = bytes.get(6..12) == Some(&PORT.0[..]);
            if guest == FIRST && !to.is_group() && !is_from_port {
                assert_eq!(bytes.get(30..34), Some(&[10, 1, 0, 1][..]), "of layer 3");
            }
            frames.push(bytes);
        }
        frames
    }

    /// Packets that the honest guest of layer 3 has received by each queue.
    fn packets_by_queue(&self) -> Vec<u64> {
        let (inputs, _) = self.honest[FIRST].queues();
        inputs.iter().map(|input| input.counters().packets).collect()
    }

    fn at_station(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let taken = &mut |_: Offload, frame: &[u8]| frames.push(frame.to_vec());
        self.station.receive(self.now, 10_000, taken).unwrap();
        for frame in &frames {
            let from = Mac(*frame.get(6..12).and_then(|mac| mac.first_chunk()).expect("a header"));
            let is_ours = [PORT, SECOND].contains(&from) || self.rogue_mac() == Some(from);
            assert!(is_ours || from == ROGUE, "{from} is nobody's");
        }
        frames
    }

    fn rogue_mac(&self) -> Option<Mac> {
        self.devices[ROGUES].as_ref().map(Device::mac)
    }

    fn send_from_station(&mut self, offload: Offload, frame: &[u8]) {
        let _ = self.station.send(self.now, &FrameInPlace { offload, start: frame, rest: None });
    }

    fn deed(&mut self, script: &mut Script<'_>) {
        match script.below(10) {
            0 => self.now += script.pick(&[1, 5_000, 250_000, 1_000_000_000]),
            1 | 2 => {
                let (offload, bytes) = any_frame(script);
                self.send_from_station(offload, &bytes);
            }
            3 => {
                for guest in [FIRST, OTHER] {
                    self.received(guest);
                }
                self.at_station();
            }
            4 => self.take(script),
            _ if self.rogue.is_none() => self.open(script),
            5 | 6 => self.ask_for_anything(script),
            _ => self.hand_over(script),
        }
    }

    fn open(&mut self, script: &mut Script<'_>) {
        let [guest, device] = path(script.pick(&[1, 4]), script.pick(&[1, 2, 8]));
        self.devices[ROGUES] = Some(Device::new(name(ROGUES), device, 8));
        self.rogue = Some(guest);
        if script.below(2) == 0 {
            let layer = script.pick(&[Layer::Two, Layer::Three]);
            let mac = (layer == Layer::Two).then_some(ROGUE);
            self.send_record(Request::Activate(layer, mac));
        }
    }

    fn send_record(&mut self, request: Request) {
        self.serial += 1;
        let record = Record::request(self.serial, request);
        self.send_control(&record.emit());
    }

    fn send_control(&mut self, record: &[u8]) {
        let body = [&[2, 0, 0, 0, 0, 0, 0, 0][..], record].concat();
        if let Some(rogue) = &mut self.rogue {
            let _ = rogue.senders[0].send(&[], &body);
        }
    }

    fn ask_for_anything(&mut self, script: &mut Script<'_>) {
        let addresses =
            [address(1), address(2), address(3), "fd00::3".parse().unwrap(), [224, 0, 0, 9].into()];
        let macs = [PORT, SECOND, ROGUE, STATION, Mac([1, 0, 0x5e, 0, 0, 9]), Mac::BROADCAST];
        let connection = connection(script.pick(&[1, 2, 3]), script.pick(&[1, 7, 224]));
        let queue = script.pick(&[0, 1, 7, 8, 255]);
        let workload = script.pick(&Workload::ALL);
        let inbperf = [Inbperf::Balanced, Inbperf::Mincpu, Inbperf::Minlatency, Inbperf::Dynamic];
        let request = match script.below(20) {
            0 => Request::Activate(
                script.pick(&[Layer::Two, Layer::Three]),
                Some(script.pick(&macs)),
            ),
            1 => Request::Activate(Layer::Three, None),
            2 => Request::Halt,
            3 => Request::Clear,
            4 => Request::AddAddress(script.pick(&addresses)),
            5 => Request::RemoveAddress(script.pick(&addresses)),
            6 => Request::AddGroup(script.pick(&macs)),
            7 => Request::RemoveGroup(script.pick(&macs)),
            8 => Request::AddVlan(script.pick(&[0, 7, 4095])),
            9 => Request::RemoveVlan(7),
            10 => Request::Sort(workload, queue),
            11 | 12 => Request::AddConnection(connection),
            13 => Request::RemoveConnection(connection),
            14 => Request::ForgetConnection(connection),
            15 => Request::Distribute(script.pick(&addresses)),
            16 => Request::Gather(script.pick(&addresses)),
            17 => Request::Tune(script.pick(&inbperf)),
            18 => Request::Profile(Profile {
                hold_off_ns: script.number() as u32,
                gap_ns: script.number() as u32,
                packets_max: script.number() as u16,
                backlog: script.number() as u16,
            }),
            _ => Request::Route(script.pick(&[Router::None, Router::Primary, Router::Secondary])),
        };
        if script.below(TAME) == 0 {
            let mut record = Record::request(9, request).emit();
            let at = script.below(record.len());
            record[at] = script.number() as u8;
            return self.send_control(&record);
        }
        self.send_record(request);
    }

    /// The rogue hands over a buffer.
    fn hand_over(&mut self, script: &mut Script<'_>) {
        let mut body = vec![1, 0, 1, 0, 0, 0, 0, 0];
        for _ in 0..1 + script.below(4) {
            let (offload, bytes) = any_frame(script);
            let layer = script.pick(&[Layer::Two, Layer::Three]);
            let hop = script.pick(&[None, Some(address(1)), Some(address(2)), Some(address(9))]);
            let header =
                Header::new(layer, bytes.len(), offload, hop.filter(|_| layer == Layer::Three));
            body.extend(header.emit());
            body.extend(&bytes);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        if script.below(TAME) == 0 {
            for _ in 0..1 + script.below(4) {
                let at = script.below(body.len());
                body[at] = script.number() as u8;
            }
            body.truncate(body.len() - script.below(9));
        }
        let Some(rogue) = &mut self.rogue else { return };
        let queue = script.below(rogue.senders.len());
        let _ = match script.below(TAME) {
            0 => rogue.senders[queue].send(script.bytes(9), &body),
            1 => rogue.senders[queue].push(&[], &body),
            _ => rogue.senders[queue].send(&[], &body),
        };
        rogue.senders[queue].flush();
    }

    /// The rogue takes some of what has come, or leaves.
    fn take(&mut self, script: &mut Script<'_>) {
        let Some(rogue) = &mut self.rogue else { return };
        if script.below(TAME) == 0 {
            self.rogue = None;
            if let Some(device) = &mut self.devices[ROGUES] {
                let (_, outputs) = device.queues_mut();
                outputs[0].receiver().hear(os::doorbell::Listen::Now);
            }
            return;
        }
        let queue = script.below(rogue.receivers.len());
        for _ in 0..script.below(20) {
            let Ok(Some(message)) = rogue.receivers[queue].receive() else { return };
            let part = |at: usize, bytes: usize| message.body.get(8 + 32 + at..8 + 32 + at + bytes);
            let is_packet = message.body.first() == Some(&1) && part(12, 2) == Some(&[8, 0]);
            // Another of layer 3 may take this guest for a router.
            let is_of_first = part(0, 6) == Some(&PORT.0)
                && part(30, 4) == Some(&[10, 1, 0, 1])
                && part(6, 6) != Some(&PORT.0);
            let is_of_other = part(0, 6) == Some(&SECOND.0);
            assert!(!(is_packet && (is_of_first || is_of_other)), "what is for another guest");
        }
    }

    /// Whatever was before, the honest guests have what they had.
    fn check(&mut self) {
        self.now += 60_000_000_000;
        self.run();
        for guest in [FIRST, OTHER] {
            self.received(guest);
        }
        self.at_station();
        self.run();
        let to_first = frame(PORT, STATION, &packet(address(7), address(1), 300, 0x5a));
        let to_other = frame(SECOND, STATION, &packet(address(7), address(2), 300, 0xa5));
        let ends = [address(7), address(1)];
        let bulk = frame(PORT, STATION, &packet_of(TCP, USUAL_PORT, ends, 300, 0x77));
        let extender = frame(PORT, STATION, &packet_of(UDP, 12_000, ends, 300, 0x66));
        let before = self.packets_by_queue();
        for sent in [&to_first, &to_other, &bulk, &extender] {
            self.send_from_station(Offload::NONE, sent);
        }
        self.run();
        self.now += 1_000_000;
        self.run();
        let received = self.received(FIRST);
        for sent in [to_first, bulk, extender] {
            assert!(received.contains(&sent), "the guest of layer 3");
        }
        let after = self.packets_by_queue();
        let more: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(more, [1, 1, 0, 1, 0], "each by the queue of its workload");
        assert!(self.received(OTHER).contains(&to_other), "the guest of layer 2");
        let sent = frame(STATION, SECOND, &packet(address(2), address(7), 300, 0x33));
        let write = |target: &mut [u8]| target.copy_from_slice(&sent);
        self.honest[OTHER].send(self.now, 0, (Offload::NONE, sent.len()), None, write).unwrap();
        self.honest[OTHER].flush(true);
        self.run();
        assert!(self.at_station().contains(&sent), "the guest of layer 2 sends");
        // Nobody else has its address.
        assert!(self.honest[FIRST].ask(Request::AddAddress(address(1))));
        self.run();
        self.received(FIRST);
        let answer = std::iter::from_fn(|| self.honest[FIRST].take_news());
        let refused = |news: &News| matches!(news, News::Answer(_, Err(Refused::Taken)));
        assert!(!answer.into_iter().any(|news| refused(&news)));
    }
}

/// A frame: mostly right.
fn any_frame(script: &mut Script<'_>) -> (Offload, Vec<u8>) {
    let macs = [PORT, SECOND, ROGUE, STATION, Mac::BROADCAST, Mac([1, 0, 0x5e, 0, 0, 9])];
    let (to, from) = (script.pick(&macs), script.pick(&macs));
    let ips =
        [address(1), address(2), address(3), address(7), [255; 4].into(), [224, 0, 0, 9].into()];
    let mut frame = match script.below(4) {
        0 => announcement(script.pick(&ips[..4]), from),
        _ => {
            let bytes = script.pick(&[0, 10, 100, 1472, 1473, 9000, 40_000]);
            let protocol = script.pick(&[UDP, TCP, ESP]);
            let port = script.pick(&[USUAL_PORT, 12_000, 4500]);
            let ends = [script.pick(&ips), script.pick(&ips)];
            let packet = packet_of(protocol, port, ends, bytes, 1);
            frame(to, from, &packet)
        }
    };
    if script.below(TAME) == 0 {
        let at = script.below(frame.len().min(60));
        frame[at] = script.number() as u8;
        frame.truncate(frame.len() - script.below(frame.len()));
    }
    let checksum = script.pick(&[
        Checksum::Unknown,
        Checksum::Verified,
        Checksum::Partial { start: 34, at: 6 },
    ]);
    let segmentation = (script.below(TAME) == 0).then(|| Segmentation {
        kind: script.pick(&[Kind::Tcp4, Kind::Tcp6, Kind::Udp]),
        congestion: false,
        header_bytes: script.pick(&[42, 54, 66]),
        segment_bytes: script.pick(&[0, 1, 100, 1448]),
    });
    let vlan = script.pick(&[None, None, None, Some(7)]);
    (Offload { checksum, segmentation, vlan }, frame)
}
