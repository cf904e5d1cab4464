//! Sockets' manner: for programs that were written for Unix or TCP sockets.
//!
//! After AF_IUCV: an address is the name of a guest and the name of a program in it, eight characters each;
//! the user data of a connection are the names of the two programs. Up to seven bytes go in the parameter
//! list, if the other side takes one, whose last byte says how many there are; a parameter list that ends in 1
//! says that no more comes.

use std::io::{self, Read, Write};

use fabric::control::Kind;
use fabric::name::{NAME_BYTES, Name};
use fabric::path::{END_DATA_BYTES, Reason, Severed};
use message::iucv::{Outgoing, PARAMETER_BYTES, PendingMessage, ReceiveError, SendError, Which};

use super::options::Options;
use super::path::IucvPath;
use crate::guest::{ConnectError, Guest};
use crate::waiting::Wait;

/// Where a program is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The guest.
    pub guest: Name,
    /// The program in it.
    pub program: Name,
}

/// Bytes that fit into a parameter list beside their number.
const SHORT_BYTES_MAX: usize = PARAMETER_BYTES - 1;

/// A parameter list that says that no more comes.
const NO_MORE: [u8; PARAMETER_BYTES] = [0, 0, 0, 0, 0, 0, 0, 1];

/// Bytes of a stream that go as one message.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Takes connections for one program of a guest.
#[derive(Debug)]
pub struct Listener<'a> {
    guest: &'a Guest,
    program: Name,
    options: Options,
}

impl<'a> Listener<'a> {
    /// Listens for connections to `program`.
    ///
    /// # Errors
    /// `InvalidInput` if that is no name.
    pub fn bind(guest: &'a Guest, program: &str, options: &Options) -> io::Result<Listener<'a>> {
        Ok(Listener { guest, program: name(program)?, options: *options })
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// What [`ConnectError`] says.
    pub fn accept(&self) -> io::Result<(SeqPacket, Address)> {
        let is_ours = |pending: &fabric::control::Pending| {
            pending.kind == Kind::IUCV && pending.data[..NAME_BYTES] == self.program.bytes()
        };
        let options = Options { parameters: true, ..self.options };
        let accept =
            |pending| Ok((IucvPath::accept_pending(self.guest, pending, &options)?, pending));
        let accepted = self.guest.accept_where(u64::MAX, is_ours, accept).map_err(refused)?;
        let (path, pending) = accepted.expect("no time was set");
        let program = pending.data[NAME_BYTES..].as_array().copied().and_then(Name::parse);
        let program = program.unwrap_or(self.program);
        Ok((SeqPacket::over(path), Address { guest: pending.from, program }))
    }
}

/// Packets, each of which arrives whole: SOCK_SEQPACKET.
#[derive(Debug)]
pub struct SeqPacket {
    path: Option<IucvPath>,
    /// A packet of which a stream has read a part.
    rest: Option<PendingMessage>,
    short: Short,
    ended: bool,
}

/// Bytes that came in a parameter list and were not read.
#[derive(Clone, Copy, Debug, Default)]
struct Short {
    bytes: [u8; SHORT_BYTES_MAX],
    at: usize,
    end: usize,
}

impl Short {
    fn parse([bytes @ .., last]: [u8; PARAMETER_BYTES]) -> io::Result<Short> {
        let end = usize::from(0xff - last);
        if end > SHORT_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a packet of AF_IUCV"));
        }
        Ok(Short { bytes, at: 0, end })
    }

    fn read(&mut self, target: &mut [u8]) -> usize {
        let left = &self.bytes[self.at..self.end];
        let copied = target.len().min(left.len());
        target[..copied].copy_from_slice(&left[..copied]);
        self.at += copied;
        copied
    }
}

impl SeqPacket {
    /// Connects to a program of a guest, as the program `own`.
    ///
    /// # Errors
    /// What [`ConnectError`] says: `NotFound` if the guest is not there, `PermissionDenied` if it may not be
    /// connected to, `ConnectionRefused` if it does not want to, `TimedOut`.
    pub fn connect(
        guest: &Guest,
        to: Address,
        own: &str,
        options: &Options,
    ) -> io::Result<SeqPacket> {
        let mut data = [0; 2 * NAME_BYTES];
        data[..NAME_BYTES].copy_from_slice(&to.program.bytes());
        data[NAME_BYTES..].copy_from_slice(&name(own)?.bytes());
        let options = Options { parameters: true, data, ..*options };
        let path = IucvPath::connect(guest, to.guest.as_str(), &options).map_err(refused)?;
        Ok(SeqPacket::over(path))
    }

    fn over(path: IucvPath) -> SeqPacket {
        SeqPacket { path: Some(path), rest: None, short: Short::default(), ended: false }
    }

