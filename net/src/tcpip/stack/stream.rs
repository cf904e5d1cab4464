//! Verbs of TCP.

use std::io::IoSliceMut;

use super::*;

impl Stack {
    /// Begins a connection, from an address and port of the stack's choice.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, now: u64, remote: SocketAddr) -> Result<ConnectionId, ConnectError> {
        self.clock = now;
        self.time_wait.expire(now);
        self.take_rest_of_others(now);
        if remote.port() == 0 || !packet::is_host(remote.ip()) {
            return Err(ConnectError::NoHost);
        }
        if self.connections_of_all() >= self.options.connections_max {
            return Err(ConnectError::Full);
        }
        let local = self.source_for(remote.ip()).ok_or(ConnectError::NotAvailable)?;
        if self.has_only_connections() {
            return Err(ConnectError::NotAvailable);
        }
        let Stack { ports, live, connections, listeners, time_wait, shard, .. } = self;
        let is_free = |port: u16| {
            let tuple = Tuple { local: SocketAddr::new(local, port), remote };
            // A connection has two ends, also where both are ours.
            tuple.local != remote
                && live.find(&tuple, connections).is_none()
                && !time_wait.has(&tuple)
                && !Stack::is_elsewhere(shard.as_deref(), &tuple)
                && !Stack::is_in_the_way(tuple.local, listeners.keys())
        };
        let port = ports.choose(local, Some(remote), is_free).ok_or(ConnectError::NotAvailable)?;
        let tuple = Tuple { local: SocketAddr::new(local, port), remote };
        let first = self.first_number_after(tuple, None);
        let start = self.start(tuple, first);
        let tcb = Tcb::connect(&self.config, start);
        let index = self.connections.insert(Connection::new(self.begun, tuple, tcb, None));
        self.enter(tuple, index);
        self.make_busy(index);
        Ok(self.connections.id(index))
    }

    /// Both addresses of a connection: ours, and the other side's.
    pub fn ends(&self, id: ConnectionId) -> Option<(SocketAddr, SocketAddr)> {
        self.connections
            .find(id)
            .map(|connection| (connection.tuple.local, connection.tuple.remote))
    }

    /// Whether a connection is still being made.
    pub fn is_connecting(&self, id: ConnectionId) -> bool {
        self.connections.find(id).is_some_and(|connection| {
            connection.is_live && matches!(connection.state(), State::SynSent | State::SynReceived)
        })
    }

    /// How a connection has failed, if it has. It is said once.
    pub fn take_end(&mut self, id: ConnectionId) -> Option<End> {
        self.connections.find_mut(id)?.end.take().map(|end| *end)
    }

    /// Has [`Stack::take_changed`] name a connection when it may be ready for what it was not ready for before. It is named
    /// once at the beginning.
    pub fn watch(&mut self, id: ConnectionId, token: u64) {
        let Some(index) = self.connections.index(id) else { return };
        if let Some(connection) = self.connections.get_mut(index) {
            connection.token = Some(token);
        }
        self.note_change(index);
    }

    /// The token of the connection between these two, if there is one and it is watched.
    pub(crate) fn token_between(&self, local: SocketAddr, remote: SocketAddr) -> Option<u64> {
        let number = self.live.find(&Tuple { local, remote }, &self.connections)?;
        self.connections.find(self.connections.id(number))?.token
    }

    /// The token of a connection that is watched, and may be ready for what it was not ready for when it was named last.
    pub fn take_changed(&mut self) -> Option<u64> {
        let index = self.changed.pop_first()?;
        self.connections.get_mut(index)?.token
    }

    /// Whether [`Stack::take_changed`] has one to name.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// What can be received.
    pub fn readable(&self, id: ConnectionId) -> Readable {
        self.connections.find(id).map_or(Readable::Finished, Connection::readable)
    }

    /// Whether there is room for what is to be sent.
    pub fn writable(&self, id: ConnectionId) -> Writable {
        let Stack { connections, config, pool, .. } = self;
        connections
            .find(id)
            .map_or(Writable::Closed, |connection| connection.writable(config, pool))
    }

    /// Gives what has come to `take`, as far as it lies in one piece. `take` says how much of it it takes, and the rest
    /// stays. None if nothing has come.
    pub fn receive_with<R>(
        &mut self,
        id: ConnectionId,
        take: impl FnOnce(&[u8]) -> (usize, R),
    ) -> Option<R> {
        if self.readable(id) != Readable::Bytes {
            return None;
        }
        let index = self.connections.index(id)?;
        let Stack { connections, pool, .. } = self;
        let connection = connections.get_mut(index)?;
        if !connection.kept.is_empty() {
            let (taken, result) = take(&connection.kept);
            connection.kept.drain(..taken.min(connection.kept.len()));
            return Some(result);
        }
        let tcb = connection.tcb.as_mut()?;
        let result = tcb.take(pool, take);
        if !connection.is_live {
            if let Some(tcb) = connection.tcb.take_if(|tcb| tcb.receive_queue() == 0) {
                tcb.discard(pool);
            }
            self.show_later(index);
        } else if tcb.has_last_words() {
            // There is room again, which the other side may wait for.
            self.make_busy(index);
        } else {
            self.show_later(index);
        }
        result
    }

    /// What has come, in pieces. It stays.
    pub fn peek(&self, id: ConnectionId) -> impl Iterator<Item = &[u8]> {
        let connection = self.connections.find(id);
        let kept = connection.map(|connection| &connection.kept[..]);
        let tcb = connection.filter(|connection| !connection.is_receive_shut);
        let tcb = tcb.and_then(|connection| connection.tcb.as_ref());
        kept.into_iter().filter(|kept| !kept.is_empty()).chain(tcb.into_iter().flat_map(Tcb::peek))
    }

    /// Gives room for what is to be sent to `fill`, as far as it lies in one piece. `fill` says how much of it it has
    /// filled. None if there is no room.
    pub fn send_with<R>(
        &mut self,
        id: ConnectionId,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<R> {
        if self.writable(id) != Writable::Room {
            return None;
        }
        let index = self.connections.index(id)?;
        let Stack { connections, config, pool, .. } = self;
        let tcb = connections.get_mut(index)?.tcb.as_mut()?;
        let result = tcb.fill(config, pool, fill);
        self.make_busy(index);
        result
    }

    /// As [`Stack::send_with`], with room for so many bytes at most, in pieces. `fill` returns how many bytes it has put there.
    pub fn send_pieces_with(
        &mut self,
        id: ConnectionId,
        bytes_max: usize,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> usize,
    ) -> Option<usize> {
        if self.writable(id) != Writable::Room {
            return None;
        }
        let index = self.connections.index(id)?;
        let Stack { connections, config, pool, .. } = self;
        let tcb = connections.get_mut(index)?.tcb.as_mut()?;
        let filled = tcb.fill_pieces(config, pool, bytes_max, fill);
        self.make_busy(index);
        filled
    }

    /// Sends nothing more: the other side learns of the end after all that was sent.
    pub fn shut_sending(&mut self, id: ConnectionId) {
        let Some(index) = self.connections.index(id) else { return };
        let connection = self.connections.get_mut(index);
        if let Some(tcb) = connection.and_then(|connection| connection.tcb.as_mut()) {
            tcb.close();
            self.make_busy(index);
            self.note_change(index);
        }
    }

    /// Receives nothing more after what has come already: what comes now is acknowledged and thrown away.
    pub fn shut_receiving(&mut self, id: ConnectionId) {
        let Some(index) = self.connections.index(id) else { return };
        let Stack { connections, pool, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        if connection.is_receive_shut {
            return;
        }
        connection.is_receive_shut = true;
        let Connection { tcb, kept, .. } = connection;
        if let Some(tcb) = tcb {
            let mut keep = |bytes: &[u8]| {
                kept.extend_from_slice(bytes);
                (bytes.len(), ())
            };
            while tcb.take(pool, &mut keep).is_some() {}
        }
        self.make_busy(index);
        self.note_change(index);
    }

    /// Whether small segments go at once, though others are not acknowledged (RFC 9293 3.7.4).
    pub fn set_no_delay(&mut self, id: ConnectionId, is_on: bool) {
        let Some(index) = self.connections.index(id) else { return };
        let connection = self.connections.get_mut(index);
        if let Some(tcb) = connection.and_then(|connection| connection.tcb.as_mut()) {
            tcb.set_no_delay(is_on);
            self.make_busy(index);
        }
    }

    /// Sets of which service the packets of a connection are, from the next one on: the type of service of IPv4, the traffic class of IPv6. An adapter takes what is urgent
    /// first. The two bits that tell of congestion stay as they are.
    pub fn set_service(&mut self, id: ConnectionId, service: u8) {
        let Some(index) = self.connections.index(id) else { return };
        let connection = self.connections.get_mut(index);
        if let Some(tcb) = connection.and_then(|connection| connection.tcb.as_mut()) {
            tcb.set_service(service);
        }
    }

    /// The program has done with a connection. What was sent still goes to the other side. If something came that was
    /// not received, the other side is told by a reset (RFC 2525 2.17).
    pub fn close(&mut self, id: ConnectionId) {
        let Some(index) = self.connections.index(id) else { return };
        self.changed.remove(&index);
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.is_held = false;
        connection.token = None;
        connection.kept = Vec::new();
        let Some(tcb) = connection.tcb.as_mut().filter(|_| connection.is_live) else {
            return self.forget(index);
        };
        if tcb.state() == State::SynSent {
            return self.forget(index);
        }
        if tcb.receive_queue() > 0 && !connection.is_receive_shut {
            tcb.abort(&mut self.pool);
        } else {
            tcb.close();
        }
        // What may last for long has a limit from now on.
        connection.deadline.clear();
        self.make_busy(index);
    }

    /// Ends a connection with a reset.
    pub fn abort(&mut self, id: ConnectionId) {
        let Some(index) = self.connections.index(id) else { return };
        let connection = self.connections.get_mut(index);
        if let Some(tcb) = connection.and_then(|connection| connection.tcb.as_mut()) {
            tcb.abort(&mut self.pool);
        }
        self.make_busy(index);
        self.note_change(index);
    }
}
