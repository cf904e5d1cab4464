//! `siga lab`, as a shell sees it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// siga, with a store of runs that is not the user's.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command
}

fn siga(arguments: &[&str]) -> Output {
    command().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn cases_are_listed_with_what_can_be_varied() {
    let listed = text(&siga(&["lab", "list", "border-64"]).stdout);
    for part in [
        "border-64 (border), ",
        "    transport: path, unix-stream-batched, unix-stream\n",
        "        size of a message; 1 B to 16 MiB\n",
    ] {
        assert!(listed.contains(part), "{part}\nis not in\n{listed}");
    }
    let listed = text(&siga(&["lab", "list"]).stdout);
    assert!(listed.contains("    inbound-shared (network-stream over an adapter, "), "{listed}");
    let listed = text(&siga(&["lab", "list", "--json"]).stdout);
    let listed: Vec<serde_json::Value> =
        listed.lines().map(|case| serde_json::from_str(case).unwrap()).collect();
    assert_eq!(listed[0]["name"], "message-stream");
    assert_eq!(listed[0]["factors"]["bytes"]["levels"][0], 64);
    assert!(listed.iter().all(|case| case["time_s"].as_f64() > Some(0.0)));
}

#[test]
fn full_run_says_first_how_long_it_takes_and_runs_what_the_case_names() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("full");
    std::fs::create_dir_all(&directory).unwrap();
    let case = |name: &str, full: &str| {
        let text = format!(
            "name = \"{name}\"\nasks = \"?\"\nworkload = \"message-stream\"\ntrials = 1\nseconds = 0.02\n\
             warm_up_seconds = 0\n{full}\n[factors]\ntransport = [\"pipe\"]\n"
        );
        let file = directory.join(format!("{name}.toml"));
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let (one, two) = (case("one", "full = \"two.toml\""), case("two", ""));
    let output = siga(&["lab", "run", &one, "--full"]);
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    let at = |line: &str| said.lines().position(|said| said == line);
    let first =
        at("one, two: 2 cells, about 1 s in all if the machine does nothing else").expect(&said);
    let then = said.lines().position(|said| said.starts_with("one: 1 cell, 1 trial each, about"));
    assert!(Some(first) < then, "{said}");
    assert!(printed.contains("one\n===\n") && printed.contains("two\n===\n"), "{printed}");
    let alone = text(&siga(&["lab", "run", &two, "--full"]).stdout);
    assert!(!alone.contains("one\n===\n") && alone.contains("two\n===\n"), "{alone}");
    assert_eq!(siga(&["lab", "run", &one, "--full", "--quick"]).status.code(), Some(2));
}

#[test]
fn published_tables_are_printed_with_every_cell() {
    let published = |more: &[&str]| {
        let output = siga(&[&["lab", "report", "--published"], more].concat());
        assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("", Some(0)));
        text(&output.stdout)
    };
    let all = published(&[]);
    for part in [
        "iucv-pipe\n=========\n",
        "A draft. Workload not built yet: network-stream over an adapter, ",
        "direction outbound, mtu 1500\n pairs ",
        "Difference in percent of device cpu 0:\n",
    ] {
        assert!(all.contains(part), "{part}\nis not in\n{all}");
    }
    let summary = all.lines().next_back().unwrap();
    assert!(summary.contains(" tables with ") && summary.contains(" cells."), "{summary}");
    let one = published(&["line-driver-costs", "--format", "markdown"]);
    assert!(one.contains("Ratio to driver cms:\n") && one.contains("| 1.770 |"), "{one}");
    assert!(
        published(&["iucv-pipe", "--format", "html"]).contains("<td class=\"figure\">502.066</td>")
    );
    let cells = published(&["line-driver-costs", "--format", "csv"]);
    let line = ",driver=iucv mtu=9000,cp_cpu_s_per_mib,1.770";
    assert!(cells.lines().any(|cell| cell.ends_with(line)), "{cells}");
    let cells = published(&["line-driver-costs", "--json"]);
    let cells: Vec<serde_json::Value> =
        cells.lines().map(|cell| serde_json::from_str(cell).unwrap()).collect();
    assert_eq!(cells.len(), 3 * 9 + 18 + 9);
    assert!(cells.iter().any(|cell| cell["printed"] == "294.8" && cell["line"].is_u64()));
}

