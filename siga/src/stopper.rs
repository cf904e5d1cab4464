//! Ends what a server does on another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use os::event::Event;

use crate::waiter::Member;

/// Ends the serving of a [`Machine`](crate::tcpip::Machine) or of an adapter's [`Server`](crate::osa::Server), from any thread, also while that sleeps.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<Stop>,
}

#[derive(Debug)]
struct Stop {
    is_set: AtomicBool,
    event: Event,
}

impl Stopper {
    pub(crate) fn new() -> io::Result<Stopper> {
        let stop = Stop { is_set: AtomicBool::new(false), event: Event::new()? };
        Ok(Stopper { stop: Arc::new(stop) })
    }

    /// Has `serve` and `serve_until` return, now and from now on.
    pub fn stop(&self) {
        // Release: pairs with the Acquire in `is_set`. What was done before is seen by whoever serves.
        self.stop.is_set.store(true, Ordering::Release);
        self.stop.event.set();
    }

    /// Returns true once the server is to stop.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.stop.is_set.load(Ordering::Acquire)
    }
}

/// Ready once the server is to stop.
impl Member for Stopper {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.stop.event.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        // It stays set, and whoever has been told does not wait again.
        false
    }

    fn is_ready(&mut self) -> bool {
        self.is_set()
    }
}
