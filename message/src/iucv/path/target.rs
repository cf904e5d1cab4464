//! What a target does: it receives, replies, and rejects.

use super::{Awaiting, PLAIN, Path, URGENT, Which};
use crate::body::BodyReader;
use crate::iucv::event::PendingMessage;
use crate::iucv::inbox::Found;
use crate::iucv::record::{MessageId, PARAMETER_BYTES, Record};
use fabric::path::{self, Lack, MessageRef, Sender, Severed};
use fabric::queue::Violation;

/// What came of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The message.
    pub message: PendingMessage,
    /// How many bytes were copied now.
    pub bytes: usize,
    /// How many are left: they are copied by the next call. Once some were copied and some are left, the
    /// message is received in part: it is found by its identity alone. A message of more than a page may
    /// still be on its way; then there can be some left though there was room for more.
    pub residual: usize,
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// There is no such message, not any more (5, its source has purged it), or not in sight: a search polls
    /// some hundreds that have come, and the path is ready while there are more.
    #[error("no such message waits")]
    NotFound,
    /// (9) The message of this identity is of another class.
    #[error("the message of this identity is of class {class}")]
    WrongClass {
        /// Of which class it is.
        class: u32,
    },
    /// The path has ended, and nothing that was sent is left to be received.
    #[error(transparent)]
    Severed(#[from] Severed),
}

/// Where a message lies that was received in place, until the next verb.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    queue: usize,
    at: MessageRef,
}

/// Why there was no reply, and no rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// There is no such message, or (5) its source has purged it.
    #[error("no such message waits for a reply: it was never sent, is answered, or was purged")]
    NotFound,
    /// The message was not received yet.
    #[error("a message is received before it is replied to")]
    NotReceived,
    /// (23) The reply is longer than its source takes.
    #[error("the source takes a reply of {most} bytes at most")]
    TooLong {
        /// How long it may be.
        most: u64,
    },
    /// Something is missing that no wait brings back.
    #[error("nothing was sent: {0}")]
    Lacking(Lack),
    /// (1) The path has ended.
    #[error(transparent)]
    Severed(#[from] Severed),
}

/// Why a verb that does not wait has sent no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryReplyError {
    /// The source is too far behind: it does not take what is sent.
    #[error("the source is too far behind")]
    Full,
    /// Waiting for room would not have helped.
    #[error(transparent)]
    Reply(#[from] ReplyError),
}

impl From<path::SendError> for TryReplyError {
    fn from(error: path::SendError) -> TryReplyError {
        TryReplyError::Reply(match error {
            path::SendError::Full | path::SendError::Quiesced => return TryReplyError::Full,
            path::SendError::TooLong { most } => ReplyError::TooLong { most },
            path::SendError::Lacking(lack) => ReplyError::Lacking(lack),
            path::SendError::Severed(severed) => ReplyError::Severed(severed),
        })
    }
}

impl Path {
    /// (RECEIVE) Copies a message, or what is left of it, into `target`: as much as fits and is in place, 1 MiB at
    /// most. When nothing is left, a one-way message is complete and a two-way message waits for its reply.
    ///
    /// # Errors
    /// [`ReceiveError`].
    #[inline]
    pub fn receive(&mut self, which: Which, target: &mut [u8]) -> Result<Received, ReceiveError> {
        let found = match self.next_packed(which) {
            Some((message, at)) if message.bytes <= target.len() => {
                let bytes = message.bytes;
                target[..bytes].copy_from_slice(self.receivers[PLAIN].message(at).body);
                self.end_receiving(&message);
                return Ok(Received { message, bytes, residual: 0 });
            }
            Some((of, at)) => {
                self.pending.put_in_front(of, BodyReader::at(at, 0));
                Found::Front(PLAIN)
            }
            None => self.find(which)?,
        };
        let (message, read) = self.pending.read(found, &mut self.receivers, target);
        let (bytes, residual) = read?;
        if residual == 0 {
            self.end_receiving(&message);
        }
        Ok(Received { message, bytes, residual })
    }

