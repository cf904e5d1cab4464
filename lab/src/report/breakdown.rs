//! What something consists of: its parts are differences between cells.

use super::series::{Series, levels};
use super::table::NOTHING;
use super::{Block, Grid};
use crate::case::Breakdown;
use crate::factor::{Factors, describe, matches};
use crate::metric::{show, unit};
use crate::statistics::{Sample, Summary, difference};

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
        if seen.contains(&row) {
            continue;
        }
        let named = down.iter().zip(&row);
        let mut figures: Vec<String> =
            named.map(|(factor, level)| series.level(factor, level.as_ref())).collect();
        figures.extend(row_of(series, breakdown, cell));
        rows.push(figures);
        seen.push(row);
    }
    let order = series.order();
    let mut head = down.clone();
    head.push(describe(of, &order));
    head.extend(parts.iter().map(|part| part.name.clone()));
    head.push(rest.clone());
    let title = format!("{name}, {}", unit(metric).label);
    let mut derived: Vec<String> = Vec::new();
    for part in parts {
        let less = part.less.as_ref().map(|less| format!(" less {}", describe(less, &order)));
        let (name, from) = (&part.name, describe(&part.from, &order));
        derived.push(format!("{name} is {from}{}", less.unwrap_or_default()));
    }
    derived.push(format!("{rest} is what is left"));
    let what = derived.join("; ") + ". What is not named is as in the row.";
    [Block::Table(Grid { title, head, words: down.len(), rows }), Block::Text(what)]
}

/// The whole, its parts, and the rest.
fn row_of(series: &Series<'_>, breakdown: &Breakdown, cell: &Factors) -> Vec<String> {
    let Breakdown { metric, down, of, parts, .. } = breakdown;
    let down = down.iter().filter_map(|factor| Some((factor.clone(), cell.get(factor)?.clone())));
    let whole_levels: Factors = of.clone().into_iter().chain(down).collect();
    let samples = |own: &Factors| -> Option<Vec<Sample>> {
        let mut wanted = whole_levels.clone();
        wanted.extend(own.clone());
        if let Some(case) = &series.case {
            (case.workload.fit)(&mut wanted);
        }
        Some(series.best_of(metric, &series.meant(&wanted, &[]))?.samples)
    };
    let whole = samples(&Factors::new());
    let mut rest = whole.clone();
    let mut figures = vec![median(metric, whole.as_deref())];
    for part in parts {
        let taken = samples(&part.from).and_then(|from| match &part.less {
            None => Some(from),
            Some(less) => Some(difference(&from, &samples(less)?)),
        });
        figures.push(median(metric, taken.as_deref()));
        rest = rest.zip(taken).map(|(rest, taken)| difference(&rest, &taken));
    }
    figures.push(median(metric, rest.as_deref()));
    figures
}

fn median(metric: &str, samples: Option<&[Sample]>) -> String {
    let summary = samples.and_then(Summary::of);
    summary.map_or_else(|| NOTHING.to_owned(), |summary| show(metric, summary.median))
}
