//! Connections of TCP between programs whose stack is a TCPIP machine's, or their own: streams, requests, and a connection for each
//! request.
//!
//! ```text
//! client -- client_stack -- LAN -- server_stack -- server     hipersockets: two machines on a LAN
//! client -- client_stack -- client_adapter -- wire -- server_adapter -- server_stack -- server    qdio: two machines at adapters
//! client -- client_stack -------------------------- server    machine: both are clients of one
//! client ------------------------------------------ server    introduced: the same, and the machine gives them a path of their own
//! client -- client_stack = server                             machine-own: the server is the program that serves the machine
//! client -- client_stack -- LAN ------------------- server    machine-lan: the server has a stack of its own
//! client ------------------ LAN ------------------- server    lan: each has one
//! source ------------------ line ------------------ target    iucv: each has one, at a line
//! client ------------------ kernel ---------------- server    veth, loopback
//! ```
//!
//! A machine is a process of its own. In a stream without requests the programs are source and target: bytes go there, and the
//! target says that it has them. Each of several pairs is a process for each of its programs, with connections of its own.

mod beside;
pub(super) mod talk;

use self::talk::{Counted, Talk, talk};
use super::prelude::*;
use super::stream::{self, GAP_US};
use super::{LATENCIES, serve_until_told};
use crate::factor::is_absent;
use crate::measure::threads_work_for;
use crate::placement::Placement;
use crate::role::{
    Address, CLIENT, CLIENT_ADAPTER, CLIENT_STACK, HOST, NEIGHBOUR, SERVER, SERVER_ADAPTER,
    SERVER_STACK, SOURCE, TARGET, ThreadOf, host,
};
use crate::transport::adapters::{self, ServedAdapters};
use crate::transport::stacks::{
    DRIVER_THREADS, MACHINES, MachineDials, ServedLines, ServedMachine, SocketDials, Whose,
};
use crate::transport::{self, Can, KernelDials, lan};
use net::tcpip::service::SHARE_MAX;
use siga::Wait;
use siga::host::Embedded;
use siga::line::CTCM_MTU_MAX;

pub(super) const STREAM: Workload = Workload {
    name: "network-stream",
    summary: "bytes go one way over connections of TCP: to a target, or to a client that has asked for them",
    factors: &[
        Factor { domain: Domain::Words(LINKS), ..LINK },
        MTU,
        PAIRS,
        DIRECTION,
        REQUEST_BYTES_OF_A_STREAM,
        Factor { usual: &["20 MiB"], ..BYTES },
        REPLY_BYTES,
        Factor {
            name: "write",
            meaning: "bytes that a program writes at once: one MTU, or so many",
            domain: Domain::BytesOr { word: "mtu", least: 64, most: 16 << 20 },
            usual: &["64 KiB"],
        },
        DEVICE_CPU,
        MBIT,
        ADAPTER_WAIT,
        HOLD_OFF_US,
        GAP_US,
        OFFLOADS,
        BUFFER_BYTES,
        MACHINES_OF_CLIENTS,
        IDLE_CLIENTS,
        BESIDE,
        SHARE,
        WAIT,
        STACK_WAIT,
    ],
    roles: &[
        host(hosts),
        ADAPTER_OF_CLIENTS,
        MACHINE_OF_CLIENTS,
        MACHINE_OF_SERVERS,
        OF_IDLE_CLIENTS,
        A_NEIGHBOUR,
        RoleSpec { count: |levels| if is_put(levels) { pairs(levels) } else { 0 }, ..A_SOURCE },
        RoleSpec { count: |levels| if is_put(levels) { pairs(levels) } else { 0 }, ..A_TARGET },
        RoleSpec { count: |levels| if is_put(levels) { 0 } else { pairs(levels) }, ..A_CLIENT },
        RoleSpec { count: |levels| if is_put(levels) { 0 } else { pairs(levels) }, ..A_SERVER },
        DRIVER_OF_CLIENTS,
        DRIVER_OF_SERVERS,
        ADAPTER_OF_SERVERS,
    ],
    measures: &[&["rate_bytes_per_s"], LATENCIES, &["cpu_s_per_mib"]],
    fit,
    allow,
    work: |order, control| {
        if sockets(&order.factors) == Sockets::Pipe {
            return pipe(order, control);
        }
        let write_bytes = match order.factors.get("write") {
            Some(Level::Number(bytes)) => *bytes,
            _ => order.number_if_any("mtu").unwrap_or(LOOPBACK_MTU),
        };
        let [bytes, write_bytes] = [order.number("bytes"), write_bytes].map(|bytes| bytes as usize);
        let reply = order.number_if_any("reply_bytes").unwrap_or(1) as usize;
        let (request_bytes, answer_bytes, counted) = match direction(&order.factors) {
            "outbound" => (bytes, reply, Counted::Requests),
            "inbound" => (reply, bytes, Counted::Answers),
            _ => match order.number_if_any("request_bytes") {
                None => (bytes, ACKNOWLEDGEMENT_BYTES, Counted::Requests),
                Some(request) => (request as usize, bytes, Counted::Answers),
            },
        };
        let talk = Talk { request_bytes, answer_bytes, counted, write_bytes, is_short: false };
        work(&talk, order, control)
    },
    unit: "bytes",
    check,
    ..PLAIN
};

