//! TCP/IP stacks, as they show themselves.

use std::net::{IpAddr, SocketAddr};

use net::board::{self, ClientRow, DistributedRow, DriverRow, Row, Shown, Way};
use os::words::LentWords;
use serde::{Deserialize, Serialize};

use super::Counts;

/// A TCP/IP stack that is at lines and adapters alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GuestStackReport {
    /// The guest at its end of the first of the lines, or with the first device.
    pub guest: String,
    /// The stack.
    pub stack: StackReport,
}

/// A TCP/IP stack, as it says itself. It says so before it waits, and 20 times a second while it is at work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StackReport {
    /// When it said so, in nanoseconds of the machine's clock.
    pub shown_ns: u64,
    /// Bytes of its largest packet.
    pub mtu: u64,
    /// Its connections, but for those in TIME-WAIT.
    pub connections: u64,
    /// Pairs of ports in TIME-WAIT.
    pub time_wait: u64,
    /// The buffers of its connections.
    pub pool: PoolReport,
    /// What it has counted, but for counters that stand at zero.
    pub counters: Counts,
    /// Its connections and sockets, as far as it shows them one by one: 232 connections and 64 sockets.
    pub sockets: Vec<SocketReport>,
    /// Its interfaces, each once for each of its addresses.
    #[serde(default)]
    pub interfaces: Vec<InterfaceReport>,
    /// Its routes. Interfaces and routes together are 64 at most.
    #[serde(default)]
    pub routes: Vec<RouteReport>,
    /// Its name as a TCPIP machine, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Its clients, if it is a TCPIP machine's: 64 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientReport>,
    /// The drivers of its LANs: 16 at most.
    #[serde(default)]
    pub drivers: Vec<StackDriverReport>,
    /// Distributed addresses in which it has a part. Their targets are 64 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distributed: Vec<DistributedReport>,
}

/// A distributed address, as a stack with a part in it knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DistributedReport {
    /// The address.
    pub address: IpAddr,
    /// The part of the stack: `distributes`, `claims` while it asks the host for the address, `backup` or `target`.
    pub role: String,
    /// Connections that the stack keeps note of while it distributes.
    pub flows: u32,
    /// The limit of those.
    pub flows_max: u32,
    /// Connections refused because of that limit.
    pub refused: u32,
    /// The targets. A stack that is a target alone shows itself.
    pub targets: Vec<TargetReport>,
}

/// A target of a distributed address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TargetReport {
    /// Its own address.
    pub address: IpAddr,
    /// Whether new connections may go to it.
    pub is_there: bool,
    /// Its connections, as it has said, and those that it was given since.
    pub connections: u32,
    /// Packets that the stack has handed to it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The distributed addresses of a stack, each with the rows of its targets.
fn distributed(rows: Vec<DistributedRow>) -> Vec<DistributedReport> {
    let mut reports: Vec<DistributedReport> = Vec::new();
    for row in rows {
        let target = TargetReport {
            address: row.target,
            is_there: row.is_there,
            connections: row.connections,
            packets: row.packets,
            bytes: row.bytes,
        };
        match reports.iter_mut().find(|report| report.address == row.address) {
            Some(report) => report.targets.push(target),
            None => reports.push(DistributedReport {
                address: row.address,
                role: row.role.name().to_owned(),
                flows: row.flows,
                flows_max: row.flows_max,
                refused: row.refused,
                targets: vec![target],
            }),
        }
    }
    reports
}

/// The driver of a LAN of a stack, and what it has done while it had a processor of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StackDriverReport {
    /// The LAN.
    pub name: String,
    /// Its number in the stack, from 0 on.
    pub lan: u16,
    /// The processor of the driver. None: the driver runs inline, in the stack.
    pub processor: Option<u32>,
    /// Turns in which it has polled the device.
    pub polls: u64,
    /// Those that found nothing.
    pub polls_empty: u64,
    /// Frames received for the stack.
    pub frames_in: u64,
    /// Frames sent for it.
    pub frames_out: u64,
    /// Frames whose target was full when their turn came. They are sent later, or dropped if the target leaves.
    pub frames_waited: u64,
    /// Frames whose target had left.
    pub frames_dropped: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Processor time, in nanoseconds.
    pub processor_ns: u64,
    /// Devices that the stack has taken back from a driver that had stalled or ended.
    pub takeovers: u64,
    /// Changes of the placement that somebody has asked for.
    pub moves: u64,
}

impl From<DriverRow> for StackDriverReport {
    fn from(row: DriverRow) -> StackDriverReport {
        StackDriverReport {
            name: row.name.to_string(),
            lan: row.lan,
            processor: row.processor,
            polls: row.polls,
            polls_empty: row.polls_empty,
            frames_in: row.frames_in,
            frames_out: row.frames_out,
            frames_waited: row.frames_waited,
            frames_dropped: row.frames_dropped,
            sleeps: row.sleeps,
            processor_ns: row.processor_ns,
            takeovers: row.takeovers,
            moves: row.moves,
        }
    }
}

