//! The two storages of a side of a path: the *board*, state and counters for the peer and for watchers,
//! and the *lines*, which carry data and are for the peer alone.
//!
//! ```text
//! board   | header                                                        64 bytes |
//!         | for each output queue: | control line | counters 24 words |             |
//!         | for each input queue:  | control line | returns line | counters |       |
//!         | for each input queue:  | kept words 256 | slot words 1024 |              |
//!
//! lines   | for each output queue: | lines 32 KiB | lists 64 KiB | slot words 8 KiB  |
//!
//! header          word 0  "SIGABRD" and the version of this layout
//!                 word 1  output queues, word 2 input queues of this side
//! control line of the writer   word 0  sleep word: odd while it sleeps, waiting for room
//!                              word 1  zero, or why it ended (Halt)
//!                              words 2, 3  user data of the end
//!                              word 4  bytes in pages whose return the reader may withhold (-)
//! control line of the reader   word 0  sleep word: odd while it sleeps, waiting for messages
//!                              word 1  zero, or why it ended
//!                              words 2, 3  user data of the end
//!                              word 4  quiesce word: odd while the writer is to keep quiet
//!                              word 5  how many lent storages it has taken in
//! returns line                 word 0  hand-overs returned, but for those kept
//!                              word 1  how often something kept was given back
//!                              word 2  large messages released
//! ```
//!
//! A board of one queue each way takes one page of memory; the words behind it take memory when they are
//! used.

use os::sync::Ordering;
use os::words::{LentWords, Part, Words};

use super::counters::COUNTER_WORDS;
use crate::queue::slots::SLOTS;
use crate::queue::{CACHE_LINE_WORDS, LINES_WORDS, LISTS_WORDS, QUEUE_BUFFERS, RETURNS_WORDS};

/// Queues of a path in one direction.
pub const QUEUES_MAX: usize = 8;

/// Version of the layout of boards, lines and records. Both sides must have the same.
pub const LAYOUT_VERSION: u64 = 3;

const MAGIC: u64 = u64::from_le_bytes(*b"SIGABRD\0") | LAYOUT_VERSION << 56;

const HEADER_WORDS: usize = 8;
/// Words of a control line.
pub const CONTROL_WORDS: usize = CACHE_LINE_WORDS;
const WRITER_BLOCK_WORDS: usize = CONTROL_WORDS + COUNTER_WORDS;
const READER_BLOCK_WORDS: usize = CONTROL_WORDS + RETURNS_WORDS + COUNTER_WORDS;
const LATE_BLOCK_WORDS: usize = QUEUE_BUFFERS + SLOTS;
const QUEUE_LINES_WORDS: usize = LINES_WORDS + LISTS_WORDS + SLOTS;

/// Word of the returns that counts large messages released.
const RELEASED_WORD: usize = 2;

/// Word of a control line: odd while its side sleeps.
pub const SLEEP_WORD: usize = 0;

/// Word of a control line: zero, or why its side ended.
pub const HALT_WORD: usize = 1;

/// First word of a control line's data of the end.
pub const HALT_DATA_WORD: usize = 2;

/// Word of a writer's control line: the reader shows its returns as soon as it has done with so many bytes in pages.
/// Set before the first hand-over.
pub const WITHHELD_WORD: usize = 4;

/// Word of a reader's control line: odd while the writer is to keep quiet.
pub const QUIESCE_WORD: usize = 4;

/// Word of a reader's control line: how many lent storages it has taken in.
pub const LENT_TAKEN_WORD: usize = 5;

/// How many queues a side of a path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Queues this side writes, 1 to [`QUEUES_MAX`].
    pub outputs: usize,
    /// Queues this side reads, 1 to [`QUEUES_MAX`].
    pub inputs: usize,
}

impl Shape {
    /// One queue each way.
    pub const SIMPLE: Shape = Shape { outputs: 1, inputs: 1 };

    /// Whether a path can have this shape.
    pub fn is_valid(self) -> bool {
        (1..=QUEUES_MAX).contains(&self.outputs) && (1..=QUEUES_MAX).contains(&self.inputs)
    }

    /// The same path, seen from the other side.
    pub fn mirrored(self) -> Shape {
        Shape { outputs: self.inputs, inputs: self.outputs }
    }

