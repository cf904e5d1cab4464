//! The guest's storage: programs, parameters and data to be written.

use fabric::path::View;

use super::walk::Piece;
use crate::unit::COMMAND_OUTPUT_BYTES_MAX;

/// Bytes of output data of a transport mode operation.
const OUTPUT_BYTES_MAX: u64 = crate::unit::OUTPUT_BYTES_MAX as u64;

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
    if all > OUTPUT_BYTES_MAX {
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

/// Copies data of a command to be written out of the guest's storage, once: as many bytes as a command can use.
pub(super) fn gather_most<'a>(
    storage: &(impl Storage + ?Sized),
    pieces: impl Iterator<Item = &'a Piece> + Clone,
) -> Option<Vec<u8>> {
    let all: u64 = pieces.clone().map(|piece| u64::from(piece.bytes)).sum();
    if all <= COMMAND_OUTPUT_BYTES_MAX.into() {
        return gather(storage, pieces);
    }
    let mut left = COMMAND_OUTPUT_BYTES_MAX;
    let mut used = Vec::new();
    for piece in pieces {
        let bytes = piece.bytes.min(left);
        if bytes > 0 {
            used.push(Piece { bytes, ..*piece });
        }
        left -= bytes;
    }
    gather(storage, used.iter())
}
