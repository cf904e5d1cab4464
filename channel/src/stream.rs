//! The data of a program in transport mode: one piece, or a list of TIDAWs.

use super::storage::{Storage, gather_behind};
use super::walk::{PIECES_MAX, Piece};
use crate::format::ccw::Direction;
use crate::format::idaw::{MIDAW_BYTES, Tidaw, TidawFlags};
use crate::format::tcw::{Stream, TCW_BYTES, Tcw};

const BLOCK_BYTES: u64 = 4096;

/// A stream or its list is wrong: program check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong;

/// The pieces of a stream, in order.
///
/// # Errors
/// [`Wrong`] if the list breaks a rule, or a piece is not within the storage.
pub fn pieces(
    storage: &(impl Storage + ?Sized),
    stream: Stream,
    direction: Direction,
) -> Result<Vec<Piece>, Wrong> {
    let mut pieces = Vec::new();
    add_pieces(storage, stream, direction, &mut pieces)?;
    Ok(pieces)
}

/// The same, behind what is there already.
///
/// # Errors
/// [`Wrong`]; some of the pieces may have been added.
pub fn add_pieces(
    storage: &(impl Storage + ?Sized),
    stream: Stream,
    direction: Direction,
    pieces: &mut Vec<Piece>,
) -> Result<(), Wrong> {
    let Stream { address, count, is_indirect } = stream;
    if !is_indirect {
        if !storage.holds(address, count.into()) {
            return Err(Wrong);
        }
        pieces.push(Piece { address, bytes: count, skip: false });
        return Ok(());
    }
    let (mut at, mut left) = (address, count);
    let mut was_transfer = false;
    let mut passed = 0_u64;
    loop {
        let mut bytes = [0; MIDAW_BYTES];
        if !at.is_multiple_of(MIDAW_BYTES as u64) || !storage.fetch(at, &mut bytes) {
            return Err(Wrong);
        }
        let Tidaw { flags, count, address } = Tidaw::parse(&bytes).ok_or(Wrong)?;
        if flags.has(TidawFlags::TRANSFER) {
            if was_transfer || flags.has(TidawFlags::LAST) {
                return Err(Wrong);
            }
            (at, was_transfer) = (address, true);
            continue;
        }
        // What goes to the device is there, and is not skipped.
        let skip = flags.has(TidawFlags::SKIP) && direction == Direction::Input;
        let is_there = skip || storage.holds(address, count.into());
        if count == 0 || count > left || !is_there || pieces.len() >= PIECES_MAX {
            return Err(Wrong);
        }
        pieces.push(Piece { address, bytes: count, skip });
        left -= count;
        passed += u64::from(count);
        if direction == Direction::Output
            && flags.has(TidawFlags::INSERT_CHECK)
            && !flags.has(TidawFlags::LAST)
        {
            // The count of the TCW has the check word too, which crosses no path here. It stands on a multiple of 4.
            let check = passed.next_multiple_of(4) - passed + 4;
            left = left.checked_sub(check as u32).ok_or(Wrong)?;
            passed += check;
        }
        if flags.has(TidawFlags::LAST) {
            return if left == 0 { Ok(()) } else { Err(Wrong) };
        }
        at += MIDAW_BYTES as u64;
        // A list goes into the next block by a transfer alone.
        if at.is_multiple_of(BLOCK_BYTES) && !was_transfer {
            return Err(Wrong);
        }
        was_transfer = false;
    }
}

/// Fetches a TCW.
///
/// # Errors
/// [`Wrong`] if there is none at the address.
#[inline]
pub fn fetch_tcw(storage: &(impl Storage + ?Sized), address: u32) -> Result<Tcw, Wrong> {
    let mut bytes = [0; TCW_BYTES];
    if !address.is_multiple_of(TCW_BYTES as u32) || !storage.fetch(address.into(), &mut bytes) {
        return Err(Wrong);
    }
    Tcw::parse(&bytes).ok_or(Wrong)
}

