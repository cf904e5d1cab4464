//! Waiting is a policy.
//!
//! A side that has nothing to do can *spin*: look again and again, which answers within a cache miss and
//! costs a processor. It can *block*: say that it sleeps and sleep until its doorbell rings, which costs
//! nothing while it lasts and a wake-up of some microseconds. *Adaptive*, the default, spins for a while
//! that it learns, and then sleeps. Counters say what each side spent on it.

use std::time::Duration;

use fabric::path::{Counter, Counters, MessageRef, Receiver, Sender, Severed};
use os::doorbell::Listen;
use os::processor::now_ns;
use os::sync::pause;

/// How to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Look until there is something. For a processor that has nothing else to do.
    Spin,
    /// Look for a while that is learned from how long waits turn out to be, then sleep.
    #[default]
    Adaptive,
    /// Sleep at once.
    Block,
}

/// The longest that an adaptive wait polls before it sleeps: what a sleep and a wake-up cost together on
/// a machine whose processors go idle.
pub const SPIN_NS_MAX: u64 = 50_000;

/// The shortest: enough for an answer that is on its way.
const SPIN_NS_MIN: u64 = 2_000;

/// The longest that a receive lets messages of a stream gather, unless the user says otherwise.
pub(crate) const SLIP_MAX: Duration = Duration::from_nanos(1750);

/// For how many times as long as a cache line takes to come messages gather: a poll takes a line from the sender, which
/// waits until the line is back. So it loses a small part of its time.
const SLIP_LINES: u64 = 14;

/// Nanoseconds that a cache line takes to come from another processor, until they have been measured.
const LINE_NS: u64 = 100;

/// Polls between two polls at the clock, which is dearer than they are.
pub(crate) const POLLS_PER_CLOCK: u64 = 32;

/// Polls after which it is known what one costs.
const POLLS_MEASURED: u64 = 8 * POLLS_PER_CLOCK;

/// How often one who spins asks whether the peer still lives.
const LISTEN_NS: u64 = 1_000_000;

/// How long after the last activity idle storage is trimmed.
pub(crate) const TRIM_PERIOD: Duration = Duration::from_secs(1);

/// When `time` from now is over, on the machine's clock.
pub(crate) fn after(time: Duration) -> u64 {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    now_ns().saturating_add(time)
}

/// What can be waited for: a half of a path.
pub trait Half {
    /// Whether there is something to do.
    fn is_ready(&mut self) -> bool;
    /// Announces that this half is about to sleep. Poll once more before sleeping.
    fn announce_sleep(&mut self);
    /// Announces that this half is awake.
    fn wake(&mut self);
    /// Listens to the doorbell; whether it rang.
    fn hear(&mut self, listen: Listen) -> bool;
    /// Gives back what was not used lately; whether there may be more to give back later.
    fn trim(&mut self) -> bool;
    /// The counters.
    fn counters(&mut self) -> &mut Counters;
}

impl Half for Sender {
    fn is_ready(&mut self) -> bool {
        Sender::is_ready(self)
    }

    fn announce_sleep(&mut self) {
        Sender::announce_sleep(self);
    }

    fn wake(&mut self) {
        Sender::wake(self);
    }

    fn hear(&mut self, listen: Listen) -> bool {
        Sender::hear(self, listen) > 0
    }

    fn trim(&mut self) -> bool {
        Sender::trim(self)
    }

    fn counters(&mut self) -> &mut Counters {
        Sender::counters(self)
    }
}

impl Half for Receiver {
    #[inline]
    fn is_ready(&mut self) -> bool {
        Receiver::is_ready(self)
    }

    fn announce_sleep(&mut self) {
        Receiver::announce_sleep(self);
    }

    fn wake(&mut self) {
        Receiver::wake(self);
    }

    fn hear(&mut self, listen: Listen) -> bool {
        Receiver::hear(self, listen) > 0
    }

    fn trim(&mut self) -> bool {
        Receiver::trim(self);
        false
    }

    fn counters(&mut self) -> &mut Counters {
        Receiver::counters(self)
    }
}

/// How long one half spins before it sleeps, and what it has learned for that.
#[derive(Debug)]
pub(crate) struct SpinPolicy {
    policy: Wait,
    spin_ns: u64,
    /// What a look costs, as far as it was measured.
    poll_ns: u64,
    /// Whether there may be storage to give back.
    may_trim: bool,
    /// Polls after which a message was found, which are not counted yet.
    polls_found: u64,
}

