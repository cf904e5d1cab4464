//! The schedule of kills: drawn from the seed before anything starts.

use std::fmt;

use proof::dice::Dice;
use proof::hoard::Exhaustion;

use super::wire::Role;

/// One thing that the supervisor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Kills a process.
    Kill(Role, Kind),
    /// Starts it again.
    Start(Role),
    /// Lets so many microseconds pass.
    Wait(u64),
    /// Waits until messages have come through every path that there is.
    Flow,
    /// Waits until every guest has a path to every other, and the host accounts for all of them.
    Settle,
    /// Quiesces all guests and checks for leaks.
    Inspect,
    /// Has something used up by a guest that has a path to this one, and lets messages flow meanwhile.
    Exhaust(Exhaustion, usize),
    /// Has it let go of.
    LetGo,
}

/// What a kill is meant to hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A guest among talking guests.
    Guest,
    /// A guest that was started a moment ago: it attaches, connects, or not even that.
    Young,
    /// Several guests at the same time.
    Burst,
    /// The host.
    Host,
    /// A host that was started a moment ago: guests attach to it again.
    YoungHost,
    /// A guest while there is no host.
    Orphan,
    /// A guest that has used something up.
    Hoarder,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] = [
        Kind::Guest,
        Kind::Young,
        Kind::Burst,
        Kind::Host,
        Kind::YoungHost,
        Kind::Orphan,
        Kind::Hoarder,
    ];

    /// What is counted under it, in words.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Guest => "guests at work",
            Kind::Young => "guests just started",
            Kind::Burst => "guests in bursts",
            Kind::Host => "hosts at work",
            Kind::YoungHost => "hosts just started",
            Kind::Orphan => "guests without a host",
            Kind::Hoarder => "guests that have used something up",
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Kill(role, kind) => write!(formatter, "kill {role} ({})", kind.words()),
            Act::Start(role) => write!(formatter, "start {role}"),
            Act::Wait(microseconds) => write!(formatter, "wait {microseconds} us"),
            Act::Flow => formatter.write_str("wait until messages flow"),
            Act::Settle => formatter.write_str("wait until all is as before"),
            Act::Inspect => formatter.write_str("check for leaks"),
            Act::Exhaust(exhaustion, peer) => {
                write!(formatter, "exhaust, with a path to guest {peer}: {}", exhaustion.words())
            }
            Act::LetGo => formatter.write_str("let go"),
        }
    }
}

/// Kills and exhaustions between two checks for leaks.
const DEEDS_PER_INSPECTION: usize = 40;

/// Of so many exhaustions, one ends with a kill.
const EXHAUSTIONS_PER_KILL: usize = 8;

/// Longest time between the start of a process and its second death, in microseconds.
const YOUTH_US: u64 = 30_000;

/// Longest time between a settled mesh and the next kill, in microseconds.
const PEACE_US: u64 = 60_000;

/// What a schedule has, at least.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Kills.
    pub kills: usize,
    /// Exhaustions.
    pub exhaustions: usize,
    /// Of these kinds.
    pub kinds: Vec<Exhaustion>,
    /// Among so many guests.
    pub guests: usize,
}

/// Draws a schedule.
pub fn draw(seed: u64, wanted: &Wanted) -> Vec<Act> {
    let Wanted { kills, exhaustions, ref kinds, guests } = *wanted;
    let mut drawing = Drawing { dice: Dice::new(seed), guests, acts: Vec::new(), kills: 0 };
    let mut exhausted = 0;
    drawing.acts.extend([Act::Settle, Act::Flow]);
    // What is there only once is there after a first round, which is not inspected.
    drawing.guest();
    drawing.host();
    drawing.acts.extend([Act::Settle, Act::Inspect]);
    let mut inspected = drawing.kills;
    loop {
        let left = (kills.saturating_sub(drawing.kills), exhaustions - exhausted);
        match left {
            (0, 0) => break,
            (_, 0) => drawing.next(),
            (kills, exhaustions) if drawing.dice.below(kills + exhaustions) < kills => {
                drawing.next();
            }
            (kills, _) => {
                // Each kind in its turn, the dear ones too.
                drawing.exhaust(kinds[exhausted % kinds.len()], kills > 0);
                exhausted += 1;
            }
        }
        if drawing.kills + exhausted - inspected >= DEEDS_PER_INSPECTION {
            inspected = drawing.kills + exhausted;
            drawing.acts.extend([Act::Settle, Act::Inspect]);
        }
    }
    drawing.acts.extend([Act::Settle, Act::Flow, Act::Inspect]);
    drawing.acts
}

struct Drawing {
    dice: Dice,
    guests: usize,
    acts: Vec<Act>,
    kills: usize,
}

impl Drawing {
    fn next(&mut self) {
        // Some blows fall while the wounds of the last are still open.
        match self.dice.below(3) {
            0 => {}
            1 => self.acts.push(Act::Settle),
            _ => self.acts.extend([Act::Settle, Act::Flow]),
        }
        self.wait(PEACE_US);
        match self.dice.below(100) {
            0..50 => self.guest(),
            50..64 => self.young(),
            64..74 => self.burst(),
            74..86 => self.host(),
            86..92 => self.young_host(),
            _ => self.orphan(),
        }
    }

