//! The machine: what it is, the state it was in at each trial, and how the figures drifted.

use std::collections::HashMap;

use super::blocks::{item, note, table};
use super::curve::{HEIGHT, whole};
use super::markup::{element, escaped, folded};
use super::plot::{Axis, Curve, Plot, Point};
use super::scale::Scale;
use super::strip::{every, times};
use crate::factor::{Factors, describe};
use crate::machine::Machine;
use crate::metric::Better;
use crate::record::Record;
use crate::report::series::Series;
use crate::report::{Grid, sure};
use crate::statistics::median;
use crate::unit::three_digits;

/// Trials that a plot has, and failed ones that it has beside them. Of more, some are drawn.
const TRIALS_MAX: usize = 3000;

/// What the machine is, what spoils the figures, and which trials failed.
pub(super) fn about(all: &[Series<'_>]) -> String {
    let machines = || all.iter().flat_map(|series| &series.records).map(|record| &record.machine);
    let facts = machines().next().map(facts).unwrap_or_default();
    // What is said above and below is not said twice.
    let failures = all.iter().flat_map(sure::failures);
    let lines: Vec<String> = machines().map(Machine::line).chain(failures).collect();
    let mut said = sure::how_sure(all);
    said.dedup();
    said.retain(|line| !lines.contains(line));
    let (bad, good): (Vec<String>, Vec<String>) =
        said.into_iter().partition(|line| line.starts_with("Warning:"));
    let list = |lines: &[String]| match lines {
        [] => String::new(),
        lines => element("ul", "", &lines.iter().map(|line| item(line)).collect::<String>()),
    };
    facts + &list(&bad) + &failed(all) + &folded("How sure the figures are", &list(&good))
}

fn facts(machine: &Machine) -> String {
    let build = if machine.is_debug { ", debug build" } else { "" };
    let fact = |(name, what): (&str, &str)| {
        format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escaped(what))
    };
    let facts = [
        ("Processor", &*machine.processor),
        ("Processors", &machine.processors.to_string()),
        ("Memory", &format!("{} GiB", machine.memory_bytes >> 30)),
        ("Virtual machine", if machine.is_virtual { "yes" } else { "no" }),
        ("Linux", machine.kernel.split('-').next().unwrap_or_default()),
        ("Governor", machine.governor.as_deref().unwrap_or("not known")),
        ("Load before the run", &format!("{:.1}", machine.load)),
        ("siga", &format!("{}{build}", machine.siga)),
    ];
    element("dl", "", &facts.map(fact).concat())
}

