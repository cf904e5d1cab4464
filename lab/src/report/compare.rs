//! Two results of the same cases, which were not measured in turn: what became better or worse from A to B.

mod show;
#[cfg(test)]
mod tests;

use serde::Serialize;

use super::distinct;
use super::series::{Series, records};
use super::sure::{STOLEN_MAX, States, stolen};
use crate::binary::{Binary, cksum};
use crate::case::Case;
use crate::factor::Factors;
use crate::machine::FACTS;
use crate::metric::Better;
use crate::record::Record;
use crate::statistics::{Summary, independent_ratio, leave_common_state};

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
    for name in distinct(a.iter().chain(&b).map(|series| series.name)) {
        let [one, other] = [&a, &b].map(|all| all.iter().find(|series| series.name == name));
        match one.zip(other) {
            Some((one, other)) => found.add(one, other, wishes),
            None => found.leave_out(name, None, None, only_in(one.is_some())),
        }
    }
    Comparison { a, b, ..found }
}

fn only_in(is_in_a: bool) -> &'static str {
    if is_in_a { "only in A" } else { "only in B" }
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
    fn add<'a>(&mut self, a: &Series<'a>, b: &Series<'a>, wishes: Wishes) {
        if let Some(why) = incomparable(a, b) {
            return self.leave_out(a.name, None, None, why);
        }
        self.differences.extend(differences_of_case(a, b));
        let mut metrics = metrics(a, b, wishes.all);
        metrics.retain(|metric| {
            let definition = |series: &Series<'_>| {
                let case = series.case.as_ref()?;
                Some(case.metrics.iter().find(|own| own.name == *metric).cloned())
            };
            let is_same = definition(a).zip(definition(b)).is_none_or(|(a, b)| a == b);
            if !is_same {
                self.leave_out(a.name, None, Some(metric), "defined differently in A and B");
            }
            is_same
        });
        let (cells, others) = (a.cells(), b.cells());
        for cell in distinct(cells.iter().chain(&others).copied()) {
            let is_in_a = cells.contains(&cell);
            if !is_in_a || !others.contains(&cell) {
                self.leave_out(a.name, Some(cell), None, only_in(is_in_a));
                continue;
            }
            for metric in &metrics {
                let sides = sides([a, b], cell, metric);
                let has = |(side, _): &(Side, _)| side.trials + side.failed + side.other_state > 0;
                match sides.each_ref().map(has) {
                    [true, true] => self.compared.push(compared(a, cell, metric, sides, wishes)),
                    [false, false] => {}
                    [is_in_a, _] => {
                        self.leave_out(a.name, Some(cell), Some(metric), only_in(is_in_a));
                    }
                }
            }
        }
    }

    /// How many figures became so.
    pub fn count(&self, verdict: Change) -> usize {
        self.compared.iter().filter(|compared| compared.verdict == verdict).count()
    }
}

fn compared(
    series: &Series<'_>,
    cell: &Factors,
    metric: &str,
    [(a, of_a), (b, of_b)]: [(Side, Option<Summary>); 2],
    wishes: Wishes,
) -> Compared {
    let shown = series.metric(metric);
    let ratio = of_a.zip(of_b).and_then(|(of_a, of_b)| independent_ratio(&of_b, &of_a));
    let intervals = a.interval.zip(b.interval).filter(|_| a.failed + b.failed == 0);
    // Each end of A's interval may move so far before it counts.
    let change = |part: f64| {
        let Some(((a_least, a_most), (b_least, b_most))) = intervals else {
            return Change::Undecided;
        };
        let is_more = b_least > a_most + part * a_most.abs();
        let is_less = b_most < a_least - part * a_least.abs();
        match shown.better {
            _ if !is_more && !is_less => Change::Same,
            Better::More if is_more => Change::Better,
            Better::Less if is_less => Change::Better,
            _ => Change::Worse,
        }
    };
    Compared {
        case: series.name.to_owned(),
        factors: cell.clone(),
        metric: metric.to_owned(),
        unit: shown.unit().to_owned(),
        better: shown.better,
        a,
        b,
        ratio: ratio.map(|(ratio, _)| ratio),
        interval: ratio.and_then(|(_, interval)| interval),
        verdict: change(0.0),
        is_beyond_margin: change(wishes.margin_percent / 100.0) == Change::Worse,
    }
}

