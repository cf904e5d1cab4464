//! Packets of IP as they are received and made: what is checked before anything believes them, and what a stack sends
//! by itself.
//!
//! Nothing here trusts a length. What fails a check is named by the counter that it is dropped under.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::tcp::Outgoing;
use crate::board::Counter;
use crate::lan::frame::{ETHERNET_BYTES, Mac, u16_at, u32_at};
use crate::lan::offload::{Checksum, Offload, folded, pseudo_header, sum_of};

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const ARP: u16 = 0x0806;

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;

pub(super) const IPV4_BYTES: usize = 20;
pub(super) const IPV6_BYTES: usize = 40;
pub(super) const TCP_BYTES: usize = 20;
pub(super) const UDP_BYTES: usize = 8;

/// Headers of IPv6 between its own and the transport's (RFC 8200 4.1).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
pub(super) const DESTINATION_OPTIONS: u8 = 60;

pub(super) const FRAGMENT_HEADER_BYTES: usize = 8;

/// Headers between that of IPv6 and the transport's, at most. Each may come once, but for options, which may come twice.
const EXTENSIONS_MAX: usize = 5;

const HOP_LIMIT: u8 = 64;

/// Flags of TCP.
pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

/// Where the checksum is in a header of TCP, and of UDP.
pub(super) const TCP_CHECKSUM_AT: usize = 16;
pub(super) const UDP_CHECKSUM_AT: usize = 6;

/// Bytes of the longest packet over IPv4, and of the longest behind IPv6's header.
pub(super) const LENGTH_MAX: usize = 65_535;

/// A packet that is what it says, as far as its headers of IP go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    /// From the header of IP on, without what was added to the end of a short frame.
    pub(super) bytes: &'a [u8],
    /// Bytes of the header of IP, and of those between it and the transport.
    pub(super) header_bytes: usize,
    /// If it is a part of a packet, which. Then what follows the header is no transport.
    pub(super) fragment: Option<Fragment>,
}

/// Which part of a packet this is (RFC 791 3.1, RFC 8200 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) identification: u32,
    /// Where its data begins in that of the packet: a multiple of 8.
    pub(super) offset: usize,
    /// Whether it is not the last.
    pub(super) has_more: bool,
}

impl Fragment {
    /// All of a packet.
    pub(super) fn all(identification: u32) -> Fragment {
        Fragment { identification, offset: 0, has_more: false }
    }
}

/// What is behind the headers that may stand between that of IPv6 and the transport.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) protocol: u8,
    /// Bytes of these headers.
    pub(super) bytes: usize,
    pub(super) fragment: Option<Fragment>,
}

/// Skips the headers of IPv6 that begin with one of this `protocol`, up to the transport or the data of a fragment.
pub(super) fn chain(mut protocol: u8, bytes: &[u8]) -> Result<Chain, Counter> {
    let mut at = 0;
    for count in 0..=EXTENSIONS_MAX {
        let is_extension = match protocol {
            HOP_BY_HOP if count == 0 => true,
            HOP_BY_HOP => return Err(Counter::Extension),
            ROUTING | FRAGMENT | DESTINATION_OPTIONS => true,
            _ => false,
        };
        if !is_extension {
            return Ok(Chain { protocol, bytes: at, fragment: None });
        }
        let head = bytes[at..].first_chunk::<8>().ok_or(Counter::Malformed)?;
        let header_bytes = match protocol {
            FRAGMENT => FRAGMENT_HEADER_BYTES,
            _ => 8 + 8 * usize::from(head[1]),
        };
        let header = bytes.get(at..at + header_bytes).ok_or(Counter::Malformed)?;
        at += header_bytes;
        match protocol {
            FRAGMENT => {
                let place = u16::from_be_bytes([head[2], head[3]]);
                let fragment = Fragment {
                    identification: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
                    offset: usize::from(place & !7),
                    has_more: place & 1 != 0,
                };
                // One that is all of its packet is no part of one (RFC 6946).
                if fragment.offset != 0 || fragment.has_more {
                    return Ok(Chain { protocol: head[0], bytes: at, fragment: Some(fragment) });
                }
            }
            // Who is named there is to pass it on: nobody passes anything on here.
            ROUTING if head[3] != 0 => return Err(Counter::Extension),
            ROUTING => {}
            _ if may_skip_options(&header[2..]) => {}
            _ => return Err(Counter::Extension),
        }
        protocol = head[0];
    }
    Err(Counter::Extension)
}

