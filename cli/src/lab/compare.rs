//! `siga lab compare`: two results that were not measured in turn.

use std::path::PathBuf;

use lab::record;
use lab::report::{self, Change, Wishes};

use super::{Format, broken, results_of, show};
use crate::outcome::Outcome;
use crate::output::{Output, print_json, say};

/// Compare two results: what became better or worse from A to B
///
/// A and B are files that `siga lab run --json` wrote, or kept runs (siga lab history): `last`, `2` for the one before, or when a run
/// began, in UTC: 2026-11-21T09:13. Of a case that was run several times, the latest run counts. Ratios of `siga lab run --against` are
/// more exact: they are of trials that were measured in turn.
///
/// Exit code: 0 if A and B could be compared, 1 if not, 2 for wrong use. With --check: 1 if a figure of B is worse than that of A by more
/// than the margin, with certainty; 4 if none is and some are undecided; 3 if A and B have no figure in common, or anything else
/// went wrong.
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// What is compared with, as the older build
    #[arg(value_name = "A")]
    a: PathBuf,
    /// What is compared, as the newer build
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Only the cases of these names
    #[arg(long, value_name = "CASE")]
    case: Vec<String>,
    /// Compare all metrics, not only those that the cases' tables and claims show
    #[arg(long)]
    all: bool,
    /// How many percent worse a figure may be in a check
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    margin: f64,
    /// Exit with 1 if a figure is worse by more than the margin, with 4 if some are undecided, and with 3 if anything else went wrong
    #[arg(long)]
    check: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text", conflicts_with = "json")]
    format: Format,
    #[command(flatten)]
    output: Output,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=1000.0).contains(percent));
    percent.ok_or_else(|| "must be a number of percent from 0 to 1000".to_owned())
}

pub fn run(arguments: &Compare) -> Result<(), Outcome> {
    let compared = compare(arguments);
    if arguments.check { compared.map_err(broken)?.check() } else { compared.map(|_| ()) }
}

/// What a check is made of.
struct Found {
    worse: Vec<String>,
    undecided: Vec<String>,
}

fn compare(arguments: &Compare) -> Result<Found, Outcome> {
    let read = |name| -> Result<_, Outcome> {
        let (file, mut records) = results_of(name)?;
        let cut = record::interrupted(&records);
        let cut: String = cut.iter().map(|run| format!(", {run}")).collect();
        if arguments.output.json && !cut.is_empty() {
            say(format_args!("warning: {}{cut}", file.display()));
        }
        let file = format!("{}{cut}", file.display());
        let cases = &arguments.case;
        records.retain(|record| cases.is_empty() || cases.contains(&record.case));
        Ok((file, records))
    };
    let ((file_a, a), (file_b, b)) = (read(&arguments.a)?, read(&arguments.b)?);
    let wishes = Wishes { all: arguments.all, margin_percent: arguments.margin };
    let found = report::compare(&a, &b, wishes);
    if arguments.output.json {
        found.compared.iter().try_for_each(print_json)?;
        found.uncompared.iter().try_for_each(print_json)?;
        found.differences.iter().try_for_each(print_json)?;
    } else {
        show(&found.report(&file_a, &file_b, wishes), arguments.format)?;
    }
    if found.compared.is_empty() {
        let what = "A and B have no figure in common that can be compared";
        return Err(Outcome::No(format!("{what}: must be of the same cases and cells")));
    }
    let worse = found.compared.iter().filter(|one| one.is_beyond_margin);
    // What is in one of them only is not known to be as good.
    let mut undecided = found.lines(Change::Undecided, wishes);
    undecided.extend(found.missing());
    let worse = worse.map(|one| found.line(one, wishes)).collect();
    Ok(Found { worse, undecided })
}

impl Found {
    fn check(self) -> Result<(), Outcome> {
        let Found { worse, undecided } = self;
        if !worse.is_empty() {
            return Err(Outcome::No(format!(
                "worse by more than the margin:\n  {}",
                worse.join("\n  ")
            )));
        }
        if !undecided.is_empty() {
            let lines = undecided.join("\n  ");
            return Err(Outcome::Undecided(format!(
                "undecided, more trials in both may decide (--trials):\n  {lines}"
            )));
        }
        Ok(())
    }
}
