//! Positions of a buffer, as the data stream has them.
//!
//! ```text
//! 12 bits   c c h h h h h h   c c l l l l l l    c: whatever makes a letter of the six bits
//! 14 bits   0 0 h h h h h h   l l l l l l l l
//! ```

use super::{CELLS, COLUMNS};

/// The letters of six bits.
pub(super) const LETTERS: [u8; 64] = [
    0x40, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f,
    0x50, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f,
    0x60, 0x61, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f,
    0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0x7a, 0x7b, 0x7c, 0x7d, 0x7e, 0x7f,
];

/// Returns the position of an address of 12 or 14 bits; none if it is neither, or none of the screen's.
pub fn position(bytes: [u8; 2]) -> Option<usize> {
    let [high, low] = bytes.map(usize::from);
    let position = match high >> 6 {
        0 => high << 8 | low,
        0b10 => return None,
        _ => (high & 0x3f) << 6 | low & 0x3f,
    };
    (position < CELLS).then_some(position)
}

/// Returns the address of a position, in 12 bits.
///
/// # Panics
/// If there is no such position: a broken promise inside this program.
pub fn bytes(position: usize) -> [u8; 2] {
    assert!(position < CELLS, "{position}");
    [LETTERS[position >> 6], LETTERS[position & 0x3f]]
}

/// Returns the position of a row and a column, both from 0.
pub const fn at(row: usize, column: usize) -> usize {
    row * COLUMNS + column
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_has_an_address_of_12_and_one_of_14_bits() {
        for each in 0..CELLS {
            assert_eq!(position(bytes(each)), Some(each));
            assert_eq!(position([(each >> 8) as u8, each as u8]), Some(each));
        }
        assert_eq!(bytes(at(1, 0)), [0xc1, 0x50]);
        assert_eq!(bytes(CELLS - 1), [0x5d, 0x7f]);
    }

    #[test]
    fn what_is_no_address_of_the_screen_is_refused() {
        assert_eq!(position([0x07, 0x80]), None, "14 bits, one too far");
        assert_eq!(position([0x5e, 0x40]), None, "12 bits, one too far");
        assert_eq!(position([0x80, 0x00]), None);
        assert_eq!(position([0xbf, 0xff]), None);
        assert_eq!(position([0x3f, 0xff]), None);
        assert_eq!(position([0xff, 0xff]), None);
    }
}
