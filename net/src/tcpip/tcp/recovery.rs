//! Recovery of lost data: detection, retransmission, tail loss probes, and taking back what was done about a loss that was none.

use super::round_trip::DELAY_NS;
use super::scoreboard::News;
use super::*;

/// How often the same is acknowledged again before something is taken for lost (RFC 5681 3.2).
const REPEATED_MAX: u8 = 3;

/// The shortest time after which the tail is probed: a side may just be late.
const TAIL_PROBE_NS_MIN: u64 = 2_000_000;

/// Quarters of a round trip that pieces may be late, and for how many recoveries that is remembered (RFC 8985 6.2, step 4).
const QUARTERS_MAX: u8 = 16;
const REMEMBERED: u8 = 16;

/// Ranges that went again and are told apart: where there are more, nothing is taken back.
const UNCONFIRMED_MAX: usize = 64;

/// A tail loss probe that was sent, and not answered yet (RFC 8985 7).
#[derive(Clone, Copy, Debug)]
pub(super) struct TailProbe {
    end: u32,
    /// Set if its data had been sent before.
    is_retransmission: bool,
}

/// The state before something was taken for lost. It comes back if all of that had only been late (RFC 3522, 3708, 4015).
#[derive(Clone, Debug)]
pub(super) struct Undo {
    window: Window,
    /// The recovery is over. What is acknowledged beyond this number says nothing of it any more.
    until: Option<u32>,
    /// Ranges that were sent again, and of which nobody has said that they have come twice (RFC 3708 2).
    unconfirmed: Vec<(u32, u32)>,
    /// Our clock when the first was sent again.
    first_again: Option<u32>,
    /// Something was acknowledged after that (RFC 3522 3.2, RFC 5682 2.1).
    is_answered: bool,
}

/// How late pieces may come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reordering {
    /// Further quarters of the least round trip, beside the first.
    quarters: u8,
    /// Recoveries until that is forgotten.
    remembered: u8,
    /// No more is learned before this number is acknowledged.
    until: u32,
}

impl Reordering {
    /// Nothing is learned yet, by a connection whose numbers begin here.
    pub(super) fn new(first: u32) -> Reordering {
        Reordering { quarters: 0, remembered: 0, until: first }
    }
}

impl Undo {
    /// Takes note of a range that has come twice. Returns true if by that all has that was sent again.
    fn confirm(&mut self, (begin, end): (u32, u32)) -> bool {
        let is_in = |&(first, last): &(u32, u32)| is_before(first, end) && is_before(begin, last);
        let Some(at) = self.unconfirmed.iter().position(is_in) else { return false };
        let (first, last) = self.unconfirmed.swap_remove(at);
        let rests = [(first, begin), (end, last)].into_iter();
        self.unconfirmed.extend(rests.filter(|(begin, end)| is_before(*begin, *end)));
        self.unconfirmed.is_empty()
    }
}

/// An acknowledgement, beside its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckInfo {
    pub(super) is_news: bool,
    pub(super) is_repeated: bool,
    pub(super) news: News,
    /// The range that has come twice (RFC 2883).
    pub(super) duplicate: Option<(u32, u32)>,
    /// Our clock when that was sent which is acknowledged (RFC 7323 4.1).
    pub(super) echoed: Option<u32>,
    /// Set if our clock may have shown that.
    pub(super) is_echo_known: bool,
    /// Bytes that were under way.
    pub(super) flight: u32,
}

impl Tcb {
    /// Finds out what is lost, and how long it is sent again.
    pub(super) fn recover(&mut self, now: u64, ack: &AckInfo) {
        self.note_tail_probe_answer(ack);
        self.widen_reordering_window(ack);
        self.undo_if_late(ack);
        let mss = self.segment_bytes();
        match self.recovery {
            Recovery::Fast(until) | Recovery::Timeout(until) if !is_before(self.una, until) => {
                self.recovery = Recovery::None;
                if let Some(undo) = &mut self.undo {
                    undo.until = Some(self.nxt);
                }
                self.reordering.remembered = self.reordering.remembered.saturating_sub(1);
                if self.reordering.remembered == 0 {
                    self.reordering.quarters = 0;
                }
            }
            // What is acknowledged in part is missing behind that, too (RFC 6582 3.2).
            Recovery::Fast(_) if ack.is_news && !self.theirs.takes_selective => {
                self.scoreboard.lose_first(self.una, mss);
                self.must_resend = true;
            }
            _ => {}
        }
        if ack.is_repeated {
            self.repeated = self.repeated.saturating_add(1);
        }
        let is_after_timeout = matches!(self.recovery, Recovery::Timeout(_)) && ack.is_news;
        if self.theirs.takes_selective {
            if self.scoreboard.has_selected() || is_after_timeout {
                self.detect(now);
            }
        } else if self.repeated == REPEATED_MAX && self.recovery == Recovery::None {
            self.scoreboard.lose_first(self.una, mss);
        }
        // Also by what was lost of that which was sent during the last recovery (RFC 6675 5).
        if self.scoreboard.has_lost() {
            self.begin_recovery(ack.flight);
        }
    }

