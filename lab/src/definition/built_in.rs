//! The definitions of the metrics that come with siga.

use super::{MetricDef, Per, Quantity, Unit};
use crate::metric;
use crate::role::RoleSpec;
use crate::workload::{Part, Workload, named};

/// Which roles a definition sums over, whatever they are called.
#[derive(Clone, Copy)]
enum Who {
    All,
    /// All but those that attend, as a host.
    Guests,
    /// Those that attend.
    Attending,
    Measured,
}
use Who::{All, Attending, Guests, Measured};

/// Name, quantity, kind, part, roles, per, and how many base units one of the result's unit is.
type Row = (&'static str, Quantity, &'static str, &'static str, Who, Per, f64);

const MESSAGE: Per = Per::Work("messages");
const IO: Per = Per::Work("ios");
const MIB: f64 = 1_048_576.0;
const S: f64 = 1e9;

const ROWS: &[Row] = &[
    ("rate_mib_per_s", Quantity::Work, "bytes", "", Measured, Per::Second, MIB),
    ("rate_mib_per_cpu_s", Quantity::Work, "bytes", "", Guests, Per::CpuSecond, MIB),
    ("cpu_s_per_s", Quantity::Cpu, "", "", Guests, Per::Second, S),
    ("cpu_spinning_s_per_s", Quantity::Cpu, "", "spinning", Guests, Per::Second, S),
    ("cpu_cp_s_per_mib", Quantity::Cpu, "", "system", Guests, Per::Mib, S),
    ("cpu_cp_percent", Quantity::Cpu, "", "system", Guests, Per::Share, 0.01),
    ("cpu_cp_error_percent", Quantity::Cpu, "", "error", Guests, Per::Share, 0.01),
    ("exchange_p50_ns", Quantity::Time, "exchange", "median", All, Per::Trial, 1.0),
    ("rate_messages_per_s", Quantity::Work, "messages", "", Measured, Per::Second, 1.0),
    ("rate_bytes_per_s", Quantity::Work, "bytes", "", Measured, Per::Second, 1.0),
    ("latency_p50_ns", Quantity::Time, "latency", "p50", All, Per::Trial, 1.0),
    ("latency_p99_ns", Quantity::Time, "latency", "p99", All, Per::Trial, 1.0),
    ("latency_p999_ns", Quantity::Time, "latency", "p999", All, Per::Trial, 1.0),
    ("receive_p50_ns", Quantity::Time, "receive", "p50", All, Per::Trial, 1.0),
    ("cpu_ns_per_message", Quantity::Cpu, "", "", All, MESSAGE, 1.0),
    ("cpu_spinning_ns_per_message", Quantity::Cpu, "", "spinning", Guests, MESSAGE, 1.0),
    ("cpu_virtual_ns_per_message", Quantity::Cpu, "", "user", Guests, MESSAGE, 1.0),
    ("cpu_cp_ns_per_message", Quantity::Cpu, "", "system", Guests, MESSAGE, 1.0),
    ("cpu_split_error_ns_per_message", Quantity::Cpu, "", "error", Guests, MESSAGE, 1.0),
    ("cpu_processors_ns_per_message", Quantity::Processor, "", "busy", Guests, MESSAGE, 1.0),
    ("rate_ios_per_s", Quantity::Work, "ios", "", Measured, Per::Second, 1.0),
    ("rate_ios_per_cpu_s", Quantity::Work, "ios", "", All, Per::CpuSecond, 1.0),
    ("service_ns_per_io", Quantity::Counter, "service_ns", "", Attending, IO, 1.0),
    ("disconnect_ns_per_io", Quantity::Counter, "disconnect_ns", "", Attending, IO, 1.0),
    ("cp_cpu_ns_per_io", Quantity::Cpu, "", "busy", Attending, IO, 1.0),
    ("cp_spinning_ns_per_io", Quantity::Cpu, "", "spinning", Attending, IO, 1.0),
    ("guest_cpu_ns_per_io", Quantity::Cpu, "", "", Guests, IO, 1.0),
    ("units_per_io", Quantity::Counter, "units", "", Attending, IO, 1.0),
    ("unit_commands_per_io", Quantity::Counter, "unit_commands", "", Attending, IO, 1.0),
    ("unit_responses_per_io", Quantity::Counter, "unit_responses", "", Attending, IO, 1.0),
    ("unit_data_per_io", Quantity::Counter, "unit_data", "", Attending, IO, 1.0),
    ("unit_status_per_io", Quantity::Counter, "unit_status", "", Attending, IO, 1.0),
    ("unit_transport_per_io", Quantity::Counter, "unit_transport", "", Attending, IO, 1.0),
    ("unit_ready_per_io", Quantity::Counter, "unit_ready", "", Attending, IO, 1.0),
    ("deeds_per_s", Quantity::Work, "deeds", "", Guests, Per::Second, 1.0),
    // A second in a second is all of a processor.
    ("cpu_percent_of_core", Quantity::Cpu, "", "", All, Per::Second, S / 100.0),
    (
        "resident_bytes_per_idle_connection",
        Quantity::Level,
        "resident_idle_connection",
        "",
        All,
        Per::Trial,
        1.0,
    ),
    ("resident_bytes_per_path_side", Quantity::Level, "resident", "", All, Per::Trial, 1.0),
    (
        "resident_after_burst_bytes_per_path_side",
        Quantity::Level,
        "resident_after_burst",
        "",
        All,
        Per::Trial,
        1.0,
    ),
];

/// The definitions of the metrics of a workload.
///
/// # Panics
/// If the workload names a metric that is not defined: a broken promise inside this program.
pub fn built_in(workload: &'static Workload) -> Vec<MetricDef> {
    let of_part = |part: Part| part.workload.metrics.iter().map(move |name| define(name, &part));
    workload.parts().into_iter().flat_map(of_part).collect()
}

fn define(name: &str, part: &Part) -> MetricDef {
    let workload = part.workload;
    let row = ROWS.iter().find(|row| row.0 == name);
    let (_, quantity, kind, part_of, who, per, scale) = *row.expect("every metric is defined");
    let shown = metric::find(name).expect("every metric is described");
    let is_meant = |role: &&RoleSpec| match who {
        All => true,
        Guests => !role.attends,
        Attending => role.attends,
        Measured => role.is_measured,
    };
    let word = |word: &str| (!word.is_empty()).then(|| word.to_owned());
    let roles = workload.roles.iter().filter(is_meant);
    MetricDef {
        name: named(part.name, name),
        quantity,
        kind: word(kind),
        part: word(part_of),
        roles: roles.map(|role| named(part.name, role.name)).collect(),
        per,
        whole: None,
        // The name ends in the unit.
        unit: Unit { label: "", scale },
        label: shown.label.to_owned(),
        better: shown.better,
        meaning: shown.meaning.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WORKLOADS;

    #[test]
    fn every_metric_that_comes_with_siga_is_defined() {
        for workload in WORKLOADS {
            assert_eq!(built_in(workload).len(), workload.metrics.len());
            assert_eq!(workload.roles.iter().filter(|role| role.is_measured).count(), 1);
        }
        for metric in metric::METRICS {
            assert!(ROWS.iter().any(|row| row.0 == metric.name), "{}", metric.name);
        }
    }
}
