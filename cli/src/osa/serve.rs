//! `siga osa serve`: an adapter in a process of its own.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::Args;
use host::system::adapter::{GAP_US_MAX, HOLD_OFF_US_MAX, MTU_MAX, MTU_MIN};
use os::event::Event;
use os::poller::wait_any;
use os::signals::HeldSignals;
use port::wires::{OpenWireError, WireKind, WireOptions};
use serde::Serialize;
use siga::error::Problem;
use siga::lan::Mac;
use siga::osa::{Conditions, MemoryWire, Moderation, OpenWire, Server, ServerOptions, Wire};
use siga::{AttachError, Guest, Name, Stopper};

use crate::member::{WaitKind, pin, station};
use crate::osa::up::{self, Up};
use crate::outcome::Outcome;
use crate::output::{Output, print_json, say};
use crate::peer::attach_name;
use crate::socket::Socket;
use crate::tcpip::{Ended, HostWatch};

/// Serve an adapter: guests get devices at the port of a network interface, and share it
///
/// The adapter is a guest of the name that is given here. Programs get devices with `siga run --osa`, `siga join --osa` and `siga::osa::Osa`. Runs until
/// Ctrl-C; nothing of what it has made stays then, or when it is killed. Devices come back when the adapter is served again.
///
/// With macvtap and xdp the interface stays the kernel's: it keeps its addresses, and whatever else uses it goes on. But the kernel of this machine and
/// the guests do not reach each other over it. If the interface is removed, the guests have no carrier until it is there again. Both need CAP_NET_ADMIN, and macvtap
/// CAP_SYS_ADMIN, xdp CAP_NET_RAW and CAP_BPF, too: root has all of them. With tap an interface is made, whose other side is the kernel. A wire in memory
/// needs no right, and joins the adapters of this command.
///
/// For example: siga osa serve OSA1 --wire macvtap --interface eth1, and in a second terminal: siga run --osa OSA1 --address 192.168.7.5/24 --gateway
/// 192.168.7.1 -- curl http://192.168.7.2/
#[derive(Debug, Args)]
pub struct Serve {
    /// The name of the adapter, in capital letters or small ones; two with a wire in memory
    #[arg(required = true, num_args = 1..=2, value_parser = attach_name, value_name = "ADAPTER")]
    names: Vec<String>,
    /// What is behind the port: an interface, by macvtap or AF_XDP, an interface that is made, or the other adapter
    #[arg(long, value_enum)]
    wire: WireName,
    /// The interface; with tap its name
    #[arg(
        long,
        value_name = "NAME",
        required_if_eq_any = [("wire", "macvtap"), ("wire", "xdp"), ("wire", "tap")]
    )]
    interface: Option<String>,
    /// The MAC address of the port, for guests that have none of their own [default: one that follows from the interface and the adapter's name]
    #[arg(long, value_parser = station)]
    mac: Option<Mac>,
    /// Bytes of the longest packet of a wire in memory [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(MTU_MIN..=MTU_MAX))]
    mtu: Option<u64>,
    /// The longest time from the first packet in a buffer until the guest has the buffer
    #[arg(long, value_name = "TIME", default_value = "250us", value_parser = hold_off)]
    hold_off: Duration,
    /// A buffer is handed over when nothing has come for so long [default: 5us, and 15us at a port of jumbo frames]
    #[arg(long, value_name = "TIME", value_parser = gap)]
    gap: Option<Duration>,
    /// How to wait for packets: asleep, looking for some time first, or looking all the time
    #[arg(long, value_enum, default_value = "adaptive")]
    wait: WaitKind,
    /// The processor of the adapter [default: any]; of each, in their order, where there are two
    #[arg(long, value_name = "NUMBER")]
    cpu: Vec<usize>,
    #[command(flatten)]
    socket: Socket,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum WireName {
    Macvtap,
    Xdp,
    Tap,
    Memory,
}

