//! Between the head that the kernel puts before a frame of a TAP device and the one that a LAN sends with it.
//!
//! The kernel's head is `virtio_net_hdr` in little-endian, ten bytes:
//!
//! ```text
//! offset  0  flags u8: 1 checksum to be completed, 2 checksum verified
//!         1  segmentation u8: 0 none, 1 TCP over IPv4, 4 TCP over IPv6, 5 UDP; 128 congestion
//!         2  header_bytes u16: a hint, at least those of the headers
//!         4  segment_bytes u16
//!         6  checksum_start u16
//!         8  checksum_at u16: from there
//! ```
//!
//! A VLAN tag lies in the frame there, and in the head in a LAN. A program in whose network the device is may be root in
//! it, so frames and heads are what it wants them to be: nothing here believes them. What a LAN refuses besides
//! (`net::lan::admission::check`) is not looked for twice.

use net::lan::frame::ETHERNET_BYTES;
use net::lan::offload::{Checksum, Kind, Offload, Segmentation};
use os::tap::HEAD_BYTES;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const CONGESTION: u8 = 128;

const KINDS: [(u8, Kind); 3] = [(1, Kind::Tcp4), (4, Kind::Tcp6), (5, Kind::Udp)];

/// Where the type of a frame is, and its VLAN tag before that.
const TYPE_AT: usize = ETHERNET_BYTES - 2;
const VLAN: [u8; 2] = [0x81, 0x00];

/// Bytes of a VLAN tag and the number that says that it is one.
pub const TAG_BYTES: usize = 4;

/// Where a tag is in a frame.
pub(crate) const TAG_AT: usize = TYPE_AT;

/// The bits of a tag that are the VLAN's number: without them it is a priority only.
const VLAN_NUMBER: u16 = 0x0fff;

const UDP_BYTES: u16 = 8;

/// A frame of the kernel's that cannot go into a LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Shorter than an Ethernet header and the tag that it says that it has.
    #[error("a frame of {0} bytes")]
    Length(usize),
    /// Flags, or a kind of segmentation, that were not asked for.
    #[error("the kernel says what it was not asked to say: flags {flags:#x}, kind {kind:#x}")]
    Head {
        /// The flags.
        flags: u8,
        /// The kind of segmentation.
        kind: u8,
    },
    /// There are no headers where the head says that they are.
    #[error("the frame is not what its head says")]
    Headers,
}

/// What goes with a frame that was read from the device, and where the frame begins: a VLAN tag is taken out of it, and the
/// addresses before it are moved.
///
/// # Errors
/// [`Unusable`].
#[inline]
pub fn from_kernel(
    head: &[u8; HEAD_BYTES],
    frame: &mut [u8],
) -> Result<(Offload, usize), Unusable> {
    // Most small frames: acknowledgements have a checksum to be completed, but questions and answers of ARP have not.
    if frame.len() < ETHERNET_BYTES {
        return Err(Unusable::Length(frame.len()));
    }
    let is_tagged = is_tagged(frame);
    if *head == [0; HEAD_BYTES] && !is_tagged {
        return Ok((Offload::NONE, 0));
    }
    let (vlan, start) = if is_tagged { (untag(frame)?, TAG_BYTES) } else { (None, 0) };
    let mut offload = told(head, start as u16)?;
    offload.vlan = vlan;
    if let Some(segmentation) = &mut offload.segmentation {
        let bytes = header_bytes(offload.checksum, segmentation.kind, &frame[start..]);
        segmentation.header_bytes = bytes.ok_or(Unusable::Headers)?;
    }
    Ok((offload, start))
}

/// Returns true if a frame has a VLAN tag.
#[inline]
pub(crate) fn is_tagged(frame: &[u8]) -> bool {
    frame.get(TYPE_AT..ETHERNET_BYTES) == Some(&VLAN[..])
}

/// Takes the tag out of a frame that has one, which begins [`TAG_BYTES`] later then. None if it is a priority only.
pub(crate) fn untag(frame: &mut [u8]) -> Result<Option<u16>, Unusable> {
    let bytes = frame.len();
    let tag = frame.get(ETHERNET_BYTES..ETHERNET_BYTES + 2).ok_or(Unusable::Length(bytes))?;
    let tag = u16::from_be_bytes([tag[0], tag[1]]);
    if bytes < ETHERNET_BYTES + TAG_BYTES {
        return Err(Unusable::Length(bytes));
    }
    frame.copy_within(..TYPE_AT, TAG_BYTES);
    Ok(in_vlan(tag))
}

