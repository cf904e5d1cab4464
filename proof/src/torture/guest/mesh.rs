//! A guest's part in the mesh: which guests it connects to and when, and which it accepts.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use fabric::path::NO_DATA;
use message::iucv::QUEUES;
use siga::connect::Kind;
use siga::error::Problem;
use siga::waiter::Member;
use siga::{ConnectError, Connecting, Guest, Path, PathOptions, Pending, UserData, Wait};

use crate::torture::hoarder;
use crate::torture::wire::Life;

/// How long a peer may take to accept, as a detector of failure.
const ACCEPT_TIME: Duration = Duration::from_secs(60);

/// Lanes take the low bits of a key, the connection's number comes above them.
const KEY_LANE_BITS: u32 = 8;

/// The guest's end of the host.
#[derive(Debug)]
pub struct Attachment {
    guest: Guest,
    was_attached: bool,
    news: bool,
}

impl Attachment {
    /// An attachment that is there.
    pub fn new(guest: Guest) -> Attachment {
        Attachment { guest, was_attached: true, news: true }
    }
}

/// What came of serving the attachment.
#[derive(Debug, Default)]
pub struct Done {
    /// There is a host again.
    pub attached_again: bool,
    /// New paths: with whom, and what they are called.
    pub joined: Vec<(Life, u64, Path)>,
    /// New paths with the guest that exhausts.
    pub exhausting: Vec<Path>,
    /// What no kill explains.
    pub troubles: Vec<String>,
}

/// All other guests, as one of them sees them.
pub struct Mesh {
    own: Life,
    wait: Wait,
    peers: Vec<Peer>,
    connections: u64,
}

#[derive(Default)]
struct Peer {
    /// The last life we heard of.
    life: Option<u32>,
    /// Whether that life is worth a try to connect.
    is_up: bool,
    /// How often the supervisor has reported it attached.
    ups: u32,
    connecting: Option<Attempt>,
    /// Lives we have a path to.
    paths: Vec<u32>,
}

/// A connection that was asked for.
struct Attempt {
    /// How often the peer had been reported attached when it was asked for.
    ups: u32,
    key: u64,
    connecting: Connecting,
}

impl fmt::Debug for Mesh {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, peer) in self.peers.iter().enumerate().filter(|(at, _)| *at != self.own.guest) {
            let Peer { life, is_up, connecting, paths, .. } = peer;
            let connecting = connecting.as_ref().map(|attempt| attempt.key);
            write!(
                formatter,
                "[{index}: {life:?} up={is_up} connecting={connecting:x?} paths={paths:?}]"
            )?;
        }
        Ok(())
    }
}

impl Mesh {
    /// No other guest is attached yet.
    pub fn new(own: Life, guests: usize, wait: Wait) -> Mesh {
        let peers = (0..guests).map(|_| Peer::default()).collect();
        Mesh { own, wait, peers, connections: 0 }
    }

    /// Whether it is us who connects to `peer`, and not the other way round.
    fn connects_to(&self, peer: usize) -> bool {
        let own = self.own.guest;
        own != peer && (own < peer) == (own + peer).is_multiple_of(2)
    }

    /// Takes note that a peer is attached.
    pub fn note_up(&mut self, life: Life) {
        let peer = &mut self.peers[life.guest];
        // A path may have shown a later life before.
        if peer.life <= Some(life.number) {
            peer.life = Some(life.number);
            peer.is_up = true;
            peer.ups += 1;
        }
    }

    /// Takes note that a path has ended.
    pub fn note_ended(&mut self, life: Life) {
        let paths = &mut self.peers[life.guest].paths;
        let index = paths.iter().position(|number| *number == life.number);
        paths.remove(index.expect("it was there"));
    }

    fn options(&self, peer: usize, key: u64, lanes: usize) -> PathOptions {
        let iucv = super::iucv::is_between(self.own.guest, peer);
        let (kind, lanes) =
            if iucv { (Kind::IUCV, QUEUES) } else { (PathOptions::DEFAULT.kind, lanes) };
        let mut data = NO_DATA;
        data[..8].copy_from_slice(&key.to_le_bytes());
        data[8..12].copy_from_slice(&self.own.number.to_le_bytes());
        PathOptions {
            outputs: lanes,
            inputs: lanes,
            wait: self.wait,
            kind,
            data,
            time: ACCEPT_TIME,
            ..PathOptions::default()
        }
    }

    /// Completes, accepts and starts connections, until there is no more to do.
    pub fn serve(&mut self, attachment: &mut Attachment) -> Done {
        let mut done = Done::default();
        attachment.news = false;
        loop {
            let is_attached = attachment.guest.is_attached();
            if is_attached && !attachment.was_attached {
                done.attached_again = true;
                // A connect that failed for lack of a host is tried again.
                self.peers.iter_mut().for_each(|peer| peer.is_up = peer.life.is_some());
            }
            attachment.was_attached = is_attached;
            self.start(&attachment.guest, &mut done);
            let completed = self.complete(&attachment.guest, &mut done);
            let accepted = self.accept(&attachment.guest, &mut done);
            // Polling for one of them may have brought news of the other, or of the host.
            let changed = attachment.guest.is_attached() != attachment.was_attached;
            if !completed && !accepted && !changed {
                return done;
            }
        }
    }

