//! Results as comma-separated values: a line for each metric of each cell.

use super::figure::{Figure, figures};
use super::series::Series;
use crate::factor::SYSTEM;
use crate::record::Record;

/// For spreadsheets and programs: raw numbers, in the units that the metrics' names end in. Of a case that
/// was run several times, the latest run counts.
pub fn csv(records: &[Record]) -> String {
    let all = Series::all(records);
    let mut factors: Vec<&str> = all.iter().flat_map(Series::order).collect();
    // The second column has the system.
    factors.retain(|factor| *factor != SYSTEM.name);
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
    let mut write = |fields: &[String]| out.write_record(fields).expect("memory takes every line");
    write(&head.iter().map(ToString::to_string).collect::<Vec<String>>());
    for figure in figures(records) {
        let Figure { case, system, run, metric, median, min, max, .. } = figure;
        let mut fields = vec![case, system, run.to_string()];
        let level = |factor: &&str| figure.factors.get(*factor).map(ToString::to_string);
        fields.extend(factors.iter().map(|factor| level(factor).unwrap_or_default()));
        fields.push(metric);
        fields.extend([median, min, max].map(|number| number.to_string()));
        fields.extend([figure.trials.to_string(), figure.representative.to_string()]);
        write(&fields);
    }
    let bytes = out.into_inner().expect("memory takes every line");
    String::from_utf8(bytes).expect("it was written from strings")
}