/// Whether a packet with these options may be taken by one who knows none of them (RFC 8200 4.2).
fn may_skip_options(mut options: &[u8]) -> bool {
    const PADDING_OF_ONE: u8 = 0;
    loop {
        options = match *options {
            [] => return true,
            [PADDING_OF_ONE, ref rest @ ..] => rest,
            [kind, length, ref rest @ ..] if kind >> 6 == 0 => {
                match rest.get(usize::from(length)..) {
                    Some(rest) => rest,
                    None => return false,
                }
            }
            _ => return false,
        };
    }
}

impl<'a> Packet<'a> {
    /// The packet in a frame (RFC 791 3.1, RFC 8200 3).
    pub(super) fn parse(frame: &'a [u8]) -> Result<Packet<'a>, Counter> {
        let bytes = frame.get(ETHERNET_BYTES..).ok_or(Counter::Malformed)?;
        let packet = match u16_at(frame, 12) {
            Some(IPV4) => Packet::parse_v4(bytes)?,
            Some(IPV6) => Packet::parse_v6(bytes)?,
            _ => return Err(Counter::OtherProtocol),
        };
        // Nobody sends from these, and an answer to them would go astray.
        if !is_host(packet.source) {
            return Err(Counter::BadSource);
        }
        Ok(packet)
    }

    fn parse_v4(bytes: &'a [u8]) -> Result<Packet<'a>, Counter> {
        let head = bytes.get(..IPV4_BYTES).ok_or(Counter::Malformed)?;
        let header_bytes = usize::from(head[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let is_whole = head[0] >> 4 == 4 && header_bytes >= IPV4_BYTES && total >= header_bytes;
        let bytes = bytes.get(..total).filter(|_| is_whole).ok_or(Counter::Malformed)?;
        if folded(sum_of(&bytes[..header_bytes])) != 0xffff {
            return Err(Counter::BadChecksum);
        }
        let place = u16::from_be_bytes([head[6], head[7]]);
        let fragment = (place & 0x3fff != 0).then(|| Fragment {
            identification: u16::from_be_bytes([head[4], head[5]]).into(),
            offset: usize::from(place & 0x1fff) * 8,
            has_more: place & 0x2000 != 0,
        });
        let address = |at: usize| {
            IpAddr::from(Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]))
        };
        Ok(Packet {
            source: address(12),
            destination: address(16),
            protocol: head[9],
            bytes,
            header_bytes,
            fragment,
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<Packet<'a>, Counter> {
        let head = bytes.get(..IPV6_BYTES).ok_or(Counter::Malformed)?;
        let total = IPV6_BYTES + usize::from(u16::from_be_bytes([head[4], head[5]]));
        let bytes = bytes.get(..total).filter(|_| head[0] >> 4 == 6).ok_or(Counter::Malformed)?;
        let address =
            |at: usize| head[at..].first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets));
        let (source, destination) = address(8).zip(address(24)).ok_or(Counter::Malformed)?;
        let Chain { protocol, bytes: chain_bytes, fragment } =
            chain(head[6], &bytes[IPV6_BYTES..])?;
        Ok(Packet {
            source: source.into(),
            destination: destination.into(),
            protocol,
            bytes,
            header_bytes: IPV6_BYTES + chain_bytes,
            fragment,
        })
    }

    /// Whether headers stand between that of IP and the transport's.
    pub(super) fn has_extensions(&self) -> bool {
        self.source.is_ipv6() && self.header_bytes != IPV6_BYTES
    }

    /// A frame with an empty Ethernet header and this packet without what stands between its headers.
    pub(super) fn plain(&self) -> Vec<u8> {
        let transport = self.transport();
        let mut frame = begin(self.source, self.destination, self.protocol, transport.len());
        frame.extend_from_slice(transport);
        set_kind(&mut frame);
        frame
    }

    /// A frame with an empty Ethernet header and this packet.
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(ETHERNET_BYTES + self.bytes.len());
        frame.extend_from_slice(&[0; ETHERNET_BYTES]);
        frame.extend_from_slice(self.bytes);
        set_kind(&mut frame);
        frame
    }

    /// Returns true if this is a whole segment of TCP.
    pub(super) fn is_segment(&self) -> bool {
        self.protocol == TCP && self.fragment.is_none()
    }

    /// The header of the transport, and its data.
    pub(super) fn transport(&self) -> &'a [u8] {
        &self.bytes[self.header_bytes..]
    }

