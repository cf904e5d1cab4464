//! The transport-command-control block: all commands of an operation, which go to the control unit at once.
//!
//! ```text
//! TCAH, 16 bytes   | 7F | 0 24 | 0 24 | length 8 | SAC 16 | 0 8 | priority 8 | 0 32 |
//! DCW, 8 bytes     | command 8 | flags 8 | 0 8 | control bytes 8 | count 32 | control data, to a multiple of 4 |
//!   ...            up to 30 of them; flag 40: another one follows
//! TCAT, 8 bytes    | 0 32 | count 32 |
//! ```
//!
//! The length counts what is between TCAH and TCAT, and 12 more. SAC is 1FFE, or 1FFF for an interrogation. The count of the
//! TCAT is that of all data of one direction, to a multiple of 4, and 4 for the check word. Data of all DCWs of a direction
//! is one stream. A write of several tracks can have a check word behind the data of each track, as its locate record says: those behind
//! all tracks but the last are within the stream, and the counts of TCW and TCAT have 4 more for each. Linux,
//! `arch/s390/include/asm/fcx.h`, and `drivers/s390/cio/fcx.c`, `tcw_finalize`.

use super::u32_at;

/// Bytes before the first DCW.
pub const TCAH_BYTES: usize = 16;
/// Bytes behind the last DCW.
pub const TCAT_BYTES: usize = 8;
/// Bytes of a DCW without its control data.
pub const DCW_BYTES: usize = 8;
/// Bytes of the longest TCCB that a TCW can name.
pub const TCCB_BYTES_MAX: usize = 272;
/// DCWs of one TCCB.
pub const DCWS_MAX: usize = 30;

/// The command of the one DCW of an interrogation. Its control data, which say why a system asks, are not looked at.
pub const INTERROGATE: u8 = 0x40;

const FORMAT: u8 = 0x7f;
const LENGTH_BIAS: usize = 12;
const CHAIN: u8 = 0x40;

/// What a TCCB is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Commands.
    Commands,
    /// To ask what became of an operation.
    Interrogate,
}

impl Service {
    fn code(self) -> u16 {
        match self {
            Service::Commands => 0x1ffe,
            Service::Interrogate => 0x1fff,
        }
    }
}

/// A device-command word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dcw<'a> {
    /// The command.
    pub command: u8,
    /// Bytes of data.
    pub count: u32,
    /// Parameters, which go with the command.
    pub control: &'a [u8],
}

/// Why a TCCB is none, as the reason code of a device-detected program check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BadTccb {
    /// The header: format, reserved bits, service.
    Header = 1,
    /// The length is not that of the bytes.
    Length = 2,
    /// A DCW: reserved bits, or it reaches beyond the TCCB.
    Dcw = 3,
    /// The trailer.
    Trailer = 4,
}

/// A TCCB, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tccb<'a> {
    /// What it is for.
    pub service: Service,
    /// Bytes of all data of its direction, as the trailer has them.
    pub transfer_bytes: u32,
    commands: &'a [u8],
}

