//! How a case shows its results: tables, knees, breakdowns, plots, and its part of the first screen.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Case;
use super::written::{names, twice};
use super::wrong::{At, Wrong, check_all, check_each};
use crate::factor::{Domain, Factors};
use crate::metric::Shown;
use crate::unit;

/// The name under which tables lay out metrics like the levels of a factor.
pub const METRIC: &str = "metric";

/// A table of results.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Stands above it, if anything.
    pub title: Option<String>,
    /// Which metrics.
    #[serde(rename = "metric", deserialize_with = "names")]
    pub metrics: Vec<String>,
    /// The factors whose levels have a table each. One of these three has [`METRIC`].
    #[serde(default, deserialize_with = "names")]
    pub each: Vec<String>,
    /// The factors whose levels go down.
    #[serde(default, deserialize_with = "names")]
    pub down: Vec<String>,
    /// The factors whose levels go across.
    #[serde(default, deserialize_with = "names")]
    pub across: Vec<String>,
    /// Which cells.
    #[serde(default)]
    pub only: Factors,
    /// What ratios and differences are against.
    pub base: Option<Factors>,
    /// What is printed.
    #[serde(default = "absolute")]
    pub show: Vec<Show>,
    /// Labels of units that the table has whatever its figures are.
    #[serde(default, rename = "unit", deserialize_with = "names")]
    pub units: Vec<String>,
    /// Which published tables stand beside the figures.
    #[serde(default)]
    pub published: Beside,
}

impl Table {
    /// Metrics beside each other, and nothing else.
    pub fn of(metrics: Vec<String>, down: Vec<String>) -> Table {
        let across = vec![METRIC.to_owned()];
        Table { metrics, down, across, show: absolute(), ..Table::default() }
    }

    /// Checks the table of a case.
    pub(super) fn check(&mut self, case: &Case) -> Result<(), Wrong> {
        if self.base.is_none() && self.show.iter().any(|show| *show != Show::Absolute) {
            let right = "must have a base, for example base = { transport = \"unix-stream\" }";
            return Err(Wrong::new("a ratio or delta against nothing", right)).at("show");
        }
        if self.down.is_empty() && self.show.len() > 1 {
            let what = "a table of one row with several kinds of figures";
            return Err(Wrong::new(what, "must have down, or show one of them")).at("show");
        }
        check_each("metric", &mut self.metrics, |metric| case.check_metric(metric))?;
        self.units.iter().try_for_each(|unit| check_unit(case, unit, &self.metrics)).at("unit")?;
        let mut named: Vec<&String> = Vec::new();
        for (key, names) in [("each", &self.each), ("down", &self.down), ("across", &self.across)] {
            let names: Vec<&String> = names.iter().collect();
            if let Some(name) = names.iter().find(|name| named.contains(name)) {
                return Err(twice(name)).at(key);
            }
            let mut factors = names.iter().filter(|name| **name != METRIC);
            factors.try_for_each(|name| case.factor_or_binary(name).map(drop)).at(key)?;
            named.extend(names);
        }
        if !named.iter().any(|name| *name == METRIC) {
            self.across.push(METRIC.to_owned());
        }
        case.check_levels(&mut self.only).at("only")?;
        self.base.iter_mut().try_for_each(|base| case.check_levels(base)).at("base")?;
        let Beside::Named(wanted) = &self.published else { return Ok(()) };
        let known: Vec<&str> = case.published.iter().map(|table| &*table.name).collect();
        match wanted.iter().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(Wrong::unknown("published table", name, &known)).at("published"),
        }
    }
}

fn absolute() -> Vec<Show> {
    vec![Show::Absolute]
}

/// Checks that a unit of this label is one of a metric.
fn check_unit(case: &Case, label: &str, metrics: &[String]) -> Result<(), Wrong> {
    let units = metrics.iter().map(|metric| Shown::of(metric, &case.metrics).units);
    let units: Vec<unit::Unit> = units.flat_map(|units| units.to_vec()).collect();
    if unit::named(&units, label).is_some() {
        return Ok(());
    }
    let mut labels: Vec<&str> = units.iter().map(|unit| &*unit.label).collect();
    labels.dedup();
    let what = format!("there is no unit {label:?} of these metrics");
    Err(Wrong::new(what, format!("must be one of {}", labels.join(", "))))
}

/// What a table shows of its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Show {
    /// The metric.
    Absolute,
    /// The metric divided by the base's.
    Ratio,
    /// The metric minus the base's.
    Delta,
    /// The difference in percent of the base's.
    Percent,
}

/// Which published tables stand beside the figures of a table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "true, false, or a list of names of published tables")]
pub enum Beside {
    /// All of them, or none.
    All(bool),
    /// Those of these names.
    Named(Vec<String>),
}

impl Default for Beside {
    fn default() -> Beside {
        Beside::All(false)
    }
}

impl Beside {
    /// Whether the published table of this name is one of them.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Beside::All(all) => *all,
            Beside::Named(names) => names.iter().any(|own| own == name),
        }
    }
}

