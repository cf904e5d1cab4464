//! Reasons for which something of a member is not carried on, and what the member is told.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use siga::tcpip::{Asked, Counter, Outside, Refusal, StrayKind};

/// Why something of a member is not carried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The rules forbid it, or the kernel does.
    Forbidden,
    /// The guest, or all together, have as many as they may.
    Full,
    /// This system lacks something.
    Lacking,
    /// The kernel lets this user send no echo requests.
    NoEcho,
    /// Somebody on the way has said so.
    Refused(Refusal),
}

/// Returns the reason that an error of a socket stands for. An error of neither the network nor a lack is the address's: the kernel takes it for none.
pub fn failure(error: &io::Error) -> Failure {
    answer(error).unwrap_or(match error.kind() {
        // There is no port for the socket.
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse => Failure::Lacking,
        _ if os::socket::is_lack(error) => Failure::Lacking,
        _ => Failure::Refused(Refusal::Host),
    })
}

/// Returns the reason that an error stands for if the network has answered so, a router perhaps that forbids it, or the kernel's routes say so.
pub fn answer(error: &io::Error) -> Option<Failure> {
    let answer = match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => {
            Failure::Refused(Refusal::Port)
        }
        ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            Failure::Refused(Refusal::Network)
        }
        ErrorKind::HostUnreachable | ErrorKind::TimedOut => Failure::Refused(Refusal::Host),
        ErrorKind::PermissionDenied => Failure::Forbidden,
        _ if os::socket::is_no_family(error) => Failure::Refused(Refusal::Network),
        _ if os::socket::is_from_elsewhere(error) => Failure::Refused(Refusal::Host),
        _ => return None,
    };
    Some(answer)
}

impl Failure {
    pub fn counter(self) -> Counter {
        match self {
            Failure::Forbidden => Counter::OutsideForbidden,
            Failure::Full => Counter::OutsideFull,
            Failure::Lacking | Failure::NoEcho => Counter::OutsideLacking,
            Failure::Refused(_) => Counter::OutsideUnreached,
        }
    }

    /// The reason that a member is told. None where it may try again soon.
    pub fn refusal(self) -> Option<Refusal> {
        match self {
            Failure::Forbidden | Failure::NoEcho => Some(Refusal::Forbidden),
            Failure::Full | Failure::Lacking => None,
            Failure::Refused(refusal) => Some(refusal),
        }
    }

    /// Tells whoever asks for a connection.
    pub fn tell_asker(self, outside: &Outside, asked: Asked) -> io::Result<()> {
        outside.count(self.counter(), 1)?;
        outside.refuse(asked, self.refusal())
    }

    /// Tells whoever has sent a datagram.
    pub fn tell_sender(
        self,
        outside: &Outside,
        kind: StrayKind,
        ends: (SocketAddr, SocketAddr),
    ) -> io::Result<()> {
        outside.count(self.counter(), 1)?;
        match self.refusal() {
            Some(refusal) => outside.refuse_stray(kind, ends, refusal),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_out_is_a_lack() {
        let of = |errno| failure(&io::Error::from_raw_os_error(errno));
        // (errno(3)) ENOMEM, ENFILE, EMFILE, ENOSPC, EADDRINUSE, EADDRNOTAVAIL, ENOBUFS.
        for errno in [12, 23, 24, 28, 98, 99, 105] {
            assert_eq!(of(errno), Failure::Lacking, "{errno}");
        }
        // EINVAL: an address that is local to a link, without the link.
        assert_eq!(of(22), Failure::Refused(Refusal::Host));
        assert_eq!(of(13), Failure::Forbidden);
        assert_eq!(of(111), Failure::Refused(Refusal::Port));
        // EMSGSIZE is of this side, and no answer.
        assert_eq!(answer(&io::Error::from_raw_os_error(90)), None);
    }
}
