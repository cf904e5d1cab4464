//! The guard of a port: a process that outlives it, and ends what would be left in a network without a port.
//!
//! The program is killed with its port. The processes that the program has started are not: the kernel forgets such an agreement with each
//! new process. So a second process of ours waits for the end of the port, which closes its standard input, and kills whoever is in
//! the program's network then. After an end in good order no process of the program is left, and the guard is dismissed: whoever is in
//! the network then was put there by somebody else.
//!
//! The guard holds the network while it waits, as its standard output. Otherwise the number by which it finds the processes would be another
//! network's as soon as the port's is gone.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, ExitCode, Stdio};

use os::signals::HeldSignals;

use crate::adopted::{kill_all_in, network_of};

/// The hidden command of the executable that calls [`run`].
pub const COMMAND: &str = "port-guard";

/// Sent to a guard that is to end and to kill nobody.
const DISMISSED: u8 = 1;

/// A guard, which acts when this is dropped, or this process ends, unless it is dismissed.
#[derive(Debug)]
pub struct Guard {
    process: u32,
    post: Option<ChildStdin>,
}

impl Guard {
    /// Starts `executable` as the guard of the network of `process`, which is not our own. None if the process has ended.
    ///
    /// # Errors
    /// No process or no memory left.
    pub fn start(executable: &Path, process: u32, held: &HeldSignals) -> io::Result<Option<Guard>> {
        let network = network_of(&process.to_string());
        let Some(network) = network.filter(|network| network_of("self").as_ref() != Some(network))
        else {
            return Ok(None);
        };
        let held_network = match File::open(format!("/proc/{process}/ns/net")) {
            Ok(network) => network,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut command = Command::new(executable);
        command.arg(COMMAND).arg(network).current_dir("/").env_clear();
        command.stdin(Stdio::piped()).stdout(held_network).stderr(Stdio::null());
        let mut child = held.spawn(&mut command)?;
        Ok(Some(Guard { process: child.id(), post: child.stdin.take() }))
    }

    /// Ends the guard, which kills nobody then.
    pub fn dismiss(mut self) {
        if let Some(post) = &mut self.post {
            // A guard that has ended already kills nobody either.
            let _ = post.write_all(&[DISMISSED]);
        }
    }

    /// Its process number.
    pub fn process(&self) -> u32 {
        self.process
    }
}

/// Waits for the end of standard input, and kills all that are in the network named, unless a byte comes before.
pub fn run(words: &[OsString]) -> ExitCode {
    let network = words.first().and_then(|network| network.to_str());
    let Some(network) = network.filter(|network| network.starts_with("net:[")) else {
        eprintln!("siga: {COMMAND} is for siga itself: see siga run --help");
        return ExitCode::from(2);
    };
    // What a terminal or a shell sends to the group of the port is not for this one.
    let _ = rustix::process::setsid();
    if io::stdin().read(&mut [0]).is_ok_and(|count| count > 0) {
        return ExitCode::SUCCESS;
    }
    // Those that are killed may have started others meanwhile.
    while kill_all_in(network).is_ok_and(|found| found > 0) {
        std::thread::yield_now();
    }
    ExitCode::SUCCESS
}
