//! A track: its home address, its records, and what can be wrong with them.

use std::ops::Range;

use super::model::{RECORD_BYTES_MAX, TRACK_BYTES};
use crate::format::eckd::{COUNT_BYTES, Cchh, Count};

/// Bytes of a home address.
pub const HOME_BYTES: usize = 5;
/// Bytes of the records of a track at least, which are record 0 and the end.
pub const CONTENT_BYTES_MIN: usize = COUNT_BYTES + RECORD_0_BYTES as usize + END.len();
/// Bytes of the records of a track at most, with record 0 and the end.
pub const CONTENT_BYTES_MAX: usize = TRACK_BYTES - HOME_BYTES;
/// Bytes of record 0's data.
pub const RECORD_0_BYTES: u16 = 8;
/// What stands behind the last record.
pub const END: [u8; COUNT_BYTES] = [0xff; COUNT_BYTES];
/// Records of a track, without record 0: no more fit, whatever they hold.
pub const RECORDS_MAX: usize = 255;

/// A record of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where its count field is, from the start of the track.
    pub offset: usize,
    /// Its count field.
    pub count: Count,
}

impl Record {
    /// Where its key is.
    pub fn key_at(&self) -> usize {
        self.offset + COUNT_BYTES
    }

    /// Where its data is.
    pub fn data_at(&self) -> usize {
        self.key_at() + usize::from(self.count.key_bytes)
    }

    /// Where the next record is.
    pub fn end(&self) -> usize {
        self.data_at() + usize::from(self.count.data_bytes)
    }

    /// Whether it is an end of file.
    pub fn is_end_of_file(&self) -> bool {
        self.count.data_bytes == 0
    }
}

/// What is wrong with a track, and where on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTrack {
    /// The home address is another track's.
    #[error("its home address is {:02x?}: must be that of cylinder {}, head {}", found, track.cylinder, track.head)]
    Home {
        /// What stands there.
        found: [u8; HOME_BYTES],
        /// Which track it is.
        track: Cchh,
    },
    /// The first record is not record 0 with 8 bytes.
    #[error("its first record is not record 0 with 8 bytes of data")]
    RecordZero,
    /// A record reaches beyond the track, or is longer than any.
    #[error("record {record} at byte {offset} of the track reaches beyond its end")]
    Beyond {
        /// Its number.
        record: u8,
        /// Where it is.
        offset: usize,
    },
    /// Nothing says that there are no more records.
    #[error("no end behind the record at byte {offset} of the track")]
    NoEnd {
        /// Where the last record begins.
        offset: usize,
    },
}

impl BadTrack {
    /// Where on the track the fault is.
    pub fn offset(&self) -> usize {
        match self {
            BadTrack::Home { .. } => 0,
            BadTrack::RecordZero => HOME_BYTES,
            BadTrack::Beyond { offset, .. } | BadTrack::NoEnd { offset } => *offset,
        }
    }
}

/// A track that all records have the same length on, numbered from 1, without keys: the usual one. Where a record is
/// is arithmetic then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uniform {
    /// Where the first record is.
    pub offset: u32,
    /// How many there are.
    pub records: u8,
    /// Bytes of data of each.
    pub data_bytes: u16,
}

impl Uniform {
    /// A record, if there is one of this number.
    #[inline]
    pub fn data_at(&self, record: u8) -> Option<usize> {
        let index = usize::from(record.checked_sub(1)?);
        let step = COUNT_BYTES + usize::from(self.data_bytes);
        let at = self.offset as usize + index * step + COUNT_BYTES;
        (record <= self.records).then_some(at)
    }

    /// Where so many records are, from this one on: from the first one's count field to the end of the last one's data.
    #[inline]
    pub fn span(&self, record: u8, records: u32) -> Range<usize> {
        let step = COUNT_BYTES + usize::from(self.data_bytes);
        let at = self.offset as usize + usize::from(record.saturating_sub(1)) * step;
        at..at + records as usize * step
    }

    /// Whether the count fields that are wholly within a part of the track are those of its records. `bytes` are the part's, which
    /// begins `start` bytes behind the start of the track.
    pub fn is_true_of(&self, track: Cchh, start: usize, bytes: &[u8]) -> bool {
        (1..=self.records).all(|record| {
            let at = self.span(record, 0).start;
            let place = at.checked_sub(start).and_then(|at| bytes.get(at..at + COUNT_BYTES));
            let count = Count { track, record, key_bytes: 0, data_bytes: self.data_bytes };
            place.is_none_or(|found| *found == count.emit())
        })
    }
}

