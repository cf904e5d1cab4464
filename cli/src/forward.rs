//! `siga forward`: connections between the programs of this system and a LAN.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use os::poller::Poller;
use os::signals::HeldSignals;
use port::member::{self, Options, WrittenAddress};
use serde::Serialize;
use siga::Wait;
use siga::tcpip::{self, Counter, Stack, StackOptions};

use crate::outcome::Outcome;
use crate::output::{Output, print_json};
use crate::socket::Socket;

/// Connections at once. Others wait until one of these has ended.
const CONNECTIONS_MAX: usize = 1024;

/// Bytes that are kept of one direction of a connection: what has been read and not been written.
const KEPT_BYTES: usize = 32 << 10;

/// Reads and writes of one direction before the next has its turn.
const TURNS_MAX: usize = 8;

/// How long programs of this system wait to be accepted after that has failed, because there were no descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// How long a connection to a server of this system is tried.
const CONNECT_MAX: Duration = Duration::from_secs(10);

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
        wait: Wait::Block,
    };
    let lan = member::join(&options, "FORWARD".as_ref()).map_err(Outcome::no)?;
    let name = lan.own().name.to_string();
    let stack = Stack::new(lan, &StackOptions::default()).map_err(Outcome::no)?;
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
        eprintln!("{name} is on the LAN {lan}, and forwards {listening} to {to}");
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

/// How far accepting has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepted {
    /// Nobody waits.
    All,
    /// There are as many connections as there may be.
    Full,
    /// The system gives no more for now.
    Failed,
}

struct Forwarder {
    stack: Stack,
    entrance: Entrance,
    to: SocketAddr,
    poller: Poller,
    sessions: Vec<Session>,
    /// From the LAN, and waiting for the system's side.
    waiting: Vec<(u64, tcpip::TcpStream)>,
    begun: u64,
    made: Receiver<Connecting>,
    making: Sender<Connecting>,
    /// A byte comes out of the first for each connection that a thread has made or not made.
    wake: (UnixStream, UnixStream),
    done: Done,
}

