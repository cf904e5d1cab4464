//! Another siga binary, whose trials stand beside those of this one.
//!
//! The other binary may be older or newer, so the lab uses only its command line. For each trial the lab
//! writes a case file of one cell and one trial, which every version of siga can read, starts the other
//! binary, and reads the result that the binary appends to a file. The protocol between the other binary and
//! its workers does not matter.
//!
//! ```text
//! OTHER --version                                      siga 0.1.0
//! OTHER lab run DIRECTORY/cell.toml --json DIRECTORY/result.jsonl
//!     exit code 0 and a line in the result file        measured
//!     exit code 0 and a reason on standard error       this machine does not allow the trial
//!     exit code 2 and a reason on standard error       the other binary rejects the case
//!     anything else                                    the trial has failed
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use host::config::Source;
use os::poller::wait_any;
use os::processor::now_ns;
use os::signals::HeldSignals;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;
use toml::{Table, Value};

use crate::binary::Binary;
use crate::factor::{Factors, Level, is_against};
use crate::machine::Machine;
use crate::place::Place;
use crate::placement::Placements;
use crate::record::{self, Record};
use crate::trial::{Measured, Trial, TrialError};
use crate::workload::Part;

/// How long `--version` may take.
const VERSION_TIME_MAX: Duration = Duration::from_secs(10);

/// How much longer the other binary may take than a trial, to start and to end.
const GRACE: Duration = Duration::from_secs(10);

/// The most output of another program that is kept. The rest is read and dropped.
const OUTPUT_BYTES_MAX: usize = 4 << 10;

/// The most that is read of a result file.
const RESULT_BYTES_MAX: u64 = 64 << 20;

/// The name of the case that the other binary gets. What it prints about a trial begins with this name.
const CELL: &str = "cell";

/// This binary, and the one that it is run against.
#[derive(Debug)]
pub struct Against {
    this: Binary,
    other: Binary,
    /// How long a trial may take. None: ten seconds longer than one of this binary, which ends a trial that takes too long by
    /// itself.
    pub time_max: Option<Duration>,
}

/// Why this binary cannot be run against another.
#[derive(Debug, thiserror::Error)]
pub enum AgainstError {
    /// The file does not exist, cannot be executed, or is not siga.
    #[error("{} is not a siga binary: {why}", path.display())]
    NotSiga {
        /// The file, as it was given.
        path: PathBuf,
        /// What was wrong.
        why: String,
    },
    /// The file of this binary cannot be read.
    #[error("cannot read the binary of this process: {0}")]
    This(#[source] io::Error),
}

impl Against {
    /// Runs `path --version`, and computes the checksums of both files.
    ///
    /// # Errors
    /// [`AgainstError`]: `path` is not a siga binary.
    pub fn new(path: &Path) -> Result<Against, AgainstError> {
        let not_siga = |why: String| AgainstError::NotSiga { path: path.to_owned(), why };
        let file = path.canonicalize().map_err(|error| not_siga(error.to_string()))?;
        let version = version(&file).map_err(not_siga)?;
        let other = Binary::at(file, version).map_err(|error| not_siga(error.to_string()))?;
        let this = Binary::this().map_err(AgainstError::This)?;
        Ok(Against { this, other, time_max: None })
    }

    /// The binary that measures `cell`.
    pub fn binary(&self, cell: &Factors) -> &Binary {
        if is_against(cell) { &self.other } else { &self.this }
    }

    /// Lets the other binary do a trial, and sleeps meanwhile. Returns what it measured, and `here` with the
    /// version, build and processors that the other binary reports.
    ///
    /// # Errors
    /// [`TrialError`]: the other binary cannot do this trial, or the trial has failed. The temporary files
    /// are removed and the process has ended in any case.
    pub fn run(&self, trial: &Trial, here: &Machine) -> Result<(Measured, Machine), TrialError> {
        let record = self.measure(trial).map_err(|error| match error {
            TrialError::Unable(why) => TrialError::Unable(why),
            TrialError::Failed(why) => {
                TrialError::Failed(format!("{}: {why}", self.other.path.display()))
            }
        })?;
        let Record { metrics, counters, parties, machine, .. } = record;
        let Machine { siga, is_debug, pinned, .. } = machine;
        let measured = Measured { metrics, counters, parties };
        Ok((measured, Machine { siga, is_debug, pinned, ..here.clone() }))
    }

