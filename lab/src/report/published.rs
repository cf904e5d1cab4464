//! Published tables as they were printed.

mod cells;
mod layout;

pub use cells::{PublishedCell, published_cells, published_csv};

use super::{Block, Report};
use crate::case::{Case, METRIC};
use crate::published::{Derivation, Derived};

/// Every cell of the published tables of cases.
pub fn published(cases: &[Case]) -> Report {
    let mut blocks = Vec::new();
    let (mut tables, mut figures) = (0, 0);
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
            let mut sheets = vec![(String::new(), &table.sheet, table.rows.clone())];
            for derived in &table.derived {
                let Some(sheet) = &derived.sheet else { continue };
                sheets.push((format!("{}:", heading(derived)), sheet, (0..sheet.len()).collect()));
            }
            for (heading, sheet, rows) in sheets {
                let is_there =
                    |column: &&String| *column == METRIC || sheet.head().contains(column);
                let each: Vec<String> = table.each.iter().filter(is_there).cloned().collect();
                let grids = layout::grids(sheet, &rows, &table.keys, &each);
                figures += layout::cells(sheet, &rows, &table.keys);
                if heading.is_empty() {
                    tables += grids.len();
                } else {
                    blocks.push(Block::Text(heading));
                }
                blocks.extend(grids.into_iter().flatten().map(Block::Table));
            }
        }
    }
    blocks.push(Block::Text(format!("{tables} tables with {figures} cells.")));
    Report { blocks }
}

/// What derived figures are: `Ratio to pairs 1`.
fn heading(derived: &Derived) -> String {
    let base =
        derived.base.iter().map(|(column, text)| format!("{} {text}", layout::words(column)));
    let base = base.collect::<Vec<_>>().join(", ");
    match derived.kind {
        Derivation::Ratio => format!("Ratio to {base}"),
        Derivation::Delta => format!("Difference from {base}"),
        Derivation::Relative => format!("Difference as a part of {base}"),
        Derivation::Percent => format!("Difference in percent of {base}"),
    }
}

#[cfg(test)]
mod tests;
