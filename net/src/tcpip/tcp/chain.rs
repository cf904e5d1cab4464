//! Bytes of a stream, in buffers that all connections of a stack share.
//!
//! A connection has as many buffers as its bytes need, and none when it has none. The buffer that was given back last is taken
//! next: its memory is still in the processor's cache. Where bytes have come before those in front of them, they lie in
//! their place already, and what is missing is filled in.

mod room;

use std::collections::VecDeque;
use std::ops::Range;

use crate::tcpip::buffers::{BUFFER_BYTES, Buffer, Buffers, Owner, Purpose};

/// Where the data of a segment lies.
pub(in crate::tcpip) trait Data {
    /// Copies the bytes from this place on. False if they are not there any more.
    fn read(&self, at: usize, target: &mut [u8]) -> bool;
}

impl Data for [u8] {
    fn read(&self, at: usize, target: &mut [u8]) -> bool {
        let bytes = self.get(at..).and_then(|bytes| bytes.get(..target.len()));
        bytes.map(|bytes| target.copy_from_slice(bytes)).is_some()
    }
}

/// The bytes of one direction of a connection.
///
/// Places are counted from the first byte that is there. [`Chain::clear`] has to be called before it is dropped, or its buffers
/// count as used for ever.
#[derive(Debug)]
pub(super) struct Chain {
    owner: Owner,
    buffers: Places,
    /// Where the first byte lies in the first buffer.
    start: u32,
    /// Bytes that are there without a gap.
    bytes: u32,
    /// Where the last byte ends that is there, gaps or not.
    extent: u32,
    /// Set if they are to be sent.
    is_sending: bool,
}

/// Buffers in their order; none where nothing has come. The first has a place of its own: an idle connection has no list.
#[derive(Debug, Default)]
struct Places {
    first: Option<Buffer>,
    rest: VecDeque<Option<Buffer>>,
}

/// Places that an empty list may have.
const PLACES_KEPT: usize = 16;

impl Places {
    fn get(&self, number: usize) -> Option<&Buffer> {
        match number.checked_sub(1) {
            None => self.first.as_ref(),
            Some(number) => self.rest.get(number)?.as_ref(),
        }
    }

    /// The place of a buffer, which may be empty.
    fn place(&mut self, number: usize) -> &mut Option<Buffer> {
        let Some(in_rest) = number.checked_sub(1) else { return &mut self.first };
        while self.rest.len() < number {
            self.rest.push_back(None);
        }
        &mut self.rest[in_rest]
    }

    fn take_first(&mut self) -> Option<Buffer> {
        std::mem::replace(&mut self.first, self.rest.pop_front().flatten())
    }

    /// Takes all but so many.
    fn cut(&mut self, kept: usize) -> impl Iterator<Item = Buffer> {
        let first = self.first.take_if(|_| kept == 0);
        let kept = kept.saturating_sub(1).min(self.rest.len());
        first.into_iter().chain(self.rest.drain(kept..).flatten())
    }
}

