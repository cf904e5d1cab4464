//! Published tables: what others have measured, to stand beside what is measured here.

mod derived;
mod sheet;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::case::{At, Case, METRIC, ReadTable, Wrong};
use crate::factor::{Factors, Level, matches};
use crate::statistics::median;

pub use self::derived::{Derivation, Derived};
pub use self::sheet::Sheet;

/// A table that was published.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// What its figures are called in a report.
    pub name: String,
    /// Where it stands.
    pub document: String,
    /// What its file holds.
    pub sheet: Sheet,
    /// The rows of the sheet that are the table.
    pub rows: Vec<usize>,
    /// The columns that tell its rows apart.
    pub keys: Vec<String>,
    /// The columns whose levels have a table each in the document. `metric` stands for one table for each column
    /// of figures.
    pub each: Vec<String>,
    /// The figures that the document derives from others.
    pub derived: Vec<Derived>,
    levels: Vec<Levels>,
}

/// What a row says of factors and metrics.
#[derive(Clone, Debug, PartialEq)]
struct Levels {
    factors: Factors,
    figures: BTreeMap<String, f64>,
}

/// What a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Rows {
    /// A cell.
    #[default]
    Cells,
    /// A trial of a cell.
    Trials,
}

/// A file of a published table that cannot be read.
fn unreadable(file: &Path, why: &io::Error) -> Wrong {
    let what = format!("{}: cannot be read: {why}", file.display());
    Wrong::new(what, "must be a file, as seen from here")
}

/// A file that can be read and is not such a table.
fn unfit(file: &Path, why: &str) -> Wrong {
    Wrong::new(format!("{}: {why}", file.display()), "must be a table with these columns")
}

/// What a published table is, and which of its columns are what, as a case file says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    name: String,
    document: String,
    file: PathBuf,
    /// Factors, with the columns that hold their levels.
    factors: BTreeMap<String, String>,
    /// Metrics, with the columns that hold them, in the units that the metrics' names end in.
    metrics: BTreeMap<String, String>,
    /// The rows that count: those with these texts in these columns. Left out: all.
    #[serde(default, rename = "where")]
    only: BTreeMap<String, String>,
    #[serde(default)]
    rows: Rows,
    #[serde(default)]
    each: Vec<String>,
    #[serde(default)]
    derived: Vec<Derived>,
}

/// The level of a factor, as it is written; or what would be right.
type ReadLevel<'a> = &'a dyn Fn(&str, &str) -> Result<Level, String>;

impl Published {
    /// Reads the files of a published table.
    ///
    /// # Errors
    /// What is wrong, in which file, and in which line.
    pub(crate) fn read(
        about: About,
        level: ReadLevel<'_>,
        read: ReadTable<'_>,
    ) -> Result<Published, Wrong> {
        let file = &*about.file;
        let here = |why: String| unfit(file, &why);
        let text = read(file).map_err(|why| unreadable(file, &why))?;
        let sheet = Sheet::parse(file, &text).map_err(here)?;
        let rows = about.rows(&sheet).map_err(here)?;
        let levels = rows.iter().map(|row| about.levels(&sheet, *row, level));
        let levels = levels.collect::<Result<Vec<Levels>, _>>().map_err(here)?;
        let are_trials = about.rows == Rows::Trials;
        let twice = |at: &usize| {
            levels[..*at].iter().position(|other| other.factors == levels[*at].factors)
        };
        if let Some(at) = (0..levels.len()).find(|at| !are_trials && twice(at).is_some()) {
            let (line, first) = (sheet.line(rows[at]), sheet.line(rows[twice(&at).unwrap_or(0)]));
            let right = "must be another cell, or the table has rows = \"trials\" or where";
            return Err(here(format!("line {line} is of the same cell as line {first}: {right}")));
        }
        let mut keys = about.each.clone();
        keys.extend(about.factors.values().cloned());
        keys.extend(about.only.keys().cloned());
        keys.extend(about.derived.iter().flat_map(Derived::keys).cloned());
        let is_key = |column: &&String| keys.contains(column);
        let keys = sheet.head().iter().filter(is_key).cloned().collect();
        let derived = about.derived.into_iter().map(|derived| derived.read(&sheet, read));
        let derived = derived.collect::<Result<_, Wrong>>()?;
        let About { name, document, each, .. } = about;
        Ok(Published { name, document, sheet, rows, keys, each, derived, levels })
    }

