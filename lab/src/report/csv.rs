//! Results as comma-separated values: a line for each metric of each cell.

use super::figure::{Figure, figures};
use super::series::Series;
use crate::record::Record;

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
    let mut out = line(&head);
    for figure in figures(records) {
        let Figure { case, system, run, metric, median, min, max, .. } = figure;
        let mut fields = vec![case, system, run.to_string()];
        let level = |factor: &&str| figure.factors.get(*factor).map(ToString::to_string);
        fields.extend(factors.iter().map(|factor| level(factor).unwrap_or_default()));
        fields.push(metric);
        fields.extend([median, min, max].map(|number| number.to_string()));
        fields.extend([figure.trials.to_string(), figure.representative.to_string()]);
        out += &line(&fields);
    }
    out
}

fn line(fields: &[impl AsRef<str>]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| quote(field.as_ref())).collect();
    fields.join(",") + "\n"
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
