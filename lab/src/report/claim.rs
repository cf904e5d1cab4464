//! Claims: what was promised of the figures, and whether it is so here.

use serde::Serialize;

use super::series::{Found, Series, compared_by_rounds, levels};
use super::{Block, Grid};
use crate::case::{Bound, Claim, Comparison, Test};
use crate::factor::{Factors, describe, matches};
use crate::statistics::{Summary, TRIALS_MIN, interval_of_many, mixed_rounds};
use crate::unit::{self, Unit, three_digits};

/// What has become of a claim: the worse, the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// The whole interval keeps to the bound.
    #[serde(rename = "holds")]
    Holds,
    /// The interval has the bound in it, there are too few trials for one, or trials failed.
    #[serde(rename = "undecided")]
    Undecided,
    /// The whole interval lies beyond the bound.
    #[serde(rename = "does not hold")]
    Fails,
    /// Something that the claim needs was not measured.
    #[serde(rename = "not measured")]
    NotMeasured,
}

/// What a claim bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bounded {
    /// The ratio of two cells, by rounds.
    Ratio,
    /// The difference of two cells, by rounds.
    Difference,
    /// The figure of one cell.
    Figure,
}

/// A claim, judged by the results of one run. Numbers are in the unit of results, `unit`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// Of which case.
    pub case: String,
    /// When the run began, in milliseconds since 1970.
    pub run: u64,
    /// The claim's name.
    pub claim: String,
    /// What has become of it.
    pub verdict: Verdict,
    /// The metric; none of a claim that says why nothing is measured.
    pub metric: Option<String>,
    /// What is bounded.
    pub of: Option<Bounded>,
    /// The unit of the numbers; none of a ratio.
    pub unit: Option<String>,
    /// The median of the trials or rounds.
    pub median: Option<f64>,
    /// Where the true median lies, with a certainty of at least 95 %; none below six trials.
    pub interval: Option<(f64, f64)>,
    /// How many trials or rounds the median is of.
    pub trials: usize,
    /// What the interval has to reach at least.
    pub at_least: Option<f64>,
    /// What it may reach at most.
    pub at_most: Option<f64>,
    /// What the upper end of the interval has to reach.
    pub interval_reaches: Option<f64>,
    /// The deciding cell: of those that the claim is judged at the worst.
    pub cell: Option<Factors>,
    /// What that is compared with.
    pub against: Option<Factors>,
    /// Trials of both that have no figure, because they failed.
    pub failed: usize,
}

impl Judgement {
    /// One line of words like `key=value`, which a script can rely on: `claim verdict="holds" case="border-64" ..`. What
    /// there is none of is left out.
    pub fn line(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let word = |key: &str, text: Option<String>| text.map(|text| format!(" {key}={text}"));
        let number = |key, number: Option<f64>| word(key, number.map(three_digits));
        let interval = self
            .interval
            .map(|(least, most)| format!("{}..{}", three_digits(least), three_digits(most)));
        let words = [
            word("verdict", Some(quoted(self.verdict.words()))),
            word("case", Some(quoted(&self.case))),
            word("claim", Some(quoted(&self.claim))),
            word("metric", self.metric.as_deref().map(quoted)),
            word("of", self.of.map(|of| quoted(of.word()))),
            word("unit", self.unit.as_deref().map(quoted)),
            number("median", self.median),
            word("interval", interval),
            word("trials", Some(self.trials.to_string())),
            number("at_least", self.at_least),
            number("at_most", self.at_most),
            number("interval_reaches", self.interval_reaches),
            word("failed", Some(self.failed.to_string())),
        ];
        format!("claim{}", words.into_iter().flatten().collect::<String>())
    }
}

impl Bounded {
    fn of(test: &Test) -> Bounded {
        match test.comparison {
            _ if test.against.is_empty() => Bounded::Figure,
            Comparison::Ratio => Bounded::Ratio,
            Comparison::Difference => Bounded::Difference,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Bounded::Ratio => "ratio",
            Bounded::Difference => "difference",
            Bounded::Figure => "figure",
        }
    }
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
    Tally::of(claims_of(series).iter().map(|claim| judge(series, claim).verdict))
}

