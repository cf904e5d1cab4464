//! Results reduced from interval records: figures are computed from the differences of each party's records,
//! instead of what the party reported at the end of the trial.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::case::Case;
use crate::definition::values;
use crate::factor::describe;
use crate::interval::{self, Head, Interval, Recorded};
use crate::quantity::{Party, Report, unexplained_ns};
use crate::record::{Record, case_of};
use crate::workload::{counters, named, split};

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

/// All records, by whose they are. How long their intervals are does not count, and is 0.
type Kept = BTreeMap<Head, Recorded>;

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
        let own = || records.iter().filter(|record| record.case == name && record.run == run);
        let case = case_of(&name, own());
        if case.is_none() {
            let why = format!("{name}: the results do not say how its metrics are computed");
            reduced.faults.push(why);
        }
        for record in records.iter_mut().filter(|r| r.case == name && r.run == run) {
            if record.is_measured() {
                reduce_trial(record, case.as_ref(), kept.as_ref(), &mut reduced);
            }
        }
    }
    if reduced.faults.len() > FAULTS_MAX {
        let more = reduced.faults.len() - FAULTS_MAX;
        reduced.faults.truncate(FAULTS_MAX);
        reduced.faults.push(format!("and {more} more"));
    }
    reduced
}

/// Computes the figures of a trial from the records of its parties. Without those of all, it has none.
fn reduce_trial(
    record: &mut Record,
    case: Option<&Case>,
    kept: Option<&Kept>,
    reduced: &mut Reduced,
) {
    let parties = std::mem::take(&mut record.parties);
    record.metrics.clear();
    record.counters.clear();
    record.unexplained_ns = None;
    let (Some(case), Some(kept)) = (case, kept) else { return };
    let levels = describe(&record.factors, &case.order());
    let trial = format!("{} ({levels}), trial {}", record.case, record.trial);
    if parties.is_empty() {
        reduced.faults.push(format!("{trial} names no parties: an older lab measured it"));
    }
    let found = parties.iter().map(|party| {
        let who = format!("{} {}", party.role, party.number);
        let head = Head {
            case: record.case.clone(),
            run: record.run,
            trial: record.trial,
            factors: record.factors.clone(),
            role: party.role.clone(),
            number: party.number,
            interval_ms: 0,
        };
        let recorded = kept.get(&head).ok_or_else(|| format!("there are no records of {who}"))?;
        let shrinks = || format!("in the records of {who} a number shrinks");
        let report = sum(recorded).ok_or_else(shrinks)?;
        if !recorded.intervals.last().is_some_and(|last| last.is_last) {
            let seconds = report.window_ns as f64 / 1e9;
            let cut = format!("{trial}: the records of {who} end after {seconds:.3} s");
            reduced.faults.push(cut);
        }
        Ok(Party { report, ..party.clone() })
    });
    match found.collect::<Result<Vec<Party>, String>>() {
        Ok(found) if !found.is_empty() => {
            record.metrics = values(case, &found);
            record.counters = counters(&found);
            record.unexplained_ns = unexplained_ns(&found);
            record.parties = found;
            reduced.trials += 1;
        }
        Ok(_) => {}
        Err(why) => reduced.faults.push(format!("{trial}: {why}")),
    }
}

/// All records of a directory; none if there is no directory.
fn read_all(reduced: &mut Reduced) -> Option<Kept> {
    let Reduced { directory, faults, .. } = reduced;
    let entries = match fs::read_dir(&*directory) {
        Ok(entries) => entries,
        Err(error) => {
            let right = "must be there: a case with interval_ms makes it beside its results";
            faults.push(format!("{}: {error}: {right}", directory.display()));
            return None;
        }
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort_unstable();
    let mut kept = Kept::new();
    for file in files {
        match interval::read(&file) {
            Ok(recorded) => {
                kept.insert(Head { interval_ms: 0, ..recorded.head.clone() }, recorded);
            }
            Err(error) => faults.push(format!("{}: {error}", file.display())),
        }
    }
    Some(kept)
}

/// What a party did from one record to the next, from the beginning of its window to the last record, added up.
/// None if a number shrinks, or if there is no record.
fn sum(recorded: &Recorded) -> Option<Report> {
    let (mut whole, mut earlier) = (Report::default(), &Report::default());
    for Interval { report, .. } in &recorded.intervals {
        whole = whole.and(&report.since(earlier)?);
        earlier = report;
    }
    // A counter of what rises and falls may end where it began, or below: a report leaves out what has not grown.
    whole.counters.retain(|_, count| count.cast_signed() > 0);
    // Beside other workloads a role has the name of its workload before it, which a worker does not know.
    let (part, _) = split(&recorded.head.role);
    whole.cpu.iter_mut().for_each(|thread| thread.role = named(part, &thread.role));
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
