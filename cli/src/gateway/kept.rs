//! The gateways of a host: processes of their own, started again when they end.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use host::system::System;
use host::system::outside::OutsideRule;
use port::outside::OWN_EXECUTABLE;

use crate::outcome::Outcome;
use crate::output::{Output, say};
use crate::socket::Socket;

/// How long a gateway that has ended stays away: what has ended it may be there still.
const AWAY: Duration = Duration::from_secs(1);

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
        let ways = system.lans.iter().filter_map(|lan| Some((lan.name, lan.outside.as_ref()?)));
        let gateways = ways.map(|(lan, way)| Gateway {
            lan: lan.to_string(),
            words: words(lan.as_str(), way, socket),
        });
        Gateways(gateways.collect())
    }

    /// Starts them all, and returns when each is there or could not be started. The host has to answer meanwhile.
    ///
    /// They end with this process, whatever ends it: their standard input does.
    pub fn start(self) {
        let started: Vec<_> =
            self.0.into_iter().map(|gateway| (gateway.start(), gateway)).collect();
        for (mut child, gateway) in started {
            if let Some(child) = &mut child {
                wait_until_up(child);
            }
            let kept = thread::Builder::new().name("gateway".into());
            let lan = gateway.lan.clone();
            if let Err(error) = kept.spawn(move || gateway.keep(child)) {
                say(format_args!(
                    "siga: the way out of {lan} is not started again if it ends: {error}"
                ));
            }
        }
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
            .inspect_err(|error| say(format_args!("siga: no way out of {}: {error}", self.lan)))
            .ok()
    }

    /// Starts the gateway again whenever it has ended.
    fn keep(&self, mut child: Option<Child>) {
        loop {
            if let Some(mut child) = child {
                // What it prints is for nobody.
                if let Some(mut output) = child.stdout.take() {
                    let _ = std::io::copy(&mut output, &mut std::io::sink());
                }
                // Waiting would close its standard input, and so end it: but it has closed its output, and is at its end.
                let why =
                    child.wait().map_or_else(|error| error.to_string(), |end| end.to_string());
                let lan = &self.lan;
                let again = "it is started again; connections over it are over";
                say(format_args!("siga: the way out of {lan} has ended ({why}): {again}"));
            }
            thread::sleep(AWAY);
            child = self.start();
        }
    }
}

/// Waits for the first line that a gateway prints.
fn wait_until_up(child: &mut Child) {
    let Some(output) = child.stdout.take() else { return };
    let mut output = BufReader::with_capacity(1, output);
    let _ = output.read_line(&mut String::new());
    child.stdout = Some(output.into_inner());
}

/// Becomes the gateway that a system file asks for.
///
/// # Errors
/// Always: the file is wrong, or asks for no such gateway, or this program cannot be executed.
pub fn become_gateway(
    file: &Path,
    lan: &str,
    socket: &Socket,
    output: Output,
) -> Result<(), Outcome> {
    let system = System::read(file)?;
    let socket = system.socket.clone().map_or_else(|| socket.path(), Ok)?;
    let Gateways(gateways) = Gateways::of(&system, &socket);
    let Some(gateway) = gateways.into_iter().find(|gateway| gateway.lan == lan) else {
        let what = format!("{}: no [[lan]] {lan} has outside = true", file.display());
        return Err(Outcome::Usage(what));
    };
    let mut command = Command::new(OWN_EXECUTABLE);
    command.args(&gateway.words);
    if output.json {
        command.arg("--json");
    }
    Err(Outcome::no(command.exec()))
}

fn words(lan: &str, way: &OutsideRule, socket: &Path) -> Vec<String> {
    let mut words = vec!["gateway".to_owned(), lan.to_owned()];
    let mut add = |option: &str, value: String| words.push(format!("--{option}={value}"));
    add("name", way.gateway.to_string());
    add("socket", socket.display().to_string());
    way.addresses.iter().for_each(|address| add("address", address.to_string()));
    way.guests().into_iter().flatten().for_each(|guest| add("guests", guest));
    way.to.iter().for_each(|network| add("to", network.to_string()));
    way.refused.iter().for_each(|network| add("refuse", network.to_string()));
    words
}
