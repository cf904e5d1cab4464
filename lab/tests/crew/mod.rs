//! Workers for trials, of which each is this test program again.

use std::process::Command;

use lab::trial::Crew;

/// Says that this process is a worker.
const WORKER: &str = "SIGA_LAB_WORKER";

/// No test by itself: what the trials of the other tests start as their workers.
#[test]
fn worker() {
    if std::env::var_os(WORKER).is_some() {
        lab::worker::run().unwrap();
    }
}

/// A crew whose workers are this test program.
pub fn crew() -> Crew {
    let command = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["crew::worker", "--exact", "--nocapture"]).env(WORKER, "1");
        command
    };
    Crew::new(command, None)
}
