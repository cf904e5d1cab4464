//! A stack that threads share: one has it at a time, and nobody keeps it while it sleeps.

use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use net::tcpip::ConnectionId;
use os::event::Event;
use os::fork::ForkGuard;
use os::poller::{Sleeper, wait_any};
use os::processor::now_ns;
use os::sync::pause;

use super::core::{Core, Driver, Patience, Worker};
use super::waiting::{Bell, Interest, Signal, Ticket};
use crate::lan::Lan;
use crate::waiter::Looked;
use crate::waiting::after;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};

/// How many times one who lets others have the stack looks whether they had it, before it gives up its processor.
const PAUSES_MAX: usize = 200;

/// What a program has done with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dropped {
    /// A handle of a connection.
    Connection(ConnectionId),
    Listener(SocketAddr),
    Socket(SocketAddr),
}

pub(super) struct Shared {
    core: Mutex<Core>,
    /// The thread that has the stack: zero if none.
    holder: AtomicUsize,
    /// Threads that wait for the stack to be free.
    wanted: Arc<AtomicUsize>,
    /// What was dropped while the stack was at work for somebody.
    dropped: Mutex<Vec<Dropped>>,
    /// Waits for what the LAN has, and for the next.
    lan: Sleeper,
    /// Ends the sleep of a verb that drives.
    verb: Event,
    /// Ends the sleep of the stack's thread while it drives.
    thread: Event,
    /// Readable for a program that waits elsewhere.
    pub(super) outside: Arc<Event>,
    /// What the stack's thread sleeps at while others drive.
    pub(super) rest: Signal,
    guard: ForkGuard,
}

/// The stack, for the one who has it.
pub(super) struct Turn<'a> {
    shared: &'a Shared,
    /// There until it is dropped.
    core: Option<MutexGuard<'a, Core>>,
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

/// A number that no other thread has.
fn own_number() -> usize {
    thread_local! {
        static OWN: u8 = const { 0 };
    }
    OWN.with(|own| std::ptr::from_ref(own).addr())
}

impl Shared {
    pub(super) fn new(lan: Lan, net: net::tcpip::Stack) -> io::Result<Shared> {
        let wanted = Arc::<AtomicUsize>::default();
        let verb = Event::new()?;
        Ok(Shared {
            lan: lan.sleeper(&verb)?,
            core: Mutex::new(Core::new(lan, net, wanted.clone())),
            holder: AtomicUsize::new(0),
            wanted,
            dropped: Mutex::default(),
            verb,
            thread: Event::new()?,
            outside: Arc::new(Event::new()?),
            rest: Signal::default(),
            guard: ForkGuard::here(),
        })
    }

    /// What ends the sleep of one who drives.
    fn interrupt_of(&self, driver: Driver) -> &Event {
        match driver {
            Driver::Verb => &self.verb,
            Driver::Thread => &self.thread,
        }
    }

    /// Whether this is a forked child, in which nobody may have the stack: its parent's threads may have had it.
    pub(super) fn in_child(&self) -> bool {
        self.guard.in_child()
    }

    /// Whether the calling thread has the stack already.
    fn is_held_here(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == own_number()
    }

