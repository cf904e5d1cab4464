//! Messages of ICMP and ICMPv6: what they report of packets that were sent, and those that a stack sends itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::fragments::Late;
use super::packet::{self, ICMP, ICMPV6, IPV4_BYTES, IPV6_BYTES, Packet};
use super::secret::Secret;
use crate::board::Counter;
use crate::lan::frame::{u16_at, u32_at};

/// Bytes of the type, the code, the checksum and four more, which each message has.
pub(super) const HEAD_BYTES: usize = 8;

/// Bytes of a transport's header that a message quotes at least: the ports, and TCP's sequence number.
const QUOTED_BYTES: usize = 8;

/// Bytes of the longest packet with an error (RFC 1812 4.3.2.3, RFC 4443 2.4).
const ERROR_BYTES_MAX_V4: usize = 576;
const ERROR_BYTES_MAX_V6: usize = 1280;

/// Types of RFC 792 and RFC 4443.
const ECHO_V4: u8 = 8;
const ECHO_REPLY_V4: u8 = 0;
const UNREACHABLE_V4: u8 = 3;
const TIME_EXCEEDED_V4: u8 = 11;
const REDIRECT_V6: u8 = 137;
const ECHO_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const UNREACHABLE_V6: u8 = 1;
const TOO_BIG_V6: u8 = 2;
const TIME_EXCEEDED_V6: u8 = 3;

/// Codes for a packet whose last hop this was, and for a part of one that has not come.
const HOP_LIMIT: u8 = 0;
const REASSEMBLY: u8 = 1;

/// Codes for a network that nobody knows the way to, and for a packet that was too long and not to be cut.
const NO_ROUTE: u8 = 0;
const NOT_TO_BE_CUT_V4: u8 = 4;

/// Codes for a host that nobody knows, and for what is forbidden (RFC 1812 5.2.7.1, RFC 4443 3.1).
const NO_HOST_V4: u8 = 1;
const NO_HOST_V6: u8 = 3;
const FORBIDDEN_V4: u8 = 13;
const FORBIDDEN_V6: u8 = 1;

/// Codes for a port that nobody has.
const PORT_V4: u8 = 3;
const PORT_V6: u8 = 4;

/// What was wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nobody has the port, or knows the protocol.
    Refused,
    HostUnreachable,
    NetworkUnreachable,
    /// It was too long; one of so many bytes is not.
    TooBig(usize),
}

/// An error that somebody reports, and the packet of ours that it is about, as far as it is quoted. All of it may be
/// made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) trouble: Trouble,
    pub(super) protocol: u8,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// If it is TCP.
    pub(super) sequence: u32,
    /// Bytes of the packet.
    pub(super) bytes: usize,
}

/// The reply to a message, if it is an echo request (RFC 792, RFC 4443 4.1).
pub(super) fn echo_reply(packet: &Packet<'_>) -> Option<Vec<u8>> {
    let message = packet.transport();
    let (request, reply) = match packet.protocol {
        ICMP => (ECHO_V4, ECHO_REPLY_V4),
        _ => (ECHO_V6, ECHO_REPLY_V6),
    };
    if message.first() != Some(&request) || message.len() < HEAD_BYTES {
        return None;
    }
    let mut message = message.to_vec();
    message[0] = reply;
    Some(packet::control(packet.destination, packet.source, message))
}

/// The identifier of a message, if it is an echo request.
pub(super) fn echo_identifier(packet: &Packet<'_>) -> Option<u16> {
    let message = packet.transport();
    let request = if packet.protocol == ICMP { ECHO_V4 } else { ECHO_V6 };
    let is_request = message.len() >= HEAD_BYTES && message[0] == request;
    is_request.then(|| u16_at(message, 4)).flatten()
}

/// An echo request without data.
pub(super) fn echo_request(is_v4: bool, identifier: u16) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    vec![if is_v4 { ECHO_V4 } else { ECHO_V6 }, 0, 0, 0, high, low, 0, 0]
}

