//! Medians, spreads and ratios of several trials.

use serde::Serialize;

use crate::state::{LineRange, is_one_state, join, states};

/// A figure of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Which trial.
    pub trial: u32,
    /// Its figure.
    pub value: f64,
    /// How near the processors were; none if nobody measured it.
    pub line: Option<LineRange>,
}

/// The figures of several trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The median; of an even number of trials, the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Where the true median lies, with a certainty of at least 95 %; none below six trials, which cannot say.
    pub interval: Option<(f64, f64)>,
    /// How many trials there were.
    pub trials: usize,
    /// The trial nearest to the median. Reports show its counters.
    pub representative: u32,
    /// Whether it is of all trials together, each of which is too short for it: then the ends of the interval stand for the least
    /// and the greatest.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_pooled: bool,
}

/// Trials from which on there is an interval.
pub const TRIALS_MIN: usize = 6;

/// How often an interval may miss the true median.
const ERROR_MAX: f64 = 0.05;

impl Summary {
    /// Of these samples; none if there are none.
    pub fn of(samples: &[Sample]) -> Option<Summary> {
        Summary::of_many(samples, 1)
    }

    /// The same, if it is one of so many that are judged together: the interval misses the true median so seldom that any of
    /// theirs does in at most one case of twenty.
    pub fn of_many(samples: &[Sample], questions: usize) -> Option<Summary> {
        let mut values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let median = median(&values)?;
        let trials = values.len();
        let interval = interval(&values, ERROR_MAX / questions as f64);
        let distance = |sample: &&Sample| (sample.value - median).abs();
        let nearest = samples.iter().min_by(|one, other| {
            distance(one).total_cmp(&distance(other)).then(one.trial.cmp(&other.trial))
        })?;
        Some(Summary {
            median,
            min,
            max,
            interval,
            trials,
            representative: nearest.trial,
            is_pooled: false,
        })
    }

    /// The distance from the least to the greatest, as a part of the median: infinite if the median is zero, and
    /// some trial is not.
    pub fn spread(&self) -> f64 {
        let distance = self.max - self.min;
        if distance == 0.0 { 0.0 } else { distance / self.median.abs() }
    }

    /// Whether `bound` cannot be told from the true median: it lies within the interval, or in trials too few for one
    /// among them.
    pub fn is_in_noise(&self, bound: f64) -> bool {
        let (least, most) = self.interval.unwrap_or((self.min, self.max));
        least < bound && bound < most
    }
}

/// The narrowest pair of sorted samples, both equally far from the ends, between which the median of what they are
/// drawn from lies in all cases but `error_max` of them: whatever is drawn, each sample is on either side of it with the same
/// chance, so that the number on one side has a binomial distribution. Six samples are the fewest that say so.
fn interval(sorted: &[f64], error_max: f64) -> Option<(f64, f64)> {
    let count = sorted.len();
    // The logarithm of the chance that exactly so many samples lie below: for a thousand samples and more the chance itself
    // rounds to zero. And the chance that at most so many do.
    let mut exactly = count as f64 * 0.5_f64.ln();
    let mut at_most = exactly.exp();
    let mut outside = 0;
    while 2.0 * at_most <= error_max {
        outside += 1;
        exactly += ((count - outside + 1) as f64 / outside as f64).ln();
        at_most += exactly.exp();
    }
    let least = outside.checked_sub(1)?;
    Some((sorted[least], sorted[count - 1 - least]))
}

/// How many times `base` something is that was not measured in turn with it: the ratio of the medians, and where the
/// ratio of the true medians lies. None where a base is not above zero.
///
/// The interval reaches from the lower end of the one interval divided by the upper end of the other, to the upper end
/// divided by the lower. It misses only if one of the two intervals does, in the direction that counts: never more than
/// one time in ten, whatever the trials are drawn from. Where both scatter alike it misses less than one time in
/// a hundred, and where only one scatters one time in twenty. An interval by ranks (Mann and Whitney) is narrower, and
/// misses up to one time in four where one side is skewed and the other is not, or has more trials and scatters less:
/// two results that were measured at different times are just so.
pub fn independent_ratio(of: &Summary, base: &Summary) -> Option<(f64, Option<(f64, f64)>)> {
    let ratio = (base.median > 0.0).then(|| of.median / base.median)?;
    let interval = of.interval.zip(base.interval).filter(|(_, base)| base.0 > 0.0);
    // An end below zero is farthest from it over the least base.
    let end = |of: f64, far: f64, near: f64| of / if of < 0.0 { near } else { far };
    let interval =
        interval.map(|(of, base)| (end(of.0, base.1, base.0), end(of.1, base.0, base.1)));
    Some((ratio, interval))
}

