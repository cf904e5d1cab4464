//! All connections with a host, or all there are.

use super::*;
use crate::tcpip::neighbours::Sender;

/// How often a side is asked whose host may have become another, until it answers or was silent for too long.
const QUESTION_EVERY: Duration = Duration::from_secs(1);

/// Connections whose other sides are asked in one call of [`Stack::poll`].
const QUESTIONS_PER_POLL: usize = 64;

impl Stack {
    /// The hosts to which there are connections, without ourselves.
    pub fn hosts(&self) -> HashSet<IpAddr> {
        let is_other = |host: &&IpAddr| !self.has_address(**host);
        self.by_host.keys().filter(is_other).copied().collect()
    }

    /// Returns true if there are connections with a host, which is not this stack itself.
    pub fn has_connections_with(&self, host: IpAddr) -> bool {
        self.by_host.contains_key(&host) && !self.has_address(host)
    }

    /// Returns true if frames wait for a neighbour that takes none now: whoever has its address next must not get them.
    pub fn holds_frames_for(&self, neighbour: IpAddr) -> bool {
        self.output.holds_for(neighbour)
    }

    /// Has [`Stack::poll`] ask a host whether it still has its connections. A host that has not ends them with a reset. What
    /// is asked may be lost with the path that it goes over, so connections that have nothing else to send ask again until
    /// something comes.
    pub fn question(&mut self, host: IpAddr) {
        let Stack { by_host, connections, questioned, .. } = self;
        for index in by_host.get(&host).into_iter().flatten() {
            if let Some(connection) = connections.get_mut(*index)
                && !std::mem::replace(&mut connection.is_questioned, true)
            {
                questioned.push_back(*index);
            }
        }
    }

    /// Asks some of the other sides that are to be asked.
    pub(super) fn ask_questioned(&mut self, now: u64, link: &mut impl Link) {
        for _ in 0..QUESTIONS_PER_POLL {
            let Some(index) = self.questioned.pop_front() else { return };
            self.ask(now, index, link);
        }
    }

    fn ask(&mut self, now: u64, index: u32, link: &mut impl Link) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        // The connection that had this index may be over, and another have it.
        if !std::mem::take(&mut connection.is_questioned) || !connection.is_live {
            return;
        }
        if matches!(connection.state(), State::SynSent | State::SynReceived | State::Closed) {
            return;
        }
        let Some(tcb) = &mut connection.tcb else { return };
        let question = tcb.question(self.clock);
        let questions = KeepAlive {
            time: QUESTION_EVERY,
            interval: QUESTION_EVERY,
            probes: u32::try_from(self.options.silence_max.as_secs()).unwrap_or(u32::MAX),
        };
        connection.questioner = Some(Box::new(Keeper::new(now, questions)));
        let tuple = connection.tuple;
        self.send_later(tuple, question, link);
        self.make_busy(index);
    }

    /// Sends a segment, or keeps it until its target has room.
    fn send_later(&mut self, tuple: Tuple, bare: Bare, link: &mut impl Link) {
        let mut frame = packet::bare(tuple.local, tuple.remote, bare);
        let offload = packet::leave_checksum(&mut frame);
        let to = (tuple.remote.ip(), Sender::Own);
        self.output.send(link, &mut self.counters, to, offload, &mut frame);
    }

    /// Ends all connections with a host, because nobody has its address any more, or somebody else. What waits for it is dropped.
    pub fn end_with(&mut self, host: IpAddr) {
        self.outside.forget(host);
        for hop in self.output.forget(host) {
            // Others may wait for the same.
            let waiting: Vec<u32> = self.stalled.get(&hop).into_iter().flatten().copied().collect();
            for index in waiting {
                self.unstall(index);
                self.make_busy(index);
            }
        }
        for index in self.indexes_of(host) {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.end = Some(Box::new(End::Gone));
                self.counters.count(Counter::Gone);
            }
            self.retire(index);
        }
    }

    /// Ends all connections from an address that is not the stack's any more, and names what somebody waits for there: nothing
    /// will come.
    pub fn end_from(&mut self, address: IpAddr) {
        for index in self.indexes_from(address) {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.end = Some(Box::new(End::AddressLost));
                self.counters.count(Counter::Gone);
            }
            self.retire(index);
        }
        self.has_moved = true;
        for (at, listener) in &mut self.listeners {
            if std::mem::take(&mut listener.is_awaited) {
                self.news.push(Awaited::Listener(*at));
            }
        }
        for (at, queue) in &mut self.sockets.bound {
            if std::mem::take(&mut queue.is_awaited) {
                self.news.push(Awaited::Socket(*at));
            }
        }
    }

    pub(super) fn indexes_of(&self, host: IpAddr) -> Vec<u32> {
        self.by_host.get(&host).into_iter().flatten().copied().collect()
    }

    pub(super) fn indexes_from(&self, address: IpAddr) -> Vec<u32> {
        let is_from = |index: &u32| {
            self.connections.tuple(*index).is_some_and(|tuple| tuple.local.ip() == address)
        };
        self.live.iter().filter(is_from).collect()
    }

    /// Ends all connections with a reset.
    pub fn abort_all(&mut self) {
        let all: Vec<u32> = self.live.iter().collect();
        for index in all {
            let Stack { connections, pool, .. } = self;
            let Some(connection) = connections.get_mut(index) else { continue };
            if let Some(tcb) = &mut connection.tcb {
                tcb.abort(pool);
                self.make_busy(index);
            }
        }
    }
}
