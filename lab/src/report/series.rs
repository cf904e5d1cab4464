//! The trials of one case in one run, and questions to them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use host::config::Bytes;

use super::grouped;
use super::pool::{self, Pooled};
use crate::case::{Case, Comparison};
use crate::factor::{ABSENT_AT_ZERO, BINARY, Domain, Factors, Level, THIS, matches};
use crate::metric::{Better, METRICS, Shown};
use crate::record::{Record, case_of};
use crate::state::State;
use crate::statistics::{Sample, Summary, difference, ratio};
use crate::workload::split;

/// The trials of one case in one run.
#[derive(Debug)]
pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    /// None if the results come from a siga that knows other cases.
    pub(super) case: Option<Case>,
    pub(super) records: Vec<&'a Record>,
    /// All cells that were measured, in the order in which they were.
    cells: Vec<&'a Factors>,
    /// The records of each cell.
    trials: BTreeMap<&'a Factors, Vec<&'a Record>>,
    /// Whether it is a run of two binaries.
    pub(super) is_of_two: bool,
    /// Earlier runs of the same case in the same results, which are not looked at.
    pub(super) earlier_runs: usize,
}

/// The figures of one cell.
#[derive(Clone, Debug)]
pub(super) struct Found<'a> {
    pub(super) cell: &'a Factors,
    /// Empty if the summary is of all trials together.
    pub(super) samples: Vec<Sample>,
    pub(super) summary: Summary,
}

impl Found<'_> {
    /// Orders figures by their medians, the better one first.
    pub(super) fn best_first(better: Better) -> impl Fn(&Found<'_>, &Found<'_>) -> Ordering {
        move |one, other| {
            let order = one.summary.median.total_cmp(&other.summary.median);
            if better == Better::More { order.reverse() } else { order }
        }
    }
}

/// What stands for the level of a factor that does not apply.
pub(super) const ANY: &str = "any";

/// What a factor has in a cell; none where it does not apply.
pub(super) type Levels = Vec<Option<Level>>;

impl<'a> Series<'a> {
    /// The latest run of each case, in the order in which they come first.
    pub(super) fn all(records: &'a [Record]) -> Vec<Series<'a>> {
        let cases = grouped(records.iter().map(|record| (&*record.case, record)));
        cases.into_iter().map(|(name, records)| Series::latest(name, records)).collect()
    }

    fn latest(name: &'a str, mut records: Vec<&'a Record>) -> Series<'a> {
        let runs: BTreeSet<u64> = records.iter().map(|record| record.run).collect();
        records.retain(|record| Some(&record.run) == runs.last());
        let trials = grouped(records.iter().map(|record| (&record.factors, *record)));
        Series {
            name,
            case: case_of(name, records.iter().copied()),
            is_of_two: records.iter().any(|record| record.factors.contains_key(BINARY.name)),
            records,
            cells: trials.iter().map(|(cell, _)| *cell).collect(),
            trials: trials.into_iter().collect(),
            earlier_runs: runs.len() - 1,
        }
    }

