//! Whether a guest has a host, for a thread that does not use the guest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fabric::control::Problem;
use os::event::Event;

/// Follows from any thread whether a guest has a host. [`Guest::attachment`](crate::Guest::attachment) returns it.
///
/// Its descriptor is readable once the guest has lost its host, has been refused by another or has found one, until [`Attachment::state`] is called. The
/// guest notices that only while it is being used.
#[derive(Debug)]
pub struct Attachment {
    shared: Arc<Shared>,
}

/// Where a guest stands with its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachmentState {
    /// It is attached.
    Attached,
    /// It has no host, and tries to attach again and again.
    Alone,
    /// The same; a host was there at the last try, and has refused it.
    Refused(Problem),
}

#[derive(Debug)]
struct Shared {
    state: Mutex<AttachmentState>,
    event: Event,
}

impl Attachment {
    /// Where the guest stood when it was used last. The descriptor is readable again after the next change.
    pub fn state(&self) -> AttachmentState {
        // First: a change behind it makes the descriptor readable again.
        self.shared.event.clear();
        *self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

/// All that follow one guest.
#[derive(Debug, Default)]
pub(super) struct Followers(Vec<Weak<Shared>>);

impl Followers {
    pub(super) fn add(&mut self, state: AttachmentState) -> io::Result<Attachment> {
        self.0.retain(|follower| follower.strong_count() > 0);
        let shared = Arc::new(Shared { state: Mutex::new(state), event: Event::new()? });
        self.0.push(Arc::downgrade(&shared));
        Ok(Attachment { shared })
    }

    pub(super) fn set(&self, state: AttachmentState) {
        for follower in self.0.iter().filter_map(Weak::upgrade) {
            let before = {
                let mut held = follower.state.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::replace(&mut *held, state)
            };
            if before != state {
                follower.event.set();
            }
        }
    }
}
