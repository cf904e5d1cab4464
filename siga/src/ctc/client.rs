//! A guest's end of a line.

use std::io;
use std::os::fd::BorrowedFd;

use channel::client::ClientError;
use channel::ctc::line::{BLOCK_BYTES_MAX, Line as End, LineEvent, StartError};
use channel::format::ccw::Ccw;
use fabric::control::{Kind, NO_DATA, Problem};
use fabric::path::{self, SendError};
use thiserror::Error;

use super::{NotOpened, wanted};
use crate::serving::eight;
use crate::waiter::Member;
use crate::{ConnectError, Guest, Path, PathOptions, Severed, Wait};

/// Bytes that a guest's path lends besides programs and blocks.
const PATH_BYTES: u64 = 4 << 20;

/// How to open a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineOptions {
    /// The longest block of each direction, 1 to [`BLOCK_BYTES_MAX`]: 32,768 unless set, as with Linux's ctcm. The ends of a line can differ.
    pub block_bytes: u32,
    /// How [`Line::wait`] waits.
    pub wait: Wait,
}

impl Default for LineOptions {
    fn default() -> LineOptions {
        LineOptions { block_bytes: 32 << 10, wait: Wait::Adaptive }
    }
}

/// Why a line was not opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenLineError {
    /// The name is too long, or empty.
    #[error("line name {name:?}: must have 1 to 8 letters")]
    Name {
        /// The name.
        name: String,
    },
    /// The blocks are too short or too long.
    #[error("block_bytes = {bytes}: must be 1 to {BLOCK_BYTES_MAX}")]
    Block {
        /// Bytes of a block.
        bytes: u32,
    },
    /// The guest has its end of the line open.
    #[error("{guest} has its end of {line} of {server} open: a line has one program at each end")]
    InUse {
        /// The guest.
        guest: String,
        /// The line.
        line: String,
        /// The server.
        server: String,
    },
    /// The server has no such line for this guest.
    #[error("{server} has no line {line} with an end for {guest}")]
    NoLine {
        /// The guest.
        guest: String,
        /// The line.
        line: String,
        /// The server.
        server: String,
    },
    /// No path to the server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No memory or no descriptors left.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server gave no line.
    #[error(transparent)]
    Line(#[from] LineError),
}

/// Why a line is of no more use, or a program was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LineError {
    /// The path to the server has ended.
    #[error(transparent)]
    Severed(#[from] Severed),
    /// The server has sent what is no result.
    #[error("the server broke the rules")]
    Rules,
    /// The program was not started, or the request not sent. Neither is ever refused for want of room: the call waits for that.
    #[error(transparent)]
    Start(StartError),
}

impl From<ClientError> for LineError {
    fn from(error: ClientError) -> LineError {
        match error {
            ClientError::Severed(severed) => LineError::Severed(severed),
            _ => LineError::Rules,
        }
    }
}

/// A guest's end of a line: two subchannels, [`READ_SUBCHANNEL`](super::READ_SUBCHANNEL) and [`WRITE_SUBCHANNEL`](super::WRITE_SUBCHANNEL),
/// each with one program at a time.
///
/// A line is a member of a [`Waiter`](crate::Waiter). Before the waiter sleeps, [`Line::poll`] has to be called until nothing comes.
#[derive(Debug)]
pub struct Line {
    path: Path,
    end: End,
}

impl Line {
    /// Opens this guest's end of a line of a server, and waits until programs can be started.
    ///
    /// # Errors
    /// [`OpenLineError`].
    pub fn open(
        guest: &Guest,
        server: &str,
        line: &str,
        options: &LineOptions,
    ) -> Result<Line, OpenLineError> {
        let LineOptions { block_bytes, wait } = *options;
        let request = request(line, block_bytes, wait);
        let path_options = request.ok_or_else(|| OpenLineError::Name { name: line.to_owned() })?;
        if !(1..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(OpenLineError::Block { bytes: block_bytes });
        }
        // A guest that only has lines waits for nothing else, and would never hear of another host.
        guest.poll();
        let path = guest.connect(server, &path_options).map_err(|error| {
            let (guest, line) = (guest.name().to_string(), line.to_owned());
            let server = server.to_owned();
            match why_not_opened(&error) {
                None => error.into(),
                Some(NotOpened::NoLine) => OpenLineError::NoLine { guest, line, server },
                Some(NotOpened::InUse) => OpenLineError::InUse { guest, line, server },
            }
        })?;
        let mut line = Line::over(path, block_bytes)?;
        match line.wait()? {
            LineEvent::Attached => Ok(line),
            _ => Err(LineError::Rules.into()),
        }
    }

