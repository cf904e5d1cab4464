//! One stack whose connections several threads serve.

use std::sync::Arc;

use super::*;
use crate::tcpip::directory::{Directory, FIRST, Handed, Moving};
use crate::tcpip::time_wait::Entry;

/// Which of the shards of a stack this is.
pub(super) struct Shard {
    number: usize,
    directory: Arc<Directory>,
    /// Connections that are to go, where to, and what they are called.
    leaving: Vec<(ConnectionId, usize, u64)>,
    /// Connections that have come, and what they are called.
    arrived: VecDeque<(ConnectionId, u64)>,
}

impl Stack {
    /// Makes this the first of so many shards of one stack, each for a thread of its own, and returns all of them in their order. They have the same
    /// addresses, interfaces and routes, and each an equal part of the buffers.
    ///
    /// Listeners, sockets of UDP, errors, and all that is not for a connection are with the first; so connections begin there, and
    /// move to others ([`Stack::move_to`]). Others bind and connect nothing. Frames may be given to any shard, those of one connection always to the
    /// same one: what is not for that shard is handed over, in order. What is said of ways, neighbours and hosts
    /// is to be said to each.
    ///
    /// `wake` is called, by any thread, with the number of a shard that has got something from another while it had nothing: its thread is to
    /// call [`Stack::poll`].
    ///
    /// # Panics
    /// If it is a shard already.
    pub fn into_shards(
        mut self,
        count: usize,
        wake: impl Fn(usize) + Send + Sync + 'static,
    ) -> Vec<Stack> {
        assert!(self.shard.is_none(), "a shard has no shards");
        let count = count.max(1);
        let directory = Arc::new(Directory::new(count, Box::new(wake)));
        let pool_bytes = self.options.pool_bytes / count;
        let pool_kept_bytes = self.options.pool_kept_bytes / count;
        self.options = Options { pool_bytes, pool_kept_bytes, ..self.options };
        self.pool.set_limits(pool_bytes, pool_kept_bytes);
        let mut shards: Vec<Stack> = (1..count)
            .map(|_| {
                let options = Options { forwards: false, stands_in: false, ..self.options };
                let mut shard =
                    Stack::with_interfaces(Vec::new(), Vec::new(), options, self.secret);
                shard.options = options;
                shard.output = Output::new(self.output.routes.clone(), self.secret);
                shard
            })
            .collect();
        shards.insert(FIRST, self);
        for (number, shard) in shards.iter_mut().enumerate() {
            let directory = directory.clone();
            let (leaving, arrived) = (Vec::new(), VecDeque::new());
            shard.shard = Some(Box::new(Shard { number, directory, leaving, arrived }));
        }
        shards
    }

    /// Has [`Stack::poll`] give a connection to another shard, as it is, with all that has come and is to be sent. There [`Stack::take_arrived`]
    /// names it as `name`; here its id means nothing from then on. It waits for as long as frames of it wait for room. Who waits for
    /// news of it, and who watches it, does so no more.
    ///
    /// False if there is no such shard, or the connection is over, or nobody has accepted it yet.
    pub fn move_to(&mut self, id: ConnectionId, shard: usize, name: u64) -> bool {
        let movable = |connection: &Connection| connection.is_live && connection.is_held;
        let can_move = self.connections.find(id).is_some_and(movable);
        let Some(own) = &mut self.shard else { return false };
        let is_other = shard < own.directory.shards() && shard != own.number;
        if can_move && is_other {
            own.leaving.push((id, shard, name));
        }
        can_move && is_other
    }

    /// Returns a connection that has come from another shard, and what it is called.
    pub fn take_arrived(&mut self) -> Option<(ConnectionId, u64)> {
        self.shard.as_mut()?.arrived.pop_front()
    }

    /// Returns true if a connection is here: it is not over, closed or with another shard.
    pub fn has(&self, id: ConnectionId) -> bool {
        self.connections.find(id).is_some()
    }

    /// The directory, if this is not the first shard, or not the only one.
    fn shared(&self, is_other: bool) -> Option<&Shard> {
        self.shard.as_deref().filter(|shard| !is_other || shard.number != FIRST)
    }

    /// Returns true if this shard has connections alone.
    pub(super) fn has_only_connections(&self) -> bool {
        self.shared(true).is_some()
    }

    /// Returns true if another shard has a connection between these two, or waits for it.
    pub(super) fn is_elsewhere(shard: Option<&Shard>, tuple: &Tuple) -> bool {
        shard.is_some_and(|shard| shard.number == FIRST && shard.directory.has(tuple))
    }

    /// Returns true if another shard has sent something.
    pub(super) fn has_mail(&self) -> bool {
        self.shard.as_ref().is_some_and(|shard| shard.directory.has_mail(shard.number))
    }

    /// Gives the first shard a frame that is for no connection. False if this is the first.
    pub(super) fn hand_to_first(&mut self, handed: Handed, frame: &[u8]) -> bool {
        let Some(shard) = self.shared(true) else { return false };
        if !shard.directory.hand_to_first(handed, frame.to_vec()) {
            self.counters.count(Counter::TargetFull);
        }
        true
    }

