//! Formats: what goes over the two queues.
//!
//! ```text
//! a message       head | class u32 | id u32 |                      one-way
//!                      | class u32 | id u32 | reply_bytes_max u32 | two-way
//!                      ... | 1 u8 |                                its 8 bytes came in the parameter list
//!                 body   the data
//!
//! on queue 1 besides, with a head of 2 or 6 bytes
//! completed       head | 1 u8 | 0 u8 |              body | id u32 | ...   one-way messages were received
//! reply           head | 2 u8 | flags u8 | id u32 |      body the reply
//!                      flags: 1 in the parameter list, 2 with priority
//! rejected        head | 3 u8 | 0 u8 | id u32 |     the target does not want it
//! purge           head | 4 u8 | 0 u8 | id u32 |     the source does not want it any more
//! purged          head | 5 u8 | 0 u8 | id u32 |     and the target has forgotten it
//! quiesce         head | 6 u8 | 0 u8 |              send no messages
//! resume          head | 7 u8 | 0 u8 |              do again
//! ```
//!
//! Numbers are little-endian. A message's identity is chosen by its source: the low half is its index in
//! the source's table, below the message limit of the path; the high half tells apart those that have
//! had this index one after the other.

use std::fmt;

use super::outgoing::Outgoing;
use fabric::queue::Violation;

/// Queues of a path each way.
pub const QUEUES: usize = 2;

/// Bytes in a parameter list.
pub const PARAMETER_BYTES: usize = 8;

/// Bytes of an identity.
pub(super) const ID_BYTES: usize = 4;

/// Identities in one record of those completed.
pub(super) const IDS_MAX: usize = 512;

/// The identity of a message, among those that its source has outstanding on this path.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MessageId(pub u32);

impl MessageId {
    pub(super) fn new(index: usize, generation: u16) -> MessageId {
        MessageId(index as u32 | u32::from(generation) << 16)
    }

    /// Its index in its source's table.
    #[inline]
    pub(super) fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:08x}", self.0)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageHead {
    pub(super) class: u32,
    pub(super) id: MessageId,
    /// The longest reply; none for a one-way message.
    pub(super) reply_bytes_max: Option<u32>,
    pub(super) parameters: bool,
}

/// Bytes of the head of a one-way message.
pub(super) const ONE_WAY_HEAD_BYTES: usize = 8;

/// A head, and how much of it there is.
pub(super) type Head = ([u8; 13], usize);

impl MessageHead {
    /// The head of a message that is sent so.
    #[inline(always)]
    pub(super) fn of(outgoing: &Outgoing, id: MessageId, parameters: bool) -> MessageHead {
        let Outgoing { target_class: class, reply_bytes_max, .. } = *outgoing;
        MessageHead { class, id, reply_bytes_max, parameters }
    }

    /// The head, which is that of a one-way message: of a length that the compiler knows, so that it is put
    /// in with one store.
    #[inline(always)]
    pub(super) fn one_way_bytes(self) -> [u8; ONE_WAY_HEAD_BYTES] {
        (u64::from(self.class) | u64::from(self.id.0) << 32).to_le_bytes()
    }

    #[inline]
    pub(super) fn bytes(self) -> Head {
        let mut bytes = [0; 13];
        let mut length = ONE_WAY_HEAD_BYTES;
        bytes[..length].copy_from_slice(&self.one_way_bytes());
        if let Some(reply_bytes_max) = self.reply_bytes_max {
            bytes[8..12].copy_from_slice(&reply_bytes_max.to_le_bytes());
            length = 12;
        }
        if self.parameters {
            bytes[length] = 1;
            length += 1;
        }
        (bytes, length)
    }
}

/// A message or a control record, apart from the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Message(MessageHead),
    Completed,
    Reply { id: MessageId, parameters: bool, priority: bool },
    Rejected(MessageId),
    Purge(MessageId),
    Purged(MessageId),
    Quiesce,
    Resume,
}

impl Record {
    /// Whether bytes may follow the head.
    #[inline]
    pub(super) fn may_have_body(self) -> bool {
        matches!(self, Record::Message(_) | Record::Completed | Record::Reply { .. })
    }

    /// Puts the head together of what is no message.
    pub(super) fn bytes(self) -> Head {
        let (code, flags, id) = match self {
            Record::Message(head) => return head.bytes(),
            Record::Completed => (1, 0, None),
            Record::Reply { id, parameters, priority } => {
                (2, u8::from(parameters) | u8::from(priority) << 1, Some(id))
            }
            Record::Rejected(id) => (3, 0, Some(id)),
            Record::Purge(id) => (4, 0, Some(id)),
            Record::Purged(id) => (5, 0, Some(id)),
            Record::Quiesce => (6, 0, None),
            Record::Resume => (7, 0, None),
        };
        let mut bytes = [0; 13];
        bytes[..2].copy_from_slice(&[code, flags]);
        if let Some(id) = id {
            bytes[2..6].copy_from_slice(&id.0.to_le_bytes());
        }
        (bytes, if id.is_some() { 6 } else { 2 })
    }

