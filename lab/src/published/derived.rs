//! Figures that a document derives from its own figures, by comparing rows: ratios, differences, differences in
//! percent. A test computes them again from the printed figures.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::{Sheet, unfit, unreadable};
use crate::case::{ReadTable, Wrong};

/// Derived figures, as a case file names them: a file of their own, or a column of the table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Derived {
    /// A file whose rows have the levels of the table's rows, and whose columns have the names of the columns
    /// from which their figures are derived.
    pub file: Option<PathBuf>,
    /// Instead of a file: the column with the derived figures.
    pub column: Option<String>,
    /// The column from which the figures of `column` are derived.
    pub of: Option<String>,
    /// How.
    pub kind: Derivation,
    /// The row that a figure is against: these columns have these texts, those in `same` the texts of the own row.
    pub base: BTreeMap<String, String>,
    /// The columns in which the base has what the own row has.
    #[serde(default)]
    pub same: Vec<String>,
    /// What the file holds, once it is read.
    #[serde(skip)]
    pub sheet: Option<Sheet>,
}

/// How a document compares two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Derivation {
    /// Own figure divided by the base's.
    Ratio,
    /// Own figure minus the base's.
    Delta,
    /// The difference as a part of the base's figure.
    Relative,
    /// The difference in percent of the base's figure.
    Percent,
}

impl Derived {
    /// The columns that tell the rows apart which are compared.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.base.keys().chain(&self.same)
    }

    /// Reads the file, if there is one, and checks that all columns are there.
    pub(super) fn read(mut self, own: &Sheet, read: ReadTable<'_>) -> Result<Derived, Wrong> {
        let here = |why: String| unfit(own.file(), &why);
        let check = |column: &String| own.check_column(column).map_err(here);
        self.keys().chain(&self.column).chain(&self.of).try_for_each(check)?;
        match (&self.file, &self.column, &self.of) {
            (None, Some(_), Some(_)) => {}
            (Some(file), None, None) => {
                let text = read(file).map_err(|why| unreadable(file, &why))?;
                let wrong = |why: String| unfit(file, &why);
                let sheet = Sheet::parse(file, &text).map_err(wrong)?;
                self.keys().try_for_each(|key| sheet.check_column(key)).map_err(wrong)?;
                sheet.head().iter().try_for_each(|name| own.check_column(name)).map_err(wrong)?;
                self.sheet = Some(sheet);
            }
            _ => {
                let right =
                    "derived figures have a file, or a column and the column of which they are";
                return Err(here(right.to_owned()));
            }
        }
        Ok(self)
    }
}
