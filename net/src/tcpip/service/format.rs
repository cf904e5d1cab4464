//! What clients and the machine write to each other.
//!
//! ```text
//!  0      1      2         4              8                      16
//! ┌──────┬──────┬─────────┬──────────────┬──────────────────────┬──────────────────────┐
//! │ kind │ code │ zero    │ socket       │ value                │ body                 │
//! └──────┴──────┴─────────┴──────────────┴──────────────────────┴──────────────────────┘
//! ```
//!
//! Numbers are little-endian. The first 16 bytes are the message's head; the body is data, or addresses of 20 bytes each:
//! family (4 or 6), zero, port (big-endian), and 16 bytes of address, of which IPv4 uses the first four.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use fabric::name::Name;

use crate::tcpip::{End, KeepAlive};

/// Bytes of a message's head.
pub(in crate::tcpip) const HEAD_BYTES: usize = 16;

/// Bytes of an address in a body.
pub(super) const ADDRESS_BYTES: usize = 20;

/// Numbers of sockets that the machine has chosen, for connections that it has accepted, have this bit.
pub(super) const ACCEPTED: u32 = 1 << 31;

/// In the value of [`Kind::Broken`]: what still comes is all that the other side had to send.
pub(super) const COMPLETE: u64 = 1 << 63;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Client: connect; the value is the credit that the client gives. Body: the address.
    Connect = 1,
    /// Client: listen; the value is the backlog. Body: the address.
    Listen = 2,
    /// Client: bind a socket of datagrams. Body: the address.
    Bind = 3,
    /// Client: connect a socket of datagrams; the value is a number that the answer repeats, 1 or more and each more than the last. Body: the address.
    Associate = 4,
    /// Both: bytes of a stream.
    Data = 5,
    /// Both: a datagram. Body: where to or from, and its bytes.
    Datagram = 6,
    /// Both: so many bytes more may be sent.
    Credit = 7,
    /// Client: nothing more is sent (code 1), or received (2), or both (3).
    Shut = 8,
    /// Client: end the connection with a reset.
    Reset = 9,
    /// Client: the socket is closed. All that was sent before still goes.
    Close = 10,
    /// Client: an option (code), with its value.
    Set = 11,
    /// Client: of a pair of clients (the socket is its number), it takes a path from the other (code 0), does not want one ([`answer::NO`]), or cannot
    /// have one now ([`answer::NOT_NOW`]).
    Ready = 12,
    /// Client: of a pair of clients, it has the path to the other (code 0), gets none ([`answer::NO`]), or got none for what may be there later
    /// ([`answer::NOT_NOW`]).
    Met = 13,
    /// Client: from now on what it sends over this connection goes to the other client directly.
    Moved = 14,
    /// Client: it gives so many bytes of its credit back (the value), as it was asked to.
    Returned = 15,
    /// Machine: the first message. The value is how many sockets the client may have. Body: the machine's addresses.
    Welcome = 32,
    /// Machine: a socket is open; the value is the credit that the machine gives. Body: its address, and the other side's of a
    /// connection. Of an open socket of datagrams: it is connected; the value is the number of the question. Body: both addresses.
    Opened = 33,
    /// Machine: a socket was not opened, and is gone, or not connected; then the value is the number of the question (code: [`Failure`]).
    Failed = 34,
    /// Machine: a listener (the socket) has a connection, whose number is the lower half of the value; the upper half is its credit.
    /// Body: both addresses.
    Accepted = 35,
    /// Machine: the other side has closed its half (code 0), or one that it has moved to the path of a pair (1).
    Finished = 36,
    /// Machine: the connection has ended (code: [`Failure`]). The value is how many bytes still come, with [`COMPLETE`] if the other side had closed
    /// its half before.
    Broken = 37,
    /// Machine: the socket's number is free.
    Closed = 38,
    /// Machine: the other side of a socket of datagrams has refused one, or there is no way to it (code: [`Failure`]).
    Refused = 39,
    /// Machine: of a pair of clients (the socket is its number, the value the other's guest), the other asks for a path soon; or does not
    /// any more (code 1).
    Expect = 40,
    /// Machine: the same, and the other waits to be asked for a path.
    Meet = 41,
    /// Machine: on the path of a pair of clients (the upper half of the value) this connection has the number that is the lower half.
    Joined = 42,
    /// Machine: the client is to give credit back: so many bytes (the value), or as many as it has not used.
    Recall = 43,
    /// Another client: it knows the connection of this number (the socket), and takes so many bytes (the value).
    Hello = 64,
    /// Another client: it has closed the connection (code 0), or reset it (1). The value is where in the stream it has ceased to read.
    Bye = 65,
}

