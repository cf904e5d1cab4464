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

use self::blocks::{folded_table, note};
use self::markup::{element, escaped, folded};
use super::claim::Tally;
use super::series::Series;
use super::{
    Block, Figure, Grid, Report, binaries, breakdown, history, knee, next, screen, sure, table,
};
use crate::definition::Quantity;
use crate::factor::describe;
use crate::metric::{Better, built_in};
use crate::record::Record;
use crate::workload::split;

/// Cells of a case above which its tables are left out: they are no page any more.
const CELLS_MAX: usize = 1000;

/// Figures that the page has as numbers.
const FIGURES_MAX: usize = 3000;

/// The blocks of a report as a page, in one file.
pub fn html(report: &Report) -> String {
    markup::page(
        "siga lab",
        &format!("<main>\n<h1>siga lab</h1>\n{}</main>\n", blocks::blocks(&report.blocks)),
    )
}

/// Results as a page, in one file: with plots, and with `notes` at the top. Of a case that was run several times, the latest
/// run counts.
pub fn page(records: &[Record], notes: &[String]) -> String {
    let all = Series::all(records);
    let sections: Vec<(&str, &str, String)> = [
        ("machine", "Machine", state::about(&all) + &state::by_trial(&all)),
        ("verdicts", "Verdicts", verdict::strip(&all)),
        ("rates", "Throughput", cases(&all, Kind::Rates)),
        ("delays", "Exchanges and load", cases(&all, Kind::Delays)),
        ("cpu", "Processor time by role", processor_time(&all)),
        ("studies", "Studies", cases(&all, Kind::Studies)),
        ("many", "Over a factor", cases(&all, Kind::Many)),
        ("order", "Order of the trials", state::drift(&all)),
        ("raw", "Figures and command", raw(&all, records)),
    ]
    .into_iter()
    .filter(|(.., markup)| !markup.is_empty() && !all.is_empty())
    .collect();
    let link = |(id, heading, _): &(&str, &str, String)| {
        format!("<li><a href=\"#{id}\">{heading}</a></li>\n")
    };
    let links: String = sections.iter().map(link).collect();
    let section = |(id, heading, markup): &(&str, &str, String)| {
        format!(
            "<section id=\"{id}\" aria-labelledby=\"{id}-heading\">\n<h2 id=\"{id}-heading\">{heading}</h2>\n{markup}</section>\n"
        )
    };
    let run = all.iter().flat_map(|series| &series.records).map(|record| record.run).max();
    let when = run
        .map(|run| element("p", "note", &format!("Run of {} UTC", history::when(run))))
        .unwrap_or_default();
    let notes: String = notes.iter().map(|line| element("p", "note", &escaped(line))).collect();
    let body = format!(
        "<a class=\"skip\" href=\"#answer\">Skip to the results</a>\n<header>\n<h1>siga lab</h1>\n{when}{notes}</header>\n\
         <nav aria-label=\"Sections\"><ol>\n{links}</ol></nav>\n<main id=\"answer\" tabindex=\"-1\">\n{}{}</main>\n",
        answer(&all),
        sections.iter().map(section).collect::<String>()
    );
    markup::page("siga lab", &body)
}

/// The first screen, and what became of the claims.
fn answer(all: &[Series<'_>]) -> String {
    if all.is_empty() {
        return element("p", "", "There are no results.");
    }
    let Tally { all: count, hold, fail, undecided } = Tally::of(all);
    let rest = count - hold - fail - undecided;
    let parts = [
        ("holds", hold, "hold"),
        ("fails", fail, "do not hold"),
        ("undecided", undecided, "are undecided"),
        ("none", rest, "are not measured"),
    ];
    let part = |(class, count, words): &(&str, usize, &str)| {
        format!("<li class=\"{class}\"><b>{count}</b> {words}</li>\n")
    };
    let tally: String = parts.iter().filter(|(_, count, _)| *count > 0).map(part).collect();
    let plural = if count == 1 { "claim" } else { "claims" };
    let tally = match count {
        0 => String::new(),
        _ => format!(
            "<p class=\"of\">Of {count} {plural}, here</p>\n{}",
            element("ul", "tally", &tally)
        ),
    };
    element("section", "answer", &(tally + &blocks::blocks(&screen::blocks(all))))
}

/// Where a case is shown.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rates,
    Delays,
    Studies,
    Many,
}