/// What a message reports. None if it is of a kind that says nothing of a connection or a socket.
pub(super) fn report(packet: &Packet<'_>) -> Result<Option<Report>, Counter> {
    let message = packet.transport();
    let (head, quote) = message.split_at_checked(HEAD_BYTES).ok_or(Counter::Malformed)?;
    match packet.protocol {
        ICMP => report_v4(head, quote),
        _ => report_v6(head, quote),
    }
}

fn report_v4(head: &[u8], quote: &[u8]) -> Result<Option<Report>, Counter> {
    let trouble = match (head[0], head[1]) {
        (UNREACHABLE_V4, 0 | 6 | 9 | 11) => Trouble::NetworkUnreachable,
        (UNREACHABLE_V4, 2 | PORT_V4) => Trouble::Refused,
        // The limit is filled in below.
        (UNREACHABLE_V4, NOT_TO_BE_CUT_V4) => Trouble::TooBig(u16_at(head, 6).unwrap_or(0).into()),
        (UNREACHABLE_V4, _) | (TIME_EXCEEDED_V4, _) => Trouble::HostUnreachable,
        _ => return Ok(None),
    };
    let ip = quote.get(..IPV4_BYTES).ok_or(Counter::Malformed)?;
    let header_bytes = usize::from(ip[0] & 15) * 4;
    let transport = quote.get(header_bytes..).filter(|transport| transport.len() >= QUOTED_BYTES);
    let transport = transport.ok_or(Counter::Malformed)?;
    if ip[0] >> 4 != 4 || header_bytes < IPV4_BYTES {
        return Err(Counter::Malformed);
    }
    if u16_at(ip, 6).is_some_and(|place| place & 0x1fff != 0) {
        // Of a later fragment, which has no ports.
        return Ok(None);
    }
    let bytes = usize::from(u16_at(ip, 2).unwrap_or(0));
    let trouble = match trouble {
        // An old router does not say how long a packet may be (RFC 1191 5).
        Trouble::TooBig(0) => Trouble::TooBig(plateau_below(bytes)),
        trouble => trouble,
    };
    let address =
        |at: usize| IpAddr::from(Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]));
    Ok(Some(of(trouble, ip[9], address(12), address(16), transport, bytes)))
}

fn report_v6(head: &[u8], quote: &[u8]) -> Result<Option<Report>, Counter> {
    let trouble = match (head[0], head[1]) {
        (UNREACHABLE_V6, 0) => Trouble::NetworkUnreachable,
        (UNREACHABLE_V6, PORT_V6) => Trouble::Refused,
        (UNREACHABLE_V6, _) | (TIME_EXCEEDED_V6, _) => Trouble::HostUnreachable,
        (TOO_BIG_V6, _) => Trouble::TooBig(u32_at(head, 4).unwrap_or(0) as usize),
        _ => return Ok(None),
    };
    let (ip, rest) = quote.split_at_checked(IPV6_BYTES).ok_or(Counter::Malformed)?;
    if ip[0] >> 4 != 6 {
        return Err(Counter::Malformed);
    }
    let chain = packet::chain(ip[6], rest)?;
    if chain.fragment.is_some_and(|fragment| fragment.offset != 0) {
        return Ok(None);
    }
    let transport = &rest[chain.bytes..];
    if transport.len() < QUOTED_BYTES {
        return Err(Counter::Malformed);
    }
    let address = |at: usize| ip[at..].first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets));
    let (local, remote) = address(8).zip(address(24)).ok_or(Counter::Malformed)?;
    let bytes = IPV6_BYTES + usize::from(u16_at(ip, 4).unwrap_or(0));
    Ok(Some(of(trouble, chain.protocol, local.into(), remote.into(), transport, bytes)))
}

fn of(
    trouble: Trouble,
    protocol: u8,
    local: IpAddr,
    remote: IpAddr,
    transport: &[u8],
    bytes: usize,
) -> Report {
    let port = |at: usize| u16_at(transport, at).unwrap_or(0);
    Report {
        trouble,
        protocol,
        local: SocketAddr::new(local, port(0)),
        remote: SocketAddr::new(remote, port(2)),
        sequence: u32_at(transport, 4).unwrap_or(0),
        bytes,
    }
}

