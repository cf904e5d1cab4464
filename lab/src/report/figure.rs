//! Results as numbers: a figure for each metric of each cell.

use serde::Serialize;

use super::series::Series;
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
    /// The middle of the trials.
    pub median: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest of them.
    pub max: f64,
    /// How many trials there are.
    pub trials: usize,
    /// The trial that is nearest to the median, from 1.
    pub representative: u32,
}

/// All figures of results. Of a case that was run several times, the latest run counts.
pub fn figures(records: &[Record]) -> Vec<Figure> {
    Series::all(records).iter().flat_map(of_series).collect()
}

fn of_series(series: &Series<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cell in series.cells() {
        let first = series.records.iter().find(|record| record.factors == *cell);
        let first = first.expect("a cell comes from a record");
        for metric in series.metrics() {
            let Some(summary) = Summary::of(&series.samples(cell, metric)) else { continue };
            let Summary { median, min, max, trials, representative, .. } = summary;
            figures.push(Figure {
                case: series.name.to_owned(),
                system: first.system.clone(),
                run: first.run,
                factors: cell.clone(),
                metric: metric.to_owned(),
                median,
                min,
                max,
                trials,
                representative,
            });
        }
    }
    figures
}
