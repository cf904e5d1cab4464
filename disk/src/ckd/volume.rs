//! A volume: its tracks, in one file or several.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use os::fork::ForkSafe;
use os::memory::shortage;
use os::uring::open_direct;

use super::backing::Backing;
use super::header::{BadHeader, HEADER_BYTES, Header};
use super::model::{CYLINDERS_MAX, HEADS, TRACK_BYTES};

/// Files of one volume.
pub const FILES_MAX: usize = 8;

/// Whether a volume is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Others may read it too.
    Read,
    /// Nobody else has it.
    Write,
}

/// Why a volume was not opened.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}", file = file.display())]
pub struct OpenError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a volume file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The kernel refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Somebody has it.
    #[error("in use by another process")]
    InUse,
    /// It is no volume file.
    #[error(transparent)]
    Header(#[from] BadHeader),
    /// It is shorter than its header, or does not end with a cylinder.
    #[error(
        "{bytes} bytes: a volume file has 512 and whole cylinders of 852480 each, {CYLINDERS_MAX} at most"
    )]
    Size {
        /// How long it is.
        bytes: u64,
    },
    /// It is not the file of the volume that it should be.
    #[error("file {found} of a volume: must be file {expected}")]
    Order {
        /// What its header says.
        found: u8,
        /// What it should be.
        expected: u8,
    },
    /// Its header names another last cylinder than it has.
    #[error(
        "its header says that cylinder {found} is the last: the file ends with cylinder {expected}"
    )]
    LastCylinder {
        /// What its header says.
        found: u32,
        /// Where the file ends.
        expected: u32,
    },
    /// The name of the next file cannot be found.
    #[error("the name of a volume in several files must end in 1 before the dot")]
    Name,
}

#[derive(Debug)]
struct Part {
    backing: Box<dyn Backing>,
    first_track: u32,
    tracks: u32,
}

/// A volume.
#[derive(Debug)]
pub struct Volume {
    parts: Vec<Part>,
    access: Access,
}

