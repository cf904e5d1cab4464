//! Limits that hold for a path as a whole, whichever of its queues uses what they allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lending::{LENDS_PENDING_MAX, SEGMENTS_MAX};

/// So much of something, for all halves of a side together.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicU64,
    /// How much there is in all.
    pub(super) most: u64,
}

/// A part of a budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    pub(super) amount: u64,
}

impl Budget {
    pub(super) fn new(most: u64) -> Arc<Budget> {
        Arc::new(Budget { used: AtomicU64::new(0), most })
    }

    /// How much is left.
    pub(super) fn left(&self) -> u64 {
        // Relaxed, all through: the budget orders nothing but itself.
        self.most - self.used.load(Ordering::Relaxed)
    }

    /// Takes a part, if so much is left.
    pub(super) fn charge(self: &Arc<Budget>, amount: u64) -> Option<Charge> {
        let add = |used: u64| used.checked_add(amount).filter(|sum| *sum <= self.most);
        let charged = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        charged.is_ok().then(|| Charge { budget: self.clone(), amount })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// What the halves of one direction may use together, as the side sees it: what it lends, or borrows.
#[derive(Clone, Debug)]
pub(super) struct Budgets {
    /// Bytes of storage.
    pub(super) bytes: Arc<Budget>,
    /// Storages: each is a mapping of both sides.
    pub(super) segments: Arc<Budget>,
    /// The same limits for what a side that borrows has mapped: what was retired counts here until its user has
    /// dropped the last view of it. The side that lends knows nothing of that, and keeps to the two above.
    pub(super) mapped_bytes: Arc<Budget>,
    pub(super) mapped_segments: Arc<Budget>,
    /// Storages of one queue that were lent and not taken in.
    pub(super) pending_lends_max: u64,
    /// Bytes of storage that one queue has if all have as much.
    pub(super) share_bytes: u64,
}

impl Budgets {
    /// For so many bytes, and so many queues.
    pub(super) fn new(bytes: u64, queues: usize) -> Budgets {
        let pending_lends_max = LENDS_PENDING_MAX / queues as u64;
        let segments = || Budget::new(SEGMENTS_MAX as u64);
        Budgets {
            bytes: Budget::new(bytes),
            segments: segments(),
            mapped_bytes: Budget::new(bytes),
            mapped_segments: segments(),
            pending_lends_max,
            share_bytes: bytes / queues as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_gives_what_is_left_and_takes_it_back() {
        let budget = Budget::new(10);
        let six = budget.charge(6).unwrap();
        assert!(budget.charge(5).is_none());
        assert!(budget.charge(u64::MAX).is_none());
        let four = budget.charge(4).unwrap();
        assert_eq!((budget.left(), six.amount, four.amount), (0, 6, 4));
        drop(six);
        assert_eq!(budget.left(), 6);
        drop(four);
        assert_eq!(budget.left(), budget.most);
    }
}
