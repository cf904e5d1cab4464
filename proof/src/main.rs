//! Programs that search for faults. `docs/proof.md` describes what they prove, and how.

mod conformance;
mod containers;
mod crew;
mod footprint;
mod quotas;
mod shards;
mod sleeps;
mod stalls;
mod tenant;
mod torture;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Programs that search for faults in siga.
///
/// The verdict goes to standard output, progress to standard error. The exit code is 0 if all is well, 1 if
/// not, 2 for wrong use.
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
    Containers(containers::Arguments),
    #[command(hide = true)]
    ContainerPart(containers::PartArguments),
    Quotas(quotas::Arguments),
    #[command(hide = true)]
    QuotasPart(quotas::PartArguments),
    Shards(shards::Arguments),
    Sleeps(sleeps::Arguments),
    Stalls(stalls::Arguments),
    Tenant(tenant::Arguments),
    #[command(hide = true)]
    TenantPart(tenant::PartArguments),
    Torture(torture::Arguments),
    #[command(hide = true)]
    TortureHost(torture::birth::Birth),
    #[command(hide = true)]
    TortureGuest(torture::guest::Arguments),
    #[command(hide = true)]
    TortureHoarder(torture::birth::Birth),
    #[command(hide = true)]
    TortureLanHost(torture::birth::Birth),
    #[command(hide = true)]
    TortureMember(torture::lan::Arguments),
    #[command(hide = true)]
    TortureConnections(torture::lan::Arguments),
    #[command(hide = true)]
    TortureProgram(torture::lan::Arguments),
    #[command(hide = true)]
    TortureJoined(torture::lan::Arguments),
    #[command(hide = true)]
    TortureMachine(torture::lan::Arguments),
    #[command(hide = true)]
    TortureMachineParty(torture::lan::Arguments),
    #[command(hide = true)]
    TortureAdapter(torture::adapter::Arguments),
    #[command(hide = true)]
    TortureAdapterGuest(torture::adapter::Arguments),
    #[command(hide = true)]
    TortureAdapterPeer(torture::adapter::Arguments),
    #[command(hide = true)]
    TortureDiskServer(torture::birth::Birth),
    #[command(hide = true)]
    TortureDiskWriter(torture::disk::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::ConformancePart(arguments) => conformance::play(&arguments),
        Command::Containers(arguments) => containers::run(&arguments),
        Command::ContainerPart(arguments) => containers::play(&arguments),
        Command::Quotas(arguments) => quotas::run(&arguments),
        Command::QuotasPart(arguments) => quotas::play(&arguments),
        Command::Shards(arguments) => shards::run_command(&arguments),
        Command::Sleeps(arguments) => sleeps::run(&arguments),
        Command::Stalls(arguments) => stalls::run(&arguments),
        Command::Tenant(arguments) => tenant::run(&arguments),
        Command::TenantPart(arguments) => tenant::play(&arguments),
        Command::Torture(arguments) => torture::run(&arguments),
        Command::TortureHost(birth) => torture::host::run(&birth),
        Command::TortureGuest(arguments) => torture::guest::run(&arguments),
        Command::TortureHoarder(birth) => torture::hoarder::run(&birth),
        Command::TortureLanHost(birth) => torture::lan::host::run(&birth),
        Command::TortureMember(arguments) => torture::lan::member::run(&arguments),
        Command::TortureConnections(arguments) => torture::lan::connections::run(&arguments),
        Command::TortureProgram(arguments) => torture::lan::program::run(&arguments, false),
        Command::TortureJoined(arguments) => torture::lan::program::run(&arguments, true),
        Command::TortureMachine(arguments) => torture::machine::server::run(&arguments),
        Command::TortureMachineParty(arguments) => torture::machine::party::run(&arguments),
        Command::TortureAdapter(arguments) => torture::adapter::server::run(&arguments),
        Command::TortureAdapterGuest(arguments) => torture::adapter::guest::run(&arguments),
        Command::TortureAdapterPeer(arguments) => torture::adapter::peer::run(&arguments),
        Command::TortureDiskServer(birth) => torture::disk::server::run(&birth),
        Command::TortureDiskWriter(arguments) => torture::disk::writer::run(&arguments),
    }
}
