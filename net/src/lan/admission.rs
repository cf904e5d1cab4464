//! Which frames a member may send, and which it takes in.

use super::counters::Counter;
use super::frame::{ETHERNET_BYTES, Mac};
use super::link::Frame;
use super::offload::{BadFrame, Offload};
use super::table::Member;

/// Whether a frame from another member may come in, in a LAN whose frames have at most `most` bytes; else what to count.
#[inline]
pub fn admit(
    head: &[u8],
    bytes: &[u8],
    from: &Member,
    own: &Member,
    most: usize,
) -> Result<Offload, Counter> {
    admit_start(head, bytes, bytes.len(), from, own, most)
}

/// As [`admit`], of a frame of which no more is at hand than [`START_BYTES`], or all.
#[inline]
pub(super) fn admit_start(
    head: &[u8],
    start: &[u8],
    bytes: usize,
    from: &Member,
    own: &Member,
    most: usize,
) -> Result<Offload, Counter> {
    let Some((_, source)) = addresses(start) else { return Err(Counter::DroppedLength) };
    if source != from.mac {
        return Err(Counter::DroppedSource);
    }
    if has_tag(start) {
        return Err(Counter::DroppedVlan);
    }
    if head.is_empty() {
        return if bytes <= most { Ok(Offload::NONE) } else { Err(Counter::DroppedLength) };
    }
    let offload = Offload::parse_start(head, start, bytes).map_err(|bad| match bad {
        BadFrame::Length { .. } => Counter::DroppedLength,
        _ => Counter::DroppedOffload,
    })?;
    if bytes > most && offload.segmentation.is_none() {
        return Err(Counter::DroppedLength);
    }
    match offload.vlan {
        Some(_) if !(from.takes(offload.vlan) && own.takes(offload.vlan)) => {
            Err(Counter::DroppedVlan)
        }
        _ => Ok(offload),
    }
}

