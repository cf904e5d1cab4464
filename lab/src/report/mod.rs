//! Reports: pure functions of results.
//!
//! The answer comes first, then how sure it is, then what to try next.

mod binaries;
mod breakdown;
mod claim;
mod csv;
mod figure;
mod knee;
mod render;
mod series;
mod table;
#[cfg(test)]
mod tests;

pub use csv::csv;
pub use figure::{Figure, figures};
pub use render::{markdown, text};

use crate::factor::{AGAINST, Domain, THIS, describe, is_against};
use crate::published::Published;
use crate::record::Record;
use crate::statistics::Summary;

use self::series::Series;

/// A report, before it is text of one kind or another.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    blocks: Vec<Block>,
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Block {
    Heading(String),
    Text(String),
    List(Vec<String>),
    Table(Grid),
}

/// A table whose places are filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grid {
    /// Empty if what stands before it says it.
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    /// How many of the columns are words; the others are figures.
    pub(crate) words: usize,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Grid {
    /// The same without the columns in which there is no figure: what was not measured in so short a time, or
    /// is not of these cells. None if no column is left.
    fn with_figures(mut self) -> Option<Grid> {
        let is_kept = |column: usize| {
            column < self.words || self.rows.iter().any(|row| row[column] != table::NOTHING)
        };
        let kept: Vec<bool> = (0..self.head.len()).map(is_kept).collect();
        for row in self.rows.iter_mut().chain([&mut self.head]) {
            let mut kept = kept.iter();
            row.retain(|_| *kept.next().expect("as many cells as heads"));
        }
        (self.head.len() > self.words).then_some(self)
    }
}

/// A report of results. Of a case that was run several times, the latest run counts.
pub fn report(records: &[Record]) -> Report {
    let series = Series::all(records);
    let mut blocks = Vec::new();
    for series in &series {
        blocks.push(Block::Heading(series.name.to_owned()));
        if let Some(case) = &series.case {
            blocks.push(Block::Text(case.asks.clone()));
        }
        blocks.extend(claim::claims(series));
        blocks.extend(table::tables(series));
        blocks.extend(binaries::binaries(series));
        blocks.extend(knee::knees(series));
        blocks.extend(breakdown::breakdowns(series));
        if let Some(Published { name, document, .. }) =
            series.case.as_ref().and_then(|case| case.published.as_ref())
        {
            blocks.push(Block::Text(format!("{name}: {document}.")));
        }
    }
    if series.is_empty() {
        blocks.push(Block::Text("There are no results.".into()));
    } else {
        blocks.push(Block::Heading("How sure".into()));
        blocks.push(Block::List(how_sure(&series)));
        blocks.push(Block::Heading("What to try next".into()));
        blocks.push(Block::List(what_next(&series)));
    }
    Report { blocks }
}

/// A spread from which on more trials are worth while.
const WIDE_SPREAD_MIN: f64 = 0.2;

/// Trials from which on a range says something.
const TRIALS_ENOUGH: usize = 5;

/// Part of the processors' time that the machine below may take without a word.
const STOLEN_MAX: f64 = 0.01;

/// The metric that a series is judged by: the first that its case shows.
fn main_metric(series: &Series<'_>) -> Option<String> {
    let shown = series.case.as_ref().and_then(|case| Some(case.tables.first()?.metrics[0].clone()));
    shown.or_else(|| series.metrics().first().map(|name| (*name).to_owned()))
}

/// The spreads of all cells, the narrowest first, with the name of the cell.
fn spreads(series: &Series<'_>) -> Vec<(f64, String)> {
    let Some(metric) = main_metric(series) else { return Vec::new() };
    let spread = |cell| {
        let summary = Summary::of(&series.samples(cell, &metric))?;
        (summary.trials > 1).then(|| (summary.spread(), describe(cell, &series.order())))
    };
    let mut spreads: Vec<(f64, String)> = series.cells().into_iter().filter_map(spread).collect();
    spreads.sort_by(|one, other| one.0.total_cmp(&other.0));
    spreads
}

