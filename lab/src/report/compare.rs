//! Two results of the same cases, which were not measured in turn: what became better or worse from A to B.

mod show;
#[cfg(test)]
mod tests;

use serde::Serialize;

use super::series::Series;
use super::sure::{STOLEN_MAX, stolen};
use crate::binary::Checksum;
use crate::case::Case;
use crate::factor::Factors;
use crate::machine::Machine;
use crate::metric::Better;
use crate::record::Record;
use crate::state::{is_one_state, join};
use crate::statistics::{Summary, independent_ratio, leave_common_state};
use crate::unit::three_digits;

/// A figure of A beside that of B, in the unit of results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Of which case.
    pub case: String,
    /// The levels of the cell.
    pub factors: Factors,
    /// The metric.
    pub metric: String,
    /// The unit of its numbers, empty if they have none.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// The one result.
    pub a: Side,
    /// The other.
    pub b: Side,
    /// The median of B divided by that of A; none where A's is not above zero.
    pub ratio: Option<f64>,
    /// Where the ratio of the true medians lies, see [`independent_ratio`].
    pub interval: Option<(f64, f64)>,
    /// What became of it.
    pub verdict: Change,
    /// Whether it is worse by more than the margin: all of its interval is.
    pub is_beyond_margin: bool,
}

/// What the trials of a cell say in one of two results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Side {
    /// When the run began, in milliseconds since 1970.
    pub run: u64,
    /// The median; none if all trials failed.
    pub median: Option<f64>,
    /// Where the true median lies, with a certainty of at least 95 %; none below six trials.
    pub interval: Option<(f64, f64)>,
    /// How many trials have a figure.
    pub trials: usize,
    /// How many have none, because they failed.
    pub failed: usize,
    /// How many are left out: the processors were nearer or farther than in those that count.
    pub other_state: usize,
}

/// What became of a figure from A to B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The intervals of A and B lie apart, and B's on the worse side.
    Worse,
    /// There are too few trials for an interval, or trials failed.
    Undecided,
    /// The intervals overlap.
    #[serde(rename = "no difference seen")]
    Same,
    /// The intervals lie apart, and B's on the better side.
    Better,
}

/// What is not compared, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Uncompared {
    /// Of which case.
    pub case: String,
    /// Which cell; none if it is the whole case.
    pub factors: Option<Factors>,
    /// Which metric; none if it is all of them.
    pub metric: Option<String>,
    /// Why.
    pub not_compared: String,
}

/// In what A and B differ beside their figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Of which case; none if it is so of all.
    pub case: Option<String>,
    /// In what.
    pub differs: &'static str,
    /// What A has.
    pub a: String,
    /// What B has.
    pub b: String,
}

/// Two results, compared.
#[derive(Debug)]
pub struct Comparison<'a> {
    a: Vec<Series<'a>>,
    b: Vec<Series<'a>>,
    /// Every figure that both have.
    pub compared: Vec<Compared>,
    /// What only one of them has, or what is not the same thing in both.
    pub uncompared: Vec<Uncompared>,
    /// In what they differ beside their figures.
    pub differences: Vec<Difference>,
}

/// How two results are compared.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// All metrics, not only those that a case's tables and claims show.
    pub all: bool,
    /// How much worse a figure may be, in percent of A's.
    pub margin_percent: f64,
}

/// Compares two results. Of a case that was run several times, the latest run counts.
pub fn compare<'a>(a: &'a [Record], b: &'a [Record], wishes: Wishes) -> Comparison<'a> {
    let (a, b) = (Series::all(a), Series::all(b));
    let mut found = Comparison {
        compared: Vec::new(),
        uncompared: Vec::new(),
        differences: differences(&a, &b),
        a: Vec::new(),
        b: Vec::new(),
    };
    for one in &a {
        match b.iter().find(|other| other.name == one.name) {
            Some(other) => found.add(one, other, wishes),
            None => found.leave_out(one.name, None, None, "only in A"),
        }
    }
    for other in b.iter().filter(|other| !a.iter().any(|one| one.name == other.name)) {
        found.leave_out(other.name, None, None, "only in B");
    }
    Comparison { a, b, ..found }
}