    /// Receives the next message where it lies if it was packed and nothing else waits, which is so for most
    /// of a stream. None, and nothing is received, if it is not.
    #[inline(always)]
    pub fn receive_packed(&mut self) -> Option<(PendingMessage, InPlace)> {
        let (pending, at) = self.next_packed(Which::Any)?;
        self.end_receiving(&pending);
        Some((pending, InPlace { queue: PLAIN, at }))
    }

    /// (RECEIVE) Receives a message where it lies, until the next verb: one that is in front of its queue, in
    /// memory of our own. None, and nothing is received, if it lies elsewhere: use [`Path::receive`] then.
    ///
    /// # Errors
    /// [`ReceiveError`].
    #[inline(never)]
    pub fn receive_in_place(
        &mut self,
        which: Which,
    ) -> Result<Option<(PendingMessage, InPlace)>, ReceiveError> {
        let found = self.find(which)?;
        let (Found::Front(queue), Some(at)) = (found, self.pending.get(found).body.message())
        else {
            return Ok(None);
        };
        let pending = self.pending.take_found(found, &mut self.receivers);
        self.end_receiving(&pending);
        Ok(Some((pending, InPlace { queue, at })))
    }

    /// The data of a message that was received in place.
    ///
    /// # Panics
    /// Perhaps, if another verb came between: the message is in place only until then.
    #[inline(always)]
    pub fn data(&self, in_place: InPlace) -> &[u8] {
        self.receivers[in_place.queue].message(in_place.at).body
    }

    /// The next message, if there is nothing to choose from: it was packed and nothing else waits. A
    /// search as long as [`Path::find`] costs more than all the rest of such a message.
    #[inline(always)]
    fn next_packed(&mut self, which: Which) -> Option<(PendingMessage, MessageRef)> {
        if which != Which::Any
            || !self.pending.is_empty()
            || !self.purged_ahead.is_empty()
            || self.is_final
            || self.receivers[URGENT].is_ready()
        {
            return None;
        }
        // An error comes again in the full search.
        let at = self.receivers[PLAIN].poll_short().ok()??;
        let message = self.receivers[PLAIN].message(at);
        let bytes = message.body.len();
        let admitted = match Record::parse(PLAIN, message.head) {
            Ok(Record::Message(head)) => self.admit_beside(0, PLAIN, head, bytes),
            Ok(_) | Err(_) => None,
        };
        if admitted.is_none() {
            self.fail(Violation::Record.into());
        }
        Some((admitted?, at))
    }

    /// Searches for a message.
    fn find(&mut self, which: Which) -> Result<Found, ReceiveError> {
        if !self.is_final {
            // Control records may stand in front of a message with priority.
            self.poll_while(|path| which != Which::Any || path.pending.front(URGENT).is_none());
            let mut found = self.pending.find(which);
            self.advance_while(|path| {
                let more = matches!(found, Ok(None)) && path.advance_plain();
                if more {
                    found = path.pending.find(which);
                }
                more
            });
            if let Some(found) = found? {
                return Ok(found);
            }
        }
        // A search that was broken off goes on where it was, though the other side is gone.
        let is_over = !self.is_urgent_ready() && !self.is_queue_ready(PLAIN);
        let severed = self.severed.filter(|_| is_over);
        Err(severed.map_or(ReceiveError::NotFound, ReceiveError::Severed))
    }

    /// Receives what is left of a message that was received in part, and gives it up: it is as if all of it
    /// had been received.
    pub fn skip(&mut self, id: MessageId) {
        if let Some(message) = self.pending.take(id, &mut self.receivers) {
            self.end_receiving(&message);
        }
    }

    /// All of a message has been received.
    #[inline]
    fn end_receiving(&mut self, message: &PendingMessage) {
        let id = message.id;
        match message.reply_bytes_max {
            None => {
                self.completed.extend_from_slice(&id.0.to_le_bytes());
                if self.completed.len() >= self.completed_bytes_max {
                    // If there is no room it is sent later.
                    let _ = self.send_completed();
                }
            }
            Some(reply_bytes_max) => {
                let index = id.index();
                if self.awaiting.len() <= index {
                    self.awaiting.resize(index + 1, None);
                }
                self.awaiting[index] = Some(Awaiting { id, reply_bytes_max });
                self.awaiting_count += 1;
            }
        }
    }

