//! The start of a port: the process inside, and what it passes out.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use os::interface::Interface;
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

/// What the process inside has made.
#[derive(Debug)]
pub struct Made {
    /// The device of the interface.
    pub tap: Tap,
    /// The interface.
    pub interface: Interface,
    /// The list of groups that the interfaces are in, of one at an adapter.
    pub groups: Option<File>,
    /// The hosts file that the program reads, if there is one.
    pub hosts: Option<File>,
    /// The lists of the program's TCP sockets, if there are any.
    pub sockets: Vec<File>,
}

/// The process inside, which waits for [`Waiting::go`]; if this is dropped, it ends.
#[derive(Debug)]
pub struct Waiting {
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
pub fn start(
    executable: &Path,
    setup: &Setup,
    held: &HeldSignals,
) -> Result<(Made, Waiting), StartError> {
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
    match receive(&packets, &setup.interface) {
        Ok(Some(made)) => Ok((made, Waiting { program, packets })),
        Ok(None) => Err(StartError::Ended(program.wait()?)),
        Err(error) => {
            program.kill();
            Err(error)
        }
    }
}

/// What the process inside has made; none if it has ended.
fn receive(packets: &Packets, interface: &str) -> Result<Option<Made>, StartError> {
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
        [READY, has_groups, has_hosts] => {
            let mut passed = packet.passed()?.into_iter();
            let mut next = || match passed.next() {
                Some(descriptor) => descriptor.trust(),
                None => Err(io::ErrorKind::InvalidData.into()),
            };
            let tap = Tap::adopt(next()?);
            let interface = Interface::of_socket(next()?, interface)?;
            let mut file = |is_there: u8| match is_there {
                0 => Ok(None),
                _ => next().map(|file| Some(File::from(file))),
            };
            let (groups, hosts) = (file(has_groups)?, file(has_hosts)?);
            let sockets = passed.map(|file| Ok(File::from(file.trust()?)));
            let sockets = sockets.collect::<io::Result<_>>()?;
            Ok(Some(Made { tap, interface, groups, hosts, sockets }))
        }
        _ => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
    }
}

impl Waiting {
    /// The number of the process inside, and then of the program.
    pub fn process(&self) -> u32 {
        self.program.process()
    }

    /// Lets the process inside go on: it becomes the program, or ends if it was to join only.
    pub fn go(self) -> Program {
        // If it is gone, its end says how.
        let _ = self.packets.send(&[GO], &[]);
        self.program
    }
}
