//! Storages that the sender has lent.

use std::ops::Range;
use std::sync::Arc;

use os::doorbell::Listen;
use os::storage::{BorrowError, Borrowed};
use os::sync::Ordering;

use super::incoming::View;
use super::{Receiver, WITHHELD_BYTES_MAX};
use crate::path::board;
use crate::path::budget::{Budgets, Charge};
use crate::path::counters::Counter;
use crate::path::lending::SEGMENTS_MAX;
use crate::path::severed::{Lack, Reason};
use crate::queue::{Entry, Violation};

/// A storage that the sender has lent. It counts as mapped until nobody reads it any more.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) borrowed: Borrowed,
    _mapped: (Charge, Charge),
}

/// A storage that the sender has lent and not retired. Until then it counts against what the sender may lend.
#[derive(Debug)]
pub(super) struct Loan {
    lent: Arc<Lent>,
    bytes: Charge,
    _number: Charge,
}

impl Receiver {
    /// Takes in storage that the writer lends: its descriptor came with a ring.
    pub(super) fn take_lent(&mut self, segment: u16, bytes: u64) -> Result<(), Reason> {
        const WRONG: Reason = Reason::Violation(Violation::Storage);
        let number = usize::from(segment);
        if number >= SEGMENTS_MAX {
            return Err(WRONG);
        }
        let (bytes_charge, number_charge) =
            match (self.budgets.bytes.charge(bytes), self.budgets.segments.charge(1)) {
                (Some(bytes), Some(number)) => (bytes, number),
                _ => return Err(WRONG),
            };
        // The sender keeps to its limits. What our user still reads of storage that was retired is none of its doing.
        let mapped = self.charge_mapped(bytes).ok_or(Reason::Lacking(Lack::Views))?;
        let descriptor = loop {
            if let Some(descriptor) = self.half.doorbells.arrived() {
                break descriptor;
            }
            // Rings may stand before it, but no more of them than an honest writer ever leaves there.
            let heard = self.half.hear(Listen::Now);
            match heard.fault {
                Some(reason) => return Err(reason),
                None if heard.rings == 0 && self.half.doorbells.has_lost() => {
                    return Err(Reason::Lacking(Lack::Descriptors));
                }
                None if heard.rings == 0 || self.half.doorbells.is_abused() => return Err(WRONG),
                None => {}
            }
        };
        let size = usize::try_from(bytes).map_err(|_| WRONG)?;
        let borrowed = Borrowed::borrow(descriptor, size..=size).map_err(|error| match error {
            BorrowError::Os(error) if os::memory::shortage(&error).is_some() => {
                Reason::Lacking(Lack::of(&error))
            }
            _ => WRONG,
        })?;
        if self.segments.len() <= number {
            self.segments.resize_with(number + 1, || None);
        }
        let lent = Arc::new(Lent { borrowed, _mapped: mapped });
        let loan = Loan { lent, bytes: bytes_charge, _number: number_charge };
        if self.segments[number].replace(loan).is_some() {
            return Err(WRONG);
        }
        self.lent_taken += 1;
        // Relaxed: stored before anything was handed over. Whatever it is: more than the most is never withheld.
        let withheld = self.half.peer.load(board::WITHHELD_WORD, Ordering::Relaxed);
        self.withheld_bytes_max = usize::try_from(withheld)
            .map_or(WITHHELD_BYTES_MAX, |bytes| bytes.min(WITHHELD_BYTES_MAX));
        // Release: only a count for the writer to go by.
        self.half.control.store(board::LENT_TAKEN_WORD, self.lent_taken, Ordering::Release);
        self.show_lent();
        Ok(())
    }

    /// Takes so many bytes, and one storage, of what may be mapped. None if views of retired storage leave too little.
    fn charge_mapped(&self, bytes: u64) -> Option<(Charge, Charge)> {
        let Budgets { mapped_bytes, mapped_segments, .. } = &self.budgets;
        Some((mapped_bytes.charge(bytes)?, mapped_segments.charge(1)?))
    }

    /// Forgets storage that the writer uses no more.
    pub(super) fn retire_lent(&mut self, segment: u16) -> Result<(), Violation> {
        let place = self.segments.get_mut(usize::from(segment));
        place.and_then(Option::take).ok_or(Violation::Storage)?;
        // A writer that waits for what was retired waits for this return.
        self.withheld_bytes = self.withheld_bytes_max;
        self.half.counters.add(Counter::Retired, 1);
        self.show_lent();
        Ok(())
    }

    fn show_lent(&mut self) {
        self.half.counters.set(Counter::Lent, self.lent_taken);
        let bytes = self.segments.iter().flatten().map(|loan| loan.bytes.amount).sum();
        self.half.counters.set(Counter::LentBytes, bytes);
    }

    /// Checks that all of a range was lent.
    #[inline]
    pub(super) fn locate(
        &self,
        entry: &Entry,
        bytes: u64,
    ) -> Result<(&Arc<Lent>, Range<usize>), Violation> {
        let loan = self.segments.get(usize::from(entry.segment)).and_then(Option::as_ref);
        let lent = &loan.ok_or(Violation::Range)?.lent;
        let offset = usize::try_from(entry.offset).map_err(|_| Violation::Range)?;
        let bytes = usize::try_from(bytes).map_err(|_| Violation::Range)?;
        if lent.borrowed.contains(offset, bytes) {
            Ok((lent, offset..offset + bytes))
        } else {
            Err(Violation::Range)
        }
    }

    /// All of a storage that the sender's user has lent, to be read at any time and at any place. None if there is no
    /// storage of this number.
    ///
    /// Drop the view when the sender has retired the storage: retired storage that is still viewed and storage that is
    /// lent count together against [`Terms::peer_storage_bytes_max`](crate::path::Terms::peer_storage_bytes_max). A
    /// loan that exceeds it only for that ends the path with [`Lack::Views`].
    pub fn lent(&self, segment: u16) -> Option<View> {
        let lent = &self.segments.get(usize::from(segment)).and_then(Option::as_ref)?.lent;
        let range = 0..lent.borrowed.bytes();
        Some(View { lent: lent.clone(), range })
    }

    /// A range of lent storage as a view, readable whatever becomes of the storage's number.
    pub(super) fn view(&self, entry: &Entry, bytes: u64) -> Result<View, Violation> {
        let (lent, range) = self.locate(entry, bytes)?;
        Ok(View { lent: lent.clone(), range })
    }
}
