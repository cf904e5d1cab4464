//! Names of guests, as a mainframe has them.

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
        let length = bytes.iter().position(|byte| *byte == b' ').unwrap_or(NAME_BYTES);
        let (name, blanks) = bytes.split_at(length);
        let allowed = |byte: &u8| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'$' | b'#' | b'@' | b'_' | b'-');
        let is_name = length > 0 && name.iter().all(allowed);
        (is_name && blanks.iter().all(|byte| *byte == b' ')).then_some(Name { bytes })
    }

    /// The name without blanks.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes).expect("a name is ASCII").trim_ascii_end()
    }
}

impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Name, NoName> {
        let mut bytes = [b' '; NAME_BYTES];
        let fits = bytes.get_mut(..text.len());
        fits.map(|target| target.copy_from_slice(text.as_bytes()))
            .filter(|()| !text.contains(' '))
            .and_then(|()| Name::parse(bytes))
            .ok_or_else(|| NoName(text.chars().take(64).collect()))
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
    }
}
