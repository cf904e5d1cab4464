//! Claims: what was promised of the figures, and whether it is so here.

use serde::Serialize;
use serde_json::{Value, json};

use super::series::{Found, Series, levels};
use super::{Block, Grid, counted, distinct, joined, numbered};
use crate::case::{Bound, Claim, Comparison, Test};
use crate::factor::{Factors, Level, describe, matches};
use crate::statistics::{Summary, TRIALS_MIN, mixed_rounds};
use crate::unit::{self, Unit, three_digits};

#[cfg(test)]
pub(super) mod tests;

/// What has become of a claim: the worse, the later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
    #[default]
    #[serde(rename = "not measured")]
    NotMeasured,
}

/// A claim, judged by the results of one run. Numbers are in the unit of results, `unit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
    pub of: Option<Comparison>,
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
    /// The figures that judge it, in words.
    #[serde(skip)]
    figures: String,
    /// The bounds, in words.
    #[serde(skip)]
    pub(super) wanted: String,
    /// How many times better it is than it has to be.
    #[serde(skip)]
    margin: f64,
}

/// The words of a line, in their order.
const WORDS: &str = "verdict case claim metric of unit median interval trials at_least at_most interval_reaches failed";

impl Judgement {
    /// One line of words like `key=value`, which a script can rely on: `claim verdict="holds" case="border-64" ..`. What
    /// there is none of is left out.
    pub fn line(&self) -> String {
        let fields = json!(self);
        let number = |number: &Value| number.as_f64().map(three_digits);
        let word = |key: &str| {
            let text = match &fields[key] {
                Value::Null => return None,
                Value::Array(ends) => ends.iter().filter_map(number).collect::<Vec<_>>().join(".."),
                float if float.is_f64() => number(float)?,
                other => other.to_string(),
            };
            Some(format!(" {key}={text}"))
        };
        format!("claim{}", WORDS.split(' ').filter_map(word).collect::<String>())
    }

    /// One that no figure decides.
    fn without(series: &Series<'_>, claim: &Claim, verdict: Verdict, figures: String) -> Judgement {
        let test = claim.test.as_ref();
        let of = test.map(|test| test.comparison);
        let unit = |test: &Test| series.metric(&test.metric).unit().to_owned();
        Judgement {
            case: series.name.to_owned(),
            run: series.records.first().map_or(0, |record| record.run),
            claim: claim.name.clone(),
            verdict,
            metric: test.map(|test| test.metric.clone()),
            of,
            unit: test.filter(|_| of != Some(Comparison::Ratio)).map(unit),
            at_least: test.and_then(|test| test.bound.at_least),
            at_most: test.and_then(|test| test.bound.at_most),
            interval_reaches: test.and_then(|test| test.interval_reaches),
            wanted: test.map(|test| wanted(series, test)).unwrap_or_default(),
            figures,
            ..Judgement::default()
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
}

/// How many claims there are, and what has become of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) all: usize,
    pub(super) hold: usize,
    pub(super) fail: usize,
    pub(super) undecided: usize,
}

impl Tally {
    /// Of all claims of some series.
    pub(super) fn of<'a>(all: impl IntoIterator<Item = &'a Series<'a>>) -> Tally {
        Tally::count(&all.into_iter().flat_map(judgements).collect::<Vec<_>>())
    }

    fn count(all: &[Judgement]) -> Tally {
        let count = |verdict| all.iter().filter(|one| one.verdict == verdict).count();
        Tally {
            all: all.len(),
            hold: count(Verdict::Holds),
            fail: count(Verdict::Fails),
            undecided: count(Verdict::Undecided),
        }
    }

    /// A sentence: `2 of 4 claims hold here, 1 does not, 1 is not measured.`
    pub(super) fn sentence(self) -> String {
        let Tally { all, hold, fail, undecided } = self;
        let rest = numbered(&[
            (fail, "does not", "do not"),
            (undecided, "is undecided", "are undecided"),
            (all - hold - fail - undecided, "is not measured", "are not measured"),
        ]);
        let (claims, verb) = (counted(all, "claim"), if hold == 1 { "holds" } else { "hold" });
        [vec![format!("{hold} of {claims} {verb} here")], rest].concat().join(", ") + "."
    }
}