/// The longest packet of a usual link that is shorter than one that was too long (RFC 1191 7.1).
fn plateau_below(bytes: usize) -> usize {
    const PLATEAUS: [usize; 8] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508];
    PLATEAUS.into_iter().find(|plateau| *plateau < bytes).unwrap_or(0)
}

/// The message that nobody has bound the port that a packet is for (RFC 792, RFC 4443 3.1). It quotes what of the packet
/// goes into it.
pub(super) fn port_unreachable(packet: &Packet<'_>) -> Vec<u8> {
    let kind = match packet.source {
        IpAddr::V4(_) => [UNREACHABLE_V4, PORT_V4],
        IpAddr::V6(_) => [UNREACHABLE_V6, PORT_V6],
    };
    error(packet.destination, packet.source, kind, NOTHING, packet.bytes)
}

/// Why a packet is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Complaint {
    /// Its last hop was here.
    HopLimit,
    /// Nobody knows the way.
    NoRoute,
    /// There is no such host.
    NoHost,
    /// It is forbidden.
    Forbidden,
    /// Nobody has bound the port.
    Port,
    /// It was too long; one of so many bytes is not.
    TooLong(usize),
}

/// The message that a packet is not passed on (RFC 792, RFC 1191 4, RFC 4443 3). It quotes what of the packet goes into it.
pub(super) fn complaint(from: IpAddr, to: IpAddr, complaint: Complaint, about: &[u8]) -> Vec<u8> {
    let (kind, rest) = match (complaint, from) {
        (Complaint::HopLimit, IpAddr::V4(_)) => ([TIME_EXCEEDED_V4, HOP_LIMIT], NOTHING),
        (Complaint::HopLimit, IpAddr::V6(_)) => ([TIME_EXCEEDED_V6, HOP_LIMIT], NOTHING),
        (Complaint::NoRoute, IpAddr::V4(_)) => ([UNREACHABLE_V4, NO_ROUTE], NOTHING),
        (Complaint::NoRoute, IpAddr::V6(_)) => ([UNREACHABLE_V6, NO_ROUTE], NOTHING),
        (Complaint::NoHost, IpAddr::V4(_)) => ([UNREACHABLE_V4, NO_HOST_V4], NOTHING),
        (Complaint::NoHost, IpAddr::V6(_)) => ([UNREACHABLE_V6, NO_HOST_V6], NOTHING),
        (Complaint::Forbidden, IpAddr::V4(_)) => ([UNREACHABLE_V4, FORBIDDEN_V4], NOTHING),
        (Complaint::Forbidden, IpAddr::V6(_)) => ([UNREACHABLE_V6, FORBIDDEN_V6], NOTHING),
        (Complaint::Port, IpAddr::V4(_)) => ([UNREACHABLE_V4, PORT_V4], NOTHING),
        (Complaint::Port, IpAddr::V6(_)) => ([UNREACHABLE_V6, PORT_V6], NOTHING),
        (Complaint::TooLong(mtu), IpAddr::V4(_)) => {
            let [high, low] = (mtu as u16).to_be_bytes();
            ([UNREACHABLE_V4, NOT_TO_BE_CUT_V4], [0, 0, high, low])
        }
        (Complaint::TooLong(mtu), IpAddr::V6(_)) => ([TOO_BIG_V6, 0], (mtu as u32).to_be_bytes()),
    };
    error(from, to, kind, rest, about)
}

/// The message that a part of a packet has not come in time (RFC 1122 3.3.2, RFC 8200 4.5). None for a packet that is an error
/// itself: errors about errors would have no end (RFC 1122 3.2.2, RFC 4443 2.4 e).
pub(super) fn reassembly_time_exceeded(late: &Late) -> Option<Vec<u8>> {
    let kind = late.quote.get(late.header_bytes).copied();
    let kind_sent = match (late.source, late.protocol) {
        (IpAddr::V4(_), ICMP) if kind.is_none_or(is_error_v4) => return None,
        (IpAddr::V6(_), ICMPV6) if kind.is_none_or(is_error_v6) => return None,
        (IpAddr::V4(_), _) => [TIME_EXCEEDED_V4, REASSEMBLY],
        (IpAddr::V6(_), _) => [TIME_EXCEEDED_V6, REASSEMBLY],
    };
    Some(error(late.destination, late.source, kind_sent, NOTHING, &late.quote))
}

