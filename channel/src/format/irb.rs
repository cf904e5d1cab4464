//! The interruption-response block: what TEST SUBCHANNEL stores, the status of a program with everything that belongs to it.
//!
//! ```text
//! byte  0  SCSW, 12 bytes: see `scsw`; E is set with sense, and not without
//! byte 12  | 0 8 | LPUM 8 | 0 16 |                      extended-status word, 20 bytes
//! byte 16  | 0 7 |S| 0 2 |count 6 | 0 16 |              its extended-report word
//! byte 20  | 0 96 |
//! byte 32  extended-control word, 32 bytes: sense, with S
//! ```
//!
//! LPUM last-path-used mask, S concurrent sense, count the bytes of sense. The extended-status word has format 1 (z/Architecture Principles of
//! Operation, chapter 16; `struct irb`, `esw1` and `erw` in `arch/s390/include/asm/cio.h` of Linux). L of the SCSW stands for format 0, which reports errors of
//! the channel path itself, and is 0. A system ignores the word with status that says nothing of a device: of a program that was cleared or
//! withdrawn, or that goes on. In transport mode the same sense is in the transport-status block, from which systems take it.

use super::scsw::{EXTENDED_CONTROL, EXTENDED_STATUS, SCSW_BYTES, Scsw};
use super::sense::{SENSE_BYTES, Sense};

/// Bytes of an IRB.
pub const IRB_BYTES: usize = 64;

const PATH_AT: usize = SCSW_BYTES + 1;
const REPORT_AT: usize = SCSW_BYTES + 4;
const CONTROL_AT: usize = 32;
const _: () = assert!(CONTROL_AT + SENSE_BYTES == IRB_BYTES);

/// The first byte of the extended-report word: there is sense.
const CONCURRENT_SENSE: u8 = 0x01;

/// An interruption-response block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Irb {
    /// The status. If there is sense, E of its conditions is set.
    pub scsw: Scsw,
    /// The last-path-used mask: the bit of the device's channel path, the leftmost for the first path. 0 with deferred condition code 3.
    pub path: u8,
    /// What the control unit says of a unit check.
    pub sense: Option<Sense>,
}

impl Irb {
    /// The block of a status. E of its conditions is set if there is sense, else cleared, and L is cleared.
    pub fn new(mut scsw: Scsw, path: u8, sense: Option<Sense>) -> Irb {
        scsw.conditions &= !(EXTENDED_CONTROL | EXTENDED_STATUS);
        if sense.is_some() {
            scsw.conditions |= EXTENDED_CONTROL;
        }
        Irb { scsw, path, sense }
    }

    /// Takes the bytes apart. None if [`Irb::emit`] would not write them: an extended-status word of another format, sense of fewer than
    /// 32 bytes, L, an E that does not agree with the sense, or a bit that must be 0.
    pub fn parse(bytes: &[u8; IRB_BYTES]) -> Option<Irb> {
        let scsw = Scsw::parse(bytes.first_chunk().expect("12 of 64"));
        let sense: [u8; SENSE_BYTES] = bytes[CONTROL_AT..].try_into().expect("32 of 64");
        let has_sense = bytes[REPORT_AT] & CONCURRENT_SENSE != 0;
        let irb = Irb { scsw, path: bytes[PATH_AT], sense: has_sense.then_some(Sense(sense)) };
        (irb.emit() == *bytes).then_some(irb)
    }

