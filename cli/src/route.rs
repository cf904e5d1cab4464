//! `siga route`: packets between LANs, between the VLANs of one, and over lines.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::IpAddr;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use host::report::SystemReport;
use os::signals::HeldSignals;
use port::member::Options;
use serde::Serialize;
use siga::Wait;
use siga::lan::Lan;
use siga::line::{Line, State};
use siga::tcpip::{
    Counter, Prefix, Routing, STACK_LANS_MAX, Stack, StackLine, StackOptions, StackVlan,
};

use crate::member::{UpLine, WaitKind, attach_line, join_at, pin};
use crate::outcome::Outcome;
use crate::output::{Output, print_json, say, try_say};
use crate::peer::attach_name;
use crate::present::report;
use crate::reported::missing;
use crate::socket::Socket;
use crate::written::{AtLan, WrittenLine, WrittenRoute, WrittenVlan};

/// Pass packets on between LANs, between the VLANs of one, and over lines
///
/// Becomes a member of each LAN, and passes on what the members send to addresses elsewhere: they name its address there as
/// their gateway, as with `siga run --gateway`. All LANs, and VLANs, that it is at are joined by it, and members
/// that the system file keeps apart reach each other over it, unless the system file says from which networks it may pass packets on into each LAN
/// (`routes_from`). Each LAN needs a range of its own in the system file. A source is believed only of
/// those over which packets to that source would go. `siga query tcpip` shows its interfaces and routes. Runs until Ctrl-C. Needs no
/// rights but to attach to the host.
///
/// For example, with a host that has two LANs (siga up systems/two-lans.toml): siga route hs0:10.1.0.1 hs1:10.2.0.1
///
/// A line leads to another router, with the LANs behind that. Each runs a command, as with systems/line-drivers.toml: siga route hs0:10.1.0.1 --name
/// left0 --line line0=LEFT:10.9.0.1,RIGHT:10.9.0.2 --to 10.2.0.0/24=10.9.0.2, and siga route hs1:10.2.0.1 --name right0 --line
/// line0=RIGHT:10.9.0.2,LEFT:10.9.0.1 --to 10.1.0.0/24=10.9.0.1
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The LANs, each with the addresses that become ours there, like hs0:10.1.0.1 or hs0:10.1.0.1,fd00:1::1, that of the
    /// LAN's range first; without an address the host chooses one
    #[arg(required = true, value_name = "LAN[:ADDRESS]")]
    lans: Vec<AtLan>,
    /// A way to addresses that no member has, over a member that passes packets on, like 10.9.0.0/16=10.1.0.9 or, by
    /// the name of its guest, 10.9.0.0/16=router
    #[arg(long, value_name = "NETWORK=GATEWAY")]
    to: Vec<WrittenRoute>,
    /// A VLAN that the system file puts us into, and the network that is in it, like hs0:7=10.1.7.0/24
    #[arg(long, value_name = "LAN:NUMBER=NETWORK")]
    vlan: Vec<WrittenVlan>,
    /// A line: its name, the guest and the address of this end and those of the other, its MTU [default: the system file's, or 9216],
    /// and ctc if the host serves it over a channel-to-channel adapter, like line0=LEFT:10.9.0.1,RIGHT:10.9.0.2 or line0=LEFT:10.9.0.1,RIGHT:10.9.0.2,32760,ctc
    #[arg(long, value_name = "NAME=GUEST:ADDRESS,GUEST:ADDRESS[,MTU][,ctc]")]
    line: Vec<WrittenLine>,
    /// The names to attach under, one for each LAN, in capital letters or small ones [default: those that the system file keeps
    /// the addresses for, or new ones]
    #[arg(long, value_parser = attach_name)]
    name: Vec<String>,
    /// The processor that moves the packets [default: any]
    #[arg(long, value_name = "NUMBER")]
    cpu: Option<usize>,
    /// How to wait for packets: asleep, looking for some time first, or looking all the time
    #[arg(long, value_enum, default_value = "block")]
    wait: WaitKind,
    #[command(flatten)]
    socket: Socket,
    #[command(flatten)]
    output: Output,
}

/// Where packets are passed on, as `--json` prints it at the beginning.
#[derive(Debug, Serialize)]
struct Up {
    members: Vec<UpMember>,
    lines: Vec<UpLine>,
}

#[derive(Debug, Serialize)]
struct UpMember {
    name: String,
    lan: String,
    addresses: Vec<IpAddr>,
    /// The networks from which packets are passed on into the LAN. All if there are none.
    routes_from: Vec<String>,
}

