//! Running a plan.

use std::collections::BTreeSet;
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
use crate::state::{State, Watch};
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

/// Attempts at a trial before it counts as failed.
const ATTEMPTS_MAX: u32 = 2;

/// Runs all steps of a plan, and writes each result at once. A trial that fails is done once more, then the run goes
/// on without it; each attempt is a record. `against` measures the cells of the other binary.
///
/// # Errors
/// A system file is wrong, or cannot be read.
///
/// # Panics
/// If the plan has cells of another binary and `against` is none.
pub fn run(
    plan: &Plan,
    crew: &Crew,
    against: Option<&Against>,
    machine: &Machine,
    results: Option<&mut Results>,
    watcher: &mut impl Watcher,
) -> Result<Outcome, FileError> {
    let systems = plan.jobs.iter().map(|job| systems(&job.case)).collect::<Result<Vec<_>, _>>()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = results.as_ref().and_then(|results| results.began_ms);
    let steps = plan.steps();
    let mut running = Running {
        crew,
        against,
        machine,
        began_ms: began.unwrap_or(now.as_millis() as u64),
        results,
        defined: vec![false; plan.jobs.len()],
        planned: steps.len(),
        outcome: Outcome::default(),
    };
    for (number, step) in steps.into_iter().enumerate() {
        let job = &plan.jobs[step.job];
        watcher.begins(number, job, &job.cells[step.cell], step.trial);
        if let Err(error) = running.step(&step, job, &systems[step.job], watcher) {
            // What was kept and what was measured are whole: only what would follow is left out.
            running.outcome.unkept = Some(error);
            break;
        }
    }
    Ok(running.outcome)
}

/// A run that is under way.
struct Running<'a> {
    crew: &'a Crew,
    against: Option<&'a Against>,
    machine: &'a Machine,
    results: Option<&'a mut Results>,
    /// When it began, in milliseconds since 1970.
    began_ms: u64,
    /// The jobs of which a record has the case's text.
    defined: Vec<bool>,
    /// How many trials there are to be.
    planned: usize,
    outcome: Outcome,
}

/// What came of an attempt at a trial, and on which machine, and the state of this one meanwhile.
type Attempt = (Result<(Measured, Machine), TrialError>, State);

impl Running<'_> {
    /// Does one trial, and once more if it fails.
    ///
    /// # Errors
    /// The results cannot be kept.
    fn step(
        &mut self,
        step: &Step,
        job: &Job,
        systems: &[SystemText],
        watcher: &mut impl Watcher,
    ) -> io::Result<()> {
        let factors = &job.cells[step.cell];
        let system = job.case.system(factors).and_then(|at| systems[at].clone());
        let system_name = system.as_ref().map_or(OPEN, |(name, _)| name).to_owned();
        let workload = job.case.workload;
        let own = factors.iter().filter(|(name, _)| workload.factor(name).is_some());
        let own = own.map(|(name, level)| (name.clone(), level.clone())).collect();
        let mut trial = Trial {
            warm_up: job.case.warm_up,
            window: job.case.window,
            system,
            place: job.case.place.clone(),
            ..Trial::new(workload, own)
        };
        trial.intervals = self.intervals(job, step).unwrap_or_else(|error| {
            // Parties measure without records too.
            self.outcome.unrecorded = Some(error);
            None
        });
        for attempt in 1..=ATTEMPTS_MAX {
            let found = self.attempt(&trial, factors);
            if let Err(error) = &found.0 {
                watcher.failed(job, factors, step.trial, error);
            }
            let has_failed = matches!(found.0, Err(TrialError::Failed(_)));
            let is_over = !has_failed || attempt == ATTEMPTS_MAX;
            self.outcome.failed += usize::from(has_failed && is_over);
            let record = self.record(step, job, system_name.clone(), found);
            let kept = self.results.as_mut().map_or(Ok(()), |results| results.add(&record));
            self.outcome.records.push(record);
            kept?;
            if is_over {
                break;
            }
            if let Some(Err(error)) = trial.intervals.as_ref().map(Intervals::discard) {
                self.outcome.unrecorded = Some(error);
                trial.intervals = None;
            }
        }
        Ok(())
    }

    fn attempt(&self, trial: &Trial, factors: &Factors) -> Attempt {
        let watch = Watch::begin(&self.crew.processors);
        let measured = if is_against(factors) {
            let against = self.against.expect("a plan of two binaries has another");
            against.run(trial, self.machine)
        } else {
            self.crew.run(trial).map(|measured| (measured, self.machine.clone()))
        };
        (measured, watch.end())
    }

    fn record(
        &mut self,
        step: &Step,
        job: &Job,
        system: String,
        (measured, state): Attempt,
    ) -> Record {
        let Job { case, cells } = job;
        let factors = &cells[step.cell];
        // The report says why there is no figure.
        let nothing = || (Measured::default(), self.machine.clone());
        let ((mut measured, machine), unable, failed) = match measured {
            Ok(measured) => (measured, None, None),
            Err(TrialError::Unable(why)) => (nothing(), Some(why), None),
            Err(TrialError::Failed(why)) => (nothing(), None, Some(why)),
        };
        if !measured.parties.is_empty() {
            measured.metrics.extend(values(case, &measured.parties));
        }
        let is_first = !std::mem::replace(&mut self.defined[step.job], true);
        Record {
            case: case.name.clone(),
            system,
            trial: step.trial,
            factors: factors.clone(),
            metrics: measured.metrics,
            counters: measured.counters,
            unexplained_ns: unexplained_ns(&measured.parties),
            machine: Machine { pinned: pinned(&measured.parties).or(machine.pinned), ..machine },
            parties: measured.parties,
            binary: self.against.map(|against| against.binary(factors).clone()),
            state: Some(state),
            run: self.began_ms,
            seconds: case.window.as_secs_f64(),
            planned: Some(self.planned),
            unable,
            failed,
            definition: is_first.then(|| case.text.to_string()),
            file: (is_first && !library::has(&case.text)).then(|| case.file.display().to_string()),
            published: Tables::of(case).filter(|_| is_first),
            is_under_way: false,
        }
    }

    /// Where the parties of a trial keep interval records: in a directory beside the results.
    fn intervals(&self, job: &Job, step: &Step) -> io::Result<Option<Intervals>> {
        let file = self.results.as_deref().and_then(Results::path);
        let (Some(interval), Some(file)) = (job.case.interval, file) else { return Ok(None) };
        let directory = interval::directory(file);
        fs::create_dir_all(&directory)?;
        let Step { cell, trial, .. } = *step;
        let run = self.began_ms;
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
}

/// The processors that parties were placed on, in the order of their roles.
fn pinned(parties: &[Party]) -> Option<Vec<usize>> {
    let mut seen = BTreeSet::new();
    let processors = parties.iter().flat_map(|party| &party.place).copied();
    let pinned: Vec<usize> = processors.filter(|processor| seen.insert(*processor)).collect();
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
