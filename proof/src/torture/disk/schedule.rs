//! Whom the torture of disks kills, and when.

use std::fmt;

use proof::dice::{Dice, mix};

use super::WRITERS;

/// The longest time from writes that flow to a kill.
const RUN_US_MAX: usize = 20_000;

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// The control unit.
    Server,
    /// The host.
    Host,
    /// A guest that writes.
    Writer(usize),
}

impl fmt::Display for Victim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Victim::Server => formatter.write_str("the control unit"),
            Victim::Host => formatter.write_str("the host"),
            Victim::Writer(writer) => write!(formatter, "writer {writer}"),
        }
    }
}

/// Some are killed together, after all have written for a while. They are started again then.
#[derive(Clone, Debug)]
pub struct Round {
    /// How long all write, in microseconds.
    pub run_us: u64,
    /// Whom to kill, in this order.
    pub victims: Vec<Victim>,
}

impl fmt::Display for Round {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let victims: Vec<String> = self.victims.iter().map(Victim::to_string).collect();
        write!(formatter, "after {} us kill {}", self.run_us, victims.join(", "))
    }
}

/// The rounds of a seed, with so many kills at least.
pub fn draw(seed: u64, kills: usize) -> Vec<Round> {
    let mut dice = Dice::new(mix(seed));
    let (mut rounds, mut killed) = (Vec::new(), 0);
    while killed < kills {
        let run_us = dice.below(RUN_US_MAX) as u64;
        let victims = match dice.below(10) {
            0..=3 => vec![Victim::Server],
            4..=5 => vec![Victim::Host],
            6..=7 => vec![Victim::Writer(dice.below(WRITERS))],
            8 => vec![Victim::Host, Victim::Server],
            _ => {
                let writers = (0..WRITERS).map(Victim::Writer);
                let mut all: Vec<_> = writers.chain([Victim::Server, Victim::Host]).collect();
                dice.shuffle(&mut all);
                all
            }
        };
        killed += victims.len();
        rounds.push(Round { run_us, victims });
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_repeats_the_kills_and_everybody_is_killed() {
        let rounds = draw(7, 200);
        let again = draw(7, 200);
        let words = |rounds: &[Round]| rounds.iter().map(Round::to_string).collect::<Vec<_>>();
        assert_eq!(words(&rounds), words(&again));
        let killed: Vec<Victim> = rounds.iter().flat_map(|round| round.victims.clone()).collect();
        assert!(killed.len() >= 200 && killed.len() < 210);
        let writers = (0..WRITERS).map(Victim::Writer);
        for victim in writers.chain([Victim::Server, Victim::Host]) {
            assert!(killed.contains(&victim), "{victim}");
        }
    }
}
