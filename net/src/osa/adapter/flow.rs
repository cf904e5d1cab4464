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

/// Windows in which the adapter stays awake after a rest that made a dense flow thin, at most. What becomes less by a rest has waited for the rest.
const AWAKE_WINDOWS_MAX: u32 = 256;

/// What has gone through the adapter of late.
#[derive(Debug, Default)]
pub(super) struct Flow {
    began_ns: u64,
    bytes: u64,
    /// Frames one way, and the other: what goes from guest to guest goes both.
    frames: [u64; 2],
    rest_ns: Option<u64>,
    /// It is dense by its frames and not by its bytes: no stream waits for acknowledgements.
    is_of_short: bool,
    /// Windows for which the adapter stays awake, and for how many it did so last.
    awake: u32,
    awake_before: u32,
}

/// The longest rest at a wire of so many bits a second, if that is known: what comes over a slow one has waited for the wire, and not for acknowledgements that
/// wait for a rest.
pub(super) fn longest_rest_ns(rate: Option<u64>) -> u64 {
    let takes =
        rate.map_or(0, |rate| u128::from(WIRE_BYTES) * 8 * 1_000_000_000 / u128::from(rate.max(1)));
    takes.clamp(REST_NS_QUICK.into(), REST_NS_MAX.into()) as u64
}

impl Flow {
    /// Takes note of what a poll has moved: frames one way and the other, and the bytes of all.
    pub(super) fn note(&mut self, now: u64, frames: [u64; 2], bytes: u64) {
        self.frames[0] += frames[0];
        self.frames[1] += frames[1];
        self.bytes += bytes;
        // Whoever was away for longer has seen what came in all that time.
        let elapsed = now.saturating_sub(self.began_ns);
        if elapsed >= WINDOW_NS {
            self.close(elapsed);
            self.began_ns = now;
            (self.bytes, self.frames) = (0, [0; 2]);
        }
    }

    /// A window is over.
    fn close(&mut self, elapsed: u64) {
        let unanswered = self.frames[0].abs_diff(self.frames[1]);
        let weight = u128::from(self.bytes + FRAME_BYTES * unanswered);
        let is_enough = |weight: u128| {
            weight * u128::from(WINDOW_NS) >= u128::from(DENSE_BYTES) * u128::from(elapsed)
        };
        let is_dense = is_enough(weight);
        self.is_of_short = is_dense && !is_enough(self.bytes.into());
        match (is_dense, self.rest_ns) {
            // It may have ended; if it is dense again, it has waited.
            (false, Some(_)) => {
                self.awake_before = (2 * self.awake_before).clamp(1, AWAKE_WINDOWS_MAX);
                self.awake = self.awake_before;
            }
            // It goes on though the adapter rests.
            (true, Some(_)) => self.awake_before /= 2,
            (_, None) => self.awake = self.awake.saturating_sub(1),
        }
        let rest = u128::from(REST_BYTES) * u128::from(elapsed) / u128::from(self.bytes.max(1));
        let rest = rest.min(REST_NS_MAX.into()) as u64;
        self.rest_ns = (is_dense && self.awake == 0).then_some(rest);
    }

    /// How long the adapter rests after a poll, at most so long as guests want and, of a stream, as the wire allows; none if it is to be woken up.
    pub(super) fn rest_ns(&self, most_ns: u64, longest_ns: u64) -> Option<u64> {
        let longest_ns = if self.is_of_short { REST_NS_MAX } else { longest_ns };
        let rest = self.rest_ns?.min(most_ns).min(longest_ns);
        (rest >= REST_NS_MIN).then_some(rest)
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
        flow.rest_ns(125_000, 125_000)
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
    fn short_frames_wait_for_nobody_however_quick_the_wire_is() {
        let rest_of = |bytes: u64, each_ns: u64| {
            let mut flow = Flow::default();
            (1..1000).for_each(|number| flow.note(number * each_ns, [1, 0], bytes));
            flow.rest_ns(125_000, 40_000)
        };
        assert_eq!([rest_of(64, 5_000), rest_of(1514, 6_000)], [Some(125_000), Some(40_000)]);
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
        assert_eq!(flow.rest_ns(25_000, 125_000), Some(25_000));
        // A shorter one costs more than staying awake.
        assert_eq!(flow.rest_ns(500, 125_000), None);
        assert_eq!(flow.rest_ns(0, 125_000), None);
    }

    #[test]
    fn exchange_that_a_rest_makes_thin_is_seldom_made_to_wait() {
        // Two frames of 1514 bytes in 30 us while the adapter is awake, and in 200 us while it rests.
        let mut flow = Flow::default();
        let (mut now, mut rested, mut exchanges) = (1, 0, 0);
        while now < 1_000_000_000 {
            let is_resting = flow.rest_ns(125_000, 125_000).is_some();
            now += if is_resting { 200_000 } else { 30_000 };
            rested += u64::from(is_resting);
            exchanges += 1;
            flow.note(now, [1, 1], 2 * 1514);
        }
        assert!(rested * 100 < exchanges, "{rested} of {exchanges}");
    }

    #[test]
    fn flow_that_ends_is_no_longer_dense() {
        let mut flow = Flow::default();
        flow.note(200_000, [20, 0], 30_280);
        assert!(flow.rest_ns(125_000, 125_000).is_some());
        flow.note(300_000, [0, 0], 0);
        assert!(flow.rest_ns(125_000, 125_000).is_some());
        flow.note(400_000, [0, 0], 0);
        assert_eq!(flow.rest_ns(125_000, 125_000), None);
    }
}
