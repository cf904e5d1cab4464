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
//! interval_ms = 100                   # how often parties keep records; left out: never
//! system = "../systems/two.toml"      # guests SOURCE and TARGET; left out: a host that allows everything.
//! #                                   # Several are a factor: system = ["../systems/two.toml", "open"]
//! full = "message-load"               # what --full runs behind it: cases, or files as seen from here; left out: nothing
//! skip = [{ transport = "pipe", bytes = 64 }] # cells that are not measured; left out: all are
//!
//! [place]                             # where roles run; left out: as the workload has it
//! source = 0                          # a processor; or "own", "shared", "any"
//!
//! [factors]                           # what is varied; those left out have their usual levels
//! transport = ["path", "unix-stream", "pipe"]
//! bytes = [64, "4 KiB"]
//!
//! [quick]                             # what is different with --quick, and in a run without names of cases
//! trials = 1                          # or seconds, warm_up_seconds, factors; left out: as above
//!
//! [[metric]]                          # a metric of its own, see `definition`
//! name = "kernel_ms_per_mib"
//! quantity = "cpu"                    # work, time, cpu, processor, unexplained, counter, level
//! # kind = "bytes"                    # of work, time, counter, level: which
//! part = "system"                     # left out: all of it; of time: the mean
//! role = ["source", "target"]         # left out: all, of work the measured one
//! per = "mib"                         # message, transaction, packet, io, byte, mib, second, cpu_second, share; left out: the trial
//! unit = "ms"                         # of its numbers; left out: ns, B or a count
//! # times = 10                        # what a number in this unit is multiplied with: seconds per 10 s
//! label = "kernel"
//! better = "less"                     # or "more"
//!
//! [[published]]                       # a table that others have published; or several
//! name = "there"                      # what its figures are called
//! document = "A Book, table 1"        # where it stands
//! file = "../published/book.csv"      # as seen from here; the first line names the columns
//! factors = { bytes = "size" }        # which columns are which factors, and which metrics
//! metrics = { rate_messages_per_s = "messages" }
//! # where = { day = "first" }         # the rows with these texts; left out: all
//! # rows = "trials"                   # several rows of a cell are its trials; left out: a row is a cell
//! # each = ["size"]                   # columns whose levels have a table each in the document, or "metric"
//! # derived = [{ file = "../published/book_ratio.csv", kind = "ratio", base = { mode = "old" }, same = ["size"] }]
//!
//! [[table]]
//! title = "How fast"                  # left out: what its figures are
//! metric = "rate_messages_per_s"      # one, or several
//! each = "bytes"                      # a table for each of its levels; left out: one table
//! down = "transport"                  # one factor, or several: ["transport", "wait"]; left out: one row
//! across = "wait"                     # columns for each of its levels; left out: one column
//! #                                   # one of these three may name "metric"; left out: across does
//! only = { wait = "adaptive" }        # which cells; left out: all
//! base = { transport = "pipe" }       # what ratios and differences are against
//! show = ["absolute", "ratio"]        # or "delta", "percent"; left out: absolute
//! unit = "million messages/s"         # or several; left out: chosen by the figures
//! published = true                    # beside each metric what was published of it, and how many times that
//! #                                   # it is here; or the names of published tables; left out: false
//!
//! [[screen.column]]                   # a column of the first screen
//! heading = "64 B one way"
//! metric = "rate_messages_per_s"
//! only = { bytes = 64 }               # which cells; left out: all. What does not apply to a cell does not count
//! unit = "million/s"                  # left out: chosen by the figures
//!
//! [[screen.row]]                      # a row of it; cases that name the same row share it
//! name = "best kernel way"
//! of = [{ transport = "path" }]       # the best of these; or with a name for each, which is shown:
//! # best = { pipe = { transport = "pipe" }, packets = { transport = "unix-seqpacket" } }
//!
//! [[knee]]                            # where curves flatten
//! metric = "rate_messages_per_s"
//! along = "bytes"                     # a factor whose levels are numbers
//! each = ["transport", "wait"]        # a curve for each of their levels
//! only = { transport = "path" }       # which cells; left out: all
//! part = 0.95                         # the least level with so much of the best; left out: 0.95
//!
//! [[breakdown]]                       # what something consists of
//! name = "where the time goes"
//! metric = "latency_p50_ns"           # of something like time: parts are differences
//! down = "bytes"
//! of = { transport = "path", wait = "block" }
//! rest = "other"                      # what is left when the parts are taken away
//! part = [                            # each what one cell has more than another, of the same row
//!     { name = "wake", from = { wait = "block" }, less = { wait = "spin" } },
//!     { name = "hand-over", from = { wait = "spin", bytes = 64 } },
//! ]
//!
//! [[claim]]
//! name = "a path is much faster than the best peer"
//! metric = "rate_messages_per_s"
//! of = { transport = "path", bytes = 64 }
//! against = [{ transport = "unix-stream", bytes = 64 }, { transport = "pipe", bytes = 64 }]
//! at_least = 10                       # or at_most; the ratio, or without against the metric itself
//! # at_most_more = 45                 # instead: the difference, in the unit that the metric's name ends in
//! # interval_reaches = 11             # also: no 95 % interval of the median may lie wholly below this
//! every = "bytes"                     # judged at each of its levels, and the worst counts; left out: once
//! counters = ["source_output_packs"]  # what shows why
//! note = "A path packs."              # what one should know; alone: why it is not measured
//! ```
//!
//! Where a table or a claim leaves a factor open, the best of its levels counts. Both can also name the
//! factor `binary`, with the levels `this` and `against`, which tells two binaries apart. Where they leave
//! `binary` open, it is `this`.