    /// Its files: what they are called, and what they hold.
    pub fn sheets(&self) -> impl Iterator<Item = &Sheet> {
        std::iter::once(&self.sheet).chain(self.derived.iter().flat_map(|derived| &derived.sheet))
    }

    /// The levels of each row.
    pub fn cells(&self) -> impl Iterator<Item = &Factors> {
        self.levels.iter().map(|levels| &levels.factors)
    }

    /// Whether something was published of a metric.
    pub fn knows(&self, metric: &str) -> bool {
        self.levels.iter().any(|row| row.figures.contains_key(metric))
    }

    /// What was published of a metric for a cell, if something was. Of several trials, the median.
    pub fn figure(&self, metric: &str, cell: &Factors) -> Option<f64> {
        let rows = self.levels.iter().filter(|row| matches(cell, &row.factors));
        let mut figures: Vec<f64> =
            rows.filter_map(|row| row.figures.get(metric)).copied().collect();
        figures.sort_by(f64::total_cmp);
        median(&figures)
    }

    /// What was published of a metric, along a factor: level and figure of each line.
    pub fn curve<'a>(
        &'a self,
        metric: &'a str,
        factor: &'a str,
    ) -> impl Iterator<Item = (&'a Level, f64)> {
        self.levels.iter().filter_map(move |row| {
            Some((row.factors.get(factor)?, row.figures.get(metric).copied()?))
        })
    }
}

impl About {
    /// Checks what the case says of the table.
    pub(crate) fn check(&mut self, case: &Case) -> Result<(), Wrong> {
        let mut factors = self.factors.keys();
        factors.try_for_each(|name| case.known_factor(name).map(drop).at(name)).at("factors")?;
        let metric = |(name, column): (String, String)| {
            let mut current = name.clone();
            case.check_metric(&mut current).at(name)?;
            Ok((current, column))
        };
        let metrics = std::mem::take(&mut self.metrics).into_iter().map(metric);
        self.metrics = metrics.collect::<Result<_, Wrong>>().at("metrics")?;
        Ok(())
    }

    /// The rows that count, of a sheet that has all columns which are named.
    fn rows(&self, sheet: &Sheet) -> Result<Vec<usize>, String> {
        let columns = self.factors.values().chain(self.metrics.values());
        let each = self.each.iter().filter(|column| *column != METRIC);
        columns
            .chain(self.only.keys())
            .chain(each)
            .try_for_each(|column| sheet.check_column(column))?;
        let is_meant = |row: &usize| {
            self.only.iter().all(|(column, text)| sheet.at(*row, column).unwrap_or("") == text)
        };
        let rows: Vec<usize> = (0..sheet.len()).filter(is_meant).collect();
        if rows.is_empty() && !self.only.is_empty() {
            let texts = self.only.iter().map(|(column, text)| format!("{column} = {text:?}"));
            let texts = texts.collect::<Vec<_>>().join(" and ");
            return Err(format!("there is no row with {texts}"));
        }
        Ok(rows)
    }

