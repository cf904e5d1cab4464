//! When the next request is due: as fast as they go, after a time to think, or by a schedule.
//!
//! A time is taken from when a request was due, so that a party that cannot keep up is seen to be late.

use std::thread::sleep;

use os::processor::thread_ns;
use os::sync::pause;

use super::prelude::*;
use crate::factor::is_absent;
use crate::measure::Window;
use crate::random::Random;
use crate::transport::End;

/// Requests that are offered in a second, whether answers come or not.
pub(super) const RATE: Factor = Factor {
    name: "rate",
    meaning: "requests offered in a second, whether answers keep up or not; 0: the next follows the answer",
    domain: Domain::Number { least: 0, most: 10_000_000 },
    usual: &["0"],
};

/// Time to think.
pub(super) const THINK: Factor = Factor {
    name: "think",
    meaning: "time from an answer to the next request, in microseconds; 0: none",
    domain: Domain::Number { least: 0, most: 60_000_000 },
    usual: &["0"],
};

/// How the times between requests of a schedule are distributed.
pub(super) const ARRIVALS: Factor = Factor {
    name: "arrivals",
    meaning: "how the times between requests of a schedule are distributed: all alike, or as if nobody knew of the others",
    domain: Domain::Words(&["constant", "poisson"]),
    usual: &["constant"],
};

/// Takes out what does not apply: an open loop does not think, and a closed one has no schedule. Arrivals that are all alike are
/// not named.
pub(super) fn fit(factors: &mut Factors) {
    factors.retain(|name, level| !is_absent(name, level));
    let is_open = factors.contains_key("rate") || factors.contains_key("load_percent");
    if is_open {
        factors.remove("think");
    }
    if !is_open || word(factors, "arrivals") == "constant" {
        factors.remove("arrivals");
    }
}

/// When requests are due.
#[derive(Debug)]
pub(super) struct Pace {
    /// Whether requests are due by a schedule. Otherwise the next is due some time after the answer.
    is_open: bool,
    /// The time between two by the schedule, on average if it is random; or between an answer and the next request.
    mean_ns: f64,
    is_random: bool,
    /// Whether waiting is polling the clock.
    spins: bool,
    due_ns: f64,
    random: Random,
}

/// How much earlier than asked a sleeper gets up, to poll the clock for the rest: the kernel's timers and the
/// way out of sleep are this late.
const EARLY: Duration = Duration::from_micros(100);

/// A wait in which nobody is interrupted in most cases: the clock says what it cost, which asking the kernel would double.
const SHORT: Duration = Duration::from_micros(5);

/// Times of requests that were never sent, at most: beyond, a distribution says nothing more.
const UNSENT_TIMES_MAX: u64 = 1_000_000;

impl Pace {
    /// The pace that is ordered; none if requests go as fast as they can. The first is due at `now_ns`.
    pub(super) fn of(order: &Order, now_ns: u64) -> Option<Pace> {
        let ordered = |factor| number(&order.factors, factor).filter(|number| *number > 0);
        if let Some(rate) = ordered("rate") {
            return Some(Pace::at(order, rate as f64, now_ns));
        }
        let mean_ns = ordered("think")? as f64 * 1e3;
        Some(Pace { is_open: false, mean_ns, ..Pace::at(order, 1.0, now_ns) })
    }

    /// A schedule of so many requests in a second.
    pub(super) fn at(order: &Order, rate: f64, now_ns: u64) -> Pace {
        Pace {
            is_open: true,
            mean_ns: 1e9 / rate,
            is_random: order.factors.contains_key("arrivals"),
            spins: order.word("wait") == "spin",
            due_ns: now_ns as f64,
            // Copies of a role do not think in step.
            random: Random::of(order.number),
        }
    }

    /// Makes each exchange when it is due, and takes its time. The meter counts `messages` of an exchange. A loop of
    /// its own: the loops of workloads without a pace are measured in nanoseconds.
    pub(super) fn run<E: End>(
        mut self,
        mut end: E,
        window: Window,
        mut meter: Meter,
        messages: u64,
        mut exchange: impl FnMut(&mut E, u64) -> Result<(), Fault>,
    ) -> Result<Report, Fault> {
        let mut number = 0;
        loop {
            let due = self.due_ns();
            // Edges of the window that come before it are noted when they come.
            loop {
                let edge = meter.edge_ns().min(window.end_ns);
                let now = self.wait(due.min(edge), &mut meter);
                meter.poll(now, messages * number, || end.counts());
                if edge > due || now >= window.end_ns {
                    break;
                }
            }
            if due >= window.end_ns || now_ns() >= window.end_ns {
                break;
            }
            exchange(&mut end, number)?;
            number += 1;
            let now = now_ns();
            meter.time(now - due);
            meter.poll(now, messages * number, || end.counts());
            self.answered(now);
        }
        let unsent = self.leave_unsent(window.end_ns, |waited_ns| meter.time_late(waited_ns));
        meter.add_settings(unsent);
        meter.close_end(end, messages * number)
    }