mod layout;
mod metric;
mod written;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::layout::{
    Beside, Breakdown, Knee, METRIC, Part, Screen, ScreenColumn, ScreenRow, Show, Table,
};
use self::written::Written;
use crate::definition::MetricDef;
use crate::factor::{AGAINST, BINARY, Factor, Factors, Level, SYSTEM, THIS, is_against, matches};
use crate::placement::Placements;
use crate::published::Published;
use crate::workload::Workload;
use host::config::{FileError, Source};
use host::near::right;

/// Trials of each cell that a case may ask for.
pub const TRIALS_MAX: u32 = 1000;

/// The longest that a trial may count.
pub const SECONDS_MAX: f64 = 3600.0;

/// Cells that a case may have.
pub const CELLS_MAX: usize = 100_000;

/// Interval records that a party may keep in a trial: ten a second in the longest.
pub const RECORDS_MAX: u128 = 36_000;

/// The levels of each factor.
type FactorLevels = Vec<(&'static Factor, Vec<Level>)>;

/// Checks how many cells the levels make, before the cells are made.
///
/// # Errors
/// What is wrong, and what would be right.
pub(crate) fn check_product(factors: &FactorLevels) -> Result<(), (String, String)> {
    let counts = || factors.iter().map(|(_, levels)| levels.len()).filter(|count| *count != 1);
    let product = counts().fold(1, usize::saturating_mul);
    if product <= CELLS_MAX {
        return Ok(());
    }
    let counts = counts().map(|count| count.to_string()).collect::<Vec<_>>().join(" x ");
    Err((format!("{counts} = {product} cells"), format!("must be at most {CELLS_MAX}")))
}

/// Checks how many interval records a party keeps in a window.
///
/// # Errors
/// What is wrong, and what would be right.
pub(crate) fn check_records(interval: Duration, window: Duration) -> Result<(), (String, String)> {
    let records = window.as_nanos().div_ceil(interval.as_nanos());
    if records <= RECORDS_MAX {
        return Ok(());
    }
    let (ms, seconds) = (interval.as_millis(), window.as_secs_f64());
    let least = window.as_nanos().div_ceil(RECORDS_MAX).div_ceil(1_000_000);
    let what = format!("interval_ms = {ms}: {records} records of each party in {seconds} s");
    Err((what, format!("must be at most {RECORDS_MAX}, with an interval_ms of {least} or more")))
}

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
    /// Cells that are not measured.
    pub skip: Vec<Factors>,
    /// How often each cell is measured.
    pub trials: u32,
    /// How long it is done before it counts.
    pub warm_up: Duration,
    /// How long it counts.
    pub window: Duration,
    /// Metrics of its own.
    pub metrics: Vec<MetricDef>,
    /// How often each party keeps a record of what it did; none if it keeps none.
    pub interval: Option<Duration>,
    /// Where roles run that are not to run where they usually do.
    pub place: Placements,
    /// The systems that hosts of trials run: one for each level of the factor `system`. A case without this
    /// factor has at most one.
    pub systems: Vec<CaseSystem>,
    /// How the results are shown.
    pub tables: Vec<Table>,
    /// Where curves flatten.
    pub knees: Vec<Knee>,
    /// What something consists of.
    pub breakdowns: Vec<Breakdown>,
    /// What is claimed of the results.
    pub claims: Vec<Claim>,
    /// What others have measured.
    pub published: Vec<Published>,
    /// What the case contributes to the first screen of a run.
    pub screen: Screen,
    /// What is different when it is run quickly.
    pub quick: Quick,
    /// What is different when it is run as the document measured that it repeats; none if it repeats none.
    pub as_published: Option<Quick>,
    /// Cases that are run behind it when it is run in full: names of those that come with siga, or files as seen from its own.
    pub full: Vec<String>,
    /// The case file, as it was named.
    pub file: PathBuf,
    /// The case, as it was written.
    pub text: Arc<str>,
}

