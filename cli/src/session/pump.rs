//! All connections of a command: one thread carries the bytes of all, each in its turn.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use os::poller::Poller;
use siga::tcpip;

use super::{Carried, Questions, Session, Shares, Side, Turns};

/// Connections by their numbers, which are also what the poller and the stack call them, and how many each owner has. `Asked` is what is kept of a connection
/// whose socket is still on its way.
pub struct Pump<Owner, Asked> {
    /// How many connections each owner has. Whoever begins one enters it; the pump takes those out that are over.
    pub shares: Shares<Owner>,
    connecting: HashMap<u64, Connecting<Owner, Asked>>,
    running: HashMap<u64, Running<Owner>>,
    /// The LAN's halves of those that are over, until the stack has done with them: a member that does not acknowledge the end would fill the stack
    /// with such.
    closing: HashMap<u64, (tcpip::TcpStream, Owner)>,
    /// Those that may have something to carry.
    ready: Turns<Owner>,
}

struct Connecting<Owner, Asked> {
    asked: Asked,
    owner: Owner,
    socket: TcpStream,
}

struct Running<Owner> {
    session: Session,
    owner: Owner,
    /// When something was carried last.
    carried_ns: u64,
}

/// A connection whose socket is connected, or has failed.
pub struct Connected<Owner, Asked> {
    pub asked: Asked,
    pub owner: Owner,
    pub socket: io::Result<TcpStream>,
}

/// The connection that the poller has named.
pub enum Woken<Owner, Asked> {
    /// The pump knows of it, and goes on with it.
    Known,
    Connected(Connected<Owner, Asked>),
    Unknown,
}

/// Bytes that were carried, and connections that have failed.
#[derive(Debug)]
pub struct Turn<Owner> {
    pub to_lan: u64,
    pub to_system: u64,
    pub failed: Vec<(Owner, io::Error)>,
}

impl<Owner: Copy + Eq + Hash, Asked> Pump<Owner, Asked> {
    pub fn new(connections_max: usize) -> Pump<Owner, Asked> {
        Pump {
            shares: Shares::new(connections_max),
            connecting: HashMap::new(),
            running: HashMap::new(),
            closing: HashMap::new(),
            ready: Turns::default(),
        }
    }

    /// Returns true if some may have something to carry.
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns true if no connection carries anything.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Begins to connect a socket. [`Pump::wake`] says how that has ended.
    ///
    /// # Errors
    /// As [`os::socket::start_connecting`].
    pub fn connect(
        &mut self,
        number: u64,
        (asked, owner): (Asked, Owner),
        (to, silence_max): (SocketAddr, Duration),
        poller: &Poller,
    ) -> Result<(), (Asked, io::Error)> {
        let watched = os::socket::start_connecting(to, silence_max)
            .and_then(|socket| poller.add_edges(&socket, number).map(|()| socket));
        match watched {
            Ok(socket) => {
                self.connecting.insert(number, Connecting { asked, owner, socket });
                Ok(())
            }
            Err(error) => Err((asked, error)),
        }
    }

    /// Carries a connection from now on. The poller is given for a socket that it does not watch yet.
    ///
    /// # Errors
    /// The socket cannot be watched: both sides are reset.
    pub fn begin(
        &mut self,
        (number, owner): (u64, Owner),
        socket: TcpStream,
        lan: tcpip::TcpStream,
        poller: Option<&Poller>,
        now: u64,
    ) -> io::Result<()> {
        let session = Session::of(socket, lan, (poller, number))?;
        self.running.insert(number, Running { session, owner, carried_ns: now });
        self.ready.add(owner, number);
        Ok(())
    }

    /// Lets nothing but questions after names go to the system over a connection that has begun, which is one to a resolver.
    pub fn restrict_to_questions(&mut self, number: u64) {
        if let Some(running) = self.running.get_mut(&number) {
            running.session.questions = Some(Questions::default());
        }
    }

