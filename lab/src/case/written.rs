//! Case files as they are written, and checked.

mod claim;
mod layout;
mod tables;
mod workload;

use std::collections::BTreeMap;

use std::time::Duration;

use host::config::{FileError, Source};
use host::near::right;
use serde::Deserialize;
use toml::Spanned;

use self::claim::WrittenClaim;
use self::layout::{WrittenBreakdown, WrittenKnee, WrittenScreen, WrittenTable};
use self::tables::WrittenTables;
use self::workload::{WrittenPlanned, WrittenWorkload};
use super::metric::WrittenMetric;
use super::{
    Case, CaseSystem, Quick, ReadTable, SECONDS_MAX, TRIALS_MAX, Test, check_product,
    check_records, level_of,
};
use crate::definition::MetricDef;
use crate::factor::{BINARY, Factor, Factors, Level, OPEN, SYSTEM, matches};
use crate::metric::renamed;
use crate::placement::{Placement, Placements};
use crate::published::Published;
use crate::workload::Workload;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    name: Spanned<String>,
    group: Option<String>,
    asks: String,
    workload: Option<Spanned<WrittenWorkload>>,
    planned: Option<WrittenPlanned>,
    trials: Spanned<u32>,
    seconds: Spanned<f64>,
    warm_up_seconds: Spanned<f64>,
    interval_ms: Option<Spanned<u64>>,
    system: Option<Spanned<String>>,
    skip: Option<Spanned<Vec<WrittenLevels>>>,
    #[serde(default)]
    place: WrittenPlaces,
    #[serde(default)]
    factors: WrittenFactors,
    #[serde(default)]
    quick: WrittenQuick,
    as_published: Option<WrittenQuick>,
    full: Option<Spanned<OneOrMany>>,
    #[serde(default)]
    published: WrittenTables,
    #[serde(default)]
    metric: Vec<WrittenMetric>,
    #[serde(default)]
    table: Vec<WrittenTable>,
    #[serde(default)]
    knee: Vec<WrittenKnee>,
    #[serde(default)]
    breakdown: Vec<WrittenBreakdown>,
    #[serde(default)]
    claim: Vec<WrittenClaim>,
    screen: Option<WrittenScreen>,
}

type WrittenFactors = BTreeMap<Spanned<String>, Spanned<Vec<Spanned<Level>>>>;
type WrittenPlaces = BTreeMap<Spanned<String>, Placement>;
type WrittenLevels = BTreeMap<Spanned<String>, Spanned<Level>>;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenQuick {
    trials: Option<Spanned<u32>>,
    seconds: Option<Spanned<f64>>,
    warm_up_seconds: Option<Spanned<f64>>,
    interval_ms: Option<Spanned<u64>>,
    #[serde(default)]
    factors: WrittenFactors,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a name, or a list of names")]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    /// Each name.
    fn all(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            OneOrMany::One(name) => std::slice::from_ref(name),
            OneOrMany::Many(names) => names,
        };
        names.iter().map(String::as_str)
    }

    /// Each name, all of them at the place of the list.
    pub(super) fn names(written: Spanned<OneOrMany>) -> Vec<Spanned<String>> {
        let span = written.span();
        let names = match written.into_inner() {
            OneOrMany::One(name) => vec![name],
            OneOrMany::Many(names) => names,
        };
        names.into_iter().map(|name| Spanned::new(span.clone(), name)).collect()
    }
}