fn how_sure(all: &[Series<'_>]) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().map(trials_and_spread).collect();
    lines.extend(all.iter().flat_map(not_measured));
    let mut machines = Vec::new();
    for record in all.iter().flat_map(|series| &series.records) {
        if !machines.contains(&&record.machine) {
            machines.push(&record.machine);
        }
    }
    for machine in machines {
        lines.push(machine.line());
        lines.extend(machine.warnings().iter().map(|warning| format!("Warning: {warning}")));
    }
    lines.extend(both_binaries(all));
    let records = || all.iter().flat_map(|series| &series.records);
    let stolen = |record: &&Record| -> u64 {
        let counters = record.counters.iter();
        counters.filter(|(name, _)| name.ends_with("_stolen_ns")).map(|(_, ns)| *ns).sum()
    };
    let stolen_s = records().map(stolen).sum::<u64>() as f64 / 1e9;
    let measured = records().filter(|record| record.unable.is_none());
    let part = stolen_s / measured.map(|record| 2.0 * record.seconds).sum::<f64>();
    if part > STOLEN_MAX {
        lines.push(format!(
            "Warning: the machine below took {:.0} % of the processors' time away while it counted",
            part * 100.0
        ));
    }
    let earlier: usize = all.iter().map(|series| series.earlier_runs).sum();
    if earlier > 0 {
        lines.push(format!("{earlier} earlier runs of the same cases are left out"));
    }
    lines
}

/// Which files the two binaries were, if there were two.
fn both_binaries(all: &[Series<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    for record in all.iter().flat_map(|series| &series.records) {
        let Some(binary) = &record.binary else { continue };
        let line = format!(
            "{}: {}",
            if is_against(&record.factors) { AGAINST } else { THIS },
            binary.line()
        );
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// The cells that could not be measured, and why.
fn not_measured(series: &Series<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for record in &series.records {
        let Some(why) = &record.unable else { continue };
        let cell = describe(&record.factors, &series.order());
        let line = format!("{} ({cell}) was not measured: {why}", series.name);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn trials_and_spread(series: &Series<'_>) -> String {
    let trials = series.records.iter().map(|record| record.trial).max().unwrap_or_default();
    let seconds = series.records.first().map_or(0.0, |record| record.seconds);
    let plural = if trials == 1 { "" } else { "s" };
    let first = format!("{}: {trials} trial{plural} of {seconds} s for each cell", series.name);
    let spreads = spreads(series);
    match spreads.last() {
        None => format!("{first}; one trial says nothing of the spread"),
        Some((widest, cell)) => {
            let half = spreads[spreads.len() / 2].0 * 100.0;
            let widest = widest * 100.0;
            format!(
                "{first}, least to greatest {half:.0} % apart in the middle cell, {widest:.0} % in the \
                 widest ({cell})"
            )
        }
    }
}

fn what_next(all: &[Series<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    let records = || all.iter().flat_map(|series| &series.records);
    let names: Vec<&str> = all.iter().map(|series| series.name).collect();
    let names = names.join(" ");
    if records().any(|record| record.machine.is_debug) {
        lines.push("cargo build --release, and run it again: these figures mean nothing".into());
    }
    let is_wide = all.iter().flat_map(spreads).any(|(spread, _)| spread > WIDE_SPREAD_MIN);
    let is_short = records().all(|record| (record.trial as usize) < TRIALS_ENOUGH);
    if is_wide || is_short {
        let other = records().find(|record| is_against(&record.factors));
        let other = other.and_then(|record| record.binary.as_ref());
        let against =
            other.map_or(String::new(), |other| format!(" --against {}", other.path.display()));
        lines.push(format!(
            "narrower spreads: siga lab run {names} --trials 9 --seconds 1{against}"
        ));
    }
    lines.extend(all.iter().find_map(other_levels));
    lines.push(
        "what was counted: siga lab run --json FILE, then each line of FILE is a trial".into(),
    );
    lines
}

/// A factor whose levels are numbers, so that others are near at hand.
fn other_levels(series: &Series<'_>) -> Option<String> {
    let case = series.case.as_ref()?;
    let mut factors = case.workload.factors.iter();
    let factor = factors.find(|factor| {
        let is_used = series.cells().iter().any(|cell| cell.contains_key(factor.name));
        is_used && !matches!(factor.domain, Domain::Words(_))
    })?;
    let (name, domain) = (factor.name, &factor.domain);
    Some(format!(
        "other levels: siga lab run {} --set {name}=..., which {name} may be {domain}",
        case.name
    ))
}
