//! The 3270 data stream (GA23-0059), as far as a screen of 24 rows and 80 columns needs it.
//!
//! | module | what it is |
//! |---|---|
//! | [`address`] | positions of a buffer, in 12 and 14 bits |
//! | [`attribute`] | the byte in front of each field |
//! | [`mod@write`] | makes what a program sends |
//! | [`display`] | the buffer of a screen: what writes do to it |
//! | `input` | what a terminal sends, and what that does to the program's own buffer |
//!
//! Both ends have a [`Display`]: so a program knows which fields its screen has, and checks what comes against them.

pub mod address;
pub mod attribute;
pub mod display;
mod input;
pub mod write;

use thiserror::Error;

pub use attribute::Attribute;
pub use display::Display;
pub use write::Write;

/// Rows of a screen.
pub const ROWS: usize = 24;
/// Columns of a screen.
pub const COLUMNS: usize = 80;
/// Positions of a screen.
pub const CELLS: usize = ROWS * COLUMNS;

/// Bytes of the longest record that a terminal sends: every position begins a field, each with its order and address.
pub const INPUT_BYTES_MAX: usize = 3 + CELLS * 3;

/// Bytes of the longest record that a program sends: every position with an order of its own.
pub const OUTPUT_BYTES_MAX: usize = 2 + CELLS * 5;

/// What orders of one record may fill, and pass on the way back to a field, as many times the screen: they are a few bytes each, and do all of it.
pub const FILLS_MAX: usize = 16;

/// A data stream that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    /// It ends within a command, an order or an address.
    #[error("it is cut short at byte {0}")]
    Cut(usize),
    /// A command that is none, or is not done here.
    #[error(
        "command {0:#04x}: must be write (f1), erase/write (f5, 7e), erase all unprotected (6f) or a read (f2, f6, 6e)"
    )]
    Command(u8),
    /// Bytes behind a command that has none.
    #[error("{0} bytes behind a command that has none")]
    Rest(usize),
    /// An order that is none, or is not done here.
    #[error("order {order:#04x} at byte {at}: must be SF, SBA, IC, RA or EUA")]
    Order {
        /// Its code.
        order: u8,
        /// Where it is.
        at: usize,
    },
    /// An address that is none of the screen's.
    #[error("address {0:#06x}: must be a position of 24 rows and 80 columns")]
    Address(u16),
    /// Orders fill more than a screen needs.
    #[error("orders of one record fill or look through more than {FILLS_MAX} screens")]
    TooMuch,
    /// An attention identifier that is none.
    #[error(
        "attention identifier {0:#04x}: must be that of ENTER, CLEAR, PA1 to PA3 or PF1 to PF24"
    )]
    Aid(u8),
    /// Something is typed where no field begins that can be typed in, or not behind the field before.
    #[error(
        "input at position {0}: no input field begins there, or it is not behind the one before"
    )]
    NoField(usize),
    /// More is typed than a field holds.
    #[error("input of {bytes} bytes for the field at position {at}: must be at most {most}")]
    TooLong {
        /// Where the field begins.
        at: usize,
        /// What was typed.
        bytes: usize,
        /// What the field holds.
        most: usize,
    },
    /// A byte that cannot be typed.
    #[error("byte {0:#04x} is typed: must be a letter")]
    Letter(u8),
    /// A letter that the code page does not have.
    #[error("letter {0:?} is typed: must be one of EBCDIC code page 37")]
    NoLetter(char),
}

/// A key that sends something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aid {
    /// ENTER.
    Enter,
    /// CLEAR: the screen is empty then.
    Clear,
    /// PA1 to PA3.
    Pa(u8),
    /// PF1 to PF24.
    Pf(u8),
}

