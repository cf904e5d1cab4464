//! Kept runs: what each was of, and how a case's figures went from run to run.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::claim::Tally;
use super::compare::headlines;
use super::figure::{Figure, figures};
use super::series::Series;
use super::{Block, Grid, Report, distinct, grouped};
use crate::case::Case;
use crate::factor::{BINARY, Factors, describe};
use crate::metric::Shown;
use crate::record::{Interrupted, Record, case_of, interrupted};
use crate::store::date;
use crate::unit::{self, three_digits};

/// A run that is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KeptRun {
    /// Counted back from the latest, which is 1: a name for `siga lab report` and `siga lab compare`, until the next run.
    pub number: usize,
    /// When it began, in milliseconds since 1970.
    pub run: u64,
    /// Its file.
    pub file: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// What it measured.
    pub cases: Vec<String>,
    /// How many trials are in it.
    pub trials: usize,
    /// How many trials were made and planned, if that is not the same.
    pub interrupted: Option<Interrupted>,
    /// True while a process writes it.
    pub is_under_way: bool,
    /// How many attempts failed.
    pub failed: usize,
    /// Lines that were cut off, because the run was ended or the disk was full.
    pub cut_off: usize,
    /// The model of the processors.
    pub processor: String,
    /// Version of siga, and `debug` behind it if it is such a build.
    pub siga: String,
    /// Claims that hold here.
    pub hold: usize,
    /// Claims that do not.
    pub fail: usize,
    /// Claims of which the run does not say whether they do.
    pub undecided: usize,
    /// Why the file is refused, if it is.
    pub refused: Option<String>,
}

impl KeptRun {
    /// Says what is in it.
    #[must_use]
    pub fn with(self, records: &[Record]) -> KeptRun {
        let all = Series::all(records);
        let machine = records.first().map(|record| record.machine.clone()).unwrap_or_default();
        let Tally { hold, fail, undecided, .. } = Tally::of(&all);
        KeptRun {
            cases: all.iter().map(|series| series.name.to_owned()).collect(),
            trials: records.iter().filter(|record| record.is_measured()).count(),
            interrupted: interrupted(records)
                .pop()
                .map(|short| Interrupted { is_under_way: self.is_under_way, ..short }),
            failed: records.iter().filter(|record| record.failed.is_some()).count(),
            siga: machine.siga + if machine.is_debug { " debug" } else { "" },
            processor: machine.processor,
            hold,
            fail,
            undecided,
            ..self
        }
    }
}

/// The list of kept runs, the latest first.
pub fn kept(runs: &[KeptRun]) -> Report {
    let mut blocks = Vec::new();
    let row = |run: &KeptRun| {
        let cases = match run.cases.len() {
            0 => "-".to_owned(),
            count if count <= CASES_MAX + 1 => run.cases.join(" "),
            count => format!("{} and {} more", run.cases[..CASES_MAX].join(" "), count - CASES_MAX),
        };
        let KeptRun { number, run, siga, trials, hold, fail, undecided, .. } = run;
        let counts = [trials, hold, fail, undecided].map(ToString::to_string);
        [vec![number.to_string(), when(*run), siga.clone(), cases], counts.to_vec()].concat()
    };
    if runs.is_empty() {
        blocks.push(Block::Text("No run is kept yet: siga lab run".into()));
    } else {
        let head = ["", "began, UTC", "siga", "cases", "trials", "hold", "do not", "undecided"];
        let notes = vec!["hold, do not, undecided: claims.".into()];
        let grid = Grid::of(&head, 4, runs.iter().map(row).collect());
        blocks.push(Block::Table(Grid { notes, ..grid }));
    }
    let mut lines: Vec<String> = Vec::new();
    for run in runs {
        let KeptRun { number, file, failed, cut_off, refused, .. } = run;
        lines.extend(run.interrupted.map(|short| short.sentence(number)));
        lines.extend(refused.as_ref().map(|why| format!("{number} is refused: {why}")));
        let counted = [(failed, "attempts that failed"), (cut_off, "lines that were cut off")];
        let counted = counted.into_iter().filter(|(count, _)| **count > 0);
        lines.extend(counted.map(|(count, what)| format!("{number}, {what}: {count}, in {file}")));
    }
    let processors = runs.iter().map(|run| &*run.processor).filter(|name| !name.is_empty());
    let processors = distinct(processors);
    if processors.len() > 1 {
        lines.push(format!("Runs are of different machines: {}", processors.join("; ")));
    }
    lines.push(
        "siga lab report NUMBER prints one, siga lab compare NUMBER last compares two".into(),
    );
    blocks.push(Block::List(lines));
    Report { blocks }
}

/// Cases that are named of a run.
const CASES_MAX: usize = 4;

/// `2026-11-21 09:13`
pub(super) fn when(run: u64) -> String {
    date(run).replace('T', " ").chars().take(16).collect()
}