/// A system that hosts of trials run.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseSystem {
    /// Its level of the factor `system`.
    pub level: Level,
    /// The system file; none if the host allows everything. In a case file it stands as seen from there.
    pub file: Option<PathBuf>,
    /// Where the case names it, in bytes of its text.
    pub span: Range<usize>,
}

/// What is different when a case is run quickly, or as a document measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quick {
    /// How often each cell is measured.
    pub trials: Option<u32>,
    /// How long it is done before it counts.
    pub warm_up: Option<Duration>,
    /// How long it counts.
    pub window: Option<Duration>,
    /// How often each party keeps a record of what it did.
    pub interval: Option<Duration>,
    /// Factors, and their levels.
    pub factors: Vec<(String, Vec<Level>)>,
}

impl Quick {
    /// The levels of all factors.
    fn levels(&self, usual: &FactorLevels) -> FactorLevels {
        let mut factors = usual.clone();
        for (factor, levels) in &mut factors {
            if let Some((_, fewer)) = self.factors.iter().find(|(name, _)| name == factor.name) {
                levels.clone_from(fewer);
            }
        }
        factors
    }
}

/// What is claimed of results.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// In words.
    pub name: String,
    /// How it is put to the test; none if it is not.
    pub test: Option<Test>,
    /// What one should know of it.
    pub note: Option<String>,
}

/// How a claim is put to the test.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// Of which metric.
    pub metric: String,
    /// Of which cells.
    pub of: Factors,
    /// Against the best of these; none if the metric itself is bounded.
    pub against: Vec<Factors>,
    /// Whether the bound is on the ratio or on the difference.
    pub comparison: Comparison,
    /// The factors at each level of which it is judged.
    pub every: Vec<String>,
    /// The bound.
    pub bound: Bound,
    /// What the upper end of the 95 % interval of the median has to reach, if anything.
    pub interval_reaches: Option<f64>,
    /// Counters that show why.
    pub counters: Vec<String>,
}

/// How one side is compared with the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// One metric divided by the other. If there is no other side, the metric itself.
    Ratio,
    /// One metric minus the other.
    Difference,
}

/// What a ratio, a difference or a metric has to keep to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// At least this, if anything.
    pub at_least: Option<f64>,
    /// At most this, if anything.
    pub at_most: Option<f64>,
}

impl Bound {
    /// Its numbers.
    pub fn numbers(self) -> impl Iterator<Item = f64> {
        self.at_least.into_iter().chain(self.at_most)
    }

    /// How many times better than it has to be something is.
    pub fn margin(self, found: f64) -> f64 {
        let above = self.at_least.map(|least| found / least);
        let below = self.at_most.map(|most| most / found);
        above.into_iter().chain(below).fold(f64::INFINITY, f64::min)
    }

    /// Whether something keeps to it.
    pub fn holds(self, found: f64) -> bool {
        self.at_least.is_none_or(|least| found >= least)
            && self.at_most.is_none_or(|most| found <= most)
    }
}

impl Test {
    /// The cells that are compared: `of`, then each of `against`.
    pub fn sides(&self) -> impl Iterator<Item = &Factors> {
        std::iter::once(&self.of).chain(&self.against)
    }

    /// Whether it needs a second binary.
    pub fn needs_another(&self) -> bool {
        self.sides().any(is_against)
    }

    /// How much better `found` is than the bound demands: a factor for a ratio, else in the metric's unit.
    pub fn margin(&self, found: f64) -> f64 {
        match self.comparison {
            Comparison::Ratio => self.bound.margin(found),
            Comparison::Difference => self.bound.at_most.map_or(f64::INFINITY, |most| most - found),
        }
    }
}

/// A level of a factor of a case with these systems, as it was written.
fn level_of(factor: &Factor, systems: &[CaseSystem], text: &str) -> Result<Level, String> {
    let level = factor.level(text)?;
    if factor.name != SYSTEM.name || systems.iter().any(|system| system.level == level) {
        return Ok(level);
    }
    let known = systems.iter().map(|system| system.level.to_string());
    Err(right(text, &known.collect::<Vec<_>>()))
}

/// Reads the file of a published table, by the name that a case has for it.
pub type ReadTable<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// Reads the file of a published table: a regular file of bounded length.
pub(crate) fn read_table(file: &Path) -> io::Result<String> {
    let source = Source::read(file).map_err(|error| {
        let why = error.what.strip_prefix("cannot be read: ").unwrap_or(&error.what);
        io::Error::other(why.to_owned())
    })?;
    Ok(source.text().to_owned())
}

