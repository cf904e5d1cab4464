//! Drafts of cases, for workloads that are not built yet: each is written in the format that their README describes,
//! and agrees with the published tables that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use lab::factor::{Factors, Level, matches};
use lab::workload;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draft {
    name: String,
    #[serde(rename = "group")]
    _group: Option<String>,
    asks: String,
    workload: Option<Workloads>,
    #[serde(rename = "system")]
    _system: Option<PathBuf>,
    trials: u32,
    seconds: f64,
    warm_up_seconds: f64,
    #[serde(default)]
    skip: Vec<Factors>,
    roles: BTreeMap<String, Copies>,
    #[serde(default)]
    place: BTreeMap<String, Level>,
    #[serde(default)]
    factors: BTreeMap<String, Vec<Level>>,
    #[serde(default)]
    labels: BTreeMap<String, Vec<Level>>,
    #[serde(default)]
    quick: Quick,
    metric: Vec<Metric>,
    #[serde(default)]
    published: Vec<Published>,
    table: Vec<Table>,
    #[serde(default)]
    knee: Vec<Knee>,
    #[serde(default)]
    claim: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Workloads {
    One(String),
    Several(Vec<Workload>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Workload {
    name: String,
    #[serde(default)]
    when: Factors,
    #[serde(default, rename = "factors")]
    _factors: Factors,
    #[serde(default)]
    roles: BTreeMap<String, String>,
}

/// How many copies a role has: a number, a factor, or the product of several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Copies {
    One(Level),
    Product(Vec<Level>),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    #[serde(rename = "trials")]
    _trials: Option<u32>,
    #[serde(rename = "seconds")]
    _seconds: Option<f64>,
    #[serde(rename = "warm_up_seconds")]
    _warm_up_seconds: Option<f64>,
    #[serde(default)]
    factors: BTreeMap<String, Vec<Level>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metric {
    name: String,
    quantity: String,
    part: Option<OneOrMany>,
    role: Option<OneOrMany>,
    per: Option<Per>,
    #[serde(rename = "times")]
    _times: Option<f64>,
    copies: Option<String>,
    unit: String,
    label: String,
    better: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Per {
    Word(String),
    Quantity(Denominator),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Denominator {
    quantity: String,
    part: Option<OneOrMany>,
    role: Option<OneOrMany>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    name: String,
    document: String,
    file: PathBuf,
    factors: BTreeMap<String, String>,
    metrics: BTreeMap<String, String>,
    #[serde(default, rename = "where")]
    only: BTreeMap<String, String>,
    rows: Option<String>,
    #[serde(default)]
    partial: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    metrics: Vec<String>,
    each: Option<OneOrMany>,
    down: Option<OneOrMany>,
    across: Option<OneOrMany>,
    #[serde(default)]
    only: Factors,
    base: Option<Factors>,
    show: Option<Vec<String>>,
    #[serde(default)]
    published: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Knee {
    metric: String,
    along: String,
    each: Option<OneOrMany>,
    #[serde(default)]
    only: Factors,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    name: String,
    metric: Option<String>,
    #[serde(default)]
    of: Factors,
    #[serde(default)]
    against: Vec<Factors>,
    every: Option<OneOrMany>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    note: Option<String>,
    #[serde(default, rename = "counters")]
    _counters: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// The names that are there, if any.
fn names(names: Option<&OneOrMany>) -> Vec<&str> {
    match names {
        None => Vec::new(),
        Some(OneOrMany::One(name)) => vec![name],
        Some(OneOrMany::Many(names)) => names.iter().map(String::as_str).collect(),
    }
}

const QUANTITIES: [&str; 6] = ["window", "work", "time", "cpu", "counter", "level"];
const DENOMINATORS: [&str; 8] =
    ["message", "transaction", "io", "byte", "mib", "second", "cpu_second", "share"];
const SHOWN: [&str; 4] = ["absolute", "ratio", "delta", "percent"];
/// What goes down or across in tables, and is varied by nobody.
const PSEUDO_FACTORS: [&str; 2] = ["metric", "trial"];

impl Draft {
    fn workloads(&self) -> Vec<&str> {
        match &self.workload {
            None => Vec::new(),
            Some(Workloads::One(name)) => vec![name],
            Some(Workloads::Several(all)) => all.iter().map(|one| one.name.as_str()).collect(),
        }
    }

    fn levels(&self, factor: &str) -> Option<&Vec<Level>> {
        self.factors.get(factor).or_else(|| self.labels.get(factor))
    }

    fn check_factor(&self, factor: &str) {
        assert!(self.levels(factor).is_some(), "there is no factor or label {factor}");
    }

    /// Of `system` a level is named without folder and ending.
    fn check_levels(&self, levels: &Factors) {
        for (factor, level) in levels {
            let known =
                self.levels(factor).unwrap_or_else(|| panic!("there is no factor {factor}"));
            assert!(known.iter().any(|own| shown(factor, own) == *level), "{factor} = {level}");
        }
    }

    fn check_metric(&self, name: &str) {
        assert!(self.metric.iter().any(|metric| metric.name == name), "no metric {name}");
    }

    fn check_quantity(&self, quantity: &str, part: Option<&OneOrMany>, role: Option<&OneOrMany>) {
        assert!(QUANTITIES.contains(&quantity), "quantity {quantity}");
        assert!(
            part.is_some() || ["cpu", "window"].contains(&quantity),
            "a {quantity} of which kind?"
        );
        for role in names(role) {
            assert!(self.roles.contains_key(role), "there is no role {role}");
        }
    }

    /// All combinations of levels that are not skipped.
    fn cells(&self) -> Vec<Factors> {
        let mut cells = vec![Factors::new()];
        for (factor, levels) in &self.factors {
            let with = |cell: &Factors| {
                let cell = cell.clone();
                levels.iter().map(move |level| {
                    let mut more = cell.clone();
                    more.insert(factor.clone(), shown(factor, level));
                    more
                })
            };
            cells = cells.iter().flat_map(with).collect();
        }
        cells.retain(|cell| !self.skip.iter().any(|skipped| matches(cell, skipped)));
        cells
    }
}

/// A level as tables and published columns name it: a system by the name of its file, without folder and ending.
fn shown(factor: &str, level: &Level) -> Level {
    match level {
        Level::Word(file) if factor == "system" => {
            Level::Word(Path::new(file).file_stem().unwrap().to_str().unwrap().to_owned())
        }
        level => level.clone(),
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/drafts")
}

/// The drafts, each with its file.
fn drafts() -> Vec<(PathBuf, Draft)> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let drafts = files.filter(|file| file.extension().is_some_and(|is| is == "toml"));
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap();
        let draft = toml::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        (file, draft)
    };
    drafts.map(read).collect()
}

#[test]
fn drafts_are_in_their_readme_and_say_which_workload_is_missing() {
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    for (file, draft) in drafts() {
        println!("{}", draft.name);
        assert_eq!(file.file_stem().unwrap().to_str(), Some(draft.name.as_str()));
        assert!(readme.contains(&format!("`{}`", draft.name)), "is not in README.md");
        let text = fs::read_to_string(file).unwrap();
        let first = text.lines().next().unwrap_or_default();
        let missing = first.strip_prefix("# workload not built yet: ");
        let missing: BTreeSet<&str> = missing.into_iter().flat_map(|all| all.split(", ")).collect();
        let not_built = |name: &&str| workload::find(name).is_none();
        let named: BTreeSet<&str> = draft.workloads().into_iter().filter(not_built).collect();
        assert_eq!(missing, named, "the first line names the workloads that are missing");
    }
}

#[test]
fn drafts_name_only_what_they_define() {
    for (_, draft) in drafts() {
        println!("{}", draft.name);
        assert!(!draft.asks.is_empty() && draft.trials > 0);
        assert!(draft.seconds > 0.0 && draft.warm_up_seconds >= 0.0);
        if let Some(Workloads::Several(workloads)) = &draft.workload {
            for workload in workloads {
                draft.check_levels(&workload.when);
                assert!(workload.roles.values().all(|role| draft.roles.contains_key(role)));
            }
        }
        for copies in draft.roles.values() {
            let copies = match copies {
                Copies::One(one) => std::slice::from_ref(one),
                Copies::Product(several) => several,
            };
            let factors = copies.iter().filter_map(|copies| match copies {
                Level::Word(factor) => Some(factor),
                Level::Number(_) => None,
            });
            factors.for_each(|factor| assert!(draft.factors.contains_key(factor), "{factor}"));
        }
        for (role, place) in &draft.place {
            assert!(draft.roles.contains_key(role), "there is no role {role}");
            let word = |word: &str| ["own", "shared", "any"].contains(&word);
            assert!(matches!(place, Level::Number(_)) || word(&place.to_string()), "{role}");
        }
        draft.skip.iter().for_each(|cells| draft.check_levels(cells));
        for (factor, levels) in &draft.quick.factors {
            let fewer =
                |level| draft.check_levels(&[(factor.clone(), shown(factor, level))].into());
            levels.iter().for_each(fewer);
        }
        let unique: BTreeSet<&str> = draft.metric.iter().map(|own| own.name.as_str()).collect();
        assert_eq!(unique.len(), draft.metric.len(), "a metric is defined twice");
        for metric in &draft.metric {
            let Metric { quantity, part, role, .. } = metric;
            draft.check_quantity(quantity, part.as_ref(), role.as_ref());
            match &metric.per {
                Some(Per::Quantity(Denominator { quantity, part, role })) => {
                    draft.check_quantity(quantity, part.as_ref(), role.as_ref());
                }
                Some(Per::Word(word)) => assert!(DENOMINATORS.contains(&word.as_str()), "{word}"),
                None => {}
            }
            assert!(metric.copies.as_ref().is_none_or(|copies| copies == "mean"));
            assert!(!metric.label.is_empty() && metric.unit.len() < 20);
            assert!(["more", "less"].contains(&metric.better.as_str()));
        }
        for table in &draft.table {
            let Table { each, down, across, .. } = table;
            for factor in [each, down, across].iter().flat_map(|one| names(one.as_ref())) {
                if !PSEUDO_FACTORS.contains(&factor) {
                    draft.check_factor(factor);
                }
            }
            table.metrics.iter().for_each(|metric| draft.check_metric(metric));
            table.base.iter().chain([&table.only]).for_each(|levels| draft.check_levels(levels));
            let show = table.show.as_deref().unwrap_or_default();
            assert!(show.iter().all(|show| SHOWN.contains(&show.as_str())));
            assert!(table.base.is_some() || show.iter().all(|show| show == "absolute"));
            let has_figures = draft.published.iter().any(|published| {
                table.metrics.iter().any(|metric| published.metrics.contains_key(metric))
            });
            assert!(!table.published || has_figures, "nothing was published of this table");
        }
        for Knee { metric, along, each, only } in &draft.knee {
            draft.check_metric(metric);
            names(each.as_ref()).into_iter().chain([along.as_str()]).for_each(|factor| {
                draft.check_factor(factor);
            });
            draft.check_levels(only);
        }
        for claim in &draft.claim {
            let Some(metric) = &claim.metric else {
                assert!(claim.note.is_some(), "{}: why is this not measured?", claim.name);
                continue;
            };
            draft.check_metric(metric);
            assert!(claim.at_least.is_some() || claim.at_most.is_some(), "{}", claim.name);
            claim.against.iter().chain([&claim.of]).for_each(|side| draft.check_levels(side));
            names(claim.every.as_ref()).into_iter().for_each(|factor| draft.check_factor(factor));
        }
    }
}

/// The lines of a published table, each by the names of its columns.
fn rows(file: &Path) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let head: Vec<String> = lines.next().unwrap().collect();
    let row = |line: Vec<String>| {
        assert_eq!(line.len(), head.len(), "{}: {line:?}", file.display());
        head.iter().cloned().zip(line).collect()
    };
    lines.map(|line| row(line.collect())).collect()
}

/// Each cell has one row, each row is of a cell, and each figure is one.
#[test]
fn drafts_agree_with_the_published_tables() {
    for (_, draft) in drafts() {
        let cells = draft.cells();
        for published in &draft.published {
            let Published { name, document, file, factors, metrics, only, .. } = published;
            println!("{}: {name}, {document}", draft.name);
            let mut rows = rows(&folder().join(file));
            for column in factors.values().chain(metrics.values()).chain(only.keys()) {
                assert!(rows[0].contains_key(column), "there is no column {column}");
            }
            rows.retain(|row| only.iter().all(|(column, level)| row[column] == *level));
            assert!(!rows.is_empty(), "there is no row with {only:?}");
            for (metric, column) in metrics {
                draft.check_metric(metric);
                let figures = rows.iter().map(|row| &row[column]).filter(|text| !text.is_empty());
                let read: Vec<f64> = figures.map(|text| text.parse().expect(text)).collect();
                assert!(!read.is_empty(), "{column} has no figures");
            }
            // A row of a label is there for the counters that exist, a row of a factor for each cell.
            let is_label = |(factor, _): &(&String, &String)| draft.labels.contains_key(*factor);
            for (label, column) in factors.iter().filter(is_label) {
                let named: BTreeSet<String> =
                    draft.labels[label].iter().map(Level::to_string).collect();
                let found: BTreeSet<String> = rows.iter().map(|row| row[column].clone()).collect();
                assert_eq!(named, found, "{label}");
            }
            let factors: Vec<_> = factors.iter().filter(|pair| !is_label(pair)).collect();
            let is_of = |row: &BTreeMap<String, String>, cell: &Factors| {
                factors.iter().all(|(factor, column)| {
                    let level = cell.get(*factor);
                    level.unwrap_or_else(|| panic!("no factor {factor}")).to_string()
                        == row[*column]
                })
            };
            for row in &rows {
                assert!(cells.iter().any(|cell| is_of(row, cell)), "of no cell: {row:?}");
            }
            let is_one_for_each = draft.labels.is_empty() && !published.partial;
            for cell in cells.iter().filter(|_| is_one_for_each) {
                let found = rows.iter().filter(|row| is_of(row, cell)).count();
                let is_trials = published.rows.as_ref().is_some_and(|rows| rows == "trials");
                assert!(found == 1 || is_trials && found > 0, "{found} rows of {cell:?}");
            }
        }
    }
}

#[test]
fn every_published_table_is_shown_by_a_case_or_a_draft() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cases = String::new();
    for folder in ["cases", "cases/drafts"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_some_and(|is| is == "toml") {
                cases += &fs::read_to_string(file).unwrap();
            }
        }
    }
    for entry in fs::read_dir(root.join("published")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let shown = cases.contains(&format!("published/{name}\""));
        assert!(shown || name == "README.md", "{name}");
    }
}
