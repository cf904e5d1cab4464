//! Case files: what to measure, how to show it, and what is claimed of it.
//!
//! `docs/cases.md` describes the format.
//!
//! Where a table or a claim leaves a factor open, the best of its levels counts. Both can also name the
//! factor `binary`, with the levels `this` and `against`, which tells two binaries apart. Where they leave
//! `binary` open, it is `this`.

mod claim;
mod layout;
mod metric;
mod written;
mod wrong;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::claim::{Bound, Claim, Comparison, Test};
pub use self::layout::{
    Beside, Breakdown, Knee, METRIC, Part, Screen, ScreenColumn, ScreenRow, Show, Table,
};
use self::written::Written;
pub(crate) use self::written::names;
pub(crate) use self::wrong::{At, Wrong};
use crate::definition::MetricDef;
use crate::factor::{AGAINST, BINARY, Factor, Factors, Level, SYSTEM, THIS, is_against, matches};
use crate::placement::Placements;
use crate::published::Published;
use crate::workload::Workload;
use host::config::{FileError, Source};
use host::near::right;
use serde::Deserialize;

/// Trials of each cell that a case may ask for.
pub const TRIALS_MAX: u32 = 1000;

/// The longest that a trial may count.
pub const SECONDS_MAX: f64 = 3600.0;

/// Cells that a case may have.
pub const CELLS_MAX: usize = 100_000;

/// Interval records that a party may keep in a trial: ten a second in the longest.
pub const RECORDS_MAX: u128 = 36_000;

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
    pub quick: Form,
    /// What is different when it is run as the document measured that it repeats; none if it repeats none.
    pub as_published: Option<Form>,
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

/// What is different when a case is run quickly, as a document measured, or as the user wishes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Form {
    /// How often each cell is measured.
    pub trials: Option<u32>,
    /// How long it counts.
    pub seconds: Option<f64>,
    /// How long it is done before it counts.
    pub warm_up_seconds: Option<f64>,
    /// How often each party keeps a record of what it did.
    pub interval_ms: Option<u64>,
    /// Factors, and their levels.
    pub factors: BTreeMap<String, Vec<Level>>,
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
        written.case(source, read_table).map_err(|wrong| wrong.of(source))
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

    pub(crate) fn in_form(mut self, form: &Form) -> Case {
        self.trials = form.trials.unwrap_or(self.trials);
        self.warm_up = form.warm_up_seconds.map_or(self.warm_up, Duration::from_secs_f64);
        self.window = form.seconds.map_or(self.window, Duration::from_secs_f64);
        self.interval = form.interval_ms.map(Duration::from_millis).or(self.interval);
        for (factor, levels) in &mut self.factors {
            if let Some(other) = form.factors.get(factor.name) {
                levels.clone_from(other);
            }
        }
        self
    }

    /// Checks how many cells the levels make, before the cells are made, and how many interval records a party keeps in a window.
    pub(crate) fn check_size(&self) -> Result<(), Wrong> {
        let counts =
            || self.factors.iter().map(|(_, levels)| levels.len()).filter(|count| *count != 1);
        let product = counts().fold(1, usize::saturating_mul);
        if product > CELLS_MAX {
            let counts = counts().map(|count| count.to_string()).collect::<Vec<_>>().join(" x ");
            let right = format!("must be at most {CELLS_MAX}");
            return Err(Wrong::new(format!("{counts} = {product} cells"), right)).at("factors");
        }
        let Some(interval) = self.interval else { return Ok(()) };
        let records = self.window.as_nanos().div_ceil(interval.as_nanos());
        if records <= RECORDS_MAX {
            return Ok(());
        }
        let (ms, seconds) = (interval.as_millis(), self.window.as_secs_f64());
        let least = self.window.as_nanos().div_ceil(RECORDS_MAX).div_ceil(1_000_000);
        let what = format!("interval_ms = {ms}: {records} records of each party in {seconds} s");
        let right =
            format!("must be at most {RECORDS_MAX}, with an interval_ms of {least} or more");
        Err(Wrong::new(what, right)).at("interval_ms")
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
        let level = factor.level(text)?;
        if factor.name != SYSTEM.name || self.systems.iter().any(|system| system.level == level) {
            return Ok(level);
        }
        let known = self.systems.iter().map(|system| system.level.to_string());
        Err(right(text, &known.collect::<Vec<_>>()))
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
mod tests;
