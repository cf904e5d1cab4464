//! Segments that have come (RFC 9293 3.10.7).

use super::recovery::AckInfo;
use super::scoreboard::{Moment, News};
use super::*;
use crate::lan::frame::u32_at;
use crate::tcpip::packet::{FIN, RST, SYN};

/// Pieces of what is under way that another side may have us tell apart, beside four for each segment.
const PIECES_MIN: u32 = 64;

/// Ranges behind a gap, at most. What would make more of them comes again.
const RANGES_MAX: usize = 256;

/// The answer that a segment asks for at once, besides what the connection has to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tcpip) enum Answer {
    #[default]
    Nothing,
    /// Where we are: to each who asks.
    Position,
    /// The same to somebody who may be anybody: not too often (RFC 5961).
    Challenge,
    /// Our first segment once more, and not too often either: see [`Tcb::answer_again`].
    Again,
    /// A reset with this number, because this acknowledges what was never sent.
    Reset(u32),
}

/// How far the other side is, by a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcpip) enum Progress {
    /// Nothing new.
    None,
    /// It has more of what was sent.
    Some,
    /// It has no space for more (RFC 1122 4.2.2.17).
    Closed,
}

/// The result of a segment.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcpip) struct Arrival {
    pub(in crate::tcpip) answer: Answer,
    pub(in crate::tcpip) progress: Progress,
    /// Set if it shows that the other side is there.
    pub(in crate::tcpip) is_heard: bool,
    /// A reset was not where it has to be.
    pub(in crate::tcpip) is_stray_reset: bool,
    /// Its data found no buffer.
    pub(in crate::tcpip) is_lacking: bool,
    /// Its data is behind a gap.
    pub(in crate::tcpip) is_behind: bool,
}

impl Arrival {
    const NOTHING: Arrival = Arrival {
        answer: Answer::Nothing,
        progress: Progress::None,
        is_heard: false,
        is_stray_reset: false,
        is_lacking: false,
        is_behind: false,
    };

    fn answer(answer: Answer) -> Arrival {
        Arrival { answer, ..Arrival::NOTHING }
    }
}

