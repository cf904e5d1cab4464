//! Tables of figures: absolute, as ratios to a base, as differences from it.

use super::series::{ANY, Found, Levels, Series, levels};
use super::{Block, Grid};
use crate::case::{Show, Table};
use crate::factor::{BINARY, Factors, Level, matches};
use crate::metric::{heading, show, three_digits, unit};
use crate::published::Published;
use crate::statistics::{Summary, ratio};
use crate::workload::Workload;

/// What stands where there is no figure.
pub(super) const NOTHING: &str = "-";

/// The tables of a series, as its case lays them out.
pub(super) fn tables(series: &Series<'_>) -> Vec<Block> {
    let workload = series.case.as_ref().map(|case| case.workload);
    let published = series.case.as_ref().and_then(|case| case.published.as_ref());
    let laid_out = series.case.as_ref().map_or(&[][..], |case| &case.tables);
    let usual = [usual_layout(series)];
    let layouts = if laid_out.is_empty() { &usual } else { laid_out };
    let blocks = |layout: &Table| {
        let published = published.filter(|_| layout.published);
        let Table { each, down, across, only, .. } = layout;
        let only = series.meant(only, &[&each[..], down, across].concat());
        Layout { series, layout, only, workload, published }.blocks()
    };
    layouts.iter().flat_map(blocks).collect()
}

/// One row for each cell, one column for each metric.
fn usual_layout(series: &Series<'_>) -> Table {
    let down = series.order().into_iter().map(str::to_owned);
    Table {
        metrics: series.metrics().into_iter().map(str::to_owned).collect(),
        each: Vec::new(),
        down: down.collect(),
        across: Vec::new(),
        only: Factors::new(),
        base: None,
        show: vec![Show::Absolute],
        published: false,
    }
}

struct Layout<'a> {
    series: &'a Series<'a>,
    layout: &'a Table,
    /// Which cells.
    only: Factors,
    workload: Option<&'static Workload>,
    /// What stands beside the figures.
    published: Option<&'a Published>,
}

