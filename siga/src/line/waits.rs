//! Waits for a line: for packets, completions, and its guest's news.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use message::iucv::MessageId;
use net::links::gauge;
use os::poller::Sleeper;

use super::end::Line;
use crate::ctc;
use crate::guest::Guest;
use crate::iucv::IucvPath;
use crate::waiter::{Looked, Member, OneOf};

/// A member of the waiter of a line.
#[derive(Debug)]
pub(super) enum Occupant {
    Guest(Box<Guest>),
    Path(Box<Joined>),
    Adapter(Box<ctc::Line>),
}

impl Occupant {
    pub(super) fn joined(&mut self) -> Option<&mut Joined> {
        match self {
            Occupant::Path(joined) => Some(joined),
            Occupant::Guest(_) | Occupant::Adapter(_) => None,
        }
    }
}

/// The path of a line that is up.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) path: IucvPath,
    /// A message of which not all is in place yet.
    pub(super) filling: Option<Filling>,
}

/// A message that was received in part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling {
    pub(super) id: MessageId,
    pub(super) class: u32,
    pub(super) priority: bool,
    /// How many bytes were received.
    pub(super) bytes: usize,
}

impl Member for Joined {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.path.doorbells(add);
    }

    fn is_path(&self) -> bool {
        true
    }

    fn hear(&mut self, index: usize) -> bool {
        self.path.hear(index)
    }

    fn is_ready(&mut self) -> bool {
        let is_filled = |filling: Filling, path: &mut IucvPath| {
            path.raw().is_readable(filling.id, filling.priority)
        };
        self.path.is_ready()
            || self.filling.is_some_and(|filling| is_filled(filling, &mut self.path))
    }

    fn sleep(&mut self) {
        self.path.sleep();
    }

    fn wake(&mut self) {
        self.path.wake();
    }

    fn trim(&mut self) -> bool {
        self.path.trim()
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        self.path.count(polls, spinning_ns);
    }
}

impl OneOf for Occupant {
    fn member(&self) -> &dyn Member {
        match self {
            Occupant::Guest(guest) => &**guest,
            Occupant::Path(joined) => &**joined,
            Occupant::Adapter(end) => &**end,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Occupant::Guest(guest) => &mut **guest,
            Occupant::Path(joined) => &mut **joined,
            Occupant::Adapter(end) => &mut **end,
        }
    }
}

impl Line {
    /// Sends what says that messages were received, and shows observers how the line stands.
    pub(crate) fn flush(&mut self) {
        if self.adapter.is_some() {
            return self.show_adapter();
        }
        let counters = self.counters();
        let [multi, dropped, sending_ns] =
            [gauge::multi, gauge::dropped, gauge::sending_ns].map(|level| level(counters));
        let name = gauge::name(self.name());
        let Some(joined) = self.joined() else { return };
        let path = joined.path.raw();
        path.flush();
        let ([plain, urgent], [from_plain, from_urgent]) = path.halves();
        plain.show(gauge::GAUGE, name);
        urgent.show(gauge::GAUGE, multi);
        from_plain.show(gauge::GAUGE, dropped);
        from_urgent.show(gauge::GAUGE, sending_ns);
    }

    /// Looks whether there may be something, for as long as one who waits looks before it sleeps. It ends at `deadline_ns` or when somebody
    /// wants the line.
    pub(crate) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Looked> {
        // A line that is prepared for a sleep has been flushed. To do so again would wake its path, and nobody would ring.
        if !self.has_slept {
            self.flush();
        }
        if self.kept.is_some() {
            return Ok(Looked::Ready);
        }
        self.waiter.look(deadline_ns, is_wanted)
    }

    /// Prepares for a sleep until the descriptor is readable. When it has to end for trimming; none if there is something.
    pub(crate) fn prepare_sleep(&mut self) -> Option<u64> {
        self.flush();
        if self.kept.is_some() {
            return None;
        }
        let trim_ns = self.waiter.prepare_sleep()?;
        self.has_slept = true;
        Some(trim_ns)
    }

    /// Prepares for waiting elsewhere. True if there is nothing to do.
    pub(crate) fn prepare_wait(&mut self) -> bool {
        self.flush();
        let is_prepared = self.kept.is_none() && self.waiter.prepare_wait();
        self.has_slept |= is_prepared;
        is_prepared
    }

    /// A sleep was ended by the doorbells that are called so, after so long. Whether one of them is the line's.
    pub(crate) fn heard(&mut self, rang: &[u64], slept_ns: u64) -> bool {
        self.has_slept = false;
        self.waiter.heard(rang, slept_ns)
    }

    /// Sleeps while others have the line. `interrupt` ends that sleep, too.
    pub(crate) fn sleeper(&self, interrupt: impl AsFd) -> io::Result<Sleeper> {
        self.waiter.add_interrupt(interrupt)?;
        Ok(self.waiter.sleeper())
    }

    /// Returns true in a forked child, whose paths are its parent's.
    pub(super) fn waiter_in_child(&self) -> bool {
        self.waiter.in_child()
    }
}
