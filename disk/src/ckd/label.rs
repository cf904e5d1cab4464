//! The volume label, and the volume's table of contents (VTOC).
//!
//! ```text
//! label, 80    on cylinder 0, head 0, record 3, with the key VOL1
//!              | VOL1 | volume 6 | security 8 | VTOC: CCHHR | ... | owner 14 at 37 |
//! DSCB, 140    a record of the VTOC with a key of 44 and 96 of data
//! format 4     key 04.., F4: the VTOC itself and the device; the first
//! format 5     key 05..05: free space, which systems of today do not look at
//! format 1     key: the name of a data set, F1: its extents and what its records are like
//! format 0     all zero: free
//! ```
//!
//! z/OS DFSMSdfp Advanced Services, "Data set control blocks". Names are EBCDIC.

use super::ebcdic;
use super::model::{HEADS, TRACK_BYTES, track_number, track_of};
use super::track::{self, Record};
use super::volume::Volume;
use crate::format::eckd::Cchh;
use crate::format::{u16_at, u32_at};

/// Bytes of a volume label.
pub const LABEL_BYTES: usize = 80;
/// The record of the label.
pub const LABEL_RECORD: u8 = 3;
/// The record's key, and the start of its data: `VOL1`.
pub const VOL1: [u8; 4] = [0xe5, 0xd6, 0xd3, 0xf1];
/// Bytes of a DSCB's key.
pub const KEY_BYTES: usize = 44;
/// Bytes of a DSCB's data.
pub const DATA_BYTES: usize = 96;
/// DSCBs of a track of a VTOC.
pub const DSCBS_PER_TRACK: usize = 50;
/// Tracks of a VTOC that are looked at.
pub const VTOC_TRACKS_MAX: u32 = 1000;

const FORMAT_1: u8 = 0xf1;
const FORMAT_4: u8 = 0xf4;
const FORMAT_5: u8 = 0xf5;
/// Bytes of a track of a real 3390, as format 4 has them.
const DEVICE_TRACK_BYTES: u16 = 58786;

/// The label of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The volume's name, up to 6 letters.
    pub volume: String,
    /// The track of the VTOC's first record.
    pub vtoc: Option<Cchh>,
    /// The owner.
    pub owner: String,
}

impl Label {
    /// Takes the data of the label's record apart. None if it is no label.
    pub fn parse(bytes: &[u8]) -> Option<Label> {
        let bytes = bytes.get(..LABEL_BYTES)?;
        let vtoc = (bytes[15] != 0).then(|| Cchh::parse(&bytes[11..15]));
        (bytes[..4] == VOL1).then(|| Label {
            volume: ebcdic::text(&bytes[4..10]),
            vtoc,
            owner: ebcdic::text(&bytes[37..51]),
        })
    }

    /// The bytes. None if a name is too long, or has letters that names do not have.
    pub fn emit(&self) -> Option<[u8; LABEL_BYTES]> {
        let mut bytes = [0x40; LABEL_BYTES];
        bytes[..4].copy_from_slice(&VOL1);
        bytes[4..10].copy_from_slice(&ebcdic::name::<6>(&self.volume)?);
        bytes[10] = ebcdic::encode(b'0')?;
        bytes[11..16].fill(0);
        if let Some(vtoc) = self.vtoc {
            bytes[11..15].copy_from_slice(&vtoc.emit());
            bytes[15] = 1;
        }
        bytes[37..51].copy_from_slice(&ebcdic::name::<14>(&self.owner)?);
        Some(bytes)
    }
}

/// Consecutive tracks of a data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracks {
    /// The first.
    pub first: Cchh,
    /// The last.
    pub last: Cchh,
}

impl Tracks {
    /// How many there are. None if the last is before the first.
    pub fn count(&self) -> Option<u32> {
        (track_number(self.last) + 1).checked_sub(track_number(self.first))
    }

    fn emit(&self, sequence: u8) -> [u8; 10] {
        let mut bytes = [0; 10];
        // Kind 1: a plain extent, or 81 if it has whole cylinders.
        let is_cylinders = self.first.head == 0 && u32::from(self.last.head) == HEADS - 1;
        bytes[0] = if is_cylinders { 0x81 } else { 0x01 };
        bytes[1] = sequence;
        bytes[2..6].copy_from_slice(&self.first.emit());
        bytes[6..].copy_from_slice(&self.last.emit());
        bytes
    }
}

/// A data set, as its DSCB of format 1 has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSet {
    /// Its name, up to 44 letters.
    pub name: String,
    /// Its organisation: 4000 sequential, 0200 partitioned.
    pub organisation: u16,
    /// The format of its records: 80 fixed, 90 fixed and blocked.
    pub record_format: u8,
    /// Bytes of a block.
    pub block_bytes: u16,
    /// Bytes of a record.
    pub record_bytes: u16,
    /// Where it is: up to three.
    pub extents: Vec<Tracks>,
    /// The last block that was written: the track, from its first, and the record. Zeros: it is empty.
    pub last: (u32, u8),
    /// The year, and the day of it, on which it was made.
    pub created: (u16, u16),
}

