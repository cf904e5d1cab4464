//! The gateways of a host: processes of their own, started again when they end.

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use host::system::System;
use host::system::lan::LanRule;
use host::system::outside::OutsideRule;
use port::outside::OWN_EXECUTABLE;

use crate::outcome::Outcome;
use crate::output::{Output, say};
use crate::socket::Socket;

/// How long until a gateway that has ended is started again: what has ended it may be there still. The time doubles, up to the longest,
/// until a gateway has lived for that long.
const DELAY: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(64);

/// How long a host waits for its gateways before it says that it is there.
const UP_MAX: Duration = Duration::from_secs(5);

/// The gateways of a system, which are not started yet.
#[derive(Clone, Debug, Default)]
pub struct Gateways(Vec<Gateway>);

#[derive(Clone, Debug)]
struct Gateway {
    lan: String,
    words: Vec<String>,
}

impl Gateways {
    /// Those that a system file asks for, of a host that listens at `socket`.
    pub fn of(system: &System, socket: &Path) -> Gateways {
        let ways = system.lans.iter().filter_map(|lan| Some((lan, lan.outside.as_ref()?)));
        let gateways = ways.map(|(lan, way)| Gateway {
            lan: lan.name.to_string(),
            words: words((lan, way), &system.lans, socket),
        });
        Gateways(gateways.collect())
    }

    /// Starts them all, and returns when each is there or could not be started, or after some seconds. The host has to answer meanwhile.
    ///
    /// They end with this process, whatever ends it: their standard input does.
    pub fn start(self) {
        let (waiting, up) = channel();
        for gateway in self.0 {
            let (lan, waiting) = (gateway.lan.clone(), waiting.clone());
            let supervising = thread::Builder::new().name("gateway".into());
            if let Err(error) = supervising.spawn(move || gateway.supervise(waiting)) {
                say(format_args!(
                    "siga: no gateway of {lan} until this host is started again: {error}"
                ));
            }
        }
        drop(waiting);
        // Nothing is sent: it ends when nobody can send any more.
        let _ = up.recv_timeout(UP_MAX);
    }
}

impl Gateway {
    fn start(&self) -> Option<Child> {
        let mut command = Command::new(OWN_EXECUTABLE);
        command
            .args(&self.words)
            .args(["--until-input-ends", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Ctrl-C is for the host: with it goes the gateway, and not before.
        command.process_group(0);
        let child = command.spawn();
        child
            .inspect_err(|error| say(format_args!("siga: no gateway of {}: {error}", self.lan)))
            .ok()
    }

    /// Starts the gateway, and again whenever it has ended. Drops `waiting` when the gateway is there, or could not be started.
    fn supervise(&self, waiting: Sender<Infallible>) {
        let mut waiting = Some(waiting);
        let mut delay = DELAY;
        loop {
            let begun = Instant::now();
            if let Some(mut child) = self.start() {
                if let Some(output) = child.stdout.take() {
                    let mut output = BufReader::new(output);
                    let _ = output.read_line(&mut String::new());
                    waiting = None;
                    // What else it prints is for nobody.
                    let _ = std::io::copy(&mut output, &mut std::io::sink());
                }
                // Waiting would close its standard input, and so end it: but it has closed its output, and is at its end.
                let why =
                    child.wait().map_or_else(|error| error.to_string(), |end| end.to_string());
                if begun.elapsed() >= DELAY_MAX {
                    delay = DELAY;
                }
                let (lan, seconds) = (&self.lan, delay.as_secs());
                let again =
                    format!("it is started again in {seconds} s; connections over it are over");
                say(format_args!("siga: the gateway of {lan} has ended ({why}): {again}"));
            }
            drop(waiting.take());
            thread::sleep(delay);
            delay = DELAY_MAX.min(2 * delay);
        }
    }
}

/// Becomes the gateway that a system file asks for, with these words more.
///
/// # Errors
/// Always: the file is wrong, or asks for no such gateway, or this program cannot be executed.
pub fn become_gateway(
    file: &Path,
    lan: &str,
    socket: &Socket,
    output: Output,
    more: &[String],
) -> Result<(), Outcome> {
    let system = System::read(file)?;
    let socket = system.socket.clone().map_or_else(|| socket.path(), Ok)?;
    let Gateways(gateways) = Gateways::of(&system, &socket);
    let Some(gateway) = gateways.into_iter().find(|gateway| gateway.lan == lan) else {
        let what = format!("{}: no [[lan]] {lan} has outside = true", file.display());
        return Err(Outcome::Usage(what));
    };
    let mut command = Command::new(OWN_EXECUTABLE);
    command.args(&gateway.words).args(more);
    if output.json {
        command.arg("--json");
    }
    Err(Outcome::no(command.exec()))
}

/// The words of the command that is the gateway of a LAN. What is a range of another LAN of the system is nowhere else, so it is not
/// reached over this machine, but for the networks in it that the file names.
fn words((lan, way): (&LanRule, &OutsideRule), lans: &[LanRule], socket: &Path) -> Vec<String> {
    let mut words = vec!["gateway".to_owned(), lan.name.to_string()];
    let mut add = |option: &str, value: String| words.push(format!("--{option}={value}"));
    add("name", way.gateway.to_string());
    add("socket", socket.display().to_string());
    way.addresses.iter().for_each(|address| add("address", address.to_string()));
    way.guests().into_iter().flatten().for_each(|guest| add("guests", guest));
    way.to.iter().for_each(|network| add("to", network.to_string()));
    way.refused.iter().for_each(|network| add("refuse", network.to_string()));
    let others = lans.iter().filter(|other| other.name != lan.name).flat_map(|other| &other.ranges);
    others.for_each(|range| add("other", range.to_string()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_lans_of_the_system_are_not_reached_over_this_machine() {
        let lan = |name: &str, range: &str, rest: &str| {
            format!("[[lan]]\nname = \"{name}\"\nrange = \"{range}\"\n{rest}\n")
        };
        let text = [
            lan("hs0", "10.1.0.0/16", "outside = true"),
            lan("hs1", "10.2.0.0/16", ""),
            lan(
                "hs2",
                "10.3.0.0/16",
                "outside = true\noutside_to = [\"0.0.0.0/0\", \"10.2.7.0/24\"]",
            ),
        ];
        let file =
            std::env::temp_dir().join(format!("siga-supervisor-{}.toml", std::process::id()));
        std::fs::write(&file, text.concat()).unwrap();
        let system = System::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let Gateways(gateways) = Gateways::of(&system, Path::new("/run/socket"));
        let others = |gateway: &Gateway| {
            let others = gateway.words.iter().filter_map(|word| word.strip_prefix("--other="));
            others.map(str::to_owned).collect::<Vec<_>>()
        };
        let others: Vec<_> = gateways.iter().map(others).collect();
        let all_but = [["10.2.0.0/16", "10.3.0.0/16"], ["10.1.0.0/16", "10.2.0.0/16"]];
        assert_eq!(others, all_but);
    }
}
