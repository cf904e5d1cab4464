//! What a stack tells devices that sort by workload: which of its connections carry bulk data.

use std::collections::BTreeMap;

use net::osa::workload::Connection;
use net::tcpip::{BulkChange, Stack};

use super::lans::Lans;

/// What devices were told.
#[derive(Debug, Default)]
pub(super) struct Sorting {
    /// How often each has had a device when connections began to be watched.
    watched: BTreeMap<usize, u64>,
    /// A change for which there was no room.
    untold: Option<BulkChange>,
}

impl Sorting {
    /// Tells them what has changed.
    pub(super) fn follow(&mut self, now: u64, lans: &mut Lans, net: &mut Stack) {
        for number in 0..lans.end() {
            let Some(osa) = lans.osa(number).filter(|osa| osa.workload_queues()) else { continue };
            // A device that has come again has forgotten what the one before was told.
            if self.watched.insert(number, osa.joins()) != Some(osa.joins()) {
                net.watch_bulk(number, true);
                self.untold = self.untold.filter(|change| change.lan != number);
            }
            while let Some(Connection { local, peer }) = osa.take_refused_bulk() {
                net.bulk_refused(now, local, peer);
            }
        }
        if self.watched.is_empty() {
            return;
        }
        while let Some(change) = self.untold.take().or_else(|| net.take_bulk_change(now)) {
            let BulkChange { lan, local, remote, is_bulk } = change;
            let connection = Connection { local, peer: remote };
            if lans.osa(lan).is_some_and(|osa| !osa.set_bulk(connection, is_bulk)) {
                self.untold = Some(change);
                return;
            }
        }
    }
}
