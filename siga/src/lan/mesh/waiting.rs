//! Waits for frames, and for room.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fabric::path::Sender;
use net::lan::frame::Mac;
use os::doorbell::Listen;
use os::poller::wait_any;
use os::processor::now_ns;
use os::sync::pause;

use super::Mesh;
use crate::waiter::Key;
#[cfg(feature = "tcpip")]
use crate::waiter::{self, Waiter};
use crate::waiting::{POLLS_PER_CLOCK, SPIN_NS_MAX, Wait};

/// How often a member that waits for room looks whether the other is still in the address table.
const TABLE_LOOK_NS: u64 = 1_000_000_000;

/// Notes of one sleep for the next look, and of looks for the next sleep.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The doorbells are to be drained before anything is looked at.
    has_slept: bool,
    /// They have rung since anything was looked at.
    is_woken: bool,
    /// There is room, or a path, for a frame that was given back.
    has_room: bool,
}

impl Waiting {
    /// A frame that was given back may go now.
    #[inline(always)]
    pub(super) fn note_room(&mut self) {
        self.has_room = true;
    }

    /// Begins a look at everything. Returns true if the doorbells are to be drained before.
    #[inline(always)]
    pub(super) fn begin_look(&mut self) -> bool {
        self.is_woken = false;
        std::mem::take(&mut self.has_slept)
    }

    fn take_room(&mut self) -> bool {
        std::mem::take(&mut self.has_room)
    }
}

impl Mesh {
    /// Returns what `next` finds, waiting until there is something. None if the time is over; `u64::MAX` never is.
    pub(crate) fn wait_for<T>(
        &mut self,
        deadline_ns: u64,
        next: impl Fn(&mut Mesh) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        loop {
            if let Some(found) = next(self)? {
                return Ok(Some(found));
            }
            self.wait_until(deadline_ns)?;
            if deadline_ns != u64::MAX && now_ns() >= deadline_ns {
                return next(self);
            }
        }
    }

    /// Looks for a frame, or room, without sleeping.
    #[cfg(feature = "tcpip")]
    pub(crate) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<waiter::Looked> {
        if self.waiting.take_room() {
            return Ok(waiter::Looked::Ready);
        }
        self.give_back();
        self.flush();
        self.links.waiter_mut().look(deadline_ns, is_wanted)
    }

    /// Prepares for a sleep until the descriptor is readable. When it has to end for trimming; None if there is something.
    #[cfg(feature = "tcpip")]
    pub(crate) fn prepare_sleep(&mut self) -> Option<u64> {
        if self.in_child() {
            return None;
        }
        self.give_back();
        self.flush();
        if self.waiting.take_room() {
            return None;
        }
        let trim_ns = self.links.waiter_mut().prepare_sleep()?;
        self.waiting.has_slept = true;
        // What came meanwhile has rung.
        self.view.is_current().then_some(trim_ns)
    }

    /// A sleep was ended by the doorbells that are called so, after so long. Whether one of them is a member's.
    #[cfg(feature = "tcpip")]
    pub(crate) fn woken_by(&mut self, rang: &[u64], slept_ns: u64) -> bool {
        self.waiting.has_slept = false;
        self.links.waiter_mut().heard(rang, slept_ns)
    }

    #[cfg(feature = "tcpip")]
    pub(crate) fn wait(&self) -> Wait {
        self.links.wait()
    }

    #[cfg(feature = "tcpip")]
    pub(crate) fn waiter(&self) -> &Waiter<impl waiter::Member + use<>> {
        self.links.waiter()
    }

    /// Waits until there may be a frame, or room.
    pub(crate) fn wait_until(&mut self, deadline_ns: u64) -> io::Result<()> {
        self.give_back();
        self.flush();
        self.links.waiter_mut().wait_until(deadline_ns)?;
        // It was found and is not served: it is found again.
        Ok(())
    }

