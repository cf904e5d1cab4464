//! What a stack tells devices that sort by workload: which of its connections carry bulk data.

use std::collections::BTreeMap;

use net::osa::workload::Connection;
use net::tcpip::{BulkChange, Stack};

use super::lans::Lans;

/// What devices were told.
#[derive(Debug, Default)]
pub(super) struct Sorting {
    /// The devices whose connections are watched.
    watched: BTreeMap<usize, Told>,
}

#[derive(Debug)]
struct Told {
    /// How often there was a device when its connections began to be watched.
    joins: u64,
    /// A change for which there was no room.
    untold: Option<BulkChange>,
}

impl Sorting {
    /// Tells them what has changed.
    pub(super) fn follow(&mut self, now: u64, lans: &mut Lans, net: &mut Stack) {
        for number in 0..lans.end() {
            let Some(osa) = lans.osa(number).filter(|osa| osa.workload_queues()) else { continue };
            let joins = osa.joins();
            // A device that has come again has forgotten what the one before was told.
            let told = match self.watched.get_mut(&number).filter(|told| told.joins == joins) {
                Some(told) => told,
                None => {
                    net.watch_bulk(number, true);
                    self.watched.insert(number, Told { joins, untold: None });
                    continue;
                }
            };
            while let Some(Connection { local, peer }) = osa.take_refused_bulk() {
                net.bulk_refused(now, local, peer);
            }
            while let Some(change) =
                told.untold.take().or_else(|| net.take_bulk_change(now, number))
            {
                let connection = Connection { local: change.local, peer: change.remote };
                if !osa.set_bulk(connection, change.state) {
                    told.untold = Some(change);
                    break;
                }
            }
        }
    }
}
