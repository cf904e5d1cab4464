//! What lies below a volume: a file, or a simulated one that fails.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// A place for bytes, of a fixed length.
pub trait Backing: Debug + Send {
    /// How many bytes there are.
    ///
    /// # Errors
    /// Those of the place.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads bytes, all of them.
    ///
    /// # Errors
    /// Those of the place.
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes bytes, all of them. They survive the next [`Backing::sync`].
    ///
    /// # Errors
    /// Those of the place. Any part may have been written then.
    fn write_at(&mut self, source: &[u8], offset: u64) -> io::Result<()>;

    /// Returns once everything that was written survives a crash.
    ///
    /// # Errors
    /// Those of the place. What was written since the last sync may be lost then.
    fn sync(&mut self) -> io::Result<()>;

    /// Forgets what is cached of it and is clean.
    fn drop_cached(&mut self) {}

    /// The file, if it is one.
    fn file(&self) -> Option<&File> {
        None
    }

    /// The same file, opened for direct writes, if there are such.
    fn direct(&self) -> Option<&File> {
        None
    }

    /// Nobody writes here any more: others may read.
    ///
    /// # Errors
    /// `WouldBlock` if somebody else has got the place meanwhile; or those of the place.
    fn share(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Backing for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(target, offset)
    }

    fn write_at(&mut self, source: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(source, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn drop_cached(&mut self) {
        // A kernel that refuses keeps its pages, and nothing reads them while the volume is served.
        let _ = os::uring::drop_cached(self);
    }

    fn file(&self) -> Option<&File> {
        Some(self)
    }
}

/// Whether the same call can succeed later: the kernel lacks something now. Any other error is the disk's, or the file's.
pub fn is_passing(error: &io::Error) -> bool {
    const PASSING: [io::ErrorKind; 4] = [
        io::ErrorKind::Interrupted,
        io::ErrorKind::WouldBlock,
        io::ErrorKind::OutOfMemory,
        io::ErrorKind::ResourceBusy,
    ];
    PASSING.contains(&error.kind())
}

/// Whether the file, or the kernel, has no transfers of this kind: each one of them fails so.
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// A disk in memory that fails at a chosen write or sync, and forgets what was not synced when it does.
#[derive(Clone, Debug, Default)]
pub struct Simulated {
    /// What is there as long as nothing fails.
    bytes: Vec<u8>,
    /// What survived.
    synced: Vec<u8>,
    /// Writes and syncs that still succeed, if not all.
    pub steps_left: Option<u64>,
    /// Bytes of the write that fails that are written all the same.
    pub torn_bytes: usize,
    /// Writes and syncs so far.
    pub steps: u64,
    /// Syncs so far.
    pub syncs: u64,
    /// Where reads fail, and how.
    pub unreadable: Option<(Range<u64>, io::ErrorKind)>,
}

impl Simulated {
    /// A disk with these bytes.
    pub fn new(bytes: Vec<u8>) -> Simulated {
        Simulated { synced: bytes.clone(), bytes, ..Simulated::default() }
    }

    /// What was written, synced or not: it survives as long as the machine runs.
    pub fn written(&self) -> &[u8] {
        &self.bytes
    }

    /// What survived.
    pub fn synced(&self) -> &[u8] {
        &self.synced
    }

    fn step(&mut self) -> bool {
        self.steps += 1;
        match &mut self.steps_left {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

fn range(offset: u64, count: usize, bytes: usize) -> io::Result<Range<usize>> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    match start.checked_add(count) {
        Some(end) if end <= bytes => Ok(start..end),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Backing for Simulated {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<()> {
        let range = range(offset, target.len(), self.bytes.len())?;
        if let Some((bad, kind)) = &self.unreadable
            && (range.start as u64) < bad.end
            && bad.start < range.end as u64
        {
            return Err((*kind).into());
        }
        target.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write_at(&mut self, source: &[u8], offset: u64) -> io::Result<()> {
        let range = range(offset, source.len(), self.bytes.len())?;
        if !self.step() {
            let torn = self.torn_bytes.min(source.len());
            self.bytes[range][..torn].copy_from_slice(&source[..torn]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes[range].copy_from_slice(source);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        if !self.step() {
            return Err(io::ErrorKind::Other.into());
        }
        self.synced.clone_from(&self.bytes);
        Ok(())
    }
}
