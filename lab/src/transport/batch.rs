//! A Unix stream as a careful program uses it: messages are framed and collected, and written together.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use super::{Can, End, KERNEL, Opening, Transport};
use crate::fault::{Doing, Fault};

pub(super) const UNIX_STREAM_BATCHED: Transport = Transport {
    name: "unix-stream-batched",
    meaning: "a Unix stream, framed by the program and written 64 KiB at a time",
    can: &[Can::Stream],
    carry: |opening| opening.over(BatchEnd::open),
    waits: &["block"],
    ..KERNEL
};

/// Written at once. (64 B: 16 KiB writes cost a tenth more, 256 KiB ones leave the cache.)
const BATCH_BYTES: usize = 64 << 10;

/// A message's length goes before it.
const HEADER_BYTES: usize = 4;

/// One end of a Unix stream whose program collects its messages.
#[derive(Debug)]
struct BatchEnd {
    stream: UnixStream,
    /// What is to be written: messages are built in it, so that they are copied by the kernel alone.
    output: Vec<u8>,
    output_end: usize,
    input: Vec<u8>,
    input_at: usize,
    input_end: usize,
}

impl BatchEnd {
    fn open(opening: &mut Opening<'_>) -> Result<BatchEnd, Fault> {
        let stream = opening.end(|| UnixStream::pair().doing("make a Unix stream"))?;
        let room = BATCH_BYTES.max(HEADER_BYTES + opening.bytes);
        let (output, input) = (vec![0; room], vec![0; room]);
        Ok(BatchEnd { stream, output, output_end: 0, input, input_at: 0, input_end: 0 })
    }

    #[cold]
    fn write(&mut self) -> Result<(), Fault> {
        let batch = &self.output[..std::mem::take(&mut self.output_end)];
        self.stream.write_all(batch).doing("write")
    }

    /// Reads until a whole message is there; false at the end.
    #[cold]
    fn read(&mut self, message_bytes: usize) -> Result<bool, Fault> {
        self.input.copy_within(self.input_at..self.input_end, 0);
        self.input_end -= self.input_at;
        self.input_at = 0;
        while self.input_end < message_bytes {
            match self.stream.read(&mut self.input[self.input_end..]) {
                Ok(0) if self.input_end == 0 => return Ok(false),
                Ok(0) => return Err(Fault::Ended),
                Ok(more) => self.input_end += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).doing("read"),
            }
        }
        Ok(true)
    }
}

impl End for BatchEnd {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        if self.output.len() - self.output_end < HEADER_BYTES + bytes {
            self.write()?;
        }
        let record = &mut self.output[self.output_end..][..HEADER_BYTES + bytes];
        let (header, message) = record.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&(bytes as u32).to_le_bytes());
        build(message);
        self.output_end += HEADER_BYTES + bytes;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.write()
    }

    #[inline(always)]
    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        if self.input_end - self.input_at < HEADER_BYTES + bytes
            && !self.read(HEADER_BYTES + bytes)?
        {
            return Ok(false);
        }
        let record = &self.input[self.input_at..self.input_end];
        let (header, rest) = record.split_first_chunk::<HEADER_BYTES>().expect("read above");
        let length = u32::from_le_bytes(*header) as usize;
        read(0, &rest[..length.min(rest.len())]);
        self.input_at += HEADER_BYTES + bytes;
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.stream.shutdown(Shutdown::Write).doing("end the stream")
    }
}
