//! Room for data: pages, and storage lent when they do not suffice.

use std::os::fd::{AsFd, BorrowedFd};

use os::doorbell::Rung;
use os::storage::Storage;
use os::sync::Ordering;

use super::{SendError, Sender};
use crate::path::board;
use crate::path::counters::Counter;
use crate::path::lending::{LENDS_UNHEARD_MAX, Segment};
use crate::path::pages::{PAGE_BYTES, Piece};
use crate::path::record::Control;
use crate::path::severed::{Reason, Severed};
use crate::queue::Search;

impl Sender {
    /// Room for a piece in the pages, lending more of them if the terms allow it.
    // Inlined, as all of it is: what is returned in memory is loaded again while the stores before are not
    // done, which takes 20 ns of an answer.
    #[inline(always)]
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<Piece, SendError> {
        if let Some(piece) = self.pages.reserve(bytes) {
            return Ok(piece);
        }
        self.reserve_slow(bytes)
    }

    #[cold]
    pub(super) fn reserve_slow(&mut self, bytes: usize) -> Result<Piece, SendError> {
        self.collect(Search::All);
        if let Some(severed) = self.ended {
            return Err(severed.into());
        }
        if let Some(piece) = self.pages.reserve(bytes) {
            return Ok(piece);
        }
        if !self.make_storage_room(PAGE_BYTES as u64) {
            return Err(self.full());
        }
        let count = self.lending.growth().expect("room for a page was made");
        let number = self.lend_storage(usize::from(count) * PAGE_BYTES, Segment::Pages)?;
        self.pages.add(number, count);
        self.pages.reserve(bytes).ok_or(SendError::Full)
    }

    /// Makes sure that the terms allow `bytes` of storage more, giving up what lies idle if they do not.
    pub(super) fn make_storage_room(&mut self, bytes: u64) -> bool {
        while !self.lending.has_room(bytes) {
            if !self.has_room_for_control() {
                return false;
            }
            let idle = self.lending.take_free_large().or_else(|| self.pages.take_free_segment());
            let Some(idle) = idle else { return false };
            self.retire(idle);
        }
        true
    }

    /// Creates storage and lends it to the reader.
    pub(super) fn lend_storage(
        &mut self,
        bytes: usize,
        segment: impl FnOnce(Storage) -> Segment,
    ) -> Result<u16, SendError> {
        let (storage, descriptor) = match self.lending.create(bytes) {
            Ok(created) => created,
            // No memory or no descriptors left: the same as a reader that holds everything.
            Err(_) => return Err(self.full()),
        };
        let bytes = storage.bytes() as u64;
        self.lend_descriptor(descriptor.as_fd(), segment(storage), bytes)
    }

    pub(super) fn lend_descriptor(
        &mut self,
        descriptor: BorrowedFd<'_>,
        segment: Segment,
        bytes: u64,
    ) -> Result<u16, SendError> {
        // Relaxed: a number that only grows; seen late, it costs a wait.
        let taken = self.peer.load(board::LENT_TAKEN_WORD, Ordering::Relaxed);
        let unheard = self.lent.saturating_sub(taken);
        if unheard >= LENDS_UNHEARD_MAX || !self.has_room_for_control() {
            return Err(self.full());
        }
        let Some(number) = self.lending.number(bytes) else { return Err(self.full()) };
        match self.bells.pass(descriptor) {
            Rung::Rung => {}
            Rung::Unheard => return Err(self.full()),
            Rung::Gone => return Err(self.end(Severed::because(Reason::Gone)).into()),
        }
        self.lending.insert(number, segment, bytes);
        self.lent += 1;
        let told = self.hand_over_control(Control::Lend { segment: number, bytes });
        assert!(told, "room was seen above");
        self.show_lent();
        Ok(number)
    }

    /// Retires a storage that nothing uses, or leaves it for later if there is no room to say so.
    pub(super) fn retire(&mut self, segment: u16) -> bool {
        let told = self.hand_over_control(Control::Retire { segment });
        if told {
            self.lending.remove(segment);
            self.counters.add(Counter::Retired, 1);
            self.show_lent();
            self.ring_if_asleep();
        }
        told
    }

    pub(super) fn show_lent(&mut self) {
        self.counters.set(Counter::Lent, self.lent);
        self.counters.set(Counter::LentBytes, self.lending.bytes());
    }
}
