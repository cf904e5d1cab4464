//! Published tables: what others have measured, to stand beside what is measured here.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::factor::{Factor, Factors, Level, matches};

/// A table that was published.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// What its figures are called in a report.
    pub name: String,
    /// Where it stands.
    pub document: String,
    /// The table, as it lies in its file.
    pub text: Arc<str>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq)]
struct Row {
    factors: Factors,
    figures: BTreeMap<String, f64>,
}

/// Which columns of a table are what.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// Factors, with the columns that hold their levels.
    pub(crate) factors: Vec<(&'static Factor, String)>,
    /// Metrics, with the columns that hold them, in the units that the metrics' names end in.
    pub(crate) metrics: Vec<(String, String)>,
}

impl Published {
    /// Takes the text of a table apart: lines of comma-separated values, the first with the names of the
    /// columns.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(
        (name, document): (String, String),
        text: &str,
        columns: &Columns,
    ) -> Result<Published, String> {
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let place = |column: &String| {
            let place = head.iter().position(|name| name == column);
            place.ok_or_else(|| format!("there is no column {column:?} among {}", head.join(", ")))
        };
        let factors = columns.factors.iter().map(|(factor, column)| Ok((*factor, place(column)?)));
        let factors = factors.collect::<Result<Vec<(&Factor, usize)>, String>>()?;
        let metrics = columns.metrics.iter().map(|(metric, column)| Ok((metric, place(column)?)));
        let metrics = metrics.collect::<Result<Vec<(&String, usize)>, String>>()?;
        let mut rows = Vec::new();
        for (number, line) in (2..).zip(lines) {
            let fields: Vec<&str> = line.split(',').collect();
            let field = |place: usize| {
                fields.get(place).copied().ok_or_else(|| format!("line {number} is too short"))
            };
            let level =
                |(factor, place): &(&'static Factor, usize)| -> Result<(String, Level), String> {
                    let text = field(*place)?;
                    let level = factor.level(text);
                    let level =
                        level.map_err(|right| format!("line {number}: {text:?} {right}"))?;
                    Ok((factor.name.to_owned(), level))
                };
            let figure = |(metric, place): &(&String, usize)| -> Result<(String, f64), String> {
                let text = field(*place)?;
                let figure = text.parse();
                let figure = figure.map_err(|_| format!("line {number}: {text:?} is no figure"))?;
                Ok(((*metric).clone(), figure))
            };
            rows.push(Row {
                factors: factors.iter().map(level).collect::<Result<_, _>>()?,
                figures: metrics.iter().map(figure).collect::<Result<_, _>>()?,
            });
        }
        Ok(Published { name, document, text: text.into(), rows })
    }

    /// Whether something was published of a metric.
    pub fn knows(&self, metric: &str) -> bool {
        self.rows.iter().any(|row| row.figures.contains_key(metric))
    }

    /// What was published of a metric for a cell, if something was.
    pub fn figure(&self, metric: &str, cell: &Factors) -> Option<f64> {
        let row = self.rows.iter().find(|row| matches(cell, &row.factors))?;
        row.figures.get(metric).copied()
    }

    /// What was published of a metric, along a factor: level and figure of each line.
    pub fn curve<'a>(
        &'a self,
        metric: &'a str,
        factor: &'a str,
    ) -> impl Iterator<Item = (&'a Level, f64)> {
        self.rows.iter().filter_map(move |row| {
            Some((row.factors.get(factor)?, row.figures.get(metric).copied()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;

    fn columns(factor: &str, metric: &str) -> Columns {
        let bytes = workload::find("message-stream").unwrap().factor("bytes").unwrap();
        Columns {
            factors: vec![(bytes, factor.into())],
            metrics: vec![("rate_bytes_per_s".into(), metric.into())],
        }
    }

    fn parse(text: &str, columns: &Columns) -> Result<Published, String> {
        Published::parse(("there".into(), "a document".into()), text, columns)
    }

    #[test]
    fn figures_are_found_by_the_levels_of_a_cell() {
        let table = parse("size,rate,other\n64,1.5,9\n1000,20,9\n", &columns("size", "rate"));
        let table = table.unwrap();
        let cell = |bytes| {
            let wait = ("wait".to_owned(), Level::Word("spin".into()));
            Factors::from([("bytes".to_owned(), Level::Number(bytes)), wait])
        };
        assert_eq!(table.figure("rate_bytes_per_s", &cell(1000)), Some(20.0));
        assert_eq!(table.figure("rate_bytes_per_s", &cell(999)), None);
        assert_eq!(table.figure("latency_p50_ns", &cell(1000)), None);
        let curve: Vec<_> = table.curve("rate_bytes_per_s", "bytes").collect();
        assert_eq!(curve, [(&Level::Number(64), 1.5), (&Level::Number(1000), 20.0)]);
    }

    #[test]
    fn table_that_is_none_is_refused() {
        let refused = |text: &str| parse(text, &columns("size", "rate")).unwrap_err();
        assert_eq!(refused("bytes,rate\n"), "there is no column \"size\" among bytes, rate");
        assert_eq!(refused("size,rate\n64\n"), "line 2 is too short");
        assert_eq!(refused("size,rate\n64,fast\n"), "line 2: \"fast\" is no figure");
        assert_eq!(refused("size,rate\n0,1\n"), "line 2: \"0\" must be 1 B to 16 MiB");
    }
}
