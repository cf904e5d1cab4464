//! Questions after names: the messages of the domain name system that resolvers are asked.
//!
//! A resolver on this machine may believe what comes from the machine itself: changes of names (RFC 2136), notifications, requests for a whole
//! zone. Those do not pass.

use std::io::{self, ErrorKind, IoSlice};

/// Bytes of the head of a message (RFC 1035 4.1.1).
pub const HEAD_BYTES: usize = 12;

/// Kinds of questions that ask for a zone, or for what has changed in it (RFC 5936, RFC 1995).
const IXFR: u8 = 251;
const AXFR: u8 = 252;

/// Bytes of the longest label. What has greater lengths is something else.
const LABEL_BYTES_MAX: u8 = 63;

/// Returns true if a message asks something that a resolver answers: a standard query with one question, and not after a whole zone.
pub fn is_query(message: &[u8]) -> bool {
    let mut begun = Message::default();
    message.iter().all(|byte| begun.take(*byte)) && begun.is_query()
}

/// A message as far as its bytes have come.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    bytes: usize,
    /// Bytes that are left of a label of the name.
    label_left: u8,
    /// Where the name of the question has ended, if it has.
    name_end: Option<usize>,
    kind_high: u8,
}

impl Message {
    /// Takes the next byte. Returns false if the message is none that may pass.
    fn take(&mut self, byte: u8) -> bool {
        let at = self.bytes;
        self.bytes += 1;
        match (at, self.name_end) {
            // A query, and a standard one.
            (2, _) => byte & 0xf8 == 0,
            // One question.
            (4, _) => byte == 0,
            (5, _) => byte == 1,
            (..HEAD_BYTES, _) => true,
            (_, None) => self.take_of_name(byte),
            (_, Some(end)) if at == end => {
                self.kind_high = byte;
                true
            }
            (_, Some(end)) if at == end + 1 => self.kind_high != 0 || ![IXFR, AXFR].contains(&byte),
            _ => true,
        }
    }

    fn take_of_name(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.label_left > 0 => self.label_left -= 1,
            0 => self.name_end = Some(self.bytes),
            1..=LABEL_BYTES_MAX => self.label_left = byte,
            _ => return false,
        }
        true
    }

    /// Returns true if its question has come: the name, the kind and the class.
    fn is_query(&self) -> bool {
        self.name_end.is_some_and(|end| self.bytes >= end + 4)
    }
}

/// The messages of a connection to a resolver, as far as they have come: two bytes with the length are before each (RFC 1035 4.2.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Questions {
    length_bytes: u8,
    left: u16,
    message: Message,
}

impl Questions {
    /// Has `write` write bytes if they belong to questions, and returns how many were written. Those come again that were not.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`]: a message is no question, and the last byte of it was not written. Otherwise as from `write`.
    pub fn pass(
        &mut self,
        pieces: &[IoSlice<'_>],
        write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let bytes = || pieces.iter().flat_map(|piece| piece.iter());
        let mut ahead = *self;
        if !bytes().all(|byte| ahead.take(*byte)) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let written = write(pieces)?;
        bytes().take(written).for_each(|byte| _ = self.take(*byte));
        Ok(written)
    }

    fn take(&mut self, byte: u8) -> bool {
        if self.length_bytes < 2 {
            self.length_bytes += 1;
            self.left = self.left << 8 | u16::from(byte);
            return self.length_bytes < 2 || self.left > 0;
        }
        self.left -= 1;
        let may_pass = self.message.take(byte);
        if self.left > 0 {
            return may_pass;
        }
        may_pass && std::mem::take(self).message.is_query()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question after `web`, kind A, with recursion, with its length before it.
    const WEB: &[u8] =
        b"\x00\x15\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x00\x00\x01\x00\x01";

    /// Writes a connection in parts of so many bytes, of which one less than it could is written each time. Returns what has passed.
    fn passed(bytes: &[u8], part: usize) -> io::Result<Vec<u8>> {
        let (mut questions, mut passed) = (Questions::default(), Vec::new());
        while passed.len() < bytes.len() {
            let left = &bytes[passed.len()..];
            let (one, two) = left[..part.min(left.len())].split_at(part.min(left.len()) / 2);
            let write = |pieces: &[IoSlice<'_>]| {
                let all = pieces.iter().flat_map(|piece| piece.iter()).copied();
                let all: Vec<u8> = all.collect();
                let count = (all.len() - 1).max(1);
                passed.extend(&all[..count]);
                Ok(count)
            };
            questions.pass(&[IoSlice::new(one), IoSlice::new(two)], write)?;
        }
        Ok(passed)
    }

    #[test]
    fn questions_pass_however_they_are_cut() {
        let additional = [&[0, 0x20][..], &WEB[2..], &[0; 11]].concat();
        let three = [WEB, &additional, WEB].concat();
        for part in 1..=three.len() {
            assert_eq!(passed(&three, part).unwrap(), three, "{part}");
        }
    }

    #[test]
    fn other_messages_do_not_pass_however_they_are_cut() {
        let with = |at: usize, byte: u8| {
            let mut message = WEB.to_vec();
            message[at] = byte;
            message
        };
        // An update, a notification, an answer, two questions, none, a zone, what has changed in it, a name that is elsewhere, nothing, and a question that
        // is cut.
        let others = [
            with(4, 0x28),
            with(4, 0x20),
            with(4, 0x80),
            with(7, 2),
            with(7, 0),
            with(20, AXFR),
            with(20, IXFR),
            with(14, 0xc0),
            vec![0, 0],
            [&[0, 0x14][..], &WEB[2..22], WEB].concat(),
        ];
        for other in others {
            let bytes = [WEB, &other].concat();
            for part in 1..=bytes.len() {
                let error = passed(&bytes, part).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{other:?} {part}");
            }
            assert!(other.len() != WEB.len() || !is_query(&other[2..]), "{other:?}");
        }
        assert!(is_query(&WEB[2..]) && !is_query(&WEB[2..22]) && !is_query(&[]));
    }
}
