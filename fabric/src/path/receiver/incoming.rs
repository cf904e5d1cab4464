//! What a receiver gives out.

use os::storage::{Borrowed, OutOfRange};

use super::large::Announced;
use super::lists::List;
use crate::queue::Taken;

/// What has arrived.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// A message, already in memory of our own.
    Message(Message<'a>),
    /// A message in a page of the sender's, not copied yet.
    InPage(InPage),
    /// A large message in the sender's storage, not copied yet, perhaps not even whole yet.
    Announced(Announced),
    /// Entries that mean something to the user of the path.
    List(List),
}

/// What has arrived, for those who have something else to do with the receiver before they look at it.
#[derive(Debug)]
pub enum Picked {
    /// As [`Incoming::Message`]: see [`Receiver::message`](super::Receiver::message).
    Message(Spot),
    /// As [`Incoming::InPage`].
    InPage(InPage),
    /// As [`Incoming::Announced`].
    Announced(Announced),
    /// As [`Incoming::List`].
    List(List),
}

/// Bytes in the sender's storage. They can change while they are read if the sender cheats, so they are
/// copied out, and what was copied is looked at.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) borrowed: Borrowed,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl View {
    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes out, from `at` on.
    ///
    /// # Errors
    /// [`OutOfRange`] if there are not so many.
    #[inline]
    pub fn read(&self, at: usize, target: &mut [u8]) -> Result<(), OutOfRange> {
        if at > self.bytes || target.len() > self.bytes - at {
            return Err(OutOfRange);
        }
        self.borrowed.read(self.offset + at, target)
    }
}

/// A message in a page of the sender's. Give it back with [`Receiver::give_back`](super::Receiver::give_back).
#[derive(Debug)]
#[must_use = "a message that is never given back is lost to the path"]
pub struct InPage {
    pub(super) taken: Taken,
    pub(super) head: usize,
    pub(super) view: View,
}

impl InPage {
    /// Head and body, one behind the other.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// How many of the bytes are the head.
    pub fn head_bytes(&self) -> usize {
        self.head
    }

    /// How many bytes the body has.
    pub fn body_bytes(&self) -> usize {
        self.view.bytes - self.head
    }

    /// Copies bytes of the body out, from `at` on.
    ///
    /// # Errors
    /// [`OutOfRange`] if there are not so many.
    #[inline]
    pub fn read(&self, at: usize, target: &mut [u8]) -> Result<(), OutOfRange> {
        self.view.read(self.head + at, target)
    }
}

/// A message in memory of our own, until the next is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The head.
    pub head: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

/// Where a message that was fetched is, in memory of our own.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    pub(super) memory: Memory,
    pub(super) at: usize,
    pub(super) head: usize,
    pub(super) bytes: usize,
}

/// Which memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Memory {
    /// What came in a line.
    InPlace,
    /// What was copied out of a page.
    Scratch,
    /// A large message; `bytes` counts its body alone.
    Large,
}

impl Spot {
    pub(super) fn new(memory: Memory, head: usize, bytes: usize) -> Spot {
        Spot { memory, at: 0, head, bytes }
    }
}
