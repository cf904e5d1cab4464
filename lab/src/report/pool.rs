//! Figures of all trials of a cell together, where one trial is too short to say them.
//!
//! The kernel samples a hundred times a second whether a thread is in its program, and counts a processor's time in as many ticks.
//! A window of 50 ms says nothing, nine of them say something: what their parties did and spent is added up, and the metric is
//! computed from the sums once. How far it may be off follows from leaving out each trial in turn (the jackknife), and is never
//! taken for less than what the sampling alone allows.

use std::collections::BTreeMap;

use super::compare::headlines;
use super::series::Series;
use crate::case::Case;
use crate::definition::{MetricDef, Quantity, Scope, compute};
use crate::factor::Factors;
use crate::metric::built_in;
use crate::quantity::{POOLED_SPLIT_NS_MIN, Party, Report, TICKS_NS_MIN, ThreadCpu};
use os::processor::TICK_NS;

use crate::statistics::{Summary, TRIALS_MIN};

/// A figure of all trials together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pooled {
    pub(super) value: f64,
    /// One standard deviation of it.
    error: f64,
    trials: usize,
    representative: u32,
}

impl Pooled {
    /// What the trials of a cell say together of a metric; none if that is no metric that needs several, or too little.
    pub(super) fn of(series: &Series<'_>, cell: &Factors, metric: &str) -> Option<Pooled> {
        let case = series.case.as_ref()?;
        let named = |one: &MetricDef| one.name == metric;
        let own = case.metrics.iter().find(|one| named(one)).cloned();
        let definition = own.or_else(|| built_in(case.workload).into_iter().find(named))?;
        if !needs_several(&definition) {
            return None;
        }
        let records = series.records.iter().filter(|one| one.factors == *cell && one.is_measured());
        let trials: Vec<(u32, &[Party])> =
            records.map(|record| (record.trial, record.parties.as_slice())).collect();
        let parties: Vec<&[Party]> = trials.iter().map(|(_, parties)| *parties).collect();
        // Of many trials groups are left out: some tens of them say as much.
        let groups = parties.len().min(GROUPS_MAX);
        let sum_without = |left_out: Option<usize>| {
            let kept = parties.iter().enumerate().filter(|(at, _)| Some(at % groups) != left_out);
            sum(kept.map(|(_, parties)| *parties))
        };
        let all = sum_without(None);
        let value_of = |definition: &MetricDef, sum: &[Party]| {
            compute(definition, &Scope::together(case.workload, sum))
        };
        let value = value_of(&definition, &all)?;
        let sampling = match definition.quantity {
            Quantity::Cpu => {
                let error = MetricDef { part: Some("error".to_owned()), ..definition.clone() };
                value_of(&error, &all)?
            }
            _ => tick_error(&definition, &all, parties.len(), value, &|definition, sum| {
                value_of(definition, sum)
            }),
        };
        let without: Option<Vec<f64>> =
            (0..groups).map(|group| value_of(&definition, &sum_without(Some(group)))).collect();
        let error = without.map_or(f64::INFINITY, |without| jackknife(&without)).max(sampling);
        let representative = trials.first()?.0;
        Some(Pooled { value, error, trials: parties.len(), representative })
    }

    /// As a figure among others.
    pub(super) fn summary(self) -> Summary {
        let Pooled { value, trials, representative, .. } = self;
        let interval = self.interval_of_many(1);
        let (min, max) = interval.unwrap_or((value, value));
        Summary { median: value, min, max, interval, trials, representative, is_pooled: true }
    }

    /// Where the true figure lies if it is one of so many that are judged together; none if too few trials say it.
    pub(super) fn interval_of_many(self, questions: usize) -> Option<(f64, f64)> {
        let quantile = match questions {
            1 => QUANTILE,
            2..=QUESTIONS_MAX => QUANTILE_OF_MANY,
            _ => return None,
        };
        (self.trials >= TRIALS_MIN && self.error.is_finite()).then(|| {
            let half = self.error * student(quantile, self.trials.min(GROUPS_MAX) - 1);
            (self.value - half, self.value + half)
        })
    }

