//! An entry: one piece of a buffer's content, as it lies in the writer's storage.
//!
//! ```text
//!         63            56 55           40 39                               0
//! word 0 +----------------+---------------+----------------------------------+
//!        |     flags      |    segment    |              offset              |
//!        +----------------+---------------+----------------------------------+
//! word 1 |             metadata           |              length              |
//!        +--------------------------------+----------------------------------+
//!         63                            32 31                               0
//! ```
//!
//! After QDIO's storage-list entry (`arch/s390/include/asm/qdio.h` of Linux): address as segment and
//! offset, length, flags. The metadata word is the user's: a checksum, a segmentation size.

/// Offsets within a segment are below this: a segment has at most one tebibyte.
pub const OFFSET_END: u64 = 1 << 40;

/// One piece of content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Which of the storages that the writer has lent.
    pub segment: u16,
    /// Where in it, in bytes; below [`OFFSET_END`].
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
    /// What part of a packet this is.
    pub flags: EntryFlags,
    /// Carried for the user of the queue.
    pub metadata: u32,
}

/// Flags of an entry, with QDIO's values. The fragment marks and the last-entry mark are independent:
/// a packet in one entry has no fragment mark, and only the last entry of a buffer is marked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFlags(pub u8);

impl EntryFlags {
    /// A packet wholly in this entry.
    pub const NONE: EntryFlags = EntryFlags(0);
    /// First piece of a packet.
    pub const FIRST: EntryFlags = EntryFlags(0x04);
    /// Neither first nor last piece.
    pub const MIDDLE: EntryFlags = EntryFlags(0x08);
    /// Last piece of a packet.
    pub const LAST: EntryFlags = EntryFlags(0x0c);
    /// The last entry of the buffer.
    pub const LAST_ENTRY: EntryFlags = EntryFlags(0x40);
}

impl Entry {
    /// Both words.
    #[inline]
    pub fn bits(self) -> [u64; 2] {
        debug_assert!(self.offset < OFFSET_END, "an offset has forty bits");
        [
            self.offset | u64::from(self.segment) << 40 | u64::from(self.flags.0) << 56,
            u64::from(self.length) | u64::from(self.metadata) << 32,
        ]
    }

    /// Takes both words apart. Every pattern is some entry; whether it points into lent storage is
    /// checked by those who know what was lent.
    #[inline]
    pub fn parse(bits: [u64; 2]) -> Entry {
        Entry {
            segment: (bits[0] >> 40) as u16,
            offset: bits[0] & (OFFSET_END - 1),
            length: bits[1] as u32,
            flags: EntryFlags((bits[0] >> 56) as u8),
            metadata: (bits[1] >> 32) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_what_the_picture_says() {
        let entry = Entry {
            segment: 0x1234,
            offset: 0x98_7654_3210,
            length: 0xdead_beef,
            flags: EntryFlags(EntryFlags::LAST.0 | EntryFlags::LAST_ENTRY.0),
            metadata: 0xcafe_f00d,
        };
        assert_eq!(entry.bits(), [0x4c12_3498_7654_3210, 0xcafe_f00d_dead_beef]);
        assert_eq!(Entry::parse(entry.bits()), entry);
    }
}
