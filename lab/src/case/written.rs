//! Case files as they are written, and checked.

mod workload;

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::time::Duration;

use host::config::Source;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use self::workload::{WrittenPlanned, WrittenWorkload};
use super::claim::WrittenClaim;
use super::wrong::{At, Wrong, check_all, check_each, span};
use super::{Case, CaseSystem, Form, Knee, ReadTable, SECONDS_MAX, Screen, TRIALS_MAX, Table};
use crate::case::Breakdown;
use crate::definition::MetricDef;
use crate::factor::{BINARY, Factor, Factors, Level, OPEN, SYSTEM};
use crate::metric::renamed;
use crate::placement::Placements;
use crate::published::{About, Published};

/// A case file. What the checks leave as it is has the type that a [`Case`] has.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    name: String,
    group: Option<String>,
    asks: String,
    workload: Option<WrittenWorkload>,
    planned: Option<WrittenPlanned>,
    trials: u32,
    seconds: f64,
    warm_up_seconds: f64,
    interval_ms: Option<u64>,
    system: Option<String>,
    #[serde(default)]
    skip: Vec<Factors>,
    #[serde(default)]
    place: Placements,
    #[serde(default)]
    factors: BTreeMap<String, Vec<Level>>,
    #[serde(default)]
    quick: Form,
    as_published: Option<Form>,
    #[serde(default, deserialize_with = "names")]
    full: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    published: Vec<About>,
    #[serde(default)]
    metric: Vec<MetricDef>,
    #[serde(default)]
    table: Vec<Table>,
    #[serde(default)]
    knee: Vec<Knee>,
    #[serde(default)]
    breakdown: Vec<Breakdown>,
    #[serde(default)]
    claim: Vec<WrittenClaim>,
    #[serde(default)]
    screen: Screen,
}

/// Reads one entry, or a list of them. An untagged enum would lose the places of what is wrong.
fn one_or_many<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct OneOrMany<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("one entry, or a list of them")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![T::deserialize(StrDeserializer::new(text))?])
        }

        fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Vec<T>, M::Error> {
            Ok(vec![T::deserialize(MapAccessDeserializer::new(map))?])
        }

        fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Vec<T>, S::Error> {
            std::iter::from_fn(|| list.next_element().transpose()).collect()
        }
    }

    deserializer.deserialize_any(OneOrMany(PhantomData))
}

/// Reads a name, or a list of names: at least one, each once.
pub(crate) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names: Vec<String> = one_or_many(deserializer)?;
    if names.is_empty() {
        let right = "must have at least one name, or be left out where that may be";
        return Err(D::Error::custom(format_args!("a list without names: {right}")));
    }
    match (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        Some(at) => Err(D::Error::custom(twice(&names[at]))),
        None => Ok(names),
    }
}

/// A name that is there already.
pub(super) fn twice(name: &str) -> Wrong {
    Wrong::new(format!("{name:?} is named twice"), "must be each once")
}

