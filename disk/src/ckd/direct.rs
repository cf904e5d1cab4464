//! Direct reads of a volume's files: the kernel keeps no copy of what is read, and many reads are under way at a time.
//!
//! The kernel reads to places of its own, never to the cache, which is lent: a read whose program was halted, or whose guest is gone,
//! can end whenever it likes.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use os::uring::{Ended, Piece, Reads, direct_grain, open_direct};

use super::model::TRACK_BYTES;
use super::volume::Volume;

/// Direct reads of a volume that are under way at most.
pub const DIRECT_READS_MAX: usize = 64;

/// The longest grain that a disk may have.
const GRAIN_BYTES_MAX: usize = 4096;

/// Bytes of a read at most: a track, with what lies before and behind it up to the next multiple of the grain.
pub const DIRECT_READ_BYTES_MAX: usize = TRACK_BYTES + 2 * GRAIN_BYTES_MAX;

/// Reads that are under way while their owner does something else.
pub trait Asynchronous: Debug + Send {
    /// How many can be under way.
    fn places(&self) -> usize;

    /// Begins to read to a place where no read is under way.
    fn begin(&mut self, place: usize, piece: Piece);

    /// Hands over what was begun.
    ///
    /// # Errors
    /// Those of the place where the files are. What was begun goes with the next call then.
    fn submit(&mut self) -> io::Result<()>;

    /// A read that is over, if there is one.
    fn ended(&mut self) -> Option<Ended>;

    /// What was read to a place where no read is under way.
    fn data(&self, place: usize) -> &[u8];

    /// Readable when there is a read that is over.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

impl Asynchronous for Reads {
    fn places(&self) -> usize {
        Reads::places(self)
    }

    fn begin(&mut self, place: usize, piece: Piece) {
        Reads::begin(self, place, piece);
    }

    fn submit(&mut self) -> io::Result<()> {
        Reads::submit(self)
    }

    #[inline]
    fn ended(&mut self) -> Option<Ended> {
        Reads::ended(self)
    }

    fn data(&self, place: usize) -> &[u8] {
        Reads::data(self, place)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
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
    pub(crate) reads: Box<dyn Asynchronous>,
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
            let direct = file.and_then(open_direct).map_err(NoDirect::File)?;
            grain = direct_grain(&direct).map_err(NoDirect::File)?.max(grain);
            files.push(direct);
        }
        let reads = Reads::new(files, DIRECT_READS_MAX, DIRECT_READ_BYTES_MAX, None);
        Ok(Direct { reads: Box::new(reads.map_err(NoDirect::Ring)?), grain })
    }

    /// Reads of a place that is no file. Offsets and lengths are multiples of `grain`.
    ///
    /// # Panics
    /// If the grain is not 512 or 4096.
    pub fn of(reads: Box<dyn Asynchronous>, grain: usize) -> Direct {
        assert!([512, GRAIN_BYTES_MAX].contains(&grain), "the grain of a disk");
        Direct { reads, grain }
    }
}
