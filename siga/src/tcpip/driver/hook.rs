//! Faults of a driver that tests ask for, between two of its turns.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    /// The driver with this lease stalls, or panics, before its next turn.
    stalls: Option<u64>,
    panics: Option<u64>,
    /// Drivers that stall.
    stalled: usize,
    /// Counts how often stalled drivers were released.
    releases: u64,
}

#[derive(Debug, Default)]
pub(super) struct Hook {
    state: Mutex<State>,
    changed: Condvar,
}

impl Hook {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the driver with this lease stall before its next turn.
    pub(super) fn stall(&self, epoch: u64) {
        self.state().stalls = Some(epoch);
    }

    /// Waits until a driver stalls.
    pub(super) fn wait_for_stall(&self) {
        drop(self.changed.wait_while(self.state(), |state| state.stalled == 0).unwrap());
    }

    /// Has all drivers that stall go on.
    pub(super) fn release(&self) {
        let mut state = self.state();
        state.stalls = None;
        state.releases += 1;
        state.stalled = 0;
        self.changed.notify_all();
    }

    /// Has the driver with this lease panic before its next turn.
    pub(super) fn panic(&self, epoch: u64) {
        self.state().panics = Some(epoch);
    }

    /// What a driver does between two turns.
    pub(super) fn pass(&self, epoch: u64) {
        let mut state = self.state();
        if state.panics.take_if(|of| *of == epoch).is_some() {
            drop(state);
            panic!("a test asked for it");
        }
        if state.stalls.take_if(|of| *of == epoch).is_some() {
            state.stalled += 1;
            self.changed.notify_all();
            let releases = state.releases;
            drop(self.changed.wait_while(state, |state| state.releases == releases).unwrap());
        }
    }
}
