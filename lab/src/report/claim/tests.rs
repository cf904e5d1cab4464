//! Verdicts over random rounds whose truth is known.

use super::*;
use crate::random::Random;
use crate::statistics::Sample;

const RUNS: u32 = 10_000;

/// Draws noise whose median is 0 and whose standard deviation is about 1 without outliers.
pub(in crate::report) type Noise = fn(&mut Random) -> f64;

fn uniform(random: &mut Random) -> f64 {
    (random.below(1 << 40) as f64 + 0.5) / (1_u64 << 40) as f64
}

pub(in crate::report) fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

pub(in crate::report) fn skewed(random: &mut Random) -> f64 {
    -uniform(random).ln() - std::f64::consts::LN_2
}

pub(in crate::report) fn with_outliers(random: &mut Random) -> f64 {
    let times = if random.below(10) == 0 { 50.0 } else { 1.0 };
    times * normal(random)
}

/// The verdict over so many rounds whose ratios scatter by a tenth about `ratio`.
fn verdict(random: &mut Random, ratio: f64, rounds: u32, noise: Noise) -> Verdict {
    let sample = |trial| Sample { trial, value: ratio + 0.1 * noise(random), line: None };
    let samples: Vec<Sample> = (1..=rounds).map(sample).collect();
    let bound = Bound { at_least: Some(1.0), at_most: None };
    Verdict::of(bound, &Summary::of(&samples).expect("there are samples"))
}

fn part(
    random: &mut Random,
    ratio: f64,
    rounds: u32,
    noise: Noise,
    wanted: fn(Verdict) -> bool,
) -> f64 {
    let found = (0..RUNS).filter(|_| wanted(verdict(random, ratio, rounds, noise))).count();
    found as f64 / f64::from(RUNS)
}

#[test]
fn claim_whose_figure_is_its_bound_is_decided_one_time_in_twenty_at_most() {
    let mut random = Random::new();
    for noise in [normal as Noise, skewed, with_outliers] {
        for rounds in 3..=30 {
            let decided = part(&mut random, 1.0, rounds, noise, |one| one != Verdict::Undecided);
            // A twentieth, and four standard deviations of the simulation itself.
            assert!(decided <= 0.059, "{rounds} rounds: {decided}");
            assert!(rounds >= 6 || decided == 0.0, "{rounds} rounds: {decided}");
        }
    }
}

#[test]
fn nine_rounds_decide_of_a_fifth_where_rounds_scatter_by_a_tenth() {
    let mut random = Random::new();
    let held = part(&mut random, 1.2, 9, normal, |one| one == Verdict::Holds);
    let failed = part(&mut random, 0.8, 9, normal, |one| one == Verdict::Fails);
    assert!(held >= 0.95 && failed >= 0.95, "{held} {failed}");
}

#[test]
fn figure_that_is_always_its_bound_keeps_to_it() {
    let same = |value| (1..=6).map(move |trial| Sample { trial, value, line: None });
    let of =
        |value, bound| Verdict::of(bound, &Summary::of(&same(value).collect::<Vec<_>>()).unwrap());
    let both = Bound { at_least: Some(1.0), at_most: Some(1.0) };
    assert_eq!(of(1.0, both), Verdict::Holds);
    assert_eq!((of(0.9, both), of(1.1, both)), (Verdict::Fails, Verdict::Fails));
}
