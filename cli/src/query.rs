//! `siga query`: guests, paths, LANs, lines, stacks, adapters, volumes, subchannels and limits.

mod adapters;
mod lans;
mod lines;
mod stacks;
mod units;

use std::thread;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use host::config::Bytes;
use host::report::{
    ControlUnitReport, GuestReport, HalfReport, LimitReport, PathReport, ResourceReport,
    SideReport, SystemReport, VolumeReading, VolumeReport,
};
use siga::error::Violation;
use siga::host::Observer;

use self::adapters::{print_adapters, queues as data_queues, tuning};
use self::lans::{members, print_lans};
use self::lines::{lines, print_lines};
use self::stacks::{drivers, print_stacks};
use self::units::{channel_paths, devices, subchannels, volumes};
use crate::outcome::Outcome;
use crate::output::{Output, print, print_json, table};
use crate::reported::{both, each_driver, guest, is_conversation};
use crate::socket::Socket;

/// Show guests, paths and resources, the members of LANs and their stacks, lines, volumes, subchannels and limits
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Show these alone, one or several [default: all there are]
    #[arg(value_name = "WHAT")]
    subjects: Vec<Subject>,
    /// Show limits too of which nothing is used and nothing was refused
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    /// The guests that are attached
    Guest,
    /// The paths between them
    Path,
    /// The resources they manage
    Resource,
    /// The paths of IUCV and APPC, and the messages on them
    Iucv,
    /// The LANs and their members: addresses, rates over half a second, frames dropped and given back by reason, and what gateways have carried and refused
    Lan,
    /// The lines that the system file describes, with their state, and at each end what the driver counts: messages and bytes, also as rates over half a second
    Line,
    /// TCP/IP stacks of members and TCPIP machines: clients, interfaces, routes, neighbours, the drivers of LANs with rates over half a second, connections, sockets, buffers, counters by reason
    Tcpip,
    /// The adapters and the devices that guests have on them: carrier, addresses and VLANs, packets and bytes, also as rates over half a second, packets in a buffer, drops by reason,
    /// devices that were stopped and why, processor time of the adapters
    Osa,
    /// The queues of these devices: buffers by state, packets and bytes in a buffer, SIGA and interrupts, polls, unproductive wake-ups, packets for which there was no buffer
    Qdio,
    /// The input queues of these devices as the report of tuning has them (type 50): buffers read, real and virtual interrupts, unproductive ones, reads exhausted
    Tuning,
    /// The volumes that guests serve, with their state and the use of their cache, and their devices: who may open which cylinders
    Dasd,
    /// The limits, with their owners: how much each has and may have, how often more was refused, which setting changes it
    Limits,
    /// Channel paths with their information units by kind, and subchannels with their measurement blocks: times for each program
    Channel,
}

/// Over how long rates are taken.
const RATE_TIME: Duration = Duration::from_millis(500);

/// Shows guests, paths and resources.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let Arguments { subjects, all, output, socket } = arguments;
    let observer = Observer::attach(socket.path()?).map_err(Outcome::no)?;
    let mut report = observer.query().map_err(Outcome::no)?;
    if subjects.contains(&Subject::Iucv) && !subjects.contains(&Subject::Path) {
        report.paths.retain(is_conversation);
    }
    // Each of the two subjects is a part of what control units show.
    let is_about = |subject| subjects.is_empty() || subjects.contains(&subject);
    for unit in &mut report.control_units {
        if !is_about(Subject::Dasd) {
            (unit.volumes, unit.devices) = (Vec::new(), Vec::new());
        }
        if !is_about(Subject::Channel) {
            (unit.channel_paths, unit.subchannels) = (Vec::new(), Vec::new());
        }
    }
    if !all {
        report.limits.retain(|limit| limit.used > 0 || limit.refused > 0);
    }
    if output.json {
        return print_json(&part(&report, subjects)?);
    }
    if subjects.is_empty() {
        let tables = [
            guests(&report.guests),
            paths(&report),
            resources(&report.resources),
            members(&report.lans),
            lines(&report.lines),
            volumes(&report.control_units),
            devices(&report.control_units),
        ];
        if report.guests.is_empty() {
            print("no guests")?;
        }
        // The head of an empty table says nothing, unless it was asked for.
        tables.iter().filter(|table| table.row_count() > 0).try_for_each(print)?;
        let empty = report.lans.iter().filter(|lan| lan.members.is_empty());
        for lan in empty {
            print(format!("the LAN {} ({}) has no members", lan.name, lan.range))?;
        }
    }
    for subject in subjects {
        let units = &report.control_units;
        let tables: &[Table] = match subject {
            Subject::Guest => &[guests(&report.guests)],
            Subject::Path => &[paths(&report)],
            Subject::Resource => &[resources(&report.resources)],
            Subject::Iucv => {
                &[conversations(report.paths.iter().filter(|path| is_conversation(path)))]
            }
            Subject::Lan => {
                thread::sleep(RATE_TIME);
                print_lans(&report, &observer.query().map_err(Outcome::no)?)?;
                &[]
            }
            Subject::Line => {
                thread::sleep(RATE_TIME);
                print_lines(&report, &observer.query().map_err(Outcome::no)?)?;
                &[]
            }
            Subject::Tcpip => {
                let mut later = None;
                if each_driver(&report).any(|(_, driver)| driver.processor.is_some()) {
                    thread::sleep(RATE_TIME);
                    later = Some(observer.query().map_err(Outcome::no)?);
                }
                let drivers = drivers(&report, later.as_ref().unwrap_or(&report));
                print_stacks(&report, &drivers)?;
                &[]
            }
            Subject::Osa => {
                thread::sleep(RATE_TIME);
                print_adapters(&report, &observer.query().map_err(Outcome::no)?)?;
                &[]
            }
            Subject::Qdio => &[data_queues(&report)],
            Subject::Tuning => &[tuning(&report)],
            Subject::Dasd => &[volumes(units), devices(units)],
            Subject::Channel => &[channel_paths(units), subchannels(units)],
            Subject::Limits => &[limits(&report.limits)],
        };
        tables.iter().try_for_each(print)?;
    }
    for unit in report.control_units.iter().filter(|_| is_about(Subject::Dasd)) {
        for volume in &unit.volumes {
            for damaged in &volume.damaged_tracks {
                print(format_args!("{}: damaged: {damaged}", volume.file))?;
            }
            if volume.reading == VolumeReading::Refused {
                let VolumeReport { file, .. } = volume;
                let what = "direct reads are refused: its tracks are read through the page cache";
                print(format_args!("{file}: {what}"))?;
            }
        }
    }
    let is_shown = is_about(Subject::Dasd) || is_about(Subject::Channel);
    for unit in report.control_units.iter().filter(|unit| is_shown && unit.not_shown > 0) {
        let ControlUnitReport { guest, not_shown, .. } = unit;
        print(format_args!("{guest} has {not_shown} volumes, devices and subchannels besides"))?;
    }
    Ok(())
}

