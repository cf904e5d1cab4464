//! `siga lab history`: the runs that are kept.

use host::config::Source;
use lab::record;
use lab::report::{self, KeptRun, Trend};
use lab::store::{Kept, Store, is_under_way};

use super::{Format, no_store, show, unlisted};
use crate::outcome::Outcome;
use crate::output::{Output, print_json, say};

/// List kept runs, or how a case's figures went from run to run
///
/// Each `siga lab run` is kept, in $XDG_STATE_HOME/siga/lab or ~/.local/state/siga/lab: the latest 200 runs, of at most 256 MiB. A
/// number of the list, or when a run began, names a run for `siga lab report` and `siga lab compare`.
#[derive(Debug, clap::Args)]
pub struct History {
    /// A case, whose figures are shown over all runs [default: a list of the runs]
    #[arg(value_name = "CASE")]
    case: Option<String>,
    /// A metric of it, with a row for each run [default: those of its tables and claims, without]. May be repeated
    #[arg(long, value_name = "METRIC", requires = "case")]
    metric: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value = "text", conflicts_with = "json")]
    format: Format,
    #[command(flatten)]
    output: Output,
}

pub fn run(arguments: &History) -> Result<(), Outcome> {
    let store = Store::of_user().ok_or_else(no_store)?;
    let runs = store.runs().map_err(|error| unlisted(&store, &error))?;
    match &arguments.case {
        None => list(arguments, runs),
        Some(case) => trend(arguments, case, runs),
    }
}

fn list(arguments: &History, runs: Vec<Kept>) -> Result<(), Outcome> {
    // Only those with results have a number. One at a time is in memory: each can have many megabytes.
    let summary = |(number, kept): (usize, Kept)| {
        let is_under_way = is_under_way(&kept.file);
        let Kept { began_ms: run, file, bytes } = kept;
        let (number, name) = (number + 1, file.display().to_string());
        let run = KeptRun { number, run, file: name, bytes, is_under_way, ..KeptRun::default() };
        match Source::read(&file).and_then(|source| record::parse_counting(&source)) {
            Ok((records, cut_off)) => KeptRun { cut_off, ..run }.with(&records),
            Err(error) => KeptRun { refused: Some(error.to_string()), ..run },
        }
    };
    let runs = runs.into_iter().rev().filter(|run| run.bytes > 0).enumerate();
    if arguments.output.json {
        return runs.map(summary).try_for_each(|run| print_json(&run));
    }
    show(&report::kept(&runs.map(summary).collect::<Vec<_>>()), arguments.format)
}

fn trend(arguments: &History, case: &str, runs: Vec<Kept>) -> Result<(), Outcome> {
    let mut trend = Trend::of(case);
    for run in runs {
        match record::read(&run.file) {
            Ok(records) => trend.add(&records),
            Err(error) => say(format_args!("warning: left out: {error}")),
        }
    }
    let known: Vec<&str> = trend.metrics().collect();
    if known.is_empty() {
        return Err(Outcome::No(format!(
            "no kept run has figures of {case:?}: siga lab history lists them"
        )));
    }
    if let Some(unknown) = arguments.metric.iter().find(|metric| !known.contains(&metric.as_str()))
    {
        let right = host::near::right(unknown, &known);
        return Err(Outcome::Usage(format!(
            "no kept run of {case} has the metric {unknown:?}: {right}"
        )));
    }
    if arguments.output.json {
        let wanted = &arguments.metric;
        let figures = trend.figures.iter();
        let mut own = figures.filter(|one| wanted.is_empty() || wanted.contains(&one.metric));
        return own.try_for_each(print_json);
    }
    show(&trend.report(&arguments.metric), arguments.format)
}
