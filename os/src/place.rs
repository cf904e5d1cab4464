//! A place in the file system where a socket is bound: which process has it, and what may be removed there.
//!
//! A socket of a listener that has died stays in the file system, and no process can bind there until it is
//! removed. Between checking for a listener and listening, another process may do the same. So a process that
//! has a place holds a lock on a file beside it, `NAME.lock`, for as long as it has the place. The kernel
//! frees the lock when its holder dies; the file that is left does no harm. Only a socket is ever removed,
//! and an empty lock file by its holder: a file of this name that is not empty is not siga's.

use std::fs::{self, File, FileType, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use crate::fork::ForkSafeFd;
use crate::memory::shortage;
use crate::packets::Packets;

/// How often a lock is tried whose file was removed by the holder before.
const TRIES_MAX: usize = 100;

/// A place that is ours.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    lock_path: PathBuf,
    /// What was bound here, by device and number, once it was.
    bound: Option<(u64, u64)>,
    lock: ForkSafeFd,
}

impl Place {
    /// Claims the place, and removes the socket of a listener that has died.
    ///
    /// # Errors
    /// `AddrInUse` if a process listens there, or is about to; `AlreadyExists` if something is there that is
    /// no socket, or its lock is a file that is not empty; `PermissionDenied` if it is another user's;
    /// otherwise as from the kernel.
    pub(crate) fn claim(path: &Path) -> io::Result<Place> {
        // Before anything is made or locked beside it: what is no place for a socket has no lock of ours.
        is_socket(path)?;
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let lock = lock(&lock_path)?;
        let place =
            Place { path: path.to_owned(), lock_path, bound: None, lock: ForkSafeFd::new(lock) };
        place.clear()?;
        Ok(place)
    }

    /// Removes a socket at which no process listens.
    fn clear(&self) -> io::Result<()> {
        if !is_socket(&self.path)? {
            return Ok(());
        }
        match Packets::connect(&self.path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(&self.path)
            }
            // Without a descriptor or memory the listener was not reached. A listener whose backlog is full
            // was.
            Err(error) if error.kind() != ErrorKind::WouldBlock && shortage(&error).is_some() => {
                Err(error)
            }
            // After any other error a process is there: it is behind, or no listener for packets.
            _ => Err(ErrorKind::AddrInUse.into()),
        }
    }

    /// Takes note of the socket that was bound here, and sets which users may connect to it.
    ///
    /// # Errors
    /// It does not exist any more, or as from the kernel.
    pub(crate) fn settle(&mut self, mode: u32) -> io::Result<()> {
        // By a descriptor: the name may be another file's from one moment to the next, where others may write.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = File::from(openat(CWD, &self.path, flags, Mode::empty())?);
        let facts = socket.metadata()?;
        if !facts.file_type().is_socket() {
            return Err(ErrorKind::NotFound.into());
        }
        self.bound = Some(identity(&facts));
        // The file-creation mask may have taken away what was asked for.
        if facts.permissions().mode() & 0o777 != mode {
            let by_number = format!("/proc/thread-self/fd/{}", socket.as_raw_fd());
            fs::set_permissions(by_number, Permissions::from_mode(mode))?;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.lock.in_child() {
            // It is the parent's.
            return;
        }
        // Another process may have removed what we bound, and bound something else: that stays. What cannot
        // be removed stays too, and does no harm.
        let found = fs::symlink_metadata(&self.path).ok();
        if found.is_some_and(|found| self.bound == Some(identity(&found))) {
            let _ = fs::remove_file(&self.path);
        }
        // Still locked: a process that waits for the lock sees that it is not the file of this name any more.
        // A file that another process has put there meanwhile, or written to, stays.
        let locked = rustix::fs::fstat(&self.lock).ok().map(|facts| (facts.st_dev, facts.st_ino));
        let found = fs::symlink_metadata(&self.lock_path).ok();
        if found.is_some_and(|found| found.len() == 0 && locked == Some(identity(&found))) {
            let _ = fs::remove_file(&self.lock_path);
        }
    }
}

/// Whether a socket is at `path`, or else nothing.
///
/// # Errors
/// `AlreadyExists` if something else is there; otherwise as from the kernel.
fn is_socket(path: &Path) -> io::Result<bool> {
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !facts.file_type().is_socket() {
        let right = "name a place where nothing is, or where a host was";
        let what = format!("{} is there: {right}", kind(facts.file_type()));
        return Err(io::Error::new(ErrorKind::AlreadyExists, what));
    }
    Ok(true)
}

/// Opens and locks a file, which is made if it does not exist.
fn lock(path: &Path) -> io::Result<OwnedFd> {
    let wrong = |kind: ErrorKind, what: &str| {
        io::Error::new(kind, format!("its lock {}: {what}", path.display()))
    };
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    for _ in 0..TRIES_MAX {
        let opened = openat(CWD, path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        let lock = opened.map_err(|error| match error {
            // There is no place for anything.
            Errno::NOENT | Errno::NOTDIR => error.into(),
            Errno::LOOP => wrong(ErrorKind::AlreadyExists, "a symbolic link is there: remove it"),
            _ => wrong(io::Error::from(error).kind(), &io::Error::from(error).to_string()),
        })?;
        let lock = File::from(lock);
        let facts = lock.metadata()?;
        if !facts.is_file() {
            let what = format!("{} is there: remove it", kind(facts.file_type()));
            return Err(wrong(ErrorKind::AlreadyExists, &what));
        }
        if facts.uid() != rustix::process::geteuid().as_raw() {
            // Its owner could keep us from it, or let another have it at the same time.
            let what = format!("it is user {}'s: remove it if that user has no host", facts.uid());
            return Err(wrong(ErrorKind::PermissionDenied, &what));
        }
        if facts.len() != 0 {
            // No host writes to its lock.
            let what = "a file that is not empty is there: name another place for the socket";
            return Err(wrong(ErrorKind::AlreadyExists, what));
        }
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(ErrorKind::AddrInUse.into()),
            Err(error) => return Err(error.into()),
        }
        // The holder of the lock before has removed the file at the end.
        let found = fs::symlink_metadata(path).ok();
        if found.is_some_and(|found| identity(&found) == identity(&facts)) {
            return Ok(lock.into());
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

fn identity(facts: &Metadata) -> (u64, u64) {
    (facts.dev(), facts.ino())
}

fn kind(kind: FileType) -> &'static str {
    if kind.is_file() {
        "an ordinary file"
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}
