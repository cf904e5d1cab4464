//! A wire in memory, between two adapters of one process.
//!
//! With a rate, a delay or faults it is the wire of the simulations ([`Direction`]), which carries frames as Ethernet does: segments are cut and checksums complete.
//! Without any of these it carries what it is given, as a virtual link with offloads does.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use os::event::Event;

use super::wire::{Capabilities, Carrier, NotSent, Wire, WireCounters};
use crate::lan::frame::Mac;
use crate::lan::link::FrameInPlace;
use crate::lan::offload::{Offload, segment_in_place};
use crate::wire::{Conditions, Direction, duplex};

/// Frames under way in one direction of a wire that carries what it is given.
const FRAMES_MAX: usize = 256;

/// When a frame is tried again that found such a wire full.
const RETRY_NS: u64 = 20_000;

/// The same where the rate of the wire says when there is room, at least.
const RETRY_NS_MIN: u64 = 1_000;

/// What each segment of a frame adds to it on the wire, at most: headers that it repeats, and what Ethernet adds.
const OVERHEAD_BYTES: u64 = 160;

/// What is under way in one direction.
#[derive(Debug)]
enum UnderWay {
    /// Over a medium with conditions.
    Model(Box<Direction>),
    /// As given, and memory of frames that have arrived.
    Plain(VecDeque<Held>, Vec<Vec<u8>>),
}

/// A frame at the start of its memory, which is as long as the longest that it has held.
#[derive(Debug)]
struct Held {
    offload: Offload,
    bytes: usize,
    memory: Vec<u8>,
}

/// A direction, and who receives from it.
#[derive(Debug)]
struct Lane {
    under_way: Mutex<UnderWay>,
    /// Set when something was put that the receiver does not know of.
    event: Event,
    /// Set while the receiver is to be told.
    is_awaited: AtomicBool,
    is_gone: AtomicBool,
}

/// One end of a wire in memory.
#[derive(Debug)]
pub struct MemoryWire {
    sends: Arc<Lane>,
    receives: Arc<Lane>,
    conditions: Conditions,
    is_plain: bool,
    mac: Mac,
    room: Vec<u8>,
    taken: Vec<Held>,
    /// Memory for frames to send, which the other end has given back.
    spare: Vec<Vec<u8>>,
    due: Option<u64>,
    retry: Option<u64>,
    has_sent: bool,
    has_slept: bool,
    counters: WireCounters,
}

impl Lane {
    fn new(under_way: UnderWay) -> io::Result<Lane> {
        Ok(Lane {
            under_way: Mutex::new(under_way),
            event: Event::new()?,
            is_awaited: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        // Whoever has panicked in between has left frames, all of them whole.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // SeqCst: the receiver sets the word, and then looks once more.
        if self.is_awaited.swap(false, Ordering::SeqCst) {
            self.event.set();
        }
    }
}

impl MemoryWire {
    /// The two ends of a wire with these conditions both ways, at ports with these MAC addresses. The same seed has the same faults.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn pair(conditions: Conditions, seed: u64, macs: [Mac; 2]) -> io::Result<[MemoryWire; 2]> {
        let mtu = conditions.mtu;
        let is_plain = conditions == Conditions { mtu, ..Conditions::default() };
        let lanes = duplex(conditions, seed).map(|direction| {
            Lane::new(match is_plain {
                true => UnderWay::Plain(VecDeque::new(), Vec::new()),
                false => UnderWay::Model(Box::new(direction)),
            })
        });
        let [one, other] = lanes;
        let (one, other) = (Arc::new(one?), Arc::new(other?));
        let end = |sends: &Arc<Lane>, receives: &Arc<Lane>, mac| MemoryWire {
            sends: sends.clone(),
            receives: receives.clone(),
            conditions,
            is_plain,
            mac,
            room: Vec::new(),
            taken: Vec::new(),
            spare: Vec::new(),
            due: None,
            retry: None,
            has_sent: false,
            has_slept: false,
            counters: WireCounters::default(),
        };
        Ok([end(&one, &other, macs[0]), end(&other, &one, macs[1])])
    }
}

impl Drop for MemoryWire {
    fn drop(&mut self) {
        for lane in [&self.sends, &self.receives] {
            lane.is_gone.store(true, Ordering::SeqCst);
            lane.event.set();
        }
    }
}

impl Wire for MemoryWire {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.conditions.mtu,
            completes_checksums: true,
            cuts_segments: true,
            rate: self.conditions.rate.map(|rate| rate.get()),
        }
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn add_address(&mut self, _mac: Mac) -> io::Result<()> {
        // There are two ends, and each has what the other sends.
        Ok(())
    }

    fn remove_address(&mut self, _mac: Mac) {}

    fn receive(
        &mut self,
        now: u64,
        frames_max: usize,
        take: &mut dyn FnMut(Offload, &[u8]),
    ) -> io::Result<usize> {
        self.retry = self.retry.filter(|retry| *retry > now);
        if std::mem::take(&mut self.has_slept) {
            self.receives.is_awaited.store(false, Ordering::Relaxed);
        }
        let mut taken = std::mem::take(&mut self.taken);
        {
            let mut under_way = self.receives.lock();
            match &mut *under_way {
                UnderWay::Model(direction) => {
                    taken.clear();
                    while taken.len() < frames_max
                        && let Some(memory) = direction.take(now)
                    {
                        taken.push(Held { offload: Offload::NONE, bytes: memory.len(), memory });
                    }
                    self.due = direction.due();
                }
                UnderWay::Plain(frames, spare) => {
                    // Those of the last time go back in the same lock.
                    let room = FRAMES_MAX.saturating_sub(spare.len());
                    spare.extend(taken.drain(..).map(|held| held.memory).take(room));
                    let count = frames.len().min(frames_max);
                    taken.extend(frames.drain(..count));
                    self.due = (!frames.is_empty()).then_some(now);
                }
            }
        }
        let count = taken.len();
        for Held { offload, bytes, memory } in &mut taken {
            let frame = &mut memory[..*bytes];
            self.counters.frames_received += 1;
            self.counters.bytes_received += frame.len() as u64;
            if self.is_plain {
                take(*offload, frame);
            } else if let Some((vlan, at)) = untag(frame) {
                take(Offload { vlan, ..Offload::NONE }, &frame[at..]);
            } else {
                self.counters.dropped_bad += 1;
            }
        }
        self.taken = taken;
        Ok(count)
    }