#[test]
fn reader_who_has_read_enough_is_no_error() {
    let mut command = command();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.args(["lab", "list"]).stdout(writer).output().unwrap();
    assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("", Some(0)));
}

#[test]
fn wrong_use_ends_with_two_and_says_what_would_be_right() {
    for (arguments, right) in [
        (
            &["run", "nonsense"][..],
            "there is no case \"nonsense\": must be a name that siga lab list prints",
        ),
        (&["run", "--set", "byte=1"], "there is no factor \"byte\": did you mean bytes?"),
        (&["run", "--set", "bytes=0"], "bytes = \"0\": must be 1 B to 16 MiB"),
        (&["run", "--set", "bytes"], "must be like bytes=64,1000"),
        (&["run", "--set", "bytes=1", "--set", "bytes=2"], "bytes is set twice: must be one list"),
        (&["run", "--trials", "0"], "trials = 0: must be 1 to 1000"),
        (&["run", "--trials", "-1"], "invalid value '-1' for '--trials <N>'"),
        (&["run", "--json", "-"], "--json -: must be a file; --json alone, behind the cases"),
        (
            &["run", "lan-tcp-exchange", "--peers", "none"],
            "none does not belong to this siga: No such file",
        ),
        (&["run", "none.toml"], "none.toml: cannot be read"),
        (&["run", "--against", "none"], "none is not a siga binary: No such file or directory"),
        (&["run", "--against", "/"], "/ is not a siga binary: Permission denied"),
        (
            &["run", "--against", "/bin/echo"],
            "is not a siga binary: --version should print \"siga\"",
        ),
        (&["run", "--peers", "none"], "none does not belong to this siga: No such file"),
        (&["run", "--peers", "/bin/echo"], "--version should print \"siga-peers "),
        (
            &["run", "inbound-shared"],
            "inbound-shared is a draft, whose workload network-stream over an adapter, network-request over an adapter is not built yet: must be a case; siga lab report ",
        ),
        (
            &["list", "inbound-queues"],
            "inbound-queues is a draft, whose workload network-stream over an adapter, network-request over an adapter is ",
        ),
        (
            &["report", "--published", "nonsense"],
            "there is no case \"nonsense\": must be a name that siga lab list prints",
        ),
        (&["report", "--published", "none.toml"], "none.toml: cannot be read"),
        (&["report", "none.jsonl"], "none.jsonl: cannot be read"),
    ] {
        let output = siga(&[&["lab"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(right), "{right}\nis not in\n{said}");
    }
}

#[test]
fn run_prints_tables_and_keeps_results_for_a_report() {
    let file = std::env::temp_dir().join(format!("siga-lab-{}.jsonl", std::process::id()));
    let name = file.to_str().unwrap();
    let output = siga(&[
        "lab",
        "run",
        "message-stream",
        "--set",
        "transport=path,pipe",
        "--set",
        "bytes=4000",
        "--trials",
        "2",
        "--seconds",
        "0.2",
        "--warm-up",
        "0",
        "--json",
        name,
    ]);
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("message-stream: 2 cells, 2 trials each, about 1 s\n"), "{said}");
    let report = |format| text(&siga(&["lab", "report", name, "--format", format]).stdout);
    assert_eq!(report("text"), printed);
    assert!(printed.contains("\n pipe "), "{printed}");
    assert!(report("markdown").contains("\n| pipe | "));
    let page = report("html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains(">pipe</t"), "{page}");
    let csv = report("csv");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(csv.lines().filter(|line| line.contains(",rate_messages_per_s,")).count(), 2);
}

#[test]
fn interval_records_and_metrics_that_are_defined_later() {
    let directory = Directory::new("intervals");
    let (case, results) = (directory.file("mine.toml"), directory.file("results.jsonl"));
    let definition = "name = \"mine\"\nasks = \"?\"\nworkload = \"message-stream\"\ntrials = 1\nseconds = 0.3\n\
        warm_up_seconds = 0\ninterval_ms = 10\n[factors]\ntransport = [\"pipe\"]\nbytes = [64]\n";
    std::fs::write(&case, definition).unwrap();
    let output = siga(&["lab", "run", &case, "--json", &results]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = std::fs::read_dir(directory.file("results.intervals")).unwrap();
    let files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    let names = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap());
    let ends: Vec<&str> = names.filter_map(|name| name.split("-0-1-").nth(1)).collect();
    assert!(
        ends.contains(&"source-0.intervals") && ends.contains(&"target-0.intervals"),
        "{ends:?}"
    );
    let file = files[0].to_str().unwrap();
    let dumped = text(&siga(&["monitor", "dump", file]).stdout);
    let lines: Vec<serde_json::Value> =
        dumped.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["case"], &lines[0]["interval_ms"]), (&"mine".into(), &10.into()));
    assert_eq!(lines[lines.len() - 1]["is_last"], true);
    let csv = text(&siga(&["monitor", "dump", file, "--csv"]).stdout);
    assert!(csv.starts_with("role,number,ns,quantity,kind,value\n"), "{csv}");
    assert_eq!(siga(&["monitor", "dump", &results]).status.code(), Some(2));
    // The case is edited after the run.
    let metric =
        "[[metric]]\nname = \"moved\"\nquantity = \"work\"\nkind = \"bytes\"\nunit = \"MB\"\n";
    std::fs::write(
        &case,
        format!("{definition}{metric}[[table]]\nmetric = \"moved\"\ndown = \"transport\"\n"),
    )
    .unwrap();
    let report = text(&siga(&["lab", "report", &results, "--case", &case]).stdout);
    assert!(report.contains("moved") && report.contains("pipe"), "{report}");
    let report = siga(&["lab", "report", &results, "--case", &case, "--intervals"]);
    let report = text(&report.stdout);
    let first = "- The figures of 1 trial come from the interval records in ";
    assert!(report.starts_with(first) && report.contains("moved"), "{report}");
    let csv = siga(&["lab", "report", &results, "--intervals", "--format", "csv"]);
    assert!(text(&csv.stdout).starts_with("case,system,run,"), "{}", text(&csv.stdout));
    assert!(text(&csv.stderr).starts_with(&first[2..]), "{}", text(&csv.stderr));
}