const AID_ENTER: u8 = 0x7d;
const AID_CLEAR: u8 = 0x6d;
/// No key was pressed: the answer to a read.
const AID_NONE: u8 = 0x60;
const AIDS_PA: [u8; 3] = [0x6c, 0x6e, 0x6b];
const AIDS_PF: [u8; 24] = [
    0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0x7a, 0x7b, 0x7c, 0xc1, 0xc2, 0xc3, 0xc4,
    0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0x4a, 0x4b, 0x4c,
];

impl Aid {
    /// Returns the key of a code.
    ///
    /// # Errors
    /// [`StreamError::Aid`].
    pub fn of(code: u8) -> Result<Aid, StreamError> {
        let place = |codes: &[u8]| codes.iter().position(|known| *known == code);
        match code {
            AID_ENTER => Ok(Aid::Enter),
            AID_CLEAR => Ok(Aid::Clear),
            _ => match (place(&AIDS_PA), place(&AIDS_PF)) {
                (Some(at), _) => Ok(Aid::Pa(at as u8 + 1)),
                (_, Some(at)) => Ok(Aid::Pf(at as u8 + 1)),
                _ => Err(StreamError::Aid(code)),
            },
        }
    }

    /// Returns the code of a key; that of no key if there is no such PA or PF.
    pub fn code(self) -> u8 {
        let of = |codes: &[u8], number: u8| {
            let at = usize::from(number).checked_sub(1);
            at.and_then(|at| codes.get(at)).copied().unwrap_or(AID_NONE)
        };
        match self {
            Aid::Enter => AID_ENTER,
            Aid::Clear => AID_CLEAR,
            Aid::Pa(number) => of(&AIDS_PA, number),
            Aid::Pf(number) => of(&AIDS_PF, number),
        }
    }

    /// Returns true if the key sends nothing but itself.
    pub fn is_short(self) -> bool {
        matches!(self, Aid::Clear | Aid::Pa(_))
    }
}

/// Bytes that are read from the front.
#[derive(Debug)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    fn is_over(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn byte(&mut self) -> Result<u8, StreamError> {
        let byte = self.peek().ok_or(StreamError::Cut(self.at))?;
        self.at += 1;
        Ok(byte)
    }

    /// An address, as a position of the screen.
    fn address(&mut self) -> Result<usize, StreamError> {
        let bytes = [self.byte()?, self.byte()?];
        address::position(bytes).ok_or(StreamError::Address(u16::from_be_bytes(bytes)))
    }

    /// What comes before the next byte that is `end`, or before the end of all.
    fn until(&mut self, end: u8) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        let count = rest.iter().position(|byte| *byte == end).unwrap_or(rest.len());
        self.at += count;
        &rest[..count]
    }
}

const SBA: u8 = 0x11;
const SF: u8 = 0x1d;
const IC: u8 = 0x13;
const RA: u8 = 0x3c;
const EUA: u8 = 0x12;

/// What DUP and FIELD MARK put into a field.
const MARKS: [u8; 2] = [0x1c, 0x1e];

/// Returns true if a byte of a data stream is something to be seen, or a null.
fn is_letter(byte: u8) -> bool {
    matches!(byte, 0 | 0x40..=0xfe) || MARKS.contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_codes_of_the_data_stream() {
        let known = [
            (Aid::Enter, 0x7d),
            (Aid::Clear, 0x6d),
            (Aid::Pa(1), 0x6c),
            (Aid::Pa(2), 0x6e),
            (Aid::Pf(3), 0xf3),
            (Aid::Pf(10), 0x7a),
            (Aid::Pf(13), 0xc1),
            (Aid::Pf(24), 0x4c),
        ];
        for (aid, code) in known {
            assert_eq!((aid.code(), Aid::of(code)), (code, Ok(aid)));
        }
        for code in [0, 0x60, 0x88, 0xf0, 0xff] {
            assert_eq!(Aid::of(code), Err(StreamError::Aid(code)));
        }
        assert_eq!(Aid::Pf(25).code(), AID_NONE);
        assert_eq!(Aid::Pa(0).code(), AID_NONE);
    }
}
