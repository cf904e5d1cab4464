//! TCP over a wire with faults, between the kernel's stack and the guests' own in all four ways.
//!
//! The wire is a party in the place of a host. The kernel's end is a TAP in a network of its own; the stack's is a joined device. Both leave
//! segmentation and checksums to the wire, so it is the same wire for all.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use host::report::Counts;
use net::lan::frame::Mac;
use net::lan::link::Frame;
use net::lan::offload::{FRAME_BYTES_MAX, Offload};
use net::tcpip::{
    ConnectionId, Counter, Device, Link, Options, Readable, Secret, Stack, Unsent, Writable,
};
use net::wire::{Conditions, Share};
use os::foreign::Foreign;
use os::poller::Poller;
use os::processor::now_ns;
use os::tap::{HEAD_BYTES, Tap};
use port::head::{TAG_BYTES, from_kernel, to_kernel};
use port::link::{Address, Links};
use port::wire::Wire;

use super::bytes::ByteEnd;
use super::network::{connect_over, separate};
use super::tcpip::{FINISH_MAX, PORT};
use super::{Can, End, KERNEL, Opening, Transport};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};
use crate::quantity::Report;
use crate::role::{self, HOST};
use crate::workload::{Service, serve_until_told};

pub(super) const TCP_WIRE: Transport = Transport {
    name: "tcp-wire",
    meaning: "TCP of the kernel over a wire with faults, between two TAPs",
    can: &[Can::Wire],
    carry: |opening| opening.over(kernel),
    needs_host: true,
    factors: &["mtu"],
    waits: &["block"],
    ..KERNEL
};

pub(super) const TCP_WIRE_OUT: Transport = Transport {
    name: "tcp-wire-out",
    meaning: "the same, from the guests' own stack to the kernel's",
    carry: |opening| match opening.order.is_source() {
        true => opening.over(StackEnd::open),
        false => opening.over(kernel),
    },
    ..TCP_WIRE
};

pub(super) const TCP_WIRE_IN: Transport = Transport {
    name: "tcp-wire-in",
    meaning: "the same, from the kernel's to the guests' own stack",
    carry: |opening| match opening.order.is_source() {
        true => opening.over(kernel),
        false => opening.over(StackEnd::open),
    },
    ..TCP_WIRE
};

pub(super) const TCP_WIRE_STACK: Transport = Transport {
    name: "tcp-wire-stack",
    meaning: "the same, of the guests' own stack on both sides; needs no TAP",
    carry: |opening| opening.over(StackEnd::open),
    ..TCP_WIRE
};

/// What a wire does to frames beside the rate and the delay, by the levels of the factor `faults`: the shares of frames that are
/// lost and reordered, per million.
pub(crate) const FAULTS: [&str; 4] = ["none", "loss 0.1%", "loss 1%", "reordering 1%"];
const SHARES: [(u32, u32); 4] = [(0, 0), (1000, 0), (10_000, 0), (0, 10_000)];

/// The interface of the kernel's end.
const INTERFACE: &str = "wire0";

/// Frames that are received before the stack answers.
const BATCH: usize = 16;

/// A time that does not come.
const NEVER: u64 = u64::MAX;

/// How long a target waits until the source knows that all has come.
const LINGER_NS: u64 = 500_000_000;

/// What becomes of frames, in both directions.
fn conditions(order: &Order) -> Conditions {
    let level = FAULTS.iter().position(|faults| *faults == order.word("faults"));
    let (loss, reordering) = SHARES[level.expect("a level of the factor")];
    let round_trip = Duration::from_micros(order.number("round_trip_us"));
    Conditions {
        rate: NonZeroU64::new(order.number("mbit") * 1_000_000),
        delay: round_trip / 2,
        mtu: order.number("mtu") as usize,
        loss: Share::per_million(loss),
        reordering: Share::per_million(reordering),
        later_max: round_trip / 2,
        ..Conditions::default()
    }
}

/// The wire, until the others are done.
pub(crate) fn serve(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    control.announce()?;
    let mut ends = [control.parcel()?, control.parcel()?];
    // Each direction has its faults, whichever end was first.
    ends.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut devices = Vec::new();
    for (_, descriptors) in ends {
        let trusted = descriptors.into_iter().map(Foreign::trust).collect::<Result<Vec<_>, _>>();
        devices.extend(trusted.doing("take a device")?.into_iter().map(Tap::adopt));
    }
    let devices: [Tap; 2] = devices.try_into().map_err(|_| Fault::Ended)?;
    let seed = match order.number("seed") {
        0 => now_ns(),
        seed => seed,
    };
    let wire = Wire::new(devices, conditions(order), seed);
    let mut line = Line { wire, is_gone: false };
    let mut report = serve_until_told(order, control, &[], &mut line)?;
    let settings = [("wire_seed", seed), ("wire_late_ns_max", line.wire.late_ns_max())];
    report.counters.extend(settings.map(|(name, number)| (name.to_owned(), number)));
    Ok(report)
}

/// The wire, while it has two ends.
struct Line {
    wire: Wire,
    is_gone: bool,
}

