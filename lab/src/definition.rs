//! Definitions of metrics: which quantity of which roles, divided by what.
//!
//! A metric is computed from the quantities that the parties of a trial have reported, so it can be defined
//! after the run. Those that come with siga are definitions too ([`crate::metric::built_in`]).

mod compute;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::case::Case;
use crate::metric::{Better, built_in};
use crate::quantity::Party;
use crate::unit;

pub use compute::{Scope, compute};

/// How a metric is computed.
#[derive(Clone, Debug, PartialEq)]
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
    pub roles: Vec<String>,
    /// Divided by what.
    pub per: Per,
    /// Divided by this quantity of the trial too, if by one.
    pub whole: Option<Box<Amount>>,
    /// The unit of the results.
    pub unit: Unit,
    /// What stands above its column.
    pub label: String,
    /// Which way is better.
    pub better: Better,
    /// What it is.
    pub meaning: String,
}

/// A quantity of some roles, as [`MetricDef`] has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Amount {
    /// Which quantity.
    pub quantity: Quantity,
    /// Which kind of it.
    pub kind: Option<String>,
    /// Which part of it.
    pub part: Option<String>,
    /// Summed over these roles; over all that have it if there are none.
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
            whole: None,
            unit: UNITS[0],
            label: String::new(),
            better: Better::Less,
            meaning: String::new(),
        }
    }

    /// The units in which its numbers can be shown, the smallest first. A definition that names one has that. One whose
    /// numbers are multiplied with something has the unit that its label says.
    pub fn units(&self) -> Cow<'static, [unit::Unit]> {
        // A unit that only this metric has is named by its label.
        let is_own = self.unit.scale != Unit::find(self.unit.label).map_or(1.0, |unit| unit.scale);
        let is_same = |own: &Amount| own.quantity == self.quantity && own.kind == self.kind;
        let is_share = self.per == Per::Share || self.whole.as_deref().is_some_and(is_same);
        let per = match self.per {
            _ if is_own => "",
            Per::Second => "/s",
            Per::Mib => "/MiB",
            Per::CpuSecond => "/CPU-s",
            Per::Trial | Per::Work(_) | Per::Share => "",
        };
        let usual = match (self.quantity, self.per) {
            _ if is_own => unit::plain(),
            _ if is_share => unit::plain(),
            (Quantity::Time | Quantity::Cpu | Quantity::Processor | Quantity::Unexplained, _) => {
                unit::of_time()
            }
            (Quantity::Work, _) if self.kind.as_deref() == Some("bytes") => unit::of_bytes(),
            (Quantity::Work | Quantity::Counter | Quantity::Level, _) => unit::plain(),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Nothing: it is that of the trial.
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
}

/// The names by which case files know these.
pub(crate) const QUANTITIES: &[(&str, Quantity)] = &[
    ("work", Quantity::Work),
    ("time", Quantity::Time),
    ("cpu", Quantity::Cpu),
    ("processor", Quantity::Processor),
    ("unexplained", Quantity::Unexplained),
    ("counter", Quantity::Counter),
    ("level", Quantity::Level),
];

pub(crate) const PERS: &[(&str, Per)] = &[
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

/// The unit of a metric's numbers in results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// What stands behind a number.
    pub label: &'static str,
    /// How many nanoseconds, bytes or events it is.
    pub scale: f64,
}

/// The units that definitions can name.
pub(crate) const UNITS: &[Unit] = &[
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

impl Unit {
    /// The unit of this label.
    pub(crate) fn find(label: &str) -> Option<Unit> {
        UNITS.iter().copied().find(|unit| unit.label == label)
    }

    /// How many nanoseconds, bytes or events in a second the unit is, if it is one of what is divided by seconds: all of a
    /// processor is a second in a second.
    pub(crate) fn scale_per(self, per: Per) -> f64 {
        if self.label == "%" && per == Per::Second { self.scale * 1e9 } else { self.scale }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = QUANTITIES.iter().find(|(_, quantity)| quantity == self);
        formatter.write_str(named.map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_multiplied_have_no_unit_of_their_own() {
        let metric = |unit, per| {
            let label = "%CP-CPU".into();
            MetricDef { unit, label, ..MetricDef::of(Quantity::Cpu, per) }
        };
        let labels = |metric: &MetricDef| -> Vec<String> {
            metric.units().iter().map(|unit| unit.label.to_string()).collect()
        };
        let times = Unit { scale: 1e7, ..UNITS[0] };
        assert_eq!(labels(&metric(times, Per::Work("ios"))), [""]);
        assert_eq!(labels(&metric(times, Per::Second)), [""]);
        assert_eq!(labels(&metric(UNITS[0], Per::Second)), ["ns/s", "µs/s", "ms/s", "s/s"]);
        assert_eq!(labels(&metric(Unit::find("ms").unwrap(), Per::Mib)), ["ms/MiB"]);
    }
}
