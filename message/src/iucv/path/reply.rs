//! Replying, and refusing.

use super::{Awaiting, Path, URGENT};
use crate::iucv::record::{MessageId, PARAMETER_BYTES, Record};
use fabric::path::{self, Lack, Sender, Severed};

/// Why there was no reply, and no rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// The source is too far behind: it does not take what is sent.
    #[error("the source is too far behind")]
    Full,
    /// Something is missing that no wait brings back.
    #[error("nothing was sent: {0}")]
    Lacking(Lack),
    /// (1) The path has ended.
    #[error(transparent)]
    Severed(#[from] Severed),
}

impl From<path::SendError> for ReplyError {
    fn from(error: path::SendError) -> ReplyError {
        match error {
            path::SendError::Full | path::SendError::Quiesced => ReplyError::Full,
            path::SendError::TooLong { most } => ReplyError::TooLong { most },
            path::SendError::Lacking(lack) => ReplyError::Lacking(lack),
            path::SendError::Severed(severed) => ReplyError::Severed(severed),
        }
    }
}

impl Path {
    /// (REPLY) Replies to a message that was received. The reply is with the source when this returns.
    ///
    /// # Errors
    /// [`ReplyError`]; the message waits for its reply as before.
    #[inline]
    pub fn reply(&mut self, id: MessageId, priority: bool, data: &[u8]) -> Result<(), ReplyError> {
        let record = Record::Reply { id, parameters: false, priority };
        self.reply_by(record, data.len(), |sender, head| sender.send(head, data))
    }

    /// Replies with `bytes` that `build` makes in place.
    ///
    /// # Errors
    /// As [`Path::reply`]; `build` was not called then.
    pub fn reply_built(
        &mut self,
        id: MessageId,
        priority: bool,
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<(), ReplyError> {
        let record = Record::Reply { id, parameters: false, priority };
        self.reply_by(record, bytes, |sender, head| sender.send_built(head, bytes, build))
    }

    /// (REPLY DATA=PRMMSG) Replies with eight bytes in the parameter list.
    ///
    /// # Errors
    /// As [`Path::reply`].
    pub fn reply_parameters(
        &mut self,
        id: MessageId,
        priority: bool,
        data: [u8; PARAMETER_BYTES],
    ) -> Result<(), ReplyError> {
        let record = Record::Reply { id, parameters: true, priority };
        self.reply_by(record, data.len(), |sender, head| sender.send(head, &data))
    }

    #[inline]
    pub(super) fn reply_by(
        &mut self,
        record: Record,
        bytes: usize,
        send: impl FnOnce(&mut Sender, &[u8]) -> Result<(), path::SendError>,
    ) -> Result<(), ReplyError> {
        let Record::Reply { id, .. } = record else { unreachable!("called with a reply") };
        if self.receivers[URGENT].is_ready() {
            // It may have been purged.
            self.poll();
        }
        let awaiting = self.awaiting_of(id).ok_or_else(|| self.no_such_message(id))?;
        if bytes as u64 > u64::from(awaiting.answer) {
            return Err(ReplyError::TooLong { most: awaiting.answer.into() });
        }
        let (head, length) = record.bytes();
        send(&mut self.senders[URGENT], &head[..length])?;
        self.forget_awaiting(id);
        Ok(())
    }

    pub(super) fn awaiting_of(&self, id: MessageId) -> Option<Awaiting> {
        let awaiting = self.awaiting.get(id.place()).copied().flatten();
        awaiting.filter(|awaiting| awaiting.id == id)
    }

    pub(super) fn forget_awaiting(&mut self, id: MessageId) {
        self.awaiting[id.place()] = None;
        self.awaiting_count -= 1;
    }

    pub(super) fn no_such_message(&self, id: MessageId) -> ReplyError {
        match self.severed {
            Some(severed) => severed.into(),
            None if self.pending.body(id).is_some() => ReplyError::NotReceived,
            None => ReplyError::NotFound,
        }
    }

    /// (REJECT) Refuses a message, received or not: its source is told.
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