/// What both results say of a cell: by trials in one state of the machine, or by all together where each is too short.
fn sides<'a>(
    both: [&Series<'a>; 2],
    cell: &'a Factors,
    metric: &str,
) -> [(Side, Option<Summary>); 2] {
    let found = both.map(|series| Some(series.found(cell, metric)?.summary));
    let is_pooled = found.iter().flatten().any(|summary| summary.is_pooled);
    let all = both.map(|series| series.samples(cell, metric));
    let mut left = all.clone();
    if !is_pooled {
        let [of, base] = &mut left;
        leave_common_state(of, base);
    }
    std::array::from_fn(|at| {
        let summary = if is_pooled { found[at] } else { Summary::of(&left[at]) };
        let side = Side {
            run: both[at].records.first().map_or(0, |record| record.run),
            median: summary.map(|summary| summary.median),
            interval: summary.and_then(|summary| summary.interval),
            trials: summary.map_or(0, |summary| summary.trials),
            failed: both[at].lost(cell),
            other_state: all[at].len() - left[at].len(),
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

/// The metrics that either has, in the order in which they are shown: all, or those that the tables and claims of the case show,
/// as B has it, if they show any.
fn metrics(a: &Series<'_>, b: &Series<'_>, all: bool) -> Vec<String> {
    let mut metrics = distinct(a.metrics().into_iter().chain(b.metrics()));
    let case = b.case.as_ref().or(a.case.as_ref()).filter(|_| !all);
    let shown = case.map(headlines).unwrap_or_default();
    metrics.retain(|metric| shown.is_empty() || shown.contains(&metric.as_str()));
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
    let both = [a, b].map(|all| all.iter().flat_map(|series| series.records.clone()).collect());
    let busy = |record: &Record| match record.machine.is_busy() {
        true => "busy before the run".to_owned(),
        false => "quiet before the run".to_owned(),
    };
    let facts = FACTS.iter();
    let facts = facts.map(|(differs, fact)| differ(None, differs, &both, |one| fact(&one.machine)));
    let mut found: Vec<Difference> = facts.flatten().collect();
    let binary = |record: &Record| record.binary.as_ref().map_or_else(String::new, Binary::line);
    found.extend(differ(None, "binaries", &both, binary));
    found.extend(differ(None, "other programs", &both, busy));
    let states = [a, b].map(|all| States::of(records(all)));
    let [one, other] = &states;
    if !one.is_empty() && !other.is_empty() && !one.are_those_of(other) {
        let differs = "how near the processors were (a cache line, there and back)";
        found.extend(unequal(None, differs, states.map(|states| states.to_string())));
    }
    let parts = [a, b].map(|all| stolen(records(all)));
    if parts.iter().any(|part| *part > STOLEN_MAX) {
        let shown = parts.map(|part| format!("{:.1} %", part * 100.0));
        found.extend(unequal(None, "taken by the hypervisor", shown));
    }
    found
}

/// In what two runs of a case differ.
fn differences_of_case(a: &Series<'_>, b: &Series<'_>) -> Vec<Difference> {
    let (case, both) = (Some(a.name), [&a.records, &b.records].map(Vec::clone));
    let placing = |record: &Record| match record.is_measured() {
        true => record.machine.placing(),
        false => String::new(),
    };
    // Results of older labs do not have it.
    let file = |series: &Series<'_>| {
        Some(format!("cksum {}", cksum(series.case.as_ref()?.text.as_bytes())))
    };
    let files = file(a).zip(file(b));
    let of_both = [
        differ(case, "window", &both, |record| format!("{} s", record.seconds)),
        differ(case, "system", &both, |record| record.system.clone()),
        differ(case, "processors of the parties", &both, placing),
        files.and_then(|(a, b)| unequal(case, "the case's file", [a, b])),
    ];
    of_both.into_iter().flatten().collect()
}

/// In what the records of A and B differ: all that `fact` says of either, in the order of the records.
fn differ(
    case: Option<&str>,
    differs: &'static str,
    both: &[Vec<&Record>; 2],
    fact: impl Fn(&Record) -> String,
) -> Option<Difference> {
    let all = |records: &Vec<&Record>| {
        let said = records.iter().map(|record| fact(record)).filter(|said| !said.is_empty());
        distinct(said).join(" and ")
    };
    unequal(case, differs, both.each_ref().map(all))
}

fn unequal(case: Option<&str>, differs: &'static str, both: [String; 2]) -> Option<Difference> {
    let [a, b] = both.map(|said| if said.is_empty() { "none".to_owned() } else { said });
    (a != b).then(|| Difference { case: case.map(str::to_owned), differs, a, b })
}
