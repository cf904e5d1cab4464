//! Reads and writes of files that go through a ring (`io_uring`): several are under way while the program does something else.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::slice;

use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use rustix::fs::{Advice, AtFlags, StatxFlags, fadvise, statx};
use rustix::io::Errno;

use crate::fork::ForkSafe;

/// How long a polling thread of the kernel goes on polling that finds nothing, in milliseconds.
const POLLING_IDLE_MS: u32 = 1000;

/// What the start of a place is a multiple of: enough for direct transfers of every disk.
pub const PLACE_GRAIN_BYTES: usize = 4096;

/// Memory that a direct transfer can use.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; PLACE_GRAIN_BYTES]);

/// Memory for one transfer.
struct Place(Box<[Page]>);

impl Place {
    fn new(bytes: usize) -> Place {
        let pages = bytes.div_ceil(PLACE_GRAIN_BYTES).max(1);
        Place(vec![Page([0; PLACE_GRAIN_BYTES]); pages].into())
    }

    fn bytes(&self) -> &[u8] {
        let count = size_of_val(&*self.0);
        // SAFETY: pages are arrays of bytes without anything between them, and all of `count` bytes are theirs.
        unsafe { slice::from_raw_parts(self.0.as_ptr().cast(), count) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let count = size_of_val(&*self.0);
        // SAFETY: as in `bytes`, and the box is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), count) }
    }
}

/// What is to be read, or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which of the files, from 0.
    pub file: usize,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: usize,
}

/// A transfer that is over.
#[derive(Debug)]
pub struct Ended {
    /// Its place: where the data are that were read, or were to be written.
    pub place: usize,
    /// How many bytes were moved: fewer than were wanted at the end of a file, or where a disk is full.
    pub bytes: io::Result<usize>,
}

/// Files, and places for what is read from them, or written to them.
///
/// A forked child has none of it: what was under way is its parent's. In a child nothing is begun, nothing is handed over, and nothing
/// ends. Who waits there gets `NotConnected`.
pub struct Transfers {
    /// Its memory is not mapped in a forked child.
    ring: ForkSafe<IoUring>,
    /// How many files there are. The ring has them: they are registered, and need no descriptor.
    files: usize,
    /// The kernel has a place while its transfer is under way, and nobody else touches it.
    places: Vec<Place>,
    place_bytes: usize,
    is_under_way: Vec<bool>,
    /// The places are registered with the ring: the kernel need not look up their pages for each read.
    are_registered: bool,
}

