//! What a case claims of its results, and how that is put to the test.

use crate::factor::{Factors, is_against};

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
    /// Whether the bound is on the ratio or on the difference.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// One metric divided by the other. If there is no other side, the metric itself.
    Ratio,
    /// One metric minus the other.
    Difference,
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
    /// Its numbers.
    pub fn numbers(self) -> impl Iterator<Item = f64> {
        self.at_least.into_iter().chain(self.at_most)
    }

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

    /// How much better `found` is than the bound demands: a factor for a ratio, else in the metric's unit.
    pub fn margin(&self, found: f64) -> f64 {
        match self.comparison {
            Comparison::Ratio => self.bound.margin(found),
            Comparison::Difference => self.bound.at_most.map_or(f64::INFINITY, |most| most - found),
        }
    }
}
