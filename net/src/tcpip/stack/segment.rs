//! What a stack does about a segment of TCP.

use super::*;
use crate::tcpip::packet::Times;
use crate::tcpip::tcp::Data;

/// The shortest time between two challenges of one connection (RFC 5961 7).
const CHALLENGE_NS: u64 = 500_000_000;

impl Stack {
    pub(super) fn take_segment(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let segment = Segment::parse(packet.transport())?;
        let tuple = Tuple {
            local: SocketAddr::new(packet.destination, segment.destination),
            remote: SocketAddr::new(packet.source, segment.source),
        };
        if let Some(index) = self.live.find(&tuple, &self.connections) {
            return self.take_segment_of(now, index, packet, segment, link);
        }
        if self.hand_over(now, tuple, packet) {
            return Ok(());
        }
        let asks = segment.has(SYN) && !segment.has(ACK);
        let listening = if asks { self.listening(tuple.local) } else { None };
        let answers = segment.has(ACK) && !segment.has(SYN | RST);
        let giver = if answers { self.listening(tuple.local) } else { None };
        let cookie = giver.and_then(|at| self.read_cookie(now, at, tuple, &segment).zip(Some(at)));
        if let Some(entry) = self.time_wait.get(now, &tuple) {
            // What begins behind the end of the last connection is no old segment of it (RFC 6191 2).
            if let Some(listening) = listening
                && !is_before(segment.sequence, entry.expected)
            {
                let after = Some(entry.next);
                return self.take_first(now, listening, tuple, packet, segment, after, link);
            }
            if asks && self.options.stands_in && !is_before(segment.sequence, entry.expected) {
                return self.ask_outside(tuple, packet, &segment, Some(entry.next));
            }
            if let Some((agreed, giver)) = cookie
                && is_before(entry.expected, segment.sequence)
            {
                return self.take_cookie(now, (giver, tuple), packet, segment, agreed, link);
            }
            // A reset does not shorten it (RFC 1337), unless it is where the other side was told to be: so a side that has
            // forgotten the last connection and asks for one with lower numbers gets it with its next try.
            if segment.has(RST) && segment.sequence == entry.expected {
                self.time_wait.remove(&tuple);
                return Ok(());
            }
            // What takes no sequence space needs no answer.
            if !segment.has(RST) && segment.length() > 0 {
                let (sequence, acknowledgement) = (entry.next, entry.expected);
                let times = entry.recent.map(|echoed| Times {
                    value: packet::clock(now, self.clock_offset(tuple)),
                    echoed,
                });
                let window = u16::MAX;
                let bare = Bare { flags: ACK, sequence, acknowledgement, window, times };
                self.send_bare(tuple, bare, link);
            }
            return Ok(());
        }
        if let Some(listening) = listening {
            return self.take_first(now, listening, tuple, packet, segment, None, link);
        }
        if asks && self.options.stands_in {
            return self.ask_outside(tuple, packet, &segment, None);
        }
        if let Some((agreed, giver)) = cookie {
            return self.take_cookie(now, (giver, tuple), packet, segment, agreed, link);
        }
        if segment.has(RST) {
            return Ok(());
        }
        if !segment.has(ACK) && self.listening(tuple.local).is_some() {
            // It neither begins a connection nor belongs to one (RFC 9293 3.10.7.2).
            return Ok(());
        }
        if let Some(at) = giver.filter(|at| self.expects_cookies(now, *at)) {
            // It may belong to one whose answer to a cookie was dropped for want of room: that comes again.
            self.has_room_for_another(at)?;
            self.counters.count(Counter::CookiesRefused);
        }
        // RFC 9293 3.10.7.1.
        let bare = match segment.has(ACK) {
            true => Bare {
                flags: RST,
                sequence: segment.acknowledgement,
                acknowledgement: 0,
                window: 0,
                ..Bare::default()
            },
            false => Bare {
                flags: RST | ACK,
                sequence: 0,
                acknowledgement: segment.sequence.wrapping_add(segment.length()),
                window: 0,
                ..Bare::default()
            },
        };
        self.counters.count(Counter::ResetsSent);
        self.send_bare(tuple, bare, link);
        Ok(())
    }

    /// A segment of a connection that there is.
    pub(super) fn take_segment_of(
        &mut self,
        now: u64,
        index: u32,
        packet: &Packet<'_>,
        segment: Segment,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let transport = packet.transport();
        let (header, data) = transport.split_at(transport.len() - segment.data_bytes);
        let answer = self.arrive(now, index, &segment, (header, data));
        self.reply(now, index, answer, link);
        Ok(())
    }