    /// Takes a head apart that came over `queue`.
    #[inline(always)]
    pub(super) fn parse(queue: usize, head: &[u8]) -> Result<Record, Violation> {
        let number = |at: usize| {
            let bytes = head[at..at + 4].as_array().expect("four bytes");
            u32::from_le_bytes(*bytes)
        };
        let parameters = match head.len() {
            8 | 12 => false,
            9 | 13 if head[head.len() - 1] == 1 => true,
            2 | 6 if queue == 1 => return Record::parse_control(head),
            _ => return Err(Violation::Record),
        };
        let reply_bytes_max = (head.len() >= 12).then(|| number(8));
        Ok(Record::Message(MessageHead {
            class: number(0),
            id: MessageId(number(4)),
            reply_bytes_max,
            parameters,
        }))
    }

    fn parse_control(head: &[u8]) -> Result<Record, Violation> {
        let id = match *head {
            [_, _, a, b, c, d] => Some(MessageId(u32::from_le_bytes([a, b, c, d]))),
            _ => None,
        };
        match (head[0], head[1], id) {
            (1, 0, None) => Ok(Record::Completed),
            (2, flags, Some(id)) if flags < 4 => {
                Ok(Record::Reply { id, parameters: flags & 1 != 0, priority: flags & 2 != 0 })
            }
            (3, 0, Some(id)) => Ok(Record::Rejected(id)),
            (4, 0, Some(id)) => Ok(Record::Purge(id)),
            (5, 0, Some(id)) => Ok(Record::Purged(id)),
            (6, 0, None) => Ok(Record::Quiesce),
            (7, 0, None) => Ok(Record::Resume),
            _ => Err(Violation::Record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: MessageId = MessageId(0x0807_0605);

    #[test]
    fn messages_are_what_the_picture_says() {
        let head =
            MessageHead { class: 0x0403_0201, id: ID, reply_bytes_max: None, parameters: false };
        let (bytes, length) = head.bytes();
        assert_eq!(bytes[..length], [1, 2, 3, 4, 5, 6, 7, 8]);
        let two_way = MessageHead { reply_bytes_max: Some(0x0c0b_0a09), parameters: true, ..head };
        let (bytes, length) = two_way.bytes();
        assert_eq!(bytes[..length], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1]);
        for head in [
            head,
            two_way,
            MessageHead { parameters: true, ..head },
            MessageHead { parameters: false, ..two_way },
        ] {
            let (bytes, length) = head.bytes();
            for queue in 0..QUEUES {
                assert_eq!(Record::parse(queue, &bytes[..length]), Ok(Record::Message(head)));
            }
        }
    }

    #[test]
    fn what_is_said_about_messages_is_what_the_picture_says() {
        for (record, bytes) in [
            (Record::Completed, &[1, 0][..]),
            (Record::Reply { id: ID, parameters: true, priority: false }, &[2, 1, 5, 6, 7, 8]),
            (Record::Reply { id: ID, parameters: false, priority: true }, &[2, 2, 5, 6, 7, 8]),
            (Record::Rejected(ID), &[3, 0, 5, 6, 7, 8]),
            (Record::Purge(ID), &[4, 0, 5, 6, 7, 8]),
            (Record::Purged(ID), &[5, 0, 5, 6, 7, 8]),
            (Record::Quiesce, &[6, 0]),
            (Record::Resume, &[7, 0]),
        ] {
            let (head, length) = record.bytes();
            assert_eq!(&head[..length], bytes);
            assert_eq!(Record::parse(1, bytes), Ok(record));
            assert_eq!(Record::parse(0, bytes), Err(Violation::Record), "not on queue 0");
        }
    }

    #[test]
    fn heads_of_other_lengths_codes_and_flags_are_refused() {
        for length in (0..=24).filter(|length| ![8, 12].contains(length)) {
            assert_eq!(Record::parse(1, &vec![0; length]), Err(Violation::Record), "{length}");
        }
        for head in
            [&[8, 0][..], &[0, 0], &[1, 1], &[2, 0], &[3, 1, 0, 0, 0, 0], &[2, 4, 0, 0, 0, 0]]
        {
            assert_eq!(Record::parse(1, head), Err(Violation::Record), "{head:?}");
        }
    }
}
