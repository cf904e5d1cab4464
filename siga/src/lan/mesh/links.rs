//! The guest of a member and its links to the others, as what one waiter serves.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use net::lan::link::Link;
use net::lan::table::Member;
use os::doorbell::Listen;

use super::records::Recorded;
use crate::guest::Guest;
use crate::link::Membership;
use crate::waiter::{self, Key, OneOf, Waiter};
use crate::waiting::{Wait, count_polls};

/// IP addresses that a member had before, and that are remembered for what it sent from them.
const FORMER_MAX: usize = 8;

/// The guest and the links, each with a key.
pub(super) struct Links {
    waiter: Waiter<Occupant>,
    guest: Key,
    wait: Wait,
}

/// One that the waiter serves.
#[derive(Debug)]
enum Occupant {
    Guest(Box<Guest>),
    Link(Box<PeerLink>),
}

impl Links {
    /// Errors: no descriptors left.
    pub(super) fn new(guest: Guest, wait: Wait) -> io::Result<Links> {
        let mut waiter = Waiter::new(wait)?;
        let guest = waiter.add(Occupant::Guest(Box::new(guest)))?;
        Ok(Links { waiter, guest, wait })
    }

    pub(super) fn into_guest(mut self) -> Guest {
        match self.waiter.remove(self.guest) {
            Some(Occupant::Guest(guest)) => *guest,
            _ => unreachable!("made with a guest"),
        }
    }

    pub(super) fn guest(&self) -> &Guest {
        match self.waiter.get(self.guest) {
            Some(Occupant::Guest(guest)) => guest,
            _ => unreachable!("made with a guest"),
        }
    }

    pub(super) fn is_guest(&self, key: Key) -> bool {
        key == self.guest
    }

    /// How it waits.
    pub(super) fn wait(&self) -> Wait {
        self.wait
    }

    #[cfg(feature = "tcpip")]
    pub(super) fn waiter(&self) -> &Waiter<impl waiter::Member + use<>> {
        &self.waiter
    }

    pub(super) fn waiter_mut(&mut self) -> &mut Waiter<impl waiter::Member + use<>> {
        &mut self.waiter
    }

    /// Errors: as of [`Waiter::add`]. The link is dropped then, which ends its path.
    pub(super) fn add(&mut self, link: PeerLink) -> io::Result<Key> {
        self.waiter.add(Occupant::Link(Box::new(link)))
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<PeerLink> {
        match self.waiter.remove(key)? {
            Occupant::Link(peer) => Some(*peer),
            Occupant::Guest(_) => None,
        }
    }

    /// The link that a key stands for, to look at.
    #[inline(always)]
    pub(super) fn get(&self, key: Key) -> Option<&PeerLink> {
        match self.waiter.get(key)? {
            Occupant::Link(peer) => Some(peer),
            Occupant::Guest(_) => None,
        }
    }

    /// The link that a key stands for. If it was asleep it is awake now.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut PeerLink> {
        match self.waiter.get_mut(key)? {
            Occupant::Link(peer) => Some(peer),
            Occupant::Guest(_) => None,
        }
    }

    /// How many looks in a row find each that has something to do.
    pub(super) fn looks(&self) -> usize {
        self.waiter.len() + 1
    }

    /// The next that has something to do. If `drains`, doorbells are drained before: a sleep is over.
    #[inline(always)]
    pub(super) fn next(&mut self, drains: bool) -> io::Result<Option<Key>> {
        match drains {
            true => Ok(self.waiter.try_next()?.map(|(key, _)| key)),
            false => self.waiter.try_next_busy(),
        }
    }
}

impl AsFd for Links {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}

/// A link to a member, and what keeps it in the host's accounts.
#[derive(Debug)]
pub(super) struct PeerLink {
    pub(super) link: Link,
    number: usize,
    /// A frame was given back for want of room.
    wants_room: bool,
    /// Something was pushed since it was last flushed.
    is_unflushed: bool,
    /// The member has left: the link ends once this many buffers were received over it, or none is there.
    ends_after: Option<u64>,
    /// IP addresses that the member had before, at this host or another: frames from there may be under way.
    former: Vec<IpAddr>,
    /// Records that have come, if this member captures.
    pub(super) recorded: Recorded,
    _membership: Arc<Membership>,
}

