//! Two connections that are one to their ends: a socket of this system, and a stream on a LAN.

mod pump;
mod questions;
mod shares;

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use os::poller::Poller;
use siga::tcpip;

pub use self::pump::{Connected, Pump, Turn, Woken};
use self::questions::Questions;
pub use self::questions::{HEAD_BYTES, is_query};
pub use self::shares::{Shares, Turns};

/// How long a side is silent before it is asked whether it is still there, how long until it is asked again, and how often.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(10);
const KEEP_ALIVE_PROBES: u32 = 6;

/// Bytes of one direction before others have their turn.
const TURN_BYTES: usize = 256 << 10;

/// Bytes that are read by one call of the system: no more than go into one frame, because a frame with the rest costs as much as a full one.
const READ_BYTES: usize = 64_000;

/// A connection, which is two: one of the system, and one on the LAN. Bytes go straight from the buffers of the one to those of the other: what has no
/// room there is not taken, and so held back where it comes from.
struct Session {
    system: TcpStream,
    lan: tcpip::TcpStream,
    of_system: Side,
    of_lan: Side,
    /// True once the end of this direction was passed on.
    is_lan_shut: bool,
    is_system_shut: bool,
    /// The questions to a resolver, if only those go to the system.
    questions: Option<Questions>,
}

/// The state of one side of a connection, as far as it was named.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// False from the moment that there was nothing to read, or no room, until the side is named again: to ask before would only say the
    /// same, for a system call or a turn of the stack.
    may_read: bool,
    may_write: bool,
    /// True if its error was not looked for since it was named.
    is_new: bool,
}

impl Side {
    const NAMED: Side = Side { may_read: true, may_write: true, is_new: true };
}

/// Bytes that were carried, and whether there may be more at once.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    to_lan: usize,
    to_system: usize,
    has_more: bool,
}

impl Session {
    /// Both sides are there, or on their way. The poller, which is given for a socket that it does not watch yet, and the stack name this when
    /// there may be something to carry.
    ///
    /// # Errors
    /// The socket cannot be watched, or as [`tcpip::Stack::poll`].
    fn of(
        system: TcpStream,
        lan: tcpip::TcpStream,
        (poller, number): (Option<&Poller>, u64),
    ) -> io::Result<Session> {
        // What is forwarded was held back by its sender already, if at all.
        let _ = lan.set_nodelay(true);
        let _ = system.set_nodelay(true);
        // A side that has gone without a word would keep its place for ever.
        let (time, again, probes) = (KEEP_ALIVE, KEEP_ALIVE_AGAIN, KEEP_ALIVE_PROBES);
        let _ = lan.set_keepalive_probes(time, again, probes);
        let _ = os::socket::set_keepalive(&system, time, again, probes);
        let session = Session {
            system,
            lan,
            of_system: Side::NAMED,
            of_lan: Side::NAMED,
            is_lan_shut: false,
            is_system_shut: false,
            questions: None,
        };
        let watched = session.watch(poller, number);
        match watched {
            Ok(()) => Ok(session),
            Err(error) => {
                session.reset();
                Err(error)
            }
        }
    }

    fn watch(&self, poller: Option<&Poller>, number: u64) -> io::Result<()> {
        self.lan.set_nonblocking(true)?;
        self.lan.watch(number)?;
        let Some(poller) = poller else { return Ok(()) };
        self.system.set_nonblocking(true)?;
        poller.add_edges(&self.system, number)
    }

    /// Both directions have ended.
    fn is_over(&self) -> bool {
        self.is_lan_shut && self.is_system_shut
    }

    /// Carries bytes both ways.
    ///
    /// # Errors
    /// One side has failed.
    fn carry(&mut self) -> io::Result<Carried> {
        let mut carried = Carried::default();
        self.carry_to_lan(&mut carried)?;
        self.carry_to_system(&mut carried)?;
        // A side that is not read, because the other has no room or its own end has come, may have failed nevertheless.
        if !self.is_over() {
            if (self.of_system.may_read || self.is_lan_shut)
                && std::mem::take(&mut self.of_system.is_new)
                && let Some(error) = self.system.take_error()?
            {
                return Err(error);
            }
            if (self.of_lan.may_read || self.is_system_shut)
                && std::mem::take(&mut self.of_lan.is_new)
                && let Some(error) = self.lan.take_error()?
            {
                return Err(error);
            }
        }
        Ok(carried)
    }

    fn carry_to_lan(&mut self, carried: &mut Carried) -> io::Result<()> {
        while self.of_system.may_read && self.of_lan.may_write && !self.is_lan_shut {
            let bytes_max = TURN_BYTES.saturating_sub(carried.to_lan).min(READ_BYTES);
            if bytes_max == 0 {
                carried.has_more = true;
                break;
            }
            let mut read = Ok(0);
            let sent = self.lan.send_pieces_with(bytes_max, |mut room| {
                let mut filled = 0;
                while !room.is_empty() {
                    read = (&self.system).read_vectored(room);
                    let Ok(bytes @ 1..) = read else { break };
                    filled += bytes;
                    IoSliceMut::advance_slices(&mut room, bytes);
                }
                filled
            });
            match sent {
                Ok(bytes) => carried.to_lan += bytes,
                Err(error) if is_early(&error) => {
                    self.of_lan.may_write = false;
                    break;
                }
                Err(error) => return Err(error),
            }
            match read {
                Ok(0) => {
                    self.is_lan_shut = true;
                    self.lan.shutdown(Shutdown::Write)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.of_system.may_read = false;
                }
                Err(error) if !is_early(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn carry_to_system(&mut self, carried: &mut Carried) -> io::Result<()> {
        while self.of_lan.may_read && self.of_system.may_write && !self.is_system_shut {
            if carried.to_system >= TURN_BYTES {
                carried.has_more = true;
                break;
            }
            let mut written = Ok(0);
            let mut has_ended = false;
            let questions = &mut self.questions;
            let taken = self.lan.receive_pieces_with(|pieces| {
                has_ended = pieces.is_empty();
                if !has_ended {
                    let write = |pieces: &[IoSlice<'_>]| (&self.system).write_vectored(pieces);
                    written = match questions {
                        Some(questions) => questions.pass(pieces, write),
                        None => write(pieces),
                    };
                }
                *written.as_ref().unwrap_or(&0)
            });
            match taken {
                Ok(bytes) => carried.to_system += bytes,
                Err(error) if is_early(&error) => {
                    self.of_lan.may_read = false;
                    break;
                }
                Err(error) => return Err(error),
            }
            match written {
                Ok(_) if has_ended => {
                    self.is_system_shut = true;
                    self.system.shutdown(Shutdown::Write)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.of_system.may_write = false;
                }
                Err(error) if !is_early(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// One side has failed: the other is told so, and not that this was the end.
    fn reset(&self) {
        let _ = os::socket::reset_when_closed(&self.system);
        let _ = self.lan.reset();
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
