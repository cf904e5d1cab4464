//! What a network card's descriptor says of a frame: work that ends which are memory leave out, and that is
//! completed for a member that cannot take it.
//!
//! It goes with each frame as the head of its message, little-endian:
//!
//! ```text
//! offset  0  segmentation u8: 0 none, 1 TCP over IPv4, 4 TCP over IPv6, 5 UDP
//!         1  flags u8: 1 checksum to be completed, 2 checksum verified, 4 VLAN, 128 congestion (TCP)
//!         2  header_bytes u16: of each segment
//!         4  segment_bytes u16: of data in each segment but the last
//!         6  checksum_start u16
//!         8  checksum_at u16: from there
//!        10  VLAN tag u16
//!        12  0 u32
//! ```
//!
//! Numbers and flags are those of Linux' `virtio_net_hdr` (`include/uapi/linux/virtio_net.h`), but for VLAN and
//! congestion. Everything here comes from another member: [`Offload::parse`] takes nothing that does not agree with
//! the frame, so that whoever uses it needs no other check.

use super::frame::{ETHERNET_BYTES, u16_at, u32_at};
use super::in_place::FrameInPlace;

/// Bytes of the head.
pub const HEAD_BYTES: usize = 16;

/// Bytes of the longest frame, Ethernet header included: a segment of 64 KiB.
pub const FRAME_BYTES_MAX: usize = 65_535 + ETHERNET_BYTES;

/// The most segments of a frame. A frame of 64 KiB has 45 of 1448 bytes, and 122 of 536.
pub const SEGMENTS_MAX: usize = 256;

/// Bytes at the start of a frame that [`Offload::parse_start`] looks at: headers of Ethernet, IPv4 and TCP with all options.
pub const START_BYTES: usize = ETHERNET_BYTES + 60 + 60;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const HAS_VLAN: u8 = 4;
const CONGESTION: u8 = 128;

/// TCP flags that only the last segment has: FIN and PSH. Only the first has CWR.
const TCP_LAST: u8 = 0x01 | 0x08;
const TCP_FIRST: u8 = 0x80;

/// What is known of a frame's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It is in the frame, or the frame has none. Nobody has looked.
    Unknown,
    /// It need not be looked at.
    Verified,
    /// The sum of the frame from `start` on is still to be put `at` bytes behind `start`, where that of the
    /// pseudo-header is.
    Partial {
        /// Where what is summed begins.
        start: u16,
        /// Where the sum goes, from there.
        at: u16,
    },
}

/// Of what kind the segments of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP, over either: each segment is a datagram.
    Udp,
}

impl Kind {
    const NUMBERS: [(u8, Kind); 3] = [(1, Kind::Tcp4), (4, Kind::Tcp6), (5, Kind::Udp)];

    fn number(self) -> u8 {
        let found = Self::NUMBERS.iter().find(|(_, kind)| *kind == self);
        found.map_or(0, |(number, _)| *number)
    }
}

/// A frame that stands for several segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// What they are.
    pub kind: Kind,
    /// Whether the first of them tells of congestion (CWR).
    pub congestion: bool,
    /// Bytes of the headers that each of them repeats.
    pub header_bytes: u16,
    /// Bytes of data in each but the last.
    pub segment_bytes: u16,
}

/// What goes with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// What is known of its checksum.
    pub checksum: Checksum,
    /// Whether it stands for several segments.
    pub segmentation: Option<Segmentation>,
    /// The tag of its VLAN, if it has one: not in the frame.
    pub vlan: Option<u16>,
}

/// Why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadFrame {
    /// It is shorter than an Ethernet header, or longer than [`FRAME_BYTES_MAX`].
    #[error("a frame of {bytes} bytes: must be {ETHERNET_BYTES} to {FRAME_BYTES_MAX}")]
    Length {
        /// How long it is.
        bytes: usize,
    },
    /// The head is not [`HEAD_BYTES`] long, or has bits that mean nothing.
    #[error("the head of a frame makes no sense")]
    Head,
    /// The checksum would not be in the frame.
    #[error("checksum from {start}, {at} behind: must lie in the frame's {bytes} bytes")]
    Checksum {
        /// Where it begins.
        start: u16,
        /// Where it is, from there.
        at: u16,
        /// How long the frame is.
        bytes: usize,
    },
    /// The frame does not begin with the headers that its segmentation says, or has too many segments.
    #[error("the frame is not what its segmentation says")]
    Segmentation,
}

