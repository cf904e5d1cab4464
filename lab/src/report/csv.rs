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
    head.extend(["metric", "unit", "median", "min", "max", "interval_least", "interval_most"]);
    head.extend(["spread", "trials", "failed", "representative"]);
    let mut out = csv::Writer::from_writer(Vec::new());
    let mut write = |fields: &[String]| out.write_record(fields).expect("memory takes every line");
    write(&head.iter().map(ToString::to_string).collect::<Vec<String>>());
    for figure in figures(records) {
        let Figure { case, system, run, metric, unit, median, min, max, interval, .. } = figure;
        let mut fields = vec![case, system, run.to_string()];
        let level = |factor: &&str| figure.factors.get(*factor).map(ToString::to_string);
        fields.extend(factors.iter().map(|factor| level(factor).unwrap_or_default()));
        fields.extend([metric, unit]);
        let (least, most) = interval.unzip();
        let numbers = [Some(median), Some(min), Some(max), least, most, figure.spread];
        fields.extend(numbers.map(|number| number.map_or_else(String::new, |it| it.to_string())));
        fields.extend([figure.trials, figure.failed].map(|count| count.to_string()));
        fields.push(figure.representative.to_string());
        write(&fields);
    }
    let bytes = out.into_inner().expect("memory takes every line");
    String::from_utf8(bytes).expect("it was written from strings")
}
