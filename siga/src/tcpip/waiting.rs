//! Who waits for what a stack may bring.
//!
//! One of those who wait drives the stack: it sleeps until something comes from the LAN or is due. The others sleep until
//! the one who drives, or any other who was at the stack, has found something for them.

use std::collections::HashMap;
#[cfg(feature = "tokio")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use net::tcpip::{Awaited, Stack};

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Interest {
    /// One thing.
    One(Awaited),
    /// Whatever it is.
    All,
}

/// What wakes one who waits.
#[derive(Debug)]
pub(super) enum Bell {
    /// A thread.
    Thread(Arc<Signal>),
    /// The thread that drives the stack, which sleeps in the kernel.
    Driver,
    /// A task of a runtime.
    #[cfg(feature = "tokio")]
    Task(std::task::Waker),
}

impl Bell {
    /// Wakes. The driver is woken by those who have the stack.
    fn ring(self) {
        match self {
            Bell::Thread(signal) => signal.set(),
            Bell::Driver => {}
            #[cfg(feature = "tokio")]
            Bell::Task(waker) => {
                // A waker that panics is a defect of its runtime, which the panic hook has reported. It must not keep others
                // from being woken, end the stack's thread, or take the result of a verb away that has one already.
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                    // Dropping it could panic, too.
                    std::mem::forget(payload);
                }
            }
        }
    }

    /// Wakes all: threads before tasks, whose wakers may run for long.
    pub(super) fn ring_all(bells: &mut Vec<Bell>) {
        bells.sort_by_key(Bell::is_elsewhere);
        bells.drain(..).for_each(Bell::ring);
    }

    /// Whether it cannot drive the stack while it waits.
    fn is_elsewhere(&self) -> bool {
        !matches!(self, Bell::Thread(_) | Bell::Driver)
    }
}

/// One place among those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    interest: Interest,
    number: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    bell: Bell,
}

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// None of the lists is empty.
    waiters: HashMap<Interest, Vec<Waiter>>,
    tickets: u64,
    /// How many of all cannot drive.
    elsewhere: usize,
}

impl Waiting {
    /// Whether somebody waits who cannot drive the stack meanwhile.
    pub(super) fn has_elsewhere(&self) -> bool {
        self.elsewhere > 0
    }

    /// Waits from now on, until the bell is rung or the ticket is given back.
    pub(super) fn add(&mut self, interest: Interest, bell: Bell) -> Ticket {
        self.tickets += 1;
        self.elsewhere += usize::from(bell.is_elsewhere());
        let number = self.tickets;
        self.waiters.entry(interest).or_default().push(Waiter { number, bell });
        Ticket { interest, number }
    }

    /// Waits no longer, if the bell has not been rung. The bell is given back: dropping it may run code of a runtime.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Bell> {
        let waiters = self.waiters.get_mut(&ticket.interest)?;
        let at = waiters.iter().position(|waiter| waiter.number == ticket.number)?;
        let removed = waiters.swap_remove(at);
        if waiters.is_empty() {
            self.waiters.remove(&ticket.interest);
        }
        self.elsewhere -= usize::from(removed.bell.is_elsewhere());
        Some(removed.bell)
    }

    /// Takes the bells of those for whom `net` has something; of those who wait for anything if there was `anything`.
    pub(super) fn take_rung(
        &mut self,
        net: &mut Stack,
        anything: bool,
        mut ring: impl FnMut(Bell),
    ) {
        if self.waiters.is_empty() {
            return;
        }
        while let Some(awaited) = net.take_news() {
            self.take_bells_of(Interest::One(awaited), &mut ring);
        }
        if anything {
            self.take_bells_of(Interest::All, &mut ring);
        }
    }

    /// Takes the bells of those who wait for this.
    fn take_bells_of(&mut self, interest: Interest, ring: &mut impl FnMut(Bell)) {
        for waiter in self.waiters.remove(&interest).into_iter().flatten() {
            self.elsewhere -= usize::from(waiter.bell.is_elsewhere());
            ring(waiter.bell);
        }
    }

    /// The bell of a thread that waits, and could drive.
    pub(super) fn take_thread(&mut self) -> Option<Bell> {
        let is_thread = |waiter: &Waiter| matches!(waiter.bell, Bell::Thread(_));
        let ticket = self.waiters.iter().find_map(|(interest, waiters)| {
            let waiter = waiters.iter().find(|waiter| is_thread(waiter))?;
            Some(Ticket { interest: *interest, number: waiter.number })
        });
        self.remove(ticket?)
    }

    /// Takes all bells.
    pub(super) fn take_all(&mut self) -> Vec<Bell> {
        self.elsewhere = 0;
        self.waiters.drain().flat_map(|(_, waiters)| waiters).map(|waiter| waiter.bell).collect()
    }
}

/// What a thread sleeps at.
#[derive(Debug, Default)]
pub(super) struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// One for the calling thread to sleep at. It is the same each time, unless that is still in use: the thread may be about
    /// to sleep at it, and run the code of a waker before that sleeps as well.
    pub(super) fn own() -> Arc<Signal> {
        thread_local! {
            static OWN: Arc<Signal> = Arc::default();
        }
        let find = |own: &Arc<Signal>| (Arc::strong_count(own) == 1).then(|| own.clone());
        // A thread that ends has none any more.
        let Some(own) = OWN.try_with(find).ok().flatten() else { return Arc::default() };
        own.clear();
        own
    }

    pub(super) fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// What was set before does not count from now on.
    fn clear(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Sleeps until it is set, at most for `time`. Whether it was set.
    pub(super) fn wait(&self, time: Option<Duration>) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_set = match time {
            None => self
                .changed
                .wait_while(is_set, |is_set| !*is_set)
                .unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                self.changed
                    .wait_timeout_while(is_set, time, |is_set| !*is_set)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        std::mem::take(&mut *is_set)
    }
}
