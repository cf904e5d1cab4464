//! Pages: how a writer's storage is handed out.
//!
//! A page is 64 KiB of a segment. Content is laid into the current page one piece behind the other; a
//! page whose last piece has come back is free. Pages are handed out last in, first out, and a current
//! page that has become empty is filled from its start again: a quiet path keeps using the same few
//! cache lines, and the pages of a burst are left alone until their segment is retired.

use super::lending::Unused;

/// Size of a page in bytes, and the largest piece that lies in one.
pub const PAGE_BYTES: usize = 64 << 10;

/// Pieces start at multiples of this: a cache line.
const PIECE_GRAIN_BYTES: usize = 64;

/// A page: the number of its segment, and its number therein.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) segment: u16,
    pub(super) number: u16,
}

/// A piece of a page that is in use until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) page: Page,
    /// Where it starts, in bytes from the start of the segment.
    pub(super) offset: usize,
}

/// The pages of all segments of a queue.
#[derive(Debug, Default)]
pub(super) struct Pages {
    free: Vec<Page>,
    /// Pages of all segments.
    count: usize,
    /// Pieces in use on each page, by segment; empty for a number that is no segment of pages.
    pieces: Vec<Vec<u16>>,
    /// Whether a segment has given out a piece in this trim period, by segment.
    touched: Vec<bool>,
    current: Option<Current>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    page: Page,
    used_bytes: usize,
}

impl Pages {
    /// Takes in a segment of `count` pages.
    pub(super) fn add(&mut self, segment: u16, count: u16) {
        let index = usize::from(segment);
        if self.pieces.len() <= index {
            self.pieces.resize_with(index + 1, Vec::new);
            self.touched.resize(index + 1, false);
        }
        assert!(self.pieces[index].is_empty(), "a segment is added once");
        self.pieces[index] = vec![0; usize::from(count)];
        self.touched[index] = true;
        self.count += usize::from(count);
        self.free.extend((0..count).rev().map(|number| Page { segment, number }));
    }

    /// Finds room for a piece of `bytes`, at most a page. `None` if all pages are in use.
    #[inline(always)]
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<Piece> {
        debug_assert!(bytes <= PAGE_BYTES);
        // A piece of no bytes takes room too: a page has 1024 pieces at most, which a count can hold.
        let bytes = bytes.max(1);
        let current = match &mut self.current {
            Some(current) if bytes <= PAGE_BYTES - current.used_bytes => current,
            _ => self.turn_page()?,
        };
        let page = current.page;
        let offset = usize::from(page.number) * PAGE_BYTES + current.used_bytes;
        current.used_bytes =
            (current.used_bytes + bytes).next_multiple_of(PIECE_GRAIN_BYTES).min(PAGE_BYTES);
        self.pieces[usize::from(page.segment)][usize::from(page.number)] += 1;
        self.touched[usize::from(page.segment)] = true;
        Some(Piece { page, offset })
    }

    /// Gives back what the newest piece does not need of what was reserved for it.
    pub(super) fn shorten(&mut self, piece: Piece, bytes: usize) {
        let current = self.current.as_mut().expect("the newest piece lies on the current page");
        assert_eq!(current.page, piece.page, "the newest piece lies on the current page");
        let start = piece.offset - usize::from(piece.page.number) * PAGE_BYTES;
        current.used_bytes = (start + bytes).next_multiple_of(PIECE_GRAIN_BYTES).min(PAGE_BYTES);
    }

    fn turn_page(&mut self) -> Option<&mut Current> {
        let next = self.free.pop()?;
        if let Some(old) = self.current.take()
            && self.pieces[usize::from(old.page.segment)][usize::from(old.page.number)] == 0
        {
            self.free.push(old.page);
        }
        Some(self.current.insert(Current { page: next, used_bytes: 0 }))
    }

    /// Takes a piece back.
    #[inline]
    pub(super) fn release(&mut self, page: Page) {
        let pieces = &mut self.pieces[usize::from(page.segment)][usize::from(page.number)];
        *pieces -= 1;
        if *pieces == 0 {
            match &mut self.current {
                Some(current) if current.page == page => current.used_bytes = 0,
                _ => self.free.push(page),
            }
        }
    }