impl Written {
    pub(super) fn case(
        self,
        source: &Source,
        read_table: ReadTable<'_>,
    ) -> Result<Case, FileError> {
        let name = self.name.get_ref();
        let is_named = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_named {
            let what = format!("{name:?} is no name of a case");
            return Err(source.error(self.name.span(), what, "must be letters, digits, - _ ."));
        }
        let (workload, span) = match (&self.workload, &self.planned) {
            (Some(built), None) => (built.get_ref().find(source, built.span())?, built.span()),
            (None, Some(planned)) => {
                (planned.find(source, &self.factors, &self.quick.factors)?, planned.workload.span())
            }
            (found, _) => {
                let what = if found.is_none() {
                    "a case without a"
                } else {
                    "a case with a built and a planned"
                };
                let right = "must be workload = \"NAME\", several [[workload]], or [planned]";
                return Err(source.error(self.name.span(), format!("{what} workload"), right));
            }
        };
        for (at, metric) in self.metric.iter().enumerate() {
            let name = &metric.name;
            if self.metric[..at].iter().any(|other| other.name.get_ref() == name.get_ref()) {
                let what = format!("two metrics are called {:?}", name.get_ref());
                return Err(source.error(name.span(), what, "must be each once"));
            }
        }
        let metrics = self.metric.into_iter().map(|metric| metric.check(source, workload));
        let metrics = metrics.collect::<Result<Vec<_>, _>>()?;
        let varied = self.factors.iter().find(|(name, _)| name.get_ref() == SYSTEM.name);
        let varied = varied.map(|(_, levels)| levels);
        let systems = systems(source, self.system.as_ref(), varied)?;
        let is_varied = varied.is_some();
        let checker = Checker { source, workload, metrics: &metrics, systems: &systems, is_varied };
        let trials = checker.trials(&self.trials)?;
        let window = checker.window(&self.seconds)?;
        let warm_up = checker.warm_up(&self.warm_up_seconds)?;
        let factors = checker.factors(&self.factors)?;
        let skip =
            self.skip.iter().flat_map(|skip| skip.get_ref()).map(|cells| checker.levels(cells));
        let skip = skip.collect::<Result<_, _>>()?;
        let quick = checker.quick(&self.quick)?;
        let as_published =
            self.as_published.as_ref().map(|form| checker.quick(form)).transpose()?;
        let forms = || std::iter::once(&quick).chain(&as_published);
        let levels = forms().map(|form| form.levels(&factors));
        for levels in std::iter::once(factors.clone()).chain(levels) {
            if let Err((what, right)) = check_product(&levels) {
                return Err(source.error(span.clone(), what, right));
            }
        }
        let full = self.full.map(|full| checker.names(full)).transpose()?.unwrap_or_default();
        let place = checker.places(&self.place)?;
        let of_case = self.interval_ms.as_ref();
        let interval = of_case.map(|written| checker.interval(written)).transpose()?;
        let own = [(None, of_case), (Some(&quick), self.quick.interval_ms.as_ref())].into_iter();
        let own = own.chain(
            self.as_published
                .as_ref()
                .zip(as_published.as_ref())
                .map(|(written, form)| (Some(form), written.interval_ms.as_ref())),
        );
        for (form, written) in own {
            let interval = form.and_then(|form| form.interval).or(interval);
            let window = form.and_then(|form| form.window).unwrap_or(window);
            if let Some((interval, written)) = interval.zip(written.or(of_case)) {
                let checked = check_records(interval, window);
                checked.map_err(|(what, right)| source.error(written.span(), what, right))?;
            }
        }
        let published =
            self.published.0.into_iter().map(|table| checker.published(table, read_table));
        let published = published.collect::<Result<Vec<Published>, _>>()?;
        let names: Vec<&str> = published.iter().map(|table| table.name.as_str()).collect();
        let tables = self.table.into_iter().map(|table| checker.table(table, &names));
        let tables = tables.collect::<Result<_, _>>()?;
        let knees = self.knee.into_iter().map(|knee| checker.knee(knee));
        let knees = knees.collect::<Result<_, _>>()?;
        let breakdowns = self.breakdown.into_iter().map(|breakdown| checker.breakdown(breakdown));
        let breakdowns = breakdowns.collect::<Result<_, _>>()?;
        let claims = self.claim.into_iter().map(|claim| checker.claim(claim));
        let claims = claims.collect::<Result<Vec<_>, _>>()?;
        let screen = self.screen.map(|screen| checker.screen(screen)).transpose()?;
        let case = Case {
            name: self.name.into_inner(),
            group: self.group,
            asks: self.asks,
            workload,
            factors,
            skip,
            trials,
            warm_up,
            window,
            metrics: metrics.clone(),
            interval,
            place,
            systems: systems.clone(),
            tables,
            knees,
            breakdowns,
            published,
            screen: screen.unwrap_or_default(),
            quick,
            as_published,
            full: full.into_iter().map(Spanned::into_inner).collect(),
            claims: claims.iter().map(|(claim, _)| claim.clone()).collect(),
            file: source.file().to_owned(),
            text: source.text().into(),
        };
        if let Some(skip) = self.skip.filter(|_| case.cells().is_empty()) {
            let right = "must leave cells to measure";
            return Err(source.error(skip.span(), "every cell is skipped", right));
        }
        let cells = case.cells_of_both();
        for (claim, span) in claims {
            for side in claim.test.iter().flat_map(Test::sides) {
                if !cells.iter().any(|cell| matches(cell, side)) {
                    let what = format!(
                        "nothing is measured with {}",
                        crate::factor::describe(side, &case.order())
                    );
                    return Err(source.error(
                        span,
                        what,
                        "must be levels of the factors above that go together",
                    ));
                }
            }
        }
        Ok(case)
    }
}

