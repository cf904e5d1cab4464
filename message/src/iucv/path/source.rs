//! What a source does: it sends, purges, and takes completions.

use super::{PLAIN, Path, ReceiveError, URGENT, Which};
use crate::iucv::event::{Audit, Completion};
use crate::iucv::outgoing::{Outgoing, SendError, State, TrySendError};
use crate::iucv::record::{MessageHead, MessageId, PARAMETER_BYTES};
use fabric::path::{self, Sender};

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
    /// (SEND) Sends a message: it is with the target when this returns.
    ///
    /// # Errors
    /// [`TrySendError`]; nothing was sent then.
    #[inline]
    pub fn send(&mut self, outgoing: &Outgoing, data: &[u8]) -> Result<MessageId, TrySendError> {
        self.send_by(outgoing, false, |sender, head| sender.send(head, data))
    }

    /// Pushes a message: it may be held back while the target is behind, to go with those that follow, at
    /// the latest with [`Path::flush`].
    ///
    /// # Errors
    /// [`TrySendError`]; nothing was pushed then.
    #[inline(always)]
    pub fn push(&mut self, outgoing: &Outgoing, data: &[u8]) -> Result<MessageId, TrySendError> {
        if outgoing.reply_bytes_max.is_some() || outgoing.priority {
            return self.push_otherwise(outgoing, data);
        }
        let id = self.open(outgoing)?;
        let head = MessageHead::of(outgoing, id, false).one_way_bytes();
        let sent = self.senders[PLAIN].push(&head, data);
        self.close_unless(id, sent)
    }

    #[inline(never)]
    fn push_otherwise(
        &mut self,
        outgoing: &Outgoing,
        data: &[u8],
    ) -> Result<MessageId, TrySendError> {
        self.send_by(outgoing, false, |sender, head| sender.push(head, data))
    }

    /// Sends a message of `bytes` that `build` makes in place.
    ///
    /// # Errors
    /// [`TrySendError`]; nothing was sent then, whether `build` was called or not.
    #[inline]
    pub fn send_built(
        &mut self,
        outgoing: &Outgoing,
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<MessageId, TrySendError> {
        self.send_by(outgoing, false, |sender, head| sender.send_built(head, bytes, build))
    }

    /// (SEND DATA=PRMMSG) Sends eight bytes in the parameter list: the target has them with the event.
    ///
    /// # Errors
    /// [`TrySendError`]; nothing was sent then.
    pub fn send_parameters(
        &mut self,
        outgoing: &Outgoing,
        data: [u8; PARAMETER_BYTES],
    ) -> Result<MessageId, TrySendError> {
        if !self.limits.parameters_for_them {
            return Err(SendError::NoParameters.into());
        }
        self.send_by(outgoing, true, |sender, head| sender.send(head, &data))
    }

    fn send_by(
        &mut self,
        outgoing: &Outgoing,
        parameters: bool,
        send: impl FnOnce(&mut Sender, &[u8]) -> Result<(), path::SendError>,
    ) -> Result<MessageId, TrySendError> {
        let id = self.open(outgoing)?;
        let (head, length) = MessageHead::of(outgoing, id, parameters).bytes();
        let sent = send(&mut self.senders[usize::from(outgoing.priority)], &head[..length]);
        self.close_unless(id, sent)
    }

    /// Makes an entry for a message.
    #[inline(always)]
    fn open(&mut self, outgoing: &Outgoing) -> Result<MessageId, TrySendError> {
        if self.receivers[URGENT].is_ready() || self.table.is_full() {
            self.poll();
        }
        if let Some(severed) = self.severed {
            return Err(SendError::Severed(severed).into());
        }
        if self.is_quiet {
            return Err(SendError::Quiesced.into());
        }
        self.table.open(outgoing).ok_or_else(|| {
            // The other side may wait for a control record that we have not sent.
            self.flush();
            SendError::Limit { limit: self.limits.ours }.into()
        })
    }

    #[inline(always)]
    fn close_unless(
        &mut self,
        id: MessageId,
        sent: Result<(), path::SendError>,
    ) -> Result<MessageId, TrySendError> {
        match sent {
            Ok(()) => Ok(id),
            Err(error) => {
                self.table.close(id);
                Err(error.into())
            }
        }
    }

    /// (TEST COMPLETION) Takes a completion, and copies its reply, or what is left of it, into `target`.
    /// `Class` and `Message` go by the source class. How many bytes were copied, and how many are left: once
    /// some were copied and some are left, the completion is found by its identity alone. None if there is
    /// no such completion. A reply that cannot be had any more, for the path has ended before all of it was in
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
        // A source that waits for one reply takes it where it lies: to buffer it and find it again costs as much as
        // all the rest.
        self.poll_while(|path| path.complete.front(URGENT).is_none());
        let mut found = self.complete.find(which)?;
        if found.is_none() || self.complete.len() > 1 && !matches!(which, Which::Message { .. }) {
            self.poll();
            found = self.complete.find(which)?;
        }
        let Some(found) = found else { return Ok(None) };
        let (completion, read) = self.complete.read(found, &mut self.receivers, target);
        Ok(Some(match read {
            Ok((bytes, residual)) => {
                if residual == 0 {
                    self.table.close(completion.id);
                }
                (completion, bytes, residual)
            }
            Err(_) => (self.lose_reply(completion), 0, 0),
        }))
    }

    /// A reply cannot be had any more: its message was severed first.
    #[cold]
    fn lose_reply(&mut self, completion: Completion) -> Completion {
        let entry = *self.table.get_mut(completion.id).expect("complete, and not taken");
        self.table.close(entry.id);
        // What came before the end comes before it here too.
        self.poll();
        entry.completion(Audit::SEVERED)
    }

    /// Takes a completion whose reply was taken in part, and gives the rest of the reply up.
    pub fn discard(&mut self, id: MessageId) {
        if self.complete.take(id, &mut self.receivers).is_some() {
            self.table.close(id);
        }
    }

    /// (PURGE) Takes a message of ours back. The message is not received, or its reply is dropped, whichever it
    /// had come to; if the message is complete by the time the target learns of the purge, no completion comes.
    /// The target drops its copy when it polls.
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
            State::Sent => entry.state = State::Purging,
            State::Complete => return Err(PurgeError::Complete),
            _ => return Err(PurgeError::NotFound),
        }
        // The target must find the message when it hears that it is purged.
        self.senders[PLAIN].flush();
        self.purged.push_back(id);
        self.flush();
        Ok(())
    }
}