    /// Begins an end over a path that a server has accepted. Programs can be started once [`LineEvent::Attached`] has come.
    ///
    /// # Errors
    /// No memory or no descriptors left, or the path takes nothing.
    pub(crate) fn over(mut path: Path, block_bytes: u32) -> io::Result<Line> {
        let end = End::new(block_bytes, path.sender().raw())?;
        Ok(Line { path, end })
    }

    /// The programs of this end, and what they are sent with: for one who does not wait for room.
    pub(crate) fn parts(&mut self) -> (&mut End, &mut path::Sender) {
        (&mut self.end, self.path.sender().raw())
    }

    /// The path to the server.
    pub(crate) fn path(&mut self) -> &mut Path {
        &mut self.path
    }

    /// The longest block.
    pub fn block_bytes(&self) -> u32 {
        self.end.block_bytes()
    }

    /// Returns true if a subchannel has a program that has not ended.
    pub fn is_running(&self, subchannel: u16) -> bool {
        self.end.is_running(subchannel)
    }

    /// The address of the read buffer, for programs of the caller's own.
    pub fn read_address(&self) -> u32 {
        self.end.read_address()
    }

    /// The address of the write buffer, for programs of the caller's own.
    pub fn write_address(&self) -> u32 {
        self.end.write_address()
    }

    /// The write buffer. It must not change while a program writes it: the server reads it at some time between start and end.
    pub fn write_buffer(&mut self) -> &mut [u8] {
        self.end.write_buffer()
    }

    /// Starts a read program: PREPARE, READ, NOP. It ends when the peer has written a block.
    ///
    /// # Errors
    /// [`LineError`]; nothing was started then.
    pub fn read(&mut self) -> Result<(), LineError> {
        self.start_with(|end, sender| end.read(sender))
    }

    /// Starts a write program with the first bytes of the write buffer: PREPARE, WRITE, NOP. It ends when the peer has read them.
    ///
    /// # Errors
    /// [`LineError`]; nothing was started then.
    pub fn write(&mut self, bytes: u32) -> Result<(), LineError> {
        self.start_with(|end, sender| end.write(bytes, sender))
    }

    /// Starts a program that sets the adapter of a subchannel to extended mode. It ends with
    /// [`End::Check(0x40)`](super::End::Check) if the peer has given no command yet; device end tells when the peer has.
    ///
    /// # Errors
    /// [`LineError`]; nothing was started then.
    pub fn set_extended_mode(&mut self, subchannel: u16) -> Result<(), LineError> {
        self.start_with(|end, sender| end.set_extended_mode(subchannel, sender))
    }

    /// Starts a program that writes the end of a file, in extended mode.
    ///
    /// # Errors
    /// [`LineError`]; nothing was started then.
    pub fn write_end_of_file(&mut self) -> Result<(), LineError> {
        self.start_with(|end, sender| end.write_end_of_file(sender))
    }

    /// Starts a program of the caller's own on a subchannel.
    ///
    /// # Errors
    /// [`LineError`]; nothing was started then.
    ///
    /// # Panics
    /// If an address has more than 31 bits.
    pub fn start(&mut self, subchannel: u16, program: &[Ccw]) -> Result<(), LineError> {
        self.start_with(|end, sender| end.start(subchannel, program, sender))
    }

