//! The schedule of kills of adapters: drawn from the seed before anything starts.

use std::fmt;

use proof::dice::{Dice, mix};

use super::{ADAPTER, GUESTS, name};

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The process of the adapters.
    Adapter,
    /// A guest with a device.
    Guest,
    /// The host.
    Host,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Adapter, Kind::Guest, Kind::Host];

    /// What is counted under it, in words.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Adapter => "processes of adapters",
            Kind::Guest => "guests with devices",
            Kind::Host => "hosts of adapters",
        }
    }
}

/// One victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// The host.
    Host,
    /// The process of the adapters, or a guest.
    Party(usize),
}

impl Victim {
    /// What it is.
    pub fn kind(self) -> Kind {
        match self {
            Victim::Host => Kind::Host,
            Victim::Party(ADAPTER) => Kind::Adapter,
            Victim::Party(_) => Kind::Guest,
        }
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Victim::Host => formatter.write_str("the host"),
            Victim::Party(party) => formatter.write_str(&name(*party)),
        }
    }
}

/// One act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Kills.
    Kill(Victim),
    /// Starts again.
    Start(Victim),
    /// Waits so many microseconds.
    Wait(u64),
    /// Waits until everybody talks with everybody.
    Flow,
    /// Waits until all are quiet, and checks for leaks.
    Inspect,
}

impl fmt::Display for Act {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Kill(victim) => write!(formatter, "kill {victim}"),
            Act::Start(victim) => write!(formatter, "start {victim} again"),
            Act::Wait(microseconds) => write!(formatter, "wait {microseconds} us"),
            Act::Flow => formatter.write_str("wait until all talk with all"),
            Act::Inspect => formatter.write_str("check for leaks"),
        }
    }
}

/// Kills between two checks.
const KILLS_PER_INSPECTION: usize = 20;

/// Longest time between two kills that belong together, and between a kill and the next start, in microseconds.
const WAIT_US: u64 = 30_000;

/// Draws a schedule with at least so many kills.
pub fn draw(seed: u64, kills: usize) -> Vec<Act> {
    let mut dice = Dice::new(mix(seed ^ 2));
    let mut acts = vec![Act::Flow, Act::Inspect];
    let (mut killed, mut inspected) = (0, 0);
    while killed < kills {
        let mut blow = Vec::new();
        for _ in 0..=dice.below(3) {
            let victim = match dice.below(6) {
                0 => Victim::Host,
                1 | 2 => Victim::Party(ADAPTER),
                _ => Victim::Party(dice.below(GUESTS)),
            };
            if !blow.contains(&victim) {
                acts.extend([Act::Kill(victim), Act::Wait(dice.magnitude(WAIT_US))]);
                blow.push(victim);
            }
        }
        killed += blow.len();
        dice.shuffle(&mut blow);
        for victim in blow {
            acts.extend([Act::Start(victim), Act::Wait(dice.magnitude(WAIT_US))]);
        }
        if killed - inspected >= KILLS_PER_INSPECTION {
            inspected = killed;
            acts.extend([Act::Flow, Act::Inspect]);
        } else if dice.below(4) > 0 {
            acts.push(Act::Flow);
        }
    }
    acts.extend([Act::Flow, Act::Inspect]);
    acts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_killed_lives_and_is_started_again() {
        for seed in 0..200 {
            let (mut dead, mut kills) = (Vec::new(), 0);
            for act in draw(seed, 100) {
                match act {
                    Act::Kill(victim) => {
                        assert!(!dead.contains(&victim), "seed {seed}");
                        dead.push(victim);
                        kills += 1;
                    }
                    Act::Start(victim) => {
                        let at = dead.iter().position(|other| *other == victim);
                        dead.remove(at.expect("it is dead"));
                    }
                    Act::Flow | Act::Inspect => assert!(dead.is_empty(), "seed {seed}"),
                    Act::Wait(_) => {}
                }
            }
            assert!(dead.is_empty() && kills >= 100, "seed {seed}");
        }
    }

    #[test]
    fn seed_repeats_the_kills_and_everybody_is_killed() {
        let acts = draw(1, 100);
        assert_eq!(acts, draw(1, 100));
        for victim in (0..=ADAPTER).map(Victim::Party).chain([Victim::Host]) {
            assert!(acts.contains(&Act::Kill(victim)), "{victim}");
        }
    }
}
