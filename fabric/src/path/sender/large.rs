//! Building in place, and large messages that wait in our storage.

use super::{SendError, Sender};
use crate::path::counters::Counter;
use crate::path::lending::{Large, Lending, Segment};
use crate::path::pages::{PAGE_BYTES, Piece};
use crate::path::record::{Announcement, HEAD_BYTES_MAX, Label};
use crate::queue::{Content, Entry, EntryFlags, Search};

use super::Ticket;

/// A large message is filled in steps of this many bytes, each visible to the reader at once.
const FILL_BYTES: usize = 64 << 10;

/// Large messages that may wait whatever their size: one to be read while the next is made.
const ANNOUNCED_ALWAYS: usize = 2;

/// Room in our storage, lent to the reader, to build a message in place.
#[derive(Debug)]
#[must_use = "lent room that is neither sent nor cancelled is lost to the path"]
pub struct Lent {
    place: Place,
    bytes: usize,
    head: Head,
}

impl Lent {
    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A large message that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    slot: u16,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Piece(Piece),
    Large(u16),
}

/// A head that is kept until its message goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    length: usize,
}

impl Head {
    pub(super) fn new(head: &[u8]) -> Head {
        let mut bytes = [0; HEAD_BYTES_MAX];
        bytes[..head.len()].copy_from_slice(head);
        Head { bytes, length: head.len() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Sender {
    /// Sends a message that is too long for a page: announces it and fills it in step by step, so that
    /// the reader can follow.
    pub(super) fn send_large(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        let lent = self.lend(head, body.len())?;
        let Place::Large(segment) = lent.place else { unreachable!("longer than a page") };
        let slot = match self.announce(&lent, segment, 0) {
            Ok(waiting) => waiting.slot,
            Err(error) => {
                self.cancel(lent);
                return Err(error);
            }
        };
        for (step, bytes) in body.chunks(FILL_BYTES).enumerate() {
            let at = step * FILL_BYTES;
            self.lending.bytes_mut(segment, at, bytes.len()).copy_from_slice(bytes);
            self.slots.fill(slot, (at + bytes.len()) as u64);
            self.ring_if_asleep();
        }
        Ok(())
    }

    /// Sends a message that is too long for a page and is built in place.
    pub(super) fn send_large_built(
        &mut self,
        head: &[u8],
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let mut lent = self.lend(head, bytes)?;
        build(self.lent_bytes(&mut lent));
        let sent = self.send_lent(lent);
        sent.map(drop).map_err(|(error, lent)| {
            self.cancel(lent);
            error
        })
    }

    /// Lends room for a message of `bytes`, to build it in place. The head is fixed now.
    ///
    /// # Errors
    /// As [`Sender::send`].
    ///
    /// # Panics
    /// As [`Sender::send_with`].
    pub fn lend(&mut self, head: &[u8], bytes: usize) -> Result<Lent, SendError> {
        assert!(head.len() <= HEAD_BYTES_MAX, "a head has at most {HEAD_BYTES_MAX} bytes");
        self.check()?;
        self.publish();
        // So that what was built is not refused for want of a buffer.
        self.make_room()?;
        let length = head.len() + bytes;
        let place = if length <= PAGE_BYTES {
            let piece = self.reserve(length)?;
            let target = self.lending.bytes_mut(piece.page.segment, piece.offset, head.len());
            target.copy_from_slice(head);
            Place::Piece(piece)
        } else {
            Place::Large(self.reserve_large(bytes)?)
        };
        Ok(Lent { place, bytes, head: Head::new(head) })
    }

    /// The bytes of lent room.
    pub fn lent_bytes(&mut self, lent: &mut Lent) -> &mut [u8] {
        assert!(!self.mark.inherited(), "a forked child has no storage");
        let (segment, offset) = match lent.place {
            Place::Piece(piece) => (piece.page.segment, piece.offset + lent.head.length),
            Place::Large(segment) => (segment, 0),
        };
        self.lending.bytes_mut(segment, offset, lent.bytes)
    }

    /// Sends what was built in lent room. A large message stays there until the receiver has released it
    /// and can be withdrawn under the name that is returned.
    ///
    /// # Errors
    /// [`SendError`], and the room back: to try again, or to cancel.
    pub fn send_lent(&mut self, lent: Lent) -> Result<Option<Waiting>, (SendError, Lent)> {
        let sent = match lent.place {
            Place::Piece(piece) => {
                self.send_piece(piece, lent.head.length, lent.bytes).map(|()| None)
            }
            Place::Large(segment) => self.announce(&lent, segment, lent.bytes).map(Some),
        };
        sent.map_err(|error| (error, lent))
    }

    /// Takes a large message back that waits to be pulled. The receiver learns it when it pulls; what it
    /// has pulled by then it has. Returns whether the message was still waiting.
    pub fn withdraw(&mut self, waiting: Waiting) -> bool {
        if self.mark.inherited() {
            return false;
        }
        self.collect(Search::InOrder);
        let is_out = self.is_waiting(waiting);
        if is_out {
            self.slots.withdraw(waiting.slot);
            self.ring_if_asleep();
        }
        is_out
    }

    /// Whether a large message has not been released by the receiver, as far as we have looked.
    pub fn is_waiting(&self, waiting: Waiting) -> bool {
        self.slots.is_out(waiting.slot, waiting.count)
    }

    /// Takes lent room back unsent.
    pub fn cancel(&mut self, lent: Lent) {
        match lent.place {
            Place::Piece(piece) => self.pages.release(piece.page),
            Place::Large(segment) => self.lending.release_large(segment),
        }
    }

    pub(super) fn send_piece(
        &mut self,
        piece: Piece,
        head: usize,
        bytes: usize,
    ) -> Result<(), SendError> {
        self.check()?;
        self.publish();
        self.make_room()?;
        self.hand_over_piece(piece, head, head + bytes);
        self.ring_if_due();
        Ok(())
    }

    /// Announces what lies, or will lie, in a large segment; `filled` bytes are in place.
    pub(super) fn announce(
        &mut self,
        lent: &Lent,
        segment: u16,
        filled: usize,
    ) -> Result<Waiting, SendError> {
        self.check()?;
        self.publish();
        self.make_room()?;
        let length = lent.bytes as u64;
        let announced = self.slots.announce(segment, length, filled as u64);
        let Some((slot, count)) = announced else { return Err(self.full()) };
        let entry = Entry { segment, flags: EntryFlags::LAST_ENTRY, ..Entry::default() };
        let announcement = Announcement { slot, count, length, entry };
        let head = lent.head.bytes();
        self.hand_over(
            Label::Announcement,
            head.len() as u8,
            Content::InPlace(&announcement.bytes(), head),
            Ticket::default(),
        );
        self.counters.add(Counter::Announced, 1);
        self.count_message(lent.bytes);
        self.ring_if_due();
        Ok(Waiting { slot, count })
    }

    pub(super) fn reserve_large(&mut self, bytes: usize) -> Result<u16, SendError> {
        let most = self.terms.message_bytes_max();
        let segment_bytes = Lending::large_bytes(bytes);
        let Some(segment_bytes) = segment_bytes.filter(|_| bytes as u64 <= most) else {
            return Err(SendError::TooLong { most });
        };
        self.collect(Search::InOrder);
        if let Some(severed) = self.ended {
            return Err(severed.into());
        }
        let too_much = self.slots.bytes() + bytes as u64 > self.terms.announced_bytes_max;
        let too_many = self.slots.out() >= self.terms.messages_max as usize;
        if too_many || (too_much && self.slots.out() >= ANNOUNCED_ALWAYS) {
            return Err(self.full());
        }
        if let Some(segment) = self.lending.take_large(bytes) {
            return Ok(segment);
        }
        if !self.make_storage_room(segment_bytes as u64) {
            return Err(self.full());
        }
        self.lend_storage(segment_bytes, |storage| Segment::Large(Large::new(storage)))
    }
}