/// What becomes of the claims of a series: a sentence, and a table.
pub(super) fn claims(series: &Series<'_>) -> Vec<Block> {
    let all = judgements(series);
    let row = |one: &Judgement| {
        let verdict = json!(one.verdict).as_str().map(str::to_owned);
        vec![verdict.unwrap_or_default(), joined(&[&one.claim, &one.figures], "\n")]
    };
    let head = ["here", "claim, and the figures that judge it"];
    let table = Block::Table(Grid::of(&head, 2, all.iter().map(row).collect()));
    match all.len() {
        0 => Vec::new(),
        1 => vec![table],
        _ => vec![Block::Text(Tally::count(&all).sentence()), table],
    }
}

/// Said of a claim that needs two binaries, in a run of one.
const NEEDS_ANOTHER: &str = "compares two binaries: run it with --against PATH";

/// The claims of a series, judged.
pub(super) fn judgements(series: &Series<'_>) -> Vec<Judgement> {
    series.laid_out(|case| &case.claims).iter().map(|claim| judge(series, claim)).collect()
}

fn judge(series: &Series<'_>, claim: &Claim) -> Judgement {
    let test = claim.test.as_ref();
    let mut judgement = test.and_then(|test| judge_all(series, claim, test)).unwrap_or_else(|| {
        let needs_another = !series.is_of_two && test.is_some_and(Test::needs_another);
        let why = match needs_another {
            true => NEEDS_ANOTHER.to_owned(),
            false => test.map(|test| lacks(series, test)).unwrap_or_default(),
        };
        Judgement::without(series, claim, Verdict::NotMeasured, why)
    });
    judgement.figures =
        joined(&[&judgement.figures, claim.note.as_deref().unwrap_or_default()], "\n");
    judgement
}

/// Names the levels that a claim needs and no cell of the series has, and says so if the quick form of the case leaves them out.
fn lacks(series: &Series<'_>, test: &Test) -> String {
    let wanted = distinct(test.sides().flat_map(|side| series.meant(side, &[])));
    let is_there = |(factor, level): &(String, Level)| {
        let wanted = Factors::from([(factor.clone(), level.clone())]);
        series.cells().into_iter().any(|cell| matches(cell, &wanted))
    };
    let lacking: Vec<(String, Level)> =
        wanted.into_iter().filter(|wanted| !is_there(wanted)).collect();
    let is_left_out = |(factor, level): &(String, Level)| {
        let quick = series.case.as_ref().and_then(|case| case.quick.factors.get(factor));
        quick.is_some_and(|levels| !levels.contains(level))
    };
    let named: Vec<String> =
        lacking.iter().map(|(factor, level)| format!("{factor} {level}")).collect();
    match lacking.is_empty() {
        true => String::new(),
        false if lacking.iter().all(is_left_out) => {
            format!("needs {}, which was not run (nor is it with --quick)", named.join(", "))
        }
        false => format!("needs {}, which was not run", named.join(", ")),
    }
}

/// The worst of what is judged; none if nothing can be.
fn judge_all(series: &Series<'_>, claim: &Claim, test: &Test) -> Option<Judgement> {
    let of = series.meant(&test.of, &test.every);
    let cells = series.cells().into_iter().filter(|cell| matches(cell, &of));
    let all = distinct(cells.map(|cell| -> Factors {
        let named = test.every.iter().zip(levels(cell, &test.every));
        named.filter_map(|(factor, level)| Some((factor.clone(), level?))).collect()
    }));
    let judge = |here| judge_at(series, claim, test, here, all.len());
    let judged: Vec<Judgement> = all.iter().filter_map(judge).collect();
    let count = judged.len();
    let mut worst = judged.into_iter().max_by(|one, other| {
        one.verdict.cmp(&other.verdict).then(other.margin.total_cmp(&one.margin))
    })?;
    if !test.every.is_empty() {
        let of = match all.len() {
            levels if levels == count => format!("{count}"),
            levels => format!("{count} of {levels} levels measured,"),
        };
        let which = format!("the worst of {of} by {}: ", test.every.join(", "));
        worst.figures.insert_str(0, &which);
    }
    Some(worst)
}

