//! Another binary, played by shell scripts: what comes of what it does.

mod crew;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use host::config::Source;
use lab::against::Against;
use lab::case::Case;
use lab::factor::{AGAINST, Factors, Level, THIS};
use lab::machine::Machine;
use lab::plan::{Job, Plan, Wishes};
use lab::run::Watcher;
use lab::trial::{Measured, Trial, TrialError};
use lab::workload;

use crew::crew;

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("siga-against-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    /// A program that says it is siga, and does in a trial what [`Directory::deed`] says. `$case` and
    /// `$result` are its files.
    fn other(&self) -> PathBuf {
        self.script(
            "[ \"$1\" = --version ] && echo siga 0.0.9 && exit\n\
             [ \"$1 $2 $4\" = 'lab run --json' ] || exit 9\n\
             case=$3 result=$5\n. \"$(dirname \"$0\")/deed\"\n",
        )
    }

    fn deed(&self, deed: &str) {
        fs::write(self.0.join("deed"), deed).unwrap();
    }

    fn script(&self, text: &str) -> PathBuf {
        let path = self.0.join("other");
        // Written by another process: while this one has it open for writing, nobody can run it, and a
        // thread that starts a process meanwhile keeps it open.
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > \"$0\" && chmod +x \"$0\""]).arg(&path).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let text = format!("#!/bin/sh\n{text}");
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A result as a siga writes it.
const RESULT: &str = r#"{"case":"cell","system":"open","trial":1,"factors":{"bytes":64,"transport":"pipe","wait":"block"},"metrics":{"rate_messages_per_s":5e6},"counters":{"source_output_rings":3},"machine":{"siga":"0.0.9","processors":77},"run":1,"seconds":0.02}"#;

fn trial() -> Trial {
    let word = |word: &str| Level::Word(word.into());
    Trial {
        workload: workload::find("message-stream").unwrap(),
        factors: [
            ("bytes".to_owned(), Level::Number(64)),
            ("transport".to_owned(), word("pipe")),
            ("wait".to_owned(), word("block")),
        ]
        .into(),
        warm_up: Duration::ZERO,
        window: Duration::from_millis(20),
        system: Some(("two.toml".into(), "[[guest]]\nname = \"SOURCE\"\n".into())),
        place: Default::default(),
        intervals: None,
    }
}

/// Long enough for a script on any machine.
const LONG: Duration = Duration::from_secs(60);

/// What comes of each deed, with the path of the other binary left out.
fn measure(deeds: &[&str], time_max: Duration) -> Vec<Result<Measured, TrialError>> {
    let directory = Directory::new();
    let other = directory.other();
    let mut against = Against::new(&other).unwrap();
    against.time_max = Some(time_max);
    let path = other.canonicalize().unwrap().display().to_string();
    let measured = |deed: &&str| {
        directory.deed(deed);
        let measured = against.run(&trial(), &Machine::here());
        measured.map(|(measured, _)| measured).map_err(|error| match error {
            TrialError::Failed(why) => TrialError::Failed(why.replace(&path, "OTHER")),
            unable => unable,
        })
    };
    deeds.iter().map(measured).collect()
}

#[test]
fn other_binary_gets_a_case_and_leaves_a_result() {
    let directory = Directory::new();
    let kept = directory.0.display();
    let other = directory.other();
    directory.deed(&format!(
        "echo warning: busy >&2; echo 'a report'\n\
         echo \"$case\" > {kept}/where; cp \"$case\" {kept}/case\n\
         cp \"$(dirname \"$case\")/system.toml\" {kept}/system\necho '{RESULT}' >> \"$result\""
    ));
    let against = Against::new(&other).unwrap();
    let here = Machine::here();
    let (measured, machine) = against.run(&trial(), &here).unwrap();
    assert_eq!(measured.metrics["rate_messages_per_s"], 5e6);
    assert_eq!(measured.counters["source_output_rings"], 3);
    assert_eq!(machine, Machine { siga: "0.0.9".into(), is_debug: false, pinned: None, ..here });
    let kept = |name: &str| fs::read_to_string(directory.0.join(name)).unwrap();
    assert!(kept("case").contains("\nsystem = \"system.toml\"\n"));
    assert!(kept("case").contains("\n[factors]\nbytes = [64]\n"));
    assert_eq!(kept("system"), trial().system.unwrap().1);
    let case = PathBuf::from(kept("where").trim_end());
    assert!(!case.parent().unwrap().exists(), "the directory of the trial is left behind");
}

