//! Claims: what was promised of the figures, and whether it is so here.

use super::series::{Found, Series};
use super::table::with_range;
use super::{Block, Grid};
use crate::case::{Bound, Claim};
use crate::factor::describe;
use crate::metric::{show, three_digits, unit};
use crate::statistics::{Ratio, Sample};

/// What has become of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Holds,
    /// By the median; but some trials lie on the other side of the bound.
    HoldsInNoise,
    FailsInNoise,
    Fails,
    NotMeasured,
}

impl Verdict {
    fn of(bound: Bound, ratio: Ratio) -> Verdict {
        match (bound.holds(ratio.ratio), ratio.is_in_noise(bound.number())) {
            (true, false) => Verdict::Holds,
            (true, true) => Verdict::HoldsInNoise,
            (false, true) => Verdict::FailsInNoise,
            (false, false) => Verdict::Fails,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::HoldsInNoise => "holds, in the noise",
            Verdict::FailsInNoise => "does not hold here, in the noise",
            Verdict::Fails => "does not hold here",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// What becomes of the claims of a series: a sentence, and a table.
pub(super) fn claims(series: &Series<'_>) -> Vec<Block> {
    let claims = series.case.as_ref().map_or(&[][..], |case| &case.claims);
    if claims.is_empty() {
        return Vec::new();
    }
    let judged: Vec<(Verdict, String)> = claims.iter().map(|claim| judge(series, claim)).collect();
    let row = |(claim, (verdict, figures)): (&Claim, &(Verdict, String))| {
        vec![verdict.words().to_owned(), claim.name.clone(), figures.clone()]
    };
    let verdicts: Vec<Verdict> = judged.iter().map(|(verdict, _)| *verdict).collect();
    let grid = Grid {
        title: String::new(),
        head: ["here", "claim", "figures"].map(str::to_owned).into(),
        words: 3,
        rows: claims.iter().zip(&judged).map(row).collect(),
    };
    match verdicts.len() {
        1 => vec![Block::Table(grid)],
        _ => vec![Block::Text(summary(&verdicts)), Block::Table(grid)],
    }
}

fn summary(verdicts: &[Verdict]) -> String {
    let count = |some: &[Verdict]| verdicts.iter().filter(|one| some.contains(one)).count();
    let held = count(&[Verdict::Holds, Verdict::HoldsInNoise]);
    let noisy = count(&[Verdict::HoldsInNoise, Verdict::FailsInNoise]);
    let noise = match noisy {
        0 => String::new(),
        _ => format!(" {noisy} cannot be told from the noise: the bound lies among the trials."),
    };
    format!("{held} of {} claims hold here.{noise}", verdicts.len())
}

/// Whether a claim holds, and the figures that say so.
fn judge(series: &Series<'_>, claim: &Claim) -> (Verdict, String) {
    let Some(of) = series.best_of(&claim.metric, &claim.of) else {
        return (Verdict::NotMeasured, String::new());
    };
    let sides = claim.against.iter().filter_map(|side| series.best_of(&claim.metric, side));
    let sides: Vec<Found<'_>> = sides.collect();
    if sides.len() < claim.against.len() {
        return (Verdict::NotMeasured, String::new());
    }
    let best = series.best(&claim.metric, |cell| sides.iter().any(|side| side.cell == cell));
    let base = match &best {
        Some(best) => best.samples.clone(),
        // Without anything against it the metric itself is what is bounded.
        None => of.samples.iter().map(|sample| Sample { value: 1.0, ..*sample }).collect(),
    };
    let Some(ratio) = Ratio::of(&of.samples, &base) else {
        return (Verdict::NotMeasured, String::new());
    };
    let verdict = Verdict::of(claim.bound, ratio);
    let mut figures = match &best {
        Some(best) => against(series, claim, &of, best, ratio),
        None => alone(series, claim, &of),
    };
    let record = series.trial(of.cell, of.summary.representative);
    for name in &claim.counters {
        let count = record.and_then(|record| record.counters.get(name)).copied().unwrap_or(0);
        figures += &format!("\n{name} {count}");
    }
    (verdict, figures)
}

fn against(
    series: &Series<'_>,
    claim: &Claim,
    of: &Found<'_>,
    best: &Found<'_>,
    ratio: Ratio,
) -> String {
    let order = series.order();
    let side = |found: &Found<'_>| {
        let number = show(&claim.metric, found.summary.median);
        format!("{number} {} ({})", unit(&claim.metric).label, describe(found.cell, &order))
    };
    let times = with_range(ratio.ratio, ratio.min, ratio.max, of.summary.trials);
    let wanted = wanted(claim.bound, three_digits(claim.bound.number()), "");
    format!("{times} times, {wanted}\n{} against {}", side(of), side(best))
}

fn alone(series: &Series<'_>, claim: &Claim, of: &Found<'_>) -> String {
    let unit = unit(&claim.metric);
    let summary = of.summary;
    let scaled = |number: f64| number / unit.scale;
    let number = with_range(
        scaled(summary.median),
        scaled(summary.min),
        scaled(summary.max),
        summary.trials,
    );
    let wanted = wanted(claim.bound, show(&claim.metric, claim.bound.number()), unit.label);
    format!("{number} {}, {wanted}\n{}", unit.label, describe(of.cell, &series.order()))
}

fn wanted(bound: Bound, number: String, unit: &str) -> String {
    let which = match bound {
        Bound::AtLeast(_) => "at least",
        Bound::AtMost(_) => "at most",
    };
    format!("wanted {which} {number} {unit}").trim_end().to_owned()
}
