//! The ratios and differences that the documents print, computed again from the figures that they print: which do not
//! follow from them. `published/README.md` names these.

use lab::library;
use lab::published::{Derivation, Derived, Sheet};

/// Printed figures that no figures give which are rounded to the printed ones: file, line, printed.
const DIFFER: [(&str, u64, &str); 8] = [
    ("linux_line_driver_costs_to_cms.csv", 3, "1.770"),
    ("device_mp_streaming_percent.csv", 6, "26.75"),
    ("device_mp_crr_percent.csv", 3, "11.53"),
    ("device_mp_crr_percent.csv", 17, "10.94"),
    ("inbound_tcpip_averages.csv", 6, "0.00"),
    ("inbound_vtam_averages.csv", 2, "0.00"),
    ("inbound_vtam_averages.csv", 3, "0.11"),
    ("inbound_vtam_averages.csv", 4, "0.00"),
];

#[test]
fn printed_ratios_and_differences_follow_from_printed_figures_but_for_eight() {
    let mut found = Vec::new();
    let mut count = 0;
    for case in library::published(&[]).unwrap() {
        for table in &case.published {
            for derived in &table.derived {
                let sheet = derived.sheet.as_ref().unwrap_or(&table.sheet);
                let own_rows = rows_of(derived, &table.sheet, &table.rows);
                if derived.sheet.is_some() {
                    assert_eq!(own_rows.len(), sheet.len(), "{}", sheet.file().display());
                }
                for (row, own, base) in own_rows {
                    let columns = match (&derived.column, &derived.of) {
                        (Some(column), Some(of)) => vec![(column, of)],
                        _ => sheet.head().iter().map(|column| (column, column)).collect(),
                    };
                    for (column, of) in columns {
                        if derived.keys().any(|key| key == column) {
                            continue;
                        }
                        let at = |sheet: &Sheet, row| sheet.at(row, column).map(str::to_owned);
                        let Some(printed) = at(sheet, row) else { continue };
                        let of = |row| table.sheet.at(row, of).map(number);
                        let (Some(one), Some(other)) = (of(own), of(base)) else { continue };
                        count += 1;
                        if !follows(derived.kind, number(&printed), one, other) {
                            let file = sheet.file().file_name().unwrap().display().to_string();
                            found.push((file, sheet.line(row), printed));
                        }
                    }
                }
            }
        }
    }
    assert_eq!(count, 528);
    let found: Vec<(&str, u64, &str)> = found
        .iter()
        .map(|(file, line, printed)| (file.as_str(), *line, printed.as_str()))
        .collect();
    assert_eq!(found, DIFFER);
}

/// The rows with derived figures, each with the row of the table that they belong to and with the row that this is
/// compared with, of those of the table that count.
fn rows_of(derived: &Derived, own: &Sheet, rows: &[usize]) -> Vec<(usize, usize, usize)> {
    let sheet = derived.sheet.as_ref().unwrap_or(own);
    let mut found = Vec::new();
    for row in 0..sheet.len() {
        let is_own =
            |other: &usize| derived.keys().all(|key| own.at(*other, key) == sheet.at(row, key));
        let own_row = match derived.sheet {
            Some(_) => (0..own.len()).find(is_own),
            None => Some(row),
        };
        let Some(own_row) = own_row.filter(|row| rows.contains(row)) else { continue };
        let is_base = |other: &usize| {
            derived.base.iter().all(|(key, text)| own.at(*other, key) == Some(text))
                && derived.same.iter().all(|key| own.at(*other, key) == own.at(own_row, key))
        };
        found.extend((0..own.len()).find(is_base).map(|base| (row, own_row, base)));
    }
    found
}

/// A printed number, and half of a unit of its last digit.
fn number(text: impl AsRef<str>) -> (f64, f64) {
    let text = text.as_ref();
    let number = text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"));
    let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
    (number, 0.5 * 10f64.powi(-(digits as i32)))
}

/// Whether two figures that are rounded to those printed can give one that is rounded to that printed.
fn follows(kind: Derivation, printed: (f64, f64), own: (f64, f64), base: (f64, f64)) -> bool {
    let of = |own: f64, base: f64| match kind {
        Derivation::Ratio => own / base,
        Derivation::Delta => own - base,
        Derivation::Relative => (own - base) / base,
        Derivation::Percent => (own - base) / base * 100.0,
    };
    let ends = |(figure, half): (f64, f64)| [figure - half, figure + half];
    let given = ends(own).map(|own| ends(base).map(|base| of(own, base))).concat();
    let (least, most) = (
        given.iter().copied().fold(f64::INFINITY, f64::min),
        given.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    );
    // A part in a thousand million, for what binary numbers lose of decimal ones.
    let half = printed.1 * (1.0 + 1e-9) + printed.0.abs() * 1e-12;
    least <= printed.0 + half && printed.0 - half <= most
}
