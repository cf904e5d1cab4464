//! `siga tcpip serve`: a TCPIP machine in a process of its own.

use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::Args;
use host::system::System;
use host::system::distributed::{DistributedPart, DistributedRule, SpreadRule};
use host::system::interface::InterfaceRule;
use host::system::machine::{INTERFACES_MAX, MachineRule, member_name};
use os::event::Event;
use os::poller::wait_any;
use os::signals::HeldSignals;
use port::member::Options;
use serde::Serialize;
use siga::error::Problem;
use siga::line::{LineEnd, LineOptions};
use siga::tcpip::{
    ClientLimits, Distribution, Links, Machine, MachineOptions, Placement, Prefix, Route, Routing,
    ServiceCounters, Spread, StackOptions,
};
use siga::{AttachError, Attachment, AttachmentState, Guest, Name, Wait};

use super::devices::{UpDevice, default_route, open_device, say_change};
use crate::children::Service;
use crate::lines::medium;
use crate::member::{UpLine, WaitKind, attach_line, join_at};
use crate::outcome::Outcome;
use crate::output::{Output, print_json, say};
use crate::peer::attach_name;
use crate::present::report;
use crate::processors::{take, why_not};
use crate::socket::Socket;
use crate::written::{AtLan, WrittenDriver, WrittenLine, WrittenRoute};

/// Be a TCPIP machine: a stack that serves the sockets of other guests
///
/// Programs become its clients with `siga::tcpip::Stack::of_machine`, and open sockets without a LAN or an address of their own. With --system
/// the machine is one of those that the system file describes as [[tcpip]], whose host runs with --without-tcpip; `siga up` starts them otherwise.
/// `siga query tcpip` shows its connections. Runs until Ctrl-C. Its clients have errors at once then, and can attach to the next machine of the name.
///
/// For example: siga tcpip serve TCPIP hs0:10.1.0.5
#[derive(Debug, Args)]
pub struct Serve {
    /// The name to serve under, in capital letters or small ones
    #[arg(value_parser = attach_name)]
    name: String,
    /// The LANs that it is at, each with the addresses that become its own there, like hs0:10.1.0.5; without an address the host chooses one
    #[arg(required_unless_present_any = ["system", "line"], value_name = "LAN[:ADDRESS]")]
    lans: Vec<AtLan>,
    /// A line that it is at: its name, the guest and the address of this end and those of the other, its MTU [default: the system file's, or 9216], and ctc if the
    /// host serves it over a channel-to-channel adapter, like line0=LEFT:10.9.0.1,RIGHT:10.9.0.2 or line0=LEFT:10.9.0.1,RIGHT:10.9.0.2,ctc
    #[arg(long, value_name = "NAME=GUEST:ADDRESS,GUEST:ADDRESS[,MTU][,ctc]")]
    line: Vec<WrittenLine>,
    /// A way to addresses elsewhere, over a member of a LAN or the other end of a line that passes packets on, like 10.9.0.0/16=10.1.0.9 or, by the name
    /// of a member's guest, 10.9.0.0/16=router
    #[arg(long, value_name = "NETWORK=GATEWAY")]
    to: Vec<WrittenRoute>,
    /// Be the machine of this name that the system file describes, with its LANs, routes and limits
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lans", "line", "to", "sockets_max", "buffers_max", "cpu", "driver", "wait", "keep_apart"])]
    system: Option<PathBuf>,
    /// Sockets that a client may have at once
    #[arg(long, value_name = "NUMBER", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    sockets_max: u64,
    /// MiB that the sockets of a client may keep at the machine
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    buffers_max: u64,
    /// The processor of the machine [default: any]
    #[arg(long, value_name = "NUMBER")]
    cpu: Option<usize>,
    /// The processor of its own that the driver of a LAN has, like hs0=1; without it the machine does the driver's work. siga set tcpip moves drivers later
    #[arg(long, value_name = "LAN=CPU")]
    driver: Vec<WrittenDriver>,
    /// How to wait for clients and packets: asleep, looking for some time first, or looking all the time
    #[arg(long, value_enum, default_value = "adaptive")]
    wait: WaitKind,
    /// Have clients that talk with each other do that over the machine alone: they get no path of their own
    #[arg(long)]
    keep_apart: bool,
    /// End when standard input ends, as it does with the process that has started this one
    #[arg(long, hide = true)]
    until_input_ends: bool,
    #[command(flatten)]
    socket: Socket,
    #[command(flatten)]
    output: Output,
}

