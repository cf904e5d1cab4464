//! Plots of one thing over another. They are as wide as the window: places are parts of the width, letters and marks keep
//! their size.

use super::markup::{STYLES, element, escaped};
use super::scale::Scale;
use super::strip::percent;

/// Curves that are drawn in one plot: as many as marks and colours tell apart.
pub(super) const CURVES_MAX: usize = STYLES;

/// Space above and below what is drawn, in pixels.
const ABOVE: f64 = 8.0;
const BELOW: f64 = 42.0;

/// The width of a drawing whose width is that of the window.
const WIDTH: f64 = 1000.0;

/// A plot.
pub(super) struct Plot<'a> {
    pub(super) caption: String,
    /// What one sees, in a sentence.
    pub(super) about: String,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
    pub(super) curves: &'a [Curve],
    /// In pixels.
    pub(super) height: u32,
}

/// An axis.
pub(super) struct Axis<'a> {
    pub(super) label: String,
    pub(super) scale: Option<Scale>,
    pub(super) tick: &'a dyn Fn(f64) -> String,
}

/// A curve, or marks of one kind.
#[derive(Default)]
pub(super) struct Curve {
    pub(super) name: String,
    /// Which colour and shape.
    pub(super) style: usize,
    /// How it is dashed: 0 if it is not.
    pub(super) dash: usize,
    pub(super) is_joined: bool,
    /// Drawn small: of many.
    pub(super) is_small: bool,
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

impl Plot<'_> {
    /// As markup; `table` is what stands below it and says the same. Nothing without points.
    pub(super) fn markup(&self, table: &str) -> String {
        let (Some(x), Some(y)) = (self.x.scale, self.y.scale) else { return String::new() };
        let height = f64::from(self.height);
        let down = |at: f64| ABOVE + (1.0 - at) * height;
        let mut drawn = String::new();
        for tick in y.ticks() {
            let Some(at) = y.at(tick).map(down) else { continue };
            let text = escaped(&(self.y.tick)(tick));
            drawn += &format!(
                "<line class=\"g\" x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>\n",
                at + 4.0
            );
        }
        drawn += "<g class=\"x\">\n";
        for tick in x.ticks() {
            let Some(at) = x.at(tick).map(percent) else { continue };
            let text = escaped(&(self.x.tick)(tick));
            drawn += &format!(
                "<line class=\"g\" x1=\"{at}\" x2=\"{at}\" y1=\"{ABOVE}\" y2=\"{0}\"/>\
                 <text x=\"{at}\" y=\"{1}\" text-anchor=\"middle\">{text}</text>\n",
                ABOVE + height,
                ABOVE + height + 17.0
            );
        }
        drawn += "</g>\n";
        drawn += &format!(
            "<text class=\"axis\" x=\"100%\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
            ABOVE + height + 35.0,
            escaped(&self.x.label)
        );
        drawn += &format!(
            "<svg class=\"curves\" y=\"{ABOVE}\" width=\"100%\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             preserveAspectRatio=\"none\">\n{}</svg>\n",
            self.curves.iter().map(|curve| joined(curve, x, y, height)).collect::<String>()
        );
        for curve in self.curves {
            for point in &curve.points {
                let Some(place) = x.at(point.x).zip(y.at(point.y)) else { continue };
                drawn += &point
                    .markup(curve, (percent(place.0), down(place.1)), |end| down(y.clamped(end)));
            }
        }
        let legend: String =
            self.curves.iter().filter(|curve| !curve.name.is_empty()).map(legend).collect();
        let legend = if legend.is_empty() { legend } else { element("ul", "legend", &legend) };
        let svg = format!(
            "<p class=\"axis\">{}</p>\n<div class=\"xy\"><svg role=\"img\" width=\"100%\" height=\"{}\">\n\
             <title>{}</title><desc>{}</desc>\n{drawn}</svg></div>\n",
            escaped(&self.y.label),
            ABOVE + height + BELOW,
            escaped(&self.caption),
            escaped(&self.about)
        );
        let caption = element("figcaption", "", &escaped(&self.caption));
        element("figure", "", &format!("{caption}{legend}{svg}{table}"))
    }
}

/// The line of a curve. Points that have no place break it.
fn joined(curve: &Curve, x: Scale, y: Scale, height: f64) -> String {
    if !curve.is_joined {
        return String::new();
    }
    let place = |point: &Point| {
        let (x, y) = x.at(point.x).zip(y.at(point.y))?;
        Some(format!("{:.1},{:.1}", x * WIDTH, (1.0 - y) * height))
    };
    let places: Vec<Option<String>> = curve.points.iter().map(place).collect();
    let pieces = places.split(Option::is_none).filter(|piece| piece.len() > 1);
    let line = |piece: &[Option<String>]| {
        let points: Vec<&str> = piece.iter().flatten().map(String::as_str).collect();
        format!("<polyline class=\"{}\" points=\"{}\"/>\n", class(curve), points.join(" "))
    };
    pieces.map(line).collect()
}

fn class(curve: &Curve) -> String {
    format!("c{} d{}", curve.style % STYLES, curve.dash)
}

fn legend(curve: &Curve) -> String {
    let style = curve.style % STYLES;
    let line = if curve.is_joined { "<line x1=\"0\" x2=\"30\" y1=\"7\" y2=\"7\"/>" } else { "" };
    let has_marks = curve.points.iter().any(|point| point.mark.is_some());
    let mark = if has_marks {
        format!("<use href=\"#m{style}\" x=\"15\" y=\"7\"/>")
    } else {
        String::new()
    };
    let name = escaped(&curve.name);
    let class = class(curve);
    format!(
        "<li><svg class=\"{class}\" width=\"30\" height=\"14\" aria-hidden=\"true\">{line}{mark}</svg> {name}</li>\n"
    )
}

impl Point {
    fn markup(&self, curve: &Curve, (x, y): (String, f64), down: impl Fn(f64) -> f64) -> String {
        let style = curve.style % STYLES;
        let Some(mark) = self.mark else { return String::new() };
        let whisker = self.interval.map(|(least, most)| {
            let (from, to) = (down(least), down(most));
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
            "" if curve.is_small => {
                format!("<circle class=\"c{style} dot\" cx=\"{x}\" cy=\"{y:.1}\" r=\"2\"/>")
            }
            _ => format!(
                "<use href=\"#m{style}\" class=\"c{style} {mark}\" x=\"{x}\" y=\"{y:.1}\">{words}</use>"
            ),
        };
        whisker.unwrap_or_default() + &drawn + "\n"
    }
}
