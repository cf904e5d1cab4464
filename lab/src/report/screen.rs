//! The first screen of a run: what siga does here beside what else there is, how many claims hold, how busy the
//! machine was. Its columns and rows are data of the cases.

use super::claim::Tally;
use super::series::{Found, Series, records};
use super::sure::{STOLEN_MAX, percent, states_line, stolen, trials_of};
use super::table::NOTHING;
use super::{Block, Grid, Report, counted, distinct, interruptions, render};
use crate::case::{Screen, ScreenColumn, ScreenRow};
use crate::factor::{ABSENT_AT_ZERO, Factors, is_absent};
use crate::record::Record;
use crate::statistics::Summary;
use crate::unit;
use crate::workload::split;

/// The most lines of the first screen, and columns of each.
const LINES_MAX: usize = 24;
const COLUMNS_MAX: u16 = 100;

/// The most cases whose claims have a line each. Those of more have one together.
const TALLIES_MAX: usize = 4;

/// The most columns of figures, and rows: those of the first cases. The others are in the report.
const FIGURES_MAX: usize = 6;
pub(super) const ROWS_MAX: usize = 7;

/// The first screen of a run and where its tables are, as text for a terminal of `width` columns: at most
/// 24 lines of at most 100 columns. Rows that have no room are left out, the last ones first. On a terminal narrower than a row
/// there are more lines.
pub fn first_screen(records: &[Record], width: u16) -> String {
    let all = Series::all(records);
    let mut text = String::new();
    for rows_max in (1..=ROWS_MAX).rev() {
        let mut blocks = blocks(&all, rows_max);
        blocks.splice(0..0, interruptions(records, &all));
        if blocks.is_empty() {
            blocks.push(Block::Text("There are no results for the first screen.".into()));
        }
        blocks.push(Block::Text(
            "All tables: siga lab report last     As a page: siga lab page --output FILE".into(),
        ));
        text = render::text(&Report { blocks }, width.min(COLUMNS_MAX));
        if text.lines().count() <= LINES_MAX {
            break;
        }
    }
    text
}

/// The names of the rows of some screens.
fn names<'a>(screens: impl Iterator<Item = &'a Screen>) -> Vec<&'a str> {
    distinct(screens.flat_map(|screen| &screen.rows).map(|row| &*row.name))
}

