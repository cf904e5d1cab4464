//! A stack that threads share. A lock gives one thread at a time access to the stack; no thread holds it while it sleeps.

mod inside;
mod turn;

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError, Weak};
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::Duration;

use net::tcpip::{Awaited, ConnectionId};
use os::event::Event;
use os::fork::ForkGuard;
use os::poller::{Poller, Sleeper};
use os::processor::now_ns;

pub(super) use self::inside::{PutOff, has_stack};
pub(super) use self::turn::Turn;
use super::core::{Core, Driver, Patience, Worker};
use super::engine::{Bound, Engine, Opening};
use super::lans::{Attached, Lans, LansSleeper};
use super::own::Own;
use super::routing::Routing;
use super::stack::timed_out;
#[cfg(feature = "tokio")]
use super::waiting::Ticket;
use super::waiting::{Interest, Signal, Wakeup};
use crate::waiting::after;

/// How long a machine that was asked for a socket may take to answer.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// What a program has dropped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dropped {
    /// A handle of a connection.
    Connection(ConnectionId),
    Listener(Bound),
    Socket(Bound),
}

pub(super) struct Shared {
    core: Mutex<Core>,
    /// Threads that wait for the stack to be free.
    wanted: Arc<AtomicUsize>,
    /// Ends the sleep of a driver that is a verb.
    verb: Event,
    /// Ends the sleep of a driver that is the stack's thread.
    thread: Event,
    /// Wakes a program that waits for the descriptor.
    outside: Event,
    /// The descriptor for programs: readable if `outside` is set. If the stack has no thread, also if a LAN has something.
    descriptor: OnceLock<Poller>,
    /// The stack's thread sleeps here while it does not drive.
    pub(super) rest: Signal,
    /// Identifies the stack in what each thread notes of its stacks.
    identity: Arc<()>,
    guard: ForkGuard,
}

thread_local! {
    /// How much of each stack's activity the calling thread has seen.
    static SEEN: RefCell<Vec<(Weak<()>, u64)>> = const { RefCell::new(Vec::new()) };
}

/// A number that no other thread has.
fn own_number() -> usize {
    thread_local! {
        static OWN: u8 = const { 0 };
    }
    OWN.with(|own| std::ptr::from_ref(own).addr())
}

impl Shared {
    pub(super) fn new(
        lans: Vec<Attached>,
        routing: Routing,
        net: net::tcpip::Stack,
    ) -> io::Result<Shared> {
        Shared::over(|verb| {
            let lans = Lans::new(lans, verb)?;
            Ok(Engine::Own(Box::new(Own::new(lans, routing, net))))
        })
    }

    /// Shares what `make` makes, of which an event ends the driver's sleep, too.
    pub(super) fn over(make: impl FnOnce(&Event) -> io::Result<Engine>) -> io::Result<Shared> {
        let wanted = Arc::<AtomicUsize>::default();
        let verb = Event::new()?;
        let net = make(&verb)?;
        Ok(Shared {
            core: Mutex::new(Core::new(net, wanted.clone())),
            wanted,
            verb,
            thread: Event::new()?,
            outside: Event::new()?,
            descriptor: OnceLock::new(),
            rest: Signal::default(),
            identity: Arc::default(),
            guard: ForkGuard::here(),
        })
    }

    /// The event that ends the sleep of a driver that is a verb.
    pub(super) fn verb(&self) -> &Event {
        &self.verb
    }

    /// The event that ends the sleep of this driver.
    fn interrupt_of(&self, driver: Driver) -> &Event {
        match driver {
            Driver::Verb => &self.verb,
            Driver::Thread => &self.thread,
        }
    }

    /// Whether this is a forked child, in which the stack cannot be used: a thread of the parent may have held the lock.
    pub(super) fn in_child(&self) -> bool {
        self.guard.in_child()
    }

    /// How much of the stack's activity the calling thread has seen: zero before its first [`Shared::see`].
    fn seen(&self) -> u64 {
        let find = |seen: &RefCell<Vec<(Weak<()>, u64)>>| {
            let of_stacks = seen.borrow();
            let of_this = of_stacks.iter().find(|(stack, _)| self.is_stack(stack));
            of_this.map_or(0, |(_, activity)| *activity)
        };
        SEEN.try_with(find).unwrap_or(0)
    }

