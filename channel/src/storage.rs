//! The guest's storage: programs, parameters and data to be written.

use fabric::path::View;

use super::walk::Piece;
use crate::exchange::OUTPUT_BYTES_MAX;

/// Storage that another party writes. What is read twice may be two different things: read once, check, and use the copy.
pub trait Storage {
    /// How many bytes there are. Addresses are below that.
    fn bytes(&self) -> u64;

    /// Copies bytes out. False if they are not all there; nothing is copied then.
    fn fetch(&self, address: u64, target: &mut [u8]) -> bool;

    /// Whether all of a range is there.
    fn holds(&self, address: u64, count: u64) -> bool {
        address.checked_add(count).is_some_and(|end| end <= self.bytes())
    }
}

impl Storage for View {
    fn bytes(&self) -> u64 {
        View::bytes(self) as u64
    }

    #[inline]
    fn fetch(&self, address: u64, target: &mut [u8]) -> bool {
        usize::try_from(address).is_ok_and(|address| View::read(self, address, target).is_ok())
    }
}

/// Storage of one's own, for tests and models.
impl Storage for [u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn fetch(&self, address: u64, target: &mut [u8]) -> bool {
        let end = address.checked_add(target.len() as u64);
        let Some(end) = end.filter(|end| *end <= self.len() as u64) else { return false };
        target.copy_from_slice(&self[address as usize..end as usize]);
        true
    }
}

/// Copies data to be written out of the guest's storage, once.
pub(super) fn gather<'a>(
    storage: &(impl Storage + ?Sized),
    pieces: impl Iterator<Item = &'a Piece> + Clone,
) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    gather_behind(storage, pieces, &mut bytes)?;
    Some(bytes)
}

/// The same, behind what is there already. Returns how many bytes.
pub(super) fn gather_behind<'a>(
    storage: &(impl Storage + ?Sized),
    pieces: impl Iterator<Item = &'a Piece> + Clone,
    bytes: &mut Vec<u8>,
) -> Option<u64> {
    let all: u64 = pieces.clone().map(|piece| u64::from(piece.bytes)).sum();
    if all > OUTPUT_BYTES_MAX as u64 {
        return None;
    }
    let mut at = bytes.len();
    bytes.resize(at + all as usize, 0);
    for piece in pieces {
        let end = at + piece.bytes as usize;
        if !storage.fetch(piece.address, &mut bytes[at..end]) {
            return None;
        }
        at = end;
    }
    Some(all)
}

/// Copies data of a command to be written out of the guest's storage, once: as many bytes as the command can use.
pub(super) fn gather_most<'a>(
    storage: &(impl Storage + ?Sized),
    pieces: impl Iterator<Item = &'a Piece> + Clone,
    bytes_max: u32,
) -> Option<Vec<u8>> {
    let all: u64 = pieces.clone().map(|piece| u64::from(piece.bytes)).sum();
    if all <= bytes_max.into() {
        return gather(storage, pieces);
    }
    gather(storage, part(pieces, 0, bytes_max).iter())
}

/// The part of the pieces that begins at an offset, as far as it is there.
pub(super) fn part<'a>(
    pieces: impl Iterator<Item = &'a Piece>,
    offset: u32,
    count: u32,
) -> Vec<Piece> {
    let (mut before, mut left) = (offset, count);
    let mut used = Vec::new();
    for piece in pieces {
        let skipped = piece.bytes.min(before);
        let bytes = (piece.bytes - skipped).min(left);
        if bytes > 0 {
            used.push(Piece { address: piece.address + u64::from(skipped), bytes, ..*piece });
        }
        (before, left) = (before - skipped, left - bytes);
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_pieces_begins_and_ends_within_them() {
        let piece = |address, bytes| Piece { address, bytes, skip: false };
        let all = [piece(100, 10), piece(0, 0), piece(300, 20), piece(200, 5)];
        let of = |offset, count| part(all.iter(), offset, count);
        assert_eq!(of(0, 35), [piece(100, 10), piece(300, 20), piece(200, 5)]);
        assert_eq!(of(9, 2), [piece(109, 1), piece(300, 1)]);
        assert_eq!(of(10, 20), [piece(300, 20)]);
        assert_eq!(of(33, 100), [piece(203, 2)]);
        assert_eq!((of(0, 0), of(35, 1)), (vec![], vec![]));
    }
}