pub(super) const REQUEST: Workload = Workload {
    name: "network-request",
    summary: "requests and their answers go over connections of TCP that stay open",
    factors: &[
        LINK,
        MTU,
        PAIRS,
        Factor { usual: &["200"], ..REQUEST_BYTES },
        Factor { meaning: "bytes of an answer", usual: &["1000"], ..BYTES },
        DEVICE_CPU,
        MBIT,
        ADAPTER_WAIT,
        HOLD_OFF_US,
        GAP_US,
        OFFLOADS,
        BUFFER_BYTES,
        MACHINES_OF_CLIENTS,
        IDLE_CLIENTS,
        BESIDE,
        SHARE,
        WAIT,
        STACK_WAIT,
    ],
    roles: &[
        host(hosts),
        ADAPTER_OF_CLIENTS,
        MACHINE_OF_CLIENTS,
        MACHINE_OF_SERVERS,
        OF_IDLE_CLIENTS,
        A_NEIGHBOUR,
        A_CLIENT,
        A_SERVER,
        DRIVER_OF_CLIENTS,
        DRIVER_OF_SERVERS,
        ADAPTER_OF_SERVERS,
    ],
    measures: &[&["rate_transactions_per_s"], LATENCIES, &["cpu_ns_per_transaction"]],
    fit,
    allow,
    work: |order, control| work(&transaction(order, false), order, control),
    unit: "transactions",
    check,
    ..PLAIN
};

pub(super) const CONNECT: Workload = Workload {
    name: "network-connect",
    summary: "a connection of TCP for each request and its answer",
    factors: &[
        LINK,
        MTU,
        PAIRS,
        Factor { usual: &["64"], ..REQUEST_BYTES },
        Factor { meaning: "bytes of an answer", usual: &["8 KiB"], ..BYTES },
        DEVICE_CPU,
        MBIT,
        ADAPTER_WAIT,
        HOLD_OFF_US,
        GAP_US,
        OFFLOADS,
        BUFFER_BYTES,
        MACHINES_OF_CLIENTS,
        IDLE_CLIENTS,
        BESIDE,
        SHARE,
        WAIT,
        STACK_WAIT,
    ],
    work: |order, control| work(&transaction(order, true), order, control),
    ..REQUEST
};

/// What may be between two programs, in the order in which it is listed. The last one is of streams alone.
const LINKS: &[&str] = &[
    "machine",
    "introduced",
    "machine-own",
    "machine-lan",
    "hipersockets",
    "lan",
    "iucv",
    "ctc",
    "qdio",
    "veth",
    "loopback",
    "cms",
];

const LINK: Factor = Factor {
    name: "link",
    meaning: "what is between the programs: one TCPIP machine or two, a LAN, adapters, a line, the kernel",
    domain: Domain::Words(LINKS.split_at(LINKS.len() - 1).0),
    usual: &["machine", "loopback"],
};

