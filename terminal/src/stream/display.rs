//! The buffer of a screen: what writes do to it, and what a terminal types and reads.

use super::write::{RESET_MODIFIED, RESTORE};
use super::{
    AID_NONE, Aid, Attribute, CELLS, COLUMNS, EUA, FILLS_MAX, IC, RA, Reader, SBA, SF, StreamError,
    address, is_letter,
};
use crate::ebcdic;

pub(super) const WRITE: u8 = 0xf1;
pub(super) const ERASE_WRITE: u8 = 0xf5;
const ERASE_WRITE_ALTERNATE: u8 = 0x7e;
const ERASE_UNPROTECTED: u8 = 0x6f;
const READ_BUFFER: u8 = 0xf2;
const READ_MODIFIED: u8 = 0xf6;
const READ_MODIFIED_ALL: u8 = 0x6e;

/// The same commands, as channels have them: some hosts send these.
const AS_OF_CHANNELS: [(u8, u8); 7] = [
    (0x01, WRITE),
    (0x05, ERASE_WRITE),
    (0x0d, ERASE_WRITE_ALTERNATE),
    (0x0f, ERASE_UNPROTECTED),
    (0x02, READ_BUFFER),
    (0x06, READ_MODIFIED),
    (0x0e, READ_MODIFIED_ALL),
];

/// What is at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// A letter, or a null.
    Letter(u8),
    /// The begin of a field.
    Field(Attribute),
}

const EMPTY: Cell = Cell::Letter(0);

/// What a record of a program asks of its terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing more: it was written.
    Nothing,
    /// The whole buffer.
    Buffer,
    /// The fields that were modified, unless the last key sends nothing but itself.
    Modified,
    /// The fields that were modified, whatever the last key.
    ModifiedAll,
}

/// The buffer of a screen of 24 rows and 80 columns.
#[derive(Clone, Debug)]
pub struct Display {
    pub(super) cells: Box<[Cell; CELLS]>,
    pub(super) cursor: usize,
    pub(super) is_locked: bool,
    /// The key that was pressed last, since the program has written.
    pub(super) aid: u8,
}

impl Default for Display {
    fn default() -> Display {
        Display { cells: Box::new([EMPTY; CELLS]), cursor: 0, is_locked: true, aid: AID_NONE }
    }
}

/// A field to type in: where it begins, behind its attribute, and how many positions it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The position of its first letter.
    pub at: usize,
    /// Its positions.
    pub cells: usize,
    /// Its attribute.
    pub attribute: Attribute,
}

