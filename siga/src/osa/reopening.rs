//! A wire that is opened again when the one before is gone, by a thread of its own: that takes from milliseconds to seconds, in which the adapter's devices
//! go on reaching each other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use net::osa::wire::Wire;
use os::event::Event;

use crate::waiter::Member;

/// How long after a failure a wire is opened again.
const PAUSE: Duration = Duration::from_millis(500);

/// Opens the wire of an adapter again. A closure that opens one is such an opener.
pub trait OpenWire {
    /// Opens a wire: called when the one before is gone, and half a second after each failure, until there is one.
    ///
    /// # Errors
    /// Why there is no wire. It is for the opener's own use: nobody else is told of it.
    fn open(&mut self) -> io::Result<Box<dyn Wire>>;

    /// Called when the adapter uses the wire that was opened last. An error is that of a wire that does not take the addresses of all devices: it is used
    /// without these.
    fn on_use(&mut self, taken: io::Result<()>) {
        let _ = taken;
    }
}

impl<F: FnMut() -> io::Result<Box<dyn Wire>>> OpenWire for F {
    fn open(&mut self) -> io::Result<Box<dyn Wire>> {
        self()
    }
}

/// What the two threads say to each other.
#[derive(Default)]
struct State {
    /// The adapter wants a wire.
    is_wanted: bool,
    /// The wire that was opened for the adapter.
    opened: Option<Box<dyn Wire>>,
    /// What came of the wire that the adapter has taken, until the opener is told.
    used: Option<io::Result<()>>,
    /// The adapter is served no longer.
    is_over: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Set when there is a wire for the adapter.
    opened: Event,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Does what the adapter wants, until that is over.
    fn run(&self, mut opener: impl OpenWire) {
        loop {
            let rests =
                |state: &mut State| !state.is_over && !state.is_wanted && state.used.is_none();
            let mut state = self
                .changed
                .wait_while(self.state(), rests)
                .unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return;
            }
            let used = state.used.take();
            drop(state);
            if let Some(taken) = used {
                opener.on_use(taken);
                continue;
            }
            match opener.open() {
                Ok(wire) => {
                    let mut state = self.state();
                    state.is_wanted = false;
                    // If it is over meanwhile, the wire goes with what is shared.
                    state.opened = Some(wire);
                    self.opened.set();
                }
                Err(_) => {
                    let goes_on = |state: &mut State| !state.is_over;
                    drop(self.changed.wait_timeout_while(self.state(), PAUSE, goes_on));
                }
            }
        }
    }
}

/// The adapter's end: a member of its waiter, ready when there is a wire.
pub(super) struct Reopening {
    shared: Arc<Shared>,
    has_rung: bool,
}

impl Reopening {
    /// Starts the thread, which is in the network of the calling one.
    pub(super) fn start(opener: impl OpenWire + Send + 'static) -> io::Result<Reopening> {
        let opened = Event::new()?;
        let shared = Shared { state: Mutex::default(), changed: Condvar::new(), opened };
        let shared = Arc::new(shared);
        let own = shared.clone();
        let run = move || own.run(opener);
        thread::Builder::new().name("siga wire".to_owned()).spawn(run)?;
        Ok(Reopening { shared, has_rung: false })
    }

    /// Has a wire opened.
    pub(super) fn want(&self) {
        self.shared.change(|state| state.is_wanted = true);
    }

    /// The wire that was opened, if there is one.
    pub(super) fn take(&mut self) -> Option<Box<dyn Wire>> {
        self.has_rung = false;
        self.shared.state().opened.take()
    }

    /// Says what came of the wire that was taken.
    pub(super) fn used(&self, taken: io::Result<()>) {
        self.shared.change(|state| state.used = Some(taken));
    }
}

/// The thread keeps nobody waiting: a wire that it is opening now is dropped as soon as it is open.
impl Drop for Reopening {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_over = true);
    }
}

impl Member for Reopening {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.shared.opened.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.shared.opened.clear();
        self.has_rung = true;
        true
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        self.has_rung
    }
}
