//! Plots of one thing over another. They are as wide as the window: places are parts of the width, letters and marks keep
//! their size.

use super::markup::{STYLES, element, escaped, text};
use super::scale::Scale;
use super::strip::percent;

/// Curves that are drawn in one plot: as many as marks and colours tell apart.
pub(super) const CURVES_MAX: usize = STYLES;

/// The usual height of a plot, in pixels.
pub(super) const HEIGHT: u32 = 240;

/// Space above and below what is drawn, in pixels.
const ABOVE: f64 = 8.0;
const BELOW: f64 = 42.0;

/// The width of a drawing whose width is that of the window.
const WIDTH: f64 = 1000.0;

/// A plot.
pub(super) struct Plot<'a> {
    pub(super) caption: String,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
    pub(super) curves: Vec<Curve>,
    /// In pixels.
    pub(super) height: u32,
}

/// An axis of all the points.
pub(super) struct Axis<'a> {
    pub(super) label: String,
    pub(super) is_log: bool,
    /// How a number of the axis is written.
    pub(super) tick: &'a dyn Fn(f64) -> String,
}

/// A curve, or marks of one kind.
#[derive(Default)]
pub(super) struct Curve {
    pub(super) name: String,
    /// Which colour and shape. Where these begin again the curve is dashed, where they do once more in another way.
    pub(super) style: usize,
    /// Points that are not joined are drawn small: they are many.
    pub(super) is_joined: bool,
    pub(super) points: Vec<Point>,
}

/// A point of a curve.
#[derive(Default)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// How far the figure may be off: from and to.
    pub(super) interval: Option<(f64, f64)>,
    /// `open`, `bad`, `knee`, or nothing. None draws no mark.
    pub(super) mark: Option<&'static str>,
    /// Shown when one points at it.
    pub(super) words: String,
}

impl Axis<'_> {
    fn scale(&self, numbers: impl Iterator<Item = f64>) -> Scale {
        if self.is_log { Scale::log(numbers) } else { Scale::linear(numbers) }
    }
}

impl Plot<'_> {
    /// As markup; `table` is what stands below it and says the same. Nothing without points.
    pub(super) fn markup(&self, table: &str) -> String {
        let Plot { caption, curves, .. } = self;
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let around = |point: &Point| {
            let (least, most) = point.interval.unwrap_or((point.y, point.y));
            [point.y, least, most]
        };
        let x = self.x.scale(points().map(|point| point.x));
        let y = self.y.scale(points().flat_map(around));
        let (height, bottom) = (f64::from(self.height), ABOVE + f64::from(self.height));
        let down = |at: f64| ABOVE + (1.0 - at) * height;
        let y_tick = |(at, text): (f64, String)| {
            let (at, below) = (down(at), down(at) + 4.0);
            format!(
                "<line class=\"g\" x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"-8\" y=\"{below:.1}\" text-anchor=\"end\">{text}</text>\n"
            )
        };
        let x_tick = |(at, text): (f64, String)| {
            let (at, below) = (percent(at), bottom + 17.0);
            format!(
                "<line class=\"g\" x1=\"{at}\" x2=\"{at}\" y1=\"{ABOVE}\" y2=\"{bottom}\"/>\
                 <text x=\"{at}\" y=\"{below}\" text-anchor=\"middle\">{text}</text>\n"
            )
        };
        let y_ticks: Vec<String> = y.ticks(self.y.tick).into_iter().map(y_tick).collect();
        let x_ticks: Vec<String> = x.ticks(self.x.tick).into_iter().map(x_tick).collect();
        if x_ticks.is_empty() || y_ticks.is_empty() {
            return String::new();
        }
        let joined: String = curves.iter().map(|curve| curve.line(x, y, height)).collect();
        let mark = |curve: &Curve, point: &Point| {
            let (across, at) = x.at(point.x).zip(y.at(point.y))?;
            let interval =
                point.interval.map(|(least, most)| [least, most].map(|end| down(y.clamped(end))));
            point.markup(curve, &percent(across), down(at), interval)
        };
        let marks = curves
            .iter()
            .flat_map(|curve| curve.points.iter().filter_map(move |point| mark(curve, point)));
        let drawn = format!(
            "{}<g class=\"x\">\n{}</g>\n<text class=\"axis\" x=\"100%\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <svg class=\"curves\" y=\"{ABOVE}\" width=\"100%\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             preserveAspectRatio=\"none\">\n{joined}</svg>\n{}",
            y_ticks.concat(),
            x_ticks.concat(),
            bottom + 35.0,
            escaped(&self.x.label),
            marks.collect::<String>()
        );
        let legend: String = curves.iter().map(Curve::legend).collect();
        let legend = if legend.is_empty() { legend } else { element("ul", "legend", &legend) };
        let svg = format!(
            "<p class=\"axis\">{}</p>\n<div class=\"xy\"><svg role=\"img\" width=\"100%\" height=\"{}\">\n\
             <title>{}</title>\n{drawn}</svg></div>\n",
            escaped(&self.y.label),
            bottom + BELOW,
            escaped(caption)
        );
        element("figure", "", &(text("figcaption", "", caption) + &legend + &svg + table))
    }
}

