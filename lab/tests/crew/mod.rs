//! Workers for trials, of which each is this test program again.

use std::process::Command;
use std::time::{Duration, Instant};

use lab::trial::Crew;
use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};

/// Says that this process is a worker.
const WORKER: &str = "SIGA_LAB_WORKER";

/// Says what becomes of a worker, how many microseconds after its start, the latest time for it, and which file is made then:
/// `kill 200 14000 /tmp/struck`.
pub const MISFORTUNE: &str = "SIGA_LAB_MISFORTUNE";

/// No test by itself: what the trials of the other tests start as their workers.
#[test]
fn worker() {
    if std::env::var_os(WORKER).is_some() {
        if let Ok(misfortune) = std::env::var(MISFORTUNE) {
            suffer(&misfortune);
        }
        lab::worker::run().unwrap();
    }
}

/// Lets this process have its misfortune when its time has come, or never if that is too late.
fn suffer(misfortune: &str) {
    let words: Vec<&str> = misfortune.splitn(4, ' ').collect();
    let [kind, after_us, latest_us, file] = words[..] else { panic!("{misfortune}") };
    let [after, latest] =
        [after_us, latest_us].map(|us| Duration::from_micros(us.parse().unwrap()));
    let file = file.to_owned();
    if kind == "refuse" {
        std::fs::write(file, "").unwrap();
        // What it opens or receives next it does not get.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        return setrlimit(Resource::Nofile, none).unwrap();
    }
    let signal = if kind == "kill" { Signal::KILL } else { Signal::STOP };
    let began = Instant::now();
    std::thread::spawn(move || {
        std::thread::sleep(after);
        let made = format!("{file}.made");
        std::fs::write(&made, "").unwrap();
        // To make a file can take longer than the window: only here is it known whether the time is over.
        if began.elapsed() > latest {
            return std::fs::remove_file(made).unwrap();
        }
        std::fs::rename(made, file).unwrap();
        kill_process(getpid(), signal).unwrap();
    });
}

/// Starts a worker that is this test program.
pub fn worker_command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["crew::worker", "--exact", "--nocapture"]).env(WORKER, "1");
    command
}

/// A crew whose workers are this test program.
pub fn crew() -> Crew {
    Crew::new(worker_command)
}
