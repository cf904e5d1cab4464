//! Reports as a page: one file that needs no other, and no script to be read.
//!
//! The answer comes first, then the sections in a fixed order; a section without results is left out. What is drawn follows
//! from the records and from the definitions of their cases alone: a case of somebody else's is drawn as those of siga are.
//! Plots are written by hand as SVG. Each is a table with pictures in it, or has a table below it.

mod blocks;
mod cpu;
mod curve;
mod delay;
mod figures;
mod markup;
mod panel;
mod plot;
mod scale;
mod state;
mod strip;
mod study;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeMap;

use self::blocks::{folded_table, note};
use self::markup::{element, escaped, folded, text};
use super::claim::Tally;
use super::series::{self, Series};
use super::{
    Figure, Grid, Report, case_tables, distinct, history, interrupted, next, pool, screen, sure,
};
use crate::case::Case;
use crate::definition::Quantity;
use crate::factor::describe;
use crate::metric::Better;
use crate::record::Record;
use crate::workload::split;

/// Cells of a case above which its tables are left out: they are no page any more.
const CELLS_MAX: usize = 1000;

/// The blocks of a report as a page, in one file.
pub fn html(report: &Report) -> String {
    let blocks = blocks::blocks(&report.blocks);
    markup::page(&format!("<main>\n<h1>siga lab</h1>\n{blocks}</main>\n"))
}

/// Results as a page, in one file: with plots, and with `notes` at the top. Of a case that was run several times, the latest
/// run counts.
pub fn page(records: &[Record], notes: &[String]) -> String {
    let all = Series::all(records);
    let cases: Vec<(&str, String)> = all.iter().map(case).collect();
    let of = |id: &str| -> String {
        cases.iter().filter(|(section, _)| *section == id).map(|(_, case)| &**case).collect()
    };
    let sections = [
        ("machine", "Machine", state::about(&all) + &state::by_trial(&all)),
        ("verdicts", "Verdicts", verdict::strip(&all)),
        ("rates", "Throughput", of("rates")),
        ("delays", "Exchanges and load", of("delays")),
        ("cpu", "Processor time by role", processor_time(&all)),
        ("studies", "Studies", of("studies")),
        ("many", "Over a factor", of("many")),
        ("order", "Order of the trials", state::drift(&all)),
        ("raw", "Figures and command", raw(&all, records)),
    ];
    let (mut links, mut shown) = (String::new(), answer(&all));
    for (id, heading, markup) in sections {
        if markup.is_empty() || all.is_empty() {
            continue;
        }
        links += &format!("<li><a href=\"#{id}\">{heading}</a></li>\n");
        shown += &format!(
            "<section id=\"{id}\" aria-labelledby=\"{id}-heading\">\n<h2 id=\"{id}-heading\">{heading}</h2>\n{markup}</section>\n"
        );
    }
    let run = series::records(&all).map(|record| record.run).max();
    let when = run.map(|run| note(&format!("Run of {} UTC", history::when(run))));
    let notes = interrupted(records, &all).into_iter().chain(notes.iter().cloned());
    let notes: String = when.into_iter().chain(notes.map(|line| note(&line))).collect();
    markup::page(&format!(
        "<a class=\"skip\" href=\"#answer\">Skip to the results</a>\n<header>\n<h1>siga lab</h1>\n{notes}</header>\n\
         <nav aria-label=\"Sections\"><ol>\n{links}</ol></nav>\n<main id=\"answer\" tabindex=\"-1\">\n{shown}</main>\n"
    ))
}

