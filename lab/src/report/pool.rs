//! Figures of all trials of a cell together, where one trial is too short to say them.
//!
//! The kernel samples a hundred times a second whether a thread is in its program, and counts a processor's time in as many ticks.
//! A window of 50 ms says nothing, nine of them say something: what their parties did and spent is added up, and the metric is
//! computed from the sums once. How far it may be off follows from leaving out each trial in turn (the jackknife), and is never
//! taken for less than what the sampling alone allows.

use std::collections::BTreeMap;

use os::processor::TICK_NS;

use super::compare::headlines;
use super::series::Series;
use super::{counted, grouped};
use crate::case::Case;
use crate::definition::{MetricDef, Quantity, Scope, compute};
use crate::factor::Factors;
use crate::metric::built_in;
use crate::quantity::{POOLED_SPLIT_NS_MIN, Party, Report, TICKS_NS_MIN};
use crate::record::Record;
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
        let definition = definitions(case).find(|one| one.name == metric)?;
        together_ns_min(&definition)?;
        let trials: Vec<&Record> = series.measured(cell).collect();
        let parties = || trials.iter().map(|record| &*record.parties);
        let all = sum(parties());
        let value_of = |definition: &MetricDef, sum: &[Party]| {
            compute(definition, &Scope::together(case.workload, sum))
        };
        let value = value_of(&definition, &all)?;
        let sampling = match definition.quantity {
            Quantity::Cpu => {
                let error = MetricDef { part: Some("error".to_owned()), ..definition.clone() };
                value_of(&error, &all)?
            }
            _ => tick_error(&all, trials.len(), value, &|sum| value_of(&definition, sum)),
        };
        // Of many trials groups are left out: some tens of them say as much.
        let groups = trials.len().min(GROUPS_MAX);
        let without = |group| {
            let left_out = sum(parties().skip(group).step_by(groups));
            value_of(&definition, &without(&all, &left_out)?)
        };
        let without: Option<Vec<f64>> = (0..groups).map(without).collect();
        let error = without.map_or(f64::INFINITY, |without| jackknife(&without)).max(sampling);
        let representative = trials.first()?.trial;
        Some(Pooled { value, error, trials: trials.len(), representative })
    }

    /// As a figure that is one of so many that are judged together. It has no interval if too few trials say where the true
    /// figure lies.
    pub(super) fn summary(self, questions: usize) -> Summary {
        let Pooled { value, error, trials, representative } = self;
        let quantile = match questions {
            1 => Some(QUANTILE),
            2..=QUESTIONS_MAX => Some(QUANTILE_OF_MANY),
            _ => None,
        };
        let quantile = quantile.filter(|_| trials >= TRIALS_MIN && error.is_finite());
        let interval = quantile.map(|quantile| {
            let half = error * student(quantile, trials.min(GROUPS_MAX) - 1);
            (value - half, value + half)
        });
        let (min, max) = interval.unwrap_or((value, value));
        Summary { median: value, min, max, interval, trials, representative, is_pooled: true }
    }

    /// How many times another's figure it is; none if that is zero. Errors of both count, as parts of the figures.
    pub(super) fn ratio(self, other: Pooled) -> Option<Pooled> {
        let value = self.value / other.value;
        let error = (self.error / other.value).hypot(value * other.error / other.value);
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
    let all = series.case.iter().flat_map(definitions);
    all.filter(|one| together_ns_min(one).is_some()).map(|one| one.name).collect()
}

