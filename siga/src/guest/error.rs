//! Errors of a guest's verbs.

use std::io;
use std::path::{Path as FilePath, PathBuf};

use fabric::control::{Problem, UserData};
use fabric::name::{Name, NoName};
use fabric::path::JoinError;
use os::memory::shortage;
use os::storage::BorrowError;

use crate::link::{Unreached, Unsent, unreachable};

/// Why a guest could not attach.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// That is no name.
    #[error(transparent)]
    Name(#[from] NoName),
    /// No host answers at this socket, or this user may not connect to it.
    #[error("{}", unreachable(.socket, .error))]
    Unreachable {
        /// The socket's path.
        socket: PathBuf,
        /// The error of `connect`.
        error: io::Error,
    },
    /// The host refused the name.
    #[error("cannot attach as {name}: {problem}{}", right(*.problem))]
    Refused {
        /// As whom.
        name: Name,
        /// Why.
        problem: Problem,
    },
    /// The host accepts no connections, did not answer within 10 seconds, or closed the connection.
    #[error("the host does not answer")]
    NoAnswer,
    /// This process lacks descriptors or memory.
    #[error("cannot attach: {0}")]
    Resources(#[from] io::Error),
}

/// What would be right, where the problem does not say it.
fn right(problem: Problem) -> &'static str {
    match problem {
        Problem::NotPermitted => {
            ": a [[guest]] of the system file must have this name, and this user among its users or groups"
        }
        _ => "",
    }
}

/// Why there is no path. Starting to connect fails with `Name`, `Shape`, `HostGone`, `HostBehind` or `Resources`;
/// completing, with `Refused`, `TimedOut`, `HostGone`, `OtherGuest`, `Completed`, `Join` or `Resources`; accepting, with
/// `Refused`, `HostGone`, `HostBehind`, `Join` or `Resources`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// That is no name.
    #[error(transparent)]
    Name(#[from] NoName),
    /// The options, or the other side, ask for queues that such a path does not have.
    #[error("a path has 1 to 8 queues each way; one of IUCV has 2, one of APPC/VM 1")]
    Shape,
    /// The host or the target refused the connection.
    #[error("{problem}")]
    Refused {
        /// Why.
        problem: Problem,
        /// From the other side, if it refused.
        data: UserData,
    },
    /// The other side did not accept in time.
    #[error("the target did not accept in time")]
    TimedOut,
    /// There is no host at the moment.
    #[error("the host is gone")]
    HostGone,
    /// The host has not read earlier requests, and its socket is full. Try again later.
    #[error("the host is behind: try again later")]
    HostBehind,
    /// Another guest has asked for this connection, and only that guest can complete it.
    #[error("another guest has asked for this connection")]
    OtherGuest,
    /// This connection was completed before, or refused.
    #[error("this connection was completed before")]
    Completed,
    /// What the host or the other side sent is not what makes a path.
    #[error("the path could not be joined: {0}")]
    Join(JoinError),
    /// This process lacks descriptors or memory.
    #[error("cannot connect: {0}")]
    Resources(#[from] io::Error),
}

/// Why a resource was not registered, or not given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// That is no name.
    #[error(transparent)]
    Name(#[from] NoName),
    /// The host refused the request.
    #[error("{problem}")]
    Refused {
        /// Why.
        problem: Problem,
    },
    /// There is no host at the moment.
    #[error("the host is gone")]
    HostGone,
    /// The host has not read earlier requests, and its socket is full. Try again later.
    #[error("the host is behind: try again later")]
    HostBehind,
}

impl From<JoinError> for ConnectError {
    fn from(error: JoinError) -> ConnectError {
        match error {
            // Both sides have sent what they must: it is this process that cannot map it.
            JoinError::Borrow(BorrowError::Os(error)) | JoinError::Doorbell(error)
                if shortage(&error).is_some() =>
            {
                ConnectError::Resources(error)
            }
            error => ConnectError::Join(error),
        }
    }
}

impl From<Unsent> for ConnectError {
    fn from(unsent: Unsent) -> ConnectError {
        match unsent {
            Unsent::HostGone => ConnectError::HostGone,
            Unsent::HostBehind => ConnectError::HostBehind,
            Unsent::Resources(error) => ConnectError::Resources(error),
        }
    }
}

impl From<Unsent> for ResourceError {
    fn from(unsent: Unsent) -> ResourceError {
        match unsent {
            Unsent::HostGone => ResourceError::HostGone,
            // Requests about resources pass no descriptors: only memory can be missing, for a moment.
            Unsent::HostBehind | Unsent::Resources(_) => ResourceError::HostBehind,
        }
    }
}

/// The error for a host that was not reached at `socket`.
pub(super) fn unreached(socket: &FilePath, error: io::Error) -> AttachError {
    match Unreached::from(error) {
        Unreached::NoAnswer => AttachError::NoAnswer,
        Unreached::Resources(error) => AttachError::Resources(error),
        Unreached::NoHost(error) => AttachError::Unreachable { socket: socket.to_owned(), error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_resources_is_no_lack_of_a_host() {
        let unreached = |code| unreached("s".as_ref(), io::Error::from_raw_os_error(code));
        for (code, is_ours) in [(24, true), (23, true), (12, true), (111, false), (2, false)] {
            let error = unreached(code);
            assert_eq!(matches!(error, AttachError::Resources(_)), is_ours, "{error}");
            assert_eq!(matches!(error, AttachError::Unreachable { .. }), !is_ours, "{error}");
        }
        assert!(matches!(unreached(11), AttachError::NoAnswer), "its backlog is full");
        let may_not = "the host at s is not for this user: Permission denied (os error 13); in its system file, ";
        assert!(unreached(13).to_string().starts_with(may_not), "{}", unreached(13));
        let refused =
            |problem| AttachError::Refused { name: "A".parse().unwrap(), problem }.to_string();
        assert_eq!(
            refused(Problem::NotPermitted),
            "cannot attach as A: this user may not attach under this name: a [[guest]] of the system file must have this name, \
             and this user among its users or groups"
        );
        assert!(refused(Problem::NameTaken).ends_with("under this name already"));
        let none = "no host at s: No such file or directory (os error 2); start one with: siga up";
        assert_eq!(unreached(2).to_string(), none);
    }
}
