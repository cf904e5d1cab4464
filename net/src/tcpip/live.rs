//! The connection between two ends.

use std::hash::BuildHasher;

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
        self.numbers.find(self.hashing.hash_one(tuple), is_it).copied()
    }

    /// Adds a connection that is among the others, and whose ends are those of no other here.
    pub(super) fn insert(&mut self, number: u32, connections: &Connections) {
        let Live { numbers, hashing } = self;
        let hash =
            |number: &u32| hashing.hash_one(connections.tuple(*number).expect("it is there"));
        numbers.insert_unique(hash(&number), number, hash);
    }

    /// Takes a connection with these ends out.
    pub(super) fn remove(&mut self, tuple: &Tuple, number: u32) {
        let found = self.numbers.find_entry(self.hashing.hash_one(tuple), |other| *other == number);
        if let Ok(found) = found {
            found.remove();
        }
    }

    /// The numbers of all, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.numbers.iter().copied()
    }
}