    /// Asks for paths to those who are worth a try.
    fn start(&mut self, guest: &Guest, done: &mut Done) {
        if !guest.is_attached() {
            return;
        }
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            let Some(life) = peer.life.filter(|_| peer.is_up && peer.connecting.is_none()) else {
                continue;
            };
            if !self.connects_to(index) || peer.paths.contains(&life) {
                continue;
            }
            let ups = peer.ups;
            self.connections += 1;
            let Life { guest: own, number } = self.own;
            let key = (own as u64 + 1) << 56
                | u64::from(number) << 32
                | self.connections << KEY_LANE_BITS;
            let lanes = if (own + index).is_multiple_of(3) { 2 } else { 1 };
            match guest.start_connecting(&super::name(index), &self.options(index, key, lanes)) {
                Ok(connecting) => {
                    self.peers[index].connecting = Some(Attempt { ups, key, connecting });
                }
                Err(error) => self.fail(guest, index, ups, error, done),
            }
        }
    }

    /// Completes what was accepted; whether there was any.
    fn complete(&mut self, guest: &Guest, done: &mut Done) -> bool {
        let mut any = false;
        for index in 0..self.peers.len() {
            let Some(attempt) = self.peers[index].connecting.take() else { continue };
            let Attempt { ups, key, mut connecting } = attempt;
            match guest.try_complete(&mut connecting) {
                Ok(None) => {
                    self.peers[index].connecting = Some(Attempt { ups, key, connecting });
                }
                Ok(Some(path)) => {
                    any = true;
                    let (_, number) = parse(path.user_data());
                    self.note_joined(Life { guest: index, number }, key, path, done);
                }
                Err(error) => {
                    any = true;
                    self.fail(guest, index, ups, error, done);
                }
            }
        }
        any
    }

    /// Accepts all guests that wait; whether any did.
    fn accept(&mut self, guest: &Guest, done: &mut Done) -> bool {
        let mut any = false;
        while let Some(pending) = guest.pending() {
            any = true;
            let Pending { from, data, .. } = pending;
            if from.as_str() == hoarder::NAME {
                let options = PathOptions { wait: self.wait, ..PathOptions::default() };
                match guest.accept_pending(pending, &options) {
                    Ok(path) => done.exhausting.push(path),
                    Err(ConnectError::Refused { problem: Problem::NoPath, .. }) => {}
                    Err(ConnectError::HostGone) => {}
                    Err(error) => done.troubles.push(format!("accepting {from}: {error}")),
                }
                continue;
            }
            let (key, number) = parse(data);
            let index = (0..self.peers.len()).find(|index| super::name(*index) == from.as_str());
            let index = index.expect("only guests of ours are there");
            match guest.accept_pending(pending, &self.options(index, key, 1)) {
                Ok(path) => self.note_joined(Life { guest: index, number }, key, path, done),
                // Its guest is dead, or the host is.
                Err(ConnectError::Refused { problem: Problem::NoPath, .. }) => {}
                Err(ConnectError::HostGone) => {}
                Err(error) => done.troubles.push(format!("accepting {from}: {error}")),
            }
        }
        any
    }

    fn note_joined(&mut self, life: Life, key: u64, path: Path, done: &mut Done) {
        let peer = &mut self.peers[life.guest];
        peer.paths.push(life.number);
        // The supervisor may report it later.
        peer.life = peer.life.max(Some(life.number));
        done.joined.push((life, key, path));
    }

    fn fail(
        &mut self,
        guest: &Guest,
        index: usize,
        ups: u32,
        error: ConnectError,
        done: &mut Done,
    ) {
        match error {
            ConnectError::Refused { problem: Problem::NotAttached, .. } => {
                // The supervisor reports when it is attached again, and may have done so already.
                let peer = &mut self.peers[index];
                peer.is_up = peer.ups != ups;
            }
            ConnectError::HostGone if guest.is_attached() => done.attached_again = true,
            // All are worth a try when there is a host again.
            ConnectError::HostGone => self.peers[index].is_up = false,
            error => {
                self.peers[index].is_up = false;
                done.troubles.push(format!("connecting to guest {index}: {error}"));
            }
        }
    }
}

/// Which guest has asked for the path with this key.
pub fn asker(key: u64) -> usize {
    (key >> 56) as usize - 1
}

/// Key and life in the data of the user that goes with a connection.
fn parse(data: UserData) -> (u64, u32) {
    let [key, life] = *data.as_chunks::<8>().0 else { unreachable!("two words") };
    (u64::from_le_bytes(key), u64::from_le_bytes(life) as u32)
}

/// Ready when the host has said something, or is gone, or is there again.
impl Member for Attachment {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.guest.doorbells(add);
    }

    fn hear(&mut self, index: usize) -> bool {
        self.news = true;
        Member::hear(&mut self.guest, index)
    }

    fn is_ready(&mut self) -> bool {
        self.news
            || self.guest.is_attached() != self.was_attached
            || Member::is_ready(&mut self.guest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_word_of_a_former_life_changes_nothing() {
        let mut mesh = Mesh::new(Life { guest: 0, number: 0 }, 2, Wait::Block);
        let life = |number| Life { guest: 1, number };
        mesh.note_up(life(8));
        mesh.note_up(life(7));
        assert_eq!(mesh.peers[1].life, Some(8));
        mesh.note_up(life(9));
        assert_eq!(mesh.peers[1].life, Some(9));
    }
}