    /// A segment that has no piece in use, and had none for so long. It is forgotten: the caller retires it.
    pub(super) fn take_unused(&mut self, unused: Unused) -> Option<u16> {
        let is_unused = |at: &usize| {
            let pieces = &self.pieces[*at];
            let is_free = !pieces.is_empty() && pieces.iter().all(|pieces| *pieces == 0);
            is_free && (unused == Unused::Now || !self.touched[*at])
        };
        let index = (0..self.pieces.len()).find(is_unused)?;
        self.count -= std::mem::take(&mut self.pieces[index]).len();
        let segment = index as u16;
        self.free.retain(|page| page.segment != segment);
        self.current = self.current.filter(|current| current.page.segment != segment);
        Some(segment)
    }

    /// Bytes of the pages that hold something.
    pub(super) fn used_bytes(&self) -> usize {
        // The one that is filled next may be empty.
        let is_empty = self.current.is_some_and(|Current { page, .. }| {
            self.pieces[usize::from(page.segment)][usize::from(page.number)] == 0
        });
        (self.count - self.free.len() - usize::from(is_empty)) * PAGE_BYTES
    }

    /// Starts a new trim period: segments that are not used in it are idle.
    pub(super) fn untouch(&mut self) {
        self.touched.fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_hold_something_are_in_use() {
        let mut pages = Pages::default();
        assert_eq!(pages.used_bytes(), 0);
        pages.add(0, 4);
        let pieces: Vec<_> = (0..3).map(|_| pages.reserve(PAGE_BYTES).unwrap()).collect();
        assert_eq!(pages.used_bytes(), 3 * PAGE_BYTES);
        pages.release(pieces[2].page);
        pages.release(pieces[0].page);
        assert_eq!(pages.used_bytes(), PAGE_BYTES);
        pages.release(pieces[1].page);
        assert_eq!(pages.used_bytes(), 0);
        assert_eq!(pages.take_unused(Unused::Now), Some(0));
        assert_eq!(pages.used_bytes(), 0);
    }

    #[test]
    fn quiet_use_stays_at_the_same_place() {
        let mut pages = Pages::default();
        pages.add(0, 4);
        let first = pages.reserve(100).unwrap();
        for _ in 0..1000 {
            pages.release(first.page);
            assert_eq!(pages.reserve(100), Some(first));
        }
    }

    #[test]
    fn pieces_do_not_overlap_and_pages_come_back_last_in_first_out() {
        let mut pages = Pages::default();
        pages.add(0, 2);
        pages.add(3, 1);
        let pieces: Vec<Piece> = std::iter::from_fn(|| pages.reserve(30_000)).collect();
        let places: Vec<_> = pieces.iter().map(|piece| (piece.page, piece.offset)).collect();
        let page = |segment, number| Page { segment, number };
        assert_eq!(
            places,
            [
                (page(3, 0), 0),
                (page(3, 0), 30_016),
                (page(0, 0), 0),
                (page(0, 0), 30_016),
                (page(0, 1), PAGE_BYTES),
                (page(0, 1), PAGE_BYTES + 30_016),
            ]
        );
        for piece in &pieces[..4] {
            pages.release(piece.page);
        }
        assert_eq!(pages.reserve(PAGE_BYTES).unwrap().page, page(0, 0), "freed last");
    }

    #[test]
    fn what_a_piece_did_not_need_is_used_by_the_next() {
        let mut pages = Pages::default();
        pages.add(0, 1);
        let pack = pages.reserve(16_384).unwrap();
        pages.shorten(pack, 100);
        assert_eq!(pages.reserve(10).unwrap().offset, 128);
    }

    #[test]
    fn segment_is_idle_only_after_a_period_without_use() {
        let mut pages = Pages::default();
        pages.add(0, 1);
        pages.add(1, 1);
        let piece = pages.reserve(10).unwrap();
        assert_eq!(piece.page.segment, 1);
        pages.untouch();
        assert_eq!(pages.take_unused(Unused::ForLong), Some(0));
        assert_eq!(pages.take_unused(Unused::ForLong), None);
        pages.release(piece.page);
        pages.untouch();
        assert_eq!(pages.take_unused(Unused::ForLong), Some(1));
        assert_eq!(pages.reserve(10), None);
        pages.add(1, 1);
        assert!(pages.reserve(10).is_some(), "a number can be used again");
    }
}