/// A machine that is there, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Up {
    name: String,
    members: Vec<UpMember>,
    lines: Vec<UpLine>,
    devices: Vec<UpDevice>,
}

#[derive(Debug, Serialize)]
struct UpMember {
    name: String,
    lan: String,
    addresses: Vec<IpAddr>,
}

/// What the machine has done, as `--json` prints it at the end.
#[derive(Debug, Serialize)]
struct Counted {
    clients_attached: u64,
    pairs_introduced: u64,
    faults: u64,
}

/// What a machine is to be.
struct Plan {
    socket: PathBuf,
    options: MachineOptions,
    lans: Vec<PlannedLan>,
    lines: Vec<PlannedLine>,
    devices: Vec<InterfaceRule>,
    routes: Vec<Route>,
    /// Routes whose gateways are found once the machine is on its LANs.
    to: Vec<WrittenRoute>,
    processor: Option<usize>,
    /// Its description in the system file.
    rule: Option<MachineRule>,
}

struct PlannedLan {
    /// The guest that is the member, if it is to have a name of its own.
    member: Option<String>,
    lan: String,
    addresses: Vec<IpAddr>,
    mtu: Option<u32>,
    driver: Placement,
}

struct PlannedLine {
    guest: Name,
    end: LineEnd,
    options: LineOptions,
}

/// The machines that a system file describes, of a host that listens at `socket`.
pub fn machines(system: &System, file: &Path, socket: &Path) -> Vec<Service> {
    let service = |machine: &MachineRule| Service {
        what: format!("the TCPIP machine {}", machine.name),
        words: vec![
            "tcpip".to_owned(),
            "serve".to_owned(),
            machine.name.to_string(),
            format!("--system={}", file.display()),
            format!("--socket={}", socket.display()),
        ],
    };
    system.machines.iter().map(service).collect()
}

pub fn serve(arguments: &Serve) -> Result<(), Outcome> {
    let Serve { name, system, output, until_input_ends, .. } = arguments;
    let held = HeldSignals::hold().map_err(Outcome::no)?;
    let plan = match system {
        Some(file) => of_file(file, name, &arguments.socket)?,
        None => of_words(arguments)?,
    };
    let processor = plan.processor;
    let (mut machine, attachment, up) = begin(name, plan)?;
    // A machine that a host started ends with the host.
    let mut host = (!until_input_ends).then(|| HostWatch::of(name, attachment));
    let (stopper, done) = (machine.stopper(), Arc::new(Event::new().map_err(Outcome::no)?));
    let ended = Ended(done.clone());
    let serving = thread::Builder::new().name("siga machine".into()).spawn(move || {
        let _ended = ended;
        take(processor, "the machine");
        let served = machine.serve();
        (served, machine.counters())
    });
    let serving = serving.map_err(Outcome::no)?;
    announce(&up, *output);
    let waited = wait_for_the_end(&held, *until_input_ends, &done, &mut host);
    stopper.stop();
    let joined = serving.join();
    waited?;
    let (served, counters) =
        joined.map_err(|_| Outcome::No("the machine has ended: its thread has panicked".into()))?;
    if output.json {
        let ServiceCounters { attached, introduced, faults } = counters;
        let (clients_attached, pairs_introduced) = (attached, introduced);
        let _ = print_json(&Counted { clients_attached, pairs_introduced, faults });
    }
    served.map_err(Outcome::no)
}

