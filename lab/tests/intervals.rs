//! Interval records of real trials: what their differences add up to is what the parties reported.

mod crew;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use host::config::Source;
use lab::case::Case;
use lab::factor::{Factors, Level};
use lab::interval::{self, Head, Intervals};
use lab::machine::Machine;
use lab::plan::{Job, Plan, Wishes};
use lab::quantity::Report;
use lab::record::{self, Record, Results};
use lab::reduce::reduce;
use lab::run::{Watcher, run};
use lab::trial::{Measured, Trial, TrialError};
use lab::workload;

use crew::crew;

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let name = format!("siga-lab-intervals-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The additive quantities of a report.
fn quantities(report: &Report) -> BTreeMap<String, u64> {
    let work = report.work.iter().map(|(kind, count)| (format!("work {kind}"), *count));
    let times = report.times.iter().map(|(kind, times)| (format!("times {kind}"), times.count()));
    let cpu = [("cpu".to_owned(), report.cpu_ns()), ("window".to_owned(), report.window_ns)];
    work.chain(times).chain(cpu).collect()
}

#[test]
fn differences_of_records_add_up_to_the_quantities_of_the_trial() {
    for (workload, bytes) in [("message-stream", 1000), ("message-exchange", 64)] {
        let directory = Directory::new(workload);
        let word = |word: &str| Level::Word(word.into());
        let factors: Factors = [
            ("transport".to_owned(), word("unix-stream")),
            ("bytes".to_owned(), Level::Number(bytes)),
            ("wait".to_owned(), word("block")),
        ]
        .into();
        let head = Head {
            case: "c".into(),
            run: 7,
            trial: 1,
            factors: factors.clone(),
            role: String::new(),
            number: 0,
            interval_ms: 5,
        };
        let interval = Duration::from_millis(5);
        let path = directory.0.clone();
        let intervals = Intervals { interval, directory: path, name: "c-7-0-1".into(), head };
        let trial = Trial {
            window: Duration::from_millis(500),
            intervals: Some(intervals.clone()),
            ..Trial::new(workload::find(workload).unwrap(), factors)
        };
        let Measured { parties, .. } = crew().run(&trial).unwrap();
        for party in parties {
            let recorded = interval::read(&intervals.file(&party.role, party.number)).unwrap();
            assert_eq!((recorded.head.role.as_str(), recorded.bytes_left), (&*party.role, 0));
            let (last, others) = recorded.intervals.split_last().unwrap();
            assert!(last.is_last && others.iter().all(|other| !other.is_last));
            assert!(!others.is_empty(), "a window has many intervals");
            let mut sum = BTreeMap::<String, u64>::new();
            let mut before = BTreeMap::new();
            for interval in &recorded.intervals {
                let now = quantities(&interval.report);
                for (name, value) in &now {
                    let earlier: u64 = before.get(name).copied().unwrap_or(0);
                    let grown = value.checked_sub(earlier);
                    *sum.entry(name.clone()).or_default() += grown.expect("they are cumulative");
                }
                before = now;
            }
            assert_eq!(sum, quantities(&party.report), "{workload}: {}", party.role);
            assert_eq!(last.report.times, party.report.times);
        }
    }
}

/// Watches nothing.
struct Nobody;

impl Watcher for Nobody {
    fn begins(&mut self, _: usize, _: &Job, _: &Factors, _: u32) {}
    fn failed(&mut self, _: &Job, cell: &Factors, _: u32, error: &TrialError) {
        panic!("{cell:?}: {error}");
    }
}

/// The results of a run of a case whose parties keep records.
fn results(directory: &Directory, workload: &str, factors: &str) -> (PathBuf, Vec<Record>) {
    let text = format!(
        "name = \"c\"\nasks = \"?\"\ntrials = 2\nseconds = 0.5\nwarm_up_seconds = 0.01\n\
         interval_ms = 10\n{workload}\n[factors]\n{factors}"
    );
    let case = Case::parse(&Source::of("c.toml", &text), &|_| unreachable!("it names none"));
    let plan = Plan::new(vec![case.unwrap()], &Wishes::default()).unwrap();
    let file = directory.0.join("results.jsonl");
    let mut kept = Results::default();
    kept.append_to(&file).unwrap();
    let machine = Machine::default();
    run(&plan, &crew(), None, &machine, Some(&mut kept), &mut Nobody).unwrap();
    let records = record::read(&file).unwrap();
    (file, records)
}

#[test]
fn figures_reduced_from_records_are_those_of_the_reports() {
    for (name, workload, factors) in [
        (
            "stream",
            "workload = \"message-stream\"",
            "transport = [\"path\", \"pipe\"]\nbytes = [64, 100000]\n",
        ),
        (
            "exchange",
            "workload = \"message-exchange\"",
            "transport = [\"path\", \"unix-stream\"]\nwait = [\"block\"]\n",
        ),
        (
            "request",
            "workload = \"message-request\"",
            "transport = [\"iucv\", \"pipe\"]\nbytes = [1000]\n",
        ),
        (
            "both",
            "[[workload]]\nname = \"one\"\nworkload = \"message-exchange\"\n\
             [[workload]]\nname = \"other\"\nworkload = \"message-exchange\"",
            "\"one.transport\" = [\"path\"]\n\"other.transport\" = [\"pipe\"]\n\
             \"one.wait\" = [\"block\"]\n",
        ),
    ] {
        let directory = Directory::new(&format!("reduced-{name}"));
        let (file, records) = results(&directory, workload, factors);
        let mut again = records.clone();
        let found = reduce(&mut again, &file);
        assert_eq!((found.trials, found.faults), (records.len(), vec![]), "{name}");
        for (before, after) in records.iter().zip(&again) {
            assert_eq!(before.counters, after.counters);
            assert_eq!(before.unexplained_ns, after.unexplained_ns);
            for (one, other) in before.parties.iter().zip(&after.parties) {
                assert_eq!(quantities(&one.report), quantities(&other.report));
            }
            let names = |record: &Record| record.metrics.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(before), names(after));
            for (metric, value) in &before.metrics {
                // A histogram knows times to a thousandth, or to a hundredth where it has many.
                let resolution = if metric.ends_with("_ns") { 0.011 } else { 1e-9 };
                let found = after.metrics[metric];
                let is_same = (found - value).abs() <= resolution * value.abs();
                assert!(is_same, "{workload}: {metric}: {found}, not {value}");
            }
        }
    }
}