/// Leaves the samples of one state of the machine on both sides: of that in which both have most. None are left where
/// both were in one state each, and not in the same; all are where some do not say in which they were.
pub fn leave_common_state(of: &mut Vec<Sample>, base: &mut Vec<Sample>) {
    let lines = || of.iter().chain(&*base).map(|sample| sample.line);
    let Some(ranges) = lines().collect::<Option<Vec<LineRange>>>() else { return };
    let (states, _) = states(ranges);
    let is_in = |sample: &Sample, state: LineRange| {
        let line = sample.line.filter(|line| is_one_state(*line));
        line.is_some_and(|line| line.0 >= state.0 && line.1 <= state.1)
    };
    let in_both = |state: LineRange| {
        let count = |side: &[Sample]| side.iter().filter(|sample| is_in(sample, state)).count();
        count(of).min(count(base))
    };
    let common = states.into_iter().map(|(state, _)| (in_both(state), state));
    let common = common.max_by_key(|(trials, _)| *trials).filter(|(trials, _)| *trials > 0);
    for side in [of, base] {
        side.retain(|sample| common.is_some_and(|(_, state)| is_in(sample, state)));
    }
}

/// The middle of sorted numbers; of an even number of them, the mean of the two in the middle.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(sorted[(sorted.len() - 1) / 2].midpoint(upper))
}

/// The ratio of each sample to the base's sample of the same trial. Samples of the same trial ran in the same
/// round, so a disturbance that lasts longer than a round cancels out. A trial that only one side has does not
/// count, nor one whose base is zero, nor one whose processors were nearer on one side than on the other.
pub fn ratio(samples: &[Sample], base: &[Sample]) -> Vec<Sample> {
    pairwise(samples, base, |one, other| (other != 0.0).then(|| one / other))
}

/// The difference of each sample from the base's sample of the same trial. It leaves out what [`ratio`] does, but for zeros.
pub fn difference(samples: &[Sample], base: &[Sample]) -> Vec<Sample> {
    pairwise(samples, base, |one, other| Some(one - other))
}

fn pairwise(
    samples: &[Sample],
    base: &[Sample],
    compare: fn(f64, f64) -> Option<f64>,
) -> Vec<Sample> {
    let compared = |sample: &Sample| {
        let other = base.iter().find(|other| other.trial == sample.trial)?;
        let line = sample.line.zip(other.line).map(|(one, other)| join(one, other));
        let is_mixed = line.is_some_and(|line| !is_one_state(line));
        let value = (!is_mixed).then(|| compare(sample.value, other.value))??;
        Some(Sample { value, line, ..*sample })
    };
    samples.iter().filter_map(compared).collect()
}

