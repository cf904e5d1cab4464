//! The processor time of polls that find nothing.

/// From here on a poll may have lost the processor, so the thread's own clock says how long it took. Reading that clock is a
/// system call, and a poll takes some hundred nanoseconds.
const LONG_NS: u64 = 10_000;

/// Adds up what empty polls took of the processor.
///
/// A poll is timed by the clock of all processes, which goes on while the thread has no processor. A poll that took long is
/// therefore shortened by the time that the thread had no processor since both clocks were read together.
#[derive(Debug, Default)]
pub(crate) struct Spinning {
    ns: u64,
    /// What both clocks said when they were read together; none since the thread slept.
    clocks: Option<Clocks>,
}

#[derive(Clone, Copy, Debug)]
struct Clocks {
    now_ns: u64,
    thread_ns: u64,
}

impl Spinning {
    /// Adds an empty poll that took so long and ended `now_ns`. `thread_ns` reads the processor time of the thread.
    #[inline]
    pub(crate) fn add(&mut self, poll_ns: u64, now_ns: u64, thread_ns: impl FnOnce() -> u64) {
        self.ns += if poll_ns < LONG_NS {
            poll_ns
        } else {
            let thread_ns = thread_ns();
            self.used(poll_ns, Clocks { now_ns, thread_ns })
        };
    }

    /// What a long poll used of the processor.
    #[cold]
    fn used(&mut self, poll_ns: u64, now: Clocks) -> u64 {
        match self.clocks.replace(now) {
            Some(before) => {
                let passed_ns = now.now_ns.saturating_sub(before.now_ns);
                let lost_ns =
                    passed_ns.saturating_sub(now.thread_ns.saturating_sub(before.thread_ns));
                poll_ns.saturating_sub(lost_ns)
            }
            // Nobody knows. Too little is better here: more than was used would make the rest too small.
            None => LONG_NS,
        }
    }

    /// Takes note that the thread slept: it had no processor, and that was no poll's time.
    pub(crate) fn slept(&mut self) {
        self.clocks = None;
    }

    /// The sum so far, in nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_polls_count_as_they_are_and_ask_no_clock() {
        let mut spinning = Spinning::default();
        spinning.add(300, 1000, || unreachable!("a short poll"));
        spinning.add(LONG_NS - 1, 20_000, || unreachable!("a short poll"));
        assert_eq!(spinning.ns(), 300 + LONG_NS - 1);
    }

    #[test]
    fn poll_without_a_processor_counts_what_it_used() {
        let mut spinning = Spinning::default();
        spinning.add(LONG_NS, 1_000_000, || 50_000);
        assert_eq!(spinning.ns(), LONG_NS, "nothing to compare with yet");
        // Of 4 ms, 3.9 without the processor.
        spinning.add(4_000_000, 6_000_000, || 50_000 + 1_100_000);
        assert_eq!(spinning.ns(), LONG_NS + 100_000);
        // The same again, on a machine whose thread clock goes on meanwhile: all of it is in the processor time.
        spinning.add(4_000_000, 10_000_000, || 1_150_000 + 4_000_000);
        assert_eq!(spinning.ns(), LONG_NS + 4_100_000);
        // More was lost than the poll took: some of it while there was work.
        spinning.add(20_000, 20_000_000, || 5_150_000 + 1_000_000);
        assert_eq!(spinning.ns(), LONG_NS + 4_100_000);
    }

    #[test]
    fn sleep_is_not_taken_for_a_loss() {
        let mut spinning = Spinning::default();
        spinning.add(LONG_NS, 1_000_000, || 50_000);
        spinning.slept();
        spinning.add(50_000, 9_000_000, || 110_000);
        assert_eq!(spinning.ns(), 2 * LONG_NS);
        spinning.add(50_000, 9_050_000, || 160_000);
        assert_eq!(spinning.ns(), 2 * LONG_NS + 50_000);
    }
}
