//! Where processor time goes: for each unit of work, by role and by what it is spent on.

use super::delay::measured;
use super::markup::{element, escaped};
use super::panel::{Panel, name, panels};
use super::scale::Scale;
use super::strip::{ROWS_MAX, Row, Strip, percent, tick};
use crate::definition::{MetricDef, Per, Quantity, Scope, compute};
use crate::factor::Factors;
use crate::report::pool;
use crate::report::series::Series;
use crate::role::PACING;
use crate::unit::{for_one, of_time, three_digits};
use crate::workload::{Workload, split};

/// What processor time is spent on: also the classes that it is drawn with.
const PARTS: [&str; 6] = ["program", "kernel", "both", "polling", "pacing", "unexplained"];

/// Panels of a case: the first, the last, and some between them.
const PANELS_MAX: usize = 4;

/// The part of a cell's time below which a role has no bar.
const VISIBLE_MIN: f64 = 0.005;

/// Nanoseconds of each of [`PARTS`] that a role takes for a unit of work.
struct Role {
    name: String,
    parts: [f64; PARTS.len()],
}

/// The processor time of each role in each cell of a series, all trials of a cell together: what the kernel samples is known
/// the better, the longer it was sampled.
pub(super) fn bars(series: &Series<'_>) -> String {
    let Some(case) = &series.case else { return String::new() };
    let (panels, _) = panels(series);
    let step = panels.len().saturating_sub(1).div_ceil(PANELS_MAX - 1).max(1);
    panels.iter().step_by(step).map(|panel| strip(series, case.workload, panel)).collect()
}

/// The colours of the parts.
pub(super) fn legend() -> String {
    let item = |class: &str| {
        let words = if class == "both" { "program and kernel, too short to tell" } else { class };
        format!(
            "<li><svg width=\"14\" height=\"14\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"14\" height=\"14\"/></svg> {words}</li>\n"
        )
    };
    element("ul", "legend", &PARTS.map(item).concat())
}

fn strip(series: &Series<'_>, workload: &'static Workload, panel: &Panel<'_>) -> String {
    let mut rest = panel.cells.iter();
    let cells: Vec<(&Factors, Vec<Role>, usize)> = rest
        .by_ref()
        .map(|cell| of_cell(series, workload, cell))
        .filter(|(_, roles, _)| !roles.is_empty())
        .take(ROWS_MAX)
        .collect();
    let sum = |role: &Role| role.parts.iter().sum::<f64>();
    let widest = cells.iter().flat_map(|(_, roles, _)| roles).map(sum).fold(0.0, f64::max);
    // The names of the roles stand behind the bars.
    let scale = Scale::linear([1.12 * widest]);
    let row = |(cell, roles, trials): &(&Factors, Vec<Role>, usize)| {
        let all: f64 = roles.iter().map(sum).sum();
        let of_part = |part: usize| roles.iter().map(|role| role.parts[part]).sum::<f64>();
        let shown = |ns: f64| {
            let unit = for_one(of_time(), ns);
            if ns > 0.0 {
                format!("{} {}", three_digits(ns / unit.scale), unit.short)
            } else {
                "-".to_owned()
            }
        };
        let visible: Vec<&Role> =
            roles.iter().filter(|role| sum(role) >= VISIBLE_MIN * all).collect();
        let bars = visible.iter().enumerate();
        let words = roles.iter().map(|role| format!("{} {}", role.name, shown(sum(role))));
        let figures = std::iter::once(all).chain((0..PARTS.len()).map(of_part)).map(shown);
        Row {
            name: name(series, cell, &panel.called_by),
            height: 12 * visible.len().max(2) as u32 + 8,
            picture_words: words.collect::<Vec<_>>().join(", "),
            picture: bars
                .filter_map(|(at, role)| Some(bar(role, scale?, 12 * at as u32 + 5)))
                .collect(),
            figures: figures.chain([trials.to_string()]).collect(),
            ..Row::default()
        }
    };
    let of = [series.name, &*panel.name].into_iter().filter(|part| !part.is_empty());
    let unit = workload.unit.strip_suffix('s').unwrap_or(workload.unit);
    Strip {
        caption: format!("{}: processor time for each {unit}", of.collect::<Vec<_>>().join(", ")),
        head: &[
            "",
            "all roles",
            "program",
            "kernel",
            "program, kernel",
            "polling",
            "pacing",
            "unexplained",
            "trials",
        ],
        scale,
        tick: &|ns| tick(of_time(), ns),
        line: None,
        rows: cells.iter().map(row).collect(),
        left_out: rest.len(),
        notes: Vec::new(),
    }
    .markup()
}

/// The bar of a role, its parts one behind the other, and its name.
fn bar(role: &Role, scale: Scale, y: u32) -> String {
    let (mut from, mut drawn) = (0.0, String::new());
    for (ns, class) in role.parts.iter().zip(PARTS).filter(|(ns, _)| **ns > 0.0) {
        let (x, to) = (scale.clamped(from), scale.clamped(from + ns));
        let (x, width) = (percent(x), percent(to - x));
        drawn += &format!(
            "<rect class=\"{class}\" x=\"{x}\" width=\"{width}\" y=\"{y}\" height=\"9\"/>"
        );
        from += ns;
    }
    let (at, name) = (percent(scale.clamped(from)), escaped(&role.name));
    format!("{drawn}<text class=\"role\" x=\"{at}\" y=\"{}\" dx=\"5\">{name}</text>", y + 8)
}

/// The roles of a cell, and how many trials they are of.
fn of_cell<'a>(
    series: &Series<'_>,
    workload: &'static Workload,
    cell: &'a Factors,
) -> (&'a Factors, Vec<Role>, usize) {
    let parties = pool::sum(measured(series, cell).map(|record| record.parties.as_slice()));
    let mut names: Vec<&str> = Vec::new();
    for thread in parties.iter().flat_map(|party| &party.report.cpu) {
        if !names.contains(&&*thread.role) {
            names.push(&thread.role);
        }
    }
    let scope = Scope::together(workload, &parties);
    let value = |quantity, part: Option<&str>, role: Option<&str>| {
        let (part, roles) =
            (part.map(str::to_owned), role.map(str::to_owned).into_iter().collect());
        compute(
            &MetricDef { part, roles, ..MetricDef::of(quantity, Per::Work(workload.unit)) },
            &scope,
        )
    };
    let role = |name: &&str| {
        let cpu = |part| value(Quantity::Cpu, part, Some(name));
        let all = cpu(None)?;
        let polling = cpu(Some("spinning")).unwrap_or(0.0).min(all);
        let rest = all - polling;
        let parts = match cpu(Some("user")).zip(cpu(Some("system"))) {
            _ if split(name).1 == PACING => [0.0, 0.0, 0.0, 0.0, all, 0.0],
            Some((user, system)) if user + system > 0.0 => {
                // The kernel samples which of both it is: a share. Polls are the program's.
                let kernel = (all * system / (user + system)).min(rest);
                [rest - kernel, kernel, 0.0, polling, 0.0, 0.0]
            }
            _ => [0.0, 0.0, rest, polling, 0.0, 0.0],
        };
        Some(Role { name: (*name).to_owned(), parts })
    };
    let mut roles: Vec<Role> = names.iter().filter_map(role).collect();
    let left = value(Quantity::Unexplained, None, None).filter(|ns| *ns > 0.0);
    roles.extend(
        left.map(|ns| Role { name: "nobody".into(), parts: [0.0, 0.0, 0.0, 0.0, 0.0, ns] }),
    );
    (cell, roles, measured(series, cell).count())
}