impl Offload {
    /// Nothing is left out.
    pub const NONE: Offload =
        Offload { checksum: Checksum::Unknown, segmentation: None, vlan: None };

    /// What the head of a frame says.
    ///
    /// # Errors
    /// [`BadFrame`]: it makes no sense, or not of this frame.
    pub fn parse(head: &[u8], frame: &[u8]) -> Result<Offload, BadFrame> {
        Offload::parse_start(head, frame, frame.len())
    }

    /// As [`Offload::parse`], of a frame of `bytes` of which no more is at hand than its `start`: [`START_BYTES`], or all.
    ///
    /// # Errors
    /// [`BadFrame`]: it makes no sense, or not of this frame.
    pub fn parse_start(head: &[u8], start: &[u8], bytes: usize) -> Result<Offload, BadFrame> {
        if !(ETHERNET_BYTES..=FRAME_BYTES_MAX).contains(&bytes) {
            return Err(BadFrame::Length { bytes });
        }
        let head: &[u8; HEAD_BYTES] = head.try_into().map_err(|_| BadFrame::Head)?;
        let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let (kind, flags) = (head[0], head[1]);
        let is_known = flags & !(NEEDS_CHECKSUM | DATA_VALID | HAS_VLAN | CONGESTION) == 0;
        if !is_known || head[12..] != [0; 4] {
            return Err(BadFrame::Head);
        }
        let checksum = match flags & (NEEDS_CHECKSUM | DATA_VALID) {
            0 => Checksum::Unknown,
            DATA_VALID => Checksum::Verified,
            NEEDS_CHECKSUM => Checksum::Partial { start: number(6), at: number(8) },
            _ => return Err(BadFrame::Head),
        };
        if let Checksum::Partial { start, at } = checksum
            && (usize::from(start) < ETHERNET_BYTES
                || usize::from(start) + usize::from(at) + 2 > bytes)
        {
            return Err(BadFrame::Checksum { start, at, bytes });
        }
        let congestion = flags & CONGESTION != 0;
        let known = Kind::NUMBERS.iter().find(|(number, _)| *number == kind);
        let segmentation = match (kind, known) {
            (0, _) if !congestion => None,
            (_, Some((_, kind))) if !congestion || *kind != Kind::Udp => Some(Segmentation {
                kind: *kind,
                congestion,
                header_bytes: number(2),
                segment_bytes: number(4),
            }),
            _ => return Err(BadFrame::Head),
        };
        let offload =
            Offload { checksum, segmentation, vlan: (flags & HAS_VLAN != 0).then(|| number(10)) };
        let fits = |segmentation: Segmentation| {
            let layout = Layout::of(start, bytes, segmentation);
            layout.is_some_and(|layout| layout.fits(offload, segmentation))
        };
        if segmentation.is_some_and(|segmentation| !fits(segmentation)) {
            return Err(BadFrame::Segmentation);
        }
        Ok(offload)
    }

    /// The head that says this.
    pub fn head(self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        let mut put = |at: usize, number: u16| {
            head[at..at + 2].copy_from_slice(&number.to_le_bytes());
        };
        let mut flags = 0;
        match self.checksum {
            Checksum::Unknown => {}
            Checksum::Verified => flags |= DATA_VALID,
            Checksum::Partial { start, at } => {
                flags |= NEEDS_CHECKSUM;
                put(6, start);
                put(8, at);
            }
        }
        if let Some(tag) = self.vlan {
            flags |= HAS_VLAN;
            put(10, tag);
        }
        if let Some(segmentation) = self.segmentation {
            put(2, segmentation.header_bytes);
            put(4, segmentation.segment_bytes);
            head[0] = segmentation.kind.number();
            flags |= if segmentation.congestion { CONGESTION } else { 0 };
        }
        head[1] = flags;
        head
    }

