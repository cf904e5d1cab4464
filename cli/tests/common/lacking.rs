//! Programs of others that a test needs, and what is said where they are missing.

use std::io::Write;
use std::process::Command;

/// Whether a program is there that a test needs. If it is not, the test is skipped: it says so past `cargo test`, which hides what tests print
/// that pass, and in the file that the script `test` names, which counts what was skipped.
pub fn has_program(test: &str, program: &str, package: &str) -> bool {
    let is_there = Command::new(program).output().is_ok();
    if !is_there {
        let what = format!("{program} is not installed (apt install {package})");
        // In one piece, or what other tests say comes between.
        let _ = std::io::stderr().write_all(format!("SKIPPED: {test}: {what}\n").as_bytes());
        if let Some(file) = std::env::var_os("SIGA_SKIPPED") {
            let mut file =
                std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
            file.write_all(format!("{what}\n").as_bytes()).unwrap();
        }
    }
    is_there
}
