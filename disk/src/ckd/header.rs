//! The header of a volume file: its first 512 bytes.
//!
//! ```text
//! byte  0  | CKD_P370, 8 letters | heads 32 | track bytes 32 | device type 8 | file 8 | last cylinder 16 | serial 12 | 0 ... |
//! ```
//!
//! Numbers are little-endian. The file's number is 0 if the volume has one file. Of several, each but the last names its last
//! cylinder, and the last has 0. The device type is the low byte of the model's number: 90 for a 3390. Confirmed with files of
//! Hercules 3.13.

use super::model::{DEVICE_TYPE, HEADS, TRACK_BYTES};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 512;

const PLAIN: &[u8; 8] = b"CKD_P370";
const COMPRESSED: [&[u8; 8]; 4] = [b"CKD_C370", b"CKD_S370", b"CKD_C064", b"CKD_S064"];

/// The header of a volume file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Which file of a volume of several, from 1. 0: the volume has one file.
    pub file: u8,
    /// The last cylinder in the file, of all files but the last.
    pub last_cylinder: u16,
    /// The serial number of the device, in ASCII.
    pub serial: [u8; 12],
}

/// Why a header is not that of a volume file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadHeader {
    /// The letters at the start are others.
    #[error("no volume file: it does not begin with CKD_P370")]
    Kind,
    /// A compressed file or a shadow file.
    #[error(
        "a compressed volume file: make a plain one with Hercules's `dasdcopy -o CKD SOURCE TARGET`"
    )]
    Compressed,
    /// Another model.
    #[error(
        "a volume of device type {device_type:#04x}, {heads} heads and {track_bytes} bytes a track: must be a 3390 with 15 and 56832"
    )]
    Model {
        /// The low byte of the device type.
        device_type: u8,
        /// Heads.
        heads: u32,
        /// Bytes of a track.
        track_bytes: u32,
    },
}

impl Header {
    /// Takes the bytes apart.
    ///
    /// # Errors
    /// [`BadHeader`].
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, BadHeader> {
        let kind = bytes.first_chunk::<8>().expect("eight of 512");
        if COMPRESSED.contains(&kind) {
            return Err(BadHeader::Compressed);
        }
        if kind != PLAIN {
            return Err(BadHeader::Kind);
        }
        let number =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (heads, track_bytes, device_type) = (number(8), number(12), bytes[16]);
        let is_ours = heads == HEADS && track_bytes as usize == TRACK_BYTES;
        if !is_ours || device_type != DEVICE_TYPE as u8 {
            return Err(BadHeader::Model { device_type, heads, track_bytes });
        }
        Ok(Header {
            file: bytes[17],
            last_cylinder: u16::from_le_bytes([bytes[18], bytes[19]]),
            serial: bytes[20..32].try_into().expect("12 bytes"),
        })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(PLAIN);
        bytes[8..12].copy_from_slice(&HEADS.to_le_bytes());
        bytes[12..16].copy_from_slice(&(TRACK_BYTES as u32).to_le_bytes());
        bytes[16] = DEVICE_TYPE as u8;
        bytes[17] = self.file;
        bytes[18..20].copy_from_slice(&self.last_cylinder.to_le_bytes());
        bytes[20..32].copy_from_slice(&self.serial);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_what_the_picture_says() {
        let header = Header { file: 1, last_cylinder: 2518, serial: *b"000000012345" };
        let bytes = header.emit();
        let first = *b"CKD_P370\x0f\0\0\0\0\xde\0\0\x90\x01\xd6\x09000000012345";
        assert_eq!(bytes[..32], first);
        assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn other_files_are_refused_by_what_they_are() {
        let mut bytes = Header::default().emit();
        bytes[4] = b'C';
        assert_eq!(Header::parse(&bytes), Err(BadHeader::Compressed));
        bytes[4] = b'Q';
        assert_eq!(Header::parse(&bytes), Err(BadHeader::Kind));
        let mut bytes = Header::default().emit();
        bytes[16] = 0x80;
        let bad = BadHeader::Model { device_type: 0x80, heads: 15, track_bytes: 56832 };
        assert_eq!(Header::parse(&bytes), Err(bad));
    }
}
