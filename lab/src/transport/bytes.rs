//! Streams of bytes that the kernel carries: Unix streams, pipes, TCP. One system call for each message.
//!
//! Who spins calls again and again without sleeping in the kernel.

use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe as new_pipe};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use host::report::Counts;
use os::sync::pause;
use rustix::io::ioctl_fionbio;
use rustix::net::{Shutdown, shutdown};
use rustix::pipe::fcntl_setpipe_size;

use super::{End, KERNEL, Opening, Transport, spins};
use crate::fault::{Doing, Fault};

pub(super) const UNIX_STREAM: Transport = Transport {
    name: "unix-stream",
    meaning: "a Unix stream, one system call for each message on each side",
    carry: |opening| opening.over(unix),
    ..KERNEL
};

pub(super) const PIPE: Transport = Transport {
    name: "pipe",
    meaning: "a pipe of 1 MiB",
    carry: |opening| opening.over(pipe),
    ..KERNEL
};

/// One end of a stream of bytes, or of two that go both ways.
#[derive(Debug)]
pub(crate) struct ByteEnd<I, O> {
    input: I,
    /// None once it has finished.
    output: Option<O>,
    buffer: Vec<u8>,
    /// Counts what goes below the stream.
    pub(super) count: fn() -> Counts,
}

/// A pipe holds this much: the most that an ordinary user is allowed. (64 B: twice the rate of the usual
/// 64 KiB, because the two sides wake each other less often.)
const PIPE_BYTES: usize = 1 << 20;

/// A Unix stream. Its buffers are left alone: larger ones move the queue out of the cache.
fn unix(opening: &mut Opening<'_>) -> Result<ByteEnd<UnixStream, UnixStream>, Fault> {
    let ours = opening.end(|| UnixStream::pair().doing("make a Unix stream"))?;
    let input = ours.try_clone().doing("duplicate a descriptor")?;
    ByteEnd::new(input, ours, opening)
}

/// Two pipes.
fn pipe(opening: &mut Opening<'_>) -> Result<ByteEnd<PipeReader, PipeWriter>, Fault> {
    let Opening { order, control, .. } = opening;
    let (input, output) = if order.is_source() {
        let (their_input, output) = new_pipe().doing("make a pipe")?;
        let (input, their_output) = new_pipe().doing("make a pipe")?;
        for pipe in [output.as_fd(), their_output.as_fd()] {
            fcntl_setpipe_size(pipe, PIPE_BYTES).doing("set the size of a pipe")?;
        }
        control.pass("pipes", &[their_input.as_fd(), their_output.as_fd()])?;
        (input, output)
    } else {
        let [input, output] = control.descriptors()?;
        (PipeReader::from(input), PipeWriter::from(output))
    };
    ByteEnd::new(input, output, opening)
}

impl<I: AsFd, O: AsFd> ByteEnd<I, O> {
    pub(super) fn new(input: I, output: O, opening: &Opening<'_>) -> Result<Self, Fault> {
        if spins(opening.order) {
            ioctl_fionbio(&input, true).doing("keep reading from sleeping")?;
            ioctl_fionbio(&output, true).doing("keep writing from sleeping")?;
        }
        let buffer = vec![0; opening.bytes];
        Ok(ByteEnd { input, output: Some(output), buffer, count: Counts::new })
    }
}

/// Reads a message as long as the room for it. False if the stream has ended before it.
///
/// # Errors
/// [`Fault`]: the stream has ended within the message, or cannot be read.
#[inline(always)]
pub(super) fn read_message(input: &mut impl Read, room: &mut [u8]) -> Result<bool, Fault> {
    let mut at = 0;
    while at < room.len() {
        match input.read(&mut room[at..]) {
            Ok(0) if at == 0 => return Ok(false),
            Ok(0) => return Err(Fault::Ended),
            Ok(more) => at += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => pause(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).doing("read"),
        }
    }
    Ok(true)
}

impl<I: Read, O: Write + AsFd> End for ByteEnd<I, O> {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let message = &mut self.buffer[..bytes];
        build(message);
        let output = self.output.as_mut().expect("nothing is sent after the end");
        let mut at = 0;
        while at < bytes {
            match output.write(&message[at..]) {
                Ok(more) => at += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => pause(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).doing("write"),
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        let message = &mut self.buffer[..bytes];
        let has_come = read_message(&mut self.input, message)?;
        if has_come {
            read(0, message);
        }
        Ok(has_come)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if let Some(output) = self.output.take() {
            // A pipe knows no such verb, and ends when it is dropped.
            let _ = shutdown(&output, Shutdown::Write);
        }
        Ok(())
    }

    fn counts(&mut self) -> Counts {
        (self.count)()
    }
}
