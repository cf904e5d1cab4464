//! Systems that hosts of trials run: one for a case, or a factor of it.

mod crew;

use std::path::PathBuf;

use host::config::FileError;
use lab::case::Case;
use lab::factor::Factors;
use lab::machine::Machine;
use lab::plan::{Job, Plan, Wishes};
use lab::report;
use lab::run::{Outcome, Watcher, run};
use lab::trial::TrialError;

use crew::crew;

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let name = format!("siga-lab-systems-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        std::fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

const GUESTS: &str = "[[guest]]\nname = \"TARGET\"\n[[guest]]\nname = \"SOURCE\"\n";

/// Keeps why trials failed.
struct Failures(Vec<String>);

impl Watcher for Failures {
    fn begins(&mut self, _: usize, _: &Job, _: &Factors, _: u32) {}

    fn failed(&mut self, job: &Job, cell: &Factors, _: u32, error: &TrialError) {
        self.0.push(format!("{}: {error}", lab::factor::describe(cell, &job.case.order())));
    }
}

fn run_case(file: PathBuf) -> (Result<Outcome, FileError>, Vec<String>) {
    let plan = Plan::new(vec![Case::read(&file).unwrap()], &Wishes::default()).unwrap();
    let mut failures = Failures(Vec::new());
    let outcome = run(&plan, &crew(), None, &Machine::here(), None, &mut failures);
    (outcome, failures.0)
}

#[test]
fn each_cell_runs_in_its_own_system() {
    let place = Directory::new("cells");
    place.write("two.toml", &format!("{GUESTS}connect = [\"TARGET\"]\n"));
    place.write("walls.toml", GUESTS);
    // Longer than an order to a worker may be.
    let long = "# Nothing follows from this line.\n".repeat(5000);
    place.write("long.toml", &format!("{long}{GUESTS}connect = [\"TARGET\"]\n"));
    let case = place.write(
        "case.toml",
        r#"
name = "systems"
asks = "Does the system matter?"
workload = "message-exchange"
trials = 1
seconds = 0.05
warm_up_seconds = 0.001

[factors]
system = ["open", "two.toml", "walls.toml", "long.toml"]
transport = ["path", "pipe"]
bytes = [64]
rate = [0]
think = [0]
wait = ["block"]

[[table]]
metric = "rate_messages_per_s"
down = ["transport", "system"]
base = { system = "open" }
show = ["absolute", "ratio"]

[[claim]]
name = "a system costs nothing"
metric = "rate_messages_per_s"
of = { system = "two" }
against = [{ system = "open" }]
at_least = 0
"#,
    );
    let (outcome, failures) = run_case(case);
    let outcome = outcome.unwrap();
    let why = "path, 64, block, walls: source: connect: this guest may not connect to the target";
    // It is tried twice.
    assert_eq!((outcome.failed, failures), (1, vec![why.to_owned(); 2]));
    let measured = outcome.records.iter().filter(|record| record.is_measured());
    let records = measured.map(|record| {
        let file = record.system.rsplit('/').next().unwrap();
        (record.factors.get("system").map(ToString::to_string), file)
    });
    let system = |level: &str| Some(level.to_owned());
    assert_eq!(
        records.collect::<Vec<_>>(),
        [
            (system("open"), "open"),
            (None, "open"),
            (system("two"), "two.toml"),
            (system("long"), "long.toml"),
        ]
    );
    let text = report::text(&report::report(&outcome.records), 100);
    let rows: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in ["path open ", "path two ", "path long ", "pipe any "] {
        assert!(rows.iter().any(|line| line.starts_with(row)), "{row}\nis not in\n{text}");
    }
    assert!(text.contains("a system costs nothing"), "{text}");
    let csv = report::csv(&outcome.records);
    assert_eq!(csv.lines().next().unwrap().matches("system").count(), 1, "{csv}");
    assert!(csv.lines().any(|line| line.contains("/two.toml,")), "{csv}");
}

#[test]
fn system_that_is_missing_or_wrong_is_refused_before_anything_is_measured() {
    let place = Directory::new("faults");
    let wrong = place.write("wrong.toml", "[[guest]]\nname = \"SOURCE\"\nconect = []\n");
    let case = place.write(
        "case.toml",
        r#"
name = "systems"
asks = "Does the system matter?"
workload = "path-idle"
trials = 1
seconds = 0.01
warm_up_seconds = 0

[factors]
system = [
    "open",
    "none.toml",
]
"#,
    );
    let refused = || -> FileError {
        match run_case(case.clone()) {
            (Err(error), failures) if failures.is_empty() => error,
            (other, failures) => panic!("{other:?}, {failures:?}"),
        }
    };
    let none = place.0.join("none.toml");
    let wanted = format!(
        "{}:12: the system file {} cannot be read: No such file or directory (os error 2): must be a system file, or open",
        case.display(),
        none.display()
    );
    assert_eq!(refused().to_string(), wanted);
    std::fs::rename(&wrong, &none).unwrap();
    let error = refused().to_string();
    let start = format!("{}:3: unknown field `conect`: did you mean `connect`?", none.display());
    assert!(error.starts_with(&start), "{error}");
}
