//! `siga query`: guests, paths, LANs, lines, stacks, volumes, subchannels and limits.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use host::config::Bytes;
use host::report::{
    ControlUnitReport, Counts, GuestReport, HalfReport, LanReport, LimitReport, LineEndReport,
    LineReport, LineState, MemberReport, PathReport, ResourceReport, SideReport, SocketReport,
    StackDriverReport, StackReport, SubchannelReport, SystemReport, VolumeReading, VolumeReport,
};
use siga::connect::Kind;
use siga::error::Violation;
use siga::host::Observer;

use crate::outcome::Outcome;
use crate::output::{Output, counted, print, print_json};
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

/// Returns true if a path is one of IUCV or APPC.
pub fn is_conversation(path: &PathReport) -> bool {
    [Kind::IUCV, Kind::APPC].iter().any(|kind| kind.to_string() == path.kind)
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

/// The volumes of all control units.
fn volumes(units: &[ControlUnitReport]) -> Table {
    let heads = [
        "control unit",
        "volume",
        "state",
        "reads",
        "writes",
        "sync",
        "file",
        "cylinders",
        "cached tracks",
        "of",
        "pinned",
        "hits",
        "misses",
    ];
    let mut table = table(&heads, 7);
    for (unit, volume) in units.iter().flat_map(|unit| {
        let volumes = unit.volumes.iter();
        volumes.map(move |volume| (unit, volume))
    }) {
        table.add_row([
            unit.guest.clone(),
            volume.volume.clone(),
            match &volume.failure {
                Some(why) => format!("{}: {why}", volume.state),
                None => volume.state.to_string(),
            },
            volume.reading.to_string(),
            volume.writing.map_or_else(|| "-".to_owned(), |writing| writing.to_string()),
            volume.sync.map_or_else(|| "-".to_owned(), |sync| sync.to_string()),
            volume.file.clone(),
            volume.cylinders.to_string(),
            volume.cache_tracks.to_string(),
            volume.cache_tracks_max.to_string(),
            volume.cache_tracks_pinned.to_string(),
            volume.cache_hits.to_string(),
            volume.cache_misses.to_string(),
        ]);
    }
    table
}

/// The devices of all control units, by guest.
fn devices(units: &[ControlUnitReport]) -> Table {
    let heads = [
        "guest",
        "device",
        "kind",
        "access",
        "cache",
        "control unit",
        "volume",
        "cylinders",
        "from",
        "open",
    ];
    let mut table = table(&heads, 7);
    let mut devices: Vec<_> = units
        .iter()
        .flat_map(|unit| unit.devices.iter().map(move |device| (unit, device)))
        .collect();
    devices.sort_by_key(|(_, device)| (&device.guest, &device.device));
    for (unit, device) in devices {
        let of_volume = unit.volumes.iter().find(|volume| volume.number == device.volume_number);
        // A name that another volume has too says nothing: the file does.
        let mut others = unit.volumes.iter().filter(|other| other.number != device.volume_number);
        let is_shared = others.any(|other| other.volume == device.volume);
        let volume = match of_volume.filter(|_| is_shared) {
            Some(volume) => format!("{} ({})", device.volume, volume.file),
            None => device.volume.clone(),
        };
        let is_whole = device.first_cylinder == 0
            && of_volume.is_some_and(|volume| volume.cylinders == device.cylinders);
        let others = if device.has_others { ".." } else { "" };
        table.add_row([
            device.guest.as_ref().map_or("any".to_owned(), |guest| format!("{guest}{others}")),
            device.device.clone(),
            match (device.dedicated, is_whole) {
                (true, _) => "dedicated",
                (false, true) => "full-pack",
                (false, false) => "minidisk",
            }
            .to_owned(),
            if device.read_only { "read" } else { "write" }.to_owned(),
            if device.cache { "on" } else { "off" }.to_owned(),
            unit.guest.clone(),
            volume,
            device.cylinders.to_string(),
            device.first_cylinder.to_string(),
            device.open.to_string(),
        ]);
    }
    table
}

/// The channel paths of all control units, with a row for each kind of unit that has crossed them.
fn channel_paths(units: &[ControlUnitReport]) -> Table {
    let heads = ["control unit", "channel path", "information unit", "guests", "count"];
    let mut table = table(&heads, 3);
    for unit in units {
        for path in &unit.channel_paths {
            let nothing = || std::iter::once(("-", 0));
            let counts: Vec<(&str, u64)> = match path.units.is_empty() {
                true => nothing().collect(),
                false => path.units.iter().map(|(kind, count)| (kind.as_str(), *count)).collect(),
            };
            for (kind, count) in counts {
                table.add_row([
                    unit.guest.clone(),
                    path.channel_path.to_string(),
                    kind.to_owned(),
                    path.guests.to_string(),
                    count.to_string(),
                ]);
            }
        }
    }
    table
}

/// The subchannels of all control units, with mean times of their samples in microseconds.
fn subchannels(units: &[ControlUnitReport]) -> Table {
    let heads = [
        "control unit",
        "guest",
        "device",
        "subchannel",
        "path",
        "starts",
        "samples",
        "pending us",
        "connect us",
        "disconnect us",
        "queuing us",
        "active us",
        "response us",
    ];
    let mut table = table(&heads, 3);
    // What a guest says of others is its own affair: so it is said whose words these are.
    let each = |unit: &ControlUnitReport| (unit.guest.clone(), unit.subchannels.clone());
    let each = units.iter().map(each).flat_map(|(unit, subchannels)| {
        subchannels.into_iter().map(move |subchannel| (unit.clone(), subchannel))
    });
    for (unit, subchannel) in each {
        let SubchannelReport { guest, device, samples, .. } = &subchannel;
        let mean = |total_ns: u64| match samples {
            0 => "-".to_owned(),
            samples => format!("{:.1}", total_ns as f64 / *samples as f64 / 1e3),
        };
        table.add_row([
            unit,
            guest.clone(),
            device.clone(),
            subchannel.subchannel.to_string(),
            subchannel.channel_path.to_string(),
            subchannel.starts.to_string(),
            samples.to_string(),
            mean(subchannel.function_pending_ns),
            mean(subchannel.connect_ns),
            mean(subchannel.disconnect_ns),
            mean(subchannel.control_unit_queuing_ns),
            mean(subchannel.device_active_only_ns),
            mean(subchannel.initial_command_response_ns),
        ]);
    }
    table
}

/// The members of all LANs.
fn members(lans: &[LanReport]) -> Table {
    let heads =
        ["lan", "member", "guest", "MAC", "addresses", "VLANs", "captures", "passes on from"];
    let mut table = table(&heads, 8);
    for lan in lans {
        for member in &lan.members {
            let vlans: Vec<String> = member.vlans.iter().map(ToString::to_string).collect();
            table.add_row([
                lan.name.clone(),
                member.number.to_string(),
                member.guest.clone(),
                member.mac.clone(),
                member.addresses.join(" "),
                vlans.join(" "),
                if member.captures { "yes" } else { "" }.to_owned(),
                passes_from(member),
            ]);
        }
    }
    table
}

/// The networks from which a member passes packets on into its LAN.
fn passes_from(member: &MemberReport) -> String {
    match (member.routes, &member.routes_from[..]) {
        (false, _) => String::new(),
        (true, []) => "all".to_owned(),
        (true, networks) => networks.join(" "),
    }
}

/// The lines and their ends.
fn lines(lines: &[LineReport]) -> Table {
    let heads = ["line", "kind", "MTU", "state", "guest", "address", "guest", "address", "missing"];
    let mut table = table(&heads, 2);
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for line in lines {
        let ends = line.ends.iter().flat_map(|end| [end.guest.clone(), end.address.clone()]);
        let head =
            [line.name.clone(), line.kind.clone(), line.mtu.to_string(), state_of(line).to_owned()];
        table.add_row(head.into_iter().chain(ends).chain([missing(line)]));
    }
    table
}

/// Names the guests that a line that is down lacks, or what they lack.
pub fn missing(line: &LineReport) -> String {
    let lacking = |has: fn(&LineEndReport) -> bool| -> Vec<&str> {
        let ends = line.ends.iter().filter(|end| !has(end));
        ends.map(|end| end.guest.as_str()).collect()
    };
    let (absent, apart) = (lacking(|end| end.is_attached), lacking(|end| end.is_connected));
    match (&absent[..], &apart[..], line.kind.as_str()) {
        _ if line.state == LineState::Up => String::new(),
        ([one], ..) => format!("{one} is not attached"),
        ([one, other, ..], ..) => format!("{one} and {other} are not attached"),
        (_, [one], "ctc") => format!("{one} has not opened its end of the adapter"),
        (_, [one, other, ..], "ctc") => {
            format!("{one} and {other} have not opened their ends of the adapter")
        }
        (_, [one], _) => format!("{one} does not say that its path is this line"),
        (_, [one, other, ..], _) => format!("{one} and {other} have no path for this line"),
        (_, [], _) => "the ends are still connecting".to_owned(),
    }
}

/// Returns the state of a line in a word.
fn state_of(line: &LineReport) -> &'static str {
    match line.state {
        LineState::Up => "up",
        LineState::Down => "down",
        _ => "-",
    }
}

