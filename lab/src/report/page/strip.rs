//! Rows of figures, each with its trials drawn beside it on an axis that all rows share: a table with a picture in it.

use super::blocks;
use super::markup::{attribute, element, escaped, heading, scrolling};
use super::scale::Scale;
use crate::metric::Shown;
use crate::statistics::{Sample, Summary, TRIALS_MIN};
use crate::unit::{self, PLAIN, Unit, three_digits};

/// Rows that a table of cells has, and marks that are drawn in one row.
pub(super) const ROWS_MAX: usize = 60;
const DOTS_MAX: usize = 60;

/// The height of a row, in pixels.
const HEIGHT: u32 = 30;

/// A table with a picture in each row.
pub(super) struct Strip<'a> {
    pub(super) caption: String,
    /// What stands above the rows' names, and above the columns of figures behind the picture.
    pub(super) head: &'a [&'a str],
    pub(super) scale: Scale,
    /// How a number of the axis is written.
    pub(super) tick: &'a dyn Fn(f64) -> String,
    /// The place on the axis that all rows are compared with.
    pub(super) line: Option<f64>,
    pub(super) rows: Vec<Row>,
    /// How many more rows there would be.
    pub(super) left_out: usize,
    /// What stands below, as markup.
    pub(super) notes: String,
}

/// A row of it.
#[derive(Default)]
pub(super) struct Row {
    pub(super) name: String,
    /// What is written above the row, if anything.
    pub(super) above: Option<String>,
    /// In pixels; 0 for the usual one.
    pub(super) height: u32,
    /// A class of its own, as `bad`.
    pub(super) class: &'static str,
    /// The same in words, for those who do not see the picture.
    pub(super) picture_words: String,
    /// What is drawn, as [`Strip::scale`] says.
    pub(super) picture: String,
    pub(super) figures: Vec<String>,
}

impl Strip<'_> {
    /// As markup; nothing without rows.
    pub(super) fn markup(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let ticks = self.scale.ticks(self.tick);
        let mut grid: String = ticks.iter().map(|(at, _)| upright("g", *at)).collect();
        grid.extend(self.line.and_then(|line| self.scale.at(line)).map(|at| upright("r", at)));
        let rows: String = self.rows.iter().map(|row| self.row(row, &grid)).collect();
        let tick = |(at, text): &(f64, String)| {
            let at = percent(*at);
            format!("<text x=\"{at}\" y=\"14\" text-anchor=\"middle\">{text}</text>")
        };
        let axis = ticks.iter().map(tick).collect::<String>();
        let axis = picture(18, "aria-hidden=\"true\"", &axis);
        let head = |(index, cell): (usize, &&str)| match index {
            0 => heading("", cell) + &element("td", "plot", &axis),
            _ => heading("figure", cell),
        };
        let head: String = self.head.iter().enumerate().map(head).collect();
        let table = format!(
            "<table class=\"strip\">\n<caption>{}</caption>\n<thead><tr>\n{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n\
             <tfoot><tr><td></td>\n<td class=\"plot\">{axis}</td></tr></tfoot>\n</table>\n",
            escaped(&self.caption)
        );
        let more = blocks::counted(self.left_out, "more rows are not drawn.");
        element("figure", "", &(scrolling(&self.caption, &table) + &self.notes + &more))
    }

    fn row(&self, row: &Row, grid: &str) -> String {
        let figures = row.figures.iter().zip(self.head.iter().skip(1)).map(|(figure, head)| {
            let label = escaped(head);
            format!("<td class=\"figure\" data-label=\"{label}\">{}</td>\n", escaped(figure))
        });
        let words = format!("<title>{}</title>", escaped(&row.picture_words));
        let height = if row.height == 0 { HEIGHT } else { row.height };
        let drawn = picture(height, "role=\"img\"", &format!("{words}{grid}{}", row.picture));
        let above = row.above.as_ref().map(|above| {
            let (columns, above) = (self.head.len() + 1, escaped(above));
            format!("<tr class=\"above\"><th scope=\"rowgroup\" colspan=\"{columns}\">{above}</th></tr>\n")
        });
        let above = above.unwrap_or_default();
        format!(
            "{above}<tr{}><th scope=\"row\">{}</th>\n<td class=\"plot\">{drawn}</td>\n{}</tr>\n",
            attribute(row.class),
            escaped(&row.name),
            figures.collect::<String>()
        )
    }
}

fn picture(height: u32, about: &str, inner: &str) -> String {
    format!("<svg width=\"100%\" height=\"{height}\" {about}>{inner}</svg>")
}

/// A place on an axis from 0 to 1, as markup has it.
pub(super) fn percent(at: f64) -> String {
    format!("{:.2}%", at * 100.0)
}

fn upright(class: &str, at: f64) -> String {
    let at = percent(at);
    format!("<line class=\"{class}\" x1=\"{at}\" x2=\"{at}\" y1=\"-200\" y2=\"300\"/>")
}

