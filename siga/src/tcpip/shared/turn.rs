//! Exclusive access to the stack, for one thread at a time. A thread that waits releases the stack meanwhile; a thread that
//! releases the stack wakes the waiters for which something has come.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use net::tcpip::{Awaited, ConnectionId};
use os::poller::{Sleeper, wait_any};
use os::processor::now_ns;
use os::sync::pause;

use super::super::core::{Core, Driver, Worker};
use super::super::driver::Placement;
use super::super::engine::Engine;
use super::super::waiting::{Interest, Signal, Ticket, Wakeup};
use super::inside::{Inside, PutOff};
use super::{Dropped, Shared, own_number};
use crate::waiter::Looked;
use crate::waiting::after;

/// How many times a driver that has released the stack for other threads checks whether they have had it, before the driver
/// yields its processor.
const PAUSES_MAX: usize = 200;

/// How many times the driver yields its processor to those threads, before it waits for the stack as they do.
const YIELDS_MAX: usize = 10;

/// Exclusive access to the stack: a guard of the lock. Dropping it releases the stack and wakes the waiters for which
/// something has come.
pub(in crate::tcpip) struct Turn<'a> {
    shared: &'a Shared,
    /// Declared before `core`, so that it is dropped first, even if releasing the stack panics.
    inside: Option<Inside>,
    /// None after the stack was released.
    core: Option<MutexGuard<'a, Core>>,
    /// The waiters to wake when the stack is released.
    wakeups: Vec<Wakeup>,
}

impl Deref for Turn<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.core.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        self.core.as_mut().expect("it is there until it is dropped")
    }
}

