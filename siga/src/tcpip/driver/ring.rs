//! A queue of frames between a stack and a driver, of a fixed size.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Frames in one queue: as many as a QDIO queue has buffers. Indexes wrap by mask.
pub(super) const FRAMES_MAX: usize = 128;
const _: () = assert!(FRAMES_MAX.is_power_of_two());

/// A queue with one thread that pushes and one that pops. Its slots are used again and again, with the memory that their frames have.
///
/// Each slot has a lock, which is free whenever it is taken: the counts say whose the slot is. So no thread waits, and no mistake in the counts could be
/// more than a frame that is missing.
#[derive(Debug)]
pub(super) struct Ring<T> {
    slots: Box<[Mutex<T>]>,
    /// Frames that were popped so far. (w) the thread that pops.
    popped: AtomicUsize,
    /// Frames that were pushed so far. (w) the thread that pushes.
    pushed: AtomicUsize,
}

impl<T: Default> Ring<T> {
    pub(super) fn new() -> Ring<T> {
        Ring {
            slots: (0..FRAMES_MAX).map(|_| Mutex::default()).collect(),
            popped: AtomicUsize::new(0),
            pushed: AtomicUsize::new(0),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() == FRAMES_MAX
    }

    pub(super) fn len(&self) -> usize {
        // Acquire: pairs with the Release in `pop`, so that a slot that counts as free is seen as its last user has left it.
        let popped = self.popped.load(Ordering::Acquire);
        // Acquire: pairs with the Release in `push`. Read second: it may only have grown meanwhile.
        self.pushed.load(Ordering::Acquire).wrapping_sub(popped).min(FRAMES_MAX)
    }

    /// Has `fill` fill the next free slot, in which an old frame may be. Returns false if none is free, or `fill` does.
    pub(super) fn push(&self, fill: impl FnOnce(&mut T) -> bool) -> bool {
        if self.is_full() {
            return false;
        }
        let pushed = self.pushed.load(Ordering::Relaxed);
        let is_filled = fill(&mut self.slot(pushed));
        if is_filled {
            // Release: pairs with the Acquire in `len`. The slot is filled before it counts.
            self.pushed.store(pushed.wrapping_add(1), Ordering::Release);
        }
        is_filled
    }

    /// Has `take` take what the next slot has, or change places with it. Returns false if there is none.
    pub(super) fn pop(&self, take: impl FnOnce(&mut T)) -> bool {
        if self.is_empty() {
            return false;
        }
        let popped = self.popped.load(Ordering::Relaxed);
        take(&mut self.slot(popped));
        // Release: pairs with the Acquire in `len`. The slot is taken before it is free.
        self.popped.store(popped.wrapping_add(1), Ordering::Release);
        true
    }

    fn slot(&self, at: usize) -> MutexGuard<'_, T> {
        self.slots[at & (FRAMES_MAX - 1)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_refuses_and_changes_nothing() {
        let ring = Ring::<u32>::new();
        let push = |value| {
            ring.push(|slot| {
                *slot = value;
                true
            })
        };
        let pop = || {
            let mut value = None;
            ring.pop(|slot| value = Some(*slot));
            value
        };
        assert_eq!((ring.is_empty(), pop()), (true, None));
        assert!((0..FRAMES_MAX as u32).all(push));
        assert!(ring.is_full() && !push(999));
        assert_eq!((pop(), ring.len()), (Some(0), FRAMES_MAX - 1));
        assert!(!ring.push(|_| false), "nothing was filled in");
        assert!(push(128) && !push(129));
        assert!((1..=128).all(|value| pop() == Some(value)));
        assert_eq!(pop(), None);
    }

    #[test]
    fn what_one_thread_pushes_another_pops_in_order() {
        const VALUES: usize = 100_000;
        let ring = Ring::<usize>::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..VALUES {
                    let fill = |slot: &mut usize| {
                        *slot = value;
                        true
                    };
                    while !ring.push(fill) {
                        std::thread::yield_now();
                    }
                }
            });
            for value in 0..VALUES {
                while !ring.pop(|slot| assert_eq!(*slot, value)) {
                    std::thread::yield_now();
                }
            }
        });
        assert!(ring.is_empty());
    }
}
