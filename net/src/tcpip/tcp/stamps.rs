//! The times that segments carry (RFC 7323 3 to 5): what is too old to be of this connection's now is told by them.

use crate::tcpip::packet::{self, TIME_STEP_NS as STEP_NS, Times};

use super::is_before;

/// Nobody waits longer for an acknowledgement.
const STEPS_MAX: u64 = 60_000;

/// For how long the last time that was taken note of says what is old (RFC 7323 5.5).
const GOOD_NS: u64 = 24 * 24 * 3600 * 1_000_000_000;

/// The times of a connection: its own clock, and the last time of the other side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    /// Where our clock has begun: nobody learns from it for how long the machine runs.
    offset: u32,
    /// The other side's last time (TS.Recent), and when it came.
    recent: u32,
    recent_at: u64,
}

impl Stamps {
    pub(super) fn new(offset: u32) -> Stamps {
        Stamps { offset, recent: 0, recent_at: 0 }
    }

    /// Our clock.
    pub(super) fn clock(&self, now: u64) -> u32 {
        packet::clock(now, self.offset)
    }

    /// The times of a segment that is sent now.
    pub(super) fn say(&self, now: u64) -> Times {
        Times { value: self.clock(now), echoed: self.recent }
    }

    /// For how long ago our clock showed this. None if it was not long ago enough to say, or is no time of ours.
    pub(super) fn since(&self, now: u64, clock: u32) -> Option<u64> {
        let steps = u64::from(self.clock(now).wrapping_sub(clock));
        (1..=STEPS_MAX).contains(&steps).then_some(steps * STEP_NS)
    }

    /// Takes note of the other side's time.
    pub(super) fn hear(&mut self, now: u64, value: u32) {
        (self.recent, self.recent_at) = (value, now);
    }

    /// Returns true if a time is before the last that was taken note of (RFC 7323 5.3, R1).
    pub(super) fn is_old(&self, now: u64, value: u32) -> bool {
        is_before(value, self.recent) && now.saturating_sub(self.recent_at) < GOOD_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_not_ours_measures_nothing() {
        let stamps = Stamps::new(7);
        let clock = stamps.clock(5 * STEP_NS);
        assert_eq!(stamps.since(8 * STEP_NS, clock), Some(3 * STEP_NS));
        assert_eq!(stamps.since(5 * STEP_NS, clock), None);
        assert_eq!(stamps.since(5 * STEP_NS, clock + 1), None);
    }

    #[test]
    fn what_is_before_the_last_time_is_old_for_24_days() {
        let mut stamps = Stamps::new(u32::MAX);
        assert_eq!(stamps.say(2 * STEP_NS), Times { value: 1, echoed: 0 });
        stamps.hear(5, 10);
        assert!(stamps.is_old(5, 9) && !stamps.is_old(5, 10) && !stamps.is_old(5, 11));
        assert!(!stamps.is_old(5 + GOOD_NS, 9));
        stamps.hear(6, u32::MAX);
        assert!(!stamps.is_old(7, 3), "it has come round");
    }
}
