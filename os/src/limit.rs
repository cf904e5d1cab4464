//! Waits that end at their time limit.
//!
//! Linux lets a wait with a limit last longer than that, to end several at once: by the *slack* of the
//! thread, 50 us unless the thread has set less, or by a thousandth of the limit if that is more (a
//! two-hundredth in a nice process). The slack belongs to the program, which may have other timers in the
//! thread, so it is left as it is. Instead the kernel is asked to wait for so much less, and what is left
//! when it comes back is waited for by polling: usually nothing, at most the slack.

use rustix::event::Timespec;
use rustix::io::Errno;
use std::time::Duration;

use crate::processor::now_ns;

/// A wait that lasts longer than so many times the slack is divided: the kernel may add more than the slack.
const SLACKS_MAX: u64 = 200;

/// Does `wait`, which waits in the kernel for the given time or until there is something, until there is
/// something or `time` is over; forever if there is none. Whether there is something.
///
/// # Errors
/// As from `wait`; an interrupted wait is not repeated.
pub(crate) fn within(
    time: Option<Duration>,
    mut wait: impl FnMut(Option<&Timespec>) -> Result<bool, Errno>,
) -> Result<bool, Errno> {
    let Some(time) = time else { return wait(None) };
    if time.is_zero() {
        return wait(Some(&timespec(0)));
    }
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    // The clock will not come to that: it is forever.
    let Some(end) = now_ns().checked_add(time) else { return wait(None) };
    let slack = slack_ns();
    let mut left = time;
    loop {
        if wait(Some(&timespec(nap_ns(left, slack))))? {
            return Ok(true);
        }
        if left == 0 {
            return Ok(false);
        }
        left = end.saturating_sub(now_ns());
    }
}

/// The slack of this thread's timers. Asked for once: it takes a system call, and programs hardly ever set it
/// while the thread works. If one does, a wait ends a little later, or polls a little longer.
fn slack_ns() -> u64 {
    thread_local! {
        static SLACK_NS: u64 = rustix::thread::current_timer_slack().unwrap_or(0);
    }
    SLACK_NS.with(|slack| *slack)
}

/// How long to ask the kernel to wait when `left_ns` are left. Zero is a poll.
fn nap_ns(left_ns: u64, slack_ns: u64) -> u64 {
    if left_ns > slack_ns.saturating_mul(SLACKS_MAX) {
        // What the kernel adds is at most half of what is kept back here.
        left_ns - left_ns / 100
    } else {
        left_ns.saturating_sub(slack_ns)
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000).try_into().unwrap_or(i64::MAX),
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_is_asked_for_less_than_is_left_by_what_it_may_add() {
        const SLACK: u64 = 50_000;
        for left in [1, SLACK, SLACK + 1, 200_000, 50_000_000, 50_000_001, 1 << 40, u64::MAX] {
            let nap = nap_ns(left, SLACK);
            let added = if nap > 0 { SLACK.max(nap / 200) } else { 0 };
            assert!(
                nap.saturating_add(added) <= left,
                "{left}: asks for {nap}, waits {added} more"
            );
        }
        assert_eq!(nap_ns(SLACK, SLACK), 0, "what is left is polled");
        assert_eq!(nap_ns(100, 0), 99, "also without a slack");
        assert!(nap_ns(1 << 40, SLACK) >= (1 << 40) / 100 * 98, "few wake-ups on the way");
    }

    #[test]
    fn wait_is_over_at_its_end_and_not_before() {
        let time = Duration::from_micros(300);
        let start = now_ns();
        let mut asked = 0;
        // A kernel that always comes back at once.
        let found = within(Some(time), |_| {
            asked += 1;
            Ok(false)
        });
        assert_eq!(found, Ok(false));
        assert!(now_ns() - start >= time.as_nanos() as u64 && asked > 1);
    }

    #[test]
    fn times_beyond_all_clocks_are_forever_and_none_is_a_poll() {
        for (time, is_forever) in
            [(None, true), (Some(Duration::MAX), true), (Some(Duration::ZERO), false)]
        {
            let found = within(time, |asked| Ok(asked.is_none()));
            assert_eq!(found, Ok(is_forever), "{time:?}");
        }
        let (mut calls, mut longest) = (0, 0);
        let found = within(Some(Duration::from_secs(1 << 32)), |asked| {
            (calls, longest) = (calls + 1, asked.unwrap().tv_sec);
            Ok(true)
        });
        assert_eq!((found, calls), (Ok(true), 1));
        assert!(longest > 1 << 31);
    }

    #[test]
    fn interruption_ends_a_wait() {
        assert_eq!(within(Some(Duration::from_secs(1)), |_| Err(Errno::INTR)), Err(Errno::INTR));
    }
}
