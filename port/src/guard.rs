//! The guard of a port: a process that outlives it, and ends what would be left in a network without a port.
//!
//! The program is killed with its port. The processes that the program has started are not: the kernel forgets such an agreement with each
//! new process. So a second process of ours waits for the end of the port, which closes its standard input, and kills whoever is in
//! the program's network then. After an end in good order that is nobody.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{ChildStdin, Command, ExitCode, Stdio};

use os::signals::HeldSignals;

use crate::adopted::{kill_all_in, network_of};

/// The hidden command of the executable that calls [`run`].
pub const COMMAND: &str = "port-guard";

/// A guard, which acts when this is dropped, or this process ends.
#[derive(Debug)]
pub struct Guard {
    process: u32,
    _post: Option<ChildStdin>,
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
        let mut command = Command::new(executable);
        command.arg(COMMAND).arg(network).current_dir("/").env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = held.spawn(&mut command)?;
        Ok(Some(Guard { process: child.id(), _post: child.stdin.take() }))
    }

    /// Its process number.
    pub fn process(&self) -> u32 {
        self.process
    }
}

/// Waits for the end of standard input, and kills all that are in the network named.
pub fn run(words: &[OsString]) -> ExitCode {
    let network = words.first().and_then(|network| network.to_str());
    let Some(network) = network.filter(|network| network.starts_with("net:[")) else {
        eprintln!("siga: {COMMAND} is for siga itself: see siga run --help");
        return ExitCode::from(2);
    };
    // What a terminal or a shell sends to the group of the port is not for this one.
    let _ = rustix::process::setsid();
    let _ = io::stdin().read(&mut [0]);
    // Those that are killed may have started others meanwhile.
    while kill_all_in(network).is_ok_and(|found| found > 0) {
        std::thread::yield_now();
    }
    ExitCode::SUCCESS
}
