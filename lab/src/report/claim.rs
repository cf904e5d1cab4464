//! Claims: what was promised of the figures, and whether it is so here.

use super::series::{Found, Series, levels};
use super::table::{measured, with_range};
use super::{Block, Grid};
use crate::case::{Bound, Claim, Comparison, Test};
use crate::factor::{Factors, describe, matches};
use crate::statistics::{Summary, difference, ratio};
use crate::unit::three_digits;

/// What has become of a claim: the worse, the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Holds,
    /// By the median; but some trials lie on the other side of the bound.
    HoldsInNoise,
    FailsInNoise,
    Fails,
    NotMeasured,
}

impl Verdict {
    fn of(bound: Bound, found: Summary) -> Verdict {
        match (bound.holds(found.median), bound.numbers().any(|one| found.is_in_noise(one))) {
            (true, false) => Verdict::Holds,
            (true, true) => Verdict::HoldsInNoise,
            (false, true) => Verdict::FailsInNoise,
            (false, false) => Verdict::Fails,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::HoldsInNoise => "holds (noise)",
            Verdict::FailsInNoise => "does not hold (noise)",
            Verdict::Fails => "does not hold",
            Verdict::NotMeasured => "not measured",
        }
    }

    fn holds(self) -> bool {
        matches!(self, Verdict::Holds | Verdict::HoldsInNoise)
    }
}

/// How many claims there are, and what has become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) all: usize,
    pub(super) hold: usize,
    pub(super) fail: usize,
    /// Of those that hold or fail, the ones whose bound lies among the trials.
    pub(super) noisy: usize,
}

impl Tally {
    fn of(verdicts: impl Iterator<Item = Verdict>) -> Tally {
        verdicts.fold(Tally::default(), |tally, verdict| {
            let is_noisy = matches!(verdict, Verdict::HoldsInNoise | Verdict::FailsInNoise);
            let is_measured = verdict != Verdict::NotMeasured;
            Tally {
                all: tally.all + 1,
                hold: tally.hold + usize::from(verdict.holds()),
                fail: tally.fail + usize::from(is_measured && !verdict.holds()),
                noisy: tally.noisy + usize::from(is_noisy),
            }
        })
    }

    /// Both together.
    pub(super) fn with(self, other: Tally) -> Tally {
        Tally {
            all: self.all + other.all,
            hold: self.hold + other.hold,
            fail: self.fail + other.fail,
            noisy: self.noisy + other.noisy,
        }
    }

    /// A sentence: `2 of 4 claims hold here, 1 does not, 1 is not measured.`
    pub(super) fn sentence(self) -> String {
        let Tally { all, hold, fail, noisy } = self;
        let part = |count: usize, one: &str, many: &str| match count {
            0 => String::new(),
            1 => format!(", 1 {one}"),
            count => format!(", {count} {many}"),
        };
        let fails = part(fail, "does not", "do not");
        let missing = part(all - hold - fail, "is not measured", "are not measured");
        let noise = match noisy {
            0 => String::new(),
            1 => " 1 is within the noise: trials lie on both sides of the bound.".to_owned(),
            _ => format!(" {noisy} are within the noise: trials lie on both sides of the bound."),
        };
        let plural = if all == 1 { "claim" } else { "claims" };
        let verb = if hold == 1 { "holds" } else { "hold" };
        format!("{hold} of {all} {plural} {verb} here{fails}{missing}.{noise}")
    }
}

/// What has become of the claims of a series.
pub(super) fn tally(series: &Series<'_>) -> Tally {
    Tally::of(claims_of(series).iter().map(|claim| judge(series, claim).0))
}

/// The names of the claims of a series that do not hold.
pub(super) fn failing<'a>(series: &'a Series<'_>) -> impl Iterator<Item = &'a str> {
    let fails =
        |claim: &&Claim| matches!(judge(series, claim).0, Verdict::FailsInNoise | Verdict::Fails);
    claims_of(series).iter().filter(fails).map(|claim| claim.name.as_str())
}

fn claims_of<'a>(series: &'a Series<'_>) -> &'a [Claim] {
    series.case.as_ref().map_or(&[][..], |case| &case.claims)
}

/// What becomes of the claims of a series: a sentence, and a table.
pub(super) fn claims(series: &Series<'_>) -> Vec<Block> {
    let claims = claims_of(series);
    if claims.is_empty() {
        return Vec::new();
    }
    let judged: Vec<(Verdict, String)> = claims.iter().map(|claim| judge(series, claim)).collect();
    let row = |(claim, (verdict, figures)): (&Claim, &(Verdict, String))| {
        let lines = [claim.name.as_str(), figures].into_iter().filter(|line| !line.is_empty());
        vec![verdict.words().to_owned(), lines.collect::<Vec<_>>().join("\n")]
    };
    let tally = Tally::of(judged.iter().map(|(verdict, _)| *verdict));
    let grid = Grid {
        title: String::new(),
        head: ["here", "claim, and the figures that judge it"].map(str::to_owned).into(),
        words: 2,
        rows: claims.iter().zip(&judged).map(row).collect(),
        notes: Vec::new(),
    };
    match tally.all {
        1 => vec![Block::Table(grid)],
        _ => vec![Block::Text(tally.sentence()), Block::Table(grid)],
    }
}

