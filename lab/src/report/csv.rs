//! Results as comma-separated values: a line for each metric of each cell.

use super::series::Series;
use crate::record::Record;
use crate::statistics::Summary;

/// For spreadsheets and programs: raw numbers, in the units that the metrics' names end in. Of a case that
/// was run several times, the latest run counts.
pub fn csv(records: &[Record]) -> String {
    let all = Series::all(records);
    let mut factors: Vec<&str> = all.iter().flat_map(Series::order).collect();
    let mut seen = Vec::new();
    factors.retain(|factor| {
        let is_new = !seen.contains(factor);
        seen.push(factor);
        is_new
    });
    let mut head = vec!["case", "system", "run"];
    head.extend(&factors);
    head.extend(["metric", "median", "min", "max", "trials", "representative"]);
    let mut out = csv::Writer::from_writer(Vec::new());
    let mut write = |fields: &[&str]| out.write_record(fields).expect("memory takes every line");
    write(&head);
    for series in &all {
        let first = series.records[0];
        for cell in series.cells() {
            for metric in series.metrics() {
                let Some(summary) = Summary::of(&series.samples(cell, metric)) else { continue };
                let mut fields =
                    vec![series.name.to_owned(), first.system.clone(), first.run.to_string()];
                let level = |factor: &&str| cell.get(*factor).map(ToString::to_string);
                fields.extend(factors.iter().map(|factor| level(factor).unwrap_or_default()));
                fields.push(metric.to_owned());
                fields.extend([summary.median, summary.min, summary.max].map(|n| n.to_string()));
                fields.extend([summary.trials.to_string(), summary.representative.to_string()]);
                write(&fields.iter().map(String::as_str).collect::<Vec<&str>>());
            }
        }
    }
    let bytes = out.into_inner().expect("memory takes every line");
    String::from_utf8(bytes).expect("it was written from strings")
}
