//! Whether a guest has a host, for a thread that does not use the guest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use os::event::Event;

/// Follows from any thread whether a guest has a host. [`Guest::attachment`](crate::Guest::attachment) returns it.
///
/// Its descriptor is readable once the guest has lost its host or has found another, until [`Attachment::is_attached`] is called. The guest notices that only
/// while it is being used.
#[derive(Clone, Debug)]
pub struct Attachment {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    is_attached: AtomicBool,
    event: Event,
}

impl Attachment {
    pub(super) fn new(is_attached: bool) -> io::Result<Attachment> {
        let shared = Shared { is_attached: AtomicBool::new(is_attached), event: Event::new()? };
        Ok(Attachment { shared: Arc::new(shared) })
    }

    /// Returns true if there was a host when the guest was used last. The descriptor is readable again after the next change.
    pub fn is_attached(&self) -> bool {
        // First: a change behind it makes the descriptor readable again.
        self.shared.event.clear();
        // Acquire: pairs with the Release in `set`.
        self.shared.is_attached.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, is_attached: bool) {
        // Release: pairs with the Acquire in `is_attached`.
        if self.shared.is_attached.swap(is_attached, Ordering::Release) != is_attached {
            self.shared.event.set();
        }
    }
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}
