//! New files, which have a name only when they are complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use rustix::io::Errno;

/// Where the kernel shows open files by their descriptors.
const DESCRIPTORS: &str = "/proc/self/fd";

/// A file that is being written, and gets its name when it is complete. Nothing is left of one that is dropped before, and mostly not of
/// one whose process is killed: only where the file system has no files without a name (`O_TMPFILE`) the name is there from the start, and
/// stays after a kill.
#[derive(Debug)]
pub struct FreshFile {
    file: File,
    path: PathBuf,
    has_name: bool,
    is_kept: bool,
}

impl FreshFile {
    /// A new file, which is to be at `path`.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something; otherwise what the kernel says.
    pub fn create(path: &Path) -> io::Result<FreshFile> {
        FreshFile::create_with(path, !Path::new(DESCRIPTORS).exists())
    }

    fn create_with(path: &Path, is_named: bool) -> io::Result<FreshFile> {
        // Not only when all is written.
        if path.symlink_metadata().is_ok() {
            return Err(Errno::EXIST.into());
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let nameless = || {
            let flags = OFlags::TMPFILE.bits() as i32;
            options.clone().custom_flags(flags).open(directory(path)).ok()
        };
        let (file, has_name) = match (!is_named).then(nameless).flatten() {
            Some(file) => (file, false),
            // The file system has none, or the directory cannot be used: this says which.
            None => (options.clone().create_new(true).open(path)?, true),
        };
        Ok(FreshFile { file, path: path.to_owned(), has_name, is_kept: false })
    }

    /// The file, to write it.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Where it is, or will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name: its content is on the disk then. It is removed all the same if it is dropped before [`FreshFile::keep`].
    ///
    /// # Errors
    /// `AlreadyExists` if something has come there; otherwise what the kernel says.
    pub fn name(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if !self.has_name {
            let source = format!("{DESCRIPTORS}/{}", self.file.as_raw_fd());
            linkat(CWD, source, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
            self.has_name = true;
        }
        Ok(())
    }

    /// Has the file stay: its name is on the disk then.
    ///
    /// # Errors
    /// As [`FreshFile::name`]; the file is removed then.
    pub fn keep(mut self) -> io::Result<()> {
        self.name()?;
        match File::open(directory(&self.path))?.sync_all() {
            // Some file systems have no sync of directories.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => return Err(error),
            _ => self.is_kept = true,
        }
        Ok(())
    }

    /// Whether the file of this name is this one, which nobody has replaced.
    fn is_ours(&self) -> io::Result<bool> {
        let (ours, named) = (self.file.metadata()?, self.path.symlink_metadata()?);
        Ok((ours.dev(), ours.ino()) == (named.dev(), named.ino()))
    }
}

impl Drop for FreshFile {
    fn drop(&mut self) {
        if self.has_name && !self.is_kept && self.is_ours().unwrap_or(false) {
            // It may be gone by now.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("siga-fresh-{name}-{}", std::process::id()))
    }

    #[test]
    fn file_is_there_when_it_is_kept_and_gone_when_it_is_dropped() {
        for is_named in [false, true] {
            let path = place(if is_named { "named" } else { "nameless" });
            let mut fresh = FreshFile::create_with(&path, is_named).unwrap();
            fresh.file().write_all(b"half").unwrap();
            // A file system may have no files without a name.
            assert!(!is_named || path.exists());
            drop(fresh);
            assert!(!path.exists());
            let mut fresh = FreshFile::create_with(&path, is_named).unwrap();
            fresh.file().write_all(b"whole").unwrap();
            fresh.name().unwrap();
            assert!(path.exists());
            fresh.keep().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"whole");
            let again = FreshFile::create_with(&path, is_named).map(drop).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn file_that_has_come_meanwhile_is_not_touched() {
        let path = place("meanwhile");
        let mut fresh = FreshFile::create(&path).unwrap();
        let is_nameless = !fresh.has_name;
        fs::remove_file(&path).ok();
        fs::write(&path, "notes").unwrap();
        if is_nameless {
            assert_eq!(fresh.name().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        drop(fresh);
        assert_eq!(fs::read(&path).unwrap(), b"notes");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn directory_that_is_not_there_is_said() {
        let error = FreshFile::create(&place("none").join("file")).map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
