//! Running a plan.

use std::fs;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use host::config::{FileError, Source};
use host::system::System;

use crate::against::Against;
use crate::case::{Case, CaseSystem};
use crate::definition::values;
use crate::factor::{Factors, OPEN, SYSTEM, is_against};
use crate::interval::{self, Head, Intervals};
use crate::library;
use crate::machine::Machine;
use crate::plan::{Job, Plan, Step};
use crate::quantity::{Party, unexplained_ns};
use crate::record::{Record, Results, Tables};
use crate::trial::{Crew, Measured, Trial, TrialError};

/// Watches a run. Its methods are called between trials only, so that they cannot disturb a measurement.
pub trait Watcher {
    /// A trial is about to begin.
    fn begins(&mut self, step: usize, job: &Job, cell: &Factors, trial: u32);
    /// An attempt at a trial has no result: it failed, or this machine does not allow it.
    fn failed(&mut self, job: &Job, cell: &Factors, trial: u32, error: &TrialError);
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// All trials: those that have results, those that this machine does not allow, and those that failed.
    pub records: Vec<Record>,
    /// How many trials failed in every attempt.
    pub failed: usize,
    /// Why the results can no longer be kept, as on a full disk: the run has ended with the first trial that
    /// is not in the file.
    pub unkept: Option<io::Error>,
    /// Why parties kept no interval records, though the case asks for them.
    pub unrecorded: Option<io::Error>,
}