/// The claims of a series, judged.
pub(super) fn judgements(series: &Series<'_>) -> Vec<Judgement> {
    let run = series.records.first().map_or(0, |record| record.run);
    let judgement = |claim: &Claim| {
        let Judged { verdict, found, sides, lost, .. } = judge(series, claim);
        let (test, mut sides) = (claim.test.as_ref(), sides.into_iter());
        let of = test.map(Bounded::of);
        let unit = |test: &Test| series.metric(&test.metric).unit().to_owned();
        Judgement {
            case: series.name.to_owned(),
            run,
            claim: claim.name.clone(),
            verdict,
            metric: test.map(|test| test.metric.clone()),
            of,
            unit: test.filter(|_| of != Some(Bounded::Ratio)).map(unit),
            median: found.map(|found| found.median),
            interval: found.and_then(|found| found.interval),
            trials: found.map_or(0, |found| found.trials),
            at_least: test.and_then(|test| test.bound.at_least),
            at_most: test.and_then(|test| test.bound.at_most),
            interval_reaches: test.and_then(|test| test.interval_reaches),
            cell: sides.next(),
            against: sides.next(),
            failed: lost,
        }
    };
    claims_of(series).iter().map(judgement).collect()
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
    let judged: Vec<Judged> = claims.iter().map(|claim| judge(series, claim)).collect();
    let row = |(claim, judged): (&Claim, &Judged)| {
        let lines = [&*claim.name, &*judged.figures].into_iter().filter(|line| !line.is_empty());
        vec![judged.verdict.words().to_owned(), lines.collect::<Vec<_>>().join("\n")]
    };
    let tally = Tally::of(judged.iter().map(|judged| judged.verdict));
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
fn judge(series: &Series<'_>, claim: &Claim) -> Judged {
    let judged = claim.test.as_ref().and_then(|test| judge_all(series, test));
    let mut judged = judged.unwrap_or_else(|| {
        let needs_another =
            !series.is_of_two && claim.test.as_ref().is_some_and(Test::needs_another);
        let why = if needs_another { NEEDS_ANOTHER } else { "" };
        Judged { figures: why.to_owned(), ..Judged::without(Verdict::NotMeasured) }
    });
    let lines = [Some(&judged.figures), claim.note.as_ref()];
    let lines: Vec<&str> =
        lines.into_iter().flatten().map(String::as_str).filter(|line| !line.is_empty()).collect();
    judged.figures = lines.join("\n");
    judged
}

/// The worst of what is judged; none if nothing can be.
fn judge_all(series: &Series<'_>, test: &Test) -> Option<Judged> {
    let mut all: Vec<Factors> = Vec::new();
    let of = series.meant(&test.of, &test.every);
    for cell in series.cells().into_iter().filter(|cell| matches(cell, &of)) {
        let named = test.every.iter().zip(levels(cell, &test.every));
        let here = named.filter_map(|(factor, level)| Some((factor.clone(), level?))).collect();
        if !all.contains(&here) {
            all.push(here);
        }
    }
    let judged: Vec<Judged> =
        all.iter().filter_map(|here| judge_at(series, test, here, all.len())).collect();
    let (count, levels) = (judged.len(), all.len());
    let worst = |one: &Judged, other: &Judged| {
        one.verdict.cmp(&other.verdict).then(other.margin.total_cmp(&one.margin))
    };
    let mut judged = judged.into_iter().max_by(worst)?;
    let which = if test.every.is_empty() {
        String::new()
    } else {
        let of = match count == levels {
            true => format!("{count}"),
            false => format!("{count} of {levels} levels measured,"),
        };
        format!("the worst of {of} by {}: ", test.every.join(", "))
    };
    judged.figures.insert_str(0, &which);
    Some(judged)
}

/// A claim, judged at one level of the factors that it is judged by.
struct Judged {
    verdict: Verdict,
    /// How many times better it is than it has to be.
    margin: f64,
    figures: String,
    /// What is bounded, as far as there are figures.
    found: Option<Summary>,
    /// The deciding cell, and what it is compared with.
    sides: Vec<Factors>,
    /// Trials of both that have no figure.
    lost: usize,
}

impl Judged {
    /// One that no figure decides.
    fn without(verdict: Verdict) -> Judged {
        let (figures, sides) = (String::new(), Vec::new());
        Judged { verdict, margin: 0.0, figures, found: None, sides, lost: 0 }
    }
}

/// Judges a claim `here`, which is one of so many levels; none if something that it needs was not measured.
fn judge_at(series: &Series<'_>, test: &Test, here: &Factors, levels: usize) -> Option<Judged> {
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
        let undecided = || Judged { figures, lost, ..Judged::without(Verdict::Undecided) };
        return (lost > 0).then(undecided);
    };
    let of = sides.remove(0);
    let best = series.best(&test.metric, |cell| sides.iter().any(|side| side.cell == cell));
    let mixed = best.as_ref().map_or(0, |best| mixed_rounds(&of.samples, &best.samples));
    // Without anything against it the metric itself is what is bounded.
    let (judged, mut figures) = match &best {
        Some(best) => {
            let compared = series.compared(&test.metric, test.comparison, [&of, best]);
            let Some(compared) = compared else {
                let figures = mixed_line(mixed);
                let undecided = || Judged { figures, lost, ..Judged::without(Verdict::Undecided) };
                return (mixed > 0).then(undecided);
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
    if verdict == Verdict::Fails && levels > 1 {
        let samples = match &best {
            Some(best) => compared_by_rounds(test.comparison, [&of, best]),
            None => of.samples.clone(),
        };
        // One of many is found outside its interval by chance more often than one of twenty.
        let interval = match judged.is_pooled {
            true => series.pooled_of_many(
                &test.metric,
                test.comparison,
                [Some(&of), best.as_ref()],
                levels,
            ),
            false => interval_of_many(&samples, levels),
        };
        let surer = Summary { interval, ..judged };
        if Verdict::of(test.bound, &surer) != Verdict::Fails {
            verdict = Verdict::Undecided;
            figures += &format!(
                "\nbeyond its bound at 95 %, which by chance one of {levels} levels may be"
            );
        }
    }
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
    let sides = std::iter::once(&of).chain(&best).map(|side| side.cell.clone()).collect();
    let margin = test.margin(judged.median);
    Some(Judged { verdict, margin, figures, found: Some(judged), sides, lost })
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
    let Summary { min, max, trials, is_pooled, .. } = *summary;
    let rounds = if is_pooled { &format!("{rounds} together") } else { rounds };
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
pub(super) mod tests {
    use super::*;
    use crate::random::Random;
    use crate::statistics::Sample;

    const RUNS: u32 = 10_000;

    /// Draws noise whose median is 0 and whose standard deviation is about 1 without outliers.
    pub(in crate::report) type Noise = fn(&mut Random) -> f64;

    fn uniform(random: &mut Random) -> f64 {
        (random.below(1 << 40) as f64 + 0.5) / (1_u64 << 40) as f64
    }

    pub(in crate::report) fn normal(random: &mut Random) -> f64 {
        (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
    }

    pub(in crate::report) fn skewed(random: &mut Random) -> f64 {
        -uniform(random).ln() - std::f64::consts::LN_2
    }

    pub(in crate::report) fn with_outliers(random: &mut Random) -> f64 {
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
