//! Published tables as they were printed.

mod cells;
mod layout;

pub use cells::{PublishedCell, published_cells, published_csv};

use super::{Block, Report};
use crate::case::Case;
use crate::published::{Derivation, Derived, Published, Sheet};

/// Every cell of the published tables of cases.
pub fn published(cases: &[Case]) -> Report {
    let mut blocks = Vec::new();
    let mut tables = 0;
    for case in cases {
        blocks.push(Block::Heading(case.name.clone()));
        if case.workload.is_planned() {
            let missing = case.workload.name;
            blocks.push(Block::Text(format!("A draft. Workload not built yet: {missing}.")));
        }
        if case.published.is_empty() {
            let text = format!("{} names no published table.", case.name);
            blocks.push(Block::Text(text));
        }
        for table in &case.published {
            blocks.push(Block::Text(format!("{}: {}.", table.name, table.document)));
            for (sheet, rows, derived) in sheets(table) {
                let grids = layout::grids(sheet, &rows, &table.keys, &table.each);
                match derived {
                    None => tables += grids.len(),
                    Some(derived) => blocks.push(Block::Text(format!("{}:", heading(derived)))),
                }
                blocks.extend(grids.into_iter().map(Block::Table));
            }
        }
    }
    let figures = published_cells(cases).len();
    blocks.push(Block::Text(format!("{tables} tables with {figures} cells.")));
    Report { blocks }
}

/// The sheet of a table and those derived from it, each with its rows that count.
fn sheets(table: &Published) -> impl Iterator<Item = (&Sheet, Vec<usize>, Option<&Derived>)> {
    let derived = table.derived.iter().filter_map(|derived| {
        let sheet = derived.sheet.as_ref()?;
        Some((sheet, (0..sheet.len()).collect(), Some(derived)))
    });
    [(&table.sheet, table.rows.clone(), None)].into_iter().chain(derived)
}

/// What derived figures are: `Ratio to pairs 1`.
fn heading(derived: &Derived) -> String {
    let level = |(column, text): (&String, &String)| format!("{} {text}", layout::words(column));
    let base = derived.base.iter().map(level).collect::<Vec<_>>().join(", ");
    match derived.kind {
        Derivation::Ratio => format!("Ratio to {base}"),
        Derivation::Delta => format!("Difference from {base}"),
        Derivation::Relative => format!("Difference as a part of {base}"),
        Derivation::Percent => format!("Difference in percent of {base}"),
    }
}

#[cfg(test)]
mod tests;