    /// Waits until a frame for this member that was given back may go, or there is something new to know about the member;
    /// at most until `deadline_ns`. Frames that wait to be received do not end the wait: nobody takes them meanwhile.
    pub(crate) fn wait_for_room(&mut self, destination: Mac, deadline_ns: u64) {
        self.flush();
        let found = self.view.table().find(destination);
        let Some(number) = found.map(|(number, _)| number) else { return };
        let key = self.peers.key(number);
        if key.is_none() && !self.peers.is_connecting(number) {
            // The next try shows what became of it.
            return;
        }
        // The address table has no doorbell: whether the member is still in it is asked now and then.
        let deadline_ns = deadline_ns.min(now_ns().saturating_add(TABLE_LOOK_NS));
        let spin_until_ns = match self.links.wait() {
            Wait::Block => 0,
            Wait::Adaptive => deadline_ns.min(now_ns() + SPIN_NS_MAX),
            Wait::Spin => deadline_ns,
        };
        while now_ns() < spin_until_ns {
            for _ in 0..POLLS_PER_CLOCK {
                if self.may_have_room(key) {
                    return;
                }
                pause();
            }
            // A peer that is gone, and the host, are heard of by their doorbells alone.
            if self.wait_for_credit(key, Duration::ZERO) {
                return;
            }
        }
        if self.links.wait() == Wait::Spin {
            return;
        }
        if let Some(sender) = self.sender_of(key) {
            sender.announce_sleep();
            sender.counters().add(fabric::path::Counter::Sleeps, 1);
        }
        let time = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
        if !self.may_have_room(key) {
            self.wait_for_credit(key, time);
        }
        if let Some(sender) = self.sender_of(key) {
            sender.wake();
        }
    }

    /// Listens to the doorbells of a link's sender and of the guest, at most for `time`, and does what the guest has news
    /// of: whether it had any.
    fn wait_for_credit(&mut self, key: Option<Key>, time: Duration) -> bool {
        let peer = key.and_then(|key| self.links.get(key));
        let link = peer.map(|peer| peer.link.as_halves().0.descriptor());
        let heard = wait_any([link, Some(self.guest().as_fd())], Some(time));
        let has_news = heard.is_ok_and(|[_, has_news]| has_news);
        if let Some(sender) = self.sender_of(key) {
            sender.hear(Listen::Now);
        }
        let has_news = has_news || self.guest().has_news();
        if has_news {
            self.guest().hear(now_ns());
            self.serve_guest();
        }
        has_news
    }

    fn may_have_room(&mut self, key: Option<Key>) -> bool {
        // A link that has ended meanwhile holds up nothing.
        let has_room = key.is_some() && self.sender_of(key).is_none_or(|sender| sender.is_ready());
        has_room || self.guest().has_news()
    }

    fn sender_of(&mut self, key: Option<Key>) -> Option<&mut Sender> {
        Some(self.links.get_mut(key?)?.link.halves().0)
    }

    /// The descriptor has become readable: listen before anything is looked at.
    pub(crate) fn drain_doorbells(&mut self) {
        self.waiting.has_slept = true;
        self.waiting.is_woken = true;
    }

    /// Returns true if there may be something to do: members that have come and gone are something.
    #[inline]
    pub(crate) fn is_ready(&mut self) -> bool {
        // A forked child finds out when it receives.
        self.in_child()
            || self.waiting.is_woken
            || self.links.waiter_mut().is_one_ready()
            || !self.view.is_current()
    }

    /// Gives back memory of all links that was not used lately. Returns whether there may be more later. Links that sleep
    /// go on sleeping: whoever trims a member that sleeps does not prepare it for sleep again.
    pub(crate) fn trim(&mut self) -> bool {
        !self.in_child() && self.links.waiter_mut().trim()
    }

    /// Prepares for a wait in a waiter, which asks [`Mesh::is_ready`] then. Room, or a path, is told once.
    pub(crate) fn sleep(&mut self) {
        let has_room = self.waiting.take_room();
        self.prepare_wait();
        self.waiting.is_woken |= has_room;
    }

    pub(crate) fn prepare_wait(&mut self) -> bool {
        if self.in_child() {
            return false;
        }
        self.give_back();
        self.flush();
        // A frame that was given back may go now, and nobody has been told.
        if self.waiting.take_room() || !self.links.waiter_mut().prepare_wait() {
            return false;
        }
        self.waiting.has_slept = true;
        // What came meanwhile has rung.
        self.view.is_current()
    }
}

impl AsFd for Mesh {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.links.as_fd()
    }
}