impl Kind {
    fn of(series: &Series<'_>) -> Kind {
        let case = series.case.as_ref();
        if case.is_some_and(|case| {
            !case.published.is_empty() || case.group.as_deref() == Some("studies")
        }) {
            return Kind::Studies;
        }
        match panel::along(series) {
            Some(factor) if LOADS.contains(&split(factor).1) => Kind::Delays,
            Some(_) => Kind::Many,
            None => match sure::main_metric(series).map(|metric| series.metric(&metric).better) {
                Some(Better::Less) => Kind::Delays,
                _ => Kind::Rates,
            },
        }
    }
}

/// The factors of workloads that offer a load.
const LOADS: [&str; 2] = ["rate", "load_percent"];

fn cases(all: &[Series<'_>], kind: Kind) -> String {
    all.iter().filter(|series| Kind::of(series) == kind).map(|series| case(series, kind)).collect()
}

fn case(series: &Series<'_>, kind: Kind) -> String {
    let asks = series.case.as_ref().map_or("", |case| &case.asks);
    let main = sure::main_metric(series);
    let strips = || main.as_ref().map(|metric| figures::strips(series, metric)).unwrap_or_default();
    let drawn = match (kind, panel::along(series)) {
        (Kind::Delays, Some(along)) => delay::under_load(series, along),
        (Kind::Delays, None) => strips() + &delay::distributions(series),
        (Kind::Many, Some(along)) => over(series, along),
        (Kind::Studies, _) => study::ratios(series) + &study::knees(series),
        (Kind::Rates | Kind::Many, _) => strips(),
    };
    let tables = tables(series);
    let tables =
        if kind == Kind::Studies { tables + &drawn } else { drawn + &folded("Tables", &tables) };
    let heading = element("h3", "", &escaped(series.name)) + &element("p", "asks", &escaped(asks));
    element("article", "", &(heading + &tables))
}

/// The tables of a case, in its own layout.
fn tables(series: &Series<'_>) -> String {
    if series.cells().len() > CELLS_MAX {
        return note("Too many cells for tables on a page: siga lab report FILE --format csv");
    }
    let about = series.case.as_ref().and_then(super::about_published);
    let mut all: Vec<Block> = about.into_iter().collect();
    all.extend(table::tables(series));
    all.extend(binaries::binaries(series));
    all.extend(knee::knees(series));
    all.extend(breakdown::breakdowns(series));
    blocks::blocks(&all)
}

/// The rate and the processor time of a case over a factor.
fn over(series: &Series<'_>, along: &str) -> String {
    let main = sure::main_metric(series);
    let case = series.case.as_ref();
    let defined =
        case.map_or(Vec::new(), |case| [built_in(case.workload), case.metrics.clone()].concat());
    let measured = series.metrics();
    let cpu = defined.iter().find(|metric| {
        metric.quantity == Quantity::Cpu && metric.part.is_none() && measured.contains(&metric.name)
    });
    let mut metrics: Vec<&str> =
        main.as_deref().into_iter().chain(cpu.map(|metric| &*metric.name)).collect();
    metrics.dedup();
    metrics.iter().map(|metric| curve::over(series, metric, along)).collect()
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
        let interval = match figure.interval {
            Some((least, most)) => format!("{least} to {most}"),
            None => "not enough trials".to_owned(),
        };
        vec![
            figure.case.clone(),
            describe(&figure.factors, &order),
            figure.metric.clone(),
            figure.median.to_string(),
            interval,
            figure.unit.clone(),
            figure.trials.to_string(),
            figure.failed.to_string(),
        ]
    };
    let left_out = figures.len().saturating_sub(FIGURES_MAX);
    let rows = figures.iter().take(FIGURES_MAX).map(row).collect();
    let head = ["case", "cell", "metric", "median", "95 % interval", "unit", "trials", "failed"];
    let mut table = Grid::of(&head, 3, rows);
    if left_out > 0 {
        table.notes.push(format!("{left_out} more figures: siga lab report FILE --format csv"));
    }
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    for series in all {
        let trials = series.records.iter().map(|record| record.trial).max().unwrap_or(1);
        let seconds = series.records.first().map_or(0.0, |record| record.seconds);
        let wanted = format!("--trials {trials} --seconds {seconds}");
        match commands.iter_mut().find(|(own, _)| *own == wanted) {
            Some((_, cases)) => cases.push(next::called(series)),
            None => commands.push((wanted, vec![next::called(series)])),
        }
    }
    let command = |(wanted, cases): &(String, Vec<String>)| {
        format!("siga lab run {} {wanted}\n", cases.join(" "))
    };
    let commands: String = commands.iter().map(command).collect();
    element(
        "p",
        "",
        "The same cases are measured again, with all their levels and as many trials, by",
    ) + &markup::scrolling("commands", &format!("<pre>{}</pre>\n", escaped(&commands)))
        + &folded_table("All figures as numbers", &table)
}
