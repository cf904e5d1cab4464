//! A tenant who does only legal things as fast as he can, for a moment: the program runs for longer.

use std::io::Write;
use std::process::Command;

/// Has ./test print it: `cargo test` hides what a test prints that passes.
fn skipped(what: &str) {
    eprintln!("{what}");
    if let Some(file) = std::env::var_os("SIGA_SKIPPED") {
        let file = std::fs::OpenOptions::new().append(true).open(file);
        writeln!(file.unwrap(), "{}", what.lines().next().unwrap_or_default()).unwrap();
    }
}

#[test]
fn tenant_who_does_all_that_is_legal_at_once_stops_no_neighbour_and_leaves_nothing() {
    // On a busy machine it takes minutes, and some runs fail: it is not understood yet.
    if !proof::is_long() {
        return skipped("the tenant's run is a part of ./test long");
    }
    let done = Command::new(env!("CARGO_BIN_EXE_siga-proof"))
        .args(["tenant", "--rounds", "1", "--ms", "50"])
        .output()
        .unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}{errors}");
    if said.starts_with("SKIPPED") {
        return skipped(said.trim());
    }
    for act in ["attach", "identify", "register", "join", "open", "connect", "ring"] {
        let line =
            said.lines().find(|line| line.starts_with(act)).unwrap_or_else(|| panic!("{said}"));
        assert!(!line.contains(" 0 done"), "{line}");
    }
}
