//! A path: two parties, one or more queues in each direction.

pub mod board;
mod budget;
mod counters;
mod doorbells;
mod half;
mod lending;
mod pages;
mod receiver;
mod record;
mod sender;
mod severed;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;

use os::foreign::Foreign;
use os::storage::{BorrowError, Borrowed, Storage, StorageOptions};
use os::words::{LentWords, Words};

pub use board::{QUEUES_MAX, Shape};
pub use counters::{Counter, Counters, GAUGES, gauge_word};
pub use half::NotOurs;
pub use lending::{LENDS_PENDING_MAX, SEGMENTS_MAX};
pub use pages::PAGE_BYTES;
pub use receiver::{
    Announced, FORESEEN_BYTES, Fetched, InPage, Incoming, List, Message, MessageRef, Receiver, View,
};
pub use record::{HEAD_BYTES_MAX, LIST_BYTES_MAX};
pub use sender::{Claim, CommitError, Lendable, ListError, Ringing, SendError, Sender, Shared};
pub use severed::{END_DATA_BYTES, Lack, NO_DATA, Reason, Severed, USER_DATA_BYTES, UserData};

pub use crate::queue::IN_PLACE_BYTES_MAX;
pub use crate::queue::slots::SLOTS;

use self::budget::{Budget, Budgets};

/// What the two parties, and the host between them, have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Bytes in buffers of one queue that may be out before a send is refused.
    pub window_bytes: usize,
    /// Bytes of large messages that may wait in one queue before a send is refused; two may always wait.
    pub announced_bytes_max: u64,
    /// Large messages that may wait in one queue, whatever their length; at most [`SLOTS`].
    pub messages_max: u32,
    /// Bytes of data storage that we may lend, over all queues of the path together.
    pub storage_bytes_max: u64,
    /// Bytes of data storage that the peer may lend us, over all queues.
    pub peer_storage_bytes_max: u64,
    /// What kind of memory our data storage is.
    pub storage: StorageOptions,
}

impl Terms {
    /// What is good for most paths.
    pub const DEFAULT: Terms = Terms {
        window_bytes: 256 << 10,
        announced_bytes_max: 2 << 20,
        messages_max: SLOTS as u32,
        storage_bytes_max: 256 << 20,
        peer_storage_bytes_max: 256 << 20,
        storage: StorageOptions { huge: false, locked: false },
    };

    /// The longest message: half of what may be lent, so that one can be made while one is read.
    pub fn message_bytes_max(&self) -> u64 {
        self.storage_bytes_max / 2
    }
}

/// A side of a path before the two are joined: its own storages, ready to be lent.
#[derive(Debug)]
pub struct Side {
    shape: Shape,
    board: Words,
    lines: Words,
}

/// The descriptors of a side's storages, to be lent to the peer. The board's may go to watchers too.
#[derive(Debug)]
pub struct SideDescriptors<D = OwnedFd> {
    /// State and counters.
    pub board: D,
    /// The lines, which carry data.
    pub lines: D,
}

/// Why two sides could not be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// What the peer lent is not what the path needs.
    #[error("what the peer lent cannot be borrowed: {0}")]
    Borrow(#[from] BorrowError),
    /// The peer's board is of another layout, or for another number of queues.
    #[error("the peer's board is not one of this layout and shape")]
    Board,
    /// A doorbell is missing or is none.
    #[error("doorbells: {0}")]
    Doorbell(io::Error),
}

impl Side {
    /// Creates a side's storages.
    ///
    /// # Errors
    /// No memory or no descriptors left.
    ///
    /// # Panics
    /// If the shape is not valid.
    pub fn create(shape: Shape) -> io::Result<(Side, SideDescriptors)> {
        assert!(shape.is_valid(), "a path has 1 to {QUEUES_MAX} queues each way");
        let options = StorageOptions::default();
        let (board, board_descriptor) =
            Storage::create("siga board", shape.board_words() * 8, options)?;
        let (lines, lines_descriptor) =
            Storage::create("siga lines", shape.lines_words() * 8, options)?;
        let (board, lines) = (Words::own(board), Words::own(lines));
        board::establish(&board, shape);
        let descriptors = SideDescriptors { board: board_descriptor, lines: lines_descriptor };
        Ok((Side { shape, board, lines }, descriptors))
    }

    /// Joins our side with the peer's. `doorbells` has our ends, in the order of the other side's: two for
    /// each pair of queues, rung when something arrives and when it is returned, and one for each queue
    /// without a partner in the other direction; or two for all queues, which one thread serves then.
    ///
    /// # Errors
    /// [`JoinError`] if anything of the peer's is not as it must be.
    pub fn join<D: Into<Foreign>>(
        self,
        peer: SideDescriptors<D>,
        doorbells: Vec<D>,
        terms: Terms,
    ) -> Result<Halves, JoinError> {
        let Side { shape, board, lines } = self;
        let peer_shape = shape.mirrored();
        let (peer_board, peer_lines) = (peer.board.into(), peer.lines.into());
        let peer_board = LentWords::borrow(borrow(peer_board, peer_shape.board_words())?);
        if !board::is_established(&peer_board, peer_shape) {
            return Err(JoinError::Board);
        }
        let peer_lines = LentWords::borrow(borrow(peer_lines, peer_shape.lines_words())?);
        let lends = Budgets::new(terms.storage_bytes_max, shape.outputs);
        let borrows = Budgets::new(terms.peer_storage_bytes_max, shape.inputs);
        let arrived_max = Budget::new(LENDS_PENDING_MAX);
        let (senders, receivers) =
            doorbells::assign(shape, doorbells, &arrived_max).map_err(JoinError::Doorbell)?;
        let mut halves = Halves { senders: Vec::new(), receivers: Vec::new() };
        for (queue, doorbells) in senders.into_iter().enumerate() {
            halves.senders.push(Sender::new(
                board::writer_block(&board, shape, queue),
                board::line_block(&lines, queue),
                board::reader_block(&peer_board, peer_shape, queue),
                doorbells,
                terms,
                lends.clone(),
            ));
        }
        for (queue, doorbells) in receivers.into_iter().enumerate() {
            halves.receivers.push(Receiver::new(
                board::reader_block(&board, shape, queue),
                board::line_block(&peer_lines, queue),
                board::writer_block(&peer_board, peer_shape, queue),
                doorbells,
                borrows.clone(),
            ));
        }
        Ok(halves)
    }
}

fn borrow(descriptor: Foreign, words: usize) -> Result<Borrowed, BorrowError> {
    let bytes = (words * 8).next_multiple_of(os::storage::STORAGE_GRAIN_BYTES);
    Borrowed::borrow(descriptor, bytes..=bytes)
}

/// The halves of a path, as one side has them.
#[derive(Debug)]
pub struct Halves {
    /// One for each queue that we write.
    pub senders: Vec<Sender>,
    /// One for each queue that we read.
    pub receivers: Vec<Receiver>,
}