impl Forwarder {
    fn new(
        stack: Stack,
        entrance: Entrance,
        to: SocketAddr,
        held: &HeldSignals,
    ) -> io::Result<Forwarder> {
        let poller = Poller::new()?;
        let wake = UnixStream::pair()?;
        wake.0.set_nonblocking(true)?;
        // All are looked at whenever one has news: the names do not matter.
        poller.add(&stack.descriptor()?, 0)?;
        poller.add(held.as_fd(), 0)?;
        poller.add(&wake.0, 0)?;
        if let Entrance::System(listener) = &entrance {
            poller.add_edges(listener, 0)?;
        }
        let (making, made) = channel();
        Ok(Forwarder {
            stack,
            entrance,
            to,
            poller,
            sessions: Vec::new(),
            waiting: Vec::new(),
            begun: 0,
            made,
            making,
            wake,
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
            let news = self.news();
            self.stack.poll()?;
            let accepted = self.accept()?;
            self.complete()?;
            let has_more = self.carry();
            let time = self.stack.prepare_wait()?;
            // What came or ended while others were served may be of one that was served before.
            let has_news = self.news() != news;
            let time = match accepted {
                // An edge tells of programs that wait only once: now there is room for them.
                Accepted::Full if self.has_room() => Duration::ZERO,
                _ if has_more || has_news => Duration::ZERO,
                Accepted::Failed => time.min(ACCEPT_AGAIN),
                Accepted::All | Accepted::Full => time,
            };
            self.poller.wait((time != Duration::MAX).then_some(time))?;
        }
    }

    /// A count that changes with all that connections on the LAN can learn without being served.
    fn news(&self) -> u64 {
        let counters = [
            Counter::FramesReceived,
            Counter::TimedOut,
            Counter::Gone,
            Counter::Broken,
            Counter::TargetFull,
        ];
        counters.into_iter().fold(0, |sum, counter| sum.wrapping_add(self.stack.counter(counter)))
    }

    fn has_room(&self) -> bool {
        self.sessions.len() + self.waiting.len() < CONNECTIONS_MAX
    }

    /// Accepts all that wait, as far as there is room.
    fn accept(&mut self) -> io::Result<Accepted> {
        while self.has_room() {
            match &self.entrance {
                Entrance::System(listener) => match listener.accept() {
                    Ok((system, _)) => self.begin_to_lan(system),
                    Err(error) => match error.kind() {
                        ErrorKind::WouldBlock => return Ok(Accepted::All),
                        // A connection that is over already.
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                        _ => return Ok(Accepted::Failed),
                    },
                },
                Entrance::Lan(listener) => match listener.accept() {
                    Ok((lan, _)) => self.begin_to_system(lan),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        return Ok(Accepted::All);
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(Accepted::Full)
    }

    fn begin_to_lan(&mut self, system: TcpStream) {
        self.done.connections += 1;
        let lan = tcpip::TcpStream::start_connecting(&self.stack, self.to);
        match lan.and_then(|lan| Session::ready(&self.poller, &system).map(|()| lan)) {
            Ok(lan) => self.sessions.push(Session::of(system, lan)),
            Err(_) => {
                self.done.failed += 1;
                let _ = os::socket::reset_when_closed(&system);
            }
        }
    }

    /// Has a thread connect to the server: the system's own verb waits. If there can be no thread, the connection fails,
    /// and the others go on.
    fn begin_to_system(&mut self, lan: tcpip::TcpStream) {
        self.done.connections += 1;
        self.begun += 1;
        let (number, to, making) = (self.begun, self.to, self.making.clone());
        let begun = self.wake.1.try_clone().and_then(|mut wake| {
            std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
                let _ = making.send((number, TcpStream::connect_timeout(&to, CONNECT_MAX)));
                let _ = wake.write_all(&[1]);
            })
        });
        match begun {
            Ok(_) => self.waiting.push((number, lan)),
            Err(_) => {
                self.done.failed += 1;
                let _ = lan.reset();
            }
        }
    }

    /// Takes the connections that threads have made.
    fn complete(&mut self) -> io::Result<()> {
        let mut bytes = [0; 64];
        while (&self.wake.0).read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
        while let Ok((number, system)) = self.made.try_recv() {
            let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == number) else {
                continue;
            };
            let (_, lan) = self.waiting.swap_remove(at);
            lan.set_nonblocking(true)?;
            match system.and_then(|system| Session::ready(&self.poller, &system).map(|()| system)) {
                Ok(system) => self.sessions.push(Session::of(system, lan)),
                Err(_) => {
                    self.done.failed += 1;
                    let _ = lan.reset();
                }
            }
        }
        Ok(())
    }

    /// Carries bytes of all connections. True if there is more to carry at once.
    fn carry(&mut self) -> bool {
        let Forwarder { sessions, done, entrance, .. } = self;
        let is_to_lan = matches!(entrance, Entrance::System(_));
        let mut has_more = false;
        sessions.retain_mut(|session| {
            let carried = session.carry();
            let counts = [&mut session.to_lan.carried, &mut session.to_system.carried];
            let [to_lan, to_system] = counts.map(std::mem::take);
            let (to, from) = if is_to_lan { (to_lan, to_system) } else { (to_system, to_lan) };
            done.bytes_to_target += to;
            done.bytes_from_target += from;
            match carried {
                Ok(more) => {
                    has_more |= more;
                    !(session.to_lan.is_shut && session.to_system.is_shut)
                }
                Err(_) => {
                    done.failed += 1;
                    session.reset();
                    false
                }
            }
        });
        has_more
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
    fn ready(poller: &Poller, system: &TcpStream) -> io::Result<()> {
        system.set_nonblocking(true)?;
        system.set_nodelay(true)?;
        poller.add_edges(system, 0)
    }

    fn of(system: TcpStream, lan: tcpip::TcpStream) -> Session {
        // What is forwarded was held back by its sender already, if at all.
        let _ = lan.set_nodelay(true);
        Session { system, lan, to_lan: Pipe::default(), to_system: Pipe::default() }
    }

    fn carry(&mut self) -> io::Result<bool> {
        let Session { system, lan, to_lan, to_system } = self;
        let more = to_lan.carry(&mut &*system, &mut &*lan, || lan.shutdown(Shutdown::Write))?;
        let back =
            to_system.carry(&mut &*lan, &mut &*system, || system.shutdown(Shutdown::Write))?;
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
    /// Reads and writes until one side has no more, or no room. True if its turn was over before.
    fn carry(
        &mut self,
        source: &mut impl Read,
        target: &mut impl Write,
        shut: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<bool> {
        for _ in 0..TURNS_MAX {
            if self.written < self.kept.len() {
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
