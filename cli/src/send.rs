//! `siga send`: like netcat, over a path.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path as FilePath;
use std::time::Duration;

use os::poller::wait_any;
use siga::error::{CommitError, Problem};
use siga::{ConnectError, Guest, Key, Path, PathOptions, Reason, SendError, Severed, Wait, Waiter};

use crate::outcome::Outcome;
use crate::output::Output;
use crate::peer::attach_name;
use crate::present::guest_meant;
use crate::socket::Socket;
use crate::transfer::{CHUNK_BYTES, GREETING, end, progress, written};

/// Send standard input to a guest that runs `siga receive`
///
/// Sends input as it comes. Ends with 0 once the receiver has written everything and has confirmed the end. If the receiver ends
/// earlier, ends with 1 at once and prints how many bytes were written.
///
/// For example, while `siga receive SERVER > copy.iso` waits in another terminal: siga send CLIENT SERVER < big.iso
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The name to attach under, in capital letters or small ones
    #[arg(value_parser = attach_name)]
    name: String,
    /// The guest to send to
    #[arg(value_parser = attach_name)]
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
    let peer = path.peer();
    let input = io::stdin().as_fd().try_clone_to_owned().map(File::from).map_err(unread)?;
    let mut transfer = Transfer::over(path).map_err(Outcome::no)?;
    let bar = progress(input_bytes(&input));
    let sent = transfer.send_all(&input, &bar).and_then(|()| transfer.wait_for_the_end());
    bar.finish_and_clear();
    let ended = sent.map_err(|failure| {
        let why = match failure {
            Failure::Input(error) => format!("standard input cannot be read: {error}"),
            Failure::Unsent(why) => why,
            Failure::Severed(Severed { reason: Reason::Gone, .. }) => format!("{peer} is gone"),
            Failure::Severed(Severed { reason: Reason::Peer, .. }) => {
                format!("{peer} does not want more")
            }
            Failure::Severed(severed) => severed.reason.to_string(),
        };
        transfer.undelivered(&why)
    });
    end(arguments.output, ("to", peer), transfer.written, ended)
}

fn unread(error: io::Error) -> Outcome {
    Outcome::No(format!("standard input cannot be read: {error}"))
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
    /// The only member is the path.
    paths: Waiter<Path>,
    key: Key,
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
    fn over(path: Path) -> io::Result<Transfer> {
        let mut paths = Waiter::new(Wait::Block)?;
        let key = paths.add(path)?;
        Ok(Transfer { paths, key, sent: 0, written: 0 })
    }

    fn path(&mut self) -> &mut Path {
        self.paths.get_mut(self.key).expect("the path is never removed")
    }

    /// Sends all of the input, read into memory that is lent to the receiver.
    fn send_all(&mut self, input: &File, bar: &indicatif::ProgressBar) -> Result<(), Failure> {
        loop {
            self.wait_for_input(input)?;
            let sender = self.path().sender();
            let mut claim = sender.claim(&[], CHUNK_BYTES).map_err(ended)?;
            let room = sender.claimed(&mut claim).expect("claimed just now");
            let read = fill(input, room).map_err(Failure::Input)?;
            let Some(bytes) = read else {
                // There is no news, or another reader of the input has taken it.
                let _ = sender.cancel(claim);
                continue;
            };
            if bytes == 0 {
                self.path().end_sending();
                return Ok(());
            }
            claim.truncate(bytes);
            sender.commit(claim).map_err(not_committed)?;
            self.sent += bytes as u64;
            bar.set_position(self.sent);
        }
    }

    /// Waits until there is input, and meanwhile takes the receiver's reports.
    ///
    /// # Errors
    /// The path has ended.
    fn wait_for_input(&mut self, input: &File) -> Result<(), Failure> {
        let unwaited = |error: io::Error| Failure::Unsent(format!("cannot wait: {error}"));
        loop {
            self.take_reports()?;
            if !self.paths.prepare_wait() {
                continue;
            }
            let [is_input, _] = wait_any([Some(input.as_fd()), Some(self.paths.as_fd())], None)
                .map_err(unwaited)?;
            self.paths.try_next().map_err(unwaited)?;
            if is_input {
                return Ok(());
            }
        }
    }

    fn take_reports(&mut self) -> Result<(), Severed> {
        while let Some(message) = self.path().try_receive()? {
            let reported = written(message.body);
            self.note_written(reported);
        }
        Ok(())
    }

    /// Waits until the receiver has ended the path in good order, which it does behind the report of the last byte.
    fn wait_for_the_end(&mut self) -> Result<(), Failure> {
        loop {
            let reported = self.path().receive().map(|message| written(message.body));
            match reported {
                Ok(reported) => self.note_written(reported),
                Err(Severed { reason: Reason::Peer, .. }) if self.written == self.sent => {
                    return Ok(());
                }
                Err(severed) => return Err(severed.into()),
            }
        }
    }

    /// Notes what the receiver reports: never less than before, nor more than was sent.
    fn note_written(&mut self, reported: Option<u64>) {
        let possible = self.written..=self.sent;
        self.written = reported.filter(|bytes| possible.contains(bytes)).unwrap_or(self.written);
    }

    fn undelivered(&mut self, why: &str) -> Outcome {
        // The last report may still be there.
        let _ = self.take_reports();
        let Transfer { written, sent, .. } = self;
        let end = if written == sent { ", and the end was not confirmed" } else { "" };
        Outcome::No(format!("{why}; {written} of {sent} bytes sent were delivered{end}"))
    }
}

/// Reads what there is, and no more than the room has. 0 is the end of the input; none if there is nothing yet.
fn fill(mut input: &File, room: &mut [u8]) -> io::Result<Option<usize>> {
    let mut filled = 0;
    while filled < room.len() {
        match input.read(&mut room[filled..]) {
            // The end of the file is there the next time too, and a terminal's is not: there it ends this message.
            Ok(0) => return Ok(Some(filled)),
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
        // Longer messages cost less for each byte, but none waits for the next byte.
        if !wait_any([Some(input.as_fd())], Some(Duration::ZERO))?[0] {
            break;
        }
    }
    Ok(Some(filled).filter(|bytes| *bytes > 0))
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

/// The size of the input, if it is a file.
fn input_bytes(input: &File) -> Option<u64> {
    let facts = input.metadata().ok()?;
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
