//! The next segment (RFC 9293 3.8), and what is due.

use super::pacing::{Rate, SHORTEST_NS};
use super::*;
use crate::tcpip::packet::{FIN, PSH, RST, SYN, TCP_BYTES};

/// Ranges behind a gap that an acknowledgement names at most (RFC 2018 3).
const RANGES_MAX: usize = 4;

/// Bytes of data in the shortest segments that another side can ask for. Linux has the same limit: a byte in each would cost fifty times as
/// much as it carries.
const SEGMENT_BYTES_MIN: u32 = 48;

/// What the way to the other side carries.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcpip) struct Limits {
    /// Bytes of the longest packet.
    pub(in crate::tcpip) mtu: usize,
    /// Segments that one frame may stand for: 1 to 256.
    pub(in crate::tcpip) segments_max: usize,
}

/// A segment on its way out. One that is longer than `segment_bytes` stands for several.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tcpip) struct Segment {
    pub(in crate::tcpip) flags: u8,
    pub(in crate::tcpip) sequence: u32,
    pub(in crate::tcpip) acknowledgement: u32,
    pub(in crate::tcpip) window: u16,
    /// The options of a first segment.
    pub(in crate::tcpip) agreed: Option<Agreed>,
    /// The times that it carries.
    pub(in crate::tcpip) times: Option<Times>,
    /// Ranges that have come behind a gap, or twice.
    pub(in crate::tcpip) ranges: [(u32, u32); RANGES_MAX],
    pub(in crate::tcpip) ranges_count: usize,
    /// Where its data begins in what was sent, and how many bytes it has.
    pub(in crate::tcpip) at: usize,
    pub(in crate::tcpip) data_bytes: usize,
    pub(in crate::tcpip) segment_bytes: usize,
    /// Set if its data was sent before, or probes a closed window.
    pub(in crate::tcpip) is_retransmission: bool,
}

impl Segment {
    /// Bytes of its header, with options.
    pub(in crate::tcpip) fn header_bytes(&self) -> usize {
        let times = if self.times.is_some() { Times::BYTES } else { 0 };
        let agreed = self.agreed.map_or(0, |agreed| agreed.bytes());
        TCP_BYTES + times + ranges_bytes(self.ranges_count) + agreed
    }
}

/// Bytes of the option that names so many ranges.
fn ranges_bytes(count: usize) -> usize {
    if count == 0 { 0 } else { 4 + 8 * count }
}

impl Tcb {
    /// Bytes of data in the longest segment to the other side, as far as it has said so.
    pub(super) fn segment_bytes(&self) -> u32 {
        u32::from(self.theirs.segment_bytes_max).max(SEGMENT_BYTES_MIN)
    }

    /// The data of a segment, in pieces.
    pub(in crate::tcpip) fn data(&self, segment: &Segment) -> impl Iterator<Item = &[u8]> {
        self.sent.pieces(segment.at, segment.data_bytes)
    }

    /// Does what is due.
    pub(in crate::tcpip) fn tick(&mut self, now: u64) {
        self.must_acknowledge |= self.acknowledge_at.take_due(now);
        if self.detect_at.take_due(now) {
            let flight = self.scoreboard.flight(self.una, self.nxt);
            if self.detect(now) {
                self.begin_recovery(flight);
            }
        }
        if self.tail_probe_at.take_due(now)
            && self.nxt != self.una
            && !self.scoreboard.has_selected()
        {
            // No time runs out before that.
            self.must_probe_tail = true;
            return;
        }
        if !self.resend_at.take_due(now) {
            return;
        }
        self.backoff = self.backoff.saturating_add(1);
        if self.nxt == self.una {
            self.must_probe = true;
            return;
        }
        self.time_out(now);
    }

    /// When [`Tcb::tick`] has something to do.
    pub(in crate::tcpip) fn due(&self) -> Option<u64> {
        let pace_at = self.pacer.as_ref().and_then(|pacer| pacer.waits_until);
        let timers = [self.resend_at, self.acknowledge_at, self.detect_at, self.tail_probe_at];
        timers.into_iter().filter_map(Timer::at).chain(pace_at).min()
    }