    /// Gives the other shards a frame that says where a neighbour is: each asks for those that it sends to.
    pub(super) fn tell_others(&self, handed: Handed, frame: &[u8]) {
        if let Some(shard) = self.shared(false) {
            shard.directory.hand_to_others(shard.number, handed, frame);
        }
    }

    /// Gives a packet that is for no connection here to the shard that has its connection. False if this shard has to decide what
    /// becomes of it.
    pub(super) fn hand_over(&mut self, now: u64, tuple: &Tuple, packet: &Packet<'_>) -> bool {
        let Some(shard) = self.shared(false) else { return false };
        match shard.directory.hand_over(shard.number, tuple, || packet.frame()) {
            Ok(is_kept) => {
                if !is_kept {
                    self.counters.count(Counter::TargetFull);
                }
                true
            }
            Err(ended) => {
                self.rest_of_others(now, ended);
                false
            }
        }
    }

    /// A connection has ended, of which this is left. False if the table here is to answer for it.
    pub(super) fn end_elsewhere(&self, tuple: Tuple, left: Option<Entry>) -> bool {
        let shard = self.shared(true);
        shard.map(|shard| shard.directory.end(tuple, left)).is_some()
    }

    fn rest_of_others(&mut self, now: u64, ended: Vec<(Tuple, Entry)>) {
        for (tuple, left) in ended {
            self.time_wait.insert(now, tuple, left);
        }
    }

    /// Takes what other shards have sent.
    pub(super) fn take_mail(&mut self, now: u64, link: &mut impl Link) {
        let Some(shard) = self.shard.as_ref().filter(|_| self.has_mail()) else { return };
        let mut mail = shard.directory.take_mail(shard.number);
        self.rest_of_others(now, mail.ended);
        for moving in mail.arrived {
            self.settle_in(moving);
        }
        while let Some((handed, bytes)) = mail.frames.pop() {
            let taken = match handed {
                Handed::Raw { lan, offload } => {
                    let frame = Frame { offload, bytes: &bytes };
                    self.take_frame(now, lan, frame, link)
                }
                Handed::Message { lan, offload } => {
                    let frame = Frame { offload, bytes: &bytes };
                    self.take_message_of_others(now, lan, frame, link)
                }
                Handed::Packet => Packet::parse(&bytes)
                    .and_then(|packet| self.take_packet(now, &packet, Checksum::Verified, link)),
            };
            if let Err(reason) = taken {
                self.counters.count(reason);
            }
        }
    }

    /// A connection has come from another shard.
    fn settle_in(&mut self, moving: Moving) {
        let Moving { mut connection, buffers, name } = moving;
        let tuple = connection.tuple;
        if let Some(tcb) = &mut connection.tcb {
            tcb.settle_in(self.pool.settle_in(tuple.remote.ip(), buffers));
            // Who found no buffer elsewhere may find one here.
            tcb.offer_again();
        }
        let index = self.connections.insert(connection);
        self.enter(tuple, index);
        self.make_busy(index);
        self.show_later(index);
        self.has_moved = true;
        let id = self.connections.id(index);
        if let Some(shard) = &mut self.shard {
            shard.arrived.push_back((id, name));
        }
    }

    /// Gives connections to others that are to go there.
    pub(super) fn let_go(&mut self) {
        let Some(shard) = self.shard.as_mut().filter(|shard| !shard.leaving.is_empty()) else {
            return;
        };
        let (number, directory) = (shard.number, shard.directory.clone());
        let leaving = std::mem::take(&mut shard.leaving);
        let mut staying = Vec::new();
        for (id, to, name) in leaving {
            let Some(index) = self.connections.index(id) else { continue };
            let Some(connection) = self.connections.get_mut(index) else { continue };
            // It has ended since: what is left of it is read here.
            if !connection.is_live || !connection.is_held {
                continue;
            }
            let remote = connection.tuple.remote.ip();
            let may_own_wait = self.has_address(remote) && self.output.own_waiting() > 0;
            // What it has sent goes first.
            let is_behind = may_own_wait || self.output.is_full(remote);
            if is_behind || !directory.move_on(number, to, || self.take_out(index, name)) {
                staying.push((id, to, name));
            }
        }
        if let Some(shard) = &mut self.shard {
            shard.leaving.append(&mut staying);
        }
    }

    /// Takes a connection that is live out of all tables.
    fn take_out(&mut self, index: u32, name: u64) -> Moving {
        self.clear_timer(index);
        self.unstall(index);
        self.changed.remove(&index);
        let mut connection = self.connections.take(index).expect("it is there");
        self.forget_place(connection.tuple, index);
        self.show_later(index);
        self.has_moved = true;
        connection.token = None;
        connection.is_awaited = false;
        connection.is_busy = false;
        connection.is_questioned = false;
        let buffers = connection.tcb.as_mut().map_or([0; 2], |tcb| tcb.move_out(&mut self.pool));
        Moving { connection, buffers, name }
    }

    /// Returns true if no buffer is in use and no owner of any is known, and no connection elsewhere.
    #[cfg(test)]
    pub(crate) fn has_all_back(&self) -> bool {
        let elsewhere = self.shard.as_ref().map_or(0, |shard| shard.directory.connections());
        self.pool.usage().in_use == 0 && self.pool.owners() == 0 && elsewhere == 0
    }
}
