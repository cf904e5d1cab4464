//! The state that the shards of a stack share: which of them has a connection, and a mailbox for each.
//!
//! The first shard has all that exists once: listeners, ports, sockets of UDP, TIME-WAIT, fragments. Others have connections alone. A connection
//! is a value that goes from one shard to another through a mailbox. One lock guards the mailboxes and the table of owners. A shard takes it
//! only for what it does not find in its own tables.
//!
//! *Order.* A frame is put into the mailbox of its connection's owner under the lock under which the table names the owner. A
//! connection departs only while its shard's mailbox has nothing that concerns it, and the table changes and the connection is put into the other mailbox under the same lock. A
//! shard serves its whole mailbox, in order, before it takes another frame. So segments of a connection that enter at one shard, whichever, are
//! served in the order in which they enter. The same holds for statements about all connections.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection::Connection;
use super::stack::{Stack, Tuple};
use super::time_wait::Entry;
use crate::lan::offload::Offload;
use crate::tcpip::hashed::HashMap;

/// Frames in a mailbox at most, and their bytes. A source may have as many of both as are free, so one alone has half.
const FRAMES_MAX: usize = 2048;
const BYTES_MAX: usize = 32 << 20;

/// Frames about neighbours in a mailbox, besides. Those about one neighbour may be as many as are free.
const MESSAGES_MAX: usize = 1024;

/// The number of the shard that has all that exists once.
pub(super) const FIRST: usize = 0;

/// A connection on its way to another shard.
pub(super) struct Moving {
    pub(super) connection: Connection,
    /// Its buffers: of bytes that have come, and of those that are to be sent.
    pub(super) buffers: [usize; 2],
    /// The clock of the shard that it comes from.
    pub(super) clock: u64,
    /// Bytes of the longest packet on its path, if that is less than the interface takes.
    pub(super) path_mtu: Option<usize>,
    /// The name that its new shard is told.
    pub(super) name: u64,
}

/// The state of a frame in a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handed {
    /// A packet that was checked. The frame has no addresses.
    Packet,
    /// A frame as it has come from this LAN.
    Raw { lan: usize, offload: Offload },
    /// A frame about neighbours, as it has come from this LAN. Each shard gets it.
    Message { lan: usize, offload: Offload },
}

/// Something that all shards do.
pub(super) type Statement = Arc<dyn Fn(&mut Stack) + Send + Sync>;

pub(super) enum Item {
    Arrived(Box<Moving>),
    Told(Statement),
    Frame(Handed, Vec<u8>),
}

/// A mailbox, or what was in it.
#[derive(Default)]
pub(super) struct Mail {
    pub(super) items: VecDeque<Item>,
    /// The rest of connections that have ended elsewhere, for the first shard.
    pub(super) ended: Vec<(Tuple, Entry)>,
    frames: usize,
    bytes: usize,
    /// Frames and bytes by source.
    of_sources: HashMap<IpAddr, (usize, usize)>,
    /// Frames by connection.
    of_connections: HashMap<Tuple, usize>,
    statements: usize,
    /// Frames about neighbours, which have room of their own: whom they are from nobody vouches for.
    messages: usize,
    of_neighbours: HashMap<IpAddr, usize>,
    /// Its shard is no more.
    is_closed: bool,
}

impl Mail {
    /// Adds a frame. Returns false if there is no room for another of its source.
    fn put(
        &mut self,
        handed: Handed,
        source: IpAddr,
        tuple: Option<Tuple>,
        bytes: Vec<u8>,
    ) -> bool {
        let (frames, of_bytes) = self.of_sources.get(&source).copied().unwrap_or_default();
        let has_room =
            frames < FRAMES_MAX - self.frames && of_bytes + bytes.len() <= BYTES_MAX - self.bytes;
        if !has_room || self.is_closed {
            return false;
        }
        self.of_sources.insert(source, (frames + 1, of_bytes + bytes.len()));
        self.frames += 1;
        self.bytes += bytes.len();
        if let Some(tuple) = tuple {
            *self.of_connections.entry(tuple).or_default() += 1;
        }
        self.items.push_back(Item::Frame(handed, bytes));
        true
    }

    /// Adds a frame about a neighbour. Returns false if there is no room for another of these.
    fn put_message(&mut self, handed: Handed, about: IpAddr, bytes: Vec<u8>) -> bool {
        let of_this = self.of_neighbours.get(&about).copied().unwrap_or_default();
        let has_room = !self.is_closed && of_this < MESSAGES_MAX - self.messages;
        if has_room {
            self.messages += 1;
            self.of_neighbours.insert(about, of_this + 1);
            self.items.push_back(Item::Frame(handed, bytes));
        }
        has_room
    }

