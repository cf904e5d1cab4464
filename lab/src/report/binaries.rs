//! The table that compares two binaries, if the case has none.

use super::series::Series;
use super::table::{NOTHING, measured, with_range};
use super::{Block, Grid};
use crate::factor::{AGAINST, BINARY, Factors, Level, THIS, is_against};
use crate::statistics::{Summary, ratio};

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
    let (factors, same): (Vec<&str>, Vec<&str>) = factors.into_iter().partition(|factor| {
        let mut levels = cells.iter().map(|cell| cell.get(*factor));
        let first = levels.next().flatten();
        levels.any(|level| level != first)
    });
    let said = same.iter().filter_map(|factor| {
        let cell = cells.first()?;
        let level = series.level(factor, cell.get(*factor), |_: &Factors| true);
        Some(format!("{factor} {level}"))
    });
    let said = said.collect::<Vec<_>>().join(", ");
    let mut rows = Vec::new();
    for metric in metrics(series) {
        for cell in &cells {
            let Some(figures) = figures(series, cell, &metric) else { continue };
            let mut row = vec![series.metric(&metric).label];
            let here = |other: &Factors| other == *cell;
            let level = |factor: &&str| series.level(factor, cell.get(*factor), here);
            row.extend(factors.iter().map(level));
            row.extend(figures);
            rows.push(row);
        }
    }
    let mut head = vec!["metric"];
    head.extend(&factors);
    head.extend([THIS, AGAINST, "this / against"]);
    let grid = Grid {
        title: "This binary and the other".to_owned(),
        head: head.into_iter().map(str::to_owned).collect(),
        words: 1 + factors.len(),
        rows,
        notes: if said.is_empty() { Vec::new() } else { vec![format!("In all rows: {said}.")] },
    };
    (!grid.rows.is_empty()).then_some(Block::Table(grid))
}

/// The metrics that the case shows; all that were measured if it shows none.
fn metrics(series: &Series<'_>) -> Vec<String> {
    let tables = series.case.as_ref().map_or(&[][..], |case| &case.tables);
    let mut shown: Vec<String> = Vec::new();
    for metric in tables.iter().flat_map(|table| &table.metrics) {
        if !shown.contains(metric) {
            shown.push(metric.clone());
        }
    }
    if shown.is_empty() { series.metrics() } else { shown }
}

/// Both figures of a cell and their ratio; none if neither binary has measured this metric.
fn figures(series: &Series<'_>, cell: &Factors, metric: &str) -> Option<[String; 3]> {
    let samples = |binary: &str| {
        let mut cell = cell.clone();
        cell.insert(BINARY.name.to_owned(), Level::Word(binary.to_owned()));
        series.samples(&cell, metric)
    };
    let (this, against) = (samples(THIS), samples(AGAINST));
    let summaries = [&this, &against].map(|samples| Summary::of(samples));
    if summaries.iter().all(Option::is_none) {
        return None;
    }
    let nothing = || NOTHING.to_owned();
    let [this_shown, against_shown] = summaries.map(|summary| {
        summary.map_or_else(nothing, |summary| measured(&series.metric(metric), summary))
    });
    let times = Summary::of(&ratio(&this, &against));
    let times = times.map_or_else(nothing, |times| with_range(times, 1.0));
    Some([this_shown, against_shown, times])
}
