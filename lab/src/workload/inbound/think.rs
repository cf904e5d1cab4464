//! Time to think: each session's next request is due some time after its answer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::prelude::*;
use crate::random::Random;

/// How times to think are distributed.
pub(in crate::workload) const THOUGHTS: Factor = Factor {
    name: "thoughts",
    meaning: "how times to think are distributed: all alike, or as if a user did not remember for how long he has thought",
    domain: Domain::Words(&["constant", "exponential"]),
    usual: &["constant"],
};

/// Takes the distribution out where nobody thinks.
pub(super) fn fit(factors: &mut Factors) {
    if !factors.contains_key("think") {
        factors.remove(THOUGHTS.name);
    }
}

/// When the next request of each session is due that has its answer.
#[derive(Debug)]
pub(super) struct Think {
    mean_ns: f64,
    is_random: bool,
    /// Of each session, so that what one draws does not depend on when others do.
    random: Vec<Random>,
    /// The times and the sessions, the earliest first.
    due: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Think {
    /// None if nobody thinks. Each session begins somewhere in its first thought.
    pub(super) fn of(order: &Order, now_ns: u64) -> Option<Think> {
        let think_us = number(&order.factors, "think").filter(|us| *us > 0)?;
        let is_random = word(&order.factors, THOUGHTS.name) == "exponential";
        let sessions = order.number("sessions") as usize;
        Some(Think::new(think_us as f64 * 1e3, is_random, sessions, now_ns))
    }

    fn new(mean_ns: f64, is_random: bool, sessions: usize, now_ns: u64) -> Think {
        let random = (0..sessions).map(Random::of).collect();
        let mut think = Think { mean_ns, is_random, random, due: BinaryHeap::new() };
        for at in 0..sessions {
            // Of thoughts that are all alike, each session is at another part; of exponential ones any rest is as long as a whole one.
            let part = match is_random {
                true => think.next_part(at),
                false => (at as f64 + 1.0) / sessions as f64,
            };
            think.add(at, now_ns, part);
        }
        think
    }

    /// When the next request is due; never if no session has its answer.
    pub(super) fn due_ns(&self) -> u64 {
        self.due.peek().map_or(u64::MAX, |Reverse((due, _))| *due)
    }

    /// Takes the next request: when it was due, and of which session.
    pub(super) fn take(&mut self) -> Option<(u64, usize)> {
        self.due.pop().map(|Reverse(next)| next)
    }

    /// A session has its answer.
    pub(super) fn answered(&mut self, at: usize, now_ns: u64) {
        let part = if self.is_random { self.next_part(at) } else { 1.0 };
        self.add(at, now_ns, part);
    }

    fn add(&mut self, at: usize, now_ns: u64, part: f64) {
        self.due.push(Reverse((now_ns + (self.mean_ns * part) as u64, at)));
    }

    /// How long a thought is, as a part of the mean.
    fn next_part(&mut self, at: usize) -> f64 {
        // Above 0 and up to 1.
        let part = ((self.random[at].next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -part.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_constant_thoughts_are_spread_over_one() {
        let mut think = Think::new(1000.0, false, 4, 100);
        let due: Vec<_> = (0..4).map(|_| think.take().unwrap()).collect();
        assert_eq!(due, [(350, 0), (600, 1), (850, 2), (1100, 3)]);
        assert_eq!((think.due_ns(), think.take()), (u64::MAX, None));
        think.answered(2, 5000);
        assert_eq!(think.take(), Some((6000, 2)));
    }

    #[test]
    fn exponential_thoughts_have_their_mean_and_follow_from_the_seed() {
        let thoughts = || {
            let mut think = Think::new(1e6, true, 50, 0);
            let mut sum = 0;
            for round in 0..400 {
                for at in 0..50 {
                    let Some((due, _)) = think.take() else { panic!("{round} {at}") };
                    sum += due;
                }
                (0..50).for_each(|at| think.answered(at, 0));
            }
            sum as f64 / 20_000.0
        };
        let mean = thoughts();
        assert!((0.97e6..1.03e6).contains(&mean), "{mean}");
        assert_eq!(mean, thoughts());
    }
}
