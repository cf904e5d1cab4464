//! Tables of figures: absolute, as ratios to a base, as differences from it.

mod figure;

use std::collections::BTreeMap;

pub(super) use figure::{NOTHING, with_range};

use self::figure::{Figure, NOISE_NOTE, POOLED_NOTE, Units, What};
use super::series::{ANY, Found, Levels, Series, levels};
use super::{Block, Grid, grouped, joined};
use crate::case::{Comparison, METRIC, Show, Table};
use crate::factor::{BINARY, Factors, Level, matches};
use crate::published::Published;

/// The tables of a series, as its case lays them out.
pub(super) fn tables(series: &Series<'_>) -> Vec<Block> {
    match series.laid_out(|case| &case.tables) {
        [] => Layout::of(series, &usual_layout(series)).blocks(),
        tables => tables.iter().flat_map(|table| Layout::of(series, table).blocks()).collect(),
    }
}

/// The most columns of figures that a table has which no case lays out.
const USUAL_COLUMNS_MAX: usize = 6;

/// One row for each cell and one column for each metric; or the other way round where there are many metrics.
/// Factors of which all cells have one level stand above the table.
fn usual_layout(series: &Series<'_>) -> Table {
    let (metrics, cells) = (series.metrics(), series.cells());
    let (factors, common) = series.varying(series.order(), &cells);
    let factors = factors.into_iter().map(str::to_owned).collect();
    let title = Some(common).filter(|title| !title.is_empty());
    if metrics.len() <= USUAL_COLUMNS_MAX || cells.len() > USUAL_COLUMNS_MAX {
        return Table { title, ..Table::of(metrics, factors) };
    }
    Table { title, across: factors, ..Table::of(metrics, vec![METRIC.to_owned()]) }
}

/// The factors of a table by what becomes of their levels: a table each, a row each, a column each.
const EACH: usize = 0;
const DOWN: usize = 1;
const ACROSS: usize = 2;

/// A metric of a cell.
type Point<'a> = (&'a str, &'a Factors);

struct Layout<'a> {
    series: &'a Series<'a>,
    layout: &'a Table,
    axes: [&'a [String]; 3],
    /// Whether metrics go down.
    is_down: bool,
    /// Which cells.
    only: Factors,
    /// What stands beside the figures.
    published: Vec<&'a Published>,
    /// The levels of all places, in the order of measurement.
    order: Vec<[Levels; 3]>,
    /// What each place is of: one metric of the cells of which it shows the best.
    places: BTreeMap<[Levels; 3], Vec<Point<'a>>>,
}

/// A row of a table.
struct Row<'a> {
    levels: &'a Levels,
    show: Show,
    figures: Vec<Figure<'a>>,
}

impl Row<'_> {
    /// Whether it is the base's own, which is not compared with itself.
    fn is_of_base(&self) -> bool {
        let has = |what: &What| self.figures.iter().any(|figure| figure.what == *what);
        let is = |figure: &Figure<'_>| matches!(figure.what, What::Base | What::Nothing);
        has(&What::Base) && self.figures.iter().all(is)
    }
}

/// A column of a table.
struct Column<'a> {
    levels: Levels,
    kind: Kind<'a>,
}

