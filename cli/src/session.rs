//! Two connections that are one to their ends: a socket of this system, and a stream on a LAN.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::time::Duration;

use os::poller::Poller;
use os::processor::now_ns;
use siga::tcpip;

/// Of the connections that are free, one source may have one in so many: so one that takes all it can get leaves half of them to
/// others.
const SOURCE_SHARE: usize = 2;

/// How long a side is silent before it is asked whether it is still there, how long until it is asked again, and how often.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(10);
const KEEP_ALIVE_PROBES: u32 = 6;

/// Bytes that are kept of one direction of a connection: what has been read and not been written.
const KEPT_BYTES: usize = 32 << 10;

/// Reads and writes of one direction before the next has its turn.
const TURNS_MAX: usize = 8;

/// Returns true if a source that has `of_source` of the `open` connections may not have another.
pub fn is_beyond_share(connections_max: usize, open: usize, of_source: usize) -> bool {
    let free = connections_max.saturating_sub(open - of_source);
    of_source >= free.div_ceil(SOURCE_SHARE)
}

/// A connection, which is two: one of the system, and one on the LAN.
pub struct Session {
    pub system: TcpStream,
    pub lan: tcpip::TcpStream,
    /// Who has asked for it.
    pub source: IpAddr,
    /// When something was carried last, if anybody wants to know.
    pub carried_ns: u64,
    pub to_lan: Pipe,
    pub to_system: Pipe,
}

impl Session {
    /// Both sides are there, or on their way.
    pub fn of(system: TcpStream, lan: tcpip::TcpStream, source: IpAddr) -> Session {
        // What is forwarded was held back by its sender already, if at all.
        let _ = lan.set_nodelay(true);
        let _ = system.set_nodelay(true);
        // A side that has gone without a word would keep its place for ever.
        let (time, again, probes) = (KEEP_ALIVE, KEEP_ALIVE_AGAIN, KEEP_ALIVE_PROBES);
        let _ = lan.set_keepalive_probes(time, again, probes);
        let _ = os::socket::set_keepalive(&system, time, again, probes);
        let (to_lan, to_system) = (Pipe::default(), Pipe::default());
        Session { system, lan, source, carried_ns: now_ns(), to_lan, to_system }
    }

    /// Has the poller and the stack name this when there may be something to carry.
    pub fn watch(&self, poller: &Poller, number: u64) -> io::Result<()> {
        self.system.set_nonblocking(true)?;
        self.lan.set_nonblocking(true)?;
        self.lan.watch(number)?;
        poller.add_edges(&self.system, number)
    }

    /// Carries bytes both ways. Returns true if there may be more at once.
    ///
    /// # Errors
    /// One side has failed.
    pub fn carry(&mut self) -> io::Result<bool> {
        let Session { system, lan, to_lan, to_system, .. } = self;
        let more = to_lan.carry(&mut &*system, &mut &*lan, || lan.shutdown(Shutdown::Write))?;
        let back =
            to_system.carry(&mut &*lan, &mut &*system, || system.shutdown(Shutdown::Write))?;
        // A side that is not read, because the other has no room or its own end has come, may have failed nevertheless.
        let is_over = to_lan.is_shut && to_system.is_shut;
        if (to_lan.is_held_up() || to_lan.is_shut && !is_over)
            && let Some(error) = system.take_error()?
        {
            return Err(error);
        }
        if (to_system.is_held_up() || to_system.is_shut && !is_over)
            && let Some(error) = lan.take_error()?
        {
            return Err(error);
        }
        Ok(more | back)
    }

    /// One side has failed: the other is told so, and not that this was the end.
    pub fn reset(&self) {
        let _ = os::socket::reset_when_closed(&self.system);
        let _ = self.lan.reset();
    }
}

/// One direction of a connection.
#[derive(Default)]
pub struct Pipe {
    /// Bytes that were read. Those not written yet are `kept[written..]`.
    kept: Vec<u8>,
    written: usize,
    has_ended: bool,
    /// True once the end of the stream was passed on.
    pub is_shut: bool,
    /// Bytes since somebody has taken this.
    pub carried: u64,
}

impl Pipe {
    /// Returns true if bytes were read that the other side has no room for.
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
                Err(error) if is_early(&error) => {
                    // Most connections are idle most of the time.
                    self.kept = Vec::new();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
