//! Published tables: what others have measured, to stand beside what is measured here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use crate::factor::{Factor, Factors, Level, matches};

/// A table that was published.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// What its figures are called in a report.
    pub name: String,
    /// Where it stands.
    pub document: String,
    /// The file that it lies in, as the case names it.
    pub file: PathBuf,
    /// The table, as it lies in its file.
    pub text: Arc<str>,
    /// The columns that the document derives from others.
    pub derived: Vec<Derived>,
    head: Vec<String>,
    cells: Vec<Vec<String>>,
    rows: Vec<Row>,
}

/// A column that the document derives from another one, by comparing rows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Derived {
    /// The column with the printed result.
    pub column: String,
    /// The column that it is computed from.
    pub of: String,
    /// How.
    pub kind: Derivation,
    /// The row that it is against: these columns have these texts, those in `same` the texts of the own row.
    pub base: BTreeMap<String, String>,
    /// The columns in which the base has what the own row has.
    #[serde(default)]
    pub same: Vec<String>,
}

/// How a document compares two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Derivation {
    /// Own figure divided by the base's.
    Ratio,
    /// Own figure minus the base's.
    Delta,
    /// The difference in percent of the base's figure.
    Percent,
}

#[derive(Clone, Debug, PartialEq)]
struct Row {
    factors: Factors,
    figures: BTreeMap<String, f64>,
}

/// Which columns of a table are what.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// Factors, with the columns that hold their levels.
    pub(crate) factors: Vec<(&'static Factor, String)>,
    /// Metrics, with the columns that hold them, in the units that the metrics' names end in.
    pub(crate) metrics: Vec<(String, String)>,
    /// The columns that the document derives from others.
    pub(crate) derived: Vec<Derived>,
}

