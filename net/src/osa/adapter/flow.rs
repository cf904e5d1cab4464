//! The flow of frames: whether they come so densely that the adapter looks by the clock, and nobody has to wake it up.
//!
//! A thread that sleeps at its doorbells costs its partner a system call for each sleep, and itself the way down and up. While frames come densely that is more
//! than the frames cost. So an adapter under load rests until a time, announces no sleep, and finds more when it looks.

/// The interval over which the flow is measured.
const WINDOW_NS: u64 = 200_000;

/// What a dense flow carries in a window, at least: two thirds of what a wire at 1 Gb/s does.
const DENSE_BYTES: u64 = 16 << 10;

/// What a frame counts beside its bytes: short ones cost as much to move as longer ones.
const FRAME_BYTES: u64 = 256;

/// The longest rest.
const REST_NS_MAX: u64 = 125_000;

/// What has gone through the adapter of late.
#[derive(Debug, Default)]
pub(super) struct Flow {
    began_ns: u64,
    weight: u64,
    is_dense: bool,
}

impl Flow {
    /// Takes note of what a poll has moved.
    pub(super) fn note(&mut self, now: u64, frames: u64, bytes: u64) {
        self.weight += bytes + FRAME_BYTES * frames;
        let elapsed = now.saturating_sub(self.began_ns);
        if elapsed >= WINDOW_NS {
            // Whoever was away for longer has seen what came in all that time.
            let least = u128::from(DENSE_BYTES) * u128::from(elapsed);
            self.is_dense = u128::from(self.weight) * u128::from(WINDOW_NS) >= least;
            (self.began_ns, self.weight) = (now, 0);
        }
    }

    /// How long the adapter rests after a poll, at most so long; none if it is to be woken up.
    pub(super) fn rest_ns(&self, most_ns: u64) -> Option<u64> {
        let rest = REST_NS_MAX.min(most_ns);
        (self.is_dense && rest > 0).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow of frames so long, one each so many nanoseconds, and what it makes of them.
    fn rest_of(bytes: u64, each_ns: u64) -> Option<u64> {
        let mut flow = Flow::default();
        let mut now = 1;
        for _ in 0..1000 {
            now += each_ns;
            flow.note(now, 1, bytes);
        }
        flow.rest_ns(125_000)
    }

    #[test]
    fn streams_are_dense_and_exchanges_are_not() {
        assert_eq!(rest_of(1514, 12_304), Some(125_000));
        assert_eq!(rest_of(9006, 72_240), Some(125_000));
        assert_eq!(rest_of(64, 1_000), Some(125_000));
        // One frame each way in 30 us.
        assert_eq!(rest_of(64, 15_000), None);
        assert_eq!(rest_of(1514, 200_000), None);
    }

    #[test]
    fn rest_is_as_short_as_guests_want_it() {
        let mut flow = Flow::default();
        flow.note(1_000_000, 1000, 1_514_000);
        assert_eq!(flow.rest_ns(25_000), Some(25_000));
        assert_eq!(flow.rest_ns(0), None);
    }

    #[test]
    fn flow_that_ends_is_no_longer_dense() {
        let mut flow = Flow::default();
        flow.note(200_000, 100, 151_400);
        assert!(flow.rest_ns(125_000).is_some());
        flow.note(300_000, 0, 0);
        assert!(flow.rest_ns(125_000).is_some());
        flow.note(400_000, 0, 0);
        assert_eq!(flow.rest_ns(125_000), None);
    }
}