#[derive(Clone, Copy)]
enum Kind<'a> {
    Own,
    /// What a published table has.
    Published(&'a Published),
    /// How many times that the own figure is.
    Quotient(&'a Published),
}

impl<'a> Layout<'a> {
    fn of(series: &'a Series<'a>, layout: &'a Table) -> Layout<'a> {
        let axes = [&layout.each[..], &layout.down, &layout.across];
        let only = series.meant(&layout.only, &axes.concat());
        let published = series.laid_out(|case| &case.published).iter();
        let cells = series.cells().into_iter().filter(|cell| matches(cell, &only));
        let points =
            cells.flat_map(|cell| layout.metrics.iter().map(move |metric| (&**metric, cell)));
        let places =
            grouped(points.map(|point| (axes.map(|factors| point_levels(point, factors)), point)));
        Layout {
            series,
            layout,
            axes,
            is_down: layout.down.iter().any(|factor| factor == METRIC),
            published: published.filter(|table| layout.published.has(&table.name)).collect(),
            order: places.iter().map(|(place, _)| place.clone()).collect(),
            places: places.into_iter().collect(),
            only,
        }
    }

    fn blocks(&self) -> Vec<Block> {
        let show = &self.layout.show;
        let has = |wanted| show.contains(&wanted);
        let beneath = (has(Show::Delta) || has(Show::Percent)) && has(Show::Absolute);
        // With metrics in rows, ratios and differences are rows of the same table. Elsewhere differences stand
        // under the row that they are of, and ratios in a table of their own.
        let groups: Vec<Vec<Show>> = match (self.is_down, beneath) {
            (true, _) => vec![show.clone()],
            (false, true) => {
                let (ratios, others) = show.iter().partition(|show| **show == Show::Ratio);
                [others, ratios].into_iter().filter(|group: &Vec<Show>| !group.is_empty()).collect()
            }
            (false, false) => show.iter().map(|show| vec![*show]).collect(),
        };
        let each = self.tuples(EACH, None);
        let grids = each.iter().flat_map(|each| groups.iter().map(move |shows| (each, shows)));
        let mut blocks: Vec<Block> =
            grids.filter_map(|(each, shows)| self.grid(each, shows)).collect();
        let reduced = self.reduced();
        if !reduced.is_empty() {
            let which = reduced.join(" and ");
            blocks.push(Block::Text(format!("Of several levels of {which}, the best is shown.")));
        }
        blocks
    }

    /// All combinations of levels along an axis, of the places that have the levels `each` of the factors that
    /// have a table each. Sorted by the first factor, then by the second, each in the order of measurement.
    fn tuples(&self, axis: usize, each: Option<&Levels>) -> Vec<Levels> {
        let is_here = |place: &&[Levels; 3]| each.is_none_or(|each| place[EACH] == *each);
        let here = self.order.iter().filter(is_here).map(|place| (place[axis].clone(), ()));
        let tuples: Vec<Levels> = grouped(here).into_iter().map(|(tuple, _)| tuple).collect();
        let place = |(index, level): (usize, &Option<Level>)| {
            // A row for what does not depend on the factor stands behind those that do.
            let first = tuples.iter().position(|tuple| tuple[index] == *level);
            (level.is_none(), first)
        };
        let mut sorted = tuples.clone();
        sorted.sort_by_cached_key(|tuple| tuple.iter().enumerate().map(place).collect::<Vec<_>>());
        sorted
    }

    /// A table; or a sentence, where every figure of the table is zero.
    fn grid(&self, each: &Levels, shows: &[Show]) -> Option<Block> {
        let columns = self.columns(each, shows.contains(&Show::Absolute));
        let figures = |show: Show, levels: &Levels| -> Vec<Figure<'_>> {
            let figure = |column: &Column<'a>| {
                self.figure([each, levels, &column.levels].map(Levels::clone), show, column.kind)
            };
            columns.iter().map(figure).collect()
        };
        let mut tuples = self.tuples(DOWN, Some(each));
        let mut left_out = Vec::new();
        if self.is_down {
            tuples.retain(|levels| {
                let figures = figures(Show::Absolute, levels);
                let is_kept = figures.iter().any(|figure| !figure.what.is_empty());
                if !is_kept && figures.iter().any(|figure| figure.what.is_zero()) {
                    let label = |metric: &str| self.series.metric(metric).label;
                    left_out.push(self.words(DOWN, levels, &label).join(", "));
                }
                is_kept
            });
        }
        let all: Vec<(Show, &Levels)> = match self.is_down {
            true => shows.iter().flat_map(|show| tuples.iter().map(|row| (*show, row))).collect(),
            false => {
                tuples.iter().flat_map(|row| shows.iter().map(move |show| (*show, row))).collect()
            }
        };
        let row = |(show, levels)| Row { levels, show, figures: figures(show, levels) };
        let mut rows: Vec<Row<'_>> = all.into_iter().map(row).collect();
        rows.retain(|row| !(row.is_of_base() && (self.is_down || shows.len() > 1)));
        let units =
            Units::of(self.series, rows.iter().flat_map(|row| &row.figures), &self.layout.units);
        let has = |index: usize, is: fn(&What) -> bool| {
            rows.iter().any(|row| is(&row.figures[index].what))
        };
        let (kept, empty): (Vec<usize>, Vec<usize>) =
            (0..columns.len()).partition(|index| has(*index, |what| !what.is_empty()));
        let zero = empty.into_iter().filter(|index| has(*index, What::is_zero));
        let zero = zero.map(|index| self.column_heading(&columns[index], &units, Show::Absolute));
        left_out.extend(zero.filter(|name| !name.is_empty()));
        let left_out = (!left_out.is_empty())
            .then(|| format!("Left out, because zero everywhere: {}.", left_out.join("; ")));
        let title = self.title(each, shows[0], &units);
        if kept.is_empty() {
            let colon = if title.is_empty() { "" } else { ": " };
            return left_out.map(|note| Block::Text(format!("{title}{colon}{note}")));
        }
        let headings =
            kept.iter().map(|index| self.column_heading(&columns[*index], &units, shows[0]));
        let head: Vec<String> = self.layout.down.iter().cloned().chain(headings).collect();
        let mut lines = Vec::new();
        let mut above = Show::Absolute;
        for row in &rows {
            if self.is_down && row.show != above && row.show != Show::Absolute {
                let mut line = vec![String::new(); head.len()];
                line[0] = self.section(row.show);
                lines.push(line);
            }
            above = row.show;
            let mut words = self.words(DOWN, row.levels, &|metric| units.heading(metric, row.show));
            if !self.is_down && shows.len() > 1 && row.show != Show::Absolute {
                words = vec![String::new(); words.len()];
                *words.last_mut().expect("a table of one row shows one kind") =
                    sign(row.show).to_owned();
            }
            let figures = kept.iter().map(|index| row.figures[*index].show(&units));
            lines.push(words.into_iter().chain(figures).collect());
        }
        let any = |is: fn(&What) -> bool| (0..columns.len()).any(|index| has(index, is));
        let noise = any(What::is_noise).then(|| NOISE_NOTE.to_owned());
        let pooled = any(What::is_pooled).then(|| POOLED_NOTE.to_owned());
        let notes = [noise, pooled, left_out].into_iter().flatten().collect();
        Some(Block::Table(Grid { title, notes, ..Grid::of(&head, self.layout.down.len(), lines) }))
    }

    /// Levels along an axis as words, the metric by `heading`.
    fn words(&self, axis: usize, levels: &Levels, heading: &dyn Fn(&str) -> String) -> Vec<String> {
        let word = |(factor, level): (&String, &Option<Level>)| match level {
            Some(Level::Word(metric)) if factor == METRIC => heading(metric),
            level => {
                let here = |cell: &Factors| self.is_of(cell, axis, levels);
                self.series.level(factor, level.as_ref(), here)
            }
        };
        self.axes[axis].iter().zip(levels).map(word).collect()
    }

    /// The same in words that need no heading: `64 KiB`, `spin`, `records 64`. Without those that are empty.
    fn described(&self, axis: usize, levels: &Levels, heading: &dyn Fn(&str) -> String) -> String {
        let words = self.words(axis, levels, heading).into_iter().zip(self.axes[axis]);
        let described = words.filter(|(word, _)| !word.is_empty()).map(|(word, factor)| {
            match word.bytes().all(|byte| byte.is_ascii_digit()) {
                // A number that no unit tells what it is.
                true => format!("{factor} {word}"),
                false if word == ANY => format!("{ANY} {factor}"),
                false => word,
            }
        });
        described.collect::<Vec<_>>().join(", ")
    }

    /// The columns of a table. Beside those of absolute figures stand what was published, and the quotient.
    fn columns(&self, each: &Levels, is_absolute: bool) -> Vec<Column<'a>> {
        let columns = |levels: Levels| {
            let metric = self.column_metric(&levels);
            let knows = |published: &&&Published| match &metric {
                Some(metric) => published.knows(metric),
                None => self.layout.metrics.iter().any(|metric| published.knows(metric)),
            };
            let tables = self.published.iter().filter(|_| is_absolute).filter(knows);
            let beside = tables.flat_map(|table| [Kind::Published(table), Kind::Quotient(table)]);
            let kinds: Vec<Kind<'a>> = [Kind::Own].into_iter().chain(beside).collect();
            kinds.into_iter().map(move |kind| Column { levels: levels.clone(), kind })
        };
        self.tuples(ACROSS, Some(each)).into_iter().flat_map(columns).collect()
    }

    /// The metric of a column, if metrics go across.
    fn column_metric(&self, levels: &Levels) -> Option<String> {
        let place = self.layout.across.iter().position(|factor| factor == METRIC)?;
        levels[place].as_ref().map(Level::to_string)
    }

    fn column_heading(&self, column: &Column<'_>, units: &Units<'_>, show: Show) -> String {
        match column.kind {
            Kind::Published(table) => return table.name.clone(),
            Kind::Quotient(table) => return format!("siga / {}", table.name),
            Kind::Own => {}
        }
        let level = self.described(ACROSS, &column.levels, &|_| String::new());
        let metric = self.column_metric(&column.levels);
        match metric.map(|metric| units.heading(&metric, show)) {
            Some(heading) if level.is_empty() => heading,
            Some(heading) if self.layout.metrics.len() > 1 => format!("{level}: {heading}"),
            _ => level,
        }
    }

    fn title(&self, each: &Levels, show: Show, units: &Units<'_>) -> String {
        let Table { metrics, across, title, .. } = self.layout;
        let named = self.described(EACH, each, &|metric| units.heading(metric, show));
        // The heading of the only metric stands above its columns, unless these are named by levels.
        let only = match metrics.as_slice() {
            [metric] if across.len() > 1 && !self.is_down => units.heading(metric, show),
            _ => String::new(),
        };
        let what = if self.is_down { String::new() } else { self.section(show) };
        let title = title.as_deref().unwrap_or_default();
        joined(&[&joined(&[title, &named, &only], ": "), &what], " ")
    }

    /// What stands above the figures that are compared with the base.
    fn section(&self, show: Show) -> String {
        let base = self.base_name();
        match show {
            Show::Absolute => String::new(),
            Show::Ratio => format!("÷ {base}"),
            Show::Delta => format!("difference from {base}"),
            Show::Percent => format!("difference from {base} in percent"),
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
    fn figure(&self, place: [Levels; 3], show: Show, kind: Kind<'_>) -> Figure<'a> {
        let nothing = Figure { metric: "", what: What::Nothing };
        let Some(points) = self.places.get(&place) else { return nothing };
        let metric = points[0].0;
        let cells = points.iter().map(|(_, cell)| *cell);
        let Some(found) = self.series.best(metric, cells) else { return nothing };
        let published = |table: &Published| table.figure(metric, found.cell);
        let what = match kind {
            Kind::Own => self.own(metric, &found, show),
            _ if show != Show::Absolute => None,
            Kind::Published(table) => published(table).map(What::Published),
            Kind::Quotient(table) => {
                published(table).map(|number| What::Quotient(found.summary.median / number))
            }
        };
        Figure { metric, what: what.unwrap_or(What::Nothing) }
    }

    fn own(&self, metric: &str, found: &Found<'_>, show: Show) -> Option<What> {
        if show == Show::Absolute {
            let has_range = self.layout.metrics.len() == 1;
            return Some(What::Absolute { summary: found.summary, has_range });
        }
        let base = self.base(metric, found)?;
        let compared = |comparison| self.series.compared(metric, comparison, found, Some(&base), 1);
        // A base of zero has a difference, and no ratio.
        Some(match show {
            Show::Ratio => What::Ratio(compared(Comparison::Ratio)?),
            _ if found.cell == base.cell => What::Base,
            Show::Percent => {
                let times = compared(Comparison::Ratio)?;
                What::Percent((times.median - 1.0) * 100.0, times.is_in_noise(1.0))
            }
            _ => {
                let delta = compared(Comparison::Difference)?;
                What::Delta(delta.median, delta.is_in_noise(0.0))
            }
        })
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
        let is_reduced = |factor: &&str| {
            let level = |(_, cell): &Point<'a>| cell.get(*factor);
            let differs = |points: &Vec<Point<'a>>| {
                points.iter().any(|point| level(point) != level(&points[0]))
            };
            self.places.values().any(differs)
        };
        self.series.order().into_iter().filter(is_reduced).collect()
    }

    /// Whether a cell is shown, and has these levels with one of the metrics.
    fn is_of(&self, cell: &Factors, axis: usize, tuple: &Levels) -> bool {
        let has = |metric: &String| point_levels((metric, cell), self.axes[axis]) == *tuple;
        matches(cell, &self.only) && self.layout.metrics.iter().any(has)
    }
}

/// What stands before the name of the base.
fn sign(show: Show) -> &'static str {
    match show {
        Show::Absolute => "",
        Show::Ratio => "÷",
        Show::Delta => "Delta",
        Show::Percent => "%Delta",
    }
}

/// The levels that a point has of some factors; of the factor `metric`, the metric.
fn point_levels((metric, cell): Point<'_>, factors: &[String]) -> Levels {
    let mut found = levels(cell, factors);
    for (factor, level) in factors.iter().zip(&mut found) {
        if factor == METRIC {
            *level = Some(Level::Word(metric.to_owned()));
        }
    }
    found
}
