//! Copies of frames, from the member that sends a frame to a member that captures.
//!
//! A path between the two carries nothing else, and only in this direction. A message is a copy of one frame, handed over
//! before the frame itself is: what another member sends in answer is handed over later, with a later time. The head of a
//! message, little-endian:
//!
//! ```text
//! offset  0  time u64: nanoseconds of the machine's clock, before the frame was sent
//!         8  what goes with the frame, 16 bytes: see `offload`
//! ```
//!
//! A copy for which the path has no room is lost. Before the next copy, or as soon as there is room again, comes a
//! message without a body. Its head:
//!
//! ```text
//! offset  0  time u64
//!         8  lost u64: copies that this path has lost so far
//!        16  0 u64
//! ```
//!
//! The member that a frame is from is the path's other party, whatever the frame has as its source. The sender
//! decides what is in a record: a receiver checks the length and what goes with the frame, and believes the time.

use fabric::path::{self, Fetched, SendError, Severed};

use super::counters::{Counter, Counters};
use super::link::{DROPPED_PER_CALL_MAX, Frame, Link, Urgency};
use super::offload::{BadFrame, FRAME_BYTES_MAX, HEAD_BYTES, Offload};

/// Bytes of a record's head.
pub const RECORD_BYTES: usize = AT_OFFLOAD + HEAD_BYTES;
const _: () = assert!(RECORD_BYTES <= path::HEAD_BYTES_MAX);

const AT_OFFLOAD: usize = 8;
const AT_LOST: usize = 8;
const AT_ZERO: usize = 16;

/// What a record says beside the bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When the frame was sent, by the machine's clock.
    pub time_ns: u64,
    /// What it is.
    pub content: Content,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A copy of a frame, which is the message's body.
    Frame(Offload),
    /// The number of copies that the path has lost so far.
    Lost(u64),
}

impl Record {
    /// The head that says this.
    pub fn head(self) -> [u8; RECORD_BYTES] {
        let mut head = [0; RECORD_BYTES];
        head[..AT_OFFLOAD].copy_from_slice(&self.time_ns.to_le_bytes());
        match self.content {
            Content::Frame(offload) => head[AT_OFFLOAD..].copy_from_slice(&offload.head()),
            Content::Lost(lost) => head[AT_LOST..AT_ZERO].copy_from_slice(&lost.to_le_bytes()),
        }
        head
    }

    /// What a message says.
    ///
    /// # Errors
    /// The counter of the reason why it is dropped.
    pub fn parse(head: &[u8], body: &[u8]) -> Result<Record, Counter> {
        let head: &[u8; RECORD_BYTES] = head.try_into().map_err(|_| Counter::DroppedOffload)?;
        let number = |at: usize| {
            u64::from_le_bytes(head[at..].first_chunk().copied().expect("inside the head"))
        };
        let time_ns = number(0);
        if body.is_empty() {
            let content = Content::Lost(number(AT_LOST));
            let is_known = number(AT_ZERO) == 0;
            return is_known.then_some(Record { time_ns, content }).ok_or(Counter::DroppedOffload);
        }
        let offload = Offload::parse(&head[AT_OFFLOAD..], body).map_err(|bad| match bad {
            BadFrame::Length { .. } => Counter::DroppedLength,
            _ => Counter::DroppedOffload,
        })?;
        Ok(Record { time_ns, content: Content::Frame(offload) })
    }
}

/// A record that has come, where it lies until the next is asked for.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedRecord {
    message: path::MessageRef,
    /// What it says.
    pub record: Record,
}

/// Sends a record over the link to a member that captures. The bytes of a frame go with its copy alone.
///
/// # Errors
/// [`SendError`]; nothing was sent then.
pub fn send(
    link: &mut Link,
    record: Record,
    bytes: &[u8],
    urgency: Urgency,
) -> Result<(), SendError> {
    let sender = link.halves().0;
    match urgency {
        Urgency::Now => sender.send(&record.head(), bytes),
        Urgency::WithOthers => sender.push(&record.head(), bytes),
    }
}

