//! A channel-command word: one command of a channel program in command mode.
//!
//! ```text
//!            0        8       16                32                              63
//! format 1  +--------+--------+-----------------+-+------------------------------+
//!           | command| flags  |      count      |0|           address            |
//!           +--------+--------+-----------------+-+------------------------------+
//! format 0  | command|       address            | flags  |    0   |     count      |
//!           +--------+--------------------------+--------+--------+----------------+
//!            0        8                         32       40       48              63
//! ```
//!
//! Principles of Operation, "Channel-Command Word". A CCW lies on a doubleword.

use super::{u16_at, u32_at};

/// Bytes of a CCW.
pub const CCW_BYTES: usize = 8;

/// Where the fields of a CCW are. All CCWs of a program have the same format: the ORB says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CcwFormat {
    /// Addresses of 24 bits.
    Zero,
    /// Addresses of 31 bits.
    One,
}

/// Flags of a CCW.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CcwFlags(pub u8);

impl CcwFlags {
    /// Data goes on in the storage that the next CCW names.
    pub const CHAIN_DATA: CcwFlags = CcwFlags(0x80);
    /// The next CCW is a command to the same device.
    pub const CHAIN_COMMAND: CcwFlags = CcwFlags(0x40);
    /// A length other than the count is no error.
    pub const SUPPRESS_LENGTH: CcwFlags = CcwFlags(0x20);
    /// What is read is not placed in storage.
    pub const SKIP: CcwFlags = CcwFlags(0x10);
    /// Program-controlled interruption: tell the program when the channel gets here.
    pub const INTERRUPT: CcwFlags = CcwFlags(0x08);
    /// The address is that of a list of IDAWs.
    pub const INDIRECT: CcwFlags = CcwFlags(0x04);
    /// Stop before this CCW until the program resumes.
    pub const SUSPEND: CcwFlags = CcwFlags(0x02);
    /// The address is that of a list of MIDAWs.
    pub const MODIFIED_INDIRECT: CcwFlags = CcwFlags(0x01);

    /// Whether all of `flags` are set.
    pub fn has(self, flags: CcwFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags and those.
    #[must_use]
    pub fn with(self, flags: CcwFlags) -> CcwFlags {
        CcwFlags(self.0 | flags.0)
    }
}

/// Transfer in channel: the next CCW is elsewhere.
pub const TIC: u8 = 0x08;
/// No operation: nothing moves. Every device has this command.
pub const NOP: u8 = 0x03;

/// What a command code asks for, by its low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device.
    Input,
    /// To the device: write and control.
    Output,
}

/// The direction of a command, if the code is a command's: its low four bits are not 0.
pub fn direction(command: u8) -> Option<Direction> {
    match command & 0x0f {
        0x00 | TIC => None,
        low if low & 0x01 == 1 => Some(Direction::Output),
        _ => Some(Direction::Input),
    }
}

/// A channel-command word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ccw {
    /// The command.
    pub command: u8,
    /// Flags.
    pub flags: CcwFlags,
    /// Bytes.
    pub count: u16,
    /// Where they are: 24 or 31 bits.
    pub address: u32,
}

impl Ccw {
    /// Takes the bytes apart. None if a bit is set that must not be.
    pub fn parse(bytes: &[u8; CCW_BYTES], format: CcwFormat) -> Option<Ccw> {
        let ccw = match format {
            CcwFormat::One => Ccw {
                command: bytes[0],
                flags: CcwFlags(bytes[1]),
                count: u16_at(bytes, 2),
                address: u32_at(bytes, 4),
            },
            CcwFormat::Zero => Ccw {
                command: bytes[0],
                flags: CcwFlags(bytes[4]),
                count: u16_at(bytes, 6),
                address: u32_at(bytes, 0) & 0x00ff_ffff,
            },
        };
        (ccw.address >> 31 == 0).then_some(ccw)
    }

    /// The bytes.
    ///
    /// # Panics
    /// If the address has more bits than the format.
    pub fn emit(self, format: CcwFormat) -> [u8; CCW_BYTES] {
        let Ccw { command, flags, count, address } = self;
        let mut bytes = [0; CCW_BYTES];
        match format {
            CcwFormat::One => {
                assert!(address >> 31 == 0, "an address of format 1 has 31 bits");
                bytes[4..].copy_from_slice(&address.to_be_bytes());
                bytes[1] = flags.0;
                bytes[2..4].copy_from_slice(&count.to_be_bytes());
            }
            CcwFormat::Zero => {
                assert!(address >> 24 == 0, "an address of format 0 has 24 bits");
                bytes[..4].copy_from_slice(&address.to_be_bytes());
                bytes[4] = flags.0;
                bytes[6..].copy_from_slice(&count.to_be_bytes());
            }
        }
        bytes[0] = command;
        bytes
    }

    /// Whether this is a transfer in channel. Of format 0 the high bits of the code mean nothing then.
    pub fn is_transfer(&self, format: CcwFormat) -> bool {
        match format {
            CcwFormat::Zero => self.command & 0x0f == TIC,
            CcwFormat::One => self.command == TIC,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ccw_is_what_the_picture_says() {
        let ccw = Ccw {
            command: 0x86,
            flags: CcwFlags::CHAIN_COMMAND.with(CcwFlags::SUPPRESS_LENGTH),
            count: 0x1000,
            address: 0x0012_3450,
        };
        let one = [0x86, 0x60, 0x10, 0x00, 0x00, 0x12, 0x34, 0x50];
        let zero = [0x86, 0x12, 0x34, 0x50, 0x60, 0x00, 0x10, 0x00];
        assert_eq!((ccw.emit(CcwFormat::One), ccw.emit(CcwFormat::Zero)), (one, zero));
        assert_eq!(Ccw::parse(&one, CcwFormat::One), Some(ccw));
        assert_eq!(Ccw::parse(&zero, CcwFormat::Zero), Some(ccw));
    }

    #[test]
    fn address_of_32_bits_is_refused() {
        assert_eq!(Ccw::parse(&[2, 0, 0, 1, 0x80, 0, 0, 0], CcwFormat::One), None);
    }

    #[test]
    fn direction_is_in_the_low_bits() {
        use Direction::{Input, Output};
        let directions: Vec<_> =
            [0x00, 0x08, 0x02, 0x86, 0xde, 0x04, 0xe4, 0x0e].map(direction).into();
        let input = Some(Input);
        assert_eq!(directions, [None, None, input, input, input, input, input, input]);
        for command in [0x03, 0x63, 0x47, 0x4b, 0xe7, 0x05, 0x85, 0x1d, 0x27] {
            assert_eq!(direction(command), Some(Output), "{command:#x}");
        }
        // Bits 1100 are read backward: no device of ours has that, and it is an input command.
        assert_eq!(direction(0x0c), input);
    }

    #[test]
    fn transfer_of_format_0_has_any_high_bits() {
        let ccw = Ccw { command: 0xf8, flags: CcwFlags(0), count: 0, address: 0 };
        assert!(ccw.is_transfer(CcwFormat::Zero) && !ccw.is_transfer(CcwFormat::One));
    }
}