pub(super) fn unknown(
    source: &Source,
    kind: &str,
    written: &Spanned<String>,
    known: &[&str],
) -> FileError {
    let what = format!("there is no {kind} {:?}", written.get_ref());
    source.error(written.span(), what, right(written.get_ref(), known))
}

/// The systems that a case names: one for all trials, or the levels of the factor `system`.
fn systems(
    source: &Source,
    only: Option<&Spanned<String>>,
    varied: Option<&Spanned<Vec<Spanned<Level>>>>,
) -> Result<Vec<CaseSystem>, FileError> {
    if let (Some(only), Some(_)) = (only, varied) {
        let what = "the system stands here and in [factors]";
        return Err(source.error(only.span(), what, "must be in one of them"));
    }
    let varied = varied.iter().flat_map(|levels| levels.get_ref());
    let varied = varied.map(|level| (level.get_ref().to_string(), level.span()));
    let only = only.map(|file| (file.get_ref().clone(), file.span()));
    let mut systems: Vec<CaseSystem> = Vec::new();
    for (written, span) in only.into_iter().chain(varied) {
        let level = SYSTEM.level(&written).map_err(|right| {
            source.error(span.clone(), format!("{} = {written:?}", SYSTEM.name), right)
        })?;
        if systems.iter().any(|other| other.level == level) {
            let what = format!("two systems are called {:?}", level.to_string());
            let right = "must be files whose names differ, each once";
            return Err(source.error(span, what, right));
        }
        let file = (written != OPEN).then(|| source.file().with_file_name(written));
        systems.push(CaseSystem { level, file, span });
    }
    Ok(systems)
}

/// How often parties may keep records. The measured thread keeps them, and one takes some hundredths of a
/// millisecond.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;

/// Checks what is said of a workload.
struct Checker<'a> {
    source: &'a Source,
    workload: &'static Workload,
    /// Those of the case itself.
    metrics: &'a [MetricDef],
    systems: &'a [CaseSystem],
    /// Whether the case has the factor `system`.
    is_varied: bool,
}

