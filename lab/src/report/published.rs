//! Published tables as they were printed, and what they derive from their own figures, computed again.

use super::{Block, Grid, Report};
use crate::case::Case;
use crate::published::{Derivation, Derived, Published};

/// Every cell of the published tables of a case, and where printed ratios and differences are not what the
/// printed figures give.
pub fn published(case: &Case) -> Report {
    let mut blocks = vec![Block::Heading(case.name.clone())];
    if case.published.is_empty() {
        blocks.push(Block::Text("The case names no published table.".into()));
    }
    for table in &case.published {
        blocks.push(Block::Text(format!("{}: {}.", table.name, table.document)));
        let (head, rows) = (table.head().to_vec(), table.cells().to_vec());
        let notes = table.derived.iter().map(|derived| compared(table, derived)).collect();
        // Level columns are words, all others figures.
        let is_word = |column: usize| rows.iter().any(|row| row[column].parse::<f64>().is_err());
        let words = (0..head.len()).take_while(|column| is_word(*column)).count();
        blocks.push(Block::Table(Grid { title: String::new(), head, words, rows, notes }));
    }
    Report { blocks }
}

/// A sentence about one derived column: how many of its cells differ from what its figures give, and which.
fn compared(table: &Published, derived: &Derived) -> String {
    let mut cells = 0;
    let mut differences = Vec::new();
    for row in 0..table.cells().len() {
        let (Some(printed), Some(computed)) =
            (table.text_at(row, &derived.column), computed(table, derived, row))
        else {
            continue;
        };
        cells += 1;
        let places = printed.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let again = format!("{computed:.places$}");
        if again.parse::<f64>() != printed.parse::<f64>() {
            differences.push(format!("line {}: printed {printed}, computed {again}", row + 2));
        }
    }
    let Derived { column, of, .. } = derived;
    match differences.len() {
        0 => format!("{column}: all {cells} printed figures are what {of} gives."),
        count => format!(
            "{column}: {count} of {cells} printed figures differ from what {of} gives: {}.",
            differences.join("; ")
        ),
    }
}

/// What the printed figures give for a cell; none if one of them is missing, or if the row is the base itself
/// and a base has no such cell.
fn computed(table: &Published, derived: &Derived, row: usize) -> Option<f64> {
    let number = |row: usize| table.text_at(row, &derived.of)?.parse::<f64>().ok();
    let base = number(table.base_of(derived, row)?)?;
    let own = number(row)?;
    Some(derive(derived.kind, own, base))
}

/// A figure derived from two others.
pub(super) fn derive(kind: Derivation, own: f64, base: f64) -> f64 {
    match kind {
        Derivation::Ratio => own / base,
        Derivation::Delta => own - base,
        Derivation::Percent => (own - base) / base * 100.0,
    }
}

#[cfg(test)]
mod tests {
    use host::config::Source;

    use super::*;
    use crate::report::markdown;

    const CASE: &str = r#"name = "there"
asks = "?"
workload = "message-request"
trials = 1
seconds = 1
warm_up_seconds = 0
[[published]]
name = "z"
document = "A Book"
file = "a.csv"
factors = { bytes = "size" }
metrics = { rate_mib_per_s = "rate" }
derived = [
    { column = "gain", of = "rate", kind = "percent", base = { mode = "old" }, same = ["size"] },
]
"#;

    const TABLE: &str =
        "mode,size,rate,gain\nold,1,10.0,\nnew,1,15.0,50.00\n\"old\",64,40.0,\nnew,64,44.0,10.50\n";

    #[test]
    fn every_printed_cell_is_shown_and_derived_ones_are_computed_again() {
        let case = Case::parse(&Source::of("c.toml", CASE), &|_| Ok(TABLE.into())).unwrap();
        assert_eq!(
            markdown(&published(&case)),
            "## there\n\nz: A Book.\n\n\
             | mode | size | rate | gain |\n| --- | --- | --- | --- |\n\
             | old | 1 | 10.0 |  |\n| new | 1 | 15.0 | 50.00 |\n\
             | old | 64 | 40.0 |  |\n| new | 64 | 44.0 | 10.50 |\n\n\
             gain: 1 of 2 printed figures differ from what rate gives: line 5: printed 10.50, computed 10.00.\n\n"
        );
    }

    #[test]
    fn derived_column_must_be_there() {
        let text = CASE.replace("\"gain\"", "\"loss\"");
        let error = Case::parse(&Source::of("c.toml", &text), &|_| Ok(TABLE.into())).unwrap_err();
        let start = "c.toml:8: a.csv: there is no column \"loss\" among mode, size, rate, gain: ";
        assert!(error.to_string().starts_with(start), "{error}");
    }
}
