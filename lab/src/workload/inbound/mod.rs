//! Files come into a stack while many sessions ask it: bulk data and terminals over the same two stacks, adapters and wire.
//!
//! ```text
//! source                                                          target
//! bulk     ---- files, 64 KiB in each write ------------------>   a byte for each whole file
//! sessions ---- requests, each when it is due ---------------->   an answer to each
//!          stack -- adapter -- wire in memory -- adapter -- stack
//!          kernel ------------ veth ------------------ kernel
//! ```
//!
//! The target is the stack whose input queues are measured, with the program that receives the files and answers. The source is in the place of all
//! senders of files and all terminals. One thread of each side serves all connections, without waiting at any.

mod bulk;
mod burner;
pub(super) mod interactive;
mod receiver;
mod sender;
mod talk;
mod think;

use super::LATENCIES;
use super::pace::{self, ARRIVALS, RATE, THINK};
use super::prelude::*;
use super::stream::{A_PEER_ADAPTER, ADAPTER_WAIT, AN_ADAPTER, GAP_US, HOLD_OFF_US, MTU};
use crate::pattern::STAMPED_BYTES_MIN;
use crate::placement::Placement;
use crate::role::{ADAPTER, NEIGHBOUR, TARGET};
use crate::transport;
use crate::transport::adapters::DYNAMIC_IWQ;
use crate::transport::osa::serve_two;
use crate::transport::watched::{AtAdapter, OverVeth, Watched};

use self::talk::PROTOCOL;
use self::think::THOUGHTS;

pub(super) const WORKLOAD: Workload = Workload {
    name: "inbound",
    summary: "files come into a stack while many sessions ask it, over the same two stacks and devices",
    factors: &[
        Factor {
            name: "transport",
            meaning: "stacks at adapters with a wire in memory between them, or the kernel's over veth",
            domain: Domain::Words(&["tcp-osa", "tcp-osa-inline", "tcp-veth"]),
            usual: &["tcp-osa"],
        },
        Factor {
            name: "inbperf",
            meaning: "how packets come to the receiving stack (INBPERF); dynamic-iwq: as dynamic, and each workload has an input queue of its own",
            domain: Domain::Words(&["balanced", "mincpu", "minlatency", "dynamic", DYNAMIC_IWQ]),
            usual: &["balanced"],
        },
        Factor {
            name: "bulk",
            meaning: "streams of files that come in",
            domain: Domain::Number { least: 0, most: 1 },
            usual: &["1"],
        },
        Factor {
            name: "bytes",
            meaning: "bytes of a file; the next follows when the receiver has confirmed it",
            domain: Domain::Bytes { least: 1, most: 16 << 30 },
            usual: &["20 MiB"],
        },
        Factor {
            name: "bulk_mbit",
            meaning: "rate in Mb/s at which the source writes files; 0: as fast as they go",
            domain: Domain::Number { least: 0, most: 100_000 },
            usual: &["0"],
        },
        Factor {
            name: "sessions",
            meaning: "sessions beside the files, each with a connection of its own",
            domain: Domain::Number { least: 1, most: 1000 },
            usual: &["250"],
        },
        Factor {
            meaning: "requests of all sessions together that are due in a second; 0: each session asks again when it has its answer",
            usual: &["1000"],
            ..RATE
        },
        Factor { usual: &["poisson"], ..ARRIVALS },
        Factor { usual: &[], ..THINK },
        Factor { usual: &[], ..THOUGHTS },
        PROTOCOL,
        Factor {
            name: "request_bytes",
            meaning: "bytes of a request",
            domain: Domain::Bytes { least: STAMPED_BYTES_MIN as u64, most: 1 << 20 },
            usual: &["200"],
        },
        Factor {
            name: "answer_bytes",
            meaning: "bytes of an answer",
            domain: Domain::Bytes { least: 1, most: 1 << 20 },
            usual: &["1000"],
        },
        MBIT,
        Factor { meaning: "MTU of the adapters, or of the veth", usual: &["1500"], ..MTU },
        Factor { usual: &["block"], ..WAIT },
        ADAPTER_WAIT,
        HOLD_OFF_US,
        GAP_US,
        Factor {
            name: BURN,
            meaning: "percent of the receiving stack's processor that a neighbour takes; 0 or left out: there is none",
            domain: Domain::Number { least: 0, most: 100 },
            usual: &[],
        },
    ],
    roles: &[
        role::host(transport::hosts),
        AN_ADAPTER,
        A_SOURCE,
        A_TARGET,
        A_PEER_ADAPTER,
        RoleSpec { peer: Some(TARGET), place: Placement::Any, ..role::neighbour(neighbours) },
    ],
    measures: &[&["rate_bytes_per_s"], LATENCIES, &["cpu_s_per_mib"]],
    fit,
    allow: talk::allow,
    work,
    unit: "bytes",
    check,
    ..PLAIN
};

