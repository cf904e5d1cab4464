//! The transport-control word: where the parts of a transport mode operation are.
//!
//! ```text
//! byte  0  | format 2 | flags 22 bits, see below | 0 |
//! byte  4  | 0 8 | TCCB length 6, in words, less 5 | R | W | 0 16 |
//! byte  8  | output address 64 | input address 64 | TSB address 64 | TCCB address 64 |
//! byte 40  | output count 32 | input count 32 | 0, 3 words | address of an interrogating TCW 32 |
//! ```
//!
//! Flags are bits 8 to 31 of the first word: bit 5 of them input by TIDAWs, bit 6 TCCB by TIDAWs, bit 7 output by TIDAWs. On 64 bytes.
//! Linux, `arch/s390/include/asm/fcx.h`.

use super::{u32_at, u64_at};

/// Bytes of a TCW, which lies on a multiple of that.
pub const TCW_BYTES: usize = 64;
/// Bytes from the start of a TCW that are prefetched: it, and most TCCBs, which mostly lie behind it.
pub const PREFETCH_BYTES: usize = TCW_BYTES + 128;

const INPUT_TIDA: u32 = 1 << (23 - 5);
const TCCB_TIDA: u32 = 1 << (23 - 6);
const OUTPUT_TIDA: u32 = 1 << (23 - 7);

/// A stream of bytes in storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Where it is.
    pub address: u64,
    /// Bytes.
    pub count: u32,
    /// The address is that of a list of TIDAWs.
    pub is_indirect: bool,
}

/// A transport-control word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcw {
    /// To the device, if there is any.
    pub output: Option<Stream>,
    /// From the device, if there is any.
    pub input: Option<Stream>,
    /// Where the status goes.
    pub tsb: u64,
    /// Where the commands are.
    pub tccb: u64,
    /// Bytes of the commands: a multiple of 4.
    pub tccb_bytes: u32,
    /// The address of the commands is that of a list of TIDAWs.
    pub tccb_is_indirect: bool,
    /// A TCW that interrogates this one's operation.
    pub interrogate: u32,
}

impl Tcw {
    /// Takes the bytes apart. None if a bit is set that must not be.
    pub fn parse(bytes: &[u8; TCW_BYTES]) -> Option<Tcw> {
        let (first, second) = (u32_at(bytes, 0), u32_at(bytes, 4));
        if first & !(INPUT_TIDA | TCCB_TIDA | OUTPUT_TIDA) != 0 || second & 0xff00_ffff != 0 {
            return None;
        }
        if bytes[48..60] != [0; 12] {
            return None;
        }
        let stream = |is_there: bool, address, count, tida| {
            let is_indirect = first & tida != 0;
            let of = |at| Stream {
                address: u64_at(bytes, at),
                count: u32_at(bytes, count),
                is_indirect,
            };
            is_there.then(|| of(address))
        };
        Some(Tcw {
            output: stream(second & 1 << 16 != 0, 8, 40, OUTPUT_TIDA),
            input: stream(second & 1 << 17 != 0, 16, 44, INPUT_TIDA),
            tsb: u64_at(bytes, 24),
            tccb: u64_at(bytes, 32),
            tccb_bytes: ((second >> 18 & 0x3f) + 5) * 4,
            tccb_is_indirect: first & TCCB_TIDA != 0,
            interrogate: u32_at(bytes, 60),
        })
    }

    /// The bytes.
    ///
    /// # Panics
    /// If the length of the TCCB is not 20 to 272 and a multiple of 4.
    pub fn emit(self) -> [u8; TCW_BYTES] {
        let words = self.tccb_bytes / 4;
        assert!(
            self.tccb_bytes.is_multiple_of(4) && (5..5 + 64).contains(&words),
            "a TCCB's length"
        );
        let flag = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let indirect = |stream: Option<Stream>| stream.is_some_and(|stream| stream.is_indirect);
        let first = flag(indirect(self.input), INPUT_TIDA)
            | flag(self.tccb_is_indirect, TCCB_TIDA)
            | flag(indirect(self.output), OUTPUT_TIDA);
        let second = (words - 5) << 18
            | flag(self.input.is_some(), 1 << 17)
            | flag(self.output.is_some(), 1 << 16);
        let (output, input) = (self.output.unwrap_or_default(), self.input.unwrap_or_default());
        let mut bytes = [0; TCW_BYTES];
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..8].copy_from_slice(&second.to_be_bytes());
        for (at, address) in
            [(8, output.address), (16, input.address), (24, self.tsb), (32, self.tccb)]
        {
            bytes[at..at + 8].copy_from_slice(&address.to_be_bytes());
        }
        bytes[40..44].copy_from_slice(&output.count.to_be_bytes());
        bytes[44..48].copy_from_slice(&input.count.to_be_bytes());
        bytes[60..].copy_from_slice(&self.interrogate.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcw_is_what_the_picture_says() {
        let input = Stream { address: 0x1_0000_4000, count: 0x2000, is_indirect: true };
        let tcw =
            Tcw { input: Some(input), tsb: 0x100, tccb: 0x200, tccb_bytes: 96, ..Tcw::default() };
        let mut bytes = [0; TCW_BYTES];
        bytes[..8].copy_from_slice(&[0, 4, 0, 0, 0, 0x4e, 0, 0]);
        bytes[16..24].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0x40, 0]);
        (bytes[30], bytes[38], bytes[46]) = (1, 2, 0x20);
        assert_eq!(tcw.emit(), bytes);
        assert_eq!(Tcw::parse(&bytes), Some(tcw));
    }

    #[test]
    fn reserved_bits_are_refused() {
        for (at, bit) in [(0, 0x40), (1, 0x08), (4, 1), (6, 1), (7, 1), (50, 1)] {
            let mut bytes = [0; TCW_BYTES];
            bytes[at] = bit;
            assert_eq!(Tcw::parse(&bytes), None, "{at}");
        }
    }
}
