//! Frames on their way to devices: from the wire, or from another device.

use super::{Core, Ends, IPV4, Moderation, ORDINARY_MTU, RETRY_NS, ip_of};
use crate::lan::admission::has_tag;
use crate::lan::frame::{ETHERNET_BYTES, Mac, destination, source, u16_at};
use crate::lan::link::FrameInPlace;
use crate::lan::offload::{Offload, segment_in_place};
use crate::osa::buffer::{NotPut, Room};
use crate::osa::capture::Way;
use crate::osa::device::{Device, DropReason};
use crate::osa::packet::{FRAME_BYTES_MAX, Header, Layer};

impl Core {
    /// Takes a frame from the wire.
    pub(super) fn take_frame(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        offload: Offload,
        frame: &[u8],
    ) {
        let (Some(to), Some(from)) = (destination(frame), source(frame)) else {
            return self.drops.add(DropReason::Runt, 1);
        };
        let piece = FrameInPlace { offload, start: frame, rest: None };
        self.captures.take(now, Way::FromWire, None, &piece);
        if frame.len() > ETHERNET_BYTES + self.mtu && offload.segmentation.is_none() {
            return self.drops.add(DropReason::Long, 1);
        }
        if has_tag(frame) {
            return self.drops.add(DropReason::Vlan, 1);
        }
        // What one of ours has sent comes from elsewhere: a loop, or somebody who pretends to be one of them.
        if from == self.mac || from.is_group() || self.router.of_mac(from).is_some() {
            return self.drops.add(DropReason::Source, 1);
        }
        let is_of_neighbours = self.hear(now, ends, &piece);
        let delivered = match to.is_group() {
            true => self.deliver_to_group(now, ends, to, None, &piece) > 0,
            false => match self.find(to, frame) {
                Some(device) => {
                    self.deliver(now, ends, device, &piece);
                    true
                }
                None => false,
            },
        };
        if !delivered && !is_of_neighbours {
            self.drops.add(DropReason::NoDevice, 1);
        }
    }

    /// The device that a frame to this MAC address is for.
    pub(super) fn find(&self, to: Mac, frame: &[u8]) -> Option<usize> {
        if to != self.mac {
            return self.router.of_mac(to);
        }
        let (_, address, _) = ip_of(frame)?;
        self.router.of_packet(address)
    }

    /// Gives a frame to all devices that want it, but for the one that has sent it. Returns how many there were.
    pub(super) fn deliver_to_group(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        to: Mac,
        from: Option<usize>,
        piece: &FrameInPlace<'_>,
    ) -> usize {
        let kind = u16_at(piece.start, 12);
        let mut targets: Vec<usize> = match to == Mac::BROADCAST {
            // The adapter answers for devices of layer 3: they get packets of IP alone.
            true if kind == Some(IPV4) => {
                let [two, three] =
                    [Layer::Two, Layer::Three].map(|layer| self.router.of_layer(layer));
                [two, three].concat()
            }
            true => self.router.of_layer(Layer::Two).to_vec(),
            false => self.router.of_group(to).to_vec(),
        };
        targets.retain(|one| Some(*one) != from);
        for device in &targets {
            self.deliver(now, ends, *device, piece);
        }
        targets.len()
    }

    /// Gives a device a frame that never reaches the wire, from another device, or from the adapter itself.
    pub(super) fn deliver_between(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        from: Option<usize>,
        number: usize,
        piece: &FrameInPlace<'_>,
    ) {
        if !self.captures.is_empty() {
            let from = from.and_then(|from| ends.device(from)).map(|device| device.owner());
            self.captures.take(now, Way::Between, from, piece);
        }
        self.deliver(now, ends, number, piece);
    }

    /// Puts a frame into an input queue of a device.
    pub(super) fn deliver(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        number: usize,
        piece: &FrameInPlace<'_>,
    ) {
        let Some(device) = ends.device(number) else { return };
        if !device.is_active() {
            return device.drops.add(DropReason::Inactive, 1);
        }
        if !device.takes_vlan(piece.offload.vlan) {
            return device.drops.add(DropReason::Vlan, 1);
        }
        if piece.bytes() > FRAME_BYTES_MAX {
            return self.deliver_cut(now, ends, number, piece);
        }
        self.put(now, device, number, piece);
    }

