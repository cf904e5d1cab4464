//! How many of something each owner may have, and whose turn it is.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Of the connections that are free, one owner may have one in so many: so one that takes all it can get leaves half of them to
/// others.
const OWNER_SHARE: usize = 2;

/// Numbers that have their turn in a round, and the bytes after which it ends.
const ROUND_NUMBERS: usize = 64;
const ROUND_BYTES: usize = 4 << 20;

/// Bytes that an owner uses up before another has its turn, and that each of its numbers counts as at least: a call of the system takes its time
/// for one byte, too.
const TURN_BYTES: usize = 512 << 10;
const NUMBER_BYTES: usize = 16 << 10;

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

/// Numbers of those that may have something to do. Owners take turns, and within an owner its numbers: so an owner with many gets no more than one
/// with few.
#[derive(Debug)]
pub struct Turns<Owner> {
    /// The numbers of each owner that has some, in their order.
    ready: HashMap<Owner, VecDeque<u64>>,
    waiting: HashSet<u64>,
    /// Those owners. The first has its turn.
    owners: VecDeque<Owner>,
    /// Bytes that the first has used up of its turn.
    used: usize,
    /// Numbers that are left of a round of all, and bytes.
    left: usize,
    bytes_left: usize,
}

impl<Owner> Default for Turns<Owner> {
    fn default() -> Turns<Owner> {
        let (ready, waiting, owners) = Default::default();
        Turns { ready, waiting, owners, used: 0, left: 0, bytes_left: 0 }
    }
}

impl<Owner: Copy + Eq + Hash> Turns<Owner> {
    pub fn add(&mut self, owner: Owner, number: u64) {
        if !self.waiting.insert(number) {
            return;
        }
        let numbers = self.ready.entry(owner).or_default();
        if numbers.is_empty() {
            self.owners.push_back(owner);
        }
        numbers.push_back(number);
    }

    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Begins a round: [`Turns::take`] returns some, and then none, though there may be more.
    pub fn begin_round(&mut self) {
        (self.left, self.bytes_left) = (ROUND_NUMBERS, ROUND_BYTES);
    }

    /// Takes the number that has its turn. [`Turns::done`] is to be called for each.
    pub fn take(&mut self) -> Option<(Owner, u64)> {
        if self.left == 0 || self.bytes_left == 0 {
            return None;
        }
        let owner = *self.owners.front()?;
        let numbers = self.ready.get_mut(&owner)?;
        let number = numbers.pop_front()?;
        self.waiting.remove(&number);
        if numbers.is_empty() {
            self.ready.remove(&owner);
            self.owners.pop_front();
            self.used = 0;
        }
        self.left -= 1;
        Some((owner, number))
    }

    /// A number that was taken has used up so many bytes, and may have more.
    pub fn done(&mut self, (owner, number): (Owner, u64), bytes: usize, has_more: bool) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        if has_more {
            self.add(owner, number);
        }
        if self.owners.front() == Some(&owner) {
            self.used += bytes.max(NUMBER_BYTES);
            if self.used >= TURN_BYTES {
                self.owners.rotate_left(1);
                self.used = 0;
            }
        }
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

    /// Takes a round, in which each has used up so many bytes and has more.
    fn round(turns: &mut Turns<u8>, bytes: usize) -> Vec<(u8, u64)> {
        turns.begin_round();
        let mut taken = Vec::new();
        while let Some(number) = turns.take() {
            turns.done(number, bytes, true);
            taken.push(number);
        }
        taken
    }

    #[test]
    fn each_has_its_turn_however_often_it_is_added() {
        let mut turns = Turns::default();
        for number in [7, 1, 4, 7, 1, 4] {
            turns.add(0, number);
        }
        turns.begin_round();
        let mut next = |has_more| {
            let taken = turns.take();
            taken.inspect(|taken| turns.done(*taken, 1, has_more))
        };
        assert_eq!([next(true), next(true)], [Some((0, 7)), Some((0, 1))]);
        let rest = [Some((0, 4)), Some((0, 7)), Some((0, 1)), None];
        assert_eq!([(); 4].map(|()| next(false)), rest);
        assert!(turns.is_empty());
    }

    #[test]
    fn owner_with_many_gets_little_more_than_one_with_few() {
        let mut turns = Turns::default();
        (0..1000).for_each(|number| turns.add(1, number));
        turns.add(2, 1000);
        turns.add(3, 1001);
        for bytes in [1, NUMBER_BYTES, TURN_BYTES] {
            let taken: Vec<_> = (0..100).flat_map(|_| round(&mut turns, bytes)).collect();
            let [many, few, other] =
                [1, 2, 3].map(|of| taken.iter().filter(|(owner, _)| *owner == of).count());
            let each = (TURN_BYTES / NUMBER_BYTES).min(TURN_BYTES / bytes);
            assert!(few.abs_diff(other) <= 1 && many <= each * (few + 1), "{many} {few} {other}");
            // All that has many gets its turn, too.
            let mut of_many: Vec<_> = taken.iter().filter(|(owner, _)| *owner == 1).collect();
            of_many.sort();
            of_many.dedup();
            assert_eq!(of_many.len(), many.min(1000));
        }
    }

    #[test]
    fn owner_whose_numbers_come_anew_all_the_time_holds_up_nobody() {
        let mut turns = Turns::default();
        (0..200).for_each(|number| turns.add(1, number));
        turns.add(2, 0x1000);
        for number in 200.. {
            turns.begin_round();
            while let Some(taken) = turns.take() {
                turns.done(taken, TURN_BYTES, false);
                turns.add(1, number);
                if taken.0 == 2 {
                    return;
                }
            }
            assert!(number < 300);
        }
    }

    #[test]
    fn round_has_an_end() {
        let mut turns = Turns::default();
        (0..1000).for_each(|number| turns.add(number as u8, number));
        assert_eq!(round(&mut turns, 1).len(), ROUND_NUMBERS);
        assert_eq!(round(&mut turns, TURN_BYTES).len(), ROUND_BYTES / TURN_BYTES);
    }
}