impl PeerLink {
    pub(super) fn new(link: Link, number: usize, membership: Arc<Membership>) -> PeerLink {
        PeerLink {
            link,
            number,
            wants_room: false,
            is_unflushed: false,
            ends_after: None,
            former: Vec::new(),
            recorded: Recorded::default(),
            _membership: membership,
        }
    }

    /// The number that the member had when the link was made.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Notes whether a frame waits for room.
    #[inline(always)]
    pub(super) fn set_wants_room(&mut self, wants_room: bool) {
        self.wants_room = wants_room;
    }

    pub(super) fn take_wants_room(&mut self) -> bool {
        std::mem::take(&mut self.wants_room)
    }

    /// Notes that something was pushed. Returns true if nothing was since the last flush.
    #[inline(always)]
    pub(super) fn note_push(&mut self) -> bool {
        !std::mem::replace(&mut self.is_unflushed, true)
    }

    #[inline(always)]
    pub(super) fn flush(&mut self) {
        self.is_unflushed = false;
        self.link.flush();
    }

    /// The link is to end once what was handed over by now has been received: no more than a queue holds.
    pub(super) fn drain(&mut self) {
        let buffers = self.link.buffers_received();
        self.ends_after = Some(buffers + fabric::queue::QUEUE_BUFFERS as u64);
    }

    #[inline(always)]
    pub(super) fn is_draining(&self) -> bool {
        self.ends_after.is_some()
    }

    /// Returns true if what was received last was handed over after the member had left.
    pub(super) fn is_late(&mut self) -> bool {
        self.ends_after.is_some_and(|most| self.link.buffers_received() > most)
    }

    /// The address table has another entry for the member.
    pub(super) fn set_member(&mut self, member: Member) {
        for address in &self.link.peer().addresses {
            if !member.addresses.contains(address) && !self.former.contains(address) {
                self.former.push(*address);
            }
        }
        let most = self.former.len().saturating_sub(FORMER_MAX);
        self.former.drain(..most);
        self.link.set_peer(member);
    }

    /// Returns true if the member had this address before.
    pub(super) fn had(&self, address: IpAddr) -> bool {
        self.former.contains(&address)
    }
}

impl OneOf for Occupant {
    fn member(&self) -> &dyn waiter::Member {
        match self {
            Occupant::Guest(guest) => &**guest,
            Occupant::Link(peer) => &**peer,
        }
    }

    fn member_mut(&mut self) -> &mut dyn waiter::Member {
        match self {
            Occupant::Guest(guest) => &mut **guest,
            Occupant::Link(peer) => &mut **peer,
        }
    }

    #[inline]
    fn is_one_ready(&mut self) -> bool {
        match self {
            Occupant::Guest(guest) => waiter::Member::is_ready(&mut **guest),
            Occupant::Link(peer) => waiter::Member::is_ready(&mut **peer),
        }
    }
}

/// Ready when a frame waits, or there is room again, or the path has ended.
impl waiter::Member for PeerLink {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        let (sender, receiver) = self.link.as_halves();
        add(receiver.descriptor());
        add(sender.descriptor());
    }

    fn is_path(&self) -> bool {
        true
    }

    fn hear(&mut self, index: usize) -> bool {
        let (sender, receiver) = self.link.halves();
        match index {
            0 => {
                receiver.hear(Listen::Now);
                receiver.ended().is_none()
            }
            _ => {
                sender.hear(Listen::Now);
                sender.ended().is_none()
            }
        }
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        let wants_room = self.wants_room;
        let is_left = self.ends_after.is_some() || self.recorded.is_waiting();
        self.link.is_ready() || is_left || wants_room && self.link.halves().0.is_ready()
    }

    fn sleep(&mut self) {
        let wants_room = self.wants_room;
        let (sender, receiver) = self.link.halves();
        receiver.announce_sleep();
        receiver.counters().add(fabric::path::Counter::Sleeps, 1);
        if wants_room {
            sender.announce_sleep();
        } else {
            sender.flush();
        }
    }

    fn wake(&mut self) {
        let (sender, receiver) = self.link.halves();
        receiver.wake();
        sender.wake();
    }

    fn trim(&mut self) -> bool {
        self.link.trim()
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        let (_, receiver) = self.link.halves();
        count_polls(receiver.counters(), polls, false, spinning_ns);
    }
}
