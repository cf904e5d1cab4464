//! What becomes of our messages.

use super::{Done, PLAIN, Path, ReceiveError, URGENT, Which};
use crate::iucv::event::{Audit, Completion};
use crate::iucv::outgoing::{Entry, State};
use crate::iucv::record::MessageId;
use crate::path::{Body, PullError};
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
                Some(done) if done.completion.source_class != class => {
                    return Err(ReceiveError::WrongClass { class: done.completion.source_class });
                }
                found => found.map(|_| id),
            },
        };
        let Some(id) = id else { return Ok(None) };
        let mut done = self.done.remove(id).expect("found");
        self.parked_bytes -= done.body.parked_bytes();
        let read = done.body.read(&mut self.receivers[URGENT], target);
        Ok(Some(self.end_completing(done, read)))
    }

    /// Takes a completion whose reply was taken in part, and gives the rest of the reply up.
    pub fn discard(&mut self, id: MessageId) {
        if let Some(done) = self.done.remove(id) {
            self.parked_bytes -= done.body.parked_bytes();
            done.body.release(&mut self.receivers[URGENT]);
            self.table.close(id);
        }
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
                let entry = self.table.get_mut(completion.id).expect("complete, and not taken");
                let severed = completion_of(entry, Audit::SEVERED);
                self.table.close(completion.id);
                if error == PullError::Withdrawn {
                    // Nobody takes a reply back.
                    self.accuse(URGENT, Violation::Record);
                }
                (severed, 0, 0)
            }
        }
    }

    /// A one-way message of ours was received.
    pub(super) fn complete_one_way(&mut self, id: MessageId) -> Result<(), Violation> {
        let entry = self.table.get_mut(id).ok_or(Violation::Record)?;
        match entry.state {
            State::Sent if entry.outgoing.answer.is_some() => return Err(Violation::Record),
            State::Sent if !entry.outgoing.quiet => {
                entry.state = State::Complete;
                if entry.outgoing.priority || !self.done.is_empty() {
                    let completion = completion_of(entry, Audit::default());
                    self.park_done(Done { completion, body: Body::none(), told: false });
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
            let (source_class, priority) = (entry.outgoing.source_class, entry.outgoing.priority);
            let completion = completion_of(entry, Audit::default());
            let done = Done { completion, body: Body::none(), told: false };
            self.done.add(id, source_class, priority, false, done);
        }
    }

    pub(super) fn park_done(&mut self, mut done: Done) {
        self.index_received();
        done.body.park(&mut self.receivers[URGENT]);
        self.parked_bytes += done.body.parked_bytes();
        let Completion { id, source_class, priority, .. } = done.completion;
        self.done.add(id, source_class, priority, done.told, done);
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
        if entry.outgoing.source_class != source_class {
            return Err(PurgeError::WrongClass { class: entry.outgoing.source_class });
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
            self.park_done(Done { completion, body: Body::none(), told: false });
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
        source_class: entry.outgoing.source_class,
        tag: entry.outgoing.tag,
        priority: entry.outgoing.priority,
        audit,
        answer: None,
        parameters: false,
    }
}