/// Rounds that both sides have, and that no ratio or difference is made of: the processors were nearer on one side than on the
/// other, or moved during a trial.
pub fn mixed_rounds(samples: &[Sample], base: &[Sample]) -> usize {
    let is_of_both = |sample: &&Sample| base.iter().any(|other| other.trial == sample.trial);
    samples.iter().filter(is_of_both).count() - difference(samples, base).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(trial: u32, value: f64) -> Sample {
        Sample { trial, value, line: None }
    }

    fn samples(values: &[f64]) -> Vec<Sample> {
        (1..).zip(values).map(|(trial, value)| sample(trial, *value)).collect()
    }

    #[test]
    fn median_and_representative_are_from_the_middle() {
        let summary = Summary::of(&samples(&[30.0, 10.0, 21.0])).unwrap();
        assert_eq!((summary.median, summary.min, summary.max), (21.0, 10.0, 30.0));
        assert_eq!((summary.trials, summary.representative), (3, 3));
        let summary = Summary::of(&samples(&[30.0, 10.0, 20.0, 22.0])).unwrap();
        assert_eq!((summary.median, summary.representative), (21.0, 3), "the earlier of two");
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&samples(&[10.0, 20.0])).unwrap().spread(), 10.0 / 15.0);
        assert_eq!(Summary::of(&samples(&[0.0, 0.0])).unwrap().spread(), 0.0);
        assert_eq!(Summary::of(&samples(&[0.0, 0.0, 9.0])).unwrap().spread(), f64::INFINITY);
    }

    #[test]
    fn ratio_is_of_trials_of_the_same_round() {
        // The machine slows down from round to round, and the ratio does not notice.
        let ratios = ratio(&samples(&[40.0, 20.0, 10.0]), &samples(&[10.0, 5.0, 4.0]));
        let summary = Summary::of(&ratios).unwrap();
        assert_eq!((summary.median, summary.min, summary.max), (4.0, 2.5, 4.0));
        assert_eq!(summary.interval, None, "three trials do not say how sure they are");
        assert!(summary.is_in_noise(3.0));
        assert!(!summary.is_in_noise(2.5) && !summary.is_in_noise(4.5));
    }

    #[test]
    fn differences_are_of_the_same_trial() {
        let late = [sample(2, 1.5), sample(9, 1.0)];
        assert_eq!(difference(&samples(&[5.0, 7.0, 9.0]), &late), [sample(2, 5.5)]);
    }

    /// The places in tables of the sign test: for so many samples the interval ends so many before the ends.
    #[test]
    fn interval_is_that_of_the_tables() {
        for (count, outside) in [
            (6, 1),
            (8, 1),
            (9, 2),
            (11, 2),
            (12, 3),
            (15, 4),
            (20, 6),
            (25, 8),
            (30, 10),
            (50, 18),
            (100, 40),
        ] {
            let sorted: Vec<f64> = (1..=count).map(f64::from).collect();
            let (least, most) = interval(&sorted, ERROR_MAX).unwrap();
            assert_eq!(
                (least, most),
                (f64::from(outside), f64::from(count + 1 - outside)),
                "{count}"
            );
        }
        assert_eq!(interval(&[1.0; TRIALS_MIN - 1], ERROR_MAX), None);
        assert_eq!(interval(&[], ERROR_MAX), None);
        let thousands: Vec<f64> = (0..5000).map(f64::from).collect();
        let (least, most) = interval(&thousands, ERROR_MAX).unwrap();
        assert!((2428.0..2433.0).contains(&least) && most == 4999.0 - least, "{least} to {most}");
        let nine = samples(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let of_many = |questions| Summary::of_many(&nine, questions).unwrap().interval;
        assert_eq!([1, 12, 13].map(of_many), [Some((2.0, 8.0)), Some((1.0, 9.0)), None]);
    }

    #[test]
    fn trials_whose_processors_were_nearer_than_their_partners_do_not_count() {
        let of = |lines: [Option<LineRange>; 3]| {
            let with = |(sample, line): (Sample, Option<LineRange>)| Sample { line, ..sample };
            samples(&[6.0, 8.0, 9.0]).into_iter().zip(lines).map(with).collect::<Vec<_>>()
        };
        let near = Some((100.0, 120.0));
        let sides = [of([near, near, None]), of([near, Some((110.0, 400.0)), near])];
        let ratios = ratio(&sides[0], &sides[1]);
        assert_eq!(ratios.iter().map(|sample| sample.trial).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(difference(&sides[1], &sides[0]).len(), 2);
        assert_eq!(mixed_rounds(&sides[0], &sides[1]), 1);
        // In one state each, and not in the same.
        let far = of([Some((400.0, 410.0)); 3]);
        assert_eq!((ratio(&sides[0], &far).len(), mixed_rounds(&sides[0], &far)), (1, 2));
    }

    #[test]
    fn trials_without_a_partner_do_not_count_for_the_noise() {
        let late = [sample(9, 1.0)];
        assert_eq!(ratio(&samples(&[1.0]), &late), []);
        assert_eq!(ratio(&samples(&[1.0]), &[]), []);
        let zero = ratio(&samples(&[0.0, 3.0]), &samples(&[0.0, 2.0]));
        assert_eq!(zero, [sample(2, 1.5)], "nothing is so many times nothing");
    }
}
