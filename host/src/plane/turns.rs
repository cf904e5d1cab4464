//! The order in which connections are read: by user, so that a user with many connections has no more of the host's
//! processor time than one with few.
//!
//! Deficit round robin. In each round every user that has something to be read gets the same budget, in packets; a
//! request that costs more than a packet is charged with more. What a round has overdrawn is taken off the next.

use std::collections::{BTreeMap, HashSet, VecDeque};

use fabric::control::Owner;

/// The budget of a user in one round, in packets.
const PACKETS_PER_ROUND: i64 = 128;

/// Connections that have something to be read.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: BTreeMap<Owner, Line>,
    /// The user that was the first in the last round: the next begins behind it.
    first: Option<Owner>,
}

/// Those of one user, in the order of their turns.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<u64>,
    known: HashSet<u64>,
    budget: i64,
}

impl Turns {
    /// A connection has something to be read.
    pub(super) fn add(&mut self, owner: Owner, connection: u64) {
        let line = self.lines.entry(owner).or_default();
        if line.known.insert(connection) {
            line.waiting.push_back(connection);
        }
    }

    /// Users that have something to be read.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Owner> {
        self.lines.iter().filter(|(_, line)| !line.waiting.is_empty()).map(|(owner, _)| *owner)
    }

    /// Begins a round. Returns the users that have something to be read, each in its turn the first.
    pub(super) fn begin_round(&mut self) -> Vec<Owner> {
        // Who has nothing to be read saves nothing up.
        self.lines.retain(|_, line| !line.waiting.is_empty() || line.budget < 0);
        for line in self.lines.values_mut() {
            line.budget = (line.budget + PACKETS_PER_ROUND).min(PACKETS_PER_ROUND);
        }
        let mut owners: Vec<Owner> = self.waiting().collect();
        let behind = owners.iter().position(|owner| Some(*owner) > self.first).unwrap_or(0);
        owners.rotate_left(behind);
        self.first = owners.first().copied();
        owners
    }

    /// Returns true if a user has a connection to be read, and has not used up its budget.
    pub(super) fn has_next(&self, owner: Owner) -> bool {
        self.lines.get(&owner).is_some_and(|line| line.budget > 0 && !line.waiting.is_empty())
    }

    /// The next connection of a user to be read; none if the user has none, or has used up its budget.
    pub(super) fn next(&mut self, owner: Owner) -> Option<u64> {
        let line = self.lines.get_mut(&owner).filter(|line| line.budget > 0)?;
        let next = line.waiting.pop_front()?;
        line.known.remove(&next);
        Some(next)
    }

    /// Takes what was done for a user off its budget.
    pub(super) fn charge(&mut self, owner: Owner, packets: i64) {
        if let Some(line) = self.lines.get_mut(&owner) {
            line.budget -= packets;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = Owner::User(1);
    const TWO: Owner = Owner::User(2);

    #[test]
    fn user_with_many_connections_has_no_more_turns_than_one_with_one() {
        let mut turns = Turns::default();
        (0..1000).for_each(|connection| turns.add(ONE, connection));
        turns.add(TWO, 5000);
        let mut read = [0_i64, 0];
        for _ in 0..10 {
            for owner in turns.begin_round() {
                while let Some(connection) = turns.next(owner) {
                    turns.charge(owner, 3);
                    read[usize::from(owner == TWO)] += 3;
                    // There is always more.
                    turns.add(owner, connection);
                }
            }
        }
        assert!(read[0].abs_diff(read[1]) <= 3, "{read:?}");
        assert!(read[0].abs_diff(10 * PACKETS_PER_ROUND) <= 3, "{read:?}");
    }

    #[test]
    fn what_a_round_has_overdrawn_is_taken_off_the_next() {
        let mut turns = Turns::default();
        turns.add(ONE, 1);
        assert_eq!(turns.begin_round(), [ONE]);
        assert_eq!(turns.next(ONE), Some(1));
        turns.charge(ONE, 3 * PACKETS_PER_ROUND);
        turns.add(ONE, 1);
        turns.add(ONE, 1);
        for _ in 0..2 {
            turns.begin_round();
            assert_eq!(turns.next(ONE), None);
        }
        turns.begin_round();
        assert_eq!((turns.next(ONE), turns.next(ONE)), (Some(1), None));
        assert_eq!(turns.waiting().next(), None);
    }

    #[test]
    fn each_user_is_the_first_in_its_turn() {
        let mut turns = Turns::default();
        for owner in [ONE, TWO, Owner::Others] {
            turns.add(owner, 1);
        }
        let firsts: Vec<_> = (0..4).map(|_| turns.begin_round()[0]).collect();
        assert_eq!(firsts, [ONE, TWO, Owner::Others, ONE]);
    }
}
