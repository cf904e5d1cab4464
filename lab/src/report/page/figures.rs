//! Figures of cells, trial by trial: what the first table of a case shows first.

use super::blocks;
use super::panel::{Panel, is_claimed, name, panels};
use super::scale::Scale;
use super::strip::{ROWS_MAX, Row, Strip, figures, some_only, tick, trials, trials_in_words};
use crate::factor::Factors;
use crate::metric::Better;
use crate::report::series::{Found, Series};
use crate::transport::is_reference;
use crate::unit;

/// A strip for each panel.
pub(super) fn strips(series: &Series<'_>, metric: &str) -> String {
    let (panels, left_out) = panels(series);
    let strips: String = panels.iter().map(|panel| strip(series, metric, panel)).collect();
    strips + &blocks::counted(left_out, "more tables of this kind are left out.")
}

/// A cell, what its trials say, and how many of them failed for good.
type Cell<'a> = (&'a Factors, Option<Found<'a>>, usize);

fn strip<'a>(series: &Series<'a>, metric: &str, panel: &Panel<'a>) -> String {
    let shown = series.metric(metric);
    let cell = |levels: &&'a Factors| {
        let (found, lost) = (series.found(levels, metric), series.lost(levels));
        (found.is_some() || lost > 0).then_some((*levels, found, lost))
    };
    let mut rest = panel.cells.iter();
    let cells: Vec<Cell<'_>> = rest.by_ref().filter_map(cell).take(ROWS_MAX).collect();
    let median = |(_, found, _): &Cell<'_>| Some(found.as_ref()?.summary.median);
    let one = unit::for_all(&shown.units, cells.iter().filter_map(median));
    let samples = || cells.iter().filter_map(|(_, found, _)| Some(&found.as_ref()?.samples));
    let values = || samples().flatten().map(|sample| sample.value);
    let scale = Scale::log(values().chain(cells.iter().filter_map(median)));
    let references = cells.iter().filter(|(levels, ..)| is_reference(levels)).filter_map(median);
    let line = match shown.better {
        Better::More => references.reduce(f64::max),
        Better::Less => references.reduce(f64::min),
    };
    let row = |(levels, found, lost): &Cell<'_>| {
        let (samples, summary) = found.as_ref().map(|it| (&*it.samples, &it.summary)).unzip();
        let samples = samples.unwrap_or_default();
        Row {
            name: name(series, levels, &panel.called_by),
            class: match summary {
                None => "bad",
                Some(_) if is_claimed(series, levels) => "claimed",
                Some(_) => "",
            },
            picture_words: trials_in_words(samples, |value| shown.show(value)),
            picture: trials(scale, samples, summary),
            figures: figures(summary, one, &shown, *lost),
            ..Row::default()
        }
    };
    let heading = shown.heading(one);
    let reference = line.map_or("", |_| "Green line: what the machine allows.");
    let unplaced = values().filter(|value| scale.at(*value).is_none()).count();
    let longest = samples().map(Vec::len).max().unwrap_or(0);
    Strip {
        caption: panel.caption(&heading),
        head: &["", &heading, "95 % interval", "trials"],
        scale,
        tick: &|number| tick(&shown.units, number),
        line,
        rows: cells.iter().map(row).collect(),
        left_out: rest.len(),
        notes: blocks::note(reference)
            + &blocks::counted(
                unplaced,
                "trials have no place on a logarithmic axis: zero or less.",
            )
            + &some_only(longest),
    }
    .markup()
}
