//! Runs: what becomes of trials that fail.

mod crew;

use std::cell::Cell;
use std::process::Command;

use lab::case::Case;
use lab::factor::Factors;
use lab::machine::Machine;
use lab::plan::{Job, Plan, Wishes};
use lab::record::Record;
use lab::report;
use lab::run::{Outcome, Watcher};
use lab::trial::{Crew, TrialError};

use host::config::Source;

use self::crew::{crew, worker_command};

/// Counts what it is told.
#[derive(Default)]
struct Told(usize);

impl Watcher for Told {
    fn begins(&mut self, _step: usize, _job: &Job, _cell: &Factors, _trial: u32) {}

    fn failed(&mut self, _job: &Job, _cell: &Factors, _trial: u32, _error: &TrialError) {
        self.0 += 1;
    }
}

const CASE: &str = "name = \"c\"\nasks = \"?\"\nworkload = \"message-stream\"\ntrials = 3\nseconds = 0.05\n\
    warm_up_seconds = 0\n[factors]\ntransport = [\"pipe\"]\nbytes = [64]\n\
    [[claim]]\nname = \"fast\"\nmetric = \"rate_messages_per_s\"\nof = { transport = \"pipe\" }\nat_least = 1\n";

/// Runs the case, which has one cell. Returns how many failures were told as well.
fn run(crew: &Crew) -> (Outcome, usize) {
    let case = Case::parse(&Source::of("c.toml", CASE), &|_| unreachable!("it names none"));
    let plan = Plan::new(vec![case.unwrap()], &Wishes::default()).unwrap();
    let mut told = Told::default();
    let outcome = lab::run::run(&plan, crew, None, &Machine::here(), None, &mut told).unwrap();
    (outcome, told.0)
}

/// A crew of which those workers are broken that `is_broken` says, by the order in which they are started.
fn crew_with(is_broken: impl Fn(usize) -> bool + 'static) -> Crew {
    let started = Cell::new(0);
    let command = move || {
        let number = started.replace(started.get() + 1);
        if is_broken(number) { Command::new("false") } else { worker_command() }
    };
    Crew::new(command)
}

fn shown(record: &Record) -> (u32, bool, bool) {
    (record.trial, record.is_measured(), record.failed.is_some())
}

#[test]
fn trials_that_do_not_fail_are_done_once() {
    let (outcome, told) = run(&crew());
    let shown: Vec<_> = outcome.records.iter().map(shown).collect();
    assert_eq!(shown, [1, 2, 3].map(|trial| (trial, true, false)));
    assert_eq!((outcome.failed, told), (0, 0));
}

#[test]
fn trial_that_failed_is_done_again_and_both_are_records() {
    // The second trial's first worker.
    let (outcome, told) = run(&crew_with(|number| number == 2));
    let shown: Vec<_> = outcome.records.iter().map(shown).collect();
    assert_eq!(
        shown,
        [(1, true, false), (2, false, true), (2, true, false), (3, true, false)],
        "{:?}",
        outcome.records
    );
    assert_eq!((outcome.failed, told), (0, 1));
    assert!(outcome.records[1].metrics.is_empty());
    let text = report::text(&report::report(&outcome.records), 100);
    assert!(text.contains("Warning: c (pipe, 64, block) failed, done again: "), "{text}");
}

#[test]
fn trial_that_fails_twice_has_no_figure_and_its_cell_says_so() {
    // From the second trial on.
    let (outcome, told) = run(&crew_with(|number| number >= 2));
    let shown: Vec<_> = outcome.records.iter().map(shown).collect();
    let lost = |trial| [(trial, false, true); 2];
    assert_eq!(shown, [&[(1, true, false)][..], &lost(2), &lost(3)].concat());
    assert_eq!((outcome.failed, told), (2, 4));
    let text = report::text(&report::report(&outcome.records), 100);
    assert!(text.contains("2 of its trials have no figure"), "{text}");
}
