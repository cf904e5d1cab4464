//! Metrics: what is measured, in which unit, and which way is better.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    less("cpu_percent_of_core", "CPU", "CPU time of host and guests, as part of one processor"),
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

/// What a metric is called above its column or beside its row: `median delay`.
pub fn label(name: &str) -> &str {
    find(name).map_or(name, |metric| metric.label)
}

/// Which way of a metric is better. Of a metric that is not known, more is.
pub fn better(name: &str) -> Better {
    find(name).map_or(Better::More, |metric| metric.better)
}

/// What a metric is called, with its unit: `median delay, µs`. Without a unit each number shows its own.
pub fn heading(name: &str, unit: Option<Unit>) -> String {
    let label = label(name);
    match unit {
        // The unit says it all: million messages/s.
        Some(unit) if unit.label.contains(label) => unit.label.to_owned(),
        Some(unit) if !unit.label.is_empty() => format!("{label}, {}", unit.label),
        _ => label.to_owned(),
    }
}

/// A number with the unit that suits it: `9.43 thousand/s`.
pub fn show(name: &str, number: f64) -> String {
    let unit = unit::for_one(name, number);
    format!("{} {}", three_digits(number / unit.scale), unit.short).trim_end().to_owned()
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
        let heading = |name| heading(name, unit::for_all(name, &[5e6]));
        assert_eq!(heading("cpu_ns_per_message"), "CPU per message, ms");
        assert_eq!(heading("rate_messages_per_s"), "million messages/s");
        assert_eq!(super::heading("rate_messages_per_s", None), "messages");
        assert_eq!(super::heading("of_a_newer_siga", Some(unit::units("x")[0])), "of_a_newer_siga");
    }

    #[test]
    fn number_is_shown_with_the_unit_that_suits_it() {
        assert_eq!(show("rate_messages_per_s", 9430.0), "9.43 thousand/s");
        assert_eq!(show("rate_bytes_per_s", 12_345_678_901.0), "12.3 GB/s");
        assert_eq!(show("latency_p50_ns", 212_053.0), "212 µs");
        assert_eq!(show("of_a_newer_siga", 5.0), "5.00");
    }
}
