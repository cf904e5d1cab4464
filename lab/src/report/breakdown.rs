//! What something consists of: its parts are differences between cells.

use super::series::{Series, levels};
use super::table::NOTHING;
use super::{Block, Grid, grouped};
use crate::case::Breakdown;
use crate::factor::{Factors, describe, matches};
use crate::statistics::{Sample, Summary, difference};
use crate::unit;

/// The breakdowns that the case of a series asks for.
pub(super) fn breakdowns(series: &Series<'_>) -> Vec<Block> {
    let breakdowns = series.laid_out(|case| &case.breakdowns);
    breakdowns.iter().flat_map(|breakdown| blocks(series, breakdown)).collect()
}

fn blocks(series: &Series<'_>, breakdown: &Breakdown) -> [Block; 2] {
    let Breakdown { name, metric, down, of, parts, rest } = breakdown;
    let whole = series.meant(of, down);
    let cells = series.cells().into_iter().filter(|cell| matches(cell, &whole));
    let row = |(which, cells): (_, Vec<&Factors>)| {
        let words = series.words(down, &which);
        (words, row_of(series, breakdown, cells[0]))
    };
    let rows = grouped(cells.map(|cell| (levels(cell, down), cell))).into_iter().map(row);
    let rows: Vec<(Vec<String>, Vec<Option<f64>>)> = rows.collect();
    let numbers = rows.iter().flat_map(|(_, figures)| figures).copied().flatten();
    let metric = series.metric(metric);
    let one = unit::for_all(&metric.units, numbers);
    let shown = |number: Option<f64>| {
        number.map_or(NOTHING.to_owned(), |number| metric.show_in(one, number))
    };
    let rows = rows
        .into_iter()
        .map(|(words, figures)| words.into_iter().chain(figures.into_iter().map(shown)).collect());
    let order = series.order();
    let heads = parts.iter().map(|part| part.name.clone()).chain([rest.clone()]);
    let head: Vec<String> =
        down.iter().cloned().chain([describe(of, &order)]).chain(heads).collect();
    let derived = parts.iter().map(|part| {
        let less = part.less.as_ref().map(|less| format!(" - ({})", describe(less, &order)));
        format!("{} = ({}){}", part.name, describe(&part.from, &order), less.unwrap_or_default())
    });
    let what = format!(
        "{}; {rest} = the remainder, at the row's {}.",
        derived.collect::<Vec<_>>().join("; "),
        down.join(" and ")
    );
    let title = format!("{name}: {}", metric.heading(one));
    let grid = Grid { title, ..Grid::of(&head, down.len(), rows.collect()) };
    [Block::Text(what), Block::Table(grid)]
}

/// The whole, its parts, and the rest.
fn row_of(series: &Series<'_>, breakdown: &Breakdown, cell: &Factors) -> Vec<Option<f64>> {
    let Breakdown { metric, down, of, parts, .. } = breakdown;
    let is_meant = |factor: &str| of.contains_key(factor) || down.iter().any(|own| own == factor);
    let samples = |own: &Factors| -> Option<Vec<Sample>> {
        let wanted = series.instead(cell, own, is_meant);
        Some(series.best_of(metric, &wanted)?.samples)
    };
    let whole = samples(&Factors::new());
    let mut rest = whole.clone();
    let mut figures = vec![median(whole.as_deref())];
    for part in parts {
        let taken = samples(&part.from).and_then(|from| match &part.less {
            None => Some(from),
            Some(less) => Some(difference(&from, &samples(less)?)),
        });
        figures.push(median(taken.as_deref()));
        rest = rest.zip(taken).map(|(rest, taken)| difference(&rest, &taken));
    }
    figures.push(median(rest.as_deref()));
    figures
}

fn median(samples: Option<&[Sample]>) -> Option<f64> {
    samples.and_then(Summary::of).map(|summary| summary.median)
}
