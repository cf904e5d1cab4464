//! Sending.

use super::{PLAIN, Path, URGENT, queue_of};
use crate::iucv::outgoing::{Outgoing, SendError};
use crate::iucv::record::{MessageHead, MessageId, PARAMETER_BYTES};
use fabric::path::{self, Sender};

impl Path {
    /// (SEND) Sends a message: it is with the target when this returns.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    #[inline]
    pub fn send(&mut self, outgoing: &Outgoing, data: &[u8]) -> Result<MessageId, SendError> {
        self.send_by(outgoing, false, |sender, head| sender.send(head, data))
    }

    /// Pushes a message: it may be held back while the target is behind, to go with those that follow, at
    /// the latest with [`Path::flush`].
    ///
    /// # Errors
    /// As [`Path::send`].
    #[inline(always)]
    pub fn push(&mut self, outgoing: &Outgoing, data: &[u8]) -> Result<MessageId, SendError> {
        if outgoing.answer.is_some() || outgoing.priority {
            return self.push_otherwise(outgoing, data);
        }
        let id = self.open(outgoing)?;
        let head = MessageHead::of(outgoing, id, false).one_way_bytes();
        let sent = self.senders[PLAIN].push(&head, data);
        self.close_unless(id, sent)
    }

    #[inline(never)]
    fn push_otherwise(&mut self, outgoing: &Outgoing, data: &[u8]) -> Result<MessageId, SendError> {
        self.send_by(outgoing, false, |sender, head| sender.push(head, data))
    }

    /// Sends a message of `bytes` that `build` makes in place.
    ///
    /// # Errors
    /// As [`Path::send`]; `build` was not called then.
    #[inline]
    pub fn send_built(
        &mut self,
        outgoing: &Outgoing,
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<MessageId, SendError> {
        self.send_by(outgoing, false, |sender, head| sender.send_built(head, bytes, build))
    }

    /// (SEND DATA=PRMMSG) Sends eight bytes in the parameter list: the target has them with the event.
    ///
    /// # Errors
    /// As [`Path::send`].
    pub fn send_parameters(
        &mut self,
        outgoing: &Outgoing,
        data: [u8; PARAMETER_BYTES],
    ) -> Result<MessageId, SendError> {
        if !self.limits.parameters_for_them {
            return Err(SendError::NoParameters);
        }
        self.send_by(outgoing, true, |sender, head| sender.send(head, &data))
    }

    fn send_by(
        &mut self,
        outgoing: &Outgoing,
        parameters: bool,
        send: impl FnOnce(&mut Sender, &[u8]) -> Result<(), path::SendError>,
    ) -> Result<MessageId, SendError> {
        let id = self.open(outgoing)?;
        let (head, length) = MessageHead::of(outgoing, id, parameters).bytes();
        let sent = send(&mut self.senders[queue_of(outgoing.priority)], &head[..length]);
        self.close_unless(id, sent)
    }

    /// Makes an entry for a message.
    #[inline(always)]
    fn open(&mut self, outgoing: &Outgoing) -> Result<MessageId, SendError> {
        if self.receivers[URGENT].is_ready() || self.table.is_full() {
            self.poll();
        }
        if let Some(severed) = self.severed {
            return Err(severed.into());
        }
        if self.is_quiet {
            return Err(SendError::Quiesced);
        }
        self.table.open(outgoing).ok_or_else(|| {
            // What we have not said may be what the other side waits for.
            self.flush();
            SendError::Limit { limit: self.limits.ours }
        })
    }

    #[inline(always)]
    fn close_unless(
        &mut self,
        id: MessageId,
        sent: Result<(), path::SendError>,
    ) -> Result<MessageId, SendError> {
        match sent {
            Ok(()) => Ok(id),
            Err(error) => {
                self.table.close(id);
                Err(error.into())
            }
        }
    }
}
