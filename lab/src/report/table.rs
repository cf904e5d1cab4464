//! Tables of figures: absolute, as ratios to a base, as differences from it.

mod figure;

pub(super) use figure::{NOTHING, measured, with_range};

use self::figure::{Figure, NOISE_NOTE, POOLED_NOTE, Units};
use super::series::{ANY, Found, Levels, Series, levels};
use super::{Block, Grid};
use crate::case::{Comparison, METRIC, Show, Table};
use crate::factor::{BINARY, Factors, Level, matches};
use crate::published::Published;

/// The tables of a series, as its case lays them out.
pub(super) fn tables(series: &Series<'_>) -> Vec<Block> {
    let case = series.case.as_ref();
    let laid_out = case.map_or(&[][..], |case| &case.tables);
    let usual = [usual_layout(series)];
    let layouts = if laid_out.is_empty() { &usual } else { laid_out };
    let blocks = |layout: &Table| {
        let Table { each, down, across, only, .. } = layout;
        let published = case.map_or(&[][..], |case| &case.published).iter();
        Layout {
            series,
            layout,
            only: series.meant(only, &[&each[..], down, across].concat()),
            published: published.filter(|table| layout.published.has(&table.name)).collect(),
        }
        .blocks()
    };
    layouts.iter().flat_map(blocks).collect()
}

/// The most columns of figures that a table has which no case lays out.
const USUAL_COLUMNS_MAX: usize = 6;

/// One row for each cell and one column for each metric; or the other way round where there are many metrics.
/// Factors of which all cells have one level stand above the table.
fn usual_layout(series: &Series<'_>) -> Table {
    let metrics = series.metrics();
    let cells = series.cells();
    let differs = |factor: &&str| {
        let level = |cell: &Factors| cell.get(*factor).cloned();
        cells.iter().any(|cell| level(cell) != level(cells[0]))
    };
    let (differing, common): (Vec<&str>, Vec<&str>) = series.order().into_iter().partition(differs);
    let factors = differing.into_iter().map(str::to_owned).collect();
    let common = common.into_iter().filter_map(|factor| {
        let level = cells[0].get(factor)?;
        Some(format!("{factor} {}", series.level(factor, Some(level), |_| true)))
    });
    let title = Some(common.collect::<Vec<_>>().join(", ")).filter(|title| !title.is_empty());
    if metrics.len() <= USUAL_COLUMNS_MAX || cells.len() > USUAL_COLUMNS_MAX {
        return Table { title, ..Table::of(metrics, factors) };
    }
    Table { title, across: factors, ..Table::of(metrics, vec![METRIC.to_owned()]) }
}

/// A metric of a cell.
type Point<'a> = (&'a Factors, &'a str);

struct Layout<'a> {
    series: &'a Series<'a>,
    layout: &'a Table,
    /// Which cells.
    only: Factors,
    /// What stands beside the figures.
    published: Vec<&'a Published>,
}

/// A row of a table: its levels, what it shows, and its figures.
struct Row {
    words: Vec<String>,
    figures: Vec<Figure>,
}

impl Row {
    /// Whether it is the base's own, which is not compared with itself.
    fn is_of_base(&self) -> bool {
        let is = |figure: &Figure| matches!(figure, Figure::Base | Figure::Nothing);
        self.figures.contains(&Figure::Base) && self.figures.iter().all(is)
    }
}

/// A column of a table.
struct Column {
    levels: Levels,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Own,
    /// What one of the published tables has, by its number.
    Published(usize),
    /// How many times that the own figure is.
    Quotient(usize),
}

