//! A published table as it lies in its file: comma-separated values, the first line with the names of the columns.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file of a published table holds. An empty field is one that the document leaves empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    file: PathBuf,
    text: Arc<str>,
    head: Vec<String>,
    rows: Vec<Row>,
}

/// A row of a sheet.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    line: u64,
    fields: Vec<String>,
}

impl Sheet {
    /// Takes the text of a file apart.
    ///
    /// # Errors
    /// What is wrong with the text, and in which line.
    pub fn parse(file: &Path, text: &str) -> Result<Sheet, String> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
        let head: Vec<String> =
            reader.headers().map_err(|why| why.to_string())?.iter().map(str::to_owned).collect();
        let twice = |at: &usize| head[..*at].contains(&head[*at]);
        if let Some(at) = (0..head.len()).find(twice) {
            return Err(format!("line 1 has the column {:?} twice: must be each once", head[at]));
        }
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|why| why.to_string())?;
            let line = record.position().map_or(0, csv::Position::line);
            if record.len() != head.len() {
                let (found, wanted) = (record.len(), head.len());
                return Err(format!("line {line} has {found} cells, the first line {wanted}"));
            }
            rows.push(Row { line, fields: record.iter().map(str::to_owned).collect() });
        }
        Ok(Sheet { file: file.to_owned(), text: text.into(), head, rows })
    }

    /// The file, as the case names it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names of all columns.
    pub fn head(&self) -> &[String] {
        &self.head
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The line of the file in which row `row` stands, from 1.
    pub fn line(&self, row: usize) -> u64 {
        self.rows[row].line
    }

    /// What is printed in a row under `column`; none if the field is empty, or if there is no such row or column.
    pub fn at(&self, row: usize, column: &str) -> Option<&str> {
        let place = self.head.iter().position(|name| name == column)?;
        Some(self.rows.get(row)?.fields[place].as_str()).filter(|text| !text.is_empty())
    }

    /// Checks that there is a column of this name.
    ///
    /// # Errors
    /// The columns that there are.
    pub fn check_column(&self, column: &str) -> Result<(), String> {
        let is_there = self.head.iter().any(|name| name == column);
        let missing = || format!("there is no column {column:?} among {}", self.head.join(", "));
        is_there.then_some(()).ok_or_else(missing)
    }
}
