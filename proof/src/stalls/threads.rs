//! The threads of a trial, as the kernel shows them.

use std::{fs, io};

/// The name of threads that take no part in a trial. Neither does the first thread of the process, which watches.
pub const BYSTANDER: &str = "bystander";

/// The threads of the trial at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads {
    /// True if all sleep: none runs, and none waits for a processor.
    pub are_asleep: bool,
    /// How long they have run so far, together, in nanoseconds: those that are there.
    pub ran_ns: u64,
}

/// Looks at the threads of the trial.
///
/// # Errors
/// `/proc` cannot be read.
pub fn look() -> io::Result<Threads> {
    let watcher = std::process::id().to_string();
    let mut threads = Threads { are_asleep: true, ran_ns: 0 };
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?;
        if task.file_name() == *watcher {
            continue;
        }
        // A thread may have ended meanwhile.
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        match state(&stat) {
            Some((BYSTANDER, _)) => continue,
            Some((_, 'S')) => {}
            _ => threads.are_asleep = false,
        }
        let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let ran = schedstat.split(' ').next().and_then(|ran| ran.parse::<u64>().ok());
        threads.ran_ns += ran.unwrap_or(0);
    }
    Ok(threads)
}

/// The name and the state in a `stat` file.
fn state(stat: &str) -> Option<(&str, char)> {
    let (before, after) = stat.rsplit_once(") ")?;
    Some((before.split_once('(')?.1, after.chars().next()?))
}

/// Where each thread is, a line for each.
pub fn scene() -> String {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let line = |task: fs::DirEntry| {
        let of = |file: &str| {
            fs::read_to_string(task.path().join(file)).unwrap_or_default().trim().to_owned()
        };
        let stat = of("stat");
        let (name, state) = state(&stat)?;
        let (number, schedstat) =
            (task.file_name().to_string_lossy().into_owned(), of("schedstat"));
        let (call, place) = (of("syscall"), of("wchan"));
        Some(format!(
            "  thread {number} {name}: state {state}, ns run and waited for a processor {schedstat}, call {call}, in {place}\n"
        ))
    };
    tasks.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn thread_that_runs_is_not_asleep() {
        let (end, wait) = mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || wait.recv().is_err());
        // A test is not the first thread of its process.
        let before = look().unwrap();
        assert!(!before.are_asleep, "this thread runs");
        assert!(scene().contains("state R"), "{}", scene());
        drop(end);
        while look().unwrap().ran_ns <= before.ran_ns {
            assert!(!look().unwrap().are_asleep);
        }
        assert!(sleeper.join().unwrap());
        assert_eq!(state("77 (a (b) c) S 1 2"), Some(("a (b) c", 'S')));
        assert_eq!(state("77"), None);
    }
}
