//! The loop that carries all connections of `siga forward`.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use os::poller::Poller;
use os::processor::now_ns;
use os::signals::HeldSignals;
use siga::tcpip::{self, Stack};

use super::{Done, Server};
use crate::notices::Notices;
use crate::route::Told;
use crate::session::{Connected, Pump, Shares, Turn, Woken};

/// The shortest time between two looks at connections that may be idle for too long.
const IDLE_LOOK_NS: u64 = 1_000_000_000;

/// Connections that must have been open at once before memory is given back when most of them have ended.
const GIVE_BACK_CONNECTIONS: usize = 64;

/// Descriptors for each connection: one, and one that is left to the LAN, which needs some for each path.
const DESCRIPTORS_PER_CONNECTION: usize = 2;

/// Connections that are accepted before others have their turn.
const ACCEPTED_PER_TURN: usize = 64;

/// How long a connection to a server of this system is tried.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// When a connection is tried again that the system had no descriptor for.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// The poller's tokens for signals, and for all other descriptors that are not a connection's. A connection's token is its number.
const OTHERS: u64 = 0;
const SIGNALS: u64 = 1;

/// Where connections come from, and where they go.
pub enum Entrance {
    System(TcpListener, Server),
    Lan(tcpip::TcpListener, SocketAddr),
}

/// Limits of connections: how many are open at once, and how long one is idle.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections_max: usize,
    /// How long nothing comes over a connection until it is ended.
    pub idle: Option<Duration>,
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
    pub fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Entrance::System(listener, _) => listener.local_addr(),
            Entrance::Lan(listener, _) => listener.local_addr(),
        }
    }
}

pub struct Forwarder {
    stack: Stack,
    entrance: Entrance,
    poller: Poller,
    /// Those from the LAN whose socket is on its way have their LAN's half.
    pump: Pump<IpAddr, tcpip::TcpStream>,
    /// A connection from the LAN for whose socket the system lacked something, its source, and where it goes.
    waiting: Option<(tcpip::TcpStream, IpAddr, SocketAddr)>,
    begun: u64,
    /// How long nothing comes over a connection until it is ended.
    idle: Option<Duration>,
    /// The most connections that were open since memory was given back.
    open_max: usize,
    notices: Notices<Subject>,
    /// When connections are looked at next that may be idle for too long.
    idle_look_ns: u64,
    pub done: Done,
    told: Told,
}

/// The subject of a message: connections of a source that are refused, or reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Refused(IpAddr),
    Reset(IpAddr),
}

/// The state of accepting connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    /// None until somebody asks for one.
    Idle,
    /// There may be more: others have their turn before.
    More,
    /// The system has no descriptor for one, or no memory.
    Short,
}

impl Forwarder {
    pub fn new(
        stack: Stack,
        entrance: Entrance,
        limits: Limits,
        held: &HeldSignals,
    ) -> io::Result<Forwarder> {
        let poller = Poller::new()?;
        poller.add(&stack.descriptor()?, OTHERS)?;
        poller.add(held.as_fd(), SIGNALS)?;
        if let Entrance::System(listener, _) = &entrance {
            poller.add_edges(listener, OTHERS)?;
        }
        let descriptors_max = limits.connections_max * DESCRIPTORS_PER_CONNECTION;
        let descriptors = os::memory::allow_descriptors(descriptors_max as u64);
        let connections_max =
            (descriptors as usize / DESCRIPTORS_PER_CONNECTION).clamp(1, limits.connections_max);
        Ok(Forwarder {
            stack,
            entrance,
            poller,
            pump: Pump::new(connections_max),
            waiting: None,
            begun: SIGNALS,
            idle: limits.idle,
            open_max: 0,
            notices: Notices::default(),
            idle_look_ns: 0,
            done: Done::default(),
            told: Told::default(),
        })
    }

