//! Claims: each verdict with the distance from its bound. Verdicts stand nowhere else, so that every claim has a row.

use super::blocks::note;
use super::scale::Scale;
use super::strip::{Row, Strip, along, band, counted, interval, mark, short, times};
use crate::case::Comparison;
use crate::report::claim::{self, Judgement, Verdict};
use crate::report::series::Series;
use crate::unit::{self, three_digits};

/// All claims: those that do not hold, then the others, the cases in the order of the run.
pub(super) fn strip(all: &[Series<'_>]) -> String {
    let of_case = |series| claim::judgements(series).into_iter().map(move |one| (series, one));
    let mut judged: Vec<(&Series<'_>, Judgement)> = all.iter().flat_map(of_case).collect();
    judged.sort_by_key(|(_, judgement)| judgement.verdict != Verdict::Fails);
    let relative = judged.iter().filter_map(|(_, judgement)| Relative::of(judgement));
    let ends = relative.flat_map(|one| [one.median, one.interval.0, one.interval.1, one.keeps.0]);
    let scale = Scale::log(ends.map(|end| end.clamp(SCALE.0, SCALE.1)).chain([0.5, 2.0]));
    let mut last = "";
    let rows = judged.iter().map(|(series, judgement)| {
        let is_other = std::mem::replace(&mut last, series.name) != series.name;
        let above = is_other.then(|| series.name.to_owned());
        Row { above, ..row(series, judgement, scale) }
    });
    Strip {
        caption: "Claims, and how far each figure is from its bound".into(),
        head: &["claim", "verdict", "found", "95 % interval", "wanted", "trials"],
        scale,
        tick: &|number| match number {
            number if number < 1.0 => format!("1/{}", short(1.0 / number)),
            number => times(number),
        },
        line: None,
        rows: rows.collect(),
        left_out: 0,
        notes: note(
            "Shaded: where the claim holds; the further to the right, the better. Filled: decided; hollow: undecided. \
             The line is the 95 % interval. Differences, and bounds of zero or less, have no place on this axis.",
        ),
    }
    .markup()
}

/// What is farther from its bound than so many times is drawn as if it were so far.
const SCALE: (f64, f64) = (1e-2, 1e2);

/// A figure and its interval, divided by the bound, so that all claims have one axis. What is to be at most something is turned
/// round: better is to the right for every claim.
struct Relative {
    median: f64,
    interval: (f64, f64),
    /// Where it keeps to the bound.
    keeps: (f64, f64),
}

impl Relative {
    /// None if there is no figure, or if a bound is not above zero or is one of a difference: such have no ratio.
    fn of(judgement: &Judgement) -> Option<Relative> {
        let median = judgement.median.filter(|_| judgement.of != Some(Comparison::Difference))?;
        let (from, to) = judgement.interval.unwrap_or((median, median));
        let (bound, keeps) = match (judgement.at_least, judgement.at_most) {
            (Some(least), Some(most)) if least > 0.0 => {
                let middle = (least * most).sqrt();
                (middle, (least / middle, most / middle))
            }
            (least, most) => (least.or(most)?, (1.0, f64::INFINITY)),
        };
        let is_turned = judgement.at_least.is_none();
        let relative = |figure: f64| if is_turned { bound / figure } else { figure / bound };
        let (from, to) = if is_turned { (to, from) } else { (from, to) };
        let interval = (relative(from), relative(to));
        (bound > 0.0).then(|| Relative { median: relative(median), interval, keeps })
    }
}

fn row(series: &Series<'_>, judgement: &Judgement, scale: Scale) -> Row {
    let (word, class) = match judgement.verdict {
        Verdict::Holds => ("✓ holds", "holds"),
        Verdict::Undecided => ("○ undecided", "undecided"),
        Verdict::Fails => ("✗ does not hold", "fails"),
        Verdict::NotMeasured => ("– not measured", "none"),
    };
    let metric = judgement.metric.as_deref().filter(|_| judgement.of != Some(Comparison::Ratio));
    let shown = metric.map(|metric| series.metric(metric));
    // The unit of the median is that of the interval too.
    let unit = shown.as_ref().zip(judgement.median);
    let unit = unit.map(|(shown, median)| unit::for_one(&shown.units, median));
    let (scaled, short_unit) = unit.map_or((1.0, "×"), |unit| (unit.scale, &*unit.short));
    let show = |number: f64| three_digits(number / scaled);
    let interval = match judgement.median {
        Some(_) => interval(judgement.interval, show),
        None => "-".to_owned(),
    };
    let found =
        judgement.median.map_or("-".to_owned(), |median| format!("{} {short_unit}", show(median)));
    let picture = Relative::of(judgement).map(|one| {
        let whisker = judgement.interval.map(|_| along("interval", scale, one.interval));
        let place = one.median.clamp(SCALE.0, SCALE.1);
        let mark = mark("verdict", scale, "m0", place);
        band("keeps", scale, one.keeps) + &whisker.unwrap_or_default() + &mark
    });
    let picture_words = match picture {
        Some(_) => format!("{found}, {interval}; wanted {}", judgement.wanted),
        None => "not on this axis".to_owned(),
    };
    let trials = match judgement.verdict {
        Verdict::NotMeasured => "-".to_owned(),
        _ => counted(judgement.trials, judgement.failed),
    };
    Row {
        name: judgement.claim.clone(),
        class,
        picture_words,
        picture: picture.unwrap_or_default(),
        figures: vec![word.to_owned(), found, interval, judgement.wanted.clone(), trials],
        ..Row::default()
    }
}