#[test]
fn cell_that_the_other_cannot_do_has_a_reason() {
    let unable = "{\"case\":\"cell\",\"system\":\"open\",\"trial\":1,\"factors\":{},\"metrics\":{},\
                  \"counters\":{},\"machine\":{},\"run\":1,\"seconds\":1,\"unable\":\"no room\"}";
    let (unable, twice) = (
        format!("echo '{unable}' > \"$result\""),
        format!("echo '{RESULT}\n{RESULT}' > \"$result\""),
    );
    let (deeds, reasons): (Vec<&str>, Vec<&str>) = [
        ("echo 'warning: x\ncell (pipe), trial 1: no pipes here' >&2", "no pipes here"),
        ("echo \"$case:4: there is no workload\" >&2; exit 2", "cell.toml:4: there is no workload"),
        ("exit 2", "it rejects this case"),
        (&unable, "no room"),
        (&twice, "it measures 2 cells where this binary measures one"),
    ]
    .into_iter()
    .unzip();
    for (found, reason) in measure(&deeds, LONG).into_iter().zip(reasons) {
        match found {
            Err(TrialError::Unable(why)) => assert_eq!(why, reason),
            other => panic!("{other:?} is not {reason}"),
        }
    }
}

#[test]
fn fault_of_the_other_is_told() {
    let (deeds, faults): (Vec<&str>, Vec<&str>) = [
        ("echo rubbish > \"$result\"", "OTHER: result.jsonl:1: this is no result: expected value"),
        (
            "head -c 5000 /dev/zero > \"$result\"; echo >> \"$result\"",
            "OTHER: result.jsonl:1: this is no result: ",
        ),
        ("", "OTHER: exit status: 0, but there is neither a result nor a reason"),
        ("echo rubbish >&2", "OTHER: exit status: 0, but there is neither a result nor a reason"),
        (
            "echo 'cell: 1 cells, 1 trials each\ncell (pipe), trial 1: source: corrupt\n\
             siga: 1 trials went wrong, see above' >&2; exit 1",
            "OTHER: exit status: 1: source: corrupt",
        ),
        ("echo out of luck >&2; exit 3", "OTHER: exit status: 3: out of luck"),
        ("kill -9 $$", "OTHER: signal: 9 (SIGKILL)"),
    ]
    .into_iter()
    .unzip();
    for (found, fault) in measure(&deeds, LONG).into_iter().zip(faults) {
        match found {
            Err(TrialError::Failed(why)) => {
                assert!(why.starts_with(fault), "{why}\nis not\n{fault}")
            }
            other => panic!("{other:?} is not {fault}"),
        }
    }
}

#[test]
fn other_that_does_not_end_is_ended() {
    // One that is silent, one that talks for ever.
    for found in measure(&["exec sleep 1000", "exec yes >&2"], Duration::from_millis(200)) {
        let error = found.unwrap_err();
        assert!(matches!(error, TrialError::Failed(_)));
        assert_eq!(error.to_string(), "OTHER: did not end within 0.2 s");
    }
    // One that has ended, but has left a child with its standard error.
    let deed = format!("sleep 5 & echo '{RESULT}' > \"$result\"");
    assert!(measure(&[&deed], LONG)[0].is_ok());
}