const MTU: Factor = Factor {
    name: "mtu",
    meaning: "MTU of the line, the veth or the adapters; of a LAN the greatest of 8, 16, 32, 56 KiB within it",
    domain: Domain::Bytes {
        least: siga::line::MTU_MIN as u64,
        most: siga::line::WIDE_MTU_MAX as u64,
    },
    usual: &["56 KiB"],
};

const PAIRS: Factor = Factor {
    name: "pairs",
    meaning: "how many pairs of programs",
    domain: Domain::Number { least: 1, most: 200 },
    usual: &["1"],
};

const REQUEST_BYTES: Factor = Factor {
    name: "request_bytes",
    meaning: "bytes of a request",
    domain: Domain::Bytes { least: 1, most: BYTES_MAX },
    usual: &[],
};

const REQUEST_BYTES_OF_A_STREAM: Factor = Factor {
    meaning: "bytes of the request for a stream that a server answers; left out: bytes go to a target",
    ..REQUEST_BYTES
};

/// Bytes of a request or of an answer, at most.
const BYTES_MAX: u64 = 1 << 30;

const BYTES: Factor = Factor {
    name: "bytes",
    meaning: "bytes of a stream",
    domain: Domain::Bytes { least: 1, most: BYTES_MAX },
    usual: &[],
};

/// Each unit of a stream is answered. With the answer the next one begins, whoever sends it.
const DIRECTION: Factor = Factor {
    name: "direction",
    meaning: "which way bytes go, as seen by the client; left out: to a target, or as request_bytes says",
    domain: Domain::Words(&["outbound", "inbound"]),
    usual: &[],
};

const REPLY_BYTES: Factor = Factor {
    name: "reply_bytes",
    meaning: "bytes of the answer to a stream that has a direction; left out: 1",
    domain: Domain::Bytes { least: 1, most: BYTES_MAX },
    usual: &[],
};

const MBIT: Factor = Factor {
    name: "mbit",
    meaning: "rate of the wire between two adapters in Mb/s, Ethernet's preamble and gap included; 0 or left out: as fast as memory",
    domain: Domain::Number { least: 0, most: 100_000 },
    usual: &[],
};

const HOLD_OFF_US: Factor = Factor {
    meaning: "the longest time in us that adapters keep what has come for a machine; left out: 250",
    ..stream::HOLD_OFF_US
};

const ADAPTER_WAIT: Factor = Factor {
    meaning: "how an adapter waits that has nothing to do; left out: as stack_wait",
    ..stream::ADAPTER_WAIT
};

const OFFLOADS: Factor = Factor {
    name: "offloads",
    meaning: "whether machines leave segments and checksums to their adapters; left out: on",
    domain: Domain::Words(&adapters::OFFLOADS),
    usual: &[],
};

const BUFFER_BYTES: Factor = Factor {
    name: "buffer_bytes",
    meaning: "bytes of each of the two buffers of a machine's connection: the window; left out: 1 MiB",
    domain: Domain::Bytes { least: 4 << 10, most: 16 << 20 },
    usual: &[],
};

/// The factors of adapters and their wire.
const OF_ADAPTERS: [Factor; 6] = [MBIT, ADAPTER_WAIT, HOLD_OFF_US, GAP_US, OFFLOADS, BUFFER_BYTES];

const DEVICE_CPU: Factor = Factor {
    name: "device_cpu",
    meaning: "processors that the driver of a machine's LAN has to itself; 0: the machine does its work",
    domain: Domain::Number { least: 0, most: 1 },
    usual: &[],
};

const MACHINES_OF_CLIENTS: Factor = Factor {
    name: "machines",
    meaning: "machines over which the pairs are spread, where client and server are clients of the same",
    domain: Domain::Number { least: 1, most: 2 },
    usual: &[],
};

const IDLE_CLIENTS: Factor = Factor {
    name: "idle",
    meaning: "clients of the machine that have a listener each and say nothing; left out: none",
    domain: Domain::Number { least: 0, most: 10_000 },
    usual: &[],
};