    fn exhaust(&mut self, exhaustion: Exhaustion, may_kill: bool) {
        let peer = self.dice.below(self.guests);
        self.acts.extend([Act::Settle, Act::Exhaust(exhaustion, peer)]);
        if may_kill && self.dice.one_in(EXHAUSTIONS_PER_KILL) {
            self.kill(Role::Hoarder, Kind::Hoarder);
            self.start(Role::Hoarder);
        } else {
            self.acts.push(Act::LetGo);
        }
    }

    fn any(&mut self) -> Role {
        Role::Guest(self.dice.below(self.guests))
    }

    fn wait(&mut self, most_us: u64) {
        let microseconds = self.dice.magnitude(most_us);
        self.acts.push(Act::Wait(microseconds));
    }

    fn kill(&mut self, role: Role, kind: Kind) {
        self.kills += 1;
        self.acts.push(Act::Kill(role, kind));
    }

    fn start(&mut self, role: Role) {
        self.acts.push(Act::Start(role));
    }

    fn guest(&mut self) {
        let guest = self.any();
        self.kill(guest, Kind::Guest);
        self.start(guest);
    }

    fn young(&mut self) {
        let guest = self.any();
        self.kill(guest, Kind::Guest);
        for _ in 0..=self.dice.below(3) {
            self.start(guest);
            self.wait(YOUTH_US);
            self.kill(guest, Kind::Young);
        }
        self.start(guest);
    }

    fn burst(&mut self) {
        let mut all: Vec<Role> = (0..self.guests).map(Role::Guest).collect();
        self.dice.shuffle(&mut all);
        all.truncate(2 + self.dice.below(self.guests - 1));
        let spread = self.dice.one_in(2);
        for guest in &all {
            if spread {
                self.wait(500);
            }
            self.kill(*guest, Kind::Burst);
        }
        self.dice.shuffle(&mut all);
        all.into_iter().for_each(|guest| self.start(guest));
    }

    fn host(&mut self) {
        self.kill(Role::Host, Kind::Host);
        self.acts.push(Act::Flow);
        self.wait(PEACE_US);
        self.start(Role::Host);
    }

    fn young_host(&mut self) {
        self.kill(Role::Host, Kind::Host);
        for _ in 0..=self.dice.below(2) {
            self.start(Role::Host);
            // Guests search for a new host ten times a second.
            self.wait(4 * YOUTH_US);
            self.kill(Role::Host, Kind::YoungHost);
        }
        self.start(Role::Host);
    }

    /// First the host, then guests; and then either is there first again.
    fn orphan(&mut self) {
        self.kill(Role::Host, Kind::Host);
        let mut dead = Vec::new();
        for _ in 0..=self.dice.below(2) {
            self.wait(YOUTH_US);
            let guest = self.any();
            if !dead.contains(&guest) {
                dead.push(guest);
                self.kill(guest, Kind::Orphan);
            }
        }
        if self.dice.one_in(2) {
            self.acts.push(Act::Flow);
        }
        dead.insert(self.dice.below(dead.len() + 1), Role::Host);
        for role in dead {
            self.start(role);
            self.wait(YOUTH_US);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(kills: usize, exhaustions: usize) -> Wanted {
        Wanted { kills, exhaustions, kinds: Exhaustion::ALL.to_vec(), guests: 3 }
    }

    #[test]
    fn seed_repeats_the_schedule_and_every_process_is_started_before_it_is_killed() {
        assert_eq!(draw(1, &wanted(200, 9)), draw(1, &wanted(200, 9)));
        assert_ne!(draw(1, &wanted(200, 9)), draw(2, &wanted(200, 9)));
        for seed in 0..50 {
            let mut dead = Vec::new();
            let (mut kills, mut exhaustions, mut is_exhausted) = (0, 0, false);
            for act in draw(seed, &wanted(100, 50)) {
                match act {
                    Act::Kill(role, _) => {
                        assert!(!dead.contains(&role), "seed {seed}");
                        assert_eq!(role == Role::Hoarder, is_exhausted, "seed {seed}");
                        is_exhausted = false;
                        dead.push(role);
                        kills += 1;
                    }
                    Act::Start(role) => {
                        assert!(dead.contains(&role), "seed {seed}");
                        dead.retain(|other| *other != role);
                    }
                    Act::Settle | Act::Inspect => {
                        assert!(dead.is_empty() && !is_exhausted, "seed {seed}");
                    }
                    Act::Exhaust(..) => {
                        assert!(dead.is_empty() && !is_exhausted, "seed {seed}");
                        is_exhausted = true;
                        exhaustions += 1;
                    }
                    Act::LetGo => {
                        assert!(is_exhausted, "seed {seed}");
                        is_exhausted = false;
                    }
                    Act::Wait(_) | Act::Flow => {}
                }
            }
            assert!(kills >= 100 && dead.is_empty(), "seed {seed}");
            assert_eq!(exhaustions, 50, "seed {seed}");
        }
    }

    #[test]
    fn everything_is_used_up_in_its_turn() {
        let acts = draw(1, &wanted(0, 14));
        for kind in Exhaustion::ALL {
            let is_it = |act: &&Act| matches!(act, Act::Exhaust(used_up, _) if *used_up == kind);
            assert_eq!(acts.iter().filter(is_it).count(), 2, "{kind:?}");
        }
    }
}
