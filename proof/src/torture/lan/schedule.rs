//! The schedule of kills in a LAN: drawn from the seed before anything starts.

use std::fmt;

use proof::dice::Dice;

use super::{JOINED, MEMBERS, PARTIES};

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A member that makes its frames itself.
    Member,
    /// A program in `siga run`.
    Program,
    /// The port of such a program: `siga run` itself.
    Run,
    /// A process whose network a port has joined.
    Joined,
    /// The port that has joined it: `siga join`.
    Join,
    /// The host.
    Host,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] =
        [Kind::Member, Kind::Program, Kind::Run, Kind::Joined, Kind::Join, Kind::Host];

    /// What is counted under it, in words.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Member => "members of a LAN",
            Kind::Program => "programs in siga run",
            Kind::Run => "ports: siga run",
            Kind::Joined => "processes with a network that a port has joined",
            Kind::Join => "ports: siga join",
            Kind::Host => "hosts of a LAN",
        }
    }
}

/// One victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Victim {
    /// What it is.
    pub kind: Kind,
    /// Of which party; of the host, any.
    pub party: usize,
}

/// One thing that the supervisor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Kills.
    Kill(Victim),
    /// Starts again what was killed, and what has ended with it.
    Start(Victim),
    /// Lets so many microseconds pass.
    Wait(u64),
    /// Waits until parcels of every party have come to every other.
    Flow,
    /// Lets all fall quiet, compares what was counted, and checks for leaks.
    Inspect,
}

impl fmt::Display for Act {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Kill(Victim { kind, party }) => {
                write!(formatter, "kill party {party} ({})", kind.words())
            }
            Act::Start(Victim { party, .. }) => write!(formatter, "start party {party} again"),
            Act::Wait(microseconds) => write!(formatter, "wait {microseconds} us"),
            Act::Flow => formatter.write_str("wait until parcels flow between all"),
            Act::Inspect => formatter.write_str("compare counters and check for leaks"),
        }
    }
}

/// Kills between two checks.
const KILLS_PER_INSPECTION: usize = 20;

/// Longest time between two kills that belong together, and between a kill and the next start, in microseconds.
const WAIT_US: u64 = 30_000;

/// Draws a schedule with at least so many kills, of parties with ports only if these are possible.
pub fn draw(seed: u64, kills: usize, has_ports: bool) -> Vec<Act> {
    let mut dice = Dice::new(seed);
    let mut acts = vec![Act::Flow, Act::Inspect];
    let (mut killed, mut inspected) = (0, 0);
    while killed < kills {
        let mut blow = Vec::new();
        for _ in 0..=dice.below(3) {
            let victim = victim(&mut dice, has_ports);
            // What is dead, or dies with what is killed, is not killed again.
            let is_alive = |other: &Victim| match victim.kind {
                Kind::Host => other.kind != Kind::Host,
                _ => other.kind == Kind::Host || other.party != victim.party,
            };
            if blow.iter().all(is_alive) {
                acts.push(Act::Kill(victim));
                acts.push(Act::Wait(dice.magnitude(WAIT_US)));
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
        } else if dice.below(3) > 0 {
            acts.push(Act::Flow);
        }
    }
    acts.extend([Act::Flow, Act::Inspect]);
    acts
}

fn victim(dice: &mut Dice, has_ports: bool) -> Victim {
    let parties = if has_ports { PARTIES } else { MEMBERS };
    let party = dice.below(parties);
    let kind = match party {
        _ if dice.one_in(6) => Kind::Host,
        ..MEMBERS => Kind::Member,
        JOINED => {
            if dice.one_in(2) {
                Kind::Joined
            } else {
                Kind::Join
            }
        }
        _ => {
            if dice.one_in(2) {
                Kind::Program
            } else {
                Kind::Run
            }
        }
    };
    Victim { kind, party }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_killed_lives_and_is_started_again() {
        for seed in 0..200 {
            let (mut dead, mut kills) = (Vec::new(), 0);
            for act in draw(seed, 100, seed % 2 == 0) {
                match act {
                    Act::Kill(victim) => {
                        let is_host = victim.kind == Kind::Host;
                        let is_it = |other: &Victim| match is_host {
                            true => other.kind == Kind::Host,
                            false => other.kind != Kind::Host && other.party == victim.party,
                        };
                        assert!(!dead.iter().any(is_it), "seed {seed}");
                        assert!(seed % 2 == 0 || is_host || victim.kind == Kind::Member);
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
    fn everything_is_killed_in_the_end() {
        let acts = draw(1, 100, true);
        for kind in Kind::ALL {
            let is_it = |act: &&Act| matches!(act, Act::Kill(victim) if victim.kind == kind);
            assert!(acts.iter().filter(is_it).count() > 3, "{kind:?}");
        }
    }
}