const BESIDE: Factor = Factor {
    name: "beside",
    meaning: "what another process does meanwhile, as ten clients of the machine or as none; left out: there is none",
    domain: Domain::Words(&[NOBODY, "burns", "stalls", "floods"]),
    usual: &[],
};

const SHARE: Factor = Factor {
    name: "share",
    meaning: "share of the machine's time that each client has but those of the neighbour, which have 1; left out: 1",
    domain: Domain::Number { least: 1, most: SHARE_MAX as u64 },
    usual: &[],
};

const NOBODY: &str = "nobody";

const STACK_WAIT: Factor =
    Factor { name: "stack_wait", meaning: "how a machine waits that has nothing to do", ..WAIT };

/// A machine is ready before its clients attach.
const MACHINE_OF_CLIENTS: RoleSpec =
    RoleSpec { name: CLIENT_STACK, count: machines_of_clients, attends: true, ..role::ONE };

const MACHINE_OF_SERVERS: RoleSpec = RoleSpec {
    name: SERVER_STACK,
    count: |levels| usize::from(machines(levels) > 1),
    ..MACHINE_OF_CLIENTS
};

/// The adapters are there before machines ask for devices.
const ADAPTER_OF_CLIENTS: RoleSpec = RoleSpec {
    name: CLIENT_ADAPTER,
    count: |levels| usize::from(has_adapters(levels)),
    attends: true,
    ..role::ONE
};

/// A thread of the same party: a wire in memory has both ends in one process.
const ADAPTER_OF_SERVERS: RoleSpec = RoleSpec {
    name: SERVER_ADAPTER,
    count: |_| 0,
    thread_of: Some(ThreadOf { party: CLIENT_ADAPTER, is_there: has_adapters }),
    ..role::ONE
};

fn has_adapters(levels: &Factors) -> bool {
    word(levels, "link") == "qdio"
}

/// The clients that are idle are there before the others come.
const OF_IDLE_CLIENTS: RoleSpec = RoleSpec {
    name: beside::IDLE,
    count: |levels| {
        let idle = number(levels, "idle").unwrap_or(0);
        usize::from(machines(levels) > 0 && idle > 0)
    },
    attends: true,
    place: Placement::Any,
    ..role::ONE
};

const A_NEIGHBOUR: RoleSpec = role::neighbour(|levels| {
    let is_there = !["", NOBODY].contains(&word(levels, "beside"));
    usize::from(machines(levels) > 0 && is_there)
});

/// Threads of a machine that do the work of its LAN's driver. No party is one.
const DRIVER_OF_CLIENTS: RoleSpec = RoleSpec {
    name: CLIENT_DRIVER,
    count: |_| 0,
    thread_of: Some(ThreadOf {
        party: CLIENT_STACK,
        is_there: |levels| has_drivers(levels) && machines(levels) > 0,
    }),
    ..role::ONE
};
const DRIVER_OF_SERVERS: RoleSpec = RoleSpec {
    name: SERVER_DRIVER,
    thread_of: Some(ThreadOf {
        party: SERVER_STACK,
        is_there: |levels| has_drivers(levels) && machines(levels) > 1,
    }),
    ..DRIVER_OF_CLIENTS
};
const CLIENT_DRIVER: &str = "client_driver";
const SERVER_DRIVER: &str = "server_driver";

/// Returns true if the drivers of machines have processors of their own.
fn has_drivers(levels: &Factors) -> bool {
    number(levels, "device_cpu") == Some(1)
}

/// The client verifies what comes, so it is the measured role.
const A_CLIENT: RoleSpec = RoleSpec {
    name: CLIENT,
    count: pairs,
    peer: Some(SERVER),
    is_measured: true,
    place: Placement::Own,
    ..role::ONE
};

const A_SERVER: RoleSpec =
    RoleSpec { name: SERVER, peer: Some(CLIENT), is_measured: false, ..A_CLIENT };

/// Bytes that say that a target has a whole stream.
const ACKNOWLEDGEMENT_BYTES: usize = 8;

