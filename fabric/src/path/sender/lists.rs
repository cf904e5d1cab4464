//! Lists of entries into storage of the user's own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use os::storage::{Storage, StorageOptions};

use super::{SendError, Sender, Ticket};
use crate::path::lending::Segment;
use crate::path::record::Label;
use crate::queue::{Content, Entry, Search};

/// Storage of a user's own, to be lent to the receivers of any number of paths.
#[derive(Debug)]
pub struct Shared {
    storage: Storage,
    descriptor: OwnedFd,
}

impl Shared {
    /// Creates storage of `bytes` zeros.
    ///
    /// # Errors
    /// No memory or no descriptors left.
    pub fn create(bytes: usize, options: StorageOptions) -> io::Result<Shared> {
        let (storage, descriptor) = Storage::create("siga shared", bytes, options)?;
        Ok(Shared { storage, descriptor })
    }

    /// Its bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.storage.bytes();
        self.storage.bytes_mut(0, bytes)
    }
}

impl Sender {
    /// Lends storage of the user's own, to be named in the entries of lists, and returns its number. It
    /// can be lent to any number of readers; nothing that was ever in it is hidden from any of them.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn lend_shared(&mut self, shared: &Shared) -> Result<u16, SendError> {
        self.check()?;
        let bytes = shared.storage.bytes() as u64;
        let segment = self.lend_descriptor(shared.descriptor.as_fd(), Segment::Shared, bytes)?;
        self.ring_if_asleep();
        Ok(segment)
    }

    /// Says that no list will name this storage again. Lists that are out keep it readable for those who
    /// hold them.
    ///
    /// # Errors
    /// As [`Sender::send`].
    ///
    /// # Panics
    /// If no such storage was lent with [`Sender::lend_shared`].
    pub fn retire_shared(&mut self, segment: u16) -> Result<(), SendError> {
        assert!(self.lending.is_shared(segment), "segment {segment} is not shared storage");
        self.check()?;
        if self.retire(segment) { Ok(()) } else { Err(self.full()) }
    }

    /// Sends entries that point into shared storage, with a note for the receiver. With a `cookie`,
    /// [`Sender::completed`] tells when they have come back: until then the bytes must stay as they are.
    ///
    /// # Errors
    /// As [`Sender::send`].
    ///
    /// # Panics
    /// If there are no entries or more than a buffer holds, or one is not within shared storage.
    pub fn send_list(
        &mut self,
        note: u8,
        entries: &[Entry],
        cookie: Option<u64>,
    ) -> Result<(), SendError> {
        for entry in entries {
            let end = entry.offset.checked_add(u64::from(entry.length));
            let within = self.lending.is_shared(entry.segment)
                && end.is_some_and(|end| end <= self.lending.segment_bytes(entry.segment));
            assert!(within, "an entry points outside shared storage");
        }
        // Entries may overlap. A receiver that copies them has no room for more than can be lent.
        let bytes: u64 = entries.iter().map(|entry| u64::from(entry.length)).sum();
        if bytes > self.terms.storage_bytes_max {
            return Err(SendError::TooLong { most: self.terms.storage_bytes_max });
        }
        self.check()?;
        self.publish();
        self.make_room()?;
        let ticket = Ticket { page: None, bytes: 0, cookie };
        self.hand_over(Label::List, note, Content::Entries(entries), ticket);
        self.count_message(0);
        self.ring_if_due();
        Ok(())
    }

    /// The cookie of a list that has come back.
    pub fn completed(&mut self) -> Option<u64> {
        if self.mark.inherited() {
            return None;
        }
        if self.completed.is_empty() {
            self.collect(Search::All);
        }
        self.completed.pop_front()
    }
}
