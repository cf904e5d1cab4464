//! What a stack knows of a LAN whose device a driver has.
//!
//! The address table lies in memory that the host has lent, so that the stack reads it as the driver does, without asking. The rest the driver publishes
//! when it is another.

use std::net::IpAddr;
use std::sync::Arc;

use net::lan::table::{LentTable, MEMBERS_MAX, Member};

use crate::lan::Lan;

/// What a driver publishes.
#[derive(Debug)]
pub(super) struct Place {
    /// Our own entry.
    pub(super) own: Member,
    /// Bytes of the longest packet.
    pub(super) mtu: u32,
    /// The addresses that the host there is now does not give us, and why.
    pub(super) lost: Option<(Vec<IpAddr>, String)>,
    /// Counts the tables, of which each host has its own.
    pub(super) tables: u64,
    table: Arc<LentTable>,
}

impl Place {
    pub(super) fn of(lan: &Lan, before: Option<&Place>) -> Place {
        let tables = lan.tables();
        let same = before.filter(|before| before.tables == tables);
        let table = same.map(|before| before.table.clone());
        Place {
            own: lan.own().clone(),
            mtu: lan.mtu(),
            lost: lost(lan),
            tables,
            table: table.unwrap_or_else(|| Arc::new(lan.table().clone())),
        }
    }

    /// Returns true if this is what there is to publish now.
    pub(super) fn is_current(&self, lan: &Lan) -> bool {
        let Place { own, mtu, lost: of_before, tables, .. } = self;
        *tables == lan.tables() && *mtu == lan.mtu() && own == lan.own() && *of_before == lost(lan)
    }
}

fn lost(lan: &Lan) -> Option<(Vec<IpAddr>, String)> {
    lan.lost().map(|(addresses, why)| (addresses, why.to_string()))
}

/// What a stack knows.
#[derive(Debug)]
pub(super) struct View {
    pub(super) place: Arc<Place>,
    table: LentTable,
    /// Counts the looks at the table that have found a change, from 1 on.
    pub(super) changes: u64,
    /// The value of `changes` when each entry of the table was last another.
    changed_at: Vec<u64>,
}

impl View {
    pub(super) fn new(place: Arc<Place>) -> View {
        let table = LentTable::clone(&place.table);
        View { place, table, changes: 1, changed_at: vec![1; MEMBERS_MAX] }
    }

    /// Takes what the driver has published.
    pub(super) fn set_place(&mut self, place: Arc<Place>) {
        if place.tables != self.place.tables {
            self.table = LentTable::clone(&place.table);
            self.changes += 1;
            self.changed_at.fill(self.changes);
        }
        self.place = place;
    }

    /// Reads what has changed in the table. One load if nothing has.
    pub(super) fn refresh(&mut self) {
        if self.table.is_current() {
            return;
        }
        self.changes += 1;
        let View { table, changed_at, changes, .. } = self;
        table.refresh(|number, _| changed_at[number] = *changes);
    }

    pub(super) fn table(&self) -> &LentTable {
        &self.table
    }

    /// The entries that are others since `changes` was this, by their numbers.
    pub(super) fn changed_since(
        &self,
        changes: u64,
    ) -> impl Iterator<Item = (usize, Option<&Member>)> {
        let changed = self.changed_at.iter().enumerate().filter(move |(_, at)| **at > changes);
        changed.map(|(number, _)| (number, self.table.get(number)))
    }
}
