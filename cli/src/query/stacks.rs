//! TCP/IP stacks, the clients of TCPIP machines, and drivers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use comfy_table::Table;
use host::config::Bytes;
use host::report::{
    AdapterReport, DistributedReport, InterfaceReport, LanReport, LineEndReport, LineReport,
    MemberReport, SocketReport, StackDriverReport, SystemReport,
};
use host::system::machine::member_name;

use super::lans::passes_from;
use super::lines::state_of;
use crate::outcome::Outcome;
use crate::output::{counted, print, table};
use crate::reported::{StackOf, each_driver, each_stack};

/// Prints all stacks, a table for each thing that they have.
pub fn print_stacks(report: &SystemReport, drivers: &Table) -> Result<(), Outcome> {
    let overviews = overviews(report);
    if overviews.row_count() == 0 {
        return print(overviews);
    }
    let (clients, interfaces, ends) = (clients(report), interfaces(report), ends(report));
    let (routes, neighbours) = (routes(report), neighbours(&report.lans));
    let (connections, sockets) = (connections(report), sockets(report));
    let (distributed, targets) = (distributed(report), targets(report));
    let parts = [&overviews, &clients, drivers, &interfaces, &ends, &routes, &neighbours];
    let parts = parts.into_iter().chain([&distributed, &targets, &connections, &sockets]);
    for part in parts.filter(|part| part.row_count() > 0) {
        print(format!("{part}\n"))?;
    }
    for one in each_stack(report) {
        let shown = one.stack.sockets.iter().filter(|socket| socket.remote.is_some()).count();
        let count = one.stack.connections.saturating_sub(shown as u64);
        if count > 0 {
            let what = "connections more, which it does not show one by one";
            print(format!("{} has {count} {what}.\n", one.name()))?;
        }
    }
    print(counters(report))
}

fn overviews(report: &SystemReport) -> Table {
    let heads = [
        "lan, line or adapter",
        "stack",
        "connections",
        "time-wait",
        "buffers in use",
        "most so far",
        "limit",
        "free",
        "bytes of one",
    ];
    let mut table = table(&heads, 2);
    for one in each_stack(report) {
        let pool = &one.stack.pool;
        table.add_row([
            match one.member {
                None => adapter_of(report, one.guest).unwrap_or(one.place),
                Some(_) => one.place,
            }
            .to_owned(),
            one.name().to_owned(),
            one.stack.connections.to_string(),
            one.stack.time_wait.to_string(),
            pool.in_use.to_string(),
            pool.high_water.to_string(),
            pool.in_use_max.to_string(),
            pool.free.to_string(),
            pool.buffer_bytes.to_string(),
        ]);
    }
    table
}