impl Published {
    /// Takes the text of a table apart: lines of comma-separated values, the first with the names of the
    /// columns. An empty cell is one that the document leaves empty.
    ///
    /// # Errors
    /// What is wrong with the table, and in which line.
    pub(crate) fn parse(
        (name, document, file): (String, String, PathBuf),
        text: &str,
        columns: &Columns,
    ) -> Result<Published, String> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
        let head = reader.headers().map_err(|error| error.to_string())?.clone();
        let place = |column: &String| {
            let place = head.iter().position(|name| name == column);
            let names = || head.iter().collect::<Vec<_>>().join(", ");
            place.ok_or_else(|| format!("there is no column {column:?} among {}", names()))
        };
        let factors = columns.factors.iter().map(|(factor, column)| Ok((*factor, place(column)?)));
        let factors = factors.collect::<Result<Vec<(&Factor, usize)>, String>>()?;
        let metrics = columns.metrics.iter().map(|(metric, column)| Ok((metric, place(column)?)));
        let metrics = metrics.collect::<Result<Vec<(&String, usize)>, String>>()?;
        for derived in &columns.derived {
            let names = [&derived.column, &derived.of].into_iter();
            names
                .chain(derived.base.keys())
                .chain(&derived.same)
                .try_for_each(|name| place(name).map(drop))?;
        }
        let mut rows = Vec::new();
        let mut cells = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| error.to_string())?;
            let line = record.position().map_or(0, csv::Position::line);
            if record.len() != head.len() {
                let (found, wanted) = (record.len(), head.len());
                return Err(format!("line {line} has {found} cells, the first line {wanted}"));
            }
            cells.push(record.iter().map(str::to_owned).collect());
            let level = |(factor, place): &(&'static Factor, usize)| {
                let text = &record[*place];
                let level = factor.level(text);
                let level = level.map_err(|right| format!("line {line}: {text:?} {right}"))?;
                Ok((factor.name.to_owned(), level))
            };
            let figure = |(metric, place): &(&String, usize)| {
                let text = &record[*place];
                let figure = text.parse();
                let figure = figure.map_err(|_| format!("line {line}: {text:?} is no number"))?;
                Ok(((*metric).clone(), figure))
            };
            let has_figure = |(_, place): &&(&String, usize)| !record[*place].is_empty();
            rows.push(Row {
                factors: factors.iter().map(level).collect::<Result<_, String>>()?,
                figures: metrics
                    .iter()
                    .filter(has_figure)
                    .map(figure)
                    .collect::<Result<_, String>>()?,
            });
        }
        let head = head.iter().map(str::to_owned).collect();
        let derived = columns.derived.clone();
        Ok(Published { name, document, file, text: text.into(), derived, head, cells, rows })
    }

    /// The names of all columns.
    pub fn head(&self) -> &[String] {
        &self.head
    }

    /// All cells as they were printed, by row.
    pub fn cells(&self) -> &[Vec<String>] {
        &self.cells
    }

    /// What is printed in a row under `column`; none if the cell is empty.
    pub fn text_at(&self, row: usize, column: &str) -> Option<&str> {
        let place = self.head.iter().position(|name| name == column)?;
        Some(self.cells.get(row)?.get(place)?.as_str()).filter(|text| !text.is_empty())
    }

    /// The row that a derived cell of `row` is against.
    pub fn base_of(&self, derived: &Derived, row: usize) -> Option<usize> {
        let is_base = |other: &usize| {
            derived
                .base
                .iter()
                .all(|(column, text)| self.text_at(*other, column) == Some(text.as_str()))
                && derived
                    .same
                    .iter()
                    .all(|column| self.text_at(*other, column) == self.text_at(row, column))
        };
        (0..self.cells.len()).find(is_base)
    }

    /// Whether something was published of a metric.
    pub fn knows(&self, metric: &str) -> bool {
        self.rows.iter().any(|row| row.figures.contains_key(metric))
    }

    /// What was published of a metric for a cell, if something was.
    pub fn figure(&self, metric: &str, cell: &Factors) -> Option<f64> {
        let row = self.rows.iter().find(|row| matches(cell, &row.factors))?;
        row.figures.get(metric).copied()
    }

    /// What was published of a metric, along a factor: level and figure of each line.
    pub fn curve<'a>(
        &'a self,
        metric: &'a str,
        factor: &'a str,
    ) -> impl Iterator<Item = (&'a Level, f64)> {
        self.rows.iter().filter_map(move |row| {
            Some((row.factors.get(factor)?, row.figures.get(metric).copied()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;

    fn columns(factor: &str, metric: &str) -> Columns {
        let bytes = workload::find("message-stream").unwrap().factor("bytes").unwrap();
        Columns {
            factors: vec![(bytes, factor.into())],
            metrics: vec![("rate_bytes_per_s".into(), metric.into())],
            derived: Vec::new(),
        }
    }

    fn parse(text: &str, columns: &Columns) -> Result<Published, String> {
        Published::parse(("there".into(), "a document".into(), "book.csv".into()), text, columns)
    }

    #[test]
    fn figures_are_found_by_the_levels_of_a_cell() {
        let table = parse("size,rate,other\n64,1.5,9\n1000,20,9\n", &columns("size", "rate"));
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
        let table = parse(table, &columns("size", "rate")).unwrap();
        let curve: Vec<_> = table.curve("rate_bytes_per_s", "bytes").collect();
        assert_eq!(curve, [(&Level::Number(64), 1.5)]);
    }

    #[test]
    fn table_that_is_none_is_refused() {
        let refused = |text: &str| parse(text, &columns("size", "rate")).unwrap_err();
        assert_eq!(refused("bytes,rate\n"), "there is no column \"size\" among bytes, rate");
        let shape = "line 3 has 1 cells, the first line 2";
        assert_eq!(refused("size,rate\n64,1\n64\n"), shape);
        assert_eq!(refused("size,rate\n64,1,2\n"), "line 2 has 3 cells, the first line 2");
        assert_eq!(refused("size,rate\n64,fast\n"), "line 2: \"fast\" is no number");
        assert_eq!(refused("size,rate\n0,1\n"), "line 2: \"0\" must be 1 B to 16 MiB");
    }
}
