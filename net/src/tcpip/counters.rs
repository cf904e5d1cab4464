//! The counters of a stack.

use crate::board::Counter;

/// The counters of a stack.
#[derive(Debug)]
pub(super) struct Counters {
    values: [u64; Counter::ALL.len()],
}

impl Counters {
    pub(super) fn new() -> Counters {
        Counters { values: [0; Counter::ALL.len()] }
    }

    pub(super) fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }

    /// All of them, in the order of [`Counter::ALL`].
    pub(super) fn all(&self) -> &[u64] {
        &self.values
    }

    pub(super) fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    pub(super) fn add(&mut self, counter: Counter, number: u64) {
        let value = &mut self.values[counter as usize];
        *value = value.wrapping_add(number);
    }
}