/// The blocks of the first screen with at most so many rows. Empty if no case has a part of it.
pub(super) fn blocks(all: &[Series<'_>], rows_max: usize) -> Vec<Block> {
    let Some((grid, shown)) = grid(all, rows_max) else { return Vec::new() };
    let sure = sure(all, &shown);
    vec![Block::Text(machine(all).join("\n")), Block::Table(grid), Block::Text(sure.join("\n"))]
}

/// What was measured on, and what spoils it.
fn machine(all: &[Series<'_>]) -> Vec<String> {
    let Some(record) = records(all).next() else { return Vec::new() };
    let machine = &record.machine;
    let processor = machine.processor.chars().take(60).collect::<String>();
    let mut lines = vec![format!("{processor}, {} processors", machine.processors)];
    if machine.is_debug {
        lines.push("DEBUG BUILD: the figures mean nothing. cargo build --release".to_owned());
    }
    let stolen = stolen(records(all));
    let (which, low) = match machine.is_busy() || stolen > STOLEN_MAX {
        true => ("BUSY", ": figures are low"),
        false => ("Quiet", ""),
    };
    lines.push(format!(
        "{which}: load {:.1} of {} processors before the run, {} stolen during it{low}",
        machine.load,
        machine.processors,
        percent(stolen)
    ));
    lines.extend(states_line(all));
    lines
}

/// Beyond these parts of a figure its interval is marked, the second where there is none as well.
const MARKED: [f64; 2] = [0.1, 0.5];
const MARKS: [&str; 2] = ["~", "?"];

/// Half of the interval, as a part of the figure; none where too few trials say one.
fn half_interval(summary: &Summary) -> Option<f64> {
    let (least, most) = summary.interval?;
    Some((most - least) / 2.0 / summary.median.abs()).filter(|half| half.is_finite())
}

/// How sure a figure of the screen is, in one sign.
fn mark(summary: &Summary) -> &'static str {
    match half_interval(summary) {
        Some(half) if half <= MARKED[0] => "",
        Some(half) if half <= MARKED[1] => MARKS[0],
        _ => MARKS[1],
    }
}

/// How often it was measured, how sure the figures of the screen are, and what has become of the claims.
fn sure(all: &[Series<'_>], shown: &[Summary]) -> Vec<String> {
    let mut halves: Vec<f64> = shown.iter().filter_map(half_interval).collect();
    halves.sort_by(f64::total_cmp);
    let within = halves.last().map_or_else(String::new, |worst| {
        let typical = percent(halves[halves.len() / 2]);
        format!(", within ±{typical} typically, ±{} at worst", percent(*worst))
    });
    let marks = shown.iter().any(|summary| !mark(summary).is_empty());
    let [some, much] = MARKED.map(percent);
    let legend = format!(". {} over {some}, {} over {much} or unknown", MARKS[0], MARKS[1]);
    let legend = if marks { legend } else { String::new() };
    let mut lines = vec![format!("Medians of {}{within}{legend}.", trials_of(all))];
    let failed = records(all).filter(|record| record.failed.is_some()).count();
    if failed > 0 {
        let cells =
            all.iter().flat_map(|series| series.cells().into_iter().map(move |it| (series, it)));
        let without = match cells.map(|(series, cell)| series.lost(cell)).sum::<usize>() {
            0 => "all were done again".to_owned(),
            1 => "1 trial has no figure".to_owned(),
            lost => format!("{lost} trials have no figure"),
        };
        let attempts = counted(failed, "attempt");
        lines.push(format!("FAILED: {attempts}; {without}. Why: siga lab report last"));
    }
    let tallies = all.iter().map(|series| (series.name, Tally::of([series])));
    let tallies: Vec<(&str, Tally)> = tallies.filter(|(_, tally)| tally.all > 0).collect();
    if tallies.len() > TALLIES_MAX {
        lines.push(format!("{} cases: {}", tallies.len(), Tally::of(all).sentence()));
    } else {
        lines.extend(tallies.iter().map(|(name, tally)| format!("{name}: {}", tally.sentence())));
    }
    lines
}

/// A column and the case that has it.
type Column<'a> = (&'a Series<'a>, &'a ScreenColumn);

fn grid(all: &[Series<'_>], rows_max: usize) -> Option<(Grid, Vec<Summary>)> {
    let screens = || all.iter().filter_map(|series| Some((series, &series.case.as_ref()?.screen)));
    let names = names(screens().map(|(_, screen)| screen));
    let columns = screens().flat_map(|(series, screen)| {
        screen.columns.iter().map(move |column| ((series, column), screen))
    });
    let columns = columns.map(|(column, screen)| {
        let row = |name: &&str| screen.rows.iter().find(|row| row.name == *name);
        let figures = names.iter().map(|name| figure(column, row(name)?));
        (column, figures.collect::<Vec<Option<Figure<'_>>>>())
    });
    let columns = columns.filter(|(_, figures)| figures.iter().any(Option::is_some));
    let columns: Vec<_> = columns.take(FIGURES_MAX).collect();
    let summaries = columns.iter().flat_map(|(_, figures)| figures.iter().flatten());
    let summaries = summaries.map(|(summary, _)| *summary).collect();
    let (heads, columns): (Vec<String>, Vec<Vec<String>>) =
        columns.iter().map(|(column, figures)| shown(*column, figures)).unzip();
    let rows = names.iter().enumerate().map(|(index, name)| -> Vec<String> {
        let figures = columns.iter().map(|cells| cells[index].clone());
        [(*name).to_owned()].into_iter().chain(figures).collect()
    });
    let mut rows: Vec<Vec<String>> =
        rows.filter(|row| row[1..].iter().any(|figure| figure != NOTHING)).collect();
    let left_out = rows.len().saturating_sub(rows_max);
    rows.truncate(rows_max);
    let mut grid = Grid::of(&[&[String::new()], &heads[..]].concat(), 1, rows);
    if left_out > 0 {
        let are = if left_out == 1 { "is" } else { "are" };
        grid.notes.push(format!("{} {are} left out.", counted(left_out, "row")));
    }
    (!grid.rows.is_empty()).then_some((grid, summaries))
}

/// A figure, and what is said of the cell that it is of.
type Figure<'a> = (Summary, &'a str);

/// The best of the cells of a row; none if none was measured.
fn figure<'a>((series, column): Column<'_>, row: &'a ScreenRow) -> Option<Figure<'a>> {
    let found = |(name, levels): (&'a str, &'a Factors)| -> Option<(Found<'_>, &'a str)> {
        let wanted = column.only.clone().into_iter().chain(levels.clone()).collect();
        let wanted = series.meant(&wanted, &[]);
        let cells = series.cells().into_iter().filter(|cell| applies(cell, &wanted));
        Some((series.best(&column.metric, cells)?, name))
    };
    let best_first = Found::best_first(series.metric(&column.metric).better);
    let all = row.cells().filter_map(found);
    let (found, name) = all.min_by(|(one, _), (other, _)| best_first(one, other))?;
    Some((found.summary, name))
}

/// Whether a cell has all wanted levels, of those factors that apply to the cell.
fn applies(cell: &Factors, wanted: &Factors) -> bool {
    wanted.iter().all(|(factor, level)| match cell.get(factor) {
        None => is_absent(factor, level) || !ABSENT_AT_ZERO.contains(&split(factor).1),
        Some(own) => own == level,
    })
}

/// The heading and the cells of a column, in one unit.
fn shown((series, column): Column<'_>, figures: &[Option<Figure<'_>>]) -> (String, Vec<String>) {
    let ScreenColumn { heading: above, metric, unit, .. } = column;
    let numbers = figures.iter().flatten().map(|(summary, _)| summary.median);
    let metric = series.metric(metric);
    let fixed = unit.as_ref().and_then(|label| unit::named(&metric.units, label));
    let unit = fixed.or_else(|| unit::for_all(&metric.units, numbers));
    let cell = |figure: &Option<Figure<'_>>| {
        let Some((summary, name)) = figure else { return NOTHING.to_owned() };
        let number = metric.show_in(unit, summary.median);
        format!("{number}{} {name}", mark(summary)).trim_end().to_owned()
    };
    let head = unit.map_or_else(|| above.clone(), |unit| format!("{above}\n{}", unit.short));
    (head, figures.iter().map(cell).collect())
}

