//! The ends of connections.

use super::*;
use crate::tcpip::time_wait::Entry;

impl Stack {
    /// A connection is over, but for what the other side may not have heard: an entry in a table answers that.
    pub(super) fn rest(&mut self, now: u64, index: u32) {
        if let Some(connection) = self.connections.get_mut(index)
            && let Some(tcb) = &connection.tcb
        {
            let until = now.saturating_add(nanoseconds(self.options.time_wait));
            let (next, expected) = (tcb.next(), tcb.expected());
            let recent = tcb.times(now).map(|times| times.echoed);
            let left = Entry { next, expected, recent, until };
            return self.retire_with(now, index, Some(left));
        }
        self.retire(index);
    }

    /// A connection waits for room at its target no more.
    pub(super) fn unstall(&mut self, index: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(target) = connection.waits_for.take() else { return };
        if let Some(stalled) = self.stalled.get_mut(&target) {
            stalled.remove(&index);
            if stalled.is_empty() {
                self.stalled.remove(&target);
            }
        }
    }

    /// The network has done with a connection. A program may still receive what has come.
    pub(super) fn retire(&mut self, index: u32) {
        self.retire_with(self.clock, index, None);
    }

    /// The same, where this is left of it.
    fn retire_with(&mut self, now: u64, index: u32, left: Option<Entry>) {
        self.clear_timer(index);
        self.unstall(index);
        let Some(connection) = self.connections.get_mut(index) else { return };
        let is_live = std::mem::take(&mut connection.is_live);
        let tuple = connection.tuple;
        if let Some(tcb) = connection.tcb.take_if(|tcb| tcb.receive_queue() == 0) {
            tcb.discard(&mut self.pool);
        }
        let is_wanted = connection.is_held || connection.is_ready;
        if is_live {
            self.leave(now, tuple, index, left);
        }
        self.note_change(index);
        self.show_later(index);
        if !is_wanted {
            self.forget(index);
        }
    }

    /// Forgets a connection that nobody has.
    pub(super) fn forget(&mut self, index: u32) {
        self.note_change(index);
        self.clear_timer(index);
        self.unstall(index);
        let Some(connection) = self.connections.get_mut(index) else { return };
        let (tuple, is_live) = (connection.tuple, connection.is_live);
        if let Some(tcb) = connection.tcb.take() {
            tcb.discard(&mut self.pool);
        }
        // One that is complete is not forgotten before it is accepted: so this one was not.
        if let Some(listener) =
            connection.listener.as_ref().and_then(|at| self.listeners.get_mut(at))
        {
            listener.half_open.remove(tuple.remote.ip(), connection.number);
        }
        if is_live {
            self.leave(self.clock, tuple, index, None);
        }
        self.changed.remove(&index);
        self.connections.remove(index);
        self.show_later(index);
    }

    /// The packets between these two are for this connection from now on.
    pub(super) fn enter(&mut self, tuple: Tuple, index: u32) {
        self.live.insert(index, &self.connections);
        self.by_host.entry(tuple.remote.ip()).or_default().insert(index);
        self.note_at_distributed(tuple.local.ip(), true);
    }

    /// The packets between these two are for no connection any more, but for what is left of it.
    fn leave(&mut self, now: u64, tuple: Tuple, index: u32, left: Option<Entry>) {
        self.forget_place(tuple, index);
        self.bulk.forget(index, tuple);
        if !self.end_elsewhere(tuple, left)
            && let Some(left) = left
        {
            self.time_wait.insert(now, tuple, left);
        }
    }

    /// The packets between these two are not for this connection any more.
    pub(super) fn forget_place(&mut self, tuple: Tuple, index: u32) {
        self.live.remove(&tuple, index);
        self.note_at_distributed(tuple.local.ip(), false);
        let host = tuple.remote.ip();
        if let Some(of_host) = self.by_host.get_mut(&host) {
            of_host.remove(&index);
            if of_host.is_empty() {
                self.by_host.remove(&host);
            }
        }
    }

    /// A connection may be ready for what it was not ready for before: its program is told, if it wants to be.
    pub(super) fn note_change(&mut self, index: u32) {
        self.has_moved = true;
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.token.is_some() {
            self.changed.insert(index);
        }
        if std::mem::take(&mut connection.is_awaited) {
            let id = self.connections.id(index);
            self.news.push(Awaited::Connection(id));
        }
    }

    /// Something has come for a socket of UDP.
    pub(super) fn note_socket(&mut self, at: SocketAddr) {
        self.has_moved = true;
        if let Some(queue) = self.sockets.bound.get_mut(&at)
            && std::mem::take(&mut queue.is_awaited)
        {
            self.news.push(Awaited::Socket(at));
        }
    }
}