impl Tcb {
    /// Takes a segment, with its header and its data. Nobody will ever read what comes for an orphan.
    pub(in crate::tcpip) fn receive(
        &mut self,
        now: u64,
        segment: &Segment,
        (header, data): (&[u8], &(impl Data + ?Sized)),
        is_orphan: bool,
        config: &TcpConfig,
        pool: &mut Buffers,
    ) -> Arrival {
        match self.state {
            State::Closed => return Arrival::NOTHING,
            State::SynSent => return self.receive_answer(now, segment, header, config, pool),
            _ => {}
        }
        let is_synchronized = self.state != State::SynReceived;
        if segment.has(RST) {
            return self.receive_reset(segment, pool);
        }
        let times = match &self.stamps {
            None => None,
            Some(stamps) => match Times::parse(header) {
                // RFC 7323 3.2 and 5.3, R1.
                None if !segment.has(SYN) => return Arrival::NOTHING,
                Some(times) if stamps.is_old(now, times.value) => {
                    let is_empty = segment.length() == 0;
                    let answer = if is_empty { Answer::Nothing } else { Answer::Challenge };
                    return Arrival::answer(answer);
                }
                times => times,
            },
        };
        let mut segment = *segment;
        if segment.has(SYN) {
            let is_first = segment.sequence == self.expected.wrapping_sub(1);
            let is_answer = segment.has(ACK) && is_first;
            if is_first && !is_answer && !is_synchronized {
                // Our answer was lost.
                return Arrival::answer(Answer::Again);
            }
            if is_synchronized || !is_answer {
                // RFC 5961 4.2, and before the connection is there RFC 9293 3.10.7.4, first step.
                return Arrival::answer(Answer::Challenge);
            }
            // Both sides have asked at once, and this is the other's acknowledgement (RFC 9293 3.5, figure 7).
            segment.sequence = self.expected;
            segment.flags &= !SYN;
            segment.window = (u32::from(segment.window) >> self.theirs.shift()) as u16;
        }
        if !segment.has(ACK) {
            return Arrival::NOTHING;
        }
        if !is_synchronized && (segment.acknowledgement != self.nxt || self.nxt == self.una) {
            // RFC 9293 3.10.7.4, fifth step.
            return Arrival::answer(Answer::Reset(segment.acknowledgement));
        }
        if is_synchronized && !self.may_acknowledge(segment.acknowledgement) {
            // RFC 5961 5.2.
            return Arrival::answer(Answer::Challenge);
        }
        if is_synchronized && segment.is_probe(self.expected) {
            if !is_before(self.una, segment.acknowledgement) {
                return Arrival { is_heard: true, ..Arrival::answer(Answer::Position) };
            }
            // The other side has a byte by which we asked after its window, and this side one of the other's: if neither took note, both would
            // answer each other for ever.
            let progress = self.acknowledge(now, &segment, (header, times), pool);
            self.must_acknowledge |= self.state != State::Closed;
            return Arrival { progress, is_heard: true, ..Arrival::NOTHING };
        }
        if is_orphan && segment.data_bytes > 0 && is_before(self.expected, segment.data_end()) {
            // The other side has to know (RFC 2525 2.16). One who cannot say how far we are has to find out first.
            if is_before(self.expected, segment.sequence) {
                return Arrival::answer(Answer::Challenge);
            }
            self.abort(pool);
            return Arrival::NOTHING;
        }
        if !self.is_acceptable(&segment) {
            let is_past = segment.length() > 0 && is_before(segment.sequence, self.expected);
            if segment.length() == 0 {
                return Arrival::answer(Answer::Challenge);
            }
            if is_past && segment.data_bytes > 0 {
                let end = segment.data_end();
                let end = if is_before(self.expected, end) { self.expected } else { end };
                self.duplicate = Some((segment.sequence, end));
            }
            // Where their stream has ended there is no more of it (RFC 9293 3.10.7.4, seventh step).
            self.must_acknowledge |= is_past || !self.has_end;
            return Arrival { is_heard: is_past, ..Arrival::NOTHING };
        }
        if let (Some(stamps), Some(times)) = (&mut self.stamps, times)
            && !is_before(self.acknowledged, segment.sequence)
        {
            // RFC 7323 4.3.
            stamps.hear(now, times.value);
        }
        if !is_synchronized {
            self.una = segment.acknowledgement;
            self.base = self.una;
            self.measure_first(now, times);
            self.establish();
            self.window_of = segment.sequence.wrapping_sub(1);
        }
        let progress = self.acknowledge(now, &segment, (header, times), pool);
        let progress = if is_synchronized { progress } else { Progress::Some };
        let mut arrival = Arrival { progress, is_heard: true, ..Arrival::NOTHING };
        if self.state != State::Closed && self.state != State::TimeWait {
            arrival.is_behind =
                segment.data_bytes > 0 && is_before(self.expected, segment.sequence);
            arrival.is_lacking = !self.store(now, &segment, data, config, pool);
        } else if segment.length() > 0 {
            self.must_acknowledge = self.state == State::TimeWait;
        }
        arrival
    }

    /// Has our first segment go again.
    pub(in crate::tcpip) fn answer_again(&mut self) {
        if self.state == State::SynReceived {
            self.scoreboard.lose_all(self.una);
        }
    }

    /// A segment that comes while we ask for a connection (RFC 9293 3.10.7.3).
    fn receive_answer(
        &mut self,
        now: u64,
        segment: &Segment,
        header: &[u8],
        config: &TcpConfig,
        pool: &mut Buffers,
    ) -> Arrival {
        if segment.has(ACK) && (segment.acknowledgement != self.nxt || self.nxt == self.una) {
            let reset = Arrival::answer(Answer::Reset(segment.acknowledgement));
            return if segment.has(RST) { Arrival::NOTHING } else { reset };
        }
        if segment.has(RST) {
            if segment.has(ACK) {
                self.finish(pool);
            }
            return Arrival::NOTHING;
        }
        if !segment.has(SYN) {
            return Arrival::NOTHING;
        }
        let said = (packet::agreed(header, self.is_v4), Times::parse(header));
        self.begin(now, config, segment, said);
        self.edge = self.expected.wrapping_add(config.first_window().into());
        if segment.has(ACK) {
            self.una = segment.acknowledgement;
            self.base = self.una;
            self.measure_first(now, said.1);
            self.establish();
            self.must_acknowledge = true;
        } else {
            // Both sides ask at once: what was said is said again, with an acknowledgement.
            self.state = State::SynReceived;
            self.scoreboard.lose_all(self.una);
            self.resend_at.clear();
        }
        Arrival { progress: Progress::Some, is_heard: true, ..Arrival::NOTHING }
    }

