//! Results: on standard output, for people or for programs. What is said beside them goes to standard error.

use std::io::{ErrorKind, IsTerminal, Write};

use comfy_table::{CellAlignment, Table, presets};

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
        _ => Outcome::No(format!("standard output cannot be written: {error}")),
    })
}

/// A plain table whose columns from `numbers_from` on are numbers.
pub fn table(heads: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heads.to_vec());
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A number of things, as people say it: `1 guest`, `2 guests`.
pub fn counted(count: usize, what: &str) -> String {
    let many = if count == 1 { "" } else { "s" };
    format!("{count} {what}{many}")
}

/// Says something on standard error, and ends the line. A reader that is gone is no reason to end: what is said there is lost.
pub fn say(what: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Says something where that does not wait, from a thread that serves others. Returns false if nothing is said, because nobody reads standard
/// error.
pub fn try_say(what: impl std::fmt::Display) -> bool {
    let is_read = os::poller::is_writable(std::io::stderr());
    if is_read {
        say(what);
    }
    is_read
}

/// Returns true if progress can be drawn: standard error is a terminal, and this command is in its foreground. A command in the
/// background would draw over the output of the one in the foreground.
pub fn can_draw() -> bool {
    let is_in_foreground = || {
        let status = std::fs::read_to_string("/proc/self/stat").ok()?;
        // (proc(5)) After the name: state, parent, group, session, terminal, and the group in the terminal's foreground.
        let fields: Vec<&str> = status.rsplit_once(") ")?.1.split(' ').collect();
        Some(fields.get(2)? == fields.get(5)?)
    };
    std::io::stderr().is_terminal() && is_in_foreground().unwrap_or(true)
}

/// Prints a result as one line of JSON.
///
/// # Errors
/// As [`print`].
pub fn print_json(result: &impl serde::Serialize) -> Result<(), Outcome> {
    print(serde_json::to_string(result).map_err(Outcome::no)?)
}
