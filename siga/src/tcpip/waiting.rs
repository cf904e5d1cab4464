//! Waiters: threads and tasks that wait for something to come on a stack.
//!
//! One of the threads that wait is the driver: it sleeps until a frame arrives or a timer is due, and then polls the stack.
//! The other threads are followers: they sleep until the driver, or any other thread that has used the stack, has found
//! something for them. A task cannot drive: it is woken through the waker of its runtime.

use std::collections::HashMap;
#[cfg(feature = "tokio")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use net::tcpip::Awaited;

use super::engine::Engine;

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Interest {
    /// News of one connection, listener or socket.
    One(Awaited),
    /// Anything that comes.
    All,
}

/// How a waiter is woken.
#[derive(Debug)]
pub(super) enum Wakeup {
    /// A follower, by its signal.
    Thread(Arc<Signal>),
    /// The driver, which sleeps in the kernel.
    Driver,
    /// A task, by its runtime's waker.
    #[cfg(feature = "tokio")]
    Task(std::task::Waker),
}

impl Wakeup {
    /// Wakes the waiter. Nothing happens for the driver, which only a thread that has the stack can wake.
    fn wake(self) {
        match self {
            Wakeup::Thread(signal) => signal.set(),
            Wakeup::Driver => {}
            #[cfg(feature = "tokio")]
            Wakeup::Task(waker) => {
                // A waker that panics is a defect of its runtime, and the panic hook has reported it. The panic must not
                // keep other waiters from being woken, end the stack's thread, or discard the result of the verb that
                // called the waker.
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                    // Dropping the payload could panic, too.
                    std::mem::forget(payload);
                }
            }
        }
    }

    /// Wakes all these waiters: threads before tasks, because a waker may run for long.
    pub(super) fn wake_all(wakeups: &mut Vec<Wakeup>) {
        wakeups.sort_by_key(Wakeup::is_elsewhere);
        wakeups.drain(..).for_each(Wakeup::wake);
    }

    /// Whether the waiter is one that cannot drive the stack.
    pub(super) fn is_elsewhere(&self) -> bool {
        !matches!(self, Wakeup::Thread(_) | Wakeup::Driver)
    }
}

/// Identifies a registered waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    interest: Interest,
    number: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    wakeup: Wakeup,
}

/// The registered waiters.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By what they wait for. None of the lists is empty.
    waiters: HashMap<Interest, Vec<Waiter>>,
    /// What the driver waits for, and the number of its ticket. It is registered for each sleep, and costs no memory then.
    drivers: Vec<(Interest, u64)>,
    tickets: u64,
    /// How many of the waiters cannot drive.
    elsewhere: usize,
}

impl Waiting {
    /// Whether there is a waiter that cannot drive.
    pub(super) fn has_elsewhere(&self) -> bool {
        self.elsewhere > 0
    }

    /// Registers a waiter, until it is woken or removed by its ticket.
    pub(super) fn add(&mut self, interest: Interest, wakeup: Wakeup) -> Ticket {
        self.tickets += 1;
        self.elsewhere += usize::from(wakeup.is_elsewhere());
        let number = self.tickets;
        if let Wakeup::Driver = wakeup {
            self.drivers.push((interest, number));
            return Ticket { interest, number };
        }
        self.waiters.entry(interest).or_default().push(Waiter { number, wakeup });
        Ticket { interest, number }
    }

    /// Removes a waiter that has not been woken yet, and returns how it would have been woken. Drop that without the lock:
    /// dropping a waker may run code of a runtime.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Wakeup> {
        if let Some(at) = self.drivers.iter().position(|(_, number)| *number == ticket.number) {
            self.drivers.swap_remove(at);
            return Some(Wakeup::Driver);
        }
        let waiters = self.waiters.get_mut(&ticket.interest)?;
        let at = waiters.iter().position(|waiter| waiter.number == ticket.number)?;
        let removed = waiters.swap_remove(at);
        if waiters.is_empty() {
            self.waiters.remove(&ticket.interest);
        }
        self.elsewhere -= usize::from(removed.wakeup.is_elsewhere());
        Some(removed.wakeup)
    }

    /// Removes the waiters for which `net` has news, and those that wait for anything if there was `anything`. `wake` gets
    /// each.
    pub(super) fn take_woken(
        &mut self,
        net: &mut Engine,
        anything: bool,
        mut wake: impl FnMut(Wakeup),
    ) {
        if self.waiters.is_empty() && self.drivers.is_empty() {
            return;
        }
        while let Some(awaited) = net.take_news() {
            self.take_waiters_of(Interest::One(awaited), &mut wake);
        }
        if anything {
            self.take_waiters_of(Interest::All, &mut wake);
        }
    }

    /// Removes the waiters that wait for this.
    fn take_waiters_of(&mut self, interest: Interest, wake: &mut impl FnMut(Wakeup)) {
        let before = self.drivers.len();
        self.drivers.retain(|(other, _)| *other != interest);
        (self.drivers.len()..before).for_each(|_| wake(Wakeup::Driver));
        if self.waiters.is_empty() {
            return;
        }
        for waiter in self.waiters.remove(&interest).into_iter().flatten() {
            self.elsewhere -= usize::from(waiter.wakeup.is_elsewhere());
            wake(waiter.wakeup);
        }
    }

    /// Removes a follower, which can become the driver.
    pub(super) fn take_thread(&mut self) -> Option<Wakeup> {
        let is_thread = |waiter: &Waiter| matches!(waiter.wakeup, Wakeup::Thread(_));
        let ticket = self.waiters.iter().find_map(|(interest, waiters)| {
            let waiter = waiters.iter().find(|waiter| is_thread(waiter))?;
            Some(Ticket { interest: *interest, number: waiter.number })
        });
        self.remove(ticket?)
    }

    /// Removes all waiters.
    pub(super) fn take_all(&mut self) -> Vec<Wakeup> {
        self.elsewhere = 0;
        let drivers = self.drivers.drain(..).map(|_| Wakeup::Driver);
        let others = self.waiters.drain().flat_map(|(_, waiters)| waiters);
        drivers.chain(others.map(|waiter| waiter.wakeup)).collect()
    }
}

/// A flag that a thread sleeps at until another thread sets it.
#[derive(Debug, Default)]
pub(super) struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// A signal for the calling thread, not set. The thread has one that is used again, unless it is still in use: a thread
    /// that is about to sleep may call a waker first, whose code may wait, too.
    pub(super) fn own() -> Arc<Signal> {
        thread_local! {
            static OWN: Arc<Signal> = Arc::default();
        }
        let find = |own: &Arc<Signal>| (Arc::strong_count(own) == 1).then(|| own.clone());
        // A thread that is ending has lost its own.
        let Some(own) = OWN.try_with(find).ok().flatten() else { return Arc::default() };
        own.clear();
        own
    }

    pub(super) fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Takes the flag down.
    fn clear(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Sleeps until the flag is set, for `time` at most, and takes it down. Whether it was set.
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