/// Bytes of a request or an answer that are written at once, at most.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// What stands for one MTU over loopback, whose own is the kernel's.
const LOOPBACK_MTU: u64 = 65_535;

/// Bytes of the longest packet that veth takes.
const VETH_MTU_MAX: u64 = 65_535;

/// What the programs of a trial use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sockets {
    /// Stacks of the guests: that of the source or client, and that of the other.
    Guests([Whose; 2]),
    Veth,
    Loopback,
    /// The bare pipe, as two CMS programs use it.
    Pipe,
}

fn sockets(levels: &Factors) -> Sockets {
    use Whose::{Machine, OwnAtAdapter, OwnAtLine, OwnOnLan, Serving};

    let [first, second] = MACHINES;
    match word(levels, "link") {
        "machine" | "introduced" => Sockets::Guests([Machine(first), Machine(first)]),
        "machine-own" => Sockets::Guests([Machine(first), Serving]),
        "machine-lan" => Sockets::Guests([Machine(first), OwnOnLan]),
        "hipersockets" | "qdio" => Sockets::Guests([Machine(first), Machine(second)]),
        "lan" => Sockets::Guests([OwnOnLan, OwnOnLan]),
        "iucv" => Sockets::Guests([OwnAtLine, OwnAtLine]),
        "ctc" => Sockets::Guests([OwnAtAdapter, OwnAtAdapter]),
        "veth" => Sockets::Veth,
        "cms" => Sockets::Pipe,
        _ => Sockets::Loopback,
    }
}

fn is_put(levels: &Factors) -> bool {
    number(levels, "request_bytes").is_none() && direction(levels).is_empty()
}

fn direction(levels: &Factors) -> &str {
    word(levels, "direction")
}

fn pairs(levels: &Factors) -> usize {
    number(levels, "pairs").unwrap_or(1) as usize
}

fn hosts(levels: &Factors) -> usize {
    usize::from(matches!(sockets(levels), Sockets::Guests(_) | Sockets::Pipe))
}

/// Returns true if the server is the program that serves the machine.
fn is_server_the_machine(levels: &Factors) -> bool {
    matches!(sockets(levels), Sockets::Guests([_, Whose::Serving]))
}

/// How many machines take part as parties of their own.
fn machines(levels: &Factors) -> usize {
    let Sockets::Guests(stacks) = sockets(levels) else { return 0 };
    if stacks.contains(&Whose::Serving) {
        return 0;
    }
    MACHINES.into_iter().filter(|machine| stacks.contains(&Whose::Machine(machine))).count()
}

/// How many machines serve the clients, or the sources.
fn machines_of_clients(levels: &Factors) -> usize {
    match number(levels, "machines") {
        Some(machines) if are_pairs_clients(levels) => machines as usize,
        _ => machines(levels).min(1),
    }
}

/// Whether pairs are clients of one machine, and so of any of several.
fn are_pairs_clients(levels: &Factors) -> bool {
    matches!(word(levels, "link"), "machine" | "introduced")
}

fn fit(factors: &mut Factors) {
    factors.retain(|name, level| !is_absent(name, level));
    let sockets = sockets(factors);
    let link = word(factors, "link").to_owned();
    if sockets == Sockets::Loopback {
        factors.remove("mtu");
    }
    if !has_adapters(factors) {
        OF_ADAPTERS.iter().for_each(|factor| drop(factors.remove(factor.name)));
    }
    match direction(factors) {
        "" => drop(factors.remove("reply_bytes")),
        _ => drop(factors.remove("request_bytes")),
    }
    if machines(factors) == 0 {
        factors.remove("device_cpu");
        factors.remove("idle");
        factors.remove("beside");
        factors.remove("share");
        if !is_server_the_machine(factors) {
            factors.remove("stack_wait");
        }
    }
    if !are_pairs_clients(factors) {
        factors.remove("machines");
    }
    if sockets == Sockets::Pipe {
        factors.remove("bytes");
        factors.remove("write");
    }
    let is_of_kernel = matches!(&*link, "veth" | "loopback");
    if is_of_kernel && word(factors, "wait") == "adaptive" {
        factors.insert("wait".to_owned(), Level::Word("block".to_owned()));
    }
}

