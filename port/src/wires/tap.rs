//! A wire that is a TAP interface: its other side is the kernel, or what the kernel joins it with.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use net::lan::frame::{ETHERNET_BYTES, Mac};
use net::lan::link::FrameInPlace;
use net::lan::offload::{FRAME_BYTES_MAX, Offload};
use net::osa::wire::{Capabilities, Carrier, NotSent, Wire, WireCounters};
use os::interface::Interface;
use os::tap::{HEAD_BYTES, Tap};

use super::medium::{Addresses, Medium, RETRY_NS, Source};
use super::{OpenWireError, WireOptions, chosen, os};
use crate::head::{TAG_AT, TAG_BYTES, from_kernel, to_kernel};
use crate::link::Links;

/// Where this machine has a name that stays.
const MACHINE: &str = "/etc/machine-id";

/// A TAP interface, which goes with the wire.
#[derive(Debug)]
pub struct TapWire {
    medium: Medium,
    tap: Tap,
    addresses: Addresses,
    frames: Frames,
}

impl TapWire {
    /// Makes an interface called `interface` in the network of the calling thread, and sets it up.
    ///
    /// # Errors
    /// [`OpenWireError`].
    pub fn open(interface: &str, options: &WireOptions) -> Result<TapWire, OpenWireError> {
        // The interface is new, and has another address each time.
        let machine = std::fs::read(MACHINE).unwrap_or_default();
        let mac = chosen(options, &[&machine, interface.as_bytes()].concat(), interface)?;
        let tap = Tap::create(interface)?;
        let found = Interface::find(interface).map_err(os("the interface"))?;
        let mut links = Links::open().map_err(os("netlink"))?;
        links.set_interface_up(found.index()).map_err(os("setting the interface up"))?;
        let mut medium = Medium::new(found).map_err(os("news of the interface"))?;
        medium.look(|| sources(&tap));
        Ok(TapWire { medium, tap, addresses: Addresses::new(mac), frames: Frames::new() })
    }
}

fn sources(tap: &Tap) -> Vec<Source<'_>> {
    vec![(tap.as_fd(), 0)]
}

impl Wire for TapWire {
    fn capabilities(&self) -> Capabilities {
        capabilities(&self.medium)
    }

    fn mac(&self) -> Mac {
        self.addresses.own
    }

    fn add_address(&mut self, mac: Mac) -> io::Result<()> {
        self.addresses.add(mac).map(drop)
    }

    fn remove_address(&mut self, mac: Mac) {
        self.addresses.remove(mac);
    }

    fn receive(
        &mut self,
        _now: u64,
        frames_max: usize,
        take: &mut dyn FnMut(Offload, &[u8]),
    ) -> io::Result<usize> {
        let TapWire { medium, tap, addresses, frames } = self;
        if medium.is_resting() {
            return Ok(0);
        }
        frames.receive(tap, frames_max, &|frame| addresses.takes(frame), take)
    }

    fn send(&mut self, now: u64, frame: &FrameInPlace<'_>) -> Result<(), NotSent> {
        self.frames.send(&self.tap, &self.medium, now, frame)
    }

    fn flush(&mut self, now: u64) {
        // Whoever is still refused sets it again.
        self.frames.due = self.frames.due.filter(|due| *due > now);
    }

    fn announce_sleep(&mut self) -> bool {
        // The kernel says in any case what has come.
        true
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.medium.poller.as_fd())
    }

    fn on_ready(&mut self) -> bool {
        self.medium.has_news()
    }

    fn due(&self) -> Option<u64> {
        self.frames.due.filter(|_| !self.medium.is_resting())
    }

    fn look(&mut self) -> (Carrier, bool) {
        let TapWire { medium, tap, .. } = self;
        medium.look(|| sources(tap));
        (medium.carrier, medium.take_change())
    }

    fn counters(&self) -> WireCounters {
        self.frames.counters
    }
}

/// What a TAP device, be it that of a macvtap interface, takes and gives.
pub(super) fn capabilities(medium: &Medium) -> Capabilities {
    let (mtu, rate) = (medium.mtu, medium.rate);
    Capabilities { mtu, completes_checksums: true, cuts_segments: true, rate }
}

/// Frames that are read from devices and written to them, and what was counted.
#[derive(Debug)]
pub(super) struct Frames {
    frame: Vec<u8>,
    pub counters: WireCounters,
    /// When what was full is to be tried again.
    pub due: Option<u64>,
}

impl Frames {
    pub fn new() -> Frames {
        let frame = vec![0; FRAME_BYTES_MAX + TAG_BYTES];
        Frames { frame, counters: WireCounters::default(), due: None }
    }

    /// Reads up to `frames_max` frames from a device, and gives those that `is_for_us` to `take`. Returns how many were read.
    pub fn receive(
        &mut self,
        tap: &Tap,
        frames_max: usize,
        is_for_us: &dyn Fn(&[u8]) -> bool,
        take: &mut dyn FnMut(Offload, &[u8]),
    ) -> io::Result<usize> {
        let mut head = [0; HEAD_BYTES];
        for count in 0..frames_max {
            self.counters.calls += 1;
            let Some(bytes) = tap.read(&mut head, &mut self.frame)? else { return Ok(count) };
            let frame = &mut self.frame[..bytes];
            let Ok((offload, start)) = from_kernel(&head, frame) else {
                self.counters.dropped_bad += 1;
                continue;
            };
            let frame = &frame[start..];
            if is_for_us(frame) {
                self.counters.frames_received += 1;
                self.counters.bytes_received += frame.len() as u64;
                take(offload, frame);
            }
        }
        Ok(frames_max)
    }

    /// Writes a frame to a device.
    pub fn send(
        &mut self,
        tap: &Tap,
        medium: &Medium,
        now: u64,
        frame: &FrameInPlace<'_>,
    ) -> Result<(), NotSent> {
        let FrameInPlace { offload, start, rest } = *frame;
        if medium.carrier != Carrier::Up || start.len() < ETHERNET_BYTES {
            self.counters.dropped_unsent += 1;
            return Err(NotSent::Dropped);
        }
        let (head, tag) = to_kernel(offload);
        let (addresses, behind) = start.split_at(TAG_AT);
        self.counters.calls += 1;
        let written = match &tag {
            None => tap.write(&[&head, start], rest),
            Some(tag) => tap.write(&[&head, addresses, tag, behind], rest),
        };
        match written {
            Ok(()) => {
                self.due = None;
                self.counters.frames_sent += 1;
                let rest_bytes = rest.map_or(0, |rest| rest.bytes());
                self.counters.bytes_sent += (start.len() + rest_bytes) as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.due = Some(now + RETRY_NS);
                Err(NotSent::Full)
            }
            Err(_) => {
                self.counters.dropped_unsent += 1;
                Err(NotSent::Dropped)
            }
        }
    }
}
