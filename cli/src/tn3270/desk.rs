//! All sessions of a server of terminals, on one thread that waits for none of them alone.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use os::poller::Poller;
use os::processor::now_ns;
use os::signals::HeldSignals;
use serde::Serialize;
use terminal::transaction::{Ending, Session, SessionOptions};

use crate::notices::Notices;

/// Bytes that are read of a session before others have their turn.
const READ_BYTES_MAX: usize = 4096;

/// Connections that are accepted before sessions have their turn.
const ACCEPTED_PER_TURN: usize = 16;

/// When accepting is tried again for which the system lacked something.
const SHORT_NS: u64 = Duration::from_millis(100).as_nanos() as u64;

/// The shortest time between two looks at all sessions for those that are silent: each is let go so much late at most.
const LOOK_PAUSE_NS: u64 = Duration::from_millis(100).as_nanos() as u64;

/// Sessions at once, at most: each has a name of its own, of eight letters as a mainframe has them.
pub const NAMES: u16 = 10_000;

/// The poller's tokens for the listener and for signals. A session's token is its number.
const LISTENER: u64 = 0;
const SIGNALS: u64 = 1;
const FIRST_SESSION: u64 = 2;

/// Limits of sessions.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of all; no more than [`NAMES`].
    pub sessions_max: usize,
    /// Of one address.
    pub sessions_per_address_max: usize,
}

/// What was done, as `--json` prints it at the end.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counted {
    /// Sessions that began.
    pub sessions: u64,
    /// Questions that were answered.
    pub transactions: u64,
    /// Sessions whose client has broken a rule.
    pub violations: u64,
    /// Sessions whose client has said nothing for too long.
    pub timeouts: u64,
    /// Connections that were refused, because as many are open as may be.
    pub refused: u64,
    /// Bytes of clients, and to them.
    pub bytes_received: u64,
    pub bytes_sent: u64,
}

/// The subject of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Refused(IpAddr),
    Ended(IpAddr),
    Accepting,
}

/// A session and its connection.
#[derive(Debug)]
struct Seat {
    stream: TcpStream,
    from: SocketAddr,
    /// The number in its name.
    name: u16,
    session: Session,
    /// Bytes that came and were not taken yet, because output waits.
    kept: Vec<u8>,
    /// Whether the poller may not tell of it again, because its connection was not read or written to the end.
    is_ready: bool,
    /// Whether the client sends no more. It may still read what it has asked for.
    has_ended: bool,
}

/// Whether there is more to do for a session at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    More,
    Waits,
}

/// The end of a connection.
#[derive(Debug)]
enum Over {
    /// The client has closed, or its connection is lost.
    Gone,
    /// The session has ended it.
    Ended(Ending),
}

/// All sessions.
#[derive(Debug)]
pub struct Desk {
    listener: TcpListener,
    /// Whether the poller tells of the listener: not while accepting has failed.
    is_listening: bool,
    poller: Poller,
    limits: Limits,
    options: SessionOptions,
    seats: BTreeMap<u64, Seat>,
    by_address: HashMap<IpAddr, usize>,
    /// Numbers of names that no session has; the one that was had last is given last.
    names: VecDeque<u16>,
    /// Sessions for which there may be something to do.
    ready: VecDeque<u64>,
    next: u64,
    /// When clients are looked at that may have been silent for too long. None is before: a key makes that later, and a session that has begun since is counted as if its first key were pressed then.
    look_ns: Option<u64>,
    counted: Counted,
    notices: Notices<Subject>,
}

