//! Results: JSON lines, one for each trial.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use host::config::{FileError, Source};
use serde::{Deserialize, Serialize};

use crate::binary::Binary;
use crate::factor::Factors;
use crate::machine::Machine;
use crate::quantity::Party;

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Of which case.
    pub case: String,
    /// On which system.
    pub system: String,
    /// Which trial, from 1.
    pub trial: u32,
    /// Under which levels.
    pub factors: Factors,
    /// What was measured; names end in the unit. Empty if nothing could be measured.
    pub metrics: BTreeMap<String, f64>,
    /// What was counted meanwhile.
    pub counters: BTreeMap<String, u64>,
    /// What each party did in its window, and what that cost. Results of older labs have none, and keep the
    /// metrics that they have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parties: Vec<Party>,
    /// Busy time of the trial's processors that no party explains, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unexplained_ns: Option<i64>,
    /// Where.
    pub machine: Machine,
    /// Which file measured it, in a run of two binaries. The factor `binary` says which of the two it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<Binary>,
    /// When the run began, in milliseconds since 1970: trials of one run were interleaved.
    pub run: u64,
    /// How long it counted, in seconds.
    pub seconds: f64,
    /// Why nothing could be measured, if nothing could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unable: Option<String>,
    /// The text of the case, with the first of its trials in a run: a report needs nothing but the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// The published table that the case names, beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
}

/// Where results are kept.
#[derive(Debug)]
pub struct Results {
    /// The file's name; none if it was opened by somebody else.
    path: Option<PathBuf>,
    file: File,
}

impl Results {
    /// Results that are written to an open file.
    pub fn new(file: File) -> Results {
        Results { path: None, file }
    }

    /// Opens a file to append to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn append_to(path: &Path) -> io::Result<Results> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        // A run that was ended while it wrote has left a line without an end: that is not ours to go on with.
        if has_open_line(path)? {
            file.write_all(b"\n")?;
        }
        Ok(Results { path: Some(path.to_owned()), file })
    }

    /// The name of the file, if it has one here.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Adds a trial: it is in the file when this returns.
    ///
    /// # Errors
    /// What the kernel says, for example that the disk is full. Earlier trials are in the file; a part of this
    /// one may be, and readers leave it out.
    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record).map_err(io::Error::other)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }
}

/// Whether the last line of a file has no end.
fn has_open_line(file: &Path) -> io::Result<bool> {
    let mut file = File::open(file)?;
    let mut last = [b'\n'];
    if file.metadata()?.is_file() && file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok(last != *b"\n")
}

/// Reads results.
///
/// # Errors
/// [`FileError`]: which line is no result, and why. A last line that was cut off is none.
pub fn read(file: &Path) -> Result<Vec<Record>, FileError> {
    parse(&Source::read(file)?)
}

/// Takes the text of results apart.
///
/// # Errors
/// As [`read`].
pub fn parse(source: &Source) -> Result<Vec<Record>, FileError> {
    let mut records = Vec::new();
    let mut at = 0;
    for line in source.text().split_inclusive('\n') {
        let span = at..at + line.trim_end().len();
        at += line.len();
        if span.is_empty() {
            continue;
        }
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            // The run was ended in the middle of it; another may have added its own after it.
            Err(_) if !line.ends_with('\n') || is_cut_off(line) => {}
            Err(error) => {
                let what = format!("this is no result: {error}");
                return Err(source.error(
                    span,
                    what,
                    "must be a line that `siga lab run --json` wrote",
                ));
            }
        }
    }
    Ok(records)
}