/// The trials that failed, each with its reason.
fn failed(all: &[Series<'_>]) -> String {
    let row = |(series, record): (&Series<'_>, &&Record)| {
        let cell = describe(&record.factors, &series.order());
        Some(vec![series.name.to_owned(), cell, record.trial.to_string(), record.failed.clone()?])
    };
    let records = all.iter().flat_map(|series| series.records.iter().map(move |one| (series, one)));
    let rows: Vec<Vec<String>> = records.filter_map(row).collect();
    let title = match rows.len() {
        0 => return element("p", "", "No trial failed."),
        1 => "1 attempt at a trial failed".to_owned(),
        count => format!("{count} attempts at trials failed"),
    };
    let grid = Grid { title, ..Grid::of(&["case", "cell", "trial", "why"], 4, rows) };
    element("div", "bad", &table(&grid))
}

/// What is noted of each trial: what it is called, its unit, and from where to where it was.
type Noted = (&'static str, &'static str, fn(&Record) -> Option<(f64, f64)>);

const NOTED: [Noted; 4] = [
    ("cache line, there and back", "ns", |record| record.state.as_ref()?.line_range()),
    ("processor time that the hypervisor took", "%", |record| {
        let part = 100.0 * sure::stolen_of(std::iter::once(record));
        record.is_measured().then_some((part, part))
    }),
    ("clock rate before the trial", "MHz", |record| {
        let mhz = record.state.as_ref()?.mhz?;
        Some((mhz, mhz))
    }),
    ("other threads that ran before the trial", "threads", |record| {
        let neighbours = record.state.as_ref()?.neighbours as f64;
        Some((neighbours, neighbours))
    }),
];

/// The state of the machine, trial by trial.
pub(super) fn by_trial(all: &[Series<'_>]) -> String {
    let records = || all.iter().flat_map(|series| series.records.iter().copied());
    let drawn = drawn(all);
    let plot = |(name, unit, of): &Noted| {
        let noted = (1..).zip(records()).zip(&drawn.0).filter(|(_, is_drawn)| **is_drawn);
        let points = noted.filter_map(|((index, record), _): ((u32, &Record), _)| {
            let (least, most) = of(record)?;
            let interval = (least < most).then_some((least, most));
            Some(Point {
                x: index.into(),
                y: (least + most) / 2.0,
                interval,
                mark: Some(mark(record)),
                ..Point::default()
            })
        });
        let points: Vec<Point> = points.collect();
        let ends = || {
            points.iter().flat_map(|point| [point.y, point.interval.map_or(point.y, |ends| ends.1)])
        };
        let most = ends().fold(0.0, f64::max);
        if most == 0.0 {
            let known = if points.is_empty() { "not recorded" } else { "none in any trial" };
            return Err(format!("{name}: {known}"));
        }
        let y = Axis { label: unit.to_string(), scale: Scale::linear(ends()), tick: &three_digits };
        let about = format!(
            "At most {} {unit}. Red crosses: failed, or a window that was too short.",
            three_digits(most)
        );
        let curve = Curve { is_small: true, points, ..Curve::default() };
        Ok(over_trials(format!("By trial: {name}"), about, y, &drawn, &[curve], 90))
    };
    let plots: Vec<Result<String, String>> = NOTED.iter().map(plot).collect();
    let without: Vec<&str> =
        plots.iter().filter_map(|plot| plot.as_deref().err()).map(String::as_str).collect();
    let without = (!without.is_empty()).then(|| format!("By trial, {}.", without.join("; ")));
    let plots: String = plots.iter().flatten().map(String::as_str).collect();
    plots + &note(&without.unwrap_or_default())
}

/// The trials that plots have, in the order of the run, and a sentence about it where some are left out. Of good trials every
/// nth is drawn; those that failed are counted by themselves, so that they do not vanish among them.
fn drawn(all: &[Series<'_>]) -> (Vec<bool>, String) {
    let trials = all.iter().flat_map(|series| &series.records);
    let is_bad: Vec<bool> = trials.map(|record| mark(record) == "bad").collect();
    let bad = is_bad.iter().filter(|is_bad| **is_bad).count();
    let every = [is_bad.len() - bad, bad].map(|count| every(count, TRIALS_MAX));
    let mut seen = [0; 2];
    let is_drawn = is_bad.iter().map(|is_bad| {
        let kind = usize::from(*is_bad);
        seen[kind] += 1;
        (seen[kind] - 1_usize).is_multiple_of(every[kind])
    });
    let thinned = match every {
        [1, 1] => String::new(),
        [good, 1] => format!("1 of {good} trials is drawn, and each that failed."),
        [good, bad] => format!("1 of {good} trials is drawn, and 1 of {bad} that failed."),
    };
    (is_drawn.collect(), thinned)
}

fn mark(record: &Record) -> &'static str {
    if record.failed.is_some() || sure::is_short(record) { "bad" } else { "" }
}

fn over_trials(
    caption: String,
    about: String,
    y: Axis<'_>,
    (is_drawn, thinned): &(Vec<bool>, String),
    curves: &[Curve],
    height: u32,
) -> String {
    let x = Axis {
        label: "trial, in the order of the run".into(),
        scale: Scale::linear([is_drawn.len() as f64]),
        tick: &|number| whole(number).map_or_else(String::new, |trial| trial.to_string()),
    };
    Plot { caption, about, x, y, curves, height }.markup(&note(thinned))
}

/// Every trial over time: its figure beside the median of its cell, so that all cells have one axis.
pub(super) fn drift(all: &[Series<'_>]) -> String {
    let drawn = drawn(all);
    let (mut curves, mut index) = (Vec::new(), 0);
    for (style, series) in all.iter().enumerate() {
        let first = index;
        index += series.records.len();
        let Some(metric) = sure::main_metric(series) else { continue };
        let better = series.metric(&metric).better;
        let mut cells: HashMap<&Factors, Vec<f64>> = HashMap::new();
        for record in &series.records {
            cells.entry(&record.factors).or_default().extend(record.metrics.get(&metric));
        }
        let middle = |(cell, mut own): (_, Vec<f64>)| {
            own.sort_by(f64::total_cmp);
            Some((cell, median(&own)?))
        };
        let medians: HashMap<&Factors, f64> = cells.into_iter().filter_map(middle).collect();
        let mut points = Vec::new();
        for (index, record) in (first..).zip(&series.records) {
            let figures = record.metrics.get(&metric).zip(medians.get(&record.factors));
            let y = match (figures, better) {
                (Some((own, median)), Better::More) => own / median,
                (Some((own, median)), Better::Less) => median / own,
                // What failed has no figure, and a place all the same.
                (None, _) => 1.0,
            };
            let has_place = figures.is_some() || record.failed.is_some();
            points.extend((drawn.0[index] && has_place).then(|| Point {
                x: (index + 1) as f64,
                y,
                mark: Some(mark(record)),
                ..Point::default()
            }));
        }
        curves.push(Curve {
            name: series.name.to_owned(),
            style,
            is_small: true,
            points,
            ..Curve::default()
        });
    }
    let ys = curves.iter().flat_map(|curve| &curve.points).map(|point| point.y);
    let y = Axis {
        label: "how good, beside the median of its cell".into(),
        scale: Scale::log(ys),
        tick: &times,
    };
    let about = "Above 1 a trial was better than the median of its cell; a slope is drift. The figures are in the last section.";
    over_trials("Every trial".into(), about.into(), y, &drawn, &curves, HEIGHT)
}
