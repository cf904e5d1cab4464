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

/// Marks a waiting loop for the processor. Under loom it lets another thread run.
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

#[cfg(all(test, not(loom), target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[inline(never)]
    fn probe() {
        fence(Ordering::SeqCst);
    }

    /// A message that is sent by itself has such a fence, and `mfence` would make it cost seven times as much.
    #[test]
    fn full_fence_is_a_locked_instruction() {
        const BYTES: usize = 64;
        const MFENCE: [u8; 3] = [0x0f, 0xae, 0xf0];
        const LOCK: u8 = 0xf0;
        let start = probe as fn() as *const [u8; BYTES];
        // SAFETY: code is mapped for reading, and there is more of it behind this function.
        let code = unsafe { start.read_unaligned() };
        let is_mfence = code.windows(MFENCE.len()).any(|bytes| bytes == MFENCE);
        assert!(code.contains(&LOCK) && !is_mfence, "{code:x?}");
        probe();
    }
}