/// A client of a TCPIP machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientReport {
    /// The guest.
    pub guest: String,
    /// Its sockets.
    pub sockets: u64,
    /// Sockets that it may have.
    pub sockets_max: u64,
    /// Bytes that its sockets may keep at the machine.
    pub buffers_bytes: u64,
    /// Bytes that they may at most.
    pub buffers_bytes_max: u64,
    /// Requests that were taken since it attached, data included.
    pub requests: u64,
    /// Bytes that came from it.
    pub bytes_in: u64,
    /// Bytes that went to it.
    pub bytes_out: u64,
    /// Sockets that were refused for a limit of its own.
    pub refused: u64,
    /// Times that it had used up its turn, and waited for its next one.
    pub turns_cut: u64,
}

impl From<ClientRow> for ClientReport {
    fn from(row: ClientRow) -> ClientReport {
        ClientReport {
            guest: row.guest.to_string(),
            sockets: row.sockets,
            sockets_max: row.sockets_max,
            buffers_bytes: row.buffers_bytes,
            buffers_bytes_max: row.buffers_bytes_max,
            requests: row.requests,
            bytes_in: row.bytes_in,
            bytes_out: row.bytes_out,
            refused: row.refused,
            turns_cut: row.turns_cut,
        }
    }
}

/// An address of an interface of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InterfaceReport {
    /// Which of the LANs, lines and devices of the stack it is, from 0 on. The first LAN, or the first of all if there is no LAN, is the one that shows the stack.
    pub lan: u16,
    /// The VLAN of that LAN, if it is one.
    pub vlan: Option<u16>,
    /// Bytes of its largest packet.
    pub mtu: u64,
    /// The address.
    pub address: IpAddr,
    /// Whether packets for others are passed on.
    pub forwards: bool,
}

/// A route of a stack, to what no member of its LANs has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RouteReport {
    /// The network, as `10.2.0.0/24`.
    pub to: String,
    /// The member over which packets go there.
    pub via: IpAddr,
    /// Whether it is there.
    pub is_there: bool,
}

/// The buffers of a stack's connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolReport {
    /// Bytes of a buffer.
    pub buffer_bytes: u64,
    /// Buffers that hold bytes of connections.
    pub in_use: u64,
    /// Buffers that may be in use.
    pub in_use_max: u64,
    /// The most that were in use at once.
    pub high_water: u64,
    /// Buffers that wait for their next bytes.
    pub free: u64,
}

/// A connection of a stack, or a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SocketReport {
    /// The state of a connection (RFC 9293), `listen` or `udp`.
    pub state: String,
    /// Its address.
    pub local: SocketAddr,
    /// That of the other side.
    pub remote: Option<SocketAddr>,
    /// Bytes that were written and are not acknowledged; of a listener the connections that may wait.
    pub send_queue: u64,
    /// Bytes that have come and were not read; of a listener the connections that wait, of a socket of UDP the datagrams.
    pub receive_queue: u64,
    /// Segments with data that were sent again.
    pub resent: u64,
    /// Smoothed time until a segment is acknowledged, in nanoseconds; 0 if none was measured.
    pub round_trip_ns: u64,
}

impl StackReport {
    /// What a member's board shows of its stack; none if there is no stack.
    pub(crate) fn read(words: &LentWords) -> Option<StackReport> {
        let Shown { overview, counters, rows, machine, clients, ways, drivers, distributed } =
            board::read(words)?;
        let counted = counters.into_iter().filter(|(_, count)| *count > 0);
        let counters = counted.map(|(counter, count)| (counter.name().to_owned(), count));
        let socket = |row: Row| SocketReport {
            state: row.state.name().to_owned(),
            local: row.local,
            remote: row.remote,
            send_queue: row.send_queue,
            receive_queue: row.receive_queue,
            resent: row.resent,
            round_trip_ns: row.round_trip_ns,
        };
        let (mut interfaces, mut routes) = (Vec::new(), Vec::new());
        for way in ways {
            match way {
                Way::Interface { lan, vlan, mtu, address, forwards } => {
                    interfaces.push(InterfaceReport { lan, vlan, mtu, address, forwards });
                }
                Way::Route { network, bits, via, is_there } => {
                    routes.push(RouteReport { to: format!("{network}/{bits}"), via, is_there });
                }
            }
        }
        Some(StackReport {
            shown_ns: overview.shown_ns,
            mtu: overview.mtu,
            connections: overview.connections,
            time_wait: overview.time_wait,
            pool: PoolReport {
                buffer_bytes: overview.buffer_bytes,
                in_use: overview.in_use,
                in_use_max: overview.in_use_max,
                high_water: overview.high_water,
                free: overview.free,
            },
            counters: counters.collect(),
            sockets: rows.into_iter().map(socket).collect(),
            interfaces,
            routes,
            machine: machine.map(|name| name.to_string()),
            clients: clients.into_iter().map(ClientReport::from).collect(),
            drivers: drivers.into_iter().map(StackDriverReport::from).collect(),
            distributed: self::distributed(distributed),
        })
    }
}