    /// Whether the checksum of the transport is right, or need not be looked at: it is complete only where a frame has
    /// crossed a wire.
    pub(super) fn is_intact(&self, checksum: Checksum) -> bool {
        if checksum != Checksum::Unknown {
            return true;
        }
        let transport = self.transport();
        if self.protocol == ICMP {
            return folded(sum_of(transport)) == 0xffff;
        }
        // A datagram over IPv4 may have none (RFC 768).
        if self.protocol == UDP && self.source.is_ipv4() && u16_at(transport, 6) == Some(0) {
            return true;
        }
        let bytes = transport.len() as u32;
        let pseudo = pseudo_header(self.bytes, 0, self.source.is_ipv4(), self.protocol, bytes);
        folded(sum_of(transport) + u64::from(pseudo)) == 0xffff
    }
}

/// Whether it is the address of one host that is elsewhere.
pub(super) fn is_host(address: IpAddr) -> bool {
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback() || is_broadcast)
}

/// The header of a segment of TCP (RFC 9293 3.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) source: u16,
    pub(super) destination: u16,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) data_bytes: usize,
}

/// Both addresses in a header of IP, if it is whole and they are those of hosts: where the packet is from, and where it goes.
pub(super) fn ends(header: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?).into());
    let v6 = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?).into());
    let (source, destination) = match header.first()? >> 4 {
        4 => (v4(12)?, v4(16)?),
        _ => (v6(8)?, v6(24)?),
    };
    is_host(source).then_some((source, destination))
}

impl Segment {
    pub(super) fn parse(transport: &[u8]) -> Result<Segment, Counter> {
        Segment::parse_start(transport, transport.len())
    }

    /// The same of a segment of `bytes`, of which no more than the start need be at hand.
    pub(super) fn parse_start(transport: &[u8], bytes: usize) -> Result<Segment, Counter> {
        let head = transport.get(..TCP_BYTES).ok_or(Counter::Malformed)?;
        let header_bytes = usize::from(head[12] >> 4) * 4;
        let number = |at: usize| u16_at(head, at).ok_or(Counter::Malformed);
        let long = |at: usize| u32_at(head, at).ok_or(Counter::Malformed);
        let segment = Segment {
            source: number(0)?,
            destination: number(2)?,
            sequence: long(4)?,
            acknowledgement: long(8)?,
            flags: head[13],
            window: number(14)?,
            data_bytes: bytes.checked_sub(header_bytes).ok_or(Counter::Malformed)?,
        };
        // A segment that begins and ends a connection at once is no segment.
        let contradicts = segment.has(SYN) && (segment.has(RST) || segment.has(FIN));
        if header_bytes < TCP_BYTES
            || segment.source == 0
            || segment.destination == 0
            || contradicts
            || !transport.get(TCP_BYTES..header_bytes).is_some_and(are_options_whole)
        {
            return Err(Counter::Malformed);
        }
        Ok(segment)
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Where its data ends.
    pub(super) fn data_end(&self) -> u32 {
        self.sequence.wrapping_add(self.data_bytes as u32)
    }

    /// Whether it only asks for an acknowledgement: it ends before the next byte that is `expected`, with one byte that was
    /// received already, or none (RFC 9293 3.8.4).
    pub(super) fn is_probe(&self, expected: u32) -> bool {
        let is_plain = self.has(ACK) && !self.has(RST) && !self.has(SYN) && !self.has(FIN);
        is_plain && self.data_bytes <= 1 && self.sequence == expected.wrapping_sub(1)
    }

    /// What it takes of the sequence space.
    pub(super) fn length(&self) -> u32 {
        self.data_bytes as u32 + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }
}

/// Whether each option of TCP ends where the header does, or before (RFC 9293 3.1).
fn are_options_whole(mut options: &[u8]) -> bool {
    loop {
        options = match *options {
            [] | [END, ..] => return true,
            [NOTHING, ref rest @ ..] => rest,
            [_, length, ..] if length >= 2 => match options.get(usize::from(length)..) {
                Some(rest) => rest,
                None => return false,
            },
            _ => return false,
        };
    }
}

const END: u8 = 0;
const NOTHING: u8 = 1;

/// Bytes of the longest segment of one that says nothing of it, over IPv4 and IPv6 (RFC 9293 3.7.1).
const SEGMENT_BYTES_MAX: [u16; 2] = [536, 1220];

/// Bytes of the longest options of TCP.
pub(super) const TCP_OPTIONS_BYTES_MAX: usize = 40;

/// What a side's first segment says of how it wants to be spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Bytes of the longest segment that it takes (RFC 9293 3.7.1).
    pub(super) segment_bytes_max: u16,
    /// By how many bits its windows are shifted, if windows are scaled (RFC 7323 2.2).
    pub(super) window_shift: Option<u8>,
    /// Whether it takes selective acknowledgements (RFC 2018 2).
    pub(super) takes_selective: bool,
}

