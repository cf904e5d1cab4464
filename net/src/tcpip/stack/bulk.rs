//! What a device that sorts by workload is told of a stack's connections.

use super::*;

impl Stack {
    /// Finds out from now on which connections by this device carry bulk data, or no longer. What was found there before is forgotten.
    pub fn watch_bulk(&mut self, lan: usize, is_on: bool) {
        self.bulk.watch(lan, is_on);
    }

    /// Returns the next connection by this device that begins to carry bulk data, or ends to. The device counts as told then.
    pub fn take_bulk_change(&mut self, now: u64, lan: usize) -> Option<BulkChange> {
        self.bulk.take_change(now, lan)
    }

    /// The device has not taken a connection: it is told of again after a while, if it still carries bulk data.
    pub fn bulk_refused(&mut self, now: u64, local: SocketAddr, remote: SocketAddr) {
        if let Some(index) = self.live.find(&Tuple { local, remote }, &self.connections) {
            self.bulk.refused(now, index);
        }
    }

    /// What was found.
    pub fn bulk_counters(&self) -> BulkCounters {
        *self.bulk.counters()
    }
}
