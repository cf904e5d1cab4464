//! Noticing that a namespace is gone that is not ours: a port in it keeps it, so it must look at what else did.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use os::peer::Process;
use rustix::fs::inotify;

use crate::setup::process_of;

/// What keeps a namespace besides its port: readable when that may be gone.
#[derive(Debug)]
pub enum Watch {
    /// A process in it, or that holds it open.
    Process(Process),
    /// A file of this path at which it is mounted.
    File {
        /// Where.
        path: PathBuf,
        /// News of the directory in which it is.
        news: OwnedFd,
    },
}

impl Watch {
    /// Watches the namespace at `path`, which is one of `/proc/PID/ns`, or a file.
    ///
    /// # Errors
    /// `NotFound`: the process, or the file, is gone already. Otherwise as from the kernel.
    pub fn new(path: &Path) -> io::Result<Watch> {
        if let Some(number) = process_of(path) {
            return Ok(Watch::Process(Process::of_number(number)?));
        }
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let news = inotify::init(flags)?;
        let path = std::path::absolute(path)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let events = inotify::WatchFlags::DELETE | inotify::WatchFlags::MOVED_FROM;
        inotify::add_watch(&news, directory, events)?;
        path.metadata()?;
        Ok(Watch::File { path, news })
    }

    /// Whether it is gone: to be asked when this is readable.
    pub fn is_gone(&self) -> bool {
        match self {
            Watch::Process(_) => true,
            Watch::File { path, news } => {
                // What the news are does not matter, only that they are taken.
                while rustix::io::read(news, &mut [0; 4096]).is_ok() {}
                !path.exists()
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Watch::Process(process) => process.as_fd(),
            Watch::File { news, .. } => news.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::poller::wait_any;
    use std::time::Duration;

    #[test]
    fn file_that_is_removed_is_noticed_and_others_are_not() {
        let directory = std::env::temp_dir().join(format!("siga-watch-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let (file, other) = (directory.join("blue"), directory.join("red"));
        std::fs::write(&file, "").unwrap();
        std::fs::write(&other, "").unwrap();
        let watch = Watch::new(&file).unwrap();
        let has_news = || wait_any([Some(watch.as_fd())], Some(Duration::ZERO)).unwrap() == [true];
        assert!(!has_news());
        std::fs::remove_file(other).unwrap();
        assert!(has_news() && !watch.is_gone() && !has_news());
        std::fs::remove_file(&file).unwrap();
        assert!(has_news() && watch.is_gone());
        assert!(Watch::new(&file).is_err());
        std::fs::remove_dir(directory).unwrap();
    }

    #[test]
    fn process_that_ends_is_noticed() {
        let mut child = std::process::Command::new("cat");
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let path = format!("/proc/{}/ns/net", child.id());
        let watch = Watch::new(Path::new(&path)).unwrap();
        drop(child.stdin.take());
        assert_eq!(wait_any([Some(watch.as_fd())], None).unwrap(), [true]);
        assert!(watch.is_gone());
        child.wait().unwrap();
        assert!(Watch::new(Path::new(&path)).is_err());
    }
}