    /// How many segments a frame of `bytes` stands for.
    pub fn segments(self, bytes: usize) -> usize {
        let Some(Segmentation { header_bytes, segment_bytes, .. }) = self.segmentation else {
            return 1;
        };
        let data = bytes.saturating_sub(usize::from(header_bytes));
        data.div_ceil(usize::from(segment_bytes).max(1)).max(1)
    }
}

/// Completes the checksum of a frame that [`Offload::parse`] has let through; does nothing if none is missing.
pub fn complete_checksum(checksum: Checksum, frame: &mut [u8]) {
    let Checksum::Partial { start, at } = checksum else { return };
    let (start, at) = (usize::from(start), usize::from(start) + usize::from(at));
    let Some(summed) = frame.get(start..) else { return };
    // What is there already is the sum of the pseudo-header. A sum of zero means "none" in UDP: it is sent as all ones.
    let sum = match !folded(sum_of(summed)) {
        0 => 0xffff,
        sum => sum,
    };
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

/// The sum of 16-bit words, not yet folded. A last odd byte counts as if a zero followed.
pub(crate) fn sum_of(bytes: &[u8]) -> u64 {
    // Two at a time, in the order of the machine's own bytes: folded, the sum is the same but for that order (RFC 1071).
    let (pairs, rest) = bytes.as_chunks::<4>();
    let pairs: u64 = pairs.iter().map(|pair| u64::from(u32::from_ne_bytes(*pair))).sum();
    let pairs = u64::from(u16::from_be_bytes(folded(pairs).to_ne_bytes()));
    let words = rest.chunks(2).map(|word| match *word {
        [high, low] => u64::from(u16::from_be_bytes([high, low])),
        [high] => u64::from(high) << 8,
        _ => 0,
    });
    pairs + words.sum::<u64>()
}

/// A sum of 16-bit words, folded to one.
pub(crate) fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Where the headers of a frame of several segments are.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Where the IP header begins.
    ip: usize,
    is_v4: bool,
    /// Where the TCP or UDP header begins.
    transport: usize,
    /// Where the data begins.
    data: usize,
    /// Where the data ends: with the frame.
    end: usize,
}

/// Numbers of protocols and Ethernet types.
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

impl Layout {
    /// None if a frame of `end` bytes, of which this is the start, does not begin with the headers of these segments.
    fn of(frame: &[u8], end: usize, segmentation: Segmentation) -> Option<Layout> {
        let ip = ETHERNET_BYTES;
        let is_v4 = match (u16_at(frame, 12)?, segmentation.kind) {
            (IPV4, Kind::Tcp4 | Kind::Udp) => true,
            (IPV6, Kind::Tcp6 | Kind::Udp) => false,
            _ => return None,
        };
        let version = frame.get(ip)? >> 4;
        let (protocol, transport) = match (is_v4, version) {
            (true, 4) => {
                let bytes = usize::from(frame.get(ip)? & 15) * 4;
                // A fragment has no segments.
                let is_whole = u16_at(frame, ip + 6)? & 0x3fff == 0;
                (*frame.get(ip + 9)?, (bytes >= 20 && is_whole).then_some(ip + bytes)?)
            }
            (false, 6) => (*frame.get(ip + 6)?, ip + IPV6_BYTES),
            _ => return None,
        };
        let data = match (segmentation.kind, protocol) {
            (Kind::Tcp4 | Kind::Tcp6, TCP) => {
                let bytes = usize::from(frame.get(transport + 12)? >> 4) * 4;
                (bytes >= 20).then_some(transport + bytes)?
            }
            (Kind::Udp, UDP) => transport + UDP_BYTES,
            _ => return None,
        };
        Some(Layout { ip, is_v4, transport, data, end })
    }