/// The figures of one case in many runs.
#[derive(Clone, Debug, Default)]
pub struct Trend {
    name: String,
    /// As the latest run has it.
    case: Option<Case>,
    versions: BTreeMap<u64, String>,
    /// All figures of all runs, the oldest run first.
    pub figures: Vec<Figure>,
}

impl Trend {
    /// Of the case of this name.
    pub fn of(name: &str) -> Trend {
        Trend { name: name.to_owned(), ..Trend::default() }
    }

    /// Adds a run, which must be later than those before.
    pub fn add(&mut self, records: &[Record]) {
        // Figures of a debug build mean nothing.
        let is_own = |record: &&Record| record.case == self.name && !record.machine.is_debug;
        let own: Vec<Record> = records.iter().filter(is_own).cloned().collect();
        self.case = case_of(&self.name, own.iter()).or(self.case.take());
        self.versions.extend(own.iter().map(|one| (one.run, one.machine.siga.clone())));
        self.figures.extend(figures(&own));
    }

    /// The metrics that were measured in some run.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        let metrics = self.figures.iter().map(|figure| figure.metric.as_str());
        metrics.collect::<BTreeSet<&str>>().into_iter()
    }

    /// A line for each cell; of the metrics that are asked for, with a table of all runs.
    pub fn report(&self, wanted: &[String]) -> Report {
        let mut blocks = vec![Block::Heading(self.name.clone())];
        blocks.extend(self.case.as_ref().map(|case| Block::Text(case.asks.clone())));
        let headlines = self.case.as_ref().map(headlines).unwrap_or_default();
        let is_meant = |metric: &&str| match wanted {
            [] => headlines.is_empty() || headlines.contains(metric),
            _ => wanted.iter().any(|wanted| wanted == metric),
        };
        let defined = self.case.as_ref().map_or(&[][..], |case| &case.metrics);
        for metric in self.metrics().filter(is_meant) {
            let shown = Shown::of(metric, defined);
            blocks.push(Block::Table(self.lines(&shown)));
            if !wanted.is_empty() {
                blocks.extend(self.runs(&shown).into_iter().map(Block::Table));
            }
        }
        if blocks.len() == 1 {
            blocks.push(Block::Text("No kept run has figures of it.".into()));
        }
        blocks.push(Block::List(vec![
            format!("A trend is of the latest {TREND_MAX} runs at most, from the least to the greatest median of its cell"),
            "siga lab compare A B says whether two runs differ".into(),
        ]));
        Report { blocks }
    }

    /// The figures of each cell, in the order in which cells come first.
    fn cells(&self, metric: &str) -> Vec<(&Factors, Vec<&Figure>)> {
        let own = self.figures.iter().filter(|figure| figure.metric == metric);
        grouped(own.map(|figure| (&figure.factors, figure)))
    }

    fn name(&self, cell: &Factors) -> String {
        let order =
            self.case.as_ref().map(|case| [case.factor_names(), vec![BINARY.name]].concat());
        describe(cell, &order.unwrap_or_else(|| cell.keys().map(String::as_str).collect()))
    }

    fn lines(&self, shown: &Shown) -> Grid {
        let row = |(cell, figures): (&Factors, Vec<&Figure>)| {
            let medians: Vec<f64> = figures.iter().map(|figure| figure.summary.median).collect();
            let [least, most] = ends(&medians);
            let range = unit::show(&shown.units, None, most, |scale| {
                format!("{}..{}", three_digits(least / scale), three_digits(most / scale))
            });
            let latest = figures.last().map(|figure| with_interval(shown, figure));
            let runs = figures.len().to_string();
            vec![self.name(cell), sparkline(&medians), runs, range, latest.unwrap_or_default()]
        };
        let rows = self.cells(&shown.name).into_iter().map(row).collect();
        let grid = Grid::of(&["cell", "trend", "runs", "medians", "latest"], 2, rows);
        Grid { title: shown.label.clone(), ..grid }
    }

    /// A table for each cell: a row for each run.
    fn runs(&self, shown: &Shown) -> Vec<Grid> {
        let row = |figure: &&Figure| {
            let version = self.versions.get(&figure.run).cloned().unwrap_or_default();
            let trials = figure.summary.trials.to_string();
            vec![when(figure.run), version, with_interval(shown, figure), trials]
        };
        let grid = |(cell, figures): (&Factors, Vec<&Figure>)| {
            let head = ["began, UTC", "siga", "median, 95 % interval", "trials"];
            let title = format!("{}: {}", shown.label, self.name(cell));
            Grid { title, ..Grid::of(&head, 2, figures.iter().map(row).collect()) }
        };
        self.cells(&shown.name).into_iter().map(grid).collect()
    }
}