    /// The poller has named a number.
    pub fn wake(&mut self, number: u64) -> Woken<Owner, Asked> {
        if let Some(running) = self.running.get_mut(&number) {
            running.session.of_system = Side::NAMED;
            self.ready.add(running.owner, number);
            return Woken::Known;
        }
        let Some(Connecting { socket, .. }) = self.connecting.get(&number) else {
            return match self.closing.contains_key(&number) {
                true => Woken::Known,
                false => Woken::Unknown,
            };
        };
        let error = match socket.take_error() {
            Ok(None) if socket.peer_addr().is_err() => return Woken::Known,
            Ok(error) => error,
            Err(error) => Some(error),
        };
        let Some(Connecting { asked, owner, socket }) = self.connecting.remove(&number) else {
            return Woken::Known;
        };
        let socket = match error {
            Some(error) => Err(error),
            None => os::socket::connected(&socket).map(|()| socket),
        };
        Woken::Connected(Connected { asked, owner, socket })
    }

    /// The stack has named a number.
    pub fn change(&mut self, number: u64) {
        if let Some(running) = self.running.get_mut(&number) {
            running.session.of_lan = Side::NAMED;
            self.ready.add(running.owner, number);
        } else if let Some((_, owner)) = self.closing.get(&number) {
            self.ready.add(*owner, number);
        }
    }

    /// Carries bytes of some of the connections that may have some. Those that have more stay ready.
    ///
    /// # Errors
    /// As [`tcpip::Stack::poll`].
    pub fn carry(&mut self, now: u64) -> io::Result<Turn<Owner>> {
        let mut turn = Turn { to_lan: 0, to_system: 0, failed: Vec::new() };
        self.ready.begin_round();
        while let Some((owner, number)) = self.ready.take() {
            let Some(Running { session, carried_ns, .. }) = self.running.get_mut(&number) else {
                // It has had its turn, or one with many that end would have all turns.
                self.ready.done((owner, number), 0, false);
                self.end_closing(number)?;
                continue;
            };
            let (mut bytes, mut is_ready) = (0, false);
            let is_over = match session.carry() {
                Ok(Carried { to_lan, to_system, has_more }) => {
                    turn.to_lan += to_lan as u64;
                    turn.to_system += to_system as u64;
                    (bytes, is_ready) = (to_lan + to_system, has_more);
                    if bytes > 0 {
                        *carried_ns = now;
                    }
                    session.is_over()
                }
                Err(error) => {
                    session.reset();
                    turn.failed.push((owner, error));
                    true
                }
            };
            self.ready.done((owner, number), bytes, is_ready);
            if is_over {
                self.end(number)?;
            }
        }
        Ok(turn)
    }

    /// Resets connections over which nothing has come since `since_ns`. Returns their owners, and when something came over that one of the
    /// others that was silent for longest.
    ///
    /// # Errors
    /// As [`tcpip::Stack::poll`].
    pub fn end_idle(&mut self, since_ns: u64) -> io::Result<(Vec<Owner>, Option<u64>)> {
        let idle = self.running.iter().filter(|(_, running)| running.carried_ns <= since_ns);
        let idle: Vec<u64> = idle.map(|(number, _)| *number).collect();
        let mut owners = Vec::new();
        for number in idle {
            if let Some(Running { session, owner, .. }) = self.running.get(&number) {
                session.reset();
                owners.push(*owner);
            }
            self.end(number)?;
        }
        Ok((owners, self.running.values().map(|running| running.carried_ns).min()))
    }

    /// Closes the socket of a connection that is over.
    fn end(&mut self, number: u64) -> io::Result<()> {
        let Some(Running { session, owner, .. }) = self.running.remove(&number) else {
            return Ok(());
        };
        self.closing.insert(number, (session.lan, owner));
        self.end_closing(number)
    }

    /// Leaves a connection that is over, if the stack has done with it: the stack names the connection then.
    fn end_closing(&mut self, number: u64) -> io::Result<()> {
        let Some((lan, owner)) = self.closing.get(&number) else { return Ok(()) };
        if !lan.is_closing()? {
            self.shares.leave(*owner);
            self.closing.remove(&number);
        }
        Ok(())
    }

    /// Gives memory back that was for many more connections than there are.
    pub fn shrink(&mut self) {
        self.running.shrink_to_fit();
        self.closing.shrink_to_fit();
    }
}
