//! Neighbours of devices of layer 3: the adapter asks and answers for them.

use std::net::IpAddr;

use super::{Core, Ends};
use crate::lan::frame::{Mac, destination};
use crate::lan::link::FrameInPlace;
use crate::lan::neighbour::answer;
use crate::lan::offload::{Checksum, Offload, segment};
use crate::osa::device::{Device, DropReason};
use crate::osa::packet::Layer;
use crate::tcpip::neighbours::{Cache, Heard, Kind, Step, Waiting, parse, question};

impl Core {
    pub(super) fn cache(&mut self, tag: Option<u16>) -> &mut Cache {
        let vlan = tag.unwrap_or(0) & 0x0fff;
        let place = self.caches.iter().position(|(of, _)| *of == vlan).unwrap_or_else(|| {
            self.caches.push((vlan, Cache::new(self.secret)));
            self.caches.len() - 1
        });
        &mut self.caches[place].1
    }

    /// Asks for a neighbour: all, or whoever is at the MAC address.
    pub(super) fn ask(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        vlan: Option<u16>,
        to: IpAddr,
        at: Option<Mac>,
    ) {
        let is_fit =
            |device| ends.device(device).is_some_and(|device: &mut Device| device.takes_vlan(vlan));
        let Some(own) = self.router.nearest(to, is_fit) else { return };
        let Some(frame) = question((own, self.mac), to, at) else { return };
        self.counters.asked += 1;
        let offload = Offload { vlan, ..Offload::NONE };
        let piece = FrameInPlace { offload, start: &frame, rest: None };
        match at.map(|at| self.router.of_mac(at)) {
            Some(Some(device)) => return self.deliver_between(now, ends, None, device, &piece),
            Some(None) => {}
            None => {
                let to = destination(&frame).unwrap_or(Mac::BROADCAST);
                self.deliver_to_group(now, ends, to, None, &piece);
            }
        }
        self.put_pending(offload, frame);
    }

    /// Takes note of what a frame says about neighbours, and answers what it asks for devices of layer 3. Returns true if it is about that.
    pub(super) fn hear(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        piece: &FrameInPlace<'_>,
    ) -> bool {
        if self.router.of_layer(Layer::Three).is_empty() || piece.rest.is_some() {
            return false;
        }
        let Ok(Some(message)) = parse(piece.start, piece.offload.checksum) else { return false };
        let vlan = piece.offload.vlan;
        let about = message.about.filter(|(address, _)| self.router.of_address(*address).is_none());
        let asked = match message.kind {
            Kind::Question(address) => Some(address),
            _ => None,
        };
        let is_ours = asked.is_some_and(|address| {
            let owner = self.router.of_address(address);
            let device = owner.and_then(|owner| ends.device(owner));
            device.is_some_and(|device| device.layer == Layer::Three && device.takes_vlan(vlan))
        });
        if is_ours && let Some(frame) = answer(piece.start, |_| Some(self.mac)) {
            self.counters.answered += 1;
            let offload = Offload { vlan, ..Offload::NONE };
            match destination(&frame).and_then(|to| self.router.of_mac(to)) {
                Some(device) => {
                    self.deliver_between(
                        now,
                        ends,
                        None,
                        device,
                        &FrameInPlace { offload, start: &frame, rest: None },
                    );
                }
                None => self.put_pending(offload, frame),
            }
        }
        let Some((address, mac)) = about else { return true };
        let is_answer = matches!(message.kind, Kind::Answer(_));
        // Nobody here has asked in a VLAN without a cache.
        let has_cache = self.caches.iter().any(|(of, _)| *of == vlan.unwrap_or(0) & 0x0fff);
        if !is_ours && !has_cache {
            return true;
        }
        let cache = self.cache(vlan);
        let heard = match is_ours {
            true => cache.learn(now, address, mac),
            false => cache.hear(now, address, mac, is_answer),
        };
        if let Heard::Resolved(waiting) = heard {
            for Waiting { offload, mut frame, .. } in waiting {
                frame[..6].copy_from_slice(&mac.0);
                match self.router.of_mac(mac) {
                    Some(device) => {
                        self.deliver_between(
                            now,
                            ends,
                            None,
                            device,
                            &FrameInPlace { offload, start: &frame, rest: None },
                        );
                    }
                    None => self.put_resolved(offload, &frame),
                }
            }
        }
        true
    }

    /// A frame that has waited for its neighbour goes with the next ones.
    fn put_resolved(&mut self, offload: Offload, frame: &[u8]) {
        let is_done = self.completes_checksums && self.cuts_segments;
        if is_done || offload.checksum == Checksum::Unknown {
            return self.put_pending(offload, frame.to_vec());
        }
        let mut room = std::mem::take(&mut self.segment);
        let left = Offload { vlan: offload.vlan, ..Offload::NONE };
        segment(offload, frame, &mut room, |bytes| self.put_pending(left, bytes.to_vec()));
        self.segment = room;
    }

    pub(super) fn poll_neighbours(&mut self, now: u64, ends: &mut impl Ends) {
        for place in 0..self.caches.len() {
            let vlan = Some(self.caches[place].0).filter(|vlan| *vlan != 0);
            while let Some(step) = self.caches[place].1.poll(now) {
                match step {
                    Step::Ask(address, at) => self.ask(now, ends, vlan, address, at),
                    Step::Failed(_, waiting) => {
                        self.drops.add(DropReason::Unresolved, waiting.len() as u64);
                    }
                }
            }
        }
    }
}