impl Transfers {
    /// Transfers of `files`, of which as many as `places` are under way at most, each of up to `bytes`. With a processor, a thread of
    /// the kernel polls the ring there, so that no transfer takes a system call.
    ///
    /// # Errors
    /// The kernel has no ring for this process, or no memory.
    pub fn new(
        files: Vec<File>,
        places: usize,
        bytes: usize,
        polled_on: Option<u32>,
    ) -> io::Result<Transfers> {
        let mut builder = IoUring::builder();
        builder.dontfork();
        if let Some(processor) = polled_on {
            builder.setup_sqpoll(POLLING_IDLE_MS).setup_sqpoll_cpu(processor);
        }
        // A polling thread can answer a transfer before it has given the entry back.
        let entries = (2 * places.max(1) as u32).next_power_of_two();
        let mut ring = ForkSafe::new(builder.build(entries)?);
        let submitter = ring.get_mut().ok_or_else(forked)?.submitter();
        let mut places: Vec<Place> = (0..places).map(|_| Place::new(bytes)).collect();
        let vectors: Vec<libc::iovec> = places
            .iter_mut()
            .map(Place::bytes_mut)
            .map(|place| libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() })
            .collect();
        let descriptors: Vec<_> = files.iter().map(File::as_raw_fd).collect();
        submitter.register_files(&descriptors)?;
        // SAFETY: the memory is that of boxes which `places` owns and never gives away, and the ring, dropped before
        // them, is the only one to whom these addresses are known.
        let registered = unsafe { submitter.register_buffers(&vectors) };
        // Registered memory counts against the limit of locked memory. Transfers without it are a little slower.
        let are_registered = registered.is_ok();
        let is_under_way = vec![false; places.len()];
        let files = files.len();
        Ok(Transfers { ring, files, places, place_bytes: bytes, is_under_way, are_registered })
    }

    /// How many transfers can be under way.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Begins to read to a place. The kernel learns of it with [`Transfers::submit`].
    ///
    /// # Panics
    /// If a transfer of this place is under way, there is no such file, or the piece is longer than a place.
    pub fn begin_read(&mut self, place: usize, piece: Piece) {
        let (address, bytes, file) = self.prepare(place, piece);
        let entry = match self.are_registered {
            true => opcode::ReadFixed::new(file, address, bytes, place as u16)
                .offset(piece.offset)
                .build(),
            false => opcode::Read::new(file, address, bytes).offset(piece.offset).build(),
        };
        self.push(place, entry);
    }

    /// Begins to write from a place: what [`Transfers::data_mut`] has put there. When the write has ended its data survive a crash after the
    /// next sync of the file. The kernel learns of it with [`Transfers::submit`].
    ///
    /// # Panics
    /// If a transfer of this place is under way, there is no such file, or the piece is longer than a place.
    pub fn begin_write(&mut self, place: usize, piece: Piece) {
        let (address, bytes, file) = self.prepare(place, piece);
        let entry = match self.are_registered {
            true => opcode::WriteFixed::new(file, address, bytes, place as u16)
                .offset(piece.offset)
                .build(),
            false => opcode::Write::new(file, address, bytes).offset(piece.offset).build(),
        };
        self.push(place, entry);
    }

    fn prepare(&mut self, place: usize, piece: Piece) -> (*mut u8, u32, types::Fixed) {
        assert!(!self.is_under_way[place], "a transfer of this place is under way");
        assert!(piece.file < self.files, "file {} of {}", piece.file, self.files);
        assert!(piece.bytes <= self.place_bytes, "a piece that fits into a place");
        let address = self.places[place].bytes_mut().as_mut_ptr();
        (address, piece.bytes as u32, types::Fixed(piece.file as u32))
    }

    fn push(&mut self, place: usize, entry: squeue::Entry) {
        let Some(ring) = self.ring.get_mut() else { return };
        let entry = entry.user_data(place as u64);
        // SAFETY: the place is memory of ours that lives until the ring is dropped, and until the transfer has ended nobody
        // touches it: `data` and `data_mut` refuse, and dropping waits.
        let pushed = unsafe { ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has two entries for each place");
        self.is_under_way[place] = true;
    }

    /// Hands over what was begun.
    ///
    /// # Errors
    /// What the kernel says. What was begun goes with the next call then.
    pub fn submit(&mut self) -> io::Result<()> {
        let Some(ring) = self.ring.get_mut() else { return Ok(()) };
        // A polling thread of the kernel takes entries by itself, also between the two looks at them.
        let has_poller = ring.params().is_setup_sqpoll();
        while !ring.submission().is_empty() {
            if ring.submit()? == 0 && !has_poller {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(())
    }

    /// A transfer that is over, if there is one. None in a forked child.
    pub fn ended(&mut self) -> Option<Ended> {
        let entry = self.ring.get_mut()?.completion().next()?;
        let place = entry.user_data() as usize;
        self.is_under_way[place] = false;
        let bytes = match entry.result() {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            bytes => Ok(bytes as usize),
        };
        Some(Ended { place, bytes })
    }

    /// Hands over what was begun, and waits until a transfer is over.
    ///
    /// # Errors
    /// What the kernel says. `NotConnected` in a forked child.
    pub fn wait(&mut self) -> io::Result<()> {
        self.ring.get_mut().ok_or_else(forked)?.submit_and_wait(1).map(drop)
    }

    /// Waits until a transfer that was handed over is over.
    fn wait_alone(&self) -> io::Result<()> {
        let submitter = self.ring.get().ok_or_else(forked)?.submitter();
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no entries are handed over, and there is no signal mask to point to.
        unsafe { submitter.enter::<libc::sigset_t>(0, 1, flags, None) }.map(drop)
    }

    /// What is in a place: what was read to it, and behind it what was there before.
    ///
    /// # Panics
    /// If its transfer is under way.
    pub fn data(&self, place: usize) -> &[u8] {
        assert!(!self.is_under_way[place], "the kernel has this place");
        &self.places[place].bytes()[..self.place_bytes]
    }

    /// The memory of a place, to fill it before it is written.
    ///
    /// # Panics
    /// If its transfer is under way.
    pub fn data_mut(&mut self, place: usize) -> &mut [u8] {
        assert!(!self.is_under_way[place], "the kernel has this place");
        &mut self.places[place].bytes_mut()[..self.place_bytes]
    }
}

impl AsFd for Transfers {
    /// Readable while there is a transfer that is over and was not yet asked for.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Drop for Transfers {
    /// Waits for what the kernel has: it uses places of ours. What was begun and not handed over does not happen, unless a polling thread
    /// of the kernel takes it. A forked child leaves the ring, which is its parent's, alone.
    fn drop(&mut self) {
        let Some(ring) = self.ring.get() else { return };
        let has_poller = ring.params().is_setup_sqpoll();
        loop {
            while self.ended().is_some() {}
            let begun = match self.ring.get_mut() {
                Some(ring) if !has_poller => ring.submission().len(),
                _ => 0,
            };
            if self.is_under_way.iter().filter(|is_under_way| **is_under_way).count() <= begun {
                break;
            }
            let waited = if has_poller { self.wait() } else { self.wait_alone() };
            if let Err(error) = waited
                && !matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)
                )
            {
                // The kernel may still use them: the places are left to it.
                std::mem::forget(std::mem::take(&mut self.places));
                return;
            }
        }
        // Otherwise they stay open until the kernel takes the ring apart, some time after it was closed.
        let _ = self.ring.get().map(|ring| ring.submitter().unregister_files());
    }
}

