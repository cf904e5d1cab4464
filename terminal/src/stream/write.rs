//! Makes what a program sends: a command, its control character, and then texts and fields at their places.

use super::{Attribute, CELLS, IC, RA, SBA, SF, address};
use crate::ebcdic;

/// A write that is being made. Whoever makes it stays within the screen.
#[derive(Clone, Debug)]
pub struct Write(Vec<u8>);

/// What the control character does: the keyboard is free again; no field is modified. The upper bits only make a letter of the others.
pub(super) const RESTORE: u8 = 0x02;
pub(super) const RESET_MODIFIED: u8 = 0x01;
const CONTROL: u8 = 0xc0;

impl Write {
    /// A screen of its own: what was there is erased.
    pub fn erase() -> Write {
        Write(vec![super::display::ERASE_WRITE, CONTROL | RESTORE | RESET_MODIFIED])
    }

    /// A change of what is there. What was typed and is not sent yet remains so: the next key that sends fields has it.
    pub fn change() -> Write {
        Write(vec![super::display::WRITE, CONTROL | RESTORE])
    }

    /// Goes on at a row and a column, both from 0.
    ///
    /// # Panics
    /// If there is no such place: a broken promise inside this program.
    pub fn at(&mut self, row: usize, column: usize) -> &mut Write {
        self.0.push(SBA);
        self.0.extend(address::bytes(address::at(row, column)));
        self
    }

    /// Begins a field.
    pub fn field(&mut self, attribute: Attribute) -> &mut Write {
        self.0.extend([SF, attribute.byte()]);
        self
    }

    /// Writes a text. A letter that the code page does not have is a question mark, a control character a blank.
    pub fn text(&mut self, text: &str) -> &mut Write {
        let question = 0x6f;
        let letters = text.chars().map(|letter| match ebcdic::byte(letter).unwrap_or(question) {
            byte @ 0x40..=0xfe => byte,
            _ => ebcdic::BLANK,
        });
        self.0.extend(letters);
        self
    }

    /// Writes letters of the code page as they are.
    pub fn letters(&mut self, letters: &[u8]) -> &mut Write {
        debug_assert!(letters.iter().all(|letter| super::is_letter(*letter)));
        self.0.extend_from_slice(letters);
        self
    }

    /// Fills with a letter, up to a row and a column.
    ///
    /// # Panics
    /// If there is no such place: a broken promise inside this program.
    pub fn fill_to(&mut self, row: usize, column: usize, letter: u8) -> &mut Write {
        self.0.push(RA);
        self.0.extend(address::bytes(address::at(row, column) % CELLS));
        self.0.push(letter);
        self
    }

    /// Puts the cursor here.
    pub fn cursor(&mut self) -> &mut Write {
        self.0.push(IC);
        self
    }

    /// Its bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
