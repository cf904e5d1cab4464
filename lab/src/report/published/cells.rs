//! Published tables as raw cells, for programs and spreadsheets.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::case::Case;
use crate::published::{Agreement, Derivation, Published, Recomputed, Sheet};

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
    /// How the figure is computed from others, if it is.
    #[serde(flatten)]
    pub recomputed: Option<RecomputedCell>,
}

/// A derived figure, computed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecomputedCell {
    /// How it is derived.
    pub kind: Derivation,
    /// What the printed figures give.
    pub computed: f64,
    /// The least that figures can give which are rounded to the printed ones.
    pub possible_min: f64,
    /// The greatest.
    pub possible_max: f64,
    /// How the printed figure compares with the computed one.
    pub agrees: Agreement,
}

/// Every cell of the published tables of cases.
pub fn published_cells(cases: &[Case]) -> Vec<PublishedCell> {
    let of = |case: &Case| -> Vec<PublishedCell> {
        case.published.iter().flat_map(|table| table_cells(&case.name, table)).collect()
    };
    cases.iter().flat_map(of).collect()
}

fn table_cells(case: &str, table: &Published) -> Vec<PublishedCell> {
    let mut cells = sheet_cells(case, table, &table.sheet, &table.rows);
    for derived in &table.derived {
        if let Some(sheet) = &derived.sheet {
            let rows: Vec<usize> = (0..sheet.len()).collect();
            cells.extend(sheet_cells(case, table, sheet, &rows));
        }
        for found in derived.recompute(&table.sheet, &table.rows) {
            let Recomputed { computed, possible, agrees, .. } = found;
            let (line, column) = (found.sheet.line(found.row), found.column);
            let file = found.sheet.file().display().to_string();
            let is_meant = |cell: &&mut PublishedCell| {
                cell.line == line && cell.column == column && cell.file == file
            };
            if let Some(cell) = cells.iter_mut().find(is_meant) {
                let (possible_min, possible_max) = possible;
                let kind = derived.kind;
                cell.recomputed =
                    Some(RecomputedCell { kind, computed, possible_min, possible_max, agrees });
            }
        }
    }
    cells
}

fn sheet_cells(case: &str, table: &Published, sheet: &Sheet, rows: &[usize]) -> Vec<PublishedCell> {
    let is_key = |column: &String| table.keys.contains(column);
    let mut cells = Vec::new();
    for row in rows {
        let level = |key: &String| Some((key.clone(), sheet.at(*row, key)?.to_owned()));
        let levels: BTreeMap<String, String> = table.keys.iter().filter_map(level).collect();
        for column in sheet.head().iter().filter(|column| !is_key(column)) {
            let Some(printed) = sheet.at(*row, column) else { continue };
            cells.push(PublishedCell {
                case: case.to_owned(),
                published: table.name.clone(),
                document: table.document.clone(),
                file: sheet.file().display().to_string(),
                line: sheet.line(*row),
                levels: levels.clone(),
                column: column.clone(),
                printed: printed.to_owned(),
                recomputed: None,
            });
        }
    }
    cells
}

/// The cells as comma-separated values.
pub fn published_csv(cases: &[Case]) -> String {
    let head = [
        "case",
        "published",
        "document",
        "file",
        "line",
        "levels",
        "column",
        "printed",
        "kind",
        "computed",
        "possible_min",
        "possible_max",
        "agrees",
    ];
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(head).expect("memory takes every line");
    for cell in published_cells(cases) {
        let levels: Vec<String> =
            cell.levels.iter().map(|(column, text)| format!("{column}={text}")).collect();
        let mut fields = vec![
            cell.case,
            cell.published,
            cell.document,
            cell.file,
            cell.line.to_string(),
            levels.join(" "),
            cell.column,
            cell.printed,
        ];
        match cell.recomputed {
            None => fields.extend(std::iter::repeat_n(String::new(), 5)),
            Some(found) => fields.extend([
                word(&found.kind),
                found.computed.to_string(),
                found.possible_min.to_string(),
                found.possible_max.to_string(),
                word(&found.agrees),
            ]),
        }
        out.write_record(fields).expect("memory takes every line");
    }
    let bytes = out.into_inner().expect("memory takes every line");
    String::from_utf8(bytes).expect("it was written from strings")
}

/// The name that an enum has in JSON.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).expect("it is a word");
    value.as_str().unwrap_or_default().to_owned()
}