    /// Our first segment is acknowledged.
    fn measure_first(&mut self, now: u64, times: Option<Times>) {
        let first = self.una.wrapping_sub(1);
        let news = self.scoreboard.acknowledge(first, self.una, Moment { now, least: 0 });
        self.round_trip.is_first_resent = news.sent.is_none();
        let measured = news.sent.map(|sent| now.saturating_sub(sent));
        if let Some(time) = measured.or_else(|| self.since(now, times)) {
            self.round_trip.sample_first(time);
        }
        self.resend_at.clear();
    }

    /// A reset is believed at exactly the next byte (RFC 5961 3.2).
    fn receive_reset(&mut self, segment: &Segment, pool: &mut Buffers) -> Arrival {
        if segment.sequence == self.expected {
            self.finish(pool);
            return Arrival::NOTHING;
        }
        let is_near =
            !is_before(segment.sequence, self.expected) && !is_before(self.edge, segment.sequence);
        let answer = if is_near { Answer::Challenge } else { Answer::Nothing };
        Arrival { is_stray_reset: true, ..Arrival::answer(answer) }
    }

    /// Returns true if it acknowledges what we may have sent, as far as anybody would say it now (RFC 5961 5.2).
    fn may_acknowledge(&self, number: u32) -> bool {
        let end = self.nxt.wrapping_add(u32::from(self.has_probed && self.nxt == self.una));
        let is_old = is_before(number, self.una) && self.una.wrapping_sub(number) > self.window_max;
        !is_before(end, number) && !is_old
    }

    /// Returns true if a segment lies in the window that was offered, or reaches into it (RFC 9293 3.10.7.4, first step).
    fn is_acceptable(&self, segment: &Segment) -> bool {
        let begins = segment.sequence;
        if segment.length() == 0 {
            return !is_before(begins, self.expected) && !is_before(self.edge, begins);
        }
        let ends = begins.wrapping_add(segment.length());
        let is_new = is_before(self.expected, ends) && is_before(begins, self.edge);
        // An end takes no space.
        let is_end = segment.has(FIN) && begins == self.edge && segment.data_bytes == 0;
        (is_new || is_end && begins == self.expected) && !self.has_end
    }

