//! `siga lab`, as a shell sees it.

use std::process::{Command, Output};

fn siga(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siga")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn cases_are_listed_with_what_can_be_varied() {
    let listed = text(&siga(&["lab", "list", "border-64"]).stdout);
    for part in [
        "border-64 (border), about ",
        "    transport: path, unix-stream-batched, unix-stream\n",
        "        size of a message; 1 B to 16 MiB\n",
    ] {
        assert!(listed.contains(part), "{part}\nis not in\n{listed}");
    }
    let listed: serde_json::Value =
        serde_json::from_slice(&siga(&["lab", "list", "--json"]).stdout).unwrap();
    assert_eq!(listed[0]["name"], "message-stream");
    assert_eq!(listed[0]["factors"]["bytes"]["levels"][0], 64);
    assert!(listed.as_array().unwrap().iter().all(|case| case["time_s"].as_f64() > Some(0.0)));
}

#[test]
fn reader_who_has_read_enough_is_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.args(["lab", "list"]).stdout(writer).output().unwrap();
    assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("", Some(0)));
}

#[test]
fn wrong_use_ends_with_two_and_says_what_would_be_right() {
    for (arguments, right) in [
        (&["run", "nonsense"][..], "no case \"nonsense\": must be one of messages, message-stream"),
        (&["run", "--set", "byte=1"], "no factor \"byte\": must be one of bytes, "),
        (&["run", "--set", "bytes=0"], "bytes = \"0\": must be 1 B to 16 MiB"),
        (&["run", "--set", "bytes"], "must be like bytes=64,1000"),
        (&["run", "--trials", "0"], "0 trials: must be 1 to 1000"),
        (&["run", "none.toml"], "none.toml:1: cannot be read"),
        (&["report", "none.jsonl"], "none.jsonl:1: cannot be read"),
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
    let csv = report("csv");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(csv.lines().filter(|line| line.contains(",rate_messages_per_s,")).count(), 2);
}
