//! Drafts: cases of workloads that are not built yet. A draft is checked like a case as far as that is possible, and
//! its published tables can be printed. `cases/drafts/README.md` describes the format.

mod check;
mod written;

use std::path::Path;

use host::config::{FileError, Source};

use self::written::Written;
use crate::case::{ReadTable, read_table};
use crate::published::{Published, Study};

/// A case of workloads that are not built yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// What it is called.
    pub name: String,
    /// What it will be run with.
    pub group: Option<String>,
    /// What it is for.
    pub asks: String,
    /// The workloads that are not built yet. At least one.
    pub missing: Vec<String>,
    /// What others have measured.
    pub published: Vec<Published>,
}

/// The beginning of the first line of a draft. The names of the workloads follow.
const MARK: &str = "# workload not built yet: ";

impl Draft {
    /// Reads the file of a draft.
    ///
    /// # Errors
    /// [`FileError`]: where, what is wrong, what would be right.
    pub fn read(file: &Path) -> Result<Draft, FileError> {
        Draft::parse(&Source::read(file)?, &|table| read_table(&file.with_file_name(table)))
    }

    /// Takes the text of a draft apart, and the published tables that it names.
    ///
    /// # Errors
    /// As [`Draft::read`].
    pub fn parse(source: &Source, read_table: ReadTable<'_>) -> Result<Draft, FileError> {
        let written: Written = source.parse()?;
        written.check(source, read_table)
    }

    /// Whether a file is a draft: its first line names workloads that are not built yet.
    pub fn is_draft(source: &Source) -> bool {
        source.text().starts_with(MARK)
    }

    /// Its published tables.
    pub fn study(self) -> Study {
        Study { name: self.name, missing: self.missing, tables: self.published }
    }
}

#[cfg(test)]
mod tests;
