//! A file whose file system never answers, passed over a doorbell: nobody waits for it but the thread that
//! is there for that.
//!
//! The file system is a FUSE daemon in a process of its own, which answers what it takes to open a file, and
//! nothing after that: not what the file is, and not that it is closed. The test is skipped where FUSE cannot
//! be mounted: `/dev/fuse` is needed, and root.
#![expect(unsafe_code, reason = "a namespace to mount in is made by an unsafe call")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use os::doorbell::{Doorbell, Listen};
use os::foreign;
use os::packets::Packets;
use os::storage::{BorrowError, Borrowed};
use rustix::mount::{MountFlags, mount};

/// Says that this process is to be the daemon.
const DAEMON: &str = "SIGA_FUSE_DAEMON";

/// How long a deed may take before it counts as waiting.
const PATIENCE: Duration = Duration::from_secs(20);

/// The daemon, killed at the end: until then the file's last close waits.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn file_that_is_never_closed_by_its_file_system_is_refused_at_once() {
    if std::env::var_os(DAEMON).is_some() {
        return be_daemon();
    }
    foreign::close_on_a_thread(foreign::spawn_closer);
    let (ours, theirs) = Doorbell::ends().unwrap();
    let daemon = Command::new(std::env::current_exe().unwrap())
        .env(DAEMON, "")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut daemon = Daemon(daemon.unwrap());
    let mut said = daemon.0.stderr.take().unwrap();
    let bell = Doorbell::adopt(ours).unwrap();
    let heard = bell.hear(Listen::For(PATIENCE));
    let Some((file, _)) = heard.descriptor else {
        assert!(heard.gone, "the daemon hangs");
        let mut why = String::new();
        said.read_to_string(&mut why).unwrap();
        say(&format!("SKIPPED: no FUSE file system here: {why}\n"));
        return;
    };
    assert_eq!(bell.hear(Listen::For(PATIENCE)).rings, 1);
    let again = foreign::Foreign::from(file.as_fd().try_clone_to_owned().unwrap());
    let third = foreign::Foreign::from(file.as_fd().try_clone_to_owned().unwrap());
    let (done, wait) = mpsc::channel();
    thread::spawn(move || {
        let refused = Borrowed::borrow(file, 4096..=4096).unwrap_err();
        assert!(matches!(refused, BorrowError::Kind), "{refused}");
        assert!(Doorbell::adopt(again).is_err());
        assert!(Packets::adopt(third).is_err());
        done.send(()).unwrap();
    });
    let waited = wait.recv_timeout(PATIENCE);
    // The first close was asked for, by the thread that waits for the answer: the others wait for it.
    let mut asked = [0; 6];
    said.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"flush\n");
    let waiting = foreign::waiting();
    // Whoever waits is freed before anything is judged.
    drop(daemon);
    assert_eq!(waited, Ok(()), "somebody waits for the file system");
    assert_eq!(waiting, 3);
}

/// Mounts a file system of one file, passes the file over the doorbell that is standard input, and answers
/// nothing any more.
fn be_daemon() {
    os::peer::die_with_parent().unwrap();
    let bell = Doorbell::adopt(io::stdin().as_fd().try_clone_to_owned().unwrap()).unwrap();
    let device = match mounted() {
        Ok(device) => device,
        Err(why) => {
            say(&why);
            std::process::exit(0);
        }
    };
    // The main thread answers meanwhile.
    thread::spawn(move || {
        let file = File::open(place().join("file")).unwrap();
        // The daemon answers the first process that closes it, which is this one: it could not end if it had
        // to wait for itself.
        drop(file.try_clone().unwrap());
        bell.pass(file.as_fd(), 0);
        drop(file);
        // From here on it has nothing more to close, and can be killed.
        bell.ring();
    });
    serve(device);
}

/// Past what the test harness keeps for itself.
fn say(what: &str) {
    io::stderr().write_all(what.as_bytes()).unwrap();
}

fn place() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("siga-fuse-{}", std::process::id()))
}

fn mounted() -> Result<File, String> {
    let said = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    // A mount namespace of its own, so that nothing is left.
    // SAFETY: no descriptor changes its owner.
    let unshared = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
    unshared.map_err(|error| said("a namespace")(error.into()))?;
    let private =
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(|error| said("/")(error.into()))?;
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(said("/dev/fuse"))?;
    // Another file system in memory around it: the place itself is left in nobody's directory.
    let directory = std::env::temp_dir();
    mount("siga", &directory, "tmpfs", MountFlags::empty(), None)
        .map_err(|error| said("tmpfs")(error.into()))?;
    std::fs::create_dir(place()).map_err(said("a directory"))?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&device);
    let data = format!("fd={number},rootmode=40000,user_id=0,group_id=0\0");
    let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).unwrap();
    mount("siga", place(), "fuse", MountFlags::empty(), data)
        .map_err(|error| said("mount")(error.into()))?;
    Ok(device)
}

// Of linux/fuse.h, version 7.31.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const FLUSH: u32 = 25;
const INIT: u32 = 26;

/// Answers what it takes to open a file. What is asked of the open file is not answered.
fn serve(mut device: File) {
    let mut request = vec![0; 1 << 20];
    let mut is_open = false;
    let mut own = None;
    loop {
        let bytes = device.read(&mut request).unwrap();
        let (head, body) = request[..bytes].split_at(40);
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let (opcode, unique, node) = (word(4), &head[8..16], word(16));
        let answer = match opcode {
            INIT => {
                let mut answer = [7, 31, 0, 0, 0, 4096].map(u32::to_le_bytes).concat();
                answer.resize(64, 0);
                answer
            }
            LOOKUP => [number(2), number(0), number(0), number(0), number(0), facts(2)].concat(),
            GETATTR if !is_open || node == 1 => [number(0), number(0), facts(node.into())].concat(),
            OPEN => {
                is_open = true;
                [number(0), number(0)].concat()
            }
            // Its last field says which process it is for.
            FLUSH if own.get_or_insert_with(|| body[16..24].to_vec()) == &body[16..24] => {
                Vec::new()
            }
            FLUSH => {
                say("flush\n");
                continue;
            }
            _ => continue,
        };
        let bytes = (16 + answer.len()) as u32;
        let reply = [&bytes.to_le_bytes()[..], &[0; 4], unique, &answer].concat();
        device.write_all(&reply).unwrap();
    }
}

fn number(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

/// Attributes: the root is a directory, all else an ordinary file.
fn facts(node: u64) -> Vec<u8> {
    let mode: u32 = if node == 1 { 0o040_755 } else { 0o100_644 };
    let long = [node, 4096, 8, 0, 0, 0].map(u64::to_le_bytes).concat();
    let short = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_le_bytes).concat();
    [long, short].concat()
}
