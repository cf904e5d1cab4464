//! Times: how long things took, as a distribution.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::quantity::total;

/// The longest time that is told from longer ones.
pub const TIME_NS_MAX: u64 = 100_000_000_000;

/// A distribution of times: how often each was found. Times are known to a thousandth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// How many events each time is of, together: a time of one event is this part of it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub of: u64,
    /// Times in nanoseconds, ascending, and how often each was found.
    pub counts: Vec<(u64, u64)>,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_one(of: &u64) -> bool {
    *of == 1
}

/// A part of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimePart {
    /// The least time that this part of all keeps to, from 0 to 1.
    Quantile(f64),
    /// The one in the middle; of an even number the later of the two.
    Median,
    /// The mean.
    Mean,
    /// The longest.
    Max,
}

impl TimePart {
    /// By the name that metrics have for it.
    pub fn of(name: &str) -> Option<TimePart> {
        Some(match name {
            "median" => TimePart::Median,
            "mean" => TimePart::Mean,
            "max" => TimePart::Max,
            _ => {
                let digits = name.strip_prefix('p').filter(|digits| digits.len() >= 2)?;
                // p100 is no quantile: it would be read as p10.
                let is_whole = digits.len() > 2 && digits.trim_end_matches('0') == "1";
                let is_part = digits.bytes().all(|byte| byte.is_ascii_digit()) && !is_whole;
                TimePart::Quantile(is_part.then(|| format!("0.{digits}").parse().ok())??)
            }
        })
    }
}

impl Times {
    /// These times, each of `of` events.
    pub fn new(of: u64, times: impl IntoIterator<Item = u64>) -> Times {
        Times::counted(of, times.into_iter().map(|time| (time, 1)))
    }

    fn counted(of: u64, times: impl Iterator<Item = (u64, u64)>) -> Times {
        let mut counts = BTreeMap::<u64, u64>::new();
        for (time, count) in times {
            let sum = counts.entry(time).or_default();
            *sum = sum.saturating_add(count);
        }
        Times { of, counts: counts.into_iter().collect() }
    }

    /// How many times there are.
    pub fn count(&self) -> u64 {
        total(self.counts.iter().map(|(_, count)| *count))
    }

    /// The same with times to a hundredth: the middle of steps of less than a 64th.
    #[must_use]
    pub(crate) fn coarser(&self) -> Times {
        let coarse = self.counts.iter().map(|(time, count)| {
            let digits = 64 - time.leading_zeros();
            let step = 1u64 << digits.saturating_sub(7);
            (time / step * step + step / 2, *count)
        });
        Times::counted(self.of, coarse)
    }

    /// The least times that these parts keep to, of all these together, in nanoseconds of one event; 0 if there are no
    /// times.
    pub fn quantiles(all: &[&Times], parts: &[f64]) -> Vec<f64> {
        let ranked = Times::ranked(all);
        parts.iter().map(|part| quantile(&ranked, *part).unwrap_or(0.0)).collect()
    }

    /// All times of one event, and how often each was found.
    fn each(all: &[&Times]) -> impl Iterator<Item = (f64, u64)> {
        all.iter().flat_map(|times| {
            let of = times.of.max(1) as f64;
            times.counts.iter().map(move |(time, count)| (*time as f64 / of, *count))
        })
    }

    /// The same, ascending, each with how many there are up to it.
    fn ranked(all: &[&Times]) -> Vec<(f64, u64)> {
        let mut ranked: Vec<(f64, u64)> = Times::each(all).collect();
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut count = 0u64;
        for (_, up_to) in &mut ranked {
            count = count.saturating_add(*up_to);
            *up_to = count;
        }
        ranked
    }

    /// A part of the distribution of all these together, in nanoseconds of one event; none if there are no
    /// times.
    pub fn part(all: &[&Times], part: TimePart) -> Option<f64> {
        let ranked = Times::ranked(all);
        let (longest, count) = *ranked.last().filter(|(_, count)| *count > 0)?;
        match part {
            TimePart::Quantile(part) => quantile(&ranked, part),
            TimePart::Median => at_rank(&ranked, count / 2 + 1),
            TimePart::Mean => {
                let sum: f64 = Times::each(all).map(|(time, count)| time * count as f64).sum();
                Some(sum / count as f64)
            }
            TimePart::Max => Some(longest),
        }
    }
}

/// The time of this rank, from 1.
fn at_rank(ranked: &[(f64, u64)], rank: u64) -> Option<f64> {
    let place = ranked.partition_point(|(_, up_to)| *up_to < rank);
    ranked.get(place).or(ranked.last()).map(|(time, _)| *time)
}

fn quantile(ranked: &[(f64, u64)], part: f64) -> Option<f64> {
    let (_, count) = ranked.last()?;
    at_rank(ranked, ((part * *count as f64).ceil() as u64).max(1))
}

/// Times that are being taken.
#[derive(Debug)]
pub(crate) struct Taken(Histogram<u64>);

impl Taken {
    pub(crate) fn new() -> Taken {
        let histogram = Histogram::new_with_bounds(1, TIME_NS_MAX, 3);
        Taken(histogram.expect("these bounds are valid"))
    }