/// When a receiver polls again that has caught up with a stream.
///
/// A receiver as fast as its sender would otherwise take each line away while the sender fills the next: each message
/// would cost a line there and back. The literature calls the cure temporal slip.
#[derive(Debug)]
pub(crate) struct Slip {
    max_ns: u64,
    /// When the sender's lines were touched last.
    touched_ns: u64,
    /// Eight times what that takes, on average.
    line_ns_by_8: u64,
}

impl Slip {
    pub(crate) fn new(max: Duration) -> Slip {
        let max_ns = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        Slip { max_ns, touched_ns: 0, line_ns_by_8: 8 * LINE_NS }
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.max_ns > 0
    }

    /// When to poll again, by the machine's clock. A stream that is slower than this is polled at once.
    fn due_ns(&self) -> u64 {
        self.touched_ns.saturating_add(self.max_ns.min(SLIP_LINES * (self.line_ns_by_8 / 8)))
    }

    /// The lines were touched from one time to the other.
    fn note_touched(&mut self, from_ns: u64, to_ns: u64) {
        // Whoever measures may have lost the processor meanwhile.
        let line_ns = self.line_ns_by_8 / 8;
        let measured_ns = (to_ns - from_ns).clamp(1, 2 * line_ns.max(1));
        self.line_ns_by_8 = self.line_ns_by_8 - line_ns + measured_ns;
        self.touched_ns = to_ns;
    }

    /// Lets messages gather for `half`, which has caught up with its sender, and not beyond `deadline_ns`. It is awake
    /// meanwhile, and whatever comes is there when it polls next.
    #[cold]
    pub(crate) fn wait(&mut self, half: &mut Receiver, deadline_ns: Option<u64>) {
        let due_ns = self.due_ns().min(deadline_ns.unwrap_or(u64::MAX));
        let start = now_ns();
        let mut now = start;
        while now < due_ns {
            pause();
            now = now_ns();
        }
        half.look_ahead();
        self.note_touched(now, now_ns());
        half.counters().add(Counter::SpinningNs, now - start);
    }
}

/// What came of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There is something to do.
    Ready,
    /// The time is over.
    TimedOut,
    /// The doorbell rang, but not for this half. Wait on.
    Rung,
    /// Nothing came for a while: time for housekeeping. Then wait on.
    Idle,
}

impl SpinPolicy {
    pub(crate) fn new(policy: Wait) -> SpinPolicy {
        SpinPolicy { policy, spin_ns: SPIN_NS_MAX / 2, poll_ns: 30, may_trim: true, polls_found: 0 }
    }

    pub(crate) fn set_policy(&mut self, policy: Wait) {
        self.policy = policy;
    }

    /// Takes note whether there may be more to trim later.
    pub(crate) fn trimmed(&mut self, may_trim: bool) {
        self.may_trim = may_trim;
    }

    /// Waits until `half` is ready, until `deadline_ns` of the machine's clock, or until nothing came for
    /// so long that something may be given back.
    #[inline]
    pub(crate) fn wait(&mut self, half: &mut impl Half, deadline_ns: Option<u64>) -> Waited {
        if !half.is_ready() {
            return self.wait_longer(half, deadline_ns);
        }
        // A peer can always have something that brings nothing: that is not waited for beyond the limit.
        let is_over = deadline_ns.is_some_and(|deadline_ns| now_ns() >= deadline_ns);
        if is_over { Waited::TimedOut } else { Waited::Ready }
    }

    /// Returns true if a wait polls at all before it sleeps.
    #[inline]
    pub(crate) fn polls(&self) -> bool {
        self.policy != Wait::Block
    }

    /// Polls for a moment, if the policy is to look at all; whether `half` is ready.
    pub(crate) fn glance(&mut self, half: &mut impl Half) -> bool {
        let mut is_ready = half.is_ready();
        if is_ready || self.policy == Wait::Block {
            return is_ready;
        }
        let mut polls: u64 = 0;
        while !is_ready && polls < POLLS_PER_CLOCK {
            pause();
            polls += 1;
            is_ready = half.is_ready();
        }
        count_polls(half.counters(), polls, is_ready, polls * self.poll_ns);
        is_ready
    }

    /// Polls for the next short message for a moment, if the policy is to poll at all. Whoever waits for an answer
    /// has it sooner than by [`SpinPolicy::wait`], for nothing is done between finding a message and having it.
    #[inline(always)]
    pub(crate) fn poll_short(
        &mut self,
        half: &mut Receiver,
    ) -> Result<Option<MessageRef>, Severed> {
        if self.policy == Wait::Block {
            return Ok(None);
        }
        self.count_found(half.counters());
        for polls in 1..=POLLS_PER_CLOCK {
            pause();
            if let Some(message) = half.poll_short()? {
                self.polls_found = polls;
                return Ok(Some(message));
            }
            // A message in a page, a pack, or the end: it is fetched another way.
            if half.is_ready() {
                self.polls_found = polls;
                return Ok(None);
            }
        }
        let spinning_ns = POLLS_PER_CLOCK * self.poll_ns;
        count_polls(half.counters(), POLLS_PER_CLOCK, false, spinning_ns);
        Ok(None)
    }

