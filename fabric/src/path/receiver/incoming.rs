//! What a receiver returns to its user.

use std::ops::Range;
use std::sync::Arc;

use os::storage::{LentPart, OutOfRange};

use super::lent::Lent;
use crate::path::half::HalfId;
use crate::path::record::Head;
use crate::queue::{Entry, Held};

/// What has arrived.
#[derive(Debug)]
pub enum Incoming {
    /// A message in memory of our own: [`Receiver::message`](super::Receiver::message) shows it, until the
    /// next is asked for.
    Message(MessageRef),
    /// A message in a page of the sender's, not copied yet.
    InPage(InPage),
    /// A large message in the sender's storage, not copied yet, perhaps not even whole yet.
    Announced(Announced),
    /// Entries that mean something to the user of the path.
    List(List),
}

/// A message that has arrived whole.
#[derive(Debug)]
pub enum Fetched {
    /// In memory of our own: [`Receiver::message`](super::Receiver::message) shows it, until the next is asked for.
    Copied(MessageRef),
    /// In a page of the sender's, not copied yet.
    InPage(InPage),
    /// Longer than was asked for: it was given back unread.
    TooLong,
}

/// A message in memory of our own, until the next is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The head.
    pub head: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

/// Where a message lies in memory of our own. It stands for that message until the next is asked for.
#[derive(Clone, Copy, Debug)]
pub struct MessageRef {
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
    /// What was copied out of several, or of a storage of its own. The head came in a line.
    Large,
}

/// Bytes in the sender's storage. They can change while they are read if the sender cheats, so they are
/// copied out, and only the copy is checked and used. They stay readable whatever becomes of the path.
// Not to be cloned: it counts against what the peer may lend, so none may be left when its message was given back.
#[derive(Debug)]
pub struct View {
    pub(super) lent: Arc<Lent>,
    /// Checked when it was made.
    pub(super) range: Range<usize>,
}

impl MessageRef {
    /// How many bytes the body has.
    #[inline]
    pub fn body_bytes(self) -> usize {
        match self.memory {
            Memory::Large => self.bytes,
            _ => self.bytes - self.head,
        }
    }
}

impl View {
    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// The bytes from `at` on, to be given to the kernel.
    ///
    /// # Errors
    /// [`OutOfRange`] if there are not so many.
    pub fn part(&self, at: usize) -> Result<LentPart<'_>, OutOfRange> {
        let bytes = self.bytes().checked_sub(at).ok_or(OutOfRange)?;
        self.lent.borrowed.part(self.range.start + at, bytes)
    }

    /// Prefetches bytes from `at` on, which will be read soon. Nothing happens if there are not so many.
    #[inline]
    pub fn expect(&self, at: usize, bytes: usize) {
        let all = self.bytes();
        if at <= all && bytes <= all - at {
            self.lent.borrowed.expect(self.range.start + at, bytes);
        }
    }

    /// Copies bytes out, from `at` on.
    ///
    /// # Errors
    /// [`OutOfRange`] if there are not so many.
    #[inline]
    pub fn read(&self, at: usize, target: &mut [u8]) -> Result<(), OutOfRange> {
        let bytes = self.bytes();
        if at > bytes || target.len() > bytes - at {
            return Err(OutOfRange);
        }
        self.lent.borrowed.read(self.range.start + at, target)
    }
}

/// A message in a page of the sender's. Give it back with
/// [`Receiver::give_back`](super::Receiver::give_back).
#[derive(Debug)]
#[must_use = "a message that is never given back is lost to the path"]
pub struct InPage {
    pub(super) half: HalfId,
    pub(super) held: Held,
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
        self.view.bytes() - self.head
    }

    /// The bytes of the body from `at` on, to be given to the kernel.
    ///
    /// # Errors
    /// [`OutOfRange`] if there are not so many.
    pub fn part(&self, at: usize) -> Result<LentPart<'_>, OutOfRange> {
        self.view.part(self.head.saturating_add(at))
    }

    /// Copies bytes of the body out, from `at` on.
    ///
    /// # Errors
    /// [`OutOfRange`] if there are not so many.
    #[inline]
    pub fn read(&self, at: usize, target: &mut [u8]) -> Result<(), OutOfRange> {
        self.view.read(self.head.saturating_add(at), target)
    }
}

/// A large message that waits in the sender's storage. Pull it with
/// [`Receiver::pull`](super::Receiver::pull), in pieces if you like, now or later, and give it back with
/// [`Receiver::release`](super::Receiver::release).
#[derive(Debug)]
#[must_use = "a message that is never released is lost to the path"]
pub struct Announced {
    pub(super) half: HalfId,
    pub(super) slot: u16,
    pub(super) count: u32,
    pub(super) head: Head,
    pub(super) view: View,
    pub(super) pulled: usize,
}

impl Announced {
    /// The head.
    pub fn head(&self) -> &[u8] {
        self.head.bytes()
    }

    /// How many bytes the body has.
    pub fn body_bytes(&self) -> usize {
        self.view.bytes()
    }

    /// How many of them were pulled so far.
    pub fn pulled_bytes(&self) -> usize {
        self.pulled
    }

    /// How many are left.
    pub fn left_bytes(&self) -> usize {
        self.view.bytes() - self.pulled
    }
}

/// A list of entries into storage that the sender's user has lent. Give it back with
/// [`Receiver::give_back_list`](super::Receiver::give_back_list).
#[derive(Debug)]
#[must_use = "a list that is never given back is lost to the path"]
pub struct List {
    pub(super) half: HalfId,
    pub(super) held: Held,
    pub(super) note: u8,
    pub(super) parts: Vec<(Entry, View)>,
}

impl List {
    /// What the sender's user wrote beside it.
    pub fn note(&self) -> u8 {
        self.note
    }

    /// How many bytes its entries have together.
    pub fn bytes(&self) -> usize {
        // No more than a list's entries times a storage's bytes: no overflow.
        self.parts.iter().map(|(_, view)| view.bytes()).sum()
    }

    /// The entries. All of them point into storage that was lent.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.parts.iter().map(|(entry, _)| entry)
    }

    /// The bytes of one of its entries, if there is such an entry.
    pub fn view(&self, index: usize) -> Option<&View> {
        self.parts.get(index).map(|(_, view)| view)
    }
}
