//! What is in the records.
//!
//! ```text
//! byte 0        8
//!     |  seed  |  the pattern of message number `seed`, from its second word on |
//!
//! seed   63      40 39                0
//!       | version  |  number of the record on its volume |
//! ```
//!
//! The version is another one for each write, and any is right.

use std::fs::File;
use std::io::{self, Write};

use siga::disk::ckd::header::Header;
use siga::disk::ckd::model::{BLOCKS_PER_TRACK, HEADS, TRACK_BYTES, track_of};
use siga::disk::ckd::track;

use super::RECORD_BYTES;
use crate::pattern::{fill, is_intact};
use crate::place::Place;

const NUMBER_BITS: u32 = 40;
const SEED_BYTES: usize = 8;

/// Fills a record.
#[inline]
pub(super) fn make(record: &mut [u8], number: u64, version: u64) {
    let seed = number | version << NUMBER_BITS;
    fill(record, seed);
    record[..SEED_BYTES].copy_from_slice(&seed.to_le_bytes());
}

/// Whether the first bytes of a record are those of the record of this number.
#[inline]
pub(super) fn is_of(bytes: &[u8], number: u64) -> bool {
    let Some((seed, rest)) = bytes.split_first_chunk::<SEED_BYTES>() else { return false };
    let seed = u64::from_le_bytes(*seed);
    seed & ((1 << NUMBER_BITS) - 1) == number && is_intact(rest, seed, SEED_BYTES)
}

/// Records of so many cylinders.
pub(super) fn records(cylinders: u32) -> u64 {
    u64::from(cylinders * HEADS * BLOCKS_PER_TRACK)
}

/// A file without a name, where the files of volumes are to be: nothing is left behind however a trial ends.
pub(super) fn unnamed(is_in_memory: bool) -> io::Result<File> {
    let place = if is_in_memory { Place::make_in_memory() } else { Place::make() }?;
    File::options().read(true).write(true).create_new(true).open(place.file("records"))
}

/// Writes a volume into a file, all of it records of version 0, track by track, as `siga volume create` does. Longer pieces
/// would have the kernel keep the file in longer pieces, too, of which a short write takes more time.
pub(super) fn write_volume(mut file: &File, cylinders: u32) -> io::Result<()> {
    file.write_all(&Header::default().emit())?;
    let mut content = vec![0; TRACK_BYTES];
    let mut record = vec![0; RECORD_BYTES];
    for number in 0..cylinders * HEADS {
        track::clear(&mut content, track_of(number));
        for place in 0..BLOCKS_PER_TRACK {
            make(&mut record, u64::from(number * BLOCKS_PER_TRACK + place), 0);
            let appended = track::append(&mut content, track_of(number), &[], &record);
            appended.map_err(io::Error::other)?;
        }
        file.write_all(&content)?;
    }
    file.sync_all()
}

/// Writes the same records into a plain file, as many at a time as a track has.
pub(super) fn write_plain(mut file: &File, cylinders: u32) -> io::Result<()> {
    let mut content = vec![0; RECORD_BYTES * BLOCKS_PER_TRACK as usize];
    for first in (0..records(cylinders)).step_by(BLOCKS_PER_TRACK as usize) {
        for (number, record) in (first..).zip(content.chunks_mut(RECORD_BYTES)) {
            make(record, number, 0);
        }
        file.write_all(&content)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_known_whoever_wrote_it_last_and_nothing_else_is() {
        let mut record = vec![0; RECORD_BYTES];
        for version in [0, 1, 77] {
            make(&mut record, 123_456, version);
            assert!(is_of(&record, 123_456) && is_of(&record[..64], 123_456));
            assert!(!is_of(&record, 123_457) && !is_of(&record[..4], 123_456));
        }
        let whole = record.clone();
        for at in [0, 5, 8, 100, RECORD_BYTES - 1] {
            record.clone_from(&whole);
            record[at] ^= 1;
            assert!(!is_of(&record, 123_456), "{at}");
        }
        // Half of it written by another.
        let mut other = vec![0; RECORD_BYTES];
        make(&mut other, 123_456, 78);
        record.clone_from(&whole);
        record[2048..].copy_from_slice(&other[2048..]);
        assert!(!is_of(&record, 123_456));
    }
}
