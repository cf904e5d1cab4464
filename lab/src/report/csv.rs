//! Results as comma-separated values: a line for each metric of each cell.

use super::distinct;
use super::figure::{Figure, figures};
use super::series::Series;
use crate::factor::SYSTEM;
use crate::record::Record;
use crate::statistics::Summary;

/// For spreadsheets and programs: raw numbers, in the units that the metrics' names end in. Of a case that
/// was run several times, the latest run counts.
pub fn csv(records: &[Record]) -> String {
    let all = Series::all(records);
    // The second column has the system.
    let factors = all.iter().flat_map(Series::order).filter(|factor| *factor != SYSTEM.name);
    let factors: Vec<&str> = distinct(factors);
    let head = [
        &["case", "system", "run"],
        &factors[..],
        &["metric", "unit", "median", "min", "max", "interval_least", "interval_most"],
        &["spread", "trials", "failed", "representative"],
    ];
    let row = |figure: Figure| {
        let Figure { case, system, run, metric, unit, summary, spread, failed, .. } = figure;
        let Summary { median, min, max, interval, trials, representative, .. } = summary;
        let level = |factor: &&str| figure.factors.get(*factor).map(ToString::to_string);
        let levels = factors.iter().map(|factor| level(factor).unwrap_or_default());
        let (least, most) = interval.unzip();
        let numbers = [Some(median), Some(min), Some(max), least, most, spread];
        let numbers = numbers.map(|number| number.map_or_else(String::new, |it| it.to_string()));
        let counts = [trials, failed, representative as usize];
        let mut fields = vec![case, system, run.to_string()];
        fields.extend(levels.chain([metric, unit]).chain(numbers));
        fields.extend(counts.map(|count| count.to_string()));
        fields
    };
    written(&head.concat(), figures(records).into_iter().map(row))
}

/// Lines of comma-separated values below a line of names.
pub(super) fn written(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(head).expect("memory takes every line");
    rows.for_each(|row| out.write_record(row).expect("memory takes every line"));
    let bytes = out.into_inner().expect("memory takes every line");
    String::from_utf8(bytes).expect("it was written from strings")
}
