//! Reads of a file that go through a ring (`io_uring`): several are under way while the program does something else.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

/// How long a polling thread of the kernel goes on polling that finds nothing, in milliseconds.
const POLLING_IDLE_MS: u32 = 1000;

/// A file, and places of one length for what is read from it.
pub struct Reads {
    ring: IoUring,
    /// Registered with the ring, as file 0.
    _file: File,
    /// Registered with the ring. The kernel writes to a place while its read is under way, and nobody else looks at it.
    places: Vec<Box<[u8]>>,
    is_under_way: Vec<bool>,
}

impl Reads {
    /// Reads of `file`, of which as many as `places` are under way at most, each of `bytes`. With a processor, a thread of the
    /// kernel polls the ring there, so that no read takes a system call.
    ///
    /// # Errors
    /// The kernel has no ring for this process, or no memory.
    pub fn new(
        file: File,
        places: usize,
        bytes: usize,
        polled_on: Option<u32>,
    ) -> io::Result<Reads> {
        let mut builder = IoUring::builder();
        if let Some(processor) = polled_on {
            builder.setup_sqpoll(POLLING_IDLE_MS).setup_sqpoll_cpu(processor);
        }
        // A polling thread can answer a read before it has given the entry back.
        let entries = (2 * places.max(1) as u32).next_power_of_two();
        let ring = builder.build(entries)?;
        let mut places: Vec<Box<[u8]>> = (0..places).map(|_| vec![0; bytes].into()).collect();
        let vectors: Vec<libc::iovec> = places
            .iter_mut()
            .map(|place| libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() })
            .collect();
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        // SAFETY: the memory is that of boxes which `places` owns and never gives away, and the ring, dropped before
        // them, is the only one to whom these addresses are known.
        unsafe { ring.submitter().register_buffers(&vectors) }?;
        let is_under_way = vec![false; places.len()];
        Ok(Reads { ring, _file: file, places, is_under_way })
    }

    /// Begins to read from `offset` of the file to a place. The kernel learns of it with [`Reads::submit`].
    ///
    /// # Panics
    /// If a read to this place is under way.
    pub fn begin(&mut self, place: usize, offset: u64) {
        assert!(!self.is_under_way[place], "a read to this place is under way");
        let target = &mut self.places[place];
        let (address, bytes) = (target.as_mut_ptr(), target.len() as u32);
        let entry = opcode::ReadFixed::new(types::Fixed(0), address, bytes, place as u16);
        let entry: squeue::Entry = entry.offset(offset).build().user_data(place as u64);
        // SAFETY: the place is memory of ours that lives until the ring is dropped, and until the read has ended nobody
        // looks at it: `data` refuses, and dropping waits.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has two entries for each place");
        self.is_under_way[place] = true;
    }

    /// Hands over what was begun.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn submit(&mut self) -> io::Result<()> {
        self.ring.submit().map(drop)
    }

    /// The place of a read that has ended, if one has. Its data are all there.
    ///
    /// # Errors
    /// The read failed, or was short.
    pub fn ended(&mut self) -> io::Result<Option<usize>> {
        let Some(entry) = self.ring.completion().next() else { return Ok(None) };
        let place = entry.user_data() as usize;
        self.is_under_way[place] = false;
        match entry.result() {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            bytes if bytes as usize == self.places[place].len() => Ok(Some(place)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Hands over what was begun, and waits until a read has ended.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&mut self) -> io::Result<()> {
        self.ring.submit_and_wait(1).map(drop)
    }

    /// What was read to a place.
    ///
    /// # Panics
    /// If the read is under way.
    pub fn data(&self, place: usize) -> &[u8] {
        assert!(!self.is_under_way[place], "the kernel writes here");
        &self.places[place]
    }
}

impl Drop for Reads {
    /// Waits for what is under way: the kernel writes to places of ours.
    fn drop(&mut self) {
        while self.is_under_way.contains(&true) {
            if self.wait().is_err() {
                // The kernel may still write: the places are left to it.
                std::mem::forget(std::mem::take(&mut self.places));
                return;
            }
            while self.is_under_way.contains(&true) && !matches!(self.ended(), Ok(None)) {}
        }
    }
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reads").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let name = std::env::temp_dir().join(format!("siga-uring-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&name).unwrap();
        std::fs::remove_file(&name).unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn reads_end_with_the_bytes_of_their_offset() {
        let content: Vec<u8> = (0..64_000_u32).map(|at| (at / 1000) as u8).collect();
        let mut reads = match Reads::new(file(&content), 4, 1000, None) {
            Ok(reads) => reads,
            Err(error) => return eprintln!("SKIPPED: no ring here: {error}"),
        };
        let mut offsets = [0; 4];
        let mut begun = 0;
        for (place, offset) in offsets.iter_mut().enumerate() {
            *offset = begun;
            reads.begin(place, begun * 1000);
            begun += 1;
        }
        let mut ended = 0;
        while ended < 64 {
            reads.wait().unwrap();
            while let Some(place) = reads.ended().unwrap() {
                assert_eq!(reads.data(place), [offsets[place] as u8; 1000]);
                ended += 1;
                if begun < 64 {
                    offsets[place] = begun;
                    reads.begin(place, begun * 1000);
                    begun += 1;
                }
            }
        }
        // Beyond the end there is less; and what is under way is waited for.
        reads.begin(0, 63_500);
        reads.wait().unwrap();
        assert_eq!(reads.ended().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        reads.begin(1, 0);
    }
}
