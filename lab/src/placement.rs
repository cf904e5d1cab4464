//! Placement: which processors the parties of a trial run on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where the copies of a role run, as it is written in a case file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "lowercase",
    expecting = "this is no placement: must be a processor, or one of own, shared, any"
)]
pub enum Placement {
    /// Each on a processor that no other party has. Where there are too few, they share them in turn.
    Own,
    /// Together on the processors that no party has to itself. Where there are none, on all.
    Shared,
    /// Wherever the kernel runs them.
    Any,
    /// All on this processor.
    #[serde(untagged)]
    Processor(usize),
}

/// What a case says of placement, by role. Roles that are not there have their default.
pub type Placements = BTreeMap<String, Placement>;

/// The processors of a party; none if the kernel chooses.
pub(crate) type Processors = Vec<usize>;

/// A case asks for a processor that this process may not use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoSuchProcessor(pub(crate) usize);

/// The processors of each party. `allowed` are the processors of this process, in the order in which they are
/// given away; if there are none, every party runs anywhere.
pub(crate) fn assign(
    allowed: &[usize],
    parties: &[Placement],
) -> Result<Vec<Processors>, NoSuchProcessor> {
    if allowed.is_empty() {
        return Ok(vec![Vec::new(); parties.len()]);
    }
    let mut taken = Vec::new();
    for party in parties {
        if let Placement::Processor(processor) = party {
            if !allowed.contains(processor) {
                return Err(NoSuchProcessor(*processor));
            }
            taken.push(*processor);
        }
    }
    let without = |taken: &[usize]| -> Vec<usize> {
        let free = allowed.iter().copied().filter(|processor| !taken.contains(processor));
        let free: Vec<usize> = free.collect();
        if free.is_empty() { allowed.to_vec() } else { free }
    };
    let pool = without(&taken);
    let own = parties.iter().filter(|party| **party == Placement::Own).count();
    taken.extend(pool.iter().copied().take(own));
    let shared = without(&taken);
    let mut next_own = pool.iter().copied().cycle();
    let of_party = |party: &Placement| match party {
        Placement::Processor(processor) => vec![*processor],
        Placement::Own => next_own.by_ref().take(1).collect(),
        Placement::Shared => shared.clone(),
        Placement::Any => Vec::new(),
    };
    Ok(parties.iter().map(of_party).collect())
}

/// For each party the processors whose times it notes: each processor of the trial is noted by one party, by
/// one that has it to itself if there is one.
pub(crate) fn watched(places: &[Processors]) -> Vec<Processors> {
    let mut watched = vec![Vec::new(); places.len()];
    let mut processors: Vec<usize> = places.iter().flatten().copied().collect();
    processors.sort_unstable();
    processors.dedup();
    for processor in processors {
        let alone = places.iter().position(|place| *place == [processor]);
        let by = alone.or_else(|| places.iter().position(|place| place.contains(&processor)));
        watched[by.expect("it is in some party's place")].push(processor);
    }
    watched
}

#[cfg(test)]
mod tests {
    use super::Placement::{Any, Own, Processor, Shared};
    use super::*;

    #[test]
    fn every_party_gets_what_its_role_asks_for() {
        let places = assign(&[1, 3, 2, 0], &[Any, Own, Own, Shared, Processor(3), Shared]);
        let places = places.unwrap();
        assert_eq!(places, [vec![], vec![1], vec![2], vec![0], vec![3], vec![0]]);
        assert_eq!(watched(&places), [vec![], vec![1], vec![2], vec![0], vec![3], vec![]]);
        assert_eq!(assign(&[0, 1], &[Processor(7)]), Err(NoSuchProcessor(7)));
        assert_eq!(assign(&[], &[Own, Processor(7)]).unwrap(), [vec![], vec![]] as [Vec<usize>; 2]);
    }

    #[test]
    fn too_few_processors_are_shared_in_turn() {
        let places = assign(&[0, 1], &[Own, Own, Own, Own, Own]).unwrap();
        assert_eq!(places, [[0], [1], [0], [1], [0]]);
        assert_eq!(watched(&places), [vec![0], vec![1], vec![], vec![], vec![]]);
        // Nobody has a processor to itself: those that share have all.
        let places = assign(&[0, 1], &[Own, Own, Shared]).unwrap();
        assert_eq!(places, [vec![0], vec![1], vec![0, 1]]);
        assert_eq!(assign(&[5], &[Own, Own]).unwrap(), [[5], [5]]);
        // Those that share leave a named processor alone.
        let places = assign(&[0, 1], &[Shared, Processor(0), Shared]).unwrap();
        assert_eq!(places, [[1], [0], [1]]);
        assert_eq!(watched(&places), [vec![1], vec![0], vec![]]);
    }
}
