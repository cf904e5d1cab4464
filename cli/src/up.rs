//! `siga up`: the host, in the foreground, and the control unit of its volumes.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use host::system::System;
use host::{Handle, Host};
use serde_json::json;
use siga::disk::SystemVolumes;
use tracing_subscriber::EnvFilter;

use crate::outcome::Outcome;
use crate::output::{Output, print, print_json};
use crate::served::{Checks, Served, say_not_shown};
use crate::socket::Socket;
use crate::volume::serve_system;

/// Run the host of a system in the foreground
///
/// Guests attach to it, and it makes paths between them. Volumes that the system file names are served too, by a guest of
/// their own on a thread of the host. Paths between guests go on when the host ends; guests attach again to the next host. Set
/// RUST_LOG=debug to see each request.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What exists and who may do what, for example systems/two-guests.toml. Without it this user's
    /// processes may be any guest
    system: Option<PathBuf>,
    /// Leave the volumes of the system file to siga volume serve --system, which outlives the host
    #[arg(long)]
    without_volumes: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

/// Runs the host until it is killed.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal)
        .with_target(false)
        .init();
    // Each guest takes two descriptors, each waiting connection two more.
    os::memory::allow_descriptors(1 << 20);
    let system = match &arguments.system {
        Some(file) => System::read(file)?,
        None => System::open(),
    };
    let socket = match &system.socket {
        Some(socket) => socket.clone(),
        None => arguments.socket.path()?,
    };
    // Before anybody can attach: a file that is wrong is no system.
    let mut checks = Checks::default();
    let volumes = match arguments.without_volumes {
        true => None,
        false => SystemVolumes::open(&system, |file, checking| checks.see(file, &checking))?,
    };
    let (mut host, handle) = Host::new(system).map_err(Outcome::no)?;
    host.listen(&socket).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => ": another host is there already",
            // It says what would be right.
            std::io::ErrorKind::AlreadyExists => "",
            _ => ": is there such a directory, and may you write there?",
        };
        Outcome::No(format!("cannot listen at {}: {error}{hint}", socket.display()))
    })?;
    let Some(volumes) = volumes else {
        announce(&socket, None, arguments.output);
        return host::run(host).map_err(Outcome::no);
    };
    let (failed, failure) = mpsc::channel();
    let output = arguments.output;
    let control_unit = thread::Builder::new().name("control unit".into());
    control_unit
        .spawn(move || {
            if let Err(outcome) = serve(&socket, volumes, output) {
                // The host ends before anybody relies on it, or has ended.
                let _ = failed.send(outcome);
                Handle::stop(&handle);
            }
        })
        .map_err(Outcome::no)?;
    host::run(host).map_err(Outcome::no)?;
    failure.try_recv().map_or(Ok(()), Err)
}

/// Serves volumes for ever. Guests hear of the host when the volumes are there.
///
/// # Errors
/// They cannot be served at all. What ends them later is said, and ends nothing else.
fn serve(socket: &Path, volumes: SystemVolumes, output: Output) -> Result<(), Outcome> {
    let (mut server, served) = serve_system(socket, volumes)?;
    announce(socket, Some(&served), output);
    // The host answers on another thread.
    server.serve_within(Duration::from_millis(100)).map_err(Outcome::no)?;
    say_not_shown(&server);
    let Err(error) = server.serve();
    eprintln!("siga: the volumes are served no longer: {error}");
    Ok(())
}

fn announce(socket: &Path, served: Option<&Served>, output: Output) {
    let listening = socket.display().to_string();
    // A pipe that nobody reads is no reason to end.
    let _ = match (output.json, served) {
        (true, None) => print_json(&json!({ "listening": listening })),
        (true, Some(served)) => {
            print_json(&json!({ "listening": listening, "control_unit": served }))
        }
        (false, _) => print(format!("listening at {listening}")),
    };
    if let Some(served) = served.filter(|_| !output.json) {
        served.say();
    }
}