/// The tag; none if it is a priority only.
pub(crate) fn in_vlan(tag: u16) -> Option<u16> {
    (tag & VLAN_NUMBER != 0).then_some(tag)
}

/// What the head says of a frame from which `taken` bytes were taken. The bytes of headers are a hint and not read.
fn told(head: &[u8; HEAD_BYTES], taken: u16) -> Result<Offload, Unusable> {
    let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (flags, kind) = (head[0], head[1]);
    let unknown = Unusable::Head { flags, kind };
    let checksum = match flags {
        0 => Checksum::Unknown,
        DATA_VALID => Checksum::Verified,
        NEEDS_CHECKSUM => {
            let start = number(6).checked_sub(taken).ok_or(Unusable::Headers)?;
            Checksum::Partial { start, at: number(8) }
        }
        _ => return Err(unknown),
    };
    let known = KINDS.iter().find(|(number, _)| *number == kind & !CONGESTION);
    let segmentation = match known {
        Some(&(_, kind)) => Some(Segmentation {
            kind,
            congestion: head[1] & CONGESTION != 0,
            header_bytes: 0,
            segment_bytes: number(4),
        }),
        None if kind == 0 => None,
        None => return Err(unknown),
    };
    Ok(Offload { checksum, segmentation, vlan: None })
}

/// How long the headers of a frame of several segments are: the transport header is where its checksum begins.
fn header_bytes(checksum: Checksum, kind: Kind, frame: &[u8]) -> Option<u16> {
    let Checksum::Partial { start, .. } = checksum else { return None };
    let transport_bytes = match kind {
        Kind::Udp => UDP_BYTES,
        Kind::Tcp4 | Kind::Tcp6 => u16::from(frame.get(usize::from(start) + 12)? >> 4) * 4,
    };
    start.checked_add(transport_bytes)
}

