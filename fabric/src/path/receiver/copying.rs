//! Large messages, pulled out of the sender's storage; and messages received whole, copied piece by piece.

use os::storage::Scratch;

use super::Receiver;
use super::incoming::{Announced, List, Memory, MessageRef};
use crate::path::half::NotOurs;
use crate::path::severed::{Reason, Severed};

/// Bytes that one call copies at most, so that a thread that serves many paths is not kept by one.
const COPIED_PER_CALL_MAX: usize = 1 << 20;

/// Pulls of one call at most: a sender could fill in a byte for each. An honest one fills in 64 KiB at a time.
const PULLS_PER_CALL_MAX: usize = COPIED_PER_CALL_MAX / (64 << 10);

/// A large message that is received whole.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) message: Announced,
    pub(super) target: Scratch,
}

impl Receiver {
    /// Room for what does not lie in one page.
    pub(super) fn large_room(&mut self, bytes: usize) -> Result<Scratch, Severed> {
        match self.large.take().filter(|large| large.bytes().len() >= bytes) {
            Some(room) => Ok(room),
            None => self.scratch(bytes).map_err(|reason| self.fail(reason)),
        }
    }

    /// Goes on copying a large message. It is there once it is whole.
    pub(super) fn copy_on(&mut self) -> Result<Option<MessageRef>, Severed> {
        let Some(Copying { mut message, mut target }) = self.copying.take() else {
            return Ok(None);
        };
        let end = message.body_bytes().min(message.pulled + COPIED_PER_CALL_MAX);
        for _ in 0..PULLS_PER_CALL_MAX {
            let at = message.pulled;
            if at == end || self.pull(&mut message, &mut target.bytes_mut()[at..end])? == 0 {
                break;
            }
        }
        if message.left_bytes() > 0 {
            self.copying = Some(Copying { message, target });
            return Ok(None);
        }
        let (head, bytes) = (message.head().len(), message.body_bytes());
        self.in_place[..head].copy_from_slice(message.head());
        assert!(self.release(message).is_ok(), "it was our own");
        self.large = Some(target);
        Ok(Some(MessageRef { memory: Memory::Large, at: 0, head, bytes }))
    }

    /// Copies what a list points to, one entry behind the other, as if it were a message.
    pub(super) fn copy_list(&mut self, list: List) -> Result<MessageRef, Severed> {
        let bytes = list.bytes();
        let mut target = self.large_room(bytes)?;
        let mut rest = &mut target.bytes_mut()[..bytes];
        for (_, view) in &list.parts {
            let (part, behind) = rest.split_at_mut(view.bytes());
            view.read(0, part).expect("all of it");
            rest = behind;
        }
        assert!(self.give_back_list(list).is_ok(), "it was our own");
        self.large = Some(target);
        Ok(MessageRef { memory: Memory::Large, at: 0, head: 0, bytes })
    }

    /// Copies the next bytes of a large message into `target`: as many as fit and are in place. Zero,
    /// with bytes left, means that the sender has not filled them in yet.
    ///
    /// # Errors
    /// [`Severed`] if the path has ended, and what is in place was pulled; or if the message is another
    /// half's.
    pub fn pull(&mut self, message: &mut Announced, target: &mut [u8]) -> Result<usize, Severed> {
        if self.half.is_forked() || message.half != self.half.id {
            return Err(Severed::because(Reason::Forked));
        }
        let filled = match self.slots.filled(message.slot, message.view.bytes() as u64) {
            Ok(filled) => filled as usize,
            Err(violation) => return Err(self.fail(violation.into())),
        };
        let ready = filled.saturating_sub(message.pulled);
        let bytes = ready.min(target.len());
        if bytes == 0 && message.left_bytes() > 0 && !target.is_empty() {
            // A sender that is gone fills in nothing more.
            return self.half.ended.map_or(Ok(0), Err);
        }
        let copied = message.view.read(message.pulled, &mut target[..bytes]);
        copied.expect("within the message, which is within what was lent");
        message.pulled += bytes;
        if bytes > 0 {
            self.half.doorbells.reason();
        }
        Ok(bytes)
    }

    /// Whether more of a large message is in place than was pulled, or pulling returns why not.
    pub fn is_pullable(&self, message: &Announced) -> bool {
        if self.half.is_forked() || message.half != self.half.id || self.half.ended.is_some() {
            return true;
        }
        let filled = self.slots.filled(message.slot, message.view.bytes() as u64);
        filled.map_or(true, |filled| filled as usize > message.pulled)
    }

    /// Gives a large message back, read or unread.
    ///
    /// # Errors
    /// [`NotOurs`] if another half has given it out.
    pub fn release(&mut self, message: Announced) -> Result<(), NotOurs<Announced>> {
        let message = self.half.own(message.half, message)?;
        if !self.half.is_forked() {
            self.slots.release(message.slot, message.count);
            self.half.ring_if_asleep();
        }
        Ok(())
    }
}
