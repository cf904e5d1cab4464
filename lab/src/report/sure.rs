//! How sure the figures are: spread, machine, and what took its time away.

use std::fmt;

use super::series::{Series, records};
use super::{Block, Grid, counted, distinct, grouped};
use crate::factor::{AGAINST, Factors, THIS, describe, is_against};
use crate::machine::Machine;
use crate::quantity::total;
use crate::record::{Record, read_case};
use crate::state::{LineRange, is_one_state, join, states};
use crate::statistics::Summary;
use crate::unit::three_digits;

/// The part of the processor time that the hypervisor may take without a warning.
pub(super) const STOLEN_MAX: f64 = 0.01;

/// The part of the ordered window below which a party's window is too short.
const WINDOW_PART_MIN: f64 = 0.5;

/// The metric that a series is judged by: the first that its case shows.
pub(super) fn main_metric(series: &Series<'_>) -> Option<String> {
    let shown = series.case.as_ref().and_then(|case| Some(case.tables.first()?.metrics[0].clone()));
    shown.or_else(|| series.metrics().into_iter().next())
}

/// The trial of each cell that is nearest to the median, where a case was run as a document measured: documents print the figures
/// of one run.
pub(super) fn representatives(series: &Series<'_>) -> Option<Block> {
    let seconds = series.case.as_ref()?.as_published.as_ref()?.seconds?;
    let is_long = |record: &&Record| record.seconds >= seconds;
    if !series.records.iter().all(is_long) {
        return None;
    }
    let metric = main_metric(series)?;
    let row = |cell: &Factors| {
        let trial = Summary::of(&series.samples(cell, &metric))?.representative;
        Some(vec![describe(cell, &series.order()), trial.to_string()])
    };
    let title = format!("Representative trials, by {}", series.metric(&metric).label);
    let rows = series.cells().into_iter().filter_map(row).collect();
    Some(Block::Table(Grid { title, ..Grid::of(&["cell", "trial"], 1, rows) }))
}

/// The spreads of all cells, the narrowest first, with the name of the cell.
pub(super) fn spreads(series: &Series<'_>) -> Vec<(f64, String)> {
    let Some(metric) = main_metric(series) else { return Vec::new() };
    let spread = |cell| {
        let summary = Summary::of(&series.samples(cell, &metric))?;
        (summary.trials > 1).then(|| (summary.spread(), describe(cell, &series.order())))
    };
    let mut spreads: Vec<(f64, String)> = series.cells().into_iter().filter_map(spread).collect();
    spreads.sort_by(|one, other| one.0.total_cmp(&other.0));
    spreads
}

