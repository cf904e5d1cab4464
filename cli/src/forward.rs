//! `siga forward`: connections between the programs of this system and a LAN.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use os::poller::Poller;
use os::signals::HeldSignals;
use port::member::{self, Options, WrittenAddress};
use serde::Serialize;
use siga::Wait;
use siga::tcpip::{self, Drive, Stack, StackOptions};

use crate::outcome::Outcome;
use crate::output::{Output, print_json, say};
use crate::socket::Socket;

/// Connections at once, if the system gives as many descriptors. Others wait until one of these has ended.
const CONNECTIONS_MAX: usize = 1024;

/// Descriptors for each connection: one, and one that is left to the LAN, which needs some for each path.
const DESCRIPTORS_PER_CONNECTION: usize = 2;

/// Bytes that are kept of one direction of a connection: what has been read and not been written.
const KEPT_BYTES: usize = 32 << 10;

/// Reads and writes of one direction before the next has its turn.
const TURNS_MAX: usize = 8;

/// How long a connection to a server of this system is tried.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// When a connection is tried again that the system had no descriptor for.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// What the poller calls the descriptors that are not a connection's. Connections are called by their numbers.
const OTHERS: u64 = 0;

/// Connect programs of this system and servers on a LAN, either way
///
/// Without --from, programs of this system that connect to LISTEN reach the server TO on the LAN. With --from, members of
/// the LAN that connect to its address reach the server of this system at LISTEN. Ends, resets and back-pressure pass
/// through. Runs until Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(override_usage = "siga forward [OPTIONS] <LISTEN> <LAN> <TO>
       siga forward [OPTIONS] --from <LAN:ADDRESS:PORT> <TARGET>")]
pub struct Arguments {
    /// Where to listen, like 127.0.0.1:8080; with --from, the server of this system that is to be reached
    #[arg(value_name = "LISTEN")]
    local: SocketAddr,
    /// The LAN
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    lan: Option<String>,
    /// The server on the LAN, like 10.1.0.5:80
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    to: Option<SocketAddr>,
    /// Listen on a LAN instead, at this address, which becomes ours: like hs0:10.1.0.9:80
    #[arg(long, value_name = "LAN:ADDRESS:PORT")]
    from: Option<OnLan>,
    /// The name to attach under, in capital letters or small ones [default: a new one]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    socket: Socket,
    #[command(flatten)]
    output: Output,
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

/// What is forwarded, as `--json` prints it at the beginning.
#[derive(Debug, Serialize)]
struct Up {
    name: String,
    lan: String,
    listening: SocketAddr,
    to: SocketAddr,
}

/// What was forwarded, as `--json` prints it at the end.
#[derive(Debug, Default, Serialize)]
struct Done {
    connections: u64,
    /// Connections that were reset or whose target was not reached.
    failed: u64,
    bytes_to_target: u64,
    bytes_from_target: u64,
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
        None => Some(TcpListener::bind(local).map_err(|error| unbound(*local, &error))?),
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
        wait: Wait::Block,
    };
    let lan = member::join(&options, "FORWARD".as_ref()).map_err(Outcome::no)?;
    let name = lan.own().name.to_string();
    // One thread serves all that is forwarded.
    let inline = StackOptions { drive: Drive::Inline, ..StackOptions::default() };
    let stack = Stack::new(lan, &inline).map_err(Outcome::no)?;
    let (entrance, to) = match (system, &arguments.from, arguments.to) {
        (Some(listener), _, Some(to)) => {
            listener.set_nonblocking(true).map_err(Outcome::no)?;
            (Entrance::System(listener), to)
        }
        (_, Some(from), _) => {
            let ip = from.address.ip();
            let own = match ip.is_unspecified() {
                true => stack.addresses().first().copied().unwrap_or(ip),
                false => ip,
            };
            let at = SocketAddr::new(own, from.address.port());
            let listener =
                tcpip::TcpListener::bind(&stack, at).map_err(|error| unbound(at, &error))?;
            listener.set_nonblocking(true).map_err(Outcome::no)?;
            (Entrance::Lan(listener), *local)
        }
        _ => unreachable!("one of them is required"),
    };
    let up = Up { name, lan: options.lan, listening: entrance.address().map_err(Outcome::no)?, to };
    let mut forwarder = Forwarder::new(stack, entrance, to, &held).map_err(Outcome::no)?;
    if output.json {
        // A pipe that nobody reads is no reason to end.
        let _ = print_json(&up);
    } else {
        let Up { name, lan, listening, to } = &up;
        say(format_args!("{name} is on the LAN {lan}, and forwards {listening} to {to}"));
    }
    forwarder.serve(&held).map_err(Outcome::no)?;
    if output.json {
        let _ = print_json(&forwarder.done);
    }
    Ok(())
}

fn unbound(address: SocketAddr, error: &io::Error) -> Outcome {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => ": choose another port, or 0 for a free one",
        ErrorKind::PermissionDenied => ": ports below 1024 are for root",
        _ => "",
    };
    Outcome::No(format!("cannot listen at {address}: {error}{hint}"))
}

