//! The last step of a frame out of the stack: to the stack itself, or to the link, with what its device leaves to the stack.

use std::net::IpAddr;

use super::counters::Counters;
use super::neighbours::{Found, Heard, Neighbours, Sender, Waiting, question};
use super::output::{Link, OWN_BYTES_MAX, Output, Own, Service, Unsent};
use super::packet;
use super::route::{Hop, Routes};
use crate::board::Counter;
use crate::lan::frame::Mac;
use crate::lan::offload::{Checksum, Offload, complete_checksum};

/// The reasons for which a frame has not gone.
pub(super) enum Blocked {
    /// The link says so.
    Unsent(Unsent),
    /// Its neighbour was asked for and has not answered yet.
    Unresolved,
}

impl From<Unsent> for Blocked {
    fn from(unsent: Unsent) -> Blocked {
        Blocked::Unsent(unsent)
    }
}

/// The way out of a frame.
pub(super) struct Exit<'a> {
    pub(super) own: &'a mut Own,
    pub(super) routes: &'a Routes,
    pub(super) neighbours: &'a mut Neighbours,
    pub(super) now: u64,
}

impl Exit<'_> {
    /// Sends a frame, and counts what becomes of it, unless it has to wait.
    pub(super) fn transmit(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        (hop, sender): (Hop, Sender),
        offload: &mut Offload,
        frame: &mut [u8],
    ) -> Result<(), Blocked> {
        let Hop::Neighbour { interface, address } = hop else {
            if self.own.is_full() || self.own.bytes() > OWN_BYTES_MAX {
                return Err(Unsent::Full.into());
            }
            packet::set_kind(frame);
            let is_kept = self.own.push_copy(*offload, frame);
            assert!(is_kept, "frames of the stack to itself");
            counters.count(Counter::FramesSent);
            return Ok(());
        };
        let at = &self.routes.interfaces()[interface];
        let sent = match at.device.does_the_rest() {
            true => link.transmit(at.lan, address, Offload { vlan: at.vlan, ..*offload }, frame),
            false => {
                let to = (interface, address, sender);
                self.transmit_completed(link, counters, to, offload, frame)?
            }
        };
        match sent {
            Ok(()) => counters.count(Counter::FramesSent),
            Err(Unsent::Unreachable) => counters.count(Counter::Unreachable),
            Err(Unsent::Full | Unsent::Lacking(_)) => {}
        }
        Ok(sent?)
    }

    /// Sends a frame after what its device leaves to the stack was done.
    #[inline(never)]
    fn transmit_completed(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        (interface, address, sender): (usize, IpAddr, Sender),
        offload: &mut Offload,
        frame: &mut [u8],
    ) -> Result<Result<(), Unsent>, Blocked> {
        let at = &self.routes.interfaces()[interface];
        if !at.device.completes_checksums {
            // What waits is complete from now on, and is not completed again.
            complete_checksum(offload.checksum, frame);
            offload.checksum = Checksum::Unknown;
        }
        let tagged = Offload { vlan: at.vlan, ..*offload };
        if !at.device.asks() {
            return Ok(link.transmit(at.lan, address, tagged, frame));
        }
        let Some(mac) = self.resolve(link, counters, interface, address, sender)? else {
            return Ok(Err(Unsent::Unreachable));
        };
        packet::address(frame, mac, at.mac);
        Ok(link.send(at.lan, tagged, frame))
    }

    /// The MAC address of a neighbour, who is asked for if it is not known. None: it cannot be found out.
    fn resolve(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        interface: usize,
        address: IpAddr,
        sender: Sender,
    ) -> Result<Option<Mac>, Blocked> {
        let Some(cache) = self.neighbours.at(interface) else { return Ok(None) };
        match cache.find(self.now, address, sender) {
            Found::At(mac) => Ok(Some(mac)),
            Found::Full => Ok(None),
            Found::Asked => Err(Blocked::Unresolved),
            Found::Ask => {
                if !ask(self.routes, link, counters, (interface, address), None) {
                    cache.refuse(self.now, address);
                }
                Err(Blocked::Unresolved)
            }
        }
    }
}