/// The lines, and what their drivers do.
fn print_lines(before: &SystemReport, report: &SystemReport) -> Result<(), Outcome> {
    print(lines(&report.lines))?;
    let heads = [
        "line",
        "guest",
        "messages/s",
        "bytes/s",
        "sent",
        "of several packets",
        "most in one",
        "us each",
        "received",
        "dropped",
    ];
    let mut drivers = table(&heads, 2);
    let seconds = report.now_ns.saturating_sub(before.now_ns).max(1) as f64 / 1e9;
    let each = |report: &SystemReport| {
        let ends = report.lines.iter().flat_map(|line| {
            let end = |end: &LineEndReport| ((line.name.clone(), end.guest.clone()), end.driver);
            line.ends.iter().map(end).collect::<Vec<_>>()
        });
        ends.collect::<BTreeMap<_, _>>()
    };
    let old = each(before);
    for (name, driver) in each(report) {
        let Some(driver) = driver else { continue };
        // A line that was down half a second ago has counted all since.
        let then = old.get(&name).copied().flatten().unwrap_or_default();
        let rate =
            |now: u64, then: u64| format!("{:.0}", now.saturating_sub(then) as f64 / seconds);
        let each_us = driver.sending_ns as f64 / driver.messages_sent.max(1) as f64 / 1e3;
        let (line, guest) = name;
        drivers.add_row([
            line,
            guest,
            rate(driver.messages_sent, then.messages_sent),
            rate(driver.bytes_sent, then.bytes_sent),
            driver.messages_sent.to_string(),
            driver.sent_multi.to_string(),
            driver.packets_per_message_max.to_string(),
            format!("{each_us:.1}"),
            driver.messages_received.to_string(),
            driver.dropped.to_string(),
        ]);
    }
    match drivers.row_count() {
        0 => Ok(()),
        _ => print(format!("\n{drivers}")),
    }
}