/// Passes packets on until a signal ends it.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let Arguments { lans, to, line, name, cpu, output, .. } = arguments;
    let held = HeldSignals::hold().map_err(Outcome::no)?;
    pin(*cpu)?;
    for (at, one) in lans.iter().enumerate() {
        if lans[..at].iter().any(|other| other.lan == one.lan) {
            return Err(Outcome::Usage(format!("{} is named twice: name each LAN once", one.lan)));
        }
    }
    if lans.len() + line.len() > STACK_LANS_MAX {
        let count = lans.len() + line.len();
        let what = match line.is_empty() {
            true => format!("{count} LANs: must be {STACK_LANS_MAX} at most"),
            false => format!("{count} LANs and lines: must be {STACK_LANS_MAX} at most"),
        };
        return Err(Outcome::Usage(what));
    }
    if !name.is_empty() && name.len() != lans.len() {
        let what = format!("{} names for {} LANs: must be one for each", name.len(), lans.len());
        return Err(Outcome::Usage(what));
    }
    let vlans = vlans(arguments)?;
    let path = arguments.socket.path()?;
    // Before anybody is attached: a line that the system file has otherwise would never be up.
    let line_options = {
        let report = (!line.is_empty()).then(|| report(&path)).flatten();
        let wait = Wait::from(arguments.wait);
        let options = line.iter().map(|line| line.options(report.as_ref(), wait));
        options.collect::<Result<Vec<_>, Outcome>>()?
    };
    let mut joined: Vec<Lan> =
        (0..lans.len()).map(|number| join(arguments, number)).collect::<Result<_, _>>()?;
    let members = joined.iter().map(|lan| UpMember {
        name: lan.own().name.to_string(),
        lan: lan.name().to_string(),
        addresses: lan.addresses().to_vec(),
        routes_from: lan.own().routes_from.iter().map(Prefix::to_string).collect(),
    });
    let members = members.collect();
    let ends = line.iter().zip(&line_options);
    let ends = ends.map(|(line, options)| attach_line(&path, line.guest, &line.end, options));
    let ends = ends.collect::<Result<Vec<Line>, Outcome>>()?;
    let lines = line.iter().zip(&line_options);
    let lines = lines.map(|(line, options)| UpLine::new(line.guest, &line.end, options));
    let up = Up { members, lines: lines.collect() };
    let routes = to.iter().map(|written| written.route(&mut joined)).collect::<Result<_, _>>()?;
    let routing = Routing { vlans, routes, forwards: true };
    // The stack's thread passes packets on. This one waits for signals.
    let stack = Stack::with_lines(joined, ends, &routing, &StackOptions::default());
    let stack = stack.map_err(Outcome::no)?;
    if output.json {
        // A pipe that nobody reads is no reason to end.
        let _ = print_json(&up);
    } else {
        let member = |UpMember { name, lan, addresses, routes_from }: &UpMember| {
            let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            let from = match &routes_from[..] {
                [] => "all networks".to_owned(),
                networks => networks.join(", "),
            };
            format!("{name} on {lan} as {}, from {from}", addresses.join(", "))
        };
        let members = up.members.iter().map(member);
        let all: Vec<String> = members.chain(up.lines.iter().map(UpLine::to_string)).collect();
        say(format_args!("passing packets on: {}", all.join("; ")));
    }
    let (mut told, mut told_of_lines) = (Told::default(), ToldOfLines::default());
    loop {
        os::poller::wait_readable(&held, Some(LOOK)).map_err(Outcome::no)?;
        told.tell(&stack);
        told_of_lines.tell(&path, &stack);
        while let Some(signal) = held.take().map_err(Outcome::no)? {
            if signal.asks_to_end() {
                if output.json {
                    let _ = print_json(&counted(&stack));
                }
                return Ok(());
            }
        }
    }
}

/// How often a router looks whether a new host has given it its addresses.
const LOOK: Duration = Duration::from_millis(500);

/// The last message about addresses that a new host does not give us, so that it is printed once.
#[derive(Debug, Default)]
pub struct Told(Option<String>);

impl Told {
    /// Says once what is not ours, and when it is again.
    pub fn tell(&mut self, stack: &Stack) {
        let Ok(refused) = stack.refused() else { return };
        if refused == self.0 {
            return;
        }
        let is_said = match &refused {
            Some(refused) => try_say(format_args!("siga: {refused}; the host is asked again")),
            None => try_say("siga: the host has given us all addresses again"),
        };
        if is_said {
            self.0 = refused;
        }
    }
}

/// What was said of each line, by its number in the stack, so that it is said once.
#[derive(Debug, Default)]
struct ToldOfLines {
    said: BTreeMap<usize, String>,
    /// The lines that were down at the last call.
    down: BTreeSet<usize>,
    asked: Asked,
}

impl ToldOfLines {
    /// Says which lines are up, and which are down and why, where something else was said before. The host is asked why a line is down.
    fn tell(&mut self, socket: &Path, stack: &Stack) {
        let lines = stack.lines().unwrap_or_default();
        let is_up = |line: &StackLine| matches!(line.state, State::Idle | State::Tx);
        let down = lines.iter().filter(|line| !is_up(line)).map(|line| line.number).collect();
        if self.down != down {
            // An answer to what was asked before says nothing of these.
            self.asked.outdate();
            self.down = down;
        }
        for line in &lines {
            let name = line.name.map(|name| name.to_string()).unwrap_or_default();
            let partner = line.end.partner;
            let what = match is_up(line) {
                true => format!("siga: {name} is up, to {partner}"),
                false => {
                    let Some(why) = self.why_down(socket, line) else { continue };
                    format!("siga: {name} is down: {why}")
                }
            };
            if self.said.get(&line.number) != Some(&what) && try_say(&what) {
                self.said.insert(line.number, what);
            }
        }
    }

