//! What stands in one place of a table, and the unit in which it is shown.

use std::collections::BTreeMap;

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
pub(super) enum Figure {
    Nothing,
    /// The metric, with its range or with half of its range in percent.
    Absolute {
        metric: String,
        summary: Summary,
        has_range: bool,
    },
    /// The metric, published by others.
    Published {
        metric: String,
        number: f64,
    },
    /// A number without a unit, with its range.
    Ratio(Summary),
    /// A number without a unit, alone.
    Quotient(f64),
    /// How much more than the base.
    Delta {
        metric: String,
        median: f64,
        is_noise: bool,
    },
    /// The same, in percent of the base.
    Percent {
        median: f64,
        is_noise: bool,
    },
    /// The place is the base itself.
    Base,
}

impl Figure {
    /// Whether a column of such figures can be left out.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Figure::Nothing => true,
            Figure::Absolute { summary, .. } => summary.min == 0.0 && summary.max == 0.0,
            Figure::Published { number, .. } => *number == 0.0,
            Figure::Delta { median, is_noise, .. } => *median == 0.0 && !is_noise,
            _ => false,
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        *self != Figure::Nothing && self.is_empty()
    }

    /// Whether it is of all trials together, each of which is too short for it.
    pub(super) fn is_pooled(&self) -> bool {
        matches!(self, Figure::Absolute { summary, .. } | Figure::Ratio(summary) if summary.is_pooled)
    }

    pub(super) fn is_noise(&self) -> bool {
        matches!(
            self,
            Figure::Delta { is_noise: true, .. } | Figure::Percent { is_noise: true, .. }
        )
    }

    /// The metric and the number that choose a unit.
    fn number(&self) -> Option<(&str, f64)> {
        match self {
            Figure::Absolute { metric, summary, .. } => Some((metric, summary.median)),
            Figure::Published { metric, number } => Some((metric, *number)),
            _ => None,
        }
    }

    /// The metric of which it is a number.
    fn metric(&self) -> Option<&str> {
        match self {
            Figure::Absolute { metric, .. }
            | Figure::Published { metric, .. }
            | Figure::Delta { metric, .. } => Some(metric),
            _ => None,
        }
    }

    pub(super) fn show(&self, units: &Units<'_>) -> String {
        match self {
            Figure::Nothing => NOTHING.to_owned(),
            Figure::Base => "base".to_owned(),
            Figure::Ratio(summary) => with_range(*summary, 1.0),
            Figure::Quotient(number) => three_digits(*number),
            Figure::Percent { median, is_noise } => {
                format!("{median:+.1} %{}", if *is_noise { NOISE } else { "" })
            }
            Figure::Delta { metric, median, is_noise } => {
                let sign = if *median > 0.0 { "+" } else { "" };
                let noise = if *is_noise { NOISE } else { "" };
                let number = units.show(metric, *median, |scale| three_digits(median / scale));
                format!("{sign}{number}{noise}")
            }
            Figure::Published { metric, number } => {
                units.show(metric, *number, |scale| three_digits(number / scale))
            }
            Figure::Absolute { metric, summary, has_range: true } => {
                units.show(metric, summary.median, |scale| with_range(*summary, scale))
            }
            Figure::Absolute { metric, summary, has_range: false } => {
                let half = (summary.spread() * 50.0).round();
                let half = match summary.trials {
                    ..2 => String::new(),
                    _ if half > 100.0 => " ±>100%".to_owned(),
                    _ => format!(" ±{half:.0}%"),
                };
                units.show(metric, summary.median, |scale| three_digits(summary.median / scale))
                    + &half
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
        figures: impl Iterator<Item = &'f Figure>,
        fixed: &[String],
    ) -> Units<'a> {
        let mut numbers: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for figure in figures {
            let Some(metric) = figure.metric() else { continue };
            numbers.entry(metric).or_default().extend(figure.number().map(|(_, number)| number));
        }
        let unit = |(metric, numbers): (&str, Vec<f64>)| {
            let Shown { units, .. } = series.metric(metric);
            let named = fixed.iter().find_map(|label| unit::named(&units, label));
            // Differences alone choose no unit: each shows its own.
            let chosen = || unit::for_all(&units, &numbers).filter(|_| !numbers.is_empty());
            let unit = named.or_else(chosen)?;
            Some((metric.to_owned(), unit.clone()))
        };
        Units { series, chosen: numbers.into_iter().filter_map(unit).collect() }
    }

    /// What stands above the figures of a metric.
    pub(super) fn heading(&self, metric: &str) -> String {
        self.series.metric(metric).heading(self.chosen.get(metric))
    }

    /// The same of ratios, which have no unit.
    pub(super) fn label(&self, metric: &str) -> String {
        self.series.metric(metric).label
    }

    /// A number by `shown`, in the unit that the table has or else in the one that suits `number`.
    fn show(&self, metric: &str, number: f64, shown: impl Fn(f64) -> String) -> String {
        match self.chosen.get(metric) {
            Some(unit) => shown(unit.scale),
            None => {
                let Shown { units, .. } = self.series.metric(metric);
                let unit = unit::for_one(&units, number);
                format!("{} {}", shown(unit.scale), unit.short).trim_end().to_owned()
            }
        }
    }
}

/// The median of trials and their range, in units of `scale`.
pub(in crate::report) fn with_range(summary: Summary, scale: f64) -> String {
    let [middle, min, max] =
        [summary.median, summary.min, summary.max].map(|number| three_digits(number / scale));
    if summary.trials < 2 { middle } else { format!("{middle} ({min}..{max})") }
}

/// The same of a metric, in the unit that suits the median: `90.0 (80.0..100) million/s`.
pub(in crate::report) fn measured(metric: &Shown, summary: Summary) -> String {
    let unit = unit::for_one(&metric.units, summary.median);
    format!("{} {}", with_range(summary, unit.scale), unit.short).trim_end().to_owned()
}
