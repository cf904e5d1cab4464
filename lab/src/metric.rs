//! Metrics: what is measured, in which unit, and which way is better.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::definition::MetricDef;
use crate::role::RoleSpec;
use crate::unit::{self, three_digits};
use crate::workload::{Part, Workload, named, split};

/// The metrics that come with siga, in the format of case files.
const TEXT: &str = include_str!("metrics.toml");

/// A metric that comes with siga. Its name ends in the unit of the numbers in results.
#[derive(Debug, Deserialize)]
pub struct Metric {
    was: Option<String>,
    of: Of,
    shown: Option<String>,
    /// In which units people see it, the smallest first.
    #[serde(skip)]
    units: Vec<unit::Unit>,
    /// How it is computed, but for its roles.
    #[serde(flatten)]
    pub definition: MetricDef,
}

/// Which roles a metric sums over, whatever they are called.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Of {
    All,
    /// All but those that attend, as a host.
    Guests,
    /// Those that attend.
    Attending,
    Measured,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is.
    More,
    /// Less is.
    Less,
}

/// All metrics that come with siga, in the order in which they are shown. They are read where they are first needed.
///
/// # Panics
/// If they are not as described: a broken promise inside this program.
pub static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct All {
        units: BTreeMap<String, Vec<unit::Unit>>,
        metric: Vec<Metric>,
    }
    let All { units, mut metric } = toml::from_str(TEXT).expect("the metrics of siga are right");
    for metric in &mut metric {
        metric.units = match metric.shown.as_deref() {
            None => metric.definition.units().into_owned(),
            Some("time") => unit::TIME.to_vec(),
            Some("bytes") => unit::BYTES.to_vec(),
            Some(shown) => units[shown].clone(),
        };
    }
    metric
});

/// The metric of this name.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.definition.name == name)
}

/// The name that a metric of siga's has now, of one that older case files and results may have. Other names are as they
/// were.
pub fn renamed(name: &str) -> String {
    let (part, own) = split(name);
    let metric = METRICS.iter().find(|metric| metric.was.as_deref() == Some(own));
    metric.map_or_else(|| name.to_owned(), |metric| named(part, &metric.definition.name))
}

/// The definitions of the metrics of a workload.
///
/// # Panics
/// If the workload names a metric that does not come with siga: a broken promise inside this program.
pub fn built_in(workload: &'static Workload) -> Vec<MetricDef> {
    let define = |part: &Part, name| find(name).expect("every metric is defined").define(part);
    let of_part =
        |part: Part| part.workload.metrics().into_iter().map(move |name| define(&part, name));
    workload.parts().into_iter().flat_map(of_part).collect()
}

impl Metric {
    /// Its definition for a workload of a trial.
    fn define(&self, part: &Part) -> MetricDef {
        let is_meant = |role: &&RoleSpec| match self.of {
            Of::All => true,
            Of::Guests => !role.attends,
            Of::Attending => role.attends,
            Of::Measured => role.is_measured,
        };
        let roles = part.workload.roles.iter().filter(is_meant);
        MetricDef {
            name: named(part.name, &self.definition.name),
            roles: roles.map(|role| named(part.name, role.name)).collect(),
            ..self.definition.clone()
        }
    }
}

/// A metric as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// What it is called in results.
    pub name: String,
    /// What it is called above its column or beside its row: `median delay`.
    pub label: String,
    /// Which way is better.
    pub better: Better,
    /// In which units, the smallest first. At least one.
    pub units: Cow<'static, [unit::Unit]>,
}

impl Shown {
    /// The metric of this name, which one of these may define. `interactive.latency_p50_ns` is that of one of
    /// several workloads. Of a metric that is not known, more is better.
    pub fn of(name: &str, defined: &[MetricDef]) -> Shown {
        if let Some(metric) = defined.iter().find(|metric| metric.name == name) {
            let (label, better) = (metric.label.clone(), metric.better());
            return Shown { name: name.to_owned(), label, better, units: metric.units() };
        }
        let (part, own) = match name.split_once('.') {
            Some((part, own)) => (Some(part), own),
            None => (None, name),
        };
        let known = find(own);
        let label = known.map_or(own, |metric| &metric.definition.label);
        Shown {
            name: name.to_owned(),
            label: part.map_or_else(|| label.to_owned(), |part| format!("{part}: {label}")),
            better: known.map_or(Better::More, |metric| metric.definition.better()),
            units: Cow::Borrowed(known.map_or(unit::PLAIN, |metric| &metric.units)),
        }
    }

    /// What it is called, with its unit: `median delay, µs`. Without a unit each number shows its own.
    pub fn heading(&self, unit: Option<&unit::Unit>) -> String {
        let Shown { label, .. } = self;
        match unit {
            // The unit says it all: million messages/s.
            Some(unit) if unit.label.contains(label.as_str()) => unit.label.to_string(),
            Some(unit) if !unit.label.is_empty() => format!("{label}, {}", unit.label),
            _ => label.clone(),
        }
    }

