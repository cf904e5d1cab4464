//! Interval records: what a party did until now, appended to a file of its own at each interval of its window.
//!
//! Quantities are cumulative, so a reader takes differences of any two records. A party can die in the middle
//! of a record: a reader stops at the first one that is not whole.
//!
//! ```text
//! byte  0        4         8          12          12 + length
//!       | length | version | checksum | text      |    (each number little-endian, 4 bytes)
//! ```
//!
//! `length` is that of the text, `checksum` is what `cksum` prints of it. The text is JSON: in the first record
//! a [`Head`], in all others an [`Interval`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::binary::cksum;
use crate::factor::Factors;
use crate::quantity::{Report, ThreadCpu, total};

/// The version of this format.
const VERSION: u32 = 1;

/// The numbers before a text.
const HEAD_BYTES: usize = 12;

/// The longest text.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Whose records a file has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Head {
    /// Of which case.
    pub case: String,
    /// When the run began, in milliseconds since 1970.
    pub run: u64,
    /// Which trial, from 1.
    pub trial: u32,
    /// Under which levels.
    pub factors: Factors,
    /// Which role.
    pub role: String,
    /// Which of its copies, from 0.
    pub number: usize,
    /// How long an interval is.
    pub interval_ms: u64,
}

/// What a party did from the beginning of its window until now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Since the window opened.
    pub ns: u64,
    /// Whether the window is over: this is what the party reported.
    pub is_last: bool,
    /// What it did until now.
    pub report: Report,
}

/// The directory of the records of these results: beside the file.
pub fn directory(results: &Path) -> PathBuf {
    results.with_extension("intervals")
}

/// Where the parties of a trial keep their records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// How long an interval is.
    pub interval: Duration,
    /// The directory of their files, which is there already.
    pub directory: PathBuf,
    /// What the names of their files begin with.
    pub name: String,
    /// What they have in common.
    pub head: Head,
}

impl Intervals {
    /// The file of a party.
    pub fn file(&self, role: &str, number: usize) -> PathBuf {
        self.directory.join(format!("{}-{role}-{number}.intervals", self.name))
    }

    /// Removes the files of all parties: those of an attempt that failed.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn discard(&self) -> io::Result<()> {
        let own = format!("{}-", self.name);
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&own) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Appends the records of a party.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// None if nothing more can be written, as on a full disk: the trial goes on.
    file: Option<File>,
    pub(crate) interval_ns: u64,
    pub(crate) next_ns: u64,
}

impl Recorder {
    /// Begins a file. The first record is due one interval after the window opens.
    pub(crate) fn new(intervals: &Intervals, role: &str, number: usize) -> io::Result<Recorder> {
        let path = intervals.file(role, number);
        let file = OpenOptions::new().create_new(true).append(true).open(path)?;
        let interval_ns = intervals.interval.as_nanos() as u64;
        let mut recorder = Recorder { file: Some(file), interval_ns, next_ns: u64::MAX };
        let head = Head { role: role.to_owned(), number, ..intervals.head.clone() };
        recorder.append(&head);
        Ok(recorder)
    }

    /// Appends a record, if there is room.
    pub(crate) fn append(&mut self, what: &impl Serialize) {
        let Some(file) = &mut self.file else { return };
        let record = serde_json::to_vec(what).map(|text| whole(&text));
        if !record.is_ok_and(|record| file.write_all(&record).is_ok()) {
            self.file = None;
        }
    }
}

/// A text with its head.
fn whole(text: &[u8]) -> Vec<u8> {
    let numbers = [text.len() as u32, VERSION, cksum(text)];
    [numbers.map(u32::to_le_bytes).as_flattened(), text].concat()
}

/// The texts of records, one after the other, up to the first record that is not whole. What comes behind that cannot be
/// told apart: nobody asks for a text after it.
#[derive(Debug)]
pub struct Texts<R> {
    input: R,
    /// Bytes that were read after the last record that is whole.
    read: u64,
}

impl<R: Read> Texts<R> {
    /// The texts that `input` has.
    pub fn of(input: R) -> Texts<R> {
        Texts { input, read: 0 }
    }

    /// The next text; none if no whole record follows.
    fn text(&mut self) -> io::Result<Option<String>> {
        let Some(head) = self.bytes(HEAD_BYTES)? else { return Ok(None) };
        let (numbers, _) = head.as_chunks::<4>();
        let [length, version, wanted] = [0, 1, 2].map(|at| u32::from_le_bytes(numbers[at]));
        if version != VERSION || length as usize > TEXT_BYTES_MAX {
            return Ok(None);
        }
        let text = self.bytes(length as usize)?.filter(|text| cksum(text) == wanted);
        Ok(text.and_then(|text| String::from_utf8(text).ok()))
    }

    /// So many bytes; none if there are fewer.
    fn bytes(&mut self, count: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let found = self.input.by_ref().take(count as u64).read_to_end(&mut bytes)?;
        self.read += found as u64;
        Ok((found == count).then_some(bytes))
    }

