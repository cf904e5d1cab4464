//! Results: on standard output, for people or for programs.

use std::io::{ErrorKind, Write};

use crate::outcome::Outcome;

/// The option that asks for results as JSON.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Output {
    /// Print the result as JSON, one object in each line: docs/json.md describes the objects
    #[arg(long)]
    pub json: bool,
}

/// Prints a result and a line's end.
///
/// # Errors
/// [`Outcome::Unread`] if the reader of standard output has read enough.
pub fn print(result: impl std::fmt::Display) -> Result<(), Outcome> {
    writeln!(std::io::stdout(), "{result}").map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Outcome::Unread,
        _ => Outcome::no(error),
    })
}

/// Prints a result as one line of JSON.
///
/// # Errors
/// As [`print`].
pub fn print_json(result: &impl serde::Serialize) -> Result<(), Outcome> {
    print(serde_json::to_string(result).map_err(Outcome::no)?)
}
