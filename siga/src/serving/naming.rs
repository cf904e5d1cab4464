//! What a guest and a server say to each other in the user data of a connection.

use crate::UserData;

/// Letters of the name of what a guest opens.
pub(crate) const NAME_BYTES: usize = 8;

/// A name as it goes with a connection, with zeros behind. None if it is too long, or empty.
pub(crate) fn eight(name: &str) -> Option<[u8; NAME_BYTES]> {
    let mut bytes = [0; NAME_BYTES];
    if name.is_empty() || name.len() > NAME_BYTES {
        return None;
    }
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Some(bytes)
}

/// The reason why a server does not let a guest open something, in the user data with which it refuses the connection.
///
/// ```text
/// | why 8 | 7 letters 56 | limit 64 |     little-endian
/// ```
///
/// The letters say which kind of server it is, and tell it from what others give with a refusal. Each kind has its own reasons. The limit
/// is 0 unless one is the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) why: u8,
    pub(crate) most: u64,
}

impl Refusal {
    /// Returns the user data of a refusal by a server of this kind.
    pub(crate) fn emit(self, letters: [u8; 7]) -> UserData {
        let mut bytes = [0; 16];
        bytes[0] = self.why;
        bytes[1..8].copy_from_slice(&letters);
        bytes[8..].copy_from_slice(&self.most.to_le_bytes());
        bytes
    }

    /// Reads user data; none if a server of another kind has given them.
    pub(crate) fn parse(bytes: &UserData, letters: [u8; 7]) -> Option<Refusal> {
        let most = u64::from_le_bytes(*bytes.last_chunk().expect("8 of 16"));
        (bytes[1..8] == letters).then_some(Refusal { why: bytes[0], most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_what_the_picture_says() {
        let refusal = Refusal { why: 3, most: 0x0102 };
        let bytes = *b"\x03SIGADSK\x02\x01\0\0\0\0\0\0";
        assert_eq!(refusal.emit(*b"SIGADSK"), bytes);
        assert_eq!(Refusal::parse(&bytes, *b"SIGADSK"), Some(refusal));
        assert_eq!(Refusal::parse(&bytes, *b"SIGACTC"), None);
    }

    #[test]
    fn name_has_one_to_eight_letters() {
        assert_eq!(eight("LINE0"), Some(*b"LINE0\0\0\0"));
        assert_eq!(eight("LINE0123"), Some(*b"LINE0123"));
        assert_eq!((eight(""), eight("LINE01234")), (None, None));
    }
}
