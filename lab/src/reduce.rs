//! Results reduced from interval records: figures are computed from the differences of each party's records,
//! instead of what the party reported at the end of the trial.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::definition::values;
use crate::factor::{Factors, describe};
use crate::interval::{self, Interval, Recorded};
use crate::quantity::{Party, Report, unexplained_ns};
use crate::record::{Record, case_of};
use crate::workload::counters;

/// What became of a reduction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reduced {
    /// Where the records are.
    pub directory: PathBuf,
    /// Trials whose figures come from records now.
    pub trials: usize,
    /// Whose records are missing, cut short or wrong, a sentence each. The figures of a trial that misses records
    /// of a party are left out.
    pub faults: Vec<String>,
}

/// Sentences about faults: there can be one for each party of each trial.
const FAULTS_MAX: usize = 20;

/// Whose records: case, run, trial, levels, role and number.
type Owner = (String, u64, u32, Factors, String, usize);

/// Reduces the results of a file, of the latest run of each case, from the interval records beside the file.
pub fn reduce(records: &mut [Record], file: &Path) -> Reduced {
    let directory = interval::directory(file);
    let mut reduced = Reduced { directory, ..Reduced::default() };
    let kept = read_all(&mut reduced);
    let mut latest = BTreeMap::<String, u64>::new();
    for record in records.iter() {
        let run = latest.entry(record.case.clone()).or_default();
        *run = record.run.max(*run);
    }
    for (name, run) in latest {
        let is_meant = |record: &Record| record.case == name && record.run == run;
        let Some(case) = case_of(&name, records.iter().filter(|record| is_meant(record))) else {
            reduced
                .faults
                .push(format!("{name}: the results do not say how its metrics are computed"));
            continue;
        };
        let order = case.order();
        for record in records.iter_mut().filter(|record| is_meant(record)) {
            if record.unable.is_some() {
                continue;
            }
            let levels = describe(&record.factors, &order);
            let trial = format!("{name} ({levels}), trial {}", record.trial);
            let whole = |party: &Party| -> Result<(Party, Option<String>), String> {
                let Party { role, number, .. } = party;
                let who = format!("{trial}: {role} {number}");
                let (factors, role) = (record.factors.clone(), role.clone());
                let owner = (name.clone(), run, record.trial, factors, role, *number);
                let recorded = kept.get(&owner).ok_or_else(|| format!("{who} has no records"))?;
                let report = sum(recorded)
                    .ok_or_else(|| format!("{who} has records in which a number shrinks"))?;
                let is_whole = recorded.intervals.last().is_some_and(|last| last.is_last);
                let cut = (!is_whole).then(|| {
                    let counted_s = report.window_ns as f64 / 1e9;
                    format!("{who} has records of {counted_s:.3} s only, and counts until then")
                });
                Ok((Party { report, ..party.clone() }, cut))
            };
            if record.parties.is_empty() {
                reduced
                    .faults
                    .push(format!("{trial} has no parties: the results come from an older lab"));
            }
            let found: Vec<_> = record.parties.iter().map(whole).collect();
            let faults = found.iter().filter_map(|found| match found {
                Ok((_, cut)) => cut.clone(),
                Err(fault) => Some(fault.clone()),
            });
            reduced.faults.extend(faults);
            let parties: Result<Vec<Party>, String> =
                found.into_iter().map(|found| found.map(|(party, _)| party)).collect();
            record.parties = parties.unwrap_or_default();
            record.metrics.clear();
            if !record.parties.is_empty() {
                record.metrics = values(&case, &record.parties);
                reduced.trials += 1;
            }
            record.counters = counters(&record.parties);
            record.unexplained_ns = unexplained_ns(&record.parties);
        }
    }
    if reduced.faults.len() > FAULTS_MAX {
        let more = reduced.faults.len() - FAULTS_MAX;
        reduced.faults.truncate(FAULTS_MAX);
        reduced.faults.push(format!("and {more} more"));
    }
    reduced
}

/// All records of a directory.
fn read_all(reduced: &mut Reduced) -> BTreeMap<Owner, Recorded> {
    let Reduced { directory, faults, .. } = reduced;
    let mut all = BTreeMap::new();
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) => {
            let right = "must be there: a case with interval_ms makes it beside its results";
            faults.push(format!("{}: {error}: {right}", directory.display()));
            return all;
        }
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort_unstable();
    for file in files {
        match interval::read(&file) {
            Ok(recorded) => {
                let head = recorded.head.clone();
                let party = (head.role, head.number);
                let owner = (head.case, head.run, head.trial, head.factors, party.0, party.1);
                all.insert(owner, recorded);
            }
            Err(error) => faults.push(format!("{}: {error}", file.display())),
        }
    }
    all
}

/// What a party did from one record to the next, from the beginning of its window to the last record, added up.
/// None if a number shrinks, or if there is no record.
fn sum(recorded: &Recorded) -> Option<Report> {
    let (mut whole, mut earlier) = (Report::default(), &Report::default());
    for Interval { report, .. } in &recorded.intervals {
        whole = whole.and(&report.since(earlier)?);
        earlier = report;
    }
    (!recorded.intervals.is_empty()).then_some(whole)
}

impl Reduced {
    /// What a report says of it.
    pub fn lines(&self) -> Vec<String> {
        let Reduced { directory, trials, faults } = self;
        let comes = if *trials == 1 { "trial come" } else { "trials come" };
        let first = format!(
            "The figures of {trials} {comes} from the interval records in {}, not from the parties' final reports.",
            directory.display()
        );
        let faults = faults.iter().map(|fault| format!("Not whole: {fault}"));
        std::iter::once(first).chain(faults).collect()
    }
}
