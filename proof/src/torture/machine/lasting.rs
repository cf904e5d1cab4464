//! Streams that last: numbered frames, each of which the other side answers with the same, until one of the two is killed.
//!
//! A frame that was answered had arrived. The last frame says that it is the last: an end of the stream before that is a fault.
//!
//! ```text
//! offset  0  mark, 4 bytes
//!         4  party u32, life u32 of the one that sends it
//!        12  is it the last, u32
//!        16  number u64, from 1
//!        24  bytes, made of all that
//! ```

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use os::processor::now_ns;
use proof::dice::mix;
use proof::pattern;
use rustix::net::sockopt;
use siga::tcpip::{Stack, TcpListener, TcpStream};

use super::super::dialogue::STILL_MAX;
use super::wire::News;

const MARK: [u8; 4] = *b"last";
const HEAD_BYTES: usize = 24;

/// Bytes behind the head of the longest frame.
const BODY_BYTES_MAX: u64 = 6000;

/// Between two frames of a stream.
const PAUSE_NS: u64 = 1_000_000;

/// What a read takes at most.
const PIECE_BYTES: usize = 16 << 10;

/// A connection of one of the TCPs that are tortured.
pub trait Connection: fmt::Debug + Read + Write {
    /// Has no verb wait.
    fn do_not_wait(&self) -> io::Result<()>;

    /// Has the connection end if the other side does not answer questions any more: for a network that tells nobody of a death.
    fn ask_whether_alive(&self) -> io::Result<()>;

    /// Sends the end of the stream.
    fn end_output(&self) -> io::Result<()>;
}

impl Connection for TcpStream {
    fn do_not_wait(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }

    fn ask_whether_alive(&self) -> io::Result<()> {
        self.set_keepalive_probes(ASK_AFTER, ASK_EACH, ASK_TIMES)
    }