impl<'a> Turn<'a> {
    pub(super) fn new(shared: &'a Shared, core: MutexGuard<'a, Core>) -> Turn<'a> {
        Turn { shared, inside: Some(Inside::new()), core: Some(core), wakeups: Vec::new() }
    }

    /// Closes what a program has dropped. Returns the connection to linger for, if there is one, and how long.
    pub(super) fn close(&mut self, dropped: Dropped) -> Option<(ConnectionId, Duration)> {
        match dropped {
            Dropped::Listener(bound) => self.net.stop_listening(bound),
            Dropped::Socket(bound) => self.net.unbind(bound),
            Dropped::Connection(id) => {
                let linger = self.held.drop_handle(id)?.linger;
                if linger.is_some_and(|time| time.is_zero()) {
                    self.net.abort(id);
                }
                self.net.close(id);
                self.push();
                return linger.filter(|time| !time.is_zero()).map(|time| (id, time));
            }
        }
        self.push();
        None
    }

    /// Waits until the other side has acknowledged all that was sent, for `time` at most.
    pub(super) fn linger(mut self, id: ConnectionId, time: Duration) {
        let deadline = after(time);
        // An error of the LAN ends the wait; there is nobody to return it to.
        while self.net.is_closing(id) && now_ns() < deadline {
            let Ok(turn) = self.wait(Interest::One(Awaited::Connection(id)), deadline) else {
                return;
            };
            self = turn;
            if self.pump().is_err() {
                return;
            }
        }
    }

    /// Receives what has come, and sends what is due; takes over the devices of drivers that have stalled.
    pub(in crate::tcpip) fn pump(&mut self) -> io::Result<()> {
        Core::pump(self)?;
        match &mut self.net {
            Engine::Own(own) if own.is_driven() => {}
            _ => return Ok(()),
        }
        self.own()?.take_over();
        self.settle()
    }

    /// Has the stack sleep where the devices are that have changed hands. What is lacking now is there with a later poll, and keeps no other LAN's
    /// sleep from being right.
    fn settle(&mut self) -> io::Result<()> {
        let shared = self.shared;
        for (lan, sleeper) in self.own()?.sleepers(shared.verb()) {
            if self.sleep_at(lan, sleeper).is_ok() {
                self.own()?.has_settled(lan);
            }
        }
        Ok(())
    }

    /// Has the driver of a LAN run there, and returns where it runs now.
    pub(in crate::tcpip) fn place(
        &mut self,
        lan: usize,
        placement: Placement,
    ) -> io::Result<Placement> {
        let shared = self.shared;
        let placed = self.own()?.place(lan, placement, shared.verb())?;
        self.settle()?;
        Ok(placed)
    }

    /// The stack sleeps there from now on at this LAN.
    fn sleep_at(&mut self, lan: usize, sleeper: Sleeper) -> io::Result<()> {
        let sleeper = self.shared.sleeper_with(self, lan, Some(sleeper))?;
        self.own()?.lans.set_sleeper(sleeper);
        // Whatever has come by then has told whoever slept before.
        self.has_worked = true;
        Ok(())
    }

    /// Waits until something may have come that the caller waits for, or until `deadline`. The calling thread drives the
    /// stack meanwhile, or follows if there is a driver that goes on.
    pub(in crate::tcpip) fn wait(
        mut self,
        interest: Interest,
        deadline: u64,
    ) -> io::Result<Turn<'a>> {
        let is_driven = match self.driver {
            None => false,
            // The calling thread is the driver: it has woken a task, and the code that the waker runs waits here. No other
            // thread would drive meanwhile.
            Some(_) if self.driver_number == own_number() => false,
            Some(Driver::Verb) => true,
            // The stack's thread goes on driving if there are waiters that cannot drive.
            Some(Driver::Thread) => self.has_elsewhere(),
        };
        if is_driven {
            return self.follow(interest, deadline);
        }
        // End the sleep of the stack's thread: it would not be woken for what comes from now on.
        self.interrupt();
        self.begin_to_drive(Driver::Verb);
        let driving = Driving(self.shared);
        let mut turn = self.drive_once(Some(interest), deadline)?;
        std::mem::forget(driving);
        turn.stop_driving();
        Ok(turn)
    }

    /// Makes the calling thread the driver.
    pub(in crate::tcpip) fn begin_to_drive(&mut self, driver: Driver) {
        self.driver = Some(driver);
        self.driver_number = own_number();
        self.asleep_until = None;
    }

    /// Makes the calling thread the driver no longer. Another thread may be the driver already, if the waker of a task has
    /// waited in between.
    pub(in crate::tcpip) fn stop_driving(&mut self) {
        if self.driver_number == own_number() {
            self.driver = None;
            self.driver_number = 0;
            self.asleep_until = None;
        }
    }

    /// Sleeps, as a follower, until another thread has found something for it.
    fn follow(mut self, interest: Interest, deadline: u64) -> io::Result<Turn<'a>> {
        let signal = Signal::own();
        let ticket = self.add(interest, Wakeup::Thread(signal.clone()));
        let shared = self.shared;
        drop(self);
        let now = now_ns();
        let time = (deadline != u64::MAX).then(|| deadline.saturating_sub(now));
        signal.wait(time.map(Duration::from_nanos));
        let mut turn = shared.enter()?;
        turn.waiting.remove(ticket);
        Ok(turn)
    }

    /// Registers a waiter, until it is woken or removed by its ticket.
    pub(in crate::tcpip) fn add(&mut self, interest: Interest, wakeup: Wakeup) -> Ticket {
        if let Interest::One(awaited) = interest {
            self.net.await_news(awaited);
        }
        self.waiting.add(interest, wakeup)
    }

    /// Prepares for a wait at the descriptor, and returns how long the program may wait. The time is zero if something has
    /// come since the last call, whichever thread received it: the program may have read its sockets before that.
    pub(in crate::tcpip) fn prepare_outside(&mut self) -> io::Result<Duration> {
        let shared = self.shared;
        if std::mem::take(&mut self.is_outside_set) {
            shared.outside.clear();
        }
        self.outside_until = None;
        self.pump()?;
        let now = now_ns();
        self.net.show(now);
        self.collect_wakeups();
        let activity = self.activity;
        let is_unseen = std::mem::replace(&mut self.outside_seen, activity) != activity;
        if is_unseen || self.has_more || self.net.has_changed() {
            return Ok(Duration::ZERO);
        }
        if self.worker.is_there() {
            self.outside_until = Some(u64::MAX);
            return Ok(Duration::MAX);
        }
        if !self.net.prepare_wait() {
            return Ok(Duration::ZERO);
        }
        let due = self.net.due();
        self.outside_until = Some(due.unwrap_or(u64::MAX));
        Ok(due.map_or(Duration::MAX, |due| Duration::from_nanos(due.saturating_sub(now))))
    }

    /// Drives the stack once: polls the LANs, and then sleeps, until a frame arrives, a timer is due, another thread finds
    /// something that the caller waits for, or `deadline`. Also returns after another thread has had the stack.
    pub(in crate::tcpip) fn drive_once(
        mut self,
        interest: Option<Interest>,
        deadline: u64,
    ) -> io::Result<Turn<'a>> {
        let shared = self.shared;
        self.collect_wakeups();
        if !self.wakeups.is_empty() {
            let driver = self.driver;
            if self.wakeups.iter().any(Wakeup::is_elsewhere) {
                // A waker runs code of a runtime, perhaps for long, or it waits for a thread that waits for this stack: another
                // thread may drive meanwhile.
                self.stop_driving();
                let next = self.hand_over();
                self.wakeups.extend(next);
            }
            self.unlock();
            let mut turn = shared.enter()?;
            if let Some(driver) = driver.filter(|_| turn.driver.is_none()) {
                turn.begin_to_drive(driver);
            }
            return Ok(turn);
        }
        let until = self.net.due().unwrap_or(u64::MAX).min(deadline);
        let now = now_ns();
        if until <= now || self.has_more {
            return self.let_others();
        }
        self.net.show(now);
        match self.net.look(until, || shared.wanted.load(Ordering::Relaxed) > 0)? {
            Looked::Ready => {
                // This may be no frame, but room for a datagram, of which nobody is told otherwise.
                self.has_worked = true;
                return Ok(self);
            }
            Looked::Wanted => return self.let_others(),
            Looked::Nothing => {}
        }
        let start = now_ns();
        let Some(trim) = self.net.prepare_sleep().filter(|_| until > start) else {
            return Ok(self);
        };
        // What was looked at may have made something due sooner than was known before.
        let until = until.min(trim).min(self.net.due().unwrap_or(u64::MAX));
        let driver = self.driver.expect("who comes here drives");
        let ticket = interest.map(|interest| self.add(interest, Wakeup::Driver));
        self.asleep_until = Some(until);
        // Without a thread of the stack's, a program that waits at the descriptor waits for the same doorbells, and is not to be woken up early.
        let wakes_early = shared.descriptor.get().is_none() || self.worker.is_there();
        let sleeper = self.net.sleeper().clone();
        let mut rang = std::mem::take(&mut self.rang);
        self.unlock();
        let time = (until != u64::MAX).then(|| Duration::from_nanos(until.saturating_sub(start)));
        if wakes_early {
            sleeper.prepare_early();
        }
        let waited = match driver {
            Driver::Verb => sleeper.wait(time, &mut rang),
            // The stack's thread leaves the doorbells as they are: a verb that has become the driver meanwhile needs them.
            Driver::Thread => {
                wait_any([Some(sleeper.as_fd()), Some(shared.thread.as_fd())], time).map(|_| ())
            }
        };
        let slept_ns = now_ns() - start;
        let mut turn = shared.enter()?;
        if let Some(ticket) = ticket {
            turn.waiting.remove(ticket);
        }
        if std::mem::take(turn.is_interrupted(driver)) {
            shared.interrupt_of(driver).clear();
        }
        // Otherwise a verb has become the driver meanwhile, and sleeps in place of the stack's thread.
        if turn.driver == Some(driver) {
            turn.asleep_until = None;
            // What rings at LANs of before goes on ringing where it still is.
            if !Arc::ptr_eq(&sleeper, turn.net.sleeper()) {
                turn.has_worked = true;
                return Ok(turn);
            }
            if driver == Driver::Thread && waited.is_ok() {
                sleeper.wait(Some(Duration::ZERO), &mut rang)?;
            }
            if !rang.is_empty() {
                turn.has_worked |= turn.net.heard(&rang, slept_ns);
            }
            turn.rang = rang;
            waited?;
        }
        Ok(turn)
    }

    /// Releases the stack for the threads that wait for the lock.
    fn let_others(self) -> io::Result<Turn<'a>> {
        if !self.is_wanted() {
            return Ok(self);
        }
        let shared = self.shared;
        drop(self);
        for _ in 0..PAUSES_MAX {
            if shared.wanted.load(Ordering::Relaxed) == 0 {
                break;
            }
            pause();
        }
        // The thread that waits for the lock may need this processor.
        for _ in 0..YIELDS_MAX {
            if shared.wanted.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        shared.enter()
    }

    /// Wakes the driver, if it sleeps.
    pub(in crate::tcpip) fn interrupt(&mut self) {
        let Some(driver) = self.driver.filter(|_| self.asleep_until.is_some()) else { return };
        if !std::mem::replace(self.is_interrupted(driver), true) {
            self.shared.interrupt_of(driver).set();
        }
    }

    /// Removes the waiters for which something has come, to be woken when the stack is released. The driver and the program
    /// at the descriptor are woken at once, if they are among them.
    fn collect_wakeups(&mut self) {
        let core = &mut **self.core.as_mut().expect("it is there until it is dropped");
        let anything = std::mem::take(&mut core.has_worked) | core.net.take_moved();
        core.activity += u64::from(anything);
        let mut is_driver_woken = false;
        let wakeups = &mut self.wakeups;
        core.waiting.take_woken(&mut core.net, anything, |wakeup| match wakeup {
            Wakeup::Driver => is_driver_woken = true,
            wakeup => wakeups.push(wakeup),
        });
        if is_driver_woken {
            self.interrupt();
        }
        if anything {
            self.tell_outside();
        }
    }

    /// Wakes the program that waits at the descriptor, if there is one.
    pub(in crate::tcpip) fn tell_outside(&mut self) {
        if self.outside_until.take().is_some() {
            self.shared.outside.set();
            self.is_outside_set = true;
        }
    }

    /// Whether something has come since the calling thread last called [`Turn::see`].
    pub(in crate::tcpip) fn has_unseen(&mut self) -> bool {
        self.collect_wakeups();
        self.shared.seen() != self.activity
    }

    /// Notes that the calling thread has seen all that has come until now.
    pub(in crate::tcpip) fn see(&mut self) {
        self.collect_wakeups();
        self.shared.see(self.activity);
    }

    /// Makes sure that somebody does what is left to do: the driver, which is woken if its sleep does not fit any more, the
    /// stack's thread, or a follower, which is returned to be woken and becomes the driver.
    fn hand_over(&mut self) -> Option<Wakeup> {
        if let Some(until) = self.asleep_until {
            // Work with the LANs ends their preparation for a sleep, and this thread may have set a timer that is due before
            // the driver's sleep ends.
            let is_prepared = !self.has_more
                && self.net.due().is_none_or(|due| due >= until)
                && self.net.prepare_sleep().is_some_and(|trim| trim >= until);
            if !is_prepared {
                // The LAN says once that there is room, and may have said so to this thread.
                self.has_worked = true;
                self.interrupt();
            }
            return None;
        }
        if self.driver.is_some() {
            return None;
        }
        if !self.worker.is_there()
            && let Some(until) = self.outside_until
        {
            let is_prepared = !self.has_more
                && self.net.due().is_none_or(|due| due >= until)
                && self.net.prepare_wait();
            if !is_prepared {
                self.tell_outside();
            }
        }
        if self.has_elsewhere() && self.worker != Worker::Pauses {
            self.shared.rest.set();
            return None;
        }
        let wakeup = self.waiting.take_thread();
        if wakeup.is_none() && self.worker == Worker::Rests {
            self.shared.rest.set();
        }
        wakeup
    }

    fn unlock(&mut self) {
        self.inside = None;
        self.core = None;
        // After the release: a waker may run code that uses the stack.
        Wakeup::wake_all(&mut self.wakeups);
        PutOff::run_all();
    }
}

/// There while a verb drives. If the verb fails meanwhile, its thread is not the driver any longer.
struct Driving<'a>(&'a Shared);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        if let Ok(mut turn) = self.0.enter() {
            turn.stop_driving();
        }
    }
}

/// Releases the stack, and wakes the waiters for which something has come.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.core.is_none() {
            return;
        }
        if self.shared.in_child() {
            // A closure has forked: in the child, locks that threads of the parent held are locked for ever.
            std::mem::forget(self.core.take());
            self.inside = None;
            return PutOff::run_all();
        }
        self.collect_wakeups();
        let next = self.hand_over();
        self.wakeups.extend(next);
        self.unlock();
    }
}