    /// The bytes. E is as [`Irb::new`] sets it.
    pub fn emit(self) -> [u8; IRB_BYTES] {
        let Irb { scsw, path, sense } = Irb::new(self.scsw, self.path, self.sense);
        let mut bytes = [0; IRB_BYTES];
        bytes[..SCSW_BYTES].copy_from_slice(&scsw.emit());
        bytes[PATH_AT] = path;
        if let Some(sense) = sense {
            bytes[REPORT_AT..REPORT_AT + 2].copy_from_slice(&[CONCURRENT_SENSE, SENSE_BYTES as u8]);
            bytes[CONTROL_AT..].copy_from_slice(&sense.0);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::scsw::{
        DeviceStatus, SubchannelStatus, TRANSPORT_FORMAT, TSB_STORED, control,
    };

    /// So many bytes, with zeros behind.
    fn block(bytes: &[u8]) -> [u8; IRB_BYTES] {
        let mut block = [0; IRB_BYTES];
        block[..bytes.len()].copy_from_slice(bytes);
        block
    }

    #[test]
    fn irb_without_sense_is_what_the_picture_says() {
        let scsw = Scsw {
            conditions: 0x10c0,
            control: control::START | control::PRIMARY | control::SECONDARY | control::PENDING,
            address: 0x2018,
            device: DeviceStatus::ENDED,
            subchannel: SubchannelStatus::INCORRECT_LENGTH,
            count: 0x0123,
        };
        let irb = Irb::new(scsw, 0x40, None);
        #[rustfmt::skip]
        let bytes = block(&[
            0x10, 0xc0, 0x40, 0x07, 0, 0, 0x20, 0x18, 0x0c, 0x40, 0x01, 0x23,
            0, 0x40,
        ]);
        assert_eq!((irb.emit(), Irb::parse(&bytes)), (bytes, Some(irb)));
        assert_eq!(irb.scsw, scsw);
    }

    #[test]
    fn irb_with_sense_is_what_the_picture_says() {
        let mut sense = Sense::default();
        (sense.0[0], sense.0[7], sense.0[31]) = (0x80, 0x01, 0x1e);
        let scsw = Scsw {
            conditions: 0x0080,
            control: control::START | 0x0017,
            address: 0x0408,
            device: DeviceStatus::ENDED.with(DeviceStatus::UNIT_CHECK),
            ..Scsw::default()
        };
        let irb = Irb::new(scsw, 0x80, Some(sense));
        assert_eq!(irb.scsw, Scsw { conditions: 0x0082, ..scsw });
        #[rustfmt::skip]
        let mut bytes = block(&[
            0x00, 0x82, 0x40, 0x17, 0, 0, 0x04, 0x08, 0x0e, 0, 0, 0,
            0, 0x80, 0, 0, 0x01, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0x80, 0, 0, 0, 0, 0, 0, 0x01,
        ]);
        bytes[63] = 0x1e;
        assert_eq!((irb.emit(), Irb::parse(&bytes)), (bytes, Some(irb)));
        // The bytes are the same if the caller has not set E.
        assert_eq!(Irb { scsw, ..irb }.emit(), bytes);
    }

    #[test]
    fn irb_of_transport_mode_is_what_the_picture_says() {
        let scsw = Scsw {
            conditions: TRANSPORT_FORMAT,
            control: control::START | 0x0017,
            address: 0x0a00,
            device: DeviceStatus::ENDED.with(DeviceStatus::UNIT_CHECK),
            subchannel: SubchannelStatus(0),
            count: TSB_STORED,
        };
        let irb = Irb::new(scsw, 0x01, Some(Sense([9; SENSE_BYTES])));
        #[rustfmt::skip]
        let mut bytes = block(&[
            0x00, 0x12, 0x40, 0x17, 0, 0, 0x0a, 0x00, 0x0e, 0, 0x01, 0,
            0, 0x01, 0, 0, 0x01, 0x20,
        ]);
        bytes[32..].fill(9);
        assert_eq!((irb.emit(), Irb::parse(&bytes)), (bytes, Some(irb)));
    }

    #[test]
    fn other_blocks_are_refused() {
        let with_sense = Irb::new(Scsw::default(), 0x80, Some(Sense([1; SENSE_BYTES]))).emit();
        let without = Irb::new(Scsw::default(), 0x80, None).emit();
        let cases = [
            ("bit 16 of the SCSW", without, 2, 0x80),
            ("L", without, 0, 0x04),
            ("E without sense", without, 1, 0x02),
            ("L beside sense", with_sense, 0, 0x04),
            ("sense without E", with_sense, 1, 0x02),
            ("a logout", without, 12, 0x01),
            ("a connect time", without, 15, 0x01),
            ("authorization check", without, 16, 0x10),
            ("a count without sense", without, 17, 0x20),
            ("24 bytes of sense", with_sense, 17, 0x38),
            ("a failing storage address", without, 20, 0x80),
            ("sense that is not announced", without, 32, 0x80),
        ];
        for (what, mut bytes, at, bits) in cases {
            bytes[at] ^= bits;
            assert_eq!(Irb::parse(&bytes), None, "{what}");
        }
    }

    proptest! {
        #[test]
        fn any_block_survives(
            scsw in any::<[u8; SCSW_BYTES]>(),
            path in any::<u8>(),
            sense in any::<Option<[u8; SENSE_BYTES]>>(),
        ) {
            let irb = Irb::new(Scsw::parse(&scsw), path, sense.map(Sense));
            prop_assert_eq!(Irb::parse(&irb.emit()), Some(irb));
        }
    }
}
