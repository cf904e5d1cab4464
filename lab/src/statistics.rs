//! What several trials say together, and how sure it is.

/// A figure of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Which trial.
    pub trial: u32,
    /// What it says.
    pub value: f64,
}

/// The figures of several trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle one; of an even number, between the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many there were.
    pub trials: usize,
    /// The trial that is nearest to the median: its counters stand for all.
    pub representative: u32,
}

impl Summary {
    /// Of these samples; none if there are none.
    pub fn of(samples: &[Sample]) -> Option<Summary> {
        let values = sorted(samples.iter().map(|sample| sample.value));
        let (min, max) = (*values.first()?, *values.last()?);
        let median = median(&values)?;
        let distance = |sample: &&Sample| (sample.value - median).abs();
        let nearest = samples.iter().min_by(|one, other| {
            distance(one).total_cmp(&distance(other)).then(one.trial.cmp(&other.trial))
        })?;
        Some(Summary { median, min, max, trials: values.len(), representative: nearest.trial })
    }

    /// How far the trials lie apart, as part of the median.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median.abs() }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        Some(upper)
    } else {
        Some((sorted[sorted.len() / 2 - 1] + upper) / 2.0)
    }
}

/// How much more each of one side's samples says than that of the other side's same trial.
pub fn difference(samples: &[Sample], base: &[Sample]) -> Vec<Sample> {
    let less = |sample: &Sample| {
        let other = base.iter().find(|other| other.trial == sample.trial)?;
        Some(Sample { value: sample.value - other.value, ..*sample })
    };
    samples.iter().filter_map(less).collect()
}

/// Trials from which on the two extremes are left out of the noise.
const TRIMMED_TRIALS_MIN: usize = 5;

/// One side of a comparison against the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median of the ratios of trials that ran in the same round.
    pub ratio: f64,
    /// The least of these ratios.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The range of the noise: from least to greatest, the two extremes left out from five trials on.
    pub noise: (f64, f64),
}

impl Ratio {
    /// Of one side's samples against the other's. Those of the same trial ran in the same round, under the
    /// same conditions: what comes over the machine for longer than a round falls out of their ratio.
    /// None if no trial has both.
    pub fn of(samples: &[Sample], base: &[Sample]) -> Option<Ratio> {
        let pairs = samples.iter().filter_map(|sample| {
            let other = base.iter().find(|other| other.trial == sample.trial)?;
            Some(sample.value / other.value)
        });
        let ratios = sorted(pairs);
        let (min, max) = (*ratios.first()?, *ratios.last()?);
        let inner =
            if ratios.len() >= TRIMMED_TRIALS_MIN { &ratios[1..ratios.len() - 1] } else { &ratios };
        let noise = (inner[0], inner[inner.len() - 1]);
        Some(Ratio { ratio: median(&ratios)?, min, max, noise })
    }

    /// Whether `bound` cannot be told from the ratio.
    pub fn is_in_noise(&self, bound: f64) -> bool {
        self.noise.0 < bound && bound < self.noise.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Vec<Sample> {
        (1..).zip(values).map(|(trial, value)| Sample { trial, value: *value }).collect()
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
    }

    #[test]
    fn ratio_is_of_trials_of_the_same_round() {
        // The machine slows down from round to round, and the ratio does not notice.
        let ratio = Ratio::of(&samples(&[40.0, 20.0, 10.0]), &samples(&[10.0, 5.0, 4.0])).unwrap();
        assert_eq!((ratio.ratio, ratio.min, ratio.max), (4.0, 2.5, 4.0));
        assert_eq!(ratio.noise, (2.5, 4.0));
        assert!(ratio.is_in_noise(3.0));
        assert!(!ratio.is_in_noise(2.5) && !ratio.is_in_noise(4.5));
    }

    #[test]
    fn differences_are_of_the_same_trial() {
        let late = [Sample { trial: 2, value: 1.5 }, Sample { trial: 9, value: 1.0 }];
        assert_eq!(
            difference(&samples(&[5.0, 7.0, 9.0]), &late),
            [Sample { trial: 2, value: 5.5 }]
        );
    }

    #[test]
    fn extremes_are_left_out_of_five_trials() {
        let one = samples(&[1.0; 5]);
        let ratio = Ratio::of(&samples(&[1.0, 9.0, 4.0, 5.0, 6.0]), &one).unwrap();
        assert_eq!((ratio.min, ratio.max, ratio.noise), (1.0, 9.0, (4.0, 6.0)));
    }

    #[test]
    fn trials_without_a_partner_do_not_count_for_the_noise() {
        let late = [Sample { trial: 9, value: 1.0 }];
        assert_eq!(Ratio::of(&samples(&[1.0]), &late), None);
        assert_eq!(Ratio::of(&samples(&[1.0]), &[]), None);
    }
}
