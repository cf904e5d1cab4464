//! Frames to one member.

use fabric::path::SendError;
use net::lan::counters::{Counter, Counters};
use net::lan::frame::Mac;
#[cfg(feature = "tcpip")]
use net::lan::link::FrameInParts;
use net::lan::link::{Frame, Urgency};
use net::lan::offload::Offload;

use super::Mesh;
use super::links::PeerLink;
use crate::lan::error::{SendFrameError, TrySendFrameError};
use crate::waiter::Key;

/// The state of sending, from one frame to the next.
pub(super) struct Outbound {
    /// Where the last frame went.
    last: Option<(Mac, Key)>,
    /// Links with frames that were held back.
    unflushed: Vec<Key>,
    counters: Counters,
}

impl Outbound {
    pub(super) fn new(counters: Counters) -> Outbound {
        Outbound { last: None, unflushed: Vec::new(), counters }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline(always)]
    pub(super) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Makes the next frame look up where it goes.
    pub(super) fn invalidate(&mut self) {
        self.last = None;
    }

    /// Sends nothing more over this link without a look at the table.
    pub(super) fn forget(&mut self, key: Key) {
        self.last = self.last.filter(|(_, last)| *last != key);
    }

    /// Has the next flush hand over what was pushed over a link, before all else.
    pub(super) fn flush_first(&mut self, key: Key, peer: &mut PeerLink) {
        if peer.note_push() {
            self.unflushed.insert(0, key);
        }
    }
}

impl Mesh {
    /// Sends a frame that was checked to one member, and copies to those that capture.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        destination: Mac,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        if self.copies.are_made() {
            return self.send_captured(destination, frame);
        }
        self.send_to_one(destination, frame, urgency)
    }

    #[inline(always)]
    fn send_to_one(
        &mut self,
        destination: Mac,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        self.publish_to_all();
        if let Some((mac, key)) = self.outbound.last
            && mac == destination
        {
            match self.send_over(key, frame, urgency) {
                // The path has ended, perhaps because its member has come again.
                Err(TrySendFrameError::Send(SendFrameError::Unreachable(_))) => {}
                sent => return sent,
            }
        }
        self.send_elsewhere(destination, frame, urgency)
    }

    #[inline(never)]
    pub(super) fn send_elsewhere(
        &mut self,
        destination: Mac,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        let Some((number, _)) = self.view.find_taker(destination) else {
            self.outbound.counters.add(Counter::NoMember, 1);
            return Err(SendFrameError::NoMember(destination).into());
        };
        self.send_to(number, Some(destination), frame, urgency)
    }

    /// Sends a frame to the member of this number, over a path that is there or is to be made.
    pub(super) fn send_to(
        &mut self,
        number: usize,
        destination: Option<Mac>,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        if let Some(key) = self.peers.key(number) {
            if let Some(mac) = destination {
                self.outbound.last = Some((mac, key));
            }
            match self.send_over(key, frame, urgency) {
                // The path has ended, perhaps because its member has come again.
                Err(TrySendFrameError::Send(SendFrameError::Unreachable(_))) => {
                    self.disconnect(number)
                }
                sent => return sent,
            }
        }
        self.send_later(number, frame)
    }

    #[inline(always)]
    pub(super) fn send_over(
        &mut self,
        key: Key,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        let Mesh { links, outbound: Outbound { counters, unflushed, .. }, .. } = self;
        let Some(peer) = links.get_mut(key) else {
            return self.send_after_the_end(key, frame, urgency);
        };
        let sent = peer.link.send(frame, urgency);
        match sent {
            Ok(()) => {
                if urgency == Urgency::WithOthers && peer.note_push() {
                    unflushed.push(key);
                }
                count_sent(counters, frame.offload, frame.bytes.len());
                peer.set_wants_room(false);
                Ok(())
            }
            Err(error) => self.not_sent(key, error),
        }
    }

    #[cold]
    pub(super) fn send_after_the_end(
        &mut self,
        key: Key,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        // Only `last` outlives its link.
        self.outbound.forget(key);
        let destination = net::lan::frame::destination(frame.bytes).unwrap_or(Mac::BROADCAST);
        self.send_elsewhere(destination, frame, urgency)
    }

    pub(super) fn after_sending(
        &mut self,
        key: Key,
        offload: Offload,
        bytes: usize,
        sent: Result<(), SendError>,
    ) -> Result<(), TrySendFrameError> {
        if let Err(error) = sent {
            return self.not_sent(key, error);
        }
        count_sent(&mut self.outbound.counters, offload, bytes);
        if let Some(peer) = self.links.get_mut(key) {
            peer.set_wants_room(false);
        }
        Ok(())
    }

    #[cold]
    pub(super) fn not_sent(&mut self, key: Key, error: SendError) -> Result<(), TrySendFrameError> {
        let Mesh { links, outbound, .. } = self;
        let Some(peer) = links.get_mut(key) else { return Err(TrySendFrameError::Full) };
        match error {
            SendError::Full | SendError::Quiesced => {
                peer.set_wants_room(true);
                outbound.counters.add(Counter::Full, 1);
                Err(TrySendFrameError::Full)
            }
            SendError::Lacking(lack) => Err(SendFrameError::Lacking(lack).into()),
            SendError::TooLong { .. } | SendError::Severed(_) => {
                let name = peer.link.peer().name;
                outbound.invalidate();
                Err(SendFrameError::Unreachable(name).into())
            }
        }
    }

    /// Sends a frame that was checked and whose data lies elsewhere, at once. It is put into one piece if its target has no path yet.
    #[cfg(feature = "tcpip")]
    pub(crate) fn send_in_parts(
        &mut self,
        destination: Mac,
        frame: &FrameInParts<'_>,
    ) -> Result<(), TrySendFrameError> {
        let key = self.key_to(destination).filter(|_| !self.copies.are_made());
        if let Some(key) = key {
            self.publish_to_all();
            if let Some(peer) = self.links.get_mut(key) {
                let sent = peer.link.send_in_parts(frame);
                match self.after_sending(key, frame.offload, frame.bytes(), sent) {
                    // The path has ended, perhaps because its member has come again.
                    Err(TrySendFrameError::Send(SendFrameError::Unreachable(_))) => {}
                    sent => return sent,
                }
            }
        }
        let whole = Frame { offload: frame.offload, bytes: &frame.whole() };
        self.send(destination, whole, Urgency::WithOthers)
    }

    /// The path to a member, if there is one.
    #[cfg(feature = "tcpip")]
    fn key_to(&mut self, destination: Mac) -> Option<Key> {
        if let Some((_, key)) = self.outbound.last.filter(|(mac, _)| *mac == destination) {
            return Some(key);
        }
        let (number, _) = self.view.find_taker(destination)?;
        let key = self.peers.key(number)?;
        self.outbound.last = Some((destination, key));
        Some(key)
    }

    pub(crate) fn flush(&mut self) {
        if self.in_child() {
            return;
        }
        self.publish_to_all();
        let Mesh { links, outbound, .. } = self;
        for key in outbound.unflushed.drain(..) {
            if let Some(peer) = links.get_mut(key) {
                peer.flush();
            }
        }
    }
}

#[inline(always)]
fn count_sent(counters: &mut Counters, offload: Offload, bytes: usize) {
    counters.add(Counter::FramesSent, 1);
    counters.add(Counter::BytesSent, bytes as u64);
    counters.add(Counter::SegmentsSent, offload.segments(bytes) as u64);
}
