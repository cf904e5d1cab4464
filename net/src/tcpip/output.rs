//! Frames on their way out, and those whose target is full.
//!
//! The state machine counts a segment as sent once it has made it. So a frame that the link gives back is kept here and
//! goes first when there is room, and until then nobody makes another for that target. On a LAN that is memory no
//! segment is lost this way: a lost one costs a second, because that is the shortest time after which it is sent again.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::counters::{Counter, Counters};
use crate::lan::offload::Offload;

/// Frames that wait for their targets, at most. A connection leaves at most one data frame; the others are answers.
const HELD_MAX: usize = 1024;

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
    held: VecDeque<Held>,
    /// How many frames are held for each target that is full.
    full: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Held {
    to: IpAddr,
    offload: Offload,
    frame: Vec<u8>,
}

impl Output {
    /// Whether frames for this target would wait.
    pub(super) fn is_full(&self, to: IpAddr) -> bool {
        !self.full.is_empty() && self.full.contains_key(&to)
    }

    /// Sends a frame, or keeps it until its target has room. False if it is kept.
    pub(super) fn send(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        to: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) -> bool {
        if !self.is_full(to) {
            match link.transmit(to, offload, frame) {
                Ok(()) => {
                    counters.count(Counter::FramesSent);
                    return true;
                }
                Err(Unsent::Unreachable) => {
                    counters.count(Counter::Unreachable);
                    return true;
                }
                Err(Unsent::Full) => {}
            }
        }
        if self.held.len() >= HELD_MAX {
            counters.count(Counter::TargetFull);
            return false;
        }
        self.held.push_back(Held { to, offload, frame: frame.to_vec() });
        *self.full.entry(to).or_default() += 1;
        false
    }

    /// Tries again what was kept. Calls `has_room` with each target for which nothing is left.
    pub(super) fn retry(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        mut has_room: impl FnMut(IpAddr),
    ) {
        if self.held.is_empty() {
            return;
        }
        let mut still_full: Vec<IpAddr> = Vec::new();
        for mut held in std::mem::take(&mut self.held) {
            let sent = match still_full.contains(&held.to) {
                true => Err(Unsent::Full),
                false => link.transmit(held.to, held.offload, &mut held.frame),
            };
            match sent {
                Err(Unsent::Full) => {
                    if !still_full.contains(&held.to) {
                        still_full.push(held.to);
                    }
                    self.held.push_back(held);
                    continue;
                }
                Ok(()) => counters.count(Counter::FramesSent),
                Err(Unsent::Unreachable) => counters.count(Counter::Unreachable),
            }
            if let Some(count) = self.full.get_mut(&held.to) {
                *count -= 1;
                if *count == 0 {
                    self.full.remove(&held.to);
                    has_room(held.to);
                }
            }
        }
    }
}
