//! The two words of a buffer, and the states they carry.
//!
//! ```text
//!            63      56 55     48 47   44 43   40 39     32 31              0
//! writer    +----------+---------+-------+-------+---------+-----------------+
//!           |   note   |  size   | label | form  |  state  |      count      |
//!           +----------+---------+-------+-------+---------+-----------------+
//! reader    |                    0               |  state  |      count      |
//!           +------------------------------------+---------+-----------------+
//! ```
//!
//! *count*: of the writer, how often it has handed the buffer over; of the reader, which of these hand-overs
//! it keeps, or has kept. *state*: the state that this side gives the buffer. *form* and *size*: what is in
//! the buffer. *label* and *note*: carried for the user of the queue.
//!
//! The owner of a buffer is the exclusive-or of the low bits of two counts: how often the writer has handed
//! it over, and how often the reader has returned it, which [`super::audit`] reckons from the returns of the
//! whole queue.
//!
//! States and transitions are those of QDIO's storage-list state block (`drivers/s390/cio/qdio.h` of Linux),
//! divided between two sides so that no byte has two writers. `P_ACK`, "I am polling, hold the interrupts",
//! is the sleep word instead ([`super::sleep`]).

use crate::listed;

use super::{CACHE_LINE_BYTES, ENTRIES_MAX, IN_PLACE_BYTES_MAX};

listed! {
    /// The state that a side gives a buffer. The numbers are QDIO's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum State {
        /// The buffer was never used.
        NotInitialised = 0x0 => "not initialised",
        /// By the reader: free to be filled; what it held has been read.
        Empty = 0x1 => "empty",
        /// By the writer: filled.
        Primed = 0x2 => "primed",
        /// By the reader: free to be filled; what it pointed to is still being read.
        Pending = 0x3 => "pending",
        /// By the writer: the queue ends with this buffer.
        Halted = 0xe => "halted",
    }
}

/// Where the content of a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// In the buffer's own line: `size` bytes.
    InPlace = 0,
    /// In the writer's pages, where `size` entries point.
    Entries = 1,
}

/// The writer's word, taken apart and found sensible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterWord {
    /// Hand-overs so far.
    pub count: u32,
    /// Whether this is the last buffer: halted instead of primed.
    pub halted: bool,
    /// Where the content is.
    pub form: Form,
    /// For the user of the queue, 0 to 15.
    pub label: u8,
    /// Bytes in place, or number of entries.
    pub size: u8,
    /// For the user of the queue.
    pub note: u8,
}

impl WriterWord {
    /// The count alone: all that is needed to see whether anything is new.
    #[inline]
    pub fn count_of(bits: u64) -> u32 {
        bits as u32
    }

    /// Whether the word speaks of bytes in the second cache line.
    #[inline(always)]
    pub(super) fn has_second(bits: u64) -> bool {
        (bits >> 40) & 0xf == Form::InPlace as u64 && (bits >> 48) & 0xff > CACHE_LINE_BYTES as u64
    }

    /// Puts the word together.
    #[inline]
    pub fn bits(self) -> u64 {
        debug_assert!(self.label < 16, "a label has four bits");
        let state = if self.halted { State::Halted } else { State::Primed };
        u64::from(self.count)
            | (state as u64) << 32
            | (self.form as u64) << 40
            | u64::from(self.label) << 44
            | u64::from(self.size) << 48
            | u64::from(self.note) << 56
    }

    /// Takes a word apart that says: primed with this count, bytes in place, with this label. None if it
    /// says anything else.
    #[inline(always)]
    pub(super) fn in_place(count: u32, label: u8, bits: u64) -> Option<WriterWord> {
        let form = Form::InPlace;
        let word = WriterWord { count, halted: false, form, label, size: 0, note: 0 };
        let (size, note) = ((bits >> 48) as u8, (bits >> 56) as u8);
        let is_it = (bits ^ word.bits()) << 16 == 0 && usize::from(size) <= IN_PLACE_BYTES_MAX;
        is_it.then_some(WriterWord { size, note, ..word })
    }

    /// Takes apart what a writer has handed over.
    ///
    /// # Errors
    /// The first thing about it that no writer may do.
    #[inline]
    pub fn parse(bits: u64) -> Result<WriterWord, Violation> {
        let halted = match (bits >> 32) as u8 {
            state if state == State::Primed as u8 => false,
            state if state == State::Halted as u8 => true,
            _ => return Err(Violation::State),
        };
        let size = (bits >> 48) as u8;
        let form = match (bits >> 40) as u8 & 0xf {
            0 if usize::from(size) <= IN_PLACE_BYTES_MAX => Form::InPlace,
            1 if (1..=ENTRIES_MAX).contains(&usize::from(size)) => Form::Entries,
            0 | 1 => return Err(Violation::Size),
            _ => return Err(Violation::Form),
        };
        Ok(WriterWord {
            count: WriterWord::count_of(bits),
            halted,
            form,
            label: (bits >> 44) as u8 & 0xf,
            size,
            note: (bits >> 56) as u8,
        })
    }
}

