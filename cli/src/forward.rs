//! `siga forward`: connections between the programs of this system and a LAN.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use os::poller::Poller;
use os::processor::now_ns;
use os::signals::HeldSignals;
use port::member::{self, Options, WrittenAddress};
use serde::Serialize;
use siga::lan::Lan;
use siga::tcpip::{self, Drive, Prefix, Stack, StackOptions};
use siga::{Name, Wait};

use crate::member::no_member;
use crate::outcome::Outcome;
use crate::output::{Output, counted, print_json, say};
use crate::peer::guest_name;
use crate::route::Told;
use crate::session::{Notices, Session, Shares, Turns};
use crate::socket::Socket;

/// Connections at once unless an option says otherwise, if the system gives as many descriptors. More are refused.
const CONNECTIONS_MAX: u64 = 4096;

/// Connections that may wait to be accepted: as many as come while others are served.
const BACKLOG: usize = 1024;

/// The shortest time between two looks at connections that may be idle for too long.
const IDLE_LOOK_NS: u64 = 1_000_000_000;

/// Connections that must have been open at once before memory is given back when most of them have ended.
const GIVE_BACK_CONNECTIONS: usize = 64;

/// Descriptors for each connection: one, and one that is left to the LAN, which needs some for each path.
const DESCRIPTORS_PER_CONNECTION: usize = 2;

/// Connections that are accepted, and that are carried on, before others have their turn.
const ACCEPTED_PER_TURN: usize = 64;
const CARRIED_PER_TURN: usize = 64;

/// How long a connection to a server of this system is tried.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// When a connection is tried again that the system had no descriptor for.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// The poller's token for all descriptors that are not a connection's. A connection's token is its number.
const OTHERS: u64 = 0;

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
    #[arg(long)]
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

/// Where connections come from, and where they go.
enum Entrance {
    System(TcpListener, Server),
    Lan(tcpip::TcpListener, SocketAddr),
}

/// Limits of connections: how many are open at once, and how long one is idle.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connections_max: usize,
    /// How long nothing comes over a connection until it is ended.
    idle: Option<Duration>,
}

/// The limit for which another connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// As many are open as may be.
    All,
    /// The source has as many as it may.
    Source(IpAddr),
}

impl Entrance {
    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Entrance::System(listener, _) => listener.local_addr(),
            Entrance::Lan(listener, _) => listener.local_addr(),
        }
    }
}

/// A connection whose other half is being made by a thread.
type Connecting = (u64, io::Result<TcpStream>);

struct Forwarder {
    stack: Stack,
    entrance: Entrance,
    poller: Poller,
    /// By their numbers, which are also what the poller and the stack call them.
    sessions: HashMap<u64, Session>,
    /// The LAN's halves of those that are over, until the stack has done with them: a member that does not acknowledge the end would fill the stack
    /// with such.
    closing: HashMap<u64, (tcpip::TcpStream, IpAddr)>,
    /// Those that may have something to carry.
    ready: Turns,
    /// From the LAN, and waiting for the system's side, each with its source.
    waiting: HashMap<u64, (tcpip::TcpStream, IpAddr)>,
    /// How many connections each source has.
    shares: Shares<IpAddr>,
    begun: u64,
    /// How long nothing comes over a connection until it is ended.
    idle: Option<Duration>,
    /// The most connections that were open since memory was given back.
    open_max: usize,
    notices: Notices,
    /// When connections are looked at next that may be idle for too long.
    idle_look_ns: u64,
    made: Receiver<Connecting>,
    making: Sender<Connecting>,
    /// A byte comes out of the first for each connection that a thread has made or not made.
    wake: (UnixStream, Arc<UnixStream>),
    done: Done,
    told: Told,
}

/// The state of accepting connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    /// None until somebody asks for one.
    Idle,
    /// There may be more: others have their turn before.
    More,
    /// The system has no descriptor for one.
    Short,
}

