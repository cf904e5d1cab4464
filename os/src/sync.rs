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

/// A word that nothing orders by itself, as a byte in a page is. The model ends with an error when two
/// threads reach it, one of them to write, and nothing else orders the two.
#[cfg(loom)]
#[derive(Debug, Default)]
pub struct PlainWord(loom::cell::UnsafeCell<u64>);

// SAFETY: loom checks each access against all others, and lets none happen that is not ordered.
#[cfg(loom)]
unsafe impl Sync for PlainWord {}

#[cfg(loom)]
impl PlainWord {
    /// Reads the word.
    pub fn get(&self) -> u64 {
        // SAFETY: the pointer is to the cell, and loom has found no write that is not ordered before.
        self.0.with(|word| unsafe { *word })
    }

    /// Writes the word.
    pub fn set(&self, value: u64) {
        // SAFETY: as in `get`, and no read either.
        self.0.with_mut(|word| unsafe { *word = value });
    }
}