impl Comparison<'_> {
    fn leave_out(&mut self, case: &str, cell: Option<&Factors>, metric: Option<&str>, why: &str) {
        self.uncompared.push(Uncompared {
            case: case.to_owned(),
            factors: cell.cloned(),
            metric: metric.map(str::to_owned),
            not_compared: why.to_owned(),
        });
    }

    /// Adds the case of two series.
    fn add(&mut self, a: &Series<'_>, b: &Series<'_>, wishes: Wishes) {
        if let Some(why) = incomparable(a, b) {
            return self.leave_out(a.name, None, None, why);
        }
        self.differences.extend(differences_of_case(a, b));
        let metrics = if wishes.all { all_metrics(a, b) } else { headline(a, b) };
        let metrics: Vec<String> = metrics
            .into_iter()
            .filter(|metric| {
                let of = |case: &Option<Case>| {
                    let metrics = case.as_ref().map_or(&[][..], |case| &case.metrics);
                    metrics.iter().find(|own| own.name == *metric).cloned()
                };
                let is_same = of(&a.case) == of(&b.case) || a.case.is_none() || b.case.is_none();
                if !is_same {
                    self.leave_out(a.name, None, Some(metric), "defined differently in A and B");
                }
                is_same
            })
            .collect();
        for cell in a.cells() {
            let Some(same) = b.cells().into_iter().find(|other| *other == cell) else {
                self.leave_out(a.name, Some(cell), None, "only in A");
                continue;
            };
            for metric in &metrics {
                let [one, other] = sides([(a, cell), (b, same)], metric);
                let has = |(side, _): &(Side, _)| side.trials + side.failed + side.other_state > 0;
                match (has(&one), has(&other)) {
                    (true, true) => {
                        self.compared.push(compared(a, cell, metric, one, other, wishes));
                    }
                    (true, false) => self.leave_out(a.name, Some(cell), Some(metric), "only in A"),
                    (false, true) => self.leave_out(a.name, Some(cell), Some(metric), "only in B"),
                    (false, false) => {}
                }
            }
        }
        for cell in b.cells().into_iter().filter(|cell| !a.cells().contains(cell)) {
            self.leave_out(a.name, Some(cell), None, "only in B");
        }
    }

    /// How many figures became so.
    pub fn count(&self, verdict: Change) -> usize {
        self.compared.iter().filter(|compared| compared.verdict == verdict).count()
    }
}

fn compared(
    a: &Series<'_>,
    cell: &Factors,
    metric: &str,
    (one, of_a): (Side, Option<Summary>),
    (other, of_b): (Side, Option<Summary>),
    wishes: Wishes,
) -> Compared {
    let shown = a.metric(metric);
    let ratio = of_a.zip(of_b).and_then(|(of_a, of_b)| independent_ratio(&of_b, &of_a));
    let lost = one.failed + other.failed;
    let intervals = one.interval.zip(other.interval).filter(|_| lost == 0);
    // Each end of A's interval may move so far before it counts.
    let apart = |part: f64| {
        let ((a_least, a_most), (b_least, b_most)) = intervals?;
        let is_more = b_least > a_most + part * a_most.abs();
        let is_less = b_most < a_least - part * a_least.abs();
        (is_more || is_less).then_some(is_more == (shown.better == Better::More))
    };
    let verdict = match (intervals, apart(0.0)) {
        (None, _) => Change::Undecided,
        (_, None) => Change::Same,
        (_, Some(true)) => Change::Better,
        (_, Some(false)) => Change::Worse,
    };
    Compared {
        case: a.name.to_owned(),
        factors: cell.clone(),
        metric: metric.to_owned(),
        unit: shown.unit().to_owned(),
        better: shown.better,
        a: one,
        b: other,
        ratio: ratio.map(|(ratio, _)| ratio),
        interval: ratio.and_then(|(_, interval)| interval),
        verdict,
        is_beyond_margin: apart(wishes.margin_percent / 100.0) == Some(false),
    }
}