/// Why a forked child has nothing to do with a ring.
fn forked() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// The same file once more, for direct transfers: the kernel keeps no copy of what is moved. Where a direct transfer begins, how long it
/// is, and where its memory begins are multiples of something: see [`direct_grain`] and [`direct_alignment`].
///
/// # Errors
/// `InvalidInput` if the file system has no direct transfers; or what the kernel says.
pub fn open_direct(file: &File, write: bool) -> io::Result<File> {
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(write).custom_flags(libc::O_DIRECT).open(name)
}

/// What the places and lengths of direct transfers of a file are multiples of, as the kernel says. None if it does not say, or the
/// file system has none: files in memory, for example.
///
/// # Errors
/// What the kernel says.
pub fn direct_alignment(file: &File) -> io::Result<Option<usize>> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    let is_told = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    // Places begin at multiples of a page.
    let fits = found.stx_dio_mem_align as usize <= PLACE_GRAIN_BYTES;
    let grain = found.stx_dio_offset_align as usize;
    Ok((is_told && fits && grain > 0).then_some(grain))
}

/// Has the kernel drop the pages of a file that it has cached and that are clean. It is a request: pages that are locked, or mapped by somebody,
/// stay.
///
/// # Errors
/// Those of `posix_fadvise`: a pipe has no pages.
pub fn drop_cached(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// What the places and lengths of direct reads of a file are multiples of: 512, or 4096. Found out by reading the file's first bytes.
///
/// # Errors
/// What the kernel says of a read that begins at 0 and is 4096 long.
pub fn direct_grain(file: &File) -> io::Result<usize> {
    let mut place = Place::new(PLACE_GRAIN_BYTES);
    let target = &mut place.bytes_mut()[512..1024];
    match file.read_at(target, 512) {
        Ok(_) => Ok(512),
        Err(_) => file.read_at(place.bytes_mut(), 0).map(|_| PLACE_GRAIN_BYTES),
    }
}

impl std::fmt::Debug for Transfers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Transfers")
            .field("places", &self.places.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn piece(offset: u64) -> Piece {
        Piece { file: 0, offset, bytes: 1000 }
    }

    fn file(bytes: &[u8]) -> File {
        let name = format!("siga-uring-{}-{}", std::process::id(), bytes.len());
        let name = std::env::temp_dir().join(name);
        let mut file = File::options().read(true).write(true).create_new(true).open(&name).unwrap();
        std::fs::remove_file(&name).unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn reads_end_with_the_bytes_of_their_offset() {
        let content: Vec<u8> = (0..64_000_u32).map(|at| (at / 1000) as u8).collect();
        let mut reads = match Transfers::new(vec![file(&content)], 4, 1000, None) {
            Ok(reads) => reads,
            Err(error) => return eprintln!("SKIPPED: no ring here: {error}"),
        };
        let mut offsets = [0; 4];
        let mut begun = 0;
        for (place, offset) in offsets.iter_mut().enumerate() {
            *offset = begun;
            reads.begin_read(place, piece(begun * 1000));
            begun += 1;
        }
        let mut ended = 0;
        while ended < 64 {
            reads.wait().unwrap();
            while let Some(Ended { place, bytes }) = reads.ended() {
                assert_eq!(bytes.unwrap(), 1000);
                assert_eq!(reads.data(place), [offsets[place] as u8; 1000]);
                ended += 1;
                if begun < 64 {
                    offsets[place] = begun;
                    reads.begin_read(place, piece(begun * 1000));
                    begun += 1;
                }
            }
        }
        // Beyond the end there is less.
        reads.begin_read(0, piece(63_500));
        reads.wait().unwrap();
        assert_eq!(reads.ended().unwrap().bytes.unwrap(), 500);
    }

    #[test]
    fn what_the_kernel_has_ends_before_the_ring_is_gone_and_nothing_else_happens() {
        for polled_on in [None, Some(0)] {
            let file = file(&[7; 3000]);
            let again = file.try_clone().unwrap();
            let mut writes = match Transfers::new(vec![file], 2, 1000, polled_on) {
                Ok(writes) => writes,
                Err(error) => {
                    eprintln!("SKIPPED: no ring here, polled on {polled_on:?}: {error}");
                    continue;
                }
            };
            (0..2).for_each(|place| writes.data_mut(place).fill(1));
            writes.begin_write(0, piece(0));
            writes.submit().unwrap();
            writes.begin_write(1, piece(1000));
            drop(writes);
            let mut found = [0; 3000];
            again.read_exact_at(&mut found, 0).unwrap();
            assert_eq!((found[..1000].to_vec(), found[2999]), (vec![1; 1000], 7));
            // A polling thread takes what was begun.
            let second = if polled_on.is_some() { 1 } else { 7 };
            assert_eq!(found[1000..2000], [second; 1000], "{polled_on:?}");
        }
    }

    #[test]
    fn child_leaves_the_ring_to_its_parent() {
        let Ok(mut writes) = Transfers::new(vec![file(&[7; 2000])], 2, 1000, None) else {
            return eprintln!("SKIPPED: no ring here");
        };
        // Over, and not taken yet.
        writes.begin_write(0, piece(0));
        writes.wait().unwrap();
        let number = writes.as_fd().as_raw_fd();
        let mut inherited = Some(writes);
        let deed = || {
            let mut writes = inherited.take().unwrap();
            // SAFETY: asks for the flags of a number; a closed one is an error.
            let is_open = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
            let ended = writes.ended();
            writes.data_mut(1).fill(9);
            writes.begin_write(1, piece(1000));
            let submitted = writes.submit();
            let waited = writes.wait();
            let is_refused = waited.is_err_and(|error| error.kind() == io::ErrorKind::NotConnected);
            let again = writes.ended();
            drop(writes);
            u8::from(is_open || ended.or(again).is_some() || submitted.is_err() || !is_refused)
        };
        assert_eq!(crate::fork::tests::run_in_child(deed), 0);
        let mut writes = inherited.expect("the child has a copy");
        let Ended { place, bytes } = writes.ended().expect("the parent's");
        assert_eq!((place, bytes.unwrap()), (0, 1000));
        writes.begin_read(1, piece(1000));
        writes.wait().unwrap();
        assert_eq!(writes.ended().unwrap().bytes.unwrap(), 1000);
        assert_eq!(writes.data(1), [7; 1000]);
    }

    #[test]
    fn files_of_a_ring_have_no_descriptor_that_a_child_could_have() {
        let file = file(&[7; 1500]);
        let named = |entry: &io::Result<std::fs::DirEntry>| {
            let link = std::fs::read_link(entry.as_ref().unwrap().path()).unwrap_or_default();
            link.to_string_lossy().contains(&format!("siga-uring-{}-1500", std::process::id()))
        };
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().filter(named).count();
        assert_eq!(open(), 1);
        let Ok(mut reads) = Transfers::new(vec![file], 1, 1000, None) else {
            return eprintln!("SKIPPED: no ring here");
        };
        assert_eq!(open(), 0);
        reads.begin_read(0, piece(0));
        reads.wait().unwrap();
        assert_eq!(reads.ended().unwrap().bytes.unwrap(), 1000);
    }

    #[test]
    fn what_was_written_is_in_the_file_when_the_write_has_ended() {
        let file = file(&[7; 5000]);
        let again = file.try_clone().unwrap();
        let Ok(mut writes) = Transfers::new(vec![file], 2, 1000, None) else {
            return eprintln!("SKIPPED: no ring here");
        };
        for (place, offset) in [(0, 2000), (1, 4500)] {
            writes.data_mut(place).fill(place as u8 + 1);
            writes.begin_write(place, piece(offset));
        }
        let mut ended = 0;
        while ended < 2 {
            writes.wait().unwrap();
            while let Some(Ended { bytes, .. }) = writes.ended() {
                assert_eq!(bytes.unwrap(), 1000);
                ended += 1;
            }
        }
        let mut found = [0; 5500];
        again.read_exact_at(&mut found, 0).unwrap();
        let expected = |range, byte| found[range] == vec![byte; 1000];
        assert!(expected(1000..2000, 7) && expected(2000..3000, 1) && expected(3000..4000, 7));
        assert!(expected(4500..5500, 2));
    }

    #[test]
    fn direct_reads_are_in_pieces_of_their_grain() {
        let content: Vec<u8> = (0..65_536_u32).map(|at| (at / 512) as u8).collect();
        let file = file(&content);
        let direct = match open_direct(&file, false) {
            Ok(direct) => direct,
            Err(error) => return eprintln!("SKIPPED: no direct reads here: {error}"),
        };
        let grain = match direct_grain(&direct) {
            Ok(grain) => grain,
            Err(error) => return eprintln!("SKIPPED: no direct reads here: {error}"),
        };
        let Ok(mut reads) = Transfers::new(vec![direct], 2, 8192, None) else {
            return eprintln!("SKIPPED: no ring here");
        };
        reads.begin_read(1, Piece { file: 0, offset: 3 * grain as u64, bytes: grain });
        reads.wait().unwrap();
        let ended = reads.ended().unwrap();
        assert_eq!((ended.place, ended.bytes.unwrap()), (1, grain));
        assert_eq!(reads.data(1)[..grain], content[3 * grain..4 * grain]);
    }
}
