//! What becomes of a run whose workers are killed, starved and refused what they need, each at a random time.
//!
//! A worker has its misfortune before its window can be over, so that it cannot have reported: each one has to be a record, on the
//! screen, and in no verdict.

mod crew;

use std::cell::Cell;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use host::config::Source;
use lab::case::Case;
use lab::factor::Factors;
use lab::machine::Machine;
use lab::plan::{Job, Plan, Wishes};
use lab::report::{self, Verdict};
use lab::run::{Outcome, Watcher};
use lab::trial::{Crew, TrialError};

use self::crew::{MISFORTUNE, worker_command};

const RUNS: u64 = 4;
const TRIALS: u32 = 50;

/// Until here a misfortune comes, from the start of its worker: warm-up and window are longer.
const LATEST_US: u64 = 14_000;

const CASE: &str = r#"name = "c"
asks = "?"
workload = "message-stream"
trials = 50
seconds = 0.02
warm_up_seconds = 0.005
[factors]
transport = ["pipe"]
bytes = [64]
[[screen.column]]
heading = "64 B"
metric = "rate_messages_per_s"
[[screen.row]]
name = "pipe"
of = [{ transport = "pipe" }]
[[claim]]
name = "it goes"
metric = "rate_messages_per_s"
of = { transport = "pipe" }
at_least = 1
"#;

/// Where a run is: which trial, which attempt at it, and which of its workers is started next.
#[derive(Clone, Default)]
struct Place(Rc<[Cell<u64>; 3]>);

impl Watcher for Place {
    fn begins(&mut self, _step: usize, _job: &Job, _cell: &Factors, trial: u32) {
        for (cell, value) in self.0.iter().zip([trial.into(), 0, 0]) {
            cell.set(value);
        }
    }

    fn failed(&mut self, _job: &Job, _cell: &Factors, _trial: u32, _error: &TrialError) {
        self.0[1].set(self.0[1].get() + 1);
        self.0[2].set(0);
    }
}

/// Numbers that look random and are the same for the same run, trial and question.
fn chance(run: u64, trial: u64, question: u64, of: u64) -> u64 {
    let mut mixed = (run << 40 | trial << 8 | question).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32) % of
}

/// In how many attempts at a trial one of the workers has a misfortune: in none, the first, or both.
fn struck(run: u64, trial: u64) -> u64 {
    chance(run, trial, 0, 4).min(2)
}

/// The file that a worker makes when it has its misfortune.
fn file(run: u64, trial: u64, attempt: u64) -> PathBuf {
    let name = format!("siga-misfortune-{}-{run}-{trial}-{attempt}", std::process::id());
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn crew_of(run: u64, place: Place) -> Crew {
    let command = move || -> Command {
        let [trial, attempt, worker] = &*place.0;
        let (trial, attempt, number) =
            (trial.get(), attempt.get(), worker.replace(worker.get() + 1));
        let mut command = worker_command();
        if attempt < struck(run, trial) && number == chance(run, trial, 1, 2) {
            let kind = ["kill", "stop", "refuse"][chance(run, trial, 2 + attempt, 3) as usize];
            let after_us = chance(run, trial, 4 + attempt, LATEST_US);
            let file = file(run, trial, attempt);
            command.env(MISFORTUNE, format!("{kind} {after_us} {LATEST_US} {}", file.display()));
        }
        command
    };
    Crew { grace: Duration::from_millis(40), ..Crew::new(command) }
}

fn run_case(crew: &Crew, place: &mut Place) -> Outcome {
    let case = Case::parse(&Source::of("c.toml", CASE), &|_| unreachable!("it names none"));
    let plan = Plan::new(vec![case.unwrap()], &Wishes::default()).unwrap();
    lab::run::run(&plan, crew, None, &Machine::here(), None, place).unwrap()
}

#[test]
fn every_misfortune_is_a_record_and_on_the_screen_and_in_no_verdict() {
    let untroubled = run_case(&crew::crew(), &mut Place::default());
    let judged = report::judgements(&untroubled.records);
    assert!(untroubled.failed > 0 || judged[0].verdict == Verdict::Holds, "{judged:?}");
    let mut misfortunes = 0;
    for run in 0..RUNS {
        let mut place = Place::default();
        let outcome = run_case(&crew_of(run, place.clone()), &mut place);
        let (mut attempts, mut lost) = (0, 0);
        for trial in 1..=TRIALS {
            let own = || outcome.records.iter().filter(|record| record.trial == trial);
            let failed = own().filter(|record| record.failed.is_some()).count() as u64;
            let struck: u64 = (0..struck(run, trial.into()))
                .map(|attempt| {
                    u64::from(std::fs::remove_file(file(run, trial.into(), attempt)).is_ok())
                })
                .sum();
            misfortunes += struck;
            // A machine that is busy beyond measure may fail one more.
            assert!(failed >= struck, "run {run}, trial {trial}: {:?}", own().collect::<Vec<_>>());
            attempts += failed;
            lost += usize::from(own().all(|record| record.failed.is_some()));
            assert!(own().filter(|one| one.failed.is_some()).all(|one| one.metrics.is_empty()));
        }
        assert!(lost > 0 && outcome.failed == lost, "run {run}: {lost} of {}", outcome.failed);
        let screen = report::first_screen(&outcome.records, 100);
        let told = format!("FAILED: {attempts} attempts; {lost} trials have no figure.");
        assert!(screen.contains(&told), "{told}\n{screen}");
        let all = report::text(&report::report(&outcome.records), 100);
        assert!(all.contains(" failed"), "{all}");
        // The claim holds in every trial that has a figure, by far: what is missing decides.
        let judged = report::judgements(&outcome.records);
        assert_eq!(judged.len(), 1);
        assert_eq!(judged[0].verdict, Verdict::Undecided, "{all}");
    }
    assert!(misfortunes >= RUNS * u64::from(TRIALS) / 2, "{misfortunes}");
}