/// Times that segments carry (RFC 7323 3.2): one of the sender's, and the last of the other side's that it has taken note of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) value: u32,
    pub(super) echoed: u32,
}

/// What a clock shows at a time that has begun at `offset`: it goes on each millisecond.
pub(super) fn clock(now: u64, offset: u32) -> u32 {
    ((now / TIME_STEP_NS) as u32).wrapping_add(offset)
}

/// One step of it.
pub(super) const TIME_STEP_NS: u64 = 1_000_000;

impl Times {
    /// Bytes of the option that says this.
    pub(super) const BYTES: usize = 12;

    /// What a header of TCP says. Most have this option alone, and where it is put in all.
    pub(super) fn parse(header: &[u8]) -> Option<Times> {
        let said = match header.get(TCP_BYTES..TCP_BYTES + 4) {
            Some([NOTHING, NOTHING, TIMES, 10]) => header.get(TCP_BYTES + 4..),
            _ => option(header, TIMES).filter(|option| option.len() == 10)?.get(2..),
        };
        Some(Times { value: u32_at(said?, 0)?, echoed: u32_at(said?, 4)? })
    }

    fn put(&self, frame: &mut Vec<u8>) {
        frame.extend_from_slice(&[NOTHING, NOTHING, TIMES, 10]);
        frame.extend_from_slice(&self.value.to_be_bytes());
        frame.extend_from_slice(&self.echoed.to_be_bytes());
    }
}

impl Agreed {
    /// Bytes of the options that say this.
    pub(super) fn bytes(&self) -> usize {
        4 + if self.window_shift.is_some() { 4 } else { 0 }
            + if self.takes_selective { 4 } else { 0 }
    }

    fn put(&self, frame: &mut Vec<u8>) {
        let [high, low] = self.segment_bytes_max.to_be_bytes();
        frame.extend_from_slice(&[SEGMENT_BYTES, 4, high, low]);
        if let Some(shift) = self.window_shift {
            frame.extend_from_slice(&[NOTHING, WINDOW_SCALE, 3, shift]);
        }
        if self.takes_selective {
            frame.extend_from_slice(&[NOTHING, NOTHING, SELECTIVE, 2]);
        }
    }

    /// By how many bits the windows of the side that has said this are shifted (RFC 7323 2.3).
    pub(super) fn shift(&self) -> u32 {
        self.window_shift.unwrap_or(0).min(SHIFT_MAX).into()
    }
}

/// By how many bits windows are shifted at most (RFC 7323 2.3).
pub(super) const SHIFT_MAX: u8 = 14;

const SEGMENT_BYTES: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SELECTIVE: u8 = 4;
pub(super) const SELECTIVE_RANGES: u8 = 5;
const TIMES: u8 = 8;