impl Desk {
    pub fn new(
        listener: TcpListener,
        limits: Limits,
        options: SessionOptions,
        held: &HeldSignals,
    ) -> io::Result<Desk> {
        listener.set_nonblocking(true)?;
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER)?;
        poller.add(held.as_fd(), SIGNALS)?;
        // One for each session, and some for everything else.
        os::memory::allow_descriptors(limits.sessions_max as u64 + 64);
        Ok(Desk {
            listener,
            is_listening: true,
            poller,
            limits,
            options,
            seats: BTreeMap::new(),
            by_address: HashMap::new(),
            names: (0..NAMES).collect(),
            ready: VecDeque::new(),
            next: FIRST_SESSION,
            look_ns: None,
            counted: Counted::default(),
            notices: Notices::default(),
        })
    }

    pub fn counted(&self) -> Counted {
        let open: u64 = self.seats.values().map(|seat| seat.session.transactions()).sum();
        Counted { transactions: self.counted.transactions + open, ..self.counted }
    }

    /// Serves until a signal asks to end.
    pub fn serve(&mut self, held: &HeldSignals) -> io::Result<()> {
        // When accepting goes on that has failed.
        let mut accept_ns = None;
        loop {
            let now = now_ns();
            let due = self.look_ns.into_iter().chain(accept_ns).min();
            let time = match (self.ready.is_empty(), due) {
                (false, _) => Some(Duration::ZERO),
                (true, due) => due.map(|due| Duration::from_nanos(due.saturating_sub(now))),
            };
            let (mut has_signal, mut has_clients) = (false, accept_ns.is_some_and(|at| at <= now));
            for token in self.poller.wait(time)? {
                match *token {
                    SIGNALS => has_signal = true,
                    LISTENER => has_clients = true,
                    number => {
                        if let Some(seat) = self.seats.get_mut(&number)
                            && !std::mem::replace(&mut seat.is_ready, true)
                        {
                            self.ready.push_back(number);
                        }
                    }
                }
            }
            while has_signal && let Some(signal) = held.take()? {
                if signal.asks_to_end() {
                    return Ok(());
                }
            }
            let now = now_ns();
            if has_clients {
                accept_ns = self.accept(now);
            }
            for _ in 0..self.ready.len() {
                let Some(number) = self.ready.pop_front() else { break };
                self.turn(number, now);
            }
            if self.look_ns.is_some_and(|at| at <= now) {
                self.end_silent(now);
            }
        }
    }

    /// Accepts connections. If the system lacks something for one, returns when to try again.
    fn accept(&mut self, now: u64) -> Option<u64> {
        for _ in 0..ACCEPTED_PER_TURN {
            match self.listener.accept() {
                Ok((stream, from)) => self.begin(stream, from, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A client that is gone again.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return self.accept_later(&error, now),
            }
        }
        if !self.is_listening {
            if let Err(error) = self.poller.add(&self.listener, LISTENER) {
                return self.accept_later(&error, now);
            }
            self.is_listening = true;
        }
        None
    }

    /// Returns when to accept again. Until then the poller does not tell of the listener, or that would be all that is done.
    fn accept_later(&mut self, error: &io::Error, now: u64) -> Option<u64> {
        self.notices.say(Subject::Accepting, || {
            format!("no more sessions for now: {error}; it is tried again")
        });
        // If it cannot be left out, it is told of, and accepted from, at once.
        if self.is_listening && self.poller.remove(&self.listener).is_ok() {
            self.is_listening = false;
        }
        Some(now + SHORT_NS)
    }

    fn begin(&mut self, stream: TcpStream, from: SocketAddr, now: u64) {
        let source = source(from);
        let of_source = self.by_address.get(&source).copied().unwrap_or(0);
        let Limits { sessions_max, sessions_per_address_max } = self.limits;
        let why = match (self.seats.len() >= sessions_max, of_source >= sessions_per_address_max) {
            (true, _) => Some(format!("{sessions_max} sessions are open (--sessions)")),
            (_, true) => Some(format!(
                "{sessions_per_address_max} sessions are open from there (--sessions-per-address)"
            )),
            _ => None,
        };
        if let Some(why) = why {
            self.counted.refused += 1;
            self.notices.say(Subject::Refused(source), || format!("{from} is refused: {why}"));
            return;
        }
        let number = self.next;
        let watched = stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| self.poller.add_edges(&stream, number));
        if let Err(error) = watched {
            self.counted.refused += 1;
            self.notices.say(Subject::Accepting, || format!("{from} is refused: {error}"));
            return;
        }
        let name = self.names.pop_front().expect("no more sessions than names");
        self.next += 1;
        self.counted.sessions += 1;
        *self.by_address.entry(source).or_default() += 1;
        let session = Session::new(&format!("SIGA{name:04}"), &self.options, now);
        let look_ns = session.due_ns().min(self.silent_ns(now));
        self.look_ns = Some(self.look_ns.map_or(look_ns, |at| at.min(look_ns)));
        let seat = Seat {
            stream,
            from,
            name,
            session,
            kept: Vec::new(),
            is_ready: true,
            has_ended: false,
        };
        self.seats.insert(number, seat);
        self.ready.push_back(number);
    }

    fn turn(&mut self, number: u64, now: u64) {
        let Some(seat) = self.seats.get_mut(&number) else { return };
        match seat.turn(now, &mut self.counted) {
            Ok(Turn::More) => self.ready.push_back(number),
            Ok(Turn::Waits) => seat.is_ready = false,
            Err(over) => self.end(number, over),
        }
    }

    fn end_silent(&mut self, now: u64) {
        let silent = self.seats.iter().filter_map(|(number, seat)| {
            let ending = seat.session.poll(now).err()?;
            Some((*number, ending))
        });
        for (number, ending) in silent.collect::<Vec<_>>() {
            self.end(number, Over::Ended(ending));
        }
        let due = self.seats.values().map(|seat| seat.session.due_ns()).min();
        let soonest = now.saturating_add(LOOK_PAUSE_NS);
        self.look_ns = due.map(|due_ns| due_ns.min(self.silent_ns(now)).max(soonest));
    }

    /// When a terminal is silent for too long whose last key was pressed now.
    fn silent_ns(&self, now: u64) -> u64 {
        now.saturating_add(self.options.silence_ns)
    }

    /// Ends a session, and says why if the client has not meant it to end.
    fn end(&mut self, number: u64, over: Over) {
        let Some(seat) = self.seats.remove(&number) else { return };
        self.names.push_back(seat.name);
        let source = source(seat.from);
        if let Some(count) = self.by_address.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&source);
            }
        }
        self.counted.transactions += seat.session.transactions();
        let Over::Ended(ending) = over else { return };
        match ending {
            Ending::Left => return,
            Ending::Violation(_) => self.counted.violations += 1,
            Ending::NotNegotiated | Ending::Silent => self.counted.timeouts += 1,
        }
        let from = seat.from;
        self.notices
            .say(Subject::Ended(source), || format!("the session of {from} ends: {ending}"));
    }
}

