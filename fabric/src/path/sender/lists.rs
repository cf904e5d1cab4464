//! Lists of entries into storage of the user's own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use os::storage::{Storage, StorageOptions};

use super::{InFlight, SendError, Sender};
use crate::path::lending::Segment;
use crate::path::record::{LIST_BYTES_MAX, Label, list_bytes};
use crate::queue::{Content, ENTRIES_MAX, Entry};

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
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.storage.bytes();
        self.storage.bytes_mut(0, bytes)
    }

    /// What is needed to lend it, for another part of the program that has paths of its own.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn lendable(&self) -> io::Result<Lendable> {
        let bytes = self.storage.bytes() as u64;
        Ok(Lendable { descriptor: self.descriptor.try_clone()?, bytes })
    }
}

/// The right to lend a [`Shared`] storage, without its bytes.
#[derive(Debug)]
pub struct Lendable {
    descriptor: OwnedFd,
    bytes: u64,
}

impl Lendable {
    /// How many bytes the storage has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Why a list was not sent, or a storage not retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// No storage of this number was lent with [`Sender::lend_shared`].
    #[error("storage {segment} was not lent to be shared")]
    NotShared {
        /// The number.
        segment: u16,
    },
    /// An entry reaches beyond its storage.
    #[error("an entry of {length} bytes at {offset} reaches beyond its storage of {bytes} bytes")]
    Range {
        /// Where the entry begins.
        offset: u64,
        /// How long it is.
        length: u32,
        /// How large the storage is.
        bytes: u64,
    },
    /// There are no entries, or more than a buffer holds.
    #[error("a list of {entries} entries: must have 1 to {ENTRIES_MAX}")]
    Entries {
        /// How many there are.
        entries: usize,
    },
    /// The path does not take the list now.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl Sender {
    /// Lends storage of the user's own, to be named in the entries of lists, and returns its number. It
    /// can be lent to any number of readers; nothing that was ever in it is hidden from any of them.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn lend_shared(&mut self, shared: &Shared) -> Result<u16, SendError> {
        self.check()?;
        let bytes = shared.storage.bytes() as u64;
        let segment = self.lend_descriptor(shared.descriptor.as_fd(), Segment::Shared, bytes)?;
        self.half.ring_if_asleep();
        Ok(segment)
    }

    /// As [`Sender::lend_shared`], by somebody who has not the storage itself.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn lend(&mut self, lendable: &Lendable) -> Result<u16, SendError> {
        self.check()?;
        let Lendable { descriptor, bytes } = lendable;
        let segment = self.lend_descriptor(descriptor.as_fd(), Segment::Shared, *bytes)?;
        self.half.ring_if_asleep();
        Ok(segment)
    }

    /// Retires a storage: no list names it again. Receivers can read it as long as they hold lists that are
    /// out, and until those have come back the storage counts against the limits.
    ///
    /// # Errors
    /// [`ListError`].
    pub fn retire_shared(&mut self, segment: u16) -> Result<(), ListError> {
        if self.lending.shared_bytes(segment).is_none() {
            return Err(ListError::NotShared { segment });
        }
        self.check()?;
        self.collect();
        if self.half.ended.is_some() || !self.has_room_to_retire() {
            return Err(self.full().into());
        }
        self.retire(segment);
        Ok(())
    }

    /// Sends entries that point into shared storage, with a note for the receiver. With a `cookie`,
    /// [`Sender::completed`] returns it when the list has come back: until then the bytes must stay as they are.
    ///
    /// # Errors
    /// [`ListError`].
    pub fn send_list(
        &mut self,
        note: u8,
        entries: &[Entry],
        cookie: Option<u64>,
    ) -> Result<(), ListError> {
        if !(1..=ENTRIES_MAX).contains(&entries.len()) {
            return Err(ListError::Entries { entries: entries.len() });
        }
        for &Entry { segment, offset, length, .. } in entries {
            let Some(bytes) = self.lending.shared_bytes(segment) else {
                return Err(ListError::NotShared { segment });
            };
            let end = offset.checked_add(u64::from(length));
            if end.is_none_or(|end| end > bytes) {
                return Err(ListError::Range { offset, length, bytes });
            }
        }
        if list_bytes(entries) > LIST_BYTES_MAX {
            return Err(SendError::TooLong { most: LIST_BYTES_MAX }.into());
        }
        self.prepare(&[])?;
        if let Some(cookie) = cookie {
            self.cookies.insert(self.writer.next().index(), cookie);
        }
        let in_flight = Some(InFlight::default());
        self.hand_over(Label::List, note, Content::Entries(entries), in_flight);
        self.count_message(0);
        self.ring_if_due();
        Ok(())
    }
}
