//! Factors: what is varied, and the levels it is varied over.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use host::config::Bytes;
use host::near::right;
use serde::{Deserialize, Serialize};

use crate::workload::split;

/// One value of a factor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number or a word")]
pub enum Level {
    /// A count, or a size in bytes.
    Number(u64),
    /// A name.
    Word(String),
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Number(number) => number.fmt(formatter),
            Level::Word(word) => word.fmt(formatter),
        }
    }
}

/// The levels that hold for a trial, by factor.
pub type Factors = BTreeMap<String, Level>;

/// The number that a factor has here, if it is here and has a number.
pub(crate) fn number(factors: &Factors, name: &str) -> Option<u64> {
    match factors.get(name) {
        Some(Level::Number(number)) => Some(*number),
        _ => None,
    }
}

/// The word that a factor has here; an empty one if there is none.
pub(crate) fn word<'a>(factors: &'a Factors, name: &str) -> &'a str {
    match factors.get(name) {
        Some(Level::Word(word)) => word,
        _ => "",
    }
}

/// Whether `factors` are among those that `wanted` means: each factor that is named there has the level
/// named there. Those that are not named are open.
pub fn matches(factors: &Factors, wanted: &Factors) -> bool {
    wanted.iter().all(|(name, level)| match factors.get(name) {
        None => is_absent(name, level),
        found => found == Some(level),
    })
}

/// Factors that a cell does not have where they are 0: nothing is due by a schedule, and nobody thinks.
pub(crate) const ABSENT_AT_ZERO: &[&str] = &["rate", "think", "load_percent", "burn_percent"];

/// Whether a cell without this factor has this level.
pub(crate) fn is_absent(name: &str, level: &Level) -> bool {
    *level == Level::Number(0) && ABSENT_AT_ZERO.contains(&split(name).1)
}

/// Levels as people read them: `path, 64, adaptive`.
pub fn describe(factors: &Factors, order: &[&str]) -> String {
    let levels = order.iter().filter_map(|name| factors.get(*name));
    levels.map(Level::to_string).collect::<Vec<_>>().join(", ")
}

/// A factor of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    /// What it is called.
    pub name: &'static str,
    /// What it is, in a few words.
    pub meaning: &'static str,
    /// What its levels may be.
    pub domain: Domain,
    /// The levels of a case that does not name the factor. None: such a case does not have the factor.
    pub usual: &'static [&'static str],
}

/// The factor of a run with two binaries: which of them measured a cell. It belongs to no workload. Claims,
/// tables and skipped cells can name it.
pub static BINARY: Factor = Factor {
    name: "binary",
    meaning: "which of the two binaries measured it",
    domain: Domain::Words(&[THIS, AGAINST]),
    usual: &[THIS],
};

/// The binary that runs the lab.
pub const THIS: &str = "this";

/// The other binary.
pub const AGAINST: &str = "against";

/// The factor of cases that run in several systems: which of them the host of a trial runs. It belongs to no
/// workload, and a case that does not list its levels does not have it.
pub static SYSTEM: Factor = Factor {
    name: "system",
    meaning: "which system the host runs",
    domain: Domain::Systems,
    usual: &[],
};

/// The system that allows everything, which has no file.
pub const OPEN: &str = "open";

/// Whether the other binary measures `cell`.
pub fn is_against(cell: &Factors) -> bool {
    cell.get(BINARY.name) == Some(&Level::Word(AGAINST.to_owned()))
}

/// What the levels of a factor may be.
#[derive(Clone, Copy, Debug)]
pub enum Domain {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A number.
    Number {
        /// At least this.
        least: u64,
        /// At most this.
        most: u64,
    },
    /// A size, to be written as people write sizes.
    Bytes {
        /// At least this.
        least: u64,
        /// At most this.
        most: u64,
    },
    /// The same, or this word in place of a size.
    BytesOr {
        /// The word.
        word: &'static str,
        /// At least this.
        least: u64,
        /// At most this.
        most: u64,
    },
    /// A system file, called by its name without folder and ending; or `open`.
    Systems,
}

