//! Copies of what is sent, for members that capture.

use fabric::path::SendError;
use net::lan::counters::Counter;
use net::lan::frame::Mac;
use net::lan::link::{Frame, Link, Urgency};
use os::processor::now_ns;

use super::Mesh;
use crate::lan::capturer::Capturer;
use crate::lan::error::TrySendFrameError;
use crate::waiter::Key;

/// Buffers of copies that one that captures may be behind before small copies go together.
const COPIES_ALONE_MAX: usize = fabric::queue::QUEUE_BUFFERS / 2;

/// How often a member that sends looks whether the path is there over which copies go.
const LOOK_NS: u64 = 1_000_000;

/// The members that get copies of what is sent.
#[derive(Default)]
pub(super) struct Copies {
    capturers: Vec<Capturer>,
    /// When to look for paths to them, if some have none.
    look_ns: u64,
}

impl Copies {
    /// Returns true if somebody captures.
    #[inline(always)]
    pub(super) fn are_made(&self) -> bool {
        !self.capturers.is_empty()
    }

    fn find(&mut self, number: usize) -> Option<&mut Capturer> {
        self.capturers.iter_mut().find(|one| one.number == number)
    }
}

impl Mesh {
    /// Looks up who gets copies from now on.
    pub(super) fn find_capturers(&mut self) {
        let Mesh { view, copies: Copies { capturers, .. }, outbound, .. } = self;
        let mut before = std::mem::take(capturers);
        for (number, member) in view.capturers() {
            let known = |one: &Capturer| (one.number, one.name) == (number, member.name);
            let known = before.iter().position(known).map(|at| before.swap_remove(at));
            capturers.push(known.unwrap_or_else(|| Capturer::new(number, member.name)));
        }
        let lost: usize = before.iter().map(Capturer::waiting).sum();
        outbound.counters_mut().add(Counter::CapturesLost, lost as u64);
    }

    /// A link to a member has been made: if the member captures, copies that waited for the link go.
    pub(super) fn begin_copies(&mut self, number: usize, link: &mut Link) {
        let name = link.peer().name;
        if let Some(capturer) = self.copies.find(number).filter(|one| one.name == name) {
            let lost = capturer.begin(link, now_ns());
            self.outbound.counters_mut().add(Counter::CapturesLost, lost);
        }
    }

    /// Sends a frame to one member, after copies of it to those that capture: what the member answers was sent later, whoever
    /// looks at the copies first. A frame that no member takes is copied too, one that is given back because its target is
    /// full is not.
    #[inline(never)]
    pub(super) fn send_captured(
        &mut self,
        destination: Mac,
        frame: Frame<'_>,
    ) -> Result<(), TrySendFrameError> {
        self.publish_to_all();
        let number = self.view.find_taker(destination).map(|(number, _)| number);
        let Some(key) = number.and_then(|number| self.peers.key(number)) else {
            // It waits for its path, or goes nowhere.
            if !number.is_some_and(|number| self.peers.is_full(number)) {
                self.copy(frame);
            }
            return self.send_elsewhere(destination, frame, Urgency::Now);
        };
        let claimed = match self.links.get_mut(key) {
            Some(peer) => peer.link.claim(frame),
            None => {
                self.copy(frame);
                return self.send_after_the_end(key, frame, Urgency::Now);
            }
        };
        match claimed {
            Ok(claim) => {
                self.copy(frame);
                let Some(peer) = self.links.get_mut(key) else {
                    return self.send_after_the_end(key, frame, Urgency::Now);
                };
                let sent = peer.link.commit(claim);
                self.after_sending(key, frame.offload, frame.bytes.len(), sent)
            }
            // The path has ended, perhaps because its member has come again.
            Err(SendError::Severed(_)) => {
                self.copy(frame);
                self.send_elsewhere(destination, frame, Urgency::Now)
            }
            Err(error) => self.not_sent(key, error),
        }
    }

    /// Gives a copy of a frame that is about to be sent to each member that captures, with the time. What one of them has no
    /// room for is lost, and slows nobody.
    #[inline(never)]
    pub(super) fn copy(&mut self, frame: Frame<'_>) {
        let now = now_ns();
        self.find_paths_for_copies(now);
        let mut ended = None;
        let Mesh { links, peers, copies, outbound, .. } = self;
        for capturer in &mut copies.capturers {
            let Some(key) = peers.key(capturer.number) else {
                let is_kept = capturer.keep(now, frame);
                outbound.counters_mut().add(Counter::CapturesLost, u64::from(!is_kept));
                continue;
            };
            let Some(peer) = links.get_mut(key) else { continue };
            // At once: held back, it might be seen after what the frame's target answers. Only where the one that captures is
            // so far behind that it would lose copies, small ones go together.
            let urgency = match peer.link.buffers_out() > COPIES_ALONE_MAX {
                true => Urgency::WithOthers,
                false => Urgency::Now,
            };
            let given = capturer.give(&mut peer.link, now, frame, urgency);
            if urgency == Urgency::WithOthers {
                outbound.flush_first(key, peer);
            }
            if let Err(error) = given {
                outbound.counters_mut().add(Counter::CapturesLost, 1);
                peer.set_wants_room(true);
                if let SendError::Severed(_) = error {
                    ended = Some(key);
                }
            }
        }
        if let Some(key) = ended {
            self.end(key);
        }
    }

    /// Asks for paths to those that capture, and takes those that are there: a program that sends, and does nothing
    /// else, learns it nowhere else.
    #[inline]
    fn find_paths_for_copies(&mut self, now: u64) {
        let is_connected = |one: &Capturer| self.peers.key(one.number).is_some();
        let Copies { capturers, look_ns } = &self.copies;
        if now < *look_ns || capturers.iter().all(is_connected) {
            return;
        }
        self.copies.look_ns = now + LOOK_NS;
        let numbers: Vec<usize> = self.copies.capturers.iter().map(|one| one.number).collect();
        for number in numbers {
            self.reconnect(number);
        }
        self.serve_guest();
    }

    /// Reports copies that were lost to a member that captures, now that there is room.
    #[cold]
    pub(super) fn report_lost(&mut self, key: Key) {
        let Some(peer) = self.links.get_mut(key) else { return };
        if let Some(capturer) = self.copies.find(peer.number())
            && let Err(SendError::Full) = capturer.tell(&mut peer.link, now_ns())
        {
            peer.set_wants_room(true);
        }
    }
}
