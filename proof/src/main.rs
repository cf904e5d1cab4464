//! Programs that are there to find faults. What they prove and how stands in `docs/proof.md`.

mod conformance;
mod crew;
mod footprint;
mod sleeps;
mod torture;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Programs that are there to find faults in siga.
///
/// The verdict goes to standard output, talk to standard error. The exit code is 0 if all is well, 1 if it
/// is not, 2 if the command was used wrongly.
#[derive(Debug, Parser)]
#[command(name = "siga-proof", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Conformance(conformance::Arguments),
    #[command(hide = true)]
    ConformancePart(conformance::PartArguments),
    Sleeps(sleeps::Arguments),
    Torture(torture::Arguments),
    #[command(hide = true)]
    TortureHost(torture::birth::Birth),
    #[command(hide = true)]
    TortureGuest(torture::guest::Arguments),
    #[command(hide = true)]
    TortureHoarder(torture::birth::Birth),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::ConformancePart(arguments) => conformance::play(&arguments),
        Command::Sleeps(arguments) => sleeps::run(&arguments),
        Command::Torture(arguments) => torture::run(&arguments),
        Command::TortureHost(birth) => torture::host::run(&birth),
        Command::TortureGuest(arguments) => torture::guest::run(&arguments),
        Command::TortureHoarder(birth) => torture::hoarder::run(&birth),
    }
}
