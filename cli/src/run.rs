//! `siga run`: a program on a LAN, or at an adapter.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use os::signals::HeldSignals;
use port::guard::Guard;
use port::outside::{OWN_EXECUTABLE, StartError};
use port::setup::Place;
use serde::Serialize;

use crate::member::{Done, Joined, Member};
use crate::outcome::Outcome;
use crate::output::say;
use crate::peer::attach_name;

/// Run a program on a LAN, or on a network behind an adapter
///
/// The program is not changed: it runs in a network of its own, with one interface, which is a member of the LAN. The
/// names of the other members are in its hosts file; those of another LAN, behind a gateway, are not. Input, output, terminal, signals, directory and environment are as
/// with `env`; so is the exit code: the program's, 128 and the number of the signal that ended it, 127 if there is no such
/// program, 126 if it cannot be executed, 125 if there is no LAN or no network for it.
///
/// If the program ends and processes go on that it has started, as a daemon's do, this command says so and stays until they have ended:
/// without it they would be on no LAN. Ctrl-C ends them. If this command is killed, so are all of them.
///
/// Where the LAN has a gateway (outside = true in the system file, and without a file) the program reaches other networks over it, and names are
/// resolved as on this machine.
///
/// With --osa the program is on a network behind an adapter, by a device of its own there, with a MAC address of its own: see `siga osa serve`, and
/// docs/osa.md.
///
/// Without root, the kernel must allow user namespaces, and /dev/net/tun must be open to all.
///
/// For example: siga run --name web -- python3 -m http.server 80, and in a second terminal: siga run -- curl http://web/
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The LAN
    #[arg(long, default_value = "hs0")]
    lan: String,
    /// The adapter, instead of a LAN; --address says who the program is there
    #[arg(long, value_name = "ADAPTER", value_parser = attach_name, conflicts_with_all = ["lan", "isolated"])]
    osa: Option<String>,
    #[command(flatten)]
    member: Member,
    /// Give the program no gateway of the LAN, where there is one
    #[arg(long, conflicts_with = "gateway")]
    isolated: bool,
    /// Say on standard error which name and addresses the program has, before it starts
    #[arg(short, long)]
    verbose: bool,
    /// Append results to this file, one object in each line, because standard output is the program's: name and addresses
    /// before the program starts, exit code and counters when it has ended. docs/json.md describes them
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The exit code of a program that was not run, as with `env`.
const NOT_RUN: u8 = 125;

/// Runs the program, and returns its exit code.
pub fn run(arguments: &Arguments) -> ExitCode {
    match run_program(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(outcome @ Outcome::Usage(_)) => Outcome::exit(Err(outcome)),
        Err(outcome) => {
            Outcome::exit(Err(outcome));
            ExitCode::from(NOT_RUN)
        }
    }
}

fn run_program(arguments: &Arguments) -> Result<u8, Outcome> {
    let Arguments { lan, osa, member, program, .. } = arguments;
    // Before there is a second thread, so that no thread gets a signal that is the program's.
    let held = HeldSignals::hold_to_pass_on().map_err(Outcome::no)?;
    let mut results = arguments.json.as_ref().map(Results::open).transpose()?;
    let joined = match osa {
        Some(adapter) => member.open(adapter, &program[0])?,
        None => {
            let (mut lan, mut options) = member.join(lan, &program[0])?;
            if !arguments.isolated {
                member.find_way_out(&mut lan, &mut options);
            }
            Joined::Lan(Box::new(lan), options)
        }
    };
    let place = Place::Own { program: program.clone() };
    let (made, waiting, up) = match joined.start(place, &held) {
        Ok(started) => started,
        // Ctrl-C, for example: the shell is told what it would be told of the program.
        Err(StartError::Ended(end)) => return Ok(end.exit_code()),
        Err(error) => return Err(Outcome::no(error)),
    };
    member.pin()?;
    // The names are there before the program is.
    let (mut server, sockets) = joined.serve(made, &held)?;
    if arguments.verbose {
        say(format_args!("siga: {up}"));
    }
    if let Some(results) = &mut results {
        results.append(&up)?;
    }
    // Before there is a process that the kernel does not kill with this one.
    let guard = Guard::start(OWN_EXECUTABLE.as_ref(), waiting.process(), &held);
    let guard = guard.map_err(Outcome::no)?;
    port::adopted::adopt_orphans().map_err(Outcome::no)?;
    let mut program = waiting.go();
    let own: Vec<u32> = guard.iter().map(Guard::process).collect();
    let name = arguments.program[0].display();
    let say_others = |others: usize| {
        say(format_args!(
            "siga: {name} has ended, and {others} that it started go on: they are on the network until they end; Ctrl-C ends them"
        ));
    };
    let served = server.serve_program(&mut program, &sockets, &own, say_others);
    let end = served.map_err(Outcome::no)?;
    if let Some(guard) = guard {
        guard.dismiss();
    }
    // Its network goes with it, and the interface with the network: this process need not wait for that. If it cannot
    // be left, it goes with the device, a little later.
    let _ = server.agent().tap().leave_interface();
    if let Some(results) = &mut results {
        results.append(&Done::new(server.agent(), Some(end.exit_code())))?;
    }
    Ok(end.exit_code())
}

/// The file for results.
struct Results {
    path: PathBuf,
    file: File,
}

impl Results {
    fn open(path: &PathBuf) -> Result<Results, Outcome> {
        let file = File::options().append(true).create(true).open(path);
        let file = file.map_err(|error| unwritten(path, &error))?;
        Ok(Results { path: path.clone(), file })
    }

    fn append(&mut self, result: &impl Serialize) -> Result<(), Outcome> {
        let mut line = serde_json::to_string(result).map_err(Outcome::no)?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(|error| unwritten(&self.path, &error))
    }
}

fn unwritten(path: &std::path::Path, error: &std::io::Error) -> Outcome {
    Outcome::No(format!("{} cannot be written: {error}", path.display()))
}