#[cfg(test)]
mod tests {
    use host::config::Source;

    use super::*;
    use crate::library;
    use crate::record::parse;
    use crate::report::report;

    const STREAM: &str = r#"name = "stream"
asks = "How fast?"
workload = "message-stream"
trials = 3
seconds = 0.5
warm_up_seconds = 0
[factors]
transport = ["path", "pipe", "unix-seqpacket", "copy-limit"]
bytes = [64]
[[screen.column]]
heading = "64 B one way"
metric = "rate_messages_per_s"
only = { bytes = 64 }
unit = "million/s"
[[screen.column]]
heading = "CPU"
metric = "cpu_ns_per_message"
[[screen.row]]
name = "siga"
of = [{ transport = "path" }]
[[screen.row]]
name = "not built"
of = [{ transport = "aeron" }]
[[screen.row]]
name = "best kernel way"
best = { pipe = { transport = "pipe" }, packets = { transport = "unix-seqpacket" } }
[[screen.row]]
name = "limit"
of = [{ transport = "copy-limit" }]
[[claim]]
name = "twice a pipe"
metric = "rate_messages_per_s"
of = { transport = "path" }
against = [{ transport = "pipe" }]
at_least = 2
[[claim]]
name = "forty times a pipe"
metric = "rate_messages_per_s"
of = { transport = "path" }
against = [{ transport = "pipe" }]
at_least = 40
"#;

    const EXCHANGE: &str = r#"name = "exchange"
asks = "How long?"
workload = "message-exchange"
trials = 3
seconds = 0.5
warm_up_seconds = 0
[factors]
transport = ["path", "cache-line-2", "wake"]
bytes = [64]
wait = ["spin", "block"]
[[screen.column]]
heading = "answer, spinning"
metric = "latency_p50_ns"
only = { bytes = 64, wait = "spin" }
unit = "µs"
[[screen.column]]
heading = "answer, asleep"
metric = "latency_p50_ns"
only = { bytes = 64, wait = "block" }
[[screen.row]]
name = "siga"
of = [{ transport = "path" }]
[[screen.row]]
name = "limit"
of = [{ transport = "cache-line-2" }, { transport = "wake" }]
"#;

