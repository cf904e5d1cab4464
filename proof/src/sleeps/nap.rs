//! One sleep: an announcement, one more poll of the half, and a wait for the doorbell.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::path::{Counter, Receiver, Sender, Severed};
use os::doorbell::Listen;
use proof::dice::Dice;

/// What sleeps: a half of a path.
pub trait Half {
    /// Announces a sleep.
    fn announce_sleep(&mut self);
    /// Ends it.
    fn wake(&mut self);
    /// Listens to the doorbell, and returns how many rings were heard.
    fn hear(&mut self, listen: Listen) -> usize;
    /// Why the path has ended, if it has.
    fn ended(&self) -> Option<Severed>;
    /// How often this half has rung.
    fn rings(&mut self) -> u64;
}

impl Half for Sender {
    fn announce_sleep(&mut self) {
        Sender::announce_sleep(self);
    }

    fn wake(&mut self) {
        Sender::wake(self);
    }

    fn hear(&mut self, listen: Listen) -> usize {
        Sender::hear(self, listen)
    }

    fn ended(&self) -> Option<Severed> {
        Sender::ended(self)
    }

    fn rings(&mut self) -> u64 {
        self.counters().get(Counter::Rings)
    }
}

impl Half for Receiver {
    fn announce_sleep(&mut self) {
        Receiver::announce_sleep(self);
    }

    fn wake(&mut self) {
        Receiver::wake(self);
    }

    fn hear(&mut self, listen: Listen) -> usize {
        Receiver::hear(self, listen)
    }

    fn ended(&self) -> Option<Severed> {
        Receiver::ended(self)
    }

    fn rings(&mut self) -> u64 {
        self.counters().get(Counter::Rings)
    }
}

/// What a side leaves out, to show that the proof notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Flaw {
    /// It does not poll again once it has announced its sleep.
    NoLastPoll,
    /// It polls again and announces its sleep only then.
    LateAnnouncement,
}

/// What a side is doing, for the watching thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Anything but sleeping.
    Awake,
    /// It waits for its doorbell, without a limit.
    Listening,
    /// It has nothing more to do.
    Done,
}

/// The progress of a side, for the watching thread. Each is in cache lines of its own, and storing to it
/// orders nothing.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Gauge(AtomicU64);

impl Gauge {
    fn show(&self, sleeps: u64, phase: Phase) {
        self.0.store(sleeps << 2 | phase as u64, Ordering::Relaxed);
    }

    /// How many sleeps were announced, and what the side is doing.
    pub fn read(&self) -> (u64, Phase) {
        let word = self.0.load(Ordering::Relaxed);
        let phase = [Phase::Awake, Phase::Listening, Phase::Done][(word & 3) as usize];
        (word >> 2, phase)
    }
}

/// What became of a side's sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sleeps that were announced.
    pub announced: u64,
    /// Of these, ended by the last poll.
    pub caught: u64,
    /// Of these, that listened to the doorbell.
    pub listened: u64,
    /// Times that the kernel has put the thread to sleep.
    pub blocked: u64,
    /// Rings heard.
    pub rung: u64,
}

impl Counts {
    /// Adds those of another time.
    pub fn add(&mut self, other: &Counts) {
        self.announced += other.announced;
        self.caught += other.caught;
        self.listened += other.listened;
        self.blocked += other.blocked;
        self.rung += other.rung;
    }
}

/// How a side passes its time between two sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Turns of an empty loop that a delay has at most; one takes about a nanosecond.
    pub dawdle_turns_max: u64,
    /// Polls before a sleep is announced, at most.
    pub polls_max: u64,
    /// What is left out.
    pub flaw: Option<Flaw>,
}

/// Sleeps for one side.
#[derive(Debug)]
pub struct Sleeper<'a> {
    dice: Dice,
    habits: Habits,
    gauge: &'a Gauge,
    counts: Counts,
    /// About how many polls an answer takes: of a partner that was awake, and of one that was rung for.
    polls: [u64; 2],
    rings: u64,
}

/// Polls by which the first answers are reckoned.
const POLLS_AT_FIRST: u64 = 16;

impl<'a> Sleeper<'a> {
    /// A side that has not slept yet.
    pub fn new(seed: u64, habits: Habits, gauge: &'a Gauge) -> Sleeper<'a> {
        let polls = [POLLS_AT_FIRST.min(habits.polls_max); 2];
        let (dice, counts) = (Dice::new(seed), Counts::default());
        Sleeper { dice, habits, gauge, counts, polls, rings: 0 }
    }

    /// The side's dice.
    pub fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// Lets a time pass, of any order of magnitude from a nanosecond to some microseconds.
    pub fn dawdle(&mut self) {
        for turn in 0..self.dice.magnitude(self.habits.dawdle_turns_max) {
            black_box(turn);
        }
    }

    fn dawdle_seldom(&mut self) {
        if self.dice.one_in(8) {
            self.dawdle();
        }
    }

    /// Sleeps until `poll` finds something or the path has ended. `rings` is how often this side has rung so
    /// far: a partner that was rung for answers later.
    ///
    /// It polls some times first, about as long as the partner has lately taken, so that announcement and
    /// answer meet. Each sleep has one poll after the announcement and then none until the doorbell rings:
    /// were there more, they would make up for a wake-up that was lost.
    pub fn until<H: Half>(
        &mut self,
        half: &mut H,
        rings: u64,
        mut poll: impl FnMut(&mut H) -> bool,
    ) {
        let is_rung = usize::from(rings != self.rings);
        self.rings = rings;
        loop {
            let about = self.polls[is_rung];
            let polls = about - about / 4 + self.dice.below(about as usize / 2 + 1) as u64;
            if (0..polls).any(|_| poll(half)) {
                self.polls[is_rung] = about - about / 16;
                return;
            }
            self.dawdle_seldom();
            if self.habits.flaw == Some(Flaw::LateAnnouncement) && poll(half) {
                return;
            }
            half.announce_sleep();
            self.counts.announced += 1;
            self.dawdle_seldom();
            if self.habits.flaw.is_none() && poll(half) {
                half.wake();
                self.counts.caught += 1;
                self.gauge.show(self.counts.announced, Phase::Awake);
                return;
            }
            self.counts.listened += 1;
            self.gauge.show(self.counts.announced, Phase::Listening);
            self.dawdle_seldom();
            self.counts.rung += half.hear(Listen::Forever) as u64;
            self.gauge.show(self.counts.announced, Phase::Awake);
            half.wake();
            self.polls[is_rung] = (about + about / 8 + 1).min(self.habits.polls_max);
            if half.ended().is_some() || poll(half) {
                return;
            }
        }
    }

    /// Sleeps announced so far.
    pub fn announced(&self) -> u64 {
        self.counts.announced
    }

    /// The side has nothing more to do.
    pub fn done(self) -> Counts {
        self.gauge.show(self.counts.announced, Phase::Done);
        self.counts
    }
}