impl Seat {
    /// Reads, answers and writes, each once.
    fn turn(&mut self, now: u64, counted: &mut Counted) -> Result<Turn, Over> {
        if self.kept.is_empty() && !self.has_ended {
            let mut room = [0; READ_BYTES_MAX];
            match self.stream.read(&mut room) {
                Ok(0) => self.has_ended = true,
                Ok(count) => {
                    counted.bytes_received += count as u64;
                    self.kept.extend_from_slice(&room[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // What comes from now on is told of.
                    self.write(counted)?;
                    return Ok(Turn::Waits);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Turn::More),
                Err(_) => return Err(Over::Gone),
            }
        }
        let taken = self.session.receive(&self.kept, now).map_err(Over::Ended)?;
        self.kept.drain(..taken);
        self.write(counted)
    }

    /// Writes what is to be sent. Behind the end of what the client sends, the connection is over then.
    fn write(&mut self, counted: &mut Counted) -> Result<Turn, Over> {
        while !self.session.output().is_empty() {
            match self.stream.write(self.session.output()) {
                Ok(0) => return Err(Over::Gone),
                Ok(count) => {
                    counted.bytes_sent += count as u64;
                    self.session.sent(count);
                }
                // Whoever does not read is not read either, once enough waits.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Turn::Waits),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Over::Gone),
            }
        }
        if self.has_ended {
            return Err(Over::Gone);
        }
        Ok(Turn::More)
    }
}

/// The address by which clients are limited: of IPv6 the network of 64 bits, of which a client has all addresses.
fn source(from: SocketAddr) -> IpAddr {
    match from.ip().to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address => address,
    }
}
