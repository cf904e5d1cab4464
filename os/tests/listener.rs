//! Whose place in the file system it is, when somebody wants to listen there.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use os::packets::{Listener, Packets};
use rustix::fs::{CWD, FlockOperation, Mode, flock, mkfifoat};

/// A directory for a test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let name = format!("siga-listener-{name}-{}", std::process::id());
        let directory = Directory(std::env::temp_dir().join(name));
        fs::create_dir(&directory.0).unwrap();
        directory
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let name =
            |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(&self.0).unwrap().map(name).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A socket that nobody listens at any more.
fn leave_dead_socket(path: &Path) {
    drop(std::os::unix::net::UnixListener::bind(path).unwrap());
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let directory = Directory::new("files");
    let (file, link) = (directory.path("notes.txt"), directory.path("link"));
    fs::write(&file, "notes").unwrap();
    leave_dead_socket(&directory.path("socket"));
    symlink("socket", &link).unwrap();
    mkfifoat(CWD, directory.path("fifo"), Mode::RWXU).unwrap();
    fs::create_dir(directory.path("directory")).unwrap();
    let before = directory.names();
    for (name, what) in [
        ("notes.txt", "an ordinary file"),
        ("link", "a symbolic link"),
        ("fifo", "a pipe"),
        ("directory", "a directory"),
    ] {
        let error = Listener::bind(&directory.path(name), 0o600).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        assert!(error.to_string().starts_with(&format!("{what} is there: ")), "{error}");
    }
    assert_eq!(directory.names(), before, "nothing came and nothing went");
    assert_eq!(fs::read_to_string(file).unwrap(), "notes");
}

#[test]
fn of_several_that_start_at_once_one_listens() {
    const STARTERS: usize = 4;
    let directory = Directory::new("race");
    let path = directory.path("socket");
    for round in 0..100 {
        leave_dead_socket(&path);
        let barrier = Barrier::new(STARTERS);
        let start = || {
            barrier.wait();
            Listener::bind(&path, 0o600)
        };
        let started: Vec<_> = thread::scope(|scope| {
            let starting: Vec<_> = (0..STARTERS).map(|_| scope.spawn(start)).collect();
            starting.into_iter().map(|starting| starting.join().unwrap()).collect()
        });
        let (listening, refused): (Vec<_>, Vec<_>) = started.into_iter().partition(Result::is_ok);
        assert_eq!(listening.len(), 1, "round {round}");
        for refused in refused {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        Packets::connect(&path).expect("whoever listens can be reached");
        drop(listening);
        let _ = fs::remove_file(&path);
    }
}

#[test]
fn whoever_is_about_to_listen_is_not_disturbed() {
    let directory = Directory::new("lock");
    let path = directory.path("socket");
    leave_dead_socket(&path);
    // Between its look at the place and its first listening, a host has nothing there but this.
    let lock = fs::File::create(directory.path("socket.lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let error = Listener::bind(&path, 0o600).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop(lock);
    // One that was left over by a host that was killed is in nobody's way.
    let listener = Listener::bind(&path, 0o600).unwrap();
    assert_eq!(directory.names(), ["socket", "socket.lock"]);
    drop(listener);
    assert_eq!(directory.names(), [""; 0], "who ends in good order leaves nothing");
}

#[test]
fn lock_that_is_no_file_of_ours_is_left_alone() {
    let directory = Directory::new("locks");
    let path = directory.path("socket");
    let (lock, file) = (directory.path("socket.lock"), directory.path("file"));
    fs::write(&file, "precious").unwrap();
    symlink("file", &lock).unwrap();
    assert!(Listener::bind(&path, 0o600).is_err());
    fs::remove_file(&lock).unwrap();
    mkfifoat(CWD, &lock, Mode::RWXU).unwrap();
    assert!(Listener::bind(&path, 0o600).is_err());
    assert!(fs::symlink_metadata(&lock).unwrap().file_type().is_fifo());
    fs::remove_file(&lock).unwrap();
    fs::write(&lock, "").unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&lock, Some(1), None).unwrap();
        let error = Listener::bind(&path, 0o600).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("socket.lock"), "{error}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "precious");
}

#[test]
fn file_with_the_name_of_a_lock_is_neither_removed_nor_locked() {
    let directory = Directory::new("gems");
    let (place, lock) = (directory.path("Gemfile"), directory.path("Gemfile.lock"));
    fs::write(&lock, "gems").unwrap();
    let error = Listener::bind(&place, 0o600).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
    assert!(error.to_string().contains("Gemfile.lock: a file that is not empty"), "{error}");
    assert_eq!(fs::read_to_string(&lock).unwrap(), "gems");
    for held in ["gems", ""] {
        // The place itself is refused first: what is beside it is not looked at.
        fs::write(&place, "sources").unwrap();
        fs::write(&lock, held).unwrap();
        let error = Listener::bind(&place, 0o600).unwrap_err();
        assert!(error.to_string().starts_with("an ordinary file is there: "), "{error}");
        assert_eq!(fs::read_to_string(&lock).unwrap(), held);
    }
    fs::remove_file(&place).unwrap();
    let listener = Listener::bind(&place, 0o600).unwrap();
    fs::write(&lock, "written meanwhile").unwrap();
    drop(listener);
    assert_eq!(directory.names(), ["Gemfile.lock"]);
}

#[test]
fn what_somebody_else_has_put_there_meanwhile_stays() {
    let directory = Directory::new("others");
    let path = directory.path("socket");
    let listener = Listener::bind(&path, 0o600).unwrap();
    fs::remove_file(&path).unwrap();
    leave_dead_socket(&path);
    let other = fs::symlink_metadata(&path).unwrap().ino();
    drop(listener);
    assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), other);
}

#[test]
fn socket_of_another_kind_that_is_listened_at_stays() {
    let directory = Directory::new("kinds");
    let path = directory.path("socket");
    let _stream = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = Listener::bind(&path, 0o600).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
    std::os::unix::net::UnixStream::connect(&path).unwrap();
}

#[test]
fn listener_has_the_permissions_that_were_asked_for() {
    let directory = Directory::new("mode");
    let path = directory.path("socket");
    for mode in [0o600, 0o666] {
        let _listener = Listener::bind(&path, mode).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        let lock = fs::metadata(directory.path("socket.lock")).unwrap();
        assert_eq!(lock.permissions().mode() & 0o777, 0o600, "nobody else can keep it");
    }
}
