//! Runs that are kept, so that `siga lab report last` finds the latest one.
//!
//! Each run is a file of results, `run-<when it began, in milliseconds since 1970>.jsonl`, in a directory of the
//! user; interval records of its parties are in a directory beside it. The oldest runs are removed, but none that a
//! process still writes: the process holds a lock on the file, which ends with the process. Nothing else in the user's
//! directory is touched, and no file of another user.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::interval;

/// Runs that are kept: a run in each of the last two hundred nights, or the last week of somebody who works on one thing.
pub const RUNS_KEPT_MAX: usize = 200;

/// Bytes that kept runs may have together, with their interval records. A run of all default cases has some 6 MB, most runs
/// of one case some hundred KB; more is a nuisance in a home directory. The latest run is kept whatever its size.
pub const BYTES_KEPT_MAX: u64 = 256 << 20;

/// A directory of runs.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// A run that is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// Its results.
    pub file: PathBuf,
    /// How many bytes these are.
    pub bytes: u64,
}

impl Kept {
    /// The process that writes the run, if the kernel names it: `/proc/locks` (proc_locks(5)) has a line for each lock, as
    /// `1: FLOCK  ADVISORY  WRITE 708 08:01:2304 0 EOF`.
    pub fn writer(&self) -> Option<u32> {
        let end = format!(":{}", fs::metadata(&self.file).ok()?.ino());
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let own = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_own = fields.get(1) == Some(&"FLOCK") && fields.get(5)?.ends_with(&end);
            is_own.then(|| fields[4].parse().ok()).flatten()
        };
        locks.lines().find_map(own)
    }
}

