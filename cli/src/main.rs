//! The one command of siga.

mod adapters;
mod audit;
mod bridges;
mod capture;
mod check;
mod children;
mod ending;
mod export;
mod forward;
mod gateway;
mod identify;
mod import;
mod join;
mod lab;
mod lines;
mod member;
mod misuse;
mod monitor;
mod notices;
mod notify;
mod osa;
mod outcome;
mod output;
mod peer;
mod present;
mod processors;
mod pstats;
mod query;
mod receive;
mod reported;
mod route;
mod run;
mod send;
mod served;
mod session;
mod set;
mod shell;
mod socket;
mod tcpip;
mod tn3270;
mod top;
mod transfer;
mod up;
mod volume;
mod watch;
mod written;

use clap::{CommandFactory, Parser, Subcommand};

use crate::outcome::Outcome;

/// Messages between programs, through queues in shared memory.
///
/// Results go to standard output, progress and errors to standard error. With --json each line of standard
/// output is a JSON object. The exit code is 0 if all went well, as when a signal ends a command that lasts; 1 if it did not; 2 if the command was used wrongly, also if a file to read is not there.
#[derive(Debug, Parser)]
#[command(name = "siga", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Arguments),
    Send(send::Arguments),
    Receive(receive::Arguments),
    Identify(identify::Arguments),
    Run(run::Arguments),
    Join(join::Arguments),
    Forward(forward::Arguments),
    Route(route::Arguments),
    Gateway(gateway::Arguments),
    Tcpip(tcpip::Arguments),
    Osa(osa::Arguments),
    Tn3270(tn3270::Arguments),
    Query(query::Arguments),
    Pstats(pstats::Arguments),
    Set(set::Arguments),
    Audit(audit::Arguments),
    Capture(capture::Arguments),
    Top(top::Arguments),
    Watch(watch::Arguments),
    Export(export::Arguments),
    Volume(volume::Arguments),
    Import(import::Arguments),
    Lab(lab::Arguments),
    Monitor(monitor::Arguments),
    Completions(shell::Completions),
    Man(shell::Man),
    /// Play one part of a trial: what `siga lab run` starts
    #[command(hide = true)]
    LabWorker,
    /// Wait for the end of a port, and end what it has left behind: what `siga run` starts
    #[command(hide = true, name = port::guard::COMMAND)]
    PortGuard {
        words: Vec<std::ffi::OsString>,
    },
    /// Make a network and become the program in it: what `siga run` and `siga join` start
    #[command(hide = true, name = port::inside::COMMAND)]
    PortInside {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
}

fn main() -> std::process::ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return misuse::exit(&error, &mut Arguments::command()),
    };
    let outcome = match arguments.command {
        Command::Up(arguments) => up::run(&arguments),
        Command::Send(arguments) => send::run(&arguments),
        Command::Receive(arguments) => receive::run(&arguments),
        Command::Identify(arguments) => identify::run(&arguments),
        Command::Run(arguments) => return run::run(&arguments),
        Command::Join(arguments) => join::run(&arguments),
        Command::Forward(arguments) => forward::run(&arguments),
        Command::Route(arguments) => route::run(&arguments),
        Command::Gateway(arguments) => gateway::run(&arguments),
        Command::Tcpip(arguments) => tcpip::run(&arguments),
        Command::Osa(arguments) => osa::run(&arguments),
        Command::Tn3270(arguments) => tn3270::run(&arguments),
        Command::Query(arguments) => query::run(&arguments),
        Command::Pstats(arguments) => pstats::run(&arguments),
        Command::Set(arguments) => set::run(&arguments),
        Command::Audit(arguments) => audit::run(&arguments),
        Command::Capture(arguments) => capture::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Watch(arguments) => watch::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Volume(arguments) => volume::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Monitor(arguments) => monitor::run(&arguments),
        Command::Completions(arguments) => shell::completions(&arguments, &Arguments::command()),
        Command::Man(arguments) => shell::man(&arguments, Arguments::command()),
        Command::LabWorker => ::lab::worker::run().map_err(Outcome::no),
        Command::PortGuard { words } => return port::guard::run(&words),
        Command::PortInside { words } => return port::inside::run(&words),
    };
    Outcome::exit(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_listed_as_cases_are() {
        for verb in ["ls", "list"] {
            let words = ["siga", "volume", verb, "a.ckd"];
            assert!(Arguments::try_parse_from(words).is_ok(), "{verb}");
        }
    }

    /// Calls `check` with each command, and the words that name it.
    fn each(command: &clap::Command, check: &mut impl FnMut(&clap::Command)) {
        check(command);
        command.get_subcommands().for_each(|below| each(below, check));
    }

    #[test]
    fn help_is_wrapped_once_by_clap() {
        each(&Arguments::command(), &mut |command| {
            let options = command.get_arguments().flat_map(|option| {
                [option.get_help(), option.get_long_help()].into_iter().flatten()
            });
            let own = [command.get_about(), command.get_long_about()].into_iter().flatten();
            for text in own.chain(options).map(ToString::to_string) {
                let is_wrapped = text.split("\n\n").any(|paragraph| paragraph.contains('\n'));
                assert!(!is_wrapped, "{}: {text}", command.get_name());
            }
        });
    }
}
