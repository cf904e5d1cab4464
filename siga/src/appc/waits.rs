//! What a conversation waits for.

use fabric::path::Counters;
use message::appc::Conversation;
use os::doorbell::Listen;
use os::poller::wait_any;

use crate::waiting::Half;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Anything from the partner.
    Arrival,
    /// Room to send, or something from the partner that comes before it.
    Room,
}

impl Wanted {
    #[inline]
    pub(super) fn is_there(self, conversation: &mut Conversation) -> bool {
        match self {
            Wanted::Arrival => conversation.is_ready(),
            Wanted::Room => conversation.has_come() || conversation.halves().0.is_ready(),
        }
    }
}

/// A conversation, and what is waited for in it.
pub(super) struct Waiting<'a> {
    pub(super) conversation: &'a mut Conversation,
    pub(super) wanted: Wanted,
}

impl Half for Waiting<'_> {
    #[inline]
    fn is_ready(&mut self) -> bool {
        self.wanted.is_there(self.conversation)
    }

    fn announce_sleep(&mut self) {
        let (sender, receiver) = self.conversation.halves();
        receiver.announce_sleep();
        if self.wanted == Wanted::Room {
            sender.announce_sleep();
        }
    }

    fn wake(&mut self) {
        let (sender, receiver) = self.conversation.halves();
        receiver.wake();
        if self.wanted == Wanted::Room {
            sender.wake();
        }
    }

    fn hear(&mut self, listen: Listen) -> bool {
        if self.wanted == Wanted::Arrival {
            return self.conversation.halves().1.hear(listen) > 0;
        }
        // Two doorbells: one call to wait, and one for each to listen.
        let time = match listen {
            Listen::Now => return self.conversation.hear(),
            Listen::For(time) | Listen::About(time) => Some(time),
            Listen::Forever => None,
        };
        // Nothing can be done about a kernel that refuses: what comes is found by looking.
        let _ = wait_any(self.conversation.descriptors().map(Some), time);
        self.conversation.hear()
    }

    fn trim(&mut self) -> bool {
        self.conversation.trim()
    }

    fn counters(&mut self) -> &mut Counters {
        self.conversation.counters()
    }
}
