//! The two ends of a stream of files.
//!
//! A file is a row of pieces, each of which has a number that no other of the stream has, so that every byte is verified. The receiver confirms a whole file with one byte,
//! the number of the file. The sender may end within a file: the receiver says then how many bytes of all files it has.

use super::super::network::talk::is_of;
use super::super::prelude::*;
use super::super::tcp::{done, read_on, write_on};
use crate::transport::Receive;

/// Bytes that are written or read at once, at most.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes of the number that says how much the receiver has.
const COUNT_BYTES: usize = 8;

/// How far a sender with a rate may be behind, in nanoseconds: what it has missed before that it does not make up for.
const BEHIND_NS_MAX: f64 = 2e6;

/// The bytes of a file of the order.
fn file_bytes(order: &Order) -> u64 {
    order.number("bytes")
}

/// The end that sends files.
#[derive(Debug)]
pub(super) struct Sending<S> {
    stream: S,
    file_bytes: u64,
    /// Bytes of the file that have been written.
    at: u64,
    files: u64,
    /// Bytes of all files that have been written.
    bytes: u64,
    /// The piece that is being written, and how much of it has gone.
    piece: Vec<u8>,
    piece_at: usize,
    pieces: u64,
    /// Whether a file is whole, and is not confirmed yet.
    is_confirmation_due: bool,
    /// Whether the stream may have room.
    has_room: bool,
    /// Nanoseconds for each byte, and when the next is due.
    ns_per_byte: f64,
    due_ns: f64,
    /// What the receiver says at the end.
    last: Vec<u8>,
    last_at: usize,
}

impl<S: Receive> Sending<S> {
    pub(super) fn new(stream: S, order: &Order, now_ns: u64) -> Sending<S> {
        let rate = number(&order.factors, "bulk_mbit").filter(|mbit| *mbit > 0);
        Sending {
            stream,
            file_bytes: file_bytes(order),
            at: 0,
            files: 0,
            bytes: 0,
            piece: Vec::new(),
            piece_at: 0,
            pieces: 0,
            is_confirmation_due: false,
            has_room: true,
            ns_per_byte: rate.map_or(0.0, |mbit| 8e3 / mbit as f64),
            due_ns: now_ns as f64,
            last: Vec::new(),
            last_at: 0,
        }
    }

    /// There are news of the stream.
    pub(super) fn has_news(&mut self) {
        self.has_room = true;
    }

    /// Writes a piece at most, if it is due and there is room. Returns when to call again: [`u64::MAX`] if not before there are news.
    pub(super) fn advance(&mut self, now_ns: u64) -> Result<u64, Fault> {
        if self.is_confirmation_due && !self.confirm()? {
            return Ok(u64::MAX);
        }
        if self.is_piece_over() {
            if self.due_ns > now_ns as f64 {
                return Ok(self.due_ns as u64);
            }
            self.begin_piece(now_ns);
        }
        match self.has_room && self.write()? {
            true => Ok(now_ns),
            false => Ok(u64::MAX),
        }
    }

    fn is_piece_over(&self) -> bool {
        self.piece_at == self.piece.len()
    }

    fn begin_piece(&mut self, now_ns: u64) {
        let bytes = (self.file_bytes - self.at).min(PIECE_BYTES as u64);
        self.piece.resize(bytes as usize, 0);
        fill(&mut self.piece, self.pieces);
        self.pieces += 1;
        self.piece_at = 0;
        let from_ns = self.due_ns.max(now_ns as f64 - BEHIND_NS_MAX);
        self.due_ns = from_ns + bytes as f64 * self.ns_per_byte;
    }

    /// Writes what is left of the piece. False if it has to wait for room.
    fn write(&mut self) -> Result<bool, Fault> {
        self.has_room = write_on(&mut self.stream, &self.piece, &mut self.piece_at)?;
        if self.has_room {
            self.at += self.piece.len() as u64;
            self.bytes += self.piece.len() as u64;
        }
        if self.at == self.file_bytes {
            (self.at, self.is_confirmation_due) = (0, true);
            self.files += 1;
        }
        Ok(self.has_room)
    }