    /// Notes how much of the stack's activity the calling thread has seen.
    fn see(&self, activity: u64) {
        // A thread that is ending notes nothing. Its next wait then returns at once.
        let _ = SEEN.try_with(|seen| {
            let mut of_stacks = seen.borrow_mut();
            match of_stacks.iter_mut().find(|(stack, _)| self.is_stack(stack)) {
                Some((_, seen)) => *seen = activity,
                None => {
                    of_stacks.retain(|(stack, _)| stack.strong_count() > 0);
                    of_stacks.push((Arc::downgrade(&self.identity), activity));
                }
            }
        });
    }

    fn is_stack(&self, stack: &Weak<()>) -> bool {
        std::ptr::eq(stack.as_ptr(), Arc::as_ptr(&self.identity))
    }

    /// Locks the stack, and waits for that if another thread has it.
    ///
    /// # Errors
    /// `ResourceBusy` inside a closure that a stack has called; `NotConnected` in a forked child.
    pub(super) fn enter(&self) -> io::Result<Turn<'_>> {
        if self.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if has_stack() {
            let problem = "a closure that a stack has called may not call this or another stack";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, problem));
        }
        let core = match self.core.try_lock() {
            Ok(core) => core,
            // A closure that has panicked has left the stack in order.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.wanted.fetch_add(1, Ordering::Relaxed);
                let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
                self.wanted.fetch_sub(1, Ordering::Relaxed);
                core
            }
        };
        Ok(Turn::new(self, core))
    }

    /// Runs a closure of this crate with the stack locked.
    pub(super) fn with<R>(&self, run: impl FnOnce(&mut Core) -> io::Result<R>) -> io::Result<R> {
        run(&mut *self.enter()?)
    }

    /// Repeats an attempt until it has a result, and waits in between. At the time limit the error is `WouldBlock`, as in
    /// the standard library.
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
            if turn.is_polled && matches!(patience, Patience::None) {
                return Err(io::ErrorKind::WouldBlock.into());
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

    /// Opens a socket, or connects one of datagrams that is `bound`, and waits until a machine that was asked has answered, at most
    /// [`OPEN_MAX`].
    pub(super) fn open(
        &self,
        open: impl FnOnce(&mut Engine) -> io::Result<Opening>,
        bound: Option<Bound>,
    ) -> io::Result<Bound> {
        let opening = self.with(|core| {
            let opening = open(&mut core.net)?;
            if let Opening::Asked(_) = opening {
                core.push();
            }
            Ok(opening)
        })?;
        let id = match opening {
            Opening::Done(address) => return Ok(Bound { address, id: None }),
            Opening::Asked(id) => id,
        };
        let interest = Interest::One(Awaited::Connection(id));
        let patience = |_: &mut Core| Patience::Until(after(OPEN_MAX));
        let opened = self.try_until(interest, patience, |core| core.net.opened(id));
        opened.map(|address| Bound { address, id: Some(id) }).map_err(|error| {
            let is_late = error.kind() == io::ErrorKind::WouldBlock;
            if is_late {
                let _ = self.with(|core| {
                    match bound {
                        None => core.net.give_up_opening(id),
                        Some(_) => core.net.give_up_associating(id),
                    }
                    core.push();
                    Ok(())
                });
            }
            timed_out(error)
        })
    }

    /// Makes an attempt for a task. If the attempt has no result, the task is woken when the next may have one.
    #[cfg(feature = "tokio")]
    pub(super) fn poll_until<R>(
        &self,
        interest: Interest,
        ticket: &mut Option<Ticket>,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut Core) -> Option<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let waker = context.waker().clone();
        // Dropped after the lock: dropping a waker may run code of a runtime.
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
        if let Err(error) = check_worker(turn.worker) {
            return Poll::Ready(Err(error));
        }
        *ticket = Some(turn.add(interest, Wakeup::Task(waker)));
        Poll::Pending
    }

    /// Removes a task that waits no longer.
    #[cfg(feature = "tokio")]
    pub(super) fn forget(&self, ticket: Ticket) {
        let Ok(mut turn) = self.enter() else { return };
        let wakeup = turn.waiting.remove(ticket);
        drop(turn);
        // Without the lock: dropping a waker may run code of a runtime.
        drop(wakeup);
    }

    /// The descriptor for a program that waits with a poller of its own.
    ///
    /// # Errors
    /// No descriptors left; otherwise as [`Shared::enter`].
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        // The thread of a stack tells the program what has come. Without a thread the program has to poll the stack itself.
        let turn = self.enter()?;
        if self.descriptor.get().is_none() {
            let poller = Poller::new()?;
            poller.add(&self.outside, 0)?;
            if !turn.worker.is_there() {
                poller.add(&**turn.net.sleeper(), 1)?;
            }
            self.descriptor.get_or_init(|| poller);
        }
        self.descriptor.get().expect("it was made just now").as_fd().try_clone_to_owned()
    }

    /// Sleeps at one more LAN, or at one less, and whoever sleeps already finds out. `None` is one that goes.
    ///
    /// # Errors
    /// No descriptors or no memory left: then nothing has changed.
    pub(super) fn sleeper_with(
        &self,
        turn: &mut Turn<'_>,
        number: usize,
        sleeper: Option<Sleeper>,
    ) -> io::Result<LansSleeper> {
        let before = turn.net.sleeper().clone();
        let sleeper = before.with(number, sleeper)?;
        if !turn.worker.is_there()
            && let Some(descriptor) = self.descriptor.get()
        {
            descriptor.add(&sleeper, 1)?;
            // It was there since the descriptor is, unless there was no memory for it.
            let _ = descriptor.remove(&*before);
        }
        turn.interrupt();
        turn.tell_outside();
        Ok(sleeper)
    }

    /// The stack's thread stops driving: for now, or for ever if `worker` says that the thread is gone. All waiters are
    /// woken, and find out by themselves.
    pub(super) fn give_up(&self, worker: Worker) {
        let Ok(mut turn) = self.enter() else { return };
        turn.worker = worker;
        if turn.driver == Some(Driver::Thread) {
            turn.driver = None;
            turn.driver_number = 0;
            turn.asleep_until = None;
        }
        if !worker.is_there()
            && let Some(descriptor) = self.descriptor.get()
        {
            // If there is no memory for that, the program is woken now, but not for frames that arrive later.
            let _ = descriptor.add(&**turn.net.sleeper(), 1);
        }
        // All waiters are removed, also the one of a driver that is a verb: it has to register again.
        turn.interrupt();
        turn.tell_outside();
        let mut wakeups = turn.waiting.take_all();
        drop(turn);
        Wakeup::wake_all(&mut wakeups);
    }

    /// Ends the stack's thread, because the last handle is gone.
    pub(super) fn end(&self) {
        if let Ok(mut turn) = self.enter() {
            turn.is_over = true;
            turn.interrupt();
        }
        self.rest.set();
    }

    /// Closes what a program has dropped. If `may_wait`, waits for a connection that lingers.
    pub(super) fn close(&self, dropped: Dropped, may_wait: bool) {
        let Ok(mut turn) = self.enter() else { return };
        let lingering = turn.close(dropped);
        // If the calling thread is the driver, a waker has dropped the connection. A waker must not wait.
        let may_wait = may_wait && turn.driver_number != own_number();
        if let Some((id, time)) = lingering.filter(|_| may_wait) {
            turn.linger(id, time);
        }
    }
}

/// Checks that the stack has a thread, which tasks need: it drives while they wait.
///
/// # Errors
/// `Unsupported` if the stack was made without a thread; otherwise its thread has failed.
#[cfg(feature = "tokio")]
pub(super) fn check_worker(worker: Worker) -> io::Result<()> {
    let problem = "tasks need a stack with a thread: make it with Drive::Thread";
    match worker {
        Worker::None => Err(io::Error::new(io::ErrorKind::Unsupported, problem)),
        Worker::Failed => Err(io::Error::other("the stack's thread has failed, and tasks need it")),
        _ => Ok(()),
    }
}
