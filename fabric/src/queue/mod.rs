//! A queue: buffers that go from a writer to a reader and back.
//!
//! ```text
//!    the writer's storage (the reader maps it read-only)               the reader's storage (and vice versa)
//!
//!    line 0    | word  | 56 bytes in place, or 3 entries |             | returned | late |
//!              | stamp | 56 bytes more in place          |
//!    line 1    | word  |                                 |             | word 0   |
//!              | stamp |                                 |             | word 1   |
//!      ...                                                                ...
//!    line 255                                                          | word 255 |
//!
//!    list 0    | 16 entries, used when the line holds too few |
//!      ...
//!    segments  | the bytes that entries point to              |
//! ```
//!
//! Line n is that of buffer n; within a page of 32, their order in memory is another: [`Sequence::line_word`].
//!
//! The writer fills a line, two cache lines beside each other, and counts its word up: the buffer is
//! *primed*, the reader owns it. The second cache line has a stamp of its own, the same count in 64 bits, if
//! there is something in it; the buffer is there when both have come. The writer primes buffers in order, so the
//! reader returns them with one count for all: *returned* says with how many hand-overs, from the first on,
//! the reader has finished, so each of those buffers is *empty* again and the writer's. The reader publishes
//! that count in bursts. A buffer that the reader still reads while it goes on is *kept*: the word of that
//! buffer becomes *pending* before the count passes it, and *empty* later, in any order; *late* counts how
//! often that happened. Neither side writes where the other writes, and the counts are the only thing that
//! hands over.
//!
//! Whatever is read from the other side is read once, checked, and then used. A value that no honest peer can
//! have written is a [`Violation`]: the user of the queue ends the path for it.
//!
//! Handing over does not ring: see [`sleep`]. Large messages have [`slots`] instead of buffers while they
//! wait.

mod audit;
mod entry;
mod lease;
mod reader;
pub mod sleep;
pub mod slots;
#[cfg(all(test, not(loom)))]
mod tests;
mod word;
mod writer;

pub use audit::{BufferAudit, Owner, audit};
pub use entry::{Entry, EntryFlags, OFFSET_END};
pub use lease::{Lease, LeaseLost, Server};
pub use reader::{Held, Reader, Taken};
pub use word::{Form, State, Violation, WriterWord, keeps, kept_word};
pub use writer::{Content, Filling, Full, Writer};

/// Buffers in one queue of messages. Indexes wrap by mask. A QDIO device shows 128; messages go faster over
/// more, for then neither side waits for the lines that the other has just used.
pub const QUEUE_BUFFERS: usize = if cfg!(loom) { 4 } else { 256 };
const _: () = assert!(QUEUE_BUFFERS.is_power_of_two());

/// Buffers that data never uses, so that control finds room behind a full queue.
pub const RESERVED_BUFFERS: usize = if cfg!(loom) { 1 } else { 8 };

/// Buffers that data may use.
pub const DATA_BUFFERS: usize = QUEUE_BUFFERS - RESERVED_BUFFERS;

/// A reader shows its returns as soon as it has finished with this many hand-overs since it last did: it
/// withholds fewer.
pub const RETURNS_WITHHELD_MAX: u64 = if cfg!(loom) { 2 } else { 64 };

/// How many buffers ahead the writer asks for the lines that it will write.
const WRITE_AHEAD_BUFFERS: u64 = 12;

/// How many buffers ahead the reader asks for lines that it knows to be written.
const READ_AHEAD_BUFFERS: u64 = 16;

/// Lines of one page of memory, among which neighbours lie apart.
const PAGE_LINES: usize = if cfg!(loom) { QUEUE_BUFFERS } else { 32 };
const _: () = assert!(PAGE_LINES.is_power_of_two() && PAGE_LINES <= QUEUE_BUFFERS);

/// So many lines lie between those of one buffer and the next, modulo those of the page.
const LINE_STEP: usize = 11;
const _: () = assert!(LINE_STEP % 2 == 1, "each line of a page is some buffer's");