    /// False if the file is not confirmed yet.
    fn confirm(&mut self) -> Result<bool, Fault> {
        let mut byte = [0];
        match done(self.stream.read(&mut byte)).doing("wait for a file to be confirmed")? {
            None => Ok(false),
            Some(0) => Err(Fault::Ended),
            Some(_) if byte != [self.files as u8] => Err(Fault::Corrupt(self.files)),
            Some(_) => {
                self.is_confirmation_due = false;
                Ok(true)
            }
        }
    }

    /// Ends the stream behind the piece that is being written. False if it has to wait: it is to be called again when there are news.
    pub(super) fn end(&mut self) -> Result<bool, Fault> {
        if !self.is_piece_over() && !self.write()? {
            return Ok(false);
        }
        if self.last.is_empty() {
            self.stream.end_sending().doing("end a stream")?;
            self.last = vec![0; COUNT_BYTES + usize::from(self.is_confirmation_due)];
        }
        if !read_on(&mut self.stream, &mut self.last, &mut self.last_at, |_, _| {})? {
            return Ok(false);
        }
        let count = self.last.last_chunk().expect("it is as long as a count");
        let came = u64::from_le_bytes(*count);
        if came == self.bytes {
            return Ok(true);
        }
        let why = format!("{} bytes of files were sent, {came} came", self.bytes);
        Err(Fault::Refused { what: "count the bytes", why })
    }
}

/// The end that receives files.
#[derive(Debug)]
pub(super) struct Receiving<S> {
    stream: S,
    file_bytes: u64,
    /// Bytes of the file that have come.
    at: u64,
    files: u64,
    bytes: u64,
    /// The number of the file's first piece.
    first_piece: u64,
    /// When the first bytes of the file came, and how long the last whole one took.
    began_ns: Option<u64>,
    took_ns: Option<u64>,
    room: Vec<u8>,
    /// What is to be said to the sender, and how much of it has gone.
    said: Vec<u8>,
    said_at: usize,
    is_over: bool,
}

/// How receiving goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goes {
    /// There may be more at once.
    On,
    /// When there are news.
    Later,
    /// The sender has ended, and knows how much has come.
    Over,
}

impl<S: Receive> Receiving<S> {
    pub(super) fn new(stream: S, order: &Order) -> Receiving<S> {
        Receiving {
            stream,
            file_bytes: file_bytes(order),
            at: 0,
            files: 0,
            bytes: 0,
            first_piece: 0,
            began_ns: None,
            took_ns: None,
            room: vec![0; PIECE_BYTES],
            said: Vec::new(),
            said_at: 0,
            is_over: false,
        }
    }

    /// Bytes of all files that have come, and were right.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How long a file took that has become whole, from its first bytes to its last; none if no other has since the last call.
    pub(super) fn take_time(&mut self) -> Option<u64> {
        self.took_ns.take()
    }

    /// Reads once, verifies that, and says what there is to say.
    pub(super) fn advance(&mut self) -> Result<Goes, Fault> {
        if !write_on(&mut self.stream, &self.said, &mut self.said_at)? {
            return Ok(Goes::Later);
        }
        if self.is_over {
            return Ok(Goes::Over);
        }
        let most = (self.file_bytes - self.at).min(PIECE_BYTES as u64) as usize;
        let (at, first, mut is_right) = (self.at, self.first_piece, true);
        let verify = |part: &[u8]| {
            is_right = is_of(part, at as usize, |place| {
                ((first + (place / PIECE_BYTES) as u64), place % PIECE_BYTES, PIECE_BYTES)
            });
        };
        let came =
            done(self.stream.receive(&mut self.room[..most], verify)).doing("read a file")?;
        match came {
            None => return Ok(Goes::Later),
            Some(0) => {
                self.say(self.bytes.to_le_bytes().to_vec());
                self.is_over = true;
            }
            Some(_) if !is_right => {
                return Err(Fault::Corrupt(first + at / PIECE_BYTES as u64));
            }
            Some(more) => {
                self.at += more as u64;
                self.bytes += more as u64;
                // Once for each file: a clock for each read would be paid for by files alone.
                if self.began_ns.is_none() {
                    self.began_ns = Some(now_ns());
                }
            }
        }
        if self.at == self.file_bytes {
            self.took_ns = self.began_ns.take().map(|began_ns| now_ns() - began_ns);
            self.first_piece += self.file_bytes.div_ceil(PIECE_BYTES as u64);
            (self.at, self.files) = (0, self.files + 1);
            self.say(vec![self.files as u8]);
        }
        Ok(Goes::On)
    }