impl Checker<'_> {
    fn trials(&self, written: &Spanned<u32>) -> Result<u32, FileError> {
        let trials = *written.get_ref();
        if (1..=TRIALS_MAX).contains(&trials) {
            return Ok(trials);
        }
        let right = format!("must be 1 to {TRIALS_MAX}");
        Err(self.source.error(written.span(), format!("trials = {trials}"), right))
    }

    fn window(&self, written: &Spanned<f64>) -> Result<Duration, FileError> {
        self.seconds("seconds", written, 0.001)
    }

    fn warm_up(&self, written: &Spanned<f64>) -> Result<Duration, FileError> {
        self.seconds("warm_up_seconds", written, 0.0)
    }

    fn seconds(
        &self,
        field: &str,
        written: &Spanned<f64>,
        least: f64,
    ) -> Result<Duration, FileError> {
        let found = *written.get_ref();
        if (least..=SECONDS_MAX).contains(&found) {
            return Ok(Duration::from_secs_f64(found));
        }
        let right = format!("must be {least} to {SECONDS_MAX}");
        Err(self.source.error(written.span(), format!("{field} = {found}"), right))
    }

    /// All factors of the case, in the order in which they are shown.
    fn known_factors(&self) -> impl Iterator<Item = &'static Factor> {
        self.workload.factors.iter().chain(self.is_varied.then_some(&SYSTEM))
    }

    fn factor(&self, written: &Spanned<String>) -> Result<&'static Factor, FileError> {
        self.factor_among(written, self.known_factors())
    }

    /// A factor of the case, or `binary`.
    fn factor_or_binary(&self, written: &Spanned<String>) -> Result<&'static Factor, FileError> {
        self.factor_among(written, self.known_factors().chain([&BINARY]))
    }

    fn factor_among(
        &self,
        written: &Spanned<String>,
        known: impl Iterator<Item = &'static Factor>,
    ) -> Result<&'static Factor, FileError> {
        let known: Vec<&Factor> = known.collect();
        let found = known.iter().copied().find(|factor| factor.name == written.get_ref());
        let names = || known.iter().map(|factor| factor.name).collect::<Vec<&str>>();
        found.ok_or_else(|| unknown(self.source, "factor", written, &names()))
    }

    fn level(&self, factor: &Factor, written: &Spanned<Level>) -> Result<Level, FileError> {
        let text = written.get_ref().to_string();
        level_of(factor, self.systems, &text).map_err(|right| {
            let what = format!("{} = {text:?}", factor.name);
            self.source.error(written.span(), what, right)
        })
    }

    /// All factors, with the levels that are written or usual.
    fn factors(
        &self,
        written: &WrittenFactors,
    ) -> Result<Vec<(&'static Factor, Vec<Level>)>, FileError> {
        let named = self.named_factors(written)?;
        let levels = |factor: &'static Factor| {
            let levels = named.iter().find(|(name, _)| name == factor.name);
            (factor, levels.map_or_else(|| factor.usual(), |(_, levels)| levels.clone()))
        };
        // A factor without usual levels is one that only those cases have which name it.
        Ok(self.known_factors().map(levels).filter(|(_, levels)| !levels.is_empty()).collect())
    }

    /// The factors that are written, with their levels.
    fn named_factors(
        &self,
        written: &WrittenFactors,
    ) -> Result<Vec<(String, Vec<Level>)>, FileError> {
        let levels = |(name, levels): (&Spanned<String>, &Spanned<Vec<Spanned<Level>>>)| {
            let factor = self.factor(name)?;
            if levels.get_ref().is_empty() {
                let what = format!("{} has no levels", factor.name);
                let right = format!("must be {}, at least once", factor.domain);
                return Err(self.source.error(levels.span(), what, right));
            }
            let levels = levels.get_ref().iter().map(|level| self.level(factor, level));
            Ok((factor.name.to_owned(), levels.collect::<Result<_, _>>()?))
        };
        written.iter().map(levels).collect()
    }

    fn interval(&self, written: &Spanned<u64>) -> Result<Duration, FileError> {
        let found = *written.get_ref();
        if INTERVAL_MS.contains(&found) {
            return Ok(Duration::from_millis(found));
        }
        let right = format!("must be {} to {}", INTERVAL_MS.start(), INTERVAL_MS.end());
        Err(self.source.error(written.span(), format!("interval_ms = {found}"), right))
    }

    fn places(&self, written: &WrittenPlaces) -> Result<Placements, FileError> {
        let known: Vec<&str> = self.workload.roles.iter().map(|role| role.name).collect();
        let place = |(role, place): (&Spanned<String>, &Placement)| {
            if known.contains(&role.get_ref().as_str()) {
                return Ok((role.get_ref().clone(), *place));
            }
            Err(unknown(self.source, "role", role, &known))
        };
        written.iter().map(place).collect()
    }

    fn quick(&self, written: &WrittenQuick) -> Result<Quick, FileError> {
        let WrittenQuick { trials, seconds, warm_up_seconds, interval_ms, factors } = written;
        Ok(Quick {
            trials: trials.as_ref().map(|trials| self.trials(trials)).transpose()?,
            window: seconds.as_ref().map(|seconds| self.window(seconds)).transpose()?,
            warm_up: warm_up_seconds.as_ref().map(|seconds| self.warm_up(seconds)).transpose()?,
            interval: interval_ms.as_ref().map(|interval| self.interval(interval)).transpose()?,
            factors: self.named_factors(factors)?,
        })
    }

    fn levels(&self, written: &WrittenLevels) -> Result<Factors, FileError> {
        let level = |(name, level): (&Spanned<String>, &Spanned<Level>)| {
            let factor = self.factor_or_binary(name)?;
            Ok((factor.name.to_owned(), self.level(factor, level)?))
        };
        written.iter().map(level).collect()
    }

    fn metric(&self, written: &Spanned<String>) -> Result<String, FileError> {
        let own = self.metrics.iter().map(|metric| metric.name.as_str());
        let known: Vec<&str> = self.workload.metrics.iter().copied().chain(own).collect();
        let name = renamed(written.get_ref());
        if known.contains(&name.as_str()) {
            return Ok(name);
        }
        Err(unknown(self.source, "metric", written, &known))
    }

    /// Names, at least one, each once.
    fn names(&self, written: Spanned<OneOrMany>) -> Result<Vec<Spanned<String>>, FileError> {
        let span = written.span();
        let names = OneOrMany::names(written);
        if names.is_empty() {
            let right = "must have at least one name, or be left out where that may be";
            return Err(self.source.error(span, "a list without names", right));
        }
        self.each_once(&names)?;
        Ok(names)
    }

    fn each_once(&self, names: &[Spanned<String>]) -> Result<(), FileError> {
        for (at, name) in names.iter().enumerate() {
            if names[..at].iter().any(|other| other.get_ref() == name.get_ref()) {
                let what = format!("{:?} is named twice", name.get_ref());
                return Err(self.source.error(name.span(), what, "must be each once"));
            }
        }
        Ok(())
    }

    fn factor_names(&self, written: Option<Spanned<OneOrMany>>) -> Result<Vec<String>, FileError> {
        let names = written.map(|written| self.names(written)).transpose()?.unwrap_or_default();
        names.iter().map(|name| Ok(self.factor_or_binary(name)?.name.to_owned())).collect()
    }
}