    fn levels(&self, sheet: &Sheet, row: usize, level: ReadLevel<'_>) -> Result<Levels, String> {
        let line = sheet.line(row);
        let level = |(factor, column): (&String, &String)| {
            let text = sheet.at(row, column).unwrap_or_default();
            let level = level(factor, text);
            let level = level.map_err(|right| format!("line {line}: {text:?} {right}"))?;
            Ok((factor.clone(), level))
        };
        let figure = |(metric, column): (&String, &String)| {
            let text = sheet.at(row, column)?;
            let figure = text.parse().ok().filter(|figure: &f64| figure.is_finite());
            let figure = figure.ok_or_else(|| format!("line {line}: {text:?} is no number"));
            Some(figure.map(|figure| (metric.clone(), figure)))
        };
        Ok(Levels {
            factors: self.factors.iter().map(level).collect::<Result<_, String>>()?,
            figures: self.metrics.iter().filter_map(figure).collect::<Result<_, String>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;

    fn bytes(_: &str, text: &str) -> Result<Level, String> {
        workload::find("message-stream").unwrap().factor("bytes").unwrap().level(text)
    }

    fn about(factor: &str, metric: &str) -> About {
        About {
            name: "there".into(),
            document: "a document".into(),
            file: "book.csv".into(),
            factors: [("bytes".into(), factor.into())].into(),
            metrics: [("rate_bytes_per_s".into(), metric.into())].into(),
            only: BTreeMap::new(),
            rows: Rows::Cells,
            each: Vec::new(),
            derived: Vec::new(),
        }
    }

    fn parse(text: &str, about: About) -> Result<Published, String> {
        let read = Published::read(about, &bytes, &|_| Ok(text.to_owned()));
        read.map_err(|wrong| wrong.what)
    }

    #[test]
    fn figures_are_found_by_the_levels_of_a_cell() {
        let table = parse("size,rate,other\n64,1.5,9\n1000,20,9\n", about("size", "rate"));
        let table = table.unwrap();
        let cell = |bytes| {
            let wait = ("wait".to_owned(), Level::Word("spin".into()));
            Factors::from([("bytes".to_owned(), Level::Number(bytes)), wait])
        };
        assert_eq!(table.figure("rate_bytes_per_s", &cell(1000)), Some(20.0));
        assert_eq!(table.figure("rate_bytes_per_s", &cell(999)), None);
        assert_eq!(table.figure("latency_p50_ns", &cell(1000)), None);
        let curve: Vec<_> = table.curve("rate_bytes_per_s", "bytes").collect();
        assert_eq!(curve, [(&Level::Number(64), 1.5), (&Level::Number(1000), 20.0)]);
    }

    #[test]
    fn cell_is_quoted_or_empty() {
        let table = "run,size,rate\n\"one, the \"\"first\"\"\",64,1.5\ntwo,1000,\n";
        let table = parse(table, about("size", "rate")).unwrap();
        let curve: Vec<_> = table.curve("rate_bytes_per_s", "bytes").collect();
        assert_eq!(curve, [(&Level::Number(64), 1.5)]);
    }

    #[test]
    fn table_that_is_none_is_refused() {
        let refused = |text: &str| parse(text, about("size", "rate")).unwrap_err();
        assert_eq!(
            refused("bytes,rate\n"),
            "book.csv: there is no column \"size\" among bytes, rate"
        );
        let shape = "book.csv: line 3 has 1 cells, the first line 2";
        assert_eq!(refused("size,rate\n64,1\n64\n"), shape);
        assert_eq!(
            refused("size,rate\n64,1,2\n"),
            "book.csv: line 2 has 3 cells, the first line 2"
        );
        for number in ["nan", "inf", "-inf"] {
            let found = refused(&format!("size,rate\n64,{number}\n"));
            assert_eq!(found, format!("book.csv: line 2: {number:?} is no number"));
        }
        assert_eq!(
            refused("size,rate,size\n64,1,2\n"),
            "book.csv: line 1 has the column \"size\" twice: must be each once"
        );
        assert_eq!(refused("size,rate\n64,fast\n"), "book.csv: line 2: \"fast\" is no number");
        assert_eq!(refused("size,rate\n0,1\n"), "book.csv: line 2: \"0\" must be 1 B to 16 MiB");
    }

    #[test]
    fn rows_are_cells_or_trials_and_where_chooses_among_them() {
        let text = "size,rate,day\n64,1,one\n64,5,one\n64,2,one\n64,9,two\n";
        let twice = parse(text, about("size", "rate")).unwrap_err();
        assert!(twice.starts_with("book.csv: line 3 is of the same cell as line 2: "), "{twice}");
        let only = BTreeMap::from([("day".to_owned(), "two".to_owned())]);
        let cell = Factors::from([("bytes".to_owned(), Level::Number(64))]);
        let second = parse(text, About { only: only.clone(), ..about("size", "rate") }).unwrap();
        assert_eq!(
            (second.figure("rate_bytes_per_s", &cell), &*second.rows),
            (Some(9.0), &[3][..])
        );
        let only = BTreeMap::from([("day".to_owned(), "one".to_owned())]);
        let trials = About { only, rows: Rows::Trials, ..about("size", "rate") };
        let trials = parse(text, trials).unwrap();
        assert_eq!(trials.figure("rate_bytes_per_s", &cell), Some(2.0));
        let only = BTreeMap::from([("day".to_owned(), "three".to_owned())]);
        let none = parse(text, About { only, ..about("size", "rate") }).unwrap_err();
        assert_eq!(none, "book.csv: there is no row with day = \"three\"");
    }
}
