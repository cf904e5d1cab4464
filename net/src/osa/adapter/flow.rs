//! The flow of frames: whether they come so densely that the adapter looks by the clock, and nobody has to wake it up.
//!
//! A thread that sleeps at its doorbells costs its partner a system call for each sleep, and itself the way down and up. While frames come densely that is more
//! than the frames cost. So an adapter under load rests until a time, announces no sleep, and finds more when it looks.

/// The interval over which the flow is measured.
const WINDOW_NS: u64 = 200_000;

/// What a dense flow carries in a window, at least: two thirds of what a wire at 1 Gb/s does.
const DENSE_BYTES: u64 = 16 << 10;

/// What a frame counts beside its bytes, if no other goes the opposite way: short ones cost as much to move as longer ones. Of exchanges, in which each frame waits
/// for another, none counts so: a rest would make them slow, however dense they are.
const FRAME_BYTES: u64 = 1024;

/// The longest rest, and the longest at a wire that is quicker than what comes, whose flow waits for acknowledgements.
const REST_NS_MAX: u64 = 125_000;
const REST_NS_QUICK: u64 = 40_000;

/// What a wire carries in a rest.
const WIRE_BYTES: u64 = 16 << 10;

/// A rest is as short as these bytes take to come: whoever sends more is one that would be kept waiting.
const REST_BYTES: u64 = 32 << 10;

/// A shorter rest is not worth while.
const REST_NS_MIN: u64 = 20_000;

/// What has gone through the adapter of late.
#[derive(Debug, Default)]
pub(super) struct Flow {
    began_ns: u64,
    bytes: u64,
    /// Frames from the wire, and of guests.
    frames: [u64; 2],
    rest_ns: Option<u64>,
}

/// The longest rest at a wire of so many bits a second, if that is known: what comes over a slow one has waited for the wire, and not for acknowledgements that wait for a rest.
pub(super) fn longest_rest_ns(rate: Option<u64>) -> u64 {
    let takes =
        rate.map_or(0, |rate| u128::from(WIRE_BYTES) * 8 * 1_000_000_000 / u128::from(rate.max(1)));
    takes.clamp(REST_NS_QUICK.into(), REST_NS_MAX.into()) as u64
}

impl Flow {
    /// Takes note of what a poll has moved: frames from the wire, and of guests, and their bytes.
    pub(super) fn note(&mut self, now: u64, [received, sent]: [u64; 2], bytes: u64) {
        self.frames[0] += received;
        self.frames[1] += sent;
        self.bytes += bytes;
        // Whoever was away for longer has seen what came in all that time.
        let elapsed = now.saturating_sub(self.began_ns);
        if elapsed >= WINDOW_NS {
            let unanswered = self.frames[0].abs_diff(self.frames[1]);
            let weight = u128::from(self.bytes + FRAME_BYTES * unanswered);
            let is_dense =
                weight * u128::from(WINDOW_NS) >= u128::from(DENSE_BYTES) * u128::from(elapsed);
            let rest = u128::from(REST_BYTES) * u128::from(elapsed) / u128::from(self.bytes.max(1));
            let rest = rest.min(REST_NS_MAX.into()) as u64;
            self.rest_ns = (is_dense && rest >= REST_NS_MIN).then_some(rest);
            *self = Flow { began_ns: now, rest_ns: self.rest_ns, ..Flow::default() };
        }
    }

    /// How long the adapter rests after a poll, at most so long; none if it is to be woken up.
    pub(super) fn rest_ns(&self, most_ns: u64) -> Option<u64> {
        let rest = self.rest_ns?.min(most_ns);
        (rest > 0).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow of frames so long, one each so many nanoseconds, and what it makes of them.
    fn rest_of(bytes: u64, each_ns: u64) -> Option<u64> {
        rest_of_both(bytes, each_ns, |_| 0)
    }

    /// The same, each frame the way that `way` says.
    fn rest_of_both(bytes: u64, each_ns: u64, way: impl Fn(u64) -> usize) -> Option<u64> {
        let mut flow = Flow::default();
        let mut now = 1;
        for number in 0..10_000 {
            now += each_ns;
            let mut frames = [0; 2];
            frames[way(number)] = 1;
            flow.note(now, frames, bytes);
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
        // One each 5 us, by nobody's request.
        assert_eq!(rest_of(64, 5_000), Some(125_000));
        // The same, each in answer to the other.
        assert_eq!(rest_of_both(64, 5_000, |number| (number % 2) as usize), None);
        // A stream at 1 Gb/s whose every other segment is acknowledged, and one each way.
        let acknowledged = |number: u64| usize::from(number % 3 == 2);
        assert_eq!(rest_of_both(1514, 8_000, acknowledged), Some(125_000));
        assert_eq!(rest_of_both(1514, 6_000, |number| (number % 2) as usize), Some(125_000));
    }

    #[test]
    fn rest_is_the_shorter_the_more_comes_and_none_for_a_flood() {
        // 5 and 10 Gb/s, and 20.
        let rest_us = |each_ns| rest_of(9006, each_ns).map(|ns| ns / 1000);
        assert_eq!([rest_us(14_400), rest_us(7_200)], [Some(52), Some(26)]);
        assert_eq!(rest_of(9006, 3_600), None);
    }

    #[test]
    fn rest_is_long_at_a_slow_wire_alone() {
        assert_eq!(longest_rest_ns(None), 40_000);
        assert_eq!(longest_rest_ns(Some(10_000_000_000)), 40_000);
        assert_eq!(longest_rest_ns(Some(2_000_000_000)), 65_536);
        assert_eq!(longest_rest_ns(Some(1_000_000_000)), 125_000);
        assert_eq!(longest_rest_ns(Some(0)), 125_000);
    }

    #[test]
    fn rest_is_as_short_as_guests_want_it() {
        let mut flow = Flow::default();
        flow.note(1_000_000, [100, 0], 151_400);
        assert_eq!(flow.rest_ns(25_000), Some(25_000));
        assert_eq!(flow.rest_ns(0), None);
    }

    #[test]
    fn flow_that_ends_is_no_longer_dense() {
        let mut flow = Flow::default();
        flow.note(200_000, [20, 0], 30_280);
        assert!(flow.rest_ns(125_000).is_some());
        flow.note(300_000, [0, 0], 0);
        assert!(flow.rest_ns(125_000).is_some());
        flow.note(400_000, [0, 0], 0);
        assert_eq!(flow.rest_ns(125_000), None);
    }
}