/// The organisation of a sequential data set.
pub const SEQUENTIAL: u16 = 0x4000;
/// Records of one length, a block each.
pub const FIXED: u8 = 0x80;
/// Extents in a DSCB of format 1.
pub const EXTENTS_MAX: usize = 3;

impl DataSet {
    /// Takes a DSCB apart. None if it is not of format 1.
    pub fn parse(key: &[u8], data: &[u8]) -> Option<DataSet> {
        if key.len() != KEY_BYTES || data.len() != DATA_BYTES || data[0] != FORMAT_1 {
            return None;
        }
        let count = usize::from(data[15]).min(EXTENTS_MAX);
        let extents =
            data[61..91].chunks(10).take(count).filter(|extent| extent[0] != 0).map(|extent| {
                Tracks { first: Cchh::parse(&extent[2..6]), last: Cchh::parse(&extent[6..]) }
            });
        let track = u32::from(u16_at(data, 54)) | u32::from(data[60]) << 16;
        Some(DataSet {
            name: ebcdic::text(key),
            organisation: u16_at(data, 38),
            record_format: data[40],
            block_bytes: u16_at(data, 42),
            record_bytes: u16_at(data, 44),
            extents: extents.collect(),
            last: (track, data[56]),
            created: (u16::from(data[9]) + 1900, u16_at(data, 10)),
        })
    }

    /// Key and data. None if a name does not go in, or there are too many extents.
    pub fn emit(&self, volume: &str) -> Option<([u8; KEY_BYTES], [u8; DATA_BYTES])> {
        let mut data = [0; DATA_BYTES];
        if self.extents.len() > EXTENTS_MAX || self.last.0 >> 24 != 0 {
            return None;
        }
        data[0] = FORMAT_1;
        data[1..7].copy_from_slice(&ebcdic::name::<6>(volume)?);
        data[8] = 1;
        data[9] = u8::try_from(self.created.0.checked_sub(1900)?).ok()?;
        data[10..12].copy_from_slice(&self.created.1.to_be_bytes());
        data[15] = self.extents.len() as u8;
        // A data set with more than 65535 tracks is a large one.
        let tracks: u32 = self.extents.iter().filter_map(Tracks::count).sum();
        data[17] = if tracks > u32::from(u16::MAX) { 0x08 } else { 0 };
        data[18..31].copy_from_slice(&ebcdic::name::<13>("SIGA")?);
        data[38..40].copy_from_slice(&self.organisation.to_be_bytes());
        data[40] = self.record_format;
        data[42..44].copy_from_slice(&self.block_bytes.to_be_bytes());
        data[44..46].copy_from_slice(&self.record_bytes.to_be_bytes());
        // The last volume of the data set.
        data[49] = 0x80;
        // Space in cylinders.
        data[50] = 0xc0;
        data[54..56].copy_from_slice(&(self.last.0 as u16).to_be_bytes());
        data[56] = self.last.1;
        data[60] = (self.last.0 >> 16) as u8;
        for (index, extent) in self.extents.iter().enumerate() {
            data[61 + index * 10..][..10].copy_from_slice(&extent.emit(index as u8));
        }
        Some((ebcdic::name(&self.name)?, data))
    }
}

/// The DSCB of format 4 of a VTOC with this extent, and `free` DSCBs that are not used.
pub fn format_4(
    volume_cylinders: u32,
    vtoc: Tracks,
    free: u16,
) -> ([u8; KEY_BYTES], [u8; DATA_BYTES]) {
    let mut data = [0; DATA_BYTES];
    data[0] = FORMAT_4;
    data[6..8].copy_from_slice(&free.to_be_bytes());
    // One extent.
    data[15] = 1;
    let cylinders = volume_cylinders.min(65_520) as u16;
    data[18..20].copy_from_slice(&cylinders.to_be_bytes());
    data[20..22].copy_from_slice(&(HEADS as u16).to_be_bytes());
    data[22..24].copy_from_slice(&DEVICE_TRACK_BYTES.to_be_bytes());
    data[27] = 0x30;
    data[30] = DSCBS_PER_TRACK as u8;
    // Blocks of a directory of members.
    data[31] = 45;
    data[61..71].copy_from_slice(&vtoc.emit(0));
    ([0x04; KEY_BYTES], data)
}

/// The DSCB of format 5 that names up to one range of free tracks.
pub fn format_5(free: Option<(u32, u32)>) -> ([u8; KEY_BYTES], [u8; DATA_BYTES]) {
    let (mut key, mut data) = ([0; KEY_BYTES], [0; DATA_BYTES]);
    key[..4].fill(0x05);
    data[0] = FORMAT_5;
    if let Some((first, tracks)) = free {
        key[4..6].copy_from_slice(&(first as u16).to_be_bytes());
        key[6..8].copy_from_slice(&((tracks / HEADS) as u16).to_be_bytes());
        key[8] = (tracks % HEADS) as u8;
    }
    (key, data)
}

