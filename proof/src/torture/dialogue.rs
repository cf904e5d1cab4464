//! Conversations over connections of TCP: one side asks, and the other answers.
//!
//! The one that asks sends a head and so many bytes and closes its half; the other verifies them, sends its life and as many other
//! bytes, and closes. A conversation is whole, or its connection ends with an error: nothing else may be.
//!
//! ```text
//! offset  0  mark, 4 bytes          the answer:  0  life u32 of the one that is asked
//!         4  party u32, life u32                 4  bytes, made of the seed
//!        12  bytes u32
//!        16  number u64
//!        24  bytes, made of the seed
//! ```

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use os::processor::now_ns;
use proof::dice::mix;
use siga::tcpip::{Stack, TcpListener, TcpStream};

use super::lan::talk::Heard;
use super::lan::wire::Report;
use super::lan::{ENDED, OPEN, WHOLE};
use super::machine::lasting::Connection as _;

/// Conversations with each other party at the same time.
const AT_ONCE: usize = 3;

/// Bytes of the longest conversation, each way: more than the buffers of both sides.
const BYTES_MAX: u64 = 600_000;

/// How long a side may leave what was sent without an answer.
pub const SILENCE_MAX: Duration = Duration::from_secs(8);

/// A conversation that stands still for longer hangs.
pub const STILL_MAX: Duration = Duration::from_secs(16);

/// What a read or a write of a conversation takes at most, and how many of them there are before other conversations have their turn.
const PIECE_BYTES: usize = 16 << 10;
const PIECES_PER_STEP: usize = 4;

const MARK: [u8; 4] = *b"conv";
const HEAD_BYTES: usize = 24;
const LIFE_BYTES: usize = 4;

/// A party that has conversations with others, over one stack.
#[derive(Debug)]
pub struct Speaker {
    own: usize,
    life: u32,
    /// Whom it asks, and where.
    peers: Vec<(usize, SocketAddr)>,
    /// Which errors the end of another explains.
    is_explained: fn(ErrorKind) -> bool,
    /// Nobody tells that the other side of a conversation is dead.
    asks_whether_alive: bool,
    talks: Vec<Talk>,
    /// Conversations begun.
    begun: u64,
    /// By party: the last life that has answered, and how many conversations with it were whole.
    whole: Vec<Option<(u32, u64)>>,
    /// Conversations that were whole, of those that were asked for here.
    completed: u64,
    /// Conversations whose connection has ended with an error.
    ended: u64,
}

/// What a step of a conversation comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It goes on; whether something has moved.
    Open(bool),
    Whole,
    /// Its connection has ended with this error.
    Ended(ErrorKind),
}

/// One side of a conversation.
struct Talk {
    stream: TcpStream,
    /// Whom it asks, if it is the one that asks.
    asked: Option<usize>,
    /// What is to be sent, once that is known, and how much of it was.
    output: Option<Bytes>,
    sent: u64,
    has_shut_down: bool,
    /// What is expected behind the head, once that is known, and what has come, with the head.
    input: Option<Bytes>,
    received: u64,
    head: Vec<u8>,
    /// What is to be answered once all was asked.
    answer: Option<Bytes>,
    moved_ns: u64,
}

/// So many bytes behind a head, made of a seed.
#[derive(Clone, Debug)]
struct Bytes {
    head: Vec<u8>,
    seed: u64,
    count: u64,
}

impl Bytes {
    fn total(&self) -> u64 {
        self.head.len() as u64 + self.count
    }

    /// Writes the bytes from this place on, the head included.
    fn fill(&self, at: u64, target: &mut [u8]) {
        let head = self.head.get(at as usize..).unwrap_or_default();
        let (begin, rest) = target.split_at_mut(head.len().min(target.len()));
        begin.copy_from_slice(&head[..begin.len()]);
        // Where the next byte is behind the head.
        let mut place = at.saturating_sub(self.head.len() as u64);
        let mut left = rest;
        while !left.is_empty() {
            let word = mix(self.seed ^ (place / 8)).to_le_bytes();
            let piece = &word[place as usize % 8..];
            let (now, behind) = left.split_at_mut(piece.len().min(left.len()));
            now.copy_from_slice(&piece[..now.len()]);
            place += now.len() as u64;
            left = behind;
        }
    }
}

/// What is made of a question's head: the seed of its bytes.
fn seed(party: u32, life: u32, number: u64) -> u64 {
    mix(mix(u64::from(party) << 32 | u64::from(life)) ^ number)
}

impl Speaker {
    /// A party that asks these others, of `parties` in all. An error that `is_explained` denies is a fault.
    pub fn new(
        (own, life): (usize, u32),
        peers: Vec<(usize, SocketAddr)>,
        parties: usize,
        is_explained: fn(ErrorKind) -> bool,
    ) -> Speaker {
        Speaker {
            own,
            life,
            peers,
            is_explained,
            asks_whether_alive: false,
            talks: Vec::new(),
            begun: 0,
            whole: vec![None; parties],
            completed: 0,
            ended: 0,
        }
    }

