//! Streams of bytes that the kernel carries: Unix streams, pipes, TCP. One system call for each message.
//!
//! Who spins calls again and again without sleeping in the kernel.

use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe as new_pipe};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use os::sync::pause;
use rustix::io::ioctl_fionbio;
use rustix::net::{Shutdown, shutdown};
use rustix::pipe::fcntl_setpipe_size;

use super::{End, KERNEL, Opened, Opening, Transport, is_source, spins};
use crate::control::Order;
use crate::fault::{Doing, Fault};

pub(super) const UNIX_STREAM: Transport = Transport {
    name: "unix-stream",
    meaning: "a Unix stream, one system call for each message on each side",
    stream: Some(|opening| opening.stream(unix)),
    exchange: Some(|opening| opening.exchange(unix)),
    request: Some(|opening| opening.request(unix)),
    has_pairs: true,
    ..KERNEL
};

pub(super) const PIPE: Transport = Transport {
    name: "pipe",
    meaning: "a pipe of 1 MiB",
    stream: Some(|opening| opening.stream(pipe)),
    exchange: Some(|opening| opening.exchange(pipe)),
    request: Some(|opening| opening.request(pipe)),
    has_pairs: true,
    ..KERNEL
};

pub(super) const TCP_LOOPBACK: Transport = Transport {
    name: "tcp-loopback",
    meaning: "TCP over loopback with TCP_NODELAY",
    stream: Some(|opening| opening.stream(tcp)),
    exchange: Some(|opening| opening.exchange(tcp)),
    request: Some(|opening| opening.request(tcp)),
    has_pairs: true,
    ..KERNEL
};

/// One end of a stream of bytes, or of two that go both ways.
#[derive(Debug)]
pub(crate) struct ByteEnd<I, O> {
    input: I,
    /// None once it has finished.
    output: Option<O>,
    buffer: Vec<u8>,
}

/// A pipe holds this much: the most that an ordinary user is allowed. (64 B: twice the rate of the usual
/// 64 KiB, because the two sides wake each other less often.)
const PIPE_BYTES: usize = 1 << 20;

/// A Unix stream. Its buffers are left alone: larger ones move the queue out of the cache.
pub(crate) fn unix(opening: Opening<'_>) -> Opened<ByteEnd<UnixStream, UnixStream>> {
    let Opening { order, control, bytes, .. } = opening;
    let ours = if is_source(order) {
        let (ours, theirs) = UnixStream::pair().doing("make a Unix stream")?;
        control.pass("stream", &[theirs.as_fd()])?;
        ours
    } else {
        let [ours] = control.descriptors()?;
        UnixStream::from(ours)
    };
    let input = ours.try_clone().doing("duplicate a descriptor")?;
    ByteEnd::new(input, ours, order, bytes)
}

/// TCP over the loopback interface, without delay for small messages.
pub(crate) fn tcp(opening: Opening<'_>) -> Opened<ByteEnd<TcpStream, TcpStream>> {
    let Opening { order, control, bytes, .. } = opening;
    let ours = if is_source(order) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("listen on loopback")?;
        let address = listener.local_addr().doing("listen on loopback")?;
        let ours = TcpStream::connect(address).doing("connect on loopback")?;
        let (theirs, _) = listener.accept().doing("accept on loopback")?;
        control.pass("stream", &[theirs.as_fd()])?;
        ours
    } else {
        let [ours] = control.descriptors()?;
        TcpStream::from(ours)
    };
    ours.set_nodelay(true).doing("set TCP_NODELAY")?;
    let input = ours.try_clone().doing("duplicate a descriptor")?;
    ByteEnd::new(input, ours, order, bytes)
}

/// Two pipes.
pub(crate) fn pipe(opening: Opening<'_>) -> Opened<ByteEnd<PipeReader, PipeWriter>> {
    let Opening { order, control, bytes, .. } = opening;
    let (input, output) = if is_source(order) {
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
    ByteEnd::new(input, output, order, bytes)
}

impl<I: AsFd, O: AsFd> ByteEnd<I, O> {
    pub(super) fn new(input: I, output: O, order: &Order, bytes: usize) -> Opened<ByteEnd<I, O>> {
        if spins(order) {
            ioctl_fionbio(&input, true).doing("keep reading from sleeping")?;
            ioctl_fionbio(&output, true).doing("keep writing from sleeping")?;
        }
        Ok(ByteEnd { input, output: Some(output), buffer: vec![0; bytes] })
    }
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

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        let mut at = 0;
        while at < bytes {
            match self.input.read(&mut self.buffer[at..bytes]) {
                Ok(0) if at == 0 => return Ok(false),
                Ok(0) => return Err(Fault::Ended),
                Ok(more) => at += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => pause(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).doing("read"),
            }
        }
        read(0, &self.buffer[..bytes]);
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if let Some(output) = self.output.take() {
            // A pipe knows no such verb, and ends when it is dropped.
            let _ = shutdown(&output, Shutdown::Write);
        }
        Ok(())
    }
}