/// Where connections come from.
enum Entrance {
    System(TcpListener),
    Lan(tcpip::TcpListener),
}

impl Entrance {
    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Entrance::System(listener) => listener.local_addr(),
            Entrance::Lan(listener) => listener.local_addr(),
        }
    }
}

/// A connection whose other half is being made by a thread.
type Connecting = (u64, io::Result<TcpStream>);

struct Forwarder {
    stack: Stack,
    entrance: Entrance,
    to: SocketAddr,
    poller: Poller,
    /// By their numbers, which are also what the poller and the stack call them.
    sessions: HashMap<u64, Session>,
    /// Those that may have something to carry.
    ready: BTreeSet<u64>,
    /// From the LAN, and waiting for the system's side.
    waiting: HashMap<u64, tcpip::TcpStream>,
    begun: u64,
    connections_max: usize,
    made: Receiver<Connecting>,
    making: Sender<Connecting>,
    /// A byte comes out of the first for each connection that a thread has made or not made.
    wake: (UnixStream, Arc<UnixStream>),
    done: Done,
}

/// Whether there may be another connection to accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    /// None until somebody asks for one.
    Idle,
    /// None until one of those that there are has ended.
    Full,
    /// The system has no descriptor for one.
    Short,
}

impl Forwarder {
    fn new(
        stack: Stack,
        entrance: Entrance,
        to: SocketAddr,
        held: &HeldSignals,
    ) -> io::Result<Forwarder> {
        let poller = Poller::new()?;
        let (awake, wake) = UnixStream::pair()?;
        awake.set_nonblocking(true)?;
        poller.add(&stack.descriptor()?, OTHERS)?;
        poller.add(held.as_fd(), OTHERS)?;
        poller.add(&awake, OTHERS)?;
        if let Entrance::System(listener) = &entrance {
            poller.add_edges(listener, OTHERS)?;
        }
        let (making, made) = channel();
        let descriptors_max = CONNECTIONS_MAX * DESCRIPTORS_PER_CONNECTION;
        let descriptors = os::memory::allow_descriptors(descriptors_max as u64);
        Ok(Forwarder {
            stack,
            entrance,
            to,
            poller,
            sessions: HashMap::new(),
            ready: BTreeSet::new(),
            waiting: HashMap::new(),
            begun: OTHERS,
            connections_max: (descriptors as usize / DESCRIPTORS_PER_CONNECTION)
                .clamp(1, CONNECTIONS_MAX),
            made,
            making,
            wake: (awake, Arc::new(wake)),
            done: Done::default(),
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
            self.complete();
            let accepting = self.accept()?;
            while let Some(number) = self.stack.take_changed()? {
                self.ready.insert(number);
            }
            let before = self.sessions.len();
            self.carry();
            let has_room = accepting == Accepting::Full && self.sessions.len() < before;
            // What came while others were served may be for one that was served before, or ask for another connection: then
            // the time is zero.
            let mut time = self.stack.prepare_wait()?;
            if has_room || !self.ready.is_empty() {
                time = Duration::ZERO;
            } else if accepting == Accepting::Short {
                time = time.min(SHORT_OF_DESCRIPTORS);
            }
            let ready = self.poller.wait((time != Duration::MAX).then_some(time))?;
            self.ready.extend(ready.iter().filter(|number| **number != OTHERS));
        }
    }

    fn accept(&mut self) -> io::Result<Accepting> {
        while self.sessions.len() + self.waiting.len() < self.connections_max {
            match &self.entrance {
                Entrance::System(listener) => match listener.accept() {
                    Ok((system, _)) => self.begin_to_lan(system),
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
                Entrance::Lan(listener) => match listener.accept() {
                    Ok((lan, _)) => self.begin_to_system(lan),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        return Ok(Accepting::Idle);
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(Accepting::Full)
    }

    fn begin_to_lan(&mut self, system: TcpStream) {
        self.done.connections += 1;
        self.begun += 1;
        match tcpip::TcpStream::start_connecting(&self.stack, self.to) {
            Ok(lan) => self.begin(self.begun, system, lan),
            Err(_) => {
                self.done.failed += 1;
                let _ = os::socket::reset_when_closed(&system);
            }
        }
    }

    /// Has a thread connect to the server: the system's own verb waits.
    fn begin_to_system(&mut self, lan: tcpip::TcpStream) {
        self.done.connections += 1;
        self.begun += 1;
        let (number, to, making) = (self.begun, self.to, self.making.clone());
        let wake = self.wake.1.clone();
        let spawned = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let _ = making.send((number, TcpStream::connect_timeout(&to, CONNECT_MAX)));
            let _ = (&*wake).write_all(&[1]);
        });
        match spawned {
            Ok(_) => {
                self.waiting.insert(number, lan);
            }
            // The system has no room for one more, which is no reason to end the others.
            Err(_) => {
                self.done.failed += 1;
                let _ = lan.reset();
            }
        }
    }

    /// Takes the connections that threads have made.
    fn complete(&mut self) {
        let mut bytes = [0; 64];
        while (&self.wake.0).read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
        while let Ok((number, system)) = self.made.try_recv() {
            let Some(lan) = self.waiting.remove(&number) else { continue };
            match system {
                Ok(system) => self.begin(number, system, lan),
                Err(_) => {
                    self.done.failed += 1;
                    let _ = lan.reset();
                }
            }
        }
    }

    /// Both halves of a connection are there, or on their way.
    fn begin(&mut self, number: u64, system: TcpStream, lan: tcpip::TcpStream) {
        let session = Session::of(system, lan);
        match session.watch(&self.poller, number) {
            Ok(()) => {
                self.ready.insert(number);
                self.sessions.insert(number, session);
            }
            Err(_) => {
                self.done.failed += 1;
                session.reset();
            }
        }
    }

    /// Carries bytes of those connections that may have some. Those that have more stay ready.
    fn carry(&mut self) {
        let Forwarder { sessions, ready, done, entrance, .. } = self;
        let is_to_lan = matches!(entrance, Entrance::System(_));
        ready.retain(|number| {
            let Some(session) = sessions.get_mut(number) else { return false };
            let carried = session.carry();
            let counts = [&mut session.to_lan.carried, &mut session.to_system.carried];
            let [to_lan, to_system] = counts.map(std::mem::take);
            let (to, from) = if is_to_lan { (to_lan, to_system) } else { (to_system, to_lan) };
            done.bytes_to_target += to;
            done.bytes_from_target += from;
            let is_over = match &carried {
                Ok(_) => session.to_lan.is_shut && session.to_system.is_shut,
                Err(_) => {
                    done.failed += 1;
                    session.reset();
                    true
                }
            };
            if is_over {
                sessions.remove(number);
            }
            !is_over && carried.is_ok_and(|more| more)
        });
    }
}

/// A connection, which is two: one of the system, and one on the LAN.
struct Session {
    system: TcpStream,
    lan: tcpip::TcpStream,
    to_lan: Pipe,
    to_system: Pipe,
}

impl Session {
    fn of(system: TcpStream, lan: tcpip::TcpStream) -> Session {
        // What is forwarded was held back by its sender already, if at all.
        let _ = lan.set_nodelay(true);
        let _ = system.set_nodelay(true);
        Session { system, lan, to_lan: Pipe::default(), to_system: Pipe::default() }
    }

    /// Has the poller and the stack name this when there may be something to carry.
    fn watch(&self, poller: &Poller, number: u64) -> io::Result<()> {
        self.system.set_nonblocking(true)?;
        self.lan.set_nonblocking(true)?;
        self.lan.watch(number)?;
        poller.add_edges(&self.system, number)
    }

    fn carry(&mut self) -> io::Result<bool> {
        let Session { system, lan, to_lan, to_system } = self;
        let more = to_lan.carry(&mut &*system, &mut &*lan, || lan.shutdown(Shutdown::Write))?;
        let back =
            to_system.carry(&mut &*lan, &mut &*system, || system.shutdown(Shutdown::Write))?;
        // A side that is not read while the other has no room may have failed nevertheless.
        if to_lan.is_held_up()
            && let Some(error) = system.take_error()?
        {
            return Err(error);
        }
        if to_system.is_held_up()
            && let Some(error) = lan.take_error()?
        {
            return Err(error);
        }
        Ok(more | back)
    }

    /// One side has failed: the other is told so, and not that this was the end.
    fn reset(&self) {
        let _ = os::socket::reset_when_closed(&self.system);
        let _ = self.lan.reset();
    }
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    /// What was read and is not written: `kept[written..]`.
    kept: Vec<u8>,
    written: usize,
    has_ended: bool,
    /// Whether the end was passed on.
    is_shut: bool,
    carried: u64,
}

impl Pipe {
    /// Whether something was read that the other side has no room for.
    fn is_held_up(&self) -> bool {
        self.written < self.kept.len()
    }

    /// Reads and writes until one side has no more, or no room. True if its turn was over before.
    fn carry(
        &mut self,
        source: &mut impl Read,
        target: &mut impl Write,
        shut: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<bool> {
        for _ in 0..TURNS_MAX {
            if self.is_held_up() {
                match target.write(&self.kept[self.written..]) {
                    Ok(count) => {
                        self.written += count;
                        self.carried += count as u64;
                    }
                    Err(error) if is_early(&error) => return Ok(false),
                    Err(error) => return Err(error),
                }
                continue;
            }
            if self.has_ended {
                if !std::mem::replace(&mut self.is_shut, true) {
                    self.kept = Vec::new();
                    self.written = 0;
                    shut()?;
                }
                return Ok(false);
            }
            self.written = 0;
            self.kept.resize(KEPT_BYTES, 0);
            let read = source.read(&mut self.kept);
            self.kept.truncate(*read.as_ref().unwrap_or(&0));
            match read {
                Ok(count) => self.has_ended = count == 0,
                Err(error) if is_early(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
