//! `siga tn3270`: terminals of a mainframe, over TCP.

mod desk;
mod serve;

use clap::{Args, Subcommand};

use crate::outcome::Outcome;

/// Serve terminals of a mainframe: sessions of TN3270E with a small transaction
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
