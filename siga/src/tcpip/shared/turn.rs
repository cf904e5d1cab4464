//! The stack, for the thread that has it: whoever waits leaves it to others, and whoever leaves it wakes those for whom
//! something has come.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use net::tcpip::{Awaited, ConnectionId};
use os::poller::wait_any;
use os::processor::now_ns;
use os::sync::pause;

use super::super::core::{Core, Driver, Worker};
use super::super::lans::Rang;
use super::super::waiting::{Bell, Interest, Signal, Ticket};
use super::inside::{Inside, PutOff};
use super::{Dropped, Shared, own_number};
use crate::waiter::Looked;
use crate::waiting::after;

/// How many times one who lets others have the stack looks whether they had it, before it gives up its processor.
const PAUSES_MAX: usize = 200;

/// How many times it gives up its processor for them, before it waits for the stack as they do.
const YIELDS_MAX: usize = 10;

/// The stack, for the one who has it.
pub(in crate::tcpip) struct Turn<'a> {
    shared: &'a Shared,
    /// Before the core, so that it goes first, even if leaving the stack panics.
    inside: Option<Inside>,
    /// There until it is dropped.
    core: Option<MutexGuard<'a, Core>>,
    /// What is rung when it is over.
    bells: Vec<Bell>,
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
        Turn { shared, inside: Some(Inside::new()), core: Some(core), bells: Vec::new() }
    }

    /// Closes what was dropped. A connection to linger for is returned, and for how long.
    pub(super) fn close(&mut self, dropped: Dropped) -> Option<(ConnectionId, Duration)> {
        match dropped {
            Dropped::Listener(address) => self.net.stop_listening(address),
            Dropped::Socket(address) => self.net.unbind(address),
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

    /// Goes on until the other side has all that was sent, at most for `time`.
    pub(super) fn linger(mut self, id: ConnectionId, time: Duration) {
        let deadline = after(time);
        // What goes wrong with the LAN ends the wait, and nothing else.
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

    /// Waits until there may be something of interest, or until `deadline`: drives the stack meanwhile, if nobody does who
    /// has to.
    pub(in crate::tcpip) fn wait(
        mut self,
        interest: Interest,
        deadline: u64,
    ) -> io::Result<Turn<'a>> {
        let is_driven = match self.driver {
            None => false,
            // This very thread drives, has woken a task, and what that runs waits: nobody else would drive meanwhile.
            Some(_) if self.driver_number == own_number() => false,
            Some(Driver::Verb) => true,
            // The thread goes on if there are others who wait for what it does.
            Some(Driver::Thread) => self.has_elsewhere(),
        };
        if is_driven {
            return self.follow(interest, deadline);
        }
        // The thread finds out that its sleep is over: nothing would wake it for what comes from now on.
        self.interrupt();
        self.begin_to_drive(Driver::Verb);
        let driving = Driving(self.shared);
        let mut turn = self.drive_once(Some(interest), deadline)?;
        std::mem::forget(driving);
        turn.stop_driving();
        Ok(turn)
    }

    /// The calling thread drives from now on.
    pub(in crate::tcpip) fn begin_to_drive(&mut self, driver: Driver) {
        self.driver = Some(driver);
        self.driver_number = own_number();
        self.asleep_until = None;
    }

    /// The calling thread drives no more. Another may drive already, if a task that this one has woken has waited.
    pub(in crate::tcpip) fn stop_driving(&mut self) {
        if self.driver_number == own_number() {
            self.driver = None;
            self.driver_number = 0;
            self.asleep_until = None;
        }
    }

    /// Sleeps until somebody has found something.
    fn follow(mut self, interest: Interest, deadline: u64) -> io::Result<Turn<'a>> {
        let signal = Signal::own();
        let ticket = self.add(interest, Bell::Thread(signal.clone()));
        let shared = self.shared;
        drop(self);
        let now = now_ns();
        let time = (deadline != u64::MAX).then(|| deadline.saturating_sub(now));
        signal.wait(time.map(Duration::from_nanos));
        let mut turn = shared.enter()?;
        turn.waiting.remove(ticket);
        Ok(turn)
    }

    /// Waits from now on, until the bell is rung or the ticket is given back.
    pub(in crate::tcpip) fn add(&mut self, interest: Interest, bell: Bell) -> Ticket {
        if let Interest::One(awaited) = interest {
            self.net.await_news(awaited);
        }
        self.waiting.add(interest, bell)
    }

    /// Prepares for a wait at the descriptor: how long it may last. It is zero if something has come since it was prepared for
    /// last, whoever received it: the program may have looked before.
    pub(in crate::tcpip) fn prepare_outside(&mut self) -> io::Result<Duration> {
        let shared = self.shared;
        shared.outside.clear();
        self.outside_until = None;
        self.pump()?;
        let now = now_ns();
        self.show(now);
        self.take_bells();
        let activity = self.activity;
        let is_unseen = std::mem::replace(&mut self.outside_seen, activity) != activity;
        if is_unseen || self.has_more || self.net.has_changed() {
            return Ok(Duration::ZERO);
        }
        if self.worker.is_there() {
            self.outside_until = Some(u64::MAX);
            return Ok(Duration::MAX);
        }
        if !self.lans.prepare_wait() {
            return Ok(Duration::ZERO);
        }
        let due = self.due();
        self.outside_until = Some(due.unwrap_or(u64::MAX));
        Ok(due.map_or(Duration::MAX, |due| Duration::from_nanos(due.saturating_sub(now))))
    }

    /// Drives the stack once: looks, and then sleeps, until something comes from the LAN or is due, somebody finds something of
    /// interest, or `deadline` is there. It also returns when others have had the stack.
    pub(in crate::tcpip) fn drive_once(
        mut self,
        interest: Option<Interest>,
        deadline: u64,
    ) -> io::Result<Turn<'a>> {
        let shared = self.shared;
        self.take_bells();
        if !self.bells.is_empty() {
            self.unlock();
            return shared.enter();
        }
        let until = self.due().unwrap_or(u64::MAX).min(deadline);
        let now = now_ns();
        if until <= now || self.has_more {
            return self.let_others();
        }
        self.show(now);
        match self.lans.look(until, || shared.wanted.load(Ordering::Relaxed) > 0)? {
            Looked::Ready => {
                // It may be room alone, for a datagram.
                self.has_worked = true;
                return Ok(self);
            }
            Looked::Wanted => return self.let_others(),
            Looked::Nothing => {}
        }
        let start = now_ns();
        let Some(trim) = self.lans.prepare_sleep().filter(|_| until > start) else {
            return Ok(self);
        };
        let until = until.min(trim);
        let driver = self.driver.expect("who comes here drives");
        let ticket = interest.map(|interest| self.add(interest, Bell::Driver));
        self.asleep_until = Some(until);
        self.unlock();
        let time = (until != u64::MAX).then(|| Duration::from_nanos(until.saturating_sub(start)));
        let mut rang = Rang::default();
        let waited = match driver {
            Driver::Verb => shared.lans.wait(time, &mut rang),
            // It does not hear what a verb hears that has begun to wait meanwhile.
            Driver::Thread => {
                wait_any([Some(shared.lans.as_fd()), Some(shared.thread.as_fd())], time).map(|_| ())
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
        // If not, a verb has begun to wait meanwhile, and sleeps in the thread's place.
        if turn.driver == Some(driver) {
            turn.asleep_until = None;
            if driver == Driver::Thread && waited.is_ok() {
                shared.lans.wait(Some(Duration::ZERO), &mut rang)?;
            }
            if !rang.is_empty() {
                turn.has_worked |= turn.lans.heard(&rang, slept_ns);
            }
            waited?;
        }
        Ok(turn)
    }

    /// Lets those have the stack who wait for it.
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
        // Who waits for it may need this processor.
        for _ in 0..YIELDS_MAX {
            if shared.wanted.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        shared.enter()
    }

    /// Wakes the one who drives, if it sleeps.
    pub(super) fn interrupt(&mut self) {
        let Some(driver) = self.driver.filter(|_| self.asleep_until.is_some()) else { return };
        if !std::mem::replace(self.is_interrupted(driver), true) {
            self.shared.interrupt_of(driver).set();
        }
    }

    /// Takes the bells of those for whom there is something. The one who drives, and a program at the descriptor, are woken if
    /// they are among them.
    fn take_bells(&mut self) {
        let core = &mut **self.core.as_mut().expect("it is there until it is dropped");
        let anything = std::mem::take(&mut core.has_worked) | core.net.take_moved();
        core.activity += u64::from(anything);
        let mut is_driver_rung = false;
        let bells = &mut self.bells;
        core.waiting.take_rung(&mut core.net, anything, |bell| match bell {
            Bell::Driver => is_driver_rung = true,
            bell => bells.push(bell),
        });
        if is_driver_rung {
            self.interrupt();
        }
        if anything {
            self.tell_outside();
        }
    }

    /// Wakes the program that waits at the descriptor, if one does.
    pub(super) fn tell_outside(&mut self) {
        if self.outside_until.take().is_some() {
            self.shared.outside.set();
        }
    }

    /// Whether something has come since the calling thread has seen what there was.
    pub(in crate::tcpip) fn has_unseen(&mut self) -> bool {
        self.take_bells();
        self.shared.seen() != self.activity
    }

    /// The calling thread has seen what there is.
    pub(in crate::tcpip) fn see(&mut self) {
        self.take_bells();
        self.shared.see(self.activity);
    }

    /// Sees to it that what is left is done: by the one who drives, which sleeps, or by somebody who waits.
    fn hand_over(&mut self) -> Option<Bell> {
        if let Some(until) = self.asleep_until {
            // What was done here may have woken members of the LAN, or has to be followed by something before the sleep ends.
            let is_prepared = !self.has_more
                && self.due().is_none_or(|due| due >= until)
                && self.lans.prepare_sleep().is_some_and(|trim| trim >= until);
            if !is_prepared {
                // It may be room that was told here and is told once.
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
                && self.due().is_none_or(|due| due >= until)
                && self.lans.prepare_wait();
            if !is_prepared {
                self.tell_outside();
            }
        }
        if self.has_elsewhere() && self.worker != Worker::Pauses {
            self.shared.rest.set();
            return None;
        }
        let bell = self.waiting.take_thread();
        if bell.is_none() && self.worker == Worker::Rests {
            self.shared.rest.set();
        }
        bell
    }

    fn unlock(&mut self) {
        self.inside = None;
        self.core = None;
        // Not before: what a runtime does when a task is woken is its own affair.
        Bell::ring_all(&mut self.bells);
        PutOff::run_all();
    }
}

/// A verb that drives, until it has the stack again: an error, or a waker that panics, does not leave the stack without
/// somebody who drives.
struct Driving<'a>(&'a Shared);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        if let Ok(mut turn) = self.0.enter() {
            turn.stop_driving();
        }
    }
}

/// Whoever leaves the stack wakes those for whom something has come.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.core.is_none() {
            return;
        }
        if self.shared.in_child() {
            // A closure has forked: locks of its parent's threads may be closed here for ever.
            std::mem::forget(self.core.take());
            self.inside = None;
            return PutOff::run_all();
        }
        self.take_bells();
        let next = self.hand_over();
        self.bells.extend(next);
        self.unlock();
    }
}
