//! Rates: so many in a second, and for a moment more.

/// The part of a second whose events may come at once.
const BURST_PER_S: u64 = 4;

/// So many events in a second. Time is an argument.
///
/// The bucket is the time at which it will be full again: each event moves that time on by one interval, and while it
/// lies more than the burst ahead, the next event has to wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// None if there is no limit.
    per_s: Option<u64>,
    full_ns: u64,
    /// How often an event has had to wait.
    put_off: u64,
    is_put_off: bool,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Bucket {
    /// A full bucket. None is no limit.
    pub(super) fn new(per_s: Option<u64>) -> Bucket {
        Bucket { per_s: per_s.map(|rate| rate.max(1)), full_ns: 0, put_off: 0, is_put_off: false }
    }

    pub(super) fn per_s(&self) -> Option<u64> {
        self.per_s
    }

    fn interval_ns(&self) -> u64 {
        self.per_s.map_or(0, |rate| (SECOND_NS / rate).max(1))
    }

    /// How far ahead the bucket may be: at least by one event.
    fn burst_ns(&self) -> u64 {
        (SECOND_NS / BURST_PER_S).max(self.interval_ns())
    }

    /// When the next event may happen; none if now.
    pub(super) fn due_ns(&self, now_ns: u64) -> Option<u64> {
        self.per_s?;
        let due_ns = (self.full_ns + self.interval_ns()).saturating_sub(self.burst_ns());
        (due_ns > now_ns).then_some(due_ns)
    }

    /// An event happens.
    pub(super) fn take(&mut self, now_ns: u64) {
        self.is_put_off = false;
        self.full_ns = self.full_ns.max(now_ns) + self.interval_ns();
    }

    /// Counts that an event has to wait, if it has to: once for each event.
    pub(super) fn put_off(&mut self, now_ns: u64) {
        if !self.is_put_off && self.due_ns(now_ns).is_some() {
            (self.is_put_off, self.put_off) = (true, self.put_off + 1);
        }
    }

    /// How often an event has had to wait.
    pub(super) fn times_put_off(&self) -> u64 {
        self.put_off
    }

    /// Events of the last second, as far as they count still.
    pub(super) fn used(&self, now_ns: u64) -> u64 {
        let ahead_ns = self.full_ns.saturating_sub(now_ns);
        ahead_ns.checked_div(self.interval_ns()).unwrap_or(0)
    }

    /// Returns true if the bucket is full again: nothing taken earlier counts any more.
    pub(super) fn is_full(&self, now_ns: u64) -> bool {
        self.full_ns <= now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_exact_after_a_burst() {
        let mut bucket = Bucket::new(Some(1000));
        let (mut now_ns, mut events) = (5 * SECOND_NS, 0);
        let end_ns = now_ns + 10 * SECOND_NS;
        while now_ns < end_ns {
            match bucket.due_ns(now_ns) {
                None => {
                    bucket.take(now_ns);
                    events += 1;
                }
                Some(due_ns) => {
                    bucket.put_off(now_ns);
                    bucket.put_off(now_ns);
                    now_ns = due_ns;
                }
            }
        }
        assert_eq!(events, 1000 / BURST_PER_S + 10 * 1000 - 1);
        assert_eq!(bucket.times_put_off(), 10 * 1000, "each but the burst, and one more");
        assert!(!bucket.is_full(now_ns) && bucket.is_full(now_ns + SECOND_NS));
    }

    #[test]
    fn no_rate_is_no_limit_and_a_small_one_lets_one_through() {
        let mut bucket = Bucket::new(None);
        (0..100_000).for_each(|_| bucket.take(1));
        assert_eq!((bucket.due_ns(1), bucket.used(1)), (None, 0));
        let mut bucket = Bucket::new(Some(1));
        assert_eq!(bucket.due_ns(7), None);
        bucket.take(7);
        assert_eq!(bucket.due_ns(7), Some(7 + SECOND_NS));
        assert_eq!(bucket.due_ns(7 + SECOND_NS), None);
    }
}
