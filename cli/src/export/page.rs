//! The text format of Prometheus, version 0.0.4: what every scraper reads, and the only format of node_exporter's textfile collector,
//! which refuses a file with OpenMetrics' further types.

use std::fmt::{Display, Write};

/// The media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a metric does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It grows, and begins anew at zero.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A counter of nanoseconds, which are printed as seconds.
    CounterNs,
    /// A time now, in nanoseconds, which is printed in seconds.
    GaugeNs,
}

/// A page of metrics.
#[derive(Debug, Default)]
pub struct Page(String);

/// The samples of one metric.
#[derive(Debug, Default)]
pub struct Samples(Vec<(String, u64)>);

/// A metric of things of a kind: its name, type and help, and the number that a thing has.
pub type Of<T> = (&'static str, Kind, &'static str, fn(&T) -> u64);

impl Page {
    /// Writes a metric: its help and its type, which are there also if it has no samples, and its samples, by their labels. Samples
    /// of the same labels are added up: a scraper may refuse the whole page because of two, and a guest can show two devices of one name.
    pub fn metric(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        samples: impl FnOnce(&mut Samples),
    ) {
        let word = match kind {
            Kind::Counter | Kind::CounterNs => "counter",
            Kind::Gauge | Kind::GaugeNs => "gauge",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {word}");
        let mut found = Samples::default();
        samples(&mut found);
        found.0.sort_unstable();
        for same in found.0.chunk_by(|(labels, _), (others, _)| labels == others) {
            // They are what guests say: any numbers.
            let value = same.iter().fold(0_u64, |sum, (_, value)| sum.saturating_add(*value));
            let labels = &same[0].0;
            let _ = match labels.is_empty() {
                true => write!(self.0, "{name} "),
                false => write!(self.0, "{name}{{{labels}}} "),
            };
            let _ = match kind {
                Kind::Counter | Kind::Gauge => writeln!(self.0, "{value}"),
                Kind::CounterNs | Kind::GaugeNs => {
                    writeln!(self.0, "{}.{:09}", value / 1_000_000_000, value % 1_000_000_000)
                }
            };
        }
    }

    /// Writes a metric for each row of a table, with a sample for each thing, by its labels.
    pub fn each<T>(&mut self, table: &[Of<T>], things: &[(String, &T)]) {
        for (name, kind, help, value) in table {
            self.metric(name, *kind, help, |samples| {
                things.iter().for_each(|(at, thing)| samples.add(at.clone(), value(thing)));
            });
        }
    }

    /// The page.
    pub fn text(self) -> String {
        self.0
    }
}

impl Samples {
    /// Adds a sample with labels as [`labels`] writes them.
    pub fn add(&mut self, labels: String, value: impl Into<u64>) {
        self.0.push((labels, value.into()));
    }
}

/// Writes labels: `from="A",to="B"`. Values are any text, and are escaped; names are our own.
pub fn labels(pairs: &[(&str, &dyn Display)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        let _ = write!(Escaped(&mut text), "{value}");
        text.push('"');
    }
    text
}

/// Escapes what is written to it: a backslash, a quotation mark and the end of a line are all that a value must not have.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for letter in text.chars() {
            match letter {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                letter => self.0.push(letter),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_is_written_with_help_type_and_samples_by_label() {
        let mut page = Page::default();
        page.metric("siga_a_total", Kind::Counter, "Of a.", |samples| {
            samples.add(labels(&[("guest", &"B")]), 2_u64);
            samples.add(labels(&[("guest", &"A"), ("queue", &0)]), u64::MAX);
        });
        page.metric("siga_b_seconds", Kind::GaugeNs, "Of b.", |samples| {
            samples.add(String::new(), 1_500_000_001_u64);
        });
        page.metric("siga_c", Kind::Gauge, "Of c.", |_| {});
        let text = "# HELP siga_a_total Of a.\n# TYPE siga_a_total counter\n\
                    siga_a_total{guest=\"A\",queue=\"0\"} 18446744073709551615\nsiga_a_total{guest=\"B\"} 2\n\
                    # HELP siga_b_seconds Of b.\n# TYPE siga_b_seconds gauge\nsiga_b_seconds 1.500000001\n\
                    # HELP siga_c Of c.\n# TYPE siga_c gauge\n";
        assert_eq!(page.text(), text);
    }

    #[test]
    fn foreign_text_cannot_leave_its_quotation_marks() {
        let name = "a\\b\"} 1\nsiga_up 1\u{7f}\u{e9}";
        let expected = "volume=\"a\\\\b\\\"} 1\\nsiga_up 1\u{7f}\u{e9}\"";
        assert_eq!(labels(&[("volume", &name)]), expected);
    }

    #[test]
    fn samples_of_the_same_labels_are_one() {
        let mut page = Page::default();
        page.metric("siga_a", Kind::Gauge, "Of a.", |samples| {
            for value in [1_u64, u64::MAX, 7] {
                samples.add(labels(&[("device", &"0191")]), value);
            }
        });
        let text = page.text();
        assert!(text.ends_with("siga_a{device=\"0191\"} 18446744073709551615\n"), "{text}");
        assert_eq!(text.lines().count(), 3);
    }
}