/// Says that a thread that serves has ended, also if it panics.
pub struct Ended(pub Arc<Event>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Waits until a signal asks to end, standard input ends if it is to count, or the machine has ended.
fn wait_for_the_end(
    held: &HeldSignals,
    reads_input: bool,
    done: &Event,
    host: &mut Option<HostWatch>,
) -> Result<(), Outcome> {
    let input = io::stdin();
    let input = reads_input.then(|| input.as_fd());
    loop {
        let changed = host.as_ref().map(|host| host.attachment.as_fd());
        let bells = [Some(held.as_fd()), input, Some(done.as_fd()), changed];
        let [has_signal, has_input, is_done, _] = wait_any(bells, None).map_err(Outcome::no)?;
        if let Some(host) = host {
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
        if has_input {
            match io::stdin().read(&mut [0; 64]) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Ok(()),
                _ => {}
            }
        }
    }
}

/// Says when the host ends, when one refuses the guest that serves, and when there is another. Clients that are there go on meanwhile.
pub struct HostWatch {
    name: String,
    pub attachment: Attachment,
    said: AttachmentState,
}

impl HostWatch {
    pub fn of(name: &str, attachment: Attachment) -> HostWatch {
        HostWatch { name: name.to_owned(), said: AttachmentState::Attached, attachment }
    }

    /// Says what has changed since the last call.
    pub fn follow(&mut self) {
        let state = self.attachment.state();
        if self.said == state {
            return;
        }
        match state {
            AttachmentState::Attached => say("siga: there is a host again"),
            AttachmentState::Refused(problem) => say(format_args!(
                "siga: the host refuses {}: {problem}; it is asked again, and clients go on meanwhile",
                self.name
            )),
            _ if self.said == AttachmentState::Attached => {
                say("siga: the host is gone: clients go on, and new ones come with the next host")
            }
            // It was gone, or is gone again.
            _ => {}
        }
        self.said = state;
    }
}

/// The machine that the command's words describe.
fn of_words(arguments: &Serve) -> Result<Plan, Outcome> {
    let Serve { name, lans, line, to, sockets_max, buffers_max, cpu, driver, .. } = arguments;
    let Serve { wait, keep_apart, .. } = arguments;
    let machine: Name = name.parse().expect("it was checked as a word of the command");
    if lans.len() + line.len() > INTERFACES_MAX {
        let (count, right) = (lans.len() + line.len(), format!("must be at most {INTERFACES_MAX}"));
        return Err(Outcome::Usage(format!("{count} LANs and lines: {right}")));
    }
    if let Some(own) = line.iter().find(|line| line.guest == machine) {
        let what = format!("--line {}: {machine} is the machine itself", own.name);
        return Err(Outcome::Usage(format!("{what}: must be another guest")));
    }
    for (number, WrittenDriver { lan, processor }) in driver.iter().enumerate() {
        let wrong = |right| Err(Outcome::Usage(format!("--driver {lan}={processor}: {right}")));
        if lans.iter().all(|at| at.lan != *lan) {
            return wrong("must be of one of the machine's LANs");
        }
        if driver[..number].iter().any(|other| other.lan == *lan) {
            return wrong("must be the only one of this LAN");
        }
    }
    for WrittenDriver { lan, processor } in
        driver.iter().filter(|driver| Some(driver.processor) == *cpu)
    {
        say(format_args!(
            "siga: warning: processor {processor} is the machine's: it does the work of the driver of {lan} itself"
        ));
    }
    let driver_of = |lan: &str| match driver.iter().find(|driver| driver.lan == lan) {
        // On the processor of the machine a thread of its own would only take turns with it.
        Some(driver) if Some(driver.processor) != *cpu => Placement::Processor(driver.processor),
        _ => Placement::Inline,
    };
    let limits = ClientLimits {
        sockets_max: *sockets_max as usize,
        buffers_max: (*buffers_max as usize) << 20,
        share: 1,
        introduce: !*keep_apart,
    };
    let wait = Wait::from(*wait);
    let lans = lans.iter().enumerate().map(|(at, AtLan { lan, addresses })| PlannedLan {
        member: Some(member_name(machine, at).to_string()),
        lan: lan.clone(),
        addresses: addresses.clone(),
        mtu: None,
        driver: driver_of(lan),
    });
    let socket = arguments.socket.path()?;
    // Before anybody is attached: a line that the system file has otherwise would never be up.
    let report = (!line.is_empty()).then(|| report(&socket)).flatten();
    let lines = line.iter().map(|line| {
        let options = line.options(report.as_ref(), wait)?;
        Ok(PlannedLine { guest: line.guest, end: line.end, options })
    });
    Ok(Plan {
        lines: lines.collect::<Result<_, Outcome>>()?,
        devices: Vec::new(),
        to: to.clone(),
        socket,
        options: MachineOptions { wait, limits, ..MachineOptions::default() },
        lans: lans.collect(),
        routes: Vec::new(),
        processor: *cpu,
        rule: None,
    })
}

/// The machine of this name that a system file describes.
fn of_file(file: &Path, name: &str, socket: &Socket) -> Result<Plan, Outcome> {
    let system = System::read(file)?;
    let found = system.machines.iter().find(|machine| machine.name.as_str() == name);
    let Some(rule) = found else {
        let what = format!("{}: there is no [[tcpip]] of the name {name}", file.display());
        return Err(Outcome::Usage(what));
    };
    let socket = system.socket.clone().map_or_else(|| socket.path(), Ok)?;
    let stack = StackOptions {
        receive_bytes: rule.connection_bytes as usize,
        send_bytes: rule.connection_bytes as usize,
        ..StackOptions::default()
    };
    let wait = Wait::from(WaitKind::from(rule.wait));
    let lans = rule.interfaces.iter().map(|interface| PlannedLan {
        member: Some(interface.member.to_string()),
        lan: interface.lan.to_string(),
        addresses: interface.addresses.clone(),
        mtu: interface.mtu,
        // On the processor of the machine a thread of its own would only take turns with it.
        driver: match interface.processor {
            Some(number) if Some(number) != rule.processor => Placement::Processor(number),
            _ => Placement::Inline,
        },
    });
    let lines = rule.lines.iter().filter_map(|(guest, name)| {
        let line = system.lines.iter().find(|line| line.name == *name)?;
        let [own, partner] = line.end_of(*guest)?;
        Some(PlannedLine {
            guest: *guest,
            end: LineEnd {
                partner: partner.guest,
                address: own.address,
                peer_address: partner.address,
            },
            options: LineOptions {
                medium: medium(line.kind),
                name: Some(*name),
                mtu: line.mtu,
                wait,
            },
        })
    });
    let routes = rule.routes.iter().filter_map(|(to, via)| {
        Some(Route { to: Prefix::of(to.addr(), to.prefix_len())?, via: *via })
    });
    // Of two routes to one network the first counts: the file's own go first.
    let gateways = rule.osa.iter().filter_map(|device| default_route(device.gateway?));
    Ok(Plan {
        socket,
        options: MachineOptions { wait, stack, ..MachineOptions::default() },
        lans: lans.collect(),
        lines: lines.collect(),
        devices: rule.osa.clone(),
        routes: routes.chain(gateways).collect(),
        to: Vec::new(),
        processor: rule.processor,
        rule: Some(rule.clone()),
    })
}

/// Joins the LANs, and begins to be the machine.
fn begin(name: &str, plan: Plan) -> Result<(Machine, Attachment, Up), Outcome> {
    let Plan { socket, options, lans, lines, devices, mut routes, to, processor, rule } = plan;
    let name = name.to_owned();
    // First under the machine's own name, so that an error names the machine, not its member TCPIP1.
    let guest = Guest::attach(&socket, &name).map_err(|error| not_attached(&socket, &error))?;
    let attachment = guest.attachment().map_err(Outcome::no)?;
    let (mut joined, mut members, mut mtus) = (Vec::new(), Vec::new(), Vec::new());
    let mut drivers = Vec::new();
    for PlannedLan { member, lan, addresses, mtu, driver } in lans {
        let member = Options {
            socket: socket.clone(),
            lan,
            name: member,
            wait: options.wait,
            ..Options::default()
        };
        let lan = join_at(member, &addresses, name.as_ref())?;
        members.push(UpMember {
            name: lan.own().name.to_string(),
            lan: lan.name().to_string(),
            addresses: lan.addresses().to_vec(),
        });
        mtus.extend(mtu.map(|mtu| (joined.len(), mtu as usize)));
        drivers.push((lan.name(), driver));
        joined.push(lan);
    }
    let (mut ends, mut up_lines) = (Vec::new(), Vec::new());
    for PlannedLine { guest, end, options } in lines {
        up_lines.push(UpLine::new(guest, &end, &options));
        ends.push(attach_line(&socket, guest, &end, &options)?);
    }
    let (mut opened, mut up_devices) = (Vec::new(), Vec::new());
    for device in &devices {
        up_devices.push(UpDevice::new(device));
        opened.push(open_device(&socket, device, options.wait)?);
        // On the processor of the machine it would be inline, too.
        if device.processor.is_some_and(|number| Some(number) != processor) {
            say(format_args!(
                "siga: warning: devices at adapters have no processors of their own: the driver of {} runs inline, on the processor of the machine",
                device.adapter
            ));
        }
    }
    for written in to {
        routes.push(written.route(&mut joined)?);
    }
    let routing = Routing { routes, ..Routing::default() };
    let links = Links { lans: joined, lines: ends, devices: opened };
    let mut machine = Machine::at(guest, links, &routing, &options).map_err(Outcome::no)?;
    if !devices.is_empty() {
        machine.watch_devices(move |change| say_change(&devices, change));
    }
    for (lan, mtu) in mtus {
        machine.set_mtu(lan, mtu).map_err(Outcome::no)?;
    }
    for (lan, (name, driver)) in drivers.into_iter().enumerate() {
        let placed = machine.set_driver(lan, driver).map_err(Outcome::no)?;
        if placed != driver
            && let Placement::Processor(processor) = driver
        {
            let why = why_not(processor);
            say(format_args!(
                "siga: warning: {why}: the driver of {name} runs inline, on the processor of the machine"
            ));
        }
    }
    if let Some(rule) = rule {
        if !rule.distributed.is_empty() {
            machine.set_distributions(rule.distributed.iter().map(distribution).collect());
        }
        machine.set_limits(move |guest| {
            let limits = rule.limits_of(guest);
            ClientLimits {
                sockets_max: limits.sockets_max as usize,
                buffers_max: limits.buffers_bytes_max as usize,
                share: limits.share,
                introduce: rule.introduce,
            }
        });
    }
    Ok((machine, attachment, Up { name, members, lines: up_lines, devices: up_devices }))
}

/// A distributed address, as stacks know it.
fn distribution(rule: &DistributedRule) -> Distribution {
    let own = |parts: &[DistributedPart]| parts.iter().map(|part| part.address).collect();
    Distribution {
        address: rule.address,
        distributors: own(&rule.distributors),
        targets: own(&rule.targets),
        spread: match rule.spread {
            SpreadRule::RoundRobin => Spread::RoundRobin,
            SpreadRule::Active => Spread::Active,
        },
        flows_max: rule.connections_max as usize,
    }
}

/// Explains why the machine is not attached. If another has its name, says which process that is, where this user may ask.
fn not_attached(socket: &Path, error: &AttachError) -> Outcome {
    let AttachError::Refused { name, problem: Problem::NameTaken } = error else {
        return Outcome::no(error);
    };
    let report = report(socket).unwrap_or_default();
    let guest = report.guests.iter().find(|guest| guest.name == name.as_str());
    let process = guest.and_then(|guest| guest.process);
    let process = process.map_or(String::new(), |number| format!(" by the process {number}"));
    let right = "must be another name; a host serves each [[tcpip]] of its system file itself, unless it was started with siga up --without-tcpip";
    Outcome::No(format!("{name} is attached already{process}: {right}"))
}

fn announce(up: &Up, output: Output) {
    if output.json {
        // A pipe that nobody reads is no reason to end.
        let _ = print_json(up);
        return;
    }
    let member = |UpMember { name, lan, addresses }: &UpMember| {
        let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        format!("{} on {lan} as {name}", addresses.join(", "))
    };
    let lines = up.lines.iter().map(UpLine::to_string);
    let devices = up.devices.iter().map(UpDevice::to_string);
    let places: Vec<String> = up.members.iter().map(member).chain(lines).chain(devices).collect();
    say(format_args!("{} serves sockets: {}", up.name, places.join("; ")));
}
