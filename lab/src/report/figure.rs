//! Results as numbers: a figure for each metric of each cell.

use serde::Serialize;

use super::series::{self, Found, Series};
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
    /// What its trials say.
    #[serde(flatten)]
    pub summary: Summary,
    /// From the least to the greatest, as a part of the median; none if the median is zero and some trial is not.
    pub spread: Option<f64>,
    /// Trials of the cell that have no figure, because they failed.
    pub failed: usize,
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
            let Some(Found { summary, .. }) = series.found(cell, &metric) else { continue };
            figures.push(Figure {
                case: series.name.to_owned(),
                system: first.system.clone(),
                run: first.run,
                factors: cell.clone(),
                unit: series.metric(&metric).unit().to_owned(),
                metric,
                summary,
                spread: Some(summary.spread()).filter(|spread| spread.is_finite()),
                failed,
            });
        }
    }
    figures
}