impl<'a> Tccb<'a> {
    /// Checks all of the bytes.
    ///
    /// # Errors
    /// [`BadTccb`], and where the fault is.
    pub fn parse(bytes: &'a [u8]) -> Result<Tccb<'a>, (BadTccb, usize)> {
        if bytes.len() < TCAH_BYTES + TCAT_BYTES || !bytes.len().is_multiple_of(4) {
            return Err((BadTccb::Length, 0));
        }
        let (head, rest) = bytes.split_at(TCAH_BYTES);
        let (commands, trailer) = rest.split_at(rest.len() - TCAT_BYTES);
        let service = match [head[8], head[9]] {
            [0x1f, 0xfe] => Service::Commands,
            [0x1f, 0xff] => Service::Interrogate,
            _ => return Err((BadTccb::Header, 8)),
        };
        if head[0] != FORMAT || head[1..7] != [0; 6] || head[10] != 0 || head[12..] != [0; 4] {
            return Err((BadTccb::Header, 0));
        }
        if usize::from(head[7]) != (commands.len() + LENGTH_BIAS) & 0xff {
            return Err((BadTccb::Length, 7));
        }
        if trailer[..4] != [0; 4] {
            return Err((BadTccb::Trailer, bytes.len() - TCAT_BYTES));
        }
        let tccb = Tccb { service, transfer_bytes: u32_at(trailer, 4), commands };
        tccb.check()?;
        Ok(tccb)
    }

    /// The first command and its parameters, unchecked: a hint of what is to come.
    #[inline]
    pub fn foresee(bytes: &'a [u8]) -> Option<Dcw<'a>> {
        let (header, control) = bytes.get(TCAH_BYTES..)?.split_first_chunk::<DCW_BYTES>()?;
        let control = control.get(..usize::from(header[3]))?;
        Some(Dcw { command: header[0], count: u32_at(header, 4), control })
    }

    /// Checks the chain of DCWs: the last, and only that, has no chain flag.
    fn check(&self) -> Result<(), (BadTccb, usize)> {
        let (mut at, mut number) = (0, 0);
        loop {
            let bad = Err((BadTccb::Dcw, TCAH_BYTES + at));
            let Some(header) = self.commands.get(at..at + DCW_BYTES) else { return bad };
            let control = usize::from(header[3]).next_multiple_of(4);
            number += 1;
            if header[1] & !CHAIN != 0 || header[2] != 0 || number > DCWS_MAX {
                return bad;
            }
            let next = at + DCW_BYTES + control;
            if next > self.commands.len() {
                return bad;
            }
            at = next;
            if header[1] & CHAIN == 0 {
                return if at == self.commands.len() { Ok(()) } else { bad };
            }
        }
    }

    /// The commands, in order, each with where its DCW is.
    pub fn dcws(&self) -> impl Iterator<Item = (usize, Dcw<'a>)> {
        let commands = self.commands;
        let mut at = 0;
        std::iter::from_fn(move || {
            // The chain was checked: there is a header, with all of its control data, or nothing.
            let header = commands.get(at..at + DCW_BYTES)?;
            let bytes = usize::from(header[3]);
            let here = at;
            at += DCW_BYTES + bytes.next_multiple_of(4);
            let control = &commands[here + DCW_BYTES..][..bytes];
            let dcw = Dcw { command: header[0], count: u32_at(header, 4), control };
            Some((TCAH_BYTES + here, dcw))
        })
    }
}

/// Writes a TCCB.
///
/// # Panics
/// If there are no commands, more than [`DCWS_MAX`], or more control data than a TCCB holds.
pub fn emit(service: Service, dcws: &[Dcw<'_>], transfer_bytes: u32) -> Vec<u8> {
    assert!((1..=DCWS_MAX).contains(&dcws.len()), "a TCCB has 1 to {DCWS_MAX} commands");
    let mut bytes = Vec::with_capacity(TCCB_BYTES_MAX);
    bytes.resize(TCAH_BYTES, 0);
    for (index, dcw) in dcws.iter().enumerate() {
        let chain = if index + 1 < dcws.len() { CHAIN } else { 0 };
        let control = u8::try_from(dcw.control.len()).expect("control data of 255 bytes at most");
        bytes.extend([dcw.command, chain, 0, control]);
        bytes.extend(dcw.count.to_be_bytes());
        bytes.extend(dcw.control);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes[0] = FORMAT;
    let length = bytes.len() - TCAH_BYTES + LENGTH_BIAS;
    bytes[7] = u8::try_from(length).expect("commands of 243 bytes at most");
    bytes[8..10].copy_from_slice(&service.code().to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(transfer_bytes.to_be_bytes());
    bytes
}

/// The count of a TCAT: all data of a direction, to a multiple of 4, and a check word.
pub fn transfer_bytes(data_bytes: u32) -> u32 {
    if data_bytes == 0 { 0 } else { data_bytes.next_multiple_of(4) + 4 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tccb_is_what_the_picture_says() {
        let dcws = [
            Dcw { command: 0x63, count: 0, control: &[1, 2, 3, 4, 5] },
            Dcw { command: 0x86, count: 0x1000, control: &[] },
        ];
        #[rustfmt::skip]
        let bytes = [
            0x7f, 0, 0, 0, 0, 0, 0, 36, 0x1f, 0xfe, 0, 0, 0, 0, 0, 0,
            0x63, 0x40, 0, 5, 0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0,
            0x86, 0, 0, 0, 0, 0, 0x10, 0,
            0, 0, 0, 0, 0, 0, 0x10, 4,
        ];
        let count = transfer_bytes(0x1000);
        assert_eq!(emit(Service::Commands, &dcws, count), bytes);
        let tccb = Tccb::parse(&bytes).unwrap();
        assert_eq!((tccb.service, tccb.transfer_bytes), (Service::Commands, 0x1004));
        let found: Vec<_> = tccb.dcws().collect();
        assert_eq!(found, [(16, dcws[0]), (32, dcws[1])]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dcw = Dcw { command: 0x86, count: 1, control: &[9; 8] };
        let good = emit(Service::Commands, &[dcw], 8);
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Tccb::parse(&bytes).map(drop)
        };
        assert_eq!(with(0, 0x7e), Err((BadTccb::Header, 0)));
        assert_eq!(with(9, 0x00), Err((BadTccb::Header, 8)));
        assert_eq!(with(7, 0x04), Err((BadTccb::Length, 7)));
        assert_eq!(with(17, 0x40), Err((BadTccb::Dcw, 32)), "a chain that leads nowhere");
        assert_eq!(with(17, 0x80), Err((BadTccb::Dcw, 16)));
        assert_eq!(with(19, 0xff), Err((BadTccb::Dcw, 16)));
        assert_eq!(with(33, 0x01), Err((BadTccb::Trailer, 32)));
        assert_eq!(Tccb::parse(&good[..20]), Err((BadTccb::Length, 0)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_tccb_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..400), fix: bool) {
            if fix && bytes.len() >= 24 {
                let keep = bytes.len() & !3;
                bytes.truncate(keep);
                let length = (keep - TCAH_BYTES - TCAT_BYTES + LENGTH_BIAS) as u8;
                bytes[..16].copy_from_slice(&[0x7f, 0, 0, 0, 0, 0, 0, length, 0x1f, 0xfe, 0, 0, 0, 0, 0, 0]);
                bytes[keep - 8..keep - 4].fill(0);
            }
            let foreseen = Tccb::foresee(&bytes);
            if let Ok(tccb) = Tccb::parse(&bytes) {
                let dcws: Vec<_> = tccb.dcws().collect();
                prop_assert_eq!(foreseen, Some(dcws[0].1));
                prop_assert!((1..=DCWS_MAX).contains(&dcws.len()));
            }
        }
    }
}