/// All that are below the first that is none, and redirect.
pub(super) fn is_error_v6(kind: u8) -> bool {
    kind < ECHO_V6 || kind == REDIRECT_V6
}

/// Unreachable, source quench, redirect, time exceeded and parameter problem.
pub(super) fn is_error_v4(kind: u8) -> bool {
    matches!(kind, UNREACHABLE_V4 | 4 | 5 | TIME_EXCEEDED_V4 | 12)
}

/// Bytes of a packet from this address that an error about it quotes at most.
pub(super) fn quote_bytes_max(source: IpAddr) -> usize {
    match source {
        IpAddr::V4(_) => ERROR_BYTES_MAX_V4 - IPV4_BYTES - HEAD_BYTES,
        IpAddr::V6(_) => ERROR_BYTES_MAX_V6 - IPV6_BYTES - HEAD_BYTES,
    }
}

/// What is between the head of an error and what it quotes, if the error says nothing there.
const NOTHING: [u8; 4] = [0; 4];

fn error(from: IpAddr, to: IpAddr, [kind, code]: [u8; 2], rest: [u8; 4], about: &[u8]) -> Vec<u8> {
    let quote = &about[..about.len().min(quote_bytes_max(to))];
    let message = [&[kind, code, 0, 0], &rest[..], quote].concat();
    packet::control(from, to, message)
}

/// Errors that one host, or several that share a place by chance, is sent in a row, and how long it takes until there may
/// be one more.
const ERRORS_IN_A_ROW: u64 = 8;
const ERROR_EVERY_NS: u64 = 100_000_000;

/// Places for hosts.
const PLACES: usize = 256;

/// Limits errors, for each host by itself (RFC 1812 4.3.2.8, RFC 4443 2.4 f): what one host is not sent any more, others are.
#[derive(Debug)]
pub(super) struct Limiter {
    secret: Secret,
    /// Until when what was sent takes of what may be sent.
    taken_until: Box<[u64; PLACES]>,
}

impl Limiter {
    pub(super) fn new(secret: Secret) -> Limiter {
        Limiter { secret, taken_until: Box::new([0; PLACES]) }
    }