/// Whether a line begins as results do, and does not end as they do.
fn is_cut_off(line: &str) -> bool {
    const START: &str = "{\"case\":";
    line.starts_with(START) && !line.trim_end().ends_with('}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factor::is_against;

    const LINE: &str = r#"{"case":"c","system":"open","trial":1,"factors":{"bytes":64,"transport":"path"},"metrics":{"rate_messages_per_s":5.5},"counters":{"source_output_rings":3},"machine":{"processors":2},"run":7,"seconds":0.5}"#;

    #[test]
    fn result_is_a_line_of_the_promised_shape() {
        let records = parse(&Source::of("r.jsonl", &format!("{LINE}\n\n{LINE}\n"))).unwrap();
        assert_eq!(records.len(), 2);
        let record = &records[0];
        assert_eq!((record.case.as_str(), record.trial, record.run), ("c", 1, 7));
        assert_eq!(record.metrics["rate_messages_per_s"], 5.5);
        assert_eq!(record.counters["source_output_rings"], 3);
        assert_eq!((&record.binary, &record.unable), (&None, &None), "older results have neither");
        let written = serde_json::to_string(record).unwrap();
        let first = r#"{"case":"c","system":"open","trial":1,"factors":{"bytes":64,"transport":"path"},"metrics":{"rate_messages_per_s":5.5},"counters":{"source_output_rings":3},"machine":{"#;
        assert!(written.starts_with(first), "{written}");
        let last = r#"},"run":7,"seconds":0.5}"#;
        assert!(written.ends_with(last), "{written}");
    }

    #[test]
    fn result_of_two_binaries_says_which_one_measured_it() {
        let binary = r#""binary":{"path":"/old/siga","version":"siga 0.0.9","checksum":5},"run""#;
        let text = LINE
            .replace("\"run\"", binary)
            .replace("{\"bytes\"", "{\"binary\":\"against\",\"bytes\"");
        let record = parse(&Source::of("r.jsonl", &text)).unwrap().pop().unwrap();
        assert!(is_against(&record.factors));
        let line = record.binary.as_ref().unwrap().line();
        assert_eq!(line, "siga 0.0.9, /old/siga, cksum 5");
        let written = serde_json::to_string(&record).unwrap();
        assert!(written.contains(binary), "{written}");
    }

    #[test]
    fn line_that_is_none_is_named() {
        let refused = |text: &str| parse(&Source::of("r.jsonl", text)).unwrap_err().to_string();
        let error = refused(&format!("{LINE}\nrubbish\n"));
        assert!(error.starts_with("r.jsonl:2: this is no result: "), "{error}");
        assert!(error.ends_with("must be a line that `siga lab run --json` wrote"), "{error}");
    }

    #[test]
    fn line_that_was_cut_off_is_left_out() {
        let text = format!("{LINE}\n{}", &LINE[..50]);
        assert_eq!(parse(&Source::of("r.jsonl", &text)).unwrap().len(), 1);
        let text = format!("{LINE}\n{}\n{LINE}\n", &LINE[..50]);
        assert_eq!(parse(&Source::of("r.jsonl", &text)).unwrap().len(), 2);
    }

    #[test]
    fn full_disk_is_an_error_and_no_half_line() {
        let record = parse(&Source::of("r", LINE)).unwrap().pop().unwrap();
        let mut results = Results::append_to(Path::new("/dev/full")).unwrap();
        assert_eq!(results.add(&record).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn results_are_appended() {
        let file = std::env::temp_dir().join(format!("siga-lab-record-{}", std::process::id()));
        let record = parse(&Source::of("r", LINE)).unwrap().pop().unwrap();
        for trial in 1..3 {
            let record = Record { trial, ..record.clone() };
            Results::append_to(&file).unwrap().add(&record).unwrap();
        }
        // A run that is ended while it writes costs no trial but its last.
        File::options()
            .append(true)
            .open(&file)
            .unwrap()
            .write_all(&LINE.as_bytes()[..40])
            .unwrap();
        Results::append_to(&file).unwrap().add(&Record { trial: 3, ..record }).unwrap();
        let trials: Vec<u32> = read(&file).unwrap().iter().map(|record| record.trial).collect();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(trials, [1, 2, 3]);
    }
}
