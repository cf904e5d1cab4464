//! Configuration files: read whole, checked whole, and refused with the place, the error, and what would be
//! right.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};

use crate::near::{near, question};

/// Why a file was refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}{}: {what}{}{right}", .file.display(), .line.map_or(String::new(), |line| format!(":{line}")), if .right.is_empty() { "" } else { ": " })]
#[non_exhaustive]
pub struct FileError {
    /// Which file.
    pub file: PathBuf,
    /// Its text, as far as it could be read.
    pub text: Arc<str>,
    /// Where, in bytes of the text.
    pub span: Range<usize>,
    /// Where, in lines from 1. None where the file could not be read.
    pub line: Option<usize>,
    /// What is wrong there.
    pub what: String,
    /// What would be right.
    pub right: String,
    /// It may be right the next time though the file stays as it is: something that it names is in use, or lacking, now.
    pub may_pass: bool,
}

/// A file's text, to point at places in it.
#[derive(Clone, Debug)]
pub struct Source {
    file: PathBuf,
    text: Arc<str>,
}

impl Source {
    /// Reads the file.
    ///
    /// # Errors
    /// [`FileError`] if it cannot be read.
    pub fn read(file: &Path) -> Result<Source, FileError> {
        let empty = Source { file: file.to_owned(), text: "".into() };
        match read(file) {
            Ok(text) => Ok(Source { text: text.into(), ..empty }),
            Err(error) => {
                let what = format!("cannot be read: {error}");
                Err(FileError { line: None, ..empty.error(0..0, what, "") })
            }
        }
    }

    /// A text that is in memory, called `file` in errors.
    pub fn of(file: &str, text: &str) -> Source {
        Source { file: file.into(), text: text.into() }
    }

    /// Where the text is from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes the text apart as TOML.
    ///
    /// # Errors
    /// [`FileError`] if it is no TOML, or has unknown or missing fields, or values of the wrong type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        toml::from_str(&self.text).map_err(|error| {
            // The rest of the message is a picture of the place, which is drawn elsewhere.
            let message = error.message().lines().next().unwrap_or_default();
            let message = match message {
                // Of an enum. A table would be a variant with fields, and no file has one.
                "wanted string or table" => "wrong type, expected a text",
                other => other,
            };
            let (what, right) = message.split_once(", expected ").unwrap_or((message, ""));
            let right = meant(what, right).unwrap_or_else(|| match right {
                "" => String::new(),
                right => format!("must be {right}"),
            });
            self.error(error.span().unwrap_or_default(), what, right)
        })
    }

    /// The line, from 1, of a byte of this text.
    pub(crate) fn line_at(&self, byte: usize) -> usize {
        self.text.get(..byte).unwrap_or_default().matches('\n').count() + 1
    }

    /// An error at a place in this text.
    pub fn error(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        right: impl Into<String>,
    ) -> FileError {
        FileError {
            file: self.file.clone(),
            text: self.text.clone(),
            line: Some(self.line_at(span.start)),
            span,
            what: what.into(),
            right: right.into(),
            may_pass: false,
        }
    }
}

/// A place in a file, for errors that are found once the file was read.
#[derive(Clone)]
pub struct Place {
    source: Source,
    span: Range<usize>,
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{:?}", self.source.file().display(), self.span)
    }
}

impl Place {
    pub(crate) fn new(source: &Source, span: Range<usize>) -> Place {
        Place { source: source.clone(), span }
    }

    /// An error here.
    pub fn error(&self, what: impl Into<String>, right: impl Into<String>) -> FileError {
        self.source.error(self.span.clone(), what, right)
    }

    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.source.line_at(self.span.start)
    }
}

/// The question for the words that were probably meant instead of an unknown field or value, of an error of `serde`: such an error
/// has each word in backticks.
fn meant(what: &str, right: &str) -> Option<String> {
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let unknown: Vec<String> = match what.starts_with("unknown ") {
        true => quoted(what),
        false => return None,
    };
    let known: Vec<String> = quoted(right);
    let words = near(unknown.first()?, known.iter().map(String::as_str));
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    question(&words)
}

/// Bytes of the longest file that is read: results of trials are, which grow with each trial.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Of `open(2)`: the same on all machines that this runs on.
const O_NONBLOCK: i32 = 0o4000;

/// Reads a configuration file. A device may have no end, and a pipe no writer.
fn read(path: &Path) -> io::Result<String> {
    let file = open_plain(path)?;
    let mut text = String::new();
    // It may grow while it is read.
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Opens an ordinary file, to read it.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for a writer; for an ordinary file the flag makes no difference.
    let file = File::options().read(true).custom_flags(O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no ordinary file")),
    }
}

/// A number of bytes, as people write it: `4096`, `"64 KiB"`, `"1 GB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let text = text.trim();
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim();
        let unit = UNITS.into_iter().find(|(name, _)| *name == unit || unit.is_empty());
        let bytes = number
            .parse::<u64>()
            .ok()
            .zip(unit)
            .and_then(|(number, (_, unit))| number.checked_mul(unit));
        bytes.map(Bytes).ok_or_else(|| {
            format!("{text:?} is no size, expected a number of bytes, or one with B, KB, MB, GB, KiB, MiB or GiB")
        })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS[5..]
            .iter()
            .rev()
            .find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match whole {
            Some((name, unit)) => write!(formatter, "{} {name}", self.0 / unit),
            None => write!(formatter, "{} B", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of bytes, or a text like \"64 KiB\"")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Bytes(bytes)),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

/// A number of bits a second, as people write it: `1000`, `"100 Mb/s"`, `"2.5Gb/s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitRate(pub u64);

