//! Child processes: how they are started, how they exchange messages with their parent, and how they end with
//! it.

use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use os::foreign::Foreign;
use os::packets::{Listener, Packets};
use os::poller::wait_readable;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A temporary directory, removed when it is dropped.
#[derive(Debug)]
pub struct Workplace {
    directory: PathBuf,
}

impl Workplace {
    /// Creates one.
    ///
    /// # Errors
    /// As from the kernel.
    pub fn create() -> io::Result<Workplace> {
        let mut number = [0; 8];
        os::random::fill(&mut number)?;
        let name = format!("siga-proof-{:016x}", u64::from_le_bytes(number));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory)?;
        Ok(Workplace { directory })
    }

    /// Opens the directory to other users.
    ///
    /// # Errors
    /// As from the kernel.
    pub fn open_to_all(&self) -> io::Result<()> {
        std::fs::set_permissions(&self.directory, Permissions::from_mode(0o755))
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // A directory that stays behind is not worth a panic.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Where the host listens in a workplace.
pub fn host_socket(directory: &Path) -> PathBuf {
    directory.join("host")
}

/// Where children find the process that started them.
pub fn crew_socket(directory: &Path) -> PathBuf {
    directory.join("crew")
}

/// This program again, to be started as a child. By the kernel's own link: the file may have been built anew
/// meanwhile, or lie in a directory that another user may not read.
pub fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("siga-proof").stdin(Stdio::null());
    command
}

/// To be called first in a child: ends it when process `parent` ends.
pub fn die_with_parent(parent: u32) {
    let now = os::peer::die_with_parent().expect("the kernel knows this signal");
    // The parent may have ended before that.
    assert_eq!(now, parent, "started by another process, or the parent has ended");
}

/// A connection between a child and its parent. Messages stay whole and can carry descriptors.
#[derive(Debug)]
pub struct Line(Packets);

/// What a poll of a line returns.
#[derive(Debug)]
pub enum Heard<T> {
    /// Nothing yet.
    Nothing,
    /// The other end is gone, and everything it sent has been received.
    Gone,
    /// A message and its descriptors.
    Message(T, Vec<Foreign>),
}

/// Bytes of the longest message.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

impl Line {
    /// Connects a child to its parent.
    ///
    /// # Errors
    /// As from the kernel.
    pub fn connect(directory: &Path) -> io::Result<Line> {
        Packets::connect(&crew_socket(directory)).map(Line)
    }

    /// Accepts the next child, if one waits.
    pub fn accept(listener: &Listener) -> Option<Line> {
        listener.accept().ok().map(Line)
    }

    /// Sends a message. Does not wait.
    ///
    /// # Errors
    /// The other end is gone, or far behind.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.send(&serde_json::to_vec(message)?, descriptors)
    }

    /// The next message of the other end.
    ///
    /// # Errors
    /// The message is malformed.
    pub fn hear<T: DeserializeOwned>(&self) -> io::Result<Heard<T>> {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        loop {
            return match self.0.receive(&mut buffer) {
                Ok(packet) if packet.bytes == 0 => Ok(Heard::Gone),
                Ok(packet) => {
                    let message = serde_json::from_slice(&buffer[..packet.bytes])?;
                    Ok(Heard::Message(message, packet.passed()?))
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(Heard::Nothing),
                    // The peer left messages unread. The kernel reports that once, before the peer's own
                    // messages.
                    io::ErrorKind::ConnectionReset => continue,
                    _ => Err(error),
                },
            };
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// The time is over, the other end is gone, or its message is malformed.
    pub fn expect<T: DeserializeOwned>(&self, time: Duration) -> io::Result<(T, Vec<Foreign>)> {
        wait_readable(&self.0, Some(time))?;
        match self.hear()? {
            Heard::Message(message, descriptors) => Ok((message, descriptors)),
            Heard::Gone => Err(io::ErrorKind::UnexpectedEof.into()),
            Heard::Nothing => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A child that takes commands and answers, a line each. It is another process of this program, perhaps of another user or in a
/// container, which [`commands`] ends with this one. Dropping it ends it.
#[derive(Debug)]
pub struct Told {
    name: String,
    child: Child,
    say: Option<ChildStdin>,
    lines: Receiver<String>,
    patience: Duration,
}

impl Told {
    /// Starts a command. `name` is for messages; `patience` is how long an answer may take.
    ///
    /// # Errors
    /// As from the kernel.
    pub fn start(name: String, command: &mut Command, patience: Duration) -> io::Result<Told> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (say, hear) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(hear).lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
        });
        Ok(Told { name, child, say, lines, patience })
    }

    /// Its process number.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    ///
    /// # Errors
    /// It has ended, or takes too long.
    pub fn line(&self) -> Result<String, String> {
        let line = self.lines.recv_timeout(self.patience);
        line.map_err(|error| format!("the {}: {error}", self.name))
    }

    /// Takes the next line, which has to be `expected`.
    ///
    /// # Errors
    /// As [`Told::line`], or it is another.
    pub fn expect(&self, expected: &str) -> Result<(), String> {
        let line = self.line()?;
        if line == expected {
            return Ok(());
        }
        Err(format!("the {} says {line:?}: must be {expected:?}", self.name))
    }

    /// Gives it a command.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, what: &str) -> Result<(), String> {
        let say = self.say.as_mut().expect("it is there until this is dropped");
        writeln!(say, "{what}").map_err(|error| format!("the {}: {error}", self.name))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.say = None;
        let _ = self.child.wait();
    }
}

/// The commands that a [`Told`] child is given. This process ends with them.
pub fn commands() -> Receiver<String> {
    let (send, commands) = mpsc::channel();
    thread::spawn(move || {
        for command in io::stdin().lock().lines().map_while(Result::ok) {
            if command == DIE {
                std::process::exit(1);
            }
            let _ = send.send(command);
        }
        std::process::exit(0);
    });
    commands
}

/// Tells a child to end without a word to anybody.
pub const DIE: &str = "die";

/// Prints a line for the process that has started this one.
pub fn say(what: &str) {
    // If nobody listens, standard input has ended too.
    let _ = writeln!(io::stdout(), "{what}");
}
