//! Formats inside buffers: what a buffer is, packed messages, announcements, control.
//!
//! ```text
//! a packed message       | length u32 | head u8 | 0 u8 | 0 u16 | head | body | to a multiple of 8 |
//!                          length counts head and body
//!
//! an announcement        | slot u16 | 0 u16 | count u32 | length u64 | entry 16 bytes | head |
//!                          length counts the body alone
//!
//! control                | code u64 | first u64 | second u64 |
//!                          1 lend: segment, bytes; its descriptor comes with a ring
//!                          2 retire: segment
//!                          3 quiesced: the request it answers, messages sent so far
//! ```
//!
//! Numbers are little-endian. A *head* is a few bytes that the user of the path gets at once, before the
//! body: an identity, a class.

use super::pages::PAGE_BYTES;
use crate::queue::{ENTRIES_MAX, Entry, IN_PLACE_BYTES_MAX, Violation};

/// Bytes of a head.
pub const HEAD_BYTES_MAX: usize = 24;
const _: () = assert!(ANNOUNCEMENT_BYTES + HEAD_BYTES_MAX <= IN_PLACE_BYTES_MAX);

/// A head that is kept while its message waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    length: usize,
}

impl Head {
    pub(super) fn new(head: &[u8]) -> Head {
        let mut bytes = [0; HEAD_BYTES_MAX];
        bytes[..head.len()].copy_from_slice(head);
        Head { bytes, length: head.len() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Bytes that all entries of a list point to: each to a page, on the average. Entries may overlap, and a
/// receiver copies no more than this for one buffer.
pub const LIST_BYTES_MAX: u64 = (ENTRIES_MAX * PAGE_BYTES) as u64;

/// How many bytes all entries of a list point to.
pub(super) fn list_bytes(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| u64::from(entry.length)).sum()
}

/// What kind of buffer this is: the queue's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Label {
    /// One message: in place, or the one entry. The note is the length of its head.
    Message = 0,
    /// Packed messages: the one entry.
    Pack = 1,
    /// A large message that stays where it is: in place. The note is the length of its head.
    Announcement = 2,
    /// Control: in place.
    Control = 3,
    /// Entries that mean something to the user of the path. The note is the user's.
    List = 4,
}

impl Label {
    pub(super) fn parse(bits: u8) -> Result<Label, Violation> {
        [Label::Message, Label::Pack, Label::Announcement, Label::Control, Label::List]
            .into_iter()
            .find(|label| *label as u8 == bits)
            .ok_or(Violation::Record)
    }
}

/// Bytes of a packed message's header.
pub(super) const PACKED_HEADER_BYTES: usize = 8;

/// Bytes that a message takes in a pack.
#[inline]
pub(super) fn packed_bytes(length: usize) -> usize {
    (PACKED_HEADER_BYTES + length).next_multiple_of(8)
}

/// The header of a packed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// Bytes of head and body.
    pub(super) length: usize,
    /// Bytes of head.
    pub(super) head: usize,
}

impl Packed {
    #[inline]
    pub(super) fn bytes(self) -> [u8; PACKED_HEADER_BYTES] {
        (self.length as u64 | (self.head as u64) << 32).to_le_bytes()
    }

    /// Takes a header apart that has `room` bytes behind it.
    #[inline]
    pub(super) fn parse(
        bytes: [u8; PACKED_HEADER_BYTES],
        room: usize,
    ) -> Result<Packed, Violation> {
        let bits = u64::from_le_bytes(bytes);
        let length = (bits & 0xffff_ffff) as usize;
        let head = (bits >> 32) as usize;
        if length > room || head > length || head > HEAD_BYTES_MAX {
            return Err(Violation::Record);
        }
        Ok(Packed { length, head })
    }
}

/// Words of an announcement before the head.
pub(super) const ANNOUNCEMENT_WORDS: usize = 4;
pub(super) const ANNOUNCEMENT_BYTES: usize = ANNOUNCEMENT_WORDS * 8;

/// The words that lie in the first bytes of a line.
pub(super) fn words_of<const N: usize>(bytes: &[u8]) -> [u64; N] {
    std::array::from_fn(|at| u64::from_le_bytes(bytes.as_chunks().0[at]))
}

/// A large message that waits in the writer's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// Which slot stands for it.
    pub(super) slot: u16,
    /// The slot's count while it does.
    pub(super) count: u32,
    /// Bytes of the message.
    pub(super) length: u64,
    /// Where it is: segment and offset. Its length is `length`, not the entry's.
    pub(super) entry: Entry,
}

