//! Large messages, pulled out of the sender's storage.

use os::storage::Scratch;

use super::Receiver;
use super::incoming::{Memory, Spot, View};
use crate::path::record::HEAD_BYTES_MAX;
use crate::path::severed::{Reason, Severed};

/// A large message that waits in the sender's storage. Pull it with [`Receiver::pull`], in pieces if you
/// like, now or later, and give it back with [`Receiver::release`].
#[derive(Debug)]
#[must_use = "a message that is never released is lost to the path"]
pub struct Announced {
    pub(super) slot: u16,
    pub(super) count: u32,
    pub(super) head: [u8; HEAD_BYTES_MAX],
    pub(super) head_bytes: usize,
    pub(super) view: View,
    pub(super) pulled: usize,
}

impl Announced {
    /// The head.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }

    /// How many bytes the body has.
    pub fn body_bytes(&self) -> usize {
        self.view.bytes
    }

    /// How many of them were pulled so far.
    pub fn pulled_bytes(&self) -> usize {
        self.pulled
    }

    /// How many are left.
    pub fn left_bytes(&self) -> usize {
        self.view.bytes - self.pulled
    }
}

/// Why nothing was pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    /// The sender has taken the message back.
    #[error("the sender has withdrawn the message")]
    Withdrawn,
    /// The path has ended. What is in place can still be pulled.
    #[error(transparent)]
    Severed(#[from] Severed),
}

/// A message that is being copied whole.
#[derive(Debug)]
pub(super) struct Pulling {
    pub(super) message: Announced,
    pub(super) target: Scratch,
}

impl Receiver {
    /// Starts to copy the large message that was just found.
    pub(super) fn start_pulling(&mut self) -> Result<Option<Spot>, Severed> {
        let message = self.announced.take().expect("parked");
        let room = self.large.take().filter(|large| large.bytes().len() >= message.body_bytes());
        let Some(target) = room.or_else(|| Scratch::new(message.body_bytes()).ok()) else {
            return Err(self.no_memory());
        };
        self.pulling = Some(Pulling { message, target });
        self.pull_on()
    }

    /// Goes on copying a large message.
    pub(super) fn pull_on(&mut self) -> Result<Option<Spot>, Severed> {
        let mut pulling = self.pulling.take().expect("called while there is one");
        while pulling.message.left_bytes() > 0 {
            let (at, end) = (pulling.message.pulled_bytes(), pulling.message.body_bytes());
            let target = &mut pulling.target.bytes_mut()[at..end];
            match self.pull(&mut pulling.message, target) {
                Ok(0) => {
                    self.pulling = Some(pulling);
                    return Ok(None);
                }
                Ok(_) => {}
                Err(PullError::Withdrawn) => {
                    self.release(pulling.message);
                    return Ok(None);
                }
                Err(PullError::Severed(severed)) => return Err(severed),
            }
        }
        let Pulling { message, target } = pulling;
        let (head, head_bytes, bytes) = (message.head, message.head_bytes, message.body_bytes());
        self.release(message);
        self.in_place[..head_bytes].copy_from_slice(&head[..head_bytes]);
        self.large = Some(target);
        Ok(Some(Spot::new(Memory::Large, head_bytes, bytes)))
    }

    /// Copies the next bytes of a large message into `target`: as many as fit and are in place. Zero,
    /// with bytes left, means that the sender has not filled them in yet.
    ///
    /// # Errors
    /// [`PullError`].
    pub fn pull(&mut self, message: &mut Announced, target: &mut [u8]) -> Result<usize, PullError> {
        if self.mark.inherited() {
            return Err(Severed::because(Reason::Forked).into());
        }
        let there = self.slots.is_there(message.slot, message.count);
        let filled = self.slots.filled(message.slot, message.view.bytes as u64);
        let (there, filled) = match there.and_then(|there| Ok((there, filled?))) {
            Ok(found) => found,
            Err(violation) => return Err(self.accuse(violation).into()),
        };
        if !there {
            return Err(PullError::Withdrawn);
        }
        let ready = filled as usize - message.pulled.min(filled as usize);
        let bytes = ready.min(target.len());
        if bytes == 0 && message.left_bytes() > 0 && !target.is_empty() {
            // A sender that is gone fills in nothing more.
            return self.ended.map_or(Ok(0), |severed| Err(severed.into()));
        }
        let copied = message.view.read(message.pulled, &mut target[..bytes]);
        copied.expect("within the message, which is within what was lent");
        message.pulled += bytes;
        if bytes > 0 {
            self.patience.renew();
        }
        Ok(bytes)
    }

    /// Whether more of a large message is in place than was pulled.
    pub fn is_pullable(&self, message: &Announced) -> bool {
        if self.mark.inherited() {
            return true;
        }
        let length = message.view.bytes as u64;
        let filled = self.slots.filled(message.slot, length);
        let there = self.slots.is_there(message.slot, message.count);
        self.ended.is_some()
            || there != Ok(true)
            || filled.is_ok_and(|filled| filled as usize > message.pulled)
    }

    /// Gives a large message back, read or unread.
    pub fn release(&mut self, message: Announced) {
        if self.mark.inherited() {
            return;
        }
        self.slots.release(message.slot, message.count);
        self.rouse();
    }
}
