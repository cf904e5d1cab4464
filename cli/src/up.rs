//! `siga up`: the host, in the foreground.

use std::io::IsTerminal;
use std::path::PathBuf;

use host::Host;
use host::system::System;
use serde_json::json;
use tracing_subscriber::EnvFilter;

use crate::outcome::Outcome;
use crate::output::{Output, print, print_json};
use crate::socket::Socket;

/// Run the host of a system in the foreground
///
/// Guests attach to it, and it makes paths between them. Paths go on when it ends; guests attach again to
/// the next host. Set RUST_LOG=debug to see each request.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What exists and who may do what, for example systems/two-guests.toml. Without it this user's
    /// processes may be any guest
    system: Option<PathBuf>,
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
    let (mut host, _handle) = Host::new(system).map_err(Outcome::no)?;
    host.listen(&socket).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => ": another host is there already",
            // It says what would be right.
            std::io::ErrorKind::AlreadyExists => "",
            _ => ": is there such a directory, and may you write there?",
        };
        Outcome::No(format!("cannot listen at {}: {error}{hint}", socket.display()))
    })?;
    let listening = socket.display().to_string();
    // A pipe that nobody reads is no reason to end.
    let _ = if arguments.output.json {
        print_json(&json!({ "listening": listening }))
    } else {
        print(format!("listening at {listening}"))
    };
    host::run(host).map_err(Outcome::no)
}