/// What a whole track is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many records there are, without record 0.
    pub records: u8,
    /// Where the end stands.
    pub end: usize,
    /// If all records are alike.
    pub uniform: Option<Uniform>,
}

/// The record at an offset: none if the end stands there.
///
/// # Errors
/// [`BadTrack`] if a record reaches beyond the track.
pub fn record_at(track: &[u8], offset: usize) -> Result<Option<Record>, BadTrack> {
    let no_end = BadTrack::NoEnd { offset };
    let bytes = track.get(offset..offset + COUNT_BYTES).ok_or(no_end)?;
    if bytes == END {
        return Ok(None);
    }
    let record = Record { offset, count: Count::parse(bytes) };
    // The end takes eight bytes more.
    if record.count.area_bytes() > RECORD_BYTES_MAX || record.end() + END.len() > track.len() {
        return Err(BadTrack::Beyond { record: record.count.record, offset });
    }
    Ok(Some(record))
}

/// The records of a track, record 0 first. An error is the last item.
pub fn records(track: &[u8]) -> impl Iterator<Item = Result<Record, BadTrack>> {
    records_from(track, HOME_BYTES)
}

/// The records from an offset on, where a count field is: 0 of what READ TRACK has brought. An error is the last item.
pub fn records_from(track: &[u8], offset: usize) -> impl Iterator<Item = Result<Record, BadTrack>> {
    let mut at = Some(offset);
    std::iter::from_fn(move || {
        let found = record_at(track, at?);
        at = found.as_ref().ok().and_then(Option::as_ref).map(Record::end);
        found.transpose()
    })
}

/// Checks a track, all of it, and says what it is like.
///
/// # Errors
/// [`BadTrack`].
pub fn check(bytes: &[u8], track: Cchh) -> Result<Shape, BadTrack> {
    let found: [u8; HOME_BYTES] = *bytes.first_chunk().ok_or(BadTrack::NoEnd { offset: 0 })?;
    if found[0] != 0 || found[1..] != track.emit() {
        return Err(BadTrack::Home { found, track });
    }
    let zero = record_at(bytes, HOME_BYTES)?.ok_or(BadTrack::RecordZero)?;
    if zero.count.record != 0
        || zero.count.key_bytes != 0
        || zero.count.data_bytes != RECORD_0_BYTES
    {
        return Err(BadTrack::RecordZero);
    }
    let (mut last, mut number, mut end) = (zero, 0_usize, zero.end());
    let mut uniform = None;
    while let Some(record) = record_at(bytes, end)? {
        number += 1;
        if number > RECORDS_MAX {
            return Err(BadTrack::NoEnd { offset: record.offset });
        }
        let Count { record: found, key_bytes, data_bytes, .. } = record.count;
        let is_next = usize::from(found) == number && key_bytes == 0 && data_bytes > 0;
        let is_here = record.count.track == track;
        if number == 1 && is_next && is_here {
            uniform = Some(Uniform { offset: record.offset as u32, records: 0, data_bytes });
        }
        uniform =
            uniform.filter(|one: &Uniform| is_next && is_here && one.data_bytes == data_bytes);
        if let Some(uniform) = &mut uniform {
            uniform.records = number as u8;
        }
        end = record.end();
        last = record;
    }
    debug_assert_eq!(end, last.end());
    Ok(Shape { records: number as u8, end, uniform })
}

/// Writes a new track into `target`: home address, record 0, and the end.
///
/// # Panics
/// If the target is not a track long.
pub fn clear(target: &mut [u8], track: Cchh) {
    assert_eq!(target.len(), TRACK_BYTES);
    target.fill(0);
    target[1..HOME_BYTES].copy_from_slice(&track.emit());
    let zero = Count { track, record: 0, key_bytes: 0, data_bytes: RECORD_0_BYTES };
    target[HOME_BYTES..][..COUNT_BYTES].copy_from_slice(&zero.emit());
    let end = HOME_BYTES + COUNT_BYTES + usize::from(RECORD_0_BYTES);
    target[end..][..END.len()].copy_from_slice(&END);
}