/// Where curves flatten: beyond which level of a factor no better figure is reached.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knee {
    /// Of which metric.
    pub metric: String,
    /// The factor that the curves go along.
    pub along: String,
    /// The factors whose levels have a curve each.
    #[serde(default, deserialize_with = "names")]
    pub each: Vec<String>,
    /// Which cells.
    #[serde(default)]
    pub only: Factors,
    /// The knee is the least level that has this part of the best figure.
    #[serde(default = "knee_part")]
    pub part: f64,
}

/// The part of the best figure at which a curve is said to be flat.
fn knee_part() -> f64 {
    0.95
}

impl Knee {
    /// Checks the knee of a case.
    pub(super) fn check(&mut self, case: &Case) -> Result<(), Wrong> {
        let along = case.known_factor(&self.along).at("along")?;
        if !matches!(along.domain, Domain::Number { .. } | Domain::Bytes { .. }) {
            let what = format!("the levels of {} are no numbers", along.name);
            return Err(Wrong::new(what, "must be numbers")).at("along");
        }
        if !(self.part > 0.0 && self.part <= 1.0) {
            let what = format!("part = {}", self.part);
            return Err(Wrong::new(what, "must be above 0, and at most 1")).at("part");
        }
        case.check_metric(&mut self.metric).at("metric")?;
        case.check_factors(&self.each).at("each")?;
        case.check_levels(&mut self.only).at("only")
    }
}

/// What a figure consists of.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breakdown {
    /// What it is about.
    pub name: String,
    /// Of which metric.
    pub metric: String,
    /// The factors whose levels go down.
    #[serde(deserialize_with = "names")]
    pub down: Vec<String>,
    /// Of which cells.
    pub of: Factors,
    /// Its parts.
    #[serde(rename = "part")]
    pub parts: Vec<Part>,
    /// What the rest is called.
    pub rest: String,
}

/// A part: what one cell has more than another. Levels that are not named are those of the whole.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// What it is called.
    pub name: String,
    /// The one.
    pub from: Factors,
    /// The other; none if all of the one counts.
    pub less: Option<Factors>,
}

impl Breakdown {
    /// Checks the breakdown of a case.
    pub(super) fn check(&mut self, case: &Case) -> Result<(), Wrong> {
        case.check_metric(&mut self.metric).at("metric")?;
        case.check_factors(&self.down).at("down")?;
        case.check_levels(&mut self.of).at("of")?;
        check_each("part", &mut self.parts, |Part { from, less, .. }| {
            case.check_levels(from).at("from")?;
            less.iter_mut().try_for_each(|less| case.check_levels(less)).at("less")
        })
    }
}

/// What a case contributes to the first screen of a run. Rows of several cases that have the same name are one
/// row of the screen.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Screen {
    /// Its columns.
    #[serde(rename = "column")]
    pub columns: Vec<ScreenColumn>,
    /// Its rows.
    #[serde(rename = "row")]
    pub rows: Vec<ScreenRow>,
}

/// A column of the first screen.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScreenColumn {
    /// What stands above it.
    pub heading: String,
    /// Which metric.
    pub metric: String,
    /// Which cells. A factor that does not apply to a cell does not count.
    #[serde(default)]
    pub only: Factors,
    /// The label of the unit. Left out, the figures choose it.
    pub unit: Option<String>,
}

/// A row of the first screen.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScreenRow {
    /// What stands beside it.
    pub name: String,
    /// The cells of which the best is shown.
    #[serde(default)]
    of: Vec<Factors>,
    /// The same, each with what is said of it.
    #[serde(default)]
    best: BTreeMap<String, Factors>,
}

impl ScreenRow {
    /// The cells of which the best is shown, each with what is said of it: nothing if that is empty.
    pub fn cells(&self) -> impl Iterator<Item = (&str, &Factors)> {
        let named = self.best.iter().map(|(name, levels)| (name.as_str(), levels));
        self.of.iter().map(|levels| ("", levels)).chain(named)
    }
}

impl Screen {
    /// Checks what a case contributes.
    pub(super) fn check(&mut self, case: &Case) -> Result<(), Wrong> {
        check_each("column", &mut self.columns, |ScreenColumn { metric, only, unit, .. }| {
            case.check_metric(metric).at("metric")?;
            let metric = std::slice::from_ref(metric);
            unit.iter().try_for_each(|unit| check_unit(case, unit, metric)).at("unit")?;
            case.check_levels(only).at("only")
        })?;
        check_each("row", &mut self.rows, |ScreenRow { name, of, best }| {
            if of.is_empty() == best.is_empty() {
                let found = if of.is_empty() { "no" } else { "two kinds of" };
                let right = "must have of, a list of levels, or best, levels by name";
                return Err(Wrong::new(format!("the row {name:?} has {found} cells"), right))
                    .at("name");
            }
            check_each("of", of, |levels| case.check_levels(levels))?;
            check_all(best, |_, levels| case.check_levels(levels)).at("best")
        })
    }
}
