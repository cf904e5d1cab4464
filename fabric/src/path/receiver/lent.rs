//! Storages that the sender has lent.

use std::ops::Range;
use std::sync::Arc;

use os::doorbell::Listen;
use os::storage::{BorrowError, Borrowed};
use os::sync::Ordering;

use super::Receiver;
use super::incoming::View;
use crate::path::board;
use crate::path::budget::Charge;
use crate::path::counters::Counter;
use crate::path::lending::SEGMENTS_MAX;
use crate::path::severed::{Lack, Reason};
use crate::queue::{Entry, Violation};

/// A storage that the sender has lent. It counts against the limits until nobody reads it any more.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) borrowed: Borrowed,
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
            self.segments.resize(number + 1, None);
        }
        let lent = Lent { borrowed, bytes: bytes_charge, _number: number_charge };
        if self.segments[number].replace(Arc::new(lent)).is_some() {
            return Err(WRONG);
        }
        self.lent_taken += 1;
        // Release: only a count for the writer to go by.
        self.half.control.store(board::LENT_TAKEN_WORD, self.lent_taken, Ordering::Release);
        self.show_lent();
        Ok(())
    }

    /// Forgets storage that the writer uses no more.
    pub(super) fn retire_lent(&mut self, segment: u16) -> Result<(), Violation> {
        let place = self.segments.get_mut(usize::from(segment));
        place.and_then(Option::take).ok_or(Violation::Storage)?;
        self.half.counters.add(Counter::Retired, 1);
        self.show_lent();
        Ok(())
    }

    fn show_lent(&mut self) {
        self.half.counters.set(Counter::Lent, self.lent_taken);
        let bytes = self.segments.iter().flatten().map(|lent| lent.bytes.amount).sum();
        self.half.counters.set(Counter::LentBytes, bytes);
    }

    /// Checks that all of a range was lent.
    #[inline]
    pub(super) fn locate(
        &self,
        entry: &Entry,
        bytes: u64,
    ) -> Result<(&Arc<Lent>, Range<usize>), Violation> {
        let lent = self.segments.get(usize::from(entry.segment)).and_then(Option::as_ref);
        let lent = lent.ok_or(Violation::Range)?;
        let offset = usize::try_from(entry.offset).map_err(|_| Violation::Range)?;
        let bytes = usize::try_from(bytes).map_err(|_| Violation::Range)?;
        if lent.borrowed.contains(offset, bytes) {
            Ok((lent, offset..offset + bytes))
        } else {
            Err(Violation::Range)
        }
    }

    /// All of a storage that the sender's user has lent, to be read at any time and at any place. It counts
    /// against what the sender may lend until the view is dropped. None if there is no storage of this number.
    pub fn lent(&self, segment: u16) -> Option<View> {
        let lent = self.segments.get(usize::from(segment)).and_then(Option::as_ref)?;
        let range = 0..lent.borrowed.bytes();
        Some(View { lent: lent.clone(), range })
    }

    /// A range of lent storage as a view, readable whatever becomes of the storage's number.
    pub(super) fn view(&self, entry: &Entry, bytes: u64) -> Result<View, Violation> {
        let (lent, range) = self.locate(entry, bytes)?;
        Ok(View { lent: lent.clone(), range })
    }
}
