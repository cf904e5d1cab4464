//! Packets in a buffer: each behind a header of 32 bytes, one behind the other.
//!
//! ```text
//!  a buffer     | header 32 | frame, to a multiple of 8 | header 32 | frame, ... |
//!
//!  the header   0  id u8         1 layer 3, 2 layer 2; 3 and 6 if the frame stands for several segments
//!               1  flags u8      layer 3: 0x80 IPv6; 4 to a group, 5 to all, 6 to one
//!               2  length u16    bytes of the frame
//!               4  offload 12    the head of the frame: `net::lan::offload`
//!              16  next hop 16   layer 3, to the adapter: the neighbour, an address of IPv4 as ::ffff:a.b.c.d; else 0
//! ```
//!
//! Numbers are little-endian. The ids, the flags and the length of the header are those of OSA (`struct qeth_hdr_layer3` in `drivers/s390/net/qeth_core.h` of
//! Linux). A frame has its Ethernet header in layer 3, too, which the adapter writes, so that all frames have one layout. The counters leave these 14 bytes out:
//! a packet of 1500 bytes counts as 1532, as in the tables of the study.

use std::net::{IpAddr, Ipv6Addr};

use crate::lan::frame::ETHERNET_BYTES;
use crate::lan::offload::{HEAD_BYTES, Offload};

/// The queue of packets that say nothing of their service.
pub const DEFAULT_QUEUE: usize = 2;

/// The output queue of packets of a service, as OSA's driver has it (`qeth_get_priority_queue`): by precedence, if there is one; otherwise low delay 0, throughput 1,
/// reliability 2, none of these the default.
pub fn queue_of_service(service: u8) -> usize {
    match service & 0x1c {
        _ if service >> 6 != 0 => 3 - usize::from(service >> 6),
        tos if tos & 0x10 != 0 => 0,
        tos if tos & 0x08 != 0 => 1,
        tos if tos & 0x04 != 0 => 2,
        _ => DEFAULT_QUEUE,
    }
}

/// Bytes in front of each frame.
pub const HEADER_BYTES: usize = 32;

/// Bytes of a buffer: 16 elements of 4096 bytes, which lie behind each other here.
pub const BUFFER_BYTES: usize = 64 << 10;

/// Bytes at the start of a buffer's room that the head of its message takes.
pub(super) const HEAD_ROOM_BYTES: usize = 8;

/// Bytes of the longest frame that fits into a buffer.
pub const FRAME_BYTES_MAX: usize = BUFFER_BYTES - HEAD_ROOM_BYTES - HEADER_BYTES;

/// Frames begin at multiples of this.
const GRAIN_BYTES: usize = 8;

const OFFLOAD_AT: usize = 4;
const NEXT_HOP_AT: usize = 16;
const _: () = assert!(OFFLOAD_AT + 12 == NEXT_HOP_AT && NEXT_HOP_AT + 16 == HEADER_BYTES);

/// Flags of a packet in layer 3.
const IS_V6: u8 = 0x80;
const CAST: u8 = 7;
const TO_GROUP: u8 = 4;
const TO_ALL: u8 = 5;
const TO_ONE: u8 = 6;

/// What an adapter goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// By MAC addresses: a guest has its own, and finds its neighbours itself.
    Two,
    /// By IP addresses: the adapter finds neighbours, and answers for the guest's addresses.
    Three,
}

/// To how many a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// To the members of a group.
    Group,
    /// To all.
    All,
    /// To one.
    One,
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The layer of the device.
    pub layer: Layer,
    /// To how many it goes. In layer 2 the frame's MAC address says so, and this is [`Cast::One`].
    pub cast: Cast,
    /// Bytes of the frame.
    pub bytes: usize,
    /// What is left to do for the frame.
    pub offload: [u8; HEAD_BYTES],
    /// Layer 3: the neighbour to which the packet goes.
    pub next_hop: Option<IpAddr>,
}

/// A header that makes no sense, or a frame that reaches beyond its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHeader;

/// Returns the bytes that a frame of `bytes` takes in a buffer.
#[inline]
pub fn taken_bytes(bytes: usize) -> usize {
    (HEADER_BYTES + bytes).next_multiple_of(GRAIN_BYTES)
}

/// Returns what the counters of a device count for a frame of `bytes`: its header, and in layer 3 the packet without the Ethernet header.
#[inline]
pub fn counted_bytes(layer: Layer, bytes: usize) -> u64 {
    let left_out = if layer == Layer::Three { ETHERNET_BYTES } else { 0 };
    (HEADER_BYTES + bytes).saturating_sub(left_out) as u64
}

impl Header {
    /// A header of a frame of `bytes`.
    #[inline]
    pub fn new(layer: Layer, bytes: usize, offload: Offload, next_hop: Option<IpAddr>) -> Header {
        let cast = match next_hop {
            Some(IpAddr::V4(to)) if to.is_broadcast() => Cast::All,
            Some(to) if to.is_multicast() => Cast::Group,
            _ => Cast::One,
        };
        Header { layer, cast, bytes, offload: offload.head(), next_hop }
    }