    fn say(&mut self, what: Vec<u8>) {
        (self.said, self.said_at) = (what, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A stream that takes and gives few bytes at a time.
    #[derive(Debug)]
    struct Narrow(UnixStream);

    impl Read for Narrow {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            let most = target.len().min(4096 + 13);
            self.0.read(&mut target[..most])
        }
    }

    impl Write for Narrow {
        fn write(&mut self, source: &[u8]) -> io::Result<usize> {
            self.0.write(&source[..source.len().min(4096 - 7)])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Receive for Narrow {
        fn set_no_delay(&self) -> io::Result<()> {
            Err(ErrorKind::Unsupported.into())
        }

        fn end_sending(&self) -> io::Result<()> {
            self.0.shutdown(std::net::Shutdown::Write)
        }
    }

    fn order(bytes: u64, mbit: u64) -> Order {
        let mut order = Order::of_thread("source", &[]);
        for (factor, level) in [("bytes", bytes), ("bulk_mbit", mbit)] {
            order.factors.insert(factor.to_owned(), Level::Number(level));
        }
        order
    }

    fn pair(order: &Order) -> (Sending<Narrow>, Receiving<Narrow>) {
        let (one, other) = UnixStream::pair().unwrap();
        let narrow = [one, other].map(|end| {
            end.set_nonblocking(true).unwrap();
            Narrow(end)
        });
        let [one, other] = narrow;
        (Sending::new(one, order, 0), Receiving::new(other, order))
    }

    #[test]
    fn files_of_any_length_come_whole_and_the_last_may_be_cut() {
        for (bytes, steps) in [(1, 50), (65_536, 100), (65_537, 100), (200_000, 331)] {
            let (mut sending, mut receiving) = pair(&order(bytes, 0));
            for step in 0..steps {
                sending.has_news();
                sending.advance(step).unwrap();
                while receiving.advance().unwrap() == Goes::On {}
            }
            assert!(receiving.files > 0, "{bytes}");
            while !sending.end().unwrap() {
                sending.has_news();
                while receiving.advance().unwrap() == Goes::On {}
            }
            assert_eq!(sending.bytes, receiving.bytes(), "{bytes}");
            assert_eq!(receiving.advance().unwrap(), Goes::Over);
        }
    }

    #[test]
    fn wrong_byte_is_found() {
        let (mut sending, mut receiving) = pair(&order(100_000, 0));
        sending.begin_piece(0);
        sending.piece[30_000] ^= 1;
        let mut result = Ok(Goes::On);
        while result.is_ok() && !sending.is_piece_over() {
            sending.write().unwrap();
            while matches!(result, Ok(Goes::On)) {
                result = receiving.advance();
            }
            if matches!(result, Ok(Goes::Later)) {
                result = Ok(Goes::On);
            }
        }
        while matches!(result, Ok(Goes::On)) {
            result = receiving.advance();
        }
        assert!(matches!(result, Err(Fault::Corrupt(0))), "{result:?}");
    }

    #[test]
    fn rate_says_when_the_next_piece_is_due_and_what_was_missed_is_not_made_up_for() {
        // A byte each 8 ns.
        let (mut sending, mut receiving) = pair(&order(1 << 30, 1000));
        let piece_ns = 8 * PIECE_BYTES as u64;
        let mut take = |sending: &mut Sending<Narrow>, now_ns| {
            while sending.advance(now_ns).unwrap() == u64::MAX {
                sending.has_news();
                while receiving.advance().unwrap() == Goes::On {}
            }
            sending.advance(now_ns).unwrap()
        };
        assert_eq!(take(&mut sending, 0), piece_ns);
        assert_eq!(sending.advance(piece_ns - 1).unwrap(), piece_ns);
        assert_eq!(sending.bytes, PIECE_BYTES as u64);
        // Late by a second.
        let late_ns = 1_000_000_000;
        let mut pieces = 0;
        while sending.due_ns <= late_ns as f64 {
            take(&mut sending, late_ns);
            pieces += 1;
        }
        assert!(pieces <= 2 * (BEHIND_NS_MAX as u64 / piece_ns + 1), "{pieces}");
    }
}