const BIT_UNITS: [(&str, u64); 4] =
    [("b/s", 1), ("kb/s", 1_000), ("Mb/s", 1_000_000), ("Gb/s", 1_000_000_000)];

impl FromStr for BitRate {
    type Err = String;

    fn from_str(text: &str) -> Result<BitRate, String> {
        let text = text.trim();
        let of = |letter: char| letter.is_ascii_digit() || letter == '.';
        let end = text.find(|letter| !of(letter)).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim();
        let unit = BIT_UNITS.into_iter().find(|(name, _)| *name == unit || unit.is_empty());
        let bits = || {
            let (_, unit) = unit?;
            let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
            let parts = 10_u64.checked_pow(part.len().try_into().ok()?)?;
            let of_part = part.parse::<u64>().ok()?.checked_mul(unit)?;
            let of_whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
            // Half a bit is none.
            let of_part = of_part.is_multiple_of(parts).then_some(of_part / parts)?;
            of_whole.checked_add(of_part).map(BitRate)
        };
        bits().ok_or_else(|| {
            format!(
                "{text:?} is no rate, expected a number of bits a second, or one with kb/s, Mb/s or Gb/s"
            )
        })
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = BIT_UNITS.into_iter().rev().find(|(_, unit)| self.0.is_multiple_of(*unit));
        let (name, unit) = unit.expect("all are multiples of 1");
        write!(formatter, "{} {name}", self.0 / unit)
    }
}

impl<'de> Deserialize<'de> for BitRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BitRate, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of bits a second, or a text like \"100 Mb/s\"")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bits) => Ok(BitRate(bits)),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        #[expect(dead_code, reason = "only errors are tested")]
        number: u32,
        size: Option<Bytes>,
        #[expect(dead_code, reason = "only errors are tested")]
        colour: Option<Colour>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
        Blue,
    }

    fn refused(text: &str) -> String {
        Source::of("x.toml", text).parse::<Example>().unwrap_err().to_string()
    }

    #[test]
    fn errors_name_file_line_fault_and_cure() {
        assert_eq!(
            refused("number = 1\nnumer = 2\n"),
            "x.toml:2: unknown field `numer`: did you mean `number`?"
        );
        assert_eq!(
            refused("number = 1\nlength = 2\n"),
            "x.toml:2: unknown field `length`: must be one of `number`, `size`, `colour`"
        );
        assert_eq!(
            refused("number = 1\ncolour = \"rde\"\n"),
            "x.toml:2: unknown variant `rde`: did you mean `red`?"
        );
        assert_eq!(
            refused("\n\nnumber = \"1\"\n"),
            "x.toml:3: invalid type: string \"1\": must be u32"
        );
        assert_eq!(refused("size = 1\n"), "x.toml:1: missing field `number`");
        for colour in ["false", "1", "[]", "1979-05-27"] {
            let error = refused(&format!("number = 1\ncolour = {colour}\n"));
            assert_eq!(error, "x.toml:2: wrong type: must be a text", "{colour}");
        }
        assert_eq!(
            refused("number = 1\ncolour = \"green\"\n"),
            "x.toml:2: unknown variant `green`: must be `red` or `blue`"
        );
        let error = refused("number = 1\nsize = \"1 parsec\"\n");
        assert!(
            error.starts_with("x.toml:2: \"1 parsec\" is no size: must be a number"),
            "{error}"
        );
        assert!(refused("number = \n").starts_with("x.toml:1: "));
        let missing = Source::read(Path::new("/nonexistent/x.toml")).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/x.toml: cannot be read: "), "{missing}");
    }

    #[test]
    fn only_ordinary_files_of_a_bounded_size_are_read() {
        let refused = |path: &Path| Source::read(path).unwrap_err().to_string();
        for path in ["/dev/zero", "/dev", "/dev/null"] {
            let error = refused(Path::new(path));
            assert_eq!(error, format!("{path}: cannot be read: it is no ordinary file"));
        }
        let path = std::env::temp_dir().join(format!("siga-config-{}", std::process::id()));
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX).unwrap();
        assert_eq!(Source::read(&path).unwrap().text().len() as u64, FILE_BYTES_MAX);
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        let error = refused(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(error.ends_with("it has more than 67108864 bytes"), "{error}");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64 KiB", 65_536),
            ("1GB", 1_000_000_000),
            ("2 TiB", 2 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "B", "-1", "1.5 KiB", "1 kib", "99999999999999999999", "99999999 TiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        let example: Example = Source::of("x", "number = 1\nsize = 7").parse().unwrap();
        assert_eq!(example.size, Some(Bytes(7)));
        assert_eq!(Bytes(65_536).to_string(), "64 KiB");
        assert_eq!(Bytes(1000).to_string(), "1000 B");
    }

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, bits, shown) in [
            ("1000", 1_000, "1 kb/s"),
            ("1Gb/s", 1_000_000_000, "1 Gb/s"),
            ("2.5 Gb/s", 2_500_000_000, "2500 Mb/s"),
            ("0.1Mb/s", 100_000, "100 kb/s"),
            ("1500 b/s", 1_500, "1500 b/s"),
        ] {
            assert_eq!(text.parse(), Ok(BitRate(bits)), "{text}");
            assert_eq!(BitRate(bits).to_string(), shown);
        }
        for text in ["", "Gb/s", "1 GB/s", "1.5", "-1", ".5 Gb/s", "1.", "1.2.3 kb/s", "1 gb/s"] {
            assert!(text.parse::<BitRate>().is_err(), "{text}");
        }
        assert!("99999999999999 Gb/s".parse::<BitRate>().is_err());
    }
}
