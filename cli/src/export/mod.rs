//! `siga export`: the host's counters as metrics of Prometheus.

mod adapters;
mod counted;
mod disks;
#[cfg(test)]
#[path = "../../tests/common/exposition.rs"]
mod exposition;
mod lines;
mod metrics;
mod page;
mod serve;
mod source;
mod stacks;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use os::poller::wait_any;
use os::signals::HeldSignals;
use serde_json::json;

pub use self::counted::{FAILED, GIVEN_BACK, OPENED};
use self::source::Source;
use crate::ending::{end_in_time, take_all};
use crate::outcome::Outcome;
use crate::output::{Output, print, print_json, say};
use crate::query::Subject;
use crate::socket::Socket;
use crate::top::seconds;

/// Export what `siga query` shows as metrics of Prometheus
///
/// Prints the metrics once, or serves them over HTTP, or writes them into a file. Counters are read from boards while guests run: a
/// scrape costs them nothing. While there is no host, siga_up is 0. docs/metrics.md describes each metric, and alerts. With --listen or
/// --seconds runs until Ctrl-C; the exit code is 0 then.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Export these alone, one or several [default: all there are]
    #[arg(value_name = "WHAT")]
    subjects: Vec<Subject>,
    /// Serve the metrics over HTTP, at /metrics. Without an address, at 127.0.0.1. Anybody who reaches the port can read
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address, conflicts_with = "file")]
    listen: Option<SocketAddr>,
    /// Write the metrics into this file, whole or not at all, for node_exporter's textfile collector: its name must end in .prom there
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write the file anew each so many seconds, until the command is stopped
    #[arg(long, value_name = "S", requires = "file", value_parser = seconds)]
    seconds: Option<f64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let address = port.ok().or_else(|| text.parse().ok());
    address.ok_or_else(|| format!("{text}: must be a port, or like 127.0.0.1:9750 or [::1]:9750"))
}

/// How long a file that is being written has after a signal that asks to end.
const END_TIME: Duration = Duration::from_secs(1);

/// Exports metrics.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let Arguments { subjects, listen, file, seconds, output, socket } = arguments;
    let mut source = Source::new(socket.clone(), subjects.clone());
    // Once is soon over, and a signal ends that as any command. A file is left whole, if it can be written at all.
    let end_time = if listen.is_some() { Duration::ZERO } else { END_TIME };
    let hold =
        || HeldSignals::hold().and_then(|held| end_in_time(&held, end_time, 0).map(|()| held));
    let lasts = listen.is_some() || seconds.is_some();
    let held = lasts.then(hold).transpose().map_err(Outcome::no)?;
    if let Some(address) = listen {
        let (listener, address) = serve::listen(*address)?;
        match output.json {
            true => print_json(&json!({ "listening": address }))?,
            false => print(format_args!("metrics at http://{address}/metrics"))?,
        }
        return serve::serve(listener, source).map(|never| match never {});
    }
    let Some(file) = file else {
        if output.json {
            let why =
                "--json prints to standard output, where the metrics go: add --listen or --file";
            return Err(Outcome::Usage(why.to_owned()));
        }
        let page = source.page();
        print(String::from_utf8_lossy(&page).trim_end())?;
        return end(&source);
    };
    let (mut has_written, mut unwritten) = (false, None);
    loop {
        let page = source.page();
        match replace(file, &page) {
            Ok(()) => {
                has_written = true;
                if unwritten.take().is_some() {
                    say(format_args!("siga: {} is written again", file.display()));
                }
                if output.json {
                    let bytes = page.len();
                    print_json(
                        &json!({ "file": file, "bytes": bytes, "up": source.why().is_none() }),
                    )?;
                }
            }
            Err(error) => {
                let why = format!("{} cannot be written: {error}", file.display());
                // A disk that is full now may have room the next time.
                if held.is_none() || !has_written {
                    return Err(Outcome::No(why));
                }
                if unwritten.as_ref() != Some(&why) {
                    say(format_args!("siga: {why}; tried again"));
                    unwritten = Some(why);
                }
            }
        }
        let (Some(seconds), Some(held)) = (seconds, &held) else { return end(&source) };
        source.say_change();
        let time = Duration::from_secs_f64(*seconds);
        wait_any([Some(held.as_fd())], Some(time)).map_err(Outcome::no)?;
        if take_all(held)? {
            return Ok(());
        }
    }
}

/// The end of a command that asks once: 1 if there was no host, with the reason.
fn end(source: &Source) -> Result<(), Outcome> {
    source.why().map_or(Ok(()), |why| Err(Outcome::no(why)))
}

/// Replaces a file in one step, so that its readers see the old text or the new.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    // A device, a pipe or a link would be gone, and a file be in its place.
    if fs::symlink_metadata(file).is_ok_and(|about| !about.is_file()) {
        let right = "must be a regular file, or a name that nothing has";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, right));
    }
    // node_exporter reads what ends in .prom.
    let new = format!(".{}.{}", name.display(), std::process::id());
    let new = file.with_file_name(new);
    // What a process of this number has left, or somebody else has put there.
    let _ = fs::remove_file(&new);
    let written =
        OpenOptions::new().write(true).create_new(true).open(&new).and_then(|mut target| {
            target.write_all(bytes)?;
            fs::rename(&new, file)
        });
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}
