//! Direct reads and writes of a volume's files: the kernel keeps no copy of what is moved, and many transfers are under way at a time.
//!
//! The kernel reads to places of its own, and writes from them, never from or to the cache, which is lent: a transfer whose program was
//! halted, or whose guest is gone, can end whenever it likes.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use os::uring::{Ended, Piece, Transfers, direct_alignment, direct_grain, open_direct};

use super::model::{SECTOR_BYTES, TRACK_BYTES};
use super::volume::Volume;

/// Direct reads of a volume that are under way at most.
pub const DIRECT_READS_MAX: usize = 64;

/// Direct writes of a volume that are under way at most.
const DIRECT_WRITES_MAX: usize = 64;

/// The longest grain that a disk may have.
const GRAIN_BYTES_MAX: usize = 4096;

/// Bytes of a read at most: a track, with what lies before and behind it up to the next multiple of the grain.
pub const DIRECT_READ_BYTES_MAX: usize = TRACK_BYTES + 2 * GRAIN_BYTES_MAX;

/// Transfers that are under way while their owner does something else.
pub trait Asynchronous: Debug + Send {
    /// How many can be under way.
    fn places(&self) -> usize;

    /// Hands over what was begun.
    ///
    /// # Errors
    /// Those of the place where the files are. What was begun goes with the next call then.
    fn submit(&mut self) -> io::Result<()>;

    /// A transfer that is over, if there is one.
    fn ended(&mut self) -> Option<Ended>;

    /// What is in a place from or to which no transfer is under way.
    fn data(&self, place: usize) -> &[u8];

    /// Readable when there is a transfer that is over.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Reads.
pub trait AsynchronousReads: Asynchronous {
    /// Begins to read to a place where no read is under way.
    fn begin(&mut self, place: usize, piece: Piece);
}

/// Writes.
pub trait AsynchronousWrites: Asynchronous {
    /// Begins to write `source`, all of a piece, from a place from which no write is under way. When it has ended the bytes survive a
    /// crash after the next [`Volume::sync`].
    fn begin(&mut self, place: usize, piece: Piece, source: &[u8]);

    /// Hands over what was begun, and waits until a write is over.
    ///
    /// # Errors
    /// Those of the place where the files are.
    fn wait(&mut self) -> io::Result<()>;
}

impl Asynchronous for Transfers {
    fn places(&self) -> usize {
        Transfers::places(self)
    }

    fn submit(&mut self) -> io::Result<()> {
        Transfers::submit(self)
    }

    #[inline]
    fn ended(&mut self) -> Option<Ended> {
        Transfers::ended(self)
    }

    fn data(&self, place: usize) -> &[u8] {
        Transfers::data(self, place)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl AsynchronousReads for Transfers {
    fn begin(&mut self, place: usize, piece: Piece) {
        self.begin_read(place, piece);
    }
}

impl AsynchronousWrites for Transfers {
    fn begin(&mut self, place: usize, piece: Piece, source: &[u8]) {
        self.data_mut(place)[..source.len()].copy_from_slice(source);
        self.begin_write(place, piece);
    }

    fn wait(&mut self) -> io::Result<()> {
        Transfers::wait(self)
    }
}

/// Why a volume has no direct reads.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoDirect {
    /// Where the files are there is nothing of the kind.
    #[error("its file cannot be read past the page cache: {0}")]
    File(io::Error),
    /// The kernel refuses rings.
    #[error("the kernel refuses a ring for its reads (io_uring): {0}")]
    Ring(io::Error),
}

/// Direct reads of all files of a volume.
#[derive(Debug)]
pub struct Direct {
    pub(crate) reads: Box<dyn AsynchronousReads>,
    /// Places and lengths of reads are multiples of this.
    pub(crate) grain: usize,
}

impl Direct {
    /// Readable when a read is over, if the reads have such a descriptor.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.reads.descriptor()
    }

    /// Opens the files of a volume once more, for direct reads.
    ///
    /// # Errors
    /// [`NoDirect`].
    pub fn open(volume: &Volume) -> Result<Direct, NoDirect> {
        let (mut files, mut grain) = (Vec::new(), 1);
        for file in volume.backings() {
            let file = file.file().ok_or_else(|| io::ErrorKind::Unsupported.into());
            let direct = file.and_then(|file| open_direct(file, false)).map_err(NoDirect::File)?;
            grain = direct_grain(&direct).map_err(NoDirect::File)?.max(grain);
            files.push(direct);
        }
        let reads = Transfers::new(files, DIRECT_READS_MAX, DIRECT_READ_BYTES_MAX, None);
        Ok(Direct { reads: Box::new(reads.map_err(NoDirect::Ring)?), grain })
    }

    /// Reads of a place that is no file. Offsets and lengths are multiples of `grain`.
    ///
    /// # Panics
    /// If the grain is not 512 or 4096.
    pub fn of(reads: Box<dyn AsynchronousReads>, grain: usize) -> Direct {
        assert!([512, GRAIN_BYTES_MAX].contains(&grain), "the grain of a disk");
        Direct { reads, grain }
    }
}

/// Direct writes of all files of a volume.
#[derive(Debug)]
pub struct DirectWrites {
    pub(crate) writes: Box<dyn AsynchronousWrites>,
}

impl DirectWrites {
    /// Readable when a write is over, if the writes have such a descriptor.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.writes.descriptor()
    }

    /// Direct writes of the files of a volume. None where there are none: the file system has no direct writes of 512 bytes, or does not
    /// say that it has; or the volume was opened for reading.
    ///
    /// # Errors
    /// The kernel refuses a ring (`io_uring`), or no descriptors are left.
    pub fn open(volume: &Volume) -> io::Result<Option<DirectWrites>> {
        let mut files = Vec::new();
        for backing in volume.backings() {
            let Some(file) = backing.direct() else { return Ok(None) };
            // Tracks begin at multiples of a sector, and not of more: wider writes would take bytes of other tracks along.
            if !direct_alignment(file)?.is_some_and(|grain| SECTOR_BYTES.is_multiple_of(grain)) {
                return Ok(None);
            }
            // The same open file: see `VolumeFile`.
            files.push(file.try_clone()?);
        }
        let writes = Transfers::new(files, DIRECT_WRITES_MAX, TRACK_BYTES, None)?;
        Ok(Some(DirectWrites { writes: Box::new(writes) }))
    }

    /// Writes of a place that is no file.
    pub fn of(writes: Box<dyn AsynchronousWrites>) -> DirectWrites {
        DirectWrites { writes }
    }
}