impl Forwarder {
    fn new(
        stack: Stack,
        entrance: Entrance,
        limits: Limits,
        held: &HeldSignals,
    ) -> io::Result<Forwarder> {
        let poller = Poller::new()?;
        let (awake, wake) = UnixStream::pair()?;
        awake.set_nonblocking(true)?;
        poller.add(&stack.descriptor()?, OTHERS)?;
        poller.add(held.as_fd(), OTHERS)?;
        poller.add(&awake, OTHERS)?;
        if let Entrance::System(listener, _) = &entrance {
            poller.add_edges(listener, OTHERS)?;
        }
        let (making, made) = channel();
        let descriptors_max = limits.connections_max * DESCRIPTORS_PER_CONNECTION;
        let descriptors = os::memory::allow_descriptors(descriptors_max as u64);
        let connections_max =
            (descriptors as usize / DESCRIPTORS_PER_CONNECTION).clamp(1, limits.connections_max);
        Ok(Forwarder {
            stack,
            entrance,
            poller,
            sessions: HashMap::new(),
            closing: HashMap::new(),
            ready: Turns::default(),
            waiting: HashMap::new(),
            shares: Shares::new(connections_max),
            begun: OTHERS,
            idle: limits.idle,
            open_max: 0,
            notices: Notices::default(),
            idle_look_ns: 0,
            made,
            making,
            wake: (awake, Arc::new(wake)),
            done: Done::default(),
            told: Told::default(),
        })
    }

    /// Forwards until a signal asks to end.
    fn serve(&mut self, held: &HeldSignals) -> io::Result<()> {
        loop {
            while let Some(signal) = held.take()? {
                if signal.asks_to_end() {
                    return Ok(());
                }
            }
            self.stack.poll()?;
            self.told.tell(&self.stack);
            self.complete();
            let accepting = self.accept()?;
            while let Some(number) = self.stack.take_changed()? {
                self.ready.add(number);
            }
            self.carry()?;
            let idle_time = self.end_idle();
            self.give_back();
            // What came while others were served may be for one that was served before, or ask for another connection: then
            // the time is zero.
            let mut time = self.stack.prepare_wait()?;
            time = time.min(idle_time);
            if accepting == Accepting::More || !self.ready.is_empty() {
                time = Duration::ZERO;
            } else if accepting == Accepting::Short {
                time = time.min(SHORT_OF_DESCRIPTORS);
            }
            let ready = self.poller.wait((time != Duration::MAX).then_some(time))?;
            let ready = ready.iter().filter(|number| **number != OTHERS);
            ready.for_each(|number| self.ready.add(*number));
        }
    }