impl Service for Line {
    fn serve_until(&mut self, until_ns: u64) -> Result<(), Fault> {
        // When one end is gone the other has all that it needs.
        self.is_gone = self.is_gone || self.wire.turn(until_ns).is_err();
        if self.is_gone {
            thread::sleep(Duration::from_nanos(until_ns.saturating_sub(now_ns())));
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        let both = self.wire.counters();
        let sum = |of: fn(&net::wire::Counters) -> u64| both.iter().map(of).sum::<u64>();
        let dropped = self.wire.dropped_bad() + self.wire.dropped_device();
        let counts = [
            ("wire_delivered", sum(|of| of.delivered)),
            ("wire_lost", sum(|of| of.lost)),
            ("wire_reordered", sum(|of| of.reordered)),
            ("wire_dropped_full", sum(|of| of.dropped_full)),
            ("wire_dropped", sum(|of| of.dropped_long) + dropped),
        ];
        counts.map(|(name, count)| (name.to_owned(), count)).into()
    }
}

/// The addresses of this party.
fn address(order: &Order) -> (Mac, IpAddr) {
    let number = if order.is_source() { 1 } else { 2 };
    (Mac([2, 0, 0, 0, 0, number]), IpAddr::V4(Ipv4Addr::new(10, 9, 0, number)))
}

/// Gives the wire the other side of this party's device.
fn give(order: &Order, control: &Control, device: &Tap) -> Result<(), Fault> {
    control.pass_to(&role::Address::of(HOST, 0), &order.role, &[device.as_fd()])
}

/// A connection of the kernel over a TAP in a network of this party's own.
fn kernel(opening: &mut Opening<'_>) -> Result<ByteEnd<TcpStream, TcpStream>, Fault> {
    let Opening { order, control, .. } = opening;
    separate()?;
    let (mac, own) = address(order);
    let tap = Tap::create(INTERFACE).map_err(|error| Fault::Unable(error.to_string()))?;
    let mut links = Links::open().doing("speak with the kernel")?;
    links.set_loopback_up().doing("set the loopback interface up")?;
    let address = Address { address: own, prefix_bits: 24 };
    links
        .set_up(INTERFACE, mac, order.number("mtu") as u32, &[address])
        .doing("set an interface up")?;
    give(order, control, &tap)?;
    let mut end = connect_over(own, opening)?;
    end.count = kernel_counts;
    Ok(end)
}

/// What TCP has sent again in this network, and why.
fn kernel_counts() -> Counts {
    let files = ["snmp", "netstat"].map(|name| format!("/proc/thread-self/net/{name}"));
    let text = files.map(|file| fs::read_to_string(file).unwrap_or_default()).concat();
    let names = [
        ("tcp_resent", "RetransSegs"),
        ("tcp_timeouts", "TCPTimeouts"),
        ("tcp_loss_probes", "TCPLossProbes"),
        ("tcp_came_twice", "TCPDSACKRecv"),
    ];
    let found = |(own, name): (&str, &str)| Some((own.to_owned(), counter(&text, name)?));
    names.into_iter().filter_map(found).collect()
}

/// A number of the kernel's: a line has the names of a group, and the next their numbers.
fn counter(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks(2).find_map(|pair| {
        let at = pair[0].split(' ').position(|found| found == name)?;
        pair.get(1)?.split(' ').nth(at)?.parse().ok()
    })
}

/// What the stack's end of the wire sends through. The stack finds its neighbour itself, as the kernel's does.
#[derive(Debug)]
struct Adapter {
    device: Tap,
}

impl Link for Adapter {
    fn send(&mut self, _: usize, offload: Offload, frame: &[u8]) -> Result<(), Unsent> {
        match self.device.write(&[&to_kernel(offload).0, frame], None) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Err(Unsent::Full),
            Err(_) => Err(Unsent::Unreachable),
        }
    }
}

/// A stack of this party's own, at its end of the wire.
#[derive(Debug)]
struct Station {
    stack: Stack,
    adapter: Adapter,
    poller: Poller,
    waits_for_room: bool,
    frame: Vec<u8>,
}

impl Station {
    fn open(order: &Order, control: &Control) -> Result<Station, Fault> {
        let (own, ip) = address(order);
        let (device, other) = Tap::joined().doing("make a device")?;
        give(order, control, &other)?;
        let options = Options {
            mtu: order.number("mtu") as usize,
            device: Device::WIRE,
            ..Options::default()
        };
        // Nobody else is on the wire who could guess.
        let stack = Stack::new(own, &[ip], options, Secret([1; 16]));
        let poller = Poller::new().doing("make a poller")?;
        poller.add_arrivals(&device, 0).doing("wait for a device")?;
        let frame = vec![0; FRAME_BYTES_MAX + TAG_BYTES];
        let adapter = Adapter { device };
        Ok(Station { stack, adapter, poller, waits_for_room: false, frame })
    }

