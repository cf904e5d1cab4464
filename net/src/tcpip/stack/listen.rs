//! Listeners, and the first segments of the connections that are for them.

use super::*;

/// Connections that wait to be accepted, and those that are on their way there.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) backlog: usize,
    pub(super) half_open: HalfOpen,
    pub(super) ready: VecDeque<u32>,
    /// Whether somebody waits for the next one that is ready.
    pub(super) is_awaited: bool,
    /// Until when a cookie may come back.
    pub(super) cookies_until: u64,
}

/// The connections of a listener whose other sides have not answered yet.
#[derive(Debug, Default)]
pub(super) struct HalfOpen {
    /// By the address of the other side and the number of the connection, its index.
    by_host: HashMap<IpAddr, BTreeMap<u64, u32>>,
    /// How many each host has: the last has the most.
    counts: BTreeSet<(usize, IpAddr)>,
    /// When each began, by its number: the oldest is the first.
    begun: BTreeMap<u64, u64>,
}

impl HalfOpen {
    fn insert(&mut self, now: u64, host: IpAddr, number: u64, index: u32) {
        self.begun.insert(number, now);
        let ones = self.by_host.entry(host).or_default();
        let before = ones.len();
        ones.insert(number, index);
        let after = ones.len();
        self.recount(host, before, after);
    }

    fn recount(&mut self, host: IpAddr, before: usize, after: usize) {
        self.counts.remove(&(before, host));
        if after > 0 {
            self.counts.insert((after, host));
        }
    }

    pub(super) fn remove(&mut self, host: IpAddr, number: u64) {
        let Some(ones) = self.by_host.get_mut(&host) else { return };
        let before = ones.len();
        if ones.remove(&number).is_some() {
            self.begun.remove(&number);
        }
        let after = ones.len();
        if after == 0 {
            self.by_host.remove(&host);
        }
        self.recount(host, before, after);
    }

    /// Since when the oldest one waits.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.begun.first_key_value().map(|(_, begun)| *begun)
    }

    /// Which one goes for another of `host`: the oldest of the host that has the most, if it has more than this one will
    /// have then. So one that asks for connections and does not answer is in nobody's way but its own, and many hosts that
    /// ask once do not take places from each other: each of them has the time that it needs to answer.
    fn evictable(&self, host: IpAddr) -> Option<u32> {
        let own = self.by_host.get(&host).map_or(0, BTreeMap::len);
        let (most, of) = self.counts.last()?;
        let (_, index) = self.by_host.get(of)?.first_key_value()?;
        (*most > own + 1).then_some(*index)
    }
}

impl Stack {
    /// Listens. At most `backlog` connections wait to be accepted. More are dropped, and tried again by those who asked. If it is
    /// full of connections that nobody completes, others are made by cookies (RFC 4987 3.6).
    ///
    /// # Errors
    /// [`BindError`].
    pub fn listen(&mut self, address: SocketAddr, backlog: usize) -> Result<SocketAddr, BindError> {
        let address = self.choose_address(address, |stack, address| {
            Stack::is_in_the_way(address, stack.listeners.keys())
        })?;
        let listener = Listener {
            backlog: backlog.max(1),
            half_open: HalfOpen::default(),
            ready: VecDeque::new(),
            is_awaited: false,
            cookies_until: 0,
        };
        self.listeners.insert(address, listener);
        self.are_sockets_unshown = true;
        Ok(address)
    }

    /// The next connection that somebody has made to a listener.
    pub fn accept(&mut self, listening: SocketAddr) -> Option<(ConnectionId, SocketAddr)> {
        let index = self.listeners.get_mut(&listening)?.ready.pop_front()?;
        self.are_sockets_unshown = true;
        let connection = self.connections.get_mut(index)?;
        connection.listener = None;
        connection.is_ready = false;
        connection.is_held = true;
        let remote = connection.tuple.remote;
        self.counters.count(Counter::Accepted);
        Some((self.connections.id(index), remote))
    }

    /// Listens no more. Connections that nobody has accepted are reset.
    pub fn stop_listening(&mut self, listening: SocketAddr) {
        let Some(listener) = self.listeners.remove(&listening) else { return };
        self.are_sockets_unshown = true;
        let half_open = listener.half_open.by_host.into_values().flat_map(BTreeMap::into_values);
        for index in half_open.chain(listener.ready) {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            if connection.listener.as_deref() == Some(&listening) {
                connection.listener = None;
                connection.is_ready = false;
                match &mut connection.tcb {
                    Some(tcb) if connection.is_live => {
                        tcb.abort(&mut self.pool);
                        self.make_busy(index);
                    }
                    _ => self.forget(index),
                }
            }
        }
    }

    /// The listener for an address.
    pub(super) fn listening(&self, local: SocketAddr) -> Option<SocketAddr> {
        [local, any(local)].into_iter().find(|at| self.listeners.contains_key(at))
    }

    /// The first segment of a connection, for a listener. Our sequence numbers are to begin `after` this one, if there
    /// was a connection with the same ports before (RFC 1122 4.2.2.13).
    #[expect(clippy::too_many_arguments, reason = "what a segment is and where it goes")]
    pub(super) fn take_first(
        &mut self,
        now: u64,
        listening: SocketAddr,
        tuple: Tuple,
        packet: &Packet<'_>,
        segment: Segment,
        after: Option<u32>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let Some(listener) = self.listeners.get(&listening) else { return Ok(()) };
        let host = tuple.remote.ip();
        let half_open = listener.half_open.begun.len();
        let is_full = half_open + listener.ready.len() >= listener.backlog;
        let evictable = if is_full { listener.half_open.evictable(host) } else { None };
        if is_full && evictable.is_none() {
            // Dropped and not refused, if not even a cookie is given: the other side tries again in a second.
            return self.give_cookie(now, (listening, tuple), packet, segment, after, link);
        }
        // One that goes leaves its place.
        if self.connections_of_all() >= self.options.connections_max && !is_full {
            return Err(Counter::ConnectionsFull);
        }
        if let Some(evictable) = evictable {
            self.forget(evictable);
            self.counters.count(Counter::HalfOpenEvicted);
        }
        let first = self.first_number_after(tuple, after);
        let start = self.start(tuple, first);
        let tcb = Tcb::accept(now, &self.config, start, (&segment, packet.transport()));
        let connection = Connection::new(self.begun, tuple, tcb, Some(listening));
        let index = self.connections.insert(connection);
        if let Some(listener) = self.listeners.get_mut(&listening) {
            listener.half_open.insert(now, host, self.begun, index);
        }
        self.time_wait.remove(&tuple);
        self.enter(tuple, index);
        // Whoever asks waits for the answer.
        let limits = Limits { mtu: self.options.mtu, segments_max: 1 };
        self.send_segment(now, index, limits, link);
        self.make_busy(index);
        Ok(())
    }

    /// A connection for a listener is complete: it waits to be accepted.
    pub(super) fn establish(&mut self, index: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(at) = connection.listener.as_deref().copied() else { return };
        if let Some(listener) = self.listeners.get_mut(&at) {
            connection.is_ready = true;
            listener.half_open.remove(connection.tuple.remote.ip(), connection.number);
            listener.ready.push_back(index);
            self.are_sockets_unshown = true;
            if std::mem::take(&mut listener.is_awaited) {
                self.news.push(Awaited::Listener(at));
            }
        }
    }
}