    /// Counts the polls after which the last message was found: there was no time for that then.
    #[inline]
    fn count_found(&mut self, counters: &mut Counters) {
        if self.polls_found > 0 {
            count_polls(counters, self.polls_found, true, self.polls_found * self.poll_ns);
            self.polls_found = 0;
        }
    }

    fn wait_longer(&mut self, half: &mut impl Half, deadline_ns: Option<u64>) -> Waited {
        if self.policy != Wait::Block
            && let Some(waited) = self.spin(half, deadline_ns)
        {
            return waited;
        }
        let waited = self.sleep(half, deadline_ns);
        // Whatever was done may have left something to give back later.
        self.may_trim |= waited == Waited::Ready;
        waited
    }

    /// Polls until there is something or looking has taken long enough; `None` then.
    fn spin(&mut self, half: &mut impl Half, deadline_ns: Option<u64>) -> Option<Waited> {
        let mut polls: u64 = 0;
        let mut counted = (0, 0);
        // No look at the clock in a short wait without a limit: what it took is reckoned from the polls. With
        // a limit, the first look shows what one costs.
        let mut clock = deadline_ns.map(|_| Clock::started(0, now_ns()));
        let mut next_clock = if clock.is_some() { 1 } else { POLLS_PER_CLOCK };
        let waited = loop {
            pause();
            polls += 1;
            if half.is_ready() {
                break Some(Waited::Ready);
            }
            if polls < next_clock {
                continue;
            }
            let now = now_ns();
            let clock = clock.get_or_insert_with(|| Clock {
                start: now.saturating_sub(polls * self.poll_ns),
                ..Clock::started(polls, now)
            });
            let spent = now - clock.start;
            if polls >= POLLS_MEASURED && counted.0 < POLLS_MEASURED && polls > clock.first.0 {
                let (first_polls, first_now) = clock.first;
                let measured_ns = (now - first_now) / (polls - first_polls);
                self.poll_ns = learned_poll_ns(self.poll_ns, measured_ns);
            }
            counted = (polls, spent);
            if deadline_ns.is_some_and(|deadline| now >= deadline) {
                break Some(Waited::TimedOut);
            }
            if self.policy == Wait::Adaptive && spent >= self.spin_ns {
                break None;
            }
            if now - clock.listened >= LISTEN_NS {
                clock.listened = now;
                half.hear(Listen::Now);
            }
            let left_ns = deadline_ns.map_or(u64::MAX, |deadline| deadline - now);
            next_clock = polls + polls_until_clock(left_ns, spent / polls);
        };
        let rest = (polls - counted.0) * self.poll_ns;
        let has_found = waited == Some(Waited::Ready);
        count_polls(half.counters(), polls, has_found, counted.1 + rest);
        waited
    }

    /// Sleeps until there is something, or the doorbell rings for nothing, or it is time to look.
    fn sleep(&mut self, half: &mut impl Half, deadline_ns: Option<u64>) -> Waited {
        half.announce_sleep();
        if half.is_ready() {
            half.wake();
            return Waited::Ready;
        }
        let learns = self.policy == Wait::Adaptive;
        let start = if learns || deadline_ns.is_some() { now_ns() } else { 0 };
        let left = deadline_ns.map(|deadline| Duration::from_nanos(deadline.saturating_sub(start)));
        let listen = match left {
            Some(Duration::ZERO) => Listen::Now,
            // Well before the end nothing has to be exact.
            Some(left) if self.may_trim && left > 2 * TRIM_PERIOD => Listen::About(TRIM_PERIOD),
            Some(left) if self.may_trim => Listen::For(left.min(TRIM_PERIOD)),
            Some(left) => Listen::For(left),
            None if self.may_trim => Listen::About(TRIM_PERIOD),
            None => Listen::Forever,
        };
        half.counters().add(Counter::Sleeps, 1);
        let heard = half.hear(listen);
        half.wake();
        let is_ready = half.is_ready();
        let now = if learns || deadline_ns.is_some() { now_ns() } else { 0 };
        let is_over = !is_ready && deadline_ns.is_some_and(|deadline| now >= deadline);
        if learns && !is_over {
            self.spin_ns = learned_spin_ns(self.spin_ns, now - start);
        }
        if is_ready {
            return Waited::Ready;
        }
        half.counters().add(Counter::WakesUnproductive, 1);
        if is_over {
            Waited::TimedOut
        } else if heard {
            Waited::Rung
        } else {
            Waited::Idle
        }
    }
}

