//! Where curves flatten.

use super::series::{Levels, Series, levels};
use super::table::NOTHING;
use super::{Block, Grid, grouped};
use crate::case::Knee;
use crate::factor::{Level, describe, matches};
use crate::metric::Better;
use crate::statistics::Summary;
use crate::unit;

/// A curve: levels and figures, by level.
type Curve = Vec<(u64, f64)>;

/// The knees that the case of a series asks for.
pub(super) fn knees(series: &Series<'_>) -> Vec<Block> {
    series.laid_out(|case| &case.knees).iter().flat_map(|knee| blocks(series, knee)).collect()
}

fn blocks(series: &Series<'_>, knee: &Knee) -> [Block; 2] {
    let Knee { metric: name, along, each, only, part } = knee;
    let metric = series.metric(name);
    let bend = |curve: Curve| bend(*part, metric.better, curve);
    let measured = curves(series, knee).into_iter().map(|(which, curve)| {
        let words = series.words(each, &which);
        let medians = curve.iter().map(|(level, summary)| (*level, summary.median));
        (words, bend(medians.collect()))
    });
    let published =
        series.laid_out(|case| &case.published).iter().filter(|table| table.knows(name));
    let published = published.map(|table| {
        let numbers = table.curve(name, along).filter_map(|(level, figure)| match level {
            Level::Number(number) => Some((*number, figure)),
            Level::Word(_) => None,
        });
        let mut words = vec![String::new(); each.len()];
        words.iter_mut().take(1).for_each(|first| first.clone_from(&table.name));
        (words, bend(numbers.collect()))
    });
    let rows: Vec<(Vec<String>, Option<Bend>)> = measured.chain(published).collect();
    let figures =
        rows.iter().filter_map(|(_, bend)| *bend).flat_map(|bend| [bend.figure, bend.best]);
    let one = unit::for_all(&metric.units, figures);
    let level = |number| series.level(along, Some(&Level::Number(number)), |_| true);
    let figure = |number| metric.show_in(one, number);
    let row = |(words, bend): &(Vec<String>, Option<Bend>)| {
        let figures = bend.map_or([NOTHING; 4].map(str::to_owned), |bend| {
            [level(bend.level), figure(bend.figure), figure(bend.best), level(bend.best_at)]
        });
        [&words[..], &figures].concat()
    };
    let label = &metric.label;
    let unit = one.map_or(String::new(), |unit| format!(", {}", unit.label));
    let heads = [
        format!("knee, {along}"),
        format!("at the knee{unit}"),
        format!("best{unit}"),
        format!("best at, {along}"),
    ];
    let which = describe(only, &series.order());
    let comma = if which.is_empty() { "" } else { ": " };
    let title = format!("{which}{comma}knees of {label}");
    let what = format!(
        "The knee is the smallest {along} that reaches {:.0} % of the curve's best {label}.",
        part * 100.0,
    );
    let head = [&each[..], &heads].concat();
    let grid = Grid { title, ..Grid::of(&head, each.len(), rows.iter().map(row).collect()) };
    [Block::Text(what), Block::Table(grid)]
}

/// The curves, by the levels that tell them apart.
pub(super) fn curves(series: &Series<'_>, knee: &Knee) -> Vec<(Levels, Vec<(u64, Summary)>)> {
    let only = series.meant(&knee.only, &knee.each);
    let cells = series.cells().into_iter().filter(|cell| matches(cell, &only));
    let places = cells.filter_map(|cell| match cell.get(&knee.along)? {
        Level::Number(level) => Some(((levels(cell, &knee.each), *level), cell)),
        Level::Word(_) => None,
    });
    let points = grouped(places).into_iter().filter_map(|((which, level), cells)| {
        Some((which, (level, series.best(&knee.metric, cells)?.summary)))
    });
    grouped(points)
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
