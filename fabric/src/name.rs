//! Names of guests, as a mainframe has them, and of LANs, as Linux has them.

use std::fmt;
use std::str::FromStr;

/// Characters of the longest name.
pub const NAME_BYTES: usize = 8;

/// The name of a guest: one to eight of `A` to `Z`, `0` to `9`, `$`, `#`, `@`, `_`, `-`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Filled up with blanks.
    bytes: [u8; NAME_BYTES],
}

/// Not the name of a guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name: must be 1 to 8 of A-Z 0-9 $ # @ _ -")]
pub struct NoName(pub String);

impl Name {
    /// The name in eight bytes, filled up with blanks.
    pub fn bytes(self) -> [u8; NAME_BYTES] {
        self.bytes
    }

    /// Reads a name from eight bytes; `None` if they are none.
    pub fn parse(bytes: [u8; NAME_BYTES]) -> Option<Name> {
        let allowed = |byte: &u8| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'$' | b'#' | b'@' | b'_' | b'-');
        is_name(&bytes, allowed).then_some(Name { bytes })
    }

    /// The name without blanks.
    pub fn as_str(&self) -> &str {
        without_blanks(&self.bytes)
    }
}

impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Name, NoName> {
        let name = filled_up(text).and_then(Name::parse);
        name.ok_or_else(|| NoName(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

/// The name of a LAN: one to eight of `a` to `z`, `0` to `9`, `_`, `-`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LanName {
    /// Filled up with blanks.
    bytes: [u8; NAME_BYTES],
}

/// Not the name of a LAN.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a LAN: must be 1 to 8 of a-z 0-9 _ -")]
pub struct NoLanName(pub String);

impl LanName {
    /// The name in eight bytes, filled up with blanks.
    pub fn bytes(self) -> [u8; NAME_BYTES] {
        self.bytes
    }

    /// Reads a name from eight bytes; `None` if they are none.
    pub fn parse(bytes: [u8; NAME_BYTES]) -> Option<LanName> {
        let allowed = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        is_name(&bytes, allowed).then_some(LanName { bytes })
    }

    /// The name without blanks.
    pub fn as_str(&self) -> &str {
        without_blanks(&self.bytes)
    }
}

impl FromStr for LanName {
    type Err = NoLanName;

    fn from_str(text: &str) -> Result<LanName, NoLanName> {
        let name = filled_up(text).and_then(LanName::parse);
        name.ok_or_else(|| NoLanName(text.chars().take(64).collect()))
    }
}

impl fmt::Display for LanName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl fmt::Debug for LanName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

/// Whether the bytes are a name of these characters, filled up with blanks.
fn is_name(bytes: &[u8; NAME_BYTES], allowed: impl Fn(&u8) -> bool) -> bool {
    let length = bytes.iter().position(|byte| *byte == b' ').unwrap_or(NAME_BYTES);
    let (name, blanks) = bytes.split_at(length);
    length > 0 && name.iter().all(allowed) && blanks.iter().all(|byte| *byte == b' ')
}

/// A text filled up with blanks; none if it is too long, or has a blank.
fn filled_up(text: &str) -> Option<[u8; NAME_BYTES]> {
    let mut bytes = [b' '; NAME_BYTES];
    bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    (!text.contains(' ')).then_some(bytes)
}

fn without_blanks(bytes: &[u8; NAME_BYTES]) -> &str {
    std::str::from_utf8(bytes).expect("a name is ASCII").trim_ascii_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["A", "SERVER", "TCPIP-01", "$#@_-9Z"] {
            let name: Name = good.parse().unwrap();
            assert_eq!(name.as_str(), good);
            assert_eq!(Name::parse(name.bytes()), Some(name));
        }
        for bad in ["", " ", "server", "TOO-LONG-", "A B", "A ", " A", "Ä", "A\0"] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
        assert_eq!(Name::parse(*b"A B     "), None);
        assert_eq!(Name::parse(*b"        "), None);
        assert_eq!(Name::parse(*b"AB\0     "), None);
        assert_eq!("hs0".parse::<LanName>().unwrap().to_string(), "hs0");
        for bad in ["", "HS0", "a b", "too-long-", "$", "hs.0"] {
            assert!(bad.parse::<LanName>().is_err(), "{bad:?}");
        }
    }
}