    #[inline]
    pub(crate) fn add(&mut self, time_ns: u64) {
        self.0.saturating_record(time_ns);
    }

    /// What was taken, each of `of` events; none if there is nothing.
    pub(crate) fn times(&self, of: u64) -> Option<Times> {
        let counts = self.0.iter_recorded();
        let counts = counts.map(|found| (found.value_iterated_to(), found.count_at_value()));
        (!self.0.is_empty()).then(|| Times { of, counts: counts.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn parts_of_a_distribution_are_those_of_the_histogram() {
        let mut taken = Taken::new();
        assert_eq!(taken.times(1), None);
        (1..=1000).for_each(|delay| taken.add(delay));
        taken.add(u64::MAX);
        let times = taken.times(1).unwrap();
        let part = |name| Times::part(&[&times], TimePart::of(name).unwrap()).unwrap();
        assert_eq!((part("p50"), part("p99"), part("p999")), (501.0, 991.0, 1000.0));
        assert_eq!(part("median"), 501.0);
        assert!(part("max") >= TIME_NS_MAX as f64 && part("max") < 1.001 * TIME_NS_MAX as f64);
        assert_eq!(times.count(), 1001);
        for wrong in ["p", "p5", "half", "p5x", ""] {
            assert_eq!(TimePart::of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_of_several_events_are_divided() {
        let eights = Times::new(8, [80, 160, 80]);
        let ones = Times::new(1, [30, 40]);
        assert_eq!(eights.counts, [(80, 2), (160, 1)]);
        assert_eq!(Times::part(&[&eights], TimePart::Median), Some(10.0));
        assert_eq!(Times::part(&[&eights, &ones], TimePart::Median), Some(20.0));
        assert_eq!(Times::part(&[&eights, &ones], TimePart::Mean), Some(22.0));
        assert_eq!(Times::part(&[], TimePart::Max), None);
        assert_eq!(Times::new(1, [30, 40]).coarser(), ones, "small ones are exact");
        let coarse = Times::new(1, [1_000_000, 1_000_001]).coarser();
        assert_eq!(coarse.counts.len(), 1);
        assert!(coarse.counts[0].0.abs_diff(1_000_000) < 10_000);
    }

    #[test]
    fn parts_of_a_distribution_are_those_of_the_sorted_list() {
        let mut random = Random::new();
        for _ in 0..200 {
            // Few values, so that many are found several times.
            let most = random.within(1, 50);
            let mut all: Vec<u64> =
                (0..random.within(1, 300)).map(|_| random.within(1, most)).collect();
            let (half, rest) = all.split_at(all.len() / 2);
            let parts = [half, rest].map(|part| Times::new(1, part.iter().copied()));
            let parts: Vec<&Times> = parts.iter().collect();
            all.sort_unstable();
            for digits in 2..=5 {
                // 0.99, 0.999 and so on, and any other quantile of as many digits, in whole numbers.
                let scale = 10u64.pow(digits);
                for numerator in [scale - 1, random.within(1, scale - 1)] {
                    let name = format!("p{numerator:0width$}", width = digits as usize);
                    let rank = (numerator * all.len() as u64).div_ceil(scale).max(1);
                    // 0.100 is written p10: p100 is refused.
                    let Some(part) = TimePart::of(&name) else { continue };
                    let found = Times::part(&parts, part);
                    // A rank that is whole may come out of the floating point one too high.
                    let plain = [rank, (rank + 1).min(all.len() as u64)];
                    let plain = plain.map(|rank| Some(all[rank as usize - 1] as f64));
                    let is_whole = (numerator * all.len() as u64).is_multiple_of(scale);
                    assert!(
                        found == plain[0] || is_whole && found == plain[1],
                        "{name} of {all:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn merged_histograms_agree_with_plain_arithmetic() {
        let mut random = Random::new();
        for _ in 0..50 {
            let mut all = Vec::new();
            let mut parts = Vec::new();
            for _ in 0..random.within(1, 4) {
                let mut taken = Taken::new();
                for _ in 0..random.within(1, 300) {
                    // Of all magnitudes up to ten seconds.
                    let digits = random.within(1, 10) as u32;
                    let time = random.within(1, 10u64.pow(digits));
                    taken.add(time);
                    all.push(time);
                }
                parts.push(taken.times(1).unwrap());
            }
            all.sort_unstable();
            let parts: Vec<&Times> = parts.iter().collect();
            let mean = all.iter().map(|time| *time as f64).sum::<f64>() / all.len() as f64;
            let at = |part: f64| all[((part * all.len() as f64).ceil() as usize).max(1) - 1] as f64;
            for (part, plain) in [
                (TimePart::Mean, mean),
                (TimePart::Median, all[all.len() / 2] as f64),
                (TimePart::Max, all[all.len() - 1] as f64),
                (TimePart::Quantile(0.5), at(0.5)),
                (TimePart::Quantile(0.99), at(0.99)),
                (TimePart::Quantile(0.999), at(0.999)),
            ] {
                let found = Times::part(&parts, part).unwrap();
                assert!((found / plain - 1.0).abs() < 0.0011, "{part:?}: {found}, not {plain}");
            }
        }
    }
}
