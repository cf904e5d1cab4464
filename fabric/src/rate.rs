//! Rates: so many events in a second, and for a moment more.

/// The part of a second whose events may come at once.
const BURST_PER_S: u64 = 4;

/// How much of the rate an owner that had to wait has again before it goes on. Each time costs a wake-up, so what is to be done goes
/// in portions.
const PORTION_NS: u64 = 10_000_000;

/// So many events in a second. Time is an argument, in nanoseconds.
///
/// The bucket is the time at which it will be full again: each event moves that time on by one interval, and while it
/// lies more than a quarter of a second ahead, the next event has to wait. One that costs more than others makes the next wait longer.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// None if there is no limit.
    per_s: Option<u64>,
    full_ns: u64,
    /// How often an event has had to wait.
    put_off: u64,
    is_put_off: bool,
}

const SECOND_NS: u64 = 1_000_000_000;

impl TokenBucket {
    /// A full bucket. None is no limit.
    pub fn new(per_s: Option<u64>) -> TokenBucket {
        let per_s = per_s.map(|rate| rate.max(1));
        TokenBucket { per_s, full_ns: 0, put_off: 0, is_put_off: false }
    }

    /// Events in a second; none if there is no limit.
    pub fn per_s(&self) -> Option<u64> {
        self.per_s
    }

    fn interval_ns(&self) -> u64 {
        self.per_s.map_or(0, |rate| (SECOND_NS / rate).max(1))
    }

    /// How far ahead the bucket may be: at least by one event.
    fn burst_ns(&self) -> u64 {
        (SECOND_NS / BURST_PER_S).max(self.interval_ns())
    }

    /// When the next event may happen; none if now. After a wait there is room for a portion of events.
    pub fn due_ns(&self, at_ns: u64) -> Option<u64> {
        self.per_s?;
        let interval_ns = self.interval_ns();
        let room_ns = if self.is_put_off { interval_ns.max(PORTION_NS) } else { interval_ns };
        let due_ns = self.full_ns.saturating_add(room_ns).saturating_sub(self.burst_ns());
        (due_ns > at_ns).then_some(due_ns)
    }

    /// An event happens that costs as much as so many.
    pub fn take(&mut self, cost: u64, at_ns: u64) {
        self.is_put_off = false;
        let taken_ns = cost.saturating_mul(self.interval_ns());
        self.full_ns = self.full_ns.max(at_ns).saturating_add(taken_ns);
    }

    /// Counts that an event has to wait, if it has to: once for each wait.
    pub fn put_off(&mut self, at_ns: u64) {
        if !self.is_put_off && self.due_ns(at_ns).is_some() {
            (self.is_put_off, self.put_off) = (true, self.put_off + 1);
        }
    }

    /// How often events have had to wait.
    pub fn times_put_off(&self) -> u64 {
        self.put_off
    }

    /// Events that count still: at most those of a quarter of a second, and what the last has cost beyond.
    pub fn used(&self, at_ns: u64) -> u64 {
        let ahead_ns = self.full_ns.saturating_sub(at_ns);
        ahead_ns.checked_div(self.interval_ns()).unwrap_or(0)
    }

    /// When the bucket will be full again, or was.
    pub fn full_ns(&self) -> u64 {
        self.full_ns
    }

    /// A bucket of this rate that will be full at that time, as another process shows it.
    pub fn full_at(per_s: u64, full_ns: u64) -> TokenBucket {
        TokenBucket { full_ns, ..TokenBucket::new(Some(per_s)) }
    }

    /// Returns true if the bucket is full again: nothing taken earlier counts any more.
    pub fn is_full(&self, at_ns: u64) -> bool {
        self.full_ns <= at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets events happen as soon as each may, for ten seconds. Returns how many did, and when the last one had happened.
    fn events_of_ten_seconds(bucket: &mut TokenBucket, cost: u64) -> (u64, u64) {
        let (mut at_ns, mut events) = (5 * SECOND_NS, 0);
        let end_ns = at_ns + 10 * SECOND_NS;
        while at_ns < end_ns {
            match bucket.due_ns(at_ns) {
                None => {
                    bucket.take(cost, at_ns);
                    events += 1;
                }
                Some(due_ns) => {
                    bucket.put_off(at_ns);
                    bucket.put_off(at_ns);
                    at_ns = bucket.due_ns(at_ns).unwrap_or(due_ns);
                }
            }
        }
        (events, at_ns)
    }

    #[test]
    fn rate_is_exact_after_a_burst_and_goes_in_portions() {
        let mut bucket = TokenBucket::new(Some(1000));
        let (events, at_ns) = events_of_ten_seconds(&mut bucket, 1);
        assert_eq!(
            events,
            1000 / BURST_PER_S + 10 * 1000 - 10,
            "the last portion is due at the end"
        );
        assert_eq!(bucket.times_put_off(), 10 * 100, "ten at a time");
        assert!(!bucket.is_full(at_ns) && bucket.is_full(at_ns + SECOND_NS));
    }

    #[test]
    fn events_that_cost_more_are_fewer() {
        let mut bucket = TokenBucket::new(Some(1000));
        let (events, _) = events_of_ten_seconds(&mut bucket, 4);
        let most = (1000 / BURST_PER_S + 10 * 1000).div_ceil(4);
        assert!(events.abs_diff(most) <= 4, "{events} of {most}");
    }

    #[test]
    fn no_rate_is_no_limit_and_a_small_one_lets_one_through() {
        let mut bucket = TokenBucket::new(None);
        (0..100_000).for_each(|_| bucket.take(1, 1));
        assert_eq!((bucket.due_ns(1), bucket.used(1)), (None, 0));
        let mut bucket = TokenBucket::new(Some(1));
        assert_eq!(bucket.due_ns(7), None);
        bucket.take(1, 7);
        bucket.put_off(7);
        assert_eq!(bucket.due_ns(7), Some(7 + SECOND_NS));
        assert_eq!(bucket.due_ns(7 + SECOND_NS), None);
    }
}
