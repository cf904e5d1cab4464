//! `siga lab compare` and `siga lab history`: results that are written here, and nothing is measured.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A directory that goes with the test; it is also the user's, where runs are kept.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let name = format!("siga-cli-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        Directory(directory)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let file = self.0.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn keep(&self, run: u64, text: &str) -> String {
        self.write(&format!("siga/lab/run-{run}.jsonl"), text)
    }

    fn siga(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.arg("lab").args(arguments).env("XDG_STATE_HOME", &self.0).output().unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Trials of one cell: what each of them says of the rate.
fn results(case: &str, run: u64, rates: &[f64]) -> String {
    let line = |(trial, rate): (usize, &f64)| {
        format!(
            r#"{{"case":"{case}","system":"open","trial":{trial},"factors":{{"transport":"pipe"}},"metrics":{{"rate_messages_per_s":{rate}}},"counters":{{}},"machine":{{"siga":"0.1.0"}},"run":{run},"seconds":1}}"#
        ) + "\n"
    };
    (1..).zip(rates).map(line).collect()
}

const A: u64 = 1_795_227_234_955;
const B: u64 = 1_795_313_634_955;

#[test]
fn check_ends_with_the_code_that_says_what_became_of_the_figures() {
    let directory = Directory::new("compare-check");
    let [old, same, slower, slightly, few] = [
        ("old", [100.0; 6].to_vec()),
        ("same", [99.0, 99.0, 100.0, 100.0, 101.0, 101.0].to_vec()),
        ("slower", [50.0; 6].to_vec()),
        ("slightly", [97.0; 6].to_vec()),
        ("few", [50.0; 5].to_vec()),
    ]
    .map(|(name, rates)| directory.write(&format!("{name}.jsonl"), &results("mine", A, &rates)));
    let other = directory.write("other.jsonl", &results("other", A, &[1.0; 6]));
    let wrong = directory.write("wrong.jsonl", "rubbish\n");
    for (a, b, more, code, said) in [
        (&old, &same, &[][..], 0, ""),
        (
            &old,
            &slower,
            &[],
            1,
            "siga: worse by more than the margin:\n  mine (pipe): messages 0.500 (0.500..0.500) times A's\n",
        ),
        (&slower, &old, &[], 0, ""),
        (&old, &slightly, &[], 0, ""),
        (&old, &slightly, &["--margin", "2.5"], 1, "mine (pipe): messages 0.970"),
        (
            &old,
            &few,
            &[],
            4,
            "siga: undecided, more trials in both may decide (--trials):\n  mine (pipe): messages 0.500 times A's\n",
        ),
        (&old, &other, &[], 3, "A and B have no figure in common"),
        (&old, &wrong, &[], 2, "wrong.jsonl:1: this is no result"),
        (&old, &"none.jsonl".to_owned(), &[], 2, "none.jsonl: cannot be read"),
        (&old, &same, &["--margin=-1"], 2, "must be a number of percent"),
        (&old, &same, &["--margin", "NaN"], 2, "must be a number of percent"),
        (&old, &same, &["--format", "csv"], 2, "must be --json"),
        (&old, &slower, &["--case", "another"], 3, "no figure in common"),
    ] {
        let output = directory.siga(&[&["compare", a, b, "--check"], more].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{b} {more:?}: {error}");
        assert!(error.contains(said), "{b} {more:?}: {error}");
    }
    // Without --check a figure that is worse is a result like any other.
    let output = directory.siga(&["compare", &old, &slower]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("Of 1 figure 1 is worse in B.\n"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    for (format, part) in [
        ("html", "<td class=\"figure\">0.500 (0.500..0.500)</td>"),
        (
            "markdown",
            "| worse | pipe | 100 (100..100) | 50.0 (50.0..50.0) | 0.500 (0.500..0.500) |",
        ),
    ] {
        let output = directory.siga(&["compare", &old, &slower, "--format", format]);
        assert!(text(&output.stdout).contains(part), "{}", text(&output.stdout));
    }
}

#[test]
fn run_that_was_interrupted_is_called_so_and_is_not_the_last() {
    let directory = Directory::new("compare-interrupted");
    let planned = |text: String| text.replace("\"seconds\"", "\"planned\":30,\"seconds\"");
    let cut = planned(results("mine", B, &[70.0; 6]));
    let whole = planned(results("mine", A, &[50.0; 30]));
    directory.keep(B, &cut);
    let shown = |arguments: &[&str]| {
        let output = directory.siga(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        (text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    let sentence = "The run of 2026-11-22 02:13 UTC was interrupted: 6 of 30 trials";
    for arguments in [&["report", "1"][..], &["report", "last"], &["page", "last"]] {
        let (out, _) = shown(arguments);
        assert!(out.contains(sentence), "{arguments:?}: {out}");
    }
    for format in [&["--json"][..], &["--format", "csv"]] {
        let (_, error) = shown(&[&["report", "1"], format].concat());
        assert_eq!(error, format!("warning: {sentence}\n"), "{format:?}");
    }
    // While a process writes it.
    let writer = std::fs::File::open(directory.0.join(format!("siga/lab/run-{B}.jsonl"))).unwrap();
    writer.lock().unwrap();
    let sentence = "The run of 2026-11-22 02:13 UTC is under way: 6 of 30 trials";
    for arguments in [&["report", "1"][..], &["page", "last"]] {
        let (out, _) = shown(arguments);
        assert!(out.contains(sentence) && !out.contains("interrupted"), "{arguments:?}: {out}");
    }
    assert!(shown(&["history"]).0.contains("- 1 is under way: 6 of 30 trials\n"));
    drop(writer);
    directory.keep(A, &whole);
    let (out, error) = shown(&["report", "last"]);
    assert!(!out.contains("interrupted") && out.contains("30 trials of 1 s"), "{out}");
    let said = "the latest run was interrupted: 6 of 30 trials; last is the latest that is whole";
    assert!(error.starts_with(said), "{error}");
    assert!(shown(&["history"]).0.contains("- 1 was interrupted: 6 of 30 trials\n"));
    let (out, _) = shown(&["compare", "2", "1"]);
    assert!(out.replace('\n', " ").contains(", interrupted: 6 of 30 trials"), "{out}");
    let (out, _) = shown(&["history", "--json"]);
    assert!(out.contains(r#""interrupted":{"trials":6,"planned":30}"#), "{out}");
}

#[test]
fn kept_runs_are_listed_named_and_compared() {
    let directory = Directory::new("compare-history");
    let nothing = directory.siga(&["history"]);
    assert_eq!(
        text(&nothing.stdout),
        "No run is kept yet: siga lab run\n\n- siga lab report NUMBER prints one, siga lab compare NUMBER last compares two\n"
    );
    let old = directory.keep(A, &results("mine", A, &[100.0; 6]));
    let new = results("mine", B, &[50.0; 6]);
    directory.keep(B, &new);
    let refused = directory.keep(B + 1, "rubbish\n");
    // Cut off in the middle of a line.
    let short = directory.keep(B + 2, &new[..new.len() - 30]);
    directory.keep(B + 3, "");
    directory.write("siga/lab/notes.txt", "mine");

    let output = directory.siga(&["history"]);
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output.stdout);
    // Long lines are broken.
    let without_breaks = shown.replace([' ', '\n'], "");
    for part in [
        " 1   2026-11-22 02:13   0.1.0   mine         5      0        0           0 \n",
        " 4   2026-11-21 02:13   0.1.0   mine         6      0        0           0 \n",
        &format!("- 2 is refused: {refused}:1: this is no result"),
        &format!("- 1, lines that were cut off: 1, in {short}"),
    ] {
        assert!(
            without_breaks.contains(&part.replace([' ', '\n'], "")),
            "{part}\nis not in\n{shown}"
        );
    }
    let output = directory.siga(&["history", "--json"]);
    let runs: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((runs.len(), &runs[3]["file"], &runs[3]["trials"]), (4, &old.into(), &6.into()));

    let output = directory.siga(&["history", "mine", "--metric", "rate_messages_per_s"]);
    let shown = text(&output.stdout);
    assert!(shown.contains(" pipe   █▁▁        3   50.0..100 /s   50.0 /s \n"), "{shown}");
    assert!(text(&output.stderr).starts_with("warning: left out: "), "{}", text(&output.stderr));
    for (arguments, code, said) in [
        (&["compare", "4", "3", "--check"][..], 1, "times A's"),
        (&["compare", "2026-11-21", "2026-11-21T02:13", "--check"], 0, ""),
        (&["compare", "4", "2"], 2, "this is no result"),
        (
            &["compare", "4", "9", "--check"],
            2,
            "no run 9 is kept: siga lab history lists them; a file of this name is ./9",
        ),
        (&["compare", "4"], 2, "<B>"),
        (&["report", "4"], 0, ""),
        (&["report", "4", "--intervals"], 1, "no figure comes from interval records:\n"),
        (&["report", "2026-11-23"], 2, "no run 2026-11-23 is kept"),
        (&["history", "another"], 1, "no kept run has figures of \"another\""),
        (
            &["history", "mine", "--metric", "rate"],
            2,
            "has the metric \"rate\": did you mean rate_messages_per_s?\n",
        ),
        (&["history", "--metric", "rate"], 2, "CASE"),
    ] {
        let output = directory.siga(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}