#[test]
fn records_that_are_missing_or_cut_short_are_named() {
    let directory = Directory::new("faults");
    let (file, records) =
        results(&directory, "workload = \"message-stream\"", "transport = [\"pipe\"]\n");
    let place = interval::directory(&file);
    let of = |trial: u32, role: &str| {
        let name = format!("c-{}-0-{trial}-{role}-0.intervals", records[0].run);
        place.join(name)
    };
    let bytes = std::fs::read(of(1, "target")).unwrap();
    // Within the last record, so that the one before it is the last that is whole.
    std::fs::write(of(1, "target"), &bytes[..bytes.len() - 1]).unwrap();
    std::fs::remove_file(of(2, "source")).unwrap();
    std::fs::write(place.join("notes.intervals"), "anything").unwrap();
    let mut again = records.clone();
    let found = reduce(&mut again, &file);
    assert_eq!(found.trials, 1);
    let [notes, cut, missing] = &found.faults[..] else { panic!("{:?}", found.faults) };
    assert!(notes.ends_with("notes.intervals: there are no interval records in it"), "{notes}");
    let first = "c (pipe, 64, block), trial 1: the records of target 0 end after 0.";
    assert!(cut.starts_with(first), "{cut}");
    assert_eq!(missing, "c (pipe, 64, block), trial 2: there are no records of source 0");
    assert!(again[0].metrics["rate_messages_per_s"] > 0.0);
    assert!(again[1].metrics.is_empty() && again[1].parties.is_empty());
    std::fs::remove_dir_all(&place).unwrap();
    let mut again = records.clone();
    let found = reduce(&mut again, &file);
    assert_eq!(found.trials, 0);
    let [gone] = &found.faults[..] else { panic!("{:?}", found.faults) };
    let right = "must be there: a case with interval_ms makes it beside its results";
    assert!(gone.ends_with(right), "{gone}");
}
