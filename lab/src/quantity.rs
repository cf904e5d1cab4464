//! Quantities: what a party of a trial did in its window and what that cost, and nothing derived from it.
//!
//! Metrics are computed from quantities ([`crate::definition`]), also from those of results that were kept.

mod check;
mod difference;

use std::collections::BTreeMap;

use host::report::Counts;
use os::processor::TICK_NS;
use serde::{Deserialize, Serialize};

pub(crate) use self::check::check;

use crate::role::Address;
use crate::times::Times;

/// Kinds of work.
pub const WORK: &[&str] = &["messages", "transactions", "bytes", "ios", "packets", "deeds"];

/// Kinds of times.
pub const TIMES: &[&str] = &["latency", "exchange", "receive", "service", "connect", "transfer"];

/// What a party has to say at the end of a trial. In results of a newer lab there may be more members, which are
/// left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Messages that it sent, or received and found right, from first to last.
    pub messages: u64,
    /// How long its window was.
    pub window_ns: u64,
    /// What it did in the window, by kind: one of [`WORK`].
    pub work: BTreeMap<String, u64>,
    /// How long that took, by kind: one of [`TIMES`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub times: BTreeMap<String, Times>,
    /// What is neither done nor spent, as the memory of a path. Of several parties the greatest counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<String, f64>,
    /// What it cost, by thread.
    pub cpu: Vec<ThreadCpu>,
    /// Of it, spent polling an empty queue; none if nobody counts that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spinning_ns: Option<u64>,
    /// What whole processors did meanwhile, of those whose times this party noted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<ProcessorTime>,
    /// What it counted in the window.
    pub counters: Counts,
}

/// Processor time of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCpu {
    /// What the thread is called.
    pub thread: String,
    /// For which role it works.
    pub role: String,
    /// All of it.
    pub ns: u64,
    /// Of it, in the program, as the kernel samples it.
    pub user_ns: u64,
    /// Of it, in the kernel.
    pub system_ns: u64,
    /// How far the last two may be off; none if the thread was sampled too seldom for a split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_ns: Option<u64>,
}

/// Processor time too short to be split: the kernel has sampled it less than 25 times.
pub(crate) const SPLIT_NS_MIN: u64 = 25 * TICK_NS;

/// The same of several trials together.
pub(crate) const POOLED_SPLIT_NS_MIN: u64 = 10 * TICK_NS;

/// A window too short for a count of whole ticks to say something.
pub(crate) const TICKS_NS_MIN: u64 = 100 * TICK_NS;

/// How far a split of this much processor time may be off. A share that was sampled n times is known to
/// 1 / (2 sqrt n) at worst.
pub(crate) fn split_error_ns(ns: u64) -> f64 {
    (ns as f64 * TICK_NS as f64).sqrt() / 2.0
}

/// What a whole processor did, for whomever, in units of [`TICK_NS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorTime {
    /// Which one.
    pub processor: usize,
    /// In programs, in the kernel, in interrupts.
    pub busy_ns: u64,
    /// What the machine below took.
    pub stolen_ns: u64,
}

/// A sum of numbers that may come from a file: too large a sum is the largest number.
pub(crate) fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

impl Report {
    /// Processor time of all threads.
    pub fn cpu_ns(&self) -> u64 {
        total(self.cpu.iter().map(|thread| thread.ns))
    }

    /// How much of a kind of work was done.
    pub fn work(&self, kind: &str) -> u64 {
        self.work.get(kind).copied().unwrap_or(0)
    }
}

/// A party of a trial, and what it reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Party {
    /// Its role. In a trial of several workloads the name of the workload stands before it, with a dot.
    pub role: String,
    /// Which copy of the role it is, from 0.
    pub number: usize,
    /// The processors it ran on; empty if the kernel chose.
    #[serde(default)]
    pub place: Vec<usize>,
    /// What it reported.
    pub report: Report,
}

impl Party {
    /// Which party it is.
    pub fn address(&self) -> Address {
        Address::of(&self.role, self.number)
    }
}

/// Processor time of parties that the kernel placed, as part of the busy time, above which nothing can be said of the
/// rest.
const UNPLACED_PART_MAX: f64 = 0.02;

