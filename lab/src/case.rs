//! Case files: what to measure, how to show it, and what is claimed of it.
//!
//! ```toml
//! name = "message-stream"             # what it is called
//! group = "messages"                  # what it is run with, if that is asked for
//! asks = "How many, how fast?"        # what it is for, in one sentence
//! workload = "message-stream"         # what is done
//! trials = 3
//! seconds = 0.25                      # how long each counts
//! warm_up_seconds = 0.1               # how long it is done before
//! system = "../systems/two.toml"      # guests SOURCE and TARGET; left out: a host that allows everything
//!
//! [factors]                           # what is varied; those left out have their usual levels
//! transport = ["path", "unix-stream", "pipe"]
//! bytes = [64, "4 KiB"]
//!
//! [[table]]
//! metric = "rate_messages_per_s"      # one, or several beside each other
//! each = "bytes"                      # a table for each of its levels; left out: one table
//! down = "transport"                  # one factor, or several: ["transport", "wait"]
//! across = "wait"                     # columns for each of its levels; left out: one column
//! only = { wait = "adaptive" }        # which cells; left out: all
//! base = { transport = "pipe" }       # what ratios and deltas are against
//! show = ["absolute", "ratio"]        # or "delta"; left out: absolute
//!
//! [[claim]]
//! name = "a path is much faster than the best peer"
//! metric = "rate_messages_per_s"
//! of = { transport = "path", bytes = 64 }
//! against = [{ transport = "unix-stream", bytes = 64 }, { transport = "pipe", bytes = 64 }]
//! at_least = 10                       # or at_most; the ratio, or without against the metric itself
//! counters = ["source_output_packs"]  # what shows why
//! ```
//!
//! Where a table or a claim leaves a factor open, the best of its levels counts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host::config::{FileError, Source};
use serde::Deserialize;
use toml::Spanned;

use crate::factor::{Factor, Factors, Level, matches};
use crate::workload::{self, WORKLOADS, Workload};

/// Trials of each cell that a case may ask for.
pub const TRIALS_MAX: u32 = 1000;

/// The longest that a trial may count.
pub const SECONDS_MAX: f64 = 3600.0;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is called.
    pub name: String,
    /// What it is run with.
    pub group: Option<String>,
    /// What it is for.
    pub asks: String,
    /// What is done.
    pub workload: &'static Workload,
    /// What is varied, and over which levels.
    pub factors: Vec<(&'static Factor, Vec<Level>)>,
    /// How often each cell is measured.
    pub trials: u32,
    /// How long it is done before it counts.
    pub warm_up: Duration,
    /// How long it counts.
    pub window: Duration,
    /// The system file. In a case file it stands as seen from there.
    pub system: Option<PathBuf>,
    /// How the results are shown.
    pub tables: Vec<Table>,
    /// What is claimed of them.
    pub claims: Vec<Claim>,
    /// The case, as it was written.
    pub text: Arc<str>,
}

/// How results are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Which metrics, beside each other.
    pub metrics: Vec<String>,
    /// Whose levels have a table each.
    pub each: Vec<String>,
    /// Whose levels go down.
    pub down: Vec<String>,
    /// Whose levels go across.
    pub across: Vec<String>,
    /// Which cells.
    pub only: Factors,
    /// What ratios and deltas are against.
    pub base: Option<Factors>,
    /// What is printed.
    pub show: Vec<Show>,
}

/// What a table shows of its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Show {
    /// The metric.
    Absolute,
    /// How many times the base's it is.
    Ratio,
    /// How much more or less it is than the base's.
    Delta,
}

/// What is claimed of results.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// In words.
    pub name: String,
    /// Of which metric.
    pub metric: String,
    /// Of which cells.
    pub of: Factors,
    /// Against the best of these; none if the metric itself is bounded.
    pub against: Vec<Factors>,
    /// The bound.
    pub bound: Bound,
    /// Counters that show why.
    pub counters: Vec<String>,
}

