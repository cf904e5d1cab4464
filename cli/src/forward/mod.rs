//! `siga forward`: connections between the programs of this system and a LAN.

mod forwarder;

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::str::FromStr;
use std::time::Duration;

use os::signals::HeldSignals;
use port::member::{self, Options, WrittenAddress};
use serde::Serialize;
use siga::lan::Lan;
use siga::tcpip::{self, Drive, Prefix, Stack, StackOptions};
use siga::{Name, Wait};

use self::forwarder::{Entrance, Forwarder, Limits};
use crate::member::no_member;
use crate::outcome::Outcome;
use crate::output::{Output, counted, print_json, say};
use crate::peer::{attach_name, guest_name};
use crate::socket::Socket;

/// Connections at once unless an option says otherwise, if the system gives as many descriptors. More are refused.
const CONNECTIONS_MAX: u64 = 4096;

/// Connections that may wait to be accepted: as many as come while others are served.
const BACKLOG: usize = 1024;

/// Connect programs of this system and servers on a LAN, either way
///
/// Without --from, programs of this system that connect to LISTEN reach the server TO on the LAN. With --from, members of
/// the LAN that connect to its address reach the server of this system at TARGET. Ends, resets and back-pressure pass
/// through. At most 4096 connections are open at once (--connections), or half as many as this process may open descriptors
/// (ulimit -n), if that is less. One member of the LAN, or one other machine, gets at most half of those that are free. More
/// are refused, reported and counted. A side that is silent is probed every minute. Runs until Ctrl-C. Needs no rights
/// but to attach to the host, and to listen at a port below 1024.
///
/// For example, with a server `siga run --name web -- python3 -m http.server 80`: siga forward 127.0.0.1:8080 hs0 web:80
#[derive(Debug, clap::Args)]
#[command(override_usage = "siga forward [OPTIONS] <LISTEN> <LAN> <TO>
       siga forward [OPTIONS] --from <LAN:ADDRESS:PORT> <TARGET>")]
pub struct Arguments {
    /// The address and port of this system to listen at, like 127.0.0.1:8080; with --from, those of the server to reach
    #[arg(value_name = "LISTEN", value_parser = address)]
    local: SocketAddr,
    /// The LAN of the server, like hs0
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    lan: Option<String>,
    /// The server on the LAN, like 10.1.0.5:80 or, by the name of its guest, web:80
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    to: Option<Server>,
    /// Listen on a LAN instead, at this address, which this command takes for itself: like hs0:10.1.0.9:80
    #[arg(long, value_name = "LAN:ADDRESS:PORT")]
    from: Option<OnLan>,
    /// The name to attach under, in capital letters or small ones [default: a new one]
    #[arg(long, value_parser = attach_name)]
    name: Option<String>,
    /// Connections that may be open at once
    #[arg(long, value_name = "NUMBER", default_value_t = CONNECTIONS_MAX, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    connections: u64,
    /// End connections over which no bytes have come for this time, at least 1 [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    idle: Option<u64>,
    #[command(flatten)]
    socket: Socket,
    #[command(flatten)]
    output: Output,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "must be an address and a port, like 127.0.0.1:8080 or [::1]:8080".to_owned())
}

/// An address on a LAN.
#[derive(Clone, Debug)]
struct OnLan {
    lan: String,
    address: SocketAddr,
}

impl FromStr for OnLan {
    type Err = String;

    fn from_str(text: &str) -> Result<OnLan, String> {
        let parts = text.split_once(':').and_then(|(lan, address)| {
            Some(OnLan { lan: lan.to_owned(), address: address.parse().ok()? })
        });
        parts.ok_or_else(|| "must be like hs0:10.1.0.9:80 or hs0:[fd00::9]:80".to_owned())
    }
}

/// A server on the LAN.
#[derive(Clone, Copy, Debug)]
enum Server {
    At(SocketAddr),
    /// At whatever address the guest of this name has when somebody connects.
    Of(Name, u16),
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Server, String> {
        if let Ok(address) = text.parse() {
            return Ok(Server::At(address));
        }
        let named = text
            .rsplit_once(':')
            .and_then(|(name, port)| Some(Server::Of(guest_name(name)?, port.parse().ok()?)));
        named.ok_or_else(|| "must be like 10.1.0.5:80, [fd00::5]:80 or web:80".to_owned())
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::At(address) => address.fmt(formatter),
            Server::Of(name, port) => write!(formatter, "{}:{port}", name.as_str().to_lowercase()),
        }
    }
}

/// The two sides of the forwarding, as `--json` prints them at the beginning.
#[derive(Debug, Serialize)]
struct Up {
    name: String,
    lan: String,
    listening: SocketAddr,
    to: String,
}

/// Counters of connections and bytes, as `--json` prints them at the end.
#[derive(Debug, Default, Serialize)]
struct Done {
    connections: u64,
    /// Connections that were reset or whose target was not reached.
    failed: u64,
    /// Connections that were refused because as many were open as may be, or as one source may have.
    refused: u64,
    bytes_to_target: u64,
    bytes_from_target: u64,
}

impl Done {
    /// `3 connections, of them 1 failed; 2 more were refused (--connections)`
    fn sentence(&self) -> String {
        let Done { connections, failed, refused, .. } = self;
        let mut text = counted(*connections as usize, "connection");
        if *failed > 0 {
            text += &format!(", of them {failed} failed");
        }
        match refused {
            0 => text,
            1 => text + "; 1 more was refused (--connections)",
            _ => text + &format!("; {refused} more were refused (--connections)"),
        }
    }
}

