//! `siga lab page`: kept results as a page.

use std::fs;
use std::path::PathBuf;

use lab::report;

use serde_json::json;

use super::results_of;
use crate::outcome::Outcome;
use crate::output::{Output, print, print_json, say};

/// Make a page of kept results: one file with plots, for browsers
///
/// The file needs no other, makes no request and runs no script. It is what `siga lab report FILE --format html` prints.
#[derive(Debug, clap::Args)]
pub struct Page {
    /// Files that `siga lab run --json` wrote; `last` is the latest run of this user, and `siga lab history` names the others
    #[arg(value_name = "FILE", default_value = "last")]
    files: Vec<PathBuf>,
    /// Write the page to this file, not to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    talk: Output,
}

/// Makes the page.
pub fn make(arguments: &Page) -> Result<(), Outcome> {
    let mut records = Vec::new();
    for file in &arguments.files {
        records.extend(results_of(file)?.1);
    }
    let page = report::page(&records, &[]);
    let Some(output) = &arguments.output else {
        if arguments.talk.json {
            let right = "must have --output FILE beside it: the page itself is no JSON";
            return Err(Outcome::Usage(format!("--json: {right}")));
        }
        return print(page.trim_end());
    };
    let bytes = page.len();
    fs::write(output, page)
        .map_err(|error| Outcome::No(format!("cannot write {}: {error}", output.display())))?;
    if arguments.talk.json {
        return print_json(&json!({ "file": output.display().to_string(), "bytes": bytes }));
    }
    say(format_args!("{} is written: open it in a browser", output.display()));
    Ok(())
}