impl Curve {
    fn class(&self) -> String {
        format!("c{} d{}", self.style % STYLES, self.style / STYLES % 3)
    }

    /// The line of a curve. Points that have no place break it.
    fn line(&self, x: Scale, y: Scale, height: f64) -> String {
        let place = |point: &Point| {
            let (x, y) = x.at(point.x).zip(y.at(point.y))?;
            Some(format!("{:.1},{:.1}", x * WIDTH, (1.0 - y) * height))
        };
        let places: Vec<Option<String>> = self.points.iter().map(place).collect();
        let pieces =
            places.split(Option::is_none).filter(|piece| self.is_joined && piece.len() > 1);
        let line = |piece: &[Option<String>]| {
            let points: Vec<&str> = piece.iter().flatten().map(String::as_str).collect();
            format!("<polyline class=\"{}\" points=\"{}\"/>\n", self.class(), points.join(" "))
        };
        pieces.map(line).collect()
    }

    /// Its item in the legend; nothing without a name.
    fn legend(&self) -> String {
        let line = match self.is_joined {
            true => "<line x1=\"0\" x2=\"30\" y1=\"7\" y2=\"7\"/>",
            false => "",
        };
        let has_marks = self.points.iter().any(|point| point.mark.is_some());
        let mark = format!("<use href=\"#m{}\" x=\"15\" y=\"7\"/>", self.style % STYLES);
        let mark = if has_marks { &mark } else { "" };
        let (class, name) = (self.class(), escaped(&self.name));
        if name.is_empty() {
            return name;
        }
        format!(
            "<li><svg class=\"{class}\" width=\"30\" height=\"14\" aria-hidden=\"true\">{line}{mark}</svg> {name}</li>\n"
        )
    }
}

impl Point {
    /// Its mark and its interval; none of a point without a mark.
    fn markup(&self, curve: &Curve, x: &str, y: f64, interval: Option<[f64; 2]>) -> Option<String> {
        let (style, mark) = (curve.style % STYLES, self.mark?);
        let whisker = interval.map(|[from, to]| {
            format!(
                "<line class=\"c{style}\" x1=\"{x}\" x2=\"{x}\" y1=\"{from:.1}\" y2=\"{to:.1}\"/>"
            )
        });
        let words = match self.words.as_str() {
            "" => String::new(),
            words => format!("<title>{}</title>", escaped(words)),
        };
        let drawn = match mark {
            "bad" => format!("<use href=\"#x\" class=\"bad\" x=\"{x}\" y=\"{y:.1}\">{words}</use>"),
            "" if !curve.is_joined => {
                format!("<circle class=\"c{style} dot\" cx=\"{x}\" cy=\"{y:.1}\" r=\"2\"/>")
            }
            _ => format!(
                "<use href=\"#m{style}\" class=\"c{style} {mark}\" x=\"{x}\" y=\"{y:.1}\">{words}</use>"
            ),
        };
        Some(whisker.unwrap_or_default() + &drawn + "\n")
    }
}