    const MACHINE: &str =
        r#"{"processor":"Some CPU @ 2 GHz","processors":2,"pinned":[0,1],"load":LOAD}"#;

    fn records(load: f64) -> Vec<Record> {
        let mut lines = String::new();
        let mut add = |case: (&str, &str), factors: &str, metrics: &str| {
            for trial in 1..=6 {
                let (name, text) = case;
                let machine = MACHINE.replace("LOAD", &load.to_string());
                let text = serde_json::to_string(text).unwrap();
                lines += &format!(
                    r#"{{"case":"{name}","system":"open","trial":{trial},"factors":{{{factors}}},"metrics":{{{metrics}}},"counters":{{"source_stolen_ns":50000000}},"machine":{machine},"run":7,"seconds":0.5,"definition":{text}}}"#
                );
                lines += "\n";
            }
        };
        for (transport, rate, cpu) in [
            ("path", 63.5, 31.0),
            ("pipe", 1.8, 1057.0),
            ("unix-seqpacket", 1.5, 900.0),
            ("copy-limit", 72.8, 27.0),
        ] {
            add(
                ("stream", STREAM),
                &format!(r#""transport":"{transport}","bytes":64"#),
                &format!(r#""rate_messages_per_s":{rate}e6,"cpu_ns_per_message":{cpu}"#),
            );
        }
        for (factors, ns) in [
            (r#""transport":"path","bytes":64,"wait":"spin""#, 770),
            (r#""transport":"path","bytes":64,"wait":"block""#, 71_000),
            (r#""transport":"cache-line-2","wait":"spin""#, 270),
            (r#""transport":"wake","wait":"block""#, 70_000),
        ] {
            add(("exchange", EXCHANGE), factors, &format!(r#""latency_p50_ns":{ns}"#));
        }
        parse(&Source::of("r.jsonl", &lines)).unwrap()
    }

    const SCREEN: &str = "\
Some CPU @ 2 GHz, 2 processors
BUSY: load 0.8 of 2 processors before the run, 5 % stolen during it: figures are low

                   64 B one way           CPU   answer, spinning   answer, asleep 
                      million/s            ns                 µs               µs 
──────────────────────────────────────────────────────────────────────────────────
 siga                      63.5          31.0              0.770             71.0 
 best kernel way      1.80 pipe   900 packets                  -                - 
 limit                     72.8          27.0              0.270             70.0 

Medians of 6 trials, within ±0 % typically, ±0 % at worst.
stream: 1 of 2 claims holds here, 1 does not.

All tables: siga lab report last     As a page: siga lab page --output FILE

";

    #[test]
    fn screen_answers_and_says_where_the_tables_are() {
        assert_eq!(first_screen(&records(0.8), 160), SCREEN);
        let quiet = first_screen(&records(0.1), 100);
        assert!(quiet.contains("\nBUSY: load 0.1 "), "stolen time alone: {quiet}");
    }

    #[test]
    fn report_begins_with_the_screen() {
        let found = render::text(&report(&records(0.8)), 100);
        let end = SCREEN.find("\nAll tables").unwrap();
        assert!(found.starts_with(&SCREEN[..end]), "{found}");
    }

    #[test]
    fn screen_fits_a_terminal_whatever_was_measured() {
        let mut records = records(0.8);
        for record in &mut records {
            record.machine.processor = "A Very Long Name of a Processor ".repeat(9);
            record.machine.is_debug = true;
        }
        let mut many = records.clone();
        for number in 0..9 {
            let named =
                |record: &Record| Record { case: format!("case-{number}"), ..record.clone() };
            // Their rows are the same, and their claims have one line together.
            many.extend(records.iter().filter(|record| record.case == "stream").take(6).map(named));
        }
        for records in [records, many] {
            fits(&first_screen(&records, 200));
            assert!(first_screen(&records, 80).lines().count() <= LINES_MAX);
        }
    }

    fn fits(screen: &str) {
        assert!(screen.lines().count() <= LINES_MAX, "{screen}");
        let columns = |line: &str| line.chars().count();
        assert!(screen.lines().all(|line| columns(line) <= COLUMNS_MAX.into()), "{screen}");
    }

    #[test]
    fn rows_that_have_no_room_are_counted() {
        let mut rows = String::new();
        for name in ["one ", "two ", "three ", "four ", "five ", "six "] {
            rows += &format!(
                "[[screen.row]]\nname = \"{}\"\nof = [{{ transport = \"path\" }}]\n",
                name.repeat(20)
            );
        }
        let text = STREAM.replacen("[[screen.row]]", &format!("{rows}[[screen.row]]"), 1);
        let mut records = records(0.8);
        for record in records.iter_mut().filter(|record| record.case == "stream") {
            record.definition = Some(text.clone());
        }
        let found = first_screen(&records, 100);
        assert!(found.lines().count() <= LINES_MAX, "{found}");
        assert!(found.contains(" rows are left out.\n"), "{found}");
    }

    /// Trials of the cases that run by default, with a figure in each place of the first screen, as many trials on one
    /// side of each claim's bound as on the other.
    fn all_measured() -> Vec<Record> {
        let mut lines = String::new();
        for case in library::select(&[]).unwrap() {
            let text = serde_json::to_string(&*case.text).unwrap();
            let tables = serde_json::to_string(&crate::record::Tables::of(&case)).unwrap();
            for (index, cell) in case.clone().quickly().cells().iter().enumerate() {
                let factors = serde_json::to_string(cell).unwrap();
                for trial in 1..=6 {
                    let spread = [0.01, 1.0, 100.0][(index + trial) % 3];
                    let figure =
                        |(metric, number): (&str, f64)| format!("\"{metric}\":{}", number * spread);
                    let metrics = [
                        ("rate_messages_per_s", 123_400.0),
                        ("rate_bytes_per_s", 123_400_000.0),
                        ("cpu_ns_per_message", 12_345.0),
                        ("latency_p50_ns", 123.4),
                        ("exchange_p50_ns", 123.4),
                        ("rate_mib_per_s", 123.4),
                    ];
                    let metrics = metrics.map(figure).join(",");
                    lines += &format!(
                        r#"{{"case":"{}","system":"open","trial":{trial},"factors":{factors},"metrics":{{{metrics}}},"counters":{{"source_stolen_ns":50000000}},"machine":{},"run":7,"seconds":0.5,"definition":{text},"published":{tables}}}"#,
                        case.name,
                        MACHINE.replace("LOAD", "1.9")
                    );
                    lines += "\n";
                }
            }
        }
        let mut records = parse(&Source::of("r.jsonl", &lines)).unwrap();
        for record in &mut records {
            record.machine.processor = "A Very Long Name of a Processor ".repeat(9);
            record.machine.is_debug = true;
        }
        records
    }

    #[test]
    fn cases_that_run_by_default_fit_when_everything_is_measured() {
        let found = first_screen(&all_measured(), 200);
        fits(&found);
        let table = found.split("\n\n").nth(1).unwrap();
        let cases = library::select(&[]).unwrap();
        let rows = names(cases.iter().map(|case| &case.screen));
        // Figures of five digits, each with a mark: names of rows may have two lines, and headings three.
        assert!(table.lines().count() <= 4 + 2 * rows.len(), "{found}");
        assert!(found.contains("are undecided") && !found.contains("left out"), "{found}");
    }

    #[test]
    fn readme_has_the_screen_of_the_cases_that_run_by_default() {
        let readme = include_str!("../../../README.md");
        let cases = library::select(&[]).unwrap();
        let screens = || cases.iter().map(|case| &case.screen);
        // Without a unit, the figures choose it.
        let heading = |column: &ScreenColumn| match &column.unit {
            Some(unit) => format!("{}, {unit}", column.heading),
            None => column.heading.clone(),
        };
        let columns = screens().flat_map(|screen| &screen.columns);
        let headings: Vec<String> = columns.map(heading).collect();
        let rows = names(screens());
        let head = format!("| | {} |\n", headings.join(" | "));
        let table = &readme[readme.find(&head).unwrap_or_else(|| panic!("{head}is not there"))..];
        let table = &table[..table.find("\n\n").expect("the table ends")];
        let names: Vec<&str> = table
            .lines()
            .skip(2)
            .map(|line| line.split('|').nth(1).expect("a row has cells").trim())
            .collect();
        assert_eq!(names, rows);
    }
}
