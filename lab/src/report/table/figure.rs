//! What stands in one place of a table, and the unit in which it is shown.

use std::collections::BTreeMap;

use crate::case::Show;
use crate::metric::Shown;
use crate::report::series::Series;
use crate::statistics::Summary;
use crate::unit::{self, Unit, three_digits};

/// What stands where there is no figure.
pub(in crate::report) const NOTHING: &str = "-";

/// Stands behind a difference that trials on both sides of zero leave open.
const NOISE: &str = " (noise)";

/// Explains [`NOISE`] under a table.
pub(super) const NOISE_NOTE: &str =
    "(noise): the trials do not say whether it is more or less than the base.";

/// Explains figures of all trials together under a table.
pub(super) const POOLED_NOTE: &str = "What the kernel samples is of all trials of a cell together, in whichever state; its range is its error.";

/// What stands in one place of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure<'a> {
    pub(super) metric: &'a str,
    pub(super) what: What,
}

/// What is said of a metric in one place.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Nothing,
    /// The metric, with its range or with half of its range in percent.
    Absolute {
        summary: Summary,
        has_range: bool,
    },
    /// The metric, published by others.
    Published(f64),
    /// A number without a unit, with its range.
    Ratio(Summary),
    /// A number without a unit, alone.
    Quotient(f64),
    /// How much more than the base, and whether it is noise.
    Delta(f64, bool),
    /// The same, in percent of the base.
    Percent(f64, bool),
    /// The place is the base itself.
    Base,
}

impl What {
    /// Whether a column of such figures can be left out.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            What::Nothing => true,
            What::Absolute { summary, .. } => summary.min == 0.0 && summary.max == 0.0,
            What::Published(number) => *number == 0.0,
            What::Delta(median, is_noise) => *median == 0.0 && !is_noise,
            _ => false,
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        *self != What::Nothing && self.is_empty()
    }

    /// Whether it is of all trials together, each of which is too short for it.
    pub(super) fn is_pooled(&self) -> bool {
        matches!(self, What::Absolute { summary, .. } | What::Ratio(summary) if summary.is_pooled)
    }

    pub(super) fn is_noise(&self) -> bool {
        matches!(self, What::Delta(_, true) | What::Percent(_, true))
    }

    /// The number that chooses a unit.
    fn number(&self) -> Option<f64> {
        match self {
            What::Absolute { summary, .. } => Some(summary.median),
            What::Published(number) => Some(*number),
            _ => None,
        }
    }
}

impl Figure<'_> {
    pub(super) fn show(&self, units: &Units<'_>) -> String {
        let noise = if self.what.is_noise() { NOISE } else { "" };
        let metric = units.series.metric(self.metric);
        let unit = units.chosen.get(self.metric);
        let number = |number: f64| metric.show_in(unit, number);
        match &self.what {
            What::Nothing => NOTHING.to_owned(),
            What::Base => "base".to_owned(),
            What::Ratio(summary) => with_range(*summary, 1.0),
            What::Quotient(number) => three_digits(*number),
            What::Percent(median, _) => format!("{median:+.1} %{noise}"),
            What::Delta(median, _) => {
                let sign = if *median > 0.0 { "+" } else { "" };
                format!("{sign}{}{noise}", number(*median))
            }
            What::Published(published) => number(*published),
            What::Absolute { summary, has_range: true } => {
                unit::show(&metric.units, unit, summary.median, |scale| with_range(*summary, scale))
            }
            What::Absolute { summary, has_range: false } => {
                let half = match (summary.spread() * 50.0).round() {
                    _ if summary.trials < 2 => String::new(),
                    half if half > 100.0 => " ±>100%".to_owned(),
                    half => format!(" ±{half:.0}%"),
                };
                number(summary.median) + &half
            }
        }
    }
}

/// The unit of each metric of a table: one that shows all of its figures well. A metric without one shows each
/// figure in a unit of its own.
#[derive(Debug)]
pub(super) struct Units<'a> {
    series: &'a Series<'a>,
    chosen: BTreeMap<String, Unit>,
}

impl<'a> Units<'a> {
    /// Chooses the units. `fixed` has the labels of those that the case fixes.
    pub(super) fn of<'f>(
        series: &'a Series<'a>,
        figures: impl Iterator<Item = &'f Figure<'f>>,
        fixed: &[String],
    ) -> Units<'a> {
        let mut numbers: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for figure in figures {
            numbers.entry(figure.metric).or_default().extend(figure.what.number());
        }
        let unit = |(metric, numbers): (&str, Vec<f64>)| {
            let Shown { units, .. } = series.metric(metric);
            let named = fixed.iter().find_map(|label| unit::named(&units, label));
            // Differences alone choose no unit: each shows its own.
            let has_any = !numbers.is_empty();
            let unit = named.or_else(|| unit::for_all(&units, numbers).filter(|_| has_any))?;
            Some((metric.to_owned(), unit.clone()))
        };
        Units { series, chosen: numbers.into_iter().filter_map(unit).collect() }
    }

    /// What stands above figures of a metric. Ratios have no unit.
    pub(super) fn heading(&self, metric: &str, show: Show) -> String {
        let has_unit = matches!(show, Show::Absolute | Show::Delta);
        self.series.metric(metric).heading(self.chosen.get(metric).filter(|_| has_unit))
    }
}

/// The median of trials and their range, in units of `scale`.
pub(in crate::report) fn with_range(summary: Summary, scale: f64) -> String {
    let [middle, min, max] =
        [summary.median, summary.min, summary.max].map(|number| three_digits(number / scale));
    if summary.trials < 2 { middle } else { format!("{middle} ({min}..{max})") }
}
