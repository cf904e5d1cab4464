//! `siga send`: like netcat, over a path.

use std::io::{self, Read};
use std::path::Path as FilePath;

use siga::error::{CommitError, Problem};
use siga::{ConnectError, Guest, Path, PathOptions, Reason, SendError, Severed};

use crate::outcome::Outcome;
use crate::output::Output;
use crate::present::guest_meant;
use crate::socket::Socket;
use crate::transfer::{CHUNK_BYTES, GREETING, end, progress, written};

/// Send standard input to a guest that runs `siga receive`
///
/// Ends with 0 once the receiver has written everything. If the receiver ends earlier, ends with 1 and prints how many bytes were
/// written.
///
/// For example, while `siga receive SERVER > copy.iso` waits in another terminal: siga send CLIENT SERVER < big.iso
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The name to attach under
    name: String,
    /// The guest to send to
    target: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

/// Sends standard input.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let socket = arguments.socket.path()?;
    let guest = Guest::attach(&socket, &arguments.name).map_err(Outcome::no)?;
    let options = PathOptions { data: GREETING, ..PathOptions::default() };
    let path = guest
        .connect(&arguments.target, &options)
        .map_err(|error| unconnected(arguments, &socket, &error))?;
    let mut transfer = Transfer { path, sent: 0, written: 0 };
    let bar = progress(input_bytes());
    let sent = transfer.send_all(&bar).and_then(|()| transfer.wait_for_the_last());
    bar.finish_and_clear();
    let ended = match sent {
        Ok(()) => Ok(()),
        Err(Failure::Input(error)) => {
            Err(transfer.undelivered(&format!("standard input cannot be read: {error}")))
        }
        Err(Failure::Unsent(why)) => Err(transfer.undelivered(&why)),
        Err(Failure::Severed(severed)) => Err(transfer.undelivered(&match severed.reason {
            Reason::Gone => format!("{} is gone", arguments.target),
            Reason::Peer => format!("{} does not want more", arguments.target),
            reason => reason.to_string(),
        })),
    };
    end(arguments.output, ("to", transfer.path.peer()), transfer.written, ended)
}

/// Explains why there is no path, and what would be right.
fn unconnected(arguments: &Arguments, socket: &FilePath, error: &ConnectError) -> Outcome {
    let Arguments { name, target: to, .. } = arguments;
    let refused = match error {
        ConnectError::Refused { problem, .. } => Some(*problem),
        _ => None,
    };
    let right = match (refused, error) {
        (Some(Problem::NotAuthorised), _) => {
            let meant = guest_meant(socket, to);
            format!(
                "; the system file must say so: connect = [\"{to}\"] of the guest {name}{meant}"
            )
        }
        (Some(Problem::NotAttached), _) => match guest_meant(socket, to) {
            meant if meant.is_empty() => format!("; is it running: siga receive {to}?"),
            meant => meant,
        },
        (Some(Problem::Refused), _) | (_, ConnectError::TimedOut) => {
            format!("; is it running: siga receive {to}?")
        }
        // Nothing about the receiver is wrong.
        _ => String::new(),
    };
    Outcome::No(format!("no path to {to}: {error}{right}"))
}

struct Transfer {
    path: Path,
    sent: u64,
    /// Bytes that the receiver has written, by its own report.
    written: u64,
}

enum Failure {
    Input(io::Error),
    /// This side cannot send, though the path is there.
    Unsent(String),
    Severed(Severed),
}

impl From<Severed> for Failure {
    fn from(severed: Severed) -> Failure {
        Failure::Severed(severed)
    }
}

impl Transfer {
    /// Sends all of standard input, read into memory that is lent to the receiver.
    fn send_all(&mut self, bar: &indicatif::ProgressBar) -> Result<(), Failure> {
        let mut input = io::stdin().lock();
        loop {
            let sender = self.path.sender();
            let mut claim = sender.claim(&[], CHUNK_BYTES).map_err(ended)?;
            let room = sender.claimed(&mut claim).expect("claimed just now");
            // Short only at the end of the file.
            let bytes = fill(&mut input, room).map_err(Failure::Input)?;
            if bytes > 0 {
                claim.truncate(bytes);
                sender.commit(claim).map_err(not_committed)?;
            }
            self.sent += bytes as u64;
            bar.set_position(self.sent);
            while let Some(message) = self.path.try_receive()? {
                let reported = written(message.body);
                self.note_written(reported);
            }
            if bytes < CHUNK_BYTES {
                self.path.end_sending();
                return Ok(());
            }
        }
    }

    /// Waits until the receiver has written everything.
    fn wait_for_the_last(&mut self) -> Result<(), Failure> {
        while self.written < self.sent {
            let message = self.path.receive()?;
            let reported = written(message.body);
            self.note_written(reported);
        }
        Ok(())
    }

    /// Notes what the receiver reports: never less than before, nor more than was sent.
    fn note_written(&mut self, reported: Option<u64>) {
        let possible = self.written..=self.sent;
        self.written = reported.filter(|bytes| possible.contains(bytes)).unwrap_or(self.written);
    }

    fn undelivered(&mut self, why: &str) -> Outcome {
        // The last it had to say may still be there.
        while let Ok(Some(message)) = self.path.try_receive() {
            let reported = written(message.body);
            self.note_written(reported);
        }
        Outcome::No(format!("{why}; {} of {} bytes sent were delivered", self.written, self.sent))
    }
}

/// Reads until the room is full or the input ends.
fn fill(input: &mut impl Read, room: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < room.len() {
        match input.read(&mut room[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn ended(error: SendError) -> Failure {
    match error {
        SendError::Severed(severed) => Failure::Severed(severed),
        // Something is missing here: the receiver never quiesces, and a chunk is shorter than any path's longest
        // message.
        error => Failure::Unsent(error.to_string()),
    }
}

fn not_committed(error: CommitError) -> Failure {
    match error {
        CommitError::Send(error) => ended(error),
        error => Failure::Unsent(error.to_string()),
    }
}

/// The size of standard input, if it is a file.
fn input_bytes() -> Option<u64> {
    use std::os::fd::AsFd;
    let input = io::stdin().as_fd().try_clone_to_owned().ok()?;
    let facts = std::fs::File::from(input).metadata().ok()?;
    facts.is_file().then_some(facts.len())
}

#[cfg(test)]
mod tests {
    use siga::error::Lack;

    use super::*;

    #[test]
    fn want_of_memory_is_no_fault_of_standard_input() {
        let failure = ended(SendError::Lacking(Lack::Memory));
        assert!(matches!(failure, Failure::Unsent(why) if why.starts_with("nothing was sent: ")));
    }
}
