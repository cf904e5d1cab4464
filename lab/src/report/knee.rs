//! Where curves flatten.

use super::series::{Levels, Series, levels};
use super::table::NOTHING;
use super::{Block, Grid};
use crate::case::Knee;
use crate::factor::{Factors, Level, matches};
use crate::metric::Better;
use crate::statistics::Summary;
use crate::unit::{self, Unit, three_digits};

/// A curve: levels and figures, by level.
type Curve = Vec<(u64, f64)>;

/// The knees that the case of a series asks for.
pub(super) fn knees(series: &Series<'_>) -> Vec<Block> {
    let knees = series.case.as_ref().map_or(&[][..], |case| &case.knees);
    knees.iter().flat_map(|knee| blocks(series, knee)).collect()
}

fn blocks(series: &Series<'_>, knee: &Knee) -> [Block; 2] {
    let Knee { metric, along, each, only, part } = knee;
    let better = series.metric(metric).better;
    let mut rows: Vec<(Vec<String>, Option<Bend>)> = Vec::new();
    for (which, curve) in curves(series, knee) {
        let named = each.iter().zip(&which);
        let here = |cell: &Factors| levels(cell, each) == which;
        let words =
            named.map(|(factor, level)| series.level(factor, level.as_ref(), here)).collect();
        let medians = curve.iter().map(|(level, summary)| (*level, summary.median));
        rows.push((words, bend(*part, better, medians.collect())));
    }
    let published = series.case.as_ref().map_or(&[][..], |case| &case.published);
    for table in published.iter().filter(|table| table.knows(metric)) {
        let numbers = table.curve(metric, along).filter_map(|(level, figure)| match level {
            Level::Number(number) => Some((*number, figure)),
            Level::Word(_) => None,
        });
        let mut words = vec![String::new(); each.len()];
        if let Some(first) = words.first_mut() {
            first.clone_from(&table.name);
        }
        rows.push((words, bend(*part, better, numbers.collect())));
    }
    let figures =
        rows.iter().filter_map(|(_, bend)| *bend).flat_map(|bend| [bend.figure, bend.best]);
    let metric = series.metric(metric);
    let one = unit::for_all(&metric.units, &figures.collect::<Vec<f64>>());
    let row = |(words, bend): &(Vec<String>, Option<Bend>)| {
        let figures =
            bend.map_or([NOTHING; 4].map(str::to_owned), |bend| shown(series, knee, one, bend));
        words.iter().cloned().chain(figures).collect()
    };
    let label = &metric.label;
    let unit = one.map_or(String::new(), |unit| format!(", {}", unit.label));
    let mut head = each.clone();
    head.extend([
        format!("knee, {along}"),
        format!("at the knee{unit}"),
        format!("best{unit}"),
        format!("best at, {along}"),
    ]);
    let which = crate::factor::describe(only, &series.order());
    let comma = if which.is_empty() { "" } else { ": " };
    let title = format!("{which}{comma}knees of {label}");
    let what = format!(
        "The knee is the smallest {along} that reaches {:.0} % of the curve's best {label}.",
        part * 100.0,
    );
    let rows = rows.iter().map(row).collect();
    let grid = Grid { title, head, words: each.len(), rows, notes: Vec::new() };
    [Block::Text(what), Block::Table(grid)]
}

/// The curves, by the levels that tell them apart.
pub(super) fn curves(series: &Series<'_>, knee: &Knee) -> Vec<(Levels, Vec<(u64, Summary)>)> {
    let mut curves: Vec<(Levels, Vec<(u64, Summary)>)> = Vec::new();
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
        let point = (*level, found.summary);
        match curves.iter_mut().find(|(own, _)| *own == which) {
            Some((_, curve)) if curve.contains(&point) => {}
            Some((_, curve)) => curve.push(point),
            None => curves.push((which, vec![point])),
        }
    }
    curves
}

/// Where a curve bends, and its best point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bend {
    /// The knee: the least level with nearly the best figure.
    pub(super) level: u64,
    pub(super) figure: f64,
    pub(super) best_at: u64,
    pub(super) best: f64,
}

/// The bend of a curve; none of an empty one, nor of one without a best figure: a part of what is negative, no
/// number, or zero is not nearly as good.
pub(super) fn bend(part: f64, better: Better, mut curve: Curve) -> Option<Bend> {
    curve.sort_by_key(|(level, _)| *level);
    let is_more = better == Better::More;
    let has_parts = |figure: f64| figure > 0.0 || (is_more && figure == 0.0);
    if curve.iter().any(|(_, figure)| !figure.is_finite() || !has_parts(*figure)) {
        return None;
    }
    let goodness = |figure: f64| if is_more { figure } else { 1.0 / figure };
    let best =
        curve.iter().max_by(|(_, one), (_, other)| goodness(*one).total_cmp(&goodness(*other)));
    let &(best_at, best) = best.filter(|(_, best)| *best > 0.0)?;
    let is_flat = |(_, figure): &&(u64, f64)| goodness(*figure) >= part * goodness(best);
    let (level, figure) = *curve.iter().find(is_flat).expect("the best is");
    Some(Bend { level, figure, best_at, best })
}

fn shown(series: &Series<'_>, knee: &Knee, one: Option<&Unit>, bend: Bend) -> [String; 4] {
    let level = |number| series.level(&knee.along, Some(&Level::Number(number)), |_| true);
    let figure = |number: f64| match one {
        Some(unit) => three_digits(number / unit.scale),
        None => series.metric(&knee.metric).show(number),
    };
    [level(bend.level), figure(bend.figure), figure(bend.best), level(bend.best_at)]
}