    fn send(&mut self, now: u64, frame: &FrameInPlace<'_>) -> Result<(), NotSent> {
        let bytes = frame.bytes();
        if self.sends.is_gone.load(Ordering::Relaxed) {
            self.counters.dropped_unsent += 1;
            return Err(NotSent::Dropped);
        }
        // What is copied is copied outside of the lock, so that the other end need not wait for it.
        let mut held = None;
        if self.is_plain {
            let mut memory = self.spare.pop().unwrap_or_default();
            if memory.len() < bytes {
                memory.resize(bytes, 0);
            }
            frame.read(0, &mut memory[..bytes]);
            held = Some(Held { offload: frame.offload, bytes, memory });
        }
        let mut under_way = self.sends.lock();
        match &mut *under_way {
            UnderWay::Plain(frames, spare) => {
                if self.spare.is_empty() {
                    std::mem::swap(&mut self.spare, spare);
                }
                let Some(held) = held else { return Err(NotSent::Dropped) };
                if frames.len() >= FRAMES_MAX {
                    self.spare.push(held.memory);
                    self.retry = Some(now + RETRY_NS);
                    return Err(NotSent::Full);
                }
                frames.push_back(held);
            }
            UnderWay::Model(direction) => {
                // The queue of the transmitter pushes back, as that of a network card does: only the medium loses.
                let waiting = direction.waiting_bytes(now);
                let segments = frame.offload.segments(bytes) as u64;
                let queue = self.conditions.queue_bytes as u64;
                if let Some(rate) = self.conditions.rate
                    && waiting > 0
                    && waiting + bytes as u64 + OVERHEAD_BYTES * segments > queue
                {
                    // When half of the queue is free again.
                    let excess = waiting.saturating_sub(queue / 2);
                    let wait = excess.saturating_mul(8_000_000_000) / rate.get();
                    self.retry = Some(now + wait.max(RETRY_NS_MIN));
                    return Err(NotSent::Full);
                }
                let Offload { vlan, .. } = frame.offload;
                let mut room = std::mem::take(&mut self.room);
                segment_in_place(frame, &mut room, |segment| {
                    direction.put(now, tagged(vlan, segment));
                });
                self.room = room;
            }
        }
        drop(under_way);
        (self.has_sent, self.retry) = (true, None);
        self.counters.frames_sent += 1;
        self.counters.bytes_sent += bytes as u64;
        Ok(())
    }

    fn flush(&mut self, _now: u64) {
        if std::mem::take(&mut self.has_sent) {
            self.sends.ring();
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receives.event.as_fd())
    }

    fn announce_sleep(&mut self) -> bool {
        self.has_slept = true;
        // SeqCst: with `Lane::ring`. What was put before is seen in the lock.
        self.receives.is_awaited.store(true, Ordering::SeqCst);
        match &*self.receives.lock() {
            // When a frame arrives is known.
            UnderWay::Model(direction) => direction.due() == self.due,
            UnderWay::Plain(frames, _) => frames.is_empty(),
        }
    }

    fn on_ready(&mut self) -> bool {
        self.receives.event.clear();
        self.receives.is_gone.load(Ordering::Relaxed)
    }

    fn due(&self) -> Option<u64> {
        self.due.into_iter().chain(self.retry).min()
    }

    fn look(&mut self) -> (Carrier, bool) {
        let is_gone = self.sends.is_gone.load(Ordering::Relaxed);
        (if is_gone { Carrier::Down } else { Carrier::Up }, false)
    }

    fn counters(&self) -> WireCounters {
        self.counters
    }
}

/// Bytes of the two addresses of a frame, and of a tag.
const ADDRESSES_BYTES: usize = 12;
const TAG_BYTES: usize = 4;
const VLAN: [u8; 2] = [0x81, 0];

fn tagged(vlan: Option<u16>, frame: &[u8]) -> Vec<u8> {
    match (vlan, frame.split_at_checked(ADDRESSES_BYTES)) {
        (Some(tag), Some((addresses, rest))) => {
            [addresses, &VLAN, &tag.to_be_bytes(), rest].concat()
        }
        _ => frame.to_vec(),
    }
}

/// Takes the tag out of a frame, which begins behind the number of bytes that is returned then. None: the frame is too short for its tag.
fn untag(frame: &mut [u8]) -> Option<(Option<u16>, usize)> {
    if frame.get(ADDRESSES_BYTES..ADDRESSES_BYTES + 2) != Some(&VLAN) {
        return Some((None, 0));
    }
    let tag = u16::from_be_bytes(*frame.get(ADDRESSES_BYTES + 2..)?.first_chunk()?);
    frame.copy_within(..ADDRESSES_BYTES, TAG_BYTES);
    Some(((tag & 0x0fff != 0).then_some(tag), TAG_BYTES))
}
