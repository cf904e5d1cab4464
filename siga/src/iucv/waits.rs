//! What a path of IUCV waits for.

use fabric::iucv::{MessageId, Path, QUEUES};
use fabric::path::Counters;
use os::doorbell::Listen;
use os::poller::wait_any;

use crate::waiting::Half;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Anything from the other side.
    Arrival,
    /// The same, at once: what there is to say waits for it.
    Next,
    /// A reply, or that something is complete.
    Completion,
    /// Room in a queue to send.
    Room(usize),
    /// More of a message that is being filled in.
    Filling { id: MessageId, priority: bool },
    /// More of a reply that is being filled in.
    AnswerFilling { id: MessageId },
}

/// A path, and what is waited for on it.
pub(super) struct Waiting<'a> {
    pub(super) path: &'a mut Path,
    pub(super) wanted: Wanted,
    /// The halves whose doorbells rang and were not listened to, receivers first.
    // That is for the next sleep: the other side wakes up meanwhile, and what it sent is not kept waiting.
    pub(super) unheard: &'a mut [bool; HALVES],
}

/// Halves of a path of IUCV.
pub(super) const HALVES: usize = 2 * QUEUES;

const PLAIN: usize = 0;
const URGENT: usize = 1;

impl Waiting<'_> {
    /// The queues whose receivers, and whose senders, have news.
    fn queues(&self) -> ([bool; QUEUES], [bool; QUEUES]) {
        // What could not be said yet waits for room too.
        let more = self.path.has_more_to_say();
        match self.wanted {
            Wanted::Arrival => ([true, true], [false, more]),
            Wanted::Next => ([true, true], [false, false]),
            Wanted::Completion => ([false, true], [false, more]),
            Wanted::Room(PLAIN) => ([false, true], [true, more]),
            Wanted::Room(_) => ([false, true], [false, true]),
            Wanted::Filling { priority, .. } => ([!priority, priority], [false, false]),
            Wanted::AnswerFilling { .. } => ([false, true], [false, false]),
        }
    }

    fn each(
        &mut self,
        mut receiver: impl FnMut(&mut fabric::path::Receiver),
        mut sender: impl FnMut(&mut fabric::path::Sender),
    ) {
        let (receivers_wanted, senders_wanted) = self.queues();
        let (senders, receivers) = self.path.halves();
        for queue in 0..QUEUES {
            if receivers_wanted[queue] {
                receiver(&mut receivers[queue]);
            }
            if senders_wanted[queue] {
                sender(&mut senders[queue]);
            }
        }
    }
}

impl Half for Waiting<'_> {
    #[inline]
    fn is_ready(&mut self) -> bool {
        match self.wanted {
            Wanted::Arrival => self.path.is_ready() || self.is_sayable(),
            Wanted::Next => self.path.is_ready(),
            Wanted::Completion => {
                let (_, receivers) = self.path.halves();
                receivers[URGENT].is_ready() || self.is_sayable()
            }
            Wanted::Room(queue) => {
                let (senders, receivers) = self.path.halves();
                senders[queue].is_ready() || receivers[URGENT].is_ready() || self.is_sayable()
            }
            Wanted::Filling { id, priority } => self.path.is_readable(id, priority),
            Wanted::AnswerFilling { id } => self.path.is_answer_readable(id),
        }
    }

    fn announce_sleep(&mut self) {
        let (senders, receivers) = self.path.halves();
        for queue in 0..QUEUES {
            if std::mem::take(&mut self.unheard[queue]) {
                receivers[queue].hear(Listen::Now);
            }
            if std::mem::take(&mut self.unheard[QUEUES + queue]) {
                senders[queue].hear(Listen::Now);
            }
        }
        self.each(|receiver| receiver.announce_sleep(), |sender| sender.announce_sleep());
    }

    fn wake(&mut self) {
        self.each(|receiver| receiver.wake(), |sender| sender.wake());
    }

    fn hear(&mut self, listen: Listen) -> bool {
        let (receivers_wanted, senders_wanted) = self.queues();
        if (receivers_wanted, senders_wanted) == ([false, true], [false, false]) {
            let (_, receivers) = self.path.halves();
            return receivers[URGENT].hear(listen) > 0;
        }
        let time = match listen {
            Listen::Now => return self.path.hear(),
            Listen::For(time) => Some(time),
            Listen::Forever => None,
        };
        let mut wanted = [receivers_wanted, senders_wanted].into_iter().flatten();
        let descriptors = self.path.descriptors();
        let descriptors = descriptors.map(|descriptor| wanted.next()?.then_some(descriptor));
        // Nothing can be done about a kernel that refuses: what comes is found by looking.
        let rang = wait_any(descriptors, time).unwrap_or_default();
        for (unheard, rang) in self.unheard.iter_mut().zip(rang) {
            *unheard |= rang;
        }
        rang.contains(&true)
    }

    fn tidy(&mut self) -> bool {
        self.path.tidy()
    }

    fn counters(&mut self) -> &mut Counters {
        self.path.counters()
    }
}

impl Waiting<'_> {
    /// Whether what could not be said can be said now.
    fn is_sayable(&mut self) -> bool {
        self.path.has_more_to_say() && self.path.halves().0[URGENT].is_ready()
    }
}
