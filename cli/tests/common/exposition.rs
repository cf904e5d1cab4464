//! A reader of Prometheus's text format that shares nothing with the writer, and takes nothing that the format does not allow.

use std::collections::{BTreeMap, BTreeSet};

/// A sample: its metric and its labels, sorted.
pub type Key = (String, BTreeMap<String, String>);

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    /// The types of the metrics.
    pub types: BTreeMap<String, String>,
    pub samples: BTreeMap<Key, f64>,
}

impl Page {
    /// Reads a page.
    ///
    /// # Panics
    /// If anything in it is not as the format has it: a name, an escape, a metric in two places, a sample of no metric, a sample twice.
    pub fn read(text: &str) -> Page {
        let mut page = Page::default();
        let mut helped = BTreeSet::new();
        let mut current = String::new();
        assert!(text.ends_with('\n'), "the last line has no end");
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').expect(line);
                assert!(is_name(name) && !words.trim().is_empty(), "{line}");
                assert!(helped.insert(name.to_owned()), "{line}: twice");
                continue;
            }
            if let Some(of) = line.strip_prefix("# TYPE ") {
                let (name, kind) = of.split_once(' ').expect(line);
                assert!(helped.contains(name), "{line}: no help before");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(matches!(kind, "counter" | "gauge"), "{line}");
                let before = page.types.insert(name.to_owned(), kind.to_owned());
                assert!(before.is_none(), "{line}: twice");
                name.clone_into(&mut current);
                continue;
            }
            let (name, labels, value) = sample(line);
            assert_eq!(name, current, "{line}: not below its type");
            let value: f64 = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
            let before = page.samples.insert((name, labels), value);
            assert!(before.is_none(), "{line}: twice");
        }
        page
    }

    /// A sample that must be there.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let key = (name.to_owned(), labels.iter().map(pair).collect());
        *self.samples.get(&key).unwrap_or_else(|| panic!("{key:?} is not there"))
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.chars().all(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '_'))
}

fn sample(line: &str) -> (String, BTreeMap<String, String>, &str) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let name = &line[..end];
    assert!(is_name(name), "{line}");
    let mut rest = &line[end..];
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").expect(line);
            assert!(is_name(label), "{line}");
            let mut value = String::new();
            let mut letters = after.char_indices();
            let end = loop {
                match letters.next().expect(line) {
                    (at, '"') => break at + 1,
                    (_, '\\') => value.push(match letters.next().expect(line).1 {
                        'n' => '\n',
                        letter @ ('\\' | '"') => letter,
                        other => panic!("{line}: \\{other}"),
                    }),
                    (_, letter) => value.push(letter),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}: {label} twice");
            rest = &after[end..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect(line);
    }
    (name.to_owned(), labels, rest.strip_prefix(' ').expect(line))
}
