//! What a case claims of its results, and how that is put to the test.

use serde::{Deserialize, Serialize};

use super::Case;
use super::written::names;
use super::wrong::{At, Wrong, check_each};
use crate::factor::{Factors, describe, is_against, matches};

/// What is claimed of results.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// In words.
    pub name: String,
    /// How it is put to the test; none if it is not.
    pub test: Option<Test>,
    /// What one should know of it.
    pub note: Option<String>,
}

/// How a claim is put to the test.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// Of which metric.
    pub metric: String,
    /// Of which cells.
    pub of: Factors,
    /// Against the best of these; none if the metric itself is bounded.
    pub against: Vec<Factors>,
    /// What the bound is on.
    pub comparison: Comparison,
    /// The factors at each level of which it is judged.
    pub every: Vec<String>,
    /// The bound.
    pub bound: Bound,
    /// What the upper end of the 95 % interval of the median has to reach, if anything.
    pub interval_reaches: Option<f64>,
    /// Counters that show why.
    pub counters: Vec<String>,
}

/// How one side is compared with the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// One metric divided by the other, by rounds.
    Ratio,
    /// One metric minus the other, by rounds.
    Difference,
    /// There is no other side: the metric itself.
    Figure,
}

/// What a ratio, a difference or a metric has to keep to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// At least this, if anything.
    pub at_least: Option<f64>,
    /// At most this, if anything.
    pub at_most: Option<f64>,
}

impl Bound {
    /// How many times better than it has to be something is.
    pub fn margin(self, found: f64) -> f64 {
        let above = self.at_least.map(|least| found / least);
        let below = self.at_most.map(|most| most / found);
        above.into_iter().chain(below).fold(f64::INFINITY, f64::min)
    }

    /// Whether something keeps to it.
    pub fn holds(self, found: f64) -> bool {
        self.at_least.is_none_or(|least| found >= least)
            && self.at_most.is_none_or(|most| found <= most)
    }
}

impl Test {
    /// The cells that are compared: `of`, then each of `against`.
    pub fn sides(&self) -> impl Iterator<Item = &Factors> {
        std::iter::once(&self.of).chain(&self.against)
    }

    /// Whether it needs a second binary.
    pub fn needs_another(&self) -> bool {
        self.sides().any(is_against)
    }

    /// How much better `found` is than the bound demands: in the metric's unit for a difference, else a factor.
    pub fn margin(&self, found: f64) -> f64 {
        match self.comparison {
            Comparison::Difference => self.bound.at_most.map_or(f64::INFINITY, |most| most - found),
            Comparison::Ratio | Comparison::Figure => self.bound.margin(found),
        }
    }
}

/// A claim as a case file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenClaim {
    name: String,
    metric: Option<String>,
    #[serde(default)]
    of: Factors,
    #[serde(default)]
    against: Vec<Factors>,
    #[serde(default, deserialize_with = "names")]
    every: Vec<String>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    at_most_more: Option<f64>,
    interval_reaches: Option<f64>,
    #[serde(default)]
    counters: Vec<String>,
    note: Option<String>,
}

impl WrittenClaim {
    /// The claim of a case with these cells, if it makes sense.
    pub(super) fn claim(mut self, case: &Case, cells: &[Factors]) -> Result<Claim, Wrong> {
        let Some(metric) = &mut self.metric else {
            let WrittenClaim { name, note, .. } = self;
            let right = "must have one, or a note that says why it is not measured";
            return match note {
                Some(_) => Ok(Claim { name, test: None, note }),
                None => Err(Wrong::new("a claim without a metric", right)).at("name"),
            };
        };
        case.check_metric(metric).at("metric")?;
        case.check_levels(&mut self.of).at("of")?;
        check_each("against", &mut self.against, |side| case.check_levels(side))?;
        case.check_factors(&self.every).at("every")?;
        let comparison = self.comparison().at("name")?;
        let WrittenClaim { at_least, at_most, at_most_more, interval_reaches, .. } = self;
        let WrittenClaim { name, metric, of, against, every, counters, note, .. } = self;
        let test = Test {
            metric: metric.unwrap_or_default(),
            of,
            against,
            comparison,
            every,
            bound: Bound { at_least, at_most: at_most.or(at_most_more) },
            interval_reaches,
            counters,
        };
        if let Some(side) = test.sides().find(|side| !cells.iter().any(|cell| matches(cell, side)))
        {
            let what = format!("nothing is measured with {}", describe(side, &case.order()));
            let right = "must be levels of the factors above that go together";
            return Err(Wrong::new(what, right)).at("name");
        }
        Ok(Claim { name, test: Some(test), note })
    }

    /// What is bounded, if there are bounds that something can keep to.
    fn comparison(&self) -> Result<Comparison, Wrong> {
        let WrittenClaim { at_least, at_most, at_most_more, interval_reaches, .. } = self;
        let numbers = [at_least, at_most, at_most_more, interval_reaches];
        let (what, right) = match (at_least.or(*at_most), at_most_more) {
            _ if numbers.into_iter().flatten().any(|number| !number.is_finite()) => {
                ("a bound without an end", "must be a number")
            }
            _ if at_least.zip(*at_most).is_some_and(|(least, most)| least > most) => {
                ("at_least is more than at_most", "must be at most at_most")
            }
            (None, None) => {
                ("a claim without a bound", "must have at_least, at_most or at_most_more")
            }
            (Some(_), Some(_)) => ("a claim bounds a ratio and a difference", "must be two claims"),
            (None, Some(_)) if self.against.is_empty() => {
                ("a difference without cells to compare with", "must have against")
            }
            (None, Some(_)) => return Ok(Comparison::Difference),
            (Some(_), None) if self.against.is_empty() => return Ok(Comparison::Figure),
            (Some(_), None) => return Ok(Comparison::Ratio),
        };
        Err(Wrong::new(what, right))
    }
}
