//! `siga query`: guests and paths.

use comfy_table::{CellAlignment, Table, presets};
use host::config::Bytes;
use host::report::{GuestReport, PathReport, PathState, SideReport, SystemReport};
use siga::Observer;

use crate::outcome::Outcome;
use crate::socket::Socket;

/// Show the guests that are attached and the paths between them
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print the host's whole report as JSON, with all counters
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

/// Shows guests and paths.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let observer = Observer::attach(arguments.socket.path()?).map_err(Outcome::no)?;
    let report = observer.query().map_err(Outcome::no)?;
    if arguments.json {
        println!("{}", serde_json::to_string(&report).map_err(Outcome::no)?);
        return Ok(());
    }
    println!("{}", guests(&report.guests));
    println!("{}", paths(&report));
    Ok(())
}

fn guests(guests: &[GuestReport]) -> Table {
    let mut table = table(&["guest", "process", "user", "paths", "of", "storage", "of"], 2);
    for guest in guests {
        table.add_row([
            guest.name.clone(),
            guest.process.to_string(),
            guest.user.to_string(),
            guest.paths.to_string(),
            guest.paths_max.to_string(),
            Bytes(guest.storage_bytes).to_string(),
            Bytes(guest.storage_bytes_max).to_string(),
        ]);
    }
    table
}

fn paths(report: &SystemReport) -> Table {
    let heads = ["path", "from", "to", "state", "queues", "messages", "bytes", "lent", "ended"];
    let mut table = table(&heads, 5);
    for path in &report.paths {
        table.add_row([
            path.path.to_string(),
            guest(path, 0),
            guest(path, 1),
            state(path.state).to_owned(),
            path.sides.first().map_or(String::new(), queues),
            both(path, "messages").to_string(),
            both(path, "bytes").to_string(),
            Bytes(both(path, "lent_bytes")).to_string(),
            violations(path),
        ]);
    }
    table
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

pub fn guest(path: &PathReport, side: usize) -> String {
    path.sides.get(side).map_or("-".to_owned(), |side| side.guest.clone())
}

pub fn state(state: PathState) -> &'static str {
    match state {
        PathState::Pending => "pending",
        PathState::Joined => "joined",
        PathState::Rejoining => "rejoining",
    }
}

fn queues(side: &SideReport) -> String {
    format!("{} + {}", side.outputs.len(), side.inputs.len())
}

/// What the sending halves of both sides have counted.
pub fn both(path: &PathReport, counter: &str) -> u64 {
    let halves = path.sides.iter().flat_map(|side| &side.outputs);
    halves.filter_map(|half| half.counts.get(counter)).sum()
}

fn violations(path: &PathReport) -> String {
    let halves = path.sides.iter().flat_map(|side| side.outputs.iter().chain(&side.inputs));
    let count: u64 = halves.filter_map(|half| half.counts.get("violations")).sum();
    if count == 0 { String::new() } else { "a side broke the rules".to_owned() }
}
