//! Whether what a party reports can be: a worker may be another program's, and wrong.

use super::{Report, TIMES, WORK};
use crate::times::{TIME_NS_MAX, Times};

/// The most of anything that a party can have done or counted in a trial.
const COUNT_MAX: u64 = 1 << 53;

/// Processors that the threads of a party run on at a time.
const PROCESSORS_MAX: u64 = 4096;

/// Threads, processors, counters, levels of a report.
const ENTRIES_MAX: usize = 1024;

/// The longest name of a counter, a thread or a level.
const NAME_BYTES_MAX: usize = 128;

/// What is wrong with a report of a trial that took no longer than `ns_max`; nothing if it can be.
pub(crate) fn check(report: &Report, ns_max: u64) -> Result<(), String> {
    let Report { messages, window_ns, work, times, levels, cpu, spinning_ns, .. } = report;
    let Report { processors, counters, .. } = report;
    at_most("messages", *messages, COUNT_MAX)?;
    at_most("window_ns", *window_ns, ns_max)?;
    let entries =
        [work.len(), times.len(), levels.len(), cpu.len(), processors.len(), counters.len()];
    if let Some(entries) = entries.into_iter().find(|entries| *entries > ENTRIES_MAX) {
        return Err(format!("{entries} entries: must be at most {ENTRIES_MAX}"));
    }
    for (kind, count) in work {
        known("work", kind, WORK)?;
        at_most(kind, *count, COUNT_MAX)?;
    }
    for (kind, found) in times {
        known("time", kind, TIMES)?;
        check_times(kind, found)?;
    }
    for (name, level) in levels {
        check_name(name)?;
        if !level.is_finite() || *level < 0.0 {
            return Err(format!("{name} = {level}: must be a number, not below 0"));
        }
    }
    let cpu_ns_max = ns_max.saturating_mul(PROCESSORS_MAX);
    for thread in cpu {
        check_name(&thread.thread)?;
        check_name(&thread.role)?;
        for ns in [thread.ns, thread.user_ns, thread.system_ns] {
            at_most("processor time", ns, cpu_ns_max)?;
        }
    }
    at_most("spinning_ns", spinning_ns.unwrap_or(0), cpu_ns_max)?;
    for processor in processors {
        at_most("busy_ns", processor.busy_ns, cpu_ns_max)?;
        at_most("stolen_ns", processor.stolen_ns, cpu_ns_max)?;
    }
    for (name, count) in counters {
        check_name(name)?;
        at_most(name, *count, u64::MAX / ENTRIES_MAX as u64)?;
    }
    Ok(())
}

fn check_times(kind: &str, times: &Times) -> Result<(), String> {
    let mut before = None;
    let mut sum: u64 = 0;
    for (time, count) in &times.counts {
        // A histogram knows the longest to a thousandth, and may name the end of it.
        at_most(kind, *time, TIME_NS_MAX + TIME_NS_MAX / 64)?;
        if before.is_some_and(|before| before >= *time) {
            return Err(format!("times of {kind} are out of order"));
        }
        before = Some(*time);
        sum = sum.saturating_add(*count);
    }
    at_most(kind, sum, COUNT_MAX)?;
    if times.of == 0 { Err(format!("times of {kind} are of no event")) } else { Ok(()) }
}

fn at_most(what: &str, found: u64, most: u64) -> Result<(), String> {
    if found <= most { Ok(()) } else { Err(format!("{what} = {found}: must be at most {most}")) }
}

fn known(what: &str, kind: &str, known: &[&str]) -> Result<(), String> {
    if known.contains(&kind) {
        return Ok(());
    }
    let kind: String = kind.chars().take(NAME_BYTES_MAX).collect();
    Err(format!("{what} of kind {kind:?}: must be one of {}", known.join(", ")))
}

fn check_name(name: &str) -> Result<(), String> {
    let is_name = name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
    if is_name { Ok(()) } else { Err(format!("{shown:?} is no name")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_that_cannot_be_is_refused_with_what_is_wrong() {
        for (text, why) in [
            (r#"{"work":{"messages":5}}"#, ""),
            (r#"{"work":{"miles":5}}"#, "work of kind \"miles\": must be one of messages, "),
            (
                r#"{"work":{"bytes":18446744073709551615}}"#,
                "bytes = 18446744073709551615: must be at most ",
            ),
            (r#"{"messages":18446744073709551615}"#, "messages = 18446744073709551615: must be"),
            (r#"{"window_ns":1001}"#, "window_ns = 1001: must be at most 1000"),
            (
                r#"{"times":{"weight":{"counts":[]}}}"#,
                "time of kind \"weight\": must be one of latency, ",
            ),
            (
                r#"{"times":{"latency":{"counts":[[5,1],[5,1]]}}}"#,
                "times of latency are out of order",
            ),
            (
                r#"{"times":{"latency":{"counts":[[900000000000,1]]}}}"#,
                "latency = 900000000000: must be at most ",
            ),
            (
                r#"{"times":{"latency":{"counts":[[1,18446744073709551615],[2,9]]}}}"#,
                "latency = 18446744073709551615: must be at most ",
            ),
            (r#"{"times":{"latency":{"of":0,"counts":[]}}}"#, "times of latency are of no event"),
            (r#"{"levels":{"resident":-1}}"#, "resident = -1: must be a number, not below 0"),
            (
                r#"{"cpu":[{"thread":"x","role":"r","ns":1,"user_ns":4096001,"system_ns":0}]}"#,
                "processor time = 4096001: must be at most 4096000",
            ),
            (
                r#"{"cpu":[{"thread":"a\nb","role":"r","ns":1,"user_ns":1,"system_ns":0}]}"#,
                "\"a\\nb\" is no name",
            ),
            (
                r#"{"counters":{"c":18446744073709551615}}"#,
                "c = 18446744073709551615: must be at most ",
            ),
            (r#"{"spinning_ns":4096001}"#, "spinning_ns = 4096001: must be at most 4096000"),
        ] {
            let report: Report = serde_json::from_str(text).unwrap();
            match check(&report, 1000) {
                Ok(()) => assert_eq!(why, "", "{text}"),
                Err(found) => {
                    assert!(!why.is_empty() && found.starts_with(why), "{found}, of {text}")
                }
            }
        }
        let mut report = Report::default();
        report.levels.insert("resident".into(), f64::NAN);
        assert!(check(&report, 1000).unwrap_err().starts_with("resident = NaN: must be a number"));
        report.levels.clear();
        report.counters = (0..2000).map(|number| (format!("c{number}"), 1)).collect();
        assert_eq!(check(&report, 1000).unwrap_err(), "2000 entries: must be at most 1024");
    }
}
