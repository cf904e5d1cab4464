//! Why a verb failed, as the standard library says it.

use std::io;

use fabric::path::Lack;
use net::tcpip::service::Failure;
use net::tcpip::{BindError, ConnectError, End, SendToError};

/// What has run out.
pub(super) fn lacking(lack: Lack) -> io::Error {
    let kind = if lack == Lack::Memory { io::ErrorKind::OutOfMemory } else { io::ErrorKind::Other };
    io::Error::new(kind, lack)
}

/// How a connection has ended.
pub(super) fn ended(end: End) -> io::Error {
    let kind = match end {
        End::Refused => io::ErrorKind::ConnectionRefused,
        End::Reset => io::ErrorKind::ConnectionReset,
        End::Unwanted => io::ErrorKind::BrokenPipe,
        End::TimedOut => io::ErrorKind::TimedOut,
        End::Lacking(lack) => return lacking(lack),
        End::Gone | End::HostUnreachable => io::ErrorKind::HostUnreachable,
        End::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
        _ => return io::Error::other("the stack has failed, and given this connection up"),
    };
    kind.into()
}

/// What a machine says of a socket.
pub(super) fn failed(failure: Failure) -> io::Error {
    let kind = match failure {
        Failure::InUse => io::ErrorKind::AddrInUse,
        Failure::NotAvailable | Failure::AddressLost => io::ErrorKind::AddrNotAvailable,
        Failure::NoHost | Failure::TooLong => io::ErrorKind::InvalidInput,
        Failure::Full | Failure::SocketsMax | Failure::BuffersMax => io::ErrorKind::QuotaExceeded,
        // As of a stack of one's own, without words.
        Failure::Refused => return io::ErrorKind::ConnectionRefused.into(),
        Failure::Reset => return io::ErrorKind::ConnectionReset.into(),
        Failure::Unwanted => return io::ErrorKind::BrokenPipe.into(),
        Failure::TimedOut => return io::ErrorKind::TimedOut.into(),
        Failure::HostUnreachable => return io::ErrorKind::HostUnreachable.into(),
        Failure::NetworkUnreachable => return io::ErrorKind::NetworkUnreachable.into(),
        Failure::MachineGone => io::ErrorKind::ConnectionAborted,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, failure)
}

/// Why no connection was begun.
pub(super) fn not_connected(error: ConnectError) -> io::Error {
    let kind = match error {
        ConnectError::NoHost => io::ErrorKind::InvalidInput,
        ConnectError::Full => io::ErrorKind::QuotaExceeded,
        _ => io::ErrorKind::AddrNotAvailable,
    };
    io::Error::new(kind, error)
}

/// Why a socket was not bound.
pub(super) fn not_bound(error: BindError) -> io::Error {
    let kind = match error {
        BindError::InUse => io::ErrorKind::AddrInUse,
        _ => io::ErrorKind::AddrNotAvailable,
    };
    io::Error::new(kind, error)
}

/// Why a datagram of so many bytes was not sent.
pub(super) fn not_sent(error: SendToError, bytes: usize) -> io::Error {
    let problem = match error {
        SendToError::Lacking(lack) => return lacking(lack),
        SendToError::TooLong { bytes_max } => {
            format!("a datagram of {bytes} bytes: must be at most {bytes_max}")
        }
        _ => "not the address of a host that this socket can send to".to_owned(),
    };
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}