/// What the kernel is told of a frame of a LAN, and the tag that is to be put into it, with the number before it.
#[inline]
pub fn to_kernel(offload: Offload) -> ([u8; HEAD_BYTES], Option<[u8; TAG_BYTES]>) {
    let mut head = [0; HEAD_BYTES];
    if offload == Offload::NONE {
        return (head, None);
    }
    let tag = offload.vlan.map(|tag| {
        let [high, low] = tag.to_be_bytes();
        [VLAN[0], VLAN[1], high, low]
    });
    let put_in = if tag.is_some() { TAG_BYTES as u16 } else { 0 };
    let mut put = |at: usize, number: u16| {
        head[at..at + 2].copy_from_slice(&number.to_le_bytes());
    };
    let flags = match offload.checksum {
        Checksum::Unknown => 0,
        Checksum::Verified => DATA_VALID,
        Checksum::Partial { start, at } => {
            put(6, start.saturating_add(put_in));
            put(8, at);
            NEEDS_CHECKSUM
        }
    };
    let mut kind = 0;
    if let Some(segmentation) = offload.segmentation {
        put(2, segmentation.header_bytes.saturating_add(put_in));
        put(4, segmentation.segment_bytes);
        let found = KINDS.iter().find(|(_, kind)| *kind == segmentation.kind);
        kind = found.map_or(0, |(number, _)| *number);
        kind |= if segmentation.congestion { CONGESTION } else { 0 };
    }
    (head[0], head[1]) = (flags, kind);
    (head, tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::lan::offload::FRAME_BYTES_MAX;
    use proptest::prelude::*;

    /// A segment of 3000 bytes of TCP over IPv4 with 12 bytes of options, as Linux 6.18 gives it to the reader of a TAP
    /// device. Its hint of header bytes is what lies in the first page.
    fn segment() -> ([u8; HEAD_BYTES], Vec<u8>) {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45, 0, 0x0b, 0xec, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 2, 10, 1, 0, 1]);
        frame
            .extend([0xdc, 0x58, 0x14, 0x51, 0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x18, 1, 0, 0, 0, 0, 0]);
        frame.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1]);
        frame.resize(66 + 3000, 7);
        ([1, 1, 0x42, 0, 0xa8, 5, 34, 0, 16, 0], frame)
    }

    #[test]
    fn length_of_headers_is_found_and_not_believed() {
        let (mut head, frame) = segment();
        for hint in [0, 66, 300, 0xffff_u16] {
            head[2..4].copy_from_slice(&hint.to_le_bytes());
            let (offload, start) = from_kernel(&head, &mut frame.clone()).unwrap();
            let segmentation = Segmentation {
                kind: Kind::Tcp4,
                congestion: false,
                header_bytes: 66,
                segment_bytes: 1448,
            };
            let checksum = Checksum::Partial { start: 34, at: 16 };
            let expected = Offload { checksum, segmentation: Some(segmentation), vlan: None };
            assert_eq!((offload, start), (expected, 0));
            assert_eq!(Offload::parse(&offload.head(), &frame), Ok(offload));
        }
        let (back, tag) = to_kernel(from_kernel(&head, &mut frame.clone()).unwrap().0);
        assert_eq!((back, tag), (segment().0, None));
    }

    #[test]
    fn tag_is_taken_out_and_put_in() {
        let (mut head, frame) = segment();
        head[6] += 4;
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0x60, 7]);
        let (offload, start) = from_kernel(&head, &mut tagged).unwrap();
        assert_eq!((offload.vlan, start), (Some(0x6007), 4));
        assert_eq!(offload.checksum, Checksum::Partial { start: 34, at: 16 });
        assert_eq!(tagged[start..], frame);
        let (back, tag) = to_kernel(offload);
        assert_eq!((back[2], back[6], tag), (70, 38, Some([0x81, 0, 0x60, 7])));
        // A priority is not a VLAN.
        let mut priority = frame.clone();
        priority.splice(12..12, [0x81, 0, 0x60, 0]);
        assert_eq!(from_kernel(&head, &mut priority).unwrap().0.vlan, None);
    }

    #[test]
    fn what_was_not_asked_for_is_unusable() {
        let (head, frame) = segment();
        let with = |at: usize, byte: u8| {
            let mut head = head;
            head[at] = byte;
            from_kernel(&head, &mut frame.clone())
        };
        for (at, byte) in [(0, 3), (0, 4), (0, 5), (1, 3), (1, 2), (1, 0x21), (1, 128)] {
            assert!(matches!(with(at, byte), Err(Unusable::Head { .. })), "{at}: {byte}");
        }
        assert_eq!(with(0, 0), Err(Unusable::Headers), "segments without a checksum");
        assert_eq!(with(7, 0xff), Err(Unusable::Headers), "headers behind the frame");
        for bytes in 0..ETHERNET_BYTES {
            let short = from_kernel(&[0; HEAD_BYTES], &mut frame[..bytes].to_vec());
            assert_eq!(short, Err(Unusable::Length(bytes)));
        }
        let mut cut = frame[..12].to_vec();
        cut.extend([0x81, 0, 0]);
        assert_eq!(from_kernel(&[0; HEAD_BYTES], &mut cut), Err(Unusable::Length(15)));
    }

    proptest! {
        #[test]
        fn anything_is_read_without_harm(
            head in prop::array::uniform10(any::<u8>()),
            mut frame in prop::collection::vec(any::<u8>(), 0..200),
            tagged in any::<bool>(),
        ) {
            if tagged && frame.len() >= ETHERNET_BYTES {
                frame[TYPE_AT..ETHERNET_BYTES].copy_from_slice(&VLAN);
            }
            let before = frame.clone();
            if let Ok((_, start)) = from_kernel(&head, &mut frame) {
                prop_assert!(start == 0 || start == TAG_BYTES);
                prop_assert_eq!(&frame[start..start + 12], &before[..12]);
                prop_assert_eq!(&frame[start + 12..], &before[start + 12..]);
                prop_assert!(frame.len() <= FRAME_BYTES_MAX);
            }
        }

        #[test]
        fn what_a_lan_accepts_the_kernel_can_be_told(
            segment_bytes in 1u16..3000,
            vlan in prop::option::of(1u16..4095),
            congestion in any::<bool>(),
        ) {
            let (head, frame) = segment();
            let (mut offload, _) = from_kernel(&head, &mut frame.clone()).unwrap();
            offload.vlan = vlan;
            let segmentation = offload.segmentation.as_mut().unwrap();
            (segmentation.segment_bytes, segmentation.congestion) = (segment_bytes, congestion);
            let (head, tag) = to_kernel(offload);
            let mut written = frame.clone();
            if let Some(tag) = tag {
                written.splice(12..12, tag);
            }
            let (read, start) = from_kernel(&head, &mut written).unwrap();
            prop_assert_eq!(read, offload);
            prop_assert_eq!(&written[start..], &frame[..]);
        }
    }
}
