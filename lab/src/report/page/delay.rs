//! Delays: how they are distributed, and how they grow with the load.

use super::blocks::{folded_table, note};
use super::curve::{self, Line, Spot, groups, left_out};
use super::panel::{Panel, is_claimed, name, panels};
use super::plot::{Axis, CURVES_MAX, Curve, HEIGHT, Plot, Point};
use super::strip::tick;
use crate::definition::{MetricDef, Per, Quantity, Scope, compute};
use crate::factor::Factors;
use crate::metric::{Shown, built_in};
use crate::quantity::TIMES;
use crate::record::Record;
use crate::report::Grid;
use crate::report::series::Series;
use crate::statistics::{Sample, Summary};
use crate::times::Times;
use crate::unit::{TIME, three_digits};

/// Points of a curve for each tenfold, and tenfolds that it can have.
const POINTS: u32 = 12;
const TENFOLDS_MAX: u32 = 12;

/// The parts that the table names, by how much of all is left beyond each.
const NAMED: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.1), ("p99", 0.01), ("p99.9", 0.001)];

/// A cell, its times, and how many of them and of its trials there are.
struct Taken<'a> {
    name: String,
    times: Vec<&'a Times>,
    count: u64,
    trials: usize,
}

/// The distribution of the times of each cell, all trials together, as far as so many times say it.
pub(super) fn distributions(series: &Series<'_>) -> String {
    let mut parties = series.records.iter().flat_map(|record| &record.parties);
    let kind =
        parties.find_map(|party| TIMES.iter().find(|kind| party.report.times.contains_key(**kind)));
    let Some(kind) = kind else { return String::new() };
    panels(series).0.iter().map(|panel| distribution(series, kind, panel)).collect()
}

fn distribution<'a>(series: &Series<'a>, kind: &str, panel: &Panel<'a>) -> String {
    let taken = |cell: &'a Factors| {
        let trials: Vec<&Record> = series.measured(cell).collect();
        let parties = trials.iter().flat_map(|record| &record.parties);
        let times: Vec<&Times> = parties.filter_map(|party| party.report.times.get(kind)).collect();
        let count = times.iter().map(|times| times.count()).fold(0, u64::saturating_add);
        let name = name(series, cell, &panel.called_by);
        (count > 0).then_some(Taken { name, times, count, trials: trials.len() })
    };
    // What the case makes claims about has the first colours.
    let mut cells = panel.cells.clone();
    cells.sort_by_cached_key(|cell| !is_claimed(series, cell));
    let cells: Vec<Taken<'_>> = cells.into_iter().filter_map(taken).collect();
    let curve = |(index, taken): (usize, &Taken<'_>)| {
        let steps =
            (0..=POINTS * TENFOLDS_MAX).map(|step| 10f64.powf(f64::from(step) / f64::from(POINTS)));
        let left: Vec<f64> = steps.take_while(|times| *times <= taken.count as f64).collect();
        let parts: Vec<f64> = left.iter().map(|times| 1.0 - 1.0 / times).collect();
        let points = left.iter().zip(Times::quantiles(&taken.times, &parts));
        let points = points.map(|(x, y)| Point { x: *x, y, ..Point::default() }).collect();
        // Without marks, dashes tell curves apart.
        let style = index + index % 3 * CURVES_MAX;
        Curve { name: taken.name.clone(), style, is_joined: true, points }
    };
    let row = |taken: &Taken<'_>| {
        let times = Times::quantiles(&taken.times, &NAMED.map(|(_, left)| 1.0 - left));
        let times = times.iter().zip(NAMED).map(|(time, (_, left))| {
            let is_known = taken.count as f64 * left >= 1.0;
            if is_known { tick(TIME, *time) } else { "-".to_owned() }
        });
        let counts = [taken.count.to_string(), taken.trials.to_string()];
        std::iter::once(taken.name.clone()).chain(times).chain(counts).collect()
    };
    let head = [&[""], &NAMED.map(|(name, _)| name)[..], &["times", "trials"]].concat();
    let few = "Times of all trials together; -: there are too few for this percentile.";
    let table = Grid::of(&head, 1, cells.iter().map(row).collect());
    let table = Grid { notes: vec![few.to_owned()], ..table };
    Plot {
        caption: panel.caption(&format!("{kind} by percentile")),
        x: Axis { label: "percentile".into(), is_log: true, tick: &percentile },
        y: Axis { label: kind.to_owned(), is_log: true, tick: &|ns| tick(TIME, ns) },
        curves: cells.iter().take(CURVES_MAX).enumerate().map(curve).collect(),
        height: HEIGHT,
    }
    .markup(&(left_out(cells.len(), CURVES_MAX) + &folded_table("As a table", &table)))
}

