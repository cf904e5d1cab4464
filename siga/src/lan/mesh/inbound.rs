//! Frames that have come.

use std::io;
use std::net::IpAddr;

use fabric::path::Severed;
use net::lan::capture;
use net::lan::claim::{Claim, claim};
use net::lan::counters::{Counter, Counters};
use net::lan::link::{Frame, FrameInPlace, Received, ReceivedInPlace};
use net::lan::table::Member;

use super::Mesh;
use super::links::PeerLink;
use crate::waiter::Key;

/// Frames that are taken from one member before the next has its turn.
const FRAMES_PER_TURN: u32 = 64;

/// Frames in a row that are dropped for what they claim before a call returns.
const CLAIMS_PER_CALL_MAX: usize = 64;

/// The state of receiving, from one frame to the next.
pub(super) struct Inbound {
    /// Over which link frames are taken, and how many more before the next has its turn.
    current: Option<(Key, u32)>,
    /// Over which link the frame has come that is in its sender's page still.
    in_page: Option<Key>,
    counters: Counters,
}

/// A frame that has come, and over which link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    key: Key,
    received: Received,
}

/// A frame that has come and may lie in its sender's page, and over which link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundInPlace {
    key: Key,
    received: ReceivedInPlace,
}

impl Inbound {
    pub(crate) fn new(counters: Counters) -> Inbound {
        Inbound { current: None, in_page: None, counters }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Ends the turn of a link.
    pub(super) fn forget(&mut self, key: Key) {
        self.current = self.current.filter(|(current, _)| *current != key);
    }
}

impl Mesh {
    /// The next frame.
    #[inline]
    pub(crate) fn next_frame(&mut self) -> io::Result<Option<Found>> {
        match self.next_of_current() {
            Some(found) => Ok(Some(found)),
            None => self.next_frame_of_others(),
        }
    }

    /// The next frame of the member from which the last one was, as long as it has its turn.
    #[inline(always)]
    pub(crate) fn next_of_current(&mut self) -> Option<Found> {
        let (key, received) =
            self.next_in_turn(|peer, own, counters| peer.link.receive(own, counters))?;
        Some(Found { key, received })
    }

    #[inline(never)]
    fn next_frame_of_others(&mut self) -> io::Result<Option<Found>> {
        let found = self.next_of_others(|peer, own, counters| {
            if peer.link.peer().captures {
                return capture::drop_all(&mut peer.link, counters).map(|()| None);
            }
            peer.link.receive(own, counters)
        })?;
        Ok(found.map(|(key, received)| Found { key, received }))
    }

    /// The next frame, left in its sender's page if it is long. The last one is given back.
    #[inline]
    pub(crate) fn next_frame_in_place(&mut self) -> io::Result<Option<FoundInPlace>> {
        for _ in 0..CLAIMS_PER_CALL_MAX {
            match self.find_in_place()? {
                Some(found) if !self.is_fair(found) => self.give_back(),
                found => return Ok(found),
            }
        }
        Ok(None)
    }

    /// Returns true if all claims of a frame are true. If not, counts the frame.
    #[inline]
    fn is_fair(&mut self, FoundInPlace { key, received }: FoundInPlace) -> bool {
        let Some(peer) = self.links.get_mut(key) else { return true };
        let FrameInPlace { offload, start, .. } = peer.link.frame_in_place(received);
        match claim(start, offload, peer.link.peer()) {
            Claim::Fair => true,
            Claim::Discovery => {
                self.inbound.counters.add(Counter::DroppedDiscovery, 1);
                false
            }
            Claim::Source(ip) => self.is_source(key, ip),
        }
    }

    /// Returns true if an IP address is that of the member at the other end of a link, though its entry did not say so: it may have
    /// registered the address just now, or have had it. What is dropped is counted.
    #[cold]
    fn is_source(&mut self, key: Key, ip: IpAddr) -> bool {
        self.refresh();
        let Mesh { links, view, inbound, .. } = self;
        let Some(peer) = links.get_mut(key) else { return false };
        let member = peer.link.peer();
        let is_its = member.addresses.contains(&ip)
            || member.may_speak_from(ip)
            || peer.had(ip) && view.table().find_address(ip).is_none();
        if !is_its {
            inbound.counters.add(Counter::DroppedAddress, 1);
        }
        is_its
    }

