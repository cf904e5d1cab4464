//! What a thread may do while it has a stack locked, which is inside a closure that the stack has called.
//!
//! It may use no stack, neither this nor another: a thread that has locked one and waits for another could wait for a
//! thread that does the reverse. What the closure drops is closed after the thread has released the stack.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

#[cfg(feature = "tokio")]
use super::Ticket;
use super::{Dropped, Shared};
use crate::tcpip::stack::{Ended, Owner};

thread_local! {
    static HAS_STACK: Cell<bool> = const { Cell::new(false) };
    static PUT_OFF: RefCell<Vec<PutOff>> = const { RefCell::new(Vec::new()) };
}

/// Whether the calling thread has a stack locked: this or another.
pub(in crate::tcpip) fn has_stack() -> bool {
    HAS_STACK.get()
}

/// There while the calling thread has a stack locked.
#[derive(Debug)]
pub(super) struct Inside(());

impl Inside {
    pub(super) fn new() -> Inside {
        HAS_STACK.set(true);
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        HAS_STACK.set(false);
    }
}

/// What is put off until the calling thread has released the stack.
pub(in crate::tcpip) enum PutOff {
    Close(Arc<Owner>, Dropped),
    /// A task waits no longer.
    #[cfg(feature = "tokio")]
    Forget(Arc<Owner>, Ticket),
    /// The last handle of a stack was dropped.
    End(Ended),
}

impl PutOff {
    /// Has it done when the calling thread releases the stack that it has locked.
    pub(in crate::tcpip) fn later(self) {
        // A thread that is ending can note nothing. Then it is not done at all.
        let _ = PUT_OFF.try_with(|all| all.borrow_mut().push(self));
    }

    /// Does what was put off, without waiting for connections that linger: the program did not expect to wait here.
    pub(super) fn run_all() {
        let has_some = |all: &RefCell<Vec<PutOff>>| !all.borrow().is_empty();
        if !PUT_OFF.try_with(has_some).unwrap_or(false) {
            return;
        }
        for put_off in PUT_OFF.take() {
            match put_off {
                PutOff::Close(owner, dropped) => Shared::close(&owner, dropped, false),
                #[cfg(feature = "tokio")]
                PutOff::Forget(owner, ticket) => Shared::forget(&owner, ticket),
                PutOff::End(ended) => ended.end(),
            }
        }
    }
}
