//! What a waiter sees of guests, paths and halves.

use std::os::fd::{AsFd, BorrowedFd};

use fabric::path::Counter;
use os::doorbell::Listen;
use os::processor::now_ns;

use crate::guest::Guest;
use crate::path::{Path, Receiver, Sender};
use crate::waiter::{Member, OneOf};
use crate::waiting::count_polls;

/// Ready when a message waits, or the path has ended.
impl Member for Receiver {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.descriptor());
    }

    fn is_path(&self) -> bool {
        true
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.raw().hear(Listen::Now);
        self.raw().ended().is_none()
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        self.raw().is_ready()
    }

    fn sleep(&mut self) {
        self.raw().announce_sleep();
        self.raw().counters().add(Counter::Sleeps, 1);
    }

    fn wake(&mut self) {
        self.raw().wake();
    }

    fn trim(&mut self) -> bool {
        self.raw().trim();
        false
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        count_polls(self.raw().counters(), polls, false, spinning_ns);
    }
}

/// Ready when there is room again after a send was refused, or the path has ended.
impl Member for Sender {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.descriptor());
    }

    fn is_path(&self) -> bool {
        true
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.raw().hear(Listen::Now);
        self.raw().ended().is_none()
    }

    fn is_ready(&mut self) -> bool {
        self.wants_room() && self.raw().is_ready() || self.raw().ended().is_some()
    }

    fn sleep(&mut self) {
        if self.wants_room() {
            self.raw().announce_sleep();
            self.raw().counters().add(Counter::Sleeps, 1);
        } else {
            self.raw().flush();
        }
    }

    fn wake(&mut self) {
        self.raw().wake();
    }

    fn trim(&mut self) -> bool {
        self.raw().trim()
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        count_polls(self.raw().counters(), polls, false, spinning_ns);
    }
}

/// Ready when a message waits, or there is room again after a send was refused, or the path has ended.
impl Member for Path {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.receivers.iter().for_each(|receiver| receiver.doorbells(add));
        self.senders.iter().for_each(|sender| sender.doorbells(add));
    }

    fn is_path(&self) -> bool {
        true
    }

    fn hear(&mut self, index: usize) -> bool {
        let receivers = self.receivers.len();
        if index < receivers {
            self.receivers[index].hear(0)
        } else {
            self.senders[index - receivers].hear(0)
        }
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        self.receivers.iter_mut().any(Member::is_ready)
            || self.senders.iter_mut().any(|sender| sender.wants_room() && sender.raw().is_ready())
    }

    fn sleep(&mut self) {
        self.receivers.iter_mut().for_each(Member::sleep);
        self.senders.iter_mut().for_each(Member::sleep);
    }

    fn wake(&mut self) {
        self.receivers.iter_mut().for_each(Member::wake);
        self.senders.iter_mut().for_each(Member::wake);
    }

    fn trim(&mut self) -> bool {
        Path::trim(self)
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        self.receivers[0].count(polls, spinning_ns);
    }
}

/// Ready when a connection waits, or something has become of one that was asked for: see
/// [`Guest::has_news`].
impl Member for Guest {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        Guest::hear(self, now_ns());
        true
    }

    fn is_ready(&mut self) -> bool {
        self.has_news()
    }

    fn sleep(&mut self) {
        self.set_asleep(true);
    }

    fn wake(&mut self) {
        self.set_asleep(false);
    }
}

/// A guest together with its paths: what a server serves.
#[derive(Debug)]
pub enum Served {
    /// Ready when a connection waits, or something has become of one that was asked for.
    Guest(Guest),
    /// Ready when a message waits, or there is room again, or the path has ended.
    Path(Path),
}

impl OneOf for Served {
    fn member(&self) -> &dyn Member {
        match self {
            Served::Guest(guest) => guest,
            Served::Path(path) => path,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Served::Guest(guest) => guest,
            Served::Path(path) => path,
        }
    }

    #[inline]
    fn is_one_ready(&mut self) -> bool {
        match self {
            Served::Guest(guest) => guest.is_ready(),
            Served::Path(path) => path.is_ready(),
        }
    }
}
