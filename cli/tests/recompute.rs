//! What the lab prints, computed again by a script that shares no code with it.

#[path = "common/lacking.rs"]
mod lacking;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory that goes with the test; runs are kept in it.
struct Directory(PathBuf);

impl Directory {
    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
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

fn python(arguments: &[&str]) -> Option<Output> {
    Command::new("python3").args(arguments).output().ok()
}

/// Runs that the machine gave no processor to lack trials: they are not what this is about.
const ATTEMPTS: u32 = 5;

#[test]
fn figures_of_the_first_screen_and_of_a_study_follow_from_the_lines_of_json() {
    let test = "figures_of_the_first_screen_and_of_a_study_follow_from_the_lines_of_json";
    if !lacking::has_program(test, "python3", "python3") {
        return;
    }
    // The script reads cases, which are TOML.
    if !python(&["-c", "import tomllib"]).is_some_and(|output| output.status.success()) {
        lacking::skip(test, "there is no Python 3.11 that could compute the figures again");
        return;
    }
    let name = format!("siga-cli-recompute-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    std::fs::create_dir(&directory.0).unwrap();
    let results = directory.file("run.jsonl");
    let short = ["--trials", "6", "--seconds", "0.05", "--warm-up", "0.02", "--json", &results];
    let transports = "transport=path,unix-stream,unix-seqpacket,copy-limit";
    for case in [
        &["message-stream", "--set", transports, "--set", "bytes=64", "--set", "ring=65536"][..],
        &["channel-io", "--set", "read_percent=0,100", "--set", "records=1"],
    ] {
        let has_run = |_| {
            let output = directory.siga(&[&["run", "--quick"], case, &short].concat());
            output.status.success()
        };
        assert!((0..ATTEMPTS).any(has_run), "{case:?}");
    }
    let report = directory.siga(&["report", &results, "--format", "markdown"]);
    let report = String::from_utf8(report.stdout).unwrap();
    let printed = directory.file("report.md");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/tests/recompute.py");
    let script = script.display().to_string();
    assert!(std::fs::read_to_string(&script).unwrap().lines().count() <= 100);
    let check = |report: &str| {
        std::fs::write(&printed, report).unwrap();
        let output = python(&[&script, &results, &printed]).unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = check(&report);
    assert_eq!(code, Some(0), "{said}\n{report}");
    // One digit that is not so is found.
    let figure = report.find("| command | ").unwrap() + "| command | ".len();
    let other = if report[figure..].starts_with('9') { "8" } else { "9" };
    let (code, said) = check(&format!("{}{other}{}", &report[..figure], &report[figure + 1..]));
    assert!(code == Some(1) && said.contains("1 of them differ"), "{said}\n{report}");
}
