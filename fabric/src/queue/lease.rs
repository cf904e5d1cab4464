//! Which thread serves a half: a lease with an epoch.
//!
//! A half of a queue is a value; the thread that has it serves it. Where several threads may serve it in
//! turn, it lives in a [`Lease`], and the thread that serves it now is its [`Server`]. A server whose
//! thread is stuck elsewhere can be replaced: [`Lease::take_over`] starts a new epoch, and the late
//! server gets [`LeaseLost`] when it returns. It cannot have been in the middle of a hand-over: the
//! lease waits for a verb that is under way, and verbs are bounded.

use os::sync::{Arc, Mutex, MutexGuard};

/// A half, or anything else, that one server at a time may use.
#[derive(Debug)]
pub struct Lease<T>(Arc<Mutex<Leased<T>>>);

#[derive(Debug)]
struct Leased<T> {
    epoch: u64,
    value: T,
}

/// The right to serve what is leased, until somebody takes it over.
#[derive(Debug)]
pub struct Server<T> {
    lease: Lease<T>,
    epoch: u64,
}

/// Another server has taken over. What we meant to do was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another server has taken over: this one serves epoch {ours}, now is {current}")]
pub struct LeaseLost {
    /// The epoch of the server that asked.
    pub ours: u64,
    /// The epoch now.
    pub current: u64,
}

impl<T> Lease<T> {
    /// Puts `value` under a lease that nobody serves yet.
    pub fn new(value: T) -> Lease<T> {
        Lease(Arc::new(Mutex::new(Leased { epoch: 0, value })))
    }

    /// Starts a new epoch with the caller as server. The server before has lost the lease.
    pub fn take_over(&self) -> Server<T> {
        let mut leased = self.lock();
        leased.epoch += 1;
        Server { lease: self.clone(), epoch: leased.epoch }
    }

    /// Takes the value out, if this is the last handle on it.
    pub fn into_inner(self) -> Option<T> {
        let leased = Arc::try_unwrap(self.0).ok()?;
        Some(leased.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).value)
    }

    fn lock(&self) -> MutexGuard<'_, Leased<T>> {
        // A server that panicked between two verbs left a half that is whole.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T> Clone for Lease<T> {
    fn clone(&self) -> Lease<T> {
        Lease(self.0.clone())
    }
}

impl<T> Server<T> {
    /// Serves: does something short with the value. Keep long work, and all waiting, out of it: a server that
    /// takes over waits until it is done.
    ///
    /// # Errors
    /// [`LeaseLost`] if another server has taken over; nothing was done.
    pub fn serve<R>(&mut self, deed: impl FnOnce(&mut T) -> R) -> Result<R, LeaseLost> {
        let mut leased = self.lease.lock();
        if leased.epoch != self.epoch {
            return Err(LeaseLost { ours: self.epoch, current: leased.epoch });
        }
        Ok(deed(&mut leased.value))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn late_server_gets_an_error_and_changes_nothing() {
        let lease = Lease::new(0);
        let mut first = lease.take_over();
        assert_eq!(first.serve(|value| *value += 1), Ok(()));
        let mut second = lease.take_over();
        assert_eq!(first.serve(|value| *value += 10), Err(LeaseLost { ours: 1, current: 2 }));
        assert_eq!(second.serve(|value| *value), Ok(1));
        drop((first, second));
        assert_eq!(lease.into_inner(), Some(1));
    }
}
