//! What something consists of: its parts are differences between cells.

use super::series::{Levels, Series, levels};
use super::table::NOTHING;
use super::{Block, Grid};
use crate::case::Breakdown;
use crate::factor::{Factors, describe, matches};
use crate::statistics::{Sample, Summary, difference};
use crate::unit::{self, three_digits};

/// The breakdowns that the case of a series asks for.
pub(super) fn breakdowns(series: &Series<'_>) -> Vec<Block> {
    let breakdowns = series.case.as_ref().map_or(&[][..], |case| &case.breakdowns);
    breakdowns.iter().flat_map(|breakdown| blocks(series, breakdown)).collect()
}

fn blocks(series: &Series<'_>, breakdown: &Breakdown) -> [Block; 2] {
    let Breakdown { name, metric, down, of, parts, rest } = breakdown;
    let mut rows = Vec::new();
    let mut seen = Vec::new();
    let whole = series.meant(of, down);
    for cell in series.cells().into_iter().filter(|cell| matches(cell, &whole)) {
        let row = levels(cell, down);
        if !seen.contains(&row) {
            rows.push(row_of(series, breakdown, cell));
            seen.push(row);
        }
    }
    let numbers: Vec<f64> = rows.iter().flatten().copied().flatten().collect();
    let metric = series.metric(metric);
    let one = unit::for_all(&metric.units, &numbers);
    let shown = |number: &Option<f64>| {
        let Some(number) = number else { return NOTHING.to_owned() };
        match one {
            Some(unit) => three_digits(number / unit.scale),
            None => metric.show(*number),
        }
    };
    let row = |(tuple, figures): (&Levels, &Vec<Option<f64>>)| {
        let named = down.iter().zip(tuple);
        let here = |cell: &Factors| levels(cell, down) == *tuple;
        let words = named.map(|(factor, level)| series.level(factor, level.as_ref(), here));
        words.chain(figures.iter().map(shown)).collect()
    };
    let order = series.order();
    let mut head = down.clone();
    head.push(describe(of, &order));
    head.extend(parts.iter().map(|part| part.name.clone()));
    head.push(rest.clone());
    let derived = parts.iter().map(|part| {
        let less = part.less.as_ref().map(|less| format!(" - ({})", describe(less, &order)));
        format!("{} = ({}){}", part.name, describe(&part.from, &order), less.unwrap_or_default())
    });
    let derived: Vec<String> = derived.collect();
    let what = format!(
        "{}; {rest} = the remainder, at the row's {}.",
        derived.join("; "),
        down.join(" and ")
    );
    let title = format!("{name}: {}", metric.heading(one));
    let rows = seen.iter().zip(&rows).map(row).collect();
    let grid = Grid { title, head, words: down.len(), rows, notes: Vec::new() };
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
