//! Waking up before a doorbell rings.
//!
//! When the other end of a doorbell hears a ring, the kernel says that there is room for another. Whoever has rung for something and sleeps begins to wake
//! up then: while the other side answers, not after that. On a virtual processor a wake-up takes longer than a short answer does. If the answer takes
//! long, that wake-up is for nothing. Where others wait for the processor, it takes the processor from them; so it is done only where they do not.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::fork::ForkSafeFd;
use crate::poller::EVENTS_MAX;

/// Sleeps of a thread between two looks at how long it waits for processors.
const SLEEPS_PER_LOOK: u32 = 64;

/// How long a thread waits for a processor when it has been woken, on average, where nobody else wants it. On one that is taken it is hundreds of
/// microseconds.
const DELAY_NS_MAX: u64 = 20_000;

/// Wakes up whoever sleeps at a poller when others hear its rings.
#[derive(Debug)]
pub(crate) struct Early {
    /// Readable when the other end of a doorbell has heard a ring. The poller waits for it, too, while it is armed.
    heard: ForkSafeFd,
    /// Set while the poller waits for it, as far as that is known: several threads may sleep at one poller.
    is_armed: AtomicBool,
}

impl Early {
    /// Its name in the poller, which no doorbell has.
    pub(crate) const NAME: u64 = u64::MAX - (1 << 32);

    pub(crate) fn new(poller: &ForkSafeFd) -> io::Result<Early> {
        let heard = ForkSafeFd::new(epoll::create(CreateFlags::CLOEXEC)?);
        epoll::add(poller, &heard, EventData::new_u64(Early::NAME), EventFlags::empty())?;
        Ok(Early { heard, is_armed: AtomicBool::new(false) })
    }

    /// Waits for this doorbell, too. If the kernel has no memory for that, its waits end a little later.
    pub(crate) fn add(&self, doorbell: BorrowedFd<'_>) {
        let flags = EventFlags::OUT | EventFlags::ET;
        let _ = epoll::add(&self.heard, doorbell, EventData::new_u64(0), flags);
    }

    /// Waits for this one no longer, if it did.
    pub(crate) fn remove(&self, doorbell: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.heard, doorbell);
    }

    /// The calling thread is about to sleep at the poller, or at another that waits for it.
    pub(crate) fn prepare(&self, poller: &ForkSafeFd) {
        self.set_armed(is_alone(), poller);
    }

    /// The calling thread was woken up early, and sleeps again.
    pub(crate) fn prepare_again(&self, poller: &ForkSafeFd) {
        if self.is_armed.load(Ordering::Relaxed) {
            self.prepare(poller);
        }
    }

    /// Has the poller be woken up early, or not.
    pub(crate) fn set_armed(&self, is_armed: bool, poller: &ForkSafeFd) {
        if self.is_armed.load(Ordering::Relaxed) == is_armed {
            return;
        }
        if is_armed {
            self.forget_heard();
        }
        let flags = if is_armed { EventFlags::IN | EventFlags::ET } else { EventFlags::empty() };
        if epoll::modify(poller, &self.heard, EventData::new_u64(Early::NAME), flags).is_ok() {
            self.is_armed.store(is_armed, Ordering::Relaxed);
        }
    }

    /// Takes off what was heard by now, for which nobody is to be woken up.
    fn forget_heard(&self) {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        while let Ok((heard, _)) = epoll::wait(&self.heard, &mut events, Some(&none))
            && heard.len() == EVENTS_MAX
        {}
    }
}

/// What a thread has found out about its processors.
#[derive(Clone, Copy, Default)]
struct Found {
    sleeps: u32,
    /// What the kernel had counted at the last look: time that the thread has waited for a processor, and how often it has got one.
    counted: Option<(u64, u64)>,
    is_alone: bool,
}

/// Counts a sleep of the calling thread. Returns true if the thread has had processors for itself lately.
fn is_alone() -> bool {
    thread_local! {
        static FOUND: Cell<Found> = const { Cell::new(Found { sleeps: 0, counted: None, is_alone: false }) };
    }
    let mut found = FOUND.get();
    if found.sleeps == 0 {
        let counted = delays();
        found.is_alone = match (found.counted, counted) {
            (Some((delay, slices)), Some((delay_now, slices_now))) => {
                let slices = slices_now.saturating_sub(slices);
                let delay = delay_now.saturating_sub(delay);
                // A kernel that counts nothing says 0.
                delay.checked_div(slices).is_some_and(|each| each <= DELAY_NS_MAX)
            }
            // Nothing is known yet, or the kernel does not say it.
            _ => false,
        };
        found.counted = counted;
    }
    found.sleeps = (found.sleeps + 1) % SLEEPS_PER_LOOK;
    FOUND.set(found);
    found.is_alone
}

/// How long the calling thread has waited for processors, in nanoseconds, and how often it has got one.
fn delays() -> Option<(u64, u64)> {
    let mut text = [0; 80];
    let count = File::open("/proc/thread-self/schedstat").ok()?.read(&mut text).ok()?;
    let text = std::str::from_utf8(&text[..count]).ok()?;
    // The first is how long it has had them.
    let mut numbers = text.split_ascii_whitespace().skip(1).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_a_thread_grow() {
        let Some((delay, slices)) = delays().filter(|(_, slices)| *slices > 0) else {
            eprintln!("skipped: the kernel does not count delays of threads");
            return;
        };
        // Each sleep gives the processor away.
        (0..4).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
        let (delay_now, slices_now) = delays().expect("it was there just now");
        assert!(delay_now >= delay && slices_now >= slices + 4, "{slices} and then {slices_now}");
    }
}