    fn path(&mut self) -> &mut IucvPath {
        self.path.as_mut().expect("until it is dropped")
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// `BrokenPipe` if the other side receives no more; `InvalidInput` if the packet is too long; `OutOfMemory` if
    /// something is missing that sending takes, or the path has ended because one of its sides lacks something;
    /// `WouldBlock` if the other side has quiesced the path.
    pub fn send(&mut self, packet: &[u8]) -> io::Result<usize> {
        const QUIETLY: Outgoing = Outgoing {
            target_class: 0,
            source_class: 0,
            tag: 0,
            priority: false,
            reply_bytes_max: None,
            quiet: true,
        };
        let takes_lists = self.path().raw().limits().parameters_for_them;
        let sent = if takes_lists && packet.len() <= SHORT_BYTES_MAX {
            let mut list = [0; PARAMETER_BYTES];
            list[..packet.len()].copy_from_slice(packet);
            list[SHORT_BYTES_MAX] = 0xff - packet.len() as u8;
            self.path().send_parameters(&QUIETLY, list)
        } else {
            self.path().push(&QUIETLY, packet)
        };
        sent.map(|_| packet.len()).map_err(unsent)
    }

    /// Sends what was held back to go with more.
    pub fn flush(&mut self) {
        self.path().flush();
    }

    /// Waits for the next packet. As many bytes of it are copied as fit, and how many those are is
    /// returned; the rest is lost. Zero if no more come, or the packet is empty.
    ///
    /// # Errors
    /// `ConnectionReset` if the other side is gone without a word, or has broken the rules; `OutOfMemory` if the
    /// path has ended because one of its sides lacks what receiving takes.
    pub fn receive(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let bytes = self.read_some(target)?.unwrap_or(0);
        if let Some(rest) = self.rest.take() {
            self.path().raw().skip(rest.id);
        }
        self.short = Short::default();
        Ok(bytes)
    }

    /// Reads as much of the next packet, or of the rest of the last one, as fits. None if no more come.
    fn read_some(&mut self, target: &mut [u8]) -> io::Result<Option<usize>> {
        if self.short.at < self.short.end {
            return Ok(Some(self.short.read(target)));
        }
        if let Some(rest) = self.rest.take() {
            // One that is purged now is a hole in the stream.
            return self.read_packet(rest, target).map(Some).map_err(lost);
        }
        loop {
            let Some(pending) = self.next_packet()? else { return Ok(None) };
            let mut list = [0; PARAMETER_BYTES];
            let into = if pending.parameters { &mut list } else { &mut *target };
            match self.read_packet(pending, into) {
                Ok(bytes) if !pending.parameters => return Ok(Some(bytes)),
                Ok(_) if list == NO_MORE => {
                    self.ended = true;
                    return Ok(None);
                }
                Ok(_) => {
                    self.short = Short::parse(list)?;
                    return Ok(Some(self.short.read(target)));
                }
                // Its source has purged it meanwhile.
                Err(ReceiveError::NotFound) => {}
                Err(error) => return no_more(error),
            }
        }
    }

    fn read_packet(
        &mut self,
        pending: PendingMessage,
        target: &mut [u8],
    ) -> Result<usize, ReceiveError> {
        let which = Which::Message { id: pending.id, class: pending.class };
        let received = self.path().receive(which, target)?;
        self.rest = (received.residual > 0).then_some(pending);
        Ok(received.bytes)
    }

    /// Waits for the next packet; none if no more come.
    fn next_packet(&mut self) -> io::Result<Option<PendingMessage>> {
        if self.ended {
            return Ok(None);
        }
        match self.path().pending(Which::Any) {
            Ok(pending) => Ok(Some(pending)),
            Err(error) => no_more(error),
        }
    }

    /// Tells the other side that no more comes, and goes on receiving.
    ///
    /// # Errors
    /// The kinds of [`SeqPacket::send`]; `Unsupported` if the other side takes no data in the parameter list.
    pub fn shutdown(&mut self) -> io::Result<()> {
        let outgoing = Outgoing { quiet: true, ..Outgoing::default() };
        let sent = self.path().send_parameters(&outgoing, NO_MORE);
        self.flush();
        sent.map(drop).map_err(unsent)
    }

    /// The same connection, as a stream of bytes.
    pub fn into_stream(self) -> Stream {
        Stream(self)
    }

    /// Sets how to wait from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.path().set_wait(wait);
    }
}

/// What was sent is received; then the other side reads the end.
impl Drop for SeqPacket {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            path.sever([0; END_DATA_BYTES]);
        }
    }
}

/// Bytes in their order, without boundaries: SOCK_STREAM.
#[derive(Debug)]
pub struct Stream(SeqPacket);