impl Case {
    /// Reads a case file.
    ///
    /// # Errors
    /// [`FileError`]: where, what is wrong, what would be right.
    pub fn read(file: &Path) -> Result<Case, FileError> {
        Case::parse(&Source::read(file)?, &|table| read_table(&file.with_file_name(table)))
    }

    /// Takes the text of a case file apart, and the published table that it names.
    ///
    /// # Errors
    /// As [`Case::read`].
    pub fn parse(source: &Source, read_table: ReadTable<'_>) -> Result<Case, FileError> {
        let written: Written = source.parse()?;
        written.case(source, read_table)
    }

    /// The same, as it is run quickly.
    #[must_use]
    pub fn quickly(mut self) -> Case {
        let quick = std::mem::take(&mut self.quick);
        self.in_form(&quick)
    }

    /// The same, as the document measured that it repeats; none if it repeats none.
    #[must_use]
    pub fn like_published(mut self) -> Option<Case> {
        let form = self.as_published.take()?;
        Some(self.in_form(&form))
    }

    fn in_form(mut self, form: &Quick) -> Case {
        self.trials = form.trials.unwrap_or(self.trials);
        self.warm_up = form.warm_up.unwrap_or(self.warm_up);
        self.window = form.window.unwrap_or(self.window);
        self.interval = form.interval.or(self.interval);
        self.factors = form.levels(&self.factors);
        self
    }

