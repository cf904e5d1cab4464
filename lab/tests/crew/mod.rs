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

/// Starts a worker that is this test program.
pub fn worker_command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["crew::worker", "--exact", "--nocapture"]).env(WORKER, "1");
    command
}

/// A crew whose workers are this test program.
pub fn crew() -> Crew {
    Crew::new(worker_command, None)
}
