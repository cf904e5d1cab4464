//! `siga monitor`: what was recorded while something ran.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use lab::interval::{CSV_HEAD, Head, Interval, NO_RECORDS, Texts};

use crate::outcome::Outcome;
use crate::output::{Output, print, say};

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
    let refused = |error: io::Error| {
        Outcome::Usage(format!("{}: {error}: must be a file of interval records", file.display()))
    };
    // A record at a time: files of long trials are large.
    let input = File::open(file).map_err(refused)?;
    let mut texts = Texts::of(BufReader::new(input));
    let none = || refused(io::Error::other(NO_RECORDS));
    let first = texts.next().ok_or_else(none)?.map_err(refused)?;
    let head: Head = serde_json::from_str(&first).map_err(|error| refused(error.into()))?;
    print(if *csv { CSV_HEAD } else { &first })?;
    for text in texts.by_ref() {
        let text = text.map_err(refused)?;
        if *csv {
            let interval = serde_json::from_str::<Interval>(&text);
            let interval = interval.map_err(|error| refused(error.into()))?;
            print(interval.csv(&head).trim_end())?;
        } else {
            print(text)?;
        }
    }
    match texts.bytes_left().map_err(refused)? {
        0 => {}
        bytes => say(format_args!("the last {bytes} bytes are no whole record, and are left out")),
    }
    Ok(())
}
