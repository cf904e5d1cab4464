//! One name for each synchronisation primitive: the standard library's, or loom's when the crate is
//! built with `--cfg loom`. Code that is to be model-checked takes its atomics and fences from here,
//! so that the model checks the real source.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Tells the processor that this is a waiting loop. Under loom it lets another thread run.
#[inline]
pub fn pause() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