    fn accept(&mut self) -> io::Result<Accepting> {
        for _ in 0..ACCEPTED_PER_TURN {
            match &self.entrance {
                Entrance::System(listener, to) => match listener.accept() {
                    Ok((system, source)) => {
                        let to = *to;
                        if self.admit(source.ip()) {
                            self.begin_to_lan(system, source.ip(), to);
                        } else {
                            let _ = os::socket::reset_when_closed(&system);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        return Ok(Accepting::Idle);
                    }
                    // That one is over already.
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                        ) => {}
                    Err(_) => return Ok(Accepting::Short),
                },
                Entrance::Lan(listener, to) => match listener.accept() {
                    Ok((lan, source)) => {
                        let to = *to;
                        if self.admit(source.ip()) {
                            self.begin_to_system(lan, source.ip(), to);
                        } else {
                            let _ = lan.reset();
                        }
                    }
                    // Also while a new host does not give us the address: that is said, and asked for again.
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::WouldBlock | ErrorKind::AddrNotAvailable
                        ) =>
                    {
                        return Ok(Accepting::Idle);
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(Accepting::More)
    }

    /// Returns true if a source may have another connection. If not, counts and reports the refusal.
    fn admit(&mut self, source: IpAddr) -> bool {
        let Some(refusal) = refusal(&self.shares, source) else {
            self.done.connections += 1;
            self.shares.enter(source);
            self.open_max = self.open_max.max(self.shares.all);
            return true;
        };
        self.done.refused += 1;
        let (refused, shares, notices) = (self.done.refused, &self.shares, &mut self.notices);
        let Shares { most, all, .. } = shares;
        notices.say(|| {
            let why = match refusal {
                Refusal::All => format!("{all} are open, as many as may be (--connections)"),
                Refusal::Source(source) => {
                    let of_source = shares.of(source);
                    format!("{source} has {of_source} of {most}, as many as one source may")
                }
            };
            format!("a connection is refused, the {refused}. so far: {why}")
        });
        false
    }

    /// A connection has not come about.
    fn fail(&mut self, source: IpAddr, error: &dyn fmt::Display) {
        self.done.failed += 1;
        self.shares.leave(source);
        self.notices.say(|| format!("a connection of {source} is reset: {error}"));
    }

    fn begin_to_lan(&mut self, system: TcpStream, source: IpAddr, to: Server) {
        self.begun += 1;
        let connecting = match to {
            Server::At(address) => tcpip::TcpStream::start_connecting(&self.stack, address),
            Server::Of(name, port) => match self.stack.address_of(name) {
                Ok(Some(address)) => {
                    let at = SocketAddr::new(address, port);
                    tcpip::TcpStream::start_connecting(&self.stack, at)
                }
                Ok(None) => {
                    let what = format!("no guest {name} is on the LAN, or it has no address");
                    Err(io::Error::new(ErrorKind::HostUnreachable, what))
                }
                Err(error) => Err(error),
            },
        };
        match connecting {
            Ok(lan) => self.begin(self.begun, system, lan, source),
            Err(error) => {
                let error = match (error.kind(), to) {
                    (ErrorKind::HostUnreachable, Server::At(address)) => {
                        format!("nobody on the LAN has {}", address.ip())
                    }
                    _ => error.to_string(),
                };
                let _ = os::socket::reset_when_closed(&system);
                self.fail(source, &error);
            }
        }
    }

    /// Has a thread connect to the server: the system's own verb waits.
    fn begin_to_system(&mut self, lan: tcpip::TcpStream, source: IpAddr, to: SocketAddr) {
        self.begun += 1;
        let (number, making) = (self.begun, self.making.clone());
        let wake = self.wake.1.clone();
        let spawned = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let _ = making.send((number, TcpStream::connect_timeout(&to, CONNECT_MAX)));
            let _ = (&*wake).write_all(&[1]);
        });
        match spawned {
            Ok(_) => {
                self.waiting.insert(number, (lan, source));
            }
            // The system has no room for one more, which is no reason to end the others.
            Err(error) => {
                let _ = lan.reset();
                self.fail(source, &error);
            }
        }
    }

    /// Takes the connections that threads have made.
    fn complete(&mut self) {
        let mut bytes = [0; 64];
        while (&self.wake.0).read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
        while let Ok((number, system)) = self.made.try_recv() {
            let Some((lan, source)) = self.waiting.remove(&number) else { continue };
            match system {
                Ok(system) => self.begin(number, system, lan, source),
                Err(error) => {
                    let _ = lan.reset();
                    self.fail(source, &error);
                }
            }
        }
    }

    /// Both halves of a connection are there, or on their way.
    fn begin(&mut self, number: u64, system: TcpStream, lan: tcpip::TcpStream, source: IpAddr) {
        let session = Session::of(system, lan, source);
        match session.watch(&self.poller, number) {
            Ok(()) => {
                self.ready.add(number);
                self.sessions.insert(number, session);
            }
            Err(error) => {
                session.reset();
                self.fail(source, &error);
            }
        }
    }

    /// Carries bytes of some of the connections that may have some. Those that have more stay ready.
    fn carry(&mut self) -> io::Result<()> {
        let is_to_lan = matches!(self.entrance, Entrance::System(..));
        let now = self.idle.map(|_| now_ns());
        let mut unmade = None;
        for number in self.ready.take(CARRIED_PER_TURN) {
            let Forwarder { sessions, ready, done, .. } = self;
            let Some(session) = sessions.get_mut(&number) else {
                self.end_closing(number)?;
                continue;
            };
            let carried = session.carry();
            let counts = [&mut session.to_lan.carried, &mut session.to_system.carried];
            let [to_lan, to_system] = counts.map(std::mem::take);
            if to_lan + to_system > 0
                && let Some(now) = now
            {
                session.carried_ns = now;
            }
            let (to, from) = if is_to_lan { (to_lan, to_system) } else { (to_system, to_lan) };
            done.bytes_to_target += to;
            done.bytes_from_target += from;
            let is_over = match &carried {
                Ok(_) => session.to_lan.is_shut && session.to_system.is_shut,
                Err(error) => {
                    done.failed += 1;
                    // A reset is part of a program's life, a server that is not there is not.
                    if let ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable = error.kind()
                    {
                        unmade = Some((session.source, error.kind()));
                    }
                    session.reset();
                    true
                }
            };
            if is_over {
                let over = self.sessions.remove(&number);
                let over = over.map(|session| (number, (session.lan, session.source)));
                self.closing.extend(over);
                self.end_closing(number)?;
            } else if carried.is_ok_and(|more| more) {
                ready.add(number);
            }
        }
        if let Some((source, kind)) = unmade {
            let to = match &self.entrance {
                Entrance::System(_, to) => to.to_string(),
                Entrance::Lan(_, to) => to.to_string(),
            };
            let why = match kind {
                ErrorKind::ConnectionRefused => format!("nobody listens at {to}"),
                _ => format!("{to} cannot be reached"),
            };
            self.notices.say(|| format!("a connection of {source} is reset: {why}"));
        }
        Ok(())
    }

    /// Leaves a connection that is over, if the stack has done with it: the stack names the connection then.
    fn end_closing(&mut self, number: u64) -> io::Result<()> {
        let Some((lan, source)) = self.closing.get(&number) else { return Ok(()) };
        if !lan.is_closing()? {
            self.shares.leave(*source);
            self.closing.remove(&number);
        }
        Ok(())
    }

    /// Ends connections over which nothing has come for too long. When to look again.
    fn end_idle(&mut self) -> Duration {
        let Some(idle) = self.idle else { return Duration::MAX };
        let (now, idle_ns) = (now_ns(), u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX));
        if now >= self.idle_look_ns {
            let mut over = Vec::new();
            let mut oldest_ns = now;
            self.sessions.retain(|_, session| {
                let is_over = now.saturating_sub(session.carried_ns) >= idle_ns;
                if is_over {
                    session.reset();
                    over.push(session.source);
                } else {
                    oldest_ns = oldest_ns.min(session.carried_ns);
                }
                !is_over
            });
            for source in over {
                self.fail(source, &"nothing has come for as long as --idle says");
            }
            // Not for each of many one after the other.
            self.idle_look_ns = oldest_ns.saturating_add(idle_ns).max(now + IDLE_LOOK_NS);
        }
        match self.sessions.is_empty() {
            true => Duration::MAX,
            false => Duration::from_nanos(self.idle_look_ns.saturating_sub(now)),
        }
    }

