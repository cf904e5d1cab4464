//! Frames on their way out, and those whose target is full.
//!
//! The state machine counts a segment as sent once it has made it. So a frame that the link gives back is kept here and
//! goes first when there is room, and until then nobody makes another for that target. On a LAN that is memory no
//! segment is lost this way: a lost one costs a second, because that is the shortest time after which it is sent again.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::counters::Counters;
use super::packet;
use crate::board::Counter;
use crate::lan::offload::Offload;

/// Frames that wait for one target, at most. The first may be full of data: while it waits nobody makes another of that
/// kind for the target. Those behind it are acknowledgements and the like. Each target has its own, so one that takes
/// nothing is in nobody else's way.
///
/// A datagram of the greatest length is 120 fragments on the shortest path: it has room if nothing waits before it.
const HELD_PER_TARGET_MAX: usize = 128;

/// Frames to the stack itself that wait to be received, at most, and their bytes. More are held back, as for any other
/// target that is full.
const OWN_MAX: usize = 256;
const OWN_BYTES_MAX: usize = 1 << 20;

/// Where a stack's frames go: a LAN, or the simulation of one.
pub trait Link {
    /// Sends a frame to the member that has the address `to`. The link puts the Ethernet header in its first 14 bytes,
    /// which are empty; [`address`](super::address) does so.
    ///
    /// # Errors
    /// [`Unsent`]; nothing of it has gone.
    fn transmit(&mut self, to: IpAddr, offload: Offload, frame: &mut [u8]) -> Result<(), Unsent>;

    /// Sends a whole frame, Ethernet header included, if there is room: whoever asked asks again.
    fn answer(&mut self, frame: &[u8]);

    /// Whether the member that has sent this frame may send from that address. What others send is dropped.
    fn may_send_from(&mut self, frame: &[u8], address: IpAddr) -> bool;
}

/// Why a link did not take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// Its target is full. Later there may be room.
    Full,
    /// Nobody has that address, or nobody can be reached there.
    Unreachable,
}

#[derive(Debug, Default)]
pub(super) struct Output {
    /// The frames that are held for each target that is full. No queue is empty.
    held: HashMap<IpAddr, VecDeque<Held>>,
    own: Own,
}

/// Frames from a stack to itself.
#[derive(Debug, Default)]
struct Own {
    addresses: Vec<IpAddr>,
    frames: VecDeque<(Offload, Vec<u8>)>,
    bytes: usize,
}

#[derive(Debug)]
struct Held {
    offload: Offload,
    frame: Vec<u8>,
}

impl Output {
    /// One that keeps what is for these addresses, until it is taken.
    pub(super) fn to_self(addresses: &[IpAddr]) -> Output {
        Output { own: Own { addresses: addresses.to_vec(), ..Own::default() }, ..Output::default() }
    }

    /// Frames to the stack itself that wait.
    pub(super) fn own_waiting(&self) -> usize {
        self.own.frames.len()
    }

    /// The next frame to the stack itself.
    pub(super) fn take_own(&mut self) -> Option<(Offload, Vec<u8>)> {
        let (offload, frame) = self.own.frames.pop_front()?;
        self.own.bytes -= frame.len();
        Some((offload, frame))
    }

    /// Whether frames for this target would wait.
    pub(super) fn is_full(&self, to: IpAddr) -> bool {
        !self.held.is_empty() && self.held.contains_key(&to)
    }

    /// Whether no frame waits.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Sends a frame, or keeps it until its target has room. It is dropped if too many wait already.
    pub(super) fn send(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        to: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) {
        if !self.is_full(to) && self.own.transmit(link, counters, to, offload, frame) {
            return;
        }
        let held = self.held.entry(to).or_default();
        if held.len() >= HELD_PER_TARGET_MAX {
            return counters.count(Counter::TargetFull);
        }
        held.push_back(Held { offload, frame: frame.to_vec() });
    }

    /// Sends a frame that answers one of somebody who asks again if no answer comes. It is not kept: whoever takes no
    /// answers gets none.
    pub(super) fn answer(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        to: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) {
        if self.is_full(to) || !self.own.transmit(link, counters, to, offload, frame) {
            counters.count(Counter::TargetFull);
        }
    }

    /// Tries again what was kept. Calls `has_room` with each target for which nothing is left.
    pub(super) fn retry(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        mut has_room: impl FnMut(IpAddr),
    ) {
        self.held.retain(|to, held| {
            while let Some(first) = held.front_mut() {
                if !self.own.transmit(link, counters, *to, first.offload, &mut first.frame) {
                    return true;
                }
                held.pop_front();
            }
            has_room(*to);
            false
        });
    }
}

impl Own {
    /// Sends a frame, unless its target is full: false then. A frame that nobody can be given is gone.
    fn transmit(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        to: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) -> bool {
        if self.addresses.contains(&to) {
            let is_full = self.frames.len() >= OWN_MAX || self.bytes > OWN_BYTES_MAX;
            if !is_full {
                packet::set_kind(frame);
                self.bytes += frame.len();
                self.frames.push_back((offload, frame.to_vec()));
                counters.count(Counter::FramesSent);
            }
            return !is_full;
        }
        match link.transmit(to, offload, frame) {
            Ok(()) => counters.count(Counter::FramesSent),
            Err(Unsent::Unreachable) => counters.count(Counter::Unreachable),
            Err(Unsent::Full) => return false,
        }
        true
    }
}
