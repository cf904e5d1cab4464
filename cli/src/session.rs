//! Two connections that are one to their ends: a socket of this system, and a stream on a LAN.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::time::Duration;

use os::poller::Poller;
use os::processor::now_ns;
use siga::tcpip;

use crate::output::say;

/// Of the connections that are free, one owner may have one in so many: so one that takes all it can get leaves half of them to
/// others.
const OWNER_SHARE: usize = 2;

/// The shortest time between two messages.
const NOTICE_NS: u64 = 1_000_000_000;

/// How long a side is silent before it is asked whether it is still there, how long until it is asked again, and how often.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(10);
const KEEP_ALIVE_PROBES: u32 = 6;

/// Bytes that are kept of one direction of a connection: what has been read and not been written.
const KEPT_BYTES: usize = 32 << 10;

/// Reads and writes of one direction before the next has its turn.
const TURNS_MAX: usize = 8;

/// How many of something there may be, and how many each owner has. Of those that are free one owner gets half, so that it leaves some to others.
#[derive(Debug)]
pub struct Shares<Owner> {
    pub most: usize,
    pub all: usize,
    of_owners: HashMap<Owner, usize>,
}

impl<Owner: Copy + Eq + Hash> Shares<Owner> {
    pub fn new(most: usize) -> Shares<Owner> {
        Shares { most, all: 0, of_owners: HashMap::new() }
    }

    pub fn of(&self, owner: Owner) -> usize {
        self.of_owners.get(&owner).copied().unwrap_or(0)
    }

    pub fn is_full(&self) -> bool {
        self.all >= self.most
    }

    /// Returns true if this owner may not have another, though others may.
    pub fn is_beyond(&self, owner: Owner) -> bool {
        let of_owner = self.of(owner);
        let free = self.most.saturating_sub(self.all - of_owner);
        of_owner >= free.div_ceil(OWNER_SHARE)
    }

    pub fn enter(&mut self, owner: Owner) {
        self.all += 1;
        *self.of_owners.entry(owner).or_insert(0) += 1;
    }

    pub fn leave(&mut self, owner: Owner) {
        let Some(of_owner) = self.of_owners.get_mut(&owner) else { return };
        self.all -= 1;
        *of_owner -= 1;
        if *of_owner == 0 {
            self.of_owners.remove(&owner);
        }
    }
}

/// Numbers of those that may have something to do. Some have their turn at a time, then others.
#[derive(Debug, Default)]
pub struct Turns {
    ready: BTreeSet<u64>,
    /// The first of these has its turn next.
    next: u64,
}

impl Turns {
    pub fn add(&mut self, number: u64) {
        self.ready.insert(number);
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Takes those whose turn it is. Whoever has more to do is added again.
    pub fn take(&mut self, most: usize) -> Vec<u64> {
        let behind = self.ready.range(self.next..).chain(self.ready.range(..self.next));
        let turn: Vec<u64> = behind.take(most).copied().collect();
        self.next = turn.last().map_or(0, |last| last + 1);
        for number in &turn {
            self.ready.remove(number);
        }
        turn
    }
}

/// Messages about what was refused or has failed: one in a second at most, and none where nobody reads them, because whoever prints them serves
/// connections.
#[derive(Debug, Default)]
pub struct Notices {
    said_ns: u64,
}

impl Notices {
    pub fn say(&mut self, what: impl FnOnce() -> String) {
        let now = now_ns();
        if (self.said_ns == 0 || now.saturating_sub(self.said_ns) >= NOTICE_NS)
            && os::poller::is_writable(std::io::stderr())
        {
            self.said_ns = now;
            say(format_args!("siga: {}", what()));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_leaves_half_of_what_is_free_to_others() {
        let mut shares = Shares::new(100);
        let mut take_all = |owner| {
            let before = shares.all;
            while !shares.is_beyond(owner) {
                shares.enter(owner);
            }
            shares.all - before
        };
        assert_eq!([0, 0, 1, 2, 3].map(&mut take_all), [50, 0, 25, 13, 6]);
        (0..50).for_each(|_| shares.leave(0));
        shares.leave(0);
        assert_eq!((shares.of(0), shares.all), (0, 44));
    }

    #[test]
    fn each_has_its_turn_however_often_it_is_added() {
        let mut turns = Turns::default();
        for number in [7, 1, 4, 7, 1, 4] {
            turns.add(number);
        }
        assert_eq!(turns.take(2), [1, 4]);
        turns.add(1);
        turns.add(4);
        assert_eq!(turns.take(2), [7, 1]);
        assert_eq!((turns.take(2), turns.is_empty()), (vec![4], true));
    }
}