    /// Forwards until a signal asks to end.
    pub fn serve(&mut self, held: &HeldSignals) -> io::Result<()> {
        loop {
            self.stack.poll()?;
            self.told.tell(&self.stack);
            let accepting = self.accept()?;
            while let Some(number) = self.stack.take_changed()? {
                self.pump.change(number);
            }
            self.carry()?;
            let idle_time = self.end_idle()?;
            self.give_back();
            // What came while others were served may be for one that was served before, or ask for another connection: then
            // the time is zero.
            let mut time = self.stack.prepare_wait()?;
            time = time.min(idle_time);
            if accepting == Accepting::More || self.pump.has_more() {
                time = Duration::ZERO;
            } else if accepting == Accepting::Short {
                time = time.min(SHORT_OF_DESCRIPTORS);
            }
            let ready = self.poller.wait((time != Duration::MAX).then_some(time))?.to_vec();
            for number in ready {
                match number {
                    OTHERS => {}
                    SIGNALS => {
                        while let Some(signal) = held.take()? {
                            if signal.asks_to_end() {
                                return Ok(());
                            }
                        }
                    }
                    _ => {
                        if let Woken::Connected(connected) = self.pump.wake(number) {
                            self.complete(number, connected);
                        }
                    }
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<Accepting> {
        if let Some((lan, source, to)) = self.waiting.take()
            && !self.begin_to_system(lan, source, to)
        {
            return Ok(Accepting::Short);
        }
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
                        if !self.admit(source.ip()) {
                            let _ = lan.reset();
                        } else if !self.begin_to_system(lan, source.ip(), to) {
                            return Ok(Accepting::Short);
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
        let shares = &mut self.pump.shares;
        let Some(refusal) = refusal(shares, source) else {
            self.done.connections += 1;
            shares.enter(source);
            self.open_max = self.open_max.max(shares.all);
            return true;
        };
        self.done.refused += 1;
        let (refused, Shares { most, all, .. }) = (self.done.refused, &*shares);
        self.notices.say(Subject::Refused(source), || {
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
    fn fail(&mut self, source: IpAddr, why: &str) {
        self.pump.shares.leave(source);
        self.report(source, Some(why));
    }

    /// Counts a connection that is reset, and says why unless that is part of a program's life.
    fn report(&mut self, source: IpAddr, why: Option<&str>) {
        self.done.failed += 1;
        if let Some(why) = why {
            let what = || format!("a connection of {source} is reset: {why}");
            self.notices.say(Subject::Reset(source), what);
        }
    }

    /// The reason that the target is not reached, if that is what an error stands for.
    fn unreached(&self, error: &io::Error) -> Option<String> {
        let to = match &self.entrance {
            Entrance::System(_, to) => to.to_string(),
            Entrance::Lan(_, to) => to.to_string(),
        };
        match error.kind() {
            ErrorKind::ConnectionRefused => Some(format!("nobody listens at {to}")),
            ErrorKind::HostUnreachable => Some(format!("{to} cannot be reached")),
            _ => None,
        }
    }

    fn begin_to_lan(&mut self, system: TcpStream, source: IpAddr, to: Server) {
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
            Ok(lan) => {
                self.begun += 1;
                let ends = (self.begun, source);
                let begun = self.pump.begin(ends, system, lan, Some(&self.poller), now_ns());
                if let Err(error) = begun {
                    self.fail(source, &error.to_string());
                }
            }
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

    /// Returns false if the system lacks something for another socket: the connection waits until it is tried again.
    fn begin_to_system(&mut self, lan: tcpip::TcpStream, source: IpAddr, to: SocketAddr) -> bool {
        self.begun += 1;
        let asked = (lan, source);
        let connecting = self.pump.connect(self.begun, asked, (to, CONNECT_MAX), &self.poller);
        match connecting {
            Ok(()) => true,
            Err((lan, error)) if os::socket::is_lack(&error) => {
                self.waiting = Some((lan, source, to));
                false
            }
            Err((lan, error)) => {
                self.give_up(&lan, source, &error);
                true
            }
        }
    }

    /// The socket of a connection from the LAN is connected, or has failed.
    fn complete(&mut self, number: u64, connected: Connected<IpAddr, tcpip::TcpStream>) {
        let Connected { asked: lan, owner: source, socket } = connected;
        match socket {
            Ok(system) => {
                let begun = self.pump.begin((number, source), system, lan, None, now_ns());
                if let Err(error) = begun {
                    self.fail(source, &error.to_string());
                }
            }
            Err(error) => self.give_up(&lan, source, &error),
        }
    }

    fn give_up(&mut self, lan: &tcpip::TcpStream, source: IpAddr, error: &io::Error) {
        let _ = lan.reset();
        let why = self.unreached(error).unwrap_or_else(|| error.to_string());
        self.fail(source, &why);
    }

    /// Carries bytes of some of the connections that may have some.
    fn carry(&mut self) -> io::Result<()> {
        let Turn { to_lan, to_system, failed } = self.pump.carry(now_ns())?;
        let (to, from) = match self.entrance {
            Entrance::System(..) => (to_lan, to_system),
            Entrance::Lan(..) => (to_system, to_lan),
        };
        self.done.bytes_to_target += to;
        self.done.bytes_from_target += from;
        for (source, error) in failed {
            // A reset is part of a program's life, a server that is not there is not.
            let why = self.unreached(&error);
            self.report(source, why.as_deref());
        }
        Ok(())
    }

    /// Ends connections over which nothing has come for too long. When to look again.
    fn end_idle(&mut self) -> io::Result<Duration> {
        let Some(idle) = self.idle else { return Ok(Duration::MAX) };
        let (now, idle_ns) = (now_ns(), u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX));
        if now >= self.idle_look_ns {
            let (over, oldest_ns) = match now.checked_sub(idle_ns) {
                Some(since_ns) => self.pump.end_idle(since_ns)?,
                None => (Vec::new(), None),
            };
            for source in over {
                self.report(source, Some("nothing has come for as long as --idle says"));
            }
            // Not for each of many one after the other.
            let due = oldest_ns.unwrap_or(now).saturating_add(idle_ns);
            self.idle_look_ns = due.max(now + IDLE_LOOK_NS);
        }
        match self.pump.is_idle() {
            true => Ok(Duration::MAX),
            false => Ok(Duration::from_nanos(self.idle_look_ns.saturating_sub(now))),
        }
    }

    /// Gives memory back to the system once most connections have ended.
    fn give_back(&mut self) {
        let open = self.pump.shares.all;
        if self.open_max >= GIVE_BACK_CONNECTIONS && open <= self.open_max / 8 {
            self.open_max = open;
            self.pump.shrink();
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
}
