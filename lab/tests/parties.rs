//! Parties that lie, die, hang or flood: what comes of their trials.

use std::process::Command;
use std::time::Duration;

use host::config::Source;
use lab::case::Case;
use lab::factor::Factors;
use lab::machine::Machine;
use lab::plan::{Job, Plan, Wishes};
use lab::run::{Watcher, run};
use lab::trial::{Crew, Trial, TrialError};
use lab::worker::{Control, Fault, Order, Report, attend, run_with};
use lab::workload;

/// What the source of a trial is to do. Its target does what it should.
const DEED: &str = "SIGA_LAB_DEED";

/// No test by itself: what [`crew_of`] starts.
#[test]
fn unlucky_worker() {
    if std::env::var_os(DEED).is_some() {
        run_with(play).unwrap();
    }
}

fn play(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    // What ends the attendance of the other.
    control.tell("end")?;
    let deed = std::env::var(DEED).unwrap();
    if !order.is_source() {
        return attend(control);
    }
    match &*deed {
        "dies" => std::process::abort(),
        "floods" => loop {
            // There may be no room for the next.
            let _ = control.tell("and another thing");
        },
        _ => {}
    }
    let mut report = attend(control)?;
    match &*deed {
        "invents" => drop(report.work.insert("miles".into(), 5)),
        "exaggerates" => drop(report.work.insert("messages".into(), u64::MAX)),
        "divides by zero" => drop(report.levels.insert("resident".into(), f64::NAN)),
        "says too much" => {
            let name = |number| format!("{}{number}", "x".repeat(500));
            report.counters = (100..500).map(|number| (name(number), 1)).collect();
        }
        "hangs" => loop {
            control.note()?;
        },
        other => unreachable!("nobody {other}"),
    }
    Ok(report)
}

fn crew_of(deed: &'static str) -> Crew {
    let command = move || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["unlucky_worker", "--exact", "--nocapture"]).env(DEED, deed);
        command
    };
    // Whoever hangs is given up soon; all others are given time, on a busy machine too.
    let grace = Duration::from_secs(if deed == "hangs" { 5 } else { 60 });
    Crew { grace, ..Crew::new(command) }
}

fn trial() -> Trial {
    let pipe = lab::factor::Level::Word("pipe".into());
    let factors: Factors = [("transport".to_owned(), pipe)].into();
    let window = Duration::from_millis(5);
    Trial { window, ..Trial::new(workload::find("message-stream").unwrap(), factors) }
}

#[test]
fn party_that_lies_dies_hangs_or_floods_is_named_with_what_it_did() {
    for (deed, reason) in [
        ("invents", "source reported what cannot be: work of kind \"miles\": must be one of "),
        (
            "exaggerates",
            "source reported what cannot be: messages = 18446744073709551615: must be ",
        ),
        ("divides by zero", "source said what no worker says: "),
        ("says too much", "source said what no worker says: 196608 bytes or more at once"),
        ("dies", "source died, signal: 6 (SIGABRT)"),
        ("hangs", "source did not end in time"),
        ("floods", "source passed "),
    ] {
        match crew_of(deed).run(&trial()) {
            Err(TrialError::Failed(why)) => assert!(why.starts_with(reason), "{deed}: {why}"),
            other => panic!("{deed}: {other:?}"),
        }
    }
}

#[test]
fn party_that_only_closes_its_connection_is_ended() {
    let command = || {
        let mut command = Command::new("sh");
        command.args(["-c", "exec <&-; exec sleep 1000"]);
        command
    };
    let error = Crew::new(command).run(&trial()).unwrap_err().to_string();
    // Both do it: whoever was seen first.
    let is_named = |role: &str| error == format!("{role} died, signal: 9 (SIGKILL)");
    assert!(["source", "target"].into_iter().any(is_named), "{error}");
}

/// Counts the trials that begin and those that fail.
#[derive(Default)]
struct Counts(usize, usize);

impl Watcher for Counts {
    fn begins(&mut self, _: usize, _: &Job, _: &Factors, _: u32) {
        self.0 += 1;
    }

    fn failed(&mut self, _: &Job, _: &Factors, _: u32, _: &TrialError) {
        self.1 += 1;
    }
}

#[test]
fn run_goes_on_after_trials_that_fail() {
    let text = "name = \"c\"\nasks = \"?\"\nworkload = \"message-stream\"\ntrials = 3\nseconds = 0.005\n\
        warm_up_seconds = 0\n[factors]\ntransport = [\"pipe\"]\n";
    let case = Case::parse(&Source::of("c.toml", text), &|_| unreachable!("it names none"));
    let plan = Plan::new(vec![case.unwrap()], &Wishes::default()).unwrap();
    let mut counts = Counts::default();
    let machine = Machine::default();
    let outcome = run(&plan, &crew_of("invents"), None, &machine, None, &mut counts).unwrap();
    // Each trial is tried twice.
    assert_eq!((counts.0, counts.1, outcome.failed, outcome.records.len()), (3, 6, 3, 6));
    assert!(outcome.records.iter().all(|record| record.failed.is_some()));
}
