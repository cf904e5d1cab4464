//! What a draft is held to: it names only what it defines, and agrees with the published tables that it names.

use std::collections::BTreeSet;
use std::ops::Range;

use host::config::{FileError, Source};
use toml::Spanned;

use super::written::{
    Written, WrittenClaim, WrittenCopies, WrittenDenominator, WrittenFactors, WrittenKnee,
    WrittenMetric, WrittenPer, WrittenTable, WrittenWorkloads,
};
use super::{Draft, MARK};
use crate::case::{
    METRIC, OneOrMany, ReadTable, SECONDS_MAX, Show, TRIALS_MAX, WrittenLevels, WrittenTables,
    unknown,
};
use crate::factor::{Factors, Level, SYSTEM, describe, matches};
use crate::published::Published;
use crate::workload;

const QUANTITIES: [&str; 6] = ["window", "work", "time", "cpu", "counter", "level"];
const DENOMINATORS: [&str; 8] =
    ["message", "transaction", "io", "byte", "mib", "second", "cpu_second", "share"];
/// Where roles run, besides the numbers of processors.
const PLACES: [&str; 3] = ["own", "shared", "any"];
const BETTERS: [&str; 2] = ["more", "less"];
/// What a table can lay out like a factor, though no case varies it.
const TRIAL: &str = "trial";
/// The longest unit of a metric, in bytes.
const UNIT_BYTES_MAX: usize = 20;

type Checked<T = ()> = Result<T, FileError>;

impl Written {
    /// The draft, if it is right.
    pub(super) fn check(self, source: &Source, read_table: ReadTable<'_>) -> Checked<Draft> {
        let missing = missing(source, &self.workload)?;
        let checker = Checker {
            source,
            roles: self.roles.keys().map(String::as_str).collect(),
            factors: named(&self.factors),
            labels: named(&self.labels),
            metrics: self.metric.iter().map(|metric| metric.name.get_ref().as_str()).collect(),
        };
        if self.asks.get_ref().is_empty() {
            return checker.wrong(
                self.asks.span(),
                "a draft that asks nothing",
                "must be a question",
            );
        }
        checker.lengths(Some(&self.trials), Some(&self.seconds), Some(&self.warm_up_seconds))?;
        let quick = &self.quick;
        checker.lengths(
            quick.trials.as_ref(),
            quick.seconds.as_ref(),
            quick.warm_up_seconds.as_ref(),
        )?;
        for (factor, levels) in &quick.factors {
            for level in levels {
                let shown = shown(factor.get_ref(), level.get_ref());
                checker.level(factor, &shown, level.span())?;
            }
        }
        checker.workloads(&self.workload)?;
        for copies in self.roles.values() {
            checker.copies(copies)?;
        }
        for (role, place) in &self.place {
            checker.role(role)?;
            if let Level::Word(word) = place.get_ref() {
                checker.one_of("place", &Spanned::new(place.span(), word.clone()), &PLACES)?;
            }
        }
        self.skip.iter().try_for_each(|cells| checker.levels(cells))?;
        for (at, metric) in self.metric.iter().enumerate() {
            checker.metric(metric)?;
            if checker.metrics[..at].contains(&metric.name.get_ref().as_str()) {
                let what = format!("there is already a metric {:?}", metric.name.get_ref());
                return checker.wrong(metric.name.span(), what, "must be another name");
            }
        }
        let published = checker.published(self.published, &self.skip, read_table)?;
        self.table.iter().try_for_each(|table| checker.table(table, &published))?;
        self.knee.iter().try_for_each(|knee| checker.knee(knee))?;
        self.claim.iter().try_for_each(|claim| checker.claim(claim))?;
        Ok(Draft {
            name: self.name.get_ref().clone(),
            group: self.group,
            asks: self.asks.into_inner(),
            missing,
            published,
        })
    }
}

/// The workloads that are not built yet. The first line has to name exactly these.
fn missing(source: &Source, workloads: &Spanned<WrittenWorkloads>) -> Checked<Vec<String>> {
    let named: Vec<&str> = match workloads.get_ref() {
        WrittenWorkloads::One(name) => vec![name],
        WrittenWorkloads::Several(all) => all.iter().map(|one| one.name.as_str()).collect(),
    };
    let mut missing: Vec<&str> = Vec::new();
    for name in named {
        if workload::find(name).is_none() && !missing.contains(&name) {
            missing.push(name);
        }
    }
    if missing.is_empty() {
        let right = "must be a case: without the first line, and in the format of cases";
        return Err(source.error(workloads.span(), "all workloads of this draft are built", right));
    }
    let first = source.text().lines().next().unwrap_or_default();
    let said = first.strip_prefix(MARK).unwrap_or_default().split(", ");
    if said.collect::<BTreeSet<&str>>() != missing.iter().copied().collect() {
        let right = format!("must be {MARK}{}", missing.join(", "));
        let what = "the first line does not name the workloads that are missing";
        return Err(source.error(0..first.len(), what, right));
    }
    Ok(missing.into_iter().map(str::to_owned).collect())
}

