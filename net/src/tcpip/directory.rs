//! One stack that several threads serve: who has which connection, and what they have for each other.
//!
//! The first shard has what there is once: listeners, ports, sockets of UDP, TIME-WAIT, fragments. Others have connections alone. A connection is a
//! value that goes from one to another through a mailbox, and what comes for it goes the same way, behind it. One lock guards
//! the mailboxes and the table of who has what, and is held for a few moves of memory: what a shard finds in its own
//! tables never takes it.
//!
//! *Order.* A frame is put into the mailbox of the shard that has its connection under the lock under which the table says so. A shard gives a
//! connection away only while its mailbox is empty, and changes the table and puts the connection into the other mailbox under the same
//! lock. So what was in front of the connection is served before it goes, and what comes later is behind it. Frames of a connection that enter
//! at one shard, whichever, are never served in another order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::connection::Connection;
use super::stack::Tuple;
use super::time_wait::Entry;
use crate::lan::offload::Offload;
use crate::lan::waiting::WaitingFrames;

/// Frames in a mailbox at most, and their bytes. What finds no room is dropped, and sent again by whoever sent it.
const FRAMES_MAX: usize = 4096;
const BYTES_MAX: usize = 32 << 20;

/// The shard that has what there is once.
pub(super) const FIRST: usize = 0;

/// A connection on its way to another shard.
pub(super) struct Moving {
    pub(super) connection: Connection,
    /// Buffers that go with it: of bytes that have come, and of those that are to be sent.
    pub(super) buffers: [usize; 2],
    /// What whoever moves it calls it.
    pub(super) name: u64,
}

/// What a frame in a mailbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handed {
    /// A packet that was checked, whose frame has no addresses.
    Packet,
    /// A frame as it has come from this LAN.
    Raw { lan: usize, offload: Offload },
    /// A frame about neighbours, as it has come from this LAN. Each shard gets it.
    Message { lan: usize, offload: Offload },
}

/// What waits for a shard.
#[derive(Default)]
pub(super) struct Mail {
    /// Connections that have come to it. Served first.
    pub(super) arrived: Vec<Moving>,
    /// What is left of connections that have ended elsewhere, for the first shard.
    pub(super) ended: Vec<(Tuple, Entry)>,
    pub(super) frames: WaitingFrames<Handed, FRAMES_MAX>,
}

impl Mail {
    fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.ended.is_empty() && self.frames.is_empty()
    }
}

struct Inside {
    /// Who has a connection that is not with the first, or is on its way there.
    owners: HashMap<Tuple, usize>,
    mail: Box<[Mail]>,
}

/// Called with the number of a shard that has mail, and had none: its thread may sleep.
type Wake = Box<dyn Fn(usize) + Send + Sync>;

/// What the shards of a stack have in common.
pub(super) struct Directory {
    inside: Mutex<Inside>,
    /// Says without the lock whether a shard has mail.
    has_mail: Box<[AtomicBool]>,
    wake: Wake,
}

impl Directory {
    pub(super) fn new(shards: usize, wake: Wake) -> Directory {
        let mail = (0..shards).map(|_| Mail::default()).collect();
        let has_mail = (0..shards).map(|_| AtomicBool::new(false)).collect();
        Directory { inside: Mutex::new(Inside { owners: HashMap::new(), mail }), has_mail, wake }
    }

    pub(super) fn shards(&self) -> usize {
        self.has_mail.len()
    }

    /// Whoever has panicked with the lock has left nothing half done: each change is a move of memory.
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a shard has mail.
    pub(super) fn has_mail(&self, shard: usize) -> bool {
        self.has_mail[shard].load(Ordering::Acquire)
    }

    /// Takes all that waits for a shard.
    pub(super) fn take_mail(&self, shard: usize) -> Mail {
        let mut inside = self.lock();
        self.has_mail[shard].store(false, Ordering::Relaxed);
        let mail = std::mem::take(&mut inside.mail[shard]);
        if shard == FIRST {
            // What comes for them finds them in the first's own table from now on.
            mail.arrived.iter().for_each(|moving| {
                inside.owners.remove(&moving.connection.tuple);
            });
        }
        mail
    }

    /// Tells a shard that it has mail, after the lock was released.
    fn ring(&self, shard: usize) {
        if !self.has_mail[shard].swap(true, Ordering::AcqRel) {
            (self.wake)(shard);
        }
    }

    /// Returns true if a connection is with another than the first, or on its way.
    pub(super) fn has(&self, tuple: &Tuple) -> bool {
        self.lock().owners.contains_key(tuple)
    }

    /// How many connections are with others than the first.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.lock().owners.len()
    }

    /// Puts a packet that shard `from` cannot place into the mailbox of the shard that has its connection, which may be on its way to
    /// `from` itself, or of the first. Returns None if it was put there, or had no room; what is left of ended connections if `from` is
    /// the first and has to decide.
    pub(super) fn hand_over(
        &self,
        from: usize,
        tuple: &Tuple,
        frame: impl FnOnce() -> Vec<u8>,
    ) -> Result<bool, Vec<(Tuple, Entry)>> {
        let mut inside = self.lock();
        let to = match inside.owners.get(tuple) {
            None if from == FIRST => return Err(std::mem::take(&mut inside.mail[FIRST].ended)),
            owner => owner.copied().unwrap_or(FIRST),
        };
        let is_kept = put(&mut inside.mail[to], Handed::Packet, frame());
        drop(inside);
        self.ring(to);
        Ok(is_kept)
    }

    /// Puts a frame into the mailbox of the first. Returns false if it has no room.
    pub(super) fn hand_to_first(&self, handed: Handed, frame: Vec<u8>) -> bool {
        let is_kept = put(&mut self.lock().mail[FIRST], handed, frame);
        self.ring(FIRST);
        is_kept
    }

    /// Puts a copy of a frame into the mailboxes of all but one.
    pub(super) fn hand_to_others(&self, from: usize, handed: Handed, frame: &[u8]) {
        for to in (0..self.shards()).filter(|to| *to != from) {
            // Who finds no room for it asks again.
            put(&mut self.lock().mail[to], handed, frame.to_vec());
            self.ring(to);
        }
    }

    /// Puts a connection into the mailbox of shard `to`, if there is no mail for shard `from`, which may be for that connection. `take` takes it
    /// from where it was.
    pub(super) fn move_on(&self, from: usize, to: usize, take: impl FnOnce() -> Moving) -> bool {
        let mut inside = self.lock();
        if !inside.mail[from].is_empty() {
            return false;
        }
        let moving = take();
        inside.owners.insert(moving.connection.tuple, to);
        inside.mail[to].arrived.push(moving);
        drop(inside);
        self.ring(to);
        true
    }

    /// A connection has ended at a shard that is not the first: what is left of it is the first's.
    pub(super) fn end(&self, tuple: Tuple, left: Option<Entry>) {
        let mut inside = self.lock();
        inside.owners.remove(&tuple);
        let Some(left) = left else { return };
        inside.mail[FIRST].ended.push((tuple, left));
        drop(inside);
        self.ring(FIRST);
    }
}

fn put(mail: &mut Mail, handed: Handed, frame: Vec<u8>) -> bool {
    mail.frames.bytes() + frame.len() <= BYTES_MAX && mail.frames.push(handed, frame)
}