/// The reader's word of a buffer: that it keeps the hand-over of this count, which is *pending* then, or that it
/// has kept it, and the buffer is *empty* again.
#[inline]
pub fn kept_word(count: u32, state: State) -> u64 {
    u64::from(count) | (state as u64) << 32
}

/// Whether the reader keeps the hand-over of this count, by its word of the buffer.
///
/// # Errors
/// [`Violation::State`] if the word is none that a reader may write.
#[inline]
pub fn keeps(bits: u64, count: u32) -> Result<bool, Violation> {
    let pending = match bits >> 32 {
        state if state == State::Pending as u64 => true,
        // Zero is the word of a buffer that was never kept.
        state if state == State::Empty as u64 || bits == 0 => false,
        _ => return Err(Violation::State),
    };
    // A word of another hand-over is old: it stays when that is over, however often counts wrap.
    Ok(pending && bits as u32 == count)
}

listed! {
    /// What a peer did that no peer may do. It ends the path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    #[repr(u8)]
    #[non_exhaustive]
    pub enum Violation {
        /// A hand-over count that is neither the last one nor the next.
        #[error("a buffer's hand-over count went anywhere but one up")]
        Count = 1,
        /// A buffer was handed over, or a slot announced, by a side that does not own it.
        #[error("a buffer was handed over, or a slot announced, that the other side keeps")]
        Owner = 2,
        /// A state that does not exist, or that this side may not set.
        #[error("a buffer was put in a state that its side may not set")]
        State = 3,
        /// A form of content that does not exist.
        #[error("a buffer has a content form that does not exist")]
        Form = 4,
        /// A size beyond what the form can hold.
        #[error("a buffer has a size that its form cannot hold")]
        Size = 5,
        /// An entry that points outside what was lent.
        #[error("an entry points outside the storage lent")]
        Range = 6,
        /// A packed or control record that makes no sense.
        #[error("a record inside a buffer makes no sense")]
        Record = 7,
        /// Storage or a descriptor that is not what was announced.
        #[error("storage or a descriptor is not what was announced")]
        Storage = 8,
        /// The doorbell rings and rings and nothing is there.
        #[error("the doorbell was rung far more often than there was anything to do")]
        Doorbell = 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_word_is_what_the_picture_says() {
        let word = WriterWord {
            count: 0x0102_0304,
            halted: false,
            form: Form::Entries,
            label: 0xa,
            size: 0x10,
            note: 0xbc,
        };
        assert_eq!(word.bits(), 0xbc10_a102_0102_0304);
        assert_eq!(WriterWord::parse(0xbc10_a102_0102_0304), Ok(word));
        assert_eq!(WriterWord::parse(0xbc10_a10e_0102_0304).map(|word| word.halted), Ok(true));
    }

    #[test]
    fn readers_word_is_what_the_picture_says() {
        assert_eq!(kept_word(7, State::Pending), 0x0000_0003_0000_0007);
        assert_eq!(kept_word(7, State::Empty), 0x0000_0001_0000_0007);
    }

    #[test]
    fn only_the_hand_over_that_the_word_names_is_kept() {
        assert_eq!(keeps(0, 7), Ok(false));
        assert_eq!(keeps(3 << 32 | 7, 7), Ok(true));
        assert_eq!(keeps(1 << 32 | 7, 7), Ok(false));
        assert_eq!(keeps(3 << 32 | 6, 7), Ok(false), "of another time");
        assert_eq!(keeps(7, 7), Err(Violation::State));
    }

    #[test]
    fn states_of_the_other_side_are_refused() {
        for (state, writers, readers) in [
            (0x0, false, false),
            (0x1, false, true),
            (0x2, true, false),
            (0x3, false, true),
            (0x4, false, false),
            (0xe, true, false),
            (0xf, false, false),
            (0x12, false, false),
        ] {
            assert_eq!(WriterWord::parse(state << 32).is_ok(), writers, "writer {state:#x}");
            assert_eq!(keeps(state << 32 | 1, 1).is_ok(), readers, "reader {state:#x}");
        }
        assert_eq!(keeps(1 << 40 | 3 << 32 | 1, 1), Err(Violation::State));
    }

    #[test]
    fn forms_and_sizes_that_cannot_be_are_refused() {
        let primed = 2 << 32;
        let size = |size: u64| size << 48;
        let entries = 1 << 40;
        assert!(WriterWord::parse(primed | size(112)).is_ok());
        assert_eq!(WriterWord::parse(primed | size(113)), Err(Violation::Size));
        assert!(WriterWord::parse(primed | entries | size(16)).is_ok());
        assert_eq!(WriterWord::parse(primed | entries | size(17)), Err(Violation::Size));
        assert_eq!(WriterWord::parse(primed | entries), Err(Violation::Size));
        assert_eq!(WriterWord::parse(primed | 2 << 40), Err(Violation::Form));
    }
}
