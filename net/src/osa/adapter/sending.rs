//! Sending: to another device, to the wire, or to a neighbour that is to be found first.

use std::net::IpAddr;

use super::{ARP, Core, Ends, Full, IPV6, PENDING_MAX, Target, is_host};
use crate::lan::frame::{source, u16_at};
use crate::lan::link::FrameInPlace;
use crate::lan::offload::{Checksum, Offload, START_BYTES, segment_in_place};
use crate::osa::capture::Way;
use crate::osa::device::DropReason;
use crate::osa::wire::{NotSent, Wire};
use crate::tcpip::neighbours::{Found as At, Sender, Waiting};

impl Core {
    /// Has a packet go where it is to go. Returns how many copies were made of it.
    pub(super) fn forward(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        wire: &mut dyn Wire,
        number: usize,
        target: Target,
        piece: &FrameInPlace<'_>,
    ) -> Result<usize, Full> {
        match target {
            Target::Device(to) => {
                self.counters.frames_between += 1;
                self.counters.bytes_between += piece.bytes() as u64;
                let Some(device) = ends.device(to) else { return Ok(1) };
                // In layer 3 nobody has put the address of the other in front yet.
                let mac = device.mac;
                let (mut start, bytes) = ([0; START_BYTES], piece.start.len());
                start[..bytes].copy_from_slice(piece.start);
                start[..6].copy_from_slice(&mac.0);
                let piece = FrameInPlace { start: &start[..bytes], ..*piece };
                self.deliver_between(now, ends, Some(number), to, &piece);
                self.hear_of_guest(now, ends, &piece);
                Ok(1)
            }
            Target::Port => {
                self.hear_of_guest(now, ends, piece);
                Ok(1)
            }
            Target::Wire(_) => self.send(now, wire, piece).map(|()| 1),
            Target::Group(to) => {
                self.send(now, wire, piece)?;
                if !self.is_up && !self.captures.is_empty() {
                    // Guests of the port get it all the same.
                    let from = ends.device(number).map(|device| device.owner());
                    self.captures.take(now, Way::Between, from, piece);
                }
                let copies = self.deliver_to_group(now, ends, to, Some(number), piece);
                self.hear_of_guest(now, ends, piece);
                Ok(1 + copies)
            }
            Target::Neighbour(to) => self.resolve(now, ends, wire, (number, to), piece).map(|()| 1),
        }
    }

    /// A guest of layer 2 has said something that concerns those of layer 3.
    fn hear_of_guest(&mut self, now: u64, ends: &mut impl Ends, piece: &FrameInPlace<'_>) {
        if matches!(u16_at(piece.start, 12), Some(ARP | IPV6))
            && source(piece.start) != Some(self.mac)
        {
            self.hear(now, ends, piece);
        }
    }

    /// Sends a packet to a neighbour, or keeps it until the neighbour has said where it is.
    fn resolve(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        wire: &mut dyn Wire,
        (from, to): (usize, IpAddr),
        piece: &FrameInPlace<'_>,
    ) -> Result<(), Full> {
        if !is_host(to) {
            self.drops.add(DropReason::NoDevice, 1);
            return Ok(());
        }
        let vlan = piece.offload.vlan;
        let found = self.cache(vlan).find(now, to, Sender::Stranger);
        match found {
            At::At(mac) => {
                let (mut start, bytes) = ([0; START_BYTES], piece.start.len());
                start[..bytes].copy_from_slice(piece.start);
                start[..6].copy_from_slice(&mac.0);
                let piece = FrameInPlace { start: &start[..bytes], ..*piece };
                match self.router.of_mac(mac) {
                    Some(device) => {
                        self.counters.frames_between += 1;
                        self.counters.bytes_between += piece.bytes() as u64;
                        self.deliver_between(now, ends, Some(from), device, &piece);
                        Ok(())
                    }
                    None => self.send(now, wire, &piece),
                }
            }
            At::Asked | At::Ask => {
                let mut frame = vec![0; piece.bytes()];
                piece.read(0, &mut frame);
                let waiting = Waiting { offload: piece.offload, frame, is_passed: false };
                let dropped = self.cache(vlan).wait(to, waiting);
                self.drops.add(DropReason::Unresolved, dropped as u64);
                if found == At::Ask {
                    self.ask(now, ends, vlan, to, None);
                }
                Ok(())
            }
            At::Full => {
                self.drops.add(DropReason::Unresolved, 1);
                Ok(())
            }
        }
    }

    /// Sends a frame over the wire, and does for it what the wire leaves undone.
    fn send(
        &mut self,
        now: u64,
        wire: &mut dyn Wire,
        piece: &FrameInPlace<'_>,
    ) -> Result<(), Full> {
        if !self.is_up {
            self.drops.add(DropReason::Wire, 1);
            return Ok(());
        }
        if self.is_full || !self.pending.is_empty() {
            return Err(Full);
        }
        let is_partial = matches!(piece.offload.checksum, Checksum::Partial { .. });
        let is_done = match piece.offload.segmentation {
            Some(_) => self.cuts_segments,
            None => self.completes_checksums || !is_partial,
        };
        if is_done {
            return match wire.send(now, piece) {
                Ok(()) => {
                    self.captures.take(now, Way::ToWire, None, piece);
                    Ok(())
                }
                Err(NotSent::Full) => {
                    self.is_full = true;
                    Err(Full)
                }
                Err(NotSent::Dropped) => {
                    self.drops.add(DropReason::Wire, 1);
                    Ok(())
                }
            };
        }
        let Core { segment: room, pending, is_full, drops, captures, .. } = self;
        let offload = Offload { vlan: piece.offload.vlan, ..Offload::NONE };
        segment_in_place(piece, room, |bytes| {
            let frame = FrameInPlace { offload, start: bytes, rest: None };
            let sent = if *is_full { Err(NotSent::Full) } else { wire.send(now, &frame) };
            match sent {
                Ok(()) => captures.take(now, Way::ToWire, None, &frame),
                // No more than the segments of one frame.
                Err(NotSent::Full) => {
                    *is_full = true;
                    pending.push_back((offload, bytes.to_vec()));
                }
                Err(NotSent::Dropped) => drops.add(DropReason::Wire, 1),
            }
        });
        Ok(())
    }

    /// Sends what has waited.
    pub(super) fn send_pending(&mut self, now: u64, wire: &mut dyn Wire) {
        while let Some((offload, frame)) = self.pending.front() {
            if !self.is_up {
                self.drops.add(DropReason::Wire, self.pending.len() as u64);
                return self.pending.clear();
            }
            let piece = FrameInPlace { offload: *offload, start: frame, rest: None };
            match wire.send(now, &piece) {
                Ok(()) => self.captures.take(now, Way::ToWire, None, &piece),
                Err(NotSent::Full) => {
                    self.is_full = true;
                    return;
                }
                Err(NotSent::Dropped) => self.drops.add(DropReason::Wire, 1),
            }
            self.pending.pop_front();
        }
    }

    pub(super) fn put_pending(&mut self, offload: Offload, frame: Vec<u8>) {
        if self.pending.len() >= PENDING_MAX {
            return self.drops.add(DropReason::Wire, 1);
        }
        self.pending.push_back((offload, frame));
    }
}