impl Volume {
    /// Opens the volume that begins with the file at `path`, with all of its files.
    ///
    /// A file is locked while it is open: against everybody for writing, against writers for reading.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, access: Access) -> Result<Volume, OpenError> {
        let mut volume = Volume { parts: Vec::new(), access };
        let mut path = path.to_owned();
        loop {
            let named = |problem: Problem| OpenError { file: path.clone(), problem };
            let file = VolumeFile::open(&path, access).map_err(named)?;
            let header = volume.add(Box::new(file)).map_err(named)?;
            if header.file == 0 || header.last_cylinder == 0 {
                return Ok(volume);
            }
            path = next_file(&path, header.file).ok_or_else(|| named(Problem::Name))?;
        }
    }

    /// A volume in one place that is not a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_backing(backing: Box<dyn Backing>, access: Access) -> Result<Volume, Problem> {
        Volume::from_backings([backing], access)
    }

    /// A volume in several places that are not files, in their order.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn from_backings(
        backings: impl IntoIterator<Item = Box<dyn Backing>>,
        access: Access,
    ) -> Result<Volume, Problem> {
        let mut volume = Volume { parts: Vec::new(), access };
        backings.into_iter().try_for_each(|backing| volume.add(backing).map(drop))?;
        Ok(volume)
    }

    fn add(&mut self, backing: Box<dyn Backing>) -> Result<Header, Problem> {
        let bytes = backing.bytes()?;
        let mut header = [0; HEADER_BYTES];
        if bytes < HEADER_BYTES as u64 {
            return Err(BadHeader::Kind.into());
        }
        backing.read_at(&mut header, 0)?;
        let header = Header::parse(&header)?;
        let cylinder_bytes = TRACK_BYTES as u64 * u64::from(HEADS);
        let content = bytes - HEADER_BYTES as u64;
        let cylinders = content / cylinder_bytes;
        let first_track = self.tracks();
        let all = u64::from(first_track / HEADS) + cylinders;
        if !content.is_multiple_of(cylinder_bytes)
            || cylinders == 0
            || all > u64::from(CYLINDERS_MAX)
        {
            return Err(Problem::Size { bytes });
        }
        let (index, found) = (self.parts.len(), header.file);
        let expected = index as u8 + 1;
        let is_only = index == 0 && found == 0;
        if !is_only && (found != expected || index >= FILES_MAX) {
            return Err(Problem::Order { found, expected });
        }
        let (found, expected) = (u32::from(header.last_cylinder), all as u32 - 1);
        if found != 0 && found != expected {
            return Err(Problem::LastCylinder { found, expected });
        }
        self.parts.push(Part { backing, first_track, tracks: cylinders as u32 * HEADS });
        Ok(header)
    }

    /// How many tracks there are.
    pub fn tracks(&self) -> u32 {
        self.parts.last().map_or(0, |part| part.first_track + part.tracks)
    }

    /// How many cylinders there are.
    pub fn cylinders(&self) -> u32 {
        self.tracks() / HEADS
    }

    /// What its files are in, in their order.
    pub(super) fn backings(&self) -> impl Iterator<Item = &dyn Backing> {
        self.parts.iter().map(|part| &*part.backing)
    }

    /// How many files there are.
    pub fn files(&self) -> usize {
        self.parts.len()
    }

    /// Whether it may be written.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The same volume, which is only read from now on. Others may read it too, and nobody has written to it since it was opened.
    ///
    /// # Errors
    /// [`Problem::InUse`] if another process has got hold of it in that moment; or those of the files.
    pub fn into_read(mut self) -> Result<Volume, Problem> {
        for part in &mut self.parts {
            part.backing.share().map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => Problem::InUse,
                _ => error.into(),
            })?;
        }
        self.access = Access::Read;
        Ok(self)
    }

    /// Where a track is: in which file, from 0, and where in it.
    ///
    /// # Panics
    /// If there is no such track.
    pub fn place(&self, track: u32) -> (usize, u64) {
        assert!(track < self.tracks(), "track {track} of {}", self.tracks());
        let index = self.parts.partition_point(|part| part.first_track <= track) - 1;
        let within = track - self.parts[index].first_track;
        (index, HEADER_BYTES as u64 + u64::from(within) * TRACK_BYTES as u64)
    }

    /// Reads a track.
    ///
    /// # Errors
    /// Those of the file.
    ///
    /// # Panics
    /// If there is no such track, or `target` is not a track long.
    pub fn read_track(&self, track: u32, target: &mut [u8]) -> io::Result<()> {
        assert_eq!(target.len(), TRACK_BYTES);
        let (index, offset) = self.place(track);
        self.parts[index].backing.read_at(target, offset)
    }

    /// Writes a part of a track. It survives a crash after the next [`Volume::sync`].
    ///
    /// # Errors
    /// Those of the file, any part may have been written then; and if the volume was opened for reading.
    ///
    /// # Panics
    /// If there is no such track, or the bytes reach beyond it.
    pub fn write(&mut self, track: u32, offset: usize, source: &[u8]) -> io::Result<()> {
        assert!(offset + source.len() <= TRACK_BYTES, "bytes within a track");
        if self.access == Access::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (index, start) = self.place(track);
        self.parts[index].backing.write_at(source, start + offset as u64)
    }

    /// Returns once everything that was written survives a crash.
    ///
    /// # Errors
    /// Those of the files.
    pub fn sync(&mut self) -> io::Result<()> {
        self.parts.iter_mut().try_for_each(|part| part.backing.sync())
    }

    /// Has the kernel drop what it has cached of the files, as far as that is clean: after a sync that has failed they may differ from the disk.
    /// It is a request, and the kernel may keep pages.
    pub fn drop_cached(&mut self) {
        self.parts.iter_mut().for_each(|part| part.backing.drop_cached());
    }
}

/// A file of a volume. A forked child does not have it: it would keep the lock, and the volume in use, when its parent is gone.
///
/// A writer's lock belongs to the open file over which direct writes go, if there is one: the kernel holds it for each write that is
/// under way. So nobody else can open the volume before these have ended, also if the writer was killed.
#[derive(Debug)]
struct VolumeFile {
    file: ForkSafe<File>,
    direct: Option<ForkSafe<File>>,
}

/// Of `open(2)`: the same on all machines that this runs on.
const O_NONBLOCK: i32 = 0o4000;

/// Checks that a file can be a volume's, without waiting: opening a pipe waits for its other end.
///
/// # Errors
/// The file cannot be opened to be read, or is neither a regular file nor a block device.
pub fn check_file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    match kind.is_file() || kind.is_block_device() {
        true => Ok(()),
        false => {
            let what = "it is neither a regular file nor a block device";
            Err(io::Error::new(io::ErrorKind::InvalidInput, what))
        }
    }
}

