//! The two words of a buffer, and the states they carry.
//!
//! ```text
//!            63      56 55     48 47   44 43   40 39     32 31              0
//! writer    +----------+---------+-------+-------+---------+-----------------+
//!           |   note   |  size   | label | form  |  state  |      count      |
//!           +----------+---------+-------+-------+---------+-----------------+
//! reader    |                       0    | reason|  state  |      count      |
//!           +----------------------------+-------+---------+-----------------+
//! ```
//!
//! *count*: how often this side has handed the buffer over. Owner is the exclusive-or of the two low
//! bits: 0 the writer, 1 the reader. *state*: what the side that handed over last says of the buffer.
//! *form* and *size*: what is in the buffer. *label* and *note*: carried for the user of the queue.
//!
//! States and transitions are those of QDIO's storage-list state block (FACTS 1.3), divided between two
//! words so that no byte has two writers. `P_ACK`, "I am polling, hold the interrupts", is the sleep
//! word instead ([`super::sleep`]).

use super::{ENTRIES_MAX, IN_PLACE_BYTES_MAX};

/// What the side that handed a buffer over last says of it. The numbers are QDIO's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The reader has not supplied the buffer yet: nothing may be done with it.
    NotInitialised = 0x0,
    /// By the reader: free to be filled; what it held has been read.
    Empty = 0x1,
    /// By the writer: filled.
    Primed = 0x2,
    /// By the reader: free to be filled; what it pointed to is still being read.
    Pending = 0x3,
    /// By either: the queue has ended. What the buffer held was not read.
    Halted = 0xe,
    /// By either: something is wrong with this buffer alone.
    Error = 0xf,
}

impl State {
    pub(super) fn from_bits(bits: u8) -> Option<State> {
        [
            State::NotInitialised,
            State::Empty,
            State::Primed,
            State::Pending,
            State::Halted,
            State::Error,
        ]
        .into_iter()
        .find(|state| *state as u8 == bits)
    }

    /// The state's name, as people read it.
    pub fn name(self) -> &'static str {
        match self {
            State::NotInitialised => "not initialised",
            State::Empty => "empty",
            State::Primed => "primed",
            State::Pending => "pending",
            State::Halted => "halted",
            State::Error => "error",
        }
    }

    /// Whether a writer may hand a buffer over in this state.
    pub fn is_writers(self) -> bool {
        matches!(self, State::Primed | State::Error | State::Halted)
    }

    /// Whether a reader may give a buffer back in this state.
    pub fn is_readers(self) -> bool {
        matches!(self, State::Empty | State::Pending | State::Error | State::Halted)
    }
}

/// Who may use a buffer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The writer may fill it.
    Writer,
    /// The reader may read it.
    Reader,
}

impl Owner {
    /// The owner, from the two counts.
    pub fn of(writer_count: u32, reader_count: u32) -> Owner {
        if (writer_count ^ reader_count) & 1 == 0 { Owner::Writer } else { Owner::Reader }
    }
}

/// Where the content of a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// In the buffer's own line: `size` bytes.
    InPlace = 0,
    /// In the writer's pages: `size` entries say where.
    Entries = 1,
}

/// The writer's word, taken apart and found sensible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterWord {
    /// Hand-overs so far.
    pub count: u32,
    /// Primed, error or halted.
    pub state: State,
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

    /// Puts the word together.
    #[inline]
    pub fn bits(self) -> u64 {
        debug_assert!(self.label < 16, "a label has four bits");
        u64::from(self.count)
            | (self.state as u64) << 32
            | (self.form as u64) << 40
            | u64::from(self.label) << 44
            | u64::from(self.size) << 48
            | u64::from(self.note) << 56
    }

    /// Takes apart what a writer has handed over.
    ///
    /// # Errors
    /// The first thing about it that no writer may do.
    #[inline]
    pub fn parse(bits: u64) -> Result<WriterWord, Violation> {
        let state = State::from_bits((bits >> 32) as u8).filter(|state| state.is_writers());
        let state = state.ok_or(Violation::State)?;
        let size = (bits >> 48) as u8;
        let form = match (bits >> 40) as u8 & 0xf {
            0 if size as usize <= IN_PLACE_BYTES_MAX => Form::InPlace,
            1 if (1..=ENTRIES_MAX).contains(&(size as usize)) => Form::Entries,
            0 | 1 => return Err(Violation::Size),
            _ => return Err(Violation::Form),
        };
        Ok(WriterWord {
            count: WriterWord::count_of(bits),
            state,
            form,
            label: (bits >> 44) as u8 & 0xf,
            size,
            note: (bits >> 56) as u8,
        })
    }
}

/// The reader's word, taken apart and found sensible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderWord {
    /// How often the buffer was given back.
    pub count: u32,
    /// Empty, pending, error or halted.
    pub state: State,
    /// Why, if the state is [`State::Error`]; for the user of the queue.
    pub reason: u8,
}

