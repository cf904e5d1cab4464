//! The table that compares two binaries, if the case has none.

use super::series::Series;
use super::table::{NOTHING, with_range};
use super::{Block, Grid, distinct};
use crate::case::Comparison;
use crate::factor::{AGAINST, BINARY, Factors, Level, THIS, is_against};
use crate::unit;

/// A row for each metric of each cell with two binaries: both figures and their ratio. None if there was one
/// binary, or if the case itself names `binary`.
pub(super) fn binaries(series: &Series<'_>) -> Option<Block> {
    if series.case.as_ref().is_some_and(|case| case.names_binary()) {
        return None;
    }
    let mut cells = series.cells();
    cells.retain(|cell| is_against(cell));
    let mut factors = series.order();
    factors
        .retain(|factor| *factor != BINARY.name && cells.iter().any(|c| c.contains_key(*factor)));
    // What is the same in every cell is said once.
    let (factors, same) = series.varying(factors, &cells);
    let row = |cell: &Factors, name: &String| {
        let metric = series.metric(name);
        let of = |binary: &str| {
            let mut cell = cell.clone();
            cell.insert(BINARY.name.to_owned(), Level::Word(binary.to_owned()));
            series.found(&series.trials(&cell).first()?.factors, name)
        };
        let found = [THIS, AGAINST].map(of);
        if found.iter().all(Option::is_none) {
            return None;
        }
        let figures = found.each_ref().map(|found| {
            let summary = found.as_ref()?.summary;
            let shown = |scale| with_range(summary, scale);
            Some(unit::show(&metric.units, None, summary.median, shown))
        });
        let [this, against] = found;
        let times = this.zip(against).and_then(|(this, against)| {
            series.compared(name, Comparison::Ratio, &this, Some(&against), 1)
        });
        let figures = figures.into_iter().chain([times.map(|times| with_range(times, 1.0))]);
        let level = |factor: &&str| series.level(factor, cell.get(*factor), |other| other == cell);
        let words = [metric.label.clone()].into_iter().chain(factors.iter().map(level));
        let figures = figures.map(|figure| figure.unwrap_or_else(|| NOTHING.to_owned()));
        Some(words.chain(figures).collect())
    };
    let metrics = metrics(series);
    let rows =
        metrics.iter().flat_map(|metric| cells.iter().filter_map(move |cell| row(cell, metric)));
    let head = [&["metric"], &factors[..], &[THIS, AGAINST, "this / against"]].concat();
    let mut grid = Grid::of(&head, 1 + factors.len(), rows.collect());
    "This binary and the other".clone_into(&mut grid.title);
    if !same.is_empty() {
        grid.notes.push(format!("In all rows: {same}."));
    }
    (!grid.rows.is_empty()).then_some(Block::Table(grid))
}

/// The metrics that the case shows; all that were measured if it shows none.
fn metrics(series: &Series<'_>) -> Vec<String> {
    let tables = series.laid_out(|case| &case.tables).iter();
    let shown = distinct(tables.flat_map(|table| &table.metrics).cloned());
    if shown.is_empty() { series.metrics() } else { shown }
}