    /// Halts the program of a subchannel: it ends with [`End::Stopped`](super::End::Stopped), unless it has ended by then. The side is reset, with a
    /// program or without; without one the answer is [`LineEvent::Refused`] with code 1.
    ///
    /// # Errors
    /// [`LineError::Severed`]; [`LineError::Start`] if something is lacking for the request.
    pub fn halt(&mut self, subchannel: u16) -> Result<(), LineError> {
        self.start_with(|end, sender| end.halt(subchannel, sender).map_err(StartError::Send))
    }

    /// Clears the program of a subchannel: as [`Line::halt`], and its status says nothing of it.
    ///
    /// # Errors
    /// [`LineError::Severed`]; [`LineError::Start`] if something is lacking for the request.
    pub fn clear(&mut self, subchannel: u16) -> Result<(), LineError> {
        self.start_with(|end, sender| end.clear(subchannel, sender).map_err(StartError::Send))
    }

    /// Sends, and waits for room if there is none.
    fn start_with(
        &mut self,
        mut attempt: impl FnMut(&mut End, &mut path::Sender) -> Result<(), StartError>,
    ) -> Result<(), LineError> {
        let Line { path, end } = self;
        let done = path.sender().until_done(|sender| match attempt(end, sender) {
            Err(StartError::Send(error)) => Err(error),
            done => Ok(done),
        });
        match done {
            Ok(done) => done.map_err(LineError::Start),
            Err(SendError::Severed(severed)) => Err(severed.into()),
            Err(error) => Err(LineError::Start(error.into())),
        }
    }

    /// What has happened next, if something has. What the last program has read is done with then.
    ///
    /// # Errors
    /// [`LineError::Severed`], [`LineError::Rules`].
    pub fn poll(&mut self) -> Result<Option<LineEvent>, LineError> {
        let Line { path, end } = self;
        Ok(end.poll(path.receiver().raw())?)
    }

    /// Waits for what happens next.
    ///
    /// # Errors
    /// As with [`Line::poll`]: [`LineError::Severed`], [`LineError::Rules`].
    pub fn wait(&mut self) -> Result<LineEvent, LineError> {
        loop {
            if let Some(event) = self.poll()? {
                return Ok(event);
            }
            self.path.receiver().wait();
        }
    }

    /// Copies what the program that ended last has read, until the next event is asked for or something is started. Returns how many bytes.
    ///
    /// # Errors
    /// [`LineError::Rules`] if the server names what it has not lent.
    pub fn copy(&self, target: &mut [u8]) -> Result<usize, LineError> {
        Ok(self.end.copy(target)?)
    }
}

/// The path with which a guest asks a server for its end of a line. None if the name is too long, or empty.
pub(crate) fn request(line: &str, block_bytes: u32, wait: Wait) -> Option<PathOptions> {
    Some(PathOptions {
        kind: Kind::CTC,
        data: wanted(eight(line)?),
        storage_bytes: PATH_BYTES + 3 * u64::from(block_bytes),
        wait,
        ..PathOptions::default()
    })
}

/// The server's reason for refusing a guest its end of a line. None if the error is another.
pub(crate) fn why_not_opened(error: &ConnectError) -> Option<NotOpened> {
    match error {
        ConnectError::Refused { problem: Problem::Refused, data } => NotOpened::parse(data),
        _ => None,
    }
}

impl Drop for Line {
    /// Ends the path at once, so that the end can be opened again at once.
    fn drop(&mut self) {
        self.path.sender().raw().sever(NO_DATA);
        self.path.receiver().raw().sever(NO_DATA);
    }
}

/// Ready when something has happened, or the path to the server has ended.
impl Member for Line {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.path.doorbells(add);
    }

    fn hear(&mut self, index: usize) -> bool {
        self.path.hear(index)
    }

    fn is_ready(&mut self) -> bool {
        self.path.is_ready()
    }

    fn sleep(&mut self) {
        self.path.sleep();
    }

    fn wake(&mut self) {
        self.path.wake();
    }

    fn trim(&mut self) -> bool {
        self.path.trim()
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        self.path.count(polls, spinning_ns);
    }
}