/// Why a volume has no label or no table of contents that can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A track is damaged.
    #[error("cylinder {}, head {}: {fault}", track.cylinder, track.head)]
    Track {
        /// Which.
        track: Cchh,
        /// What is wrong.
        fault: track::BadTrack,
    },
    /// There is no label.
    #[error("no volume label: record 3 of cylinder 0, head 0 must be one with the key VOL1")]
    NoLabel,
    /// The label names no VTOC, or one that is not there.
    #[error("no table of contents: the label must name one, which begins with a DSCB of format 4")]
    NoVtoc,
}

/// A record with its place: where it is on which track.
type Found = (Cchh, Record);

/// Reads a track and checks it.
fn read(volume: &Volume, track: Cchh, target: &mut [u8]) -> Result<(), LabelError> {
    volume.read_track(track_number(track), target)?;
    let bad = |fault| LabelError::Track { track, fault };
    track::check(target, track).map(drop).map_err(bad)
}

/// The records of a track that was checked.
fn records(bytes: &[u8]) -> impl Iterator<Item = Record> {
    track::records(bytes).map_while(Result::ok)
}

/// The label of a volume.
///
/// # Errors
/// [`LabelError`].
pub fn label(volume: &Volume) -> Result<Label, LabelError> {
    let mut bytes = vec![0; TRACK_BYTES];
    read(volume, Cchh::default(), &mut bytes)?;
    let record = records(&bytes).find(|record| record.count.record == LABEL_RECORD);
    let record = record.filter(|record| bytes[record.key_at()..record.data_at()] == VOL1);
    let record = record.ok_or(LabelError::NoLabel)?;
    Label::parse(&bytes[record.data_at()..record.end()]).ok_or(LabelError::NoLabel)
}

/// A volume's table of contents: the tracks that it is on, and the data sets with the places of their DSCBs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The tracks of the VTOC.
    pub vtoc: Tracks,
    /// The data sets.
    pub data_sets: Vec<(Found, DataSet)>,
}

/// Reads the table of contents.
///
/// # Errors
/// [`LabelError`].
pub fn contents(volume: &Volume, label: &Label) -> Result<Contents, LabelError> {
    let is_there =
        |track: &Cchh| u32::from(track.head) < HEADS && track.cylinder < volume.cylinders();
    let first = label.vtoc.filter(is_there).ok_or(LabelError::NoVtoc)?;
    let mut bytes = vec![0; TRACK_BYTES];
    read(volume, first, &mut bytes)?;
    let dscb = records(&bytes).nth(1).ok_or(LabelError::NoVtoc)?;
    let data = &bytes[dscb.data_at()..dscb.end()];
    if data.len() != DATA_BYTES
        || data[0] != FORMAT_4
        || u32_at(data, 63) != u32_at(&first.emit(), 0)
    {
        return Err(LabelError::NoVtoc);
    }
    let vtoc = Tracks { first, last: Cchh::parse(&data[67..71]) };
    let count = vtoc.count().filter(|_| is_there(&vtoc.last)).ok_or(LabelError::NoVtoc)?;
    let mut data_sets = Vec::new();
    for number in 0..count.min(VTOC_TRACKS_MAX) {
        let track = track_of(track_number(first) + number);
        read(volume, track, &mut bytes)?;
        for record in records(&bytes) {
            let (key, data) =
                bytes[record.key_at()..record.end()].split_at(record.count.key_bytes.into());
            data_sets.extend(DataSet::parse(key, data).map(|data_set| ((track, record), data_set)));
        }
    }
    Ok(Contents { vtoc, data_sets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_what_the_picture_says() {
        let vtoc = Some(Cchh { cylinder: 0, head: 1 });
        let label = Label { volume: "SIGA01".into(), vtoc, owner: "SIGA".into() };
        let bytes = label.emit().unwrap();
        assert_eq!(bytes[..10], [0xe5, 0xd6, 0xd3, 0xf1, 0xe2, 0xc9, 0xc7, 0xc1, 0xf0, 0xf1]);
        assert_eq!(bytes[11..16], [0, 0, 0, 1, 1]);
        assert_eq!(bytes[37..42], [0xe2, 0xc9, 0xc7, 0xc1, 0x40]);
        assert_eq!(Label::parse(&bytes), Some(label));
    }

    #[test]
    fn data_set_survives() {
        let data_set = DataSet {
            name: "SIGA.BLOCKS".into(),
            organisation: SEQUENTIAL,
            record_format: FIXED,
            block_bytes: 4096,
            record_bytes: 4096,
            extents: vec![Tracks {
                first: Cchh { cylinder: 1, head: 0 },
                last: Cchh { cylinder: 10_016, head: 14 },
            }],
            last: (70_000, 12),
            created: (2026, 33),
        };
        let (key, data) = data_set.emit("SIGA01").unwrap();
        assert_eq!(
            (data[0], data[17], data[54..57].to_vec(), data[60]),
            (0xf1, 8, vec![0x11, 0x70, 12], 1)
        );
        assert_eq!(data[61..71], [0x81, 0, 0, 1, 0, 0, 0x27, 0x20, 0, 14]);
        assert_eq!(DataSet::parse(&key, &data), Some(data_set.clone()));
        assert_eq!(DataSet::parse(&key[1..], &data), None);
        assert_eq!(data_set.emit("TOOLONG"), None);
    }
}