/// The metrics of a case: its own, and those of its workload.
pub(super) fn definitions(case: &Case) -> impl Iterator<Item = MetricDef> {
    case.metrics.iter().cloned().chain(built_in(case.workload))
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
    let together_ns = case.window.as_nanos() as u64 * u64::from(case.trials);
    let all = definitions(case).filter(|one| shown.contains(&&*one.name));
    let needs = all.filter_map(|one| Some((together_ns_min(&one)?, one.name)));
    let missed: Vec<(u64, String)> = needs.filter(|(ns, _)| *ns > together_ns).collect();
    let needs_ns = missed.iter().map(|(ns, _)| *ns).max()?;
    let names: Vec<&str> = missed.iter().map(|(_, name)| &**name).collect();
    let Case { name, trials, window, .. } = case;
    // In steps of 10 ms, so that what is asked for is enough.
    let right = needs_ns.div_ceil(u64::from(*trials).max(1)).div_ceil(10_000_000) as f64 / 100.0;
    let (seconds, needs) = (window.as_secs_f64(), needs_ns as f64 / 1e9);
    let (are, trials) =
        (if *trials == 1 { "is" } else { "are" }, counted(*trials as usize, "trial"));
    Some(format!(
        "{name}: {trials} {are} of {seconds} s, too short for {}, which needs {needs} s of them together: --seconds {right}",
        names.join(", ")
    ))
}

/// The error of a figure of whole processors, which the kernel counts in ticks: each of a trial's windows is off by up to one at
/// either end, a sixth of a tick squared together.
fn tick_error(
    all: &[Party],
    trials: usize,
    value: f64,
    value_of: &dyn Fn(&[Party]) -> Option<f64>,
) -> f64 {
    let processors = all.iter().map(|party| party.report.processors.len()).sum::<usize>();
    let error_ns = TICK_NS as f64 * ((trials * processors) as f64 / 6.0).sqrt();
    // So much more on one processor, in the figure's own unit.
    let mut more = all.to_vec();
    let noted = more.iter_mut().flat_map(|party| &mut party.report.processors).next();
    let Some(noted) = noted else { return 0.0 };
    noted.busy_ns = noted.busy_ns.saturating_add(error_ns as u64);
    noted.stolen_ns = noted.stolen_ns.saturating_add(error_ns as u64);
    value_of(&more).map_or(0.0, |more| (more - value).abs())
}

/// What the same parties of several trials did and spent, each added up. Levels and times are of one trial, and are left out.
pub(super) fn sum<'a>(trials: impl Iterator<Item = &'a [Party]>) -> Vec<Party> {
    let parties = trials.flatten().map(|party| ((&*party.role, party.number), party));
    let sum = |((role, number), parties): ((&str, usize), Vec<&Party>)| {
        let report = parties.iter().fold(Report::default(), |sum, Party { report, .. }| {
            sum.and(&Report {
                work: report.work.clone(),
                times: BTreeMap::new(),
                levels: BTreeMap::new(),
                cpu: report.cpu.clone(),
                processors: report.processors.clone(),
                counters: report.counters.clone(),
                ..*report
            })
        });
        Party { role: role.to_owned(), number, place: parties[0].place.clone(), report }
    };
    grouped(parties).into_iter().map(sum).collect()
}

/// What parties did and spent without what they did in the trials that are left out.
fn without(all: &[Party], left_out: &[Party]) -> Option<Vec<Party>> {
    let rest = |party: &Party| {
        let is_it = |other: &&Party| other.number == party.number && other.role == party.role;
        let report = match left_out.iter().find(is_it) {
            Some(left_out) => party.report.since(&left_out.report)?,
            None => party.report.clone(),
        };
        Some(Party { report, ..party.clone() })
    };
    all.iter().map(rest).collect()
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
    use crate::quantity::ThreadCpu;
    use crate::random::Random;
    use crate::record::parse;
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
        let summary = found.unwrap().summary(1);
        assert!((summary.median - 33.333).abs() < 0.01, "{summary:?}");
        // Trials all alike do not make it surer than 36 samples can be: 8 points, one standard deviation.
        let (least, most) = summary.interval.unwrap();
        assert!((most - summary.median - 8.33 * 3.0).abs() < 0.3 && least > 8.0, "{summary:?}");
        assert_eq!((summary.trials, summary.is_pooled), (6, true));
    }

    #[test]
    fn few_trials_have_a_figure_and_no_interval_and_too_few_samples_have_none() {
        let name = "kernel_cpu_percent";
        assert_eq!(pooled(&[(4, 4); 3], name).unwrap().summary(1).interval, None);
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
        assert_eq!(over_little.summary(1).interval, None, "a base that may be nearly zero");
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
                let (least, most) = pooled.summary(1).interval.unwrap();
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
