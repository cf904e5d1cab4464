//! How a case shows its results: tables, knees, breakdowns, plots, and its part of the first screen.

use serde::Deserialize;

use crate::factor::Factors;

/// The name under which tables lay out metrics like the levels of a factor.
pub const METRIC: &str = "metric";

/// A table of results.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Stands above it, if anything.
    pub title: Option<String>,
    /// Which metrics.
    pub metrics: Vec<String>,
    /// The factors whose levels have a table each. One of these three has [`METRIC`].
    pub each: Vec<String>,
    /// The factors whose levels go down.
    pub down: Vec<String>,
    /// The factors whose levels go across.
    pub across: Vec<String>,
    /// Which cells.
    pub only: Factors,
    /// What ratios and differences are against.
    pub base: Option<Factors>,
    /// What is printed.
    pub show: Vec<Show>,
    /// Labels of units that the table has whatever its figures are.
    pub units: Vec<String>,
    /// Which published tables stand beside the figures.
    pub published: Beside,
}

impl Table {
    /// Metrics beside each other, and nothing else.
    pub fn of(metrics: Vec<String>, down: Vec<String>) -> Table {
        Table {
            title: None,
            metrics,
            each: Vec::new(),
            down,
            across: vec![METRIC.to_owned()],
            only: Factors::new(),
            base: None,
            show: vec![Show::Absolute],
            units: Vec::new(),
            published: Beside::default(),
        }
    }
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
#[derive(Clone, Debug, PartialEq)]
pub struct Knee {
    /// Of which metric.
    pub metric: String,
    /// The factor that the curves go along.
    pub along: String,
    /// The factors whose levels have a curve each.
    pub each: Vec<String>,
    /// Which cells.
    pub only: Factors,
    /// The knee is the least level that has this part of the best figure.
    pub part: f64,
}

/// What a figure consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct Breakdown {
    /// What it is about.
    pub name: String,
    /// Of which metric.
    pub metric: String,
    /// The factors whose levels go down.
    pub down: Vec<String>,
    /// Of which cells.
    pub of: Factors,
    /// Its parts.
    pub parts: Vec<Part>,
    /// What the rest is called.
    pub rest: String,
}

/// A part: what one cell has more than another. Levels that are not named are those of the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it is called.
    pub name: String,
    /// The one.
    pub from: Factors,
    /// The other; none if all of the one counts.
    pub less: Option<Factors>,
}

/// What a case contributes to the first screen of a run. Rows of several cases that have the same name are one
/// row of the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Screen {
    /// Its columns.
    pub columns: Vec<ScreenColumn>,
    /// Its rows.
    pub rows: Vec<ScreenRow>,
}

/// A column of the first screen.
#[derive(Clone, Debug, PartialEq)]
pub struct ScreenColumn {
    /// What stands above it.
    pub heading: String,
    /// Which metric.
    pub metric: String,
    /// Which cells. A factor that does not apply to a cell does not count.
    pub only: Factors,
    /// The label of the unit. Left out, the figures choose it.
    pub unit: Option<String>,
}

/// A row of the first screen.
#[derive(Clone, Debug, PartialEq)]
pub struct ScreenRow {
    /// What stands beside it.
    pub name: String,
    /// The cells of which the best is shown, each with what is said of it: nothing if that is empty.
    pub of: Vec<(String, Factors)>,
}
