//! The connection between two ends.

use std::hash::BuildHasher;
use std::net::IpAddr;

use hashbrown::HashTable;

use super::connection::Connections;
use super::hashed::Hashing;
use super::stack::Tuple;

/// The connections that packets are for, found by both their ends. The ends lie in the connection alone: it is wanted next in any case, and an
/// idle one takes five bytes here and not eighty.
#[derive(Debug, Default)]
pub(super) struct Live {
    numbers: HashTable<u32>,
    hashing: Hashing,
}

impl Live {
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The number of the connection between these two.
    pub(super) fn find(&self, tuple: &Tuple, connections: &Connections) -> Option<u32> {
        let is_it = |number: &u32| connections.tuple(*number) == Some(tuple);
        self.numbers.find(hash(&self.hashing, tuple), is_it).copied()
    }

    /// Adds a connection that is among the others, and whose ends are those of no other here.
    pub(super) fn insert(&mut self, number: u32, connections: &Connections) {
        let Live { numbers, hashing } = self;
        let of = |number: &u32| {
            hash(hashing, connections.tuple(*number).expect("it is among the others"))
        };
        numbers.insert_unique(of(&number), number, of);
    }

    /// Takes a connection with these ends out.
    pub(super) fn remove(&mut self, tuple: &Tuple, number: u32) {
        let hash = hash(&self.hashing, tuple);
        if let Ok(found) = self.numbers.find_entry(hash, |other| *other == number) {
            found.remove();
        }
    }

    /// The numbers of all, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.numbers.iter().copied()
    }
}

/// The hash of both ends: of IPv4 twelve bytes, and not the forty in eight pieces that the standard library makes of them.
fn hash(hashing: &Hashing, Tuple { local, remote }: &Tuple) -> u64 {
    let ports = u32::from(local.port()) << 16 | u32::from(remote.port());
    match (local.ip(), remote.ip()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => hashing
            .hash_one((u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()), ports)),
        (local, remote) => hashing.hash_one((local, remote, ports)),
    }
}
