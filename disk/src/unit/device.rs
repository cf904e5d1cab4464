//! A device: a volume, or the part of it that a minidisk is.

use crate::ckd::model::{HEADS, track_number, track_of};
use crate::format::eckd::subsystem::FEATURES_BYTES;
use crate::format::eckd::{BLOCK_BYTES_DEFAULT, Cchh, Count, SECTORS, TrackSet};

/// Cylinder numbers have 28 bits.
const CYLINDER_MASK: u32 = 0x0fff_ffff;

/// A device, as the guest that uses it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Which volume of the control unit.
    pub volume: usize,
    /// The first cylinder of the volume that belongs to it.
    pub first_cylinder: u32,
    /// How many do.
    pub cylinders: u32,
    /// Whether the guest may write.
    pub may_write: bool,
    /// Whether tracks that are read for this device stay in the cache when the exchange that needed them is over.
    pub is_cached: bool,
}

impl Device {
    /// Whether the two have a cylinder in common.
    pub fn overlaps(&self, other: &Device) -> bool {
        self.volume == other.volume
            && self.first_cylinder < other.first_cylinder + other.cylinders
            && other.first_cylinder < self.first_cylinder + self.cylinders
    }

    /// The number of a track on the volume, from the address that the guest has. None if the device has no such track.
    #[inline]
    pub fn track(&self, track: Cchh) -> Option<u32> {
        let is_there = track.cylinder < self.cylinders && u32::from(track.head) < HEADS;
        is_there.then(|| track_number(self.on_volume(track)))
    }

    /// The volume's address of a track of the device.
    #[inline]
    pub fn on_volume(&self, track: Cchh) -> Cchh {
        let cylinder = track.cylinder.wrapping_add(self.first_cylinder) & CYLINDER_MASK;
        Cchh { cylinder, ..track }
    }

    /// The device's address of a track of the volume.
    pub fn shown(&self, track: Cchh) -> Cchh {
        let cylinder = track.cylinder.wrapping_sub(self.first_cylinder) & CYLINDER_MASK;
        Cchh { cylinder, ..track }
    }

    /// The device's address of a track, by its number on the volume.
    pub fn shown_number(&self, track: u32) -> Cchh {
        self.shown(track_of(track))
    }

    /// A count field as the guest is to see it. It can name any cylinder: see [`Device::count_on_volume`].
    pub fn shown_count(&self, count: Count) -> Count {
        Count { track: self.shown(count.track), ..count }
    }

    /// A count field of the guest's, as the volume is to have it. Every cylinder of 28 bits has another one there, and the same comes back.
    pub fn count_on_volume(&self, count: Count) -> Count {
        Count { track: self.on_volume(count.track), ..count }
    }
}

/// What SENSE ID answers: a 3990 with a 3390, and the commands that tell more.
#[rustfmt::skip]
pub const IDENTITY: [u8; 20] = [
    0xff, 0x39, 0x90, 0xe9, 0x33, 0x90, 0x0a, 0x00,
    // Command information words: read configuration data, set subsystem mode, read subsystem data.
    0x40, 0xfa, 0x01, 0x00, 0x41, 0x27, 0x00, 0x04, 0x42, 0x3e, 0x00, 0x20,
];

/// Bytes of what READ DEVICE CHARACTERISTICS answers.
pub const CHARACTERISTICS_BYTES: usize = 64;