    /// Returns why a line is down, as far as that is known. None until the host has answered.
    fn why_down(&mut self, socket: &Path, line: &StackLine) -> Option<String> {
        let partner = line.end.partner;
        if line.state == State::ConnectError {
            return Some(format!(
                "the host does not allow the connection to {partner}, or a limit is reached: the system file must have the line"
            ));
        }
        let Some(report) = self.asked.report(socket)? else {
            return Some(format!(
                "there is no connection to {partner}, and the host does not say why"
            ));
        };
        let mut lines = report.lines.iter();
        let of_host = lines.find(|of| line.name.is_some_and(|name| of.name == name.as_str()));
        let missing = of_host.map(missing).filter(|missing| !missing.is_empty());
        Some(missing.unwrap_or_else(|| format!("{partner} is not connected")))
    }
}

/// How soon a host is asked again why lines are down. It is twice as long each time, up to [`ASK_MAX`].
const ASK: Duration = Duration::from_secs(2);
const ASK_MAX: Duration = Duration::from_secs(64);

/// The host's report, for which a thread of its own waits: the host may take seconds to answer, and signals are not to wait so long.
#[derive(Debug)]
struct Asked {
    /// The thread that asks. There is one at most.
    asking: Option<JoinHandle<Option<SystemReport>>>,
    /// Set if its answer is of a time that is over.
    is_outdated: bool,
    /// The last answer, and when it was taken. The answer is None if the host gave none.
    latest: Option<(Instant, Option<SystemReport>)>,
    /// How old an answer is before the host is asked again.
    pause: Duration,
}

impl Default for Asked {
    fn default() -> Asked {
        Asked { asking: None, is_outdated: false, latest: None, pause: ASK }
    }
}

impl Asked {
    /// Drops the last answer, and that which is awaited.
    fn outdate(&mut self) {
        (self.latest, self.pause) = (None, ASK);
        self.is_outdated = self.asking.is_some();
    }

    /// Returns the last answer, which is None if the host gave none, and has the host asked again if that answer is old. None while there is none.
    fn report(&mut self, socket: &Path) -> Option<Option<&SystemReport>> {
        if let Some(asking) = self.asking.take_if(|asking| asking.is_finished()) {
            let answer = asking.join().unwrap_or_default();
            if !mem::take(&mut self.is_outdated) {
                if self.latest.as_ref().is_some_and(|(_, latest)| latest.is_some()) {
                    self.pause = (self.pause * 2).min(ASK_MAX);
                }
                self.latest = Some((Instant::now(), answer));
            }
        }
        let is_due = self.latest.as_ref().is_none_or(|(at, _)| at.elapsed() >= self.pause);
        if is_due && self.asking.is_none() {
            let socket = socket.to_owned();
            let thread = thread::Builder::new().name("siga question".into());
            let asking = thread.spawn(move || report(&socket));
            match asking {
                Ok(asking) => self.asking = Some(asking),
                Err(_) => self.latest = Some((Instant::now(), None)),
            }
        }
        self.latest.as_ref().map(|(_, report)| report.as_ref())
    }
}

/// Collects the counters that are not zero, as `--json` prints them at the end.
pub fn counted(stack: &Stack) -> BTreeMap<&'static str, u64> {
    let all = Counter::ALL.into_iter().map(|counter| (counter.name(), stack.counter(counter)));
    all.filter(|(_, count)| *count > 0).collect()
}

/// The VLANs, each with all its networks.
fn vlans(arguments: &Arguments) -> Result<Vec<StackVlan>, Outcome> {
    let mut vlans: Vec<StackVlan> = Vec::new();
    for WrittenVlan { lan, number, network } in &arguments.vlan {
        let at = arguments.lans.iter().position(|one| one.lan == *lan);
        let lan = at.ok_or_else(|| {
            Outcome::Usage(format!("--vlan {lan}:{number}: {lan} is none of the LANs named"))
        })?;
        match vlans.iter_mut().find(|vlan| (vlan.lan, vlan.number) == (lan, *number)) {
            Some(vlan) => vlan.networks.push(*network),
            None => vlans.push(StackVlan { lan, number: *number, networks: vec![*network] }),
        }
    }
    Ok(vlans)
}

/// Becomes a member of one of the LANs.
fn join(arguments: &Arguments, number: usize) -> Result<Lan, Outcome> {
    let AtLan { lan, addresses } = &arguments.lans[number];
    let options = Options {
        socket: arguments.socket.path()?,
        lan: lan.clone(),
        name: arguments.name.get(number).cloned(),
        routes: true,
        wait: Wait::from(arguments.wait),
        ..Options::default()
    };
    join_at(options, addresses, "ROUTE".as_ref())
}