    /// When the next request is due.
    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns as u64
    }

    /// The answer came at `now_ns`: sets when the next request is due.
    pub(super) fn answered(&mut self, now_ns: u64) {
        let from_ns = if self.is_open { self.due_ns } else { now_ns as f64 };
        let part = if self.is_random { -self.next_part().ln() } else { 1.0 };
        self.due_ns = from_ns + self.mean_ns * part;
    }

    /// Ends a schedule at `end_ns`: requests that were due before it and were not sent are counted, and each has waited
    /// at least until then. Without these a party that stalls would report the times of its good part alone.
    pub(super) fn leave_unsent(&mut self, end_ns: u64, mut waited: impl FnMut(u64)) -> Counts {
        if !self.is_open {
            return Counts::new();
        }
        let mut unsent = 0;
        while self.due_ns() < end_ns {
            if unsent < UNSENT_TIMES_MAX {
                waited(end_ns - self.due_ns());
            }
            unsent += 1;
            self.due_ns += self.mean_ns;
        }
        [("requests_unsent".to_owned(), unsent)].into()
    }

    /// Waits until `until_ns`, and returns the time. What that costs is pacing.
    pub(super) fn wait(&self, until_ns: u64, meter: &mut Meter) -> u64 {
        let began_ns = now_ns();
        let left = Duration::from_nanos(until_ns.saturating_sub(began_ns));
        if left < SHORT {
            let now = poll_clock(until_ns);
            // Whoever is interrupted meanwhile has not paid for that.
            meter.pace((now - began_ns).min(SHORT.as_nanos() as u64));
            return now;
        }
        let spent_ns = thread_ns();
        if !self.spins && left > EARLY {
            sleep(left - EARLY);
        }
        let now = poll_clock(until_ns);
        meter.pace(thread_ns() - spent_ns);
        now
    }

    /// A number above 0 and up to 1.
    fn next_part(&mut self) -> f64 {
        ((self.random.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

fn poll_clock(until_ns: u64) -> u64 {
    loop {
        let now = now_ns();
        if now >= until_ns {
            return now;
        }
        pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(is_open: bool, mean_ns: f64, is_random: bool) -> Pace {
        Pace { is_open, mean_ns, is_random, spins: true, due_ns: 1000.0, random: Random::of(0) }
    }

    #[test]
    fn schedule_goes_on_whether_the_party_keeps_up_or_not() {
        let mut open = pace(true, 100.0, false);
        assert_eq!(open.due_ns(), 1000);
        open.answered(1050);
        assert_eq!(open.due_ns(), 1100);
        // Late by far: the next was due long ago.
        open.answered(5000);
        assert_eq!(open.due_ns(), 1200);
    }

    #[test]
    fn random_arrivals_come_as_often_and_as_far_apart_as_poisson_says() {
        let mut open = pace(true, 1e3, true);
        let mut gaps = Vec::new();
        for _ in 0..20_000 {
            let before = open.due_ns;
            open.answered(0);
            gaps.push(open.due_ns - before);
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((0.95e3..1.05e3).contains(&mean), "{mean}");
        // Of exponential times the deviation is as great as the mean, and e^-3 of them are longer than three means.
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.9e3..1.1e3).contains(&variance.sqrt()), "{variance}");
        let long = gaps.iter().filter(|gap| **gap > 3e3).count() as f64 / gaps.len() as f64;
        assert!((0.04..0.06).contains(&long), "{long}");
    }

    #[test]
    fn time_to_think_begins_with_the_answer() {
        let mut closed = pace(false, 100.0, false);
        closed.answered(5000);
        assert_eq!(closed.due_ns(), 5100);
    }

    #[test]
    fn factors_of_a_pace_that_is_none_are_left_out() {
        let fitted = |rate: u64, think: u64| {
            let mut factors: Factors = [("rate", rate), ("think", think)]
                .map(|(n, l)| (n.into(), Level::Number(l)))
                .into();
            factors.insert("arrivals".into(), Level::Word("poisson".into()));
            fit(&mut factors);
            factors.into_keys().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(fitted(0, 0), "");
        assert_eq!(fitted(100, 0), "arrivals rate");
        assert_eq!(fitted(100, 5), "arrivals rate", "an open loop does not think");
        assert_eq!(fitted(0, 5), "think");
    }
}
