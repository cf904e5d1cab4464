//! Room for data: pages, and storage lent when they do not suffice.

use std::os::fd::{AsFd, BorrowedFd};

use os::doorbell::Rung;
use os::storage::Storage;

use super::{SendError, Sender};
use crate::path::counters::Counter;
use crate::path::lending::{Segment, Unused};
use crate::path::pages::{PAGE_BYTES, Piece};
use crate::path::record::Control;
use crate::path::severed::{Lack, Reason, Severed};

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
    fn reserve_slow(&mut self, bytes: usize) -> Result<Piece, SendError> {
        self.collect();
        if let Some(severed) = self.half.ended {
            return Err(severed.into());
        }
        if let Some(piece) = self.pages.reserve(bytes) {
            return Ok(piece);
        }
        self.make_storage_room(PAGE_BYTES as u64)?;
        let Some(count) = self.lending.growth() else {
            return Err(self.refuse(Lack::Storage { most: self.terms.storage_bytes_max }));
        };
        let number = self.lend_storage(usize::from(count) * PAGE_BYTES, Segment::Pages)?;
        self.pages.add(number, count);
        Ok(self.pages.reserve(bytes).expect("pages were added just now"))
    }

    /// Nothing was sent, for something is missing. If storage of ours is out, it comes back some time, and
    /// with it room: that is worth waiting for.
    #[cold]
    pub(super) fn refuse(&mut self, lack: Lack) -> SendError {
        // What is out as far as we have looked may be back.
        self.collect();
        match self.half.ended {
            Some(severed) => severed.into(),
            None if self.awaits_storage() => self.full(),
            None => SendError::Lacking(lack),
        }
    }

    /// Makes sure that the terms allow a storage of `bytes` more, giving up what lies idle if they do not.
    pub(super) fn make_storage_room(&mut self, bytes: u64) -> Result<(), SendError> {
        while let Err(lack) = self.lending.check_room(bytes) {
            if !self.has_room_for_upkeep() {
                return Err(self.full());
            }
            if !self.retire_unused(Unused::Now) {
                return Err(self.refuse(lack));
            }
        }
        Ok(())
    }

    /// Creates storage and lends it to the reader.
    pub(super) fn lend_storage(
        &mut self,
        bytes: usize,
        segment: impl FnOnce(Storage) -> Segment,
    ) -> Result<u16, SendError> {
        let (storage, descriptor) = match self.lending.create(bytes) {
            Ok(created) => created,
            Err(error) => return Err(self.refuse(Lack::of(&error))),
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
        if self.budgets.unheard.left() == 0 {
            self.collect();
        }
        if !self.has_room_for_control() {
            return Err(self.full());
        }
        let number = match self.lending.insert(segment, bytes) {
            Ok(number) => number,
            Err(lack) => return Err(self.refuse(lack)),
        };
        let unheard = self.budgets.unheard.charge(1);
        let passed = unheard.as_ref().map(|_| self.half.doorbells.pass(descriptor));
        if passed != Some(Rung::Rung) {
            self.lending.remove(number);
        }
        match passed {
            Some(Rung::Rung) => self.lends_unheard.extend(unheard),
            Some(Rung::Gone) => return Err(self.end(Severed::because(Reason::Gone)).into()),
            Some(Rung::Unheard) | None => return Err(self.refuse(Lack::Passing)),
        }
        let handed_over = self.hand_over_control(Control::Lend { segment: number, bytes });
        assert!(handed_over, "room was seen above");
        self.show_lent();
        Ok(number)
    }

    /// Retires a storage of our own that was not used for so long; whether there was one. The caller has seen
    /// that there is room to say so.
    pub(super) fn retire_unused(&mut self, unused: Unused) -> bool {
        let large = self.lending.take_unused(unused);
        let segment = large.or_else(|| self.pages.take_unused(unused));
        segment.map(|segment| self.retire(segment)).is_some()
    }

    /// Retires a storage that nothing uses but lists that are out. The caller has seen that there is room to
    /// say so.
    pub(super) fn retire(&mut self, segment: u16) {
        let lists_end = self.writer.next();
        let handed_over = self.hand_over_control(Control::Retire { segment });
        assert!(handed_over, "there is room for upkeep");
        let lent = self.lending.remove(segment);
        // The reader has it mapped until the last of those lists is given back.
        if lent.is_shared() && self.writer.tracked() > 0 {
            self.retired.push_back((lists_end, lent));
        }
        self.half.counters.add(Counter::Retired, 1);
        self.show_lent();
        self.half.ring_if_asleep();
    }

    fn show_lent(&mut self) {
        let lent = self.lends_taken + self.lends_unheard.len() as u64;
        self.half.counters.set(Counter::Lent, lent);
        self.half.counters.set(Counter::LentBytes, self.lending.bytes());
    }
}
