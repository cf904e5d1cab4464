//! What a device that sorts by workload is told of a stack's connections.

use super::*;

impl Stack {
    /// Finds out from now on which connections by this device carry bulk data, or no longer. What was found there before is forgotten.
    pub fn watch_bulk(&mut self, lan: usize, is_on: bool) {
        self.bulk.watch(lan, is_on);
    }

    /// Returns the next connection that begins to carry bulk data, or ends to.
    pub fn take_bulk_change(&mut self, now: u64) -> Option<BulkChange> {
        if !self.bulk.is_watching() {
            return None;
        }
        self.bulk.take_change(now)
    }

    /// The device has not taken a connection: it is told of again after a while, if it still carries bulk data.
    pub fn bulk_refused(&mut self, now: u64, local: SocketAddr, remote: SocketAddr) {
        self.bulk.refused(now, local, remote);
    }

    /// What was found.
    pub fn bulk_counters(&self) -> BulkCounters {
        *self.bulk.counters()
    }
}
