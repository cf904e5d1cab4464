//! Metrics: what is measured, in which unit, and which way is better.

use std::borrow::Cow;

use serde::Serialize;

use crate::definition::MetricDef;
use crate::unit::{self, Unit, three_digits};

/// A metric. Its name ends in the unit of the numbers in results.
#[derive(Debug)]
pub struct Metric {
    /// What it is called.
    pub name: &'static str,
    /// What stands above its column.
    pub label: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// Which way is better.
    pub better: Better,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is.
    More,
    /// Less is.
    Less,
}

/// All metrics there are, in the order in which they are shown.
pub const METRICS: &[Metric] = &[
    more("rate_mib_per_s", "rate", "bytes that the requester has verified, per second"),
    more("rate_mib_per_cpu_s", "per CPU second", "the same, per second of CPU time of both sides"),
    less("cpu_s_per_s", "CPU", "CPU time of both sides per second"),
    less("cpu_spinning_s_per_s", "spinning", "of it, spent polling an empty queue"),
    less("cpu_cp_s_per_mib", "CP per MiB", "CPU time of the kernel on behalf of both sides"),
    less("cpu_cp_percent", "CP part", "the kernel's part of the CPU time"),
    less("cpu_cp_error_percent", "CP error", "how many points the kernel's part may be off"),
    less(
        "exchange_p50_ns",
        "exchange",
        "time per exchange: mean of each sample, median over the samples",
    ),
    more("rate_messages_per_s", "messages", "messages that the receiver has verified, per second"),
    more("rate_bytes_per_s", "data rate", "bytes of those messages"),
    less("latency_p50_ns", "median delay", "median delay of a message, or of an exchange"),
    less("latency_p99_ns", "p99 delay", "delay that 99 of 100 do not exceed"),
    less("latency_p999_ns", "p99.9 delay", "delay that 999 of 1000 do not exceed"),
    less(
        "receive_p50_ns",
        "receive",
        "time to receive one message: mean of each batch of eight, median over the batches",
    ),
    less("cpu_ns_per_message", "CPU per message", "CPU time of all processes per message"),
    less("cpu_spinning_ns_per_message", "spinning", "of it, spent polling an empty queue"),
    less("cpu_virtual_ns_per_message", "virtual", "of it, in the programs"),
    less("cpu_cp_ns_per_message", "CP", "of it, in the kernel on behalf of the programs"),
    less("cpu_split_error_ns_per_message", "split error", "how far the last two may be off"),
    less(
        "cpu_processors_ns_per_message",
        "processors",
        "busy time of both processors per message, interrupts and kernel threads included",
    ),
    more(
        "rate_ios_per_s",
        "I/Os",
        "I/Os that have ended, whose data the guest has verified, per second",
    ),
    more(
        "rate_ios_per_cpu_s",
        "I/Os per CPU second",
        "the same, per second of CPU time of all processes",
    ),
    less(
        "service_ns_per_io",
        "service",
        "time from start to end of an I/O, in the measurement blocks of the channel",
    ),
    less("disconnect_ns_per_io", "disconnect", "of the service time, waiting for the file"),
    less(
        "cp_cpu_ns_per_io",
        "CP CPU",
        "CPU time of channel and control unit per I/O, in which they found something to do",
    ),
    less("cp_spinning_ns_per_io", "CP spinning", "the rest of their CPU time"),
    less("guest_cpu_ns_per_io", "guest CPU", "CPU time of the guests per I/O, with what they wait"),
    less("units_per_io", "units", "information units between channel and control unit"),
    less("unit_commands_per_io", "command", "of them, commands"),
    less("unit_responses_per_io", "response", "of them, command responses"),
    less("unit_data_per_io", "data", "of them, data"),
    less("unit_status_per_io", "status", "of them, status"),
    less("unit_transport_per_io", "transport", "of them, transport commands and responses"),
    less("unit_ready_per_io", "ready", "of them, transfer ready"),
    more("deeds_per_s", "deeds", "actions of the tenant that were not refused, per second"),
    less("cpu_percent_of_core", "CPU", "CPU time of host and guests, as part of one processor"),
    less(
        "resident_bytes_per_idle_connection",
        "resident",
        "memory that an idle connection takes in a process, with page tables: the larger of the two sides",
    ),
    less(
        "resident_bytes_per_path_side",
        "resident",
        "memory that an idle path takes in a guest: the larger of the two guests",
    ),
    less(
        "resident_after_burst_bytes_per_path_side",
        "resident after a burst",
        "memory that the path takes after a burst and one quiet window",
    ),
];

const fn more(name: &'static str, label: &'static str, meaning: &'static str) -> Metric {
    Metric { name, label, meaning, better: Better::More }
}

const fn less(name: &'static str, label: &'static str, meaning: &'static str) -> Metric {
    Metric { name, label, meaning, better: Better::Less }
}

/// The metric of this name.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
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
    pub units: Cow<'static, [Unit]>,
}

impl Shown {
    /// The metric of this name, which one of these may define. `interactive.latency_p50_ns` is that of one of
    /// several workloads. Of a metric that is not known, more is better.
    pub fn of(name: &str, defined: &[MetricDef]) -> Shown {
        if let Some(metric) = defined.iter().find(|metric| metric.name == name) {
            let (label, better) = (metric.label.clone(), metric.better);
            return Shown { name: name.to_owned(), label, better, units: metric.units() };
        }
        let (part, own) = match name.split_once('.') {
            Some((part, own)) => (Some(part), own),
            None => (None, name),
        };
        let known = find(own);
        let label = known.map_or(own, |metric| metric.label);
        Shown {
            name: name.to_owned(),
            label: part.map_or_else(|| label.to_owned(), |part| format!("{part}: {label}")),
            better: known.map_or(Better::More, |metric| metric.better),
            units: Cow::Borrowed(unit::units(own)),
        }
    }

    /// What it is called, with its unit: `median delay, µs`. Without a unit each number shows its own.
    pub fn heading(&self, unit: Option<&Unit>) -> String {
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
        let unit = unit::for_one(&self.units, number);
        format!("{} {}", three_digits(number / unit.scale), unit.short).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_ends_in_a_unit() {
        for metric in METRICS {
            assert!(!unit::units(metric.name)[0].label.is_empty(), "{}", metric.name);
        }
    }

    #[test]
    fn heading_has_the_unit_unless_each_number_has_its_own() {
        let heading = |name| {
            let shown = Shown::of(name, &[]);
            shown.heading(unit::for_all(&shown.units, &[5e6]))
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
        assert_eq!(show("of_a_newer_siga", 5.0), "5.00");
    }
}