/// Entries of one buffer, as in a QDIO storage list.
pub const ENTRIES_MAX: usize = 16;

/// Words of one line: two cache lines beside each other, which come together.
pub const LINE_WORDS: usize = 16;

/// Words of one cache line.
pub const CACHE_LINE_WORDS: usize = 8;

/// Bytes that fit into one cache line of a line, beside its word or its stamp.
pub const CACHE_LINE_BYTES: usize = (CACHE_LINE_WORDS - 1) * 8;

/// Bytes that fit into a line beside its word and its stamp.
pub const IN_PLACE_BYTES_MAX: usize = 2 * CACHE_LINE_BYTES;

/// Entries that fit into the first cache line of a line beside its word.
pub const ENTRIES_IN_LINE: usize = (CACHE_LINE_WORDS - 1) / 2;

/// Words of one entry list.
pub const LIST_WORDS: usize = ENTRIES_MAX * 2;

/// Words of all lines of a queue.
pub const LINES_WORDS: usize = QUEUE_BUFFERS * LINE_WORDS;

/// Words of all entry lists of a queue.
pub const LISTS_WORDS: usize = QUEUE_BUFFERS * LIST_WORDS;

/// Words in which a reader shows its returns: a cache line.
pub const RETURNS_WORDS: usize = CACHE_LINE_WORDS;

/// Word of the returns: with how many hand-overs the reader has finished, those that it keeps included.
pub const RETURNED_WORD: usize = 0;

/// Word of the returns: how often something kept was given back late.
pub const LATE_WORD: usize = 1;

const INDEX_MASK: usize = QUEUE_BUFFERS - 1;
const INDEX_BITS: u32 = QUEUE_BUFFERS.trailing_zeros();

/// The number of a hand-over, from 0. It says which buffer it uses, and the writer's count of that buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The buffer.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize & INDEX_MASK
    }

    /// The first word of the buffer's line.
    // Not in the order of the buffers: processors guess from a row of loads which lines come next, and fetch them. Those
    // are lines that the writer is about to fill, and it has to have them back first.
    #[inline(always)]
    pub fn line_word(self) -> usize {
        let index = self.index();
        let in_page = index.wrapping_mul(LINE_STEP) & (PAGE_LINES - 1);
        (index & !(PAGE_LINES - 1) | in_page) * LINE_WORDS
    }

    /// The writer's count before this hand-over.
    #[inline]
    pub fn count_before(self) -> u32 {
        (self.0 >> INDEX_BITS) as u32
    }

    /// The writer's count from this hand-over on.
    #[inline]
    pub fn count_after(self) -> u32 {
        self.count_before().wrapping_add(1)
    }

    /// The stamp of the second cache line: the count of this hand-over in all its bits. A stamp stays as it is while
    /// messages fit into the first cache line, so 32 bits of it would be those of a later hand-over some day.
    #[inline]
    fn stamp(self) -> u64 {
        (self.0 >> INDEX_BITS) + 1
    }

    /// The hand-over after this one.
    #[inline]
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

/// One bit for each buffer.
#[derive(Clone, Debug, Default)]
struct Bits([u64; QUEUE_BUFFERS.div_ceil(64)]);

impl Bits {
    #[inline]
    fn contains(&self, index: usize) -> bool {
        self.0[index / 64] & 1 << (index % 64) != 0
    }

    #[inline]
    fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    #[inline]
    fn remove(&mut self, index: usize) {
        self.0[index / 64] &= !(1 << (index % 64));
    }

    /// How far the first bit from this one on is away, if there is one in the same word.
    #[inline]
    fn first_from(&self, index: usize) -> Option<u64> {
        let bits = self.0[index / 64] >> (index % 64);
        (bits != 0).then(|| bits.trailing_zeros().into())
    }

    fn count(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }
}