    /// Returns true if something in it has to be served before this connection departs.
    fn concerns(&self, tuple: &Tuple) -> bool {
        self.statements > 0 || self.of_connections.contains_key(tuple)
    }
}

struct Inside {
    /// The shards of connections that are not with the first, or are on their way there.
    owners: HashMap<Tuple, usize>,
    mail: Box<[Mail]>,
    /// Buffers that connections may still bring to each shard, beyond its own limit.
    room: Box<[usize]>,
    /// A connection has stayed because there was no room.
    is_refused: bool,
}

/// Set if a shard has mail: in a line of its own, because its shard looks often.
#[derive(Default)]
#[repr(align(128))]
struct Flag(AtomicBool);

/// Wakes the thread of the shard with this number.
type Wake = Box<dyn Fn(usize) + Send + Sync>;

/// The answer to a packet that a shard cannot place.
pub(super) enum HandedOver {
    /// It lies in the mailbox of the shard that has its connection, or of the first.
    Kept,
    /// That mailbox has no room for it.
    Dropped,
    /// The first has to decide, with the rest of connections that have ended elsewhere.
    Own(Vec<(Tuple, Entry)>),
}

pub(super) struct Directory {
    inside: Mutex<Inside>,
    flags: Box<[Flag]>,
    wake: Wake,
}

impl Directory {
    /// For so many shards, to each of which connections may bring so many buffers beyond its limit.
    pub(super) fn new(shards: usize, room: usize, wake: Wake) -> Directory {
        let inside = Inside {
            owners: HashMap::default(),
            mail: (0..shards).map(|_| Mail::default()).collect(),
            room: vec![room; shards].into(),
            is_refused: false,
        };
        let flags = (0..shards).map(|_| Flag::default()).collect();
        Directory { inside: Mutex::new(inside), flags, wake }
    }

    pub(super) fn shards(&self) -> usize {
        self.flags.len()
    }

    /// A panic under the lock is a defect of this crate. Others go on: they lose what the one that has panicked was about.
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a shard has mail.
    pub(super) fn has_mail(&self, shard: usize) -> bool {
        self.flags[shard].0.load(Ordering::Acquire)
    }

    /// Takes all that waits for a shard.
    pub(super) fn take_mail(&self, shard: usize) -> Mail {
        let mut inside = self.lock();
        let Inside { owners, mail, .. } = &mut *inside;
        // Under the lock: whoever puts something there later sets it later.
        self.flags[shard].0.store(false, Ordering::Relaxed);
        let mail = std::mem::take(&mut mail[shard]);
        if shard == FIRST {
            // Frames find them in the first's own table from now on.
            for item in &mail.items {
                if let Item::Arrived(moving) = item {
                    owners.remove(&moving.connection.tuple);
                }
            }
        }
        mail
    }

    /// Tells shard `to`, after the lock was released, that `from` has put something there.
    fn ring(&self, from: usize, to: usize) {
        // Pairs with the load of `has_mail`: a shard that sees it locks and finds what was put.
        if !self.flags[to].0.swap(true, Ordering::AcqRel) && from != to {
            (self.wake)(to);
        }
    }

    /// Returns true if a connection is with another than the first, or on its way.
    pub(super) fn has(&self, tuple: &Tuple) -> bool {
        self.lock().owners.contains_key(tuple)
    }

    /// Returns how many connections are with others than the first, or on their way.
    pub(super) fn connections(&self) -> usize {
        self.lock().owners.len()
    }

    /// Takes the rest of connections that have ended elsewhere.
    pub(super) fn take_ended(&self) -> Vec<(Tuple, Entry)> {
        std::mem::take(&mut self.lock().mail[FIRST].ended)
    }

    /// Puts a packet that shard `from` cannot place into the mailbox of the shard that has its connection, which may be on its way to
    /// `from` itself, or of the first.
    pub(super) fn hand_over(
        &self,
        from: usize,
        (tuple, source): (Tuple, IpAddr),
        frame: impl FnOnce() -> Vec<u8>,
    ) -> HandedOver {
        if from == FIRST {
            let mut inside = self.lock();
            if !inside.owners.contains_key(&tuple) {
                return HandedOver::Own(std::mem::take(&mut inside.mail[FIRST].ended));
            }
        }
        // Copied without the lock. If its connection has ended meanwhile, the first decides when it finds the frame.
        let frame = frame();
        let mut inside = self.lock();
        let to = inside.owners.get(&tuple).copied().unwrap_or(FIRST);
        let is_kept = inside.mail[to].put(Handed::Packet, source, Some(tuple), frame);
        drop(inside);
        self.ring(from, to);
        if is_kept { HandedOver::Kept } else { HandedOver::Dropped }
    }

