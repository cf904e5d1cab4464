//! Studies: figures divided by those that were published, and curves with their knees.

use super::blocks::note;
use super::curve::{self, Line, Spot, at_tick, spot};
use super::panel;
use super::scale::Scale;
use super::strip::{ROWS_MAX, Row, Strip, mark, some, some_only, times};
use crate::case::{Knee, METRIC};
use crate::factor::matches;
use crate::report::series::{Levels, Series, levels};
use crate::report::{grouped, knee};
use crate::statistics::{Summary, median};
use crate::unit::three_digits;

/// The curves whose knees the case asks for.
pub(super) fn knees(series: &Series<'_>) -> String {
    series.laid_out(|case| &case.knees).iter().map(|knee| curves(series, knee)).collect()
}

fn curves(series: &Series<'_>, knee: &Knee) -> String {
    let Knee { metric, along, each, part, .. } = knee;
    let shown = series.metric(metric);
    let line = |(style, (which, mut points)): (usize, (Levels, Vec<(u64, Summary)>))| {
        points.sort_by_key(|(level, _)| *level);
        let medians = points.iter().map(|(level, figure)| (*level, figure.median)).collect();
        let bend = knee::bend(*part, shown.better, medians).map(|bend| bend.level);
        let words = series.words(each, &which);
        let spot = |(level, figure): &(u64, Summary)| {
            let mark = if Some(*level) == bend { "knee" } else { "" };
            Spot { mark, ..spot(series, along, *level, *figure) }
        };
        let name = words.join(" · ");
        Line { name, style, spots: points.iter().map(spot).collect() }
    };
    let lines: Vec<Line> = knee::curves(series, knee).into_iter().enumerate().map(line).collect();
    curve::draw(along, &|level| at_tick(series, along, level), &shown, &lines)
        + &note("A mark with a dark edge is the knee.")
}

/// How many times the published figures those here are: a row for each metric of each table, a mark for each cell.
pub(super) fn ratios(series: &Series<'_>) -> String {
    let Some(case) = &series.case else { return String::new() };
    let mut found: Vec<(String, f64)> = Vec::new();
    for table in &case.tables {
        let only =
            series.meant(&table.only, &[&table.each[..], &table.down, &table.across].concat());
        let each: Vec<String> =
            table.each.iter().filter(|factor| *factor != METRIC).cloned().collect();
        for published in case.published.iter().filter(|one| table.published.has(&one.name)) {
            for metric in table.metrics.iter().filter(|metric| published.knows(metric)) {
                let label = format!("{} ÷ {}", series.metric(metric).label, published.name);
                for cell in series.cells().into_iter().filter(|cell| matches(cell, &only)) {
                    let Some(there) = published.figure(metric, cell) else { continue };
                    let Some(here) = series.found(cell, metric) else { continue };
                    let words = panel::words(series, &each, &levels(cell, &each));
                    let name = [vec![label.clone()], words].concat().join(", ");
                    found.push((name, here.summary.median / there));
                }
            }
        }
    }
    let mut groups = grouped(found);
    let left_out = groups.len().saturating_sub(ROWS_MAX);
    groups.truncate(ROWS_MAX);
    groups.iter_mut().for_each(|(_, ratios)| ratios.sort_by(f64::total_cmp));
    let scale = Scale::log(groups.iter().flat_map(|(_, ratios)| ratios).copied().chain([1.0]));
    let row = |(name, ratios): &(String, Vec<f64>)| {
        let ends = [ratios[0], ratios[ratios.len() - 1]].map(three_digits);
        let middle = median(ratios).map_or_else(String::new, three_digits);
        Row {
            name: name.clone(),
            picture_words: format!("{} to {} times what was published", ends[0], ends[1]),
            picture: some(ratios).map(|ratio| mark("there", scale, "m0", *ratio)).collect(),
            figures: vec![middle, ends.join(" to "), ratios.len().to_string()],
            ..Row::default()
        }
    };
    let longest = groups.iter().map(|(_, ratios)| ratios.len()).max().unwrap_or(0);
    Strip {
        caption: "Here divided by what was published; a mark is a cell of the tables".into(),
        head: &["figure", "median of the cells", "from and to", "cells"],
        scale,
        tick: &times,
        line: Some(1.0),
        rows: groups.iter().map(row).collect(),
        left_out,
        notes: some_only(longest),
    }
    .markup()
}
