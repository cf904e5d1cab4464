//! Listeners whose room is full of connections that nobody completes go on with cookies.

use super::*;
use crate::tcpip::cookie;
use crate::tcpip::packet::{Agreed, Times};

/// How long the oldest half-open connection has waited when a full listener begins to give cookies. Where connections are
/// completed sooner there are just many at once: then it is better to ask for one again after a second, because what a
/// cookie promises is lost if the backlog is full when it comes back.
const STUCK_NS: u64 = 100_000_000;

impl Stack {
    /// Answers the first segment of a connection for which its listener has no room, and keeps nothing of it. Our number is
    /// to be `after` this one.
    ///
    /// Nothing is sent to a side that says that it takes very short segments, or where a number is before those of
    /// the last connection with the same ports, as half of them are: it asks again, and finds room or another minute.
    pub(super) fn give_cookie(
        &mut self,
        now: u64,
        (listening, tuple): (SocketAddr, Tuple),
        packet: &Packet<'_>,
        segment: Segment,
        after: Option<u32>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let listener = self.listeners.get_mut(&listening).ok_or(Counter::BacklogFull)?;
        let since = listener.half_open.oldest().unwrap_or(now);
        let is_stuck = now.saturating_sub(since) >= STUCK_NS;
        if !is_stuck || listener.ready.len() >= listener.backlog {
            return Err(Counter::BacklogFull);
        }
        let theirs = packet::agreed(packet.transport(), tuple.local.is_ipv4());
        let number = cookie::make(&self.secret, now, tuple, segment.sequence, &theirs)
            .filter(|number| after.is_none_or(|after| is_before(after, *number)))
            .ok_or(Counter::BacklogFull)?;
        listener.cookies_until = now.saturating_add(cookie::GOOD_NS_MAX);
        let ours = self.config.agreed(self.options.mtu, tuple.local.is_ipv4(), &theirs);
        let bare = Bare {
            flags: SYN | ACK,
            sequence: number,
            acknowledgement: segment.sequence.wrapping_add(1),
            window: self.config.first_window(),
            times: self.times_of_cookie(now, tuple, packet.transport()),
        };
        let mut frame = packet::first(tuple.local, tuple.remote, bare, Some(ours));
        let offload = packet::leave_checksum(&mut frame);
        self.counters.count(Counter::CookiesSent);
        self.answer(tuple.remote.ip(), offload, &mut frame, link);
        Ok(())
    }

    /// The times that an answer carries of which nothing is kept: if they are wanted, the other side says so again.
    fn times_of_cookie(&self, now: u64, tuple: Tuple, asked: &[u8]) -> Option<Times> {
        let theirs = Times::parse(asked)?;
        let medium = self.output.routes.medium_to(tuple.remote.ip());
        let clock = self.clock_of(tuple, medium)?;
        Some(Times { value: packet::clock(now, clock), echoed: theirs.value })
    }

    /// Whether a listener has given cookies that may still be good.
    pub(super) fn expects_cookies(&self, now: u64, listening: SocketAddr) -> bool {
        self.listeners.get(&listening).is_some_and(|listener| now < listener.cookies_until)
    }

    /// What the other side has said in its first segment, if this segment answers a cookie.
    pub(super) fn read_cookie(
        &self,
        now: u64,
        listening: SocketAddr,
        tuple: Tuple,
        segment: &Segment,
    ) -> Option<Agreed> {
        if !self.expects_cookies(now, listening) {
            return None;
        }
        // The only segments that are looked at are those that begin at the first byte: of what comes later nobody can say to
        // which connection it belongs.
        let [theirs, ours] = [segment.sequence, segment.acknowledgement].map(|n| n.wrapping_sub(1));
        cookie::read(&self.secret, now, tuple, theirs, ours)
    }

    /// Whether a connection that is complete can be added to those that wait to be accepted.
    pub(super) fn has_room_for_another(&self, listening: SocketAddr) -> Result<(), Counter> {
        let listener = self.listeners.get(&listening).ok_or(Counter::BacklogFull)?;
        if listener.ready.len() >= listener.backlog {
            return Err(Counter::BacklogFull);
        }
        if self.connections_of_all() >= self.options.connections_max {
            return Err(Counter::ConnectionsFull);
        }
        Ok(())
    }

    /// A connection whose other side has come back with its cookie, and the segment that it came with.
    pub(super) fn take_cookie(
        &mut self,
        now: u64,
        (listening, tuple): (SocketAddr, Tuple),
        packet: &Packet<'_>,
        segment: Segment,
        agreed: Agreed,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        // Dropped and not refused: if the other side has something to say, it says it again.
        self.has_room_for_another(listening)?;
        let asked = (&segment, packet.transport());
        let start = self.start(tuple, 0);
        let tcb = Tcb::of_cookie(now, &self.config, start, asked, agreed);
        self.begun += 1;
        let connection = Connection::new(self.begun, tuple, tcb, Some(listening));
        let index = self.connections.insert(connection);
        self.time_wait.remove(&tuple);
        self.enter(tuple, index);
        self.establish(index);
        self.counters.count(Counter::CookiesAccepted);
        // It may bring data, or the end.
        self.take_segment_of(now, index, packet, segment, link)
    }
}
