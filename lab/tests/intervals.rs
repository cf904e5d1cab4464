//! Interval records of real trials: what their differences add up to is what the parties reported.

mod crew;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lab::factor::{Factors, Level};
use lab::interval::{self, Head, Intervals};
use lab::quantity::Report;
use lab::trial::{Measured, Trial};
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