/// Said of a claim that needs two binaries, in a run of one.
const NEEDS_ANOTHER: &str = "compares two binaries: run it with --against PATH";

/// Whether a claim holds, and the figures that say so.
fn judge(series: &Series<'_>, claim: &Claim) -> (Verdict, String) {
    let judged = claim.test.as_ref().and_then(|test| judge_all(series, test));
    let (verdict, figures) = judged.unwrap_or_else(|| {
        let needs_another =
            !series.is_of_two && claim.test.as_ref().is_some_and(Test::needs_another);
        let why = if needs_another { NEEDS_ANOTHER } else { "" };
        (Verdict::NotMeasured, why.to_owned())
    });
    let lines = [Some(figures), claim.note.clone()];
    let lines: Vec<String> = lines.into_iter().flatten().filter(|line| !line.is_empty()).collect();
    (verdict, lines.join("\n"))
}

/// The worst of what is judged; none if nothing can be.
fn judge_all(series: &Series<'_>, test: &Test) -> Option<(Verdict, String)> {
    let mut all: Vec<Factors> = Vec::new();
    let of = series.meant(&test.of, &test.every);
    for cell in series.cells().into_iter().filter(|cell| matches(cell, &of)) {
        let named = test.every.iter().zip(levels(cell, &test.every));
        let here = named.filter_map(|(factor, level)| Some((factor.clone(), level?))).collect();
        if !all.contains(&here) {
            all.push(here);
        }
    }
    let judged: Vec<Judged> = all.iter().filter_map(|here| judge_at(series, test, here)).collect();
    let (count, levels) = (judged.len(), all.len());
    let worst = |one: &Judged, other: &Judged| {
        one.verdict.cmp(&other.verdict).then(other.margin.total_cmp(&one.margin))
    };
    let Judged { verdict, figures, .. } = judged.into_iter().max_by(worst)?;
    let which = if test.every.is_empty() {
        String::new()
    } else {
        let of = match count == levels {
            true => format!("{count}"),
            false => format!("{count} of {levels} levels measured,"),
        };
        format!("the worst of {of} by {}: ", test.every.join(", "))
    };
    Some((verdict, which + &figures))
}

/// A claim, judged at one level of the factors that it is judged by.
struct Judged {
    verdict: Verdict,
    /// How many times better it is than it has to be.
    margin: f64,
    figures: String,
}

/// Judges a claim `here`; none if something that it needs was not measured.
fn judge_at(series: &Series<'_>, test: &Test, here: &Factors) -> Option<Judged> {
    // What a side says itself goes before what holds for all.
    let with = |own: &Factors| -> Factors {
        series.meant(&here.clone().into_iter().chain(own.clone()).collect(), &[])
    };
    let of = series.best_of(&test.metric, &with(&test.of))?;
    let sides = test.against.iter().map(|side| series.best_of(&test.metric, &with(side)));
    let sides: Vec<Found<'_>> = sides.collect::<Option<_>>()?;
    let best = series.best(&test.metric, |cell| sides.iter().any(|side| side.cell == cell));
    // Without anything against it the metric itself is what is bounded.
    let (judged, mut figures) = match &best {
        Some(best) => {
            let compare = match test.comparison {
                Comparison::Ratio => ratio,
                Comparison::Difference => difference,
            };
            let compared = Summary::of(&compare(&of.samples, &best.samples))?;
            (compared, against(series, test, [&of, best], compared))
        }
        None => (of.summary, alone(series, test, &of)),
    };
    let record = series.trial(of.cell, of.summary.representative);
    for name in &test.counters {
        let count = record.and_then(|record| record.counters.get(name)).copied().unwrap_or(0);
        figures += &format!("\n{name} {count}");
    }
    let verdict = Verdict::of(test.bound, judged);
    Some(Judged { verdict, margin: test.margin(judged.median), figures })
}

fn against(
    series: &Series<'_>,
    test: &Test,
    [of, best]: [&Found<'_>; 2],
    compared: Summary,
) -> String {
    let (order, metric) = (series.order(), series.metric(&test.metric));
    let side = |found: &Found<'_>| {
        let number = metric.show(found.summary.median);
        format!("{number} ({})", describe(found.cell, &order))
    };
    let compared = match test.comparison {
        Comparison::Ratio => {
            format!("ratio {}, {}", with_range(compared, 1.0), wanted(test.bound, three_digits))
        }
        Comparison::Difference => {
            let wanted = wanted(test.bound, |number| metric.show(number));
            format!("{} more, {wanted}", measured(&metric, compared))
        }
    };
    format!("{compared}\n{} against {}", side(of), side(best))
}

fn alone(series: &Series<'_>, test: &Test, of: &Found<'_>) -> String {
    let metric = series.metric(&test.metric);
    let wanted = wanted(test.bound, |number| metric.show(number));
    let number = measured(&metric, of.summary);
    format!("{number}, {wanted}\n{}", describe(of.cell, &series.order()))
}

fn wanted(bound: Bound, shown: impl Fn(f64) -> String) -> String {
    let least = bound.at_least.map(|least| format!("at least {}", shown(least)));
    let most = bound.at_most.map(|most| format!("at most {}", shown(most)));
    let both: Vec<String> = [least, most].into_iter().flatten().collect();
    format!("wanted {}", both.join(" and "))
}