    /// Whether the head of the frame agrees with its headers.
    fn fits(&self, offload: Offload, segmentation: Segmentation) -> bool {
        // The kernel asks for a checksum of each segment, and so does everybody who segments.
        let at = if segmentation.kind == Kind::Udp { 6 } else { 16 };
        let Checksum::Partial { start, at: found } = offload.checksum else { return false };
        usize::from(start) == self.transport
            && found == at
            && self.data == usize::from(segmentation.header_bytes)
            && self.data < self.end
            && segmentation.segment_bytes > 0
            && offload.segments(self.end) <= SEGMENTS_MAX
    }
}

/// The segments of a frame that [`Offload::parse`] has let through, each with its headers and checksums complete, for
/// a member that takes no frames of several. `take` gets each in turn, in `room`.
///
/// A frame that is one segment goes to `take` with its checksum complete.
pub fn segment(offload: Offload, frame: &[u8], room: &mut Vec<u8>, take: impl FnMut(&mut [u8])) {
    segment_in_place(&FrameInPlace { offload, start: frame, rest: None }, room, take);
}

/// As [`segment`], of a frame of which a part may lie elsewhere: its bytes are copied once.
pub fn segment_in_place(
    frame: &FrameInPlace<'_>,
    room: &mut Vec<u8>,
    mut take: impl FnMut(&mut [u8]),
) {
    let (offload, headers) = (frame.offload, frame.start);
    let layout = offload.segmentation.and_then(|segmentation| {
        let layout = Layout::of(headers, frame.bytes(), segmentation)?;
        (layout.data <= headers.len()).then_some((segmentation, layout))
    });
    let Some((segmentation, layout)) = layout else {
        room.resize(frame.bytes(), 0);
        frame.read(0, room);
        complete_checksum(offload.checksum, room);
        return take(room);
    };
    let Layout { ip, is_v4, transport, data, end } = layout;
    let step = usize::from(segmentation.segment_bytes).max(1);
    let first_id = if is_v4 { u16_at(headers, ip + 4).unwrap_or(0) } else { 0 };
    let first_sequence = u32_at(headers, transport + 4).unwrap_or(0);
    for (number, start) in (data..end).step_by(step).enumerate() {
        let stop = (start + step).min(end);
        room.resize(data + stop - start, 0);
        room[..data].copy_from_slice(&headers[..data]);
        frame.read(start, &mut room[data..]);
        let ip_bytes = (room.len() - ip) as u16;
        let transport_bytes = (room.len() - transport) as u32;
        if is_v4 {
            room[ip + 2..ip + 4].copy_from_slice(&ip_bytes.to_be_bytes());
            let id = first_id.wrapping_add(number as u16);
            room[ip + 4..ip + 6].copy_from_slice(&id.to_be_bytes());
            room[ip + 10..ip + 12].fill(0);
            let sum = !folded(sum_of(&room[ip..transport]));
            room[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            let payload = ip_bytes - IPV6_BYTES as u16;
            room[ip + 4..ip + 6].copy_from_slice(&payload.to_be_bytes());
        }
        let protocol = if segmentation.kind == Kind::Udp {
            room[transport + 4..transport + 6]
                .copy_from_slice(&(transport_bytes as u16).to_be_bytes());
            UDP
        } else {
            let sequence = first_sequence.wrapping_add((start - data) as u32);
            room[transport + 4..transport + 8].copy_from_slice(&sequence.to_be_bytes());
            let flags = &mut room[transport + 13];
            if stop < end {
                *flags &= !TCP_LAST;
            }
            if start > data {
                *flags &= !TCP_FIRST;
            }
            TCP
        };
        let at = transport + if protocol == UDP { 6 } else { 16 };
        let pseudo = pseudo_header(room, ip, is_v4, protocol, transport_bytes);
        room[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        complete_checksum(offload.checksum, room);
        take(room);
    }
}

/// The sum of the pseudo-header of TCP and UDP (RFC 9293 3.1, RFC 8200 8.1).
pub(crate) fn pseudo_header(frame: &[u8], ip: usize, is_v4: bool, protocol: u8, bytes: u32) -> u16 {
    let addresses = if is_v4 { &frame[ip + 12..ip + 20] } else { &frame[ip + 8..ip + 40] };
    folded(sum_of(addresses) + u64::from(protocol) + u64::from(bytes))
}

#[cfg(test)]
mod tests;