    fn end_output(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// Of the kernel.
impl Connection for std::net::TcpStream {
    fn do_not_wait(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }

    fn ask_whether_alive(&self) -> io::Result<()> {
        sockopt::set_tcp_keepidle(self, ASK_AFTER)?;
        sockopt::set_tcp_keepintvl(self, ASK_EACH)?;
        sockopt::set_tcp_keepcnt(self, ASK_TIMES)?;
        Ok(sockopt::set_socket_keepalive(self, true)?)
    }

    fn end_output(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// When the other side of a quiet connection is asked whether it is there, how often in all, and how often in vain at most. An adapter that is killed is
/// there again before.
const ASK_AFTER: Duration = Duration::from_secs(2);
const ASK_EACH: Duration = Duration::from_secs(1);
const ASK_TIMES: u32 = 9;

/// The streams of a party.
#[derive(Debug)]
pub struct Lasting<S = TcpStream> {
    own: (usize, u32),
    /// Whom it asks for a stream, and where.
    asked: Vec<(usize, SocketAddr)>,
    /// Nobody tells that the other side of a stream is dead.
    asks_whether_alive: bool,
    streams: Vec<Stream<S>>,
    /// Streams so far.
    count: u64,
    /// Frames that were answered, and frames that it has answered.
    pub frames: u64,
    news: Vec<News>,
}

/// What a step comes to.
enum Step {
    Open,
    Closed,
    Broken(ErrorKind),
}

#[derive(Debug)]
struct Stream<S> {
    stream: S,
    number: u64,
    /// Whom this side has asked, if it has.
    asked: Option<usize>,
    /// Who the other side says that it is.
    peer: Option<(usize, u32)>,
    output: Vec<u8>,
    input: Vec<u8>,
    /// Frames that went.
    sent: u64,
    /// Frames that came.
    received: u64,
    /// Set once the last frame went, and once it came.
    has_sent_last: bool,
    has_received_last: bool,
    has_shut_down: bool,
    since_ns: u64,
    sent_ns: u64,
    moved_ns: u64,
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    party: usize,
    life: u32,
    is_last: bool,
    number: u64,
}

impl Frame {
    fn seed(self) -> u64 {
        mix(mix((self.party as u64) << 32 | u64::from(self.life)) ^ self.number)
    }

    fn bytes(self) -> usize {
        HEAD_BYTES + (mix(self.seed()) % BODY_BYTES_MAX) as usize
    }

    fn write(self, output: &mut Vec<u8>) {
        let start = output.len();
        output.extend(MARK);
        output.extend((self.party as u32).to_le_bytes());
        output.extend(self.life.to_le_bytes());
        output.extend(u32::from(self.is_last).to_le_bytes());
        output.extend(self.number.to_le_bytes());
        output.resize(start + self.bytes(), 0);
        pattern::fill(self.seed(), &mut output[start + HEAD_BYTES..]);
    }

    /// The frame at the start of `input`, and its bytes, if it is there as a whole.
    fn read(input: &[u8]) -> Result<Option<(Frame, usize)>, String> {
        let Some(head) = input.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let word = |at: usize| {
            head[at..at + 4].iter().rev().fold(0, |word: u32, byte| word << 8 | u32::from(*byte))
        };
        let frame = Frame {
            party: word(4) as usize,
            life: word(8),
            is_last: word(12) == 1,
            number: u64::from(word(16)) | u64::from(word(20)) << 32,
        };
        if head[..4] != MARK || word(12) > 1 {
            return Err(format!("the head {head:?} is not what was sent"));
        }
        let bytes = frame.bytes();
        let Some(body) = input.get(HEAD_BYTES..bytes) else { return Ok(None) };
        pattern::verify(frame.seed(), format!("frame {}", frame.number), body)?;
        Ok(Some((frame, bytes)))
    }
}

impl Lasting {
    /// Takes in streams that others open.
    ///
    /// # Errors
    /// As [`TcpListener::accept`], but that there is none.
    pub fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => self.add(stream, None),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the streams that are missing.
    pub fn ask(&mut self, stack: &Stack) {
        for (peer, to) in self.asked.clone() {
            if !self.streams.iter().any(|stream| stream.asked == Some(peer))
                && let Ok(stream) = TcpStream::start_connecting(stack, to)
            {
                self.add(stream, Some(peer));
            }
        }
    }
}

impl<S: Connection> Lasting<S> {
    /// None yet. Those that are `asked` are asked for one each.
    pub fn new(own: (usize, u32), asked: Vec<(usize, SocketAddr)>) -> Lasting<S> {
        let (streams, news, asks_whether_alive) = (Vec::new(), Vec::new(), false);
        Lasting { own, asked, asks_whether_alive, streams, count: 0, frames: 0, news }
    }

    /// Asks the other sides of quiet streams whether they are there, from now on.
    pub fn asking_whether_alive(self) -> Lasting<S> {
        Lasting { asks_whether_alive: true, ..self }
    }

    /// Takes in a stream, which this side has opened if it has `asked` somebody for it.
    pub fn add(&mut self, stream: S, asked: Option<usize>) {
        stream.do_not_wait().expect("a stream");
        if self.asks_whether_alive {
            // One that has ended by now says so when it is read.
            let _ = stream.ask_whether_alive();
        }
        self.count += 1;
        let now = now_ns();
        self.streams.push(Stream {
            stream,
            number: self.count,
            asked,
            peer: None,
            output: Vec::new(),
            input: Vec::new(),
            sent: 0,
            received: 0,
            has_sent_last: false,
            has_received_last: false,
            has_shut_down: false,
            since_ns: now,
            sent_ns: 0,
            moved_ns: now,
        });
    }

    /// Streams that are open.
    pub fn open(&self) -> usize {
        self.streams.len()
    }

    /// What there is to report since this was called last.
    pub fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Sends and receives what it can. If not `goes_on`, streams that were opened here are closed.
    ///
    /// # Errors
    /// What is wrong, of each stream that is.
    pub fn serve(
        &mut self,
        goes_on: bool,
        is_explained: fn(ErrorKind) -> bool,
    ) -> Result<(), Vec<String>> {
        let mut wrong = Vec::new();
        for mut stream in std::mem::take(&mut self.streams) {
            let before = (stream.peer, stream.received);
            let step = stream.step(self.own, goes_on);
            self.frames += stream.received - before.1;
            if let (None, Some((peer, life))) = (before.0, stream.peer) {
                let Stream { number, since_ns, .. } = stream;
                self.news.push(News::Begun { stream: number, peer, life, since_ns });
            }
            let (stream_number, has_begun) = (stream.number, stream.peer.is_some());
            match step {
                Ok(Step::Open) => {
                    if now_ns() - stream.moved_ns > STILL_MAX.as_nanos() as u64 {
                        wrong.push(format!("a stream hangs: {stream:?}"));
                    }
                    self.streams.push(stream);
                }
                Ok(Step::Closed) => self.news.push(News::Closed { stream: stream_number }),
                Ok(Step::Broken(error)) if !is_explained(error) => {
                    wrong.push(format!("a stream has ended with {error}: {stream:?}"));
                }
                Ok(Step::Broken(error)) if has_begun => self.news.push(News::Broken {
                    stream: stream_number,
                    at_ns: now_ns(),
                    error: error.to_string(),
                }),
                Ok(Step::Broken(_)) => {}
                Err(what) => wrong.push(format!("{what}: {stream:?}")),
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

impl<S: Connection> Stream<S> {
    fn step(&mut self, own: (usize, u32), goes_on: bool) -> Result<Step, String> {
        let before = (self.output.len(), self.received);
        // What has come before the error of a write is taken in first: frames that were answered count.
        let mut piece = [0; PIECE_BYTES];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) if !self.has_received_last || !self.input.is_empty() => {
                    return Err(format!("the end came after frame {}", self.received));
                }
                Ok(0) => match self.send() {
                    Ok(()) if self.output.is_empty() && self.has_shut_down => {
                        return Ok(Step::Closed);
                    }
                    Ok(()) => break,
                    Err(error) => return Ok(Step::Broken(error.kind())),
                },
                Ok(count) => {
                    self.input.extend(&piece[..count]);
                    self.take_in(own)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Ok(Step::Broken(error.kind())),
            }
        }
        let now = now_ns();
        let may_ask = self.received == self.sent && !self.has_sent_last;
        if self.asked.is_some() && may_ask && (now >= self.sent_ns + PAUSE_NS || !goes_on) {
            self.sent_ns = now;
            self.say(own, !goes_on);
        }
        if let Err(error) = self.send() {
            return Ok(Step::Broken(error.kind()));
        }
        if before != (self.output.len(), self.received) {
            self.moved_ns = now;
        }
        Ok(Step::Open)
    }

    /// Takes in whole frames.
    fn take_in(&mut self, own: (usize, u32)) -> Result<(), String> {
        while let Some((frame, bytes)) = Frame::read(&self.input)? {
            let peer = (frame.party, frame.life);
            let is_right = frame.number == self.received + 1
                && self.asked.is_none_or(|asked| asked == frame.party && frame.number == self.sent)
                && self.peer.is_none_or(|known| known == peer)
                && !self.has_received_last
                && frame.party != own.0;
            if !is_right {
                return Err(format!("{frame:?} came after frame {}", self.received));
            }
            self.input.drain(..bytes);
            self.peer = Some(peer);
            self.received += 1;
            self.has_received_last = frame.is_last;
            if self.asked.is_none() {
                self.say(own, frame.is_last);
            }
        }
        Ok(())
    }

    fn say(&mut self, (party, life): (usize, u32), is_last: bool) {
        self.sent += 1;
        self.has_sent_last = is_last;
        Frame { party, life, is_last, number: self.sent }.write(&mut self.output);
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if self.has_sent_last && !self.has_shut_down {
            self.stream.end_output()?;
            self.has_shut_down = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written_and_wrong_ones_are_found() {
        let frame = Frame { party: 3, life: 7, is_last: true, number: 1 << 33 };
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        assert_eq!(Frame::read(&bytes), Ok(Some((frame, bytes.len()))));
        assert_eq!(Frame::read(&bytes[..bytes.len() - 1]), Ok(None));
        assert_eq!(Frame::read(&bytes[..HEAD_BYTES - 1]), Ok(None));
        for at in [0, 13, HEAD_BYTES, bytes.len() - 1] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 2;
            assert!(Frame::read(&wrong).is_err(), "{at}");
        }
    }
}
