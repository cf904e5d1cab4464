//! `siga lab`: measure.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::Command;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::factor::{Factors, describe};
use lab::library::{self, SelectError};
use lab::machine::Machine;
use lab::plan::{Job, Plan, Wishes};
use lab::record::{self, Results};
use lab::report;
use lab::run::{RunError, Watcher};
use lab::trial::{Crew, TrialError};

use crate::outcome::Outcome;

/// Measure this machine: run cases, print their tables
///
/// A case says what is measured under which levels of which factors. Those that come with siga compare
/// messages over paths with every other way between two processes, and with what memory allows.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    Run(Run),
}

/// Run cases and print their tables
#[derive(Debug, clap::Args)]
struct Run {
    /// Names of cases or of groups of cases, or case files [default: messages]
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// Measure each cell so often, instead of what the case says
    #[arg(long, value_name = "N")]
    trials: Option<u32>,
    /// Let each trial count for so long, instead of what the case says
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Let each trial go on for so long before it counts, instead of what the case says
    #[arg(long, value_name = "S")]
    warm_up: Option<f64>,
    /// Measure these levels of a factor, instead of what the case says. May be repeated
    #[arg(long, value_name = "FACTOR=LEVEL,..", value_parser = setting)]
    set: Vec<(String, Vec<String>)>,
    /// Append the result of each trial to this file, for `siga lab report`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn setting(text: &str) -> Result<(String, Vec<String>), String> {
    let (factor, levels) = text.split_once('=').ok_or("must be like bytes=64,1000")?;
    let levels = levels.split(',').map(|level| level.trim().to_owned()).collect();
    Ok((factor.trim().to_owned(), levels))
}

/// Runs the lab.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    match &arguments.command {
        LabCommand::Run(arguments) => run_cases(arguments),
    }
}

fn run_cases(arguments: &Run) -> Result<(), Outcome> {
    let cases = library::select(&arguments.cases).map_err(|error| match error {
        SelectError::File(error) => error.into(),
        unknown => Outcome::Usage(unknown.to_string()),
    })?;
    let wishes = Wishes {
        trials: arguments.trials,
        seconds: arguments.seconds,
        warm_up_seconds: arguments.warm_up,
        set: arguments.set.clone(),
    };
    let plan = Plan::new(cases, &wishes).map_err(Outcome::Usage)?;
    let mut results = match &arguments.json {
        None => None,
        Some(file) => Some(Results::append_to(file).map_err(|error| {
            Outcome::No(format!("cannot append to {}: {error}", file.display()))
        })?),
    };
    let machine = Machine::here();
    for warning in machine.warnings() {
        eprintln!("warning: {warning}");
    }
    let program = std::env::current_exe().map_err(Outcome::no)?;
    let worker = move || {
        let mut command = Command::new(&program);
        command.arg("lab-worker");
        command
    };
    let crew = Crew::new(worker, machine.pinned);
    let mut bar = Bar::new(&plan);
    let outcome = lab::run::run(&plan, &crew, &machine, results.as_mut(), &mut bar);
    bar.bar.finish_and_clear();
    let outcome = outcome.map_err(|error| match error {
        RunError::System(error) => error.into(),
        RunError::Results(_) => Outcome::no(error),
    })?;
    print!("{}", report::text(&report::report(&outcome.records)));
    Ok(())
}

/// Shows how far the run is.
struct Bar {
    bar: ProgressBar,
}

impl Bar {
    fn new(plan: &Plan) -> Bar {
        let bar = ProgressBar::new(plan.steps().len() as u64);
        Bar { bar }
    }
}

impl Watcher for Bar {
    fn begins(&mut self, step: usize, job: &Job, cell: &Factors, trial: u32) {
        self.bar.set_position(step as u64);
    }

    fn failed(&mut self, job: &Job, cell: &Factors, trial: u32, error: &TrialError) {
        let cell = describe(cell, &job.case.workload.factor_names());
        self.bar.suspend(|| eprintln!("{} ({cell}), trial {trial}: {error}", job.case.name));
    }
}