/// What the options of a first segment say.
pub(super) fn agreed(transport: &[u8], is_v4: bool) -> Agreed {
    let segment_bytes_max = said_segment_bytes(transport);
    let segment_bytes_max = segment_bytes_max.unwrap_or(SEGMENT_BYTES_MAX[usize::from(!is_v4)]);
    let window_shift = match option(transport, WINDOW_SCALE) {
        Some(&[_, 3, shift]) => Some(shift),
        _ => None,
    };
    let takes_selective = matches!(option(transport, SELECTIVE), Some([_, 2]));
    Agreed { segment_bytes_max, window_shift, takes_selective }
}

fn said_segment_bytes(transport: &[u8]) -> Option<u16> {
    match option(transport, SEGMENT_BYTES)? {
        &[_, 4, high, low] if (high, low) != (0, 0) => Some(u16::from_be_bytes([high, low])),
        _ => None,
    }
}

/// The option of this kind in a header of TCP, from its kind on.
pub(super) fn option(transport: &[u8], kind: u8) -> Option<&[u8]> {
    let header_bytes = transport.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    let mut options = transport.get(TCP_BYTES..header_bytes).unwrap_or_default();
    loop {
        options = match *options {
            [END, ..] | [] | [_] => return None,
            [NOTHING, ref rest @ ..] => rest,
            [found, length, ..] if found == kind => return options.get(..usize::from(length)),
            [_, length, ..] => options.get(usize::from(length.max(2))..)?,
        };
    }
}

/// The header of a datagram of UDP and where its data is, in the transport (RFC 768).
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) source: u16,
    pub(super) destination: u16,
    pub(super) data: &'a [u8],
}

impl<'a> Datagram<'a> {
    pub(super) fn parse(transport: &'a [u8]) -> Result<Datagram<'a>, Counter> {
        let number = |at: usize| u16_at(transport, at).ok_or(Counter::Malformed);
        let data = transport.get(UDP_BYTES..usize::from(number(4)?)).ok_or(Counter::Malformed)?;
        let datagram = Datagram { source: number(0)?, destination: number(2)?, data };
        match datagram.destination {
            0 => Err(Counter::Malformed),
            _ => Ok(datagram),
        }
    }
}

/// A frame with room for an Ethernet header, and a header of IP for `bytes` of a transport that is to be appended.
pub(super) fn begin(source: IpAddr, destination: IpAddr, protocol: u8, bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET_BYTES + IPV6_BYTES + bytes);
    begin_in(&mut frame, source, destination, protocol, bytes);
    frame
}

/// The same, in place of what was in `frame`.
fn begin_in(frame: &mut Vec<u8>, source: IpAddr, destination: IpAddr, protocol: u8, bytes: usize) {
    frame.clear();
    frame.extend_from_slice(&[0; ETHERNET_BYTES]);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = (IPV4_BYTES + bytes) as u16;
            frame.extend_from_slice(&[0x45, 0]);
            frame.extend_from_slice(&total.to_be_bytes());
            // Not to be fragmented: so it needs no identification (RFC 6864 4.1).
            frame.extend_from_slice(&[0, 0, 0x40, 0, HOP_LIMIT, protocol, 0, 0]);
            frame.extend_from_slice(&source.octets());
            frame.extend_from_slice(&destination.octets());
            let sum = !folded(sum_of(&frame[ETHERNET_BYTES..]));
            frame[ETHERNET_BYTES + 10..ETHERNET_BYTES + 12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend_from_slice(&[0x60, 0, 0, 0]);
            frame.extend_from_slice(&(bytes as u16).to_be_bytes());
            frame.extend_from_slice(&[protocol, HOP_LIMIT]);
            frame.extend_from_slice(&source.octets());
            frame.extend_from_slice(&destination.octets());
        }
        _ => unreachable!("both are of one family"),
    }
}