    /// How many times another's figure it is; none if that is zero. Errors of both count, as parts of the figures.
    pub(super) fn ratio(self, other: Pooled) -> Option<Pooled> {
        let value = self.value / other.value;
        let parts = (self.error / self.value).hypot(other.error / other.value);
        let error = if self.value == 0.0 {
            (self.error / other.value).abs()
        } else {
            (value * parts).abs()
        };
        // Over a base that may be nearly zero the ratio has no such error.
        let is_known = other.error <= BASE_ERROR_MAX * other.value.abs();
        let error = if is_known { error } else { f64::INFINITY };
        let trials = self.trials.min(other.trials);
        value.is_finite().then_some(Pooled { value, error, trials, ..self })
    }

    /// How much more than another's figure it is.
    pub(super) fn difference(self, other: Pooled) -> Pooled {
        let (value, error) = (self.value - other.value, self.error.hypot(other.error));
        Pooled { value, error, trials: self.trials.min(other.trials), ..self }
    }
}

/// The metrics of a series that several trials may say together.
pub(super) fn metrics(series: &Series<'_>) -> Vec<String> {
    let Some(case) = &series.case else { return Vec::new() };
    let all = built_in(case.workload).into_iter().chain(case.metrics.iter().cloned());
    all.filter(needs_several).map(|metric| metric.name).collect()
}

/// Whether a metric is of what the kernel samples, or counts in ticks.
fn needs_several(definition: &MetricDef) -> bool {
    together_ns_min(definition).is_some()
}

/// How long the windows of all trials together have to be at least, for a metric of what the kernel samples or counts in ticks:
/// that of a party which is always busy.
fn together_ns_min(definition: &MetricDef) -> Option<u64> {
    match definition.quantity {
        Quantity::Cpu => matches!(definition.part.as_deref(), Some("user" | "system" | "error"))
            .then_some(POOLED_SPLIT_NS_MIN),
        Quantity::Processor | Quantity::Unexplained => Some(TICKS_NS_MIN),
        _ => None,
    }
}

/// Says which metrics that a case's tables or claims show its trials are too short for, all of a cell together, and what would be
/// right; nothing if there are none.
pub fn too_short(case: &Case) -> Option<String> {
    let shown = headlines(case);
    let all = built_in(case.workload).into_iter().chain(case.metrics.iter().cloned());
    let together_ns = case.window.as_nanos() as u64 * u64::from(case.trials);
    let is_missed = |metric: &(String, u64)| metric.1 > together_ns;
    let of = all.filter(|metric| shown.contains(&metric.name.as_str()));
    let missed: Vec<(String, u64)> = of
        .filter_map(|one| Some((one.name.clone(), together_ns_min(&one)?)))
        .filter(is_missed)
        .collect();
    let needs_ns = missed.iter().map(|(_, ns)| *ns).max()?;
    let names: Vec<&str> = missed.iter().map(|(name, _)| &**name).collect();
    let Case { name, trials, window, .. } = case;
    // In steps of 10 ms, so that what is asked for is enough.
    let right = needs_ns.div_ceil(u64::from(*trials).max(1)).div_ceil(10_000_000) as f64 / 100.0;
    let (seconds, needs) = (window.as_secs_f64(), needs_ns as f64 / 1e9);
    let trials =
        if *trials == 1 { "1 trial is".to_owned() } else { format!("{trials} trials are") };
    Some(format!(
        "{name}: {trials} of {seconds} s, too short for {}, which needs {needs} s of them together: --seconds {right}",
        names.join(", ")
    ))
}

