//! Results: JSON lines, one for each trial.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use host::config::{FileError, Source};
use serde::{Deserialize, Serialize};

use crate::binary::Binary;
use crate::case::Case;
use crate::factor::Factors;
use crate::machine::Machine;
use crate::metric::renamed;
use crate::published::{Published, Sheet};
use crate::quantity::Party;
use crate::state::State;
use crate::store::is_under_way;

/// One trial: measured, failed, or not possible here.
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
    /// The state of the machine around the trial. Results of older labs have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// When the run began, in milliseconds since 1970: trials of one run were interleaved.
    pub run: u64,
    /// How long it counted, in seconds.
    pub seconds: f64,
    /// How many trials its run has in all if nothing interrupts it. Results of older labs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<usize>,
    /// Why nothing could be measured, if nothing could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unable: Option<String>,
    /// Why it failed, if it did. A trial that failed was done once more: the record of that follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The text of the case, with the first of its trials in a run: a report needs nothing but the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// The file of the case, as it was named, beside it. None if the case comes with siga.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The published tables that the case names, beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Tables>,
    /// True if a process still wrote the run when this was read.
    #[serde(skip)]
    pub is_under_way: bool,
}

/// The texts of published tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Tables {
    /// The only one, as older labs wrote it.
    One(String),
    /// By the name of the file that the case gives.
    Named(BTreeMap<String, String>),
}

impl Tables {
    /// The tables that a case names, if it names any.
    pub fn of(case: &Case) -> Option<Tables> {
        let named = |sheet: &Sheet| (sheet.file().display().to_string(), sheet.text().to_owned());
        let sheets = case.published.iter().flat_map(Published::sheets);
        let tables: BTreeMap<String, String> = sheets.map(named).collect();
        (!tables.is_empty()).then_some(Tables::Named(tables))
    }

    /// The text of a table.
    pub fn text(&self, file: &Path) -> Option<&str> {
        match self {
            Tables::One(text) => Some(text),
            Tables::Named(tables) => tables.get(file.to_str()?).map(String::as_str),
        }
    }
}

impl Record {
    /// A trial that has figures.
    pub fn is_measured(&self) -> bool {
        self.unable.is_none() && self.failed.is_none()
    }
}

/// A run that has fewer trials than were planned: it ended by a signal, a crash or a full disk, or has not ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Interrupted {
    /// When it began, in milliseconds since 1970.
    #[serde(skip)]
    pub run: u64,
    /// Trials that were made, those included that have no result.
    pub trials: usize,
    /// Trials that were planned.
    pub planned: usize,
    /// True while a process writes it.
    #[serde(skip)]
    pub is_under_way: bool,
}

impl Interrupted {
    /// A sentence without its end: `1 was interrupted: 6 of 30 trials`.
    pub fn sentence(&self, subject: &dyn fmt::Display) -> String {
        let verb = if self.is_under_way { "is" } else { "was" };
        format!("{subject} {verb} {self}")
    }
}

/// `interrupted: 6 of 30 trials`, `under way: 6 of 30 trials`
impl fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_under_way { "under way" } else { "interrupted" };
        write!(formatter, "{state}: {} of {} trials", self.trials, self.planned)
    }
}

/// The runs of these results that were interrupted or are under way, the oldest first. The results must have all that is kept of these
/// runs.
pub fn interrupted(records: &[Record]) -> Vec<Interrupted> {
    let mut runs: BTreeMap<u64, (usize, bool, BTreeSet<_>)> = BTreeMap::new();
    for record in records {
        let (planned, is_under_way, made) = runs.entry(record.run).or_default();
        *planned = record.planned.unwrap_or_default().max(*planned);
        *is_under_way |= record.is_under_way;
        // A trial that failed and was done again is one.
        made.insert((&record.case, &record.factors, record.trial));
    }
    let all = runs.into_iter().map(|(run, (planned, is_under_way, made))| Interrupted {
        run,
        trials: made.len(),
        planned,
        is_under_way,
    });
    all.filter(|run| run.trials < run.planned).collect()
}

