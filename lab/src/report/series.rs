//! The trials of one case in one run, and questions to them.

use host::config::Bytes;

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
    /// Whether it is a run of two binaries.
    pub(super) is_of_two: bool,
    /// Earlier runs of the same case in the same results, which are not looked at.
    pub(super) earlier_runs: usize,
}

/// The figures of one cell.
#[derive(Clone, Debug)]
pub(super) struct Found<'a> {
    pub(super) cell: &'a Factors,
    pub(super) samples: Vec<Sample>,
    pub(super) summary: Summary,
}

/// A figure compared with another in each round that both have.
pub(super) fn compared_by_rounds(
    comparison: Comparison,
    [own, base]: [&Found<'_>; 2],
) -> Vec<Sample> {
    match comparison {
        Comparison::Ratio => ratio(&own.samples, &base.samples),
        Comparison::Difference => difference(&own.samples, &base.samples),
    }
}

impl Found<'_> {
    /// Whether it is of all trials together, each of which is too short for it. Then there are no samples.
    fn is_pooled(&self) -> bool {
        self.summary.is_pooled
    }
}

/// What stands for the level of a factor that does not apply.
pub(super) const ANY: &str = "any";

/// What a factor has in a cell; none where it does not apply.
pub(super) type Levels = Vec<Option<Level>>;

impl<'a> Series<'a> {
    /// The latest run of each case, in the order in which they come first.
    pub(super) fn all(records: &'a [Record]) -> Vec<Series<'a>> {
        let mut names: Vec<&str> = Vec::new();
        for record in records {
            if !names.contains(&record.case.as_str()) {
                names.push(&record.case);
            }
        }
        let latest = |name: &'a str| {
            let own = || records.iter().filter(|record| record.case == name);
            let mut runs: Vec<u64> = own().map(|record| record.run).collect();
            runs.sort_unstable();
            runs.dedup();
            let last = *runs.last().expect("a name comes from a record");
            let records: Vec<&Record> = own().filter(|record| record.run == last).collect();
            let case = case_of(name, records.iter().copied());
            let is_of_two = records.iter().any(|record| record.factors.contains_key(BINARY.name));
            let mut cells: Vec<&Factors> = Vec::new();
            for record in &records {
                if !cells.contains(&&record.factors) {
                    cells.push(&record.factors);
                }
            }
            Series { name, case, records, cells, is_of_two, earlier_runs: runs.len() - 1 }
        };
        names.into_iter().map(latest).collect()
    }