/// All LANs, with rates between two reports.
fn print_lans(before: &SystemReport, report: &SystemReport) -> Result<(), Outcome> {
    let mut lans = table(&["lan", "range", "MTU", "largest frame", "members"], 2);
    for lan in &report.lans {
        lans.add_row([
            lan.name.clone(),
            lan.range.clone(),
            lan.mtu.to_string(),
            Bytes(lan.frame_bytes.into()).to_string(),
            lan.members.len().to_string(),
        ]);
    }
    print(&lans)?;
    let members = members(&report.lans);
    if members.row_count() == 0 {
        return Ok(());
    }
    print(format!("\n{members}\n"))?;
    let old: BTreeMap<_, _> = each_member(before).collect();
    let heads = [
        "lan",
        "guest",
        "sent/s",
        "bytes/s",
        "received/s",
        "bytes/s",
        "sent",
        "received",
        "dropped and given back",
    ];
    let mut rates = table(&heads, 2);
    let seconds = report.now_ns.saturating_sub(before.now_ns).max(1) as f64 / 1e9;
    for (name, MemberReport { counters, .. }) in each_member(report) {
        let count = |counters: &Counts, what: &str| counters.get(what).copied().unwrap_or(0);
        let rate = |what: &str| {
            let then = old.get(&name).map_or(0, |old| count(&old.counters, what));
            let more = count(counters, what).saturating_sub(then);
            format!("{:.0}", more as f64 / seconds)
        };
        // Everything else is what went by.
        let rest = counters
            .iter()
            .filter(|(what, _)| !what.ends_with("sent") && !what.ends_with("received"));
        let rest: Vec<String> = rest.map(|(what, count)| format!("{what} {count}")).collect();
        let (lan, guest) = name;
        rates.add_row([
            lan.to_owned(),
            guest.to_owned(),
            rate("frames_sent"),
            rate("bytes_sent"),
            rate("frames_received"),
            rate("bytes_received"),
            count(counters, "frames_sent").to_string(),
            count(counters, "frames_received").to_string(),
            rest.join(", "),
        ]);
    }
    print(&rates)?;
    let mut gateways = table(&["lan", "gateway", "carried and refused"], 2);
    for ((lan, guest), MemberReport { stack, .. }) in each_member(report) {
        let counters = stack.iter().flat_map(|stack| &stack.counters);
        let outside =
            counters.filter_map(|(what, count)| Some((what.strip_prefix("outside_")?, count)));
        let outside: Vec<String> = outside.map(|(what, count)| format!("{what} {count}")).collect();
        if !outside.is_empty() {
            gateways.add_row([lan.to_owned(), guest.to_owned(), outside.join(", ")]);
        }
    }
    match gateways.is_empty() {
        true => Ok(()),
        false => print(format!("\n{gateways}")),
    }
}