    /// Takes note of what the other side acknowledges and offers (RFC 9293 3.10.7.4, fifth step).
    fn acknowledge(
        &mut self,
        now: u64,
        segment: &Segment,
        (header, times): (&[u8], Option<Times>),
        pool: &mut Buffers,
    ) -> Progress {
        let number = segment.acknowledgement;
        if is_before(number, self.una) {
            return Progress::None;
        }
        let is_news = number != self.una;
        let window = u32::from(segment.window) << self.theirs.shift();
        let is_repeated =
            !is_news && segment.length() == 0 && window == self.window && self.nxt != self.una;
        let is_younger = is_news || !is_before(segment.sequence, self.window_of);
        if is_younger || window > self.window {
            if self.window == 0 && window > 0 {
                // What is under way may have found no space there: it does not wait for as long as the other side had none.
                self.backoff = 0;
                self.resend_at.clear();
                self.arm(now);
            }
            self.window = window;
            self.window_of = segment.sequence;
            self.window_max = self.window_max.max(window);
        }
        let mut news = News::default();
        let flight = self.scoreboard.flight(self.una, self.nxt);
        // Whether as much was under way as may be: if not, it says nothing of how much more may be.
        let is_limited = is_before(self.una, self.limited_until);
        if !is_limited {
            // It must not become true by numbers that come round.
            self.limited_until = self.una;
        }
        let moment = Moment { now, least: self.round_trip.least };
        if self.has_probed && self.nxt.wrapping_add(1) == number {
            // It was sent several times, perhaps.
            self.scoreboard.push(number, now);
            self.scoreboard.resend(self.una, (self.nxt, number), now);
            self.nxt = number;
        }
        if is_news {
            news = self.scoreboard.acknowledge(self.una, number, moment);
            let data_end = if is_before(self.end(), number) { self.end() } else { number };
            self.sent.consume(data_end.wrapping_sub(self.base) as usize, pool);
            (self.una, self.base) = (number, data_end);
            self.repeated = 0;
            self.has_probed = false;
        }
        let duplicate = match self.theirs.takes_selective {
            true => self.select(header, number, moment, &mut news),
            false => None,
        };
        let echoed = times.map(|times| times.echoed);
        let measured = match news.sent {
            Some(sent) => Some(now.saturating_sub(sent)),
            // Nobody knows by itself which of two was acknowledged.
            None if is_news => self.since(now, times),
            None => None,
        };
        if let Some(time) = measured {
            // Until something is measured, the longer time stays (RFC 6298 5.7).
            self.backoff = 0;
            self.round_trip.sample(time);
            if let Some(start) = &mut self.slow_start {
                self.congestion.measure(start, (self.una, self.nxt), time);
            }
        }
        let is_echo_known = self.since(now, times).is_some();
        let ack = AckInfo { is_news, is_repeated, news, duplicate, echoed, is_echo_known, flight };
        self.recover(now, &ack);
        if news.bytes > 0 && is_limited && !matches!(self.recovery, Recovery::Fast(_)) {
            let mss = self.segment_bytes();
            self.congestion.acknowledge(now, news.bytes, self.round_trip.smoothed, mss);
        }
        if is_news {
            self.resend_at.clear();
            self.arm(now);
            self.arm_tail_probe(now);
        } else if self.scoreboard.has_selected() {
            // What is lost is found by that (RFC 8985 7.2).
            self.tail_probe_at.clear();
        }
        if self.is_ended && self.una == self.end().wrapping_add(1) {
            self.state = match self.state {
                State::FinWait1 => State::FinWait2,
                State::Closing => State::TimeWait,
                State::LastAck => {
                    self.finish(pool);
                    State::Closed
                }
                state => state,
            };
        }
        match is_news {
            true => Progress::Some,
            false if window == 0 => Progress::Closed,
            false => Progress::None,
        }
    }

    /// Takes note of ranges that have come though something before them is missing (RFC 2018 4). Returns the range that has come twice (RFC 2883 4).
    fn select(
        &mut self,
        header: &[u8],
        number: u32,
        moment: Moment,
        news: &mut News,
    ) -> Option<(u32, u32)> {
        if header.len() == packet::TCP_BYTES {
            return None;
        }
        let option = packet::option(header, packet::SELECTIVE_RANGES)?;
        let range = |block: &[u8]| Some((u32_at(block, 0)?, u32_at(block, 4)?));
        let mut ranges = option[2..].chunks_exact(8).filter_map(range).peekable();
        // Only the first can be one of those that came twice: it is acknowledged, or the second has it in it.
        let duplicate = ranges.peek().copied().filter(|&(begin, end)| {
            let is_old = !is_before(number, end) && number.wrapping_sub(begin) <= self.window_max;
            let second = option.get(10..18).and_then(range);
            let is_within = second
                .is_some_and(|(first, last)| !is_before(begin, first) && !is_before(last, end));
            is_before(begin, end) && (is_old || is_within)
        });
        ranges.next_if(|_| duplicate.is_some());
        for (begin, end) in ranges {
            let is_there =
                !is_before(begin, self.una) && is_before(begin, end) && !is_before(self.nxt, end);
            // Whoever names each byte by itself would have us walk through a list as long as the window.
            let pieces_max =
                PIECES_MIN + 4 * self.nxt.wrapping_sub(self.una) / self.segment_bytes();
            if is_there && self.scoreboard.pieces() < pieces_max as usize {
                self.scoreboard.select(self.una, (begin, end), moment, news);
            }
        }
        duplicate
    }

