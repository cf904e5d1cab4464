//! A device: a volume, or the part of it that a minidisk is.

use crate::ckd::model::{HEADS, track_number, track_of};
use crate::format::eckd::{COUNT_BYTES, Cchh, Count, TrackSet};

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
    /// Whether the guest may write.
    pub fn is_writable(&self) -> bool {
        self.may_write
    }

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

/// What READ DEVICE CHARACTERISTICS answers.
///
/// ```text
/// byte  0  | 3990 16 | E9 8 | 3390 16 | 0A 8 | facilities 32 | 0 16 | cylinders 16 | heads 16 | sectors 8 | track bytes 24 |
/// byte 20  | record 0 16 | ... | byte 43: bytes of a set of tracks 8 | ... | byte 60: cylinders, all of them 32 |
/// ```
///
/// The facilities follow IBM SA22-1025, "Read Device Characteristics".
pub fn characteristics(device: &Device) -> [u8; CHARACTERISTICS_BYTES] {
    let mut bytes = [0; CHARACTERISTICS_BYTES];
    bytes[..3].copy_from_slice(&[0x39, 0x90, 0xe9]);
    bytes[3..6].copy_from_slice(&[0x33, 0x90, 0x0a]);
    // Define extent and locate record, extended too.
    bytes[6] = 0xd0;
    // Write trackset.
    bytes[8] = 0x02;
    bytes[43] = TrackSet::BYTES as u8;
    // A device with more cylinders than 16 bits can say has FFFE there, and the number in the last word.
    let few = u16::try_from(device.cylinders).ok().filter(|few| *few < 0xfffe).unwrap_or(0xfffe);
    bytes[12..14].copy_from_slice(&few.to_be_bytes());
    bytes[14..16].copy_from_slice(&(HEADS as u16).to_be_bytes());
    bytes[16] = 224;
    bytes[17..20].copy_from_slice(&58786_u32.to_be_bytes()[1..]);
    bytes[20..22].copy_from_slice(&1428_u16.to_be_bytes());
    // Constants of the capacity formula: segments of 34, 19 and 9, and 6.
    bytes[22..27].copy_from_slice(&[0x02, 34, 19, 9, 6]);
    bytes[60..].copy_from_slice(&device.cylinders.to_be_bytes());
    bytes
}

/// Bytes of what READ CONFIGURATION DATA answers.
pub const CONFIGURATION_BYTES: usize = 256;

/// What READ CONFIGURATION DATA answers: a node element descriptor of the device, and one of the control unit.
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
    for (at, class, kind) in [(0, 0xcc, b"003390"), (32, 0xd4, b"003990")] {
        bytes[at] = class;
        bytes[at + 1] = 0x01;
        text(&mut bytes[at + 4..at + 10], kind);
        text(&mut bytes[at + 10..at + 13], b"00A");
        text(&mut bytes[at + 13..at + 16], b"000");
        text(&mut bytes[at + 18..at + 30], b"000000000001");
        bytes[at + 31] = unit_address;
    }
    bytes
}

/// Bytes of a home address, as commands have it, and of record 0.
pub const HOME_ADDRESS_BYTES: usize = 5;
const _: () = assert!(COUNT_BYTES == 8);

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
    fn configuration_names_device_and_control_unit() {
        let bytes = configuration(7);
        assert_eq!(bytes[4..13], [0xf0, 0xf0, 0xf3, 0xf3, 0xf9, 0xf0, 0xf0, 0xf0, 0xc1]);
        assert_eq!(
            (bytes[31], bytes[36..42].to_vec()),
            (7, vec![0xf0, 0xf0, 0xf3, 0xf9, 0xf9, 0xf0])
        );
    }

    #[test]
    fn characteristics_have_the_cylinders() {
        let bytes = characteristics(&MINIDISK);
        assert_eq!(
            (bytes[12..16].to_vec(), bytes[60..].to_vec()),
            (vec![0, 83, 0, 15], vec![0, 0, 0, 83])
        );
        let bytes = characteristics(&MINIDISK);
        assert_eq!((bytes[6..10].to_vec(), bytes[43]), (vec![0xd0, 0, 0x02, 0], 2));
        let large = Device { cylinders: 262_668, ..MINIDISK };
        assert_eq!(characteristics(&large)[12..14], [0xff, 0xfe]);
    }
}