    /// (DESCRIBE, TEST MESSAGE) The message that is meant, which stays as it is.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn describe(&mut self, which: Which) -> Result<PendingMessage, ReceiveError> {
        let found = self.find(which)?;
        Ok(self.pending.get(found).of)
    }

    /// (REPLY) Replies to a message that was received. The reply is with the source when this returns.
    ///
    /// # Errors
    /// [`TryReplyError`]; the message waits for its reply as before.
    #[inline]
    pub fn reply(
        &mut self,
        id: MessageId,
        priority: bool,
        data: &[u8],
    ) -> Result<(), TryReplyError> {
        self.reply_by(id, false, priority, data.len(), |sender, head| sender.send(head, data))
    }

    /// Replies with `bytes` that `build` makes in place.
    ///
    /// # Errors
    /// [`TryReplyError`]; the message waits for its reply as before, whether `build` was called or not.
    pub fn reply_built(
        &mut self,
        id: MessageId,
        priority: bool,
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<(), TryReplyError> {
        let send = |sender: &mut Sender, head: &[u8]| sender.send_built(head, bytes, build);
        self.reply_by(id, false, priority, bytes, send)
    }

    /// (REPLY DATA=PRMMSG) Replies with eight bytes in the parameter list.
    ///
    /// # Errors
    /// [`TryReplyError`]; the message waits for its reply as before.
    pub fn reply_parameters(
        &mut self,
        id: MessageId,
        priority: bool,
        data: [u8; PARAMETER_BYTES],
    ) -> Result<(), TryReplyError> {
        self.reply_by(id, true, priority, data.len(), |sender, head| sender.send(head, &data))
    }

    #[inline]
    fn reply_by(
        &mut self,
        id: MessageId,
        parameters: bool,
        priority: bool,
        bytes: usize,
        send: impl FnOnce(&mut Sender, &[u8]) -> Result<(), path::SendError>,
    ) -> Result<(), TryReplyError> {
        if self.receivers[URGENT].is_ready() {
            // It may have been purged.
            self.poll();
        }
        let awaiting = self.awaiting_of(id).ok_or_else(|| self.no_such_message(id))?;
        if bytes as u64 > u64::from(awaiting.reply_bytes_max) {
            let most = awaiting.reply_bytes_max.into();
            return Err(ReplyError::TooLong { most }.into());
        }
        let (head, length) = Record::Reply { id, parameters, priority }.bytes();
        send(&mut self.senders[URGENT], &head[..length])?;
        self.forget_awaiting(id);
        Ok(())
    }

    pub(super) fn awaiting_of(&self, id: MessageId) -> Option<Awaiting> {
        let awaiting = self.awaiting.get(id.index()).copied().flatten();
        awaiting.filter(|awaiting| awaiting.id == id)
    }

    pub(super) fn forget_awaiting(&mut self, id: MessageId) {
        self.awaiting[id.index()] = None;
        self.awaiting_count -= 1;
    }

    pub(super) fn no_such_message(&self, id: MessageId) -> ReplyError {
        match self.severed {
            Some(severed) => severed.into(),
            None if self.pending.body(id).is_some() => ReplyError::NotReceived,
            None => ReplyError::NotFound,
        }
    }

    /// (REJECT) Refuses a message, received or not: its source is notified.
    ///
    /// # Errors
    /// [`ReplyError`].
    pub fn reject(&mut self, id: MessageId) -> Result<(), ReplyError> {
        self.poll();
        if !self.forget(id) {
            return Err(self.no_such_message(id));
        }
        self.ended.push_back(Record::Rejected(id));
        self.flush();
        Ok(())
    }

    /// Forgets a message of the other side's, whatever its state; whether there was one.
    pub(super) fn forget(&mut self, id: MessageId) -> bool {
        let is_awaiting = self.awaiting_of(id).is_some();
        if is_awaiting {
            self.forget_awaiting(id);
        }
        is_awaiting || self.pending.take(id, &mut self.receivers).is_some()
    }
}
