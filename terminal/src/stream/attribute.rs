//! The byte in front of each field.
//!
//! ```text
//! bit  0 1        2          3         4 5      6      7
//!      a letter | protected | numeric | shown | (0) | modified
//! ```

use super::address::LETTERS;

const PROTECTED: u8 = 0x20;
const NUMERIC: u8 = 0x10;
const INTENSE: u8 = 0x08;
const HIDDEN: u8 = 0x0c;
const MODIFIED: u8 = 0x01;

/// What may be done in a field, and how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute(u8);

impl Attribute {
    /// Text of the program.
    pub const TEXT: Attribute = Attribute(PROTECTED);
    /// Text of the program that stands out.
    pub const BRIGHT: Attribute = Attribute(PROTECTED | INTENSE);
    /// Text of the program at which the cursor does not stop.
    pub const SKIPPED: Attribute = Attribute(PROTECTED | NUMERIC);
    /// A field to type in.
    pub const INPUT: Attribute = Attribute(0);
    /// A field to type digits in.
    pub const DIGITS: Attribute = Attribute(NUMERIC);
    /// A field to type in that is not shown.
    pub const SECRET: Attribute = Attribute(HIDDEN);

    /// The attribute of a byte of the data stream: its two upper bits only make a letter of the others.
    pub fn of(byte: u8) -> Attribute {
        Attribute(byte & 0x3d)
    }

    /// Its byte in the data stream.
    pub fn byte(self) -> u8 {
        LETTERS[usize::from(self.0)]
    }

    /// Returns true if nothing can be typed there.
    pub fn is_protected(self) -> bool {
        self.0 & PROTECTED != 0
    }

    /// Returns true if its text is not shown.
    pub fn is_hidden(self) -> bool {
        self.0 & HIDDEN == HIDDEN
    }

    /// Returns true if something was typed there.
    pub fn is_modified(self) -> bool {
        self.0 & MODIFIED != 0
    }

    /// The same, with or without something typed.
    pub(super) fn modified(self, is_modified: bool) -> Attribute {
        Attribute(self.0 & !MODIFIED | u8::from(is_modified))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_letters_in_the_data_stream() {
        assert_eq!(Attribute::TEXT.byte(), 0x60);
        assert_eq!(Attribute::BRIGHT.byte(), 0xe8);
        assert_eq!(Attribute::INPUT.byte(), 0x40);
        assert_eq!(Attribute::of(0xf0), Attribute::SKIPPED);
        assert_eq!(Attribute::of(0x4d), Attribute::SECRET.modified(true));
        for byte in 0..=255 {
            assert_eq!(Attribute::of(Attribute::of(byte).byte()), Attribute::of(byte));
        }
    }
}
