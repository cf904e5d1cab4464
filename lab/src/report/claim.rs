//! Claims: what was promised of the figures, and whether it is so here.

use super::series::{Found, Series, levels};
use super::{Block, Grid};
use crate::case::{Bound, Claim, Comparison, Test};
use crate::factor::{Factors, describe, matches};
use crate::statistics::{Summary, TRIALS_MIN, difference, mixed_rounds, ratio};
use crate::unit::{self, Unit, three_digits};

/// What has become of a claim: the worse, the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Holds,
    /// The interval has the bound in it, there are too few trials for one, or trials failed.
    Undecided,
    Fails,
    NotMeasured,
}

impl Verdict {
    /// By where the true median lies.
    fn of(bound: Bound, found: &Summary) -> Verdict {
        let Some((least, most)) = found.interval else { return Verdict::Undecided };
        if bound.holds(least) && bound.holds(most) {
            Verdict::Holds
        } else if bound.at_least.is_some_and(|bound| most < bound)
            || bound.at_most.is_some_and(|bound| least > bound)
        {
            Verdict::Fails
        } else {
            Verdict::Undecided
        }
    }

    fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Undecided => "undecided",
            Verdict::Fails => "does not hold",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// How many claims there are, and what has become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) all: usize,
    pub(super) hold: usize,
    pub(super) fail: usize,
    pub(super) undecided: usize,
}

impl Tally {
    fn of(verdicts: impl Iterator<Item = Verdict>) -> Tally {
        verdicts.fold(Tally::default(), |tally, verdict| Tally {
            all: tally.all + 1,
            hold: tally.hold + usize::from(verdict == Verdict::Holds),
            fail: tally.fail + usize::from(verdict == Verdict::Fails),
            undecided: tally.undecided + usize::from(verdict == Verdict::Undecided),
        })
    }

    /// Both together.
    pub(super) fn with(self, other: Tally) -> Tally {
        Tally {
            all: self.all + other.all,
            hold: self.hold + other.hold,
            fail: self.fail + other.fail,
            undecided: self.undecided + other.undecided,
        }
    }

    /// A sentence: `2 of 4 claims hold here, 1 does not, 1 is not measured.`
    pub(super) fn sentence(self) -> String {
        let Tally { all, hold, fail, undecided } = self;
        let part = |count: usize, one: &str, many: &str| match count {
            0 => String::new(),
            1 => format!(", 1 {one}"),
            count => format!(", {count} {many}"),
        };
        let fails = part(fail, "does not", "do not");
        let open = part(undecided, "is undecided", "are undecided");
        let missing = part(all - hold - fail - undecided, "is not measured", "are not measured");
        let plural = if all == 1 { "claim" } else { "claims" };
        let verb = if hold == 1 { "holds" } else { "hold" };
        format!("{hold} of {all} {plural} {verb} here{fails}{open}{missing}.")
    }
}

/// What has become of the claims of a series.
pub(super) fn tally(series: &Series<'_>) -> Tally {
    Tally::of(claims_of(series).iter().map(|claim| judge(series, claim).0))
}

