//! How a published table is laid out: a table for each level of some columns, and where these are too wide for a
//! page, as documents print them, with a column for each row.

use super::super::{Grid, WIDTH, grouped};
use crate::case::METRIC;
use crate::published::Sheet;

/// What stands between two columns.
const GAP: usize = 3;

/// Rows of a sheet as tables: one for each level of the columns `each`. A table that is too wide has several parts.
/// `keys` are the columns that tell rows apart.
pub(super) fn grids(
    sheet: &Sheet,
    rows: &[usize],
    keys: &[String],
    each: &[String],
) -> Vec<Vec<Grid>> {
    let is_of_metrics = each.iter().any(|column| column == METRIC);
    let each: Vec<&String> = each.iter().filter(|column| sheet.head().contains(column)).collect();
    let columns: Vec<&String> = sheet.head().iter().filter(|name| !each.contains(name)).collect();
    let sets: Vec<Vec<&String>> = if is_of_metrics {
        let (own, figures): (Vec<&String>, Vec<&String>) =
            columns.iter().partition(|column| keys.contains(column));
        figures.into_iter().map(|figure| [&own[..], &[figure]].concat()).collect()
    } else {
        vec![columns]
    };
    let level = |row: usize, column: &str| sheet.at(row, column).unwrap_or_default();
    let levels =
        |row: usize| -> Vec<&str> { each.iter().map(|column| level(row, column)).collect() };
    let mut grids = Vec::new();
    for (levels, rows) in grouped(rows.iter().map(|row| (levels(*row), *row))) {
        let named =
            each.iter().zip(levels).map(|(column, text)| format!("{} {text}", words(column)));
        let named = named.collect::<Vec<_>>().join(", ");
        grids.extend(sets.iter().map(|columns| grid(sheet, &rows, columns, named.clone())));
    }
    grids
}

fn grid(sheet: &Sheet, rows: &[usize], columns: &[&String], title: String) -> Vec<Grid> {
    let text = |row: usize, column: &str| sheet.at(row, column).unwrap_or_default().to_owned();
    let longest = |text: &str| text.split(' ').map(str::len).max().unwrap_or(0);
    let cell = |row: &usize, column: &&String| text(*row, column).len();
    let of_column = |column: &&String| {
        let widest = rows.iter().map(|row| cell(row, column)).max().unwrap_or(0);
        GAP + widest.max(longest(&words(column)))
    };
    if columns.iter().map(of_column).sum::<usize>() > usize::from(WIDTH) {
        let names = columns.iter().map(|column| GAP + column.len()).max().unwrap_or(0);
        let widest =
            rows.iter().flat_map(|row| columns.iter().map(move |column| cell(row, column)));
        let fit =
            (usize::from(WIDTH).saturating_sub(names) / (GAP + widest.max().unwrap_or(0))).max(1);
        // As many rows in each part.
        let parts = rows.len().div_ceil(fit).max(1);
        let rows_of_part = rows.len().div_ceil(parts).max(1);
        let part = |(at, rows): (usize, &[usize])| {
            let line = |column: &&String| {
                let cells = rows.iter().map(|row| text(*row, column));
                std::iter::once(words(column)).chain(cells).collect::<Vec<String>>()
            };
            let mut lines = columns.iter().map(line);
            let head = lines.next().unwrap_or_default();
            let title = if at == 0 { title.clone() } else { String::new() };
            Grid { title, ..Grid::of(&head, 1, lines.collect()) }
        };
        return rows.chunks(rows_of_part).enumerate().map(part).collect();
    }
    // Columns of words stand before those of figures.
    let is_word =
        |column: &&String| rows.iter().any(|row| text(*row, column).parse::<f64>().is_err());
    let count = columns.iter().take_while(|column| is_word(column)).count();
    let head: Vec<String> = columns.iter().map(|column| words(column)).collect();
    let cells = |row: &usize| columns.iter().map(|column| text(*row, column)).collect();
    vec![Grid { title, ..Grid::of(&head, count, rows.iter().map(cells).collect()) }]
}

/// The name of a column as words, which a narrow table can break between.
pub(super) fn words(column: &str) -> String {
    column.replace('_', " ")
}