/// `1.02 (0.99..1.05) µs`; without the interval, which few trials do not have.
fn with_interval(shown: &Shown, figure: &Figure) -> String {
    unit::show_interval(&shown.units, None, figure.summary.median, figure.summary.interval)
}

/// The least and the greatest of some numbers.
fn ends(numbers: &[f64]) -> [f64; 2] {
    let numbers = || numbers.iter().copied();
    [numbers().fold(f64::INFINITY, f64::min), numbers().fold(f64::NEG_INFINITY, f64::max)]
}

/// Runs that a trend shows.
const TREND_MAX: usize = 24;

/// The latest numbers as bars from the least to the greatest.
fn sparkline(numbers: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let numbers = &numbers[numbers.len().saturating_sub(TREND_MAX)..];
    let [least, most] = ends(numbers);
    let range = most - least;
    let bar = |number: &f64| {
        let part = if range > 0.0 { (number - least) / range } else { 0.5 };
        // A number that is none becomes the first.
        BARS[(part * (BARS.len() - 1) as f64).round() as usize % BARS.len()]
    };
    numbers.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::parse;
    use crate::report::text;
    use host::config::Source;

    fn run(run: u64, case: &str, rates: &[f64]) -> Vec<Record> {
        let line = |(trial, rate): (u32, &f64)| {
            format!(
                r#"{{"case":"{case}","system":"open","trial":{trial},"factors":{{"transport":"path","bytes":64}},"metrics":{{"rate_messages_per_s":{rate}e6,"latency_p50_ns":5}},"counters":{{}},"machine":{{"siga":"0.1.0"}},"run":{run},"seconds":1}}"#
            ) + "\n"
        };
        let lines: String = (1..).zip(rates).map(line).collect();
        parse(&Source::of("r.jsonl", &lines)).unwrap()
    }

    #[test]
    fn trend_is_over_all_runs_of_a_case() {
        let mut trend = Trend::of("mine");
        let six = |rate: f64| [rate; 6];
        trend.add(&run(1_795_227_234_955, "mine", &six(2.0)));
        trend.add(&run(1_795_227_300_000, "other", &six(9.0)));
        trend.add(&run(1_795_313_634_955, "mine", &[3.0, 3.0]));
        trend.add(&run(1_795_400_034_955, "mine", &[3.9, 3.9, 4.0, 4.0, 4.1, 4.1]));
        assert_eq!((trend.figures.len(), trend.metrics().count()), (6, 2));
        let found = text(&trend.report(&["rate_messages_per_s".to_owned()]), 100);
        for part in [
            " cell       trend   runs                medians                        latest \n",
            " 64, path   ▁▅█        3   2.00..4.00 million/s   4.00 (3.90..4.10) million/s",
            "messages: 64, path\n",
            " 2026-11-21 02:13   0.1.0   2.00 (2.00..2.00) million/s        6 \n",
            " 2026-11-22 02:13   0.1.0                3.00 million/s        2 \n",
        ] {
            assert!(found.contains(part), "{part}\nis not in\n{found}");
        }
        assert!(!found.contains("median delay"), "{found}");
        assert!(text(&trend.report(&[]), 100).contains("median delay\n"));
        let none = text(&Trend::of("none").report(&[]), 100);
        assert!(none.contains("No kept run has figures of it."), "{none}");
    }

    #[test]
    fn bars_reach_from_the_least_to_the_greatest() {
        assert_eq!(sparkline(&[1.0, 8.0, 4.5, 1.0]), "▁█▅▁");
        assert_eq!(sparkline(&[3.0, 3.0]), "▅▅");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[f64::NAN, 1.0]).chars().count(), 2);
        assert_eq!(sparkline(&[0.0, f64::INFINITY]).chars().count(), 2);
        assert_eq!(sparkline(&(0..100).map(f64::from).collect::<Vec<_>>()).chars().count(), 24);
    }

    #[test]
    fn kept_runs_are_a_table_and_refused_ones_are_named() {
        let one = KeptRun { number: 2, run: 1_795_227_234_955, ..KeptRun::default() };
        let one = one.with(&run(1_795_227_234_955, "mine", &[2.0; 6]));
        let refused = Some("r.jsonl:1: this is no result".to_owned());
        let two = KeptRun {
            number: 1,
            run: 1_795_227_235_000,
            cut_off: 1,
            refused,
            ..KeptRun::default()
        };
        let found = text(&kept(&[two, one]), 100);
        for part in [
            " 1   2026-11-21 02:13           -            0      0        0           0 \n",
            " 2   2026-11-21 02:13   0.1.0   mine         6      0        0           0 \n",
            "- 1 is refused: r.jsonl:1: this is no result\n",
            "- 1, lines that were cut off: 1, in",
        ] {
            assert!(found.contains(part), "{part}\nis not in\n{found}");
        }
        assert!(text(&kept(&[]), 100).contains("No run is kept yet"));
    }
}
