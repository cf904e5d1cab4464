//! Packs of frames to a group: written once, read by every member of the audience.
//!
//! ```text
//! offset  0  zeros, 12 bytes: no frame has such addresses
//!        12  0 u32
//!        16  records, each at a multiple of 8:
//!              0  bytes of the frame u32
//!              4  bytes of its head u32: 0 or 16
//!              8  head, frame
//! ```

use std::ops::Range;

use super::offload::HEAD_BYTES;

/// Bytes of a pack.
pub const PACK_BYTES: usize = 32 << 10;

/// Where the first record is.
pub const FIRST: usize = 16;

const ADDRESS_BYTES: usize = 12;
const RECORD_BYTES: usize = 8;
const GRAIN_BYTES: usize = 8;

/// Whether a message is a pack: no frame is.
pub fn is_pack(body: &[u8]) -> bool {
    body.len() >= FIRST && body[..ADDRESS_BYTES] == [0; ADDRESS_BYTES]
}

/// How much of a pack a frame takes.
pub fn record_bytes(head: usize, frame: usize) -> usize {
    (RECORD_BYTES + head + frame).next_multiple_of(GRAIN_BYTES)
}

/// Puts a record at the start of `room`, which is long enough.
pub fn put(room: &mut [u8], head: &[u8], frame: &[u8]) {
    let (record, rest) = room.split_at_mut(RECORD_BYTES);
    record[..4].copy_from_slice(&(frame.len() as u32).to_le_bytes());
    record[4..].copy_from_slice(&(head.len() as u32).to_le_bytes());
    rest[..head.len()].copy_from_slice(head);
    rest[head.len()..head.len() + frame.len()].copy_from_slice(frame);
}

/// Where the head and the frame of the record at `at` are, and where the next record is. None if there is none, or
/// what is there is no record.
pub fn next(body: &[u8], at: usize) -> Option<(Range<usize>, Range<usize>, usize)> {
    let record = body.get(at..)?.first_chunk::<RECORD_BYTES>()?;
    let [frame, head] = [0, 4].map(|field| {
        let bytes = record[field..].first_chunk().copied().unwrap_or_default();
        u32::from_le_bytes(bytes) as usize
    });
    if head != 0 && head != HEAD_BYTES || frame > body.len() {
        return None;
    }
    let head_at = at + RECORD_BYTES;
    let frame_at = head_at + head;
    let end = frame_at + frame;
    let next = at + record_bytes(head, frame);
    (end <= body.len()).then_some((head_at..frame_at, frame_at..end, next))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_come_out_as_they_went_in(
            frames in prop::collection::vec((prop::bool::ANY, prop::collection::vec(any::<u8>(), 0..200)), 0..40),
        ) {
            let mut body = vec![0; FIRST];
            for (has_head, frame) in &frames {
                let head = [7; HEAD_BYTES];
                let head = if *has_head { &head[..] } else { &[] };
                let at = body.len();
                body.resize(at + record_bytes(head.len(), frame.len()), 0);
                put(&mut body[at..], head, frame);
            }
            prop_assert!(is_pack(&body));
            let mut at = FIRST;
            for (has_head, frame) in &frames {
                let (head, found, after) = next(&body, at).unwrap();
                prop_assert_eq!(head.len(), if *has_head { HEAD_BYTES } else { 0 });
                prop_assert_eq!(&body[found], &frame[..]);
                at = after;
            }
            prop_assert!(next(&body, at).is_none());
        }

        #[test]
        fn any_bytes_end(body in prop::collection::vec(any::<u8>(), 0..300), at in any::<usize>()) {
            let mut at = at % 310;
            let mut records = 0;
            while let Some((head, frame, after)) = next(&body, at) {
                prop_assert!(head.end <= body.len() && frame.end <= body.len() && after > at);
                (at, records) = (after, records + 1);
            }
            prop_assert!(records <= body.len() / RECORD_BYTES);
        }
    }
}
