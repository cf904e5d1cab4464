//! `siga osa`: adapters, by which guests share the port of a network interface.

mod serve;
pub mod up;

use clap::{Args, Subcommand};

use crate::outcome::Outcome;

/// Serve an adapter: a network interface that guests share
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