impl VolumeFile {
    fn open(path: &Path, access: Access) -> Result<VolumeFile, Problem> {
        let is_write = access == Access::Write;
        // The flag of the check must not stay: a ring does not wait for files that have it.
        check_file(path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(is_write);
        let file = ForkSafe::new(options.open(path)?);
        let opened = file.get().ok_or_else(forked)?;
        if !is_write {
            locked(opened.try_lock_shared())?;
            return Ok(VolumeFile { file, direct: None });
        }
        // A file system that has no direct writes may say so here.
        let direct = match open_direct(opened, true) {
            Ok(direct) => Some(ForkSafe::new(direct)),
            Err(error) if shortage(&error).is_some() => return Err(error.into()),
            Err(_) => None,
        };
        locked(direct.as_ref().and_then(ForkSafe::get).unwrap_or(opened).try_lock())?;
        Ok(VolumeFile { file, direct })
    }

    fn ours(&mut self) -> io::Result<&mut File> {
        self.file.get_mut().ok_or_else(forked)
    }
}

/// Why a forked child has nothing to do with a volume of its parent.
fn forked() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

fn locked(tried: Result<(), TryLockError>) -> Result<(), Problem> {
    match tried {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Problem::InUse),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

impl Backing for VolumeFile {
    fn bytes(&self) -> io::Result<u64> {
        self.file.get().ok_or_else(forked)?.bytes()
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.get().ok_or_else(forked)?.read_at(target, offset)
    }

    fn write_at(&mut self, source: &[u8], offset: u64) -> io::Result<()> {
        self.ours()?.write_at(source, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.ours()?.sync()
    }

    fn drop_cached(&mut self) {
        if let Ok(file) = self.ours() {
            file.drop_cached();
        }
    }

    fn file(&self) -> Option<&File> {
        self.file.get()
    }

    fn direct(&self) -> Option<&File> {
        self.direct.as_ref().and_then(ForkSafe::get)
    }

    fn share(&mut self) -> io::Result<()> {
        if let Some(direct) = self.direct() {
            direct.try_lock_shared()?;
        }
        // The kernel takes the old lock away before it gives the new one: another writer who came in between has both refused.
        self.ours()?.try_lock_shared()?;
        self.direct = None;
        Ok(())
    }
}

/// The name of the file behind this one: the digit before the dot, or at the end, is one more.
pub fn next_file(path: &Path, file: u8) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let (stem, rest) = name.split_at(name.rfind('.').unwrap_or(name.len()));
    let base = stem.strip_suffix(&file.to_string())?;
    Some(path.with_file_name(format!("{base}{}{rest}", file + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckd::backing::Simulated;

    fn file(header: Header, cylinders: usize) -> Vec<u8> {
        let mut bytes = header.emit().to_vec();
        bytes.resize(HEADER_BYTES + cylinders * HEADS as usize * TRACK_BYTES, 0);
        bytes
    }

    #[test]
    fn tracks_of_several_files_are_found() {
        let first = Header { file: 1, last_cylinder: 1, ..Header::default() };
        let second = Header { file: 2, last_cylinder: 0, ..Header::default() };
        let backings = [file(first, 2), file(second, 1)]
            .map(|bytes| Box::new(Simulated::new(bytes)) as Box<dyn Backing>);
        let mut volume = Volume::from_backings(backings, Access::Write).unwrap();
        assert_eq!((volume.cylinders(), volume.files()), (3, 2));
        assert_eq!((volume.place(29), volume.place(30)), ((0, 512 + 29 * 56832), (1, 512)));
        volume.write(31, 5, b"here").unwrap();
        let mut track = vec![0; TRACK_BYTES];
        volume.read_track(31, &mut track).unwrap();
        assert_eq!(&track[5..9], b"here");
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let open = |header: Header, cylinders| {
            let bytes = Box::new(Simulated::new(file(header, cylinders)));
            Volume::from_backing(bytes, Access::Read).map(drop).unwrap_err().to_string()
        };
        let of = |file, last_cylinder| Header { file, last_cylinder, ..Header::default() };
        assert_eq!(open(of(2, 0), 1), "file 2 of a volume: must be file 1");
        let says = "its header says that cylinder 7 is the last: the file ends with cylinder 0";
        assert_eq!(open(of(1, 7), 1), says);
        let mut bytes = file(Header::default(), 1);
        bytes.truncate(100_000);
        let volume = Volume::from_backing(Box::new(Simulated::new(bytes)), Access::Read);
        assert!(matches!(volume, Err(Problem::Size { bytes: 100_000 })));
    }

    #[test]
    fn volume_opened_for_reading_is_not_written() {
        let bytes = Box::new(Simulated::new(file(Header::default(), 1)));
        let mut volume = Volume::from_backing(bytes, Access::Read).unwrap();
        assert_eq!(volume.write(0, 0, b"x").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn files_have_numbers_before_the_dot() {
        let next = |name: &str, file| next_file(Path::new(name), file);
        assert_eq!(next("/a/lin1.ckd", 1), Some("/a/lin2.ckd".into()));
        assert_eq!(next("vol_1", 1), Some("vol_2".into()));
        assert_eq!(next("lin.ckd", 1), None);
    }
}