/// A time on the command line, of so many microseconds at most: 5us, 250us, 1ms, or 0.
fn time(text: &str, us_max: u64) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let ns_each = match &text[digits.len()..] {
        "ns" => Some(1),
        "us" => Some(1_000),
        "ms" => Some(1_000_000),
        "" if digits == "0" => Some(1),
        _ => None,
    };
    let ns = digits.parse::<u64>().ok().zip(ns_each).and_then(|(count, ns)| count.checked_mul(ns));
    let ns = ns.filter(|ns| *ns <= 1000 * us_max);
    ns.map(Duration::from_nanos)
        .ok_or_else(|| format!("must be like 5us, 1ms or 0, and at most {us_max}us"))
}

fn hold_off(text: &str) -> Result<Duration, String> {
    time(text, HOLD_OFF_US_MAX)
}

fn gap(text: &str) -> Result<Duration, String> {
    time(text, GAP_US_MAX)
}

/// What an adapter has done, as `--json` prints it at the end. Frames are those of the wire.
#[derive(Debug, Serialize)]
struct Counted {
    name: String,
    frames_received: u64,
    bytes_received: u64,
    frames_sent: u64,
    bytes_sent: u64,
    dropped_behind: u64,
    dropped_bad: u64,
    dropped_unsent: u64,
}

/// A wire that is opened again when its interface is gone.
#[derive(Clone, Debug)]
struct Plan {
    name: Name,
    kind: WireKind,
    interface: String,
    options: WireOptions,
}

impl Plan {
    fn open(&self) -> Result<up::Opened, OpenWireError> {
        up::open(self.name, self.kind, &self.interface, &self.options)
    }
}

/// An adapter that is to be served.
struct Adapter {
    server: Server,
    name: Name,
    processor: Option<usize>,
}

/// An adapter that has its wire and is attached.
struct Begun {
    adapter: Adapter,
    host: HostWatch,
    up: Up,
}

pub fn serve(arguments: &Serve) -> Result<(), Outcome> {
    let held = HeldSignals::hold().map_err(Outcome::no)?;
    check(arguments)?;
    let begun = begin(arguments)?;
    let done = Arc::new(Event::new().map_err(Outcome::no)?);
    let stoppers: Vec<_> = begun.iter().map(|begun| begun.adapter.server.stopper()).collect();
    let (mut threads, mut hosts) = (Vec::new(), Vec::new());
    for Begun { adapter, host, up } in begun {
        if arguments.output.json {
            // A pipe that nobody reads is no reason to end.
            let _ = print_json(&up);
        } else {
            say(&up);
        }
        hosts.push(host);
        let ended = Ended(done.clone());
        let name = format!("siga {}", adapter.name);
        let run = move || {
            let _ended = ended;
            adapter.run()
        };
        threads.push(thread::Builder::new().name(name).spawn(run).map_err(Outcome::no)?);
    }
    let waited = wait_for_the_end(&held, &done, &mut hosts);
    stoppers.iter().for_each(Stopper::stop);
    let counted = threads.into_iter().map(joined).collect::<Result<Vec<_>, _>>();
    waited?;
    for counted in counted? {
        if arguments.output.json {
            let _ = print_json(&counted);
        }
    }
    Ok(())
}

fn joined(thread: JoinHandle<Result<Counted, Outcome>>) -> Result<Counted, Outcome> {
    let ended = thread.join();
    ended.map_err(|_| Outcome::No("the adapter has ended: its thread has panicked".into()))?
}

/// Refuses words that do not go together.
fn check(arguments: &Serve) -> Result<(), Outcome> {
    let Serve { names, wire, interface, mac, mtu, cpu, .. } = arguments;
    let usage = |what: String| Err(Outcome::Usage(what));
    let is_memory = *wire == WireName::Memory;
    match (is_memory, &names[..]) {
        (true, [one, other]) if one == other => {
            return usage(format!("{one} is named twice: a wire in memory has two ends"));
        }
        (true, [_]) => {
            return usage("a wire in memory has two ends: name two adapters".to_owned());
        }
        (false, [_, other]) => {
            return usage(format!(
                "{other}: each adapter at an interface has a command of its own"
            ));
        }
        _ => {}
    }
    if is_memory && interface.is_some() {
        return usage("--interface: a wire in memory has none".to_owned());
    }
    if is_memory && mac.is_some() {
        return usage("--mac: the ends of a wire in memory have addresses by chance".to_owned());
    }
    if !is_memory && mtu.is_some() {
        return usage("--mtu: the wire has the MTU of the interface".to_owned());
    }
    if cpu.len() > names.len() {
        return usage(format!("--cpu: {} processors for {} adapters", cpu.len(), names.len()));
    }
    // Each thread moves itself: this one learns what is wrong, and goes on where it was.
    for processor in cpu {
        pin_another(*processor)?;
    }
    Ok(())
}

