//! What a terminal sends, and what that does to the program's own buffer.

use super::display::{Cell, Display};
use super::{Aid, CELLS, Reader, SBA, StreamError, is_letter};

impl Display {
    /// Takes what a terminal has sent that shows this display, and returns the key. Fields hold what was typed then.
    ///
    /// # Errors
    /// [`StreamError`]: it cannot come of this screen.
    pub fn take(&mut self, record: &[u8]) -> Result<Aid, StreamError> {
        let mut reader = Reader::new(record);
        let aid = Aid::of(reader.byte()?)?;
        if aid.is_short() {
            if !reader.is_over() {
                return Err(StreamError::Rest(record.len() - 1));
            }
            if aid == Aid::Clear {
                self.erase();
            }
            return Ok(aid);
        }
        let cursor = reader.address()?;
        let mut before = None;
        while !reader.is_over() {
            let place = reader.at;
            match reader.byte()? {
                SBA => {}
                order => return Err(StreamError::Order { order, at: place }),
            }
            let at = reader.address()?;
            if before.is_some_and(|before| at <= before) {
                return Err(StreamError::NoField(at));
            }
            before = Some(at);
            let typed = reader.until(SBA);
            self.fill_field(at, typed)?;
        }
        self.cursor = cursor;
        Ok(aid)
    }

    /// Puts what was typed into the field that begins at a position, in place of what is there. Returns how much the field holds.
    pub(super) fn fill_field(&mut self, at: usize, typed: &[u8]) -> Result<usize, StreamError> {
        let place = (at + CELLS - 1) % CELLS;
        let field = self.field_of(place).filter(|field| !field.attribute.is_protected());
        let field = field.ok_or(StreamError::NoField(at))?;
        if typed.len() > field.cells {
            return Err(StreamError::TooLong { at, bytes: typed.len(), most: field.cells });
        }
        if let Some(wrong) = typed.iter().find(|byte| !is_letter(**byte)) {
            return Err(StreamError::Letter(*wrong));
        }
        for offset in 0..field.cells {
            let letter = typed.get(offset).copied().unwrap_or(0);
            self.cells[(at + offset) % CELLS] = Cell::Letter(letter);
        }
        self.cells[place] = Cell::Field(field.attribute.modified(true));
        Ok(field.cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Attribute, Write};

    /// Fields to type in at 161, of 9, and 171, of 4; text behind.
    fn form() -> Display {
        let mut write = Write::erase();
        write.at(2, 0).field(Attribute::INPUT).at(2, 10).field(Attribute::DIGITS);
        write.at(2, 15).field(Attribute::TEXT).text("TEXT");
        let mut display = Display::default();
        display.write(write.bytes()).unwrap();
        display
    }

    #[test]
    fn what_was_typed_is_in_its_fields() {
        let mut display = form();
        // 12-bit and 14-bit addresses.
        let record = [0x7d, 0x40, 0x40, SBA, 0xc2, 0x61, 0xc1, 0xc2, SBA, 0x00, 0xab, 0xf7];
        assert_eq!(display.take(&record), Ok(Aid::Enter));
        let texts: Vec<_> = display.inputs().map(|field| display.text_of(field)).collect();
        assert_eq!(texts, ["AB", "7"]);
        assert_eq!(display.take(&[0xf3, 0x40, 0x40]), Ok(Aid::Pf(3)));
        assert_eq!(display.take(&[0x6b]), Ok(Aid::Pa(3)));
        assert_eq!(display.take(&[0x6d]), Ok(Aid::Clear));
        assert_eq!(display.inputs().count(), 0);
    }

    #[test]
    fn what_cannot_come_of_the_screen_is_refused() {
        let wrong: [(&[u8], StreamError); 14] = [
            (&[], StreamError::Cut(0)),
            (&[0x60, 0x40, 0x40], StreamError::Aid(0x60)),
            (&[0x88], StreamError::Aid(0x88)),
            (&[0x6d, 0x40], StreamError::Rest(1)),
            (&[0x7d], StreamError::Cut(1)),
            (&[0x7d, 0x40], StreamError::Cut(2)),
            (&[0x7d, 0x5e, 0x40], StreamError::Address(0x5e40)),
            (&[0x7d, 0, 0, 0xc1], StreamError::Order { order: 0xc1, at: 3 }),
            (&[0x7d, 0, 0, SBA, 0], StreamError::Cut(5)),
            // Not the begin of a field, a field of text, and one that is not behind the one before.
            (&[0x7d, 0, 0, SBA, 0, 162, 0xc1], StreamError::NoField(162)),
            (&[0x7d, 0, 0, SBA, 0, 176, 0xc1], StreamError::NoField(176)),
            (&[0x7d, 0, 0, SBA, 0, 171, SBA, 0, 161], StreamError::NoField(161)),
            (
                &[0x7d, 0, 0, SBA, 0, 171, 0xf1, 0xf1, 0xf1, 0xf1, 0xf1],
                StreamError::TooLong { at: 171, bytes: 5, most: 4 },
            ),
            (&[0x7d, 0, 0, SBA, 0, 171, 0x1d], StreamError::Letter(0x1d)),
        ];
        for (record, error) in wrong {
            assert_eq!(form().take(record), Err(error), "{record:x?}");
        }
        // Nothing can be typed into an empty screen.
        let mut empty = Display::default();
        assert_eq!(empty.take(&[0x7d, 0, 0, SBA, 0, 1, 0xc1]), Err(StreamError::NoField(1)));
    }
}