    /// Something is lost: less is sent at once, and what is lost goes first.
    pub(super) fn begin_recovery(&mut self, flight: u32) {
        if self.recovery == Recovery::None {
            self.remember();
            self.recovery = Recovery::Fast(self.nxt);
            self.congestion.shrink(flight, self.segment_bytes());
            self.must_resend = true;
        }
    }

    /// Nothing has come for too long (RFC 6298 5.4 to 5.7, RFC 8985 6.3).
    pub(super) fn time_out(&mut self, now: u64) {
        let flight = self.scoreboard.flight(self.una, self.nxt);
        match self.theirs.takes_selective {
            true => self.scoreboard.lose_late(
                self.una,
                now,
                self.round_trip.smoothed + self.reordering_window_ns(),
            ),
            false => self.scoreboard.lose_all(self.una),
        }
        self.repeated = 0;
        self.detect_at.clear();
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return;
        }
        if self.recovery == Recovery::None {
            self.remember();
        }
        // A second time in vain is no other congestion, but nothing is known of the way any more (RFC 5681 3.1).
        match self.recovery {
            Recovery::Timeout(_) => self.congestion.begin_anew(self.segment_bytes()),
            _ => self.congestion.collapse(flight, self.segment_bytes()),
        }
        self.recovery = Recovery::Timeout(self.nxt);
        self.must_resend = true;
    }

    fn remember(&mut self) {
        self.undo = Some(Box::new(Undo {
            window: self.congestion.clone(),
            until: None,
            unconfirmed: Vec::new(),
            first_again: None,
            is_answered: false,
        }));
        if let Some(start) = &mut self.slow_start {
            **start = SlowStart::default();
        }
        (self.tail_probe, self.must_probe_tail) = (None, false);
        self.tail_probe_at.clear();
    }

    /// Bytes that were taken for lost go again.
    pub(super) fn note_retransmission(&mut self, now: u64, (begin, end): (u32, u32)) {
        let clock = self.stamps.as_ref().map_or(0, |stamps| stamps.clock(now));
        let Some(undo) = &mut self.undo else { return };
        undo.first_again.get_or_insert(clock);
        let count = undo.unconfirmed.len();
        match undo.unconfirmed.last_mut() {
            Some((_, last)) if *last == begin => *last = end,
            _ if count < UNCONFIRMED_MAX => undo.unconfirmed.push((begin, end)),
            _ => self.undo = None,
        }
    }

    /// Takes for lost what is late (RFC 8985 6.2). Whether there is something new.
    pub(super) fn detect(&mut self, now: u64) -> bool {
        let is_plain = !self.scoreboard.is_reordered
            && (self.recovery != Recovery::None || self.repeated >= REPEATED_MAX);
        let window_ns = if is_plain { 0 } else { self.reordering_window_ns() };
        let (has_lost, again) = self.scoreboard.detect(self.una, now, window_ns);
        self.detect_at.clear();
        if let Some(again) = again {
            self.detect_at.set(again);
        }
        has_lost
    }

    /// The reordering window: for how long pieces may overtake each other.
    fn reordering_window_ns(&self) -> u64 {
        let RoundTrip { smoothed, least, .. } = self.round_trip;
        smoothed.min(least / 4 * (1 + u64::from(self.reordering.quarters)))
    }

    /// Widens the reordering window when a range has come twice: it was late, and not lost (RFC 8985 6.2, step 4).
    fn widen_reordering_window(&mut self, ack: &AckInfo) {
        let Reordering { quarters, remembered, until } = &mut self.reordering;
        if is_before(self.una, *until) {
            return;
        }
        // It must not lie ahead again by numbers that come round.
        *until = self.una;
        if ack.duplicate.is_none() {
            return;
        }
        *quarters = (*quarters + 1).min(QUARTERS_MAX);
        (*remembered, *until) = (REMEMBERED, self.nxt);
    }

    /// Takes back what was done about a loss, if there was none.
    fn undo_if_late(&mut self, ack: &AckInfo) {
        let Some(undo) = &mut self.undo else { return };
        if undo.until.is_some_and(|until| is_before(until, self.una)) {
            self.undo = None;
            return;
        }
        if ack.duplicate.is_some_and(|range| undo.confirm(range)) {
            return self.take_back();
        }
        let is_over = undo.until.is_some();
        let is_first = ack.is_news && undo.first_again.is_some() && !undo.is_answered;
        undo.is_answered |= is_first;
        let is_late = match (undo.first_again, ack.echoed) {
            // All that was missing has come before anything went again.
            (None, _) => !self.scoreboard.has_lost(),
            // What has come was sent before that, and not long before.
            (Some(again), Some(echoed)) => {
                is_first && ack.is_echo_known && is_before(echoed, again)
            }
            // What was sent once has come behind what went again: by itself (RFC 5682 3). The first acknowledgement says nothing, because
            // it stands for all that had come but for what was lost.
            (Some(_), None) => match self.recovery {
                Recovery::Timeout(until) => {
                    !is_first && ack.news.late > 0 && is_before(self.una, until)
                }
                _ => false,
            },
        };
        if is_late && !is_over {
            self.take_back();
        }
    }

    fn take_back(&mut self) {
        if let Some(undo) = self.undo.take() {
            self.scoreboard.mark_none_lost();
            self.congestion = undo.window.or_more(self.congestion.bytes());
            self.recovery = Recovery::None;
            self.backoff = 0;
            self.must_resend = false;
        }
    }

    /// Sets when to probe the tail (RFC 8985 7.2).
    pub(super) fn arm_tail_probe(&mut self, now: u64) {
        self.tail_probe_at.clear();
        let RoundTrip { smoothed, .. } = self.round_trip;
        let Some(resend_at) = self.resend_at.at() else { return };
        if !self.theirs.takes_selective
            || self.recovery != Recovery::None
            || self.tail_probe.is_some()
            || self.scoreboard.has_selected()
            || smoothed == 0
            // A retransmission comes as soon as a probe would.
            || self.resend_after_ns <= TAIL_PROBE_NS_MIN
        {
            return;
        }
        let is_one = self.nxt.wrapping_sub(self.una) <= self.segment_bytes();
        let delay = if is_one { DELAY_NS } else { 0 };
        let at = now.saturating_add((2 * smoothed).max(TAIL_PROBE_NS_MIN) + delay);
        self.tail_probe_at.set(at.min(resend_at));
    }

    /// Returns the data of a tail loss probe: what was never sent, or the last segment again (RFC 8985 7.3). Its number, its
    /// bytes, and whether it was sent before.
    pub(super) fn tail_probe_range(&self, mss: usize) -> (u32, usize, bool) {
        let end = if self.has_sent_end() { self.end() } else { self.nxt };
        let new = self.end().wrapping_sub(end).min(self.window_left()) as usize;
        if new > 0 && !self.has_sent_end() {
            return (self.nxt, new.min(mss), false);
        }
        let bytes = (end.wrapping_sub(self.una) as i32).max(0) as usize;
        let bytes = bytes.min(mss);
        (end.wrapping_sub(bytes as u32), bytes, true)
    }

    /// Takes note that a tail loss probe was sent.
    pub(super) fn note_tail_probe(&mut self, now: u64, is_retransmission: bool, timeout: u64) {
        self.tail_probe = Some(TailProbe { end: self.nxt, is_retransmission });
        self.tail_probe_at.clear();
        self.resend_at.set(now.saturating_add(timeout));
    }

    /// Finds out from an acknowledgement whether the tail was lost (RFC 8985 7.4).
    fn note_tail_probe_answer(&mut self, ack: &AckInfo) {
        let Some(TailProbe { end, is_retransmission }) = self.tail_probe else { return };
        if is_before(self.una, end) {
            return;
        }
        let is_beyond = self.una != end;
        let has_come_once = is_retransmission && ack.duplicate.is_none() && is_beyond;
        if !is_retransmission || ack.duplicate.is_some() || is_beyond || !ack.is_news {
            self.tail_probe = None;
        }
        if has_come_once && self.recovery == Recovery::None {
            // It was lost, and has come by this.
            self.congestion.shrink(ack.flight, self.segment_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
