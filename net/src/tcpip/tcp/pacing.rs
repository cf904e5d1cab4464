//! When the next segment goes where a network is a wire: what may be under way is spread over a round trip, so that a window that has
//! opened at once does not fill a queue on the way at once.

/// A shorter round trip is not spread: whoever is woken a little late would lose more by that than by a queue that is full.
pub(super) const SHORTEST_NS: u64 = 5_000_000;

/// At most as much goes together as would go in this part of a round trip. A sender that is late makes up for as much.
const PART: u64 = 4;

/// Segments that go together whatever the rate.
const SEGMENTS: usize = 2;

/// The next time to send, by the rate of what was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    next_ns: u64,
    /// Set while something waits for its time.
    pub(super) waits_until: Option<u64>,
}

impl Pacer {
    /// How many of these bytes go now, at so many bytes in a round trip. 0: see [`Pacer::waits_until`].
    pub(super) fn allow(&mut self, now: u64, bytes: usize, mss: usize, rate: Rate) -> usize {
        self.waits_until = None;
        let together_ns = rate.time_ns / PART;
        let left = now.saturating_add(together_ns).saturating_sub(self.next_ns);
        if left == 0 {
            // As long as it is worth to wake up for.
            self.waits_until = Some(self.next_ns - together_ns + together_ns / PART);
            return 0;
        }
        let most = rate.bytes(left.min(together_ns)).max(SEGMENTS * mss);
        bytes.min(most - most % mss)
    }

    /// So many bytes have gone.
    pub(super) fn note(&mut self, now: u64, bytes: usize, rate: Rate) {
        self.next_ns = self.next_ns.max(now).saturating_add(rate.time(bytes));
    }
}

/// So many bytes in so many nanoseconds, neither of which is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) bytes: u64,
    pub(super) time_ns: u64,
}

impl Rate {
    fn bytes(self, time: u64) -> usize {
        (u128::from(self.bytes) * u128::from(time) / u128::from(self.time_ns)) as usize
    }

    fn time(self, bytes: usize) -> u64 {
        (bytes as u128 * u128::from(self.time_ns) / u128::from(self.bytes)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_goes_in_a_round_trip() {
        let rate = Rate { bytes: 100_000, time_ns: 20_000_000 };
        let mut pacer = Pacer::default();
        let (mut now, mut sent) = (50_000_000, 0);
        let begun = now;
        while sent < 100_000 {
            let count = pacer.allow(now, 100_000 - sent, 1000, rate);
            assert!(count <= 25_000, "{count} bytes at once");
            match pacer.waits_until {
                None => {
                    pacer.note(now, count, rate);
                    sent += count;
                }
                Some(until) => {
                    assert!(until > now && count == 0);
                    now = until;
                }
            }
        }
        assert!((14_000_000..=20_000_000).contains(&(now - begun)), "{}", now - begun);
        // What was not sent before is not made up for.
        now += 1_000_000_000;
        assert_eq!(pacer.allow(now, 100_000, 1000, rate), 25_000);
    }
}