impl Announcement {
    pub(super) fn words(self) -> [u64; ANNOUNCEMENT_WORDS] {
        let [low, high] = self.entry.bits();
        [u64::from(self.slot) | u64::from(self.count) << 32, self.length, low, high]
    }

    pub(super) fn parse(words: [u64; ANNOUNCEMENT_WORDS]) -> Result<Announcement, Violation> {
        let [identity, length, low, high] = words;
        if identity & 0xffff_0000 != 0 {
            return Err(Violation::Record);
        }
        let (slot, count) = (identity as u16, (identity >> 32) as u32);
        Ok(Announcement { slot, count, length, entry: Entry::parse([low, high]) })
    }
}

/// Control records, by which the writer tells the reader about the path itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// A storage is lent under this number; its descriptor came with a ring.
    Lend { segment: u16, bytes: u64 },
    /// A storage will not be used any more.
    Retire { segment: u16 },
    /// The writer keeps quiet, as asked, after so many messages.
    Quiesced { request: u64, messages: u64 },
}

pub(super) const CONTROL_WORDS: usize = 3;

impl Control {
    pub(super) fn words(self) -> [u64; CONTROL_WORDS] {
        match self {
            Control::Lend { segment, bytes } => [1, u64::from(segment), bytes],
            Control::Retire { segment } => [2, u64::from(segment), 0],
            Control::Quiesced { request, messages } => [3, request, messages],
        }
    }

    pub(super) fn parse([code, first, second]: [u64; CONTROL_WORDS]) -> Result<Control, Violation> {
        let segment = u16::try_from(first).map_err(|_| Violation::Record);
        match code {
            1 => Ok(Control::Lend { segment: segment?, bytes: second }),
            2 => Ok(Control::Retire { segment: segment? }),
            3 => Ok(Control::Quiesced { request: first, messages: second }),
            _ => Err(Violation::Record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_header_is_what_the_picture_says() {
        let packed = Packed { length: 0x0102_0304, head: 24 };
        let bytes = [4, 3, 2, 1, 24, 0, 0, 0];
        assert_eq!(packed.bytes(), bytes);
        assert_eq!(Packed::parse(bytes, 0x0102_0304), Ok(packed));
        assert_eq!(Packed::parse(bytes, 0x0102_0303), Err(Violation::Record));
    }

    #[test]
    fn packed_header_with_too_long_a_head_is_refused() {
        assert_eq!(Packed::parse([100, 0, 0, 0, 25, 0, 0, 0], 1000), Err(Violation::Record));
        assert_eq!(Packed::parse([4, 0, 0, 0, 5, 0, 0, 0], 1000), Err(Violation::Record));
        assert_eq!(Packed::parse([4, 0, 0, 0, 0, 1, 0, 0], 1000), Err(Violation::Record));
    }

    #[test]
    fn announcement_is_what_the_picture_says() {
        let entry = Entry { segment: 5, offset: 0x1000, ..Entry::default() };
        let announcement =
            Announcement { slot: 0x0201, count: 0x0807_0605, length: 1 << 30, entry };
        let bytes = [
            1, 2, 0, 0, 5, 6, 7, 8, //
            0, 0, 0, 0x40, 0, 0, 0, 0, //
            0, 0x10, 0, 0, 0, 5, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(announcement.words().map(u64::to_le_bytes).as_flattened(), bytes);
        assert_eq!(Announcement::parse(words_of(&bytes)), Ok(announcement));
        let reserved = [&[1, 2, 1], &bytes[3..]].concat();
        assert_eq!(Announcement::parse(words_of(&reserved)), Err(Violation::Record));
    }

    #[test]
    fn control_is_what_the_picture_says() {
        for (control, words) in [
            (Control::Lend { segment: 3, bytes: 4096 }, [1, 3, 4096]),
            (Control::Retire { segment: 0xffff }, [2, 0xffff, 0]),
            (Control::Quiesced { request: 7, messages: 9 }, [3, 7, 9]),
        ] {
            assert_eq!(control.words(), words);
            assert_eq!(Control::parse(words), Ok(control));
        }
        for wrong in [[4_u64, 0, 0], [1, 0x1_0000, 0], [0; 3]] {
            assert_eq!(Control::parse(wrong), Err(Violation::Record));
        }
    }
}
