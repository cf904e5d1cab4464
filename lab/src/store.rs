//! Runs that are kept, so that `siga lab report last` finds the latest one.
//!
//! Each run is a file of results, `run-<when it began, in milliseconds since 1970>.jsonl`, in a directory of the
//! user; interval records of its parties are in a directory beside it. The oldest runs are removed, but none that a
//! process still writes: the process holds a lock on the file, which ends with the process. Nothing else in the user's
//! directory is touched.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::interval;

/// Runs that are kept.
pub const RUNS_KEPT_MAX: usize = 20;

/// A directory of runs.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// The store of this user: `$XDG_STATE_HOME/siga/lab`, or `~/.local/state/siga/lab`. None if neither
    /// variable has an absolute path.
    pub fn of_user() -> Option<Store> {
        Store::by(&|name| std::env::var_os(name))
    }

    fn by(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<Store> {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".local").join("state")))?;
        Some(Store { directory: state.join("siga").join("lab") })
    }

    /// The store in a directory, which need not exist.
    pub fn at(directory: &Path) -> Store {
        Store { directory: directory.to_owned() }
    }

    /// Makes a file for a run that begins at `now_ms`, in milliseconds since 1970, and removes the oldest runs
    /// above [`RUNS_KEPT_MAX`]. Returns where the file is, and the file, to append to. Until it is closed, the run is
    /// not removed.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn begin(&self, now_ms: u64) -> io::Result<(PathBuf, File)> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let mut when = now_ms;
        let (path, file) = loop {
            let path = self.directory.join(name(when));
            match OpenOptions::new().append(true).create_new(true).open(&path) {
                Ok(file) => {
                    file.lock()?;
                    // Another run that began may have removed it before it was locked.
                    if file.metadata()?.nlink() > 0 {
                        break (path, file);
                    }
                }
                // Another run began in the same millisecond.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => when += 1,
                Err(error) => return Err(error),
            }
        };
        // A clock that was set back makes the new run the oldest by its name.
        let mut others = self.runs()?;
        others.retain(|(_, other)| *other != path);
        for (_, old) in others.iter().rev().skip(RUNS_KEPT_MAX - 1) {
            match remove(old) {
                // Another run that begins has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok((path, file))
    }

    /// The latest run that has results; none if there is none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn last(&self) -> io::Result<Option<PathBuf>> {
        if !self.directory.exists() {
            return Ok(None);
        }
        let has_results = |file: &PathBuf| fs::metadata(file).is_ok_and(|about| about.len() > 0);
        Ok(self.runs()?.into_iter().rev().map(|(_, file)| file).find(has_results))
    }

    /// All runs, the oldest first.
    fn runs(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if let Some(when) = entry.file_name().to_str().and_then(began)
                && entry.file_type()?.is_file()
            {
                runs.push((when, entry.path()));
            }
        }
        runs.sort_unstable();
        Ok(runs)
    }
}

/// Removes a run, unless a process writes it.
fn remove(run: &Path) -> io::Result<()> {
    let file = File::open(run)?;
    if file.try_lock().is_err() {
        return Ok(());
    }
    fs::remove_file(run)?;
    match fs::remove_dir_all(interval::directory(run)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn name(when_ms: u64) -> String {
    format!("run-{when_ms}.jsonl")
}

/// When the run began whose file has this name; none if it is no name of a run.
fn began(text: &str) -> Option<u64> {
    let when = text.strip_prefix("run-")?.strip_suffix(".jsonl")?.parse().ok()?;
    (name(when) == text).then_some(when)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    #[test]
    fn directory_is_where_the_user_keeps_state() {
        let of = |state: Option<&str>, home: Option<&str>| {
            let variable = |name: &str| match name {
                "XDG_STATE_HOME" => state.map(OsString::from),
                "HOME" => home.map(OsString::from),
                _ => None,
            };
            Store::by(&variable).map(|store| store.directory)
        };
        assert_eq!(of(Some("/s"), Some("/h")), Some("/s/siga/lab".into()));
        assert_eq!(of(Some("s"), Some("/h")), Some("/h/.local/state/siga/lab".into()));
        assert_eq!(of(None, Some("/h")), Some("/h/.local/state/siga/lab".into()));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn latest_run_with_results_is_the_last() {
        let place = Place::make().unwrap();
        let store = Store::at(&place.file("a").join("b"));
        assert_eq!(store.last().unwrap(), None);
        let (first, _) = store.begin(5).unwrap();
        assert_eq!(store.last().unwrap(), None, "it has no results yet");
        fs::write(&first, "a line").unwrap();
        let (second, _) = store.begin(5).unwrap();
        assert_ne!(first, second, "two runs of the same millisecond");
        assert_eq!(store.last().unwrap(), Some(first));
        fs::write(&second, "a line").unwrap();
        assert_eq!(store.last().unwrap(), Some(second));
    }

    #[test]
    fn oldest_runs_are_removed_and_nothing_else() {
        let place = Place::make().unwrap();
        let store = Store::at(&place.file("lab"));
        let (first, _) = store.begin(1).unwrap();
        let intervals = interval::directory(&first);
        fs::create_dir(&intervals).unwrap();
        fs::write(intervals.join("a"), "records").unwrap();
        for other in ["run-.jsonl", "run-01.jsonl", "run-1.json", "notes.txt", "run-x.jsonl"] {
            fs::write(store.directory.join(other), "mine").unwrap();
        }
        fs::create_dir(store.directory.join("run-2.jsonl")).unwrap();
        std::os::unix::fs::symlink("/nowhere", store.directory.join("run-3.jsonl")).unwrap();
        for now in 10..10 + RUNS_KEPT_MAX as u64 {
            store.begin(now).unwrap();
        }
        let runs: Vec<u64> = store.runs().unwrap().into_iter().map(|(when, _)| when).collect();
        assert_eq!(runs, (10..10 + RUNS_KEPT_MAX as u64).collect::<Vec<_>>());
        let left = fs::read_dir(&store.directory).unwrap().count();
        assert_eq!(left, RUNS_KEPT_MAX + 5 + 2);
    }

    #[test]
    fn run_that_is_being_written_is_not_removed() {
        let place = Place::make().unwrap();
        let store = Store::at(&place.file("lab"));
        let (first, written) = store.begin(1).unwrap();
        let intervals = interval::directory(&first);
        fs::create_dir(&intervals).unwrap();
        let begin = |now| store.begin(now).unwrap();
        (10..10 + RUNS_KEPT_MAX as u64).for_each(|now| drop(begin(now)));
        assert!(first.exists() && intervals.exists());
        drop(written);
        begin(100);
        assert!(!first.exists() && !intervals.exists());
    }
}