impl Stream {
    /// Connects to a program of a guest, as the program `own`.
    ///
    /// # Errors
    /// The kind of error says why there is no connection. A [`ConnectError`] is inside, unless `own` is no name.
    pub fn connect(guest: &Guest, to: Address, own: &str, options: &Options) -> io::Result<Stream> {
        SeqPacket::connect(guest, to, own, options).map(Stream)
    }

    /// Tells the other side that no more comes, and goes on reading.
    ///
    /// # Errors
    /// The kinds of [`SeqPacket::send`]; `Unsupported` if the other side takes no data in the parameter list.
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.0.shutdown()
    }

    /// Sets how to wait from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.0.set_wait(wait);
    }
}

impl Read for Stream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read_some(target)? {
                // An empty packet is not the end of a stream.
                Some(0) if !target.is_empty() => {}
                read => return Ok(read.unwrap_or(0)),
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES_MAX)];
        if piece.is_empty() { Ok(0) } else { self.0.send(piece) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush();
        Ok(())
    }
}

fn name(text: &str) -> io::Result<Name> {
    text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn refused(error: ConnectError) -> io::Error {
    use fabric::control::Problem;
    let kind = match &error {
        ConnectError::Name(_)
        | ConnectError::Shape
        | ConnectError::OtherGuest
        | ConnectError::Completed => io::ErrorKind::InvalidInput,
        ConnectError::Refused { problem: Problem::NotAttached, .. } => io::ErrorKind::NotFound,
        ConnectError::Refused { problem: Problem::NotAuthorised, .. } => {
            io::ErrorKind::PermissionDenied
        }
        ConnectError::Refused { problem: Problem::HostResources, .. }
        | ConnectError::Resources(_) => io::ErrorKind::OutOfMemory,
        ConnectError::Refused { .. } => io::ErrorKind::ConnectionRefused,
        ConnectError::TimedOut => io::ErrorKind::TimedOut,
        ConnectError::HostGone => io::ErrorKind::NotConnected,
        ConnectError::HostBehind => io::ErrorKind::WouldBlock,
        ConnectError::Join(_) => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

fn unsent(error: SendError) -> io::Error {
    let kind = match error {
        SendError::TooLong { .. } => io::ErrorKind::InvalidInput,
        SendError::NoParameters => io::ErrorKind::Unsupported,
        SendError::Lacking(_) => io::ErrorKind::OutOfMemory,
        SendError::Severed(severed) if is_for_want(&severed) => io::ErrorKind::OutOfMemory,
        SendError::Quiesced | SendError::Limit { .. } => io::ErrorKind::WouldBlock,
        _ => io::ErrorKind::BrokenPipe,
    };
    io::Error::new(kind, error)
}

/// Nothing more comes: that is no error if the other side has said so.
fn no_more<T>(error: ReceiveError) -> io::Result<Option<T>> {
    match error {
        ReceiveError::Severed(Severed { reason: Reason::Peer, .. }) => Ok(None),
        error => Err(lost(error)),
    }
}

fn lost(error: ReceiveError) -> io::Error {
    let kind = match error {
        ReceiveError::Severed(severed) if is_for_want(&severed) => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::ConnectionReset,
    };
    io::Error::new(kind, error)
}

/// Whether a path has ended because one of its sides lacks something.
fn is_for_want(severed: &Severed) -> bool {
    matches!(severed.reason, Reason::Lacking(_) | Reason::PeerLacking)
}

#[cfg(test)]
mod tests {
    use fabric::control::Problem;
    use fabric::path::Lack;

    use super::*;

    #[test]
    fn want_of_resources_is_told_from_a_connection_that_is_lost() {
        assert_eq!(unsent(SendError::Quiesced).kind(), io::ErrorKind::WouldBlock);
        let refused = |problem| refused(ConnectError::Refused { problem, data: [0; 16] }).kind();
        assert_eq!(refused(Problem::HostResources), io::ErrorKind::OutOfMemory);
        assert_eq!(refused(Problem::Refused), io::ErrorKind::ConnectionRefused);
        let lost = |reason| {
            lost(ReceiveError::Severed(Severed { reason, data: [0; END_DATA_BYTES] })).kind()
        };
        assert_eq!(lost(Reason::PeerLacking), io::ErrorKind::OutOfMemory);
        assert_eq!(lost(Reason::Gone), io::ErrorKind::ConnectionReset);
        let unsent = |reason| {
            unsent(SendError::Severed(Severed { reason, data: [0; END_DATA_BYTES] })).kind()
        };
        assert_eq!(unsent(Reason::Lacking(Lack::Memory)), io::ErrorKind::OutOfMemory);
        assert_eq!(unsent(Reason::Gone), io::ErrorKind::BrokenPipe);
    }
}