/// Why a run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A system file is wrong, or cannot be read.
    #[error(transparent)]
    System(#[from] FileError),
    /// The results cannot be kept.
    #[error("cannot keep the results: {0}")]
    Results(#[source] io::Error),
}

/// Attempts at a trial before it counts as failed.
const ATTEMPTS_MAX: u32 = 2;

/// Runs all steps of a plan, and writes each result at once. A trial that fails is done once more, then the run goes
/// on without it; each attempt is a record. `against` measures the cells of the other binary.
///
/// # Errors
/// [`RunError`].
///
/// # Panics
/// If the plan has cells of another binary and `against` is none.
pub fn run(
    plan: &Plan,
    crew: &Crew,
    against: Option<&Against>,
    machine: &Machine,
    mut results: Option<&mut Results>,
    watcher: &mut impl Watcher,
) -> Result<Outcome, RunError> {
    let systems = plan.jobs.iter().map(|job| systems(&job.case)).collect::<Result<Vec<_>, _>>()?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut outcome = Outcome::default();
    let mut defined = vec![false; plan.jobs.len()];
    for (number, step) in plan.steps().into_iter().enumerate() {
        let Step { job: index, cell, trial } = step;
        let job = &plan.jobs[index];
        let factors = &job.cells[cell];
        watcher.begins(number, job, factors, trial);
        let workload = job.case.workload;
        let mut trial_factors = factors.clone();
        trial_factors.retain(|name, _| workload.factor(name).is_some());
        let system = job.case.system(factors).and_then(|at| systems[index][at].clone());
        let system_name = system.as_ref().map_or(OPEN, |(name, _)| name).to_owned();
        let intervals = intervals(job, results.as_deref(), began.as_millis() as u64, &step);
        let intervals = intervals.unwrap_or_else(|error| {
            // Parties measure without records too.
            outcome.unrecorded = Some(error);
            None
        });
        let mut to_measure = Trial {
            workload,
            factors: trial_factors,
            warm_up: job.case.warm_up,
            window: job.case.window,
            system,
            place: job.case.place.clone(),
            intervals,
        };
        for attempt in 1..=ATTEMPTS_MAX {
            let measured = if is_against(factors) {
                let against = against.expect("a plan of two binaries has another");
                against.run(&to_measure, machine)
            } else {
                crew.run(&to_measure).map(|measured| (measured, machine.clone()))
            };
            if let Err(error) = &measured {
                watcher.failed(job, factors, trial, error);
            }
            // The report says why there is no figure.
            let nothing = || (Measured::default(), machine.clone());
            let ((mut measured, machine), unable, failed) = match measured {
                Ok(measured) => (measured, None, None),
                Err(TrialError::Unable(why)) => (nothing(), Some(why), None),
                Err(TrialError::Failed(why)) => (nothing(), None, Some(why)),
            };
            let has_failed = failed.is_some();
            let is_over = !has_failed || attempt == ATTEMPTS_MAX;
            outcome.failed += usize::from(has_failed && is_over);
            if !measured.parties.is_empty() {
                measured.metrics.extend(values(&job.case, &measured.parties));
            }
            let is_first = !std::mem::replace(&mut defined[index], true);
            let record = Record {
                case: job.case.name.clone(),
                system: system_name.clone(),
                trial,
                factors: factors.clone(),
                metrics: measured.metrics,
                counters: measured.counters,
                unexplained_ns: unexplained_ns(&measured.parties),
                machine: Machine {
                    pinned: pinned(&measured.parties).or(machine.pinned),
                    ..machine
                },
                parties: measured.parties,
                binary: against.map(|against| against.binary(factors).clone()),
                run: began.as_millis() as u64,
                seconds: job.case.window.as_secs_f64(),
                unable,
                failed,
                definition: is_first.then(|| job.case.text.to_string()),
                file: (is_first && !library::has(&job.case.text))
                    .then(|| job.case.file.display().to_string()),
                published: Tables::of(&job.case).filter(|_| is_first),
            };
            let kept = results.as_mut().map_or(Ok(()), |results| results.add(&record));
            outcome.records.push(record);
            if let Err(error) = kept {
                // What was kept and what was measured are whole: only what would follow is left out.
                outcome.unkept = Some(error);
                return Ok(outcome);
            }
            if has_failed
                && let Some(Err(error)) = to_measure.intervals.as_ref().map(Intervals::discard)
            {
                outcome.unrecorded = Some(error);
                to_measure.intervals = None;
            }
            if is_over {
                break;
            }
        }
    }
    Ok(outcome)
}

/// Where the parties of a trial keep interval records: in a directory beside the results.
fn intervals(
    job: &Job,
    results: Option<&Results>,
    run: u64,
    step: &Step,
) -> io::Result<Option<Intervals>> {
    let file = results.and_then(Results::path);
    let (Some(interval), Some(file)) = (job.case.interval, file) else { return Ok(None) };
    let directory = interval::directory(file);
    fs::create_dir_all(&directory)?;
    let Step { cell, trial, .. } = *step;
    let head = Head {
        case: job.case.name.clone(),
        run,
        trial,
        factors: job.cells[cell].clone(),
        role: String::new(),
        number: 0,
        interval_ms: interval.as_millis() as u64,
    };
    let name = format!("{}-{run}-{cell}-{trial}", job.case.name);
    Ok(Some(Intervals { interval, directory, name, head }))
}

/// The processors that parties were placed on, in the order of their roles.
fn pinned(parties: &[Party]) -> Option<Vec<usize>> {
    let mut pinned: Vec<usize> = Vec::new();
    for processor in parties.iter().flat_map(|party| &party.place) {
        if !pinned.contains(processor) {
            pinned.push(*processor);
        }
    }
    (!pinned.is_empty()).then_some(pinned)
}

/// Name and text of a system file; none of the system that allows everything.
type SystemText = Option<(String, String)>;

/// The systems of a case. They are read, and checked, before anything is measured.
fn systems(case: &Case) -> Result<Vec<SystemText>, FileError> {
    let read = |system: &CaseSystem| {
        let Some(file) = &system.file else { return Ok(None) };
        let source = Source::read(file).map_err(|error| {
            let what = format!("the system file {} {}", file.display(), error.what);
            let case = Source::of(&case.file.display().to_string(), &case.text);
            case.error(system.span.clone(), what, format!("must be {}", SYSTEM.domain))
        })?;
        System::parse(&source)?;
        Ok(Some((file.display().to_string(), source.text().to_owned())))
    };
    case.systems.iter().map(read).collect()
}