/// Busy time of the trial's processors that no party explains: other programs, interrupts and kernel threads.
/// Below zero if the kernel's ticks say less than the parties' own clocks. None if no processor was noted, if
/// windows were too short for ticks, or if parties that the kernel placed did more than a little.
///
/// Windows of two parties do not begin in the same nanosecond, so each part counts for a second of its own
/// window. What is returned is for the mean window, in nanoseconds.
pub fn unexplained_ns(parties: &[Party]) -> Option<i64> {
    let reports = || parties.iter().map(|party| &party.report);
    let measured = || reports().filter(|report| report.window_ns > 0);
    // What a party did on a processor that nobody noted explains nothing of those that were.
    let noted_at: Vec<usize> =
        reports().flat_map(|report| &report.processors).map(|noted| noted.processor).collect();
    let is_elsewhere = |party: &&Party| party.place.iter().any(|at| !noted_at.contains(at));
    let rate = |party: &Party| match party.report.window_ns {
        0 => 0.0,
        ns => party.report.cpu_ns() as f64 / ns as f64,
    };
    let mut noted = measured().filter(|report| !report.processors.is_empty()).peekable();
    noted.peek()?;
    if measured().any(|report| report.window_ns < TICKS_NS_MIN) {
        return None;
    }
    let busy = noted.map(|report| {
        let busy = total(report.processors.iter().map(|processor| processor.busy_ns));
        busy as f64 / report.window_ns as f64
    });
    let busy: f64 = busy.sum();
    // Nobody knows where a party ran that the kernel placed: little of it is taken as if it ran here.
    let unplaced: f64 = parties.iter().filter(|party| party.place.is_empty()).map(rate).sum();
    if unplaced > UNPLACED_PART_MAX * busy {
        return None;
    }
    let cpu: f64 = parties.iter().filter(|party| !is_elsewhere(party)).map(rate).sum();
    let window_ns = measured().map(|report| report.window_ns as f64).sum::<f64>();
    let window_ns = window_ns / measured().count() as f64;
    Some(((busy - cpu) * window_ns) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(role: &str, window_ns: u64, cpu_ns: u64, busy_ns: Option<u64>) -> Party {
        let thread = ThreadCpu { role: role.into(), ns: cpu_ns, ..ThreadCpu::default() };
        let processor = |busy_ns| ProcessorTime { processor: 0, busy_ns, stolen_ns: 0 };
        let report = Report {
            window_ns,
            cpu: vec![thread],
            processors: busy_ns.map(processor).into_iter().collect(),
            ..Report::default()
        };
        Party { role: role.into(), report, place: vec![0], ..Party::default() }
    }

    #[test]
    fn busy_time_that_no_party_explains_is_left() {
        let s = 1_000_000_000;
        let parties = [party("source", s, s / 2, Some(s)), party("target", 2 * s, s, Some(s))];
        // Half a second of one second, and none of two: a second and a half of windows on average.
        assert_eq!(unexplained_ns(&parties), Some(750_000_000));
        let more = [party("source", s, s, Some(s / 2))];
        assert_eq!(unexplained_ns(&more), Some(-500_000_000));
        assert_eq!(unexplained_ns(&[party("source", s, s, None)]), None);
        assert_eq!(unexplained_ns(&[party("source", s / 2, s, Some(s))]), None, "too short");
        assert_eq!(unexplained_ns(&[]), None);
    }

    #[test]
    fn numbers_of_a_file_may_be_as_large_as_numbers_are() {
        let most = u64::MAX;
        let text = format!(
            r#"{{"messages":{most},"window_ns":{most},"times":{{"latency":{{"counts":[[1,{most}],[{most},{most}]]}}}},"cpu":[{{"thread":"a","role":"source","ns":{most},"user_ns":0,"system_ns":0}},{{"thread":"b","role":"source","ns":{most},"user_ns":0,"system_ns":0}}],"processors":[{{"processor":0,"busy_ns":{most},"stolen_ns":{most}}},{{"processor":1,"busy_ns":{most},"stolen_ns":{most}}}],"counters":{{"rings":{most}}}}}"#
        );
        let report: Report = serde_json::from_str(&text).unwrap();
        assert_eq!((report.cpu_ns(), report.times["latency"].count()), (most, most));
        let coarser = report.times["latency"].coarser();
        assert_eq!(coarser.counts.len(), 2);
        let party = Party { role: "source".into(), report, place: vec![0, 1], number: 0 };
        let parties = [party.clone(), Party { number: 1, ..party }];
        assert_eq!(unexplained_ns(&parties), Some(0));
        let counters = crate::workload::counters(&parties);
        assert_eq!((counters["source_rings"], counters["source_stolen_ns"]), (most, most));
        let times: Vec<&Times> = parties.iter().map(|one| &one.report.times["latency"]).collect();
        assert_eq!(Times::part(&times, crate::times::TimePart::Max), Some(most as f64));
    }

    #[test]
    fn report_of_a_newer_lab_is_read() {
        let text = r#"{"messages":9,"more":1,"times":{"latency":{"counts":[[5,2]],"more":1}},"cpu":[{"thread":"main","role":"source","ns":7,"user_ns":5,"system_ns":2,"more":[]}],"processors":[{"processor":1,"busy_ns":20,"stolen_ns":0,"more":{}}]}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!((report.messages, report.cpu_ns(), report.processors.len()), (9, 7, 1));
    }

    #[test]
    fn report_is_written_as_promised() {
        let text = r#"{"messages":9,"window_ns":1000,"work":{"bytes":64},"times":{"latency":{"counts":[[5,2],[7,1]]}},"cpu":[{"thread":"main","role":"source","ns":7,"user_ns":5,"system_ns":2}],"spinning_ns":3,"processors":[{"processor":1,"busy_ns":20,"stolen_ns":0}],"counters":{"output_rings":2}}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!((report.cpu_ns(), report.work("bytes"), report.work("ios")), (7, 64, 0));
        assert_eq!(serde_json::to_string(&report).unwrap(), text);
    }
}