    /// Puts a frame that is for no connection into the mailbox of the first. Returns false if it has no room.
    pub(super) fn hand_to_first(
        &self,
        from: usize,
        handed: Handed,
        source: IpAddr,
        frame: Vec<u8>,
    ) -> bool {
        let is_kept = self.lock().mail[FIRST].put(handed, source, None, frame);
        self.ring(from, FIRST);
        is_kept
    }

    /// Puts a copy of a frame about the neighbour `about` into the mailboxes of all but one.
    pub(super) fn hand_to_others(&self, from: usize, handed: Handed, about: IpAddr, frame: &[u8]) {
        for to in (0..self.shards()).filter(|to| *to != from) {
            // Copied without the lock. Who finds no room for it asks again.
            let frame = frame.to_vec();
            if self.lock().mail[to].put_message(handed, about, frame) {
                self.ring(from, to);
            }
        }
    }

    /// Puts a connection with so many buffers, which `take` takes out of all tables, into the mailbox of shard `to`. Returns false if it has to
    /// stay for now: mail of its shard `from` concerns it, or it has more buffers than there is room for.
    pub(super) fn depart(
        &self,
        (from, to): (usize, usize),
        (tuple, buffers): (Tuple, usize),
        take: impl FnOnce() -> Box<Moving>,
    ) -> bool {
        let mut inside = self.lock();
        let Inside { owners, mail, room, is_refused } = &mut *inside;
        if mail[from].concerns(&tuple) || mail[to].is_closed {
            return false;
        }
        if room[to] < buffers {
            *is_refused = true;
            return false;
        }
        room[to] -= buffers;
        owners.insert(tuple, to);
        mail[to].items.push_back(Item::Arrived(take()));
        drop(inside);
        self.ring(from, to);
        true
    }

    /// So many of the buffers that connections have brought to a shard are free.
    pub(super) fn give_room(&self, shard: usize, buffers: usize) {
        let mut inside = self.lock();
        inside.room[shard] += buffers;
        let is_refused = std::mem::take(&mut inside.is_refused);
        drop(inside);
        if is_refused {
            (0..self.shards()).for_each(|other| self.ring(shard, other));
        }
    }

    /// Has all shards do this, each before all that is put into its mailbox later.
    pub(super) fn tell_all(&self, from: usize, statement: Statement) {
        let mut inside = self.lock();
        for mail in inside.mail.iter_mut().filter(|mail| !mail.is_closed) {
            mail.statements += 1;
            mail.items.push_back(Item::Told(statement.clone()));
        }
        drop(inside);
        (0..self.shards()).for_each(|shard| self.ring(from, shard));
    }

    /// A connection has ended at a shard that is not the first, which gets what is left of it.
    pub(super) fn end(&self, from: usize, tuple: Tuple, left: Option<Entry>) {
        let mut inside = self.lock();
        inside.owners.remove(&tuple);
        let Some(left) = left else { return };
        inside.mail[FIRST].ended.push((tuple, left));
        drop(inside);
        self.ring(from, FIRST);
    }

    /// A shard is no more, and its connections are gone with it: what comes for them is the first's, which resets them.
    pub(super) fn close(&self, shard: usize) {
        let mut inside = self.lock();
        inside.owners.retain(|_, owner| *owner != shard);
        inside.mail[shard] = Mail { is_closed: true, ..Mail::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn source_that_floods_leaves_room_for_others() {
        let directory = Directory::new(2, 0, Box::new(|_| {}));
        let put = |last: u8, bytes: usize| {
            let source = [10, 1, 0, last].into();
            directory.hand_to_first(1, Handed::Packet, source, vec![0; bytes])
        };
        let flood = |last, bytes| (0..).take_while(|_| put(last, bytes)).count();
        assert_eq!([flood(1, 60), flood(2, 60), flood(3, 60)], [1024, 512, 256]);
        assert!(put(4, 60));
        assert_eq!(directory.take_mail(FIRST).items.len(), 1793);
        // Long ones, too.
        assert_eq!(flood(1, 64 << 10), 256);
        assert!(put(2, 64 << 10));
    }

    #[test]
    fn neighbours_that_nobody_has_take_no_room_of_packets_and_none_of_a_shard_that_is_gone() {
        let directory = Directory::new(3, 0, Box::new(|_| {}));
        let handed = Handed::Message { lan: 0, offload: Offload::NONE };
        directory.close(2);
        for number in 0..4096_u32 {
            let about = Ipv4Addr::from_bits(0x0a01_0000 + number).into();
            directory.hand_to_others(1, handed, about, &[0; 60]);
        }
        let source = [10, 1, 0, 1].into();
        assert!(directory.hand_to_first(1, Handed::Packet, source, vec![0; 60]));
        assert_eq!(directory.take_mail(FIRST).items.len(), MESSAGES_MAX + 1);
        let inside = directory.lock();
        assert!(inside.mail[2].of_neighbours.is_empty() && inside.mail[2].of_sources.is_empty());
    }
}
