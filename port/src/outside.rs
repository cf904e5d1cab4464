//! The start of a port: the process inside, and what it passes out.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use os::packets::Packets;
use os::poller::wait_readable;
use os::program::{End, Program};
use os::signals::HeldSignals;
use os::tap::Tap;

use crate::inside::{COMMAND, FAILED, GO, READY, SENTENCE_BYTES_MAX};
use crate::setup::{Place, Setup};

/// The executable of this process, whatever became of its file.
pub const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// Why there is no port.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A sentence says why, and what would be right.
    #[error("{0}")]
    Refused(String),
    /// The process inside ended while it set things up, for example by Ctrl-C.
    #[error("the process that sets up the interface was ended ({0:?})")]
    Ended(End),
    /// The process inside cannot be started, or is not understood.
    #[error("the process that sets up the interface: {0}")]
    Process(#[from] io::Error),
}

/// A network with an interface. The program waits for [`Ready::go`]; if this is dropped, it ends.
#[derive(Debug)]
pub struct Ready {
    /// The device of the interface.
    pub tap: Tap,
    /// The hosts file that the program reads, if there is one.
    pub hosts: Option<File>,
    program: Program,
    packets: Packets,
}

/// Starts the process inside, which is `executable` with the command [`COMMAND`], and waits until the interface is there.
/// A program gets standard input, output and error, and the signal mask from before `held`.
///
/// The program is killed when the calling thread ends.
///
/// # Errors
/// [`StartError`]; nothing is left over then.
pub fn start(executable: &Path, setup: &Setup, held: &HeldSignals) -> Result<Ready, StartError> {
    let (ours, theirs) = Packets::ends()?;
    let mut command = Command::new(executable);
    command.arg(COMMAND).args(setup.words(theirs.as_fd()));
    if matches!(setup.place, Place::Existing(_)) {
        // It ends before the port does, and has nothing to read.
        command.stdin(Stdio::null());
    }
    let mut program = Program::from(held.spawn_with(&mut command, theirs.as_fd())?);
    drop(theirs);
    let packets = Packets::adopt(ours)?;
    match receive(&packets) {
        Ok(Some((tap, hosts))) => Ok(Ready { tap, hosts, program, packets }),
        Ok(None) => Err(StartError::Ended(program.wait()?)),
        Err(error) => {
            program.kill();
            Err(error)
        }
    }
}

/// What the process inside has made; none if it has ended.
fn receive(packets: &Packets) -> Result<Option<(Tap, Option<File>)>, StartError> {
    let mut text = [0; 1 + SENTENCE_BYTES_MAX];
    let packet = loop {
        wait_readable(packets, None)?;
        match packets.receive(&mut text) {
            // A signal that is held back ends the wait early.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            packet => break packet?,
        }
    };
    match text[..packet.bytes] {
        [] => Ok(None),
        [FAILED, ref why @ ..] => {
            Err(StartError::Refused(String::from_utf8_lossy(why).into_owned()))
        }
        [READY] => {
            let mut passed = packet.passed()?.into_iter();
            let tap = passed.next().ok_or(io::Error::from(io::ErrorKind::InvalidData))?.trust()?;
            let hosts = passed.next().map(|file| file.trust()).transpose()?;
            Ok(Some((Tap::adopt(tap), hosts.map(File::from))))
        }
        _ => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
    }
}

impl Ready {
    /// Lets the process inside go on: it becomes the program, or ends if it was to join only.
    ///
    /// # Errors
    /// It has ended.
    pub fn go(self) -> io::Result<Running> {
        let Ready { tap, hosts, program, packets } = self;
        // If it is gone the program's end says how.
        let _ = packets.send(&[GO], &[]);
        Ok(Running { tap, hosts, program })
    }
}

/// A program and its interface.
#[derive(Debug)]
pub struct Running {
    /// The device of the interface.
    pub tap: Tap,
    /// The hosts file that the program reads, if there is one.
    pub hosts: Option<File>,
    /// The program; of a port into an existing namespace the process that made the interface.
    pub program: Program,
}

/// Puts `text` in the place of what is in the hosts file. A program that reads it meanwhile may see a part of each.
///
/// # Errors
/// There is no memory left.
pub fn rewrite(mut hosts: &File, text: &str) -> io::Result<()> {
    use std::io::Seek;
    hosts.rewind()?;
    hosts.write_all(text.as_bytes())?;
    hosts.set_len(text.len() as u64)
}