    /// Whether an error may be sent to a host now. If so, it is taken as sent.
    pub(super) fn may_send(&mut self, now: u64, to: IpAddr) -> bool {
        let taken_until =
            &mut self.taken_until[self.secret.number(("error", to)) as usize % PLACES];
        let after = now.max(*taken_until).saturating_add(ERROR_EVERY_NS);
        let may_send = after - now <= ERRORS_IN_A_ROW * ERROR_EVERY_NS;
        if may_send {
            *taken_until = after;
        }
        may_send
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(family: usize, head: [u8; 8], quote: &[u8]) -> Vec<u8> {
        let (source, destination) = [("10.1.0.9", "10.1.0.1"), ("fd00::9", "fd00::1")][family];
        let message = [&head[..], quote].concat();
        let mut frame =
            packet::control(source.parse().unwrap(), destination.parse().unwrap(), message);
        packet::set_kind(&mut frame);
        frame
    }

    fn reported(frame: &[u8]) -> Result<Option<Report>, Counter> {
        report(&Packet::parse(frame).unwrap())
    }

    const QUOTE_V4: [u8; 28] = [
        0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2, 0x03, 0xe8, 0,
        80, 1, 2, 3, 4,
    ];

    fn quote_v6() -> Vec<u8> {
        let mut quote = vec![0x60, 0, 0, 0, 0x05, 0xb4, 44, 64, 0xfd];
        quote.extend([0; 14]);
        quote.extend([1, 0xfd]);
        quote.extend([0; 14]);
        quote.push(2);
        // The first fragment of a datagram.
        quote.extend([17, 0, 0, 1, 9, 9, 9, 9, 0x03, 0xe8, 0, 53, 0x10, 0, 0, 0]);
        quote
    }

    #[test]
    fn errors_name_the_connection_that_they_are_about() {
        let expected = Report {
            trouble: Trouble::Refused,
            protocol: packet::TCP,
            local: "10.1.0.1:1000".parse().unwrap(),
            remote: "10.1.0.2:80".parse().unwrap(),
            sequence: 0x0102_0304,
            bytes: 1500,
        };
        let cases = [
            ([3, 3, 0, 0, 0, 0, 0, 0], Trouble::Refused),
            ([3, 2, 0, 0, 0, 0, 0, 0], Trouble::Refused),
            ([3, 1, 0, 0, 0, 0, 0, 0], Trouble::HostUnreachable),
            ([3, 0, 0, 0, 0, 0, 0, 0], Trouble::NetworkUnreachable),
            ([11, 0, 0, 0, 0, 0, 0, 0], Trouble::HostUnreachable),
            ([3, 4, 0, 0, 0, 0, 0x05, 0x00], Trouble::TooBig(1280)),
            ([3, 4, 0, 0, 0, 0, 0, 0], Trouble::TooBig(1492)),
        ];
        for (head, trouble) in cases {
            let frame = message(0, head, &QUOTE_V4);
            assert_eq!(reported(&frame), Ok(Some(Report { trouble, ..expected })));
        }
        let expected = Report {
            trouble: Trouble::Refused,
            protocol: packet::UDP,
            local: "[fd00::1]:1000".parse().unwrap(),
            remote: "[fd00::2]:53".parse().unwrap(),
            sequence: 0x1000_0000,
            bytes: 1500,
        };
        let cases = [
            ([1, 4, 0, 0, 0, 0, 0, 0], Trouble::Refused),
            ([1, 3, 0, 0, 0, 0, 0, 0], Trouble::HostUnreachable),
            ([1, 0, 0, 0, 0, 0, 0, 0], Trouble::NetworkUnreachable),
            ([2, 0, 0, 0, 0, 0, 0x05, 0x14], Trouble::TooBig(1300)),
        ];
        for (head, trouble) in cases {
            let frame = message(1, head, &quote_v6());
            assert_eq!(reported(&frame), Ok(Some(Report { trouble, ..expected })));
        }
        assert_eq!(reported(&message(0, [0; 8], &QUOTE_V4)), Ok(None), "an echo reply");
    }

    #[test]
    fn quotes_that_are_cut_short_or_of_later_fragments_say_nothing() {
        let head = [3, 3, 0, 0, 0, 0, 0, 0];
        for bytes in 0..QUOTE_V4.len() {
            let frame = message(0, head, &QUOTE_V4[..bytes]);
            assert_eq!(reported(&frame), Err(Counter::Malformed), "{bytes} bytes");
        }
        let mut later = QUOTE_V4;
        later[7] = 1;
        assert_eq!(reported(&message(0, head, &later)), Ok(None));
        let quote = quote_v6();
        for bytes in 0..quote.len() {
            let frame = message(1, [1, 4, 0, 0, 0, 0, 0, 0], &quote[..bytes]);
            assert_eq!(reported(&frame), Err(Counter::Malformed), "{bytes} bytes");
        }
    }

    #[test]
    fn errors_to_one_host_are_limited_and_others_get_theirs() {
        let mut limiter = Limiter::new(Secret([7; 16]));
        let (one, other) = ("10.1.0.2".parse().unwrap(), "10.1.0.3".parse().unwrap());
        let count = |limiter: &mut Limiter, now| {
            (0..100).filter(|_| limiter.may_send(now, one)).count() as u64
        };
        assert_eq!(count(&mut limiter, 5), ERRORS_IN_A_ROW);
        assert!(limiter.may_send(5, other));
        assert_eq!(count(&mut limiter, 5 + 3 * ERROR_EVERY_NS), 3);
        assert_eq!(count(&mut limiter, 1000 * ERROR_EVERY_NS), ERRORS_IN_A_ROW);
        limiter.may_send(u64::MAX, one);
    }

    proptest! {
        #[test]
        fn no_message_is_too_much(family in 0..2usize, bytes in prop::collection::vec(any::<u8>(), 8..120)) {
            let head = *bytes.first_chunk().unwrap();
            let _ = reported(&message(family, head, &bytes[8..]));
        }
    }
}
