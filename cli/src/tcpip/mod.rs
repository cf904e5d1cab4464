//! `siga tcpip`: stacks that serve the sockets of other guests.

mod devices;
mod serve;

use clap::{Args, Subcommand};

use crate::outcome::Outcome;

pub use self::serve::{Ended, HostWatch, machines};

/// Serve the sockets of other guests, as a TCPIP machine
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Serve(serve::Serve),
}

pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    match &arguments.verb {
        Verb::Serve(arguments) => serve::serve(arguments),
    }
}
