//! The storages that a queue's writer has lent to its reader.

use std::io;
use std::os::fd::OwnedFd;

use os::storage::{HUGE_GRAIN_BYTES, Storage, StorageOptions};

use super::budget::{Budgets, Charge};
use super::pages::PAGE_BYTES;
use super::severed::Lack;

/// Storages that a side has lent over a path and not retired, at most.
pub const SEGMENTS_MAX: usize = 1024;

/// Storages that a side has lent over a path and that the other has not taken in yet, at most: each is a
/// descriptor that somebody has to hold. Each of its queues has an equal share: what one waits for comes back by
/// that queue's own doing.
pub const LENDS_PENDING_MAX: u64 = 16;

/// What a lent storage is for.
#[derive(Debug)]
pub(super) enum Segment {
    /// Pages, handed out by [`super::pages::Pages`].
    Pages(Storage),
    /// One large message at a time.
    Large {
        storage: Storage,
        /// Whether it was used in this trim period.
        touched: bool,
    },
    /// Storage that belongs to the user of the path: he lends it, fills it and names it in entries.
    Shared,
}

/// For how long nothing has used a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unused {
    /// Perhaps only just now.
    Now,
    /// For a whole trim period, which `untouch` begins.
    ForLong,
}

/// A storage that is lent, and what it takes of the path's limits.
#[derive(Debug)]
pub(super) struct Loan {
    segment: Segment,
    bytes: Charge,
    number: Charge,
}

/// The table of lent storages.
#[derive(Debug)]
pub(super) struct Lending {
    segments: Vec<Option<Loan>>,
    /// Large segments that hold no message, the one used last at the end.
    large_free: Vec<u16>,
    options: StorageOptions,
    budgets: Budgets,
}

/// Pages of the first segment.
const FIRST_PAGES: usize = 4;

/// Pages of the largest segment.
const SEGMENT_PAGES_MAX: usize = 256;

impl Lending {
    pub(super) fn new(options: StorageOptions, budgets: Budgets) -> Lending {
        let (segments, large_free) = (Vec::new(), Vec::new());
        Lending { segments, large_free, options, budgets }
    }

    fn loans(&self) -> impl Iterator<Item = &Loan> {
        self.segments.iter().flatten()
    }

    /// Bytes lent now.
    pub(super) fn bytes(&self) -> u64 {
        self.loans().map(|loan| loan.bytes.amount).sum()
    }

    /// How many pages the next segment of pages has: as many as there are, so that their number grows
    /// with the need. None if the limit does not allow a single one.
    pub(super) fn growth(&self) -> Option<u16> {
        let pages = |loan: &Loan| match &loan.segment {
            Segment::Pages(storage) => storage.bytes() / PAGE_BYTES,
            Segment::Large { .. } | Segment::Shared => 0,
        };
        let wanted = self.loans().map(pages).sum::<usize>().clamp(FIRST_PAGES, SEGMENT_PAGES_MAX);
        let left = self.budgets.bytes.left() / PAGE_BYTES as u64;
        let pages = wanted.min(left as usize);
        (pages > 0).then_some(pages as u16)
    }

    /// Whether the limits allow one storage of `bytes` more.
    ///
    /// # Errors
    /// Which limit does not.
    pub(super) fn check_room(&self, bytes: u64) -> Result<(), Lack> {
        let Budgets { bytes: all_bytes, segments, .. } = &self.budgets;
        if bytes > all_bytes.left() {
            Err(Lack::Storage { most: all_bytes.most })
        } else if segments.left() == 0 {
            Err(Lack::Segments { most: segments.most })
        } else {
            Ok(())
        }
    }

    /// Creates storage, on huge pages only if the limit allows what they round it up to.
    pub(super) fn create(&self, bytes: usize) -> io::Result<(Storage, OwnedFd)> {
        let rounded = bytes.checked_next_multiple_of(HUGE_GRAIN_BYTES);
        let fits = rounded.is_some_and(|bytes| bytes as u64 <= self.budgets.bytes.left());
        let options = StorageOptions { huge: self.options.huge && fits, ..self.options };
        Storage::create("siga data", bytes, options)
    }

