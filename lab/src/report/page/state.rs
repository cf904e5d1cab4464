//! The machine: what it is, the state it was in at each trial, and how the figures drifted.

use std::collections::HashMap;

use super::blocks::{list, note, table};
use super::curve::whole;
use super::markup::{element, folded, text};
use super::plot::{Axis, Curve, HEIGHT, Plot, Point};
use super::strip::{every, times};
use crate::factor::{Factors, describe};
use crate::machine::{FACTS, Machine};
use crate::metric::Better;
use crate::record::Record;
use crate::report::series::{Series, records};
use crate::report::{Grid, distinct, sure};
use crate::statistics::Summary;
use crate::unit::three_digits;

/// Trials that a plot has, and failed ones that it has beside them. Of more, some are drawn.
const TRIALS_MAX: usize = 3000;

/// What the machine is, what spoils the figures, and which trials failed.
pub(super) fn about(all: &[Series<'_>]) -> String {
    let machines = || records(all).map(|record| &record.machine);
    // What is said above and below is not said twice.
    let failures = all.iter().flat_map(sure::failures);
    let lines: Vec<String> = machines().map(Machine::line).chain(failures).collect();
    let said = distinct(sure::how_sure(all)).into_iter().filter(|line| !lines.contains(line));
    let (bad, good): (Vec<String>, Vec<String>) =
        said.partition(|line| line.starts_with("Warning:"));
    let facts = machines().next().map(facts).unwrap_or_default();
    facts + &list(&bad) + &failed(all) + &folded("How sure the figures are", &list(&good))
}

fn facts(machine: &Machine) -> String {
    let load = ("load before the run", format!("{:.1}", machine.load));
    let facts = FACTS.iter().map(|(name, fact)| (*name, fact(machine))).chain([load]);
    let fact = |(name, fact): (&str, String)| {
        element("div", "", &(text("dt", "", name) + &text("dd", "", &fact)))
    };
    element("dl", "", &facts.filter(|(_, fact)| !fact.is_empty()).map(fact).collect::<String>())
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
        0 => return text("p", "", "No trial failed."),
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
        let part = 100.0 * sure::stolen(std::iter::once(record));
        record.is_measured().then_some((part, part))
    }),
    ("clock rate before the trial", "MHz", |record| {
        record.state.as_ref()?.mhz.map(|mhz| (mhz, mhz))
    }),
    ("other threads that ran before the trial", "threads", |record| {
        record.state.as_ref().map(|state| (state.neighbours as f64, state.neighbours as f64))
    }),
];

/// A trial that is drawn, behind its place in the order of the run, from 1.
type Trial<'a> = (u32, &'a Record);

/// The mark of a trial, from the one to the other.
fn point((place, record): Trial<'_>, (least, most): (f64, f64)) -> Point {
    Point {
        x: place.into(),
        y: (least + most) / 2.0,
        interval: (least < most).then_some((least, most)),
        mark: Some(if is_bad(record) { "bad" } else { "" }),
        ..Point::default()
    }
}

fn is_bad(record: &Record) -> bool {
    record.failed.is_some() || sure::is_short(record)
}

/// The trials that plots have, those that failed behind the others, and a sentence about it where some are left out. Of good
/// trials every nth is drawn; those that failed are counted by themselves, so that they do not vanish among them.
fn drawn<'a>(all: &'a [Series<'a>]) -> (Vec<Trial<'a>>, String) {
    let (bad, good): (Vec<Trial<'_>>, Vec<Trial<'_>>) =
        (1..).zip(records(all)).partition(|(_, record)| is_bad(record));
    let every = [good.len(), bad.len()].map(|count| every(count, TRIALS_MAX));
    let [good, bad] = [good, bad].map(|kind| kind.into_iter());
    let trials = good.step_by(every[0]).chain(bad.step_by(every[1])).collect();
    let thinned = match every {
        [1, 1] => String::new(),
        [good, 1] => format!("1 of {good} trials is drawn, and each that failed."),
        [good, bad] => format!("1 of {good} trials is drawn, and 1 of {bad} that failed."),
    };
    (trials, note(&thinned))
}

/// The axis of the trials.
fn over_trials() -> Axis<'static> {
    let tick = &|number| whole(number).map_or_else(String::new, |trial| trial.to_string());
    Axis { label: "trial, in the order of the run".into(), is_log: false, tick }
}

/// The state of the machine, trial by trial.
pub(super) fn by_trial(all: &[Series<'_>]) -> String {
    let (trials, thinned) = drawn(all);
    let (mut plots, mut without) = (String::new(), Vec::new());
    for (name, unit, of) in &NOTED {
        let noted = trials.iter().filter_map(|trial| Some((*trial, of(trial.1)?)));
        let most = noted.clone().map(|(_, (_, most))| most).fold(0.0, f64::max);
        let points: Vec<Point> = noted.map(|(trial, range)| point(trial, range)).collect();
        if most == 0.0 {
            let known = if points.is_empty() { "not recorded" } else { "none in any trial" };
            without.push(format!("{name}: {known}"));
            continue;
        }
        let plot = Plot {
            caption: format!("By trial: {name}"),
            x: over_trials(),
            y: Axis { label: unit.to_string(), is_log: false, tick: &three_digits },
            curves: vec![Curve { points, ..Curve::default() }],
            height: 90,
        };
        plots += &plot.markup(&thinned);
    }
    if !without.is_empty() {
        plots += &note(&format!("By trial, {}.", without.join("; ")));
    }
    plots
}

/// Every trial over time: its figure beside the median of its cell, so that all cells have one axis.
pub(super) fn drift(all: &[Series<'_>]) -> String {
    let (trials, thinned) = drawn(all);
    let curve = |(style, series): (usize, &Series<'_>)| {
        let metric = sure::main_metric(series)?;
        let better = series.metric(&metric).better;
        let median = |cell| Some((cell, Summary::of(&series.samples(cell, &metric))?.median));
        let medians: HashMap<&Factors, f64> =
            series.cells().into_iter().filter_map(median).collect();
        let good = |record: &Record| match record.metrics.get(&metric) {
            Some(own) => match (better, medians.get(&record.factors)?) {
                (Better::More, median) => Some(own / median),
                (Better::Less, median) => Some(median / own),
            },
            // What failed has no figure, and a place all the same.
            None => record.failed.as_ref().map(|_| 1.0),
        };
        let own = trials.iter().filter(|(_, record)| record.case == series.name);
        let point = |trial: &Trial<'_>| good(trial.1).map(|good| point(*trial, (good, good)));
        let points = own.filter_map(point).collect();
        Some(Curve { name: series.name.to_owned(), style, points, ..Curve::default() })
    };
    Plot {
        caption: "Every trial".into(),
        x: over_trials(),
        y: Axis {
            label: "how good, beside the median of its cell".into(),
            is_log: true,
            tick: &times,
        },
        curves: all.iter().enumerate().filter_map(curve).collect(),
        height: HEIGHT,
    }
    .markup(
        &(note("Above 1 a trial was better than the median of its cell; a slope is drift.")
            + &thinned),
    )
}
