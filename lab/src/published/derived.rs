//! Figures that a document derives from its own figures, by comparing rows: ratios, differences, differences in
//! percent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Sheet, TableError};

/// Derived figures, as a case file names them: a file of their own, or a column of the table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenDerived {
    /// A file whose rows have the levels of the table's rows, and whose columns have the names of the columns
    /// from which their figures are derived.
    file: Option<PathBuf>,
    /// Instead of a file: the column with the derived figures, and the column from which they are derived.
    column: Option<String>,
    of: Option<String>,
    kind: Derivation,
    base: BTreeMap<String, String>,
    #[serde(default)]
    same: Vec<String>,
}

/// Derived figures, and what each is computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// The file with the derived figures; none if they are columns of the table itself.
    pub sheet: Option<Sheet>,
    /// The columns with derived figures, each with the column that it is computed from.
    pub columns: Vec<(String, String)>,
    /// How.
    pub kind: Derivation,
    /// The row that a figure is against: these columns have these texts, those in `same` the texts of the own row.
    pub base: BTreeMap<String, String>,
    /// The columns in which the base has what the own row has.
    pub same: Vec<String>,
}

/// How a document compares two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// A printed figure that follows from two others, and what these give.
#[derive(Clone, Debug, PartialEq)]
pub struct Recomputed<'a> {
    /// The sheet that it stands in.
    pub sheet: &'a Sheet,
    /// Its row there.
    pub row: usize,
    /// Its column.
    pub column: &'a str,
    /// As it is printed.
    pub printed: &'a str,
    /// What the two printed figures give.
    pub computed: f64,
    /// The least and the greatest that figures can give which are rounded to those two.
    pub possible: (f64, f64),
    /// How the printed figure compares with the computed one.
    pub agrees: Agreement,
}

/// How a printed figure compares with the computed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Agreement {
    /// The computed figure rounds to the printed one.
    Equal,
    /// It does not, but figures that are rounded to the printed ones can give it.
    Rounding,
    /// No figures that are rounded to the printed ones can give it.
    Differs,
}

impl WrittenDerived {
    /// The columns that tell the rows apart which are compared.
    pub(super) fn keys(&self) -> impl Iterator<Item = String> {
        self.base.keys().chain(&self.same).cloned()
    }

    /// Reads the file, if there is one, and checks that all columns are there.
    pub(super) fn check(
        self,
        own: &Sheet,
        read: &dyn Fn(&Path) -> std::io::Result<String>,
    ) -> Result<Derived, TableError> {
        let WrittenDerived { file, column, of, kind, base, same } = self;
        let here = |why: String| format!("{}: {why}", own.file().display());
        base.keys().chain(&same).try_for_each(|column| own.check_column(column)).map_err(here)?;
        let (sheet, columns) = match (file, column, of) {
            (None, Some(column), Some(of)) => {
                let both = [&column, &of];
                both.into_iter().try_for_each(|column| own.check_column(column)).map_err(here)?;
                (None, vec![(column, of)])
            }
            (Some(file), None, None) => {
                let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
                let text = read(&file).map_err(|why| TableError::unreadable(&file, &why))?;
                let sheet = Sheet::parse(&file, &text).map_err(|why| wrong(&why))?;
                let is_key =
                    |name: &str| base.contains_key(name) || same.iter().any(|own| own == name);
                let keys = base.keys().chain(&same);
                keys.clone()
                    .try_for_each(|key| sheet.check_column(key))
                    .map_err(|why| wrong(&why))?;
                let head = sheet.head().iter();
                head.clone()
                    .try_for_each(|name| own.check_column(name))
                    .map_err(|why| wrong(&why))?;
                let figures = sheet.head().iter().filter(|column| !is_key(column));
                let columns = figures.map(|column| (column.clone(), column.clone())).collect();
                (Some(sheet), columns)
            }
            _ => {
                let right =
                    "derived figures have a file, or a column and the column of which they are";
                return Err(here(right.to_owned()).into());
            }
        };
        let derived = Derived { sheet, columns, kind, base, same };
        derived.check_rows(own)?;
        Ok(derived)
    }
}