impl Display {
    /// Does what a record of a program says. If the record breaks a rule, what was done of it before is done.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn write(&mut self, record: &[u8]) -> Result<Asked, StreamError> {
        let mut reader = Reader::new(record);
        let command = reader.byte()?;
        let known = AS_OF_CHANNELS.iter().find(|(channels, _)| *channels == command);
        let command = known.map_or(command, |(_, command)| *command);
        let asked = match command {
            WRITE | ERASE_WRITE | ERASE_WRITE_ALTERNATE => {
                return self.write_orders(command != WRITE, &mut reader);
            }
            ERASE_UNPROTECTED => Asked::Nothing,
            READ_BUFFER => Asked::Buffer,
            READ_MODIFIED => Asked::Modified,
            READ_MODIFIED_ALL => Asked::ModifiedAll,
            other => return Err(StreamError::Command(other)),
        };
        if !reader.is_over() {
            return Err(StreamError::Rest(record.len() - 1));
        }
        if command == ERASE_UNPROTECTED {
            self.erase_unprotected(0, CELLS, self.attribute_of(0));
            self.reset_modified(|attribute| !attribute.is_protected());
            let first = self.inputs().next();
            self.cursor = first.map_or(0, |field| field.at);
            (self.is_locked, self.aid) = (false, AID_NONE);
        }
        Ok(asked)
    }

    fn write_orders(
        &mut self,
        erases: bool,
        reader: &mut Reader<'_>,
    ) -> Result<Asked, StreamError> {
        let control = reader.byte()?;
        if erases {
            self.erase();
        }
        if control & RESET_MODIFIED != 0 {
            self.reset_modified(|_| true);
        }
        let (mut at, mut fills_left) = (self.cursor, FILLS_MAX * CELLS);
        while let Some(byte) = reader.peek() {
            if is_letter(byte) {
                self.cells[at] = Cell::Letter(byte);
                at = next(at);
                reader.at += 1;
                continue;
            }
            let place = reader.at;
            match reader.byte()? {
                SBA => at = reader.address()?,
                SF => {
                    self.cells[at] = Cell::Field(Attribute::of(reader.byte()?));
                    at = next(at);
                }
                IC => self.cursor = at,
                order @ (RA | EUA) => {
                    let stop = reader.address()?;
                    let count = if stop > at { stop - at } else { stop + CELLS - at };
                    let (attribute, passed) = match order {
                        RA => (None, 0),
                        _ => self.look_back(at),
                    };
                    let cost = count + passed;
                    fills_left = fills_left.checked_sub(cost).ok_or(StreamError::TooMuch)?;
                    if order == RA {
                        let letter = reader.byte()?;
                        if !is_letter(letter) {
                            return Err(StreamError::Letter(letter));
                        }
                        let places = (at..at + count).map(|place| place % CELLS);
                        places.for_each(|place| self.cells[place] = Cell::Letter(letter));
                    } else {
                        self.erase_unprotected(at, count, attribute);
                    }
                    at = stop;
                }
                order => return Err(StreamError::Order { order, at: place }),
            }
        }
        self.aid = AID_NONE;
        if control & RESTORE != 0 {
            self.is_locked = false;
        }
        Ok(Asked::Nothing)
    }

    pub(super) fn erase(&mut self) {
        self.cells.fill(EMPTY);
        self.cursor = 0;
    }

    /// Makes nulls of what can be typed over, from `at` on, which is in a field of this attribute.
    fn erase_unprotected(&mut self, at: usize, count: usize, attribute: Option<Attribute>) {
        let mut is_protected = attribute.is_some_and(Attribute::is_protected);
        for place in (at..at + count).map(|place| place % CELLS) {
            match &mut self.cells[place] {
                Cell::Field(attribute) => is_protected = attribute.is_protected(),
                cell if !is_protected => *cell = EMPTY,
                _ => {}
            }
        }
    }

    /// The attribute of the field in which a position is; none if there are no fields.
    fn attribute_of(&self, at: usize) -> Option<Attribute> {
        self.look_back(at).0
    }

    /// The same, and how many positions are between: all if there are no fields.
    fn look_back(&self, at: usize) -> (Option<Attribute>, usize) {
        let mut back = (0..CELLS).map(|before| (self.cells[(at + CELLS - before) % CELLS], before));
        let found = back.find_map(|(cell, before)| match cell {
            Cell::Field(attribute) => Some((Some(attribute), before)),
            Cell::Letter(_) => None,
        });
        found.unwrap_or((None, CELLS))
    }

    /// Makes fields unmodified, those of such attributes.
    fn reset_modified(&mut self, is_meant: impl Fn(Attribute) -> bool) {
        for cell in self.cells.iter_mut() {
            if let Cell::Field(attribute) = cell
                && is_meant(*attribute)
            {
                *attribute = attribute.modified(false);
            }
        }
    }

    /// The field whose attribute is at a position.
    pub(super) fn field_of(&self, place: usize) -> Option<Field> {
        let Cell::Field(attribute) = self.cells[place] else { return None };
        let mut cells = 0;
        while cells < CELLS - 1
            && matches!(self.cells[(place + 1 + cells) % CELLS], Cell::Letter(_))
        {
            cells += 1;
        }
        Some(Field { at: next(place), cells, attribute })
    }

    /// The fields to type in, in the order of their places.
    pub fn inputs(&self) -> impl Iterator<Item = Field> {
        let places = (0..CELLS).filter(
            |place| matches!(self.cells[*place], Cell::Field(attribute) if !attribute.is_protected()),
        );
        places.filter_map(|place| self.field_of(place))
    }

    /// The letters of a field, without the nulls.
    pub fn letters(&self, field: Field) -> impl Iterator<Item = u8> {
        let places = (field.at..field.at + field.cells).map(|place| place % CELLS);
        places.filter_map(|place| match self.cells[place] {
            Cell::Letter(letter) if letter != 0 => Some(letter),
            _ => None,
        })
    }

    /// The text of a field, without the nulls and without blanks at its ends.
    pub fn text_of(&self, field: Field) -> String {
        let text: String = self.letters(field).map(ebcdic::letter).collect();
        text.trim().to_owned()
    }

    /// A row as it is seen, from 0, without blanks at its end. Hidden fields are blank.
    ///
    /// # Panics
    /// If there is no such row: a broken promise inside this program.
    pub fn row(&self, row: usize) -> String {
        let first = address::at(row, 0);
        let mut is_hidden = self.attribute_of(first).is_some_and(Attribute::is_hidden);
        let seen = self.cells[first..first + COLUMNS].iter().map(|cell| match cell {
            Cell::Field(attribute) => {
                is_hidden = attribute.is_hidden();
                ' '
            }
            Cell::Letter(0) => ' ',
            Cell::Letter(_) if is_hidden => ' ',
            Cell::Letter(letter) => ebcdic::letter(*letter),
        });
        let text: String = seen.collect();
        text.trim_end().to_owned()
    }

    /// The position of the cursor.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Returns true if the keyboard is locked: a key was pressed, and the program has not answered.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Types a text into the field that begins at a position, in place of what is there, and leaves the cursor behind it.
    ///
    /// # Errors
    /// [`StreamError`]: no field to type in begins there, or it is shorter; or there is a letter that the code page does not have.
    pub fn type_at(&mut self, at: usize, text: &str) -> Result<(), StreamError> {
        let byte = |letter| ebcdic::byte(letter).ok_or(StreamError::NoLetter(letter));
        let typed = text.chars().map(byte).collect::<Result<Vec<_>, _>>()?;
        let cells = self.fill_field(at, &typed)?;
        self.cursor = (at + typed.len().min(cells.saturating_sub(1))) % CELLS;
        Ok(())
    }

    /// Presses a key, and locks the keyboard. Returns what the terminal sends.
    pub fn press(&mut self, aid: Aid) -> Vec<u8> {
        (self.is_locked, self.aid) = (true, aid.code());
        if aid == Aid::Clear {
            self.erase();
        }
        self.read_modified(aid.is_short())
    }

    /// What a terminal answers to a program that asks for something.
    pub fn answer(&self, asked: Asked) -> Option<Vec<u8>> {
        match asked {
            Asked::Nothing => None,
            Asked::Modified => {
                let is_short = Aid::of(self.aid).is_ok_and(Aid::is_short);
                Some(self.read_modified(is_short))
            }
            Asked::ModifiedAll => Some(self.read_modified(false)),
            Asked::Buffer => {
                let mut record = vec![self.aid];
                record.extend(address::bytes(self.cursor));
                for cell in self.cells.iter() {
                    match cell {
                        Cell::Letter(letter) => record.push(*letter),
                        Cell::Field(attribute) => record.extend([SF, attribute.byte()]),
                    }
                }
                Some(record)
            }
        }
    }

    /// The key, and unless it is short the cursor and the fields that were modified.
    fn read_modified(&self, is_short: bool) -> Vec<u8> {
        let mut record = vec![self.aid];
        if is_short {
            return record;
        }
        record.extend(address::bytes(self.cursor));
        let mut has_fields = false;
        for (place, cell) in self.cells.iter().enumerate() {
            let Cell::Field(attribute) = cell else { continue };
            has_fields = true;
            if attribute.is_modified()
                && let Some(field) = self.field_of(place)
            {
                record.push(SBA);
                record.extend(address::bytes(field.at));
                record.extend(self.letters(field));
            }
        }
        if !has_fields {
            record.extend(self.letters(Field { at: 0, cells: CELLS, attribute: Attribute::INPUT }));
        }
        record
    }
}