    /// Asks the other sides of quiet conversations whether they are there, from now on.
    pub fn asking_whether_alive(self) -> Speaker {
        Speaker { asks_whether_alive: true, ..self }
    }

    fn add(&mut self, talk: Talk) {
        if self.asks_whether_alive {
            // A connection that has ended by now says so when it is read.
            let _ = talk.stream.ask_whether_alive();
        }
        self.talks.push(talk);
    }

    /// What it has done so far.
    pub fn report(&self) -> Report {
        let heard = self.whole.iter().map(|whole| {
            let (life, count) = (*whole)?;
            Some((life, Heard { received: count, first: 1, last: count }))
        });
        Report {
            sent: vec![self.begun; self.whole.len()],
            heard: heard.collect(),
            counters: vec![
                (OPEN.to_owned(), self.talks.len() as u64),
                (WHOLE.to_owned(), self.completed),
                (ENDED.to_owned(), self.ended),
            ],
        }
    }

    /// Takes part in conversations that others begin.
    ///
    /// # Errors
    /// As [`TcpListener::accept`], but that there is none.
    pub fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => self.add(Talk::new(stream, None)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks each other party for conversations, until there are as many as there are to be.
    pub fn ask(&mut self, stack: &Stack) {
        for (peer, address) in self.peers.clone() {
            self.ask_one(stack, peer, address);
        }
    }

    /// Conversations that are under way.
    pub fn open(&self) -> usize {
        self.talks.len()
    }

    /// Sends and receives what it can, in conversations that have begun.
    ///
    /// # Errors
    /// What is wrong, of each conversation that is.
    pub fn go_on(&mut self) -> Result<(), Vec<String>> {
        let mut wrong = Vec::new();
        for mut talk in std::mem::take(&mut self.talks) {
            match talk.step(self.own, self.life) {
                Ok(Step::Open(has_moved)) => {
                    let now = now_ns();
                    if has_moved {
                        talk.moved_ns = now;
                    }
                    if now - talk.moved_ns > STILL_MAX.as_nanos() as u64 {
                        wrong.push(format!("a conversation hangs: {talk:?}"));
                    }
                    self.talks.push(talk);
                }
                Ok(Step::Whole) => self.count_whole(&talk),
                Ok(Step::Ended(error)) if (self.is_explained)(error) => self.ended += 1,
                Ok(Step::Ended(error)) => {
                    wrong.push(format!("a connection has ended with {error}: {talk:?}"));
                }
                Err(what) => wrong.push(format!("{what}: {talk:?}")),
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    fn ask_one(&mut self, stack: &Stack, peer: usize, to: SocketAddr) {
        let open = self.talks.iter().filter(|talk| talk.asked == Some(peer)).count();
        for _ in open..AT_ONCE {
            // There is no such member now, or its other connection has the last port.
            let Ok(stream) = TcpStream::start_connecting(stack, to) else { return };
            self.begun += 1;
            let seed = seed(self.own as u32, self.life, self.begun);
            let count = mix(seed ^ 1) % BYTES_MAX;
            let mut head = MARK.to_vec();
            head.extend((self.own as u32).to_le_bytes());
            head.extend(self.life.to_le_bytes());
            head.extend((count as u32).to_le_bytes());
            head.extend(self.begun.to_le_bytes());
            let mut talk = Talk::new(stream, Some(peer));
            talk.output = Some(Bytes { head, seed, count });
            self.add(talk);
        }
    }

    fn count_whole(&mut self, talk: &Talk) {
        let Some(peer) = talk.asked else { return };
        self.completed += 1;
        let life = word(&talk.head, 0);
        let before = self.whole[peer].filter(|(newest, _)| *newest == life);
        // What an earlier life has answered may be read after what the next one has.
        if self.whole[peer].is_none_or(|(newest, _)| newest <= life) {
            self.whole[peer] = Some((life, before.map_or(0, |(_, count)| count) + 1));
        }
    }
}

impl Talk {
    fn new(stream: TcpStream, asked: Option<usize>) -> Talk {
        stream.set_nonblocking(true).expect("a stream");
        Talk {
            stream,
            asked,
            output: None,
            sent: 0,
            has_shut_down: false,
            input: None,
            received: 0,
            head: Vec::new(),
            answer: None,
            moved_ns: now_ns(),
        }
    }

    /// Sends and receives what it can.
    ///
    /// # Errors
    /// What is wrong.
    fn step(&mut self, own: usize, life: u32) -> Result<Step, String> {
        let before = (self.sent, self.received);
        match self.send()? {
            Step::Open(_) => {}
            over => return Ok(over),
        }
        match self.receive(own, life)? {
            Step::Open(_) => Ok(Step::Open(before != (self.sent, self.received))),
            over => Ok(over),
        }
    }

    fn send(&mut self) -> Result<Step, String> {
        let Some(output) = &self.output else { return Ok(Step::Open(false)) };
        let mut piece = [0; PIECE_BYTES];
        for _ in 0..PIECES_PER_STEP {
            let piece = &mut piece[..PIECE_BYTES.min((output.total() - self.sent) as usize)];
            output.fill(self.sent, piece);
            if !piece.is_empty() {
                match (&self.stream).write(piece) {
                    Ok(count) => self.sent += count as u64,
                    Err(error) => return Ok(outcome(&error)),
                }
            }
            if self.sent < output.total() {
                continue;
            }
            if self.asked.is_none() {
                return Ok(Step::Whole);
            }
            if !self.has_shut_down {
                self.has_shut_down = true;
                if let Err(error) = self.stream.shutdown(Shutdown::Write) {
                    return Ok(outcome(&error));
                }
            }
            break;
        }
        Ok(Step::Open(false))
    }

    fn receive(&mut self, own: usize, life: u32) -> Result<Step, String> {
        let mut piece = [0; PIECE_BYTES];
        // There is no answer before all was asked, and nothing to be heard while it is given.
        if self.output.as_ref().is_some_and(|output| self.sent < output.total()) {
            return Ok(Step::Open(false));
        }
        for _ in 0..PIECES_PER_STEP {
            let count = match (&self.stream).read(&mut piece) {
                Ok(0) => return self.finish(),
                Ok(count) => count,
                Err(error) => return Ok(outcome(&error)),
            };
            self.hear(&piece[..count], own, life)?;
        }
        Ok(Step::Open(false))
    }

    /// Takes in bytes.
    fn hear(&mut self, bytes: &[u8], own: usize, life: u32) -> Result<(), String> {
        let head_bytes = if self.asked.is_some() { LIFE_BYTES } else { HEAD_BYTES };
        let (head, body) = bytes.split_at(bytes.len().min(head_bytes - self.head.len()));
        if !head.is_empty() {
            self.head.extend(head);
            self.received += head.len() as u64;
            if self.head.len() == head_bytes {
                self.begin(own, life)?;
            }
        }
        if body.is_empty() {
            return Ok(());
        }
        let Some(input) = &self.input else { return Err("bytes without a head".into()) };
        if body.len() as u64 > input.total() - self.received {
            return Err(format!("more than {} bytes", input.total()));
        }
        let mut expected = [0; PIECE_BYTES];
        let expected = &mut expected[..body.len()];
        input.fill(self.received, expected);
        if let Some(at) = body.iter().zip(&*expected).position(|(found, right)| found != right) {
            return Err(format!("byte {} is not what was sent", self.received + at as u64));
        }
        self.received += body.len() as u64;
        Ok(())
    }

    /// The head is there.
    fn begin(&mut self, own: usize, life: u32) -> Result<(), String> {
        let head = self.head.clone();
        let (seed, count) = match &self.output {
            Some(output) => (mix(output.seed), output.count),
            None => {
                let (party, their_life, count) = (word(&head, 4), word(&head, 8), word(&head, 12));
                let number = u64::from(word(&head, 16)) | u64::from(word(&head, 20)) << 32;
                let seed = seed(party, their_life, number);
                let is_right = head.starts_with(&MARK)
                    && party as usize != own
                    && u64::from(count) == mix(seed ^ 1) % BYTES_MAX;
                if !is_right {
                    return Err(format!("the head {head:?} is not what was sent"));
                }
                let answer = Bytes {
                    head: life.to_le_bytes().to_vec(),
                    seed: mix(seed),
                    count: count.into(),
                };
                self.input = Some(Bytes { head, seed, count: count.into() });
                self.answer = Some(answer);
                return Ok(());
            }
        };
        self.input = Some(Bytes { head, seed, count });
        Ok(())
    }

    /// The other side has closed its half.
    fn finish(&mut self) -> Result<Step, String> {
        let is_all = self.input.as_ref().is_some_and(|input| self.received == input.total());
        if !is_all {
            return Err(format!("the end came after {} bytes", self.received));
        }
        match self.asked {
            Some(_) => Ok(Step::Whole),
            None => {
                if self.output.is_none() {
                    self.output = self.answer.take();
                }
                Ok(Step::Open(true))
            }
        }
    }
}

impl fmt::Debug for Talk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = |bytes: &Option<Bytes>| bytes.as_ref().map(Bytes::total);
        let mut fields = formatter.debug_struct("Talk");
        fields.field("asked", &self.asked).field("stream", &self.stream);
        fields.field("sent", &(self.sent, total(&self.output)));
        fields.field("received", &(self.received, total(&self.input)));
        fields.finish()
    }
}

/// What an error of a connection comes to.
fn outcome(error: &io::Error) -> Step {
    match error.kind() {
        ErrorKind::WouldBlock => Step::Open(false),
        kind => Step::Ended(kind),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}