/// What READ DEVICE CHARACTERISTICS answers: what is done here, and 0 for all else.
///
/// ```text
/// byte  0  | 3990 16 | E9 8 | 3390 16 | 0A 8 | facilities 32 | class 8 | type 8 | cylinders 16 | heads 16 |
/// byte 16  | sectors 8 | track bytes 24 | bytes of home address and record 0 16 | capacity formula 8, and five of its constants 8 |
/// byte 28  | 0, 12 bytes | record identifiers 8, 8 | control unit 8 | bytes of a set of tracks 8 | longest record 0 16 | 0 16 |
/// byte 48  | sixth constant 8 | constants of sectors 16 | 0, 9 bytes | cylinders, all of them 32 |
/// ```
///
/// Facilities, from byte 6: locate record with reads of tracks, locate record with reads, prefix (40, 10, 02); write trackset (02 of
/// byte 8). Linux, `drivers/s390/block/dasd_eckd.h`, `dasd_eckd_characteristics`; Hercules, `dasdtab.c`, for the bits of byte 6 and the
/// constants of a 3390; IBM SA22-1025, "Read Device Characteristics", for byte 8.
pub fn characteristics(device: &Device) -> [u8; CHARACTERISTICS_BYTES] {
    let mut bytes = [0; CHARACTERISTICS_BYTES];
    bytes[..3].copy_from_slice(&[0x39, 0x90, 0xe9]);
    bytes[3..6].copy_from_slice(&[0x33, 0x90, 0x0a]);
    (bytes[6], bytes[8]) = (0x52, 0x02);
    // A disk, and which: the identifiers of error records are the same number.
    (bytes[10], bytes[11], bytes[40], bytes[41]) = (0x20, 0x24, 0x24, 0x24);
    bytes[42] = 0x15;
    bytes[43] = TrackSet::BYTES as u8;
    bytes[44..46].copy_from_slice(&(BLOCK_BYTES_DEFAULT - 8).to_be_bytes());
    // A device with more cylinders than 16 bits can say has FFFE there, and the number in the last word.
    let few = u16::try_from(device.cylinders).ok().filter(|few| *few < 0xfffe).unwrap_or(0xfffe);
    bytes[12..14].copy_from_slice(&few.to_be_bytes());
    bytes[14..16].copy_from_slice(&(HEADS as u16).to_be_bytes());
    bytes[16] = SECTORS;
    bytes[17..20].copy_from_slice(&58786_u32.to_be_bytes()[1..]);
    bytes[20..22].copy_from_slice(&1428_u16.to_be_bytes());
    // Formula 2, whose constants are 34, 19, 9, 6, 116 and 6.
    bytes[22..28].copy_from_slice(&[0x02, 34, 19, 9, 6, 116]);
    bytes[48..51].copy_from_slice(&[6, 0x77, 0x08]);
    bytes[60..].copy_from_slice(&device.cylinders.to_be_bytes());
    bytes
}

/// Bytes of what READ CONFIGURATION DATA answers.
pub const CONFIGURATION_BYTES: usize = 256;

/// Where the general node-element qualifier is.
const QUALIFIER_AT: usize = 224;

/// What READ CONFIGURATION DATA answers: node-element descriptors of the device and of the control unit, and a general node-element
/// qualifier.
///
/// ```text
/// descriptor, 32 at 0 and 32  | flags 8 | what it is of 8 | class 8 | 0 8 | type 6 | model 3 | manufacturer 3 | plant 2 | serial 12 |
///                             | subsystem 8 | unit address 8 |
/// qualifier, 32 at 224        | 80 | 0, 5 bytes | longest time of an operation 8 | 0 8 | subsystem 16 | 0, 7 bytes | interface 8 | 0 |
/// ```
///
/// Flags: C0 a descriptor, 10 the serial number is valid, 08 it stands for another one, 04 recommended. A descriptor is of a device (01)
/// or of something before it (02). The time is in seconds. The interface has transport mode (04). Texts are EBCDIC. Linux,
/// `drivers/s390/block/dasd_eckd.h`, `dasd_ned` and `dasd_gneq`, and `dasd_eckd.c`, `get_fcx_max_data`; Hercules, `dasdtab.c`.
pub fn configuration(unit_address: u8) -> [u8; CONFIGURATION_BYTES] {
    let mut bytes = [0; CONFIGURATION_BYTES];
    let text = |bytes: &mut [u8], text: &[u8]| {
        let is_digit = |letter: u8| letter.is_ascii_digit();
        for (target, letter) in bytes.iter_mut().zip(text) {
            // Digits and letters of names, in EBCDIC.
            *target =
                if is_digit(*letter) { 0xf0 + (letter - b'0') } else { 0xc1 + (letter - b'A') };
        }
    };
    let device: ([u8; 3], _) = ([0xcc, 0x01, 0x01], b"003390");
    let unit: ([u8; 3], _) = ([0xd4, 0x02, 0x00], b"003990");
    for (at, (kind, name)) in [(0, device), (32, unit)] {
        bytes[at..at + 3].copy_from_slice(&kind);
        text(&mut bytes[at + 4..at + 10], name);
        text(&mut bytes[at + 10..at + 13], b"00A");
        text(&mut bytes[at + 13..at + 16], b"000");
        text(&mut bytes[at + 16..at + 30], b"00000000000001");
    }
    bytes[31] = unit_address;
    bytes[QUALIFIER_AT] = 0x80;
    bytes[QUALIFIER_AT + 6] = 30;
    bytes[QUALIFIER_AT + 17] = 0x04;
    bytes
}

