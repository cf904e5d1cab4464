//! Published tables as they were printed, and what they derive from their own figures, computed again.

mod cells;
mod layout;

pub use cells::{PublishedCell, published_cells, published_csv};

use super::{Block, Grid, Report};
use crate::case::{Case, METRIC};
use crate::published::{Agreement, Derivation, Derived, Published, Recomputed, places};

/// How many tables, cells and derived figures there are, and how these agree with the figures that they are
/// computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    tables: usize,
    cells: usize,
    equal: usize,
    rounding: usize,
    differs: usize,
}

/// Every cell of the published tables of cases, and where printed ratios and differences are not what the printed
/// figures give.
pub fn published(cases: &[Case]) -> Report {
    let mut blocks = Vec::new();
    let mut tally = Tally::default();
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
            table_blocks(table, &mut blocks, &mut tally);
        }
    }
    blocks.push(Block::Text(tally.summary()));
    Report { blocks }
}

fn table_blocks(table: &Published, blocks: &mut Vec<Block>, tally: &mut Tally) {
    blocks.push(Block::Text(format!("{}: {}.", table.name, table.document)));
    let grids = layout::grids(&table.sheet, &table.rows, &table.keys, &table.each);
    tally.tables += grids.len();
    tally.cells += layout::cells(&table.sheet, &table.rows, &table.keys);
    blocks.extend(grids.into_iter().flatten().map(Block::Table));
    for derived in &table.derived {
        if let Some(sheet) = &derived.sheet {
            blocks.push(Block::Text(format!("{}:", heading(derived))));
            let rows: Vec<usize> = (0..sheet.len()).collect();
            let each: Vec<String> =
                table.each.iter().filter(|column| has(sheet.head(), column)).cloned().collect();
            tally.cells += layout::cells(sheet, &rows, &table.keys);
            let grids = layout::grids(sheet, &rows, &table.keys, &each);
            blocks.extend(grids.into_iter().flatten().map(Block::Table));
        }
        let found = derived.recompute(&table.sheet, &table.rows);
        let own = Tally::of(&found);
        blocks.push(Block::Text(format!("{}: {}.", heading(derived), own.compared())));
        blocks.extend(differences(table, &found));
        tally.add(own);
    }
}

fn has(names: &[String], name: &str) -> bool {
    name == METRIC || names.iter().any(|own| own == name)
}

/// What derived figures are: `ratio to pairs 1`.
fn heading(derived: &Derived) -> String {
    let base: Vec<String> = derived
        .base
        .iter()
        .map(|(column, text)| format!("{} {text}", layout::words(column)))
        .collect();
    let base = base.join(", ");
    let what = match derived.kind {
        Derivation::Ratio => format!("Ratio to {base}"),
        Derivation::Delta => format!("Difference from {base}"),
        Derivation::Relative => format!("Difference as a part of {base}"),
        Derivation::Percent => format!("Difference in percent of {base}"),
    };
    match (&derived.sheet, derived.columns.as_slice()) {
        (None, [(column, _)]) => format!("{what}, {}", layout::words(column)),
        _ => what,
    }
}

/// The derived figures that are not what the printed figures give, those first that no rounding explains.
fn differences(table: &Published, found: &[Recomputed<'_>]) -> Option<Block> {
    let of = |agrees: Agreement| found.iter().filter(move |figure| figure.agrees == agrees);
    let row = |figure: &Recomputed<'_>| {
        let digits = places(figure.printed) as usize + 1;
        let (least, most) = figure.possible;
        let levels = table.keys.iter().filter_map(|key| figure.sheet.at(figure.row, key));
        vec![
            levels.collect::<Vec<_>>().join(", "),
            layout::words(figure.column),
            if figure.agrees == Agreement::Differs { "differs" } else { "rounding" }.to_owned(),
            figure.sheet.line(figure.row).to_string(),
            figure.printed.to_owned(),
            format!("{:.digits$}", figure.computed),
            format!("{least:.digits$} to {most:.digits$}"),
        ]
    };
    let rows: Vec<Vec<String>> =
        of(Agreement::Differs).chain(of(Agreement::Rounding)).map(row).collect();
    let file = found.first()?.sheet.file().file_name().unwrap_or_default().display();
    let head = ["levels", "figure", "why", "line", "printed", "computed", "possible"];
    (!rows.is_empty()).then(|| {
        Block::Table(Grid {
            title: format!("Differences in {file}"),
            head: head.map(str::to_owned).to_vec(),
            words: 3,
            rows,
            notes: Vec::new(),
        })
    })
}

impl Tally {
    fn of(found: &[Recomputed<'_>]) -> Tally {
        let count = |agrees| found.iter().filter(|figure| figure.agrees == agrees).count();
        Tally {
            equal: count(Agreement::Equal),
            rounding: count(Agreement::Rounding),
            differs: count(Agreement::Differs),
            ..Tally::default()
        }
    }

    fn add(&mut self, other: Tally) {
        self.equal += other.equal;
        self.rounding += other.rounding;
        self.differs += other.differs;
    }

    fn compared(self) -> String {
        let Tally { equal, rounding, differs, .. } = self;
        let all = equal + rounding + differs;
        format!(
            "{all} printed figures computed again: {equal} are equal, {rounding} differ within the rounding of the \
             figures that they are computed from, {differs} differ by more"
        )
    }

    fn summary(self) -> String {
        let Tally { tables, cells, .. } = self;
        format!("{tables} tables with {cells} cells. {}.", self.compared())
    }
}

#[cfg(test)]
mod tests;
