//! What a disk's control unit says of a unit check, as sense data of a 3990.
//!
//! ```text
//! byte 0  as of every device; 02 track condition
//! byte 1  80 permanent error  40 invalid track format    20 end of cylinder
//!         08 no record found  04 file protected          02 write inhibited
//! byte 7  format (high nibble) and message (low nibble): why, for format 0, programming errors
//! ```
//!
//! `drivers/s390/block/dasd_3990_erp.c` of Linux lists the messages.

use super::sense::{SENSE_BYTES, Sense};

/// Why a control unit ended an operation with unit check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fault {
    /// The command code is none of this device's.
    InvalidCommand = 1,
    /// The command is not allowed after the one before.
    InvalidSequence = 2,
    /// The count of the CCW is less than the command needs.
    CountTooSmall = 3,
    /// A parameter is wrong.
    InvalidParameter = 4,
    /// The file mask does not allow this command.
    MaskViolation = 5,
    /// The track is not within the extent that the program defined.
    OutsideExtent = 6,
    /// There is no such track on this device.
    NoTrack = 7,
    /// There is no such record.
    NoRecord = 8,
    /// Records do not fit on the track, or the track is damaged.
    InvalidTrackFormat = 9,
    /// The device may only be read.
    WriteInhibited = 10,
    /// The file below could not be read or written.
    Equipment = 11,
    /// The end of the cylinder came before the end of the data.
    EndOfCylinder = 12,
    /// There is no device, or it is gone.
    Intervention = 13,
    /// The cache cannot hold what the operation has read any longer.
    Overrun = 14,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 14] = [
        Fault::InvalidCommand,
        Fault::InvalidSequence,
        Fault::CountTooSmall,
        Fault::InvalidParameter,
        Fault::MaskViolation,
        Fault::OutsideExtent,
        Fault::NoTrack,
        Fault::NoRecord,
        Fault::InvalidTrackFormat,
        Fault::WriteInhibited,
        Fault::Equipment,
        Fault::EndOfCylinder,
        Fault::Intervention,
        Fault::Overrun,
    ];

    /// The first two bytes, and byte 7.
    fn bytes(self) -> ([u8; 2], u8) {
        match self {
            Fault::InvalidCommand => ([0x80, 0], 0x01),
            Fault::InvalidSequence => ([0x80, 0], 0x02),
            Fault::CountTooSmall => ([0x80, 0], 0x03),
            Fault::InvalidParameter => ([0x80, 0], 0x04),
            Fault::MaskViolation => ([0x80, 0x04], 0x05),
            Fault::OutsideExtent => ([0, 0x04], 0x00),
            Fault::NoTrack => ([0x80, 0], 0x04),
            Fault::NoRecord => ([0, 0x08], 0x00),
            Fault::InvalidTrackFormat => ([0, 0x40], 0x00),
            Fault::WriteInhibited => ([0x80, 0x02], 0x00),
            Fault::Equipment => ([0x10, 0x80], 0x10),
            Fault::EndOfCylinder => ([0, 0x20], 0x00),
            Fault::Intervention => ([0x40, 0], 0x00),
            Fault::Overrun => ([0x04, 0], 0x00),
        }
    }

    /// The sense data, for an operation on this track.
    pub fn sense(self, cylinder: u32, head: u8) -> Sense {
        let mut bytes = [0; SENSE_BYTES];
        let (first, seventh) = self.bytes();
        bytes[..2].copy_from_slice(&first);
        bytes[7] = seventh;
        // The last bytes name the track, of format 0 and 1: cylinder, its high bits with the head.
        bytes[29..31].copy_from_slice(&(cylinder as u16).to_be_bytes());
        bytes[31] = ((cylinder >> 16) as u8) << 4 | head & 0x0f;
        Sense(bytes)
    }
}

/// Returns the sense data of a unit check in words, with its first two bytes and the message.
pub fn describe(sense: &Sense) -> String {
    let words = [
        (0x80, "permanent error"),
        (0x40, "invalid track format"),
        (0x20, "end of cylinder"),
        (0x08, "no record found"),
        (0x04, "file protected"),
        (0x02, "write inhibited"),
    ];
    let of_disks = words.iter().filter(|(bit, _)| sense.0[1] & bit != 0).map(|(_, word)| *word);
    let said: Vec<&str> = sense.words().chain(of_disks).collect();
    let said = if said.is_empty() { "no sense".to_owned() } else { said.join(", ") };
    format!("{said} ({:02x}{:02x}, message {:02x})", sense.0[0], sense.0[1], sense.0[7])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_says_what_and_where() {
        let sense = Fault::MaskViolation.sense(0x1_0457, 14);
        assert_eq!((sense.0[..2].to_vec(), sense.0[7]), (vec![0x80, 0x04], 5));
        assert_eq!(sense.0[29..], [0x04, 0x57, 0x1e]);
        assert_eq!(describe(&sense), "command reject, file protected (8004, message 05)");
        assert_eq!(describe(&Sense::default()), "no sense (0000, message 00)");
    }

    #[test]
    fn every_fault_is_a_unit_check_with_sense() {
        for fault in Fault::ALL {
            assert!(fault.sense(0, 0).0[..2] != [0, 0], "{fault:?}");
        }
    }
}