    /// The unit of its numbers in results, empty if they have none.
    pub fn unit(&self) -> &str {
        self.units.iter().find(|unit| unit.scale == 1.0).map_or("", |unit| &unit.label)
    }

    /// A number with the unit that suits it: `9.43 thousand/s`.
    pub fn show(&self, number: f64) -> String {
        self.show_in(None, number)
    }

    /// The same in a unit that a heading names, if it names one.
    pub fn show_in(&self, unit: Option<&unit::Unit>, number: f64) -> String {
        unit::show(&self.units, unit, number, |scale| three_digits(number / scale))
    }
}

#[cfg(test)]
mod tests {
    use host::config::Source;

    use super::*;
    use crate::case::Case;
    use crate::record;
    use crate::workload::WORKLOADS;

    #[test]
    fn every_metric_is_shown_in_a_unit_and_every_workload_has_its_definitions() {
        for metric in METRICS.iter() {
            assert!(!metric.units[0].label.is_empty(), "{}", metric.definition.name);
        }
        let mut used = Vec::new();
        for workload in WORKLOADS {
            let definitions = built_in(workload);
            assert_eq!(definitions.len(), workload.metrics().len());
            used.extend(definitions.into_iter().map(|metric| metric.name));
            let measured = workload.roles.iter().filter(|role| role.is_measured).count();
            // Bytes go to the target, or come to the client.
            let wanted = if workload.name == "network-stream" { 2 } else { 1 };
            assert_eq!(measured, wanted, "{}", workload.name);
        }
        let unused = METRICS.iter().find(|metric| !used.contains(&metric.definition.name));
        assert_eq!(unused.map(|metric| &metric.definition.name), None, "no workload has it");
    }

    #[test]
    fn older_names_are_those_of_today() {
        assert_eq!(renamed("cpu_cp_percent"), "kernel_cpu_percent");
        assert_eq!(renamed("bulk.cp_cpu_ns_per_io"), "bulk.channel_busy_cpu_ns_per_io");
        for name in ["kernel_cpu_percent", "mine", "a.b.c", ""] {
            assert_eq!(renamed(name), name);
        }
        let line = r#"{"case":"mine","system":"open","trial":1,"factors":{},"metrics":{"cpu_cp_percent":5.5},"counters":{},"machine":{"pinned":[0,1]},"run":7,"seconds":0.5}"#;
        let records = record::parse(&Source::of("r.jsonl", &format!("{line}\n"))).unwrap();
        assert_eq!(records[0].metrics["kernel_cpu_percent"], 5.5);
        let case = "name = \"mine\"\nasks = \"?\"\nworkload = \"message-request\"\ntrials = 1\nseconds = 1\n\
            warm_up_seconds = 0\n[[table]]\nmetric = \"cpu_cp_percent\"\n";
        let case = Case::parse(&Source::of("c.toml", case), &|_| unreachable!("it names none"));
        assert_eq!(case.unwrap().tables[0].metrics, ["kernel_cpu_percent"]);
    }

    #[test]
    fn heading_has_the_unit_unless_each_number_has_its_own() {
        let heading = |name| {
            let shown = Shown::of(name, &[]);
            shown.heading(unit::for_all(&shown.units, [5e6]))
        };
        assert_eq!(heading("cpu_ns_per_message"), "CPU per message, ms");
        assert_eq!(heading("rate_messages_per_s"), "million messages/s");
        assert_eq!(heading("bulk.rate_messages_per_s"), "bulk: messages, million messages/s");
        assert_eq!(Shown::of("rate_messages_per_s", &[]).heading(None), "messages");
        assert_eq!(heading("of_a_newer_siga"), "of_a_newer_siga");
    }

    #[test]
    fn number_is_shown_with_the_unit_that_suits_it() {
        let show = |name, number| Shown::of(name, &[]).show(number);
        assert_eq!(show("rate_messages_per_s", 9430.0), "9.43 thousand/s");
        assert_eq!(show("rate_bytes_per_s", 12_345_678_901.0), "12.3 GB/s");
        assert_eq!(show("latency_p50_ns", 212_053.0), "212 µs");
        assert_eq!(show("rate_messages_per_s", 999_600.0), "1.00 million/s");
        assert_eq!(show("kernel_cpu_s_per_mib", 0.002), "2.00 CPU-ms/MiB");
        assert_eq!(show("kernel_cpu_percent", 0.001), "0.00100 %");
        assert_eq!(show("rate_mib_per_cpu_s", 70.0), "70.0 MiB/CPU-s");
        assert_eq!(show("deeds_per_s", 5.0), "5.00 /s");
        assert_eq!(show("of_a_newer_siga", 5.0), "5.00");
    }
}
