//! Formats: what goes over the queues.
//!
//! ```text
//! data            head | 1 u8 | then u8 | seen u32 |      body a logical record
//! no data         head | 2 u8 | then u8 | seen u32 |      then is not 0
//! confirmed       head | 3 u8 | 0 u8 | seen u32 |
//! error           head | 4 u8 | 0 u8 | seen u32 |         what was sent to its source is purged
//!                 head | 4 u8 | 1 u8 | seen u32 |         nothing is purged: its source was sending
//! request         head | 5 u8 | 0 u8 | seen u32 |         its source would like to send
//!
//! then: 0 more of this kind, 1 it is your turn, 2 confirm, 3 confirm and then it is your turn,
//!       4 confirm and then the conversation is over, 5 the conversation is over
//! ```
//!
//! Numbers are little-endian. *Seen* says how many purging errors of the other side had been seen when this
//! was sent: who has sent more knows that this was sent before they were seen, and purges it.

use fabric::listed;
use fabric::queue::Violation;

listed! {
    /// What comes after a record.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Then {
        /// More records: this side goes on sending.
        #[default]
        More = 0,
        /// The partner's turn: this side receives.
        Receive = 1,
        /// The partner is to confirm; then this side goes on sending.
        Confirm = 2,
        /// The partner is to confirm; then it is its turn.
        ConfirmReceive = 3,
        /// The partner is to confirm; then the conversation is over.
        ConfirmSever = 4,
        /// Nothing: the conversation is over.
        Sever = 5,
    }
}

impl Then {
    /// Whether the partner is to confirm.
    #[inline]
    pub fn confirms(self) -> bool {
        matches!(self, Then::Confirm | Then::ConfirmReceive | Then::ConfirmSever)
    }
}

/// A word that one side sends to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Data(Then),
    NoData(Then),
    Confirmed,
    Error { purges: bool },
    Request,
}

/// A head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) word: Word,
    pub(super) seen: u32,
}

pub(super) const HEAD_BYTES: usize = 6;

impl Record {
    #[inline]
    pub(super) fn bytes(self) -> [u8; HEAD_BYTES] {
        let (code, note) = match self.word {
            Word::Data(then) => (1, then as u8),
            Word::NoData(then) => (2, then as u8),
            Word::Confirmed => (3, 0),
            Word::Error { purges } => (4, u8::from(!purges)),
            Word::Request => (5, 0),
        };
        let [a, b, c, d] = self.seen.to_le_bytes();
        [code, note, a, b, c, d]
    }

    /// Takes a head apart.
    #[inline]
    pub(super) fn parse(head: &[u8]) -> Result<Record, Violation> {
        let &[code, note, a, b, c, d] = head else { return Err(Violation::Record) };
        let then = Then::ALL.get(usize::from(note)).copied();
        let word = match (code, note, then) {
            (1, _, Some(then)) => Word::Data(then),
            (2, 1.., Some(then)) => Word::NoData(then),
            (3, 0, _) => Word::Confirmed,
            (4, 0 | 1, _) => Word::Error { purges: note == 0 },
            (5, 0, _) => Word::Request,
            _ => return Err(Violation::Record),
        };
        Ok(Record { word, seen: u32::from_le_bytes([a, b, c, d]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_what_the_picture_says() {
        let seen = 0x0403_0201;
        for (word, code, note) in [
            (Word::Data(Then::More), 1, 0),
            (Word::Data(Then::Receive), 1, 1),
            (Word::Data(Then::Confirm), 1, 2),
            (Word::Data(Then::ConfirmReceive), 1, 3),
            (Word::Data(Then::ConfirmSever), 1, 4),
            (Word::Data(Then::Sever), 1, 5),
            (Word::NoData(Then::Receive), 2, 1),
            (Word::NoData(Then::Confirm), 2, 2),
            (Word::NoData(Then::ConfirmReceive), 2, 3),
            (Word::NoData(Then::ConfirmSever), 2, 4),
            (Word::NoData(Then::Sever), 2, 5),
            (Word::Confirmed, 3, 0),
            (Word::Error { purges: true }, 4, 0),
            (Word::Error { purges: false }, 4, 1),
            (Word::Request, 5, 0),
        ] {
            let record = Record { word, seen };
            let bytes = [code, note, 1, 2, 3, 4];
            assert_eq!(record.bytes(), bytes);
            assert_eq!(Record::parse(&bytes), Ok(record));
        }
    }

    #[test]
    fn heads_of_other_lengths_codes_and_notes_are_refused() {
        for length in (0..=24).filter(|length| *length != HEAD_BYTES) {
            assert_eq!(Record::parse(&vec![1; length]), Err(Violation::Record), "{length}");
        }
        for (code, note) in
            [(0, 0), (1, 6), (1, 255), (2, 0), (2, 6), (3, 1), (4, 2), (5, 1), (6, 0), (255, 0)]
        {
            let head = [code, note, 0, 0, 0, 0];
            assert_eq!(Record::parse(&head), Err(Violation::Record), "{code} {note}");
        }
    }
}
