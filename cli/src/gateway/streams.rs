//! Connections of members: each is two, the member's with this gateway's stack, and one of a socket to the address that the member asked
//! for.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use os::poller::Poller;
use os::processor::now_ns;
use siga::Name;
use siga::tcpip::{Asked, Counter, Outside};

use super::dns::{Over, Resolvers};
use super::failure::{Failure, failure};
use crate::session::{Connected, Pump, Turn, Woken};

/// How long the other side may leave the first segment of a connection without an answer.
const SILENCE_MAX: Duration = Duration::from_secs(60);

pub struct Streams(Pump<Name, Begun>);

/// A connection whose socket is on its way.
struct Begun {
    asked: Asked,
    /// Where to: elsewhere than the member says if that is a resolver.
    to: SocketAddr,
    at_ns: u64,
}

impl Streams {
    pub fn new(connections_max: usize) -> Streams {
        Streams(Pump::new(connections_max))
    }

    pub fn has_more(&self) -> bool {
        self.0.has_more()
    }

    /// Returns true if a guest, or all together, have as many as they may.
    pub fn is_full(&self, guest: Name) -> bool {
        self.0.shares.is_full() || self.0.shares.is_beyond(guest)
    }

    /// Begins to connect for a member, to the address that it has asked for, or `to` in its place.
    ///
    /// # Errors
    /// The failure that the member is to be told.
    pub fn begin(
        &mut self,
        now: u64,
        (asked, guest): (Asked, Name),
        to: SocketAddr,
        poller: &Poller,
        number: u64,
    ) -> Result<(), Failure> {
        let begun = (Begun { asked, to, at_ns: now }, guest);
        let connecting = self.0.connect(number, begun, (to, SILENCE_MAX), poller);
        connecting.map_err(|(_, error)| failure(&error))?;
        self.0.shares.enter(guest);
        Ok(())
    }

    /// The poller has named a number. Returns false if it is none of a connection. A resolver that is not reached is left for the next.
    ///
    /// # Errors
    /// As [`Outside::poll`].
    pub fn wake(
        &mut self,
        number: u64,
        outside: &Outside,
        resolvers: &mut Resolvers,
    ) -> io::Result<bool> {
        let Connected { asked: Begun { asked, to, at_ns }, owner: guest, socket } =
            match self.0.wake(number) {
                Woken::Known => return Ok(true),
                Woken::Unknown => return Ok(false),
                Woken::Connected(connected) => connected,
            };
        let begun = match socket {
            Ok(socket) => match outside.accept(asked)? {
                Some(stream) => {
                    outside.count(Counter::OutsideConnections, 1)?;
                    let ends = (number, guest);
                    let begun = self.0.begin(ends, socket, stream, None, now_ns()).is_ok();
                    if to != asked.destination {
                        self.0.restrict_to_questions(number);
                    }
                    begun
                }
                None => false,
            },
            Err(error) => {
                let failure = failure(&error);
                if to != asked.destination && failure != Failure::Lacking {
                    resolvers.fail(to, Over::Tcp, at_ns);
                }
                failure.tell_asker(outside, asked)?;
                false
            }
        };
        if !begun {
            self.0.shares.leave(guest);
        }
        Ok(true)
    }

    /// The stack has named a connection.
    pub fn change(&mut self, number: u64) {
        self.0.change(number);
    }

    /// Carries bytes of some of the connections that may have some.
    ///
    /// # Errors
    /// As [`Outside::poll`].
    pub fn carry(&mut self, now: u64, outside: &Outside) -> io::Result<()> {
        let Turn { to_lan, to_system, failed } = self.0.carry(now)?;
        let is_forbidden =
            |(_, error): &&(Name, io::Error)| error.kind() == ErrorKind::PermissionDenied;
        let forbidden = failed.iter().filter(is_forbidden).count();
        if forbidden > 0 {
            outside.count(Counter::OutsideForbidden, forbidden as u64)?;
        }
        if to_system > 0 {
            outside.count(Counter::OutsideBytesOut, to_system)?;
        }
        if to_lan > 0 {
            outside.count(Counter::OutsideBytesIn, to_lan)?;
        }
        Ok(())
    }
}
