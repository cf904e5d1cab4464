//! What is wrong with a case file, and where.

use std::collections::BTreeMap;
use std::ops::Range;

use host::config::{FileError, Source};
use host::near::right;
use toml::de::{DeTable, DeValue};

/// What is wrong in a case file, and what would be right.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {right}")]
pub(crate) struct Wrong {
    pub(crate) what: String,
    right: String,
    /// Keys, and places in lists, that lead to the value, from the outermost on.
    path: Vec<String>,
}

impl Wrong {
    pub(crate) fn new(what: impl Into<String>, right: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), right: right.into(), path: Vec::new() }
    }

    /// A word that is none of those which are known.
    pub(crate) fn unknown(kind: &str, word: &str, known: &[impl AsRef<str>]) -> Wrong {
        Wrong::new(format!("there is no {kind} {word:?}"), right(word, known))
    }

    /// The same, as an error of the file.
    pub(super) fn of(self, source: &Source) -> FileError {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        source.error(span(source.text(), &path), self.what, self.right)
    }
}

/// Adds where a value stands to what is wrong with it.
pub(crate) trait At<T> {
    /// The same result, of the value at `step`: a key of a table, or a place in a list.
    fn at(self, step: impl ToString) -> Result<T, Wrong>;
}

impl<T> At<T> for Result<T, Wrong> {
    fn at(self, step: impl ToString) -> Result<T, Wrong> {
        self.map_err(|mut wrong| {
            wrong.path.insert(0, step.to_string());
            wrong
        })
    }
}

/// Checks each entry of the list at `key`.
pub(super) fn check_each<T>(
    key: &str,
    entries: &mut [T],
    check: impl Fn(&mut T) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    entries.iter_mut().enumerate().try_for_each(|(at, entry)| check(entry).at(at)).at(key)
}

/// Checks each entry of a table, by its key.
pub(super) fn check_all<T>(
    entries: &mut BTreeMap<String, T>,
    check: impl Fn(&str, &mut T) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    entries.iter_mut().try_for_each(|(key, entry)| check(key, entry).at(key))
}

/// Where a value and its key stand in a text, in bytes. Steps that lead nowhere are left out: what may be a list may be one entry
/// too, and a value that is missing is one of its table.
pub(super) fn span(text: &str, path: &[&str]) -> Range<usize> {
    let table = DeTable::parse(text).map(toml::Spanned::into_inner).unwrap_or_default();
    let (root, mut span) = (DeValue::Table(table), 0..0);
    let mut here = &root;
    for step in path {
        let found = match here {
            DeValue::Table(table) => {
                table.get_key_value(*step).map(|(key, value)| (key.span().start, value))
            }
            DeValue::Array(list) => {
                step.parse().ok().and_then(|at: usize| list.get(at)).map(|v| (v.span().start, v))
            }
            _ => None,
        };
        if let Some((start, value)) = found {
            span = start..value.span().end.max(start);
            here = value.get_ref();
        }
    }
    span
}