pub(super) fn how_sure(all: &[Series<'_>]) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().map(trials_and_spread).collect();
    lines.extend(all.iter().filter_map(|series| {
        let why = read_case(series.name, series.records.iter().copied()).err()?;
        Some(format!("Warning: without the claims and tables of the case as it was then: {why}"))
    }));
    lines.extend(all.iter().flat_map(not_measured));
    lines.extend(all.iter().flat_map(failures));
    // Parties of a trial without figures say nothing of their processors.
    let mut machines: Vec<&Machine> =
        distinct(records(all).filter(|record| record.is_measured()).map(|record| &record.machine));
    if machines.is_empty() {
        machines = distinct(records(all).map(|record| &record.machine));
    }
    for machine in machines {
        lines.push(machine.line());
        lines.extend(machine.warnings().iter().map(|warning| format!("Warning: {warning}")));
    }
    // Which files the two binaries were, if there were two.
    lines.extend(distinct(records(all).filter_map(|record| {
        let which = if is_against(&record.factors) { AGAINST } else { THIS };
        Some(format!("{which}: {}", record.binary.as_ref()?.line()))
    })));
    let part = stolen(records(all));
    if part > STOLEN_MAX {
        lines.push(format!(
            "Warning: the hypervisor took {:.0} % of the processor time during the measurement",
            part * 100.0
        ));
    }
    lines.extend(short_windows(all));
    lines.extend(states_line(all));
    let earlier: usize = all.iter().map(|series| series.earlier_runs).sum();
    if earlier > 0 {
        lines.push(format!("{earlier} earlier runs of the same cases are left out"));
    }
    lines
}

/// The part of the processor time that the hypervisor took during some trials.
pub(super) fn stolen<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> f64 {
    let records = || records.clone();
    let stolen = |record: &Record| -> u64 {
        let counters = record.counters.iter();
        total(counters.filter(|(name, _)| name.ends_with("_stolen_ns")).map(|(_, ns)| *ns))
    };
    let stolen_s = total(records().map(stolen)) as f64 / 1e9;
    let measured = records().filter(|record| record.is_measured());
    let measured_s: f64 =
        measured.map(|record| noted_processors(record) as f64 * record.seconds).sum();
    if measured_s > 0.0 { stolen_s / measured_s } else { 0.0 }
}

fn trips((least, most): LineRange) -> String {
    let [least, most] = [least, most].map(three_digits);
    if least == most { format!("{least} ns") } else { format!("{least}..{most} ns") }
}

/// How near the processors were, in how many trials; nothing if nobody measured it.
pub(super) fn states_line(all: &[Series<'_>]) -> Option<String> {
    let states = States::of(records(all));
    let ratios = if states.are_several() { ". Ratios are of rounds in one state" } else { "" };
    (!states.is_empty()).then(|| format!("Cache line, there and back: {states}{ratios}"))
}

/// The states of the processors in which trials were taken.
pub(super) struct States {
    /// The round trips of each, from the nearest, and how many trials.
    of_one: Vec<(LineRange, usize)>,
    /// Trials that were in two of them.
    of_two: usize,
}

impl States {
    /// Those of the trials of these results that have a figure.
    pub(super) fn of<'a>(records: impl Iterator<Item = &'a Record>) -> States {
        let measured = records.filter(|record| record.is_measured());
        let (of_one, of_two) =
            states(measured.filter_map(|record| record.state.as_ref()?.line_range()));
        States { of_one, of_two }
    }

    /// True if nobody measured any.
    pub(super) fn is_empty(&self) -> bool {
        self.of_one.is_empty() && self.of_two == 0
    }

    fn are_several(&self) -> bool {
        self.of_one.len() > 1 || self.of_two > 0
    }

    /// True if each state of one has its like among those of the other. Trials that were in two states say nothing of that.
    pub(super) fn are_those_of(&self, other: &States) -> bool {
        let has = |all: &States, range: LineRange| {
            all.of_one.iter().any(|(own, _)| is_one_state(join(*own, range)))
        };
        let all_of = |one: &States, other| one.of_one.iter().all(|(range, _)| has(other, *range));
        all_of(self, other) && all_of(other, self)
    }
}

/// `98..104 ns in 20 trials, 380..410 ns in 2 trials; it changed during 1`
impl fmt::Display for States {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state =
            |(range, count): &_| format!("{} in {}", trips(*range), counted(*count, "trial"));
        let shown: Vec<String> = self.of_one.iter().map(state).collect();
        formatter.write_str(&shown.join(", "))?;
        match self.of_two {
            0 => Ok(()),
            trials if shown.is_empty() => write!(formatter, "it changed during {trials}"),
            trials => write!(formatter, "; it changed during {trials}"),
        }
    }
}