/// Returns true while a process writes a run that is kept in this file.
pub fn is_under_way(file: &Path) -> bool {
    // To open a pipe would wait for its writer.
    let file =
        fs::metadata(file).ok().filter(fs::Metadata::is_file).and_then(|_| File::open(file).ok());
    file.is_some_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Returns true if this names a run, and no file: `last`, `2` for the one before, `1795227234955` for the one that began
/// then, `2026-11-21` or `2026-11-21T09:13` for the last one that began on this day or in this minute, in UTC.
pub fn is_run_name(text: &str) -> bool {
    let shape: String =
        text.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
    let is_number = !text.is_empty() && shape.bytes().all(|byte| byte == b'0');
    let is_date = shape.len() >= DAY.len() && "0000-00-00T00:00:00".starts_with(&shape);
    text == LAST || is_number || is_date
}

/// The name of the latest run.
pub const LAST: &str = "last";
const DAY: &str = "0000-00-00";

/// Numbers up to this count runs back from the latest; larger ones are times.
const NUMBER_MAX: u64 = 9999;

/// A time in milliseconds since 1970 as `2026-11-21T09:13:54`, in UTC.
pub fn date(time_ms: u64) -> String {
    let (days, second) = (time_ms / 86_400_000, time_ms / 1000 % 86_400);
    // Years begin in March here, so that a leap day is the last of its year, and the first of them is the year 0; years of
    // 400 repeat. (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.)
    let (centuries, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * centuries + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
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

    /// Where the runs are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes a file for a run that begins at `now_ms`, in milliseconds since 1970, and removes the oldest runs
    /// above [`RUNS_KEPT_MAX`] and [`BYTES_KEPT_MAX`]. Returns where the file is, and the file, to append to. Until it is closed, the run is
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
        others.retain(|other| other.file != path);
        let mut bytes = 0;
        // The latest is kept whatever its size, and takes no room from the others.
        for (older, old) in others.iter().rev().enumerate().skip(1) {
            let own = old.bytes + interval_bytes(&old.file);
            if older < RUNS_KEPT_MAX - 1 && bytes + own <= BYTES_KEPT_MAX {
                bytes += own;
                continue;
            }
            match remove(&old.file) {
                // Another run that begins has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok((path, file))
    }

    /// The run of this name, see [`is_run_name`]; none if there is none, or if it has no results yet.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn find(&self, name: &str) -> io::Result<Option<PathBuf>> {
        let mut runs = self.runs()?;
        runs.retain(|run| run.bytes > 0);
        let number = if name == LAST { Some(1) } else { name.parse().ok() };
        let found = match number {
            Some(number @ 1..=NUMBER_MAX) => runs.iter().rev().nth(number as usize - 1),
            Some(when) => runs.iter().find(|run| run.began_ms == when),
            None => runs.iter().rev().find(|run| date(run.began_ms).starts_with(name)),
        };
        Ok(found.map(|run| run.file.clone()))
    }

    /// All runs of this user, the oldest first.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn runs(&self) -> io::Result<Vec<Kept>> {
        let mut runs = Vec::new();
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(runs),
            entries => entries?,
        };
        let own = rustix::process::geteuid().as_raw();
        for entry in entries {
            let entry = entry?;
            let Some(began_ms) = entry.file_name().to_str().and_then(began) else { continue };
            match entry.metadata() {
                Ok(about) if about.is_file() && about.uid() == own => {
                    runs.push(Kept { began_ms, file: entry.path(), bytes: about.len() });
                }
                // A run that begins elsewhere may have removed it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        runs.sort_unstable();
        Ok(runs)
    }
}

/// Bytes of the interval records beside a run.
fn interval_bytes(run: &Path) -> u64 {
    let files = fs::read_dir(interval::directory(run)).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|about| about.len()).sum()
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

/// When the run of a file that is kept began, in milliseconds since 1970.
pub fn when(run: &Path) -> Option<u64> {
    began(run.file_name()?.to_str()?)
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
        assert_eq!(store.find(LAST).unwrap(), None);
        let (first, _) = store.begin(5).unwrap();
        assert_eq!(store.find(LAST).unwrap(), None, "it has no results yet");
        fs::write(&first, "a line").unwrap();
        let (second, _) = store.begin(5).unwrap();
        assert_ne!(first, second, "two runs of the same millisecond");
        assert_eq!(store.find(LAST).unwrap(), Some(first));
        fs::write(&second, "a line").unwrap();
        assert_eq!(store.find(LAST).unwrap(), Some(second));
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
        let runs: Vec<u64> = store.runs().unwrap().iter().map(|run| run.began_ms).collect();
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

    #[test]
    fn runs_are_kept_within_their_bytes_and_the_latest_always() {
        let place = Place::make().unwrap();
        let store = Store::at(&place.file("lab"));
        let begin = |now, bytes| {
            let (path, file) = store.begin(now).unwrap();
            file.set_len(bytes).unwrap();
            path
        };
        let half = BYTES_KEPT_MAX / 2;
        let first = begin(1, half);
        let second = begin(2, half - 2);
        let intervals = interval::directory(&second);
        fs::create_dir(&intervals).unwrap();
        fs::write(intervals.join("a"), "123").unwrap();
        let third = begin(3, 2 * BYTES_KEPT_MAX);
        assert!(first.exists() && second.exists(), "the latest takes no room from others");
        begin(4, 0);
        assert!(!first.exists(), "both and the records are too many");
        assert!(second.exists() && intervals.exists() && third.exists());
        begin(5, 0);
        assert!(!third.exists() && second.exists(), "one that is too large costs no other");
    }

    #[test]
    fn runs_are_found_by_number_and_by_time() {
        let place = Place::make().unwrap();
        let store = Store::at(&place.file("lab"));
        let begin = |now, text: &str| {
            let (path, _) = store.begin(now).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        let first = begin(1_795_227_234_955, "a");
        let second = begin(1_795_227_235_000, "a");
        begin(1_795_327_235_000, "");
        let found = |name: &str| {
            assert!(is_run_name(name), "{name}");
            store.find(name).unwrap()
        };
        for (name, run) in [
            ("last", Some(&second)),
            ("1", Some(&second)),
            ("2", Some(&first)),
            ("3", None),
            ("0", None),
            ("99999999999999999999", None),
            ("1795227234955", Some(&first)),
            ("2026-11-21", Some(&second)),
            ("2026-11-21T02:13", Some(&second)),
            ("2026-11-21T02:13:54", Some(&first)),
            ("2026-11-22", None),
        ] {
            assert_eq!(found(name).as_ref(), run, "{name}");
        }
        for file in ["", "lasts", "2026-11", "2026-11-21.jsonl", "./1", "r.jsonl", "-1"] {
            assert!(!is_run_name(file), "{file}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_735_689_599, "2024-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(date(seconds * 1000), text);
        }
        assert!(date(u64::MAX).len() > 19);
    }
}
