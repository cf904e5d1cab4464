//! `siga query`: guests and paths.

use comfy_table::{CellAlignment, Table, presets};
use host::config::Bytes;
use host::report::{GuestReport, HalfReport, PathReport, ResourceReport, SideReport, SystemReport};
use siga::connect::Kind;
use siga::error::Violation;
use siga::host::Observer;

use crate::outcome::Outcome;
use crate::output::{Output, print, print_json};
use crate::socket::Socket;

/// Show the guests that are attached, the paths between them, and the resources they manage
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Show these alone [default: all there are]
    #[arg(value_name = "WHAT")]
    subject: Option<Subject>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Subject {
    /// The guests that are attached
    Guest,
    /// The paths between them
    Path,
    /// The resources they manage
    Resource,
    /// The paths of IUCV and APPC, and the messages on them
    Iucv,
}

/// Shows guests, paths and resources.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let observer = Observer::attach(arguments.socket.path()?).map_err(Outcome::no)?;
    let mut report = observer.query().map_err(Outcome::no)?;
    if arguments.subject == Some(Subject::Iucv) {
        let kinds = [Kind::IUCV, Kind::APPC].map(|kind| kind.to_string());
        report.paths.retain(|path| kinds.contains(&path.kind));
    }
    if arguments.output.json {
        return print_json(&part(&report, arguments.subject)?);
    }
    let tables: &[Table] = match arguments.subject {
        None => &[guests(&report.guests), paths(&report), resources(&report.resources)],
        Some(Subject::Guest) => &[guests(&report.guests)],
        Some(Subject::Path) => &[paths(&report)],
        Some(Subject::Resource) => &[resources(&report.resources)],
        Some(Subject::Iucv) => &[conversations(&report.paths)],
    };
    // Nobody misses the head of an empty table, unless he asked for it.
    for table in tables.iter().filter(|table| tables.len() == 1 || table.row_count() > 0) {
        print(table)?;
    }
    Ok(())
}

/// The members of the report that are about the subject, and the time.
fn part(report: &SystemReport, subject: Option<Subject>) -> Result<serde_json::Value, Outcome> {
    let mut part = serde_json::to_value(report).map_err(Outcome::no)?;
    let wanted = subject.map(|subject| match subject {
        Subject::Guest => "guests",
        Subject::Path | Subject::Iucv => "paths",
        Subject::Resource => "resources",
    });
    if let (Some(wanted), Some(members)) = (wanted, part.as_object_mut()) {
        members.retain(|name, _| name == wanted || name == "now_ns");
    }
    Ok(part)
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
    let heads =
        ["path", "from", "to", "kind", "state", "queues", "messages", "bytes", "lent", "ended"];
    let mut table = table(&heads, 6);
    for path in &report.paths {
        table.add_row([
            path.path.to_string(),
            guest(path, 0),
            guest(path, 1),
            path.kind.clone(),
            path.state.to_string(),
            path.sides.first().map_or(String::new(), queues),
            both(path, "messages").to_string(),
            both(path, "bytes").to_string(),
            Bytes(both(path, "lent_bytes")).to_string(),
            violations(path),
        ]);
    }
    table
}

/// Paths of IUCV and APPC, each way: how many messages may be outstanding, and where those are that were sent
/// and not seen off.
fn conversations(paths: &[PathReport]) -> Table {
    let heads = [
        "path",
        "from",
        "to",
        "kind",
        "state",
        "limit",
        "outstanding",
        "unreceived",
        "unreplied",
        "untaken",
    ];
    let mut table = table(&heads, 5);
    for path in paths {
        for (from, to) in [(0, 1), (1, 0)] {
            let output = path.sides.get(from).and_then(|side| side.outputs.first());
            let input = path.sides.get(to).and_then(|side| side.inputs.first());
            let in_queue = count(output, "messages").saturating_sub(count(input, "messages"));
            let limit = output.and_then(|half| half.limit);
            table.add_row([
                path.path.to_string(),
                guest(path, from),
                guest(path, to),
                path.kind.clone(),
                path.state.to_string(),
                limit.map_or("-".to_owned(), |limit| limit.to_string()),
                count(output, "outstanding").to_string(),
                in_queue.saturating_add(count(input, "waiting")).to_string(),
                count(input, "outstanding").to_string(),
                count(output, "waiting").to_string(),
            ]);
        }
    }
    table
}

/// A counter of a half, which is what its guest says: any number.
fn count(half: Option<&HalfReport>, counter: &str) -> u64 {
    half.and_then(|half| half.counts.get(counter)).copied().unwrap_or(0)
}

fn resources(resources: &[ResourceReport]) -> Table {
    let mut table = table(&["resource", "scope", "manager"], 3);
    for resource in resources {
        table.add_row([&resource.name, &resource.scope.to_string(), &resource.manager]);
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

fn queues(side: &SideReport) -> String {
    format!("{} + {}", side.outputs.len(), side.inputs.len())
}

/// What the sending halves of both sides have counted.
pub fn both(path: &PathReport, counter: &str) -> u64 {
    let halves = path.sides.iter().flat_map(|side| &side.outputs);
    let counts = halves.filter_map(|half| half.counts.get(counter));
    counts.fold(0, |sum, count| sum.saturating_add(*count))
}

/// Who has seen the other side break which rule.
fn violations(path: &PathReport) -> String {
    let mut seen = Vec::new();
    for side in &path.sides {
        for half in side.outputs.iter().chain(&side.inputs) {
            let code = half.counts.get("violation").copied().unwrap_or(0);
            if let Some(violation) = Violation::ALL.into_iter().find(|one| *one as u64 == code) {
                seen.push(format!("{} ended it: {violation}", side.guest));
            }
        }
    }
    seen.join("; ")
}
