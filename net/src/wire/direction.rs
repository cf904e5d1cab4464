//! One direction of a wire: the model, and the frames under way.

use std::collections::BTreeMap;

use super::chance::Chance;
use super::model::{Conditions, Counters, Model};
use crate::lan::frame::{ETHERNET_BYTES, u16_at};
use crate::lan::offload::{Offload, segment};

/// Bytes of a VLAN tag in a frame with the type before it, and that type.
const TAG_BYTES: usize = 4;
const VLAN: u16 = 0x8100;

/// Bytes of the two addresses of a frame.
const ADDRESSES_BYTES: usize = 12;

/// Bytes of frames under way in one direction, at most: 10 Gb/s for 200 ms. Another frame is dropped, as by a full queue. This
/// bounds a wire without a rate, whose queue is never full.
pub const UNDER_WAY_BYTES_MAX: usize = 256 << 20;

/// One direction of a wire. Times are nanoseconds on any clock that does not go back.
#[derive(Clone, Debug)]
pub struct Direction {
    model: Model,
    /// By time of arrival, and in the order of transmission.
    under_way: BTreeMap<(u64, u64), Vec<u8>>,
    under_way_bytes: usize,
    transmitted: u64,
}

/// The two directions of a wire with these conditions. Each has a seed of its own, which follows from `seed`.
pub fn duplex(conditions: Conditions, seed: u64) -> [Direction; 2] {
    let mut seeds = Chance::new(seed);
    [(); 2].map(|()| Direction::new(conditions, seeds.number()))
}

impl Direction {
    /// A direction on which nothing is under way.
    pub fn new(conditions: Conditions, seed: u64) -> Direction {
        let (model, under_way) = (Model::new(conditions, seed), BTreeMap::new());
        Direction { model, under_way, under_way_bytes: 0, transmitted: 0 }
    }

    /// What became of the frames so far.
    pub fn counters(&self) -> Counters {
        self.model.counters()
    }

    /// When the next frame arrives. None: nothing is under way.
    pub fn due(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// Bytes that wait for the transmitter, or are being transmitted.
    pub fn waiting_bytes(&self, now: u64) -> u64 {
        self.model.waiting_bytes(now)
    }

    /// Frames under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Sends a frame. The counters say if it is dropped.
    pub fn put(&mut self, now: u64, mut frame: Vec<u8>) {
        let is_tagged = u16_at(&frame, ADDRESSES_BYTES) == Some(VLAN);
        let head_bytes = ETHERNET_BYTES + if is_tagged { TAG_BYTES } else { 0 };
        if frame.len() > head_bytes + self.model.conditions().mtu {
            self.model.counters.put += 1;
            self.model.counters.dropped_long += 1;
            return;
        }
        // A duplicate has to find room too.
        if self.under_way_bytes + 2 * frame.len() > UNDER_WAY_BYTES_MAX {
            self.model.counters.put += 1;
            self.model.counters.dropped_full += 1;
            return;
        }
        let fate = self.model.put(now, frame.len());
        fate.corrupt(&mut frame);
        let mut arrivals = fate.arrivals();
        let Some(arrival) = arrivals.next() else { return };
        if let Some(again) = arrivals.next() {
            self.add(again, frame.clone());
        }
        self.add(arrival, frame);
    }

    fn add(&mut self, arrival: u64, frame: Vec<u8>) {
        self.under_way_bytes += frame.len();
        self.transmitted += 1;
        self.under_way.insert((arrival, self.transmitted), frame);
    }

    /// Sends a frame of a device that leaves work to its adapter: checksums are completed, several segments are cut, and a
    /// tag is put in. `room` is for the segment at hand.
    pub fn put_offloaded(&mut self, now: u64, offload: Offload, frame: &[u8], room: &mut Vec<u8>) {
        segment(offload, frame, room, |bytes| {
            let frame = match (offload.vlan, bytes.split_at_checked(ADDRESSES_BYTES)) {
                (Some(tag), Some((addresses, rest))) => {
                    [addresses, &VLAN.to_be_bytes(), &tag.to_be_bytes(), rest].concat()
                }
                _ => bytes.to_vec(),
            };
            self.put(now, frame);
        });
    }

    /// Takes the next frame that has arrived by `now`.
    pub fn take(&mut self, now: u64) -> Option<Vec<u8>> {
        let entry = self.under_way.first_entry().filter(|entry| entry.key().0 <= now)?;
        let frame = entry.remove();
        self.under_way_bytes -= frame.len();
        self.model.counters.delivered += 1;
        Some(frame)
    }
}