    /// Waits until nobody else has the stack, and takes it.
    fn take(&self) -> io::Result<Turn<'_>> {
        if self.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if self.is_held_here() {
            let problem = "a closure that the stack has called may not call the stack";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, problem));
        }
        let core = match self.core.try_lock() {
            Ok(core) => core,
            // A closure that has panicked has left the stack as it was.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.wanted.fetch_add(1, Ordering::Relaxed);
                let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
                self.wanted.fetch_sub(1, Ordering::Relaxed);
                core
            }
        };
        self.holder.store(own_number(), Ordering::Relaxed);
        Ok(Turn { shared: self, core: Some(core) })
    }

    /// Takes the stack for a program.
    ///
    /// # Errors
    /// `ResourceBusy` inside a closure that the stack has called; `NotConnected` in a forked child.
    pub(super) fn enter(&self) -> io::Result<Turn<'_>> {
        let mut turn = self.take()?;
        turn.visits += 1;
        turn.close_dropped();
        Ok(turn)
    }

    /// The same, for the stack's thread.
    pub(super) fn enter_as_thread(&self) -> io::Result<Turn<'_>> {
        let mut turn = self.take()?;
        turn.close_dropped();
        Ok(turn)
    }

    /// Runs with the stack to itself.
    pub(super) fn with<R>(&self, run: impl FnOnce(&mut Core) -> io::Result<R>) -> io::Result<R> {
        run(&mut *self.enter()?)
    }

    /// Tries until there is a result. The time limit's error is `WouldBlock`, as in the standard library.
    pub(super) fn try_until<R>(
        &self,
        interest: Interest,
        patience: impl FnOnce(&mut Core) -> Patience,
        mut attempt: impl FnMut(&mut Core) -> Option<io::Result<R>>,
    ) -> io::Result<R> {
        let mut turn = self.enter()?;
        let patience = patience(&mut turn);
        loop {
            if let Some(result) = attempt(&mut turn) {
                turn.push();
                return result;
            }
            turn.pump()?;
            if let Some(result) = attempt(&mut turn) {
                turn.push();
                return result;
            }
            match patience {
                Patience::Until(deadline) if now_ns() < deadline => {
                    turn = turn.wait(interest, deadline)?;
                }
                _ => return Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }

    /// Tries for a task, which is woken when another try is worth it.
    #[cfg(feature = "tokio")]
    pub(super) fn poll_until<R>(
        &self,
        interest: Interest,
        ticket: &mut Option<Ticket>,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut Core) -> Option<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let waker = context.waker().clone();
        // Dropped after the turn: what a runtime does then is its own affair.
        let _before;
        let mut turn = self.enter()?;
        _before = ticket.take().and_then(|ticket| turn.waiting.remove(ticket));
        for is_pumped in [false, true] {
            if is_pumped {
                turn.pump()?;
            }
            if let Some(result) = attempt(&mut turn) {
                turn.push();
                return Poll::Ready(result);
            }
        }
        *ticket = Some(turn.add(interest, Bell::Task(waker)));
        Poll::Pending
    }

    /// A task waits no longer.
    #[cfg(feature = "tokio")]
    pub(super) fn forget(&self, ticket: Ticket) {
        // One that cannot be given back is rung once for nobody.
        let bell = self.enter().ok().and_then(|mut turn| turn.waiting.remove(ticket));
        drop(bell);
    }

    /// The last handle is gone: the stack's thread ends.
    pub(super) fn end(&self) {
        if let Ok(mut turn) = self.take() {
            turn.is_over = true;
            turn.interrupt();
        }
        self.rest.set();
    }

    /// A program has dropped something.
    pub(super) fn close(&self, dropped: Dropped) {
        if self.in_child() {
            return;
        }
        match self.enter() {
            Ok(mut turn) => {
                if let Some((id, time)) = turn.close(dropped, true) {
                    turn.linger(id, time);
                }
            }
            Err(_) => self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(dropped),
        }
    }
}

impl<'a> Turn<'a> {
    /// What was dropped inside a closure is closed now. What was dropped where there could be no waiting is not waited for
    /// later, when its program does something else.
    fn close_dropped(&mut self) {
        let mut dropped = self.shared.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if dropped.is_empty() {
            return;
        }
        let all = std::mem::take(&mut *dropped);
        drop(dropped);
        for dropped in all {
            self.close(dropped, false);
        }
    }

    /// Closes what was dropped. A connection to linger for is returned, and for how long.
    fn close(&mut self, dropped: Dropped, may_wait: bool) -> Option<(ConnectionId, Duration)> {
        match dropped {
            Dropped::Listener(address) => self.net.stop_listening(address),
            Dropped::Socket(address) => self.net.unbind(address),
            Dropped::Connection(id) => {
                let settings = self.settings(id);
                settings.handles -= 1;
                if settings.handles > 0 {
                    return None;
                }
                let linger = settings.linger;
                if linger.is_some_and(|time| time.is_zero()) {
                    self.net.abort(id);
                }
                self.net.close(id);
                self.push();
                return linger.filter(|time| may_wait && !time.is_zero()).map(|time| (id, time));
            }
        }
        self.push();
        None
    }

    /// Goes on until the other side has all that was sent, at most for `time`.
    fn linger(mut self, id: ConnectionId, time: Duration) {
        let deadline = after(time);
        // What goes wrong with the LAN ends the wait, and nothing else.
        while self.net.is_closing(id) && now_ns() < deadline {
            let Ok(turn) = self.wait(Interest::Connection(id), deadline) else { return };
            self = turn;
            if self.pump().is_err() {
                return;
            }
        }
    }