impl Chain {
    /// One whose buffers are this owner's, for bytes that have come, or are to be sent.
    pub(super) fn new(owner: Owner, is_sending: bool) -> Chain {
        let buffers = Places::default();
        Chain { owner, buffers, start: 0, bytes: 0, extent: 0, is_sending }
    }

    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    pub(super) fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
    }

    /// How many buffers it has.
    pub(super) fn buffers(&self) -> usize {
        self.buffers.first.iter().chain(self.buffers.rest.iter().flatten()).count()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes as usize
    }

    /// Puts a range of `data` in its place, which may lie behind a gap: how many bytes of it. They are fewer if there is no buffer, or no data
    /// any more.
    pub(super) fn put(
        &mut self,
        at: usize,
        data: &(impl Data + ?Sized),
        range: Range<usize>,
        pool: &mut Buffers,
    ) -> usize {
        let purpose = if at > self.len() { Purpose::Behind } else { Purpose::Next };
        let mut place = self.start as usize + at;
        let mut next = range.start;
        while next < range.end {
            let (number, from) = (place / BUFFER_BYTES, place % BUFFER_BYTES);
            let Some(buffer) = self.buffer(number, purpose, pool) else { break };
            let count = (range.end - next).min(BUFFER_BYTES - from);
            if !data.read(next, &mut buffer[from..from + count]) {
                break;
            }
            place += count;
            next += count;
        }
        let count = next - range.start;
        if count > 0 {
            self.extent = self.extent.max((at + count) as u32);
        }
        if count < range.len() {
            self.trim(pool);
        }
        count
    }

    /// Gives back buffers behind the last byte that is there.
    fn trim(&mut self, pool: &mut Buffers) {
        if self.extent == 0 {
            return self.clear(pool);
        }
        let needed = (self.start + self.extent).div_ceil(BUFFER_BYTES as u32) as usize;
        for buffer in self.buffers.cut(needed) {
            pool.put(buffer, self.is_sending, self.owner);
        }
    }

    /// Drops what lies behind a gap.
    pub(super) fn cut(&mut self, pool: &mut Buffers) {
        self.extent = self.bytes;
        self.trim(pool);
    }

    fn buffer(
        &mut self,
        number: usize,
        purpose: Purpose,
        pool: &mut Buffers,
    ) -> Option<&mut Buffer> {
        let place = self.buffers.place(number);
        if place.is_none() {
            *place = Some(pool.take(purpose, self.owner)?);
        }
        place.as_mut()
    }

    /// So many more bytes are there without a gap: they were put there, or filled in.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.bytes += bytes as u32;
        self.extent = self.extent.max(self.bytes);
    }

    /// Free space behind the last byte, in one piece: no more than makes `bytes_max` in all. Empty if there is no buffer.
    pub(super) fn space(&mut self, bytes_max: usize, pool: &mut Buffers) -> &mut [u8] {
        let left = bytes_max.saturating_sub(self.len());
        if left == 0 {
            return &mut [];
        }
        let place = (self.start + self.bytes) as usize;
        let (number, from) = (place / BUFFER_BYTES, place % BUFFER_BYTES);
        match self.buffer(number, Purpose::Sending, pool) {
            Some(buffer) => &mut buffer[from..BUFFER_BYTES.min(from + left)],
            None => &mut [],
        }
    }

    /// The first bytes, as far as they lie in one piece.
    pub(super) fn front(&self) -> &[u8] {
        self.pieces(0, self.len()).next().unwrap_or_default()
    }

    /// Bytes in pieces.
    pub(super) fn pieces(&self, at: usize, bytes: usize) -> impl Iterator<Item = &[u8]> {
        let mut place = self.start as usize + at;
        let end = place + bytes.min(self.len().saturating_sub(at));
        std::iter::from_fn(move || {
            if place >= end {
                return None;
            }
            let (number, from) = (place / BUFFER_BYTES, place % BUFFER_BYTES);
            let to = BUFFER_BYTES.min(from + end - place);
            place += to - from;
            self.buffers.get(number).map(|buffer| &buffer[from..to])
        })
    }

    /// The first bytes are not needed any more.
    pub(super) fn consume(&mut self, bytes: usize, pool: &mut Buffers) {
        self.bytes -= bytes as u32;
        self.extent -= bytes as u32;
        self.start += bytes as u32;
        if self.extent == 0 {
            return self.clear(pool);
        }
        while self.start >= BUFFER_BYTES as u32 {
            self.start -= BUFFER_BYTES as u32;
            if let Some(buffer) = self.buffers.take_first() {
                pool.put(buffer, self.is_sending, self.owner);
            }
        }
    }

    /// Gives all buffers back.
    pub(super) fn clear(&mut self, pool: &mut Buffers) {
        for buffer in self.buffers.cut(0) {
            pool.put(buffer, self.is_sending, self.owner);
        }
        if self.buffers.rest.capacity() > PLACES_KEPT {
            self.buffers.rest.shrink_to(0);
        }
        (self.start, self.bytes, self.extent) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(chain: &mut Chain, at: usize, bytes: &[u8], pool: &mut Buffers) -> usize {
        chain.put(at, bytes, 0..bytes.len(), pool)
    }

    fn chain(pool: &mut Buffers, is_sending: bool) -> Chain {
        let owner = pool.enter([10, 1, 0, 1].into());
        Chain::new(owner, is_sending)
    }

    #[test]
    fn buffers_are_limited_and_used_again() {
        let mut pool = Buffers::new(16 * BUFFER_BYTES, BUFFER_BYTES);
        let in_use = |pool: &Buffers| (pool.usage().in_use, pool.usage().free);
        let [mut chain, mut other] = [false; 2].map(|_| self::chain(&mut pool, false));
        // What does not find room leaves nothing behind.
        let bytes = vec![1; 9 * BUFFER_BYTES];
        assert_eq!(put(&mut chain, 0, &bytes, &mut pool), 6 * BUFFER_BYTES);
        assert_eq!(put(&mut other, 0, &[3], &mut pool), 0);
        assert_eq!(put(&mut other, 1, &[3], &mut pool), 0);
        assert_eq!(in_use(&pool), (6, 0));
        let mut sending = self::chain(&mut pool, true);
        for _ in 0..5 {
            assert_eq!(sending.space(usize::MAX, &mut pool).len(), BUFFER_BYTES);
            sending.advance(BUFFER_BYTES);
        }
        assert!(sending.space(usize::MAX, &mut pool).is_empty());
        chain.advance(6 * BUFFER_BYTES);
        chain.consume(5 * BUFFER_BYTES, &mut pool);
        assert_eq!(in_use(&pool), (6, 1));
        assert_eq!(
            put(&mut chain, 2 * BUFFER_BYTES, &bytes[..BUFFER_BYTES], &mut pool),
            BUFFER_BYTES
        );
        assert_eq!(in_use(&pool), (7, 0));
        chain.cut(&mut pool);
        assert_eq!(in_use(&pool), (6, 1));
        chain.consume(BUFFER_BYTES, &mut pool);
        sending.clear(&mut pool);
        assert_eq!((in_use(&pool), pool.usage().high_water), ((0, 1), 11));
    }

    #[test]
    fn data_that_is_gone_takes_no_buffer() {
        struct Gone;
        impl Data for Gone {
            fn read(&self, _: usize, _: &mut [u8]) -> bool {
                false
            }
        }
        let mut pool = Buffers::new(8 * BUFFER_BYTES, 0);
        let mut chain = self::chain(&mut pool, false);
        assert_eq!(chain.put(0, &Gone, 0..10, &mut pool), 0);
        assert_eq!(pool.usage().in_use, 0);
    }

    proptest! {
        #[test]
        fn bytes_come_out_as_they_were_put(
            steps in prop::collection::vec((0..40_000usize, 0..40_000usize, 0..60_000usize), 1..30),
        ) {
            let mut pool = Buffers::new(8 << 20, 1 << 20);
            let mut chain = self::chain(&mut pool, false);
            let byte = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
            let (mut read, mut written) = (0, 0);
            for (first, second, consumed) in steps {
                // The second part is put before the first.
                let bytes: Vec<u8> = (written..written + first + second).map(byte).collect();
                let at = chain.len();
                prop_assert_eq!(put(&mut chain, at + first, &bytes[first..], &mut pool), second);
                prop_assert_eq!(put(&mut chain, at, &bytes[..first], &mut pool), first);
                chain.advance(bytes.len());
                written += bytes.len();
                let count = consumed.min(chain.len());
                let found: Vec<u8> = chain.pieces(0, count).flatten().copied().collect();
                prop_assert!(found.into_iter().eq((read..read + count).map(byte)));
                chain.consume(count, &mut pool);
                read += count;
                prop_assert_eq!(chain.len(), written - read);
                let needed = chain.len().div_ceil(BUFFER_BYTES) + 1;
                prop_assert!(pool.usage().in_use <= needed);
            }
            chain.clear(&mut pool);
            prop_assert_eq!(pool.usage().in_use, 0);
        }
    }
}