fn pin_another(processor: usize) -> Result<(), Outcome> {
    let tried = thread::spawn(move || pin(Some(processor))).join();
    tried.map_err(|_| Outcome::No("a thread has panicked".into()))?
}

/// Attaches the guests that serve, and opens the wires: a name says best that the adapter is served already.
fn begin(arguments: &Serve) -> Result<Vec<Begun>, Outcome> {
    let Serve { names, wire, interface, mac, mtu, .. } = arguments;
    let socket = arguments.socket.path()?;
    let attached = names.iter().map(|name| attach(&socket, name));
    let mut guests = attached.collect::<Result<Vec<_>, _>>()?;
    let kind = match wire {
        WireName::Macvtap => Some(WireKind::Macvtap),
        WireName::Xdp => Some(WireKind::Xdp),
        WireName::Tap => Some(WireKind::Tap),
        WireName::Memory => None,
    };
    match (kind, interface) {
        (Some(kind), Some(interface)) => {
            let guest = guests.remove(0);
            let name = guest.name();
            let options = WireOptions { mac: *mac, adapter: Some(name), ..WireOptions::default() };
            let plan = Plan { name, kind, interface: interface.clone(), options };
            let (wire, up) = plan.open().map_err(|error| not_opened(&plan, &error))?;
            Ok(vec![serve_at(arguments, 0, guest, (wire, up), Some(plan))?])
        }
        _ => {
            let mtu = mtu.map_or(Conditions::default().mtu, |mtu| mtu as usize);
            let conditions = Conditions { mtu, ..Conditions::default() };
            let macs = [by_chance()?, by_chance()?];
            let ends = MemoryWire::pair(conditions, 0, macs).map_err(Outcome::no)?;
            let ends = ends.into_iter().zip(guests).enumerate();
            let served = ends.map(|(number, (end, guest))| {
                let up = Up::of_memory(guest.name(), &end, &names[1 - number]);
                serve_at(arguments, number, guest, (Box::new(end), up), None)
            });
            served.collect()
        }
    }
}

fn by_chance() -> Result<Mac, Outcome> {
    let mut mac = [0; 6];
    os::random::fill(&mut mac).map_err(Outcome::no)?;
    // Of one station, and administered here.
    mac[0] = mac[0] & !1 | 2;
    Ok(Mac(mac))
}

fn not_opened(plan: &Plan, error: &OpenWireError) -> Outcome {
    Outcome::No(format!("{}: no wire of kind {}: {error}", plan.name, plan.kind))
}

/// Attaches the guest that serves an adapter.
fn attach(socket: &Path, name: &str) -> Result<Guest, Outcome> {
    Guest::attach(socket, name).map_err(|error| match error {
        AttachError::Refused { problem: Problem::NameTaken, .. } => Outcome::No(format!(
            "{name} runs already: a guest of this name is attached to the host at {} (siga query osa): end it, or name another adapter",
            socket.display()
        )),
        error => Outcome::No(format!("{name}: {error}")),
    })
}

/// The server of an adapter, with its wire.
fn serve_at(
    arguments: &Serve,
    number: usize,
    guest: Guest,
    (wire, up): (Box<dyn Wire>, Up),
    plan: Option<Plan>,
) -> Result<Begun, Outcome> {
    let name = guest.name();
    let attachment = guest.attachment().map_err(Outcome::no)?;
    let mut options = ServerOptions::default();
    options.wait = arguments.wait.into();
    options.moderation.hold_off_ns = arguments.hold_off.as_nanos() as u64;
    if let Some(gap) = arguments.gap {
        let gap_ns = gap.as_nanos() as u64;
        options.moderation = Moderation { gap_ns, gap_jumbo_ns: gap_ns, ..options.moderation };
    }
    let mut server = Server::new(guest, wire, &options).map_err(Outcome::no)?;
    if let Some(plan) = plan {
        let reopener = Reopener { plan, told: Told::default() };
        server.open_again_with(reopener).map_err(Outcome::no)?;
    }
    let processor = arguments.cpu.get(number).copied();
    let host = HostWatch::of(name.as_str(), attachment);
    Ok(Begun { adapter: Adapter { server, name, processor }, host, up })
}