    fn measure(&self, trial: &Trial) -> Result<Record, TrialError> {
        let held = HeldSignals::hold()?;
        let place = Place::make()?;
        let directory = place.file("").display().to_string();
        let (case, result) = (place.file("cell.toml"), place.file("result.jsonl"));
        fs::write(&case, case_of(trial))?;
        if let Some((_, text)) = &trial.system {
            fs::write(place.file("system.toml"), text)?;
        }
        let mut command = Command::new(&self.other.path);
        command.args(["lab", "run"]).arg(case).arg("--json").arg(&result);
        // The other binary keeps its runs as well: beside the files of the trial, which are removed.
        command.env("XDG_STATE_HOME", place.file("state"));
        let mut running = Running::start(command, Command::stderr, held, Some(place))?;
        let status = running.wait(self.time_max.unwrap_or(trial.time_max() + GRACE))?;
        // The name of a temporary directory means nothing to the reader of a report.
        let output = running.output().replace(&directory, "");
        let mut text = Vec::new();
        if let Ok(file) = File::open(&result) {
            file.take(RESULT_BYTES_MAX).read_to_end(&mut text)?;
        }
        // Removes the files, and lets a held signal through.
        drop(running);
        judge(status, &output, &String::from_utf8_lossy(&text), trial)
    }
}

/// The result of a trial, from the exit status, the standard error and the result file of the other binary.
fn judge(
    status: ExitStatus,
    output: &str,
    text: &str,
    trial: &Trial,
) -> Result<Record, TrialError> {
    match status.code() {
        Some(0) => {}
        Some(2) => {
            let why = output.lines().next().unwrap_or("it rejects this case");
            return Err(TrialError::Unable(why.to_owned()));
        }
        _ => {
            let why = reason(output).unwrap_or(output);
            let colon = if why.is_empty() { "" } else { ": " };
            return Err(TrialError::Failed(format!("{status}{colon}{why}")));
        }
    }
    let records = record::parse(&Source::of("result.jsonl", text));
    let mut records = records.map_err(|error| TrialError::Failed(error.to_string()))?;
    // It has tried again by itself.
    if records.iter().any(|record| record.failed.is_none()) {
        records.retain(|record| record.failed.is_none());
    }
    match (records.pop(), records.len()) {
        (Some(record), 0) => checked(record, trial),
        (Some(_), more) => Err(TrialError::Unable(format!(
            "it measures {} cells where this binary measures one",
            more + 1
        ))),
        (None, _) => Err(match reason(output) {
            Some(why) => TrialError::Unable(why.to_owned()),
            None => TrialError::Failed(
                "exit status: 0, but there is neither a result nor a reason".into(),
            ),
        }),
    }
}

/// The first line that a siga binary prints for `--version`; or why it is not a siga binary.
fn version(file: &Path) -> Result<String, String> {
    match first_line(file)? {
        (first, status) if status.success() && first.starts_with("siga ") => Ok(first),
        (first, status) => {
            let right = "--version should print \"siga\" and a version";
            Err(format!("{right}, not {first:?} ({status})"))
        }
    }
}

/// The first line that a program prints for `--version`, and how the program ended; or why it did not.
pub(crate) fn first_line(file: &Path) -> Result<(String, ExitStatus), String> {
    let mut command = Command::new(file);
    command.arg("--version");
    let held = HeldSignals::hold().map_err(|error| error.to_string())?;
    let running = Running::start(command, Command::stdout, held, None);
    let mut running = running.map_err(|error| error.to_string())?;
    let status = running.wait(VERSION_TIME_MAX).map_err(|error| error.to_string())?;
    let first = running.output().lines().next().unwrap_or_default().to_owned();
    Ok((first, status))
}

/// The case file of one trial.
fn case_of(trial: &Trial) -> String {
    let Trial { workload, factors, warm_up, window, system, place, .. } = trial;
    let workload = match &*workload.parts() {
        [Part { name: "", workload }] => Value::from(workload.name),
        parts => {
            let of = |Part { name, workload }: &Part| {
                let entries = [("name", *name), ("workload", workload.name)];
                Table::from_iter(entries.map(|(key, value)| (key.to_owned(), value.into())))
            };
            parts.iter().map(of).collect::<Vec<_>>().into()
        }
    };
    let system = system.as_ref().map(|_| "system.toml");
    let factors: BTreeMap<_, _> = factors.iter().map(|(name, level)| (name, [level])).collect();
    let cell = Cell {
        name: CELL,
        asks: "?",
        trials: 1,
        seconds: window.as_secs_f64(),
        warm_up_seconds: warm_up.as_secs_f64(),
        system,
        workload,
        place: place.clone(),
        factors,
    };
    toml::to_string(&cell).expect("a case of words and numbers can be written")
}

/// A case of one cell. What is a table comes last.
#[derive(Serialize)]
struct Cell<'a> {
    name: &'static str,
    asks: &'static str,
    trials: u32,
    seconds: f64,
    warm_up_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'static str>,
    /// The name of the workload, or each part of it.
    workload: Value,
    #[serde(skip_serializing_if = "Placements::is_empty")]
    place: Placements,
    factors: BTreeMap<&'a String, [&'a Level; 1]>,
}