#[test]
fn file_that_is_no_siga_is_refused() {
    let directory = Directory::new();
    let refused = |path: &Path| Against::new(path).unwrap_err().to_string();
    let missing = directory.0.join("missing");
    let error = refused(&missing);
    let start = format!("{} is not a siga binary: No such file", missing.display());
    assert!(error.starts_with(&start), "{error}");
    assert!(refused(&directory.0).contains(" is not a siga binary: "));
    let text = directory.0.join("text");
    fs::write(&text, "siga 0.1.0\n").unwrap();
    assert!(refused(&text).contains("is not a siga binary: Permission denied"));
    let end = "--version should print \"siga\" and a version, not ";
    for (deed, said) in [
        ("", "\"\" (exit status: 0)"),
        ("echo ls 9.1", "\"ls 9.1\" (exit status: 0)"),
        ("echo siga 0.1.0; exit 1", "\"siga 0.1.0\" (exit status: 1)"),
    ] {
        let error = refused(&directory.script(deed));
        assert!(error.ends_with(&format!("{end}{said}")), "{error}");
    }
}

/// Keeps what is said of trials without a result.
#[derive(Default)]
struct Listener(Vec<String>);

impl Watcher for Listener {
    fn begins(&mut self, _: usize, _: &Job, _: &Factors, _: u32) {}

    fn failed(&mut self, _: &Job, _: &Factors, trial: u32, error: &TrialError) {
        self.0.push(format!("{trial}: {error}"));
    }
}

#[test]
fn trials_of_both_binaries_are_recorded_in_turn() {
    let directory = Directory::new();
    // The other binary knows no messages of 8 B.
    let other = directory.other();
    directory.deed(&format!(
        "grep -q 'bytes = .8.' \"$case\" && echo 'too small' >&2 && exit 2\n\
         echo '{RESULT}' > \"$result\""
    ));
    let against = Against::new(&other).unwrap();
    let text = "name = \"c\"\nasks = \"?\"\nworkload = \"message-stream\"\ntrials = 2\nseconds = 0.2\n\
                warm_up_seconds = 0\n[factors]\ntransport = [\"pipe\"]\nbytes = [64, 8]\n";
    let case = Case::parse(&Source::of("c.toml", text), &|_| unreachable!("it names none"));
    let wishes = Wishes { against: true, ..Wishes::default() };
    let plan = Plan::new(vec![case.unwrap()], &wishes).unwrap();
    let mut listener = Listener::default();
    let machine = Machine::here();
    let outcome =
        lab::run::run(&plan, &crew(), Some(&against), &machine, None, &mut listener).unwrap();
    assert_eq!(
        (outcome.failed, listener.0),
        (0, vec!["1: too small".into(), "2: too small".into()])
    );
    let line = |record: &lab::record::Record| {
        let binary = record.factors["binary"].to_string();
        let path = &record.binary.as_ref().unwrap().path;
        assert_eq!(*path == other.canonicalize().unwrap(), binary == AGAINST);
        assert_eq!(record.machine.siga == "0.0.9", !record.metrics.is_empty() && binary == AGAINST);
        let rate = record.metrics.get("rate_messages_per_s");
        let what = match (&record.unable, rate) {
            (Some(why), None) => why.as_str(),
            (None, Some(rate)) if *rate == 5e6 => "as printed",
            (None, Some(_)) => "measured",
            both => panic!("{both:?}"),
        };
        format!("{} {} {binary}: {what}", record.trial, record.factors["bytes"])
    };
    assert_eq!(
        outcome.records.iter().map(line).collect::<Vec<String>>(),
        [
            format!("1 64 {THIS}: measured"),
            format!("1 64 {AGAINST}: as printed"),
            format!("1 8 {THIS}: measured"),
            format!("1 8 {AGAINST}: too small"),
            format!("2 8 {AGAINST}: too small"),
            format!("2 8 {THIS}: measured"),
            format!("2 64 {AGAINST}: as printed"),
            format!("2 64 {THIS}: measured"),
        ]
    );
}
