//! Frames to all.

use net::lan::audience::{self, Audience};
use net::lan::counters::Counter;
use net::lan::link::{Frame, Link, Urgency};
use os::processor::now_ns;

use super::connecting::Peers;
use super::links::Links;
use super::{Mesh, RETRY_NS};
use crate::lan::churn::AUDIENCE_NS;

/// Members from which on they are an audience: fewer get a copy each.
const AUDIENCE_MIN: usize = 3;

/// The audience that gets frames to all without a tag.
#[derive(Default)]
pub(super) struct ToAll {
    audience: Option<Audience>,
    /// Audiences that there have been.
    begun: u32,
    /// The time from which on the next may begin: not at once after a member did not take the loan of its storage, nor after the one before,
    /// however often others come, go or ask for paths.
    retry_ns: u64,
}

/// The links to other members, by their numbers.
struct ByNumber<'a> {
    links: &'a mut Links,
    peers: &'a Peers,
}

impl audience::Links for ByNumber<'_> {
    fn link(&mut self, number: usize) -> Option<&mut Link> {
        self.links.get_mut(self.peers.key(number)?).map(|peer| &mut peer.link)
    }
}

impl Mesh {
    /// Sends a frame to all other members that have room for it, and copies to those that capture.
    pub(crate) fn send_to_all(&mut self, frame: Frame<'_>, urgency: Urgency) {
        // Before: see `send_captured`. Frames to a group are never given back.
        if self.copies.are_made() {
            self.copy(frame);
        }
        self.send_to_each(frame, urgency);
    }

    fn send_to_each(&mut self, frame: Frame<'_>, urgency: Urgency) {
        self.outbound.counters_mut().add(Counter::GroupFramesSent, 1);
        if frame.offload.vlan.is_none() && self.has_audience() {
            let Mesh { links, peers, to_all, outbound, .. } = self;
            let (mut links, counters) = (ByNumber { links, peers }, outbound.counters_mut());
            if let Some(audience) = &mut to_all.audience
                && audience.push(frame, &mut links, counters)
            {
                if urgency == Urgency::Now {
                    audience.publish(&mut links, counters);
                }
                return;
            }
        }
        // A copy for each does not overtake what waits for all.
        self.publish_to_all();
        let takers = self.view.takers();
        let takers = takers.filter(|(_, member)| member.takes(frame.offload.vlan));
        let numbers: Vec<usize> = takers.map(|(number, _)| number).collect();
        for number in numbers {
            // A member that is full, or cannot be reached, misses it: that was counted.
            let _ = self.send_to(number, None, frame, urgency);
        }
    }

    /// Returns true if there is an audience of all other members. It begins when all of them have paths, and are several.
    pub(crate) fn has_audience(&mut self) -> bool {
        if self.to_all.audience.is_some() {
            return true;
        }
        let Mesh { links, peers, view, to_all, .. } = self;
        if to_all.retry_ns != 0 && now_ns() < to_all.retry_ns {
            return false;
        }
        let numbers: Vec<usize> = view.takers().map(|(number, _)| number).collect();
        let is_connected = |number: &usize| peers.key(*number).is_some();
        if numbers.len() < AUDIENCE_MIN || !numbers.iter().all(is_connected) {
            return false;
        }
        to_all.begun = to_all.begun.wrapping_add(1);
        // Without memory for it, each gets a copy.
        let begun = Audience::begin(&numbers, to_all.begun, &mut ByNumber { links, peers });
        to_all.audience = begun.ok().flatten();
        let has_begun = to_all.audience.is_some();
        to_all.retry_ns = now_ns() + if has_begun { AUDIENCE_NS } else { RETRY_NS };
        has_begun
    }

    /// Somebody has come or gone: what is sent from now on is for others.
    pub(crate) fn end_audience(&mut self) {
        let Mesh { links, peers, to_all, outbound, .. } = self;
        let Some(mut audience) = to_all.audience.take() else { return };
        let mut links = ByNumber { links, peers };
        audience.publish(&mut links, outbound.counters_mut());
        audience.end(&mut links);
    }

    /// Frames to all go before what is sent to one of them after that.
    #[inline]
    pub(super) fn publish_to_all(&mut self) {
        let Mesh { links, peers, to_all, outbound, .. } = self;
        if let Some(audience) = &mut to_all.audience
            && audience.holds_back()
        {
            audience.publish(&mut ByNumber { links, peers }, outbound.counters_mut());
        }
    }

    /// Audiences that there have been.
    #[cfg(test)]
    pub(crate) fn audiences(&self) -> u32 {
        self.to_all.begun
    }

    /// The next audience may begin now.
    #[cfg(test)]
    pub(crate) fn hurry_audience(&mut self) {
        self.to_all.retry_ns = 0;
    }
}
