//! Where one trial keeps its files.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A temporary directory that only this user can enter. Dropping it removes the directory and its files.
#[derive(Debug)]
pub(crate) struct Place {
    directory: PathBuf,
}

impl Place {
    /// A new directory among temporary files.
    ///
    /// # Errors
    /// What the kernel says, and of which directory.
    pub(crate) fn make() -> io::Result<Place> {
        Place::make_in(&std::env::temp_dir())
    }

    /// A new directory in memory if this machine has such a file system, else among temporary files: for
    /// files that processes share by mapping them. The kernel never writes them to a disk.
    ///
    /// # Errors
    /// As [`Place::make`].
    pub(crate) fn make_in_memory() -> io::Result<Place> {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Place::make_in(memory) } else { Place::make() }
    }

    fn make_in(parent: &Path) -> io::Result<Place> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("siga-lab-{}-{number}", std::process::id());
            let directory = parent.join(name);
            match DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => return Ok(Place { directory }),
                // Left behind by a lab of the same number that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let what = format!("cannot make {}: {error}", directory.display());
                    return Err(io::Error::new(error.kind(), what));
                }
            }
        }
    }

    /// Where a file of this name is, or is to be.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Somebody may have trimmed up already.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
