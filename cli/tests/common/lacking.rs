//! Reports what a test lacks on this machine.

use std::io::Write;
use std::process::Command;

/// Reports that a test is skipped: past `cargo test`, which hides what tests print that pass. The script `test` repeats it at the end.
pub fn skip(test: &str, what: &str) {
    // In one piece, or what other tests print comes between.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {test}: {what}\n").as_bytes());
}

/// Returns true if a program is there that a test needs, and otherwise reports that the test is skipped.
pub fn has_program(test: &str, program: &str, package: &str) -> bool {
    // Not executed: some of them would become daemons.
    let found = Command::new("sh").arg("-c").arg(format!("command -v {program}")).output();
    let is_there = found.is_ok_and(|found| found.status.success());
    if !is_there {
        skip(test, &format!("{program} is not installed (apt install {package})"));
    }
    is_there
}