/// Asks for the MAC address of a neighbour: all, or the one that was there. Returns false if the link has no room for the question.
fn ask(
    routes: &Routes,
    link: &mut impl Link,
    counters: &mut Counters,
    (interface, address): (usize, IpAddr),
    to: Option<Mac>,
) -> bool {
    let at = &routes.interfaces()[interface];
    let own = at.address_near(address);
    let question = own.and_then(|own| question((own, at.mac), address, to));
    // Without an address of this family nobody could answer.
    let Some(question) = question else { return true };
    match link.send(at.lan, Offload { vlan: at.vlan, ..Offload::NONE }, &question) {
        Ok(()) => counters.count(Counter::NeighboursAsked),
        Err(Unsent::Unreachable) => {}
        Err(Unsent::Full | Unsent::Lacking(_)) => return false,
    }
    true
}

/// Neighbours that the stack finds itself.
impl Output {
    /// Asks for a neighbour again.
    pub(super) fn ask(
        &mut self,
        now: u64,
        link: &mut impl Link,
        counters: &mut Counters,
        neighbour: (usize, IpAddr),
        to: Option<Mac>,
    ) {
        if !ask(&self.routes, link, counters, neighbour, to)
            && let Some(cache) = self.neighbours.at(neighbour.0)
        {
            cache.refuse(now, neighbour.1);
        }
    }

    /// Asks for a neighbour that nothing is to be sent to.
    pub(super) fn seek(
        &mut self,
        now: u64,
        link: &mut impl Link,
        counters: &mut Counters,
        (interface, address): (usize, IpAddr),
    ) {
        let cache = self.neighbours.at(interface);
        if cache.is_some_and(|cache| cache.find(now, address, Sender::Stranger) == Found::Ask) {
            self.ask(now, link, counters, (interface, address), None);
        }
    }

    /// A frame at an interface has said where somebody is, and was understood so. What has waited for that goes.
    pub(super) fn take_heard(
        &mut self,
        link: &mut impl Link,
        counters: &mut Counters,
        (interface, mac): (usize, Mac),
        heard: Heard,
    ) -> Result<(), Counter> {
        let at = &self.routes.interfaces()[interface];
        let waited = match heard {
            Heard::Known => return Ok(()),
            Heard::Doubted => return Err(Counter::NeighbourIgnored),
            Heard::Resolved(waited) => waited,
        };
        for Waiting { offload, mut frame, is_passed } in waited {
            packet::address(&mut frame, mac, at.mac);
            let sent = link.send(at.lan, Offload { vlan: at.vlan, ..offload }, &frame);
            counters.count(match sent {
                Ok(()) => Counter::FramesSent,
                Err(Unsent::Unreachable) => Counter::Unreachable,
                Err(Unsent::Full | Unsent::Lacking(_)) => Counter::TargetFull,
            });
            if is_passed && sent.is_ok() {
                counters.count(Counter::Forwarded);
            }
        }
        Ok(())
    }

    /// Drops what a program here has sent to a neighbour that has not answered.
    pub(super) fn drop_held(&mut self, counters: &mut Counters, hop: Hop) {
        for service in Service::ALL {
            self.lacks.remove(&(hop, service));
            let held = self.held.remove(&(hop, service)).map_or(0, |held| held.len());
            counters.add(Counter::Unresolved, held as u64);
        }
    }

    /// A connection with this address makes progress: whoever its packets go to is there.
    pub(super) fn confirm(&mut self, now: u64, to: IpAddr) {
        if let Some(Hop::Neighbour { interface, address }) = self.routes.hop(to)
            && let Some(cache) = self.neighbours.at(interface)
        {
            cache.confirm(now, address);
        }
    }

    /// Returns true if the neighbour on the way to an address has not answered when it was asked for last.
    pub(super) fn is_unreachable(&self, to: IpAddr) -> bool {
        self.routes.hop(to).is_some_and(|hop| self.neighbours.has_failed(hop))
    }
}