    /// The bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let has_segments = self.offload[0] != 0;
        bytes[0] = match (self.layer, has_segments) {
            (Layer::Three, false) => 1,
            (Layer::Two, false) => 2,
            (Layer::Three, true) => 3,
            (Layer::Two, true) => 6,
        };
        if self.layer == Layer::Three {
            bytes[1] = match self.cast {
                Cast::Group => TO_GROUP,
                Cast::All => TO_ALL,
                Cast::One => TO_ONE,
            };
        }
        bytes[2..4].copy_from_slice(&(self.bytes as u16).to_le_bytes());
        bytes[OFFLOAD_AT..NEXT_HOP_AT].copy_from_slice(&self.offload[..NEXT_HOP_AT - OFFLOAD_AT]);
        match self.next_hop {
            Some(IpAddr::V4(to)) => {
                bytes[NEXT_HOP_AT..].copy_from_slice(&to.to_ipv6_mapped().octets());
            }
            Some(IpAddr::V6(to)) => {
                bytes[1] |= IS_V6;
                bytes[NEXT_HOP_AT..].copy_from_slice(&to.octets());
            }
            None => {}
        }
        bytes
    }

    /// Takes a header apart that has `room` bytes behind it.
    ///
    /// # Errors
    /// [`BadHeader`].
    #[inline]
    pub fn parse(bytes: &[u8; HEADER_BYTES], room: usize) -> Result<Header, BadHeader> {
        let (layer, has_segments) = match bytes[0] {
            1 => (Layer::Three, false),
            2 => (Layer::Two, false),
            3 => (Layer::Three, true),
            6 => (Layer::Two, true),
            _ => return Err(BadHeader),
        };
        let length = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        let mut offload = [0; HEAD_BYTES];
        offload[..NEXT_HOP_AT - OFFLOAD_AT].copy_from_slice(&bytes[OFFLOAD_AT..NEXT_HOP_AT]);
        let address = Ipv6Addr::from(*bytes[NEXT_HOP_AT..].first_chunk::<16>().ok_or(BadHeader)?);
        let is_v6 = bytes[1] & IS_V6 != 0;
        let (cast, next_hop) = match (layer, bytes[1] & !(IS_V6 | CAST), bytes[1] & CAST) {
            (Layer::Two, 0, 0) if !is_v6 && address.is_unspecified() => (Cast::One, None),
            (Layer::Three, 0, cast) => {
                let cast = match cast {
                    TO_GROUP => Cast::Group,
                    TO_ALL => Cast::All,
                    TO_ONE => Cast::One,
                    _ => return Err(BadHeader),
                };
                let next_hop = match (is_v6, address.to_ipv4_mapped()) {
                    _ if address.is_unspecified() => None,
                    (false, Some(address)) => Some(IpAddr::V4(address)),
                    (true, None) => Some(IpAddr::V6(address)),
                    _ => return Err(BadHeader),
                };
                (cast, next_hop)
            }
            _ => return Err(BadHeader),
        };
        let is_fit = length <= room
            && (ETHERNET_BYTES..=FRAME_BYTES_MAX).contains(&length)
            && (offload[0] != 0) == has_segments;
        if !is_fit {
            return Err(BadHeader);
        }
        Ok(Header { layer, cast, bytes: length, offload, next_hop })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lan::offload::{Checksum, Kind, Segmentation};

    #[test]
    fn header_is_what_the_picture_says() {
        let checksum = Checksum::Partial { start: 34, at: 16 };
        let segmentation = Some(Segmentation {
            kind: Kind::Tcp4,
            congestion: false,
            header_bytes: 66,
            segment_bytes: 1448,
        });
        let offload = Offload { checksum, segmentation, vlan: Some(7) };
        let header = Header::new(Layer::Three, 3000, offload, Some([10, 1, 0, 2].into()));
        let bytes = [
            3, 6, 0xb8, 0x0b, 1, 5, 66, 0, 0xa8, 5, 34, 0, 16, 0, 7, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 0, 2,
        ];
        assert_eq!(header.emit(), bytes);
        assert_eq!(Header::parse(&bytes, 3000), Ok(header));
        assert_eq!(Header::parse(&bytes, 2999), Err(BadHeader));
        let all = Header::new(Layer::Three, 60, Offload::NONE, Some([255; 4].into()));
        assert_eq!((all.emit()[0], all.emit()[1]), (1, 5));
        let two = Header::new(Layer::Two, 60, Offload::NONE, None);
        assert_eq!(
            two.emit(),
            *b"\x02\0\x3c\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
        );
        assert_eq!(Header::parse(&two.emit(), 60), Ok(two));
    }

    #[test]
    fn header_that_makes_no_sense_is_refused() {
        let good = Header::new(Layer::Three, 60, Offload::NONE, Some([10, 1, 0, 2].into())).emit();
        assert!(Header::parse(&good, 100).is_ok());
        let wrong = [
            (0, 0),
            (0, 4),
            (0, 3),
            (0, 2),
            (1, 0),
            (1, 7),
            (1, 0x86),
            (1, 0x46),
            (2, 13),
            (4, 1),
            (26, 0),
        ];
        for (at, byte) in wrong {
            let mut bytes = good;
            bytes[at] = byte;
            assert_eq!(Header::parse(&bytes, 100), Err(BadHeader), "{at}: {byte}");
        }
    }

    #[test]
    fn counted_bytes_are_those_of_the_study() {
        assert_eq!(counted_bytes(Layer::Three, 1514), 1532);
        assert_eq!(counted_bytes(Layer::Three, 66), 84);
        assert_eq!(counted_bytes(Layer::Two, 60), 92);
    }
}