fn next(at: usize) -> usize {
    (at + 1) % CELLS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Write;

    fn shown(write: &Write) -> Display {
        let mut display = Display::default();
        assert_eq!(display.write(write.bytes()), Ok(Asked::Nothing));
        display
    }

    fn form() -> Display {
        let mut write = Write::erase();
        write.at(0, 0).field(Attribute::BRIGHT).text("TITLE");
        write.at(2, 0).field(Attribute::TEXT).text("NAME").field(Attribute::INPUT).cursor();
        write.at(2, 16).field(Attribute::SKIPPED).at(3, 0).field(Attribute::SECRET);
        write.at(3, 9).field(Attribute::TEXT);
        shown(&write)
    }

    #[test]
    fn screen_is_seen_and_its_fields_are_typed_in() {
        let mut display = form();
        assert_eq!((display.row(0), display.row(2)), (" TITLE".into(), " NAME".into()));
        assert!(!display.is_locked());
        let inputs: Vec<_> = display.inputs().map(|field| (field.at, field.cells)).collect();
        assert_eq!(inputs, [(166, 10), (241, 8)]);
        assert_eq!(display.cursor(), 166);
        display.type_at(166, "ABC").unwrap();
        display.type_at(241, "xyz").unwrap();
        assert_eq!((display.row(2), display.row(3)), (" NAME ABC".into(), "".into()));
        assert_eq!(display.cursor(), 244);
        // ENTER, the cursor, and both fields in 12-bit addresses.
        assert_eq!(
            display.press(Aid::Enter),
            [
                0x7d, 0xc3, 0xf4, 0x11, 0xc2, 0xe6, 0xc1, 0xc2, 0xc3, 0x11, 0xc3, 0xf1, 0xa7, 0xa8,
                0xa9
            ]
        );
        assert!(display.is_locked());
    }

    #[test]
    fn letter_that_the_code_page_does_not_have_is_named() {
        let error = form().type_at(166, "A€").unwrap_err();
        assert_eq!(error, StreamError::NoLetter('€'));
        assert_eq!(error.to_string(), "letter '€' is typed: must be one of EBCDIC code page 37");
    }

    #[test]
    fn short_keys_send_themselves_and_clear_empties_the_screen() {
        let mut display = form();
        display.type_at(166, "ABC").unwrap();
        assert_eq!(display.press(Aid::Pa(1)), [0x6c]);
        assert_eq!(display.row(2), " NAME ABC");
        assert_eq!(display.press(Aid::Clear), [0x6d]);
        assert_eq!((display.row(2).as_str(), display.inputs().count()), ("", 0));
    }

    #[test]
    fn orders_fill_and_erase_around_the_end_of_the_screen() {
        let mut write = Write::erase();
        write.at(23, 78).fill_to(0, 2, 0x5c);
        let display = shown(&write);
        assert_eq!(display.row(0), "**");
        assert_eq!(display.row(23).trim_start(), "**");
        let mut display = form();
        display.type_at(166, "ABC").unwrap();
        // Erase unprotected up to where it begins: everything once.
        let erase = [WRITE, 0xc0, SBA, 0x40, 0x40, EUA, 0x40, 0x40];
        assert_eq!(display.write(&erase), Ok(Asked::Nothing));
        assert_eq!((display.row(0), display.row(2)), (" TITLE".into(), " NAME".into()));
        display.type_at(166, "ABC").unwrap();
        assert_eq!(display.write(&[0x0f]), Ok(Asked::Nothing));
        assert_eq!((display.row(2), display.cursor()), (" NAME".into(), 166));
        assert_eq!(display.press(Aid::Enter), [0x7d, 0xc2, 0xe6]);
    }

    #[test]
    fn reads_are_answered() {
        let mut display = form();
        display.type_at(166, "A").unwrap();
        assert_eq!(display.write(&[READ_MODIFIED]), Ok(Asked::Modified));
        let record = display.answer(Asked::Modified).unwrap();
        assert_eq!(record, [0x60, 0xc2, 0xe7, 0x11, 0xc2, 0xe6, 0xc1]);
        let record = display.answer(Asked::Buffer).unwrap();
        assert_eq!(record.len(), 3 + CELLS + 6);
        assert_eq!(&record[3..6], [SF, 0xe8, 0xe3]);
    }

    #[test]
    fn read_of_all_has_the_fields_behind_a_key_that_sends_none() {
        let read = |display: &mut Display, command| {
            let asked = display.write(&[command]).unwrap();
            display.answer(asked).unwrap()
        };
        let mut display = form();
        display.type_at(166, "A").unwrap();
        display.press(Aid::Pa(1));
        assert_eq!(read(&mut display, 0xf6), [0x6c]);
        for all in [0x6e, 0x0e] {
            let record = read(&mut display, all);
            assert_eq!(record, [0x6c, 0xc2, 0xe7, 0x11, 0xc2, 0xe6, 0xc1], "{all:#x}");
        }
        display.press(Aid::Clear);
        assert_eq!(read(&mut display, 0x06), [0x6d]);
        // The screen is empty then, and has no fields.
        assert_eq!(read(&mut display, 0x6e), [0x6d, 0x40, 0x40]);
    }

    #[test]
    fn protected_fields_stay_modified_when_unprotected_ones_are_erased() {
        // At 0 a field of text that was made modified, at 4 one to type in, at 9 text.
        let screen = [
            0xf5, 0xc3, 0x1d, 0x61, 0xc1, 0xc2, 0xc3, 0x1d, 0xc1, 0xc4, 0xc5, 0xc6, 0xc7, 0x1d,
            0x60,
        ];
        let mut display = Display::default();
        display.write(&screen).unwrap();
        let before = [
            0x7d, 0x40, 0x40, 0x11, 0x40, 0xc1, 0xc1, 0xc2, 0xc3, 0x11, 0x40, 0xc5, 0xc4, 0xc5,
            0xc6, 0xc7,
        ];
        assert_eq!(display.press(Aid::Enter), before);
        display.write(&[0x6f]).unwrap();
        assert_eq!((display.is_locked(), display.cursor()), (false, 5));
        let after = [0x7d, 0x40, 0xc5, 0x11, 0x40, 0xc1, 0xc1, 0xc2, 0xc3];
        assert_eq!(display.press(Aid::Enter), after);
        // The control character of a write resets all.
        display.write(&[0xf1, 0xc3]).unwrap();
        assert_eq!(display.press(Aid::Enter), [0x7d, 0x40, 0xc5]);
    }

    #[test]
    fn records_that_break_a_rule_are_refused() {
        let wrong: [(&[u8], StreamError); 12] = [
            (&[], StreamError::Cut(0)),
            (&[0xf3], StreamError::Command(0xf3)),
            (&[0x88], StreamError::Command(0x88)),
            (&[WRITE], StreamError::Cut(1)),
            (&[WRITE, 0, SBA], StreamError::Cut(3)),
            (&[WRITE, 0, SBA, 0x40], StreamError::Cut(4)),
            (&[WRITE, 0, SBA, 0x07, 0x80], StreamError::Address(0x0780)),
            (&[WRITE, 0, SF], StreamError::Cut(3)),
            (&[WRITE, 0, RA, 0, 0], StreamError::Cut(5)),
            (&[WRITE, 0, RA, 0, 0, SBA], StreamError::Letter(SBA)),
            (&[WRITE, 0, 0x40, 0x29], StreamError::Order { order: 0x29, at: 3 }),
            (&[READ_BUFFER, 0], StreamError::Rest(1)),
        ];
        for (record, error) in wrong {
            assert_eq!(form().write(record), Err(error), "{record:x?}");
        }
    }

    #[test]
    fn record_does_not_fill_screens_without_end() {
        let fill = [RA, 0x40, 0x40, 0x40];
        let record = |times| [&[WRITE, 0][..], &fill.repeat(times)].concat();
        assert_eq!(Display::default().write(&record(FILLS_MAX)), Ok(Asked::Nothing));
        assert_eq!(Display::default().write(&record(FILLS_MAX + 1)), Err(StreamError::TooMuch));
    }

    #[test]
    fn erasing_one_position_pays_for_the_way_back_to_its_field() {
        // Each erases the position in front of its address alone.
        let erase = |places: std::ops::Range<usize>| {
            let orders = places.flat_map(|place| {
                let [from, to] = [place, place + 1].map(address::bytes);
                [SBA, from[0], from[1], EUA, to[0], to[1]]
            });
            [WRITE, 0].into_iter().chain(orders).collect::<Vec<_>>()
        };
        // Without fields, the whole screen is looked at for each.
        let mut empty = Display::default();
        assert_eq!(empty.write(&erase(0..FILLS_MAX - 1)), Ok(Asked::Nothing));
        assert_eq!(empty.write(&erase(0..FILLS_MAX)), Err(StreamError::TooMuch));
        // One field that begins far away, and many in which they are near.
        let far = || shown(Write::erase().at(0, 0).field(Attribute::INPUT));
        assert_eq!(far().write(&erase(1800..1810)), Ok(Asked::Nothing));
        assert_eq!(far().write(&erase(1800..1900)), Err(StreamError::TooMuch));
        let mut write = Write::erase();
        for row in 0..24 {
            write.at(row, 0).field(Attribute::INPUT).text("ABC");
        }
        let mut near = shown(&write);
        assert_eq!(near.write(&erase(1..100)), Ok(Asked::Nothing));
        assert_eq!((near.row(0), near.row(1), near.row(2)), ("".into(), "".into(), " ABC".into()));
    }
}
