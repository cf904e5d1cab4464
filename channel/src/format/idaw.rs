//! Indirect-data-address words, which scatter the data of one CCW, and their modified and transport forms.
//!
//! ```text
//! IDAW, format 1   |0| address 31 |                                     blocks of 2 KiB
//! IDAW, format 2   | address 64 |                                       blocks of 4 KiB, or 2 KiB
//! MIDAW            | 0, 40 bits | flags 8 | count 16 | address 64 |     on a quadword; data within 4 KiB
//! TIDAW            | flags 8 | 0, 24 bits | count 32 | address 64 |     on a quadword
//! ```
//!
//! Only the first IDAW of a list may lie within a block; the others lie at the start of one.

use super::{u16_at, u32_at, u64_at};

/// Bytes of a MIDAW, and of a TIDAW.
pub const MIDAW_BYTES: usize = 16;

/// A MIDAW. Its data does not cross a block of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Midaw {
    /// The last of its list.
    pub is_last: bool,
    /// What is read is not placed in storage.
    pub skip: bool,
    /// Tell the program when the data has been transferred.
    pub interrupt: bool,
    /// Bytes.
    pub count: u16,
    /// Where they are.
    pub address: u64,
}

impl Midaw {
    /// Takes the bytes apart. None if a bit is set that must not be.
    pub fn parse(bytes: &[u8; MIDAW_BYTES]) -> Option<Midaw> {
        let flags = bytes[5];
        (bytes[..5] == [0; 5] && flags & 0x1f == 0).then(|| Midaw {
            is_last: flags & 0x80 != 0,
            skip: flags & 0x40 != 0,
            interrupt: flags & 0x20 != 0,
            count: u16_at(bytes, 6),
            address: u64_at(bytes, 8),
        })
    }

    /// The bytes.
    pub fn emit(self) -> [u8; MIDAW_BYTES] {
        let mut bytes = [0; MIDAW_BYTES];
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        bytes[5] = flag(self.is_last, 0x80) | flag(self.skip, 0x40) | flag(self.interrupt, 0x20);
        bytes[6..8].copy_from_slice(&self.count.to_be_bytes());
        bytes[8..].copy_from_slice(&self.address.to_be_bytes());
        bytes
    }
}

/// Flags of a TIDAW.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TidawFlags(pub u8);

impl TidawFlags {
    /// The last of its list.
    pub const LAST: TidawFlags = TidawFlags(0x80);
    /// What is read is not placed in storage.
    pub const SKIP: TidawFlags = TidawFlags(0x40);
    /// Interrogate the device when the data has been transferred.
    pub const INTERROGATE: TidawFlags = TidawFlags(0x20);
    /// Transfer in channel: the list goes on at the address.
    pub const TRANSFER: TidawFlags = TidawFlags(0x10);
    /// A check word follows the data in the stream.
    pub const INSERT_CHECK: TidawFlags = TidawFlags(0x08);

    /// Whether all of `flags` are set.
    pub fn has(self, flags: TidawFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// A transport-indirect-data-address word: one piece of a stream, or of a TCCB, in transport mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tidaw {
    /// Flags.
    pub flags: TidawFlags,
    /// Bytes.
    pub count: u32,
    /// Where they are.
    pub address: u64,
}

impl Tidaw {
    /// Takes the bytes apart. None if a bit is set that must not be.
    pub fn parse(bytes: &[u8; MIDAW_BYTES]) -> Option<Tidaw> {
        (bytes[1..4] == [0; 3] && bytes[0] & 0x07 == 0).then(|| Tidaw {
            flags: TidawFlags(bytes[0]),
            count: u32_at(bytes, 4),
            address: u64_at(bytes, 8),
        })
    }

    /// The bytes.
    pub fn emit(self) -> [u8; MIDAW_BYTES] {
        let mut bytes = [0; MIDAW_BYTES];
        bytes[0] = self.flags.0;
        bytes[4..8].copy_from_slice(&self.count.to_be_bytes());
        bytes[8..].copy_from_slice(&self.address.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_the_picture_says() {
        let midaw = Midaw {
            is_last: true,
            skip: false,
            interrupt: true,
            count: 0x800,
            address: 0x1_2345_6000,
        };
        let bytes = [0, 0, 0, 0, 0, 0xa0, 0x08, 0, 0, 0, 0, 1, 0x23, 0x45, 0x60, 0];
        assert_eq!((midaw.emit(), Midaw::parse(&bytes)), (bytes, Some(midaw)));
        let tidaw = Tidaw {
            flags: TidawFlags(TidawFlags::LAST.0 | TidawFlags::INSERT_CHECK.0),
            count: 0x0001_0000,
            address: 0x7000,
        };
        let bytes = [0x88, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x70, 0];
        assert_eq!((tidaw.emit(), Tidaw::parse(&bytes)), (bytes, Some(tidaw)));
    }

    #[test]
    fn reserved_bits_are_refused() {
        for (at, bit) in [(0, 1), (4, 1), (5, 0x10)] {
            let mut bytes = [0; 16];
            bytes[at] = bit;
            assert_eq!(Midaw::parse(&bytes), None, "{at}");
        }
        for (at, bit) in [(0, 4), (1, 1), (3, 1)] {
            let mut bytes = [0; 16];
            bytes[at] = bit;
            assert_eq!(Tidaw::parse(&bytes), None, "{at}");
        }
    }
}