    /// The way out is full: no time runs out meanwhile.
    pub(in crate::tcpip) fn postpone(&mut self, now: u64) {
        if let Some(at) = self.resend_at.at() {
            self.resend_at.set(at.max(now.saturating_add(self.timeout())));
            if self.tail_probe_at.is_set() {
                self.arm_tail_probe(now);
            }
        }
    }

    /// Has what is under way sent again after a while, if it is not so already.
    pub(super) fn arm(&mut self, now: u64) {
        if self.nxt != self.una && !self.resend_at.is_set() {
            self.resend_at.set(now.saturating_add(self.timeout()));
        }
    }

    fn timeout(&self) -> u64 {
        let may_be_delayed = self.nxt.wrapping_sub(self.una) <= self.segment_bytes();
        self.round_trip.timeout(self.resend_after_ns, may_be_delayed, self.backoff)
    }

    /// The next segment, in packets within these limits. It counts as sent. None: nothing is to be sent now.
    pub(in crate::tcpip) fn next_segment(
        &mut self,
        now: u64,
        limits: Limits,
        config: &TcpConfig,
    ) -> Option<Segment> {
        match self.state {
            State::Closed => {
                let must_reset = std::mem::take(&mut self.must_reset);
                must_reset.then(|| self.bare(now, RST | ACK))
            }
            State::SynSent | State::SynReceived => self.next_first(now, limits.mtu, config),
            _ => self.next_data(now, limits),
        }
    }

    /// A segment without data.
    fn bare(&mut self, now: u64, flags: u8) -> Segment {
        let window = self.offer();
        self.note_acknowledged();
        Segment {
            times: self.times(now),
            flags,
            sequence: self.nxt,
            acknowledgement: self.expected,
            window,
            ..Segment::default()
        }
    }

    fn next_first(&mut self, now: u64, mtu: usize, config: &TcpConfig) -> Option<Segment> {
        let is_lost = self.scoreboard.has_lost();
        if self.nxt != self.una && !is_lost {
            let must_acknowledge = self.must_acknowledge && self.state == State::SynReceived;
            return must_acknowledge.then(|| self.bare(now, ACK));
        }
        let next = self.una.wrapping_add(1);
        match is_lost {
            true => self.scoreboard.resend(self.una, (self.una, next), now),
            false => self.scoreboard.push(next, now),
        }
        self.nxt = next;
        self.arm(now);
        let is_answer = self.state == State::SynReceived;
        let agreed = match is_answer {
            true => config.agreed(mtu, self.is_v4, &self.theirs),
            false => config.wishes(mtu, self.is_v4),
        };
        let window = config.first_window();
        if is_answer {
            let edge = self.expected.wrapping_add(window.into());
            self.edge = if is_before(self.edge, edge) { edge } else { self.edge };
            self.note_acknowledged();
        }
        Some(Segment {
            flags: if is_answer { SYN | ACK } else { SYN },
            sequence: self.una,
            acknowledgement: if is_answer { self.expected } else { 0 },
            window,
            agreed: Some(agreed),
            times: self.times(now),
            ..Segment::default()
        })
    }

