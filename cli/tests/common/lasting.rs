//! Commands that last: with `--json` they print an object when they have begun, and one at the end.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Stdio};

use serde_json::Value;

use crate::common::{Process, System};

/// Starts a command, and returns what it prints when it has begun.
pub fn begin(
    system: &System,
    name: &str,
    arguments: &[&str],
) -> (Process, BufReader<ChildStdout>, Value) {
    let mut command = system.command(&[&[name, "--json"], arguments].concat());
    let mut process = Process(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut results = BufReader::new(process.0.stdout.take().unwrap());
    let mut line = String::new();
    results.read_line(&mut line).unwrap();
    (process, results, serde_json::from_str(&line).unwrap())
}

/// Ends it, and returns what it prints then.
pub fn end(process: &Process, results: &mut impl BufRead) -> Value {
    let number = process.0.id().to_string();
    assert!(std::process::Command::new("kill").arg(number).status().unwrap().success());
    let mut line = String::new();
    results.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}
