//! `siga up`: the host, in the foreground, with the control unit of its volumes, and the servers of its lines and adapters.

use std::convert::Infallible;
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use host::system::System;
use host::system::line::LineRule;
use host::{Handle, Host};
use os::packets::Packets;
use os::signals::HeldSignals;
use serde_json::json;
use siga::Stopper;
use siga::disk::SystemVolumes;
use tracing_subscriber::EnvFilter;

use crate::adapters::{self, Adapter};
use crate::bridges;
use crate::check::check;
use crate::children::Children;
use crate::ending::{end_in_time, take_all};
use crate::gateway::gateways;
use crate::lines::{adapter_lines, line_server};
use crate::notify;
use crate::osa::up::Up;
use crate::outcome::Outcome;
use crate::output::{Output, print, print_json, say};
use crate::served::{Checks, Served, say_not_shown};
use crate::socket::Socket;
use crate::tcpip::machines;
use crate::volume::serve_system;

/// Run the host of a system in the foreground
///
/// Guests attach to it, and it makes paths between them. LANs with outside = true get a gateway to other networks each (siga gateway), and each TCPIP machine of the system file is served (siga tcpip serve), all in processes of their own. Volumes that the system file names are served too, by a guest of
/// their own on a thread of the host, and so are its lines over channel-to-channel adapters, and its OSA adapters. Paths between guests go on when the host ends; guests attach again to the next host. Set
/// RUST_LOG=debug to see each request.
///
/// Runs until Ctrl-C, SIGTERM or SIGHUP: then the host removes its socket, with the lock file beside it, and the exit code is 0. A host
/// that cannot, because nobody reads its log, ends after three seconds with 1.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The system file: which guests, LANs and volumes there are, and who may do what; for example systems/two-guests.toml. Without
    /// it, processes of this user may attach under any name, and there is a LAN hs0 with addresses of IPv4, 10.1.0.0/16, and a gateway to other networks
    system: Option<PathBuf>,
    /// Leave the volumes of the system file to `siga volume serve --system`, which goes on when the host ends
    #[arg(long)]
    without_volumes: bool,
    /// Start no gateways: members of LANs reach no other networks, unless somebody else starts `siga gateway`
    #[arg(long)]
    without_outside: bool,
    /// Start no TCPIP machines: they are left to `siga tcpip serve --system`, and go on when the host ends
    #[arg(long)]
    without_tcpip: bool,
    /// Start no host: print what is wrong in the system file or probably not meant, and what a host would make of it, or has without
    /// a file. Ends with 1 if there is anything to fix
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

/// How long a host has after a signal that asks it to end.
const END_TIME: Duration = Duration::from_secs(3);

/// Runs the host until a signal ends it.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    if arguments.check {
        return check(arguments.system.as_deref(), arguments.output);
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal)
        // It would say that the log cannot be written, and end the host where that cannot be written either.
        .log_internal_errors(false)
        .with_target(false)
        .init();
    // Each guest takes two descriptors, each waiting connection two more.
    os::memory::allow_descriptors(1 << 20);
    let system = match &arguments.system {
        Some(file) => System::read(file)?,
        None => System::open(),
    };
    for warning in &system.warnings {
        say(format_args!("siga: warning: {warning}"));
    }
    let socket = match &system.socket {
        Some(socket) => socket.clone(),
        None => arguments.socket.to_listen()?,
    };
    // Before anything is made that the other host has: it would be said of that.
    if is_listening(&socket) {
        return Err(Outcome::No(format!(
            "cannot listen at {}: another host is there already (siga query)",
            socket.display()
        )));
    }
    // Before anybody can attach: a file that is wrong is no system.
    let mut checks = Checks::default();
    let volumes = match arguments.without_volumes {
        true => None,
        false => SystemVolumes::open(&system, |file, checking| checks.see(file, &checking))?,
    };
    let lines = adapter_lines(&system);
    let adapters = adapters::open(&system)?;
    let made: Vec<Up> = adapters.iter().map(Adapter::up).collect();
    let mut children = Children::default();
    if !arguments.without_outside {
        children.0.extend(gateways(&system, &socket));
    }
    if let Some(file) = arguments.system.as_deref().filter(|_| !arguments.without_tcpip) {
        children.0.extend(machines(&system, file, &socket));
    }
    // From here on there is something to remove. Checking volumes takes minutes: a signal ends that at once.
    let held = HeldSignals::hold().map_err(Outcome::no)?;
    end_in_time(&held, END_TIME, 1).map_err(Outcome::no)?;
    let (mut host, handle) = Host::new(system).map_err(|error| Outcome::kernel(&error))?;
    host.listen(&socket).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => ": another host is there already",
            // It says what would be right.
            ErrorKind::AlreadyExists => "",
            _ => ": is there such a directory, and may you write there?",
        };
        Outcome::No(format!("cannot listen at {}: {error}{hint}", socket.display()))
    })?;
    let output = arguments.output;
    let mut works: Vec<Work> = Vec::new();
    // Guests hear of the host when their lines and devices can be opened.
    let mut served = Vec::new();
    if !lines.is_empty() {
        let socket = socket.clone();
        let (are_served, lines_served) = channel();
        served.push(lines_served);
        works.push(Work {
            name: "lines".to_owned(),
            ended: "the server of lines has ended, and the host ends with it".to_owned(),
            stop: Arc::default(),
            run: Box::new(move || serve_lines(&socket, &lines, &are_served).map(never)),
        });
    }
    let bridged: Vec<_> = adapters.iter().filter_map(Adapter::bridge).collect();
    for adapter in adapters {
        let (is_served, adapter_served) = channel();
        served.push(adapter_served);
        works.push(adapter_work(adapter, &socket, is_served));
    }
    for options in bridged {
        let (is_served, bridge_served) = channel();
        served.push(bridge_served);
        works.push(bridge_work(options, &socket, is_served));
    }
    match volumes {
        Some(volumes) => works.push(Work {
            name: "control unit".to_owned(),
            ended: ENDED.to_owned(),
            stop: Arc::default(),
            run: Box::new(move || {
                serve((&socket, output), volumes, children, served, &made).map(never)
            }),
        }),
        None => {
            let begin = move || {
                // If something is not served, the thread that was to serve it ends the host.
                if are_served(served) {
                    children.start();
                    announce((&socket, output), None, &made);
                }
            };
            // The host answers on this thread.
            thread::Builder::new().name("begin".into()).spawn(begin).map_err(Outcome::no)?;
        }
    }
    run_with(host, handle, &held, works)
}

