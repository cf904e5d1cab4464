//! The operation-request block: what START SUBCHANNEL is given.
//!
//! ```text
//!         0    4 5 6 7 8 9 10 11 12 13 14 15 16        24 25               31
//! word 0 |                      interruption parameter                       |
//! word 1 | key |S|C|M|Y|F|P| I| A| U| B| H| T|    LPM    | L| D|   0    | X  |
//! word 2 |0|              address of the channel program                     |
//! words 3 to 7: only with X, and not looked at here
//! ```
//!
//! S suspend allowed, F CCWs of format 1, P prefetch allowed, B the address is a TCW's, H IDAWs of format 2, T they are of
//! 2 KiB, LPM the mask of channel paths that the program may use, L suppress incorrect length (format 0), D MIDAWs allowed. The rest is
//! carried.

use super::ccw::CcwFormat;
use super::u32_at;

/// Bytes of an ORB.
pub const ORB_BYTES: usize = 32;

/// Flags of an ORB: word 1 without key, path mask and X.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrbFlags(pub u32);

impl OrbFlags {
    /// A CCW may suspend the program.
    pub const SUSPEND: OrbFlags = OrbFlags(1 << 27);
    /// CCWs are of format 1.
    pub const FORMAT_1: OrbFlags = OrbFlags(1 << 23);
    /// CCWs and data may be fetched ahead.
    pub const PREFETCH: OrbFlags = OrbFlags(1 << 22);
    /// The address is that of a TCW: transport mode.
    pub const TRANSPORT: OrbFlags = OrbFlags(1 << 18);
    /// IDAWs are of format 2.
    pub const IDAW_2: OrbFlags = OrbFlags(1 << 17);
    /// IDAWs of format 2 name blocks of 2 KiB.
    pub const IDAW_2K: OrbFlags = OrbFlags(1 << 16);
    /// An incorrect length is no error of programs of format 0.
    pub const SUPPRESS_LENGTH: OrbFlags = OrbFlags(1 << 7);
    /// CCWs may name MIDAWs.
    pub const MIDAW: OrbFlags = OrbFlags(1 << 6);

    const ALL: u32 = 0x0fff_00c0;

    /// Whether all of `flags` are set.
    pub fn has(self, flags: OrbFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags and those.
    #[must_use]
    pub const fn with(self, flags: OrbFlags) -> OrbFlags {
        OrbFlags(self.0 | flags.0)
    }
}

/// The path mask that names every channel path: the program runs over whichever path its device has.
pub const ALL_PATHS: u8 = 0xff;

/// Where an ORB has the program's address.
pub const PROGRAM_AT: usize = 8;

/// An operation-request block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orb {
    /// Comes back with the interruption.
    pub parameter: u32,
    /// The storage key.
    pub key: u8,
    /// Flags.
    pub flags: OrbFlags,
    /// Channel paths that the program may use: the leftmost bit is the first path, [`ALL_PATHS`] is any of them.
    pub paths: u8,
    /// Where the channel program is.
    pub program: u32,
}

impl Orb {
    /// Takes the bytes apart. None if a bit is set that must not be, or that asks for the extension.
    pub fn parse(bytes: &[u8; ORB_BYTES]) -> Option<Orb> {
        let word = u32_at(bytes, 4);
        let program = u32_at(bytes, PROGRAM_AT);
        (word & 0x3f == 0 && program >> 31 == 0).then(|| Orb {
            parameter: u32_at(bytes, 0),
            key: (word >> 28) as u8,
            flags: OrbFlags(word & OrbFlags::ALL),
            paths: (word >> 8) as u8,
            program,
        })
    }

    /// The bytes.
    pub fn emit(self) -> [u8; ORB_BYTES] {
        let word =
            u32::from(self.key) << 28 | (self.flags.0 & OrbFlags::ALL) | u32::from(self.paths) << 8;
        let mut bytes = [0; ORB_BYTES];
        bytes[..4].copy_from_slice(&self.parameter.to_be_bytes());
        bytes[4..8].copy_from_slice(&word.to_be_bytes());
        bytes[PROGRAM_AT..PROGRAM_AT + 4].copy_from_slice(&self.program.to_be_bytes());
        bytes
    }

    /// The format of the program's CCWs.
    pub fn ccw_format(&self) -> CcwFormat {
        if self.flags.has(OrbFlags::FORMAT_1) { CcwFormat::One } else { CcwFormat::Zero }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orb_is_what_the_picture_says() {
        let orb = Orb {
            parameter: 0x0102_0304,
            key: 1,
            flags: OrbFlags::FORMAT_1.with(OrbFlags::PREFETCH).with(OrbFlags::IDAW_2),
            paths: 0xf0,
            program: 0x0000_2000,
        };
        let mut bytes = [0; ORB_BYTES];
        bytes[..12].copy_from_slice(&[1, 2, 3, 4, 0x10, 0xc2, 0xf0, 0, 0, 0, 0x20, 0]);
        assert_eq!((orb.emit(), Orb::parse(&bytes)), (bytes, Some(orb)));
    }

    #[test]
    fn reserved_bits_are_refused() {
        for (at, bit) in [(7, 0x01), (7, 0x20), (8, 0x80)] {
            let mut bytes = [0; ORB_BYTES];
            bytes[at] = bit;
            assert_eq!(Orb::parse(&bytes), None, "{at}");
        }
    }
}