impl Derived {
    /// Computes every figure again that has its two figures, in the order of their file. `own` is the table.
    pub fn recompute<'a>(&'a self, own: &'a Sheet, rows: &[usize]) -> Vec<Recomputed<'a>> {
        let sheet = self.sheet.as_ref().unwrap_or(own);
        let mut found = Vec::new();
        for row in 0..sheet.len() {
            let Some(own_row) = self.own_row(own, row).filter(|row| rows.contains(row)) else {
                continue;
            };
            let Some(base) = self.base_row(own, own_row) else { continue };
            for (column, of) in &self.columns {
                let figures = (sheet.at(row, column), own.at(own_row, of), own.at(base, of));
                let (Some(printed), Some(figure), Some(against)) = figures else { continue };
                found.extend(self.compare(printed, figure, against).map(
                    |(computed, possible, agrees)| Recomputed {
                        sheet,
                        row,
                        column,
                        printed,
                        computed,
                        possible,
                        agrees,
                    },
                ));
            }
        }
        found
    }

    /// Checks that each row of a file of derived figures has a row of the table and a base, and that each of its
    /// fields is a number.
    fn check_rows(&self, own: &Sheet) -> Result<(), String> {
        let Some(sheet) = &self.sheet else { return Ok(()) };
        for row in 0..sheet.len() {
            let place = || format!("{}: line {}", sheet.file().display(), sheet.line(row));
            let base = self.own_row(own, row).and_then(|own_row| self.base_row(own, own_row));
            if base.is_none() {
                return Err(format!(
                    "{}: the table has no row of these levels, or no base",
                    place()
                ));
            }
            let is_same = |other: &usize| {
                let mut keys = self.base.keys().chain(&self.same);
                keys.all(|key| sheet.at(*other, key) == sheet.at(row, key))
            };
            if let Some(first) = (0..row).find(is_same) {
                let first = sheet.line(first);
                return Err(format!("{} has the levels of line {first}", place()));
            }
            for (column, _) in &self.columns {
                if let Some(text) = sheet.at(row, column).filter(|text| number(text).is_none()) {
                    return Err(format!("{}: {text:?} is no number", place()));
                }
            }
        }
        Ok(())
    }

    /// The row of the table that row `row` of the derived figures belongs to.
    fn own_row(&self, own: &Sheet, row: usize) -> Option<usize> {
        let Some(sheet) = &self.sheet else { return Some(row) };
        let keys = || self.base.keys().chain(&self.same);
        (0..own.len()).find(|other| keys().all(|key| own.at(*other, key) == sheet.at(row, key)))
    }

    /// The row of the table that row `row` of the table is compared with.
    fn base_row(&self, own: &Sheet, row: usize) -> Option<usize> {
        let is_base = |other: &usize| {
            self.base.iter().all(|(column, text)| own.at(*other, column) == Some(text.as_str()))
                && self.same.iter().all(|column| own.at(*other, column) == own.at(row, column))
        };
        (0..own.len()).find(is_base)
    }

    /// What two printed figures give, what they can give, and how the printed result compares with that.
    fn compare(
        &self,
        printed: &str,
        own: &str,
        base: &str,
    ) -> Option<(f64, (f64, f64), Agreement)> {
        let ((own, own_half), (base, base_half)) = (number(own)?, number(base)?);
        let (printed, half) = number(printed)?;
        let computed = self.kind.of(own, base);
        let possible = if base.abs() > base_half || self.kind == Derivation::Delta {
            let corners = [(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)];
            let corners = corners.map(|(up, down): (f64, f64)| {
                self.kind.of(up.mul_add(own_half, own), down.mul_add(base_half, base))
            });
            corners.into_iter().fold((computed, computed), |(least, most), corner| {
                (least.min(corner), most.max(corner))
            })
        } else {
            (f64::NEG_INFINITY, f64::INFINITY)
        };
        // A part in a thousand million, for what binary numbers lose of decimal ones.
        let half = half * (1.0 + 1e-9) + printed.abs() * 1e-12;
        let agrees = if (computed - printed).abs() <= half {
            Agreement::Equal
        } else if possible.0 <= printed + half && printed - half <= possible.1 {
            Agreement::Rounding
        } else {
            Agreement::Differs
        };
        Some((computed, possible, agrees))
    }
}

impl Derivation {
    /// A figure derived from two others.
    pub fn of(self, own: f64, base: f64) -> f64 {
        match self {
            Derivation::Ratio => own / base,
            Derivation::Delta => own - base,
            Derivation::Relative => (own - base) / base,
            Derivation::Percent => (own - base) / base * 100.0,
        }
    }
}

/// A printed number, and half of a unit of its last digit.
pub(super) fn number(text: &str) -> Option<(f64, f64)> {
    let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
    Some((number, 0.5 * 10f64.powi(-places(text))))
}

/// How many digits stand behind the point.
pub(crate) fn places(text: &str) -> i32 {
    text.split_once('.').map_or(0, |(_, digits)| digits.len() as i32)
}
