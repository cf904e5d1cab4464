//! What two programs do with connections: a request and its answer, again and again, each made anew and verified.
//!
//! ```text
//! client                       server
//! connect                      accept
//! write a request              verify it
//! verify the answer            write it
//! (close)                      (close)        if there is a connection for each request
//!                                         when both are ready, until the window is over:
//! (connect)                    (accept)       if there is a connection for each request
//! write a request              verify it
//! verify the answer            write it
//! (wait for the end)           (close)        if there is a connection for each request
//!                                         then:
//! (connect)                    (accept)       if there is none
//! end                          close
//! ```
//!
//! Requests and answers go in pieces of what a program writes at once. Each piece has the number of all that this side wrote before
//! it, over all connections of the pair.

use os::sync::pause;

use super::super::prelude::*;
use super::super::tcp::{done, write_on};
use crate::measure::{Unit, Window};
use crate::pattern::{self, is_intact};
use crate::transport::{Dials, Receive};

/// What goes over the connections of a pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Talk {
    pub(super) request_bytes: usize,
    pub(super) answer_bytes: usize,
    /// What a program writes at once, at most.
    pub(super) write_bytes: usize,
    pub(super) counted: Counted,
    /// Whether there is a connection for each request.
    pub(super) is_short: bool,
}

/// What a pair counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// The bytes of requests, as they go.
    Requests,
    /// The bytes of answers, as they come.
    Answers,
    /// Requests that were answered.
    Transactions,
}

impl Talk {
    /// What is done of each kind of work whenever something counts.
    fn units(&self) -> Vec<Unit> {
        let whole = |bytes: usize| vec![("bytes", 1.0), ("transactions", 1.0 / bytes as f64)];
        match self.counted {
            Counted::Requests => whole(self.request_bytes),
            Counted::Answers => whole(self.answer_bytes),
            Counted::Transactions => {
                let bytes = self.request_bytes + self.answer_bytes;
                vec![("transactions", 1.0), ("bytes", bytes as f64)]
            }
        }
    }
}

/// Bytes that are read at once, at most.
const READ_BYTES_MAX: usize = 64 << 10;

/// Who writes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    Client,
    Server,
}

impl Author {
    /// What piece `number` of this side is filled with.
    fn content(self, number: u64) -> u64 {
        match self {
            Author::Client => number,
            Author::Server => pattern::answer(number),
        }
    }
}

/// Writes requests, or answers, and remembers how many pieces there were.
#[derive(Debug)]
struct Writer {
    author: Author,
    pieces: u64,
    buffer: Vec<u8>,
}

impl Writer {
    fn new(author: Author, bytes: usize, write_bytes: usize) -> Writer {
        Writer { author, pieces: 0, buffer: vec![0; bytes.min(write_bytes)] }
    }

    /// Writes so many bytes, and calls `each` with those of each piece.
    fn write(
        &mut self,
        stream: &mut impl Receive,
        bytes: usize,
        mut each: impl FnMut(usize),
    ) -> Result<(), Fault> {
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(self.buffer.len());
            fill(&mut self.buffer[..piece], self.author.content(self.pieces));
            self.pieces += 1;
            let mut at = 0;
            while !write_on(stream, &self.buffer[..piece], &mut at)? {
                pause();
            }
            left -= piece;
            each(piece);
        }
        Ok(())
    }
}

/// Reads and verifies what the other side has written.
#[derive(Debug)]
struct Reader {
    author: Author,
    pieces: u64,
    piece_bytes: usize,
    room: Vec<u8>,
}

impl Reader {
    fn new(author: Author, bytes: usize, write_bytes: usize) -> Reader {
        let room = vec![0; bytes.min(READ_BYTES_MAX)];
        Reader { author, pieces: 0, piece_bytes: bytes.min(write_bytes), room }
    }

