//! Results as numbers: a figure for each metric of each cell.

use serde::Serialize;

use super::series::{self, Series};
use crate::factor::Factors;
use crate::record::Record;
use crate::statistics::Summary;

/// What the trials of a cell say of a metric, in the unit that the metric's name ends in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The case.
    pub case: String,
    /// On which system.
    pub system: String,
    /// When the run began, in milliseconds since 1970.
    pub run: u64,
    /// The levels of the cell.
    pub factors: Factors,
    /// The metric.
    pub metric: String,
    /// The unit of the numbers, empty if they have none.
    pub unit: String,
    /// The middle of the trials.
    pub median: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest of them.
    pub max: f64,
    /// Where the true median lies, with a certainty of at least 95 %; none below six trials.
    pub interval: Option<(f64, f64)>,
    /// From the least to the greatest, as a part of the median; none if the median is zero and some trial is not.
    pub spread: Option<f64>,
    /// How many trials there are.
    pub trials: usize,
    /// Trials of the cell that have no figure, because they failed.
    pub failed: usize,
    /// The trial that is nearest to the median, from 1.
    pub representative: u32,
    /// Whether it is of all trials together, each of which is too short for it: `min` and `max` are the ends of the interval then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_pooled: bool,
}

/// An attempt at a trial that failed, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// The case.
    pub case: String,
    /// On which system.
    pub system: String,
    /// When the run began, in milliseconds since 1970.
    pub run: u64,
    /// The levels of the cell.
    pub factors: Factors,
    /// Which trial, from 1.
    pub trial: u32,
    /// Why it failed.
    pub failed: String,
}

/// All attempts that failed, also of trials that had a figure when they were done again. Of a case that was run several
/// times, the latest run counts.
pub fn failures(records: &[Record]) -> Vec<Failure> {
    let all = Series::all(records);
    let failure = |record: &Record| {
        let Record { case, system, run, factors, trial, .. } = record.clone();
        let failed = record.failed.clone()?;
        Some(Failure { case, system, run, factors, trial, failed })
    };
    series::records(&all).filter_map(failure).collect()
}

/// All figures of results. Of a case that was run several times, the latest run counts.
pub fn figures(records: &[Record]) -> Vec<Figure> {
    Series::all(records).iter().flat_map(of_series).collect()
}

fn of_series(series: &Series<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cell in series.cells() {
        let first = series.trials(cell)[0];
        let failed = series.lost(cell);
        for metric in series.metrics() {
            let Some(found) = series.found(cell, &metric) else { continue };
            let summary = found.summary;
            let Summary { median, min, max, interval, trials, representative, is_pooled } = summary;
            figures.push(Figure {
                case: series.name.to_owned(),
                system: first.system.clone(),
                run: first.run,
                factors: cell.clone(),
                unit: series.metric(&metric).unit().to_owned(),
                metric,
                median,
                min,
                max,
                interval,
                spread: Some(summary.spread()).filter(|spread| spread.is_finite()),
                trials,
                failed,
                representative,
                is_pooled,
            });
        }
    }
    figures
}
