//! A queue: 128 buffers that go from a writer to a reader and back.
//!
//! ```text
//!    the writer's storage (the reader maps it read-only)          the reader's storage (and vice versa)
//!
//!    line 0    | word 0 |  56 bytes in place, or 3 entries |      | word 0 |
//!    line 1    | word 1 |                                  |      | word 1 |
//!      ...                                                           ...
//!    line 127  | word   |                                  |      | word   |
//!
//!    list 0    | 16 entries, used when the line is too small |
//!      ...
//!    segments  | the bytes that entries point to             |
//! ```
//!
//! The writer fills a line and counts its word up: the buffer is *primed*, the reader owns it. The reader
//! reads and counts its own word up: the buffer is *empty* again, the writer owns it. Nobody writes
//! where the other writes, and the counts are the only thing that hands over: there is no head and no
//! tail in shared memory. The writer primes buffers in order; the reader may give them back in any.
//!
//! Whatever is read from the other side is read once, checked, and then used. What no honest peer can
//! have written is a [`Violation`]: the user of the queue counts it and ends the path.
//!
//! Ringing is somebody else's deed: see [`sleep`].

mod audit;
mod entry;
mod lease;
mod reader;
pub mod sleep;
#[cfg(all(test, not(loom)))]
mod tests;
mod word;
mod writer;

pub use audit::{BufferAudit, audit};
pub use entry::{Entry, EntryFlags, OFFSET_END};
pub use lease::{Lease, LeaseLost, Server};
pub use reader::{GiveBack, Kind, Reader, Taken};
pub use word::{Form, Owner, ReaderWord, State, Violation, WriterWord};
pub use writer::{Content, Filling, Full, Returned, Room, Search, Writer};

/// Buffers in one queue. Indexes wrap by mask.
pub const QUEUE_BUFFERS: usize = if cfg!(loom) { 4 } else { 128 };
const _: () = assert!(QUEUE_BUFFERS.is_power_of_two());

/// Buffers that data never uses, so that control finds room behind a full queue.
pub const RESERVED_BUFFERS: usize = if cfg!(loom) { 1 } else { 8 };

/// Buffers that data may use.
pub const DATA_BUFFERS: usize = QUEUE_BUFFERS - RESERVED_BUFFERS;

/// Entries of one buffer, as in a QDIO storage list.
pub const ENTRIES_MAX: usize = 16;

/// Words of one line: a cache line.
pub const LINE_WORDS: usize = 8;

/// Bytes that fit into a line beside its word.
pub const IN_PLACE_BYTES_MAX: usize = (LINE_WORDS - 1) * 8;

/// Entries that fit into a line beside its word.
pub const ENTRIES_IN_LINE: usize = (LINE_WORDS - 1) / 2;

/// Words of one entry list.
pub const LIST_WORDS: usize = ENTRIES_MAX * 2;

/// Words of all lines of a queue.
pub const LINES_WORDS: usize = QUEUE_BUFFERS * LINE_WORDS;

/// Words of all entry lists of a queue.
pub const LISTS_WORDS: usize = QUEUE_BUFFERS * LIST_WORDS;

const INDEX_MASK: usize = QUEUE_BUFFERS - 1;
const INDEX_BITS: u32 = QUEUE_BUFFERS.trailing_zeros();

/// What a watcher may see of a writer's word: count and state, no size and no note.
const MIRRORED_BITS: u64 = 0xff_ffff_ffff;

/// The number of a hand-over, from 0. It says which buffer it used and what both counts were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The buffer.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize & INDEX_MASK
    }

    /// The writer's count before this hand-over, and the reader's until it gives the buffer back.
    #[inline]
    pub fn count_before(self) -> u32 {
        (self.0 >> INDEX_BITS) as u32
    }

    /// The writer's count from this hand-over on, and the reader's once it has given the buffer back.
    #[inline]
    pub fn count_after(self) -> u32 {
        self.count_before().wrapping_add(1)
    }

    /// The hand-over after this one.
    #[inline]
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }

    /// The hand-over before this one, if there was one.
    #[inline]
    pub fn previous(self) -> Option<Sequence> {
        self.0.checked_sub(1).map(Sequence)
    }
}