/// Appends a record behind all others of a track. Its number is the next.
///
/// # Errors
/// [`BadTrack`] if the track is damaged, or the record does not fit behind the others.
pub fn append(target: &mut [u8], track: Cchh, key: &[u8], data: &[u8]) -> Result<(), BadTrack> {
    let shape = check(target, track)?;
    let record = shape.records + 1;
    let beyond = BadTrack::Beyond { record, offset: shape.end };
    let (Ok(key_bytes), Ok(data_bytes)) = (u8::try_from(key.len()), u16::try_from(data.len()))
    else {
        return Err(beyond);
    };
    let count = Count { track, record, key_bytes, data_bytes };
    let end = shape.end + COUNT_BYTES + count.area_bytes();
    if end + END.len() > target.len() || record == 0 {
        return Err(beyond);
    }
    let place = &mut target[shape.end..];
    place[..COUNT_BYTES].copy_from_slice(&count.emit());
    place[COUNT_BYTES..][..key.len()].copy_from_slice(key);
    place[COUNT_BYTES + key.len()..][..data.len()].copy_from_slice(data);
    target[end..][..END.len()].copy_from_slice(&END);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACK: Cchh = Cchh { cylinder: 0x0102, head: 3 };

    fn empty() -> Vec<u8> {
        let mut bytes = vec![0; TRACK_BYTES];
        clear(&mut bytes, TRACK);
        bytes
    }

    #[test]
    fn track_is_what_the_picture_says() {
        let mut bytes = empty();
        append(&mut bytes, TRACK, &[0xc1], &[1, 2]).unwrap();
        #[rustfmt::skip]
        let start = [
            0, 1, 2, 0, 3,
            1, 2, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0,
            1, 2, 0, 3, 1, 1, 0, 2, 0xc1, 1, 2,
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0,
        ];
        assert_eq!(bytes[..start.len()], start);
        let shape = check(&bytes, TRACK).unwrap();
        assert_eq!((shape.records, shape.end, shape.uniform), (1, 32, None));
    }

    #[test]
    fn track_of_blocks_is_uniform() {
        let mut bytes = empty();
        for _ in 0..12 {
            append(&mut bytes, TRACK, &[], &[7; 4096]).unwrap();
        }
        let uniform = check(&bytes, TRACK).unwrap().uniform.unwrap();
        assert_eq!((uniform.records, uniform.data_bytes, uniform.offset), (12, 4096, 21));
        let by_walking: Vec<usize> =
            records(&bytes).skip(1).map(|record| record.unwrap().data_at()).collect();
        let by_arithmetic: Vec<usize> =
            (1..=12).map(|record| uniform.data_at(record).unwrap()).collect();
        assert_eq!(by_walking, by_arithmetic);
        assert_eq!((uniform.data_at(0), uniform.data_at(13)), (None, None));
        assert!(
            append(&mut bytes, TRACK, &[], &[0; 8000]).is_err(),
            "no room for more than 56832 bytes"
        );
    }

    #[test]
    fn damage_is_named_and_found() {
        let mut bytes = empty();
        append(&mut bytes, TRACK, &[], &[1; 100]).unwrap();
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            check(&bytes, TRACK).unwrap_err()
        };
        assert_eq!(with(4, 9), BadTrack::Home { found: [0, 1, 2, 0, 9], track: TRACK });
        assert_eq!(with(9, 1), BadTrack::RecordZero);
        assert_eq!(with(27, 0xff), BadTrack::Beyond { record: 1, offset: 21 });
        let mut full = bytes.clone();
        full[129..].fill(0);
        assert!(matches!(check(&full, TRACK).unwrap_err(), BadTrack::NoEnd { .. }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_track_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..600), size in 30_usize..2000) {
            bytes.resize(size, 0xff);
            if size > 30 {
                let mut start = empty();
                start.truncate(21);
                bytes[..21].copy_from_slice(&start);
            }
            if let Ok(shape) = check(&bytes, TRACK) {
                prop_assert!(shape.end + 8 <= bytes.len());
                let found = records(&bytes).filter(Result::is_ok).count();
                prop_assert_eq!(found, usize::from(shape.records) + 1);
            }
        }
    }
}