/// The clients of TCPIP machines.
fn clients(report: &SystemReport) -> Table {
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
    let mut table = table(&heads, 2);
    for one in each_stack(report) {
        for client in &one.stack.clients {
            table.add_row([
                one.name().to_owned(),
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
    }
    table
}

/// Returns true if a stack never distributes this address: it knows of no other target, keeps note of no flow and hands on no packet.
fn is_target_alone(address: &DistributedReport) -> bool {
    address.role == "target"
}

/// Distributed addresses, with the part of each stack.
fn distributed(report: &SystemReport) -> Table {
    let heads = ["stack", "distributed address", "part", "targets", "flows", "limit", "refused"];
    let mut table = table(&heads, 3);
    for one in each_stack(report) {
        for address in &one.stack.distributed {
            let there = address.targets.iter().filter(|target| target.is_there).count();
            let [targets, flows, limit, refused] = if is_target_alone(address) {
                ["-"; 4].map(str::to_owned)
            } else {
                [
                    format!("{there} of {}", address.targets.len()),
                    address.flows.to_string(),
                    address.flows_max.to_string(),
                    address.refused.to_string(),
                ]
            };
            table.add_row([
                one.name().to_owned(),
                address.address.to_string(),
                address.role.clone(),
                targets,
                flows,
                limit,
                refused,
            ]);
        }
    }
    table
}

/// The targets of distributed addresses, as each stack knows them that may distribute. One that is a target alone knows itself.
fn targets(report: &SystemReport) -> Table {
    let heads = ["stack", "distributed address", "target", "there", "connections", "packets", "B"];
    let mut table = table(&heads, 4);
    for one in each_stack(report) {
        for address in &one.stack.distributed {
            for target in &address.targets {
                let [packets, bytes] = if is_target_alone(address) {
                    ["-"; 2].map(str::to_owned)
                } else {
                    [target.packets.to_string(), target.bytes.to_string()]
                };
                table.add_row([
                    one.name().to_owned(),
                    address.address.to_string(),
                    target.address.to_string(),
                    if target.is_there { "yes" } else { "no" }.to_owned(),
                    target.connections.to_string(),
                    packets,
                    bytes,
                ]);
            }
        }
    }
    table
}

/// An interface of a stack, and the LAN, line or adapter that it is at.
struct Interface<'a> {
    report: &'a InterfaceReport,
    place: &'a str,
    /// The member of the LAN that the interface is.
    member: Option<&'a MemberReport>,
    /// The end of a line that has its address.
    end: Option<End<'a>>,
}

fn interfaces_of<'a>(report: &'a SystemReport, one: StackOf<'a>) -> Vec<Interface<'a>> {
    let SystemReport { lans, lines, .. } = report;
    let interface = |interface: &'a InterfaceReport| {
        let address = interface.address.to_string();
        let end = end_at(lines, &address);
        let number = usize::from(interface.lan);
        let name = one.stack.machine.as_ref().and_then(|name| name.parse().ok());
        // The guests of a machine at adapters have the numbers of its interfaces.
        let guest = match name {
            Some(name) => member_name(name, number).to_string(),
            None => one.guest.to_owned(),
        };
        let is_first = number == 0;
        let adapter = adapter_of(report, &guest).filter(|_| is_first || name.is_some());
        // A stack at several LANs is several members.
        let (place, member) = match (one.member, adapter) {
            (Some(_), _) if is_first => (one.place, one.member),
            (_, Some(adapter)) => (adapter, None),
            _ => {
                let others = lans.iter().filter(|other| other.name != one.place);
                let line = end.map(|(line, ..)| (line.name.as_str(), None));
                lan_of(others, &address).or(line).unwrap_or(("-", None))
            }
        };
        Interface { report: interface, place, member, end }
    };
    one.stack.interfaces.iter().map(interface).collect()
}

fn interfaces(report: &SystemReport) -> Table {
    let heads =
        ["stack", "lan, line or adapter", "VLAN", "address", "MAC", "MTU", "passes on from"];
    let mut table = table(&heads, 5);
    for one in each_stack(report) {
        for Interface { report, place, member, .. } in interfaces_of(report, one) {
            table.add_row([
                one.name().to_owned(),
                place.to_owned(),
                report.vlan.map_or("-".to_owned(), |vlan| vlan.to_string()),
                report.address.to_string(),
                member.map_or("-".to_owned(), |of| of.mac.clone()),
                report.mtu.to_string(),
                match report.forwards {
                    true => member.map_or("all".to_owned(), passes_from),
                    false => "-".to_owned(),
                },
            ]);
        }
    }
    table
}

/// The ends of lines that stacks have.
fn ends(report: &SystemReport) -> Table {
    let heads = ["stack", "line", "state", "address", "partner", "partner's address"];
    let mut table = table(&heads, 6);
    for one in each_stack(report) {
        let interfaces = interfaces_of(report, one).into_iter();
        for (line, own, partner) in interfaces.filter_map(|interface| interface.end) {
            let (address, state) = (&own.address, state_of(line));
            let row = [one.name(), &line.name, state, address, &partner.guest, &partner.address];
            table.add_row(row);
        }
    }
    table
}

/// The routes: first what each interface reaches directly, then those over gateways.
fn routes(report: &SystemReport) -> Table {
    let SystemReport { lans, lines, .. } = report;
    let mut table = table(&["stack", "destination", "over", "lan, line or adapter"], 4);
    for one in each_stack(report) {
        let interfaces = interfaces_of(report, one);
        for Interface { place, end, .. } in
            interfaces.iter().filter(|interface| interface.report.vlan.is_none())
        {
            let range = lans.iter().find(|lan| lan.name == *place).map(|lan| lan.range.as_str());
            let peer = end.map(|(.., partner)| partner.address.as_str());
            table.add_row([one.name(), range.or(peer).unwrap_or("-"), "-", place]);
        }
        for route in &one.stack.routes {
            let via = route.via.to_string();
            let is_own = |lan: &&LanReport| {
                lan.name == one.place || interfaces.iter().any(|at| at.place == lan.name)
            };
            let lan = lan_of(lans.iter().filter(is_own), &via).map(|(lan, _)| lan);
            let place = lan.or_else(|| end_at(lines, &via).map(|(line, ..)| line.name.as_str()));
            // Which network an adapter is at, and so which of several a gateway is at, the report does not say.
            let place = match (place, route.is_there) {
                (_, false) => "nobody is there",
                (Some(place), true) => place,
                (None, true) => "-",
            };
            table.add_row([one.name(), &route.to, &via, place]);
        }
    }
    table
}

/// The members of LANs, by their addresses.
fn neighbours(lans: &[LanReport]) -> Table {
    let mut table = table(&["lan", "address", "MAC", "guest"], 4);
    for lan in lans {
        for member in &lan.members {
            for address in &member.addresses {
                table.add_row([&lan.name, address, &member.mac, &member.guest]);
            }
        }
    }
    table
}

fn connections(report: &SystemReport) -> Table {
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
    let mut table = table(&heads, 4);
    for one in each_stack(report) {
        let sockets = one.stack.sockets.iter();
        let of = sockets.filter_map(|socket| Some((socket, socket.remote?)));
        table.add_rows(of.map(|(socket, remote)| connection_row(one.name(), socket, remote)));
    }
    table
}

/// Listeners and sockets of UDP.
fn sockets(report: &SystemReport) -> Table {
    let mut table = table(&["stack", "socket", "local", "waiting", "at most"], 3);
    for one in each_stack(report) {
        let of = one.stack.sockets.iter().filter(|socket| socket.remote.is_none());
        table.add_rows(of.map(|socket| socket_row(one.name(), socket)));
    }
    table
}

fn counters(report: &SystemReport) -> Table {
    let mut table = table(&["stack", "counted"], 2);
    for one in each_stack(report) {
        let counted = one.stack.counters.iter().map(|(what, count)| format!("{what} {count}"));
        table.add_row([one.name().to_owned(), counted.collect::<Vec<_>>().join(", ")]);
    }
    table
}

/// The drivers of all stacks, with rates between two reports.
pub fn drivers(before: &SystemReport, report: &SystemReport) -> Table {
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
        let (stack, _) = name;
        table.add_row([
            stack.to_owned(),
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

/// The adapter on which a guest has a device.
fn adapter_of<'a>(report: &'a SystemReport, guest: &str) -> Option<&'a str> {
    let has_device =
        |adapter: &&AdapterReport| adapter.devices.iter().any(|device| device.guest == guest);
    report.adapters.iter().find(has_device).map(|adapter| adapter.adapter.as_str())
}

/// A line, one of its ends, and the other.
type End<'a> = (&'a LineReport, &'a LineEndReport, &'a LineEndReport);

/// The first line at one of whose ends an address is, that end, and the other.
fn end_at<'a>(lines: &'a [LineReport], address: &str) -> Option<End<'a>> {
    let mut pairs = lines.iter().filter_map(|line| Some((line, line.ends.first_chunk::<2>()?)));
    pairs.find_map(|(line, [one, other])| match address {
        _ if one.address == address => Some((line, one, other)),
        _ if other.address == address => Some((line, other, one)),
        _ => None,
    })
}

fn connection_row(stack: &str, socket: &SocketReport, remote: SocketAddr) -> [String; 8] {
    let round_trip = match socket.round_trip_ns {
        0 => "-".to_owned(),
        time => format!("{:?}", Duration::from_nanos(time / 100 * 100)),
    };
    [
        stack.to_owned(),
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
fn socket_row(stack: &str, socket: &SocketReport) -> [String; 5] {
    let SocketReport { state, local, send_queue, receive_queue, .. } = socket;
    // The queues of a listener are its backlog, and what is in that.
    let (waiting, most) = match state.as_str() {
        "listen" => (counted(*receive_queue as usize, "connection"), send_queue.to_string()),
        _ => (counted(*receive_queue as usize, "datagram"), "-".to_owned()),
    };
    [stack.to_owned(), state.clone(), local.to_string(), waiting, most]
}