/// The error of a figure of whole processors, which the kernel counts in ticks: each of a trial's windows is off by up to one at
/// either end, a sixth of a tick squared together.
fn tick_error(
    definition: &MetricDef,
    all: &[Party],
    trials: usize,
    value: f64,
    value_of: &dyn Fn(&MetricDef, &[Party]) -> Option<f64>,
) -> f64 {
    let processors = all.iter().map(|party| party.report.processors.len()).sum::<usize>();
    let error_ns = TICK_NS as f64 * ((trials * processors) as f64 / 6.0).sqrt();
    // So much more on one processor, in the figure's own unit.
    let mut more = all.to_vec();
    let noted = more.iter_mut().flat_map(|party| &mut party.report.processors).next();
    let Some(noted) = noted else { return 0.0 };
    noted.busy_ns = noted.busy_ns.saturating_add(error_ns as u64);
    noted.stolen_ns = noted.stolen_ns.saturating_add(error_ns as u64);
    value_of(definition, &more).map_or(0.0, |more| (more - value).abs())
}

/// What the same parties of several trials did and spent, each added up. Levels and times are of one trial, and are left out.
pub(super) fn sum<'a>(trials: impl Iterator<Item = &'a [Party]>) -> Vec<Party> {
    let mut sums: Vec<Party> = Vec::new();
    let mut places: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    for party in trials.flatten() {
        let place = *places.entry((&party.role, party.number)).or_insert_with(|| {
            sums.push(Party { report: Report::default(), ..party.clone() });
            sums.len() - 1
        });
        add(&mut sums[place].report, &party.report);
    }
    sums
}

fn add(to: &mut Report, one: &Report) {
    to.messages = to.messages.saturating_add(one.messages);
    to.window_ns = to.window_ns.saturating_add(one.window_ns);
    add_counts(&mut to.work, &one.work);
    add_counts(&mut to.counters, &one.counters);
    for thread in &one.cpu {
        let is_it =
            |known: &&mut ThreadCpu| known.thread == thread.thread && known.role == thread.role;
        match to.cpu.iter_mut().find(is_it) {
            Some(known) => {
                known.ns = known.ns.saturating_add(thread.ns);
                known.user_ns = known.user_ns.saturating_add(thread.user_ns);
                known.system_ns = known.system_ns.saturating_add(thread.system_ns);
            }
            None => to.cpu.push(ThreadCpu { error_ns: None, ..thread.clone() }),
        }
    }
    if let Some(ns) = one.spinning_ns {
        to.spinning_ns = Some(to.spinning_ns.unwrap_or(0).saturating_add(ns));
    }
    for processor in &one.processors {
        match to.processors.iter_mut().find(|known| known.processor == processor.processor) {
            Some(known) => {
                known.busy_ns = known.busy_ns.saturating_add(processor.busy_ns);
                known.stolen_ns = known.stolen_ns.saturating_add(processor.stolen_ns);
            }
            None => to.processors.push(*processor),
        }
    }
}