/// The case of these results of one run, as it was then; none if they come from a siga that knows other cases.
pub fn case_of<'a>(name: &str, records: impl Iterator<Item = &'a Record>) -> Option<Case> {
    read_case(name, records).ok()?
}

/// The case of these results; none if they do not have it.
///
/// # Errors
/// [`FileError`]: they come from a siga that knows other cases.
pub fn read_case<'a>(
    name: &str,
    mut records: impl Iterator<Item = &'a Record>,
) -> Result<Option<Case>, FileError> {
    let Some(record) = records.find(|record| record.definition.is_some()) else { return Ok(None) };
    let table = |file: &Path| {
        let text = record.published.as_ref().and_then(|tables| tables.text(file));
        text.map(str::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    let definition = record.definition.as_deref().unwrap_or_default();
    Case::parse(&Source::of(name, definition), &table).map(Some)
}

/// Where results are kept: in each of some files.
#[derive(Debug, Default)]
pub struct Results {
    files: Vec<Kept>,
    /// Why a spare file has not all results.
    pub lost: Option<io::Error>,
    /// When the run began, in milliseconds since 1970, where its file is named after that.
    pub began_ms: Option<u64>,
}

/// A file of results.
#[derive(Debug)]
struct Kept {
    path: Option<PathBuf>,
    file: File,
    /// Whether a run goes on if it cannot be written.
    is_spare: bool,
}

impl Results {
    /// Adds a file that is open, as standard output.
    pub fn write_to(&mut self, file: File) {
        self.files.push(Kept { path: None, file, is_spare: false });
    }

    /// Adds a file that is open and that nobody asked for: if it cannot be written, the others are, and
    /// [`lost`](Results::lost) says why.
    pub fn write_spare_to(&mut self, path: PathBuf, file: File) {
        self.files.push(Kept { path: Some(path), file, is_spare: true });
    }

    /// Opens one more file to append to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn append_to(&mut self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        // A run that was ended while it wrote has left a line without an end: that is not ours to go on with.
        if has_open_line(path)? {
            file.write_all(b"\n")?;
        }
        self.files.push(Kept { path: Some(path.to_owned()), file, is_spare: false });
        Ok(())
    }

    /// The first file that has a name here.
    pub fn path(&self) -> Option<&Path> {
        self.files.iter().find_map(|kept| kept.path.as_deref())
    }

    /// Adds a trial: it is in the files when this returns.
    ///
    /// # Errors
    /// What the kernel says, for example that the disk is full. Earlier trials are in the file; a part of this
    /// one may be, and readers leave it out.
    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record).map_err(io::Error::other)?;
        line.push(b'\n');
        let mut kept = Ok(());
        self.files.retain_mut(|to| {
            let Err(error) = to.file.write_all(&line) else { return true };
            match to.is_spare {
                true => self.lost = Some(error),
                false => kept = Err(error),
            }
            !to.is_spare
        });
        kept
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
    // Before the results: a run that ends meanwhile has all of them.
    let is_under_way = is_under_way(file);
    let mut records = parse(&Source::read(file)?)?;
    let latest = records.iter().map(|record| record.run).max();
    for record in &mut records {
        record.is_under_way = is_under_way && Some(record.run) == latest;
    }
    Ok(records)
}

/// Takes the text of results apart.
///
/// # Errors
/// As [`read`].
pub fn parse(source: &Source) -> Result<Vec<Record>, FileError> {
    parse_counting(source).map(|(records, _)| records)
}