    /// All cells that were measured, in the order in which they were.
    pub(super) fn cells(&self) -> Vec<&'a Factors> {
        self.cells.clone()
    }

    /// All records of a cell, in the order in which they were written.
    pub(super) fn trials(&self, cell: &Factors) -> &[&'a Record] {
        self.trials.get(cell).map_or(&[], Vec::as_slice)
    }

    /// The trials of a cell that have figures.
    pub(super) fn measured(&self, cell: &Factors) -> impl Iterator<Item = &'a Record> {
        self.trials(cell).iter().copied().filter(|record| record.is_measured())
    }

    /// What the case lays out of one kind, as its tables; nothing if no case is known.
    pub(super) fn laid_out<T>(&self, of: fn(&Case) -> &Vec<T>) -> &[T] {
        self.case.as_ref().map_or(&[], |case| of(case))
    }

    /// The factors in the order of the case, or else of the alphabet; then `binary`, if there are two.
    pub(super) fn order(&self) -> Vec<&str> {
        let mut names = match &self.case {
            Some(case) => case.factor_names(),
            None => {
                let keys = self.cells.iter().flat_map(|cell| cell.keys()).map(String::as_str);
                let names: BTreeSet<&str> = keys.filter(|name| *name != BINARY.name).collect();
                names.into_iter().collect()
            }
        };
        if self.is_of_two {
            names.push(BINARY.name);
        }
        names
    }

    /// `wanted`, with `binary = "this"` unless `wanted` names the binary or the factors in `open` include it.
    /// The better of two binaries would answer no question.
    pub(super) fn meant(&self, wanted: &Factors, open: &[String]) -> Factors {
        let mut wanted = wanted.clone();
        let this = Level::Word(THIS.to_owned());
        if !self.is_of_two {
            // In a run of one binary no cell has this factor.
            if wanted.get(BINARY.name) == Some(&this) {
                wanted.remove(BINARY.name);
            }
        } else if !open.iter().any(|factor| factor == BINARY.name) {
            wanted.entry(BINARY.name.to_owned()).or_insert(this);
        }
        wanted
    }

    /// The levels that stand for those of `cell` when `own` is put in their place: of the factors that `is_meant`, and
    /// of those in `own`. The workload fits all levels of the cell together: it cannot fit levels without the
    /// transport that they belong to.
    pub(super) fn instead(
        &self,
        cell: &Factors,
        own: &Factors,
        is_meant: impl Fn(&str) -> bool,
    ) -> Factors {
        let mut levels = cell.clone();
        levels.extend(own.clone());
        if let Some(case) = &self.case {
            case.fit(&mut levels);
        }
        levels.retain(|factor, _| is_meant(factor) || own.contains_key(factor));
        self.meant(&levels, &[])
    }

    /// A level as people read it: sizes with their unit. It is that of the cells that are `here`.
    pub(super) fn level(
        &self,
        factor: &str,
        level: Option<&Level>,
        here: impl Fn(&Factors) -> bool,
    ) -> String {
        let known = self.case.as_ref().and_then(|case| case.factor(factor));
        match (level, known.map(|factor| &factor.domain)) {
            (None, _) => {
                let mut here = self.cells.iter().filter(|cell| here(cell));
                let is_zero = here.any(|cell| self.is_zero(factor, cell));
                if is_zero { "0" } else { ANY }.to_owned()
            }
            (Some(Level::Number(bytes)), Some(Domain::Bytes { .. } | Domain::BytesOr { .. })) => {
                Bytes(*bytes).to_string()
            }
            (Some(level), _) => level.to_string(),
        }
    }

    /// Whether a factor that a cell lacks is 0 there: a closed loop has no rate, and asks without thinking. A stream
    /// asks nothing, so that neither applies.
    fn is_zero(&self, factor: &str, cell: &Factors) -> bool {
        if !ABSENT_AT_ZERO.contains(&split(factor).1) || cell.contains_key(factor) {
            return false;
        }
        let mut other = cell.clone();
        other.insert(factor.to_owned(), Level::Number(1));
        if let Some(case) = &self.case {
            case.fit(&mut other);
        }
        other.contains_key(factor)
    }

    /// The metrics that were measured, in the order in which they are shown: those of siga, then others.
    pub(super) fn metrics(&self) -> Vec<String> {
        let measured = self.records.iter().flat_map(|record| record.metrics.keys());
        let mut names: Vec<String> = measured.cloned().collect();
        let together = pool::metrics(self);
        let is_said =
            |name: &String| self.cells.iter().any(|cell| self.found(cell, name).is_some());
        names.extend(together.into_iter().filter(is_said));
        names.sort_unstable();
        names.dedup();
        let own = self.laid_out(|case| &case.metrics);
        let place = |name: &str| {
            let (part, known) = name.split_once('.').unwrap_or(("", name));
            let known = METRICS.iter().position(|metric| metric.definition.name == known);
            let own = own.iter().position(|metric| metric.name == name);
            let place = known.or(own.map(|place| METRICS.len() + place))?;
            Some((part.to_owned(), place))
        };
        names.retain(|name| place(name).is_some());
        names.sort_by_key(|name| place(name));
        names
    }

    /// A metric as people see it.
    pub(super) fn metric(&self, name: &str) -> Shown {
        Shown::of(name, self.laid_out(|case| &case.metrics))
    }

    /// What the trials of a cell say; none if they do not say it.
    pub(super) fn samples(&self, cell: &Factors, metric: &str) -> Vec<Sample> {
        let sample = |record: &&Record| {
            let value = *record.metrics.get(metric)?;
            let line = record.state.as_ref().and_then(State::line_range);
            Some(Sample { trial: record.trial, value, line })
        };
        self.trials(cell).iter().filter_map(sample).collect()
    }

    /// What the trials of a cell say, each by itself or all together; none if they do not say it.
    pub(super) fn found(&self, cell: &'a Factors, metric: &str) -> Option<Found<'a>> {
        let samples = self.samples(cell, metric);
        if samples.len() < self.measured(cell).count()
            && let Some(pooled) = Pooled::of(self, cell, metric)
        {
            return Some(Found { cell, samples: Vec::new(), summary: pooled.summary(1) });
        }
        let summary = Summary::of(&samples)?;
        Some(Found { cell, samples, summary })
    }

    /// The best of some cells, by their medians; none if none has the metric.
    pub(super) fn best(
        &self,
        metric: &str,
        cells: impl IntoIterator<Item = &'a Factors>,
    ) -> Option<Found<'a>> {
        let found = cells.into_iter().filter_map(|cell| self.found(cell, metric));
        found.min_by(Found::best_first(self.metric(metric).better))
    }

    /// The best of the cells that have these levels; factors that are not named are open.
    pub(super) fn best_of(&self, metric: &str, wanted: &Factors) -> Option<Found<'a>> {
        self.best(metric, self.cells.iter().copied().filter(|cell| matches(cell, wanted)))
    }

    /// A figure compared with `base` if there is one: round by round, or all rounds together where single ones are too short. It
    /// is one of so many that are judged together.
    pub(super) fn compared(
        &self,
        metric: &str,
        comparison: Comparison,
        own: &Found<'_>,
        base: Option<&Found<'_>>,
        questions: usize,
    ) -> Option<Summary> {
        if [own].into_iter().chain(base).any(|side| side.summary.is_pooled) {
            let of = |found: &Found<'_>| Pooled::of(self, found.cell, metric);
            let own = of(own)?;
            let together = match (base, comparison) {
                (Some(base), Comparison::Ratio) => own.ratio(of(base)?)?,
                (Some(base), Comparison::Difference) => own.difference(of(base)?),
                _ => own,
            };
            return Some(together.summary(questions));
        }
        let rounds = match (base, comparison) {
            (Some(base), Comparison::Ratio) => &ratio(&own.samples, &base.samples),
            (Some(base), Comparison::Difference) => &difference(&own.samples, &base.samples),
            _ => &own.samples,
        };
        Summary::of_many(rounds, questions)
    }

    /// Trials of a cell that failed in every attempt.
    pub(super) fn lost(&self, cell: &Factors) -> usize {
        let failed = self.trials(cell).iter().filter(|record| record.failed.is_some());
        let failed: BTreeSet<u32> = failed.map(|record| record.trial).collect();
        let measured: BTreeSet<u32> = self.measured(cell).map(|record| record.trial).collect();
        failed.difference(&measured).count()
    }

    /// Some levels, each as people read it: those of the cells that have all of them.
    pub(super) fn words(&self, factors: &[String], all: &Levels) -> Vec<String> {
        let here = |cell: &Factors| levels(cell, factors) == *all;
        let named = factors.iter().zip(all);
        named.map(|(factor, level)| self.level(factor, level.as_ref(), here)).collect()
    }

    /// Factors of these that have several levels in some cells, and those that have one, in words: `bytes 64 B`.
    pub(super) fn varying<'f>(
        &self,
        factors: Vec<&'f str>,
        cells: &[&Factors],
    ) -> (Vec<&'f str>, String) {
        let level = |factor: &str, cell: &Factors| cell.get(factor).cloned();
        let varies =
            |factor: &&str| cells.iter().any(|cell| level(factor, cell) != level(factor, cells[0]));
        let (varying, common): (Vec<&str>, Vec<&str>) = factors.into_iter().partition(varies);
        let common = common.into_iter().filter_map(|factor| {
            let level = cells.first()?.get(factor)?;
            Some(format!("{factor} {}", self.level(factor, Some(level), |_| true)))
        });
        (varying, common.collect::<Vec<_>>().join(", "))
    }
}

/// All records of some series.
pub(super) fn records<'a>(all: &'a [Series<'a>]) -> impl Iterator<Item = &'a Record> + Clone {
    all.iter().flat_map(|series| &series.records).copied()
}

/// The levels that a cell has of some factors. In a run of one binary each cell was measured by this one.
pub(super) fn levels(cell: &Factors, factors: &[String]) -> Levels {
    let level = |factor: &String| {
        let this = || (factor == BINARY.name).then(|| Level::Word(THIS.to_owned()));
        cell.get(factor).cloned().or_else(this)
    };
    factors.iter().map(level).collect()
}