/// Takes note of polls, the last of which may have found something.
#[inline]
pub(crate) fn count_polls(counters: &mut Counters, polls: u64, has_found: bool, spinning_ns: u64) {
    counters.add(Counter::Polls, polls);
    counters.add(Counter::PollsEmpty, polls - u64::from(has_found));
    counters.add(Counter::SpinningNs, spinning_ns);
}

/// How long to spin from now on, after a sleep that was ended by something: after a short one we should have
/// looked longer; after a long one, less.
pub(crate) fn learned_spin_ns(spin_ns: u64, slept_ns: u64) -> u64 {
    let learned = if slept_ns < SPIN_NS_MAX { spin_ns * 2 } else { spin_ns / 2 };
    learned.clamp(SPIN_NS_MIN, SPIN_NS_MAX)
}

/// What a look costs, as it was measured last: at most twice what was known. Whoever measures may have lost the
/// processor meanwhile, and with polls that seem dear nobody polls for long enough to measure again.
fn learned_poll_ns(poll_ns: u64, measured_ns: u64) -> u64 {
    measured_ns.clamp(1, 2 * poll_ns)
}

/// After how many polls to look at the clock again, when one costs `poll_ns`: at a limit the last that it
/// could be late by are few.
#[inline]
pub(crate) fn polls_until_clock(left_ns: u64, poll_ns: u64) -> u64 {
    (left_ns / (2 * poll_ns.max(1))).clamp(1, POLLS_PER_CLOCK)
}

struct Clock {
    /// When the first look was, as far as it is known.
    start: u64,
    /// After how many polls the clock was read first, and what it said.
    first: (u64, u64),
    listened: u64,
}

impl Clock {
    fn started(polls: u64, now: u64) -> Clock {
        Clock { start: now, first: (polls, now), listened: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_is_learned_within_its_limits() {
        let after = |sleeps, slept_ns| {
            (0..sleeps).fold(SPIN_NS_MAX / 2, |spin_ns, _| learned_spin_ns(spin_ns, slept_ns))
        };
        assert_eq!(after(100, u64::MAX), SPIN_NS_MIN, "an answer on its way is always waited for");
        assert_eq!(after(100, 1), SPIN_NS_MAX);
        assert_eq!(after(1, 1_000_000), SPIN_NS_MAX / 4);
    }

    #[test]
    fn slip_is_as_long_as_some_cache_lines_take_and_no_longer_than_allowed() {
        let mut slip = Slip::new(SLIP_MAX);
        let mut now = 1_000_000;
        let learn = |slip: &mut Slip, now: &mut u64, line_ns: u64| {
            for _ in 0..100 {
                slip.note_touched(*now, *now + line_ns);
                *now += line_ns;
            }
            slip.due_ns() - *now
        };
        assert_eq!(learn(&mut slip, &mut now, 60), 14 * 60);
        assert_eq!(learn(&mut slip, &mut now, 10_000), 1_750, "the limit");
        assert!(learn(&mut slip, &mut now, 0) <= 14, "nothing is gained");
        let mut never = Slip::new(Duration::ZERO);
        assert!(!never.is_allowed());
        assert_eq!(learn(&mut never, &mut now, 60), 0);
        assert_eq!(Slip::new(Duration::MAX).max_ns, u64::MAX);
    }

    #[test]
    fn look_that_lost_the_processor_is_soon_forgotten() {
        let preempted = learned_poll_ns(30, 4_000_000);
        assert_eq!(preempted, 60);
        assert_eq!(learned_poll_ns(preempted, 30), 30);
        assert_eq!(learned_poll_ns(30, 0), 1);
    }

    #[test]
    fn clock_is_looked_at_more_often_the_nearer_the_end_is() {
        assert_eq!(polls_until_clock(u64::MAX, 30), POLLS_PER_CLOCK);
        assert_eq!(polls_until_clock(600, 30), 10);
        assert_eq!(polls_until_clock(1, 30), 1);
        assert_eq!(polls_until_clock(0, 0), 1);
        // Halving what is left is over before it is late by more than a look.
        let (mut left_ns, mut polls) = (50_000_u64, 0);
        while left_ns > 0 {
            let next = polls_until_clock(left_ns, 700);
            assert!(next == 1 || next * 700 < left_ns);
            (left_ns, polls) = (left_ns.saturating_sub(next * 700), polls + next);
        }
        assert!(polls * 700 < 50_000 + 700);
    }
}