    /// Sends what there is to send, waits until there is something to do, no longer than until `until_ns`, and does it.
    fn wait_until(&mut self, until_ns: u64) -> Result<(), Fault> {
        let Station { stack, adapter, poller, waits_for_room, .. } = self;
        while stack.poll(now_ns(), adapter) {}
        if stack.waits_for_room() != *waits_for_room {
            *waits_for_room = !*waits_for_room;
            let changed = poller.wait_for_room(&adapter.device, 0, *waits_for_room);
            changed.doing("wait for a device")?;
        }
        let now = now_ns();
        let due = stack.due().unwrap_or(u64::MAX).min(until_ns);
        let left = (due != u64::MAX).then(|| Duration::from_nanos(due.saturating_sub(now)));
        poller.wait(left).doing("wait for a device")?;
        self.turn()
    }

    /// Receives all frames that are there, and sends what there is to send.
    fn turn(&mut self) -> Result<(), Fault> {
        let Station { stack, adapter, frame, .. } = self;
        let mut head = [0; HEAD_BYTES];
        for number in 1.. {
            let read = adapter.device.read(&mut head, frame).doing("read a frame")?;
            let Some(bytes) = read else { break };
            if let Ok((offload, start)) = from_kernel(&head, &mut frame[..bytes]) {
                let frame = Frame { offload, bytes: &frame[start..bytes] };
                stack.receive(now_ns(), 0, frame, adapter);
            }
            if number % BATCH == 0 {
                stack.poll(now_ns(), adapter);
            }
        }
        while stack.poll(now_ns(), adapter) {}
        Ok(())
    }
}

/// A connection of such a stack.
#[derive(Debug)]
struct StackEnd {
    station: Station,
    id: ConnectionId,
    message: Vec<u8>,
}

impl StackEnd {
    /// The target listens, and says where; the source connects.
    fn open(opening: &mut Opening<'_>) -> Result<StackEnd, Fault> {
        let Opening { order, control, bytes, .. } = opening;
        let mut station = Station::open(order, control)?;
        let id = if order.is_source() {
            let to = control.note()?.parse().doing("read an address")?;
            let id = station.stack.connect(now_ns(), to).doing("connect")?;
            while station.stack.is_connecting(id) {
                station.wait_until(NEVER)?;
            }
            id
        } else {
            let at = SocketAddr::new(station.stack.addresses()[0], PORT);
            let at = station.stack.listen(at, 1).doing("listen")?;
            control.tell(&at.to_string())?;
            loop {
                if let Some((id, _)) = station.stack.accept(at) {
                    break id;
                }
                station.wait_until(NEVER)?;
            }
        };
        station.stack.set_no_delay(id, true);
        Ok(StackEnd { station, id, message: vec![0; *bytes] })
    }
}

impl End for StackEnd {
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let StackEnd { station, id, message } = self;
        build(&mut message[..bytes]);
        let mut at = 0;
        while at < bytes {
            let put = station.stack.send_with(*id, |room| {
                let count = room.len().min(bytes - at);
                room[..count].copy_from_slice(&message[at..at + count]);
                (count, count)
            });
            match put {
                Some(count) => at += count,
                None if station.stack.writable(*id) == Writable::Closed => {
                    return Err(Fault::Ended);
                }
                None => station.wait_until(NEVER)?,
            }
        }
        station.turn()
    }

    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        let StackEnd { station, id, message } = self;
        let mut at = 0;
        while at < bytes {
            if at == 0 && station.stack.readable(*id) == Readable::Finished {
                // The stack goes with this end: the other's last segment has to be acknowledged before, and the acknowledgement may
                // be lost.
                station.stack.shut_sending(*id);
                let end_ns = now_ns() + LINGER_NS;
                while station.stack.is_closing(*id) && now_ns() < end_ns {
                    station.wait_until(end_ns)?;
                }
                return Ok(false);
            }
            let taken = station.stack.receive_with(*id, |piece| {
                let count = piece.len().min(bytes - at);
                message[at..at + count].copy_from_slice(&piece[..count]);
                (count, count)
            });
            match (taken, station.stack.readable(*id)) {
                (Some(count), _) => at += count,
                (None, Readable::Finished | Readable::Failed) => return Err(Fault::Ended),
                (None, _) => station.wait_until(NEVER)?,
            }
        }
        read(0, &message[..bytes]);
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        let StackEnd { station, id, .. } = self;
        station.stack.shut_sending(*id);
        // The stack goes with this end, and what is not acknowledged goes with the stack.
        let end_ns = now_ns() + FINISH_MAX.as_nanos() as u64;
        while station.stack.readable(*id) != Readable::Finished {
            if station.stack.readable(*id) == Readable::Failed || now_ns() > end_ns {
                return Err(Fault::Ended);
            }
            station.wait_until(end_ns)?;
        }
        Ok(())
    }

    fn counts(&mut self) -> Counts {
        [("tcp_resent".to_owned(), self.station.stack.counter(Counter::Resent))].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_kernel_are_found_by_name() {
        let text = "Tcp: RtoAlgorithm RetransSegs OutRsts\nTcp: 1 77 3\nUdp: In\nUdp: 5\n\
            TcpExt: TCPTimeouts TCPLossProbes\nTcpExt: 8 9\n";
        let found = ["RetransSegs", "TCPLossProbes", "Out"].map(|name| counter(text, name));
        assert_eq!(found, [Some(77), Some(9), None]);
    }
}