impl ReaderWord {
    /// A buffer that was supplied and never used.
    pub const SUPPLIED: ReaderWord = ReaderWord { count: 0, state: State::Empty, reason: 0 };

    /// The count alone.
    #[inline]
    pub fn count_of(bits: u64) -> u32 {
        bits as u32
    }

    /// Puts the word together.
    #[inline]
    pub fn bits(self) -> u64 {
        u64::from(self.count) | (self.state as u64) << 32 | u64::from(self.reason) << 40
    }

    /// Takes apart what a reader has given back.
    ///
    /// # Errors
    /// The first thing about it that no reader may do.
    #[inline]
    pub fn parse(bits: u64) -> Result<ReaderWord, Violation> {
        let state = State::from_bits((bits >> 32) as u8).filter(|state| state.is_readers());
        let state = state.ok_or(Violation::State)?;
        Ok(ReaderWord { count: ReaderWord::count_of(bits), state, reason: (bits >> 40) as u8 })
    }
}

/// What a peer did that no peer may do. It ends the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A hand-over count that is neither the last one nor the next.
    #[error("a buffer's hand-over count went anywhere but one up")]
    Count,
    /// A buffer was handed over by a side that does not own it.
    #[error("a buffer was handed over by the side that does not own it")]
    Owner,
    /// A state that does not exist, or that this side may not set.
    #[error("a buffer was put in a state that its side may not set")]
    State,
    /// A form of content that does not exist.
    #[error("a buffer has a content form that does not exist")]
    Form,
    /// A size beyond what the form can hold.
    #[error("a buffer has a size that its form cannot hold")]
    Size,
    /// An entry that points outside what was lent.
    #[error("an entry points outside the storage lent")]
    Range,
    /// A packed or control record that makes no sense.
    #[error("a record inside a buffer makes no sense")]
    Record,
    /// Storage or a descriptor that is not what was announced.
    #[error("storage or a descriptor is not what was announced")]
    Storage,
    /// The doorbell rings and rings and nothing is there.
    #[error("the doorbell was rung far more often than there was anything to do")]
    Doorbell,
}

impl Violation {
    /// All kinds, in the order in which they are counted.
    pub const ALL: [Violation; 9] = [
        Violation::Count,
        Violation::Owner,
        Violation::State,
        Violation::Form,
        Violation::Size,
        Violation::Range,
        Violation::Record,
        Violation::Storage,
        Violation::Doorbell,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_word_is_what_the_picture_says() {
        let word = WriterWord {
            count: 0x0102_0304,
            state: State::Primed,
            form: Form::Entries,
            label: 0xa,
            size: 0x10,
            note: 0xbc,
        };
        assert_eq!(word.bits(), 0xbc10_a102_0102_0304);
        assert_eq!(WriterWord::parse(0xbc10_a102_0102_0304), Ok(word));
    }

    #[test]
    fn readers_word_is_what_the_picture_says() {
        let word = ReaderWord { count: 7, state: State::Error, reason: 0x12 };
        assert_eq!(word.bits(), 0x0000_120f_0000_0007);
        assert_eq!(ReaderWord::parse(0x0000_120f_0000_0007), Ok(word));
    }

    #[test]
    fn states_of_the_other_side_are_refused() {
        for (bits, writers, readers) in [
            (0x0, false, false),
            (0x1, false, true),
            (0x2, true, false),
            (0x3, false, true),
            (0x4, false, false),
            (0xe, true, true),
            (0xf, true, true),
            (0x12, false, false),
        ] {
            assert_eq!(WriterWord::parse(bits << 32).is_ok(), writers, "writer {bits:#x}");
            assert_eq!(ReaderWord::parse(bits << 32).is_ok(), readers, "reader {bits:#x}");
        }
    }

    #[test]
    fn forms_and_sizes_that_cannot_be_are_refused() {
        let primed = 2 << 32;
        let size = |size: u64| size << 48;
        let entries = 1 << 40;
        assert!(WriterWord::parse(primed | size(56)).is_ok());
        assert_eq!(WriterWord::parse(primed | size(57)), Err(Violation::Size));
        assert_eq!(WriterWord::parse(primed | entries), Err(Violation::Size));
        assert!(WriterWord::parse(primed | entries | size(16)).is_ok());
        assert_eq!(WriterWord::parse(primed | entries | size(17)), Err(Violation::Size));
        assert_eq!(WriterWord::parse(primed | 2 << 40), Err(Violation::Form));
    }

    #[test]
    fn owner_is_the_exclusive_or_of_the_low_bits() {
        assert_eq!(Owner::of(0, 0), Owner::Writer);
        assert_eq!(Owner::of(1, 0), Owner::Reader);
        assert_eq!(Owner::of(1, 1), Owner::Writer);
        assert_eq!(Owner::of(0, u32::MAX), Owner::Reader);
    }
}