/// The names of the claims of a series that do not hold, and of those that are undecided.
pub(super) fn in_doubt<'a>(series: &'a Series<'_>) -> (Vec<&'a str>, Vec<&'a str>) {
    let judged: Vec<(&str, Verdict)> = claims_of(series)
        .iter()
        .map(|claim| (claim.name.as_str(), judge(series, claim).0))
        .collect();
    [Verdict::Fails, Verdict::Undecided]
        .map(|wanted| {
            judged.iter().filter(|(_, one)| *one == wanted).map(|(name, _)| *name).collect()
        })
        .into()
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
    let wanted: Vec<Factors> = std::iter::once(&test.of).chain(&test.against).map(with).collect();
    let meant = |cell: &&Factors| wanted.iter().any(|wanted| matches(cell, wanted));
    let lost: usize = series.cells().into_iter().filter(meant).map(|cell| series.lost(cell)).sum();
    let best_of = |wanted: &Factors| series.best_of(&test.metric, wanted);
    let found: Option<Vec<Found<'_>>> = wanted.iter().map(best_of).collect();
    let Some(mut sides) = found else {
        // What failed every time is not what this machine cannot do.
        let figures = lost_trials(lost);
        return (lost > 0).then_some(Judged { verdict: Verdict::Undecided, margin: 0.0, figures });
    };
    let of = sides.remove(0);
    let best = series.best(&test.metric, |cell| sides.iter().any(|side| side.cell == cell));
    let mixed = best.as_ref().map_or(0, |best| mixed_rounds(&of.samples, &best.samples));
    // Without anything against it the metric itself is what is bounded.
    let (judged, mut figures) = match &best {
        Some(best) => {
            let compare = match test.comparison {
                Comparison::Ratio => ratio,
                Comparison::Difference => difference,
            };
            let Some(compared) = Summary::of(&compare(&of.samples, &best.samples)) else {
                let undecided = Verdict::Undecided;
                let judged = Judged { verdict: undecided, margin: 0.0, figures: mixed_line(mixed) };
                return (mixed > 0).then_some(judged);
            };
            (compared, against(series, test, [&of, best], compared))
        }
        None => (of.summary, alone(series, test, &of)),
    };
    if mixed > 0 {
        figures += &format!("\n{}", mixed_line(mixed));
    }
    let record = series.trial(of.cell, of.summary.representative);
    for name in &test.counters {
        let count = record.and_then(|record| record.counters.get(name)).copied().unwrap_or(0);
        figures += &format!("\n{name} {count}");
    }
    let mut verdict = Verdict::of(test.bound, &judged);
    if let Some(least) = test.interval_reaches {
        if judged.interval.is_some_and(|(_, most)| most < least) {
            verdict = Verdict::Fails;
        }
        figures += &format!("\nwanted: an interval that reaches {}", three_digits(least));
    }
    if lost > 0 {
        // The worst trials may be the ones that are missing.
        verdict = Verdict::Undecided;
        figures += &format!("\n{}", lost_trials(lost));
    }
    Some(Judged { verdict, margin: test.margin(judged.median), figures })
}

fn mixed_line(rounds: usize) -> String {
    let plural = if rounds == 1 { "" } else { "s" };
    format!(
        "{rounds} round{plural} left out: the processors were nearer in one trial than in the other"
    )
}

fn lost_trials(lost: usize) -> String {
    let plural = if lost == 1 { "" } else { "s" };
    format!("{lost} trial{plural} failed: nothing is said of what is missing")
}

/// A figure and where it truly lies, as people read it: `4.20 µs (4.01..4.52 at 95 %, 9 trials)`.
fn with_interval(summary: &Summary, unit: Option<&Unit>, rounds: &str) -> String {
    let (scale, short) = unit.map_or((1.0, ""), |unit| (unit.scale, &*unit.short));
    let shown = |number: f64| three_digits(number / scale);
    let Summary { min, max, trials, .. } = *summary;
    let median = format!("{} {short}", shown(summary.median));
    let far = match summary.interval {
        Some((least, most)) => {
            format!("{}..{} at 95 %, {trials} {rounds}", shown(least), shown(most))
        }
        None if trials < 2 => format!("{trials} of {TRIALS_MIN} {rounds} that decide"),
        None => {
            format!("{}..{}, {trials} of {TRIALS_MIN} {rounds} that decide", shown(min), shown(max))
        }
    };
    format!("{} ({far})", median.trim_end())
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
            let ratio = with_interval(&compared, None, "rounds");
            format!("ratio {ratio}, {}", wanted(test.bound, three_digits))
        }
        Comparison::Difference => {
            let unit = unit::for_one(&metric.units, compared.median);
            let more = with_interval(&compared, Some(unit), "rounds");
            format!("{more} more, {}", wanted(test.bound, |number| metric.show(number)))
        }
    };
    format!("{compared}\n{} against {}", side(of), side(best))
}