fn allow(levels: &Factors) -> Result<(), String> {
    let link = word(levels, "link");
    let mtu = number(levels, "mtu");
    if has_adapters(levels) && has_drivers(levels) {
        return Err(
            "device_cpu = 1: must be 0 at an adapter, whose queues the machine reads itself"
                .to_owned(),
        );
    }
    if link == "cms" && !is_put(levels) {
        return Err(
            "cms: the bare pipe has no requests: must be without request_bytes and direction"
                .to_owned(),
        );
    }
    let pairs = pairs(levels);
    if number(levels, "machines") == Some(2) {
        for other in ["device_cpu", "idle", "beside"] {
            if levels.contains_key(other) {
                return Err(format!("machines = 2: must be 1 with {other}"));
            }
        }
    }
    if is_server_the_machine(levels) && pairs > 1 {
        return Err(format!(
            "pairs = {pairs}: the machine's own program is one server, so must be 1"
        ));
    }
    let Some(mtu) = mtu else { return Ok(()) };
    let is_on_lan = matches!(
        link,
        "machine-own" | "machine" | "introduced" | "machine-lan" | "hipersockets" | "lan"
    );
    match link {
        "qdio" => adapters::check_mtu(mtu),
        "veth" if mtu > VETH_MTU_MAX => {
            Err(format!("mtu = {mtu}: that of veth is {VETH_MTU_MAX} at most"))
        }
        "ctc" if mtu > CTCM_MTU_MAX as u64 => {
            Err(format!("mtu = {mtu}: that of a line over CTC is {CTCM_MTU_MAX} at most"))
        }
        _ if is_on_lan && lan::mtu(mtu).is_none() => {
            Err(format!("mtu = {mtu}: a LAN has one of at least 8192"))
        }
        _ => Ok(()),
    }
}

/// Serves the lines over adapters of a trial, if it has any.
pub(super) fn serve_lines(host: &Embedded, order: &Order) -> Result<Option<ServedLines>, Fault> {
    let has_lines = is_one_of_these(&order.workload) && order.word("link") == "ctc";
    has_lines.then(|| ServedLines::start(host, order)).transpose()
}

/// Tells those of a trial that its host listens who wait for that: the adapters, or else the machines.
pub(super) fn tell_machines(order: &Order, control: &Control) -> Result<(), Fault> {
    if !is_one_of_these(&order.workload) {
        return Ok(());
    }
    match has_adapters(&order.factors) {
        true => tell(&[ADAPTER_OF_CLIENTS], order, control),
        false => tell(&MACHINES_OF_BOTH, order, control),
    }
}

const MACHINES_OF_BOTH: [RoleSpec; 2] = [MACHINE_OF_CLIENTS, MACHINE_OF_SERVERS];

/// Tells all copies of these roles that this party is there.
fn tell(roles: &[RoleSpec], order: &Order, control: &Control) -> Result<(), Fault> {
    for role in roles {
        for number in 0..(role.count)(&order.factors) {
            control.pass_to(&Address::of(role.name, number), "listening", &[])?;
        }
    }
    Ok(())
}

fn is_one_of_these(name: &str) -> bool {
    [STREAM.name, REQUEST.name, CONNECT.name].contains(&name)
}

/// What goes over a connection of requests.
fn transaction(order: &Order, is_short: bool) -> Talk {
    let [request_bytes, answer_bytes] =
        ["request_bytes", "bytes"].map(|factor| order.number(factor) as usize);
    Talk {
        request_bytes,
        answer_bytes,
        write_bytes: WRITE_BYTES_MAX,
        counted: Counted::Transactions,
        is_short,
    }
}

