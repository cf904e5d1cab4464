//! Published tables as raw cells, for programs and spreadsheets.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sheets;
use crate::case::Case;
use crate::published::Published;
use crate::report::csv::written;

/// A cell of a published table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedCell {
    /// The case or the draft.
    pub case: String,
    /// The published table, by the name that the case has for it.
    pub published: String,
    /// Where the table stands.
    pub document: String,
    /// The file that the cell lies in.
    pub file: String,
    /// Its line there.
    pub line: u64,
    /// What the columns say that tell rows apart.
    pub levels: BTreeMap<String, String>,
    /// The column of the cell.
    pub column: String,
    /// What is printed.
    pub printed: String,
}

/// Every cell of the published tables of cases.
pub fn published_cells(cases: &[Case]) -> Vec<PublishedCell> {
    let tables =
        cases.iter().flat_map(|case| case.published.iter().map(move |table| (case, table)));
    tables.flat_map(|(case, table)| table_cells(&case.name, table)).collect()
}

fn table_cells(case: &str, table: &Published) -> Vec<PublishedCell> {
    let is_key = |column: &String| table.keys.contains(column);
    let mut cells = Vec::new();
    for (sheet, row) in
        sheets(table).flat_map(|(sheet, rows, _)| rows.into_iter().map(move |row| (sheet, row)))
    {
        let level = |key: &String| Some((key.clone(), sheet.at(row, key)?.to_owned()));
        let levels: BTreeMap<String, String> = table.keys.iter().filter_map(level).collect();
        for column in sheet.head().iter().filter(|column| !is_key(column)) {
            let Some(printed) = sheet.at(row, column) else { continue };
            cells.push(PublishedCell {
                case: case.to_owned(),
                published: table.name.clone(),
                document: table.document.clone(),
                file: sheet.file().display().to_string(),
                line: sheet.line(row),
                levels: levels.clone(),
                column: column.clone(),
                printed: printed.to_owned(),
            });
        }
    }
    cells
}

/// The cells as comma-separated values.
pub fn published_csv(cases: &[Case]) -> String {
    let head = ["case", "published", "document", "file", "line", "levels", "column", "printed"];
    let row = |cell: PublishedCell| {
        let PublishedCell { case, published, document, file, line, levels, column, printed } = cell;
        let levels = levels.iter().map(|(column, text)| format!("{column}={text}"));
        let levels = levels.collect::<Vec<_>>().join(" ");
        [case, published, document, file, line.to_string(), levels, column, printed].to_vec()
    };
    written(&head, published_cells(cases).into_iter().map(row))
}
