//! The storages that a queue's writer has lent to its reader.

use std::io;
use std::os::fd::OwnedFd;

use os::storage::{Storage, StorageOptions};

use super::pages::PAGE_BYTES;

/// Storages that a writer has lent and not retired, at most.
pub const SEGMENTS_MAX: usize = 1024;

/// Storages that were lent and that the reader has not taken in yet, at most: each is a descriptor that
/// somebody has to hold.
pub const LENDS_UNHEARD_MAX: u64 = 16;

/// What a lent storage is for.
#[derive(Debug)]
pub(super) enum Segment {
    /// Pages, handed out by [`super::pages::Pages`].
    Pages(Storage),
    /// One large message at a time.
    Large(Large),
    /// Storage that belongs to the user of the path: he lends it, fills it and names it in entries.
    Shared,
}

#[derive(Debug)]
pub(super) struct Large {
    pub(super) storage: Storage,
    touched: bool,
}

/// The table of lent storages.
#[derive(Debug)]
pub(super) struct Lending {
    segments: Vec<Option<(Segment, u64)>>,
    /// Large segments that hold no message, the one used last at the end.
    large_free: Vec<u16>,
    options: StorageOptions,
    bytes: u64,
    bytes_max: u64,
    pages: usize,
}

/// Pages of the first segment.
const FIRST_PAGES: usize = 4;

/// Pages of the largest segment.
const SEGMENT_PAGES_MAX: usize = 256;

impl Lending {
    pub(super) fn new(options: StorageOptions, bytes_max: u64) -> Lending {
        Lending {
            segments: Vec::new(),
            large_free: Vec::new(),
            options,
            bytes: 0,
            bytes_max,
            pages: 0,
        }
    }

    /// Bytes lent now.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many pages the next segment of pages has: as many as there are, so that their number grows
    /// with the need. None if the limit does not allow a single one.
    pub(super) fn growth(&self) -> Option<u16> {
        let wanted = self.pages.clamp(FIRST_PAGES, SEGMENT_PAGES_MAX);
        let left = (self.bytes_max - self.bytes) / PAGE_BYTES as u64;
        let pages = wanted.min(left as usize);
        (pages > 0).then_some(pages as u16)
    }

    /// Whether the limit allows `bytes` more.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max - self.bytes
    }

    /// A number for a new storage of `bytes`, if one is left and the limit allows it.
    pub(super) fn number(&mut self, bytes: u64) -> Option<u16> {
        if !self.has_room(bytes) {
            return None;
        }
        let free = self.segments.iter().position(Option::is_none);
        let number = free.unwrap_or(self.segments.len());
        if number == SEGMENTS_MAX {
            return None;
        }
        if free.is_none() {
            self.segments.push(None);
        }
        Some(number as u16)
    }

    pub(super) fn create(&self, bytes: usize) -> io::Result<(Storage, OwnedFd)> {
        Storage::create("siga data", bytes, self.options)
    }

    /// Takes in what was lent under `number`.
    pub(super) fn insert(&mut self, number: u16, segment: Segment, bytes: u64) {
        if let Segment::Pages(storage) = &segment {
            self.pages += storage.bytes() / PAGE_BYTES;
        }
        let place = &mut self.segments[usize::from(number)];
        assert!(place.is_none(), "a number stands for one storage at a time");
        *place = Some((segment, bytes));
        self.bytes += bytes;
    }

    /// Forgets a storage that nothing uses any more.
    pub(super) fn remove(&mut self, number: u16) {
        let (segment, bytes) =
            self.segments[usize::from(number)].take().expect("only what was lent is retired");
        if let Segment::Pages(storage) = &segment {
            self.pages -= storage.bytes() / PAGE_BYTES;
        }
        self.bytes -= bytes;
        self.large_free.retain(|free| *free != number);
    }

    /// The bytes of a segment of ours.
    #[inline]
    pub(super) fn bytes_mut(&mut self, number: u16, offset: usize, count: usize) -> &mut [u8] {
        match &mut self.segments[usize::from(number)] {
            Some((Segment::Pages(storage), _)) => storage.bytes_mut(offset, count),
            Some((Segment::Large(large), _)) => large.storage.bytes_mut(offset, count),
            Some((Segment::Shared, _)) | None => panic!("segment {number} is not ours to write"),
        }
    }

    /// How large a segment for a large message of `bytes` is: up to an eighth more, so that messages of
    /// about the same size use the same segments.
    pub(super) fn large_bytes(bytes: usize) -> Option<usize> {
        let grain = (bytes.checked_next_power_of_two()? / 8).max(PAGE_BYTES);
        bytes.checked_next_multiple_of(grain)
    }

    /// A free large segment for a message of `bytes`: of those that are not far too large, the one used
    /// last.
    pub(super) fn take_large(&mut self, bytes: usize) -> Option<u16> {
        let fits = |number: &u16| match &self.segments[usize::from(*number)] {
            Some((Segment::Large(large), _)) => {
                let size = large.storage.bytes();
                size >= bytes && size / 4 <= bytes
            }
            _ => false,
        };
        let at = self.large_free.iter().rposition(fits)?;
        let number = self.large_free.remove(at);
        if let Some((Segment::Large(large), _)) = &mut self.segments[usize::from(number)] {
            large.touched = true;
        }
        Some(number)
    }

    /// A large segment holds no message any more.
    pub(super) fn release_large(&mut self, number: u16) {
        self.large_free.push(number);
    }

    /// Any large segment that holds no message: of those, the one unused for longest.
    pub(super) fn take_free_large(&mut self) -> Option<u16> {
        (!self.large_free.is_empty()).then(|| self.large_free.remove(0))
    }

    /// A large segment that is free and was not used since the last call of [`Lending::untouch`]. The
    /// caller retires it.
    pub(super) fn take_idle_large(&mut self) -> Option<u16> {
        let at = self.large_free.iter().position(|number| {
            matches!(&self.segments[usize::from(*number)], Some((Segment::Large(l), _)) if !l.touched)
        })?;
        Some(self.large_free.remove(at))
    }

    /// Starts a new period of looking which large segments are idle.
    pub(super) fn untouch(&mut self) {
        for (segment, _) in self.segments.iter_mut().flatten() {
            if let Segment::Large(large) = segment {
                large.touched = false;
            }
        }
    }

    /// Whether a number stands for storage of the user's own.
    pub(super) fn is_shared(&self, number: u16) -> bool {
        matches!(self.segments.get(usize::from(number)), Some(Some((Segment::Shared, _))))
    }

    /// Bytes of a lent storage; zero if the number stands for none.
    pub(super) fn segment_bytes(&self, number: u16) -> u64 {
        let segment = self.segments.get(usize::from(number)).and_then(Option::as_ref);
        segment.map_or(0, |(_, bytes)| *bytes)
    }

    /// Whether anything is lent that could be retired some day without the user's doing.
    pub(super) fn may_shrink(&self) -> bool {
        let own = |segment: &Segment| !matches!(segment, Segment::Shared);
        self.segments.iter().flatten().any(|(segment, _)| own(segment))
    }
}

impl Large {
    pub(super) fn new(storage: Storage) -> Large {
        Large { storage, touched: true }
    }
}
