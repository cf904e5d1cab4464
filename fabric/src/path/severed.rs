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
    /// This process lacks what receiving takes, and we ended it.
    #[error("{0}, and without it nothing can be received")]
    Lacking(Lack),
    /// The peer lacks what receiving takes, and ended it.
    #[error("the peer has no memory or no descriptors left to receive with")]
    PeerLacking,
    /// The caller is a forked child of the process that has the path.
    #[error("this process is a forked child; the path belongs to its parent")]
    Forked,
}

/// What this process, its user or the path has no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Lack {
    /// Memory, or mappings of it.
    #[error("this process has no memory, or no mappings of it, left")]
    Memory,
    /// Descriptors of this process, or of the machine.
    #[error("this process has no descriptors left")]
    Descriptors,
    /// Descriptors that are on their way between processes: so many of this user's are that the kernel
    /// allows no more.
    #[error("too many descriptors of this user are on their way to other processes")]
    Passing,
    /// Storage that this side may lend over the path.
    #[error("this side of the path may lend no more than {most} bytes of storage")]
    Storage {
        /// The limit.
        most: u64,
    },
    /// Storages that this side may lend over the path, whatever their size.
    #[error("this side of the path may lend no more than {most} storages")]
    Segments {
        /// The limit.
        most: u64,
    },
}

impl Lack {
    /// What is missing when the kernel refuses storage for this reason.
    pub(super) fn of(error: &std::io::Error) -> Lack {
        match os::memory::shortage(error) {
            Some(os::memory::Shortage::Descriptors) => Lack::Descriptors,
            _ => Lack::Memory,
        }
    }
}

impl Severed {
    /// Whether nothing that the peer has handed over is to be had any more.
    pub(super) fn is_final(&self) -> bool {
        use Reason::{Accused, Gone, Peer, PeerLacking};
        !matches!(self.reason, Peer | Gone | Accused | PeerLacking)
    }

    pub(super) fn because(reason: Reason) -> Severed {
        Severed { reason, data: [0; END_DATA_BYTES] }
    }
}

/// Bytes in which a side says why it halts.
pub(super) const HALT_BYTES: usize = 24;

/// Why a side halts, as it says so in its control line and in the last buffer.
///
/// ```text
/// word 0  code: 1 in good order, 2 the peer broke the rules, 3 without memory or descriptors
/// words 1, 2  user data
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
    Lacking = 3,
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
            3 => HaltCode::Lacking,
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
            HaltCode::Lacking => Reason::PeerLacking,
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
