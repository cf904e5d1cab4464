//! What the threads of a program share of a stack: the stack itself, or its client's side; who waits, and who drives.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::client::Client;
use super::engine::Engine;
use super::held::Held;
use super::lans::Rang;
use super::own::{Own, Worked};
use super::waiting::Waiting;
use crate::waiting::after;

/// How a verb waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// Not at all.
    None,
    /// Until this time on the machine's clock.
    Until(u64),
}

impl Patience {
    /// That of a socket that waits, or does not, with a limit.
    pub(super) fn of(is_nonblocking: bool, limit: Option<Duration>) -> Patience {
        match (is_nonblocking, limit) {
            (true, _) => Patience::None,
            (false, Some(limit)) => Patience::Until(after(limit)),
            (false, None) => Patience::Until(u64::MAX),
        }
    }
}

/// Which kind of thread is the driver: it receives what arrives, and does what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// A verb that waits.
    Verb,
    /// The stack's thread.
    Thread,
}

/// What the stack's thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worker {
    /// There is none.
    None,
    /// There is none any more: a defect of the stack has ended it.
    Failed,
    /// It looks now and then whether somebody drives.
    Watches,
    /// It sleeps until it is told that nobody drives.
    Rests,
    /// It drives, or has done so until a verb began to wait.
    Drives,
    /// It has failed to drive, because the kernel did not let it wait, and tries again after a while.
    Pauses,
}

impl Worker {
    /// Whether there is a thread that drives for those who cannot.
    pub(super) fn is_there(self) -> bool {
        !matches!(self, Worker::None | Worker::Failed)
    }
}

pub(super) struct Core {
    pub(super) net: Engine,
    /// The connections that a program has.
    pub(super) held: Held,
    /// Threads that wait for the stack to be free.
    wanted: Arc<AtomicUsize>,
    pub(super) waiting: Waiting,
    /// Until when a program waits at the descriptor, if it does.
    pub(super) outside_until: Option<u64>,
    /// Whether the event for it is set.
    pub(super) is_outside_set: bool,
    /// How many times something has come for waiters for anything. Each compares the count with the one at its last look,
    /// because something may have come while it used the stack for something else.
    pub(super) activity: u64,
    /// What `activity` was at the last look of the program that waits at the descriptor.
    pub(super) outside_seen: u64,
    /// The driver, if there is one.
    pub(super) driver: Option<Driver>,
    /// The number of the driver's thread: zero if there is no driver.
    pub(super) driver_number: usize,
    /// Until when the driver sleeps, if it does.
    pub(super) asleep_until: Option<u64>,
    /// Whether another thread has ended the sleep of a driver that is a verb, and of one that is the stack's thread.
    interrupted: [bool; 2],
    pub(super) worker: Worker,
    /// Memory for the doorbells that end a sleep.
    pub(super) rang: Rang,
    /// How many times somebody has received what had come.
    pub(super) pumps: u64,
    /// Whether something has come, or was done, that is news for waiters for anything.
    pub(super) has_worked: bool,
    /// Whether there may be more to do at once.
    pub(super) has_more: bool,
    /// Set if the program polls the stack: a verb that does not wait receives nothing by itself.
    pub(super) is_polled: bool,
    /// Whether the last handle is gone: the stack's thread ends.
    pub(super) is_over: bool,
}

impl Core {
    pub(super) fn new(net: Engine, wanted: Arc<AtomicUsize>) -> Core {
        Core {
            net,
            held: Held::default(),
            wanted,
            waiting: Waiting::default(),
            outside_until: None,
            is_outside_set: false,
            activity: 0,
            outside_seen: 0,
            driver: None,
            driver_number: 0,
            asleep_until: None,
            interrupted: [false; 2],
            worker: Worker::None,
            rang: Rang::default(),
            pumps: 0,
            has_worked: false,
            has_more: false,
            is_polled: false,
            is_over: false,
        }
    }

    /// The stack, if it is one's own.
    ///
    /// # Errors
    /// `Unsupported` if it is a machine's.
    pub(super) fn own(&mut self) -> io::Result<&mut Own> {
        match &mut self.net {
            Engine::Own(own) => Ok(own),
            Engine::Client(_) => {
                let problem =
                    "this is for a stack of one's own, and the stack is a TCPIP machine's";
                Err(io::Error::new(io::ErrorKind::Unsupported, problem))
            }
        }
    }

    /// The client's side of a machine.
    ///
    /// # Errors
    /// `Unsupported` if it is a stack of one's own.
    pub(super) fn client(&mut self) -> io::Result<&mut Client> {
        match &mut self.net {
            Engine::Client(client) => Ok(client),
            Engine::Own(_) => {
                let problem = "this is for a TCPIP machine's stack, and the stack is one's own";
                Err(io::Error::new(io::ErrorKind::Unsupported, problem))
            }
        }
    }

    /// Whether another thread has ended the sleep of this driver.
    pub(super) fn is_interrupted(&mut self, driver: Driver) -> &mut bool {
        &mut self.interrupted[driver as usize]
    }

    /// Whether there is a waiter that cannot drive the stack, and for which the stack's thread drives.
    pub(super) fn has_elsewhere(&self) -> bool {
        let waits = self.waiting.has_elsewhere() || self.outside_until.is_some();
        waits && self.worker.is_there()
    }

    /// Whether somebody waits for the stack to be free.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Receives what has come, and sends what is due. What is left when somebody else waits for the stack is left to that one.
    pub(super) fn pump(&mut self) -> io::Result<()> {
        self.pumps += 1;
        let Core { net, wanted, .. } = self;
        let worked = net.pump(|| wanted.load(Ordering::Relaxed) > 0)?;
        self.note(worked);
        Ok(())
    }

    /// Sends what there is to send.
    pub(super) fn push(&mut self) {
        let worked = self.net.push();
        self.note(worked);
    }

    fn note(&mut self, worked: Worked) {
        self.has_more = worked.has_more;
        self.has_worked |= worked.has_worked;
    }
}
