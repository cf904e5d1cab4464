//! How a published table is laid out: a table for each level of some columns.

use super::super::{Grid, grouped};
use crate::case::METRIC;
use crate::published::Sheet;

/// Rows of a sheet as tables: one for each level of the columns `each`. `keys` are the columns that tell rows apart.
pub(super) fn grids(sheet: &Sheet, rows: &[usize], keys: &[String], each: &[String]) -> Vec<Grid> {
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
        grids.extend(sets.iter().map(|columns| grid(sheet, &rows, columns, keys, named.clone())));
    }
    grids
}

fn grid(
    sheet: &Sheet,
    rows: &[usize],
    columns: &[&String],
    keys: &[String],
    title: String,
) -> Grid {
    let text = |row: usize, column: &str| sheet.at(row, column).unwrap_or_default().to_owned();
    // Columns of words, and those that tell rows apart, stand before those of figures: each part of a wide table has them.
    let is_number = |row: &usize, column: &str| text(*row, column).parse::<f64>().is_ok();
    let is_word =
        |column: &&&String| keys.contains(column) || !rows.iter().all(|row| is_number(row, column));
    let count = columns.iter().take_while(is_word).count();
    let head: Vec<String> = columns.iter().map(|column| words(column)).collect();
    let cells = |row: &usize| columns.iter().map(|column| text(*row, column)).collect();
    Grid { title, ..Grid::of(&head, count, rows.iter().map(cells).collect()) }
}

/// The name of a column as words, which a narrow table can break between.
pub(super) fn words(column: &str) -> String {
    column.replace('_', " ")
}
