//! What a macvtap interface costs without an adapter: one thread reads and writes between it and a TAP, whose other side is the kernel.
//!
//! Heads and frames go as they come, so both leave segmentation and checksums to whoever is at the end.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use host::report::Counts;
use net::lan::frame::Mac;
use net::lan::offload::FRAME_BYTES_MAX;
use os::interface::Interface;
use os::macvtap::OwnNetwork;
use os::poller::Poller;
use os::processor::now_ns;
use os::tap::{HEAD_BYTES, Tap};
use port::head::TAG_BYTES;
use port::link::{Address, Links};

use super::adapters::{ADDRESSES, PREFIX_BITS};
use super::cable::{HERE, unable};
use crate::fault::{Doing, Fault};
use crate::workload::Service;

/// The interface of the kernel behind the relay, and the macvtap interface.
pub(super) const TAP: &str = "tap0";
const MACVTAP: &str = "macvtap0";

/// The MAC address of both, so that frames go on unchanged.
const MAC: Mac = Mac([2, 0, 0, 0, 0xb, 3]);

/// Frames that go one way before it is the other's turn.
const BATCH: usize = 64;

/// Frames between a TAP and a macvtap interface at [`HERE`] of the calling thread's network.
#[derive(Debug)]
pub(super) struct Relay {
    /// Each goes from its own end to that of the other.
    ways: [Way; 2],
    poller: Poller,
    /// The network of the TAP, and that of the macvtap interface.
    behind: OwnNetwork,
    _macvtap: OwnNetwork,
}

/// An end, and the frame that was read from it last.
#[derive(Debug)]
struct Way {
    end: Tap,
    head: [u8; HEAD_BYTES],
    frame: Vec<u8>,
    /// Bytes of a frame for which the other end had no room yet.
    held: Option<usize>,
    frames: u64,
    dropped: u64,
}

impl Relay {
    /// Makes both interfaces.
    pub(super) fn open(mtu: u32) -> Result<Relay, Fault> {
        let address = Address { address: ADDRESSES[0], prefix_bits: PREFIX_BITS };
        let (behind, tap) = OwnNetwork::make(|| {
            let tap = Tap::create(TAP).map_err(std::io::Error::other)?;
            let mut links = Links::open()?;
            links.set_loopback_up()?;
            links.set_up(TAP, MAC, mtu, &[address])?;
            Ok(tap)
        })
        .map_err(|error| unable("TAP", error))?;
        let lower = Interface::find(HERE).doing("find an interface")?;
        let (own, (mut inside, loopback)) =
            OwnNetwork::make(|| Ok((Links::open()?, Interface::find("lo")?)))
                .map_err(|error| unable("network for a macvtap interface", error))?;
        let mut outside = Links::open().doing("speak with the kernel")?;
        outside
            .add_macvtap(lower.index(), MAC, MACVTAP, own.as_fd())
            .map_err(|error| unable("macvtap interface", error))?;
        let made = loopback.find_beside(MACVTAP).doing("find an interface")?;
        let macvtap = own.open_macvtap(made.index());
        let macvtap = macvtap.map_err(|error| unable("device of a macvtap interface", error))?;
        inside.set_up_bare(made.index()).doing("set an interface up")?;
        let poller = Poller::new().doing("make a poller")?;
        for (name, end) in [&tap, &macvtap].into_iter().enumerate() {
            poller.add_arrivals(end, name as u64).doing("wait for a device")?;
        }
        let ways = [tap, macvtap].map(|end| Way {
            end,
            head: [0; HEAD_BYTES],
            frame: vec![0; FRAME_BYTES_MAX + TAG_BYTES],
            held: None,
            frames: 0,
            dropped: 0,
        });
        Ok(Relay { ways, poller, behind, _macvtap: own })
    }

    /// The network of the TAP.
    pub(super) fn behind(&self) -> BorrowedFd<'_> {
        self.behind.as_fd()
    }

    /// Has frames go from one end to the other, a batch at most. Returns true if there may be more.
    fn pass(&mut self, from: usize) -> Result<bool, Fault> {
        let [one, other] = &mut self.ways;
        let (way, to) = if from == 0 { (one, &other.end) } else { (other, &one.end) };
        let (poller, name) = (&self.poller, 1 - from as u64);
        for _ in 0..BATCH {
            let was_held = way.held.take();
            let read = match was_held {
                Some(bytes) => Some(bytes),
                None => way.end.read(&mut way.head, &mut way.frame).doing("read a frame")?,
            };
            let Some(bytes) = read else { return Ok(false) };
            let written = to.write(&[&way.head, &way.frame[..bytes]], None);
            let is_full = matches!(&written, Err(error) if error.kind() == ErrorKind::WouldBlock);
            if is_full != was_held.is_some() {
                poller.wait_for_room(to, name, is_full).doing("wait for a device")?;
            }
            match written {
                _ if is_full => {
                    way.held = Some(bytes);
                    return Ok(false);
                }
                Ok(()) => way.frames += 1,
                Err(_) => way.dropped += 1,
            }
        }
        Ok(true)
    }
}

impl Service for Relay {
    fn serve_until(&mut self, until_ns: u64) -> Result<(), Fault> {
        loop {
            let more = [self.pass(0)?, self.pass(1)?];
            let now = now_ns();
            if now >= until_ns {
                return Ok(());
            }
            if more == [false; 2] {
                let left = Duration::from_nanos(until_ns - now);
                self.poller.wait(Some(left)).doing("wait for a device")?;
            }
        }
    }

    fn counts(&self) -> Counts {
        let [out, back] = &self.ways;
        let counts = [
            ("wire_frames_out", out.frames),
            ("wire_frames_in", back.frames),
            ("dropped", out.dropped + back.dropped),
        ];
        counts.map(|(name, count)| (name.to_owned(), count)).into()
    }
}