impl Written {
    /// The case, if it makes sense.
    pub(super) fn case(
        mut self,
        source: &Source,
        read_table: ReadTable<'_>,
    ) -> Result<Case, Wrong> {
        let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if self.name.is_empty() || !self.name.bytes().all(is_in_name) {
            let what = format!("{:?} is no name of a case", self.name);
            return Err(Wrong::new(what, "must be letters, digits, - _ .")).at("name");
        }
        let workload = match (&self.workload, &self.planned) {
            (Some(built), None) => built.find().at("workload")?,
            (None, Some(planned)) => {
                planned.find(&self.factors, &self.quick.factors).at("planned")?
            }
            (found, _) => {
                let what = if found.is_none() { "without a" } else { "with a built and a planned" };
                let right = "must be workload = \"NAME\", several [[workload]], or [planned]";
                return Err(Wrong::new(format!("a case {what} workload"), right)).at("name");
            }
        };
        let varied = self.factors.contains_key(SYSTEM.name).then_some(&SYSTEM);
        let usual = workload.factors.iter().map(|factor| (factor, factor.usual()));
        let mut case = Case {
            workload,
            factors: usual.chain(varied.map(|factor| (factor, Vec::new()))).collect(),
            systems: self.systems(source)?,
            name: self.name,
            group: self.group,
            asks: self.asks,
            place: self.place,
            full: self.full,
            skip: Vec::new(),
            trials: 0,
            warm_up: Duration::ZERO,
            window: Duration::ZERO,
            interval: None,
            quick: Form::default(),
            as_published: None,
            metrics: Vec::new(),
            published: Vec::new(),
            tables: Vec::new(),
            knees: Vec::new(),
            breakdowns: Vec::new(),
            claims: Vec::new(),
            screen: Screen::default(),
            file: source.file().to_owned(),
            text: source.text().into(),
        };
        let mut form = Form {
            trials: Some(self.trials),
            seconds: Some(self.seconds),
            warm_up_seconds: Some(self.warm_up_seconds),
            interval_ms: self.interval_ms,
            factors: self.factors,
        };
        form.check(&case)?;
        case = case.in_form(&form);
        // A factor without usual levels is one that only those cases have which name it.
        case.factors.retain(|(_, levels)| !levels.is_empty());
        case.check_size()?;
        let forms =
            [("quick", Some(&mut self.quick)), ("as_published", self.as_published.as_mut())];
        for (key, form) in forms {
            let Some(form) = form else { continue };
            form.check(&case).and_then(|()| case.clone().in_form(form).check_size()).at(key)?;
        }
        let roles: Vec<&str> = workload.roles.iter().map(|role| role.name).collect();
        if let Some(role) = case.place.keys().find(|role| !roles.contains(&role.as_str())) {
            return Err(Wrong::unknown("role", role, &roles)).at(role).at("place");
        }
        check_each("skip", &mut self.skip, |cells| case.check_levels(cells))?;
        case.skip = self.skip;
        let cells = case.cells_of_both();
        if !case.skip.is_empty() && case.cells().is_empty() {
            let right = "must leave cells to measure";
            return Err(Wrong::new("every cell is skipped", right)).at("skip");
        }
        check_each("metric", &mut self.metric, |metric| metric.check(workload))?;
        for (at, MetricDef { name, .. }) in self.metric.iter().enumerate() {
            if self.metric[..at].iter().any(|other| other.name == *name) {
                let what = format!("two metrics are called {name:?}");
                return Err(Wrong::new(what, "must be each once")).at("name").at(at).at("metric");
            }
        }
        case.metrics = self.metric;
        for (at, mut about) in self.published.into_iter().enumerate() {
            let published = about.check(&case).and_then(|()| {
                let level = |name: &str, text: &str| {
                    case.known_factor(name).expect("it was checked").level(text)
                };
                Published::read(about, &level, read_table).at("name")
            });
            case.published.push(published.at(at).at("published")?);
        }
        check_each("table", &mut self.table, |table| table.check(&case))?;
        check_each("knee", &mut self.knee, |knee| knee.check(&case))?;
        check_each("breakdown", &mut self.breakdown, |breakdown| breakdown.check(&case))?;
        let claims = self.claim.into_iter().enumerate();
        let claims = claims.map(|(at, claim)| claim.claim(&case, &cells).at(at).at("claim"));
        let claims = claims.collect::<Result<_, Wrong>>()?;
        self.screen.check(&case).at("screen")?;
        Ok(Case {
            quick: self.quick,
            as_published: self.as_published,
            tables: self.table,
            knees: self.knee,
            breakdowns: self.breakdown,
            claims,
            screen: self.screen,
            ..case
        })
    }

    /// The systems that a case names: one for all trials, or the levels of the factor `system`.
    fn systems(&self, source: &Source) -> Result<Vec<CaseSystem>, Wrong> {
        let varied = self.factors.get(SYSTEM.name);
        if self.system.is_some() && varied.is_some() {
            let what = "the system stands here and in [factors]";
            return Err(Wrong::new(what, "must be in one of them")).at(SYSTEM.name);
        }
        let varied = varied.into_iter().flatten().map(Level::to_string);
        let mut systems: Vec<CaseSystem> = Vec::new();
        for (at, file) in self.system.iter().cloned().chain(varied).enumerate() {
            let at = at.to_string();
            let path = match self.system {
                Some(_) => &[SYSTEM.name][..],
                None => &["factors", SYSTEM.name, &at],
            };
            let level = match SYSTEM.level(&file) {
                Err(right) => Err(Wrong::new(format!("{} = {file:?}", SYSTEM.name), right)),
                Ok(level) if systems.iter().any(|other| other.level == level) => {
                    let what = format!("two systems are called {:?}", level.to_string());
                    Err(Wrong::new(what, "must be files whose names differ, each once"))
                }
                Ok(level) => Ok(level),
            };
            systems.push(CaseSystem {
                level: path.iter().rev().fold(level, |level, step| level.at(step))?,
                file: (file != OPEN).then(|| source.file().with_file_name(file)),
                span: span(source.text(), path),
            });
        }
        Ok(systems)
    }
}

