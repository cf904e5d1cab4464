//! Connections of members: each is two, the member's with this gateway's stack, and one of a socket to the address that the member asked
//! for.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use os::poller::Poller;
use siga::Name;
use siga::tcpip::{Asked, Counter, Outside};

use super::{Failure, failure};
use crate::session::{Session, Shares, Turns};

/// How long the other side may leave the first segment of a connection without an answer.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Connections that are carried on before the stack and the others have their turn.
const CARRIED_PER_TURN: usize = 64;

pub struct Streams {
    shares: Shares<Name>,
    /// Whose sockets are on their way to their addresses.
    connecting: HashMap<u64, Connecting>,
    sessions: HashMap<u64, Carried>,
    /// Those that may have something to carry.
    ready: Turns,
}

struct Carried {
    session: Session,
    guest: Name,
    /// True once nothing is carried any more. It counts until the stack has done with it: a member that does not acknowledge the end would
    /// fill the stack with such.
    is_over: bool,
}

struct Connecting {
    asked: Asked,
    guest: Name,
    socket: TcpStream,
}

impl Streams {
    pub fn new(connections_max: usize) -> Streams {
        Streams {
            shares: Shares::new(connections_max),
            connecting: HashMap::new(),
            sessions: HashMap::new(),
            ready: Turns::default(),
        }
    }

    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns true if a guest, or all together, have as many as they may.
    pub fn is_full(&self, guest: Name) -> bool {
        self.shares.is_full() || self.shares.is_beyond(guest)
    }

    /// Begins to connect for a member, to the address that it has asked for, or `to` in its place.
    ///
    /// # Errors
    /// The failure that the member is to be told.
    pub fn begin(
        &mut self,
        (asked, guest): (Asked, Name),
        to: SocketAddr,
        poller: &Poller,
        number: u64,
    ) -> Result<(), Failure> {
        let socket =
            os::socket::start_connecting(to, SILENCE_MAX).map_err(|error| failure(&error))?;
        poller.add_edges(&socket, number).map_err(|error| failure(&error))?;
        self.shares.enter(guest);
        self.connecting.insert(number, Connecting { asked, guest, socket });
        Ok(())
    }

    /// The poller has named a number. Returns false if it is none of a connection.
    ///
    /// # Errors
    /// As [`Outside::poll`].
    pub fn wake(&mut self, number: u64, outside: &Outside) -> io::Result<bool> {
        if self.sessions.contains_key(&number) {
            self.ready.add(number);
            return Ok(true);
        }
        let Some(Connecting { socket, .. }) = self.connecting.get(&number) else {
            return Ok(false);
        };
        let failed = match socket.take_error() {
            Ok(None) if socket.peer_addr().is_err() => return Ok(true),
            Ok(error) => error,
            Err(error) => Some(error),
        };
        let Some(Connecting { asked, guest, socket }) = self.connecting.remove(&number) else {
            return Ok(true);
        };
        if let Some(error) = failed {
            self.shares.leave(guest);
            failure(&error).tell_asker(outside, asked)?;
            return Ok(true);
        }
        let Some(stream) = outside.accept(asked)? else {
            self.shares.leave(guest);
            return Ok(true);
        };
        outside.count(Counter::OutsideConnections, 1)?;
        let _ = os::socket::connected(&socket);
        let session = Session::of(socket, stream, asked.source.ip());
        session.lan.watch(number)?;
        self.sessions.insert(number, Carried { session, guest, is_over: false });
        self.ready.add(number);
        Ok(true)
    }

    /// The stack has named a connection.
    pub fn change(&mut self, number: u64) {
        self.ready.add(number);
    }

    /// Carries bytes of some of the connections that may have some.
    ///
    /// # Errors
    /// As [`Outside::poll`].
    pub fn carry(&mut self, outside: &Outside) -> io::Result<()> {
        let (mut bytes_out, mut bytes_in) = (0, 0);
        for number in self.ready.take(CARRIED_PER_TURN) {
            let Some(Carried { session, guest, is_over }) = self.sessions.get_mut(&number) else {
                continue;
            };
            let mut has_more = false;
            if !*is_over {
                let carried = session.carry();
                bytes_out += std::mem::take(&mut session.to_system.carried);
                bytes_in += std::mem::take(&mut session.to_lan.carried);
                *is_over = match &carried {
                    Ok(_) => session.to_lan.is_shut && session.to_system.is_shut,
                    Err(_) => {
                        session.reset();
                        true
                    }
                };
                has_more = carried.is_ok_and(|has_more| has_more);
            }
            if *is_over && !session.lan.is_closing()? {
                self.shares.leave(*guest);
                self.sessions.remove(&number);
            }
            if has_more {
                self.ready.add(number);
            }
        }
        outside.count(Counter::OutsideBytesOut, bytes_out)?;
        outside.count(Counter::OutsideBytesIn, bytes_in)
    }
}
