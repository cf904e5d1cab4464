//! How long the other side takes to acknowledge, and how long to wait before a segment is sent again (RFC 6298).

/// How long to wait before anything was measured (RFC 6298 2.1).
const FIRST_NS: u64 = 1_000_000_000;

/// The same for data, where a first segment had to be sent again (RFC 6298 5.7).
const FIRST_DATA_NS: u64 = 3_000_000_000;

/// The longest time to wait (RFC 6298 2.5).
const LONGEST_NS: u64 = 60_000_000_000;

/// The longest that a side which has got one segment may wait with its acknowledgement (RFC 8985 7.2).
pub(super) const DELAY_NS: u64 = 200_000_000;

/// Times in nanoseconds, smoothed. All are 0 before the first measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    pub(super) smoothed: u64,
    variation: u64,
    pub(super) least: u64,
    /// A first segment of ours had to be sent again.
    pub(super) is_first_resent: bool,
    /// What is known is of the first segment, which may have waited for more than the way there and back: for the neighbour's address, for a carrier, for a listener.
    is_of_first: bool,
}

impl RoundTrip {
    /// Takes note of how long the first segment has taken.
    pub(super) fn sample_first(&mut self, time: u64) {
        self.sample(time);
        self.is_of_first = true;
    }

    /// Takes note of how long one segment has taken, that was sent once (RFC 6298 2.2, 2.3). The first of data takes the place of the first segment if it was much
    /// quicker: a second that was waited for a carrier would go out of the average so slowly that a window were spread over it for many round trips.
    pub(super) fn sample(&mut self, time: u64) {
        let time = time.max(1);
        let is_of_other_wait = std::mem::take(&mut self.is_of_first) && time < self.smoothed / 4;
        if self.smoothed == 0 || is_of_other_wait {
            (self.smoothed, self.variation, self.least) = (time, time / 2, time);
            return;
        }
        self.variation = self.variation - self.variation / 4 + self.smoothed.abs_diff(time) / 4;
        self.smoothed = self.smoothed - self.smoothed / 8 + time / 8;
        self.least = self.least.min(time);
    }

    /// How long to wait for an acknowledgement: `least` longer than a round trip at least, as Linux waits, because a way that never varied until now
    /// may vary by as much as any other; and longer where the other side may wait with it, or after `backoff` times in vain (RFC 6298 5.5).
    pub(super) fn timeout(&self, least: u64, may_be_delayed: bool, backoff: u8) -> u64 {
        let delay = if may_be_delayed { DELAY_NS } else { 0 };
        let time = match self.smoothed {
            0 if self.is_first_resent => FIRST_DATA_NS,
            0 => FIRST_NS,
            smoothed => smoothed + (4 * self.variation).max(least).max(delay),
        };
        (time.max(least) << backoff.min(16)).min(LONGEST_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn time_to_wait_follows_what_was_measured() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.timeout(MILLISECOND, false, 0), FIRST_NS);
        round_trip.sample(10 * MILLISECOND);
        // RFC 6298 2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
        assert_eq!(round_trip.timeout(MILLISECOND, false, 0), 30 * MILLISECOND);
        round_trip.sample(18 * MILLISECOND);
        // 2.3: RTTVAR = 3/4 * 5 + 1/4 * 8, SRTT = 7/8 * 10 + 1/8 * 18.
        assert_eq!((round_trip.variation, round_trip.smoothed), (5_750_000, 11_000_000));
        for _ in 0..100 {
            round_trip.sample(1000);
        }
        let smoothed = round_trip.smoothed;
        assert_eq!(round_trip.timeout(MILLISECOND, false, 0), smoothed + MILLISECOND);
        assert_eq!(round_trip.timeout(MILLISECOND, false, 3), 8 * (smoothed + MILLISECOND));
        let delayed = round_trip.timeout(MILLISECOND, true, 0);
        assert!((DELAY_NS..DELAY_NS + MILLISECOND).contains(&delayed), "{delayed}");
        assert_eq!(round_trip.timeout(MILLISECOND, true, 200), LONGEST_NS);
    }

    #[test]
    fn wait_of_the_first_segment_is_forgotten_if_data_are_much_quicker() {
        let mut round_trip = RoundTrip::default();
        round_trip.sample_first(1000 * MILLISECOND);
        assert_eq!(round_trip.timeout(MILLISECOND, false, 0), 3000 * MILLISECOND);
        round_trip.sample(10 * MILLISECOND);
        assert_eq!((round_trip.smoothed, round_trip.least), (10 * MILLISECOND, 10 * MILLISECOND));
        // Only the first of data, and only if it tells of another wait.
        round_trip.sample(MILLISECOND);
        assert!(round_trip.smoothed > 8 * MILLISECOND);
        let mut round_trip = RoundTrip::default();
        round_trip.sample_first(10 * MILLISECOND);
        round_trip.sample(8 * MILLISECOND);
        assert_eq!(round_trip.smoothed, 9_750_000);
    }
}
