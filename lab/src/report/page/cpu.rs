//! Where processor time goes: for each unit of work, by role and by what it is spent on.

use super::markup::{element, escaped};
use super::panel::{Panel, name, panels};
use super::scale::Scale;
use super::strip::{ROWS_MAX, Row, Strip, percent, tick};
use crate::definition::{MetricDef, Per, Quantity, Scope, compute};
use crate::factor::Factors;
use crate::report::series::Series;
use crate::report::{distinct, pool};
use crate::role::PACING;
use crate::unit::{self, TIME, three_digits};
use crate::workload::{Workload, split};

/// What processor time is spent on: the classes that it is drawn with. `both` is of the program or of the kernel, after too short a
/// time to tell.
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

impl Role {
    fn sum(&self) -> f64 {
        self.parts.iter().sum()
    }
}

fn strip(series: &Series<'_>, workload: &'static Workload, panel: &Panel<'_>) -> String {
    let mut rest = panel.cells.iter().copied();
    let cells = rest.by_ref().map(|cell| (cell, roles(series, workload, cell)));
    let cells: Vec<(&Factors, Vec<Role>)> =
        cells.filter(|(_, roles)| !roles.is_empty()).take(ROWS_MAX).collect();
    let widest = cells.iter().flat_map(|(_, roles)| roles).map(Role::sum).fold(0.0, f64::max);
    // The names of the roles stand behind the bars.
    let scale = Scale::linear([1.12 * widest]);
    let shown = |ns: f64| {
        let shown = unit::show(TIME, None, ns, |scale| three_digits(ns / scale));
        if ns > 0.0 { shown } else { "-".to_owned() }
    };
    let row = |(cell, roles): &(&Factors, Vec<Role>)| {
        let all: f64 = roles.iter().map(Role::sum).sum();
        let of_part = |part: usize| roles.iter().map(|role| role.parts[part]).sum::<f64>();
        let is_visible = |role: &&Role| role.sum() >= VISIBLE_MIN * all;
        let bars = (0..).map(|at| 12 * at + 5).zip(roles.iter().filter(is_visible));
        let bars: Vec<String> = bars.map(|(y, role)| bar(role, scale, y)).collect();
        let words = roles.iter().map(|role| format!("{} {}", role.name, shown(role.sum())));
        let figures = std::iter::once(all).chain((0..PARTS.len()).map(of_part)).map(shown);
        let trials = series.measured(cell).count().to_string();
        Row {
            name: name(series, cell, &panel.called_by),
            height: 12 * bars.len().max(2) as u32 + 8,
            picture_words: words.collect::<Vec<_>>().join(", "),
            picture: bars.concat(),
            figures: figures.chain([trials]).collect(),
            ..Row::default()
        }
    };
    let unit = workload.unit.strip_suffix('s').unwrap_or(workload.unit);
    let heads = PARTS.map(|part| if part == "both" { "program, kernel" } else { part });
    Strip {
        caption: format!("{}: processor time for each {unit}", panel.caption(series.name)),
        head: &[&["", "all roles"], &heads[..], &["trials"]].concat(),
        scale,
        tick: &|ns| tick(TIME, ns),
        line: None,
        rows: cells.iter().map(row).collect(),
        left_out: rest.len(),
        notes: String::new(),
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

/// The roles of a cell.
fn roles(series: &Series<'_>, workload: &'static Workload, cell: &Factors) -> Vec<Role> {
    let parties = pool::sum(series.measured(cell).map(|record| record.parties.as_slice()));
    let scope = Scope::together(workload, &parties);
    let of_work = |quantity| MetricDef::of(quantity, Per::Work(workload.unit));
    let role = |name: &str| {
        let cpu = |part: Option<&str>| {
            let (part, roles) = (part.map(str::to_owned), vec![name.to_owned()]);
            compute(&MetricDef { part, roles, ..of_work(Quantity::Cpu) }, &scope)
        };
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
        Some(Role { name: name.to_owned(), parts })
    };
    let threads = parties.iter().flat_map(|party| &party.report.cpu);
    let names = distinct(threads.map(|thread| &*thread.role)).into_iter();
    let left = compute(&of_work(Quantity::Unexplained), &scope).filter(|ns| *ns > 0.0);
    let nobody = |ns| Role { name: "nobody".to_owned(), parts: [0.0, 0.0, 0.0, 0.0, 0.0, ns] };
    names.filter_map(role).chain(left.map(nobody)).collect()
}
