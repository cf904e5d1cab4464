//! The model of one direction: which frame arrives, when, and in which state.

use std::num::NonZeroU64;
use std::time::Duration;

use super::chance::{Chance, Share};
use crate::lan::frame::ETHERNET_BYTES;

/// Bytes that Ethernet adds to a frame on the wire: preamble and start (8), check sequence (4), and the gap behind it (12)
/// (IEEE Std 802.3, 3.1.1 and 4.4.2).
const OVERHEAD_BYTES: usize = 8 + 4 + 12;

/// Bytes of the shortest frame on the wire, without its check sequence: a shorter one is padded.
const FRAME_BYTES_MIN: usize = 60;

/// What one direction of a wire does to frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Bits per second, with all that Ethernet adds to a frame ([`wire_bytes`]). None: a frame takes no time.
    pub rate: Option<NonZeroU64>,
    /// Time from the end of a frame's transmission to its arrival.
    pub delay: Duration,
    /// Bytes that wait for the transmitter, or are being transmitted, at most. A frame that finds no room is dropped. If
    /// the transmitter is idle there is room for any frame.
    pub queue_bytes: usize,
    /// Bytes of the largest packet in a frame. A frame with a longer one is dropped.
    pub mtu: usize,
    /// Frames that are lost. Each takes its time on the wire.
    pub loss: Share,
    /// Frames that arrive later, by up to [`Conditions::later_max`], so that others overtake them.
    pub reordering: Share,
    /// The longest additional delay of a reordered frame. The delay is random, and at least 1 ns.
    pub later_max: Duration,
    /// Frames that are transmitted twice.
    pub duplication: Share,
    /// Frames of which one bit behind the Ethernet header is inverted.
    pub corruption: Share,
}

impl Default for Conditions {
    /// A wire without a rate, delay or fault, for packets of 1500 bytes.
    fn default() -> Conditions {
        Conditions {
            rate: None,
            delay: Duration::ZERO,
            queue_bytes: 256 << 10,
            mtu: 1500,
            loss: Share::NONE,
            reordering: Share::NONE,
            later_max: Duration::ZERO,
            duplication: Share::NONE,
            corruption: Share::NONE,
        }
    }
}

/// What became of the frames that were put into a direction. Each frame is delivered, lost, dropped or under way; a duplicate
/// is one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames put.
    pub put: u64,
    /// Frames taken from a [`Direction`](super::Direction), duplicates included.
    pub delivered: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames dropped because the queue was full.
    pub dropped_full: u64,
    /// Frames dropped because they were longer than the MTU.
    pub dropped_long: u64,
    /// Frames delayed so that others can overtake them.
    pub reordered: u64,
    /// Frames transmitted twice.
    pub duplicated: u64,
    /// Frames with an inverted bit.
    pub corrupted: u64,
}

/// Returns the bytes for which a frame of `bytes` occupies the wire, Ethernet's overhead included.
pub fn wire_bytes(bytes: usize) -> usize {
    bytes.max(FRAME_BYTES_MIN) + OVERHEAD_BYTES
}

/// The model: a value that decides the fate of frames. Times are nanoseconds on any clock that does not go back.
///
/// The fate of a frame follows from the seed, the number of frames accepted before, the time, and the load. Each frame draws as
/// many random numbers as another, so the same frames are lost whatever the other shares are.
#[derive(Clone, Debug)]
pub struct Model {
    conditions: Conditions,
    chance: Chance,
    /// When the transmitter is idle, and the part of a nanosecond beyond, in units of which `rate` are a whole one.
    idle_ns: u64,
    idle_rest: u64,
    pub(super) counters: Counters,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// When it arrives: at no time if it is lost or dropped, twice if it is duplicated.
    arrivals: [Option<u64>; 2],
    /// The bit that is inverted, counted from the end of the Ethernet header.
    inverted_bit: Option<usize>,
}

impl Fate {
    /// When the frame arrives: at no time if it is lost or dropped, twice if it is duplicated.
    pub fn arrivals(&self) -> impl Iterator<Item = u64> + use<> {
        self.arrivals.into_iter().flatten()
    }

    /// Inverts the bit of the frame that is to be inverted, if there is one.
    pub fn corrupt(&self, frame: &mut [u8]) {
        let Some(bit) = self.inverted_bit else { return };
        if let Some(byte) = frame.get_mut(ETHERNET_BYTES + bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

impl Model {
    /// A model of a direction whose transmitter is idle.
    pub fn new(conditions: Conditions, seed: u64) -> Model {
        let chance = Chance::new(seed);
        Model { conditions, chance, idle_ns: 0, idle_rest: 0, counters: Counters::default() }
    }

    /// What the direction does to frames.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Changes what the direction does to frames, from the next one on.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    /// What became of the frames so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sends a frame of `bytes`.
    pub fn put(&mut self, now: u64, bytes: usize) -> Fate {
        self.counters.put += 1;
        let waiting = self.waiting_bytes(now);
        if waiting > 0 && waiting + wire_bytes(bytes) as u64 > self.conditions.queue_bytes as u64 {
            self.counters.dropped_full += 1;
            return Fate::default();
        }
        let Conditions { delay, loss, reordering, duplication, corruption, .. } = self.conditions;
        let [is_lost, is_late, is_double, is_corrupt] =
            [loss, reordering, duplication, corruption].map(|share| self.chance.happens(share));
        let later_max_ns = nanoseconds(self.conditions.later_max);
        let later_ns = 1 + self.chance.number() % later_max_ns.max(1);
        let bit = self.chance.number() as usize;
        let left = self.transmit(now, bytes);
        if is_lost {
            self.counters.lost += 1;
            return Fate::default();
        }
        let arrival = |left: u64| left.saturating_add(nanoseconds(delay));
        let first = arrival(left).saturating_add(if is_late { later_ns } else { 0 });
        let second = is_double.then(|| arrival(self.transmit(now, bytes)));
        let bits = 8 * bytes.saturating_sub(ETHERNET_BYTES);
        let inverted_bit = (is_corrupt && bits > 0).then(|| bit % bits);
        self.counters.reordered += u64::from(is_late);
        self.counters.duplicated += u64::from(is_double);
        self.counters.corrupted += u64::from(inverted_bit.is_some());
        Fate { arrivals: [Some(first), second], inverted_bit }
    }

    /// Bytes that wait for the transmitter, or are being transmitted.
    pub fn waiting_bytes(&self, now: u64) -> u64 {
        let rate = self.conditions.rate.map_or(0, NonZeroU64::get);
        let ns = u128::from(self.idle_ns.saturating_sub(now));
        (ns * u128::from(rate) / (8 * 1_000_000_000)) as u64
    }

    /// Occupies the transmitter with a frame, and returns when its last bit has left.
    fn transmit(&mut self, now: u64, bytes: usize) -> u64 {
        if self.idle_ns < now {
            (self.idle_ns, self.idle_rest) = (now, 0);
        }
        if let Some(rate) = self.conditions.rate {
            // The part of a nanosecond is kept: so the rate is exact over any number of frames.
            let bits = wire_bytes(bytes) as u128 * 8;
            let parts = bits * 1_000_000_000 + u128::from(self.idle_rest);
            self.idle_ns = self.idle_ns.saturating_add((parts / u128::from(rate.get())) as u64);
            self.idle_rest = (parts % u128::from(rate.get())) as u64;
        }
        self.idle_ns
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
