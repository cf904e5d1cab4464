//! Trials of TCP between members that sleep, for a moment: the program runs for longer.

use std::process::Command;

fn run(arguments: &[&str]) -> (bool, String) {
    let done =
        Command::new(env!("CARGO_BIN_EXE_siga-proof")).arg("stalls").args(arguments).output();
    let done = done.unwrap();
    (done.status.success(), String::from_utf8(done.stdout).unwrap())
}

#[test]
fn connections_between_members_that_sleep_do_not_stand_still() {
    // A busy machine can delay the watcher, too, which then sees fewer of the moments in which somebody is awake.
    let (is_well, said) = run(&["--trials", "24", "--ms", "30", "--asleep-ms", "900"]);
    assert!(is_well && said.contains("24 trials"), "{said}");
}

#[test]
fn side_that_nobody_wakes_is_found() {
    let (is_well, said) =
        run(&["--trials", "3", "--ms", "30", "--asleep-ms", "200", "--nap-ms", "3000"]);
    assert!(!is_well && said.contains("all slept for"), "{said}");
}