    #[inline]
    pub(crate) fn find_in_place(&mut self) -> io::Result<Option<FoundInPlace>> {
        self.give_back();
        let receive = |peer: &mut PeerLink, own: &Member, counters: &mut Counters| {
            if peer.link.peer().captures {
                return capture::drop_all(&mut peer.link, counters).map(|()| None);
            }
            peer.link.receive_in_place(own, counters)
        };
        let found = match self.next_in_turn(receive) {
            Some(found) => Some(found),
            None => self.next_of_others(receive)?,
        };
        if let Some((key, ReceivedInPlace::InPage { .. })) = found {
            self.inbound.in_page = Some(key);
        }
        Ok(found.map(|(key, received)| FoundInPlace { key, received }))
    }

    /// Gives the page back to its sender in which a frame was received in place, if there is one.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        if let Some(key) = self.inbound.in_page.take()
            && !self.in_child()
            && let Some(peer) = self.links.get_mut(key)
        {
            peer.link.give_back();
        }
    }

    /// Returns what `receive` finds at the member that has its turn.
    #[inline(always)]
    fn next_in_turn<R>(
        &mut self,
        receive: impl Fn(&mut PeerLink, &Member, &mut Counters) -> Result<Option<R>, Severed>,
    ) -> Option<(Key, R)> {
        // Others learn it when they look at all members.
        if self.in_child() {
            return None;
        }
        let Mesh { links, view, inbound: Inbound { current, counters, .. }, .. } = self;
        let (key, turns) = current.as_mut()?;
        *turns = turns.checked_sub(1)?;
        let key = *key;
        match receive(links.get_mut(key)?, view.own(), counters) {
            Ok(Some(received)) => Some((key, received)),
            _ => None,
        }
    }

    /// Returns what `receive` finds at the next member that has something.
    #[inline(always)]
    fn next_of_others<R>(
        &mut self,
        receive: impl Fn(&mut PeerLink, &Member, &mut Counters) -> Result<Option<R>, Severed>,
    ) -> io::Result<Option<(Key, R)>> {
        if self.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.give_back();
        self.refresh();
        self.inbound.current = None;
        let mut drains = self.waiting.begin_look();
        // Each is looked at once; those that have nothing are not ready again for that.
        for _ in 0..self.links.looks() {
            let Some(key) = self.links.next(std::mem::take(&mut drains))? else { return Ok(None) };
            if self.links.is_guest(key) {
                self.serve_guest();
                continue;
            }
            let Mesh { links, view, inbound, waiting, .. } = self;
            let Some(peer) = links.get_mut(key) else { continue };
            match receive(peer, view.own(), &mut inbound.counters) {
                Ok(Some(received)) if !peer.is_draining() => {
                    inbound.current = Some((key, FRAMES_PER_TURN));
                    return Ok(Some((key, received)));
                }
                Ok(Some(received)) if !peer.is_late() => return Ok(Some((key, received))),
                // What it sent after it had left.
                Ok(Some(_)) => {
                    inbound.counters.add(Counter::DroppedSource, 1);
                    self.end(key);
                }
                Ok(None) if peer.is_draining() => self.end(key),
                Ok(None) => {
                    // It was ready because there is room again: whoever wants it tries again.
                    if peer.take_wants_room() {
                        waiting.note_room();
                    }
                    if peer.link.peer().captures {
                        self.report_lost(key);
                    }
                }
                Err(_) => self.end(key),
            }
        }
        Ok(None)
    }

    #[inline(always)]
    pub(crate) fn frame(&self, Found { key, received }: Found) -> Frame<'_> {
        match self.links.get(key) {
            Some(peer) => peer.link.frame(received),
            None => unreachable!("the frame was received just now"),
        }
    }

    #[inline]
    pub(crate) fn frame_in_place(&self, found: FoundInPlace) -> FrameInPlace<'_> {
        self.frame_still_in_place(found).expect("the frame was received just now")
    }

    /// The member that has sent a frame, if that has left and is still received from.
    #[cfg(feature = "tcpip")]
    pub(crate) fn sender_that_left(
        &self,
        FoundInPlace { key, .. }: FoundInPlace,
    ) -> Option<Member> {
        let peer = self.links.get(key).filter(|peer| peer.is_draining())?;
        Some(peer.link.peer().clone())
    }

    /// The same, if its link is there: who looks at the address table meanwhile may learn that it is not.
    #[inline]
    pub(crate) fn frame_still_in_place(
        &self,
        FoundInPlace { key, received }: FoundInPlace,
    ) -> Option<FrameInPlace<'_>> {
        Some(self.links.get(key)?.link.frame_in_place(received))
    }
}