    fn next_data(&mut self, now: u64, limits: Limits) -> Option<Segment> {
        let mut segment = Segment::default();
        if let Some(pacer) = &mut self.pacer {
            pacer.waits_until = None;
        }
        self.name_ranges(&mut segment);
        let times = if self.stamps.is_some() { Times::BYTES } else { 0 };
        let options = ranges_bytes(segment.ranges_count) + times;
        let on_the_way =
            usize::from(super::segment_bytes(limits.mtu, self.is_v4)).saturating_sub(options);
        let mss = (self.segment_bytes() as usize).saturating_sub(options).min(on_the_way).max(1);
        // No more segments than a frame may stand for, and no more bytes than it may have.
        let bytes_max =
            usize::from(u16::MAX) - packet::IPV6_BYTES - TCP_BYTES - packet::TCP_OPTIONS_BYTES_MAX;
        let mss = mss.min(bytes_max);
        let bytes_max = bytes_max.min(mss * limits.segments_max);
        if self.nxt == self.una && now.saturating_sub(self.sent_at) > self.timeout() {
            self.congestion.restart(mss as u32);
        }
        let room = self.congestion.bytes();
        let flight = self.scoreboard.flight(self.una, self.nxt);
        // Each that says the same again has got a segment.
        let come = match self.recovery {
            Recovery::Fast(_) if !self.theirs.takes_selective => {
                u32::from(self.repeated) * mss as u32
            }
            _ => 0,
        };
        let flight = flight.saturating_sub(come);
        let room = if flight == 0 { room.max(mss as u32) } else { room.saturating_sub(flight) };

        let has_room = |(begin, end): &(u32, u32)| {
            room as usize >= mss.min(end.wrapping_sub(*begin) as usize) || self.must_resend
        };
        let lost = self.scoreboard.first_lost(self.una).filter(has_room);
        let range = match lost {
            Some((begin, end)) => {
                // The end may be among what is lost.
                let has_end = self.is_ended && is_before(self.end(), end);
                let end = if has_end { self.end() } else { end };
                let bytes = end.wrapping_sub(begin) as usize;
                let whole = (room as usize / mss).max(1) * mss;
                Some((begin, bytes.min(whole).min(bytes_max)))
            }
            None => {
                let new = self.new_data(room as usize, mss, bytes_max);
                new.and_then(|bytes| self.pace(now, bytes, mss)).map(|bytes| (self.nxt, bytes))
            }
        };
        let left = self.end().wrapping_sub(self.nxt);
        if !self.has_sent_end() && room < left && room < self.window_left() {
            self.limited_until = self.nxt.wrapping_add(room.min(i32::MAX as u32));
        } else if self.scoreboard.has_lost() {
            // So it is while what is lost waits to go again.
            self.limited_until = self.nxt;
        }
        let is_tail_due = std::mem::take(&mut self.must_probe_tail);
        let probes_tail = is_tail_due && range.is_none();
        let probe = self.probe(range.is_none(), mss);
        let (sequence, bytes, is_retransmission) = match (range, probe) {
            (Some((sequence, bytes)), _) => (sequence, bytes, lost.is_some()),
            (None, _) if probes_tail => self.tail_probe_range(mss),
            (None, Some(bytes)) => (self.nxt, bytes, false),
            (None, None) => {
                self.ask_later(now);
                let may_say = self.must_acknowledge;
                return may_say.then(|| self.with_ranges(now, segment));
            }
        };
        let behind = sequence.wrapping_add(bytes as u32);
        let has_end =
            self.is_ended && behind == self.end() && is_retransmission == self.has_sent_end();
        let end = behind.wrapping_add(u32::from(has_end));
        segment.is_retransmission = is_retransmission && bytes > 0;
        if is_retransmission {
            self.scoreboard.resend(self.una, (sequence, end), now);
            let segments = bytes.div_ceil(mss) as u32;
            self.resent = self.resent.saturating_add(segments);
            self.must_resend = false;
            if lost.is_some() {
                self.note_retransmission(now, (sequence, end));
                if sequence == self.una {
                    // Its answer takes as long as any other's.
                    self.resend_at.clear();
                }
            }
        } else if range.is_none() && !probes_tail && bytes == 1 && self.window_left() == 0 {
            // A byte beyond a closed window, which is not counted as sent: it will hardly be taken.
            self.has_probed = true;
            segment.is_retransmission = true;
        } else {
            if self.nxt == self.una {
                // It was the time to ask after a window.
                self.resend_at.clear();
            }
            self.has_probed = false;
            self.scoreboard.push(end, now);
            self.nxt = end;
        }
        self.sent_at = now;
        // What is new asks for it, too.
        if probes_tail || is_tail_due && !is_retransmission {
            self.note_tail_probe(now, is_retransmission, self.timeout());
        }
        self.arm(now);
        if !is_retransmission {
            self.arm_tail_probe(now);
        }
        let bare = self.with_ranges(now, segment);
        let is_last = behind == self.end();
        Some(Segment {
            flags: ACK | if has_end { FIN } else { 0 } | if is_last { PSH } else { 0 },
            sequence,
            at: sequence.wrapping_sub(self.base) as usize,
            data_bytes: bytes,
            segment_bytes: mss,
            ..bare
        })
    }

    fn with_ranges(&mut self, now: u64, with: Segment) -> Segment {
        let Segment { ranges, ranges_count, is_retransmission, .. } = with;
        Segment { ranges, ranges_count, is_retransmission, ..self.bare(now, ACK) }
    }