fn alone(series: &Series<'_>, test: &Test, of: &Found<'_>) -> String {
    let metric = series.metric(&test.metric);
    let wanted = wanted(test.bound, |number| metric.show(number));
    let unit = unit::for_one(&metric.units, of.summary.median);
    let number = with_interval(&of.summary, Some(unit), "trials");
    format!("{number}, {wanted}\n{}", describe(of.cell, &series.order()))
}

fn wanted(bound: Bound, shown: impl Fn(f64) -> String) -> String {
    let least = bound.at_least.map(|least| format!("at least {}", shown(least)));
    let most = bound.at_most.map(|most| format!("at most {}", shown(most)));
    let both: Vec<String> = [least, most].into_iter().flatten().collect();
    format!("wanted {}", both.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::statistics::Sample;

    const RUNS: u32 = 10_000;

    /// Draws noise whose median is 0 and whose standard deviation is about 1 without outliers.
    type Noise = fn(&mut Random) -> f64;

    fn uniform(random: &mut Random) -> f64 {
        (random.below(1 << 40) as f64 + 0.5) / (1_u64 << 40) as f64
    }

    fn normal(random: &mut Random) -> f64 {
        (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
    }

    fn skewed(random: &mut Random) -> f64 {
        -uniform(random).ln() - std::f64::consts::LN_2
    }

    fn with_outliers(random: &mut Random) -> f64 {
        let times = if random.below(10) == 0 { 50.0 } else { 1.0 };
        times * normal(random)
    }

    /// The verdict over so many rounds whose ratios scatter by a tenth about `ratio`.
    fn verdict(random: &mut Random, ratio: f64, rounds: u32, noise: Noise) -> Verdict {
        let sample = |trial| Sample { trial, value: ratio + 0.1 * noise(random), line: None };
        let samples: Vec<Sample> = (1..=rounds).map(sample).collect();
        let bound = Bound { at_least: Some(1.0), at_most: None };
        Verdict::of(bound, &Summary::of(&samples).expect("there are samples"))
    }

    fn part(
        random: &mut Random,
        ratio: f64,
        rounds: u32,
        noise: Noise,
        wanted: fn(Verdict) -> bool,
    ) -> f64 {
        let found = (0..RUNS).filter(|_| wanted(verdict(random, ratio, rounds, noise))).count();
        found as f64 / f64::from(RUNS)
    }

    #[test]
    fn claim_whose_figure_is_its_bound_is_decided_one_time_in_twenty_at_most() {
        let mut random = Random::new();
        for noise in [normal as Noise, skewed, with_outliers] {
            for rounds in 3..=30 {
                let decided =
                    part(&mut random, 1.0, rounds, noise, |one| one != Verdict::Undecided);
                // A twentieth, and four standard deviations of the simulation itself.
                assert!(decided <= 0.059, "{rounds} rounds: {decided}");
                assert!(rounds >= 6 || decided == 0.0, "{rounds} rounds: {decided}");
            }
        }
    }

    #[test]
    fn nine_rounds_decide_of_a_fifth_where_rounds_scatter_by_a_tenth() {
        let mut random = Random::new();
        let held = part(&mut random, 1.2, 9, normal, |one| one == Verdict::Holds);
        let failed = part(&mut random, 0.8, 9, normal, |one| one == Verdict::Fails);
        assert!(held >= 0.95 && failed >= 0.95, "{held} {failed}");
    }

    #[test]
    fn figure_that_is_always_its_bound_keeps_to_it() {
        let same = |value| (1..=6).map(move |trial| Sample { trial, value, line: None });
        let of = |value, bound| {
            Verdict::of(bound, &Summary::of(&same(value).collect::<Vec<_>>()).unwrap())
        };
        let both = Bound { at_least: Some(1.0), at_most: Some(1.0) };
        assert_eq!(of(1.0, both), Verdict::Holds);
        assert_eq!((of(0.9, both), of(1.1, both)), (Verdict::Fails, Verdict::Fails));
    }
}