/// Waits until a signal asks to end, or a thread has ended.
fn wait_for_the_end(
    held: &HeldSignals,
    done: &Event,
    hosts: &mut [HostWatch],
) -> Result<(), Outcome> {
    loop {
        // The host is the same for all: one says what becomes of it.
        let changed = hosts.first().map(|host| host.attachment.as_fd());
        let bells = [Some(held.as_fd()), Some(done.as_fd()), changed];
        let [has_signal, is_done, _] = wait_any(bells, None).map_err(Outcome::no)?;
        if let Some(host) = hosts.first_mut() {
            host.follow();
        }
        if is_done {
            return Ok(());
        }
        if has_signal {
            while let Some(signal) = held.take().map_err(Outcome::no)? {
                if signal.asks_to_end() {
                    return Ok(());
                }
            }
        }
    }
}

impl Adapter {
    /// Serves until it is stopped.
    fn run(mut self) -> Result<Counted, Outcome> {
        if let Some(processor) = self.processor {
            // It was looked at before.
            let _ = os::processor::pin(processor);
        }
        let served = self.server.serve();
        served.map_err(|error| Outcome::No(format!("{}: {error}", self.name)))?;
        let counters = self.server.wire_counters();
        Ok(Counted {
            name: self.name.to_string(),
            frames_received: counters.frames_received,
            bytes_received: counters.bytes_received,
            frames_sent: counters.frames_sent,
            bytes_sent: counters.bytes_sent,
            dropped_behind: counters.dropped_behind,
            dropped_bad: counters.dropped_bad,
            dropped_unsent: counters.dropped_unsent,
        })
    }
}

/// Opens the wire of an adapter again when its interface is gone and there is one of its name.
#[derive(Debug)]
struct Reopener {
    plan: Plan,
    told: Told,
}

impl OpenWire for Reopener {
    fn open(&mut self) -> io::Result<Box<dyn Wire>> {
        let Reopener { plan, told } = self;
        let Plan { name, interface, .. } = &*plan;
        if !std::mem::replace(&mut told.is_gone, true) {
            say(format_args!(
                "siga: {name}: the interface {interface} is gone: its guests have no carrier until the interface is there again"
            ));
        }
        let opened = plan.open();
        match &opened {
            Ok(_) | Err(OpenWireError::NoInterface(_)) => told.why = None,
            Err(error) => {
                let why = error.to_string();
                if told.why.as_ref() != Some(&why) {
                    say(format_args!("siga: {name}: {why}; it is tried again"));
                    told.why = Some(why);
                }
            }
        }
        let (wire, up) = opened.map_err(io::Error::other)?;
        told.up = Some(up);
        Ok(wire)
    }

    fn on_use(&mut self, taken: io::Result<()>) {
        let told = std::mem::take(&mut self.told);
        if let Err(error) = taken {
            let name = self.plan.name;
            say(format_args!("siga: {name}: the wire does not take all addresses: {error}"));
        }
        if let Some(up) = told.up {
            say(format_args!("siga: {up} again"));
        }
    }
}

/// What was said of a wire that is gone, so that it is said once, and what is to be said of the one that was opened.
#[derive(Debug, Default)]
struct Told {
    is_gone: bool,
    why: Option<String>,
    up: Option<Up>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_within_the_limits_of_a_system_file() {
        for (text, ns) in [("5us", 5_000), ("250us", 250_000), ("1ms", 1_000_000), ("0", 0)] {
            assert_eq!(hold_off(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for bad in ["", "5", "us", "1s", "-1us", "5001us", "1.5us", "18446744073709551615ms"] {
            assert!(hold_off(bad).is_err(), "{bad}");
        }
        assert!(gap("100us").is_ok());
        assert_eq!(gap("101us"), Err("must be like 5us, 1ms or 0, and at most 100us".to_owned()));
    }
}
