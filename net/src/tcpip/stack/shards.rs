//! One stack whose connections several threads serve.

use std::sync::Arc;

use super::*;
use crate::lan::frame::source;
use crate::tcpip::directory::{Directory, FIRST, Handed, HandedOver, Item, Moving};
use crate::tcpip::neighbours::Message;
use crate::tcpip::output::Service;
use crate::tcpip::time_wait::Entry;

/// The place of a stack among its shards.
pub(super) struct Shard {
    number: usize,
    directory: Arc<Directory>,
    /// Connections that are to depart, where to, and their names.
    departing: Vec<(ConnectionId, usize, u64)>,
    /// Set if one was added to them since the last look.
    is_asked: bool,
    /// Connections that have arrived, and their names.
    arrived: VecDeque<(ConnectionId, u64)>,
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.directory.close(self.number);
    }
}

impl Stack {
    /// Makes this the first of so many shards of one stack, each for a thread of its own, and returns all of them in their order. They have
    /// the same addresses, interfaces and routes, and each an equal part of the buffers.
    ///
    /// Listeners, sockets of UDP, errors, and all else that is not for a connection are with the first. So connections begin there, and
    /// move to others ([`Stack::move_to`]); others bind and connect nothing. Frames may be given to any shard, those of one connection always to
    /// the same: what is not for that shard is handed over, in order. All shards have one clock. Changes of ways, neighbours, hosts and
    /// addresses are made by [`Stack::tell_all`]. Counters, counts, pool and board are each shard's own.
    ///
    /// `wake` is called with the number of a shard that has got something from another while it had nothing: its thread is to
    /// call [`Stack::poll`]. It is called by the thread of the other, inside a verb of its shard.
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
        let pool_bytes = self.options.pool_bytes / count;
        let pool_kept_bytes = self.options.pool_kept_bytes / count;
        self.options = Options { pool_bytes, pool_kept_bytes, ..self.options };
        self.pool.set_limits(pool_bytes, pool_kept_bytes);
        let room = self.pool.usage().in_use_max / 4;
        let directory = Arc::new(Directory::new(count, room, Box::new(wake)));
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
            let (departing, arrived) = (Vec::new(), VecDeque::new());
            let own = Shard { number, directory, departing, is_asked: false, arrived };
            shard.shard = Some(Box::new(own));
        }
        shards
    }

    /// Has [`Stack::poll`] give a connection to another shard, as it is, with all that has come and is to be sent. There [`Stack::take_arrived`]
    /// names it as `name`; here its id means nothing from then on. It stays while frames of it wait for room at their target, and while it has more
    /// buffers than the other shard takes. If it ends before it departs it stays for good, with what is left to be read. Nobody waits for
    /// news of it or watches it any more when it arrives.
    ///
    /// False if there is no such shard, or the connection is over, was not accepted, or is about to depart already.
    pub fn move_to(&mut self, id: ConnectionId, shard: usize, name: u64) -> bool {
        let movable = |connection: &Connection| connection.is_live && connection.is_held;
        let can_move = self.connections.find(id).is_some_and(movable);
        let Some(own) = &mut self.shard else { return false };
        let is_other = shard < own.directory.shards() && shard != own.number;
        if !can_move || !is_other || own.departing.iter().any(|(other, ..)| *other == id) {
            return false;
        }
        own.departing.push((id, shard, name));
        own.is_asked = true;
        true
    }

    /// Returns a connection that has arrived from another shard, and its name. Those that arrive are known after [`Stack::poll`].
    pub fn take_arrived(&mut self) -> Option<(ConnectionId, u64)> {
        self.shard.as_mut()?.arrived.pop_front()
    }

    /// Returns true if a connection is here: neither closed and over nor with another shard.
    pub fn has(&self, id: ConnectionId) -> bool {
        self.connections.find(id).is_some()
    }

    /// Has all shards of this stack do something that concerns connections wherever they are, in [`Stack::poll`]. A connection that
    /// moves meanwhile is met once. A stack without shards does it at once.
    pub fn tell_all(&mut self, what: impl Fn(&mut Stack) + Send + Sync + 'static) {
        match &self.shard {
            Some(shard) => shard.directory.tell_all(shard.number, Arc::new(what)),
            None => what(self),
        }
    }

    /// The place among several shards, unless it is the first.
    fn later_shard(&self) -> Option<&Shard> {
        self.shard.as_deref().filter(|shard| shard.number != FIRST)
    }

    /// Returns true if this shard has connections alone.
    pub(super) fn has_only_connections(&self) -> bool {
        self.later_shard().is_some()
    }

    /// Returns true if a packet is a segment of a connection that is here, or may be with another shard. Where this stack stands in for others, only
    /// the first knows for whom.
    pub(super) fn may_be_of_connection(&self, packet: &Packet<'_>, is_outside: bool) -> bool {
        let is_here = || {
            let segment = Segment::parse(packet.transport()).ok()?;
            let local = SocketAddr::new(packet.destination, segment.destination);
            let remote = SocketAddr::new(packet.source, segment.source);
            Some(self.live.find(&Tuple { local, remote }, &self.connections).is_some())
        };
        packet.is_segment() && (!is_outside || is_here().unwrap_or(false))
    }

    /// Returns true if another shard has a connection between these two, or waits for it.
    pub(super) fn is_elsewhere(shard: Option<&Shard>, tuple: &Tuple) -> bool {
        shard.is_some_and(|shard| shard.directory.has(tuple))
    }

    /// Returns how many connections all shards have, of which this is the first.
    pub(super) fn connections_of_all(&self) -> usize {
        let elsewhere = self.shard.as_ref().map_or(0, |shard| shard.directory.connections());
        self.connections.len() + elsewhere
    }

    /// Returns true if another shard has sent something, or a connection was told to depart.
    pub(super) fn has_mail(&self) -> bool {
        let has = |shard: &Shard| shard.is_asked || shard.directory.has_mail(shard.number);
        self.shard.as_deref().is_some_and(has)
    }

    /// Gives the first shard a frame that is for no connection. Returns false if this is the first.
    pub(super) fn hand_to_first(&mut self, handed: Handed, source: IpAddr, frame: &[u8]) -> bool {
        let Some(shard) = self.later_shard() else { return false };
        if !shard.directory.hand_to_first(shard.number, handed, source, frame.to_vec()) {
            self.counters.count(Counter::TargetFull);
        }
        true
    }

    /// Gives the other shards a frame about neighbours, as far as they need it: each asks for those that it sends to, and the first answers. Questions of
    /// others after others, which all stations of a network get, are for none of them.
    pub(super) fn tell_others(
        &self,
        interface: usize,
        lan: usize,
        frame: Frame<'_>,
        message: &Message,
    ) {
        let Some(shard) = &self.shard else { return };
        let at = &self.interfaces()[interface];
        let is_to_us = destination(frame.bytes).is_some_and(|to| to == at.mac || to.is_group());
        let is_from_us = message.about.is_some_and(|(_, mac)| mac == at.mac);
        if !is_to_us || is_from_us || source(frame.bytes) == Some(at.mac) {
            return;
        }
        let is_own = |address: IpAddr| at.addresses.contains(&address);
        let handed = Handed::Message { lan, offload: frame.offload };
        let of = match message.kind {
            neighbours::Kind::Question(of) => Some(of),
            _ => None,
        };
        match (message.about, of) {
            (Some((about, _)), of) if of.is_none_or(is_own) || is_own(about) => {
                shard.directory.hand_to_others(shard.number, handed, about, frame.bytes);
            }
            // Somebody is about to take an address. If there is no room for that it is asked again.
            (None, Some(of)) if is_own(of) && shard.number != FIRST => {
                let bytes = frame.bytes.to_vec();
                shard.directory.hand_to_first(shard.number, handed, of, bytes);
            }
            _ => {}
        }
    }

    /// Gives a packet that is for no connection here to the shard that has its connection. Returns false if this shard has to decide about it.
    pub(super) fn hand_over(&mut self, now: u64, tuple: Tuple, packet: &Packet<'_>) -> bool {
        let Some(shard) = &self.shard else { return false };
        let about = (tuple, packet.source);
        match shard.directory.hand_over(shard.number, about, || packet.frame()) {
            HandedOver::Kept => true,
            HandedOver::Dropped => {
                self.counters.count(Counter::TargetFull);
                true
            }
            HandedOver::Own(ended) => {
                self.take_rest(now, ended);
                false
            }
        }
    }

    /// Has the first shard answer for what is left of a connection. Returns false if that is this one.
    pub(super) fn end_elsewhere(&self, tuple: Tuple, left: Option<Entry>) -> bool {
        let shard = self.later_shard();
        shard.map(|shard| shard.directory.end(shard.number, tuple, left)).is_some()
    }

    /// Takes the rest of connections that have ended at other shards: their ports are not free.
    pub(super) fn take_rest_of_others(&mut self, now: u64) {
        let Some(shard) = &self.shard else { return };
        let ended = shard.directory.take_ended();
        self.take_rest(now, ended);
    }

    fn take_rest(&mut self, now: u64, ended: Vec<(Tuple, Entry)>) {
        for (tuple, left) in ended {
            self.time_wait.insert(now, tuple, left);
        }
    }

    /// Serves the mailbox.
    pub(super) fn take_mail(&mut self, now: u64, link: &mut impl Link) {
        let Some(shard) = self.shard.as_ref() else { return };
        if !shard.directory.has_mail(shard.number) {
            return;
        }
        let mail = shard.directory.take_mail(shard.number);
        self.take_rest(now, mail.ended);
        for item in mail.items {
            let (handed, bytes) = match item {
                Item::Arrived(moving) => {
                    self.arrive_here(*moving);
                    continue;
                }
                Item::Told(what) => {
                    what(self);
                    continue;
                }
                Item::Frame(handed, bytes) => (handed, bytes),
            };
            let now = now.max(self.clock);
            let taken = match handed {
                Handed::Raw { lan, offload } => {
                    self.take_frame(now, lan, Frame { offload, bytes: &bytes }, link)
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

    /// A connection has arrived from another shard.
    fn arrive_here(&mut self, moving: Moving) {
        let Moving { mut connection, buffers, clock, path_mtu, name } = moving;
        let tuple = connection.tuple;
        // Threads look at the clock before they have their turn: for a connection it never goes back.
        self.clock = self.clock.max(clock);
        self.output.clock = self.clock;
        if let Some(mtu) = path_mtu {
            self.path_mtus.note(self.clock, tuple.remote.ip(), mtu, usize::MAX);
        }
        if let Some(tcb) = &mut connection.tcb {
            tcb.change_owner(self.pool.bring(tuple.remote.ip(), buffers));
            // If it found no buffer elsewhere it may find one here.
            tcb.offer_again();
        }
        let is_questioned = connection.is_questioned;
        let index = self.connections.insert(connection);
        if is_questioned {
            self.questioned.push_back(index);
        }
        self.enter(tuple, index);
        self.make_busy(index);
        self.show_later(index);
        self.has_moved = true;
        let id = self.connections.id(index);
        if let Some(shard) = &mut self.shard {
            shard.arrived.push_back((id, name));
        }
    }

    /// Has connections depart that are to go to other shards.
    pub(super) fn let_depart(&mut self) {
        let Some(shard) = self.shard.as_mut() else { return };
        let returned = self.pool.take_returned();
        if returned > 0 {
            shard.directory.give_room(shard.number, returned);
        }
        shard.is_asked = false;
        if shard.departing.is_empty() {
            return;
        }
        let (number, directory) = (shard.number, shard.directory.clone());
        let mut departing = std::mem::take(&mut shard.departing);
        departing.retain(|(id, to, name)| {
            let Some(index) = self.connections.index(*id) else { return false };
            let Some(connection) = self.connections.get_mut(index) else { return false };
            // What is left of one that has ended is read here.
            if !connection.is_live || !connection.is_held {
                return false;
            }
            let tuple = connection.tuple;
            let buffers = connection.tcb.as_ref().map_or([0; 2], Tcb::buffers);
            let remote = tuple.remote.ip();
            let may_own_wait = self.has_address(remote) && self.output.own_waiting() > 0;
            // What it has sent goes first.
            let is_behind =
                may_own_wait || Service::ALL.iter().any(|of| self.output.is_full(remote, *of));
            let about = (tuple, buffers.iter().sum());
            is_behind
                || !directory.depart((number, *to), about, || self.take_out(index, buffers, *name))
        });
        if let Some(shard) = &mut self.shard {
            shard.departing = departing;
        }
    }

    /// Takes a connection that is live out of all tables.
    fn take_out(&mut self, index: u32, buffers: [usize; 2], name: u64) -> Box<Moving> {
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
        if let Some(tcb) = &connection.tcb {
            self.pool.take_away(tcb.owner(), buffers);
        }
        let path_mtu = self.path_mtus.get(self.clock, connection.tuple.remote.ip());
        Box::new(Moving { connection, buffers, clock: self.clock, path_mtu, name })
    }

    /// Returns true if another shard has sent something that was not looked at.
    #[cfg(test)]
    pub(crate) fn has_post(&self) -> bool {
        self.has_mail()
    }

    /// Returns true if no buffer is in use, no owner of any is known, and no connection is here or elsewhere.
    #[cfg(test)]
    pub(crate) fn has_all_back(&self) -> bool {
        let Stack { pool, stalled, by_host, timers, changed, connections, .. } = self;
        let is_empty = |shard: &Shard| shard.departing.is_empty() && shard.arrived.is_empty();
        pool.usage().in_use == 0
            && pool.owners() == 0
            && stalled.is_empty()
            && by_host.is_empty()
            && changed.is_empty()
            && timers.due().is_none()
            && connections.len() == 0
            && self.connections_of_all() == 0
            && self.shard.as_deref().is_none_or(is_empty)
    }
}