impl Factor {
    /// A level, as it was written.
    ///
    /// # Errors
    /// What would be right.
    pub fn level(&self, text: &str) -> Result<Level, String> {
        let level = match &self.domain {
            Domain::Words(words) => words.contains(&text).then(|| Level::Word(text.to_owned())),
            Domain::Number { least, most } => {
                let number = text.parse().ok().filter(|number| (least..=most).contains(&number));
                number.map(Level::Number)
            }
            Domain::BytesOr { word, .. } if *word == text => Some(Level::Word(text.to_owned())),
            Domain::Bytes { least, most } | Domain::BytesOr { least, most, .. } => {
                let bytes = text.parse::<Bytes>().ok().map(|Bytes(bytes)| bytes);
                bytes.filter(|bytes| (least..=most).contains(&bytes)).map(Level::Number)
            }
            Domain::Systems => {
                let file = Path::new(text).file_name().and_then(OsStr::to_str);
                let name = file.map(|name| name.strip_suffix(".toml").unwrap_or(name));
                name.map(|name| Level::Word(name.to_owned()))
            }
        };
        level.ok_or_else(|| match &self.domain {
            Domain::Words(words) => right(text, words),
            domain => format!("must be {domain}"),
        })
    }

    /// The levels of a case that does not name the factor.
    ///
    /// # Panics
    /// If they are not in the factor's own domain: a broken promise inside this program.
    pub fn usual(&self) -> Vec<Level> {
        let level = |text: &&str| self.level(text).expect("the usual levels are valid");
        self.usual.iter().map(level).collect()
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Domain::Words(words) => write!(formatter, "one of {}", words.join(", ")),
            Domain::Number { least, most } => write!(formatter, "{least} to {most}"),
            Domain::Bytes { least, most } => {
                write!(formatter, "{} to {}", Bytes(*least), Bytes(*most))
            }
            Domain::BytesOr { word, least, most } => {
                write!(formatter, "{word}, or {} to {}", Bytes(*least), Bytes(*most))
            }
            Domain::Systems => write!(formatter, "a system file, or {OPEN}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_within_their_domain_or_refused_with_the_cure() {
        let domain = Domain::Bytes { least: 1, most: 1 << 20 };
        let bytes = Factor { name: "bytes", meaning: "", domain, usual: &["64", "4 KiB"] };
        assert_eq!(bytes.usual(), [Level::Number(64), Level::Number(4096)]);
        assert_eq!(bytes.level("2 MiB"), Err("must be 1 B to 1 MiB".into()));
        assert_eq!(bytes.level("many"), Err("must be 1 B to 1 MiB".into()));
        let domain = Domain::BytesOr { word: "mtu", least: 1, most: 1 << 20 };
        let write = Factor { name: "write", meaning: "", domain, usual: &["mtu", "64 KiB"] };
        assert_eq!(write.usual(), [Level::Word("mtu".into()), Level::Number(65_536)]);
        assert_eq!(write.level("MTU"), Err("must be mtu, or 1 B to 1 MiB".into()));
        let domain = Domain::Words(&["spin", "block"]);
        let wait = Factor { name: "wait", meaning: "", domain, usual: &["spin"] };
        assert_eq!(wait.level("spin"), Ok(Level::Word("spin".into())));
        assert_eq!(wait.level("sleep"), Err("must be one of spin, block".into()));
        let domain = Domain::Number { least: 0, most: 9 };
        let idle = Factor { name: "idle", meaning: "", domain, usual: &["0"] };
        assert_eq!(idle.level("9"), Ok(Level::Number(9)));
        assert_eq!(idle.level("10"), Err("must be 0 to 9".into()));
        assert_eq!(idle.level("1 KiB"), Err("must be 0 to 9".into()));
    }

    #[test]
    fn system_is_called_by_its_file_without_folder_and_ending() {
        for text in ["two.v1", "two.v1.toml", "../systems/two.v1.toml"] {
            assert_eq!(SYSTEM.level(text), Ok(Level::Word("two.v1".into())));
        }
        for text in ["", "/", ".."] {
            assert_eq!(SYSTEM.level(text), Err("must be a system file, or open".into()));
        }
    }

    #[test]
    fn open_factors_match_every_level() {
        let factors = |pairs: &[(&str, u64)]| -> Factors {
            pairs.iter().map(|(name, level)| ((*name).into(), Level::Number(*level))).collect()
        };
        let cell = factors(&[("bytes", 64), ("ring", 4)]);
        assert!(matches(&cell, &factors(&[])));
        assert!(matches(&cell, &factors(&[("bytes", 64)])));
        assert!(!matches(&cell, &factors(&[("bytes", 1)])));
        assert!(!matches(&cell, &factors(&[("idle", 1)])));
        assert_eq!(describe(&cell, &["ring", "idle", "bytes"]), "4, 64");
    }
}
