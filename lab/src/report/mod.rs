//! Reports: pure functions of results.
//!
//! The answer comes first, then how sure it is, then what to try next.

#[cfg(test)]
mod arithmetic;
mod binaries;
mod breakdown;
mod claim;
mod compare;
mod csv;
mod figure;
mod history;
mod knee;
mod next;
mod page;
mod pool;
mod published;
mod render;
mod screen;
mod series;
mod sure;
mod table;
#[cfg(test)]
mod tests;

pub use claim::{Judgement, Verdict};
pub use compare::{Change, Compared, Comparison, Difference, Side, Uncompared, Wishes, compare};
pub use csv::csv;
pub use figure::{Failure, Figure, failures, figures};
pub use history::{KeptRun, Trend, kept};
pub use page::{html, page};
pub use pool::too_short;
pub use published::{PublishedCell, published, published_cells, published_csv};
pub use render::{WIDTH, markdown, text};
pub use screen::first_screen;

use std::collections::BTreeMap;

use crate::published::Published;
use crate::record::{self, Interrupted, Record};

use self::series::Series;

/// A report, before it is text of one kind or another.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    blocks: Vec<Block>,
}

impl Report {
    /// The same, with sentences at the top that say what its figures are.
    #[must_use]
    pub fn noting(mut self, lines: Vec<String>) -> Report {
        self.blocks.insert(0, Block::List(lines));
        self
    }
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Block {
    Heading(String),
    /// Words, in as many lines as they have.
    Text(String),
    List(Vec<String>),
    Table(Grid),
}

/// A table whose places are filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grid {
    /// Empty if what stands before it says it.
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    /// How many of the columns are words; the others are figures.
    pub(crate) words: usize,
    pub(crate) rows: Vec<Vec<String>>,
    /// Sentences that stand below it.
    pub(crate) notes: Vec<String>,
}

impl Grid {
    /// A table without a title and without notes.
    fn of<S: AsRef<str>>(head: &[S], words: usize, rows: Vec<Vec<String>>) -> Grid {
        let head = head.iter().map(|cell| cell.as_ref().to_owned()).collect();
        Grid { title: String::new(), head, words, rows, notes: Vec::new() }
    }
}

/// A report of results. Of a case that was run several times, the latest run counts.
pub fn report(records: &[Record]) -> Report {
    let all = Series::all(records);
    if all.is_empty() {
        return Report { blocks: vec![Block::Text("There are no results.".into())] };
    }
    let mut blocks = interruptions(records, &all);
    blocks.extend(screen::blocks(&all, screen::ROWS_MAX));
    blocks.extend(all.iter().flat_map(case_blocks));
    for (heading, lines) in
        [("How sure", sure::how_sure(&all)), ("What to try next", next::what_next(&all))]
    {
        blocks.extend([Block::Heading(heading.into()), Block::List(lines)]);
    }
    Report { blocks }
}

/// Says which runs that a report of these results shows were interrupted, or are under way.
pub fn unfinished(records: &[Record]) -> Vec<String> {
    interrupted(records, &Series::all(records))
}

/// Says of which runs that are shown a part is missing.
fn interruptions(records: &[Record], all: &[Series<'_>]) -> Vec<Block> {
    let lines = interrupted(records, all);
    if lines.is_empty() { Vec::new() } else { vec![Block::Text(lines.join("\n"))] }
}

fn interrupted(records: &[Record], all: &[Series<'_>]) -> Vec<String> {
    let is_shown = |run| series::records(all).any(|record| record.run == run);
    let own = record::interrupted(records).into_iter().filter(|one| is_shown(one.run));
    let sentence =
        |one: Interrupted| one.sentence(&format!("The run of {} UTC", history::when(one.run)));
    own.map(sentence).collect()
}

/// All claims, judged. Of a case that was run several times, the latest run counts.
pub fn judgements(records: &[Record]) -> Vec<Judgement> {
    Series::all(records).iter().flat_map(claim::judgements).collect()
}

fn case_blocks(series: &Series<'_>) -> Vec<Block> {
    let mut blocks = vec![Block::Heading(series.name.to_owned())];
    blocks.extend(series.case.as_ref().map(|case| Block::Text(case.asks.clone())));
    blocks.extend(claim::claims(series));
    blocks.extend(case_tables(series));
    blocks
}

/// What a case lays out, and what is said of any case, but for its claims.
fn case_tables(series: &Series<'_>) -> Vec<Block> {
    let mut blocks: Vec<Block> = about_published(series).into_iter().collect();
    blocks.extend(table::tables(series));
    blocks.extend(sure::representatives(series));
    blocks.extend(binaries::binaries(series));
    blocks.extend(knee::knees(series));
    blocks.extend(breakdown::breakdowns(series));
    blocks
}

/// Values by key, keys in the order in which they come first.
fn grouped<K: Ord + Clone, V>(all: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    let mut places = BTreeMap::new();
    for (key, value) in all {
        let place = *places.entry(key.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push((key, Vec::new()));
        }
        groups[place].1.push(value);
    }
    groups
}

/// Each value once, in the order in which they come first.
fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// So many of what is counted: `1 trial`, `2 trials`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Numbers above zero, each before what is said of one or of several: `1 is worse`, `2 are better`.
fn numbered(counts: &[(usize, &str, &str)]) -> Vec<String> {
    let some = counts.iter().filter(|(count, ..)| *count > 0);
    some.map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
        .collect()
}

/// Those of some texts that are not empty, in one.
fn joined(texts: &[&str], between: &str) -> String {
    let some = texts.iter().copied().filter(|text| !text.is_empty());
    some.collect::<Vec<_>>().join(between)
}

/// What the names of published tables mean, before the first table that uses them.
fn about_published(series: &Series<'_>) -> Option<Block> {
    let line = |Published { name, document, .. }: &Published| {
        format!("{name}: {document}. siga / {name}: the figure here, divided by the one there.")
    };
    let lines: Vec<String> = series.laid_out(|case| &case.published).iter().map(line).collect();
    (!lines.is_empty()).then(|| Block::Text(lines.join("\n")))
}