/// How often parties may keep records. The measured thread keeps them, and one takes some hundredths of a
/// millisecond.
const INTERVAL_MS: RangeInclusive<u64> = 1..=3_600_000;

/// Checks a number of this name, if there is one.
fn check_number<T: PartialOrd + Display + Copy>(
    name: &str,
    found: Option<T>,
    bounds: RangeInclusive<T>,
) -> Result<(), Wrong> {
    match found.filter(|found| !bounds.contains(found)) {
        None => Ok(()),
        Some(found) => {
            let right = format!("must be {} to {}", bounds.start(), bounds.end());
            Err(Wrong::new(format!("{name} = {found}"), right)).at(name)
        }
    }
}

impl Form {
    /// Checks the form of a case.
    pub(crate) fn check(&mut self, case: &Case) -> Result<(), Wrong> {
        check_number("trials", self.trials, 1..=TRIALS_MAX)?;
        check_number("seconds", self.seconds, 0.001..=SECONDS_MAX)?;
        check_number("warm_up_seconds", self.warm_up_seconds, 0.0..=SECONDS_MAX)?;
        check_number("interval_ms", self.interval_ms, INTERVAL_MS)?;
        let check = |name: &str, levels: &mut Vec<Level>| {
            let factor = case.known_factor(name)?;
            if levels.is_empty() {
                let right = format!("must be {}, at least once", factor.domain);
                return Err(Wrong::new(format!("{name} has no levels"), right));
            }
            let mut levels = levels.iter_mut().enumerate();
            levels.try_for_each(|(at, level)| case.check_level(factor, level).at(at))
        };
        check_all(&mut self.factors, check).at("factors")
    }
}

/// What is said of a case, by name. A check writes levels and names of metrics as they are called today.
impl Case {
    /// All factors that the case can have, in the order in which they are shown.
    pub(crate) fn known_factors(&self) -> impl Iterator<Item = &'static Factor> {
        self.workload.factors.iter().chain(self.factor(SYSTEM.name))
    }

    pub(crate) fn known_factor(&self, name: &str) -> Result<&'static Factor, Wrong> {
        among(name, self.known_factors().collect())
    }

    /// A factor of the case, or `binary`.
    pub(super) fn factor_or_binary(&self, name: &str) -> Result<&'static Factor, Wrong> {
        among(name, self.known_factors().chain([&BINARY]).collect())
    }

    pub(super) fn check_factors(&self, names: &[String]) -> Result<(), Wrong> {
        names.iter().try_for_each(|name| self.factor_or_binary(name).map(drop))
    }

    fn check_level(&self, factor: &Factor, level: &mut Level) -> Result<(), Wrong> {
        let text = level.to_string();
        let wrong = |right| Wrong::new(format!("{} = {text:?}", factor.name), right);
        *level = self.level(factor, &text).map_err(wrong)?;
        Ok(())
    }

    pub(super) fn check_levels(&self, levels: &mut Factors) -> Result<(), Wrong> {
        check_all(levels, |name, level| self.check_level(self.factor_or_binary(name)?, level))
    }

    pub(crate) fn check_metric(&self, name: &mut String) -> Result<(), Wrong> {
        let own = self.metrics.iter().map(|metric| metric.name.as_str());
        let known: Vec<&str> = self.workload.metrics().into_iter().chain(own).collect();
        let current = renamed(name);
        if !known.contains(&current.as_str()) {
            return Err(Wrong::unknown("metric", name, &known));
        }
        *name = current;
        Ok(())
    }
}

fn among(name: &str, known: Vec<&'static Factor>) -> Result<&'static Factor, Wrong> {
    let names: Vec<&str> = known.iter().map(|factor| factor.name).collect();
    let found = known.iter().find(|factor| factor.name == name);
    found.copied().ok_or_else(|| Wrong::unknown("factor", name, &names))
}
