//! Claims as they are written in case files, and checked.

use std::ops::Range;

use host::config::FileError;
use serde::Deserialize;
use toml::Spanned;

use super::{Checker, OneOrMany, WrittenLevels};
use crate::case::{Bound, Claim, Comparison, Test};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenClaim {
    name: Spanned<String>,
    metric: Option<Spanned<String>>,
    #[serde(default)]
    of: WrittenLevels,
    #[serde(default)]
    against: Vec<WrittenLevels>,
    every: Option<Spanned<OneOrMany>>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    at_most_more: Option<f64>,
    interval_reaches: Option<f64>,
    #[serde(default)]
    counters: Vec<String>,
    note: Option<String>,
}

impl WrittenClaim {
    /// What the claim bounds, and the bound; or what is wrong, and what would be right.
    fn bound(&self) -> Result<(Comparison, Bound), (&'static str, &'static str)> {
        let is_alone = self.against.is_empty();
        match (self.at_least, self.at_most, self.at_most_more) {
            (None, None, None) => {
                Err(("a claim without a bound", "must have at_least, at_most or at_most_more"))
            }
            (None, None, Some(_)) if is_alone => {
                Err(("a difference without cells to compare with", "must have against"))
            }
            (None, None, at_most) => {
                Ok((Comparison::Difference, Bound { at_least: None, at_most }))
            }
            (at_least, at_most, None) => Ok((Comparison::Ratio, Bound { at_least, at_most })),
            _ => Err(("a claim bounds a ratio and a difference", "must be two claims")),
        }
    }

    /// The same, of bounds that something can keep to.
    fn checked_bound(&self) -> Result<(Comparison, Bound), (&'static str, &'static str)> {
        let (comparison, bound) = self.bound()?;
        if bound.numbers().chain(self.interval_reaches).any(|number| !number.is_finite()) {
            return Err(("a bound without an end", "must be a number"));
        }
        match (bound.at_least, bound.at_most) {
            (Some(least), Some(most)) if least > most => {
                Err(("at_least is more than at_most", "must be at most at_most"))
            }
            _ => Ok((comparison, bound)),
        }
    }
}

impl Checker<'_> {
    pub(super) fn claim(&self, written: WrittenClaim) -> Result<(Claim, Range<usize>), FileError> {
        let span = written.name.span();
        let bound = written.checked_bound();
        let test = match written.metric {
            Some(metric) => {
                let refused = |(what, right)| self.source.error(span.clone(), what, right);
                let (comparison, bound) = bound.map_err(refused)?;
                let against = written.against.iter().map(|side| self.levels(side));
                Some(Test {
                    metric: self.metric(&metric)?,
                    of: self.levels(&written.of)?,
                    against: against.collect::<Result<_, _>>()?,
                    comparison,
                    every: self.factor_names(written.every)?,
                    bound,
                    interval_reaches: written.interval_reaches,
                    counters: written.counters,
                })
            }
            None if written.note.is_some() => None,
            None => {
                let what = "a claim without a metric";
                let right = "must have one, or a note that says why it is not measured";
                return Err(self.source.error(span, what, right));
            }
        };
        Ok((Claim { name: written.name.into_inner(), test, note: written.note }, span))
    }
}