/// What READ SUBSYSTEM DATA brings of the control unit's features: what is done here, and 0 for all else.
///
/// ```text
/// byte  8  | 01: prefix |
/// byte  9  | 20: read track data, in command mode too |
/// byte 12  | 40: write track data, in command mode too |
/// byte 40  | 80: transport mode | 20: of several tracks | 04: read count of several tracks |
/// ```
///
/// Linux, `drivers/s390/block/dasd_eckd.c`, wherever it tests `features.feature`.
pub fn features() -> [u8; FEATURES_BYTES] {
    let mut bytes = [0; FEATURES_BYTES];
    (bytes[8], bytes[9], bytes[12], bytes[40]) = (0x01, 0x20, 0x40, 0xa4);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIDISK: Device =
        Device { volume: 0, first_cylinder: 100, cylinders: 83, may_write: true, is_cached: true };

    #[test]
    fn minidisk_has_its_own_cylinders() {
        let track = Cchh { cylinder: 82, head: 14 };
        assert_eq!(MINIDISK.track(track), Some((100 + 82) * 15 + 14));
        assert_eq!(MINIDISK.track(Cchh { cylinder: 83, head: 0 }), None);
        assert_eq!(MINIDISK.track(Cchh { cylinder: 0, head: 15 }), None);
        assert_eq!(MINIDISK.shown_number(182 * 15 + 14), track);
        let count = Count { track: Cchh { cylinder: 101, head: 2 }, ..Count::default() };
        assert_eq!(MINIDISK.shown_count(count).track.cylinder, 1);
        assert_eq!(MINIDISK.count_on_volume(MINIDISK.shown_count(count)), count);
        let foreign = Count { track: Cchh { cylinder: 500, head: 2 }, ..Count::default() };
        assert_eq!(MINIDISK.shown_count(foreign).track.cylinder, 400);
        for cylinder in [0, 5, 99, 100, 182, 183, 500, CYLINDER_MASK] {
            let count = Count { track: Cchh { cylinder, head: 2 }, ..Count::default() };
            assert_eq!(MINIDISK.count_on_volume(MINIDISK.shown_count(count)), count);
            assert_eq!(MINIDISK.shown_count(MINIDISK.count_on_volume(count)), count);
        }
    }

    #[test]
    fn configuration_is_what_linux_reads() {
        let bytes = configuration(7);
        // `dasd_eckd_identify_conf_parts`: the device is the last descriptor (C0) of kind 01; a general qualifier has 80.
        let parts = || bytes.chunks(32).enumerate();
        let of = |part: &[u8], kind: u8| part[0] & 0xc0 == 0xc0 && part[1] == kind;
        let device = parts().filter(|(_, part)| of(part, 1)).map(|(index, _)| index);
        assert_eq!(device.collect::<Vec<_>>(), [0]);
        let general = parts().filter(|(_, part)| part[0] & 0xc0 == 0x80).map(|(index, _)| index);
        assert_eq!(general.collect::<Vec<_>>(), [7]);
        #[rustfmt::skip]
        assert_eq!(bytes[..32], [
            0xcc, 0x01, 0x01, 0, 0xf0, 0xf0, 0xf3, 0xf3, 0xf9, 0xf0, 0xf0, 0xf0, 0xc1, 0xf0, 0xf0, 0xf0,
            0xf0, 0xf0, 0xf0, 0xf0, 0xf0, 0xf0, 0xf0, 0xf0, 0xf0, 0xf0, 0xf0, 0xf0, 0xf0, 0xf1, 0, 7,
        ]);
        assert_eq!(bytes[32..42], [0xd4, 0x02, 0, 0, 0xf0, 0xf0, 0xf3, 0xf9, 0xf9, 0xf0]);
        assert_eq!(bytes[64..224], [0; 160]);
        // The time-out is at 6, `reserved2[7]` at 17, and the access of the path at 18.
        let mut qualifier = [0; 32];
        (qualifier[0], qualifier[6], qualifier[17]) = (0x80, 30, 0x04);
        assert_eq!(bytes[224..], qualifier);
    }

    #[test]
    fn characteristics_are_what_linux_reads() {
        #[rustfmt::skip]
        let expected = [
            0x39, 0x90, 0xe9, 0x33, 0x90, 0x0a, 0x52, 0, 0x02, 0, 0x20, 0x24, 0, 83, 0, 15,
            224, 0, 0xe5, 0xa2, 0x05, 0x94, 2, 34, 19, 9, 6, 116, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0x24, 0x24, 0x15, 2, 0xdf, 0xee, 0, 0,
            6, 0x77, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 83,
        ];
        assert_eq!(characteristics(&MINIDISK), expected);
        // `RT_in_LR` is bit 40 of byte 6: raw access to tracks needs it.
        assert_eq!(expected[6] & 0x40, 0x40);
        let large = characteristics(&Device { cylinders: 262_668, ..MINIDISK });
        assert_eq!(large[12..14], [0xff, 0xfe]);
        assert_eq!(large[60..], [0, 4, 0x02, 0x0c]);
    }

    #[test]
    fn features_are_those_that_linux_tests_and_are_here() {
        let mut expected = [0; FEATURES_BYTES];
        // Prefix, track data in command mode, and transport mode: of several tracks, and for the check of a format.
        expected[8] = 0x01;
        expected[9] = 0x20;
        expected[12] = 0x40;
        expected[40] = 0x80 | 0x20 | 0x04;
        assert_eq!(features(), expected);
    }
}