/// What stands where one of so many is left beyond: at 10 it is 90 %. Nothing between tenfolds.
fn percentile(times: f64) -> String {
    let tenfolds = times.log10();
    if (tenfolds - tenfolds.round()).abs() > 0.01 {
        return String::new();
    }
    let places = (tenfolds.round() as usize).saturating_sub(2);
    format!("{:.places$} %", 100.0 * (1.0 - 1.0 / times))
}

/// How late requests are at each rate that was offered, over the rate that was achieved: a curve for each percentile.
pub(super) fn under_load(series: &Series<'_>, along: &str) -> String {
    let Some(case) = &series.case else { return String::new() };
    let is_delay = |metric: &MetricDef| {
        metric.quantity == Quantity::Time && metric.kind.as_deref() == Some("latency")
    };
    let delays: Vec<MetricDef> = built_in(case.workload).into_iter().filter(is_delay).collect();
    let Some(first) = delays.first() else { return String::new() };
    let (mut lines, mut is_unsent) = (Vec::new(), false);
    for (style, (name, cells)) in groups(series, along).into_iter().enumerate() {
        for (dash, delay) in delays.iter().enumerate() {
            let spot = |(level, cell): &(u64, &Factors)| {
                let achieved = series.measured(cell).filter_map(|record| achieved(series, record));
                let achieved = Summary::of(&achieved.collect::<Vec<Sample>>())?.median;
                let mut counters = series.measured(cell).flat_map(|record| &record.counters);
                let unsent =
                    counters.any(|(name, count)| name.ends_with("_requests_unsent") && *count > 0);
                Some(Spot {
                    x: achieved,
                    place: format!("{} of {level} offered", three_digits(achieved)),
                    figure: series.found(cell, &delay.name)?.summary,
                    mark: if unsent { "open" } else { "" },
                })
            };
            let spots: Vec<Spot> = cells.iter().filter_map(spot).collect();
            is_unsent |= spots.iter().any(|spot| spot.mark == "open");
            let style = style % CURVES_MAX + dash * CURVES_MAX;
            lines.push(Line { name: format!("{name}: {}", delay.label), style, spots });
        }
    }
    let open = if is_unsent { "Open marks: requests that were due were never sent." } else { "" };
    let shown = Shown { label: "delay".into(), ..series.metric(&first.name) };
    curve::draw("achieved rate, 1/s", &three_digits, &shown, &lines) + &note(open)
}

/// What was done a second, of the kind of work that a request is.
fn achieved(series: &Series<'_>, record: &Record) -> Option<Sample> {
    let workload = series.case.as_ref()?.workload;
    let has = |kind: &&str| record.parties.iter().any(|party| party.report.work(kind) > 0);
    let kind = ["transactions", workload.unit].into_iter().find(has)?;
    let rate =
        MetricDef { kind: Some(kind.to_owned()), ..MetricDef::of(Quantity::Work, Per::Second) };
    let value = compute(&rate, &Scope::new(workload, &record.parties))?;
    Some(Sample { trial: record.trial, value, line: None })
}
