//! A wire with faults between two devices, in real time.
//!
//! A device is a TAP, whose interface is in some program's network, or one of two that are joined, whose other a stack holds
//! ([`Tap::joined`]). The wire is the adapter of both: it cuts long packets and fills in checksums. The model, and what a
//! wire does to frames, is in [`net::wire`].

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use net::wire::{Conditions, Counters, Direction, duplex};
use os::poller::wait_any;
use os::processor::now_ns;
use os::tap::{HEAD_BYTES, Tap};

use net::lan::offload::{FRAME_BYTES_MAX, Offload};

use crate::head::{TAG_BYTES, from_kernel};

/// Frames that go one way before those that go the other have their turn.
const BATCH: usize = 64;

/// For how long frames that have arrived wait for others, if some were delivered just before: as a network card delays its interrupts. Without
/// that a side at 1 Gb/s would be woken every 12 us, for each frame.
const MODERATION_NS: u64 = 50_000;

/// A wire between two devices. The direction of the same number leads away from a device.
#[derive(Debug)]
pub struct Wire {
    devices: [Tap; 2],
    directions: [Direction; 2],
    /// For the frame that is read, and for the segment that is cut off.
    frame: Vec<u8>,
    segment: Vec<u8>,
    has_more: bool,
    /// When frames are delivered next at the earliest.
    deliver_ns: u64,
    dropped_bad: u64,
    dropped_device: u64,
    late_ns_max: u64,
}

impl Wire {
    /// A wire with these conditions in both directions. The same seed has the same faults.
    pub fn new(devices: [Tap; 2], conditions: Conditions, seed: u64) -> Wire {
        Wire {
            devices,
            directions: duplex(conditions, seed),
            frame: vec![0; FRAME_BYTES_MAX + TAG_BYTES],
            segment: Vec::new(),
            has_more: true,
            deliver_ns: 0,
            dropped_bad: 0,
            dropped_device: 0,
            late_ns_max: 0,
        }
    }

    /// What became of the frames from each device.
    pub fn counters(&self) -> [Counters; 2] {
        [&self.directions[0], &self.directions[1]].map(Direction::counters)
    }

    /// Frames from the devices that were dropped because their heads make no sense.
    pub fn dropped_bad(&self) -> u64 {
        self.dropped_bad
    }

    /// Frames that arrived and were dropped because their device took no more.
    pub fn dropped_device(&self) -> u64 {
        self.dropped_device
    }

    /// By how many nanoseconds a frame was delivered late, at most. Up to 50 us are for frames that go together; the rest is time in which
    /// this thread had no processor, or more to do than it could.
    pub fn late_ns_max(&self) -> u64 {
        self.late_ns_max
    }

    /// Moves what there is to move, after a wait until there is something, or until `until_ns` on the machine's clock.
    ///
    /// # Errors
    /// A device is gone, or the kernel does not wait.
    pub fn turn(&mut self, until_ns: u64) -> io::Result<()> {
        let dues = self.directions.iter().filter_map(Direction::due);
        let next_ns = dues.map(|due| due.max(self.deliver_ns)).fold(until_ns, u64::min);
        let left_ns = if self.has_more { 0 } else { next_ns.saturating_sub(now_ns()) };
        let devices = [&self.devices[0], &self.devices[1]].map(|device| Some(device.as_fd()));
        let readable = wait_any(devices, Some(Duration::from_nanos(left_ns)))?;
        self.has_more = false;
        let now = now_ns();
        if now >= self.deliver_ns {
            let delivered = self.delivered();
            (0..2).for_each(|from| self.deliver(now, from));
            if self.delivered() > delivered && !self.has_more {
                self.deliver_ns = now + MODERATION_NS;
            }
        }
        for (from, is_readable) in readable.into_iter().enumerate() {
            if is_readable {
                self.fetch(now_ns(), from)?;
            }
        }
        Ok(())
    }

    fn delivered(&self) -> u64 {
        self.counters().iter().map(|counters| counters.delivered).sum()
    }