fn work(the_talk: &Talk, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    os::memory::allow_descriptors(1 << 20);
    let at = match &*order.role {
        CLIENT_STACK => return machine(order.number, order, control),
        SERVER_STACK => return machine(1, order, control),
        CLIENT_ADAPTER => return serve_adapters(order, control),
        beside::IDLE => return beside::idle(order, control),
        NEIGHBOUR => return beside::neighbour(order, control),
        _ => usize::from(!order.is_source()),
    };
    match sockets(&order.factors) {
        Sockets::Guests(stacks) if stacks[at] == Whose::Serving => {
            talk(MachineDials::open(stack_wait(order), order, control)?, the_talk, order, control)
        }
        Sockets::Guests(stacks) => {
            let whose = match stacks[at] {
                // Pair by pair.
                Whose::Machine(_) if are_pairs_clients(&order.factors) => {
                    let machines = machines_of_clients(&order.factors);
                    Whose::Machine(MACHINES[order.number % machines])
                }
                whose => whose,
            };
            talk(SocketDials::open(whose, order, control)?, the_talk, order, control)
        }
        Sockets::Veth => talk(KernelDials::over_veth(order, control)?, the_talk, order, control),
        Sockets::Loopback => {
            talk(KernelDials::over_loopback(order, control)?, the_talk, order, control)
        }
        Sockets::Pipe => unreachable!("it is of streams alone"),
    }
}

/// How the order says that a machine waits.
fn stack_wait(order: &Order) -> Wait {
    adapters::wait_by("stack_wait", order)
}

/// Serves its clients until the others are done.
fn machine(number: usize, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let wait = stack_wait(order);
    let limits = beside::limits(order);
    let needs = if has_adapters(&order.factors) { CLIENT_ADAPTER } else { HOST };
    let needs = Address::of(needs, 0);
    let mut machine = ServedMachine::open(number, &needs, limits, wait, order, control)?;
    if has_drivers(&order.factors) {
        machine.give_driver_a_processor(&order.thread_place)?;
        threads_work_for(DRIVER_THREADS, [CLIENT_DRIVER, SERVER_DRIVER][number]);
    }
    if order.role == CLIENT_STACK && (OF_IDLE_CLIENTS.count)(&order.factors) > 0 {
        beside::tell_idle(control)?;
    }
    control.announce()?;
    serve_until_told(order, control, &[], &mut machine)
}

/// Serves two adapters until the others are done.
fn serve_adapters(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    control.note_from(&Address::of(HOST, 0))?;
    let has_own = order.factors.contains_key("adapter_wait");
    let factor = if has_own { "adapter_wait" } else { "stack_wait" };
    let wait = adapters::wait_by(factor, order);
    let mut adapters = ServedAdapters::start(wait, SERVER_ADAPTER, order)?;
    tell(&MACHINES_OF_BOTH, order, control)?;
    control.announce()?;
    let report = serve_until_told(order, control, &[], &mut adapters)?;
    adapters.stop()?;
    Ok(report)
}

/// Two programs exchange a value and one MTU over APPC, as those of the study do that measured the pipe below the drivers.
fn pipe(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let mut factors = order.factors.clone();
    factors.insert("transport".to_owned(), Level::Word("appc".to_owned()));
    factors.insert("bytes".to_owned(), Level::Number(order.number("mtu")));
    let order = Order { factors, ..order.clone() };
    transport::carry(Can::Request, &order, control, order.number("bytes") as usize)
}

/// Each pair has counted the same on both sides, and some of them have got on in the window.
fn check(reports: &Reports) -> Result<(), Fault> {
    for (asking, answering) in [(SOURCE, TARGET), (CLIENT, SERVER)] {
        for (number, (one, other)) in reports.of(asking).zip(reports.of(answering)).enumerate() {
            if one.messages != other.messages {
                let (sent, came) = (one.messages, other.messages);
                let why = format!("{asking} {number} counts {sent}, its {answering} {came}");
                return Err(Fault::Refused { what: "count what went", why });
            }
        }
    }
    let measured = [TARGET, CLIENT].into_iter().flat_map(|role| reports.of(role));
    let done = measured.map(|report| report.work("transactions") + report.work("bytes"));
    if done.sum::<u64>() == 0 { Err(Fault::Nothing) } else { Ok(()) }
}