    /// Bytes that the other side takes beyond what was sent.
    pub(super) fn window_left(&self) -> u32 {
        self.window.saturating_sub(self.nxt.wrapping_sub(self.una))
    }

    /// How many bytes that were never sent go now, and whether they are worth a segment (RFC 9293 3.7.4, 3.8.6.2.1). None:
    /// nothing goes, not even the end.
    fn new_data(&self, room: usize, mss: usize, bytes_max: usize) -> Option<usize> {
        if self.has_sent_end() {
            return None;
        }
        let left = self.end().wrapping_sub(self.nxt) as usize;
        if left == 0 {
            return self.is_ended.then_some(0);
        }
        if self.scoreboard.is_full() {
            return None;
        }
        let window = self.window_left() as usize;
        let bytes = left.min(window).min(room).min(bytes_max);
        let is_all = bytes == left;
        let is_idle = self.nxt == self.una;
        let tail = bytes % mss;
        let may_be_short = match is_all {
            true => self.is_ended || self.has_no_delay || is_idle && bytes < mss,
            false if bytes == window => self.has_no_delay || bytes >= self.window_max as usize / 2,
            false => false,
        };
        let bytes = if may_be_short { bytes } else { bytes - tail };
        (bytes > 0).then_some(bytes)
    }

    /// How many of these bytes, which were never sent, go now.
    fn pace(&mut self, now: u64, bytes: usize, mss: usize) -> Option<usize> {
        let rate = self.rate().filter(|_| bytes > 0);
        let Some((pacer, rate)) = self.pacer.as_mut().zip(rate) else { return Some(bytes) };
        let allowed = pacer.allow(now, bytes, mss, rate);
        pacer.note(now, allowed, rate);
        (allowed > 0).then_some(allowed)
    }

    /// How fast to send where that is spread: a little more than may be under way in a round trip, and twice that as long as the
    /// window doubles in one.
    fn rate(&self) -> Option<Rate> {
        let (window, time) = (u64::from(self.congestion.bytes()), self.round_trip.smoothed);
        let bytes = if self.congestion.is_starting() { 2 * window } else { window + window / 4 };
        let is_known = window > 0 && window < u32::MAX.into() && time >= SHORTEST_NS;
        is_known.then_some(Rate { bytes, time_ns: time })
    }

    /// How many bytes are sent because it is time to ask whether there is room (RFC 9293 3.8.6.1): what there is room for, or
    /// one byte.
    fn probe(&mut self, is_stuck: bool, mss: usize) -> Option<usize> {
        if !std::mem::take(&mut self.must_probe) || !is_stuck || self.has_sent_end() {
            return None;
        }
        let left = self.end().wrapping_sub(self.nxt);
        // No more than fits beside the options that this segment has.
        let bytes = left.min(self.window_left().max(1)).min(mss as u32);
        (bytes > 0).then_some(bytes as usize)
    }

    /// If bytes wait for a window and nothing is under way, nobody would say when it opens: so it is asked.
    fn ask_later(&mut self, now: u64) {
        if self.nxt == self.una && self.sent.len() > 0 && !self.resend_at.is_set() {
            self.resend_at.set(now.saturating_add(self.timeout()));
        }
    }

    /// Names what has come behind a gap, to a side that wants to know: what has come last first (RFC 2018 4).
    fn name_ranges(&self, segment: &mut Segment) {
        let (duplicate, beyond) = (self.duplicate, &self.beyond);
        if beyond.is_empty() && duplicate.is_none() || !self.theirs.takes_selective {
            return;
        }
        let most = RANGES_MAX - usize::from(self.stamps.is_some());
        let is_latest = |range: &&(u32, u32)| {
            !is_before(self.latest, range.0) && is_before(self.latest, range.1)
        };
        let latest = self.beyond.iter().find(is_latest);
        let others = self.beyond.iter().filter(|range| !is_latest(range));
        let named = duplicate.iter().chain(latest).chain(others);
        for (place, range) in segment.ranges[..most].iter_mut().zip(named) {
            *place = *range;
            segment.ranges_count += 1;
        }
    }
}