/// The record, if it is a result of this trial.
fn checked(record: Record, trial: &Trial) -> Result<Record, TrialError> {
    if let Some(why) = record.unable {
        return Err(TrialError::Unable(why));
    }
    if let Some(why) = record.failed {
        return Err(TrialError::Failed(why));
    }
    for (factor, level) in &record.factors {
        if let Some(wanted) = trial.factors.get(factor).filter(|wanted| *wanted != level) {
            let why = format!("it measures {factor} = {level} where this binary measures {wanted}");
            return Err(TrialError::Unable(why));
        }
    }
    Ok(record)
}

/// The reason in what a lab prints about a trial without a result: `cell (path, 64), trial 1: no pipes here`.
fn reason(output: &str) -> Option<&str> {
    let start = format!("{CELL} (");
    let said = output.lines().find(|line| line.starts_with(&start))?;
    said.split_once("), trial 1: ").map(|(_, why)| why)
}

/// A running program and the directory of its files. Dropping it kills the program, then removes the
/// directory, then lets a signal through that asks this process to end: fields are dropped in this order.
struct Running {
    child: Child,
    output: Vec<u8>,
    /// The reading end of the program's output, until the program has closed the other end.
    pipe: Option<PipeReader>,
    _place: Option<Place>,
    held: HeldSignals,
}

impl Running {
    /// Starts a program whose output to `output` is kept.
    fn start(
        mut command: Command,
        output: fn(&mut Command, PipeWriter) -> &mut Command,
        held: HeldSignals,
        place: Option<Place>,
    ) -> io::Result<Running> {
        let (pipe, theirs) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        output(&mut command, theirs);
        let child = held.spawn(&mut command)?;
        // The command holds the writing end too: without this the output would never end.
        drop(command);
        Ok(Running { child, output: Vec::new(), pipe: Some(pipe), _place: place, held })
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    /// The program took longer than `time_max`, or a signal asked this process to end.
    fn wait(&mut self, time_max: Duration) -> Result<ExitStatus, TrialError> {
        let process = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty());
        let process = process.map_err(io::Error::from)?;
        let give_up_ns = now_ns() + time_max.as_nanos() as u64;
        loop {
            let left = Duration::from_nanos(give_up_ns.saturating_sub(now_ns()));
            let [has_ended, is_interrupted, has_output] = wait_any(
                [
                    Some(process.as_fd()),
                    Some(self.held.as_fd()),
                    self.pipe.as_ref().map(AsFd::as_fd),
                ],
                Some(left),
            )?;
            if is_interrupted {
                return Err(TrialError::Failed("interrupted".into()));
            }
            if has_output {
                self.read_output()?;
            }
            // All output is read before the end of the program counts. Its children may go on writing.
            if has_ended && (!has_output || left.is_zero()) {
                return Ok(self.child.wait()?);
            }
            if left.is_zero() {
                let why = format!("did not end within {} s", time_max.as_secs_f64());
                return Err(TrialError::Failed(why));
            }
        }
    }