/// Says in the header of IP of a frame that was begun of which service it is (RFC 791: its type of service; RFC 2474: its code point, and two bits).
pub(super) fn set_service(frame: &mut [u8], service: u8) {
    let ip = &mut frame[ETHERNET_BYTES..];
    if ip[0] >> 4 == 6 {
        ip[0] = 0x60 | service >> 4;
        ip[1] = service << 4 | ip[1] & 15;
        return;
    }
    ip[1] = service;
    ip[10..12].fill(0);
    let sum = !folded(sum_of(&ip[..IPV4_BYTES]));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Of which service the packet of a frame says that it is; 0 if it is none of IP.
pub(super) fn service(frame: &[u8]) -> u8 {
    match frame.get(ETHERNET_BYTES..).unwrap_or_default() {
        [first, second, ..] if first >> 4 == 4 => *second,
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        _ => 0,
    }
}

/// Leaves the checksum of TCP or UDP to whoever needs it: puts the sum of the pseudo-header where it goes.
pub(super) fn leave_checksum(frame: &mut [u8]) -> Offload {
    leave_checksum_of(frame, frame.len())
}

/// The same of a frame of so many bytes, of which no more is at hand than its headers.
pub(super) fn leave_checksum_of(frame: &mut [u8], frame_bytes: usize) -> Offload {
    let is_v4 = frame[ETHERNET_BYTES] >> 4 == 4;
    let (transport, protocol) = match is_v4 {
        true => {
            let header_bytes = usize::from(frame[ETHERNET_BYTES] & 15) * 4;
            (ETHERNET_BYTES + header_bytes, frame[ETHERNET_BYTES + 9])
        }
        false => (ETHERNET_BYTES + IPV6_BYTES, frame[ETHERNET_BYTES + 6]),
    };
    let at = if protocol == UDP { UDP_CHECKSUM_AT } else { TCP_CHECKSUM_AT };
    let bytes = (frame_bytes - transport) as u32;
    let pseudo = pseudo_header(frame, ETHERNET_BYTES, is_v4, protocol, bytes);
    frame[transport + at..transport + at + 2].copy_from_slice(&pseudo.to_be_bytes());
    let checksum = Checksum::Partial { start: transport as u16, at: at as u16 };
    Offload { checksum, ..Offload::NONE }
}

/// Takes the checksum of TCP or UDP in a frame as left out, whatever there is: for frames that have come from memory over a device that says
/// nothing of checksums. Whoever needs the checksum completes it. Fragments, and packets that are not what they say, stay as they are.
pub fn trust(frame: &mut [u8]) -> Offload {
    let found = Packet::parse(frame).ok().and_then(|packet| {
        let at = match packet.protocol {
            TCP => TCP_CHECKSUM_AT,
            UDP => UDP_CHECKSUM_AT,
            _ => return None,
        };
        let transport = packet.transport();
        // What is added to the end of a short frame is no part of the sum.
        let is_whole =
            packet.fragment.is_none() && frame.len() == ETHERNET_BYTES + packet.bytes.len();
        (is_whole && transport.len() >= at + 2).then(|| {
            let is_v4 = packet.source.is_ipv4();
            let bytes = transport.len() as u32;
            let pseudo = pseudo_header(frame, ETHERNET_BYTES, is_v4, packet.protocol, bytes);
            (ETHERNET_BYTES + packet.header_bytes, at, pseudo)
        })
    });
    let Some((start, at, pseudo)) = found else { return Offload::NONE };
    frame[start + at..start + at + 2].copy_from_slice(&pseudo.to_be_bytes());
    let checksum = Checksum::Partial { start: start as u16, at: at as u16 };
    Offload { checksum, ..Offload::NONE }
}

/// Puts the Ethernet header in front of a packet.
pub fn address(frame: &mut [u8], destination: Mac, source: Mac) {
    frame[..6].copy_from_slice(&destination.0);
    frame[6..12].copy_from_slice(&source.0);
    set_kind(frame);
}

/// Says in the Ethernet header which IP follows.
pub(crate) fn set_kind(frame: &mut [u8]) {
    let kind = if frame[ETHERNET_BYTES] >> 4 == 4 { IPV4 } else { IPV6 };
    frame[12..ETHERNET_BYTES].copy_from_slice(&kind.to_be_bytes());
}

/// Makes a frame that has a header of IP, and nothing behind it yet, the head of a fragment with `bytes` of data.
pub(super) fn make_fragment(frame: &mut Vec<u8>, fragment: Fragment, bytes: usize) {
    let ip = ETHERNET_BYTES;
    let Fragment { identification, offset, has_more } = fragment;
    if frame[ip] >> 4 == 4 {
        let place = (offset / 8) as u16 | if has_more { 0x2000 } else { 0 };
        frame[ip + 2..ip + 4].copy_from_slice(&((IPV4_BYTES + bytes) as u16).to_be_bytes());
        frame[ip + 4..ip + 6].copy_from_slice(&(identification as u16).to_be_bytes());
        frame[ip + 6..ip + 8].copy_from_slice(&place.to_be_bytes());
        frame[ip + 10..ip + 12].fill(0);
        let sum = !folded(sum_of(&frame[ip..]));
        frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        return;
    }
    let place = offset as u16 | u16::from(has_more);
    let length = (FRAGMENT_HEADER_BYTES + bytes) as u16;
    let protocol = std::mem::replace(&mut frame[ip + 6], FRAGMENT);
    frame[ip + 4..ip + 6].copy_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&[protocol, 0]);
    frame.extend_from_slice(&place.to_be_bytes());
    frame.extend_from_slice(&identification.to_be_bytes());
}

