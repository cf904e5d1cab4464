//! Accounts: how much work at the wire each guest may make, whatever number of devices it has.
//!
//! An address at the wire is a call of the kernel's, an entry in a table that all guests share, or an interface of its own. Each guest has a number of these, and
//! asks so often; what it asks too often waits, in order.

use std::collections::HashMap;

use fabric::name::Name;
use fabric::rate::TokenBucket;

use crate::osa::sorter::CONNECTIONS_MAX;

/// MAC addresses that a guest has the wire listen to: groups of 64 addresses of IPv6, twice.
pub(super) const AT_WIRE_MAX: u32 = 128;

/// Requests of a guest in a second.
pub(super) const REQUESTS_PER_S: u64 = 512;

/// What one guest has.
#[derive(Debug)]
struct Account {
    requests: TokenBucket,
    at_wire: u32,
    connections: usize,
}

/// The accounts of all guests.
#[derive(Debug, Default)]
pub(super) struct Accounts(HashMap<Name, Account>);

impl Accounts {
    fn of(&mut self, guest: Name) -> &mut Account {
        self.0.entry(guest).or_insert_with(|| Account {
            requests: TokenBucket::new(Some(REQUESTS_PER_S)),
            at_wire: 0,
            connections: 0,
        })
    }

    /// When a guest may ask again; none if now.
    pub(super) fn due_ns(&self, guest: Name, now: u64) -> Option<u64> {
        self.0.get(&guest)?.requests.due_ns(now)
    }

    /// A guest asks.
    pub(super) fn ask(&mut self, guest: Name, now: u64) {
        self.of(guest).requests.take(1, now);
    }

    /// A guest has the wire listen to one address more. Returns false if it has as many as it may have.
    pub(super) fn add(&mut self, guest: Name) -> bool {
        let account = self.of(guest);
        let has_room = account.at_wire < AT_WIRE_MAX;
        account.at_wire += u32::from(has_room);
        has_room
    }

    /// A guest has the wire listen to one address less.
    pub(super) fn remove(&mut self, guest: Name) {
        if let Some(account) = self.0.get_mut(&guest) {
            account.at_wire = account.at_wire.saturating_sub(1);
        }
    }

    /// A guest registers one connection more. Returns false if it has as many as it may have.
    pub(super) fn add_connection(&mut self, guest: Name) -> bool {
        let account = self.of(guest);
        let has_room = account.connections < CONNECTIONS_MAX;
        account.connections += usize::from(has_room);
        has_room
    }

    /// A guest registers so many less.
    pub(super) fn remove_connections(&mut self, guest: Name, count: usize) {
        if let Some(account) = self.0.get_mut(&guest) {
            account.connections = account.connections.saturating_sub(count);
        }
    }

    /// Forgets guests that have nothing, and have not asked lately.
    pub(super) fn tidy(&mut self, now: u64) {
        self.0.retain(|_, account| {
            account.at_wire > 0 || account.connections > 0 || !account.requests.is_full(now)
        });
    }
}