/// Fetches the TCCB of a TCW, behind what is in `target`.
///
/// # Errors
/// [`Wrong`] if it is not where a TCCB may be.
pub fn fetch_tccb(
    storage: &(impl Storage + ?Sized),
    tcw: &Tcw,
    target: &mut Vec<u8>,
) -> Result<(), Wrong> {
    let count = tcw.tccb_bytes;
    if tcw.tccb_is_indirect {
        let list = Stream { address: tcw.tccb, count, is_indirect: true };
        let pieces = pieces(storage, list, Direction::Output)?;
        return gather_behind(storage, pieces.iter(), target).map(drop).ok_or(Wrong);
    }
    let crosses = tcw.tccb % BLOCK_BYTES + u64::from(count) > BLOCK_BYTES;
    let start = target.len();
    target.resize(start + count as usize, 0);
    let is_there = storage.fetch(tcw.tccb, &mut target[start..]);
    if crosses || !tcw.tccb.is_multiple_of(8) || !is_there { Err(Wrong) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(tidaws: &[(usize, Tidaw)]) -> Vec<u8> {
        let mut bytes = vec![0; 0x4000];
        for (at, tidaw) in tidaws {
            bytes[*at..*at + 16].copy_from_slice(&tidaw.emit());
        }
        bytes
    }

    fn tidaw(flags: u8, count: u32, address: u64) -> Tidaw {
        Tidaw { flags: TidawFlags(flags), count, address }
    }

    #[test]
    fn lists_are_followed() {
        let stream = Stream { address: 0x100, count: 0x1100, is_indirect: true };
        let first = tidaw(0, 0x100, 0x2000);
        let bytes = with(&[
            (0x100, first),
            (0x110, tidaw(0x10, 0, 0x200)),
            (0x200, tidaw(0x80, 0x1000, 0x3000)),
        ]);
        let found = pieces(&bytes[..], stream, Direction::Input).unwrap();
        assert_eq!(found.iter().map(|piece| piece.address).collect::<Vec<_>>(), [0x2000, 0x3000]);
        let twice = with(&[(0x100, tidaw(0x10, 0, 0x200)), (0x200, tidaw(0x10, 0, 0x100))]);
        assert_eq!(pieces(&twice[..], stream, Direction::Input), Err(Wrong));
        let short = with(&[(0x100, tidaw(0x80, 0x100, 0x2000))]);
        assert_eq!(pieces(&short[..], stream, Direction::Input), Err(Wrong));
        let outside = with(&[(0x100, tidaw(0x80, 0x1100, 0x3f00))]);
        assert_eq!(pieces(&outside[..], stream, Direction::Input), Err(Wrong));
        let skipped = with(&[(0x100, tidaw(0xc0, 0x1100, 0x3f00))]);
        assert!(pieces(&skipped[..], stream, Direction::Input).unwrap()[0].skip);
        assert_eq!(pieces(&skipped[..], stream, Direction::Output), Err(Wrong));
    }

    #[test]
    fn check_words_in_the_midst_of_an_output_stream_are_counted() {
        let list = |first: u32| {
            with(&[
                (0x100, tidaw(0x08, first, 0x2000)),
                (0x110, tidaw(0x08, 0x10, 0x2800)),
                (0x120, tidaw(0x88, 0x100, 0x3000)),
            ])
        };
        let stream = |count| Stream { address: 0x100, count, is_indirect: true };
        let of = |bytes: &[u8], count, direction| pieces(bytes, stream(count), direction).is_ok();
        // Behind 100 bytes, which are a multiple of 4, and 16; behind the last ones the count has none.
        let bytes = list(0x100);
        assert!(of(&bytes, 0x210 + 8, Direction::Output));
        for count in [0x210, 0x210 + 4, 0x210 + 12] {
            assert!(!of(&bytes, count, Direction::Output), "{count}");
        }
        assert!(of(&bytes, 0x210, Direction::Input), "no check words are inserted there");
        // Behind 0x101 bytes three are needed to a multiple of 4.
        assert!(of(&list(0x101), 0x211 + 7 + 4, Direction::Output));
    }
}
