//! A descriptor that becomes readable at a time of the machine's clock.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::fork::ForkSafeFd;

/// Readable from the time that it is set to, until it is set again.
#[derive(Debug)]
pub struct Alarm {
    timer: ForkSafeFd,
    /// What it is set to; `u64::MAX` is never.
    set_ns: u64,
}

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = ForkSafeFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?);
        Ok(Alarm { timer, set_ns: u64::MAX })
    }

    /// Makes it readable from `at_ns` on, at once if that is over, or never for `None`. Until then it is not
    /// readable. Nothing happens in a forked child: the alarm is the parent's.
    pub fn set(&mut self, at_ns: Option<u64>, now_ns: u64) {
        // The latest time that the kernel accepts: 292 years after the machine was started.
        let at_ns = at_ns.map_or(u64::MAX, |at_ns| at_ns.min(i64::MAX as u64));
        // One that is over is readable until it is set, also to the same time.
        if self.timer.in_child() || self.set_ns == at_ns && at_ns > now_ns {
            return;
        }
        self.set_ns = at_ns;
        // Zero would be never; any other time that is over is now.
        let at = if at_ns == u64::MAX { 0 } else { at_ns.max(1) };
        let it_value =
            Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &time).expect("a valid time");
    }

    /// Makes it readable now.
    pub fn ring(&mut self) {
        self.set(Some(1), u64::MAX);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fork::tests::run_in_child;
    use crate::poller::wait_any;
    use crate::processor::now_ns;

    fn is_readable(alarm: &Alarm) -> bool {
        wait_any([Some(alarm.as_fd())], Some(Duration::ZERO)).unwrap() == [true]
    }

    #[test]
    fn alarm_is_readable_from_its_time_until_it_is_set_again() {
        let mut alarm = Alarm::new().unwrap();
        assert!(!is_readable(&alarm));
        let now = now_ns();
        alarm.set(Some(now + 3_600_000_000_000), now);
        assert!(!is_readable(&alarm));
        alarm.set(Some(now - 1), now);
        assert!(is_readable(&alarm) && is_readable(&alarm));
        alarm.set(None, now);
        assert!(!is_readable(&alarm));
        alarm.set(Some(now), now);
        alarm.set(Some(u64::MAX - 1), now);
        assert!(!is_readable(&alarm));
        alarm.ring();
        assert!(is_readable(&alarm));
        alarm.set(Some(now + 1), now);
        assert_eq!(wait_any([Some(alarm.as_fd())], None).unwrap(), [true]);
    }

    #[test]
    fn child_leaves_its_parents_alarm_alone() {
        let mut alarm = Alarm::new().unwrap();
        run_in_child(|| {
            alarm.ring();
            0
        });
        assert!(!is_readable(&alarm));
    }
}
