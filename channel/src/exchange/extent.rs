//! Extents: where data lies in lent storage.
//!
//! ```text
//!         63       56 55           40 39                                     0
//! word 0 |    gap    |    records    |                offset                  |
//! word 1 |       0 16       |  segment 16  |           record bytes 32         |
//! ```
//!
//! An extent is records of one length with gaps of one length between them. Numbers are little-endian.

/// Bytes of an extent.
pub const EXTENT_BYTES: usize = 16;

/// Offsets are below this.
const OFFSET_END: u64 = 1 << 40;

/// Records in lent storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Where the first begins.
    pub offset: u64,
    /// How many there are.
    pub records: u16,
    /// Bytes between one and the next.
    pub gap: u8,
    /// Bytes of each.
    pub record_bytes: u32,
    /// Which storage.
    pub segment: u16,
}

impl Extent {
    /// Bytes in one piece.
    pub fn plain(segment: u16, offset: u64, bytes: u32) -> Extent {
        Extent { offset, records: 1, gap: 0, record_bytes: bytes, segment }
    }

    /// Takes the bytes apart. None if a bit is set that must not be.
    #[inline]
    pub fn parse(bytes: &[u8; EXTENT_BYTES]) -> Option<Extent> {
        let first = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        let second = u64::from_le_bytes(bytes[8..].try_into().expect("eight bytes"));
        (second >> 48 == 0).then_some(Extent {
            offset: first & (OFFSET_END - 1),
            records: (first >> 40) as u16,
            gap: (first >> 56) as u8,
            record_bytes: second as u32,
            segment: (second >> 32) as u16,
        })
    }

    /// The bytes.
    #[inline]
    pub fn emit(&self) -> [u8; EXTENT_BYTES] {
        debug_assert!(self.offset < OFFSET_END);
        let first = self.offset | u64::from(self.records) << 40 | u64::from(self.gap) << 56;
        let second = u64::from(self.record_bytes) | u64::from(self.segment) << 32;
        let mut bytes = [0; EXTENT_BYTES];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    /// Bytes of all records.
    pub fn bytes(&self) -> u64 {
        u64::from(self.records) * u64::from(self.record_bytes)
    }

    /// Where the last record ends, if the extent has one.
    pub fn end(&self) -> u64 {
        let step = u64::from(self.record_bytes) + u64::from(self.gap);
        let before = u64::from(self.records.saturating_sub(1)) * step;
        self.offset + before + u64::from(self.record_bytes)
    }

    /// Each record's place.
    pub fn places(self) -> impl Iterator<Item = u64> {
        let step = u64::from(self.record_bytes) + u64::from(self.gap);
        (0..u64::from(self.records)).map(move |record| self.offset + record * step)
    }
}

/// Data that was read, in a body of its own or in extents.
#[derive(Clone, Copy, Debug)]
pub enum Pieces<'a> {
    /// The bytes themselves.
    Bytes(&'a [u8]),
    /// A number of [`Extent`]s.
    Extents(&'a [u8]),
}

impl<'a> Pieces<'a> {
    /// The extents, if that is what the data is in. None as an item: one that breaks the rules.
    pub fn extents(self) -> impl Iterator<Item = Option<Extent>> + 'a {
        let bytes = match self {
            Pieces::Bytes(_) => &[],
            Pieces::Extents(bytes) => bytes,
        };
        bytes.chunks(EXTENT_BYTES).map(|chunk| Extent::parse(chunk.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_is_what_the_picture_says() {
        let extent =
            Extent { offset: 0x98_7654_3210, records: 12, gap: 8, record_bytes: 4096, segment: 3 };
        let bytes = [0x10, 0x32, 0x54, 0x76, 0x98, 12, 0, 8, 0, 0x10, 0, 0, 3, 0, 0, 0];
        assert_eq!((extent.emit(), Extent::parse(&bytes)), (bytes, Some(extent)));
        assert_eq!((extent.bytes(), extent.end() - extent.offset), (12 * 4096, 12 * 4104 - 8));
        assert_eq!(extent.places().nth(2), Some(0x98_7654_3210 + 2 * 4104));
        let mut bytes = bytes;
        bytes[14] = 1;
        assert_eq!(Extent::parse(&bytes), None);
    }
}