/// A line along the axis, with what lies outside at the nearer end.
pub(super) fn along(class: &str, scale: Scale, (least, most): (f64, f64)) -> String {
    let middle = HEIGHT / 2;
    let [least, most] = [least, most].map(|end| percent(scale.clamped(end)));
    format!(
        "<line class=\"{class}\" x1=\"{least}\" x2=\"{most}\" y1=\"{middle}\" y2=\"{middle}\"/>"
    )
}

/// A filled part of the row.
pub(super) fn band(class: &str, scale: Scale, (least, most): (f64, f64)) -> String {
    let (least, most) = (scale.clamped(least), scale.clamped(most));
    let (x, width) = (percent(least), percent((most - least).max(0.0)));
    format!(
        "<rect class=\"{class}\" x=\"{x}\" width=\"{width}\" y=\"3\" height=\"{}\"/>",
        HEIGHT - 6
    )
}

/// A mark in the middle of the row; nothing where there is no place for it.
pub(super) fn mark(class: &str, scale: Scale, mark: &str, number: f64) -> String {
    let Some(at) = scale.at(number) else { return String::new() };
    let (at, middle) = (percent(at), HEIGHT / 2);
    format!("<use href=\"#{mark}\" class=\"{class}\" x=\"{at}\" y=\"{middle}\"/>")
}

/// Those of so many that a row draws: every nth.
pub(super) fn some<T>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().step_by(every(all.len(), DOTS_MAX))
}

/// A sentence about rows that do not draw all their marks, by how many the longest has.
pub(super) fn some_only(longest: usize) -> String {
    let words = format!("A row has at most {DOTS_MAX} marks: of more, every nth is drawn.");
    if longest > DOTS_MAX { blocks::note(&words) } else { String::new() }
}

/// The least n so that of `count` things at most `most` are left where every nth is drawn.
pub(super) fn every(count: usize, most: usize) -> usize {
    count.div_ceil(most).max(1)
}

/// The trials as dots, their median as an upright line, and the interval of the median, if there are enough trials.
pub(super) fn trials(scale: Scale, samples: &[Sample], summary: Option<&Summary>) -> String {
    let dots = some(samples).filter_map(|sample| {
        let at = percent(scale.at(sample.value)?);
        // One above the other in the order of the trials, so that equal ones are seen.
        let y = HEIGHT / 2 - 6 + sample.trial % 7 * 2;
        Some(format!("<circle class=\"dot\" cx=\"{at}\" cy=\"{y}\" r=\"2.2\"/>"))
    });
    let interval = summary.and_then(|summary| summary.interval);
    let interval = interval.map(|ends| along("interval", scale, ends));
    let median = summary.and_then(|summary| scale.at(summary.median)).map(|at| {
        let at = percent(at);
        format!("<line class=\"median\" x1=\"{at}\" x2=\"{at}\" y1=\"5\" y2=\"{}\"/>", HEIGHT - 5)
    });
    dots.chain(interval).chain(median).collect()
}

/// Median, interval and number of trials, in the unit that the heading has or else in one that suits the median.
pub(super) fn figures(
    summary: Option<&Summary>,
    unit: Option<&Unit>,
    shown: &Shown,
    lost: usize,
) -> Vec<String> {
    let Some(summary) = summary else {
        return ["-", "-", &counted(0, lost)].map(str::to_owned).into();
    };
    let Summary { median, trials, .. } = *summary;
    let scale = unit.unwrap_or_else(|| unit::for_one(&shown.units, median)).scale;
    let interval = interval(summary.interval, |number| three_digits(number / scale));
    let together = if summary.is_pooled { " together" } else { "" };
    vec![shown.show_in(unit, median), interval, counted(trials, lost) + together]
}

/// An interval as a table has it.
pub(super) fn interval(ends: Option<(f64, f64)>, show: impl Fn(f64) -> String) -> String {
    match ends {
        Some((least, most)) => format!("{} to {}", show(least), show(most)),
        None => "not enough trials".to_owned(),
    }
}

/// How many trials a figure is of, how many would be enough, and how many failed.
pub(super) fn counted(trials: usize, failed: usize) -> String {
    let few = if trials < TRIALS_MIN { format!(" of {TRIALS_MIN}") } else { String::new() };
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    format!("{trials}{few}{failed}")
}

/// The trials one by one, in words.
pub(super) fn trials_in_words(samples: &[Sample], show: impl Fn(f64) -> String) -> String {
    let each = samples.iter().take(DOTS_MAX).map(|sample| show(sample.value));
    let each: Vec<String> = each.collect();
    let more = if samples.len() > DOTS_MAX { ", .." } else { "" };
    format!("{} trials: {}{more}", samples.len(), each.join(", "))
}

/// A number at an axis, in the unit that suits it and without needless zeros.
pub(super) fn tick(units: &[Unit], number: f64) -> String {
    unit::show(units, None, number, |scale| short(number / scale))
}

/// How many times something is something else, at an axis.
pub(super) fn times(number: f64) -> String {
    tick(PLAIN, number) + " ×"
}

/// A number of three digits without needless zeros.
pub(super) fn short(number: f64) -> String {
    let shown = three_digits(number);
    if shown.contains('.') {
        shown.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        shown
    }
}