/// What both results say of a cell: by trials in one state of the machine, or by all together where each is too short.
fn sides(both: [(&Series<'_>, &Factors); 2], metric: &str) -> [(Side, Option<Summary>); 2] {
    let found = both.map(|(series, cell)| series.found(cell, metric));
    let all = both.map(|(series, cell)| series.samples(cell, metric));
    let [mut of, mut base] = all.clone();
    leave_common_state(&mut of, &mut base);
    let is_pooled = found.iter().flatten().any(|found| found.summary.is_pooled);
    let mut left = [of, base].into_iter().zip(all).zip(found);
    both.map(|(series, cell)| {
        let ((samples, all), found) = left.next().expect("there are two");
        let summary = match found {
            Some(found) if is_pooled => Some(found.summary),
            _ => Summary::of(&samples),
        };
        let side = Side {
            run: series.records.first().map_or(0, |record| record.run),
            median: summary.map(|summary| summary.median),
            interval: summary.and_then(|summary| summary.interval),
            trials: summary.map_or(0, |summary| summary.trials),
            failed: series.lost(cell),
            other_state: if is_pooled { 0 } else { all.len() - samples.len() },
        };
        (side, summary)
    })
}

/// Why two series are not of the same thing.
fn incomparable(a: &Series<'_>, b: &Series<'_>) -> Option<&'static str> {
    let workload = |series: &Series<'_>| series.case.as_ref().map(|case| case.workload.name);
    let is_debug = |series: &Series<'_>| series.records.iter().any(|one| one.machine.is_debug);
    if workload(a).zip(workload(b)).is_some_and(|(a, b)| a != b) {
        return Some("of another workload in B");
    }
    (is_debug(a) != is_debug(b)).then_some("one of them is of a debug build")
}

/// The metrics that either has, in the order in which they are shown.
fn all_metrics(a: &Series<'_>, b: &Series<'_>) -> Vec<String> {
    let mut metrics = a.metrics();
    let more = b.metrics().into_iter().filter(|metric| !metrics.contains(metric));
    metrics.extend(more.collect::<Vec<String>>());
    metrics
}

/// Those that the tables and claims of the case show, as B has it; all if it shows none.
fn headline(a: &Series<'_>, b: &Series<'_>) -> Vec<String> {
    let mut metrics = all_metrics(a, b);
    if let Some(case) = b.case.as_ref().or(a.case.as_ref()) {
        let shown = headlines(case);
        metrics.retain(|metric| shown.is_empty() || shown.contains(&metric.as_str()));
    }
    metrics
}

/// The metrics that the tables and claims of a case show.
pub(super) fn headlines(case: &Case) -> Vec<&str> {
    let of_tables = case.tables.iter().flat_map(|table| &table.metrics);
    let tests = case.claims.iter().filter_map(|claim| claim.test.as_ref());
    let of_claims = tests.map(|test| &test.metric);
    of_tables.chain(of_claims).map(String::as_str).collect()
}

/// In what two results differ that holds for all of their cases, or spoils one of them.
fn differences(a: &[Series<'_>], b: &[Series<'_>]) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |differs, values: [String; 2]| {
        let [a, b] = values;
        if a != b {
            found.push(Difference { case: None, differs, a, b });
        }
    };
    let machines = |series: &[Series<'_>]| -> Vec<Machine> {
        let records = series.iter().flat_map(|series| &series.records);
        records.map(|record| record.machine.clone()).collect()
    };
    let machines = [machines(a), machines(b)];
    type Fact = fn(&Machine) -> String;
    let facts: [(&'static str, Fact); 12] = [
        ("processor", |machine| machine.processor.clone()),
        ("processors", |machine| machine.processors.to_string()),
        ("kernel", |machine| machine.kernel.clone()),
        ("microcode", |machine| machine.microcode.clone().unwrap_or_default()),
        ("mitigations", |machine| machine.mitigations.join(", ")),
        ("huge pages", |machine| machine.huge_pages.clone().unwrap_or_default()),
        ("idle driver", |machine| machine.idle_driver.clone().unwrap_or_default()),
        ("memory", |machine| format!("{} GiB", machine.memory_bytes >> 30)),
        ("virtual machine", |machine| if machine.is_virtual { "yes" } else { "no" }.to_owned()),
        ("governor", |machine| machine.governor.clone().unwrap_or_else(|| "unknown".to_owned())),
        ("siga", |machine| machine.siga.clone()),
        ("build", |machine| if machine.is_debug { "debug" } else { "release" }.to_owned()),
    ];
    for (name, fact) in facts {
        add(name, machines.each_ref().map(|machines| distinct(machines.iter().map(fact))));
    }
    let binaries = |series: &[Series<'_>]| {
        let records = series.iter().flat_map(|series| &series.records);
        distinct(records.filter_map(|record| Some(record.binary.as_ref()?.line())))
    };
    add("binaries", [binaries(a), binaries(b)]);
    let busy = |machines: &Vec<Machine>| {
        let is_busy = machines.iter().any(Machine::is_busy);
        if is_busy { "busy before the run" } else { "quiet before the run" }.to_owned()
    };
    add("other programs", machines.each_ref().map(busy));
    let trips = |series: &[Series<'_>]| {
        let records = series.iter().flat_map(|series| &series.records);
        records.filter_map(|record| record.state.as_ref()?.line_range()).reduce(join)
    };
    if let Some((one, other)) = trips(a).zip(trips(b))
        && !is_one_state(join(one, other))
    {
        add(
            "a cache line, there and back",
            [one, other].map(|(least, most)| {
                format!("{} to {} ns", three_digits(least), three_digits(most))
            }),
        );
    }
    let parts = [stolen(a), stolen(b)];
    if parts.iter().any(|part| *part > STOLEN_MAX) {
        add("taken by the hypervisor", parts.map(|part| format!("{:.1} %", part * 100.0)));
    }
    found
}

/// In what two runs of a case differ.
fn differences_of_case(a: &Series<'_>, b: &Series<'_>) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |differs, values: [String; 2]| {
        let [one, other] = values;
        if one != other {
            let case = Some(a.name.to_owned());
            found.push(Difference { case, differs, a: one, b: other });
        }
    };
    let both = [a, b];
    let of = |fact: &dyn Fn(&Record) -> String| {
        both.map(|series| distinct(series.records.iter().map(|record| fact(record))))
    };
    add("window", of(&|record| format!("{} s", record.seconds)));
    add("system", of(&|record| record.system.clone()));
    add("processors of the parties", of(&|record| format!("{:?}", record.machine.pinned)));
    // Results of older labs do not have it.
    let text = |series: &Series<'_>| {
        let text = series.case.as_ref().map(|case| case.text.clone());
        text.map(|text| {
            let mut checksum = Checksum::default();
            checksum.take(text.as_bytes());
            format!("cksum {}", checksum.finish())
        })
    };
    if let Some((a, b)) = text(a).zip(text(b)) {
        add("the case's file", [a, b]);
    }
    found
}

/// The different ones of some texts, in their order, in one.
fn distinct(texts: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    if all.is_empty() { "none".to_owned() } else { all.join(" and ") }
}
