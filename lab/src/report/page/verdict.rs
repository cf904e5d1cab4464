//! Claims: each verdict with the distance from its bound. Verdicts stand nowhere else, so that every claim has a row.

use super::scale::Scale;
use super::strip::{Row, Strip, along, band, counted, mark, short, times};
use crate::report::claim::{self, Bounded, Judgement, Verdict};
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
        notes: vec![
            "Shaded: where the claim holds; the further to the right, the better. Filled: decided; hollow: undecided. \
             The line is the 95 % interval. Differences, and bounds of zero or less, have no place on this axis."
                .to_owned(),
        ],
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
        let median = judgement.median?;
        let interval = judgement.interval.unwrap_or((median, median));
        let turned = |bound: f64| (bound / interval.1, bound / interval.0);
        if judgement.of == Some(Bounded::Difference) {
            return None;
        }
        match (judgement.at_least, judgement.at_most) {
            (Some(least), None) if least > 0.0 => Some(Relative {
                median: median / least,
                interval: (interval.0 / least, interval.1 / least),
                keeps: (1.0, f64::INFINITY),
            }),
            (None, Some(most)) if most > 0.0 => Some(Relative {
                median: most / median,
                interval: turned(most),
                keeps: (1.0, f64::INFINITY),
            }),
            (Some(least), Some(most)) if least > 0.0 && most > 0.0 => {
                let middle = (least * most).sqrt();
                let [from, to] = [least, most].map(|end| end / middle);
                let interval = (interval.0 / middle, interval.1 / middle);
                Some(Relative { median: median / middle, interval, keeps: (from, to) })
            }
            _ => None,
        }
    }
}

fn row(series: &Series<'_>, judgement: &Judgement, scale: Option<Scale>) -> Row {
    let (word, class) = match judgement.verdict {
        Verdict::Holds => ("✓ holds", "holds"),
        Verdict::Undecided => ("○ undecided", "undecided"),
        Verdict::Fails => ("✗ does not hold", "fails"),
        Verdict::NotMeasured => ("– not measured", "none"),
    };
    let metric = judgement.metric.as_deref().map(|metric| series.metric(metric));
    let metric = metric.filter(|_| judgement.of != Some(Bounded::Ratio));
    // The unit of the median is that of the interval too.
    let unit = metric
        .as_ref()
        .zip(judgement.median)
        .map(|(metric, median)| unit::for_one(&metric.units, median));
    let (scaled, short_unit) = unit.map_or((1.0, "×"), |unit| (unit.scale, &*unit.short));
    let show = |number: f64| three_digits(number / scaled);
    let bounds = [("at least", judgement.at_least), ("at most", judgement.at_most)];
    let bounds = bounds
        .iter()
        .filter_map(|(word, bound)| Some(format!("{word} {}", short((*bound)? / scaled))));
    let reaches = judgement
        .interval_reaches
        .map(|least| format!("an interval that reaches {}", short(least / scaled)));
    let wanted = bounds.chain(reaches).collect::<Vec<_>>().join(", ");
    let interval = match (judgement.interval, judgement.median) {
        (Some((least, most)), _) => format!("{} to {}", show(least), show(most)),
        (None, Some(_)) => "not enough trials".to_owned(),
        (None, None) => "-".to_owned(),
    };
    let found =
        judgement.median.map_or("-".to_owned(), |median| format!("{} {short_unit}", show(median)));
    let relative = Relative::of(judgement).zip(scale);
    let picture = relative.as_ref().map(|(one, scale)| {
        let whisker =
            judgement.interval.map(|_| along("interval", *scale, one.interval)).unwrap_or_default();
        let place = one.median.clamp(SCALE.0, SCALE.1);
        band("keeps", *scale, one.keeps) + &whisker + &mark("verdict", *scale, "m0", place)
    });
    let picture_words = match picture {
        Some(_) => format!("{found}, {interval}; wanted {wanted}"),
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
        figures: vec![word.to_owned(), found, interval, wanted, trials],
        ..Row::default()
    }
}