/// What a segment without data says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bare {
    pub(super) flags: u8,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) window: u16,
    pub(super) times: Option<Times>,
}

/// A segment without data or other options than times.
pub(super) fn bare(source: SocketAddr, destination: SocketAddr, bare: Bare) -> Vec<u8> {
    first(source, destination, bare, None)
}

/// A segment without data, with the options of a first one.
pub(super) fn first(
    source: SocketAddr,
    destination: SocketAddr,
    bare: Bare,
    agreed: Option<Agreed>,
) -> Vec<u8> {
    let Bare { flags, sequence, acknowledgement, window, times } = bare;
    let segment =
        Outgoing { flags, sequence, acknowledgement, window, agreed, times, ..Outgoing::default() };
    let mut frame = Vec::new();
    begin_segment(&mut frame, source, destination, &segment);
    frame
}

/// Puts a segment into `frame`, in place of what was there: all but its data.
pub(super) fn begin_segment(
    frame: &mut Vec<u8>,
    source: SocketAddr,
    destination: SocketAddr,
    segment: &Outgoing,
) {
    let header_bytes = segment.header_bytes();
    let bytes = header_bytes + segment.data_bytes;
    begin_in(frame, source.ip(), destination.ip(), TCP, bytes);
    frame.extend_from_slice(&source.port().to_be_bytes());
    frame.extend_from_slice(&destination.port().to_be_bytes());
    frame.extend_from_slice(&segment.sequence.to_be_bytes());
    frame.extend_from_slice(&segment.acknowledgement.to_be_bytes());
    frame.extend_from_slice(&[(header_bytes as u8 / 4) << 4, segment.flags]);
    frame.extend_from_slice(&segment.window.to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    if let Some(agreed) = segment.agreed {
        agreed.put(frame);
    }
    if let Some(times) = segment.times {
        times.put(frame);
    }
    let ranges = &segment.ranges[..segment.ranges_count];
    if !ranges.is_empty() {
        let bytes = 2 + 8 * ranges.len() as u8;
        frame.extend_from_slice(&[NOTHING, NOTHING, SELECTIVE_RANGES, bytes]);
        for number in ranges.iter().flat_map(|(begin, end)| [begin, end]) {
            frame.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// A datagram of UDP.
pub(super) fn datagram(source: SocketAddr, destination: SocketAddr, data: &[u8]) -> Vec<u8> {
    let bytes = UDP_BYTES + data.len();
    let mut frame = begin(source.ip(), destination.ip(), UDP, bytes);
    frame.extend_from_slice(&source.port().to_be_bytes());
    frame.extend_from_slice(&destination.port().to_be_bytes());
    frame.extend_from_slice(&(bytes as u16).to_be_bytes());
    frame.extend_from_slice(&[0; 2]);
    frame.extend_from_slice(data);
    frame
}

/// A message of ICMP or ICMPv6, whose first four bytes are its type, its code and room for the checksum.
pub(super) fn control(source: IpAddr, destination: IpAddr, mut message: Vec<u8>) -> Vec<u8> {
    let protocol = if source.is_ipv4() { ICMP } else { ICMPV6 };
    let mut frame = begin(source, destination, protocol, message.len());
    message[2..4].fill(0);
    let pseudo = match source {
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => pseudo_header(&frame, ETHERNET_BYTES, false, ICMPV6, message.len() as u32),
    };
    let sum = !folded(sum_of(&message) + u64::from(pseudo));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}