/// All stacks.
fn print_stacks(report: &SystemReport, drivers: &Table) -> Result<(), Outcome> {
    let SystemReport { lans, lines, .. } = report;
    let heads = [
        "lan or line",
        "stack",
        "connections",
        "time-wait",
        "buffers in use",
        "most so far",
        "limit",
        "free",
        "bytes of one",
    ];
    let mut overviews = table(&heads, 2);
    let heads = ["stack", "lan or line", "VLAN", "address", "MAC", "MTU", "passes on from"];
    let mut interfaces = table(&heads, 5);
    let heads = ["stack", "line", "state", "address", "partner", "partner's address"];
    let mut ends = table(&heads, 6);
    let mut routes = table(&["stack", "destination", "over", "lan or line"], 4);
    let mut neighbours = table(&["lan", "address", "MAC", "guest"], 4);
    let heads = [
        "stack",
        "state",
        "local",
        "remote",
        "unacknowledged B",
        "unread B",
        "segments resent",
        "round trip",
    ];
    let mut connections = table(&heads, 4);
    let mut sockets = table(&["stack", "socket", "local", "waiting", "at most"], 3);
    let heads = [
        "stack",
        "client",
        "sockets",
        "limit",
        "buffers",
        "limit",
        "requests",
        "B in",
        "B out",
        "refused",
        "turns cut",
    ];
    let mut clients = table(&heads, 2);
    let mut counters = table(&["stack", "counted"], 2);
    let mut unshown = Vec::new();
    for one in each_stack(report) {
        let StackOf { place, member, stack, .. } = one;
        let (name, pool) = (one.name(), &stack.pool);
        overviews.add_row([
            place.to_owned(),
            name.to_owned(),
            stack.connections.to_string(),
            stack.time_wait.to_string(),
            pool.in_use.to_string(),
            pool.high_water.to_string(),
            pool.in_use_max.to_string(),
            pool.free.to_string(),
            pool.buffer_bytes.to_string(),
        ]);
        // The LANs and lines that the stack is at.
        let mut own = vec![place];
        for interface in &stack.interfaces {
            let address = interface.address.to_string();
            let end = end_at(lines, &address);
            // A stack at several LANs is several members.
            let (at, of) = match (interface.lan, member) {
                (0, Some(_)) => (place, member),
                _ => {
                    let others = lans.iter().filter(|other| other.name != place);
                    let line = end.map(|(line, ..)| (line.name.as_str(), None));
                    lan_of(others, &address).or(line).unwrap_or(("-", None))
                }
            };
            if let Some((line, own, partner)) = end {
                ends.add_row([
                    name,
                    &line.name,
                    state_of(line),
                    &own.address,
                    &partner.guest,
                    &partner.address,
                ]);
            }
            own.push(at);
            interfaces.add_row([
                name.to_owned(),
                at.to_owned(),
                interface.vlan.map_or("-".to_owned(), |vlan| vlan.to_string()),
                address,
                of.map_or("-".to_owned(), |of| of.mac.clone()),
                interface.mtu.to_string(),
                match interface.forwards {
                    true => of.map_or("all".to_owned(), passes_from),
                    false => "-".to_owned(),
                },
            ]);
            let range = lans.iter().find(|lan| lan.name == at).map(|lan| lan.range.as_str());
            let peer = end.map(|(.., partner)| partner.address.as_str());
            let to = range.or(peer).unwrap_or("-");
            let row = [name, to, "-", at].map(str::to_owned);
            if interface.vlan.is_none() {
                routes.add_row(row);
            }
        }
        for route in &stack.routes {
            let via = route.via.to_string();
            let at = lans.iter().filter(|lan| own.contains(&lan.name.as_str()));
            let at = lan_of(at, &via)
                .map(|(lan, _)| lan)
                .or_else(|| end_at(lines, &via).map(|(line, ..)| line.name.as_str()));
            let at = at.filter(|_| route.is_there).unwrap_or("nobody is there");
            routes.add_row([name, &route.to, &via, at]);
        }
        for client in &stack.clients {
            clients.add_row([
                name.to_owned(),
                client.guest.clone(),
                client.sockets.to_string(),
                client.sockets_max.to_string(),
                Bytes(client.buffers_bytes).to_string(),
                Bytes(client.buffers_bytes_max).to_string(),
                client.requests.to_string(),
                client.bytes_in.to_string(),
                client.bytes_out.to_string(),
                client.refused.to_string(),
                client.turns_cut.to_string(),
            ]);
        }
        let mut shown = 0;
        for socket in &stack.sockets {
            match socket.remote {
                Some(remote) => {
                    shown += 1;
                    connections.add_row(connection_row(name, socket, remote));
                }
                None => {
                    sockets.add_row(socket_row(name, socket));
                }
            }
        }
        if stack.connections > shown {
            unshown.push((name, stack.connections - shown));
        }
        let counted = stack.counters.iter().map(|(what, count)| format!("{what} {count}"));
        counters.add_row([name.to_owned(), counted.collect::<Vec<_>>().join(", ")]);
    }
    for lan in lans {
        for member in &lan.members {
            for address in &member.addresses {
                neighbours.add_row([&lan.name, address, &member.mac, &member.guest]);
            }
        }
    }
    if overviews.row_count() == 0 {
        return print(overviews);
    }
    let parts = [&overviews, &clients, drivers, &interfaces, &ends, &routes, &neighbours];
    let parts = parts.into_iter().chain([&connections, &sockets]);
    for part in parts.filter(|part| part.row_count() > 0) {
        print(format!("{part}\n"))?;
    }
    for (guest, count) in unshown {
        print(format!(
            "{guest} has {count} connections more, which it does not show one by one.\n"
        ))?;
    }
    print(&counters)
}

