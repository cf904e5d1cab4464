//! Processes that are asked to end.

use std::process::Command;

use crate::common::Process;

/// Returns true if this process, and so each that it starts, ignores a signal: those started in the background by a script ignore Ctrl-C.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

/// Sends a signal, and returns the exit code; none if the signal killed the process.
pub fn ask_to_end(process: &mut Process, signal: i32) -> Option<i32> {
    let words = [format!("-{signal}"), process.0.id().to_string()];
    assert!(Command::new("kill").args(words).status().unwrap().success());
    process.0.wait().unwrap().code()
}