    /// Takes what a segment brings. False if there is no buffer for it.
    fn store(
        &mut self,
        now: u64,
        segment: &Segment,
        data: &(impl Data + ?Sized),
        config: &TcpConfig,
        pool: &mut Buffers,
    ) -> bool {
        let mut begin = segment.sequence;
        let mut range = 0..segment.data_bytes;
        let mut has_end = segment.has(FIN);
        if is_before(begin, self.expected) {
            let past = self.expected.wrapping_sub(begin) as usize;
            range.start = past.min(range.end);
            if range.start > 0 {
                self.duplicate = Some((begin, begin.wrapping_add(range.start as u32)));
            }
            begin = self.expected;
        }
        let space = self.edge.wrapping_sub(begin) as usize;
        if range.len() > space {
            range.end = range.start + space;
            has_end = false;
        }
        if range.is_empty() && !has_end {
            self.must_acknowledge |= segment.length() > 0;
            return true;
        }
        if begin != self.expected && self.beyond.len() >= RANGES_MAX {
            self.must_acknowledge = true;
            return true;
        }
        let at = self.received.len() + begin.wrapping_sub(self.expected) as usize;
        let wanted = range.len();
        let bytes = if wanted > 0 { self.received.put(at, data, range, pool) } else { 0 };
        has_end &= bytes == wanted;
        if begin == self.expected {
            self.is_lacking = bytes < wanted;
        }
        if bytes == 0 && !has_end {
            self.must_acknowledge = true;
            return false;
        }
        let end = begin.wrapping_add(bytes as u32);
        if begin != self.expected {
            // What is missing is asked for at once (RFC 5681 4.2).
            self.must_acknowledge = true;
            if bytes > 0 {
                let has_it =
                    |&(first, last): &(u32, u32)| !is_before(begin, first) && !is_before(last, end);
                if self.beyond.iter().any(has_it) {
                    self.duplicate = Some((begin, end));
                }
                self.note_beyond(begin, end);
            }
            if has_end {
                self.end_at = Some(end);
            }
            return bytes == wanted;
        }
        let before = self.expected;
        self.expected = end;
        // It may fill a gap.
        while let Some((first, last)) = self.beyond.first().copied()
            && !is_before(self.expected, first)
        {
            self.beyond.remove(0);
            self.must_acknowledge = true;
            if is_before(self.expected, last) {
                self.expected = last;
            }
        }
        let more = self.expected.wrapping_sub(before);
        self.received.advance(more as usize);
        self.grow(now, more, config);
        if has_end && self.expected == end || self.end_at == Some(self.expected) {
            self.take_end(pool);
        }
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        let segment_bytes = usize::from(self.theirs.segment_bytes_max);
        if self.unacknowledged > 1
            || config.acknowledge_after_ns == 0
            || !self.beyond.is_empty()
            || bytes >= 2 * segment_bytes
        {
            self.must_acknowledge = true;
        } else if !self.must_acknowledge {
            self.acknowledge_at.set(now.saturating_add(config.acknowledge_after_ns));
        }
        bytes == wanted
    }

    /// The other side's stream is complete.
    fn take_end(&mut self, pool: &mut Buffers) {
        self.received.cut(pool);
        self.expected = self.expected.wrapping_add(1);
        self.has_end = true;
        self.must_acknowledge = true;
        self.beyond = Vec::new();
        if !is_before(self.expected, self.edge) {
            self.edge = self.expected;
        }
        self.state = match self.state {
            State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            state => state,
        };
    }

    /// Something has come behind a gap.
    fn note_beyond(&mut self, mut begin: u32, mut end: u32) {
        self.latest = begin;
        self.beyond.retain(|&(first, last)| {
            let is_apart = is_before(last, begin) || is_before(end, first);
            if !is_apart {
                begin = if is_before(first, begin) { first } else { begin };
                end = if is_before(end, last) { last } else { end };
            }
            is_apart
        });
        let at = self.beyond.iter().position(|&(first, _)| is_before(end, first));
        self.beyond.insert(at.unwrap_or(self.beyond.len()), (begin, end));
    }
}
