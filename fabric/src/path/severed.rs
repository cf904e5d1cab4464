//! The end of a path, and why.

use crate::queue::Violation;

/// Bytes of user data that go with a connection, and with the end of a path.
pub const USER_DATA_BYTES: usize = 16;

/// A few bytes that the users of a path exchange when the path is made and when it ends, as IUCV has them.
pub type UserData = [u8; USER_DATA_BYTES];

/// User data of a user that has none to send.
pub const NO_DATA: UserData = [0; USER_DATA_BYTES];

/// Bytes of user data that go with the end.
pub const END_DATA_BYTES: usize = USER_DATA_BYTES;

/// Words of the reason for which a side ends.
pub(super) const HALT_WORDS: usize = 1 + USER_DATA_BYTES / 8;

/// The path has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("severed: {reason}")]
pub struct Severed {
    /// Why.
    pub reason: Reason,
    /// The data that the peer passed to its verb, if it ended in good order.
    pub data: UserData,
}

/// Why a path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
    ViolationReported,
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

impl From<Violation> for Reason {
    fn from(violation: Violation) -> Reason {
        Reason::Violation(violation)
    }
}

/// What this process, its user or the path has no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Lack {
    /// Memory, or mappings of it.
    #[error("this process has no memory, or no mappings of it, left")]
    Memory,
    /// Descriptors of this process, or of the machine.
    #[error("this process has no descriptors left")]
    Descriptors,
    /// Descriptors that are on their way between processes: so many of this user's are that the kernel allows
    /// no more, or the other side leaves so many rings unheard that none can be passed behind them.
    #[error("too many descriptors of this user, or rings, are on their way to other processes")]
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
    /// Storage that the peer may lend: this side still views too much that the peer has retired.
    #[error(
        "this side still views storage that the peer has retired, and the limit on the peer's storage leaves no more"
    )]
    Views,
}

impl Lack {
    /// What is missing when the kernel refuses storage or a descriptor for this reason.
    pub fn of(error: &std::io::Error) -> Lack {
        match os::memory::shortage(error) {
            Some(os::memory::Shortage::Descriptors) => Lack::Descriptors,
            _ => Lack::Memory,
        }
    }
}

impl Severed {
    /// Whether nothing that the peer has handed over is to be had any more.
    pub fn is_final(&self) -> bool {
        use Reason::{Gone, Peer, PeerLacking, ViolationReported};
        !matches!(self.reason, Peer | Gone | ViolationReported | PeerLacking)
    }

    pub(super) fn because(reason: Reason) -> Severed {
        Severed { reason, data: NO_DATA }
    }

    /// The words that a side stores when it ends for this reason, in its control line and in the last buffer.
    ///
    /// ```text
    /// word 0  code: 1 in good order, 2 the peer broke the rules, 3 without memory or descriptors
    /// words 1, 2  user data
    /// ```
    pub(super) fn words(&self) -> [u64; HALT_WORDS] {
        let code = match self.reason {
            Reason::Violation(_) => 2,
            Reason::Lacking(_) => 3,
            _ => 1,
        };
        let [low, high] = *self.data.as_chunks::<8>().0 else { unreachable!("two words") };
        [code, u64::from_le_bytes(low), u64::from_le_bytes(high)]
    }

    /// The end of the other side, by its words; `None` while it has not ended. A code we do not know counts
    /// as good order: a peer may end its side whenever it likes.
    pub(super) fn parse(words: [u64; HALT_WORDS]) -> Option<Severed> {
        let reason = match words[0] {
            0 => return None,
            2 => Reason::ViolationReported,
            3 => Reason::PeerLacking,
            _ => Reason::Peer,
        };
        let mut data = NO_DATA;
        data[..8].copy_from_slice(&words[1].to_le_bytes());
        data[8..].copy_from_slice(&words[2].to_le_bytes());
        Some(Severed { reason, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_what_the_picture_says() {
        let data = *b"0123456789abcdef";
        let [low, high] = [0x3736_3534_3332_3130, 0x6665_6463_6261_3938];
        for (ours, code, theirs) in [
            (Reason::Ours, 1, Reason::Peer),
            (Reason::Violation(Violation::Count), 2, Reason::ViolationReported),
            (Reason::Lacking(Lack::Memory), 3, Reason::PeerLacking),
        ] {
            assert_eq!(Severed { reason: ours, data }.words(), [code, low, high]);
            assert_eq!(Severed::parse([code, low, high]), Some(Severed { reason: theirs, data }));
        }
        assert_eq!(Severed::parse([0, 1, 2]), None);
        assert_eq!(Severed::parse([99, 0, 0]), Some(Severed::because(Reason::Peer)));
    }
}