    /// Writes frames from this device that have arrived to the other.
    fn deliver(&mut self, now: u64, from: usize) {
        let Wire { devices, directions, .. } = self;
        let direction = &mut directions[from];
        for _ in 0..BATCH {
            let late_ns = now.saturating_sub(direction.due().unwrap_or(now));
            let Some(frame) = direction.take(now) else { return };
            self.late_ns_max = self.late_ns_max.max(late_ns);
            // All has been completed already, and nobody has looked at the checksum.
            if devices[1 - from].write(&[&[0; HEAD_BYTES], &frame], None).is_err() {
                self.dropped_device += 1;
            }
        }
        self.has_more = true;
    }

    /// Reads frames from this device, and sends them over the wire.
    fn fetch(&mut self, now: u64, from: usize) -> io::Result<()> {
        let Wire { devices, directions, frame, segment, .. } = self;
        let mut head = [0; HEAD_BYTES];
        for _ in 0..BATCH {
            let Some(bytes) = devices[from].read(&mut head, frame)? else { return Ok(()) };
            let bytes = &mut frame[..bytes];
            let Ok((offload, start)) = from_kernel(&head, bytes) else {
                self.dropped_bad += 1;
                continue;
            };
            // A program in whose network the device is makes heads as it likes.
            match Offload::parse(&offload.head(), &bytes[start..]) {
                Ok(offload) => {
                    directions[from].put_offloaded(now, offload, &bytes[start..], segment);
                }
                Err(_) => self.dropped_bad += 1,
            }
        }
        self.has_more = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use net::wire::Share;

    use super::*;

    fn frame(number: u8, bytes: usize) -> Vec<u8> {
        let mut frame = vec![number; bytes];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame
    }

    fn write(device: &Tap, frame: &[u8]) {
        device.write(&[&[0; HEAD_BYTES], frame], None).unwrap();
    }

    fn read(device: &Tap) -> Option<Vec<u8>> {
        let (mut head, mut room) = ([0; HEAD_BYTES], vec![0; 70_000]);
        let bytes = device.read(&mut head, &mut room).unwrap()?;
        assert_eq!(head, [0; HEAD_BYTES]);
        Some(room[..bytes].to_vec())
    }

    #[test]
    fn frames_cross_in_order_both_ways_and_what_does_not_is_counted() {
        let [(first, our_first), (second, our_second)] = [(); 2].map(|()| Tap::joined().unwrap());
        let conditions = Conditions {
            rate: NonZeroU64::new(1_000_000_000),
            delay: Duration::from_micros(300),
            loss: Share::percent(30),
            ..Conditions::default()
        };
        let mut wire = Wire::new([first, second], conditions, 5);
        let sent: Vec<Vec<u8>> = (0..40).map(|number| frame(number, 600)).collect();
        for frame in &sent {
            write(&our_first, frame);
            write(&our_second, frame);
        }
        write(&our_first, &frame(1, 1515));
        write(&our_first, &[0; 13]);
        // A head that is none.
        our_first.write(&[&[0xff; HEAD_BYTES], &frame(1, 100)], None).unwrap();
        let mut came = [Vec::new(), Vec::new()];
        let gone = |counters: &Counters| counters.lost + counters.delivered + counters.dropped_long;
        while wire.counters().iter().map(gone).sum::<u64>() < 81 {
            wire.turn(u64::MAX).unwrap();
            for (device, came) in [&our_second, &our_first].into_iter().zip(&mut came) {
                came.extend(std::iter::from_fn(|| read(device)));
            }
        }
        let counters = wire.counters();
        assert_eq!((counters[0].dropped_long, wire.dropped_bad()), (1, 2));
        for (counters, came) in counters.iter().zip(&came) {
            assert_eq!(counters.delivered, came.len() as u64);
            assert!((1..40).contains(&counters.lost), "{counters:?}");
            assert!(came.is_sorted() && came.iter().all(|frame| sent.contains(frame)));
        }
        assert_eq!(wire.dropped_device(), 0);
    }

    #[test]
    fn device_that_takes_nothing_loses_frames_and_one_that_is_gone_ends_the_wire() {
        let [(first, our_first), (second, our_second)] = [(); 2].map(|()| Tap::joined().unwrap());
        let mut wire = Wire::new([first, second], Conditions::default(), 5);
        while wire.dropped_device() == 0 {
            write(&our_first, &frame(1, 1000));
            wire.turn(0).unwrap();
        }
        assert!(read(&our_second).is_some());
        drop(our_second);
        let mut turns = (0..10).map(|_| wire.turn(u64::MAX));
        assert!(turns.any(|turn| turn.is_err()));
    }
}