fn add_counts(to: &mut BTreeMap<String, u64>, one: &BTreeMap<String, u64>) {
    for (name, count) in one {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
}

/// The standard deviation of a figure, from the same figure without each of the trials.
fn jackknife(without: &[f64]) -> f64 {
    let count = without.len() as f64;
    let mean = without.iter().sum::<f64>() / count;
    let squares: f64 = without.iter().map(|value| (value - mean).powi(2)).sum();
    if count < 2.0 { f64::INFINITY } else { ((count - 1.0) / count * squares).sqrt() }
}

/// Standard deviations of a normal distribution that hold 97 % of all cases. Two of a hundred are for what the jackknife misses in
/// few and skewed trials.
const QUANTILE: f64 = 2.170_090;

/// The same so that one of [`QUESTIONS_MAX`] figures is missed in three of a hundred cases: 99.9 % of each.
const QUANTILE_OF_MANY: f64 = 3.290_527;

/// Figures that can be judged together.
const QUESTIONS_MAX: usize = 30;

/// Groups of trials that are left out in turn.
const GROUPS_MAX: usize = 30;

/// The error of a base, as a part of it, above which a ratio has no interval.
const BASE_ERROR_MAX: f64 = 0.2;

/// How many standard deviations of so many degrees of freedom hold as much as a normal quantile: Student's t by its expansion in
/// it, to a hundredth from five degrees on.
fn student(z: f64, freedom: usize) -> f64 {
    let freedom = freedom as f64;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::record::{Record, parse};
    use host::config::Source;

    /// Trials of a window of 40 ms, of which each thread was sampled `user` and `system` times.
    fn trials(sampled: &[(u64, u64)]) -> Vec<Record> {
        let text = "name = \"c\"\nasks = \"?\"\nworkload = \"message-request\"\ntrials = 9\nseconds = 0.04\nwarm_up_seconds = 0\n\
                    [factors]\ntransport = [\"iucv\"]\nbytes = [1]\nwait = [\"block\"]\n";
        let line = serde_json::json!({
            "case": "c", "system": "open", "trial": 1, "factors": {}, "metrics": {}, "counters": {},
            "machine": {}, "run": 7, "seconds": 0.04, "definition": text,
        });
        let record = parse(&Source::of("r", &format!("{line}\n"))).unwrap().pop().unwrap();
        let trial = |(trial, (user, system)): (u32, &(u64, u64))| {
            let party = |role: &str| {
                let cpu = ThreadCpu {
                    thread: "main".into(),
                    role: role.into(),
                    ns: (user + system) * TICK_NS,
                    user_ns: user * TICK_NS,
                    system_ns: system * TICK_NS,
                    error_ns: None,
                };
                let work = [("bytes".to_owned(), 100), ("messages".to_owned(), 100)].into();
                let report =
                    Report { window_ns: 40_000_000, work, cpu: vec![cpu], ..Report::default() };
                Party { role: role.into(), report, place: vec![0], number: 0 }
            };
            Record { trial, parties: vec![party("source"), party("target")], ..record.clone() }
        };
        (1..).zip(sampled).map(trial).collect()
    }

    fn pooled(sampled: &[(u64, u64)], metric: &str) -> Option<Pooled> {
        let records = trials(sampled);
        let series = Series::all(&records).pop().unwrap();
        assert!(series.case.is_some());
        let cell = records[0].factors.clone();
        assert!(series.samples(&cell, metric).is_empty(), "one trial says nothing");
        Pooled::of(&series, &cell, metric)
    }

    #[test]
    fn trials_that_are_too_short_say_something_together() {
        // Two parties, each with one sample in three in the kernel: 36 in all.
        let found = pooled(&[(2, 1); 6], "kernel_cpu_percent");
        let summary = found.unwrap().summary();
        assert!((summary.median - 33.333).abs() < 0.01, "{summary:?}");
        // Trials all alike do not make it surer than 36 samples can be: 8 points, one standard deviation.
        let (least, most) = summary.interval.unwrap();
        assert!((most - summary.median - 8.33 * 3.0).abs() < 0.3 && least > 8.0, "{summary:?}");
        assert_eq!((summary.trials, summary.is_pooled), (6, true));
    }

    #[test]
    fn few_trials_have_a_figure_and_no_interval_and_too_few_samples_have_none() {
        let name = "kernel_cpu_percent";
        assert_eq!(pooled(&[(4, 4); 3], name).unwrap().summary().interval, None);
        assert_eq!(pooled(&[(1, 0); 3], name), None);
        assert_eq!(pooled(&[(9, 9); 6], "rate_messages_per_s"), None, "a trial says that itself");
    }

    #[test]
    fn ratio_and_difference_have_the_errors_of_both() {
        let of = |value, error| Pooled { value, error, trials: 9, representative: 1 };
        let ratio = of(20.0, 2.0).ratio(of(10.0, 1.0)).unwrap();
        assert!(
            (ratio.value - 2.0).abs() < 1e-9 && (ratio.error - 2.0 * 0.02f64.sqrt()).abs() < 1e-9
        );
        assert_eq!(of(1.0, 1.0).ratio(of(0.0, 1.0)), None);
        assert_eq!(of(0.0, 1.0).ratio(of(10.0, 1.0)).unwrap().error, 0.1);
        let over_little = of(1.0, 0.1).ratio(of(2.0, 1.0)).unwrap();
        assert_eq!(over_little.summary().interval, None, "a base that may be nearly zero");
        let less = of(5.0, 3.0).difference(of(1.0, 4.0));
        assert_eq!((less.value, less.error), (4.0, 5.0));
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, quantile) in [(5, 3.003), (10, 2.527), (20, 2.336), (30, 2.278)] {
            assert!((student(QUANTILE, freedom) - quantile).abs() < 0.01, "{freedom}");
        }
    }

    /// The true share lies outside the interval in at most one case of twenty, also where trials differ in their shares.
    #[test]
    fn interval_misses_the_truth_seldom() {
        let mut random = Random::new();
        for (rounds, share, spread) in
            [(6, 50, 0), (6, 80, 10), (9, 20, 15), (9, 95, 3), (15, 50, 30)]
        {
            const CASES: u32 = 1000;
            let mut missed = 0;
            for _ in 0..CASES {
                let sampled: Vec<(u64, u64)> = (0..rounds)
                    .map(|_| {
                        let percent = (share + random.within(0, 2 * spread)).saturating_sub(spread);
                        let system =
                            (0..8).filter(|_| random.within(1, 100) <= percent).count() as u64;
                        (8 - system, system)
                    })
                    .collect();
                let all = sampled.len() as f64 * 8.0;
                let value = |left_out: Option<usize>| {
                    let kept = sampled.iter().enumerate().filter(|(at, _)| Some(*at) != left_out);
                    let kept: Vec<_> = kept.map(|(_, one)| one.1 as f64).collect();
                    kept.iter().sum::<f64>() / (kept.len() as f64 * 8.0)
                };
                let without: Vec<f64> = (0..sampled.len()).map(|at| value(Some(at))).collect();
                let error = jackknife(&without).max(0.5 / all.sqrt());
                let pooled =
                    Pooled { value: value(None), error, trials: sampled.len(), representative: 1 };
                let (least, most) = pooled.summary().interval.unwrap();
                let truth = share as f64 / 100.0;
                missed += u32::from(truth < least || truth > most);
            }
            assert!(
                missed * 20 <= CASES,
                "{missed} of {CASES}: {rounds} rounds, {share} % +-{spread}"
            );
        }
    }

    #[test]
    fn windows_too_short_for_a_metric_that_is_shown_are_named() {
        let case = |trials: u32, seconds: f64, metric: &str| {
            let text = format!(
                "name = \"mine\"\nasks = \"?\"\nworkload = \"message-stream\"\ntrials = {trials}\nseconds = {seconds}\n\
                 warm_up_seconds = 0\n[[table]]\nmetric = [\"rate_messages_per_s\", \"{metric}\"]\ndown = \"bytes\"\n"
            );
            let none = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
            too_short(&Case::parse(&Source::of("mine.toml", &text), &none).unwrap())
        };
        assert_eq!(case(9, 0.05, "cpu_ns_per_message"), None);
        assert_eq!(case(9, 0.05, "kernel_cpu_ns_per_message"), None);
        assert_eq!(case(5, 0.2, "cpu_processors_ns_per_message"), None);
        assert_eq!(
            case(9, 0.05, "cpu_processors_ns_per_message").unwrap(),
            "mine: 9 trials are of 0.05 s, too short for cpu_processors_ns_per_message, which needs 1 s of them together: --seconds 0.12"
        );
        assert_eq!(
            case(1, 0.05, "kernel_cpu_ns_per_message").unwrap(),
            "mine: 1 trial is of 0.05 s, too short for kernel_cpu_ns_per_message, which needs 0.1 s of them together: --seconds 0.1"
        );
    }
}