    /// Words of the board of a side of this shape.
    pub fn board_words(self) -> usize {
        self.late_block(self.inputs)
    }

    /// Words of the lines of a side of this shape.
    pub fn lines_words(self) -> usize {
        self.outputs * QUEUE_LINES_WORDS
    }

    fn late_block(self, queue: usize) -> usize {
        let blocks = self.outputs * WRITER_BLOCK_WORDS + self.inputs * READER_BLOCK_WORDS;
        HEADER_WORDS + blocks + queue * LATE_BLOCK_WORDS
    }
}

/// A writer's part of its side's board.
#[derive(Debug)]
pub struct WriterBlock<W> {
    /// The control line.
    pub control: W,
    /// Its counters.
    pub counters: W,
}

/// A reader's part of its side's board.
#[derive(Debug)]
pub struct ReaderBlock<W> {
    /// The control line.
    pub control: W,
    /// What was returned.
    pub returns: W,
    /// Its counters.
    pub counters: W,
    /// The word of each buffer.
    pub kept: W,
    /// The word of each slot of a large message.
    pub slots: W,
    /// How many large messages were released.
    pub released: W,
}

/// A queue's part of its writer's lines.
#[derive(Debug)]
pub struct LineBlock<W> {
    /// The line of each buffer.
    pub lines: W,
    /// The entry list of each buffer.
    pub lists: W,
    /// The word of each slot of a large message.
    pub filled: W,
}

/// The part of a board that belongs to output queue `queue`.
pub fn writer_block<W: Part>(board: &W, shape: Shape, queue: usize) -> WriterBlock<W> {
    assert!(queue < shape.outputs);
    let first = HEADER_WORDS + queue * WRITER_BLOCK_WORDS;
    WriterBlock {
        control: board.part(first, CONTROL_WORDS),
        counters: board.part(first + CONTROL_WORDS, COUNTER_WORDS),
    }
}

/// The part of a board that belongs to input queue `queue`.
pub fn reader_block<W: Part>(board: &W, shape: Shape, queue: usize) -> ReaderBlock<W> {
    assert!(queue < shape.inputs);
    let first = HEADER_WORDS + shape.outputs * WRITER_BLOCK_WORDS + queue * READER_BLOCK_WORDS;
    let returns = first + CONTROL_WORDS;
    let late = shape.late_block(queue);
    ReaderBlock {
        control: board.part(first, CONTROL_WORDS),
        returns: board.part(returns, RETURNS_WORDS),
        counters: board.part(returns + RETURNS_WORDS, COUNTER_WORDS),
        kept: board.part(late, QUEUE_BUFFERS),
        slots: board.part(late + QUEUE_BUFFERS, SLOTS),
        released: board.part(returns + RELEASED_WORD, 1),
    }
}

/// The part of a side's lines that belongs to output queue `queue`.
pub fn line_block<W: Part>(lines: &W, queue: usize) -> LineBlock<W> {
    let first = queue * QUEUE_LINES_WORDS;
    LineBlock {
        lines: lines.part(first, LINES_WORDS),
        lists: lines.part(first + LINES_WORDS, LISTS_WORDS),
        filled: lines.part(first + LINES_WORDS + LISTS_WORDS, SLOTS),
    }
}

/// Writes the header of a fresh board. [`super::Side`] does this for its own; a proof does it for a peer
/// whose every word it has in its hand.
pub fn establish(board: &Words, shape: Shape) {
    board.store(1, shape.outputs as u64, Ordering::Relaxed);
    board.store(2, shape.inputs as u64, Ordering::Relaxed);
    board.store(0, MAGIC, Ordering::Release);
}

/// Whether a board is of this layout and shape.
pub fn is_established(board: &LentWords, shape: Shape) -> bool {
    board.count() >= shape.board_words()
        && board.load(0, Ordering::Acquire) == MAGIC
        && board.load(1, Ordering::Relaxed) == shape.outputs as u64
        && board.load(2, Ordering::Relaxed) == shape.inputs as u64
}

const _: () = assert!(
    (HEADER_WORDS + WRITER_BLOCK_WORDS + READER_BLOCK_WORDS) * 8 <= 4096,
    "the board of a simple path is one page, but for the words that are seldom used"
);