    /// How many bytes come after the last record that is whole.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bytes_left(mut self) -> io::Result<u64> {
        Ok(self.read + io::copy(&mut self.input, &mut io::sink())?)
    }
}

impl<R: Read> Iterator for Texts<R> {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<io::Result<String>> {
        let text = self.text().transpose()?;
        if text.is_ok() {
            self.read = 0;
        }
        Some(text)
    }
}

/// The records of a party.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Whose they are.
    pub head: Head,
    /// What it did, in order.
    pub intervals: Vec<Interval>,
    /// Bytes after the last record that is whole.
    pub bytes_left: u64,
}

/// Reads the records of a party.
///
/// # Errors
/// What the kernel says; or that the file has none.
pub fn read(file: &Path) -> io::Result<Recorded> {
    parse(BufReader::new(File::open(file)?))
}

/// Takes the records of a party apart.
///
/// # Errors
/// As [`read`].
pub fn parse(input: impl Read) -> io::Result<Recorded> {
    let mut texts = Texts::of(input);
    let none = || io::Error::new(io::ErrorKind::InvalidData, NO_RECORDS);
    let head = texts.next().ok_or_else(none)??;
    let head = serde_json::from_str(&head)?;
    let intervals = texts.by_ref().map(|text| Ok(serde_json::from_str(&text?)?));
    let intervals = intervals.collect::<io::Result<_>>()?;
    Ok(Recorded { head, intervals, bytes_left: texts.bytes_left()? })
}

/// What is wrong with a file that has no whole record.
pub const NO_RECORDS: &str = "there are no interval records in it";

/// The first line of records for spreadsheets.
pub const CSV_HEAD: &str = "role,number,ns,quantity,kind,value";

impl Interval {
    /// For spreadsheets: a line for each number.
    pub fn csv(&self, head: &Head) -> String {
        let Head { role, number, .. } = head;
        let Interval { ns, report, .. } = self;
        let mut text = String::new();
        let mut put = |quantity: &str, kind: &str, value: u64| {
            text += &format!("{role},{number},{ns},{quantity},{kind},{value}\n");
        };
        report.work.iter().for_each(|(kind, count)| put("work", kind, *count));
        for (kind, times) in &report.times {
            put("times", kind, times.count().saturating_mul(times.of));
        }
        let cpu = |part: fn(&ThreadCpu) -> u64| total(report.cpu.iter().map(part));
        put("cpu", "all", cpu(|thread| thread.ns));
        put("cpu", "user", cpu(|thread| thread.user_ns));
        put("cpu", "system", cpu(|thread| thread.system_ns));
        report.counters.iter().for_each(|(name, count)| put("counter", name, *count));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        r#"{"case":"c","run":7,"trial":1,"factors":{},"role":"source","number":2,"interval_ms":5}"#;
    const INTERVAL: &str =
        r#"{"ns":9,"is_last":true,"report":{"work":{"messages":3},"counters":{"rings":1}}}"#;

    fn file() -> Vec<u8> {
        [HEAD, INTERVAL].map(|text| whole(text.as_bytes())).concat()
    }

    #[test]
    fn record_is_what_the_picture_says() {
        let record = whole(b"123456789");
        // The checksum of these digits is the one that every description of `cksum` has.
        assert_eq!(record[..12], [9, 0, 0, 0, 1, 0, 0, 0, 0x11, 0x60, 0x7a, 0x37]);
        assert_eq!(record[12..], *b"123456789");
        let found = parse(&*file()).unwrap();
        assert_eq!((found.head.role.as_str(), found.head.number), ("source", 2));
        assert_eq!(found.intervals.len(), 1);
        assert_eq!((found.intervals[0].report.work("messages"), found.bytes_left), (3, 0));
        assert_eq!(
            found.intervals[0].csv(&found.head),
            "source,2,9,work,messages,3\nsource,2,9,cpu,all,0\n\
             source,2,9,cpu,user,0\nsource,2,9,cpu,system,0\nsource,2,9,counter,rings,1\n"
        );
    }

    /// How many texts a file has, and how many bytes come after them.
    fn texts(file: &[u8]) -> (usize, u64) {
        let mut texts = Texts::of(file);
        let count = texts.by_ref().map(Result::unwrap).count();
        (count, texts.bytes_left().unwrap())
    }

    #[test]
    fn reader_stops_at_the_first_record_that_is_not_whole() {
        let file = file();
        let first = whole(HEAD.as_bytes()).len();
        for cut in 0..file.len() {
            let (texts, left) = texts(&file[..cut]);
            assert_eq!(texts, usize::from(cut >= first), "cut at {cut}");
            assert_eq!(left as usize, if cut >= first { cut - first } else { cut });
        }
        for at in first..file.len() {
            let mut wrong = file.clone();
            wrong[at] ^= 1;
            assert_eq!(texts(&wrong), (1, (wrong.len() - first) as u64), "byte {at} is wrong");
        }
        assert!(parse(&b""[..]).is_err() && parse(&b"anything at all, and more"[..]).is_err());
    }
}
