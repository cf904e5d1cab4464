//! What a stack does about a segment of TCP.

use super::*;

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
        if let Some(index) = self.tuples.get(&tuple).copied() {
            return self.take_segment_of(now, index, packet, segment, link);
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
                let bare = Bare { flags: ACK, sequence, acknowledgement, window: u16::MAX };
                self.send_bare(tuple, bare, link);
            }
            return Ok(());
        }
        if let Some(listening) = listening {
            return self.take_first(now, listening, tuple, packet, segment, None, link);
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
            },
            false => Bare {
                flags: RST | ACK,
                sequence: 0,
                acknowledgement: segment.sequence.wrapping_add(segment.length()),
                window: 0,
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
        if let Some(connection) = self.connections.get_mut(index)
            && let Some(known) = connection.asleep.as_mut()
        {
            // A connection that sleeps needs no buffers to say where it stands, nor to hear that the other side is there.
            if segment.is_probe(known.sent.acknowledged)
                && segment.acknowledgement == known.sent.next
            {
                let (tuple, answer) = (connection.tuple, known.acknowledgement());
                connection.hear(now);
                self.send_bare(tuple, answer, link);
                return Ok(());
            }
            if known.note_repeated(&segment) {
                connection.hear(now);
                return Ok(());
            }
        }
        let sleeps = self.connections.get_mut(index).is_some_and(|one| one.asleep.is_some());
        if sleeps && self.pool.is_exhausted() {
            // The other side sends it again.
            return Err(Counter::PoolExhausted);
        }
        self.wake(index);
        let Stack { connections, engine, output, counters, room, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return Ok(()) };
        connection.idle_since = None;
        let is_orphan = connection.is_orphan();
        let Some(machine) = &mut connection.machine else { return Ok(()) };
        let before = machine.state();
        let expected = machine.expected();
        let is_synchronized = before != State::SynSent && before != State::SynReceived;
        let asks_again = before == State::SynReceived && !segment.has(ACK);
        if segment.has(RST) && before != State::SynSent {
            // RFC 5961 3.2: only a reset at the very next byte is believed.
            if segment.sequence != expected {
                let is_near = segment.sequence.wrapping_sub(expected) as usize
                    <= machine.socket().recv_capacity();
                counters.count(Counter::OutOfWindow);
                if is_near {
                    self.challenge(now, index, link);
                }
                return Ok(());
            }
        } else if segment.has(SYN) && (is_synchronized || asks_again) {
            // RFC 5961 4.2, and before the connection is there RFC 9293 3.10.7.4, first step.
            self.challenge(now, index, link);
            return Ok(());
        } else if is_synchronized && segment.has(ACK) && !machine.acknowledges_rightly(&segment) {
            // RFC 5961 5.2.
            self.challenge(now, index, link);
            return Ok(());
        }
        if is_synchronized && segment.is_probe(expected) {
            // Somebody asks whether we are there, or have room. smoltcp answers once in a second at most, which is too
            // seldom for one who asks more often and gives up after some times.
            connection.hear(now);
            self.tell_where_we_are(index, link);
            return Ok(());
        }
        if is_orphan && segment.data_bytes > 0 && is_before(expected, segment.data_end()) {
            // Nobody will ever receive this: the other side has to know (RFC 2525 2.16). One who cannot say how far we are
            // has to find out first.
            match machine.brings_data(&segment) && machine.acknowledges_rightly(&segment) {
                true => {
                    machine.abort();
                    self.make_busy(index);
                }
                false => self.challenge(now, index, link),
            }
            return Ok(());
        }
        if before == State::SynSent && segment.has(SYN) {
            machine.begin(&segment, packet.transport());
        }
        let progress = machine.note_acknowledged(now, &segment);
        if machine.is_acceptable(&segment) {
            connection.hear(now);
        }
        let Some(machine) = &mut connection.machine else { return Ok(()) };
        let mut way = Way { link, output, counters, room };
        let cut = match machine.excess(&segment) {
            Excess::None => None,
            Excess::End if !segment.has(FIN) => None,
            Excess::End => Some(packet::without_end(packet, 0)),
            Excess::Data(bytes) => Some(packet::without_end(packet, bytes)),
        };
        let moved = is_synchronized && machine.is_ahead(&segment);
        let cut = if moved { Some(packet::with_sequence(packet, expected)) } else { cut };
        let cut = match before {
            // Both sides have asked at once, and this is the other's acknowledgement (RFC 9293 3.5, figure 7). smoltcp
            // looks at no acknowledgement that begins where it was asked.
            State::SynReceived
                if segment.has(SYN) && segment.sequence == expected.wrapping_sub(1) =>
            {
                Some(packet::without_begin(packet, machine.shift_to_us()))
            }
            // smoltcp drops data that comes with an acknowledgement of the past, as it does where frames overtake each
            // other: it is given the last acknowledgement instead (RFC 9293 3.10.7.4, fifth step).
            _ if is_synchronized => match machine.said_since(&segment) {
                Some(said) => Some(packet::with_acknowledgement(packet, cut, said)),
                None => cut,
            },
            State::SynSent if segment.has(SYN) && cut.is_none() => {
                packet::with_segment_bytes(packet)
            }
            _ => cut,
        };
        let bytes = cut.as_deref().unwrap_or(packet.bytes);
        let received = machine.receive(engine, now, bytes, None, &mut way);
        if received == Err(Broken) {
            self.break_down(index);
            return Ok(());
        }
        let after = machine.state();
        connection.has_finished |= machine.has_end();
        // A side that has no room says so for as long as a program here waits for it.
        if progress == Progress::Some || progress == Progress::Closed && !is_orphan {
            connection.deadline = None;
        }
        match (before, after) {
            (State::SynSent, State::Closed) => {
                connection.end = Some(End::Refused);
                counters.count(Counter::Refused);
            }
            (State::SynSent, State::Established | State::CloseWait) => {
                counters.count(Counter::Connected);
            }
            // Both halves are complete.
            (State::TimeWait, State::Closed) => {}
            // After the other side has closed its half, a reset means that it does not want ours: the program may have
            // nothing to read or write, and waits for this alone.
            (State::CloseWait, State::Closed) if segment.has(RST) => {
                connection.end = Some(End::Unwanted);
                counters.count(Counter::Reset);
            }
            (_, State::Closed) if segment.has(RST) => {
                connection.end = Some(End::Reset);
                counters.count(Counter::Reset);
            }
            (State::SynReceived, State::Listen) => {
                counters.count(Counter::Reset);
                self.forget(index);
                return Ok(());
            }
            (State::SynReceived, after) if after != State::SynReceived => self.establish(index),
            _ => {}
        }
        self.make_busy(index);
        self.note_change(index);
        Ok(())
    }

    /// Says where a connection stands, so that whoever sent a segment that would change it has to prove that it knows.
    pub(super) fn challenge(&mut self, now: u64, index: u32, link: &mut impl Link) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(machine) = &connection.machine else { return };
        let is_soon = connection.challenged.is_some_and(|last| now < last + CHALLENGE_NS);
        if is_soon || !machine.known.sent.is_any {
            return;
        }
        connection.challenged = Some(now);
        self.counters.count(Counter::ChallengesSent);
        self.tell_where_we_are(index, link);
    }

    /// Says again what was said last of how far a connection is.
    pub(super) fn tell_where_we_are(&mut self, index: u32, link: &mut impl Link) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(machine) = &connection.machine else { return };
        let (tuple, sent) = (connection.tuple, machine.known.sent);
        let bare = Bare {
            flags: ACK,
            sequence: sent.next,
            acknowledgement: sent.acknowledged,
            window: machine.window_to_say(),
        };
        self.send_bare(tuple, bare, link);
    }

    pub(super) fn send_bare(&mut self, tuple: Tuple, bare: Bare, link: &mut impl Link) {
        let mut frame = packet::bare(tuple.local, tuple.remote, bare);
        let offload = packet::leave_checksum(&mut frame);
        self.answer(tuple.remote.ip(), offload, &mut frame, link);
    }
}