#[test]
fn run_is_kept_and_reported_as_the_last() {
    let directory = Directory::new("kept");
    let state = directory.file("state");
    let siga = |arguments: &[&str]| {
        let mut command = command();
        command.env("XDG_STATE_HOME", &state).args(["lab"]).args(arguments).output().unwrap()
    };
    let none = siga(&["report", "last"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("no run is kept yet: siga lab run"));
    // A run without a case prints the first screen; its tables are in the report.
    let levels = ["--set", "transport=pipe", "--set", "bytes=64", "--set", "wait=block"];
    let short = ["--trials", "1", "--seconds", "0.05", "--warm-up", "0"];
    let run = siga(&[&["run"][..], &levels, &short].concat());
    let printed = text(&run.stdout);
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert!(printed.lines().count() <= 24, "{printed}");
    for part in ["64 B one way", " kernel ", "siga lab report last"] {
        assert!(printed.contains(part), "{part}\nis not in\n{printed}");
    }
    let report = text(&siga(&["report", "last"]).stdout);
    let screen = printed.split("\nAll tables").next().unwrap();
    assert!(report.starts_with(screen), "{report}");
    assert!(report.contains("\nmessage-stream\n====") && report.contains("\n pipe "), "{report}");
    assert!(text(&siga(&["report", "last", "--format", "html"]).stdout).contains("<td>pipe</td>"));
    let kept = std::fs::read_dir(Path::new(&state).join("siga/lab")).unwrap().count();
    assert_eq!(kept, 1);
}

/// A case whose claim holds if `at_least` is small, and if there are enough trials.
fn claim(directory: &Directory, at_least: &str, trials: u32) -> String {
    let case = directory.file("case.toml");
    let text = format!(
        "name = \"mine\"\nasks = \"?\"\nworkload = \"message-stream\"\ntrials = {trials}\nseconds = 0.02\n\
         warm_up_seconds = 0\n[factors]\ntransport = [\"pipe\"]\nbytes = [64]\n[[claim]]\n\
         name = \"fast\"\nmetric = \"rate_messages_per_s\"\nof = {{ transport = \"pipe\" }}\n\
         at_least = {at_least}\n"
    );
    std::fs::write(&case, text).unwrap();
    case
}

#[test]
fn check_ends_with_one_if_a_claim_does_not_hold_and_with_four_if_one_is_undecided() {
    let directory = Directory::new("check");
    for (at_least, trials, with) in [("1", 6, 0), ("1e12", 6, 1), ("1", 5, 4)] {
        let case = claim(&directory, at_least, trials);
        assert_eq!(siga(&["lab", "run", &case]).status.code(), Some(0));
        let output = siga(&["lab", "run", &case, "--check"]);
        assert_eq!(output.status.code(), Some(with), "{}", text(&output.stderr));
        let said = text(&output.stderr).contains("1 claim does not hold: mine: fast\n");
        assert_eq!(said, with == 1);
        let said = text(&output.stderr).contains("1 claim is undecided: mine: fast\n");
        assert_eq!(said, with == 4);
        let verdict = ["holds", "does not hold", "", "", "undecided"][with as usize];
        let line = format!("claim verdict=\"{verdict}\" case=\"mine\" claim=\"fast\" metric=");
        let shown = text(&output.stdout);
        let found = shown.lines().filter(|shown| shown.starts_with(&line)).count();
        assert_eq!(found, 1, "{line}\n{shown}");
        assert_eq!(shown.contains(" interval="), trials >= 6);
    }
    assert_eq!(siga(&["lab", "run", "nonsense", "--check"]).status.code(), Some(2));
    let case = claim(&directory, "1", 6);
    for (results, reader) in
        [("--json=/dev/full", true), ("--json=/none/r.jsonl", true), ("--json", false)]
    {
        let mut command = command();
        command.args(["lab", "run", &case, results, "--check"]);
        if !reader {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            command.stdout(writer);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{results}: {}", text(&output.stderr));
    }
}

#[test]
fn check_ends_with_three_if_a_trial_failed() {
    let directory = Directory::new("broken");
    let other = directory.other("echo rubbish > \"$5\"");
    for (check, code) in [(&[][..], 1), (&["--check"], 3)] {
        let mut command = run_against(&other, "1", &directory.file("results.jsonl"));
        let output = command.args(check).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert!(text(&output.stderr).contains("siga: 1 trial failed, see above\n"));
    }
}

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let name = format!("siga-cli-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A program that says it is siga, and does this in a trial.
    fn other(&self, deed: &str) -> String {
        let path = self.file("other");
        // Written by another process: while this one has it open for writing, nobody can run it.
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > \"$0\" && chmod +x \"$0\"", &path]).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let text =
            format!("#!/bin/sh\n[ \"$1\" = --version ] && echo siga 0.0.9 && exit\n{deed}\n");
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn run_goes_on_without_peers_and_says_how_to_build_them() {
    let directory = Directory::new("peers");
    // In the repository the program finds peers that are built.
    let alone = directory.file("siga");
    let copy = Command::new("cp").args([env!("CARGO_BIN_EXE_siga"), &alone]).status().unwrap();
    assert!(copy.success());
    let mut command = Command::new(alone);
    command.env("XDG_STATE_HOME", directory.file("state"));
    command.args(["lab", "run", "message-exchange", "--set", "transport=pipe,aeron,iceoryx2"]);
    command.args(["--set", "bytes=64", "--set", "wait=block"]);
    command.args(["--trials", "2", "--seconds", "0.1", "--warm-up", "0"]);
    let output = command.env("SIGA_PEERS", "").output().unwrap();
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let how =
        "siga-peers is not built: cargo build --release --locked --manifest-path peers/Cargo.toml";
    assert_eq!(said.matches(how).count(), 1, "{said}");
    assert!(said.contains("message-exchange: 1 cell, 2 trials each"), "{said}");
    assert!(printed.contains("\n pipe ") && !printed.contains("aeron"), "{printed}");
    // Peers alone: nothing is left, and no file is made.
    let state = directory.file("empty");
    let mut command = Command::new(directory.file("siga"));
    command.env("XDG_STATE_HOME", &state).env_remove("SIGA_PEERS");
    command.args(["lab", "run", "message-exchange", "--set", "transport=aeron", "--check"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("nothing to measure: Aeron and iceoryx2 are not measured"), "{said}");
    assert!(!Path::new(&state).exists());
}

/// `siga lab run` of one short cell of a pipe against another binary.
fn run_against(other: &str, trials: &str, results: &str) -> Command {
    let mut command = command();
    command.args(["lab", "run", "message-stream", "--set", "transport=pipe", "--set", "bytes=64"]);
    command.args(["--trials", trials, "--seconds", "0.1", "--warm-up", "0"]);
    command.args(["--json", results, "--against", other]);
    command
}

#[test]
fn two_binaries_are_measured_in_turn_and_shown_beside_each_other() {
    let directory = Directory::new("against");
    let results = directory.file("results.jsonl");
    let temporary = directory.file("temporary");
    std::fs::create_dir(&temporary).unwrap();
    // A binary against itself: what is seen between the two is noise.
    let mut command = run_against(env!("CARGO_BIN_EXE_siga"), "2", &results);
    let output = command.env("TMPDIR", &temporary).output().unwrap();
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    for part in [
        "This binary and the other\n",
        " this / against \n",
        "\n messages  ",
        "\nIn all rows: transport pipe, bytes 64 B, wait block.\n",
        "\n- this: siga ",
        "\n- against: siga ",
    ] {
        assert!(printed.contains(part), "{part}\nis not in\n{printed}");
    }
    let lines = std::fs::read_to_string(&results).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let lines: Vec<serde_json::Value> = lines.collect();
    let binaries: Vec<&str> =
        lines.iter().map(|line| line["factors"]["binary"].as_str().unwrap()).collect();
    assert_eq!(binaries, ["this", "against", "against", "this"]);
    for line in &lines {
        assert!(line["metrics"]["rate_messages_per_s"].as_f64() > Some(0.0));
        assert_eq!(line["binary"], lines[0]["binary"], "the same file");
    }
    assert_eq!(text(&siga(&["lab", "report", &results]).stdout), printed);
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "a directory is left behind");
}

#[test]
fn fault_of_the_other_binary_ends_with_one_and_is_named() {
    let directory = Directory::new("fault");
    let other = directory.other("echo rubbish > \"$5\"");
    let output = run_against(&other, "1", &directory.file("results.jsonl")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let what = "message-stream (pipe, 64, block, against), trial 1: ";
    assert!(said.contains(what) && said.contains("result.jsonl:1: this is no result"), "{said}");
    assert!(text(&output.stdout).contains(" pipe "), "this binary's figures are there");
}

#[test]
fn interrupted_run_leaves_no_file_and_no_process() {
    let directory = Directory::new("interrupted");
    let temporary = directory.file("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let started = directory.file("started");
    assert!(Command::new("mkfifo").arg(&started).status().unwrap().success());
    let other = directory.other(&format!("echo $$ > {started}; exec sleep 1000"));
    let mut command = run_against(&other, "1", &directory.file("results.jsonl"));
    let mut lab = command.env("TMPDIR", &temporary).stderr(Stdio::null()).spawn().unwrap();
    // Comes as soon as the other binary is in its trial.
    let mut process = String::new();
    BufReader::new(std::fs::File::open(&started).unwrap()).read_line(&mut process).unwrap();
    let process = Path::new("/proc").join(process.trim_end());
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1);
    let kill = format!("kill -TERM {}", lab.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(lab.wait().unwrap().signal(), Some(15), "it ends as a shell expects");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "a directory is left behind");
    assert!(!process.exists(), "the other binary is left behind");
}

#[test]
fn limit_of_descriptors_is_raised_as_far_as_it_may() {
    let pairs = |limit: &str| {
        let script = format!(
            "ulimit {limit}; exec \"$0\" lab run message-pairs --set transport=unix-stream --set pairs=20 \
             --trials 1 --seconds 0.05 --json"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_siga")]);
        shell.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
        shell.output().unwrap()
    };
    let raised = pairs("-Sn 40");
    assert_eq!(raised.status.code(), Some(0), "{}", text(&raised.stderr));
    let output = pairs("-n 40");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let right = "this process may open 40 files; more: raise its hard limit (ulimit -Hn), or have fewer parties";
    assert!(said.contains(right), "{right}\nis not in\n{said}");
}
