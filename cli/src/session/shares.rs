//! How many of something each owner may have, and whose turn it is.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Of the connections that are free, one owner may have one in so many: so one that takes all it can get leaves half of them to
/// others.
const OWNER_SHARE: usize = 2;

/// How many of something there may be, and how many each owner has. Of those that are free one owner gets half, so that it leaves some to others.
#[derive(Debug)]
pub struct Shares<Owner> {
    pub most: usize,
    pub all: usize,
    of_owners: HashMap<Owner, usize>,
}

impl<Owner: Copy + Eq + Hash> Shares<Owner> {
    pub fn new(most: usize) -> Shares<Owner> {
        Shares { most, all: 0, of_owners: HashMap::new() }
    }

    pub fn of(&self, owner: Owner) -> usize {
        self.of_owners.get(&owner).copied().unwrap_or(0)
    }

    pub fn is_full(&self) -> bool {
        self.all >= self.most
    }

    /// Returns true if this owner may not have another, though others may.
    pub fn is_beyond(&self, owner: Owner) -> bool {
        let of_owner = self.of(owner);
        let free = self.most.saturating_sub(self.all - of_owner);
        of_owner >= free.div_ceil(OWNER_SHARE)
    }

    pub fn enter(&mut self, owner: Owner) {
        self.all += 1;
        *self.of_owners.entry(owner).or_insert(0) += 1;
    }

    pub fn leave(&mut self, owner: Owner) {
        let Some(of_owner) = self.of_owners.get_mut(&owner) else { return };
        self.all -= 1;
        *of_owner -= 1;
        if *of_owner == 0 {
            self.of_owners.remove(&owner);
        }
    }
}

/// Numbers of those that may have something to do. Some have their turn at a time, then others.
#[derive(Debug, Default)]
pub struct Turns {
    ready: BTreeSet<u64>,
    /// The first of these has its turn next.
    next: u64,
}

impl Turns {
    pub fn add(&mut self, number: u64) {
        self.ready.insert(number);
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Takes those whose turn it is. Whoever has more to do is added again.
    pub fn take(&mut self, most: usize) -> Vec<u64> {
        let behind = self.ready.range(self.next..).chain(self.ready.range(..self.next));
        let turn: Vec<u64> = behind.take(most).copied().collect();
        self.next = turn.last().map_or(0, |last| last + 1);
        for number in &turn {
            self.ready.remove(number);
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_leaves_half_of_what_is_free_to_others() {
        let mut shares = Shares::new(100);
        let mut take_all = |owner| {
            let before = shares.all;
            while !shares.is_beyond(owner) {
                shares.enter(owner);
            }
            shares.all - before
        };
        assert_eq!([0, 0, 1, 2, 3].map(&mut take_all), [50, 0, 25, 13, 6]);
        (0..50).for_each(|_| shares.leave(0));
        shares.leave(0);
        assert_eq!((shares.of(0), shares.all), (0, 44));
    }

    #[test]
    fn each_has_its_turn_however_often_it_is_added() {
        let mut turns = Turns::default();
        for number in [7, 1, 4, 7, 1, 4] {
            turns.add(number);
        }
        assert_eq!(turns.take(2), [1, 4]);
        turns.add(1);
        turns.add(4);
        assert_eq!(turns.take(2), [7, 1]);
        assert_eq!((turns.take(2), turns.is_empty()), (vec![4], true));
    }
}