    /// Reads so many bytes, and calls `each` with those that have come. False if the other side has finished before the first.
    fn read(
        &mut self,
        stream: &mut impl Receive,
        bytes: usize,
        mut each: impl FnMut(usize),
    ) -> Result<bool, Fault> {
        let mut at = 0;
        while at < bytes {
            let most = self.room.len().min(bytes - at);
            let mut is_right = true;
            let (author, first, piece_bytes) = (self.author, self.pieces, self.piece_bytes);
            let verify = |part: &[u8]| {
                is_right = is_of(part, at, |place| {
                    let piece = (place / piece_bytes) as u64;
                    (author.content(first + piece), place % piece_bytes, piece_bytes)
                })
            };
            match done(stream.receive(&mut self.room[..most], verify)).doing("read")? {
                None => pause(),
                Some(0) if at == 0 => return Ok(false),
                Some(0) => return Err(Fault::Ended),
                Some(_) if !is_right => {
                    return Err(Fault::Corrupt(first + (at / piece_bytes) as u64));
                }
                Some(more) => {
                    at += more;
                    each(more);
                }
            }
        }
        self.pieces += bytes.div_ceil(self.piece_bytes) as u64;
        Ok(true)
    }
}

/// Returns true if a part of a row of pieces is right that begins at byte `at` of the row. `piece` says of a byte of the row which piece it is
/// in, how far within that, and how long the piece is.
pub(in crate::workload) fn is_of(
    part: &[u8],
    at: usize,
    piece: impl Fn(usize) -> (u64, usize, usize),
) -> bool {
    let (mut at, mut rest, mut is_right) = (at, part, true);
    while !rest.is_empty() {
        let (number, within, bytes) = piece(at);
        let (own, others) = rest.split_at(rest.len().min(bytes - within));
        is_right &= is_intact(own, number, within);
        at += own.len();
        rest = others;
    }
    is_right
}

/// Plays one side of a pair.
pub(super) fn talk<D: Dials>(
    dials: D,
    talk: &Talk,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    let (own, other) = match order.is_source() {
        true => (Author::Client, Author::Server),
        false => (Author::Server, Author::Client),
    };
    let (sent, received) = match own {
        Author::Client => (talk.request_bytes, talk.answer_bytes),
        Author::Server => (talk.answer_bytes, talk.request_bytes),
    };
    let mut side = Side {
        dials,
        stream: None,
        talk: *talk,
        writer: Writer::new(own, sent, talk.write_bytes),
        reader: Reader::new(other, received, talk.write_bytes),
        counted: 0,
    };
    side.greet(own)?;
    let window = side.dials.ready(control)?;
    let meter = Meter::new(window, order, &talk.units());
    let report = match own {
        Author::Client => side.ask_until_over(window, meter.timing("latency", 1))?,
        Author::Server => side.serve_until_over(meter)?,
    };
    side.stream = None;
    side.dials.finish()?;
    Ok(report)
}

/// One side of a pair.
struct Side<D: Dials> {
    dials: D,
    /// None before it is made, and once it is closed.
    stream: Option<D::Stream>,
    talk: Talk,
    writer: Writer,
    reader: Reader,
    /// What the pair counts, from the first on.
    counted: u64,
}