impl Kind {
    const ALL: [Kind; 29] = [
        Kind::Connect,
        Kind::Listen,
        Kind::Bind,
        Kind::Associate,
        Kind::Data,
        Kind::Datagram,
        Kind::Credit,
        Kind::Shut,
        Kind::Reset,
        Kind::Close,
        Kind::Set,
        Kind::Ready,
        Kind::Met,
        Kind::Moved,
        Kind::Returned,
        Kind::Welcome,
        Kind::Opened,
        Kind::Failed,
        Kind::Accepted,
        Kind::Finished,
        Kind::Broken,
        Kind::Closed,
        Kind::Refused,
        Kind::Expect,
        Kind::Meet,
        Kind::Joined,
        Kind::Recall,
        Kind::Hello,
        Kind::Bye,
    ];
}

/// What a client says of a path to another that it does not have.
pub(super) mod answer {
    pub(crate) const NO: u8 = 1;
    pub(crate) const NOT_NOW: u8 = 2;
}

/// Options of a connection.
pub(super) mod option {
    pub(crate) const NO_DELAY: u8 = 1;
    pub(crate) const KEEP_ALIVE: u8 = 2;
    pub(crate) const SERVICE: u8 = 3;
}

/// Why a socket was not opened, or how it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
#[non_exhaustive]
pub enum Failure {
    /// Another socket has the address.
    #[error("another socket has this address")]
    InUse = 1,
    /// The machine does not have the address, or no port is left.
    #[error("the machine does not have this address, or no port is left")]
    NotAvailable = 2,
    /// That is no address of one host elsewhere.
    #[error("not the address of a host")]
    NoHost = 3,
    /// The machine has as many connections as it may.
    #[error("the machine has as many connections as it may")]
    Full = 4,
    /// The client has as many sockets as it may.
    #[error("this client has as many sockets as it may")]
    SocketsMax = 5,
    /// The client's sockets may keep no more bytes.
    #[error("the buffers that this client may have are used up")]
    BuffersMax = 6,
    /// The other side does not listen.
    #[error("the other side does not listen")]
    Refused = 7,
    /// The other side has reset the connection.
    #[error("the other side has reset the connection")]
    Reset = 8,
    /// The other side takes nothing more.
    #[error("the other side takes nothing more")]
    Unwanted = 9,
    /// The other side was silent for too long.
    #[error("the other side was silent for too long")]
    TimedOut = 10,
    /// The other side's host cannot be reached.
    #[error("the host cannot be reached")]
    HostUnreachable = 11,
    /// The other side's network cannot be reached.
    #[error("the network cannot be reached")]
    NetworkUnreachable = 12,
    /// The address of this side is not the machine's any more.
    #[error("the machine does not have the connection's address any more")]
    AddressLost = 13,
    /// Something has run out at the machine.
    #[error("the machine has no memory or no descriptors left")]
    Lacking = 14,
    /// The machine is gone, or has ended the path.
    #[error("the TCPIP machine is gone")]
    MachineGone = 15,
    /// A datagram was longer than a datagram may be.
    #[error("the datagram was too long")]
    TooLong = 16,
    /// The machine has failed in a way that this version does not know.
    #[error("the machine gave a reason that this version does not know")]
    Unknown = 17,
}

impl Failure {
    const ALL: [Failure; 17] = [
        Failure::InUse,
        Failure::NotAvailable,
        Failure::NoHost,
        Failure::Full,
        Failure::SocketsMax,
        Failure::BuffersMax,
        Failure::Refused,
        Failure::Reset,
        Failure::Unwanted,
        Failure::TimedOut,
        Failure::HostUnreachable,
        Failure::NetworkUnreachable,
        Failure::AddressLost,
        Failure::Lacking,
        Failure::MachineGone,
        Failure::TooLong,
        Failure::Unknown,
    ];

    pub(super) fn of_code(code: u8) -> Failure {
        Failure::ALL.into_iter().find(|one| *one as u8 == code).unwrap_or(Failure::Unknown)
    }

