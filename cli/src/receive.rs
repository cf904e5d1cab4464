//! `siga receive`: the other end of `siga send`.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path as FilePath, PathBuf};

use siga::connect::Kind;
use siga::{ConnectError, Guest, Path, PathOptions, Reason, Severed};

use crate::outcome::Outcome;
use crate::output::{Output, say};
use crate::peer::attach_name;
use crate::socket::Socket;
use crate::transfer::{GREETING, end, progress};

/// Wait for one `siga send` and write what it sends to standard output, or to a file
///
/// Ends with 0 once everything has arrived. If the sender ends earlier, ends with 1 and prints how many bytes have arrived.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The name to attach under, in capital letters or small ones
    #[arg(value_parser = attach_name)]
    name: String,
    /// Write to this file instead of standard output. Its contents are replaced once a sender is there. --json needs a file
    #[arg(long = "output", value_name = "FILE")]
    output_file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

fn open(name: &FilePath) -> Result<File, Outcome> {
    let file = File::options().write(true).create(true).truncate(false).open(name);
    file.map_err(|error| unwritten(name, &error))
}

fn unwritten(name: &FilePath, error: &io::Error) -> Outcome {
    Outcome::No(format!("{} cannot be written: {error}", name.display()))
}

/// Receives to standard output or to a file.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    if arguments.output.json && arguments.output_file.is_none() {
        let why = "--json prints to standard output, where the data goes";
        return Err(Outcome::Usage(format!("{why}: name a file for the data with --output FILE")));
    }
    let socket = arguments.socket.path()?;
    let guest = Guest::attach(socket, &arguments.name).map_err(Outcome::no)?;
    // Opened before anything is received, and emptied once a sender is there.
    let output = arguments.output_file.as_deref().map(open).transpose()?;
    let mut path = accept(&guest)?;
    let (target, mut file): (String, Box<dyn Write>) = match (output, &arguments.output_file) {
        (Some(file), Some(name)) => {
            if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                file.set_len(0).map_err(|error| unwritten(name, &error))?;
            }
            (name.display().to_string(), Box::new(file))
        }
        _ => ("standard output".to_owned(), Box::new(io::stdout().lock())),
    };
    let bar = progress(None);
    let mut written = 0;
    let ended = receive_all(&mut path, &mut file, &bar, &mut written);
    bar.finish_and_clear();
    let from = path.peer();
    let ended = match ended {
        Ended::Severed(Severed { reason: Reason::Peer, .. }) => {
            // The sender waits for this; if it is gone by now, it has all the same sent everything.
            let _ = path.send(&written.to_le_bytes());
            path.end_sending();
            Ok(())
        }
        Ended::Severed(severed) => {
            let why = match severed.reason {
                Reason::Gone => format!("{from} is gone"),
                reason => reason.to_string(),
            };
            Err(Outcome::No(format!("{why} before the end; {written} bytes were delivered")))
        }
        Ended::Output(error) => Err(Outcome::No(format!(
            "{target} cannot be written: {error}; {written} bytes were delivered"
        ))),
    };
    end(arguments.output, ("from", from), written, ended)
}

/// Accepts the first connection from `siga send`, and refuses all others.
fn accept(guest: &Guest) -> Result<Path, Outcome> {
    loop {
        let pending = guest.wait_for_pending(|_| true).map_err(Outcome::no)?;
        let from = pending.from;
        if pending.kind != Kind::MESSAGES || pending.data != GREETING {
            guest.refuse(pending, [0; 16]);
            say(format_args!("siga: a connection from {from} is not from siga send: refused"));
            continue;
        }
        match guest.accept_pending(pending, &PathOptions::default()) {
            Ok(path) => return Ok(path),
            Err(error @ (ConnectError::HostGone | ConnectError::Resources(_))) => {
                return Err(Outcome::no(error));
            }
            // Whoever asks for what cannot be made does not keep others from sending.
            Err(error) => say(format_args!("siga: a connection from {from} failed: {error}")),
        }
    }
}

enum Ended {
    Severed(Severed),
    Output(io::Error),
}

fn receive_all(
    path: &mut Path,
    output: &mut dyn Write,
    bar: &indicatif::ProgressBar,
    written: &mut u64,
) -> Ended {
    loop {
        let bytes = match path.receive() {
            Ok(message) => {
                // Whole chunks are written at once: no buffer of our own in between.
                if let Err(error) = output.write_all(message.body).and_then(|()| output.flush()) {
                    return Ended::Output(error);
                }
                message.body.len() as u64
            }
            Err(severed) => return Ended::Severed(severed),
        };
        *written += bytes;
        bar.set_position(*written);
        // The sender may be too busy to listen: then it hears the next one.
        let _ = path.try_send(&written.to_le_bytes());
    }
}