/// The first screen, and what became of the claims.
fn answer(all: &[Series<'_>]) -> String {
    if all.is_empty() {
        return text("p", "", "There are no results.");
    }
    let Tally { all: count, hold, fail, undecided } = Tally::of(all);
    let part = |(class, count, words): (&str, usize, &str)| match count {
        0 => String::new(),
        _ => format!("<li class=\"{class}\"><b>{count}</b> {words}</li>\n"),
    };
    let parts = [
        ("holds", hold, "hold"),
        ("fails", fail, "do not hold"),
        ("undecided", undecided, "are undecided"),
        ("none", count - hold - fail - undecided, "are not measured"),
    ];
    let plural = if count == 1 { "claim" } else { "claims" };
    let tally = match count {
        0 => String::new(),
        _ => {
            text("p", "of", &format!("Of {count} {plural}, here"))
                + &element("ul", "tally", &parts.map(part).concat())
        }
    };
    element("section", "answer", &(tally + &blocks::blocks(&screen::blocks(all, screen::ROWS_MAX))))
}

/// The factors of workloads that offer a load.
const LOADS: [&str; 2] = ["rate", "load_percent"];

/// The section that a case belongs to, and the case.
fn case(series: &Series<'_>) -> (&'static str, String) {
    let main = sure::main_metric(series);
    let strips = || main.as_ref().map(|metric| figures::strips(series, metric)).unwrap_or_default();
    let is_less = |metric: &String| series.metric(metric).better == Better::Less;
    let is_study =
        |case: &Case| !case.published.is_empty() || case.group.as_deref() == Some("studies");
    let (section, drawn) = match panel::along(series) {
        _ if series.case.as_ref().is_some_and(is_study) => {
            ("studies", study::ratios(series) + &study::knees(series))
        }
        Some(along) if LOADS.contains(&split(along).1) => {
            ("delays", delay::under_load(series, along))
        }
        Some(along) => ("many", over(series, along)),
        None if main.as_ref().is_some_and(is_less) => {
            ("delays", strips() + &delay::distributions(series))
        }
        None => ("rates", strips()),
    };
    let tables = tables(series);
    let both =
        if section == "studies" { tables + &drawn } else { drawn + &folded("Tables", &tables) };
    let asks = series.case.as_ref().map_or("", |case| &case.asks);
    let heading = text("h3", "", series.name) + &text("p", "asks", asks);
    (section, element("article", "", &(heading + &both)))
}

/// The tables of a case, in its own layout.
fn tables(series: &Series<'_>) -> String {
    if series.cells().len() > CELLS_MAX {
        return note("Too many cells for tables on a page: siga lab report FILE --format csv");
    }
    blocks::blocks(&case_tables(series))
}

/// The rate and the processor time of a case over a factor.
fn over(series: &Series<'_>, along: &str) -> String {
    let measured = series.metrics();
    let cpu = series.case.iter().flat_map(pool::definitions).find(|metric| {
        metric.quantity == Quantity::Cpu && metric.part.is_none() && measured.contains(&metric.name)
    });
    let metrics = sure::main_metric(series).into_iter().chain(cpu.map(|metric| metric.name));
    distinct(metrics).iter().map(|metric| curve::over(series, metric, along)).collect()
}

fn processor_time(all: &[Series<'_>]) -> String {
    let bars: String = all.iter().map(cpu::bars).collect();
    if bars.is_empty() { bars } else { cpu::legend() + &bars }
}

/// The figures as numbers, and how to measure them again.
fn raw(all: &[Series<'_>], records: &[Record]) -> String {
    let figures = super::figures(records);
    let row = |figure: &Figure| {
        let order: Vec<&str> = figure.factors.keys().map(String::as_str).collect();
        vec![
            figure.case.clone(),
            describe(&figure.factors, &order),
            figure.metric.clone(),
            figure.summary.median.to_string(),
            strip::interval(figure.summary.interval, |end| end.to_string()),
            figure.unit.clone(),
            figure.summary.trials.to_string(),
            figure.failed.to_string(),
        ]
    };
    let head = ["case", "cell", "metric", "median", "95 % interval", "unit", "trials", "failed"];
    let table = Grid::of(&head, 3, figures.iter().map(row).collect());
    let mut commands: BTreeMap<String, String> = BTreeMap::new();
    for series in all {
        let trials = series.records.iter().map(|record| record.trial).max().unwrap_or(1);
        let seconds = series.records.first().map_or(0.0, |record| record.seconds);
        let cases = commands.entry(format!("--trials {trials} --seconds {seconds}")).or_default();
        *cases += &format!(" {}", next::called(series));
    }
    let commands = commands.iter().map(|(wanted, cases)| format!("siga lab run{cases} {wanted}\n"));
    let commands = format!("<pre>{}</pre>\n", escaped(&commands.collect::<String>()));
    let how = "The same cases are measured again, with all their levels and as many trials, by";
    text("p", "", how)
        + &markup::scrolling("commands", &commands)
        + &folded_table("All figures as numbers", &table)
}