/// What a ratio, or a metric, has to keep to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Bound {
    /// The number.
    pub fn number(self) -> f64 {
        match self {
            Bound::AtLeast(number) | Bound::AtMost(number) => number,
        }
    }

    /// Whether something keeps to it.
    pub fn holds(self, found: f64) -> bool {
        match self {
            Bound::AtLeast(least) => found >= least,
            Bound::AtMost(most) => found <= most,
        }
    }
}

impl Case {
    /// Reads a case file.
    ///
    /// # Errors
    /// [`FileError`]: where, what is wrong, what would be right.
    pub fn read(file: &Path) -> Result<Case, FileError> {
        Case::parse(&Source::read(file)?)
    }

    /// Takes the text of a case file apart.
    ///
    /// # Errors
    /// As [`Case::read`].
    pub fn parse(source: &Source) -> Result<Case, FileError> {
        let written: Written = source.parse()?;
        written.case(source)
    }

    /// Everything that is measured: all combinations of levels that make sense, each once. Those that
    /// differ in the first factor are neighbours.
    pub fn cells(&self) -> Vec<Factors> {
        let mut combinations = vec![Factors::new()];
        for (factor, levels) in self.factors.iter().rev() {
            let with = |combination: &Factors| {
                let combination = combination.clone();
                levels.iter().map(move |level| {
                    let mut more = combination.clone();
                    more.insert(factor.name.to_owned(), level.clone());
                    more
                })
            };
            combinations = combinations.iter().flat_map(with).collect();
        }
        let mut cells: Vec<Factors> = Vec::new();
        for mut cell in combinations {
            (self.workload.fit)(&mut cell);
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: Spanned<String>,
    group: Option<String>,
    asks: String,
    workload: Spanned<String>,
    trials: Spanned<u32>,
    seconds: Spanned<f64>,
    warm_up_seconds: Spanned<f64>,
    system: Option<PathBuf>,
    #[serde(default)]
    factors: WrittenFactors,
    #[serde(default)]
    table: Vec<WrittenTable>,
    #[serde(default)]
    claim: Vec<WrittenClaim>,
}

type WrittenFactors = BTreeMap<Spanned<String>, Spanned<Vec<Spanned<Level>>>>;
type WrittenLevels = BTreeMap<Spanned<String>, Spanned<Level>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTable {
    metric: Spanned<OneOrMany>,
    each: Option<Spanned<OneOrMany>>,
    down: Spanned<OneOrMany>,
    across: Option<Spanned<OneOrMany>>,
    #[serde(default)]
    only: WrittenLevels,
    base: Option<Spanned<WrittenLevels>>,
    show: Option<Spanned<Vec<Show>>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a name, or a list of names")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    /// Each name, all of them at the place of the list.
    fn names(written: Spanned<OneOrMany>) -> Vec<Spanned<String>> {
        let span = written.span();
        let names = match written.into_inner() {
            OneOrMany::One(name) => vec![name],
            OneOrMany::Many(names) => names,
        };
        names.into_iter().map(|name| Spanned::new(span.clone(), name)).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenClaim {
    name: Spanned<String>,
    metric: Spanned<String>,
    of: WrittenLevels,
    #[serde(default)]
    against: Vec<WrittenLevels>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    #[serde(default)]
    counters: Vec<String>,
}

impl Written {
    fn case(self, source: &Source) -> Result<Case, FileError> {
        let name = self.name.get_ref();
        let is_named = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_named {
            let what = format!("{name:?} is no name of a case");
            return Err(source.error(self.name.span(), what, "must be letters, digits, - _ ."));
        }
        let workload = workload::find(self.workload.get_ref()).ok_or_else(|| {
            let known: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
            unknown(source, "workload", &self.workload, &known)
        })?;
        let trials = *self.trials.get_ref();
        if !(1..=TRIALS_MAX).contains(&trials) {
            let what = format!("trials = {trials}");
            return Err(source.error(
                self.trials.span(),
                what,
                format!("must be 1 to {TRIALS_MAX}"),
            ));
        }
        let window = seconds(source, "seconds", &self.seconds, 0.001)?;
        let warm_up = seconds(source, "warm_up_seconds", &self.warm_up_seconds, 0.0)?;
        let checker = Checker { source, workload };
        let factors = checker.factors(&self.factors)?;
        let tables = self.table.into_iter().map(|table| checker.table(table));
        let tables = tables.collect::<Result<_, _>>()?;
        let claims = self.claim.into_iter().map(|claim| checker.claim(claim));
        let claims = claims.collect::<Result<Vec<_>, _>>()?;
        let case = Case {
            name: self.name.into_inner(),
            group: self.group,
            asks: self.asks,
            workload,
            factors,
            trials,
            warm_up,
            window,
            system: self.system.map(|file| source.file().with_file_name(file)),
            tables,
            claims: claims.iter().map(|(claim, _)| claim.clone()).collect(),
            text: source.text().into(),
        };
        let cells = case.cells();
        for (claim, span) in claims {
            let sides = std::iter::once(&claim.of).chain(&claim.against);
            for side in sides {
                if !cells.iter().any(|cell| matches(cell, side)) {
                    let order = workload.factor_names();
                    let what = format!(
                        "nothing is measured with {}",
                        crate::factor::describe(side, &order)
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

fn seconds(
    source: &Source,
    field: &str,
    written: &Spanned<f64>,
    least: f64,
) -> Result<Duration, FileError> {
    let found = *written.get_ref();
    if (least..=SECONDS_MAX).contains(&found) {
        return Ok(Duration::from_secs_f64(found));
    }
    let what = format!("{field} = {found}");
    Err(source.error(written.span(), what, format!("must be {least} to {SECONDS_MAX}")))
}

fn unknown(source: &Source, kind: &str, written: &Spanned<String>, known: &[&str]) -> FileError {
    let what = format!("there is no {kind} {:?}", written.get_ref());
    source.error(written.span(), what, format!("must be one of {}", known.join(", ")))
}

/// Checks what is said of a workload.
struct Checker<'a> {
    source: &'a Source,
    workload: &'static Workload,
}

impl Checker<'_> {
    fn factor(&self, written: &Spanned<String>) -> Result<&'static Factor, FileError> {
        let known = self.workload.factor_names();
        let factor = self.workload.factor(written.get_ref());
        factor.ok_or_else(|| unknown(self.source, "factor", written, &known))
    }

    fn level(&self, factor: &Factor, written: &Spanned<Level>) -> Result<Level, FileError> {
        let text = written.get_ref().to_string();
        factor.level(&text).map_err(|right| {
            let what = format!("{} = {text:?}", factor.name);
            self.source.error(written.span(), what, right)
        })
    }

    /// All factors of the workload, with the levels that are written or usual.
    fn factors(
        &self,
        written: &WrittenFactors,
    ) -> Result<Vec<(&'static Factor, Vec<Level>)>, FileError> {
        for name in written.keys() {
            self.factor(name)?;
        }
        let levels = |factor: &'static Factor| {
            let Some(levels) = written.get(factor.name) else {
                return Ok((factor, factor.usual()));
            };
            if levels.get_ref().is_empty() {
                let what = format!("{} has no levels", factor.name);
                let right = format!("must be {}, at least once", factor.domain);
                return Err(self.source.error(levels.span(), what, right));
            }
            let levels = levels.get_ref().iter().map(|level| self.level(factor, level));
            Ok((factor, levels.collect::<Result<_, _>>()?))
        };
        self.workload.factors.iter().map(levels).collect()
    }

    fn levels(&self, written: &WrittenLevels) -> Result<Factors, FileError> {
        let level = |(name, level): (&Spanned<String>, &Spanned<Level>)| {
            let factor = self.factor(name)?;
            Ok((factor.name.to_owned(), self.level(factor, level)?))
        };
        written.iter().map(level).collect()
    }

    fn metric(&self, written: Spanned<String>) -> Result<String, FileError> {
        let known = self.workload.metrics;
        if known.contains(&written.get_ref().as_str()) {
            return Ok(written.into_inner());
        }
        Err(unknown(self.source, "metric", &written, known))
    }

    fn factor_names(&self, written: Option<Spanned<OneOrMany>>) -> Result<Vec<String>, FileError> {
        let names = written.map(OneOrMany::names).unwrap_or_default();
        names.iter().map(|name| Ok(self.factor(name)?.name.to_owned())).collect()
    }

    fn table(&self, written: WrittenTable) -> Result<Table, FileError> {
        let show = match &written.show {
            Some(show) => show.get_ref().clone(),
            None => vec![Show::Absolute],
        };
        let base = match &written.base {
            Some(base) => Some(self.levels(base.get_ref())?),
            None => None,
        };
        if let (Some(written), None) = (&written.show, &base)
            && show.iter().any(|show| *show != Show::Absolute)
        {
            let right = "must have a base, for example base = { transport = \"unix-stream\" }";
            let what = "a ratio or delta against nothing";
            return Err(self.source.error(written.span(), what, right));
        }
        Ok(Table {
            metrics: OneOrMany::names(written.metric)
                .into_iter()
                .map(|metric| self.metric(metric))
                .collect::<Result<_, _>>()?,
            each: self.factor_names(written.each)?,
            down: self.factor_names(Some(written.down))?,
            across: self.factor_names(written.across)?,
            only: self.levels(&written.only)?,
            base,
            show,
        })
    }

    fn claim(&self, written: WrittenClaim) -> Result<(Claim, Range<usize>), FileError> {
        let span = written.name.span();
        let bound = match (written.at_least, written.at_most) {
            (Some(least), None) => Bound::AtLeast(least),
            (None, Some(most)) => Bound::AtMost(most),
            _ => {
                let what = "a claim without one bound";
                return Err(self.source.error(span, what, "must have at_least or at_most"));
            }
        };
        let against = written.against.iter().map(|side| self.levels(side));
        let claim = Claim {
            name: written.name.into_inner(),
            metric: self.metric(written.metric)?,
            of: self.levels(&written.of)?,
            against: against.collect::<Result<_, _>>()?,
            bound,
            counters: written.counters,
        };
        Ok((claim, span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: &str = r#"
name = "mine"
asks = "What?"
workload = "message-stream"
trials = 2
seconds = 1
warm_up_seconds = 0.5
[factors]
transport = ["path", "pipe", "copy-limit"]
ring = ["4 KiB", 8192]
bytes = [64, 1000]
wait = ["spin", "adaptive"]
[[table]]
metric = "rate_bytes_per_s"
down = ["transport", "wait"]
across = "bytes"
only = { wait = "spin" }
base = { transport = "pipe" }
show = ["absolute", "delta"]
[[claim]]
name = "twice"
metric = "rate_bytes_per_s"
of = { transport = "path", bytes = 64, wait = "spin" }
against = [{ transport = "pipe", bytes = 64 }]
at_least = 2
"#;

    fn parse(text: &str) -> Result<Case, String> {
        Case::parse(&Source::of("c.toml", text)).map_err(|error| error.to_string())
    }

    fn levels(pairs: &[(&str, Level)]) -> Factors {
        pairs.iter().map(|(name, level)| ((*name).to_owned(), level.clone())).collect()
    }

    fn word(word: &str) -> Level {
        Level::Word(word.into())
    }

    #[test]
    fn case_is_read_as_it_is_written() {
        let case = parse(CASE).unwrap();
        assert_eq!((case.name.as_str(), case.trials, case.group), ("mine", 2, None));
        assert_eq!((case.window.as_millis(), case.warm_up.as_millis()), (1000, 500));
        let table = &case.tables[0];
        assert_eq!((table.down.len(), table.across.as_slice()), (2, &["bytes".to_owned()][..]));
        assert_eq!(table.only, levels(&[("wait", word("spin"))]));
        assert_eq!(table.base, Some(levels(&[("transport", word("pipe"))])));
        assert_eq!(table.show, [Show::Absolute, Show::Delta]);
        let claim = &case.claims[0];
        assert_eq!((claim.bound, claim.against.len()), (Bound::AtLeast(2.0), 1));
        assert!(claim.bound.holds(2.0) && !claim.bound.holds(1.9));
        assert!(!Bound::AtMost(2.0).holds(2.1));
    }

    #[test]
    fn system_file_is_sought_from_the_case_file() {
        let text = CASE.replace("trials = 2", "trials = 2\nsystem = \"../two.toml\"");
        let case = Case::parse(&Source::of("here/cases/c.toml", &text)).unwrap();
        assert_eq!(case.system, Some("here/cases/../two.toml".into()));
    }

    #[test]
    fn cells_are_all_combinations_that_make_sense_each_once() {
        let case = parse(CASE).unwrap();
        let order = case.workload.factor_names();
        let cells: Vec<String> =
            case.cells().iter().map(|cell| crate::factor::describe(cell, &order)).collect();
        assert_eq!(
            cells,
            [
                "path, 64, spin",
                "pipe, 64, spin",
                "copy-limit, 4096, 64, spin",
                "copy-limit, 8192, 64, spin",
                "path, 1000, spin",
                "pipe, 1000, spin",
                "copy-limit, 4096, 1000, spin",
                "copy-limit, 8192, 1000, spin",
                "path, 64, adaptive",
                "pipe, 64, block",
                "path, 1000, adaptive",
                "pipe, 1000, block",
            ]
        );
    }

    #[test]
    fn factors_that_are_not_named_have_their_usual_levels() {
        let case = parse(&CASE.replace("wait = [\"spin\", \"adaptive\"]", "").replace(
            "of = { transport = \"path\", bytes = 64, wait = \"spin\" }",
            "of = { transport = \"path\" }",
        ));
        let case = case.unwrap();
        let wait = case.factors.iter().find(|(factor, _)| factor.name == "wait").unwrap();
        assert_eq!(wait.1, [word("adaptive")]);
    }

    #[test]
    fn faults_are_named_with_their_line_and_the_cure() {
        for (from, to, error) in [
            (
                "\"mine\"",
                "\"no name\"",
                "c.toml:2: \"no name\" is no name of a case: must be letters, digits, - _ .",
            ),
            (
                "workload = \"message-stream\"",
                "workload = \"message-river\"",
                "c.toml:4: there is no workload \"message-river\": must be one of message-stream, message-exchange, message-request, path-idle, path-connect, path-crowd, iucv-outstanding",
            ),
            ("trials = 2", "trials = 0", "c.toml:5: trials = 0: must be 1 to 1000"),
            ("seconds = 1", "seconds = 0", "c.toml:6: seconds = 0: must be 0.001 to 3600"),
            (
                "bytes = [64, 1000]",
                "byte = [64]",
                "c.toml:11: there is no factor \"byte\": must be one of transport, ring, bytes, wait",
            ),
            (
                "bytes = [64, 1000]",
                "bytes = []",
                "c.toml:11: bytes has no levels: must be 1 B to 16 MiB, at least once",
            ),
            (
                "bytes = [64, 1000]",
                "bytes = [64, 0]",
                "c.toml:11: bytes = \"0\": must be 1 B to 16 MiB",
            ),
            (
                "across = \"bytes\"",
                "across = \"size\"",
                "c.toml:16: there is no factor \"size\": must be one of transport, ring, bytes, wait",
            ),
            (
                "base = { transport = \"pipe\" }",
                "",
                "c.toml:19: a ratio or delta against nothing: must have a base, for example base = { transport = \"unix-stream\" }",
            ),
            (
                "at_least = 2",
                "",
                "c.toml:21: a claim without one bound: must have at_least or at_most",
            ),
            (
                "bytes = 64 }]",
                "bytes = 65 }]",
                "c.toml:21: nothing is measured with pipe, 65: must be levels of the factors above that go together",
            ),
            ("asks = \"What?\"", "ask = \"What?\"", "c.toml:3: unknown field `ask`"),
        ] {
            let text = CASE.replacen(from, to, 1);
            let found = parse(&text).unwrap_err();
            assert!(found.starts_with(error), "{found}\nis not\n{error}");
        }
        let error = parse(&CASE.replace("rate_bytes_per_s", "rate")).unwrap_err();
        assert!(
            error.starts_with(
                "c.toml:14: there is no metric \"rate\": must be one of rate_messages_per_s, "
            ),
            "{error}"
        );
    }
}