/// The drivers of all stacks, with rates between two reports.
fn drivers(before: &SystemReport, report: &SystemReport) -> Table {
    let heads = [
        "stack",
        "lan",
        "driver",
        "polls/s",
        "frames in/s",
        "frames out/s",
        "CPU %",
        "polls",
        "empty",
        "frames in",
        "frames out",
        "waited",
        "dropped",
        "sleeps",
        "CPU s",
        "takeovers",
        "moves",
    ];
    let mut table = table(&heads, 3);
    let seconds = report.now_ns.saturating_sub(before.now_ns).max(1) as f64 / 1e9;
    let old: BTreeMap<_, _> = each_driver(before).collect();
    for (name, driver) in each_driver(report) {
        let more = |count: fn(&StackDriverReport) -> u64| {
            let then = old.get(&name).map_or(0, |then| count(then));
            count(driver).saturating_sub(then) as f64 / seconds
        };
        let rate = |count| format!("{:.0}", more(count));
        let (guest, _) = name;
        table.add_row([
            guest.to_owned(),
            driver.name.clone(),
            driver.processor.map_or("inline".to_owned(), |number| format!("processor {number}")),
            rate(|driver| driver.polls),
            rate(|driver| driver.frames_in),
            rate(|driver| driver.frames_out),
            format!("{:.0}", more(|driver| driver.processor_ns) / 1e7),
            driver.polls.to_string(),
            driver.polls_empty.to_string(),
            driver.frames_in.to_string(),
            driver.frames_out.to_string(),
            driver.frames_waited.to_string(),
            driver.frames_dropped.to_string(),
            driver.sleeps.to_string(),
            format!("{:.3}", driver.processor_ns as f64 / 1e9),
            driver.takeovers.to_string(),
            driver.moves.to_string(),
        ]);
    }
    table
}

