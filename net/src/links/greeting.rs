//! What the two ends of a line say to each other in the user data of the connection.
//!
//! ```text
//! netiucv's   | name, or 0, in EBCDIC [8] | "0       " in EBCDIC [8]              |
//! wide        | name, or 0, in EBCDIC [8] | "WIDE" in EBCDIC [4] | bytes_max u32  |
//! ```
//!
//! Texts are filled up with blanks, and numbers are in network order. The driver of Linux sends `0` twice unless its user has
//! given it a name, and refuses a connection with other data. The end that connects offers; the end that accepts says what it takes, and
//! that is what both use.

use fabric::name::LanName;
use fabric::path::{USER_DATA_BYTES, UserData};

use super::framing::{Framing, WIDE_BYTES_MAX};

/// (MSGLIM) Messages that an end may have outstanding. A driver has one.
pub const MESSAGES_MAX: u32 = 50;

/// `0       ` in EBCDIC.
const NONE: [u8; 8] = [0xf0, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40];

/// `WIDE` in EBCDIC.
const WIDE: [u8; 4] = [0xe6, 0xc9, 0xc4, 0xc5];

/// Bytes of the longest message that an end with the wide framing takes at least: one packet of 64 KiB.
const WIDE_BYTES_MIN: usize = Framing::Wide.message_bytes(65_535);

/// The user data of a line's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The name of the line in EBCDIC, which tells lines between the same two guests from each other.
    pub(super) name: [u8; 8],
    /// Bytes of the longest message of the wide framing that the sender of this takes. None: netiucv's framing.
    pub wide_bytes_max: Option<usize>,
}

impl Greeting {
    /// The greeting of the line of this name, or of one without.
    pub fn new(name: Option<LanName>, wide_bytes_max: Option<usize>) -> Greeting {
        Greeting { name: name.map_or(NONE, in_ebcdic), wide_bytes_max }
    }

    /// Reads the user data of a connection. None: that is no line's.
    pub fn parse(data: UserData) -> Option<Greeting> {
        let (name, rest) = data.split_first_chunk::<8>()?;
        if rest == NONE {
            return Some(Greeting { name: *name, wide_bytes_max: None });
        }
        let bytes_max = rest.strip_prefix(&WIDE)?.first_chunk()?;
        let bytes_max = u32::from_be_bytes(*bytes_max) as usize;
        let is_fit = bytes_max >= WIDE_BYTES_MIN;
        // Who takes more than this end ever sends may do so.
        is_fit
            .then(|| Greeting { name: *name, wide_bytes_max: Some(bytes_max.min(WIDE_BYTES_MAX)) })
    }

    /// The user data that says this.
    pub fn data(&self) -> UserData {
        let mut data = [0; USER_DATA_BYTES];
        data[..8].copy_from_slice(&self.name);
        match self.wide_bytes_max {
            None => data[8..].copy_from_slice(&NONE),
            Some(bytes_max) => {
                data[8..12].copy_from_slice(&WIDE);
                // No more than `WIDE_BYTES_MAX` is ever said.
                data[12..].copy_from_slice(&(bytes_max.min(WIDE_BYTES_MAX) as u32).to_be_bytes());
            }
        }
        data
    }

    /// Returns true if this is of the same line.
    pub fn is_of_line(&self, other: &Greeting) -> bool {
        self.name == other.name
    }
}

/// A name in EBCDIC, in capitals, as the driver of Linux has it.
fn in_ebcdic(name: LanName) -> [u8; 8] {
    name.bytes().map(|byte| match byte.to_ascii_uppercase() {
        letter @ b'A'..=b'I' => letter - b'A' + 0xc1,
        letter @ b'J'..=b'R' => letter - b'J' + 0xd1,
        letter @ b'S'..=b'Z' => letter - b'S' + 0xe2,
        digit @ b'0'..=b'9' => digit - b'0' + 0xf0,
        b'-' => 0x60,
        b'_' => 0x6d,
        // A blank: names have nothing else.
        _ => 0x40,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_without_a_name_greets_as_netiucv_does() {
        let data = [
            0xf0, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, //
            0xf0, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40,
        ];
        let greeting = Greeting::new(None, None);
        assert_eq!(greeting.data(), data);
        assert_eq!(Greeting::parse(data), Some(greeting));
    }

    #[test]
    fn name_and_wide_framing_are_written_and_read() {
        let data = [
            0xd3, 0xc9, 0xd5, 0xc5, 0x60, 0xf9, 0x40, 0x40, // LINE-9
            0xe6, 0xc9, 0xc4, 0xc5, 0x00, 0x10, 0x00, 0x04, // WIDE, 1 MiB and a header
        ];
        let greeting = Greeting::new(Some("line-9".parse().unwrap()), Some((1 << 20) + 4));
        assert_eq!(greeting.data(), data);
        assert_eq!(Greeting::parse(data), Some(greeting));
        let other = Greeting::new(Some("line-8".parse().unwrap()), None);
        assert!(greeting.is_of_line(&Greeting { wide_bytes_max: None, ..greeting }));
        assert!(!greeting.is_of_line(&other) && !greeting.is_of_line(&Greeting::new(None, None)));
    }

    #[test]
    fn greeting_of_something_else_is_none() {
        let none = Greeting::new(None, None).data();
        let wide = |bytes: u32| {
            let mut data = none;
            data[8..12].copy_from_slice(&WIDE);
            data[12..].copy_from_slice(&bytes.to_be_bytes());
            Greeting::parse(data)
        };
        assert_eq!(Greeting::parse([0; USER_DATA_BYTES]), None);
        assert_eq!(Greeting::parse(*b"0       0       "), None);
        assert_eq!(Greeting::parse([&none[..15], &[0xf0]].concat().try_into().unwrap()), None);
        // A message has to take a packet of 65,535 bytes.
        assert_eq!(wide(0), None);
        assert_eq!(wide(65_538), None);
        assert_eq!(wide(65_539).unwrap().wide_bytes_max, Some(65_539));
        assert_eq!(wide(u32::MAX).unwrap().wide_bytes_max, Some(WIDE_BYTES_MAX));
    }
}