/// Judges a claim `here`, which is one of so many levels; none if something that it needs was not measured.
fn judge_at(
    series: &Series<'_>,
    claim: &Claim,
    test: &Test,
    here: &Factors,
    levels: usize,
) -> Option<Judgement> {
    // What a side says itself goes before what holds for all.
    let with = |own: &Factors| -> Factors {
        series.meant(&here.clone().into_iter().chain(own.clone()).collect(), &[])
    };
    let wanted: Vec<Factors> = test.sides().map(with).collect();
    let meant = |cell: &&Factors| wanted.iter().any(|wanted| matches(cell, wanted));
    let failed = series.cells().into_iter().filter(meant).map(|cell| series.lost(cell)).sum();
    let undecided = |figures| Judgement {
        failed,
        ..Judgement::without(series, claim, Verdict::Undecided, figures)
    };
    let lost = format!("{} failed: nothing is said of what is missing", counted(failed, "trial"));
    let found = wanted.iter().map(|wanted| series.best_of(&test.metric, wanted));
    let Some(mut sides) = found.collect::<Option<Vec<Found<'_>>>>() else {
        // What failed every time is not what this machine cannot do.
        return (failed > 0).then(|| undecided(lost));
    };
    let of = sides.remove(0);
    // Without anything against it the metric itself is what is bounded.
    let best = sides.into_iter().min_by(Found::best_first(series.metric(&test.metric).better));
    let mixed = best.as_ref().map_or(0, |best| mixed_rounds(&of.samples, &best.samples));
    let rounds = counted(mixed, "round");
    let mixed_line =
        format!("{rounds} left out: the processors were nearer in one trial than in the other");
    let compared =
        |questions| series.compared(&test.metric, test.comparison, &of, best.as_ref(), questions);
    let Some(judged) = compared(1) else {
        return (mixed > 0).then(|| undecided(mixed_line));
    };
    let mut lines = figures(series, test, &judged, &of, best.as_ref());
    if mixed > 0 {
        lines.push(mixed_line);
    }
    let record = series.measured(of.cell).find(|one| one.trial == of.summary.representative);
    lines.extend(test.counters.iter().map(|name| {
        let count = record.and_then(|record| record.counters.get(name)).copied().unwrap_or(0);
        format!("{name} {count}")
    }));
    let mut verdict = Verdict::of(test.bound, &judged);
    if verdict == Verdict::Fails && levels > 1 {
        // One of many is found outside its interval by chance more often than one of twenty.
        if compared(levels).is_none_or(|surer| Verdict::of(test.bound, &surer) != Verdict::Fails) {
            verdict = Verdict::Undecided;
            lines.push(format!(
                "beyond its bound at 95 %, which by chance one of {levels} levels may be"
            ));
        }
    }
    if let (Some(least), Some((_, most))) = (test.interval_reaches, judged.interval)
        && most < least
    {
        verdict = Verdict::Fails;
    }
    if failed > 0 {
        // The worst trials may be the ones that are missing.
        verdict = Verdict::Undecided;
        lines.push(lost);
    }
    Some(Judgement {
        verdict,
        median: Some(judged.median),
        interval: judged.interval,
        trials: judged.trials,
        cell: Some(of.cell.clone()),
        against: best.map(|best| best.cell.clone()),
        margin: test.margin(judged.median),
        ..undecided(lines.join("\n"))
    })
}

/// What is judged, beside what was wanted, and the cells that it is of.
fn figures(
    series: &Series<'_>,
    test: &Test,
    judged: &Summary,
    of: &Found<'_>,
    best: Option<&Found<'_>>,
) -> Vec<String> {
    let (order, metric) = (series.order(), series.metric(&test.metric));
    let side = |found: &Found<'_>| {
        let number = metric.show(found.summary.median);
        format!("{number} ({})", describe(found.cell, &order))
    };
    let unit = unit::for_one(&metric.units, judged.median);
    let number = match test.comparison {
        Comparison::Ratio => format!("ratio {}", with_interval(judged, None, "rounds")),
        Comparison::Difference => format!("{} more", with_interval(judged, Some(unit), "rounds")),
        Comparison::Figure => with_interval(judged, Some(unit), "trials"),
    };
    let sides = match best {
        Some(best) => format!("{} against {}", side(of), side(best)),
        None => describe(of.cell, &order),
    };
    vec![format!("{number}, wanted {}", wanted(series, test)), sides]
}

/// The bounds of a claim, as people read them.
fn wanted(series: &Series<'_>, test: &Test) -> String {
    let metric = series.metric(&test.metric);
    let Bound { at_least, at_most } = test.bound;
    let reaches = ("an interval that reaches", test.interval_reaches);
    let bounds = [("at least", at_least), ("at most", at_most), reaches].into_iter();
    let shown = bounds.filter_map(|(which, bound)| match test.comparison {
        Comparison::Ratio => Some(format!("{which} {}", three_digits(bound?))),
        _ => Some(format!("{which} {}", metric.show(bound?))),
    });
    shown.collect::<Vec<_>>().join(" and ")
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