/// The drivers of all stacks, by the name of the stack and the number of the LAN.
pub fn each_driver(
    report: &SystemReport,
) -> impl Iterator<Item = ((&str, u16), &StackDriverReport)> {
    each_stack(report).flat_map(|one| {
        let drivers = one.stack.drivers.iter();
        drivers.map(move |driver| ((one.name(), driver.lan), driver))
    })
}

/// A stack, and where it shows itself.
#[derive(Clone, Copy, Debug)]
pub struct StackOf<'a> {
    /// The LAN, or the line of a stack that is at lines alone.
    pub place: &'a str,
    /// The guest there.
    pub guest: &'a str,
    /// The guest's membership. None at a line.
    pub member: Option<&'a MemberReport>,
    pub stack: &'a StackReport,
}

impl<'a> StackOf<'a> {
    /// What the stack is called: as the TCPIP machine that it is, or as the guest that shows it.
    pub fn name(&self) -> &'a str {
        self.stack.machine.as_deref().unwrap_or(self.guest)
    }
}

/// All stacks: those at LANs, then those at lines alone.
pub fn each_stack(report: &SystemReport) -> impl Iterator<Item = StackOf<'_>> {
    let members = each_member(report).filter_map(|((place, guest), member)| {
        Some(StackOf { place, guest, member: Some(member), stack: member.stack.as_ref()? })
    });
    let at_lines = report.stacks.iter().map(|of| {
        let is_end = |line: &&LineReport| line.ends.iter().any(|end| end.guest == of.guest);
        let line = report.lines.iter().find(is_end);
        // A line that the system file does not describe has no name that the host knows.
        let place = line.map_or("-", |line| line.name.as_str());
        StackOf { place, guest: &of.guest, member: None, stack: &of.stack }
    });
    members.chain(at_lines)
}

/// The first of some LANs of which a member has this address, and the member.
fn lan_of<'a>(
    lans: impl Iterator<Item = &'a LanReport>,
    address: &str,
) -> Option<(&'a str, Option<&'a MemberReport>)> {
    let mut members =
        lans.flat_map(|lan| lan.members.iter().map(|member| (lan.name.as_str(), member)));
    let found = members.find(|(_, member)| member.addresses.iter().any(|own| own == address));
    found.map(|(lan, member)| (lan, Some(member)))
}

/// The first line at one of whose ends an address is, that end, and the other.
fn end_at<'a>(
    lines: &'a [LineReport],
    address: &str,
) -> Option<(&'a LineReport, &'a LineEndReport, &'a LineEndReport)> {
    let mut pairs = lines.iter().filter_map(|line| Some((line, line.ends.first_chunk::<2>()?)));
    pairs.find_map(|(line, [one, other])| match address {
        _ if one.address == address => Some((line, one, other)),
        _ if other.address == address => Some((line, other, one)),
        _ => None,
    })
}

fn connection_row(guest: &str, socket: &SocketReport, remote: SocketAddr) -> [String; 8] {
    let round_trip = match socket.round_trip_ns {
        0 => "-".to_owned(),
        time => format!("{:?}", Duration::from_nanos(time / 100 * 100)),
    };
    [
        guest.to_owned(),
        socket.state.clone(),
        socket.local.to_string(),
        remote.to_string(),
        socket.send_queue.to_string(),
        socket.receive_queue.to_string(),
        socket.resent.to_string(),
        round_trip,
    ]
}

/// A listener with the connections that wait to be accepted, or a socket of UDP with datagrams that wait to be received.
fn socket_row(guest: &str, socket: &SocketReport) -> [String; 5] {
    let SocketReport { state, local, send_queue, receive_queue, .. } = socket;
    // The queues of a listener are its backlog, and what is in that.
    let (waiting, most) = match state.as_str() {
        "listen" => (counted(*receive_queue as usize, "connection"), send_queue.to_string()),
        _ => (counted(*receive_queue as usize, "datagram"), "-".to_owned()),
    };
    [guest.to_owned(), state.clone(), local.to_string(), waiting, most]
}

/// Each member of each LAN, by the names of the LAN and of the guest.
pub fn each_member(report: &SystemReport) -> impl Iterator<Item = ((&str, &str), &MemberReport)> {
    report.lans.iter().flat_map(|lan| {
        let members = lan.members.iter();
        members.map(|member| ((lan.name.as_str(), member.guest.as_str()), member))
    })
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

/// Adds up a counter of the sending halves of both sides.
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
