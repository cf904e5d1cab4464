//! Metrics: what is measured, in which unit, and which way is better.

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
    more("rate_mib_per_s", "rate", "bytes that the requester has verified"),
    more(
        "rate_mib_per_cpu_s",
        "for CPU",
        "the same, for each second of processor time of both sides",
    ),
    less("cpu_s_per_s", "CPU", "processor time of both sides in a second"),
    less("cpu_spinning_s_per_s", "spinning", "of it, spent polling an empty queue"),
    less("cpu_cp_s_per_mib", "CP", "processor time of the kernel on their behalf"),
    less("cpu_cp_percent", "CP", "the kernel's part of the processor time"),
    less("cpu_cp_error_percent", "CP error", "how far the kernel's part may be off, in points"),
    less(
        "exchange_p50_ns",
        "exchange",
        "time of an exchange, mean of a sample, of half of the samples",
    ),
    more("rate_messages_per_s", "messages", "messages that the receiver has verified"),
    more("rate_bytes_per_s", "bytes", "bytes of those messages"),
    less("latency_p50_ns", "p50", "delay that half of the messages, or of the exchanges, keep to"),
    less("latency_p99_ns", "p99", "delay that 99 of 100 keep to"),
    less("latency_p999_ns", "p99.9", "delay that 999 of 1000 keep to"),
    less(
        "receive_p50_ns",
        "receive",
        "time of receiving one, mean of eight, of half of the eights",
    ),
    less("cpu_ns_per_message", "CPU", "processor time of both sides for a message, all of it"),
    less(
        "cpu_spinning_ns_per_message",
        "spinning",
        "of it, spent polling an empty queue: it ends where there is something else to do",
    ),
    less("cpu_virtual_ns_per_message", "virtual", "of it, in the programs"),
    less("cpu_cp_ns_per_message", "CP", "of it, in the kernel on their behalf"),
    less("cpu_split_error_ns_per_message", "split error", "how far the last two may be off"),
    less(
        "cpu_processors_ns_per_message",
        "processors",
        "all that both processors did meanwhile, with interrupts and kernel threads",
    ),
    less("cpu_percent_of_core", "CPU", "processor time of host and guests, of one processor's"),
    less(
        "resident_bytes_per_path_side",
        "resident",
        "memory that an idle path takes in a guest, of both the one that takes more",
    ),
    less(
        "resident_after_burst_bytes_per_path_side",
        "resident after a burst",
        "memory that it takes after a burst and some seconds of quiet",
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

/// How a unit is shown to people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// What stands behind the number.
    pub label: &'static str,
    /// How many of the result's units that is.
    pub scale: f64,
}

/// By the end of a metric's name, longest first.
const UNITS: [(&str, Unit); 11] = [
    ("_bytes_per_path_side", Unit { label: "KiB", scale: 1024.0 }),
    ("_percent_of_core", Unit { label: "%", scale: 1.0 }),
    ("_mib_per_cpu_s", Unit { label: "MiB/CPU-s", scale: 1.0 }),
    ("_s_per_mib", Unit { label: "CPU-s/MiB", scale: 1.0 }),
    ("_mib_per_s", Unit { label: "MiB/s", scale: 1.0 }),
    ("_s_per_s", Unit { label: "CPU-s/s", scale: 1.0 }),
    ("_percent", Unit { label: "%", scale: 1.0 }),
    ("_ns_per_message", Unit { label: "ns", scale: 1.0 }),
    ("_messages_per_s", Unit { label: "M/s", scale: 1e6 }),
    ("_bytes_per_s", Unit { label: "GB/s", scale: 1e9 }),
    ("_ns", Unit { label: "µs", scale: 1e3 }),
];

/// What stands above a metric's column: `p50, µs`.
pub fn heading(name: &str) -> String {
    let label = find(name).map_or(name, |metric| metric.label);
    format!("{label}, {}", unit(name).label)
}

/// A metric's number as people read it, without its unit.
pub fn show(name: &str, number: f64) -> String {
    three_digits(number / unit(name).scale)
}

/// The unit in which a metric is shown to people.
pub fn unit(name: &str) -> Unit {
    let unit = UNITS.iter().find(|(end, _)| name.ends_with(end));
    unit.map_or(Unit { label: "", scale: 1.0 }, |(_, unit)| *unit)
}

/// A number with three digits that matter.
pub fn three_digits(number: f64) -> String {
    let magnitude = number.abs();
    let places = match magnitude {
        // What is left of a difference of equals.
        m if m < 5e-7 => return "0".to_owned(),
        m if m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        // 0.01234 is 0.0123.
        m => (2 - m.log10().floor() as i32).clamp(0, 6) as usize,
    };
    format!("{number:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_ends_in_a_unit() {
        for metric in METRICS {
            assert!(!unit(metric.name).label.is_empty(), "{}", metric.name);
        }
        assert_eq!(unit("latency_p50_ns").label, "µs");
        assert_eq!(heading("cpu_ns_per_message"), "CPU, ns");
        assert_eq!(show("rate_bytes_per_s", 12_345_678_901.0), "12.3");
    }

    #[test]
    fn three_digits_matter() {
        for (number, text) in [
            (0.0, "0"),
            (123_456.0, "123456"),
            (99.96, "100"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.9996, "1.00"),
            (0.1234, "0.123"),
            (0.01234, "0.0123"),
            (-5.678, "-5.68"),
        ] {
            assert_eq!(three_digits(number), text);
        }
    }
}
