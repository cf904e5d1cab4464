//! What becomes of our messages.

use super::{Done, Kept, PLAIN, Path, ReceiveError, URGENT, Which};
use crate::iucv::event::{Audit, Completion};
use crate::iucv::outgoing::{Entry, State};
use crate::iucv::record::MessageId;
use crate::path::{Parked, PullError};
use crate::queue::Violation;

/// Why nothing was purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PurgeError {
    /// No message of this identity is outstanding.
    #[error("no such message is outstanding")]
    NotFound,
    /// The message is of another class.
    #[error("the message of this identity is of class {class}")]
    WrongClass {
        /// Of which source class it is.
        class: u32,
    },
    /// The message is complete: its completion waits to be taken.
    #[error("the message is complete already")]
    Complete,
}

impl Path {
    /// (TEST COMPLETION) Takes a completion, and copies its reply, or what is left of it, into `target`.
    /// `Class` and `Message` go by the source class. How many bytes were copied, and how many are left:
    /// while there are some, the completion is found by its identity alone. None if there is no such
    /// completion. A reply that cannot be had any more, for the path has ended before all of it was in
    /// place, is none: its message was severed first.
    ///
    /// # Errors
    /// [`ReceiveError::WrongClass`].
    #[inline]
    pub fn complete(
        &mut self,
        which: Which,
        target: &mut [u8],
    ) -> Result<Option<(Completion, usize, usize)>, ReceiveError> {
        // Whoever waits for one reply takes it where it lies: to keep it and find it again costs as much as
        // all the rest.
        self.poll_while(|path| path.front_done.is_none());
        if let Some(done) = &self.front_done
            && is_meant(which, done.completion.id, done.completion.source_class)
            && (self.done.is_empty() && self.received.is_empty()
                || matches!(which, Which::Message { .. }))
        {
            let mut done = self.front_done.take().expect("looked at just now");
            let read = done.body.read(&mut self.receivers[URGENT], target);
            return Ok(Some(self.end_completing(done, read)));
        }
        if which == Which::Any
            && self.front_done.is_none()
            && let Some(id) = self.received.pop_front()
        {
            let entry = self.table.get_mut(id).expect("complete, and not taken");
            let completion = completion_of(entry, Audit::default());
            self.table.close(id);
            return Ok(Some((completion, 0, 0)));
        }
        self.poll();
        self.index_received();
        if let Some(done) = self.front_done.take() {
            self.park_done(done);
        }
        let id = match which {
            Which::Any => self.done.next(true).or_else(|| self.done.next(false)),
            Which::Class(class) => {
                let next = |priority| self.done.next_of_class(class, priority);
                next(true).or_else(|| next(false))
            }
            Which::Message { id, class } => match self.done.get(id) {
                Some(done) if done.of.source_class != class => {
                    return Err(ReceiveError::WrongClass { class: done.of.source_class });
                }
                found => found.map(|_| id),
            },
        };
        Ok(id.map(|id| self.complete_kept(id, target)))
    }

    /// Takes a completion that is kept.
    fn complete_kept(&mut self, id: MessageId, target: &mut [u8]) -> (Completion, usize, usize) {
        let Kept { of: completion, body } = self.done.get_mut(id).expect("found");
        let completion = *completion;
        let read = body.read(&mut self.receivers[URGENT], target);
        let residual = body.left();
        match read {
            Ok(bytes) => {
                if residual == 0 {
                    self.discard(id);
                } else {
                    self.done.unlist(id);
                }
                (completion, bytes, residual)
            }
            Err(error) => {
                self.drop_done(id);
                self.lose_reply(id, error)
            }
        }
    }

    /// Takes a completion whose reply was taken in part, and gives the rest of the reply up.
    pub fn discard(&mut self, id: MessageId) {
        if self.drop_done(id) {
            self.table.close(id);
        }
    }

    fn drop_done(&mut self, id: MessageId) -> bool {
        let Some(Kept { body, .. }) = self.done.remove(id) else { return false };
        self.parked_bytes -= body.bytes();
        body.release(&mut self.receivers[URGENT]);
        true
    }

    pub(super) fn end_completing(
        &mut self,
        mut done: Done,
        read: Result<usize, PullError>,
    ) -> (Completion, usize, usize) {
        let residual = done.body.left();
        let completion = done.completion;
        match read {
            Ok(bytes) if residual == 0 => {
                done.body.release(&mut self.receivers[URGENT]);
                self.table.close(completion.id);
                (completion, bytes, residual)
            }
            Ok(bytes) => {
                done.told = true;
                let id = done.completion.id;
                self.park_done(done);
                self.done.unlist(id);
                (completion, bytes, residual)
            }
            Err(error) => {
                done.body.release(&mut self.receivers[URGENT]);
                self.lose_reply(completion.id, error)
            }
        }
    }

