//! All connections with a host, or all there are.

use super::*;

/// How often a side is asked whose host may have become another, until it answers or was silent for too long.
const QUESTION_EVERY: Duration = Duration::from_secs(1);

impl Stack {
    /// The hosts to which there are connections, without ourselves.
    pub fn hosts(&self) -> HashSet<IpAddr> {
        let is_other = |host: &&IpAddr| !self.has_address(**host);
        self.by_host.keys().filter(is_other).copied().collect()
    }

    /// Asks a host whether it still has its connections. One that has not ends them with a reset. What is asked may be lost
    /// with the path that it goes over, so connections that have nothing else to send ask again until something comes.
    pub fn question(&mut self, now: u64, host: IpAddr, link: &mut impl Link) {
        let questions = KeepAlive {
            time: QUESTION_EVERY,
            interval: QUESTION_EVERY,
            probes: u32::try_from(self.options.silence_max.as_secs()).unwrap_or(u32::MAX),
        };
        for index in self.indexes_of(host) {
            self.wake(index);
            let Some(connection) = self.connections.get_mut(index) else { continue };
            let Some(machine) = &connection.machine else { continue };
            if !matches!(machine.state(), State::SynSent | State::SynReceived | State::Closed) {
                let (tuple, question) = (connection.tuple, machine.question());
                connection.questioner = Some(Box::new(Keeper::new(now, questions)));
                let mut frame = packet::bare(tuple.local, tuple.remote, question);
                let offload = packet::leave_checksum(&mut frame);
                self.output.send(link, &mut self.counters, host, offload, &mut frame);
                self.make_busy(index);
            }
        }
    }

    /// Ends all connections with a host, because nobody has its address any more.
    pub fn end_with(&mut self, host: IpAddr) {
        for index in self.indexes_of(host) {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.end = Some(End::Gone);
                self.counters.count(Counter::Gone);
            }
            self.retire(index);
        }
    }

    pub(super) fn indexes_of(&self, host: IpAddr) -> Vec<u32> {
        self.by_host.get(&host).into_iter().flatten().copied().collect()
    }

    /// Ends all connections with a reset.
    pub fn abort_all(&mut self) {
        let all: Vec<u32> = self.tuples.values().copied().collect();
        for index in all {
            self.wake(index);
            let connection = self.connections.get_mut(index);
            if let Some(machine) = connection.and_then(|connection| connection.machine.as_mut()) {
                machine.abort();
            }
            self.make_busy(index);
        }
    }
}
