//! Running a plan.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use host::config::{FileError, Source};

use crate::against::Against;
use crate::case::Case;
use crate::factor::{BINARY, Factors, is_against};
use crate::machine::Machine;
use crate::plan::{Job, Plan, Step};
use crate::published::Published;
use crate::record::{Record, Results, Tables};
use crate::trial::{Crew, Measured, Trial, TrialError};

/// Watches a run. Its methods are called between trials only, so that they cannot disturb a measurement.
pub trait Watcher {
    /// A trial is about to begin.
    fn begins(&mut self, step: usize, job: &Job, cell: &Factors, trial: u32);
    /// A trial has no result: it failed, or this machine does not allow it.
    fn failed(&mut self, job: &Job, cell: &Factors, trial: u32, error: &TrialError);
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The trials that have results, and those that this machine does not allow.
    pub records: Vec<Record>,
    /// How many trials failed.
    pub failed: usize,
}

/// Why a run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A system file is wrong.
    #[error(transparent)]
    System(#[from] FileError),
    /// The results cannot be kept.
    #[error("cannot keep the results: {0}")]
    Results(#[source] io::Error),
}

/// Runs all steps of a plan, and writes each result at once. A trial that fails does not end
/// the run. `against` measures the cells of the other binary.
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
    let systems = plan.jobs.iter().map(system).collect::<Result<Vec<_>, _>>()?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut outcome = Outcome::default();
    let mut defined = vec![false; plan.jobs.len()];
    for (number, step) in plan.steps().into_iter().enumerate() {
        let Step { job: index, cell, trial } = step;
        let job = &plan.jobs[index];
        let factors = &job.cells[cell];
        watcher.begins(number, job, factors, trial);
        let mut trial_factors = factors.clone();
        trial_factors.remove(BINARY.name);
        let to_measure = Trial {
            workload: job.case.workload,
            factors: trial_factors,
            warm_up: job.case.warm_up,
            window: job.case.window,
            system: systems[index].clone(),
        };
        let measured = if is_against(factors) {
            let against = against.expect("a plan of two binaries has another");
            against.run(&to_measure, machine)
        } else {
            crew.run(&to_measure).map(|measured| (measured, machine.clone()))
        };
        if let Err(error) = &measured {
            watcher.failed(job, factors, trial, error);
        }
        let ((measured, machine), unable) = match measured {
            Ok(measured) => (measured, None),
            // The report says why there is no figure.
            Err(TrialError::Unable(why)) => ((Measured::default(), machine.clone()), Some(why)),
            Err(TrialError::Failed(_)) => {
                outcome.failed += 1;
                continue;
            }
        };
        let is_first = !std::mem::replace(&mut defined[index], true);
        let record = Record {
            case: job.case.name.clone(),
            system: systems[index].as_ref().map_or("open", |(name, _)| name).to_owned(),
            trial,
            factors: factors.clone(),
            metrics: measured.metrics,
            counters: measured.counters,
            machine,
            binary: against.map(|against| against.binary(factors).clone()),
            run: began.as_millis() as u64,
            seconds: job.case.window.as_secs_f64(),
            unable,
            definition: is_first.then(|| job.case.text.to_string()),
            published: published(&job.case).filter(|_| is_first),
        };
        if let Some(results) = &mut results {
            results.add(&record).map_err(RunError::Results)?;
        }
        outcome.records.push(record);
    }
    Ok(outcome)
}

/// The published tables that a case names.
fn published(case: &Case) -> Option<Tables> {
    let table = |table: &Published| (table.file.display().to_string(), table.text.to_string());
    (!case.published.is_empty()).then(|| Tables::Named(case.published.iter().map(table).collect()))
}

/// The name and the text of a job's system file, if it has one. It is read, and checked, before anything is
/// measured.
fn system(job: &Job) -> Result<Option<(String, String)>, FileError> {
    let Some(file) = &job.case.system else { return Ok(None) };
    let source = Source::read(Path::new(file))?;
    host::system::System::parse(&source)?;
    Ok(Some((file.display().to_string(), source.text().to_owned())))
}
