//! Errors of a member's verbs.

use std::io;

use fabric::control::Problem;
use fabric::name::{LanName, Name, NoLanName};
use fabric::path::Lack;
use net::lan::admission::Refused;
use net::lan::frame::Mac;
use net::lan::table::UnknownTable;

use crate::link::Unsent;

/// Why a guest did not become a member of a LAN, or an address was not registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinLanError {
    /// That is no name.
    #[error(transparent)]
    Name(#[from] NoLanName),
    /// Another member has the address.
    #[error(
        "{by} has this address in the LAN {lan}: choose another, or leave the choice to the host"
    )]
    Taken {
        /// In which LAN.
        lan: LanName,
        /// The other member.
        by: Name,
    },
    /// The system file keeps the address for another guest.
    #[error(
        "the system file keeps this address of the LAN {lan} for the guest {by}: choose another, or attach as {by}"
    )]
    Kept {
        /// In which LAN.
        lan: LanName,
        /// The other guest.
        by: Name,
    },
    /// The host refused.
    #[error("cannot join the LAN {lan}: {problem}")]
    Refused {
        /// Which LAN.
        lan: LanName,
        /// Why.
        problem: Problem,
    },
    /// There is no host, or it did not answer within 10 seconds.
    #[error("the host does not answer")]
    HostGone,
    /// The host lent a table that this program does not know.
    #[error(transparent)]
    Table(#[from] UnknownTable),
    /// This process lacks descriptors or memory.
    #[error("cannot join a LAN: {0}")]
    Resources(#[from] io::Error),
}

impl From<Unsent> for JoinLanError {
    fn from(unsent: Unsent) -> JoinLanError {
        match unsent {
            Unsent::Resources(error) => JoinLanError::Resources(error),
            Unsent::HostGone | Unsent::HostBehind => JoinLanError::HostGone,
        }
    }
}

/// Why a frame was not sent by a verb that does not wait. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendFrameError {
    /// The target is too far behind, or the path to it is not there yet. Send again later:
    /// [`Lan::prepare_wait`](super::Lan::prepare_wait) and the descriptor say when.
    #[error("the member that the frame is for is too far behind")]
    Full,
    /// Waiting would not help.
    #[error(transparent)]
    Send(#[from] SendFrameError),
}

/// Why a frame was not sent. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendFrameError {
    /// This process is no member: it is a forked child of one.
    #[error("this process is no member of the LAN")]
    NotMember,
    /// No member has this address.
    #[error("no member of the LAN has the address {0}")]
    NoMember(Mac),
    /// The frame must not be sent by this member.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// No path to the member could be made. The next frame for it is another try, after a tenth of a second.
    #[error("there is no path to the member {0}")]
    Unreachable(Name),
    /// Something has run out that waiting does not bring back, in this process or on the path. If a path to the member was
    /// wanting, the next frame is another try, after a tenth of a second.
    #[error("nothing was sent: {0}")]
    Lacking(#[from] Lack),
}