/// The next record over the link from a member whose frames are captured. What is no record is dropped and counted, so
/// that one call looks at a bounded number of messages.
///
/// # Errors
/// [`Severed`] once the path has ended and everything has been received.
pub fn receive(
    link: &mut Link,
    counters: &mut Counters,
) -> Result<Option<ReceivedRecord>, Severed> {
    let receiver = link.halves().1;
    for _ in 0..DROPPED_PER_CALL_MAX {
        let message = match receiver.fetch_up_to(usize::MAX, FRAME_BYTES_MAX)? {
            Some(Fetched::Copied(message)) => message,
            Some(Fetched::TooLong) => {
                counters.add(Counter::DroppedLength, 1);
                continue;
            }
            Some(Fetched::InPage(_)) => unreachable!("all that lie in pages are copied"),
            None => return Ok(None),
        };
        let path::Message { head, body } = receiver.message(message);
        match Record::parse(head, body) {
            Ok(record) => {
                if let Content::Frame(offload) = record.content {
                    counters.add(Counter::FramesReceived, 1);
                    counters.add(Counter::BytesReceived, body.len() as u64);
                    counters.add(Counter::SegmentsReceived, offload.segments(body.len()) as u64);
                }
                return Ok(Some(ReceivedRecord { message, record }));
            }
            Err(reason) => counters.add(reason, 1),
        }
    }
    Ok(None)
}

/// The frame of a record that was received last; none if it has none.
pub fn frame(link: &Link, received: ReceivedRecord) -> Option<Frame<'_>> {
    match received.record.content {
        Content::Frame(offload) => {
            let bytes = link.as_halves().1.message(received.message).body;
            Some(Frame { offload, bytes })
        }
        Content::Lost(_) => None,
    }
}

/// Drops and counts what a member that captures sends: it must send nothing.
///
/// # Errors
/// [`Severed`] once the path has ended.
pub fn drop_all(link: &mut Link, counters: &mut Counters) -> Result<(), Severed> {
    let receiver = link.halves().1;
    for _ in 0..DROPPED_PER_CALL_MAX {
        if receiver.fetch_up_to(usize::MAX, FRAME_BYTES_MAX)?.is_none() {
            break;
        }
        counters.add(Counter::DroppedSource, 1);
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_are_what_the_picture_says() {
        let tagged = Offload { vlan: Some(0x6007), ..Offload::NONE };
        let copy = Record { time_ns: 0x0102_0304, content: Content::Frame(tagged) };
        let head = *b"\x04\x03\x02\x01\0\0\0\0\0\x04\0\0\0\0\0\0\0\0\x07\x60\0\0\0\0";
        assert_eq!(copy.head(), head);
        assert_eq!(Record::parse(&head, &[0; 14]), Ok(copy));
        assert_eq!(Record::parse(&head, &[0; 13]), Err(Counter::DroppedLength));
        assert_eq!(Record::parse(&head[1..], &[0; 14]), Err(Counter::DroppedOffload));
        let lost = Record { time_ns: 1, content: Content::Lost(0x0506) };
        let mut head = *b"\x01\0\0\0\0\0\0\0\x06\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(lost.head(), head);
        assert_eq!(Record::parse(&head, &[]), Ok(lost));
        head[23] = 1;
        assert_eq!(Record::parse(&head, &[]), Err(Counter::DroppedOffload));
    }

    proptest! {
        #[test]
        fn any_message_is_a_record_or_dropped(
            head in prop::collection::vec(any::<u8>(), RECORD_BYTES - 1..=RECORD_BYTES + 1),
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(record) = Record::parse(&head, &body) {
                prop_assert_eq!(record.content == Content::Lost(0), body.is_empty() && head[8..].iter().all(|byte| *byte == 0));
                prop_assert_eq!(Record::parse(&record.head(), &body), Ok(record));
            }
        }

        #[test]
        fn records_come_out_as_they_went_in(
            time_ns: u64,
            lost: u64,
            vlan: Option<u16>,
            body in prop::collection::vec(any::<u8>(), 14..200),
        ) {
            let copy = Record { time_ns, content: Content::Frame(Offload { vlan, ..Offload::NONE }) };
            prop_assert_eq!(Record::parse(&copy.head(), &body), Ok(copy));
            let lost = Record { time_ns, content: Content::Lost(lost) };
            prop_assert_eq!(Record::parse(&lost.head(), &[]), Ok(lost));
        }
    }
}