    /// Takes in a storage of `bytes` that is lent from now on, and gives it a number.
    ///
    /// # Errors
    /// Which limit does not allow it.
    pub(super) fn insert(&mut self, segment: Segment, bytes: u64) -> Result<u16, Lack> {
        let Budgets { bytes: all_bytes, segments, .. } = &self.budgets;
        let bytes = all_bytes.charge(bytes).ok_or(Lack::Storage { most: all_bytes.most })?;
        let number = segments.charge(1).ok_or(Lack::Segments { most: segments.most })?;
        let free = self.segments.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.segments.push(None);
            self.segments.len() - 1
        });
        self.segments[at] = Some(Loan { segment, bytes, number });
        Ok(at as u16)
    }

    /// Gives a storage's memory up. It counts against the limits, as so many bytes and as one, until what is
    /// returned is dropped.
    pub(super) fn remove(&mut self, number: u16) -> (Charge, Charge) {
        self.large_free.retain(|free| *free != number);
        let loan =
            self.segments[usize::from(number)].take().expect("only what was lent is retired");
        (loan.bytes, loan.number)
    }

    /// The bytes of a segment of ours.
    #[inline]
    pub(super) fn bytes_mut(&mut self, number: u16, offset: usize, count: usize) -> &mut [u8] {
        match self.segment_mut(number) {
            Some(Segment::Pages(storage)) => storage.bytes_mut(offset, count),
            Some(Segment::Large { storage, .. }) => storage.bytes_mut(offset, count),
            Some(Segment::Shared) | None => panic!("segment {number} is not ours to write"),
        }
    }

    fn segment(&self, number: u16) -> Option<&Segment> {
        self.segments.get(usize::from(number))?.as_ref().map(|loan| &loan.segment)
    }

    #[inline]
    fn segment_mut(&mut self, number: u16) -> Option<&mut Segment> {
        self.segments.get_mut(usize::from(number))?.as_mut().map(|loan| &mut loan.segment)
    }

    /// How large a segment for a large message of `bytes` is: up to a quarter more, or a page for short
    /// ones, so that messages of about the same size use the same segments.
    pub(super) fn large_bytes(bytes: usize) -> Option<usize> {
        let grain = (bytes.checked_next_power_of_two()? / 8).max(PAGE_BYTES);
        bytes.checked_next_multiple_of(grain)
    }

    /// A free large segment for a message of `bytes`: of those that are not far too large, the one used
    /// last.
    pub(super) fn take_large(&mut self, bytes: usize) -> Option<u16> {
        let fits = |number: &u16| match self.segment(*number) {
            Some(Segment::Large { storage, .. }) => {
                storage.bytes() >= bytes && storage.bytes() / 4 <= bytes
            }
            _ => false,
        };
        let at = self.large_free.iter().rposition(fits)?;
        let number = self.large_free.remove(at);
        if let Some(Segment::Large { touched, .. }) = self.segment_mut(number) {
            *touched = true;
        }
        Some(number)
    }

    /// A large segment holds no message any more.
    pub(super) fn release_large(&mut self, number: u16) {
        self.large_free.push(number);
    }

    /// A large segment that holds no message: of those unused for so long, the one unused for longest. The
    /// caller retires it.
    pub(super) fn take_unused(&mut self, unused: Unused) -> Option<u16> {
        let is_unused = |number: &u16| match self.segment(*number) {
            Some(Segment::Large { touched, .. }) => unused == Unused::Now || !touched,
            _ => false,
        };
        let at = self.large_free.iter().position(is_unused)?;
        Some(self.large_free.remove(at))
    }

    /// Starts a new trim period: large segments that are not used in it are idle.
    pub(super) fn untouch(&mut self) {
        for loan in self.segments.iter_mut().flatten() {
            if let Segment::Large { touched, .. } = &mut loan.segment {
                *touched = false;
            }
        }
    }

    /// Bytes of a storage of the user's own; none if the number stands for no such.
    pub(super) fn shared_bytes(&self, number: u16) -> Option<u64> {
        let loan = self.segments.get(usize::from(number))?.as_ref();
        loan.filter(|loan| loan.is_shared()).map(|loan| loan.bytes.amount)
    }

    /// Whether anything is lent that could be retired some day without the user's doing.
    pub(super) fn may_shrink(&self) -> bool {
        self.loans().any(|loan| !loan.is_shared())
    }
}

impl Loan {
    /// Whether it is the user's own.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.segment, Segment::Shared)
    }
}