    /// A segment has come for a connection. What is to be answered at once is returned.
    pub(super) fn arrive(
        &mut self,
        now: u64,
        index: u32,
        segment: &Segment,
        (header, data): (&[u8], &(impl Data + ?Sized)),
    ) -> Answer {
        let Stack { connections, config, pool, counters, output, bulk, arriving, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return Answer::Nothing };
        let is_orphan = connection.is_orphan();
        let Some(tcb) = &mut connection.tcb else { return Answer::Nothing };
        let (before, (expected, _)) = (tcb.state(), tcb.progress());
        let arrival = tcb.receive(now, segment, (header, data), is_orphan, config, pool);
        let after = tcb.state();
        // By a segment that was taken: anybody may send one that is not.
        if bulk.is_watching() && segment.data_bytes > 0 && tcb.progress().0 != expected {
            bulk.note(now, *arriving, (index, connection.tuple), tcb.progress());
        }
        connection.has_finished |= tcb.has_end();
        if arrival.is_stray_reset {
            counters.count(Counter::OutOfWindow);
        }
        if arrival.is_lacking {
            counters.count(Counter::PoolExhausted);
        }
        if arrival.is_behind {
            counters.count(Counter::OutOfOrder);
        }
        if arrival.is_heard {
            connection.hear(now);
        }
        // A side that has no room says so for as long as a program here waits for it.
        let is_progress = match arrival.progress {
            Progress::Some => true,
            Progress::Closed => !is_orphan,
            Progress::None => false,
        };
        if is_progress {
            connection.deadline.clear();
            // A side that takes nothing more may say so of what was sent before it moved.
            if arrival.progress == Progress::Some && output.neighbours.is_unsure() {
                output.confirm(now, connection.tuple.remote.ip());
            }
        }
        if arrival.answer != Answer::Nothing {
            return arrival.answer;
        }
        match (before, after) {
            (State::SynSent, State::Closed) => {
                connection.end = Some(Box::new(End::Refused));
                counters.count(Counter::Refused);
            }
            (State::SynSent, State::Established | State::CloseWait) => {
                counters.count(Counter::Connected);
            }
            // A half-open connection of a listener. Where both sides have asked at once, a program has it already.
            (State::SynReceived, State::Closed) if !connection.is_held && segment.has(RST) => {
                counters.count(Counter::Reset);
                self.forget(index);
                return Answer::Nothing;
            }
            // After the other side has closed its half, a reset means that it does not want ours: the program may have
            // nothing to read or write, and waits for this alone.
            (State::CloseWait, State::Closed) if segment.has(RST) => {
                connection.end = Some(Box::new(End::Unwanted));
                counters.count(Counter::Reset);
            }
            // Both halves are complete.
            (State::TimeWait, State::Closed) => {}
            (before, State::Closed) if before != State::Closed && segment.has(RST) => {
                connection.end = Some(Box::new(End::Reset));
                counters.count(Counter::Reset);
            }
            (State::SynReceived, after) if after != State::SynReceived => self.establish(index),
            _ => {}
        }
        self.make_busy(index);
        self.note_change(index);
        Answer::Nothing
    }

    /// Sends what a segment is answered with.
    pub(super) fn reply(&mut self, now: u64, index: u32, answer: Answer, link: &mut impl Link) {
        match answer {
            Answer::Nothing => {}
            Answer::Position => self.tell_where_we_are(index, link),
            Answer::Challenge => self.challenge(now, index, link),
            Answer::Again => {
                if let Some(tcb) = self.may_tell_again(now, index) {
                    tcb.answer_again();
                    self.make_busy(index);
                }
            }
            Answer::Reset(sequence) => {
                let Some(connection) = self.connections.get_mut(index) else { return };
                let tuple = connection.tuple;
                let bare =
                    Bare { flags: RST, sequence, acknowledgement: 0, window: 0, ..Bare::default() };
                self.counters.count(Counter::ResetsSent);
                self.send_bare(tuple, bare, link);
            }
        }
    }

    /// Says where a connection stands, so that whoever sent a segment that would change it has to prove that it knows.
    pub(super) fn challenge(&mut self, now: u64, index: u32, link: &mut impl Link) {
        if self.may_tell_again(now, index).is_some() {
            self.counters.count(Counter::ChallengesSent);
            self.tell_where_we_are(index, link);
        }
    }

    /// A connection whose other side may be told something again that it may know.
    fn may_tell_again(&mut self, now: u64, index: u32) -> Option<&mut Tcb> {
        let connection = self.connections.get_mut(index)?;
        let is_soon = now < connection.challenged_until;
        if is_soon || connection.state() == State::SynSent {
            return None;
        }
        connection.challenged_until = now.saturating_add(CHALLENGE_NS);
        connection.tcb.as_mut()
    }

    /// Says how far a connection is.
    pub(super) fn tell_where_we_are(&mut self, index: u32, link: &mut impl Link) {
        let Stack { connections, clock, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        let Some(tcb) = &mut connection.tcb else { return };
        let (tuple, bare) = (connection.tuple, tcb.position(*clock));
        self.send_bare(tuple, bare, link);
    }

    pub(super) fn send_bare(&mut self, tuple: Tuple, bare: Bare, link: &mut impl Link) {
        let mut frame = packet::bare(tuple.local, tuple.remote, bare);
        let offload = packet::leave_checksum(&mut frame);
        self.answer(tuple.remote.ip(), offload, &mut frame, link);
    }
}