    /// Waits until there may be something of interest, or until `deadline`: drives the stack meanwhile, if nobody does who
    /// has to.
    pub(super) fn wait(mut self, interest: Interest, deadline: u64) -> io::Result<Turn<'a>> {
        let is_driven = match self.driver {
            None => false,
            Some(Driver::Verb) => true,
            // The thread goes on if there are others who wait for what it does.
            Some(Driver::Thread) => self.waiting.has_elsewhere(),
        };
        if is_driven {
            return self.follow(interest, deadline);
        }
        // The thread finds out that its sleep is over: nothing would wake it for what comes from now on.
        self.interrupt();
        self.driver = Some(Driver::Verb);
        self.asleep_until = None;
        // Whatever happens, nobody drives afterwards: who leaves the stack then sees to it that somebody does.
        let shared = self.shared;
        match self.drive_once(Some(interest), deadline) {
            Ok(mut turn) => {
                turn.driver = None;
                Ok(turn)
            }
            Err(error) => {
                if let Ok(mut turn) = shared.take() {
                    turn.driver = None;
                }
                Err(error)
            }
        }
    }

    /// Sleeps until somebody has found something.
    fn follow(mut self, interest: Interest, deadline: u64) -> io::Result<Turn<'a>> {
        let signal = Signal::own();
        signal.clear();
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
    pub(super) fn add(&mut self, interest: Interest, bell: Bell) -> Ticket {
        if let Interest::Connection(id) = interest {
            self.net.await_change(id);
        }
        self.waiting.add(interest, bell)
    }

    /// Has `event` set when there is something, whatever it is.
    pub(super) fn wait_outside(&mut self, event: &Arc<Event>) {
        if !self.is_outside {
            self.is_outside = true;
            self.add(Interest::All, Bell::Descriptor(event.clone()));
        }
    }

    /// Drives the stack once: looks, and then sleeps, until something comes from the LAN or is due, somebody finds something of
    /// interest, or `deadline` is there. It also returns when others have had the stack.
    pub(super) fn drive_once(
        mut self,
        interest: Option<Interest>,
        deadline: u64,
    ) -> io::Result<Turn<'a>> {
        let shared = self.shared;
        let bells = self.take_bells();
        if !bells.is_empty() {
            self.unlock();
            bells.into_iter().for_each(Bell::ring);
            return shared.take();
        }
        let until = self.due().unwrap_or(u64::MAX).min(deadline);
        let now = now_ns();
        if until <= now || self.has_more {
            return self.let_others();
        }
        self.show(now);
        match self.lan.look(until, || shared.wanted.load(Ordering::Relaxed) > 0)? {
            Looked::Ready => {
                // It may be room alone, for a datagram.
                self.has_worked = true;
                return Ok(self);
            }
            Looked::Wanted => return self.let_others(),
            Looked::Nothing => {}
        }
        let start = now_ns();
        let Some(trim) = self.lan.prepare_sleep().filter(|_| until > start) else {
            return Ok(self);
        };
        let until = until.min(trim);
        let driver = self.driver.expect("who comes here drives");
        let ticket = interest.map(|interest| self.add(interest, Bell::Driver));
        self.asleep_until = Some(until);
        self.unlock();
        let time = (until != u64::MAX).then(|| Duration::from_nanos(until.saturating_sub(start)));
        let mut rang = Vec::new();
        let waited = match driver {
            Driver::Verb => shared.lan.wait(time, &mut rang),
            // It does not hear what a verb hears that has begun to wait meanwhile.
            Driver::Thread => {
                wait_any([Some(shared.lan.as_fd()), Some(shared.thread.as_fd())], time).map(|_| ())
            }
        };
        let slept_ns = now_ns() - start;
        let mut turn = shared.take()?;
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
                shared.lan.wait(Some(Duration::ZERO), &mut rang)?;
            }
            if !rang.is_empty() {
                turn.has_worked = true;
                turn.lan.heard(&rang, slept_ns);
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
        while shared.wanted.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        shared.take()
    }

    /// Wakes the one who drives, if it sleeps.
    fn interrupt(&mut self) {
        let Some(driver) = self.driver.filter(|_| self.asleep_until.is_some()) else { return };
        if !std::mem::replace(self.is_interrupted(driver), true) {
            self.shared.interrupt_of(driver).set();
        }
    }

    /// The bells of those for whom there is something. The one who drives is woken if it is one of them.
    fn take_bells(&mut self) -> Vec<Bell> {
        let mut bells = Vec::new();
        let mut is_driver_rung = false;
        let Core { waiting, net, has_worked, .. } = &mut **self;
        waiting.take_rung(net, std::mem::take(has_worked), |bell| match bell {
            Bell::Driver => is_driver_rung = true,
            bell => bells.push(bell),
        });
        self.is_outside &= !bells.iter().any(|bell| matches!(bell, Bell::Descriptor(_)));
        if is_driver_rung {
            self.interrupt();
        }
        bells
    }

    /// Sees to it that what is left is done: by the one who drives, which sleeps, or by somebody who waits.
    fn hand_over(&mut self) -> Option<Bell> {
        if let Some(until) = self.asleep_until {
            // What was done here may have woken members of the LAN, or has to be followed by something before the sleep ends.
            let is_prepared = !self.has_more
                && self.due().is_none_or(|due| due >= until)
                && self.lan.prepare_sleep().is_some_and(|trim| trim >= until);
            if !is_prepared {
                self.interrupt();
            }
            return None;
        }
        if self.driver.is_some() {
            return None;
        }
        let has_worker = self.worker != Worker::None;
        if has_worker && self.waiting.has_elsewhere() {
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
        self.shared.holder.store(0, Ordering::Relaxed);
        self.core = None;
    }
}

/// Whoever leaves the stack wakes those for whom something has come.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.core.is_none() {
            return;
        }
        let mut bells = self.take_bells();
        bells.extend(self.hand_over());
        self.unlock();
        // Not before: what a runtime does when a task is woken is its own affair.
        bells.into_iter().for_each(Bell::ring);
    }
}
