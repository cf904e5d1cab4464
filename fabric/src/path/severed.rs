//! The end of a path, and why.

use crate::queue::Violation;

/// Bytes of user data that may go with the end.
pub const END_DATA_BYTES: usize = 16;

/// The path has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("severed: {reason}")]
pub struct Severed {
    /// Why.
    pub reason: Reason,
    /// What the peer had to say about it, if it ended in good order.
    pub data: [u8; END_DATA_BYTES],
}

/// Why a path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The peer ended it in good order.
    #[error("the peer ended the path")]
    Peer,
    /// We ended it.
    #[error("this side ended the path")]
    Ours,
    /// The peer is gone, without a word.
    #[error("the peer is gone")]
    Gone,
    /// The peer did what no peer may do, and we ended it.
    #[error("the peer broke the rules: {0}")]
    Violation(Violation),
    /// The peer says that we did what no peer may do.
    #[error("the peer says that this side broke the rules")]
    Accused,
    /// There is no memory left to receive into.
    #[error("no memory is left to receive into")]
    NoMemory,
    /// The caller is a forked child of the process that has the path.
    #[error("this process is a forked child; the path belongs to its parent")]
    Forked,
}

impl Severed {
    /// Whether nothing that the peer has handed over is to be had any more.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self.reason, Reason::Peer | Reason::Gone | Reason::Accused)
    }

    pub(super) fn because(reason: Reason) -> Severed {
        Severed { reason, data: [0; END_DATA_BYTES] }
    }
}

/// Why a side halts, as it says so in its control line and in the last buffer.
///
/// ```text
/// word 0  code: 1 in good order, 2 the peer broke the rules; words 1, 2  user data
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Halt {
    pub(super) code: HaltCode,
    pub(super) data: [u8; END_DATA_BYTES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum HaltCode {
    GoodOrder = 1,
    PeerBrokeRules = 2,
}

impl Halt {
    /// Puts the words together.
    pub(super) fn words(self) -> [u64; 3] {
        let [low, high] = *self.data.as_chunks::<8>().0 else { unreachable!("two words") };
        [self.code as u64, u64::from_le_bytes(low), u64::from_le_bytes(high)]
    }

    /// Takes the words apart; `None` while the side has not ended. A code we do not know counts as good
    /// order: a peer may end its side whenever it likes.
    pub(super) fn parse(words: [u64; 3]) -> Option<Halt> {
        let code = match words[0] {
            0 => return None,
            2 => HaltCode::PeerBrokeRules,
            _ => HaltCode::GoodOrder,
        };
        let mut data = [0; END_DATA_BYTES];
        data[..8].copy_from_slice(&words[1].to_le_bytes());
        data[8..].copy_from_slice(&words[2].to_le_bytes());
        Some(Halt { code, data })
    }

    /// What the end is to the other side.
    pub(super) fn severed(self) -> Severed {
        let reason = match self.code {
            HaltCode::GoodOrder => Reason::Peer,
            HaltCode::PeerBrokeRules => Reason::Accused,
        };
        Severed { reason, data: self.data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halt_is_what_the_picture_says() {
        let halt = Halt { code: HaltCode::GoodOrder, data: *b"0123456789abcdef" };
        let words = [1, 0x3736_3534_3332_3130, 0x6665_6463_6261_3938];
        assert_eq!(halt.words(), words);
        assert_eq!(Halt::parse(words), Some(halt));
        assert_eq!(Halt::parse([0, 1, 2]), None);
        assert_eq!(Halt::parse([99, 0, 0]).map(|halt| halt.code), Some(HaltCode::GoodOrder));
    }
}
