//! TCP/IP stacks, the clients of TCPIP machines, and drivers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use comfy_table::Table;
use host::config::Bytes;
use host::report::{
    LanReport, LineEndReport, LineReport, MemberReport, SocketReport, StackDriverReport,
    SystemReport,
};

use super::lans::passes_from;
use super::lines::state_of;
use crate::outcome::Outcome;
use crate::output::{counted, print, table};
use crate::reported::{StackOf, each_driver, each_stack};

/// All stacks.
pub fn print_stacks(report: &SystemReport, drivers: &Table) -> Result<(), Outcome> {
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