/// Forwards until a signal ends it.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let Arguments { local, name, socket, output, .. } = arguments;
    let held = HeldSignals::hold().map_err(Outcome::no)?;
    let (lan, address) = match (&arguments.from, &arguments.lan) {
        (Some(from), _) => (from.lan.clone(), Some(from.address.ip())),
        (None, Some(lan)) => (lan.clone(), None),
        (None, None) => unreachable!("one of them is required"),
    };
    // The system's side first: a port that is taken is no reason to join anything.
    let system = match arguments.from {
        None => {
            let listener = TcpListener::bind(local).map_err(|error| unbound(*local, &error))?;
            os::socket::set_backlog(&listener, BACKLOG as u32).map_err(Outcome::no)?;
            Some(listener)
        }
        Some(_) => None,
    };
    let address = address.filter(|address| !address.is_unspecified());
    let options = Options {
        socket: socket.path()?,
        lan,
        name: name.clone(),
        address: address.map(|address| WrittenAddress { address, prefix_bits: None }),
        mac: None,
        mtu: None,
        interface: None,
        gateways: Vec::new(),
        resolvers: Vec::new(),
        routes: false,
        wait: Wait::Block,
    };
    let joined = member::join(&options, "FORWARD".as_ref());
    let mut lan = joined.map_err(|error| no_member(&options, &error))?;
    let name = lan.own().name.to_string();
    let absent = match arguments.to {
        Some(server) => check_server(&mut lan, server)?,
        None => None,
    };
    // One thread serves all that is forwarded.
    let inline = StackOptions { drive: Drive::Inline, ..StackOptions::default() };
    let stack = Stack::new(lan, &inline).map_err(Outcome::no)?;
    let (entrance, to) = match (system, &arguments.from, arguments.to) {
        (Some(listener), _, Some(to)) => {
            listener.set_nonblocking(true).map_err(Outcome::no)?;
            (Entrance::System(listener, to), to.to_string())
        }
        (_, Some(from), _) => {
            let ip = from.address.ip();
            let own = match ip.is_unspecified() {
                true => stack.addresses().first().copied().unwrap_or(ip),
                false => ip,
            };
            let at = SocketAddr::new(own, from.address.port());
            let listener = tcpip::TcpListener::bind_with_backlog(&stack, at, BACKLOG);
            let listener = listener.map_err(|error| unbound(at, &error))?;
            listener.set_nonblocking(true).map_err(Outcome::no)?;
            (Entrance::Lan(listener, *local), local.to_string())
        }
        _ => unreachable!("one of them is required"),
    };
    let up = Up { name, lan: options.lan, listening: entrance.address().map_err(Outcome::no)?, to };
    let limits = Limits {
        connections_max: arguments.connections as usize,
        idle: arguments.idle.map(Duration::from_secs),
    };
    let mut forwarder = Forwarder::new(stack, entrance, limits, &held).map_err(Outcome::no)?;
    if output.json {
        // A pipe that nobody reads is no reason to end.
        let _ = print_json(&up);
    } else {
        let Up { name, lan, listening, to } = &up;
        say(format_args!("{name} is on the LAN {lan}, and forwards {listening} to {to}"));
    }
    if let Some(absent) = absent {
        say(format_args!("siga: {absent}: connections are reset until the server is there"));
    }
    forwarder.serve(&held).map_err(Outcome::no)?;
    let done = &forwarder.done;
    if output.json {
        let _ = print_json(done);
    } else {
        say(done.sentence());
    }
    Ok(())
}

/// Checks that a server can be on the LAN. What is to be said if it is not there now.
fn check_server(lan: &mut Lan, server: Server) -> Result<Option<String>, Outcome> {
    let lan_name = lan.name();
    let address = match server {
        Server::Of(name, _) => {
            let is_there = lan.members().any(|member| member.name == name);
            return Ok((!is_there).then(|| format!("no guest {name} is on the LAN {lan_name} now")));
        }
        Server::At(address) => address.ip(),
    };
    if lan.find_address(address).is_some() {
        return Ok(None);
    }
    let own = lan.addresses().iter();
    let ranges: Vec<Prefix> =
        own.filter_map(|own| Prefix::of(*own, lan.prefix_bits_of(*own))).collect();
    if !ranges.is_empty() && !ranges.iter().any(|range| range.contains(address)) {
        let ranges: Vec<String> = ranges.iter().map(Prefix::to_string).collect();
        let ranges = ranges.join(" and ");
        let what = format!("{address} is no address of the LAN {lan_name}, which has {ranges}");
        return Err(Outcome::No(format!("{what}: must be that of a member, or its name")));
    }
    Ok(Some(format!("nobody on the LAN {lan_name} has {address} now")))
}

fn unbound(address: SocketAddr, error: &io::Error) -> Outcome {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => ": choose another port, or 0 for a free one",
        ErrorKind::PermissionDenied => ": ports below 1024 are for root",
        _ => "",
    };
    Outcome::No(format!("cannot listen at {address}: {error}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_address_or_guest() {
        let read = |text: &str| text.parse::<Server>().map(|server| server.to_string());
        for text in ["10.1.0.5:80", "[fd00::5]:80", "web:80"] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        assert_eq!(read("WEB:80").as_deref(), Ok("web:80"));
        for text in ["web", "web:", "web:65536", "muchtoolong:80", ":80", "a b:80"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