    fn put(&mut self, now: u64, device: &mut Device, number: usize, piece: &FrameInPlace<'_>) {
        let queue = device.sorter.queue(piece.start);
        let packets = piece.offload.segments(piece.bytes());
        if let Some(before) = device.tuning.note(queue, now, packets, piece.bytes()) {
            device.note_step(now, queue, before);
        }
        let header = Header::new(device.layer, piece.bytes(), piece.offload, None);
        let input = &mut device.inputs[queue];
        let (was_open, buffers) = (input.open_since().is_some(), input.counters().buffers);
        let put = input.put(now, &header, Room::Whole, |target| {
            // As long as the frame is.
            piece.read(0, target);
        });
        self.counters.closed_full += input.counters().buffers - buffers;
        let is_open = input.open_since().is_some();
        match put {
            Ok(()) => {}
            Err(NotPut::Exhausted) => device.drops.add(DropReason::Exhausted, 1),
            Err(NotPut::Lacking(_)) => device.drops.add(DropReason::Lacking, 1),
            Err(NotPut::Severed) => device.is_over = true,
        }
        if is_open && !was_open {
            self.open.push((number, queue));
        }
    }

    /// A frame that is longer than a buffer stands for several segments: each goes by itself.
    #[cold]
    fn deliver_cut(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        number: usize,
        piece: &FrameInPlace<'_>,
    ) {
        let mut room = std::mem::take(&mut self.segment);
        let offload = Offload { vlan: piece.offload.vlan, ..Offload::NONE };
        segment_in_place(piece, &mut room, |bytes| {
            if let Some(device) = ends.device(number)
                && bytes.len() <= FRAME_BYTES_MAX
            {
                self.put(now, device, number, &FrameInPlace { offload, start: bytes, rest: None });
            }
        });
        self.segment = room;
    }

    /// Hands over the buffers whose time has come. Returns true if there were any.
    pub(super) fn close_due(&mut self, now: u64, ends: &mut impl Ends) -> bool {
        let (usual, is_jumbo, packet_ns) =
            (self.moderation, self.mtu > ORDINARY_MTU, self.packet_ns);
        let (mut has_closed, mut due, mut held_due) = (false, None, None);
        let Core { open, counters, .. } = self;
        open.retain(|(number, queue)| {
            let Some(device) = ends.device(*number) else { return false };
            let input = &mut device.inputs[*queue];
            let Some((first, last, packets)) = input.open_since() else { return false };
            let moderation = device.tuning.moderation(*queue).unwrap_or(&usual);
            let Moderation { hold_off_ns, gap_ns, gap_jumbo_ns, packets_max, backlog } =
                *moderation;
            let gap_ns = if is_jumbo { gap_jumbo_ns } else { gap_ns };
            // The gap ends when the next packet begins, of which nobody knows until all of it has come.
            let gap_ns = gap_ns.saturating_add(packet_ns);
            let held = first.saturating_add(hold_off_ns);
            let is_behind =
                input.buffers_out() >= usize::from(backlog) && input.look() >= usize::from(backlog);
            let idle = if is_behind { held } else { last.saturating_add(gap_ns) };
            let counter = if packets >= packets_max {
                &mut counters.closed_packets
            } else if now >= held {
                &mut counters.closed_hold_off
            } else if now >= idle {
                &mut counters.closed_gap
            } else {
                due = Some(due.unwrap_or(u64::MAX).min(held).min(idle));
                held_due = Some(held_due.unwrap_or(u64::MAX).min(held));
                return true;
            };
            match input.close() {
                Ok(_) => *counter += 1,
                Err(NotPut::Exhausted) => {
                    due = Some(due.unwrap_or(u64::MAX).min(now + RETRY_NS));
                    return true;
                }
                Err(NotPut::Lacking(_)) => device.drops.add(DropReason::Lacking, packets.into()),
                Err(NotPut::Severed) => device.is_over = true,
            }
            has_closed = true;
            false
        });
        (self.open_due, self.held_due) = (due, held_due);
        has_closed
    }
}