impl<D: Dials> Side<D> {
    fn connect(&mut self) -> Result<(), Fault> {
        if self.stream.is_none() {
            let stream = self.dials.connect().doing("connect")?;
            stream.set_no_delay().doing("set no delay")?;
            self.stream = Some(stream);
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<(), Fault> {
        while self.stream.is_none() {
            match self.dials.accept().doing("accept")? {
                None => pause(),
                Some(stream) => {
                    stream.set_no_delay().doing("set no delay")?;
                    self.stream = Some(stream);
                }
            }
        }
        Ok(())
    }

    /// Asks, or answers, once before anything counts: what takes long once, as for a line to come up, is over then.
    fn greet(&mut self, own: Author) -> Result<(), Fault> {
        match own {
            Author::Client => self.connect()?,
            Author::Server => self.accept()?,
        }
        let Side { stream, talk, writer, reader, .. } = self;
        let open = stream.as_mut().expect("it is there");
        let has_come = match own {
            Author::Client => {
                writer.write(open, talk.request_bytes, |_| {})?;
                reader.read(open, talk.answer_bytes, |_| {})?
            }
            Author::Server => {
                let has_come = reader.read(open, talk.request_bytes, |_| {})?;
                writer.write(open, talk.answer_bytes, |_| {})?;
                has_come
            }
        };
        if talk.is_short {
            *stream = None;
        }
        if has_come { Ok(()) } else { Err(Fault::Ended) }
    }

    /// Asks once. `note` is called with what is counted whenever that has grown.
    fn ask(&mut self, mut note: impl FnMut(u64, &D)) -> Result<(), Fault> {
        self.connect()?;
        let Side { dials, stream, talk, writer, reader, counted } = self;
        let open = stream.as_mut().expect("it is connected");
        writer.write(open, talk.request_bytes, |bytes| {
            count(Counted::Requests, talk, bytes, counted);
            note(*counted, dials);
        })?;
        let has_come = reader.read(open, talk.answer_bytes, |bytes| {
            count(Counted::Answers, talk, bytes, counted);
            note(*counted, dials);
        })?;
        if !has_come {
            return Err(Fault::Ended);
        }
        if talk.is_short {
            wait_for_the_end(open)?;
            *stream = None;
        }
        count(Counted::Transactions, talk, 1, counted);
        Ok(())
    }

    /// Asks until the window is over, and ends.
    fn ask_until_over(&mut self, window: Window, mut meter: Meter) -> Result<Report, Fault> {
        let mut now = now_ns();
        while now < window.end_ns {
            let began = now;
            self.ask(|counted, dials| {
                meter.poll(now_ns(), counted, || dials.counts());
            })?;
            now = now_ns();
            meter.time(now - began);
            now = meter.poll(now, self.counted, || self.dials.counts());
        }
        self.connect()?;
        let open = self.stream.as_mut().expect("it is connected");
        open.end_sending().doing("end a connection")?;
        wait_for_the_end(open)?;
        meter.close(self.counted, || self.dials.counts())
    }

    /// Serves one request. False if the client has ended. `note` is as at [`Side::ask`].
    fn serve(&mut self, mut note: impl FnMut(u64, &D)) -> Result<bool, Fault> {
        self.accept()?;
        let Side { dials, stream, talk, writer, reader, counted } = self;
        let open = stream.as_mut().expect("it was accepted");
        let has_come = reader.read(open, talk.request_bytes, |bytes| {
            count(Counted::Requests, talk, bytes, counted);
            note(*counted, dials);
        })?;
        if !has_come {
            return Ok(false);
        }
        writer.write(open, talk.answer_bytes, |bytes| {
            count(Counted::Answers, talk, bytes, counted);
            note(*counted, dials);
        })?;
        if talk.is_short {
            *stream = None;
        }
        count(Counted::Transactions, talk, 1, counted);
        Ok(true)
    }

    /// Serves until the client ends.
    fn serve_until_over(&mut self, mut meter: Meter) -> Result<Report, Fault> {
        loop {
            let goes_on = self.serve(|counted, dials| {
                meter.poll(now_ns(), counted, || dials.counts());
            })?;
            if !goes_on {
                break;
            }
            meter.poll(now_ns(), self.counted, || self.dials.counts());
        }
        // The client waits for the end of its connection.
        self.stream = None;
        meter.close(self.counted, || self.dials.counts())
    }
}

/// Counts what a pair does, if that is what it counts.
fn count(what: Counted, talk: &Talk, more: usize, counted: &mut u64) {
    if talk.counted == what {
        *counted += more as u64;
    }
}

/// Waits until the other side has closed, behind its last byte.
fn wait_for_the_end(stream: &mut impl Receive) -> Result<(), Fault> {
    loop {
        match done(stream.read(&mut [0])).doing("wait for the end")? {
            Some(0) => return Ok(()),
            Some(_) => return Err(Fault::Ended),
            None => pause(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_of_pieces_is_verified_however_it_is_cut() {
        const PIECE_BYTES: usize = 12;
        const ROW_BYTES: usize = 40;
        let mut row = Vec::new();
        for (number, piece) in (7..).zip([12, 12, 12, 4]) {
            let mut bytes = vec![0; piece];
            fill(&mut bytes, number);
            row.extend(bytes);
        }
        let piece = |at: usize| (7 + (at / PIECE_BYTES) as u64, at % PIECE_BYTES, PIECE_BYTES);
        for first in 0..=ROW_BYTES {
            for last in first..=ROW_BYTES {
                assert!(is_of(&row[first..last], first, piece), "{first}..{last}");
                for at in first..last {
                    row[at] ^= 1;
                    assert!(!is_of(&row[first..last], first, piece), "{first}..{last}, byte {at}");
                    row[at] ^= 1;
                }
            }
        }
    }
}