/// Returns true if a host listens at this place.
fn is_listening(socket: &Path) -> bool {
    match Packets::connect(socket) {
        Ok(_) => true,
        // So many wait to be taken in that nobody else can.
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// What a thread of the host does until it is stopped, or for ever, as a guest of the host.
struct Work {
    /// The name of the thread.
    name: String,
    /// The beginning of the message with which `siga up` ends when the thread has panicked.
    ended: String,
    /// Stops the work, if it can be stopped and has come so far.
    stop: Arc<OnceLock<Stopper>>,
    run: Box<dyn FnOnce() -> Result<(), Outcome> + Send>,
}

/// What a work returns that goes on for ever.
fn never(never: Infallible) {
    match never {}
}

/// Runs a host, and its works on threads of their own, until a signal ends all. Adapters are stopped then, so that their interfaces are as they were found when
/// the process ends. Other works are left in the middle of their work: what the control unit has acknowledged is on the disk, as after a kill. If a work ends, by an error or a panic, the host ends too: a host without
/// its disks would look healthy to its supervisor and to its guests. A work is not started again here, because whatever ended
/// it would probably end it again; a supervisor starts all, with a delay. Paths between guests go on meanwhile.
///
/// # Errors
/// Why the host or a work has ended.
fn run_with(
    host: Host,
    handle: Handle,
    held: &HeldSignals,
    works: Vec<Work>,
) -> Result<(), Outcome> {
    let (handle, (endings, ending)) = (Arc::new(handle), channel());
    let mut threads = Vec::new();
    for (number, Work { name, ended, stop, run }) in works.into_iter().enumerate() {
        let stopping = StopHost { handle: handle.clone(), endings: endings.clone(), number };
        let thread = thread::Builder::new().name(name).spawn(move || {
            let _stopping = stopping;
            run()
        });
        threads.push((ended, stop, thread.map_err(Outcome::no)?));
    }
    host::run_until(host, held).map_err(Outcome::no)?;
    let has_signal = take_all(held)?;
    // If a thread has ended, it is the first that says so, and before it is stopped.
    let first = ending.try_recv().ok();
    let ended = stop_all(threads, first);
    if has_signal {
        return Ok(());
    }
    // Nothing else but the end of a thread stops the host. The others go on until the process ends.
    let Some((ended, thread)) = ended else { return Ok(()) };
    match thread.join() {
        Ok(done) => done,
        Err(panic) => {
            let texts = (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>());
            let why = texts.0.copied().or(texts.1.map(String::as_str)).unwrap_or("no message");
            Err(Outcome::No(format!("{ended}: its thread has panicked: {why}")))
        }
    }
}

/// The beginning of the message of a work that has panicked, what stops the work, and its thread.
type Working = (String, Arc<OnceLock<Stopper>>, thread::JoinHandle<Result<(), Outcome>>);

/// Stops all works that can be stopped, and waits for their ends. Returns the one that has ended by itself.
fn stop_all(
    threads: Vec<Working>,
    first: Option<usize>,
) -> Option<(String, thread::JoinHandle<Result<(), Outcome>>)> {
    let (mut ended, mut stopped) = (None, Vec::new());
    for (number, (name, stop, thread)) in threads.into_iter().enumerate() {
        if Some(number) == first {
            ended = Some((name, thread));
        } else if let Some(stop) = stop.get() {
            stop.stop();
            stopped.push(thread);
        }
    }
    for thread in stopped {
        // The process ends for another reason.
        let _ = thread.join();
    }
    ended
}

/// The beginning of the message with which `siga up` ends when its volumes are served no longer.
const ENDED: &str = "the control unit has ended, and the host ends with it";

/// Stops the host when it is dropped, also by a panic, and says which thread that was.
struct StopHost {
    handle: Arc<Handle>,
    endings: Sender<usize>,
    number: usize,
}

impl Drop for StopHost {
    fn drop(&mut self) {
        // The host has ended already if nobody hears.
        let _ = self.endings.send(self.number);
        self.handle.stop();
    }
}

/// Serves lines for ever, and says once they can be opened.
///
/// # Errors
/// They cannot be served, or are served no longer.
fn serve_lines(
    socket: &Path,
    lines: &[LineRule],
    are_served: &Sender<()>,
) -> Result<Infallible, Outcome> {
    let mut server = line_server(socket, lines)?;
    // Nobody hears if the volumes cannot be served: the host ends then.
    let _ = are_served.send(());
    server.serve().map_err(Outcome::no)
}

/// The work of an adapter.
fn adapter_work(adapter: Adapter, socket: &Path, is_served: Sender<()>) -> Work {
    let socket = socket.to_owned();
    let stop = Arc::<OnceLock<Stopper>>::default();
    Work {
        name: format!("osa {}", adapter.name()),
        stop: stop.clone(),
        ended: format!("the adapter {} has ended, and the host ends with it", adapter.name()),
        run: Box::new(move || adapter.serve(&socket, &is_served, &stop)),
    }
}

/// The work of a bridge.
fn bridge_work(options: port::bridge::Options, socket: &Path, is_served: Sender<()>) -> Work {
    let socket = socket.to_owned();
    let lan = &options.lan;
    Work {
        name: format!("bridge {lan}"),
        stop: Arc::default(),
        ended: format!("the bridge of the LAN {lan} has ended, and the host ends with it"),
        run: Box::new(move || bridges::serve(&socket, &options, &is_served).map(never)),
    }
}

/// Serves volumes for ever. Guests hear of the host when the volumes, lines and adapters are there.
///
/// # Errors
/// They cannot be served, or are served no longer.
fn serve(
    (socket, output): (&Path, Output),
    volumes: SystemVolumes,
    children: Children,
    others_served: Vec<Receiver<()>>,
    made: &[Up],
) -> Result<Infallible, Outcome> {
    let (mut server, served) = serve_system(socket, volumes)?;
    // If something is not served, the thread that was to serve it ends the host.
    if are_served(others_served) {
        children.start();
        announce((socket, output), Some(&served), made);
    }
    let ended = |error| Outcome::No(format!("{ENDED}: {error}"));
    // The host answers on another thread.
    server.serve_within(Duration::from_millis(100)).map_err(ended)?;
    say_not_shown(&server);
    server.serve().map_err(ended)
}

/// Waits until all lines and adapters are served. Returns false if some cannot be.
fn are_served(served: Vec<Receiver<()>>) -> bool {
    served.iter().all(|one| one.recv().is_ok())
}

fn announce((socket, output): (&Path, Output), served: Option<&Served>, made: &[Up]) {
    let listening = socket.display().to_string();
    if let Err(error) = notify::ready(&format!("listening at {listening}")) {
        say(format_args!(
            "siga: NOTIFY_SOCKET: the service manager cannot be told that the host is ready: {error}"
        ));
    }
    // A pipe that nobody reads is no reason to end.
    let _ = match output.json {
        true => {
            let mut object = json!({ "listening": listening });
            if let Some(served) = served {
                object["control_unit"] = json!(served);
            }
            if !made.is_empty() {
                object["adapters"] = json!(made);
            }
            print_json(&object)
        }
        false => print(format!("listening at {listening}")),
    };
    if !output.json {
        made.iter().for_each(say);
    }
    if let Some(served) = served.filter(|_| !output.json) {
        served.say();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(
        control_unit: impl FnOnce() -> Result<(), Outcome> + Send + 'static,
    ) -> Result<(), Outcome> {
        let (host, handle) = Host::new(System::open()).unwrap();
        let work = |name: &str, ended: &str, run| Work {
            name: name.to_owned(),
            ended: ended.to_owned(),
            stop: Arc::default(),
            run,
        };
        let others = work("waits", "another", Box::new(waits_for_ever));
        let work = work("unit", ENDED, Box::new(control_unit));
        run_with(host, handle, &HeldSignals::hold().unwrap(), vec![others, work])
    }

    /// A work that goes on.
    fn waits_for_ever() -> Result<(), Outcome> {
        loop {
            thread::park();
        }
    }

    #[test]
    fn host_ends_with_an_error_when_its_control_unit_ends() {
        let Err(Outcome::No(why)) = end(|| Err(Outcome::No("no descriptors".into()))) else {
            panic!("the host goes on, or says nothing");
        };
        assert_eq!(why, "no descriptors");
    }

    #[test]
    fn host_ends_with_an_error_when_its_control_unit_panics() {
        for formatted in [false, true] {
            let panic = move || -> Result<(), Outcome> {
                if formatted { panic!("slot {}", 7) } else { panic!("slot 7") }
            };
            let Err(Outcome::No(why)) = end(panic) else { panic!("the host goes on") };
            assert_eq!(why, format!("{ENDED}: its thread has panicked: slot 7"));
        }
    }
}