    /// The factor of this name: one of the workload's, or `system`.
    pub fn factor(&self, name: &str) -> Option<&'static Factor> {
        self.factors.iter().map(|(factor, _)| *factor).find(|factor| factor.name == name)
    }

    /// The names of its factors, in the order in which they are shown.
    pub fn factor_names(&self) -> Vec<&'static str> {
        self.factors.iter().map(|(factor, _)| factor.name).collect()
    }

    /// A level of one of its factors, as it was written.
    ///
    /// # Errors
    /// What would be right.
    pub fn level(&self, factor: &Factor, text: &str) -> Result<Level, String> {
        level_of(factor, &self.systems, text)
    }

    /// Which of its systems the host of a cell runs; none if the host allows everything, or if there is none.
    pub fn system(&self, cell: &Factors) -> Option<usize> {
        match self.factor(SYSTEM.name) {
            Some(_) => {
                let level = cell.get(SYSTEM.name)?;
                self.systems.iter().position(|system| system.level == *level)
            }
            None => (!self.systems.is_empty()).then_some(0),
        }
    }

    /// Takes out the factors that do not apply beside the others, and sets those that have no choice.
    pub(crate) fn fit(&self, factors: &mut Factors) {
        self.workload.fit(factors);
        if !self.workload.has_host(factors) {
            factors.remove(SYSTEM.name);
        }
    }

    /// The names of its factors in the order in which they are shown, and then `binary`.
    pub fn order(&self) -> Vec<&'static str> {
        let mut names = self.factor_names();
        names.push(BINARY.name);
        names
    }

    /// Whether a claim or a table names the factor `binary`.
    pub fn names_binary(&self) -> bool {
        let mut sides = self.claims.iter().flat_map(|claim| &claim.test).flat_map(Test::sides);
        let name = BINARY.name;
        let is_laid_out = |table: &Table| {
            let Table { each, down, across, only, base, .. } = table;
            each.iter().chain(down).chain(across).any(|factor| factor == name)
                || base.iter().chain([only]).any(|levels| levels.contains_key(name))
        };
        sides.any(|side| side.contains_key(name)) || self.tables.iter().any(is_laid_out)
    }

    /// Everything that is measured: all combinations of levels that make sense and are not skipped, each
    /// once. Those that differ in the first factor are neighbours.
    pub fn cells(&self) -> Vec<Factors> {
        let mut cells = self.cells_of_both();
        cells.retain(|cell| !is_against(cell));
        for cell in &mut cells {
            cell.remove(BINARY.name);
        }
        cells
    }

    /// The cells of a run with two binaries: each cell for this binary, followed by the same cell for the other.
    pub fn cells_of_both(&self) -> Vec<Factors> {
        let mut cells = Vec::new();
        for cell in self.combinations() {
            for binary in [THIS, AGAINST] {
                let mut cell = cell.clone();
                cell.insert(BINARY.name.to_owned(), Level::Word(binary.to_owned()));
                if !self.skip.iter().any(|skipped| matches(&cell, skipped)) {
                    cells.push(cell);
                }
            }
        }
        cells
    }

    /// All combinations of levels that make sense, each once.
    fn combinations(&self) -> Vec<Factors> {
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
        let (mut cells, mut seen) = (Vec::new(), BTreeSet::new());
        for mut cell in combinations {
            self.fit(&mut cell);
            if seen.insert(cell.clone()) {
                cells.push(cell);
            }
        }
        cells
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
[quick]
trials = 1
[quick.factors]
bytes = [64]
[[published]]
name = "there"
document = "A Book, table 1"
file = "../book.csv"
factors = { bytes = "size" }
metrics = { rate_bytes_per_s = "rate" }
[[table]]
metric = "rate_bytes_per_s"
down = ["transport", "wait"]
across = "bytes"
only = { wait = "spin" }
base = { transport = "pipe" }
show = ["absolute", "delta"]
published = true
[[knee]]
metric = "rate_bytes_per_s"
along = "bytes"
each = "transport"
part = 0.9
[[breakdown]]
name = "where it goes"
metric = "latency_p50_ns"
down = "bytes"
of = { transport = "path" }
part = [{ name = "copy", from = { transport = "copy-limit" }, less = { bytes = 64 } }]
rest = "other"
[[claim]]
name = "twice"
metric = "rate_bytes_per_s"
of = { transport = "path", bytes = 64, wait = "spin" }
against = [{ transport = "pipe", bytes = 64 }]
at_least = 2
[[claim]]
name = "little more"
metric = "latency_p50_ns"
of = { transport = "path", bytes = 64, wait = "spin" }
against = [{ transport = "pipe", bytes = 64 }]
at_most_more = 45
[[claim]]
name = "better"
note = "Who knows?"
"#;

    /// The table that the case names, and no other.
    fn read_table(file: &Path) -> io::Result<String> {
        let found = (file == "../book.csv").then(|| "size,rate\n64,1e6\n".to_owned());
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is none"))
    }

    fn parse(text: &str) -> Result<Case, String> {
        Case::parse(&Source::of("c.toml", text), &read_table).map_err(|error| error.to_string())
    }

    fn levels(pairs: &[(&str, Level)]) -> Factors {
        pairs.iter().map(|(name, level)| ((*name).to_owned(), level.clone())).collect()
    }

    fn word(word: &str) -> Level {
        Level::Word(word.into())
    }

    #[test]
    fn cases_for_a_full_run_are_named_each_once() {
        let of = |full: &str| parse(&CASE.replacen("trials", &format!("full = {full}\ntrials"), 1));
        assert!(parse(CASE).unwrap().full.is_empty());
        assert_eq!(of("\"more\"").unwrap().full, ["more"]);
        assert_eq!(of("[\"more\", \"b.toml\"]").unwrap().full, ["more", "b.toml"]);
        let error = of("[\"more\", \"more\"]").unwrap_err();
        assert_eq!(error, "c.toml:5: \"more\" is named twice: must be each once");
    }

    #[test]
    fn case_is_read_as_it_is_written() {
        let case = parse(CASE).unwrap();
        assert_eq!((case.name.as_str(), case.trials, case.group), ("mine", 2, None));
        assert_eq!((case.window.as_millis(), case.warm_up.as_millis()), (1000, 500));
        let table = &case.tables[0];
        assert_eq!(table.across, ["bytes", "metric"]);
        assert_eq!(table.down.len(), 2);
        assert_eq!(table.only, levels(&[("wait", word("spin"))]));
        assert_eq!(table.base, Some(levels(&[("transport", word("pipe"))])));
        assert_eq!(table.show, [Show::Absolute, Show::Delta]);
        assert!(table.published.has("there"));
        let test = case.claims[0].test.as_ref().unwrap();
        assert_eq!(test.bound, Bound { at_least: Some(2.0), at_most: None });
        assert_eq!((test.against.len(), test.every.len()), (1, 0));
        assert_eq!(test.comparison, Comparison::Ratio);
        let more = case.claims[1].test.as_ref().unwrap();
        assert_eq!((more.comparison, more.bound.at_most), (Comparison::Difference, Some(45.0)));
        assert_eq!((more.margin(40.0), more.margin(50.0)), (5.0, -5.0));
        assert_eq!(case.claims[2].test, None);
        assert_eq!(case.claims[2].note.as_deref(), Some("Who knows?"));
        let published = &case.published[0];
        let cell = levels(&[("bytes", Level::Number(64))]);
        assert_eq!(published.figure("rate_bytes_per_s", &cell), Some(1e6));
        let Knee { along, each, part, .. } = &case.knees[0];
        assert_eq!((along.as_str(), each.len(), *part), ("bytes", 1, 0.9));
        let part = &case.breakdowns[0].parts[0];
        assert_eq!(part.from, levels(&[("transport", word("copy-limit"))]));
        assert_eq!(part.less, Some(levels(&[("bytes", Level::Number(64))])));
    }

    #[test]
    fn bound_has_one_side_or_two() {
        let within = Bound { at_least: Some(1.0), at_most: Some(2.0) };
        assert!(within.holds(1.0) && within.holds(2.0));
        assert!(!within.holds(0.9) && !within.holds(2.1));
        assert_eq!((within.margin(1.0), within.margin(4.0), within.margin(1.25)), (1.0, 0.5, 1.25));
        assert!(!Bound { at_least: None, ..within }.holds(2.1));
    }

    #[test]
    fn quick_form_differs_where_the_case_says_so() {
        let case = parse(CASE).unwrap();
        let quick = case.clone().quickly();
        assert_eq!((quick.trials, quick.window), (1, case.window));
        assert!(case.clone().like_published().is_none());
        let text =
            CASE.replacen("[quick]", "[as_published]\nseconds = 9\ninterval_ms = 500\n[quick]", 1);
        let long = parse(&text).unwrap().like_published().unwrap();
        assert_eq!((long.trials, long.window.as_secs()), (case.trials, 9));
        assert_eq!(long.interval.unwrap().as_millis(), 500);
        let error = parse(&text.replacen("interval_ms = 500", "interval_ms = 0", 1)).unwrap_err();
        assert_eq!(error, "c.toml:15: interval_ms = 0: must be 1 to 3600000");
        let many = text.replacen("seconds = 9", "seconds = 3600", 1).replacen("= 500", "= 1", 1);
        let error = parse(&many).unwrap_err();
        assert!(
            error.starts_with("c.toml:15: interval_ms = 1: 3600000 records of each party in "),
            "{error}"
        );
        assert!(quick.cells().iter().all(|cell| cell["bytes"] == Level::Number(64)));
        assert_eq!(quick.cells().len() * 2, case.cells().len());
    }

    #[test]
    fn cells_are_counted_before_they_are_made() {
        let many = (1..=1000).map(|bytes| bytes.to_string()).collect::<Vec<_>>().join(", ");
        let rings = (4096..5000).map(|bytes| bytes.to_string()).collect::<Vec<_>>().join(", ");
        let text = CASE.replacen("[64, 1000]", &format!("[{many}]"), 1);
        let text = text.replacen("[\"4 KiB\", 8192]", &format!("[{rings}]"), 1);
        let error = parse(&text).unwrap_err();
        let right = "c.toml:4: 3 x 904 x 1000 x 2 = 5424000 cells: must be at most 100000";
        assert_eq!(error, right);
    }

    #[test]
    fn table_that_is_no_regular_file_is_not_read() {
        let directory = std::env::temp_dir();
        let error = super::read_table(&directory).unwrap_err().to_string();
        assert_eq!(error, "it is no ordinary file");
    }

    #[test]
    fn system_files_are_sought_from_the_case_file() {
        let files = |text: &str| {
            let case = Case::parse(&Source::of("here/cases/c.toml", text), &read_table).unwrap();
            case.systems.into_iter().map(|system| system.file).collect::<Vec<_>>()
        };
        let two = Some(PathBuf::from("here/cases/../two.toml"));
        let one = CASE.replace("trials = 2", "trials = 2\nsystem = \"../two.toml\"");
        assert_eq!(files(&one), vec![two.clone()]);
        let both = CASE.replace("[factors]", "[factors]\nsystem = [\"open\", \"../two.toml\"]");
        assert_eq!(files(&both), [None, two]);
        assert_eq!(files(CASE), []);
    }

    /// The case, with the factor `system`.
    fn in_systems(systems: &str) -> String {
        CASE.replacen("[factors]", &format!("[factors]\nsystem = {systems}"), 1)
    }

    #[test]
    fn system_is_a_factor_of_cells_that_have_a_host() {
        let case = parse(&in_systems(r#"["open", "../few.toml"]"#)).unwrap();
        let cells: Vec<String> = case
            .cells()
            .iter()
            .filter(|cell| cell["bytes"] == Level::Number(64))
            .map(|cell| crate::factor::describe(cell, &case.order()))
            .collect();
        assert_eq!(
            cells,
            [
                "path, 64, spin, open",
                "pipe, 64, spin",
                "copy-limit, 4096, 64, spin",
                "copy-limit, 8192, 64, spin",
                "path, 64, adaptive, open",
                "pipe, 64, block",
                "path, 64, spin, few",
                "path, 64, adaptive, few",
            ]
        );
        let system = |cell: &[(&str, Level)]| case.system(&levels(cell));
        assert_eq!(system(&[("system", word("few"))]), Some(1));
        assert_eq!(system(&[("transport", word("pipe"))]), None);
        let one = CASE.replace("trials = 2", "trials = 2\nsystem = \"two.toml\"");
        assert_eq!(parse(&one).unwrap().system(&levels(&[])), Some(0));
    }

    #[test]
    fn faults_of_systems_are_refused_with_their_line() {
        for (text, wanted) in [
            (
                in_systems(r#"["a/two.toml", "b/two.toml"]"#),
                "c.toml:9: two systems are called \"two\": must be files whose names differ, each once",
            ),
            (
                in_systems("[]"),
                "c.toml:9: system has no levels: must be a system file, or open, at least once",
            ),
            (in_systems("[\"..\"]"), "c.toml:9: system = \"..\": must be a system file, or open"),
            (
                in_systems(r#"["open"]"#)
                    .replace("trials = 2", "trials = 2\nsystem = \"two.toml\""),
                "c.toml:6: the system stands here and in [factors]: must be in one of them",
            ),
            (
                in_systems(r#"["open", "two.toml"]"#)
                    .replace("only = { wait", "only = { system = \"tow\", wait"),
                "c.toml:28: system = \"tow\": did you mean two?",
            ),
            (
                CASE.replace("only = { wait", "only = { system = \"open\", wait"),
                "c.toml:27: there is no factor \"system\": must be one of transport, ring, bytes, mtu, load_percent, arrivals, slip_ns, wait, binary",
            ),
            (
                in_systems(r#"["open", "two.toml"]"#)
                    .replace("along = \"bytes\"", "along = \"system\""),
                "c.toml:34: the levels of system are no numbers: must be numbers",
            ),
        ] {
            assert_eq!(parse(&text).unwrap_err(), wanted);
        }
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
    fn cells_that_are_skipped_are_not_measured() {
        let skip =
            "trials = 2\nskip = [{ bytes = 1000 }, { transport = \"copy-limit\", ring = 4096 }]";
        let case = parse(&CASE.replacen("trials = 2", skip, 1)).unwrap();
        let order = case.workload.factor_names();
        let cells: Vec<String> =
            case.cells().iter().map(|cell| crate::factor::describe(cell, &order)).collect();
        assert_eq!(
            cells,
            [
                "path, 64, spin",
                "pipe, 64, spin",
                "copy-limit, 8192, 64, spin",
                "path, 64, adaptive",
                "pipe, 64, block",
            ]
        );
        let case = parse(&CASE.replacen(
            "trials = 2",
            "trials = 2\nskip = [{ bytes = 1000 }, { wait = \"spin\", binary = \"against\" }]",
            1,
        ));
        let case = case.unwrap();
        let order = case.order();
        let cells: Vec<String> =
            case.cells_of_both().iter().map(|cell| crate::factor::describe(cell, &order)).collect();
        assert_eq!(
            cells,
            [
                "path, 64, spin, this",
                "pipe, 64, spin, this",
                "copy-limit, 4096, 64, spin, this",
                "copy-limit, 8192, 64, spin, this",
                "path, 64, adaptive, this",
                "path, 64, adaptive, against",
                "pipe, 64, block, this",
                "pipe, 64, block, against",
            ]
        );
        let error = parse(&CASE.replacen("trials = 2", "trials = 2\nskip = [{}]", 1)).unwrap_err();
        let start = "c.toml:6: every cell is skipped: must leave cells to measure";
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn claims_and_tables_name_a_binary() {
        assert!(!parse(CASE).unwrap().names_binary());
        for (from, to) in [
            (
                "of = { transport = \"path\", bytes",
                "of = { binary = \"this\", transport = \"path\", bytes",
            ),
            ("[{ transport = \"pipe\",", "[{ binary = \"against\", transport = \"pipe\","),
            ("across = \"bytes\"", "across = \"binary\""),
            ("base = { transport = \"pipe\" }", "base = { binary = \"against\" }"),
        ] {
            let text = CASE.replacen(from, to, 1);
            assert!(parse(&text).unwrap().names_binary(), "{text}");
        }
        let skip = "trials = 2\nskip = [{ binary = \"against\", transport = \"pipe\" }]";
        let text = CASE.replacen("trials = 2", skip, 1);
        let text = text.replacen("bytes = 64 }]", "bytes = 64, binary = \"against\" }]", 1);
        let error = parse(&text).unwrap_err();
        let start = "c.toml:45: nothing is measured with pipe, 64, against: must be levels ";
        assert!(error.starts_with(start), "{error}");
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
        // It has no usual levels.
        assert!(case.factors.iter().all(|(factor, _)| factor.name != "slip_ns"));
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
                "c.toml:4: there is no workload \"message-river\": did you mean message-request?",
            ),
            ("trials = 2", "trials = 0", "c.toml:5: trials = 0: must be 1 to 1000"),
            ("seconds = 1", "seconds = 0", "c.toml:6: seconds = 0: must be 0.001 to 3600"),
            (
                "bytes = [64, 1000]",
                "byte = [64]",
                "c.toml:11: there is no factor \"byte\": did you mean bytes?",
            ),
            (
                "bytes = [64, 1000]",
                "binary = [\"this\"]",
                "c.toml:11: there is no factor \"binary\": must be one of transport, ring, bytes, mtu, load_percent, arrivals, slip_ns, wait",
            ),
            (
                "bytes = 64 }]",
                "bytes = 64, binary = \"other\" }]",
                "c.toml:47: binary = \"other\": must be one of this, against",
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
                "c.toml:26: there is no factor \"size\": must be one of transport, ring, bytes, mtu, load_percent, arrivals, slip_ns, wait, binary",
            ),
            (
                "down = [\"transport\", \"wait\"]\n",
                "",
                "c.toml:28: a table of one row with several kinds of figures: must have down, or show one of them",
            ),
            (
                "base = { transport = \"pipe\" }",
                "",
                "c.toml:29: a ratio or delta against nothing: must have a base, for example base = { transport = \"unix-stream\" }",
            ),
            (
                "at_least = 2",
                "",
                "c.toml:44: a claim without a bound: must have at_least, at_most or at_most_more",
            ),
            (
                "at_least = 2",
                "at_most_more = 2\nat_least = 2",
                "c.toml:44: a claim bounds a ratio and a difference: must be two claims",
            ),
            (
                "against = [{ transport = \"pipe\", bytes = 64 }]\nat_most_more",
                "at_most_more",
                "c.toml:50: a difference without cells to compare with: must have against",
            ),
            (
                "bytes = 64 }]",
                "bytes = 65 }]",
                "c.toml:44: nothing is measured with pipe, 65: must be levels of the factors above that go together",
            ),
            (
                "along = \"bytes\"",
                "along = \"wait\"",
                "c.toml:33: the levels of wait are no numbers: must be numbers",
            ),
            ("part = 0.9", "part = 2", "c.toml:35: part = 2: must be above 0, and at most 1"),
            (
                "../book.csv",
                "../film.csv",
                "c.toml:18: ../film.csv: cannot be read: there is none: must be a file, as seen from here",
            ),
            (
                "\"rate\" }",
                "\"speed\" }",
                "c.toml:18: ../book.csv: there is no column \"speed\" among size, rate: must be a table with these columns",
            ),
            (
                "note = \"Who knows?\"",
                "",
                "c.toml:56: a claim without a metric: must have one, or a note that says why it is not measured",
            ),
            ("part = 0.9", "part = 0", "c.toml:35: part = 0: must be above 0, and at most 1"),
            ("part = 0.9", "part = nan", "c.toml:35: part = NaN: must be above 0, and at most 1"),
            (
                "metric = \"rate_bytes_per_s\"\ndown",
                "metric = []\ndown",
                "c.toml:24: a list without names: must have at least one name",
            ),
            (
                "down = [\"transport\", \"wait\"]",
                "down = []",
                "c.toml:25: a list without names: must have at least one name",
            ),
            (
                "down = \"bytes\"",
                "down = []",
                "c.toml:39: a list without names: must have at least one name",
            ),
            (
                "across = \"bytes\"",
                "across = \"wait\"",
                "c.toml:26: \"wait\" is named twice: must be each once",
            ),
            (
                "workload = \"message-stream\"",
                "workload = []",
                "c.toml:4: 0 workloads: must be 1 to 8",
            ),
            (
                "at_least = 2",
                "at_least = nan",
                "c.toml:44: a bound without an end: must be a number",
            ),
            (
                "at_least = 2",
                "at_least = 2\ninterval_reaches = nan",
                "c.toml:44: a bound without an end: must be a number",
            ),
            (
                "at_least = 2",
                "at_most = inf",
                "c.toml:44: a bound without an end: must be a number",
            ),
            (
                "at_least = 2",
                "at_least = 2\nat_most = 1",
                "c.toml:44: at_least is more than at_most: must be at most at_most",
            ),
            (
                "[[claim]]\nname = \"twice\"",
                "[[metric]]\nname = \"m\"\nquantity = \"cpu\"\n[[metric]]\nname = \"m\"\nquantity = \"cpu\"\n[[claim]]\nname = \"twice\"",
                "c.toml:47: two metrics are called \"m\": must be each once",
            ),
            ("trials = 1", "trials = 0", "c.toml:14: trials = 0: must be 1 to 1000"),
            ("asks = \"What?\"", "ask = \"What?\"", "c.toml:3: unknown field `ask`"),
        ] {
            let text = CASE.replacen(from, to, 1);
            let found = parse(&text).unwrap_err();
            assert!(found.starts_with(error), "{found}\nis not\n{error}");
        }
        let table = "metric = \"rate_bytes_per_s\"\ndown";
        let error = parse(&CASE.replace(table, "metric = \"rate\"\ndown")).unwrap_err();
        assert!(
            error.starts_with(
                "c.toml:24: there is no metric \"rate\": did you mean rate_messages_per_s"
            ),
            "{error}"
        );
    }
}
