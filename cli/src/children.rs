//! Processes that a host starts and keeps going: gateways and TCPIP machines.

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use port::outside::OWN_EXECUTABLE;

use crate::output::say;

/// How long until one that has ended is started again: what has ended it may be there still. The time doubles, up to the longest,
/// until one has lived for that long.
const DELAY: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(64);

/// How long a host waits for them before it says that it is there.
const UP_MAX: Duration = Duration::from_secs(5);

/// Processes that are not started yet.
#[derive(Clone, Debug, Default)]
pub struct Children(pub Vec<Service>);

/// One of them.
#[derive(Clone, Debug)]
pub struct Service {
    /// What it is, as people read it: `the gateway of hs0`.
    pub what: String,
    /// The words of the command that it is. It prints a line when it is there, and ends when its standard input does, with `--json` and
    /// `--until-input-ends`.
    pub words: Vec<String>,
}

impl Children {
    /// Starts them all, and returns when each is there or could not be started, or after some seconds. The host has to answer meanwhile.
    ///
    /// They end with this process, whatever ends it: their standard input does.
    pub fn start(self) {
        let (waiting, up) = channel();
        for service in self.0 {
            let (what, waiting) = (service.what.clone(), waiting.clone());
            let supervising = thread::Builder::new().name("supervisor".into());
            if let Err(error) = supervising.spawn(move || service.supervise(waiting)) {
                say(format_args!(
                    "siga: {what} is not there until this host is started again: {error}"
                ));
            }
        }
        drop(waiting);
        // Nothing is sent: it ends when nobody can send any more.
        let _ = up.recv_timeout(UP_MAX);
    }
}

impl Service {
    fn start(&self) -> Option<Child> {
        let mut command = Command::new(OWN_EXECUTABLE);
        command
            .args(&self.words)
            .args(["--until-input-ends", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Ctrl-C is for the host: with it goes the process, and not before.
        command.process_group(0);
        let child = command.spawn();
        child
            .inspect_err(|error| say(format_args!("siga: {} is not there: {error}", self.what)))
            .ok()
    }

    /// Starts the process, and again whenever it has ended. Drops `waiting` when it is there, or could not be started.
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
                let (what, seconds) = (&self.what, delay.as_secs());
                let again =
                    format!("it is started again in {seconds} s; connections over it are over");
                say(format_args!("siga: {what} has ended ({why}): {again}"));
            }
            drop(waiting.take());
            thread::sleep(delay);
            delay = DELAY_MAX.min(2 * delay);
        }
    }
}
