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

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::binary::Checksum;
use crate::factor::Factors;
use crate::quantity::{Report, total};

/// The version of this format.
const VERSION: u32 = 1;

/// The numbers before a text.
const HEAD_BYTES: usize = 12;

/// The longest text.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Whose records a file has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    let mut checksum = Checksum::default();
    checksum.take(text);
    let numbers = [text.len() as u32, VERSION, checksum.finish()];
    let head = numbers.into_iter().flat_map(u32::to_le_bytes);
    head.chain(text.iter().copied()).collect()
}

/// The texts of a file, up to the first record that is not whole; and how many bytes come after the last.
pub fn texts(bytes: &[u8]) -> (Vec<&str>, usize) {
    let mut texts = Vec::new();
    let mut left = bytes;
    while let Some((text, rest)) = first(left) {
        texts.push(text);
        left = rest;
    }
    (texts, left.len())
}

fn first(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let number = |at: usize| {
        let (bytes, _) = head[at..].split_first_chunk::<4>().expect("a head has three numbers");
        u32::from_le_bytes(*bytes)
    };
    let (length, version, wanted) = (number(0) as usize, number(4), number(8));
    if version != VERSION || length > TEXT_BYTES_MAX {
        return None;
    }
    let (text, rest) = rest.split_at_checked(length)?;
    let mut checksum = Checksum::default();
    checksum.take(text);
    let text = std::str::from_utf8(text).ok()?;
    (checksum.finish() == wanted).then_some((text, rest))
}

/// The records of a party.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Whose they are.
    pub head: Head,
    /// What it did, in order.
    pub intervals: Vec<Interval>,
    /// Bytes after the last record that is whole.
    pub bytes_left: usize,
}

/// Reads the records of a party.
///
/// # Errors
/// What the kernel says; or that the file has none.
pub fn read(file: &Path) -> io::Result<Recorded> {
    parse(&std::fs::read(file)?)
}

/// Takes the records of a party apart.
///
/// # Errors
/// If there are none.
pub fn parse(bytes: &[u8]) -> io::Result<Recorded> {
    let (texts, bytes_left) = texts(bytes);
    let none = || io::Error::new(io::ErrorKind::InvalidData, "there are no interval records in it");
    let (head, intervals) = texts.split_first().ok_or_else(none)?;
    let intervals = intervals.iter().map(|text| serde_json::from_str(text));
    Ok(Recorded {
        head: serde_json::from_str(head)?,
        intervals: intervals.collect::<Result<_, _>>()?,
        bytes_left,
    })
}

impl Recorded {
    /// For spreadsheets: a line for each number of each interval.
    pub fn csv(&self) -> String {
        let Head { role, number, .. } = &self.head;
        let mut text = "role,number,ns,quantity,kind,value\n".to_owned();
        for Interval { ns, report, .. } in &self.intervals {
            let mut put = |quantity: &str, kind: &str, value: String| {
                text += &format!("{role},{number},{ns},{quantity},{kind},{value}\n");
            };
            report.work.iter().for_each(|(kind, count)| put("work", kind, count.to_string()));
            for (kind, times) in &report.times {
                put("times", kind, times.count().saturating_mul(times.of).to_string());
            }
            let cpu = |part: fn(&crate::quantity::ThreadCpu) -> u64| {
                total(report.cpu.iter().map(part)).to_string()
            };
            put("cpu", "all", cpu(|thread| thread.ns));
            put("cpu", "user", cpu(|thread| thread.user_ns));
            put("cpu", "system", cpu(|thread| thread.system_ns));
            report
                .counters
                .iter()
                .for_each(|(name, count)| put("counter", name, count.to_string()));
        }
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
        let found = parse(&file()).unwrap();
        assert_eq!((found.head.role.as_str(), found.head.number), ("source", 2));
        assert_eq!(found.intervals.len(), 1);
        assert_eq!((found.intervals[0].report.work("messages"), found.bytes_left), (3, 0));
        assert_eq!(
            found.csv(),
            "role,number,ns,quantity,kind,value\nsource,2,9,work,messages,3\nsource,2,9,cpu,all,0\n\
             source,2,9,cpu,user,0\nsource,2,9,cpu,system,0\nsource,2,9,counter,rings,1\n"
        );
    }

    #[test]
    fn reader_stops_at_the_first_record_that_is_not_whole() {
        let file = file();
        let first = whole(HEAD.as_bytes()).len();
        for cut in 0..file.len() {
            let (texts, left) = texts(&file[..cut]);
            assert_eq!(texts.len(), usize::from(cut >= first), "cut at {cut}");
            assert_eq!(left, if cut >= first { cut - first } else { cut });
        }
        for at in first..file.len() {
            let mut wrong = file.clone();
            wrong[at] ^= 1;
            assert_eq!(texts(&wrong).0.len(), 1, "byte {at} is wrong");
        }
        assert!(parse(b"").is_err() && parse(b"anything at all, and more").is_err());
    }
}
