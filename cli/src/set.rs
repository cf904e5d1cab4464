//! `siga set`: changes what runs, while it runs.

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use siga::Name;
use siga::error::Problem;
use siga::host::{ObserveError, Observer};
use siga::lan::LanName;
use siga::tcpip::Placement;

use crate::outcome::Outcome;
use crate::output::{Output, print, print_json, say};
use crate::peer::attach_name;
use crate::present::is_line;
use crate::processors::{WhyNot, why_not};
use crate::socket::Socket;

/// Change a TCPIP machine while it runs
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    Tcpip(Tcpip),
}

/// Move the driver of a LAN of a TCPIP machine to another processor, or into the machine
///
/// The driver moves while traffic flows, and no frame is lost. Only root and the host's own user may do that. It lasts until the machine ends: cpu of
/// [[tcpip.interface]] in the system file says where a driver begins. `siga query tcpip` shows the drivers. If
/// the processor is not there, the driver runs inline, on the processor of the machine, and a warning says so. If the machine may not use the processor,
/// or serves on it itself, the driver runs inline too, and the exit code is 1.
///
/// For example: siga set tcpip TCPIP driver hs0 cpu 1
#[derive(Debug, Args)]
struct Tcpip {
    /// The machine, in capital letters or small ones
    #[arg(value_parser = attach_name)]
    machine: String,
    /// What to set: the driver of a LAN
    what: Setting,
    /// The LAN
    lan: LanName,
    /// Where the driver is to run: on a processor of its own, or inline in the machine's stack
    place: Place,
    /// The processor, after cpu
    #[arg(required_if_eq("place", "cpu"))]
    number: Option<u32>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Setting {
    Driver,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Place {
    Cpu,
    Inline,
}

/// Where a driver runs now, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Set {
    machine: String,
    lan: String,
    /// None: inline.
    processor: Option<usize>,
}

pub fn run(Arguments { subject: Subject::Tcpip(arguments) }: &Arguments) -> Result<(), Outcome> {
    let Tcpip { machine, what: Setting::Driver, lan, place, number, output, socket } = arguments;
    let machine: Name = machine.parse().map_err(Outcome::no)?;
    let wanted = match (place, number) {
        (Place::Cpu, Some(number)) => Placement::Processor(*number as usize),
        (Place::Inline, None) => Placement::Inline,
        _ => return Err(Outcome::Usage("inline: must be without a processor's number".to_owned())),
    };
    let observer = Observer::attach(socket.path()?).map_err(Outcome::no)?;
    let placed = observer.set_driver(machine, *lan, wanted).map_err(|error| match error {
        // The host has answered before: it is the machine that does not.
        ObserveError::NoAnswer => Outcome::No(format!(
            "{machine} has not answered: the order for the driver of {lan} may still be carried out"
        )),
        ObserveError::Refused(Problem::NoLan) if is_line(&observer.query().unwrap_or_default(), lan.as_str()) => Outcome::No(format!(
            "{machine}: {lan} is a line, whose driver always runs inline: must be a LAN of the machine"
        )),
        ObserveError::Refused(_) => Outcome::No(format!("{machine}: the driver of {lan}: {error}")),
        error => Outcome::no(error),
    })?;
    let processor = match placed {
        Placement::Processor(number) => Some(number),
        Placement::Inline => None,
    };
    match processor {
        _ if output.json => {
            print_json(&Set { machine: machine.to_string(), lan: lan.to_string(), processor })?;
        }
        Some(number) => {
            print(format_args!("the driver of {lan} at {machine} runs on processor {number}"))?;
        }
        None => print(format_args!("the driver of {lan} at {machine} runs inline"))?,
    }
    let Placement::Processor(number) = wanted else { return Ok(()) };
    if placed == wanted {
        return Ok(());
    }
    let inline = "runs inline, on the processor of the machine";
    match why_not(number) {
        // As on the mainframe, the driver runs on the base processor then: that of the machine.
        why @ WhyNot::NotThere(_) => {
            say(format_args!("siga: warning: {why}: the driver of {lan} {inline}"));
            Ok(())
        }
        // What this process may use says nothing of the machine.
        WhyNot::NotAllowed(_) | WhyNot::Only(_) => Err(Outcome::No(format!(
            "{machine} serves on processor {number} itself, or may not use it: the driver of {lan} {inline}"
        ))),
    }
}