    /// Gives memory back to the system once most connections have ended.
    fn give_back(&mut self) {
        let open = self.shares.all;
        if self.open_max >= GIVE_BACK_CONNECTIONS && open <= self.open_max / 8 {
            self.open_max = open;
            self.sessions.shrink_to_fit();
            self.closing.shrink_to_fit();
            os::memory::give_back_freed();
        }
    }
}

/// Returns the limit that another connection of a source would exceed, if there is one.
fn refusal(shares: &Shares<IpAddr>, source: IpAddr) -> Option<Refusal> {
    if shares.is_full() {
        return Some(Refusal::All);
    }
    // This system's own programs share nothing.
    let is_own = source.to_canonical().is_loopback();
    (!is_own && shares.is_beyond(source)).then_some(Refusal::Source(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_this_system_share_nothing() {
        let mut shares = Shares::new(10);
        let [own, both, other] = ["127.0.0.1", "::ffff:127.0.0.1", "10.1.0.9"]
            .map(|address| address.parse::<IpAddr>().unwrap());
        (0..9).for_each(|_| shares.enter(own));
        assert_eq!([own, both].map(|source| refusal(&shares, source)), [None, None]);
        assert_eq!(refusal(&shares, other), None);
        shares.enter(other);
        assert_eq!(refusal(&shares, own), Some(Refusal::All));
        (0..5).for_each(|_| shares.leave(own));
        assert_eq!(refusal(&shares, other), None);
        (0..2).for_each(|_| shares.enter(other));
        assert_eq!(refusal(&shares, other), Some(Refusal::Source(other)));
    }

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
