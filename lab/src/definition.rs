//! Definitions of metrics: which quantity of which roles, divided by what.
//!
//! A metric is computed from the quantities that the parties of a trial have reported, so it can be defined
//! after the run. Those that come with siga are definitions too ([`crate::metric::built_in`]).

mod compute;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, Error};

use crate::case::{Case, Wrong, names};
use crate::metric::{Better, built_in};
use crate::quantity::Party;
use crate::unit;

pub use compute::{Scope, compute};

/// How a metric is computed: what a case file says of it.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricDef {
    /// What it is called.
    pub name: String,
    /// Of which quantity.
    pub quantity: Quantity,
    /// Which kind of work or of time, or which counter; left out for quantities without kinds.
    pub kind: Option<String>,
    /// Which part of it: of processor time `user`, `system`, `spinning`, `error`; of times `p50`, `mean`, ..;
    /// of processors `busy`, `stolen`. None if all counts.
    pub part: Option<String>,
    /// Summed over these roles; over all that have it if there are none.
    #[serde(default, rename = "role", deserialize_with = "names")]
    pub roles: Vec<String>,
    /// Divided by what.
    #[serde(default)]
    pub per: Per,
    /// The unit of the results.
    #[serde(default)]
    pub unit: Unit,
    /// What the results are multiplied with, for units that one document has alone.
    pub times: Option<f64>,
    /// What stands above its column.
    #[serde(default)]
    pub label: String,
    /// Which way is better. Left out, more is better of work, and less of all else.
    pub better: Option<Better>,
    /// What it is.
    #[serde(default)]
    pub meaning: String,
}

/// A quantity of some roles, as [`MetricDef`] has it.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// Which quantity.
    pub quantity: Quantity,
    /// Which kind of it.
    pub kind: Option<String>,
    /// Which part of it.
    pub part: Option<String>,
    /// Summed over these roles; over all that have it if there are none.
    #[serde(default, rename = "role", deserialize_with = "names")]
    pub roles: Vec<String>,
}

impl MetricDef {
    /// All of a quantity, divided by this: to be computed, without what people need.
    pub(crate) fn of(quantity: Quantity, per: Per) -> MetricDef {
        MetricDef {
            name: String::new(),
            quantity,
            kind: None,
            part: None,
            roles: Vec::new(),
            per,
            unit: Unit::default(),
            times: None,
            label: String::new(),
            better: None,
            meaning: String::new(),
        }
    }

    /// What is divided.
    pub(crate) fn amount(&self) -> Amount {
        let MetricDef { quantity, kind, part, roles, .. } = self.clone();
        Amount { quantity, kind, part, roles }
    }

    /// Which way is better.
    pub fn better(&self) -> Better {
        let usual = if self.quantity == Quantity::Work { Better::More } else { Better::Less };
        self.better.unwrap_or(usual)
    }

    /// How many nanoseconds, bytes or events one of its numbers is.
    fn scale(&self) -> f64 {
        // All of a processor is a second in a second.
        let is_of_seconds = self.unit.label == "%" && self.per == Per::Second;
        let scale = if is_of_seconds { self.unit.scale * 1e9 } else { self.unit.scale };
        scale / self.times.unwrap_or(1.0)
    }

    /// Whether it is a part of a whole.
    pub(crate) fn is_share(&self) -> bool {
        match &self.per {
            Per::Share => true,
            Per::Amount(whole) => whole.quantity == self.quantity && whole.kind == self.kind,
            _ => false,
        }
    }

    /// The units in which its numbers can be shown, the smallest first. A definition that names one has that. One whose
    /// numbers are multiplied with something has the unit that its label says.
    pub fn units(&self) -> Cow<'static, [unit::Unit]> {
        // A unit that only this metric has is named by its label.
        let is_own = self.scale() != self.unit.scale;
        let per = match self.per {
            _ if is_own => "",
            Per::Second => "/s",
            Per::Mib => "/MiB",
            Per::CpuSecond => "/CPU-s",
            Per::Trial | Per::Work(_) | Per::Share | Per::Amount(_) => "",
        };
        let usual = match self.quantity {
            _ if is_own || self.is_share() => unit::PLAIN,
            Quantity::Time | Quantity::Cpu | Quantity::Processor | Quantity::Unexplained => {
                unit::TIME
            }
            Quantity::Work if self.kind.as_deref() == Some("bytes") => unit::BYTES,
            Quantity::Work | Quantity::Counter | Quantity::Level => unit::PLAIN,
        };
        let named = unit::Unit {
            label: Cow::Borrowed(self.unit.label),
            short: Cow::Borrowed(self.unit.label),
            scale: 1.0,
        };
        let units = if self.unit.label.is_empty() { usual } else { &[named] };
        let divided = |unit: &unit::Unit| unit::Unit {
            label: format!("{}{per}", unit.label).into(),
            short: format!("{}{per}", unit.short).into(),
            scale: unit.scale,
        };
        units.iter().map(divided).collect()
    }
}