    /// A reply cannot be had any more: its message was severed first.
    #[cold]
    fn lose_reply(&mut self, id: MessageId, error: PullError) -> (Completion, usize, usize) {
        let entry = self.table.get_mut(id).expect("complete, and not taken");
        let severed = completion_of(entry, Audit::SEVERED);
        self.table.close(id);
        match error {
            // Nobody takes a reply back.
            PullError::Withdrawn => self.accuse(URGENT, Violation::Record),
            // What came before the end comes before it here too.
            PullError::Severed(_) => self.poll(),
        }
        (severed, 0, 0)
    }

    /// A one-way message of ours was received.
    pub(super) fn complete_one_way(&mut self, id: MessageId) -> Result<(), Violation> {
        let entry = self.table.get_mut(id).ok_or(Violation::Record)?;
        match entry.state {
            State::Sent if entry.is_two_way => return Err(Violation::Record),
            State::Sent if !entry.quiet => {
                entry.state = State::Complete;
                if entry.priority || !self.done.is_empty() {
                    let completion = completion_of(entry, Audit::default());
                    self.keep_done(completion, Parked::none(), false);
                } else {
                    self.received.push_back(id);
                }
            }
            State::Sent => self.table.close(id),
            _ => return self.table.end_purged(id),
        }
        Ok(())
    }

    /// Makes one-way messages that were received findable.
    pub(super) fn index_received(&mut self) {
        for id in std::mem::take(&mut self.received) {
            let entry = self.table.get_mut(id).expect("complete, and not taken");
            let completion = completion_of(entry, Audit::default());
            self.add_done(completion, Parked::none(), false);
        }
    }

    /// Takes a reply out of the queue's way.
    pub(super) fn park_done(&mut self, done: Done) {
        let Done { completion, body, told } = done;
        let body = body.park(&mut self.receivers[URGENT]);
        self.keep_done(completion, body, told);
    }

    /// Keeps a completion, behind those of before.
    pub(super) fn keep_done(&mut self, completion: Completion, body: Parked, told: bool) {
        self.index_received();
        self.add_done(completion, body, told);
    }

    fn add_done(&mut self, completion: Completion, body: Parked, told: bool) {
        self.parked_bytes += body.bytes();
        let Completion { id, source_class, priority, .. } = completion;
        self.done.add(id, source_class, priority, told, Kept { of: completion, body });
    }

    /// (PURGE) Takes a message of ours back. It is not received, or its reply is not wanted, whichever it
    /// had come to; if it is complete by the time the target hears of it, that is not told any more.
    /// The target's copy goes when the target looks.
    ///
    /// # Errors
    /// [`PurgeError`].
    pub fn purge(&mut self, id: MessageId, source_class: u32) -> Result<(), PurgeError> {
        self.poll();
        let entry = self.table.get_mut(id).ok_or(PurgeError::NotFound)?;
        if entry.source_class != source_class {
            return Err(PurgeError::WrongClass { class: entry.source_class });
        }
        match entry.state {
            State::Sent => {}
            State::Complete => return Err(PurgeError::Complete),
            State::Purging | State::PurgedLate | State::Purged | State::Free => {
                return Err(PurgeError::NotFound);
            }
        }
        entry.state = State::Purging;
        // The target must find the message when it hears that it is purged.
        self.senders[PLAIN].flush();
        self.purged.push_back(id);
        self.flush();
        Ok(())
    }

    /// Completes all that is outstanding: the path was severed first.
    pub(super) fn fail_outstanding(&mut self) {
        for id in self.table.sent() {
            let entry = self.table.get_mut(id).expect("listed");
            entry.state = State::Complete;
            let completion = completion_of(entry, Audit::SEVERED);
            self.keep_done(completion, Parked::none(), false);
        }
    }
}

fn is_meant(which: Which, own_id: MessageId, own_class: u32) -> bool {
    match which {
        Which::Any => true,
        Which::Class(class) => class == own_class,
        Which::Message { id, class } => id == own_id && class == own_class,
    }
}

pub(super) fn completion_of(entry: &Entry, audit: Audit) -> Completion {
    Completion {
        id: entry.id,
        source_class: entry.source_class,
        tag: entry.tag,
        priority: entry.priority,
        audit,
        answer: None,
        parameters: false,
    }
}
