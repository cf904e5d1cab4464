//! Models of the 3390.

use crate::format::eckd::Cchh;

/// Tracks of a cylinder.
pub const HEADS: u32 = 15;
/// Bytes of a track in a file.
pub const TRACK_BYTES: usize = 56832;
/// Bytes of a sector: tracks of a file begin and end with one.
pub const SECTOR_BYTES: usize = 512;
const _: () = assert!(TRACK_BYTES.is_multiple_of(SECTOR_BYTES));
/// The device type, of which the header of a file has the low byte.
pub const DEVICE_TYPE: u16 = 0x3390;
/// Bytes of the longest record.
pub const RECORD_BYTES_MAX: usize = 56664;
/// Cylinders of the largest volume that there is: an extended one.
pub const CYLINDERS_MAX: u32 = 262_668;
/// Bytes of a block of a volume that is formatted in blocks.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks of a track.
pub const BLOCKS_PER_TRACK: u32 = 12;

/// Names of models, and their cylinders.
pub const MODELS: [(&str, u32); 6] = [
    ("3390-1", 1113),
    ("3390-2", 2226),
    ("3390-3", 3339),
    ("3390-9", 10_017),
    ("3390-27", 32_760),
    ("3390-54", 65_520),
];

/// The cylinders of a model.
pub fn cylinders(name: &str) -> Option<u32> {
    MODELS.iter().find(|(model, _)| *model == name).map(|(_, cylinders)| *cylinders)
}

/// The name of a volume's model: the smallest that is large enough, or `3390-A`, an extended one.
pub fn name(volume_cylinders: u32) -> &'static str {
    let large_enough = |(_, cylinders): &&(&str, u32)| volume_cylinders <= *cylinders;
    MODELS.iter().find(large_enough).map_or("3390-A", |(name, _)| *name)
}

/// The number of a track, from the start of the volume.
pub fn track_number(track: Cchh) -> u32 {
    track.cylinder * HEADS + u32::from(track.head)
}

/// A track, by its number.
pub fn track_of(number: u32) -> Cchh {
    Cchh { cylinder: number / HEADS, head: (number % HEADS) as u8 }
}

/// What a record takes of a track of a real 3390, in segments of which a track has [`TRACK_SEGMENTS`].
pub fn record_segments(key_bytes: usize, data_bytes: usize) -> usize {
    let area = |bytes: usize| {
        let groups = (bytes + 6).div_ceil(232);
        9 + (bytes + 6 * groups + 6).div_ceil(34)
    };
    let key = if key_bytes == 0 { 0 } else { area(key_bytes) };
    10 + key + area(data_bytes)
}

/// Segments of a track.
pub const TRACK_SEGMENTS: usize = 1729;

/// How many records of one length fit on a track.
pub fn records_per_track(key_bytes: usize, data_bytes: usize) -> usize {
    TRACK_SEGMENTS / record_segments(key_bytes, data_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_per_track_are_those_of_the_manual() {
        let records = [512, 1024, 2048, 4096].map(|bytes| records_per_track(0, bytes));
        assert_eq!(records, [49, 33, 21, 12]);
        assert_eq!((records_per_track(44, 96), records_per_track(0, RECORD_BYTES_MAX)), (50, 1));
    }

    #[test]
    fn models_have_names() {
        assert_eq!((cylinders("3390-3"), cylinders("3380")), (Some(3339), None));
        assert_eq!((name(20), name(1114), name(65_521)), ("3390-1", "3390-2", "3390-A"));
    }

    #[test]
    fn tracks_have_numbers() {
        let track = Cchh { cylinder: 3, head: 14 };
        assert_eq!((track_number(track), track_of(59)), (59, track));
    }
}