    pub(super) fn of_end(end: End) -> Failure {
        match end {
            End::Refused => Failure::Refused,
            End::Reset => Failure::Reset,
            End::Unwanted => Failure::Unwanted,
            End::TimedOut => Failure::TimedOut,
            End::Gone | End::HostUnreachable => Failure::HostUnreachable,
            End::NetworkUnreachable => Failure::NetworkUnreachable,
            End::AddressLost => Failure::AddressLost,
            End::Lacking(_) => Failure::Lacking,
        }
    }
}

/// What a peer may not write: it ends the path. Nothing of the message has had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A head of another length, or with bytes set that must be zero.
    #[error("a message without a head of 16 bytes, or with bits set that must be zero")]
    Head,
    /// A kind that is none, or that the other side says.
    #[error("a message of a kind that this side is not sent")]
    Kind,
    /// A body of the wrong length.
    #[error("a message whose body has the wrong length")]
    Length,
    /// What is no address.
    #[error("a message with an address that is none")]
    Address,
    /// A number that is in use.
    #[error("a socket opened under a number that is in use, or that the client may not choose")]
    InUse,
    /// No socket has the number, or not of this kind.
    #[error("a message for a socket that is not open, or of another kind")]
    Socket,
    /// More bytes than the socket had credit for.
    #[error("more bytes than the socket had credit for")]
    Credit,
    /// A value beyond its limits.
    #[error("a value beyond its limits")]
    Value,
}

impl Fault {
    /// The 16 bytes that go to the peer with the end of the path.
    pub fn text(self) -> [u8; 16] {
        let text: &[u8] = match self {
            Fault::Head => b"bad head",
            Fault::Kind => b"bad kind",
            Fault::Length => b"bad length",
            Fault::Address => b"bad address",
            Fault::InUse => b"number in use",
            Fault::Socket => b"no such socket",
            Fault::Credit => b"beyond credit",
            Fault::Value => b"bad value",
        };
        let mut data = [0; 16];
        data[..text.len()].copy_from_slice(text);
        data
    }
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) code: u8,
    pub(super) socket: u32,
    pub(super) value: u64,
}

impl Head {
    pub(super) fn new(kind: Kind, socket: u32) -> Head {
        Head { kind, code: 0, socket, value: 0 }
    }

    #[inline]
    pub(super) fn bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.code;
        bytes[4..8].copy_from_slice(&self.socket.to_le_bytes());
        bytes[8..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Result<Head, Fault> {
        let bytes: &[u8; HEAD_BYTES] = bytes.try_into().map_err(|_| Fault::Head)?;
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == bytes[0]);
        let kind = kind.ok_or(Fault::Kind)?;
        if bytes[2] != 0 || bytes[3] != 0 {
            return Err(Fault::Head);
        }
        let socket = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        let value = u64::from_le_bytes(bytes[8..].try_into().expect("eight bytes"));
        Ok(Head { kind, code: bytes[1], socket, value })
    }
}

/// An address as it stands in a body.
pub(super) fn address_bytes(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 4;
            bytes[4..8].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 6;
            bytes[4..].copy_from_slice(&ip.octets());
        }
    }
    bytes
}

/// The address at the beginning of a body, and what is behind it.
pub(super) fn split_address(body: &[u8]) -> Result<(SocketAddr, &[u8]), Fault> {
    let (bytes, rest) = body.split_first_chunk::<ADDRESS_BYTES>().ok_or(Fault::Length)?;
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip: [u8; 16] = bytes[4..].try_into().expect("sixteen bytes");
    let ip = match (bytes[0], bytes[1]) {
        (4, 0) if ip[4..] == [0; 12] => Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]).into(),
        (6, 0) => Ipv6Addr::from(ip).into(),
        _ => return Err(Fault::Address),
    };
    Ok((SocketAddr::new(ip, port), rest))
}

/// A guest's name, as a value.
pub(super) fn name_value(name: Name) -> u64 {
    u64::from_le_bytes(name.bytes())
}

/// The guest's name that a value is.
pub(super) fn name_of_value(value: u64) -> Result<Name, Fault> {
    Name::parse(value.to_le_bytes()).ok_or(Fault::Value)
}

/// The one address of a body.
pub(super) fn only_address(body: &[u8]) -> Result<SocketAddr, Fault> {
    match split_address(body)? {
        (address, []) => Ok(address),
        _ => Err(Fault::Length),
    }
}

