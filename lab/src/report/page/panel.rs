//! Panels: which cells of a case are drawn together, and what each is called there.

use crate::factor::{BINARY, Domain, Factors, Level, matches};
use crate::report::distinct;
use crate::report::series::{Levels, Series, levels};

/// Panels of a case that are drawn. Its tables have all.
const PANELS_MAX: usize = 12;

/// Cells that differ in what is compared, and in nothing else that all of them have.
pub(super) struct Panel<'a> {
    /// The levels that all cells of the panel have, in words; empty if there is one panel.
    pub(super) name: String,
    pub(super) cells: Vec<&'a Factors>,
    /// The factors by which the cells are called, as [`name`] takes them.
    pub(super) called_by: Vec<String>,
}

impl Panel<'_> {
    /// The caption of what is drawn of its cells.
    pub(super) fn caption(&self, what: &str) -> String {
        if self.name.is_empty() { what.to_owned() } else { format!("{what}, {}", self.name) }
    }
}

/// The panels of a series, and how many of them are left out.
pub(super) fn panels<'a>(series: &Series<'a>) -> (Vec<Panel<'a>>, usize) {
    let cells = series.cells();
    let table = series.case.as_ref().and_then(|case| case.tables.first());
    let laid_out = |factor: &str| {
        let mut factors = table.iter().flat_map(|table| [&table.each, &table.down, &table.across]);
        factors.any(|factors| factors.iter().any(|own| own == factor))
    };
    // What is compared is the first factor that varies, by which cases are written; and two binaries.
    let by = varying(series, &cells).into_iter().skip(1);
    let by: Vec<String> = by.filter(|factor| laid_out(factor) && factor != BINARY.name).collect();
    let keys = distinct(cells.iter().map(|cell| levels(cell, &by)));
    // A cell to which a factor does not apply, as the size of a message to a cache line, stands in each panel.
    let covers = |one: &Levels, other: &Levels| {
        one.iter().zip(other).all(|(one, other)| one.is_none() || one == other)
    };
    let is_general = |key: &Levels| {
        key.contains(&None) && keys.iter().any(|other| other != key && covers(key, other))
    };
    let keys: Vec<&Levels> = keys.iter().filter(|key| !is_general(key)).collect();
    let panel = |key: &&Levels| {
        let is_here = |cell: &&Factors| covers(&levels(cell, &by), key);
        let cells: Vec<&Factors> = cells.iter().copied().filter(is_here).collect();
        let called_by = telling_apart(series, &cells, &by);
        Panel { name: words(series, &by, key).join(", "), cells, called_by }
    };
    let left_out = keys.len().saturating_sub(PANELS_MAX);
    (keys.iter().take(PANELS_MAX).map(panel).collect(), left_out)
}

/// The factors that have several levels among these cells.
fn varying(series: &Series<'_>, cells: &[&Factors]) -> Vec<String> {
    let (varying, _) = series.varying(series.order(), cells);
    varying.into_iter().map(str::to_owned).collect()
}

/// Levels with the names of their factors.
pub(super) fn words(series: &Series<'_>, factors: &[String], levels: &Levels) -> Vec<String> {
    let word = |(factor, level): (&String, &Option<Level>)| {
        format!("{factor} {}", series.level(factor, level.as_ref(), |_| true))
    };
    factors.iter().zip(levels).map(word).collect()
}

/// The factors by which these cells are called: those in which they differ, but for some.
pub(super) fn telling_apart(
    series: &Series<'_>,
    cells: &[&Factors],
    without: &[String],
) -> Vec<String> {
    let mut factors = varying(series, cells);
    factors.retain(|factor| !without.contains(factor));
    if factors.is_empty() {
        factors.extend(series.order().first().map(|first| (*first).to_owned()));
    }
    factors
}

/// What a cell is called: its levels of the factors that [tell it from others](telling_apart).
pub(super) fn name(series: &Series<'_>, cell: &Factors, factors: &[String]) -> String {
    let shown = factors.iter().filter_map(|factor| {
        let level = cell.get(factor)?;
        let shown = series.level(factor, Some(level), |_| true);
        // A number alone does not say what it is of.
        Some(if matches!(level, Level::Number(_)) { format!("{factor} {shown}") } else { shown })
    });
    shown.collect::<Vec<_>>().join(" · ")
}

/// The factor of numbers that a series goes along: the first with several levels, if it has any. Sizes have tables of their own.
pub(super) fn along<'a>(series: &'a Series<'_>) -> Option<&'a str> {
    let case = series.case.as_ref()?;
    let cells = series.cells();
    let varies =
        |factor: &&str| distinct(cells.iter().filter_map(|cell| cell.get(*factor))).len() > 1;
    let is_count = |name: &&str| {
        let factor = case.factor(name);
        factor.is_some_and(|factor| matches!(factor.domain, Domain::Number { .. }))
    };
    series.order().into_iter().filter(is_count).find(varies)
}

/// Whether a claim is made about a cell.
pub(super) fn is_claimed(series: &Series<'_>, cell: &Factors) -> bool {
    let mut tests = series.laid_out(|case| &case.claims).iter().flat_map(|claim| &claim.test);
    tests.any(|test| matches(cell, &series.meant(&test.of, &test.every)))
}