/// Takes the text of results apart, and counts the lines that were cut off.
///
/// # Errors
/// As [`read`].
pub fn parse_counting(source: &Source) -> Result<(Vec<Record>, usize), FileError> {
    let (mut records, mut cut_off) = (Vec::new(), 0);
    let mut at = 0;
    for line in source.text().split_inclusive('\n') {
        let span = at..at + line.trim_end().len();
        at += line.len();
        if span.is_empty() {
            continue;
        }
        match serde_json::from_str::<Record>(line) {
            Ok(mut record) => {
                let metrics = record.metrics.into_iter();
                record.metrics = metrics.map(|(name, value)| (renamed(&name), value)).collect();
                records.push(record);
            }
            // The run was ended in the middle of it; another may have added its own after it.
            Err(_) if !line.ends_with('\n') || is_cut_off(line) => cut_off += 1,
            Err(error) => {
                let what = format!("this is no result: {error}");
                let right = "must be a line that `siga lab run --json` wrote";
                return Err(source.error(span, what, right));
            }
        }
    }
    Ok((records, cut_off))
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
    fn run_with_fewer_trials_than_planned_was_interrupted() {
        let record = parse(&Source::of("r.jsonl", LINE)).unwrap().pop().unwrap();
        let of = |trial, run, planned| Record { trial, run, planned, ..record.clone() };
        let failed = Record { failed: Some("why".into()), ..of(2, 7, Some(3)) };
        let older = [of(1, 5, None), of(2, 5, None)];
        let mut records = [&older[..], &[of(1, 7, Some(3)), failed, of(2, 7, Some(3))]].concat();
        let found = interrupted(&records);
        assert_eq!(found, [Interrupted { run: 7, trials: 2, planned: 3, is_under_way: false }]);
        assert_eq!(found[0].sentence(&"it"), "it was interrupted: 2 of 3 trials");
        let now = Interrupted { is_under_way: true, ..found[0] };
        assert_eq!(now.sentence(&"it"), "it is under way: 2 of 3 trials");
        records.push(of(3, 7, Some(3)));
        assert_eq!(interrupted(&records), []);
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
        let (records, cut_off) = parse_counting(&Source::of("r.jsonl", &text)).unwrap();
        assert_eq!((records.len(), cut_off), (2, 1));
    }

    #[test]
    fn full_disk_is_an_error_and_no_half_line() {
        let record = parse(&Source::of("r", LINE)).unwrap().pop().unwrap();
        let mut results = Results::default();
        results.append_to(Path::new("/dev/full")).unwrap();
        assert_eq!(results.add(&record).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let mut results = Results::default();
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        results.write_spare_to("/dev/full".into(), full);
        results.add(&record).unwrap();
        assert_eq!(results.lost.unwrap().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn published_tables_are_kept_by_name_and_an_only_one_without() {
        let read = |tables: &str| {
            let text = LINE.replace("\"run\"", &format!("\"published\":{tables},\"run\""));
            parse(&Source::of("r.jsonl", &text)).unwrap().pop().unwrap().published.unwrap()
        };
        let file = Path::new("../a.csv");
        assert_eq!(read("\"size\\n1\\n\"").text(file), Some("size\n1\n"));
        let named = read(r#"{"../a.csv":"a","../b.csv":"b"}"#);
        assert_eq!((named.text(file), named.text(Path::new("c.csv"))), (Some("a"), None));
    }

    #[test]
    fn results_are_appended() {
        let file = std::env::temp_dir().join(format!("siga-lab-record-{}", std::process::id()));
        let record = parse(&Source::of("r", LINE)).unwrap().pop().unwrap();
        for trial in 1..3 {
            let record = Record { trial, ..record.clone() };
            let mut results = Results::default();
            results.append_to(&file).unwrap();
            results.add(&record).unwrap();
        }
        // A run that is ended while it writes costs no trial but its last.
        File::options()
            .append(true)
            .open(&file)
            .unwrap()
            .write_all(&LINE.as_bytes()[..40])
            .unwrap();
        let mut results = Results::default();
        results.append_to(&file).unwrap();
        results.add(&Record { trial: 3, ..record }).unwrap();
        let trials: Vec<u32> = read(&file).unwrap().iter().map(|record| record.trial).collect();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(trials, [1, 2, 3]);
    }
}