    /// All cells that were measured, in the order in which they were.
    pub(super) fn cells(&self) -> Vec<&'a Factors> {
        self.cells.clone()
    }

    /// The factors in the order of the case, or else of the alphabet; then `binary`, if there are two.
    pub(super) fn order(&self) -> Vec<&str> {
        let mut names = match &self.case {
            Some(case) => case.factor_names(),
            None => {
                let keys = self.records.iter().flat_map(|record| record.factors.keys());
                let mut names: Vec<&str> = keys.map(String::as_str).collect();
                names.sort_unstable();
                names.dedup();
                names.retain(|name| *name != BINARY.name);
                names
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
            (Some(Level::Number(bytes)), Some(Domain::Bytes { .. })) => Bytes(*bytes).to_string(),
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
        let own = self.case.as_ref().map_or(&[][..], |case| &case.metrics);
        let place = |name: &str| {
            let (part, known) = name.split_once('.').unwrap_or(("", name));
            let known = METRICS.iter().position(|metric| metric.name == known);
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
        Shown::of(name, self.case.as_ref().map_or(&[], |case| &case.metrics))
    }

    /// What the trials of a cell say; none if they do not say it.
    pub(super) fn samples(&self, cell: &Factors, metric: &str) -> Vec<Sample> {
        let trials = self.records.iter().filter(|record| record.factors == *cell);
        let sample = |record: &&Record| {
            let value = *record.metrics.get(metric)?;
            let line = record.state.as_ref().and_then(State::line_range);
            Some(Sample { trial: record.trial, value, line })
        };
        trials.filter_map(sample).collect()
    }

    /// What the trials of a cell say, each by itself or all together; none if they do not say it.
    pub(super) fn found(&self, cell: &'a Factors, metric: &str) -> Option<Found<'a>> {
        let samples = self.samples(cell, metric);
        let own = |record: &&&Record| record.factors == *cell && record.is_measured();
        if samples.len() < self.records.iter().filter(own).count()
            && let Some(pooled) = Pooled::of(self, cell, metric)
        {
            return Some(Found { cell, samples: Vec::new(), summary: pooled.summary() });
        }
        let summary = Summary::of(&samples)?;
        Some(Found { cell, samples, summary })
    }

    /// The best of the cells that `is_meant`, by their medians; none if none has the metric.
    pub(super) fn best(
        &self,
        metric: &str,
        is_meant: impl Fn(&Factors) -> bool,
    ) -> Option<Found<'a>> {
        let found = |cell: &'a Factors| self.found(cell, metric);
        let meant = self.cells().into_iter().filter(|cell| is_meant(cell));
        let better = self.metric(metric).better;
        let by_median = |one: &Found, other: &Found| {
            let order = one.summary.median.total_cmp(&other.summary.median);
            if better == Better::More { order.reverse() } else { order }
        };
        meant.filter_map(found).min_by(by_median)
    }

    /// A figure compared with another: round by round, or all rounds together where single ones are too short.
    pub(super) fn compared(
        &self,
        metric: &str,
        comparison: Comparison,
        [own, base]: [&Found<'_>; 2],
    ) -> Option<Summary> {
        if own.is_pooled() || base.is_pooled() {
            let compared = self.pooled(metric, comparison, [Some(own), Some(base)]);
            return compared.map(Pooled::summary);
        }
        Summary::of(&compared_by_rounds(comparison, [own, base]))
    }

    /// A figure of all rounds together, compared with another's if there is one.
    fn pooled(
        &self,
        metric: &str,
        comparison: Comparison,
        [own, base]: [Option<&Found<'_>>; 2],
    ) -> Option<Pooled> {
        let of = |found: &Found<'_>| Pooled::of(self, found.cell, metric);
        let own = of(own?)?;
        let Some(base) = base else { return Some(own) };
        match comparison {
            Comparison::Ratio => own.ratio(of(base)?),
            Comparison::Difference => Some(own.difference(of(base)?)),
        }
    }

    /// The interval of such a figure that is one of so many which are judged together.
    pub(super) fn pooled_of_many(
        &self,
        metric: &str,
        comparison: Comparison,
        sides: [Option<&Found<'_>>; 2],
        questions: usize,
    ) -> Option<(f64, f64)> {
        self.pooled(metric, comparison, sides)?.interval_of_many(questions)
    }

    /// The best of the cells that have these levels; factors that are not named are open.
    pub(super) fn best_of(&self, metric: &str, wanted: &Factors) -> Option<Found<'a>> {
        self.best(metric, |cell| matches(cell, wanted))
    }

    /// The representative trial of a cell.
    pub(super) fn trial(&self, cell: &Factors, trial: u32) -> Option<&'a Record> {
        let mut records = self.records.iter();
        let is_it = |record: &&&Record| record.factors == *cell && record.trial == trial;
        records.find(|record| is_it(record) && record.is_measured()).copied()
    }

    /// Trials of a cell that failed in every attempt.
    pub(super) fn lost(&self, cell: &Factors) -> usize {
        let own = || self.records.iter().filter(|record| record.factors == *cell);
        let failed = own().filter(|record| record.failed.is_some());
        let mut lost: Vec<u32> = failed.map(|record| record.trial).collect();
        lost.sort_unstable();
        lost.dedup();
        lost.retain(|trial| !own().any(|one| one.trial == *trial && one.is_measured()));
        lost.len()
    }
}

/// The levels that a cell has of some factors. In a run of one binary each cell was measured by this one.
pub(super) fn levels(cell: &Factors, factors: &[String]) -> Levels {
    let level = |factor: &String| {
        let this = || (factor == BINARY.name).then(|| Level::Word(THIS.to_owned()));
        cell.get(factor).cloned().or_else(this)
    };
    factors.iter().map(level).collect()
}