/// The members of the report that are about the subjects, and the time.
fn part(report: &SystemReport, subjects: &[Subject]) -> Result<serde_json::Value, Outcome> {
    let mut part = serde_json::to_value(report).map_err(Outcome::no)?;
    if subjects.is_empty() {
        return Ok(part);
    }
    let wanted = subjects.iter().flat_map(|subject| match subject {
        Subject::Guest => &["guests"][..],
        Subject::Path | Subject::Iucv => &["paths"],
        Subject::Resource => &["resources"],
        Subject::Lan => &["lans"],
        Subject::Tcpip => &["lans", "stacks"],
        Subject::Line => &["lines"],
        Subject::Osa | Subject::Qdio | Subject::Tuning => &["adapters"],
        Subject::Dasd | Subject::Channel => &["control_units"],
        Subject::Limits => &["limits"],
    });
    let wanted: Vec<&str> = wanted.copied().collect();
    if let Some(members) = part.as_object_mut() {
        members.retain(|name, _| wanted.contains(&name.as_str()) || name == "now_ns");
    }
    let mut without = Vec::new();
    if !subjects.contains(&Subject::Dasd) {
        without.extend([
            "volumes",
            "devices",
            "users",
            "opens_refused",
            "opens_of_second",
            "opens_per_s",
            "opens_waited",
        ]);
    }
    if !subjects.contains(&Subject::Channel) {
        without.extend(["channel_paths", "subchannels"]);
    }
    let units = part.get_mut("control_units").and_then(serde_json::Value::as_array_mut);
    for unit in units.into_iter().flatten().filter_map(serde_json::Value::as_object_mut) {
        unit.retain(|name, _| !without.contains(&name.as_str()));
    }
    Ok(part)
}

fn guests(guests: &[GuestReport]) -> Table {
    let mut table = table(&["guest", "process", "user", "paths", "of", "storage", "of"], 2);
    for guest in guests {
        table.add_row([
            guest.name.clone(),
            guest.process.map_or("-".to_owned(), |process| process.to_string()),
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
fn conversations<'a>(paths: impl Iterator<Item = &'a PathReport>) -> Table {
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

/// The limits, with their owners. Sizes are people's.
fn limits(limits: &[LimitReport]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["owner", "limit", "used", "most", "refused", "setting"]);
    for column in table.column_iter_mut().skip(2).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for LimitReport { owner, limit, used, most, refused, setting, .. } in limits {
        let is_size = limit == "memory" || limit == "storage";
        let amount = |amount: u64| match amount {
            u64::MAX => "-".to_owned(),
            amount if is_size => Bytes(amount).to_string(),
            amount => amount.to_string(),
        };
        table.add_row([
            owner.clone(),
            limit.clone(),
            amount(*used),
            amount(*most),
            refused.to_string(),
            setting.clone(),
        ]);
    }
    table
}

fn queues(side: &SideReport) -> String {
    format!("{} + {}", side.outputs.len(), side.inputs.len())
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
