//! `siga monitor`: what was recorded while something ran.

use std::path::PathBuf;

use lab::interval;

use crate::outcome::Outcome;
use crate::output::{Output, print};

/// Print records that were kept while something ran
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: MonitorCommand,
}

#[derive(Debug, clap::Subcommand)]
enum MonitorCommand {
    Dump(Dump),
}

/// Print the interval records of a party of a trial
///
/// A JSON line for each record: the first says whose they are, each other one what the party did from the
/// beginning of its window until then. Records that come after one that is not whole are left out.
#[derive(Debug, clap::Args)]
struct Dump {
    /// A file that a case with `interval_ms` has left
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// For spreadsheets: a line for each number, and no JSON
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    _output: Output,
}

/// Prints records.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let MonitorCommand::Dump(Dump { file, csv, .. }) = &arguments.command;
    let refused = |error: std::io::Error| {
        Outcome::Usage(format!("{}: {error}: must be a file of interval records", file.display()))
    };
    let bytes = std::fs::read(file).map_err(refused)?;
    let recorded = interval::parse(&bytes).map_err(refused)?;
    if recorded.bytes_left > 0 {
        let bytes = recorded.bytes_left;
        eprintln!("the last {bytes} bytes are no whole record, and are left out");
    }
    if *csv {
        print(recorded.csv().trim_end())
    } else {
        print(interval::texts(&bytes).0.join("\n"))
    }
}