    /// Reads some output.
    fn read_output(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut piece = [0; 4 << 10];
        let bytes = pipe.read(&mut piece)?;
        let kept = bytes.min(OUTPUT_BYTES_MAX - self.output.len());
        self.output.extend(&piece[..kept]);
        if bytes == 0 {
            self.pipe = None;
        }
        Ok(())
    }

    /// The output, without warnings and without the line that a lab prints before the first trial of a case.
    fn output(&self) -> String {
        let output = String::from_utf8_lossy(&self.output);
        let header = format!("{CELL}: ");
        let is_kept = |line: &&str| !line.starts_with("warning: ") && !line.starts_with(&header);
        let lines: Vec<&str> = output.lines().map(str::trim_end).filter(is_kept).collect();
        lines.join("\n").trim().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A program that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::workload;

    fn trial() -> Trial {
        let word = |word: &str| Level::Word(word.into());
        Trial {
            workload: workload::find("message-stream").unwrap(),
            factors: [
                ("transport".to_owned(), word("path")),
                ("bytes".to_owned(), Level::Number(64)),
                ("wait".to_owned(), word("spin")),
            ]
            .into(),
            warm_up: Duration::from_millis(100),
            window: Duration::from_secs(2),
            ..Trial::new(workload::find("message-stream").unwrap(), Factors::new())
        }
    }

    #[test]
    fn case_of_a_trial_is_its_cell_alone() {
        let text = case_of(&trial());
        assert_eq!(
            text,
            "name = \"cell\"\nasks = \"?\"\ntrials = 1\nseconds = 2.0\nwarm_up_seconds = 0.1\n\
             workload = \"message-stream\"\n\n[factors]\nbytes = [64]\ntransport = [\"path\"]\nwait = [\"spin\"]\n"
        );
        let case = Case::parse(&Source::of("cell.toml", &text), &|_| unreachable!("it names none"));
        let case = case.unwrap();
        assert_eq!(case.cells(), [trial().factors]);
        assert_eq!((case.window, case.warm_up), (trial().window, trial().warm_up));
        let with_system = Trial { system: Some(("two.toml".into(), String::new())), ..trial() };
        assert!(case_of(&with_system).contains("\nsystem = \"system.toml\"\n"));
    }

    #[test]
    fn result_of_another_cell_is_none() {
        let record = |factors: &str| {
            let line = format!(
                r#"{{"case":"cell","system":"open","trial":1,"factors":{{{factors}}},"metrics":{{}},"counters":{{}},"machine":{{}},"run":7,"seconds":2}}"#
            );
            record::parse(&Source::of("r", &line)).unwrap().pop().unwrap()
        };
        assert!(checked(record(r#""bytes":64,"wait":"spin","more":1"#), &trial()).is_ok());
        let error = checked(record(r#""bytes":64,"wait":"block""#), &trial()).unwrap_err();
        assert!(matches!(&error, TrialError::Unable(why)
            if why == "it measures wait = block where this binary measures spin"));
        let unable = Record { unable: Some("no room".into()), ..record("") };
        let error = checked(unable, &trial()).unwrap_err();
        assert!(matches!(&error, TrialError::Unable(why) if why == "no room"));
    }

    #[test]
    fn reason_is_what_a_lab_prints_about_its_trial() {
        let output = "something\ncell (path, 64), trial 1: no such sockets (here), trial 1: none\n";
        assert_eq!(reason(output), Some("no such sockets (here), trial 1: none"));
        assert_eq!(reason("celling (path), trial 1: no\n"), None);
    }
}
