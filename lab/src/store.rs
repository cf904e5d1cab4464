//! Runs that are kept, so that `siga lab report last` finds the latest one.
//!
//! Each run is a file of results, `run-<when it began, in milliseconds since 1970>.jsonl`, in a directory of the
//! user; interval records of its parties are in a directory beside it. The oldest runs are removed. Nothing else in
//! the user's directory is touched.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
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
    /// above [`RUNS_KEPT_MAX`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn begin(&self, now_ms: u64) -> io::Result<PathBuf> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let mut when = now_ms;
        let file = loop {
            let file = self.directory.join(name(when));
            match OpenOptions::new().write(true).create_new(true).open(&file) {
                Ok(_) => break file,
                // Another run began in the same millisecond.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => when += 1,
                Err(error) => return Err(error),
            }
        };
        // A clock that was set back makes the new run the oldest by its name.
        let mut others = self.runs()?;
        others.retain(|(_, other)| *other != file);
        for (_, old) in others.iter().rev().skip(RUNS_KEPT_MAX - 1) {
            match fs::remove_file(old) {
                // Another run that begins has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
            match fs::remove_dir_all(interval::directory(old)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(file)
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
        let first = store.begin(5).unwrap();
        assert_eq!(store.last().unwrap(), None, "it has no results yet");
        fs::write(&first, "a line").unwrap();
        let second = store.begin(5).unwrap();
        assert_ne!(first, second, "two runs of the same millisecond");
        assert_eq!(store.last().unwrap(), Some(first));
        fs::write(&second, "a line").unwrap();
        assert_eq!(store.last().unwrap(), Some(second));
    }

    #[test]
    fn oldest_runs_are_removed_and_nothing_else() {
        let place = Place::make().unwrap();
        let store = Store::at(&place.file("lab"));
        let first = store.begin(1).unwrap();
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
}
