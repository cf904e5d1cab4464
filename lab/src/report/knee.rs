//! Where curves flatten.

use super::series::{Levels, Series, levels};
use super::{Block, Grid};
use crate::case::Knee;
use crate::factor::{Factors, Level, matches};
use crate::metric::{self, Better, heading, show};

/// A curve: levels and figures, by level.
type Curve = Vec<(u64, f64)>;

/// The knees that the case of a series asks for.
pub(super) fn knees(series: &Series<'_>) -> Vec<Block> {
    let knees = series.case.as_ref().map_or(&[][..], |case| &case.knees);
    knees.iter().flat_map(|knee| blocks(series, knee)).collect()
}

fn blocks(series: &Series<'_>, knee: &Knee) -> [Block; 2] {
    let Knee { metric, along, each, only, part } = knee;
    let mut head = each.clone();
    head.extend(["knee".to_owned(), heading(metric), "best".to_owned(), "at".to_owned()]);
    let mut rows = Vec::new();
    for (which, curve) in curves(series, knee) {
        let named = each.iter().zip(&which);
        let mut row: Vec<String> =
            named.map(|(factor, level)| series.level(factor, level.as_ref())).collect();
        row.extend(figures(series, knee, curve));
        rows.push(row);
    }
    let published = series.case.as_ref().and_then(|case| case.published.as_ref());
    if let Some(published) = published.filter(|published| published.knows(metric)) {
        let numbers = published.curve(metric, along).filter_map(|(level, figure)| match level {
            Level::Number(number) => Some((*number, figure)),
            Level::Word(_) => None,
        });
        let mut row = vec![String::new(); each.len()];
        if let Some(first) = row.first_mut() {
            first.clone_from(&published.name);
        }
        row.extend(figures(series, knee, numbers.collect()));
        rows.push(row);
    }
    let order = series.order();
    let which = crate::factor::describe(only, &order);
    let comma = if which.is_empty() { "" } else { ": " };
    let title = format!("{which}{comma}knees");
    let what = format!(
        "The knee of a curve is the least {along} with {:.0} % of its best {}.",
        part * 100.0,
        metric::find(metric).map_or(metric.as_str(), |metric| metric.label),
    );
    [Block::Table(Grid { title, head, words: each.len(), rows }), Block::Text(what)]
}

/// The curves, by the levels that tell them apart.
fn curves(series: &Series<'_>, knee: &Knee) -> Vec<(Levels, Curve)> {
    let mut curves: Vec<(Levels, Curve)> = Vec::new();
    let only = series.meant(&knee.only, &knee.each);
    for cell in series.cells().into_iter().filter(|cell| matches(cell, &only)) {
        let which = levels(cell, &knee.each);
        let Some(Level::Number(level)) = cell.get(&knee.along) else { continue };
        let is_on_curve = |other: &Factors| {
            matches(other, &only)
                && levels(other, &knee.each) == which
                && other.get(&knee.along) == cell.get(&knee.along)
        };
        let Some(found) = series.best(&knee.metric, is_on_curve) else { continue };
        let point = (*level, found.summary.median);
        match curves.iter_mut().find(|(own, _)| *own == which) {
            Some((_, curve)) if curve.contains(&point) => {}
            Some((_, curve)) => curve.push(point),
            None => curves.push((which, vec![point])),
        }
    }
    curves
}

/// The knee, the figure there, the best figure and where it is.
fn figures(series: &Series<'_>, knee: &Knee, mut curve: Curve) -> [String; 4] {
    curve.sort_by_key(|(level, _)| *level);
    let is_more = metric::find(&knee.metric).is_none_or(|found| found.better == Better::More);
    let goodness = |figure: f64| if is_more { figure } else { 1.0 / figure };
    let best =
        curve.iter().max_by(|(_, one), (_, other)| goodness(*one).total_cmp(&goodness(*other)));
    let Some(&(at, best)) = best else { return [const { String::new() }; 4] };
    let is_flat = |(_, figure): &&(u64, f64)| goodness(*figure) >= knee.part * goodness(best);
    let (level, figure) = *curve.iter().find(is_flat).expect("the best is");
    let shown = |number| series.level(&knee.along, Some(&Level::Number(number)));
    [shown(level), show(&knee.metric, figure), show(&knee.metric, best), shown(at)]
}