impl Layout<'_> {
    fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        for each in self.tuples(&self.layout.each, &[]) {
            for show in &self.layout.show {
                blocks.extend(self.grid(&each, *show).with_figures().map(Block::Table));
            }
        }
        let reduced = self.reduced();
        if !reduced.is_empty() {
            let which = reduced.join(" and ");
            blocks.push(Block::Text(format!("Of several levels of {which}, the best counts.")));
        }
        blocks
    }

    /// The cells that are shown at all.
    fn cells(&self) -> Vec<&Factors> {
        let mut cells = self.series.cells();
        cells.retain(|cell| matches(cell, &self.only));
        cells
    }

    /// All combinations of levels of `factors`, of the cells that have the levels `each` of the factors
    /// that have a table each.
    fn tuples(&self, factors: &[String], each: &[Option<Level>]) -> Vec<Levels> {
        let mut tuples: Vec<Levels> = Vec::new();
        for cell in self.cells() {
            let tuple = levels(cell, factors);
            let is_here = each.is_empty() || levels(cell, &self.layout.each) == each;
            if is_here && !tuples.contains(&tuple) {
                tuples.push(tuple);
            }
        }
        // A row for what does not depend on the factor stands behind those that do.
        tuples.sort_by_key(|tuple| tuple.iter().any(Option::is_none));
        tuples
    }

    fn grid(&self, each: &Levels, shown: Show) -> Grid {
        let Table { metrics, down, across, .. } = self.layout;
        let (rows, columns) = (self.tuples(down, each), self.tuples(across, each));
        let mut head: Vec<String> = down.clone();
        for column in &columns {
            let level = self.describe(across, column);
            for metric in metrics {
                head.push(match (level.is_empty(), metrics.len()) {
                    (true, _) => self.heading(metric, shown),
                    (false, 1) => level.clone(),
                    (false, _) => format!("{level}: {}", self.heading(metric, shown)),
                });
                if let Some(published) = self.beside(metric) {
                    head.extend([published.name.clone(), "times".to_owned()]);
                }
            }
        }
        let row = |row: &Levels| {
            let mut cells: Vec<String> = down
                .iter()
                .zip(row)
                .map(|(factor, level)| self.series.level(factor, level.as_ref()))
                .collect();
            for column in &columns {
                let is_meant = |cell: &Factors| {
                    levels(cell, &self.layout.each) == *each
                        && levels(cell, down) == *row
                        && levels(cell, across) == *column
                };
                for metric in metrics {
                    cells.push(self.cell(metric, &is_meant, shown));
                    if let Some(published) = self.beside(metric) {
                        cells.extend(self.compared(metric, &is_meant, published));
                    }
                }
            }
            cells
        };
        let (title, words) = (self.title(each, shown), down.len());
        Grid { title, rows: rows.iter().map(row).collect(), head, words }
    }

    /// What was published of a metric, if something was and is to be shown.
    fn beside(&self, metric: &str) -> Option<&Published> {
        self.published.filter(|published| published.knows(metric))
    }

    /// What was published, and how many times that it is here.
    fn compared(
        &self,
        metric: &str,
        is_meant: &dyn Fn(&Factors) -> bool,
        published: &Published,
    ) -> [String; 2] {
        let is_shown = |cell: &Factors| matches(cell, &self.only) && is_meant(cell);
        let found = self.series.best(metric, is_shown);
        let figure = found.as_ref().and_then(|found| published.figure(metric, found.cell));
        match (found, figure) {
            (Some(found), Some(figure)) => {
                [show(metric, figure), three_digits(found.summary.median / figure)]
            }
            _ => [NOTHING.to_owned(), NOTHING.to_owned()],
        }
    }

    fn title(&self, each: &Levels, shown: Show) -> String {
        let Table { metrics, across, base, .. } = self.layout;
        let mut title = self.describe(&self.layout.each, each);
        if let ([metric], false) = (metrics.as_slice(), across.is_empty()) {
            let colon = if title.is_empty() { "" } else { ": " };
            title = format!("{title}{colon}{}", self.heading(metric, shown));
        }
        let base =
            base.iter().flatten().map(|(factor, level)| self.series.level(factor, Some(level)));
        let base = base.collect::<Vec<_>>().join(", ");
        match shown {
            Show::Absolute => title,
            Show::Ratio => format!("{title}: how many times {base}"),
            Show::Delta => format!("{title}: difference from {base}"),
        }
    }

    fn heading(&self, metric: &str, shown: Show) -> String {
        match shown {
            Show::Absolute | Show::Delta => heading(metric),
            Show::Ratio => crate::metric::find(metric).map_or(metric, |metric| metric.label).into(),
        }
    }

    /// What stands in one place of a table.
    fn cell(&self, metric: &str, is_meant: &dyn Fn(&Factors) -> bool, shown: Show) -> String {
        let is_shown = |cell: &Factors| matches(cell, &self.only) && is_meant(cell);
        let Some(found) = self.series.best(metric, is_shown) else { return NOTHING.into() };
        if shown == Show::Absolute {
            return self.absolute(metric, &found.summary);
        }
        let Some(base) = self.base(metric, &found) else { return NOTHING.into() };
        let times = Summary::of(&ratio(&found.samples, &base.samples));
        let Some(times) = times else { return NOTHING.into() };
        match shown {
            Show::Absolute => unreachable!("returned above"),
            Show::Ratio => with_range(times, 1.0),
            Show::Delta => delta(metric, &found, &base, times),
        }
    }

    /// With its range where there is room for it, with half of it in percent where there is not.
    fn absolute(&self, metric: &str, summary: &Summary) -> String {
        if self.layout.metrics.len() == 1 {
            return with_range(*summary, unit(metric).scale);
        }
        let half = (summary.spread() * 50.0).round();
        let half = match summary.trials {
            ..2 => String::new(),
            _ if half > 100.0 => " ±>100%".to_owned(),
            _ => format!(" ±{half:.0}%"),
        };
        show(metric, summary.median) + &half
    }

    /// What a cell is compared with: the same levels in the table, but for those of the base, and but for
    /// those that follow from it. A peer has its own way to wait.
    fn base(&self, metric: &str, found: &Found<'_>) -> Option<Found<'_>> {
        let Table { each, down, across, base, .. } = self.layout;
        let laid_out = each.iter().chain(down).chain(across);
        let level = |factor: &str| Some((factor.to_owned(), found.cell.get(factor)?.clone()));
        // The base is of the same binary unless it names another.
        let names = laid_out.map(String::as_str).chain([BINARY.name]);
        let mut wanted: Factors = names.filter_map(level).collect();
        wanted.extend(base.clone()?);
        if let Some(workload) = self.workload {
            (workload.fit)(&mut wanted);
        }
        self.series.best_of(metric, &self.series.meant(&wanted, &[]))
    }

    /// The factors that are not laid out, of which some place of the table shows only one level of several.
    fn reduced(&self) -> Vec<&str> {
        let Table { each, down, across, .. } = self.layout;
        let place = |cell: &Factors| [each, down, across].map(|factors| levels(cell, factors));
        let cells = self.cells();
        let is_reduced = |factor: &&str| {
            cells.iter().enumerate().any(|(index, one)| {
                cells[index + 1..].iter().any(|other| {
                    place(one) == place(other) && one.get(*factor) != other.get(*factor)
                })
            })
        };
        self.series.order().into_iter().filter(is_reduced).collect()
    }

    fn describe(&self, factors: &[String], tuple: &Levels) -> String {
        let named = factors.iter().zip(tuple).map(|(factor, level)| match level {
            None => format!("{ANY} {factor}"),
            level => self.series.level(factor, level.as_ref()),
        });
        named.collect::<Vec<_>>().join(", ")
    }
}

/// The middle of trials and their range, in units of `scale`.
pub(super) fn with_range(summary: Summary, scale: f64) -> String {
    let [middle, min, max] =
        [summary.median, summary.min, summary.max].map(|number| three_digits(number / scale));
    if summary.trials < 2 { middle } else { format!("{middle} ({min}..{max})") }
}

/// A difference and its part of the base, or that there is none that could be told from the noise.
fn delta(metric: &str, found: &Found<'_>, base: &Found<'_>, times: Summary) -> String {
    let percent = (times.median - 1.0) * 100.0;
    let difference = (found.summary.median - base.summary.median) / unit(metric).scale;
    let sign = if difference < 0.0 { "" } else { "+" };
    let figure = format!("{sign}{} ({percent:+.1} %)", three_digits(difference));
    if found.cell == base.cell {
        return "base".into();
    }
    if times.is_in_noise(1.0) { format!("{figure}, in the noise") } else { figure }
}
