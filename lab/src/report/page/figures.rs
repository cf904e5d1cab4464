//! Figures of cells, trial by trial: what the first table of a case shows first.

use super::blocks;
use super::panel::{Panel, is_claimed, name, panels};
use super::scale::Scale;
use super::strip::{
    ROWS_MAX, Row, Strip, figure_heads, figures, some_only, tick, trials, trials_in_words,
};
use crate::factor::Factors;
use crate::metric::Better;
use crate::report::series::{Found, Series};
use crate::statistics::Sample;
use crate::transport::is_reference;
use crate::unit;

/// A strip for each panel.
pub(super) fn strips(series: &Series<'_>, metric: &str) -> String {
    let (panels, left_out) = panels(series);
    let strips: String = panels.iter().map(|panel| strip(series, metric, panel)).collect();
    let note = (left_out > 0).then(|| format!("{left_out} more tables of this kind are left out."));
    strips + &blocks::note(&note.unwrap_or_default())
}

/// A cell, what its trials say, and how many of them failed for good.
struct Cell<'a> {
    levels: &'a Factors,
    found: Option<Found<'a>>,
    lost: usize,
}

impl Cell<'_> {
    fn samples(&self) -> &[Sample] {
        self.found.as_ref().map_or(&[], |found| &found.samples)
    }
}

fn strip<'a>(series: &Series<'a>, metric: &str, panel: &Panel<'a>) -> String {
    let shown = series.metric(metric);
    let cell = |levels: &&'a Factors| {
        let cell = Cell { levels, found: series.found(levels, metric), lost: series.lost(levels) };
        (cell.found.is_some() || cell.lost > 0).then_some(cell)
    };
    let mut rest = panel.cells.iter();
    let cells: Vec<Cell<'_>> = rest.by_ref().filter_map(cell).take(ROWS_MAX).collect();
    let median = |cell: &Cell<'_>| Some(cell.found.as_ref()?.summary.median);
    let one = unit::for_all(&shown.units, &cells.iter().filter_map(median).collect::<Vec<f64>>());
    let values = || cells.iter().flat_map(|cell| cell.samples()).map(|sample| sample.value);
    let scale = Scale::log(values().chain(cells.iter().filter_map(median)));
    let references = cells.iter().filter(|cell| is_reference(cell.levels)).filter_map(median);
    let line = match shown.better {
        Better::More => references.reduce(f64::max),
        Better::Less => references.reduce(f64::min),
    };
    let summary = |cell: &Cell<'_>| cell.found.as_ref().map(|found| found.summary);
    let row = |cell: &Cell<'_>| Row {
        name: name(series, cell.levels, &panel.called_by),
        class: match () {
            () if cell.found.is_none() => "bad",
            () if is_claimed(series, cell.levels) => "claimed",
            () => "",
        },
        picture_words: trials_in_words(cell.samples(), |value| shown.show(value)),
        picture: trials(scale, cell.samples(), summary(cell).as_ref()),
        figures: figures(summary(cell).as_ref(), one, &shown.units, cell.lost),
        ..Row::default()
    };
    let heading = shown.heading(one);
    let caption: Vec<&str> =
        [&*heading, &*panel.name].into_iter().filter(|part| !part.is_empty()).collect();
    let unplaced =
        values().filter(|value| scale.is_none_or(|scale| scale.at(*value).is_none())).count();
    let longest = cells.iter().map(|cell| cell.samples().len()).max().unwrap_or(0);
    let reference = line.map(|_| "Green line: what the machine allows.".to_owned());
    let unplaced = (unplaced > 0)
        .then(|| format!("{unplaced} trials have no place on a logarithmic axis: zero or less."));
    Strip {
        caption: caption.join(", "),
        head: &[&[""], &figure_heads(&heading)[..]].concat(),
        scale,
        tick: &|number| tick(&shown.units, number),
        line,
        rows: cells.iter().map(row).collect(),
        left_out: rest.len(),
        notes: reference.into_iter().chain(unplaced).chain(some_only(longest)).collect(),
    }
    .markup()
}
