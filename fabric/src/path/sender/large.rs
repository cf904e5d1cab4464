//! Large messages, which are announced and wait in our storage.

use super::{SendError, Sender};
use crate::path::counters::Counter;
use crate::path::lending::{Lending, Segment};
use crate::path::record::{Announcement, Label};
use crate::queue::{Content, Entry, EntryFlags};

/// A large message is filled in steps of this many bytes, each visible to the reader at once.
const FILL_BYTES: usize = 64 << 10;

/// Large messages that may wait whatever their size: one to be read while the next is made.
const ANNOUNCED_ALWAYS: usize = 2;

impl Sender {
    /// Sends a message that is too long for a page: it is filled in step by step behind the announcement, so
    /// that the reader can follow.
    pub(super) fn send_large(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        self.prepare(head)?;
        let segment = self.reserve_large(body.len())?;
        let announced = self.announce(head, segment, body.len(), 0);
        if announced.is_err() {
            self.lending.release_large(segment);
        }
        let slot = announced?;
        for (step, bytes) in body.chunks(FILL_BYTES).enumerate() {
            let at = step * FILL_BYTES;
            self.lending.bytes_mut(segment, at, bytes.len()).copy_from_slice(bytes);
            self.slots.fill(slot, (at + bytes.len()) as u64);
            self.half.ring_if_asleep();
        }
        Ok(())
    }

    /// Announces `bytes` that lie, or will lie, in a large segment; `filled` of them are in place. The slot
    /// that stands for them.
    pub(super) fn announce(
        &mut self,
        head: &[u8],
        segment: u16,
        bytes: usize,
        filled: usize,
    ) -> Result<u16, SendError> {
        // Room for a buffer was made; what was lent since took one of the reserve.
        let length = bytes as u64;
        let announced = self.slots.announce(segment, length, filled as u64);
        let Some((slot, count)) = announced else { return Err(self.full()) };
        let entry = Entry { segment, flags: EntryFlags::LAST_ENTRY, ..Entry::default() };
        let announcement = Announcement { slot, count, length, entry };
        let record = announcement.words().map(u64::to_le_bytes);
        let content = Content::InPlace(record.as_flattened(), head);
        self.hand_over(Label::Announcement, head.len() as u8, content, None);
        self.half.counters.add(Counter::Announced, 1);
        self.count_message(bytes);
        self.ring_if_due();
        Ok(slot)
    }

    pub(super) fn reserve_large(&mut self, bytes: usize) -> Result<u16, SendError> {
        let most = self.terms.message_bytes_max();
        let segment_bytes = Lending::large_bytes(bytes);
        let Some(segment_bytes) = segment_bytes.filter(|_| bytes as u64 <= most) else {
            return Err(SendError::TooLong { most });
        };
        self.collect();
        if let Some(severed) = self.half.ended {
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
        self.make_storage_room(segment_bytes as u64)?;
        self.lend_storage(segment_bytes, |storage| Segment::Large { storage, touched: true })
    }
}