/// The factor that says whether a neighbour takes the processor, and how much of it.
const BURN: &str = "burn_percent";

fn neighbours(factors: &Factors) -> usize {
    usize::from(factors.contains_key(BURN))
}

/// How fast the wire is.
const MBIT: Factor = Factor {
    name: "mbit",
    meaning: "rate of the wire between the adapters in Mb/s, Ethernet's preamble and gap included; 0: as fast as memory",
    domain: Domain::Number { least: 0, most: 100_000 },
    usual: &["10000"],
};

/// The factors of stacks at adapters.
const OF_ADAPTERS: [&str; 2] = ["inbperf", "mbit"];

/// The factors of a stream of files.
const OF_BULK: [&str; 2] = ["bytes", "bulk_mbit"];

/// How long a side waits for news at most, before it looks at the clock.
const SLICE: Duration = Duration::from_millis(100);

/// The token of the stream of files. Those of sessions are their numbers.
const BULK: u64 = u64::MAX;

/// What the target counts of the streams that it receives.
const STREAMS: &str = "bulk_streams";

/// The level of sessions that a target serves.
const SESSIONS: &str = "sessions";

/// The name of the workload of sessions alone.
const INTERACTIVE: &str = "interactive";

fn fit(factors: &mut Factors) {
    transport::fit(factors);
    pace::fit(factors);
    think::fit(factors);
    if !has_adapters(factors) && !word(factors, "transport").is_empty() {
        OF_ADAPTERS.iter().for_each(|factor| drop(factors.remove(*factor)));
    }
    if number(factors, "bulk") == Some(0) {
        OF_BULK.iter().for_each(|factor| drop(factors.remove(*factor)));
    }
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    match &*order.role {
        ADAPTER => serve_two(order, control),
        NEIGHBOUR => burner::run(order, control),
        _ if has_adapters(&order.factors) => run(AtAdapter::open(order, control)?, order, control),
        _ => run(OverVeth::open(order, control)?, order, control),
    }
}

/// Whether the two stacks are at adapters.
fn has_adapters(factors: &Factors) -> bool {
    transport::adapters(factors) > 0 || transport::has_own_adapter(factors)
}

/// Streams of files that come in.
fn bulk_streams(order: &Order) -> u64 {
    order.number_if_any("bulk").unwrap_or(0)
}

fn run<W: Watched>(mut sockets: W, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    os::memory::allow_descriptors(1 << 20);
    match order.is_source() {
        true => sender::run(&mut sockets, order, control),
        false => receiver::run(&mut sockets, order, control),
    }
}

/// How long to wait until `until_ns`, at most [`SLICE`]; not at all if the party spins.
fn time_until(until_ns: u64, now_ns: u64, order: &Order) -> Duration {
    match order.word("wait") {
        "spin" => Duration::ZERO,
        _ => Duration::from_nanos(until_ns.saturating_sub(now_ns)).min(SLICE),
    }
}

/// Something was answered in the window, and something of a file has come if there are files.
fn check(reports: &Reports) -> Result<(), Fault> {
    let answered = reports.of(SOURCE).any(|report| report.work("transactions") > 0);
    let has_come = |report: &Report| {
        report.work("bytes") > 0 || report.counters.get(STREAMS).is_none_or(|streams| *streams == 0)
    };
    if answered && reports.of(TARGET).all(has_come) { Ok(()) } else { Err(Fault::Nothing) }
}