/// Keep-alive in the body of an option: none if it is turned off.
pub(super) fn keep_alive_bytes(options: Option<KeepAlive>) -> [u8; 24] {
    let mut bytes = [0; 24];
    if let Some(KeepAlive { time, interval, probes }) = options {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_le_bytes();
        bytes[..8].copy_from_slice(&ns(time));
        bytes[8..16].copy_from_slice(&ns(interval));
        bytes[16..20].copy_from_slice(&probes.to_le_bytes());
    }
    bytes
}

/// The same, read.
pub(super) fn keep_alive(body: &[u8]) -> Result<Option<KeepAlive>, Fault> {
    let bytes: &[u8; 24] = body.try_into().map_err(|_| Fault::Length)?;
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let probes = u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes"));
    if bytes[20..] != [0; 4] {
        return Err(Fault::Value);
    }
    match (u64_at(0), u64_at(8), probes) {
        (0, 0, 0) => Ok(None),
        (0, _, _) | (_, 0, _) | (_, _, 0) => Err(Fault::Value),
        (time, interval, probes) => Ok(Some(KeepAlive {
            time: Duration::from_nanos(time),
            interval: Duration::from_nanos(interval),
            probes,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_has_its_literal_bytes() {
        let head = Head { kind: Kind::Credit, code: 0, socket: 0x0102_0304, value: 0x10_0000 };
        let bytes = [7, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0x10, 0, 0, 0, 0, 0];
        assert_eq!(head.bytes(), bytes);
        assert_eq!(Head::parse(&bytes), Ok(head));
    }

    #[test]
    fn heads_that_are_none_are_refused_by_name() {
        let good = Head::new(Kind::Data, 1).bytes();
        assert_eq!(Head::parse(&good[..15]), Err(Fault::Head));
        assert_eq!(Head::parse(&[&good[..], &[0]].concat()), Err(Fault::Head));
        for reserved in [2, 3] {
            let mut bad = good;
            bad[reserved] = 1;
            assert_eq!(Head::parse(&bad), Err(Fault::Head));
        }
        for kind in [0, 16, 31, 44, 66, 255] {
            let mut bad = good;
            bad[0] = kind;
            assert_eq!(Head::parse(&bad), Err(Fault::Kind));
        }
    }

    #[test]
    fn kinds_and_failures_have_a_number_each() {
        for kind in Kind::ALL {
            let head = Head::new(kind, 0);
            assert_eq!(Head::parse(&head.bytes()).map(|head| head.kind), Ok(kind));
        }
        for failure in Failure::ALL {
            assert_eq!(Failure::of_code(failure as u8), failure);
        }
        assert_eq!(Failure::of_code(0), Failure::Unknown);
        assert_eq!(Failure::of_code(200), Failure::Unknown);
    }

    #[test]
    fn addresses_have_their_literal_bytes() {
        let v4: SocketAddr = "10.1.0.5:8080".parse().unwrap();
        let bytes = [4, 0, 0x1f, 0x90, 10, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(address_bytes(v4), bytes);
        assert_eq!(only_address(&bytes), Ok(v4));
        let v6: SocketAddr = "[fd00::5]:80".parse().unwrap();
        assert_eq!(only_address(&address_bytes(v6)), Ok(v6));
        let body = [&bytes[..], b"rest"].concat();
        let (first, rest) = split_address(&body).unwrap();
        assert_eq!((first, rest), (v4, &b"rest"[..]));
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        let good = address_bytes("10.1.0.5:8080".parse().unwrap());
        assert_eq!(only_address(&good[..19]), Err(Fault::Length));
        assert_eq!(only_address(&[&good[..], &[0]].concat()), Err(Fault::Length));
        for (at, value) in [(0, 5), (1, 1), (8, 1), (19, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(only_address(&bad), Err(Fault::Address), "byte {at}");
        }
    }

    #[test]
    fn keep_alive_goes_and_comes_back() {
        let options = KeepAlive {
            time: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            probes: 9,
        };
        assert_eq!(keep_alive(&keep_alive_bytes(Some(options))), Ok(Some(options)));
        assert_eq!(keep_alive(&keep_alive_bytes(None)), Ok(None));
        let mut bad = keep_alive_bytes(Some(options));
        bad[16] = 0;
        assert_eq!(keep_alive(&bad), Err(Fault::Value));
        assert_eq!(keep_alive(&bad[..23]), Err(Fault::Length));
    }
}
