//! A descriptor that one thread makes readable for another of the same process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::fork::ForkSafeFd;

/// Readable from when it is set until it is cleared.
#[derive(Debug)]
pub struct Event {
    counter: ForkSafeFd,
}

impl Event {
    /// An event that is not set.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Event> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Event { counter: ForkSafeFd::new(eventfd(0, flags)?) })
    }

    /// Makes it readable. Nothing happens in a forked child: the event is the parent's.
    pub fn set(&self) {
        if !self.counter.in_child() {
            // A counter that is full is readable already.
            let _ = rustix::io::write(&self.counter, &1_u64.to_ne_bytes());
        }
    }

    /// Makes it readable no more. Nothing happens in a forked child.
    pub fn clear(&self) {
        if !self.counter.in_child() {
            // One that is not set has nothing to read.
            let _ = rustix::io::read(&self.counter, &mut [0; 8]);
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fork::tests::run_in_child;
    use crate::poller::wait_any;

    fn is_readable(event: &Event) -> bool {
        wait_any([Some(event.as_fd())], Some(Duration::ZERO)).unwrap() == [true]
    }

    #[test]
    fn event_is_readable_from_when_it_is_set_until_it_is_cleared() {
        let event = Event::new().unwrap();
        assert!(!is_readable(&event));
        event.set();
        event.set();
        assert!(is_readable(&event) && is_readable(&event));
        event.clear();
        assert!(!is_readable(&event));
        event.clear();
        event.set();
        assert!(is_readable(&event));
    }

    #[test]
    fn forked_child_leaves_the_event_alone() {
        let event = Event::new().unwrap();
        event.set();
        let status = run_in_child(|| {
            event.clear();
            0
        });
        assert_eq!(status, 0);
        assert!(is_readable(&event));
    }
}