/// The metrics of a trial of a case: those that come with its workload, and its own.
pub fn values(case: &Case, parties: &[Party]) -> BTreeMap<String, f64> {
    let scope = Scope::new(case.workload, parties);
    let built_in = built_in(case.workload);
    let all = built_in.iter().chain(&case.metrics);
    all.filter_map(|metric| Some((metric.name.clone(), compute(metric, &scope)?))).collect()
}

/// What parties report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// What was done.
    Work,
    /// How long it took.
    Time,
    /// Processor time of parties.
    Cpu,
    /// Time of whole processors.
    Processor,
    /// Busy time of processors that no party explains.
    Unexplained,
    /// What was counted.
    Counter,
    /// What is neither done nor spent. Of several parties the greatest counts.
    Level,
}

/// What a quantity is divided by.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Per {
    /// Nothing: it is that of the trial.
    #[default]
    Trial,
    /// Work of a kind: each role's own, or that of the measured role for a role that does none.
    Work(&'static str),
    /// 2^20 bytes.
    Mib,
    /// A second of the window.
    Second,
    /// A second of processor time of the same roles.
    CpuSecond,
    /// All of the quantity.
    Share,
    /// This quantity of the trial.
    Amount(Box<Amount>),
}

#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a name, or a quantity with its kind, part and role")]
enum WrittenPer {
    Word(String),
    Amount(Box<Amount>),
}

/// The names by which case files know what a quantity is divided by.
const PERS: &[(&str, Per)] = &[
    ("trial", Per::Trial),
    ("message", Per::Work("messages")),
    ("transaction", Per::Work("transactions")),
    ("packet", Per::Work("packets")),
    ("io", Per::Work("ios")),
    ("byte", Per::Work("bytes")),
    ("mib", Per::Mib),
    ("second", Per::Second),
    ("cpu_second", Per::CpuSecond),
    ("share", Per::Share),
];

impl<'de> Deserialize<'de> for Per {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Per, D::Error> {
        match WrittenPer::deserialize(deserializer)? {
            WrittenPer::Amount(amount) => Ok(Per::Amount(amount)),
            WrittenPer::Word(word) => {
                let names: Vec<&str> = PERS.iter().map(|(name, _)| *name).collect();
                let found = PERS.iter().find(|(name, _)| *name == word);
                let unknown = || D::Error::custom(Wrong::unknown("denominator", &word, &names));
                found.map(|(_, per)| per.clone()).ok_or_else(unknown)
            }
        }
    }
}

/// The unit of a metric's numbers in results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// What stands behind a number.
    pub label: &'static str,
    /// How many nanoseconds, bytes or events it is.
    pub scale: f64,
}

/// The units that definitions can name.
const UNITS: &[Unit] = &[
    Unit { label: "", scale: 1.0 },
    Unit { label: "ns", scale: 1.0 },
    Unit { label: "us", scale: 1e3 },
    Unit { label: "µs", scale: 1e3 },
    Unit { label: "ms", scale: 1e6 },
    Unit { label: "s", scale: 1e9 },
    Unit { label: "B", scale: 1.0 },
    Unit { label: "KiB", scale: 1024.0 },
    Unit { label: "MiB", scale: 1_048_576.0 },
    Unit { label: "kB", scale: 1e3 },
    Unit { label: "MB", scale: 1e6 },
    Unit { label: "GB", scale: 1e9 },
    Unit { label: "thousand", scale: 1e3 },
    Unit { label: "million", scale: 1e6 },
    Unit { label: "%", scale: 0.01 },
];

impl Default for Unit {
    fn default() -> Unit {
        UNITS[0]
    }
}

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unit, D::Error> {
        let label = String::deserialize(deserializer)?;
        let known: Vec<&str> = UNITS[1..].iter().map(|unit| unit.label).collect();
        let found = UNITS.iter().copied().find(|unit| unit.label == label);
        found.ok_or_else(|| D::Error::custom(Wrong::unknown("unit", &label, &known)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_multiplied_have_no_unit_of_their_own() {
        let metric = |unit, times, per| {
            let label = "%CP-CPU".into();
            MetricDef { unit, times, label, ..MetricDef::of(Quantity::Cpu, per) }
        };
        let labels = |metric: &MetricDef| -> Vec<String> {
            metric.units().iter().map(|unit| unit.label.to_string()).collect()
        };
        let plain = Unit::default();
        let ms = *UNITS.iter().find(|unit| unit.label == "ms").unwrap();
        assert_eq!(labels(&metric(plain, Some(1e-7), Per::Work("ios"))), [""]);
        assert_eq!(labels(&metric(plain, Some(1e-7), Per::Second)), [""]);
        assert_eq!(labels(&metric(plain, None, Per::Second)), ["ns/s", "µs/s", "ms/s", "s/s"]);
        assert_eq!(labels(&metric(ms, None, Per::Mib)), ["ms/MiB"]);
    }
}