/// Factors with their levels as tables name them.
fn named(factors: &WrittenFactors) -> Vec<(&str, Vec<Level>)> {
    let levels = |factor: &str, levels: &[Spanned<Level>]| {
        levels.iter().map(|level| shown(factor, level.get_ref())).collect()
    };
    let factor = |(factor, own): (&'_ Spanned<String>, &'_ Vec<Spanned<Level>>)| {
        levels(factor.get_ref(), own)
    };
    factors.iter().map(|pair| (pair.0.get_ref().as_str(), factor(pair))).collect()
}

/// A level as tables and published columns name it.
fn shown(factor: &str, level: &Level) -> Level {
    match level {
        Level::Word(file) if factor == SYSTEM.name => {
            SYSTEM.level(file).unwrap_or_else(|_| level.clone())
        }
        level => level.clone(),
    }
}

struct Checker<'a> {
    source: &'a Source,
    roles: Vec<&'a str>,
    factors: Vec<(&'a str, Vec<Level>)>,
    labels: Vec<(&'a str, Vec<Level>)>,
    metrics: Vec<&'a str>,
}

impl Checker<'_> {
    fn wrong<T>(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        right: impl Into<String>,
    ) -> Checked<T> {
        Err(self.source.error(span, what, right))
    }

    fn one_of(&self, what: &str, written: &Spanned<String>, known: &[&str]) -> Checked {
        if known.contains(&written.get_ref().as_str()) {
            return Ok(());
        }
        Err(unknown(self.source, what, written, known))
    }

    fn lengths(
        &self,
        trials: Option<&Spanned<u32>>,
        seconds: Option<&Spanned<f64>>,
        warm_up: Option<&Spanned<f64>>,
    ) -> Checked {
        if let Some(trials) = trials.filter(|own| !(1..=TRIALS_MAX).contains(own.get_ref())) {
            let what = format!("trials = {}", trials.get_ref());
            return self.wrong(trials.span(), what, format!("must be 1 to {TRIALS_MAX}"));
        }
        for (name, written, least) in
            [("seconds", seconds, 0.001), ("warm_up_seconds", warm_up, 0.0)]
        {
            let is_outside = |own: &&Spanned<f64>| !(least..=SECONDS_MAX).contains(own.get_ref());
            if let Some(written) = written.filter(is_outside) {
                let what = format!("{name} = {}", written.get_ref());
                return self.wrong(
                    written.span(),
                    what,
                    format!("must be {least} to {SECONDS_MAX}"),
                );
            }
        }
        Ok(())
    }

    /// The levels of a factor or of a label.
    fn domain(&self, name: &str) -> Option<&[Level]> {
        let mut all = self.factors.iter().chain(&self.labels);
        all.find(|(own, _)| *own == name).map(|(_, levels)| levels.as_slice())
    }

    fn factor(&self, written: &Spanned<String>) -> Checked {
        let known: Vec<&str> =
            self.factors.iter().chain(&self.labels).map(|(name, _)| *name).collect();
        self.one_of("factor", written, &known)
    }

    fn level(&self, factor: &Spanned<String>, level: &Level, span: Range<usize>) -> Checked {
        self.factor(factor)?;
        let known = self.domain(factor.get_ref()).unwrap_or_default();
        if known.contains(level) {
            return Ok(());
        }
        let what = format!("{} = {level}", factor.get_ref());
        self.wrong(span, what, format!("must be {}", one_of(known)))
    }

    fn levels(&self, written: &WrittenLevels) -> Checked {
        let mut levels = written.iter();
        levels.try_for_each(|(factor, level)| self.level(factor, level.get_ref(), level.span()))
    }

    fn role(&self, written: &Spanned<String>) -> Checked {
        self.one_of("role", written, &self.roles)
    }

    fn workloads(&self, written: &Spanned<WrittenWorkloads>) -> Checked {
        let WrittenWorkloads::Several(workloads) = written.get_ref() else { return Ok(()) };
        let span = || written.span();
        for workload in workloads {
            for (factor, level) in &workload.when {
                self.level(&Spanned::new(span(), factor.clone()), level, span())?;
            }
            for role in workload.roles.values() {
                self.role(&Spanned::new(span(), role.clone()))?;
            }
        }
        Ok(())
    }

    fn copies(&self, written: &Spanned<WrittenCopies>) -> Checked {
        let copies = match written.get_ref() {
            WrittenCopies::One(one) => std::slice::from_ref(one),
            WrittenCopies::Product(several) => several,
        };
        let known: Vec<&str> = self.factors.iter().map(|(name, _)| *name).collect();
        for level in copies {
            if let Level::Word(factor) = level {
                self.one_of("factor", &Spanned::new(written.span(), factor.clone()), &known)?;
            }
        }
        Ok(())
    }

    fn metric(&self, written: &WrittenMetric) -> Checked {
        let WrittenMetric { quantity, part, role, per, times, copies, unit, label, better, .. } =
            written;
        self.quantity(quantity, part.is_some())?;
        self.roles(role.as_ref())?;
        match per.as_ref().map(|per| (per.get_ref(), per.span())) {
            Some((WrittenPer::Word(word), span)) => {
                self.one_of("denominator", &Spanned::new(span, word.clone()), &DENOMINATORS)?;
            }
            Some((WrittenPer::Quantity(denominator), span)) => {
                let WrittenDenominator { quantity, part, role } = denominator;
                self.quantity(&Spanned::new(span.clone(), quantity.clone()), part.is_some())?;
                let names = role.iter().flat_map(OneOrMany::all);
                names
                    .map(|role| Spanned::new(span.clone(), role.to_owned()))
                    .try_for_each(|role| self.role(&role))?;
            }
            None => {}
        }
        let is_positive = |times: f64| times.is_finite() && times > 0.0;
        if let Some(times) = times.as_ref().filter(|times| !is_positive(*times.get_ref())) {
            let what = format!("times = {}", times.get_ref());
            return self.wrong(times.span(), what, "must be more than 0");
        }
        if let Some(copies) = copies {
            self.one_of("way to take copies together", copies, &["mean"])?;
        }
        if unit.get_ref().len() >= UNIT_BYTES_MAX {
            let what = format!("{:?} is no unit", unit.get_ref());
            return self.wrong(
                unit.span(),
                what,
                format!("must be shorter than {UNIT_BYTES_MAX} B"),
            );
        }
        if label.get_ref().is_empty() {
            return self.wrong(label.span(), "a label without a letter", "must be words");
        }
        self.one_of("way", better, &BETTERS)
    }

    fn quantity(&self, written: &Spanned<String>, has_part: bool) -> Checked {
        self.one_of("quantity", written, &QUANTITIES)?;
        let name = written.get_ref().as_str();
        if !has_part && !["cpu", "window"].contains(&name) {
            return self.wrong(written.span(), format!("a {name} of no kind"), "must have a part");
        }
        Ok(())
    }

    fn roles(&self, written: Option<&Spanned<OneOrMany>>) -> Checked {
        spanned(written).iter().try_for_each(|role| self.role(role))
    }

    fn known_metric(&self, written: &Spanned<String>) -> Checked {
        self.one_of("metric", written, &self.metrics)
    }

    fn table(&self, written: &WrittenTable, published: &[Published]) -> Checked {
        let WrittenTable { metrics, each, down, across, only, base, show, .. } = written;
        for factor in [each, down, across].into_iter().flat_map(|names| spanned(names.as_ref())) {
            if ![METRIC, TRIAL].contains(&factor.get_ref().as_str()) {
                self.factor(&factor)?;
            }
        }
        metrics.get_ref().iter().try_for_each(|metric| self.known_metric(metric))?;
        base.iter().chain([only]).try_for_each(|levels| self.levels(levels))?;
        let compares = |show: &&Spanned<Vec<Show>>| {
            base.is_none() && show.get_ref().iter().any(|show| *show != Show::Absolute)
        };
        if let Some(show) = show.as_ref().filter(compares) {
            let what = "a ratio or delta against nothing";
            return self.wrong(show.span(), what, "must have a base");
        }
        let is_known =
            |metric: &Spanned<String>| published.iter().any(|table| table.knows(metric.get_ref()));
        if written.published && !metrics.get_ref().iter().any(is_known) {
            let what = "nothing was published of the metrics of this table";
            return self.wrong(metrics.span(), what, "must be without published = true");
        }
        Ok(())
    }

    fn knee(&self, written: &WrittenKnee) -> Checked {
        self.known_metric(&written.metric)?;
        self.factor(&written.along)?;
        spanned(written.each.as_ref()).iter().try_for_each(|factor| self.factor(factor))?;
        self.levels(&written.only)
    }

    fn claim(&self, written: &WrittenClaim) -> Checked {
        let span = written.name.span();
        let Some(metric) = &written.metric else {
            if written.note.is_some() {
                return Ok(());
            }
            let right = "must have one, or a note that says why it is not measured";
            return self.wrong(span, "a claim without a metric", right);
        };
        self.known_metric(metric)?;
        if written.at_least.is_none() && written.at_most.is_none() {
            return self.wrong(span, "a claim without a bound", "must have at_least or at_most");
        }
        written.against.iter().chain([&written.of]).try_for_each(|side| self.levels(side))?;
        spanned(written.every.as_ref()).iter().try_for_each(|factor| self.factor(factor))
    }

    /// The published tables. Each row is of a cell, and each cell has a row, unless the table is partial.
    fn published(
        &self,
        written: WrittenTables,
        skip: &[WrittenLevels],
        read_table: ReadTable<'_>,
    ) -> Checked<Vec<Published>> {
        let cells = self.cells(skip);
        let order: Vec<&str> = self.factors.iter().map(|(name, _)| *name).collect();
        let factor = |name: &Spanned<String>| {
            self.factor(name)?;
            Ok(name.get_ref().clone())
        };
        let metric = |name: &Spanned<String>| {
            self.known_metric(name)?;
            Ok(name.get_ref().clone())
        };
        let level = |name: &str, text: &str| {
            let known = self.domain(name).unwrap_or_default();
            let found = known.iter().find(|level| level.to_string() == text);
            found.cloned().ok_or_else(|| format!("must be {}", one_of(known)))
        };
        let mut tables = Vec::new();
        for table in written.0 {
            let (span, is_partial) = (table.name.span(), table.partial);
            let metrics = table.metrics.clone();
            let table = table.read(self.source, read_table, &factor, &metric, &level)?;
            let file = table.sheet.file().display();
            for (metric, column) in metrics {
                if !table.knows(metric.get_ref()) {
                    let what = format!("{file}: {column} has no figures");
                    return self.wrong(span, what, "must be a column with figures");
                }
            }
            for (label, levels) in &self.labels {
                let is_found =
                    |level: &&Level| table.cells().any(|row| row.get(*label) == Some(*level));
                let has_label = table.cells().any(|row| row.contains_key(*label));
                if let Some(level) = levels.iter().find(|level| has_label && !is_found(level)) {
                    let what = format!("{file}: there is no row with {label} = {level}");
                    return self.wrong(span, what, "must be there, or no level of the label");
                }
            }
            let of = |row: &Factors| -> Factors {
                let is_factor = |name: &String| order.contains(&name.as_str());
                row.iter()
                    .filter(|(name, _)| is_factor(name))
                    .map(|(n, l)| (n.clone(), l.clone()))
                    .collect()
            };
            let rows: Vec<Factors> = table.cells().map(of).collect();
            if let Some(row) = rows.iter().find(|row| !cells.iter().any(|cell| matches(cell, row)))
            {
                let what = format!("{file}: a row is of no cell: {}", describe(row, &order));
                return self.wrong(
                    span,
                    what,
                    "must be levels that go together and are not skipped",
                );
            }
            let has_row = |cell: &&Factors| rows.iter().any(|row| matches(cell, row));
            if let Some(cell) = cells.iter().find(|cell| !is_partial && !has_row(cell)) {
                let what = format!("{file}: there is no row of {}", describe(cell, &order));
                return self.wrong(span, what, "must be there, or the table has partial = true");
            }
            tables.push(table);
        }
        Ok(tables)
    }

    /// All combinations of levels that are not skipped.
    fn cells(&self, skip: &[WrittenLevels]) -> Vec<Factors> {
        let mut cells = vec![Factors::new()];
        for (factor, levels) in &self.factors {
            let with = |cell: &Factors| {
                let cell = cell.clone();
                levels.iter().map(move |level| {
                    let mut more = cell.clone();
                    more.insert((*factor).to_owned(), level.clone());
                    more
                })
            };
            cells = cells.iter().flat_map(with).collect();
        }
        let plain = |written: &WrittenLevels| -> Factors {
            let level = |(name, level): (&Spanned<String>, &Spanned<Level>)| {
                (name.get_ref().clone(), level.get_ref().clone())
            };
            written.iter().map(level).collect()
        };
        let skip: Vec<Factors> = skip.iter().map(plain).collect();
        cells.retain(|cell| !skip.iter().any(|skipped| matches(cell, skipped)));
        cells
    }
}

/// The names that are there, if any, each at the place of all.
fn spanned(names: Option<&Spanned<OneOrMany>>) -> Vec<Spanned<String>> {
    let at = |names: &Spanned<OneOrMany>| -> Vec<Spanned<String>> {
        let all = names.get_ref().all();
        all.map(|name| Spanned::new(names.span(), name.to_owned())).collect()
    };
    names.map(at).unwrap_or_default()
}

/// Levels, as an error lists them.
fn one_of(levels: &[Level]) -> String {
    let levels: Vec<String> = levels.iter().map(Level::to_string).collect();
    format!("one of {}", levels.join(", "))
}
