//! Curves: figures over a factor whose levels are numbers, with the interval of each.

use super::blocks::{counted, folded_table, note};
use super::panel::{name, telling_apart};
use super::plot::{Axis, CURVES_MAX, Curve, HEIGHT, Plot, Point};
use super::strip::{every, figures, tick};
use crate::factor::{Factors, Level};
use crate::metric::Shown;
use crate::report::series::Series;
use crate::report::{Grid, grouped};
use crate::statistics::Summary;
use crate::unit;

/// A curve.
pub(super) struct Line {
    pub(super) name: String,
    /// As that of a [`Curve`].
    pub(super) style: usize,
    pub(super) spots: Vec<Spot>,
}

/// A figure of it, and where it lies: also in words.
pub(super) struct Spot {
    pub(super) x: f64,
    pub(super) place: String,
    pub(super) figure: Summary,
    /// As that of a [`Point`].
    pub(super) mark: &'static str,
}

/// Points of a curve. Of more, some are drawn.
const POINTS_MAX: usize = 200;

/// Curves of a plot: each colour up to three times, dashed in other ways.
const LINES_MAX: usize = 3 * CURVES_MAX;

/// Draws the figures of a metric over what `along` says, with a table of them.
pub(super) fn draw(
    along: &str,
    x_tick: &dyn Fn(f64) -> String,
    shown: &Shown,
    lines: &[Line],
) -> String {
    let spots = || lines.iter().flat_map(|line| &line.spots);
    let medians = spots().map(|spot| spot.figure.median);
    let one = unit::for_all(&shown.units, medians);
    let point = |spot: &Spot| Point {
        x: spot.x,
        y: spot.figure.median,
        interval: spot.figure.interval,
        mark: Some(spot.mark),
        words: format!("{}: {}", spot.place, shown.show(spot.figure.median)),
    };
    let longest = lines.iter().map(|line| line.spots.len()).max().unwrap_or(0);
    let every = every(longest, POINTS_MAX);
    // A knee is always drawn.
    let is_drawn =
        |(index, spot): &(usize, &Spot)| index.is_multiple_of(every) || spot.mark == "knee";
    let thinned = match every {
        1 => String::new(),
        _ => note(&format!("1 of {every} points of a curve is drawn.")),
    };
    let curve = |line: &Line| {
        let spots = line.spots.iter().enumerate().filter(is_drawn);
        let points = spots.map(|(_, spot)| point(spot)).collect();
        Curve { name: line.name.clone(), style: line.style, is_joined: true, points }
    };
    let rows = lines.iter().flat_map(|line| line.spots.iter().map(move |spot| (line, spot)));
    let row = |(line, spot): (&Line, &Spot)| {
        let words = vec![line.name.clone(), spot.place.clone()];
        [words, figures(Some(&spot.figure), one, shown, 0)].concat()
    };
    let heading = shown.heading(one);
    let head = ["", along, &heading, "95 % interval", "trials"];
    let table = Grid::of(&head, 2, rows.map(row).collect());
    let has_zero = spots().any(|spot| spot.x == 0.0);
    Plot {
        caption: format!("{} over {along}", shown.label),
        x: Axis { label: along.to_owned(), is_log: !has_zero, tick: x_tick },
        y: Axis { label: heading, is_log: true, tick: &|number| tick(&shown.units, number) },
        curves: lines.iter().take(LINES_MAX).map(curve).collect(),
        height: HEIGHT,
    }
    .markup(&(thinned + &left_out(lines.len(), LINES_MAX) + &folded_table("As a table", &table)))
}

/// A sentence about curves that are too many.
pub(super) fn left_out(curves: usize, most: usize) -> String {
    counted(curves.saturating_sub(most), "more curves are in the table only.")
}

/// A metric along a factor: a curve for each group of cells that differ in nothing else.
pub(super) fn over(series: &Series<'_>, metric: &str, along: &str) -> String {
    let line = |(style, (name, cells)): (usize, Group<'_>)| {
        let spot = |(level, cell): (u64, &Factors)| {
            Some(spot(series, along, level, series.found(cell, metric)?.summary))
        };
        let spots = cells.into_iter().filter_map(spot).collect();
        Line { name, style, spots }
    };
    let lines: Vec<Line> = groups(series, along).into_iter().enumerate().map(line).collect();
    draw(along, &|level| at_tick(series, along, level), &series.metric(metric), &lines)
}

/// The figure at a level.
pub(super) fn spot(series: &Series<'_>, along: &str, level: u64, figure: Summary) -> Spot {
    Spot { x: level as f64, place: shown_level(series, along, level), figure, mark: "" }
}

fn shown_level(series: &Series<'_>, along: &str, level: u64) -> String {
    series.level(along, Some(&Level::Number(level)), |_| true)
}

/// A tick of an axis of levels; nothing between whole ones.
pub(super) fn at_tick(series: &Series<'_>, along: &str, tick: f64) -> String {
    whole(tick).map_or_else(String::new, |level| shown_level(series, along, level))
}

/// The whole number that a tick is, if it is one.
pub(super) fn whole(tick: f64) -> Option<u64> {
    let number = tick.round();
    ((tick - number).abs() < 1e-9 * number.max(1.0)).then_some(number as u64)
}

/// Cells that differ in one factor alone, sorted by its level, and what they are called together.
pub(super) type Group<'a> = (String, Vec<(u64, &'a Factors)>);

/// The groups of all cells that have a level of a factor.
pub(super) fn groups<'a>(series: &Series<'a>, along: &str) -> Vec<Group<'a>> {
    let cells = series.cells();
    let called_by = telling_apart(series, &cells, &[along.to_owned()]);
    let keyed = cells.into_iter().filter_map(|cell| {
        let mut others = cell.clone();
        let Level::Number(level) = others.remove(along)? else { return None };
        Some((others, (level, cell)))
    });
    let named = |(_, mut group): (Factors, Vec<(u64, &'a Factors)>)| {
        group.sort_by_key(|(level, _)| *level);
        (name(series, group[0].1, &called_by), group)
    };
    grouped(keyed).into_iter().map(named).collect()
}