/// How many trials had a party whose window was much shorter than ordered. Windows open late where a party has no
/// processor: their figures are of another time than those of the other parties.
fn short_windows(all: &[Series<'_>]) -> Option<String> {
    let measured = records(all).filter(|record| record.is_measured());
    let (of, short) =
        (measured.clone().count(), measured.filter(|record| is_short(record)).count());
    (short > 0).then(|| {
        format!(
            "Warning: in {short} of {of} trials a party's window was less than half as long as ordered: the machine was taken away"
        )
    })
}

/// Whether a party's window was much shorter than ordered.
pub(super) fn is_short(record: &Record) -> bool {
    let least_ns = record.seconds * 1e9 * WINDOW_PART_MIN;
    // The guests of path-connect have no window: theirs is 0.
    let mut windows = record.parties.iter().map(|party| party.report.window_ns);
    windows.any(|ns| ns > 0 && (ns as f64) < least_ns)
}

/// How many processors' stolen time is in a record. Older labs noted those of source and target, and kept no
/// parties.
fn noted_processors(record: &Record) -> usize {
    let noted = record.parties.iter().map(|party| party.report.processors.len()).sum();
    if noted == 0 { 2 } else { noted }
}

/// A spread as people read it.
pub(super) fn percent(spread: f64) -> String {
    if spread < 10.0 { format!("{:.0} %", spread * 100.0) } else { "over 1000 %".to_owned() }
}

/// The trials that failed, and why: each reason once, with how often and where first.
pub(super) fn failures(series: &Series<'_>) -> Vec<String> {
    let failed = series
        .records
        .iter()
        .filter_map(|record| Some(((record.failed.as_deref()?, &record.factors), ())));
    let line = |((why, factors), times): ((&str, &Factors), Vec<()>)| {
        let cell = describe(factors, &series.order());
        let became = match series.lost(factors) {
            0 => "done again".to_owned(),
            lost => format!("{lost} of its trials have no figure"),
        };
        let times = match times.len() {
            1 => String::new(),
            times => format!(" {times} times"),
        };
        format!("Warning: {} ({cell}) failed{times}, {became}: {why}", series.name)
    };
    grouped(failed).into_iter().map(line).collect()
}

/// The cells that could not be measured, and why.
fn not_measured(series: &Series<'_>) -> Vec<String> {
    distinct(series.records.iter().filter_map(|record| {
        let why = record.unable.as_ref()?;
        let cell = describe(&record.factors, &series.order());
        Some(format!("{} ({cell}) was not measured: {why}", series.name))
    }))
}

/// How many trials with a figure the cells have which have any: `1 trial`, or `2 to 3 trials`.
pub(super) fn trials_of<'a>(all: impl IntoIterator<Item = &'a Series<'a>>) -> String {
    let count = |series: &'a Series<'a>| {
        series.cells().into_iter().map(|cell| series.measured(cell).count())
    };
    let counts = all.into_iter().flat_map(count).filter(|count| *count > 0);
    let (least, most) =
        counts.fold((usize::MAX, 0), |(least, most), count| (least.min(count), most.max(count)));
    let shown = counted(most, "trial");
    if least < most { format!("{least} to {shown}") } else { shown }
}

fn trials_and_spread(series: &Series<'_>) -> String {
    let seconds = series.records.first().map_or(0.0, |record| record.seconds);
    let first = format!("{}: {} of {seconds} s per cell", series.name, trials_of([series]));
    let spreads = spreads(series);
    match spreads.last() {
        None => format!("{first}; one trial shows no spread"),
        Some((widest, cell)) => {
            let (half, widest) = (percent(spreads[spreads.len() / 2].0), percent(*widest));
            format!("{first}, spread (max - min)/median: {half} typical, {widest} worst ({cell})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Party, Report};
    use crate::record;
    use host::config::Source;

    #[test]
    fn windows_that_are_much_too_short_are_warned_of() {
        let line = r#"{"case":"c","system":"open","trial":1,"factors":{},"metrics":{"rate_messages_per_s":5.5},"counters":{},"machine":{},"run":7,"seconds":1}"#;
        let warning = |windows: &[[u64; 2]]| {
            let records: Vec<Record> = (1..)
                .zip(windows)
                .map(|(trial, windows)| {
                    let party = |window_ns| {
                        let report = Report { window_ns, ..Report::default() };
                        Party { report, ..Party::default() }
                    };
                    let record = record::parse(&Source::of("r", line)).unwrap().pop().unwrap();
                    Record { trial, parties: windows.map(party).to_vec(), ..record }
                })
                .collect();
            short_windows(&Series::all(&records))
        };
        assert_eq!(warning(&[[1_000_000_000, 500_000_000]]), None);
        assert_eq!(warning(&[[1_000_000_000, 0]]), None, "one that has no window");
        assert_eq!(
            warning(&[[499_999_999, 1_000_000_000], [1_000_000_000, 0], [1, 1]]).unwrap(),
            "Warning: in 2 of 3 trials a party's window was less than half as long as ordered: the machine was taken away"
        );
    }
}