/// Why a member must not send a frame. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It is not what its head says.
    #[error(transparent)]
    Bad(#[from] BadFrame),
    /// It is longer than the LAN's frames, and does not stand for segments.
    #[error("a frame of {bytes} bytes: this LAN has frames of at most {most}, or segments of more")]
    Length {
        /// How long it is.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// It does not come from this member.
    #[error("a frame from {found}: must come from {own}, the address of this member")]
    Source {
        /// Its source.
        found: Mac,
        /// What would be right.
        own: Mac,
    },
    /// Its tag is in the frame.
    #[error("a frame with a VLAN tag in it: must be beside it, in `Offload::vlan`")]
    Tag,
    /// This member does not belong to its VLAN.
    #[error("a frame of VLAN {vlan}: this member does not belong to it")]
    Vlan {
        /// Which.
        vlan: u16,
    },
}

/// Whether a member may send a frame in a LAN whose frames have at most `most` bytes; where it goes.
///
/// # Errors
/// [`Refused`].
#[inline]
pub fn check(frame: Frame<'_>, own: &Member, most: usize) -> Result<Mac, Refused> {
    check_start(frame, frame.bytes.len(), own, most)
}

/// As [`check`], of a frame of so many bytes, of which no more is at hand than the start with all headers.
///
/// # Errors
/// [`Refused`].
#[inline]
pub fn check_start(
    frame: Frame<'_>,
    bytes: usize,
    own: &Member,
    most: usize,
) -> Result<Mac, Refused> {
    let Some((destination, found)) = addresses(frame.bytes) else {
        return Err(BadFrame::Length { bytes }.into());
    };
    if found != own.mac {
        return Err(Refused::Source { found, own: own.mac });
    }
    if has_tag(frame.bytes) {
        return Err(Refused::Tag);
    }
    if frame.offload != Offload::NONE {
        check_offload(frame, bytes, own)?;
    }
    if bytes > most && frame.offload.segmentation.is_none() {
        return Err(Refused::Length { bytes, most });
    }
    Ok(destination)
}

#[inline(never)]
fn check_offload(frame: Frame<'_>, bytes: usize, own: &Member) -> Result<(), Refused> {
    // What the other end would drop is refused here.
    Offload::parse_start(&frame.offload.head(), frame.bytes, bytes)?;
    match frame.offload.vlan {
        Some(tag) if !own.takes(Some(tag)) => Err(Refused::Vlan { vlan: tag & 0x0fff }),
        _ => Ok(()),
    }
}

/// Whether a frame has a VLAN tag in it, where nobody would hold it against the VLANs of members.
#[inline]
pub(crate) fn has_tag(frame: &[u8]) -> bool {
    frame.get(12..ETHERNET_BYTES).is_some_and(|kind| TAGS.contains(&[kind[0], kind[1]]))
}

/// Types of frames with a tag: IEEE 802.1Q, 802.1ad, and what came before that.
const TAGS: [[u8; 2]; 3] = [[0x81, 0], [0x88, 0xa8], [0x91, 0]];

/// Where a frame goes and comes from; none if it is shorter than an Ethernet header.
#[inline]
pub(super) fn addresses(frame: &[u8]) -> Option<(Mac, Mac)> {
    let header: &[u8; ETHERNET_BYTES] = frame.first_chunk()?;
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
    Some((Mac([a, b, c, d, e, f]), Mac([g, h, i, j, k, l])))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::offload::Checksum;
    use super::*;

    fn member(last: u8, vlans: &[u16]) -> Member {
        let (mac, name) = (Mac([2, 0, 0, 0, 0, last]), format!("G{last}").parse().unwrap());
        Member {
            name,
            mac,
            vlans: vlans.to_vec(),
            addresses: Vec::new(),
            captures: false,
            routes: false,
            routes_from: Vec::new(),
            life: 1,
        }
    }

    fn frame_of(to: Mac, from: Mac, bytes: usize) -> Vec<u8> {
        let mut frame = vec![0; bytes];
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&from.0);
        frame
    }

    #[test]
    fn what_is_not_the_senders_own_is_dropped_and_refused() {
        let (one, other) = (member(1, &[7]), member(2, &[]));
        let good = frame_of(other.mac, one.mac, 60);
        assert_eq!(admit(&[], &good, &one, &other, 100), Ok(Offload::NONE));
        assert_eq!(admit(&[], &good, &other, &one, 100), Err(Counter::DroppedSource));
        assert_eq!(admit(&[], &good[..13], &one, &other, 100), Err(Counter::DroppedLength));
        let mut inside = good.clone();
        inside[12..14].copy_from_slice(&[0x81, 0]);
        assert_eq!(admit(&[], &inside, &one, &other, 100), Err(Counter::DroppedVlan));
        assert_eq!(
            check(Frame { offload: Offload::NONE, bytes: &inside }, &one, 100),
            Err(Refused::Tag)
        );
        assert_eq!(admit(&[], &good, &one, &other, 59), Err(Counter::DroppedLength));
        assert_eq!(admit(&[1], &good, &one, &other, 100), Err(Counter::DroppedOffload));
        let checksum = Checksum::Partial { start: 34, at: 25 };
        let offload = Offload { checksum, ..Offload::NONE };
        assert_eq!(admit(&offload.head(), &good, &one, &other, 100), Err(Counter::DroppedOffload));
        let tagged = Offload { vlan: Some(7), ..Offload::NONE };
        assert_eq!(admit(&tagged.head(), &good, &one, &other, 100), Err(Counter::DroppedVlan));
        assert_eq!(admit(&tagged.head(), &good, &one, &member(3, &[7]), 100), Ok(tagged));
        let long = admit(&tagged.head(), &good, &one, &member(3, &[7]), 59);
        assert_eq!(long, Err(Counter::DroppedLength));

        let refused = |offload, bytes: &[u8], own: &Member| {
            check(Frame { offload, bytes }, own, 100).unwrap_err()
        };
        assert_eq!(check(Frame { offload: tagged, bytes: &good }, &one, 60), Ok(other.mac));
        let source = Refused::Source { found: one.mac, own: other.mac };
        assert_eq!(refused(Offload::NONE, &good, &other), source);
        assert_eq!(refused(tagged, &good, &member(1, &[])), Refused::Vlan { vlan: 7 });
        let long = frame_of(other.mac, one.mac, 101);
        assert_eq!(refused(Offload::NONE, &long, &one), Refused::Length { bytes: 101, most: 100 });
        let outside = BadFrame::Checksum { start: 34, at: 25, bytes: 60 };
        assert_eq!(refused(offload, &good, &one), outside.into());
    }
}
