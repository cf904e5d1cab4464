//! What a path of IUCV waits for.

use fabric::path::{Counters, Receiver, Sender};
use message::iucv::{MessageId, Path, QUEUES};
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
}

const PLAIN: usize = 0;
const URGENT: usize = 1;

impl Waiting<'_> {
    /// The queues whose receivers, and whose senders, have news.
    fn queues(&self) -> ([bool; QUEUES], [bool; QUEUES]) {
        // What could not be said yet waits for room too.
        let more = self.path.has_pending_controls();
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

    /// The senders that have news.
    fn senders(&mut self) -> impl Iterator<Item = &mut Sender> {
        let (_, wanted) = self.queues();
        let (senders, _) = self.path.halves();
        senders.iter_mut().zip(wanted).filter_map(|(sender, wanted)| wanted.then_some(sender))
    }
}

impl Half for Waiting<'_> {
    #[inline]
    fn is_ready(&mut self) -> bool {
        match self.wanted {
            Wanted::Arrival => self.path.is_ready() || self.is_sayable(),
            Wanted::Next => self.path.is_ready(),
            Wanted::Completion => self.path.is_urgent_ready() || self.is_sayable(),
            Wanted::Room(queue) => {
                let (senders, _) = self.path.halves();
                senders[queue].is_ready() || self.path.is_urgent_ready() || self.is_sayable()
            }
            Wanted::Filling { id, priority } => self.path.is_readable(id, priority),
            Wanted::AnswerFilling { id } => self.path.is_reply_readable(id),
        }
    }

    fn announce_sleep(&mut self) {
        let (receivers, _) = self.queues();
        self.path.announce_sleep(receivers);
        self.senders().for_each(Sender::announce_sleep);
    }

    fn wake(&mut self) {
        // All: what there was to say, and so who was put to sleep, may have changed since.
        let (senders, receivers) = self.path.halves();
        receivers.iter_mut().for_each(Receiver::wake);
        senders.iter_mut().for_each(Sender::wake);
    }

    fn hear(&mut self, listen: Listen) -> bool {
        let time = match listen {
            Listen::Now => {
                let has_come = self.path.hear_arrivals(Listen::Now);
                return self.path.hear_returns() || has_come;
            }
            _ if self.queues().1 == [false, false] => return self.path.hear_arrivals(listen),
            Listen::For(time) | Listen::About(time) => Some(time),
            Listen::Forever => None,
        };
        // Nothing can be done about a kernel that refuses: what comes is found by looking.
        let rang = wait_any(self.path.descriptors().map(Some), time).unwrap_or_default();
        let [has_come, has_room] = rang;
        if has_come {
            self.path.hear_arrivals(Listen::Now);
        }
        if has_room {
            self.path.hear_returns();
        }
        has_come || has_room
    }

    fn trim(&mut self) -> bool {
        self.path.trim()
    }

    fn counters(&mut self) -> &mut Counters {
        self.path.counters()
    }
}

impl Waiting<'_> {
    /// Whether what could not be said can be said now.
    pub(super) fn is_sayable(&mut self) -> bool {
        self.path.has_pending_controls() && self.path.halves().0[URGENT].is_ready()
    }
}