impl Layout<'_> {
    fn blocks(&self) -> Vec<Block> {
        let show = &self.layout.show;
        let is_down = self.layout.down.iter().any(|factor| factor == METRIC);
        let has = |wanted| show.contains(&wanted);
        let beneath = [Show::Delta, Show::Percent].map(has).contains(&true) && has(Show::Absolute);
        // With metrics in rows, ratios and differences are rows of the same table. Elsewhere differences stand
        // under the row that they are of, and ratios in a table of their own.
        let groups: Vec<Vec<Show>> = match (is_down, beneath) {
            (true, _) => vec![show.clone()],
            (false, true) => {
                let (ratios, others) = show.iter().partition(|show| **show == Show::Ratio);
                [others, ratios].into_iter().filter(|group: &Vec<Show>| !group.is_empty()).collect()
            }
            (false, false) => show.iter().map(|show| vec![*show]).collect(),
        };
        let mut blocks = Vec::new();
        for each in self.tuples(&self.layout.each, &[]) {
            for group in &groups {
                blocks.extend(self.grid(&each, group, is_down));
            }
        }
        let reduced = self.reduced();
        let last = blocks.iter_mut().rev().find_map(|block| match block {
            Block::Table(grid) => Some(grid),
            _ => None,
        });
        if let (Some(last), false) = (last, reduced.is_empty()) {
            let which = reduced.join(" and ");
            last.notes.push(format!("Of several levels of {which}, the best is shown."));
        }
        blocks
    }

    /// Each metric of the cells that are shown.
    fn points(&self) -> impl Iterator<Item = Point<'_>> {
        let cells = self.series.cells().into_iter().filter(|cell| matches(cell, &self.only));
        cells.flat_map(|cell| self.layout.metrics.iter().map(move |metric| (cell, &**metric)))
    }

    /// All combinations of levels of `factors`, of the points that have the levels `each` of the factors that
    /// have a table each. Sorted by the first factor, then by the second, each in the order of measurement.
    fn tuples(&self, factors: &[String], each: &[Option<Level>]) -> Vec<Levels> {
        let mut tuples: Vec<Levels> = Vec::new();
        for point in self.points() {
            let tuple = point_levels(point, factors);
            let is_here = each.is_empty() || point_levels(point, &self.layout.each) == each;
            if is_here && !tuples.contains(&tuple) {
                tuples.push(tuple);
            }
        }
        let place = |index: usize, level: &Option<Level>| {
            // A row for what does not depend on the factor stands behind those that do.
            let first = tuples.iter().position(|tuple| tuple[index] == *level);
            (level.is_none(), first)
        };
        let key = |tuple: &Levels| -> Vec<_> {
            tuple.iter().enumerate().map(|(index, level)| place(index, level)).collect()
        };
        let mut sorted = tuples.clone();
        sorted.sort_by_cached_key(key);
        sorted
    }

    /// A table; or a sentence, where every figure of the table is zero.
    fn grid(&self, each: &Levels, shows: &[Show], is_down: bool) -> Option<Block> {
        let Table { metrics, down, across, units, .. } = self.layout;
        let mut columns = Vec::new();
        for levels in self.tuples(across, each) {
            columns.push(Column { levels: levels.clone(), kind: Kind::Own });
            if shows.contains(&Show::Absolute) {
                for kind in self.beside(&levels) {
                    columns.push(Column { levels: levels.clone(), kind });
                }
            }
        }
        let mut rows = Vec::new();
        let mut zero_rows = Vec::new();
        let tuples = self.tuples(down, each);
        if is_down {
            let row = |levels: &Levels, show| self.row(each, levels, &columns, show, is_down);
            let has_figures = |levels: &&Levels| {
                let row = row(levels, Show::Absolute);
                if row.figures.iter().any(|figure| !figure.is_empty()) {
                    return true;
                }
                if row.figures.iter().any(Figure::is_zero) {
                    zero_rows.push(self.row_name(&row.words));
                }
                false
            };
            let tuples: Vec<&Levels> = tuples.iter().filter(has_figures).collect();
            for show in shows {
                let rows_of = tuples.iter().map(|levels| row(levels, *show));
                let section: Vec<Row> = rows_of.filter(|row| !row.is_of_base()).collect();
                if let (Some(title), false) = (self.section(*show), section.is_empty()) {
                    let mut words = vec![String::new(); down.len()];
                    words[0] = title;
                    rows.push(Row { words, figures: Vec::new() });
                }
                rows.extend(section);
            }
        } else {
            for levels in &tuples {
                for show in shows {
                    let row = self.row(each, levels, &columns, *show, is_down);
                    let is_beneath = shows.len() > 1 && *show != Show::Absolute;
                    if !(is_beneath && row.is_of_base()) {
                        rows.push(row);
                    }
                }
            }
        }
        let figures = || rows.iter().flat_map(|row| &row.figures);
        let units = Units::of(self.series, figures(), units);
        let mut notes = Vec::new();
        if figures().any(Figure::is_noise) {
            notes.push(NOISE_NOTE.to_owned());
        }
        if figures().any(Figure::is_pooled) {
            notes.push(POOLED_NOTE.to_owned());
        }
        let figure = |row: &Row, index: usize| row.figures.get(index).cloned();
        let is_kept = |index: usize| {
            rows.iter().filter_map(|row| figure(row, index)).any(|figure| !figure.is_empty())
        };
        let kept: Vec<usize> = (0..columns.len()).filter(|index| is_kept(*index)).collect();
        let is_zero = |index: &usize| {
            let mut figures = rows.iter().filter_map(|row| figure(row, *index));
            !is_kept(*index) && figures.any(|figure| figure.is_zero())
        };
        let left_out: Vec<usize> = (0..columns.len()).filter(is_zero).collect();
        let left_out = left_out
            .iter()
            .map(|index| self.column_heading(&columns[*index], &units, Show::Absolute))
            .filter(|name| !name.is_empty());
        let left_out: Vec<String> = zero_rows.into_iter().chain(left_out).collect();
        if !left_out.is_empty() {
            notes.push(format!("Left out, because zero everywhere: {}.", left_out.join("; ")));
        }
        if kept.is_empty() {
            let title = self.title(each, shows, is_down, &units);
            let colon = if title.is_empty() { "" } else { ": " };
            return match notes.pop() {
                Some(note) if !left_out.is_empty() => {
                    Some(Block::Text(format!("{title}{colon}{note}")))
                }
                _ => None,
            };
        }
        let mut head: Vec<String> = down.clone();
        let first = shows[0];
        head.extend(kept.iter().map(|index| self.column_heading(&columns[*index], &units, first)));
        let row = |row: &Row| {
            let mut cells: Vec<String> = row.words.clone();
            if is_down {
                let place = down.iter().position(|factor| factor == METRIC).expect("it is down");
                if metrics.contains(&cells[place]) {
                    let absolute =
                        row.figures.iter().any(|figure| matches!(figure, Figure::Absolute { .. }));
                    let name = cells[place].clone();
                    cells[place] = if absolute || row.figures.iter().any(is_delta) {
                        units.heading(&name)
                    } else {
                        units.label(&name)
                    };
                }
            }
            cells.extend(kept.iter().map(|index| {
                row.figures.get(*index).map_or_else(String::new, |figure| figure.show(&units))
            }));
            cells
        };
        let rows = rows.iter().map(row).collect();
        let title = self.title(each, shows, is_down, &units);
        Some(Block::Table(Grid { title, head, words: down.len(), rows, notes }))
    }

    /// The rows of one kind under each other, or one of them under the row that it is of.
    fn row(
        &self,
        each: &Levels,
        row: &Levels,
        columns: &[Column],
        show: Show,
        is_down: bool,
    ) -> Row {
        let Table { down, across, show: shows, .. } = self.layout;
        let figure = |column: &Column| {
            let is_meant = |point: Point<'_>| {
                point_levels(point, &self.layout.each) == *each
                    && point_levels(point, down) == *row
                    && point_levels(point, across) == column.levels
            };
            let metric = self.points().find(|point| is_meant(*point)).map(|(_, metric)| metric);
            let Some(metric) = metric else { return Figure::Nothing };
            self.figure(metric, &|cell| is_meant((cell, metric)), show, column.kind)
        };
        let mut words: Vec<String> = down
            .iter()
            .zip(row)
            .map(|(factor, level)| match level {
                // The heading is known when the units are.
                Some(Level::Word(metric)) if factor == METRIC => metric.clone(),
                level => {
                    self.series.level(factor, level.as_ref(), |cell| self.is_of(cell, down, row))
                }
            })
            .collect();
        if !is_down && shows.contains(&Show::Absolute) {
            let name = match show {
                Show::Delta => Some("Delta"),
                Show::Percent => Some("%Delta"),
                Show::Absolute | Show::Ratio => None,
            };
            if let Some(name) = name {
                words.iter_mut().for_each(String::clear);
                *words.last_mut().expect("a table of one row shows one kind") = name.to_owned();
            }
        }
        Row { words, figures: columns.iter().map(figure).collect() }
    }

    /// The columns beside one of these levels: what was published, and the quotient.
    fn beside(&self, levels: &Levels) -> Vec<Kind> {
        let metric = self.column_metric(levels);
        let knows = |published: &Published| match &metric {
            Some(metric) => published.knows(metric),
            None => self.layout.metrics.iter().any(|metric| published.knows(metric)),
        };
        let tables = self.published.iter().enumerate().filter(|(_, published)| knows(published));
        tables.flat_map(|(at, _)| [Kind::Published(at), Kind::Quotient(at)]).collect()
    }

    /// The metric of a column, if metrics go across.
    fn column_metric(&self, levels: &Levels) -> Option<String> {
        let place = self.layout.across.iter().position(|factor| factor == METRIC)?;
        levels[place].as_ref().map(Level::to_string)
    }

    fn column_heading(&self, column: &Column, units: &Units<'_>, show: Show) -> String {
        let Table { metrics, across, .. } = self.layout;
        match column.kind {
            Kind::Published(at) => return self.published[at].name.clone(),
            Kind::Quotient(at) => return format!("siga / {}", self.published[at].name),
            Kind::Own => {}
        }
        let named = across.iter().zip(&column.levels).filter(|(factor, _)| *factor != METRIC);
        let parts: Vec<String> = named
            .map(|(factor, level)| {
                self.describe_level(factor, level.as_ref(), across, &column.levels)
            })
            .collect();
        let level = parts.join(", ");
        match (self.column_metric(&column.levels), level.is_empty()) {
            (Some(metric), true) => self.heading(&metric, units, show),
            (Some(metric), false) if metrics.len() > 1 => {
                format!("{level}: {}", self.heading(&metric, units, show))
            }
            _ => level,
        }
    }

    fn title(&self, each: &Levels, shows: &[Show], is_down: bool, units: &Units<'_>) -> String {
        let Table { each: factors, metrics, across, title, .. } = self.layout;
        let show = shows[0];
        let named = factors.iter().zip(each).map(|(factor, level)| match level {
            Some(Level::Word(metric)) if factor == METRIC => self.heading(metric, units, show),
            level => self.describe_level(factor, level.as_ref(), factors, each),
        });
        let named = Some(named.collect::<Vec<_>>().join(", ")).filter(|named| !named.is_empty());
        let mut parts: Vec<String> = title.iter().cloned().chain(named).collect();
        // The heading of the only metric stands above its columns, unless these are named by levels.
        if let ([metric], true) = (metrics.as_slice(), across.len() > 1 && !is_down) {
            parts.push(self.heading(metric, units, show));
        }
        let what = match show {
            _ if is_down => None,
            Show::Absolute => None,
            Show::Ratio => Some(format!("÷ {}", self.base_name())),
            Show::Delta => Some(format!("difference from {}", self.base_name())),
            Show::Percent => Some(format!("difference from {} in percent", self.base_name())),
        };
        let title = parts.join(": ");
        match (title.is_empty(), what) {
            (_, None) => title,
            (true, Some(what)) => what,
            (false, Some(what)) => format!("{title} {what}"),
        }
    }

    /// What stands above the figures of a metric. A ratio has no unit.
    fn heading(&self, metric: &str, units: &Units, show: Show) -> String {
        match show {
            Show::Absolute | Show::Delta => units.heading(metric),
            Show::Ratio | Show::Percent => units.label(metric),
        }
    }

    /// What a row is called where metrics go down.
    fn row_name(&self, words: &[String]) -> String {
        let name = |(factor, word): (&String, &String)| match factor == METRIC {
            true => self.series.metric(word).label,
            false => word.clone(),
        };
        self.layout.down.iter().zip(words).map(name).collect::<Vec<_>>().join(", ")
    }

    /// What stands above the rows of one kind where metrics go down.
    fn section(&self, show: Show) -> Option<String> {
        match show {
            Show::Absolute => None,
            Show::Ratio => Some(format!("÷ {}", self.base_name())),
            Show::Delta => Some(format!("Delta from {}", self.base_name())),
            Show::Percent => Some(format!("%Delta from {}", self.base_name())),
        }
    }

    fn base_name(&self) -> String {
        let base = self.layout.base.iter().flatten();
        let base = base.map(|(factor, level)| match level {
            Level::Number(_) => {
                format!("{factor} {}", self.series.level(factor, Some(level), |_| true))
            }
            Level::Word(word) => word.clone(),
        });
        base.collect::<Vec<_>>().join(", ")
    }

    /// What stands in one place of a table.
    fn figure(
        &self,
        metric: &str,
        is_meant: &dyn Fn(&Factors) -> bool,
        show: Show,
        kind: Kind,
    ) -> Figure {
        let is_shown = |cell: &Factors| matches(cell, &self.only) && is_meant(cell);
        let Some(found) = self.series.best(metric, is_shown) else { return Figure::Nothing };
        match kind {
            Kind::Own => self.own(metric, &found, show),
            _ if show != Show::Absolute => Figure::Nothing,
            Kind::Published(at) | Kind::Quotient(at) => {
                let figure = self.published[at].figure(metric, found.cell);
                figure.map_or(Figure::Nothing, |number| match kind {
                    Kind::Quotient(_) => Figure::Quotient(found.summary.median / number),
                    _ => Figure::Published { metric: metric.to_owned(), number },
                })
            }
        }
    }

    fn own(&self, metric: &str, found: &Found<'_>, show: Show) -> Figure {
        if show == Show::Absolute {
            let has_range = self.layout.metrics.len() == 1;
            let (metric, summary) = (metric.to_owned(), found.summary);
            return Figure::Absolute { metric, summary, has_range };
        }
        let Some(base) = self.base(metric, found) else { return Figure::Nothing };
        // A base of zero has a difference, and no ratio.
        let compared = |comparison| self.series.compared(metric, comparison, [found, &base]);
        let times = || compared(Comparison::Ratio);
        match show {
            Show::Absolute => unreachable!("returned above"),
            Show::Ratio => times().map_or(Figure::Nothing, Figure::Ratio),
            _ if found.cell == base.cell => Figure::Base,
            Show::Percent => times().map_or(Figure::Nothing, |times| Figure::Percent {
                median: (times.median - 1.0) * 100.0,
                is_noise: times.is_in_noise(1.0),
            }),
            Show::Delta => {
                let delta = compared(Comparison::Difference);
                delta.map_or(Figure::Nothing, |delta| Figure::Delta {
                    metric: metric.to_owned(),
                    median: delta.median,
                    is_noise: delta.is_in_noise(0.0),
                })
            }
        }
    }

    /// What a cell is compared with: the same levels in the table, but for those of the base, and but for
    /// those that follow from it. A peer has its own way to wait.
    fn base(&self, metric: &str, found: &Found<'_>) -> Option<Found<'_>> {
        let Table { each, down, across, base, .. } = self.layout;
        // The base is of the same binary unless it names another.
        let is_meant = |factor: &str| {
            let mut laid_out = each.iter().chain(down).chain(across);
            factor == BINARY.name
                || self.only.contains_key(factor)
                || laid_out.any(|own| own == factor)
        };
        let wanted = self.series.instead(found.cell, base.as_ref()?, is_meant);
        self.series.best_of(metric, &wanted)
    }

    /// The factors that are not laid out, of which some place of the table shows only one level of several.
    fn reduced(&self) -> Vec<&str> {
        let Table { each, down, across, .. } = self.layout;
        let place = |cell: &Factors| [each, down, across].map(|factors| levels(cell, factors));
        let mut cells = self.series.cells();
        cells.retain(|cell| matches(cell, &self.only));
        let is_reduced = |factor: &&str| {
            cells.iter().enumerate().any(|(index, one)| {
                cells[index + 1..].iter().any(|other| {
                    place(one) == place(other) && one.get(*factor) != other.get(*factor)
                })
            })
        };
        self.series.order().into_iter().filter(is_reduced).collect()
    }

    /// A level beside the others of a tuple, in words that need no heading: `64 KiB`, `spin`, `records 64`.
    fn describe_level(
        &self,
        factor: &str,
        level: Option<&Level>,
        factors: &[String],
        tuple: &Levels,
    ) -> String {
        let word = self.series.level(factor, level, |cell| self.is_of(cell, factors, tuple));
        match level {
            None if word == ANY => format!("{ANY} {factor}"),
            // A number that no unit tells what it is.
            _ if word.bytes().all(|byte| byte.is_ascii_digit()) => format!("{factor} {word}"),
            _ => word,
        }
    }

    /// Whether a cell is shown, and has these levels with one of the metrics.
    fn is_of(&self, cell: &Factors, factors: &[String], tuple: &Levels) -> bool {
        let has = |metric: &String| point_levels((cell, metric), factors) == *tuple;
        matches(cell, &self.only) && self.layout.metrics.iter().any(has)
    }
}

fn is_delta(figure: &Figure) -> bool {
    matches!(figure, Figure::Delta { .. })
}

/// The levels that a point has of some factors; of the factor `metric`, the metric.
fn point_levels((cell, metric): Point<'_>, factors: &[String]) -> Levels {
    let mut found = levels(cell, factors);
    for (factor, level) in factors.iter().zip(&mut found) {
        if factor == METRIC {
            *level = Some(Level::Word(metric.to_owned()));
        }
    }
    found
}
